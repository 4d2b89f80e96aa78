//! Process columns of unequal speed under a simulated network: as efficient as equal ones of the
//! same total speed, and as the model of the critical path predicts.
//!
//! A soak (`SKT_FT_SOAK=1`) has 500 blocks of columns, else there are fewer; `SKT_RATES_BLOCKS`
//! sets their number.

use std::time::Instant;

use crate::base_spec::base;
use crate::counted;
use crate::soak;
use skt_comm::Comm;
use skt_config::{Bcast, TestSpec, Transport};
use skt_model::path::{Machine, RunParams, UNITS, estimate_unequal_seconds};
use skt_run::events::RunEvents;
use skt_run::ptest::{self, TestRun};
use skt_run::record::Outcome;
use skt_sim::clocked::{self, Network, Ticks};
use skt_solver::blas::library::use_one_thread;
use skt_solver::pgesv::SolveError;
use skt_solver::pgesv::guard::Unguarded;
use skt_solver::team::Team;

const NB: usize = 8;
/// How many times as large the blocks of a real run are.
const LARGER: f64 = 128.0 / NB as f64;
/// 1.5 us and 12 GB/s, for messages that take the same part of the time as in blocks of 128: work
/// grows with the cube of the order, latencies with their number, bytes with the square.
const NETWORK: Network = Network {
    message_seconds: 1.5e-6 / (LARGER * LARGER),
    byte_seconds: 1e-9 / 12.0 / LARGER,
    call_seconds: 1e-7 / (LARGER * LARGER),
};

/// A core on which only operations take time, all of which follow its speed.
fn core() -> Machine {
    Machine {
        product_flop_seconds: 2e-11,
        solve_flop_seconds: 4e-11,
        panel_flop_seconds: 4e-11,
        ..Machine::from_seconds([0.0; UNITS])
    }
}

fn counted_work() -> Ticks {
    (core().seconds(&counted::done()) * 1e12) as Ticks
}

/// The simulated seconds of the timed part on a rank.
struct Timed<'c> {
    comm: &'c Comm,
    start: Instant,
    seconds: f64,
}

impl RunEvents for Timed<'_> {
    fn timed_part_begins(&mut self, _: f64) {
        self.start = self.comm.now();
    }

    fn timed_part_ends(&mut self) {
        self.seconds = (self.comm.now() - self.start).as_secs_f64();
    }
}

/// The seconds that the slowest rank takes for a test, on process columns of these relative
/// `speeds`.
fn simulated_seconds(spec: &TestSpec, speeds: &[f64]) -> f64 {
    let of_ranks: Vec<f64> = (0..spec.ranks()).map(|rank| speeds[rank % spec.q]).collect();
    let ranks = clocked::run_at_speeds(&of_ranks, &NETWORK, counted_work, |world| {
        counted::listen();
        let grid = ptest::grid(&world, spec)?.expect("all ranks take part");
        let mut guard = Unguarded::new(ptest::shape(&grid, spec).doubles()).expect("memory");
        let mut timed = Timed { comm: &world, start: world.now(), seconds: 0.0 };
        let test = TestRun { grid: &grid, team: &Team::solo(), spec };
        let record = ptest::run(test, &mut guard, false, &mut timed)?;
        Ok::<_, SolveError>((timed.seconds, record.map(|record| record.outcome)))
    });
    let of_rank = |rank: Result<(f64, Option<Outcome>), SolveError>| {
        let (seconds, outcome) = rank.unwrap_or_else(|error| panic!("{error}"));
        assert!(outcome.is_none_or(|outcome| matches!(outcome, Outcome::Passed { .. })));
        seconds
    };
    ranks.into_iter().map(of_rank).fold(0.0, f64::max)
}

/// The efficiency of a run on these process columns: the time of all operations at the total speed
/// over the simulated time, and over the predicted one.
fn efficiencies(spec: &TestSpec, speeds: &[f64]) -> [f64; 2] {
    let rates = if speeds.iter().all(|speed| *speed == speeds[0]) { &[] } else { speeds };
    let spec = TestSpec { rates: rates.to_vec(), ..spec.clone() };
    let TestSpec { n, nb, p, q, depth, bcast, swap, swap_threshold, .. } = spec;
    let halves = RunParams::has_halves(swap, depth);
    let run =
        RunParams { depth, bcast, swap, swap_threshold, halves, ..RunParams::new(n, nb, (p, q)) };
    let Network { message_seconds, byte_seconds, .. } = NETWORK;
    let machine = Machine { message_seconds, message_byte_seconds: byte_seconds, ..core() };
    let ideal_seconds = run.flops() * machine.product_flop_seconds / (p * q) as f64;
    let predicted = estimate_unequal_seconds(&run, &machine, rates).expect("a run");
    [simulated_seconds(&spec, speeds), predicted].map(|seconds| ideal_seconds / seconds)
}

/// `q` speeds of which each second one is `faster` times the others; their mean is 1.
fn alternating(q: usize, faster: f64) -> Vec<f64> {
    let mean = (1.0 + faster) / 2.0;
    (0..q).map(|column| if column % 2 == 0 { 1.0 / mean } else { faster / mean }).collect()
}

/// As [`alternating`], with only the last one slower than the others.
fn one_slow(q: usize, faster: f64) -> Vec<f64> {
    let mean = (1.0 + (q - 1) as f64 * faster) / q as f64;
    (0..q).map(|column| if column + 1 == q { 1.0 / mean } else { faster / mean }).collect()
}

#[test]
fn unequal_columns_are_as_efficient_as_equal_ones() {
    use_one_thread();
    let default = if soak::is_soak() { 500 } else { 160 };
    let blocks = std::env::var("SKT_RATES_BLOCKS").map_or(default, |text| text.parse().unwrap());
    for (p, q) in [(1, 8), (4, 8)] {
        let (bcast, transport) = (Bcast::OneRingM, Transport::Messages);
        let spec = TestSpec { depth: 1, bcast, transport, ..base(blocks * NB, NB, p, q) };
        let [equal, predicted_equal] = efficiencies(&spec, &vec![1.0; q]);
        println!("{p} x {q}, N/NB = {blocks}, equal: {equal:.4}, predicted {predicted_equal:.4}");
        for faster in [1.37, 2.0] {
            for speeds in [alternating(q, faster), one_slow(q, faster)] {
                let [simulated, predicted] = efficiencies(&spec, &speeds);
                let last = speeds[q - 2..].iter().map(|speed| format!("{speed:.3}"));
                let last = last.collect::<Vec<_>>().join(", ");
                let what = format!(
                    "{p} x {q}, 1:{faster} (last two: {last}): {simulated:.4}, predicted \
                     {predicted:.4}"
                );
                println!("{what}");
                assert!(simulated >= equal - 0.01, "{what}; equal {equal:.4}");
                let (off, off_equal) = (predicted / simulated, predicted_equal / equal);
                assert!((off - 1.0).abs() < 0.05 && (off - off_equal).abs() < 0.03, "{what}");
            }
        }
    }
}
