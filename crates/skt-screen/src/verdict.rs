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
use skt_terms::median::{median, nonempty_median};

use super::results::{Joint, Link, NodeKind, Results, SLOW_LINK, ScreenedNode, Solve, sound_rate};
use super::spread::Spread;
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
    /// The node's result differs from that of others, or its team has none, and the fault cannot be
    /// attributed.
    Differ,
    Wrong,
    /// The node gives no answer, or it is why its teams give none.
    Unreachable,
}

impl HostState {
    pub(crate) const ALL: [Self; 5] =
        [Self::Ok, Self::Slow, Self::Differ, Self::Wrong, Self::Unreachable];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Slow => "slow",
            Self::Differ => "differ",
            Self::Wrong => "wrong",
            Self::Unreachable => "unreachable",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostVerdict {
    /// The worst of what was found.
    pub state: HostState,
    /// What was found, the worst first; empty if nothing was.
    pub reasons: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Verdicts {
    /// One for each of [`Results::nodes`].
    pub hosts: Vec<HostVerdict>,
    /// Links that are slow while the nodes at both ends are not at fault, as indices into
    /// [`Results::links`], with the reason.
    pub links: Vec<(usize, String)>,
    /// Systems that have no result although all their nodes answered to the end, as indices into
    /// [`Results::joints`].
    pub missing: Vec<usize>,
}

impl Verdicts {
    /// Whether no host and no link is bad, and each team that could solve its system has done so.
    pub fn are_all_ok(&self) -> bool {
        let are_all_here = self.links.is_empty() && self.missing.is_empty();
        are_all_here && self.hosts.iter().all(|host| host.state == HostState::Ok)
    }
}

struct Found<'a> {
    results: &'a Results,
    by_node: Vec<Vec<(HostState, String)>>,
}

/// Judges the results; `tolerance` is the least share by which a slow node is slower than its kind.
pub fn judge(results: &Results, tolerance: f64) -> Verdicts {
    let mut found = Found { results, by_node: vec![Vec::new(); results.nodes.len()] };
    found.by_themselves();
    found.by_majority();
    found.by_rates(tolerance);
    found.lost();
    found.by_joints();
    let links = found.by_links(tolerance);
    let missing = found.by_missing(&links);
    let hosts = found.by_node.into_iter().map(|mut of_node| {
        of_node.sort_by_key(|(state, _)| std::cmp::Reverse(*state));
        let state = of_node.first().map_or(HostState::Ok, |(state, _)| *state);
        HostVerdict { state, reasons: of_node.into_iter().map(|(_, reason)| reason).collect() }
    });
    Verdicts { hosts: hosts.collect(), links, missing }
}

impl Found<'_> {
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

    /// What each node's own results show.
    fn by_themselves(&mut self) {
        let results = self.results;
        for (index, node) in results.nodes.iter().enumerate() {
            for reason in wrong_by_itself(node) {
                self.add(index, HostState::Wrong, reason);
            }
        }
    }

    /// Compares x among the nodes of each kind; the majority decides.
    fn by_majority(&mut self) {
        let results = self.results;
        let mut votes: BTreeMap<&NodeKind, Vec<(usize, &str)>> = BTreeMap::new();
        for (index, node) in results.nodes.iter().enumerate() {
            if let (Some(kind), Some(x), false) =
                (&node.kind, x_of(&node.solves), self.is(index, HostState::Wrong))
            {
                votes.entry(kind).or_default().push((index, x));
            }
        }
        for votes in votes.values() {
            match majority(votes) {
                Ballot::Agreed => {}
                Ballot::Decided { count, against } => {
                    for index in against {
                        let all = votes.len();
                        let why = format!("its x differs from that of {count} of {all} like it");
                        self.add(index, HostState::Wrong, why);
                    }
                }
                Ballot::Open => {
                    for &(index, x) in votes {
                        let other = votes.iter().find(|(_, other)| *other != x);
                        let other = &results.nodes[other.expect("they differ").0].host;
                        let why =
                            format!("its x differs from that of {other}: unknown which is right");
                        self.add(index, HostState::Differ, why);
                    }
                }
            }
        }
    }

    /// Compares rates in each kind: the systems, DGEMM where there is no system, the memory.
    fn by_rates(&mut self, tolerance: f64) {
        type Rate = fn(&ScreenedNode) -> Option<f64>;
        let wide = tolerance.max(WIDE_TOLERANCE);
        let rates: [(Rate, f64, &str, &str); 3] = [
            (rate_of, tolerance, "Gflop/s", "Linpack"),
            (|node| sound_rate(node.dgemm_gflops), tolerance, "Gflop/s", "DGEMM"),
            (|node| sound_rate(node.memory_gigabytes_a_second), wide, "GB/s", "its memory"),
        ];
        for (rate, tolerance, unit, what) in rates {
            for (index, rate, spread) in self.slow_ones(rate, tolerance) {
                // DGEMM of a moment counts only where no system was solved.
                if what == "DGEMM" && !self.results.nodes[index].solves.is_empty() {
                    continue;
                }
                let share = 100.0 * rate / spread.reference;
                let of = if spread.count > 2 { "the median" } else { "the faster one" };
                let why = format!(
                    "{what}: {} {unit}, {share:.0} % of {}, {of} of {} like it",
                    digits(rate),
                    digits(spread.reference),
                    spread.count
                );
                self.add(index, HostState::Slow, why);
            }
        }
    }

    /// The nodes that are slower than their kind in `rate`, with their rates. A node whose result
    /// is wrong may report wrong rates, too: it is no measure of others.
    fn slow_ones(
        &self,
        rate: fn(&ScreenedNode) -> Option<f64>,
        tolerance: f64,
    ) -> Vec<(usize, f64, Spread)> {
        let mut by_kind: BTreeMap<&NodeKind, Vec<(usize, f64)>> = BTreeMap::new();
        for (index, node) in self.results.nodes.iter().enumerate() {
            if let (Some(kind), Some(rate), false) =
                (&node.kind, rate(node), self.is(index, HostState::Wrong))
            {
                by_kind.entry(kind).or_default().push((index, rate));
            }
        }
        let mut slow = Vec::new();
        for of_kind in by_kind.values() {
            let rates: Vec<f64> = of_kind.iter().map(|(_, rate)| *rate).collect();
            let Some(spread) = Spread::from_rates(&rates) else { continue };
            let is_slow = |(_, rate): &&(usize, f64)| spread.is_slow(*rate, tolerance);
            slow.extend(of_kind.iter().filter(is_slow).map(|&(index, rate)| (index, rate, spread)));
        }
        slow
    }

    /// Nodes that stopped answering. One that is slow and has answered so far was too slow for the
    /// limit of time.
    fn lost(&mut self) {
        let results = self.results;
        for (index, node) in results.nodes.iter().enumerate() {
            let Some(why) = &node.lost else { continue };
            let state = if self.is(index, HostState::Slow) {
                HostState::Slow
            } else {
                HostState::Unreachable
            };
            self.add(index, state, why.clone());
        }
    }

    /// Judges systems that several nodes solved together. A system with a node that is known to be
    /// wrong is no evidence about its partners, so each node that is named may decide a further
    /// vote.
    fn by_joints(&mut self) {
        let results = self.results;
        let mut known = self.nodes_that_are(&[HostState::Wrong]);
        loop {
            let is_left = |joint: &&Joint| !joint.nodes.iter().any(|node| known.contains(node));
            let left: Vec<&Joint> = results.joints.iter().filter(is_left).collect();
            let found = wrong_joints(results, &left);
            let (named, unexplained) = explain(&left, &found);
            for (node, reason) in &named {
                self.add(*node, HostState::Wrong, reason.clone());
            }
            if named.is_empty() {
                let open = found.open.iter().flatten();
                for &index in unexplained.iter().chain(open) {
                    let why = found.wrong.get(&index).map_or(OPEN, String::as_str);
                    self.differ(&left[index].nodes, why);
                }
                return;
            }
            known.extend(named.into_keys());
        }
    }

    /// Records that one of these nodes is wrong, where the results do not show which.
    fn differ(&mut self, nodes: &[usize], why: &str) {
        let names: Vec<&str> =
            nodes.iter().map(|&node| self.results.nodes[node].host.as_str()).collect();
        let names = names.join(", ");
        for &node in nodes {
            let why = format!("{names} together: {why}: unknown which of them");
            self.add(node, HostState::Differ, why);
        }
    }

    /// Judges the links. Returns the slow ones that no node explains.
    fn by_links(&mut self, tolerance: f64) -> Vec<(usize, String)> {
        let links = &self.results.links;
        let tolerance = tolerance.max(WIDE_TOLERANCE);
        let rate = |link: &Link| sound_rate(link.gigabytes_a_second);
        let rates: Vec<f64> = links.iter().filter_map(rate).collect();
        // Two links are not known to be of one kind.
        let spread = Spread::from_rates(&rates).filter(|spread| spread.count > 2);
        let at_once = medians_at_once(links);
        let slow = links.iter().zip(at_once).map(|(link, at_once)| match rate(link) {
            None => true,
            Some(rate) => {
                spread.is_some_and(|spread| spread.is_slow(rate, tolerance))
                    && at_once.is_none_or(|median| rate < median * (1.0 - tolerance))
            }
        });
        let slow: Vec<bool> = slow.collect();
        let words = |link: &Link| match (rate(link), spread) {
            (None, _) => "no data comes through".to_owned(),
            (Some(rate), None) => gigabytes(rate),
            (Some(rate), Some(spread)) => {
                let (count, share) = (spread.count, 100.0 * rate / spread.reference);
                let median = gigabytes(spread.reference);
                format!(
                    "{}, {share:.0} % of {median}, the median of {count} links",
                    gigabytes(rate)
                )
            }
        };
        let group =
            |(link, &is_bad): (&Link, &bool)| NodeGroup { nodes: link.nodes.to_vec(), is_bad };
        let groups: Vec<NodeGroup> = links.iter().zip(&slow).map(group).collect();
        let blamed = blame(&groups, &self.nodes_that_are(&[HostState::Unreachable]));
        for node in blamed.nodes {
            let is_bad = |(link, is_slow): &(&Link, &bool)| **is_slow && link.nodes.contains(&node);
            let mut bad = links.iter().zip(&slow).filter(is_bad).map(|(link, _)| link);
            let first = bad.next().expect("that is why it is named");
            let other = if first.nodes[0] == node { first.nodes[1] } else { first.nodes[0] };
            let other = &self.results.nodes[other].host;
            let count = 1 + bad.count();
            let of = links.iter().filter(|link| link.nodes.contains(&node)).count();
            let words = words(first);
            let why = format!("{count} of its {of} links are slow; to {other}: {words}");
            self.add(node, HostState::Slow, why);
        }
        blamed.unexplained.iter().map(|&index| (index, words(&links[index]))).collect()
    }

    /// Judges systems that have no result. A link of `slow` explains those of the teams that have
    /// both its ends. Returns the systems without a result of which no node is lost.
    fn by_missing(&mut self, slow: &[(usize, String)]) -> Vec<usize> {
        let results = self.results;
        let is_missing = |index: &usize| {
            let Joint { nodes, solve, .. } = &results.joints[*index];
            solve.is_none() && nodes.iter().all(|&node| results.nodes[node].lost.is_none())
        };
        let missing: Vec<usize> = (0..results.joints.len()).filter(is_missing).collect();
        let has_slow_link = |joint: &Joint| {
            let has = |(link, _): &(usize, String)| {
                results.links[*link].nodes.iter().all(|end| joint.nodes.contains(end))
            };
            joint.lost.as_deref() == Some(SLOW_LINK) || slow.iter().any(has)
        };
        let is_evidence = |joint: &&Joint| joint.solve.is_some() || !has_slow_link(joint);
        let evidence: Vec<&Joint> = results.joints.iter().filter(is_evidence).collect();
        let group = |joint: &&Joint| NodeGroup {
            nodes: joint.nodes.clone(),
            is_bad: joint.solve.is_none(),
        };
        let groups: Vec<NodeGroup> = evidence.iter().map(group).collect();
        let known =
            self.nodes_that_are(&[HostState::Slow, HostState::Wrong, HostState::Unreachable]);
        let blamed = blame(&groups, &known);
        for node in blamed.nodes {
            let of_node = || evidence.iter().filter(|joint| joint.nodes.contains(&node));
            let bad: Vec<&&Joint> = of_node().filter(|joint| joint.solve.is_none()).collect();
            let (bad_times, times, why) = (bad.len(), of_node().count(), why_missing(bad[0]));
            let why = format!("no result with others {bad_times} of {times} times: {why}");
            self.add(node, HostState::Unreachable, why);
        }
        for index in blamed.unexplained {
            self.differ(
                &evidence[index].nodes,
                &format!("no result: {}", why_missing(evidence[index])),
            );
        }
        missing
    }
}

/// Why a system has no result.
pub(crate) fn why_missing(joint: &Joint) -> &str {
    joint.lost.as_deref().unwrap_or("its first node reported none")
}

/// For each link the median of the links that were measured at the same time, if there are three or
/// more. What makes most of them slow at once, such as another job, is in no link.
///
/// Links come stage by stage; in a stage no node has two.
fn medians_at_once(links: &[Link]) -> Vec<Option<f64>> {
    let mut medians = Vec::with_capacity(links.len());
    while let Some(first) = links.get(medians.len()) {
        let rest = &links[medians.len()..];
        let mut met = BTreeSet::from(first.nodes);
        let next =
            rest[1..].iter().position(|link| !link.nodes.iter().all(|node| met.insert(*node)));
        let stage = &rest[..next.map_or(rest.len(), |next| next + 1)];
        let rates: Vec<f64> =
            stage.iter().filter_map(|link| sound_rate(link.gigabytes_a_second)).collect();
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

/// The x that all rounds have.
fn x_of(solves: &[Solve]) -> Option<&str> {
    let first = solves.first()?.x.as_deref()?;
    solves.iter().all(|solve| solve.x.as_deref() == Some(first)).then_some(first)
}

enum Ballot {
    Agreed,
    /// More than half of three voters or more have the same.
    Decided {
        /// The number of voters that have the majority's x.
        count: usize,
        /// The voters that have another x.
        against: Vec<usize>,
    },
    /// There are several, and none has the majority.
    Open,
}

fn majority(votes: &[(usize, &str)]) -> Ballot {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, x) in votes {
        *counts.entry(x).or_default() += 1;
    }
    let most = counts.iter().max_by_key(|(_, count)| **count);
    match most {
        None => Ballot::Agreed,
        Some(_) if counts.len() == 1 => Ballot::Agreed,
        Some((x, &count)) if 2 * count > votes.len() => {
            let against = votes.iter().filter(|(_, other)| other != x).map(|(index, _)| *index);
            Ballot::Decided { count, against: against.collect() }
        }
        Some(_) => Ballot::Open,
    }
}

/// The reason for teams whose x differ where none has the majority.
const OPEN: &str = "x differs from that of other such teams";

#[derive(Default)]
struct WrongJoints {
    /// The systems that are wrong by themselves or by majority, and why.
    wrong: BTreeMap<usize, String>,
    /// The systems that differ from each other, without a majority.
    open: Vec<Vec<usize>>,
    missing: BTreeSet<usize>,
}

/// What must agree for the x of two teams to have the same bits: the kinds of the members, and for
/// each member the first one on its host. Members on one host share memory, where others send
/// messages: that cuts products at other rows, and some BLAS round those differently.
type TeamKind<'a> = (Vec<&'a NodeKind>, Vec<usize>);

fn team_kind<'a>(results: &'a Results, nodes: &[usize]) -> Option<TeamKind<'a>> {
    let kinds: Option<_> = nodes.iter().map(|&node| results.nodes[node].kind.as_ref()).collect();
    // A rank that stands for a node is called `HOST/RANK`.
    let host = |node: usize| results.nodes[node].host.split('/').next();
    let first = |&node: &usize| nodes.iter().position(|&other| host(other) == host(node));
    Some((kinds?, nodes.iter().filter_map(first).collect()))
}

/// Which of the joint systems are wrong: by themselves, or as x differs from that of most teams of
/// the same kinds.
fn wrong_joints(results: &Results, joints: &[&Joint]) -> WrongJoints {
    let mut found = WrongJoints::default();
    let mut votes: BTreeMap<TeamKind, Vec<(usize, &str)>> = BTreeMap::new();
    for (index, joint) in joints.iter().enumerate() {
        let Some(solve) = &joint.solve else {
            found.missing.insert(index);
            continue;
        };
        if let Some(why) = &solve.wrong {
            found.wrong.insert(index, why.clone());
            continue;
        }
        if let (Some(kind), Some(x)) = (team_kind(results, &joint.nodes), solve.x.as_deref()) {
            votes.entry(kind).or_default().push((index, x));
        }
    }
    for votes in votes.values() {
        match majority(votes) {
            Ballot::Agreed => {}
            Ballot::Decided { count, against } => {
                let all = votes.len();
                let why = format!("x differs from that of {count} of {all} such teams");
                found.wrong.extend(against.into_iter().map(|index| (index, why.clone())));
            }
            Ballot::Open => found.open.push(votes.iter().map(|(index, _)| *index).collect()),
        }
    }
    found
}

/// The nodes that explain wrong joint systems, each with the reason, and those that none explains.
fn explain(joints: &[&Joint], found: &WrongJoints) -> (BTreeMap<usize, String>, Vec<usize>) {
    // Systems without evidence neither clear nor blame.
    let is_evidence = |index: &usize| {
        !found.missing.contains(index) && !found.open.iter().flatten().any(|open| open == index)
    };
    let evidence: Vec<usize> = (0..joints.len()).filter(is_evidence).collect();
    let group = |&index: &usize| NodeGroup {
        nodes: joints[index].nodes.clone(),
        is_bad: found.wrong.contains_key(&index),
    };
    let groups: Vec<NodeGroup> = evidence.iter().map(group).collect();
    let blamed = blame(&groups, &BTreeSet::new());
    let reason = |node: usize| {
        let has = |index: &&usize| joints[**index].nodes.contains(&node);
        let times = evidence.iter().filter(has).count();
        let bad: Vec<usize> = found.wrong.keys().filter(has).copied().collect();
        let (bad_times, why) = (bad.len(), &found.wrong[&bad[0]]);
        format!("wrong together with others {bad_times} of {times} times: {why}")
    };
    let named = blamed.nodes.into_iter().map(|node| (node, reason(node))).collect();
    (named, blamed.unexplained.into_iter().map(|index| evidence[index]).collect())
}

#[cfg(test)]
mod tests {
    use super::super::results::Events;
    use super::super::schedule::stages;
    use super::*;

    fn solve(gflops: f64, x: &str) -> Solve {
        let scaled_residual = Some(0.002);
        Solve { gflops: Some(gflops), scaled_residual, x: Some(x.to_owned()), ..Solve::default() }
    }

    fn sound(nodes: usize) -> Results {
        let kind = NodeKind { processor: "cpu".into(), blas: "b".into(), ranks: 1, threads: 4 };
        let node = |index: usize| ScreenedNode {
            host: format!("n{}", index + 1),
            kind: Some(kind.clone()),
            dgemm_gflops: Some(120.0),
            units_gflops: None,
            memory_gigabytes_a_second: Some(20.0),
            solves: vec![solve(100.0 + (index % 3) as f64, "a"); 3],
            events: Some(Events::default()),
            lost: None,
        };
        let mut results = Results { n: 1000, ..Results::default() };
        results.nodes = (0..nodes).map(node).collect();
        for team in stages(nodes).into_iter().flatten() {
            if let [a, b] = team[..] {
                let (rate, time) = (Some(10.0), Some(2.0));
                results.links.push(Link {
                    nodes: [a, b],
                    gigabytes_a_second: rate,
                    microseconds: time,
                });
            }
            let x = format!("of {}", team.len());
            results.joints.push(Joint { nodes: team, solve: Some(solve(190.0, &x)), lost: None });
        }
        results
    }

    fn states(results: &Results) -> String {
        let verdicts = judge(results, TOLERANCE);
        verdicts.hosts.iter().map(|host| &host.state.word()[..1]).collect()
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
        results.nodes[0].memory_gigabytes_a_second = Some(5.0);
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
        for joint in results.joints.iter_mut().filter(|joint| joint.nodes.contains(&5)) {
            joint.solve.as_mut().unwrap().x = Some(format!("bad {:?}", joint.nodes));
        }
        assert_eq!(states(&results), "ooooowoo");
        // Of two nodes, either may be it.
        let mut results = sound(2);
        results.joints[0].solve.as_mut().unwrap().wrong = Some("residual".into());
        assert_eq!(states(&results), "dd");
    }

    #[test]
    fn a_node_whose_teams_have_no_result_is_named() {
        let mut results = sound(8);
        let lose = |joint: &mut Joint, why: &str| {
            (joint.solve, joint.lost) = (None, Some(why.to_owned()));
        };
        for joint in results.joints.iter_mut().filter(|joint| joint.nodes.contains(&5)) {
            lose(joint, "no answer in time");
        }
        let verdicts = judge(&results, TOLERANCE);
        assert_eq!((states(&results), verdicts.missing.len()), ("ooooouoo".to_owned(), 4));
        let want = "no result with others 4 of 4 times: no answer in time";
        assert_eq!((verdicts.are_all_ok(), &verdicts.hosts[5].reasons[0][..]), (false, want));
        // Of two nodes, either may be it.
        let mut results = sound(2);
        lose(&mut results.joints[0], "no answer in time");
        assert_eq!(states(&results), "dd");
    }

    #[test]
    fn teams_behind_slow_links_have_no_result_and_name_no_node() {
        let mut results = sound(8);
        for joint in &mut results.joints {
            (joint.solve, joint.lost) = (None, Some(SLOW_LINK.to_owned()));
        }
        let verdicts = judge(&results, TOLERANCE);
        assert_eq!((states(&results), verdicts.missing.len()), ("oooooooo".to_owned(), 14));
        assert!(!verdicts.are_all_ok());
        // A link that is broken explains the pair that has it.
        let mut results = sound(8);
        results.links[3].gigabytes_a_second = None;
        let pair = results.links[3].nodes;
        for joint in results.joints.iter_mut().filter(|joint| joint.nodes == pair) {
            (joint.solve, joint.lost) = (None, Some("no answer in time".to_owned()));
        }
        let verdicts = judge(&results, TOLERANCE);
        assert_eq!((states(&results), verdicts.links[0].0), ("oooooooo".to_owned(), 3));
    }

    /// Two ranks of a host share memory: their x may have other last bits than that of two hosts.
    #[test]
    fn teams_on_one_host_are_compared_with_their_like() {
        let mut results = sound(8);
        for (index, node) in results.nodes.iter_mut().enumerate() {
            node.host = format!("n{}/{}", index / 2, index % 2);
        }
        let hosts = |joint: &Joint| joint.nodes.iter().map(|node| node / 2).collect::<Vec<_>>();
        let is_shared =
            |joint: &&mut Joint| joint.nodes.len() == 2 && hosts(joint).is_sorted_by(|a, b| a == b);
        let shared: Vec<&mut Joint> = results.joints.iter_mut().filter(is_shared).collect();
        assert!(!shared.is_empty(), "two ranks of a host meet");
        shared.into_iter().for_each(|joint| joint.solve.as_mut().unwrap().x = Some("b".into()));
        assert_eq!(states(&results), "oooooooo");
    }

    /// Most links of one stage were slow, as the machine was busy then: the figures of a run.
    #[test]
    fn a_stage_that_is_slow_names_no_link() {
        let mut results = sound(8);
        results.links.iter_mut().for_each(|link| link.gigabytes_a_second = Some(0.05376));
        for (link, rate) in results.links[4..7].iter_mut().zip([0.00114, 0.00205, 0.0008]) {
            link.gigabytes_a_second = Some(rate);
        }
        let verdicts = judge(&results, TOLERANCE);
        assert!(verdicts.are_all_ok(), "{verdicts:?}");
        // One link of the stage is much slower still.
        results.links[4].gigabytes_a_second = Some(1e-5);
        assert_eq!(judge(&results, TOLERANCE).links.len(), 1);
    }

    #[test]
    fn a_slow_link_differs_from_a_node_whose_links_are_slow() {
        let mut results = sound(8);
        results.links[3].gigabytes_a_second = Some(0.1);
        let verdicts = judge(&results, TOLERANCE);
        assert_eq!(states(&results), "oooooooo");
        assert_eq!(verdicts.links.len(), 1);
        let want = "0.100 GB/s, 1 % of 10.0 GB/s, the median of 12 links";
        assert_eq!(verdicts.links[0], (3, want.to_owned()));
        for link in results.links.iter_mut().filter(|link| link.nodes.contains(&2)) {
            link.gigabytes_a_second = Some(0.2);
        }
        results.links[3].gigabytes_a_second = Some(10.0);
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
