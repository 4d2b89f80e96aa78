//! The Fortran interface of the BLAS.
//!
//! The lengths of character arguments, at the end, are part of that interface; libraries written in
//! C ignore them.

use std::ffi::c_int;

/// Integers of the BLAS (LP64).
pub type BlasInt = c_int;

/// A dimension as the BLAS counts it.
///
/// # Panics
/// Beyond 2^31 - 1, which no local matrix of a real machine reaches.
pub fn int(n: usize) -> BlasInt {
    BlasInt::try_from(n).expect("a matrix dimension beyond what the BLAS can count")
}

/// Declares xGEMM and xTRSM for one type of numbers.
macro_rules! level_3 {
    ($type:ty, $gemm:ident, $trsm:ident) => {
        unsafe extern "C" {
            pub fn $gemm(
                transa: *const u8,
                transb: *const u8,
                m: *const BlasInt,
                n: *const BlasInt,
                k: *const BlasInt,
                alpha: *const $type,
                a: *const $type,
                lda: *const BlasInt,
                b: *const $type,
                ldb: *const BlasInt,
                beta: *const $type,
                c: *mut $type,
                ldc: *const BlasInt,
                transa_len: usize,
                transb_len: usize,
            );
            pub fn $trsm(
                side: *const u8,
                uplo: *const u8,
                transa: *const u8,
                diag: *const u8,
                m: *const BlasInt,
                n: *const BlasInt,
                alpha: *const $type,
                a: *const $type,
                lda: *const BlasInt,
                b: *mut $type,
                ldb: *const BlasInt,
                side_len: usize,
                uplo_len: usize,
                transa_len: usize,
                diag_len: usize,
            );
        }
    };
}

level_3!(f64, dgemm_, dtrsm_);
level_3!(f32, sgemm_, strsm_);

unsafe extern "C" {
    pub fn dtrsv_(
        uplo: *const u8,
        trans: *const u8,
        diag: *const u8,
        n: *const BlasInt,
        a: *const f64,
        lda: *const BlasInt,
        x: *mut f64,
        incx: *const BlasInt,
        uplo_len: usize,
        trans_len: usize,
        diag_len: usize,
    );
    pub fn dgemv_(
        trans: *const u8,
        m: *const BlasInt,
        n: *const BlasInt,
        alpha: *const f64,
        a: *const f64,
        lda: *const BlasInt,
        x: *const f64,
        incx: *const BlasInt,
        beta: *const f64,
        y: *mut f64,
        incy: *const BlasInt,
        trans_len: usize,
    );
}
