//! Limits, monotonicity and refusals that hold for all numbers.

use proptest::prelude::*;
use skt_model::inmemory::InMemoryJob;
use skt_model::tang::efficiency::{Efficiency, with_memory, with_memory_lower_bound};
use skt_model::tang::memory::Protocol;
use skt_model::tang::{interval, volume};
use skt_model::{Group, ModelError, chen};

fn any_group() -> impl Strategy<Value = Group> {
    (2usize..64).prop_flat_map(|size| {
        (Just(size), 1..=size / 2).prop_map(|(size, parities)| Group::new(size, parities).unwrap())
    })
}

proptest! {
    #[test]
    fn memory_parts_add_up_and_order_the_protocols(group in any_group(), total in 1.0..1e15f64) {
        let mut last = f64::INFINITY;
        // None, single, self, double: each keeps more memory than the one before.
        for protocol in
            [Protocol::None, Protocol::Single, Protocol::SelfCheckpoint, Protocol::Double]
        {
            let split = protocol.split(group, total);
            prop_assert!((split.total_bytes() / total - 1.0).abs() < 1e-12);
            prop_assert!(split.workspace_bytes < last);
            last = split.workspace_bytes;
        }
        let (n, m) = (group.size() as f64, group.parities() as f64);
        let of_self = Protocol::SelfCheckpoint.available_fraction(group);
        prop_assert!((of_self - (n - m) / (2.0 * n)).abs() < 1e-12);
        let abft = Protocol::Abft.split(group, total);
        prop_assert!((abft.total_bytes() / total - 1.0).abs() < 1e-12);
        prop_assert!((abft.workspace_bytes / total - (n - m) / n).abs() < 1e-12);
    }

    #[test]
    fn more_parities_cost_memory_and_larger_groups_save_it(size in 4usize..64) {
        let available = |n, m| {
            Protocol::SelfCheckpoint.available_fraction(Group::new(n, m).unwrap())
        };
        prop_assert!(available(size, 2) < available(size, 1));
        prop_assert!(available(size + 1, 1) > available(size, 1));
    }

    #[test]
    fn efficiency_rises_with_memory_and_the_bound_is_below(
        e1 in 0.05..0.95f64, k in 0.05..1.0f64, share in 0.0..1.0f64,
    ) {
        let a = 1.0 + share * (1.0 / e1 - 1.0);
        let full = with_memory(e1, k, a).unwrap();
        prop_assert!(full >= with_memory_lower_bound(e1, k).unwrap() - 1e-12);
        prop_assert!(full <= e1 + 1e-12);
        prop_assert!((with_memory(e1, 1.0, a).unwrap() - e1).abs() < 1e-12);
        // Equation 5 is equation 2 at sqrt(k) N1 with b from equation 4.
        let model = Efficiency::through(1e5, e1, a).unwrap();
        prop_assert!((model.at(k.sqrt() * 1e5) - full).abs() < 1e-9);
    }

    #[test]
    fn fit_recovers_what_it_was_given(a in 1.0..2.0f64, b in 100.0..1e5f64) {
        let truth = Efficiency { a, b };
        let points: Vec<_> = [1e4, 3e4, 1e5, 3e5].map(|n| (n, truth.at(n))).to_vec();
        let fit = Efficiency::fit(&points).unwrap();
        prop_assert!((fit.a / a - 1.0).abs() < 1e-6 && (fit.b / b - 1.0).abs() < 1e-6);
        prop_assert!((fit.at(fit.half_of_limit()) - 0.5 * fit.limit()).abs() < 1e-9);
        prop_assert!((fit.at(fit.half_of(1e5)) - 0.5 * fit.at(1e5)).abs() < 1e-9);
    }

    #[test]
    fn daly_is_young_for_short_checkpoints(mtbf in 1e3..1e8f64) {
        let young = interval::young_seconds(mtbf, 1e-6).unwrap();
        let daly = interval::daly_seconds(mtbf, 1e-6).unwrap();
        prop_assert!((daly / young - 1.0).abs() < 1e-3);
        prop_assert_eq!(interval::daly_seconds(mtbf, 2.0 * mtbf).unwrap(), mtbf);
    }

    #[test]
    fn free_checkpoints_and_no_outage_cost_nothing_in_equation_10(mtbf in 1.0..1e8f64) {
        prop_assert_eq!(interval::efficiency(mtbf, 0.0, 0.0).unwrap(), 1.0);
    }

    #[test]
    fn optimal_segment_beats_its_neighbours(
        p in 3usize..10_000, bytes in 1e6..1e10f64, latency in 1e-7..1e-4f64,
    ) {
        let network = chen::Network {
            latency_seconds: latency,
            transfer_seconds_per_byte: 1e-10,
            reduce_seconds_per_byte: 1e-11,
        };
        let code = chen::Code::Weighted;
        let best = network.optimal_segment_bytes(p, bytes, code).unwrap();
        let seconds = |s| network.chain_seconds_with_segment(p, bytes, s, code).unwrap();
        for s in [0.5 * best, (2.0 * best).min(bytes)] {
            prop_assert!(seconds(best) <= seconds(s) * (1.0 + 1e-12));
        }
        // Never less than the data through one link, never longer for k = 1 than for k = 2.
        prop_assert!(seconds(best) > 1.2e-10 * bytes);
        let k = |k| network.localized_seconds(k, bytes).unwrap();
        prop_assert!(k(1) < k(2) && k(2) < k(3));
    }

    #[test]
    fn more_parities_make_loss_rarer(size in 8usize..32, mtbf_hours in 1e3..1e5f64) {
        let job = |m| InMemoryJob {
            protocol: Protocol::SelfCheckpoint,
            group: Group::new(size, m).unwrap(),
            nodes: 1_000,
            spares: None,
            node_mtbf_seconds: 3600.0 * mtbf_hours,
            work_seconds: 36_000.0,
            checkpoint_seconds: 10.0,
            overlap_fraction: 0.0,
            downtime_seconds: 60.0,
            recovery_seconds: 30.0,
        };
        let keeps = |m| job(m).expect(600.0).unwrap().keeps_data_probability;
        prop_assert!(keeps(1) < keeps(2) && keeps(2) <= keeps(3) && keeps(3) <= 1.0);
        // m = 1 and a short outage: (n - 1) V / mu.
        let p = job(1).loss_probability_per_failure();
        let first = (size - 1) as f64 * 90.0 / (3600.0 * mtbf_hours);
        prop_assert!((p / first - 1.0).abs() < 0.05, "{p} {first}");
        // The best interval is not worse than any other.
        let best = job(1).best_interval_seconds().unwrap();
        let time = |i| job(1).expect(i).unwrap().time_seconds;
        prop_assert!(time(best) <= time(1.3 * best) && time(best) <= time(0.7 * best));
    }
}

#[test]
fn side_and_corner_never_save_more_than_the_whole() {
    for saved in volume::Saved::ALL {
        assert!(saved.mean_fraction_by_column() <= saved.mean_fraction_by_time());
        assert!(saved.elements(100, 37) <= volume::Saved::Whole.elements(100, 37));
        assert_eq!(saved.elements(100, 100), 10_000);
    }
}

#[test]
fn groups_that_cannot_be_are_refused() {
    for (size, parities) in [(0, 1), (1, 1), (2, 0), (2, 2), (8, 5), (7, 4)] {
        let error = Group::new(size, parities).unwrap_err();
        let group = format!("a group of {size} with {parities} parities is impossible");
        assert!(error.to_string().starts_with(&group) && error.to_string().contains("size/2"));
    }
    assert!(Group::new(8, 4).is_ok() && Group::new(2, 1).is_ok());
}

#[test]
fn numbers_out_of_range_are_named() {
    let named = |result: Result<f64, ModelError>, name: &str| {
        let error = result.unwrap_err();
        assert!(error.to_string().starts_with(name), "{error}");
    };
    named(interval::daly_seconds(-1.0, 1.0), "mtbf_seconds = -1");
    named(interval::daly_seconds(1.0, f64::NAN), "checkpoint_seconds = NaN");
    named(interval::efficiency(1.0, 1.0, -2.0), "outage_seconds = -2");
    named(with_memory(1.5, 0.5, 1.0), "efficiency_fraction = 1.5");
    named(with_memory(0.9, 0.5, 1.2), "a = 1.2");
    let network = chen::Network {
        latency_seconds: 1e-6,
        transfer_seconds_per_byte: 0.0,
        reduce_seconds_per_byte: 0.0,
    };
    named(network.chain_seconds(8, 1, 1e6, chen::Code::Sum), "transfer_seconds_per_byte = 0");
    assert!(Efficiency::fit(&[(1e4, 0.5), (1e4, 0.6)]).is_err());
    assert!(Efficiency::fit(&[(1e4, 0.8), (1e5, 0.5)]).is_err());
}
