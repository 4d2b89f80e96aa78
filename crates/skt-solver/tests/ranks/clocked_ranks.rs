//! The solver under a simulated network: the same solution as on threads, and the same time in
//! every run.

use std::fmt::Display;

use crate::base_spec::base;
use crate::counted;
use skt_comm::Comm;
use skt_config::{Bcast, TestSpec, Transport};
use skt_host::phases::Phases;
use skt_model::path::{Changes, Machine, RunParams, Unit, predict};
use skt_run::events::Silent;
use skt_run::ptest::{self, TestRun};
use skt_run::record::{Outcome, ROWS_IN_HALVES, TestRecord};
use skt_sim::clocked::{self, Network};
use skt_solver::blas::library::use_one_thread;
use skt_solver::comm::threads;
use skt_solver::pgesv::SolveError;
use skt_solver::pgesv::guard::Unguarded;
use skt_solver::team::Team;

const NETWORK: Network =
    Network { message_seconds: 1.5e-6, byte_seconds: 1e-9 / 1.44, call_seconds: 1e-7 };

fn solve(world: &Comm, spec: &TestSpec) -> Result<Option<TestRecord>, SolveError> {
    let grid = ptest::grid(world, spec)?.expect("all ranks take part");
    let mut guard = Unguarded::new(ptest::shape(&grid, spec).doubles()).expect("memory");
    ptest::run(TestRun { grid: &grid, team: &Team::solo(), spec }, &mut guard, false, &mut Silent)
}

/// The record, which rank 0 has.
fn record<E: Display>(ranks: Vec<Result<Option<TestRecord>, E>>) -> TestRecord {
    let first = ranks.into_iter().next().expect("rank 0");
    first.unwrap_or_else(|error| panic!("{error}")).expect("rank 0 has it")
}

fn specs() -> impl Iterator<Item = TestSpec> {
    [(1, 3), (3, 1), (2, 2), (4, 3), (5, 8)].into_iter().flat_map(|(p, q)| {
        Bcast::ALL.into_iter().zip([0, 1, 2].into_iter().cycle()).map(move |(bcast, depth)| {
            let transport = Transport::Messages;
            TestSpec { depth, bcast, transport, swap_threshold: 0, ..base(97, 5, p, q) }
        })
    })
}

#[test]
fn x_has_the_same_bits_as_on_threads() {
    use_one_thread();
    for spec in specs() {
        let simulated =
            record(clocked::run(spec.p * spec.q, &NETWORK, clocked::processor_time, |world| {
                solve(&world, &spec)
            }));
        let on_threads = record(threads::run(spec.p * spec.q, |world| solve(&world, &spec)));
        assert!(matches!(simulated.outcome, Outcome::Passed { .. }), "{:?}", simulated.outcome);
        assert_eq!(simulated.x_fingerprint, on_threads.x_fingerprint, "{spec:?}");
    }
}

/// Times by phase, where processors take no time. With P = 1 the driver times rows by the clock of
/// this machine.
#[test]
fn messages_alone_take_the_same_time_twice() {
    use_one_thread();
    for spec in specs().filter(|spec| spec.p > 1) {
        let phases = || {
            let run = |world| solve(&world, &spec);
            let phases =
                record(clocked::run(spec.p * spec.q, &NETWORK, clocked::no_work, run)).phases;
            // What is left of the whole time is by the clock of the guard, which is not simulated.
            [phases.max, phases.mean].map(|phases| Phases { other: 0.0, ..phases })
        };
        let once = phases();
        assert_eq!(once, phases(), "{spec:?}");
        let [_, mean] = once;
        assert!(mean.panel > 0.0 && mean.swap > 0.0, "{once:?}");
    }
}

/// The walk over the critical path, without halves of the rows, next to the solver itself.
#[test]
fn path_predicts_the_time_of_simulated_ranks() {
    use_one_thread();
    for (n, p, q, depth) in [(768, 4, 4, 0), (768, 4, 4, 1), (1024, 8, 2, 1)] {
        let transport = Transport::Messages;
        let spec = TestSpec { depth, bcast: Bcast::OneRingM, transport, ..base(n, 32, p, q) };
        let ranks = clocked::run(p * q, &NETWORK, counted::meter, |world| {
            counted::listen();
            solve(&world, &spec)
        });
        let found = record(ranks);
        let halves = found.by_messages.iter().any(|what| what == ROWS_IN_HALVES);
        let TestSpec { bcast, swap, swap_threshold, .. } = spec;
        let run = RunParams::new(n, 32, (p, q));
        let run = RunParams { depth, bcast, swap, swap_threshold, halves, ..run };
        let machine = Machine {
            message_seconds: NETWORK.message_seconds,
            message_byte_seconds: NETWORK.byte_seconds,
            ..counted::machine()
        };
        let model = predict(&run, &machine, &Changes::default()).unwrap().mean;
        // The whole time is by the clock of the guard, which is not simulated.
        let Phases { panel, swap, bcast, update, back, .. } = found.phases.mean;
        let simulated = panel + swap + bcast + update + back;
        let ratio = model.named().iter().map(|(_, seconds)| seconds).sum::<f64>() / simulated;
        assert!((0.93..1.07).contains(&ratio), "{n} on {p} x {q}, DEPTH {depth}: {ratio}");
    }
}

/// The products of all ranks, `rows x cols x k`, are those of the elimination: none is reported
/// twice, and none is left out.
#[test]
fn the_solver_reports_all_its_products() {
    use_one_thread();
    for spec in specs() {
        let ranks = threads::run(spec.p * spec.q, |world| {
            counted::listen();
            solve(&world, &spec).map(|_| counted::done().get(Unit::ProductFlop) as usize / 2)
        });
        let reported: usize = ranks.into_iter().map(|rank| rank.expect("it is solved")).sum();
        let TestSpec { n, nb, .. } = spec;
        let product = |first: usize| {
            let next = (first + nb).min(n);
            (n - next) * (n + 1 - next) * (next - first)
        };
        assert_eq!(reported, (0..n).step_by(nb).map(product).sum::<usize>(), "{spec:?}");
    }
}
