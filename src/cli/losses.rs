//! `--on-loss recover` and `replace`: a job that outlives the loss of ranks.
//!
//! An *attempt* is all that a start of the job does, from distributing the configuration to
//! clearing up, on its own communicator. The matrix and the words that record the progress are
//! in memory that outlives a process, so a later attempt finds them just as a start does. A loss
//! ends the attempt on all ranks, and the surviving ranks begin the next one:
//!
//! ```text
//! attempt     a call fails: its communicator is revoked, so that all further calls on it fail on
//!             all ranks; memory and locks are released on the way out
//! agree       all ranks agree how the attempt ended, and so do the same next
//! shrink      a communicator of the surviving ranks, in their order
//! attempt     recover: the first ranks, as many as the grid has, take its positions in order, and
//!             the others are spare. replace: each rank keeps its position, and a checksum column
//!             takes the position of the lost process column
//! ```

use std::time::Instant;

use serde::{Deserialize, Serialize};
use skt_host::exit::Exit;

use skt_comm::Comm;
use skt_comm::mpi::{MpiWorld, Ulfm};
use skt_config::{ConfigText, RunSpec, TestSpec};
use skt_host::{affinity, messages};
use skt_run::job::{self, End, Finished, JobError};
use skt_run::protect::{OnLoss, RankInRun, Settings};

/// What rank 0 sends to all ranks as the job to run.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct JobRequest {
    pub spec: RunSpec,
    pub settings: Settings,
    pub configuration: Option<ConfigText>,
}

#[derive(Default)]
pub(super) struct KeptJob {
    /// The run; `None` before rank 0 has distributed it.
    pub request: Option<JobRequest>,
    /// When this process noticed the last loss that it has survived.
    pub lost_at: Option<Instant>,
    pub rank_in_run: RankInRun,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AttemptEnd {
    /// A rank is lost, and the report is not whole, as far as this rank knows.
    Lost,
    Ended,
    /// The report is whole, and a rank was lost before all data was removed.
    Left(Exit),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AfterAttempt {
    Again,
    End,
    RemoveRest(Exit),
}

/// Bits of the word that ranks agree on; the agreement keeps a bit if all ranks have set it.
const ENDED: i32 = 1;
const NOT_REPORTED: i32 = 2;
const EXIT_SHIFT: u32 = 8;
const EXIT_BITS: i32 = 0xff;

impl AttemptEnd {
    fn from_attempt(attempt: &Result<Finished, JobError>) -> Self {
        match attempt {
            Err(error) if error.end == End::Lost => Self::Lost,
            Ok(Finished { exit, is_reported: true, is_cleared: false }) => Self::Left(*exit),
            _ => Self::Ended,
        }
    }

    fn word(self) -> i32 {
        let (bits, exit) = match self {
            Self::Lost => (NOT_REPORTED, EXIT_BITS),
            // A rank that has ended knows that all others have, or will be notified of a loss.
            Self::Ended => (ENDED | NOT_REPORTED, EXIT_BITS),
            Self::Left(exit) => (0, EXIT_BITS & !i32::from(exit.code())),
        };
        bits | exit << EXIT_SHIFT
    }
}

impl AfterAttempt {
    fn from_agreed(all: i32) -> Self {
        if all & ENDED != 0 {
            Self::End
        } else if all & NOT_REPORTED != 0 {
            Self::Again
        } else {
            let exit = EXIT_BITS & !(all >> EXIT_SHIFT);
            Self::RemoveRest(Exit::from_code(exit as u8))
        }
    }
}

/// Runs attempts of the benchmark, which `run_on` makes, on the surviving ranks until one comes to
/// its end.
pub(crate) fn outlive(
    ulfm: &Ulfm,
    mut run_on: impl FnMut(&Comm, &mut KeptJob) -> Result<Finished, JobError>,
) -> Result<Exit, JobError> {
    let mask = affinity::current_mask().ok();
    let (mut job, mut ranks) = (KeptJob::default(), usize::MAX);
    loop {
        let comm = ulfm.survivors();
        if comm.size() == ranks {
            // All ranks are there, so all of them see this.
            messages::print(format_args!("error: MPI has failed, and no rank is lost"));
            return Ok(Exit::Interrupted);
        }
        ranks = comm.size();
        let attempt = run_on(&comm, &mut job);
        let is_resumed = job.lost_at.replace(Instant::now()).is_some();
        match AfterAttempt::from_agreed(ulfm.agree(AttemptEnd::from_attempt(&attempt).word())) {
            AfterAttempt::End => return attempt.map(|finished| exit_after(&finished, is_resumed)),
            AfterAttempt::RemoveRest(exit) => {
                let JobRequest { spec, settings, .. } =
                    job.request.as_ref().expect("the run of a whole report");
                job::remove_rest(spec, settings)?;
                return Ok(exit);
            }
            // The next attempt decides again where threads run.
            AfterAttempt::Again => {
                let _ = mask.as_ref().map(|mask| affinity::set_mask(mask));
            }
        }
    }
}

/// The exit code of a job whose last attempt came to its end. If a later attempt refused to run
/// after a loss, for instance because the lost rank still holds memory, the next start may run: the
/// input is that of the earlier attempt, which ran.
fn exit_after(finished: &Finished, is_resumed: bool) -> Exit {
    match finished {
        Finished { exit: Exit::BadInput, is_reported: false, .. } if is_resumed => {
            Exit::Interrupted
        }
        finished => finished.exit,
    }
}

/// Whether the job can run on the ranks of `comm`, with the same result on all of them; if not, the
/// exit code. `is_resumed` means that these ranks are what a loss has left of a job.
pub(crate) fn has_ranks(
    world: &MpiWorld,
    comm: &Comm,
    spec: &RunSpec,
    settings: &Settings,
    is_resumed: bool,
) -> Result<(), Exit> {
    let print = |text: String| {
        if comm.rank() == 0 {
            messages::print(format_args!("{text}"));
        }
    };
    if settings.on_loss == OnLoss::Restart {
        return Ok(());
    }
    let replaces = settings.on_loss == OnLoss::Replace;
    let how = if replaces { "replace" } else { "recover" };
    if let Err(why) = world.ulfm() {
        print(format!("error: --on-loss {how}: {why}"));
        return Err(Exit::BadInput);
    }
    let whole = spec.tests().iter().map(TestSpec::ranks).max().unwrap_or(0);
    // Any process column may be missing.
    let without = spec.tests().iter().map(|test| test.p * test.q).max().unwrap_or(0);
    let needed = if replaces && is_resumed { without } else { whole };
    let Some(spares) = comm.size().checked_sub(needed) else {
        print(format!(
            "error: a rank is lost, {} are left, and the grid needs {needed}: start the same command \
             again",
            comm.size()
        ));
        return Err(Exit::Interrupted);
    };
    if is_resumed {
        print(format!("a rank is lost: the others continue, {spares} spare rank(s) are left"));
    } else if replaces && spares > 0 {
        print(format!(
            "error: --on-loss replace has no use for spare ranks: start the job on {needed}, or \
             take recover"
        ));
        return Err(Exit::BadInput);
    } else if !replaces && spares == 0 {
        print(format!(
            "warning: --on-loss recover: the grid needs all {needed} ranks: a loss ends the job"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(ends: &[AttemptEnd]) -> AfterAttempt {
        AfterAttempt::from_agreed(ends.iter().fold(-1, |all, end| all & end.word()))
    }

    #[test]
    fn what_ran_before_a_loss_may_run_again() {
        let ended = |exit, is_reported| Finished { exit, is_reported, is_cleared: is_reported };
        for (finished, is_resumed, exit) in [
            (ended(Exit::BadInput, false), true, Exit::Interrupted),
            (ended(Exit::BadInput, false), false, Exit::BadInput),
            // The report names the tests that were skipped.
            (ended(Exit::BadInput, true), true, Exit::BadInput),
            (ended(Exit::ResidualFailed, true), true, Exit::ResidualFailed),
        ] {
            assert_eq!(exit_after(&finished, is_resumed), exit, "{finished:?}, {is_resumed}");
        }
    }

    #[test]
    fn one_noticed_loss_starts_again_unless_the_report_is_complete() {
        use AttemptEnd::{Ended, Left, Lost};
        assert_eq!(verdict(&[Ended, Ended]), AfterAttempt::End);
        assert_eq!(verdict(&[Ended, Lost, Ended]), AfterAttempt::Again);
        assert_eq!(verdict(&[Lost, Lost]), AfterAttempt::Again);
        for exit in [Exit::Passed, Exit::ResidualFailed, Exit::BadInput] {
            for others in [Ended, Lost, Left(exit)] {
                assert_eq!(verdict(&[others, Left(exit), Lost]), AfterAttempt::RemoveRest(exit));
            }
        }
    }
}
