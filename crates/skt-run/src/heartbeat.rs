//! Heartbeats of a job under `skt-hpl launch`: lines on rank 0's standard error, which every
//! launcher forwards, with a mark by which the supervisor finds and removes them. If a job survives
//! the loss of its rank 0, the first surviving rank writes them ([`fn set_writer`]).
//!
//! Heartbeats are written only if the environment has [`ENV`]. Its value is in each record, so that
//! records of other jobs are ignored.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Instant;

use skt_host::exit::Exit;

pub use skt_checkpoint::heartbeat::{
    CHANGED, CHECKPOINT, COMPUTE, CorruptionReport, DONE, DataLocation, ENV, FACTOR, Heartbeat,
    MARK, OPEN, REFUSED, REPORTED, TIME_UP, UnfitHost, WAIT, WaitRateLimit, run_in,
};
use skt_host::launcher_rank;
use skt_solver::work::{self, WorkListener};

struct HeartbeatWriter {
    token: String,
    start: Instant,
    /// Whether this process writes the job's heartbeats.
    writes: AtomicBool,
    last: Mutex<Heartbeat>,
    wait: Mutex<WaitRateLimit>,
}

/// The heartbeat of this process, if it is the one that writes.
fn writer() -> Option<&'static HeartbeatWriter> {
    any_writer().filter(|writer| writer.writes.load(Ordering::Relaxed))
}

fn any_writer() -> Option<&'static HeartbeatWriter> {
    static WRITER: OnceLock<Option<HeartbeatWriter>> = OnceLock::new();
    WRITER
        .get_or_init(|| {
            let token = std::env::var(ENV).ok()?;
            work::listen(WorkListener { piece_done: Some(piece), ..WorkListener::default() });
            let rank = launcher_rank::rank().unwrap_or(0);
            let last = Heartbeat::new(token.clone(), rank, "start");
            let (start, writes) = (Instant::now(), AtomicBool::new(rank == 0));
            let (last, wait) = (Mutex::new(last), Mutex::default());
            Some(HeartbeatWriter { token, start, writes, last, wait })
        })
        .as_ref()
}

/// Changes the record of the process that writes, and writes it if `change` requests that or the
/// interval is over.
fn beat(change: impl FnOnce(&mut Heartbeat) -> bool) {
    let Some(writer) = writer() else { return };
    let mut last = writer.last.lock().expect("never held over a panic");
    if last.is_due(writer.start.elapsed().as_secs_f64(), change) {
        debug_assert_eq!(last.token, writer.token);
        last.write();
    }
}

/// The run whose supervisor started this job, if there is one.
pub fn run() -> Option<String> {
    run_in(&any_writer()?.token).map(str::to_owned)
}

/// The number of ranks that the supervisor has started, if there is one.
pub fn ranks() -> Option<usize> {
    ranks_in(&any_writer()?.token)
}

fn ranks_in(token: &str) -> Option<usize> {
    token.split('.').nth(2)?.parse().ok()
}

/// Sets whether this process is the first of those that work on the job, which then writes the
/// heartbeats. Until this is known, the launcher's rank 0 writes them.
pub fn set_writer(is_first: bool) {
    if let Some(writer) = any_writer() {
        writer.writes.store(is_first, Ordering::Relaxed);
    }
}

/// Reports that the job begins the phase `name`, on a matrix of order `n`, with `column` columns
/// eliminated; its first step is expected to take `expected_seconds`. Rank 0 writes at once.
pub(crate) fn begin_phase(name: &str, column: usize, n: usize, expected_seconds: f64) {
    beat(|beat| {
        beat.set_phase(name);
        (beat.column, beat.n, beat.expected_seconds) = (column, n, expected_seconds);
        beat.slow = None;
        true
    });
}

/// Reports that `column` columns are eliminated; the next step is expected to take
/// `expected_seconds`. Rank 0 writes at most once per second, and at once if the phase was another
/// one before.
pub fn columns(column: usize, n: usize, expected_seconds: f64) {
    beat(|beat| {
        let is_other = beat.set_phase(FACTOR);
        (beat.column, beat.n, beat.expected_seconds) = (column, n, expected_seconds);
        is_other
    });
}

/// Sets the words about slow ranks in the next records; `None` if no rank is slow.
pub fn slow(words: Option<&str>) {
    if let Some(writer) = writer() {
        writer.last.lock().expect("never held over a panic").slow = words.map(str::to_owned);
    }
}

/// Reports that a piece of a step is done, by any thread: some rows of a product or of the matrix.
/// Rank 0 writes at most once per second.
pub(crate) fn piece() {
    beat(|beat| {
        beat.pieces += 1;
        false
    });
}

/// Reports that this rank has waited for `waited_seconds`, for its image or for a process of an
/// earlier start, and that `operations` of what it waits for are done; the present operation is
/// expected to take `expected_seconds`. Any rank writes this, because rank 0 may stand still for
/// the same reason; the more ranks there are, the less often each writes.
pub fn wait(waited_seconds: f64, operations: u64, expected_seconds: f64) {
    let Some(writer) = any_writer() else { return };
    let rank = if writer.writes.load(Ordering::Relaxed) {
        0
    } else {
        launcher_rank::rank().unwrap_or(0).max(1)
    };
    let ranks = launcher_rank::size().unwrap_or(rank + 1);
    let mut limit = writer.wait.lock().expect("never held over a panic");
    if limit.is_due(waited_seconds, operations, rank, ranks) {
        let mut beat = writer.last.lock().expect("never held over a panic").clone();
        beat.set_phase(WAIT);
        (beat.steps, beat.expected_seconds, beat.exit) = (operations, expected_seconds, None);
        beat.elapsed_seconds = writer.start.elapsed().as_secs_f64();
        beat.write();
    }
}

/// Reports that the job enters the phase `name`, such as a step of the checkpoint protocol, or has
/// done a step of it if it is there already. Rank 0 writes at most once per second, and at once if
/// the phase is another one than before; the column stays.
pub(crate) fn enter_phase(name: &str) {
    beat(|beat| beat.enter_phase(name));
}

/// Reports wrong numbers that a check has traced to a rank; all later records repeat them. Rank 0
/// writes at once.
pub(crate) fn report_corruption(new: CorruptionReport) {
    beat(|beat| {
        beat.add_corruption(new);
        true
    });
}

/// Reports hosts that the job declines while its other hosts would do; all later records repeat
/// them. Rank 0 writes at once.
pub(crate) fn decline_hosts(unfit: &[UnfitHost]) {
    beat(|beat| {
        beat.unfit = unfit.to_vec();
        true
    });
}

/// Reports that the report is whole: the job ends with `exit`, whatever happens from now on. All
/// later records contain that, too, and that standard output has `report_lines` lines of the
/// report.
pub(crate) fn reported(exit: Exit, report_lines: u64) {
    if let Some(writer) = writer() {
        writer.last.lock().expect("never held over a panic").report_lines = Some(report_lines);
    }
    ends(REPORTED, exit);
}

/// Reports that the job has nothing left to do and ends with `exit`.
pub fn done(exit: Exit) {
    ends(DONE, exit);
}

fn ends(name: &str, exit: Exit) {
    beat(|beat| {
        beat.set_phase(name);
        beat.exit = Some(exit.code());
        true
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_contains_the_number_of_ranks() {
        assert_eq!(ranks_in("63f-2a.3.64"), Some(64));
        assert_eq!((ranks_in("screen"), ranks_in("63f-2a.3")), (None, None));
    }
}
