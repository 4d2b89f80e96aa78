//! `skt-hpl probe`: a node's answer to the supervisor. Not for people.

use clap::Args;

use super::output;
use crate::config::ConfigError;
use crate::supervisor::probe::{self, Purpose, Question};

/// Flags of `probe`.
#[derive(Debug, Clone, Args)]
pub struct ProbeArgs {
    /// The run, as in its heartbeat
    #[arg(long)]
    run: String,
    /// Its name in the store
    #[arg(long)]
    run_id: String,
    /// The store
    #[arg(long)]
    store: String,
    /// Remove the run's segments
    #[arg(long, conflicts_with = "look")]
    clean: bool,
    /// Remove also what says that the run has ended
    #[arg(long, conflicts_with_all = ["look", "clean"])]
    forget: bool,
    /// Touch nothing
    #[arg(long)]
    look: bool,
}

/// Answers.
///
/// # Errors
/// The answer cannot be written.
pub fn execute(args: &ProbeArgs) -> Result<(), ConfigError> {
    let question = Question {
        run: args.run.clone(),
        run_id: args.run_id.clone(),
        store: args.store.clone(),
        purpose: match (args.clean, args.forget, args.look) {
            (true, ..) => Purpose::Clean,
            (_, true, _) => Purpose::Forget,
            (.., true) => Purpose::Look,
            _ => Purpose::Start,
        },
    };
    output::print(probe::answer(&question).line().as_bytes())
}
