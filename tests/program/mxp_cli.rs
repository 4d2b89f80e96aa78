//! `skt-hpl mxp` without a run: its help, and its configurations.

use crate::built::Program;
use crate::golden::assert_golden;

const TOML: &str = "n = 100\nnb = 8\np = 1\nq = 1\n";

/// The help without the flags of a run, but for those that HPL-MxP alone has.
#[test]
fn the_help_teaches_what_hpl_mxp_is() {
    let help = Program::new().printed("mxp --help");
    let (head, rest) = help.split_once("Options:").unwrap();
    let at = rest.find("      --matrix <NAME>").unwrap();
    let (own, _) = rest[at..].split_once("\n\nPanel factorization:").unwrap();
    let examples = &rest[rest.find("Examples:").unwrap()..];
    let lines: Vec<&str> = [head, "...\n", own, "\n...\n", examples]
        .iter()
        .flat_map(|part| part.lines())
        .map(str::trim_end)
        .collect();
    assert_golden("mxp_help.txt", &(lines.join("\n") + "\n"), &[]);
    let run = Program::new().printed("run --help");
    assert!(!run.contains("--matrix") && !run.contains("--gemm"), "{run}");
    for flag in ["--ft", "--level", "--power-command", "--json", "--bcast", "--inject"] {
        assert!(help.contains(&format!("      {flag} <")), "{flag}");
    }
}

#[test]
fn a_file_with_a_matrix_is_converted_and_no_run_of_hpl() {
    let program = Program::new();
    for (key, line) in [("gemm", "gemm = \"bf16\""), ("matrix", "matrix = \"scaled\"")] {
        program.write("mxp.toml", &format!("{TOML}{line}\n"));
        for words in ["--config mxp.toml", "tune --config mxp.toml", "launch -- --config mxp.toml"]
        {
            let error = program.refused(words);
            let want = format!(
                "error: mxp.toml:5: {key}: is a parameter of HPL-MxP; run this configuration by \
                 `skt-hpl mxp`, tune it by `skt-hpl tune --mxp`, or leave it out\n"
            );
            assert_eq!(error, want, "{words}");
        }
    }
    let (dat, lost) = program.done("convert mxp.toml");
    assert!(dat.starts_with("HPLinpack benchmark input file\n"), "{dat}");
    assert_eq!(lost, "warning: HPL.dat cannot hold all of this run: add mxp --matrix scaled\n");
    let again = program.printed("convert mxp.toml --to toml");
    assert!(again.contains("\nmatrix = \"scaled\"\n"), "{again}");
    assert!(again.ends_with("\ngemm = \"fp32\"\n"), "{again}");
    program.write("hpl.toml", TOML);
    let hpl = program.printed("convert hpl.toml --to toml");
    assert!(!hpl.contains("matrix =") && !hpl.contains("gemm ="), "{hpl}");
    program.write("bf16.toml", &format!("{TOML}gemm = \"bf16\"\n"));
    let (dat, lost) = program.done("convert bf16.toml");
    assert!(dat.starts_with("HPLinpack benchmark input file\n"), "{dat}");
    assert_eq!(lost, "warning: HPL.dat cannot hold all of this run: add mxp --gemm bf16\n");
    let again = program.printed("convert bf16.toml --to toml");
    assert!(again.ends_with("\ngemm = \"bf16\"\n"), "{again}");
}
