//! Real ranks under mpirun whose elimination carries checksums: they are killed with signal 9 at
//! any time, with and without the loss of their memory, and started again until the run ends.
//!
//! The tests take a sample by default; `SKT_FT_SOAK=1` (scripts/dev/soak-checkpoint) makes a
//! thousand kills, and a larger number that many jobs.

use std::path::Path;
use std::time::Duration;

use crate::dice::{Dice, seed};
use crate::large_machine;
use crate::mpi_job::{Ended, Job, MAX_JOBS, When};
use crate::mpirun::shared_library;
use crate::soak::soak_jobs;
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_skt-hpl");

/// P, Q, number of checksums, and order of the system.
type Shape = (usize, usize, usize, usize);

fn hpl((p, q, checksums, n): Shape, ranks: usize, name: &str, flags: &str) -> Job {
    let flags =
        format!("--n {n} --nb 32 --p {p} --q {q} --parities {checksums} --progress off {flags}");
    // Ranks in the middle of a product finish it when they get the signal to end.
    Job::new(Path::new(PROGRAM), ranks, name, &flags).signalled_to_end()
}

fn with_checksums(shape: Shape, name: &str, flags: &str) -> Job {
    let (p, q, checksums, _) = shape;
    hpl(shape, p * (q + checksums), name, &format!("--ft abft {flags}"))
}

fn residual(ended: &Ended) -> f64 {
    let line = ended.text.lines().find(|line| line.contains("PASSED"));
    let line = line.unwrap_or_else(|| panic!("{}", ended.text));
    line.split_whitespace().nth(1).expect("a residual").parse().expect("a number")
}

/// This host's name as ranks report it.
fn host() -> String {
    nix::unistd::gethostname().expect("a name").into_string().expect("ASCII")
}

/// The share of the time that the table of phases covers, in percent.
fn phases_percent(ended: &Ended) -> f64 {
    let line = ended.text.lines().find(|line| line.starts_with("#   sum"));
    let line = line.unwrap_or_else(|| panic!("{}", ended.text));
    line.split_whitespace().last().expect("a share").parse().expect("a number")
}

#[test]
fn an_undisturbed_run_has_the_bits_of_one_without_checksums() {
    let folder = TempDir::new().expect("a folder");
    for (index, shape) in [(1, 3, 2, 290), (2, 2, 1, 250)].into_iter().enumerate() {
        let (p, q, ..) = shape;
        for depth in ["--depth 0", "--depth 1 --threads 2"] {
            let name = format!("bits{index}{}", depth.len());
            let plain = hpl(shape, p * q, &name, &format!("--ft none {depth}")).start(&[]);
            let path = folder.path().join(&name);
            let job = with_checksums(shape, &name, &format!("{depth} --json {}", path.display()));
            let ended = job.start(&[]);
            assert!(plain.ok && ended.ok, "{}\n{}", plain.text, ended.text);
            assert_eq!(ended.x(), plain.x(), "{shape:?} {depth}");
            assert!(ended.text.contains("method abft"), "{}", ended.text);
            assert!(ended.text.contains("# checksum_costs: "), "{}", ended.text);
            // Nothing is in shared memory, which is no news.
            let report = std::fs::read(&path).expect("the run has written it");
            let report: Value = serde_json::from_slice(&report).expect("JSON");
            let sent: &[&str] = if p > 1 { &["panels", "rows"] } else { &["panels"] };
            assert_eq!(report["tests"][0]["by_messages"], json!(sent));
            job.assert_nothing_is_left();
        }
    }
}

/// Some ranks, no more than there are checksums, die repeatedly, with or without their
/// memory: each time the next start continues, and the run ends with the right result.
#[test]
fn ranks_killed_at_any_time() {
    let jobs = soak_jobs().unwrap_or(2);
    let seed = seed("SKT_FT_SEED");
    let mut dice = Dice(seed);
    let (mut kills, mut went_on, mut losses) = (0, 0, 0);
    let mut ratios = [const { Vec::new() }; 2];
    let mut number = 0;
    while number < jobs || went_on == 0 && number < MAX_JOBS {
        let shape = [(1, 2, 1, 3000), (1, 2, 2, 3000), (2, 2, 1, 2500)][number % 3];
        let (p, q, checksums, _) = shape;
        let width = q + checksums;
        let threads = if number % 2 == 0 { "" } else { "--threads 2" };
        let (undisturbed, times) = with_checksums(shape, "none", threads).start_timed();
        // The run is long enough for ranks that the system starts some ms late not to matter.
        let phases = phases_percent(&undisturbed);
        assert!((80.0..101.0).contains(&phases), "phases make {phases} %: {}", undisturbed.text);
        let undisturbed = residual(&undisturbed);
        let job = with_checksums(shape, &format!("random{number}"), threads);
        let row = dice.roll(p);
        let mut victims = vec![row * width + dice.roll(width)];
        if checksums > 1 {
            victims.push(row * width + (victims[0] % width + 1 + dice.roll(width - 1)) % width);
        }
        for left in (0..=3).rev() {
            let (ended, killed) = match left {
                0 => (job.start(&[]), false),
                _ => job.start_and_kill(&victims, times.any(&mut dice)),
            };
            kills += usize::from(killed);
            went_on += usize::from(ended.text.contains("# restart: column"));
            if ended.ok {
                // docs/abft.md explains why it grows; the threshold of the test is 16.
                let times = residual(&ended) / undisturbed;
                assert!(times < 20.0, "seed {seed}: {times} times: {}", ended.text);
                ratios[checksums - 1].push(times);
                break;
            }
            assert!(left > 0, "seed {seed}, job {number}, {victims:?}: {}", ended.text);
            if dice.roll(2) == 0 {
                losses += victims.iter().map(|&rank| job.lose(rank)).sum::<usize>();
            }
        }
        job.assert_nothing_is_left();
        number += 1;
    }
    println!("{number} jobs, {kills} kills, {losses} segments lost, {went_on} starts went on");
    assert!(went_on > 0, "no job was killed while it computed");
    for (ratios, checksums) in ratios.iter_mut().zip(1..) {
        ratios.sort_by(f64::total_cmp);
        let of = |share: f64| ratios[(share * (ratios.len() - 1) as f64) as usize];
        println!(
            "{checksums} checksum(s): residual {:.2} times (median), {:.2} (99 %), {:.2} at most",
            of(0.5),
            of(0.99),
            of(1.0)
        );
    }
}

/// A wrong number ends the run before the residual would show it, and stays known to the next
/// start; with two checksums it is corrected.
#[test]
fn a_flipped_bit_is_reported_or_repaired() {
    let flip = "--inject flip:1@column:512";
    // No check falls between the flip and the end of its group, where only the checksums notice it.
    let late = format!("--check-every 1000 {flip}");
    let reported = |job: &Job, expected: &[&str], excluded: &[&str]| {
        let ended = job.start(&[]);
        // mpirun of Open MPI 5 wraps long lines.
        let text = ended.text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(ended.code, Some(2), "{text}");
        assert_eq!(text.matches("error: ").count(), 1, "one rank reports: {text}");
        expected.iter().for_each(|expected| assert!(text.contains(expected), "{expected}: {text}"));
        // No rank aborts the others, and none reports that the run can continue.
        let no_abort = ["MPI_ABORT", "ended by a signal", "same command continues"];
        let excluded = excluded.iter().chain(&no_abort);
        excluded.for_each(|expected| assert!(!text.contains(expected), "{expected}: {text}"));
    };
    // One of the ranks is beyond the grid, and must learn of the end, too.
    let job = hpl((1, 2, 1, 1500), 4, "flip", &format!("--ft abft {late}"));
    let one = [
        "error: the checksums contradict row ",
        ") noticed. Any rank may have given the wrong number. One parity notices",
        "No level has images to continue from: start over with --resume never",
    ];
    reported(&job, &one, &[]);
    reported(&job, &["error: an earlier start found wrong numbers in the matrix"], &[]);
    let from_scratch = job.start(&["--resume", "never"]);
    assert!(
        from_scratch.ok && from_scratch.text.contains("repaired_rows 0"),
        "{}",
        from_scratch.text
    );
    job.assert_nothing_is_left();

    // With two checksums, the rank that gave the wrong number is named, but it is too late to
    // repair it.
    let job = with_checksums((1, 2, 2, 1500), "late", &late);
    let origin = format!("The wrong number comes from rank 1 ({}) of process column 1, ", host());
    let two = [&origin[..], "too late to correct it"];
    reported(&job, &two, &["--parities"]);
    assert!(job.start(&["--resume", "never"]).ok);
    job.assert_nothing_is_left();

    let job = with_checksums((2, 2, 2, 1200), "mend", &format!("--check-every 1 {flip}"));
    let ended = job.start(&[]);
    assert!(ended.ok && ended.text.contains("repaired_rows 1"), "{}", ended.text);
    let lines = ended.text.lines().filter_map(|line| line.strip_prefix("# repaired: "));
    let lines: Vec<&str> = lines.filter(|line| line.contains("is_origin true")).collect();
    let [line] = lines[..] else { panic!("{}", ended.text) };
    let host = format!("host {}", host());
    for want in ["first_column 512", &host, "rank 1", "rows 1"] {
        assert!(line.split(", ").any(|word| word == want), "{want}: {line}");
    }
    job.assert_nothing_is_left();

    let job = hpl((1, 2, 1, 300), 2, "unnoticed", &format!("--ft self {flip}"));
    let ended = job.start(&[]);
    assert!(!ended.ok && ended.text.contains("only --ft abft notices"), "{}", ended.text);
    let job = hpl((1, 2, 1, 300), 2, "senseless", "--ft self --check-every 3");
    let ended = job.start(&[]);
    assert!(!ended.ok && ended.text.contains("--check-every"), "{}", ended.text);
}

/// The data of surviving ranks is checked before a lost rank is rebuilt: a wrong number elsewhere
/// is reported, or corrected with two checksums. If no checksum is left to notice it, the residual
/// fails, and the report gives the reason.
#[test]
fn a_loss_hides_no_wrong_number_that_a_checksum_sees() {
    let start_twice = |shape: Shape, name: &str, flipped: usize| {
        let flags = "--check-every 1000 --inject 0@column:160 --inject";
        let job = with_checksums(shape, name, &format!("{flags} flip:{flipped}@column:128"));
        let ended = job.start(&[]);
        assert!(!ended.ok, "{}", ended.text);
        assert!(job.lose(0) > 0, "rank 0 had memory");
        let ended = job.start(&[]);
        assert!(ended.text.contains("# unverified:") == ended.text.contains("FAILED"));
        (job, ended)
    };
    let (job, ended) = start_twice((2, 2, 1, 500), "elsewhere", 4);
    let what = "(process row 1), at column ";
    assert!(!ended.ok && ended.text.contains(what), "{}", ended.text);
    // One checksum does not locate the process column, and an exchange may have moved the row.
    let origin = "Any rank may have given the wrong number";
    assert!(ended.text.contains(origin), "{}", ended.text);
    let from_scratch = job.start(&["--resume", "never"]);
    assert!(from_scratch.ok, "{}", from_scratch.text);
    let (job, ended) = start_twice((2, 2, 2, 500), "mended", 5);
    assert!(ended.ok && !ended.text.contains("repaired_rows 0"), "{}", ended.text);
    assert!(ended.text.contains("rebuilt_ranks [0]"), "{}", ended.text);
    job.assert_nothing_is_left();
    let (_, ended) = start_twice((1, 2, 1, 500), "hidden", 1);
    let why = "# unverified: first_column ";
    assert!(!ended.ok && ended.text.contains(why), "{}", ended.text);
}

/// If the launcher gets the signal to end, or is lost, no rank ends within a part, and none is
/// torn.
#[test]
fn the_end_of_the_launcher_tears_no_memory() {
    for signal in [Signal::SIGINT, Signal::SIGKILL] {
        // The products take long: without grace most of such jobs would lose two ranks or three.
        let flags = "--ft abft --n 2000 --nb 128 --p 1 --q 2 --parities 1 --progress live";
        let job = Job::new(Path::new(PROGRAM), 3, &format!("launcher-{signal}"), flags)
            .slowed(&[("ALL_GFLOPS", "1")])
            .signalled_to_end();
        // A launcher that is killed leaves its own files.
        let own = TempDir::new_in("/dev/shm").expect("a folder");
        let folder = own.path().to_str().expect("a plain name");
        // Nor does it pass on what ranks print then.
        let own_file = format!("exec \"$0\" \"$@\" 2>> {folder}/said");
        let job = job.launched(
            &[
                &["--mca", "btl_vader_backing_directory", folder][..],
                &["--mca", "orte_tmpdir_base", folder],
                &["sh", "-c", &own_file],
            ]
            .concat(),
        );
        let printed = || std::fs::read_to_string(own.path().join("said")).unwrap_or_default();
        let first = job.start_and(When::FromLaunch(Duration::ZERO), |mpirun| {
            let is_at_work = printed().contains(": column ");
            if is_at_work {
                signal::kill(Pid::from_raw(mpirun as i32), signal).expect("a signal to a child");
            }
            is_at_work
        });
        assert!(!first.ok && first.x().is_none(), "{}", first.text);
        let words = printed().matches("ended by a signal").count();
        assert_eq!(words, usize::from(signal == Signal::SIGINT), "{}", printed());
        let ended = job.start(&[]);
        assert!(ended.ok && ended.text.contains("PASSED"), "{}", ended.text);
        let line = ended.text.lines().find(|line| line.starts_with("# restart: column"));
        assert!(line.is_some_and(|line| !line.contains("rebuilt_ranks")), "{}", ended.text);
        // On the screen, too, as soon as it resumes.
        assert!(printed().contains(": resuming at column "), "{}", printed());
        job.assert_nothing_is_left();
    }
}

/// A BLAS of 0.25 Gflop/s, as slow as for large matrices. It marks that a rank of the job has begun
/// a product on more than a thousand rows.
const SLOW_BLAS: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
void dgemm_(char *a, char *b, int *m, int *n, int *k, void *f, void *g, void *h, void *i,
            void *j, void *l, void *o, void *p) {
    void (*real)(char *, char *, int *, int *, int *, void *, void *, void *, void *, void *,
                 void *, void *, void *) = dlsym(RTLD_NEXT, "dgemm_");
    char name[4096];
    snprintf(name, sizeof name, "%s/%s", getenv("SLOW_BLAS"), getenv("OMPI_COMM_WORLD_RANK"));
    // With messages, a product has up to 1152 rows.
    if (*n > 1000 && *k > 100) close(open(name, O_CREAT | O_WRONLY, 0600));
    real(a, b, m, n, k, f, g, h, i, j, l, o, p);
    double seconds = 2.0 * *m * *n * *k / 2.5e8;
    struct timespec left = {seconds, (seconds - (long)seconds) * 1e9};
    while (nanosleep(&left, &left)) {}
}
"#;

/// One rank dies while all are in products that would take four seconds, longer than a
/// launcher waits before it kills: they end between two calls.
#[test]
fn one_death_tears_no_other_rank_where_products_are_slow() {
    let folder = TempDir::new().expect("a folder");
    let library = shared_library("slow_blas", SLOW_BLAS);
    let flags = "--ft abft --n 4000 --nb 256 --p 1 --q 2 --parities 1 --progress off";
    let job = Job::new(Path::new(PROGRAM), 3, "slow", flags).signalled_to_end();
    // The ranks have the BLAS of this library and the waits of the other.
    let preload = format!("LD_PRELOAD={library}:{}", large_machine::library());
    let expected = format!("SLOW_BLAS={}", folder.path().display());
    let job = job.launched(&["-x", &preload, "-x", &expected]);
    // Rank 1 is the owner of the next panel, which it advances first: it dies in that product.
    let victim = 1;
    let ended = job.start_and(When::FromLaunch(Duration::ZERO), |_| {
        let multiplies = |rank: &usize| folder.path().join(rank.to_string()).exists();
        let is_time = [0, victim, 2].iter().all(multiplies);
        if is_time {
            job.kill_rank(victim);
        }
        is_time
    });
    let multiplied = std::fs::read_dir(folder.path()).expect("our folder").count();
    assert!(multiplied > 0, "the slow BLAS was not planted: {}", ended.text);
    assert!(!ended.ok && ended.x().is_none(), "{}", ended.text);
    let ended = job.launched(&[]).start(&[]);
    let line = ended.text.lines().find(|line| line.starts_with("# restart: column"));
    assert!(line.is_some_and(|line| line.contains("rebuilt_ranks [1]")), "{}", ended.text);
    assert!(ended.ok && ended.text.contains("PASSED"), "{}", ended.text);
}

#[test]
fn more_losses_than_checksums_are_refused_by_name() {
    let job = with_checksums((1, 3, 1, 900), "lost", "--inject 1@column:450");
    let first = job.start(&[]);
    assert!(!first.ok, "{}", first.text);
    assert_eq!((job.lose(1), job.lose(3)), (1, 1), "{}", first.text);
    for _ in 0..2 {
        let ended = job.start(&[]);
        assert!(!ended.ok && ended.x().is_none(), "{}", ended.text);
        assert!(ended.text.contains("lost ranks [1, 3]"), "{}", ended.text);
        assert_eq!(job.segments(None).len(), 2, "nothing is thrown away");
    }
    let ended = job.start(&["--resume", "never"]);
    assert!(ended.ok && ended.text.contains("PASSED"), "{}", ended.text);
    job.assert_nothing_is_left();
}
