use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use skt_health::environment::library::VARIABLE;
use skt_host::exit::Exit;
use skt_host::units::parse_seconds;

use super::progress::{ProgressArgs, ProgressMode};
use super::run::start_mpi;
use super::{blas, flags, hosts};
use crate::report::output;
use skt_config::ConfigError;
use skt_host::starter::Starter;
use skt_host::{launcher_rank, messages, program};
use skt_launch::hosts::{Host, openmpi_file};
use skt_launch::launcher::Launcher;
use skt_run::progress::Progress;
use skt_screen::Failed;
use skt_screen::limit::{LONGEST_SECONDS, Limit};
use skt_screen::report::ScreenReport;
use skt_screen::results::Results;
use skt_screen::run::{self, Request, ScreeningEnd};
use skt_screen::screening::{self, Screened, Screening};
use skt_screen::verdict::{TOLERANCE, Verdicts, judge};
use skt_solver::comm::threads::run as run_ranks;

const FOUND: u8 = 1;
/// A screening is given up after this many times `--time`, plus [`FLOOR_SECONDS`].
const PATIENCE: f64 = 10.0;
const FLOOR_SECONDS: f64 = 900.0;
/// More than the parts of a screening, each of which has its own limit.
const MAX_PARTS: f64 = 10.0;

/// The exit codes, in the help.
pub(crate) const AFTER_HELP: &str = "\
Examples:
  mpirun --hostfile hosts --map-by ppr:1:node --bind-to none skt-hpl screen
                                       one rank a node, with all its cores
  srun --ntasks-per-node=1 --cpus-per-task=64 skt-hpl screen
  skt-hpl screen --hosts hosts --good good --bad bad
                                       starts mpirun, without the hosts out of reach

Exit codes:
  0   all hosts and links are well
  1   one is not
  2   bad input or environment";

/// Flags of `screen`.
#[derive(Debug, Args)]
pub(crate) struct ScreenArgs {
    /// Start the ranks on the hosts of this host file, one on each; hosts out of reach are reported
    /// and skipped
    #[arg(long, value_name = "FILE")]
    pub hosts: Option<PathBuf>,
    /// Systems that each node solves alone
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// The time for all, if all is well; N follows from it and from the measured rates
    #[arg(long, value_name = "TIME", default_value = "2min", value_parser = parse_time)]
    pub time: f64,
    /// Order of the systems, instead of one that follows from the time
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub n: Option<u32>,
    /// Threads of a rank [default: its share of the cores that it may use]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub threads: Option<u32>,
    /// BLAS to call: the built-in one, the fastest that all nodes have (auto), another by its name,
    /// e.g. mkl_rt, or by its file [default: the first that the loader finds, else built-in]
    #[arg(long, value_name = "LIBRARY", env = VARIABLE, hide_env_values = true)]
    pub blas: Option<String>,
    /// How much slower than the nodes of its kind a node is at least to be called slow, as a share;
    /// links and memory: 0.5, or this if it is more
    #[arg(long, value_name = "SHARE", default_value_t = TOLERANCE, value_parser = parse_share)]
    pub tolerance: f64,
    /// Compare ranks instead of hosts, for instance one on each socket
    #[arg(long)]
    pub by_rank: bool,
    /// Also write the results as a JSON document; - prints it instead of the text
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write the hosts that are well into this host file
    #[arg(long, value_name = "FILE", conflicts_with = "by_rank")]
    #[arg(value_parser = flags::file_next_to_a_report())]
    pub good: Option<PathBuf>,
    /// Write the other hosts into this host file
    #[arg(long, value_name = "FILE", conflicts_with = "by_rank")]
    #[arg(value_parser = flags::file_next_to_a_report())]
    pub bad: Option<PathBuf>,
    /// With --hosts, the program that runs a command on a host: AGENT HOST COMMAND
    /// [default: that of the launcher's arguments or variables, else ssh]
    #[arg(long, value_name = "AGENT", requires = "hosts")]
    pub agent: Option<String>,
    /// With --hosts, the launcher: mpirun of Open MPI, or of MPICH
    #[arg(long, value_name = "PROGRAM", default_value = "mpirun", requires = "hosts")]
    pub launcher_program: String,
    /// With --hosts, a further argument of the launcher; may be repeated
    #[arg(long, value_name = "ARG", requires = "hosts", allow_hyphen_values = true)]
    pub launcher_arg: Vec<String>,
    /// When to show progress.
    #[command(flatten)]
    pub progress: ProgressArgs,
    /// Print the results for the process that has started this one
    #[arg(long, hide = true)]
    pub raw: bool,
}

fn parse_time(text: &str) -> Result<f64, String> {
    let seconds = parse_seconds(text).map_err(|why| why.to_string())?;
    let is_legal = (1.0..=86_400.0).contains(&seconds);
    is_legal.then_some(seconds).ok_or_else(|| "1s to 1d".to_owned())
}

fn parse_share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.01..1.0).contains(share));
    share.ok_or_else(|| "a share from 0.01 to below 1".to_owned())
}

/// Screens the hosts. Under a launcher, all ranks take part, and rank 0 prints.
pub(crate) fn execute(args: &ScreenArgs) -> ExitCode {
    let is_launched = launcher_rank::size().is_some();
    let done = match &args.hosts {
        Some(_) if is_launched && !launcher_rank::is_on_a_terminal_of_slurm() => {
            if launcher_rank::is_first() {
                let why = "--hosts starts the ranks itself: leave the launcher out";
                messages::print(format_args!("error: {why}"));
            }
            Ok(Exit::BadInput.code())
        }
        Some(file) => with_hosts(args, file),
        None if is_launched => under_launcher(args),
        None => alone(args),
    };
    let code = done.unwrap_or_else(Failed::report);
    if code != 0 {
        launcher_rank::defer_to_rank0(code);
    }
    code.into()
}

fn request(args: &ScreenArgs) -> Request {
    Request {
        n: args.n.map(|n| n as usize),
        rounds: args.rounds as usize,
        seconds: args.time,
        threads: args.threads.map(|threads| threads as usize),
        by_rank: args.by_rank,
    }
}

/// One node, which is compared with itself.
fn alone(args: &ScreenArgs) -> Result<u8, Failed> {
    can_be_shown(args)?;
    let blas = blas::choose_by_flag(args.blas.as_deref());
    let mut ended = run_ranks(1, |world| {
        let mut progress = args.progress.progress();
        run::run(&world, &request(args), &blas, &Limit::default(), &mut progress)
    });
    match ended.pop().expect("one rank")? {
        ScreeningEnd::Led { results, .. } => {
            let verdicts = judge(&results, args.tolerance);
            show(args, &results, &verdicts, &Listed::default())?;
            Ok(exit_code(args, &results, &verdicts))
        }
        ScreeningEnd::Followed(code) => Ok(code),
    }
}

fn under_launcher(args: &ScreenArgs) -> Result<u8, Failed> {
    let blas = blas::choose_by_flag(args.blas.as_deref());
    let mpi = start_mpi()?;
    let limit = Limit::default();
    let world = mpi.watched_comm(limit.watch())?;
    let mut progress =
        if launcher_rank::is_first() { args.progress.progress() } else { Progress::off() };
    // The other ranks wait for rank 0, so if it fails, all end.
    let may_begin = if world.rank() == 0 { can_be_shown(args) } else { Ok(()) };
    let ended = may_begin
        .map_err(Failed::from)
        .and_then(|()| run::run(&world, &request(args), &blas, &limit, &mut progress));
    drop(progress);
    let (shown, is_any_silent) = match ended {
        Ok(ScreeningEnd::Followed(code)) => {
            mpi.comm()?.barrier()?;
            return Ok(code);
        }
        Ok(ScreeningEnd::Led { results, is_any_silent }) => {
            let verdicts = judge(&results, args.tolerance);
            let code = exit_code(args, &results, &verdicts);
            // Before the results are written: that may take long on a slow file system, and the
            // other ranks wait for rank 0 no longer than for a node that is lost. From here on they
            // wait in the barrier: a launcher may end all ranks when one ends with another code
            // than 0.
            let is_any_silent = is_any_silent || run::dismiss(&world, &limit, code).is_err();
            let shown = show(args, &results, &verdicts, &Listed::default());
            (shown.map(|()| code), is_any_silent)
        }
        Err(why) => (Err(why), true),
    };
    let code = shown.unwrap_or_else(Failed::report);
    if is_any_silent {
        // A rank that does not answer would keep the others from ending.
        launcher_rank::defer_to_rank0(code);
        mpi.comm()?.abort("a rank does not answer", code.into());
    }
    mpi.comm()?.barrier()?;
    Ok(code)
}

/// Refuses files that cannot be written, or that would replace the list of hosts or each other,
/// before minutes are spent on their contents.
fn can_be_shown(args: &ScreenArgs) -> Result<(), ConfigError> {
    let named = [
        (&args.json, "the file of --json"),
        (&args.good, "the file of --good"),
        (&args.bad, "the file of --bad"),
        (&args.hosts, "the file of --hosts"),
    ];
    let named: Vec<(&Path, &'static str)> =
        named.iter().filter_map(|(file, what)| Some((file.as_deref()?, *what))).collect();
    let reports = named.len() - usize::from(args.hosts.is_some());
    (0..reports).try_for_each(|report| {
        output::must_be_writable(named[report].0)?;
        output::must_not_replace(named[report].0, &named[report + 1..])
    })
}

fn with_hosts(args: &ScreenArgs, file: &Path) -> Result<u8, Failed> {
    can_be_shown(args)?;
    let hosts = hosts::read(file)?;
    let starter = Starter::from_program(&args.launcher_program).ok_or_else(|| {
        let program = &args.launcher_program;
        Failed::new(format!("{program} is no mpirun of Open MPI or MPICH: see --launcher-program"))
    })?;
    let program = Some(args.launcher_program.as_str());
    hosts::check_names(hosts.iter(), starter, program).map_err(Failed::new)?;
    let own = program::file()?;
    let env = |name: &str| std::env::var(name).ok();
    let named = || hosts::agent_of_launcher(starter, &args.launcher_arg, &env);
    let launcher_agent = if args.agent.is_none() { named() } else { None };
    let Screened { results, own_names } = screening::run(&Screening {
        hosts: &hosts,
        launcher: Launcher::Starter(starter),
        program: &args.launcher_program,
        extra: &args.launcher_arg,
        agent: args.agent.as_deref(),
        launcher_agent: launcher_agent.as_deref(),
        command: &command(args, &own),
        longest: longest(args),
        end_patience: screening::END_PATIENCE,
    })?;
    let verdicts = judge(&results, args.tolerance);
    show(args, &results, &verdicts, &Listed { hosts, own_names })?;
    Ok(exit_code(args, &results, &verdicts))
}

/// The longest time of a start. With `--n` the work does not follow from `--time`: then only the
/// parts have limits that bind, which follow from the measured rates.
fn longest(args: &ScreenArgs) -> Duration {
    let seconds = match args.n {
        Some(_) => MAX_PARTS * LONGEST_SECONDS,
        None => FLOOR_SECONDS + PATIENCE * args.time,
    };
    Duration::from_secs_f64(seconds)
}

fn command(args: &ScreenArgs, program: &Path) -> Vec<String> {
    let mut words = vec![program.display().to_string(), "screen".into(), "--raw".into()];
    words.push(format!("--rounds={}", args.rounds));
    words.push(format!("--time={}s", args.time));
    words.extend(args.n.map(|n| format!("--n={n}")));
    words.extend(args.threads.map(|threads| format!("--threads={threads}")));
    words.extend(args.blas.as_ref().map(|blas| format!("--blas={blas}")));
    if args.by_rank {
        words.push("--by-rank".into());
    }
    if args.progress.mode == ProgressMode::Off {
        words.push("--progress=off".into());
    }
    words
}

#[derive(Default)]
struct Listed {
    hosts: Vec<Host>,
    /// What they call themselves, by their names in the list.
    own_names: BTreeMap<String, String>,
}

fn exit_code(args: &ScreenArgs, results: &Results, verdicts: &Verdicts) -> u8 {
    if args.raw {
        0
    } else if results.refused.is_some() {
        Exit::BadInput.code()
    } else if verdicts.are_all_ok() {
        0
    } else {
        FOUND
    }
}

fn show(
    args: &ScreenArgs,
    results: &Results,
    verdicts: &Verdicts,
    listed: &Listed,
) -> Result<(), Failed> {
    if args.raw {
        let line = serde_json::to_string(results).expect("plain data");
        output::print(&(line + "\n"))?;
        return Ok(());
    }
    if let Some(why) = &results.refused {
        return Err(Failed::new(why.clone()));
    }
    let report = ScreenReport { results, verdicts, tolerance: args.tolerance };
    output::print_and_write(&report.text(), &report.json(), args.json.as_deref())?;
    for (path, is_ok) in [(&args.good, true), (&args.bad, false)] {
        if let Some(path) = path {
            let hosts: Vec<Host> = report
                .names(is_ok)
                .into_iter()
                .map(|name| as_listed(name, results, listed))
                .collect();
            output::write_file(path, &openmpi_file(&hosts), true)?;
        }
    }
    Ok(())
}

/// The host that calls itself `name`, as the list has it, which may leave out the domain or use
/// another name; a host that is not found in the list, under `name` and with its number of ranks.
fn as_listed(name: &str, results: &Results, listed: &Listed) -> Host {
    let short = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
    let find = |is_meant: &dyn Fn(&Host) -> bool| listed.hosts.iter().find(|host| is_meant(host));
    let own = |host: &Host| listed.own_names.get(&host.name);
    let found = find(&|host| host.name == name)
        .or_else(|| find(&|host| own(host).is_some_and(|own| own == name)))
        .or_else(|| find(&|host| short(&host.name) == short(name)))
        .or_else(|| find(&|host| own(host).is_some_and(|own| short(own) == short(name))));
    if found.is_none() && !listed.hosts.is_empty() {
        messages::print(format_args!(
            "warning: {name} is no host of the list by its name: it is written as it calls itself"
        ));
    }
    let node = results.nodes.iter().find(|node| node.host == name);
    let ranks = node.and_then(|node| node.kind.as_ref()).map_or(1, |kind| kind.ranks);
    found.cloned().unwrap_or_else(|| Host { name: name.to_owned(), slots: ranks })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_written_as_the_user_has_them() {
        let host = |name: &str, slots| Host { name: name.into(), slots };
        let hosts = vec![host("n1", 8), host("n2.x", 2), host("n4-ib", 16)];
        let own_names = BTreeMap::from([("n4-ib".into(), "n4.cluster".into())]);
        let (listed, results) = (Listed { hosts, own_names }, Results::default());
        let found = |name: &str| as_listed(name, &results, &listed);
        assert_eq!((found("n1.cluster"), found("n2.x")), (host("n1", 8), host("n2.x", 2)));
        assert_eq!([found("n4.cluster"), found("n4")], [host("n4-ib", 16), host("n4-ib", 16)]);
        assert_eq!(found("n3"), host("n3", 1));
    }

    #[test]
    fn the_time_limits_a_start_only_where_n_follows_from_it() {
        #[derive(clap::Parser)]
        struct Only {
            #[command(flatten)]
            args: ScreenArgs,
        }
        let longest = |words: &[&str]| {
            longest(&<Only as clap::Parser>::parse_from([&["x"], words].concat()).args)
                .as_secs_f64()
        };
        assert_eq!(longest(&["--time=10s"]), 1000.0);
        assert!(longest(&["--time=10s", "--n=1000000"]) > 5.0 * LONGEST_SECONDS);
    }

    #[test]
    fn shares_and_times_have_limits() {
        assert_eq!((parse_share("0.1"), parse_time("2min")), (Ok(0.1), Ok(120.0)));
        for text in ["0", "1", "-1", "NaN", "x"] {
            assert!(parse_share(text).is_err(), "{text}");
        }
        assert!(parse_time("0s").is_err() && parse_time("2d").is_err());
    }
}
