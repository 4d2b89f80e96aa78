//! `skt-hpl rank`: a rank of `launch --program`. Not meant for people.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Args;

use skt_launch::program::{self, argument_from_text};

#[derive(Debug, Clone, Args)]
pub(crate) struct RankArgs {
    /// The program and its arguments, as texts of words
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

pub(crate) fn execute(args: &RankArgs) -> ExitCode {
    let words: Vec<OsString> = args.command.iter().map(|text| argument_from_text(text)).collect();
    let (program, arguments) = words.split_first().expect("clap requires one");
    program::run(program, arguments).into()
}
