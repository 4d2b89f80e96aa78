//! Refinement on grids of threads, with factors of a dense elimination in single precision.

mod dense;

use std::cell::Cell;

use dense::Dense;
use proptest::prelude::*;
use skt_comm::{Comm, CommError, collect};
use skt_host::choice::{MxpMatrix, Pmap, Refinement};
use skt_host::norms::Norms;
use skt_solver::comm::threads::run;
use skt_solver::grid::Grid;
use skt_solver::mxp::check::norms;
use skt_solver::mxp::refine::{
    CORRECTIONS_MAX, Operator, RefineError, Refiner, State, Status, Step,
};
use skt_solver::mxp::system::System;
use skt_solver::pgesv::SolveError;
use skt_solver::team::Team;

/// Where a test runs.
#[derive(Debug, Clone, Copy)]
struct Layout {
    nb: usize,
    p: usize,
    q: usize,
}

const ONE: Layout = Layout { nb: 32, p: 1, q: 1 };

/// What a rank brings back.
#[derive(Debug, Clone)]
struct Ended {
    /// The states before the first step and after each.
    states: Vec<State>,
    status: Status,
    norms: Norms,
    /// All of x.
    x: Vec<f64>,
}

/// Collects the `n` elements of a vector that is distributed over the ranks of `comm`; `place` has
/// the rank of each, and its local index there.
fn collected(
    comm: &Comm,
    n: usize,
    place: impl Fn(usize) -> (usize, usize),
    mine: &[f64],
) -> Result<Vec<f64>, CommError> {
    let parts = collect::all_gather_slices(comm, mine)?;
    Ok((0..n).map(place).map(|(rank, local)| parts[rank][local]).collect())
}

/// Solves with a function of whole vectors.
fn solver<'s>(
    grid: &'s Grid,
    nb: usize,
    n: usize,
    solve: &'s (dyn Fn(&[f64]) -> Vec<f64> + Sync),
) -> impl FnMut(&[f64]) -> Result<Vec<f64>, SolveError> + 's {
    move |r: &[f64]| {
        let rows = grid.rows(nb);
        let d = solve(&collected(&grid.col, n, |g| (rows.owner(g), rows.local(g)), r)?);
        let (cols, me) = (grid.cols(nb), grid.mycol);
        Ok((0..cols.count_before(n, me)).map(|l| d[cols.global(l, me)]).collect())
    }
}

/// Refines on all ranks of a grid, from a state of each rank if there are any.
fn refine(
    system: &System,
    Layout { nb, p, q }: Layout,
    from: Option<&[State]>,
    solve: &(dyn Fn(&[f64]) -> Vec<f64> + Sync),
) -> Vec<Result<Ended, RefineError>> {
    let n = system.n();
    let of_rank = |comm: &Comm| {
        let grid = Grid::new(comm, p, q, Pmap::ColumnMajor)?.expect("all ranks are in the grid");
        let team = Team::new(2, |_| ()).unwrap();
        let operator = Operator::new(system, &grid, &team, nb, &|| ())?;
        let mut refiner = match from {
            Some(states) => Refiner::resume(operator, states[comm.rank()].clone())?,
            None => Refiner::new(operator)?,
        };
        let mut factors = solver(&grid, nb, n, solve);
        let mut states = vec![refiner.state().clone()];
        while refiner.status() == Status::Unfinished {
            refiner.step(&mut factors)?;
            states.push(refiner.state().clone());
        }
        let (status, state) = (refiner.status(), refiner.state().clone());
        let norms = norms(system, &grid, &team, nb, &state.x, &|| ())?;
        let cols = grid.cols(nb);
        let x = collected(&grid.row, n, |g| (cols.owner(g), cols.local(g)), &state.x)?;
        Ok(Ended { states, status, norms, x })
    };
    // A rank that returned its error would make the calls of slower ones fail.
    let ranks = run(p * q, |comm| Ok::<_, RefineError>(of_rank(&comm)));
    ranks.into_iter().map(|rank| rank.expect("a refinement")).collect()
}

/// Refines, and checks that all ranks end alike. Returns what the first one found.
fn refine_all(
    system: &System,
    layout: Layout,
    solve: &(dyn Fn(&[f64]) -> Vec<f64> + Sync),
) -> Ended {
    let ranks: Vec<Ended> =
        refine(system, layout, None, solve).into_iter().map(Result::unwrap).collect();
    for rank in &ranks {
        let steps = |ended: &Ended| ended.states.last().unwrap().steps.clone();
        assert_eq!(steps(rank), steps(&ranks[0]), "{layout:?}");
        assert_eq!((rank.status, rank.norms), (ranks[0].status, ranks[0].norms));
        assert_eq!(rank.x, ranks[0].x);
    }
    ranks.into_iter().next().unwrap()
}

fn steps(ended: &Ended) -> &[Step] {
    &ended.states.last().unwrap().steps
}

fn largest(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, |a: f64, b| a.max(b.abs()))
}

#[test]
fn classic_refinement_converges_on_all_grids() {
    let grids = [(1, 1), (1, 3), (3, 1), (2, 2), (2, 3)];
    for matrix in MxpMatrix::ALL {
        for (n, nb) in [(5, 2), (33, 8), (150, 16)] {
            let system = System::new(n, matrix);
            let dense = Dense::new(&system);
            let (low, exact) = (dense.factors_f32(), dense.solution());
            let mut counts = Vec::new();
            for (p, q) in grids {
                let ended = refine_all(&system, Layout { nb, p, q }, &|r| low.solve(r));
                let case = format!("{matrix:?} {n} on {p} x {q}: {:?}", steps(&ended));
                assert_eq!(ended.status, Status::Converged, "{case}");
                assert!(steps(&ended).iter().all(|it| it.refinement == Refinement::Classic));
                assert!((2..=5).contains(&steps(&ended).len()), "{case}");
                let scaled = ended.norms.scaled_residual(n);
                assert!(scaled <= 16.0, "{case}");
                let last = steps(&ended).last().unwrap().scaled_residual;
                assert!((last - scaled).abs() <= 1e-9 * scaled, "{case}: {scaled}");
                let error = largest(ended.x.iter().zip(&exact).map(|(x, exact)| x - exact));
                assert!(error <= 1e-12 * largest(exact.iter().copied()), "{case}: {error}");
                counts.push(steps(&ended).len());
            }
            assert!(counts.iter().all(|count| *count == counts[0]), "{matrix:?} {n}: {counts:?}");
        }
    }
}

#[test]
fn every_small_order_converges() {
    for matrix in MxpMatrix::ALL {
        for n in 0..100 {
            let system = System::new(n, matrix);
            let low = Dense::new(&system).factors_f32();
            let ended = refine_all(&system, ONE, &|r| low.solve(r));
            assert_eq!(ended.status, Status::Converged, "{matrix:?} {n}: {:?}", steps(&ended));
            assert!(ended.norms.scaled_residual(n) <= 16.0, "{matrix:?} {n}");
        }
    }
}

#[test]
fn norms_are_those_of_the_dense_matrix() {
    for matrix in MxpMatrix::ALL {
        let n = 77;
        let system = System::new(n, matrix);
        let low = Dense::new(&system).factors_f32();
        let ended = refine_all(&system, Layout { nb: 10, p: 2, q: 3 }, &|r| low.solve(r));
        let entry = |i, j| system.entry(i, j).abs();
        let row = |i| (0..n).map(|j| entry(i, j)).sum();
        let col = |j| (0..n).map(|i| entry(i, j)).sum();
        let b = |i| system.right_hand_side(i);
        let x = &ended.x;
        let residual = |i| b(i) - (0..n).map(|j| system.entry(i, j) * x[j]).sum::<f64>();
        let near = |norm: f64, exact: f64| assert!((norm / exact - 1.0).abs() < 1e-12);
        near(ended.norms.a_oo, largest((0..n).map(row)));
        near(ended.norms.a_1, largest((0..n).map(col)));
        near(ended.norms.x_1, x.iter().map(|x| x.abs()).sum());
        assert_eq!(ended.norms.x_oo, largest(x.iter().copied()));
        assert_eq!(ended.norms.b_oo, largest((0..n).map(b)));
        // The residual is the sum of rounding errors, which differ.
        let exact = largest((0..n).map(residual));
        assert!((ended.norms.residual_oo - exact).abs() < 1e-13, "{:?}, {exact}", ended.norms);
    }
}

#[test]
fn gmres_converges_where_classic_refinement_does_not() {
    for (matrix, bits) in
        [(MxpMatrix::FasiHigham, 5), (MxpMatrix::Scaled, 2), (MxpMatrix::Dominant, 2)]
    {
        let n = 150;
        let system = System::new(n, matrix);
        let dense = Dense::new(&system);
        let (low, exact) = (dense.factors_f32().rounded_to(bits), dense.solution());
        for (p, q) in [(1, 1), (2, 2), (1, 3), (3, 1)] {
            let ended = refine_all(&system, Layout { nb: 16, p, q }, &|r| low.solve(r));
            let case = format!("{matrix:?} on {p} x {q}: {:?}", steps(&ended));
            assert_eq!(ended.status, Status::Converged, "{case}");
            assert_eq!(steps(&ended)[0].refinement, Refinement::Classic);
            assert_eq!(steps(&ended).last().unwrap().refinement, Refinement::Gmres, "{case}");
            assert!(ended.norms.scaled_residual(n) <= 16.0, "{case}");
            let corrections: usize = steps(&ended).iter().map(|step| step.corrections).sum();
            assert!(corrections <= CORRECTIONS_MAX, "{case}");
            let error = largest(ended.x.iter().zip(&exact).map(|(x, exact)| x - exact));
            assert!(error <= 1e-11 * largest(exact.iter().copied()), "{case}: {error}");
        }
    }
}

/// A run may end before any correction of a cycle: what the refinement has reached is then what it
/// had before the cycle, from which another one ends with the same bits.
#[test]
fn cycle_that_is_not_finished_leaves_the_state_before_it() {
    let (n, layout) = (150, Layout { nb: 16, p: 2, q: 2 });
    let system = System::new(n, MxpMatrix::FasiHigham);
    let low = Dense::new(&system).factors_f32().rounded_to(5);
    let whole = refine_all(&system, layout, &|r| low.solve(r));
    let is_cycle = |step: &Step| step.refinement == Refinement::Gmres && step.corrections > 2;
    let cycle = steps(&whole).iter().position(is_cycle).expect("a cycle of some corrections");
    let ends = SolveError::TimeUp(String::new());
    let ranks = run(4, |comm| {
        let grid = Grid::new(&comm, 2, 2, Pmap::ColumnMajor)?.expect("all ranks are in the grid");
        let team = Team::solo();
        let operator = Operator::new(&system, &grid, &team, layout.nb, &|| ())?;
        let mut refiner = Refiner::new(operator)?;
        let solve = |r: &[f64]| low.solve(r);
        let (mut factors, solves) = (solver(&grid, layout.nb, n, &solve), Cell::new(0));
        for _ in 0..cycle {
            refiner.step(&mut factors)?;
        }
        let mut until_third = |r: &[f64]| {
            solves.set(solves.get() + 1);
            if solves.get() == 3 { Err(ends.clone()) } else { factors(r) }
        };
        let before = refiner.state().clone();
        assert_eq!(refiner.step(&mut until_third), Err(RefineError::Factors(ends.clone())));
        assert_eq!(*refiner.state(), before);
        Ok::<_, RefineError>(before)
    });
    let before: Vec<State> = ranks.into_iter().map(Result::unwrap).collect();
    let resumed = refine(&system, layout, Some(&before), &|r| low.solve(r));
    for rank in resumed {
        let rank = rank.expect("refined");
        assert_eq!((steps(&rank), &rank.x), (steps(&whole), &whole.x));
    }
}

#[test]
fn useless_factors_end_without_convergence() {
    let n = 200;
    let system = System::new(n, MxpMatrix::Scaled);
    let reversed = |r: &[f64]| -> Vec<f64> { r.iter().rev().copied().collect() };
    for (p, q) in [(1, 1), (2, 2)] {
        let ended = refine_all(&system, Layout { nb: 16, p, q }, &reversed);
        assert_eq!(ended.status, Status::Stalled, "{:?}", steps(&ended));
        let corrections: usize = steps(&ended).iter().map(|step| step.corrections).sum();
        assert!(corrections <= CORRECTIONS_MAX, "{:?}", steps(&ended));
        // x is the best so far: the residual never grows.
        assert!(steps(&ended).is_sorted_by(|a, b| a.scaled_residual >= b.scaled_residual));
        assert!(ended.norms.scaled_residual(n) > 1e6);
    }
}

#[test]
fn factors_that_solve_to_zero_end_without_convergence() {
    let system = System::new(40, MxpMatrix::Dominant);
    let ended = refine_all(&system, Layout { nb: 8, p: 2, q: 1 }, &|r| vec![0.0; r.len()]);
    assert_eq!(ended.status, Status::Stalled, "{:?}", steps(&ended));
    assert_eq!(ended.x, [0.0; 40]);
}

/// All ranks end with this error.
fn assert_not_finite(
    system: &System,
    solve: &(dyn Fn(&[f64]) -> Vec<f64> + Sync),
    (step, method, vector): (usize, Refinement, &'static str),
) {
    for rank in refine(system, Layout { nb: 16, p: 2, q: 2 }, None, solve) {
        let error = rank.map(|ended| ended.states.last().unwrap().steps.clone()).unwrap_err();
        assert_eq!(error, RefineError::NotFinite { step, method, vector });
    }
}

#[test]
fn values_that_are_not_finite_are_errors_of_their_step() {
    let system = System::new(90, MxpMatrix::FasiHigham);
    let low = Dense::new(&system).factors_f32();
    let is_first = |r: &[f64]| r[0] == system.right_hand_side(0);
    let broken = |value: f64| {
        let low = &low;
        move |r: &[f64], from_first: bool| {
            let mut d = low.solve(r);
            if from_first || !is_first(r) {
                d[77] = value;
            }
            d
        }
    };
    for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let solve = broken(value);
        let expected = |step| (step, Refinement::Classic, "correction");
        assert_not_finite(&system, &|r| solve(r, true), expected(1));
        assert_not_finite(&system, &|r| solve(r, false), expected(2));
    }
    // The product overflows.
    let solve = broken(f64::MAX);
    let dominant = System::new(90, MxpMatrix::Dominant);
    assert_not_finite(&dominant, &|r| solve(r, true), (1, Refinement::Classic, "residual"));
    // A useless second step makes way for GMRES, where the norm overflows.
    let solve = |r: &[f64]| {
        let mut d = low.solve(r);
        if is_first(r) {
            d.iter_mut().for_each(|value| *value *= 0.5);
        } else {
            d[3] = 1e200;
        }
        d
    };
    let expected = (3, Refinement::Gmres, "vector of the Krylov space");
    assert_not_finite(&system, &solve, expected);
}

#[test]
fn refinement_resumes_from_any_step_with_the_same_bits() {
    for (matrix, bits) in
        [(MxpMatrix::FasiHigham, 24), (MxpMatrix::Scaled, 24), (MxpMatrix::FasiHigham, 5)]
    {
        let system = System::new(120, matrix);
        let low = Dense::new(&system).factors_f32().rounded_to(bits);
        let layout = Layout { nb: 16, p: 2, q: 3 };
        let solve = |r: &[f64]| low.solve(r);
        let whole: Vec<Ended> =
            refine(&system, layout, None, &solve).into_iter().map(Result::unwrap).collect();
        let count = whole[0].states.len();
        assert!(count >= 4, "{count}");
        for from in 0..count {
            let states: Vec<State> = whole.iter().map(|ended| ended.states[from].clone()).collect();
            let resumed = refine(&system, layout, Some(&states), &solve);
            for (whole, resumed) in whole.iter().zip(resumed) {
                let resumed = resumed.unwrap();
                assert_eq!(resumed.states, whole.states[from..], "{matrix:?} from {from}");
                let bits = |ended: &Ended| ended.x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(&resumed), bits(whole));
                assert_eq!((resumed.status, resumed.norms), (whole.status, whole.norms));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn random_cases_converge_to_the_dense_solution(
        matrix in prop::sample::select(&MxpMatrix::ALL[..]),
        (n, nb) in (1usize..90, 1usize..25),
        (p, q) in (1usize..4, 1usize..4),
        bits in 3u32..25,
    ) {
        let system = System::new(n, matrix);
        let dense = Dense::new(&system);
        let (low, exact) = (dense.factors_f32().rounded_to(bits), dense.solution());
        let ended = refine_all(&system, Layout { nb, p, q }, &|r| low.solve(r));
        let case = format!("{:?}", steps(&ended));
        prop_assert_eq!(ended.status, Status::Converged, "{}", case);
        prop_assert!(ended.norms.scaled_residual(n) <= 16.0, "{}", case);
        // The condition number is 1000, or less for the random matrices of these orders.
        let error = largest(ended.x.iter().zip(&exact).map(|(x, exact)| x - exact));
        prop_assert!(error <= 1e-11 * largest(exact.iter().copied()), "{}: {}", case, error);
    }
}
