//! The matrix of Fasi and Higham, "Matrices with tunable infinity-norm condition number and no need
//! for pivoting in LU factorization" (SIAM J. Matrix Anal. Appl. 42, 2021).
//!
//! A = L U: L has 1 on its diagonal and `-alpha` everywhere below, U has 1 on its diagonal and
//! `-beta` everywhere above. With i, j from 0:
//!
//! ```text
//! a_ij = alpha beta min(i, j) + (1 if i = j, -beta if i < j, -alpha if i > j)
//! ```
//!
//! With `alpha = beta / 2`, beta follows from the condition number.
//!
//! **||A||_oo** is the sum of magnitudes of the first row or of the last. That of row i,
//!
//! ```text
//! R(i) = 1 + alpha beta i + alpha sum_{j < i} |1 - beta j| + beta (n - 1 - i) |1 - alpha i|
//! ```
//!
//! is convex where `alpha i <= 1`, and grows after: `R(i+1) - R(i) = alpha beta (n-1-i) + beta -
//! alpha`.
//!
//! **||A^-1||_oo** is the sum of its first row. Both inverses have no negative entries, so the sums
//! of all rows are `z = U^-1 L^-1 e`. Here `(L^-1 e)_j = (1 + alpha)^j`, and row 0 of U^-1 is 1,
//! beta, beta (1 + beta), beta (1 + beta)^2, ...: with `g = (1 + alpha)(1 + beta)`
//!
//! ```text
//! z_0 = 1 + beta (1 + alpha) (g^(n-1) - 1) / (g - 1)
//! ```
//!
//! and `z_i - z_(i+1) = beta z_(i+1) - alpha (1 + alpha)^i`, which is positive for `alpha <= beta`.

/// The condition number in the infinity norm, as public codes of HPL-MxP choose it.
pub(crate) const CONDITION: f64 = 1000.0;

/// `alpha / beta`, as public codes choose it.
const RATIO: f64 = 0.5;

#[derive(Debug, Clone, Copy)]
pub(crate) struct FasiHigham {
    alpha: f64,
    beta: f64,
    /// `alpha beta`
    product: f64,
}

impl FasiHigham {
    /// The matrix of order `n` whose condition number is [`CONDITION`]; of order 1 it is 1.
    pub(crate) fn new(n: usize) -> Self {
        Self::with_beta(if n < 2 { 0.0 } else { beta(n, CONDITION) })
    }

    fn with_beta(beta: f64) -> Self {
        let alpha = RATIO * beta;
        Self { alpha, beta, product: alpha * beta }
    }

    #[inline(always)]
    pub(crate) fn fill(&self, i: usize, first: usize, values: &mut [f64]) {
        let left = i.saturating_sub(first).min(values.len());
        let (below, rest) = values.split_at_mut(left);
        let first_column = first as f64;
        for (k, value) in below.iter_mut().enumerate() {
            // Chunks are short; a conversion from 32 bits has a vector instruction everywhere.
            *value = self.product * (first_column + f64::from(k as i32)) - self.alpha;
        }
        let row = self.product * i as f64;
        rest.fill(row - self.beta);
        if i >= first && !rest.is_empty() {
            rest[0] = row + 1.0;
        }
    }

    /// In the infinity norm, by the formulas at the head of this file.
    fn condition(&self, n: usize) -> f64 {
        self.norm(n) * self.norm_of_inverse(n)
    }

    fn norm(&self, n: usize) -> f64 {
        let (alpha, beta, last) = (self.alpha, self.beta, (n - 1) as f64);
        // The columns j < n - 1 with beta j < 1 are those before `falling`.
        let falling = ((1.0 / beta).floor() + 1.0).min(last);
        let triangle = |count: f64| count * (count - 1.0) / 2.0;
        let below = falling - beta * triangle(falling);
        let above = beta * (triangle(last) - triangle(falling)) - (last - falling);
        let last_row = 1.0 + self.product * last + alpha * (below + above);
        last_row.max(1.0 + beta * last)
    }

    fn norm_of_inverse(&self, n: usize) -> f64 {
        // g - 1
        let growth = self.alpha + self.beta + self.product;
        let power = power(1.0 + growth, n - 1);
        1.0 + self.beta * (1.0 + self.alpha) * (power - 1.0) / growth
    }
}

/// Finds beta for a condition number, by bisection down to neighbouring doubles.
fn beta(n: usize, condition: f64) -> f64 {
    let is_too_small = |beta| FasiHigham::with_beta(beta).condition(n) < condition;
    let (mut low, mut high) = (0.0, 1.0 / n as f64);
    while is_too_small(high) {
        (low, high) = (high, 2.0 * high);
    }
    loop {
        let middle = low + (high - low) / 2.0;
        if middle <= low || middle >= high {
            return high;
        }
        *(if is_too_small(middle) { &mut low } else { &mut high }) = middle;
    }
}

/// `base^exponent`. The library's function may round differently on another processor, and all
/// ranks must find the same beta.
fn power(base: f64, exponent: usize) -> f64 {
    let (mut power, mut square, mut rest) = (1.0, base, exponent);
    while rest > 0 {
        if rest % 2 == 1 {
            power *= square;
        }
        square *= square;
        rest /= 2;
    }
    power
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sums of rows of |A|, and A^-1 e by substitution; A^-1 has no negative entries.
    fn condition_by_hand(n: usize, matrix: &FasiHigham) -> f64 {
        let mut largest: f64 = 0.0;
        let mut row = vec![0.0; n];
        for i in 0..n {
            matrix.fill(i, 0, &mut row);
            largest = largest.max(row.iter().map(|value| value.abs()).sum());
        }
        let mut y = vec![1.0; n];
        for i in 0..n {
            y[i] += matrix.alpha * y[..i].iter().sum::<f64>();
        }
        for i in (0..n).rev() {
            y[i] += matrix.beta * y[i + 1..].iter().sum::<f64>();
        }
        largest * y.iter().copied().fold(0.0, f64::max)
    }

    fn inverse(n: usize, a: &[f64]) -> Vec<f64> {
        let width = 2 * n;
        let mut both = vec![0.0; n * width];
        for i in 0..n {
            both[i * width..][..n].copy_from_slice(&a[i * n..][..n]);
            both[i * width + n + i] = 1.0;
        }
        for k in 0..n {
            let pivot = both[k * width + k];
            both[k * width..][..width].iter_mut().for_each(|value| *value /= pivot);
            let row = both[k * width..][..width].to_vec();
            for i in (0..n).filter(|&i| i != k) {
                let factor = both[i * width + k];
                let target = &mut both[i * width..][..width];
                target.iter_mut().zip(&row).for_each(|(value, pivot)| *value -= factor * pivot);
            }
        }
        (0..n).flat_map(|i| both[i * width + n..][..n].to_vec()).collect()
    }

    #[test]
    fn condition_number_is_that_of_an_explicit_inverse() {
        for n in [2, 3, 4, 5, 7, 10, 31, 32, 33, 100, 255] {
            let matrix = FasiHigham::new(n);
            let mut a = vec![0.0; n * n];
            for (i, row) in a.chunks_exact_mut(n).enumerate() {
                matrix.fill(i, 0, row);
            }
            let norm = |a: &[f64]| {
                let sums = a.chunks_exact(n).map(|row| row.iter().map(|v| v.abs()).sum());
                sums.fold(0.0, f64::max)
            };
            let condition = norm(&a) * norm(&inverse(n, &a));
            assert!((condition / CONDITION - 1.0).abs() < 1e-8, "{n}: {condition}");
        }
    }

    #[test]
    fn closed_form_holds_for_all_orders_and_condition_numbers() {
        for n in (2..300).chain([1000, 2000]) {
            for condition in [1.5, 10.0, 1e3, 1e6] {
                let matrix = FasiHigham::with_beta(beta(n, condition));
                let by_hand = condition_by_hand(n, &matrix);
                assert!((by_hand / condition - 1.0).abs() < 1e-10, "{n}, {condition}: {by_hand}");
            }
        }
    }

    #[test]
    fn alpha_and_beta_shrink_as_the_order_grows() {
        for n in [1000, 30_000, 1_000_000, 20_000_000] {
            let matrix = FasiHigham::new(n);
            let scaled = matrix.beta * n as f64;
            assert!((3.5..4.2).contains(&scaled), "{n}: {scaled}");
            // `1 + alpha + beta` is rounded, and then taken to the power of n.
            assert!((matrix.condition(n) / CONDITION - 1.0).abs() < 1e-7);
        }
    }

    #[test]
    fn entries_are_those_of_the_product_of_triangles() {
        let (n, matrix) = (40, FasiHigham::new(40));
        let mut row = vec![0.0; n];
        for i in 0..n {
            matrix.fill(i, 0, &mut row);
            for (j, &value) in row.iter().enumerate() {
                let l = |k| if k == i { 1.0 } else { -matrix.alpha };
                let u = |k| if k == j { 1.0 } else { -matrix.beta };
                let sum: f64 = (0..=i.min(j)).map(|k| l(k) * u(k)).sum();
                assert!((value - sum).abs() < 1e-14, "{i}, {j}: {value}, {sum}");
            }
        }
    }
}
