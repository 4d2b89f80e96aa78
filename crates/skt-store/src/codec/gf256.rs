//! The field GF(2^8) with the polynomial x^8 + x^4 + x^3 + x^2 + 1.
//!
//! Elements are bytes and addition is XOR; the powers of 2 are all elements but 0.

/// The polynomial, 0x11d (that of RAID-6, ISA-L and most Reed-Solomon codes).
const POLYNOMIAL: u16 = 0x11d;

/// `2 * a`.
const fn double(a: u8) -> u8 {
    let wide = (a as u16) << 1;
    (if wide & 0x100 != 0 { wide ^ POLYNOMIAL } else { wide }) as u8
}

/// `EXP[i] = 2^i`, for two periods, so that a sum of two logarithms needs no modulo.
const EXP: [u8; 510] = {
    let mut table = [0; 510];
    let (mut i, mut power) = (0, 1);
    while i < table.len() {
        table[i] = power;
        power = double(power);
        i += 1;
    }
    table
};

/// `LOG[2^i] = i` for i in 0..255; `LOG[0]` has no meaning.
const LOG: [u8; 256] = {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 255 {
        table[EXP[i] as usize] = i as u8;
        i += 1;
    }
    table
};

/// `a * b`.
pub(crate) fn mul(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    EXP[LOG[usize::from(a)] as usize + LOG[usize::from(b)] as usize]
}

/// `1 / a`.
///
/// # Panics
/// When `a` is 0.
pub(crate) fn inv(a: u8) -> u8 {
    assert!(a != 0, "0 has no inverse");
    EXP[255 - LOG[usize::from(a)] as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Schoolbook multiplication of polynomials, the definition of the field.
    fn mul_by_definition(a: u8, b: u8) -> u8 {
        let (mut a, mut product) = (a, 0);
        for bit in 0..8 {
            if b >> bit & 1 == 1 {
                product ^= a;
            }
            a = double(a);
        }
        product
    }

    #[test]
    fn product_table_is_the_definition() {
        for a in 0..=255 {
            for b in 0..=255 {
                assert_eq!(mul(a, b), mul_by_definition(a, b), "{a} * {b}");
            }
        }
    }

    #[test]
    fn every_element_but_zero_has_an_inverse() {
        for a in 1..=255 {
            assert_eq!(mul(a, inv(a)), 1, "{a}");
        }
    }
}
