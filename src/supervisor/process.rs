//! Processes, each told apart from a later one of the same number.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::checkpoint::store::host::{is_ending, running_since, stat};

/// A process, named by its number, its start, and the machine's start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its number.
    pub pid: i32,
    /// When it started, in clock ticks since the machine's start.
    start_ticks: u64,
    /// The machine's boot id, which names its start.
    boot: String,
    /// The machine's name.
    host: String,
}

impl Process {
    /// The process that has this number now.
    pub fn of(pid: i32) -> Option<Self> {
        let start_ticks = running_since(pid as u32)?;
        Some(Self { pid, start_ticks, boot: boot_id(), host: this_host() })
    }

    /// Whether it still runs here. A zombie does not.
    pub fn runs(&self) -> bool {
        self.boot == boot_id() && running_since(self.pid as u32) == Some(self.start_ticks)
    }

    /// Whether it was started with the heartbeat `token`, as far as its environment
    /// may be read.
    pub fn may_have(&self, token: &str) -> bool {
        let environment = environment_of(self.pid);
        let wanted = format!("{}={token}", crate::report::heartbeat::ENV);
        let mut entries = environment.split(|byte| *byte == 0);
        environment.is_empty() || entries.any(|entry| entry == wanted.as_bytes())
    }

    /// The machine that it ran on, if that is not this one.
    pub fn elsewhere(&self) -> Option<&str> {
        (self.host != this_host()).then_some(self.host.as_str())
    }

    /// Sends a signal if it still runs.
    pub fn signal(&self, signal: Signal) {
        if self.runs() {
            // It may end in between, and then needs no signal.
            let _ = kill(Pid::from_raw(self.pid), signal);
        }
    }

    /// Kills it and its process group, of which it must be the leader.
    pub fn kill_group(&self) {
        if self.runs() {
            let _ = killpg(Pid::from_raw(self.pid), Signal::SIGKILL);
        }
    }
}

fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// This machine's name.
pub fn this_host() -> String {
    nix::unistd::gethostname().map_or_else(|_| String::new(), |n| n.to_string_lossy().into_owned())
}

/// How long a rank may take to end after SIGTERM. Where ranks change data in place they end
/// between two pieces of work, each some tenths of a second long on a busy machine.
const GRACE: Duration = Duration::from_millis(1500);
/// How long killed processes are waited for. One that ends and is not gone by then, such as one
/// in a sync of a slow disk, ends all the same; the next start waits for it.
const KILLED: Duration = Duration::from_secs(2);
/// How long a process may take on a program before it is taken to have no environment.
const EXEC: Duration = Duration::from_secs(2);

/// Ends the ranks of the run `run` that a launcher has left on this machine:
/// processes that run our program with a heartbeat of that run, with SIGTERM, and in 1.5
/// seconds with SIGKILL. Waits until they are gone, 3.5 seconds at most. Returns how many
/// there were, and how many stay.
pub fn sweep_ranks(run: &str) -> (usize, usize) {
    end_all(|| of_run(run).filter(|pid| is_ours(*pid)).collect(), GRACE)
}

/// Ends what a launcher of the run `run` has left on this machine, ranks as
/// [`sweep_ranks`]. Its agents, which wait for nodes that are gone, are killed. Call it when
/// the launcher has ended.
pub fn sweep_launcher(run: &str) -> (usize, usize) {
    end_all(|| of_run(run).collect(), GRACE)
}

/// How many ranks of the run `run` are on this machine, and how many of them a signal has
/// stopped (SIGSTOP); a debugger's stop is another.
pub fn count_ranks(run: &str) -> (usize, usize) {
    let ranks: Vec<i32> = of_run(run).filter(|pid| is_ours(*pid)).collect();
    let is_stopped = |pid: &&i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('T'))
    };
    (ranks.len(), ranks.iter().filter(is_stopped).count())
}

/// Whether a process runs our program.
fn is_ours(pid: i32) -> bool {
    let program = std::env::current_exe().ok();
    let program = program.as_deref().and_then(|path| path.file_name()).map(OsStrExt::as_bytes);
    let link = fs::read_link(format!("/proc/{pid}/exe")).ok();
    let name = link.as_deref().and_then(|path| path.file_name()).map(OsStrExt::as_bytes);
    // A program that was replaced on disk since reads `... (deleted)`.
    name.map(|name| name.strip_suffix(b" (deleted)").unwrap_or(name)) == program
}

/// Processes with a heartbeat of the run `run` in their environment, but for
/// this one.
fn of_run(run: &str) -> impl Iterator<Item = i32> {
    let wanted = format!("{}={run}.", crate::report::heartbeat::ENV);
    let has_beat = move |pid: &i32| {
        environment_of(*pid).split(|byte| *byte == 0).any(|e| e.starts_with(wanted.as_bytes()))
    };
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let me = std::process::id() as i32;
    pids.filter(move |pid| *pid != me).filter(has_beat)
}

/// The environment of a process, as it was started; empty if it may not be read. While
/// a process takes on its program (`exec`), the environment reads as empty although it
/// has one, while its parent already goes on: this function waits for such a process,
/// two seconds at most.
fn environment_of(pid: i32) -> Vec<u8> {
    let start = Instant::now();
    let read = || fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    loop {
        let environment = read();
        if !environment.is_empty() {
            return environment;
        }
        if !takes_on_program(pid) || start.elapsed() > EXEC {
            // It may have come to its program since.
            return read();
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Whether a process has memory (field 23 of its stat) but no program in it
/// yet (field 26): the kernel sets the latter after the environment. Kernel
/// threads have neither.
fn takes_on_program(pid: i32) -> bool {
    stat(pid as u32).is_some_and(|field| field(23) != Some(0) && field(26) == Some(0))
}

/// Ends the processes that `look` finds, ranks with SIGTERM and after `grace` with SIGKILL, and
/// looks again until it finds none that runs: one may have started another meanwhile. Returns how
/// many there were, and how many stay.
fn end_all(look: impl Fn() -> Vec<i32>, grace: Duration) -> (usize, usize) {
    let start = Instant::now();
    let mut found: Vec<Process> = Vec::new();
    loop {
        let running: Vec<Process> = look().into_iter().filter_map(Process::of).collect();
        for process in &running {
            let is_new = !found.contains(process);
            if !is_ours(process.pid) || start.elapsed() > grace {
                process.signal(Signal::SIGKILL);
            } else if is_new {
                process.signal(Signal::SIGTERM);
                // One that was stopped does not hear of it.
                process.signal(Signal::SIGCONT);
            }
            if is_new {
                found.push(process.clone());
            }
        }
        if running.is_empty() || start.elapsed() > grace + KILLED {
            let stays = |process: &&Process| !is_ending(process.pid as u32);
            return (found.len(), running.iter().filter(stays).count());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;
    use crate::machine::grace;

    #[test]
    fn a_process_is_known_until_it_ends() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let process = Process::of(child.id() as i32).unwrap();
        assert!(process.runs() && process.elsewhere().is_none());
        let later = Process { start_ticks: process.start_ticks + 1, ..process.clone() };
        assert!(!later.runs(), "another process with the same number");
        later.signal(Signal::SIGKILL);
        assert!(process.runs());
        process.signal(Signal::SIGKILL);
        child.wait().unwrap();
        assert!(!process.runs());
    }

    #[test]
    fn only_processes_of_the_run_are_swept() {
        let start = |token: &str| {
            let mut command = std::process::Command::new("sleep");
            command.arg("100").env(crate::report::heartbeat::ENV, token).spawn().unwrap()
        };
        let me = format!("test-{}", std::process::id());
        let (mut ours, mut other) = (start(&format!("{me}.1")), start(&format!("{me}0.1")));
        assert_eq!(sweep_ranks(&me), (0, 0), "not our program");
        let process = Process::of(ours.id() as i32).unwrap();
        assert!(process.may_have(&format!("{me}.1")) && !process.may_have(&format!("{me}.2")));
        assert_eq!(sweep_launcher(&me), (1, 0));
        ours.wait().unwrap();
        assert_eq!(other.try_wait().unwrap(), None);
        other.kill().unwrap();
        other.wait().unwrap();
    }

    #[test]
    fn a_rank_that_changes_its_data_is_left_the_time_to_end() {
        let me = format!("grace-{}", std::process::id());
        let token = format!("{me}.1");
        // The first ends within its grace, however late a busy machine lets it run, and the second
        // does not.
        for (piece_milliseconds, grace_milliseconds, signal) in
            [(300, 60_000, Signal::SIGTERM), (60_000, 300, Signal::SIGKILL)]
        {
            let mut child = grace::tests::start(piece_milliseconds, |command| {
                command.env(crate::report::heartbeat::ENV, &token);
            });
            let look = || of_run(&me).filter(|pid| is_ours(*pid)).collect();
            assert_eq!(end_all(look, Duration::from_millis(grace_milliseconds)), (1, 0));
            assert_eq!(child.wait().unwrap().signal(), Some(signal as i32));
        }
    }

    #[test]
    fn a_stopped_rank_is_told_from_one_that_runs() {
        let me = format!("stopped-{}", std::process::id());
        let token = format!("{me}.1");
        let mut child = grace::tests::start(300, |command| {
            command.env(crate::report::heartbeat::ENV, &token);
        });
        assert_eq!(count_ranks(&me), (1, 0));
        let rank = Process::of(child.id() as i32).unwrap();
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
    fn a_process_is_found_from_its_first_instant() {
        let me = format!("instant-{}", std::process::id());
        let token = format!("{me}.1");
        for _ in 0..50 {
            let mut command = std::process::Command::new("sleep");
            let mut child =
                command.arg("100").env(crate::report::heartbeat::ENV, &token).spawn().unwrap();
            let swept = sweep_launcher(&me);
            child.kill().unwrap();
            child.wait().unwrap();
            assert_eq!(swept, (1, 0));
        }
    }
}
