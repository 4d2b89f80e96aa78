//! What a prediction has to reach, set before the first one was made.

use super::machines::{COFC_CORES, Processors, STELLAR, cofc};
use super::runs::{Published, published};
use crate::StudyError;

#[derive(Debug, Clone, PartialEq)]
pub struct Predicted {
    pub of: Published,
    /// The rate with equal processors, which is judged.
    pub equal_gflops: f64,
    /// The rate with the slowest processor of the time.
    pub slowest_gflops: f64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Gate {
    pub condition: &'static str,
    /// The least or largest value that passes.
    pub limit: f64,
    pub value: f64,
    pub passed: bool,
}

/// Predicts all runs on Dahu; `done` gets the number of those that are predicted.
pub(crate) fn predict_dahu(done: impl Fn(usize)) -> Result<Vec<Predicted>, StudyError> {
    let mut all = Vec::new();
    for of in published().filter(|of| of.machine == "dahu") {
        let hot = of.date == "2019-03";
        let slowest_gflops = of.on_dahu(if hot { Processors::Hot } else { Processors::Slowest })?;
        let equal_gflops = of.on_dahu(Processors::Equal)?;
        all.push(Predicted { of, equal_gflops, slowest_gflops });
        done(all.len());
    }
    Ok(all)
}

/// The runs on one node and more of a cluster, each with the rate that the model predicts from the
/// first: its cores get the DGEMM rate with which `rate` predicts that run's rate.
fn predict_from_one_node(
    machine: &str,
    cores: usize,
    rate: impl Fn(&Published, f64) -> Result<f64, StudyError>,
) -> Result<Vec<(Published, f64)>, StudyError> {
    let all: Vec<Published> = published().filter(|of| of.machine == machine).collect();
    let first = &all[0];
    let mut flops = 1e9 * first.gflops / cores as f64;
    for _ in 0..20 {
        flops *= first.gflops / rate(first, flops)?;
    }
    let predicted = |of: Published| rate(&of, flops).map(|gflops| (of, gflops));
    all.into_iter().map(predicted).collect()
}

/// The runs of the cluster "cofc", each with the rate that the model predicts from the first.
pub fn predict_cofc() -> Result<Vec<(Published, f64)>, StudyError> {
    let rate = |of: &Published, flops| of.with_a_rank_a_node(&cofc(flops), COFC_CORES);
    predict_from_one_node("cofc", COFC_CORES, rate)
}

/// The runs of the cluster "stellar", each with the rate that the model predicts from the first.
pub fn predict_stellar() -> Result<Vec<(Published, f64)>, StudyError> {
    let rate = |of: &Published, flops| of.with_a_rank_a_core(&cofc(flops), STELLAR);
    predict_from_one_node("stellar", STELLAR.ranks_per_node, rate)
}

/// By how much a predicted rate exceeds the real one, relative to that.
pub fn error(predicted_gflops: f64, real_gflops: f64) -> f64 {
    predicted_gflops / real_gflops - 1.0
}

impl Predicted {
    fn error(&self) -> f64 {
        error(self.equal_gflops, self.of.gflops)
    }
}

/// The gates, in the order in which they were set.
pub fn gates(all: &[Predicted]) -> [Gate; 4] {
    let of = |experiment: &str| {
        all.iter().filter(move |p| p.of.experiment == experiment).collect::<Vec<_>>()
    };
    let mut sizes = of("size");
    sizes.retain(|p| p.of.date == "2018-10" && p.of.run.n >= 100_000);
    let worst = sizes.iter().map(|p| p.error().abs()).fold(0.0, f64::max);
    let shapes = of("geometry");
    let real: Vec<f64> = shapes.iter().map(|p| p.of.gflops).collect();
    let predicted: Vec<f64> = shapes.iter().map(|p| p.equal_gflops).collect();
    let best_real = real.iter().copied().fold(0.0, f64::max);
    let best = shapes.iter().max_by(|a, b| a.equal_gflops.total_cmp(&b.equal_gflops));
    let lost = 1.0 - best.map_or(0.0, |p| p.of.gflops) / best_real;
    let near = of("parameters").iter().filter(|p| p.error().abs() <= 0.05).count() as f64;
    let correlation = rank_correlation(&real, &predicted);
    let gate = |condition, limit, value, passed| Gate { condition, limit, value, passed };
    [
        gate("largest error of N >= 100,000, October 2018 (%)", 5.0, 100.0 * worst, worst <= 0.05),
        gate(
            "real rate lost by the geometry predicted to be best (%)",
            2.0,
            100.0 * lost,
            lost <= 0.02,
        ),
        gate("rank correlation of the 28 geometries", 0.95, correlation, correlation >= 0.95),
        gate("of 72 combinations of parameters within 5 %", 55.0, near, near >= 55.0),
    ]
}

/// Spearman's rank correlation of two lists without equal values.
fn rank_correlation(a: &[f64], b: &[f64]) -> f64 {
    let ranks = |list: &[f64]| -> Vec<f64> {
        list.iter().map(|x| list.iter().filter(|y| *y < x).count() as f64).collect()
    };
    let n = a.len() as f64;
    let square = |(x, y): (f64, f64)| (x - y) * (x - y);
    let squares: f64 = ranks(a).into_iter().zip(ranks(b)).map(square).sum();
    1.0 - 6.0 * squares / (n * (n * n - 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rank_correlation_by_hand() {
        assert_eq!(rank_correlation(&[1.0, 5.0, 9.0], &[2.0, 3.0, 4.0]), 1.0);
        assert_eq!(rank_correlation(&[1.0, 5.0, 9.0], &[4.0, 3.0, 2.0]), -1.0);
        // Ranks 0 1 2 3 and 1 0 3 2: four differences of 1 in 4 values.
        assert_eq!(rank_correlation(&[1.0, 2.0, 3.0, 4.0], &[2.0, 1.0, 4.0, 3.0]), 0.6);
    }
}
