//! What the text report of HPL-MxP has in place of, or in addition to, that of HPL.

use super::cformat::c_exp;
use skt_config::{GemmPrecision, MxpMatrix, Refinement, RunSpec, TestSpec};
use skt_run::record::{MxpRecord, Outcome, RefinementStep, TestRecord};
use skt_terms::units::{self, counted};

/// Parameters of HPL that have no meaning without pivoting.
pub(super) const UNUSED: [&str; 8] =
    ["PFACT", "NBMIN", "NDIV", "RFACT", "L1", "U", "EQUIL", "ALIGN"];

/// As many lines as the banner of HPL. Programs may look for `HPL-MxP` in it.
pub(super) fn banner() -> String {
    format!(
        "HPL-MxP  --  Mixed-precision High-Performance Linpack  --   run by skt-hpl {}\n\
         Solves Ax = b in double precision by LU in lower precision without pivoting,\n\
         refined. The input and the report have the form of HPL 2.3, which was written\n\
         by A. Petitet, R. Clint Whaley, P. Luszczek and J. Langou (UTK, UC Denver)",
        env!("CARGO_PKG_VERSION")
    )
}

/// The lines of HPL-MxP's own parameters in the echo; empty for HPL.
pub(super) fn own_echo(spec: &RunSpec) -> String {
    let Some(matrix) = spec.mxp else { return String::new() };
    format!("{:<7}: {matrix}\n{:<7}: {}\n", "MATRIX", "GEMM", spec.gemm)
}

/// The notes of a run with this matrix and these products.
pub(super) fn notes(matrix: MxpMatrix, gemm: GemmPrecision, is_detailed: bool) -> Vec<String> {
    let what = match matrix {
        MxpMatrix::FasiHigham => "a product of triangles with a chosen condition number",
        MxpMatrix::Scaled => "HPL's random matrix with a scaled diagonal",
        MxpMatrix::Dominant => {
            "HPL's random matrix with a dominant diagonal, which the rules accept for tests alone"
        }
    };
    let detailed = "no detailed timing: a panel of HPL-MxP has none of the parts of HPL's";
    let mut notes = vec![format!("matrix   : {matrix} ({what})")];
    notes.extend(sums(gemm).map(|sums| {
        format!("gemm     : {gemm} (L2 and U rounded to bf16, sums in single precision{sums})")
    }));
    notes.extend(is_detailed.then(|| detailed.to_owned()));
    notes
}

/// The end of the note on rounded operands, about their sums; `None` where none are rounded.
fn sums(gemm: GemmPrecision) -> Option<&'static str> {
    match gemm {
        GemmPrecision::Fp32 => None,
        GemmPrecision::Bf16 => Some(""),
        GemmPrecision::EmulatedBf16 => Some(" by SGEMM: its rate is that of single precision"),
    }
}

/// How a matrix was factored, after `factored` or a rate.
pub(super) fn precision(gemm: GemmPrecision) -> &'static str {
    match gemm {
        GemmPrecision::Fp32 => "in single precision",
        GemmPrecision::Bf16 => "with products of bf16 operands",
        GemmPrecision::EmulatedBf16 => "with emulated products of bf16 operands",
    }
}

/// The lines on factorization and refinement; none if the test has no solution.
pub(super) fn lines(record: &TestRecord) -> Vec<String> {
    let Some(mxp) = record.mxp.as_ref().filter(|_| record.outcome.ran_to_end()) else {
        return Vec::new();
    };
    let MxpRecord { factor_seconds, refine_seconds, steps, has_converged, .. } = mxp;
    let time = record.time_seconds;
    let mut lines = vec![
        format!(
            "# factorization: {factor_seconds:.4} s{}, {} {}",
            share(*factor_seconds, time),
            units::rate(factor_gflops(record.spec.n, *factor_seconds)),
            precision(record.spec.gemm)
        ),
        format!(
            "# refinement: {}, {refine_seconds:.4} s{}, {}",
            steps_in_words(mxp),
            share(*refine_seconds, time),
            if *has_converged { "converged" } else { "did not converge" }
        ),
    ];
    if !steps.is_empty() {
        lines.push("#   step     by       corrections     at s   scaled residual".to_owned());
    }
    lines.extend((1..).zip(steps).map(|(number, step): (usize, _)| {
        let RefinementStep { refinement, corrections, end_seconds, scaled_residual } = step;
        let (residual, refinement) = (c_exp(*scaled_residual, 18, 4), refinement.name());
        format!("#   {number:>4}     {refinement:<8}{corrections:>12}{end_seconds:>9.4}{residual}")
    }));
    lines
}

/// The rate of the factorization alone, from its `2/3 N^3` operations.
fn factor_gflops(n: usize, seconds: f64) -> f64 {
    let gflop = 2.0 / 3.0 * (n as f64).powi(3) / 1e9;
    if seconds > 0.0 { gflop / seconds } else { 0.0 }
}

fn share(part: f64, whole: f64) -> String {
    if whole > 0.0 { format!(" ({:.1} %)", 100.0 * part / whole) } else { String::new() }
}

/// The steps of each method, in order: `classic (3 steps), gmres (1 step)`.
fn steps_in_words(mxp: &MxpRecord) -> String {
    let count = |how: Refinement| mxp.steps.iter().filter(|step| step.refinement == how).count();
    let counts = Refinement::ALL.map(|how| (how, count(how)));
    let taken = counts.into_iter().filter(|(how, count)| *count > 0 || *how == mxp.refinement);
    let words: Vec<String> =
        taken.map(|(how, count)| format!("{how} ({})", counted(count, "step"))).collect();
    words.join(", ")
}

/// The rate relative to the self-test, which is in double precision.
pub(super) fn speed_line(record: &TestRecord, times: f64, dgemm_gflops_per_core: f64) -> String {
    let cores = record.spec.ranks() * record.spec.threads;
    format!(
        "# speed: {times:.2} times the DGEMM self-test, which is in double precision ({} a core on {})",
        units::rate(dgemm_gflops_per_core),
        counted(cores, "core")
    )
}

/// Why a factorization without pivoting stopped, and what to try.
pub(super) fn broke_text(spec: &TestSpec, matrix: MxpMatrix, column: usize, pivot: &str) -> String {
    let TestSpec { n, nb, gemm, .. } = spec;
    let cause = if gemm.is_rounded() {
        "operands of bf16 are not enough"
    } else {
        "single precision is not enough"
    };
    format!(
        "the factorization stopped: the pivot of column {column} (from 0) of the matrix {matrix} \
         is {pivot}, and without pivoting no other can be taken\nat N = {n} and NB = {nb} {cause} \
         for this matrix: try {}, a smaller N or another NB; if those fail as well, the BLAS or a \
         node is faulty (`skt-hpl screen`)",
        others(matrix, *gemm)
    )
}

/// The likely cause of a residual that failed, and what to try.
pub(super) fn hint_line(record: &TestRecord, blas: &str) -> Option<String> {
    let Outcome::Failed { scaled_residual, .. } = record.outcome else { return None };
    let matrix = record.spec.mxp?;
    let TestSpec { n, nb, gemm, .. } = record.spec;
    let mxp = record.mxp.as_ref()?;
    if let Some(failure) = &mxp.failure {
        return Some(format!(
            "# hint: the matrix {matrix}, N = {n} and NB = {nb}: {failure}: try {}, a smaller N or \
             another NB; if those fail as well, {} `skt-hpl screen` compares the nodes",
            others(matrix, gemm),
            wrong(blas)
        ));
    }
    if mxp.has_converged {
        return Some(format!(
            "# hint: the refinement converged, but to a wrong solution: {} `skt-hpl screen` compares \
             the nodes",
            wrong(blas)
        ));
    }
    Some(format!(
        "# hint: for the matrix {matrix}, N = {n} and NB = {nb} the refinement did not converge in \
         {} steps, the scaled residual is {}: try {}, a smaller N or another \
         NB; if those fail as well, {} `skt-hpl screen` compares the nodes",
        mxp.steps.len(),
        c_exp(scaled_residual, 0, 4),
        others(matrix, gemm),
        wrong(blas)
    ))
}

/// Who has computed wrong, up to how the rank is found.
pub(super) fn wrong(blas: &str) -> String {
    format!(
        "{blas} has computed wrong if the run passes with another library (--blas); if not, some \
         rank has:"
    )
}

/// What to try in place of this matrix: first products without rounded operands, then another
/// matrix: the one that needs no pivoting at any N, or else the nearest to HPL's.
fn others(matrix: MxpMatrix, gemm: GemmPrecision) -> String {
    let other = match matrix {
        MxpMatrix::FasiHigham => "--matrix scaled",
        MxpMatrix::Scaled | MxpMatrix::Dominant => "--matrix fasi-higham",
    };
    format!("{}{other}", if gemm.is_rounded() { "--gemm fp32, " } else { "" })
}

#[cfg(test)]
mod tests {
    /// Each line that begins with a word of ours is explained on the page of the report.
    #[test]
    fn the_page_of_the_report_has_each_line() {
        let (code, _) = include_str!("mxp.rs").split_once("#[cfg(test)]").expect("tests");
        let page = include_str!("../../docs/report.md");
        let words = code.split("\"# ").skip(1).filter_map(|text| Some(text.split_once(':')?.0));
        let lines: Vec<&str> = words.filter(|word| !word.contains(['"', '{'])).collect();
        assert!(lines.len() > 3, "{lines:?}");
        for word in lines {
            assert!(page.contains(&format!("# {word}:")), "docs/report.md lacks `# {word}:`");
        }
    }
}
