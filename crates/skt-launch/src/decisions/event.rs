//! The events that the supervisor handles, and the actions that it requests.

use crate::SupervisorError;
use crate::hosts::Host;
use crate::program::RankEnd;
use crate::survey::{Inquiry, Survey};
use skt_checkpoint::heartbeat::Heartbeat;
use skt_host::process::Process;
use skt_terms::exit::Exit;

#[derive(Debug)]
pub(crate) enum Event {
    /// The supervisor begins.
    Begin,
    /// No launcher of an earlier supervisor is known; `swept` processes that one had
    /// started were found and ended.
    NoJob {
        swept: usize,
    },
    /// The launcher of an earlier supervisor is known: it runs, or has ended while no
    /// supervisor was there.
    Found {
        runs: bool,
    },
    /// The end of [`Action::Ask`].
    Answers(Survey),
    Launched(Process),
    Unstarted(SupervisorError),
    /// What the job has written of its report: whole lines, or any bytes of the user's program.
    Report(Vec<u8>),
    /// Why the report cannot be printed.
    Unprinted(String),
    /// A sign of life of the job.
    Heartbeat(Heartbeat),
    /// Another line of the job or its launcher; the start of one that is very long.
    Line(String),
    /// What the job writes cannot be read.
    Unread(SupervisorError),
    /// A rank that runs the user's program has ended.
    RankEnded(RankEnd),
    /// The launcher has ended. All that the job wrote came before.
    Ended {
        how: String,
        succeeded: bool,
    },
    /// The file of spares lists these nodes now.
    Spares(Vec<Host>),
    /// Time has passed; the user has asked this many times to stop.
    Tick {
        stops: usize,
    },
    /// For some time the supervisor has neither watched the job nor asked its nodes: it was stopped
    /// itself, perhaps with the job, or had to wait for a file system or for the reader of its
    /// output.
    Unwatched {
        seconds: f64,
    },
    Saved,
    /// The state or an event could not be written.
    Unsaved(SupervisorError),
}

#[derive(Debug)]
pub(crate) enum Action {
    /// Print to the user.
    Message(String),
    /// Print to the user and log it as an event of that kind.
    Report(&'static str, String),
    Print(Vec<u8>),
    /// Write the state.
    Save,
    /// Remove the files that only a running run needs.
    Tidy,
    /// Look for a job that an earlier supervisor has left.
    FindJob,
    /// Close the lines to all nodes: the next questions go by new ones.
    CloseLines,
    Ask(Inquiry),
    Launch(Start),
    /// Ask the launcher to end.
    Terminate,
    /// Kill the launcher and its process group.
    Kill,
    /// Write the JSON record of the run.
    Account,
    End(Result<Exit, SupervisorError>),
}

/// A start of the job.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Start {
    pub hosts: Vec<Host>,
    /// The value of `--resume`, if the user's arguments are not to decide.
    pub resume: Option<&'static str>,
    /// Whether nodes run ranks of lost ones as well as their own.
    pub shares: bool,
}
