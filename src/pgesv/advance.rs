//! Bringing a panel's columns up to date, factoring it, and sending it off.

use std::time::Instant;

use super::panel::{self, Flight, Layout};
use super::{SolveError, Solver};
use crate::blas::{MatMut, transpose};
use crate::comm::Comm;
use crate::pfact::{self, PfactError};

impl<C: Comm> Solver<'_, C> {
    /// Advances panel `next` with all panels in flight applied to it.
    pub(super) fn advance(&mut self, next: usize) -> Result<(), SolveError> {
        self.advance_with(next, None)
    }

    /// The same where the oldest panel, `oldest`, has been taken out of flight.
    pub(super) fn advance_with(
        &mut self,
        next: usize,
        oldest: Option<&Flight<C>>,
    ) -> Result<(), SolveError> {
        let layout = Layout::new(next, self.params.n, self.rows, self.grid.myrow);
        let mut buf = self.work.buffers.pop().expect("a buffer for each panel in flight");
        if next % self.grid.q == self.grid.mycol {
            let cols = self.local_cols(self.panel_cols(next));
            if let Some(oldest) = oldest {
                self.apply_to_panel_columns(oldest, cols.clone())?;
            }
            let flights = std::mem::take(&mut self.work.flights);
            for flight in &flights {
                self.apply_to_panel_columns(flight, cols.clone())?;
            }
            self.work.flights = flights;
            let start = Instant::now();
            // SAFETY: the team works on columns right of all panels in flight, if at all.
            let columns = unsafe { self.a.block(0..self.shape.rows, cols) };
            self.factor_panel(&layout, columns, &mut buf)?;
            self.work.phases.panel += start.elapsed().as_secs_f64();
        }
        let start = Instant::now();
        let flight = Flight::start(self.grid, self.params.bcast, next, layout, buf)?;
        self.work.flights.push_back(flight);
        self.work.phases.bcast += start.elapsed().as_secs_f64();
        Ok(())
    }

    /// Factors a panel into its message, and leaves U1 in its columns. A panel
    /// that breaks is marked so, for all ranks to learn of it from the message.
    fn factor_panel(
        &mut self,
        layout: &Layout,
        columns: MatMut,
        buf: &mut [f64],
    ) -> Result<(), SolveError> {
        let work = &mut *self.work;
        let mut w = layout.w(&mut work.panel);
        let to = if layout.is_diagonal() { 0 } else { layout.jb };
        let first = if layout.is_diagonal() { layout.top } else { layout.below };
        let rows = columns.rows();
        {
            let source = columns.as_ref().block(first..rows, 0..layout.jb);
            let target = w.rb().block(to..layout.w_rows(), 0..layout.jb);
            panel::copy_rows(source, target, self.team);
        }
        let (head, ipiv) = layout.head_and_ipiv(buf);
        let place = pfact::Place {
            j: layout.j,
            rows: self.rows,
            myrow: self.grid.myrow,
            first_below: layout.below,
        };
        let mut panel = pfact::Panel {
            w: w.rb(),
            ipiv,
            place,
            col: &self.grid.col,
            team: self.team,
            room: &mut work.pivot_room,
        };
        match pfact::factor(&mut panel, &self.params.variant) {
            Ok(()) => panel::mark_sound(head),
            Err(PfactError::Pivot { column, value }) => {
                panel::mark_broken(head, layout.j + column, value);
            }
            Err(PfactError::Comm(error)) => return Err(error.into()),
        }
        layout.write(w.as_ref(), buf, self.team);
        if layout.is_diagonal() {
            let diagonal = columns.block(layout.top..layout.below, 0..layout.jb);
            transpose::copy(w.as_ref().block(0..layout.jb, 0..layout.jb), diagonal);
        }
        Ok(())
    }
}
