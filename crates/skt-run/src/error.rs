//! Why a job could not run, and what follows from that.

use std::fmt::Display;

use skt_host::exit::Exit;

use crate::heartbeat;
use skt_checkpoint::checkpoint::decide::Refusal;
use skt_checkpoint::checkpoint::protocol::CheckpointError;
use skt_comm::{Comm, CommError, collect};
use skt_host::launcher_rank::{self, Alone};
use skt_solver::blas::library::NoWorkSpace;
use skt_solver::pgesv::SolveError;
use skt_solver::pgesv::abft::{AbftError, AbftRefusal};
use skt_store::store::StoreError;

/// What an error means to the other ranks, to the exit code, and to a supervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Another rank is lost, or has failed because one is.
    Lost,
    /// This rank alone has failed, so it must end the others.
    Local {
        /// Whether the same command fails again until something else is changed.
        is_permanent: bool,
    },
    /// All ranks of the grid have the same error; those beyond it must be notified.
    Agreed {
        /// The exit code of the job.
        exit: Exit,
        /// The sign of life for a supervisor that can act on the error.
        sign: Option<&'static str>,
    },
}

impl End {
    /// All ranks refuse: the same command fails again.
    pub const REFUSED: Self = Self::Agreed { exit: Exit::BadInput, sign: None };
    /// The time of the job ends.
    pub const TIME_UP: Self =
        Self::Agreed { exit: Exit::Interrupted, sign: Some(heartbeat::TIME_UP) };
    /// All ranks stop, and the same command continues.
    pub(crate) const INTERRUPTED: Self = Self::Agreed { exit: Exit::Interrupted, sign: None };
    /// Nothing is left to continue from, unless the supervisor knows more of it.
    const NOTHING_LEFT: Self =
        Self::Agreed { exit: Exit::BadInput, sign: Some(heartbeat::REFUSED) };

    fn new(error: &CommError) -> Self {
        match error {
            CommError::Transport { .. } => Self::Lost,
            _ => Self::Local { is_permanent: false },
        }
    }

    fn from_store(error: &StoreError) -> Self {
        // `launch` probes the nodes and replaces one whose folder is gone.
        let is_probed = heartbeat::run().is_some() && error.is_of_the_folder();
        Self::Local { is_permanent: error.is_permanent() && !is_probed }
    }

    fn from_refusal(refusal: &Refusal) -> Self {
        match refusal {
            Refusal::CannotContinue { .. } => Self::INTERRUPTED,
            Refusal::Unrecoverable { .. }
            | Refusal::Damaged { .. }
            | Refusal::OfNoUse { .. }
            | Refusal::NothingFound { .. } => Self::NOTHING_LEFT,
            passing if passing.passes() => {
                Self::Agreed { exit: Exit::BadInput, sign: Some(heartbeat::CHANGED) }
            }
            _ => Self::REFUSED,
        }
    }
}

/// Why a job could not run.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub struct JobError {
    /// What follows from it.
    pub end: End,
    text: String,
}

impl JobError {
    /// The error with this text.
    pub fn new(end: End, text: impl Display) -> Self {
        Self { end, text: text.to_string() }
    }

    /// What all ranks refuse.
    pub fn refused(why: impl Display) -> Self {
        Self::new(End::REFUSED, why)
    }

    /// The error of rank 0's message `what`, which this rank cannot read.
    pub fn unread(what: &serde_json::Error) -> Self {
        let why = "do all ranks run the same program?";
        let text = format!("the run that rank 0 sent cannot be read: {what}; {why}");
        Self::new(End::Local { is_permanent: true }, text)
    }

    /// Whether this process prints the error: where all have the same, rank 0 alone does.
    pub fn needs_printing(&self) -> bool {
        !matches!(self.end, End::Agreed { .. }) || launcher_rank::is_first()
    }

    /// Whether only this rank knows of the error.
    pub fn is_local(&self) -> bool {
        !matches!(self.end, End::Agreed { .. })
    }
}

/// What this rank has `found`, if no rank has a reason to refuse; else the first reason, on all
/// ranks. Collective.
pub(crate) fn agreed<T>(comm: &Comm, found: Result<T, String>) -> Result<T, JobError> {
    let why = found.as_ref().err().map_or("", String::as_str);
    match collect::first_text(comm, why)? {
        Some(why) => Err(JobError::refused(why)),
        None => Ok(found.expect("no rank has a reason to refuse")),
    }
}

impl From<CommError> for JobError {
    fn from(error: CommError) -> Self {
        Self::new(End::new(&error), error)
    }
}

impl From<StoreError> for JobError {
    fn from(error: StoreError) -> Self {
        Self::new(End::from_store(&error), error)
    }
}

impl From<CheckpointError> for JobError {
    fn from(error: CheckpointError) -> Self {
        let end = match &error {
            CheckpointError::Comm(why) => End::new(why),
            CheckpointError::Refused(refusal) => End::from_refusal(refusal),
            CheckpointError::Memory { source, .. } => {
                let why = source.get_ref().and_then(|why| why.downcast_ref());
                why.map_or(End::Local { is_permanent: false }, End::from_store)
            }
            _ => End::Local { is_permanent: true },
        };
        Self::new(end, error)
    }
}

impl From<SolveError> for JobError {
    fn from(error: SolveError) -> Self {
        let end = match &error {
            SolveError::Comm(why) => End::new(why),
            SolveError::TimeUp(_) => End::TIME_UP,
            _ => End::Local { is_permanent: false },
        };
        Self::new(end, error)
    }
}

impl From<AbftError> for JobError {
    fn from(error: AbftError) -> Self {
        match error {
            AbftError::Solve(error) => error.into(),
            AbftError::Refused(why @ AbftRefusal::Scattered { .. }) => {
                Self::new(End::INTERRUPTED, why)
            }
            AbftError::Refused(why) => Self::new(End::NOTHING_LEFT, why),
        }
    }
}

impl From<NoWorkSpace> for JobError {
    fn from(error: NoWorkSpace) -> Self {
        Self::new(End::Local { is_permanent: true }, error)
    }
}

impl From<Alone> for JobError {
    fn from(error: Alone) -> Self {
        Self::refused(error)
    }
}
