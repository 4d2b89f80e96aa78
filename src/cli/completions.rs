//! `skt-hpl completions`: writes shell completions, generated from the flags.

use clap::{Args, Command, CommandFactory as _, ValueEnum};
use clap_complete::{Shell, generate};

use super::Cli;
use crate::report::output;
use skt_config::ConfigError;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ShellName {
    /// For example into ~/.local/share/bash-completion/completions/skt-hpl
    Bash,
    /// For example into a folder of $fpath, as _skt-hpl
    Zsh,
    /// For example into ~/.config/fish/completions/skt-hpl.fish
    Fish,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub shell: ShellName,
}

pub(crate) fn execute(args: &CompletionsArgs) -> Result<(), ConfigError> {
    let shell = match args.shell {
        ShellName::Bash => Shell::Bash,
        ShellName::Zsh => Shell::Zsh,
        ShellName::Fish => Shell::Fish,
    };
    let mut text = Vec::new();
    generate(shell, &mut shown(&Cli::command()), "skt-hpl", &mut text);
    // `clap_complete` 4.6 defines the completions of a subcommand under another name than it looks
    // up, if the program's name has a dash.
    let text = String::from_utf8_lossy(&text).replace("skt__subcmd__hpl__", "skt__hpl__");
    output::print(&text)
}

/// The command line without what is hidden, because not all generators leave that out.
fn shown(cli: &Command) -> Command {
    Command::new("skt-hpl")
        .version(env!("CARGO_PKG_VERSION"))
        .disable_help_subcommand(true)
        .args(cli.get_arguments())
        .subcommands(cli.get_subcommands().filter(|command| !command.is_hide_set()))
}
