//! One test of HPL-MxP: factor in single precision, refine in double precision, check.

use std::time::Instant;

use serde::{Deserialize, Serialize};
use skt_host::phases::Phases;

use super::refining::{RefinementLeft, RefinementProgress};
use super::{
    Solution, TestRun, conclude, empty_record, end_timed_part, factor, outcome, watch_rates,
};
use crate::events::{Phase, RunEvents};
use crate::heartbeat;
use crate::record::{MAX_ROUNDING_RESIDUAL, MxpRecord, Outcome, RefinementStep, TestRecord};
use skt_comm::{CommError, collect};
use skt_config::{GemmPrecision, MxpMatrix, Refinement, TestSpec};
use skt_solver::blas::{Bf16Products, bf16};
use skt_solver::grid::{Cyclic, Grid};
use skt_solver::mxp::check;
use skt_solver::mxp::part::Part;
use skt_solver::mxp::refine::{Operator, RefineError, Refiner, State, Status, Step};
use skt_solver::mxp::system::System;
use skt_solver::pgesv::guard::{Guard, Unguarded};
use skt_solver::pgesv::{LocalShape, Params, SolveError, Solver, Workspace};

/// The most vectors of a refinement that are distributed like x: those of the Krylov space, and x
/// and its correction, twice.
const VECTORS_BY_COLUMNS: usize = MxpRecord::MAX_STEPS + 1 + 4;

/// The most vectors of a refinement that are distributed like b: b, the residual, twice, and the
/// shares of a substitution.
const VECTORS_BY_ROWS: usize = 6;

/// What a refinement has reached between two steps, as a checkpoint keeps it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Refined {
    /// Seconds of the timed part when the matrix was factored.
    pub factor_seconds: f64,
    /// How the next step corrects x.
    pub refinement: Refinement,
    /// The steps so far.
    pub steps: Vec<RefinementStep>,
    /// This rank's part of x, which is kept apart.
    #[serde(skip)]
    pub x: Vec<f64>,
    /// Seconds of a correction of an earlier start, if it has measured one.
    #[serde(skip)]
    pub correction_seconds: Option<f64>,
}

impl Refined {
    /// Before the first step, when `factor_seconds` of the timed part have passed.
    pub(crate) fn after_factorization(factor_seconds: f64) -> Self {
        Self {
            factor_seconds,
            steps: Vec::new(),
            refinement: Refinement::Classic,
            x: Vec::new(),
            correction_seconds: None,
        }
    }

    /// The refinement that follows. Collective.
    fn refiner<'o>(&mut self, operator: Operator<'o>) -> Result<Refiner<'o>, RefineError> {
        let refiner = if self.steps.is_empty() {
            Refiner::new(operator)?
        } else {
            let step = |step: &RefinementStep| {
                let &RefinementStep { refinement, corrections, scaled_residual, .. } = step;
                Step { refinement, corrections, scaled_residual }
            };
            let (x, steps) = (self.x.clone(), self.steps.iter().map(step).collect());
            Refiner::resume(operator, State { x, refinement: self.refinement, steps })?
        };
        self.x.clone_from(&refiner.state().x);
        Ok(refiner)
    }

    /// Notes the last step of a refinement that is in this `state`, `end_seconds` after the timed
    /// part began.
    fn note(&mut self, state: &State, end_seconds: f64) {
        let &Step { refinement, corrections, scaled_residual } =
            state.steps.last().expect("a step has ended");
        let step = RefinementStep { refinement, corrections, end_seconds, scaled_residual };
        self.steps.push(step);
        self.refinement = state.refinement;
        self.x.clone_from(&state.x);
    }
}

/// A guard that may also keep what the refinement has reached; by default it does not.
pub trait RefinementGuard: Guard<f32> {
    /// What an earlier start had reached, if it had factored the matrix, with the x of this rank's
    /// `columns` columns if it had begun to refine.
    fn take_refined(&mut self, _columns: usize) -> Option<Refined> {
        None
    }

    /// Called between two steps; takes a checkpoint if one is due. `phases` has the seconds of this
    /// rank in this start. Collective.
    fn cut_refinement(
        &mut self,
        _reached: &Refined,
        _left: &RefinementLeft,
        _phases: &Phases,
    ) -> Result<(), SolveError> {
        Ok(())
    }

    /// Called within a step, before each of its corrections but the first, with what was `reached`
    /// before the step. Collective.
    fn check_time_within_step(
        &mut self,
        _reached: &Refined,
        _left: &RefinementLeft,
        _phases: &Phases,
    ) -> Result<(), SolveError> {
        Ok(())
    }
}

impl RefinementGuard for Unguarded {}

/// The shape of the part of the matrix that rank `(myrow, mycol)` of the grid holds.
pub fn local_shape(spec: &TestSpec, myrow: usize, mycol: usize) -> LocalShape<f32> {
    LocalShape::without_b(spec.n, Cyclic::rows(spec.nb, spec.p), &spec.columns(), myrow, mycol)
}

/// Doubles of work space of rank `(myrow, mycol)` besides the matrix; at most `usize::MAX`.
pub(super) fn work_doubles(spec: &TestSpec, myrow: usize, mycol: usize) -> usize {
    let shape = local_shape(spec, myrow, mycol);
    let solver = shape.work_doubles(&Params::from(spec), Cyclic::rows(spec.nb, spec.p), myrow);
    let packing =
        if spec.gemm.is_rounded() { shape.packing_doubles(&Params::from(spec)) } else { 0 };
    let vectors = shape.cols.saturating_mul(VECTORS_BY_COLUMNS).saturating_add(packing);
    solver.saturating_add(vectors).saturating_add(shape.rows.saturating_mul(VECTORS_BY_ROWS))
}

/// The products of a test, where these read rounded operands.
///
/// # Panics
/// When a library is to multiply, and this process has selected none ([`bf16::select`]).
fn products(spec: &TestSpec) -> Option<Bf16Products> {
    match spec.gemm {
        GemmPrecision::Fp32 => None,
        GemmPrecision::EmulatedBf16 => Some(Bf16Products::Emulated),
        GemmPrecision::Bf16 => {
            Some(Bf16Products::Library(bf16::selected().expect("the setup has selected a library")))
        }
    }
}

/// The shape of this rank's part of the matrix of a test.
pub fn shape(grid: &Grid, spec: &TestSpec) -> LocalShape<f32> {
    let (rows, cols) = (grid.rows(spec.nb), grid.cols(spec.nb));
    LocalShape::without_b(spec.n, rows, &cols, grid.myrow, grid.mycol)
}

/// The phase in which the matrix of a test is generated.
pub(crate) fn generating(spec: &TestSpec) -> Phase {
    Phase::Generate { total_bytes: (spec.n * spec.n * size_of::<f32>()) as u64 }
}

/// Runs one test on all ranks of the grid. Returns the record on rank 0 of the grid. `resumed`: the
/// matrix that `guard` holds comes from a checkpoint.
/// What is wrong with the test itself is in its record.
pub fn run(
    test: TestRun<'_>,
    matrix: MxpMatrix,
    guard: &mut dyn RefinementGuard,
    resumed: bool,
    events: &mut dyn RunEvents,
) -> Result<Option<TestRecord>, SolveError> {
    let TestRun { grid, team, spec } = test;
    let mut record = empty_record(grid, spec)?;
    let system = System::new(spec.n, matrix);
    if !resumed {
        events.phase(generating(spec));
        let started = Instant::now();
        let part = Part::new(&system, grid, spec.nb);
        part.generate(team, guard.matrix(), shape(grid, spec).lda, &heartbeat::piece);
        record.generate_seconds = started.elapsed().as_secs_f64();
    }
    let solved = solve(test, &system, guard, events, &mut record.start_unix_seconds);
    let solved = solved.map(|(solution, mxp)| {
        record.mxp = Some(mxp);
        solution
    });
    let has_converged = record.mxp.as_ref().is_some_and(|mxp| mxp.has_converged);
    conclude(test, record, solved, events, |x| judge(test, &system, x, has_converged))
}

/// Factors and refines, timed. Collective over the grid.
pub fn solve(
    test: TestRun<'_>,
    system: &System,
    guard: &mut dyn RefinementGuard,
    events: &mut dyn RunEvents,
    start_unix_seconds: &mut i64,
) -> Result<(Solution, MxpRecord), SolveError> {
    let TestRun { grid, team, spec } = test;
    let (params, shape) = (Params::from(spec), shape(grid, spec));
    let mut work = Workspace::for_products(grid, team, &params, shape, products(spec))?;
    watch_rates(grid, spec, events, &mut work, |work, watch, events| {
        let begun = factor(test, guard, events, work, watch, start_unix_seconds)?;
        events.phase(Phase::Refine);
        let (reached, end) = refine(test, system, guard, events, work)?;
        let (x, seconds, earlier) = (reached.x, guard.seconds(), guard.earlier());
        let solution = end_timed_part(begun, grid, x, seconds, earlier, work, events)?;
        let last = reached.steps.last().map_or(f64::INFINITY, |step| step.scaled_residual);
        let (has_converged, failure) = match end {
            // Rounding errors of a large system may keep it from its own criterion.
            Ok(has_converged) => (has_converged || last <= MAX_ROUNDING_RESIDUAL, None),
            Err(failure) => (false, Some(failure)),
        };
        let mxp = MxpRecord {
            factor_seconds: reached.factor_seconds,
            refine_seconds: solution.seconds - reached.factor_seconds,
            refinement: reached.refinement,
            steps: reached.steps,
            has_converged,
            failure,
        };
        Ok((solution, mxp))
    })
}

/// Refines the solution with the factors that `guard` holds. Also returns whether the refinement
/// has converged or, if it ended early, why. Collective over the grid.
fn refine(
    test: TestRun<'_>,
    system: &System,
    guard: &mut dyn RefinementGuard,
    events: &mut dyn RunEvents,
    work: &mut Workspace<f32>,
) -> Result<(Refined, Result<bool, String>), SolveError> {
    let TestRun { grid, team, spec } = test;
    let (params, shape) = (Params::from(spec), work.shape());
    let mut reached = match guard.take_refined(shape.cols) {
        Some(reached) => reached,
        None => Refined::after_factorization(guard.seconds()),
    };
    reached.factor_seconds = collect::max(&grid.all, reached.factor_seconds)?;
    let operator = Operator::new(system, grid, team, spec.nb, &heartbeat::piece)?;
    let mut refiner = reached.refiner(operator).map_err(|error| match error {
        RefineError::Comm(error) => error.into(),
        error => SolveError::Checkpoint { panel: params.panels(), why: error.to_string() },
    })?;
    let mut progress =
        RefinementProgress::begin(spec.n, &reached.steps, reached.correction_seconds);
    while refiner.status() == Status::Unfinished {
        let left = progress.left(&reached.steps, reached.refinement);
        guard.cut_refinement(&reached, &left, &work.phases())?;
        progress.begin_step(guard.seconds());
        let corrected = refiner.step(&mut |r: &[f64]| {
            if progress.is_within_step() {
                progress.measure(guard.seconds());
                let left = progress.left(&reached.steps, reached.refinement);
                guard.check_time_within_step(&reached, &left, &work.phases())?;
            }
            let (a, _) = guard.lend(shape);
            let correction = Solver::new(grid, team, params, shape, &a, work).solve(r)?;
            progress.count();
            let seconds = guard.seconds();
            events.step(seconds, &progress.line(&reached.steps, reached.refinement, seconds));
            Ok(correction)
        });
        match corrected {
            Ok(_) => {}
            Err(RefineError::Comm(error)) => return Err(error.into()),
            Err(RefineError::Factors(error)) => return Err(error),
            Err(error) => return Ok((reached, Err(error.to_string()))),
        }
        let end_seconds = collect::max(&grid.all, guard.seconds())?;
        reached.note(refiner.state(), end_seconds);
        progress.measure(end_seconds);
        events.step(end_seconds, &progress.line(&reached.steps, reached.refinement, end_seconds));
    }
    Ok((reached, Ok(refiner.has_converged())))
}

/// How a test with this part of x has ended. One that has not converged has failed, whatever its
/// residual, and even without a check.
fn judge(
    test: TestRun<'_>,
    system: &System,
    x: &[f64],
    has_converged: bool,
) -> Result<Outcome, CommError> {
    let TestRun { grid, team, spec } = test;
    if spec.threshold <= 0.0 && has_converged {
        return Ok(Outcome::NotChecked);
    }
    // The refinement would adapt all copies to a wrong one, so that each row of A had a small
    // residual with its own copy: the copy of the first process row, which counts, is checked.
    let mut x = x.to_vec();
    collect::broadcast(&grid.col, &mut x, 0)?;
    let norms = check::norms(system, grid, team, spec.nb, &x, &heartbeat::piece)?;
    Ok(match outcome(spec, norms) {
        Outcome::Passed { scaled_residual, norms } if !has_converged => {
            Outcome::Failed { scaled_residual, norms }
        }
        outcome => outcome,
    })
}
