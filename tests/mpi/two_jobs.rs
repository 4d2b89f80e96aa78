//! Two jobs of one name share a folder of images: hosts that share nothing else, or one host with
//! two stores. One of them computes; the other one is refused by name, or continues when the first
//! is dead.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use skt_store::store::{Files, Store as _};
use tempfile::TempDir;

use crate::dice::{Dice, seed};
use crate::levels_mpi::{files, images, is_sealed};
use crate::mpi_job::{Ended, Job, kill};
use crate::skipped::namespaces;
use crate::soak::soak_jobs;

const RANKS: usize = 2;
/// About 40 checkpoints, each with an image.
const SYSTEM: &str = "--n 1200 --nb 32 --p 1 --q 2 --checkpoint-every 1p! --progress plain";
/// Printed by a job that watches another one which does not move.
const WATCHES: &str = "waits to see whether ";
/// The error of a job that finds another one at work.
const REFUSED: &str = "belong to a job that is running";
/// Reported by a job that continues from the data of an earlier start.
const RESUMES: &str = "# restart: ";

/// A host: its segments go when it is dropped.
struct Host {
    /// A process that keeps its namespaces.
    init: Child,
    words: Vec<String>,
}

impl Host {
    /// A host of this name; `None` if the system permits none: then the test is skipped.
    #[track_caller]
    fn new(name: &str) -> Option<Self> {
        Self::with(name, "true")
    }

    /// A host of this name in a separate mount namespace, after `setup`, a command of the shell.
    #[track_caller]
    fn with(name: &str, setup: &str) -> Option<Self> {
        let words = namespaces(&["--ipc", "--uts", "--mount"])?;
        // A user namespace would have to be entered, too.
        let script = format!("hostname {name} && {setup} && echo up && exec cat");
        let mut init = Command::new(words[0])
            .args(&words[1..])
            .args(["sh", "-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it was tried");
        let mut line = String::new();
        BufReader::new(init.stdout.as_mut().expect("piped")).read_line(&mut line).expect("a line");
        assert_eq!(line, "up\n");
        let (pid, user) = (init.id().to_string(), words.contains(&"--map-root-user"));
        let mut words: Vec<String> =
            ["nsenter", "--target", &pid, "--ipc", "--uts", "--mount"].map(str::to_owned).into();
        words.extend(user.then(|| "--user".to_owned()));
        Some(Self { init, words })
    }

    /// What `store clean` prints here about the images of a run.
    fn clean(&self, run: &str, folder: &TempDir) -> String {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]).arg(env!("CARGO_BIN_EXE_skt-hpl"));
        command.args(["store", "clean", "--run", run, "--images"]).arg(folder.path());
        let output = command.output().expect("a store");
        let text = [output.stdout, output.stderr].concat();
        String::from_utf8(text).expect("text")
    }

    fn job(&self, name: &str, folder: &TempDir, flags: &str) -> Job {
        let level = format!("--level global:{},every=1ms!,keep=2", folder.path().display());
        let program = Path::new(env!("CARGO_BIN_EXE_skt-hpl"));
        let words: Vec<&str> = self.words.iter().map(String::as_str).collect();
        Job::new(program, RANKS, name, &format!("{SYSTEM} {level} {flags}")).within(&words)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // It ends with its input.
        drop(self.init.stdin.take());
        let _ = self.init.wait();
    }
}

fn x_undisturbed(name: &str, flags: &str) -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_skt-hpl"));
    let job = Job::new(program, RANKS, name, &format!("{SYSTEM} --ft none {flags}"));
    job.start(&[]).x().expect("x")
}

/// Whether a start can continue from images in the folder.
fn has_images(folder: &TempDir) -> bool {
    images(folder).iter().any(|path| is_sealed(path))
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).expect("a folder").next().is_none()
}

/// Ends all processes of a job at once.
fn kill_all(pids: &[u32]) {
    pids.iter().copied().for_each(kill);
}

fn signal(pid: u32, signal: i32) {
    // SAFETY: sends a signal to a process that this test has started.
    unsafe { libc::kill(pid as i32, signal) };
}

/// All processes that `pid` has started, and those that these have started.
fn descendants(pid: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.unwrap_or_default();
    let children = children.split_whitespace().filter_map(|pid| pid.parse().ok());
    children.flat_map(|child: u32| [descendants(child), vec![child]].concat()).collect()
}

/// Removes what a job has left in POSIX shared memory.
fn clean_posix(job: &Job) {
    let store = Files::posix();
    for info in store.list_once().expect("a list") {
        if info.name.run() == job.run() {
            store.remove(&info.name).expect("removed");
        }
    }
}

fn check_refused(ended: &Ended, host: &str) {
    assert_eq!(ended.code, Some(2), "{}", ended.text);
    assert!(ended.text.contains(REFUSED), "{}", ended.text);
    assert!(ended.text.contains(&format!("on host {host}")), "{}", ended.text);
}

/// Makes the record of a job look as if it were of another machine, or of this one before it lost
/// power: its process cannot be looked for.
fn forget_process(folder: &TempDir) {
    let is_record = |path: &PathBuf| path.file_name().unwrap().as_encoded_bytes()[0] == b'o';
    let records: Vec<PathBuf> = files(folder).into_iter().filter(is_record).collect();
    let [record] = &records[..] else { panic!("{records:?}") };
    let mut json: serde_json::Value = serde_json::from_slice(&fs::read(record).unwrap()).unwrap();
    json["process"] = "17.1.1.another-boot".into();
    fs::write(record, serde_json::to_vec(&json).unwrap()).unwrap();
}

/// The second job begins while the first one has images; it is on another host, then on the same
/// host with another store, then on a host that can only read the folder.
#[test]
fn a_second_job_is_refused_and_the_first_one_ends_as_if_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let mount = format!("mount --bind -o ro {0} {0}", folder.path().display());
    let (Some(one), Some(other)) = (Host::new("one"), Host::new("other")) else { return };
    let Some(reader) = Host::with("reader", &mount) else { return };
    let larger = "--n 3000";
    let first = one.job("two-refused", &folder, larger);
    let mut seconds = vec![
        other.job("two-refused", &folder, &format!("{larger} --resume never")),
        one.job("two-refused", &folder, &format!("{larger} --store posix")),
        reader.job("two-refused", &folder, larger),
    ];
    let mut refused = 0;
    let ended = first.wait(first.spawn(&[]), || {
        if refused == seconds.len() || !has_images(&folder) {
            return;
        }
        // Rank 0 watches over the folder.
        let (second, cleaned) = first.while_stopped(1, || {
            let child = seconds[refused].spawn(&[]);
            let second = seconds[refused].wait(child, || ());
            (second, other.clean(first.run(), &folder))
        });
        // It removes them when it ends, before its processes do.
        if has_images(&folder) {
            check_refused(&second, "one");
            assert!(cleaned.contains("is at work on them"), "{cleaned}");
            refused += 1;
        } else {
            // The first job has ended before that, and refuses nothing.
            seconds.truncate(refused);
        }
    });
    assert!(ended.ok && !ended.text.contains(RESUMES), "{}", ended.text);
    assert_eq!(ended.x(), Some(x_undisturbed("two-refused-x", larger)), "{}", ended.text);
    assert!(refused > 0, "no second job began in time");
    assert!(is_empty(folder.path()), "nothing is left");
}

/// A dead job whose process, or hold on the run, can be looked for is followed at once, also where
/// another machine looks; one that lost power with all its memory is watched first.
#[test]
fn a_dead_job_is_followed_at_once_where_its_death_is_known() {
    let x = x_undisturbed("two-dead-x", "");
    for (name, lost, watches) in
        [("hold", false, false), ("process", true, false), ("power", true, true)]
    {
        let (Some(one), Some(other)) = (Host::new("one"), Host::new("other")) else { return };
        let folder = tempfile::tempdir().expect("a folder");
        let first = one.job(&format!("two-dead-{name}"), &folder, "");
        let ended = kill_with_images(&first, &folder);
        assert!(!ended.ok, "{}", ended.text);
        if watches || !lost {
            forget_process(&folder);
        }
        let host = if lost { &other } else { &one };
        let second = host.job(&format!("two-dead-{name}"), &folder, "--resume require");
        let ended = second.start(&[]);
        assert!(ended.ok && ended.text.contains(RESUMES), "{name}: {}", ended.text);
        assert_eq!(ended.text.contains(WATCHES), watches, "{name}: {}", ended.text);
        assert_eq!(ended.x().as_ref(), Some(&x), "{name}: {}", ended.text);
        assert!(is_empty(folder.path()), "{name}: nothing is left");
    }
}

/// Starts a job, and ends all its processes at once when it has images.
fn kill_with_images(job: &Job, folder: &TempDir) -> Ended {
    let mut is_killed = false;
    job.wait(job.spawn(&[]), || {
        if !is_killed && has_images(folder) {
            is_killed = true;
            kill_all(&job.processes());
        }
    })
}

/// A job that stands still (suspended by a batch system, for instance) for longer than another one
/// watches it loses its images to that one, and continues without.
#[test]
fn a_job_that_stood_still_leaves_the_images_to_its_successor() {
    let (Some(one), Some(other)) = (Host::new("one"), Host::new("other")) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let first = one.job("two-stopped", &folder, "");
    let second = other.job("two-stopped", &folder, "--resume require");
    let mut successor = None;
    let ended = first.wait(first.spawn(&[]), || {
        if successor.is_none() && has_images(&folder) {
            let pids = first.processes();
            pids.iter().for_each(|&pid| signal(pid, libc::SIGSTOP));
            let ended = second.start(&[]);
            pids.iter().for_each(|&pid| signal(pid, libc::SIGCONT));
            successor = Some(ended);
        }
    });
    let x = x_undisturbed("two-stopped-x", "");
    let successor = successor.expect("the first job had images");
    assert!(successor.ok && successor.text.contains(WATCHES), "{}", successor.text);
    assert!(successor.text.contains(RESUMES), "{}", successor.text);
    assert_eq!(successor.x().as_ref(), Some(&x), "{}", successor.text);
    assert!(ended.ok, "{}", ended.text);
    assert_eq!(ended.x().as_ref(), Some(&x), "{}", ended.text);
    assert!(is_empty(folder.path()), "nothing is left");
}

/// What a test of a pair does with one of its jobs.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Fate {
    start: Duration,
    /// When it is killed, if it is, counted from its start.
    kill: Option<Duration>,
}

/// Runs two jobs of one name at the same time, each with its fate. Returns how they ended, and the
/// seconds since the first one began.
fn run_pair(jobs: [&Job; 2], fates: [Fate; 2]) -> [(Ended, f64); 2] {
    let begun = Instant::now();
    let run = |job: &Job, fate: Fate| {
        std::thread::sleep(fate.start.saturating_sub(begun.elapsed()));
        let child = job.spawn(&[]);
        let (launcher, mut is_killed) = (child.id(), false);
        let ended = job.wait(child, || {
            if !is_killed && fate.kill.is_some_and(|at| begun.elapsed() >= fate.start + at) {
                is_killed = true;
                kill_all(&descendants(launcher));
            }
        });
        (ended, begun.elapsed().as_secs_f64())
    };
    std::thread::scope(|scope| {
        let second = scope.spawn(|| run(jobs[1], fates[1]));
        [run(jobs[0], fates[0]), second.join().expect("no panic")]
    })
}

/// The time in the report, in seconds.
fn time_seconds(ended: &Ended) -> f64 {
    let line = ended.text.lines().find(|line| line.starts_with("WR"));
    let word = line.and_then(|line| line.split_whitespace().nth(5));
    word.and_then(|word| word.parse().ok()).expect("a line of the result")
}

/// Checks a job of a pair, which ended `seconds` after the first one began: it has the right x and
/// a time that passed, or is refused by name, or killed.
fn check_one((ended, seconds): &(Ended, f64), fate: Fate, x: &str, case: &str) {
    if ended.ok {
        assert_eq!(ended.x().as_deref(), Some(x), "{case}: {}", ended.text);
        let is_alone = !ended.text.contains(RESUMES);
        let since = if is_alone { fate.start.as_secs_f64() } else { 0.0 };
        assert!(time_seconds(ended) <= seconds - since, "{case}: {}", ended.text);
        return;
    }
    let is_refused = ended.text.contains(REFUSED) || ended.text.contains("is running on host");
    assert!(fate.kill.is_some() || is_refused, "{case}: {}", ended.text);
    for wrong in ["damaged", "panicked", "FAILED"] {
        assert!(!ended.text.contains(wrong), "{case}: {}", ended.text);
    }
}

/// Two jobs of one name at random times on two hosts, or on one with two stores, of which one may
/// be killed at any time: the figures are right, no job continues or removes what a living one has,
/// and nothing hangs. A job that was killed continues or begins again afterwards.
#[test]
fn random_pairs_of_jobs() {
    let mut dice = Dice(seed("SKT_FT_SEED"));
    let x = x_undisturbed("two-pairs-x", "");
    // Moments are drawn from the time that one job takes.
    let whole_ms = {
        let Some(alone) = Host::new("alone") else { return };
        let (folder, begun) = (tempfile::tempdir().expect("a folder"), Instant::now());
        let ended = alone.job("two-pairs-alone", &folder, "").start(&[]);
        assert!(ended.ok, "{}", ended.text);
        begun.elapsed().as_millis() as usize
    };
    let pairs = soak_jobs().map_or(2, |jobs| jobs.min(100));
    for pair in 0..pairs {
        let (Some(one), Some(other)) = (Host::new("one"), Host::new("other")) else { return };
        let folder = tempfile::tempdir().expect("a folder");
        let name = format!("two-pairs-{pair}");
        let is_other_host = dice.roll(2) == 0;
        let first = one.job(&name, &folder, "");
        let second = if is_other_host {
            other.job(&name, &folder, "")
        } else {
            one.job(&name, &folder, "--store posix")
        };
        let mut moment = || Duration::from_millis(dice.roll(whole_ms) as u64);
        let (begins, kills) = (moment(), [moment(), moment()]);
        let victim = dice.roll(4);
        let fate =
            |index: usize, start| Fate { start, kill: (victim == index).then_some(kills[index]) };
        let fates = [fate(0, Duration::ZERO), fate(1, begins)];
        let case = format!("pair {pair}: other host: {is_other_host}, {fates:?}");
        println!("{case}");
        let ended = run_pair([&first, &second], fates);
        for (ended, fate) in ended.iter().zip(fates) {
            check_one(ended, fate, &x, &case);
        }
        // A job continues another one's images only if that one was killed.
        for (index, (ended, _)) in ended.iter().enumerate() {
            let may_follow = fates[1 - index].kill.is_some();
            assert!(may_follow || !ended.text.contains(RESUMES), "{case}: {}", ended.text);
        }
        assert!(ended.iter().any(|(ended, _)| ended.ok) || victim < 2, "{case}: both were refused");
        let jobs = [first, second];
        for (job, (before, _)) in jobs.iter().zip(&ended) {
            let again = if before.ok { continue } else { job.start(&[]) };
            assert!(again.ok, "{case}: {}", again.text);
            assert_eq!(again.x().as_ref(), Some(&x), "{case}: {}", again.text);
        }
        assert!(is_empty(folder.path()), "{case}: nothing is left");
        jobs.iter().for_each(clean_posix);
    }
}
