//! A job under mpirun with its own run id, for tests that kill it and start it again.

#![allow(dead_code)] // not every suite needs all of it

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use skt_store::store::{SegmentInfo, Store, SysV};
use tempfile::TempDir;

use crate::dice::Dice;
use crate::large_machine::{self, Planted};
use crate::mpirun::{as_installed, mpirun, mpirun_in, reader};

/// A start that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(600);
/// A launcher that has had no ranks after this time hangs.
const LAUNCHER_LIMIT: Duration = Duration::from_secs(60);
/// How long a launcher may take to end when its ranks have ended.
const LAUNCHER_PATIENCE: Duration = Duration::from_secs(10);

/// A job with its own run id; dropping it removes its segments.
pub struct Job {
    program: PathBuf,
    run: String,
    ranks: usize,
    launcher_flags: Vec<String>,
    /// The command that starts the launcher; none if it is started itself.
    outer: Vec<String>,
    /// Variables of the library that makes ranks slow, without `SKT_LARGE_`; none, if no rank is.
    times: Vec<(&'static str, &'static str)>,
    /// What the ranks of the last start get from that library.
    planted: Mutex<Option<Planted>>,
    /// Whether the launcher signals the ranks that are left to end before it kills them.
    tells: bool,
    /// The subcommand of the program; none, if it has none or runs its default.
    subcommand: Option<&'static str>,
    /// The folder of the MPI library that the job uses, if it is not the system's, and a folder for
    /// what that library keeps in shared memory, which stays when a rank is killed.
    mpi: Option<(PathBuf, TempDir)>,
    /// Flags of the program.
    pub flags: Vec<String>,
}

/// If no kill strikes the work in this many jobs, that is no luck.
pub const MAX_JOBS: usize = 20;

/// When processes are killed: counted from the launch, or from when all of them hold the run, which
/// is before they look for data of an earlier start.
#[derive(Clone, Copy, Debug)]
pub enum When {
    FromLaunch(Duration),
    UnderWay(Duration),
}

/// How long an undisturbed start takes until all processes hold the run, and from then on until no
/// data is left. The time that MPI needs to end comes after that.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    pub launch: Duration,
    pub under_way: Duration,
}

impl Times {
    /// A start has ended before a moment that was drawn from these times: starts are faster than
    /// the one that was timed, on a machine whose other work has ended.
    pub fn halve(&mut self) {
        self.launch /= 2;
        self.under_way /= 2;
    }

    /// Draws one moment in four from the whole of a start, and the others from when it holds the
    /// run.
    pub fn any(&self, dice: &mut Dice) -> When {
        let of_launch = dice.roll(4) == 0;
        let most = if of_launch { self.launch + self.under_way } else { self.under_way };
        let after = Duration::from_micros(dice.roll(most.as_micros() as usize) as u64);
        if of_launch { When::FromLaunch(after) } else { When::UnderWay(after) }
    }
}

/// A start that has ended.
pub struct Ended {
    /// Whether the run ended well.
    pub ok: bool,
    /// The launcher's exit code, if it has one.
    pub code: Option<i32>,
    /// Everything that the job wrote.
    pub text: String,
}

impl Ended {
    /// The text after `# x:` or `x:`.
    pub fn x(&self) -> Option<String> {
        let line =
            self.text.lines().find_map(|line| line.trim_start_matches("# ").strip_prefix("x: "));
        line.and_then(|rest| rest.split_whitespace().next()).map(str::to_owned)
    }

    /// The texts after `# x: ` of all tests.
    pub fn all_x(&self) -> Vec<String> {
        let lines = self.text.lines().filter_map(|line| line.strip_prefix("# x: "));
        lines.filter_map(|rest| rest.split_whitespace().next()).map(str::to_owned).collect()
    }
}

/// The phases and what losses cost are all of the time of each test in `text`, whichever of its
/// starts they were in.
fn assert_times_sum(text: &str) {
    let mut sum = 0.0;
    for line in text.lines() {
        match line.strip_prefix("#   ") {
            Some(row) => {
                // The name may have two words.
                let numbers: Vec<f64> =
                    row.split_whitespace().filter_map(|word| word.parse().ok()).collect();
                let (Some(seconds), Some(percent)) = (numbers.first(), numbers.get(1)) else {
                    continue;
                };
                if row.starts_with("sum") {
                    assert!((sum - seconds).abs() < 1e-3 && *percent == 100.0, "{sum}: {text}");
                }
                sum += seconds;
            }
            None => sum = 0.0,
        }
    }
}

impl Job {
    /// A job of `program` on `ranks` ranks.
    pub fn new(program: &Path, ranks: usize, name: &str, flags: &str) -> Self {
        let run = format!("ft-mpi-{}-{name}", std::process::id());
        let flags = flags.split_whitespace().map(str::to_owned).collect();
        let (launcher_flags, outer, times) = (Vec::new(), Vec::new(), Vec::new());
        let (program, tells, subcommand, mpi) = (program.to_owned(), false, None, None);
        let planted = Mutex::new(None);
        Self {
            program,
            run,
            ranks,
            launcher_flags,
            outer,
            times,
            planted,
            tells,
            subcommand,
            mpi,
            flags,
        }
    }

    /// The job's run id.
    pub fn run(&self) -> &str {
        &self.run
    }

    /// The job with this subcommand of its program.
    pub fn running(mut self, subcommand: &'static str) -> Self {
        self.subcommand = Some(subcommand);
        self
    }

    /// The job with flags for the launcher.
    pub fn launched(mut self, flags: &[&str]) -> Self {
        self.launcher_flags = flags.iter().map(|&flag| flag.to_owned()).collect();
        self
    }

    /// The job with a launcher that this command starts.
    pub fn within(mut self, command: &[&str]) -> Self {
        self.outer = command.iter().map(|&word| word.to_owned()).collect();
        self
    }

    /// The job with ranks of these times ([`large_machine::slow`]).
    pub fn slowed(mut self, times: &[(&'static str, &'static str)]) -> Self {
        self.times = times.to_vec();
        self
    }

    /// The job with a launcher that signals the ranks that are left to end before it kills them.
    pub fn signalled_to_end(mut self) -> Self {
        self.tells = true;
        self
    }

    /// The job under the MPI library that is installed in the folder `mpi`.
    pub fn under(mut self, mpi: &Path) -> Self {
        let memory = TempDir::new_in("/dev/shm").expect("a folder");
        self.mpi = Some((mpi.to_owned(), memory));
        self
    }

    /// Starts the job.
    pub fn spawn(&self, more: &[&str]) -> Child {
        let mut launcher = match &self.mpi {
            Some((folder, memory)) => {
                let mut launcher = mpirun_in(folder, self.ranks);
                launcher.env("OMPI_MCA_btl_sm_backing_directory", memory.path());
                launcher
            }
            None => mpirun(self.ranks),
        };
        if self.tells {
            as_installed(&mut launcher);
        }
        if !self.times.is_empty() {
            let planted = large_machine::slow(&mut launcher, &self.times);
            *self.planted.lock().expect("no panic") = Some(planted);
        }
        launcher
            .args(["--bind-to", "none"])
            .args(&self.launcher_flags)
            .arg(&self.program)
            .args(self.subcommand)
            .args(["--run-id", &self.run])
            .args(&self.flags)
            .args(more);
        if let Some((program, flags)) = self.outer.split_first() {
            let mut outer = Command::new(program);
            outer.args(flags).arg(launcher.get_program()).args(launcher.get_args());
            outer.envs(launcher.get_envs().filter_map(|(name, value)| Some((name, value?))));
            launcher = outer;
        }
        launcher
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("mpirun, of Open MPI")
    }

    /// Waits for the end, and calls `poll` until then.
    pub fn wait(&self, mut child: Child, mut poll: impl FnMut()) -> Ended {
        let out = reader(child.stdout.take().expect("piped"));
        let err = reader(child.stderr.take().expect("piped"));
        let (start, mut is_hung) = (Instant::now(), false);
        let (mut seen_at, mut looked_at) = (None, start);
        let status = loop {
            if let Some(status) = child.try_wait().expect("a child") {
                break status;
            }
            // The mpirun of Open MPI 4 may fail to notice that a rank died in MPI_Init. A moment
            // without ranks is how every run ends.
            // A scan of all processes takes as long as the pause between two polls.
            if looked_at.elapsed() > Duration::from_millis(500) {
                looked_at = Instant::now();
                seen_at = if self.processes().is_empty() { seen_at } else { Some(looked_at) };
            }
            if seen_at
                .map_or(start.elapsed() > LAUNCHER_LIMIT, |at| at.elapsed() > LAUNCHER_PATIENCE)
            {
                is_hung = true;
                child.kill().expect("a child");
                std::thread::sleep(Duration::from_millis(100));
            }
            if start.elapsed() > LIMIT {
                for pid in self.processes() {
                    kill(pid);
                }
                child.kill().expect("a child");
                panic!("{}: hangs\n{}\n{}", self.run, out.join().unwrap(), err.join().unwrap());
            }
            poll();
            std::thread::sleep(Duration::from_millis(4));
        };
        let mut text = out.join().expect("no panic") + &err.join().expect("no panic");
        if is_hung {
            text += "mpirun hung after all ranks were gone\n";
        }
        if let (true, Some(planted)) = (status.success(), &*self.planted.lock().expect("no panic"))
        {
            planted.assert();
        }
        assert_times_sum(&text);
        Ended { ok: status.success(), code: status.code(), text }
    }

    /// Starts the job, and waits for its end.
    pub fn start(&self, more: &[&str]) -> Ended {
        self.wait(self.spawn(more), || ())
    }

    /// Starts the job, waits for its end, and measures the times. A start of which the moment was
    /// missed at which all processes hold the run, because this process had no core, is repeated.
    pub fn start_timed(&self) -> (Ended, Times) {
        for _ in 0..10 {
            let launch = Instant::now();
            let (mut first, mut last) = (None, launch);
            let ended = self.wait(self.spawn(&[]), || {
                if first.is_none() && self.holds() >= self.ranks {
                    first = Some(Instant::now());
                }
                if !self.segments(None).is_empty() {
                    last = Instant::now();
                }
            });
            if let Some(first) = first {
                return (ended, Times { launch: first - launch, under_way: last - first });
            }
            assert!(ended.ok, "not all took hold: {}", ended.text);
        }
        panic!("{}: nobody saw it run", self.run)
    }

    /// Starts the job, and kills the processes of these ranks at the given time. Also returns
    /// whether it has killed them: they may have ended before.
    pub fn start_and_kill(&self, victims: &[usize], when: When) -> (Ended, bool) {
        let mut killed = false;
        let ended = self.start_and(when, |_| {
            let is_victim = |pid: &u32| rank_of(*pid).is_some_and(|rank| victims.contains(&rank));
            let pids: Vec<u32> = self.processes().into_iter().filter(is_victim).collect();
            killed = pids.len() == victims.len();
            if killed {
                pids.into_iter().for_each(kill);
            }
            killed
        });
        (ended, killed)
    }

    /// Kills the process of a rank, if there is one.
    pub fn kill_rank(&self, rank: usize) {
        let pids = self.processes().into_iter().filter(|&pid| rank_of(pid) == Some(rank));
        pids.for_each(kill);
    }

    /// Stops this rank until `act` returns, so that the job does not end in the meantime.
    pub fn while_stopped<T>(&self, rank: usize, act: impl FnOnce() -> T) -> T {
        let pids = self.processes().into_iter().filter(|&pid| rank_of(pid) == Some(rank));
        let pids: Vec<u32> = pids.collect();
        pids.iter().for_each(|&pid| send(pid, libc::SIGSTOP));
        let result = act();
        pids.iter().for_each(|&pid| send(pid, libc::SIGCONT));
        result
    }

    /// Starts the job, and from the given time on calls `act` with the process id of the launcher
    /// until it returns true.
    pub fn start_and(&self, when: When, mut act: impl FnMut(u32) -> bool) -> Ended {
        let (launch, mut under_way, mut is_done) = (Instant::now(), None, false);
        let child = self.spawn(&[]);
        let launcher = child.id();
        self.wait(child, || {
            if under_way.is_none() && self.holds() >= self.ranks {
                under_way = Some(Instant::now());
            }
            let is_time = match when {
                When::FromLaunch(after) => launch.elapsed() >= after,
                When::UnderWay(after) => {
                    under_way.is_some_and(|since: Instant| since.elapsed() >= after)
                }
            };
            is_done = is_done || is_time && act(launcher);
        })
    }

    /// The process ids of the job's ranks that run now. A process that a rank has forked has the
    /// rank's command line until it executes another program.
    pub fn processes(&self) -> Vec<u32> {
        let entries = std::fs::read_dir("/proc").expect("Linux");
        let pids = entries.filter_map(|e| e.ok()?.file_name().to_str()?.parse::<u32>().ok());
        let is_ours = |pid: &u32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let words: Vec<&[u8]> = line.split(|&byte| byte == 0).collect();
            words[0] == self.program.as_os_str().as_encoded_bytes()
                && words.contains(&self.run.as_bytes())
        };
        let ours: Vec<u32> = pids.filter(is_ours).collect();
        let is_forked = |pid: &u32| parent(*pid).is_some_and(|parent| ours.contains(&parent));
        ours.iter().copied().filter(|pid| !is_forked(pid)).collect()
    }

    /// Segments of this run, of one rank or all.
    pub fn segments(&self, rank: Option<usize>) -> Vec<skt_store::store::SegmentName> {
        let all = SysV::new(false).list_once().expect("a list").into_iter();
        all.map(|info| info.name)
            .filter(|name| name.run() == self.run && name.role().starts_with('t'))
            .filter(|name| rank.is_none_or(|rank| name.rank() as usize == rank))
            .collect()
    }

    /// Number of the job's processes that hold the run.
    pub fn holds(&self) -> usize {
        let list = SysV::new(false).list_once().expect("a list");
        let is_hold = |info: &&SegmentInfo| {
            info.name.run() == self.run && info.name.role() == "lock" && info.in_use
        };
        list.iter().filter(is_hold).count()
    }

    /// Loses the memory of a rank, unless a process is attached. Returns whether there was any.
    pub fn lose_unused(&self, rank: usize) -> bool {
        let names = self.segments(Some(rank));
        let lost =
            names.iter().filter(|name| SysV::new(false).remove_unused(name).expect("removed"));
        lost.count() > 0
    }

    /// Loses the memory of a rank. Returns the number of segments.
    pub fn lose(&self, rank: usize) -> usize {
        let names = self.segments(Some(rank));
        for name in &names {
            SysV::new(false).remove(name).expect("removed");
        }
        names.len()
    }

    /// Loses the results of finished tests.
    pub fn lose_results(&self) {
        let all = SysV::new(false).list_once().expect("a list").into_iter().map(|info| info.name);
        let of_run =
            all.filter(|name| name.run() == self.run && name.role().starts_with("results."));
        of_run.for_each(|name| _ = SysV::new(false).remove(&name).expect("removed"));
    }

    pub fn assert_nothing_is_left(&self) {
        let left = self.left();
        assert!(left.is_empty(), "{}: {left:?}", self.run);
    }

    /// Asserts that nothing is left, except locks: a rank that dies as the others leave may leave
    /// its lock, which the next start takes.
    pub fn assert_no_more_is_left_than_locks_of_the_dead(&self) {
        let is_lock = |info: &SegmentInfo| info.name.role() == "lock" && !info.in_use;
        let left = self.left();
        assert!(left.iter().all(is_lock), "{}: {left:?}", self.run);
    }

    fn left(&self) -> Vec<SegmentInfo> {
        let list = SysV::new(false).list().expect("a list");
        // Where a rank's memory was not found, its node may come back one day, so a few bytes
        // record that the run has ended.
        let is_mark = |info: &SegmentInfo| info.name.role().starts_with("ended.");
        let of_run = list.into_iter().filter(|info| info.name.run() == self.run);
        of_run.filter(|info| !is_mark(info) || info.bytes > 4096).collect()
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        for info in SysV::new(false).list_once().unwrap_or_default() {
            if info.name.run() == self.run {
                // A test that fails cleans up as well as it can.
                let _ = SysV::new(false).remove(&info.name);
            }
        }
    }
}

/// Sends signal 9.
pub fn kill(pid: u32) {
    send(pid, libc::SIGKILL);
}

fn send(pid: u32, signal: i32) {
    // SAFETY: sends a signal to a process that this test has started.
    unsafe { libc::kill(pid as i32, signal) };
}

fn parent(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok())
}

/// The rank that the launcher has given to a process.
pub fn rank_of(pid: u32) -> Option<usize> {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
    let names = ["OMPI_COMM_WORLD_RANK=", "PMI_RANK="];
    environment.split(|&byte| byte == 0).find_map(|entry| {
        let entry = std::str::from_utf8(entry).ok()?;
        names.iter().find_map(|name| entry.strip_prefix(name))?.parse().ok()
    })
}
