//! The numbers of a matrix, and the BLAS calls for them.

use std::convert::Infallible;
use std::fmt::{Debug, Display};

use bytemuck::Pod;

use super::ffi::BlasInt;
use super::solve_rows::SolveKernel;
use super::transpose::Squares;
use super::{Bf16Products, MatRef, RoundedProducts, kernels, load, mixed};

/// A triangle of a matrix, which may have other numbers on its other side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Triangle {
    /// The lower one, with 1 on the diagonal in place of what is stored there.
    UnitLower,
    Upper,
}

pub struct GemmArguments<T> {
    pub trans: [u8; 2],
    pub m: BlasInt,
    pub n: BlasInt,
    pub k: BlasInt,
    pub alpha: T,
    pub a: *const T,
    pub lda: BlasInt,
    pub b: *const T,
    pub ldb: BlasInt,
    pub beta: T,
    pub c: *mut T,
    pub ldc: BlasInt,
}

/// The arguments of xTRSM, as the Fortran interface names them; alpha is 1.
pub struct TrsmArguments<T> {
    pub side: u8,
    pub uplo: u8,
    pub trans: u8,
    pub diag: u8,
    pub m: BlasInt,
    pub n: BlasInt,
    pub a: *const T,
    pub lda: BlasInt,
    pub b: *mut T,
    pub ldb: BlasInt,
}

/// A number of single or double precision. In buffers that messages carry, which hold doubles,
/// numbers of single precision are stored two to a double.
pub trait Element:
    SolveKernel + Squares + Pod + Default + PartialOrd + Debug + Display + Into<f64> + Send + Sync
{
    const ZERO: Self;
    const ONE: Self;
    const MINUS_ONE: Self;

    /// Products of operands with fewer bits.
    type Rounded: RoundedProducts<Self>;

    const PER_DOUBLE: usize = size_of::<f64>() / size_of::<Self>();

    fn rounded(value: f64) -> Self;

    /// Doubles of a buffer that holds `count` numbers.
    fn doubles(count: usize) -> usize {
        count.div_ceil(Self::PER_DOUBLE)
    }

    fn from_doubles(doubles: &[f64]) -> &[Self] {
        bytemuck::cast_slice(doubles)
    }

    fn from_doubles_mut(doubles: &mut [f64]) -> &mut [Self] {
        bytemuck::cast_slice_mut(doubles)
    }

    fn swap(x: &mut [Self], y: &mut [Self]);

    /// `C := alpha op(A) op(B) + beta C`.
    ///
    /// # Safety
    /// All elements that the shapes and leading dimensions name are in memory that is borrowed, C's
    /// exclusively.
    unsafe fn gemm(arguments: &GemmArguments<Self>);

    /// `B := op(A)^-1 B`, or `B op(A)^-1`, with a triangle A.
    ///
    /// # Safety
    /// As for [`Self::gemm`], with B exclusively borrowed.
    unsafe fn trsm(arguments: &TrsmArguments<Self>);

    /// `x := T^-1 x` in double precision, T a triangle of the square `a` with contiguous rows.
    fn solve_triangle(triangle: Triangle, a: MatRef<Self>, x: &mut [f64]);

    /// `y := y - A x` in double precision, with contiguous rows of A.
    fn subtract_product(a: MatRef<Self>, x: &[f64], y: &mut [f64]);
}

macro_rules! element {
    ($type:ty, $rounded:ty, $gemm:ident, $trsm:ident, $swap:expr, $vectors:ident) => {
        impl Element for $type {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const MINUS_ONE: Self = -1.0;

            type Rounded = $rounded;

            fn rounded(value: f64) -> Self {
                value as Self
            }

            fn swap(x: &mut [Self], y: &mut [Self]) {
                $swap(x, y)
            }

            unsafe fn gemm(arguments: &GemmArguments<Self>) {
                let GemmArguments { trans: [trans_a, trans_b], m, n, k, .. } = arguments;
                let GemmArguments { alpha, a, lda, b, ldb, beta, c, ldc, .. } = arguments;
                // SAFETY: the caller's promise.
                unsafe {
                    (load::functions().$gemm)(
                        trans_a, trans_b, m, n, k, alpha, *a, lda, *b, ldb, beta, *c, ldc, 1, 1,
                    );
                }
            }

            unsafe fn trsm(arguments: &TrsmArguments<Self>) {
                let TrsmArguments { side, uplo, trans, diag, m, n, a, lda, b, ldb } = arguments;
                // SAFETY: the caller's promise.
                unsafe {
                    (load::functions().$trsm)(
                        side, uplo, trans, diag, m, n, &1.0, *a, lda, *b, ldb, 1, 1, 1, 1,
                    );
                }
            }

            fn solve_triangle(triangle: Triangle, a: MatRef<Self>, x: &mut [f64]) {
                $vectors::solve_triangle(triangle, a, x)
            }

            fn subtract_product(a: MatRef<Self>, x: &[f64], y: &mut [f64]) {
                $vectors::subtract_product(a, x, y)
            }
        }
    };
}

element!(f64, Infallible, dgemm, dtrsm, kernels::swap, double);
element!(f32, Bf16Products, sgemm, strsm, <[f32]>::swap_with_slice, mixed);

/// Products of a vector and a matrix of doubles, by the BLAS.
mod double {
    pub(super) use crate::blas::solve_triangle;
    use crate::blas::{MatRef, gemv};

    pub(super) fn subtract_product(a: MatRef, x: &[f64], y: &mut [f64]) {
        gemv(-1.0, a, x, 1.0, y);
    }
}
