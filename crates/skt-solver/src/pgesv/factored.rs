//! The types of numbers whose matrices the driver factors, and how a panel of each is factored.

use std::ops::Range;

use skt_host::phases::PanelParts;

use super::events::SolverEvents;
use super::exchange::RowExchange;
use super::guard::Background;
use super::local::Local;
use super::panel::Layout;
use super::{LocalShape, Params, SolveError, Solver, Workspace};
use crate::blas::Element;
use crate::grid::{Cyclic, Grid};
use crate::pfact::pivot::SharedCandidates;
use crate::team::Team;

/// A type of numbers whose matrices the driver factors.
///
/// |numbers|pivots|L|for|
/// |---|---|---|---|
/// |`f64`|partial pivoting (`pivoted`)|dropped|HPL|
/// |`f32`|none (`unpivoted`)|kept below the diagonal|HPL-MxP|
pub trait Factored: Element {
    const KEEPS_L: bool;

    type Space;

    /// Doubles of the work space on process row `myrow`; at most `usize::MAX`.
    fn space_doubles(params: &Params, rows: Cyclic, myrow: usize) -> usize;

    /// Work space on process row `myrow`, with the memory for `candidates` of pivots that the
    /// process column shares, if any.
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

    /// [`Workspace::for_products`]. With [`Self::factor_panels`], what compiles the driver for each
    /// type in this crate, optimised as this crate is, and not in each crate that calls it.
    fn workspace(
        grid: &Grid,
        team: &Team,
        params: &Params,
        shape: LocalShape<Self>,
        products: Option<Self::Rounded>,
    ) -> Result<Workspace<Self>, SolveError>;

    /// [`Solver::factor`].
    fn factor_panels(
        solver: &mut Solver<Self>,
        range: Range<usize>,
        events: &mut dyn SolverEvents,
        background: &mut dyn Background,
    ) -> Result<(), SolveError>;
}
