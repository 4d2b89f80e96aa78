//! Why a job could not run, and the exit code that follows.

use skt_terms::exit::Exit;

use crate::heartbeat;
use crate::protect::Wrong;
use crate::protect::abft::Unsolved;
use crate::protect::ledger::LedgerError;
use skt_checkpoint::checkpoint::agree::Refusal;
use skt_checkpoint::checkpoint::protocol::CheckpointError;
use skt_comm::CommError;
use skt_host::launcher_rank::{self, Alone};
use skt_solver::blas::library::NoWorkSpace;
use skt_solver::pgesv::SolveError;
use skt_solver::pgesv::abft::{self, AbftError};
use skt_store::store::StoreError;

/// Why a job could not run.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// MPI does not connect the processes that were started.
    #[error(transparent)]
    Alone(#[from] Alone),
    /// A rank could not be reached.
    #[error(transparent)]
    Comm(#[from] CommError),
    /// Rank 0 sent data that describes no run.
    #[error("the run that rank 0 sent cannot be read: {0}; do all ranks run the same program?")]
    Spec(String),
    /// The checkpoints failed.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The store of the checkpoints failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The ledger of earlier starts could not be used.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The ledger has results of other tests.
    #[error(
        "run {run} was started with other settings: the result that an earlier start kept for test \
         {test} is of another test. Restart with the settings of that run, name this one with \
         --run-id, or start from the beginning with --resume never"
    )]
    OtherTests {
        /// Name of the run.
        run: String,
        /// Number of the test, from 1.
        test: usize,
    },
    /// The job does not fit its hosts, or another job holds what it needs. All ranks return this
    /// error.
    #[error("{0}")]
    Refused(String),
    /// The solver stopped for a reason that is not in the matrix.
    #[error(transparent)]
    Solve(#[from] SolveError),
    /// Too many ranks are lost for the checksums.
    #[error("{0}")]
    Abft(abft::AbftRefusal),
    /// Numbers of the matrix are wrong, and have not been corrected.
    #[error(transparent)]
    Wrong(Wrong),
    /// The ranks of the grid have ended the job, and have sent its exit code.
    #[error("the ranks of the grid have ended the run")]
    Ended(Exit),
    /// The report could not be written.
    #[error("cannot write the report: {0}")]
    Report(#[from] std::io::Error),
    /// The BLAS could not allocate its work space.
    #[error(transparent)]
    Blas(#[from] NoWorkSpace),
    /// Threads could not be started.
    #[error("cannot start {threads} threads a rank: {why}; lower --threads or raise ulimit -u")]
    Threads {
        /// Threads of each rank.
        threads: usize,
        /// The system's error.
        why: std::io::Error,
    },
}

impl From<AbftError> for JobError {
    fn from(error: AbftError) -> Self {
        match error {
            AbftError::Solve(error) => Self::Solve(error),
            AbftError::Refused(refusal) => Self::Abft(refusal),
        }
    }
}

impl From<Unsolved> for JobError {
    fn from(error: Unsolved) -> Self {
        match error {
            Unsolved::Wrong(wrong) => Self::Wrong(wrong),
            Unsolved::Other(error) => error.into(),
        }
    }
}

impl JobError {
    /// Whether this process prints the error: where all have the same, rank 0 alone does.
    pub fn needs_printing(&self) -> bool {
        !matches!(self, Self::Alone(_)) || launcher_rank::is_first()
    }

    /// The sign of life for the supervisor, if this is a refusal that the supervisor can act on.
    pub(super) fn sign(&self) -> Option<&'static str> {
        let refusal = match self {
            Self::Abft(abft::AbftRefusal::Scattered { .. }) => return None,
            Self::Abft(_) => return Some(heartbeat::REFUSED),
            // The run cannot continue from anything.
            Self::Wrong(Wrong { goes_back: false, .. }) => return Some(heartbeat::REFUSED),
            _ if self.is_time_up() => return Some(heartbeat::TIME_UP),
            Self::Checkpoint(CheckpointError::Refused(refusal)) => refusal,
            _ => return None,
        };
        match refusal {
            // What these mean depends on what the run had in memory, which the supervisor knows.
            Refusal::Unrecoverable { .. }
            | Refusal::Damaged { .. }
            | Refusal::RottenImages { .. }
            | Refusal::OfNoUse { .. }
            | Refusal::NothingFound { .. } => Some(heartbeat::REFUSED),
            passing if passing.passes() => Some(heartbeat::CHANGED),
            _ => None,
        }
    }

    /// Whether the run has stopped because its time ends.
    pub(crate) fn is_time_up(&self) -> bool {
        matches!(self, Self::Solve(SolveError::TimeUp(_)))
    }

    /// Whether only this rank knows of the error, so that it must end the other ranks. Refusals are
    /// agreed upon: all ranks of the grid return them, and those beyond it must be notified.
    pub fn is_local(&self) -> bool {
        let is_agreed = match self {
            Self::Checkpoint(CheckpointError::Refused(_))
            | Self::Abft(_)
            | Self::OtherTests { .. }
            | Self::Refused(_)
            | Self::Ended(_) => true,
            Self::Wrong(wrong) => wrong.is_known_to_all,
            _ => self.is_time_up(),
        };
        !is_agreed
    }

    /// The exit code of a job whose ranks all return this error.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Ended(exit) => *exit,
            Self::Checkpoint(CheckpointError::Refused(Refusal::CannotContinue { .. }))
            | Self::Abft(abft::AbftRefusal::Scattered { .. })
            | Self::Wrong(Wrong { goes_back: true, .. }) => Exit::Interrupted,
            _ if self.is_time_up() => Exit::Interrupted,
            _ => Exit::BadInput,
        }
    }

    /// Whether another rank is lost, or has failed because one is.
    pub fn is_loss(&self) -> bool {
        let why = match self {
            Self::Comm(why)
            | Self::Checkpoint(CheckpointError::Comm(why))
            | Self::Ledger(LedgerError::Comm(why))
            | Self::Solve(SolveError::Comm(why)) => why,
            _ => return false,
        };
        matches!(why, CommError::Transport { .. })
    }

    /// Whether the same command fails again until something else is changed: a limit or a setting.
    /// `launch`, if it watches this job, probes the nodes and replaces one whose folder is gone.
    pub fn is_permanent(&self, is_watched: bool) -> bool {
        let is_for_good =
            |why: &StoreError| why.is_permanent() && !(is_watched && why.is_of_the_folder());
        match self {
            Self::Store(why) | Self::Ledger(LedgerError::Store(why)) => is_for_good(why),
            Self::Checkpoint(CheckpointError::Memory { source, .. }) => {
                let why = source.get_ref().and_then(|why| why.downcast_ref::<StoreError>());
                why.is_some_and(is_for_good)
            }
            Self::Checkpoint(why) => !matches!(why, CheckpointError::Comm(_)),
            Self::Wrong(wrong) => !wrong.goes_back,
            Self::Comm(_) | Self::Ledger(_) | Self::Solve(_) | Self::Report(_) | Self::Ended(_) => {
                false
            }
            Self::Alone(_)
            | Self::Spec(_)
            | Self::Abft(_)
            | Self::OtherTests { .. }
            | Self::Refused(_)
            | Self::Blas(_)
            | Self::Threads { .. } => true,
        }
    }
}
