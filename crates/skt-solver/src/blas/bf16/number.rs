use bytemuck::{Pod, Zeroable};

/// A bf16: the first 16 bits of a float whose others are 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(transparent)]
pub struct Bf16(u16);

impl From<Bf16> for f32 {
    fn from(number: Bf16) -> Self {
        f32::from_bits(u32::from(number.0) << 16)
    }
}

/// The nearest bf16 and, of two, that with an even significand.
impl From<f32> for Bf16 {
    fn from(number: f32) -> Self {
        let bits = number.to_bits();
        // Half of the distance of two bf16 but for ties, which are rounded up to an even one.
        let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1));
        // The sum may make a NaN a number: cut, with a bit that stays.
        let kept = if number.is_nan() { bits | 0x0040_0000 } else { rounded };
        Self((kept >> 16) as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blas::kernels;
    use proptest::prelude::*;

    /// The nearest of the two floats around `x` that a bf16 has; of both, the even one.
    fn nearest(x: f32) -> f32 {
        let below = x.to_bits() & 0xffff_0000;
        let [low, high] = [below, below + 0x1_0000].map(f32::from_bits);
        // In the next binade beyond the largest bf16 for infinity, as rounding to nearest has it.
        let exact =
            |y: f32| if y.is_finite() { f64::from(y) } else { 2f64.powi(128).copysign(y.into()) };
        let [to_low, to_high] = [low, high].map(|y| (f64::from(x) - exact(y)).abs());
        let is_low = to_low < to_high || to_low == to_high && below & 0x1_0000 == 0;
        if is_low { low } else { high }
    }

    proptest! {
        #[test]
        fn numbers_are_rounded_to_the_nearest_even(
            bits in prop::collection::vec(any::<u32>(), 0..80), tie: u16,
        ) {
            let ties = [u32::from(tie) << 16 | 0x8000, u32::from(tie) << 16];
            let numbers: Vec<f32> = bits.into_iter().chain(ties).map(f32::from_bits).collect();
            let mut packed = vec![Bf16::default(); numbers.len()];
            kernels::pack_bf16(&numbers, &mut packed);
            for (&x, &y) in numbers.iter().zip(&packed) {
                let y = f32::from(y);
                prop_assert_eq!(x.is_nan(), y.is_nan());
                if x.is_finite() {
                    prop_assert_eq!(nearest(x).to_bits(), y.to_bits(), "{} to {}", x, y);
                } else if !x.is_nan() {
                    prop_assert_eq!(x, y);
                }
            }
        }
    }
}
