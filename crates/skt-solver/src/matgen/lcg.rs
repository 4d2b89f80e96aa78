//! The reference's linear congruential generator (HPL_rand), bit for bit.
//!
//! `X_0 = 100`, `X_{k+1} = a X_k + 1 mod 2^64`. With 0-based indices and b as
//! column n, `A(i,j)` uses `X_{1+i+jn}` and is `0.5 - X 2^-64`.

use std::sync::OnceLock;

const SEED: u64 = 100;
const MULTIPLIER: u64 = 6364136223846793005;
const SCALE: f64 = 1.0 / (1u128 << 64) as f64;

/// `x -> mul x + add mod 2^64`: one step of the generator, or many at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lcg {
    mul: u64,
    add: u64,
}

impl Lcg {
    pub(crate) const STEP: Self = Self { mul: MULTIPLIER, add: 1 };
    const IDENTITY: Self = Self { mul: 1, add: 0 };

    pub fn then(self, next: Self) -> Self {
        Self {
            mul: next.mul.wrapping_mul(self.mul),
            add: next.mul.wrapping_mul(self.add).wrapping_add(next.add),
        }
    }

    /// `count` steps at once, in O(log count) by repeated squaring.
    pub fn jump(count: u64) -> Self {
        let mut total = Self::IDENTITY;
        for (bit, power) in powers().iter().enumerate() {
            if count >> bit & 1 != 0 {
                total = total.then(*power);
            }
        }
        total
    }

    #[inline]
    pub fn apply(self, x: u64) -> u64 {
        self.mul.wrapping_mul(x).wrapping_add(self.add)
    }

    pub fn state(index: u64) -> u64 {
        Self::jump(index).apply(SEED)
    }

    #[inline]
    pub fn entry(state: u64) -> f64 {
        // The reference rounds in three steps (two 32-bit halves, then their sum);
        // the sum of the halves is exact in the wider steps, so one rounding remains.
        0.5 - (state as f64) * SCALE
    }
}

/// The jumps over 2^0, 2^1, ... 2^63 steps.
fn powers() -> &'static [Lcg; 64] {
    static POWERS: OnceLock<[Lcg; 64]> = OnceLock::new();
    POWERS.get_or_init(|| {
        let mut power = Lcg::STEP;
        std::array::from_fn(|_| {
            let this = power;
            power = power.then(power);
            this
        })
    })
}

/// Fills `values` with `A(i, j), A(i, j+1), ...` of a matrix of order `n`.
pub(crate) fn fill_row(n: usize, i: usize, j: usize, values: &mut [f64]) {
    let (n, i, j) = (n as u64, i as u64, j as u64);
    let first = j.wrapping_mul(n).wrapping_add(i).wrapping_add(1);
    let next_column = Lcg::jump(n);
    let mut x = Lcg::state(first);
    for value in values {
        *value = Lcg::entry(x);
        x = next_column.apply(x);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn first_entries_are_the_references() {
        let entry = |i, j| {
            let mut value = [0.0];
            fill_row(500, i, j, &mut value);
            value[0]
        };
        assert_eq!(entry(0, 0), -5.159944193766641e-5);
        assert_eq!(entry(1, 0), 0.38413122531282284);
    }

    proptest! {
        #[test]
        fn jump_equals_as_many_steps(count in 0u64..2000, x: u64) {
            let stepped = (0..count).fold(x, |x, _| Lcg::STEP.apply(x));
            prop_assert_eq!(Lcg::jump(count).apply(x), stepped);
        }

        #[test]
        fn jumps_add_up(a: u64, b: u64, x: u64) {
            let both = Lcg::jump(b).apply(Lcg::jump(a).apply(x));
            prop_assert_eq!(Lcg::jump(a.wrapping_add(b)).apply(x), both);
        }

        #[test]
        fn rows_agree_with_the_column_by_column_stream(n in 1usize..30) {
            let mut x = Lcg::STEP.apply(SEED);
            let mut row = vec![0.0; n + 1];
            let mut stream = Vec::new();
            for _ in 0..n * (n + 1) {
                stream.push(Lcg::entry(x));
                x = Lcg::STEP.apply(x);
            }
            for i in 0..n {
                fill_row(n, i, 0, &mut row);
                for (j, value) in row.iter().enumerate() {
                    prop_assert_eq!(*value, stream[i + j * n]);
                }
            }
        }
    }
}
