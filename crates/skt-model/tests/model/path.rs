//! The model of the solver's critical path: limits that are known in closed form, properties that
//! must always hold, and numbers that must not change unnoticed.

use proptest::prelude::*;
use skt_host::choice::{Bcast, Pmap, Swap};
use skt_model::path::{
    Changes, Machine, MeasuredTest, Part, Placement, Prediction, RunParams, Unit, closed,
    estimate_seconds, estimate_unequal_seconds, fit, predict,
};

const G: f64 = 2e-11;

/// A core of 50 Gflop/s whatever the shape, with everything else free.
const COMPUTE_ONLY: Machine = Machine {
    product_flop_seconds: G,
    product_entry_seconds: 0.0,
    packed_entry_seconds: 0.0,
    solve_flop_seconds: G,
    panel_column_seconds: 0.0,
    panel_entry_seconds: 0.0,
    panel_flop_seconds: G,
    copied_byte_seconds: 0.0,
    streamed_byte_seconds: 0.0,
    message_seconds: 0.0,
    message_byte_seconds: 0.0,
};

fn networked(latency_us: f64, bandwidth_gbs: f64) -> Machine {
    Machine {
        message_seconds: latency_us * 1e-6,
        message_byte_seconds: 1e-9 / bandwidth_gbs,
        ..COMPUTE_ONLY
    }
}

fn run(n: usize, nb: usize, p: usize, q: usize) -> RunParams {
    let (bcast, swap) = (Bcast::OneRing, Swap::SpreadRoll);
    RunParams { bcast, swap, halves: false, ..RunParams::new(n, nb, (p, q)) }
}

fn plain(run: &RunParams, machine: &Machine) -> Prediction {
    predict(run, machine, &Changes::default()).unwrap()
}

#[track_caller]
fn assert_close(got: f64, want: f64, relative: f64) {
    assert!((got - want).abs() <= relative * want.abs(), "{got} is not {want} within {relative}");
}

fn on_path(prediction: &Prediction, parts: &[Part]) -> f64 {
    parts.iter().map(|&part| prediction.path[part as usize]).sum()
}

const MESSAGES: [Part; 3] = [Part::Pivots, Part::Bcast, Part::RowMessages];

#[test]
fn one_rank_has_no_communication_and_does_all_operations() {
    for depth in [0, 1, 2, 5] {
        let run = RunParams { depth, ..run(6144, 128, 1, 1) };
        let prediction = plain(&run, &networked(1e6, 1e-9));
        assert_eq!(on_path(&prediction, &MESSAGES), 0.0);
        // The LU of N x N, with one more column, b, in each step: 2 N^3 / 3 + 2 N^2, of which N^2
        // are not in the factorization; the walk streams these.
        let n = run.n as f64;
        let flops = 2.0 / 3.0 * n.powi(3) + n * n;
        assert_close(prediction.time_seconds, flops * G, 1e-12);
    }
}

#[test]
fn operations_of_all_ranks_sum_up_whatever_the_grid() {
    for (p, q) in [(1, 1), (2, 3), (4, 4), (5, 2)] {
        let run = run(3840, 64, p, q);
        let counts = plain(&run, &COMPUTE_ONLY).counts;
        let ranks = (p * q) as f64;
        let n = run.n as f64;
        let products = ranks * counts.update.get(Unit::ProductFlop);
        // The sum over panels of 2 m (m + 1) NB, with m the rows below and M = N / NB panels.
        let (nb, panels) = (64.0, n / 64.0);
        let (s1, s2) =
            (panels * (panels - 1.0) / 2.0, panels * (panels - 1.0) * (2.0 * panels - 1.0) / 6.0);
        assert_close(products, 2.0 * nb * (nb * nb * s2 + nb * s1), 1e-12);
        // Every process row solves for itself.
        let solves = counts.update.get(Unit::SolveFlop) * q as f64;
        assert_close(solves, nb * nb * (nb * s1 + panels), 1e-12);
    }
}

#[test]
fn the_path_sums_up_to_the_time() {
    for bcast in Bcast::ALL {
        for swap in Swap::ALL {
            for (depth, threads) in [(0, 1), (1, 1), (2, 1), (0, 4), (1, 4), (3, 4)] {
                let run = RunParams { bcast, swap, depth, threads, ..run(5000, 96, 3, 5) };
                let prediction = plain(&run, &Machine::ZEN4_CORE);
                assert_close(prediction.path.iter().sum(), prediction.time_seconds, 1e-9);
                // The ranks of a column share its clock: the phases and the idle time of the faster
                // ranks make up the time.
                let phases: f64 = prediction.mean.named().iter().map(|(_, seconds)| seconds).sum();
                assert!(phases <= prediction.time_seconds * (1.0 + 1e-9), "{run:?}");
                assert!(phases >= 0.8 * prediction.time_seconds, "{run:?}: {phases}");
            }
        }
    }
}

#[test]
fn a_free_network_leaves_what_is_computed() {
    // N is large relative to P and Q, so what remains are the panels and the uneven blocks.
    let efficiency = |n| plain(&run(n, 64, 4, 4), &COMPUTE_ONLY).efficiency;
    assert!(efficiency(8_192) < efficiency(32_768));
    assert!(efficiency(131_072) > 0.985, "{}", efficiency(131_072));
    assert!(efficiency(131_072) < 1.0);
}

#[test]
fn without_look_ahead_it_is_the_formula_of_the_reference() {
    // The formula holds where products dwarf panels and blocks are small relative to local parts;
    // the walk's panels and solves are of lower order.
    let changes = Changes { prompt_forwarding: true, ..Changes::default() };
    let communicating = |run: &RunParams, machine: &Machine| {
        let busy = predict(run, machine, &changes).unwrap().time_seconds;
        busy - predict(run, &COMPUTE_ONLY, &changes).unwrap().time_seconds
    };
    // Latency only: N log2 P exchanges of pivots, and N/NB P of rows.
    let latency = networked(10.0, f64::INFINITY);
    for (p, q) in [(1, 4), (4, 1), (4, 4), (8, 4), (16, 8)] {
        let run = RunParams { depth: 0, ..run(65_536, 64, p, q) };
        let closed = closed::seconds(&run, &latency, closed::RowTraffic::Ours)
            - closed::seconds(&run, &COMPUTE_ONLY, closed::RowTraffic::Ours);
        let got = communicating(&run, &latency);
        // The formula has P where we have P - 1. It leaves out the hop of the broadcast and the
        // back substitution, which gathers a diagonal block and a right-hand side: one latency per
        // panel each.
        let panels = run.panels() as f64;
        let extra = panels * 10e-6 * (4.0 + (p as f64).log2());
        assert!((got - closed).abs() <= extra, "{p} x {q}: {got} and {closed} by formula");
    }
    // Bandwidth only: N^2 / 2P for L, and N^2 / 2Q for U, of which a rank already has 1/P, which
    // the formula leaves out. Each rank sends 1/P of the displaced rows. The owner of the next
    // panel does not forward anything (1ringM), so its rows do not wait. Blocks are large, so that
    // the largest share of pivots is near the mean.
    let (slow, nb) = (networked(0.0, 1.0), 512);
    for (p, q) in [(4, 4), (8, 8), (16, 4), (16, 16)] {
        let run = RunParams { depth: 0, bcast: Bcast::OneRingM, ..run(262_144, nb, p, q) };
        let (n, nb, p, q) = (run.n as f64, nb as f64, p as f64, q as f64);
        let rows = n * n / 2.0 * (1.0 / p + (1.0 - 1.0 / p) * (1.0 + 1.0 / p) / q);
        // Two rows and four more numbers per column and step.
        let pivots = n * p.log2() * (2.0 * nb + 4.0);
        // Diagonal blocks that are sent to one rank, for the back substitution.
        let diagonals = n * nb * (1.0 - 1.0 / p);
        let want = 8e-9 * (rows + pivots + diagonals);
        assert_close(communicating(&run, &slow), want, 0.05);
        let closed = closed::seconds(&run, &slow, closed::RowTraffic::Ours)
            - closed::seconds(&run, &COMPUTE_ONLY, closed::RowTraffic::Ours);
        let own = n * n / 2.0 * (1.0 + 1.0 / p) / (p * q);
        assert_close(closed, 8e-9 * (rows + own), 1e-9);
    }
}

#[test]
fn the_formula_by_hand() {
    let run = run(1000, 10, 4, 2);
    let machine = networked(1.0, 8.0);
    // 2e9 / 24 operations; 1e-9 s per double for (12 + 2) / 16 1e6 of them; 100 (22 + 4) messages.
    let want = 2e9 / 24.0 * G + 14.0 / 16.0 * 1e6 * 1e-9 + 2600.0 * 1e-6;
    assert_close(closed::seconds(&run, &machine, closed::RowTraffic::Reference), want, 1e-12);
    let ours = closed::seconds(&run, &machine, closed::RowTraffic::Ours);
    // 1 + 1/4 in place of 3.
    assert_close(want - ours, 1.75 * 4.0 / 16.0 * 1e6 * 1e-9, 1e-9);
}

#[test]
fn look_ahead_hides_broadcasts() {
    let machine = networked(5.0, 1.0);
    let run_at = |depth| plain(&RunParams { depth, ..run(16_384, 128, 1, 4) }, &machine);
    let (without, with) = (run_at(0), run_at(1));
    assert!(with.path[Part::Bcast as usize] < 0.3 * without.path[Part::Bcast as usize]);
    assert!(with.time_seconds < 0.97 * without.time_seconds);
    assert!(with.path[Part::Panel as usize] < 0.5 * with.unhidden[Part::Panel as usize]);
}

#[test]
fn deeper_look_ahead_gains_nothing_if_the_newest_panel_is_late() {
    let machine = networked(5.0, 1.0);
    let run_at =
        |depth| plain(&RunParams { depth, ..run(16_384, 128, 2, 8) }, &machine).time_seconds;
    assert!(run_at(2) > 0.97 * run_at(1));
    let patient = Changes { wait_for_oldest: true, ..Changes::default() };
    let deeper = RunParams { depth: 2, ..run(16_384, 128, 2, 8) };
    assert!(predict(&deeper, &machine, &patient).unwrap().time_seconds < run_at(2));
}

#[test]
fn an_estimate_is_the_walk_or_close_to_it() {
    let at = |bandwidth_gbs: f64| Machine {
        message_seconds: 2e-6,
        message_byte_seconds: 1e-9 / bandwidth_gbs,
        ..Machine::ZEN4_CORE
    };
    let few = run(20_000, 128, 3, 4);
    let walked = plain(&few, &at(1.0)).time_seconds;
    assert_eq!(estimate_seconds(&few, &at(1.0)).unwrap(), walked);
    // One panel in three, and one in seven, is walked.
    let many = [
        RunParams { threads: 8, ..run(256 * 12_000, 256, 60, 100) },
        RunParams { swap: Swap::Mix, bcast: Bcast::TwoRingM, ..run(32 * 35_000, 32, 64, 64) },
    ];
    for run in many {
        for bandwidth_gbs in [0.01, 0.3, 10.0] {
            let walked = plain(&run, &at(bandwidth_gbs)).time_seconds;
            let estimated = estimate_seconds(&run, &at(bandwidth_gbs)).unwrap();
            assert_close(estimated, walked, 0.01);
        }
    }
}

/// Few of the panels of long and of large grids can be walked.
#[test]
fn no_grid_is_too_large() {
    for (p, q) in [(1, 3_001), (2_000, 2_000)] {
        let run = run(256 * 4_000, 256, p, q);
        let predicted = plain(&run, &Machine::ZEN4_CORE);
        let seconds = estimate_seconds(&run, &Machine::ZEN4_CORE).unwrap();
        assert_close(seconds, predicted.time_seconds, 0.01);
        let products = run.flops() * Machine::ZEN4_CORE.product_flop_seconds / (p * q) as f64;
        assert!(seconds > products && seconds.is_finite(), "{p} x {q}: {seconds}");
        assert_close(predicted.efficiency, products / predicted.time_seconds, 1e-9);
        assert_close(predicted.path.iter().sum(), predicted.time_seconds, 1e-9);
        let flops = predicted.counts.update.get(Unit::ProductFlop) * (p * q) as f64;
        assert_close(flops, run.flops(), 0.02);
    }
}

/// `q` rates of which each second one is `faster` times the others; their mean is 1.
fn alternating(q: usize, faster: f64) -> Vec<f64> {
    let mean = (1.0 + faster) / 2.0;
    (0..q).map(|column| if column % 2 == 0 { 1.0 / mean } else { faster / mean }).collect()
}

#[test]
fn rates_of_one_are_no_rates() {
    for (p, q) in [(1, 1), (2, 3), (4, 8)] {
        let run = run(20_000, 128, p, q);
        let equal = estimate_seconds(&run, &Machine::ZEN4_CORE).unwrap();
        assert_eq!(estimate_unequal_seconds(&run, &Machine::ZEN4_CORE, &[]).unwrap(), equal);
        let ones = estimate_unequal_seconds(&run, &Machine::ZEN4_CORE, &vec![1.0; q]).unwrap();
        assert_close(ones, equal, 1e-12);
    }
}

/// Process columns of unequal rates are as efficient as equal ones of the same total rate; if they
/// had as many blocks each, all would wait for the slowest.
#[test]
fn blocks_by_rate_lose_no_more_than_equal_columns() {
    for (p, q) in [(1, 8), (4, 8)] {
        let run = RunParams { bcast: Bcast::OneRingM, ..run(500 * 64, 64, p, q) };
        let machine = networked(1.5, 12.0);
        let equal = estimate_seconds(&run, &machine).unwrap();
        for faster in [1.37, 2.0] {
            let rates = alternating(q, faster);
            let by_rate = estimate_unequal_seconds(&run, &machine, &rates).unwrap();
            assert!(by_rate < 1.01 * equal, "{p} x {q}, {faster}: {by_rate}, {equal}");
            let slowest = rates.iter().copied().fold(f64::INFINITY, f64::min);
            let slow = machine.with_core_flops(slowest / machine.product_flop_seconds);
            assert!(by_rate < 0.9 * estimate_seconds(&run, &slow).unwrap());
        }
    }
}

#[test]
fn an_estimate_with_a_stride_knows_the_rates() {
    let (run, rates) = (run(4_000 * 64, 64, 16, 40), alternating(40, 2.0));
    let walked = run.panels() * (run.p + run.q) > 200_000;
    assert!(walked, "it has a stride");
    let equal = estimate_seconds(&run, &COMPUTE_ONLY).unwrap();
    let by_rate = estimate_unequal_seconds(&run, &COMPUTE_ONLY, &rates).unwrap();
    assert_close(by_rate, equal, 0.02);
}

#[test]
fn each_process_column_has_a_rate_above_zero() {
    let (run, rates) = (run(1_000, 64, 1, 2), |rates: &[f64]| rates.to_vec());
    for bad in [rates(&[1.0]), rates(&[1.0; 3]), rates(&[1.0, 0.0]), rates(&[1.0, f64::NAN])] {
        assert!(estimate_unequal_seconds(&run, &COMPUTE_ONLY, &bad).is_err(), "{bad:?}");
    }
}

#[test]
fn golden_values() {
    // These values were computed by this model; an intended change of the walk changes them, too.
    let cases = [GOLDEN_SMALL, GOLDEN_RINGS, GOLDEN_TEAM];
    for (run, seconds) in cases {
        let machine = Machine { message_seconds: 2e-6, message_byte_seconds: 1e-10, ..GOLDEN };
        assert_close(plain(&run, &machine).time_seconds, seconds, 1e-6);
    }
}

const GOLDEN: Machine = Machine {
    product_flop_seconds: 1.8e-11,
    product_entry_seconds: 3e-10,
    packed_entry_seconds: 2e-10,
    solve_flop_seconds: 2.2e-11,
    panel_column_seconds: 1e-6,
    panel_entry_seconds: 4e-9,
    panel_flop_seconds: 2.5e-11,
    copied_byte_seconds: 1e-10,
    streamed_byte_seconds: 1e-10,
    message_seconds: 0.0,
    message_byte_seconds: 0.0,
};
const GOLDEN_SMALL: (RunParams, f64) = (
    RunParams { bcast: Bcast::OneRing, halves: false, ..RunParams::new(4000, 96, (2, 2)) },
    0.2514944,
);
const GOLDEN_RINGS: (RunParams, f64) = (
    RunParams {
        bcast: Bcast::TwoRingM,
        swap: Swap::BinaryExchange,
        halves: false,
        ..RunParams::new(20_000, 128, (6, 8))
    },
    2.480104108,
);
const GOLDEN_TEAM: (RunParams, f64) = (
    RunParams {
        threads: 8,
        bcast: Bcast::LongM,
        swap: Swap::SpreadRoll,
        halves: false,
        ..RunParams::new(30_000, 256, (4, 4))
    },
    3.159365808,
);

/// Reports of a machine that the fit does not know, with noise of `noise`.
fn reports(machine: &Machine, noise: f64) -> Vec<MeasuredTest> {
    let mut reports = Vec::new();
    for (index, n) in [1024, 2048, 3000, 4096, 8192].into_iter().enumerate() {
        for nb in [48, 64, 128, 192, 256] {
            for (p, q) in [(1, 1), (1, 2), (2, 1), (3, 1)] {
                let run = RunParams { swap: Swap::Mix, ..run(n, nb, p, q) };
                let prediction = plain(&run, machine);
                // The signs follow no unit of work.
                let sign =
                    |i: usize| if (index + nb / 16 + p + i).is_multiple_of(2) { 1.0 } else { -1.0 };
                let mut mean = prediction.mean;
                mean.panel *= 1.0 + noise * sign(0);
                mean.swap *= 1.0 + noise * sign(1);
                mean.update *= 1.0 + noise * sign(2);
                mean.back *= 1.0 + noise * sign(3);
                let time_seconds = prediction.time_seconds;
                reports.push(MeasuredTest { run, time_seconds, mean, shared: false });
            }
        }
    }
    reports
}

#[test]
fn a_fit_finds_the_machine_that_wrote_the_reports() {
    let machine = Machine { message_seconds: 2e-6, message_byte_seconds: 2e-10, ..GOLDEN };
    let found = fit::fit(&reports(&machine, 0.0), &Machine::ZEN4_CORE).unwrap();
    for unit in Unit::ALL {
        // The walk's clocks follow the rank with most work, the counts the mean, so a little is
        // left over in the waits.
        assert_close(found.machine.seconds_per(unit), machine.seconds_per(unit), 0.02);
    }
    assert_eq!(found.unseen, []);
}

#[test]
fn noise_in_reports_moves_predictions_little() {
    let machine = Machine { message_seconds: 2e-6, message_byte_seconds: 2e-10, ..GOLDEN };
    let found = fit::fit(&reports(&machine, 0.05), &Machine::ZEN4_CORE).unwrap().machine;
    for run in [run(5000, 96, 2, 2), run(6000, 160, 1, 2), run(20_000, 192, 4, 4)] {
        let got = plain(&run, &found).time_seconds;
        assert_close(got, plain(&run, &machine).time_seconds, 0.05);
    }
}

#[test]
fn a_fit_keeps_unmeasured_coefficients_and_reports_them() {
    let machine = GOLDEN;
    let alone: Vec<MeasuredTest> =
        reports(&machine, 0.0).into_iter().filter(|m| m.run.p * m.run.q == 1).collect();
    let start = Machine { message_seconds: 7e-6, ..Machine::ZEN4_CORE };
    let found = fit::fit(&alone, &start).unwrap();
    assert_eq!(found.machine.message_seconds, 7e-6);
    assert_eq!(found.unseen, [Unit::Message, Unit::MessageByte]);
    let error = fit::fit(&[], &start).unwrap_err().to_string();
    assert!(error.contains("one thread a rank"), "{error}");
    let teams: Vec<MeasuredTest> = alone
        .iter()
        .map(|m| MeasuredTest { run: RunParams { threads: 4, ..m.run }, ..*m })
        .collect();
    assert!(fit::fit(&teams, &start).is_err(), "teams say nothing of one core");
    let shared: Vec<MeasuredTest> =
        alone.iter().map(|m| MeasuredTest { shared: true, ..*m }).collect();
    assert!(fit::fit(&shared, &start).is_err(), "shared memory says nothing of messages");
}

#[test]
fn ranks_of_a_node_share_its_link_where_all_of_them_send() {
    let seconds = |pmap| {
        let placement = Placement { ranks_per_node: 4, pmap, inner_share: 0.0 };
        let run = RunParams { depth: 0, placement, ..run(4096, 64, 4, 4) };
        let prediction = plain(&run, &networked(0.0, 1.0));
        MESSAGES.map(|part| prediction.path[part as usize])
    };
    let alone = {
        let run = RunParams { depth: 0, ..run(4096, 64, 4, 4) };
        MESSAGES.map(|part| plain(&run, &networked(0.0, 1.0)).path[part as usize])
    };
    let [pivots, bcast, rows] = alone;
    // A node for each process row: panels are free, four columns exchange rows over one link.
    let by_row = seconds(Pmap::RowMajor);
    assert_close(by_row[0], pivots, 1e-3);
    assert_eq!(by_row[1], 0.0);
    assert_close(by_row[2], 4.0 * rows, 1e-3);
    // A node for each process column: four rows send panels over one link.
    let by_column = seconds(Pmap::ColumnMajor);
    assert_eq!((by_column[0], by_column[2]), (0.0, 0.0));
    assert!(by_column[1] > 3.0 * bcast && by_column[1] < 4.001 * bcast, "{by_column:?}");
    let nobody = Placement { ranks_per_node: 0, ..Placement::ALONE };
    let nobody = RunParams { placement: nobody, ..run(1000, 64, 2, 2) };
    let error = predict(&nobody, &COMPUTE_ONLY, &Changes::default()).unwrap_err();
    assert!(error.to_string().contains("ranks_per_node = 0"), "{error}");
}

#[test]
fn what_no_formula_can_take_is_refused() {
    let zero = RunParams { nb: 0, ..run(1000, 64, 1, 1) };
    let error = predict(&zero, &COMPUTE_ONLY, &Changes::default()).unwrap_err();
    assert!(error.to_string().contains("nb = 0"), "{error}");
    let machine = Machine { message_seconds: -1.0, ..COMPUTE_ONLY };
    let error = predict(&run(1000, 64, 1, 1), &machine, &Changes::default()).unwrap_err();
    assert!(error.to_string().contains("message_seconds = -1"), "{error}");
}

fn runs() -> impl Strategy<Value = RunParams> {
    let shape = (1usize..4000, 1usize..200, 1usize..7, 1usize..7, 1usize..5);
    let talk = (
        0usize..4,
        prop::sample::select(Bcast::ALL.to_vec()),
        prop::sample::select(Swap::ALL.to_vec()),
        0usize..300,
    );
    let nodes = (1usize..9, prop::sample::select(Pmap::ALL.to_vec()), 0.0f64..2.0);
    (shape, talk, nodes).prop_map(|(shape, talk, (ranks_per_node, pmap, inner_share))| {
        let (n, nb, p, q, threads) = shape;
        let (depth, bcast, swap, swap_threshold) = talk;
        let placement = Placement { ranks_per_node, pmap, inner_share };
        let run = RunParams {
            threads,
            depth,
            bcast,
            swap,
            swap_threshold,
            placement,
            ..run(n, nb, p, q)
        };
        RunParams { halves: false, ..run }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn every_run_has_a_time_that_its_path_explains(run in runs()) {
        let prediction = plain(&run, &Machine::ZEN4_CORE);
        prop_assert!(prediction.time_seconds.is_finite() && prediction.time_seconds > 0.0);
        let sum: f64 = prediction.path.iter().sum();
        prop_assert!((sum - prediction.time_seconds).abs() <= 1e-9 * prediction.time_seconds);
        prop_assert!(prediction.path.iter().all(|&seconds| seconds >= 0.0));
        let phases = prediction.mean.named();
        prop_assert!(phases.iter().all(|&(_, seconds)| seconds >= -1e-12), "{phases:?}");
    }

    #[test]
    fn more_latency_is_never_faster(run in runs(), us in 0.0..50.0f64, more_us in 0.1..50.0f64) {
        // Calls into MPI come at fixed times, so that a rank may profit from being late; prompt
        // forwarding has no such effect.
        let prompt = Changes { prompt_forwarding: true, ..Changes::default() };
        let seconds = |us| predict(&run, &networked(us, 10.0), &prompt).unwrap().time_seconds;
        prop_assert!(seconds(us + more_us) >= seconds(us) * (1.0 - 1e-12));
    }

    #[test]
    fn more_bandwidth_is_never_slower(run in runs(), gbs in 0.1..20.0f64, times in 1.1..10.0f64) {
        let prompt = Changes { prompt_forwarding: true, ..Changes::default() };
        let seconds = |gbs| predict(&run, &networked(2.0, gbs), &prompt).unwrap().time_seconds;
        prop_assert!(seconds(gbs * times) <= seconds(gbs) * (1.0 + 1e-12));
    }

    #[test]
    fn no_change_to_the_solver_makes_it_slower(run in runs()) {
        let before = plain(&run, &Machine::ZEN4_CORE).time_seconds;
        let in_halves = plain(&RunParams { halves: true, ..run }, &Machine::ZEN4_CORE).time_seconds;
        prop_assert!(in_halves <= before * 1.02 + 1e-4, "halves: {in_halves} after {before}");
        let changes = Changes { wait_for_oldest: true, ..Changes::default() };
        // A window that shifts moves the calls in it, by up to a product.
        let after = predict(&run, &Machine::ZEN4_CORE, &changes).unwrap().time_seconds;
        prop_assert!(after <= before * 1.02 + 1e-4, "{changes:?}: {after} after {before}");
    }
}
