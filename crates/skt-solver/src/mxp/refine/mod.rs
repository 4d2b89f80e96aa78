//! Iterative refinement: a solution of A x = b in double precision, from factors in low precision.
//!
//! ```text
//! x = 0
//! until ||r|| <= sqrt(n) eps ||A|| ||x||         r = b - A x, all norms infinite
//!     x += U^-1 L^-1 r                           classic refinement
//! ```
//!
//! The end is that of LAPACK's dsgesv. While it is not reached, a step has to divide the scaled
//! residual by 8 at least: from 2^53 that takes 18 steps at most, so that GMRES still has 32 of the
//! 50. As soon as a step does not, GMRES takes over, from the best x so far. A step that does not
//! improve x leaves it as it is.
//!
//! Vectors are distributed: those like x by columns, the same on all ranks of a process column;
//! those like r by rows, the same on all ranks of a process row. Each decision follows from numbers
//! that are the same on all ranks, with the same bits every time, whatever the order of messages.
//! Between two steps all that counts is a [`State`], from which [`Refiner::resume`] continues with
//! the bits of an uninterrupted refinement.

mod gmres;
mod operator;

pub use operator::Operator;

use crate::pgesv::SolveError;
use skt_comm::{Comm, CommError, collect};
use skt_host::choice::Refinement;

/// The most corrections: steps of classic refinement and inner steps of GMRES together.
pub const CORRECTIONS_MAX: usize = 50;

/// By what a step of classic refinement has to divide the scaled residual.
const CLASSIC_GAIN: f64 = 8.0;

/// As [`CLASSIC_GAIN`], of a cycle of GMRES: from nearly the same x another would gain no more.
const GMRES_GAIN: f64 = 2.0;

/// Below this order the criterion is that of this order. The roundings of a single product already
/// exceed it for n = 1, where LAPACK's criterion can fail for the best x that exists.
const CRITERION_ORDER_MIN: usize = 16;

/// Solves `L U d = r` with the factors of a matrix in low precision: gets this rank's rows of r,
/// and returns its columns of d. An error, the same on all ranks, ends the refinement.
pub type Factors<'f> = dyn FnMut(&[f64]) -> Result<Vec<f64>, SolveError> + 'f;

#[derive(Debug, Clone, thiserror::Error, PartialEq)]
pub enum RefineError {
    #[error(transparent)]
    Comm(#[from] CommError),
    #[error(transparent)]
    Factors(#[from] SolveError),
    #[error(
        "step {step} of the refinement ({}): the {vector} is not finite; the factors do not \
         belong to the matrix, or its elements grew too much without pivoting",
        method.name()
    )]
    NotFinite {
        /// The number of the step, from 1.
        step: usize,
        method: Refinement,
        vector: &'static str,
    },
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    pub refinement: Refinement,
    /// The corrections it took: 1, or the inner steps of a cycle of GMRES.
    pub corrections: usize,
    /// `||b - Ax||_oo / (eps (||A||_oo ||x||_oo + ||b||_oo) n)` of the x that it left.
    pub scaled_residual: f64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct State {
    /// The best solution so far, for this rank's columns.
    pub x: Vec<f64>,
    pub refinement: Refinement,
    pub steps: Vec<Step>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    Unfinished,
    /// Nothing: x is as accurate as one in double precision.
    Converged,
    /// Nothing: more steps would not improve x, or all are used up.
    Stalled,
}

pub struct Refiner<'o> {
    operator: Operator<'o>,
    state: State,
    current: Residual,
}

#[derive(Debug, Clone)]
struct Residual {
    /// `b - A x`, for this rank's rows.
    values: Vec<f64>,
    /// `||b - Ax||_oo / (eps (||A||_oo ||x||_oo + ||b||_oo) n)`
    scaled: f64,
    /// `||b - Ax||_oo / (sqrt(n) eps ||A||_oo ||x||_oo)`: at most 1 when it has converged.
    to_criterion: f64,
}

impl<'o> Refiner<'o> {
    /// Begins with x = 0. Collective over the grid.
    pub fn new(operator: Operator<'o>) -> Result<Self, RefineError> {
        let x = vec![0.0; operator.col_count()];
        Self::resume(operator, State { x, refinement: Refinement::Classic, steps: Vec::new() })
    }

    /// Continues after the steps of a state. Collective over the grid.
    pub fn resume(mut operator: Operator<'o>, state: State) -> Result<Self, RefineError> {
        let current = if state.steps.is_empty() {
            operator.residual_of_zero()
        } else {
            // The state is that after its last step.
            let place = Place { step: state.steps.len(), method: state.refinement };
            operator.residual(&state.x, place)?
        };
        Ok(Self { operator, state, current })
    }

    pub fn state(&self) -> &State {
        &self.state
    }

    /// What follows: the same on all ranks.
    pub fn status(&self) -> Status {
        if self.current.to_criterion <= 1.0 {
            Status::Converged
        } else if self.corrections() >= CORRECTIONS_MAX || self.has_stalled() {
            Status::Stalled
        } else {
            Status::Unfinished
        }
    }

    pub fn has_converged(&self) -> bool {
        self.status() == Status::Converged
    }

    /// Whether the last cycle of GMRES gained next to nothing.
    fn has_stalled(&self) -> bool {
        let Some((last, before)) = self.state.steps.split_last() else { return false };
        let before = before.last().map_or(f64::INFINITY, |step| step.scaled_residual);
        last.refinement == Refinement::Gmres && last.scaled_residual * GMRES_GAIN > before
    }

    fn corrections(&self) -> usize {
        self.state.steps.iter().map(|step| step.corrections).sum()
    }

    /// One step: a correction of classic refinement, or a cycle of GMRES. Does nothing when
    /// [`Self::status`] asks for no other. If a vector is not finite, all ranks return the same
    /// error. Collective over the grid.
    pub fn step(&mut self, factors: &mut Factors) -> Result<Status, RefineError> {
        if self.status() != Status::Unfinished {
            return Ok(self.status());
        }
        let method = self.state.refinement;
        let place = Place { step: self.state.steps.len() + 1, method };
        let (correction, corrections) = match method {
            Refinement::Classic => {
                let correction = factors(&self.current.values)?;
                self.operator.require_finite(&correction, place, "correction")?;
                (correction, 1)
            }
            Refinement::Gmres => {
                let target = 1.0 / self.current.to_criterion;
                let steps_max = CORRECTIONS_MAX - self.corrections();
                let cycle = gmres::Cycle { place, target, steps_max };
                cycle.run(&mut self.operator, factors, &self.current.values)?
            }
        };
        let mut x = correction;
        x.iter_mut().zip(&self.state.x).for_each(|(new, old)| *new += *old);
        // A copy that differed would stay: each row of A has its residual with its own copy.
        self.operator.take_first_copy(&mut x)?;
        let next = self.operator.residual(&x, place)?;
        let before = self.current.scaled;
        if next.scaled < before {
            self.state.x = x;
            self.current = next;
        }
        let scaled_residual = self.current.scaled;
        self.state.steps.push(Step { refinement: method, corrections, scaled_residual });
        if scaled_residual * CLASSIC_GAIN > before && self.current.to_criterion > 1.0 {
            self.state.refinement = Refinement::Gmres;
        }
        Ok(self.status())
    }
}

#[derive(Debug, Clone, Copy)]
struct Place {
    step: usize,
    method: Refinement,
}

impl Place {
    fn not_finite(self, vector: &'static str) -> RefineError {
        RefineError::NotFinite { step: self.step, method: self.method, vector }
    }
}

/// The largest magnitude of each of two vectors over all ranks. NaN wins over every number.
fn largest(all: &Comm, vectors: [&[f64]; 2]) -> skt_comm::Result<[f64; 2]> {
    let mut maxima = vectors.map(largest_here);
    collect::all_max(all, &mut maxima)?;
    Ok(maxima)
}

/// The largest magnitude of a vector; NaN wins over every number.
pub(crate) fn largest_here(values: &[f64]) -> f64 {
    values.iter().fold(0.0, |a: f64, b| if a.is_nan() || a > b.abs() { a } else { b.abs() })
}
