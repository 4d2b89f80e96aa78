//! Signs of life for `skt-hpl launch`, which supervises any program that uses these checkpoints.
//!
//! A sign is a line on standard error, which every launcher forwards, with a mark by which the
//! supervisor finds and removes it. Signs are written only if the environment has [`ENV`]. Its
//! value is in each sign, so that signs of other jobs are ignored.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::checkpoint::hook::{Hook, Step, Wait};
use crate::checkpoint::protocol::CheckpointError;
use crate::checkpoint::segments::Process;

/// The environment variable that switches signs on. Under `launch` it holds the name of the run,
/// the number of the start, and the number of ranks, separated by dots.
pub const ENV: &str = "SKT_HPL_HEARTBEAT";
/// The mark at the start of a sign. No other output looks like it.
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
/// sign is of that rank, whichever it is, and has no information about the others.
pub const WAIT: &str = "wait";
/// All waiting ranks together write at most this number of signs per second. To achieve this, each
/// rank begins later than the one before it by the time of one sign.
const WAIT_SIGNS_A_SECOND: f64 = 100.0;
/// Minimum number of seconds between signs that report only progress.
pub const INTERVAL_SECONDS: f64 = 1.0;
/// The least number of seconds between signs of checkpoints, which may follow each other quickly.
const CHECKPOINT_INTERVAL_SECONDS: f64 = 0.1;

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

/// A process of a program that a supervisor may have started.
#[derive(Debug, Clone, Copy)]
pub struct Supervised;

impl Process for Supervised {
    fn supervisor(&self) -> Option<String> {
        run_in(&std::env::var(ENV).ok()?).map(str::to_owned)
    }
}

/// Where a run keeps its data, so that the supervisor can remove what nodes still have of it when
/// it is over.
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

/// A sign: the fields of the supervisor's record that a program can fill.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Sign {
    token: String,
    rank: usize,
    phase: &'static str,
    /// The number of the last checkpoint.
    column: u64,
    /// Calls that have asked whether a checkpoint is due.
    steps: u64,
    /// Expected seconds of the operation that a rank waits for; 0 if unknown.
    expected_seconds: f64,
    /// The order of the matrix; 0, because there is none.
    n: usize,
    elapsed_seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    keeps: Option<DataLocation>,
}

/// The signs of a job, which its first process writes; by default none.
#[derive(Debug)]
pub struct Signs {
    /// `None` in a process that writes none.
    last: Option<Sign>,
    start: Instant,
}

impl Default for Signs {
    fn default() -> Self {
        Self::new(None)
    }
}

impl Signs {
    /// The signs of this process, which is `rank` of the job: rank 0 writes them, if a supervisor
    /// has started the job.
    pub fn for_rank(rank: usize) -> Self {
        let token = if rank == 0 { std::env::var(ENV).ok() } else { None };
        Self::new(token)
    }

    fn new(token: Option<String>) -> Self {
        let last = token.map(|token| Sign::new(token, 0, OPEN));
        Self { last, start: Instant::now() }
    }

    /// The hook of process `rank` of `ranks`, by which a supervisor, if there is one, also learns
    /// that the process waits. Everything is passed on to `hook`.
    pub fn add_waits(&self, hook: Arc<dyn Hook>, rank: usize, ranks: usize) -> Arc<dyn Hook> {
        let Ok(token) = std::env::var(ENV) else { return hook };
        let sign = Sign::new(token, rank, WAIT);
        let last = Mutex::new((WaitSigns::default(), sign));
        Arc::new(SignedWaits { hook, start: self.start, ranks, last })
    }

    /// Reports that a run is looked for, and where its data is kept.
    pub fn open(&mut self, keeps: impl FnOnce() -> DataLocation) {
        self.update(0.0, |sign| (sign.phase, sign.keeps) = (OPEN, Some(keeps())));
    }

    /// Reports what the program does now, at once.
    pub fn phase(&mut self, phase: &'static str) {
        self.update(0.0, |sign| sign.phase = phase);
    }

    /// Reports that the program computes, from checkpoint `number` on; 0 is the beginning.
    pub fn compute_from(&mut self, number: u64) {
        self.update(0.0, |sign| (sign.phase, sign.column) = (COMPUTE, number));
    }

    /// Reports that a checkpoint begins.
    pub fn begins(&mut self) {
        self.update(CHECKPOINT_INTERVAL_SECONDS, |sign| sign.phase = CHECKPOINT);
    }

    /// Reports that checkpoint `number` is complete.
    pub fn complete(&mut self, number: u64) {
        let change = |sign: &mut Sign| (sign.phase, sign.column) = (COMPUTE, number);
        self.update(CHECKPOINT_INTERVAL_SECONDS, change);
    }

    /// Reports that the program has come as far as to ask whether a checkpoint is due.
    pub fn step(&mut self) {
        self.update(INTERVAL_SECONDS, |sign| sign.steps += 1);
    }

    /// Reports why a run could not be opened, where the supervisor can do something about it.
    pub fn refused(&mut self, error: &CheckpointError) {
        if let CheckpointError::Refused(refusal) = error
            && refusal.passes()
        {
            self.phase(CHANGED);
        }
    }

    /// Changes the sign, and writes it if the last one is `interval_seconds` old.
    fn update<T>(&mut self, interval_seconds: f64, change: impl FnOnce(&mut Sign) -> T) {
        let elapsed_seconds = self.start.elapsed().as_secs_f64();
        if let Some(line) = self.due(elapsed_seconds, interval_seconds, change) {
            write(&line);
        }
    }

    fn due<T>(
        &mut self,
        elapsed_seconds: f64,
        interval_seconds: f64,
        change: impl FnOnce(&mut Sign) -> T,
    ) -> Option<String> {
        let sign = self.last.as_mut()?;
        change(sign);
        if elapsed_seconds - sign.elapsed_seconds < interval_seconds {
            return None;
        }
        sign.elapsed_seconds = elapsed_seconds;
        let line = marked_line(MARK, sign);
        // `keeps` is reported once.
        sign.keeps = None;
        Some(line)
    }
}

impl Sign {
    fn new(token: String, rank: usize, phase: &'static str) -> Self {
        Self {
            token,
            rank,
            phase,
            column: 0,
            steps: 0,
            expected_seconds: 0.0,
            n: 0,
            elapsed_seconds: f64::NEG_INFINITY,
            keeps: None,
        }
    }
}

/// Writes a line in one write, so that no other output comes in between. A closed standard error is
/// for the supervisor to deal with.
fn write(line: &str) {
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}

/// What a process has reported of its wait.
#[derive(Debug, Default)]
pub struct WaitSigns {
    /// The seconds of the wait and the operations in the last sign.
    reported: Option<(f64, u64)>,
    /// The seconds of the wait at the last call.
    waited_seconds: f64,
}

impl WaitSigns {
    /// Whether rank `rank` of `ranks` must write a sign, after `waited_seconds` and `operations`.
    /// Rank 0 writes at once; the others, possibly many thousands, write after a second, one after
    /// the other. A wait without progress is reported once.
    pub fn is_due(
        &mut self,
        waited_seconds: f64,
        operations: u64,
        (rank, ranks): (usize, usize),
    ) -> bool {
        if waited_seconds < self.waited_seconds {
            self.reported = None;
        }
        self.waited_seconds = waited_seconds;
        let of_all = |ranks: usize| ranks as f64 / WAIT_SIGNS_A_SECOND;
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

/// A hook that reports waits to the supervisor, on every rank: the other ranks may stand still for
/// the same reason.
struct SignedWaits {
    hook: Arc<dyn Hook>,
    start: Instant,
    ranks: usize,
    last: Mutex<(WaitSigns, Sign)>,
}

impl Hook for SignedWaits {
    fn at(&self, step: &Step) -> skt_comm::Result<()> {
        self.hook.at(step)
    }

    fn waits(&self, wait: &Wait) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let (reported, sign) = &mut *last;
        if reported.is_due(wait.seconds, wait.operations, (sign.rank, self.ranks)) {
            (sign.steps, sign.expected_seconds) = (wait.operations, wait.expected_seconds);
            sign.elapsed_seconds = self.start.elapsed().as_secs_f64();
            write(&marked_line(MARK, sign));
        }
        drop(last);
        self.hook.waits(wait);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_signs_are_limited_to_the_launchers_rate() {
        let mut signs = WaitSigns::default();
        assert!(signs.is_due(0.0, 1, (0, 2)), "rank 0 at once");
        assert!(!signs.is_due(5.0, 1, (0, 2)), "a wait in which nothing happens");
        assert!(!signs.is_due(0.9, 1, (1, 2)), "another wait");
        assert!(signs.is_due(1.1, 1, (1, 2)));
        assert!(!signs.is_due(1.5, 2, (1, 2)) && signs.is_due(2.2, 2, (1, 2)));
        // 10,000 ranks write 100 signs per second.
        let place = (5000, 10_000);
        let due = (0..600u32).filter(|&second| signs.is_due(second.into(), second.into(), place));
        assert_eq!(due.collect::<Vec<_>>(), [51, 151, 251, 351, 451, 551]);
    }

    #[test]
    fn without_a_supervisor_no_sign_is_written() {
        let mut signs = Signs::new(None);
        assert_eq!(signs.due(1.0, 0.0, |sign| sign.phase = COMPUTE), None);
        assert!(Signs::for_rank(1).last.is_none());
    }

    #[test]
    fn signs_have_the_progress_so_far_and_are_rate_limited() {
        let mut signs = Signs::new(Some("r.1.4".to_owned()));
        let keeps = DataLocation { run_id: "r".into(), store: "sysv".into(), images: Vec::new() };
        let open = signs.due(0.0, 0.0, |sign| sign.keeps = Some(keeps.clone())).expect("at once");
        let json = open.strip_prefix(MARK).expect("a mark").trim_end();
        let json: serde_json::Value = serde_json::from_str(json).expect("JSON");
        assert_eq!((&json["token"], &json["phase"]), (&"r.1.4".into(), &"open".into()));
        assert_eq!(json["keeps"]["run_id"], "r");
        for asked in 1..=9 {
            let at = 0.1 * f64::from(asked);
            assert_eq!(signs.due(at, INTERVAL_SECONDS, |sign| sign.steps += 1), None);
        }
        let reported = signs.due(1.0, INTERVAL_SECONDS, |sign| sign.steps += 1).expect("a second");
        assert!(reported.contains("\"steps\":10") && !reported.contains("keeps"), "{reported}");
        // The next sign reports a checkpoint that follows at once.
        assert_eq!(signs.due(1.05, CHECKPOINT_INTERVAL_SECONDS, |sign| sign.column = 1), None);
        let reported = signs.due(1.15, CHECKPOINT_INTERVAL_SECONDS, |sign| sign.column = 2);
        assert!(reported.is_some_and(|reported| reported.contains("\"column\":2")));
    }
}
