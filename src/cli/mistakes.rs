//! Suggestions for mistakes in a command line that clap alone does not explain.

use std::ffi::OsString;

use clap::Command;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, Error};

/// Adds to `error`, of the command line `args` of `cli`, what the user probably meant.
pub fn explain(error: &mut Error, cli: &Command, args: &[OsString]) {
    let words: Vec<&str> = args.iter().skip(1).filter_map(|arg| arg.to_str()).collect();
    let command = words.iter().find_map(|word| cli.find_subcommand(word)).unwrap_or(cli);
    suggest_two_dashes(error, command, &words);
    if command.get_name() == "plan" {
        explain_ranks_of_plan(error);
    }
    explain_lists(error, command, &words);
}

/// Where the user wrote `-n` or `-nb` for a flag that has two dashes, names that flag.
fn suggest_two_dashes(error: &mut Error, command: &Command, words: &[&str]) {
    let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidArg) else { return };
    let Some(letter) = given.strip_prefix('-').filter(|rest| rest.len() == 1) else { return };
    let letter = letter.to_owned();
    // For `-nb`, clap names only `-n`.
    let whole = words.iter().filter_map(|word| word.strip_prefix('-'));
    let of_letter = whole.filter(|word| word.starts_with(&letter));
    let names = of_letter.map(|word| word.split_once('=').map_or(word, |(name, _)| name));
    let is_flag = |name: &&str| command.get_arguments().any(|arg| arg.get_long() == Some(name));
    if let Some(name) = names.chain([letter.as_str()]).find(is_flag) {
        let suggestion = ContextValue::String(format!("--{name}"));
        error.remove(ContextKind::Suggested);
        error.insert(ContextKind::SuggestedArg, suggestion);
    }
}

/// Says how `plan` counts ranks, where the user tried to give their number.
fn explain_ranks_of_plan(error: &mut Error) {
    let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidArg) else { return };
    if ["--ranks", "--ranks-per-node", "--np"].contains(&given.as_str()) {
        let how = "the ranks of a node are its --cores-per-node over --threads; --nodes says how \
                   many nodes there are";
        error.remove(ContextKind::SuggestedArg);
        suggest(error, how);
    }
}

/// Says that the values of a list have commas between them, where the user wrote blanks, as in
/// HPL.dat.
fn explain_lists(error: &mut Error, command: &Command, words: &[&str]) {
    if !error.use_stderr() {
        return;
    }
    let is_list = |flag: &str| {
        let named = command.get_arguments().find(|arg| arg.get_long() == Some(flag));
        let metavar = named.and_then(|arg| arg.get_value_names()?.first());
        metavar.is_some_and(|metavar| metavar.ends_with(",.."))
    };
    for (at, word) in words.iter().enumerate() {
        let Some(flag) = word.strip_prefix("--").filter(|flag| is_list(flag)) else { continue };
        let values: Vec<&str> =
            words[at + 1..].iter().copied().take_while(|word| !word.starts_with('-')).collect();
        let is_one_list = values.iter().skip(1).all(|value| value.parse::<u64>().is_ok());
        if values.len() > 1 && is_one_list {
            suggest(error, format!("a list has commas: --{flag} {}", values.join(",")));
        }
    }
}

fn suggest(error: &mut Error, how: impl Into<StyledStr>) {
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![how.into()]));
}
