//! Processes, each distinguished from a later one with the same number.
//!
//! [`ProcessId`] is of a fixed size, for the first page of a segment, and knows containers;
//! [`Process`] is for a file that a person may read, and can be signalled.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use bytemuck::{Pod, Zeroable};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::host;

/// How long a process may take in `exec` before it counts as having no environment.
const EXEC: Duration = Duration::from_secs(2);

pub fn user_id() -> u32 {
    nix::unistd::geteuid().as_raw()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Liveness {
    Alive,
    /// The process has ended, or the machine was rebooted since.
    Dead,
    /// The process cannot be seen from here: it belongs to another PID namespace (a container).
    Unknown,
}

/// A process, distinguishable from a later one with the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct ProcessId {
    pid: u64,
    /// When the process started, in clock ticks after boot.
    start_ticks: u64,
    pid_namespace: u64,
    boot_id: [u8; 64],
}

impl ProcessId {
    pub fn this() -> Self {
        let pid = std::process::id();
        Self {
            pid: pid.into(),
            start_ticks: running_since(pid).unwrap_or(0),
            pid_namespace: namespace("pid"),
            boot_id: padded_boot_id(),
        }
    }

    /// The text that [`ProcessId::parse`] reads.
    pub fn text(&self) -> String {
        let end = self.boot_id.iter().position(|&b| b == 0).unwrap_or(self.boot_id.len());
        let boot_id = String::from_utf8_lossy(&self.boot_id[..end]);
        format!("{}.{}.{}.{boot_id}", self.pid, self.start_ticks, self.pid_namespace)
    }

    /// Reads the text of [`ProcessId::text`].
    pub fn parse(text: &str) -> Option<Self> {
        let mut fields = text.splitn(4, '.');
        let mut number = || fields.next()?.parse().ok();
        let (pid, start_ticks, pid_namespace) = (number()?, number()?, number()?);
        let mut boot_id = [0; 64];
        let text = fields.next()?.as_bytes();
        boot_id.get_mut(..text.len())?.copy_from_slice(text);
        Some(Self { pid, start_ticks, pid_namespace, boot_id })
    }

    /// Whether it was a process of this boot; false if the system has no boot id.
    pub fn is_of_this_boot(&self) -> bool {
        self.boot_id[0] != 0 && self.boot_id == padded_boot_id()
    }

    pub fn pid(&self) -> u32 {
        self.pid as u32
    }

    pub fn liveness(&self) -> Liveness {
        if self.boot_id != padded_boot_id() {
            Liveness::Dead
        } else if self.pid_namespace != namespace("pid") {
            Liveness::Unknown
        } else if running_since(self.pid()) == Some(self.start_ticks) {
            Liveness::Alive
        } else {
            Liveness::Dead
        }
    }
}

/// The start of a process, in clock ticks after boot; `None` if it does not exist, or if all of its
/// threads have ended.
fn running_since(pid: u32) -> Option<u64> {
    stat(pid)?.number(22)
}

/// The `stat` of a process or a thread.
pub(crate) struct Stat(Vec<String>);

impl Stat {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        // The name, field 2, may contain anything.
        Some(Self(text.rsplit_once(')')?.1.split_whitespace().map(str::to_owned).collect()))
    }

    pub(crate) fn state(&self) -> &str {
        self.0.first().map_or("", String::as_str)
    }

    /// A number by its position in proc(5), from 4 on.
    pub(crate) fn number(&self, place: usize) -> Option<u64> {
        self.0.get(place - 3)?.parse().ok()
    }
}

/// Reads a process's stat. `None` if there is no such process, or if all of its threads have ended,
/// which releases its memory and its locks. A process is a zombie (state Z) as soon as its first
/// thread has ended.
pub(crate) fn stat(pid: u32) -> Option<Stat> {
    let stat = Stat::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?;
    let is_zombie = matches!(stat.state(), "Z" | "X");
    (!is_zombie || stat.number(20)? > 1).then_some(stat)
}

/// A description of this process, for [`holder_liveness`].
pub fn this_process() -> String {
    ProcessId::this().text()
}

/// Whether the process that [`this_process`] has described holds what it has taken. One that was
/// killed is dead: what it still holds is released without further action.
pub fn holder_liveness(process: &str) -> Liveness {
    let Some(process) = ProcessId::parse(process) else { return Liveness::Unknown };
    match process.liveness() {
        Liveness::Alive if !is_at_work(process.pid()) => Liveness::Dead,
        liveness => liveness,
    }
}

/// Whether process `pid` is ending: the system is releasing its memory, or is about to. Its first
/// thread may have ended already. False for a process that has ended, or cannot be seen.
pub(crate) fn is_ending(pid: u32) -> bool {
    stat(pid).is_some_and(|stat| is_exiting(&stat) || is_killed(pid))
}

/// Whether process `pid` runs and is not ending.
pub fn is_at_work(pid: u32) -> bool {
    // The stat is read last: a process that ends after the first check has none any more.
    !is_killed(pid) && stat(pid).is_some_and(|stat| !is_exiting(&stat))
}

/// Whether a process has begun to end.
fn is_exiting(stat: &Stat) -> bool {
    /// PF_EXITING of the kernel, a bit of the flags.
    const EXITING: u64 = 0x4;
    stat.number(9).is_some_and(|flags| flags & EXITING != 0)
}

/// Whether a SIGKILL is pending for a process.
fn is_killed(pid: u32) -> bool {
    const KILL: u64 = 1 << (libc::SIGKILL - 1);
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let pending = status.lines().filter_map(|line| {
        let mask = line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:"))?;
        u64::from_str_radix(mask.trim(), 16).ok()
    });
    { pending }.any(|mask| mask & KILL != 0)
}

/// The number of processes of this user that are ending on this machine: their memory will soon be
/// free.
pub fn ending_processes() -> usize {
    let is_own =
        |pid: &u32| fs::metadata(format!("/proc/{pid}")).is_ok_and(|meta| meta.uid() == user_id());
    numbers_in("/proc").filter(is_own).filter(|pid| is_ending(*pid)).count()
}

/// The names in a folder that are numbers: of processes in `/proc`, of threads in the `task` of
/// one.
pub(crate) fn numbers_in(folder: &str) -> impl Iterator<Item = u32> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The id of the running kernel's boot, which no other boot of any machine has; empty if the system
/// has none.
pub fn boot_id() -> &'static str {
    // Asked for each segment of a store.
    static BOOT: LazyLock<String> = LazyLock::new(|| {
        let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        text.trim().to_owned()
    });
    &BOOT
}

fn padded_boot_id() -> [u8; 64] {
    let mut id = [0; 64];
    for (to, from) in id.iter_mut().zip(boot_id().bytes()) {
        *to = from;
    }
    id
}

/// Identifies the running kernel until the next boot: the boot id or, if the system has none, the
/// name of the host.
pub fn kernel() -> String {
    match boot_id() {
        "" => host::name().unwrap_or_else(|| "unknown".into()),
        id => id.to_owned(),
    }
}

/// The inode of this thread's namespace of that kind; 0 if it cannot be read.
pub fn namespace(kind: &str) -> u64 {
    let link = fs::read_link(format!("/proc/thread-self/ns/{kind}")).unwrap_or_default();
    inode_in(&link).unwrap_or(0)
}

/// The number 17 in `ipc:[17]`.
pub fn inode_in(link: &Path) -> Option<u64> {
    link.to_str()?.split_once('[')?.1.strip_suffix(']')?.parse().ok()
}

/// A process, identified by its id, its start, and the boot of its machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    pub pid: i32,
    /// When the process started, in clock ticks since the machine's boot.
    start_ticks: u64,
    boot: String,
    host: String,
}

impl Process {
    /// The process that has the id `pid` now, if one runs.
    pub fn from_pid(pid: i32) -> Option<Self> {
        let start_ticks = running_since(pid as u32)?;
        Some(Self {
            pid,
            start_ticks,
            boot: boot_id().to_owned(),
            host: host::name().unwrap_or_default(),
        })
    }

    /// Whether the process still runs on this machine. A zombie does not run.
    pub fn runs(&self) -> bool {
        self.boot == boot_id() && running_since(self.pid as u32) == Some(self.start_ticks)
    }

    /// Whether the process was started with the variable `name` of that value; true also where its
    /// environment cannot be read.
    pub fn may_have(&self, name: &str, value: &str) -> bool {
        let environment = environment_of(self.pid);
        let wanted = format!("{name}={value}");
        let mut entries = environment.split(|byte| *byte == 0);
        environment.is_empty() || entries.any(|entry| entry == wanted.as_bytes())
    }

    /// The name of the machine that the process ran on, if that is not this machine.
    pub fn elsewhere(&self) -> Option<&str> {
        (self.host != host::name().unwrap_or_default()).then_some(self.host.as_str())
    }

    /// Sends a signal to the process if it still runs.
    pub fn signal(&self, signal: Signal) {
        if self.runs() {
            // The process may end in between, and then needs no signal.
            let _ = kill(Pid::from_raw(self.pid), signal);
        }
    }

    /// Kills the process and its process group, of which it must be the leader.
    pub fn kill_group(&self) {
        if self.runs() {
            let _ = killpg(Pid::from_raw(self.pid), Signal::SIGKILL);
        }
    }
}

/// Whether a signal has stopped the process `pid` (SIGSTOP); false for one that a debugger has
/// stopped.
pub fn is_stopped(pid: u32) -> bool {
    stat(pid).is_some_and(|stat| stat.state() == "T")
}

/// The environment that a process was started with; empty if it may not be read. During `exec` a
/// process's environment reads as empty although it has one, while its parent already continues:
/// this function waits for such a process, two seconds at most.
pub fn environment_of(pid: i32) -> Vec<u8> {
    let start = Instant::now();
    let read = || fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    loop {
        let environment = read();
        if !environment.is_empty() {
            return environment;
        }
        if !takes_on_program(pid) || start.elapsed() > EXEC {
            // The process may have finished `exec` since.
            return read();
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Whether a process is in `exec`: it has memory (field 23 of its stat) but no program in it yet
/// (field 26), which the kernel sets after the environment. Kernel threads have neither.
fn takes_on_program(pid: i32) -> bool {
    stat(pid as u32).is_some_and(|stat| stat.number(23) != Some(0) && stat.number(26) == Some(0))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// A process that has exited and not been waited for, and one that is killed.
    #[test]
    fn a_process_that_was_killed_is_not_at_work() {
        assert_eq!(holder_liveness(&this_process()), Liveness::Alive);
        assert_eq!(holder_liveness("no process"), Liveness::Unknown);
        let mut child = Command::new("sleep").arg("1000").spawn().expect("sleep");
        let start_ticks = running_since(child.id()).expect("it runs");
        let process = ProcessId { pid: child.id().into(), start_ticks, ..ProcessId::this() };
        assert_eq!(holder_liveness(&process.text()), Liveness::Alive);
        let elsewhere = ProcessId { pid_namespace: 1, ..process };
        assert_eq!(holder_liveness(&elsewhere.text()), Liveness::Unknown);
        child.kill().expect("ours");
        assert_eq!(holder_liveness(&process.text()), Liveness::Dead);
        child.wait().expect("ours");
        assert_eq!(holder_liveness(&process.text()), Liveness::Dead);
    }

    /// A process may end between two reads of its files.
    #[test]
    fn a_process_that_was_killed_never_seems_to_be_at_work_again() {
        for round in 0..300 {
            let mut child = Command::new("sleep").arg("1000").spawn().expect("sleep");
            let start_ticks = running_since(child.id()).expect("it runs");
            let process = ProcessId { pid: child.id().into(), start_ticks, ..ProcessId::this() };
            child.kill().expect("ours");
            while process.liveness() == Liveness::Alive {
                assert_eq!(holder_liveness(&process.text()), Liveness::Dead, "round {round}");
            }
            child.wait().expect("ours");
        }
    }

    /// A process whose first thread has ended still holds its memory and its locks.
    #[test]
    fn a_process_lives_as_long_as_one_of_its_threads() {
        // SAFETY: the child uses nothing of the other threads of this process but the allocator,
        // which glibc makes usable after a fork.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            std::thread::spawn(|| std::thread::sleep(std::time::Duration::from_secs(1000)));
            // SAFETY: ends the calling thread alone.
            unsafe { libc::syscall(libc::SYS_exit, 0) };
        }
        let state =
            || fs::read_to_string(format!("/proc/{pid}/stat")).expect("it is not waited for");
        while !state().contains(") Z") {
            std::thread::yield_now();
        }
        let start_ticks = running_since(pid as u32).expect("its second thread runs");
        let process = ProcessId { pid: pid as u64, start_ticks, ..ProcessId::this() };
        assert_eq!(process.liveness(), Liveness::Alive);
        assert!(is_ending(pid as u32));
        // SAFETY: the child of this test.
        let ended = unsafe { libc::kill(pid, libc::SIGKILL) | libc::waitpid(pid, &mut 0, 0) };
        assert_eq!(ended, pid);
        assert_eq!(process.liveness(), Liveness::Dead);
    }

    #[test]
    fn a_process_comes_back_from_its_text() {
        let this = ProcessId::this();
        assert_eq!(ProcessId::parse(&this.text()), Some(this));
        for text in ["", "1.2.3", "1.2.x.b", &format!("1.2.3.{}", "b".repeat(65))] {
            assert_eq!(ProcessId::parse(text), None, "{text}");
        }
    }

    #[test]
    fn this_process_lives_and_a_finished_one_does_not() {
        let this = ProcessId::this();
        assert_eq!(this.liveness(), Liveness::Alive);
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        // It may have started in the same tick as this process.
        let start_ticks = running_since(child.id()).unwrap();
        let started = ProcessId { pid: child.id().into(), start_ticks, ..this };
        let other = ProcessId { start_ticks: start_ticks + 1, ..started };
        assert_eq!(other.liveness(), Liveness::Dead, "same number, other start");
        assert_eq!(started.liveness(), Liveness::Alive);
        child.kill().unwrap();
        while running_since(child.id()).is_some() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert_eq!(started.liveness(), Liveness::Dead, "a zombie");
        child.wait().unwrap();
        assert_eq!(started.liveness(), Liveness::Dead, "gone");
    }

    #[test]
    fn another_boot_is_death_and_another_namespace_unknown() {
        let this = ProcessId::this();
        assert_eq!(ProcessId { boot_id: [7; 64], ..this }.liveness(), Liveness::Dead);
        assert_eq!(ProcessId { pid_namespace: 7, ..this }.liveness(), Liveness::Unknown);
    }

    #[test]
    fn a_process_is_known_until_it_ends() {
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        let process = Process::from_pid(child.id() as i32).unwrap();
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
