//! From results to verdicts: a pure function.
//!
//! A node is judged alone (residuals, pivots, x of the rounds without others, errors that its
//! memory reported), then against the nodes of its kind: x by majority, bit for bit; rates against
//! their median. Then the systems that several nodes solved together, and the links, are judged,
//! and
//! [`blame`] finds the node that explains what is bad there. A node is named only where the results
//! leave no other explanation; where two differ and nothing decides, both get the verdict `differ`.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use skt_host::median::{median, nonempty_median};
use skt_host::named;

use super::results::{NodeKind, Pair, Results, SLOW_LINK, ScreenedNode, Solve, sound_rate};
use skt_health::slow::alike::Alike;
use skt_health::slow::blame::{NodeGroup, blame};

/// The least share by which a node is slower than its kind to be called slow. Sound nodes of one
/// model differ by less: under a limit of power, by up to some 5 % with the quality of their chips.
pub const TOLERANCE: f64 = 0.1;
/// The least share for links and memory: the route, the page that comes first and the size of pages
/// change such rates by more than sound processors differ.
const WIDE_TOLERANCE: f64 = 0.5;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostState {
    Ok,
    /// The node computes, reads its memory or reaches the others more slowly than its kind.
    Slow,
    /// The node's result differs from that of others, or its pair has none, and the fault cannot be
    /// attributed.
    Differ,
    Wrong,
    /// The node gives no answer, or it is why its pairs give none.
    Unreachable,
}

named!(HostState {
    Ok: "ok",
    Slow: "slow",
    Differ: "differ",
    Wrong: "wrong",
    Unreachable: "unreachable",
});

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostVerdict {
    pub state: HostState,
    /// What was found, the worst first; empty if nothing was.
    pub reasons: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Verdicts {
    /// One for each of [`Results::nodes`].
    pub hosts: Vec<HostVerdict>,
    /// Pairs whose link is slow while the nodes at both ends are not at fault, as indices into
    /// [`Results::pairs`], with the reason.
    pub links: Vec<(usize, String)>,
    /// Pairs without a result although both nodes answered to the end.
    pub missing: Vec<usize>,
}

impl Verdicts {
    /// Whether no host and no link is bad, and each pair that could solve its system has done so.
    pub fn are_all_ok(&self) -> bool {
        let are_all_here = self.links.is_empty() && self.missing.is_empty();
        are_all_here && self.hosts.iter().all(|host| host.state == HostState::Ok)
    }
}

/// A rate in which nodes of a kind are compared.
struct Measure {
    what: &'static str,
    unit: &'static str,
    least_tolerance: f64,
    rate: fn(&ScreenedNode) -> Option<f64>,
}

/// DGEMM of a moment counts only where no system was solved.
const DGEMM: &str = "DGEMM";
const MEASURES: [Measure; 3] = [
    Measure { what: "Linpack", unit: "Gflop/s", least_tolerance: 0.0, rate: rate_of },
    Measure {
        what: DGEMM,
        unit: "Gflop/s",
        least_tolerance: 0.0,
        rate: |node| sound_rate(node.rates.dgemm_gflops),
    },
    Measure {
        what: "its memory",
        unit: "GB/s",
        least_tolerance: WIDE_TOLERANCE,
        rate: |node| sound_rate(node.rates.memory_gigabytes_a_second),
    },
];

struct Found<'a> {
    results: &'a Results,
    by_node: Vec<Vec<(HostState, String)>>,
}

/// Judges the results; `tolerance` is the least share by which a slow node is slower than its kind.
pub fn judge(results: &Results, tolerance: f64) -> Verdicts {
    let mut found = Found { results, by_node: vec![Vec::new(); results.nodes.len()] };
    for (index, node) in results.nodes.iter().enumerate() {
        for reason in wrong_by_itself(node) {
            found.add(index, HostState::Wrong, reason);
        }
    }
    found.by_majority();
    for measure in &MEASURES {
        found.by_rate(measure, tolerance.max(measure.least_tolerance));
    }
    found.lost();
    found.by_pairs();
    let links = found.by_links(tolerance.max(WIDE_TOLERANCE));
    let missing = found.by_missing(&links);
    let hosts = found.by_node.into_iter().map(|mut of_node| {
        of_node.sort_by_key(|(state, _)| std::cmp::Reverse(*state));
        let state = of_node.first().map_or(HostState::Ok, |(state, _)| *state);
        HostVerdict { state, reasons: of_node.into_iter().map(|(_, reason)| reason).collect() }
    });
    Verdicts { hosts: hosts.collect(), links, missing }
}

impl<'a> Found<'a> {
    fn add(&mut self, node: usize, state: HostState, reason: String) {
        self.by_node[node].push((state, reason));
    }

    fn is(&self, node: usize, state: HostState) -> bool {
        self.by_node[node].iter().any(|(found, _)| *found == state)
    }

    fn nodes_that_are(&self, states: &[HostState]) -> BTreeSet<usize> {
        let is = |node: &usize| states.iter().any(|state| self.is(*node, *state));
        (0..self.by_node.len()).filter(is).collect()
    }

    fn name(&self, node: usize) -> &'a str {
        &self.results.nodes[node].host
    }

    /// What the nodes of each kind have of something, by their indices. A node whose result is
    /// wrong may report wrong rates, too: it is no measure of others.
    fn by_kind<T>(&self, of: impl Fn(&'a ScreenedNode) -> Option<T>) -> Vec<Vec<(usize, T)>> {
        let mut kinds: BTreeMap<&NodeKind, Vec<(usize, T)>> = BTreeMap::new();
        for (index, node) in self.results.nodes.iter().enumerate() {
            if let (Some(kind), Some(it), false) =
                (&node.kind, of(node), self.is(index, HostState::Wrong))
            {
                kinds.entry(kind).or_default().push((index, it));
            }
        }
        kinds.into_values().collect()
    }

    /// Compares x among the nodes of each kind; the majority decides.
    fn by_majority(&mut self) {
        for votes in self.by_kind(|node| x_of(&node.solves)) {
            let (majority, all) = (majority(&votes), votes.len());
            for &(index, x) in &votes {
                match majority {
                    Some((most, _)) if x == most => {}
                    Some((_, count)) => {
                        let why = format!("its x differs from that of {count} of {all} like it");
                        self.add(index, HostState::Wrong, why);
                    }
                    None => {
                        let other = votes.iter().find(|(_, other)| *other != x);
                        let other = self.name(other.expect("they differ").0);
                        let why =
                            format!("its x differs from that of {other}: unknown which is right");
                        self.add(index, HostState::Differ, why);
                    }
                }
            }
        }
    }

    fn by_rate(&mut self, Measure { what, unit, rate, .. }: &Measure, tolerance: f64) {
        for of_kind in self.by_kind(rate) {
            let rates: Vec<f64> = of_kind.iter().map(|(_, rate)| *rate).collect();
            let Some(alike) = Alike::from_rates(&rates) else { continue };
            for (index, rate) in of_kind {
                let counts = *what != DGEMM || self.results.nodes[index].solves.is_empty();
                if counts && alike.is_slow(rate, tolerance) {
                    let why = format!("{what}: {}", compared(rate, &alike, unit, "like it"));
                    self.add(index, HostState::Slow, why);
                }
            }
        }
    }

    /// Nodes that stopped answering. One that is slow and has answered so far was too slow for the
    /// limit of time.
    fn lost(&mut self) {
        for (index, node) in self.results.nodes.iter().enumerate() {
            let is_slow = self.is(index, HostState::Slow);
            let state = if is_slow { HostState::Slow } else { HostState::Unreachable };
            node.lost.iter().for_each(|why| self.add(index, state, why.clone()));
        }
    }

    /// Judges systems that pairs of nodes solved. A system with a node that is known to be
    /// wrong is no evidence about its partners, so each node that is named may decide a further
    /// vote.
    fn by_pairs(&mut self) {
        let mut known = self.nodes_that_are(&[HostState::Wrong]);
        loop {
            let is_left = |pair: &&Pair| !pair.nodes.iter().any(|node| known.contains(node));
            let left: Vec<&Pair> = self.results.pairs.iter().filter(is_left).collect();
            let (wrong, open) = wrong_pairs(self.results, &left);
            // Systems without a result, or without a majority, neither clear nor blame.
            let is_evidence = |index: &usize| left[*index].solve.is_some() && !open.contains(index);
            let evidence: Vec<usize> = (0..left.len()).filter(is_evidence).collect();
            let group = |index: &usize| NodeGroup {
                nodes: &left[*index].nodes,
                is_bad: wrong.contains_key(index),
            };
            let groups: Vec<NodeGroup> = evidence.iter().map(group).collect();
            let blamed = blame(&groups, &BTreeSet::new());
            for (&node, of_node) in &blamed.nodes {
                let (bad, why) = (of_node.bad.len(), &wrong[&evidence[of_node.bad[0]]]);
                let why =
                    format!("wrong together with others {bad} of {} times: {why}", of_node.of);
                self.add(node, HostState::Wrong, why);
            }
            if blamed.nodes.is_empty() {
                let unexplained = blamed.unexplained.iter().map(|&index| evidence[index]);
                for index in unexplained.chain(open) {
                    let why = wrong.get(&index).map_or(OPEN, String::as_str);
                    self.differ(left[index].nodes, why);
                }
                return;
            }
            known.extend(blamed.nodes.into_keys());
        }
    }

    /// Records that one of these nodes is wrong, where the results do not show which.
    fn differ(&mut self, nodes: [usize; 2], why: &str) {
        let [a, b] = nodes.map(|node| self.name(node));
        let why = format!("{a}, {b} together: {why}: unknown which of them");
        nodes.into_iter().for_each(|node| self.add(node, HostState::Differ, why.clone()));
    }

    /// Judges the links. Returns the slow ones that no node explains.
    fn by_links(&mut self, tolerance: f64) -> Vec<(usize, String)> {
        let pairs = &self.results.pairs;
        let rates: Vec<f64> = pairs.iter().filter_map(Pair::rate).collect();
        // Two links are not known to be of one kind.
        let alike = Alike::from_rates(&rates).filter(|alike| alike.count > 2);
        let is_slow = |(pair, at_once): (&Pair, Option<f64>)| {
            pair.rate().is_none_or(|rate| {
                alike.is_some_and(|alike| alike.is_slow(rate, tolerance))
                    && at_once.is_none_or(|median| rate < median * (1.0 - tolerance))
            })
        };
        let slow = pairs.iter().zip(medians_at_once(pairs)).map(is_slow);
        let group = |(pair, is_bad): (&'a Pair, bool)| NodeGroup { nodes: &pair.nodes, is_bad };
        let groups: Vec<NodeGroup> = pairs.iter().zip(slow).map(group).collect();
        let words = |pair: usize| match (pairs[pair].rate(), alike) {
            (None, _) => "no data comes through".to_owned(),
            (Some(rate), None) => gigabytes(rate),
            (Some(rate), Some(alike)) => compared(rate, &alike, "GB/s", "links"),
        };
        let blamed = blame(&groups, &self.nodes_that_are(&[HostState::Unreachable]));
        for (node, of_node) in blamed.nodes {
            let first = of_node.bad[0];
            let [a, b] = pairs[first].nodes;
            let other = self.name(if a == node { b } else { a });
            let (count, of, words) = (of_node.bad.len(), of_node.of, words(first));
            let why = format!("{count} of its {of} links are slow; to {other}: {words}");
            self.add(node, HostState::Slow, why);
        }
        blamed.unexplained.into_iter().map(|index| (index, words(index))).collect()
    }

    /// Judges systems that have no result, unless the link is `slow`. Returns the pairs without a
    /// result of which no node is lost.
    fn by_missing(&mut self, slow: &[(usize, String)]) -> Vec<usize> {
        let Results { nodes, pairs, .. } = self.results;
        let is_explained = |index: usize| {
            pairs[index].lost.as_deref() == Some(SLOW_LINK)
                || slow.iter().any(|(link, _)| *link == index)
        };
        let is_evidence = |index: &usize| pairs[*index].solve.is_some() || !is_explained(*index);
        let evidence: Vec<&Pair> =
            (0..pairs.len()).filter(is_evidence).map(|index| &pairs[index]).collect();
        let group =
            |pair: &&'a Pair| NodeGroup { nodes: &pair.nodes, is_bad: pair.solve.is_none() };
        let groups: Vec<NodeGroup> = evidence.iter().map(group).collect();
        let known =
            self.nodes_that_are(&[HostState::Slow, HostState::Wrong, HostState::Unreachable]);
        let blamed = blame(&groups, &known);
        for (node, of_node) in blamed.nodes {
            let (bad, of, why) =
                (of_node.bad.len(), of_node.of, why_missing(evidence[of_node.bad[0]]));
            let why = format!("no result with others {bad} of {of} times: {why}");
            self.add(node, HostState::Unreachable, why);
        }
        for pair in blamed.unexplained.into_iter().map(|index| evidence[index]) {
            self.differ(pair.nodes, &format!("no result: {}", why_missing(pair)));
        }
        let is_missing = |index: &usize| {
            let Pair { nodes: ends, solve, .. } = &pairs[*index];
            solve.is_none() && ends.iter().all(|&node| nodes[node].lost.is_none())
        };
        (0..pairs.len()).filter(is_missing).collect()
    }
}

pub(crate) fn why_missing(pair: &Pair) -> &str {
    pair.lost.as_deref().unwrap_or("its first node reported none")
}

/// A rate next to that of others.
fn compared(rate: f64, alike: &Alike, unit: &str, others: &str) -> String {
    let Alike { count, reference, .. } = *alike;
    let of = if count > 2 { "the median" } else { "the faster one" };
    let (share, rate, reference) = (100.0 * rate / reference, digits(rate), digits(reference));
    format!("{rate} {unit}, {share:.0} % of {reference}, {of} of {count} {others}")
}

/// For each link the median of the links that were measured at the same time, if there are three or
/// more. What makes most of them slow at once, such as another job, is in no link.
fn medians_at_once(pairs: &[Pair]) -> Vec<Option<f64>> {
    let mut medians = Vec::with_capacity(pairs.len());
    while let Some(first) = pairs.get(medians.len()) {
        let rest = &pairs[medians.len()..];
        let mut met = BTreeSet::from(first.nodes);
        let next =
            rest[1..].iter().position(|pair| !pair.nodes.iter().all(|node| met.insert(*node)));
        let stage = &rest[..next.map_or(rest.len(), |next| next + 1)];
        let rates: Vec<f64> = stage.iter().filter_map(Pair::rate).collect();
        let middle = (rates.len() > 2).then(|| nonempty_median(rates));
        medians.extend(stage.iter().map(|_| middle));
    }
    medians
}

/// A rate with three digits at least, if it is not very small.
pub(crate) fn digits(rate: f64) -> String {
    let digits = if rate < 0.1 {
        5
    } else if rate < 10.0 {
        3
    } else {
        1
    };
    format!("{rate:.digits$}")
}

/// A rate of bytes in 10^9 a second.
pub(crate) fn gigabytes(rate: f64) -> String {
    format!("{} GB/s", digits(rate))
}

/// The rate of a node's systems: the median.
pub(crate) fn rate_of(node: &ScreenedNode) -> Option<f64> {
    let rates: Vec<f64> = node.solves.iter().filter_map(|solve| sound_rate(solve.gflops)).collect();
    median(rates)
}

/// What is wrong with a node's results, whatever others have.
fn wrong_by_itself(node: &ScreenedNode) -> Vec<String> {
    let mut reasons = Vec::new();
    let wrong = node.solves.iter().enumerate().find_map(|(round, solve)| {
        let why = solve.wrong.clone();
        let no_rate = || sound_rate(solve.gflops).is_none().then(|| "its rate is no number".into());
        Some((round, why.or_else(no_rate)?))
    });
    if let Some((round, why)) = wrong {
        reasons.push(format!("round {}: {why}", round + 1));
    }
    let mut all_x = node.solves.iter().filter_map(|solve| solve.x.as_deref());
    let first = all_x.next();
    if all_x.any(|x| Some(x) != first) {
        reasons.push("its own rounds have different x".to_owned());
    }
    if let Some(events) = &node.events {
        if events.uncorrected > 0 {
            reasons.push(format!(
                "{} uncorrected memory error(s) during the test",
                events.uncorrected
            ));
        }
        if events.machine_checks > 0 {
            reasons.push(format!(
                "{} machine check exception(s) during the test",
                events.machine_checks
            ));
        }
    }
    reasons
}

fn x_of(solves: &[Solve]) -> Option<&str> {
    let first = solves.first()?.x.as_deref()?;
    solves.iter().all(|solve| solve.x.as_deref() == Some(first)).then_some(first)
}

/// The x that more than half of these voters have, and how many have it. Of two that differ, none.
fn majority<'x>(votes: &[(usize, &'x str)]) -> Option<(&'x str, usize)> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    votes.iter().for_each(|(_, x)| *counts.entry(x).or_default() += 1);
    counts.into_iter().find(|(_, count)| 2 * count > votes.len())
}

/// The reason for pairs whose x differ where none has the majority.
const OPEN: &str = "x differs from that of other such pairs";

/// What must agree for the x of two pairs to have the same bits: the kinds of the members, and
/// whether they are on one host. These share memory, where others send messages: that cuts products
/// at other rows, and some BLAS round those differently.
type PairKind<'a> = ([Option<&'a NodeKind>; 2], bool);

fn pair_kind<'a>(results: &'a Results, pair: &Pair) -> PairKind<'a> {
    let members = pair.nodes.map(|node| &results.nodes[node]);
    // A rank that stands for a node is called `HOST/RANK`.
    let [a, b] = members.map(|node| node.host.split('/').next());
    (members.map(|node| node.kind.as_ref()), a == b)
}

/// Which of the pairs' systems are wrong, and why: by themselves, or as x differs from that of most
/// pairs of the same kinds. Then those that differ from each other, without a majority.
fn wrong_pairs(results: &Results, pairs: &[&Pair]) -> (BTreeMap<usize, String>, Vec<usize>) {
    let (mut wrong, mut open) = (BTreeMap::new(), Vec::new());
    let mut kinds: BTreeMap<PairKind, Vec<(usize, &str)>> = BTreeMap::new();
    for (index, pair) in pairs.iter().enumerate() {
        let Some(solve) = &pair.solve else { continue };
        if let Some(why) = &solve.wrong {
            wrong.insert(index, why.clone());
        } else if let Some(x) = &solve.x {
            kinds.entry(pair_kind(results, pair)).or_default().push((index, x));
        }
    }
    for votes in kinds.values() {
        let Some((most, count)) = majority(votes) else {
            open.extend(votes.iter().map(|(index, _)| *index));
            continue;
        };
        let why = format!("x differs from that of {count} of {} such pairs", votes.len());
        let against = votes.iter().filter(|(_, x)| *x != most);
        wrong.extend(against.map(|(index, _)| (*index, why.clone())));
    }
    (wrong, open)
}

#[cfg(test)]
mod tests {
    use super::super::results::{Events, NodeRates};
    use super::*;
    use skt_host::tournament;

    fn solve(gflops: f64, x: &str) -> Solve {
        let scaled_residual = Some(0.002);
        Solve { gflops: Some(gflops), scaled_residual, x: Some(x.to_owned()), ..Solve::default() }
    }

    fn sound(nodes: usize) -> Results {
        let kind = NodeKind { processor: "cpu".into(), blas: "b".into(), ranks: 1, threads: 4 };
        let node = |index: usize| ScreenedNode {
            host: format!("n{}", index + 1),
            kind: Some(kind.clone()),
            rates: NodeRates {
                dgemm_gflops: Some(120.0),
                memory_gigabytes_a_second: Some(20.0),
                ..NodeRates::default()
            },
            solves: vec![solve(100.0 + (index % 3) as f64, "a"); 3],
            events: Some(Events::default()),
            lost: None,
        };
        let mut results = Results { n: 1000, ..Results::default() };
        results.nodes = (0..nodes).map(node).collect();
        let pair = |nodes| Pair {
            nodes,
            gigabytes_a_second: Some(10.0),
            microseconds: Some(2.0),
            solve: Some(solve(190.0, "of 2")),
            lost: None,
        };
        results.pairs = tournament::rounds(nodes, 3).into_iter().flatten().map(pair).collect();
        results
    }

    fn states(results: &Results) -> String {
        let verdicts = judge(results, TOLERANCE);
        verdicts.hosts.iter().map(|host| &host.state.name()[..1]).collect()
    }

    #[test]
    fn sound_nodes_are_ok_however_few() {
        for nodes in 0..12 {
            let verdicts = judge(&sound(nodes), TOLERANCE);
            assert!(verdicts.are_all_ok(), "{verdicts:?}");
        }
    }

    #[test]
    fn a_slow_node_is_named_with_its_figures() {
        let mut results = sound(5);
        results.nodes[3].solves = vec![solve(50.0, "a"); 3];
        let verdicts = judge(&results, TOLERANCE);
        assert_eq!(states(&results), "oooso");
        let want = "Linpack: 50.0 Gflop/s, 50 % of 101.0, the median of 5 like it";
        assert_eq!(verdicts.hosts[3].reasons, [want]);
    }

    #[test]
    fn slow_memory_is_slow() {
        let mut results = sound(5);
        results.nodes[0].rates.memory_gigabytes_a_second = Some(5.0);
        assert_eq!(states(&results), "soooo");
    }

    #[test]
    fn another_kind_is_compared_with_its_own() {
        let mut results = sound(6);
        for index in [1, 4] {
            results.nodes[index].kind.as_mut().unwrap().threads = 8;
            results.nodes[index].solves = vec![solve(30.0, "other"); 3];
        }
        assert_eq!(states(&results), "oooooo");
        results.nodes[4].solves = vec![solve(10.0, "other"); 3];
        assert_eq!(states(&results), "oooo".to_owned() + "so");
    }

    #[test]
    fn a_minority_of_x_is_wrong_and_of_two_neither_is_named() {
        let mut results = sound(4);
        results.nodes[2].solves = vec![solve(100.0, "b"); 3];
        assert_eq!(states(&results), "oowo");
        let mut results = sound(2);
        results.nodes[1].solves = vec![solve(100.0, "b"); 3];
        assert_eq!(states(&results), "dd");
        let reasons = &judge(&results, TOLERANCE).hosts[0].reasons;
        assert_eq!(reasons[0], "its x differs from that of n2: unknown which is right");
    }

    #[test]
    fn a_node_that_differs_from_itself_or_fails_is_wrong_even_alone() {
        let mut results = sound(1);
        results.nodes[0].solves[1].x = Some("b".into());
        assert_eq!(states(&results), "w");
        let mut results = sound(2);
        results.nodes[0].solves[2] = Solve { wrong: Some("NaN".into()), ..Solve::default() };
        assert_eq!(states(&results), "wo");
        let mut results = sound(2);
        results.nodes[1].events.as_mut().unwrap().uncorrected = 1;
        assert_eq!(states(&results), "ow");
    }

    #[test]
    fn a_node_that_is_wrong_only_with_others_is_named() {
        let mut results = sound(8);
        for pair in results.pairs.iter_mut().filter(|pair| pair.nodes.contains(&5)) {
            pair.solve.as_mut().unwrap().x = Some(format!("bad {:?}", pair.nodes));
        }
        assert_eq!(states(&results), "ooooowoo");
        // Of two nodes, either may be it.
        let mut results = sound(2);
        results.pairs[0].solve.as_mut().unwrap().wrong = Some("residual".into());
        assert_eq!(states(&results), "dd");
    }

    #[test]
    fn a_node_whose_pairs_have_no_result_is_named() {
        let mut results = sound(8);
        let lose = |pair: &mut Pair, why: &str| {
            (pair.solve, pair.lost) = (None, Some(why.to_owned()));
        };
        for pair in results.pairs.iter_mut().filter(|pair| pair.nodes.contains(&5)) {
            lose(pair, "no answer in time");
        }
        let verdicts = judge(&results, TOLERANCE);
        assert_eq!((states(&results), verdicts.missing.len()), ("ooooouoo".to_owned(), 3));
        let want = "no result with others 3 of 3 times: no answer in time";
        assert_eq!((verdicts.are_all_ok(), &verdicts.hosts[5].reasons[0][..]), (false, want));
        // Of two nodes, either may be it.
        let mut results = sound(2);
        lose(&mut results.pairs[0], "no answer in time");
        assert_eq!(states(&results), "dd");
    }

    #[test]
    fn pairs_behind_slow_links_have_no_result_and_name_no_node() {
        let mut results = sound(8);
        for pair in &mut results.pairs {
            (pair.solve, pair.lost) = (None, Some(SLOW_LINK.to_owned()));
        }
        let verdicts = judge(&results, TOLERANCE);
        assert_eq!((states(&results), verdicts.missing.len()), ("oooooooo".to_owned(), 12));
        assert!(!verdicts.are_all_ok());
        // A link that is broken explains the pair that has it.
        let mut results = sound(8);
        let lost = Some("no answer in time".to_owned());
        results.pairs[3] = Pair { nodes: results.pairs[3].nodes, lost, ..Pair::default() };
        let verdicts = judge(&results, TOLERANCE);
        assert_eq!((states(&results), verdicts.links[0].0), ("oooooooo".to_owned(), 3));
    }

    /// Two ranks of a host share memory: their x may have other last bits than that of two hosts.
    #[test]
    fn pairs_on_one_host_are_compared_with_their_like() {
        let mut results = sound(8);
        for (index, node) in results.nodes.iter_mut().enumerate() {
            node.host = format!("n{}/{}", index / 2, index % 2);
        }
        let is_shared = |pair: &&mut Pair| pair.nodes[0] / 2 == pair.nodes[1] / 2;
        let shared: Vec<&mut Pair> = results.pairs.iter_mut().filter(is_shared).collect();
        assert!(!shared.is_empty(), "two ranks of a host meet");
        shared.into_iter().for_each(|pair| pair.solve.as_mut().unwrap().x = Some("b".into()));
        assert_eq!(states(&results), "oooooooo");
    }

    /// Most links of one stage were slow, as the machine was busy then: the figures of a run.
    #[test]
    fn a_stage_that_is_slow_names_no_link() {
        let mut results = sound(8);
        results.pairs.iter_mut().for_each(|pair| pair.gigabytes_a_second = Some(0.05376));
        for (pair, rate) in results.pairs[4..7].iter_mut().zip([0.00114, 0.00205, 0.0008]) {
            pair.gigabytes_a_second = Some(rate);
        }
        let verdicts = judge(&results, TOLERANCE);
        assert!(verdicts.are_all_ok(), "{verdicts:?}");
        // One link of the stage is much slower still.
        results.pairs[4].gigabytes_a_second = Some(1e-5);
        assert_eq!(judge(&results, TOLERANCE).links.len(), 1);
    }

    #[test]
    fn a_slow_link_differs_from_a_node_whose_links_are_slow() {
        let mut results = sound(8);
        results.pairs[3].gigabytes_a_second = Some(0.1);
        let verdicts = judge(&results, TOLERANCE);
        assert_eq!(states(&results), "oooooooo");
        assert_eq!(verdicts.links.len(), 1);
        let want = "0.100 GB/s, 1 % of 10.0, the median of 12 links";
        assert_eq!(verdicts.links[0], (3, want.to_owned()));
        for pair in results.pairs.iter_mut().filter(|pair| pair.nodes.contains(&2)) {
            pair.gigabytes_a_second = Some(0.2);
        }
        results.pairs[3].gigabytes_a_second = Some(10.0);
        let verdicts = judge(&results, TOLERANCE);
        assert_eq!(verdicts.links, []);
        assert!(verdicts.hosts[2].reasons[0].starts_with("3 of its 3 links are slow; to n"));
    }

    #[test]
    fn a_node_without_an_answer_is_out_of_reach_unless_it_is_slow() {
        let mut results = sound(6);
        results.nodes[1].lost = Some("no answer".into());
        results.nodes[1].solves.clear();
        results.nodes[4].lost = Some("no answer".into());
        results.nodes[4].solves = vec![solve(10.0, "a")];
        assert_eq!(states(&results), "ouoos".to_owned() + "o");
    }
}
