//! The arithmetic on bytes: one kernel a sort of processor, chosen at run time.
//!
//! Beside each vector kernel stands the [`scalar`] one; tests compare them byte
//! for byte. A kernel works on raw memory so that sum and output may be the
//! same place or not; [`Kernel`]'s methods are the safe way in.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
pub mod scalar;

use std::sync::OnceLock;

use super::Coef;

/// `out = acc + src`; `acc` may equal `out`.
type Xor = unsafe fn(acc: *const u8, src: *const u8, out: *mut u8, bytes: usize);
/// `out = acc + c src`; `acc` may equal `out`.
type GfFma = unsafe fn(c: u8, acc: *const u8, src: *const u8, out: *mut u8, bytes: usize);
/// `outs[i] += c[i] src`, all distinct.
type GfFmaMany = unsafe fn(c: &[u8], src: *const u8, outs: &[*mut u8], bytes: usize);
/// `out = c src`.
type GfMul = unsafe fn(c: u8, src: *const u8, out: *mut u8, bytes: usize);
/// `out = acc + c src` on doubles; `acc` may equal `out`.
type RealFma = unsafe fn(c: f64, acc: *const u8, src: *const u8, out: *mut u8, bytes: usize);

/// The operations for one sort of processor.
#[derive(Debug)]
pub struct Kernel {
    /// `scalar`, `avx2` or `avx512-gfni`.
    pub name: &'static str,
    xor: Xor,
    gf_fma: GfFma,
    /// Where reading `src` once for several sums is faster than for each.
    gf_fma_many: Option<GfFmaMany>,
    gf_mul: GfMul,
    real_fma: RealFma,
}

/// The kernels this processor can run, the best first, the scalar one last.
pub fn available() -> &'static [Kernel] {
    static KERNELS: OnceLock<Vec<Kernel>> = OnceLock::new();
    KERNELS.get_or_init(|| {
        let mut kernels = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            kernels.extend(avx512::kernel());
            kernels.extend(avx2::kernel());
        }
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

/// `dsts[i] += coefs[i] src` with the best kernel: a block's part in all
/// parities of its stripe at once.
///
/// # Panics
/// As [`fma`], and when there are not as many coefficients as sums.
pub fn fma_many(coefs: &[Coef], src: &[u8], dsts: &mut [&mut [u8]]) {
    best().fma_many(coefs, src, dsts);
}

/// `dst = coef src` with the best kernel.
///
/// # Panics
/// As [`fma`].
pub fn mul(coef: Coef, src: &[u8], dst: &mut [u8]) {
    best().mul(coef, src, dst);
}

/// `out = acc + coef src` with the best kernel: one step of a ring that adds
/// its own block to a received sum and passes it on.
///
/// # Panics
/// As [`fma`].
pub fn fma_into(coef: Coef, acc: &[u8], src: &[u8], out: &mut [u8]) {
    best().fma_into(coef, acc, src, out);
}

impl Kernel {
    /// `dst += coef src`.
    ///
    /// # Panics
    /// When the lengths differ, or are no multiple of 8 with a real coefficient.
    pub fn fma(&self, coef: Coef, src: &[u8], dst: &mut [u8]) {
        check_lengths(coef, src, dst);
        let (src, out, bytes) = (src.as_ptr(), dst.as_mut_ptr(), dst.len());
        // SAFETY: both are `bytes` long; they are distinct borrows.
        unsafe { self.run(coef, out, src, out, bytes) }
    }

    /// `dsts[i] += coefs[i] src`.
    ///
    /// # Panics
    /// As [`Kernel::fma`], and when there are not as many coefficients as sums.
    pub fn fma_many(&self, coefs: &[Coef], src: &[u8], dsts: &mut [&mut [u8]]) {
        assert_eq!(coefs.len(), dsts.len(), "coefficients and sums of unequal number");
        let elements: Option<Vec<u8>> = coefs
            .iter()
            .map(|coef| match coef {
                Coef::Gf(c) => Some(*c),
                Coef::Real(_) => None,
            })
            .collect();
        match (self.gf_fma_many, elements) {
            (Some(run), Some(elements)) if elements.len() > 1 => {
                dsts.iter().for_each(|dst| check_lengths(coefs[0], src, dst));
                let outs: Vec<*mut u8> = dsts.iter_mut().map(|dst| dst.as_mut_ptr()).collect();
                // SAFETY: all are as long as `src`; all are distinct borrows.
                unsafe { run(&elements, src.as_ptr(), &outs, src.len()) }
            }
            _ => {
                for (&coef, dst) in coefs.iter().zip(dsts) {
                    self.fma(coef, src, dst);
                }
            }
        }
    }

    /// `out = acc + coef src`.
    ///
    /// # Panics
    /// As [`Kernel::fma`].
    pub fn fma_into(&self, coef: Coef, acc: &[u8], src: &[u8], out: &mut [u8]) {
        check_lengths(coef, src, out);
        check_lengths(coef, acc, out);
        if coef.is_zero() {
            out.copy_from_slice(acc);
            return;
        }
        let (acc, src, bytes) = (acc.as_ptr(), src.as_ptr(), out.len());
        // SAFETY: all three are `bytes` long; `out` is a distinct borrow.
        unsafe { self.run(coef, acc, src, out.as_mut_ptr(), bytes) }
    }

    /// `dst = coef src`.
    ///
    /// # Panics
    /// As [`Kernel::fma`].
    pub fn mul(&self, coef: Coef, src: &[u8], dst: &mut [u8]) {
        check_lengths(coef, src, dst);
        match coef {
            zero if zero.is_zero() => dst.fill(0),
            Coef::Gf(1) | Coef::Real(1.0) => dst.copy_from_slice(src),
            // SAFETY: both are equally long; they are distinct borrows.
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

    /// `out = acc + coef src`; nothing when `coef` is zero.
    ///
    /// # Safety
    /// `acc` and `src` must be readable and `out` writable for `bytes`, a
    /// multiple of 8 with a real coefficient. `out` may equal `acc`, and
    /// overlaps nothing otherwise.
    unsafe fn run(&self, coef: Coef, acc: *const u8, src: *const u8, out: *mut u8, bytes: usize) {
        // SAFETY: the caller's promise is that of the kernels; `available`
        // lists only those that this processor can run.
        unsafe {
            match coef {
                zero if zero.is_zero() => {}
                Coef::Gf(1) => (self.xor)(acc, src, out, bytes),
                Coef::Gf(c) => (self.gf_fma)(c, acc, src, out, bytes),
                Coef::Real(c) => (self.real_fma)(c, acc, src, out, bytes),
            }
        }
    }
}

fn check_lengths(coef: Coef, src: &[u8], dst: &[u8]) {
    assert_eq!(src.len(), dst.len(), "blocks of unequal length");
    if let Coef::Real(_) = coef {
        assert_eq!(src.len() % 8, 0, "{} bytes are no whole number of doubles", src.len());
    }
}

#[cfg(test)]
mod tests;
