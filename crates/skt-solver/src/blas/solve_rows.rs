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

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use super::vectors::Vectors;
use super::{MatMut, MatRef, Rows};

/// Solves in place, or for the rows `from`, if there is a kernel for these layouts on this CPU.
/// Else leaves `a` as it is and returns false.
pub(super) fn solve(l: MatRef, from: Option<&Rows>, a: &mut MatMut) -> bool {
    debug_assert_eq!((l.rows(), l.cols()), (a.rows(), a.rows()));
    if !l.is_col_major() || a.is_col_major() {
        return false;
    }
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    {
        let (n, width, lda) = (a.rows(), a.cols(), a.ld());
        let a = a.as_mut_ptr();
        let from = from.map(|from| (from.rows, from.cols.start));
        let operands = SolveOperands { l: l.as_ptr(), ldl: l.ld(), n, a, lda, width, from };
        match Vectors::here() {
            // SAFETY: the processor has these instructions; the views cover what the operands name.
            #[cfg(target_arch = "x86_64")]
            Vectors::Avx512 => unsafe { avx512::solve(&operands) },
            // SAFETY: the processor has these instructions; the views cover what the operands name.
            #[cfg(target_arch = "x86_64")]
            Vectors::Avx2 => unsafe { avx2::solve(&operands) },
            // SAFETY: every processor of the architecture has NEON; the views cover what the
            // operands name.
            #[cfg(target_arch = "aarch64")]
            Vectors::Neon => unsafe { neon::solve(&operands) },
            Vectors::Baseline => return false,
        }
        true
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        let _ = from;
        false
    }
}

/// The operands of a solve: L, column by column, and A, row by row.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
struct SolveOperands<'o> {
    l: *const f64,
    ldl: usize,
    /// The order of L, and the rows of A.
    n: usize,
    a: *mut f64,
    lda: usize,
    /// Columns of A.
    width: usize,
    /// The right side, if it is not in A: its rows, and the index of the first column in each.
    from: Option<(&'o [&'o [f64]], usize)>,
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
impl SolveOperands<'_> {
    /// Row `i` of the right side.
    ///
    /// # Safety
    /// There is such a row.
    #[inline(always)]
    unsafe fn right_side(&self, i: usize) -> *const f64 {
        // SAFETY: the caller's promise.
        unsafe {
            match self.from {
                None => self.a.add(i * self.lda),
                Some((rows, start)) => rows.get_unchecked(i).as_ptr().add(start),
            }
        }
    }
}

/// The kernel for one instruction set: `$rows` x (`$wide` vectors) sums, then strips of one vector,
/// then single columns.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! kernel {
    ($module:ident, $arch:ident, $features:literal, $lanes:literal, $rows:literal, $wide:literal,
     $zero:ident, $load:ident, $store:ident, $splat:ident, $fnmadd:ident) => {
        mod $module {
            #[cfg(target_arch = "aarch64")]
            use super::super::vectors::neon::{fnmadd, zero};
            use super::SolveOperands;
            use std::arch::$arch::*;

            /// Solves the system in A.
            ///
            /// # Safety
            /// The CPU has the features, `operands` name valid memory, and no other reference to
            /// that of A is in use.
            #[target_feature(enable = $features)]
            pub(super) unsafe fn solve(operands: &SolveOperands) {
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
            unsafe fn strip<const WIDE: usize>(operands: &SolveOperands, at: usize) {
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
                operands: &SolveOperands,
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
            unsafe fn single(operands: &SolveOperands, column: usize) {
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
    avx512,
    x86_64,
    "avx512f,avx2,fma",
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
    avx2,
    x86_64,
    "avx2,fma",
    4,
    4,
    3,
    _mm256_setzero_pd,
    _mm256_loadu_pd,
    _mm256_storeu_pd,
    _mm256_set1_pd,
    _mm256_fnmadd_pd
);
// NEON has as many registers as AVX-512, so as many sums.
#[cfg(target_arch = "aarch64")]
kernel!(neon, aarch64, "neon", 2, 8, 3, zero, vld1q_f64, vst1q_f64, vdupq_n_f64, fnmadd);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Numbers for a unit lower triangle with small elements and junk above its diagonal, or for a
    /// right side.
    fn numbers(seed: u64, len: usize, scale: f64) -> Vec<f64> {
        let mut x = seed;
        (0..len)
            .map(|_| {
                x = x.wrapping_mul(6364136223846793005).wrapping_add(1);
                ((x >> 11) as f64 / (1u64 << 53) as f64 - 0.5) * scale
            })
            .collect()
    }

    #[cfg(target_arch = "x86_64")]
    fn operands(
        l: &[f64],
        ldl: usize,
        n: usize,
        a: &mut [f64],
        lda: usize,
        width: usize,
    ) -> SolveOperands<'static> {
        SolveOperands { l: l.as_ptr(), ldl, n, a: a.as_mut_ptr(), lda, width, from: None }
    }

    proptest! {
        #[test]
        fn solve_undoes_a_product(n in 0usize..40, width in 0usize..60, seed: u64) {
            let (ldl, lda) = (43, 61);
            let l = numbers(seed, ldl * 40, 1.0);
            let before = numbers(seed ^ 1, 40 * lda, 1.0);
            let mut ways = vec![before.clone(); 3];
            let mut a = MatMut::row_major(&mut ways[0], n, width, lda);
            if !solve(MatRef::col_major(&l, n, n, ldl), None, &mut a) {
                return Ok(());
            }
            #[cfg(target_arch = "x86_64")]
            {
                if Vectors::here() >= Vectors::Avx2 {
                    // SAFETY: the CPU was asked; the arrays have the sizes that the operands name.
                    unsafe { avx2::solve(&operands(&l, ldl, n, &mut ways[1], lda, width)) };
                    // All instruction sets sum in the same order.
                    prop_assert_eq!(&ways[0], &ways[1]);
                }
            }
            let x = &ways[0];
            for i in 0..40 {
                for j in 0..lda {
                    let (got, had) = (x[i * lda + j], before[i * lda + j]);
                    if i >= n || j >= width {
                        prop_assert_eq!(got, had, "written outside");
                        continue;
                    }
                    let terms = (0..i).map(|k| l[k * ldl + i] * x[k * lda + j]);
                    let (back, size) = terms.fold((got, got.abs()), |(s, t), v| (s + v, t + v.abs()));
                    prop_assert!((back - had).abs() <= 1e-14 * (1.0 + size) * 40.0);
                }
            }
        }

        /// The bits are the same however the columns are cut.
        #[test]
        fn cuts_change_no_bit(n in 1usize..40, width in 1usize..60, cut in 0usize..60, seed: u64) {
            let cut = cut.min(width);
            let l = numbers(seed, 40 * 40, 1.0);
            let before = numbers(seed ^ 1, 40 * 60, 1.0);
            let (mut whole, mut parts) = (before.clone(), before);
            let l = MatRef::col_major(&l, n, n, 40);
            solve(l, None, &mut MatMut::row_major(&mut whole, n, width, 60));
            let (mut left, mut right) =
                MatMut::row_major(&mut parts, n, width, 60).split_cols(cut);
            solve(l, None, &mut left);
            solve(l, None, &mut right);
            prop_assert_eq!(whole, parts);
        }
    }
}
