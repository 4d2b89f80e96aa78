use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use skt_host::exit::Exit;

use super::{hosts, run};
use crate::report::output;
use skt_comm::{Comm, collect};
use skt_health::doctor::finding::Finding;
use skt_health::doctor::report::DoctorReport;
use skt_health::doctor::{self, gather};
use skt_health::environment::library;
use skt_host::counters::Root;
use skt_host::launcher_rank;
use skt_run::job::JobError;
use skt_screen::Failed;
use skt_screen::reach;
use skt_solver::comm::threads::run as run_ranks;

const FOUND: u8 = 1;

/// The exit codes, in the help.
pub(crate) const AFTER_HELP: &str = "\
Examples:
  skt-hpl doctor                       this machine, with all cores
  mpirun -np 8 skt-hpl doctor          the ranks as they will run, on all hosts
  skt-hpl doctor --hosts hosts         also: can the hosts of this file be reached by name

Exit codes:
  0   nothing found that costs speed
  1   something found that does
  2   bad input or environment";

/// Flags of `doctor`.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Threads of a rank [default: 1 under a launcher, else all cores]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub threads: Option<u32>,
    /// Also write the report as a JSON document; - prints it instead of the text
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Also try the hosts in this host file: packets, and the agent of launchers
    #[arg(long, value_name = "FILE", conflicts_with = "root")]
    pub hosts: Option<PathBuf>,
    /// The command that runs a command on a host, before the host's name
    #[arg(long, value_name = "COMMAND", default_value = reach::AGENT, requires = "hosts")]
    pub agent: String,
    /// Read /proc and /sys under this folder, copied from another machine; measures nothing
    #[arg(long, value_name = "FOLDER")]
    pub root: Option<PathBuf>,
}

/// Looks, and prints what was found. Under a launcher, all ranks look, and rank 0 prints.
pub(crate) fn execute(args: &DoctorArgs) -> ExitCode {
    let done = match args {
        DoctorArgs { root: Some(folder), .. } => from_tree(args, Root::at(folder)),
        _ if launcher_rank::size().is_some() => under_launcher(args),
        _ => alone(args),
    };
    let code = done.unwrap_or_else(Failed::report);
    if code != 0 {
        launcher_rank::defer_to_rank0(code);
    }
    code.into()
}

fn from_tree(args: &DoctorArgs, root: Root) -> Result<u8, Failed> {
    if !launcher_rank::is_first() {
        return Ok(0);
    }
    let facts = gather::from_tree(&root, &root.folder().display().to_string());
    if facts.counters.cpus.is_empty() {
        let what = format!("{}: no sys/devices/system/cpu/online there", facts.host);
        return Err(Failed::new(what));
    }
    let found = doctor::diagnose(std::slice::from_ref(&facts));
    show(args, &DoctorReport::new(&[facts], found))
}

fn alone(args: &DoctorArgs) -> Result<u8, Failed> {
    library::take_default();
    let listed = read_listed_hosts(args)?;
    let mut codes = run_ranks(1, |world| look(&world, args, false, listed.clone()));
    codes.pop().expect("one rank")
}

fn under_launcher(args: &DoctorArgs) -> Result<u8, Failed> {
    library::take_default();
    // A list is tried before MPI starts, which may hang on a host that is out of reach.
    let listed =
        if launcher_rank::is_first() { read_listed_hosts(args) } else { Ok(Listed::default()) };
    let world = run::start_mpi()?;
    let comm = world.comm().map_err(JobError::from)?;
    let mut is_good = [u8::from(listed.is_ok())];
    collect::broadcast(&comm, &mut is_good, 0)?;
    match listed {
        Ok(listed) if is_good == [1] => look(&comm, args, true, listed),
        Ok(_) => Ok(Exit::BadInput.code()),
        Err(why) => Err(why),
    }
}

#[derive(Debug, Clone, Default)]
struct Listed {
    found: Vec<Finding>,
    /// The number of hosts, if nothing was found.
    well: Option<usize>,
}

fn read_listed_hosts(args: &DoctorArgs) -> Result<Listed, Failed> {
    let Some(path) = &args.hosts else { return Ok(Listed::default()) };
    let hosts = hosts::read(path)?;
    let found = reach::survey(&hosts, &args.agent).lost;
    let well = found.is_empty().then_some(hosts.len());
    Ok(Listed { found, well })
}

/// Diagnoses the hosts of all ranks of `world`. All of them return the exit code. Collective.
fn look(world: &Comm, args: &DoctorArgs, is_launched: bool, listed: Listed) -> Result<u8, Failed> {
    let threads = args.threads.map(|threads| threads as usize);
    let threads = threads.or(is_launched.then_some(1));
    let shown = match gather::gather(world, threads, is_launched)? {
        None => Ok(0),
        Some(Err(why)) => Err(Failed::new(why)),
        Some(Ok(hosts)) => {
            let Listed { mut found, well } = listed;
            found.extend(doctor::diagnose(&hosts));
            doctor::sort(&mut found);
            let mut report = DoctorReport::new(&hosts, found);
            report.listed_well = well;
            show(args, &report)
        }
    };
    let mut code = [shown.as_ref().map_or(Exit::BadInput.code(), |code| *code)];
    collect::broadcast(world, &mut code, 0)?;
    shown.map(|_| code[0])
}

fn show(args: &DoctorArgs, report: &DoctorReport) -> Result<u8, Failed> {
    output::print_and_write(&report.text(), &report.json(), args.json.as_deref())?;
    Ok(if report.findings.iter().any(|found| found.kind.costs_speed()) { FOUND } else { 0 })
}
