//! The row exchange of one half of the trailing columns, by messages that travel while the
//! other half is multiplied.

use std::mem;
use std::ops::Range;
use std::sync::Arc;

use super::SolveError;
use super::local::Local;
use super::panel::Panel;
use crate::hpl::comm::{Comm, PanelBuf};
use crate::hpl::swap::direct::{Flight, Landed};
use crate::hpl::swap::{Arrived, RowBuffers};

/// The exchange of one half, with its work space.
pub(super) struct Half<C: Comm> {
    rows: Rows<C>,
    u: PanelBuf,
}

/// Where the rows are.
enum Rows<C: Comm> {
    /// In A.
    Idle(PanelBuf),
    /// On their way, for a panel.
    UnderWay(usize, Flight<C>),
    /// Here. Others may still read those of this rank.
    Landed(Landed<C>),
    /// An error has ended the exchange.
    Failed,
}

impl<C: Comm> Half<C> {
    /// For panels of up to `nb` columns and up to `cols` columns at a time.
    ///
    /// # Errors
    /// When there is no memory.
    pub fn new(nb: usize, cols: usize) -> std::io::Result<Self> {
        let rows = Rows::Idle(PanelBuf::new(RowBuffers::rows_doubles(nb, cols))?);
        Ok(Self { rows, u: PanelBuf::new(nb * cols)? })
    }

    /// Starts to exchange the rows of `panel` on the columns `cols`, unless they are on
    /// their way. Waits, if at all, for messages of the exchange before. A does not change.
    ///
    /// # Safety
    /// No other thread writes to these columns.
    ///
    /// # Errors
    /// When a rank cannot be reached.
    pub unsafe fn start(
        &mut self,
        local: &Local<C>,
        panel: &Panel<C>,
        cols: Range<usize>,
    ) -> Result<(), SolveError> {
        if let Rows::UnderWay(k, _) = self.rows {
            assert_eq!(k, panel.k, "rows are exchanged in the order of the panels");
            return Ok(());
        }
        let buffer = self.take_buffer()?;
        // SAFETY: the caller's promise.
        let a = unsafe { local.a.read(0..local.shape.rows, cols) };
        let flight = Flight::start(
            &local.grid.col,
            Arc::clone(panel.plan(local.rows, local.grid.myrow)),
            a,
            buffer,
        )?;
        self.rows = Rows::UnderWay(panel.k, flight);
        Ok(())
    }

    /// Moves the messages on; never waits.
    ///
    /// # Errors
    /// When a rank cannot be reached.
    pub fn progress(&mut self) -> Result<(), SolveError> {
        match &mut self.rows {
            Rows::UnderWay(_, flight) => Ok(flight.progress()?),
            _ => Ok(()),
        }
    }

    /// Waits for the rows, which must be on their way. Returns them, with a place for U.
    ///
    /// # Safety
    /// No other thread uses these columns.
    ///
    /// # Errors
    /// When a rank cannot be reached.
    pub unsafe fn arrive(
        &mut self,
        local: &Local<C>,
        panel: &Panel<C>,
        cols: Range<usize>,
    ) -> Result<Arrived<'_>, SolveError> {
        let Rows::UnderWay(k, flight) = mem::replace(&mut self.rows, Rows::Failed) else {
            panic!("rows are exchanged before they are used");
        };
        assert_eq!(k, panel.k, "rows are used in the order of the panels");
        let width = cols.len();
        // SAFETY: the caller's promise.
        let a = unsafe { local.a.block(0..local.shape.rows, cols) };
        self.rows = Rows::Landed(flight.land(a)?);
        let Rows::Landed(landed) = &self.rows else { unreachable!("just landed") };
        Ok(Arrived::on_this_rank(landed.rows(), &mut self.u, width))
    }

    /// Waits until no message is on its way.
    ///
    /// # Errors
    /// When a rank cannot be reached.
    ///
    /// # Panics
    /// When rows are on their way, which must be used first.
    pub fn wait_all(&mut self) -> Result<(), SolveError> {
        self.rows = Rows::Idle(self.take_buffer()?);
        Ok(())
    }

    fn take_buffer(&mut self) -> Result<PanelBuf, SolveError> {
        match mem::replace(&mut self.rows, Rows::Failed) {
            Rows::Idle(buffer) => Ok(buffer),
            Rows::Landed(landed) => Ok(landed.into_buffer()?),
            Rows::UnderWay(k, _) => panic!("the rows of panel {k} are not used yet"),
            Rows::Failed => panic!("an exchange after one that has failed"),
        }
    }
}
