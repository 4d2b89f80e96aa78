//! What public tests, benchmark drivers and parsers of HPL look for in its report, they find in
//! ours: their regular expressions, with a name for each value that they take.

use regex::Regex;

/// A report of two tests, of which one has failed; `report_text.rs` holds reports to it.
const REPORT: &str = include_str!("../golden/two_tests.txt");
/// Such a report of HPL-MxP.
const MXP_REPORT: &str = include_str!("../golden/mxp_two_tests.txt");

/// Who reads it, and what is found once for each test.
const OF_A_TEST: &[(&str, &str)] = &[
    (
        "ReFrame: excalibur-tests",
        r"^W[R|C]\S+\s+\d+\s+\d+\s+\d+\s+\d+\s+\d[\d.]+\s+(?<gflops>\d[\d.eE+]+)",
    ),
    (
        "ReFrame: Umea's HPLBase",
        r"^\S+\s+\d+\s+\d+\s+\d+\s+\d+\s+\d+\.\d+\s+(?<gflops>\d+\.\d+e\+\d+)$",
    ),
    // These two spell a variant: here that of the report.
    ("ReFrame: Piz Daint", r"WR13R2C4(\s+\d+(.\d+)?){5}\s+(?<gflops>\S+)"),
    ("ReFrame: Pi 2", r"WR13R2C4(\s+\S+){5}\s+(?<gflops>\S+)"),
    (
        "Ramble, Benchpark",
        r".*\s+(?<n>[0-9]+)\s+(?<nb>[0-9]+)\s+(?<p>[0-9]+)\s+(?<q>[0-9]+)\s+(?<time>[0-9]+\.[0-9]+)\s+(?<gflops>[0-9].*)$",
    ),
    (
        "JUBE",
        r"^W\S+\s+(?<n>[+-]?\d+)\s+(?<nb>[+-]?\d+)\s+(?<p>[+-]?\d+)\s+(?<q>[+-]?\d+)\s+(?<time>[+-]?\d*\.?\d+(?:[eE][-+]?\d+)?)\s+(?<gflops>[+-]?\d*\.?\d+(?:[eE][-+]?\d+)?)",
    ),
    (
        "VirtualClient, which splits at spaces",
        r"WR\S+\s+(?<n>\S+)\s+(?<nb>\S+)\s+(?<p>\S+)\s+(?<q>\S+)\s+(?<time>\S+)\s+(?<gflops>\S+)$",
    ),
    ("Cbench", r"^\S+\s+\d+\s+\d+\s+\d+\s+\d+\s+(?<time>[\d.]+)\s+(?<gflops>[\d.]+e\+\d+)"),
    (
        "hpcbench",
        r"\|\|Ax\-b\|\|_oo/\(eps\*\(\|\|A\|\|_oo\*\|\|x\|\|_oo\+\|\|b\|\|_oo\)\*N\)=\s*(?<residual>\S*)\s.*\s(?<status>[A-Z]*)",
    ),
    (
        "scripts of student cluster competitions",
        r"W[RC]\d..\d.\d\s*(?<n>\d+)\s+(?<nb>\d+)\s+(?<p>\d+)\s+(?<q>\d+)\s+(?<time>[-+]?\d*\.\d+)\s+(?<gflops>[-+]?\d*\.\d+(?:[eE][-+]?\d+)?)",
    ),
    (
        "scripts of student cluster competitions",
        r"\|\|Ax-b\|\|_oo/\(eps\*\(\|\|A\|\|_oo\*\|\|x\|\|_oo\+\|\|b\|\|_oo\)\*N\)=\s+(?<residual>[+\-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+\-]?\d+)?)\s+\.{6}\s+(?<status>PASSED|FAILED)",
    ),
    ("Calcul Quebec, fields of awk", r"_oo/\S+ +(?<residual>\S+) +\S+ +(?<status>\S+)$"),
    ("superbenchmark, the second line after this one", r"T/V.*Gflops"),
    // The reader takes the second line after this one, and its seventh word.
    ("hplinpack of Intel's kits", r"T/V\s+N\s+NB\s+P\s+Q\s+Time\s+Gflops"),
    ("timestamps", r"^HPL_pdgesv\(\) start time[[:space:]]*\S+"),
    ("timestamps", r"^HPL_pdgesv\(\) end time[[:space:]]*\S+"),
];

/// Who reads it, and what is found once in a whole report.
const OF_A_RUN: &[(&str, &str)] = &[
    ("MPI Testing Tool", r"HPLinpack\s+2.3\s"),
    ("Cbench", r"matrix A is randomly generated"),
    ("superbenchmark", r"1 tests completed and passed residual checks"),
    ("Cbench", r"Ax-b.*eps.*PASSED"),
    ("EasyBuild", r"(?<passed>\d+) tests completed and passed"),
    ("EasyBuild", r"(?<failed>\d+) tests completed and failed"),
    ("ReFrame: excalibur-tests", r"End of Tests."),
    ("ReFrame: excalibur-tests", r"0 tests skipped because of illegal input values."),
    ("ReFrame: Pi 2", r"Finished"),
    ("whether a file is a report", r"High-Performance Linpack benchmark"),
];

/// The lines of the report, of a test and of all.
fn printed(report: &str, name: &str, test: usize) -> &'static str {
    match name {
        "n" if report == MXP_REPORT => ["3500", "5000"][test],
        "nb" if report == MXP_REPORT => "192",
        "residual" if report == MXP_REPORT => ["2.12344525e-02", "1.25000000e+03"][test],
        "n" => ["35", "0"][test],
        "nb" => "4",
        "p" | "q" | "passed" | "failed" => "1",
        "time" => "5.00",
        "gflops" => "9.2125e+01",
        "residual" => ["2.12344525e-02", "1.23450000e+03"][test],
        "status" => ["PASSED", "FAILED"][test],
        _ => panic!("{name}"),
    }
}

#[test]
fn public_patterns_of_hpl_find_what_they_look_for() {
    for (patterns, times) in [(OF_A_TEST, 2), (OF_A_RUN, 1)] {
        for (who, pattern) in patterns {
            assert_found(REPORT, who, pattern, times);
        }
    }
}

/// Results of HPL-MxP are read as those of HPL, unless a variant is spelt.
#[test]
fn public_patterns_of_hpl_find_results_of_hpl_mxp() {
    let spells_a_variant = |pattern: &str| pattern.contains("R2C4") || pattern.contains(r"\d..\d");
    let (spelt, others): (Vec<_>, Vec<_>) =
        OF_A_TEST.iter().partition(|(_, pattern)| spells_a_variant(pattern));
    assert_eq!(spelt.len(), 3);
    for (who, pattern) in others {
        assert_found(MXP_REPORT, who, pattern, 2);
    }
    let of_counts = OF_A_RUN.iter().filter(|(_, pattern)| pattern.contains("tests completed"));
    for (who, pattern) in of_counts {
        assert_found(MXP_REPORT, who, pattern, 1);
    }
}

/// Checks that the pattern finds as many lines of a report, and in them what was printed.
#[track_caller]
fn assert_found(report: &str, who: &str, pattern: &str, times: usize) {
    let regex = Regex::new(pattern).expect(pattern);
    let found: Vec<_> = report.lines().filter_map(|line| regex.captures(line)).collect();
    assert_eq!(found.len(), times, "{who}: {pattern}");
    for (test, captures) in found.iter().enumerate() {
        for name in regex.capture_names().flatten() {
            let want = printed(report, name, test);
            assert_eq!(&captures[name], want, "{who}: {name} of {pattern}");
        }
    }
}
