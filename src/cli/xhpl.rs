//! The program under the name `xhpl`: what a user of the reference expects of it.
//!
//! There are no subcommands, and no flag is needed: HPL.dat in the current folder says all. Nothing
//! is protected unless `--ft` is given, as checkpoints in memory would need half of what a
//! reference's N fills. Illegal values are replaced as in the reference, nothing is written but the
//! report, and the exit code is 0 once all tests are reported, whatever their residuals, and 1 for
//! bad input.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::parser::ValueSource;
use clap::{CommandFactory as _, FromArgMatches as _, Parser};

use super::run::RunArgs;
use crate::config::value::Value;
use crate::config::{Format, Setting};
use crate::report::progress::ProgressMode;

const LONG_ABOUT: &str = "\
skt-hpl under the name of the reference: reads HPL.dat in the current folder, protects nothing, \
replaces illegal values as the reference does, shows no progress, and takes the number of threads \
of a rank from OMP_NUM_THREADS. Each of these flags works as with skt-hpl, which also has \
subcommands and takes checkpoints.";

const AFTER_HELP: &str = "\
Exit codes:
  0   all tests are reported, also those that failed or were skipped
  1   bad input or environment
  75  with --ft: interrupted, can be restarted";

/// The command line of `xhpl`.
#[derive(Debug, Parser)]
#[command(
    name = "xhpl",
    version,
    about = "High-Performance Linpack as the reference runs it",
    long_about = LONG_ABOUT,
    after_help = AFTER_HELP,
    max_term_width = 100
)]
pub struct Xhpl {
    /// Flags of the benchmark.
    #[command(flatten)]
    pub run: RunArgs,
}

/// Whether a command line is that of `xhpl`: its program has that file name, be it a link or a
/// copy.
pub fn is_named(args: &[OsString]) -> bool {
    let program = args.first().and_then(|program| Path::new(program).file_name());
    program == Some(OsStr::new("xhpl"))
}

/// Parses the command line of `xhpl`.
///
/// # Errors
/// The error of clap.
pub fn parse(args: &[OsString]) -> Result<RunArgs, clap::Error> {
    let matches = Xhpl::command().try_get_matches_from(args)?;
    let Xhpl { mut run } = Xhpl::from_arg_matches(&matches)?;
    run.lenient = true;
    run.as_reference = true;
    if matches.value_source("progress") != Some(ValueSource::CommandLine) {
        run.progress = ProgressMode::Off;
    }
    run.protect.settings.0.entry(Setting::Method).or_insert_with(|| vec![Value::flag("none")]);
    let is_toml = run.config.as_ref().is_some_and(|path| Format::of(path) == Format::Toml);
    if run.overrides.threads.is_none() && !is_toml {
        run.overrides.threads = threads(env::var("OMP_NUM_THREADS").ok().as_deref());
    }
    Ok(run)
}

/// The threads of a rank that `OMP_NUM_THREADS` asks for, as a threaded BLAS under the reference
/// would use them: the first number of its list.
fn threads(of_omp: Option<&str>) -> Option<String> {
    let first = of_omp?.split(',').next()?.trim();
    first.parse().ok().filter(|threads: &usize| *threads > 0).map(|threads| threads.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn the_file_name_of_the_program_decides() {
        for program in ["xhpl", "./xhpl", "/opt/bin/xhpl", "xhpl --n 5"] {
            assert!(is_named(&words(program)), "{program}");
        }
        for program in ["skt-hpl", "./xhpl2", "/opt/xhpl/skt-hpl", "skt-hpl xhpl", "xhpl.old"] {
            assert!(!is_named(&words(program)), "{program}");
        }
        assert!(!is_named(&[]));
    }

    #[test]
    fn flags_that_are_given_count() {
        let method = |line: &str| {
            let run = parse(&words(line)).unwrap();
            (run.protect.settings.0[&Setting::Method][0].text.clone(), run.progress)
        };
        assert_eq!(method("xhpl"), ("none".to_owned(), ProgressMode::Off));
        let given = method("./xhpl --ft self --progress plain");
        assert_eq!(given, ("self".to_owned(), ProgressMode::Plain));
        assert_eq!(method("xhpl --progress auto").1, ProgressMode::Auto);
        assert!(parse(&words("xhpl doctor")).is_err(), "there are no subcommands");
        assert_eq!(parse(&words("xhpl --threads 3")).unwrap().overrides.threads.unwrap(), "3");
    }

    #[test]
    fn threads_are_those_of_openmp() {
        for (given, threads) in
            [("4", Some("4")), (" 8 ", Some("8")), ("2,4", Some("2")), ("0", None), ("x", None)]
        {
            assert_eq!(super::threads(Some(given)).as_deref(), threads, "{given}");
        }
        assert_eq!(super::threads(None), None);
    }

    #[test]
    fn clap_finds_no_fault_with_the_flags() {
        Xhpl::command().debug_assert();
    }
}
