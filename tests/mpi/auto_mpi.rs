//! `skt-hpl auto` on ranks of a real `mpirun`: what it chooses, writes and runs.

use std::fs;
use std::path::Path;

use crate::mpirun::{self, Ended};
use crate::planted_blas::planted;
use skt_config::{Format, RunSpec, parse};
use tempfile::TempDir;

fn run(folder: &Path, ranks: usize, flags: &str) -> Ended {
    let mut launcher = mpirun::mpirun(ranks);
    launcher.arg(env!("CARGO_BIN_EXE_skt-hpl")).args(flags.split_whitespace());
    mpirun::run(launcher.current_dir(folder))
}

/// `auto`, with twice the seconds as long as setting up alone takes the part for tuning: the cores
/// are shared with other tests.
fn auto(folder: &Path, ranks: usize, mut seconds: u64, flags: &str) -> Ended {
    loop {
        let flags = format!("auto --time {seconds}s --progress off {flags}");
        let ended = run(folder, ranks, &flags);
        if seconds > 100 || !ended.err.contains("give more time") {
            return ended.expect(0);
        }
        seconds *= 2;
    }
}

fn read(path: &Path) -> RunSpec {
    let name = path.display().to_string();
    parse(&fs::read(path).unwrap(), &name, Format::from_path(path), false).unwrap().spec
}

/// The scaled residual, which other bits of x would change.
fn residual(report: &str) -> &str {
    let line = report.lines().find(|line| line.starts_with("||Ax-b||")).expect(report);
    assert!(line.ends_with("PASSED"), "{line}");
    line
}

#[test]
fn auto_runs_what_it_writes() {
    let folder = TempDir::new().unwrap();
    let ended = auto(folder.path(), 2, 8, "--blas built-in --json auto.json");
    for what in ["grid", "nb", "depth", "nbmin", "rfact", "pfact", "swap", "bcast"] {
        let is_of = |line: &str| {
            line.trim_start_matches("# ").split([' ', ':']).next().is_some_and(|word| word == what)
        };
        assert!(ended.err.lines().any(is_of), "{what}: {}", ended.err);
    }
    assert!(ended.err.contains("auto: N = "), "{}", ended.err);
    let [toml, dat] = ["HPL.toml", "HPL.dat"].map(|file| read(&folder.path().join(file)));
    assert_eq!((&toml.n, &toml.nb, &toml.grids), (&dat.n, &dat.nb, &dat.grids));
    assert_eq!(toml.blas.as_deref(), Some("built-in"));
    let line = ended.out.lines().find(|line| line.starts_with("WR")).expect("a result");
    assert_eq!(line.split_whitespace().nth(1), Some(&*toml.n[0].to_string()), "{line}");
    for again in ["--config HPL.toml", "--config HPL.dat --ft none --blas built-in"] {
        let repeated = run(folder.path(), 2, &format!("{again} --progress off")).expect(0);
        assert_eq!(residual(&repeated.out), residual(&ended.out), "{again}");
    }
    let refused = run(folder.path(), 2, "auto --blas built-in --time 8s").expect(2);
    assert!(refused.err.contains("HPL.toml: exists already; --force overwrites it"));
    assert_eq!(refused.err.matches("error: ").count(), 1, "{}", refused.err);
}

#[test]
fn auto_names_the_library_that_it_chooses() {
    let folder = TempDir::new().unwrap();
    let ended = auto(folder.path(), 1, 20, "");
    let name = read(&folder.path().join("HPL.toml")).blas.expect("a library");
    let news = format!("blas: auto takes {name}: ");
    assert_eq!(ended.err.matches(&news).count(), 1, "{}", ended.err);
    assert!(ended.out.contains(&format!("# blas auto: {name}: ")), "{}", ended.out);
    assert!(!ended.err.contains("HPL.dat cannot hold"), "{}", ended.err);
    residual(&ended.out);
}

#[test]
fn auto_refuses_what_it_cannot_do() {
    let folder = TempDir::new().unwrap();
    for (flags, why) in [
        ("--time 1s", "error: --time: 1 s are too short; legal: 6 s or more"),
        ("--memory 2", "'--memory <0..1>': legal is more than 0, at most 1"),
        ("--memory 1e-9", "take fewer ranks, or a larger part of the memory (--memory)"),
        ("--ft self", "error: --ft: a group with 1 parity needs at least 2 ranks, not 1"),
    ] {
        let refused = run(folder.path(), 1, &format!("auto --blas built-in {flags}")).expect(2);
        assert!(refused.err.contains(why), "{flags}: {}", refused.err);
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is written");
    fs::create_dir(folder.path().join("HPL.dat")).unwrap();
    let refused = run(folder.path(), 1, "auto --blas built-in --force").expect(2);
    assert!(refused.err.contains("HPL.dat") && refused.err.contains("Is a directory"));
    assert!(!refused.err.contains("auto: "), "{}", refused.err);

    let library =
        planted("planted_auto_wrong_late", "#define FAULT_IS \"is wrong in large calls\"");
    let flags = format!("auto --time 12s --force --blas {}", library.display());
    fs::remove_dir(folder.path().join("HPL.dat")).unwrap();
    let failed = run(folder.path(), 1, &flags).expect(1);
    assert!(failed.err.contains("error: FAILED: "), "{}", failed.err);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is written");
}

#[test]
fn auto_leaves_memory_for_the_protection_asked_for() {
    let folder = TempDir::new().unwrap();
    let ended = auto(folder.path(), 4, 8, "--blas built-in --ft self");
    let with_dat = "HPL.dat: run it with\n  mpirun -np 4 skt-hpl --blas built-in --ft self\n";
    assert!(ended.err.contains(with_dat), "{}", ended.err);
    let text = fs::read_to_string(folder.path().join("HPL.toml")).unwrap();
    assert!(text.contains("\nmethod = \"self\"\n"), "{text}");
    assert!(ended.out.contains("# protected: "), "{}", ended.out);
    residual(&ended.out);
}
