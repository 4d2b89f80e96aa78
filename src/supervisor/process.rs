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

/// Kills the processes of this machine that run our program with a heartbeat
/// of the run `run`: ranks that a launcher has left. Waits until they are gone,
/// two seconds at most. Returns how many there were, and how many stay.
pub fn sweep(run: &str) -> (usize, usize) {
    let wanted = format!("{}={run}.", crate::job::heartbeat::ENV);
    let program = std::env::current_exe().ok();
    let program = program.as_deref().and_then(|path| path.file_name());
    let ours = |pid: i32| {
        let link = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
        // A program that was replaced on disk since reads `... (deleted)`.
        let name = link.file_name()?.as_bytes();
        let name = name.strip_suffix(b" (deleted)").unwrap_or(name);
        let environ = fs::read(format!("/proc/{pid}/environ")).ok()?;
        let mut entries = environ.split(|byte| *byte == 0);
        let is_ours = Some(name) == program.map(OsStrExt::as_bytes)
            && entries.any(|entry| entry.starts_with(wanted.as_bytes()));
        is_ours.then(|| Process::of(pid)).flatten()
    };
    let Ok(entries) = fs::read_dir("/proc") else { return (0, 0) };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let me = std::process::id() as i32;
    let found: Vec<Process> = pids.filter(|pid| *pid != me).filter_map(ours).collect();
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
}
