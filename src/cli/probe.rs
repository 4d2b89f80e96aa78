//! `skt-hpl probe`: a node's answer to the supervisor. Not for people.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use crate::config::ConfigError;
use crate::report::output;
use crate::supervisor::line;
use crate::supervisor::links::Partner;
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
    /// A folder with images on this node's own disk; may be given several times
    #[arg(long)]
    images: Vec<PathBuf>,
    /// What to do here, at first; further purposes may come on standard input
    #[arg(long, value_parser = purposes())]
    purpose: Purpose,
    /// For the purpose `links`: a node to be reached, with its address or by its name; may be
    /// given several times
    #[arg(long = "partner", value_name = "NAME[=ADDRESS]")]
    partners: Vec<Partner>,
}

fn purposes() -> impl TypedValueParser<Value = Purpose> {
    PossibleValuesParser::new(Purpose::ALL.map(Purpose::name))
        .map(|word| Purpose::named(&word).expect("one of them"))
}

/// Answers one question after the other.
///
/// # Errors
/// An answer cannot be written.
pub fn execute(args: &ProbeArgs) -> Result<(), ConfigError> {
    // It is no rank, and tools that list processes shall show so.
    let _ = nix::sys::prctl::set_name(c"skt-hpl-probe");
    let started_at = probe::whereabouts();
    let first = std::iter::once((0, args.purpose, args.partners.clone()));
    for (number, purpose, partners) in first.chain(line::further_questions()) {
        if probe::whereabouts() != started_at {
            // A new line finds out what is there now.
            break;
        }
        let question = Question {
            run: args.run.clone(),
            run_id: args.run_id.clone(),
            store: args.store.clone(),
            image_folders: args.images.clone(),
            purpose,
            partners,
            number,
        };
        output::print(probe::answer(&question).line().as_bytes())?;
    }
    Ok(())
}
