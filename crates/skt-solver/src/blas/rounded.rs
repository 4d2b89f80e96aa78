//! Products whose operands are rounded to fewer bits than their sums have.

use std::convert::Infallible;

use super::bf16::{self, Bf16, Bf16Library};
use super::{MatMut, MatRef, gemm};

/// Products of rounded operands, added to a matrix of `T`.
pub trait RoundedProducts<T>: Copy + Send + Sync + 'static {
    /// Rounds numbers that products will read.
    fn round(self, numbers: &mut [T]);

    /// `packed := u`, whose numbers are rounded. Both have contiguous rows.
    ///
    /// # Panics
    /// When the shapes differ, or a matrix is column-major.
    fn pack(self, u: MatRef<T>, packed: MatMut<Bf16>);

    /// `A2 := A2 - L2 U`, with U packed and the numbers of L2 rounded. All have contiguous rows.
    ///
    /// # Panics
    /// When the shapes do not fit, or a matrix is column-major.
    fn multiply(self, l2: MatRef<T>, u: MatRef<Bf16>, a2: MatMut<T>);
}

/// How products of operands that are rounded to bf16 are computed. Sums are in single precision.
#[derive(Debug, Clone, Copy)]
pub enum Bf16Products {
    /// By SGEMM: products of two bf16 are exact in it.
    Emulated,
    /// By a library.
    Library(&'static Bf16Library),
}

impl RoundedProducts<f32> for Bf16Products {
    fn round(self, numbers: &mut [f32]) {
        bf16::round(numbers);
    }

    fn pack(self, u: MatRef<f32>, packed: MatMut<Bf16>) {
        bf16::pack(u, packed);
    }

    fn multiply(self, l2: MatRef<f32>, u: MatRef<Bf16>, a2: MatMut<f32>) {
        match self {
            Self::Emulated => bf16::unpacked(u, |u| gemm(-1.0, l2, u, 1.0, a2)),
            Self::Library(library) => bf16::packed(l2, |l2| library.subtract_product(l2, u, a2)),
        }
    }
}

/// There are none in double precision.
impl RoundedProducts<f64> for Infallible {
    fn round(self, _: &mut [f64]) {
        match self {}
    }

    fn pack(self, _: MatRef, _: MatMut<Bf16>) {
        match self {}
    }

    fn multiply(self, _: MatRef, _: MatRef<Bf16>, _: MatMut) {
        match self {}
    }
}
