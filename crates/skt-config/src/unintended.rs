//! Values that are legal, and yet surely not what was meant: no test of the run can make use of
//! them. Values that only are slow, or rare, are left alone.

use super::draft::Draft;
use super::error::{At, Warning};
use super::param::Param;
use super::source::ValueSource;
use super::spec::RunSpec;

/// Warnings about such values; defaults are not warned of.
pub(super) fn warnings(spec: &RunSpec, draft: &Draft) -> Vec<Warning> {
    let least = |values: &[usize]| values.iter().copied().min().unwrap_or(0);
    let most = |values: &[usize]| values.iter().copied().max().unwrap_or(0);
    let (n, nb) = (most(&spec.n), most(&spec.nb));
    let (min_nb, nbmin, ndiv) = (least(&spec.nb), least(&spec.nbmin), least(&spec.ndiv));
    let panels = n.div_ceil(min_nb.max(1));
    let depth = least(&spec.depth);
    let mut found = Vec::new();
    let mut warn = |param: Param, what: String| {
        let place = draft.place(param);
        if place != ValueSource::Default {
            found.push(Warning { at: At::param(param, &place), what });
        }
    };
    if n > 0 && min_nb > n {
        warn(
            Param::Nb,
            format!(
                "{min_nb} is larger than N = {n}: each matrix is a single panel, which one \
                 process column factors alone; are N and NB interchanged?"
            ),
        );
    }
    // HPL-MxP has no recursion in a panel.
    let has_recursion = spec.mxp.is_none();
    if has_recursion && nbmin >= nb {
        warn(
            Param::Nbmin,
            format!(
                "{nbmin} is not below NB = {nb}: no panel is split, so NDIV and RFACT are moot"
            ),
        );
    } else if has_recursion && ndiv > nb {
        warn(Param::Ndiv, format!("{ndiv} parts are more than the NB = {nb} columns of a panel"));
    }
    if depth > 1 && n > 0 && depth >= panels {
        warn(
            Param::Depth,
            format!("{depth} panels ahead are all there are: N = {n} has {panels} at most"),
        );
    }
    found
}
