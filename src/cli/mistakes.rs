//! Suggestions for mistakes in a command line that clap alone does not explain.

use std::ffi::OsString;
use std::path::Path;

use clap::Command;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, Error};
use skt_config::Format;

/// Adds to `error`, of the command line `args` of `cli`, what the user probably meant.
pub(crate) fn explain(error: &mut Error, cli: &Command, args: &[OsString]) {
    let words: Vec<&str> = args.iter().skip(1).filter_map(|arg| arg.to_str()).collect();
    let mut cli = cli.clone();
    cli.build();
    let command = words.iter().find_map(|word| cli.find_subcommand(word)).unwrap_or(&cli);
    if let Some(how) = unknown(error).and_then(|given| meant(&given, command, &words)) {
        error.remove(ContextKind::SuggestedArg);
        error.remove(ContextKind::SuggestedSubcommand);
        let how = vec![StyledStr::from(how)];
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(how));
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

fn meant(given: &str, command: &Command, words: &[&str]) -> Option<String> {
    let has = |name: &str| command.get_arguments().any(|arg| arg.get_long() == Some(name));
    let is_launch = command.get_name() == "launch";
    match given {
        "mxp" if is_launch => {
            return Some("HPL-MxP and its flags come after two dashes: launch ... -- mxp".into());
        }
        "mxp" if has("mxp") => return Some("for HPL-MxP the command takes a flag: --mxp".into()),
        "mxp" | "hpl-mxp" | "--mxp" | "hpl-ai" | "--matrix" | "--gemm" => {
            return Some("HPL-MxP, with --matrix and --gemm, is run by `skt-hpl mxp`".into());
        }
        _ => {}
    }
    if given.starts_with('-') {
        // A flag with one dash or in capitals, as HPL's parameters are written; clap names `-n` of
        // `-nb`.
        let word = words.iter().find(|word| word.starts_with(given))?;
        let name = word.trim_start_matches('-').split('=').next()?.to_ascii_lowercase();
        return has(&name).then(|| format!("'{word}' is here: --{name}"));
    }
    let dashes = if is_launch { "-- " } else { "" };
    (is_configuration(given) && (is_launch || has("config")))
        .then(|| format!("a configuration is named by its flag: {dashes}--config {given}"))
}

/// Whether a word that is no flag means a configuration.
fn is_configuration(word: &str) -> bool {
    let path = Path::new(word);
    Format::named_by(path).is_some() || path.is_file()
}
