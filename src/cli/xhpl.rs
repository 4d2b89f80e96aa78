//! The program under the name `xhpl`: what a user of the reference expects of it.
//!
//! There are no subcommands, and no flag is needed: HPL.dat in the current folder has all settings.
//! The reference ignores its arguments, so those that are not ours are ignored. Nothing is
//! protected unless `--ft` is given, as checkpoints in memory would need half of what a reference's
//! N fills. Illegal values are replaced as in the reference, nothing is written but the report,
//! which has the reference's lines alone, and the exit code is 0 once all tests are reported,
//! whatever their residuals, and 1 for bad input. Warnings go to standard error after the report:
//! with both streams in one file they would move the lines that programs count.
//!
//! Names of HPL-MxP (`xhpl_mxp`, `xhpl-ai_intel64`, `hpl-ai`, `rochplmxp`) run `skt-hpl mxp`, with
//! the input read and unprotected as under `xhpl`; its programs have flags, so none is ignored.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::parser::ValueSource;
use clap::{CommandFactory as _, FromArgMatches as _, Parser};

use super::progress::ProgressMode;
use super::run::RunArgs;
use super::thread_variables::ThreadVariables;
use skt_config::param::Param;
use skt_config::value::Value;
use skt_config::{Format, Setting};

const LONG_ABOUT: &str = "\
skt-hpl under the name of the reference: reads HPL.dat in the current folder, protects nothing, \
replaces illegal values as the reference does, and takes the number of threads of a rank from \
OMP_NUM_THREADS or the variable of a BLAS. The flags are those of skt-hpl; other arguments are \
ignored, as the reference ignores all.";

const AFTER_HELP: &str = "\
Exit codes:
  0   all tests are reported, also those that failed or were skipped
  1   bad input or environment
  75  with --ft: interrupted, can be restarted";

#[derive(Debug, Parser)]
#[command(
    name = "xhpl",
    version = concat!(env!("CARGO_PKG_VERSION"), " (skt-hpl)"),
    about = "High-Performance Linpack as the reference runs it",
    long_about = LONG_ABOUT,
    after_help = AFTER_HELP,
    max_term_width = 100
)]
pub(crate) struct Xhpl {
    /// Flags of the benchmark.
    #[command(flatten)]
    pub run: RunArgs,
}

/// Whether a command line is that of `xhpl`: the file name of its program begins so, be it a link
/// or a copy. Sites have an `xhpl_intel64` or `xhpl-openmpi`.
pub(crate) fn is_named(args: &[OsString]) -> bool {
    let program = args.first().and_then(|program| Path::new(program).file_name());
    program.is_some_and(|name| name.as_encoded_bytes().starts_with(b"xhpl"))
}

/// The command line of `skt-hpl mxp` for one under a name of HPL-MxP.
pub(crate) fn as_mxp(args: &[OsString]) -> Option<Vec<OsString>> {
    let (program, words) = args.split_first()?;
    let name = Path::new(program).file_name()?.to_str()?;
    let words = ["skt-hpl".into(), "mxp".into()].into_iter().chain(words.iter().cloned());
    is_of_mxp(name).then(|| words.collect())
}

/// Whether the name is one of HPL-MxP, once HPL-AI; `xhpl-aix` is not.
fn is_of_mxp(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let program = ["xhpl", "hpl", "rochpl"].iter().find_map(|hpl| name.strip_prefix(hpl));
    let Some(kind) = program.map(|kind| kind.trim_start_matches(['-', '_'])) else { return false };
    let rest = ["ai", "mxp"].iter().find_map(|mxp| kind.strip_prefix(mxp));
    rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_alphabetic()))
}

/// Sets what a user of another program of that name expects: the reference's reading of HPL.dat and
/// its lines, no protection, and the number of threads from the variables.
pub(crate) fn as_drop_in(mut run: RunArgs) -> RunArgs {
    run.lenient = true;
    run.are_lines_alone = true;
    run.protect.settings.0.entry(Setting::Method).or_insert_with(|| vec![Value::flag("none")]);
    let is_toml = run.config.as_ref().is_some_and(|path| Format::from_path(path) == Format::Toml);
    if !run.overrides.given.0.contains_key(&Param::Threads) && !is_toml {
        run.thread_variables = Some(ThreadVariables::default());
    }
    run
}

pub(crate) fn parse(args: &[OsString]) -> Result<RunArgs, clap::Error> {
    let mut command = Xhpl::command();
    command.build();
    let (program, words) = args.split_at(args.len().min(1));
    let (ours, others) = split(words, &command);
    let matches = command.try_get_matches_from_mut(program.iter().chain(&ours))?;
    let Xhpl { mut run } = Xhpl::from_arg_matches(&matches)?;
    let file = run.config.as_deref().unwrap_or(Path::new("HPL.dat")).display();
    let words = others.join(OsStr::new(" "));
    run.ignored = (!others.is_empty()).then(|| {
        let words = words.to_string_lossy();
        format!(
            "ignored, as HPL ignores its arguments: {words}; {file} is run, and --help lists the \
             flags that have an effect"
        )
    });
    run.as_reference = true;
    if matches.value_source("progress") != Some(ValueSource::CommandLine) {
        run.progress.mode = ProgressMode::Off;
    }
    Ok(as_drop_in(run))
}

/// Splits the words after the program's name into those of `command`, flags with their values, and
/// the others, which the reference ignores, as it ignores all. All after `--` are others.
fn split(words: &[OsString], command: &clap::Command) -> (Vec<OsString>, Vec<OsString>) {
    let (mut ours, mut others) = (Vec::new(), Vec::new());
    let mut rest = words;
    while let [word, after @ ..] = rest {
        let taken = match word.to_str() {
            Some("--") => {
                others.extend_from_slice(rest);
                break;
            }
            text => text.map_or(0, |text| words_of_flag(text, after, command)),
        };
        let (flag, after) = rest.split_at(taken.max(1));
        if taken > 0 { &mut ours } else { &mut others }.extend_from_slice(flag);
        rest = after;
    }
    (ours, others)
}

/// How many words the flag `word` of `command` takes with its value; 0 if it is none. A short flag
/// stands alone: `-omp` is not `-o mp`, which would move the report.
fn words_of_flag(word: &str, after: &[OsString], command: &clap::Command) -> usize {
    let (name, has_value) = word.split_once('=').map_or((word, false), |(name, _)| (name, true));
    let is_short = !name.starts_with("--");
    let is_named = |arg: &&clap::Arg| match name.strip_prefix("--") {
        Some(long) => {
            let aliases = arg.get_all_aliases().unwrap_or_default();
            arg.get_long() == Some(long) || aliases.contains(&long)
        }
        None => arg.get_short().is_some_and(|short| name == format!("-{short}")),
    };
    let Some(arg) = command.get_arguments().find(is_named) else { return 0 };
    if has_value || !arg.get_action().takes_values() {
        return 1;
    }
    let is_value = |next: &OsString| next == "-" || !next.as_encoded_bytes().starts_with(b"-");
    match after.first() {
        // Another program's flag of that letter, which takes no value.
        next if is_short && !next.is_some_and(is_value) => 0,
        // Without its value, clap reports what is missing.
        next => 1 + usize::from(next.is_some()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;

    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn the_file_name_of_the_program_decides() {
        for program in [
            "xhpl",
            "./xhpl",
            "/opt/bin/xhpl",
            "xhpl --n 5",
            "./xhpl-ompi",
            "/opt/intel/xhpl_intel64",
            "xhpl2",
            "xhpl.exe",
        ] {
            assert!(is_named(&words(program)), "{program}");
        }
        for program in ["skt-hpl", "/opt/xhpl/skt-hpl", "skt-hpl xhpl", "./my-xhpl", "hpl"] {
            assert!(!is_named(&words(program)), "{program}");
        }
        assert!(!is_named(&[]));
    }

    #[test]
    fn names_of_hpl_mxp_run_it() {
        let run = |line: &str| {
            let words = as_mxp(&words(line))?;
            Some(words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" "))
        };
        for program in [
            "xhpl-ai",
            "/opt/nvidia/xhpl_ai",
            "./xhpl-ai_intel64_dynamic",
            "hpl-ai",
            "hpl-ai-openmpi",
            "xhpl_mxp",
            "xhpl-mxp.exe",
            "hpl-mxp",
            "HPL-MxP",
            "rochplmxp",
        ] {
            assert_eq!(run(program).as_deref(), Some("skt-hpl mxp"), "{program}");
            let line = format!("{program} --n 5 --nb 2");
            assert_eq!(run(&line).as_deref(), Some("skt-hpl mxp --n 5 --nb 2"), "{program}");
        }
        let run_args = as_drop_in(RunArgs::default());
        let method = &run_args.protect.settings.0[&Setting::Method][0].text;
        assert!(run_args.lenient && !run_args.as_reference && method == "none");
        for line in ["xhpl", "xhpl-aix", "xhpl_intel64", "skt-hpl mxp", "hpl"] {
            assert_eq!(run(line), None, "{line}");
        }
    }

    #[test]
    fn flags_that_are_given_count() {
        let method = |line: &str| {
            let run = parse(&words(line)).unwrap();
            (run.protect.settings.0[&Setting::Method][0].text.clone(), run.progress.mode)
        };
        assert_eq!(method("xhpl"), ("none".to_owned(), ProgressMode::Off));
        let given = method("./xhpl --ft self --progress plain");
        assert_eq!(given, ("self".to_owned(), ProgressMode::Plain));
        assert_eq!(method("xhpl --progress auto").1, ProgressMode::Auto);
        assert!(parse(&words("xhpl --nb")).is_err(), "a flag of ours lacks its value");
        let run = parse(&words("xhpl --threads 3")).unwrap();
        assert_eq!(run.overrides.given.0[&Param::Threads][0].text, "3");
    }

    /// The reference ignores its arguments, and scripts have the strangest.
    #[test]
    fn arguments_of_others_are_ignored_and_ours_count() {
        let mut command = Xhpl::command();
        command.build();
        let shown = |words: &[OsString]| {
            words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
        };
        for (line, ours, others) in [
            ("HPL.dat", "", "HPL.dat"),
            ("-p -s 2480 -f HPL.dat", "", "-p -s 2480 -f HPL.dat"),
            ("-p -s 1000 -c", "", "-p -s 1000 -c"),
            ("-c a.dat -P 2 --nb 8 x", "-c a.dat --nb 8", "-P 2 x"),
            ("--config=a.dat --dat=b.dat", "--config=a.dat", "--dat=b.dat"),
            ("-n 9 --n 8", "--n 8", "-n 9"),
            ("--equil no --align 8 -h", "--equil no --align 8 -h", ""),
            ("--verbose 3 --version", "--verbose --version", "3"),
            ("-omp 4 -cpu -help -o -", "-o -", "-omp 4 -cpu -help"),
            ("-o --verbose", "--verbose", "-o"),
            ("--threshold -1 -1", "--threshold -1", "-1"),
            ("--n 5 -- --nb 3", "--n 5", "-- --nb 3"),
            ("run doctor --thread 4", "", "run doctor --thread 4"),
        ] {
            let (found, left) = split(&words(line), &command);
            assert_eq!((&*shown(&found), &*shown(&left)), (ours, others), "{line}");
        }
        let odd = [OsString::from_vec(vec![0xff, b'a']), "-x".into()];
        assert_eq!(split(&odd, &command), (Vec::new(), odd.to_vec()));
    }

    #[test]
    fn ignored_words_are_reported_with_the_file_that_is_run() {
        let ignored = |line: &str| parse(&words(line)).unwrap().ignored;
        assert_eq!(ignored("xhpl --n 5"), None);
        assert_eq!(
            ignored("xhpl -c a.dat -s 2480 7").unwrap(),
            "ignored, as HPL ignores its arguments: -s 2480 7; a.dat is run, and --help lists the \
             flags that have an effect"
        );
        assert!(ignored("xhpl doctor").unwrap().contains(": doctor; HPL.dat is run"));
    }

    #[test]
    fn clap_finds_no_fault_with_the_flags() {
        Xhpl::command().debug_assert();
    }
}
