//! A short SGEMM, which does the products of HPL-MxP: whether its results are right, and its rate.

use std::sync::Mutex;

use serde::{Deserialize, Serialize};

use super::selftest;
use skt_solver::blas::library::NoWorkSpace;
use skt_solver::blas::{MatMut, MatRef, gemm};
use skt_solver::team::Team;

/// The result of the self-test on the threads of a rank.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SgemmSelfTest {
    /// The rate of the fastest call on one core, as the mean over the threads, in Gflop/s.
    pub gflops_per_core: f64,
    /// The share of the time of the calls for which the threads had a core.
    pub cpu_share: f64,
    /// The largest error of an element on any thread, as a multiple of the largest error that
    /// rounding to single precision explains. `None` if an element is no finite number.
    pub error: Option<f64>,
}

impl SgemmSelfTest {
    pub(crate) fn is_right(&self) -> bool {
        self.error.is_some_and(|error| error <= 1.0)
    }
}

/// Tests SGEMM on all threads of `team` at once. The calls whose rate is measured begin within
/// `budget_seconds`.
pub fn run(team: &Team, budget_seconds: f64) -> Result<SgemmSelfTest, NoWorkSpace> {
    let rates = selftest::gemm_rates(1e-3f32, team, budget_seconds)?;
    let error = worst_error(team, |seed| {
        let sample = Sample::new(seed);
        sample.error(&sample.product())
    });
    Ok(SgemmSelfTest {
        gflops_per_core: rates.best / team.threads() as f64,
        cpu_share: rates.cpu_share,
        error,
    })
}

/// The largest `error` on any thread of `team`, for another seed on each; `None` if any has none.
pub(super) fn worst_error(team: &Team, error: impl Fn(u64) -> Option<f64> + Sync) -> Option<f64> {
    let worst = Mutex::new(Some(0.0f64));
    let check = |thread: usize| {
        let error = error(thread as u64);
        let mut worst = worst.lock().expect("no thread panics");
        *worst = worst.zip(error).map(|(worst, error)| worst.max(error));
    };
    team.fork(&check, || ());
    worst.into_inner().expect("no thread panics")
}

/// Rows, columns and depth: large enough for the kernels of large products, and no multiple of a
/// kernel's tile.
pub(super) const ROWS: usize = 131;
pub(super) const COLS: usize = 151;
pub(super) const DEPTH: usize = 263;

/// Operands of `C - A B` in the layouts of the trailing update: A column-major, B and C row-major.
pub(super) struct Sample {
    pub a: Vec<f32>,
    pub b: Vec<f32>,
    pub c: Vec<f32>,
}

impl Sample {
    pub(crate) fn new(seed: u64) -> Self {
        let mut state = seed;
        let mut numbers = |count: usize| -> Vec<f32> {
            let number = |_| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (state >> 40) as f32 / (1u32 << 24) as f32 - 0.5
            };
            (0..count).map(number).collect()
        };
        Self { a: numbers(ROWS * DEPTH), b: numbers(DEPTH * COLS), c: numbers(ROWS * COLS) }
    }

    fn product(&self) -> Vec<f32> {
        let mut c = self.c.clone();
        let a = MatRef::col_major(&self.a, ROWS, DEPTH, ROWS);
        let b = MatRef::row_major(&self.b, DEPTH, COLS, COLS);
        gemm(-1.0, a, b, 1.0, MatMut::row_major(&mut c, ROWS, COLS, COLS));
        c
    }

    /// The largest error of an element of `result`, as a multiple of its bound; `None` if an
    /// element is no finite number. In any order of the sum, each of the `DEPTH` products and sums
    /// is rounded once, by at most half of the distance of two floats:
    ///
    /// ```text
    /// |computed - exact| <= (DEPTH + 1) u / (1 - (DEPTH + 1) u) (|C| + |A| |B|),   u = 2^-24
    /// ```
    pub(crate) fn error(&self, result: &[f32]) -> Option<f64> {
        let roundings = (DEPTH + 1) as f64 * f64::from(f32::EPSILON) / 2.0;
        let share = roundings / (1.0 - roundings);
        let mut worst = 0.0f64;
        for (i, (computed, before)) in result.chunks(COLS).zip(self.c.chunks(COLS)).enumerate() {
            let mut exact: Vec<f64> = before.iter().map(|&c| f64::from(c)).collect();
            let mut size: Vec<f64> = exact.iter().map(|c| c.abs()).collect();
            for (k, row) in self.b.chunks(COLS).enumerate() {
                let a = f64::from(self.a[k * ROWS + i]);
                for ((exact, size), &b) in exact.iter_mut().zip(&mut size).zip(row) {
                    let term = a * f64::from(b);
                    *exact -= term;
                    *size += term.abs();
                }
            }
            for ((&computed, exact), size) in computed.iter().zip(exact).zip(size) {
                let error = (f64::from(computed) - exact).abs() / (share * size);
                if !error.is_finite() {
                    return None;
                }
                worst = worst.max(error);
            }
        }
        Some(worst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_blas_is_right() {
        let test = run(&Team::solo(), 0.01).expect("memory");
        assert!(test.is_right(), "{test:?}");
        // A sum that nothing rounds would be of more than single precision.
        assert!(test.error.is_some_and(|error| error > 1e-4), "{test:?}");
        assert!(test.gflops_per_core > 0.0 && test.cpu_share > 0.0, "{test:?}");
    }

    #[test]
    fn products_of_half_precision_are_wrong() {
        let sample = Sample::new(7);
        // The 8 bits of bf16's significand, as some libraries multiply on request.
        let short = |x: &f32| f32::from_bits(x.to_bits() & 0xffff_0000);
        let a = sample.a.iter().map(short).collect();
        let b = sample.b.iter().map(short).collect();
        let result = Sample { a, b, c: sample.c.clone() }.product();
        let error = sample.error(&result);
        assert!(error.is_some_and(|error| error > 10.0), "{error:?}");
    }

    #[test]
    fn an_element_that_is_wrong_or_no_number_is_noticed() {
        let sample = Sample::new(3);
        let right = sample.product();
        for (place, change, is_seen) in [
            (0, 0.01, true),
            (ROWS * COLS - 1, 0.01, true),
            (COLS + 1, 0.0, false),
            (77, f32::INFINITY, true),
            (78, f32::NAN, true),
        ] {
            let mut result = right.clone();
            result[place] += change;
            let error = sample.error(&result);
            assert_eq!(error.is_none_or(|error| error > 1.0), is_seen, "{place}: {error:?}");
        }
    }
}
