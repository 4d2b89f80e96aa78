//! How long a test takes on a machine: by a rate that is given, an earlier run, or the model.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;

use skt_terms::units::{counted, span};

use super::{machine, plan};
use crate::report::measured;
use skt_checkpoint::checkpoint::methods::Method;
use skt_config::{At, ConfigError, RunSpec, TestSpec};
use skt_health::environment::selftest;
use skt_model::path::{Machine, RunParams, estimate_seconds};
use skt_run::job::outlook::guessed_rate;
use skt_run::protect::{GuessedRates, Outlook, Settings, guessed_schedule};
use skt_run::tuning::TUNING;
use skt_solver::blas::library;
use skt_solver::team::Team;

/// Seconds of DGEMM on all cores: long enough for a power limit of the processor to act.
const DGEMM_SECONDS: f64 = 1.0;

type Shape = (usize, (usize, usize), bool);

/// The speed of a machine, and how it is known.
#[derive(Debug, Clone)]
pub(super) struct Pace {
    /// The rate of the whole machine at every order, in Gflop/s; `None` if the model has it.
    gflops: Option<f64>,
    /// The rate of DGEMM on a core, in operations per second.
    pub(super) core_flops: f64,
    /// Seconds of a run as measured and as the model estimates them; equal without a run.
    measured_and_modelled: (f64, f64),
    /// Where the rate is from, and how sure it is.
    source: String,
    /// The model's seconds by order, grid and precision: of many ranks each takes some 10 ms.
    known: RefCell<HashMap<Shape, Option<f64>>>,
}

impl Pace {
    /// The pace of the model, with the rate of DGEMM on one core of this machine.
    pub(crate) fn measure_one_core() -> Result<Self, ConfigError> {
        let gflops = plan::core_gflops_here()?;
        let source = format!(
            "by the model, with DGEMM at {gflops:.1} Gflop/s, measured here on one core; all cores \
             together may be slower: --time measures them"
        );
        Ok(Self::from_model(1e9 * gflops, source))
    }

    fn from_model(core_flops: f64, source: String) -> Self {
        Self {
            gflops: None,
            core_flops,
            measured_and_modelled: (1.0, 1.0),
            source,
            known: RefCell::default(),
        }
    }

    /// The pace of the model, with the rate of DGEMM on up to `cores` cores of this machine at
    /// once.
    pub(crate) fn measure_all_cores(cores: usize) -> Result<Self, ConfigError> {
        library::use_one_thread();
        let cores = cores.min(machine::cores()?);
        let team = Team::new(cores, |_| ()).map_err(|why| ConfigError::Other(why.to_string()))?;
        let rates = selftest::dgemm_rates(&team, DGEMM_SECONDS);
        let rates = rates.map_err(|why| ConfigError::Other(why.to_string()))?;
        let gflops = rates.best / cores as f64;
        let mut source = format!(
            "by the model, with DGEMM at {gflops:.1} Gflop/s a core, measured here on {} at once. \
             On the machine of the model such times were off by 2 to 6 % on average; on others they \
             may be off by more: --report FILE takes the JSON report of a shorter run",
            counted(cores, "core")
        );
        if rates.cpu_share < machine::MIN_CPU_SHARE {
            let lost = 100.0 * (1.0 - rates.cpu_share);
            source += &format!(
                "\nwarning: other programs took {lost:.0} % of the cores while DGEMM was measured"
            );
        }
        Ok(Self::from_model(1e9 * gflops, source))
    }

    /// One rate for every order, in Gflop/s, of a machine with this number of cores, in a run of
    /// HPL or of HPL-MxP.
    pub(crate) fn given(gflops: f64, cores: usize, is_mxp: bool) -> Self {
        // The rate of DGEMM that a run which reaches the given rate is expected to measure.
        let over_double = if is_mxp { 2.0 } else { 1.0 };
        let core_flops = 1e9 * gflops / (cores as f64 * TUNING.test_efficiency * over_double);
        let source = format!(
            "at {gflops} Gflop/s, as given. The rate of a smaller N is lower, so a rate that was \
             measured at a larger N makes the run longer than asked for"
        );
        Self { gflops: Some(gflops), ..Self::from_model(core_flops, source) }
    }

    /// The pace of the model, as much faster or slower as a test of `spec` at the order `n` that
    /// took `seconds`; its rate at every order, if the model has no time for that number of ranks.
    pub(crate) fn from_test(spec: &RunSpec, n: usize, seconds: f64) -> Self {
        let (p, q) = spec.grids[0];
        let gflops = 1e-9 * operations(n) / seconds;
        let given = Self::given(gflops, p * q * spec.threads, spec.mxp.is_some());
        let by_model = Self { gflops: None, ..given.clone() };
        match by_model.seconds_of_model(spec, n) {
            Some(modelled) => Self { measured_and_modelled: (seconds, modelled), ..by_model },
            None => given,
        }
    }

    /// The pace of the model, as much faster or slower as the largest test in the JSON report
    /// `path` on as many ranks and threads as `spec`.
    pub(crate) fn from_report(path: &Path, spec: &RunSpec) -> Result<Self, ConfigError> {
        let tests = measured::read(path).map_err(|why| ConfigError::Other(why.to_string()))?;
        let (p, q) = spec.grids[0];
        let (ranks, threads) = (p * (q + spec.checksums), spec.threads);
        let of_these = |run: &RunParams| run.p * run.q == ranks && run.threads == threads;
        let tests = tests.into_iter().filter(|test| of_these(&test.run));
        let Some(test) = tests.max_by_key(|test| test.run.n) else {
            return Err(ConfigError::Other(format!(
                "'{}' has no completed test without checkpoints (--ft none) on {ranks} rank(s) of \
                 {threads} thread(s); --ranks and --threads name those of another",
                path.display()
            )));
        };
        let core = Self::measure_one_core()?;
        let by_model = estimate_seconds(&test.run, &core.machine());
        let by_model = by_model.map_err(|why| ConfigError::Other(why.to_string()))?;
        let source = format!(
            "by the model, scaled to the {} that N = {} took in {}: the surer, the nearer that N",
            span(test.time_seconds),
            test.run.n,
            path.display()
        );
        Ok(Self { measured_and_modelled: (test.time_seconds, by_model), source, ..core })
    }

    /// Whether the test takes a checkpoint before its end, if nothing slows it down; `None` without
    /// checkpoints in memory.
    pub(crate) fn outlook(&self, test: &TestSpec, settings: &Settings) -> Option<Outlook> {
        if matches!(settings.method_for(test.ranks()), Method::None | Method::Abft) {
            return None;
        }
        let flops = guessed_rate(test, 1e-9 * self.core_flops);
        // The time after the factorization, which nothing has measured here, does not count.
        let rates = GuessedRates { flops, rank_read_bytes: f64::INFINITY };
        Some(guessed_schedule(test, settings, rates).outlook())
    }

    pub(crate) fn source(&self) -> &str {
        &self.source
    }

    fn machine(&self) -> Machine {
        Machine::ZEN4_CORE.with_core_flops(self.core_flops)
    }

    /// Seconds of the timed part of the run `spec`, with its first values, at the order `n`; `None`
    /// if the model has no time for that number of ranks.
    pub(crate) fn seconds(&self, spec: &RunSpec, n: usize) -> Option<f64> {
        if let Some(gflops) = self.gflops {
            return Some(operations(n) / (1e9 * gflops));
        }
        let mut known = self.known.borrow_mut();
        let shape = (n, spec.grids[0], spec.mxp.is_some());
        *known.entry(shape).or_insert_with(|| self.seconds_of_model(spec, n))
    }

    fn seconds_of_model(&self, spec: &RunSpec, n: usize) -> Option<f64> {
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
        let machine = match spec.mxp {
            Some(_) => self.machine().in_single_precision(),
            None => self.machine(),
        };
        let (measured, modelled) = self.measured_and_modelled;
        // In this order the measured run itself takes exactly its time: an N that fits is not
        // refused for a rounding error.
        estimate_seconds(&run, &machine).ok().map(|seconds| measured * (seconds / modelled))
    }
}

/// The operations of a test, as HPL counts them.
pub(super) fn operations(n: usize) -> f64 {
    let n = n as f64;
    n * n * (2.0 / 3.0 * n + 1.5)
}

/// The error of a time in which no run of this pace ends.
pub(super) fn too_short(limit_seconds: f64, n: usize, seconds: Option<f64>) -> ConfigError {
    let what = match seconds {
        Some(seconds) => {
            format!("{limit_seconds} s are too short: N = {n}, the smallest, takes {seconds:.3} s")
        }
        None => {
            "the model has no time for this many ranks: give --gflops, the rate of an earlier run"
                .to_owned()
        }
    };
    At::flag("--time").error(what)
}

#[cfg(test)]
mod tests {
    use skt_config::{Format, parse};

    use super::*;

    #[test]
    fn measured_run_takes_exactly_its_time() {
        let toml = b"n = 9600\nnb = 192\np = 2\nq = 2\n";
        let spec = parse(toml, "t", Format::Toml, false).unwrap().spec;
        for rate in 1..200 {
            let mut pace = Pace::from_model(1e9 * f64::from(rate) / 7.0, String::new());
            let modelled = pace.seconds_of_model(&spec, 9600).unwrap();
            pace.measured_and_modelled = (100.0, modelled);
            assert_eq!(pace.seconds(&spec, 9600), Some(100.0), "{rate}");
        }
    }
}
