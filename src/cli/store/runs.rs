use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use super::{age, state};
use skt_checkpoint::checkpoint::level::folder::StoredImages;
use skt_run::protect::{StoredCheckpoint, column_in};
use skt_store::store::SegmentInfo;

const GIB: f64 = (1u64 << 30) as f64;

/// The states of a run, in the order of precedence, each with the states of segments that cause it.
const STATES: [(&str, &[&str]); 5] = [
    ("running", &["in use", "live"]),
    ("unknown", &["unknown"]),
    ("waiting", &["waiting"]),
    ("incomplete", &["incomplete"]),
    ("ended", &["ended"]),
];

/// The first of [`STATES`] that a segment of the run is in.
fn state_of_run(segments: &[SegmentInfo]) -> &'static str {
    let is_in = |states: &[&str]| segments.iter().any(|segment| states.contains(&state(segment)));
    let found = STATES.iter().find(|(_, states)| is_in(states));
    found.expect("a segment, which is in one of the states").0
}

/// Checkpoints by their numbers, each with its column, and with its test if there are several.
fn format_checkpoints(checkpoints: &[StoredCheckpoint]) -> String {
    let has_several = checkpoints.iter().any(|it| it.test != checkpoints[0].test);
    let one = |&StoredCheckpoint { test, epoch, column }: &_| {
        let of_test = if has_several { format!("t{test}:") } else { String::new() };
        let column = column.map_or("-".to_owned(), |column| column.to_string());
        format!("{of_test}{epoch}({column})")
    };
    match checkpoints {
        [] => "-".to_owned(),
        all => all.iter().map(one).collect::<Vec<_>>().join(","),
    }
}

/// Writes a title and one line per run, in the order of their names.
pub(crate) fn write(
    segments: &[SegmentInfo],
    checkpoints: &BTreeMap<String, Vec<StoredCheckpoint>>,
    now: u64,
    out: &mut dyn Write,
) -> io::Result<()> {
    writeln!(
        out,
        "{:<20} {:<10} {:>8} {:>12} {:>8}  CHECKPOINT(COLUMN)",
        "RUN", "STATE", "SEGMENTS", "GiB", "AGE"
    )?;
    for of_run in segments.chunk_by(|a, b| a.name.run() == b.name.run()) {
        let (run, state, count) = (of_run[0].name.run(), state_of_run(of_run), of_run.len());
        let gib = of_run.iter().map(|segment| segment.bytes).sum::<usize>() as f64 / GIB;
        let oldest = of_run.iter().map(|segment| segment.created_unix_seconds).min();
        let age = age(now.saturating_sub(oldest.expect("a run has segments here")));
        let checkpoints = checkpoints.get(run).map_or(&[][..], |all| all);
        let checkpoints = format_checkpoints(checkpoints);
        writeln!(out, "{run:<20} {state:<10} {count:>8} {gib:>12.3} {age:>8}  {checkpoints}")?;
    }
    Ok(())
}

/// Writes a title and one line per run of `all`, the images in `folder` in the order of their runs.
pub(crate) fn write_images(
    all: &[StoredImages],
    folder: &Path,
    now: u64,
    out: &mut dyn Write,
) -> io::Result<()> {
    writeln!(
        out,
        "{:<20} {:>8} {:>12} {:>8}  CHECKPOINTS(COLUMNS)  IMAGES IN",
        "RUN", "IMAGES", "GiB", "AGE"
    )?;
    for of_run in all.chunk_by(|a, b| a.run == b.run) {
        let run = &of_run[0].run;
        let checkpoint = |images: &StoredImages| StoredCheckpoint {
            test: images.test,
            epoch: images.generation.epoch,
            column: images.state.as_deref().and_then(column_in),
        };
        let whole = of_run.iter().filter(|images| images.state.is_some());
        let checkpoints = format_checkpoints(&whole.map(checkpoint).collect::<Vec<_>>());
        let images: usize = of_run.iter().map(|images| images.ranks).sum();
        let gib = of_run.iter().map(|images| images.bytes).sum::<u64>() as f64 / GIB;
        let newest = of_run.iter().map(|images| images.changed_unix_seconds).max();
        let age = age(now.saturating_sub(newest.expect("a run has images here")));
        let folder = folder.display();
        writeln!(out, "{run:<20} {images:>8} {gib:>12.3} {age:>8}  {checkpoints}  {folder}")?;
    }
    Ok(())
}
