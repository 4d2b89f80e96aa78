//! The processes of a run on this machine: found by their environment, counted and ended.

use std::ffi::CStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use skt_host::process::{Process, environment_of, is_at_work, is_stopped};

/// This machine's name; empty if it has none.
pub fn this_host() -> String {
    skt_host::host::name().unwrap_or_default()
}

/// How long a rank may take to end after SIGTERM. Ranks that change data in place end between two
/// critical sections, each some tenths of a second long on a busy machine.
const GRACE: Duration = Duration::from_millis(1500);
/// How long killed processes are waited for. A killed process that is still ending after that, such
/// as one in a sync of a slow disk, does end; the next start waits for it.
const KILLED: Duration = Duration::from_secs(2);
/// The shortest time between two searches for processes.
const PAUSE_MIN: Duration = Duration::from_millis(5);
/// The variable in the environment of the user's program (`launch --program`) and of all that it
/// starts.
pub(crate) const PROGRAM_ENV: &str = "SKT_HPL_PROGRAM";
/// The name of the process that waits for the user's program.
pub(crate) const RANK_COMM: &CStr = c"skt-hpl-rank";

/// Ends the ranks of the run `run` that a launcher left on this machine: processes that have a
/// heartbeat token of that run, and run this program or the user's. They get SIGTERM, and 1.5
/// seconds later SIGKILL. Waits until they are gone, 3.5 seconds at most. Returns the number of
/// ranks found, and the number that stays.
pub(crate) fn sweep_ranks(run: &str) -> (usize, usize) {
    end_all(|| processes_of(run).filter(|pid| is_rank(*pid)).collect(), GRACE)
}

/// Ends all processes that a launcher of the run `run` left on this machine, once it has ended:
/// ranks as `sweep_ranks` does, and the launcher's agents, which wait for nodes that are gone,
/// with SIGKILL at once. Returns the number of processes found, and the number that stays.
pub fn sweep_launcher(run: &str) -> (usize, usize) {
    end_all(|| processes_of(run).collect(), GRACE)
}

/// Returns the number of ranks of the run `run` on this machine, and how many of them a signal has
/// stopped (SIGSTOP); a rank that a debugger has stopped does not count.
pub(crate) fn count_ranks(run: &str) -> (usize, usize) {
    let waits = |pid: i32| {
        let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
        name.trim_ascii_end() == RANK_COMM.to_bytes()
    };
    let ranks: Vec<i32> = processes_of(run).filter(|pid| is_rank(*pid) && !waits(*pid)).collect();
    (ranks.len(), ranks.iter().filter(|pid| is_stopped(**pid as u32)).count())
}

/// Whether the process `pid` belongs to a rank, and not to a launcher.
fn is_rank(pid: i32) -> bool {
    let wanted = format!("{PROGRAM_ENV}=");
    let is_users =
        || environment_of(pid).split(|byte| *byte == 0).any(|e| e.starts_with(wanted.as_bytes()));
    is_ours(pid) || is_users()
}

/// Whether the process `pid` runs this program.
fn is_ours(pid: i32) -> bool {
    let program = std::env::current_exe().ok();
    let program = program.as_deref().and_then(|path| path.file_name()).map(OsStrExt::as_bytes);
    let link = fs::read_link(format!("/proc/{pid}/exe")).ok();
    let name = link.as_deref().and_then(|path| path.file_name()).map(OsStrExt::as_bytes);
    // The link of a program that was replaced on disk since ends in ` (deleted)`.
    name.map(|name| name.strip_suffix(b" (deleted)").unwrap_or(name)) == program
}

/// The processes with a heartbeat token of the run `run` in their environment, except this one.
fn processes_of(run: &str) -> impl Iterator<Item = i32> {
    let wanted = format!("{}={run}.", skt_checkpoint::heartbeat::ENV);
    let has_beat = move |pid: &i32| {
        environment_of(*pid).split(|byte| *byte == 0).any(|e| e.starts_with(wanted.as_bytes()))
    };
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let me = std::process::id() as i32;
    pids.filter(move |pid| *pid != me).filter(has_beat)
}

/// Ends the processes that `list` finds, ranks with SIGTERM and after `grace` with SIGKILL, and
/// lists them again until none runs, as one may have started another. Returns the number of
/// processes found, and the number that stays.
fn end_all(list: impl Fn() -> Vec<i32>, grace: Duration) -> (usize, usize) {
    let start = Instant::now();
    let mut found: Vec<Process> = Vec::new();
    loop {
        let listed = Instant::now();
        let running: Vec<Process> = list().into_iter().filter_map(Process::from_pid).collect();
        // On a node with very many processes the search takes half of a core at most.
        let pause = listed.elapsed().max(PAUSE_MIN);
        for process in &running {
            let is_new = !found.contains(process);
            if !is_rank(process.pid) || start.elapsed() > grace {
                process.signal(Signal::SIGKILL);
            } else if is_new {
                process.signal(Signal::SIGTERM);
                // A stopped process does not handle SIGTERM before it continues.
                process.signal(Signal::SIGCONT);
            }
            if is_new {
                found.push(process.clone());
            }
        }
        if running.is_empty() || start.elapsed() > grace + KILLED {
            let stays = |process: &&Process| is_at_work(process.pid as u32);
            return (found.len(), running.iter().filter(stays).count());
        }
        std::thread::sleep(pause);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;
    use skt_run::grace::testing;

    fn start_rank(
        critical_milliseconds: u64,
        prepare: impl FnOnce(&mut std::process::Command),
    ) -> std::process::Child {
        let test = concat!(module_path!(), "::plays_a_rank");
        let (_, test) = test.split_once("::").expect("the crate comes first");
        testing::start(test, critical_milliseconds, prepare)
    }

    #[test]
    #[ignore = "the others start it"]
    fn plays_a_rank() {
        testing::run_role();
    }

    #[test]
    fn only_processes_of_the_run_are_swept() {
        let start = |token: &str| {
            let mut command = std::process::Command::new("sleep");
            command.arg("100").env(skt_checkpoint::heartbeat::ENV, token).spawn().unwrap()
        };
        let me = format!("test-{}", std::process::id());
        let (mut ours, mut other) = (start(&format!("{me}.1")), start(&format!("{me}0.1")));
        assert_eq!(sweep_ranks(&me), (0, 0), "not our program");
        let process = Process::from_pid(ours.id() as i32).unwrap();
        assert!(
            process.may_have(skt_checkpoint::heartbeat::ENV, &format!("{me}.1"))
                && !process.may_have(skt_checkpoint::heartbeat::ENV, &format!("{me}.2"))
        );
        assert_eq!(sweep_launcher(&me), (1, 0));
        ours.wait().unwrap();
        assert_eq!(other.try_wait().unwrap(), None);
        other.kill().unwrap();
        other.wait().unwrap();
    }

    #[test]
    fn rank_that_changes_its_data_has_time_to_end() {
        let me = format!("grace-{}", std::process::id());
        let token = format!("{me}.1");
        // The first ends within its grace, however late a busy machine lets it run, and the second
        // does not.
        for (critical_milliseconds, grace_milliseconds, signal) in
            [(300, 60_000, Signal::SIGTERM), (60_000, 300, Signal::SIGKILL)]
        {
            let mut child = start_rank(critical_milliseconds, |command| {
                command.env(skt_checkpoint::heartbeat::ENV, &token);
            });
            let list = || processes_of(&me).filter(|pid| is_ours(*pid)).collect();
            assert_eq!(end_all(list, Duration::from_millis(grace_milliseconds)), (1, 0));
            assert_eq!(child.wait().unwrap().signal(), Some(signal as i32));
        }
    }

    #[test]
    fn stopped_rank_is_distinguished_from_a_running_one() {
        let me = format!("stopped-{}", std::process::id());
        let token = format!("{me}.1");
        let mut child = start_rank(300, |command| {
            command.env(skt_checkpoint::heartbeat::ENV, &token);
        });
        assert_eq!(count_ranks(&me), (1, 0));
        let rank = Process::from_pid(child.id() as i32).unwrap();
        rank.signal(Signal::SIGSTOP);
        let start = Instant::now();
        while count_ranks(&me) != (1, 1) {
            assert!(start.elapsed() < Duration::from_secs(60));
        }
        rank.signal(Signal::SIGKILL);
        child.wait().unwrap();
        assert_eq!(count_ranks(&me), (0, 0));
    }

    #[test]
    fn process_is_found_as_soon_as_it_exists() {
        let me = format!("instant-{}", std::process::id());
        let token = format!("{me}.1");
        for _ in 0..50 {
            let mut command = std::process::Command::new("sleep");
            let mut child =
                command.arg("100").env(skt_checkpoint::heartbeat::ENV, &token).spawn().unwrap();
            let swept = sweep_launcher(&me);
            child.kill().unwrap();
            child.wait().unwrap();
            assert_eq!(swept, (1, 0));
        }
    }
}
