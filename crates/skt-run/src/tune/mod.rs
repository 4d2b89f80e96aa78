//! `tune`: finds the fastest values of a run's parameters, by short tests on the ranks of a job.
//!
//! One parameter after the other is raced (`search`), with the chosen values of those before it.
//! All combinations would be too many: the values of [`parameter`] make more than 10^4 for a grid.
//! In the order of the parameters those that depend most on each other are neighbours.

mod bench;
pub mod parameter;
mod search;
pub mod table;

use std::time::Instant;

use skt_host::units::span;

use bench::OnRanks;
use parameter::{Parameter, with_values};
pub use search::RaceVerdict;
use search::{Bench as _, Comparison, PAIRS_MIN, Race, Search};

use super::job::{JobError, JobOptions, Trials};
use super::protect::Settings;
use crate::events::RunEvents;
use crate::record::MAX_ROUNDING_RESIDUAL;
use crate::record::cores::CoreShares;
use skt_comm::Comm;
use skt_config::{RunSpec, TestSpec};
use skt_store::store::StoreKind;

/// The task of a tuning.
#[derive(Debug, Clone)]
pub struct TuningTask {
    /// The run. The first value of each list is the default.
    pub base: RunSpec,
    /// The parameters to tune.
    pub parameters: Vec<Parameter>,
    /// Order of the trials; `None`: an order at which a trial takes a sixtieth of the budget.
    pub n: Option<usize>,
    /// Seconds that the tuning may take.
    pub budget_seconds: f64,
}

/// The outcome of one parameter.
#[derive(Debug, Clone, PartialEq)]
pub enum ParameterOutcome {
    /// The parameter's values were raced.
    Raced(Race),
    /// The parameter's values make no difference.
    Idle(&'static str),
    /// No time was left.
    NotReached,
}

/// One parameter of a tuning.
#[derive(Debug, Clone, PartialEq)]
pub struct Tuned {
    pub parameter: Parameter,
    /// The parameter's values, the default first.
    pub candidates: Vec<TestSpec>,
    /// The outcome of its race.
    pub outcome: ParameterOutcome,
}

/// The result of a tuning.
#[derive(Debug, Clone, PartialEq)]
pub struct Tuning {
    /// The trial with all defaults.
    pub default: TestSpec,
    /// The trial with the chosen values: the defaults if all changes together are slower.
    pub chosen: TestSpec,
    /// The parameters, in order.
    pub parameters: Vec<Tuned>,
    /// The comparison of all chosen values with all defaults, if several values were changed and
    /// there was time.
    pub together: Option<Comparison>,
    /// Tests that have run, including those that found N.
    pub trials: usize,
    /// Trials from which other work took cores.
    pub disturbed: usize,
    /// What the one of them had that lost most.
    pub worst: Option<CoreShares>,
    /// Seconds that the tuning took.
    pub seconds: f64,
    /// Whether the trials had checkpoints or checksums.
    pub is_protected: bool,
}

/// The smallest order of a trial.
pub const N_MIN: usize = 128;
/// Trials that fit into the budget, and the least and most seconds of one: shorter trials predict
/// little about a run, and of longer ones there are too few.
const TRIALS_IN_BUDGET: f64 = 60.0;
const TRIAL_SECONDS: (f64, f64) = (0.02, 2.0);
/// The most trials that find the order.
const SIZING_TRIALS: usize = 4;
/// The factor by which the time of a trial may differ from its target.
const SIZE_TOLERANCE: f64 = 1.3;
/// Trials of the shortest decisive duel.
const DUEL_TRIALS: usize = 2 * PAIRS_MIN;
/// The residual threshold where the run has none, or one that no correct solution can meet, as each
/// trial is checked.
const THRESHOLD: f64 = 16.0;

/// Tunes on the ranks of `world`, and reports the progress to `events` on rank 0. Returns the
/// result on rank 0. Collective.
pub fn tune(
    world: &Comm,
    task: &TuningTask,
    settings: &Settings,
    options: &JobOptions,
    events: &mut dyn RunEvents,
) -> Result<Option<Tuning>, JobError> {
    let began = Instant::now();
    let store = settings.store.parse::<StoreKind>()?.open();
    let spec = first_trial(&task.base, world.size());
    let trials = Trials::open(world, &spec, settings, options, &*store)?;
    if world.rank() != 0 {
        return trials.follow().map(|()| None);
    }
    let bench = OnRanks::new(trials, began, task.budget_seconds, events);
    let mut search = Search::new(bench, task.budget_seconds, 0.0);
    let default = spec.tests().remove(0);
    let done = size(&mut search, task, &default, world.size())
        .and_then(|default| race_all(&mut search, task, default, world.size()));
    match done {
        // The other ranks wait for this rank, or for one that is lost.
        Err(error) if error.is_local() => Err(error),
        done => {
            search.bench.end()?;
            Ok(Some(done?))
        }
    }
}

/// The run of one trial with all defaults, with which the job is set up. Its order is such that
/// cores of 1 Gflop/s take a second.
fn first_trial(base: &RunSpec, ranks: usize) -> RunSpec {
    let default = base.tests().remove(0);
    let n = order_for(1e9 * (ranks * base.threads) as f64);
    let is_met = base.threshold >= MAX_ROUNDING_RESIDUAL;
    let threshold = if is_met { base.threshold } else { THRESHOLD };
    RunSpec { n: vec![n], threshold, ..with_values(base, &default) }
}

/// The order of a system that takes this number of operations, 2/3 N^3.
fn order_for(operations: f64) -> usize {
    ((1.5 * operations).cbrt() as usize).max(N_MIN)
}

/// Finds the default trial, at the order that all trials have. The trials that find it also warm up
/// caches, frequencies and connections.
fn size(
    search: &mut Search<OnRanks>,
    task: &TuningTask,
    default: &TestSpec,
    ranks: usize,
) -> Result<TestSpec, JobError> {
    let rate = search.bench.ranks.guessed_rate(default);
    search.bench.doing = "finding N";
    if let Some(n) = task.n {
        let default = TestSpec { n, ..default.clone() };
        let seconds = 2.0 / 3.0 * (n as f64).powi(3) / rate;
        let trials = DUEL_TRIALS + 1;
        let seconds_min = (trials as f64 * seconds).ceil();
        if seconds_min > task.budget_seconds {
            return Err(JobError::refused(format!(
                "--n {n}: a trial takes about {seconds:.1} s by the rate of DGEMM, and {trials} of \
                 them more than --budget: give a smaller --n, or a --budget of {seconds_min:.0}s \
                 or more"
            )));
        }
        let fits = search.bench.ranks.check_memory(&largest_run(task, &default, ranks));
        fits.map_err(JobError::refused)?;
        return match search.warm_up(&default)? {
            Some(_) => Ok(default),
            None => Err(no_time(task)),
        };
    }
    let (least, most) = TRIAL_SECONDS;
    let target_seconds = (task.budget_seconds / TRIALS_IN_BUDGET).clamp(least, most);
    // Half of the time, as the matrix is also generated, twice.
    let mut test = TestSpec { n: order_for(rate * target_seconds / 2.0), ..default.clone() };
    for sizing in 1..=SIZING_TRIALS {
        if let Err(why) = search.bench.ranks.check_memory(&largest_run(task, &test, ranks)) {
            test.n = why.largest_n.ok_or_else(|| JobError::refused(&why))?;
        }
        let took_seconds = match search.warm_up(&test)? {
            Some(seconds) => seconds,
            None if sizing == 1 => return Err(no_time(task)),
            None => break,
        };
        let off = target_seconds / took_seconds;
        if (1.0 / SIZE_TOLERANCE..SIZE_TOLERANCE).contains(&off) || sizing == SIZING_TRIALS {
            break;
        }
        test.n = ((test.n as f64 * off.cbrt().clamp(0.5, 2.0)) as usize).max(N_MIN);
    }
    Ok(test)
}

fn no_time(task: &TuningTask) -> JobError {
    let budget = span(task.budget_seconds);
    JobError::refused(format!("setting up the job took the {budget} for tuning; give more time"))
}

/// A run of tests at the order of `test` that need at least as much memory as any trial.
fn largest_run(task: &TuningTask, test: &TestSpec, ranks: usize) -> RunSpec {
    let of = |parameter: Parameter| parameter.candidates(test, &task.base, ranks);
    let is_tuned = |parameter: &Parameter| task.parameters.contains(parameter);
    let mut spec = RunSpec { n: vec![test.n], ..with_values(&task.base, test) };
    if is_tuned(&Parameter::Grid) {
        spec.grids = of(Parameter::Grid).iter().map(|test| (test.p, test.q)).collect();
    }
    if is_tuned(&Parameter::Nb) {
        spec.nb = of(Parameter::Nb).iter().map(|test| test.nb).max().into_iter().collect();
    }
    if is_tuned(&Parameter::Depth) {
        spec.depth = of(Parameter::Depth).iter().map(|test| test.depth).max().into_iter().collect();
    }
    spec
}

/// Races one parameter after the other.
fn race_all(
    search: &mut Search<OnRanks>,
    task: &TuningTask,
    default: TestSpec,
    ranks: usize,
) -> Result<Tuning, JobError> {
    let (mut chosen, mut parameters, mut changed) = (default.clone(), Vec::new(), 0);
    for &parameter in &task.parameters {
        // Reserves time to compare all chosen values with the defaults in the end.
        search.reserve(if changed > 0 { DUEL_TRIALS } else { 0 });
        let candidates = parameter.candidates(&chosen, &task.base, ranks);
        let idle = parameter.is_idle(&chosen, search.bench.by_messages(&chosen));
        let outcome = match idle {
            Some(why) => ParameterOutcome::Idle(why),
            None if candidates.len() < 2 => ParameterOutcome::Idle("there is one value"),
            None => {
                search.bench.doing = parameter.name();
                let race = search.race(&candidates)?;
                changed += usize::from(race.verdict == RaceVerdict::Better);
                chosen = candidates[race.chosen].clone();
                if race.gflops[0].is_empty() {
                    ParameterOutcome::NotReached
                } else {
                    ParameterOutcome::Raced(race)
                }
            }
        };
        parameters.push(Tuned { parameter, candidates, outcome });
    }
    search.reserve(0);
    let mut together = None;
    if changed > 1 {
        search.bench.doing = "all together";
        let race = search.race(&[default.clone(), chosen.clone()])?;
        together = race.challenger.map(|(_, comparison)| comparison);
        // Values that are faster one by one may slow each other down.
        if race.is_lost() {
            chosen = default.clone();
        }
    }
    let bench = &search.bench;
    Ok(Tuning {
        default,
        chosen,
        parameters,
        together,
        trials: bench.trials,
        disturbed: bench.disturbed,
        worst: bench.worst.clone(),
        seconds: bench.elapsed_seconds(),
        is_protected: bench.ranks.is_protected(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use skt_config::{Format, parse};

    #[test]
    fn trials_have_a_threshold_that_correct_solutions_meet() {
        for (given, of_trials) in [("16", 16.0), ("8", 8.0), ("0", 16.0), ("1e-30", 16.0)] {
            let text = format!("n = 100\np = 1\nq = 1\nthreshold = {given}\n");
            let spec = parse(text.as_bytes(), "t", Format::Toml, false).unwrap().spec;
            assert_eq!(first_trial(&spec, 1).threshold, of_trials, "{given}");
        }
    }
}
