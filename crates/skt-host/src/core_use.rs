//! Who uses the cores of this machine: what the threads of this process got of them, and who used
//! the rest ([`CoreWatch`]); which are idle; which other processes are pinned to some and compute
//! there ([`find`]); and which a run of this program has chosen ([`CoreClaims`]).
//!
//! For each thread the scheduler counts the time for which it ran, and the time for which it was
//! ready to run and had no core (`schedstat`). A thread that sleeps adds to neither, one that polls
//! for a message runs. A kernel without these counts (`CONFIG_SCHED_INFO`) leaves the share
//! unknown.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::thread;
use std::time::{Duration, Instant};

use crate::shown::shown;
use nix::fcntl::{FcntlArg, fcntl};
use serde::{Deserialize, Serialize};

use crate::affinity::mask_of;
use crate::counters::topology::Cpu;
use crate::counters::{Root, parse_cpu_list};
use crate::process::{Stat, boot_id, is_at_work, is_ending, numbers_in};

/// The time of a CPU, or of all together, since the machine was started, in ticks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuTicks {
    all: u64,
    /// Idle, and idle while a disk works for a thread.
    idle: u64,
    /// Time that the hypervisor gave to others while this machine had work, if it is counted.
    stolen: Option<u64>,
}

impl CpuTicks {
    /// Reads the words after the name in a line of `/proc/stat`: user, nice, system, idle, iowait,
    /// irq, softirq, steal, and guest times, which user time includes.
    fn from_words<'a>(words: impl Iterator<Item = &'a str>) -> Option<Self> {
        let times: Option<Vec<u64>> = words.take(8).map(|word| word.parse().ok()).collect();
        let times = times?;
        let idle = times.iter().skip(3).take(2).sum();
        Some(Self { all: times.iter().sum(), idle, stolen: times.get(7).copied() })
    }

    /// The share of the time since `before` in which the CPU ran something; `None` if its counters
    /// stand still.
    fn busy_since(self, before: &Self) -> Option<f64> {
        let all = self.all.saturating_sub(before.all);
        let idle = self.idle.saturating_sub(before.idle);
        (all > 0).then(|| 1.0 - (idle as f64 / all as f64).min(1.0))
    }

    /// The share of the time since `before` that was stolen, if it is known.
    fn stolen_since(self, before: Self) -> Option<f64> {
        let all = self.all.saturating_sub(before.all).max(1);
        let stolen = self.stolen?.saturating_sub(before.stolen?);
        Some(stolen as f64 / all as f64)
    }
}

/// The least share of the time for which a CPU that is not in use is idle: the system itself has
/// some work everywhere.
const IDLE_SHARE: f64 = 0.9;

/// Reads the time of all CPUs together, which the first line has.
fn read_all(root: &Root) -> Option<CpuTicks> {
    let text = root.text("proc/stat")?;
    CpuTicks::from_words(text.lines().next()?.strip_prefix("cpu ")?.split_whitespace())
}

/// Reads the times of all CPUs, by their numbers.
pub fn read_cpus(root: &Root) -> BTreeMap<usize, CpuTicks> {
    let text = root.text("proc/stat").unwrap_or_default();
    let of_line = |line: &str| {
        let mut words = line.strip_prefix("cpu")?.split_whitespace();
        Some((words.next()?.parse().ok()?, CpuTicks::from_words(words)?))
    };
    text.lines().skip(1).map_while(of_line).collect()
}

/// The CPUs of `now` that were idle since `before`; also those whose counters stand still, as in
/// containers that show none.
pub fn idle_since(
    now: &BTreeMap<usize, CpuTicks>,
    before: &BTreeMap<usize, CpuTicks>,
) -> Vec<usize> {
    let is_idle = |(id, now): &(&usize, &CpuTicks)| {
        let before = before.get(id).copied().unwrap_or_default();
        let all = now.all.saturating_sub(before.all) as f64;
        now.idle.saturating_sub(before.idle) as f64 >= IDLE_SHARE * all
    };
    now.iter().filter(is_idle).map(|(id, _)| *id).collect()
}

/// The ticks of a second in the files of `/proc`: part of the binary interface of Linux on all
/// processors that this program is built for.
const TICKS_A_SECOND: f64 = 100.0;
/// The share of the time that other work takes from the threads of any host, at most. More is
/// reported.
const NOISE_SHARE: f64 = 0.05;
/// The share of the host's time that a hypervisor takes from quiet machines, at most. It is counted
/// in ticks of 10 ms: tests of 0.4 s on two CPUs of an idle virtual machine had up to 9 %.
const NOISE_STOLEN_SHARE: f64 = 0.1;
/// The seconds that have to be lost, besides: a time slice or two, which the system's own work
/// takes at any moment, are more than that share of a short test.
const NOISE_SECONDS: f64 = 0.05;
const NAMED_MAX: usize = 3;

/// The part of a job that is on this host.
#[derive(Debug, Clone, Default)]
pub struct JobPart {
    pub processes: Vec<u32>,
    /// The CPUs that they may use; all if empty.
    pub cpus: Vec<usize>,
}

/// Watches the threads of this process and, for the job's part of the host, all other programs.
#[derive(Debug)]
pub struct CoreWatch {
    root: Root,
    job: Option<JobPart>,
    before: Snapshot,
}

/// What the threads of a process got of the cores, from one moment to another.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CoreUse {
    /// The share of the time in which its threads could run for which they had a core; `None` if
    /// the kernel does not count it.
    pub had_share: Option<f64>,
    /// Seconds, added up over its threads, for which they could run and had no core.
    pub waited_seconds: f64,
    /// The share of the host's time that the hypervisor gave to other machines.
    pub stolen_share: f64,
    /// The other programs of the host, if they were watched.
    pub others: Option<OtherPrograms>,
}

/// What other programs used of the CPUs of a job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct OtherPrograms {
    /// All of them, in cores: 1 is the whole time of one CPU.
    pub cores: f64,
    /// The programs that used most, in descending order.
    pub named: Vec<OtherProgram>,
}

/// A program that may run on the CPUs of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OtherProgram {
    pub pid: u32,
    /// The process, its command line and its user, in words.
    pub what: String,
    pub cores: f64,
}

#[derive(Debug)]
struct Snapshot {
    at: Instant,
    /// Nanoseconds for which each thread of this process ran, and waited for a core.
    threads: BTreeMap<String, [u64; 2]>,
    ticks: Option<CpuTicks>,
    cpus: BTreeMap<usize, CpuTicks>,
    /// The ticks that each process has used.
    processes: BTreeMap<u32, u64>,
}

impl Snapshot {
    fn take(root: &Root, job: Option<&JobPart>) -> Self {
        let (processes, cpus) = match job {
            Some(_) => (processes(root), read_cpus(root)),
            None => Default::default(),
        };
        let (threads, ticks) = (threads(root), read_all(root));
        Self { at: Instant::now(), threads, ticks, cpus, processes }
    }
}

/// Nanoseconds for which a thread ran, and waited for a core, from its `schedstat`.
fn times(schedstat: &str) -> Option<[u64; 2]> {
    let mut words = schedstat.split_whitespace().map_while(|word| word.parse().ok());
    Some([words.next()?, words.next()?])
}

fn threads(root: &Root) -> BTreeMap<String, [u64; 2]> {
    let of_thread = |id: String| {
        let times = times(&root.text(&format!("proc/self/task/{id}/schedstat"))?)?;
        Some((id, times))
    };
    root.names("proc/self/task").into_iter().filter_map(of_thread).collect()
}

/// User and system time of all threads of each process, in ticks.
fn processes(root: &Root) -> BTreeMap<u32, u64> {
    let ticks = |name: String| {
        let stat = Stat::parse(&root.text(&format!("proc/{name}/stat"))?)?;
        Some((name.parse().ok()?, stat.number(14)? + stat.number(15)?))
    };
    root.names("proc").into_iter().filter_map(ticks).collect()
}

impl CoreWatch {
    /// Begins to watch. With a `job`, this reads a file of each process of the host.
    pub fn start(root: Root, job: Option<JobPart>) -> Self {
        let before = Snapshot::take(&root, job.as_ref());
        Self { root, job, before }
    }

    pub fn used(&self) -> CoreUse {
        let now = Snapshot::take(&self.root, self.job.as_ref());
        let mut sums = [0u64; 2];
        for (id, times) in &now.threads {
            let before = self.before.threads.get(id).copied().unwrap_or_default();
            for ((sum, now), before) in sums.iter_mut().zip(times).zip(before) {
                *sum += now.saturating_sub(before);
            }
        }
        let [ran, waited] = sums;
        let stolen =
            now.ticks.zip(self.before.ticks).and_then(|(now, then)| now.stolen_since(then));
        CoreUse {
            had_share: (ran + waited > 0).then(|| ran as f64 / (ran + waited) as f64),
            waited_seconds: waited as f64 / 1e9,
            // Unknown time does not count as stolen.
            stolen_share: stolen.unwrap_or(0.0),
            others: self.job.as_ref().map(|job| self.others(job, &now)),
        }
    }

    fn others(&self, job: &JobPart, now: &Snapshot) -> OtherPrograms {
        let ticks = (now.at - self.before.at).as_secs_f64().max(1e-9) * TICKS_A_SECOND;
        let since = |(pid, all): (&u32, &u64)| {
            let before = self.before.processes.get(pid).copied().unwrap_or(0);
            (*pid, all.saturating_sub(before) as f64 / ticks)
        };
        let (own, mut others): (Vec<_>, Vec<_>) = now
            .processes
            .iter()
            .map(since)
            .filter(|(_, cores)| *cores > 0.0)
            .partition(|(pid, _)| job.processes.contains(pid));
        others.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        let worth_a_name = others.into_iter().take_while(|(_, cores)| *cores >= NOISE_SHARE);
        let named: Vec<OtherProgram> = worth_a_name
            .filter(|(pid, _)| self.may_use(*pid, &job.cpus))
            .take(NAMED_MAX)
            .map(|(pid, cores)| OtherProgram { pid, what: format_process(Some(pid)), cores })
            .collect();
        let is_ours = |id: &usize| job.cpus.is_empty() || job.cpus.contains(id);
        let busy = |(id, now): (&usize, &CpuTicks)| now.busy_since(self.before.cpus.get(id)?);
        let busy: f64 = now.cpus.iter().filter(|(id, _)| is_ours(id)).filter_map(busy).sum();
        let own: f64 = own.into_iter().map(|(_, cores)| cores).sum();
        let of_named = named.iter().map(|program| program.cores).sum();
        OtherPrograms { cores: (busy - own).max(of_named), named }
    }

    /// Whether a process may run on any of these CPUs; also if that is not known.
    fn may_use(&self, pid: u32, cpus: &[usize]) -> bool {
        let status = self.root.text(&format!("proc/{pid}/status")).unwrap_or_default();
        let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        let allowed = allowed.and_then(parse_cpu_list);
        cpus.is_empty()
            || allowed.is_none_or(|allowed| allowed.iter().any(|cpu| cpus.contains(cpu)))
    }
}

impl CoreUse {
    /// The share of the time in which the threads could run for which they had no core; 0 if it is
    /// not known.
    pub fn lost_share(&self) -> f64 {
        1.0 - self.had_share.unwrap_or(1.0)
    }

    /// Whether other work took more of the cores than the system's own work does anywhere.
    pub fn is_disturbed(&self) -> bool {
        let has_waited = self.lost_share() > NOISE_SHARE && self.waited_seconds > NOISE_SECONDS;
        has_waited || self.stolen_share > NOISE_STOLEN_SHARE
    }

    /// Who used the cores for which threads of this process waited, the larger part first.
    pub fn users(&self) -> String {
        let percent = |cores: f64| format!("{:.0} % of a core", 100.0 * cores);
        let mut words = Vec::new();
        if let Some(others) = &self.others {
            let named = &others.named;
            words.extend(named.iter().map(|it| format!("{} used {}", it.what, percent(it.cores))));
            let rest = others.cores - named.iter().map(|it| it.cores).sum::<f64>();
            if rest > NOISE_SHARE {
                let unnamed = "programs that are small, have ended or are not visible here";
                words.push(format!("{unnamed} used {}", percent(rest)));
            }
            if words.is_empty() && self.lost_share() > NOISE_SHARE {
                words.push("the job's own threads used them".to_owned());
            }
        }
        if self.stolen_share > NOISE_SHARE {
            let words_of_it = format!(
                "the hypervisor took {:.0} % of the host's time",
                100.0 * self.stolen_share
            );
            let is_larger = self.stolen_share > self.lost_share();
            words.insert(if is_larger { 0 } else { words.len() }, words_of_it);
        }
        words.join(", ")
    }

    /// The share of the time for which the threads had a core, and who used the rest.
    pub fn words(&self) -> String {
        let had = self.had_share.map(|share| {
            format!("had a core for {:.0} % of the time in which it could run", 100.0 * share)
        });
        let words = [had.unwrap_or_default(), self.users()];
        words.into_iter().filter(|words| !words.is_empty()).collect::<Vec<_>>().join("; ")
    }
}

/// Threads of another process that compute on the same CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Occupant {
    /// The CPUs that the threads are pinned to, in ascending order.
    pub cpus: Vec<usize>,
    pub threads: usize,
    /// The process; `None` if it is of a container whose processes cannot be seen.
    pub pid: Option<u32>,
}

/// The time during which threads are watched.
const SAMPLE: Duration = Duration::from_millis(50);
/// The least share of the sample for which a thread that computes has a core: several that share
/// one have less than the whole.
const MIN_SHARE: f64 = 0.1;

/// The threads of other processes than `own` that compute on CPUs that are `relevant`.
///
/// A thread counts if it may run on fewer CPUs than the machine has, and computes: within a short
/// sample it uses a tenth of the time, or it is running at both ends. Threads that may run anywhere
/// are moved by the system to cores that are free. Threads of the kernel, sleeping daemons, stopped
/// processes and those that are being killed leave their core to others. This takes a microsecond
/// for each thread of the machine and, if any are pinned to such CPUs, a sample of 50 ms.
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
        /// PF_KTHREAD of the kernel, a bit of the flags.
        const OF_KERNEL: u64 = 0x20_0000;
        let file =
            |name| fs::read_to_string(format!("/proc/{}/task/{}/{name}", self.pid, self.thread));
        let stat = Stat::parse(&file("stat").ok()?)?;
        if stat.number(9)? & OF_KERNEL != 0 || !["R", "S", "D"].contains(&stat.state()) {
            return None;
        }
        // A kernel that counts no nanoseconds has no such file, and the state alone decides.
        let [cpu_nanos, _] = times(&file("schedstat").unwrap_or_default()).unwrap_or_default();
        Some(Usage { cpu_nanos, is_running: stat.state() == "R" })
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

fn format_process(pid: Option<u32>) -> String {
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

/// Namespaces that most containers share with their host; kernels before 5.6 lack the first.
const FILES: [&str; 2] = ["/proc/self/ns/time", "/proc/self/ns/user"];
/// A run that chooses holds the lock for less than a millisecond. One that was stopped while it
/// held it may not keep others from starting: after this time they choose without the lock.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// The cores that this run has chosen, until this is dropped, so that two runs that start at once
/// choose others.
///
/// A claim of CPU c is a shared lock (`fcntl`) on byte c of a namespace in `/proc/self/ns`: an
/// object of the kernel that all processes on the machine may open for reading, of all users and
/// containers. The kernel removes a claim when its process ends, however it ends, and nothing is
/// written anywhere. A claim is only advisory: another run sees it, with the process that has it,
/// even while that waits and uses no processor time, which [`find`] would not see. An exclusive
/// lock (`flock`) of the same object is held from reading the claims to taking one's own, so that
/// one run chooses at a time.
#[derive(Debug)]
pub struct CoreClaims {
    /// Holds the locks; `None` on a system without such an object.
    _file: Option<File>,
}

impl CoreClaims {
    /// Claims the CPUs that `choose` returns with its result. It gets the claims of other runs on
    /// `cpus`.
    pub fn take<T>(
        cpus: &[Cpu],
        choose: impl FnOnce(Vec<Occupant>) -> (T, Vec<usize>),
    ) -> (Self, T) {
        let Some(file) = FILES.iter().find_map(|path| File::open(path).ok()) else {
            return (Self::none(), choose(Vec::new()).0);
        };
        let start = Instant::now();
        while file.try_lock().is_err() && start.elapsed() < LONGEST_WAIT {
            thread::sleep(Duration::from_millis(1));
        }
        let others = cpus.iter().filter_map(|cpu| claim_of(&file, cpu.id)).collect();
        let (chosen, claimed) = choose(others);
        for cpu in claimed {
            // A system that refuses has no claims: the choice stays as it is.
            let _ = fcntl(&file, FcntlArg::F_SETLK(&byte(libc::F_RDLCK, cpu)));
        }
        let _ = file.unlock();
        (Self { _file: Some(file) }, chosen)
    }

    pub fn none() -> Self {
        Self { _file: None }
    }
}

/// Identifies what claims are made on: processes for which this is the same have the same cores.
/// `host` is the name of a machine without such an object.
pub fn machine(host: &str) -> String {
    let object = FILES.iter().find_map(|path| fs::metadata(path).ok());
    let object = object.map_or_else(String::new, |object| object.ino().to_string());
    let boot = Some(boot_id()).filter(|id| !id.is_empty());
    format!("{} {object}", boot.unwrap_or(host))
}

/// The claim of another process that is not about to end.
fn claim_of(file: &File, cpu: usize) -> Option<Occupant> {
    let mut lock = byte(libc::F_WRLCK, cpu);
    fcntl(file, FcntlArg::F_GETLK(&mut lock)).ok()?;
    if i32::from(lock.l_type) == libc::F_UNLCK {
        return None;
    }
    // The kernel reports 0 for a process that cannot be seen from here.
    let pid = u32::try_from(lock.l_pid).ok().filter(|pid| *pid > 0);
    let is_ending = pid.is_some_and(is_ending);
    (!is_ending).then(|| Occupant { cpus: vec![cpu], threads: 1, pid })
}

fn byte(kind: libc::c_int, cpu: usize) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: cpu as libc::off_t,
        l_len: 1,
        l_pid: 0,
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;
    use crate::affinity::{current_mask, set_mask};
    use crate::testing::Tree;

    #[test]
    fn stolen_time_is_the_eighth() {
        let tree = Tree::new();
        assert_eq!(read_all(&tree.root()), None);
        tree.file("proc/stat", "cpu  10 0 10 70 0 0 0 10 5 0\ncpu0 1 2 3\n");
        let now = read_all(&tree.root()).unwrap();
        assert_eq!(now, CpuTicks { all: 100, idle: 70, stolen: Some(10) });
        let start = CpuTicks { stolen: Some(0), ..CpuTicks::default() };
        assert_eq!((now.stolen_since(start), now.stolen_since(now)), (Some(0.1), Some(0.0)));
        assert_eq!(now.stolen_since(CpuTicks::default()), None);
        for unknown in ["cpu 10 0 x 70 0 0 0 10 5 0", "cpu0 1 2 3 4 5 6 7 8", ""] {
            tree.file("proc/stat", unknown);
            assert_eq!(read_all(&tree.root()), None, "{unknown}");
        }
    }

    #[test]
    fn cpus_that_did_nothing_are_idle() {
        let tree = Tree::new();
        let read = |cpus: &str| {
            tree.file("proc/stat", &format!("cpu  9 9 9 9\n{cpus}intr 7 cpu3\n"));
            read_cpus(&tree.root())
        };
        let before = read("cpu0 10 0 10 70 0 0 0 10 5 0\ncpu1 0 0 0 50 0 0 0 0\ncpu5 1 0 0 9\n");
        let now = read("cpu0 15 0 10 75 0 0 0 10 9 0\ncpu1 1 0 0 55 4 0 0 0\ncpu5 1 0 0 9\n");
        assert_eq!(idle_since(&now, &before), [1, 5]);
        assert_eq!(idle_since(&BTreeMap::new(), &before), [0; 0]);
    }

    fn thread(tree: &Tree, id: u32, [ran, waited]: [u64; 2]) {
        tree.file(&format!("proc/self/task/{id}/schedstat"), &format!("{ran} {waited} 7\n"));
    }

    #[test]
    fn time_without_a_core_is_that_of_waiting_threads() {
        let tree = Tree::new();
        tree.file("proc/stat", "cpu 0 0 0 100 0 0 0 0\n");
        let (second, half) = (1_000_000_000, 500_000_000);
        thread(&tree, 1, [second, half]);
        let watch = CoreWatch::start(tree.root(), None);
        let none = watch.used();
        assert_eq!((none.had_share, none.is_disturbed()), (None, false), "nothing has run");
        // One thread runs for a second and waits for half of one, a new one only runs.
        thread(&tree, 1, [2 * second, second]);
        thread(&tree, 2, [half, 0]);
        tree.file("proc/stat", "cpu 0 0 0 190 0 0 0 10\n");
        let used = watch.used();
        assert_eq!((used.had_share, used.waited_seconds), (Some(0.75), 0.5));
        assert_eq!((used.stolen_share, used.others.clone()), (0.1, None));
        assert!(used.is_disturbed());
        let want = "had a core for 75 % of the time in which it could run; the hypervisor took \
                    10 % of the host's time";
        assert_eq!(used.words(), want);
    }

    #[test]
    fn short_waits_are_the_work_of_the_system() {
        let waits = |had_share: f64, waited_seconds: f64, stolen_share: f64| {
            let had_share = Some(had_share);
            CoreUse { had_share, waited_seconds, stolen_share, others: None }.is_disturbed()
        };
        assert!(!waits(0.5, 0.04, 0.0), "a time slice of a short test");
        assert!(!waits(0.96, 100.0, 0.09), "a small share of a long one");
        assert!(waits(0.94, 1.0, 0.0) && waits(1.0, 0.0, 0.11));
    }

    #[test]
    fn the_larger_part_comes_first() {
        let program =
            |cores| OtherProgram { pid: 7, what: "process 7 (a) of user b".into(), cores };
        let of = |stolen_share: f64, cores: f64, named: Vec<OtherProgram>| {
            let others = Some(OtherPrograms { cores, named });
            let (had_share, waited_seconds) = (Some(0.53), 9.0);
            CoreUse { had_share, waited_seconds, stolen_share, others }.users()
        };
        let programs = "process 7 (a) of user b used 47 % of a core";
        assert_eq!(of(0.0, 0.5, vec![program(0.47)]), programs);
        let hypervisor = |share| format!("the hypervisor took {share} % of the host's time");
        let both = of(0.08, 0.47, vec![program(0.47)]);
        assert_eq!(both, format!("{programs}, {}", hypervisor(8)));
        let both = of(0.6, 0.47, vec![program(0.47)]);
        assert_eq!(both, format!("{}, {programs}", hypervisor(60)));
        let unnamed = "programs that are small, have ended or are not visible here used";
        assert_eq!(of(0.0, 0.4, Vec::new()), format!("{unnamed} 40 % of a core"));
        let more = of(0.0, 1.0, vec![program(0.47)]);
        assert_eq!(more, format!("{programs}, {unnamed} 53 % of a core"));
        assert_eq!(of(0.0, 0.01, Vec::new()), "the job's own threads used them");
    }

    /// Ticks of a process whose name is of the kind that hides the fields after it.
    fn process(tree: &Tree, pid: u32, ticks: u64, cpus: &str) {
        let zeros = "0 ".repeat(10);
        tree.file(&format!("proc/{pid}/stat"), &format!("{pid} (a) b) S {zeros}{ticks} 1 0\n"));
        tree.file(&format!("proc/{pid}/status"), &format!("Name: a\nCpus_allowed_list:\t{cpus}\n"));
    }

    /// CPUs 0 and 1 are the job's. The time that passes is not known, so shares are compared.
    #[test]
    fn programs_that_may_run_on_the_cpus_of_the_job_are_named() {
        const ALL: u64 = 1_000_000_000;
        let tree = Tree::new();
        let stat = |busy: [u64; 3]| {
            let line = |(id, busy): (usize, &u64)| format!("cpu{id} {busy} 0 0 {ALL} 0 0 0 0\n");
            let lines: String = busy.iter().enumerate().map(line).collect();
            tree.file("proc/stat", &format!("cpu 0 0 0 0 0 0 0 0\n{lines}"));
        };
        stat([0; 3]);
        for pid in [10, 11, 12, 13] {
            process(&tree, pid, 0, "0-2");
        }
        let job = JobPart { processes: vec![10], cpus: vec![0, 1] };
        let watch = CoreWatch::start(tree.root(), Some(job));
        // Of 8 units on the CPUs of the job it has used 3, programs that are named 4, and one that
        // has ended 1.
        stat([5 * ALL, 3 * ALL, 2 * ALL]);
        process(&tree, 10, 3 * ALL, "0-2");
        process(&tree, 11, ALL, "1-2");
        process(&tree, 12, 2 * ALL, "2");
        process(&tree, 13, 3 * ALL, "0-2");
        let others = watch.used().others.expect("watched");
        let pids: Vec<u32> = others.named.iter().map(|program| program.pid).collect();
        assert_eq!(pids, [13, 11], "12 cannot run there");
        let ratio = others.named[0].cores / others.named[1].cores;
        assert!((ratio - 3.0).abs() < 1e-6, "{others:?}");
    }

    /// On any machine a thread that shares its CPU with two programs lacks it. On one that has much
    /// else to do these are not among the largest, so that none of them need be named.
    #[test]
    fn two_programs_on_the_cpu_of_a_thread_disturb_it() {
        let cpu = *current_mask().unwrap().last().unwrap();
        let programs = [Pinned::start(cpu, SPIN), Pinned::start(cpu, SPIN)];
        let computed = std::thread::spawn(move || {
            set_mask(&[cpu]).expect("it is one of ours");
            let job = JobPart { processes: vec![std::process::id()], cpus: Vec::new() };
            let watch = CoreWatch::start(Root::this_machine(), Some(job));
            loop {
                let used = watch.used();
                let cores = used.others.as_ref().map_or(0.0, |others| others.cores);
                if used.is_disturbed() && cores > NOISE_SHARE {
                    return used;
                }
            }
        });
        let used = computed.join().expect("no panic");
        assert!(used.words().contains("% of a core"), "{}", used.words());
        drop(programs);
    }

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

    const SPIN: &str = "while :; do :; done";

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
        let busy = Pinned::start(cpu, SPIN);
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
