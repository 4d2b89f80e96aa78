//! The arithmetic on bytes: one kernel per kind of processor, chosen at run time.
//!
//! Each vector kernel has the [`scalar`] kernel as its oracle; tests compare them byte for byte.
//! The methods of [`Kernel`] are the safe interface.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
pub mod scalar;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod vectors;

use std::sync::OnceLock;

use super::Coef;

/// `out += src`.
type Xor = unsafe fn(src: *const u8, out: *mut u8, bytes: usize);
/// `out += c src`.
type GfFma = unsafe fn(c: u8, src: *const u8, out: *mut u8, bytes: usize);
/// `out = c src`.
type GfMul = unsafe fn(c: u8, src: *const u8, out: *mut u8, bytes: usize);
/// `out += c src` on doubles.
type RealFma = unsafe fn(c: f64, src: *const u8, out: *mut u8, bytes: usize);

/// The operations for one kind of processor.
#[derive(Debug)]
pub struct Kernel {
    /// `scalar`, `avx2`, `avx512-gfni` or `neon`.
    pub name: &'static str,
    xor: Xor,
    gf_fma: GfFma,
    gf_mul: GfMul,
    real_fma: RealFma,
}

/// The kernels that this processor can run, best first, the scalar one last.
pub fn available() -> &'static [Kernel] {
    static KERNELS: OnceLock<Vec<Kernel>> = OnceLock::new();
    KERNELS.get_or_init(|| {
        let mut kernels = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            kernels.extend(avx512::kernel());
            kernels.extend(avx2::kernel());
        }
        #[cfg(target_arch = "aarch64")]
        kernels.push(neon::kernel());
        kernels.push(scalar::KERNEL);
        kernels
    })
}

/// The kernel that all of the checkpoint code uses on this processor.
pub fn best() -> &'static Kernel {
    &available()[0]
}

/// `dst += coef src` with the best kernel.
///
/// # Panics
/// When the lengths differ, or are no multiple of 8 with a real coefficient.
pub fn fma(coef: Coef, src: &[u8], dst: &mut [u8]) {
    best().fma(coef, src, dst);
}

/// `dst = coef src` with the best kernel.
///
/// # Panics
/// When the lengths differ, or are no multiple of 8 with a real coefficient.
pub fn mul(coef: Coef, src: &[u8], dst: &mut [u8]) {
    best().mul(coef, src, dst);
}

impl Kernel {
    /// `dst += coef src`; leaves `dst` unchanged when `coef` is zero.
    ///
    /// # Panics
    /// When the lengths differ, or are no multiple of 8 with a real coefficient.
    pub fn fma(&self, coef: Coef, src: &[u8], dst: &mut [u8]) {
        check_lengths(coef, src, dst);
        let (src, out, bytes) = (src.as_ptr(), dst.as_mut_ptr(), dst.len());
        // SAFETY: both are `bytes` long, a multiple of 8 with a real coefficient, and
        // distinct borrows; `available` lists only kernels that this processor can run.
        unsafe {
            match coef {
                zero if zero.is_zero() => {}
                Coef::Gf(1) => (self.xor)(src, out, bytes),
                Coef::Gf(c) => (self.gf_fma)(c, src, out, bytes),
                Coef::Real(c) => (self.real_fma)(c, src, out, bytes),
            }
        }
    }

    /// `dst = coef src`.
    ///
    /// # Panics
    /// When the lengths differ, or are no multiple of 8 with a real coefficient.
    pub fn mul(&self, coef: Coef, src: &[u8], dst: &mut [u8]) {
        check_lengths(coef, src, dst);
        match coef {
            zero if zero.is_zero() => dst.fill(0),
            Coef::Gf(1) | Coef::Real(1.0) => dst.copy_from_slice(src),
            // SAFETY: both are equally long and distinct borrows; `available` lists only kernels
            // that this processor can run.
            Coef::Gf(c) => unsafe {
                (self.gf_mul)(c, src.as_ptr(), dst.as_mut_ptr(), dst.len());
            },
            Coef::Real(c) => {
                // c src = -0 + c src: -0 is the neutral element, +0 is not.
                for word in dst.chunks_exact_mut(8) {
                    word.copy_from_slice(&(-0.0f64).to_ne_bytes());
                }
                self.fma(Coef::Real(c), src, dst);
            }
        }
    }
}

/// Products of `c` with the 16 low nibbles and with the 16 high ones.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn tables(c: u8) -> [[u8; 16]; 2] {
    [0, 4].map(|shift| std::array::from_fn(|x| super::gf256::mul(c, (x as u8) << shift)))
}

fn check_lengths(coef: Coef, src: &[u8], dst: &[u8]) {
    assert_eq!(src.len(), dst.len(), "blocks of unequal length");
    if let Coef::Real(_) = coef {
        assert_eq!(src.len() % 8, 0, "{} bytes are no whole number of doubles", src.len());
    }
}

#[cfg(test)]
mod tests;
