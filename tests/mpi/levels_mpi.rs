//! Real ranks under mpirun lose all of their memory, and continue from images in files: x has the
//! same bits as that of a run without checkpoints, and nothing is left over.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use std::{fs, thread};

use crate::mpi_job::{Ended, Job};
use crate::mpirun::mpi_program;
use skt_checkpoint::checkpoint::level::SpacedRanks;
use tempfile::TempDir;

const RANKS: usize = 4;
/// 8 checkpoints, one every 2 panels.
const SYSTEM: &str = "--n 250 --nb 16 --p 2 --q 2 --checkpoint-every 2p! --progress plain";
/// An image of each checkpoint.
const OFTEN: &str = "every=1ms!";

fn hpl(name: &str, flags: &str) -> Job {
    let (program, flags) = (Path::new(env!("CARGO_BIN_EXE_skt-hpl")), format!("{SYSTEM} {flags}"));
    Job::new(program, RANKS, name, &flags)
}

/// P = 2, Q = 2 and a process column of checksums: ranks 0 to 2 are a process row.
const ABFT_RANKS: usize = 6;

fn abft(name: &str, flags: &str) -> Job {
    let system = "--ft abft --n 250 --nb 16 --p 2 --q 2 --check-every 4 --progress plain";
    let (program, flags) = (Path::new(env!("CARGO_BIN_EXE_skt-hpl")), format!("{system} {flags}"));
    Job::new(program, ABFT_RANKS, name, &flags)
}

fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

/// The flag of a level in a folder.
fn level(reach: &str, folder: &TempDir) -> String {
    format!("--level {reach}:{},{OFTEN}", folder.path().display())
}

/// The files in the folders of runs in a folder of levels, by their paths.
pub fn files(folder: &TempDir) -> Vec<PathBuf> {
    let runs = fs::read_dir(folder.path()).expect("a folder");
    // A run that ends at this moment removes its folder.
    let files = runs.filter_map(|run| fs::read_dir(run.unwrap().path()).ok()).flatten();
    files.map(|file| file.unwrap().path()).collect()
}

/// The files of images there: others are the records of jobs that have the folder.
pub fn images(folder: &TempDir) -> Vec<PathBuf> {
    let is_image = |path: &PathBuf| path.file_name().unwrap().as_encoded_bytes()[0] == b't';
    files(folder).into_iter().filter(is_image).collect()
}

/// The ranks of a file, and its epoch.
fn ranks_and_epoch(path: &Path) -> (SpacedRanks, u64) {
    let name = path.file_name().unwrap().to_str().unwrap();
    let words: Vec<&str> = name.split('.').collect();
    let [_, ranks, _, _, epoch] = words[..] else { panic!("{name}") };
    (ranks[1..].parse().expect(name), epoch[1..].parse().expect(name))
}

/// Whether all ranks of a file have sealed their images.
pub fn is_sealed(path: &Path) -> bool {
    // A run that is at work removes old images.
    let bytes = fs::read(path).unwrap_or_default();
    let mut slots = bytes.chunks((bytes.len() / ranks_and_epoch(path).0.count()).max(1));
    !bytes.is_empty() && slots.all(|slot| slot.starts_with(b"SKTIMAG"))
}

fn killed(job: &Job, more: &[&str]) {
    let ended = job.start(more);
    assert!(!ended.ok && ended.text.contains("signal 9"), "{}", ended.text);
}

/// Flags for these faults, one per start.
fn injects(faults: &[&str]) -> String {
    faults.iter().map(|fault| format!(" --inject {fault}")).collect()
}

/// Kills `starts` starts, one after the other, with all memory lost after each. The images in
/// `folder` that a death has torn go, too: a rank that lacks its own is rebuilt, loads nothing, and
/// so does not come to its fault in `recover-load`.
fn lost_again_and_again(job: &Job, starts: usize, folder: &TempDir) {
    for _ in 0..starts {
        killed(job, &[]);
        lose_all(job);
        let torn = images(folder).into_iter().filter(|path| !is_sealed(path));
        torn.for_each(|path| fs::remove_file(path).expect("removed"));
    }
}

fn lose_all(job: &Job) {
    (0..ABFT_RANKS.max(RANKS)).for_each(|rank| _ = job.lose(rank));
}

fn check_end(job: &Job, ended: &Ended, folders: &[&TempDir]) {
    static PLAIN: OnceLock<Option<String>> = OnceLock::new();
    let plain = PLAIN.get_or_init(|| hpl("levels-plain", "--ft none").start(&[]).x());
    assert!(plain.is_some());
    assert_eq!(ended.x(), *plain, "{}", ended.text);
    check_cleared(job, ended, folders);
}

/// A rank is lost before the images of a test whose result is kept are removed: later starts, which
/// no longer open this test, remove them.
#[test]
fn images_of_a_test_that_is_done_go_with_its_run() {
    let folder = folder();
    let flags = format!("{} --inject 1@clear", level("global", &folder));
    let job = with_two_tests("done", "150,250", &flags);
    killed(&job, &[]);
    assert_ne!(images(&folder), [] as [PathBuf; 0]);
    let ended = job.start(&[]);
    // mpirun may end rank 0 before it has noted that the test is done; then its result is found.
    assert!(ended.text.contains("done by an earlier start"), "{}", ended.text);
    check_cleared(&job, &ended, &[&folder]);
}

/// Checks the end of a run with checksums in its elimination: some rank may have been killed before
/// its newest image was whole, and data rebuilt from sums has other last bits.
fn check_abft_end(job: &Job, ended: &Ended, folders: &[&TempDir]) {
    if ended.text.contains(", rebuilt_ranks [") {
        check_cleared(job, ended, folders)
    } else {
        check_end(job, ended, folders)
    }
}

fn check_cleared(job: &Job, ended: &Ended, folders: &[&TempDir]) {
    assert!(ended.ok && ended.text.contains("PASSED"), "{}", ended.text);
    job.assert_nothing_is_left();
    for folder in folders {
        let left = fs::read_dir(folder.path()).expect("a folder").count();
        assert_eq!(left, 0, "the folder of the run goes with it");
    }
}

#[test]
fn a_run_that_has_lost_all_memory_goes_on_from_its_images() {
    for (case, flags) in ["--ft self", "--ft double", "--ft self --overlap on"].iter().enumerate() {
        let folder = folder();
        let flags = format!("{flags} {} --inject 1@column:200", level("local", &folder));
        let job = hpl(&format!("all{case}"), &flags);
        killed(&job, &[]);
        lose_all(&job);
        let ended = job.start(&["--resume", "require"]);
        assert!(ended.text.contains("name local:"), "{}", ended.text);
        assert!(ended.text.contains(", level local:"), "{}", ended.text);
        check_end(&job, &ended, &[&folder]);
    }
}

/// With checksums in the elimination, all memory is lost, also during the restart from images, at
/// several of its steps.
#[test]
fn a_run_with_checksums_goes_on_from_its_images() {
    let folder = folder();
    let faults = ["1@column:160", "2@recover-load:chunk=0", "0@recover-stamp", "3@column:192"];
    let job = abft("abft-all", &(level("local", &folder) + &injects(&faults)));
    lost_again_and_again(&job, faults.len(), &folder);
    let ended = job.start(&["--resume", "require"]);
    for message in ["name local:", ", level local:"] {
        assert!(ended.text.contains(message), "{message}: {}", ended.text);
    }
    check_abft_end(&job, &ended, &[&folder]);
}

/// More ranks of a process row are lost than it has checksums, together with as many local images;
/// the file system has them.
#[test]
fn a_process_row_that_lost_too_much_restarts_from_a_level() {
    let (near, far) = (folder(), folder());
    let flags =
        format!("{} {} --inject 1@column:160", level("local", &near), level("global", &far));
    let job = abft("abft-row", &flags);
    killed(&job, &[]);
    for rank in 0..2 {
        job.lose(rank);
        let is_its = |path: &&PathBuf| path.to_string_lossy().contains(&format!("/t0.r{rank}."));
        images(&near).iter().filter(is_its).for_each(|path| fs::remove_file(path).unwrap());
    }
    let ended = job.start(&[]);
    assert!(ended.text.contains(", level global:"), "{}", ended.text);
    check_abft_end(&job, &ended, &[&near, &far]);
}

/// A wrong number that one checksum cannot correct: the next start goes back to an image from
/// before it. The data in memory is of no use, and a level that fails then is no reason to begin
/// again: when it is back, the run continues.
#[test]
fn a_wrong_number_is_undone_from_images() {
    let folder = folder();
    let flip = format!("{} --inject flip:1@column:128", level("local", &folder));
    let job = abft("abft-flip", &flip);
    let ended = job.start(&[]);
    assert!(!ended.ok && ended.text.contains("the checksums contradict row"), "{}", ended.text);
    let goes_back = "The same command goes back to the images of checkpoint ";
    assert!(ended.text.contains(goes_back), "{}", ended.text);
    assert!(!ended.text.contains("--resume never"), "{}", ended.text);
    let ended = without_the_folder(&folder, || job.start(&[]));
    for message in ["error: level local:", "fails at process 0", "wrong numbers in the matrix"] {
        assert!(ended.text.contains(message), "{message}: {}", ended.text);
    }
    let ended = job.start(&[]);
    assert!(ended.text.contains(", level local:"), "{}", ended.text);
    check_abft_end(&job, &ended, &[&folder]);
}

/// A killed run that has lost its memory, with a local level and a global one.
fn lost_with_two_levels(name: &str) -> (Job, TempDir, TempDir) {
    let (near, far) = (folder(), folder());
    let levels = format!("{} {}", level("local", &near), level("global", &far));
    let job = hpl(name, &format!("{levels} --inject 1@column:200"));
    killed(&job, &[]);
    lose_all(&job);
    (job, near, far)
}

/// If no time is given, the first checkpoint has an image, and its cost decides when the next one
/// is due: not in a run of this length.
#[test]
fn the_report_has_the_interval_that_follows_from_image_cost() {
    const MONTH_SECONDS: f64 = 30.0 * 86400.0;
    let folder = folder();
    let json = folder.path().with_extension("json");
    let level = format!("local:{}", folder.path().display());
    let job = hpl("auto", &format!("--level {level} --json {}", json.display()));
    let ended = job.start(&[]);
    let report = fs::read(&json).expect("the run has written it");
    fs::remove_file(&json).expect("it is there");
    let report: serde_json::Value = serde_json::from_slice(&report).expect("JSON");
    let reported = &report["tests"][0]["protection"]["levels"][0];
    let value =
        |name: &str| reported[name].as_f64().unwrap_or_else(|| panic!("{name}: {reported}"));
    assert_eq!(value("images"), 1.0, "{reported}");
    // The ranks have one thread. Stalls include those in which there was nothing to wait for.
    let cost = value("stall_seconds") + value("cpu_seconds");
    let best = (2.0 * MONTH_SECONDS * cost).sqrt().max(value("seconds"));
    let interval = value("interval_seconds");
    assert!(interval >= value("seconds"), "{reported}");
    // The rank counts that pays most for its image; these are the costs of rank 0.
    assert!(interval > 0.7 * best && interval.is_finite(), "{best}: {reported}");
    let line = ended.text.lines().find(|line| line.starts_with("# level: "));
    let line = line.unwrap_or_else(|| panic!("{}", ended.text));
    assert!(line.contains("images 1, interval_seconds ") && line.contains(&level), "{line}");
    check_end(&job, &ended, &[&folder]);
}

/// If the time between two images is given, the report names no other.
#[test]
fn the_cost_of_images_is_ignored_if_a_time_is_given() {
    let folder = folder();
    let ended = hpl("given", &level("local", &folder)).start(&[]);
    assert!(ended.ok && ended.text.contains("name local:"), "{}", ended.text);
    assert!(!ended.text.contains("interval_seconds"), "{}", ended.text);
    assert!(!ended.text.contains(STRETCHED), "{}", ended.text);
}

/// What a run reports about a level whose images cost too much to be written as often as the user
/// asks.
const STRETCHED: &str = "to cost at most a tenth of the time; every=0.001s! takes them";

/// The three syncs of an image take 0.9 s, also of one rank alone, and an image at each checkpoint
/// is asked for.
#[test]
fn an_interval_shorter_than_an_image_takes_is_stretched() {
    for (method, slow_rank) in [("self", None), ("abft", Some("1"))] {
        let folder = folder();
        let flags = format!("--level local:{},every=1ms", folder.path().display());
        let job = if method == "self" { hpl("stretch", &flags) } else { abft("stretch", &flags) };
        let rank = slow_rank.map(|rank| ("RANK", rank));
        let times: Vec<_> = [("SYNC_SECONDS", "0.3")].into_iter().chain(rank).collect();
        let begun = Instant::now();
        let ended = job.slowed(&times).start(&[]);
        let seconds = begun.elapsed().as_secs_f64();
        let what = format!("{method}, {slow_rank:?}: {}", ended.text);
        assert!(ended.ok && ended.text.contains("PASSED"), "{what}");
        let warning = format!("warning: level local:{}: an image takes ", folder.path().display());
        let warnings = ended.text.lines().filter(|line| line.contains(&warning));
        assert!(warnings.clone().all(|line| line.contains(STRETCHED)), "{what}");
        assert_eq!(warnings.count(), 1, "{what}");
        let level = ended.text.lines().find(|line| line.starts_with("# level: ")).expect(&what);
        let (_, images) = level.split_once(", images ").expect(&what);
        let images: f64 = images.split(',').next().expect(&what).parse().expect(&what);
        // Some are begun before rank 0 knows what they cost the other ranks, then one in 9 s.
        assert!(images <= 3.0 + seconds / 9.0, "{images} images in {seconds} s: {what}");
    }
}

/// The folder of a level is no folder when a killed run starts again. Its contents stay: the run
/// continues from memory or, if the images are needed, when they are back.
#[test]
fn a_level_that_fails_at_a_restart_does_not_end_the_run() {
    for is_memory_lost in [false, true] {
        let folder = folder();
        let flags = format!("{} --inject 1@column:200", level("local", &folder));
        let job = hpl(&format!("fails-{is_memory_lost}"), &flags);
        killed(&job, &[]);
        let content = || -> BTreeMap<PathBuf, Vec<u8>> {
            images(&folder)
                .into_iter()
                .map(|path| (path.clone(), fs::read(path).unwrap()))
                .collect()
        };
        let before = content();
        if is_memory_lost {
            lose_all(&job);
        }
        let ended = without_the_folder(&folder, || job.start(&[]));
        assert_eq!(content(), before);
        let message = if is_memory_lost {
            ["error: level local:", "fails at process 0 (", "no node has memory"]
        } else {
            ["warning: no images of level local:", ", failure ", "store clean"]
        };
        for message in [folder.path().to_str().unwrap()].into_iter().chain(message) {
            assert!(ended.text.contains(message), "{message}: {}", ended.text);
        }
        assert_eq!(ended.ok, !is_memory_lost, "{}", ended.text);
        if is_memory_lost {
            check_end(&job, &job.start(&["--resume", "require"]), &[&folder]);
        } else {
            check_end(&job, &ended, &[]);
        }
    }
}

/// The folder of a level is no longer a folder when the second of two tests begins.
#[test]
fn a_level_that_fails_between_tests_does_not_end_the_run() {
    let folder = folder();
    let (path, away) = (folder.path(), folder.path().with_extension("away"));
    let job = with_two_tests("between", "2000,250", &level("local", &folder));
    let ended = thread::scope(|scope| {
        scope.spawn(|| {
            let begun = Instant::now();
            while images(&folder).is_empty() {
                assert!(begun.elapsed() < Duration::from_secs(120), "no image is written");
                thread::sleep(Duration::from_millis(1));
            }
            // The first test continues with the folder that it has opened.
            fs::rename(path, &away).expect("away");
            fs::write(path, "not a folder").expect("a file");
        });
        job.start(&[])
    });
    fs::remove_file(path).expect("it is as it was");
    fs::rename(&away, path).expect("back");
    assert!(ended.ok, "{}", ended.text);
    for message in ["warning: no images of level local:", "2 tests with the following results"] {
        assert!(ended.text.contains(message), "{message}: {}", ended.text);
    }
}

/// Starts the job by `then` while the folder of a level is a file.
fn without_the_folder(folder: &TempDir, then: impl FnOnce() -> Ended) -> Ended {
    let (path, away) = (folder.path(), folder.path().with_extension("away"));
    fs::rename(path, &away).expect("away");
    fs::write(path, "not a folder").expect("a file");
    let ended = then();
    fs::remove_file(path).expect("it is as it was");
    fs::rename(&away, path).expect("back");
    ended
}

/// A job of two tests of these orders.
fn with_two_tests(name: &str, orders: &str, flags: &str) -> Job {
    let mut job = hpl(name, "");
    job.flags.drain(..2);
    let flags = format!("--n {orders} {flags}");
    job.flags.extend(flags.split_whitespace().map(str::to_owned));
    job
}

/// The level already fails when a killed run starts again in its first test: the next test has no
/// images either, because the level has failed in this start.
#[test]
fn a_level_that_fails_after_a_restart_spares_later_tests() {
    let folder = folder();
    let job = with_two_tests("behind", "250,350", &level("local", &folder));
    killed(&job, &["--inject", "1@column:200"]);
    let ended = without_the_folder(&folder, || job.start(&[]));
    assert!(ended.ok, "{}", ended.text);
    for message in ["# restart: ", "2 tests with the following results"] {
        assert!(ended.text.contains(message), "{message}: {}", ended.text);
    }
    let warnings = ended.text.matches("warning: no images of level local:").count();
    assert_eq!(warnings, 2, "one for each test: {}", ended.text);
}

/// The level fails from a restart on, and an earlier start has left images of the next test: the
/// run ends before that test, and continues from its images when they are back.
#[test]
fn a_level_that_fails_after_a_restart_hides_no_later_images() {
    let folder = folder();
    let job = with_two_tests("hidden", "250,350", &level("local", &folder));
    killed(&job, &["--inject", "1@column:300"]);
    lose_all(&job);
    job.lose_results();
    killed(&job, &["--inject", "2@column:200"]);
    let ended = without_the_folder(&folder, || job.start(&[]));
    assert!(!ended.ok && ended.text.contains("error: level local:"), "{}", ended.text);
    assert!(ended.text.contains("PASSED"), "the first test goes on: {}", ended.text);
    let ended = job.start(&[]);
    assert!(ended.text.contains(", level local:"), "{}", ended.text);
    check_cleared(&job, &ended, &[&folder]);
}

/// On a file system that all share, the ranks of a node share a file of each generation; on a disk
/// of the node, each has its own. If the nearer level has lost too much, the other one is taken.
#[test]
fn the_ranks_of_a_node_share_a_file_on_a_global_level() {
    let (job, near, far) = lost_with_two_levels("shared");
    let ranks = |folder: &TempDir| -> BTreeSet<String> {
        images(folder).iter().map(|path| ranks_and_epoch(path).0.to_string()).collect()
    };
    assert_eq!(ranks(&near), ["0", "1", "2", "3"].map(str::to_owned).into());
    assert_eq!(ranks(&far), ["0-3".to_owned()].into());
    let epochs: BTreeSet<u64> = images(&far).iter().map(|path| ranks_and_epoch(path).1).collect();
    assert_eq!(images(&far).len(), epochs.len(), "one file of each generation");
    assert!(epochs.len() <= 4, "there is room for the two that are kept and two more");
    images(&near).into_iter().for_each(|path| fs::remove_file(path).expect("removed"));
    let ended = job.start(&["--resume", "require"]);
    assert!(ended.text.contains(", level global:"), "{}", ended.text);
    check_end(&job, &ended, &[&near, &far]);
}

/// `store list` shows the files of a killed run, and `store clean` removes them when the run is
/// named.
#[test]
fn images_are_listed_and_removed() {
    let folder = folder();
    let job = hpl("listed", &format!("{} --inject 1@column:200", level("global", &folder)));
    killed(&job, &[]);
    lose_all(&job);
    let ended = |flags: &str| {
        let images = folder.path().to_str().unwrap();
        let mut command = mpi_program(env!("CARGO_BIN_EXE_skt-hpl"));
        let flags = flags.split_whitespace().chain(["--images", images]);
        command.arg("store").args(flags).output().unwrap()
    };
    let store = |flags: &str| {
        let output = ended(flags);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let files = images(&folder).len();
    let listed = store("list");
    let (_, of_run) = listed.split_once("IMAGES IN\n").expect("a table");
    assert_eq!(of_run.lines().count(), 1, "{listed}");
    let words: Vec<&str> = of_run.split_whitespace().collect();
    assert_eq!(words[..2], [job.run(), &(files * RANKS).to_string()], "{listed}");
    // Each whole one by its number, with its column.
    for checkpoint in words[4].split(',') {
        let (number, column) = checkpoint.split_once('(').expect("a column");
        let numbers = [number, column.trim_end_matches(')')].map(str::parse::<usize>);
        assert!(numbers.iter().all(Result::is_ok), "{listed}");
    }
    assert_eq!(words.last(), Some(&folder.path().to_str().unwrap()), "{listed}");
    assert!(store("clean").contains("it can continue from them"));
    let of_another = ended("clean --run another");
    assert_eq!(of_another.status.code(), Some(2), "there is nothing of it: {of_another:?}");
    assert_eq!(images(&folder).len(), files);
    let run = job.run();
    let removed = store(&format!("clean --run {run}"));
    let message = format!("removed {} image(s) of run {run}", files * RANKS);
    assert!(removed.contains(&message), "{removed}");
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
    assert!(store("list").ends_with(&format!("no images in {}\n", folder.path().display())));
}

/// The checkpoints of a run in `folder`, as `store list` prints them: number and column.
fn listed(job: &Job, folder: &TempDir) -> Vec<(String, String)> {
    let mut command = mpi_program(env!("CARGO_BIN_EXE_skt-hpl"));
    let done = command.args(["store", "list", "--images"]).arg(folder.path()).output();
    let text = String::from_utf8(done.expect("the program").stdout).expect("text");
    let of_run = |line: &&str| {
        line.starts_with(job.run()) && line.ends_with(&*folder.path().to_string_lossy())
    };
    let line = text.lines().find(of_run).expect(&text);
    let all = line.split_whitespace().nth(4).expect(&text).split(',');
    let words = |one: &str| {
        let (number, column) = one.strip_suffix(')')?.split_once('(')?;
        Some((number.to_owned(), column.to_owned()))
    };
    all.map(|one| words(one).expect(&text)).collect()
}

/// A run goes back to a checkpoint that is not the newest, by the number that `store list` prints
/// with its column, whether memory has a newer one or is lost. The next start does not come back to
/// the newer ones. A number that is not there is refused, with those that are.
#[test]
fn run_goes_back_to_an_older_checkpoint_by_its_number() {
    for (name, make, is_lost) in
        [("self", hpl as fn(&str, &str) -> Job, false), ("self", hpl, true), ("abft", abft, false)]
    {
        let folder = folder();
        let level = format!("--level local:{},{OFTEN},keep=3", folder.path().display());
        let job = make(&format!("older-{name}-{is_lost}"), &level);
        killed(&job, &["--inject", "1@column:200"]);
        if is_lost {
            lose_all(&job);
        }
        let found = listed(&job, &folder);
        println!("{name}: {found:?}");
        let refused = job.start(&["--resume", "999"]);
        assert_eq!(refused.code, Some(2), "{}", refused.text);
        let why = "checkpoint 999 cannot be resumed";
        assert!(refused.text.contains(why) && refused.text.contains(&found[0].0));
        assert_eq!(listed(&job, &folder), found, "nothing has changed");
        let (number, column) = &found[found.len() - 2];
        // It dies before it has taken its next checkpoint.
        let step = if name == "self" { "1@recover-copy" } else { "1@recover-stamp" };
        killed(&job, &["--resume", number, "--inject", step]);
        let left = listed(&job, &folder);
        let newer = &found[found.len() - 2..];
        assert!(newer.iter().all(|it| left.contains(it)), "{newer:?} of {left:?}");
        lose_all(&job);
        let ended = job.start(&[]);
        let is_from = format!("# restart: column {column}, ");
        assert!(ended.text.contains(&is_from), "{is_from}: {}", ended.text);
        check_end(&job, &ended, &[&folder]);
    }
}
