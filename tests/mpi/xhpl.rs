//! The program under the name `xhpl`: lines, exit codes and files are those of the reference, and
//! its users need no flag.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use skt_config::{Bcast, Fact, Pmap, RunSpec, hpldat};
use tempfile::TempDir;

use crate::mpirun::{as_installed, mpirun, run};
use crate::report_common::default_run;
use crate::skipped::namespaces;

/// What the reference (HPL 2.3, built with -DHPL_DETAILED_TIMING and -DHPL_PROGRESS_REPORT) prints
/// for [`two_tests`] with thresholds of 16, 1e-30 and 0, from the first panel on.
const REFERENCE: &str = include_str!("../golden/detailed_reference.txt");

/// Two tests on four ranks.
fn two_tests() -> RunSpec {
    RunSpec {
        n: vec![300],
        nb: vec![32, 64],
        grids: vec![(2, 2)],
        pfact: vec![Fact::Right],
        rfact: vec![Fact::Crout],
        nbmin: vec![4],
        ndiv: vec![2],
        bcast: vec![Bcast::OneRingM],
        depth: vec![1],
        ..default_run()
    }
}

/// A folder with the HPL.dat of a run.
fn folder(spec: &RunSpec) -> TempDir {
    let folder = TempDir::new().expect("a folder");
    fs::write(folder.path().join("HPL.dat"), hpldat::write(spec).unwrap()).unwrap();
    folder
}

/// The link `name` in a separate folder.
fn link(name: &str) -> TempDir {
    let bin = TempDir::new().expect("a folder");
    symlink(env!("CARGO_BIN_EXE_skt-hpl"), bin.path().join(name)).unwrap();
    bin
}

/// Runs `xhpl`, found in `PATH`, in a folder.
fn xhpl(folder: &Path, ranks: usize, flags: &str) -> (Option<i32>, String, String) {
    named("xhpl", folder, ranks, flags)
}

/// Runs the program under this name, found in `PATH`, in a folder.
fn named(name: &str, folder: &Path, ranks: usize, flags: &str) -> (Option<i32>, String, String) {
    let bin = link(name);
    let path = format!("{}:{}", bin.path().display(), std::env::var("PATH").unwrap());
    let mut job = mpirun(ranks);
    job.env("PATH", path).env_remove("OMP_NUM_THREADS").env("TZ", "UTC").arg(name);
    ended(job.args(flags.split_whitespace()).current_dir(folder))
}

fn ended(job: &mut Command) -> (Option<i32>, String, String) {
    let ended = run(job);
    (ended.code, ended.out, ended.err)
}

/// A line without what differs between two runs: times, rates, residuals.
fn lasting(line: &str) -> String {
    let starts = |start: &str| line.starts_with(start);
    let cut = if starts("Column=") {
        line.find(" Gflops=")
    } else if starts("W") {
        line.len().checked_sub(43)
    } else if starts("HPL_pdgesv()") {
        Some("HPL_pdgesv() start time".len())
    } else if starts("Max ") || starts("+ Max ") || starts("||Ax-b||_oo/") {
        line.find(|c: char| c.is_ascii_digit())
    } else {
        None
    };
    let (kept, rest) = line.split_at(cut.unwrap_or(line.len()));
    let verdict = rest.rsplit_once(" ...... ").map_or("", |(_, verdict)| verdict);
    format!("{} + {} characters {verdict}", kept.trim_end(), line.len())
}

#[test]
fn progress_and_detailed_timing_are_the_lines_of_the_reference() {
    let mut ours = String::new();
    for threshold in [16.0, 1e-30, 0.0] {
        let folder = folder(&RunSpec { threshold, ..two_tests() });
        let (code, out, err) = xhpl(folder.path(), 4, "--progress-report --detailed-timing");
        assert_eq!(code, Some(0), "{out}\n{err}");
        let (_, from_first) = out.split_once("\nColumn=").expect("the first panel");
        ours += &format!("Column={from_first}");
    }
    let ours: Vec<String> = ours.lines().map(lasting).collect();
    let theirs: Vec<String> = REFERENCE.lines().map(lasting).collect();
    for (at, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
        assert_eq!(ours, theirs, "line {}", at + 1);
    }
    assert_eq!(ours.len(), theirs.len());
}

/// What the lines print agrees with the table of phases, of which some are the same.
#[test]
fn detailed_timing_agrees_with_the_phases() {
    // Without recursion most of the panel's time is that of `pfact`, which is to be some hundredths
    // of a second, in which it is printed.
    let (n, nb) = (vec![3000], vec![64]);
    let spec = RunSpec { n, nb, nbmin: vec![64], grids: vec![(1, 2)], ..two_tests() };
    let folder = folder(&spec);
    for method in ["none", "self"] {
        let run_id = format!("xhpl-{}", std::process::id());
        let flags = format!("--ft {method} --checkpoint-every 5p --run-id {run_id}");
        let flags = if method == "none" { "" } else { &flags };
        let flags = format!("--detailed-timing --verbose {flags}");
        let (code, out, err) = xhpl(folder.path(), 2, &flags);
        assert_eq!(code, Some(0), "{out}\n{err}");
        let timing = |name: &str| -> f64 {
            let line = out.lines().find(|line| line.contains(&format!(" wall time {name} ")));
            line.expect(name).rsplit(' ').next().unwrap().parse().unwrap()
        };
        let longest = |phase: &str| -> f64 {
            let line = err.lines().find(|line| line.starts_with(&format!("#   {phase} ")));
            line.expect(phase).split_whitespace().nth(4).unwrap().parse().unwrap()
        };
        let near = |a: f64, b: f64| assert!((a - b).abs() < 0.0051, "{a} {b}\n{out}");
        near(timing("rfact"), longest("panel"));
        near(timing("laswp"), longest("swap"));
        near(timing("up tr sv"), longest("back"));
        let (rfact, pfact, mxswp) = (timing("rfact"), timing("pfact"), timing("mxswp"));
        assert!(mxswp <= pfact && pfact <= rfact && pfact > 0.0, "{out}");
        let update = timing("update");
        assert!(update + 0.0051 >= longest("update").max(longest("swap")), "{out}");
        assert!(update <= longest("update") + longest("swap") + 0.0051, "{out}");
    }
}

#[test]
fn exit_codes_are_those_of_the_reference() {
    let spec = || RunSpec { nb: vec![32], grids: vec![(1, 2)], ..two_tests() };
    let run = |spec: &RunSpec, flags: &str| xhpl(folder(spec).path(), 2, flags);
    let (code, out, err) = run(&RunSpec { threshold: 1e-30, ..spec() }, "");
    assert_eq!(code, Some(0), "{out}\n{err}");
    assert!(
        out.contains("\n              1 tests completed and failed residual checks,\n"),
        "{out}"
    );
    for (spec, flags, why) in [
        (RunSpec { grids: vec![(2, 2)], ..spec() }, "", "needs 4 ranks, this job has 2"),
        (spec(), "--nb 0", "--nb"),
        (spec(), "--json /nonexistent/x.json", "/nonexistent"),
    ] {
        let (code, out, err) = run(&spec, flags);
        assert_eq!((code, out.as_str()), (Some(1), ""), "{err}");
        assert!(err.contains("error: ") && err.contains(why), "{err}");
    }
    // The reference breaks off with a signal there.
    let (code, out, err) = xhpl(TempDir::new().unwrap().path(), 2, "");
    assert_eq!((code, out.as_str()), (Some(1), ""), "{err}");
    assert!(err.contains("HPL.dat"), "{err}");
}

/// Names of all that is in a folder, sorted.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn illegal_values_are_replaced_and_only_the_report_is_left() {
    let spec = RunSpec { nb: vec![32], grids: vec![(1, 2)], ..two_tests() };
    let folder = folder(&spec);
    let dat = folder.path().join("HPL.dat");
    let text = fs::read_to_string(&dat).unwrap();
    // Device 8 is a file, and 9 no broadcast.
    let lines: Vec<String> = text
        .lines()
        .enumerate()
        .map(|(at, line)| match at + 1 {
            4 => "8 device out".to_owned(),
            23 => "9 BCASTs".to_owned(),
            _ => line.to_owned(),
        })
        .collect();
    fs::write(&dat, lines.join("\n") + "\n").unwrap();
    let (code, out, err) = xhpl(folder.path(), 2, "");
    assert_eq!((code, out.as_str()), (Some(0), ""), "{err}");
    assert_eq!(names(folder.path()), ["HPL.dat", "HPL.out"]);
    let report = fs::read_to_string(folder.path().join("HPL.out")).unwrap();
    assert!(report.contains("\nBCAST  :  1ringM \n"), "{report}");
    assert!(err.starts_with("# warning: HPL.dat:23: BCASTs"), "{err}");
    assert!(err.lines().all(|line| line.starts_with("# warning: ")), "{err}");
    assert!(!report.contains('#'), "{report}");
}

/// Where the input is refused, programs look for the reference's words.
#[test]
fn a_refused_input_has_the_message_of_the_reference() {
    let spec = RunSpec { nb: vec![32], grids: vec![(1, 1)], ..two_tests() };
    let folder = folder(&spec);
    let dat = folder.path().join("HPL.dat");
    let text = fs::read_to_string(&dat).unwrap().replace("\n300 ", "\n-3 ");
    fs::write(&dat, text).unwrap();
    let words = "\n>>> Illegal input in file HPL.dat. Exiting ... <<<\n\n";
    let (code, out, err) = xhpl(folder.path(), 1, "");
    assert_eq!((code, &*out), (Some(1), ""), "{err}");
    assert!(err.starts_with("error: HPL.dat:6: Ns") && err.contains(words), "{err}");
    // It is the flag that is wrong.
    let (code, _, err) = xhpl(folder.path(), 1, "--n 5 --nb 0 --what");
    assert!(code == Some(1) && !err.contains("HPL ERROR"), "{err}");
}

/// The reference ignores its arguments; that is printed once.
#[test]
fn arguments_of_others_are_ignored_under_each_name_of_xhpl() {
    let spec = RunSpec { nb: vec![32], grids: vec![(1, 2)], ..two_tests() };
    let folder = folder(&spec);
    for (name, flags, words) in [
        ("xhpl", "HPL.dat", "arguments: HPL.dat; HPL.dat is run"),
        (
            "xhpl-openmpi",
            "-p -s 2480 -f other.dat",
            "arguments: -p -s 2480 -f other.dat; HPL.dat is run",
        ),
        ("xhpl_intel64", "-n 9 -b 8 --n 70 doctor", "arguments: -n 9 -b 8 doctor; HPL.dat is run"),
    ] {
        let (code, out, err) = named(name, folder.path(), 2, flags);
        assert_eq!(code, Some(0), "{out}\n{err}");
        let n = if flags.contains("--n ") { 70 } else { 300 };
        let result = format!("\nWR11C2R4{n:12}    32     1     2 ");
        assert!(out.contains(&result), "{name} {flags}: {out}");
        let printed: Vec<&str> = err.lines().filter(|line| line.contains("ignored")).collect();
        let [printed] = printed[..] else { panic!("{err}") };
        assert!(printed.starts_with("# warning: ") && printed.contains(words), "{err}");
    }
}

/// Another benchmark than the name asks for would run otherwise.
#[test]
fn names_and_files_of_hpl_mxp_run_it() {
    let folder = TempDir::new().unwrap();
    let lines = "a\nb\nHPL-MxP.out\n6\n1\n200 Ns\n1\n32 NBs\n0 PMAP\n1 P\n2 Q\n16.0\n1\n0\n";
    fs::write(folder.path().join("HPL-MxP.dat"), lines).unwrap();
    for (name, flags) in [("xhpl_mxp", ""), ("hpl-ai", "--verbose")] {
        let (code, out, err) = named(name, folder.path(), 2, flags);
        assert_eq!(code, Some(0), "{name}: {out}\n{err}");
        assert!(out.contains("\nWR10MXP          200    32     1     2 "), "{name}: {out}");
        assert!(!out.contains('#') && err.lines().all(|line| line.starts_with("# ")), "{err}");
        assert_eq!(err.contains("# mxp: "), flags == "--verbose", "{err}");
    }
    let (code, out, err) = named("xhpl_mxp", folder.path(), 2, "200 32 1 -not");
    assert_eq!((code, out.as_str()), (Some(2), ""), "{err}");
    assert!(err.contains("unexpected argument '32'"), "{err}");
    // Open MPI may fail to show its help on that as the job ends.
    let shows_abort = ["mpi_abort", "show_help.c"].iter().any(|it| err.to_lowercase().contains(it));
    assert!(shows_abort, "mpirun may not notice ranks that end before MPI: {err}");
}

/// A list that is shorter than its count, as HPL 2.3 runs it.
#[test]
fn lists_are_read_as_the_reference_reads_them() {
    let folder = folder(&RunSpec { nb: vec![32], grids: vec![(1, 2)], ..two_tests() });
    let dat = folder.path().join("HPL.dat");
    let text = fs::read_to_string(&dat).unwrap().replace("\n1            # of problems", "\n3 #");
    fs::write(&dat, text).unwrap();
    let (code, out, err) = xhpl(folder.path(), 2, "");
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains("\nN      :     300        0        0 \n"), "{out}");
    assert!(err.contains("# warning: HPL.dat:6: Ns: read as `300 Ns Ns`"), "{err}");
}

/// The inputs and the masked reports of HPL 2.3, by `scripts/dev/reports`.
#[test]
fn reports_are_the_references_line_by_line() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (bin, ours) = (link("xhpl"), TempDir::new().expect("a folder"));
    let theirs = root.join("tests/golden/reports");
    let mut script = Command::new(root.join("scripts/dev/reports"));
    script.envs(mpirun(1).get_envs().filter_map(|(name, value)| Some((name, value?))));
    let (code, out, err) = ended(script.arg(bin.path().join("xhpl")).arg(ours.path()));
    assert_eq!(code, Some(0), "{out}\n{err}");
    let reports: Vec<String> =
        names(&theirs).into_iter().filter(|name| name.ends_with(".txt")).collect();
    assert_eq!(names(ours.path()), reports);
    assert!(reports.len() >= 20, "{reports:?}");
    for name in reports {
        let [ours, theirs] = [ours.path(), &theirs]
            .map(|folder| fs::read_to_string(folder.join(&name)).expect("a report"));
        for (at, (ours, theirs)) in ours.lines().zip(theirs.lines()).enumerate() {
            assert_eq!(ours, theirs, "{name}:{}", at + 1);
        }
        assert!(ours == theirs, "{name}: one is longer than the other");
    }
}

/// How public scripts read the output of `xhpl`.
const READERS: [(&str, &str); 17] = [
    ("each tenth line from the first result", "awk 'NR >= 47 && NR % 10 == 7'"),
    ("the number of lines, words and bytes", "wc"),
    ("the last bytes", "tail -c 900"),
    ("the first bytes", "head -c 2500 | tail -c 1500"),
    ("the last result, from the end", "tail -n 15 | head -n 1"),
    ("words anywhere", "grep -e WC -e WR"),
    ("the number of lines with a word", "grep -ci hpl"),
    ("the lines after a head", "grep -A 2 '^T/V' | grep -v -e '^T/V' -e '^--'"),
    ("the line before a word", "grep -B 6 PASSED | grep -o '[0-9.]*e[+-][0-9]*'"),
    ("numbers with an exponent", "grep -E '[0-9]e[+-]?[0-9]+$'"),
    ("lines that end with a number", "awk '/[0-9]$/ { print NR, $4, $6 }' | tail -n +2"),
    ("verdicts", "grep -o -e PASSED -e FAILED | sort | uniq -c"),
    ("lines of seven words", "awk 'NF == 7 { print $2, $7 }'"),
    ("lines of one length", "awk 'length == 80 { print NR }'"),
    ("columns of lines that begin with a letter", "grep '^W' | cut -c 12-80"),
    ("paragraphs", "awk -v RS= 'END { print NR, $0 }'"),
    ("the largest of a column", "sort -g -k 7 | tail -n 1"),
];

/// A report with one figure in place of each measured one.
fn without_figures(report: &str) -> String {
    let line = |line: &str| {
        let (kept, figure) = match line {
            _ if line.starts_with("WC") => (38, "0.12             3.4567e+00"),
            _ if line.starts_with("HPL_pdgesv()") => (24, "Mon Nov 30 01:12:04 2026"),
            _ if line.ends_with(" PASSED") => (49, "1.23456789e-03 ...... PASSED"),
            _ => (line.len(), ""),
        };
        let width = line.len() - kept;
        format!("{}{figure:>width$}\n", &line[..kept])
    };
    report.lines().map(line).collect()
}

/// Readers get standard output, and both streams in one file, of a run in a folder whose name looks
/// like a result. Our own lines are in the JSON report.
#[test]
fn readers_of_the_reference_read_the_same() {
    let theirs = without_figures(include_str!("../golden/readers_reference.txt"));
    let bin = link("xhpl");
    let folder = bin.path().join("WRF-4");
    fs::create_dir(&folder).unwrap();
    let (n, nb) = (vec![100, 200, 301], vec![32, 64]);
    let (pmap, bcast) = (Pmap::ColumnMajor, vec![Bcast::OneRing, Bcast::OneRingM]);
    let spec = RunSpec { n, nb, pmap, bcast, grids: vec![(1, 2)], ..two_tests() };
    fs::write(folder.join("HPL.dat"), hpldat::write(&spec).unwrap()).unwrap();
    for streams in ["", "2>&1"] {
        let job = mpirun(2);
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(format!("exec \"$@\" {streams}")).arg("sh");
        shell.arg(job.get_program()).args(job.get_args()).arg(bin.path().join("xhpl"));
        shell.envs(job.get_envs().filter_map(|(name, value)| Some((name, value?))));
        shell.args(["--json", "run.json"]);
        let (code, out, err) = ended(shell.current_dir(&folder));
        assert_eq!(code, Some(0), "{out}\n{err}");
        let json = fs::read_to_string(folder.join("run.json")).unwrap();
        assert!(
            json.contains("\\n# generator: hpl ") && json.contains("\\n# rank_bytes: "),
            "{json}"
        );
        // A busy machine has warnings, which are last.
        let is_warning = |line: &str| line.starts_with("# warning: ");
        let end = out.find("\n# warning: ").filter(|_| !streams.is_empty());
        let (ours, warnings) = out.split_at(end.map_or(out.len(), |at| at + 1));
        assert!(warnings.lines().chain(err.lines()).all(is_warning), "{warnings}{err}");
        let ours = without_figures(ours);
        for (what, reader) in READERS {
            let [ours, theirs] = [&ours, &theirs].map(|report| {
                let file = folder.join("report");
                fs::write(&file, report).unwrap();
                let mut shell = Command::new("sh");
                let script = format!("cat report | {reader}");
                ended(shell.args(["-c", &script]).current_dir(&folder))
            });
            assert_eq!(ours, theirs, "{what}: {reader} {streams}");
            assert!(theirs.0 == Some(0) && !theirs.1.is_empty(), "{what}: {theirs:?}");
        }
    }
}

/// Batch systems end runs that take too long so.
#[test]
fn a_terminated_run_prints_its_warnings() {
    let (folder, bin) = (folder(&RunSpec { n: vec![20_000], ..two_tests() }), link("xhpl"));
    let mut xhpl = Command::new(bin.path().join("xhpl"));
    xhpl.envs(mpirun(1).get_envs().filter_map(|(name, value)| Some((name, value?))));
    xhpl.args("--what --p 1 --q 1 --json run.json".split(' ')).current_dir(folder.path());
    let mut run = xhpl.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let json = folder.path().join("run.json");
    while !json.exists() && run.try_wait().unwrap().is_none() {
        thread::sleep(Duration::from_millis(10));
    }
    kill(Pid::from_raw(run.id().cast_signed()), Signal::SIGTERM).unwrap();
    let err = String::from_utf8(run.wait_with_output().unwrap().stderr).unwrap();
    assert!(err.contains("# warning: ignored, as HPL ignores its arguments: --what"), "{err}");
}

/// In a separate namespace, where nothing else leaves any shared memory.
#[test]
fn no_shared_memory_is_left() {
    let spec = RunSpec { nb: vec![32], grids: vec![(1, 2)], ..two_tests() };
    let (folder, bin) = (folder(&spec), link("xhpl"));
    let Some(words) = namespaces(&["--ipc", "--mount"]) else { return };
    let job = mpirun(2);
    let mut command = Command::new(words[0]);
    command
        .args(&words[1..])
        .args(["sh", "-c"])
        .arg("mount -t tmpfs none /dev/shm || exit; \"$@\"; echo $?; ipcs -m; ls /dev/shm");
    command.arg("sh").arg(job.get_program()).args(job.get_args()).arg(bin.path().join("xhpl"));
    command.envs(job.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let (code, out, err) = ended(command.current_dir(folder.path()));
    assert_eq!(code, Some(0), "{err}");
    let (report, left) = out.split_once("\nEnd of Tests.\n").expect(&out);
    assert!(report.contains("tests completed and passed"), "{out}");
    let left: Vec<&str> = left.lines().skip(1).filter(|line| !line.is_empty()).collect();
    let [code, title, head] = left[..] else { panic!("{out}") };
    assert_eq!(code, "0", "{out}");
    assert!(title.contains("Shared Memory Segments") && head.starts_with("key"), "{out}");
}

#[test]
fn skt_hpl_itself_has_the_lines_too_and_its_own_exit_codes() {
    let spec = RunSpec { threshold: 1e-30, nb: vec![32], grids: vec![(1, 2)], ..two_tests() };
    let folder = folder(&spec);
    let mut job = mpirun(2);
    as_installed(&mut job)
        .arg(env!("CARGO_BIN_EXE_skt-hpl"))
        .args(["--ft", "none", "--progress-report", "--detailed-timing", "--progress", "off"])
        .args(["--out", "stderr"]);
    let (code, out, err) = ended(job.current_dir(folder.path()));
    assert_eq!(code, Some(1), "{out}\n{err}");
    // As in the reference, progress goes to standard output wherever the report goes.
    assert_eq!(out.lines().filter(|line| line.starts_with("Column=")).count(), 9, "{out}");
    assert_eq!(out.lines().count(), 9, "{out}");
    assert!(err.contains("\n--VVV--VVV") && !err.contains("as in the reference"), "{err}");
}
