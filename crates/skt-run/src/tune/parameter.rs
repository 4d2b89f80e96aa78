//! The parameters that `tune` tries, and their values.

use skt_host::named;

use crate::protect::MAX_MEMBERS;
use crate::record::ROWS_IN_HALVES;
use skt_config::{Bcast, Fact, RunSpec, Swap, TestSpec};

/// A parameter that is tuned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parameter {
    /// P x Q
    Grid,
    Nb,
    Depth,
    Nbmin,
    Rfact,
    Pfact,
    /// SWAP and its threshold
    Swap,
    Bcast,
}

// The order of tuning: parameters with the largest effect come first, as time may run out, and each
// comes before those that depend on it.
named!(Parameter {
    Grid: "grid",
    Nb: "nb",
    Depth: "depth",
    Nbmin: "nbmin",
    Rfact: "rfact",
    Pfact: "pfact",
    Swap: "swap",
    Bcast: "bcast",
});

/// The blocking factors that are tried.
const NBS: [usize; 6] = [96, 128, 160, 192, 224, 256];
/// The blocking factors that are tried for HPL-MxP. A float takes half the cache of a double, and a
/// panel without pivoting costs little, so larger ones are fast.
const NBS_OF_MXP: [usize; 7] = [128, 192, 256, 320, 384, 512, 768];
/// The values of NBMIN that are tried.
const NBMINS: [usize; 4] = [2, 4, 8, 16];
/// The depths of look-ahead that are tried.
const DEPTHS: [usize; 3] = [0, 1, 2];
/// The row exchanges that are tried. With mix, the threshold also decides how many columns are
/// exchanged by halves.
const SWAPS: [(Swap, usize); 5] = [
    (Swap::Mix, 64),
    (Swap::Mix, 128),
    (Swap::Mix, 256),
    (Swap::BinaryExchange, 64),
    (Swap::SpreadRoll, 64),
];

impl Parameter {
    /// The parameters that have an effect in tests such as `test`, in the order of tuning.
    pub fn all_of(test: &TestSpec) -> impl Iterator<Item = Self> {
        let is_mxp = test.mxp.is_some();
        Self::ALL.into_iter().filter(move |parameter| !is_mxp || parameter.is_of_mxp())
    }

    /// Whether the parameter has an effect in HPL-MxP, whose panels are factored without pivoting
    /// and in one way.
    pub fn is_of_mxp(self) -> bool {
        !matches!(self, Self::Nbmin | Self::Rfact | Self::Pfact)
    }

    /// The flags that set all parameters to their values in a test.
    pub(crate) fn all_flags(test: &TestSpec) -> String {
        let flags: Vec<String> =
            Self::all_of(test).map(|parameter| parameter.flags(test)).collect();
        flags.join(" ")
    }

    /// The parameter's value in a test, in words without blanks.
    pub fn shown(self, test: &TestSpec) -> String {
        match self {
            Self::Grid => format!("{}x{}", test.p, test.q),
            Self::Nb => test.nb.to_string(),
            Self::Depth => test.depth.to_string(),
            Self::Nbmin => test.nbmin.to_string(),
            Self::Rfact => test.rfact.name().to_owned(),
            Self::Pfact => test.pfact.name().to_owned(),
            Self::Swap if test.swap == Swap::Mix => format!("mix:{}", test.swap_threshold),
            Self::Swap => test.swap.name().to_owned(),
            Self::Bcast => test.bcast.name().to_owned(),
        }
    }

    /// The flags that set the parameter to its value in a test.
    pub(crate) fn flags(self, test: &TestSpec) -> String {
        match self {
            Self::Grid => format!("--p {} --q {}", test.p, test.q),
            Self::Swap => {
                format!("--swap {} --swap-threshold {}", test.swap.name(), test.swap_threshold)
            }
            other => format!("--{} {}", other.name(), other.shown(test)),
        }
    }

    /// Why the values of the parameter make no difference to tests such as `test`, if so.
    /// `by_messages` lists the data that goes from rank to rank by messages in them.
    pub(crate) fn is_idle(self, test: &TestSpec, by_messages: &[String]) -> Option<&'static str> {
        let goes = |what: &str| by_messages.iter().any(|sent| sent == what);
        match self {
            Self::Bcast if test.q + test.checksums == 1 => Some("there is one process column"),
            Self::Bcast if !goes("panels") => Some("panels are not sent by messages"),
            Self::Swap if test.p == 1 => Some("there is one process row"),
            Self::Swap if !goes("rows") && !goes(ROWS_IN_HALVES) => {
                Some("rows are not sent by messages")
            }
            _ => None,
        }
    }

    /// The tests to race, which differ in this parameter. The first is `current`, with the default.
    /// If the configuration lists several values, those are tried, else ours.
    pub(crate) fn candidates(
        self,
        current: &TestSpec,
        base: &RunSpec,
        ranks: usize,
    ) -> Vec<TestSpec> {
        let test = || current.clone();
        let others: Vec<TestSpec> = match self {
            Self::Grid => {
                grids(current, base, ranks).map(|(p, q)| TestSpec { p, q, ..test() }).collect()
            }
            Self::Nb => {
                // Each process row and column should have two blocks.
                let most = current.n / (2 * current.p.max(current.q));
                let all = if current.mxp.is_some() { &NBS_OF_MXP[..] } else { &NBS };
                let ours = all.iter().copied().filter(|&nb| nb <= most);
                listed(&base.nb, ours).map(|nb| TestSpec { nb, ..test() }).collect()
            }
            Self::Depth => {
                // Checksums allow no deeper look-ahead.
                let ours = DEPTHS.into_iter().filter(|&depth| base.checksums == 0 || depth < 2);
                listed(&base.depth, ours).map(|depth| TestSpec { depth, ..test() }).collect()
            }
            Self::Nbmin => {
                listed(&base.nbmin, NBMINS).map(|nbmin| TestSpec { nbmin, ..test() }).collect()
            }
            Self::Rfact => {
                listed(&base.rfact, Fact::ALL).map(|rfact| TestSpec { rfact, ..test() }).collect()
            }
            Self::Pfact => {
                listed(&base.pfact, Fact::ALL).map(|pfact| TestSpec { pfact, ..test() }).collect()
            }
            Self::Swap => {
                let with = |(swap, swap_threshold)| TestSpec { swap, swap_threshold, ..test() };
                SWAPS.into_iter().map(with).collect()
            }
            Self::Bcast => {
                listed(&base.bcast, Bcast::ALL).map(|bcast| TestSpec { bcast, ..test() }).collect()
            }
        };
        let mut candidates = vec![test()];
        for other in others {
            let is_new = |known: &TestSpec| self.shown(known) != self.shown(&other);
            if candidates.iter().all(is_new) {
                candidates.push(other);
            }
        }
        candidates
    }
}

/// The values of the configuration, if there are several, else `ours`.
fn listed<T: Copy>(given: &[T], ours: impl IntoIterator<Item = T>) -> impl Iterator<Item = T> {
    let values: Vec<T> = if given.len() > 1 { given.to_vec() } else { ours.into_iter().collect() };
    values.into_iter()
}

/// The grids of the configuration, if there are several, else those that `ranks` ranks can form,
/// the most like that of `current` first: time may end before all have had their trial.
fn grids(current: &TestSpec, base: &RunSpec, ranks: usize) -> impl Iterator<Item = (usize, usize)> {
    let is_wide = move |width: &usize| *width > base.checksums;
    // The ranks of a process row are a group that survives the losses of its members.
    let is_legal = move |width: &usize| base.checksums == 0 || *width <= MAX_MEMBERS;
    let sides = (1..=ranks).filter(move |p| ranks.is_multiple_of(*p));
    let widths = sides.map(move |p| (p, ranks / p));
    // Each process column should have two blocks. Rows come in smaller blocks.
    let most = current.n / (2 * current.nb);
    let mut ours: Vec<_> = widths
        .filter(|(_, width)| is_wide(width) && is_legal(width))
        .map(|(p, width)| (p, width - base.checksums))
        .filter(|(_, q)| *q <= most)
        .collect();
    let distance = |p: usize| p.max(current.p) as f64 / p.min(current.p) as f64;
    ours.sort_by(|(one, _), (other, _)| distance(*one).total_cmp(&distance(*other)));
    listed(&base.grids, ours)
}

/// The run `base` with the values of `chosen` in place of its lists, except for N.
pub fn with_values(base: &RunSpec, chosen: &TestSpec) -> RunSpec {
    RunSpec {
        grids: vec![(chosen.p, chosen.q)],
        nb: vec![chosen.nb],
        depth: vec![chosen.depth],
        nbmin: vec![chosen.nbmin],
        ndiv: vec![chosen.ndiv],
        rfact: vec![chosen.rfact],
        pfact: vec![chosen.pfact],
        bcast: vec![chosen.bcast],
        swap: chosen.swap,
        swap_threshold: chosen.swap_threshold,
        ..base.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skt_config::{Format, GemmPrecision, parse};

    fn base(text: &str) -> RunSpec {
        let text = format!("n = 4000\np = 2\nq = 3\n{text}");
        parse(text.as_bytes(), "t", Format::Toml, false).unwrap().spec
    }

    fn shown(parameter: Parameter, base: &RunSpec) -> Vec<String> {
        let current = base.tests().remove(0);
        let candidates = parameter.candidates(&current, base, 6);
        candidates.iter().map(|test| parameter.shown(test)).collect()
    }

    #[test]
    fn the_default_comes_first_and_each_value_once() {
        let base = base("nb = 200\nswap = \"binary-exchange\"\nbcast = \"long\"");
        assert_eq!(shown(Parameter::Grid, &base), ["2x3", "3x2", "1x6", "6x1"]);
        assert_eq!(shown(Parameter::Nb, &base), ["200", "96", "128", "160", "192", "224", "256"]);
        assert_eq!(shown(Parameter::Depth, &base), ["1", "0", "2"]);
        assert_eq!(shown(Parameter::Nbmin, &base), ["4", "2", "8", "16"]);
        assert_eq!(shown(Parameter::Rfact, &base), ["crout", "left", "right"]);
        assert_eq!(shown(Parameter::Bcast, &base)[0], "long");
        assert_eq!(
            shown(Parameter::Swap, &base),
            ["binary-exchange", "mix:64", "mix:128", "mix:256", "spread-roll"]
        );
    }

    #[test]
    fn hpl_mxp_has_larger_blocks_and_no_variants_of_a_panel() {
        let base = base("matrix = \"scaled\"\ngemm = \"bf16\"\nnb = 192");
        let current = base.tests().remove(0);
        let all: Vec<&str> = Parameter::all_of(&current).map(Parameter::name).collect();
        assert_eq!(all, ["grid", "nb", "depth", "swap", "bcast"]);
        assert_eq!(
            shown(Parameter::Nb, &base),
            ["192", "128", "256", "320", "384", "512"],
            "768 leaves less than two blocks to each process column"
        );
        for parameter in Parameter::ALL {
            for test in parameter.candidates(&current, &base, 6) {
                assert_eq!((test.mxp, test.checksums), (current.mxp, 0));
                assert_eq!(test.gemm, GemmPrecision::Bf16);
            }
        }
        let of_hpl = TestSpec { mxp: None, ..current.clone() };
        assert!(Parameter::all_of(&of_hpl).eq(Parameter::ALL));
        let tuned = with_values(&base, &current);
        assert_eq!((tuned.mxp, tuned.gemm), (base.mxp, GemmPrecision::Bf16));
    }

    #[test]
    fn lists_of_the_configuration_are_tried_instead() {
        let base =
            RunSpec { grids: vec![(2, 3), (1, 6)], ..base("nb = [100, 300]\ndepth = [2, 0]") };
        assert_eq!(shown(Parameter::Nb, &base), ["100", "300"]);
        assert_eq!(shown(Parameter::Depth, &base), ["2", "0"]);
        assert_eq!(shown(Parameter::Grid, &base), ["2x3", "1x6"]);
    }

    #[test]
    fn blocks_are_not_too_large_for_the_order() {
        let base = RunSpec { n: vec![800], ..base("nb = 32") };
        assert_eq!(shown(Parameter::Nb, &base), ["32", "96", "128"]);
    }

    #[test]
    fn grids_of_many_ranks_begin_next_to_the_default() {
        let base = RunSpec { n: vec![67_000], grids: vec![(100, 100)], ..base("nb = 192") };
        let current = base.tests().remove(0);
        let candidates = Parameter::Grid.candidates(&current, &base, 10_000);
        let grids: Vec<_> = candidates.iter().map(|test| (test.p, test.q)).collect();
        assert_eq!(grids[..3], [(100, 100), (80, 125), (125, 80)]);
        assert!(grids[1..].iter().all(|(_, q)| *q <= 174), "{grids:?}");
        assert_eq!(grids.last(), Some(&(10_000, 1)));
    }

    #[test]
    fn checksums_bound_grid_and_depth() {
        let base = RunSpec { checksums: 1, grids: vec![(2, 2)], ..base("") };
        assert_eq!(shown(Parameter::Grid, &base), ["2x2", "3x1", "1x5"]);
        assert_eq!(shown(Parameter::Depth, &base), ["1", "0"]);
    }

    #[test]
    fn parameters_without_messages_are_idle() {
        let test = base("").tests().remove(0);
        let sent = |what: &[&str]| what.iter().map(|what| what.to_string()).collect::<Vec<_>>();
        for (parameter, what) in [(Parameter::Bcast, "panels"), (Parameter::Swap, ROWS_IN_HALVES)] {
            assert!(parameter.is_idle(&test, &sent(&["other"])).is_some());
            assert_eq!(parameter.is_idle(&test, &sent(&[what])), None);
            let alone = TestSpec { p: 1, q: 1, ..test.clone() };
            assert!(parameter.is_idle(&alone, &sent(&[what])).unwrap().contains("one process"));
        }
        let with_checksums = TestSpec { q: 1, checksums: 1, ..test.clone() };
        assert_eq!(Parameter::Bcast.is_idle(&with_checksums, &sent(&["panels"])), None);
        assert_eq!(Parameter::Nb.is_idle(&test, &[]), None);
    }

    #[test]
    fn n_stays_and_chosen_values_survive_a_round_trip() {
        let base = base("nb = [100, 300]");
        let mut chosen = base.tests().remove(1);
        (chosen.n, chosen.depth, chosen.swap) = (500, 0, Swap::SpreadRoll);
        let spec = with_values(&base, &chosen);
        assert_eq!((spec.n.clone(), spec.test_count()), (vec![4000], 1));
        assert_eq!(spec.tests(), [TestSpec { n: 4000, ..chosen }]);
    }
}
