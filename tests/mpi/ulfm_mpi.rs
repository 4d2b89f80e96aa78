//! Real ranks of a job that survives the loss of some of them (`--on-loss recover` and `replace`):
//! they are killed with signal 9 at random times, with and without the loss of their memory, while
//! the job continues.
//!
//! The tests need Open MPI 5. If the system's `mpirun` has no ULFM, the wheel of Open MPI 5 is
//! installed below the target folder; a program that was built with Open MPI 4 runs on it as well.
//! If that fails, the tests report that and do nothing. They take a sample by default;
//! `SKT_FT_SOAK=1` continues until fifty losses have been survived each way.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::dice::{Dice, seed};
use crate::levels_mpi::images;
use crate::mpi_job::{Ended, Job, kill, rank_of};
use crate::mpirun::mpi_program;
use crate::skipped::skipped;
use crate::soak::is_soak;
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_skt-hpl");

/// Runs a command; the error has the reason why it did not end well.
fn ran(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|why| format!("{command:?}: {why}"))?;
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8_lossy(&printed).into_owned();
    if output.status.success() { Ok(printed) } else { Err(format!("{command:?}: {printed}")) }
}

/// Installs Open MPI 5, if it is not there.
fn install() -> Result<PathBuf, String> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("openmpi-5.0.11");
    let linked = ran(Command::new("ldd").arg(PROGRAM))?;
    if !linked.contains("libmpi.so.40") {
        return Err("the program is not built on Open MPI".to_owned());
    }
    if !folder.join("bin/mpirun").exists() {
        if std::env::var("SKT_HPL_INSTALL").as_deref() != Ok("yes") {
            return Err("with SKT_HPL_INSTALL=yes, pip installs Open MPI 5.0.11 into the target \
                        folder"
                .to_owned());
        }
        ran(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
        let pip = folder.join("bin/pip");
        ran(Command::new(pip).args(["install", "--quiet", "openmpi==5.0.11"]))?;
    }
    Ok(folder)
}

/// The folder of an Open MPI with ULFM; `None` if there is none: then the test is skipped.
#[track_caller]
fn mpi() -> Option<&'static Path> {
    static FOLDER: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let folder = FOLDER.get_or_init(install).as_deref();
    folder.inspect_err(|why| skipped(format!("no MPI with ULFM: {why}"))).ok()
}

/// P, Q, number of checksums, order of the system, and number of spare ranks.
type Shape = (usize, usize, usize, usize, usize);

/// A job that survives losses.
fn job(mpi: &Path, shape: Shape, name: &str, flags: &str) -> Job {
    let (p, q, checksums, n, spares) = shape;
    let flags = format!(
        "--ft abft --on-loss recover --n {n} --nb 64 --p {p} --q {q} --parities {checksums} \
         --progress off {flags}"
    );
    let job = Job::new(Path::new(PROGRAM), p * (q + checksums) + spares, name, &flags);
    job.under(mpi).launched(&["--with-ft", "ulfm"])
}

/// A job without spare ranks, on P x (Q + 1) ranks, in which the checksums replace a lost process
/// column.
fn replacing(mpi: &Path, (p, q, n): (usize, usize, usize), name: &str, flags: &str) -> Job {
    with_on_loss(job(mpi, (p, q, 1, n, 0), name, flags), "replace")
}

/// The job with another value of `--on-loss`.
fn with_on_loss(mut job: Job, how: &str) -> Job {
    let at = job.flags.iter().position(|flag| flag == "--on-loss").expect("it is given");
    how.clone_into(&mut job.flags[at + 1]);
    job
}

/// Starts the job from the beginning.
fn start_from_scratch(mut job: Job) -> (Job, Ended) {
    job = with_on_loss(job, "restart");
    job.flags.retain(|flag| flag != "--inject" && !flag.contains("@column"));
    let ended = job.start(&["--resume", "never"]);
    (job, ended)
}

/// The seconds from noticing each loss to continuing, in order.
fn recovery_seconds(ended: &Ended) -> Vec<f64> {
    let lines = ended.text.lines().filter(|line| line.starts_with("# restart:"));
    let seconds = lines.filter_map(|line| {
        let (_, rest) = line.split_once("repair_seconds ")?;
        rest.split(',').next()?.parse().ok()
    });
    seconds.collect()
}

/// A loss that is to happen.
struct Loss {
    /// The rank, in the launcher's order.
    rank: usize,
    /// The time after the previous loss, or after processes have first held the run.
    after: Duration,
    /// Whether the rank's memory is lost, too.
    with_memory: bool,
}

/// How long an undisturbed run takes from when its processes hold it.
fn under_way(job: &Job) -> Duration {
    let (ended, times) = job.start_timed();
    assert_right(&ended);
    times.under_way
}

/// Starts the job, and makes these losses happen. Returns how many did.
fn start_and_lose(job: &Job, losses: &[Loss]) -> (Ended, usize) {
    let (mut since, mut done) = (None, 0);
    let ended = job.wait(job.spawn(&[]), || {
        if since.is_none() && job.holds() > 0 {
            since = Some(Instant::now());
        }
        let Some(loss) = losses.get(done) else { return };
        if since.is_none_or(|since: Instant| since.elapsed() < loss.after) {
            return;
        }
        let is_it = |pid: &u32| rank_of(*pid) == Some(loss.rank);
        if let Some(pid) = job.processes().into_iter().find(is_it) {
            kill(pid);
            let start = Instant::now();
            while loss.with_memory && start.elapsed() < Duration::from_millis(20) {
                if job.lose_unused(loss.rank) {
                    break;
                }
            }
            (since, done) = (Some(Instant::now()), done + 1);
        }
    });
    (ended, done)
}

#[track_caller]
fn assert_right(ended: &Ended) {
    assert_eq!(ended.code, Some(0), "{}", ended.text);
    assert!(ended.text.contains("PASSED") && !ended.text.contains("FAILED"), "{}", ended.text);
}

/// Any rank is lost, at any time from when the ranks have met: the same job comes to the right end.
#[test]
fn ranks_killed_at_any_time() {
    let Some(mpi) = mpi() else { return };
    // The number of losses in the middle of the work, and the largest number of jobs.
    let (wanted, most_jobs) = if is_soak() { (50, 150) } else { (1, 4) };
    let mut dice = Dice(seed("SKT_FT_SEED"));
    let (mut jobs, mut kills, mut again, mut seconds) = (0, 0, 0, Vec::new());
    let shapes = [(1, 2, 1, 3000, 1), (2, 1, 1, 2400, 2)];
    let whole = shapes.map(|shape| under_way(&job(mpi, shape, "ulfm", "")));
    while jobs < most_jobs && (jobs < 2 || seconds.len() < wanted) {
        let (number, shape) = (jobs, shapes[jobs % 2]);
        jobs += 1;
        let (p, q, checksums, _, spares) = shape;
        let ranks = p * (q + checksums) + spares;
        let mut job = job(mpi, shape, &format!("ulfm{number}"), "");
        let mut losses: Vec<Loss> = Vec::new();
        for _ in 0..spares {
            let left: Vec<usize> =
                (0..ranks).filter(|&rank| losses.iter().all(|loss| loss.rank != rank)).collect();
            let most = whole[number % 2] / spares as u32;
            let after = Duration::from_millis(dice.roll(most.as_millis() as usize) as u64);
            // A second loss may come before the first is repaired: with memory of the same row, it
            // would be one too many.
            let with_memory = losses.is_empty() && dice.roll(2) == 0;
            losses.push(Loss { rank: left[dice.roll(left.len())], after, with_memory });
        }
        let (ended, done) = start_and_lose(&job, &losses);
        let what: Vec<_> =
            losses[..done].iter().map(|l| (l.rank, l.after, l.with_memory)).collect();
        let here = recovery_seconds(&ended);
        println!("job {number} of {shape:?}: lost {what:?}; went on after {here:?} s");
        // Open MPI itself ends a rank whose message to the lost rank was in progress.
        if ended.code == Some(0) {
            assert_right(&ended);
        } else {
            println!("job {number} ended with {:?}, and is started again", ended.code);
            again += 1;
            let mut next = job.start(&[]);
            // A second loss of the process row tears its memory before the first is repaired.
            if done == 2 && next.text.contains("its checksums can rebuild 1") {
                println!("job {number} is refused by name");
                (job, next) = start_from_scratch(job);
            }
            assert_right(&next);
        }
        job.assert_no_more_is_left_than_locks_of_the_dead();
        kills += done;
        seconds.extend(here);
    }
    // This ends about one job in eight, and so sometimes two of a few.
    let max_again = if is_soak() { jobs / 3 } else { jobs - 1 };
    assert!(again <= max_again, "{again} of {jobs} jobs had to be started again");
    assert!(!is_soak() || seconds.len() >= wanted, "{} losses were mended", seconds.len());
    let most = seconds.iter().copied().fold(0.0, f64::max);
    println!(
        "{kills} kills in {jobs} jobs, {again} of which were started again; {} times the work was under way, and went on after at most {most:.2} s",
        seconds.len()
    );
}

/// Any rank is lost, at any time: the others come to the right end without it.
#[test]
fn ranks_killed_at_any_time_are_replaced() {
    let Some(mpi) = mpi() else { return };
    let (wanted, most_jobs) = if is_soak() { (50, 200) } else { (1, 2) };
    let mut dice = Dice(seed("SKT_FT_SEED"));
    let (mut jobs, mut replaced, mut again) = (0, 0, 0);
    let shapes = [(1, 2, 3000), (2, 1, 2400)];
    let whole = shapes.map(|shape| under_way(&replacing(mpi, shape, "replace", "")));
    while jobs < most_jobs && (jobs < 2 || replaced < wanted) {
        let (number, shape) = (jobs, shapes[jobs % 2]);
        jobs += 1;
        let job = replacing(mpi, shape, &format!("replace{number}"), "");
        let ranks = shape.0 * (shape.1 + 1);
        let most = whole[number % 2].as_millis() as usize;
        let after = Duration::from_millis(dice.roll(most) as u64);
        let loss = Loss { rank: dice.roll(ranks), after, with_memory: dice.roll(2) == 0 };
        let (ended, done) = start_and_lose(&job, std::slice::from_ref(&loss));
        let is_replaced = ended.text.contains("# replacement: ");
        println!(
            "job {number} of {shape:?}: lost {done}, rank {} after {after:?}, {:?}, replaced: \
             {is_replaced}, went on after {:?} s",
            loss.rank,
            ended.code,
            recovery_seconds(&ended)
        );
        replaced += usize::from(is_replaced);
        // Before the run has begun, nothing can be replaced; and Open MPI itself ends a rank whose
        // message to the lost rank was in progress, after which nothing may be left.
        if ended.code == Some(0) {
            assert_right(&ended);
        } else {
            again += 1;
            let next = job.start(&[]);
            if next.text.contains("nothing is left to rebuild from") {
                assert_right(&start_from_scratch(job).1)
            } else {
                assert_right(&next)
            }
            continue;
        }
        job.assert_no_more_is_left_than_locks_of_the_dead();
    }
    println!("{replaced} of {jobs} replaced, {again} started again");
    // Of a few jobs, all may have been hit before there was anything to continue from.
    assert!(!is_soak() || replaced >= wanted, "{replaced} of {jobs} jobs went on");
}

#[test]
fn the_loss_of_a_replaced_column_is_reported() {
    let Some(mpi) = mpi() else { return };
    // A column of data, and the column of the checksums.
    for column in [0, 2] {
        let name = format!("column{column}");
        let job = replacing(mpi, (1, 2, 1200), &name, &format!("--inject {column}@column:640"));
        let ended = job.start(&[]);
        assert_right(&ended);
        let line = format!("process_column {column}");
        assert!(ended.text.contains(&line), "{}", ended.text);
        assert_eq!(recovery_seconds(&ended).len(), 1, "{}", ended.text);
        job.assert_no_more_is_left_than_locks_of_the_dead();
    }
}

/// Under `launch`, the first of the remaining ranks writes the heartbeats: the supervisor gets the
/// job's progress and its end.
#[test]
fn the_supervisor_follows_a_job_without_its_rank_0() {
    let Some(mpi) = mpi() else { return };
    let job = job(mpi, (1, 2, 1, 1200, 1), "launch", "--inject 0@column:350");
    let folder = TempDir::new().expect("a folder");
    let launcher = mpi.join("bin/mpirun");
    let flags = "--launcher-arg=--with-ft --launcher-arg=ulfm --launcher-arg=--bind-to \
                 --launcher-arg=none --np 4 --max-restarts 0 --launcher openmpi";
    let mut command = mpi_program(PROGRAM);
    command.current_dir(&folder).env("LD_LIBRARY_PATH", mpi.join("lib"));
    command.env("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe");
    command.env("OMPI_MCA_btl_sm_backing_directory", folder.path());
    command.arg("launch").args(flags.split_whitespace()).arg("--launcher-program").arg(launcher);
    let printed = ran(command.arg("--").args(["--run-id", job.run()]).args(&job.flags));
    let printed = printed.unwrap_or_else(|why| panic!("{why}"));
    assert!(printed.contains(", repair_seconds "), "{printed}");
    assert!(printed.contains("the job is done, after 0 failure(s)"), "{printed}");
    job.assert_no_more_is_left_than_locks_of_the_dead();
}

/// After a second loss nothing is left, and each later start reports that, until one begins again.
#[test]
fn a_second_loss_ends_a_run_without_checksums() {
    let Some(mpi) = mpi() else { return };
    let inject = "--inject 1@column:320 --inject 0@column:704";
    let job = replacing(mpi, (1, 2, 1200), "second", inject);
    let first = job.start(&[]);
    assert_eq!(first.code, Some(75), "{}", first.text);
    assert!(first.text.contains("1 are left, and the grid needs 2"), "{}", first.text);
    for _ in 0..2 {
        let next = job.start(&[]);
        assert!(!next.ok && next.x().is_none(), "{}", next.text);
        let text = next.text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains("has gone on without process column 1"), "{}", next.text);
    }
    let (job, ended) = start_from_scratch(job);
    assert_right(&ended);
    job.assert_no_more_is_left_than_locks_of_the_dead();
}

/// Rank 0 is lost, too, and a rank that has replaced another one.
#[test]
fn two_losses_in_turn_are_recovered() {
    let Some(mpi) = mpi() else { return };
    let inject = "--inject 0@column:350 --inject 2@column:700";
    let job = job(mpi, (1, 2, 1, 1200, 2), "two", inject);
    let ended = job.start(&[]);
    assert_right(&ended);
    assert_eq!(recovery_seconds(&ended).len(), 2, "{}", ended.text);
    job.assert_nothing_is_left();
}

#[test]
fn without_a_spare_the_same_command_continues() {
    let Some(mpi) = mpi() else { return };
    let inject = "--inject 1@column:350 --inject 0@column:700";
    let job = job(mpi, (1, 2, 1, 1200, 1), "spare", inject);
    let first = job.start(&[]);
    assert_eq!(first.code, Some(75), "{}", first.text);
    assert!(first.text.contains("2 are left, and the grid needs 3"), "{}", first.text);
    let ended = job.start(&[]);
    assert_right(&ended);
    assert_eq!(recovery_seconds(&ended).len(), 1, "{}", ended.text);
    job.assert_nothing_is_left();
}

/// The flag of a level in a folder, with an image at each cut.
fn level(folder: &TempDir) -> String {
    format!("--level local:{},every=1ms!", folder.path().display())
}

/// The column at which a run has continued from the images of its level.
fn column_of_images(ended: &Ended) -> usize {
    assert_right(ended);
    let from = |line: &&str| line.starts_with("# restart:") && line.contains(", level local:");
    let line = ended.text.lines().find(from).unwrap_or_else(|| panic!("{}", ended.text));
    let column = line.split_once("column ").and_then(|(_, rest)| rest.split([' ', ',']).next());
    column.and_then(|column| column.parse().ok()).unwrap_or_else(|| panic!("{line}"))
}

/// Asserts that the job has ended, and has left neither memory nor images.
fn assert_all_is_gone(job: &Job, folder: &TempDir) {
    job.assert_no_more_is_left_than_locks_of_the_dead();
    assert_eq!(fs::read_dir(folder).expect("a folder").count(), 0, "the folder of the run goes");
}

/// A job that continues after a loss writes images, too: when all memory is lost later, a restart
/// continues from after that loss.
#[test]
fn images_are_written_after_a_survived_loss() {
    let Some(mpi) = mpi() else { return };
    let folder = TempDir::new().expect("a folder");
    let flags = format!("{} --inject 1@column:320 --inject 0@column:832", level(&folder));
    let job = job(mpi, (1, 2, 1, 1200, 1), "images", &flags);
    let first = job.start(&[]);
    assert_eq!(first.code, Some(75), "{}", first.text);
    (0..3).for_each(|rank| _ = job.lose(rank));
    let ended = job.start(&["--resume", "require"]);
    let column = column_of_images(&ended);
    assert!((384..=832).contains(&column), "{column}: {}", ended.text);
    assert_eq!(recovery_seconds(&ended).len(), 1, "the images are of after the loss");
    assert_all_is_gone(&job, &folder);
}

/// Starts the job and, as soon as some images are complete, loses ranks 0 and 1 with their memory.
fn start_and_lose_two(job: &Job, folder: &TempDir) -> Ended {
    let mut left = vec![0, 1];
    job.wait(job.spawn(&[]), || {
        // There are three ranks: further images are begun when all have finished their first ones.
        if !left.is_empty() && images(folder).len() > 3 {
            let is_lost = |pid: &u32| rank_of(*pid).is_some_and(|rank| rank < 2);
            job.processes().into_iter().filter(is_lost).for_each(kill);
            let start = Instant::now();
            while !left.is_empty() {
                assert!(start.elapsed() < Duration::from_secs(60), "{left:?} have their memory");
                left.retain(|&rank| !job.lose_unused(rank));
            }
        }
    })
}

/// Two ranks of a process row are lost with their memory, which is more than its checksum survives:
/// if there are spare ranks for them, the same job continues from the images.
#[test]
fn a_loss_beyond_memory_is_recovered_from_images() {
    let Some(mpi) = mpi() else { return };
    let (mut jobs, mut mended) = (0, 0);
    while mended == 0 && jobs < 4 {
        let folder = TempDir::new().expect("a folder");
        let job = job(mpi, (1, 2, 1, 1200, 2), &format!("beyond{jobs}"), &level(&folder));
        let ended = start_and_lose_two(&job, &folder);
        // Open MPI itself ends a rank whose message to a lost rank was in progress.
        let is_survived = ended.code == Some(0);
        let ended = if is_survived { ended } else { job.start(&[]) };
        assert!(column_of_images(&ended) > 0);
        assert_eq!(recovery_seconds(&ended).len(), usize::from(is_survived), "{}", ended.text);
        assert_all_is_gone(&job, &folder);
        (jobs, mended) = (jobs + 1, mended + usize::from(is_survived));
    }
    assert!(mended > 0, "{jobs} jobs had to be started again");
}

/// A job that has continued without a process column writes no images: the earlier ones stay, and
/// after a second loss, which nothing in memory compensates, a restart continues from them.
#[test]
fn a_second_loss_without_checksums_restarts_from_images() {
    let Some(mpi) = mpi() else { return };
    for is_memory_lost in [false, true] {
        let folder = TempDir::new().expect("a folder");
        let inject = "--inject 1@column:320 --inject 0@column:704";
        let flags = format!("{} {inject}", level(&folder));
        let job = replacing(mpi, (1, 2, 1200), &format!("behind-{is_memory_lost}"), &flags);
        let first = job.start(&[]);
        assert_eq!(first.code, Some(75), "{}", first.text);
        if is_memory_lost {
            (0..3).for_each(|rank| _ = job.lose(rank));
        }
        let ended = job.start(&[]);
        let column = column_of_images(&ended);
        assert!((64..=320).contains(&column), "{column}: {}", ended.text);
        assert_all_is_gone(&job, &folder);
    }
}

/// The loss of a rank still ends the job if nothing else is asked for, with ULFM as without.
#[test]
fn a_loss_ends_the_job_by_default() {
    let Some(mpi) = mpi() else { return };
    let job = job(mpi, (1, 2, 1, 1200, 1), "restart", "--inject 1@column:400");
    let job = with_on_loss(job, "restart");
    let first = job.start(&[]);
    // The launcher may report the rank that was killed, the ranks that have ended or, with ULFM in
    // Open MPI 5, end with 0 after `MPI_Abort`.
    assert_eq!(first.x(), None, "{}", first.text);
    let ended = job.start(&[]);
    assert_right(&ended);
    assert!(ended.text.contains("# restart:") && recovery_seconds(&ended).is_empty());
    job.assert_nothing_is_left();
}

#[test]
fn an_mpi_that_survives_no_loss_is_refused() {
    let refused = |job: &Job, says: &[&str]| {
        let ended = job.start(&[]);
        assert!(!ended.ok && ended.x().is_none(), "{}", ended.text);
        let text = ended.text.split_whitespace().collect::<Vec<_>>().join(" ");
        says.iter().for_each(|says| assert!(text.contains(says), "{says}: {}", ended.text));
    };
    let Some(mpi) = mpi() else { return };
    let asked = |name: &str, flags: &str| {
        let flags = format!("--n 100 --p 1 --ft abft {flags}");
        Job::new(Path::new(PROGRAM), 3, name, &flags).under(mpi)
    };
    let off = asked("off", "--q 2 --on-loss recover");
    refused(&off, &["ULFM is not switched on; start the job with `mpirun --with-ft ulfm`"]);
    // This agreement waits for the lost ranks.
    let agreement = ["--with-ft", "ulfm", "--mca", "coll_ftagree_agreement", "0"];
    let dead = asked("dead", "--q 2 --on-loss recover").launched(&agreement);
    refused(&dead, &["coll_ftagree_agreement is 0", "leave it unset, or set it to 1"]);
    let spare = asked("idle", "--q 1 --on-loss replace").launched(&["--with-ft", "ulfm"]);
    refused(&spare, &["--on-loss replace has no use for spare ranks: start the job on 2"]);
}
