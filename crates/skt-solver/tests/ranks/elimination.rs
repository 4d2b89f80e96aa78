//! An independent dense solver: Gaussian elimination with partial pivoting, without a BLAS.

/// The factors of a matrix of order n, column by column, and the row that was swapped with each.
pub struct Factors {
    n: usize,
    lu: Vec<f64>,
    pivots: Vec<usize>,
}

impl Factors {
    /// Factors the matrix `a`, column by column.
    pub fn new(n: usize, a: &[f64]) -> Self {
        let (mut lu, mut pivots) = (a.to_vec(), Vec::new());
        for k in 0..n {
            let larger = |&i: &usize, &j: &usize| {
                let (i, j) = (lu[k * n + i].abs(), lu[k * n + j].abs());
                i.total_cmp(&j)
            };
            let pivot = (k..n).max_by(larger).expect("a row is left");
            (0..n).for_each(|j| lu.swap(j * n + k, j * n + pivot));
            pivots.push(pivot);
            let diagonal = lu[k * n + k];
            assert!(diagonal != 0.0, "a regular matrix");
            let (left, right) = lu.split_at_mut((k + 1) * n);
            let l = &mut left[k * n + k + 1..];
            l.iter_mut().for_each(|l| *l /= diagonal);
            for column in right.chunks_mut(n) {
                let u = column[k];
                column[k + 1..].iter_mut().zip(&*l).for_each(|(a, l)| *a -= l * u);
            }
        }
        Self { n, lu, pivots }
    }

    /// The solution for the right-hand side `b`.
    pub fn solve(&self, b: &[f64]) -> Vec<f64> {
        let mut x = b.to_vec();
        self.pivots.iter().enumerate().for_each(|(k, &pivot)| x.swap(k, pivot));
        for (k, column) in self.lu.chunks(self.n.max(1)).enumerate() {
            let value = x[k];
            x[k + 1..].iter_mut().zip(&column[k + 1..]).for_each(|(x, l)| *x -= l * value);
        }
        for (k, column) in self.lu.chunks(self.n.max(1)).enumerate().rev() {
            x[k] /= column[k];
            let value = x[k];
            x[..k].iter_mut().zip(column).for_each(|(x, u)| *x -= u * value);
        }
        x
    }

    /// The infinity norm of the inverse.
    pub fn inverse_norm(&self) -> f64 {
        let mut sums = vec![0.0; self.n];
        for j in 0..self.n {
            let mut unit = vec![0.0; self.n];
            unit[j] = 1.0;
            sums.iter_mut().zip(self.solve(&unit)).for_each(|(sum, x)| *sum += x.abs());
        }
        sums.into_iter().fold(0.0, f64::max)
    }
}
