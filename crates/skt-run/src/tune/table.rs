//! The result of tuning as text: a line for each value that was tried, and remarks after `#`.

use skt_config::{MxpMatrix, TestSpec};
use skt_host::median::{median, nonempty_median};

use super::parameter::Parameter;
use super::search::{Comparison, PAIRS_MIN, Race, RaceVerdict};
use super::{ParameterOutcome, Tuned, Tuning};

const HEAD: &str =
    "parameter  value            trials  median Gflop/s  spread %  chosen  gain %  noise %";

/// The whole text.
pub fn text(tuning: &Tuning) -> String {
    let test = &tuning.default;
    let mut text = format!(
        "# tune: {}N = {}, {} rank(s) of {} thread(s), {} trials in {:.1} s, all residuals \
         passed\n{HEAD}\n",
        test.mxp.map_or(String::new(), |matrix| mxp_words(test, matrix)),
        test.n,
        test.ranks(),
        test.threads,
        tuning.trials,
        tuning.seconds
    );
    for tuned in &tuning.parameters {
        text += &rows(tuned, tuning);
    }
    text += &remarks(tuning);
    text
}

/// The benchmark, with what distinguishes its tests from those of HPL.
fn mxp_words(test: &TestSpec, matrix: MxpMatrix) -> String {
    let mut words = format!("HPL-MxP, matrix {matrix}, ");
    words.extend(test.gemm.is_rounded().then(|| format!("gemm {}, ", test.gemm)));
    words
}

fn rows(tuned: &Tuned, tuning: &Tuning) -> String {
    let name = tuned.parameter.name();
    let kept = tuned.parameter.shown(&tuning.chosen);
    match &tuned.outcome {
        ParameterOutcome::Idle(why) => format!("# {name}: {kept} stays, as {why}\n"),
        ParameterOutcome::NotReached => format!("# {name}: {kept} stays, as no time was left\n"),
        ParameterOutcome::Raced(race) => {
            let mut rows = String::new();
            for index in 0..tuned.candidates.len() {
                rows += &row(tuned, race, index);
            }
            if race.verdict == RaceVerdict::Unfinished {
                rows += &format!("# {name}: {kept} stays, as time ended before it was decided\n");
            }
            rows
        }
    }
}

fn row(tuned: &Tuned, race: &Race, index: usize) -> String {
    let rates = &race.gflops[index];
    let dash = || "-".to_owned();
    let rate = median(rates.iter().copied()).map_or_else(dash, |rate| format!("{rate:.2}"));
    let spread = spread(rates).map_or_else(dash, |spread| format!("{:.2}", 100.0 * spread));
    let (gain, noise) = match race.challenger {
        Some((challenger, comparison)) if challenger == index => percent(&comparison),
        _ => (dash(), dash()),
    };
    format!(
        "{:<9}  {:<15}  {:>6}  {rate:>14}  {spread:>8}  {:<6}  {gain:>6}  {noise:>7}\n",
        tuned.parameter.name(),
        tuned.parameter.shown(&tuned.candidates[index]),
        rates.len(),
        if race.chosen == index { "yes" } else { "no" },
    )
}

/// Gain and noise in percent; the noise is a dash where there were too few pairs.
fn percent(comparison: &Comparison) -> (String, String) {
    let dash = || "-".to_owned();
    match comparison.pairs {
        0 => (dash(), dash()),
        1..PAIRS_MIN => (format!("{:+.2}", 100.0 * comparison.gain), dash()),
        _ => {
            (format!("{:+.2}", 100.0 * comparison.gain), format!("{:.2}", 100.0 * comparison.noise))
        }
    }
}

/// The difference of the largest and the smallest value, relative to the median.
fn spread(values: &[f64]) -> Option<f64> {
    let most = values.iter().copied().reduce(f64::max)?;
    let least = values.iter().copied().reduce(f64::min)?;
    (values.len() > 1).then(|| (most - least) / nonempty_median(values.iter().copied()))
}

fn remarks(tuning: &Tuning) -> String {
    let mut text = String::new();
    if let Some(together) = tuning.together {
        let (gain, noise) = percent(&together);
        let pairs = together.pairs;
        text +=
            &format!("# together: {gain} % over the defaults, noise {noise} %, {pairs} pairs\n");
    }
    let is_changed = tuning.chosen != tuning.default;
    let which = if is_changed { "chosen" } else { "the defaults stay" };
    text += &format!("# {which}: {}\n", Parameter::all_flags(&tuning.chosen));
    if let Some(worst) = &tuning.worst {
        text += &format!(
            "# disturbed: {} of {} trials shared their cores with other work. At worst {}\n",
            tuning.disturbed,
            tuning.trials,
            worst.words()
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::cores::{CoreShares, RankCores};
    use skt_config::{Format, GemmPrecision, parse};
    use skt_host::core_use::CoreUse;

    fn tuning() -> Tuning {
        let text = b"n = 300\nnb = 32\np = 1\nq = 2\n";
        let default = parse(text, "t", Format::Toml, false).unwrap().spec.tests().remove(0);
        let chosen = TestSpec { nb: 64, ..default.clone() };
        let race = Race {
            gflops: vec![vec![10.0, 11.0], vec![12.0], vec![]],
            chosen: 1,
            verdict: RaceVerdict::Better,
            challenger: Some((1, Comparison { gain: 0.1, noise: 0.0234, pairs: 4 })),
        };
        let nb = Tuned {
            parameter: Parameter::Nb,
            candidates: vec![
                default.clone(),
                chosen.clone(),
                TestSpec { nb: 96, ..default.clone() },
            ],
            outcome: ParameterOutcome::Raced(race),
        };
        let late = |parameter, outcome| Tuned { parameter, candidates: Vec::new(), outcome };
        let parameters = vec![
            nb,
            late(Parameter::Depth, ParameterOutcome::NotReached),
            late(Parameter::Bcast, ParameterOutcome::Idle("panels are not sent by messages")),
        ];
        let (trials, seconds) = (3, 1.25);
        let together = Some(Comparison { gain: 0.05, noise: 0.01, pairs: 6 });
        Tuning {
            default,
            chosen,
            parameters,
            together,
            trials,
            disturbed: 0,
            worst: None,
            seconds,
            is_protected: false,
        }
    }

    #[test]
    fn each_value_has_a_line_and_all_else_is_a_remark() {
        assert_eq!(
            text(&tuning()),
            "\
# tune: N = 300, 2 rank(s) of 1 thread(s), 3 trials in 1.2 s, all residuals passed
parameter  value            trials  median Gflop/s  spread %  chosen  gain %  noise %
nb         32                    2           10.50      9.52  no           -        -
nb         64                    1           12.00         -  yes     +10.00     2.34
nb         96                    0               -         -  no           -        -
# depth: 1 stays, as no time was left
# bcast: 1ringM stays, as panels are not sent by messages
# together: +5.00 % over the defaults, noise 1.00 %, 6 pairs
# chosen: --p 1 --q 2 --nb 64 --depth 1 --nbmin 4 --rfact crout --pfact right --swap mix \
--swap-threshold 64 --bcast 1ringM
"
        );
    }

    #[test]
    fn disturbed_trials_are_reported() {
        let mut tuning = tuning();
        let used = CoreUse { had_share: Some(0.4), waited_seconds: 1.0, ..CoreUse::default() };
        let rank = RankCores { host: "n1".into(), rank: 0, used };
        (tuning.disturbed, tuning.worst) = (1, CoreShares::from_ranks(&[rank]));
        let text = text(&tuning);
        let want = "\n# disturbed: 1 of 3 trials shared their cores with other work. At worst n1 \
                    rank 0 had a core for 40 % of the time";
        assert!(text.contains(want), "{text}");
    }

    /// The tuning above, with tests of HPL-MxP.
    fn mxp_tuning() -> Tuning {
        let mut tuning = tuning();
        let all = tuning.parameters.iter_mut().flat_map(|tuned| &mut tuned.candidates);
        for test in all.chain([&mut tuning.default, &mut tuning.chosen]) {
            test.mxp = Some(MxpMatrix::Scaled);
        }
        tuning
    }

    #[test]
    fn hpl_mxp_is_named_and_has_the_parameters_that_have_an_effect() {
        let text = text(&mxp_tuning());
        assert!(text.starts_with("# tune: HPL-MxP, matrix scaled, N = 300, 2 rank(s)"), "{text}");
        let values = "--p 1 --q 2 --nb 64 --depth 1 --swap mix --swap-threshold 64 --bcast 1ringM";
        assert!(text.contains(&format!("# chosen: {values}\n")), "{text}");
        let mut rounded = mxp_tuning();
        rounded.default.gemm = GemmPrecision::Bf16;
        let text = self::text(&rounded);
        assert!(text.starts_with("# tune: HPL-MxP, matrix scaled, gemm bf16, N = 300, "), "{text}");
    }

    #[test]
    fn undecided_races_are_reported() {
        let mut tuning = tuning();
        let ParameterOutcome::Raced(race) = &mut tuning.parameters[0].outcome else {
            unreachable!()
        };
        (race.chosen, race.verdict) = (0, RaceVerdict::Unfinished);
        race.challenger = Some((1, Comparison { gain: 0.1, noise: f64::INFINITY, pairs: 2 }));
        tuning.chosen = tuning.default.clone();
        let text = text(&tuning);
        assert!(text.contains("no      +10.00        -\n"), "{text}");
        assert!(text.contains("# nb: 32 stays, as time ended before it was decided\n"), "{text}");
        assert!(text.contains("# the defaults stay: --p 1 --q 2 --nb 32 "), "{text}");
    }

    #[test]
    fn changes_that_are_slower_together_are_not_chosen() {
        let mut tuning = tuning();
        tuning.chosen = tuning.default.clone();
        tuning.together = Some(Comparison { gain: -0.05, noise: 0.01, pairs: 4 });
        let text = text(&tuning);
        assert!(text.contains("# together: -5.00 % over the defaults"), "{text}");
        assert!(text.contains("# the defaults stay: --p 1 --q 2 --nb 32 "), "{text}");
    }
}
