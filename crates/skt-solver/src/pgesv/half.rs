//! The row exchange of one half of the trailing columns, by messages that are sent while the other
//! half is multiplied.

use std::mem;
use std::ops::Range;
use std::sync::Arc;

use super::SolveError;
use super::local::Local;
use super::panel::Panel;
use crate::blas::Element;
use crate::swap::direct::{DirectExchange, ReceivedRows};
use crate::swap::{Arrived, RowBuffers};
use skt_comm::PageBuf;

pub struct Half {
    rows: Rows,
    u: PageBuf,
}

enum Rows {
    /// The rows are in A.
    Idle(PageBuf),
    /// The rows of a panel, by number, are being exchanged.
    UnderWay(usize, DirectExchange),
    /// The rows have arrived. Sends of this rank's rows may still be in progress.
    Received(ReceivedRows),
    /// An error has ended the exchange.
    Failed,
}

impl Half {
    /// An exchange for panels of up to `nb` columns, with up to `cols` doubles of a row at a time.
    pub(crate) fn new(nb: usize, cols: usize) -> std::io::Result<Self> {
        let rows = Rows::Idle(PageBuf::new(RowBuffers::rows_doubles(nb, cols))?);
        Ok(Self { rows, u: PageBuf::new(nb * cols)? })
    }

    /// Starts to exchange the rows of `panel` on the columns `cols`, unless the exchange is in
    /// progress. Waits, if at all, for messages of the exchange before. A does not change.
    /// Safety: no other thread writes to these columns.
    pub(crate) unsafe fn start<T: Element>(
        &mut self,
        local: &Local<T>,
        panel: &Panel<T>,
        cols: Range<usize>,
    ) -> Result<(), SolveError> {
        if let Rows::UnderWay(k, _) = self.rows {
            assert_eq!(k, panel.k, "rows are exchanged in the order of the panels");
            return Ok(());
        }
        let buffer = self.take_buffer()?;
        // SAFETY: the caller's promise.
        let a = unsafe { local.a.read(0..local.shape.rows, cols) };
        let exchange = DirectExchange::start(
            &local.grid.col,
            Arc::clone(panel.plan(local.rows, local.grid.myrow)),
            a,
            buffer,
        )?;
        self.rows = Rows::UnderWay(panel.k, exchange);
        Ok(())
    }

    pub(crate) fn progress(&mut self) -> Result<(), SolveError> {
        match &mut self.rows {
            Rows::UnderWay(_, exchange) => Ok(exchange.progress()?),
            _ => Ok(()),
        }
    }

    /// Waits for the rows, which must be in progress. Returns them, with the memory for U.
    /// Safety: no other thread uses these columns.
    pub(crate) unsafe fn arrive<T: Element>(
        &mut self,
        local: &Local<T>,
        panel: &Panel<T>,
        cols: Range<usize>,
    ) -> Result<Arrived<'_, T>, SolveError> {
        let Rows::UnderWay(k, exchange) = mem::replace(&mut self.rows, Rows::Failed) else {
            panic!("rows are exchanged before they are used");
        };
        assert_eq!(k, panel.k, "rows are used in the order of the panels");
        let width = cols.len();
        // SAFETY: the caller's promise.
        let a = unsafe { local.a.block(0..local.shape.rows, cols) };
        self.rows = Rows::Received(exchange.finish(a)?);
        let Rows::Received(received) = &self.rows else { unreachable!("just received") };
        Ok(Arrived::on_this_rank(received.rows(), &mut self.u, width))
    }

    pub(crate) fn wait_all(&mut self) -> Result<(), SolveError> {
        self.rows = Rows::Idle(self.take_buffer()?);
        Ok(())
    }

    fn take_buffer(&mut self) -> Result<PageBuf, SolveError> {
        match mem::replace(&mut self.rows, Rows::Failed) {
            Rows::Idle(buffer) => Ok(buffer),
            Rows::Received(received) => Ok(received.into_buffer()?),
            Rows::UnderWay(k, _) => panic!("the rows of panel {k} are not used yet"),
            Rows::Failed => panic!("an exchange after one that has failed"),
        }
    }
}
