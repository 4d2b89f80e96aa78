//! What the arguments of other HPLs are called here.

use std::path::Path;

use clap::Command;

use skt_config::Format;

/// Flags of rocHPL, of Intel's and NVIDIA's HPL and of launchers, without their dashes and in lower
/// case, with the flag that does the same here, or else with what does it.
const FLAGS: &[(&str, &str)] = &[
    ("b", "--nb"),
    ("sizenb", "--nb"),
    ("s", "--n"),
    ("sizen", "--n"),
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
    ("m", "`skt-hpl init --memory-gib GIB`, which chooses N"),
    ("np", "a flag of mpirun, before the program, or of `skt-hpl launch`"),
    ("cpu-affinity", "the launcher's binding, as `mpirun --bind-to core`"),
    ("mem-affinity", "the launcher's binding, as `mpirun --bind-to core`"),
];

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
        Some(value) if flag.starts_with("--") => format!("{flag} {value}"),
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
        let long = flag.strip_prefix("--");
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

/// Whether a word that is no flag means a configuration.
pub(crate) fn is_configuration(word: &str) -> bool {
    let path = Path::new(word);
    !word.starts_with('-') && (Format::named_by(path).is_some() || path.is_file())
}

#[cfg(test)]
mod tests {
    use clap::{Arg, Command};

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
            ("--gpu-affinity 0:1", None),
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
    fn a_word_that_ends_as_a_configuration_is_one() {
        assert!(is_configuration("HPL.dat") && is_configuration("a/cluster.toml"));
        assert!(is_configuration("Cargo.toml") && is_configuration("LICENSE-MIT"));
        assert!(!is_configuration("doctor") && !is_configuration("-f.dat"));
    }
}
