//! docs/limits.md names every time constant of the program whose end has a consequence, with its
//! file, and no other.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::comments::sources;

const PAGE: &str = include_str!("../../docs/limits.md");

/// The constants that end, kill or refuse nothing: pauses between looks, lengths of measurements,
/// intervals of output. Each is explained where it is defined.
const END_NOTHING: &[(&str, &str)] = &[
    ("checkpoint/level/helper.rs", "PAUSE_SECONDS_MAX"),
    ("checkpoint/level/helper.rs", "REPORT_PERIOD"),
    ("checkpoint/level/folder/owner.rs", "POLL"),
    ("checkpoint/level/folder/owner.rs", "SILENT"),
    ("grace.rs", "LIFETIME"),
    ("levels.rs", "IMAGES_MTBF_SECONDS"),
    ("process.rs", "DOUBT_SECONDS"),
    ("store/mod.rs", "PROBE_PAUSE"),
    ("threads.rs", "PROBE_PAUSE"),
    ("waits.rs", "FIRST"),
    ("cli/auto.rs", "DEFAULT_SECONDS"),
    ("cli/auto.rs", "MAX_TUNING_SECONDS"),
    ("cli/pace.rs", "DGEMM_SECONDS"),
    ("cli/plan.rs", "SECONDS"),
    ("cli/tune.rs", "MIN_BUDGET_SECONDS"),
    ("client/due.rs", "END_SECONDS"),
    ("lib.rs", "NAP"),
    ("doctor/measure.rs", "SECONDS"),
    ("doctor/measure.rs", "SGEMM_SECONDS"),
    ("doctor/trial.rs", "SECONDS"),
    ("mover.rs", "UNREPORTED_SECONDS"),
    ("options.rs", "MTBF_SECONDS"),
    ("pgesv/background.rs", "LONG_PAUSE"),
    ("pgesv/background.rs", "PAUSE"),
    ("core_use.rs", "NOISE_SECONDS"),
    ("cores.rs", "SECONDS_MIN"),
    ("occupants.rs", "SAMPLE"),
    ("power/counters.rs", "INTERVAL"),
    ("power/counters.rs", "PAUSE"),
    ("raw.rs", "NAP"),
    ("record/energy.rs", "SECONDS_MIN"),
    ("report/json.rs", "SYNC_INTERVAL"),
    ("report/phases.rs", "MIN_IDEAL_SECONDS"),
    ("progress.rs", "LIVE_INTERVAL_SECONDS"),
    ("progress.rs", "PLAIN_INTERVAL_SECONDS"),
    ("progress.rs", "WINDOW_SECONDS"),
    ("job/idle.rs", "SAMPLE"),
    ("power/meter.rs", "PAUSE"),
    ("job/series.rs", "KEEP_INTERVAL"),
    ("job/setup.rs", "SELF_TEST_SECONDS"),
    ("job/setup.rs", "SELF_TEST_SECONDS_MIN"),
    ("environment/library/remembered.rs", "PAUSE"),
    ("environment/library/trial.rs", "RATE_SECONDS"),
    ("environment/library/trial.rs", "THREADS_SECONDS"),
    ("job/watcher.rs", "SMALL_INTERVAL"),
    ("protect/clock.rs", "STEP_SECONDS_MIN"),
    ("protect/segments.rs", "SILENT_SECONDS"),
    ("ptest/links.rs", "LONGEST_SECONDS"),
    ("tune/mod.rs", "TRIAL_SECONDS"),
    ("limit.rs", "COUNTED"),
    ("limit.rs", "LONGEST_SECONDS"),
    ("limit.rs", "TICK"),
    ("cli/run.rs", "REPORT_PAUSE"),
    ("node.rs", "DGEMM_SECONDS"),
    ("probe.rs", "LINK_SECONDS"),
    ("probe.rs", "MEMORY_SECONDS"),
    ("messages.rs", "POLL_PAUSE"),
    ("slow/judge.rs", "MIN_SECONDS"),
    ("after_ending.rs", "BACKOFF_MAX_SECONDS"),
    ("heartbeat/program.rs", "CHECKPOINT_INTERVAL_SECONDS"),
    ("heartbeat/mod.rs", "INTERVAL_SECONDS"),
    ("decisions/running.rs", "SIMULTANEOUS_SECONDS_MAX"),
    ("hosts/spares.rs", "POLL_INTERVAL"),
    ("job.rs", "RESERVE_EVERY"),
    ("line.rs", "KEEP_EVERY"),
    ("child.rs", "POLL_PAUSE"),
    ("process.rs", "PAUSE_MIN"),
    ("shell.rs", "STALL_MIN"),
    ("shell.rs", "POLL_INTERVAL"),
    ("shell.rs", "SAVE_INTERVAL"),
    ("watch.rs", "PROBE_SECONDS_MIN"),
];

/// The text of a source without its tests.
fn text(path: &Path) -> String {
    let text = fs::read_to_string(path).expect("a source");
    text.split("mod tests {").next().expect("one part at least").to_owned()
}

/// The time constant that a line of a source defines.
fn constant(line: &str) -> Option<&str> {
    let (before, rest) = line.split_once("const ")?;
    let (name, rest) = rest.split_once(": ")?;
    let is_time = name.contains("SECONDS") || rest.split(" =").next()?.contains("Duration");
    let is_name = name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
    (is_time && is_name && !before.contains("//")).then_some(name)
}

/// All sources of the program, without its tests, and without the models, whose times are those of
/// the theory.
fn program() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    sources(&root.join("src"), &mut found);
    for path in fs::read_dir(root.join("crates")).expect("crates").map(|it| it.unwrap().path()) {
        let others = ["skt-model", "skt-sim", "skt-starter", "skt-studies"];
        if !others.iter().any(|name| path.ends_with(name)) {
            sources(&path.join("src"), &mut found);
        }
    }
    let is_test = |path: &Path| path.iter().any(|name| name == "tests" || name == "tests.rs");
    found.retain(|path| !is_test(path.strip_prefix(root).expect("below the root")));
    assert!(found.len() > 200, "{}", found.len());
    found
}

/// A file, relative to its crate's `src`, and the name of a constant.
type Constant = (String, String);

fn in_code() -> BTreeSet<Constant> {
    let mut all = BTreeSet::new();
    for path in program() {
        let file = path.to_str().expect("text").rsplit_once("/src/").expect("below it").1;
        let text = text(&path);
        all.extend(
            text.lines().filter_map(constant).map(|name| (file.to_owned(), name.to_owned())),
        );
    }
    all
}

/// Each row of a table has the names, then their file, in backticks.
fn on_page() -> BTreeSet<Constant> {
    let mut all = BTreeSet::new();
    for row in PAGE.lines().filter(|line| line.starts_with("| `")) {
        let quoted: Vec<&str> = row.split('`').skip(1).step_by(2).collect();
        let file = quoted.iter().position(|word| word.ends_with(".rs"));
        let file = file.unwrap_or_else(|| panic!("a file: {row}"));
        assert!(file > 0, "a name before the file: {row}");
        all.extend(quoted[..file].iter().map(|name| (quoted[file].to_owned(), (*name).to_owned())));
    }
    all
}

#[test]
fn the_page_names_every_limit_of_time_and_no_other() {
    let harmless = END_NOTHING.iter().map(|(file, name)| ((*file).into(), (*name).into()));
    let (code, page, harmless) = (in_code(), on_page(), harmless.collect::<BTreeSet<_>>());
    let both: Vec<_> = page.intersection(&harmless).collect();
    assert!(both.is_empty(), "docs/limits.md has limits that END_NOTHING has, too: {both:?}");
    let listed = &page | &harmless;
    let missing: Vec<_> = code.difference(&listed).collect();
    let superfluous: Vec<_> = listed.difference(&code).collect();
    assert!(missing.is_empty(), "docs/limits.md, or END_NOTHING here, lacks {missing:?}");
    assert!(superfluous.is_empty(), "listed, but no constant of the code: {superfluous:?}");
}

/// Seconds have a name, so that the page can list them.
#[test]
fn no_seconds_stand_in_the_middle_of_the_code() {
    for path in program() {
        for line in text(&path).lines().filter(|line| constant(line).is_none()) {
            let number = line.split("Duration::from_secs(").nth(1).map(|rest| rest.as_bytes()[0]);
            let is_bare = number.is_some_and(|digit| digit.is_ascii_digit());
            assert!(!is_bare, "{}: {line}: give it a name", path.display());
        }
    }
}
