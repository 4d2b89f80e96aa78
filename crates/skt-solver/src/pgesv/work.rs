//! The work space that a rank needs besides its part of the matrix.

use super::column::ColumnMemory;
use super::factored::Factored;
use super::local::LocalShape;
use super::{Params, packing, panel, trailing};
use crate::grid::Cyclic;
use crate::swap;

impl<T: Factored> LocalShape<T> {
    /// Doubles of work space besides the matrix, for `params` and the distribution `rows`, on
    /// process row `myrow`; at most `usize::MAX`.
    pub fn work_doubles(&self, params: &Params, rows: Cyclic, myrow: usize) -> usize {
        let message = panel::largest::<T>(params.n, params.nb, rows, myrow);
        let messages = message.saturating_mul(params.depth + 1);
        let space = T::space_doubles(params, rows, myrow);
        messages.saturating_add(space).saturating_add(self.exchange_doubles(params, rows, myrow))
    }

    /// Doubles of work space for products of rounded operands, besides [`Self::work_doubles`]; at
    /// most `usize::MAX`.
    pub fn packing_doubles(&self, params: &Params) -> usize {
        let nb = params.widest_panel();
        packing::doubles(nb, self.cols).saturating_add(packing::doubles(nb, nb))
    }

    /// Doubles of the work space of the row exchange, a part of [`Self::work_doubles`].
    pub(super) fn exchange_doubles(&self, params: &Params, rows: Cyclic, myrow: usize) -> usize {
        let nb = params.widest_panel();
        match rows.procs {
            1 => 0,
            _ if params.share => {
                ColumnMemory::doubles(nb, T::doubles(self.cols), T::doubles(nb), myrow)
            }
            _ => trailing::work_doubles::<T>(params, self.cols)
                .saturating_add(swap::RowBuffers::doubles(nb, T::doubles(nb))),
        }
    }
}
