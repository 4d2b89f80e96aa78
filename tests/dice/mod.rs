//! Luck that can be had again.

#![allow(dead_code)] // not every program needs all of it

/// Numbers that look random, in a sequence that the seed decides.
pub struct Dice(pub u64);

impl Dice {
    /// From 0 to below `sides`.
    pub fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % sides
    }
}

/// The seed of a random test, which it prints: the number in `variable`, or 1.
pub fn seed(variable: &str) -> u64 {
    let seed = std::env::var(variable)
        .map_or(1, |text| text.parse().unwrap_or_else(|why| panic!("{variable}={text}: {why}")));
    println!("{variable}={seed}");
    seed
}
