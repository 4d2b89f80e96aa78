//! The `[launch]` table of TOML: names, legal values and defaults of the flags of `skt-hpl launch`.
//!
//! Reading, writing and documenting work from [`LAUNCH`]; `cli::launch` decides what a value means.

use std::collections::BTreeMap;
use std::path::PathBuf;

use skt_host::named;
use skt_host::shown::shown;
use skt_host::units::parse_seconds;

use super::error::{At, ConfigError};
use super::field::{Field, Single, single};
use super::source::ValueSource;
use super::value::{Range, Row, Table, Value, Written, settings};

/// Of ranks in a list, more than any machine has had: a greater number is a typing error.
pub const RANKS_MAX: usize = 1 << 24;

const NODES: &str = "Nodes";
pub const START: &str = "Starting the ranks";
/// The heading of the flags that distinguish a hang from work.
pub const WATCH: &str = "Watching the job";

settings! {
    /// A setting of `skt-hpl launch`.
    Launching;
    /// The table of all settings of the launcher.
    LAUNCH;
    type Typed = LaunchSettings;
    type Field = dyn Field;
    const HAS_CODES: bool = false;

    Hosts {
        key: "hosts", heading: NODES, metavar: "FILE",
        legal: "a host file of Open MPI, MPICH or a batch system",
        default: "(those of the batch system's job, else this machine only)", example: "hosts",
        help: "nodes; those that the grid does not need are spares",
        field: Some(|settings| &mut settings.hosts),
    }
    Spares {
        key: "spares", heading: NODES, metavar: "FILE", legal: "a host file", default: "(none)",
        example: "spares",
        help: "further spare nodes, also those added to the file while the run is on",
        field: Some(|settings| &mut settings.spares),
    }
    Readmit {
        key: "readmit", heading: NODES, written: Written::Flag, legal: "true, false",
        default: "false",
        help: "use nodes again that failed an earlier probe",
        field: Some(|settings| &mut settings.readmit),
    }
    Np {
        key: "np", heading: NODES, metavar: "COUNT", written: Written::Whole,
        range: Some(Range::whole(1, RANKS_MAX)),
        default: "(what the largest grid of the configuration needs, else all slots)", example: "8",
        help: "ranks",
        field: Some(|settings| &mut settings.np),
    }
    Launcher {
        key: "launcher", heading: START, metavar: "NAME",
        choices: LauncherChoice::CHOICES, default: "auto", example: "mpich",
        help: "what starts the ranks. auto: slurm in a Slurm job, else what `mpirun` in PATH is; \
               openmpi: mpirun; mpich: Hydra, also of the derivatives of MPICH; slurm: srun, \
               inside an allocation",
        field: Some(|settings| &mut settings.launcher),
    }
    LauncherProgram {
        key: "launcher_program", heading: START, metavar: "PROGRAM", legal: "a program",
        default: "(mpirun, mpiexec.hydra or srun, from PATH)", example: "/opt/openmpi/bin/mpirun",
        help: "the launcher's program",
        field: Some(|settings| &mut settings.launcher_program),
    }
    LauncherArg {
        key: "launcher_arg", heading: START, metavar: "ARG", is_list: true,
        legal: "a list of arguments", default: "(none)", example: "--oversubscribe",
        help: "further arguments for the launcher; the flag has one, and may be repeated",
        field: Some(|settings| &mut settings.launcher_args),
    }
    LauncherTemplate {
        key: "launcher_template", heading: START, metavar: "LINE",
        legal: "a command line with {command}, {hosts} or {hostfile}, {ranks}, {nodes}, {slots}",
        default: "(none)", example: "'mpirun -np {ranks} -H {hosts} {command}'",
        help: "a site's own command line, instead of launcher",
        field: Some(|settings| &mut settings.launcher_template),
    }
    Agent {
        key: "agent", heading: START, metavar: "AGENT", legal: "a program and its flags",
        default: "(the launcher's, by its variables; else ssh, in a Slurm job srun)", example: "rsh",
        help: "the program that runs a command on a node: AGENT HOST COMMAND",
        field: Some(|settings| &mut settings.agent),
    }
    HangAfter {
        key: "hang_after", heading: WATCH, metavar: "TIME", written: Written::Time,
        legal: "a time: 90 or 90s, 10min", default: "30s", example: "2min",
        help: "shortest silence of the job that is a hang. Where a step takes longer, by the \
               DGEMM self-test or as measured, the limit is ten times the step; phases without \
               columns and waits for images have ten times the limit",
        field: Some(|settings| &mut settings.hang_after_seconds),
    }
    ProbeLimit {
        key: "probe_limit", heading: WATCH, metavar: "TIME", written: Written::Time,
        legal: "a time: 90 or 90s, 10min", default: "15s", example: "30s",
        help: "longest time that a node may take to answer a probe",
        field: Some(|settings| &mut settings.probe_limit_seconds),
    }
    MaxRestarts {
        key: "max_restarts", heading: WATCH, metavar: "COUNT", written: Written::Whole,
        legal: "0 or more", default: "50", example: "5",
        help: "give up after this many restarts",
        field: Some(|settings| &mut settings.max_restarts),
    }
    NoSpare {
        key: "no_spare", heading: WATCH, metavar: "WHAT", choices: NoSpare::CHOICES,
        default: "stop", example: "wait",
        help: "what follows the loss of a node without a spare. stop: end with 75, and the same \
               command resumes the run; wait: keep the other nodes and their checkpoint, and probe \
               the lost node until it answers or the time limit comes; spread: other nodes run its \
               ranks as well, if they have the memory",
        field: Some(|settings| &mut settings.no_spare),
    }
    StartOver {
        key: "start_over", heading: WATCH, written: Written::Flag, legal: "true, false",
        default: "false",
        help: "start over from the seed when more is lost than can be rebuilt",
        field: Some(|settings| &mut settings.start_over),
    }
    ReplaceSuspects {
        key: "replace_suspects", heading: WATCH, written: Written::Flag, legal: "true, false",
        default: "false",
        help: "with --ft abft: replace a node by a spare once two checks have found wrong numbers \
               that it has computed; it is out until --readmit",
        field: Some(|settings| &mut settings.replace_suspects),
    }
    State {
        key: "state", heading: WATCH, metavar: "FOLDER", legal: "a folder",
        default: "skt-hpl.launch", example: "/home/me/run7",
        help: "folder of the state, which `status` shows and the next supervisor reads",
        field: Some(|settings| &mut settings.state),
    }
    Json {
        key: "json", heading: WATCH, metavar: "FILE", legal: "a file", default: "(none)",
        example: "launch.json",
        help: "write a JSON record of the run, with the timeline of each failure",
        field: Some(|settings| &mut settings.json),
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LauncherChoice {
    /// What fits the job and the `mpirun` in PATH.
    #[default]
    Auto,
    /// `mpirun` of Open MPI.
    Openmpi,
    /// Hydra of MPICH and its derivatives.
    Mpich,
    /// `srun` inside an allocation.
    Slurm,
}

named!(LauncherChoice { Auto: "auto", Openmpi: "openmpi", Mpich: "mpich", Slurm: "slurm" });

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum NoSpare {
    /// The supervisor ends, and the same command resumes the run.
    #[default]
    Stop,
    /// The supervisor probes the lost nodes until they answer.
    Wait,
    /// Other nodes run the ranks of the lost nodes as well as their own.
    Spread,
}

single!(Self::named, Self::to_string => LauncherChoice, NoSpare);

named!(NoSpare { Stop: "stop", Wait: "wait", Spread: "spread" });

/// Each is described in its row of [`LAUNCH`]. The `Default` has no defaults of the rows yet.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LaunchSettings {
    pub hosts: Option<PathBuf>,
    pub spares: Option<PathBuf>,
    pub readmit: bool,
    pub np: Option<usize>,
    pub launcher: LauncherChoice,
    pub launcher_program: Option<String>,
    pub launcher_args: Vec<String>,
    pub launcher_template: Option<String>,
    pub agent: Option<String>,
    pub hang_after_seconds: f64,
    pub probe_limit_seconds: f64,
    pub max_restarts: usize,
    pub no_spare: NoSpare,
    pub start_over: bool,
    pub replace_suspects: bool,
    pub state: PathBuf,
    pub json: Option<PathBuf>,
}

impl LaunchSettings {
    /// The settings that a draft describes, with the defaults of the rows for what it leaves out.
    pub fn read(draft: &LaunchDraft) -> Result<Self, ConfigError> {
        let mut settings = Self::default();
        for row in LAUNCH {
            let field = row.field.expect("each row of this table has its field")(&mut settings);
            // Times are in seconds.
            let text = |text: &str| match (row.written, parse_seconds(text)) {
                (Written::Time, Ok(seconds)) => seconds.to_string(),
                (Written::Time, Err(_)) => String::new(),
                _ => text.to_owned(),
            };
            let Some(values) = draft.get(&row.setting).filter(|values| !values.is_empty()) else {
                if row.has_default_value() {
                    field.set(&[text(row.default)]).expect("a legal default");
                }
                continue;
            };
            let texts: Vec<String> = values.iter().map(|value| text(&value.text)).collect();
            field.set(&texts).ok_or_else(|| row.setting.wrong(&values[0]))?;
            if let Some(range) = row.range {
                let check = |value: &Value| row.setting.at(&value.place).check(range, &value.text);
                values.iter().try_for_each(check)?;
            }
        }
        Ok(settings)
    }
}

/// Settings of the launcher, as written; one that is not a list has one value.
pub type LaunchDraft = BTreeMap<Launching, Vec<Value>>;

impl Launching {
    pub fn at(self, place: &ValueSource) -> At {
        At::named(&format!("launch.{}", self.info().key), place)
    }

    pub fn wrong(self, value: &Value) -> ConfigError {
        let wanted = match self.info().written {
            Written::Whole => "a whole number",
            Written::Real => "a number",
            Written::Flag => "true or false",
            Written::Text => "a text",
            Written::Time => "a time",
        };
        let legal = self.info().legal();
        self.at(&value.place).not_understood(&shown(&value.text), wanted, &legal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toml;

    #[test]
    fn a_number_out_of_range_is_named_with_its_line() {
        let read = |text: &str| LaunchSettings::read(&toml::read(text.as_bytes(), "t")?.launch);
        let error = read("[launch]\nnp = 0\n").unwrap_err().to_string();
        assert_eq!(error, "t:2: launch.np: value 0 is out of range; legal: 1 to 16777216");
        assert_eq!(read("[launch]\nnp = 16777216\n").unwrap().np, Some(RANKS_MAX));
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
        let given: String = values.map(|line| format!("{line}\n")).collect();
        let known = LAUNCH.iter().filter(|info| info.has_default_value()).count();
        assert_eq!(read(&format!("[launch]\n{given}")).len(), known, "{given}");
    }
}
