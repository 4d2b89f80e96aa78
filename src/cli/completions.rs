//! `skt-hpl completions`: shell completions, from the flags.

use clap::{Args, CommandFactory as _, ValueEnum};
use clap_complete::{Shell, generate};

use super::{Cli, output};
use crate::config::ConfigError;

/// The shells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ShellName {
    /// For example into ~/.local/share/bash-completion/completions/skt-hpl
    Bash,
    /// For example into a folder of $fpath, as _skt-hpl
    Zsh,
    /// For example into ~/.config/fish/completions/skt-hpl.fish
    Fish,
}

/// Flags of `completions`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell
    pub shell: ShellName,
}

/// Writes completions to standard output.
///
/// # Errors
/// They cannot be written.
pub fn execute(args: &CompletionsArgs) -> Result<(), ConfigError> {
    let shell = match args.shell {
        ShellName::Bash => Shell::Bash,
        ShellName::Zsh => Shell::Zsh,
        ShellName::Fish => Shell::Fish,
    };
    let mut text = Vec::new();
    generate(shell, &mut Cli::command(), "skt-hpl", &mut text);
    output::print(&text)
}
