use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::builder::PossibleValuesParser;
use clap::{Arg, Args, Parser as _};
use skt_host::exit::Exit;
use skt_host::shown::shown;
use skt_host::units::parse_seconds;

use super::dry_run::{self, BenchmarkNeeds};
use super::failed::Failed;
use super::flags::{self, Flag, Flags};
use super::run::{self, RunArgs};
use super::{Cli, Command, hosts, machine};
use crate::report::output;
use skt_checkpoint::checkpoint::decide::Resume;
use skt_checkpoint::checkpoint::methods::Method;
use skt_checkpoint::heartbeat::DataLocation;
use skt_config::launch::{LauncherChoice, RANKS_MAX, START, WATCH};
use skt_config::{ConfigError, LaunchDraft, LaunchSettings, Launching, RunSpec, Setting, TestSpec};
use skt_host::clock::now_unix;
use skt_host::starter::Starter;
use skt_host::{messages, program};
use skt_launch::hosts::{Host, ListedNodes, Pool, listed_in};
use skt_launch::launcher::{Launcher, Template};
use skt_launch::links::addresses::Networks;
use skt_launch::program::{Program, argument_to_text};
use skt_launch::state::StateFolder;
use skt_launch::{LaunchOptions, SharingLimits, probe, shape, subcommand_words};
use skt_run::protect::{self, SLURM_END, Settings, memory_split, read_domains, smallest_group};

/// Flags of `launch`.
#[derive(Debug, Clone, Args)]
pub(crate) struct LaunchArgs {
    /// The flags that override the `[launch]` table of a configuration.
    #[command(flatten)]
    given: Flags<Launching>,
    /// Take over a run whose supervisor ran on a machine that is gone for good: continue from its
    /// state, in a folder that survived, without waiting for its launcher
    #[arg(long, help_heading = WATCH)]
    head_lost: bool,
    /// Print what would run where, the memory of ranks, what follows a loss and the launcher's
    /// command, and start nothing
    #[arg(long, help_heading = START)]
    dry_run: bool,
    /// Run this program and not the benchmark: after `--` come its arguments. Exit code 0 is done,
    /// 75 is to be started again, as is a death by a signal or with a node, and any other ends
    /// `launch` with that code. Started again, it continues from its checkpoints, as with
    /// libskt-checkpoint
    #[arg(long, value_name = "FILE", help_heading = START)]
    program: Option<PathBuf>,
    /// Flags of the benchmark, see `skt-hpl run --help`; `mxp` and its flags, see `skt-hpl mxp
    /// --help`; or arguments of --program
    #[arg(last = true, value_name = "RUN OPTIONS", allow_hyphen_values = true)]
    command: Vec<OsString>,
}

impl Flag for Launching {
    fn arg(self) -> Arg {
        let arg = flags::arg(self.info());
        match self {
            Self::Launcher => arg.value_parser(PossibleValuesParser::new(self.info().names())),
            Self::LauncherArg => arg.allow_hyphen_values(true),
            Self::LauncherTemplate => arg.conflicts_with_all(["launcher", "launcher_arg"]),
            Self::Np => arg.value_parser(checked(parse_ranks)),
            Self::MaxRestarts => arg.value_parser(checked(str::parse::<usize>)),
            Self::Json => arg.value_parser(checked(|file| flags::next_to_a_report(file.into()))),
            Self::HangAfter | Self::ProbeLimit => arg.value_parser(checked(parse_seconds)),
            _ => arg,
        }
    }
}

fn checked<T, E>(
    parse: fn(&str) -> Result<T, E>,
) -> impl Fn(&str) -> Result<String, E> + Clone + Send + Sync + 'static
where
    T: 'static,
    E: 'static,
{
    move |text| parse(text).map(|_| text.to_owned())
}

fn parse_ranks(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| (1..=RANKS_MAX).contains(count));
    count.ok_or_else(|| format!("1 to {} ranks", RANKS_MAX))
}

pub(crate) fn execute(args: &LaunchArgs) -> Result<Exit, Failed> {
    let (options, needs) = options(args, &|name| std::env::var(name).ok())?;
    if args.dry_run {
        let folder = StateFolder::new(&options.settings.state);
        let earlier = folder.load_for_display()?;
        output::print(&dry_run::describe(&options, needs.as_ref(), earlier.as_ref()))?;
        return Ok(Exit::Passed);
    }
    Ok(skt_launch::run(options)?)
}

type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

type Planned = (LaunchOptions, Option<BenchmarkNeeds>);

fn options(args: &LaunchArgs, env: Env) -> Result<Planned, Failed> {
    match &args.program {
        None => options_of_benchmark(args, env).map(|(options, needs)| (options, Some(needs))),
        Some(program) => Ok((options_of_program(args, program, env)?, None)),
    }
}

fn options_of_benchmark(
    args: &LaunchArgs,
    env: Env,
) -> Result<(LaunchOptions, BenchmarkNeeds), Failed> {
    let command = texts(&args.command)?;
    let run = run_args(&command)?;
    let wanted = with_file(&args.given, run::load_launch(&run)?)?;
    let np = wanted.np;
    let mut nodes = nodes(&wanted, env)?.unwrap_or_else(|| ListedNodes::here(np.unwrap_or(1)));
    let slots = nodes.slots();
    let checked = run::load_checked(&RunArgs { ranks: Some(np.unwrap_or(slots)), ..run.clone() })?;
    let needed = checked.spec.max_ranks();
    let ranks = np.unwrap_or(needed);
    checked.require_ranks(ranks)?;
    if nodes.is_local {
        nodes = ListedNodes::here(ranks);
    }
    hosts::warn(&checked.warnings);
    let settings = Settings {
        domains: read_domains(&checked.checkpoint)?,
        ..Settings::read(&checked.checkpoint, &checked.spec)?
    };
    if settings.method_for(ranks) != Method::None
        && let Some(why) = settings.time_limit.unknown_end(env)
    {
        messages::print(format_args!("warning: {why}"));
    }
    let options = options_of_nodes(args, wanted, nodes, ranks, env)?;
    let pool = &options.pool;
    let rows = checksum_rows(&checked.spec, ranks);
    let shape = shape::judge(pool, ranks, &settings, rows, options.settings.no_spare);
    if !shape.summary.is_empty() {
        messages::print(format_args!("{}", shape.summary));
    }
    hosts::warn(&shape.warnings);
    let sharing = SharingLimits {
        rank_bytes: rank_bytes(pool, ranks, &checked.spec, &settings),
        n: checked.spec.tests().iter().map(|test| test.n).max(),
        groups: shape.groups,
        domains: settings.domains.clone(),
        most: settings.parities,
        is_strict: settings.method_for(ranks) == Method::Abft,
    };
    let keeps = DataLocation {
        run_id: settings.run_id.clone(),
        store: settings.store.clone(),
        images: settings.levels.folders(),
    };
    let needs = BenchmarkNeeds {
        rank_bytes: sharing.rank_bytes,
        method: settings.method_for(ranks),
        without_checkpoint: if args.dry_run {
            dry_run::without_checkpoint(&checked.spec, &settings)?
        } else {
            None
        },
        here_bytes: machine::available_bytes()?,
    };
    let checkpoint = match settings.resume {
        Resume::At(number) => Some(number),
        _ => None,
    };
    let options = LaunchOptions {
        command,
        threads: checked.spec.threads,
        helper_cores: settings.helper_cores,
        is_protected: settings.method_for(ranks) != Method::None,
        rank_bytes: kept_bytes(pool, ranks, &checked.spec, &settings),
        losable: shape.losable,
        sharing,
        run_id: settings.run_id,
        keeps: Some(keeps),
        parities: settings.parities,
        says_resume: checkpoint.is_none() && run.protect.draft().contains_key(&Setting::Resume),
        checkpoint,
        end_unix: settings.time_limit.end_unix(now_unix(), env(SLURM_END).as_deref()),
        ..options
    };
    Ok((options, needs))
}

/// A program's own flags are unknown here: its library reports what it asks of its checkpoints.
fn options_of_program(args: &LaunchArgs, file: &Path, env: Env) -> Result<LaunchOptions, Failed> {
    let wanted = with_file(&args.given, LaunchDraft::new())?;
    let of_benchmark = [
        (wanted.start_over, Launching::StartOver),
        (wanted.replace_suspects, Launching::ReplaceSuspects),
    ];
    for (is_set, setting) in of_benchmark {
        if is_set {
            return Err(Failed::new(format!(
                "--{} is for the benchmark: with --program the program decides this; leave the flag \
                 out",
                setting.info().flag()
            )));
        }
    }
    let found = program::found_in_path(file, env("PATH").unwrap_or_default());
    let found = found.and_then(|file| Some((probe::checksum_of(&file)?, file)));
    let (checksum, file) = found.ok_or_else(|| {
        Failed::new(format!(
            "--program: there is no {} here that this user may start; nodes need it at the same \
             path, too",
            file.display()
        ))
    })?;
    let np = wanted.np;
    let nodes = nodes(&wanted, env)?.or_else(|| np.map(ListedNodes::here));
    let nodes = nodes.ok_or_else(|| {
        Failed::new(
            "--program without a list of nodes (--hosts) needs the number of ranks: --np COUNT",
        )
    })?;
    let ranks = np.unwrap_or_else(|| nodes.slots());
    let run_id = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let options = options_of_nodes(args, wanted, nodes, ranks, env)?;
    let command = args.command.iter().map(|word| argument_to_text(word)).collect();
    let program_of_user = Some(Program { file, checksum });
    Ok(LaunchOptions { run_id, command, program_of_user, ..options })
}

/// Makes waiting ranks of Open MPI yield their core, which is needed with more ranks than cores.
/// Open MPI does not see that on its own, because its host list has a slot for each rank.
const YIELD: [&str; 3] = ["--mca", "mpi_yield_when_idle", "1"];

/// What the benchmark and any other program share; the rest is as for an unknown program.
fn options_of_nodes(
    args: &LaunchArgs,
    mut settings: LaunchSettings,
    nodes: ListedNodes,
    ranks: usize,
    env: Env,
) -> Result<LaunchOptions, Failed> {
    let slots = nodes.slots();
    let ListedNodes { hosts: listed, file, is_local, is_slurm, .. } = nodes;
    if slots < ranks {
        return Err(Failed::new(format!(
            "{ranks} ranks are needed, the nodes have {slots} slots: add nodes or slots to {file}"
        )));
    }
    let pool = pool(listed, ranks, settings.spares.as_deref())?;
    let launcher = launcher(&settings, is_slurm)?;
    if is_local
        && launcher == Launcher::Starter(Starter::Openmpi)
        && machine::cores().is_ok_and(|cores| ranks > cores)
    {
        settings.launcher_args.splice(0..0, YIELD.map(str::to_owned));
    }
    if let Launcher::Starter(starter) = launcher {
        let program = settings.launcher_program.as_deref();
        hosts::check_names(pool.everyone(), starter, program).map_err(Failed)?;
    }
    let launcher_agent = match launcher {
        Launcher::Starter(starter) if !is_local && settings.agent.is_none() => {
            hosts::agent_of_launcher(starter, &settings.launcher_args, env)
        }
        _ => None,
    };
    let program_file =
        program::file().map_err(|why| Failed::new(format!("/proc/self/exe: {why}")))?;
    let folder = std::env::current_dir().unwrap_or_default();
    is_text("the path of skt-hpl", program_file.as_os_str())?;
    is_text("the path of the working folder", folder.as_os_str())?;
    Ok(LaunchOptions {
        networks: Networks::from_arguments(&settings.launcher_args, env),
        launcher_agent,
        is_local,
        head_lost: args.head_lost,
        // Checkpoints that survive the least that any do.
        is_protected: true,
        parities: 1,
        sharing: SharingLimits { most: 1, ..SharingLimits::default() },
        threads: 1,
        settings,
        launcher,
        pool,
        ranks,
        program_file,
        ..LaunchOptions::default()
    })
}

/// The process rows of the largest grid, if it has checksums and takes all ranks.
fn checksum_rows(spec: &RunSpec, ranks: usize) -> Option<Vec<Vec<usize>>> {
    let largest = spec.tests().into_iter().max_by_key(TestSpec::ranks);
    let rows = largest.filter(|test| test.checksums > 0 && test.ranks() == ranks);
    rows.map(|test| protect::process_rows(&test))
}

/// Bytes of the largest rank, in the test that needs most.
fn rank_bytes(pool: &Pool, ranks: usize, spec: &RunSpec, settings: &Settings) -> u64 {
    max_of_tests(pool, ranks, spec, |test, names| {
        memory_split(test, settings, smallest_group(test, settings, names.into_iter())).total()
    })
}

/// Bytes of the segments of the largest rank, in the test that needs most; 0 without checkpoints.
fn kept_bytes(pool: &Pool, ranks: usize, spec: &RunSpec, settings: &Settings) -> u64 {
    max_of_tests(pool, ranks, spec, |test, names| {
        protect::segment_bytes(test, settings, names.into_iter())
    })
}

/// The most bytes of any test, of which `bytes` gives those of one from the host of each rank.
fn max_of_tests(
    pool: &Pool,
    ranks: usize,
    spec: &RunSpec,
    bytes: impl Fn(&TestSpec, Vec<&str>) -> u64,
) -> u64 {
    let of_ranks = |host: &Host| std::iter::repeat_n(host.name.clone(), host.slots);
    let names: Vec<String> = pool.active.iter().flat_map(of_ranks).take(ranks).collect();
    let of_test = |test: TestSpec| {
        let names = names.get(..test.ranks())?.iter().map(String::as_str).collect();
        Some(bytes(&test, names))
    };
    spec.tests().into_iter().filter_map(of_test).max().unwrap_or(0)
}

fn is_text<'a>(what: &'static str, text: &'a OsStr) -> Result<&'a str, Failed> {
    text.to_str().ok_or_else(|| {
        let text = shown(&text.display().to_string());
        Failed::new(format!(
            "{what} is not UTF-8 ({text}), which command lines of launchers and nodes have to be here"
        ))
    })
}

fn texts(words: &[OsString]) -> Result<Vec<String>, Failed> {
    words.iter().map(|word| is_text("a flag", word).map(str::to_owned)).collect()
}

/// The flags of the benchmark, checked before anything is started.
fn run_args(command: &[String]) -> Result<RunArgs, Failed> {
    let words = ["skt-hpl"].into_iter().chain(subcommand_words(command));
    match Cli::try_parse_from(words) {
        Ok(Cli { command: Some(Command::Run(run)), .. }) => Ok(*run),
        Ok(Cli { command: Some(Command::Mxp(mxp)), .. }) => Ok(mxp.into_run()),
        Ok(_) => unreachable!("`run` or `mxp` was given"),
        // Our message begins with `error: `, too.
        Err(error) => {
            let text = error.to_string();
            Err(Failed::new(text.strip_prefix("error: ").unwrap_or(&text)))
        }
    }
}

/// The flags, with the table `[launch]` of the configuration for those not given.
fn with_file(
    flags: &Flags<Launching>,
    mut file: LaunchDraft,
) -> Result<LaunchSettings, ConfigError> {
    use Launching::{Launcher, LauncherArg, LauncherProgram, LauncherTemplate};
    // If the command line names a launcher, the file's launcher settings do not apply.
    if [Launcher, LauncherTemplate].iter().any(|setting| flags.0.contains_key(setting)) {
        let settings = [Launcher, LauncherProgram, LauncherArg, LauncherTemplate];
        file.retain(|setting, _| !settings.contains(setting));
    }
    file.extend(flags.0.clone());
    let is_given = |setting: Launching| {
        let mut values = file.get(&setting).into_iter().flatten();
        values.any(|value| value.text != setting.info().default)
    };
    if let Some(template) = file.get(&LauncherTemplate).and_then(|values| values.first())
        && let Some(other) = [Launcher, LauncherArg].into_iter().find(|other| is_given(*other))
    {
        return Err(LauncherTemplate.at(&template.place).error(format!(
            "it replaces launcher and launcher_arg: leave {} or the template out",
            other.info().key
        )));
    }
    let json = file.get(&Launching::Json).and_then(|values| values.first());
    if let Some(value) = json.filter(|value| flags::next_to_a_report((&value.text).into()).is_err())
    {
        return Err(Launching::Json.wrong(value));
    }
    LaunchSettings::read(&file)
}

/// Divides the nodes: those that the ranks need come first, the others are spares.
fn pool(listed: Vec<Host>, ranks: usize, spares: Option<&Path>) -> Result<Pool, Failed> {
    let mut slots = 0;
    let (active, mut waiting): (Vec<_>, Vec<_>) = listed.into_iter().partition(|host| {
        let is_needed = slots < ranks;
        slots += host.slots;
        is_needed
    });
    if let Some(path) = spares {
        waiting.extend(hosts::read_spares(path)?);
    }
    Ok(Pool::new(active, waiting))
}

/// The nodes that are listed; `None` if there is no list.
fn nodes(wanted: &LaunchSettings, env: Env) -> Result<Option<ListedNodes>, Failed> {
    let nodes = match &wanted.hosts {
        Some(path) => Some(ListedNodes::read(path)?),
        None => listed_in(env)?,
    };
    nodes.iter().for_each(|nodes| hosts::warn(&nodes.warnings));
    Ok(nodes)
}

fn launcher(wanted: &LaunchSettings, is_slurm: bool) -> Result<Launcher, Failed> {
    if let Some(text) = &wanted.launcher_template {
        return Template::new(text)
            .map(Launcher::Template)
            .map_err(|why| Failed::new(format!("--launcher-template: {why}")));
    }
    let starter = match wanted.launcher {
        LauncherChoice::Openmpi => Starter::Openmpi,
        LauncherChoice::Mpich => Starter::Mpich,
        LauncherChoice::Slurm => Starter::Slurm,
        LauncherChoice::Auto if is_slurm => Starter::Slurm,
        LauncherChoice::Auto => {
            let program = wanted.launcher_program.as_deref().unwrap_or("mpirun");
            Starter::from_program(program).ok_or_else(|| {
                Failed::new(format!(
                    "no launcher: `{program} --version` names neither Open MPI nor Hydra; name it \
                     with --launcher and --launcher-program"
                ))
            })?
        }
    };
    Ok(Launcher::Starter(starter))
}

#[cfg(test)]
mod tests {
    use super::*;
    use skt_config::launch::LAUNCH;
    use skt_config::value::Written;

    #[derive(clap::Parser)]
    struct Only {
        #[command(flatten)]
        launch: LaunchArgs,
    }

    #[test]
    fn each_launcher_of_the_table_is_known() {
        for name in Launching::Launcher.info().names().into_iter().filter(|name| *name != "auto") {
            let line = format!("--launcher {name}");
            let wanted = with_file(&args(&line).given, LaunchDraft::new()).unwrap();
            let launcher = launcher(&wanted, false).unwrap();
            let shown = format!("{launcher:?}").to_lowercase();
            assert_eq!(shown, format!("starter({name})"));
        }
    }

    /// Every error that ends a command is printed after one `error: `.
    #[test]
    fn wrong_flags_of_the_benchmark_are_one_error() {
        let error = run_args(&["--nope".to_owned()]).expect_err("no such flag").0;
        assert!(error.starts_with("unexpected argument '--nope'"), "{error}");
    }

    #[test]
    fn a_run_of_hpl_mxp_is_named_by_its_first_word() {
        let command = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let mxp = run_args(&command("mxp --n 100 --matrix scaled")).unwrap();
        assert!(mxp.is_mxp && mxp.overrides.given.0.len() == 2, "{mxp:?}");
        let gemm = run_args(&command("mxp --n 100 --gemm bf16")).unwrap();
        let given = &gemm.overrides.given.0[&skt_config::param::Param::Gemm];
        assert!(gemm.is_mxp && given.len() == 1 && given[0].text == "bf16", "{gemm:?}");
        let hpl = run_args(&command("--n 100")).unwrap();
        assert!(!hpl.is_mxp && hpl.overrides.given.0.len() == 1, "{hpl:?}");
        for refused in ["--matrix scaled", "--gemm bf16", "--n 100 mxp", "mxp --nope"] {
            assert!(run_args(&command(refused)).is_err(), "{refused}");
        }
        let words = |line: &str| subcommand_words(&command(line)).collect::<Vec<_>>().join(" ");
        assert_eq!(words("mxp --n 100"), "mxp --n 100");
        assert_eq!(words("--n 100"), "run --n 100");
    }

    fn args(line: &str) -> LaunchArgs {
        Only::parse_from(std::iter::once("x").chain(line.split_whitespace())).launch
    }

    fn planned(args: &LaunchArgs, env: Env) -> Result<LaunchOptions, Failed> {
        options(args, env).map(|(options, _)| options)
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
        let options = planned(&args(&line), &none).unwrap();
        assert_eq!((options.ranks, options.run_id.as_str()), (4, "r"));
        assert_eq!(options.keeps.unwrap().images, [Path::new("/scratch"), Path::new("/pfs")]);
        assert_eq!(names(&options.pool.active), "n1:2 n2:2");
        assert_eq!(names(&options.pool.spares), "n3:2 n4:1");
        // Without a grid, all slots are used.
        let line = line.replace("--p 2 --q 2", "");
        assert_eq!(planned(&args(&line), &none).unwrap().ranks, 6);
        let line = line.replace("--n 100", "--n 100 --p 2 --q 4");
        let error = planned(&args(&line), &none).unwrap_err().0;
        assert!(error.starts_with("8 ranks are needed, the nodes have 6 slots: add"), "{error}");
    }

    #[test]
    fn ranks_that_share_the_cores_of_this_machine_yield_them() {
        let cores = machine::cores().unwrap();
        let extra = |ranks: usize, flags: &str| {
            let line = format!("--np {ranks} {flags} -- --n 100 --p 1 --q {ranks} --ft none");
            planned(&args(&line), &none).unwrap().settings.launcher_args.join(" ")
        };
        let own = "--launcher openmpi --launcher-arg=-v";
        assert_eq!(extra(cores, own), "-v");
        assert_eq!(extra(cores + 1, own), "--mca mpi_yield_when_idle 1 -v");
        assert_eq!(extra(cores + 1, "--launcher mpich"), "");
    }

    #[test]
    fn a_slip_of_the_pen_is_no_order_for_terabytes() {
        let folder = tempfile::tempdir().unwrap();
        let hosts = folder.path().join("h");
        std::fs::write(&hosts, "n1 slots=99999999999\n").unwrap();
        let line = format!("--hosts {} --launcher openmpi -- --n 100", hosts.display());
        let error = planned(&args(&line), &none).unwrap_err().0;
        assert!(error.ends_with("'99999999999' is no number of ranks (1 to 16777216)"), "{error}");
        let words = ["x", "--np", "99999999999", "--", "--n", "100"];
        let error = Only::try_parse_from(words).err().unwrap().to_string();
        assert!(error.contains("1 to 16777216 ranks"), "{error}");
    }

    #[test]
    fn jobs_of_batch_systems_bring_their_nodes() {
        let slurm = |name: &str| match name {
            "SLURM_JOB_ID" => Some("7".to_owned()),
            "SLURM_JOB_NODELIST" => Some("n[1-3]".to_owned()),
            "SLURM_TASKS_PER_NODE" => Some("2(x3)".to_owned()),
            _ => None,
        };
        let torn = |name: &str| match name {
            "SLURM_TASKS_PER_NODE" => Some("2(x2".to_owned()),
            "SLURM_JOB_CPUS_PER_NODE" => Some("64(x3)".to_owned()),
            _ => slurm(name),
        };
        let why = planned(&args("-- --n 100 --p 2 --q 2"), &torn).unwrap_err().0;
        assert!(why.starts_with("SLURM_TASKS_PER_NODE='2(x2' does not give"), "{why}");
        let options = planned(&args("-- --n 100 --p 2 --q 2"), &slurm).unwrap();
        assert_eq!(options.launcher, Launcher::Starter(Starter::Slurm));
        assert_eq!(names(&options.pool.active), "n1:2 n2:2");
        assert_eq!(names(&options.pool.spares), "n3:2");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("nodes");
        std::fs::write(&file, "n1\nn1\nn2\nn2\n").unwrap();
        for variable in ["PBS_NODEFILE", "LSB_DJOB_HOSTFILE", "OMPI_MCA_orte_default_hostfile"] {
            let job = |name: &str| (name == variable).then(|| file.display().to_string());
            let line = "--launcher mpich -- --n 100 --p 1 --q";
            let options = planned(&args(&format!("{line} 4")), &job).unwrap();
            assert!(!options.is_local);
            assert_eq!(names(&options.pool.active), "n1:2 n2:2");
            let few = planned(&args(&format!("{line} 5")), &job).unwrap_err().0;
            let want = format!("({variable}), and name it with --hosts");
            assert!(few.starts_with("5 ranks are needed") && few.ends_with(&want), "{few}");
        }
    }

    #[test]
    fn the_agent_of_the_launcher_reaches_nodes() {
        let folder = tempfile::tempdir().unwrap();
        let hosts = folder.path().join("h");
        std::fs::write(&hosts, "n1 slots=2\n").unwrap();
        let env = |name: &str| (name == "OMPI_MCA_plm_rsh_agent").then(|| "oarsh".to_owned());
        let agent = |flags: &str| {
            let line = format!("{flags} --launcher openmpi -- --n 100");
            planned(&args(&line), &env).unwrap().agent().map(str::to_owned)
        };
        let listed = format!("--hosts {}", hosts.display());
        assert_eq!(agent(&listed).as_deref(), Some("oarsh"));
        assert_eq!(agent(&format!("{listed} --agent rsh")).as_deref(), Some("rsh"));
        assert_eq!(agent("--np 2"), None, "this machine needs none");
    }

    #[test]
    fn without_a_list_all_is_local() {
        let options = planned(&args("--launcher openmpi --np 2 -- --n 100"), &none).unwrap();
        assert!(options.is_local && options.is_protected);
        assert_eq!(names(&options.pool.active), "localhost:2");
        let line = "--launcher openmpi -- --n 100 --p 2 --q 3 --ft none";
        let options = planned(&args(line), &none).unwrap();
        assert_eq!((options.ranks, options.is_protected), (6, false));
    }

    #[test]
    fn a_limit_may_be_as_long_as_a_user_likes() {
        let line = "--launcher openmpi --probe-limit 1e30 --hang-after 1e30 -- --n 100";
        let options = planned(&args(line), &none).unwrap();
        // The `int` in which ssh counts the seconds.
        assert_eq!(options.probe_limit().as_secs(), 2_147_483_647);
    }

    #[test]
    fn a_program_of_the_user_has_its_own_arguments() {
        let line = "--launcher openmpi --np 3 --program /bin/sh -- -c true";
        let options = planned(&args(line), &none).unwrap();
        let program = options.program_of_user.expect("a program");
        assert_eq!(
            (program.file, options.command),
            ("/bin/sh".into(), vec!["-c".into(), "true".into()])
        );
        assert_eq!((options.ranks, options.is_local, options.keeps), (3, true, None));
        let folder = tempfile::tempdir().unwrap();
        let hosts = folder.path().join("h");
        std::fs::write(&hosts, "n1 slots=2\nn2 slots=2\nn3 slots=2\n").unwrap();
        let line = format!("--hosts {} --launcher openmpi --program sh", hosts.display());
        let path = |name: &str| (name == "PATH").then(|| "/nowhere:/bin".to_owned());
        let options = planned(&args(&line), &path).unwrap();
        assert_eq!((options.ranks, names(&options.pool.spares)), (6, String::new()));
        assert_eq!(options.program_of_user.expect("found").file, Path::new("/bin/sh"));
        let options = planned(&args(&format!("{line} --np 4")), &path).unwrap();
        assert_eq!(names(&options.pool.spares), "n3:2");
        let error = |line: &str| {
            let line = format!("--launcher openmpi {line}");
            planned(&args(&line), &none).unwrap_err().0
        };
        assert!(error("--program /bin/sh").contains("needs the number of ranks: --np COUNT"));
        for flag in ["--start-over", "--replace-suspects"] {
            let printed = error(&format!("--np 2 {flag} --program /bin/sh"));
            assert!(printed.starts_with(&format!("{flag} is for the benchmark")), "{printed}");
        }
        assert!(error("--np 2 --program /bin").starts_with("--program: there is no /bin here"));
    }

    #[test]
    fn bad_flags_of_the_benchmark_are_refused_at_once() {
        let error = |line: &str| planned(&args(line), &none).unwrap_err().0;
        assert!(error("-- --n 100 --nosuch 3").contains("--nosuch"));
        assert!(error("-- --n 100 --nb 0").contains("--nb"));
        assert!(error("--launcher-template x -- --n 100").contains("no {command}"));
    }

    #[test]
    fn flags_override_the_table_of_the_configuration() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        std::fs::write(path("h"), "n1\nn2\nn3\n").unwrap();
        let toml = |table: &str| {
            let text = format!("n = 100\np = 1\nq = 2\n[launch]\nhosts = '{}'\n", path("h"));
            std::fs::write(path("c.toml"), text + table).unwrap();
        };
        let read = |flags: &str| {
            let line = format!("{flags} -- --config {}", path("c.toml"));
            planned(&args(&line), &none)
        };
        toml(
            "launcher = 'mpich'\nlauncher_arg = ['-iface', 'ib0']\nhang_after = '2min'\n\
             probe_limit = 7\nmax_restarts = 3\nstart_over = true\nstate = 's'\nagent = 'rsh'\n",
        );
        let options = read("").unwrap();
        assert_eq!(options.launcher, Launcher::Starter(Starter::Mpich));
        assert_eq!(names(&options.pool.active), "n1:1 n2:1");
        assert_eq!(options.probe_limit().as_secs(), 7);
        let settings = options.settings;
        assert_eq!(settings.launcher_args.join(" "), "-iface ib0");
        assert_eq!((settings.hang_after_seconds, settings.max_restarts), (120.0, 3));
        assert_eq!((settings.state, settings.agent), ("s".into(), Some("rsh".into())));
        assert!(settings.start_over);
        let options = read("--launcher slurm --hang-after 5s --state t --max-restarts 9").unwrap();
        assert_eq!(
            (options.launcher, options.settings.launcher_args.len()),
            (Launcher::Starter(Starter::Slurm), 0)
        );
        assert_eq!((options.settings.hang_after_seconds, options.settings.max_restarts), (5.0, 9));
        assert_eq!(options.settings.state, Path::new("t"));
        let refusal = |table: &str| {
            toml(table);
            let refusal = read("").unwrap_err().0;
            refusal.split_once("c.toml:").map(|(_, what)| what.to_owned()).unwrap_or(refusal)
        };
        assert_eq!(refusal("hots = 'x'"), "6: launch.hots: no such key; did you mean `hosts`?");
        assert!(refusal("np = 'two'").starts_with("6: launch.np: "), "{}", refusal("np = 'two'"));
        assert!(refusal("launcher = 'pbs'").contains("auto, openmpi, mpich, slurm"));
        assert!(refusal("hang_after = 'soon'").contains("a time: 90 or 90s, 10min"));
        let both = "launch.launcher_template: it replaces launcher and launcher_arg: leave";
        for others in ["launcher = 'slurm'", "launcher_arg = ['-x']"] {
            let refusal = refusal(&format!(
                "np = 2\n{others}\nlauncher_template = 'x {{hosts}} {{command}}'"
            ));
            assert!(refusal.starts_with(&format!("8: {both}")), "{refusal}");
        }
        toml("launcher = 'auto'\nlauncher_template = 'x {hosts} {command}'");
        assert!(matches!(read("").unwrap().launcher, Launcher::Template(_)));
        let refusal = read("--launcher-arg=-x").unwrap_err().0;
        assert!(refusal.contains(both), "{refusal}");
        assert_eq!(
            read("--launcher slurm --launcher-arg=-x").unwrap().launcher,
            Launcher::Starter(Starter::Slurm)
        );
    }

    #[test]
    fn each_default_and_each_example_is_legal() {
        use clap::CommandFactory as _;
        for info in LAUNCH {
            let flag = format!("--{}", info.flag());
            let values = [info.default, info.example.trim_matches('\'')];
            for value in values.into_iter().filter(|value| !value.starts_with('(')) {
                let words = match info.written {
                    Written::Flag => vec!["x", &flag],
                    _ => vec!["x", &flag, value],
                };
                let given = Only::parse_from(words).launch.given;
                assert!(given.0.contains_key(&info.setting), "{flag}");
                assert!(with_file(&given, LaunchDraft::new()).is_ok(), "{flag}");
            }
        }
        let help = Only::command().render_long_help().to_string();
        assert!(help.contains("Example: --hang-after 2min"), "{help}");
    }
}
