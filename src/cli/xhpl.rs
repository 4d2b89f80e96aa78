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

use std::borrow::Cow;
use std::ffi::OsString;
use std::path::Path;

use clap::parser::ValueSource;
use clap::{CommandFactory as _, FromArgMatches as _, Parser};

use super::foreign::{self, words_of_flag};
use super::progress::ProgressMode;
use super::run::RunArgs;
use super::thread_variables::ThreadVariables;
use skt_config::param::Param;
use skt_config::value::Value;
use skt_config::{Format, Setting};

const LONG_ABOUT: &str = "\
skt-hpl under the name of the reference: reads HPL.dat in the current folder, protects nothing, \
replaces illegal values as the reference does, shows no progress, and takes the number of threads \
of a rank from OMP_NUM_THREADS or the variable of a BLAS (OPENBLAS_NUM_THREADS, MKL_NUM_THREADS, \
BLIS_NUM_THREADS). Each of these flags works as with skt-hpl, which also has subcommands and takes \
checkpoints; other arguments are ignored, as the reference ignores all.";

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

/// The flag by which NVIDIA's `xhpl` once ran HPL-AI.
const AI_FLAG: &str = "--xhpl-ai";

/// The command line of `skt-hpl mxp` for one under a name of HPL-MxP, or with [`AI_FLAG`].
pub(crate) fn as_mxp(args: &[OsString]) -> Option<Vec<OsString>> {
    let (program, words) = args.split_first()?;
    let name = Path::new(program).file_name()?.to_str()?;
    let is_flag = |word: &OsString| word == AI_FLAG;
    let is_mxp = is_of_mxp(name) || (is_named(args) && words.iter().any(is_flag));
    let words = words.iter().filter(|word| !is_flag(word)).cloned();
    is_mxp.then(|| ["skt-hpl".into(), "mxp".into()].into_iter().chain(words).collect())
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
    run.ignored = ignored(&others, run.config.as_deref(), &command);
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

/// Messages about the words `others`: that they are ignored, and what has their effect. The run is
/// that of `config`, else of HPL.dat.
fn ignored(others: &[OsString], config: Option<&Path>, command: &clap::Command) -> Vec<String> {
    if others.is_empty() {
        return Vec::new();
    }
    let file = config.unwrap_or(Path::new("HPL.dat"));
    let words: Vec<_> = others.iter().map(|word| word.to_string_lossy()).collect();
    let here = |(at, word): (usize, &Cow<str>)| {
        if word.starts_with('-') {
            return foreign::flag_here(word, words.get(at + 1).map(|next| &**next), command);
        }
        let is_value = at > 0 && words[at - 1].starts_with('-');
        if is_value || Path::new(word.strip_prefix("./").unwrap_or(word)) == file {
            return None;
        }
        if foreign::is_configuration(word) {
            return Some(format!("--config {word}"));
        }
        super::Cli::command().find_subcommand(&**word).map(|_| format!("`skt-hpl {word}`"))
    };
    let here: Vec<String> = words.iter().enumerate().filter_map(here).collect();
    let instead = match here[..] {
        [] => String::new(),
        _ => format!("; with an effect here: {}", here.join(", ")),
    };
    let (words, file) = (words.join(" "), file.display());
    vec![format!("ignored, as HPL ignores its arguments: {words}. {file} is run{instead}")]
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
        assert_eq!(run("./xhpl --nb 8 --xhpl-ai x").as_deref(), Some("skt-hpl mxp --nb 8 x"));
        for line in ["xhpl", "xhpl-aix", "xhpl_intel64", "skt-hpl mxp", "skt-hpl --xhpl-ai", "hpl"]
        {
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
    fn ignored_flags_are_reported_with_their_replacements() {
        let ignored = |line: &str| parse(&words(line)).unwrap().ignored.join("\n");
        assert_eq!(ignored("xhpl --n 5"), "");
        assert_eq!(
            ignored("xhpl -p -s 2480 -f other.dat"),
            "ignored, as HPL ignores its arguments: -p -s 2480 -f other.dat. HPL.dat is run; with an \
             effect here: --p, --n 2480, --config other.dat"
        );
        for (line, end) in [
            ("xhpl other.dat", "HPL.dat is run; with an effect here: --config other.dat"),
            ("xhpl ./HPL.dat", "arguments: ./HPL.dat. HPL.dat is run"),
            ("xhpl doctor", "HPL.dat is run; with an effect here: `skt-hpl doctor`"),
            ("xhpl -c a.dat 7", "7. a.dat is run"),
        ] {
            assert!(ignored(line).ends_with(end), "{line}: {}", ignored(line));
        }
    }

    #[test]
    fn clap_finds_no_fault_with_the_flags() {
        Xhpl::command().debug_assert();
    }
}
