//! The man pages and the completions, generated from the flags.

use std::fs;
use std::path::PathBuf;

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use super::{Cli, output};
use crate::StudyError;

#[derive(Debug, Args)]
pub(super) struct ManArgs {
    /// Folder for the pages
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

#[derive(Debug, Args)]
pub(super) struct CompletionsArgs {
    /// The shell that reads them
    shell: Shell,
}

pub(super) fn write_man(args: &ManArgs) -> Result<(), StudyError> {
    fs::create_dir_all(&args.out)
        .and_then(|()| clap_mangen::generate_to(Cli::command(), &args.out))
        .map_err(StudyError::file("write", &args.out))
}

pub(super) fn write_completions(args: &CompletionsArgs) -> Result<(), StudyError> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "skt-studies", &mut text);
    // `clap_complete` 4.6 defines the completions of a subcommand under another name than it looks
    // up, if the program's name has a dash.
    let text = String::from_utf8_lossy(&text).replace("skt__subcmd__studies__", "skt__studies__");
    output::print(&text)
}
