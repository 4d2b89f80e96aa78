//! Which nodes of an allocation are bad: slow, wrong, on a slow link, or out of reach.
//!
//! All nodes do the same work, so each is the measure of the others. [`run`] has them solve the
//! same system, each alone and then in pairs of a tournament, and collects
//! [`results`]. [`verdict`] is pure: from results to one verdict a host and a list of slow links;
//! [`blame`](skt_health::slow::blame) finds which member of a pair is at fault. [`report`] shows
//! the verdicts. [`reach`] probes a list of hosts before ranks run there, [`screening`] starts the
//! ranks.
#![deny(unsafe_op_in_unsafe_fn)]
#![warn(unreachable_pub)]

pub mod limit;
mod messages;
mod node;
mod probe;
pub mod reach;
pub mod report;
pub mod results;
pub mod run;
pub mod screening;
pub mod verdict;

#[cfg(test)]
mod simulated;

use std::error::Error;

use skt_host::exit::Exit;
use skt_host::messages::print;
use skt_run::job::JobError;

/// Why a screening, or `doctor`, ends without a result.
#[derive(Debug)]
pub struct Failed {
    text: String,
    /// Whether this process prints the text, see [`JobError::needs_printing`].
    needs_printing: bool,
}

impl Failed {
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), needs_printing: true }
    }

    /// Prints the error. Returns the exit code.
    pub fn report(self) -> u8 {
        if self.needs_printing {
            print(format_args!("error: {}", self.text));
        }
        Exit::BadInput.code()
    }
}

impl<E: Error + 'static> From<E> for Failed {
    fn from(why: E) -> Self {
        let job = (&why as &dyn Error).downcast_ref::<JobError>();
        Self { needs_printing: job.is_none_or(JobError::needs_printing), text: why.to_string() }
    }
}

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}
