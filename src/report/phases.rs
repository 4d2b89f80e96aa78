//! The block of lines after each test, which shows where its time went.
//!
//! Every line begins with `#`, which no line of the reference's text does.

use skt_terms::phases::ChecksumCosts;
use skt_terms::units::{self, counted};

use super::cformat::percent;
use super::levels::level_words;
use super::{mxp, power, process_columns, slow};
use skt_checkpoint::checkpoint::methods::Method;
use skt_config::{TestSpec, Transport};
use skt_run::record::cores::CoreShares;
use skt_run::record::{
    Outcome, Protection, RepairedRank, Replacement, Restart, Stall, TestRecord, Unverified,
};

/// The rate of the test relative to the DGEMM self-test on all of its cores: `gflops /
/// (gflops_per_core * ranks * threads)`.
pub fn efficiency(record: &TestRecord, dgemm_gflops_per_core: f64) -> f64 {
    let cores = record.spec.ranks() * record.spec.threads;
    record.gflops / (dgemm_gflops_per_core * cores as f64)
}

/// The block after a test that ran, one string per line, without newlines.
pub fn table(record: &TestRecord, dgemm_gflops_per_core: Option<f64>) -> Vec<String> {
    let mut lines = mxp::lines(record);
    lines.extend(phase_lines(record));
    // A factorization that broke off has no rate.
    if record.outcome.ran_to_end()
        && let Some(per_core) = dgemm_gflops_per_core
    {
        if record.spec.mxp.is_some() {
            lines.push(mxp::speed_line(record, efficiency(record, per_core), per_core));
        } else {
            lines.push(efficiency_line(record, per_core));
            lines.extend(low_rate_line(record, per_core));
        }
    }
    lines.extend(cores_line(record));
    lines.push(format!(
        "# untimed: matrix generated in {:.2} s, result checked in {:.2} s",
        record.generate_seconds, record.check_seconds
    ));
    lines.push(format!("# memory: {} on the largest rank", units::bytes(record.rank_bytes)));
    lines.extend(blocks_line(&record.spec));
    lines.extend(process_columns::lines(record));
    if record.outcome.ran_to_end() {
        lines.push(format!(
            "# x: {:016x} (differs when any bit of the solution does)",
            record.x_fingerprint
        ));
        lines.extend(power::lines(record));
    }
    lines.extend(record.slow.iter().flat_map(slow::lines));
    lines.extend(messages_line(record));
    if let Some(protection) = &record.protection {
        lines.extend(protection_lines(protection));
        let clocks = protection.restarts.iter().filter_map(clock_note);
        lines.extend(clocks.map(|note| format!("# clock: {note}")));
        let is_wrong = matches!(record.outcome, Outcome::Failed { .. } | Outcome::Broke { .. });
        if is_wrong && !record.outcome.failed_by_rounding() {
            lines.extend(protection.unverified.iter().map(unverified_line));
        }
    }
    lines
}

/// The likely cause of a failed residual: the threshold, the library `blas`, or a rank whose number
/// was wrong and how to find it, if the test had no checksums to name it.
pub fn hint_line(record: &TestRecord, blas: &str) -> Option<String> {
    if record.spec.mxp.is_some() {
        return mxp::hint_line(record, blas);
    }
    if record.outcome.failed_by_rounding() {
        return Some(format!(
            "# hint: the residual is that of a correct solution (usually between 1e-4 and 1e-1), \
             which rounding leaves: the threshold {:?} fails it; HPL's is 16.0",
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

/// Names the rank that lost most of its cores to other work, if any lost some, and who had them.
fn cores_line(record: &TestRecord) -> Option<String> {
    let cores = record.cores.as_ref().filter(|cores| cores.is_disturbed())?;
    let ranks = record.spec.ranks();
    let others = match cores.disturbed_ranks {
        _ if ranks == 1 => String::new(),
        count => format!("; {count} of {ranks} ranks lack time"),
    };
    let has_restarted = |it: &Protection| !it.restarts.is_empty();
    let start = if record.protection.as_ref().is_some_and(has_restarted) {
        ", in the last start"
    } else {
        ""
    };
    Some(format!("# cores: {}{others}{start}", cores.words()))
}

fn unverified_line(unverified: &Unverified) -> String {
    let Unverified { process_row, first_column, last_column } = unverified;
    let at = if first_column == last_column {
        format!("at column {first_column}")
    } else {
        format!("first at column {first_column} and last at column {last_column}")
    };
    format!(
        "# unverified: process row {process_row} was rebuilt {at} from ranks that no checksum was left \
         to check, so a wrong number that one of them had by then is the likely cause: start over, with \
         more --parities, or a smaller --check-every"
    )
}

/// The blocks of process columns of unequal rates, and what they cost: each rank has memory for the
/// most blocks.
fn blocks_line(spec: &TestSpec) -> Option<String> {
    if spec.rates.is_empty() || spec.n == 0 {
        return None;
    }
    let (cols, blocks) = (spec.columns(), process_columns::blocks(spec));
    let mut kinds: Vec<(f64, usize, usize)> = Vec::new();
    for (&rate, &blocks) in spec.rates.iter().zip(&blocks) {
        match kinds.iter_mut().find(|(other, count, _)| (*other, *count) == (rate, blocks)) {
            Some((_, _, columns)) => *columns += 1,
            None => kinds.push((rate, blocks, 1)),
        }
    }
    let words = |&(rate, blocks, columns): &(f64, usize, usize)| {
        format!(
            "{} of rate {rate} with {}",
            counted(columns, "process column"),
            counted(blocks, "block")
        )
    };
    let kinds: Vec<String> = kinds.iter().map(words).collect();
    let most = cols.max_count_before(spec.n) as f64 / (spec.n as f64 / spec.q as f64);
    Some(format!(
        "# blocks: {}; each rank has memory for the most, {most:.2} times the mean",
        kinds.join(", ")
    ))
}

/// Names what was sent by messages although the user wanted shared memory. With checksums that is
/// so by design.
fn messages_line(record: &TestRecord) -> Option<String> {
    let TestSpec { transport, checksums, .. } = record.spec;
    let wanted = transport == Transport::Shared && checksums == 0;
    (wanted && !record.by_messages.is_empty()).then(|| {
        format!(
            "# transport: {} by messages: not all ranks of a process row or column see each \
             other's memory",
            record.by_messages.join(" and ")
        )
    })
}

/// Describes the cost of checkpoints, checksums and restarts, all of which is part of the test's
/// time.
fn protection_lines(protection: &Protection) -> Vec<String> {
    let Protection { method, codec, encoder, region, groups, group_size, parities, .. } =
        protection;
    let what = if protection.survives_nodes { "node(s)" } else { "process(es)" };
    let is_abft = method == Method::Abft.name();
    let mut lines = Vec::new();
    if is_abft {
        let columns = if *parities == 1 { "column" } else { "columns" };
        lines.push(format!(
            "# protection: abft, {parities} checksum {columns} in addition to Q; {groups} process row(s) of \
             {group_size} ranks, each survives the loss of {parities} {what}"
        ));
    } else {
        let by = match protection.message_bytes {
            0 => encoder.clone(),
            bytes => format!("{encoder} in messages of {}", units::bytes(bytes)),
        };
        lines.push(format!(
            "# protection: {method}, {codec} by {by}, region {region}; {groups} group(s) of up to \
             {group_size} ranks, each survives the loss of {parities} {what}"
        ));
    }
    lines.push(format!(
        "# shared memory: {} a rank, found or made in {:.2} s",
        units::bytes(protection.segment_bytes),
        protection.open_seconds,
    ));
    lines.extend(if is_abft { check_lines(protection) } else { checkpoint_lines(protection) });
    lines.extend(protection.levels.iter().map(|level| format!("# images: {}", level_words(level))));
    lines.extend(protection.restarts.iter().map(|restart| restart_line(restart, is_abft)));
    lines.extend(protection.restarts.iter().filter_map(replacement_line));
    match protection.restarts.iter().filter(|restart| restart.repair_seconds.is_some()).count() {
        0 => {}
        1 => lines.push("# losses: the job continued after 1 loss".to_owned()),
        count => lines.push(format!("# losses: the job continued after {count} losses")),
    }
    let rebuilt = |restart: &Restart| !restart.rebuilt_ranks.is_empty();
    if is_abft && protection.restarts.iter().any(rebuilt) {
        lines.push(
            "# rounding: rebuilt data differs from what was lost in its last bits, and so does x \
             from that of an undisturbed run"
                .to_owned(),
        );
    }
    lines
}

fn checkpoint_lines(protection: &Protection) -> Vec<String> {
    let mut lines = vec![format!(
        "# checkpoints: {} in {:.2} s (encode {:.2} s, copy {:.2} s), {} saved a rank",
        protection.checkpoints,
        protection.checkpoint_seconds,
        protection.encode_seconds,
        protection.copy_seconds,
        units::bytes(protection.saved_bytes),
    )];
    if protection.overlap {
        let Stall { begin_seconds, turn_seconds, encode_seconds, agree_seconds, copy_seconds } =
            protection.stall;
        lines.push(format!(
            "# overlap: the solver stood still for {:.2} s of these (begin {begin_seconds:.2} s, \
             its turn {turn_seconds:.2} s, encode {encode_seconds:.2} s, agree \
             {agree_seconds:.2} s, copy {copy_seconds:.2} s)",
            protection.stall_seconds
        ));
    }
    lines
}

/// Describes the checks of the elimination's checksums, and what they have found.
fn check_lines(protection: &Protection) -> Vec<String> {
    let mut lines = Vec::new();
    if protection.checks > 0 {
        let named: u64 = protection.repaired.iter().map(|repaired| repaired.rows).sum();
        let of_named = if named == protection.repaired_rows {
            String::new()
        } else {
            format!(" (of {named} the ranks are named)")
        };
        lines.push(format!(
            "# checks: the matrix agreed with its checksums {} times; rows that were wrong and \
             recomputed: {}{of_named}",
            protection.checks, protection.repaired_rows
        ));
    }
    lines.extend(protection.repaired.iter().map(repaired_line));
    lines.extend(protection.checksum_costs.map(|costs| {
        let ChecksumCosts { log_seconds, sum_seconds, check_seconds } = costs;
        format!(
            "# checksums: in `other` are {log_seconds:.2} s for the log, {sum_seconds:.2} s for sums, \
             and {check_seconds:.2} s for checks, on the rank with the most of each"
        )
    }));
    lines
}

fn restart_line(restart: &Restart, is_abft: bool) -> String {
    let images =
        restart.level.as_ref().map_or(String::new(), |level| format!(" in images of {level}"));
    // With checksums, a restart from memory loses no work.
    let (from, lost) = match restart.epoch {
        _ if is_abft && restart.level.is_none() => (String::new(), "downtime"),
        0 => (
            format!("from the beginning, as there was no checkpoint,{images} "),
            "lost work and downtime",
        ),
        epoch => (format!("from checkpoint {epoch}{images} "), "lost work and downtime"),
    };
    let survived = restart.repair_seconds.map_or(String::new(), |seconds| {
        let undone = match restart.undone_ranks {
            0 => "nothing was computed again".to_owned(),
            ranks => format!("{ranks} rank(s) took one panel back"),
        };
        format!("; in the same job, {seconds:.2} s after the loss was noticed; {undone}")
    });
    format!(
        "# restart: {from}at column {}; {}{}; {lost} {:.2} s, data restored in {:.2} s{survived}",
        restart.column,
        restart.format_rebuilt(),
        restart.format_damage(),
        restart.lost_seconds,
        restart.recover_seconds,
    )
}

fn repaired_line(repaired: &RepairedRank) -> String {
    let (host, rank, rows) = (&repaired.host, repaired.rank, repaired.rows);
    let (first_column, last_column) = (repaired.first_column, repaired.last_column);
    let rows_word = if rows == 1 { "row" } else { "rows" };
    if repaired.is_origin {
        return format!(
            "# wrong: {host} rank {rank}: {rows} {rows_word} repaired, first at column {first_column}"
        );
    }
    let at = if first_column == last_column {
        format!("column {first_column}")
    } else {
        format!("columns {first_column} to {last_column}")
    };
    format!(
        "# repaired: {host} rank {rank}: {rows} {rows_word}, first row {}, at {at}; the wrong \
         number is of this rank or of another one of process column {}",
        repaired.first_row, repaired.process_column
    )
}

fn replacement_line(restart: &Restart) -> Option<String> {
    let Replacement { process_column, decoded_bytes, decode_seconds } =
        restart.replacement.as_ref()?;
    Some(format!(
        "# replaced: process column {process_column} by the checksums, at column {}; U of finished \
         columns decoded: {} a rank in {decode_seconds:.2} s; from there no further loss could be \
         survived",
        restart.column,
        units::bytes(*decoded_bytes),
    ))
}

/// A note on the clocks of a restart, if one is due.
pub fn clock_note(restart: &Restart) -> Option<String> {
    let Restart { is_by_wall_clock, wall_clock_step_seconds: step, epoch, .. } = *restart;
    let since = match epoch {
        0 => "between the loss and the restart".to_owned(),
        _ => format!("between checkpoint {epoch} and the restart"),
    };
    match (is_by_wall_clock, step) {
        (false, 0.0) => None,
        (false, _) => Some(format!(
            "the wall clock was set by {step:+.0} s {since}, or differs by that much from \
             another node's; the time is measured by the uptime of a node that stayed up"
        )),
        (true, 0.0) => {
            Some(format!("no node stayed up {since}: this part of the time is by the wall clock"))
        }
        (true, _) => Some(format!(
            "no node stayed up {since}, and the wall clock went back by {:.0} s at least: this \
             part of the time is not known and not counted, Time is too short and Gflops are \
             too high",
            -step
        )),
    }
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

fn efficiency_line(record: &TestRecord, per_core: f64) -> String {
    let cores = record.spec.ranks() * record.spec.threads;
    format!(
        "# efficiency: {:.1} % of the DGEMM self-test ({} a core on {})",
        100.0 * efficiency(record, per_core),
        units::rate(per_core),
        counted(cores, "core")
    )
}

/// Shortest times, in seconds at the rate of the self-test, of tests whose product is compared with
/// the self-test, and of tests whose efficiency is judged. Shorter tests are slow by nature.
const MIN_IDEAL_SECONDS: [f64; 2] = [1.0, 10.0];
/// Smallest share of the self-test's rate of a product without a warning. A slower one did not have
/// all cores for itself, or they ran at a lower frequency, or NB is too small for the BLAS.
const MIN_PRODUCT_SHARE: f64 = 0.5;
/// Smallest efficiency of a long test without a warning. On any machine, a less efficient one has a
/// problem.
const MIN_EFFICIENCY: f64 = 0.25;

/// Warns of a test that is slower than it should be.
fn low_rate_line(record: &TestRecord, per_core: f64) -> Option<String> {
    let TestSpec { p, q, nb, threads, .. } = record.spec;
    let (mean, time) = (&record.phases.mean, record.time_seconds);
    // Losses do not make the machine slow.
    let time = time - record.interruptions.seconds();
    let ideal_seconds = efficiency(record, per_core) * record.time_seconds;
    let share = ideal_seconds / time;
    let [of_product, of_test] = MIN_IDEAL_SECONDS;
    let is_disturbed = record.cores.as_ref().is_some_and(CoreShares::is_disturbed);
    // Cores that were taken are a cause, not to be sought in a phase, and have their own line.
    if is_disturbed || ideal_seconds < of_product {
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
    use skt_terms::phases::{Interruptions, PhaseTable, Phases};

    use super::*;
    use skt_config::{Format, parse};
    use skt_host::core_use::CoreUse;
    use skt_run::record::cores::RankCores;
    use skt_run::record::{Norms, Outcome};

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
            ..TestRecord::not_run(spec)
        }
    }

    /// Each line that begins with a word of ours is explained on the page of the report.
    #[test]
    fn the_page_of_the_report_has_each_line() {
        let (code, _) = include_str!("phases.rs").split_once("#[cfg(test)]").expect("tests");
        let page = include_str!("../../docs/report.md");
        let words = code.split("\"# ").skip(1).filter_map(|text| Some(text.split_once(':')?.0));
        let lines: Vec<&str> = words.filter(|word| !word.contains(['"', '{'])).collect();
        assert!(lines.len() > 15, "{lines:?}");
        for word in lines {
            assert!(page.contains(&format!("# {word}:")), "docs/report.md lacks `# {word}:`");
        }
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
        assert!(lines[8].starts_with("# untimed"), "no self-test, no efficiency");
    }

    #[test]
    fn a_repaired_rank_has_a_line_of_fixed_form() {
        let repaired = |rows: u64, last_column: usize, is_origin: bool| RepairedRank {
            host: "n2".into(),
            rank: 5,
            process_row: 1,
            process_column: 1,
            rows,
            first_row: 1500,
            first_column: 640,
            last_column,
            checks: 1,
            is_origin,
        };
        let protection = Protection {
            method: Method::Abft.name().into(),
            checks: 9,
            repaired_rows: 6,
            repaired: vec![
                repaired(3, 640, true),
                repaired(1, 640, false),
                repaired(2, 704, false),
            ],
            ..Protection::default()
        };
        let lines = table(&TestRecord { protection: Some(protection), ..record() }, None);
        let at = lines.iter().position(|line| line.starts_with("# checks:")).expect("checks");
        let or = "; the wrong number is of this rank or of another one of process column 1";
        let want = [
            "# wrong: n2 rank 5: 3 rows repaired, first at column 640".to_owned(),
            format!("# repaired: n2 rank 5: 1 row, first row 1500, at column 640{or}"),
            format!("# repaired: n2 rank 5: 2 rows, first row 1500, at columns 640 to 704{or}"),
        ];
        assert_eq!(lines[at + 1..at + 4], want);
        assert!(lines[at].ends_with("recomputed: 6"), "{}", lines[at]);
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
    fn work_is_lost_by_going_back_to_images_alone() {
        let images = Restart { level: Some("local:/d".into()), ..restart() };
        let protection = Protection {
            method: Method::Abft.name().into(),
            restarts: vec![restart(), images],
            ..Protection::default()
        };
        let lines = table(&TestRecord { protection: Some(protection), ..record() }, None);
        let restarts: Vec<_> =
            lines.iter().filter_map(|line| line.strip_prefix("# restart: ")).collect();
        let rest = "at column 64; no rank had to be rebuilt;";
        let want = [
            format!("{rest} downtime 10.00 s, data restored in 1.00 s"),
            format!(
                "from checkpoint 1 in images of local:/d {rest} lost work and downtime 10.00 s, \
                 data restored in 1.00 s"
            ),
        ];
        assert_eq!(restarts, want);
    }

    fn restart() -> Restart {
        Restart {
            epoch: 1,
            column: 64,
            rebuilt_ranks: Vec::new(),
            damaged_blocks: 0,
            start_seconds: 9000.0,
            lost_seconds: 10.0,
            down_seconds: 8.0,
            recover_seconds: 1.0,
            is_by_wall_clock: false,
            wall_clock_step_seconds: 0.0,
            repair_seconds: None,
            undone_ranks: 0,
            replacement: None,
            level: None,
        }
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
        let want = "# cores: n1 rank 3 had a core for 33 % of the time in which it could run; 1 of 6 \
                    ranks lack time";
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
            let unverified = vec![Unverified { process_row: 1, first_column: 0, last_column: 64 }];
            let method = method.to_owned();
            let protection = Some(Protection { method, unverified, ..Protection::default() });
            let outcome = Outcome::Failed { scaled_residual, norms: Norms::default() };
            let record = TestRecord { spec, protection, outcome, ..record() };
            let lines = table(&record, None).into_iter().chain(hint_line(&record, "X 1"));
            let is_cause = |line: &String| line.starts_with("# hint") || line.starts_with("# unv");
            lines.filter(is_cause).collect::<Vec<_>>().join("\n")
        };
        for method in ["self", "abft"] {
            let hint = hints(6.1e-3, 1e-30, method);
            assert!(hint.contains("of a correct solution (usually between 1e-4"), "{hint}");
            assert!(hint.contains("the threshold 1e-30 fails it; HPL's is 16.0"), "{hint}");
            assert_eq!(hint.lines().count(), 1, "{hint}");
        }
        for (residual, threshold) in [(1.2e3, 16.0), (1.2e3, 1e-30), (3.0, 1e-3), (f64::NAN, 1.0)] {
            let hint = hints(residual, threshold, "self");
            assert!(hint.contains("# hint: X 1 has computed wrong if the run passes with another"));
            assert!(hint.contains("# unverified: process row 1"), "{hint}");
            let hint = hints(residual, threshold, "abft");
            assert!(hint.contains("# hint: X 1 has") && !hint.contains("abft"), "{hint}");
        }
    }

    #[test]
    fn an_empty_system_has_no_line_of_blocks() {
        let spec = |n| TestSpec { n, q: 2, rates: vec![2.0, 1.0], ..record().spec };
        assert_eq!(blocks_line(&spec(0)), None);
        assert!(blocks_line(&spec(1000)).is_some());
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
