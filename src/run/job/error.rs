//! Why a job could not run, and the exit code that follows.

use skt_terms::exit::Exit;

use crate::checkpoint::agree::Refusal;
use crate::checkpoint::protocol::CheckpointError;
use crate::checkpoint::store::StoreError;
use crate::hpl::comm::CommError;
use crate::hpl::pgesv::SolveError;
use crate::hpl::pgesv::abft::{self, AbftError};
use crate::machine::environment::blas::NoWorkSpace;
use crate::report::heartbeat;
use crate::run::protect::Settings;
use crate::run::protect::ledger::LedgerError;

/// Why a job could not run.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
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
    Abft(abft::Refusal),
    /// The job's time ends, as the ranks of the grid know.
    #[error("the time ends; the same command goes on")]
    TimeUp,
    /// The report could not be written.
    #[error("cannot write the report: {0}")]
    Report(#[from] std::io::Error),
    /// The BLAS could not allocate its work space.
    #[error(transparent)]
    Blas(#[from] NoWorkSpace),
    /// Threads could not be started.
    #[error("cannot start {threads} threads a rank: {why}; lower --threads or raise ulimit -u")]
    Threads {
        /// Threads a rank.
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

impl JobError {
    /// The sign of life for the supervisor, if this is a refusal that the supervisor can act on.
    pub(super) fn sign(&self) -> Option<&'static str> {
        let refusal = match self {
            Self::Abft(abft::Refusal::Scattered { .. }) => return None,
            Self::Abft(_) => return Some(heartbeat::REFUSED),
            _ if self.is_time_up() => return Some(heartbeat::TIME_UP),
            Self::Checkpoint(CheckpointError::Refused(refusal)) => refusal,
            _ => return None,
        };
        match refusal {
            // For these the supervisor decides by what it knows to have been there.
            Refusal::Unrecoverable { .. }
            | Refusal::Damaged { .. }
            | Refusal::RottenImages { .. }
            | Refusal::OfNoUse { .. }
            | Refusal::NothingFound => Some(heartbeat::REFUSED),
            Refusal::Changed { .. } => Some(heartbeat::CHANGED),
            _ => None,
        }
    }

    /// Whether the run has stopped because its time ends.
    pub fn is_time_up(&self) -> bool {
        matches!(self, Self::TimeUp | Self::Solve(SolveError::TimeUp { .. }))
    }

    /// Whether only this rank knows of the error, so that it must end the other ranks. Refusals are
    /// agreed upon: all ranks return them.
    pub fn is_known_here_alone(&self) -> bool {
        let is_agreed = matches!(
            self,
            Self::Checkpoint(CheckpointError::Refused(_))
                | Self::Abft(_)
                | Self::OtherTests { .. }
                | Self::Refused(_)
        );
        !is_agreed && !self.is_time_up()
    }

    /// The exit code of a job whose ranks all return this error.
    pub(super) fn exit(&self) -> Exit {
        let needs_all_ranks = matches!(
            self,
            Self::Checkpoint(CheckpointError::Refused(Refusal::NotBorne { .. }))
                | Self::Abft(abft::Refusal::Scattered { .. })
        );
        if needs_all_ranks || self.is_time_up() { Exit::Interrupted } else { Exit::BadInput }
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
    pub fn is_permanent(&self, settings: &Settings) -> bool {
        match self {
            Self::Store(why) | Self::Ledger(LedgerError::Store(why)) => why.is_permanent(),
            Self::Checkpoint(CheckpointError::Memory { source, .. }) => {
                let why = source.get_ref().and_then(|why| why.downcast_ref::<StoreError>());
                why.is_some_and(StoreError::is_permanent)
            }
            Self::Checkpoint(why) => !matches!(why, CheckpointError::Comm(_)),
            // Images are older than the wrong number.
            Self::Solve(SolveError::Wrong { .. }) => settings.levels.0.is_empty(),
            Self::Comm(_) | Self::Ledger(_) | Self::Solve(_) | Self::Report(_) | Self::TimeUp => {
                false
            }
            Self::Spec(_)
            | Self::Abft(_)
            | Self::OtherTests { .. }
            | Self::Refused(_)
            | Self::Blas(_)
            | Self::Threads { .. } => true,
        }
    }
}
