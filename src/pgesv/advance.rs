//! Bringing a panel's columns up to date, factoring it, and sending it off.

use std::time::Instant;

use super::company::Turn;
use super::panel::{self, Flight, Layout};
use super::{SolveError, Solver};
use crate::blas::{MatRef, transpose};
use crate::comm::Comm;
use crate::pfact::{self, PfactError};

impl<C: Comm> Solver<'_, C> {
    /// Advances panel `next`, where the oldest panel, `oldest`, has been taken
    /// out of flight.
    pub(super) fn advance(
        &mut self,
        next: usize,
        oldest: &Flight<C>,
        turn: &mut Turn,
    ) -> Result<(), SolveError> {
        self.give_if_alone(turn);
        let applied = self.bring_up_to_date(next, Some(oldest));
        turn.take();
        applied?;
        self.send_off(next, turn)
    }

    /// Gives the turn away where what comes speaks to the process column alone, and
    /// this rank is all of it.
    pub(super) fn give_if_alone(&self, turn: &mut Turn) {
        if self.grid.p == 1 {
            turn.give();
        }
    }

    /// Applies to the columns of panel `next`, on their owner, the panel `oldest`
    /// and all in flight.
    pub(super) fn bring_up_to_date(
        &mut self,
        next: usize,
        oldest: Option<&Flight<C>>,
    ) -> Result<(), SolveError> {
        if next % self.grid.q != self.grid.mycol {
            return Ok(());
        }
        let cols = self.local_cols(self.panel_cols(next));
        let flights = std::mem::take(&mut self.work.flights);
        let applied = oldest
            .into_iter()
            .chain(&flights)
            .try_for_each(|flight| self.apply_to_panel_columns(flight, cols.clone()));
        self.work.flights = flights;
        applied
    }

    /// Factors panel `next`, whose columns are up to date, on their owner, and
    /// starts to broadcast it.
    pub(super) fn send_off(&mut self, next: usize, turn: &mut Turn) -> Result<(), SolveError> {
        let layout = Layout::new(next, (self.params.n, self.params.nb), self.rows, self.grid.myrow);
        let start = Instant::now();
        let mut place = self.work.panels.place(&self.grid.row, next)?;
        self.work.phases.bcast += start.elapsed().as_secs_f64();
        let start = Instant::now();
        if next % self.grid.q == self.grid.mycol {
            let cols = self.local_cols(self.panel_cols(next));
            // SAFETY: the team works on columns right of all panels in flight, if at all.
            let columns = unsafe { self.a.block(0..self.shape.rows, cols) };
            self.give_if_alone(turn);
            let factored = self.factor_panel(&layout, columns.as_ref(), place.message());
            turn.take();
            factored?;
            self.work.phases.panel += start.elapsed().as_secs_f64();
        }
        let start = Instant::now();
        let flight = Flight::start(self.grid, self.params.bcast, next, layout, place)?;
        self.work.flights.push_back(flight);
        self.work.phases.bcast += start.elapsed().as_secs_f64();
        Ok(())
    }

    /// Writes U1 of a panel into its columns, where the back substitution looks
    /// for it. Not before the panel is applied: as long as it is in flight, its
    /// columns are as a checkpoint needs them.
    pub(super) fn keep_u1(&self, flight: &Flight<C>) {
        if flight.k % self.grid.q != self.grid.mycol {
            return;
        }
        let (j, jb) = (flight.layout.j, flight.layout.jb);
        let (l1, cols) = (flight.layout.l1(flight.data()), self.local_cols(flight.columns()));
        for (local, row, len) in self.rows.stretches(j..j + jb, self.grid.myrow) {
            // SAFETY: nobody else is on these columns any more.
            let diagonal = unsafe { self.a.block(local..local + len, cols.clone()) };
            transpose::copy(l1.block(row - j..row - j + len, 0..jb), diagonal);
        }
    }

    /// Factors a panel into its message; its columns stay as they are. A panel
    /// that breaks is marked so, for all ranks to learn of it from the message.
    fn factor_panel(
        &mut self,
        layout: &Layout,
        columns: MatRef,
        buf: &mut [f64],
    ) -> Result<(), SolveError> {
        let work = &mut *self.work;
        let mut w = layout.w(&mut work.panel);
        {
            let source = columns.block(layout.top..columns.rows(), 0..layout.jb);
            let target =
                w.rb().block(pfact::first_own_row(layout.jb)..layout.w_rows(), 0..layout.jb);
            panel::copy_rows(source, target, self.team);
        }
        let (head, ipiv) = layout.head_and_ipiv(buf);
        let place =
            pfact::Place { j: layout.j, rows: self.rows, myrow: self.grid.myrow, top: layout.top };
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
        Ok(())
    }
}
