//! An HTML page from the JSON reports of one run or several, with everything in one file.

use std::fmt::Write as _;
use std::ptr;

use super::reader::{
    Bf16Part, ParametersPart, ProcessColumnPart, RunReport, StepPart, TestReport, best_rates,
};
use super::{heat_map, mxp};
use skt_config::GemmPrecision;
use skt_host::placement;
use skt_model::plot::{Axis, Body, Figure, LineChart, Series, escape};
use skt_run::record::Event;
use skt_run::record::energy::{EnergyReading, over_time};
use skt_terms::units::counted;

const STYLE: &str = "body{font-family:system-ui,sans-serif;max-width:72rem;margin:2rem auto;\
padding:0 1rem;color:#222;line-height:1.4}table{border-collapse:collapse;margin:1rem 0;\
display:block;overflow-x:auto}th,td{padding:.25rem .7rem;border-bottom:1px solid #ddd;\
text-align:right}th:first-child,td:first-child{text-align:left}.words th:last-child,.words td:last-child{text-align:left}svg{display:block;max-width:100%;height:auto}\
section{border-top:2px solid #ddd;margin-top:2.5rem}.bad{color:#a40000;font-weight:bold}\
dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1rem}dt{color:#555}dd{margin:0}";

/// Number of tests or runs in a chart; with more it is not readable. The table has all of them.
const MAX_TESTS_IN_A_CHART: usize = 12;

/// Most bytes of the figures of a run: a page may have a thousand runs.
const MAX_BYTES_OF_FIGURES: usize = 20_000;

/// A run with its name on the page.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedRun {
    /// The name, usually that of the file.
    pub name: String,
    /// The report that was read.
    pub report: RunReport,
}

/// Makes the page: a comparison if there are several runs, then every run with its environment, its
/// tests, the times of its phases and, where the report has them, its progress, events and memory.
pub fn page(runs: &[NamedRun]) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>skt-hpl report</title>\n\
         <style>{STYLE}</style>\n</head>\n<body>\n<h1>High-Performance Linpack: report</h1>\n"
    );
    if runs.len() > 1 {
        comparison(&mut page, runs);
    }
    if let Some(figure) = rates_by_order(runs) {
        page.push_str(&figure.svg());
    }
    for run in runs {
        section(&mut page, run);
    }
    page.push_str("</body>\n</html>\n");
    page
}

/// A table with these heads, between commas; each of its rows has its cells one after the other.
fn table(page: &mut String, class: &str, heads: &str, rows: impl IntoIterator<Item = String>) {
    let heads: String = heads.split(',').map(|head| format!("<th>{head}</th>")).collect();
    let _ = writeln!(page, "<table{class}><tr>{heads}</tr>");
    for cells in rows {
        let _ = writeln!(page, "<tr>{cells}</tr>");
    }
    page.push_str("</table>\n");
}

/// Cells of a table with these texts.
fn cells<const N: usize>(texts: [String; N]) -> String {
    texts.iter().map(|text| format!("<td>{}</td>", escape(text))).collect()
}

/// The class of tables whose last column has words.
const WORDS: &str = " class=\"words\"";

fn comparison(page: &mut String, runs: &[NamedRun]) {
    page.push_str("<h2>Comparison</h2>\n");
    let row = |run: &NamedRun| {
        let Some(best) = best_test(&run.report) else {
            let none = "<td colspan=\"6\" class=\"bad\">no completed test</td>";
            return cells([run.name.clone()]) + none;
        };
        let p = &best.parameters;
        let passed = run.report.tests.iter().filter(|t| t.status == "passed").count();
        cells([
            run.name.clone(),
            number(best.gflops, 2),
            p.n.to_string(),
            format!("{} x {} x {}", p.p, p.q, threads(p)),
            number(best.time_seconds, 2),
            number(best.efficiency.map(|e| 100.0 * e), 1),
            format!("{passed} of {}", run.report.tests.len()),
        ])
    };
    let heads = "run,best Gflop/s,N,P x Q x threads,time (s),% of DGEMM,passed";
    table(page, "", heads, runs.iter().map(row));
}

/// A chart of the best rate at every order, a series for each run, if there are not too many;
/// `None` if it would have one point.
fn rates_by_order(runs: &[NamedRun]) -> Option<Figure> {
    let series = |name: &str, runs: &[NamedRun]| {
        let best = runs.iter().flat_map(|run| best_rates(run.report.completed()));
        Series::measured(name, best.map(|(n, gflops)| (n, gflops, 0.0)))
    };
    let mut series: Vec<Series> = match runs.len() {
        ..=MAX_TESTS_IN_A_CHART => {
            runs.iter().map(|run| series(&run.name, std::slice::from_ref(run))).collect()
        }
        _ => vec![series("runs", runs)],
    };
    series.retain(|series| !series.points.is_empty());
    let points: usize = series.iter().map(|series| series.points.len()).sum();
    (points > 1).then(|| Figure {
        id: "rates",
        title: "Best rate by order of the matrix".into(),
        caption: "The best completed test of every order.".into(),
        body: Body::lines(
            Axis::linear("order N of the matrix (rows)", "n_rows"),
            Axis::linear("performance (Gflop/s)", "performance_gflops"),
            series,
        ),
    })
}

fn section(page: &mut String, run: &NamedRun) {
    let report = &run.report;
    let _ = writeln!(page, "<section>\n<h2>{}</h2>", escape(&run.name));
    if !report.finished {
        page.push_str(
            "<p class=\"bad\">This run has not finished: what follows is what it had.</p>\n",
        );
    }
    environment(page, report);
    test_table(page, report);
    let mut figures = Figures { bytes_left: MAX_BYTES_OF_FIGURES, left_out: 0 };
    if let Some(figure) = phases(report) {
        figures.add(page, &figure.svg());
    }
    if let Some(figure) = timeline(report) {
        figures.add(page, &figure);
    }
    // The fastest test is drawn first, should not all fit.
    let tests = &report.tests;
    let is_best = |index: &usize| best_test(report).is_some_and(|it| ptr::eq(it, &tests[*index]));
    let (best, others): (Vec<usize>, Vec<usize>) = (0..tests.len()).partition(is_best);
    let mut charts = vec![String::new(); tests.len()];
    for index in best.into_iter().chain(others) {
        let test = &tests[index];
        charts_over_time(&mut charts[index], &heading(index + 1, test), test, &mut figures);
    }
    for (index, test) in tests.iter().enumerate() {
        page.push_str(&charts[index]);
        details(page, &heading(index + 1, test), test);
    }
    if figures.left_out > 0 {
        let count = counted(figures.left_out, "figure");
        let _ = writeln!(page, "<p>Not shown, for the size of the page: {count}.</p>");
    }
    page.push_str("</section>\n");
}

/// Adds the figures of a run to the page as far as they fit.
struct Figures {
    bytes_left: usize,
    left_out: usize,
}

impl Figures {
    fn add(&mut self, page: &mut String, figure: &str) {
        match self.bytes_left.checked_sub(figure.len()) {
            Some(left) => {
                self.bytes_left = left;
                page.push_str(figure);
            }
            None => self.left_out += 1,
        }
    }
}

fn environment(page: &mut String, report: &RunReport) {
    let environment = &report.environment;
    let ranks = environment.hosts.iter().fold(0, |sum: usize, h| sum.saturating_add(h.ranks));
    let rows = [
        ("started", report.start.clone()),
        ("ended", report.end.clone()),
        (
            "program",
            report.program.as_ref().map(|program| format!("{} {}", program.name, program.version)),
        ),
        ("command line", Some(report.command_line.join(" ")).filter(|line| !line.is_empty())),
        ("hosts", (ranks > 0).then(|| format!("{} with {ranks} ranks", environment.hosts.len()))),
        ("host of rank 0", environment.host.name.clone()),
        ("processor", environment.host.cpu_model.clone()),
        ("cores of that host", environment.host.cores.map(|cores| cores.to_string())),
        (
            "memory of that host",
            environment
                .host
                .memory_bytes
                .map(|bytes| format!("{:.1} GiB", bytes as f64 / f64::from(1u32 << 30))),
        ),
        ("kernel", environment.host.kernel.clone()),
        ("MPI", environment.mpi_library.clone()),
        ("pinning", environment.pinning.clone()),
        (
            "helper cores",
            (!environment.helper_cpus.is_empty())
                .then(|| format!("cpu {}", placement::list(&environment.helper_cpus))),
        ),
        ("products of bf16", environment.bf16.as_ref().map(bf16_words)),
        (
            "DGEMM self-test",
            report
                .dgemm_self_test
                .as_ref()
                .and_then(|test| test.gflops_per_core)
                .map(|rate| format!("{rate:.2} Gflop/s a core")),
        ),
    ];
    page.push_str("<dl>");
    for (name, value) in rows {
        if let Some(value) = value {
            let _ = write!(page, "<dt>{name}</dt><dd>{}</dd>", escape(&value));
        }
    }
    if let Some(blas) = environment.blas.as_object() {
        for (key, value) in blas.iter().filter(|(_, value)| !value.is_null()) {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let _ = write!(page, "<dt>BLAS {}</dt><dd>{}</dd>", escape(key), escape(&value));
        }
    }
    page.push_str("</dl>\n");
}

/// The library whose products of bf16 are called.
fn bf16_words(bf16: &Bf16Part) -> String {
    let Bf16Part { function, file, gflops_per_core } = bf16;
    let file = file.as_ref().map_or(String::new(), |file| format!(" of {file}"));
    let rate = gflops_per_core.map_or(String::new(), |rate| format!(", {rate:.2} Gflop/s a core"));
    format!("{function}{file}{rate}")
}

/// The threads of a rank, which HPL's text does not have.
fn threads(parameters: &ParametersPart) -> String {
    match parameters.threads {
        0 => "-".to_owned(),
        threads => threads.to_string(),
    }
}

fn test_table(page: &mut String, report: &RunReport) {
    let row = |(position, test): (usize, &TestReport)| {
        let p = &test.parameters;
        let class = match test.status.as_str() {
            "passed" | "not-checked" => "",
            _ => " class=\"bad\"",
        };
        let residual = test.scaled_residual.map(|residual| format!("{residual:.3e}"));
        cells([format!("{position}. {}", test.variant)])
            + &cells([p.n, p.nb, p.p, p.q].map(|value| value.to_string()))
            + &cells([
                threads(p),
                number(test.time_seconds, 2),
                number(test.gflops, 3),
                number(test.efficiency.map(|e| 100.0 * e), 1),
                residual.unwrap_or_else(|| "-".into()),
            ])
            + &format!("<td{class}>{}</td>", escape(&test.status))
    };
    let heads = "test,N,NB,P,Q,threads,time (s),Gflop/s,% of DGEMM,scaled residual,outcome";
    table(page, "", heads, (1..).zip(&report.tests).map(row));
}

fn charted(
    report: &RunReport,
    is_shown: impl Fn(&TestReport) -> bool,
) -> Vec<(usize, &TestReport)> {
    let shown = (1..).zip(&report.tests).filter(|(_, test)| is_shown(test));
    shown.take(MAX_TESTS_IN_A_CHART).collect()
}

/// The addition to a chart's title if it does not show all tests.
fn shown_of_all(report: &RunReport, shown: usize) -> String {
    match report.tests.len() {
        all if all > shown && shown == MAX_TESTS_IN_A_CHART => {
            format!(", the first {shown} of {all} tests")
        }
        _ => String::new(),
    }
}

fn short_name((number, test): &(usize, &TestReport)) -> String {
    format!("{number}. N={} NB={}", test.parameters.n, test.parameters.nb)
}

fn phases(report: &RunReport) -> Option<Figure> {
    let tests = charted(report, |test| test.phases_seconds.is_some());
    let names = tests.first()?.1.phases_seconds.as_ref()?.max.named().map(|(name, _)| name);
    let mut series: Vec<(String, Vec<f64>)> = names
        .iter()
        .enumerate()
        .map(|(index, name)| {
            let seconds = tests
                .iter()
                .map(|(_, t)| t.phases_seconds.as_ref().map_or(0.0, |p| p.max.named()[index].1))
                .collect();
            ((*name).to_string(), seconds)
        })
        .collect();
    // The phase that most often dwarfs the others comes last, so that the others have the same
    // colours with it and without.
    series.sort_by_key(|(name, _)| name == "update");
    let left_out = take_dwarfing(&mut series);
    let but_for = left_out
        .map_or(String::new(), |(name, percent)| format!(", without {name} ({percent:.0} %)"));
    Some(Figure {
        id: "phases",
        title: format!("Where the time went{but_for}{}", shown_of_all(report, tests.len())),
        caption: "Seconds by phase, the largest of any rank.".into(),
        body: Body::bars(
            "test",
            "test",
            tests.iter().map(short_name).collect(),
            Axis::linear("time of the slowest rank (s)", "time_seconds"),
            series,
        ),
    })
}

/// Removes the phase that would make all others invisible, and returns its name and its share in
/// percent.
fn take_dwarfing(series: &mut Vec<(String, Vec<f64>)>) -> Option<(String, f64)> {
    let sums: Vec<f64> = series.iter().map(|(_, seconds)| seconds.iter().sum()).collect();
    let all: f64 = sums.iter().sum();
    let index = sums.iter().position(|sum| *sum > 0.75 * all)?;
    (sums[index] < all).then(|| (series.remove(index).0, 100.0 * sums[index] / all))
}

/// The left end of the strips of the timeline, in pixels.
const STRIP_LEFT: f64 = 150.0;

/// A timeline with one strip per test: generation, the timed part with its events, check.
fn timeline(report: &RunReport) -> Option<String> {
    const WIDTH: f64 = 900.0;
    const ROW: f64 = 26.0;
    let tests = charted(report, |test| test.time_seconds.is_some());
    let longest = tests.iter().map(|(_, test)| total_seconds(test)).fold(0.0, f64::max);
    if longest <= 0.0 {
        return None;
    }
    let scale = (WIDTH - STRIP_LEFT - 90.0) / longest;
    let height = ROW * tests.len() as f64 + 30.0;
    let mut svg = format!(
        "<h3>Timeline{}</h3>\n<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" \
         height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" font-size=\"12\" \
         font-family=\"DejaVu Sans,Verdana,sans-serif\" role=\"img\">\n\
         <title>Timeline of the tests</title>\n",
        shown_of_all(report, tests.len())
    );
    for (row, numbered) in tests.iter().enumerate() {
        strip(&mut svg, numbered, ROW * row as f64, scale);
    }
    timeline_legend(&mut svg, &tests, STRIP_LEFT, height - 8.0);
    svg.push_str("</svg>\n");
    Some(svg)
}

/// Draws the strip of one test, with `scale` pixels per second.
fn strip(svg: &mut String, numbered: &(usize, &TestReport), top: f64, scale: f64) {
    let (_, test) = numbered;
    let _ = writeln!(svg, "<text x=\"0\" y=\"{:.1}\">{}</text>", top + 15.0, short_name(numbered));
    let mut left = STRIP_LEFT;
    let middle = top + 11.0;
    for (name, seconds, colour) in parts(test).into_iter().filter(|part| part.1 > 0.0) {
        let width = seconds * scale;
        let _ = writeln!(
            svg,
            "<path d=\"M{left:.1} {middle}h{width:.1}\" stroke=\"{colour}\" stroke-width=\"16\">\
             <title>{name}: {seconds:.2} s</title></path>"
        );
        left += width;
    }
    let timed_left = STRIP_LEFT + test.generate_seconds.unwrap_or(0.0) * scale;
    let mut events: Vec<&Event> = drawn(test).collect();
    let place = |event: &Event| (event.start_seconds * scale / 2.0) as i64;
    events.dedup_by(|next, last| next.kind == last.kind && place(next) == place(last));
    for alike in events.chunk_by(|a, b| a.kind == b.kind) {
        let mark = |event: &&Event| {
            let x = timed_left + event.start_seconds * scale;
            format!("M{x:.0} {middle}h{:.1}", (event.seconds * scale).max(1.5))
        };
        let path: String = alike.iter().map(mark).collect();
        let colour = event_colour(&alike[0].kind);
        let _ = writeln!(svg, "<path d=\"{path}\" stroke=\"{colour}\" stroke-width=\"20\"/>");
    }
    let _ = writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\">{:.2} s</text>",
        left + 6.0,
        top + 15.0,
        total_seconds(test)
    );
}

fn total_seconds(test: &TestReport) -> f64 {
    parts(test).iter().map(|(_, seconds, _)| seconds).sum()
}

/// The parts of a test in order, each with its name, seconds and colour.
fn parts(test: &TestReport) -> [(&'static str, f64, &'static str); 3] {
    [
        ("generate", test.generate_seconds.unwrap_or(0.0), "#b0b0b0"),
        ("factor and solve (timed)", test.time_seconds.unwrap_or(0.0), "#0072B2"),
        ("check", test.check_seconds.unwrap_or(0.0), "#009E73"),
    ]
}

/// The events that are drawn in a strip: all but the start and the end of the test, which the strip
/// shows itself.
fn drawn(test: &TestReport) -> impl Iterator<Item = &Event> {
    test.events.iter().filter(|event| !matches!(event.kind.as_str(), "start" | "end"))
}

fn event_colour(kind: &str) -> &'static str {
    match kind {
        "checkpoint" => "#E69F00",
        "failure" => "#555555",
        "recovery" => "#D55E00",
        _ => "#CC79A7",
    }
}

fn timeline_legend(svg: &mut String, tests: &[(usize, &TestReport)], left: f64, y: f64) {
    let of_any = parts(tests[0].1).map(|(name, _, colour)| (name.to_owned(), colour));
    let mut entries = Vec::from(of_any);
    for event in tests.iter().flat_map(|(_, t)| drawn(t)) {
        if !entries.iter().any(|(name, _)| *name == event.kind) {
            entries.push((event.kind.clone(), event_colour(&event.kind)));
        }
    }
    let mut x = left;
    for (name, colour) in entries {
        let _ = writeln!(
            svg,
            "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"12\" height=\"12\" fill=\"{colour}\"/>\
             <text x=\"{:.1}\" y=\"{y:.1}\">{}</text>",
            y - 10.0,
            x + 17.0,
            escape(&name)
        );
        x += 34.0 + 7.0 * name.chars().count() as f64;
    }
}

/// The heading of a test, with its number: several tests may have the same variant and order.
fn heading(number: usize, test: &TestReport) -> String {
    let p = &test.parameters;
    format!("test {number}: {}, N = {}, NB = {}, {} x {}", test.variant, p.n, p.nb, p.p, p.q)
}

/// Shows the steps of a refinement, if the test has one.
fn refinement_table(page: &mut String, heading: &str, test: &TestReport) {
    let Some(mxp) = &test.mxp else { return };
    let matrix = test.parameters.matrix.as_deref().unwrap_or("-");
    let gemm = test.parameters.gemm.as_deref().unwrap_or(GemmPrecision::Fp32.name());
    // A later version may have others.
    let unknown = || format!("with products of {gemm} operands");
    let how = GemmPrecision::named(gemm).map_or_else(unknown, |gemm| mxp::precision(gemm).into());
    let _ = writeln!(
        page,
        "<h3>Refinement, {}</h3>\n<p>Matrix {}: factored {} in {} s, refined in {} s{}.</p>",
        escape(heading),
        escape(matrix),
        escape(&how),
        number(mxp.factor_seconds, 2),
        number(mxp.refine_seconds, 2),
        if mxp.has_converged { "" } else { "; it did not converge" }
    );
    let row = |(step, part): (usize, &StepPart)| {
        let StepPart { refinement, corrections, end_seconds, scaled_residual } = part;
        let residual = scaled_residual.map_or("-".into(), |residual| format!("{residual:.3e}"));
        let ended = number(*end_seconds, 2);
        cells([step.to_string(), refinement.clone(), corrections.to_string(), ended, residual])
    };
    let heads = "step,by,corrections,ended at (s),scaled residual";
    table(page, "", heads, (1..).zip(&mxp.steps).map(row));
}

/// Draws the progress and the ranks of one test, if the report has them.
fn charts_over_time(page: &mut String, heading: &str, test: &TestReport, figures: &mut Figures) {
    if !test.progress.is_empty() {
        let over = |f: fn(&super::reader::ProgressPart) -> f64| {
            test.progress.iter().map(move |p| (p.elapsed_seconds, f(p)))
        };
        let chart = |title: &str, y: Axis, series: Vec<Series>| LineChart {
            title: title.into(),
            x: Axis::linear("time since the start (s)", "elapsed_seconds"),
            y,
            series,
        };
        let mut panels = vec![
            chart(
                "progress",
                Axis::linear("work done (%)", "work_done_percent").between(0.0, 100.0),
                vec![Series::line("work done", over(|p| 100.0 * p.fraction))],
            ),
            chart(
                "rate from the start",
                Axis::linear("performance (Gflop/s)", "performance_gflops"),
                vec![Series::line("rate", over(|p| p.gflops))],
            ),
        ];
        let power = power_series(test);
        if !power.is_empty() {
            panels.push(chart("power", Axis::linear("power (W)", "power_watts"), power));
        }
        let figure = Figure {
            id: "progress",
            title: heading.to_owned(),
            caption: "Progress, rate and power over time.".into(),
            body: Body::Panels { columns: panels.len(), panels },
        };
        figures.add(page, &figure.svg());
    }
    if let Some(map) = test.slow.as_ref().and_then(heat_map::svg) {
        figures.add(page, &format!("<h3>Ranks over time, {}</h3>\n{map}\n", escape(heading)));
    }
}

/// Shows what is known of one test, but its charts.
fn details(page: &mut String, heading: &str, test: &TestReport) {
    power_table(page, heading, test);
    slow_links(page, test);
    process_columns_table(page, heading, test);
    refinement_table(page, heading, test);
    events_table(page, heading, test);
    memory_table(page, heading, test);
}

fn slow_links(page: &mut String, test: &TestReport) {
    for link in test.slow_links.iter().flatten() {
        let _ = writeln!(page, "<p>Slow link: {}</p>", escape(&link.describe()));
    }
}

/// Shows the process columns, if their rates are unequal.
fn process_columns_table(page: &mut String, heading: &str, test: &TestReport) {
    if test.process_columns.is_empty() {
        return;
    }
    let _ = writeln!(page, "<h3>Process columns, {}</h3>", escape(heading));
    let row = |(column, part): (usize, &ProcessColumnPart)| {
        let ProcessColumnPart { blocks, rate, waited_seconds } = *part;
        let (rate, waited) = (number(Some(rate), 4), number(waited_seconds, 4));
        cells([column.to_string(), blocks.to_string(), rate, waited])
    };
    let rows = test.process_columns.iter().enumerate().map(row);
    table(page, "", "process column,blocks,rate,waited (s)", rows);
}

/// A line for each source that knows power over time.
fn power_series(test: &TestReport) -> Vec<Series> {
    let seconds = test.time_seconds.unwrap_or(0.0);
    let line = |reading: &EnergyReading| {
        Series::line(format!("power by {}", reading.source), over_time(reading, seconds))
    };
    let readings = test.power.iter().filter(|reading| reading.watts.iter().any(Option::is_some));
    readings.map(line).collect()
}

fn power_table(page: &mut String, heading: &str, test: &TestReport) {
    if test.power.is_empty() {
        return;
    }
    let row = |reading: &EnergyReading| {
        let level = reading.level.map_or(String::new(), |level| format!(", level {level}"));
        cells([
            format!("{}{level}", reading.source),
            format!("{:.3}", reading.joules / 1000.0),
            format!("{:.1}", reading.mean_watts),
            number(reading.gflops_per_watt, 4),
            format!("{:.1}", reading.measured_seconds),
            reading.covers.clone(),
        ])
    };
    let _ = writeln!(page, "<h3>Energy, {}</h3>", escape(heading));
    let heads = "measured by,kJ,W,Gflop/s/W,of the time (s),covers";
    table(page, WORDS, heads, test.power.iter().map(row));
}

fn events_table(page: &mut String, heading: &str, test: &TestReport) {
    if test.events.is_empty() {
        return;
    }
    let row = |event: &Event| {
        let seconds = Some(event.seconds).filter(|seconds| *seconds > 0.0);
        let start = format!("{:.2}", event.start_seconds);
        cells([event.kind.clone(), start, number(seconds, 2), event.detail.clone()])
    };
    let _ = writeln!(page, "<h3>Events, {}</h3>", escape(heading));
    table(page, WORDS, "event,at (s),for (s),what", test.events.iter().map(row));
    if test.events.iter().any(|event| event.kind == "failure") {
        page.push_str(
            "<p>A failure is as long as what it cost: the work since the last checkpoint, and the \
             time until the restart. The phases above are those of all starts, without lost work.</p>\n",
        );
    }
}

/// Shows the memory of a rank by part; known parts come first, in a fixed order.
fn memory_table(page: &mut String, heading: &str, test: &TestReport) {
    const ORDER: [&str; 5] = ["matrix", "copies", "parities", "header", "work_space"];
    let total = test.memory_bytes.values().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
    if total == 0 {
        return;
    }
    let rank = |name: &str| ORDER.iter().position(|known| *known == name).unwrap_or(ORDER.len());
    let mut parts: Vec<(&str, u64)> =
        test.memory_bytes.iter().map(|(name, bytes)| (name.as_str(), *bytes)).collect();
    parts.sort_by_key(|(name, _)| rank(name));
    parts.push(("sum", total));
    let row = |(part, bytes): (&str, u64)| {
        let mib = bytes as f64 / f64::from(1u32 << 20);
        let percent = 100.0 * bytes as f64 / total as f64;
        cells([part.replace('_', " "), format!("{mib:.1}"), format!("{percent:.1}")])
    };
    let _ = writeln!(page, "<h3>Memory of a rank, {}</h3>", escape(heading));
    table(page, "", "part,MiB,%", parts.into_iter().map(row));
}

/// The completed test with the highest rate.
fn best_test(report: &RunReport) -> Option<&TestReport> {
    let rate = |test: &&TestReport| test.gflops.unwrap_or(0.0);
    report.completed().max_by(|a, b| rate(a).total_cmp(&rate(b)))
}

fn number(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| "-".into(), |value| format!("{value:.decimals$}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run of `tests` tests with one second in the panel and `update` seconds in the update.
    fn run_of(tests: usize, update: f64) -> RunReport {
        let test = format!(
            r#"{{"parameters": {{"n": 100, "nb": 8}}, "time_seconds": 2.0,
                 "phases_seconds": {{"max": {{"panel": 1.0, "update": {update}}}}}}}"#
        );
        let tests = vec![test; tests].join(",");
        RunReport::parse(&format!(r#"{{"format": "skt-hpl report", "tests": [{tests}]}}"#)).unwrap()
    }

    #[test]
    fn a_phase_has_its_colour_with_the_largest_one_and_without() {
        let names = |report: &RunReport| match phases(report).unwrap().body {
            Body::Bars(bars) => bars.series.into_iter().map(|(name, _)| name).collect::<Vec<_>>(),
            _ => unreachable!("phases are bars"),
        };
        let (all, fewer) = (names(&run_of(2, 1.0)), names(&run_of(2, 90.0)));
        assert_eq!(fewer.len(), 5);
        assert_eq!(all[..5], fewer);
    }

    #[test]
    fn charts_label_tests_of_equal_order_and_count_omitted_ones() {
        let page = |tests| page(&[NamedRun { name: "a".into(), report: run_of(tests, 90.0) }]);
        let (some, many) = (page(3), page(MAX_TESTS_IN_A_CHART + 2));
        for number in 1..=3 {
            assert!(some.contains(&format!(">{number}. N=100 NB=8<")), "{some}");
        }
        assert!(some.contains("<h3>Timeline</h3>") && !some.contains("the first"));
        assert!(many.contains("<h3>Timeline, the first 12 of 14 tests</h3>"));
        assert!(many.contains("without update (99 %), the first 12 of 14 tests"));
    }

    /// Twelve tests with as many samples and windows as a run has, and many checkpoints and ranks.
    #[test]
    fn figures_of_a_run_have_few_bytes() {
        let list = |count: usize, one: &dyn Fn(usize) -> String| {
            (0..count).map(one).collect::<Vec<_>>().join(",")
        };
        let events = list(100, &|at| {
            format!(r#"{{"kind": "checkpoint", "start_seconds": {at}, "seconds": 0.2}}"#)
        });
        let progress = list(128, &|at| {
            let fraction = at as f64 / 128.0;
            format!(r#"{{"elapsed_seconds": {at}, "fraction": {fraction}, "gflops": {at}}}"#)
        });
        let watts = list(100, &|at| (100 + at % 2).to_string());
        let rates = |rank: usize| (0..64).map(|at| ["90 ", "50 "][(at * rank) % 3 / 2]).collect();
        let ranks = list(300, &|rank| {
            let rates: String = rates(rank);
            format!(r#"{{"host": "n", "rank": {rank}, "gflops_a_thread": "{}"}}"#, rates.trim())
        });
        let columns = list(65, &|column| column.to_string());
        let test = |gflops: usize| {
            format!(
                r#"{{"variant": "W{gflops}", "status": "passed", "gflops": {gflops},
                    "parameters": {{"n": 100, "nb": 8}}, "time_seconds": 128,
                    "phases_seconds": {{"max": {{"panel": 1, "update": 2}}}}, "events": [{events}],
                    "power": [{{"source": "RAPL", "watts": [{watts}]}}], "progress": [{progress}],
                    "slow": {{"columns": [{columns}], "ranks": [{ranks}]}}}}"#
            )
        };
        let shown = |tests: usize| {
            let tests = list(tests, &test);
            let text = format!(r#"{{"format": "skt-hpl report", "tests": [{tests}]}}"#);
            page(&[NamedRun { name: "a".into(), report: RunReport::parse(&text).unwrap() }])
        };
        let bytes = |page: &str| -> usize {
            let figures = page.split("<svg xmlns").skip(1);
            figures.map(|it| it.find("</svg>\n<").map_or(it.len(), |end| end)).sum()
        };
        let (one, many) = (shown(1), shown(12));
        assert!(one.contains("<h3>Ranks over time") && !one.contains("Not shown"), "{one}");
        assert!(bytes(&one) < MAX_BYTES_OF_FIGURES, "{}", bytes(&one));
        assert!(bytes(&many) < MAX_BYTES_OF_FIGURES, "{}", bytes(&many));
        assert!(many.contains("<title>test 12: ") && !many.contains("<title>test 1: "));
        assert!(many.contains("<p>Not shown, for the size of the page: 23 figures.</p>"));
    }

    #[test]
    fn steps_of_a_refinement_are_shown() {
        let page = |mxp: &str| {
            let test = format!(r#"{{"parameters": {{"n": 100, "matrix": "a<b"}} {mxp}}}"#);
            let text = format!(r#"{{"format": "skt-hpl report", "tests": [{test}]}}"#);
            page(&[NamedRun { name: "a".into(), report: RunReport::parse(&text).unwrap() }])
        };
        let steps = r#"[{"refinement": "classic", "corrections": 1, "end_seconds": 4.5,
                "scaled_residual": 25000.0},
            {"refinement": "gmres", "corrections": 9, "end_seconds": 4.75,
                "scaled_residual": null}]"#;
        let shown = page(&format!(
            r#", "mxp": {{"factor_seconds": 4, "refine_seconds": 0.75, "steps": {steps},
                "has_converged": false}}"#
        ));
        assert!(shown.contains("<p>Matrix a&lt;b: factored in single precision in 4.00 s"));
        assert!(shown.contains("refined in 0.75 s; it did not converge.</p>"), "{shown}");
        let row = "<td>1</td><td>classic</td><td>1</td><td>4.50</td><td>2.500e4</td>";
        assert!(shown.contains(row), "{shown}");
        assert!(shown.contains("<td>gmres</td><td>9</td><td>4.75</td><td>-</td>"), "{shown}");
        assert!(!page("").contains("Refinement"));
        for (gemm, how) in [
            ("fp32", "in single precision"),
            ("bf16", "with products of bf16 operands"),
            ("bf16-emulated", "with emulated products of bf16 operands"),
            ("fp8", "with products of fp8 operands"),
        ] {
            let parameters = format!(r#""parameters": {{"matrix": "scaled", "gemm": "{gemm}"}}"#);
            let mxp = r#""mxp": {"factor_seconds": 4, "has_converged": true}"#;
            let text =
                format!(r#"{{"format": "skt-hpl report", "tests": [{{{parameters}, {mxp}}}]}}"#);
            let report = RunReport::parse(&text).unwrap();
            let page = super::page(&[NamedRun { name: "a".into(), report }]);
            assert!(
                page.contains(&format!("<p>Matrix scaled: factored {how} in 4.00 s")),
                "{page}"
            );
        }
    }

    #[test]
    fn unequal_process_columns_are_shown() {
        let mut report = run_of(1, 1.0);
        let page =
            |report: &RunReport| page(&[NamedRun { name: "a".into(), report: report.clone() }]);
        assert!(!page(&report).contains("Process columns"));
        let part = |waited_seconds| ProcessColumnPart { blocks: 21, rate: 2.0, waited_seconds };
        report.tests[0].process_columns = vec![part(Some(0.5)), part(None)];
        let shown = page(&report);
        for row in
            ["<td>0</td><td>21</td><td>2.0000</td><td>0.5000</td>", "<td>2.0000</td><td>-</td>"]
        {
            assert!(shown.contains(row), "{shown}");
        }
    }

    #[test]
    fn a_dwarfing_phase_is_left_out_of_the_chart_and_named() {
        let series = |update: f64| {
            vec![("panel".to_owned(), vec![1.0, 2.0]), ("update".to_owned(), vec![update, update])]
        };
        let mut large = series(48.5);
        assert_eq!(take_dwarfing(&mut large), Some(("update".to_owned(), 97.0)));
        assert_eq!(large, series(0.0)[..1]);
        let mut even = series(3.0);
        assert_eq!(take_dwarfing(&mut even), None);
        assert_eq!(even, series(3.0));
        let mut alone = series(1.0).split_off(1);
        assert_eq!(take_dwarfing(&mut alone), None);
        assert_eq!(take_dwarfing(&mut Vec::new()), None);
    }
}
