use skt_host::choice::{Bcast, Swap};
use skt_model::path::{Machine, Placement, RunParams, predict};
use skt_model::tang::efficiency::Efficiency;
use skt_studies::published::gates::{Predicted, gates, predict_cofc, predict_stellar};
use skt_studies::published::machines::{DAHU, Processors, dahu};
use skt_studies::published::runs::{Published, published};

fn count(experiment: &str, date: &str) -> usize {
    published().filter(|of| of.experiment == experiment && of.date.starts_with(date)).count()
}

/// The runs of different sizes in October 2018, of `from` rows and more.
fn sizes(from: usize) -> impl Iterator<Item = Published> {
    published().filter(move |of| of.date == "2018-10" && of.run.n >= from)
}

#[test]
fn all_published_runs_are_there_once() {
    assert_eq!((count("size", "2018"), count("size", "2019")), (14, 14));
    assert_eq!((count("geometry", ""), count("parameters", ""), count("nodes", "")), (28, 72, 29));
    for of in published() {
        let again = published().filter(|other| (other.run, other.date) == (of.run, of.date));
        assert_eq!(again.count(), 1, "{of:?}");
        let ranks_per_node = match of.machine {
            "dahu" => 32,
            "stellar" => 96,
            _ => 1,
        };
        assert_eq!(of.run.p * of.run.q, of.nodes * ranks_per_node, "{of:?}");
    }
}

#[test]
fn calibration_by_hand() {
    let Machine { product_flop_seconds, message_seconds, message_byte_seconds, .. } =
        dahu(Processors::Equal);
    let close = |got: f64, want: f64| assert!((got / want - 1.0).abs() < 1e-3, "{got}, {want}");
    // 27.25 Gflop/s a core, 12.335 GB/s a node.
    close(1e-9 / product_flop_seconds, 27.25);
    close(1e-9 / message_byte_seconds, 12.335);
    // Two links of 0.1135 us, 0.2965 us to send, 1.3754 us to receive; 2,080 bytes at 0.3504 ns
    // instead of 0.0811 ns.
    close(message_seconds, 1.8989e-6 + 2080.0 * (0.3504e-9 - 0.0811e-9));
    close(DAHU.inner_share, 0.6813);
}

/// The cost of the N^2 part relative to the N^3 part at `n`: b / (a N) of Tang et al., eq. 2.
fn steepness(points: &[(f64, f64)], n: f64) -> f64 {
    let fitted = Efficiency::fit(points).unwrap();
    fitted.b / (fitted.a * n)
}

#[test]
fn efficiency_over_n_is_as_steep_as_measured() {
    let real: Vec<_> = sizes(100_000).map(|of| (of.run.n as f64, of.gflops)).collect();
    let points = |placement: Placement| -> Vec<_> {
        let rate = |of: Published| {
            let run = RunParams { placement, ..of.run };
            let gflops =
                predict(&run, &dahu(Processors::Equal), &Default::default()).unwrap().gflops;
            (of.run.n as f64, gflops)
        };
        sizes(100_000).map(rate).collect()
    };
    let [real, shared, alone] =
        [real, points(DAHU), points(Placement::ALONE)].map(|points| steepness(&points, 500e3));
    let rounded = |x: f64| (1000.0 * x).round() / 1000.0;
    assert_eq!([real, shared, alone].map(rounded), [0.073, 0.079, 0.022]);
}

#[test]
fn frozen_machines_predict_what_performance_md_prints() {
    let of = |n: usize, date: &str| {
        published().find(|of| of.run.n == n && of.date == date).expect("it is published")
    };
    let on_dahu = |n, processors| of(n, "2018-10").on_dahu(processors).unwrap().round();
    assert_eq!(on_dahu(100_000, Processors::Equal), 20_057.0);
    assert_eq!(on_dahu(500_000, Processors::Equal), 25_967.0);
    assert_eq!(on_dahu(500_000, Processors::Slowest), 23_525.0);
    assert_eq!(of(500_000, "2019-03").on_dahu(Processors::Hot).unwrap().round(), 21_130.0);
    let nodes = predict_cofc().unwrap();
    let rates: Vec<f64> = nodes.iter().map(|(_, gflops)| gflops.round()).collect();
    assert_eq!(rates, [2_285.0, 4_470.0, 8_959.0, 17_728.0, 22_048.0]);
    let nodes = predict_stellar().unwrap();
    let of = |n: usize, nb: usize| {
        let found = nodes.iter().find(|(of, _)| (of.nodes, of.run.n, of.run.nb) == (21, n, nb));
        found.expect("it is published").1.round()
    };
    assert_eq!([of(100_000, 128), of(1_200_000, 256)], [51_523.0, 81_391.0]);
}

#[test]
fn gates_judge_their_own_experiment() {
    // As if the model predicted each rate but those of one geometry and one combination.
    let mut all: Vec<Predicted> = published()
        .filter(|of| of.machine == "dahu")
        .map(|of| Predicted { equal_gflops: of.gflops, slowest_gflops: 0.0, of })
        .collect();
    assert!(gates(&all).iter().all(|gate| gate.passed));
    for p in &mut all {
        let run = &p.of.run;
        let one = run.nb == 256 && run.depth == 1 && run.bcast == Bcast::Long;
        let one = one && run.swap == Swap::Mix;
        if one || (p.of.experiment == "geometry" && run.p == 8) {
            p.equal_gflops = 30_000.0;
        }
        if p.of.date == "2018-10" && run.n == 75_000 {
            p.equal_gflops = 1.0;
        }
    }
    let values = gates(&all).map(|gate| gate.value);
    assert_eq!((values[0], values[3]), (0.0, 71.0));
    // 8 x 120 reached 19,030 of the 22,260 Gflop/s of 30 x 32.
    assert!((values[1] - 100.0 * (1.0 - 19_030.0 / 22_260.0)).abs() < 1e-9);
    assert!(gates(&all)[0].passed && !gates(&all)[1].passed);
}
