//! Not meant for people: `skt-hpl probe` answers the supervisor's questions on a node, and
//! `skt-hpl rank` is a rank of `launch --program`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::flags::one_of;
use crate::report::output;
use skt_checkpoint::heartbeat::DataLocation;
use skt_config::ConfigError;
use skt_launch::line;
use skt_launch::links::Partner;
use skt_launch::probe::{self, Purpose, Question};
use skt_launch::program::{self, argument_from_text};

#[derive(Debug, Clone, Args)]
pub(crate) struct ProbeArgs {
    /// The run, as in its heartbeat token
    #[arg(long)]
    run: String,
    /// The run's name in the store
    #[arg(long, requires = "store")]
    run_id: Option<String>,
    /// The store of the segments
    #[arg(long, requires = "run_id")]
    store: Option<String>,
    /// The program that the ranks run, if it is not this one, as the text of a word
    #[arg(long)]
    program: Option<PathBuf>,
    /// A folder with images on this node's own disk; may be repeated
    #[arg(long)]
    images: Vec<PathBuf>,
    /// What to do first; further purposes may come on standard input
    #[arg(long, value_parser = one_of(Purpose::NAMES, Purpose::named))]
    purpose: Purpose,
    /// For the purpose `links`: a node to reach, by its address or else its name; may be repeated
    #[arg(long = "partner", value_name = "NAME[=ADDRESS]")]
    partners: Vec<Partner>,
}

pub(crate) fn execute(args: &ProbeArgs) -> Result<(), ConfigError> {
    // This process is no rank, and lists of processes should show so.
    let _ = nix::sys::prctl::set_name(c"skt-hpl-probe");
    let started_at = probe::whereabouts();
    let data = args.run_id.clone().zip(args.store.clone());
    let keeps =
        data.map(|(run_id, store)| DataLocation { run_id, store, images: args.images.clone() });
    let first = std::iter::once((0, args.purpose, args.partners.clone()));
    for (number, purpose, partners) in first.chain(line::further_questions()) {
        if probe::whereabouts() != started_at {
            // The supervisor opens a new line, which starts the program that is there now.
            break;
        }
        let question = Question {
            run: args.run.clone(),
            keeps: keeps.clone(),
            program: args.program.as_ref().map(|text| argument_from_text(text.as_os_str()).into()),
            purpose,
            partners,
            number,
        };
        output::print(&probe::answer(&question).line())?;
    }
    Ok(())
}

#[derive(Debug, Clone, Args)]
pub(crate) struct RankArgs {
    /// The program and its arguments, as texts of words
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

pub(crate) fn execute_rank(args: &RankArgs) -> ExitCode {
    let words: Vec<OsString> = args.command.iter().map(|text| argument_from_text(text)).collect();
    let (program, arguments) = words.split_first().expect("clap requires one");
    program::run(program, arguments).into()
}
