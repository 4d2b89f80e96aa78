//! Reads the text that HPL 2.3, and programs that print as it does, write about a run.

use std::path::Path;

use serde_json::json;
use skt_config::{MxpMatrix, TestSpec};

use super::reader::{NO_REPORT, Program, RunReport, Test};

/// The columns that are read, by their names in the head of a table. AMD's program has one more,
/// SWP, before them, others have more after them.
const COLUMNS: [&str; 6] = ["N", "NB", "P", "Q", "Time", "Gflops"];
/// How a line with a scaled residual begins.
const RESIDUAL: &str = "||Ax-b||_oo";
/// What follows the times of HPL's text, which have no zone.
pub(crate) const LOCAL_TIME: &str = " (local time)";

/// Reads the text of the file `path`: a report of skt-hpl, or the text report of HPL.
pub(crate) fn parse_any_from(path: &Path, text: &str) -> Result<RunReport, String> {
    if text.trim_start().starts_with('{') {
        return RunReport::parse_from(path, text);
    }
    let report = parse(text).filter(|report| !report.tests.is_empty());
    report.ok_or_else(|| {
        format!(
            "'{}' is {NO_REPORT}, and has no result of HPL, a line such as `WR11C2R4  6000  128  2  \
             4  7.46  1.9311e+01`",
            path.display()
        )
    })
}

/// A line without the tag that a launcher puts before it: `[1,0]<stdout>:`, `[0] `, `0: `.
fn untagged(line: &str) -> &str {
    let rest = line.trim_start_matches(|c: char| c.is_ascii_digit() || "[,]: ".contains(c));
    rest.strip_prefix("<stdout>:").map_or(rest, |rest| rest.trim_start_matches(' '))
}

/// `None` if the text is none of HPL. Of a run that was killed it has the tests that were done.
fn parse(text: &str) -> Option<RunReport> {
    let mut report = RunReport { text_report: text.to_owned(), ..RunReport::default() };
    let (mut is_hpl, mut threads, mut is_unchecked) = (false, 0, false);
    // Those of a result without a head.
    let mut places = [1, 2, 3, 4, 5, 6];
    for line in text.lines().map(untagged) {
        if let Some(test) = result(line, places, threads) {
            is_hpl = true;
            report.tests.push(test);
        } else if let Some(residual) = line.strip_prefix(RESIDUAL) {
            add_residual(&mut report, residual);
        } else if let Some((name, value)) = comment(line) {
            match name {
                "threads" => threads = first_number(value).unwrap_or(0),
                name => add_environment(&mut report, name, value),
            }
        } else if let Some((_, after)) = line.split_once("residuals are less than") {
            is_unchecked = after.trim().parse::<f64>().is_ok_and(|threshold| threshold <= 0.0);
        } else if line.starts_with("HPLinpack ") || line.starts_with("HPL-MxP ") {
            is_hpl = true;
            report.program = program(line);
        } else if line.starts_with("HPL_pdgesv() start time") {
            if let Some(test) = report.tests.last_mut() {
                test.start = line.split_once("time").map(|(_, time)| local(time));
            }
        } else if line.starts_with("HPL_pdgesv() end time") {
            if let Some(test) = report.tests.last_mut() {
                test.end = line.split_once("time").map(|(_, time)| local(time));
            }
        } else if let Some(of_head) = column_places(line) {
            (is_hpl, places) = (true, of_head);
        } else {
            report.finished |= line.starts_with("End of Tests.");
        }
    }
    for test in report.tests.iter_mut().filter(|test| test.status.is_empty()) {
        let status = if is_unchecked { "not-checked" } else { "unknown" };
        test.status = status.to_owned();
    }
    is_hpl.then_some(report)
}

/// The places of the [`COLUMNS`] in the head of a table; `None` if the line is none.
fn column_places(line: &str) -> Option<[usize; 6]> {
    let words: Vec<&str> = line.strip_prefix("T/V ")?.split_whitespace().collect();
    let places = COLUMNS.map(|name| words.iter().position(|word| *word == name));
    places.iter().all(Option::is_some).then(|| places.map(|place| 1 + place.unwrap_or(0)))
}

/// From a line such as `WR11C2R4 35 4 1 1 0.00 2.5368e-01`, which other programs continue.
fn result(line: &str, places: [usize; 6], threads: usize) -> Option<Test> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let values = places.map(|place| words.get(place).copied().unwrap_or(""));
    let (variant, [n, nb, p, q, seconds, gflops]) = (*words.first()?, values);
    // `W`, the mapping of ranks to the grid, and numbers.
    let is_variant = matches!(variant.as_bytes(), [b'W', b'R' | b'C', rest @ ..]
        if rest.iter().any(u8::is_ascii_digit));
    let quantity = |text: &str| text.parse::<f64>().ok().filter(|it| it.is_finite() && *it >= 0.0);
    let number = |text: &str| text.parse().ok();
    // Values that are not numbers, as of a singular matrix, are read as none.
    let _: (f64, f64) = (seconds.parse().ok()?, gflops.parse().ok()?);
    let is_mxp = variant.ends_with("MXP");
    let parameters = TestSpec {
        n: number(n)?,
        nb: number(nb)?,
        p: number(p)?,
        q: number(q)?,
        threads,
        // The text does not name it.
        mxp: is_mxp.then_some(MxpMatrix::FasiHigham),
        ..TestSpec::default()
    };
    is_variant.then(|| Test {
        variant: variant.to_owned(),
        parameters,
        time_seconds: quantity(seconds),
        gflops: quantity(gflops),
        ..Test::default()
    })
}

/// Adds the residual of the last test: `/(eps*...)=   1.42430332e-03 ...... PASSED`. HPL 1.0 has
/// three, ` / ( eps * ||A||_1  * N ) =   0.0163021 ...... PASSED`, which are scaled otherwise.
fn add_residual(report: &mut RunReport, line: &str) {
    let words = line.split_once('=').map_or("", |(_, after)| after);
    let words: Vec<&str> = words.split_whitespace().collect();
    let (Some(test), [value, _, outcome]) = (report.tests.last_mut(), &words[..]) else {
        return;
    };
    if line.starts_with("/(") {
        let residual = value.parse().ok().filter(|value: &f64| *value >= 0.0);
        test.rest.insert("scaled_residual".to_owned(), json!(residual));
    }
    if test.status != "failed" {
        test.status = outcome.to_ascii_lowercase();
    }
}

/// The name and the value of a line of skt-hpl's head: `# threads  : 1 a rank`.
fn comment(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.strip_prefix("# ")?.split_once(':')?;
    Some((name.trim(), value.trim()))
}

fn add_environment(report: &mut RunReport, name: &str, value: &str) {
    let environment = &mut report.environment;
    match name {
        "processor" => environment["host"]["cpu_model"] = value.split(", ").next().into(),
        "kernel" => environment["host"]["kernel"] = value.into(),
        "mpi" => environment["mpi_library"] = value.into(),
        "blas" => environment["blas"] = json!({ "library": value }),
        _ => {}
    }
}

/// The program of a banner: `HPLinpack 2.3  --  High-Performance ...  --  by skt-hpl 0.1.0`.
fn program(line: &str) -> Option<Program> {
    let words = line.split_once(" by ").map_or(line, |(_, by)| by);
    let mut words = words.split_whitespace();
    let (name, version) = (words.next()?.to_owned(), words.next()?.to_owned());
    Some(Program { name, version, compiler: None })
}

/// A time of C's `ctime`, whose zone the text does not have.
fn local(time: &str) -> String {
    format!("{}{LOCAL_TIME}", time.trim())
}

fn first_number(text: &str) -> Option<usize> {
    text.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESULT: &str = "\
T/V                N    NB     P     Q               Time                 Gflops
--------------------------------------------------------------------------------
WR11C2R4        6000   128     2     4               7.46             1.9311e+01
HPL_pdgesv() start time Sun Nov 29 05:31:09 2026

HPL_pdgesv() end time   Sun Nov 29 05:31:17 2026

--------------------------------------------------------------------------------
||Ax-b||_oo/(eps*(||A||_oo*||x||_oo+||b||_oo)*N)=   1.42430332e-03 ...... PASSED
";

    #[test]
    fn a_test_has_what_its_lines_have() {
        let report = parse(RESULT).unwrap();
        let [test] = &report.tests[..] else { panic!("{report:?}") };
        let p = &test.parameters;
        assert_eq!((p.n, p.nb, p.p, p.q, p.threads), (6000, 128, 2, 4, 0));
        assert_eq!((test.time_seconds, test.gflops), (Some(7.46), Some(19.311)));
        assert_eq!((test.scaled_residual(), test.status.as_str()), (Some(1.42430332e-3), "passed"));
        assert_eq!(test.start.as_deref(), Some("Sun Nov 29 05:31:09 2026 (local time)"));
        assert!(test.end.is_some() && !report.finished && test.is_of_hpl());
    }

    const PLACES: [usize; 6] = [1, 2, 3, 4, 5, 6];

    /// The heads are those of HPL, of NVIDIA and of AMD.
    #[test]
    fn columns_are_found_by_the_head() {
        for (head, result) in [
            ("T/V  N  NB  P  Q  Time  Gflops", "WR11C2R4 6000 128 2 4 7.46 1.9e+01"),
            (
                "T/V  N  NB  P  Q  Time  Gflops (   per GPU)",
                "WC0 6000 128 2 4 7.46 1.9e+01 ( 9.5e+00)",
            ),
            (
                "T/V         SWP           N    NB     P     Q            Time             Gflops",
                "WRC06R3C38c 211        6000   128     2     4            7.46         1.9000e+01",
            ),
        ] {
            let report = parse(&format!("{head}\n-----\n{result}\n")).unwrap();
            let [test] = &report.tests[..] else { panic!("{head}: {report:?}") };
            let p = &test.parameters;
            assert_eq!((p.n, p.nb, p.p, p.q), (6000, 128, 2, 4), "{head}");
            assert_eq!((test.time_seconds, test.gflops), (Some(7.46), Some(19.0)), "{head}");
        }
        assert_eq!(column_places("T/V    : Wall time / encoded variant."), None);
    }

    #[test]
    fn lines_of_other_forms_are_no_results() {
        for line in [
            "WR11C2R4 6000 128 2 4 TIME GFLOPS",
            "Words 1 2 3 4 5 6",
            "WR11C2R4 6000 128 2 4 7.46",
            "WR11C2R4 -1 128 2 4 7.46 19.3",
        ] {
            assert_eq!(result(line, PLACES, 1), None, "{line}");
        }
        // HPL of NVIDIA adds the rate of each of its accelerators.
        let more =
            result("WC0C2R4 90112 1024 1 1 33.14 1.472e+04 ( 1.472e+04)", PLACES, 1).unwrap();
        assert_eq!(more.gflops, Some(14720.0));
        let broken = result("WR11C2R4 6000 128 2 4 7.46 nan", PLACES, 1).unwrap();
        assert_eq!(broken.gflops, None);
        assert!(!result("WR11MXP 6000 128 2 4 7.46 1.0", PLACES, 1).unwrap().is_of_hpl());
        assert_eq!(parse("no text of HPL\n"), None);
    }

    #[test]
    fn tags_of_launchers_are_left_out() {
        let end = |text: &str| parse(text).unwrap().tests[0].end.clone().unwrap();
        for tag in ["[1,0]<stdout>:", "[1,0]<stdout>: ", "[0] ", " 0: "] {
            let tagged: String = RESULT.lines().map(|line| format!("{tag}{line}\n")).collect();
            let report = parse(&tagged).unwrap();
            assert_eq!(report.tests, parse(RESULT).unwrap().tests, "{tag}");
            assert_eq!(end(&tagged), end(RESULT));
        }
    }

    #[test]
    fn all_residuals_of_hpl_1_0_count() {
        let (result, _) = RESULT.split_once("||Ax-b||").unwrap();
        let line = |divisor: &str, outcome: &str| {
            format!("||Ax-b||_oo / ( eps * {divisor} ) =        0.0163021 ...... {outcome}\n")
        };
        for (second, status) in [("PASSED", "passed"), ("FAILED", "failed")] {
            let text = [
                result.to_owned(),
                line("||A||_1  * N       ", "PASSED"),
                line("||A||_1  * ||x||_1 ", second),
                line("||A||_oo * ||x||_oo", "PASSED"),
                "||Ax-b||_oo  . . . . . . . . . . . . . . . . . =           0.000000\n".to_owned(),
            ];
            let test = &parse(&text.concat()).unwrap().tests[0];
            assert_eq!((test.status.as_str(), test.scaled_residual()), (status, None));
        }
    }

    #[test]
    fn a_killed_run_has_the_tests_that_were_done() {
        let cut = RESULT.find("||Ax-b||").unwrap();
        let report = parse(&[RESULT, &RESULT[..cut]].concat()).unwrap();
        let statuses: Vec<&str> = report.tests.iter().map(|test| test.status.as_str()).collect();
        assert_eq!(statuses, ["passed", "unknown"]);
        assert_eq!(report.completed().count(), 1);
        let unchecked = "- Computational tests pass if scaled residuals are less than     0.0\n";
        let report = parse(&[unchecked, &RESULT[..cut], "End of Tests.\n"].concat()).unwrap();
        assert_eq!((report.tests[0].status.as_str(), report.finished), ("not-checked", true));
    }
}
