//! A dense matrix, and its elimination without pivoting.

use skt_solver::mxp::system::System;

/// A matrix and a right-hand side.
pub struct Dense {
    a: Vec<Vec<f64>>,
    b: Vec<f64>,
}

/// L, without its unit diagonal, and U.
pub struct Triangles {
    rows: Vec<Vec<f64>>,
}

impl Dense {
    pub fn new(system: &System) -> Self {
        let n = system.n();
        let row = |i| (0..n).map(|j| system.entry(i, j)).collect();
        let b = (0..n).map(|i| system.right_hand_side(i)).collect();
        Self { a: (0..n).map(row).collect(), b }
    }

    /// The factors of the matrix in single precision, computed there.
    pub fn factors_f32(&self) -> Triangles {
        self.eliminate(|value| f64::from(value as f32))
    }

    /// The solution, by elimination in double precision and a step of refinement.
    pub fn solution(&self) -> Vec<f64> {
        let factors = self.eliminate(|value| value);
        let mut x = factors.solve(&self.b);
        let row =
            |(row, b): (&Vec<f64>, &f64)| b - row.iter().zip(&x).map(|(a, x)| a * x).sum::<f64>();
        let residual: Vec<f64> = self.a.iter().zip(&self.b).map(row).collect();
        x.iter_mut().zip(factors.solve(&residual)).for_each(|(x, d)| *x += d);
        x
    }

    /// Eliminates with each result rounded. A product of two single numbers is exact in double
    /// precision, so rounding to single is that of a fused multiply-add.
    fn eliminate(&self, round: impl Fn(f64) -> f64) -> Triangles {
        let mut rows = self.a.clone();
        rows.iter_mut().flatten().for_each(|value| *value = round(*value));
        for k in 0..rows.len() {
            let (top, below) = rows.split_at_mut(k + 1);
            let pivot = &top[k];
            for row in below {
                row[k] = round(row[k] / pivot[k]);
                let factor = row[k];
                for (value, pivot) in row[k + 1..].iter_mut().zip(&pivot[k + 1..]) {
                    *value = round(*value - factor * pivot);
                }
            }
        }
        Triangles { rows }
    }
}

impl Triangles {
    /// The factors with this many bits of precision.
    pub fn rounded_to(&self, bits: u32) -> Self {
        let round = |value: &f64| {
            let unit = 1u64 << (53 - bits);
            f64::from_bits((value.to_bits() + unit / 2) & !(unit - 1))
        };
        Self { rows: self.rows.iter().map(|row| row.iter().map(round).collect()).collect() }
    }

    /// `U^-1 L^-1 r`
    pub fn solve(&self, r: &[f64]) -> Vec<f64> {
        let mut d = r.to_vec();
        let product = |row: &[f64], d: &[f64]| row.iter().zip(d).map(|(a, d)| a * d).sum::<f64>();
        for (i, row) in self.rows.iter().enumerate() {
            d[i] -= product(&row[..i], &d[..i]);
        }
        for (i, row) in self.rows.iter().enumerate().rev() {
            d[i] = (d[i] - product(&row[i + 1..], &d[i + 1..])) / row[i];
        }
        d
    }
}
