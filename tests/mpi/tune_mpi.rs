//! `skt-hpl tune` on ranks of a real `mpirun`: its table, what it writes, how it ends.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::large_machine;
use crate::mpirun::{self, Ended};
use skt_config::{Format, GemmPrecision, MxpMatrix, RunSpec, parse};
use tempfile::TempDir;

/// One job runs at a time: the trials of two would measure each other.
static ONE_JOB: Mutex<()> = Mutex::new(());

/// The time that a job may take in addition to its budget, to start and to end.
const START_AND_END: Duration = Duration::from_secs(60);

/// Runs the program with flags given as one line.
fn run(folder: &Path, ranks: usize, flags: &str) -> Ended {
    run_by(mpirun::mpirun(ranks), folder, flags)
}

/// Runs the program by a launcher that has its own environment.
fn run_by(mut launcher: Command, folder: &Path, flags: &str) -> Ended {
    let _one = ONE_JOB.lock().unwrap_or_else(PoisonError::into_inner);
    launcher.arg(env!("CARGO_BIN_EXE_skt-hpl")).args(flags.split_whitespace());
    mpirun::run(launcher.current_dir(folder))
}

/// A folder with a configuration of N = 500.
fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    let text = "title = \"to be tuned\"\nn = 500\nnb = 40\np = 1\nq = 2\n";
    fs::write(folder.path().join("base.toml"), text).unwrap();
    folder
}

fn read(path: &Path) -> RunSpec {
    let name = path.display().to_string();
    parse(&fs::read(path).unwrap(), &name, Format::from_path(path), false).unwrap().spec
}

/// The rows of the table as words, without its head.
fn rows(out: &str) -> Vec<Vec<&str>> {
    let mut lines = out.lines().filter(|line| !line.starts_with('#'));
    let head = lines.next().expect("a head");
    assert!(head.starts_with("parameter  value "), "{out}");
    lines.map(|line| line.split_whitespace().collect()).collect()
}

/// The value after a flag, on the line with the chosen values.
#[track_caller]
fn chosen<'a>(out: &'a str, flag: &str) -> &'a str {
    let (_, flags) = out.lines().find_map(|line| line.split_once(": --p ")).expect(out);
    let mut words = ["--p"].into_iter().chain(flags.split_whitespace());
    words.find(|word| *word == flag).expect(out);
    words.next().unwrap()
}

#[test]
fn the_file_of_tune_agrees_with_its_table_and_runs() {
    let folder = folder();
    let flags = "tune --config base.toml --n 400 --budget 8s --out tuned.toml --progress plain";
    let ended = run(folder.path(), 2, flags).expect(0);
    assert!(ended.took < Duration::from_secs(8) + START_AND_END, "{:?}", ended.took);
    assert!(ended.err.contains("# tune: finding N, trial 1, "), "{}", ended.err);

    let (head, _) = ended.out.split_once('\n').unwrap();
    let words: Vec<&str> = head.split_whitespace().collect();
    assert!(head.starts_with("# tune: N = 400, 2 rank(s) of 1 thread(s), "), "{head}");
    let place = words.iter().position(|word| *word == "trials").expect(head);
    let trials: usize = words[place - 1].parse().unwrap();

    let rows = rows(&ended.out);
    assert!(rows.iter().all(|row| row.len() == 8), "{}", ended.out);
    let in_rows: usize = rows.iter().map(|row| row[2].parse::<usize>().unwrap()).sum();
    assert!(in_rows > 1 && in_rows < trials, "{in_rows} of {trials}");
    // Of the values of a parameter, one is in use.
    let of = |rows: &[Vec<&str>]| rows.iter().map(|row| row[0].to_owned()).collect::<Vec<_>>();
    let mut raced = of(&rows);
    raced.dedup();
    let in_use: Vec<_> = rows.iter().filter(|row| row[5] == "yes").cloned().collect();
    assert_eq!(of(&in_use), raced, "{}", ended.out);
    for row in rows.iter().filter(|row| row[2] != "0") {
        assert!(row[3].parse::<f64>().unwrap() > 0.0, "{row:?}");
    }
    // Ranks of one host send neither panels nor rows.
    assert!(ended.out.contains("\n# bcast: 1ringM stays, as "), "{}", ended.out);

    let tuned = folder.path().join("tuned.toml");
    let text = fs::read_to_string(&tuned).unwrap();
    let head = "# Made by `skt-hpl tune`; run it with\n#   ";
    let next = "mpirun -np 2 skt-hpl --config tuned.toml\n";
    assert!(text.starts_with(&format!("{head}{next}\n")), "{text}");
    assert!(ended.err.ends_with(&format!("tuned.toml: run it with\n  {next}")), "{}", ended.err);
    let spec = read(&tuned);
    assert_eq!((spec.n.as_slice(), spec.test_count()), (&[500][..], 1));
    assert_eq!(spec.title[0], "to be tuned");
    assert_eq!(spec.grids[0].0.to_string(), chosen(&ended.out, "--p"));
    assert_eq!(spec.grids[0].1.to_string(), chosen(&ended.out, "--q"));
    assert_eq!(spec.nb[0].to_string(), chosen(&ended.out, "--nb"));
    assert_eq!(spec.bcast[0].name(), chosen(&ended.out, "--bcast"));
    // Without a flag, the run has the method of the trials: the default takes more memory.
    let report = run(folder.path(), 2, "--config tuned.toml --progress off").expect(0);
    assert!(!report.out.contains("# protected: "), "{}", report.out);
    assert!(text.contains("method = \"none\""), "{text}");
    assert_eq!(report.out.matches("...... PASSED\n").count(), 1, "{}", report.out);
}

/// Parameters of a panel have no effect in HPL-MxP; SWAP has one where rows are sent.
#[test]
fn hpl_mxp_is_tuned_into_a_file_that_it_runs() {
    let folder = folder();
    let flags = "tune --mxp --matrix scaled --gemm bf16-emulated --config base.toml --p 2 --q 1 \
                 --transport messages --n 200 --nb 40,64";
    // On an idle machine this takes a second or two.
    let whole = format!("{flags} --budget 30s --only nb,swap,bcast --out mxp.toml");
    let ended = run(folder.path(), 2, &whole).expect(0);
    let head = "# tune: HPL-MxP, matrix scaled, gemm bf16-emulated, N = 200, 2 rank(s) of 1 thread";
    assert!(ended.out.starts_with(head), "{}", ended.out);
    assert!(ended.out.contains("all residuals passed"), "{}", ended.out);
    assert!(rows(&ended.out).iter().any(|row| row[..2] == ["nb", "64"]), "{}", ended.out);
    // On a busy machine there may be no time for its race.
    let is_late = ended.out.contains("\n# swap: mix:64 stays, as no time was left\n");
    assert!(ended.out.contains("\nswap       mix:64 ") || is_late, "{}", ended.out);
    for name in ["nbmin", "rfact", "pfact"] {
        assert!(!ended.out.contains(name), "{}", ended.out);
    }
    let next = "mpirun -np 2 skt-hpl mxp --config mxp.toml\n";
    assert!(ended.err.ends_with(&format!("mxp.toml: run it with\n  {next}")), "{}", ended.err);
    let text = fs::read_to_string(folder.path().join("mxp.toml")).unwrap();
    let head = "# Made by `skt-hpl tune`; run it with\n#   ";
    assert!(text.starts_with(&format!("{head}{next}\n")), "{text}");

    let spec = read(&folder.path().join("mxp.toml"));
    assert_eq!((spec.n.as_slice(), spec.mxp), (&[500][..], Some(MxpMatrix::Scaled)));
    assert_eq!(spec.gemm, GemmPrecision::EmulatedBf16);
    assert_eq!((spec.test_count(), spec.grids[0]), (1, (2, 1)));
    assert_eq!(spec.nb[0].to_string(), chosen(&ended.out, "--nb"));
    assert_eq!(spec.swap.name(), chosen(&ended.out, "--swap"));
    let report = run(folder.path(), 2, "mxp mxp.toml --ft none --progress off").expect(0);
    assert_eq!(report.out.matches("...... PASSED\n").count(), 1, "{}", report.out);

    // HPL.dat cannot hold all that the run needs.
    let ft = "--ft self --checkpoint-every 4p!";
    let protected = format!("{flags} {ft} --budget 10s --only depth --out mxp.dat");
    let ended = run(folder.path(), 2, &protected).expect(0);
    assert!(!ended.err.contains("note: "), "the trials had checkpoints: {}", ended.err);
    let next = "mpirun -np 2 skt-hpl mxp --config mxp.dat --transport messages --matrix scaled --gemm \
                bf16-emulated --ft self --checkpoint-every '4p!'";
    assert!(ended.err.ends_with(&format!("\n  {next}\n")), "{}", ended.err);
    let idle = format!("{flags} --only pfact");
    let refused = run(folder.path(), 2, &idle).expect(2);
    assert!(refused.err.contains("error: --only: pfact: has no effect in HPL-MxP"));
}

#[test]
fn a_file_that_exists_is_replaced_by_force_alone() {
    let folder = folder();
    let path = folder.path().join("HPL.dat");
    let flags = "tune --n 300 --budget 3s --only depth --out HPL.dat --config base.toml";
    fs::write(&path, "mine").unwrap();
    let ended = run(folder.path(), 2, flags).expect(2);
    assert!(ended.err.contains("HPL.dat: exists already; --force overwrites it"), "{}", ended.err);
    assert_eq!((fs::read_to_string(&path).unwrap().as_str(), ended.out.as_str()), ("mine", ""));
    let ended = run(folder.path(), 2, &format!("{flags} --force")).expect(0);
    let spec = read(&path);
    assert_eq!(spec.n, [500]);
    assert_eq!(spec.depth[0].to_string(), chosen(&ended.out, "--depth"));
    assert_eq!(spec.nb, [40]);
}

#[test]
fn a_wrong_result_ends_tuning_with_its_parameters() {
    let folder = folder();
    // A threshold that no solution meets is not that of the trials.
    let flags = "tune --config base.toml --n 300 --threshold 1e-30 --out tuned.toml";
    let mut launcher = mpirun::mpirun(2);
    let faults = [("FLIP", "1"), ("RANK", "1"), ("SEED", "1")];
    let planted = large_machine::slow(&mut launcher, &faults);
    let ended = run_by(launcher, folder.path(), flags).expect(1);
    planted.assert();
    assert!(ended.err.contains("error: FAILED: the scaled residual"), "{}", ended.err);
    assert!(ended.err.contains(" --n 300 --p 1 --q 2 --nb 40 --depth 1 "), "{}", ended.err);
    assert_eq!(ended.out, "");
    assert!(!folder.path().join("tuned.toml").exists());
}

#[test]
fn trials_are_checked_and_protected_and_leave_nothing() {
    let folder = folder();
    let store = folder.path().join("store");
    fs::create_dir(&store).unwrap();
    let common = format!(
        "tune --config base.toml --n 600 --budget 6s --only depth --store file:{}",
        store.display()
    );
    // A run without a check is tuned with one.
    for flags in ["--ft self --checkpoint-every 4p! --threshold 0", "--ft abft --p 1 --q 1"] {
        let ended = run(folder.path(), 2, &format!("{common} {flags}")).expect(0);
        assert!(ended.out.contains("all residuals passed"), "{}", ended.out);
        assert!(!ended.err.contains("note: "), "{}", ended.err);
        let left: Vec<_> = fs::read_dir(&store).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert!(left.is_empty(), "{left:?}");
    }
    let ended = run(folder.path(), 2, &format!("{common} --ft self")).expect(0);
    assert!(ended.err.contains("note: --ft self: no checkpoint is due"), "{}", ended.err);
}

/// Two ranks on each of two hosts: a preloaded library gives the names, and a separate folder to
/// the store of each host.
const TWO_HOSTS: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static int host(void) {
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    rank = rank ? rank : getenv("PMI_RANK");
    return rank ? atoi(rank) / 2 : -1;
}
__attribute__((constructor)) static void enter(void) {
    if (host() >= 0 && chdir(host() ? "host1" : "host0")) {
        abort();
    }
}
int MPI_Get_processor_name(char *name, int *length) {
    *length = sprintf(name, "host%d", host());
    return 0;
}
"#;

/// A trial that all ranks refuse alike ends the job on all ranks, with its reason: here the ranks
/// of a process row, of which one may be lost, are on one host.
#[test]
fn a_trial_that_all_ranks_refuse_ends_the_tuning() {
    let folder = folder();
    let library = mpirun::shared_library("two_hosts", &[TWO_HOSTS, mpirun::WAITS].concat());
    let mut job = mpirun::mpirun(4);
    job.env("LD_PRELOAD", library);
    for host in ["host0", "host1"] {
        fs::create_dir(folder.path().join(host)).unwrap();
    }
    let flags = "tune --config ../base.toml --ft abft --p 1 --q 3 --budget 5s --store file:.";
    let printed = run_by(job, folder.path(), flags).expect(2).err;
    assert_eq!(printed.matches("error: ").count(), 1, "{printed}");
    let hosts = ["failure domain `host0`", "failure domain `host1`"];
    assert!(hosts.iter().any(|host| printed.contains(host)), "{printed}");
}

#[test]
fn what_cannot_be_tuned_is_refused_at_once() {
    let folder = folder();
    let cases = [
        ("--n 400,500", "--n: value 400,500 is out of range; legal: one order for all trials"),
        ("--n 100000 --budget 1s", "--n 100000: a trial takes about "),
        ("--budget 10ms", "--budget: value 0.01s is out of range; legal: 1s or more"),
        ("--inject encode:1", "--inject: encode:1: trials have no faults"),
        ("--p 2 --q 2", "the 2 x 2 grid needs 4 ranks, this job has 2"),
    ];
    for (flags, why) in cases {
        let ended = run(folder.path(), 2, &format!("tune --config base.toml {flags}")).expect(2);
        assert!(ended.err.contains(why), "{flags}: {}", ended.err);
        assert_eq!(ended.err.matches("error: ").count(), 1, "{}", ended.err);
        assert_eq!(ended.out, "");
    }
    // The folder has no file, and no flag gives N.
    let empty = TempDir::new().unwrap();
    let ended = run(empty.path(), 1, "tune").expect(2);
    assert!(ended.err.contains("`skt-hpl init` writes one"), "{}", ended.err);
}
