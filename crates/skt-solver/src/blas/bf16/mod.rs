//! Numbers of 16 bits with the exponent of floats (bf16), and products of matrices of them.
//!
//! ```text
//! float  1 sign | 8 exponent | 23 significand
//! bf16   1 sign | 8 exponent |  7 significand      the first half of a float
//! ```

mod library;

use std::cell::RefCell;
use std::thread::LocalKey;

use bytemuck::{Pod, Zeroable};

use super::kernels;
use super::{MatMut, MatRef, gemm};

#[cfg(test)]
pub(crate) use library::tests::stand_ins;
pub use library::{Bf16Library, libraries, select, selected};

/// A bf16: the first 16 bits of a float whose others are 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(transparent)]
pub struct Bf16(u16);

impl From<Bf16> for f32 {
    fn from(number: Bf16) -> Self {
        f32::from_bits(u32::from(number.0) << 16)
    }
}

/// The nearest bf16 and, of two, that with an even significand.
impl From<f32> for Bf16 {
    fn from(number: f32) -> Self {
        let bits = number.to_bits();
        // Half of the distance of two bf16 but for ties, which are rounded up to an even one.
        let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1));
        // The sum may make a NaN a number: cut, with a bit that stays.
        let kept = if number.is_nan() { bits | 0x0040_0000 } else { rounded };
        Self((kept >> 16) as u16)
    }
}

/// `packed := a`, rounded. Both have contiguous rows.
///
/// # Panics
/// When the shapes differ, or a matrix is column-major.
pub fn pack(a: MatRef<f32>, mut packed: MatMut<Bf16>) {
    assert_eq!((a.rows(), a.cols()), (packed.rows(), packed.cols()), "pack shapes");
    (0..a.rows()).for_each(|i| kernels::pack_bf16(a.row(i), packed.row_mut(i)));
}

/// Calls `multiply` with a packed copy of `a`.
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
///
/// # Panics
/// When the shapes do not fit, or a matrix is column-major.
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The nearest of the two floats around `x` that a bf16 has; of both, the even one.
    fn nearest(x: f32) -> f32 {
        let below = x.to_bits() & 0xffff_0000;
        let [low, high] = [below, below + 0x1_0000].map(f32::from_bits);
        // In the next binade beyond the largest bf16 for infinity, as rounding to nearest has it.
        let exact =
            |y: f32| if y.is_finite() { f64::from(y) } else { 2f64.powi(128).copysign(y.into()) };
        let [to_low, to_high] = [low, high].map(|y| (f64::from(x) - exact(y)).abs());
        let is_low = to_low < to_high || to_low == to_high && below & 0x1_0000 == 0;
        if is_low { low } else { high }
    }

    proptest! {
        #[test]
        fn numbers_are_rounded_to_the_nearest_even(
            bits in prop::collection::vec(any::<u32>(), 0..80), tie: u16,
        ) {
            let ties = [u32::from(tie) << 16 | 0x8000, u32::from(tie) << 16];
            let numbers: Vec<f32> = bits.into_iter().chain(ties).map(f32::from_bits).collect();
            let (len, mut packed) = (numbers.len(), vec![Bf16::default(); numbers.len()]);
            pack(
                MatRef::row_major(&numbers, 1, len, len),
                MatMut::row_major(&mut packed, 1, len, len),
            );
            for (&x, &y) in numbers.iter().zip(&packed) {
                let y = f32::from(y);
                prop_assert_eq!(x.is_nan(), y.is_nan());
                if x.is_finite() {
                    prop_assert_eq!(nearest(x).to_bits(), y.to_bits(), "{} to {}", x, y);
                } else if !x.is_nan() {
                    prop_assert_eq!(x, y);
                }
            }
        }
    }
}
