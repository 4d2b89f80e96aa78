//! Writes the man pages and the shell completions of the programs, generated from their flags:
//! `skt-manual SHARE`.

use std::path::Path;
use std::process::ExitCode;
use std::{env, fs, io};

use clap::Command;
use clap_complete::{Shell, generate};

/// The shells, each with its folder below `share` and what surrounds the program's name there.
const SHELLS: [(Shell, &str, &str, &str); 3] = [
    (Shell::Bash, "bash-completion/completions", "", ""),
    (Shell::Zsh, "zsh/site-functions", "_", ""),
    (Shell::Fish, "fish/vendor_completions.d", "", ".fish"),
];

fn main() -> ExitCode {
    let Some(share) = env::args_os().nth(1) else {
        eprintln!("skt-manual SHARE: a folder for the pages and completions is needed");
        return ExitCode::from(2);
    };
    match write(Path::new(&share)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}: {error}", share.display());
            ExitCode::from(2)
        }
    }
}

fn write(share: &Path) -> io::Result<()> {
    let pages = share.join("man/man1");
    fs::create_dir_all(&pages)?;
    for command in [skt_hpl::cli::command(), skt_studies::cli::command()] {
        for (shell, folder, before, after) in SHELLS {
            let folder = share.join(folder);
            fs::create_dir_all(&folder)?;
            let name = command.get_name();
            fs::write(folder.join(format!("{before}{name}{after}")), completions(shell, &command))?;
        }
        clap_mangen::generate_to(command, &pages)?;
    }
    Ok(())
}

fn completions(shell: Shell, command: &Command) -> String {
    let name = command.get_name().to_owned();
    // Not all generators leave out what is hidden.
    let mut shown = Command::new(name.clone())
        .version(env!("CARGO_PKG_VERSION"))
        .disable_help_subcommand(true)
        .args(command.get_arguments())
        .subcommands(command.get_subcommands().filter(|command| !command.is_hide_set()));
    let mut text = Vec::new();
    generate(shell, &mut shown, &name, &mut text);
    // `clap_complete` 4.6 defines the completions of a subcommand under another name than it looks
    // up, if the program's name has a dash.
    let [found, wanted] = ["__subcmd__", "__"].map(|dash| name.replace('-', dash) + "__");
    String::from_utf8_lossy(&text).replace(&found, &wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_and_completions_know_the_flags() {
        let share = tempfile::tempdir().unwrap();
        write(share.path()).unwrap();
        let read = |file: &str| fs::read_to_string(share.path().join(file)).expect(file);
        for (page, want) in [
            ("skt-hpl.1", "\\-\\-swap\\-threshold"),
            ("skt-hpl-run.1", ".TH"),
            ("skt-hpl-init.1", ".TH"),
            ("skt-hpl-convert.1", ".TH"),
            ("skt-hpl-mxp.1", "\\-\\-gemm"),
            ("skt-studies.1", "simulate"),
        ] {
            assert!(read(&format!("man/man1/{page}")).contains(want), "{page}");
        }
        for (_, folder, before, after) in SHELLS {
            let text = read(&format!("{folder}/{before}skt-hpl{after}"));
            // In bash's, `cmd` is the label of what is completed.
            for (at, mark) in text.match_indices("cmd=\"") {
                let label = text[at + mark.len()..].split('"').next().unwrap();
                assert!(label.is_empty() || text.contains(&format!(" {label})\n")), "{label}");
            }
            for want in ["swap-threshold", "2ringM", "parities", "init", "mxp", "bf16-emulated"] {
                assert!(text.contains(want), "{folder}: {want}");
            }
            assert!(!text.contains("probe\"") && !text.contains("supervisor's question"));
            assert!(read(&format!("{folder}/{before}skt-studies{after}")).contains("simulate"));
        }
    }
}
