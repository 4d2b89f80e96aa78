//! What the text report of HPL-MxP has in place of, or in addition to, that of HPL.

use skt_config::{GemmPrecision, MxpMatrix, TestSpec};
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

pub(super) fn broke_text(spec: &TestSpec, matrix: MxpMatrix, column: usize, pivot: &str) -> String {
    let others = others(matrix, spec.gemm);
    format!(
        "the factorization stopped: the pivot of column {column} (from 0) of the matrix {matrix} \
         is {pivot}: try {others}, a smaller N or another NB"
    )
}

/// The likely cause of a residual that failed, and what to try.
pub(super) fn hint_line(record: &TestRecord, blas: &str) -> Option<String> {
    let mxp = record.mxp.as_ref().filter(|_| matches!(record.outcome, Outcome::Failed { .. }))?;
    let remedy = format!("{} `skt-hpl screen` compares the nodes", wrong(blas));
    if mxp.failure.is_none() && mxp.has_converged {
        return Some(format!(
            "# hint: the refinement converged, but to a wrong solution: {remedy}"
        ));
    }
    let unfinished = || format!("the refinement did not converge in {} steps", mxp.steps.len());
    let cause = mxp.failure.clone().unwrap_or_else(unfinished);
    let others = others(record.spec.mxp?, record.spec.gemm);
    Some(format!(
        "# hint: {cause}: try {others}, a smaller N or another NB; if those fail as well, {remedy}"
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
