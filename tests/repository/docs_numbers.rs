//! Tables of docs/model.md, docs/performance.md and docs/measurements/notebook.md against what they
//! were made of: raw runs in docs/measurements, and the model of the critical path.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use skt_config::{Bcast, Swap};
use skt_hpl::report::measured::parse;
use skt_model::path::{Changes, Machine, MeasuredTest, Part, RunParams, fit, measured, predict};

const MODEL: &str = include_str!("../../docs/model.md");
const PERFORMANCE: &str = include_str!("../../docs/performance.md");
const NOTEBOOK: &str = include_str!("../../docs/measurements/notebook.md");
const GPU_PROBE: &str = include_str!("../../docs/measurements/gpu-probe.md");
const README: &str = include_str!("../../README.md");

/// The rows of the table whose head begins with `head`: cells, trimmed.
fn table(page: &'static str, head: &str) -> Vec<Vec<&'static str>> {
    let start = page.find(head).unwrap_or_else(|| panic!("no table {head:?}"));
    let lines = page[start..].lines().take_while(|line| line.starts_with('|'));
    let cells =
        |line: &'static str| line.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>();
    lines.skip(2).map(cells).collect()
}

/// Asserts that a page has these words.
#[track_caller]
fn has(page: &str, words: impl AsRef<str>) {
    assert!(page.contains(words.as_ref()), "no page has: {}", words.as_ref());
}

/// The time that the model predicts for a test, relative to the measured one, less one.
fn off(measured: &MeasuredTest, machine: &Machine) -> f64 {
    predict(&measured.run, machine, &Changes::default()).unwrap().time_seconds
        / measured.time_seconds
        - 1.0
}

/// A run with one thread, DEPTH 1 and rows exchanged as by default.
fn run_params(n: usize, nb: usize, p: usize, q: usize, ring: &str) -> RunParams {
    let bcast = Bcast::named(ring).unwrap();
    let (swap, swap_threshold, halves) = (Swap::Mix, 64, true);
    RunParams { n, nb, p, q, threads: 1, depth: 1, bcast, swap, swap_threshold, halves }
}

fn measurements() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/measurements")
}

/// The raw runs of a file of JSON lines.
fn raw_runs(file: &str) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(measurements().join(file)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The fastest measurement of each run, from all reports in `file`, one a line, that were written
/// to a file (`--json`) whose name starts with `beginning`.
fn runs_in(file: &str, beginning: &str) -> Vec<MeasuredTest> {
    let named = |report: &serde_json::Value| {
        let words = report["command_line"].as_array().unwrap();
        let flag = words.iter().position(|word| word == "--json").unwrap();
        words[flag + 1].as_str().unwrap().starts_with(beginning)
    };
    let reports: Vec<_> = raw_runs(file).into_iter().filter(named).collect();
    assert!(!reports.is_empty(), "{beginning}");
    let tests = |report: &serde_json::Value| parse(&report.to_string()).unwrap();
    let all: Vec<MeasuredTest> = reports.iter().flat_map(tests).collect();
    measured::fastest(&all)
}

/// The fastest measurements of the runs of 2026-11-20.
fn runs(beginning: &str) -> Vec<MeasuredTest> {
    runs_in("2026-11-20-path.jsonl", beginning)
}

fn fit_to(runs: Vec<MeasuredTest>) -> Machine {
    let tests: Vec<MeasuredTest> =
        runs.into_iter().filter(|measured| measured.run.n >= 2048).collect();
    fit::fit(&tests, &Machine::ZEN4_CORE).unwrap().machine
}

fn fitted() -> Machine {
    fit_to(runs("fit-"))
}

#[test]
fn errors_over_links_are_those_of_the_raw_runs() {
    let file = "2026-11-23-path-zen4.jsonl";
    let host = fit_to(runs_in(file, "fit-"));
    let over =
        |gbs: f64| Machine { message_seconds: 15e-6, message_byte_seconds: 1e-9 / gbs, ..host };
    let of_link = |link: &str| fit_to(runs_in(file, &format!("link-{link}-fit-")));
    let cases = [
        (host, "check-"),
        (over(1.25), "link-10gbit-check-"),
        (over(0.25), "link-2gbit-check-"),
        (of_link("10gbit"), "link-10gbit-check-"),
        (of_link("2gbit"), "link-2gbit-check-"),
    ];
    let mut over_links = (f64::INFINITY, 0.0f64);
    let cells: Vec<[String; 2]> = cases
        .into_iter()
        .map(|(machine, files)| {
            let runs = runs_in(file, files);
            let offs: Vec<f64> = runs.iter().map(|run| off(run, &machine).abs()).collect();
            let mean = offs.iter().sum::<f64>() / offs.len() as f64;
            let worst = offs.iter().copied().fold(0.0, f64::max);
            if files.starts_with("link-") {
                over_links = (over_links.0.min(mean), over_links.1.max(mean));
            }
            let time = format!("{:.1} % ({:.1} %)", 100.0 * mean, 100.0 * worst);
            [runs.len().to_string(), time]
        })
        .collect();
    let shown: Vec<[String; 2]> = table(NOTEBOOK, "| fitted to | network | tests |")
        .iter()
        .map(|row| [row[2].to_string(), row[3].to_string()])
        .collect();
    assert_eq!(shown, cells);
    let (least, most) = (100.0 * over_links.0, 100.0 * over_links.1);
    has(MODEL, format!("over links of 2 and 10 Gbit/s by {least:.1} to {most:.1} %"));
}

#[test]
fn errors_of_the_model_are_those_of_the_raw_runs() {
    let machine = Machine::ZEN4_CORE;
    let rows = table(NOTEBOOK, "| tests | time: mean error (worst)");
    let files = ["check-1x2", "check-2x1", "check-depth", "check-bcast"];
    assert_eq!(rows.len(), files.len());
    let mut tests = 0;
    // For each phase the least and the largest error of all rows, in percent of the seconds of the
    // phase.
    let mut own = [(f64::INFINITY, 0.0f64); 5];
    let mut means = (f64::INFINITY, 0.0f64);
    let mut at_10000 = 0.0f64;
    for (row, files) in rows.iter().zip(files) {
        let runs = runs(files);
        tests += runs.len();
        let count = runs.len() as f64;
        let (mut sum, mut worst, mut phases) = (0.0, 0.0f64, [0.0; 5]);
        let mut off_and_seconds = [(0.0, 0.0); 5];
        for measured in &runs {
            let predicted = predict(&measured.run, &machine, &Changes::default()).unwrap();
            let off = off(measured, &machine).abs();
            sum += off;
            worst = worst.max(off);
            if measured.run.n == 10_000 {
                at_10000 = at_10000.max(off);
            }
            let pairs = predicted.mean.named().into_iter().zip(measured.mean.named());
            for (index, ((_, p), (_, m))) in pairs.take(5).enumerate() {
                phases[index] += (p - m).abs() / measured.time_seconds / count;
                off_and_seconds[index].0 += (p - m).abs();
                off_and_seconds[index].1 += m;
            }
        }
        for (index, (off, seconds)) in off_and_seconds.into_iter().enumerate() {
            let share = 100.0 * off / seconds;
            // On one process column nothing is broadcast.
            if row[index + 2] != "-" {
                own[index] = (own[index].0.min(share), own[index].1.max(share));
            }
        }
        if files == "check-1x2" {
            let others = 100.0 * (sum - worst) / (count - 1.0);
            assert_eq!(runs.len(), 9);
            has(NOTEBOOK, format!("the other eight tests of its row are off by {others:.1} %"));
        }
        let mean = 100.0 * sum / count;
        means = (means.0.min(mean), means.1.max(mean));
        let time = format!("{mean:.1} % ({:.1} %)", 100.0 * worst);
        assert_eq!(row[1], time, "{}", row[0]);
        for (cell, phase) in row[2..].iter().zip(phases) {
            assert!(*cell == "-" || *cell == format!("{:.2}", 100.0 * phase), "{row:?}: {phase}");
        }
    }
    let [panel, swap, bcast, update, back] = own;
    let between = |(least, most): (f64, f64)| format!("{least:.0} to {most:.0} %");
    let all = runs("check-").len();
    has(NOTEBOOK, format!("the update is off by {:.1} to {:.0} %", update.0, update.1));
    let (panel, swap) = (between(panel), between(swap));
    has(NOTEBOOK, format!("the panel by {panel}, the row exchange by {swap}"));
    let (bcast, back) = (between(bcast), between(back));
    has(NOTEBOOK, format!("broadcasts by {bcast}, the back substitution by {back}"));
    has(NOTEBOOK, format!("(two cores, {tests} tests by messages"));
    has(NOTEBOOK, format!("prints {all}"));
    has(MODEL, format!("times are off by {:.1} to {:.1} % on average", means.0, means.1));
    has(MODEL, format!("At N = 10000 the times are within {:.1} %", 100.0 * at_10000));
}

/// The model was fitted when spread-roll still rolled uneven shares of rows, as these runs did.
/// Since then single units that the runs hardly determine have moved, so times are compared.
#[test]
fn the_machine_of_the_model_is_that_of_the_raw_runs() {
    let (found, kept) = (fitted(), Machine::ZEN4_CORE);
    for MeasuredTest { run, .. } in runs("check-") {
        let seconds = |machine| predict(&run, machine, &Changes::default()).unwrap().time_seconds;
        let (found, kept) = (seconds(&found), seconds(&kept));
        assert!((found / kept - 1.0).abs() < 3e-3, "{run:?}: {found} s, in the code {kept} s");
    }
}

/// The median; for an even number of values the mean of the two in the middle.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    (values[(values.len() - 1) / 2] + values[values.len() / 2]) / 2.0
}

/// The rates of one case by side (skt-hpl, reference), in the order of their turns.
type Rates = BTreeMap<String, Vec<f64>>;

/// The rates of the raw runs of a file with order `n` on `grid`.
fn rates(file: &str, n: u64, grid: &str) -> Rates {
    let mut rates = Rates::new();
    for run in raw_runs(file) {
        if run["n"] == n && run["grid"] == grid {
            let side = run["side"].as_str().unwrap().to_owned();
            rates.entry(side).or_default().push(run["gflops"].as_f64().unwrap());
        }
    }
    rates
}

/// Compares a column of the results with the raw runs of this file; the least and the largest gain
/// of its cells, in percent.
fn gains(column: usize, file: &str) -> (u32, u32) {
    let rows = table(PERFORMANCE, RESULTS);
    assert_eq!(rows.len(), 5);
    let mut extent = (u32::MAX, 0);
    for row in rows {
        let n: u64 = row[0].split([' ', ',']).nth(2).unwrap().parse().unwrap();
        let grid = match row[0].split_once(", ").unwrap().1 {
            "1 x 2" => "1x2",
            "2 x 1" => "2x1",
            other => panic!("{other}"),
        };
        let of = rates(file, n, grid);
        let (ours, reference) = (&of["skt-hpl"], &of["reference"]);
        let (our_median, their_median) = (median(ours.clone()), median(reference.clone()));
        let ratio = our_median / their_median;
        let pairs: Vec<f64> = ours.iter().zip(reference).map(|(a, b)| a / b).collect();
        let least = pairs.iter().copied().fold(f64::INFINITY, f64::min);
        let most = pairs.iter().copied().fold(0.0, f64::max);
        let want = format!(
            "**{ratio:.3}** ({least:.3} to {most:.3}), {} pairs: {their_median:.1}, {our_median:.1}",
            ours.len()
        );
        assert_eq!(row[column], want, "{}", row[0]);
        let percent = (100.0 * (ratio - 1.0)).round() as u32;
        extent = (extent.0.min(percent), extent.1.max(percent));
    }
    extent
}

const RESULTS: &str = "| case | Zen 3 | Zen 4 | Zen 5 |";

#[test]
fn the_comparisons_with_the_reference_are_those_of_the_raw_runs() {
    let zen3 = gains(1, "2026-11-24-pairs-zen3.jsonl");
    let zen4 = gains(2, "2026-11-23-pairs-zen4.jsonl");
    let zen5 = gains(3, "2026-11-24-pairs-zen5.jsonl");
    let all = [zen3, zen4, zen5];
    let least = all.iter().map(|gain| gain.0).min().unwrap();
    let most = all.iter().map(|gain| gain.1).max().unwrap();
    has(README, format!("it is {least} to {most} % faster than HPL 2.3"));
}

#[test]
fn predictions_for_larger_machines_are_those_of_the_model() {
    let rows = table(PERFORMANCE, "| ranks, memory full | NB, ring | N |");
    assert_eq!(rows.len(), 8);
    let mut wrong = Vec::new();
    for row in rows {
        let mut words = row[0].split([' ', ',']).filter_map(|word| word.parse::<f64>().ok());
        let mut next = || words.next().unwrap();
        let (p, q, threads) = (next() as usize, next() as usize, next());
        let (nb, ring) = row[1].split_once(", ").unwrap();
        let nb: usize = nb.parse().unwrap();
        let run = run_params(row[2].replace(',', "").parse().unwrap(), nb, p, q, ring);
        let run = RunParams { threads: threads as usize, ..run };
        if !row[0].contains("strong") {
            let full = (4.0 * threads * 2f64.powi(27) * (p * q) as f64).sqrt();
            assert_eq!(run.n, full as usize / nb * nb, "{}", row[0]);
        }
        // 23 GB/s for 64 cores, rounded as in the rows.
        let gbs = [(1.0, 0.36), (4.0, 1.44), (16.0, 5.75)]
            .into_iter()
            .find_map(|(cores, gbs)| (cores == threads).then_some(gbs))
            .unwrap();
        let machine = Machine {
            message_seconds: 1.5e-6,
            message_byte_seconds: 1e-9 / gbs,
            ..Machine::ZEN4_CORE
        };
        let prediction = predict(&run, &machine, &Changes::default()).unwrap();
        let on_path = |parts: &[Part]| {
            let seconds: f64 = parts.iter().map(|&part| prediction.path[part as usize]).sum();
            format!("{:.1}", 100.0 * seconds / prediction.time_seconds)
        };
        let columns: [&[Part]; 5] = [
            &[Part::Product],
            &[Part::RowMessages],
            &[Part::Bcast],
            &[Part::Panel, Part::Pivots],
            &[Part::Solve, Part::Rows],
        ];
        let efficiency = format!("{:.1} %", 100.0 * prediction.efficiency);
        let cells: Vec<String> =
            [efficiency].into_iter().chain(columns.into_iter().map(on_path)).collect();
        if row[3..] != cells {
            wrong.push(format!("{}: {cells:?}", row[0]));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn simulated_ranks_are_compared_with_the_model() {
    let runs = raw_runs("2026-11-24-simulated-ranks.jsonl");
    let row = |simulated: &serde_json::Value| {
        let count = |field: &str| simulated[field].as_u64().unwrap() as usize;
        let seconds = |field: &str| simulated[field].as_f64().unwrap();
        assert_eq!(simulated["work"], "counted");
        let (n, nb, p, q, depth) =
            (count("n"), count("nb"), count("p"), count("q"), count("depth"));
        let ring = simulated["bcast"].as_str().unwrap();
        let halves = simulated["halves"].as_bool().unwrap();
        let run = RunParams { depth, halves, ..run_params(n, nb, p, q, ring) };
        let (message, byte) = (seconds("message_seconds"), seconds("byte_seconds"));
        let machine = Machine {
            copied_byte_seconds: 0.0,
            message_seconds: message,
            message_byte_seconds: byte,
            ..Machine::ZEN4_CORE
        };
        let model = predict(&run, &machine, &Changes::default()).unwrap();
        let off = 100.0 * (model.time_seconds / seconds("time_seconds") - 1.0);
        assert_eq!((n, nb), (8192, 64), "the page says so above its table");
        let in_halves = if halves { ", halves" } else { "" };
        let both = |phase: &str, model: f64| format!("{:.4}, {model:.4}", seconds(phase));
        let (us, gbs) = (message * 1e6, 1e-9 / byte);
        [
            format!("{p} x {q}{in_halves}"),
            format!("{} us, {} GB/s", (us * 1e3).round() / 1e3, (gbs * 1e3).round() / 1e3),
            format!("{ring}, {depth}"),
            format!("{:.4}", seconds("time_seconds")),
            format!("{:.4}", model.time_seconds),
            format!("{off:+.1} %"),
            both("panel", model.mean.panel),
            both("swap", model.mean.swap),
            both("bcast_seconds", model.mean.bcast),
            both("update", model.mean.update),
        ]
    };
    has(NOTEBOOK, "N = 8192, NB 64, work as counted");
    let rows = table(NOTEBOOK, "| ranks | network | ring, DEPTH | simulated");
    assert_eq!(rows, runs.iter().map(row).collect::<Vec<_>>());
}

#[test]
fn shares_of_the_refinement_are_those_of_the_raw_runs() {
    let runs = raw_runs("2026-11-28-simulated-mxp.jsonl");
    let row = |run: &serde_json::Value| {
        let text = |field: &str| run[field].as_str().unwrap().to_owned();
        let milliseconds = |field: &str| 1e3 * run[field].as_f64().unwrap();
        let (time, refine) = (milliseconds("time_seconds"), milliseconds("refine_seconds"));
        assert_eq!(run["corrections"], 3, "the page says so above its table");
        assert!((time - milliseconds("factor_seconds") - refine).abs() < 1e-6);
        let gbs = (1e-6 / milliseconds("byte_seconds") * 1e3).round() / 1e3;
        let no_work = if run["work"] == "none" { ", no work" } else { "" };
        [
            format!("{} x {}", run["p"], run["q"]),
            format!("{gbs} GB/s{no_work}"),
            text("mxp"),
            run["nb"].to_string(),
            run["n"].to_string(),
            format!("{time:.2}"),
            format!("{:.2}", milliseconds("factor_seconds")),
            format!("{refine:.2}"),
            format!("{:.2}", milliseconds("back")),
            format!("{:.1} %", 100.0 * refine / time),
        ]
    };
    let rows = table(NOTEBOOK, "| ranks | bandwidth | matrix | NB | N |");
    assert_eq!(rows, runs.iter().map(row).collect::<Vec<_>>());
}

/// The page's mean seconds and shares of the phases at N = 10000 are those of the raw runs.
#[test]
fn seconds_of_phases_are_those_of_the_raw_runs() {
    let head = "| phase | 1 x 2, NB 160 | 1 x 2, NB 224 | 2 x 1, NB 160 | 2 x 1, NB 224 |";
    let rows = table(PERFORMANCE, head);
    let columns = [("1x2", 160), ("1x2", 224), ("2x1", 160), ("2x1", 224)];
    for (column, (grid, nb)) in columns.into_iter().enumerate() {
        let runs = runs(&format!("shared-check-{grid}"));
        let is_shown = |m: &&MeasuredTest| m.run.n == 10_000 && m.run.nb == nb;
        let measured = runs.iter().find(is_shown).unwrap();
        for row in &rows {
            let named = measured.mean.named();
            let (_, seconds) = named.iter().find(|(name, _)| *name == row[0]).unwrap();
            let share = 100.0 * seconds / measured.time_seconds;
            assert_eq!(row[column + 1], format!("{seconds:.3}, {share:.1} %"), "{}", row[0]);
        }
    }
}

#[test]
fn the_cost_of_checkpoints_is_that_of_the_raw_runs() {
    let mut runs = Vec::new();
    for line in raw_runs("2026-11-20-checkpoints.jsonl") {
        match line["runs"].as_array() {
            Some(list) => runs.extend(list.iter().filter(|run| run["every"].is_null()).cloned()),
            None if line["bench"] == "hpl" => runs.push(line),
            None => {}
        }
    }
    // The page has the last two pairs; earlier ones are of earlier states of the program.
    let rows = table(PERFORMANCE, "| pair | without (`--ft none`) | with 5 checkpoints | more |");
    assert_eq!(rows.len(), 2);
    let runs = &runs[runs.len() - 4..];
    let of = |run: &serde_json::Value, name: &str| run[name].as_f64();
    let seconds = |run| of(run, "time_seconds").or(of(run, "seconds")).unwrap();
    for (row, pair) in rows.iter().zip(runs.chunks(2)) {
        let (without, with) = (seconds(&pair[0]), seconds(&pair[1]));
        let part = |name| of(&pair[1], name).unwrap();
        assert_eq!(row[1], format!("{without:.2} s"));
        assert_eq!(row[2], format!("{with:.2} s"));
        assert_eq!(row[3], format!("{:.1} %", 100.0 * (with / without - 1.0)));
        let checkpoints = format!(
            "{:.2} s ({:.2}, {:.2})",
            part("checkpoint_seconds"),
            part("encode_seconds"),
            part("copy_seconds")
        );
        assert_eq!(row[4], checkpoints);
    }
}

/// docs/model.md compares the model of messages with runs by messages and in shared memory.
#[test]
fn shared_memory_is_compared_with_the_raw_runs() {
    let machine = Machine::ZEN4_CORE;
    let (check, shared) = (runs("check-2x1"), runs("shared-check-2x1"));
    let at = |runs: &[MeasuredTest], nb| {
        *runs.iter().find(|m| m.run.n == 10_000 && m.run.nb == nb).unwrap()
    };
    let list = |of: &dyn Fn(usize) -> f64| {
        let [a, b, c] = [96, 160, 224].map(|nb| format!("{:.2}", of(nb)));
        format!("{a}, {b} and {c} s")
    };
    let model = list(&|nb| {
        predict(&at(&check, nb).run, &machine, &Changes::default()).unwrap().time_seconds
    });
    let by_messages = list(&|nb| at(&check, nb).time_seconds);
    let in_memory = list(&|nb| at(&shared, nb).time_seconds);
    has(MODEL, format!("it says {model};"));
    has(MODEL, format!("measured were {by_messages} by messages, {in_memory} in shared memory"));
}

#[test]
fn the_comparison_over_links_is_that_of_the_raw_runs() {
    let runs = raw_runs("2026-11-23-links-zen4.jsonl");
    let rows = table(PERFORMANCE, "| grid, link | HPL 2.3");
    assert_eq!(rows.len(), 4);
    for row in rows {
        let (grid, link) = row[0].split_once(", ").unwrap();
        let (grid, link) = (grid.replace(' ', ""), link.replace(" Gbit/s", "gbit"));
        let best = |link: &str, side: &str, turn: usize| -> f64 {
            let case = |run: &&serde_json::Value| {
                run["grid"] == grid
                    && run["link"] == link
                    && run["side"] == side
                    && run["turn"] == turn
            };
            let rates = runs.iter().filter(case).map(|run| run["gflops"].as_f64().unwrap());
            rates.reduce(f64::max).expect("a run of each side in each turn")
        };
        let turns = |link: &str, side: &str| -> Vec<f64> {
            (0..3).map(|turn| best(link, side, turn)).collect()
        };
        let (ours, reference) = (turns(&link, "skt-hpl"), turns(&link, "reference"));
        let unlinked = turns("none: shared memory", "skt-hpl");
        let pairs: Vec<String> =
            ours.iter().zip(&reference).map(|(a, b)| format!("{:.3}", a / b)).collect();
        let (unlinked, reference) = (median(unlinked), median(reference));
        assert_eq!(row[1], format!("{reference:.1}"), "{}", row[0]);
        assert_eq!(row[2], format!("{:.1}", median(ours)), "{}", row[0]);
        assert_eq!(row[3], pairs.join(", "), "{}", row[0]);
        assert_eq!(row[4], format!("{unlinked:.1}"), "{}", row[0]);
        assert_eq!(row[5], format!("{:.3}", unlinked / reference), "{}", row[0]);
    }
}

#[test]
fn the_comparison_with_mkl_is_that_of_the_raw_runs() {
    let rows = table(NOTEBOOK, "| N, processor | `dgetrf`");
    assert_eq!(rows.len(), 7);
    for row in rows {
        let (n, processor) = row[0].split_once(", ").unwrap();
        let runs = raw_runs(match processor {
            "Zen 4" => "2026-11-23-mkl-dgetrf-zen4.jsonl",
            _ => "2026-11-22-mkl-dgetrf.jsonl",
        });
        let numbers = |list: &serde_json::Value| -> Vec<f64> {
            list.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
        };
        let of = |case: &str| {
            let case = |run: &&serde_json::Value| {
                run["n"] == n.parse::<usize>().unwrap()
                    && run["case"].as_str().unwrap().starts_with(case)
            };
            runs.iter().filter(case).map(|run| run["gflops"].clone()).collect::<Vec<_>>()
        };
        let (mkl, ours): (Vec<f64>, Vec<f64>) = of("mkl dgetrf")
            .iter()
            .zip(of("skt-mkl"))
            .map(|(mkl, ours)| {
                let mkl = numbers(mkl);
                // The first call loads the library.
                let first = usize::from(mkl.len() > 1);
                (median(mkl[first..].to_vec()), median(numbers(&ours["192"])))
            })
            .unzip();
        let ratios: Vec<String> =
            ours.iter().zip(&mkl).map(|(a, b)| format!("{:.3}", a / b)).collect();
        assert_eq!(row[1], format!("{:.1}", median(mkl)), "{}", row[0]);
        assert_eq!(row[2], format!("{:.1}", median(ours)), "{}", row[0]);
        assert_eq!(row[3], ratios.join(", "), "{}", row[0]);
    }
}

#[test]
fn image_writes_are_those_of_the_raw_runs() {
    let runs = raw_runs("2026-11-22-image-writes.jsonl");
    let rows = table(NOTEBOOK, "| way to write | GB/s");
    assert_eq!(rows.len(), 5);
    for row in rows {
        let of = |field: &str| -> Vec<f64> {
            let of_way = runs.iter().filter(|run| run["way"] == row[0]);
            of_way.map(|run| run[field].as_f64().unwrap()).collect()
        };
        assert_eq!(of("seconds").len(), 10, "{}", row[0]);
        let gbs = median(of("bytes")) / median(of("seconds")) / 1e9;
        assert_eq!(row[1], format!("{gbs:.2}"), "{}", row[0]);
        assert_eq!(row[2], format!("{:.2}", median(of("cpu_seconds"))), "{}", row[0]);
    }
}

#[test]
fn what_a_gpu_could_reach_follows_from_links_and_the_probe() {
    let rate = |cell: &str| cell.split(' ').next().unwrap().parse::<f64>().unwrap();
    let predicted = table(GPU_PROBE, "| NB | panel on |");
    let rows = table(PERFORMANCE, "| NB | PCIe 5, 46.8 GB/s | PCIe 5, 55.0 GB/s |");
    assert_eq!(rows.len(), 6);
    for row in rows {
        let nb: f64 = row[0].parse().unwrap();
        for (cell, gbs) in row[1..4].iter().zip([46.8, 55.0, 300.0]) {
            assert_eq!(*cell, format!("{:.1}", nb * gbs / 4e3), "NB {nb}, {gbs} GB/s");
        }
        for column in [2, 3] {
            let ways = predicted.iter().filter(|way| way[0] == row[0]).map(|way| way[column]);
            let best = ways.max_by(|a, b| rate(a).total_cmp(&rate(b)));
            let best = best.map_or("", |cell| cell.split(',').next().unwrap());
            assert_eq!(row[column + 2], best, "NB {nb}");
        }
    }
}

#[test]
fn every_file_of_measurements_is_named_where_it_is_used() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pages = std::fs::read_to_string(root.join("README.md")).unwrap() + NOTEBOOK;
    for entry in std::fs::read_dir(root.join("docs")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "md") {
            pages += &std::fs::read_to_string(path).unwrap();
        }
    }
    // The folder of a picture and its runs is named by its name.
    for entry in std::fs::read_dir(measurements()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(pages.contains(&name), "no page names docs/measurements/{name}");
    }
}
