use std::io::{self, Write};
use std::ops::AddAssign;

use skt_host::units;

use super::{CleanOptions, Cleaned, state};
use skt_store::store::{SegmentInfo, Store, StoreError};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CleanOutcome {
    Removed,
    Kept(Reason),
    /// Another process has removed the segment since it was listed, or has begun to use it.
    Changed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reason {
    /// A live process is attached to the segment, or has created it.
    Attached,
    /// The process that created the segment is in another container.
    Unseen,
    /// The run, which was not named, can continue from the segment.
    Resumable,
}

pub(crate) fn outcome(
    store: &dyn Store,
    segment: &SegmentInfo,
    options: &CleanOptions,
) -> Result<CleanOutcome, StoreError> {
    if let Some(reason) = reason_to_keep(segment, options) {
        return Ok(CleanOutcome::Kept(reason));
    }
    let name = &segment.name;
    // A segment that a process has begun to use since then is kept.
    let is_removed = if options.force { store.remove(name)? } else { store.remove_unused(name)? };
    Ok(if is_removed { CleanOutcome::Removed } else { CleanOutcome::Changed })
}

fn reason_to_keep(segment: &SegmentInfo, options: &CleanOptions) -> Option<Reason> {
    match state(segment) {
        _ if options.force => None,
        "in use" | "live" => Some(Reason::Attached),
        "unknown" => Some(Reason::Unseen),
        "waiting" if options.run.is_none() => Some(Reason::Resumable),
        _ => None,
    }
}

pub(crate) fn sum(outcomes: &[(&SegmentInfo, CleanOutcome)]) -> Cleaned {
    let mut sum = Cleaned::default();
    for (segment, outcome) in outcomes {
        match outcome {
            CleanOutcome::Removed => {
                sum.removed += 1;
                sum.removed_bytes += segment.bytes as u64;
            }
            CleanOutcome::Kept(_) => sum.kept += 1,
            CleanOutcome::Changed => {}
        }
    }
    sum
}

impl AddAssign for Cleaned {
    fn add_assign(&mut self, more: Self) {
        self.removed += more.removed;
        self.removed_bytes += more.removed_bytes;
        self.kept += more.kept;
    }
}

/// Writes what was done with the segments of one run: one line per outcome.
pub(crate) fn write(
    outcomes: &[(&SegmentInfo, CleanOutcome)],
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut kinds: Vec<CleanOutcome> = outcomes.iter().map(|(_, outcome)| *outcome).collect();
    kinds.sort_unstable();
    kinds.dedup();
    for kind in kinds {
        let of_kind = || outcomes.iter().filter(|(_, outcome)| *outcome == kind);
        let bytes = of_kind().map(|(segment, _)| segment.bytes as u64).sum();
        let (what, sum) = (segments(of_kind().count()), units::bytes(bytes));
        let run = outcomes[0].0.name.run();
        match kind {
            CleanOutcome::Removed => writeln!(out, "removed {what} of run {run}, {sum}")?,
            CleanOutcome::Kept(reason) => {
                let why = match reason {
                    Reason::Attached => "its processes are running",
                    Reason::Unseen => "its processes are in another container",
                    Reason::Resumable => "it can continue from them",
                };
                let by = force_by(reason, run);
                writeln!(
                    out,
                    "kept {what} of run {run}, {sum}: {why} ({by} removes them nevertheless)"
                )?;
            }
            CleanOutcome::Changed => {}
        }
    }
    Ok(())
}

/// The flags with which `clean` removes what it keeps for this reason.
fn force_by(reason: Reason, run: &str) -> String {
    match reason {
        Reason::Resumable => format!("--run {run} or --force"),
        Reason::Attached | Reason::Unseen => "--force".to_owned(),
    }
}

pub(crate) fn segments(count: usize) -> String {
    units::counted(count, "segment")
}
