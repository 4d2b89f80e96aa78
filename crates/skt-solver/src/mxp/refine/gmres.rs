//! GMRES, preconditioned from the left by the factors.
//!
//! A cycle minimizes `||M^-1 (r - A V y)||_2` over y, with `M = L U` and V an orthonormal basis of
//! the Krylov space of `M^-1 A` and `z = M^-1 r`: the correction of x is `V y`.
//!
//! ```text
//! v_1 = z / ||z||
//! for k = 1, 2, ...
//!     w = M^-1 (A v_k)
//!     w -= (w v_i) v_i        i = 1 .. k, twice: modified Gram-Schmidt with reorthogonalization
//!     v_k+1 = w / ||w||       the coefficients are column k of the Hessenberg matrix H
//! ```
//!
//! Givens rotations make H triangular, and show the norm of the preconditioned residual after each
//! step.

use super::{Factors, Operator, Place, RefineError};

/// A cycle ends when it has divided the norm by 2^20. The next one begins with a residual that is
/// computed again, so that rounding errors of the cycle's solves do not limit the accuracy.
const REDUCTION: f64 = 1.0 / (1u64 << 20) as f64;

/// Below this, what remains of a Krylov vector outside of the basis is taken for rounding errors.
const BREAKDOWN: f64 = 1e-14;

/// How much further than the criterion a cycle reduces the norm, as that of the preconditioned
/// residual is another than that of the residual.
const MARGIN: f64 = 0.125;

pub(super) struct Cycle {
    pub place: Place,
    /// The factor by which the residual has to fall for convergence.
    pub target: f64,
    pub steps_max: usize,
}

impl Cycle {
    /// Returns the correction of x for the residual `r`, and the number of inner steps.
    pub(crate) fn run(
        &self,
        operator: &mut Operator,
        factors: &mut Factors,
        r: &[f64],
    ) -> Result<(Vec<f64>, usize), RefineError> {
        let mut z = factors(r)?;
        let start = self.normalize(operator, &mut z)?;
        let mut basis = vec![z];
        let mut problem = Hessenberg::new(start);
        let tolerance = (self.target * MARGIN).max(REDUCTION) * start;
        while problem.steps() < self.steps_max && problem.residual() > tolerance {
            let product = operator.product(&basis[problem.steps()])?;
            operator.require_finite(&product, self.place, "product with a basis vector")?;
            let mut w = factors(&product)?;
            let mut column = self.orthogonalize(operator, &basis, &mut w)?;
            let scale = column.iter().map(|value| value * value).sum::<f64>().sqrt();
            let rest = self.normalize(operator, &mut w)?;
            let is_complete = rest <= BREAKDOWN * scale;
            column.push(if is_complete { 0.0 } else { rest });
            problem.add(column);
            if is_complete {
                break;
            }
            basis.push(w);
        }
        let y = problem.solve();
        let mut correction = vec![0.0; operator.col_count()];
        for (factor, vector) in y.iter().zip(&basis) {
            add(&mut correction, *factor, vector);
        }
        operator.require_finite(&correction, self.place, "correction")?;
        // Where the first residual is 0 there is no inner step; the cycle counts nevertheless.
        Ok((correction, problem.steps().max(1)))
    }

    /// Divides a vector by its norm, which it returns.
    fn normalize(&self, operator: &Operator, vector: &mut [f64]) -> Result<f64, RefineError> {
        let norm = operator.dot(vector, vector)?.sqrt();
        if !norm.is_finite() {
            return Err(self.place.not_finite("vector of the Krylov space"));
        }
        if norm > 0.0 {
            vector.iter_mut().for_each(|value| *value /= norm);
        }
        Ok(norm)
    }

    /// Makes `w` orthogonal to the basis. Returns the coefficients.
    fn orthogonalize(
        &self,
        operator: &Operator,
        basis: &[Vec<f64>],
        w: &mut [f64],
    ) -> Result<Vec<f64>, RefineError> {
        let mut column = vec![0.0; basis.len()];
        for _ in 0..2 {
            for (coefficient, vector) in column.iter_mut().zip(basis) {
                let part = operator.dot(w, vector)?;
                add(w, -part, vector);
                *coefficient += part;
            }
        }
        Ok(column)
    }
}

fn add(u: &mut [f64], factor: f64, v: &[f64]) {
    u.iter_mut().zip(v).for_each(|(u, v)| *u += factor * v);
}

/// `min ||start e_1 - H y||`, with H made triangular column by column.
struct Hessenberg {
    columns: Vec<Vec<f64>>,
    /// Cosine and sine of each rotation.
    rotations: Vec<(f64, f64)>,
    /// The rotated right-hand side; the last element is the residual, up to its sign.
    rhs: Vec<f64>,
}

impl Hessenberg {
    fn new(start: f64) -> Self {
        Self { columns: Vec::new(), rotations: Vec::new(), rhs: vec![start] }
    }

    fn steps(&self) -> usize {
        self.columns.len()
    }

    fn residual(&self) -> f64 {
        self.rhs[self.steps()].abs()
    }

    /// Adds a column of H, with the element below the diagonal as its last.
    fn add(&mut self, mut column: Vec<f64>) {
        for (k, (c, s)) in self.rotations.iter().enumerate() {
            let (upper, lower) = (column[k], column[k + 1]);
            column[k] = c * upper + s * lower;
            column[k + 1] = c * lower - s * upper;
        }
        let k = self.steps();
        let (diagonal, below) = (column[k], column[k + 1]);
        // Without a call of `hypot`, which may round differently on another processor.
        let norm = (diagonal * diagonal + below * below).sqrt();
        let (c, s) = if norm > 0.0 { (diagonal / norm, below / norm) } else { (1.0, 0.0) };
        column[k] = norm;
        column.truncate(k + 1);
        let last = self.rhs[k];
        self.rhs[k] = c * last;
        self.rhs.push(-s * last);
        self.rotations.push((c, s));
        self.columns.push(column);
    }

    /// y. An unknown that no equation determines, as with singular factors, is 0.
    fn solve(&self) -> Vec<f64> {
        let mut y = self.rhs[..self.steps()].to_vec();
        for k in (0..y.len()).rev() {
            let column = &self.columns[k];
            y[k] = if column[k] == 0.0 { 0.0 } else { y[k] / column[k] };
            for i in 0..k {
                y[i] -= column[i] * y[k];
            }
        }
        y
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The residual of the normal equations vanishes, and its norm is the one reported.
        #[test]
        fn rotations_solve_the_least_squares_problem(
            steps in 1usize..8,
            values in prop::collection::vec(-1.0f64..1.0, 72),
        ) {
            let start = 2.5;
            // H has `steps + 1` rows; `h(i, j)` is 0 below the first subdiagonal.
            let h = |i: usize, j: usize| {
                let diagonal = if i == j { 3.0 } else { 0.0 };
                if i > j + 1 { 0.0 } else { values[i * 8 + j] + diagonal }
            };
            let mut problem = Hessenberg::new(start);
            for j in 0..steps {
                problem.add((0..j + 2).map(|i| h(i, j)).collect());
            }
            let y = problem.solve();
            let residual: Vec<f64> = (0..=steps)
                .map(|i| {
                    let product: f64 = (0..steps).map(|j| h(i, j) * y[j]).sum();
                    (if i == 0 { start } else { 0.0 }) - product
                })
                .collect();
            for j in 0..steps {
                let gradient: f64 = (0..=steps).map(|i| h(i, j) * residual[i]).sum();
                prop_assert!(gradient.abs() < 1e-9, "{j}: {gradient}");
            }
            let norm = residual.iter().map(|value| value * value).sum::<f64>().sqrt();
            prop_assert!((norm - problem.residual()).abs() < 1e-9);
        }
    }
}
