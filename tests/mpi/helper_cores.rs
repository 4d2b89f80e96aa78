//! `--helper-cores` under mpirun: which thread runs where, what is refused, and that a restart with
//! another number of helper cores ends with the same bits.
//!
//! Each rank has a host name and its own claims, and so, as far as it knows, all cores of this
//! machine.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::mpi_job::Job;
use crate::mpirun::{mpirun, run};
use crate::skipped::{namespaces, skipped};
use skt_host::placement::{self, HelperCores, HostCpus};

const PROGRAM: &str = env!("CARGO_BIN_EXE_skt-hpl");
const RANKS: usize = 2;
const SYSTEM: &str = "--p 1 --q 2 --checkpoint-every 2p! --progress off";
/// Runs the program `$0` on a separate host.
const ON_OWN_HOST: &str = "hostname n$OMPI_COMM_WORLD_RANK && exec \"$0\" \"$@\"";

/// Where one rank with one thread should run on this machine next to one helper core; `None` if
/// there are not two cores.
#[track_caller]
fn expected() -> Option<HelperCores> {
    let (cpus, mask) = (HostCpus::online().unwrap(), skt_host::affinity::current_mask().unwrap());
    let given = placement::plan_with_helpers(&cpus, &[mask], 0, 1, 1);
    given.inspect_err(|why| skipped(format!("{why:?}"))).ok()
}

/// A job whose ranks are on hosts of their own.
#[track_caller]
fn job(name: &str, flags: &str) -> Option<Job> {
    Some(job_with(&[], &namespaces(&["--uts", "--time", "--fork", "--kill-child"])?, name, flags))
}

/// As [`job`], and no rank sees another process, nor avoids its cores: in truth the ranks share a
/// machine with each other and with other tests. The first process of such a host ignores signals.
#[track_caller]
fn job_that_sees_none(name: &str, flags: &str) -> Option<Job> {
    // Shared memory of Open MPI needs the numbers of the processes.
    let by_network = ["--mca", "btl", "self,tcp", "--mca", "btl_tcp_if_include", "lo"];
    let alone = ["--uts", "--time", "--pid", "--mount-proc", "--fork", "--kill-child"];
    Some(job_with(&by_network, &namespaces(&alone)?, name, flags))
}

fn job_with(launcher_flags: &[&str], host: &[&str], name: &str, flags: &str) -> Job {
    let launched = [launcher_flags, host, &["sh", "-c", ON_OWN_HOST]].concat();
    Job::new(Path::new(PROGRAM), RANKS, name, &format!("{SYSTEM} {flags}")).launched(&launched)
}

/// Threads by process, number and name, each with the CPUs that it was last allowed.
type Threads = BTreeMap<(u32, u32, String), String>;

fn look(job: &Job, threads: &mut Threads) {
    for pid in job.processes() {
        for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
            let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
            let field =
                |name| status.lines().find_map(|line| Some(line.strip_prefix(name)?.trim()));
            let thread: Option<u32> = field("Pid:").and_then(|id| id.parse().ok());
            if let (Some(thread), Some(name), Some(cpus)) =
                (thread, field("Name:"), field("Cpus_allowed_list:"))
            {
                threads.insert((pid, thread, name.to_owned()), cpus.to_owned());
            }
        }
    }
}

/// The method `double` encodes in the background only if it is asked to, or has a core for it.
#[test]
fn helper_threads_are_pinned_to_the_helper_core() {
    let Some(HelperCores { solver, helper, kept }) = expected() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (json, level) = (folder.path().join("run.json"), folder.path().display());
    let flags = format!(
        "--ft double --n 4000 --nb 128 --helper-cores 1 --level local:{level},every=1ms! --json {}",
        json.display()
    );
    let Some(job) = job_that_sees_none("helped", &flags) else { return };
    let mut threads = Threads::new();
    let ended = job.wait(job.spawn(&[]), || look(&job, &mut threads));
    assert!(ended.ok && ended.text.contains("PASSED"), "{}", ended.text);
    let cpus_of = |wanted: &str| -> Vec<&String> {
        let is_it = |(pid, thread, name): &(u32, u32, String)| match wanted {
            "solver" => pid == thread,
            _ => name == wanted,
        };
        threads.iter().filter(|(id, _)| is_it(id)).map(|(_, cpus)| cpus).collect()
    };
    let (solver, helper) = (solver[0].to_string(), helper.to_string());
    assert_eq!(cpus_of("solver"), [&solver; RANKS], "{threads:?}");
    assert_eq!(cpus_of("skt-images"), [&helper; RANKS], "{threads:?}");
    // There is one in the update of each panel; one that has just begun may not be there yet.
    assert!(cpus_of("skt-background").contains(&&helper), "{threads:?}");
    let report: serde_json::Value = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    assert_eq!(report["environment"]["helper_cpus"], serde_json::json!(kept));
    assert_eq!(report["tests"][0]["protection"]["overlap"], serde_json::json!(true));
    let line = format!("# helpers  : cpu {helper} on the host of rank 0");
    assert!(ended.text.contains(&line), "{}", ended.text);
}

#[test]
fn a_restart_without_helper_cores_ends_with_the_same_bits() {
    if expected().is_none() {
        return;
    }
    let flags = "--n 400 --nb 16 --inject 1@column:200";
    let Some(job) = job("restarted", flags) else { return };
    let killed = job.start(&["--helper-cores", "1"]);
    assert!(!killed.ok && killed.text.contains("rank 1 dies"), "{}", killed.text);
    let ended = job.start(&["--resume", "require"]);
    assert!(ended.ok && ended.text.contains("# restart: "), "{}", ended.text);
    job.assert_nothing_is_left();
    let start =
        |flags: &[&str]| self::job("whole", "--n 400 --nb 16").expect("as before").start(flags);
    let (plain, helped) = (start(&["--ft", "none"]), start(&["--helper-cores", "1"]));
    assert!(plain.x().is_some());
    assert_eq!((ended.x(), helped.x()), (plain.x(), plain.x()), "{}", ended.text);
}

/// The message of two ranks of this host for these flags of the launcher and of the program.
fn refused(launcher_flags: &str, flags: &str) -> String {
    let mut job = mpirun(RANKS);
    job.args(launcher_flags.split(' ')).args([PROGRAM, "--n", "100", "--nb", "10"]);
    let ended = run(job.args(flags.split(' '))).expect(2);
    let text = ended.err + &ended.out;
    assert_eq!(text.matches("error: --helper-cores").count(), 1, "{text}");
    text
}

#[test]
fn helper_cores_that_cannot_be_had_are_refused_with_the_reason() {
    if expected().is_none() {
        return;
    }
    let text = refused("--bind-to core", "--helper-cores 1");
    assert!(text.contains("the ranks are bound to different cores"), "{text}");
    assert!(text.contains("--bind-to none"), "{text}");
    let text = refused("--bind-to none", "--helper-cores 4096");
    assert!(text.contains("2 rank(s) of 1 thread(s) and 4096 helper core(s) take 4098"), "{text}");
    let text = refused("--bind-to none", "--helper-cores 1 --ft none");
    assert!(text.contains("--ft none takes no checkpoints"), "{text}");
}
