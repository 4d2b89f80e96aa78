//! A second random matrix, from xoshiro256++ (`--generator xoshiro`).

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// `A(i, j), A(i, j+1), ...` of a matrix of order `n`, uniform in [-0.5, 0.5]. Seeded for each
/// element with its index in column-major order, so that any part can be generated anywhere.
pub(crate) fn fill_row(n: usize, i: usize, j: usize, values: &mut [f64]) {
    let first = (j as u64).wrapping_mul(n as u64).wrapping_add(i as u64);
    for (k, value) in (0u64..).zip(values) {
        let place = first.wrapping_add(k.wrapping_mul(n as u64));
        let x = Xoshiro256PlusPlus::seed_from_u64(place).next_u64();
        *value = 0.5 - (x as f64) * (-64f64).exp2();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_spread_evenly_and_do_not_depend_on_the_cut() {
        let (n, mut whole, mut part) = (300, vec![0.0; 301], vec![0.0; 5]);
        let (mut sum, mut square) = (0.0, 0.0);
        for i in 0..n {
            fill_row(n, i, 0, &mut whole);
            fill_row(n, i, 7, &mut part);
            assert_eq!(whole[7..12], part[..]);
            sum += whole.iter().sum::<f64>();
            square += whole.iter().map(|v| v * v).sum::<f64>();
        }
        let count = (n * (n + 1)) as f64;
        assert!((sum / count).abs() < 0.005, "mean {}", sum / count);
        assert!((square / count - 1.0 / 12.0).abs() < 0.002, "variance {}", square / count);
    }
}
