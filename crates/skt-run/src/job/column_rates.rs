//! The rates of process columns that the job measures itself (`--rates auto`).
//!
//! A sample is the rate of all calls of a span of time, and not of the fastest one: a limit of a
//! control group, which stops a rank between two calls, counts as a slow core does. Each span is
//! twice as long as the one before, until two samples agree on all ranks. Columns that differ by
//! less than the last two samples of a rank count as equal.

use crate::error::JobError;
use crate::protect::Chosen;
use skt_comm::{Comm, collect};
use skt_config::{EQUAL_WITHIN, RateSource, RunSpec};

/// Most samples of each rank: the last span is eight times the first.
const MAX_SAMPLES: u32 = 4;

/// The measured rates of all ranks; none if the run does not measure them.
pub(super) fn measured(spec: &RunSpec) -> &[u32] {
    spec.rates.as_ref().map_or(&[], RateSource::measured)
}

/// Whether the run measures rates, at its first start.
pub(super) fn are_measured(spec: &RunSpec) -> bool {
    matches!(spec.rates, Some(RateSource::Measured(_)))
}

/// The run with the rates of all ranks, if it measures them: those that an earlier start has kept
/// or, at the first start, those of DGEMM. `first` is this rank's first sample, in Gflop/s, and
/// `measure` takes another one, longer by the factor that it gets. Also returns a warning where the
/// samples differ too much. Collective.
pub(super) fn settle(
    world: &Comm,
    spec: &RunSpec,
    kept: Option<&Chosen>,
    first: f64,
    mut measure: impl FnMut(f64) -> Result<f64, JobError>,
) -> Result<(RunSpec, Option<String>), JobError> {
    if !are_measured(spec) {
        return Ok((spec.clone(), None));
    }
    // A run that began without rates, or with fewer ranks, has none for these: its data is compared
    // with those of this start, and refused by their name.
    if let Some(kept) = kept.filter(|kept| kept.rates.len() >= spec.max_ranks()) {
        return Ok((with_rates(spec, RateSource::Measured(kept.rates.clone())), None));
    }
    let (mut last, mut samples) = (first, 1);
    loop {
        // All at once, as in a run.
        world.barrier()?;
        let pair = [last, measure(f64::from(1 << samples))?];
        (last, samples) = (pair[1], samples + 1);
        let pairs: Vec<[f64; 2]> = collect::all_gather(world, &pair)?;
        let agree = pairs.iter().all(|&[a, b]| difference(a, b) <= EQUAL_WITHIN);
        if agree || samples == MAX_SAMPLES {
            return Ok(choose(spec, &pairs));
        }
    }
}

fn with_rates(spec: &RunSpec, rates: RateSource) -> RunSpec {
    RunSpec { rates: Some(rates), ..spec.clone() }
}

/// By what part of the larger of two rates the other one is lower.
fn difference(a: f64, b: f64) -> f64 {
    1.0 - a.min(b) / a.max(b)
}

/// The run with the rates that the last two samples of each rank show, and a warning where these
/// differ too much.
fn choose(spec: &RunSpec, pairs: &[[f64; 2]]) -> (RunSpec, Option<String>) {
    // The last span is the longest.
    let rates: Vec<f64> = pairs.iter().map(|[_, last]| *last).collect();
    let measured = with_rates(spec, RateSource::from_measured(&rates));
    let of_columns = |rates: &[f64]| {
        let slowest = rates.iter().copied().fold(f64::INFINITY, f64::min);
        rates.iter().map(|rate| difference(slowest, *rate)).fold(0.0, f64::max)
    };
    let columns = measured.tests().iter().map(|test| of_columns(&test.rates)).fold(0.0, f64::max);
    let spreads = pairs.iter().map(|&[a, b]| difference(a, b)).enumerate();
    let (rank, spread) = spreads.max_by(|a, b| a.1.total_cmp(&b.1)).expect("a rank");
    if columns == 0.0 || spread < columns {
        return (measured, None);
    }
    let warning = format!(
        "--rates auto: the rate of rank {rank} varies by {:.0} % from one measurement to the next, and \
         those of process columns differ by {:.0} %: they count as equal. Something else uses its \
         cores: end it, or give the rates in a list",
        100.0 * spread,
        100.0 * columns
    );
    let equal = RateSource::from_measured(&vec![1.0; pairs.len()]);
    (with_rates(spec, equal), Some(warning))
}

/// The rates of the process columns of the first test, as `--rates` takes them, if any are given or
/// measured.
pub(super) fn note(spec: &RunSpec) -> Option<String> {
    let source = spec.rates.as_ref()?;
    let rates = spec.tests().into_iter().next()?.rates;
    let rates: Vec<String> = rates.iter().map(f64::to_string).collect();
    let is_measured = !source.measured().is_empty();
    match (is_measured, rates.is_empty()) {
        (true, true) => Some("auto: about equal, so blocks go to process columns in turn".into()),
        (true, false) => Some(format!("auto: {}", rates.join(","))),
        (false, true) => None,
        (false, false) => Some(rates.join(",")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skt_comm::threads;
    use skt_config::{Format, parse};

    /// What two ranks with these samples settle on, how many of them they take, and the warning.
    fn settled(samples: [&[f64]; 2]) -> (Vec<f64>, usize, Option<String>) {
        settled_after(None, samples)
    }

    fn settled_after(
        kept: Option<Vec<u32>>,
        samples: [&[f64]; 2],
    ) -> (Vec<f64>, usize, Option<String>) {
        let kept = kept.map(|rates| Chosen { rates, ..Chosen::default() });
        let text = b"n = 100\nnb = 8\np = 1\nq = 2\nrates = \"auto\"\n";
        let spec = parse(text, "t", Format::Toml, false).unwrap().spec;
        let mut ranks = threads::run(2, |world| {
            let mut left = samples[world.rank()].iter().copied();
            let first = left.next().expect("a sample");
            let mut times = 1.0;
            let measure = |longer: f64| {
                times *= 2.0;
                assert_eq!(longer, times);
                Ok(left.next().expect("no more are taken"))
            };
            let (spec, warning) = settle(&world, &spec, kept.as_ref(), first, measure)?;
            let taken = samples[world.rank()].len() - left.len();
            Ok::<_, JobError>((spec.tests().remove(0).rates, taken, warning))
        });
        ranks.swap_remove(0).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn two_samples_that_agree_are_enough() {
        assert_eq!(settled([&[50.0, 50.5], &[25.0, 25.1]]), (vec![1.0, 0.5], 2, None));
        assert_eq!(settled([&[50.0, 50.5], &[50.1, 49.9]]), (vec![], 2, None));
    }

    #[test]
    fn kept_rates_of_too_few_ranks_are_not_used() {
        let samples: [&[f64]; 2] = [&[50.0, 50.5], &[25.0, 25.1]];
        for (kept, want, taken) in [
            (vec![64, 64], vec![], 1),
            (vec![64, 16, 64], vec![1.0, 0.25], 1),
            // The run began with one rank, or without rates.
            (vec![64], vec![1.0, 0.5], 2),
            (vec![], vec![1.0, 0.5], 2),
        ] {
            let settled = settled_after(Some(kept.clone()), samples);
            assert_eq!(settled, (want, taken, None), "{kept:?}");
        }
    }

    /// Something else has the core of a rank for its first sample.
    #[test]
    fn a_disturbed_sample_is_taken_again() {
        let steady = [50.0, 50.0, 50.0];
        assert_eq!(settled([&steady, &[25.0, 50.0, 50.2]]), (vec![], 3, None));
    }

    #[test]
    fn ranks_that_vary_by_more_than_columns_differ_count_as_equal() {
        let (rates, taken, warning) = settled([&[50.0; 4], &[30.0, 48.0, 25.0, 40.0]]);
        assert_eq!((rates, taken), (vec![], 4));
        let warning = warning.expect("a warning");
        assert!(warning.contains("rank 1 varies by 38 %"), "{warning}");
        assert!(warning.contains("differ by 20 %: they count as equal"), "{warning}");
    }

    /// Columns differ by more than any rank varies.
    #[test]
    fn ranks_that_vary_less_have_their_last_rate() {
        let settled = settled([&[50.0; 4], &[23.0, 27.0, 23.0, 25.0]]);
        assert_eq!(settled, (vec![1.0, 0.5], 4, None));
    }
}
