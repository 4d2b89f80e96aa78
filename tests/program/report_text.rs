//! The report's text against whole golden files, and against what the reference printed for the
//! same parameters.

use crate::golden::assert_golden;
use crate::report_common::{
    END, PASSED_NORMS, START, default_run, mxp_record, mxp_run, other_run, record, record_with,
    small_run,
};
use skt_config::{GemmPrecision, MxpMatrix, Output, RunSpec};
use skt_host::clock::ctime;
use skt_hpl::report::reader::variant_name;
use skt_hpl::report::text::{self, TextOptions};
use skt_hpl::report::{TextReport, phases};
use skt_run::record::{Counts, Outcome, TestRecord};

fn write(
    spec: &RunSpec,
    records: &[TestRecord],
    dgemm: Option<f64>,
    notes: &[&str],
) -> (String, Counts) {
    let mut out = Vec::new();
    let notes = notes.iter().map(|note| (*note).to_string()).collect();
    let blas = "X 1".to_owned();
    let options =
        TextOptions { dgemm_gflops_per_core: dgemm, blas, notes, ..TextOptions::default() };
    let mut report = TextReport::new(&mut out, spec, options);
    report.header().unwrap();
    for record in records {
        report.test(record).unwrap();
    }
    let counts = report.summary().unwrap();
    (String::from_utf8(out).unwrap(), counts)
}

/// A test that stopped at a bad pivot.
fn broken() -> TestRecord {
    let outcome = Outcome::Broke { column: 17, pivot: "0".to_string() };
    record_with(small_run().tests().remove(0), outcome)
}

#[track_caller]
fn assert_same(got: &str, golden: &str) {
    let figures = phases::table(&broken(), None).join("\n");
    let (start, end) = (ctime(START), ctime(END));
    let version = concat!("skt-hpl ", env!("CARGO_PKG_VERSION"));
    let names = [
        ("{FIGURES}", &*figures),
        ("{START}", &*start),
        ("{END}", &*end),
        ("skt-hpl {VERSION}", version),
    ];
    assert_golden(golden, got, &names);
}

/// The lines that the reference would have printed.
fn without_ours(text: &str) -> String {
    text.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect()
}

#[test]
fn two_tests_passed_and_failed() {
    let spec = small_run();
    let tests = spec.tests();
    let failed = Outcome::Failed { scaled_residual: 1234.5, norms: PASSED_NORMS };
    let (text, counts) = write(
        &spec,
        &[record(tests[0].clone()), record_with(tests[1].clone(), failed)],
        Some(110.5),
        &["host: node1 (2 cores)", "two\nlines"],
    );
    assert_eq!(counts, Counts { passed: 1, failed: 1, skipped: 0 });
    assert_same(&text, "two_tests.txt");
}

#[test]
fn broke_and_skipped() {
    let spec = small_run();
    let tests = spec.tests();
    let skipped = Outcome::Skipped { reason: "not enough\nmemory.".to_string() };
    let records = [broken(), record_with(tests[1].clone(), skipped)];
    let (text, counts) = write(&spec, &records, Some(110.5), &[]);
    assert_eq!(counts, Counts { passed: 0, failed: 1, skipped: 1 });
    let tests = &text[text.find("T/V         ").unwrap()..];
    assert_same(tests, "broke_and_skipped.txt");
    for solved in ["# efficiency:", "# x:", "# power:"] {
        assert!(!tests.contains(solved), "{solved} without a solution");
    }
}

/// The first test passes after classic refinement; the second fails after GMRES.
#[test]
fn two_tests_of_hpl_mxp() {
    let spec = mxp_run(MxpMatrix::Scaled);
    let tests = spec.tests();
    let passed = mxp_record(tests[0].clone(), &[3.25e4, 1.5, 2.5e-2], 0);
    let mut failed = mxp_record(tests[1].clone(), &[3.25e8, 4.5e8, 2.5e3, 1.25e3], 2);
    failed.outcome = Outcome::Failed { scaled_residual: 1.25e3, norms: PASSED_NORMS };
    let (text, counts) = write(&spec, &[passed, failed], Some(110.5), &["host: node1 (2 cores)"]);
    assert_eq!(counts, Counts { passed: 1, failed: 1, skipped: 0 });
    assert_same(&text, "mxp_two_tests.txt");
}

#[test]
fn a_test_of_hpl_mxp_that_broke_names_matrix_and_column() {
    for (matrix, other) in [(MxpMatrix::FasiHigham, "scaled"), (MxpMatrix::Dominant, "fasi-higham")]
    {
        let spec = mxp_run(matrix);
        let outcome = Outcome::Broke { column: 1700, pivot: "1.2e-39".to_string() };
        let broke = record_with(spec.tests().remove(0), outcome);
        let (text, counts) = write(&spec, &[broke], Some(110.5), &[]);
        assert_eq!(counts, Counts { passed: 0, failed: 1, skipped: 0 });
        let note = format!("the pivot of column 1700 (from 0) of the matrix {matrix} is 1.2e-39");
        assert!(text.contains(&note), "{text}");
        assert!(text.contains(&format!("try --matrix {other}, a smaller N or another NB")));
        assert!(!text.contains("PASSED") && text.contains("nan ...... FAILED"), "{text}");
        for solved in ["# speed:", "# x:", "# mxp:"] {
            assert!(!text.contains(solved), "{solved} without a solution");
        }
    }
}

/// The lines of the golden file of single precision that rounded operands change.
#[test]
fn rounded_operands_are_named_wherever_they_count() {
    for (gemm, note) in [
        (GemmPrecision::Bf16, "bf16 (L2 and U rounded to bf16, sums in single precision)"),
        (
            GemmPrecision::EmulatedBf16,
            "bf16-emulated (L2 and U rounded to bf16, sums in single precision by SGEMM: its rate \
             is that of single precision)",
        ),
    ] {
        let fp32 = mxp_run(MxpMatrix::Scaled);
        let spec = RunSpec { gemm, ..fp32.clone() };
        let text = |spec: &RunSpec| {
            let tests = spec.tests();
            let passed = mxp_record(tests[0].clone(), &[3.25e4, 1.5, 2.5e-2], 0);
            let mut failed = mxp_record(tests[1].clone(), &[3.25e8, 4.5e8, 2.5e3, 1.25e3], 2);
            failed.outcome = Outcome::Failed { scaled_residual: 1.25e3, norms: PASSED_NORMS };
            write(spec, &[passed, failed], Some(110.5), &[]).0
        };
        let (of_fp32, rounded) = (text(&fp32), text(&spec));
        let expected = of_fp32
            .replace("\nGEMM   : fp32\n", &format!("\nGEMM   : {gemm}\n"))
            .replace("\n# threads  :", &format!("\n# gemm     : {note}\n# threads  :"))
            .replace(": try --matrix", ": try --gemm fp32, --matrix");
        assert_eq!(rounded, expected);
        assert_eq!(rounded.matches("try --gemm fp32, --matrix fasi-higham, a").count(), 1);

        let outcome = Outcome::Broke { column: 1700, pivot: "1.2e-39".to_string() };
        let (text, _) = write(&spec, &[record_with(spec.tests().remove(0), outcome)], None, &[]);
        assert!(text.contains("is 1.2e-39: try --gemm fp32, --matrix fasi-higham, a"), "{text}");
        let mut failed = mxp_record(spec.tests().remove(0), &[], 0);
        failed.outcome = Outcome::Failed { scaled_residual: 1.25e3, norms: PASSED_NORMS };
        let (text, _) = write(&spec, &[failed], None, &[]);
        let hint = "step 1 of the refinement failed: try --gemm fp32, --matrix fasi-higham, a";
        assert!(text.contains(hint), "{text}");
    }
}

/// A wrong number that the refinement does not notice is not blamed on the matrix.
#[test]
fn a_wrong_solution_of_hpl_mxp_is_blamed_on_a_rank() {
    let spec = mxp_run(MxpMatrix::FasiHigham);
    let mut wrong = mxp_record(spec.tests().remove(0), &[0.5], 0);
    wrong.outcome = Outcome::Failed { scaled_residual: 100.0, norms: PASSED_NORMS };
    let (text, _) = write(&spec, &[wrong], None, &[]);
    assert!(text.contains("# hint: the refinement converged, but to a wrong solution"), "{text}");
    assert!(!text.contains("abft"), "{text}");
}

#[test]
fn detailed_timing_is_that_of_hpl_alone() {
    let write = |spec: &RunSpec, record: TestRecord| {
        let mut out = Vec::new();
        let options = TextOptions { detailed_timing: true, ..TextOptions::default() };
        let mut report = TextReport::new(&mut out, spec, options);
        report.header().unwrap();
        report.test(&record).unwrap();
        report.summary().unwrap();
        String::from_utf8(out).unwrap()
    };
    let (hpl, mxp) = (small_run(), mxp_run(MxpMatrix::FasiHigham));
    let of_hpl = write(&hpl, record(hpl.tests().remove(0)));
    assert!(of_hpl.contains("wall time rfact") && !of_hpl.contains("no detailed timing"));
    let of_mxp = write(&mxp, mxp_record(mxp.tests().remove(0), &[0.5], 0));
    assert!(!of_mxp.contains("wall time") && of_mxp.contains("# no detailed timing"), "{of_mxp}");
}

#[test]
fn without_a_check_the_head_comes_once() {
    let spec = RunSpec { threshold: 0.0, ..small_run() };
    let records: Vec<TestRecord> =
        spec.tests().into_iter().map(|test| record_with(test, Outcome::NotChecked)).collect();
    let (text, counts) = write(&spec, &records, None, &[]);
    assert_eq!(counts, Counts { passed: 2, failed: 0, skipped: 0 });
    // The reference's output after its echo if the threshold is 0.0.
    let text = without_ours(&text);
    assert_same(&text[text.find("ALIGN").unwrap()..], "unchecked_reference.txt");
}

/// The echo that HPL 2.3 itself prints for its own HPL.dat.
#[test]
fn echo_of_the_default_input() {
    let (text, _) = write(&default_run(), &[], None, &[]);
    let text = without_ours(&text);
    let echo =
        &text[text.rfind("\nN      :").unwrap()..text.find("-----\n\n- The matrix").unwrap()];
    assert_same(echo.trim_end_matches('-'), "default_echo_reference.txt");
}

/// The echo that HPL 2.3 prints for lists of more than eight values and the other choices.
#[test]
fn echo_of_long_lists() {
    let (text, _) = write(&other_run(), &[], None, &[]);
    let text = without_ours(&text);
    let echo = &text[text.rfind("\nN      :").unwrap()..text.find("=====\n\nFin").unwrap()];
    assert_same(echo.trim_end_matches('='), "long_lists_reference.txt");
}

/// Our own lines must not contain what parsers take for results.
#[test]
fn own_lines_look_like_no_result() {
    let spec = small_run();
    let tests = spec.tests();
    let broke = Outcome::Broke { column: 17, pivot: "NaN".to_string() };
    let (text, _) = write(
        &spec,
        &[record(tests[0].clone()), record_with(tests[1].clone(), broke)],
        Some(55.0),
        &["a note"],
    );
    let mxp = mxp_run(MxpMatrix::Scaled);
    let mut failed = mxp_record(mxp.tests().remove(0), &[1e5, 1e6], 1);
    failed.outcome = Outcome::Failed { scaled_residual: 1e6, norms: PASSED_NORMS };
    let broke = Outcome::Broke { column: 17, pivot: "NaN".to_string() };
    let records = [failed, record_with(mxp.tests().remove(1), broke)];
    let text = text + &write(&mxp, &records, Some(55.0), &[]).0;
    let own: Vec<&str> = text.lines().filter(|line| line.starts_with('#')).collect();
    assert!(own.len() > 60, "{own:?}");
    for line in own {
        for word in ["PASSED", "FAILED", "WR", "WC", "T/V", "Gflops", "Finished", "||", "====="] {
            assert!(!line.contains(word), "{word} in {line}");
        }
    }
}

/// `grep ^W` finds what it finds in the reference: a line of the banner, and results.
#[test]
fn lines_that_begin_with_w_are_those_of_the_reference() {
    let spec = small_run();
    let tests = spec.tests();
    let failed = Outcome::Failed { scaled_residual: 1234.5, norms: PASSED_NORMS };
    let skipped = Outcome::Skipped { reason: "Why\nWho".to_string() };
    let records = [
        record(tests[0].clone()),
        record_with(tests[1].clone(), failed),
        record_with(tests[0].clone(), skipped),
    ];
    let (text, _) = write(&spec, &records, Some(110.5), &["What\nWho"]);
    let found: Vec<&str> = text.lines().filter(|line| line.starts_with('W')).collect();
    let banner = "Wording of".to_owned();
    let begins: Vec<String> =
        [banner].into_iter().chain(tests[..2].iter().map(variant_name)).collect();
    assert_eq!(found.len(), begins.len(), "{found:?}");
    assert!(found.iter().zip(begins).all(|(line, begin)| line.starts_with(&begin)), "{found:?}");
}

/// Reads a result as `awk '/^W[RC]/ {print $1, $2, $7}'` would.
#[test]
fn a_result_line_has_seven_fields() {
    let spec = other_run();
    let test = spec.tests().pop().unwrap();
    let (text, _) = write(&spec, &[record_with(test, Outcome::NotChecked)], None, &[]);
    let line = text.lines().find(|line| line.starts_with("WC")).unwrap();
    let fields: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(fields, ["WC25R2R4", "20000", "288", "1", "16", "5.00", "9.2125e+01"]);
    let spec = RunSpec { mxp: Some(MxpMatrix::FasiHigham), ..spec };
    let test = spec.tests().pop().unwrap();
    let (text, _) = write(&spec, &[record_with(test, Outcome::NotChecked)], None, &[]);
    let of_mxp = text.lines().find(|line| line.starts_with("WC")).unwrap();
    assert_eq!(of_mxp, line.replace("WC25R2R4", "WC25MXP "));
}

#[test]
fn variants_name_their_parameters() {
    let names: Vec<String> = default_run().tests().iter().take(4).map(variant_name).collect();
    assert_eq!(names, ["WR00L2L2", "WR00L2L4", "WR00L2C2", "WR00L2C4"]);
}

#[test]
fn a_report_file_that_cannot_be_created_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("missing").join("HPL.out");
    let Err(error) = text::open(&Output::File(path.clone())) else { panic!("was created") };
    let message = error.to_string();
    assert!(message.contains(path.to_str().unwrap()), "{message}");
    assert!(message.contains("No such file"), "{message}");
}

#[test]
fn a_report_file_replaces_the_old_one() {
    use std::io::Write as _;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("HPL.out");
    std::fs::write(&path, "something old and long").unwrap();
    text::open(&Output::File(path.clone())).unwrap().write_all(b"new").unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
}
