use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A stream of random numbers that no other run shares.
#[derive(Debug, Clone)]
pub struct Stream(Xoshiro256PlusPlus);

impl Stream {
    pub fn new(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// The i-th is the generator after i jumps of 2^128 numbers, so streams never overlap.
    pub(crate) fn streams(seed: u64, count: usize) -> Vec<Self> {
        let mut generator = Xoshiro256PlusPlus::seed_from_u64(seed);
        (0..count)
            .map(|_| {
                let stream = Self(generator.clone());
                generator.jump();
                stream
            })
            .collect()
    }

    /// Uniform in (0, 1): 53 bits, shifted by half a step from both ends.
    pub fn uniform(&mut self) -> f64 {
        const STEP: f64 = 1.0 / (1u64 << 53) as f64;
        ((self.0.next_u64() >> 11) as f64 + 0.5) * STEP
    }

    /// Uniform in 0..bound, by widening multiplication; the bias is below bound / 2^64.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.0.next_u64()) * bound as u128) >> 64) as usize
    }

    /// Exponential with mean 1.
    pub(crate) fn exponential(&mut self) -> f64 {
        -self.uniform().ln()
    }

    /// Standard normal, by Box and Muller.
    pub fn normal(&mut self) -> f64 {
        let radius = (2.0 * self.exponential()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// With a shape of at least 1, and scale 1, by Marsaglia and Tsang (ACM TOMS 26, 2000).
    pub(crate) fn gamma(&mut self, shape: f64) -> f64 {
        debug_assert!(shape >= 1.0);
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let x = self.normal();
            let v = (1.0 + c * x).powi(3);
            if v > 0.0 && self.uniform().ln() < 0.5 * x * x + d * (1.0 - v + v.ln()) {
                return d * v;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean_and_variance(mut draw: impl FnMut() -> f64) -> (f64, f64) {
        let draws: Vec<f64> = (0..200_000).map(|_| draw()).collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / draws.len() as f64;
        (mean, variance)
    }

    #[test]
    fn draws_have_the_moments_of_their_laws() {
        let mut stream = Stream::streams(7, 1).remove(0);
        for (name, (mean, variance), (want_mean, want_variance)) in [
            ("uniform", mean_and_variance(|| stream.uniform()), (0.5, 1.0 / 12.0)),
            ("exponential", mean_and_variance(|| stream.exponential()), (1.0, 1.0)),
            ("normal", mean_and_variance(|| stream.normal()), (0.0, 1.0)),
            ("gamma 2.5", mean_and_variance(|| stream.gamma(2.5)), (2.5, 2.5)),
        ] {
            assert!((mean - want_mean).abs() < 0.02, "{name}: mean {mean}");
            assert!((variance - want_variance).abs() < 0.05, "{name}: variance {variance}");
        }
    }

    #[test]
    fn streams_are_reproducible_and_different() {
        let mut first = Stream::streams(1, 3);
        let mut again = Stream::streams(1, 5);
        for i in 0..3 {
            assert_eq!(first[i].uniform(), again[i].uniform());
        }
        assert_ne!(first[0].uniform(), first[1].uniform());
    }
}
