//! The block of lines after each test: where its time went, then what the JSON report has of it.
//!
//! Every line begins with `#`, which no line of the reference's text does.

use serde_json::Value;
use skt_host::units::{self, counted};

use super::cformat::percent;
use super::json::{self, efficiency};
use super::mxp;
use skt_checkpoint::checkpoint::methods::Method;
use skt_config::TestSpec;
use skt_run::record::cores::CoreShares;
use skt_run::record::{Outcome, Restart, TestRecord};

/// Most entries of a list that have a line each, and most numbers of a list in a line.
const MAX_LINES: usize = 16;

/// What is printed of a test in JSON, by the names of the lines.
const SHOWN: [(&str, &str); 11] = [
    ("mxp", "/mxp"),
    ("generate_seconds", "/generate_seconds"),
    ("check_seconds", "/check_seconds"),
    ("rank_bytes", "/rank_bytes"),
    ("process_columns", "/process_columns"),
    ("x", "/x_fingerprint"),
    ("power", "/power"),
    ("slow", "/slow/named"),
    ("slow_links", "/slow_links"),
    ("by_messages", "/by_messages"),
    ("protection", "/protection"),
];

/// The block after a test that ran, one string per line, without newlines.
pub fn table(record: &TestRecord, dgemm_gflops_per_core: Option<f64>) -> Vec<String> {
    let mut lines = phase_lines(record);
    // A factorization that broke off has no rate.
    if record.outcome.ran_to_end()
        && let Some(per_core) = dgemm_gflops_per_core
    {
        lines.push(efficiency_line(record, per_core));
        lines.extend(low_rate_line(record, per_core));
    }
    if let Some(cores) = record.cores.as_ref().filter(|cores| cores.is_disturbed()) {
        let start = if has_restarted(record) { ", in the last start" } else { "" };
        lines.push(format!("# cores: {}{start}", cores.words()));
    }
    let mut test = serde_json::to_value(json::test(record, None)).expect("plain data");
    let is_wrong = matches!(record.outcome, Outcome::Failed { .. } | Outcome::Broke { .. });
    if !is_wrong || record.outcome.failed_by_rounding() {
        test["protection"]["unverified"].take();
    }
    for (name, place) in SHOWN {
        add_lines(name, test.pointer(place).unwrap_or(&Value::Null), &mut lines);
    }
    let restarts = record.protection.iter().flat_map(|protection| &protection.restarts);
    lines.extend(restarts.filter_map(clock_line));
    lines
}

/// Adds the line `# name: key value, ...` of an object, and those of the objects within it; an entry
/// of a list is named in the singular.
fn add_lines(name: &str, value: &Value, lines: &mut Vec<String>) {
    match value {
        Value::Array(all) if is_nested(value) => {
            let name = name.strip_suffix('s').unwrap_or(name);
            all.iter().take(MAX_LINES).for_each(|one| add_lines(name, one, lines));
            if all.len() > MAX_LINES {
                lines.push(format!("# {name}: {} more", all.len() - MAX_LINES));
            }
        }
        Value::Object(fields) => {
            let words = words(value);
            lines.extend((!words.is_empty()).then(|| format!("# {name}: {words}")));
            fields.iter().filter(|(_, it)| is_nested(it)).for_each(|(name, part)| {
                add_lines(name, part, lines);
            });
        }
        plain => lines.extend(word(name, plain).map(|word| format!("# {name}: {word}"))),
    }
}

fn is_nested(value: &Value) -> bool {
    match value {
        Value::Array(all) => all.iter().any(Value::is_object),
        other => other.is_object(),
    }
}

/// The values of an object that are no objects themselves, each after its key. What is empty,
/// unknown, or no time is left out.
pub(crate) fn words(value: &Value) -> String {
    let fields = value.as_object().into_iter().flatten().filter(|(_, it)| !is_nested(it));
    let words = fields.filter_map(|(key, it)| Some(format!("{key} {}", word(key, it)?)));
    words.collect::<Vec<_>>().join(", ")
}

fn word(key: &str, value: &Value) -> Option<String> {
    match value {
        Value::Null | Value::Bool(false) | Value::Object(_) => None,
        Value::Array(all) if all.is_empty() => None,
        Value::Array(all) if all.len() > MAX_LINES => Some(format!("({} values)", all.len())),
        Value::String(text) => Some(text.clone()).filter(|text| !text.is_empty()),
        Value::Number(number) => match (number.as_u64(), number.as_f64()) {
            (Some(count), _) if key.ends_with("bytes") => Some(units::bytes(count)),
            (None, Some(real)) => decimal(real),
            _ => Some(number.to_string()),
        },
        other => Some(other.to_string()),
    }
}

fn decimal(real: f64) -> Option<String> {
    match real.abs() {
        0.0 => None,
        1e-3..1e9 => {
            let text = format!("{real:.4}");
            Some(text.trim_end_matches('0').trim_end_matches('.').to_owned())
        }
        _ => Some(format!("{real:.4e}")),
    }
}

/// The likely cause of a failed residual: the threshold, the library `blas`, or a rank whose number
/// was wrong and how to find it, if the test had no checksums to name it.
pub fn hint_line(record: &TestRecord, blas: &str) -> Option<String> {
    if record.spec.mxp.is_some() {
        return mxp::hint_line(record, blas);
    }
    if record.outcome.failed_by_rounding() {
        return Some(format!(
            "# hint: rounding leaves residuals of this size (1e-4 to 1e-1): the threshold {:?} fails \
             them; HPL's is 16.0",
            record.spec.threshold
        ));
    }
    let method = record.protection.as_ref().map(|protection| protection.method.as_str());
    let find_rank = if method == Some(Method::Abft.name()) {
        "no checksum has shown which"
    } else {
        "`skt-hpl screen` compares the nodes, and --ft abft --parities 2 names it"
    };
    matches!(record.outcome, Outcome::Failed { .. })
        .then(|| format!("# hint: {} {find_rank}", mxp::wrong(blas)))
}

/// A warning that some time is not counted, as no clock has measured it.
fn clock_line(restart: &Restart) -> Option<String> {
    let &Restart { is_by_wall_clock, wall_clock_step_seconds: step, column, .. } = restart;
    (is_by_wall_clock && step < 0.0).then(|| {
        format!(
            "# clock: before the restart at column {column} no node stayed up, and the wall clock \
             went back by {:.0} s at least: Time is too short, and the rate too high",
            -step
        )
    })
}

fn phase_lines(record: &TestRecord) -> Vec<String> {
    let time = record.time_seconds;
    let mut lines = vec!["# where the time went    mean s       %       max s       %".to_string()];
    let mean = record.phases.mean.named();
    let max = record.phases.max.named();
    for ((name, mean), (_, max)) in mean.iter().zip(&max) {
        lines.push(format!(
            "#   {name:<14}{mean:>13.4}{}{max:>12.4}{}",
            percent(*mean, time),
            percent(*max, time)
        ));
    }
    let interruptions = &record.interruptions;
    if has_restarted(record) {
        lines.extend(interruptions.named().map(|(name, seconds)| {
            format!("#   {name:<14}{seconds:>13.4}{}", percent(seconds, time))
        }));
    }
    let total = record.phases.mean.sum() + interruptions.seconds();
    lines.push(format!("#   {:<14}{total:>13.4}{}", "sum", percent(total, time)));
    lines
}

fn has_restarted(record: &TestRecord) -> bool {
    record.protection.as_ref().is_some_and(|protection| !protection.restarts.is_empty())
}

/// The rate over that of the self-test, which is in double precision.
fn efficiency_line(record: &TestRecord, per_core: f64) -> String {
    let cores = record.spec.ranks() * record.spec.threads;
    let times = efficiency(record, per_core);
    let share = match record.spec.mxp {
        Some(_) => format!("speed: {times:.2} times"),
        None => format!("efficiency: {:.1} % of", 100.0 * times),
    };
    let rate = units::rate(per_core);
    format!("# {share} the DGEMM self-test ({rate} a core on {})", counted(cores, "core"))
}

/// Shortest times, in seconds at the rate of the self-test, of tests whose product is compared with
/// the self-test, and of tests whose efficiency is judged. Shorter tests are slow by nature.
const MIN_IDEAL_SECONDS: [f64; 2] = [1.0, 10.0];
/// Smallest share of the self-test's rate of a product without a warning. A slower one did not have
/// all cores for itself, or they ran at a lower frequency, or NB is too small for the BLAS.
const MIN_PRODUCT_SHARE: f64 = 0.5;
/// Of a long test without a warning: on any machine, a less efficient one has a problem.
const MIN_EFFICIENCY: f64 = 0.25;

fn low_rate_line(record: &TestRecord, per_core: f64) -> Option<String> {
    let TestSpec { p, q, nb, threads, .. } = record.spec;
    let (mean, time) = (&record.phases.mean, record.time_seconds);
    // Losses do not make the machine slow.
    let time = time - record.interruptions.seconds();
    let ideal_seconds = efficiency(record, per_core) * record.time_seconds;
    let share = ideal_seconds / time;
    let [of_product, of_test] = MIN_IDEAL_SECONDS;
    let is_disturbed = record.cores.as_ref().is_some_and(CoreShares::is_disturbed);
    // Cores that were taken are a cause, not to be sought in a phase, and have their own line. The
    // self-test is in double precision.
    if is_disturbed || ideal_seconds < of_product || record.spec.mxp.is_some() {
        return None;
    }
    let product_gflops =
        record.gflops * record.time_seconds / mean.update / (p * q * threads) as f64;
    if product_gflops < MIN_PRODUCT_SHARE * per_core {
        return Some(format!(
            "# warning: the product ran at {:.0} % of the DGEMM self-test: other programs or ranks \
             share its cores, their clock has fallen since, or NB = {nb} is too small for this BLAS",
            100.0 * product_gflops / per_core
        ));
    }
    let others = mean.named().into_iter().filter(|(name, _)| *name != "update");
    let (name, seconds) = others.max_by(|a, b| a.1.total_cmp(&b.1))?;
    (share < MIN_EFFICIENCY && ideal_seconds >= of_test).then(|| {
        format!(
            "# warning: {:.0} % of the DGEMM self-test is little, though its product was fast: \
             `{name}` took {:.0} % of the time",
            100.0 * share,
            100.0 * seconds / time
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use skt_host::phases::{Interruptions, PhaseTable, Phases};

    use super::*;
    use skt_config::{Format, parse};
    use skt_host::core_use::CoreUse;
    use skt_run::record::cores::RankCores;
    use skt_run::record::{Norms, Protection};

    fn record() -> TestRecord {
        let toml = b"n = 1000\nnb = 64\np = 2\nq = 3\nthreads = 4\n";
        let spec = parse(toml, "t", Format::Toml, false).unwrap().spec.tests().remove(0);
        TestRecord {
            time_seconds: 1000.0,
            gflops: 1200.0,
            phases: PhaseTable {
                max: Phases { update: 90_000.5, ..Phases::default() },
                mean: Phases { panel: 100.0, update: 900.0, ..Phases::default() },
            },
            spec,
            ..TestRecord::default()
        }
    }

    /// Each line that begins with a word of ours is explained on the page of the report.
    #[test]
    fn the_page_of_the_report_has_each_line() {
        let page = include_str!("../../docs/report.md");
        let of_lists = ["process_column", "step", "slow_link", "restart", "level"];
        let others = ["efficiency", "speed", "cores", "warning", "hint", "clock", "repaired"];
        let shown = SHOWN.iter().map(|(name, _)| *name).filter(|name| !name.ends_with("s"));
        for word in shown.chain(of_lists).chain(others) {
            assert!(page.contains(&format!("# {word}:")), "docs/report.md lacks `# {word}:`");
        }
    }

    #[test]
    fn an_object_has_a_line_and_so_have_those_within() {
        let value = json!({
            "all": 2, "none": 0, "none_seconds": 0.0, "no": false, "empty": [], "unknown": null, "name": "n1",
            "seconds": 0.25, "tiny": 1.5e-7, "whole": 300.0, "segment_bytes": 2048, "ranks": [3, 4],
            "is_origin": true, "text": "", "watts": vec![1; 17],
            "stall": {"copy_seconds": 1.0}, "steps": vec![json!({"at": 1}); 18], "zero": {"at": 0.0},
        });
        let mut lines = Vec::new();
        add_lines("power", &value, &mut lines);
        let of_object = "# power: all 2, is_origin true, name n1, none 0, ranks [3,4], \
                         seconds 0.25, segment_bytes 2.0 KiB, tiny 1.5000e-7, watts (17 values), whole 300";
        assert_eq!(lines[..3], [of_object, "# stall: copy_seconds 1", "# step: at 1"]);
        assert_eq!((lines.len(), lines[18].as_str()), (19, "# step: 2 more"));
    }

    #[test]
    fn cores_are_ranks_times_threads() {
        assert_eq!(efficiency(&record(), 100.0), 0.5);
        let lines = table(&record(), Some(100.0));
        assert_eq!(
            lines[8],
            "# efficiency: 50.0 % of the DGEMM self-test (100.0 Gflop/s a core on 24 cores)"
        );
    }

    #[test]
    fn columns_stay_aligned_in_long_runs() {
        let lines = table(&record(), None);
        assert_eq!(lines[0], "# where the time went    mean s       %       max s       %");
        assert_eq!(lines[1], "#   panel              100.0000    10.0      0.0000     0.0");
        assert_eq!(lines[4], "#   update             900.0000    90.0  90000.5000  9000.0");
        assert_eq!(lines[7], "#   sum               1000.0000   100.0");
        assert!(lines[8..].iter().all(|line| !line.contains("efficiency")), "{lines:?}");
    }

    #[test]
    fn after_a_restart_its_cost_has_rows() {
        let protection = Protection { restarts: vec![restart()], ..Protection::default() };
        let interruptions =
            Interruptions { lost_seconds: 700.0, down_seconds: 200.0, recovery_seconds: 100.0 };
        let restarted = TestRecord {
            time_seconds: 2000.0,
            protection: Some(protection),
            interruptions,
            ..record()
        };
        let lines = table(&restarted, None);
        assert_eq!(lines[7], "#   lost work          700.0000    35.0");
        assert_eq!(lines[8], "#   down               200.0000    10.0");
        assert_eq!(lines[9], "#   recovery           100.0000     5.0");
        assert_eq!(lines[10], "#   sum               2000.0000   100.0");
    }

    #[test]
    fn time_that_no_clock_has_measured_is_named() {
        let by = |is_by_wall_clock, wall_clock_step_seconds| {
            clock_line(&Restart { is_by_wall_clock, wall_clock_step_seconds, ..restart() })
        };
        for (is_by_wall_clock, step) in [(false, 0.0), (false, -9.0), (true, 0.0)] {
            assert_eq!(by(is_by_wall_clock, step), None);
        }
        assert!(by(true, -9.0).unwrap().contains("went back by 9 s at least: Time is too short"));
    }

    fn restart() -> Restart {
        Restart { epoch: 1, column: 64, start_seconds: 9000.0, ..Restart::default() }
    }

    /// 24 cores of 100 Gflop/s, for 1000 s, most of which the product of a sound test takes.
    #[test]
    fn a_test_slower_than_its_self_test_is_reported_with_the_reason() {
        let warned = |gflops: f64, time_seconds: f64, mean: Phases, down_seconds: f64| {
            let phases = PhaseTable { mean, max: mean };
            let interruptions = Interruptions { down_seconds, ..Interruptions::default() };
            let record = TestRecord { gflops, time_seconds, phases, interruptions, ..record() };
            let lines = table(&record, Some(100.0));
            lines.into_iter().find(|line| line.starts_with("# warning:"))
        };
        let phases = |update: f64, bcast: f64| Phases { update, bcast, ..Phases::default() };
        assert_eq!(warned(1800.0, 1000.0, phases(900.0, 100.0), 0.0), None);
        let shared = warned(360.0, 1000.0, phases(900.0, 100.0), 0.0).expect("15 %");
        assert!(shared.contains("ran at 17 % of") && shared.contains("NB = 64"), "{shared}");
        let waits = warned(360.0, 1000.0, phases(180.0, 800.0), 0.0).expect("15 %");
        assert!(waits.contains("15 % of") && waits.contains("`bcast` took 80 %"), "{waits}");
        // Short tests are slow by nature, and losses do not make the machine slow.
        assert_eq!(warned(360.0, 5.0, phases(4.5, 0.5), 0.0), None);
        assert_eq!(warned(360.0, 1000.0, phases(180.0, 20.0), 800.0), None);
        assert!(warned(360.0, 1000.0, phases(180.0, 320.0), 500.0).is_none());
        assert!(warned(360.0, 1000.0, phases(400.0, 50.0), 550.0).is_some());
    }

    /// A rank of a slow test has a core for a third of the time, next to two programs.
    #[test]
    fn cores_that_were_taken_have_a_line_in_place_of_a_guess() {
        let shares = |had: f64| {
            let (had_share, waited_seconds) = (Some(had), 1000.0 * (1.0 - had));
            let used = CoreUse { had_share, waited_seconds, ..CoreUse::default() };
            let rank = |rank: usize, used: CoreUse| RankCores { host: "n1".into(), rank, used };
            let rest = CoreUse { had_share: Some(1.0), ..CoreUse::default() };
            CoreShares::from_ranks(&[rank(0, rest), rank(3, used)])
        };
        let lines = |had: f64, restarts: Vec<Restart>| {
            let mean = Phases { update: 900.0, bcast: 100.0, ..Phases::default() };
            let phases = PhaseTable { mean, max: mean };
            let (cores, protection) =
                (shares(had), Some(Protection { restarts, ..Protection::default() }));
            let record = TestRecord { gflops: 360.0, phases, cores, protection, ..record() };
            let lines = table(&record, Some(100.0));
            let is_of_rate =
                |line: &String| line.starts_with("# cores") || line.starts_with("# warn");
            lines.into_iter().filter(is_of_rate).collect::<Vec<_>>()
        };
        let want = "# cores: n1 rank 3 had a core for 33 % of the time in which it could run";
        assert_eq!(lines(0.33, Vec::new()), [want]);
        assert_eq!(lines(0.33, vec![restart()]), [format!("{want}, in the last start")]);
        let quiet = lines(0.97, Vec::new());
        assert!(quiet.len() == 1 && quiet[0].starts_with("# warning:"), "{quiet:?}");
    }

    /// A threshold of 1e-30 is used to see the norms of each test.
    #[test]
    fn a_threshold_below_rounding_is_no_wrong_rank() {
        let hints = |scaled_residual: f64, threshold: f64, method: &str| {
            let spec = TestSpec { threshold, ..record().spec };
            let method = method.to_owned();
            let protection = Some(Protection { method, ..Protection::default() });
            let outcome = Outcome::Failed { scaled_residual, norms: Norms::default() };
            let record = TestRecord { spec, protection, outcome, ..record() };
            hint_line(&record, "X 1").unwrap()
        };
        for method in ["self", "abft"] {
            let hint = hints(6.1e-3, 1e-30, method);
            assert!(hint.contains("the threshold 1e-30 fails them; HPL's is 16.0"), "{hint}");
        }
        for (residual, threshold) in [(1.2e3, 16.0), (1.2e3, 1e-30), (3.0, 1e-3), (f64::NAN, 1.0)] {
            let hint = hints(residual, threshold, "self");
            assert!(hint.contains("# hint: X 1 has computed wrong if the run passes with another"));
            let hint = hints(residual, threshold, "abft");
            assert!(hint.contains("# hint: X 1 has") && !hint.contains("abft"), "{hint}");
        }
    }

    #[test]
    fn no_time_has_no_shares() {
        let lines = table(&TestRecord { time_seconds: 0.0, ..record() }, None);
        assert_eq!(lines[1], "#   panel              100.0000       -      0.0000       -");
    }

    #[test]
    fn a_factorization_that_broke_off_has_no_efficiency() {
        let outcome = Outcome::Broke { column: 0, pivot: "0".to_string() };
        let lines = table(&TestRecord { outcome, ..record() }, Some(100.0));
        assert!(!lines.iter().any(|line| line.contains("efficiency")));
    }
}
