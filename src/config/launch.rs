//! The `[launch]` table of TOML: names, legal values and defaults of the flags of `skt-hpl launch`.
//!
//! Reading, writing and documenting work from [`LAUNCH`]; `cli::launch` decides what a value means.

use std::collections::BTreeMap;

use skt_terms::shown::shown;

use super::error::{At, ConfigError};
use super::value::{Row, Value, Written};

/// A setting of `skt-hpl launch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)] // each is described in its row of `LAUNCH`
pub enum Launching {
    Hosts,
    Spares,
    Readmit,
    Np,
    Launcher,
    LauncherProgram,
    LauncherArg,
    LauncherTemplate,
    Agent,
    HangAfter,
    ProbeLimit,
    MaxRestarts,
    StartOver,
    State,
    Json,
}

/// Settings of the launcher, as written; one that is not a list has one value.
pub type LaunchDraft = BTreeMap<Launching, Vec<Value>>;

const fn row(
    setting: Launching,
    key: &'static str,
    written: Written,
    legal: &'static str,
    default: &'static str,
    what: &'static str,
) -> Row<Launching> {
    Row { setting, key, written, is_list: false, choices: &[], legal, default, what }
}

/// The table of all settings of the launcher. The flag of each is its key with `-` for `_`.
pub const LAUNCH: [Row<Launching>; 15] = [
    row(
        Launching::Hosts,
        "hosts",
        Written::Text,
        "a host file of Open MPI, MPICH or PBS",
        "(those of the Slurm or PBS job, else this machine only)",
        "nodes; those that the grid does not need are spares",
    ),
    row(Launching::Spares, "spares", Written::Text, "a host file", "(none)", "further spare nodes"),
    row(
        Launching::Readmit,
        "readmit",
        Written::Flag,
        "true, false",
        "false",
        "use nodes again that failed an earlier probe",
    ),
    row(
        Launching::Np,
        "np",
        Written::Whole,
        "1 or more",
        "(what the largest grid needs, else all slots)",
        "ranks",
    ),
    Row {
        choices: &["auto", "openmpi", "mpich", "slurm"],
        ..row(
            Launching::Launcher,
            "launcher",
            Written::Text,
            "",
            "auto",
            "what starts the ranks. auto: slurm in a Slurm job, else what `mpirun` in PATH is",
        )
    },
    row(
        Launching::LauncherProgram,
        "launcher_program",
        Written::Text,
        "a program",
        "(mpirun, mpiexec.hydra or srun, from PATH)",
        "the launcher's program",
    ),
    Row {
        is_list: true,
        ..row(
            Launching::LauncherArg,
            "launcher_arg",
            Written::Text,
            "a list of arguments",
            "(none)",
            "further arguments for the launcher",
        )
    },
    row(
        Launching::LauncherTemplate,
        "launcher_template",
        Written::Text,
        "a command line with {command}, {hosts} or {hostfile}, {ranks}, {nodes}, {slots}",
        "(none)",
        "a site's own command line, instead of launcher",
    ),
    row(
        Launching::Agent,
        "agent",
        Written::Text,
        "a program and its flags",
        "(ssh, in a Slurm job srun)",
        "the program that runs a command on a node: AGENT HOST COMMAND",
    ),
    row(
        Launching::HangAfter,
        "hang_after",
        Written::Time,
        "a time: 90s, 10min",
        "30s",
        "shortest silence of the job that is a hang; ten times the longest step, if that is more",
    ),
    row(
        Launching::ProbeLimit,
        "probe_limit",
        Written::Time,
        "a time: 90s, 10min",
        "15s",
        "longest time that a node may take to answer a probe",
    ),
    row(
        Launching::MaxRestarts,
        "max_restarts",
        Written::Whole,
        "0 or more",
        "50",
        "give up after this many restarts",
    ),
    row(
        Launching::StartOver,
        "start_over",
        Written::Flag,
        "true, false",
        "false",
        "start over from the seed when more is lost than can be rebuilt",
    ),
    row(
        Launching::State,
        "state",
        Written::Text,
        "a folder",
        "skt-hpl.launch",
        "folder of the state, which `status` shows and the next supervisor reads",
    ),
    row(
        Launching::Json,
        "json",
        Written::Text,
        "a file",
        "(none)",
        "a JSON record of the run, with the timeline of each failure",
    ),
];

impl Launching {
    /// This setting's row of [`LAUNCH`].
    pub fn info(self) -> &'static Row<Launching> {
        &LAUNCH[self as usize]
    }

    /// The error for an illegal value of this setting.
    pub fn wrong(self, value: &Value) -> ConfigError {
        ConfigError::NotUnderstood {
            at: At::named(&format!("launch.{}", self.info().key), &value.place),
            value: shown(&value.text),
            wanted: match self.info().written {
                Written::Whole => "a whole number",
                Written::Flag => "true or false",
                Written::Text => "a text",
                Written::Time => "a time",
            },
            legal: self.info().legal(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::toml;

    #[test]
    fn each_setting_is_in_its_own_row() {
        for (row, info) in LAUNCH.iter().enumerate() {
            assert_eq!(info.setting as usize, row, "{}", info.key);
        }
    }

    #[test]
    fn what_is_written_is_read_back_and_defaults_are_comments() {
        let read = |text: &str| toml::read(text.as_bytes(), "t").unwrap().launch;
        let texts = |draft: &LaunchDraft| -> Vec<(Launching, Vec<String>)> {
            let text = |value: &Value| value.text.clone();
            draft.iter().map(|(key, values)| (*key, values.iter().map(text).collect())).collect()
        };
        let table = "[launch]\nhosts = 'h'\nlauncher_arg = ['a b', '--c']\nhang_after = 5\n\
                     readmit = true\nnp = 4\n";
        let draft = read(table);
        assert_eq!(draft.len(), 5);
        assert_eq!(texts(&read(&toml::write_launch(&draft))), texts(&draft));
        let defaults = toml::write_launch(&LaunchDraft::new());
        assert!(read(&defaults).is_empty());
        // Each default is legal once its comment mark is removed.
        let lines = defaults.lines().filter_map(|line| line.strip_prefix("# "));
        let values = lines.filter(|line| line.contains(" = ") && !line.contains("= ("));
        let said: String = values.map(|line| format!("{line}\n")).collect();
        let known = LAUNCH.iter().filter(|info| info.has_default_value()).count();
        assert_eq!(read(&format!("[launch]\n{said}")).len(), known, "{said}");
    }
}
