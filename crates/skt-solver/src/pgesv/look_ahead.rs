//! The look-ahead: DEPTH panels that are factored, and being broadcast to the other process
//! columns, before they are applied.

use std::collections::VecDeque;
use std::ops::Range;

use skt_host::phases::Phases;

use super::background::{BackgroundWork, Token};
use super::exchange::RowExchange;
use super::factored::Factored;
use super::final_part::Reached;
use super::local::Local;
use super::packing::Packing;
use super::panel::{self, Panel};
use super::product::{Unrecorded, multiply_narrow};
use super::slots::PanelBuffers;
use super::{Params, SolveError};
use crate::grid::Grid;
use crate::pfact::pivot::SharedCandidates;
use crate::swap::node::NodeRows;

/// The panels that are factored and not yet applied everywhere, and work space for more.
pub(super) struct LookAhead<T: Factored = f64> {
    panels: VecDeque<Panel<T>>,
    buffers: PanelBuffers,
    space: T::Space,
    /// The row exchange on the columns of one panel.
    exchange: RowExchange,
    /// U of these columns, where products read it packed.
    packing: Packing<T>,
}

impl<T: Factored> LookAhead<T> {
    /// Work space for `params`, with the shared memory of pivot candidates and of the rows of one
    /// panel's columns where the process column shares a node. Collective.
    pub(crate) fn new(
        grid: &Grid,
        params: &Params,
        candidates: Option<SharedCandidates>,
        rows: Option<NodeRows>,
        products: Option<T::Rounded>,
    ) -> Result<Self, SolveError> {
        let nb = params.widest_panel();
        let (map, myrow) = (grid.rows(params.nb), grid.myrow);
        let message = panel::largest::<T>(params.n, params.nb, map, myrow);
        // The panels of the look-ahead, and the one that is being applied.
        let buffers = PanelBuffers::new(grid, params.nb, params.depth + 1, message, params.share)?;
        let exchange = RowExchange::new(grid.p, nb, T::doubles(nb), rows)?;
        let space = T::space(params, map, myrow, candidates)?;
        let packing = Packing::new(products, nb, nb)?;
        Ok(Self { packing, ..Self::with_buffers(params, buffers, space, exchange) })
    }

    /// Look-ahead with given memory; `exchange` is for the columns of one panel.
    pub(crate) fn with_buffers(
        params: &Params,
        buffers: PanelBuffers,
        space: T::Space,
        exchange: RowExchange,
    ) -> Self {
        let (panels, packing) = (VecDeque::with_capacity(params.depth + 1), Packing::NONE);
        Self { panels, buffers, space, exchange, packing }
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.buffers.are_shared()
    }

    /// Whether panels are sent as messages, which have to be progressed.
    pub(crate) fn has_messages(&self, grid: &Grid) -> bool {
        grid.q > 1 && !self.is_shared()
    }

    /// Factors panels `start` .. `start + DEPTH` and starts to broadcast them, if the look-ahead is
    /// empty. At panel 0 each is first updated by those before it; later all are up to date.
    pub(crate) fn begin(
        &mut self,
        local: &Local<T>,
        start: usize,
        background: &mut BackgroundWork,
        phases: &mut Phases,
    ) -> Result<(), SolveError> {
        if !self.panels.is_empty() {
            return Ok(());
        }
        self.buffers.begin_at(start);
        let Params { depth, .. } = local.params;
        for newest in start..local.params.panels().min(start + depth) {
            if start == 0 {
                self.update_columns_of(local, newest, None, phases)?;
            }
            self.factor_and_broadcast(local, newest, &mut Token::alone(), phases)?;
            self.wait_for_newest(local, background, Reached::Begun, phases)?;
        }
        Ok(())
    }

    /// Takes panel `k`, the first one, out of the look-ahead. With DEPTH 0 it is factored now.
    pub(crate) fn take(
        &mut self,
        local: &Local<T>,
        k: usize,
        background: &mut BackgroundWork,
        phases: &mut Phases,
    ) -> Result<Panel<T>, SolveError> {
        if local.params.depth == 0 {
            self.factor_and_broadcast(local, k, &mut Token::alone(), phases)?;
            self.wait_for_newest(local, background, Reached::Factoring { k }, phases)?;
        }
        let panel = self.panels.pop_front().expect("panel k is in the look-ahead");
        assert_eq!(panel.k, k, "panels are applied in order");
        Ok(panel)
    }

    pub(crate) fn front(&self) -> Option<&Panel<T>> {
        self.panels.front()
    }

    pub(crate) fn give_back(&mut self, panel: Panel<T>) -> Result<(), SolveError> {
        self.buffers.put_back(panel.release()?);
        Ok(())
    }

    /// Brings panel `newest`, if there is one, into the look-ahead: its owner updates its columns
    /// by all panels before it, of which `applied` is being applied, and factors it; its broadcast
    /// starts. Afterwards the token is held in any case.
    pub(crate) fn advance(
        &mut self,
        local: &Local<T>,
        newest: Option<usize>,
        applied: &Panel<T>,
        token: &mut Token,
        phases: &mut Phases,
    ) -> Result<(), SolveError> {
        let Some(newest) = newest else {
            token.acquire();
            return Ok(());
        };
        local.release_if_alone(token);
        let updated = self.update_columns_of(local, newest, Some(applied), phases);
        token.acquire();
        updated?;
        self.factor_and_broadcast(local, newest, token, phases)
    }

    /// On the owner of `newest`: applies `applied` and all of the look-ahead to its columns.
    fn update_columns_of(
        &mut self,
        local: &Local<T>,
        newest: usize,
        applied: Option<&Panel<T>>,
        phases: &mut Phases,
    ) -> Result<(), SolveError> {
        let cols = local.columns_of(newest..newest + 1);
        let Self { panels, exchange, packing, .. } = self;
        applied.into_iter().chain(&*panels).try_for_each(|panel| {
            if cols.is_empty() {
                return Ok(());
            }
            // SAFETY: the team uses only columns right of the look-ahead.
            unsafe { apply_to_columns(local, panel, cols.clone(), exchange, packing, phases) }
        })
    }

    /// The columns of panel `newest` are up to date; their owner factors them.
    pub(crate) fn factor_and_broadcast(
        &mut self,
        local: &Local<T>,
        newest: usize,
        token: &mut Token,
        phases: &mut Phases,
    ) -> Result<(), SolveError> {
        let layout = local.layout(newest);
        let start = local.grid.all.now();
        let mut buffer = self.buffers.take(&local.grid.row, newest)?;
        phases.bcast += local.seconds_since(start);
        let start = local.grid.all.now();
        if local.owns(newest) {
            let cols = local.columns_of(newest..newest + 1);
            local.release_if_alone(token);
            let Self { space, exchange, .. } = self;
            let message = buffer.message();
            // SAFETY: the team uses only columns right of the look-ahead.
            let factored = unsafe { T::factor(space, exchange, local, &layout, cols, message) };
            token.acquire();
            phases.panel_parts += factored?;
            phases.panel += local.seconds_since(start);
        }
        let start = local.grid.all.now();
        let (columns, topology) = (&local.cols, local.params.bcast);
        let panel = Panel::start_broadcast(local.grid, columns, topology, newest, layout, buffer)?;
        self.panels.push_back(panel);
        phases.bcast += local.seconds_since(start);
        Ok(())
    }

    /// Progresses the background while it waits.
    pub(crate) fn wait_for_newest(
        &mut self,
        local: &Local<T>,
        background: &mut BackgroundWork,
        reached: Reached,
        phases: &mut Phases,
    ) -> Result<(), SolveError> {
        let start = local.grid.all.now();
        let newest = self.panels.back_mut().expect("a panel that has just been factored");
        background.progress_until(reached, || newest.has_arrived(local.grid))?;
        newest.wait(local.grid)?;
        phases.bcast += local.seconds_since(start);
        Ok(())
    }

    /// Progresses the messages of the panel that is being applied and of the look-ahead. Returns
    /// whether this rank still has to forward some of the latter.
    pub(crate) fn progress(
        &mut self,
        local: &Local<T>,
        current: &Panel<T>,
    ) -> Result<bool, SolveError> {
        current.progress_sends()?;
        self.panels.iter_mut().try_for_each(|panel| panel.progress(local.grid))?;
        Ok(self.panels.iter().any(Panel::must_forward))
    }
}

/// Applies `panel` to the columns `cols` of another panel.
/// Safety: no other thread uses these columns.
unsafe fn apply_to_columns<T: Factored>(
    local: &Local<T>,
    panel: &Panel<T>,
    cols: Range<usize>,
    exchange: &mut RowExchange,
    packing: &mut Packing<T>,
    phases: &mut Phases,
) -> Result<(), SolveError> {
    let operands = panel.operands();
    // SAFETY: the caller's promise.
    let u = unsafe { exchange.solve(local, panel, cols.clone(), phases) }?;
    let start = local.grid.all.now();
    let u = packing.pack(local.team, u);
    // SAFETY: the caller's promise; A2 and U share no element.
    unsafe { multiply_narrow(local, &cols, &operands, u, &Unrecorded) }?;
    phases.update += local.seconds_since(start);
    Ok(())
}
