//! What the text report of HPL-MxP has in place of, or in addition to, that of HPL.

use super::cformat::c_exp;
use skt_config::{GemmPrecision, MxpMatrix, RunSpec, TestSpec};
use skt_run::record::{Outcome, TestRecord};

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
