//! Heartbeats for `skt-hpl launch`, which supervises a benchmark run, or any program that uses
//! these checkpoints ([`program`]).
//!
//! A heartbeat is a line on standard error, which every launcher forwards, with a mark by which the
//! supervisor finds and removes it. Heartbeats are written only if the environment has [`ENV`]. Its
//! value is in each of them, so that those of other jobs are ignored.

pub mod program;

use std::io::Write as _;
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The environment variable that switches heartbeats on. Under `launch` it holds the name of the
/// run, the number of the start, and the number of ranks, separated by dots.
pub const ENV: &str = "SKT_HPL_HEARTBEAT";
/// The mark at the start of a heartbeat. No other output looks like it.
pub const MARK: &str = "@skt-hpl-beat@";
/// The run is looked for, and what is lost of it is rebuilt.
pub const OPEN: &str = "open";
/// The program computes.
pub const COMPUTE: &str = "compute";
/// A checkpoint is under way.
pub const CHECKPOINT: &str = "checkpoint";
/// All is reported; only shared memory remains to be cleared.
pub const REPORTED: &str = "reported";
/// A process of an earlier start was still running, or still held memory or locks.
pub const CHANGED: &str = "changed";
/// The time of the job is up.
pub const TIME_UP: &str = "time-up";
/// A rank waits for its image, or for a process of an earlier start to release what it holds. The
/// heartbeat is of that rank, whichever it is, and has no information about the others.
pub const WAIT: &str = "wait";
/// The phase in which columns advance.
pub const FACTOR: &str = "factor";
/// The job is done.
pub const DONE: &str = "done";
/// More is lost or damaged than can be rebuilt.
pub const REFUSED: &str = "refused";

/// All waiting ranks together write at most this number of heartbeats per second. To achieve this,
/// each rank begins later than the one before it by the time of one heartbeat.
const MAX_WAITS_PER_SECOND: f64 = 100.0;
/// Minimum number of seconds between heartbeats that report only progress.
pub(crate) const INTERVAL_SECONDS: f64 = 1.0;

/// Formats `record` as a line that [`find_marked`] recognizes among other output: `mark`, which no
/// other output has, and JSON.
pub fn marked_line(mark: &str, record: &impl Serialize) -> String {
    format!("{mark}{}\n", serde_json::to_string(record).expect("text and numbers become JSON"))
}

/// Returns the record in a line of [`marked_line`], and the text before its mark: an unfinished
/// line of other output may precede it. Returns `None` for every other line.
pub fn find_marked<'a, T: DeserializeOwned>(line: &'a str, mark: &str) -> Option<(&'a str, T)> {
    let (before, json) = line.split_once(mark)?;
    Some((before, serde_json::from_str(json.trim_end()).ok()?))
}

/// The name of the run in `token`, a value of [`ENV`].
pub fn run_in(token: &str) -> Option<&str> {
    token.split_once('.').map(|(run, _)| run)
}

/// Where a run keeps its data, so that the supervisor can remove it when the run is over.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataLocation {
    /// The name of the run in the store.
    pub run_id: String,
    /// The store, as flags name it.
    pub store: String,
    /// The folders of images, on the nodes' own disks or on a file system that all nodes share.
    #[serde(default)]
    pub images: Vec<PathBuf>,
}

/// Maximum number of corruption reports in a heartbeat: a line must not grow without bound.
const MAX_CORRUPTION_REPORTS: usize = 64;

/// A heartbeat.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// The value of [`ENV`].
    pub token: String,
    /// The rank that writes the record.
    pub rank: usize,
    /// The phase of the job: one of the constants here, a step of the checkpoint protocol, or a
    /// part of a test; [`DONE`] in its last record.
    pub phase: String,
    /// Number of columns that are eliminated.
    pub column: usize,
    /// Steps of the protocol since the phase began: a slow phase must not be taken for a hang.
    #[serde(default)]
    pub steps: u64,
    /// Pieces done within the steps or columns: a long step must not be taken for a hang.
    #[serde(default)]
    pub pieces: u64,
    /// The longest time that the present step is expected to take, in seconds, by measurements of
    /// this start; 0 if there are none.
    #[serde(default)]
    pub expected_seconds: f64,
    /// Order of the matrix.
    pub n: usize,
    /// The ranks that are slow, in a few words, while columns advance; `None` if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slow: Option<String>,
    /// Seconds since the process started to send heartbeats.
    pub elapsed_seconds: f64,
    /// The exit code of the job, once its report is complete.
    pub exit: Option<u8>,
    /// Lines of the report that this process has written to standard output, once it is whole.
    #[serde(default)]
    pub report_lines: Option<u64>,
    /// The wrong numbers of this start that certainly come from a rank.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub corruption: Vec<CorruptionReport>,
    /// The hosts that the job declines because they lack what its other hosts have; it ends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unfit: Vec<UnfitHost>,
    /// Where a program of the user keeps its data, when it begins a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keeps: Option<DataLocation>,
}

/// A host that cannot take part in the job, where another one in its place might.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnfitHost {
    /// The host.
    pub host: String,
    /// What it lacks, as a predicate: "has no ...".
    pub why: String,
}

/// Wrong numbers in the matrix that certainly come from a rank, in all checks of a start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CorruptionReport {
    /// The rank's host.
    pub host: String,
    /// The rank's number in the run.
    pub rank: usize,
    /// Number of checks that have found wrong numbers of the rank.
    pub checks: u64,
    /// Number of rows that were recomputed.
    pub rows: u64,
    /// Columns eliminated at the first of these checks.
    pub first_column: usize,
    /// Whether the job ends, as the last of these numbers could not be corrected.
    #[serde(default)]
    pub ends_job: bool,
}

impl Heartbeat {
    /// The heartbeat of `rank` before the first is written: [`Self::elapsed_seconds`] is to be set.
    pub fn new(token: String, rank: usize, phase: &str) -> Self {
        let elapsed_seconds = f64::NEG_INFINITY;
        Self { token, rank, phase: phase.to_owned(), elapsed_seconds, ..Self::default() }
    }

    /// Writes the heartbeat in one write, so that no other output comes in between. A closed
    /// standard error is for the supervisor to deal with.
    pub fn write(&self) {
        let _ = std::io::stderr().lock().write_all(self.line().as_bytes());
    }

    /// Formats the record as a line, with its line end.
    pub fn line(&self) -> String {
        marked_line(MARK, self)
    }

    /// Sets the phase; returns whether it is another one than before.
    pub fn set_phase(&mut self, phase: &str) -> bool {
        let is_other = self.phase != phase;
        if is_other {
            (self.phase, self.steps, self.expected_seconds) = (phase.to_owned(), 0, 0.0);
        }
        is_other
    }

    /// Whether the record must be written: `change` requires it, or the last one is old.
    pub fn is_due(&mut self, elapsed_seconds: f64, change: impl FnOnce(&mut Self) -> bool) -> bool {
        let is_urgent = change(self);
        let is_due = is_urgent || elapsed_seconds - self.elapsed_seconds >= INTERVAL_SECONDS;
        if is_due {
            self.elapsed_seconds = elapsed_seconds;
        }
        is_due
    }

    /// Enters the phase `phase`, or counts a step of it; whether it is another one than before.
    pub fn enter_phase(&mut self, phase: &str) -> bool {
        let is_other = self.set_phase(phase);
        self.steps += u64::from(!is_other);
        is_other
    }

    /// Adds a report to that of the same rank.
    pub fn add_corruption(&mut self, new: CorruptionReport) {
        let is_full = self.corruption.len() == MAX_CORRUPTION_REPORTS;
        let is_same = |old: &&mut CorruptionReport| (&old.host, old.rank) == (&new.host, new.rank);
        match self.corruption.iter_mut().find(is_same) {
            Some(old) => {
                old.checks += new.checks;
                old.rows += new.rows;
                old.ends_job |= new.ends_job;
            }
            None if is_full => {}
            None => self.corruption.push(new),
        }
    }

    /// The record in a line, and the text before it; none if it is of a job with another token.
    pub fn find<'a>(line: &'a str, token: &str) -> Option<(&'a str, Heartbeat)> {
        find_marked(line, MARK).filter(|(_, beat): &(_, Heartbeat)| beat.token == token)
    }
}

/// What a process has reported of its wait.
#[derive(Debug, Default)]
pub struct WaitRateLimit {
    /// The seconds of the wait and the operations in the last heartbeat.
    reported: Option<(f64, u64)>,
    /// The seconds of the wait at the last call.
    waited_seconds: f64,
}

impl WaitRateLimit {
    /// Whether rank `rank` of `ranks` must write a heartbeat, after `waited_seconds` and
    /// `operations`. Rank 0 writes at once; the others, possibly many thousands, write after a
    /// second, one after the other. A wait without progress is reported once.
    pub fn is_due(
        &mut self,
        waited_seconds: f64,
        operations: u64,
        rank: usize,
        ranks: usize,
    ) -> bool {
        if waited_seconds < self.waited_seconds {
            self.reported = None;
        }
        self.waited_seconds = waited_seconds;
        let of_all = |ranks: usize| ranks as f64 / MAX_WAITS_PER_SECOND;
        let is_due = match self.reported {
            None if rank == 0 => true,
            None => waited_seconds >= INTERVAL_SECONDS + of_all(rank),
            Some((reported_seconds, reported)) => {
                let interval_seconds = INTERVAL_SECONDS.max(of_all(ranks));
                reported != operations && waited_seconds - reported_seconds >= interval_seconds
            }
        };
        if is_due {
            self.reported = Some((waited_seconds, operations));
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_limited_to_the_launchers_rate() {
        let mut limit = WaitRateLimit::default();
        assert!(limit.is_due(0.0, 1, 0, 2), "rank 0 at once");
        assert!(!limit.is_due(5.0, 1, 0, 2), "a wait in which nothing happens");
        assert!(!limit.is_due(0.9, 1, 1, 2), "another wait");
        assert!(limit.is_due(1.1, 1, 1, 2));
        assert!(!limit.is_due(1.5, 2, 1, 2) && limit.is_due(2.2, 2, 1, 2));
        // 10,000 ranks write 100 heartbeats per second.
        let due =
            (0..600u32).filter(|&second| limit.is_due(second.into(), second.into(), 5000, 10_000));
        assert_eq!(due.collect::<Vec<_>>(), [51, 151, 251, 351, 451, 551]);
    }

    fn beat() -> Heartbeat {
        let first = Heartbeat::new("t1".into(), 0, FACTOR);
        Heartbeat { column: 512, n: 4000, elapsed_seconds: 1.25, ..first }
    }

    #[test]
    fn steps_are_counted_and_reported_once_a_second() {
        let mut beat = beat();
        assert!(
            beat.is_due(1.5, |beat| beat.enter_phase("encode")),
            "another part is reported at once"
        );
        for step in 1..=10 {
            assert!(!beat.is_due(2.4, |beat| beat.enter_phase("encode")));
            assert_eq!(beat.steps, step);
        }
        assert!(beat.is_due(2.5, |beat| beat.enter_phase("encode")));
        assert_eq!((beat.steps, beat.elapsed_seconds), (11, 2.5));
        assert!(beat.is_due(2.6, |beat| beat.set_phase("factor")));
        assert_eq!(beat.steps, 0);
    }

    #[test]
    fn corruption_reports_are_summed_by_rank_and_bounded() {
        let report = |rank, rows| CorruptionReport {
            host: "n".into(),
            rank,
            checks: 1,
            rows,
            first_column: 8,
            ends_job: false,
        };
        let mut beat = beat();
        (0..100).for_each(|rank| beat.add_corruption(report(rank, 2)));
        beat.add_corruption(CorruptionReport { first_column: 64, ends_job: true, ..report(3, 5) });
        assert_eq!(beat.corruption.len(), MAX_CORRUPTION_REPORTS);
        assert_eq!(
            beat.corruption[3],
            CorruptionReport { checks: 2, ends_job: true, ..report(3, 7) }
        );
    }

    #[test]
    fn record_is_found_after_an_open_line_by_its_token() {
        let beat = beat();
        let line = format!("\r12% {}", beat.line());
        assert_eq!(Heartbeat::find(&line, "t1"), Some(("\r12% ", beat)));
        assert_eq!(Heartbeat::find(&line, "t2"), None);
        assert_eq!(Heartbeat::find("@skt-hpl-beat@{\"token\":\"t1\"}", "t1"), None);
        assert_eq!(Heartbeat::find("plain", "t1"), None);
    }
}
