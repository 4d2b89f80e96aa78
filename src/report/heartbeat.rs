//! Heartbeats of a job under `skt-hpl launch`: lines on rank 0's standard error, which every
//! launcher forwards, with a mark by which the supervisor finds and removes them. If a job survives
//! the loss of its rank 0, the first surviving rank writes them ([`speak`]).
//!
//! Heartbeats are written only if the environment has [`ENV`]. Its value is in each record, so that
//! records of other jobs are ignored.

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Instant;

use serde::{Deserialize, Serialize};
use skt_terms::exit::Exit;

use crate::hpl::work;
use skt_host::launcher_rank;

pub use skt_checkpoint::sign::{
    CHANGED, CHECKPOINT, COMPUTE, ENV, Keeps, MARK, OPEN, REPORTED, TIME_UP, WAIT,
};
use skt_checkpoint::sign::{INTERVAL_SECONDS, WaitSigns, find_marked, marked_line, run_in};
/// The phase in which columns advance.
pub const FACTOR: &str = "factor";
/// The job is done.
pub const DONE: &str = "done";
/// More is lost or damaged than can be rebuilt.
pub const REFUSED: &str = "refused";

/// The most ranks whose charges a record has: a line must not grow without bound.
const MOST_CHARGED: usize = 64;

/// A heartbeat.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Beat {
    /// The value of [`ENV`].
    pub token: String,
    /// The rank that writes the record.
    pub rank: usize,
    /// What the job does, see [`begin_phase`]; [`DONE`] in its last record.
    pub phase: String,
    /// Number of columns that are eliminated.
    pub column: usize,
    /// Number of steps of the checkpoint protocol since the phase began, so that a slow phase is
    /// not taken for a hang.
    #[serde(default)]
    pub steps: u64,
    /// Number of pieces of work that are done within the steps or columns, so that a long step is
    /// not taken for a hang.
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
    /// The exit code of the job, once its report is whole, see [`reported`].
    pub exit: Option<u8>,
    /// Number of lines of the report that this process has written to standard output, once the
    /// report is whole.
    #[serde(default)]
    pub report_lines: Option<u64>,
    /// The wrong numbers of this start that certainly come from a rank.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub charges: Vec<Charge>,
    /// Where a program of the user keeps its data, when it begins a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keeps: Option<Keeps>,
}

/// Wrong numbers in the matrix that certainly come from a rank, in all checks of a start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Charge {
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
    /// Whether the job ends by itself, as the last of these numbers could not be mended.
    #[serde(default)]
    pub ends_job: bool,
}

impl Beat {
    /// Formats the record as a line, with its line end.
    pub fn line(&self) -> String {
        marked_line(MARK, self)
    }

    /// Sets the phase; returns whether it is another one than before.
    fn set_phase(&mut self, phase: &str) -> bool {
        let is_other = self.phase != phase;
        if is_other {
            (self.phase, self.steps, self.expected_seconds) = (phase.to_owned(), 0, 0.0);
        }
        is_other
    }

    /// Changes the record. Returns whether it must be written, because `change` says so or the last
    /// record is old.
    fn is_due(&mut self, elapsed_seconds: f64, change: impl FnOnce(&mut Self) -> bool) -> bool {
        let is_urgent = change(self);
        let is_due = is_urgent || elapsed_seconds - self.elapsed_seconds >= INTERVAL_SECONDS;
        if is_due {
            self.elapsed_seconds = elapsed_seconds;
        }
        is_due
    }

    /// Enters the phase `phase`, or counts a step of it; returns whether the phase is another one
    /// than before.
    fn enter_phase(&mut self, phase: &str) -> bool {
        let is_other = self.set_phase(phase);
        self.steps += u64::from(!is_other);
        is_other
    }

    /// Adds a charge to those of the same rank.
    fn charge(&mut self, new: Charge) {
        let is_full = self.charges.len() == MOST_CHARGED;
        let is_same = |old: &&mut Charge| (&old.host, old.rank) == (&new.host, new.rank);
        match self.charges.iter_mut().find(is_same) {
            Some(old) => {
                old.checks += new.checks;
                old.rows += new.rows;
                old.ends_job |= new.ends_job;
            }
            None if is_full => {}
            None => self.charges.push(new),
        }
    }

    /// Returns the record in a line, and the text before it. A record of a job with another token
    /// is ignored.
    pub fn find<'a>(line: &'a str, token: &str) -> Option<(&'a str, Beat)> {
        find_marked(line, MARK).filter(|(_, beat): &(_, Beat)| beat.token == token)
    }
}

struct Heart {
    token: String,
    start: Instant,
    /// Whether this process writes the job's heartbeats.
    speaks: AtomicBool,
    last: Mutex<Beat>,
    wait: Mutex<WaitSigns>,
}

/// The heartbeat of this process, if it is the one that writes.
fn heart() -> Option<&'static Heart> {
    any_heart().filter(|heart| heart.speaks.load(Ordering::Relaxed))
}

fn any_heart() -> Option<&'static Heart> {
    static HEART: OnceLock<Option<Heart>> = OnceLock::new();
    HEART
        .get_or_init(|| {
            let token = std::env::var(ENV).ok()?;
            work::on_pieces(piece);
            let rank = launcher_rank::rank().unwrap_or(0);
            let last = Beat {
                token: token.clone(),
                rank,
                phase: "start".into(),
                column: 0,
                steps: 0,
                pieces: 0,
                expected_seconds: 0.0,
                n: 0,
                slow: None,
                elapsed_seconds: f64::NEG_INFINITY,
                exit: None,
                report_lines: None,
                charges: Vec::new(),
                keeps: None,
            };
            let (start, speaks) = (Instant::now(), AtomicBool::new(rank == 0));
            let (last, wait) = (Mutex::new(last), Mutex::default());
            Some(Heart { token, start, speaks, last, wait })
        })
        .as_ref()
}

impl Heart {
    /// Changes the record, and writes it if `change` says so or the interval is over.
    fn beat(&self, change: impl FnOnce(&mut Beat) -> bool) {
        let mut last = self.last.lock().expect("never held over a panic");
        if last.is_due(self.start.elapsed().as_secs_f64(), change) {
            debug_assert_eq!(last.token, self.token);
            write(&last);
        }
    }
}

/// Writes a record as one line in one write. A closed pipe is ignored, because the supervisor deals
/// with it.
fn write(beat: &Beat) {
    let _ = std::io::stderr().lock().write_all(beat.line().as_bytes());
}

/// The run whose supervisor started this job, if there is one.
pub fn run() -> Option<String> {
    run_in(&any_heart()?.token).map(str::to_owned)
}

/// The number of ranks that the supervisor has started, if there is one.
pub fn ranks() -> Option<usize> {
    ranks_in(&any_heart()?.token)
}

fn ranks_in(token: &str) -> Option<usize> {
    token.split('.').nth(2)?.parse().ok()
}

/// Sets whether this process is the first of those that work on the job, which then writes the
/// heartbeats. Until this is known, the launcher's rank 0 writes them.
pub fn speak(is_first: bool) {
    if let Some(heart) = any_heart() {
        heart.speaks.store(is_first, Ordering::Relaxed);
    }
}

/// Reports that the job begins the phase `name`, on a matrix of order `n`, with `column` columns
/// eliminated; its first step is expected to take `expected_seconds`. Rank 0 writes at once.
pub fn begin_phase(name: &str, column: usize, n: usize, expected_seconds: f64) {
    if let Some(heart) = heart() {
        heart.beat(|beat| {
            beat.set_phase(name);
            (beat.column, beat.n, beat.expected_seconds) = (column, n, expected_seconds);
            beat.slow = None;
            true
        });
    }
}

/// Reports that `column` columns are eliminated; the next step is expected to take
/// `expected_seconds`. Rank 0 writes at most once per second, and at once if the phase was another
/// one before.
pub fn columns(column: usize, n: usize, expected_seconds: f64) {
    if let Some(heart) = heart() {
        heart.beat(|beat| {
            let is_other = beat.set_phase(FACTOR);
            (beat.column, beat.n, beat.expected_seconds) = (column, n, expected_seconds);
            is_other
        });
    }
}

/// Sets the words about slow ranks in the next records; `None` if no rank is slow.
pub fn slow(words: Option<&str>) {
    if let Some(heart) = heart() {
        heart.last.lock().expect("never held over a panic").slow = words.map(str::to_owned);
    }
}

/// Reports that a piece of a step is done, by any thread: some rows of a product or of the matrix.
/// Rank 0 writes at most once per second.
pub fn piece() {
    if let Some(heart) = heart() {
        heart.beat(|beat| {
            beat.pieces += 1;
            false
        });
    }
}

/// Reports that this rank has waited for `waited_seconds`, for its image or for a process of an
/// earlier start, and that `operations` of what it waits for are done; the present operation is
/// expected to take `expected_seconds`. Any rank writes this, because rank 0 may stand still for
/// the same reason; the more ranks there are, the less often each writes.
pub fn wait(waited_seconds: f64, operations: u64, expected_seconds: f64) {
    let Some(heart) = any_heart() else { return };
    let rank = if heart.speaks.load(Ordering::Relaxed) {
        0
    } else {
        launcher_rank::rank().unwrap_or(0).max(1)
    };
    let place = (rank, launcher_rank::size().unwrap_or(rank + 1));
    let mut signs = heart.wait.lock().expect("never held over a panic");
    if signs.is_due(waited_seconds, operations, place) {
        let mut beat = heart.last.lock().expect("never held over a panic").clone();
        beat.set_phase(WAIT);
        (beat.steps, beat.expected_seconds, beat.exit) = (operations, expected_seconds, None);
        beat.elapsed_seconds = heart.start.elapsed().as_secs_f64();
        write(&beat);
    }
}

/// Reports that the job enters the phase `name`, such as a step of the checkpoint protocol, or has
/// done a step of it if it is there already. Rank 0 writes at most once per second, and at once if
/// the phase is another one than before; the column stays.
pub fn enter_phase(name: &str) {
    if let Some(heart) = heart() {
        heart.beat(|beat| beat.enter_phase(name));
    }
}

/// Reports wrong numbers that a check has traced to a rank; all later records repeat them. Rank 0
/// writes at once.
pub fn charge(new: Charge) {
    if let Some(heart) = heart() {
        heart.beat(|beat| {
            beat.charge(new);
            true
        });
    }
}

/// Reports that the report is whole: the job ends with `exit`, whatever happens from now on. All
/// later records say so, too, and that standard output has `report_lines` lines of the report.
pub fn reported(exit: Exit, report_lines: u64) {
    if let Some(heart) = heart() {
        heart.last.lock().expect("never held over a panic").report_lines = Some(report_lines);
    }
    ends(REPORTED, exit);
}

/// Reports that the job has nothing left to do and ends with `exit`.
pub fn done(exit: Exit) {
    ends(DONE, exit);
}

fn ends(name: &str, exit: Exit) {
    if let Some(heart) = heart() {
        heart.beat(|beat| {
            beat.set_phase(name);
            beat.exit = Some(exit.code());
            true
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beat() -> Beat {
        Beat {
            token: "t1".into(),
            rank: 0,
            phase: "factor".into(),
            column: 512,
            steps: 0,
            pieces: 0,
            expected_seconds: 0.0,
            n: 4000,
            slow: None,
            elapsed_seconds: 1.25,
            exit: None,
            report_lines: None,
            charges: Vec::new(),
            keeps: None,
        }
    }

    #[test]
    fn steps_are_counted_and_told_once_a_second() {
        let mut beat = beat();
        assert!(
            beat.is_due(1.5, |beat| beat.enter_phase("encode")),
            "another part is told at once"
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
    fn charges_against_a_rank_are_summed_up_and_ranks_are_bounded() {
        let charge = |rank, rows| Charge {
            host: "n".into(),
            rank,
            checks: 1,
            rows,
            first_column: 8,
            ends_job: false,
        };
        let mut beat = beat();
        (0..100).for_each(|rank| beat.charge(charge(rank, 2)));
        beat.charge(Charge { first_column: 64, ends_job: true, ..charge(3, 5) });
        assert_eq!(beat.charges.len(), MOST_CHARGED);
        assert_eq!(beat.charges[3], Charge { checks: 2, ends_job: true, ..charge(3, 7) });
    }

    #[test]
    fn the_token_tells_the_number_of_ranks() {
        assert_eq!(ranks_in("63f-2a.3.64"), Some(64));
        assert_eq!((ranks_in("screen"), ranks_in("63f-2a.3")), (None, None));
    }

    #[test]
    fn a_record_is_found_behind_an_open_line_and_only_by_its_token() {
        let beat = beat();
        let line = format!("\r12% {}", beat.line());
        assert_eq!(Beat::find(&line, "t1"), Some(("\r12% ", beat)));
        assert_eq!(Beat::find(&line, "t2"), None);
        assert_eq!(Beat::find("@skt-hpl-beat@{\"token\":\"t1\"}", "t1"), None);
        assert_eq!(Beat::find("plain", "t1"), None);
    }
}
