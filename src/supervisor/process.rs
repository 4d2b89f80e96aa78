//! Processes by more than their number: a number may be used again.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

/// A process of this machine, since its last start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its number.
    pub pid: i32,
    /// When it started, in ticks since the machine did.
    start_ticks: u64,
    /// Which start of the machine.
    boot: String,
    /// Which machine.
    host: String,
}

impl Process {
    /// The process that has this number now.
    pub fn of(pid: i32) -> Option<Self> {
        let start_ticks = start_ticks(pid)?;
        Some(Self { pid, start_ticks, boot: boot_id(), host: this_host() })
    }

    /// Whether it still runs here. A dead one that its parent has not yet
    /// asked after does not.
    pub fn runs(&self) -> bool {
        self.boot == boot_id() && start_ticks(self.pid) == Some(self.start_ticks)
    }

    /// The machine that it ran on, if that is not this one.
    pub fn elsewhere(&self) -> Option<&str> {
        (self.host != this_host()).then_some(self.host.as_str())
    }

    /// Sends a signal if it still runs.
    pub fn signal(&self, signal: Signal) {
        if self.runs() {
            // It may end in between; then there is nobody to tell.
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

/// State and start of a process: fields 3 and 22 of its stat, after its name,
/// which may hold anything.
fn start_ticks(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    if ["Z", "X"].contains(fields.first()?) { None } else { fields.get(19)?.parse().ok() }
}

/// Kills the ranks of the run `run` that a launcher has left on this machine:
/// processes that run our program with a heartbeat of that run. Waits until
/// they are gone, two seconds at most. Returns how many there were, and how
/// many stay.
pub fn sweep_ranks(run: &str) -> (usize, usize) {
    let program = std::env::current_exe().ok();
    let program = program.as_deref().and_then(|path| path.file_name()).map(OsStrExt::as_bytes);
    let is_ours = |pid: i32| {
        let link = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
        // A program that was replaced on disk since reads `... (deleted)`.
        let name = link.file_name()?.as_bytes();
        Some(Some(name.strip_suffix(b" (deleted)").unwrap_or(name)) == program)
    };
    kill_all(&of_run(run).filter(|pid| is_ours(*pid) == Some(true)).collect::<Vec<_>>())
}

/// Kills what a launcher of the run `run` has left on this machine: its agents
/// wait for nodes that are gone. Call it when the launcher has ended.
pub fn sweep_launcher(run: &str) -> (usize, usize) {
    kill_all(&of_run(run).collect::<Vec<_>>())
}

/// Processes with a heartbeat of the run `run` in their environment, but for
/// this one.
fn of_run(run: &str) -> impl Iterator<Item = i32> {
    let wanted = format!("{}={run}.", crate::job::heartbeat::ENV);
    let has_beat = move |pid: &i32| {
        let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environ.split(|byte| *byte == 0).any(|entry| entry.starts_with(wanted.as_bytes()))
    };
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let me = std::process::id() as i32;
    pids.filter(move |pid| *pid != me).filter(has_beat)
}

fn kill_all(pids: &[i32]) -> (usize, usize) {
    let found: Vec<Process> = pids.iter().filter_map(|pid| Process::of(*pid)).collect();
    for process in &found {
        process.signal(Signal::SIGKILL);
    }
    let start = Instant::now();
    loop {
        let left = found.iter().filter(|process| process.runs()).count();
        if left == 0 || start.elapsed() > Duration::from_secs(2) {
            return (found.len(), left);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            command.arg("100").env(crate::job::heartbeat::ENV, token).spawn().unwrap()
        };
        let me = format!("test-{}", std::process::id());
        let (mut ours, mut other) = (start(&format!("{me}.1")), start(&format!("{me}0.1")));
        assert_eq!(sweep_ranks(&me), (0, 0), "not our program");
        assert_eq!(sweep_launcher(&me), (1, 0));
        ours.wait().unwrap();
        assert_eq!(other.try_wait().unwrap(), None);
        other.kill().unwrap();
        other.wait().unwrap();
    }
}
