//! HPL-MxP on ranks that are threads, in random cases: the criterion of the rules, the
//! accuracy of elimination, and the same bits whatever moves the data and wherever the
//! factorization is cut.
//!
//! `SKT_MXP_SEED` sets the seed, `SKT_MXP_CASES` the number of cases.

use crate::base_spec::whole_x;
use crate::dice;
use crate::mxp_system::{DenseSystem, EPSILON, Reference, error, mxp_base, refine};
use crate::solver_ranks::Cutter;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use skt_config::{Bcast, GemmPrecision, MxpMatrix, Pmap, Swap, TestSpec, Transport};
use skt_run::events::Silent;
use skt_run::ptest::mxp::RefinementGuard;
use skt_run::ptest::{self, TestRun};
use skt_run::record::{Outcome, TestRecord};
use skt_solver::comm::threads::run;
use skt_solver::grid::Grid;
use skt_solver::mxp::system::System;
use skt_solver::pgesv::SolveError;
use skt_solver::team::Team;

pub const MATRICES: [MxpMatrix; 3] =
    [MxpMatrix::FasiHigham, MxpMatrix::Scaled, MxpMatrix::Dominant];

/// The floor of the error, in units of eps times the condition number: what one rounding of each
/// entry of A and b can make of x. That of elimination may happen to be 0.
const ROUNDINGS: f64 = 2.0;

impl RefinementGuard for Cutter<f32> {}

/// Memory that generation does not fill must not matter.
pub fn unfilled(grid: &Grid, spec: &TestSpec) -> Vec<f32> {
    vec![f32::NAN; 2 * ptest::mxp::shape(grid, spec).doubles()]
}

/// The record of a whole test, cut before these panels.
fn record(spec: &TestSpec, cuts: &[usize]) -> TestRecord {
    let ranks = run(spec.p * spec.q, |world| {
        let grid = ptest::grid(&world, spec)?.expect("all ranks take part");
        let (team, matrix) = (Team::new(spec.threads, |_| ()).expect("threads"), spec.mxp.unwrap());
        let mut guard = Cutter::new(unfilled(&grid, spec), cuts);
        ptest::mxp::run(
            TestRun { grid: &grid, team: &team, spec },
            matrix,
            &mut guard,
            false,
            &mut Silent,
        )
    });
    let first: Result<_, SolveError> = ranks.into_iter().next().expect("rank 0");
    first.unwrap_or_else(|error| panic!("{spec:?}: {error}")).expect("rank 0 has it")
}

/// All of x, and its fingerprint.
fn solution(spec: &TestSpec, cuts: &[usize]) -> (Vec<f64>, u64) {
    let ranks = run(spec.p * spec.q, |world| {
        let grid = ptest::grid(&world, spec)?.expect("all ranks take part");
        let team = Team::new(spec.threads, |_| ()).expect("threads");
        let system = System::new(spec.n, spec.mxp.expect("a test of HPL-MxP"));
        let mut guard = Cutter::new(unfilled(&grid, spec), cuts);
        let test = TestRun { grid: &grid, team: &team, spec };
        let (mine, _) = refine(test, &system, &mut guard, false, &mut Silent)?;
        Ok((whole_x(&grid, spec, &mine)?, ptest::x_fingerprint(&grid, spec, &mine)?))
    });
    let first: Result<_, SolveError> = ranks.into_iter().next().expect("rank 0");
    first.unwrap_or_else(|error| panic!("{spec:?}: {error}"))
}

fn specs() -> impl Strategy<Value = TestSpec> {
    let grids = (1..=4usize, 1..=4usize).prop_filter("at most 6 ranks", |(p, q)| p * q <= 6);
    let shape = (1..=120usize, 1..=40usize, grids, select(&MATRICES[..]), select(&OPERANDS[..]));
    let algorithm = (0..=3usize, select(&Bcast::ALL[..]), select(&SWAPS[..]), 0..=160usize);
    let rates = prop::collection::vec(select(&[1.0, 1.0, 1.37, 4.0][..]), 4);
    let ranks = (1..=3usize, any::<bool>(), any::<bool>(), prop::option::of(rates));
    (shape, algorithm, ranks).prop_map(|((n, nb, (p, q), matrix, gemm), algorithm, ranks)| {
        let (depth, bcast, swap, swap_threshold) = algorithm;
        let (threads, has_messages, by_columns, rates) = ranks;
        let rates = rates.map_or(Vec::new(), |rates: Vec<f64>| rates[..q].to_vec());
        let transport = if has_messages { Transport::Messages } else { Transport::Shared };
        let pmap = if by_columns { Pmap::ColumnMajor } else { Pmap::RowMajor };
        let base = mxp_base(n, nb, p, q, matrix);
        let base = TestSpec { threads, transport, pmap, gemm, rates, ..base };
        TestSpec { depth, bcast, swap, swap_threshold, ..base }
    })
}

/// Operands of products in a case; two thirds of the cases are in single precision.
const OPERANDS: [GemmPrecision; 3] =
    [GemmPrecision::Fp32, GemmPrecision::Fp32, GemmPrecision::EmulatedBf16];

const SWAPS: [Swap; 3] = [Swap::BinaryExchange, Swap::SpreadRoll, Swap::Mix];

/// The cuts of a case: bit k cuts before panel k + 1.
fn cuts(bits: u64, spec: &TestSpec) -> Vec<usize> {
    let panels = spec.n.div_ceil(spec.nb);
    (1..panels).filter(|panel| bits >> (panel % 64) & 1 != 0).collect()
}

/// This test by another transport and broadcast, which must give the same bits of x. The BLAS has
/// other kernels for products as small as the halves of these systems, and rounds differently:
/// messages that go in halves are compared with such messages.
fn other(spec: &TestSpec, bcast: Bcast) -> TestSpec {
    let has_messages = spec.transport == Transport::Messages;
    let by = if has_messages { Transport::Shared } else { Transport::Messages };
    let (transport, swap_threshold) = if has_messages && spec.swap_threshold < spec.n {
        (Transport::Messages, spec.swap_threshold)
    } else {
        (by, spec.n)
    };
    TestSpec { transport, swap_threshold, bcast, ..spec.clone() }
}

/// The error of x that any solution of a system may have. A step of the refinement gains six digits
/// with factors in single precision, and so far more than its criterion asks for; with rounded ones
/// it gains two, and may just meet it.
fn floor(spec: &TestSpec, condition: f64) -> f64 {
    let order = spec.n.max(16) as f64;
    let roundings = if spec.gemm.is_rounded() { 2.0 * order.sqrt() } else { ROUNDINGS };
    roundings * EPSILON * condition.max(1.0)
}

/// Returns the error of x relative to that of elimination, or 0 where it is below the floor.
fn check(spec: &TestSpec, cut_bits: u64, bcast: Bcast) -> f64 {
    let record = record(spec, &[]);
    let mxp = record.mxp.as_ref().expect("refined");
    assert!(mxp.has_converged, "{spec:?}: {mxp:?}");
    let Outcome::Passed { scaled_residual, .. } = record.outcome else {
        panic!("{spec:?}: {:?}", record.outcome);
    };
    let other = other(spec, bcast);
    let (x, fingerprint) = solution(&other, &cuts(cut_bits, spec));
    assert_eq!(fingerprint, record.x_fingerprint, "{spec:?}: x has other bits by {other:?}");
    let dense = DenseSystem::new(spec);
    let residual = dense.scaled_residual(&x);
    assert!(residual <= 16.0, "{spec:?}: {residual}");
    // Both round: the record in double precision. It must not hide what is there.
    assert!((residual - scaled_residual).abs() <= 1.0, "{spec:?}: {residual}, {scaled_residual}");
    let Reference { x: truth, elimination_error, condition } = dense.reference();
    let (ours, floor) = (error(&x, &truth), floor(spec, condition));
    assert!(
        ours <= 10.0 * elimination_error + floor,
        "{spec:?}: error {ours:e}, that of elimination {elimination_error:e}, condition number {condition:e}"
    );
    if ours > floor { ours / elimination_error } else { 0.0 }
}

#[test]
fn random_systems_of_mxp_are_as_accurate_as_elimination() {
    let seed = dice::seed("SKT_MXP_SEED");
    let cases = std::env::var("SKT_MXP_CASES").map_or(600, |text| text.parse().expect("a number"));
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let worst = std::cell::Cell::new(0.0f64);
    let case = (specs(), any::<u64>(), select(&Bcast::ALL[..]));
    TestRunner::new_with_rng(config, rng)
        .run(&case, |(spec, cuts, bcast)| {
            worst.set(worst.get().max(check(&spec, cuts, bcast)));
            Ok(())
        })
        .unwrap_or_else(|failure| panic!("{failure}"));
    println!(
        "{cases} cases: an error of at most the floor or {:.2} times elimination's",
        worst.get()
    );
}

/// Messages go in halves only where the BLAS rounds products of half of the columns as those of
/// all: SGEMM may round differently at the edges of its tiles, which move with a cut.
#[test]
fn x_of_mxp_has_the_same_bits_by_messages_in_halves() {
    for (gemm, n) in [(GemmPrecision::Fp32, 1100), (GemmPrecision::EmulatedBf16, 1107)] {
        let by = |transport: Transport| {
            let base = mxp_base(n, 100, 2, 1, MxpMatrix::Scaled);
            let spec = TestSpec { depth: 1, swap_threshold: 16, transport, gemm, ..base };
            solution(&spec, &[]).1
        };
        assert_eq!(by(Transport::Shared), by(Transport::Messages), "{gemm}, N = {n}");
    }
}
