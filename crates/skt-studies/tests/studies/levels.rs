//! Checkpoints on several levels: the simulator against the first-order formula. Seeds are fixed,
//! and the confidence is 99.9 % per comparison.

use skt_model::levels::{Level, Levels, Schedule, Validity};
use skt_studies::sim::{Ages, Batch, Estimate, LevelledJob};

const CONFIDENCE: f64 = 0.999;
const SIMULATED_WORK_SECONDS: f64 = 3e6;

fn level(cost: f64, write: f64, outage: f64, mtbf: f64) -> Level {
    Level { cost_seconds: cost, write_seconds: write, outage_seconds: outage, mtbf_seconds: mtbf }
}

/// Disks for power cuts, and a file system for losses that take disks, too.
fn levels() -> Levels {
    Levels {
        memory: level(10.0, 0.0, 90.0, 5e4),
        images: vec![level(30.0, 400.0, 600.0, 1e6), level(60.0, 2_000.0, 3_000.0, 4e6)],
    }
}

fn rates(levels: &Levels) -> Vec<f64> {
    [&levels.memory].into_iter().chain(&levels.images).map(|one| 1.0 / one.mtbf_seconds).collect()
}

/// The waste by the simulator of the same levels, with a number of nodes that gives their rates.
fn simulated(levels: &Levels, schedule: &Schedule, runs: usize) -> Estimate {
    let (job, law) = LevelledJob::from_levels(levels, schedule, SIMULATED_WORK_SECONDS).unwrap();
    job.validate().unwrap();
    let batch = Batch {
        runs,
        seed: 20_170_701,
        threads: 2,
        nodes: job.all_nodes(),
        law,
        ages: Ages::Steady,
    };
    batch.run(&job, &|_| {}).unwrap().waste
}

/// The error of the formula: with probability d/M another failure of any level comes within the d =
/// T + W + V seconds that one of level l may destroy, and changes that loss by at most all of it;
/// and an image of each level follows each failure.
fn left_out(levels: &Levels, schedule: &Schedule) -> f64 {
    let rate: f64 = rates(levels).iter().sum();
    let periods = levels.periods_seconds(schedule);
    let all = [&levels.memory].into_iter().chain(&levels.images).zip(&periods);
    let twice = |(level, period): (&Level, &f64)| {
        let destroyed = period + level.write_seconds + level.outage_seconds;
        destroyed / level.mtbf_seconds * destroyed * rate
    };
    let images: f64 = levels.images.iter().map(|level| level.cost_seconds).sum();
    all.map(twice).sum::<f64>() + images * rate
}

#[test]
fn simulation_and_formula_agree_where_the_formula_holds() {
    let without = Levels { images: vec![], ..levels() };
    let one = Levels { images: vec![level(30.0, 400.0, 600.0, 1e6)], ..levels() };
    let cheap = Levels { images: vec![level(0.0, 900.0, 100.0, 3e5)], ..levels() };
    for (levels, work_seconds, every) in [
        (without, 990.0, vec![]),
        (one.clone(), 990.0, vec![1]),
        (one.clone(), 990.0, vec![8]),
        (one, 300.0, vec![25]),
        (cheap, 990.0, vec![1]),
        (levels(), 990.0, vec![2, 10]),
        (levels(), 990.0, vec![8, 20]),
        (levels(), 1_500.0, vec![5, 5]),
    ] {
        let schedule = Schedule { work_seconds, every };
        assert_eq!(levels.validity(&schedule), Validity::Valid, "{schedule:?}");
        let waste = simulated(&levels, &schedule, 400);
        let (want, left_out) = (levels.waste(&schedule), left_out(&levels, &schedule));
        assert!(left_out < 0.25 * want, "{schedule:?}: the bound says nothing: {left_out}");
        assert!(
            (waste.mean - want).abs() <= waste.half_width(CONFIDENCE) + left_out,
            "{schedule:?}: simulated {} +- {}, formula {want}, left out {left_out}",
            waste.mean,
            waste.half_width(CONFIDENCE)
        );
    }
}

/// With the same failures, no other schedule wastes less by more than 3 % of the waste.
#[test]
fn no_schedule_is_much_better_than_that_of_the_formula() {
    let levels = levels();
    let best = levels.best_schedule().unwrap();
    assert!((best.work_seconds - 990.0).abs() < 1e-9, "{best:?}");
    assert_eq!(best.every, [8, 22]);
    let waste = |schedule: &Schedule| simulated(&levels, schedule, 150).mean;
    let with_every = |every| Schedule { every, ..best.clone() };
    let mut others: Vec<Schedule> = [
        [2, 22],
        [4, 22],
        [6, 22],
        [11, 22],
        [16, 22],
        [32, 22],
        [8, 8],
        [8, 14],
        [8, 32],
        [8, 60],
    ]
    .map(|every| with_every(every.to_vec()))
    .into();
    let in_memory = |seconds| Schedule { work_seconds: seconds, ..best.clone() };
    others.extend([400.0, 700.0, 1_300.0, 2_000.0].map(in_memory));
    let of_formula = waste(&best);
    let scanned: Vec<f64> = others.iter().map(waste).collect();
    let least = scanned.iter().copied().fold(f64::INFINITY, f64::min);
    assert!(of_formula <= 1.03 * least, "{of_formula}, scanned {scanned:?}");
    // The schedule is an optimum: far from it, more is wasted.
    for (other, waste) in others.iter().zip(&scanned) {
        let is_far = other.every[0] <= 2 || other.every[1] >= 60 || other.work_seconds <= 400.0;
        assert!(!is_far || *waste > 1.01 * of_formula, "{other:?}: {waste}, best {of_formula}");
    }
}
