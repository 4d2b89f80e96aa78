//! Copies between a row-major block and a column-major one.

use std::ops::Range;

use super::vectors::Vectors;
use super::{MatMut, MatRef};
use crate::tuning::TUNING;

/// `target := source`, of the same shape and the other layout.
///
/// # Panics
/// When the shapes differ, or the layouts do not.
pub fn copy(source: MatRef, mut target: MatMut) {
    assert_eq!((source.rows(), source.cols()), (target.rows(), target.cols()), "copy shapes");
    if source.rows() == 0 || source.cols() == 0 {
        return;
    }
    assert_ne!(source.is_col_major(), target.is_col_major(), "copy layouts");
    // `lines` of this `length` are contiguous in the source, and cross those of the target.
    let (lines, length) = if source.is_col_major() {
        (source.cols(), source.rows())
    } else {
        (source.rows(), source.cols())
    };
    let job = Transposition {
        from: source.as_ptr(),
        from_ld: source.ld(),
        to: target.as_mut_ptr(),
        to_ld: target.ld(),
    };
    let rows_are_lines = lines >= length;
    let longer = lines.max(length);
    for start in (0..longer).step_by(TUNING.transpose_lines) {
        let end = (start + TUNING.transpose_lines).min(longer);
        // SAFETY: within the two views; the target's is exclusive.
        unsafe {
            if rows_are_lines {
                job.block(start..end, 0..length);
            } else {
                job.block(0..lines, start..end);
            }
        }
    }
}

/// A copy of element (line, at) of `from` to (at, line) of `to`, for all of both.
struct Transposition {
    from: *const f64,
    from_ld: usize,
    to: *mut f64,
    to_ld: usize,
}

/// Copies a block in squares of 8 x 8 in registers, its edges one by one, for one instruction set.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! block_of_squares {
    ($name:ident, $square:ident, $features:literal) => {
        /// Copies a block.
        ///
        /// # Safety
        /// The conditions of [`Transposition::block`], and the CPU has the features.
        #[target_feature(enable = $features)]
        unsafe fn $name(&self, lines: Range<usize>, places: Range<usize>) {
            let whole = |r: &Range<usize>| r.start..r.start + r.len() / 8 * 8;
            let (lines8, places8) = (whole(&lines), whole(&places));
            // SAFETY: the caller's promise.
            unsafe {
                for at in places8.clone().step_by(8) {
                    for line in lines8.clone().step_by(8) {
                        self.$square(line, at);
                    }
                }
                self.block_plain(lines8.end..lines.end, places.clone());
                self.block_plain(lines8, places8.end..places.end);
            }
        }
    };
}

impl Transposition {
    /// Copies a block with the best instructions of this CPU.
    ///
    /// # Safety
    /// These lines and places are in both matrices.
    unsafe fn block(&self, lines: Range<usize>, places: Range<usize>) {
        match Vectors::here() {
            // SAFETY: the processor has these instructions; the rest is the caller's promise.
            #[cfg(target_arch = "x86_64")]
            Vectors::Avx512 => unsafe { self.block_avx512(lines, places) },
            // SAFETY: the processor has these instructions; the rest is the caller's promise.
            #[cfg(target_arch = "x86_64")]
            Vectors::Avx2 => unsafe { self.block_avx2(lines, places) },
            // SAFETY: every processor of the architecture has NEON; the rest is the caller's
            // promise.
            #[cfg(target_arch = "aarch64")]
            Vectors::Neon => unsafe { self.block_neon(lines, places) },
            // SAFETY: the caller's promise.
            Vectors::Baseline => unsafe { self.block_plain(lines, places) },
        }
    }

    /// Copies a block element by element.
    ///
    /// # Safety
    /// The conditions of [`Transposition::block`].
    unsafe fn block_plain(&self, lines: Range<usize>, places: Range<usize>) {
        for at in places {
            for line in lines.clone() {
                // SAFETY: the caller's promise.
                unsafe {
                    *self.to.add(at * self.to_ld + line) = *self.from.add(line * self.from_ld + at);
                }
            }
        }
    }

    #[cfg(target_arch = "x86_64")]
    block_of_squares!(block_avx512, square_avx512, "avx512f");
    #[cfg(target_arch = "x86_64")]
    block_of_squares!(block_avx2, square_avx2, "avx2");
    #[cfg(target_arch = "aarch64")]
    block_of_squares!(block_neon, square_neon, "neon");

    /// Copies a square of 8 x 8.
    ///
    /// # Safety
    /// The conditions of [`Transposition::block_avx512`].
    #[cfg(target_arch = "x86_64")]
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn square_avx512(&self, line: usize, at: usize) {
        use std::arch::x86_64::*;
        // SAFETY: the caller's promise.
        let load =
            |i: usize| unsafe { _mm512_loadu_pd(self.from.add((line + i) * self.from_ld + at)) };
        // SAFETY: the caller's promise.
        let store = |i: usize, v: __m512d| unsafe {
            _mm512_storeu_pd(self.to.add((at + i) * self.to_ld + line), v);
        };
        let pairs = |i: usize| {
            let (a, b) = (load(i), load(i + 1));
            (_mm512_unpacklo_pd(a, b), _mm512_unpackhi_pd(a, b))
        };
        let (p, q, r, s) = (pairs(0), pairs(2), pairs(4), pairs(6));
        // The quarters of four vectors, transposed.
        let quarters = |p: __m512d, q: __m512d, r: __m512d, s: __m512d, first: usize| {
            let (low, high) = (_mm512_shuffle_f64x2(p, q, 0x44), _mm512_shuffle_f64x2(p, q, 0xee));
            let (low2, high2) =
                (_mm512_shuffle_f64x2(r, s, 0x44), _mm512_shuffle_f64x2(r, s, 0xee));
            store(first, _mm512_shuffle_f64x2(low, low2, 0x88));
            store(first + 2, _mm512_shuffle_f64x2(low, low2, 0xdd));
            store(first + 4, _mm512_shuffle_f64x2(high, high2, 0x88));
            store(first + 6, _mm512_shuffle_f64x2(high, high2, 0xdd));
        };
        quarters(p.0, q.0, r.0, s.0, 0);
        quarters(p.1, q.1, r.1, s.1, 1);
    }

    /// Copies a square of 8 x 8 as squares of 4 x 4.
    ///
    /// # Safety
    /// The conditions of [`Transposition::block_avx2`].
    #[cfg(target_arch = "x86_64")]
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn square_avx2(&self, line: usize, at: usize) {
        use std::arch::x86_64::*;
        for at in [at, at + 4] {
            for line in [line, line + 4] {
                // SAFETY: the caller's promise.
                let load = |i: usize| unsafe {
                    _mm256_loadu_pd(self.from.add((line + i) * self.from_ld + at))
                };
                // SAFETY: the caller's promise.
                let store = |i: usize, v: __m256d| unsafe {
                    _mm256_storeu_pd(self.to.add((at + i) * self.to_ld + line), v);
                };
                let (a, b, c, d) = (load(0), load(1), load(2), load(3));
                let (low, high) = (_mm256_unpacklo_pd(a, b), _mm256_unpackhi_pd(a, b));
                let (low2, high2) = (_mm256_unpacklo_pd(c, d), _mm256_unpackhi_pd(c, d));
                store(0, _mm256_permute2f128_pd(low, low2, 0x20));
                store(1, _mm256_permute2f128_pd(high, high2, 0x20));
                store(2, _mm256_permute2f128_pd(low, low2, 0x31));
                store(3, _mm256_permute2f128_pd(high, high2, 0x31));
            }
        }
    }

    /// Copies a square of 8 x 8 as squares of 2 x 2. Only plain loops over constant ranges are
    /// unrolled.
    ///
    /// # Safety
    /// The conditions of [`Transposition::block_neon`].
    #[cfg(target_arch = "aarch64")]
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn square_neon(&self, line: usize, at: usize) {
        use std::arch::aarch64::*;
        for i in 0..4 {
            for j in 0..4 {
                let (at, line) = (at + 2 * i, line + 2 * j);
                // SAFETY: the caller's promise.
                unsafe {
                    let from = self.from.add(line * self.from_ld + at);
                    let (a, b) = (vld1q_f64(from), vld1q_f64(from.add(self.from_ld)));
                    let to = self.to.add(at * self.to_ld + line);
                    vst1q_f64(to, vzip1q_f64(a, b));
                    vst1q_f64(to.add(self.to_ld), vzip2q_f64(a, b));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_element_arrives_and_none_outside(
            rows in 0usize..80, cols in 0usize..80, by_row: bool,
        ) {
            let (ld_from, ld_to) = (83, 81);
            let from: Vec<f64> = (0..80 * ld_from).map(|i| i as f64).collect();
            let mut to = vec![-1.0; 80 * ld_to];
            let source = if by_row { MatRef::row_major(&from, rows, cols, ld_from) } else { MatRef::col_major(&from, rows, cols, ld_from) };
            copy(source, if by_row { MatMut::col_major(&mut to, rows, cols, ld_to) } else { MatMut::row_major(&mut to, rows, cols, ld_to) });
            for line in 0..80 {
                for at in 0..ld_to {
                    let (i, j) = if by_row { (at, line) } else { (line, at) };
                    let want = if i < rows && j < cols { source.at(i, j) } else { -1.0 };
                    prop_assert_eq!(to[line * ld_to + at], want);
                }
            }
        }
    }
}
