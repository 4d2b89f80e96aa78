//! HPL-MxP with wrong numbers: one element of L, of U, of what is still to be multiplied, or of x
//! between two steps of the refinement changes. The test may correct it, break or fail; it must
//! never pass with a wrong x.
//!
//! `SKT_MXP_SEED` sets the seed.

use std::fmt::Display;

use crate::dice::{self, Dice};
use crate::mxp_ranks::{MATRICES, unfilled};
use crate::mxp_system::{DenseSystem, EPSILON, error, mxp_base, refine};
use crate::solver_ranks::Cutter;
use skt_comm::collect;
use skt_config::{GemmPrecision, MxpMatrix, TestSpec, Transport};
use skt_host::phases::Phases;
use skt_run::events::Silent;
use skt_run::ptest::mxp::{Refined, RefinementGuard};
use skt_run::ptest::refining::RefinementLeft;
use skt_run::ptest::{self, TestRun};
use skt_run::record::{Outcome, TestRecord};
use skt_solver::blas::view::SharedMat;
use skt_solver::comm::threads::run;
use skt_solver::grid::Grid;
use skt_solver::mxp::system::System;
use skt_solver::pgesv::guard::{Background, Guard};
use skt_solver::pgesv::{LocalShape, SolveError};
use skt_solver::team::Team;

/// Another value for a number.
#[derive(Debug, Clone, Copy)]
enum Change {
    Added(f64),
    Replaced(f64),
    Negated,
}

impl Change {
    fn roll(dice: &mut Dice) -> Self {
        let sign = [1.0, -1.0][dice.roll(2)];
        match dice.roll(8) {
            0 => Self::Replaced([f64::NAN, f64::INFINITY, 0.0, 3e38][dice.roll(4)]),
            1 => Self::Negated,
            _ => Self::Added(sign * 10f64.powi(dice.roll(9) as i32 - 3)),
        }
    }

    fn apply(self, value: f64) -> f64 {
        match self {
            Self::Added(more) => value + more,
            Self::Replaced(other) => other,
            Self::Negated => -value,
        }
    }
}

/// What an element of the matrix is at a cut.
#[derive(Debug, Clone, Copy)]
enum Part {
    L,
    U,
    /// What is still to be multiplied.
    Rest,
}

/// One wrong number in the matrix, before panel `panel`.
#[derive(Debug, Clone, Copy)]
struct Damage {
    panel: usize,
    row: usize,
    col: usize,
    change: Change,
}

impl Damage {
    /// In this part of the matrix, at a cut where there is one.
    fn roll(spec: &TestSpec, part: Part, dice: &mut Dice) -> Self {
        let (n, panels) = (spec.n, spec.n.div_ceil(spec.nb));
        let panel = match part {
            Part::L | Part::U => 1 + dice.roll(panels),
            Part::Rest => dice.roll(panels),
        };
        let done = (panel * spec.nb).min(n);
        let (row, col) = match part {
            Part::L => {
                let col = dice.roll(done.min(n - 1));
                (col + 1 + dice.roll(n - col - 1), col)
            }
            Part::U => {
                let row = dice.roll(done);
                (row, row + dice.roll(n - row))
            }
            Part::Rest => (done + dice.roll(n - done), done + dice.roll(n - done)),
        };
        Self { panel, row, col, change: Change::roll(dice) }
    }
}

/// Plain memory, in which one number changes, or which has what an earlier start has reached.
struct Careless {
    cutter: Cutter<f32>,
    /// The number to change: its panel, its place in the memory of this rank, and how.
    damage: Option<(usize, usize, Change)>,
    start: usize,
    refined: Option<Refined>,
    /// What the refinement had reached at its cuts.
    reached: Vec<Refined>,
}

impl Careless {
    fn new(grid: &Grid, spec: &TestSpec, damage: Option<Damage>) -> Self {
        let (rows, cols) = (grid.rows(spec.nb), grid.cols(spec.nb));
        let lda = ptest::mxp::shape(grid, spec).lda;
        let here = damage
            .filter(|at| (rows.owner(at.row), cols.owner(at.col)) == (grid.myrow, grid.mycol));
        let place = |at: Damage| rows.local(at.row) * lda + cols.local(at.col);
        let cuts: Vec<usize> = damage.iter().map(|at| at.panel).collect();
        Self {
            cutter: Cutter::new(unfilled(grid, spec), &cuts),
            damage: here.map(|at| (at.panel, place(at), at.change)),
            start: 0,
            refined: None,
            reached: Vec::new(),
        }
    }
}

impl Guard<f32> for Careless {
    fn matrix(&mut self) -> &mut [f32] {
        self.cutter.matrix()
    }

    fn lend(&mut self, shape: LocalShape<f32>) -> (SharedMat<'_, f32>, &mut dyn Background) {
        self.cutter.lend(shape)
    }

    fn start(&mut self) -> usize {
        self.start
    }

    fn cut(&mut self, next: usize, panels: usize, phases: &Phases) -> Result<usize, SolveError> {
        if let Some((panel, place, change)) = self.damage
            && panel == next
        {
            let value = &mut self.cutter.memory[place];
            *value = change.apply(f64::from(*value)) as f32;
        }
        self.cutter.cut(next, panels, phases)
    }

    fn seconds(&self) -> f64 {
        self.cutter.seconds()
    }
}

impl RefinementGuard for Careless {
    fn take_refined(&mut self, columns: usize) -> Option<Refined> {
        self.refined.take().inspect(|refined| assert_eq!(refined.x.len(), columns))
    }

    fn cut_refinement(
        &mut self,
        reached: &Refined,
        _: &RefinementLeft,
        _: &Phases,
    ) -> Result<(), SolveError> {
        self.reached.push(reached.clone());
        Ok(())
    }
}

/// How a test with a wrong number has ended.
enum Ended {
    Recorded {
        record: Box<TestRecord>,
        x: Vec<f64>,
    },
    /// By an error that ends the run.
    Refused,
}

/// Runs a whole test, and then solves once more to see x; with the same guard each time.
fn run_test(
    spec: &TestSpec,
    guard: impl Fn(&Grid, &Team) -> Result<Careless, SolveError> + Sync,
) -> Ended {
    let ranks = run(spec.p * spec.q, |world| {
        let grid = ptest::grid(&world, spec)?.expect("all ranks take part");
        let (team, matrix) = (Team::new(spec.threads, |_| ()).expect("threads"), spec.mxp.unwrap());
        let system = System::new(spec.n, matrix);
        let mut first = guard(&grid, &team)?;
        let resumed = first.start > 0;
        let ran = ptest::mxp::run(
            TestRun { grid: &grid, team: &team, spec },
            matrix,
            &mut first,
            resumed,
            &mut Silent,
        );
        let record = match ran {
            Err(SolveError::Comm(error)) => return Err(SolveError::Comm(error)),
            Err(_) => return Ok(None),
            Ok(record) => record,
        };
        let mut again = guard(&grid, &team)?;
        let refined = refine(
            TestRun { grid: &grid, team: &team, spec },
            &system,
            &mut again,
            resumed,
            &mut Silent,
        );
        let mine = match refined {
            Ok((mine, _)) => mine,
            Err(SolveError::Pivot { .. }) => return Ok(record.map(|record| (record, Vec::new()))),
            Err(error) => return Err(error),
        };
        let (parts, cols) = (collect::all_gather_slices(&grid.row, &mine)?, grid.cols(spec.nb));
        let x = (0..spec.n).map(|j| parts[cols.owner(j)][cols.local(j)]).collect();
        Ok(record.map(|record| (record, x)))
    });
    let first = ranks.into_iter().next().expect("rank 0");
    match first.unwrap_or_else(|error: SolveError| panic!("{spec:?}: {error}")) {
        Some((record, x)) => Ended::Recorded { record: Box::new(record), x },
        None => Ended::Refused,
    }
}

/// How many tests ended how.
#[derive(Debug, Default)]
struct Tally {
    passed: usize,
    failed: usize,
    broke: usize,
    refused: usize,
}

impl Tally {
    /// Asserts that a test which passed has a right solution.
    fn count(&mut self, spec: &TestSpec, ended: Ended, label: impl Display) {
        let Ended::Recorded { record, x } = ended else {
            self.refused += 1;
            return;
        };
        match record.outcome {
            Outcome::Broke { .. } => self.broke += 1,
            Outcome::Failed { .. } => self.failed += 1,
            Outcome::Passed { .. } => {
                let mxp = record.mxp.as_ref().expect("refined");
                assert!(mxp.has_converged, "{label}: passed without convergence: {mxp:?}");
                let dense = DenseSystem::new(spec);
                let residual = dense.scaled_residual(&x);
                assert!(residual <= 16.0, "{label}: passed with a residual of {residual}");
                let reference = dense.reference();
                // What the residual of a refinement that has converged allows.
                let bound = 2.0 * spec.n as f64 * EPSILON * reference.condition;
                let off = error(&x, &reference.x);
                assert!(off <= bound, "{label}: passed with an error of {off:e}, not {bound:e}");
                self.passed += 1;
            }
            other => panic!("{label}: {other:?}"),
        }
    }
}

fn spec(number: usize, dice: &mut Dice) -> TestSpec {
    let (p, q) = [(1, 1), (2, 2), (1, 3), (3, 1), (2, 3)][dice.roll(5)];
    let (n, nb) = [(40, 8), (67, 9), (90, 16), (33, 40), (113, 24)][dice.roll(5)];
    let transport = [Transport::Shared, Transport::Messages][dice.roll(2)];
    let depth = dice.roll(3);
    let gemm = [GemmPrecision::Fp32, GemmPrecision::EmulatedBf16][number % 2];
    TestSpec { depth, transport, gemm, ..mxp_base(n, nb, p, q, MATRICES[number % 3]) }
}

#[test]
fn wrong_factors_of_mxp_never_pass_with_a_wrong_x() {
    let (mut dice, mut wrong) = (Dice(dice::seed("SKT_MXP_SEED")), 0);
    for part in [Part::L, Part::U, Part::Rest] {
        let mut tally = Tally::default();
        for number in 0..90 {
            let spec = spec(number, &mut dice);
            let damage = Damage::roll(&spec, part, &mut dice);
            let ended = run_test(&spec, |grid, _| Ok(Careless::new(grid, &spec, Some(damage))));
            tally.count(&spec, ended, format_args!("{damage:?} of {part:?} in {spec:?}"));
        }
        println!("{part:?}: {tally:?}");
        assert!(tally.passed > 0, "{part:?}: {tally:?}");
        wrong += tally.failed + tally.broke;
    }
    assert!(wrong > 20, "{wrong} tests did not pass");
}

#[test]
fn wrong_x_of_mxp_between_steps_never_passes() {
    let mut dice = Dice(dice::seed("SKT_MXP_SEED"));
    let mut tally = Tally::default();
    for number in 0..60 {
        let spec = TestSpec { threads: 1, ..spec(number, &mut dice) };
        let (column, change, after) = (dice.roll(spec.n), Change::roll(&mut dice), dice.roll(2));
        let is_on_all = dice.roll(2) == 0;
        let label = format!("{change:?} of x[{column}] after step {after}, {is_on_all}, {spec:?}");
        let resumed = |grid: &Grid, team: &Team| {
            let mut guard = Careless::new(grid, &spec, None);
            let system = System::new(spec.n, spec.mxp.expect("a test of HPL-MxP"));
            refine(TestRun { grid, team, spec: &spec }, &system, &mut guard, false, &mut Silent)?;
            let mut refined = guard.reached[(1 + after).min(guard.reached.len() - 1)].clone();
            let cols = grid.cols(spec.nb);
            // Either the copies of all process rows, or that of one.
            if cols.owner(column) == grid.mycol && (is_on_all || grid.myrow == 0) {
                let value = &mut refined.x[cols.local(column)];
                *value = change.apply(*value);
            }
            guard.refined = Some(refined);
            guard.start = spec.n.div_ceil(spec.nb);
            Ok(guard)
        };
        tally.count(&spec, run_test(&spec, resumed), label);
    }
    println!("x: {tally:?}");
    assert!(tally.passed > 20, "{tally:?}");
}

/// With the factors of another matrix the refinement does not converge.
#[test]
fn factors_of_another_matrix_do_not_pass() {
    let spec = mxp_base(90, 16, 2, 2, MxpMatrix::Scaled);
    let other = |grid: &Grid, team: &Team| {
        let mut guard = Careless::new(grid, &spec, None);
        let system = System::new(spec.n, MxpMatrix::FasiHigham);
        refine(TestRun { grid, team, spec: &spec }, &system, &mut guard, false, &mut Silent)?;
        guard.start = spec.n.div_ceil(spec.nb);
        Ok(guard)
    };
    let Ended::Recorded { record, .. } = run_test(&spec, other) else { panic!("refused") };
    assert!(matches!(record.outcome, Outcome::Failed { .. }), "{:?}", record.outcome);
    assert!(!record.mxp.expect("refined").has_converged);
}
