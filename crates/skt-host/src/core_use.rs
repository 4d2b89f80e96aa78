//! How long the threads of this process had a core, and who used the cores during that time.
//!
//! For each thread the scheduler counts the time for which it ran, and the time for which it was
//! ready to run and had no core (`schedstat`). A thread that sleeps adds to neither, one that polls
//! for a message runs. A kernel without these counts (`CONFIG_SCHED_INFO`) leaves the share
//! unknown.

use std::collections::BTreeMap;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::counters::load::{self, CpuTicks};
use crate::counters::{Root, parse_cpu_list};
use crate::occupants::format_process;

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
/// The most programs that are named.
const NAMED_MAX: usize = 3;

/// The part of a job that is on this host.
#[derive(Debug, Clone, Default)]
pub struct JobPart {
    /// The job's processes.
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
    /// The process id.
    pub pid: u32,
    /// The process, its command line and its user, in words.
    pub what: String,
    /// What it used, in cores.
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
            Some(_) => (processes(root), load::read_cpus(root)),
            None => Default::default(),
        };
        let (threads, ticks) = (threads(root), load::read(root));
        Self { at: Instant::now(), threads, ticks, cpus, processes }
    }
}

fn threads(root: &Root) -> BTreeMap<String, [u64; 2]> {
    let times = |id: String| {
        let text = root.text(&format!("proc/self/task/{id}/schedstat"))?;
        let mut words = text.split_whitespace().map_while(|word| word.parse().ok());
        Some((id, [words.next()?, words.next()?]))
    };
    root.names("proc/self/task").into_iter().filter_map(times).collect()
}

fn processes(root: &Root) -> BTreeMap<u32, u64> {
    // User and system time of all threads: fields 14 and 15, after the name, which may contain
    // anything.
    let ticks = |name: String| {
        let (pid, stat) = (name.parse().ok()?, root.text(&format!("proc/{name}/stat"))?);
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(14 - 3);
        let mut next = || fields.next()?.parse::<u64>().ok();
        Some((pid, next()? + next()?))
    };
    root.names("proc").into_iter().filter_map(ticks).collect()
}

impl CoreWatch {
    /// Begins to watch. With a `job`, this reads a file of each process of the host.
    pub fn start(root: Root, job: Option<JobPart>) -> Self {
        let before = Snapshot::take(&root, job.as_ref());
        Self { root, job, before }
    }

    /// What was used since the start.
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

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;
    use crate::affinity::{current_mask, set_mask};
    use crate::testing::Tree;

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

    /// A program that computes on one CPU; it is killed when dropped.
    struct Busy(Child);

    impl Busy {
        fn start(cpu: usize) -> Self {
            use std::os::unix::process::CommandExt as _;
            let mut shell = Command::new("sh");
            shell.args(["-c", "while :; do :; done"]).stdin(Stdio::null());
            // SAFETY: between fork and exec only a system call on memory of this frame is made.
            unsafe { shell.pre_exec(move || set_mask(&[cpu])) };
            Self(shell.spawn().expect("sh"))
        }
    }

    impl Drop for Busy {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// On any machine a thread that shares its CPU with two programs lacks it. On one that has much
    /// else to do these are not among the largest, so that none of them need be named.
    #[test]
    fn two_programs_on_the_cpu_of_a_thread_disturb_it() {
        let cpu = *current_mask().unwrap().last().unwrap();
        let programs = [Busy::start(cpu), Busy::start(cpu)];
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
}
