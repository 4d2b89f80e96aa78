//! Fits a [`Machine`] to measured phases.
//!
//! Every phase of every run is one equation: the seconds that the mean rank spent in it, minus its
//! waits by the walk, are its counts times the unknown seconds per unit. All equations are solved
//! together by least squares with no unknown below zero (Lawson and Hanson: Solving Least Squares
//! Problems, 1974, ch. 23). An operation of the solve or of a panel is never faster than one of a
//! product: the unknown is the time that it takes beyond a product's. Waits depend on the machine,
//! so walk and solve alternate for a few rounds.
//!
//! Broadcasts are not fitted: their cost is waiting, which the walk must derive from the latency
//! and the bandwidth that pivots and row exchanges show.

use super::machine::{Counts, Machine, UNITS, Unit};
use super::{Changes, MeasuredTest, PhaseCounts, Prediction, predict};
use crate::ModelError;

/// Number of rounds of walk and solve.
const ROUNDS: usize = 6;
/// Of a run's time: seconds below it are noise; above it, an equation counts by its relative error.
const NOISE_FRACTION: f64 = 0.002;

/// Units whose operations are those of a product in less efficient shapes.
const NO_FASTER_THAN_PRODUCT: [Unit; 2] = [Unit::SolveFlop, Unit::PanelFlop];

#[derive(Debug, Clone, PartialEq)]
pub struct Fit {
    pub machine: Machine,
    /// Units that no run exercised, or whose cost was negligible: they keep the seconds of the
    /// machine that the fit began with, or are 0.
    pub unseen: Vec<Unit>,
}

/// Fits a machine to those of `runs` that used messages and had one thread per rank, because the
/// walk derives teams from the rates of one core. Units that none of them needs keep the seconds of
/// `start` (a run with P = Q = 1 has no messages to measure).
pub fn fit(runs: &[MeasuredTest], start: &Machine) -> Result<Fit, ModelError> {
    let runs: Vec<&MeasuredTest> =
        runs.iter().filter(|measured| measured.run.threads == 1 && !measured.shared).collect();
    let mut machine = *start;
    let mut unseen = Vec::new();
    for _ in 0..ROUNDS {
        let mut system = LeastSquares::default();
        for measured in &runs {
            let predicted = predict(&measured.run, &machine, &Changes::default())?;
            system.add(measured, &predicted, &machine);
        }
        (machine, unseen) = system.solve(start)?;
        if machine.product_flop_seconds <= 0.0 {
            return Err(ModelError::no_fit(
                "the runs give no rate of the trailing product; add runs with several orders and \
                 several NB",
            ));
        }
    }
    Ok(Fit { machine, unseen })
}

/// The seconds, waits and counts of the phases that are fitted.
fn phases(measured: &MeasuredTest, predicted: &Prediction) -> [(f64, f64, Counts); 4] {
    let PhaseCounts { panel, swap, update, back } = predicted.counts;
    let (seconds, model) = (&measured.mean, &predicted.mean);
    [
        (seconds.panel, model.panel, panel),
        (seconds.swap, model.swap, swap),
        (seconds.update, model.update, update),
        (seconds.back, model.back, back),
    ]
}

#[derive(Default)]
struct LeastSquares {
    rows: Vec<[f64; UNITS]>,
    wanted: Vec<f64>,
}

impl LeastSquares {
    fn add(&mut self, measured: &MeasuredTest, predicted: &Prediction, machine: &Machine) {
        for (seconds, model, counts) in phases(measured, predicted) {
            let waited = model - machine.seconds(&counts);
            let weight = 1.0 / seconds.max(NOISE_FRACTION * measured.time_seconds);
            let row = Unit::ALL.map(|unit| weight * counts.get(unit));
            self.rows.push(row);
            // Nothing is left of a phase that was shorter than its waits.
            self.wanted.push(weight * (seconds - waited).max(0.0));
        }
    }

    /// The equations whose unknowns for solve and panel are the time beyond a product's.
    fn beyond_product(&self) -> Vec<[f64; UNITS]> {
        let mut rows = self.rows.clone();
        for row in &mut rows {
            for unit in NO_FASTER_THAN_PRODUCT {
                row[Unit::ProductFlop as usize] += row[unit as usize];
            }
        }
        rows
    }

    fn solve(&self, start: &Machine) -> Result<(Machine, Vec<Unit>), ModelError> {
        let rows = self.beyond_product();
        let norms: [f64; UNITS] =
            std::array::from_fn(|j| rows.iter().map(|row| row[j] * row[j]).sum::<f64>().sqrt());
        let seen: Vec<usize> = (0..UNITS).filter(|&j| norms[j] > 0.0).collect();
        if self.rows.len() < seen.len() || seen.is_empty() {
            return Err(ModelError::no_fit(format!(
                "{} equations for {} unknowns; give reports of more runs with one thread a rank, \
                 by messages",
                self.rows.len(),
                seen.len()
            )));
        }
        let scaled: Vec<Vec<f64>> =
            rows.iter().map(|row| seen.iter().map(|&j| row[j] / norms[j]).collect()).collect();
        let solution = non_negative_least_squares(&scaled, &self.wanted);
        let mut seconds = Unit::ALL.map(|unit| start.seconds_per(unit));
        let mut unseen: Vec<Unit> =
            (0..UNITS).filter(|j| !seen.contains(j)).map(|j| Unit::ALL[j]).collect();
        for (&j, value) in seen.iter().zip(solution) {
            seconds[j] = value / norms[j];
            if value == 0.0 {
                unseen.push(Unit::ALL[j]);
            }
        }
        for unit in NO_FASTER_THAN_PRODUCT {
            if seen.contains(&(unit as usize)) {
                seconds[unit as usize] += seconds[Unit::ProductFlop as usize];
                unseen.retain(|&other| other != unit);
            }
        }
        Ok((Machine::from_seconds(seconds), unseen))
    }
}

/// Minimises `|A x - b|` over `x >= 0`; the rows of `A` are given.
fn non_negative_least_squares(a: &[Vec<f64>], b: &[f64]) -> Vec<f64> {
    let n = a.first().map_or(0, Vec::len);
    // Normal equations suffice: the columns are scaled to length 1, and n is small.
    let mut ata = vec![vec![0.0; n]; n];
    let mut atb = vec![0.0; n];
    for (row, &want) in a.iter().zip(b) {
        for i in 0..n {
            atb[i] += row[i] * want;
            for j in 0..n {
                ata[i][j] += row[i] * row[j];
            }
        }
    }
    let mut x = vec![0.0; n];
    let mut free: Vec<usize> = Vec::new();
    // Each round frees one unknown; the bound ends a cycle of rounding errors.
    for _ in 0..10 * n {
        let gradient = |j: usize| atb[j] - (0..n).map(|i| ata[j][i] * x[i]).sum::<f64>();
        let steepest = (0..n)
            .filter(|j| !free.contains(j))
            .max_by(|&i, &j| gradient(i).total_cmp(&gradient(j)));
        let Some(j) = steepest.filter(|&j| gradient(j) > 1e-12 * atb[j].abs().max(1e-300)) else {
            break;
        };
        free.push(j);
        loop {
            let solution = solve_free(&ata, &atb, &free);
            let negative = free.iter().zip(&solution).filter(|(_, z)| **z <= 0.0);
            // The step goes towards the solution as far as all unknowns stay at or above zero.
            let step = negative.map(|(&j, &z)| x[j] / (x[j] - z)).fold(1.0, f64::min);
            if step >= 1.0 && solution.iter().all(|&z| z > 0.0) {
                for (&j, &z) in free.iter().zip(&solution) {
                    x[j] = z;
                }
                break;
            }
            for (&j, &z) in free.iter().zip(&solution) {
                x[j] += step * (z - x[j]);
            }
            free.retain(|&j| x[j] > 1e-14);
            for (j, value) in x.iter_mut().enumerate() {
                if !free.contains(&j) {
                    *value = 0.0;
                }
            }
            if free.is_empty() {
                break;
            }
        }
    }
    x
}

/// Solves for the unknowns `free` with all others zero, by Gaussian elimination with pivoting.
fn solve_free(ata: &[Vec<f64>], atb: &[f64], free: &[usize]) -> Vec<f64> {
    let n = free.len();
    let mut m: Vec<Vec<f64>> =
        free.iter().map(|&i| free.iter().map(|&j| ata[i][j]).chain([atb[i]]).collect()).collect();
    for k in 0..n {
        let pivot = (k..n).max_by(|&i, &j| m[i][k].abs().total_cmp(&m[j][k].abs())).expect("a row");
        m.swap(k, pivot);
        // A column that depends on others gets zero.
        if m[k][k].abs() < 1e-13 {
            m[k].fill(0.0);
            m[k][k] = 1.0;
        }
        let (above, below) = m.split_at_mut(k + 1);
        let row = &above[k];
        for other in below {
            let factor = other[k] / row[k];
            for (value, top) in other[k..].iter_mut().zip(&row[k..]) {
                *value -= factor * top;
            }
        }
    }
    let mut x = vec![0.0; n];
    for k in (0..n).rev() {
        let sum: f64 = (k + 1..n).map(|j| m[k][j] * x[j]).sum();
        x[k] = (m[k][n] - sum) / m[k][k];
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fit_recovers_the_coefficients() {
        let a: Vec<Vec<f64>> = (0..6).map(|i| vec![1.0, f64::from(i), f64::from(i * i)]).collect();
        let b: Vec<f64> = a.iter().map(|row| 2.0 * row[0] + 0.5 * row[1] + 3.0 * row[2]).collect();
        let x = non_negative_least_squares(&a, &b);
        for (got, want) in x.iter().zip([2.0, 0.5, 3.0]) {
            assert!((got - want).abs() < 1e-9, "{x:?}");
        }
    }

    #[test]
    fn negative_coefficients_become_zero_and_the_rest_is_refitted() {
        // b falls with i, so the slope would be negative, and the constant is the mean.
        let a: Vec<Vec<f64>> = (0..5).map(|i| vec![1.0, f64::from(i)]).collect();
        let b = [5.0, 4.0, 3.0, 2.0, 1.0];
        let x = non_negative_least_squares(&a, &b);
        assert_eq!(x[1], 0.0);
        assert!((x[0] - 3.0).abs() < 1e-12, "{x:?}");
    }
}
