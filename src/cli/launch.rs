//! `skt-hpl launch`: runs the benchmark to its end through the loss of nodes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Parser as _};
use skt_terms::exit::Exit;

use super::run::{self, RunArgs};
use super::{Cli, Command};
use crate::checkpoint::methods::Method;
use crate::config::value::Value;
use crate::config::{ConfigError, LaunchDraft, Launching, RunSpec, TestSpec};
use crate::machine::starter::Starter;
use crate::report::clock::now_unix;
use crate::report::output;
use crate::run::protect::deadline::SLURM_END;
use crate::run::protect::{self, Settings, parse_seconds, read_domains};
use crate::supervisor::hosts::{self, Host, HostsError, Pool};
use crate::supervisor::launcher::{Launcher, Template};
use crate::supervisor::links::addresses::Networks;
use crate::supervisor::shape;
use crate::supervisor::watch::Floors;
use crate::supervisor::{self, Options, SupervisorError};

const NODES: &str = "Nodes";
const START: &str = "Starting the ranks";
const WATCH: &str = "Watching the job";

/// The folder of the state, unless the flags name another.
pub const STATE_FOLDER: &str = "skt-hpl.launch";
const HANG_AFTER_SECONDS: f64 = 30.0;
const PROBE_LIMIT_SECONDS: f64 = 15.0;
const RESTARTS_MAX: usize = 50;

/// Flags of `launch`.
#[derive(Debug, Clone, Args)]
pub struct LaunchArgs {
    /// Nodes: a host file of Open MPI, MPICH or PBS. Nodes beyond those that the grid needs are
    /// spares [default: those of the Slurm or PBS job, else this machine only]
    #[arg(long, value_name = "FILE", help_heading = NODES)]
    pub hosts: Option<PathBuf>,
    /// Further spare nodes
    #[arg(long, value_name = "FILE", help_heading = NODES)]
    pub spares: Option<PathBuf>,
    /// Use nodes again that failed an earlier probe
    #[arg(long, help_heading = NODES)]
    pub readmit: bool,
    /// Ranks [default: what the largest grid of the configuration needs, else all slots]
    #[arg(long, value_name = "COUNT", value_parser = parse_ranks, help_heading = NODES)]
    pub np: Option<usize>,

    /// What starts the ranks [default: auto]
    #[arg(long, value_enum, value_name = "NAME", help_heading = START)]
    pub launcher: Option<LauncherName>,
    /// The launcher's program [default: mpirun, mpiexec.hydra or srun, from PATH]
    #[arg(long, value_name = "PROGRAM", help_heading = START)]
    pub launcher_program: Option<String>,
    /// One more argument for the launcher; may be repeated
    #[arg(long, value_name = "ARG", allow_hyphen_values = true, help_heading = START)]
    pub launcher_arg: Vec<String>,
    /// A site's own command line, in which {ranks}, {nodes}, {slots}, {hostfile}, {hosts} and
    /// {command} are filled in
    #[arg(long, value_name = "LINE", conflicts_with_all = ["launcher", "launcher_arg"])]
    #[arg(help_heading = START)]
    pub launcher_template: Option<String>,
    /// Program that runs a command on a node: AGENT HOST COMMAND [default: ssh, in a Slurm job
    /// srun]
    #[arg(long, value_name = "AGENT", help_heading = START)]
    pub agent: Option<String>,

    /// Shortest silence of the job that counts as a hang. Where a step takes longer, by the DGEMM
    /// self-test or as measured, the limit is ten times the step; phases without columns and waits
    /// for images have ten times the limit [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = parse_seconds, help_heading = WATCH)]
    pub hang_after: Option<f64>,
    /// Longest time that a node may take to answer a probe [default: 15s]
    #[arg(long, value_name = "TIME", value_parser = parse_seconds, help_heading = WATCH)]
    pub probe_limit: Option<f64>,
    /// Give up after this many restarts [default: 50]
    #[arg(long, value_name = "COUNT", help_heading = WATCH)]
    pub max_restarts: Option<usize>,
    /// Start over from the seed when more is lost than can be rebuilt
    #[arg(long, help_heading = WATCH)]
    pub start_over: bool,
    /// Take over a run whose supervisor ran on a machine that is gone for good: continue from its
    /// state, in a folder that survived, without waiting for its launcher
    #[arg(long, help_heading = WATCH)]
    pub head_lost: bool,
    /// Folder of the state, which `status` shows and the next supervisor reads [default:
    /// skt-hpl.launch]
    #[arg(long, value_name = "FOLDER", help_heading = WATCH)]
    pub state: Option<PathBuf>,
    /// Write a JSON record of the run, with the timeline of each failure
    #[arg(long, value_name = "FILE", help_heading = WATCH)]
    pub json: Option<PathBuf>,

    /// Flags of the benchmark, see `skt-hpl run --help`
    #[arg(last = true, value_name = "RUN OPTIONS", allow_hyphen_values = true)]
    pub command: Vec<String>,
}

fn parse_ranks(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| (1..=hosts::RANKS_MAX).contains(count));
    count.ok_or_else(|| format!("1 to {} ranks", hosts::RANKS_MAX))
}

/// Launchers by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LauncherName {
    /// Slurm in a Slurm job, else the launcher that `mpirun` in PATH belongs to.
    Auto,
    /// Open MPI's mpirun.
    Openmpi,
    /// Hydra, the launcher of MPICH and its derivatives.
    Mpich,
    /// Slurm's srun, inside an allocation.
    Slurm,
}

/// Why a job cannot be launched.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The flags after `--` are not legal.
    #[error("{0}")]
    Flags(String),
    /// The configuration is not legal or cannot be read.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A list of nodes is not legal.
    #[error(transparent)]
    Hosts(#[from] HostsError),
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The nodes have too few slots.
    #[error("{ranks} ranks are needed, the nodes have {slots} slots: add nodes or slots to {file}")]
    Slots {
        /// Number of ranks needed.
        ranks: usize,
        /// Number of slots.
        slots: usize,
        /// The list of nodes.
        file: String,
    },
    /// The template is not legal.
    #[error("--launcher-template: {0}")]
    Template(String),
    /// No launcher was found.
    #[error(
        "no launcher: `{program} --version` names neither Open MPI nor Hydra; name it with \
         --launcher and --launcher-program"
    )]
    NoLauncher {
        /// The program that was asked for its version.
        program: String,
    },
    /// A node is named by an address that the launcher's host files cannot hold.
    #[error(
        "node {host}: MPICH's host files have no addresses of version 6; name the node, or take \
         --launcher openmpi"
    )]
    Address {
        /// The node.
        host: String,
    },
    /// The supervisor cannot work.
    #[error(transparent)]
    Supervisor(#[from] SupervisorError),
}

/// Launches the job that the flags describe, and supervises it to its end.
///
/// # Errors
/// See [`LaunchError`].
pub fn execute(args: &LaunchArgs) -> Result<Exit, LaunchError> {
    let options = options(args, &|name| std::env::var(name).ok())?;
    Ok(supervisor::run(options)?)
}

type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

fn options(args: &LaunchArgs, env: Env) -> Result<Options, LaunchError> {
    let run = run_args(&args.command)?;
    let args = &with_file(args, &run::load_launch(&run)?)?;
    let found = find_hosts(args, env)?;
    let is_local = found.is_none();
    let (file, listed) = found.unwrap_or_else(|| {
        let here = Host { name: "localhost".into(), slots: args.np.unwrap_or(1) };
        ("--np".into(), vec![here])
    });
    let slots = listed.iter().map(|host| host.slots).sum();
    let checked =
        run::load_checked(&RunArgs { ranks: Some(args.np.unwrap_or(slots)), ..run.clone() })?;
    let needed = checked.spec.most_ranks();
    let ranks = args.np.unwrap_or(needed);
    checked.require_ranks(ranks)?;
    let mut listed = listed;
    if is_local {
        listed[0].slots = ranks;
    } else if slots < ranks {
        return Err(LaunchError::Slots { ranks, slots, file });
    }
    for warning in &checked.warnings {
        output::say(format_args!("warning: {warning}"));
    }
    let settings = Settings {
        domains: read_domains(&checked.checkpoint)?,
        ..Settings::read(&checked.checkpoint, &checked.spec)?
    };
    let pool = pool(listed, ranks, args.spares.as_deref())?;
    let launcher = launcher(args, env)?;
    if let Some(host) = pool.everyone().find(|host| host.name.contains(':'))
        && launcher == Launcher::Mpich
    {
        return Err(LaunchError::Address { host: host.name.clone() });
    }
    say_what_is_survived(&pool, ranks, &checked.spec, &settings);
    let rank_bytes = rank_bytes(&pool, ranks, &checked.spec, &settings);
    Ok(Options {
        launcher,
        program: args.launcher_program.clone(),
        extra: args.launcher_arg.clone(),
        agent: args.agent.clone(),
        networks: Networks::of(&args.launcher_arg, env),
        is_local,
        pool,
        ranks,
        threads: checked.spec.threads,
        helper_cores: settings.helper_cores,
        program_file: std::env::current_exe()
            .map_err(|source| LaunchError::File { path: "/proc/self/exe".into(), source })?,
        command: args.command.clone(),
        is_protected: settings.method_for(ranks) != Method::None,
        rank_bytes,
        run_id: settings.run_id,
        store: settings.store,
        image_folders: settings.levels.folders(),
        parities: settings.parities,
        says_resume: run.protect.resume.is_some(),
        state: args.state.clone().unwrap_or_else(|| STATE_FOLDER.into()),
        floors: Floors::from_columns(args.hang_after.unwrap_or(HANG_AFTER_SECONDS)),
        probe_limit: Duration::from_secs_f64(args.probe_limit.unwrap_or(PROBE_LIMIT_SECONDS)),
        restarts_max: args.max_restarts.unwrap_or(RESTARTS_MAX),
        head_lost: args.head_lost,
        readmit: args.readmit,
        start_over: args.start_over,
        end_unix: settings.time_limit.end_unix(now_unix(), env(SLURM_END).as_deref()),
        json: args.json.clone(),
    })
}

/// Reports how many losses the groups of ranks on these nodes survive, for the largest grid.
fn say_what_is_survived(pool: &Pool, ranks: usize, spec: &RunSpec, settings: &Settings) {
    let largest = spec.tests().into_iter().max_by_key(TestSpec::ranks);
    let rows = largest.filter(|test| test.checksums > 0 && test.ranks() == ranks);
    let rows = rows.map(|test| protect::process_rows(&test));
    let shape = shape::judge(pool, ranks, settings, rows);
    if !shape.summary.is_empty() {
        output::say(format_args!("{}", shape.summary));
    }
    for warning in &shape.warnings {
        output::say(format_args!("warning: {warning}"));
    }
}

/// Bytes of the segments of the largest rank, in the test that needs most; 0 without checkpoints.
fn rank_bytes(pool: &Pool, ranks: usize, spec: &RunSpec, settings: &Settings) -> u64 {
    let of_ranks = |host: &Host| std::iter::repeat_n(host.name.clone(), host.slots);
    let names: Vec<String> = pool.active.iter().flat_map(of_ranks).take(ranks).collect();
    let bytes = |test: TestSpec| {
        let names = names.get(..test.ranks())?.iter().map(String::as_str);
        Some(protect::segment_bytes(&test, settings, names))
    };
    spec.tests().into_iter().filter_map(bytes).max().unwrap_or(0)
}

/// The flags of the benchmark, checked before anything is started.
fn run_args(command: &[String]) -> Result<RunArgs, LaunchError> {
    let words = ["skt-hpl", "run"].into_iter().chain(command.iter().map(String::as_str));
    match Cli::try_parse_from(words) {
        Ok(Cli { command: Some(Command::Run(run)), .. }) => Ok(*run),
        Ok(_) => unreachable!("`run` was said"),
        // Our message begins with `error: `, too.
        Err(error) => {
            let text = error.to_string();
            Err(LaunchError::Flags(text.strip_prefix("error: ").unwrap_or(&text).to_owned()))
        }
    }
}

/// The flags, with the table `[launch]` of the configuration for what they do not say.
fn with_file(args: &LaunchArgs, file: &LaunchDraft) -> Result<LaunchArgs, ConfigError> {
    let first = |key: Launching| file.get(&key).and_then(|values| values.first());
    let text = |key| first(key).map(|value| value.text.clone());
    let path = |key| text(key).map(PathBuf::from);
    let is_set = |key| first(key).is_some_and(|value| value.text == "true");
    let read = |key: Launching| {
        let number = |value: &Value| value.text.parse().map_err(|_| key.wrong(value));
        first(key).map(number).transpose()
    };
    let ranks = |value: &Value| parse_ranks(&value.text).map_err(|_| Launching::Np.wrong(value));
    let seconds = |key: Launching| {
        let seconds = |value: &Value| parse_seconds(&value.text).map_err(|_| key.wrong(value));
        first(key).map(seconds).transpose()
    };
    if let (Some(_), Some(template)) =
        (first(Launching::Launcher), first(Launching::LauncherTemplate))
    {
        // A template replaces a launcher.
        return Err(Launching::LauncherTemplate.wrong(template));
    }
    // If the command line names a launcher, the file's launcher settings do not apply.
    let is_other = args.launcher.is_some() || args.launcher_template.is_some();
    let launcher = first(Launching::Launcher).filter(|_| !is_other);
    let launcher = launcher.map(|value| {
        <LauncherName as clap::ValueEnum>::from_str(&value.text, false)
            .map_err(|_| Launching::Launcher.wrong(value))
    });
    let mut launcher_arg = args.launcher_arg.clone();
    if launcher_arg.is_empty() && !is_other {
        let values = file.get(&Launching::LauncherArg).map_or(&[][..], |values| values);
        launcher_arg = values.iter().map(|value| value.text.clone()).collect();
    }
    let (program, template) = (Launching::LauncherProgram, Launching::LauncherTemplate);
    Ok(LaunchArgs {
        head_lost: args.head_lost,
        hosts: args.hosts.clone().or_else(|| path(Launching::Hosts)),
        spares: args.spares.clone().or_else(|| path(Launching::Spares)),
        readmit: args.readmit || is_set(Launching::Readmit),
        np: args.np.or(first(Launching::Np).map(ranks).transpose()?),
        launcher: args.launcher.or(launcher.transpose()?),
        launcher_program: args
            .launcher_program
            .clone()
            .or_else(|| text(program).filter(|_| !is_other)),
        launcher_arg,
        launcher_template: args
            .launcher_template
            .clone()
            .or_else(|| text(template).filter(|_| !is_other)),
        agent: args.agent.clone().or_else(|| text(Launching::Agent)),
        hang_after: args.hang_after.or(seconds(Launching::HangAfter)?),
        probe_limit: args.probe_limit.or(seconds(Launching::ProbeLimit)?),
        max_restarts: args.max_restarts.or(read(Launching::MaxRestarts)?),
        start_over: args.start_over || is_set(Launching::StartOver),
        state: args.state.clone().or_else(|| path(Launching::State)),
        json: args.json.clone().or_else(|| path(Launching::Json)),
        command: args.command.clone(),
    })
}

/// Divides the nodes: those that the ranks need come first, the others are spares.
fn pool(listed: Vec<Host>, ranks: usize, spares: Option<&Path>) -> Result<Pool, LaunchError> {
    let mut slots = 0;
    let (active, mut waiting): (Vec<_>, Vec<_>) = listed.into_iter().partition(|host| {
        let is_needed = slots < ranks;
        slots += host.slots;
        is_needed
    });
    if let Some(path) = spares {
        waiting.extend(read_hosts(path)?);
    }
    Ok(Pool::new(active, waiting))
}

fn read_hosts(path: &Path) -> Result<Vec<Host>, LaunchError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| LaunchError::File { path: path.to_owned(), source })?;
    let file = path.display().to_string();
    let hosts = hosts::parse(&text, &file)?;
    for Host { name, slots } in hosts::repeated(&text, &hosts) {
        output::say(format_args!(
            "warning: {file}: several lines name {name}: it gets the {slots} ranks that they add \
             up to; name it once, with slots=COUNT"
        ));
    }
    Ok(hosts)
}

/// The list of nodes and its name; `None` if there is no list.
fn find_hosts(args: &LaunchArgs, env: Env) -> Result<Option<(String, Vec<Host>)>, LaunchError> {
    if let Some(path) = &args.hosts {
        return Ok(Some((path.display().to_string(), read_hosts(path)?)));
    }
    if let Some(list) = env("SLURM_JOB_NODELIST") {
        let names = hosts::expand_slurm(&list)?;
        let per_node = ["SLURM_TASKS_PER_NODE", "SLURM_JOB_CPUS_PER_NODE"];
        let counts = per_node.into_iter().find_map(|name| hosts::expand_tasks(&env(name)?));
        let counts = counts.unwrap_or_default();
        let slots = |index: usize| counts.get(index).copied().unwrap_or(1);
        let host = |(index, name)| Host { name, slots: slots(index) };
        let all = names.into_iter().enumerate().map(host).collect();
        return Ok(Some(("the Slurm allocation".into(), all)));
    }
    if let Some(path) = env("PBS_NODEFILE") {
        let hosts = read_hosts(Path::new(&path))?;
        return Ok(Some((path, hosts)));
    }
    Ok(None)
}

fn launcher(args: &LaunchArgs, env: Env) -> Result<Launcher, LaunchError> {
    if let Some(text) = &args.launcher_template {
        return Template::new(text).map(Launcher::Template).map_err(LaunchError::Template);
    }
    Ok(match args.launcher.unwrap_or(LauncherName::Auto) {
        LauncherName::Openmpi => Launcher::Openmpi,
        LauncherName::Mpich => Launcher::Mpich,
        LauncherName::Slurm => Launcher::Slurm,
        LauncherName::Auto if args.hosts.is_none() && env("SLURM_JOB_ID").is_some() => {
            Launcher::Slurm
        }
        LauncherName::Auto => {
            let program = args.launcher_program.as_deref().unwrap_or("mpirun");
            match Starter::of_program(program) {
                Some(Starter::Openmpi) => Launcher::Openmpi,
                Some(Starter::Mpich) => Launcher::Mpich,
                _ => return Err(LaunchError::NoLauncher { program: program.to_owned() }),
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Only {
        #[command(flatten)]
        launch: LaunchArgs,
    }

    #[test]
    fn the_table_names_each_launcher() {
        let name = |launcher: &LauncherName| launcher.to_possible_value().expect("none is hidden");
        let names = LauncherName::value_variants().iter().map(name);
        let names: Vec<String> = names.map(|value| value.get_name().to_owned()).collect();
        assert_eq!(names, Launching::Launcher.info().choices);
    }

    /// Every error that ends a command is printed after one `error: `.
    #[test]
    fn wrong_flags_of_the_benchmark_are_one_error() {
        let error = run_args(&["--nope".to_owned()]).expect_err("no such flag").to_string();
        assert!(error.starts_with("unexpected argument '--nope'"), "{error}");
    }

    fn args(line: &str) -> LaunchArgs {
        Only::parse_from(std::iter::once("x").chain(line.split_whitespace())).launch
    }

    fn none(_: &str) -> Option<String> {
        None
    }

    fn names(hosts: &[Host]) -> String {
        let all: Vec<String> =
            hosts.iter().map(|host| format!("{}:{}", host.name, host.slots)).collect();
        all.join(" ")
    }

    #[test]
    fn nodes_beyond_the_grid_are_spares() {
        let folder = tempfile::tempdir().unwrap();
        let (hosts, spares) = (folder.path().join("h"), folder.path().join("s"));
        std::fs::write(&hosts, "n1 slots=2\nn2 slots=2\nn3 slots=2\n").unwrap();
        std::fs::write(&spares, "n4\n").unwrap();
        let line = format!(
            "--hosts {} --spares {} --launcher openmpi -- --n 100 --p 2 --q 2 --run-id r \
             --level local:/scratch,global:/pfs",
            hosts.display(),
            spares.display()
        );
        let options = super::options(&args(&line), &none).unwrap();
        assert_eq!((options.ranks, options.run_id.as_str()), (4, "r"));
        assert_eq!(options.image_folders, [Path::new("/scratch"), Path::new("/pfs")]);
        assert_eq!(names(&options.pool.active), "n1:2 n2:2");
        assert_eq!(names(&options.pool.spares), "n3:2 n4:1");
        // Without a grid, all slots are used.
        let line = line.replace("--p 2 --q 2", "");
        assert_eq!(super::options(&args(&line), &none).unwrap().ranks, 6);
        let line = line.replace("--n 100", "--n 100 --p 2 --q 4");
        let error = super::options(&args(&line), &none).unwrap_err().to_string();
        assert!(error.starts_with("8 ranks are needed, the nodes have 6 slots: add"), "{error}");
    }

    #[test]
    fn a_slip_of_the_pen_is_no_order_for_terabytes() {
        let folder = tempfile::tempdir().unwrap();
        let hosts = folder.path().join("h");
        std::fs::write(&hosts, "n1 slots=99999999999\n").unwrap();
        let line = format!("--hosts {} --launcher openmpi -- --n 100", hosts.display());
        let error = super::options(&args(&line), &none).unwrap_err().to_string();
        assert!(error.ends_with("'99999999999' is no number of ranks (1 to 16777216)"), "{error}");
        let words = ["x", "--np", "99999999999", "--", "--n", "100"];
        let error = Only::try_parse_from(words).err().unwrap().to_string();
        assert!(error.contains("1 to 16777216 ranks"), "{error}");
    }

    #[test]
    fn slurm_and_pbs_jobs_bring_their_nodes() {
        let slurm = |name: &str| match name {
            "SLURM_JOB_ID" => Some("7".to_owned()),
            "SLURM_JOB_NODELIST" => Some("n[1-3]".to_owned()),
            "SLURM_TASKS_PER_NODE" => Some("2(x3)".to_owned()),
            _ => None,
        };
        let options = super::options(&args("-- --n 100 --p 2 --q 2"), &slurm).unwrap();
        assert_eq!(options.launcher, Launcher::Slurm);
        assert_eq!(names(&options.pool.active), "n1:2 n2:2");
        assert_eq!(names(&options.pool.spares), "n3:2");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("nodes");
        std::fs::write(&file, "n1\nn1\nn2\nn2\n").unwrap();
        let pbs = |name: &str| (name == "PBS_NODEFILE").then(|| file.display().to_string());
        let options =
            super::options(&args("--launcher mpich -- --n 100 --p 1 --q 4"), &pbs).unwrap();
        assert_eq!(names(&options.pool.active), "n1:2 n2:2");
    }

    #[test]
    fn without_a_list_all_is_local() {
        let options = super::options(&args("--launcher openmpi --np 2 -- --n 100"), &none).unwrap();
        assert!(options.is_local && options.is_protected);
        assert_eq!(names(&options.pool.active), "localhost:2");
        let line = "--launcher openmpi -- --n 100 --p 2 --q 3 --ft none";
        let options = super::options(&args(line), &none).unwrap();
        assert_eq!((options.ranks, options.is_protected), (6, false));
    }

    #[test]
    fn bad_flags_of_the_benchmark_are_told_before_anything_starts() {
        let error = |line: &str| super::options(&args(line), &none).unwrap_err().to_string();
        assert!(error("-- --n 100 --nosuch 3").contains("--nosuch"));
        assert!(error("-- --n 100 --nb 0").contains("--nb"));
        assert!(error("--launcher-template x -- --n 100").contains("no {command}"));
    }

    #[test]
    fn the_table_of_the_configuration_says_what_flags_say_and_flags_override_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        std::fs::write(path("h"), "n1\nn2\nn3\n").unwrap();
        let toml = |table: &str| {
            let text = format!("n = 100\np = 1\nq = 2\n[launch]\nhosts = '{}'\n", path("h"));
            std::fs::write(path("c.toml"), text + table).unwrap();
        };
        let read = |flags: &str| {
            let line = format!("{flags} -- --config {}", path("c.toml"));
            super::options(&args(&line), &none)
        };
        toml(
            "launcher = 'mpich'\nlauncher_arg = ['-iface', 'ib0']\nhang_after = '2min'\n\
             probe_limit = 7\nmax_restarts = 3\nstart_over = true\nstate = 's'\nagent = 'rsh'\n",
        );
        let options = read("").unwrap();
        assert_eq!(
            (options.launcher, options.extra.join(" ")),
            (Launcher::Mpich, "-iface ib0".into())
        );
        assert_eq!(names(&options.pool.active), "n1:1 n2:1");
        assert_eq!((options.floors.columns_seconds, options.restarts_max), (120.0, 3));
        assert_eq!((options.probe_limit.as_secs(), options.start_over), (7, true));
        assert_eq!((options.state, options.agent), ("s".into(), Some("rsh".into())));
        let options = read("--launcher slurm --hang-after 5s --state t --max-restarts 9").unwrap();
        assert_eq!((options.launcher, options.extra.len()), (Launcher::Slurm, 0));
        assert_eq!((options.floors.columns_seconds, options.restarts_max), (5.0, 9));
        assert_eq!(options.state, Path::new("t"));
        let said = |table: &str| {
            toml(table);
            let said = read("").unwrap_err().to_string();
            said.split_once("c.toml:").map(|(_, what)| what.to_owned()).unwrap_or(said)
        };
        assert_eq!(said("hots = 'x'"), "6: launch.hots: no such key; did you mean `hosts`?");
        assert!(said("np = 'two'").starts_with("6: launch.np: "), "{}", said("np = 'two'"));
        assert!(said("launcher = 'pbs'").contains("auto, openmpi, mpich, slurm"));
        assert!(said("hang_after = 'soon'").contains("a time: 90s, 10min"));
        assert!(said("np = 2\nlauncher = 'slurm'\nlauncher_template = 'x'").starts_with("8: "));
    }

    #[test]
    fn each_setting_of_the_table_has_a_flag_of_its_name() {
        use clap::CommandFactory as _;
        let command = Only::command();
        for info in &crate::config::launch::LAUNCH {
            let flag = info.key.replace('_', "-");
            let known = command.get_arguments().any(|arg| arg.get_long() == Some(&flag));
            assert!(known, "{flag}");
        }
    }
}
