//! The built program under a real `mpirun`: results, reports, exit codes, and how it ends when
//! something is wrong.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::large_machine;
use crate::mpirun::{self, Ended, mpi_program};
use crate::report_common::default_run;
use crate::report_schema::Schema;
use serde_json::Value;
use skt_config::{Bcast, RunSpec, hpldat};
use skt_health::environment::kernel::is_old;
use skt_host::panel_edges::route;
use skt_hpl::report::reader::RunReport;
use tempfile::TempDir;

/// A job with bad input must be over within this time, on all ranks.
const PROMPT: Duration = Duration::from_secs(60);

impl Ended {
    /// Asserts the counts of the summary: passed, failed, skipped.
    #[track_caller]
    fn expect_counts(&self, counts: [usize; 3]) {
        let [passed, failed, skipped] = counts;
        let total = passed + failed + skipped;
        let words = format!(
            "Finished {total:6} tests with the following results:\n         \
             {passed:6} tests completed and passed residual checks,\n         \
             {failed:6} tests completed and failed residual checks,\n         \
             {skipped:6} tests skipped because of illegal input values.\n"
        );
        assert!(self.out.contains(&words), "no\n{words}in\n{}", self.out);
    }

    /// Asserts a refusal: exit code 2, promptly, nothing on standard output, and a message that
    /// appears once, with only progress and warnings before it.
    #[track_caller]
    fn expect_refusal(self, message: &str) {
        let ended = self.expect(2);
        assert_eq!(ended.out, "");
        let before = |line: &&str| line.starts_with("# ") || line.starts_with("warning: ");
        let first = ended.err.lines().find(|line| !before(line)).unwrap_or("");
        assert!(first.starts_with("error: ") && first.contains(message), "{}", ended.err);
        assert_eq!(ended.err.matches("error: ").count(), 1, "{}", ended.err);
        assert!(ended.took < PROMPT, "took {:?}", ended.took);
    }
}

/// Runs the program on `ranks` ranks, however few cores there are.
fn mpirun(folder: &Path, ranks: usize, flags: &[&str]) -> Ended {
    run(folder, mpirun::mpirun(ranks), flags)
}

/// Runs the program under this `mpirun`.
fn run(folder: &Path, mut command: Command, flags: &[&str]) -> Ended {
    // By default a run continues from the data of another run of the same configuration: these must
    // be runs of their own, also next to another test run.
    static JOBS: AtomicUsize = AtomicUsize::new(0);
    let job = JOBS.fetch_add(1, Ordering::Relaxed);
    let run_id = format!("mpi_run-{}-{job}", std::process::id());
    command.arg(env!("CARGO_BIN_EXE_skt-hpl")).args(flags).args(["--run-id", &run_id]);
    mpirun::run(command.current_dir(folder))
}

fn folder() -> TempDir {
    TempDir::new().unwrap()
}

/// Runs the program in an empty folder without progress, with flags given as one line.
fn run_flags(ranks: usize, flags: &str) -> Ended {
    let flags: Vec<&str> = flags.split_whitespace().chain(["--progress", "off"]).collect();
    mpirun(folder().path(), ranks, &flags)
}

fn write_dat(folder: &Path, spec: &RunSpec) {
    fs::write(folder.join("HPL.dat"), hpldat::write(spec).unwrap()).unwrap();
}

/// The first words of the result lines.
fn variants(report: &str) -> Vec<&str> {
    let lines = report.lines().filter(|line| line.starts_with("WR") || line.starts_with("WC"));
    lines.map(|line| line.split_whitespace().next().unwrap()).collect()
}

#[test]
fn the_default_hpl_dat_of_the_reference_passes() {
    let folder = folder();
    let spec = default_run();
    assert_eq!(spec.tests().len(), 864);
    write_dat(folder.path(), &spec);
    let ended = mpirun(folder.path(), 4, &[]).expect(0);
    ended.expect_counts([864, 0, 0]);
    assert_eq!(ended.out.matches("...... PASSED\n").count(), 864);
    let variants = variants(&ended.out);
    assert_eq!(variants.len(), 864);
    // RFACT, PFACT, NBMIN, of which the last varies fastest.
    assert_eq!(variants[..3], ["WR00L2L2", "WR00L2L4", "WR00L2C2"]);
    assert_eq!(variants[863], "WR00R2R4");
    assert!(ended.err.lines().all(|line| line.starts_with('#')), "{}", ended.err);
}

/// Runs 32 ranks over TCP, where a rank needs a descriptor for each of those that it sends to,
/// with at most `limit` descriptors each.
fn run_with_descriptors(limit: usize, flags: &str) -> Ended {
    let mut command = mpirun::mpirun(32);
    command.args(["--mca", "btl", "self,tcp", "--mca", "btl_tcp_if_include", "lo"]);
    command.args(["sh", "-c", &format!("ulimit -n {limit}; exec \"$0\" \"$@\"")]);
    let flags: Vec<&str> = flags.split_whitespace().chain(["--progress", "off"]).collect();
    run(folder().path(), command, &flags)
}

#[test]
fn descriptors_suffice_without_connections_of_all_ranks_to_one() {
    for protection in ["none", "self"] {
        let flags = format!("--n 2000 --nb 64 --p 4 --q 8 --ft {protection}");
        run_with_descriptors(40, &flags).expect(0).expect_counts([1, 0, 0]);
    }
}

#[test]
fn too_few_descriptors_are_refused() {
    run_with_descriptors(22, "--n 100 --p 4 --q 8").expect_refusal("(ulimit -n)");
}

/// The codes of all broadcasts, as the value of a flag.
fn broadcasts() -> String {
    Bcast::ALL.map(|bcast| bcast.code().to_string()).join(",")
}

/// Each broadcast and each swap on each kind of grid, and small orders; the simulated ranks go
/// through all combinations.
#[test]
fn every_broadcast_and_swap_passes_on_real_ranks() {
    let all = format!("--bcast {}", broadcasts());
    for (shapes, grids, how, tests) in [
        ("--n 97 --depth 3", "--p 2,1 --q 3,6", "--transport shared", 2 * Bcast::ALL.len()),
        ("--n 150 --depth 1", "--p 2,1 --q 3,6", "--transport messages", 2 * Bcast::ALL.len()),
        ("--n 150 --depth 3", "--p 3 --q 2", "--transport messages --swap spread-roll", 6),
        (
            "--n 97 --depth 1",
            "--p 6 --q 1",
            "--transport messages --swap mix --swap-threshold 40",
            6,
        ),
        ("--n 0,1 --depth 1", "--p 3,1 --q 2,6", "--transport messages --swap binary-exchange", 4),
    ] {
        let bcast = if tests == 4 { "--bcast 3" } else { &all };
        let ended = run_flags(6, &format!("{shapes} --nb 8 {bcast} {grids} {how}")).expect(0);
        ended.expect_counts([tests, 0, 0]);
    }
}

/// Broadcasts forward panels in pieces: x has the same bits with each of them.
#[test]
fn panels_of_several_pieces_pass_on_real_ranks() {
    let (n, nb, depths) = (1300, 128, "0,1,2");
    let count = Bcast::ALL.len();
    assert!(route(Bcast::OneRing, 5).pieces(n * nb * size_of::<f64>()) > 1);
    let flags = format!("--n {n} --nb {nb} --p 1 --q 5 --depth {depths} --transport messages");
    let ended = run_flags(5, &format!("{flags} --bcast {}", broadcasts())).expect(0);
    ended.expect_counts([3 * count, 0, 0]);
    let x: Vec<&str> = ended.out.lines().filter(|line| line.starts_with("# x: ")).collect();
    assert_eq!(x.len(), 3 * count);
    assert!(x.chunks(count).all(|depth| depth.iter().all(|x| *x == depth[0])), "{x:#?}");
}

#[test]
fn ranks_beyond_the_grid_stay_idle() {
    let ended = run_flags(7, "--n 200 --nb 16 --p 2 --q 3 --pmap column").expect(0);
    ended.expect_counts([1, 0, 0]);
    assert_eq!(variants(&ended.out), ["WC11C2R4"]);
    assert!(
        ended.out.contains("\n# idle     : 1 rank(s): the largest grid takes 6\n"),
        "{}",
        ended.out
    );
    // One grid after the other, with some ranks idle in each.
    let ended = run_flags(4, "--n 100 --nb 16 --p 1,3,2 --q 1,1,2").expect(0);
    assert!(!ended.out.contains("# idle"), "{}", ended.out);
    ended.expect_counts([3, 0, 0]);
}

#[test]
fn ranks_of_several_threads_pass() {
    let ended = run_flags(2, "--n 700 --nb 32,64 --p 1,2 --q 2,1 --threads 2 --depth 0,1,2");
    let ended = ended.expect(0);
    ended.expect_counts([12, 0, 0]);
    assert!(ended.out.contains("\n# threads  : 2 a rank\n"), "{}", ended.out);
}

#[test]
fn the_second_generator_passes_and_is_named() {
    let ended = run_flags(2, "--n 300 --nb 32 --generator xoshiro").expect(0);
    ended.expect_counts([1, 0, 0]);
    assert!(ended.out.contains("\n# generator: xoshiro"), "{}", ended.out);
}

#[test]
fn a_failed_residual_exits_with_1_and_prints_the_norms() {
    let ended = run_flags(4, "--n 500 --nb 32 --p 2 --q 2 --threshold 1e-30").expect(1);
    ended.expect_counts([0, 1, 0]);
    assert_eq!(ended.out.matches("...... FAILED\n").count(), 1);
    let norm = |name: &str| {
        let mut lines =
            ended.out.lines().filter(|line| line.starts_with(name) && line.contains(". ."));
        let line = lines.next().unwrap_or_else(|| panic!("no {name} in\n{}", ended.out));
        assert_eq!(lines.next(), None);
        line.rsplit("= ").next().unwrap().trim().to_owned()
    };
    assert_eq!(norm("||A||_oo"), "136.012042");
    assert_eq!(norm("||A||_1"), "134.799854");
    assert_eq!(norm("||x||_oo"), "3.745726");
    assert_eq!(norm("||x||_1"), "490.282604");
    assert_eq!(norm("||b||_oo"), "0.499890");
    assert!(norm("||Ax-b||_oo").starts_with("0.00000"));
}

#[test]
fn a_residual_that_is_not_checked_is_no_failure() {
    let ended = run_flags(2, "--n 50 --threshold 0").expect(0);
    let words = "\n              1 tests completed without checking,\n";
    assert!(ended.out.contains(words), "{}", ended.out);
}

#[test]
fn bad_input_ends_all_ranks_promptly_with_one_message() {
    for (flags, message) in [
        ("--n 100 --p 2 --q 3", "needs 6 ranks, this job has 4"),
        ("--n 100 --nosuchflag", "--nosuchflag"),
        // The folder has no HPL.dat, and no flag gives N.
        ("", "HPL.dat"),
        ("--n 10 --json /nonexistent/folder/x.json", "/nonexistent/folder"),
        ("--n 10 --inject 4@column:100", "there is no rank 4, this job has ranks 0 to 3"),
        (
            "--n 10 --ft abft --p 1 --q 4",
            "the 1 x 4 grid with 1 checksum column needs 5 ranks, this job has 4",
        ),
        ("--n 10 --ft abft --on-loss recover --p 1 --q 2", "--on-loss recover: "),
        ("--n 10 --ft abft --on-loss replace --p 1 --q 3", "--on-loss replace: "),
        (
            "--n 10 --ft abft --on-loss recover --p 1 --q 2 --resume never",
            "--on-loss: continues from memory, which --resume never does not",
        ),
        (
            "--n 10 --ft abft --on-loss replace --p 1 --q 1 --parities 2",
            "--on-loss: replace takes one checksum column (--parities 1) and one test",
        ),
        (
            "--n 10 --ft abft --on-loss replace --p 1 --q 1 --nb 2,4",
            "--on-loss: replace takes one checksum column (--parities 1) and one test",
        ),
    ] {
        run_flags(4, flags).expect_refusal(message);
    }
    // A user tries a command with a small N, at which no checkpoint is due, first.
    let ended = run_flags(4, "--n 10 --level local:/nowhere").expect(2);
    assert!(ended.err.contains("nowhere is not there: create it on each node"), "{}", ended.err);
}

/// A submission is packed from it: its text is what was printed, its configuration what was read.
#[test]
fn a_json_report_has_what_a_run_read_and_printed() {
    let folder = folder();
    let spec = RunSpec { n: vec![100, 150], nb: vec![16], grids: vec![(1, 2)], ..default_run() };
    write_dat(folder.path(), &spec);
    let ended = mpirun(folder.path(), 2, &["--json", "run.json"]).expect(0);
    let text = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    let report = RunReport::parse(&text("run.json")).unwrap();
    assert_eq!(report.text_report, ended.out);
    assert_eq!(report.configuration.unwrap().text, text("HPL.dat"));
    assert!(report.command_line.join(" ").contains(" --json run.json --run-id mpi_run-"));
    assert!(report.environment["mpi_library"].is_string());
}

#[test]
fn a_bad_line_of_hpl_dat_is_named() {
    let folder = folder();
    write_dat(folder.path(), &default_run());
    let file = folder.path().join("HPL.dat");
    let text = fs::read_to_string(&file).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    lines[7] = "1 two 3 4 NBs";
    fs::write(&file, lines.join("\n")).unwrap();
    mpirun(folder.path(), 4, &[]).expect_refusal("HPL.dat:8");
    fs::write(&file, lines[..9].join("\n")).unwrap();
    lines[7] = "1 2 3 4 NBs";
    fs::write(&file, lines[..9].join("\n")).unwrap();
    mpirun(folder.path(), 4, &[]).expect_refusal("HPL.dat");
}

#[test]
fn a_matrix_too_large_is_refused_with_the_largest_that_fits() {
    let ended = run_flags(2, "--n 4000000");
    let largest = ended.err.split("The largest N that fits is ").nth(1).map(str::to_owned);
    ended.expect_refusal("N = 4000000 does not fit");
    let largest: usize = largest.unwrap().split('.').next().unwrap().parse().unwrap();
    assert!((1000..4_000_000).contains(&largest), "{largest}");
}

#[test]
fn json_satisfies_the_published_schema() {
    let folder = folder();
    let flags = "--n 100,101 --nb 16 --p 2 --q 2 --json r.json --progress off";
    let flags: Vec<&str> = flags.split(' ').collect();
    mpirun(folder.path(), 4, &flags).expect(0).expect_counts([2, 0, 0]);
    let text = fs::read_to_string(folder.path().join("r.json")).unwrap();
    let report: Value = serde_json::from_str(&text).unwrap();
    Schema::new(include_str!("../../docs/report.schema.json")).check(&report);
    let tests = report["tests"].as_array().unwrap();
    assert_eq!(tests.len(), 2);
    assert_eq!(tests[1]["parameters"]["n"], 101);
}

/// A meter of 100 W: the joules are the seconds times 100, also with checksums in the elimination.
#[test]
fn the_energy_of_a_run_is_that_of_the_meter() {
    let meter = "while date '+%s.%N 100'; do sleep 0.2; done";
    for (ranks, method) in [(2, &[][..]), (3, &["--ft", "abft", "--q", "2"])] {
        let folder = folder();
        let flags =
            ["--n", "2000", "--nb", "128", "--p", "1", "--json", "r.json", "--progress", "off"];
        let of_power = ["--power-command", meter, "--power-level", "1"];
        let flags = [&flags[..], &of_power, method].concat();
        let mut slow = mpirun::mpirun(ranks);
        let planted = large_machine::slow(&mut slow, &[("ALL_GFLOPS", "1")]);
        let ended = run(folder.path(), slow, &flags).expect(0);
        planted.assert();
        let text = fs::read_to_string(folder.path().join("r.json")).unwrap();
        let report: Value = serde_json::from_str(&text).unwrap();
        Schema::new(include_str!("../../docs/report.schema.json")).check(&report);
        let test = &report["tests"][0];
        let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{value} in {text}"));
        let seconds = number(&test["time_seconds"]);
        assert!(seconds > 1.0, "too short to be measured: {seconds}");
        let power = &test["power"][0];
        assert_eq!((&power["source"], &power["level"]), (&"meter".into(), &1.into()));
        assert!((number(&power["joules"]) - 100.0 * seconds).abs() < 2.0 * seconds, "{power}");
        let per_watt = number(&power["gflops_per_watt"]);
        assert!((per_watt - number(&test["gflops"]) / 100.0).abs() < 1e-3 * per_watt, "{power}");
        assert!(!power["watts"].as_array().unwrap().is_empty());
        let line = ended.out.lines().find(|line| line.starts_with("# power: "));
        let line = line.unwrap_or_else(|| panic!("{}", ended.out));
        assert!(line.contains("gflops_per_watt ") && line.contains("source meter"), "{line}");
    }
}

#[test]
fn a_silent_meter_is_refused_at_the_start() {
    let folder = folder();
    for (meter, why) in [
        ("echo time watts", "--power-command has ended without a reading"),
        ("date '+%s,250 412,5'; sleep 60", "--power-command, line 1, column "),
    ] {
        let flags = ["--n", "100", "--power-command", meter, "--progress", "off"];
        mpirun(folder.path(), 2, &flags).expect_refusal(why);
    }
}

#[test]
fn the_report_goes_to_the_device_of_hpl_dat() {
    let folder = folder();
    let output = skt_config::Output::File("HPL.out".into());
    write_dat(folder.path(), &RunSpec { output, n: vec![64], ..default_run() });
    let ended = mpirun(folder.path(), 4, &["--nb", "8", "--progress", "off"]).expect(0);
    assert_eq!((ended.out.as_str(), ended.err.as_str()), ("", ""));
    let out = fs::read_to_string(folder.path().join("HPL.out")).unwrap();
    Ended { out, ..ended }.expect_counts([3 * 9 * 2, 0, 0]);
}

/// OpenBLAS takes such a kernel for a processor that is newer than OpenBLAS itself.
#[test]
fn no_kernel_of_a_processor_before_avx2_is_used() {
    let folder = folder();
    let flags = ["--n", "64", "--nb", "8", "--json", "r.json", "--progress", "off"];
    mpirun(folder.path(), 1, &flags).expect(0);
    let text = fs::read_to_string(folder.path().join("r.json")).unwrap();
    let report: Value = serde_json::from_str(&text).unwrap();
    let (host, blas) = (&report["environment"]["host"], &report["environment"]["blas"]);
    if host["has_avx2"] == true && blas["library"] == "OpenBLAS" {
        assert!(!is_old(blas["kernel"].as_str().unwrap()), "{blas}");
    }
}

#[test]
fn verbose_reports_the_values_in_use() {
    for (flags, lines) in [("", 0), ("--verbose", 1)] {
        let ended = run_flags(2, &format!("--n 100 --nb 16 {flags}")).expect(0);
        for line in
            ["# tuning   : product_row_grain = 48 rows", "# tuning   : looks_a_probe = 16 looks"]
        {
            assert_eq!(ended.out.lines().filter(|&is| is == line).count(), lines, "{}", ended.out);
        }
    }
}

#[test]
fn progress_is_on_standard_error_alone() {
    let folder = folder();
    let flags = ["--n", "2500", "--nb", "64", "--progress", "plain"];
    let ended = mpirun(folder.path(), 2, &flags).expect(0);
    assert!(ended.err.contains("# N=2500: factoring"), "{}", ended.err);
    assert!(!ended.out.contains("factoring"), "{}", ended.out);
}

#[test]
fn commands_printed_by_init_and_plan_run_unchanged() {
    let folder = TempDir::with_prefix("a folder ").unwrap();
    let sh = |line: &str| {
        let mut shell = mpi_program("sh");
        // As in a shell in which root may not run MPI.
        shell.env_remove("OMPI_ALLOW_RUN_AS_ROOT").env_remove("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM");
        shell.args(["-c", line]).current_dir(folder.path()).stdin(Stdio::null());
        let ended = shell.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(ended.status.success(), "{line}: {}{}", text(&ended.stdout), text(&ended.stderr));
        (text(&ended.stdout), text(&ended.stderr))
    };
    let program = env!("CARGO_BIN_EXE_skt-hpl");
    for planned in [
        "init --ranks 1 --memory-gib 0.002",
        "init --ranks 1 --threads 2 --memory-gib 0.002 --force",
        "init --ranks 1 --memory-gib 0.002 --out 'with a blank.toml'",
        "plan --cores-per-node 1 --memory-gib 0.02 --gflops-per-core 10 --copy-gbs 1 --out plan.dat",
    ] {
        let (_, printed) = sh(&format!("'{program}' {planned}"));
        let printed = printed.lines().find(|line| line.starts_with("  mpirun ")).expect(&printed);
        let (report, _) = sh(printed);
        assert!(report.contains("PASSED"), "{printed}: {report}");
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        // Other tests may be pinned to the cores.
        let is_pinned = report.contains("# pinning  : each thread to its own core")
            || report.contains("others are in use by");
        assert!(is_pinned || cores < 2 || !planned.contains("--threads 2"), "{printed}: {report}");
    }
}
