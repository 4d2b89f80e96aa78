//! U as products read it: where they round their operands, in a rounded copy.

use super::{SolveError, memory_error};
use crate::blas::bf16::Bf16;
use crate::blas::{Element, MatMut, MatRef, RoundedProducts};
use crate::team::Team;
use crate::tuning::TUNING;
use crate::update::ProductU;
use skt_comm::PageBuf;

/// Memory for U, where products read it packed.
pub(super) struct Packing<T: Element> {
    memory: Option<(T::Rounded, PageBuf)>,
}

impl<T: Element> Packing<T> {
    /// For products that read U as it was solved for.
    pub(crate) const NONE: Self = Self { memory: None };

    /// Memory for `products`, if they read U packed, of up to `nb` rows and `cols` columns.
    pub(crate) fn new(
        products: Option<T::Rounded>,
        nb: usize,
        cols: usize,
    ) -> Result<Self, SolveError> {
        let Some(products) = products else { return Ok(Self::NONE) };
        let room = PageBuf::new(doubles(nb, cols)).map_err(memory_error("the packed rows of U"))?;
        Ok(Self { memory: Some((products, room)) })
    }

    pub(crate) fn pack<'a>(&'a mut self, team: &Team, u: MatRef<'a, T>) -> ProductU<'a, T> {
        let Some((products, room)) = &mut self.memory else { return ProductU::Solved(u) };
        let (rows, cols) = (u.rows(), u.cols());
        let numbers: &mut [Bf16] = bytemuck::cast_slice_mut(room);
        let packed = MatMut::row_major(numbers, rows, cols, cols).share();
        team.split(rows, TUNING.exchange_grain_rows, |part| {
            // SAFETY: the team's parts do not overlap.
            let packed = unsafe { packed.block(part.clone(), 0..cols) };
            products.pack(u.block(part, 0..cols), packed);
        });
        // SAFETY: the memory is only read from here on.
        ProductU::Packed(*products, unsafe { packed.read(0..rows, 0..cols) })
    }
}

/// Doubles of the memory for U of up to `nb` rows and `cols` columns; at most `usize::MAX`.
pub(super) fn doubles(nb: usize, cols: usize) -> usize {
    nb.saturating_mul(cols).div_ceil(size_of::<f64>() / size_of::<Bf16>())
}
