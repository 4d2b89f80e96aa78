//! Numbers of 16 bits with the exponent of floats (bf16), and products of matrices of them.
//!
//! ```text
//! float  1 sign | 8 exponent | 23 significand
//! bf16   1 sign | 8 exponent |  7 significand      the first half of a float
//! ```

mod library;
pub(super) mod number;

use std::cell::RefCell;
use std::thread::LocalKey;

use bytemuck::Pod;

use super::{MatMut, MatRef, gemm, kernels};

#[cfg(test)]
pub(crate) use library::tests::stand_ins;
pub use library::{Bf16Library, libraries, select, selected};
pub use number::Bf16;

/// `packed := a`, rounded. Both have contiguous rows.
pub(crate) fn pack(a: MatRef<f32>, mut packed: MatMut<Bf16>) {
    assert_eq!((a.rows(), a.cols()), (packed.rows(), packed.cols()), "pack shapes");
    (0..a.rows()).for_each(|i| kernels::pack_bf16(a.row(i), packed.row_mut(i)));
}

pub(super) fn packed(a: MatRef<f32>, multiply: impl FnOnce(MatRef<Bf16>)) {
    thread_local! {
        static PACKED: RefCell<Vec<Bf16>> = const { RefCell::new(Vec::new()) };
    }
    let (rows, cols) = (a.rows(), a.cols());
    with_room(&PACKED, rows * cols, |room| {
        pack(a, MatMut::row_major(room, rows, cols, cols));
        multiply(MatRef::row_major(room, rows, cols, cols));
    });
}

/// `C := C - A B` with A rounded, by SGEMM on floats with the values of the operands.
pub(super) fn subtract_product_by_sgemm(a: MatRef<f32>, b: MatRef<Bf16>, c: MatMut<f32>) {
    thread_local! {
        static FLOATS: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
    }
    let (m, k, n) = (a.rows(), b.rows(), b.cols());
    with_room(&FLOATS, m * k + k * n, |room| {
        let (a_floats, b_floats) = room.split_at_mut(m * k);
        for (i, row) in a_floats.chunks_exact_mut(k.max(1)).enumerate() {
            row.iter_mut().zip(a.row(i)).for_each(|(x, &a)| *x = Bf16::from(a).into());
        }
        for (i, row) in b_floats.chunks_exact_mut(n.max(1)).enumerate() {
            row.iter_mut().zip(b.row(i)).for_each(|(x, &b)| *x = b.into());
        }
        let (a, b) = (MatRef::row_major(a_floats, m, k, k), MatRef::row_major(b_floats, k, n, n));
        gemm(-1.0, a, b, 1.0, c);
    });
}

/// Calls `work` with room for `len` numbers, which this thread keeps for the next call.
fn with_room<T: Pod>(
    room: &'static LocalKey<RefCell<Vec<T>>>,
    len: usize,
    work: impl FnOnce(&mut [T]),
) {
    room.with_borrow_mut(|room| {
        if room.len() < len {
            room.resize(len, T::zeroed());
        }
        work(&mut room[..len]);
    });
}
