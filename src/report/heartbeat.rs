//! Signs of life of a job under `skt-hpl launch`: lines on rank 0's standard error,
//! which every launcher forwards, with a mark by which the supervisor finds and removes
//! them. Where a job outlives the loss of its rank 0, the first of the others speaks ([`speak`]).
//!
//! Off unless the environment has [`ENV`], whose value is in each record: records of
//! other jobs are ignored.

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Instant;

use serde::{Deserialize, Serialize};
use skt_terms::exit::Exit;

use crate::machine::launcher_rank;

/// The environment variable that switches it on.
pub const ENV: &str = "SKT_HPL_HEARTBEAT";
/// What a record starts with. No part of a report looks so.
pub const MARK: &str = "@skt-hpl-beat@";
/// The part of the work in which columns advance.
pub const FACTOR: &str = "factor";
/// The report is whole; what is left is to clear shared memory.
pub const REPORTED: &str = "reported";
/// All is done.
pub const DONE: &str = "done";
/// A process of an earlier start was still running, or had still to give up what it held.
pub const CHANGED: &str = "changed";
/// More is lost or damaged than can be rebuilt.
pub const REFUSED: &str = "refused";
/// A rank waits for its image, or for a process of an earlier start to give up what it holds. The
/// record is one of that rank, whichever it is, and says nothing of what the others do.
pub const WAIT: &str = "wait";
/// The time of the job ends, and what there is of the run is saved.
pub const TIME_UP: &str = "time-up";
/// Least seconds between records of the same phase.
const INTERVAL_SECONDS: f64 = 1.0;
/// Ranks that wait write so many records a second at most, all together; each
/// begins later than the one before it by as many seconds as one of them takes.
const WAIT_RECORDS_A_SECOND: f64 = 100.0;

/// A sign of life.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Beat {
    /// The value of [`ENV`].
    pub token: String,
    /// The rank that writes the record.
    pub rank: usize,
    /// What the job does, see [`phase`]; [`DONE`] in its last record.
    pub phase: String,
    /// Columns that are eliminated.
    pub column: usize,
    /// Steps of the checkpoint protocol since the phase began: a slow one is not a hung one.
    #[serde(default)]
    pub steps: u64,
    /// Pieces of work that are done within the steps or columns: a long one is not a hung one.
    #[serde(default)]
    pub pieces: u64,
    /// The most that the present step is thought to take, in seconds, by what was measured in
    /// this start; 0 where nothing was.
    #[serde(default)]
    pub expected_seconds: f64,
    /// Order of the matrix.
    pub n: usize,
    /// Seconds since the process started to beat.
    pub elapsed_seconds: f64,
    /// Once its report is whole, see [`reported`]: how the job ends.
    pub exit: Option<u8>,
    /// Then also the lines of the report that this process has written to standard output.
    #[serde(default)]
    pub report_lines: Option<u64>,
}

impl Beat {
    /// The record as a line, its end included.
    pub fn line(&self) -> String {
        let json = serde_json::to_string(self).expect("text and numbers become JSON");
        format!("{MARK}{json}\n")
    }

    /// Turns to a part of the work, if it is another one: whether it is.
    fn turn_to(&mut self, phase: &str) -> bool {
        let is_other = self.phase != phase;
        if is_other {
            (self.phase, self.steps, self.expected_seconds) = (phase.to_owned(), 0, 0.0);
        }
        is_other
    }

    /// Changes the record. Whether it is to be written, since `change` says so or the last one
    /// is old.
    fn is_due(&mut self, elapsed_seconds: f64, change: impl FnOnce(&mut Self) -> bool) -> bool {
        let is_urgent = change(self);
        let is_due = is_urgent || elapsed_seconds - self.elapsed_seconds >= INTERVAL_SECONDS;
        if is_due {
            self.elapsed_seconds = elapsed_seconds;
        }
        is_due
    }

    /// A step of the part `phase`: whether the part is another than before.
    fn step(&mut self, phase: &str) -> bool {
        let is_other = self.turn_to(phase);
        self.steps += u64::from(!is_other);
        is_other
    }

    /// The record in a line, and the text before it: a line of progress may
    /// have been left open. A record of a job other than `token`'s is none.
    pub fn find<'a>(line: &'a str, token: &str) -> Option<(&'a str, Beat)> {
        let (before, json) = line.split_once(MARK)?;
        let beat: Beat = serde_json::from_str(json.trim_end()).ok()?;
        (beat.token == token).then_some((before, beat))
    }
}

struct Heart {
    token: String,
    start: Instant,
    /// Whether this process is the one that speaks.
    speaks: AtomicBool,
    last: Mutex<Beat>,
    wait: Mutex<WaitSigns>,
}

/// What this process has told of its wait.
#[derive(Debug, Default)]
struct WaitSigns {
    /// Seconds of the wait and operations of the last record.
    told: Option<(f64, u64)>,
    /// Seconds of the wait when it was looked at last.
    waited_seconds: f64,
}

impl WaitSigns {
    /// Whether a record is to be written by rank `rank` of `ranks` when it has waited for so long
    /// and so many operations are done. Rank 0 speaks at once; the others, of whom there may be
    /// many thousands, after a second, one after the other. A wait in which nothing happens is
    /// told of once.
    fn is_due(
        &mut self,
        waited_seconds: f64,
        operations: u64,
        (rank, ranks): (usize, usize),
    ) -> bool {
        if waited_seconds < self.waited_seconds {
            self.told = None;
        }
        self.waited_seconds = waited_seconds;
        let of_all = |ranks: usize| ranks as f64 / WAIT_RECORDS_A_SECOND;
        let is_due = match self.told {
            None if rank == 0 => true,
            None => waited_seconds >= INTERVAL_SECONDS + of_all(rank),
            Some((told_seconds, told)) => {
                let interval_seconds = INTERVAL_SECONDS.max(of_all(ranks));
                told != operations && waited_seconds - told_seconds >= interval_seconds
            }
        };
        if is_due {
            self.told = Some((waited_seconds, operations));
        }
        is_due
    }
}

/// That of the process that speaks.
fn heart() -> Option<&'static Heart> {
    any_heart().filter(|heart| heart.speaks.load(Ordering::Relaxed))
}

fn any_heart() -> Option<&'static Heart> {
    static HEART: OnceLock<Option<Heart>> = OnceLock::new();
    HEART
        .get_or_init(|| {
            let token = std::env::var(ENV).ok()?;
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
                elapsed_seconds: f64::NEG_INFINITY,
                exit: None,
                report_lines: None,
            };
            let (start, speaks) = (Instant::now(), AtomicBool::new(rank == 0));
            let (last, wait) = (Mutex::new(last), Mutex::default());
            Some(Heart { token, start, speaks, last, wait })
        })
        .as_ref()
}

impl Heart {
    /// Changes the record, and writes it if `change` says so, else once in an interval.
    fn beat(&self, change: impl FnOnce(&mut Beat) -> bool) {
        let mut last = self.last.lock().expect("never held over a panic");
        if last.is_due(self.start.elapsed().as_secs_f64(), change) {
            debug_assert_eq!(last.token, self.token);
            write(&last);
        }
    }
}

/// One write a line; the supervisor deals with a closed pipe.
fn write(beat: &Beat) {
    let _ = std::io::stderr().lock().write_all(beat.line().as_bytes());
}

/// The run whose supervisor has started this job, if one has.
pub fn run() -> Option<String> {
    let heart = any_heart()?;
    heart.token.rsplit_once('.').map(|(run, _)| run.to_owned())
}

/// Whether this process is the first of those that work on the job. Until it is known, the
/// launcher's rank 0 speaks.
pub fn speak(is_first: bool) {
    if let Some(heart) = any_heart() {
        heart.speaks.store(is_first, Ordering::Relaxed);
    }
}

/// The job starts with a part of its work, on a matrix of order `n`, with
/// `column` columns eliminated; its first step is thought to take `expected_seconds`. Rank 0
/// writes at once.
pub fn phase(name: &str, column: usize, n: usize, expected_seconds: f64) {
    if let Some(heart) = heart() {
        heart.beat(|beat| {
            beat.turn_to(name);
            (beat.column, beat.n, beat.expected_seconds) = (column, n, expected_seconds);
            true
        });
    }
}

/// `column` columns are eliminated; the next step is thought to take `expected_seconds`. Rank 0
/// writes at most once a second, and at once when it did something else before.
pub fn columns(column: usize, n: usize, expected_seconds: f64) {
    if let Some(heart) = heart() {
        heart.beat(|beat| {
            let is_other = beat.turn_to(FACTOR);
            (beat.column, beat.n, beat.expected_seconds) = (column, n, expected_seconds);
            is_other
        });
    }
}

/// A piece of a step is done, by any thread: some rows of a product or of the matrix. Rank 0
/// writes at most once a second.
pub fn piece() {
    if let Some(heart) = heart() {
        heart.beat(|beat| {
            beat.pieces += 1;
            false
        });
    }
}

/// This rank has waited for so long, for its image or for a process of an earlier start, and so
/// many operations are done of what it waits for; the present one is thought to take
/// `expected_seconds`. Any rank writes that, as rank 0 may stand still because of it; the more
/// ranks, the less often each.
pub fn wait(waited_seconds: f64, operations: u64, expected_seconds: f64) {
    let Some(heart) = any_heart() else { return };
    let rank = match heart.speaks.load(Ordering::Relaxed) {
        true => 0,
        false => launcher_rank::rank().unwrap_or(0).max(1),
    };
    let place = (rank, launcher_rank::size().unwrap_or(rank + 1));
    let mut signs = heart.wait.lock().expect("never held over a panic");
    if signs.is_due(waited_seconds, operations, place) {
        let mut beat = heart.last.lock().expect("never held over a panic").clone();
        beat.turn_to(WAIT);
        (beat.steps, beat.expected_seconds, beat.exit) = (operations, expected_seconds, None);
        beat.elapsed_seconds = heart.start.elapsed().as_secs_f64();
        write(&beat);
    }
}

/// A step of the checkpoint protocol. Rank 0 writes at most once a second, and at once when
/// the step has another name than before; the column stays what it is.
pub fn step(name: &str) {
    if let Some(heart) = heart() {
        heart.beat(|beat| beat.step(name));
    }
}

/// The report is whole: whatever happens from now on, this is how the job ends.
/// All later records say so, too, and that standard output has so many lines of it.
pub fn reported(exit: Exit, report_lines: u64) {
    if let Some(heart) = heart() {
        heart.last.lock().expect("never held over a panic").report_lines = Some(report_lines);
    }
    ends(REPORTED, exit);
}

/// The job ends as it wants to end, and has nothing left to do.
pub fn done(exit: Exit) {
    ends(DONE, exit);
}

fn ends(name: &str, exit: Exit) {
    if let Some(heart) = heart() {
        heart.beat(|beat| {
            beat.turn_to(name);
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
            elapsed_seconds: 1.25,
            exit: None,
            report_lines: None,
        }
    }

    #[test]
    fn ranks_tell_of_their_waits_as_often_as_the_launcher_can_bear() {
        let mut signs = WaitSigns::default();
        assert!(signs.is_due(0.0, 1, (0, 2)), "rank 0 at once");
        assert!(!signs.is_due(5.0, 1, (0, 2)), "a wait in which nothing happens");
        assert!(!signs.is_due(0.9, 1, (1, 2)), "another wait");
        assert!(signs.is_due(1.1, 1, (1, 2)));
        assert!(!signs.is_due(1.5, 2, (1, 2)) && signs.is_due(2.2, 2, (1, 2)));
        // 100 a second of 10,000 ranks.
        let place = (5000, 10_000);
        let due = (0..600u32).filter(|&second| signs.is_due(second.into(), second.into(), place));
        assert_eq!(due.collect::<Vec<_>>(), [51, 151, 251, 351, 451, 551]);
    }

    #[test]
    fn steps_are_counted_and_told_once_a_second() {
        let mut beat = beat();
        assert!(beat.is_due(1.5, |beat| beat.step("encode")), "another part is told at once");
        for step in 1..=10 {
            assert!(!beat.is_due(2.4, |beat| beat.step("encode")));
            assert_eq!(beat.steps, step);
        }
        assert!(beat.is_due(2.5, |beat| beat.step("encode")));
        assert_eq!((beat.steps, beat.elapsed_seconds), (11, 2.5));
        assert!(beat.is_due(2.6, |beat| beat.turn_to("factor")));
        assert_eq!(beat.steps, 0);
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
