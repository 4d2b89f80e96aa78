//! Products whose operands are rounded to fewer bits than their sums have.

use std::convert::Infallible;

use super::bf16::{self, Bf16, Bf16Library};
use super::{MatMut, MatRef};

pub trait RoundedProducts<T>: Copy + Send + Sync + 'static {
    /// Rounds U for [`Self::multiply`]. Both have contiguous rows.
    fn pack(self, u: MatRef<T>, packed: MatMut<Bf16>);

    /// `A2 := A2 - L2 U`, with L2 rounded. All have contiguous rows. L2 is rounded here, as a
    /// product reads each of its rows once, but U for each piece of rows.
    fn multiply(self, l2: MatRef<T>, u: MatRef<Bf16>, a2: MatMut<T>);
}

/// How products of operands that are rounded to bf16 are computed. Sums are in single precision.
#[derive(Debug, Clone, Copy)]
pub enum Bf16Products {
    /// By SGEMM: products of two bf16 are exact in it.
    Emulated,
    Library(&'static Bf16Library),
}

impl RoundedProducts<f32> for Bf16Products {
    fn pack(self, u: MatRef<f32>, packed: MatMut<Bf16>) {
        bf16::pack(u, packed);
    }

    fn multiply(self, l2: MatRef<f32>, u: MatRef<Bf16>, a2: MatMut<f32>) {
        match self {
            Self::Emulated => bf16::subtract_product_by_sgemm(l2, u, a2),
            Self::Library(library) => {
                bf16::packed(l2, |l2| library.subtract_product(l2, u, a2));
            }
        }
    }
}

/// There are none in double precision.
impl RoundedProducts<f64> for Infallible {
    fn pack(self, _: MatRef, _: MatMut<Bf16>) {
        match self {}
    }

    fn multiply(self, _: MatRef, _: MatRef<Bf16>, _: MatMut) {
        match self {}
    }
}
