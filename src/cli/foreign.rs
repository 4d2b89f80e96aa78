//! What the arguments of other HPLs are called here.

use std::ffi::OsString;
use std::path::Path;

use clap::Command;

use skt_config::Format;

/// Flags of rocHPL, of Intel's and NVIDIA's HPL and of launchers, without their dashes and in lower
/// case, with the flag that does the same here, or else with what does it.
const FLAGS: &[(&str, &str)] = &[
    ("b", "--nb"),
    ("sizenb", "--nb"),
    ("nbs", "--nb"),
    ("nb-size", "--nb"),
    ("block-size", "--nb"),
    ("blocksize", "--nb"),
    ("s", "--n"),
    ("sizen", "--n"),
    ("ns", "--n"),
    ("size", "--n"),
    ("problem-size", "--n"),
    ("ps", "--p"),
    ("qs", "--q"),
    ("grid", "--p P --q Q"),
    ("process-grid", "--p P --q Q"),
    ("lookahead", "--depth"),
    ("output", "--out"),
    ("ranksp", "--p"),
    ("nprow", "--p"),
    ("ranksq", "--q"),
    ("npcol", "--q"),
    ("nporder", "--pmap"),
    ("dat", "--config"),
    ("f", "--config"),
    ("file", "--config"),
    ("i", "--config"),
    ("input", "--config"),
    ("n", "--np"),
    ("ranks", RANKS),
    ("nprocs", RANKS),
    ("ntasks", RANKS),
    ("hosts", "a flag of `skt-hpl launch`, or `--host` of mpirun, before the program"),
    ("hostfile", "a flag of mpirun, before the program, or `skt-hpl launch --hosts FILE`"),
    ("m", "`skt-hpl init --memory-gib GIB`, which chooses N"),
    ("np", RANKS),
    ("cpu-affinity", BINDING),
    ("mem-affinity", BINDING),
    ("gpu", CPUS),
    ("gpus", CPUS),
    ("ngpus", CPUS),
    ("gpu-affinity", CPUS),
    ("device", CPUS),
    ("cuda", CPUS),
    ("ucx-affinity", "the variable UCX_NET_DEVICES"),
    ("ucx-tls", "the variable UCX_TLS"),
];
const RANKS: &str = "`-np` of mpirun, before the program, or of `skt-hpl launch`";
const BINDING: &str = "the launcher's binding, as `mpirun --bind-to core`";
const CPUS: &str = "nothing: the solver runs on CPUs";

/// Flags of RIKEN's and NVIDIA's HPL-MxP that nothing here corresponds to, without their dashes.
const OF_MXP_ALONE: &[&str] =
    &["not", "nt", "notile", "d", "delayed", "highammat", "gpu-affinity", "sloppy-type", "it"];

/// The words of another HPL-MxP's command line as a line of `skt-hpl mxp`, whose `command` it is,
/// and what has no counterpart. RIKEN's program takes N, NB and P as words. `None`: the line has
/// no word of another program.
pub(crate) fn line_of_mxp(words: &[&str], command: &Command) -> Option<String> {
    let (mut line, mut rest, mut is_foreign) = (Vec::new(), Vec::new(), false);
    let mut left = words;
    let numbers = words.iter().take_while(|word| word.parse::<u64>().is_ok()).count();
    if (2..=3).contains(&numbers) {
        let flags = ["--n", "--nb", "--p"].iter().zip(words);
        line.extend(flags.take(numbers).map(|(flag, word)| format!("{flag} {word}")));
        left = &words[numbers..];
        is_foreign = true;
    }
    let has_grid = words.iter().any(|word| ["-P", "-Q", "--ranksP", "--ranksQ"].contains(word));
    while let [word, after @ ..] = left {
        let next: Vec<_> = after.iter().map(Into::into).collect();
        let ours = words_of_flag(word, &next, command);
        let values = after.iter().take_while(|next| !next.starts_with('-')).count();
        let (flag, after) = left.split_at(if ours > 0 { ours } else { 1 + values });
        left = after;
        // The node's part of rocHPL's grid.
        let is_of_node = has_grid && ["-p", "-q"].contains(word);
        let here = || flag_here(word, flag.get(1).copied(), command).filter(|_| !is_of_node);
        let flag_as_it_is = flag.join(" ");
        if ours > 0 || !word.starts_with('-') {
            line.push(flag_as_it_is);
        } else if let Some(here) = here().filter(|here| here.starts_with("--")) {
            is_foreign = true;
            // NVIDIA's --config names a machine, its --dat the file.
            let flag_of = |given: &str| given.split(' ').next().map(str::to_owned);
            let given = line.iter().position(|given| flag_of(given) == flag_of(&here));
            rest.extend(given.map(|at| line.remove(at)));
            line.push(here);
        } else {
            is_foreign |= OF_MXP_ALONE.contains(&word.trim_start_matches('-'));
            rest.push(flag_as_it_is);
        }
    }
    let line = ["skt-hpl mxp".to_owned()].into_iter().chain(line).collect::<Vec<_>>().join(" ");
    let rest = match rest[..] {
        [] => String::new(),
        _ => format!("; without a counterpart: {}", rest.join(", ")),
    };
    is_foreign.then(|| format!("as a line of ours: {line}{rest}"))
}

/// What the flag `word`, as it is written, with the word after it is called in `command`: a flag of
/// the same letters, or the one that does the same.
pub(crate) fn flag_here(word: &str, next: Option<&str>, command: &Command) -> Option<String> {
    let (name, value) = match word.trim_start_matches('-').split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (word.trim_start_matches('-'), None),
    };
    let value = value.or(next.filter(|next| !next.starts_with('-')));
    let named = |name: &str| name_here(&name.to_ascii_lowercase(), value, command);
    let here = |flag: &str, value: Option<&str>| match value {
        Some(value) if flag.starts_with("--") && !flag.contains(' ') => format!("{flag} {value}"),
        _ => flag.to_owned(),
    };
    if let Some(flag) = named(name) {
        return Some(here(&flag, value));
    }
    // The value may follow a short flag at once: `-n5000`.
    let letters = name.trim_end_matches(|c: char| c.is_ascii_digit());
    (letters != name).then(|| Some(here(&named(letters)?, Some(&name[letters.len()..]))))?
}

fn name_here(name: &str, value: Option<&str>, command: &Command) -> Option<String> {
    let has = |flag: &str| {
        let long = flag.strip_prefix("--").and_then(|words| words.split(' ').next());
        long.is_none_or(|long| command.get_arguments().any(|arg| arg.get_long() == Some(long)))
    };
    let same = format!("--{name}");
    if !name.is_empty() && has(&same) {
        return Some(same);
    }
    let is_number = value.is_some_and(|value| value.parse::<f64>().is_ok());
    let fits = |flag: &str| has(flag) && !(flag == "--config" && is_number);
    let found = FLAGS.iter().find(|(other, flag)| *other == name && fits(flag));
    found.map(|(_, flag)| (*flag).to_owned())
}

/// How many words the flag `word` of `command` takes with its value; 0 if it is none. A short flag
/// stands alone: `-omp` is not `-o mp`, which would move the report.
pub(super) fn words_of_flag(word: &str, after: &[OsString], command: &clap::Command) -> usize {
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

/// Whether a word that is no flag means a configuration.
pub(crate) fn is_configuration(word: &str) -> bool {
    let path = Path::new(word);
    !word.starts_with('-') && (Format::named_by(path).is_some() || path.is_file())
}

#[cfg(test)]
mod tests {
    use clap::{Arg, Command, CommandFactory as _, Parser as _};

    use super::*;

    #[test]
    fn flags_of_other_hpls_have_their_names_here() {
        let run = ["n", "nb", "p", "q", "pmap", "config", "threshold"];
        let run = Command::new("run").args(run.map(|name| Arg::new(name).long(name)));
        for (written, here) in [
            ("-N 1000", Some("--n 1000")),
            ("-NB 192", Some("--nb 192")),
            ("--NB=192", Some("--nb 192")),
            ("-P -Q", Some("--p")),
            ("-n5000", Some("--n 5000")),
            ("-b 256", Some("--nb 256")),
            ("--sizeNB 512", Some("--nb 512")),
            ("--nprow 4", Some("--p 4")),
            ("--dat HPL.dat", Some("--config HPL.dat")),
            ("-f HPL.dat", Some("--config HPL.dat")),
            // The split of rocHPL.
            ("-f 0.3", None),
            ("-s 2480", Some("--n 2480")),
            ("-m 50000", Some("`skt-hpl init --memory-gib GIB`, which chooses N")),
            ("--gpu-affinity 0:1", Some("nothing: the solver runs on CPUs")),
            ("--", None),
            ("-7", None),
        ] {
            let (word, next) =
                written.split_once(' ').map_or((written, None), |(a, b)| (a, Some(b)));
            assert_eq!(flag_here(word, next, &run).as_deref(), here, "{written}");
        }
        let launch = Command::new("launch").arg(Arg::new("np").long("np"));
        assert_eq!(flag_here("-n", Some("4"), &launch).as_deref(), Some("--np 4"));
    }

    #[test]
    fn lines_of_other_hpl_mxps_are_translated_as_a_whole() {
        let mut cli = crate::cli::Cli::command();
        cli.build();
        let mxp = cli.find_subcommand("mxp").expect("a subcommand");
        for (written, here, rest) in [
            ("4000 240 2 -not -d", "--n 4000 --nb 240 --p 2", "-not, -d"),
            ("1024 64", "--n 1024 --nb 64", ""),
            (
                "--n 1000 --nb 128 --nprow 1 --npcol 2 --nporder row --gpu-affinity 0:1 \
                 --sloppy-type 2",
                "--n 1000 --nb 128 --p 1 --q 2 --pmap row",
                "--gpu-affinity 0:1, --sloppy-type 2",
            ),
            ("--nprow=1 --npcol=2 --nb 8 --n 9", "--p 1 --q 2 --nb 8 --n 9", ""),
            ("-i HPL-MxP.dat -it 40", "--config HPL-MxP.dat", "-it 40"),
            ("-P 1 -Q 2 -p 1 -q 2 -N 64 --NB 8", "--p 1 --q 2 --n 64 --nb 8", "-p 1, -q 2"),
            ("--config dgx-a100 --dat a.dat", "--config a.dat", "--config dgx-a100"),
            ("--sizeN 64 -NB 8 --matrix scaled", "--n 64 --nb 8 --matrix scaled", ""),
        ] {
            let words: Vec<&str> = written.split(' ').collect();
            let mut want = format!("as a line of ours: skt-hpl mxp {here}");
            if !rest.is_empty() {
                want += &format!("; without a counterpart: {rest}");
            }
            assert_eq!(line_of_mxp(&words, mxp), Some(want), "{written}");
            let line = ["skt-hpl", "mxp"].into_iter().chain(here.split(' '));
            assert!(crate::cli::Cli::try_parse_from(line).is_ok(), "{here}");
        }
        for ours in ["--n 5 --matrx scaled", "HPL.dat", "x.toml y", "4000", "--n 5 7 8"] {
            let words: Vec<&str> = ours.split(' ').collect();
            assert_eq!(line_of_mxp(&words, mxp), None, "{ours}");
        }
    }

    #[test]
    fn a_word_that_ends_as_a_configuration_is_one() {
        assert!(is_configuration("HPL.dat") && is_configuration("a/cluster.toml"));
        assert!(is_configuration("Cargo.toml") && is_configuration("LICENSE-MIT"));
        assert!(!is_configuration("doctor") && !is_configuration("-f.dat"));
    }
}
