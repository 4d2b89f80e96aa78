//! Recognizes messages of launchers that will never start the job, however often it is tried.

/// Each text of a launcher, with what helps.
const TEXTS: [(&str, &str); 5] = [
    // Open MPI 4 and, as `prterun`, Open MPI 5.
    ("has detected an attempt to run as root", AS_ROOT),
    ("was unable to find the specified executable file", NO_PROGRAM),
    ("was unable to launch the specified application as it could not", NO_PROGRAM),
    // Hydra.
    ("execvp error on file", NO_PROGRAM),
    // Slurm.
    ("error: execve():", NO_PROGRAM),
];

const AS_ROOT: &str = "the launcher refuses to run as root: give \
    --launcher-arg=--allow-run-as-root, or set OMPI_ALLOW_RUN_AS_ROOT=1 and \
    OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1";
const NO_PROGRAM: &str = "the launcher cannot start the program that its message above names: an \
    argument may need the flag before it in its own --launcher-arg, and nodes need skt-hpl \
    at the same path as here";

/// Why the launcher that wrote `line` will not start the job, and what helps; `None` for other
/// lines.
pub(crate) fn why(line: &str) -> Option<&'static str> {
    TEXTS.iter().find(|(text, _)| line.contains(text)).map(|(_, why)| *why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_of_launchers_are_known_by_their_texts() {
        for program in ["mpirun", "prterun"] {
            let line = format!("{program} has detected an attempt to run as root.\n");
            assert!(
                why(&line).is_some_and(|why| why.contains("--launcher-arg=--allow-run-as-root"))
            );
            for what in [
                "was unable to find the specified executable file, and therefore\n",
                "was unable to launch the specified application as it could not access\n",
                "was unable to launch the specified application as it could not find an executable:",
            ] {
                assert_eq!(why(&format!("{program} {what}")), Some(NO_PROGRAM));
            }
        }
        for line in [
            "[proxy:0:0@n1] HYDU_create_process (utils/launch/launch.c:74): execvp error on file \
             /x (No such file or directory)",
            "slurmstepd: error: execve(): /x: No such file or directory",
        ] {
            assert_eq!(why(line), Some(NO_PROGRAM));
        }
        assert_eq!(why("mpirun noticed that process rank 1 exited on signal 9"), None);
    }
}
