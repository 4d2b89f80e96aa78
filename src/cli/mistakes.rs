//! Suggestions for mistakes in a command line that clap alone does not explain.

use std::ffi::OsString;

use clap::Command;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, Error};
use skt_terms::similar;

use super::foreign;

/// Adds to `error`, of the command line `args` of `cli`, what the user probably meant.
pub(crate) fn explain(error: &mut Error, cli: &Command, args: &[OsString]) {
    let words: Vec<&str> = args.iter().skip(1).filter_map(|arg| arg.to_str()).collect();
    let mut cli = cli.clone();
    cli.build();
    let command = words.iter().find_map(|word| cli.find_subcommand(word)).unwrap_or(&cli);
    forget_unlike(error, command);
    suggest_flag(error, command, &words);
    suggest_config(error, command);
    suggest_mxp(error, command);
    if command.get_name() == "plan" {
        explain_ranks_of_plan(error);
    }
    explain_lists(error, command, &words);
    translate_mxp(error, command, &words);
}

/// Where the line is that of another HPL-MxP, the whole line in our words is the one answer.
fn translate_mxp(error: &mut Error, command: &Command, words: &[&str]) {
    if command.get_name() != "mxp" || unknown(error).is_none() {
        return;
    }
    let after: Vec<&str> =
        words.iter().copied().skip_while(|word| *word != "mxp").skip(1).collect();
    if let Some(line) = foreign::line_of_mxp(&after, command) {
        error.remove(ContextKind::SuggestedArg);
        error.remove(ContextKind::SuggestedSubcommand);
        suggest(error, line);
    }
}

/// Leaves out a suggestion of clap that has too few of the letters given to be what is meant.
fn forget_unlike(error: &mut Error, command: &Command) {
    let Some(given) = unknown(error) else { return };
    let Some(ContextValue::String(similar)) = error.get(ContextKind::SuggestedArg) else { return };
    let [given, similar] = [&given, similar].map(|flag| flag.trim_start_matches('-'));
    if similar::edits(given, similar).is_none() {
        forget_similar(error, command);
    }
}

/// Leaves out the flag that clap suggests, also in the usage.
fn forget_similar(error: &mut Error, command: &Command) {
    if error.remove(ContextKind::SuggestedArg).is_some() {
        let usage = command.clone().render_usage();
        error.insert(ContextKind::Usage, ContextValue::StyledStr(usage));
    }
}

/// Where the user wrote a flag as another HPL or with one dash, names the one here.
fn suggest_flag(error: &mut Error, command: &Command, words: &[&str]) {
    let Some(given) = unknown(error).filter(|given| given.starts_with('-')) else { return };
    // For `-nb`, clap names only `-n`.
    let Some(at) = words.iter().position(|word| word.starts_with(&given)) else { return };
    let value = words.get(at + 1).copied();
    if let Some(here) = foreign::flag_here(words[at], value, command) {
        forget_similar(error, command);
        suggest(error, format!("'{}' is here: {here}", words[at]));
    }
}

/// Where the user named a configuration without its flag, names the flag.
fn suggest_config(error: &mut Error, command: &Command) {
    let Some(file) = unknown(error).filter(|word| foreign::is_configuration(word)) else { return };
    let has = |name: &str| command.get_arguments().any(|arg| arg.get_long() == Some(name));
    let command_of_run = command.get_name() == "launch";
    if command_of_run || has("config") {
        let dashes = if command_of_run { "-- " } else { "" };
        error.remove(ContextKind::SuggestedSubcommand);
        suggest(error, format!("a configuration is named by its flag: {dashes}--config {file}"));
    }
}

/// Where the user asked for HPL-MxP in a place that does not have it, names the one that does.
fn suggest_mxp(error: &mut Error, command: &Command) {
    match (unknown(error).as_deref(), command.get_name()) {
        (Some("mxp"), "launch") => {
            suggest(error, "HPL-MxP and its flags come after two dashes: launch ... -- mxp");
        }
        (Some("mxp"), name @ ("tune" | "plan" | "init")) => {
            suggest(error, format!("for HPL-MxP, {name} takes a flag: {name} --mxp"));
        }
        (Some("mxp"), "screen") => {
            suggest(error, "screen runs tests of HPL alone; HPL-MxP is run by `skt-hpl mxp`");
        }
        (Some("hpl-mxp" | "--mxp" | "hpl-ai"), _) => {
            error.remove(ContextKind::SuggestedArg);
            suggest(error, "HPL-MxP is run by `skt-hpl mxp`");
        }
        (Some("--matrix"), _) => {
            error.remove(ContextKind::SuggestedArg);
            suggest(
                error,
                "HPL has one matrix; that of HPL-MxP is chosen by `skt-hpl mxp --matrix`",
            );
        }
        (Some("--gemm"), _) => {
            error.remove(ContextKind::SuggestedArg);
            suggest(
                error,
                "HPL multiplies in double precision; what HPL-MxP multiplies in is chosen by \
                 `skt-hpl mxp --gemm`",
            );
        }
        _ => {}
    }
}

/// The word that clap does not know.
fn unknown(error: &Error) -> Option<String> {
    let kinds = [ContextKind::InvalidArg, ContextKind::InvalidSubcommand];
    kinds.into_iter().find_map(|kind| match error.get(kind) {
        Some(ContextValue::String(word)) => Some(word.clone()),
        _ => None,
    })
}

/// Explains how `plan` counts ranks, where the user tried to give their number.
fn explain_ranks_of_plan(error: &mut Error) {
    let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidArg) else { return };
    if ["--ranks", "--ranks-per-node", "--np"].contains(&given.as_str()) {
        let how = "the ranks of a node are its --cores-per-node over --threads; --nodes \
                   gives the number of nodes";
        error.remove(ContextKind::SuggestedArg);
        suggest(error, how);
    }
}

/// Explains that the values of a list have commas between them, where the user wrote blanks, as in
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
