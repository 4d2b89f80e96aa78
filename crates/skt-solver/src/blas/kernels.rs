//! Loops over contiguous doubles, compiled for several instruction sets.
//!
//! Each is one plain loop. The compiler vectorizes it for AVX-512, for AVX2 with FMA, and for the
//! baseline (on Arm with NEON); the best version for the CPU is called.

use crate::blas::bf16::number::Bf16;
#[cfg(target_arch = "x86_64")]
use skt_host::vectors::Vectors;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Best {
    /// Magnitude; 0 for an empty range; NaN if an element is not finite.
    pub magnitude: f64,
    /// Index of the first element with this magnitude.
    pub index: usize,
}

impl Best {
    pub(crate) const NONE: Self = Self { magnitude: 0.0, index: usize::MAX };

    pub(crate) fn moved(self, offset: usize) -> Self {
        Self { index: self.index.saturating_add(offset), ..self }
    }
}

/// Defines `$name` over the loop `$body`; its parameter `FUSED`: there is fused multiply-add.
macro_rules! multiversion {
    ($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*) -> $ret:ty = $body:ident) => {
        $(#[$doc])*
        pub(crate) fn $name($($arg: $type),*) -> $ret {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx2,fma")]
                fn avx512($($arg: $type),*) -> $ret { $body::<true>($($arg),*) }
                #[target_feature(enable = "avx2,fma")]
                fn avx2($($arg: $type),*) -> $ret { $body::<true>($($arg),*) }
                match Vectors::here() {
                    // SAFETY: the processor has them.
                    Vectors::Avx512 => return unsafe { avx512($($arg),*) },
                    // SAFETY: the processor has these instructions.
                    Vectors::Avx2 => return unsafe { avx2($($arg),*) },
                    Vectors::Portable => {}
                }
            }
            $body::<{ cfg!(target_arch = "aarch64") }>($($arg),*)
        }
    };
}

multiversion! {
    axpy(alpha: f64, x: &[f64], y: &mut [f64]) -> () = axpy_loop
}

multiversion! {
    scale(alpha: f64, x: &mut [f64]) -> () = scale_loop
}

multiversion! {
    divide(alpha: f64, x: &mut [f64]) -> () = divide_loop
}

multiversion! {
    /// The largest magnitude of `x`; NaN when any element is not finite.
    search(x: &[f64]) -> Best = search_loop
}

multiversion! {
    /// The largest magnitude of `x`; NaN if any element is NaN.
    largest(x: &[f64]) -> f64 = largest_loop
}

multiversion! {
    /// The product `x v` with a vector `v` of +1 and -1, and the largest magnitude of `x`. Each
    /// product of elements is exact, so all instruction sets give the same bits.
    signed_sum_and_largest(x: &[f64], v: &[f64]) -> (f64, f64) = signed_sum_and_largest_loop
}

multiversion! {
    mixed_dot(x: &[f32], y: &[f64]) -> f64 = mixed_dot_loop
}

multiversion! {
    pack_bf16(x: &[f32], packed: &mut [Bf16]) -> () = pack_bf16_loop
}

multiversion! {
    swap(x: &mut [f64], y: &mut [f64]) -> () = swap_loop
}

#[inline(always)]
fn axpy_loop<const FUSED: bool>(alpha: f64, x: &[f64], y: &mut [f64]) {
    assert_eq!(x.len(), y.len());
    for (y, &x) in y.iter_mut().zip(x) {
        *y = if FUSED { alpha.mul_add(x, *y) } else { *y + alpha * x };
    }
}

#[inline(always)]
fn scale_loop<const FUSED: bool>(alpha: f64, x: &mut [f64]) {
    for x in x {
        *x *= alpha;
    }
}

#[inline(always)]
fn divide_loop<const FUSED: bool>(alpha: f64, x: &mut [f64]) {
    for x in x {
        *x /= alpha;
    }
}

#[inline(always)]
fn mixed_dot_loop<const FUSED: bool>(x: &[f32], y: &[f64]) -> f64 {
    const LANES: usize = 32;
    assert_eq!(x.len(), y.len());
    let add = |sum: f64, x: f32, y: f64| {
        if FUSED { f64::from(x).mul_add(y, sum) } else { sum + f64::from(x) * y }
    };
    let mut sums = [0.0; LANES];
    let ((xs, x), (ys, y)) = (x.as_chunks::<LANES>(), y.as_chunks::<LANES>());
    for (x, y) in xs.iter().zip(ys) {
        for lane in 0..LANES {
            sums[lane] = add(sums[lane], x[lane], y[lane]);
        }
    }
    let rest = x.iter().zip(y).fold(0.0, |sum, (&x, &y)| add(sum, x, y));
    // In pairs: rows are short, and sums one after the other would take as long as the products.
    for half in [16, 8, 4, 2, 1] {
        for lane in 0..half {
            sums[lane] += sums[lane + half];
        }
    }
    sums[0] + rest
}

#[inline(always)]
fn pack_bf16_loop<const FUSED: bool>(x: &[f32], packed: &mut [Bf16]) {
    assert_eq!(x.len(), packed.len());
    for (x, packed) in x.iter().zip(packed) {
        *packed = Bf16::from(*x);
    }
}

#[inline(always)]
fn swap_loop<const FUSED: bool>(x: &mut [f64], y: &mut [f64]) {
    assert_eq!(x.len(), y.len());
    for (x, y) in x.iter_mut().zip(y) {
        std::mem::swap(x, y);
    }
}

/// The bits of a magnitude, ordered like magnitudes, with infinity above all finite ones and NaN
/// above infinity; as signed integers, too, as AVX2 and NEON compare them: the sign bit is 0.
#[inline(always)]
pub(super) fn magnitude_bits(x: f64) -> i64 {
    x.abs().to_bits().cast_signed()
}

#[inline(always)]
fn largest_bits(x: &[f64]) -> i64 {
    const LANES: usize = 32;
    let mut largest = [0; LANES];
    let (chunks, rest) = x.as_chunks::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            let magnitude = magnitude_bits(chunk[lane]);
            largest[lane] = if magnitude > largest[lane] { magnitude } else { largest[lane] };
        }
    }
    largest.into_iter().chain(rest.iter().map(|&x| magnitude_bits(x))).fold(0, i64::max)
}

#[inline(always)]
fn largest_loop<const FUSED: bool>(x: &[f64]) -> f64 {
    f64::from_bits(largest_bits(x).cast_unsigned())
}

#[inline(always)]
fn search_loop<const FUSED: bool>(x: &[f64]) -> Best {
    let largest = largest_bits(x);
    if largest >= magnitude_bits(f64::INFINITY) {
        let index = x.iter().position(|x| !x.is_finite()).expect("what is the largest");
        return Best { magnitude: f64::NAN, index };
    }
    match x.iter().position(|&x| magnitude_bits(x) == largest) {
        Some(index) => Best { magnitude: f64::from_bits(largest.cast_unsigned()), index },
        None => Best::NONE,
    }
}

#[inline(always)]
fn signed_sum_and_largest_loop<const FUSED: bool>(x: &[f64], v: &[f64]) -> (f64, f64) {
    const LANES: usize = 32;
    assert_eq!(x.len(), v.len());
    let (mut sums, mut largest) = ([0.0; LANES], [0; LANES]);
    let ((xs, x), (vs, v)) = (x.as_chunks::<LANES>(), v.as_chunks::<LANES>());
    for (x, v) in xs.iter().zip(vs) {
        for lane in 0..LANES {
            let magnitude = magnitude_bits(x[lane]);
            largest[lane] = if magnitude > largest[lane] { magnitude } else { largest[lane] };
            sums[lane] += x[lane] * v[lane];
        }
    }
    let rest: f64 = x.iter().zip(v).map(|(x, v)| x * v).sum();
    let largest = largest.into_iter().fold(largest_bits(x), i64::max);
    (rest + sums.iter().sum::<f64>(), f64::from_bits(largest.cast_unsigned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn plain_search(x: &[f64]) -> Best {
        let mut best = Best::NONE;
        for (index, v) in x.iter().enumerate() {
            let magnitude = if v.is_finite() { v.abs() } else { f64::NAN };
            let is_none = best == Best::NONE;
            if is_none || !(best.magnitude.is_nan() || best.magnitude >= magnitude) {
                best = Best { magnitude, index };
            }
        }
        best
    }

    #[test]
    fn search_orders_zeros_infinities_and_nans() {
        let tiny = f64::from_bits(1);
        let cases: [(&[f64], usize); 6] = [
            (&[-0.0, 0.0, -0.0], 0),
            (&[0.0, -tiny, tiny], 1),
            (&[f64::MAX, -f64::MAX, 1.0], 0),
            (&[1.0, f64::NEG_INFINITY, -f64::NAN], 1),
            (&[1.0, -f64::NAN, f64::INFINITY], 1),
            (&[tiny, -f64::MIN_POSITIVE, 0.0], 1),
        ];
        for (x, index) in cases {
            // In the lanes and after them.
            for before in [0, 31, 32, 100] {
                let padded = [&vec![0.0; before], x].concat();
                let (found, want) = (search(&padded), plain_search(&padded));
                assert_eq!(found.index, want.index, "{padded:?}");
                if before > 0 && index > 0 {
                    assert_eq!(found.index, before + index, "{padded:?}");
                }
            }
            assert_eq!(search(x).index, index, "{x:?}");
        }
    }

    proptest! {
        #[test]
        fn search_finds_the_first_largest(
            mut x in prop::collection::vec(-4i32..5, 0..200), bad in 0usize..400, kind in 0u8..3,
        ) {
            let mut x: Vec<f64> = x.drain(..).map(f64::from).collect();
            if bad < x.len() {
                x[bad] = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY][kind as usize];
            }
            let (found, want) = (search(&x), plain_search(&x));
            prop_assert_eq!(found.index, want.index);
            prop_assert!(found.magnitude == want.magnitude
                || found.magnitude.is_nan() && want.magnitude.is_nan());
        }

        #[test]
        fn signed_sums_are_those_of_all_elements(
            mut x in prop::collection::vec(-400i32..400, 0..200), bad in 0usize..400,
        ) {
            let mut x: Vec<f64> = x.drain(..).map(f64::from).collect();
            let v: Vec<f64> = (0..x.len()).map(|i| [1.0, -1.0][i * i % 7 % 2]).collect();
            let want = x.iter().zip(&v).map(|(x, v)| x * v).sum::<f64>();
            let most = x.iter().fold(0.0f64, |most, x| most.max(x.abs()));
            prop_assert_eq!(signed_sum_and_largest(&x, &v), (want, most));
            prop_assert_eq!(largest(&x), most);
            if bad < x.len() {
                x[bad] = f64::NAN;
                let (sum, most) = signed_sum_and_largest(&x, &v);
                prop_assert!(sum.is_nan() && most.is_nan() && largest(&x).is_nan());
                x[bad] = f64::NEG_INFINITY;
                prop_assert_eq!(largest(&x), f64::INFINITY);
            }
        }

        #[test]
        fn loops_match_their_formulas(
            x in prop::collection::vec(-1e3..1e3f64, 0..100), alpha in -2.0..2.0f64,
        ) {
            let mut y: Vec<f64> = x.iter().rev().copied().collect();
            let before = y.clone();
            axpy(alpha, &x, &mut y);
            for i in 0..x.len() {
                prop_assert!((y[i] - (before[i] + alpha * x[i])).abs() < 1e-9);
            }
            let (mut a, mut b) = (x.clone(), before.clone());
            swap(&mut a, &mut b);
            prop_assert_eq!((&a, &b), (&before, &x));
            scale(alpha, &mut a);
            prop_assert!(a.iter().zip(&before).all(|(a, b)| *a == b * alpha));
        }
    }
}
