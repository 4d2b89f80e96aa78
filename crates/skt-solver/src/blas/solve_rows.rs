//! `A1 := L1^-1 A1`, the triangular solve of the update, in registers.
//!
//! L1 is column-major and unit lower, A1 row-major. A strip of a few vectors of columns is solved
//! eight rows at a time: the contribution of the rows above is a product with its sums in
//! registers, and the solve among the eight rows is done in registers, too.
//!
//! ```text
//! X(I, s) = L(I,I)^-1 ( A(I, s) - L(I, 0..I) X(0..I, s) )      I: 8 rows, s: a strip
//! ```
//!
//! Nothing is packed: a step reads 8 consecutive elements of a column of L1 and one row of the
//! strip, both of which stay in the caches. This runs at the rate of DGEMM, where OpenBLAS's DTRSM
//! reaches half of it.
//!
//! The rows of A1 may be read from another buffer, in any order: rows of a row exchange are solved
//! from the buffer of the exchange into U, without a copy.
//!
//! An element of U is the same sum in the same order in any strip, so its bits do not depend on how
//! the columns are cut among threads.

use skt_host::vectors::Vectors;

use super::{Element, MatMut, MatRef, Rows};

/// Solves in place, or for the rows `from`, if there is a kernel for these layouts on this CPU.
/// Else leaves `a` as it is and returns false.
pub(super) fn solve<T: Element>(l: MatRef<T>, from: Option<&Rows<T>>, a: &mut MatMut<T>) -> bool {
    debug_assert_eq!((l.rows(), l.cols()), (a.rows(), a.rows()));
    if !l.is_col_major() || a.is_col_major() {
        return false;
    }
    let (n, width, lda) = (a.rows(), a.cols(), a.ld());
    let a = a.as_mut_ptr();
    let from = from.map(|from| (from.rows, from.cols.start));
    let operands = SolveOperands { l: l.as_ptr(), ldl: l.ld(), n, a, lda, width, from };
    // SAFETY: the views cover what the operands name, that of A exclusively.
    unsafe { T::solve(&operands) }
}

/// The operands of a solve: L, column by column, and A, row by row.
#[cfg_attr(not(any(target_arch = "x86_64", target_arch = "aarch64")), expect(dead_code))]
pub struct SolveOperands<'o, T> {
    l: *const T,
    ldl: usize,
    n: usize,
    a: *mut T,
    lda: usize,
    width: usize,
    /// The right side, if it is not in A: its rows, and the index of the first column in each.
    from: Option<(&'o [&'o [T]], usize)>,
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
impl<T> SolveOperands<'_, T> {
    /// Row `i` of the right side.
    /// Safety: there is such a row.
    #[inline(always)]
    unsafe fn right_side(&self, i: usize) -> *const T {
        // SAFETY: the caller's promise.
        unsafe {
            match self.from {
                None => self.a.add(i * self.lda),
                Some((rows, start)) => rows.get_unchecked(i).as_ptr().add(start),
            }
        }
    }
}

pub trait SolveKernel: Copy {
    /// Solves the system in A with the best instructions of this CPU. Returns false, and leaves A
    /// as it is, where no kernel is made for them.
    ///
    /// # Safety
    /// `operands` name valid memory, and no other reference to that of A is in use.
    unsafe fn solve(operands: &SolveOperands<Self>) -> bool;
}

macro_rules! choice {
    ($element:ident, $avx512:ident, $avx2:ident, $neon:ident) => {
        impl SolveKernel for $element {
            unsafe fn solve(operands: &SolveOperands<Self>) -> bool {
                match Vectors::here() {
                    // SAFETY: the processor has these instructions; the rest is the caller's
                    // promise.
                    #[cfg(target_arch = "x86_64")]
                    Vectors::Avx512 => unsafe { $avx512::solve(operands) },
                    // SAFETY: the processor has these instructions; the rest is the caller's
                    // promise.
                    #[cfg(target_arch = "x86_64")]
                    Vectors::Avx2 => unsafe { $avx2::solve(operands) },
                    // SAFETY: every processor of the architecture has NEON; the rest is the
                    // caller's promise.
                    #[cfg(target_arch = "aarch64")]
                    Vectors::Neon => unsafe { $neon::solve(operands) },
                    Vectors::Portable => {
                        let _ = operands;
                        return false;
                    }
                }
                #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
                true
            }
        }
    };
}

choice!(f64, avx512_f64, avx2_f64, neon_f64);
choice!(f32, avx512_f32, avx2_f32, neon_f32);

/// For one instruction set: `$rows` x (`$wide` vectors) sums, then one vector, then single columns.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! kernel {
    ($module:ident, $arch:ident, $features:literal, $element:ident, $lanes:literal, $rows:literal,
     $wide:literal, $zero:ident, $load:ident, $store:ident, $splat:ident, $fnmadd:ident) => {
        mod $module {
            #[cfg(target_arch = "aarch64")]
            use super::super::neon::{$fnmadd, $zero};
            use super::SolveOperands;
            use std::arch::$arch::*;

            /// Safety: the CPU has the features, `operands` name valid memory, and no other
            /// reference to that of A is in use.
            #[target_feature(enable = $features)]
            pub(super) unsafe fn solve(operands: &SolveOperands<$element>) {
                let mut at = 0;
                while at + $wide * $lanes <= operands.width {
                    // SAFETY: the strip is within A.
                    unsafe { strip::<$wide>(operands, at) };
                    at += $wide * $lanes;
                }
                while at + $lanes <= operands.width {
                    // SAFETY: the strip is within A.
                    unsafe { strip::<1>(operands, at) };
                    at += $lanes;
                }
                for column in at..operands.width {
                    // SAFETY: the column is within A.
                    unsafe { single(operands, column) };
                }
            }

            #[target_feature(enable = $features)]
            unsafe fn strip<const WIDE: usize>(operands: &SolveOperands<$element>, at: usize) {
                let whole = operands.n - operands.n % $rows;
                for i in (0..whole).step_by($rows) {
                    // SAFETY: these are rows of A and L.
                    unsafe { block::<$rows, WIDE>(operands, at, i) };
                }
                for i in whole..operands.n {
                    // SAFETY: these are rows of A and L.
                    unsafe { block::<1, WIDE>(operands, at, i) };
                }
            }

            /// Solves for rows `i..i + ROWS` of a strip, once those above are solved. Only plain
            /// loops over constant ranges are unrolled, and keep the sums in registers.
            #[allow(clippy::needless_range_loop)]
            #[inline]
            #[target_feature(enable = $features)]
            unsafe fn block<const ROWS: usize, const WIDE: usize>(
                operands: &SolveOperands<$element>,
                at: usize,
                i: usize,
            ) {
                let SolveOperands { l, ldl, a, lda, .. } = *operands;
                let mut sums = [[$zero(); WIDE]; ROWS];
                let place = |row: usize, v: usize| row * lda + at + v * $lanes;
                // SAFETY: `strip` stays within L and A.
                unsafe {
                    for r in 0..ROWS {
                        let row = operands.right_side(i + r).add(at);
                        for v in 0..WIDE {
                            sums[r][v] = $load(row.add(v * $lanes));
                        }
                    }
                    for k in 0..i {
                        let mut x = [$zero(); WIDE];
                        for v in 0..WIDE {
                            x[v] = $load(a.add(place(k, v)));
                        }
                        let column = l.add(k * ldl + i);
                        for r in 0..ROWS {
                            let factor = $splat(*column.add(r));
                            for v in 0..WIDE {
                                sums[r][v] = $fnmadd(factor, x[v], sums[r][v]);
                            }
                        }
                    }
                    for k in 0..ROWS {
                        let (x, column) = (sums[k], l.add((i + k) * ldl + i));
                        for r in k + 1..ROWS {
                            let factor = $splat(*column.add(r));
                            for v in 0..WIDE {
                                sums[r][v] = $fnmadd(factor, x[v], sums[r][v]);
                            }
                        }
                    }
                    for r in 0..ROWS {
                        for v in 0..WIDE {
                            $store(a.add(place(i + r, v)), sums[r][v]);
                        }
                    }
                }
            }

            #[target_feature(enable = $features)]
            unsafe fn single(operands: &SolveOperands<$element>, column: usize) {
                let SolveOperands { l, ldl, a, lda, n, .. } = *operands;
                for i in 0..n {
                    // SAFETY: these are elements of L and A.
                    unsafe {
                        let mut sum = *operands.right_side(i).add(column);
                        for k in 0..i {
                            sum = (-*l.add(k * ldl + i)).mul_add(*a.add(k * lda + column), sum);
                        }
                        *a.add(i * lda + column) = sum;
                    }
                }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
kernel!(
    avx512_f64,
    x86_64,
    "avx512f,avx2,fma",
    f64,
    8,
    8,
    3,
    _mm512_setzero_pd,
    _mm512_loadu_pd,
    _mm512_storeu_pd,
    _mm512_set1_pd,
    _mm512_fnmadd_pd
);
#[cfg(target_arch = "x86_64")]
kernel!(
    avx512_f32,
    x86_64,
    "avx512f,avx2,fma",
    f32,
    16,
    8,
    3,
    _mm512_setzero_ps,
    _mm512_loadu_ps,
    _mm512_storeu_ps,
    _mm512_set1_ps,
    _mm512_fnmadd_ps
);
#[cfg(target_arch = "x86_64")]
kernel!(
    avx2_f64,
    x86_64,
    "avx2,fma",
    f64,
    4,
    4,
    3,
    _mm256_setzero_pd,
    _mm256_loadu_pd,
    _mm256_storeu_pd,
    _mm256_set1_pd,
    _mm256_fnmadd_pd
);
#[cfg(target_arch = "x86_64")]
kernel!(
    avx2_f32,
    x86_64,
    "avx2,fma",
    f32,
    8,
    4,
    3,
    _mm256_setzero_ps,
    _mm256_loadu_ps,
    _mm256_storeu_ps,
    _mm256_set1_ps,
    _mm256_fnmadd_ps
);
// NEON has as many registers as AVX-512, so as many sums.
#[cfg(target_arch = "aarch64")]
kernel!(neon_f64, aarch64, "neon", f64, 2, 8, 3, zero, vld1q_f64, vst1q_f64, vdupq_n_f64, fnmadd);
#[cfg(target_arch = "aarch64")]
kernel!(
    neon_f32,
    aarch64,
    "neon",
    f32,
    4,
    8,
    3,
    zero_f32,
    vld1q_f32,
    vst1q_f32,
    vdupq_n_f32,
    fnmadd_f32
);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::test_runner::TestCaseResult;

    const MAX_ROWS: usize = 40;
    const LDL: usize = 43;
    const LDA: usize = 131;

    trait Tested: crate::blas::Element {
        /// Half of the distance from 1 to the next number.
        const UNIT: f64;
        fn round(value: f64) -> Self;
        /// Solves with narrower vectors than the best of this CPU; false if it has none.
        fn solve_narrowly(operands: &SolveOperands<Self>) -> bool;
    }

    macro_rules! tested {
        ($element:ident, $narrow:ident) => {
            impl Tested for $element {
                const UNIT: f64 = $element::EPSILON as f64 / 2.0;
                fn round(value: f64) -> Self {
                    value as $element
                }
                fn solve_narrowly(operands: &SolveOperands<Self>) -> bool {
                    #[cfg(target_arch = "x86_64")]
                    if Vectors::here() >= Vectors::Avx2 {
                        // SAFETY: the CPU was asked; the tests name arrays of these sizes.
                        unsafe { $narrow::solve(operands) };
                        return true;
                    }
                    let _ = operands;
                    false
                }
            }
        };
    }
    tested!(f64, avx2_f64);
    tested!(f32, avx2_f32);

    /// For a unit lower triangle with small elements and junk above its diagonal, or a right side.
    fn numbers<T: Tested>(seed: u64, len: usize) -> Vec<T> {
        let mut x = seed;
        (0..len)
            .map(|_| {
                x = x.wrapping_mul(6364136223846793005).wrapping_add(1);
                T::round((x >> 11) as f64 / (1u64 << 53) as f64 - 0.5)
            })
            .collect()
    }

    fn check_product<T: Tested>(n: usize, width: usize, seed: u64) -> TestCaseResult {
        let l = numbers::<T>(seed, LDL * MAX_ROWS);
        let before = numbers::<T>(seed ^ 1, MAX_ROWS * LDA);
        let (mut x, mut narrow) = (before.clone(), before.clone());
        let mut a = MatMut::row_major(&mut x, n, width, LDA);
        if !solve(MatRef::col_major(&l, n, n, LDL), None, &mut a) {
            return Ok(());
        }
        let (a, l_at) = (narrow.as_mut_ptr(), l.as_ptr());
        let operands = SolveOperands { l: l_at, ldl: LDL, n, a, lda: LDA, width, from: None };
        if T::solve_narrowly(&operands) {
            // All instruction sets sum in the same order.
            prop_assert_eq!(&x, &narrow);
        }
        for i in 0..MAX_ROWS {
            for j in 0..LDA {
                let (got, had) = (x[i * LDA + j], before[i * LDA + j]);
                if i >= n || j >= width {
                    prop_assert_eq!(got, had, "written outside");
                    continue;
                }
                let terms = (0..i).map(|k| l[k * LDL + i].into() * x[k * LDA + j].into());
                let (got, had): (f64, f64) = (got.into(), had.into());
                let (back, size) = terms.fold((got, got.abs()), |(s, t), v| (s + v, t + v.abs()));
                // Each of the `i` sums is rounded once, and is at most `size + |had|`.
                let most = 2.0 * T::UNIT * (i + 1) as f64 * (had.abs() + size);
                prop_assert!((back - had).abs() <= most, "{back} for {had}, at most {most} off");
            }
        }
        Ok(())
    }

    fn check_cut<T: Tested>(n: usize, width: usize, cut: usize, seed: u64) -> TestCaseResult {
        let l = numbers::<T>(seed, LDL * MAX_ROWS);
        let before = numbers::<T>(seed ^ 1, MAX_ROWS * LDA);
        let (mut whole, mut parts) = (before.clone(), before);
        let l = MatRef::col_major(&l, n, n, LDL);
        solve(l, None, &mut MatMut::row_major(&mut whole, n, width, LDA));
        let (mut left, mut right) =
            MatMut::row_major(&mut parts, n, width, LDA).split_cols(cut.min(width));
        solve(l, None, &mut left);
        solve(l, None, &mut right);
        prop_assert_eq!(whole, parts);
        Ok(())
    }

    proptest! {
        #[test]
        fn solve_undoes_a_product(n in 0..MAX_ROWS, width in 0..LDA, seed: u64) {
            check_product::<f64>(n, width, seed)?;
            check_product::<f32>(n, width, seed)?;
        }

        #[test]
        fn cuts_change_no_bit(n in 1..MAX_ROWS, width in 1..LDA, cut in 0..LDA, seed: u64) {
            check_cut::<f64>(n, width, cut, seed)?;
            check_cut::<f32>(n, width, cut, seed)?;
        }
    }
}
