//! How long a test takes on a machine: by the model, scaled to a run where one was measured.

use std::error::Error;

use skt_host::units::counted;

use super::machine;
use skt_checkpoint::checkpoint::methods::Method;
use skt_config::{ConfigError, RunSpec, TestSpec};
use skt_health::environment::selftest;
use skt_model::path::{Machine, RunParams, estimate_seconds};
use skt_run::job::outlook::guessed_rate;
use skt_run::protect::{GuessedRates, Outlook, Settings, guessed_schedule};
use skt_run::tuning::TUNING;
use skt_solver::blas::library;
use skt_solver::team::Team;

const DGEMM_SECONDS: f64 = 0.5;
/// The share of the time for which threads that are alone on their cores have them.
const MIN_CPU_SHARE: f64 = 0.95;

pub(super) struct Measured {
    pub n: usize,
    /// From its start to its end.
    pub seconds: f64,
    pub timed_seconds: f64,
}

/// The speed of a machine. A run takes, from its start to its end,
///
/// ```text
/// W(N) = f + c N^2 + t(N),
/// ```
///
/// with f for the setup, c for generating and checking the matrix, and t(N), the timed part, by the
/// model.
#[derive(Debug, Clone)]
pub(super) struct Pace {
    /// The rate of DGEMM on a core, in operations per second.
    core_flops: f64,
    /// Seconds of the timed part; equal without a run.
    measured_and_modelled: (f64, f64),
    setup_seconds: f64,
    seconds_per_element: f64,
}

impl Pace {
    pub(super) fn by_model(core_flops: f64) -> Self {
        Self {
            core_flops,
            measured_and_modelled: (1.0, 1.0),
            setup_seconds: 0.0,
            seconds_per_element: 0.0,
        }
    }

    /// The timed part by the model alone, with the rate of DGEMM on up to `cores` cores of this
    /// machine at once; and where that is from, in words.
    pub(super) fn measure(cores: usize) -> Result<(Self, String), ConfigError> {
        let (gflops, source) = measured_gflops(cores)?;
        Ok((Self::by_model(1e9 * gflops), source))
    }

    /// The pace of two measured runs of `spec`: the model is scaled to the longer one.
    pub(super) fn measured(spec: &RunSpec, short: &Measured, longer: &Measured) -> Self {
        let untimed = |run: &Measured| (run.seconds - run.timed_seconds).max(0.0);
        let [few, many] = [short, longer].map(|run| (run.n as f64).powi(2));
        let slope =
            if many > few { (untimed(longer) - untimed(short)) / (many - few) } else { 0.0 };
        let seconds_per_element = slope.max(0.0);
        let setup_seconds = (untimed(longer) - seconds_per_element * many).max(0.0);
        let (p, q) = spec.grids[0];
        let flops = operations(longer.n) / longer.timed_seconds;
        // The rate of DGEMM that a run of this rate is expected to measure.
        let over_double = if spec.mxp.is_some() { 2.0 } else { 1.0 };
        let cores = (p * q * spec.threads) as f64;
        let by_model = Self {
            setup_seconds,
            seconds_per_element,
            ..Self::by_model(flops / (cores * TUNING.test_efficiency * over_double))
        };
        let modelled = by_model.seconds_of_model(spec, longer.n);
        Self { measured_and_modelled: (longer.timed_seconds, modelled), ..by_model }
    }

    /// Whether the test takes a checkpoint before its end, if nothing slows it down; `None` without
    /// checkpoints in memory.
    pub(super) fn outlook(&self, test: &TestSpec, settings: &Settings) -> Option<Outlook> {
        if matches!(settings.method_for(test.ranks()), Method::None | Method::Abft) {
            return None;
        }
        let flops = guessed_rate(test, 1e-9 * self.core_flops);
        // The time after the factorization, which nothing has measured here, does not count.
        let rates = GuessedRates { flops, rank_read_bytes: f64::INFINITY };
        Some(guessed_schedule(test, settings, rates).outlook())
    }

    /// Seconds of the run `spec` at the order `n` from its start to its end, as far as they are
    /// known.
    pub(super) fn whole_seconds(&self, spec: &RunSpec, n: usize) -> f64 {
        let untimed = self.setup_seconds + self.seconds_per_element * (n as f64).powi(2);
        untimed + self.seconds(spec, n)
    }

    pub(super) fn seconds(&self, spec: &RunSpec, n: usize) -> f64 {
        let (measured, modelled) = self.measured_and_modelled;
        // In this order the measured run itself takes exactly its time: an N that fits is not
        // refused for a rounding error.
        measured * (self.seconds_of_model(spec, n) / modelled)
    }

    /// Infinite where the model has no time, which no matrix in the memory of a machine reaches.
    fn seconds_of_model(&self, spec: &RunSpec, n: usize) -> f64 {
        let run = RunParams {
            threads: spec.threads,
            depth: spec.depth[0],
            bcast: spec.bcast[0],
            swap: spec.swap,
            swap_threshold: spec.swap_threshold,
            // Ranks of one host read each other's rows, without halves.
            halves: false,
            ..RunParams::new(n, spec.nb[0], spec.grids[0])
        };
        let double = Machine::ZEN4_CORE.with_core_flops(self.core_flops);
        let machine = if spec.mxp.is_some() { double.in_single_precision() } else { double };
        estimate_seconds(&run, &machine).unwrap_or(f64::INFINITY)
    }
}

/// The rate of DGEMM on a core, with up to `cores` of this machine at once; and these words.
pub(super) fn measured_gflops(cores: usize) -> Result<(f64, String), ConfigError> {
    library::use_one_thread();
    let cores = cores.min(machine::cores()?);
    let other = |why: &dyn Error| ConfigError::Other(why.to_string());
    let team = Team::new(cores, |_| ()).map_err(|why| other(&why))?;
    let rates = selftest::dgemm_rates(&team, DGEMM_SECONDS).map_err(|why| other(&why))?;
    let gflops = rates.best / cores as f64;
    let mut source = format!(
        "DGEMM: {gflops:.1} Gflop/s a core, measured here on {} at once",
        counted(cores, "core")
    );
    if rates.cpu_share < MIN_CPU_SHARE {
        let lost = 100.0 * (1.0 - rates.cpu_share);
        source += &format!("\nwarning: other programs took {lost:.0} % of the cores during that");
    }
    Ok((gflops, source))
}

pub(super) fn operations(n: usize) -> f64 {
    let n = n as f64;
    n * n * (2.0 / 3.0 * n + 1.5)
}

#[cfg(test)]
mod tests {
    use skt_config::{Format, parse};
    use skt_solver::blas::library::blas_threads;

    use super::*;

    fn spec(p: usize, q: usize) -> RunSpec {
        let toml = format!("n = 9600\nnb = 192\np = {p}\nq = {q}\n");
        parse(toml.as_bytes(), "t", Format::Toml, false).unwrap().spec
    }

    #[test]
    fn the_rate_of_a_core_is_measured_on_one() {
        assert!(Pace::measure(1).unwrap().0.core_flops > 0.0);
        assert_eq!(blas_threads().unwrap_or(1), 1);
    }

    #[test]
    fn measured_run_takes_exactly_its_time() {
        for rate in 1..200 {
            let mut pace = Pace::by_model(1e9 * f64::from(rate) / 7.0);
            let modelled = pace.seconds_of_model(&spec(2, 2), 9600);
            pace.measured_and_modelled = (100.0, modelled);
            assert_eq!(pace.seconds(&spec(2, 2), 9600), 100.0, "{rate}");
        }
    }

    #[test]
    fn costs_of_two_runs_are_met() {
        let spec = spec(1, 2);
        let run = |n: usize, timed_seconds: f64| {
            let seconds = 0.3 + 1e-8 * (n * n) as f64 + timed_seconds;
            Measured { n, seconds, timed_seconds }
        };
        let (short, longer) = (run(960, 0.02), run(9600, 6.0));
        let costs = Pace::measured(&spec, &short, &longer);
        let of_longer = costs.whole_seconds(&spec, 9600);
        assert!((of_longer - longer.seconds).abs() < 1e-9, "{of_longer}");
        // Generating and checking grow as the square, factoring by less than the cube.
        let of_double = costs.whole_seconds(&spec, 19200);
        assert!((0.3 + 4e-8 * 9600.0 * 9600.0 + 36.0..54.0).contains(&of_double), "{of_double}");
        let alike = Pace::measured(&spec, &longer, &longer);
        assert!((alike.whole_seconds(&spec, 9600) - longer.seconds).abs() < 1e-9);
    }
}
