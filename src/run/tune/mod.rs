//! `tune`: the fastest values of a run's parameters, by short tests on the ranks of a job.
//!
//! Each parameter in turn is raced ([`search`]), with the values that are chosen for those
//! before it. All combinations would be too many: the values of [`parameter`] make more than
//! 10^4 for a grid. The order takes care of what depends most on each other.

mod bench;
pub mod parameter;
pub mod search;
pub mod table;

use std::time::Instant;

use bench::OnRanks;
use parameter::{Parameter, with_values};
use search::{Comparison, LEAST_PAIRS, Race, Search, Verdict};

use super::job::{JobError, Options, Trials};
use super::protect::Settings;
use crate::checkpoint::store::StoreKind;
use crate::config::{RunSpec, TestSpec};
use crate::hpl::comm::Comm;
use crate::report::progress::Progress;

/// What is to be tuned.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The run. The first value of each list is the default.
    pub base: RunSpec,
    /// The parameters to tune.
    pub parameters: Vec<Parameter>,
    /// Order of the trials; none: one at which a trial takes a sixtieth of the budget.
    pub n: Option<usize>,
    /// Seconds that all of it may take.
    pub budget_seconds: f64,
}

/// What became of a parameter.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// Its values were raced.
    Raced(Race),
    /// Its values make no difference.
    Idle(&'static str),
    /// No time was left.
    NotReached,
}

/// A parameter that was tuned, or not.
#[derive(Debug, Clone, PartialEq)]
pub struct Tuned {
    /// The parameter.
    pub parameter: Parameter,
    /// Its values, the default first.
    pub candidates: Vec<TestSpec>,
    /// What became of it.
    pub outcome: Outcome,
}

/// What tuning came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Tuning {
    /// The trial with all defaults.
    pub default: TestSpec,
    /// The trial with the values that are chosen.
    pub chosen: TestSpec,
    /// Parameter by parameter.
    pub parameters: Vec<Tuned>,
    /// All chosen values together beside all defaults, where several were changed and there
    /// was time.
    pub together: Option<Comparison>,
    /// Tests that were run, those that found N included.
    pub trials: usize,
    /// Seconds that it took.
    pub seconds: f64,
    /// Whether the trials had checkpoints, or checksums.
    pub is_protected: bool,
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum TuneError {
    /// The job.
    #[error(transparent)]
    Job(#[from] JobError),
    /// A trial came to a wrong result.
    #[error(
        "FAILED: {why}, in a trial with {parameters}; a run with these values would be wrong, so \
         tuning ends. Is the BLAS, the memory or the network at fault?"
    )]
    Wrong {
        /// The flags that repeat it.
        parameters: String,
        /// What is wrong.
        why: String,
    },
    /// There was no time for a trial.
    #[error("--budget: setting up the job took all of it; give a longer one")]
    NoTime,
    /// A trial is too long.
    #[error(
        "--n {n}: a trial takes about {seconds:.1} s by the rate of DGEMM, and {trials} of them \
         more than --budget: give a smaller --n, or a --budget of {least_seconds:.0}s or more"
    )]
    TooLong {
        /// Order of a trial.
        n: usize,
        /// What it is thought to take.
        seconds: f64,
        /// How many are needed to decide anything.
        trials: usize,
        /// The smallest budget.
        least_seconds: f64,
    },
}

/// Smallest order of a trial.
pub const LEAST_N: usize = 128;
/// Part of the budget that a trial takes, and seconds at least and at most: shorter ones say
/// little of a run, longer ones are too few.
const TRIALS_IN_BUDGET: f64 = 60.0;
const TRIAL_SECONDS: (f64, f64) = (0.02, 2.0);
/// Trials that find the order.
const SIZING_TRIALS: usize = 4;
/// How far a trial may be from the seconds that it is to take.
const SIZE_TOLERANCE: f64 = 1.3;
/// Trials of the shortest duel that decides.
const DUEL_TRIALS: usize = 2 * LEAST_PAIRS;
/// Residual threshold where the run has none: each trial is checked.
const THRESHOLD: f64 = 16.0;

/// Tunes on the ranks of `world`; the result is known on rank 0. Collective.
///
/// # Errors
/// On all ranks where the job is refused or a rank is lost; on rank 0 where a trial is wrong.
pub fn tune<C: Comm>(
    world: &C,
    plan: &Plan,
    settings: &Settings,
    options: &Options,
) -> Result<Option<Tuning>, TuneError> {
    let began = Instant::now();
    let store = settings.store.parse::<StoreKind>().map_err(JobError::from)?.open();
    let spec = first_trial(&plan.base, world.size());
    let trials = Trials::open(world, &spec, settings, options, &*store)?;
    if world.rank() != 0 {
        return Ok(trials.follow().map(|()| None)?);
    }
    let progress = Progress::stderr(options.progress);
    let bench = OnRanks::new(trials, began, plan.budget_seconds, progress);
    let mut search = Search::new(bench, plan.budget_seconds, 0.0);
    let default = spec.tests().remove(0);
    let done = size(&mut search, plan, &default, world.size())
        .and_then(|default| race_all(&mut search, plan, default, world.size()));
    match done {
        // The others wait for this rank, or for one that is gone.
        Err(TuneError::Job(error)) if error.is_known_here_alone() => Err(error.into()),
        done => {
            search.bench.end()?;
            Ok(Some(done?))
        }
    }
}

/// The run of one trial with all defaults, of an order that says whether the job can be set
/// up: a second's work of slow cores.
fn first_trial(base: &RunSpec, ranks: usize) -> RunSpec {
    let default = base.tests().remove(0);
    let n = order_for(1e9 * (ranks * base.threads) as f64);
    let threshold = if base.threshold > 0.0 { base.threshold } else { THRESHOLD };
    RunSpec { n: vec![n], threshold, ..with_values(base, &default) }
}

/// The order of a system of so many operations: 2/3 N^3.
fn order_for(operations: f64) -> usize {
    ((1.5 * operations).cbrt() as usize).max(LEAST_N)
}

/// The default trial at the order that all trials have. The trials that find it also warm up
/// caches, frequencies and connections.
fn size<C: Comm>(
    search: &mut Search<OnRanks<C>>,
    plan: &Plan,
    default: &TestSpec,
    ranks: usize,
) -> Result<TestSpec, TuneError> {
    let rate = search.bench.guessed_rate(default);
    search.bench.now("finding N");
    if let Some(n) = plan.n {
        let default = TestSpec { n, ..default.clone() };
        let seconds = 2.0 / 3.0 * (n as f64).powi(3) / rate;
        let trials = DUEL_TRIALS + 1;
        let least_seconds = (trials as f64 * seconds).ceil();
        if least_seconds > plan.budget_seconds {
            return Err(TuneError::TooLong { n, seconds, trials, least_seconds });
        }
        let fits = search.bench.fits(&most_memory(plan, &default, ranks));
        fits.map_err(|why| JobError::Refused(why.to_string()))?;
        return match search.warm_up(&default)? {
            Some(_) => Ok(default),
            None => Err(TuneError::NoTime),
        };
    }
    let (least, most) = TRIAL_SECONDS;
    let target_seconds = (plan.budget_seconds / TRIALS_IN_BUDGET).clamp(least, most);
    // Half of it, as the matrix is also made, twice.
    let mut test = TestSpec { n: order_for(rate * target_seconds / 2.0), ..default.clone() };
    for sizing in 1..=SIZING_TRIALS {
        if let Err(why) = search.bench.fits(&most_memory(plan, &test, ranks)) {
            test.n = why.largest_n.ok_or_else(|| JobError::Refused(why.to_string()))?;
        }
        let took_seconds = match search.warm_up(&test)? {
            Some(seconds) => seconds,
            None if sizing == 1 => return Err(TuneError::NoTime),
            None => break,
        };
        let off = target_seconds / took_seconds;
        if (1.0 / SIZE_TOLERANCE..SIZE_TOLERANCE).contains(&off) || sizing == SIZING_TRIALS {
            break;
        }
        test.n = ((test.n as f64 * off.cbrt().clamp(0.5, 2.0)) as usize).max(LEAST_N);
    }
    Ok(test)
}

/// A run of tests at the order of `test` that need at least as much memory as any trial.
fn most_memory(plan: &Plan, test: &TestSpec, ranks: usize) -> RunSpec {
    let of = |parameter: Parameter| parameter.candidates(test, &plan.base, ranks);
    let is_tuned = |parameter: &Parameter| plan.parameters.contains(parameter);
    let mut spec = RunSpec { n: vec![test.n], ..with_values(&plan.base, test) };
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

/// Races parameter after parameter.
fn race_all<C: Comm>(
    search: &mut Search<OnRanks<C>>,
    plan: &Plan,
    default: TestSpec,
    ranks: usize,
) -> Result<Tuning, TuneError> {
    let (mut chosen, mut parameters, mut changed) = (default.clone(), Vec::new(), 0);
    for &parameter in &plan.parameters {
        // What is chosen together is to be compared in the end.
        search.reserve(if changed > 0 { DUEL_TRIALS } else { 0 });
        let candidates = parameter.candidates(&chosen, &plan.base, ranks);
        let idle = parameter.is_idle(&chosen, search.bench.by_messages(&chosen));
        let outcome = match idle {
            Some(why) => Outcome::Idle(why),
            None if candidates.len() < 2 => Outcome::Idle("there is one value"),
            None => {
                search.bench.now(parameter.name());
                let race = search.race(&candidates)?;
                changed += usize::from(race.verdict == Verdict::Better);
                chosen = candidates[race.chosen].clone();
                match race.gflops[0].is_empty() {
                    true => Outcome::NotReached,
                    false => Outcome::Raced(race),
                }
            }
        };
        parameters.push(Tuned { parameter, candidates, outcome });
    }
    search.reserve(0);
    let mut together = None;
    if changed > 1 {
        search.bench.now("all together");
        let race = search.race(&[default.clone(), chosen.clone()])?;
        together = race.challenger.map(|(_, comparison)| comparison);
    }
    let bench = &search.bench;
    Ok(Tuning {
        default,
        chosen,
        parameters,
        together,
        trials: bench.trials(),
        seconds: bench.seconds(),
        is_protected: bench.is_protected(),
    })
}
