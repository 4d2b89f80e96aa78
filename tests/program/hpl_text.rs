//! `skt-hpl report` on the text of HPL.

use crate::built::Program;

/// Text of HPL 2.3, as far as it counts.
fn hpl_text(tests: &[(usize, f64, &str)]) -> String {
    let test = |(n, gflops, outcome): &(usize, f64, &str)| {
        format!(
            "{rule}\nT/V                N    NB     P     Q               Time                 \
             Gflops\n{line}\nWR11C2R4{n:>12}   128     2     4 {:>18.2}    {gflops:>19.4e}\n\
             HPL_pdgesv() start time Sun Nov 29 05:31:09 2026\n\nHPL_pdgesv() end time   Sun Nov 29 \
             05:31:17 2026\n\n{line}\n||Ax-b||_oo/(eps*(||A||_oo*||x||_oo+||b||_oo)*N)=   \
             1.42430332e-03 ...... {outcome}\n",
            2.5,
            rule = "=".repeat(80),
            line = "-".repeat(80),
        )
    };
    let tests: String = tests.iter().map(test).collect();
    format!(
        "HPLinpack 2.3  --  High-Performance Linpack benchmark  --   December 2, 2018\n{tests}End of Tests.\n"
    )
}

#[test]
fn the_text_of_hpl_is_a_report() {
    let program = Program::new();
    program.write("a.out", &hpl_text(&[(4000, 80.0, "PASSED"), (8000, 120.0, "PASSED")]));
    program.write("b.out", &hpl_text(&[(8000, 150.0, "FAILED")]));
    program.done("report a.out b.out --out page.html");
    let page = program.read("page.html");
    for part in ["1. WR11C2R4", "120.000", "1.424e-3", "Best rate by order", "failed"] {
        assert!(page.contains(part), "{part}");
    }
    program.done("report a.out --out one.html");
    assert!(program.read("one.html").contains("Best rate by order"));
    let sheet = program.printed("report a.out b.out --top500");
    let value = |field: &str| {
        let line = sheet.lines().find(|line| line.starts_with(field)).expect(field);
        line[25..].trim().to_owned()
    };
    assert_eq!((value("Rmax (Gflop/s)"), value("Nmax")), ("120.000".to_owned(), "8000".to_owned()));
    assert!(value("Cores").starts_with("____"), "HPL's text has no threads");
    let why = program.refused("report b.out --top500");
    assert!(why.contains("no run has a test that passed"), "{why}");
    // The last is an HPL.dat. Such files are left out, but not all.
    for text in ["no text of HPL\n", "", &hpl_text(&[]), "HPLinpack benchmark input file\n"] {
        program.write("c.out", text);
        let why = program.refused("report c.out");
        assert!(why.contains("'c.out' is no JSON report of skt-hpl"), "{why}");
        assert!(why.contains("has no result of HPL"), "{why}");
        let command = "report c.out a.out b.out c.out --out some.html --force";
        let output = program.command(command).output().unwrap();
        let warnings = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{warnings}");
        assert_eq!(warnings.matches("warning: left out: 'c.out' is no JSON").count(), 2);
        assert_eq!(program.read("some.html").matches("<section>").count(), 2);
    }
}

/// HPL's times are whole seconds: the test of 7.6 s ended between 05:31:17 and 05:31:17.6.
#[test]
fn power_over_a_test_follows_from_the_times_of_hpls_text() {
    let program = Program::new();
    let text = hpl_text(&[(8000, 120.0, "PASSED")]);
    program.write("a.out", &text.replace("  2.50  ", "  7.60  "));
    let second = |second: usize| format!("2026-11-29 05:31:{second:02},300\n");
    program.write("log.csv", &(8..19).map(second).collect::<String>());
    let command = "report a.out --power-csv log.csv --force";
    let output = program.command(command).env("TZ", "UTC").output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains(", joules 2280, mean_watts 300, "), "{error}");
    program.write("log.csv", &(9..18).map(second).collect::<String>());
    let output = program.command(command).env("TZ", "UTC").output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("0.3 of 7.6 s are missing"), "{error}");
    // Another time than that between its start and end; no times at all; a day that is none.
    for (text, why) in [
        (text.clone(), "are 8 s apart, and its time is 2.50 s: give the JSON report of the run"),
        (text.replace("HPL_pdgesv() end", "HPL_pdgesv() old"), "and no end time: give the JSON"),
        (text.replace("Nov 29", "Nov 31"), "its start time, `Sun Nov 31 05:31:09 2026"),
    ] {
        program.write("a.out", &text);
        let refused = program.refused("report a.out --power-csv log.csv");
        assert!(refused.contains(why), "{refused}");
    }
}

#[test]
fn the_text_of_hpl_is_refused_by_name_where_json_is_needed() {
    let program = Program::new();
    program.write("a.out", &hpl_text(&[(8000, 120.0, "PASSED")]));
    let why = program.refused("plan --report a.out");
    assert!(why.contains("it is the text of HPL, which has neither threads"), "{why}");
}
