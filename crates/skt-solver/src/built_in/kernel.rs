//! The innermost loops, for each instruction set: a tile of C in registers.

use std::fmt::Debug;
use std::ops::{Add, Div, Mul, Neg, Sub};

use skt_host::vectors::Vectors;

use super::pack::pack;
use super::strided::Strided;

pub(crate) trait Number:
    Copy
    + Debug
    + Default
    + PartialEq
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + 'static
{
    const ZERO: Self;
    const ONE: Self;

    /// `self * by + to`, rounded once.
    fn fused(self, by: Self, to: Self) -> Self;

    fn kernel(vectors: Vectors) -> &'static Kernel<Self>;
}

/// The loops for one type of numbers and one instruction set. Callers of those that are `unsafe`
/// promise that the processor has the instructions, and memory as described.
pub(crate) struct Kernel<T: 'static> {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    /// The longest sum that is rounded to C at once. A panel of B of this depth stays in the first
    /// cache. The same on all machines, as bits depend on it.
    pub(crate) depth: usize,
    /// `C := C + alpha A B` for a tile of C, with panels of A and B of this depth.
    pub(crate) multiply: Multiply<T>,
    /// `X := T^-1 X`: X the first rows of a panel of A, T a lower triangle in a panel of B.
    pub(crate) solve: Solve<T>,
    pub(crate) pack_a: Pack<T>,
    pub(crate) pack_b: Pack<T>,
    /// `x y`, of the same length.
    pub(crate) dot: unsafe fn(x: &[T], y: &[T]) -> T,
    /// `y := y + alpha x`, of the same length.
    pub(crate) axpy: unsafe fn(alpha: T, x: &[T], y: &mut [T]),
}

type Multiply<T> =
    unsafe fn(depth: usize, a: *const T, b: *const T, alpha: T, c: *mut T, ldc: usize);
type Solve<T> = unsafe fn(order: usize, is_unit: bool, t: *const T, x: *mut T);
type Pack<T> = unsafe fn(from: Strided<T>, lines: usize, depth: usize, to: *mut T);

unsafe fn multiply_plainly<T: Number, const ROWS: usize, const COLUMNS: usize>(
    depth: usize,
    a: *const T,
    b: *const T,
    alpha: T,
    c: *mut T,
    ldc: usize,
) {
    let mut sums = [[T::ZERO; ROWS]; COLUMNS];
    for p in 0..depth {
        // SAFETY: the panels have this depth.
        let (a, b) = unsafe {
            (&*a.add(p * ROWS).cast::<[T; ROWS]>(), &*b.add(p * COLUMNS).cast::<[T; COLUMNS]>())
        };
        for (sums, &b) in sums.iter_mut().zip(b) {
            for (sum, &a) in sums.iter_mut().zip(a) {
                *sum = *sum + a * b;
            }
        }
    }
    for (j, sums) in sums.iter().enumerate() {
        for (i, &sum) in sums.iter().enumerate() {
            // SAFETY: C has this tile.
            unsafe {
                let c = c.add(j * ldc + i);
                *c = *c + alpha * sum;
            }
        }
    }
}

/// As [`Kernel::solve`].
#[inline(always)]
unsafe fn solve_loop<T: Number, const ROWS: usize, const COLUMNS: usize>(
    order: usize,
    is_unit: bool,
    t: *const T,
    x: *mut T,
) {
    debug_assert!(order <= COLUMNS);
    for i in 0..order {
        // SAFETY: X has `order` rows of ROWS numbers, T as many of COLUMNS.
        unsafe {
            let row = x.add(i * ROWS).cast::<[T; ROWS]>();
            let mut solved = *row;
            for p in 0..i {
                let (factor, above) =
                    (*t.add(p * COLUMNS + i), &*x.add(p * ROWS).cast::<[T; ROWS]>());
                solved.iter_mut().zip(above).for_each(|(x, &above)| *x = *x - factor * above);
            }
            if !is_unit {
                let diagonal = *t.add(i * COLUMNS + i);
                solved.iter_mut().for_each(|x| *x = *x / diagonal);
            }
            *row = solved;
        }
    }
}

#[inline(always)]
fn dot_loop<T: Number, const LANES: usize, const FUSED: bool>(x: &[T], y: &[T]) -> T {
    let add = |sum: T, x: T, y: T| if FUSED { x.fused(y, sum) } else { sum + x * y };
    let mut sums = [T::ZERO; LANES];
    let ((xs, x), (ys, y)) = (x.as_chunks::<LANES>(), y.as_chunks::<LANES>());
    for (x, y) in xs.iter().zip(ys) {
        for lane in 0..LANES {
            sums[lane] = add(sums[lane], x[lane], y[lane]);
        }
    }
    let rest = x.iter().zip(y).fold(T::ZERO, |sum, (&x, &y)| add(sum, x, y));
    // In pairs: one after the other, they would take as long as a short product.
    let mut width = LANES;
    while width > 1 {
        width /= 2;
        for lane in 0..width {
            sums[lane] = sums[lane] + sums[lane + width];
        }
    }
    sums[0] + rest
}

#[inline(always)]
fn axpy_loop<T: Number, const FUSED: bool>(alpha: T, x: &[T], y: &mut [T]) {
    for (y, &x) in y.iter_mut().zip(x) {
        *y = if FUSED { alpha.fused(x, *y) } else { *y + alpha * x };
    }
}

/// The kernel without vectors: `$rows` x `$columns` sums.
macro_rules! plain {
    ($number:ident, $rows:literal x $columns:literal, $depth:literal) => {
        Kernel::<$number> {
            rows: $rows,
            columns: $columns,
            depth: $depth,
            multiply: multiply_plainly::<$number, $rows, $columns>,
            solve: solve_loop::<$number, $rows, $columns>,
            pack_a: pack::<$number, $rows>,
            pack_b: pack::<$number, $columns>,
            dot: dot_loop::<$number, 8, false>,
            axpy: axpy_loop::<$number, false>,
        }
    };
}

/// The kernel for an instruction set: (`$vectors` vectors of `$lanes`) x `$columns` sums.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! vectors {
    ($module:ident, $arch:ident, $features:literal, $number:ident,
     ($vectors:literal x $lanes:literal) x $columns:literal, $depth:literal, $zero:ident,
     $load:ident, $store:ident, $splat:ident, $fmadd:ident, $mul:ident, $add:ident) => {
        mod $module {
            use super::*;
            use std::arch::$arch::*;

            const ROWS: usize = $vectors * $lanes;
            const COLUMNS: usize = $columns;

            pub(super) const KERNEL: Kernel<$number> = Kernel {
                rows: ROWS,
                columns: COLUMNS,
                depth: $depth,
                multiply,
                solve,
                pack_a: pack::<$number, ROWS>,
                pack_b: pack::<$number, COLUMNS>,
                dot,
                axpy,
            };

            /// Only plain loops over constant ranges are unrolled, and keep the sums in registers.
            #[allow(clippy::needless_range_loop)]
            #[target_feature(enable = $features)]
            unsafe fn multiply(
                depth: usize,
                a: *const $number,
                b: *const $number,
                alpha: $number,
                c: *mut $number,
                ldc: usize,
            ) {
                let mut sums = [[$zero(); $vectors]; COLUMNS];
                // SAFETY: the panels have this depth, and C has this tile.
                unsafe {
                    for j in 0..COLUMNS {
                        for v in 0..$vectors {
                            prefetch(c.add(j * ldc + v * $lanes));
                        }
                        prefetch(c.add(j * ldc + ROWS - 1));
                    }
                    for p in 0..depth {
                        let (a, b) = (a.add(p * ROWS), b.add(p * COLUMNS));
                        let mut x = [$zero(); $vectors];
                        for v in 0..$vectors {
                            x[v] = $load(a.add(v * $lanes));
                        }
                        for j in 0..COLUMNS {
                            let y = $splat(*b.add(j));
                            for v in 0..$vectors {
                                sums[j][v] = $fmadd(x[v], y, sums[j][v]);
                            }
                        }
                    }
                    let alpha = $splat(alpha);
                    for j in 0..COLUMNS {
                        for v in 0..$vectors {
                            let c = c.add(j * ldc + v * $lanes);
                            $store(c, $add($load(c), $mul(alpha, sums[j][v])));
                        }
                    }
                }
            }

            #[target_feature(enable = $features)]
            unsafe fn solve(order: usize, is_unit: bool, t: *const $number, x: *mut $number) {
                // SAFETY: the caller's promise.
                unsafe { solve_loop::<$number, ROWS, COLUMNS>(order, is_unit, t, x) }
            }

            #[target_feature(enable = $features)]
            fn dot(x: &[$number], y: &[$number]) -> $number {
                dot_loop::<$number, { 4 * $lanes }, true>(x, y)
            }

            #[target_feature(enable = $features)]
            fn axpy(alpha: $number, x: &[$number], y: &mut [$number]) {
                axpy_loop::<$number, true>(alpha, x, y)
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn prefetch<T>(at: *const T) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a hint, for any address.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
}

/// There is no such hint in stable Rust.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn prefetch<T>(_: *const T) {}

#[cfg(target_arch = "x86_64")]
vectors!(
    avx512_f64,
    x86_64,
    "avx512f,avx2,fma",
    f64,
    (3 x 8) x 8,
    256,
    _mm512_setzero_pd,
    _mm512_loadu_pd,
    _mm512_storeu_pd,
    _mm512_set1_pd,
    _mm512_fmadd_pd,
    _mm512_mul_pd,
    _mm512_add_pd
);
#[cfg(target_arch = "x86_64")]
vectors!(
    avx512_f32,
    x86_64,
    "avx512f,avx2,fma",
    f32,
    (3 x 16) x 8,
    384,
    _mm512_setzero_ps,
    _mm512_loadu_ps,
    _mm512_storeu_ps,
    _mm512_set1_ps,
    _mm512_fmadd_ps,
    _mm512_mul_ps,
    _mm512_add_ps
);
// Of 16 registers, 12 are sums. With 3 vectors x 4 columns the compiler keeps some of them in
// memory, at half of the rate.
#[cfg(target_arch = "x86_64")]
vectors!(
    avx2_f64,
    x86_64,
    "avx2,fma",
    f64,
    (2 x 4) x 6,
    256,
    _mm256_setzero_pd,
    _mm256_loadu_pd,
    _mm256_storeu_pd,
    _mm256_set1_pd,
    _mm256_fmadd_pd,
    _mm256_mul_pd,
    _mm256_add_pd
);
#[cfg(target_arch = "x86_64")]
vectors!(
    avx2_f32,
    x86_64,
    "avx2,fma",
    f32,
    (2 x 8) x 6,
    384,
    _mm256_setzero_ps,
    _mm256_loadu_ps,
    _mm256_storeu_ps,
    _mm256_set1_ps,
    _mm256_fmadd_ps,
    _mm256_mul_ps,
    _mm256_add_ps
);

#[cfg(target_arch = "aarch64")]
mod neon {
    use std::arch::aarch64::*;

    #[target_feature(enable = "neon")]
    #[inline]
    pub(super) fn zero_f64() -> float64x2_t {
        vdupq_n_f64(0.0)
    }

    #[target_feature(enable = "neon")]
    #[inline]
    pub(super) fn fmadd_f64(a: float64x2_t, b: float64x2_t, c: float64x2_t) -> float64x2_t {
        vfmaq_f64(c, a, b)
    }

    #[target_feature(enable = "neon")]
    #[inline]
    pub(super) fn zero_f32() -> float32x4_t {
        vdupq_n_f32(0.0)
    }

    #[target_feature(enable = "neon")]
    #[inline]
    pub(super) fn fmadd_f32(a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t {
        vfmaq_f32(c, a, b)
    }
}

#[cfg(target_arch = "aarch64")]
use neon::{fmadd_f32, fmadd_f64, zero_f32, zero_f64};

#[cfg(target_arch = "aarch64")]
vectors!(
    neon_f64,
    aarch64,
    "neon",
    f64,
    (3 x 2) x 8,
    256,
    zero_f64,
    vld1q_f64,
    vst1q_f64,
    vdupq_n_f64,
    fmadd_f64,
    vmulq_f64,
    vaddq_f64
);
#[cfg(target_arch = "aarch64")]
vectors!(
    neon_f32,
    aarch64,
    "neon",
    f32,
    (3 x 4) x 8,
    384,
    zero_f32,
    vld1q_f32,
    vst1q_f32,
    vdupq_n_f32,
    fmadd_f32,
    vmulq_f32,
    vaddq_f32
);

macro_rules! number {
    ($number:ident, $plain:expr, $avx2:ident, $avx512:ident, $neon:ident) => {
        impl Number for $number {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;

            #[inline(always)]
            fn fused(self, by: Self, to: Self) -> Self {
                self.mul_add(by, to)
            }

            fn kernel(vectors: Vectors) -> &'static Kernel<Self> {
                match vectors {
                    Vectors::Portable => &const { $plain },
                    #[cfg(target_arch = "x86_64")]
                    Vectors::Avx2 => &$avx2::KERNEL,
                    #[cfg(target_arch = "x86_64")]
                    Vectors::Avx512 => &$avx512::KERNEL,
                    #[cfg(target_arch = "aarch64")]
                    Vectors::Neon => &$neon::KERNEL,
                }
            }
        }
    };
}

number!(f64, plain!(f64, 4 x 4, 256), avx2_f64, avx512_f64, neon_f64);
number!(f32, plain!(f32, 8 x 4, 384), avx2_f32, avx512_f32, neon_f32);
