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
use super::{MatMut, MatRef};

#[cfg(test)]
pub(crate) use library::tests::stand_ins;
pub use library::{Bf16Library, libraries, select, selected};

/// A bf16: the first 16 bits of a float whose others are 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(transparent)]
pub struct Bf16(pub(super) u16);

impl From<Bf16> for f32 {
    fn from(number: Bf16) -> Self {
        f32::from_bits(u32::from(number.0) << 16)
    }
}

/// Rounds floats to numbers that a bf16 has: each to the nearest one and, of two, to that with an
/// even significand.
pub fn round(numbers: &mut [f32]) {
    kernels::round_to_bf16(numbers);
}

/// `packed := a`, whose numbers [`round`] has rounded. Both have contiguous rows.
///
/// # Panics
/// When the shapes differ, or a matrix is column-major.
pub fn pack(a: MatRef<f32>, mut packed: MatMut<Bf16>) {
    assert_eq!((a.rows(), a.cols()), (packed.rows(), packed.cols()), "pack shapes");
    (0..a.rows()).for_each(|i| kernels::pack_bf16(a.row(i), packed.row_mut(i)));
}

/// Calls `multiply` with a packed copy of `a`, whose numbers [`round`] has rounded.
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

/// Calls `multiply` with the floats of `a`.
pub(super) fn unpacked(a: MatRef<Bf16>, multiply: impl FnOnce(MatRef<f32>)) {
    thread_local! {
        static UNPACKED: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
    }
    let (rows, cols) = (a.rows(), a.cols());
    with_room(&UNPACKED, rows * cols, |room| {
        for (i, row) in room.chunks_exact_mut(cols.max(1)).enumerate() {
            row.iter_mut().zip(a.row(i)).for_each(|(x, &number)| *x = number.into());
        }
        multiply(MatRef::row_major(room, rows, cols, cols));
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
            let mut rounded = numbers.clone();
            round(&mut rounded);
            for (&x, &y) in numbers.iter().zip(&rounded) {
                prop_assert_eq!(x.is_nan(), y.is_nan());
                if x.is_finite() {
                    prop_assert_eq!(nearest(x).to_bits(), y.to_bits(), "{} to {}", x, y);
                } else if !x.is_nan() {
                    prop_assert_eq!(x, y);
                }
            }
            let mut packed = vec![Bf16(0); rounded.len()];
            let len = rounded.len();
            pack(
                MatRef::row_major(&rounded, 1, len, len),
                MatMut::row_major(&mut packed, 1, len, len),
            );
            let back: Vec<u32> = packed.iter().map(|&number| f32::from(number).to_bits()).collect();
            prop_assert_eq!(back, Vec::from_iter(rounded.iter().map(|x| x.to_bits())));
        }
    }
}
