//! The types of numbers whose matrices the driver factors, and how a panel of each is factored.

use std::ops::Range;

use skt_terms::phases::PanelParts;

use super::exchange::RowExchange;
use super::local::Local;
use super::panel::Layout;
use super::{Params, SolveError};
use crate::blas::Element;
use crate::grid::Cyclic;
use crate::pfact::pivot::SharedCandidates;

/// A type of numbers whose matrices the driver factors.
///
/// |numbers|pivots|L|for|
/// |---|---|---|---|
/// |`f64`|partial pivoting (`pivoted`)|dropped|HPL|
/// |`f32`|none (`unpivoted`)|kept below the diagonal|HPL-MxP|
pub trait Factored: Element {
    /// Whether L2 is written into the matrix.
    const KEEPS_L: bool;

    /// Work space for the factorization of a panel.
    type Space;

    /// Doubles of the work space on process row `myrow`; at most `usize::MAX`.
    fn space_doubles(params: &Params, rows: Cyclic, myrow: usize) -> usize;

    /// Work space on process row `myrow`, with the memory for `candidates` of pivots that the
    /// process column shares, if any.
    ///
    /// # Errors
    /// When there is no memory.
    fn space(
        params: &Params,
        rows: Cyclic,
        myrow: usize,
        candidates: Option<SharedCandidates>,
    ) -> Result<Self::Space, SolveError>;

    /// Factors the panel with the local columns `cols` into its message; the columns stay as they
    /// are. A panel that breaks is marked as broken, so that all ranks learn of it from the
    /// message. `exchange` is free for rows of the panel's columns. Returns the time of parts.
    /// Collective over the process column.
    ///
    /// # Errors
    /// When a rank cannot be reached.
    ///
    /// # Safety
    /// No other thread uses these columns.
    unsafe fn factor(
        space: &mut Self::Space,
        exchange: &mut RowExchange,
        local: &Local<Self>,
        layout: &Layout<Self>,
        cols: Range<usize>,
        message: &mut [f64],
    ) -> Result<PanelParts, SolveError>;
}
