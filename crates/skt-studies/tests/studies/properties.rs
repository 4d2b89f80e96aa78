//! Limits, monotonicity and refusals that hold for all numbers.

use proptest::prelude::*;
use skt_model::ModelError;
use skt_model::levels::Validity;
use skt_studies::bautista;
use skt_studies::bosilca::{Application, Platform, WasteModel};
use skt_studies::tang::reliability;

fn any_model() -> impl Strategy<Value = WasteModel> {
    (
        1usize..40,
        1.0..500.0f64,
        0.0..500.0f64,
        0.0..200.0f64,
        0.0..=1.0f64,
        0.5..=1.0f64,
        1.0..2.0f64,
    )
        .prop_map(|(groups, c, r, d, alpha, lambda, rho)| WasteModel {
            groups,
            checkpoint_seconds: c,
            recovery_seconds: r,
            downtime_seconds: d,
            overlap_fraction: alpha,
            logging_speed: lambda,
            replay_speed: rho,
            growth_per_second: 0.0,
        })
}

proptest! {
    #[test]
    fn closed_form_of_the_reexecution_is_its_sum(model in any_model(), share in 1.0..50.0f64) {
        let period = model.groups as f64 * model.checkpoint_seconds * share;
        let (closed, summed) =
            (model.reexecution_seconds(period), model.reexecution_seconds_summed(period));
        prop_assert!((closed / summed - 1.0).abs() < 1e-9, "{closed} {summed}");
    }

    #[test]
    fn waste_falls_with_mtbf_to_that_of_a_run_without_failures(
        model in any_model(), share in 1.0..50.0f64, mtbf in 1e3..1e9f64,
    ) {
        let period = model.groups as f64 * model.checkpoint_seconds * share;
        prop_assert!(model.waste(period, mtbf) > model.waste(period, 2.0 * mtbf));
        let limit = model.waste(period, 1e300);
        prop_assert!((limit - model.failure_free_waste(period)).abs() < 1e-12);
        prop_assert!(model.composed_waste(period, mtbf) <= model.waste(period, mtbf) + 1e-12);
    }

    #[test]
    fn one_group_without_logging_is_equation_5(
        c in 1.0..500.0f64, r in 0.0..500.0f64, d in 0.0..500.0f64, alpha in 0.0..=1.0f64,
        share in 1.0..50.0f64, mtbf in 1e4..1e9f64,
    ) {
        let model = WasteModel::coordinated(c, r, d, alpha);
        let t = c * share;
        let equation_5 = (1.0 - alpha) * c / t + (d + r + t / 2.0 + alpha * c) / mtbf;
        prop_assert!((model.waste(t, mtbf) - equation_5).abs() < 1e-9);
    }

    #[test]
    fn units_of_time_do_not_matter(
        model in any_model(), share in 1.0..50.0f64, mtbf in 1e4..1e9f64, unit in 0.01..100.0f64,
    ) {
        let scaled = WasteModel {
            checkpoint_seconds: unit * model.checkpoint_seconds,
            recovery_seconds: unit * model.recovery_seconds,
            downtime_seconds: unit * model.downtime_seconds,
            growth_per_second: 1e-4 / unit,
            ..model
        };
        let model = WasteModel { growth_per_second: 1e-4, ..model };
        let t = model.groups as f64 * model.checkpoint_seconds * share;
        let (one, other) = (model.waste(t, mtbf), scaled.waste(unit * t, unit * mtbf));
        prop_assert!((one - other).abs() <= 1e-9 * one.abs(), "{one} {other}");
    }

    #[test]
    fn best_period_is_no_worse_than_any(model in any_model(), mtbf in 1e5..1e9f64) {
        let best = model.best_period(mtbf).unwrap();
        if let Some(at) = best.period_seconds {
            for factor in [0.5, 0.9, 1.1, 2.0] {
                let other = at * factor;
                if model.validity(other, mtbf) != Validity::NoPeriod {
                    prop_assert!(best.waste <= model.waste(other, mtbf).min(1.0) + 1e-12);
                }
            }
        } else {
            prop_assert_eq!(best.waste, 1.0);
        }
    }

    #[test]
    fn numerical_period_is_the_papers_where_that_is_admissible(
        c in 1.0..100.0f64, alpha in 0.0..0.9f64, mtbf in 1e6..1e9f64,
    ) {
        let model = WasteModel::coordinated(c, c, 0.0, alpha);
        let best = model.best_period(mtbf).unwrap();
        let young = model.young_period_seconds(mtbf);
        prop_assert!((best.period_seconds.unwrap() / young - 1.0).abs() < 1e-4);
        prop_assert_eq!(best.validity, Validity::Valid);
    }

    #[test]
    fn exact_waste_is_first_order_for_rare_failures_and_at_most_one(
        c in 1.0..100.0f64, r in 0.0..100.0f64, alpha in 0.0..=1.0f64, share in 1.0..50.0f64,
    ) {
        let model = WasteModel::coordinated(c, r, 0.0, alpha);
        let t = c * share;
        let mtbf = 1e4 * (t + r + c);
        let first = model.composed_waste(t, mtbf);
        prop_assert!((model.exact_coordinated_waste(t, mtbf) - first).abs() < 1e-7);
        let dense = model.exact_coordinated_waste(t, 0.1 * t);
        prop_assert!((0.0..=1.0).contains(&dense));
    }

    #[test]
    fn reliability_falls_with_time_and_single_is_below_self(hours in 1.0..1e4f64) {
        let at = |h: f64| reliability::Run::figure_12(3600.0 * h);
        let (one, two) = (at(hours), at(2.0 * hours));
        prop_assert!(one.success_single().unwrap() < one.success_self().unwrap());
        prop_assert!(two.success_self().unwrap() < one.success_self().unwrap());
        prop_assert_eq!(at(0.0).success_single().unwrap(), 1.0);
    }
}

#[test]
fn numbers_out_of_range_are_named() {
    let named = |result: Result<f64, ModelError>, name: &str| {
        let error = result.unwrap_err();
        assert!(error.to_string().starts_with(name), "{error}");
    };
    let run = reliability::Run { group_size: 1, ..reliability::Run::figure_12(1.0) };
    named(run.success_self(), "group_size = 1");
    let costs = bautista::Costs { cores_per_node: 0, copy_seconds: 1.0, encode_seconds: 1.0 };
    named(costs.break_even_seconds(), "cores_per_node = 0");
    let model = WasteModel::coordinated(1.0, 1.0, 0.0, 1.5);
    named(model.best_period(1.0).map(|b| b.waste), "overlap_fraction = 1.5");
    let model = WasteModel::coordinated(1.0, 1.0, 0.0, 0.5);
    named(model.best_period(0.0).map(|b| b.waste), "platform_mtbf_seconds = 0");
}

#[test]
fn validity_is_reported() {
    let model = WasteModel::coordinated(100.0, 100.0, 0.0, 0.0);
    assert_eq!(model.validity(50.0, 1e6), Validity::NoPeriod);
    assert_eq!(model.validity(1e3, 1e6), Validity::Valid);
    assert_eq!(model.validity(2e5, 1e6), Validity::FirstOrderDoubtful);
    // An application whose log grows faster than the store can write it (eq. 18).
    let slim = &Platform::EXASCALE_SLIM;
    let scenario = Application::Stencil3d.scenarios()[1];
    let logging = scenario.model(slim, Application::Stencil3d);
    assert_eq!(logging.shortest_period_seconds(), None);
    assert_eq!(logging.best_period(1e9).unwrap().validity, Validity::NoPeriod);
}
