//! Copies between a row-major block and a column-major one.

use std::ops::Range;

use skt_host::vectors::Vectors;

use super::{Element, MatMut, MatRef};
use crate::tuning::TUNING;

/// `target := source`, of the same shape and the other layout.
pub fn copy<T: Element>(source: MatRef<T>, mut target: MatMut<T>) {
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
                T::block(&job, start..end, 0..length);
            } else {
                T::block(&job, 0..lines, start..end);
            }
        }
    }
}

/// A copy of element (line, at) of `from` to (at, line) of `to`, for all of both.
pub struct Transposition<T> {
    from: *const T,
    from_ld: usize,
    to: *mut T,
    to_ld: usize,
}

pub trait Squares: Copy {
    /// Copies a block with the best instructions of this CPU.
    ///
    /// # Safety
    /// These lines and places are in both matrices of `job`.
    unsafe fn block(job: &Transposition<Self>, lines: Range<usize>, places: Range<usize>);
}

/// Copies a block in squares of 8 x 8 in registers, its edges one by one, for one instruction set.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! block_of_squares {
    ($name:ident, $square:ident, $features:literal) => {
        /// Safety: the conditions of [`Squares::block`], and the CPU has the features.
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

impl Squares for f64 {
    unsafe fn block(job: &Transposition<Self>, lines: Range<usize>, places: Range<usize>) {
        match Vectors::here() {
            // SAFETY: the processor has these instructions; the rest is the caller's promise.
            #[cfg(target_arch = "x86_64")]
            Vectors::Avx512 => unsafe { job.block_avx512(lines, places) },
            // SAFETY: the processor has these instructions; the rest is the caller's promise.
            #[cfg(target_arch = "x86_64")]
            Vectors::Avx2 => unsafe { job.block_avx2(lines, places) },
            // SAFETY: every processor of the architecture has NEON; the rest is the caller's
            // promise.
            #[cfg(target_arch = "aarch64")]
            Vectors::Neon => unsafe { job.block_neon(lines, places) },
            // SAFETY: the caller's promise.
            Vectors::Portable => unsafe { job.block_plain(lines, places) },
        }
    }
}

impl Squares for f32 {
    unsafe fn block(job: &Transposition<Self>, lines: Range<usize>, places: Range<usize>) {
        match Vectors::here() {
            // A square of eight lines and places is made for eight lanes.
            // SAFETY: the processor has these instructions; the rest is the caller's promise.
            #[cfg(target_arch = "x86_64")]
            Vectors::Avx512 | Vectors::Avx2 => unsafe { job.block_avx2(lines, places) },
            // SAFETY: every processor of the architecture has NEON; the rest is the caller's
            // promise.
            #[cfg(target_arch = "aarch64")]
            Vectors::Neon => unsafe { job.block_neon(lines, places) },
            // SAFETY: the caller's promise.
            Vectors::Portable => unsafe { job.block_plain(lines, places) },
        }
    }
}

impl<T: Element> Transposition<T> {
    /// Safety: the conditions of [`Squares::block`].
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
}

impl Transposition<f64> {
    #[cfg(target_arch = "x86_64")]
    block_of_squares!(block_avx512, square_avx512, "avx512f");
    #[cfg(target_arch = "x86_64")]
    block_of_squares!(block_avx2, square_avx2, "avx2");
    #[cfg(target_arch = "aarch64")]
    block_of_squares!(block_neon, square_neon, "neon");

    /// Safety: the conditions of `block_avx512`.
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
    /// Safety: the conditions of `block_avx2`.
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

    /// Copies a square of 8 x 8 as squares of 2 x 2; only plain loops over constant ranges unroll.
    /// Safety: the conditions of `block_neon`.
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

impl Transposition<f32> {
    #[cfg(target_arch = "x86_64")]
    block_of_squares!(block_avx2, square_avx2, "avx2");
    #[cfg(target_arch = "aarch64")]
    block_of_squares!(block_neon, square_neon, "neon");

    /// Safety: the conditions of `block_avx2`.
    #[cfg(target_arch = "x86_64")]
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn square_avx2(&self, line: usize, at: usize) {
        use std::arch::x86_64::*;
        // SAFETY: the caller's promise.
        let load =
            |i: usize| unsafe { _mm256_loadu_ps(self.from.add((line + i) * self.from_ld + at)) };
        // SAFETY: the caller's promise.
        let store = |i: usize, v: __m256| unsafe {
            _mm256_storeu_ps(self.to.add((at + i) * self.to_ld + line), v);
        };
        // Places 0 and 4, 1 and 5, 2 and 6, 3 and 7 of four lines.
        let quarters = |first: usize| {
            let [a, b, c, d] = [load(first), load(first + 1), load(first + 2), load(first + 3)];
            let (low, high) = (_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
            let (low2, high2) = (_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
            [
                _mm256_shuffle_ps(low, low2, 0x44),
                _mm256_shuffle_ps(low, low2, 0xee),
                _mm256_shuffle_ps(high, high2, 0x44),
                _mm256_shuffle_ps(high, high2, 0xee),
            ]
        };
        let (upper, lower) = (quarters(0), quarters(4));
        for i in 0..4 {
            store(i, _mm256_permute2f128_ps(upper[i], lower[i], 0x20));
            store(i + 4, _mm256_permute2f128_ps(upper[i], lower[i], 0x31));
        }
    }

    /// Copies a square of 8 x 8 as squares of 4 x 4; only plain loops over constant ranges unroll.
    /// Safety: the conditions of `block_neon`.
    #[cfg(target_arch = "aarch64")]
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn square_neon(&self, line: usize, at: usize) {
        use std::arch::aarch64::*;
        for i in 0..2 {
            for j in 0..2 {
                let (at, line) = (at + 4 * i, line + 4 * j);
                // SAFETY: the caller's promise.
                unsafe {
                    let load = |i: usize| vld1q_f32(self.from.add((line + i) * self.from_ld + at));
                    let (a, b, c, d) = (load(0), load(1), load(2), load(3));
                    let to = |i: usize| self.to.add((at + i) * self.to_ld + line);
                    // Places 0 and 2, and places 1 and 3, of each pair of lines.
                    let (even, odd) = (vtrn1q_f32(a, b), vtrn2q_f32(a, b));
                    let (even2, odd2) = (vtrn1q_f32(c, d), vtrn2q_f32(c, d));
                    let halves = |v: float32x4_t| vreinterpretq_f64_f32(v);
                    let whole = |v: float64x2_t| vreinterpretq_f32_f64(v);
                    vst1q_f32(to(0), whole(vzip1q_f64(halves(even), halves(even2))));
                    vst1q_f32(to(1), whole(vzip1q_f64(halves(odd), halves(odd2))));
                    vst1q_f32(to(2), whole(vzip2q_f64(halves(even), halves(even2))));
                    vst1q_f32(to(3), whole(vzip2q_f64(halves(odd), halves(odd2))));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::test_runner::TestCaseResult;

    fn check<T: Element>(
        (rows, cols): (usize, usize),
        by_row: bool,
        number: impl Fn(usize) -> T,
    ) -> TestCaseResult {
        let (ld_from, ld_to) = (83, 81);
        let from: Vec<T> = (1..=80 * ld_from).map(&number).collect();
        let mut to = vec![number(0); 80 * ld_to];
        let (source, target) = if by_row {
            let source = MatRef::row_major(&from, rows, cols, ld_from);
            (source, MatMut::col_major(&mut to, rows, cols, ld_to))
        } else {
            let source = MatRef::col_major(&from, rows, cols, ld_from);
            (source, MatMut::row_major(&mut to, rows, cols, ld_to))
        };
        copy(source, target);
        for line in 0..80 {
            for at in 0..ld_to {
                let (i, j) = if by_row { (at, line) } else { (line, at) };
                let want = if i < rows && j < cols { source.at(i, j) } else { number(0) };
                prop_assert_eq!(to[line * ld_to + at], want);
            }
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn every_element_arrives_and_none_outside(
            rows in 0usize..80, cols in 0usize..80, by_row: bool,
        ) {
            check((rows, cols), by_row, |i| i as f64)?;
            check((rows, cols), by_row, |i| i as f32)?;
        }
    }
}
