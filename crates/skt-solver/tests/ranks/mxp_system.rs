//! HPL-MxP on ranks, and the same system for a program that knows nothing of ranks.

use crate::base_spec::base;
use crate::elimination::Factors;
use skt_config::{MxpMatrix, TestSpec};
use skt_run::events::RunEvents;
use skt_run::ptest::mxp::RefinementGuard;
use skt_run::ptest::{self, TestRun};
use skt_run::record::MxpRecord;
use skt_solver::mxp::part::Part;
use skt_solver::mxp::system::System;
use skt_solver::pgesv::SolveError;
use skt_solver::pgesv::guard::Guard;

/// The machine precision of the rules.
pub const EPSILON: f64 = f64::EPSILON / 2.0;

/// A test of HPL-MxP of order `n` in blocks of `nb` on `p` times `q` ranks.
pub fn mxp_base(n: usize, nb: usize, p: usize, q: usize, matrix: MxpMatrix) -> TestSpec {
    TestSpec { mxp: Some(matrix), ..base(n, nb, p, q) }
}

/// Generates the matrix, unless the one of `guard` is `resumed`, factors it and refines. Returns
/// this rank's part of x, and the steps.
pub fn refine(
    test: TestRun<'_>,
    system: &System,
    guard: &mut impl RefinementGuard,
    resumed: bool,
    events: &mut dyn RunEvents,
) -> Result<(Vec<f64>, MxpRecord), SolveError> {
    let TestRun { grid, team, spec } = test;
    if !resumed {
        let (part, lda) = (Part::new(system, grid, spec.nb), ptest::mxp::shape(grid, spec).lda);
        part.generate(team, Guard::<f32>::matrix(guard), lda, &|| ());
    }
    let (solution, mxp) = ptest::mxp::solve(test, system, guard, events, &mut 0)?;
    Ok((solution.x, mxp))
}

/// A whole system in double precision.
pub struct DenseSystem {
    n: usize,
    /// The matrix, column by column.
    a: Vec<f64>,
    b: Vec<f64>,
}

/// A solution by elimination, and how good it can be.
pub struct Reference {
    /// The solution, corrected with residuals in twice the precision.
    pub x: Vec<f64>,
    /// The error of the solution before it was corrected.
    pub elimination_error: f64,
    /// The condition number in the infinity norm.
    pub condition: f64,
}

impl DenseSystem {
    pub fn new(spec: &TestSpec) -> Self {
        let (n, system) = (spec.n, System::new(spec.n, spec.mxp.expect("a test of HPL-MxP")));
        let places = (0..n).flat_map(|j| (0..n).map(move |i| (i, j)));
        let a = places.map(|(i, j)| system.entry(i, j)).collect();
        Self { n, a, b: (0..n).map(|i| system.right_hand_side(i)).collect() }
    }

    /// `b - A x`, in twice the precision.
    pub fn residual(&self, x: &[f64]) -> Vec<f64> {
        let row = |i: usize| {
            let (mut sum, mut rest) = (self.b[i], 0.0);
            for (j, x) in x.iter().enumerate() {
                let a = self.a[j * self.n + i];
                let product = a * x;
                // What the rounding of the product and of the sum has lost.
                let lost = a.mul_add(*x, -product);
                let next = sum - product;
                let subtracted = sum - next;
                rest += (sum - (next + subtracted)) + (subtracted - product) - lost;
                sum = next;
            }
            sum + rest
        };
        (0..self.n).map(row).collect()
    }

    fn norm(&self) -> f64 {
        let row = |i: usize| (0..self.n).map(|j| self.a[j * self.n + i].abs()).sum();
        (0..self.n).map(row).fold(0.0, f64::max)
    }

    /// `||Ax - b|| / (eps (||A|| ||x|| + ||b||) n)`, the number that the rules limit to 16; NaN if
    /// any element of x is.
    pub fn scaled_residual(&self, x: &[f64]) -> f64 {
        let scale = EPSILON * (self.norm() * largest(x) + largest(&self.b)) * self.n as f64;
        largest(&self.residual(x)) / scale
    }

    /// Solves by elimination in double precision.
    pub fn reference(&self) -> Reference {
        let factors = Factors::new(self.n, &self.a);
        let eliminated = factors.solve(&self.b);
        let mut x = eliminated.clone();
        for _ in 0..3 {
            let correction = factors.solve(&self.residual(&x));
            x.iter_mut().zip(correction).for_each(|(x, more)| *x += more);
        }
        let condition = self.norm() * factors.inverse_norm();
        Reference { elimination_error: error(&eliminated, &x), x, condition }
    }
}

/// The largest magnitude; NaN if any value is.
fn largest(values: &[f64]) -> f64 {
    values.iter().fold(0.0, |a: f64, b| if a.is_nan() || a > b.abs() { a } else { b.abs() })
}

/// How far `x` is from `truth`, relative to its largest element.
pub fn error(x: &[f64], truth: &[f64]) -> f64 {
    let difference: Vec<f64> = x.iter().zip(truth).map(|(x, truth)| x - truth).collect();
    largest(&difference) / largest(truth)
}
