//! The look-ahead: DEPTH panels that are factored, and being broadcast to the other process
//! columns, before they are applied.

use std::collections::VecDeque;
use std::ops::Range;

use skt_terms::phases::{PanelParts, Phases};

use super::SolveError;
use super::background::{BackgroundWork, Token};
use super::exchange::RowExchange;
use super::final_part::Reached;
use super::local::Local;
use super::panel::{self, Layout, Panel};
use super::product::{Unrecorded, multiply_narrow};
use super::slots::PanelBuffers;
use super::{Params, memory_error};
use crate::blas::MatRef;
use crate::comm::{Comm, PageBuf};
use crate::grid::Grid;
use crate::pfact::pivot::SharedCandidates;
use crate::pfact::{self, PfactError};
use crate::swap::node::NodeRows;
use crate::work::{self, Work};

/// The panels that are factored and not yet applied everywhere, and work space for more.
pub(super) struct LookAhead<C: Comm> {
    panels: VecDeque<Panel<C>>,
    buffers: PanelBuffers,
    w: PageBuf,
    pivot_candidates: pfact::pivot::Candidates,
    /// The row exchange on the columns of one panel.
    exchange: RowExchange<C>,
}

impl<C: Comm> LookAhead<C> {
    /// Work space for `params`, with the shared memory of pivot candidates and of the rows of one
    /// panel's columns where the process column shares a node. Collective.
    pub fn new(
        grid: &Grid<C>,
        params: &Params,
        candidates: Option<SharedCandidates>,
        rows: Option<NodeRows>,
    ) -> Result<Self, SolveError> {
        let nb = params.widest_panel();
        let (message, w) = panel::largest(params.n, params.nb, grid.rows(params.nb), grid.myrow);
        // The panels of the look-ahead, and the one that is being applied.
        let buffers = PanelBuffers::new(grid, params.depth + 1, message, params.share)?;
        let exchange = RowExchange::new(grid.p, nb, nb, rows)?;
        let w = PageBuf::new(w).map_err(memory_error("the panel"))?;
        Ok(Self::with_buffers(params, buffers, w, candidates, exchange))
    }

    /// Look-ahead with given memory: `buffers` for panels, `w` for the panel being factored,
    /// `candidates` for pivots, and `exchange` for the columns of one panel.
    pub fn with_buffers(
        params: &Params,
        buffers: PanelBuffers,
        w: PageBuf,
        candidates: Option<SharedCandidates>,
        exchange: RowExchange<C>,
    ) -> Self {
        Self {
            panels: VecDeque::with_capacity(params.depth + 1),
            buffers,
            w,
            pivot_candidates: pfact::pivot::Candidates::new(params.widest_panel(), candidates),
            exchange,
        }
    }

    pub fn is_shared(&self) -> bool {
        self.buffers.are_shared()
    }

    /// Whether panels are sent as messages, which have to be progressed.
    pub fn has_messages(&self, grid: &Grid<C>) -> bool {
        grid.q > 1 && !self.is_shared()
    }

    /// Factors panels `start` .. `start + DEPTH` and starts to broadcast them, if the look-ahead is
    /// empty. At panel 0 each one has to be updated by those before it; at any later cut all are up
    /// to date.
    pub fn begin(
        &mut self,
        local: &Local<C>,
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
    pub fn take(
        &mut self,
        local: &Local<C>,
        k: usize,
        background: &mut BackgroundWork,
        phases: &mut Phases,
    ) -> Result<Panel<C>, SolveError> {
        if local.params.depth == 0 {
            self.factor_and_broadcast(local, k, &mut Token::alone(), phases)?;
            self.wait_for_newest(local, background, Reached::Factoring { k }, phases)?;
        }
        let panel = self.panels.pop_front().expect("panel k is in the look-ahead");
        assert_eq!(panel.k, k, "panels are applied in order");
        Ok(panel)
    }

    /// The panel that is applied next, if it is in the look-ahead.
    pub fn front(&self) -> Option<&Panel<C>> {
        self.panels.front()
    }

    /// Returns the buffer of a panel that has been applied.
    pub(crate) fn give_back(&mut self, panel: Panel<C>) -> Result<(), SolveError> {
        self.buffers.put_back(panel.release()?);
        Ok(())
    }

    /// Brings panel `newest`, if there is one, into the look-ahead: its owner updates its columns
    /// by all panels before it, of which `applied` is being applied, and factors it; its broadcast
    /// starts. Afterwards the token is held in any case.
    pub(crate) fn advance(
        &mut self,
        local: &Local<C>,
        newest: Option<usize>,
        applied: &Panel<C>,
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

    /// On the owner of panel `newest`: applies the panel `applied` and all of the look-ahead to its
    /// columns.
    fn update_columns_of(
        &mut self,
        local: &Local<C>,
        newest: usize,
        applied: Option<&Panel<C>>,
        phases: &mut Phases,
    ) -> Result<(), SolveError> {
        let cols = local.columns_of(newest..newest + 1);
        let Self { panels, exchange, .. } = self;
        applied.into_iter().chain(&*panels).try_for_each(|panel| {
            if cols.is_empty() {
                return Ok(());
            }
            // SAFETY: the team uses only columns right of the look-ahead.
            unsafe { apply_to_columns(local, panel, cols.clone(), exchange, phases) }
        })
    }

    /// Factors panel `newest`, whose columns are up to date, on their owner, and starts to
    /// broadcast it.
    pub(crate) fn factor_and_broadcast(
        &mut self,
        local: &Local<C>,
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
            // SAFETY: the team uses only columns right of the look-ahead.
            let columns = unsafe { local.a.read(0..local.shape.rows, cols) };
            local.release_if_alone(token);
            let factored = self.factor(local, &layout, columns, buffer.message());
            token.acquire();
            phases.panel_parts += factored?;
            phases.panel += local.seconds_since(start);
        }
        let start = local.grid.all.now();
        let topology = local.params.bcast;
        let panel = Panel::start_broadcast(local.grid, topology, newest, layout, buffer)?;
        self.panels.push_back(panel);
        phases.bcast += local.seconds_since(start);
        Ok(())
    }

    /// Factors a panel into its message; its columns stay as they are. A panel that breaks is
    /// marked as broken, so that all ranks learn of it from the message. Returns the time of parts.
    fn factor(
        &mut self,
        local: &Local<C>,
        layout: &Layout,
        columns: MatRef,
        message: &mut [f64],
    ) -> Result<PanelParts, SolveError> {
        let mut w = layout.w(&mut self.w);
        {
            let source = columns.block(layout.top..columns.rows(), 0..layout.jb);
            let target =
                w.rb().block(pfact::first_own_row(layout.jb)..layout.w_rows(), 0..layout.jb);
            panel::copy_rows(source, target, local.team);
        }
        let (head, ipiv) = layout.head_and_ipiv(message);
        let (rows, myrow) = (local.rows, local.grid.myrow);
        let below = local.shape.rows - layout.below;
        work::begins(Work::Panel { rows: below, jb: layout.jb, p: local.grid.p });
        let mut panel = pfact::PanelWork {
            w: w.rb(),
            ipiv,
            place: pfact::PanelPosition { j: layout.j, rows, myrow, top: layout.top },
            col: &local.grid.col,
            team: local.team,
            candidates: &mut self.pivot_candidates,
            parts: PanelParts::default(),
        };
        let factored = pfact::factor(&mut panel, &local.params.variant);
        let parts = panel.parts;
        match factored {
            Ok(()) => panel::mark_sound(head, layout.j),
            Err(PfactError::Pivot { column, value }) => {
                panel::mark_broken(head, layout.j + column, value);
            }
            Err(PfactError::Comm(error)) => return Err(error.into()),
        }
        layout.write(w.as_ref(), message, local.team);
        Ok(parts)
    }

    /// Waits for the newest panel, and progresses the background during the wait. The factorization
    /// is at `reached`.
    pub fn wait_for_newest(
        &mut self,
        local: &Local<C>,
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
        local: &Local<C>,
        current: &Panel<C>,
    ) -> Result<bool, SolveError> {
        current.progress_sends()?;
        self.panels.iter_mut().try_for_each(|panel| panel.progress(local.grid))?;
        Ok(self.panels.iter().any(Panel::must_forward))
    }
}

/// Applies `panel` to the columns `cols` of another panel.
///
/// # Safety
/// No other thread uses these columns.
unsafe fn apply_to_columns<C: Comm>(
    local: &Local<C>,
    panel: &Panel<C>,
    cols: Range<usize>,
    exchange: &mut RowExchange<C>,
    phases: &mut Phases,
) -> Result<(), SolveError> {
    let operands = panel.operands();
    // SAFETY: the caller's promise.
    let u = unsafe { exchange.solve(local, panel, cols.clone(), phases) }?;
    let start = local.grid.all.now();
    // SAFETY: the caller's promise; A2 and U share no element.
    unsafe { multiply_narrow(local, &cols, &operands, u, &Unrecorded) }?;
    phases.update += local.seconds_since(start);
    Ok(())
}
