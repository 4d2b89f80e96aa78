//! The systems A x = b. None needs a seed, and any rank computes any entry alone.
//!
//! | matrix | |
//! |---|---|
//! | `fasi-higham` | a product of triangles, with condition number 1000 in the infinity norm |
//! | `scaled` | HPL's random matrix, with sqrt(n)/2 added to the magnitude of its diagonal |
//! | `dominant` | HPL's random matrix, with n/2 added, so that its diagonal is strictly dominant |
//!
//! b is random as HPL's: column n of the generator's matrix of order n.

use crate::matgen::Lcg;
use skt_host::choice::MxpMatrix;

use crate::mxp::fasi_higham::FasiHigham;
use crate::mxp::random::Random;

/// A system of one order. Its entries in double precision are the matrix: the factorization rounds
/// them to single precision, and the residual is that of the entries as they are.
#[derive(Debug, Clone)]
pub struct System {
    n: usize,
    entries: Entries,
}

#[derive(Debug, Clone)]
enum Entries {
    FasiHigham(FasiHigham),
    Random(Random),
}

/// What is added to the magnitude of the diagonal of the matrix `scaled` of order `n`: `sqrt(n)/2`.
///
/// Entries off the diagonal are uniform in (-0.5, 0.5): their variance is 1/12, and the sum of
/// magnitudes in a row about n/4, so from n = 8 or so on the diagonal is not dominant. When a
/// column is eliminated without pivoting, the variance s of the remaining entries grows by
/// `4 s^2 / n`: over all columns `1/s` falls from 12 to 8, so their spread grows by a fifth. With a
/// diagonal below `0.29 sqrt(n)` it would grow without bound. Measured in single precision, the
/// largest entry grows by a factor of at most 1.24 for all orders below 200, and 1.04 at 500, 1000
/// and 1500.
fn scaled_diagonal(n: usize) -> f64 {
    0.5 * (n as f64).sqrt()
}

impl System {
    pub fn new(n: usize, matrix: MxpMatrix) -> Self {
        let entries = match matrix {
            MxpMatrix::FasiHigham => Entries::FasiHigham(FasiHigham::new(n)),
            MxpMatrix::Scaled => Entries::Random(Random::new(n, scaled_diagonal(n))),
            // A row has n - 1 other entries of at most 0.5.
            MxpMatrix::Dominant => Entries::Random(Random::new(n, 0.5 * n as f64)),
        };
        Self { n, entries }
    }

    pub fn n(&self) -> usize {
        self.n
    }

    pub fn entry(&self, i: usize, j: usize) -> f64 {
        let mut value = [0.0];
        self.fill(i, j, Lcg::state(self.number(i, j)), &mut value);
        value[0]
    }

    pub fn right_hand_side(&self, i: usize) -> f64 {
        Lcg::entry(Lcg::state(self.number(i, self.n)))
    }

    /// The number of entry (i, j) of [A|b] in the sequence of the generator.
    fn number(&self, i: usize, j: usize) -> u64 {
        let (n, i, j) = (self.n as u64, i as u64, j as u64);
        j.wrapping_mul(n).wrapping_add(i).wrapping_add(1)
    }

    /// The generator's state at the first entry of column `j`. That of row i is i steps further.
    pub(crate) fn column_state(&self, j: usize) -> u64 {
        Lcg::state(self.number(0, j))
    }

    /// Row `i` from column `first` on; `state` is the generator's at the first entry.
    #[inline(always)]
    pub(crate) fn fill(&self, i: usize, first: usize, state: u64, values: &mut [f64]) {
        match &self.entries {
            Entries::FasiHigham(matrix) => matrix.fill(i, first, values),
            Entries::Random(matrix) => matrix.fill(i, first, state, values),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matgen;
    use skt_host::choice::Generator;

    fn row(system: &System, i: usize) -> Vec<f64> {
        (0..system.n()).map(|j| system.entry(i, j)).collect()
    }

    fn off_diagonal(row: &[f64], i: usize) -> f64 {
        row.iter().map(|value| value.abs()).sum::<f64>() - row[i].abs()
    }

    #[test]
    fn random_matrices_are_hpls_but_for_the_diagonal() {
        for n in [1, 2, 31, 32, 33, 130] {
            let plain = matgen::entries(n, Generator::Hpl);
            let added = [
                (MxpMatrix::Scaled, (n as f64).sqrt() / 2.0),
                (MxpMatrix::Dominant, n as f64 / 2.0),
            ];
            for (matrix, added) in added {
                let system = System::new(n, matrix);
                for i in 0..n {
                    let mut expected = vec![0.0; n + 1];
                    plain(i, 0, &mut expected);
                    assert_eq!(system.right_hand_side(i), expected[n]);
                    let diagonal = expected[i];
                    expected[i] = diagonal + if diagonal < 0.0 { -added } else { added };
                    assert_eq!(row(&system, i), expected[..n]);
                }
            }
        }
    }

    #[test]
    fn entries_of_fasi_and_higham_follow_the_formula() {
        let (n, system) = (50, System::new(50, MxpMatrix::FasiHigham));
        let (alpha, beta) = (1.0 - system.entry(1, 0) - 1.0, 1.0 - system.entry(0, 1) - 1.0);
        assert!((alpha / beta - 0.5).abs() < 1e-12, "{alpha}, {beta}");
        for i in 0..n {
            for j in 0..n {
                let rest = [-beta, 1.0, -alpha][(i.cmp(&j) as i8 + 1) as usize];
                let expected = alpha * beta * i.min(j) as f64 + rest;
                assert!((system.entry(i, j) - expected).abs() < 1e-13, "{i}, {j}");
            }
            assert!(system.right_hand_side(i).abs() <= 0.5);
        }
    }

    #[test]
    fn only_the_dominant_matrix_is_dominant() {
        for n in [1, 2, 10, 100, 300] {
            let dominant = System::new(n, MxpMatrix::Dominant);
            assert!((0..n).all(|i| {
                let row = row(&dominant, i);
                row[i].abs() > off_diagonal(&row, i)
            }));
        }
        for (n, matrix) in [(20, MxpMatrix::Scaled), (300, MxpMatrix::Scaled)] {
            let system = System::new(n, matrix);
            let is_dominant = |i: usize| {
                let row = row(&system, i);
                row[i].abs() > off_diagonal(&row, i)
            };
            assert!((0..n).filter(|&i| is_dominant(i)).count() <= n / 10, "{n}");
        }
    }

    #[test]
    fn entries_of_the_scaled_matrix_do_not_grow() {
        for n in (1..60).chain([128, 255]) {
            let system = System::new(n, MxpMatrix::Scaled);
            let mut a: Vec<Vec<f32>> =
                (0..n).map(|i| row(&system, i).iter().map(|v| *v as f32).collect()).collect();
            let largest = |a: &[Vec<f32>]| a.iter().flatten().fold(0.0, |m: f32, v| m.max(v.abs()));
            let (first, mut grown) = (largest(&a), 0.0f32);
            for k in 0..n {
                let pivot = a[k].clone();
                for row in &mut a[k + 1..] {
                    row[k] /= pivot[k];
                    let factor = row[k];
                    let rest = row[k + 1..].iter_mut().zip(&pivot[k + 1..]);
                    rest.for_each(|(value, pivot)| *value -= factor * pivot);
                }
                grown = grown.max(largest(&a[k..]));
            }
            assert!(grown <= 1.3 * first, "{n}: from {first} to {grown}");
        }
    }
}
