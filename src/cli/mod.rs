//! The command line: each flag is defined once, each subcommand has a file.
//!
//! The help, and by `skt-manual` the man page and the completions, follow from `Cli`. Help texts of
//! parameters are in `overrides`, those of protection and of `launch` in the tables of
//! `config::checkpoint` and `config::launch`, and all others in the doc comment of the flag. To add
//! a subcommand, add a file with its `Args` struct and an `execute` function, a variant of
//! `Command`, and a line in `dispatch`.

macro_rules! with_exit_codes {
    ($examples:literal) => {
        concat!(
            $examples,
            "\n\nExit codes:\n  \
             0   all tests passed\n  \
             1   a residual failed\n  \
             2   bad input or environment\n  \
             75  interrupted, can be restarted"
        )
    };
}

mod auto;
mod blas;
mod by_hand;
mod chosen;
mod convert;
mod doctor;
mod dry_run;
mod failed;
mod fit;
mod flags;
mod hosts;
mod launch;
mod losses;
mod machine;
mod mxp;
mod node_memory;
mod overrides;
mod pace;
mod plan;
mod plan_levels;
mod power;
mod probe;
mod progress;
mod report;
mod run;
mod screen;
mod status;
pub mod store;
mod thread_variables;
mod tune;
mod xhpl;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use failed::Failed;
use skt_comm::mpi::MpiWorld;
use skt_host::exit::Exit;

use skt_host::{descriptors, launcher_rank, messages, streams};
use skt_run::heartbeat;
use skt_run::protect::formats;

const LONG_ABOUT: &str = "\
High-Performance Linpack: solves a dense random linear system on a P x Q grid of MPI ranks and \
reports the rate. A drop-in for xhpl: the same HPL.dat, the same matrix, the same report.

Without a subcommand it runs the benchmark of HPL.dat in the current folder, or of the file that \
--config names; the flags below override it. Lists are written with commas, and all combinations \
are run. Called by a name that begins with xhpl, it reads HPL.dat and exits as the reference does.";

const AFTER_HELP: &str = with_exit_codes!(
    "\
Examples:
  skt-hpl init                      write an HPL.dat that fits this machine
  mpirun -np 4 skt-hpl              run it
  mpirun -np 4 skt-hpl --n 20000,30000 --nb 192 --p 2 --q 2
  mpirun -np 4 skt-hpl --config cluster.toml --json result.json
  skt-hpl convert HPL.dat hpl.toml  the same in TOML"
);

const AFTER_LAUNCH_HELP: &str = with_exit_codes!(
    "\
Examples:
  skt-hpl launch --hosts hosts --spares spares -- --n 20000 --p 2 --q 4
                      a line a node, as `node1 slots=4`; after a stop the same command resumes
  skt-hpl launch -- --config cluster.toml
                      on the nodes of the job
  skt-hpl launch --np 4 -- --n 20000
                      on this machine, whose processes may die
  skt-hpl launch --np 4 -- mxp --n 20000
                      HPL-MxP
  skt-hpl launch --hosts hosts --spares spares --np 8 --program ./heat -- 2000
                      a program of one's own with its arguments, on libskt-checkpoint
  skt-hpl status      what it does, from another shell"
);

/// The version, and the formats of the checkpoints that this build can continue.
fn long_version() -> String {
    let formats = formats().map(|(name, number)| format!("{name} {number}")).join(", ");
    format!("{}\ncheckpoints: {formats}", env!("CARGO_PKG_VERSION"))
}

#[derive(Debug, Parser)]
#[command(
    name = "skt-hpl",
    version,
    long_version = long_version(),
    about = "High-Performance Linpack on a P x Q grid of MPI ranks, a drop-in for xhpl",
    long_about = LONG_ABOUT,
    after_help = AFTER_HELP,
    args_conflicts_with_subcommands = true,
    max_term_width = 100
)]
pub(crate) struct Cli {
    /// What to do; the benchmark runs if no subcommand is given.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Flags of the benchmark.
    #[command(flatten)]
    pub run: run::RunArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the benchmark, as without a subcommand
    #[command(after_help = AFTER_HELP)]
    Run(Box<run::RunArgs>),
    /// Run HPL-MxP: the factorization in single precision, refined to double precision
    #[command(long_about = mxp::LONG_ABOUT, after_help = mxp::AFTER_HELP)]
    Mxp(Box<mxp::MxpArgs>),
    /// Run the benchmark, or any program, to its end through the loss of nodes
    #[command(after_help = AFTER_LAUNCH_HELP)]
    Launch(Box<launch::LaunchArgs>),
    /// Show the state of a launched run
    Status(status::StatusArgs),
    /// Answer a supervisor's question
    #[command(hide = true)]
    Probe(probe::ProbeArgs),
    /// Run a rank of the user's program
    #[command(hide = true)]
    Rank(probe::RankArgs),
    /// Run the benchmark without an input file: choose all that it leaves open, and leave the file
    #[command(after_help = auto::AFTER_HELP)]
    Auto(auto::AutoArgs),
    /// Try a BLAS
    #[command(hide = true)]
    BlasTrial(blas::TrialArgs),
    /// Write a commented configuration that fits this machine
    Init(auto::InitArgs),
    /// Find the fastest values of the parameters by short runs on this job's ranks
    Tune(Box<tune::TuneArgs>),
    /// Convert a configuration between HPL.dat and TOML
    Convert(convert::ConvertArgs),
    /// Find out why this machine, or the hosts of a job, are slow, and what to do
    #[command(after_help = doctor::AFTER_HELP)]
    Doctor(doctor::DoctorArgs),
    /// Find the bad nodes of an allocation: slow, wrong, on a slow link, out of reach
    #[command(after_help = screen::AFTER_HELP)]
    Screen(Box<screen::ScreenArgs>),
    /// Plan a run: from a machine to a configuration, with its alternatives
    Plan(Box<plan::PlanArgs>),
    /// Show runs as an HTML page, or as the fields of a TOP500 submission
    Report(report::ReportArgs),
    /// List or remove what runs have left: shared memory on this host, and images of levels
    #[command(visible_alias = "shm")]
    Store(store::StoreArgs),
}

/// The flags that `-h` of a run shows: those of most runs, and the two that HPL does not have.
const COMMON: &str = "config out json progress n nb p q threads ft checkpoint-every parities \
                      resume level time-limit matrix gemm";

/// The commands and their flags. `-h` of a run shows the common flags, `--help` all.
pub fn command() -> clap::Command {
    let shortened = |command: clap::Command| {
        command.mut_args(|arg| {
            let is_common = |flag: &str| COMMON.split(' ').any(|common| common == flag);
            let is_shown = arg.get_long().is_none_or(is_common);
            arg.hide_short_help(!is_shown)
        })
    };
    shortened(Cli::command()).mut_subcommand("run", shortened).mut_subcommand("mxp", shortened)
}

fn parse(args: &[OsString]) -> Result<Cli, clap::Error> {
    Cli::from_arg_matches(&command().try_get_matches_from(args)?)
        .map_err(|error| error.format(&mut command()))
}

pub fn main() -> ExitCode {
    descriptors::raise_limit();
    let args: Vec<OsString> = std::env::args_os().collect();
    let mxp = xhpl::as_mxp(&args);
    if mxp.is_some() || xhpl::is_named(&args) {
        messages::mark();
        if launcher_rank::is_first() {
            messages::hold_warnings();
        }
    }
    if let Some(args) = mxp {
        return match parse(&args) {
            Ok(Cli { command: Some(Command::Mxp(mxp)), .. }) => {
                run::execute(&xhpl::as_drop_in(mxp.into_run()))
            }
            Ok(_) => unreachable!("the first word is `mxp`"),
            Err(error) => refuse(error, Exit::code).into(),
        };
    }
    if xhpl::is_named(&args) {
        return match xhpl::parse(&args) {
            Ok(run) => run::execute(&run),
            Err(error) => refuse(error, Exit::reference_code).into(),
        };
    }
    match parse(&args) {
        Ok(cli) => dispatch(cli),
        Err(error) => {
            let code = refuse(error, Exit::code);
            heartbeat::done(Exit::from_code(code));
            code.into()
        }
    }
}

/// On one rank of a job only. All ranks get the exit code: the `code` of the exit.
fn refuse(error: clap::Error, code: impl Fn(Exit) -> u8) -> u8 {
    if launcher_rank::is_first() {
        streams::die_quietly_on_closed_pipe();
        if error.use_stderr() {
            messages::print(format_args!("{}", error.render()));
        } else {
            // If even this cannot be written, there is no way to report it.
            let _ = error.print();
        }
    }
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => code(Exit::Passed),
        _ => {
            let code = code(Exit::BadInput);
            launcher_rank::defer_to_rank0(code);
            abort_launched_job(code);
            code
        }
    }
}

/// Ends a job of several ranks through MPI: Open MPI 4.1 may wait without end for tens of processes
/// that end before they have called it.
fn abort_launched_job(code: u8) {
    if launcher_rank::size().is_some_and(|ranks| ranks > 1)
        && let Ok(world) = MpiWorld::init()
        && let Ok(comm) = world.comm()
    {
        let _ = comm.abort("the command line is refused", code.into());
    }
}

fn dispatch(cli: Cli) -> ExitCode {
    match cli.command {
        None => run::execute(&cli.run),
        Some(Command::Run(args)) => run::execute(&args),
        Some(Command::Mxp(args)) => run::execute(&args.into_run()),
        Some(Command::Auto(args)) => auto::execute(&args),
        Some(Command::Rank(args)) => probe::execute_rank(&args),
        Some(Command::BlasTrial(args)) => blas::execute_trial(&args).into(),
        Some(Command::Tune(args)) => tune::execute(&args),
        Some(Command::Doctor(args)) => doctor::execute(&args),
        Some(Command::Screen(args)) => screen::execute(&args),
        Some(Command::Launch(args)) => launch::execute(&args).map_or_else(failed, Into::into),
        // Each host has its own store.
        Some(Command::Store(args)) => write(|| store::execute(&args)),
        _ if !launcher_rank::is_first() => Exit::Passed.into(),
        Some(Command::Status(args)) => write(|| status::execute(&args)),
        Some(Command::Probe(args)) => write(|| probe::execute(&args)),
        Some(Command::Init(args)) => write(|| auto::init(&args)),
        Some(Command::Plan(args)) => write(|| plan::execute(&args)),
        Some(Command::Convert(args)) => write(|| convert::execute(&args)),
        Some(Command::Report(args)) => write(|| report::execute(&args)),
    }
}

/// Carries out a subcommand that writes text or files, so one process of a job does it.
fn write<E: Into<Failed>>(execute: impl FnOnce() -> Result<(), E>) -> ExitCode {
    streams::die_quietly_on_closed_pipe();
    execute().map_or_else(failed, |()| Exit::Passed.into())
}

fn failed(error: impl Into<Failed>) -> ExitCode {
    messages::print(format_args!("error: {}", error.into().0));
    Exit::BadInput.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clap_finds_no_fault_with_the_flags() {
        Cli::command().debug_assert();
    }

    #[test]
    fn short_help_of_a_run_has_the_common_flags() {
        let flags = |help: clap::builder::StyledStr| {
            let is_flag = |line: &&str| line.starts_with("  -") || line.starts_with("      --");
            help.to_string().lines().filter(is_flag).count()
        };
        let with_help = 1;
        for (name, common, version) in [("", 15, 1), ("run", 15, 0), ("mxp", 17, 0)] {
            let mut cli = command();
            cli.build();
            let command = cli.find_subcommand_mut(name);
            let mut command = command.cloned().unwrap_or(cli);
            assert_eq!(flags(command.render_help()), common + with_help + version, "{name}");
            let all = command.get_arguments().filter(|arg| arg.get_long().is_some()).count();
            assert_eq!(flags(command.render_long_help()), all, "{name}");
        }
    }

    #[test]
    fn the_help_of_launch_has_examples_of_launch() {
        let mut cli = Cli::command();
        let launch = cli.find_subcommand_mut("launch").expect("a subcommand");
        let help = launch.render_long_help().to_string();
        let (_, examples) = help.split_once("Examples:").expect("examples");
        assert!(!examples.contains("mpirun") && examples.contains("75  interrupted"), "{help}");
        let commands: Vec<&str> = examples
            .lines()
            .filter_map(|line| line.trim_start().strip_prefix("skt-hpl "))
            .collect();
        assert_eq!(commands.len(), 6, "{examples}");
        for command in commands {
            let words = command.split("  ").next().expect("words").split(' ');
            Cli::try_parse_from(["skt-hpl"].into_iter().chain(words)).expect(command);
        }
    }

    #[test]
    fn flags_are_the_same_with_and_without_run() {
        let flags = |args: &[&str]| match Cli::try_parse_from(args).unwrap() {
            Cli { command: Some(Command::Run(run)), .. } => format!("{run:?}"),
            Cli { command: None, run } => format!("{run:?}"),
            other => panic!("{other:?}"),
        };
        let with = flags(&["skt-hpl", "run", "--n", "1,2", "--p", "1", "--json", "x"]);
        assert_eq!(with, flags(&["skt-hpl", "--n", "1,2", "--p", "1", "--json", "x"]));
    }
}
