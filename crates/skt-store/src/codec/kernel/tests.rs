use super::*;
use crate::codec::gf256;

/// Lengths around every vector width and its multiples, and a long one.
const LENGTHS: [usize; 22] =
    [0, 1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 191, 255, 257, 1000, 4099];
const OFFSETS: [(usize, usize); 5] = [(0, 0), (0, 1), (1, 3), (5, 63), (62, 8)];

fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 32) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

/// Doubles of mixed magnitude and sign, as bytes.
fn doubles(seed: u64, bytes: usize) -> Vec<u8> {
    let random = noise(seed, bytes);
    let real = |w: &[u8]| (f64::from(w[0]) - 127.5) * (f64::from(w[1]) - 16.0).exp2();
    random.chunks_exact(8).flat_map(|w| real(w).to_ne_bytes()).collect()
}

/// Runs both operations of a kernel inside buffers whose margins must not change. `expect` has the
/// results: the sum with `acc`, and the product.
fn check(
    kernel: &Kernel,
    coef: Coef,
    acc: &[u8],
    src: &[u8],
    (s, o): (usize, usize),
    expect: (&[u8], &[u8]),
) {
    let bytes = src.len();
    let shifted = |data: &[u8], by: usize| [&vec![0xa5; by][..], data, &[0xa5; 70][..]].concat();
    let src_buf = shifted(src, s);
    let label = format!("{} {coef:?} {bytes} bytes at {s}, {o}", kernel.name);

    let mut out = shifted(acc, o);
    kernel.fma(coef, &src_buf[s..s + bytes], &mut out[o..o + bytes]);
    assert_eq!(out, shifted(expect.0, o), "fma {label}");

    let mut out = shifted(&noise(98, bytes), o);
    kernel.mul(coef, &src_buf[s..s + bytes], &mut out[o..o + bytes]);
    assert_eq!(out, shifted(expect.1, o), "mul {label}");
}

#[test]
fn gf_kernels_are_the_field_at_every_length_and_alignment() {
    for kernel in available() {
        for bytes in LENGTHS {
            let (acc, src) = (noise(1, bytes), noise(2, bytes));
            for c in [0, 1, 2, 3, 0x1d, 0x80, 0xfe, 0xff] {
                let product: Vec<u8> = src.iter().map(|&x| gf256::mul(c, x)).collect();
                let sum: Vec<u8> = acc.iter().zip(&product).map(|(a, p)| a ^ p).collect();
                for offsets in OFFSETS {
                    check(kernel, Coef::Gf(c), &acc, &src, offsets, (&sum, &product));
                }
            }
        }
    }
}

#[test]
fn gf_kernels_compute_every_product() {
    let all: Vec<u8> = (0..=255).collect();
    for kernel in available() {
        for c in 0..=255 {
            let product: Vec<u8> = all.iter().map(|&x| gf256::mul(c, x)).collect();
            let mut out = vec![0; 256];
            kernel.mul(Coef::Gf(c), &all, &mut out);
            assert_eq!(out, product, "{} mul {c}", kernel.name);
            let mut out = vec![0; 256];
            kernel.fma(Coef::Gf(c), &all, &mut out);
            assert_eq!(out, product, "{} fma {c}", kernel.name);
        }
    }
}

#[test]
fn real_kernels_round_like_plain_arithmetic() {
    for kernel in available() {
        for bytes in LENGTHS.iter().map(|l| l / 8 * 8) {
            let (acc, src) = (doubles(3, bytes), doubles(4, bytes));
            let at = |data: &[u8], i: usize| f64::from_ne_bytes(data[i..i + 8].try_into().unwrap());
            for c in [1.0, -1.0, 0.3] {
                let words = (0..bytes).step_by(8);
                let product: Vec<f64> = words.clone().map(|i| c * at(&src, i)).collect();
                let sum: Vec<f64> = words.map(|i| at(&acc, i) + product[i / 8]).collect();
                let raw = |v: &[f64]| v.iter().flat_map(|x| x.to_ne_bytes()).collect::<Vec<u8>>();
                for offsets in OFFSETS {
                    let expect = (&raw(&sum)[..], &raw(&product)[..]);
                    check(kernel, Coef::Real(c), &acc, &src, offsets, expect);
                }
            }
        }
    }
}

/// A zero coefficient adds nothing even if 0 times the source is NaN.
#[test]
fn a_zero_coefficient_adds_nothing() {
    let src: Vec<u8> =
        [f64::NAN, f64::INFINITY, 1.0].iter().flat_map(|x| x.to_ne_bytes()).collect();
    let acc = doubles(5, src.len());
    for kernel in available() {
        for coef in [Coef::Real(0.0), Coef::Real(-0.0), Coef::Gf(0)] {
            check(kernel, coef, &acc, &src, (0, 0), (&acc, &[0; 24]));
        }
    }
}

#[test]
#[should_panic(expected = "unequal length")]
fn unequal_lengths_are_refused() {
    fma(Coef::Gf(1), &[0; 3], &mut [0; 4]);
}

#[test]
#[should_panic(expected = "no whole number of doubles")]
fn half_a_double_is_refused() {
    fma(Coef::Real(1.0), &[0; 12], &mut [0; 12]);
}
