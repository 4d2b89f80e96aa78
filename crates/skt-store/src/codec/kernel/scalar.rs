//! The plain kernel, which runs everywhere and is the oracle of all others.

use super::Kernel;
use crate::codec::gf256;

/// The plain kernel.
pub(crate) const KERNEL: Kernel = Kernel { name: "scalar", xor, gf_fma, gf_mul, real_fma };

/// Products of `c` with every byte.
fn products(c: u8) -> [u8; 256] {
    std::array::from_fn(|x| gf256::mul(c, x as u8))
}

/// `out += src` over bits.
///
/// # Safety
/// `bytes` must be readable at `src` and writable at `out`; the two must not overlap.
#[inline(always)]
pub(super) unsafe fn xor(src: *const u8, out: *mut u8, bytes: usize) {
    let words = bytes / 8;
    for i in 0..words {
        // SAFETY: i * 8 + 8 <= bytes.
        unsafe {
            let sum = out.cast::<u64>().add(i).read_unaligned()
                ^ src.cast::<u64>().add(i).read_unaligned();
            out.cast::<u64>().add(i).write_unaligned(sum);
        }
    }
    for i in words * 8..bytes {
        // SAFETY: i < bytes.
        unsafe { out.add(i).write(out.add(i).read() ^ src.add(i).read()) }
    }
}

/// `out += c src` over GF(2^8).
///
/// # Safety
/// The conditions of [`xor`].
pub(super) unsafe fn gf_fma(c: u8, src: *const u8, out: *mut u8, bytes: usize) {
    // A vector kernel rarely leaves bytes over.
    if bytes == 0 {
        return;
    }
    let products = products(c);
    for i in 0..bytes {
        // SAFETY: i < bytes.
        unsafe {
            let product = products[usize::from(src.add(i).read())];
            out.add(i).write(out.add(i).read() ^ product);
        }
    }
}

/// `out = c src` over GF(2^8).
///
/// # Safety
/// The conditions of [`xor`].
pub(super) unsafe fn gf_mul(c: u8, src: *const u8, out: *mut u8, bytes: usize) {
    if bytes == 0 {
        return;
    }
    let products = products(c);
    for i in 0..bytes {
        // SAFETY: i < bytes.
        unsafe { out.add(i).write(products[usize::from(src.add(i).read())]) }
    }
}

/// `out += c src` over doubles: the product is rounded, then the sum.
///
/// # Safety
/// The conditions of [`xor`], and `bytes` is a multiple of 8.
#[inline(always)]
pub(super) unsafe fn real_fma(c: f64, src: *const u8, out: *mut u8, bytes: usize) {
    for i in 0..bytes / 8 {
        // SAFETY: i * 8 + 8 <= bytes.
        unsafe {
            let product = c * src.cast::<f64>().add(i).read_unaligned();
            let sum = out.cast::<f64>().add(i).read_unaligned() + product;
            out.cast::<f64>().add(i).write_unaligned(sum);
        }
    }
}
