//! The recursion over column ranges of a panel (HPL_pdrpanll, -crn, -rln).
//!
//! For a part S of the range, with columns Q of the range before S and R after
//! it (rows named likewise), all three variants do the same operations, at
//! different times:
//!
//! ```text
//! left:    U(Q,S) = L(Q,Q)^-1 W(Q,S);  W(.,S) -= L(.,Q) U(Q,S);  factor S
//! Crout:   W(.,S) -= L(.,Q) U(Q,S);    factor S;
//!          W(S,R) -= L(S,Q) U(Q,R);    U(S,R) = L(S,S)^-1 W(S,R)
//! right:   factor S;  U(S,R) = L(S,S)^-1 W(S,R);  W(.,R) -= L(.,S) U(S,R)
//! ```

use std::ops::Range;

use super::{PanelWork, PfactError, Variant, unblocked};
use crate::blas::{gemm, solve_unit_lower};
use crate::tuning::TUNING;
use skt_host::choice::Fact;

/// Factors columns `range`, to which all updates by the columns before them have been applied.
pub(super) fn factor(
    panel: &mut PanelWork,
    variant: &Variant,
    range: Range<usize>,
) -> Result<(), PfactError> {
    if range.len() <= variant.nbmin {
        let start = panel.col.now();
        let factored = unblocked::factor(panel, variant.pfact, range);
        panel.parts.unblocked += (panel.col.now() - start).as_secs_f64();
        return factored;
    }
    // Width of a part: a multiple of NBMIN, about NDIV of them.
    let width = range.len().div_ceil(variant.nbmin).div_ceil(variant.ndiv) * variant.nbmin;
    let mut s0 = range.start;
    while s0 < range.end {
        let part = s0..(s0 + width).min(range.end);
        let (before, after) = (range.start..s0, part.end..range.end);
        match variant.rfact {
            Fact::Left => {
                solve(panel, &before, &part);
                update(panel, &before, &part);
                factor(panel, variant, part.clone())?;
            }
            Fact::Crout => {
                update(panel, &before, &part);
                factor(panel, variant, part.clone())?;
                update_rows(panel, &before, &part, &after);
                solve(panel, &part, &after);
            }
            Fact::Right => {
                factor(panel, variant, part.clone())?;
                solve(panel, &part, &after);
                update(panel, &part, &after);
            }
        }
        s0 = part.end;
    }
    Ok(())
}

/// `U(k, c) = L(k, k)^-1 W(k, c)` on the rows that all ranks share.
fn solve(panel: &mut PanelWork, k: &Range<usize>, c: &Range<usize>) {
    let (left, right) = panel.w.rb().split_cols(c.start);
    let l = left.into_ref().block(k.clone(), k.clone());
    solve_unit_lower(l, right.block(k.clone(), 0..c.len()));
}

/// `W(., c) -= L(., k) U(k, c)` on the rows that are active after pivot `k.end`.
fn update(panel: &mut PanelWork, k: &Range<usize>, c: &Range<usize>) {
    let (first, rows) = (panel.active(k.end), panel.w.rows());
    let (left, right) = panel.w.rb().split_cols(c.start);
    let (top, bottom) = right.split_rows(first);
    let l = left.into_ref().block(first..rows, k.clone());
    // U(k, c) is in the rows that all ranks share, so it is in `top`.
    let u = top.into_ref().block(k.clone(), 0..c.len());
    let bottom = bottom.block(0..rows - first, 0..c.len()).share();
    panel.team.split(rows - first, TUNING.panel_product_grain_rows, |part| {
        // SAFETY: the parts do not overlap.
        let target = unsafe { bottom.block(part.clone(), 0..c.len()) };
        gemm(-1.0, l.block(part, 0..k.len()), u, 1.0, target);
    });
}

/// `W(s, c) -= L(s, k) U(k, c)` on the rows that all ranks share.
fn update_rows(panel: &mut PanelWork, k: &Range<usize>, s: &Range<usize>, c: &Range<usize>) {
    let (left, right) = panel.w.rb().split_cols(c.start);
    let (top, bottom) = right.split_rows(s.start);
    let l = left.into_ref().block(s.clone(), k.clone());
    let u = top.into_ref().block(k.clone(), 0..c.len());
    gemm(-1.0, l, u, 1.0, bottom.block(0..s.len(), 0..c.len()));
}
