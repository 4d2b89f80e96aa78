//! The functions, with the Fortran interface of the BLAS: letters and numbers by reference, 32-bit
//! integers, matrices by columns, the lengths of letters at the end.
//!
//! Arguments that the solver never has (strides of vectors other than 1) and illegal ones end the
//! process: a panic cannot pass a C function.
//!
//! # Safety
//! Of all functions: the references are valid, all elements that the shapes and leading dimensions
//! name are in memory that nothing else writes to, and the result's nothing else reads.
#![allow(clippy::too_many_arguments, clippy::missing_safety_doc)]

use std::ffi::c_int;

use skt_host::vectors::Vectors;

use super::gemm::{self, Shape};
use super::strided::Strided;
use super::triangle::{self, Triangle};
use super::vector;

type Letter = *const u8;
type Int = *const c_int;

/// The letter of an argument, one of `legal`, which are upper case.
unsafe fn letter(at: Letter, legal: &[u8]) -> u8 {
    // SAFETY: the caller's promise.
    let letter = unsafe { *at }.to_ascii_uppercase();
    assert!(legal.contains(&letter), "built-in BLAS: an illegal letter {:?}", char::from(letter));
    letter
}

unsafe fn is_transposed(at: Letter) -> bool {
    // SAFETY: the caller's promise.
    unsafe { letter(at, b"NTC") != b'N' }
}

unsafe fn size(at: Int) -> usize {
    // SAFETY: the caller's promise.
    usize::try_from(unsafe { *at }).expect("built-in BLAS: no dimension is negative")
}

unsafe fn assert_contiguous(step: Int) {
    // SAFETY: the caller's promise.
    assert_eq!(unsafe { *step }, 1, "built-in BLAS: vectors are contiguous");
}

unsafe fn stored<T: Copy>(
    first: *const T,
    rows: usize,
    ld: Int,
    is_transposed: bool,
) -> Strided<T> {
    // SAFETY: the caller's promise.
    let ld = unsafe { size(ld) };
    assert!(ld >= rows.max(1), "built-in BLAS: a leading dimension of {ld} for {rows} rows");
    Strided::stored(first.cast_mut(), ld, is_transposed)
}

unsafe fn triangle<T: Copy>(
    (uplo, trans, diag): (Letter, Letter, Letter),
    order: usize,
    a: *const T,
    lda: Int,
) -> Triangle<T> {
    // SAFETY: the caller's promise.
    unsafe {
        let is_upper = letter(uplo, b"UL") == b'U';
        let is_unit = letter(diag, b"UN") == b'U';
        let matrix = stored(a, order, lda, false);
        let triangle = Triangle { matrix, order, is_upper, is_unit };
        if is_transposed(trans) { triangle.transposed() } else { triangle }
    }
}

/// A vector, or none if it has no elements: then the address may be any.
unsafe fn elements<'a, T>(first: *const T, len: usize) -> &'a [T] {
    // SAFETY: the caller's promise.
    if len == 0 { &[] } else { unsafe { std::slice::from_raw_parts(first, len) } }
}

unsafe fn elements_mut<'a, T>(first: *mut T, len: usize) -> &'a mut [T] {
    // SAFETY: the caller's promise.
    if len == 0 { &mut [] } else { unsafe { std::slice::from_raw_parts_mut(first, len) } }
}

macro_rules! functions {
    ($number:ident, $gemm:ident, $trsm:ident) => {
        /// `C := alpha op(A) op(B) + beta C`.
        pub(crate) unsafe extern "C" fn $gemm(
            trans_a: Letter,
            trans_b: Letter,
            m: Int,
            n: Int,
            k: Int,
            alpha: *const $number,
            a: *const $number,
            lda: Int,
            b: *const $number,
            ldb: Int,
            beta: *const $number,
            c: *mut $number,
            ldc: Int,
            _: usize,
            _: usize,
        ) {
            // SAFETY: the caller's promise.
            unsafe {
                let shape = Shape { m: size(m), n: size(n), k: size(k) };
                let Shape { m, n, k } = shape;
                let (turn_a, turn_b) = (is_transposed(trans_a), is_transposed(trans_b));
                let a = stored(a, if turn_a { k } else { m }, lda, turn_a);
                let b = stored(b, if turn_b { n } else { k }, ldb, turn_b);
                let c = stored(c, m, ldc, false);
                gemm::gemm(Vectors::here(), shape, *alpha, a, b, *beta, c);
            }
        }

        /// `B := alpha op(A)^-1 B`, or `alpha B op(A)^-1`, with a triangle A.
        pub(crate) unsafe extern "C" fn $trsm(
            side: Letter,
            uplo: Letter,
            trans: Letter,
            diag: Letter,
            m: Int,
            n: Int,
            alpha: *const $number,
            a: *const $number,
            lda: Int,
            b: *mut $number,
            ldb: Int,
            _: usize,
            _: usize,
            _: usize,
            _: usize,
        ) {
            // SAFETY: the caller's promise.
            unsafe {
                let (m, n) = (size(m), size(n));
                let is_left = letter(side, b"LR") == b'L';
                let t = triangle((uplo, trans, diag), if is_left { m } else { n }, a, lda);
                let b = stored(b, m, ldb, false);
                if is_left {
                    triangle::solve(Vectors::here(), t, *alpha, b, n);
                } else {
                    triangle::solve(Vectors::here(), t.transposed(), *alpha, b.transposed(), m);
                }
            }
        }
    };
}

functions!(f64, dgemm, dtrsm);
functions!(f32, sgemm, strsm);

/// `x := op(A)^-1 x`, with a triangle A.
pub(crate) unsafe extern "C" fn dtrsv(
    uplo: Letter,
    trans: Letter,
    diag: Letter,
    n: Int,
    a: *const f64,
    lda: Int,
    x: *mut f64,
    incx: Int,
    _: usize,
    _: usize,
    _: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        assert_contiguous(incx);
        let n = size(n);
        let t = triangle((uplo, trans, diag), n, a, lda);
        triangle::solve_vector(Vectors::here(), t, elements_mut(x, n));
    }
}

/// `y := alpha op(A) x + beta y`.
pub(crate) unsafe extern "C" fn dgemv(
    trans: Letter,
    m: Int,
    n: Int,
    alpha: *const f64,
    a: *const f64,
    lda: Int,
    x: *const f64,
    incx: Int,
    beta: *const f64,
    y: *mut f64,
    incy: Int,
    _: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        assert_contiguous(incx);
        assert_contiguous(incy);
        let (m, n) = (size(m), size(n));
        let is_transposed = is_transposed(trans);
        let a = stored(a, m, lda, is_transposed);
        let (rows, columns) = if is_transposed { (n, m) } else { (m, n) };
        let (x, y) = (elements(x, columns), elements_mut(y, rows));
        vector::gemv(Vectors::here(), *alpha, a, x, *beta, y);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_have_any_case_and_c_is_t() {
        // SAFETY: references are valid.
        let are = b"nNtTcC".map(|letter| unsafe { is_transposed(&letter) });
        assert_eq!(are, [false, false, true, true, true, true]);
    }

    #[test]
    fn illegal_arguments_are_refused() {
        let refused = |call: &dyn Fn()| {
            let call = std::panic::AssertUnwindSafe(call);
            std::panic::catch_unwind(call).is_err()
        };
        let numbers = [0.0f64; 4];
        // SAFETY: references are valid.
        unsafe {
            assert!(refused(&|| _ = letter(&b'X', b"UL")));
            assert!(refused(&|| _ = size(&-1)));
            assert!(refused(&|| assert_contiguous(&2)));
            assert!(refused(&|| _ = stored(numbers.as_ptr(), 3, &2, false)));
            assert!(refused(&|| _ = stored(numbers.as_ptr(), 0, &0, false)));
            assert!(!refused(&|| _ = stored(numbers.as_ptr(), 2, &2, false)));
        }
    }

    /// `A = (2 1; 0 4)` by columns with `lda` 3, in each function.
    #[test]
    fn each_function_has_its_arguments_in_order() {
        let a = [2.0, 0.0, 9.0, 1.0, 4.0, 9.0];
        let floats = a.map(|x| x as f32);
        let (no, one, two, three) = (b'N', 1, 2, 3);
        // SAFETY: the arrays have these matrices.
        unsafe {
            // C := 2 A A' - C, column by column.
            let mut c = [1.0; 4];
            let (alpha, beta) = (2.0, -1.0);
            dgemm(
                &no,
                &b'T',
                &two,
                &two,
                &two,
                &alpha,
                a.as_ptr(),
                &three,
                a.as_ptr(),
                &three,
                &beta,
                c.as_mut_ptr(),
                &two,
                1,
                1,
            );
            assert_eq!(c, [9.0, 7.0, 7.0, 31.0]);
            let mut c = [1.0f32; 4];
            sgemm(
                &no,
                &b'T',
                &two,
                &two,
                &two,
                &2.0,
                floats.as_ptr(),
                &three,
                floats.as_ptr(),
                &three,
                &-1.0,
                c.as_mut_ptr(),
                &two,
                1,
                1,
            );
            assert_eq!(c, [9.0, 7.0, 7.0, 31.0]);
            // A x = 2 (3, 8), and x A = 2 (2, 9).
            let mut x = [3.0, 8.0];
            dtrsm(
                &b'L',
                &b'U',
                &no,
                &no,
                &two,
                &one,
                &2.0,
                a.as_ptr(),
                &three,
                x.as_mut_ptr(),
                &two,
                1,
                1,
                1,
                1,
            );
            assert_eq!(x, [1.0, 4.0]);
            let mut x = [2.0f32, 9.0];
            strsm(
                &b'R',
                &b'U',
                &no,
                &no,
                &one,
                &two,
                &2.0,
                floats.as_ptr(),
                &three,
                x.as_mut_ptr(),
                &one,
                1,
                1,
                1,
                1,
            );
            assert_eq!(x, [2.0, 4.0]);
            // A' x = (2, 9).
            let mut x = [2.0, 9.0];
            dtrsv(&b'U', &b'T', &no, &two, a.as_ptr(), &three, x.as_mut_ptr(), &one, 1, 1, 1);
            assert_eq!(x, [1.0, 2.0]);
            // y := 3 A x + 2 y
            let mut y = [1.0, -1.0];
            dgemv(
                &no,
                &two,
                &two,
                &3.0,
                a.as_ptr(),
                &three,
                x.as_ptr(),
                &one,
                &2.0,
                y.as_mut_ptr(),
                &one,
                1,
            );
            assert_eq!(y, [14.0, 22.0]);
        }
    }
}
