use std::error::Error;
use std::fmt::Write as _;

use plotters::coord::Shift;
use plotters::prelude::*;
use serde_json::Value;
use skt_host::shown::escape;
use skt_run::record::Event;
use skt_run::record::energy::{EnergyReading, over_time};

use super::reader::{RunReport, Test, best_rates};

const STYLE: &str = "body{font-family:system-ui,sans-serif;max-width:72rem;margin:2rem auto;\
padding:0 1rem;color:#222;line-height:1.4}table{border-collapse:collapse;margin:1rem 0;\
display:block;overflow-x:auto}th,td{padding:.25rem .7rem;border-bottom:1px solid #ddd;\
text-align:right}th:first-child,td:first-child,th:last-child,td:last-child{text-align:left}\
svg{display:block;max-width:100%;height:auto}section{border-top:2px solid #ddd;margin-top:2.5rem}\
pre{overflow-x:auto}\
dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1rem}dt{color:#555}dd{margin:0}";

/// Number of tests or runs in a chart; with more it is not readable. The tables have all of them.
/// More runs than that have no charts of their own: a page may have a thousand.
const MAX_IN_A_CHART: usize = 12;
/// Numbers beyond are no times, rates or powers.
const MAX_DRAWN: f64 = 1e15;
const SIZE: (u32, u32) = (900, 320);

#[derive(Debug, Clone, PartialEq)]
pub struct NamedRun {
    pub name: String,
    pub report: RunReport,
}

/// Makes the page: a comparison if there are several runs, then every run with its environment, its
/// tests, phases, rate, power and events, and its text.
pub fn page(runs: &[NamedRun]) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>skt-hpl report</title>\n\
         <style>{STYLE}</style>\n</head>\n<body>\n<h1>High-Performance Linpack: report</h1>\n"
    );
    if runs.len() > 1 {
        page.push_str("<h2>Comparison</h2>\n");
        let heads = "run,best Gflop/s,N,P x Q x threads,time (s),% of DGEMM,passed";
        table(&mut page, heads, runs.iter().map(comparison));
    }
    let rates = runs.iter().take(MAX_IN_A_CHART);
    let rates = rates.map(|run| (run.name.clone(), best_rates(run.report.completed())));
    page += &lines(
        "Best rate by order of the matrix",
        "N (rows)",
        "Gflop/s",
        &rates.collect::<Vec<_>>(),
    );
    for run in runs {
        section(&mut page, run, runs.len() <= MAX_IN_A_CHART);
    }
    page.push_str("</body>\n</html>\n");
    page
}

/// A table with these heads, between commas, and rows.
fn table<const N: usize>(
    page: &mut String,
    heads: &str,
    rows: impl IntoIterator<Item = [String; N]>,
) {
    let heads: String = heads.split(',').map(|head| format!("<th>{head}</th>")).collect();
    let _ = writeln!(page, "<table><tr>{heads}</tr>");
    for row in rows {
        let cells: String = row.iter().map(|text| format!("<td>{}</td>", escape(text))).collect();
        let _ = writeln!(page, "<tr>{cells}</tr>");
    }
    page.push_str("</table>\n");
}

fn comparison(NamedRun { name, report }: &NamedRun) -> [String; 7] {
    let passed = report.tests.iter().filter(|test| test.status == "passed").count();
    let passed = format!("{passed} of {}", report.tests.len());
    let rate = |test: &&Test| test.gflops.unwrap_or(0.0);
    let best = report.completed().max_by(|a, b| rate(a).total_cmp(&rate(b)));
    let Some(best) = best else {
        let [none, n, grid, time, share] =
            ["no completed test", "-", "-", "-", "-"].map(Into::into);
        return [name.clone(), none, n, grid, time, share, passed];
    };
    let p = &best.parameters;
    [
        name.clone(),
        number(best.gflops, 2),
        p.n.to_string(),
        format!("{} x {} x {}", p.p, p.q, threads(best)),
        number(best.time_seconds, 2),
        number(best.efficiency.map(|e| 100.0 * e), 1),
        passed,
    ]
}

fn section(page: &mut String, run: &NamedRun, has_charts: bool) {
    let report = &run.report;
    let _ = writeln!(page, "<section>\n<h2>{}</h2>", escape(&run.name));
    if !report.finished {
        page.push_str("<p>This run has not finished: what follows is what it had.</p>\n");
    }
    facts(page, report);
    let heads = "test,N,NB,P,Q,threads,time (s),Gflop/s,% of DGEMM,scaled residual,outcome";
    table(page, heads, (1..).zip(&report.tests).map(test_row));
    if has_charts {
        charts(page, report);
    }
    for (number, test) in (1..).zip(&report.tests) {
        power_and_events(page, number, test);
    }
    if !report.text_report.is_empty() {
        let text = escape(&report.text_report);
        let _ =
            writeln!(page, "<details><summary>Text report</summary><pre>{text}</pre></details>");
    }
    page.push_str("</section>\n");
}

/// What is known of the run and its environment, by the names in JSON.
fn facts(page: &mut String, report: &RunReport) {
    let RunReport { start, end, program, environment, dgemm_self_test, .. } = report;
    let program = program.as_ref().map(|it| format!("{} {}", it.name, it.version));
    let mut facts: Vec<(String, String)> =
        [("started", start.clone()), ("ended", end.clone()), ("program", program)]
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?)))
            .collect();
    facts.push(("command line".to_owned(), report.command_line.join(" ")));
    facts.push(("hosts, ranks".to_owned(), {
        let ranks = report.host_ranks();
        format!("{}, {}", ranks.len(), ranks.iter().fold(0, |a: usize, b| a.saturating_add(*b)))
    }));
    for (name, part) in [("", environment), ("DGEMM self-test", dgemm_self_test)] {
        flatten(&mut facts, name, part);
    }
    page.push_str("<dl>");
    for (name, value) in facts {
        let _ = write!(page, "<dt>{}</dt><dd>{}</dd>", escape(&name), escape(&value));
    }
    page.push_str("</dl>\n");
}

/// Adds texts and numbers of a part of the report; lists of objects are left out.
fn flatten(facts: &mut Vec<(String, String)>, name: &str, part: &Value) {
    match part {
        Value::Null | Value::Array(_) => {}
        Value::Object(parts) => {
            for (key, value) in parts {
                let key = key.replace('_', " ");
                let name = if name.is_empty() { key } else { format!("{name}: {key}") };
                flatten(facts, &name, value);
            }
        }
        Value::String(text) => facts.push((name.to_owned(), text.clone())),
        other => facts.push((name.to_owned(), other.to_string())),
    }
}

/// The threads of a rank, which HPL's text does not have.
fn threads(test: &Test) -> String {
    match test.parameters.threads {
        0 => "-".to_owned(),
        threads => threads.to_string(),
    }
}

fn test_row((number_of_test, test): (usize, &Test)) -> [String; 11] {
    let p = &test.parameters;
    [
        format!("{number_of_test}. {}", test.variant),
        p.n.to_string(),
        p.nb.to_string(),
        p.p.to_string(),
        p.q.to_string(),
        threads(test),
        number(test.time_seconds, 2),
        number(test.gflops, 3),
        number(test.efficiency.map(|e| 100.0 * e), 1),
        test.scaled_residual().map_or("-".into(), |residual| format!("{residual:.3e}")),
        test.status.clone(),
    ]
}

fn charts(page: &mut String, report: &RunReport) {
    let tests: Vec<(String, &Test)> = (1..)
        .zip(&report.tests)
        .take(MAX_IN_A_CHART)
        .map(|(number, test)| (format!("{number}. N={}", test.parameters.n), test))
        .collect();
    *page += &phase_bars(&tests);
    let rates = tests.iter().map(|(name, test)| {
        let points = test.progress.iter().map(|part| (part.elapsed_seconds, part.gflops));
        (name.clone(), points.collect())
    });
    let time = "time since the start (s)";
    *page += &lines("Rate from the start", time, "Gflop/s", &rates.collect::<Vec<_>>());
    let powers = tests.iter().flat_map(|(name, test)| {
        let seconds = test.time_seconds.unwrap_or(0.0);
        let line = move |reading: &EnergyReading| {
            let points = over_time(reading, seconds).into_iter().collect();
            (format!("{name}, {}", reading.source), points)
        };
        test.power.iter().map(line)
    });
    *page += &lines("Power", time, "W", &powers.take(MAX_IN_A_CHART).collect::<Vec<_>>());
}

/// Lines through the points of each series; nothing of less than two points.
fn lines(title: &str, x: &str, y: &str, series: &[(String, Vec<(f64, f64)>)]) -> String {
    let is_drawn = |v: f64| (0.0..MAX_DRAWN).contains(&v);
    let drawn = |points: &[(f64, f64)]| -> Vec<(f64, f64)> {
        points.iter().copied().filter(|(x, y)| is_drawn(*x) && is_drawn(*y)).collect()
    };
    let series: Vec<_> = series.iter().map(|(name, points)| (name, drawn(points))).collect();
    let points = || series.iter().flat_map(|(_, points)| points);
    if points().count() < 2 {
        return String::new();
    }
    let x_end = points().map(|point| point.0).fold(1e-6, f64::max);
    let y_end = 1.05 * points().map(|point| point.1).fold(1e-6, f64::max);
    drawing(|area| {
        let mut chart = ChartBuilder::on(area)
            .caption(title, ("sans-serif", 16))
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(80)
            .build_cartesian_2d(0.0..x_end, 0.0..y_end)?;
        chart.configure_mesh().max_light_lines(0).x_desc(x).y_desc(y).draw()?;
        for (index, (name, points)) in series.iter().enumerate() {
            let colour = Palette99::pick(index).to_rgba();
            // Of a line with few points each is marked.
            let size = if points.len() < MAX_IN_A_CHART { 2 } else { 0 };
            let drawn = LineSeries::new(points.iter().copied(), colour).point_size(size);
            chart.draw_series(drawn)?.label(name.as_str()).legend(move |(x, y)| {
                Rectangle::new([(x, y - 4), (x + 12, y + 4)], colour.filled())
            });
        }
        chart.configure_series_labels().position(SeriesLabelPosition::LowerRight).draw()?;
        Ok(())
    })
}

/// The name of a test, and its phases in seconds.
type Bar<'a> = (&'a String, Vec<(&'static str, f64)>);

/// A bar for each test, of the seconds that each phase took on the slowest rank.
fn phase_bars(tests: &[(String, &Test)]) -> String {
    let bars: Vec<Bar> = tests
        .iter()
        .filter_map(|(name, test)| Some((name, test.phases_seconds.as_ref()?.max.named().to_vec())))
        .filter(|(_, phases)| phases.iter().all(|(_, it)| (0.0..MAX_DRAWN).contains(it)))
        .collect();
    let sum = |phases: &[(&str, f64)]| phases.iter().map(|(_, seconds)| seconds).sum::<f64>();
    let most = bars.iter().map(|(_, phases)| sum(phases)).fold(0.0, f64::max);
    if most <= 1e-6 {
        return String::new();
    }
    let ends = -0.5..bars.len() as f64 - 0.5;
    drawing(|area| {
        let title = "Where the time went: the largest of any rank";
        let mut chart = ChartBuilder::on(area)
            .caption(title, ("sans-serif", 16))
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(80)
            .build_cartesian_2d(ends, 0.0..1.05 * most)?;
        let name = |at: &f64| {
            let bar = bars.get(at.round() as usize).filter(|_| at.fract().abs() < 1e-6);
            bar.map_or(String::new(), |(name, _)| (*name).clone())
        };
        chart
            .configure_mesh()
            .disable_x_mesh()
            .max_light_lines(0)
            .x_labels(bars.len() + 1)
            .x_label_formatter(&name)
            .y_desc("seconds")
            .draw()?;
        for phase in 0..bars[0].1.len() {
            let colour = Palette99::pick(phase).to_rgba();
            let part = |(bar, (_, phases)): (usize, &Bar)| {
                let below = sum(&phases[..phase]);
                let (left, right) = (bar as f64 - 0.35, bar as f64 + 0.35);
                let corners = [(left, below), (right, below + phases[phase].1)];
                Rectangle::new(corners, colour.filled())
            };
            chart.draw_series(bars.iter().enumerate().map(part))?.label(bars[0].1[phase].0).legend(
                move |(x, y)| Rectangle::new([(x, y - 4), (x + 12, y + 4)], colour.filled()),
            );
        }
        chart.configure_series_labels().position(SeriesLabelPosition::UpperRight).draw()?;
        Ok(())
    })
}

fn drawing(
    draw: impl FnOnce(&DrawingArea<SVGBackend, Shift>) -> Result<(), Box<dyn Error>>,
) -> String {
    let mut svg = String::new();
    let drawn = draw(&SVGBackend::with_string(&mut svg, SIZE).into_drawing_area());
    drawn.expect("the figure is in memory");
    svg
}

fn power_and_events(page: &mut String, number_of_test: usize, test: &Test) {
    for link in test.slow_links.iter().flatten() {
        let _ = writeln!(page, "<p>Slow link: {}</p>", escape(&link.describe()));
    }
    if !test.power.is_empty() {
        let _ = writeln!(page, "<h3>Energy, test {number_of_test}</h3>");
        let row = |reading: &EnergyReading| {
            let level = reading.level.map_or(String::new(), |level| format!(", level {level}"));
            [
                format!("{}{level}", reading.source),
                format!("{:.3}", reading.joules / 1000.0),
                format!("{:.1}", reading.mean_watts),
                number(reading.gflops_per_watt, 4),
                format!("{:.1}", reading.measured_seconds),
                reading.covers.clone(),
            ]
        };
        let heads = "measured by,kJ,W,Gflop/s/W,of the time (s),covers";
        table(page, heads, test.power.iter().map(row));
    }
    if !test.events.is_empty() {
        let _ = writeln!(page, "<h3>Events, test {number_of_test}</h3>");
        let row = |event: &Event| {
            let seconds = Some(event.seconds).filter(|seconds| *seconds > 0.0);
            let start = format!("{:.2}", event.start_seconds);
            [event.kind.clone(), start, number(seconds, 2), event.detail.clone()]
        };
        table(page, "event,at (s),for (s),what", test.events.iter().map(row));
    }
}

fn number(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| "-".into(), |value| format!("{value:.decimals$}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The page of runs of `tests` tests, each with these further fields.
    fn shown(runs: usize, tests: usize, more: &str) -> String {
        let test = format!(
            r#"{{"parameters": {{"n": 100, "nb": 8, "p": 1, "q": 1}}, "status": "passed",
                "variant": "W<0>", "time_seconds": 128, "gflops": 5,
                "phases_seconds": {{"max": {{"panel": 1.0, "update": 120}}}}{more}}}"#
        );
        let tests = vec![test; tests].join(",");
        let text = format!(r#"{{"format": "skt-hpl report", "tests": [{tests}]}}"#);
        let report = RunReport::parse(&text).unwrap();
        page(&vec![NamedRun { name: "a".into(), report }; runs])
    }

    #[test]
    fn rate_phases_and_power_are_drawn() {
        let list = |count: usize, one: &dyn Fn(usize) -> String| {
            (0..count).map(one).collect::<Vec<_>>().join(",")
        };
        let progress =
            list(128, &|at| format!(r#"{{"elapsed_seconds": {at}, "gflops": {}}}"#, at % 7));
        let watts = list(100, &|at| (100 + at % 2).to_string());
        let more = format!(
            r#", "progress": [{progress}], "power": [{{"source": "RAPL", "watts": [{watts}]}}]"#
        );
        let one = shown(1, 1, &more);
        for title in ["Where the time went", "Rate from the start", "Power"] {
            assert_eq!(one.matches(&format!("\n{title}")).count(), 1, "{title}: {one}");
        }
        assert!(one.contains("<td>1. W&lt;0&gt;</td>") && one.contains("1. N=100, RAPL"));
        assert!(one.len() < 60_000 && shown(1, 40, &more).len() < 300_000, "{}", one.len());
        // Of many runs the tables are shown, and one chart of all.
        let many = shown(1000, 1, &more);
        assert!(many.matches("<svg").count() < 2 && many.len() < 3_000_000, "{}", many.len());
    }

    #[test]
    fn numbers_of_any_size_are_drawn_or_left_out() {
        for number in ["1e300", "1e-300", "0", "9e14"] {
            let progress = format!(
                r#", "progress": [{{"elapsed_seconds": {number}, "gflops": {number}}},
                    {{"elapsed_seconds": 1, "gflops": {number}}}]"#
            );
            assert!(shown(1, 2, &progress).ends_with("</html>\n"), "{number}");
        }
    }
}
