//! `skt-hpl man`: writes the man pages, generated from the flags.

use std::path::PathBuf;

use clap::{Args, CommandFactory as _};

use super::Cli;
use crate::report::output;
use skt_config::ConfigError;

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Write skt-hpl.1 and a page for each subcommand into this folder [default: the main page to
    /// standard output]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

pub(crate) fn execute(args: &ManArgs) -> Result<(), ConfigError> {
    let fault = |file: String| move |source| ConfigError::Write { file, source };
    match &args.out {
        Some(folder) => std::fs::create_dir_all(folder)
            .and_then(|()| clap_mangen::generate_to(Cli::command(), folder))
            .map_err(fault(folder.display().to_string())),
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(Cli::command())
                .render(&mut page)
                .map_err(fault("man page".to_owned()))?;
            output::print(&String::from_utf8_lossy(&page))
        }
    }
}
