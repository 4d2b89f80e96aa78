//! A heartbeat, as a line of standard error has it, and the phases that it names.

use serde::{Deserialize, Serialize};
use skt_checkpoint::sign::{INTERVAL_SECONDS, find_marked, marked_line};

pub use skt_checkpoint::sign::{
    CHANGED, CHECKPOINT, COMPUTE, DataLocation, ENV, MARK, OPEN, REPORTED, TIME_UP, WAIT,
};

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
    /// What the job does, see [`begin_phase`](super::begin_phase); [`DONE`] in its last record.
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
    /// The exit code of the job, once its report is whole, see [`reported`](super::reported).
    pub exit: Option<u8>,
    /// Number of lines of the report that this process has written to standard output, once the
    /// report is whole.
    #[serde(default)]
    pub report_lines: Option<u64>,
    /// The wrong numbers of this start that certainly come from a rank.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub charges: Vec<CorruptionReport>,
    /// Where a program of the user keeps its data, when it begins a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keeps: Option<DataLocation>,
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
    pub(super) fn set_phase(&mut self, phase: &str) -> bool {
        let is_other = self.phase != phase;
        if is_other {
            (self.phase, self.steps, self.expected_seconds) = (phase.to_owned(), 0, 0.0);
        }
        is_other
    }

    /// Changes the record. Returns whether it must be written, because `change` says so or the last
    /// record is old.
    pub(super) fn is_due(
        &mut self,
        elapsed_seconds: f64,
        change: impl FnOnce(&mut Self) -> bool,
    ) -> bool {
        let is_urgent = change(self);
        let is_due = is_urgent || elapsed_seconds - self.elapsed_seconds >= INTERVAL_SECONDS;
        if is_due {
            self.elapsed_seconds = elapsed_seconds;
        }
        is_due
    }

    /// Enters the phase `phase`, or counts a step of it; returns whether the phase is another one
    /// than before.
    pub(super) fn enter_phase(&mut self, phase: &str) -> bool {
        let is_other = self.set_phase(phase);
        self.steps += u64::from(!is_other);
        is_other
    }

    /// Adds a charge to those of the same rank.
    pub(super) fn charge(&mut self, new: CorruptionReport) {
        let is_full = self.charges.len() == MOST_CHARGED;
        let is_same = |old: &&mut CorruptionReport| (&old.host, old.rank) == (&new.host, new.rank);
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
        let charge = |rank, rows| CorruptionReport {
            host: "n".into(),
            rank,
            checks: 1,
            rows,
            first_column: 8,
            ends_job: false,
        };
        let mut beat = beat();
        (0..100).for_each(|rank| beat.charge(charge(rank, 2)));
        beat.charge(CorruptionReport { first_column: 64, ends_job: true, ..charge(3, 5) });
        assert_eq!(beat.charges.len(), MOST_CHARGED);
        assert_eq!(beat.charges[3], CorruptionReport { checks: 2, ends_job: true, ..charge(3, 7) });
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
