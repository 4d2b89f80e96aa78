//! Panels of doubles, factored with partial pivoting.

use std::ops::Range;

use skt_host::phases::PanelParts;

use super::events::SolverEvents;
use super::exchange::RowExchange;
use super::factored::Factored;
use super::guard::Background;
use super::local::Local;
use super::panel::{self, Layout};
use super::{LocalShape, Params, SolveError, Solver, Workspace, memory_error};
use crate::grid::{Cyclic, Grid};
use crate::pfact::pivot::{Candidates, SharedCandidates};
use crate::pfact::{self, PfactError};
use crate::team::Team;
use crate::work::{self, Work};
use skt_comm::PageBuf;

pub struct Pivoted {
    w: PageBuf,
    candidates: Candidates,
}

impl Pivoted {
    pub(crate) fn new(params: &Params, w: PageBuf, candidates: Option<SharedCandidates>) -> Self {
        Self { w, candidates: Candidates::new(params.widest_panel(), candidates) }
    }
}

impl Factored for f64 {
    const KEEPS_L: bool = false;

    type Space = Pivoted;

    fn space_doubles(params: &Params, rows: Cyclic, myrow: usize) -> usize {
        panel::largest_w(params.n, params.nb, rows, myrow)
    }

    fn space(
        params: &Params,
        rows: Cyclic,
        myrow: usize,
        candidates: Option<SharedCandidates>,
    ) -> Result<Self::Space, SolveError> {
        let w = PageBuf::new(Self::space_doubles(params, rows, myrow));
        Ok(Pivoted::new(params, w.map_err(memory_error("the panel"))?, candidates))
    }

    unsafe fn factor(
        space: &mut Self::Space,
        _: &mut RowExchange,
        local: &Local,
        layout: &Layout,
        cols: Range<usize>,
        message: &mut [f64],
    ) -> Result<PanelParts, SolveError> {
        // SAFETY: the caller's promise.
        let columns = unsafe { local.a.read(0..local.shape.rows, cols) };
        let mut w = layout.w(&mut space.w);
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
            candidates: &mut space.candidates,
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

    fn workspace(
        grid: &Grid,
        team: &Team,
        params: &Params,
        shape: LocalShape<Self>,
        products: Option<Self::Rounded>,
    ) -> Result<Workspace<Self>, SolveError> {
        Workspace::allocate(grid, team, params, shape, products)
    }

    fn factor_panels(
        solver: &mut Solver<Self>,
        range: Range<usize>,
        events: &mut dyn SolverEvents,
        background: &mut dyn Background,
    ) -> Result<(), SolveError> {
        solver.factor_panels(range, events, background)
    }
}
