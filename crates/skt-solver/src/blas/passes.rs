//! The two passes over the rows of a panel's last columns, which also find the largest element of
//! the next column.
//!
//! ```text
//! subtract_columns   y -= sum of u_k l_k over columns l_k       left, Crout
//! rank1              l *= 1/pivot;  y_k -= u_k l                right
//! ```
//!
//! A few vectors of rows stay in registers for up to eight columns: `y`, or `l`, is read and
//! written once, not once for each column. The largest element is kept as its `magnitude_bits`: one
//! maximum finds the pivot, or that an element is not finite.
//!
//! Each element takes the same operations in the same order wherever the rows are cut.

use skt_host::vectors::Vectors;

use super::kernels::magnitude_bits;
use super::{MatMut, MatRef};

/// The most columns that one pass takes: a register holds the `u_k` of each.
const COLUMNS: usize = 8;

/// `y -= sum of u_k l_k`, with `l_k` the columns of `left`, in their order. Returns the bits of the
/// largest magnitude in `y`, or 0 if it is empty.
pub(crate) fn subtract_columns(left: MatRef, u: &[f64], y: &mut [f64]) -> u64 {
    assert_eq!((left.rows(), left.cols()), (y.len(), u.len()), "shapes");
    assert!(left.is_col_major(), "layout");
    let mut bits = 0;
    // One pass even without columns, to find the largest element.
    for start in (0..u.len().max(1)).step_by(COLUMNS) {
        let end = u.len().min(start + COLUMNS);
        let pass = Pass {
            line: y.as_mut_ptr(),
            factor: 1.0,
            columns: left.block(0..y.len(), start..end).as_ptr().cast_mut(),
            ld: left.ld(),
            rows: y.len(),
            u: &u[start..end],
        };
        // SAFETY: `line` is `y`; this kind of pass only reads `columns`.
        bits = unsafe { pass.run::<false>() };
    }
    bits
}

/// `l *= inverse`, and then `y_k -= u_k l` with `y_k` the columns of `right`. Returns the bits of
/// the largest magnitude in `y_0`, or 0 if there is none.
pub(crate) fn rank1(l: &mut [f64], inverse: f64, u: &[f64], mut right: MatMut) -> u64 {
    assert_eq!((right.rows(), right.cols()), (l.len(), u.len()), "shapes");
    assert!(right.is_col_major(), "layout");
    let mut first = None;
    for start in (0..u.len().max(1)).step_by(COLUMNS) {
        let end = u.len().min(start + COLUMNS);
        let ld = right.ld();
        let pass = Pass {
            line: l.as_mut_ptr(),
            factor: if start == 0 { inverse } else { 1.0 },
            columns: right.rb().block(0..l.len(), start..end).as_mut_ptr(),
            ld,
            rows: l.len(),
            u: &u[start..end],
        };
        // SAFETY: `l` and the columns are borrowed mutably, and do not overlap.
        let bits = unsafe { pass.run::<true>() };
        first.get_or_insert(bits);
    }
    first.unwrap_or(0)
}

/// One pass: a line and up to [`COLUMNS`] columns, `ld` apart, with a factor for each.
struct Pass<'u> {
    /// `l` in a rank-1 pass, else `y`.
    line: *mut f64,
    factor: f64,
    columns: *mut f64,
    ld: usize,
    rows: usize,
    u: &'u [f64],
}

impl Pass<'_> {
    /// Runs the pass with the best instructions of this CPU.
    /// Safety: `line` and `columns` name valid memory; no other reference to what the pass writes
    /// is in use: `line`, and with `RANK1` the columns.
    unsafe fn run<const RANK1: bool>(&self) -> u64 {
        match Vectors::here() {
            // SAFETY: the processor has these instructions; the rest is the caller's promise.
            #[cfg(target_arch = "x86_64")]
            Vectors::Avx512 => return unsafe { avx512::run::<RANK1>(self) },
            // SAFETY: the processor has these instructions; the rest is the caller's promise.
            #[cfg(target_arch = "x86_64")]
            Vectors::Avx2 => return unsafe { avx2::run::<RANK1>(self) },
            // SAFETY: every processor of the architecture has NEON; the rest is the caller's
            // promise.
            #[cfg(target_arch = "aarch64")]
            Vectors::Neon => return unsafe { neon::run::<RANK1>(self) },
            Vectors::Portable => {}
        }
        let bits = |i: usize| {
            // SAFETY: row i is one of the pass.
            unsafe { self.row::<RANK1>(i, |a, b, c| c - a * b) }
        };
        (0..self.rows).map(bits).fold(0, u64::max)
    }

    /// Computes row `i` of the pass. `fnmadd(a, b, c)` is `c - a b`.
    /// Safety: the conditions of [`Pass::run`].
    #[inline(always)]
    unsafe fn row<const RANK1: bool>(
        &self,
        i: usize,
        fnmadd: impl Fn(f64, f64, f64) -> f64,
    ) -> u64 {
        let mut bits = 0;
        // SAFETY: the caller's promise.
        unsafe {
            let line = self.line.add(i);
            if RANK1 {
                *line *= self.factor;
            }
            for (k, &u) in self.u.iter().enumerate() {
                let element = self.columns.add(k * self.ld + i);
                if RANK1 {
                    *element = fnmadd(u, *line, *element);
                    if k == 0 {
                        bits = magnitude_bits(*element).cast_unsigned();
                    }
                } else {
                    *line = fnmadd(u, *element, *line);
                }
            }
            if RANK1 { bits } else { magnitude_bits(*line).cast_unsigned() }
        }
    }
}

/// For one instruction set: blocks of `$wide` vectors of rows, of one vector, then single rows.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! passes {
    ($module:ident, $arch:ident, $features:literal, $lanes:literal, $wide:literal, $vector:ty, $bits:ty,
     $load:ident, $store:ident, $splat:ident, $mul:ident, $fnmadd:ident,
     $as_bits:ident, $splat_bits:ident, $and:ident, $larger:expr) => {
        mod $module {
            #[cfg(target_arch = "aarch64")]
            use super::super::neon::{fnmadd, larger};
            use super::{COLUMNS, Pass};
            use std::arch::$arch::*;

            /// Safety: the conditions of [`Pass::run`], and the CPU has the features.
            #[target_feature(enable = $features)]
            pub(super) unsafe fn run<const RANK1: bool>(pass: &Pass) -> u64 {
                // SAFETY: the caller's promise.
                unsafe {
                    match pass.u.len() {
                        0 => all_rows::<RANK1, 0>(pass),
                        1 => all_rows::<RANK1, 1>(pass),
                        2 => all_rows::<RANK1, 2>(pass),
                        3 => all_rows::<RANK1, 3>(pass),
                        4 => all_rows::<RANK1, 4>(pass),
                        5 => all_rows::<RANK1, 5>(pass),
                        6 => all_rows::<RANK1, 6>(pass),
                        7 => all_rows::<RANK1, 7>(pass),
                        COLUMNS => all_rows::<RANK1, COLUMNS>(pass),
                        count => unreachable!("{count} columns at once"),
                    }
                }
            }

            #[allow(clippy::needless_range_loop)]
            #[target_feature(enable = $features)]
            unsafe fn all_rows<const RANK1: bool, const K: usize>(pass: &Pass) -> u64 {
                let mut u = [$splat(0.0); K];
                for k in 0..K {
                    u[k] = $splat(pass.u[k]);
                }
                let mut largest = $splat_bits(0);
                let mut i = 0;
                // SAFETY: these are rows of the pass.
                unsafe {
                    while i + $wide * $lanes <= pass.rows {
                        largest = block::<RANK1, K, $wide>(pass, &u, i, largest);
                        i += $wide * $lanes;
                    }
                    while i + $lanes <= pass.rows {
                        largest = block::<RANK1, K, 1>(pass, &u, i, largest);
                        i += $lanes;
                    }
                    // SAFETY: a vector of bits has this number of integers.
                    let lanes: [u64; $lanes] = std::mem::transmute(largest);
                    let rest =
                        (i..pass.rows).map(|i| pass.row::<RANK1>(i, |a, b, c| (-a).mul_add(b, c)));
                    rest.chain(lanes).fold(0, u64::max)
                }
            }

            /// Computes rows `i..i + WIDE vectors`. Only plain loops over constant ranges are
            /// unrolled, and keep their vectors in registers.
            #[allow(clippy::needless_range_loop)]
            #[inline]
            #[target_feature(enable = $features)]
            unsafe fn block<const RANK1: bool, const K: usize, const WIDE: usize>(
                pass: &Pass,
                u: &[$vector; K],
                i: usize,
                mut largest: $bits,
            ) -> $bits {
                let magnitude = $splat_bits(i64::MAX);
                let larger = $larger;
                let mut line = [$splat(0.0); WIDE];
                // SAFETY: the caller's promise.
                unsafe {
                    for v in 0..WIDE {
                        line[v] = $load(pass.line.add(i + v * $lanes));
                        if RANK1 {
                            line[v] = $mul(line[v], $splat(pass.factor));
                        }
                    }
                    for k in 0..K {
                        let column = pass.columns.add(k * pass.ld + i);
                        for v in 0..WIDE {
                            let element = $load(column.add(v * $lanes));
                            if RANK1 {
                                let changed = $fnmadd(u[k], line[v], element);
                                $store(column.add(v * $lanes), changed);
                                if k == 0 {
                                    largest = larger(largest, $and($as_bits(changed), magnitude));
                                }
                            } else {
                                line[v] = $fnmadd(u[k], element, line[v]);
                            }
                        }
                    }
                    for v in 0..WIDE {
                        if !RANK1 {
                            largest = larger(largest, $and($as_bits(line[v]), magnitude));
                        }
                        $store(pass.line.add(i + v * $lanes), line[v]);
                    }
                }
                largest
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
passes!(
    avx512,
    x86_64,
    "avx512f",
    8,
    4,
    __m512d,
    __m512i,
    _mm512_loadu_pd,
    _mm512_storeu_pd,
    _mm512_set1_pd,
    _mm512_mul_pd,
    _mm512_fnmadd_pd,
    _mm512_castpd_si512,
    _mm512_set1_epi64,
    _mm512_and_si512,
    |a, b| _mm512_max_epu64(a, b)
);

// Magnitudes have no sign bit, so they compare as signed numbers.
#[cfg(target_arch = "x86_64")]
passes!(
    avx2,
    x86_64,
    "avx2,fma",
    4,
    4,
    __m256d,
    __m256i,
    _mm256_loadu_pd,
    _mm256_storeu_pd,
    _mm256_set1_pd,
    _mm256_mul_pd,
    _mm256_fnmadd_pd,
    _mm256_castpd_si256,
    _mm256_set1_epi64x,
    _mm256_and_si256,
    |a, b| _mm256_blendv_epi8(a, b, _mm256_cmpgt_epi64(b, a))
);

// Registers suffice for blocks of eight vectors; four would be only 64 bytes of each column.
#[cfg(target_arch = "aarch64")]
passes!(
    neon,
    aarch64,
    "neon",
    2,
    8,
    float64x2_t,
    int64x2_t,
    vld1q_f64,
    vst1q_f64,
    vdupq_n_f64,
    vmulq_f64,
    fnmadd,
    vreinterpretq_s64_f64,
    vdupq_n_s64,
    vandq_s64,
    larger
);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// All kinds that this CPU has, and the plain loop.
    unsafe fn kinds<const RANK1: bool>() -> Vec<unsafe fn(&Pass) -> u64> {
        unsafe fn plain<const RANK1: bool>(pass: &Pass) -> u64 {
            let bits = |i| unsafe { pass.row::<RANK1>(i, |a, b, c| c - a * b) };
            (0..pass.rows).map(bits).fold(0, u64::max)
        }
        let mut kinds: Vec<unsafe fn(&Pass) -> u64> = vec![plain::<RANK1>];
        #[cfg(target_arch = "x86_64")]
        {
            if Vectors::here() >= Vectors::Avx512 {
                kinds.push(avx512::run::<RANK1>);
            }
            if Vectors::here() >= Vectors::Avx2 {
                kinds.push(avx2::run::<RANK1>);
            }
        }
        #[cfg(target_arch = "aarch64")]
        kinds.push(neon::run::<RANK1>);
        kinds
    }

    fn number(i: usize, seed: u64) -> f64 {
        let mixed = (i as u64 ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed >> 7;
        (mixed >> 11) as f64 / (1u64 << 53) as f64 - 0.5
    }

    fn largest(x: &[f64]) -> u64 {
        x.iter().fold(0.0f64, |m, x| m.max(x.abs())).to_bits()
    }

    proptest! {
        /// The first row need not be on a cache line, as after pivots.
        #[test]
        fn passes_match_their_formulas(
            rows in 0usize..150, k in 0usize..20, from in 0usize..9, inverse in -2.0..2.0f64, seed: u64,
        ) {
            let ld = (rows + from).max(1);
            let data: Vec<f64> = (0..ld * k.max(1)).map(|i| number(i, seed)).collect();
            let u: Vec<f64> = (0..k).map(|i| number(i + 100_000, seed)).collect();
            let x: Vec<f64> = (0..rows).map(|i| number(i + 200_000, seed)).collect();
            let columns = |d: &[f64]| -> Vec<Vec<f64>> {
                (0..k).map(|c| d[c * ld + from..c * ld + from + rows].to_vec()).collect()
            };
            let before = columns(&data);

            let mut y = x.clone();
            let left = MatRef::col_major(&data, rows + from, k, ld).block(from..rows + from, 0..k);
            let bits = subtract_columns(left, &u, &mut y);
            prop_assert_eq!(bits, largest(&y));
            for i in 0..rows {
                let sum: f64 = (0..k).map(|c| u[c] * before[c][i]).sum();
                prop_assert!((y[i] - (x[i] - sum)).abs() < 1e-13);
            }

            let (mut l, mut changed) = (x.clone(), data.clone());
            let right = MatMut::col_major(&mut changed, rows + from, k, ld);
            let bits = rank1(&mut l, inverse, &u, right.block(from..rows + from, 0..k));
            let after = columns(&changed);
            prop_assert_eq!(bits, after.first().map_or(0, |first| largest(first)));
            for i in 0..rows {
                prop_assert_eq!(l[i], x[i] * inverse);
                for c in 0..k {
                    prop_assert!((after[c][i] - (before[c][i] - u[c] * l[i])).abs() < 1e-15);
                }
            }
            for c in 0..k {
                prop_assert_eq!(&changed[c * ld..c * ld + from], &data[c * ld..c * ld + from]);
            }
        }

        #[test]
        fn kernels_agree_and_detect_non_finite_values(
            rows in 1usize..100, k in 0usize..=8, bad in 0usize..200, kind in 0u8..2, seed: u64,
        ) {
            let mut line: Vec<f64> = (0..rows).map(|i| number(i, seed)).collect();
            let value = [f64::NAN, f64::NEG_INFINITY][kind as usize];
            if bad < rows {
                line[bad] = value;
            }
            let columns: Vec<f64> = (0..rows * k).map(|i| number(i + 7, seed)).collect();
            let u: Vec<f64> = (0..k).map(|i| number(i + 77, seed)).collect();
            let run = |kind: unsafe fn(&Pass) -> u64| {
                let (mut line, mut columns) = (line.clone(), columns.clone());
                let pass = Pass {
                    line: line.as_mut_ptr(), factor: 0.5, columns: columns.as_mut_ptr(),
                    ld: rows, rows, u: &u,
                };
                // SAFETY: vectors of these lengths, our own.
                let bits = unsafe { kind(&pass) };
                (bits, line, columns)
            };
            let close = |a: &[f64], b: &[f64]| {
                a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-14 || !a.is_finite() && !b.is_finite())
            };
            // SAFETY: this only gets the functions.
            let (subtract, rank1) = unsafe { (kinds::<false>(), kinds::<true>()) };
            for (kinds, sees_line) in [(subtract, true), (rank1, k > 0)] {
                let want = run(kinds[0]);
                for &kind in &kinds[1..] {
                    let found = run(kind);
                    prop_assert!(close(&found.1, &want.1) && close(&found.2, &want.2));
                    let (found, want) = (f64::from_bits(found.0), f64::from_bits(want.0));
                    prop_assert!((found - want).abs() < 1e-14 || !found.is_finite() && !want.is_finite());
                    prop_assert_eq!(!found.is_finite(), bad < rows && sees_line);
                }
            }
        }
    }
}
