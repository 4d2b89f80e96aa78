//! Cores that other processes are pinned to and compute on.
//!
//! A thread counts if it may run on fewer CPUs than the machine has, and computes: within a short
//! sample it uses a tenth of the time, or it is running at both ends. Threads that may run anywhere
//! are moved by the system to cores that are free. Threads of the kernel, sleeping daemons, stopped
//! processes and those that are being killed leave their core to others.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, Instant};
use std::{fs, thread};

use skt_terms::shown::shown;

use crate::affinity::mask_of;
use crate::counters::topology::Cpu;
use crate::process::{is_at_work, numbers_in};

/// Threads of another process that compute on the same CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Occupant {
    /// The CPUs that the threads are pinned to, in ascending order.
    pub cpus: Vec<usize>,
    /// The number of these threads.
    pub threads: usize,
    /// The process; `None` if it is of a container whose processes cannot be seen.
    pub pid: Option<u32>,
}

/// The time during which threads are watched.
const SAMPLE: Duration = Duration::from_millis(50);
/// The least share of the sample for which a thread that computes has a core: several that share
/// one have less than the whole.
const MIN_SHARE: f64 = 0.1;

/// The threads of other processes than `own` that compute on CPUs that are `relevant`. This takes a
/// microsecond for each thread of the machine and, if any are pinned to such CPUs, a sample of 50
/// ms.
pub fn find(own: &[u32], relevant: impl Fn(&[usize]) -> bool) -> Vec<Occupant> {
    let pinned: Vec<PinnedThread> = numbers_in("/proc")
        .filter(|pid| !own.contains(pid))
        .flat_map(threads_of)
        .filter(|thread| relevant(&thread.cpus))
        .collect();
    let before: Vec<Option<Usage>> = pinned.iter().map(PinnedThread::usage).collect();
    if before.iter().all(Option::is_none) {
        return Vec::new();
    }
    let start = Instant::now();
    thread::sleep(SAMPLE);
    let mut found = BTreeMap::<(u32, Vec<usize>), usize>::new();
    for (thread, before) in pinned.into_iter().zip(before) {
        let Some(before) = before else { continue };
        let computes = thread.usage().is_some_and(|now| now.computes_since(before, start));
        if computes && thread.is_still_pinned() && is_at_work(thread.pid) {
            *found.entry((thread.pid, thread.cpus)).or_default() += 1;
        }
    }
    let occupant = |((pid, cpus), threads)| Occupant { cpus, threads, pid: Some(pid) };
    found.into_iter().map(occupant).collect()
}

struct PinnedThread {
    pid: u32,
    thread: i32,
    cpus: Vec<usize>,
}

fn threads_of(pid: u32) -> impl Iterator<Item = PinnedThread> {
    let threads = numbers_in(&format!("/proc/{pid}/task")).map(|thread| thread as i32);
    threads
        .filter_map(move |thread| Some(PinnedThread { pid, thread, cpus: mask_of(thread).ok()? }))
}

#[derive(Debug, Clone, Copy)]
struct Usage {
    cpu_nanos: u64,
    is_running: bool,
}

impl PinnedThread {
    /// Whether the thread has the CPUs that it had before: hwloc, which MPI calls at its start,
    /// binds a thread to each CPU in turn for a moment.
    fn is_still_pinned(&self) -> bool {
        mask_of(self.thread).is_ok_and(|cpus| cpus == self.cpus)
    }

    /// What the thread has used so far; `None` if it is the kernel's, is stopped or has ended.
    fn usage(&self) -> Option<Usage> {
        /// PF_KTHREAD of the kernel, a bit in field 9 of a thread's stat.
        const OF_KERNEL: u64 = 0x20_0000;
        let file =
            |name| fs::read_to_string(format!("/proc/{}/task/{}/{name}", self.pid, self.thread));
        let stat = file("stat").ok()?;
        // The state is field 3, after the name, which may contain anything.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let state = fields.next()?;
        let flags: u64 = fields.nth(9 - 4)?.parse().ok()?;
        if flags & OF_KERNEL != 0 || !["R", "S", "D"].contains(&state) {
            return None;
        }
        // A kernel that counts no nanoseconds has no such file, and the state alone decides.
        let counts = file("schedstat").unwrap_or_default();
        let cpu_nanos = counts.split_whitespace().next().and_then(|word| word.parse().ok());
        Some(Usage { cpu_nanos: cpu_nanos.unwrap_or(0), is_running: state == "R" })
    }
}

impl Usage {
    fn computes_since(self, before: Self, start: Instant) -> bool {
        let used = self.cpu_nanos.saturating_sub(before.cpu_nanos) as f64;
        let share = used / start.elapsed().as_nanos() as f64;
        share >= MIN_SHARE || (self.is_running && before.is_running)
    }
}

/// The cores of `mask` that occupants use, with the occupant of each. An occupant that may also run
/// elsewhere, or on the whole mask, does not count: the system moves it. One with several cores to
/// choose from is left the last ones of them, one for each of its threads.
pub fn taken<'a>(
    cpus: &[Cpu],
    mask: &[usize],
    occupants: &'a [Occupant],
) -> BTreeMap<usize, &'a Occupant> {
    let own = cores(cpus, mask);
    let mut pinned: Vec<(BTreeSet<usize>, &Occupant)> =
        occupants.iter().map(|occupant| (cores(cpus, &occupant.cpus), occupant)).collect();
    pinned.retain(|(cores, _)| cores.is_subset(&own) && cores.len() < own.len());
    pinned.sort_by_key(|(cores, _)| cores.len());
    let mut taken = BTreeMap::new();
    for (cores, occupant) in pinned {
        let free: Vec<usize> =
            cores.into_iter().rev().filter(|core| !taken.contains_key(core)).collect();
        taken.extend(free.into_iter().take(occupant.threads).map(|core| (core, occupant)));
    }
    taken
}

/// The occupants that can run nowhere else than on the cores of `mask`.
pub fn within<'a>(cpus: &[Cpu], mask: &[usize], occupants: &'a [Occupant]) -> Vec<&'a Occupant> {
    let own = cores(cpus, mask);
    occupants.iter().filter(|occupant| cores(cpus, &occupant.cpus).is_subset(&own)).collect()
}

fn cores(cpus: &[Cpu], mask: &[usize]) -> BTreeSet<usize> {
    let is_in = |cpu: &&Cpu| mask.binary_search(&cpu.id).is_ok();
    cpus.iter().filter(is_in).map(|cpu| cpu.core).collect()
}

/// The processes of these occupants, in words: the first few by command, process id and user.
pub fn words<'a>(occupants: impl IntoIterator<Item = &'a Occupant>) -> String {
    const NAMED: usize = 3;
    let processes: BTreeSet<Option<u32>> =
        occupants.into_iter().map(|occupant| occupant.pid).collect();
    let mut words: Vec<String> =
        processes.iter().take(NAMED).map(|pid| format_process(*pid)).collect();
    if processes.len() > NAMED {
        words.push(format!("{} more", processes.len() - NAMED));
    }
    words.join(", ")
}

pub(crate) fn format_process(pid: Option<u32>) -> String {
    let Some(pid) = pid else {
        return "a run of skt-hpl in another container".to_owned();
    };
    let file = |name| fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let text =
        |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).replace('\0', " ").trim().to_owned();
    let line = text(file("cmdline"));
    // A thread of the kernel has no command line.
    let command = shown(&if line.is_empty() { text(file("comm")) } else { line });
    let user = fs::metadata(format!("/proc/{pid}")).ok().map(|meta| meta.uid());
    let name = |id: u32| {
        let known = nix::unistd::User::from_uid(id.into()).ok().flatten();
        known.map_or_else(|| id.to_string(), |user| shown(&user.name))
    };
    let user = user.map_or_else(String::new, |id| format!(" of user {}", name(id)));
    format!("process {pid} ({command}){user}")
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;
    use crate::affinity::{current_mask, set_mask};

    fn occupant(cpus: &[usize], threads: usize) -> Occupant {
        Occupant { cpus: cpus.to_vec(), threads, pid: Some(1) }
    }

    /// Cores of two CPUs each: 0 and 4, 1 and 5, 2 and 6, 3 and 7.
    fn machine() -> Vec<Cpu> {
        (0..8).map(|id| Cpu { id, core: id % 4, package: 0 }).collect()
    }

    fn taken_of(mask: &[usize], occupants: &[Occupant]) -> Vec<usize> {
        taken(&machine(), mask, occupants).into_keys().collect()
    }

    #[test]
    fn a_pinned_thread_takes_the_whole_core() {
        let all: Vec<usize> = (0..8).collect();
        assert_eq!(taken_of(&all, &[occupant(&[6], 1)]), [2]);
        assert_eq!(taken_of(&all, &[occupant(&[2, 6], 2), occupant(&[0], 3)]), [0, 2]);
        assert_eq!(taken_of(&all, &[]), [0; 0]);
    }

    #[test]
    fn movable_threads_occupy_no_core() {
        assert_eq!(taken_of(&[0, 1], &[occupant(&[1, 2], 2)]), [0; 0]);
        assert_eq!(taken_of(&[0, 1], &[occupant(&[0, 1], 2)]), [0; 0], "as wide as the mask");
        assert_eq!(taken_of(&[0, 1], &[occupant(&[1], 1)]), [1]);
    }

    #[test]
    fn threads_with_a_choice_are_left_as_many_cores_as_they_use() {
        let all: Vec<usize> = (0..8).collect();
        let half = [0, 1, 4, 5];
        assert_eq!(taken_of(&all, &[occupant(&half, 1)]), [1]);
        assert_eq!(taken_of(&all, &[occupant(&half, 1), occupant(&[1], 1)]), [0, 1]);
        assert_eq!(taken_of(&all, &[occupant(&half, 9)]), [0, 1]);
    }

    #[test]
    fn a_binding_names_what_shares_its_cores() {
        let there = [occupant(&[1], 1), occupant(&[0, 1], 1), occupant(&[2], 1)];
        let cpus = machine();
        assert_eq!(within(&cpus, &[1], &there), [&there[0]]);
        assert_eq!(within(&cpus, &[0, 1], &there), [&there[0], &there[1]]);
    }

    /// A process pinned to a CPU; it is killed when dropped.
    struct Pinned(Child);

    impl Pinned {
        fn start(cpu: usize, script: &str) -> Self {
            use std::os::unix::process::CommandExt as _;
            let mut shell = Command::new("sh");
            shell.args(["-c", script]).stdin(Stdio::piped());
            // SAFETY: between fork and exec only a system call on memory of this frame is made.
            unsafe { shell.pre_exec(move || set_mask(&[cpu])) };
            Self(shell.spawn().expect("sh"))
        }

        fn is_found(&self, own: &[u32]) -> bool {
            let found = find(own, |cpus| cpus.len() == 1);
            found.iter().any(|occupant| occupant.pid == Some(self.0.id()))
        }
    }

    impl Drop for Pinned {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn a_pinned_process_counts_while_it_computes() {
        let cpu = *current_mask().unwrap().last().unwrap();
        let busy = Pinned::start(cpu, "while :; do :; done");
        let asleep = Pinned::start(cpu, "read line");
        assert!(busy.is_found(&[]));
        assert!(!busy.is_found(&[busy.0.id()]), "a process of the job itself");
        assert!(!asleep.is_found(&[]));
        let words = words(&[Occupant { cpus: vec![cpu], threads: 1, pid: Some(busy.0.id()) }]);
        assert!(words.starts_with(&format!("process {} (sh -c while", busy.0.id())), "{words}");
        assert!(words.contains(" of user "), "{words}");
        let stop =
            |signal| nix::sys::signal::kill(nix::unistd::Pid::from_raw(busy.0.id() as i32), signal);
        stop(nix::sys::signal::Signal::SIGSTOP).unwrap();
        // The signal takes effect when the process is next about to run.
        while busy.is_found(&[]) {}
    }
}
