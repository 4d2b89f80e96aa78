//! The simulator against the formulas: they share no code, so agreement within the confidence
//! interval supports both. Seeds are fixed, so the same comparisons run every time; the confidence
//! is 99.9 % per comparison.

use skt_model::Group;
use skt_model::inmemory::InMemoryJob;
use skt_model::tang::memory::Protocol;
use skt_studies::bosilca::WasteModel;
use skt_studies::sim::coordinated::Protection;
use skt_studies::sim::trace::Trace;
use skt_studies::sim::{Ages, Batch, CoordinatedJob, HierarchicalJob, Job, Law, RunEnd, Summary};
use skt_studies::tang::reliability;

const CONFIDENCE: f64 = 0.999;

fn exponential(nodes: usize, system_mtbf_seconds: f64) -> Batch {
    Batch {
        runs: 2_000,
        seed: 20_120_511,
        threads: 2,
        nodes,
        law: Law::Exponential { mtbf_seconds: system_mtbf_seconds * nodes as f64 },
        ages: Ages::Steady,
    }
}

fn simulate(batch: &Batch, job: &impl Job) -> Summary {
    batch.run(job, &|_| {}).unwrap()
}

#[test]
fn coordinated_agrees_with_the_exact_form_for_any_period() {
    let mtbf_seconds = 10_000.0;
    for overlap in [0.0, 0.3, 1.0] {
        for (checkpoint, recovery, downtime) in [(100.0, 100.0, 0.0), (600.0, 300.0, 60.0)] {
            let model = WasteModel::coordinated(checkpoint, recovery, downtime, overlap);
            for period in [700.0, 2_000.0, 10_000.0] {
                let job = CoordinatedJob::from_periods(&model, period, 200.0);
                let waste = simulate(&exponential(100, mtbf_seconds), &job).waste;
                let want = model.exact_coordinated_waste(period, mtbf_seconds);
                assert!(
                    waste.agrees_with(want, CONFIDENCE),
                    "overlap {overlap}, C {checkpoint}, T {period}: simulated {} +- {}, exact {want}",
                    waste.mean,
                    waste.half_width(CONFIDENCE)
                );
            }
        }
    }
}

#[test]
fn coordinated_agrees_with_equation_5_where_that_claims_to_hold() {
    // T <= 0.02 mu: the terms that eq. 5 leaves out are of the order of
    // (T + D + R + C)^2 / mu^2, here below 6e-4, and the product of its terms.
    let mtbf_seconds = 100_000.0;
    for overlap in [0.0, 0.3, 0.7] {
        let model = WasteModel::coordinated(100.0, 100.0, 60.0, overlap);
        for period in [500.0, 1_000.0, 2_000.0] {
            let job = CoordinatedJob::from_periods(&model, period, 1_000.0);
            let waste = simulate(&exponential(50, mtbf_seconds), &job).waste;
            let want = model.composed_waste(period, mtbf_seconds);
            let product =
                model.failure_free_waste(period) * model.failure_waste(period, mtbf_seconds);
            assert!((model.waste(period, mtbf_seconds) - product - want).abs() < 1e-12);
            let left_out = ((period + 260.0) / mtbf_seconds).powi(2);
            assert!(
                (waste.mean - want).abs() <= waste.half_width(CONFIDENCE) + left_out,
                "overlap {overlap}, T {period}: simulated {} +- {}, formula {want}",
                waste.mean,
                waste.half_width(CONFIDENCE)
            );
        }
    }
}

#[test]
fn the_sum_in_equation_5_counts_a_product_twice() {
    // C/T = 0.2: the product of the two overheads is 8e-4, three times the confidence interval; the
    // second order is 6e-5.
    let model = WasteModel::coordinated(100.0, 100.0, 60.0, 0.0);
    let (period, mtbf_seconds) = (500.0, 100_000.0);
    let job = CoordinatedJob::from_periods(&model, period, 1_000.0);
    let waste = simulate(&exponential(50, mtbf_seconds), &job).waste;
    let describe = format!("{} +- {}", waste.mean, waste.half_width(CONFIDENCE));
    assert!(!waste.agrees_with(model.waste(period, mtbf_seconds), CONFIDENCE), "{describe}");
    assert!(
        waste.agrees_with(model.composed_waste(period, mtbf_seconds), CONFIDENCE),
        "{describe}"
    );
}

#[test]
fn hierarchical_agrees_with_bosilca_equation_15() {
    let mtbf_seconds = 200_000.0;
    for (groups, growth, logging, replay) in
        [(1, 0.0, 1.0, 1.0), (4, 0.0, 1.0, 1.0), (16, 0.0, 0.98, 1.5), (16, 1e-4, 0.98, 1.5)]
    {
        for overlap in [0.0, 0.3, 0.8] {
            let model = WasteModel {
                groups,
                checkpoint_seconds: 1_600.0 / groups as f64,
                recovery_seconds: 1_600.0 / groups as f64,
                downtime_seconds: 30.0,
                overlap_fraction: overlap,
                logging_speed: logging,
                replay_speed: replay,
                growth_per_second: growth,
            };
            for period in [4_000.0, 8_000.0] {
                let job = HierarchicalJob {
                    model,
                    period_seconds: period,
                    periods: 400,
                    nodes: 160,
                    limit_seconds: f64::INFINITY,
                };
                job.validate().unwrap();
                let waste = simulate(&exponential(160, mtbf_seconds), &job).waste;
                let want = model.composed_waste(period, mtbf_seconds);
                // The second order, and the half checkpoint that eq. 15 also speeds up by rho.
                let outage = model.grown_recovery_seconds(period) + 30.0;
                let left_out = ((period + outage) / mtbf_seconds).powi(2)
                    + model.grown_checkpoint_seconds(period) / mtbf_seconds * (1.0 - 1.0 / replay);
                assert!(
                    (waste.mean - want).abs() <= waste.half_width(CONFIDENCE) + left_out,
                    "G {groups}, overlap {overlap}, T {period}: simulated {} +- {}, formula {want}",
                    waste.mean,
                    waste.half_width(CONFIDENCE)
                );
            }
        }
    }
}

#[test]
fn one_group_of_the_hierarchy_is_the_coordinated_protocol() {
    // The same failures, two engines and one protocol give equal runs.
    let model = WasteModel::coordinated(300.0, 200.0, 50.0, 0.0);
    let hierarchical = HierarchicalJob {
        model,
        period_seconds: 3_000.0,
        periods: 50,
        nodes: 10,
        limit_seconds: f64::INFINITY,
    };
    let coordinated = CoordinatedJob::from_periods(&model, 3_000.0, 50.0);
    let batch = exponential(10, 20_000.0);
    let one = batch.outcomes(&hierarchical, &|_| {}).unwrap();
    let other = batch.outcomes(&coordinated, &|_| {}).unwrap();
    // A failure in a re-execution costs the same in both, but is accounted for differently; most
    // runs have none.
    let equal = one
        .iter()
        .zip(&other)
        .filter(|(a, b)| (a.time_seconds - b.time_seconds).abs() < 1.0)
        .count();
    assert!(equal > 3 * one.len() / 10, "{equal} of {} runs equal", one.len());
    let mean = |outcomes: &[skt_studies::sim::RunOutcome]| Summary::from_outcomes(outcomes).waste;
    let (a, b) = (mean(&one), mean(&other));
    assert!((a.mean - b.mean).abs() < a.half_width(CONFIDENCE) + b.half_width(CONFIDENCE));
}

fn in_memory(protocol: Protocol, size: usize, parities: usize) -> InMemoryJob {
    InMemoryJob {
        protocol,
        group: Group::new(size, parities).unwrap(),
        nodes: 64,
        spares: Some(1_000),
        node_mtbf_seconds: 64.0 * 5_000.0,
        work_seconds: 50_000.0,
        checkpoint_seconds: if protocol == Protocol::Abft { 0.0 } else { 20.0 },
        overlap_fraction: 0.0,
        downtime_seconds: 300.0,
        recovery_seconds: 200.0,
    }
}

#[test]
fn probability_to_keep_the_data_agrees() {
    for (protocol, size, parities) in [
        (Protocol::SelfCheckpoint, 8, 1),
        (Protocol::SelfCheckpoint, 16, 1),
        (Protocol::SelfCheckpoint, 16, 2),
        (Protocol::Double, 4, 1),
        (Protocol::Single, 8, 1),
        (Protocol::Abft, 16, 1),
        (Protocol::Abft, 16, 2),
    ] {
        let job = in_memory(protocol, size, parities);
        let interval_seconds = 500.0;
        let want = job.expect(interval_seconds).unwrap().keeps_data_probability;
        let batch = Batch { runs: 4_000, ..exponential(64, 5_000.0) };
        let kept = simulate(&batch, &CoordinatedJob::in_memory(&job, interval_seconds)).finished;
        let (low, high) = kept.interval(CONFIDENCE);
        // The formula treats losses in different groups as independent: an error of the order of
        // (V/mu)^2 per failure for m = 1, which is less than the interval.
        assert!(
            kept.agrees_with(want, CONFIDENCE),
            "{protocol:?} n {size} m {parities}: simulated {low}..{high}, formula {want}"
        );
    }
}

#[test]
fn tang_figure_12_simulated() {
    // 160,000 processes in groups of 16, an MTBF of 5 h, checkpoints and recoveries of 20 s, one
    // every 13.6 min, 100 h: single completes in 61 %, self in over 99 %.
    let period_seconds = 13.6 * 60.0;
    let periods = 100.0 * 3600.0 / period_seconds;
    let model = WasteModel::coordinated(20.0, 20.0, 0.0, 0.0);
    let run = |update_is_fatal| {
        let job = CoordinatedJob {
            protection: Protection::Memory { group: Group::new(16, 1).unwrap(), update_is_fatal },
            stop_at_loss: true,
            checkpoint_at_end: false,
            ..CoordinatedJob::from_periods(&model, period_seconds, periods)
        };
        let batch = Batch { runs: 10_000, ..exponential(160_000, 5.0 * 3600.0) };
        simulate(&batch, &job).finished
    };
    let formula = reliability::Run::figure_12(100.0 * 3600.0);
    let single = run(true);
    assert!(single.agrees_with(formula.success_single().unwrap(), CONFIDENCE), "{single:?}");
    assert!((100.0 * (1.0 - single.value()) - 39.0).abs() < 2.0, "{single:?}");
    assert!(run(false).value() > 0.999);
}

#[test]
fn time_without_loss_agrees_and_so_do_spares() {
    let saved = [200.0, 1_000.0, 4_000.0].map(|seconds| (Protocol::SelfCheckpoint, seconds));
    for (protocol, interval_seconds) in saved.into_iter().chain([(Protocol::Abft, 50.0)]) {
        let job = InMemoryJob { spares: Some(10), ..in_memory(protocol, 16, 8) };
        let want = job.expect(interval_seconds).unwrap();
        let batch = Batch { runs: 4_000, ..exponential(64, 5_000.0) };
        let ample =
            CoordinatedJob { spares: None, ..CoordinatedJob::in_memory(&job, interval_seconds) };
        let time = simulate(&batch, &ample).finished_time_seconds;
        assert!(
            time.agrees_with(want.time_seconds, CONFIDENCE),
            "interval {interval_seconds}: simulated {} +- {}, exact {}",
            time.mean,
            time.half_width(CONFIDENCE),
            want.time_seconds
        );
        // The law of the number of failures is matched only in its mean and variance.
        let enough = simulate(&batch, &CoordinatedJob::in_memory(&job, interval_seconds)).finished;
        let (low, high) = enough.interval(CONFIDENCE);
        assert!(
            (low - 0.01..=high + 0.01).contains(&want.spares_suffice_probability),
            "interval {interval_seconds}: simulated {low}..{high}, formula {}",
            want.spares_suffice_probability
        );
    }
}

#[test]
fn without_checkpoints_the_whole_run_must_go_in_peace() {
    let mut job = in_memory(Protocol::None, 2, 1);
    job.work_seconds = 5_000.0;
    let want = job.expect(f64::INFINITY).unwrap();
    let batch = Batch { runs: 4_000, ..exponential(64, 5_000.0) };
    let stopped = simulate(&batch, &CoordinatedJob::in_memory(&job, f64::INFINITY));
    assert!(stopped.finished.agrees_with((-1.0f64).exp(), CONFIDENCE));
    assert!((want.keeps_data_probability - (-1.0f64).exp()).abs() < 1e-12);
    let again = CoordinatedJob {
        stop_at_loss: false,
        spares: None,
        ..CoordinatedJob::in_memory(&job, f64::INFINITY)
    };
    let time = simulate(&batch, &again).finished_time_seconds;
    assert!(time.agrees_with(want.time_seconds, CONFIDENCE), "{time:?} {}", want.time_seconds);
}

#[test]
fn other_laws_keep_the_mean_rate_in_a_steady_machine() {
    // The first-order formula needs only the MTBF (section 3.1): it must also hold for Weibull and
    // log-normal nodes, if there are many.
    let (nodes, mtbf_seconds) = (2_000, 50_000.0);
    let model = WasteModel::coordinated(100.0, 100.0, 30.0, 0.3);
    let period = 2_000.0;
    let want = model.composed_waste(period, mtbf_seconds);
    let node_mtbf_seconds = mtbf_seconds * nodes as f64;
    for law in [
        Law::Weibull { mtbf_seconds: node_mtbf_seconds, shape: 0.7 },
        Law::Weibull { mtbf_seconds: node_mtbf_seconds, shape: 2.0 },
        Law::LogNormal { mtbf_seconds: node_mtbf_seconds, sigma: 1.2 },
    ] {
        let batch = Batch { law: law.clone(), runs: 300, ..exponential(nodes, mtbf_seconds) };
        let waste = simulate(&batch, &CoordinatedJob::from_periods(&model, period, 300.0)).waste;
        let left_out = ((period + 330.0) / mtbf_seconds).powi(2);
        assert!(
            (waste.mean - want).abs() <= waste.half_width(CONFIDENCE) + left_out,
            "{law:?}: simulated {} +- {}, formula {want}",
            waste.mean,
            waste.half_width(CONFIDENCE)
        );
    }
}

#[test]
fn a_hand_made_trace_gives_a_hand_made_schedule() {
    // Two losses in one group of 2, 10 s apart in an outage of 30 s, are fatal with one parity; in
    // two groups they are not. The trace has a span of 1e6 s, and the run is over long before it
    // wraps.
    let run = |text: &str| {
        let trace = Trace::parse(text, Some(1e6)).unwrap();
        let batch = Batch {
            runs: 200,
            seed: 4,
            threads: 1,
            nodes: 4,
            law: Law::Trace(trace),
            ages: Ages::Steady,
        };
        let job = InMemoryJob {
            work_seconds: 2e6,
            checkpoint_seconds: 0.0,
            downtime_seconds: 20.0,
            recovery_seconds: 10.0,
            spares: None,
            ..in_memory(Protocol::SelfCheckpoint, 2, 1)
        };
        let job = CoordinatedJob::in_memory(&job, 1_000.0);
        batch.outcomes(&job, &|_| {}).unwrap()
    };
    assert!(run("500000 0\n500010 1").iter().all(|o| o.end == RunEnd::DataLost));
    let apart = run("500000 0\n500010 2");
    assert!(apart.iter().all(|o| o.end == RunEnd::Finished && o.failures >= 4));
    // Each pass costs 40 s of outage and at most 1000 s of lost work.
    assert!(apart.iter().all(|o| o.time_seconds <= 2e6 + 3.0 * 1_040.0));
    // Two failures of the same node are one loss.
    assert!(run("500000 0\n500010 0").iter().all(|o| o.end == RunEnd::Finished));
}

#[test]
fn the_same_seed_gives_the_same_runs_on_any_number_of_threads() {
    let model = WasteModel::coordinated(100.0, 100.0, 0.0, 0.0);
    let job = CoordinatedJob::from_periods(&model, 1_000.0, 20.0);
    let outcomes = |threads| {
        let batch = Batch { threads, runs: 50, ..exponential(10, 5_000.0) };
        batch.outcomes(&job, &|_| {}).unwrap()
    };
    assert_eq!(outcomes(1), outcomes(4));
    let other = Batch { seed: 1, runs: 50, ..exponential(10, 5_000.0) };
    assert_ne!(outcomes(1), other.outcomes(&job, &|_| {}).unwrap());
}

#[test]
fn no_failures_means_no_waste_but_checkpoints() {
    let model = WasteModel::coordinated(100.0, 100.0, 0.0, 0.0);
    let batch = Batch { runs: 2, ..exponential(10, 1e15) };
    let summary = simulate(&batch, &CoordinatedJob::from_periods(&model, 1_000.0, 50.0));
    assert!((summary.waste.mean - 0.1).abs() < 1e-4, "{}", summary.waste.mean);
    assert_eq!(summary.failures.mean, 0.0);
}

#[test]
fn a_job_that_cannot_progress_is_given_up() {
    let model = WasteModel::coordinated(1_000.0, 1_000.0, 0.0, 0.0);
    let job = CoordinatedJob {
        limit_seconds: 1e5,
        ..CoordinatedJob::from_periods(&model, 1_500.0, 100.0)
    };
    let batch = Batch { runs: 20, ..exponential(10, 50.0) };
    let summary = simulate(&batch, &job);
    assert_eq!(summary.timed_out.hits, 20);
}

#[test]
fn a_run_without_a_spare_has_done_nothing() {
    let (work_seconds, mtbf_seconds) = (1e6, 1e5);
    let job = CoordinatedJob {
        work_seconds,
        checkpoint_at_end: false,
        spares: Some(0),
        ..CoordinatedJob::from_periods(
            &WasteModel::coordinated(10.0, 10.0, 10.0, 0.0),
            1_000.0,
            1.0,
        )
    };
    let outcomes = exponential(10, mtbf_seconds).outcomes(&job, &|_| {}).unwrap();
    let lacking = outcomes.iter().filter(|outcome| outcome.end == RunEnd::OutOfSpares);
    assert!(lacking.clone().count() > 1_900);
    assert!(lacking.clone().any(|outcome| outcome.checkpoints > 0));
    assert!(lacking.clone().all(|outcome| outcome.waste() == 1.0));
}
