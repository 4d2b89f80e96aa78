//! Chooses which nodes try which others, and decides from what they found which nodes' links are
//! dead, as pure functions.

use std::collections::{BTreeMap, BTreeSet};

use super::addresses::Networks;
use super::{Link, LinkState, Partner};
use crate::hosts::Host;
use crate::probe::Answer;

/// The most nodes that a node tries. With the nodes that try it, it has twice as many partners.
const SHIFTS: usize = 4;

/// The nodes that each node tries: those that follow it in the list by 1, n/9 + 1, 2n/9 + 1 and
/// 3n/9 + 1, so that not all are on one switch, and with fewer than nine nodes the next four. Up to
/// nine nodes each pair is tried; beyond, no two nodes try each other. A node is tried at its
/// address in each of `networks`, or else by its name.
pub(crate) fn partners(
    hosts: &[Host],
    answers: &BTreeMap<String, Answer>,
    networks: &Networks,
) -> BTreeMap<String, Vec<Partner>> {
    let (n, all) = (hosts.len(), 2 * SHIFTS + 1);
    let shifts = (0..SHIFTS).map(|i| 1 + i * n.max(all) / all).filter(|shift| *shift < n);
    let to = |Host { name, .. }: &Host| -> Vec<Partner> {
        let reported = answers.get(name).map_or(&[][..], |answer| &answer.addresses);
        let addresses = networks.choose(reported);
        let by_name = addresses.is_empty().then_some(None);
        let all = addresses.into_iter().map(Some).chain(by_name);
        all.map(|address| Partner { name: name.clone(), address }).collect()
    };
    let of = |index: usize| shifts.clone().flat_map(|it| to(&hosts[(index + it) % n])).collect();
    hosts.iter().enumerate().map(|(index, host)| (host.name.clone(), of(index))).collect()
}

/// What each node that answered has found.
pub(crate) type Findings = BTreeMap<String, Vec<Link>>;

#[derive(Debug)]
pub(crate) struct JudgedNodes<'a> {
    /// The places of nodes in the list, those in use first, in the order of their ranks.
    places: BTreeMap<&'a str, usize>,
    /// Number of nodes in use: as many are needed, and they have the data.
    in_use: usize,
    /// Nodes that the launcher or the ranks have named.
    doubted: &'a [String],
}

impl<'a> JudgedNodes<'a> {
    pub(crate) fn new(in_use: &'a [Host], spares: &'a [Host], doubted: &'a [String]) -> Self {
        let names = in_use.iter().chain(spares).map(|host| host.name.as_str());
        Self { places: names.zip(0..).collect(), in_use: in_use.len(), doubted }
    }

    /// The place of a node in the list; nodes that are not listed come last.
    fn place(&self, name: &str) -> usize {
        self.places.get(name).copied().unwrap_or(usize::MAX)
    }

    fn is_doubted(&self, name: &str) -> bool {
        self.doubted.iter().any(|doubted| doubted == name)
    }

    /// Of nodes that are equally bad, the one of the highest rank is out.
    fn rank(&self, name: &str) -> (bool, usize) {
        (self.is_doubted(name), self.place(name))
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// Nodes whose links are dead, each with the reason.
    pub dead: BTreeMap<String, String>,
    /// Nodes that reach another node which is not dead.
    pub alive: BTreeSet<String>,
}

/// Judges the links of nodes, of which each may have tried only a few others.
///
/// The nodes that reach each other, directly or through others, form parts. One part stays: the one
/// that has as many nodes as are needed, the most data, the most nodes, the fewest doubted ones, or
/// else the first node. The nodes of all other parts are dead, however many they are: tries with
/// them do not count against the part that stays. What then remains are nodes that fail with some
/// nodes of their own part. Of these, a node is dead if more than half of its partners fail with
/// it, the one with the largest fraction first. Finally, of two nodes that fail with each other
/// alone, the doubted one is dead, or else the later one in the list.
///
/// Two nodes reach each other if no try between them failed, in any network of the job. Where that
/// holds nowhere, one network in which they do is enough. Where no try succeeded at all, the tries
/// show nothing (a filter may drop their packets).
pub(crate) fn judge(findings: &Findings, judged: &JudgedNodes) -> Verdict {
    let mut tries: Vec<Try> = Vec::new();
    for (from, links) in findings {
        for Link { to, found } in links.iter().filter(|link| link.to != *from) {
            match found {
                LinkState::Alive => tries.push(([from, to], Ok(()))),
                LinkState::Dead(why) => tries.push(([from, to], Err(why))),
                LinkState::Unknown(_) => {}
            }
        }
    }
    let strict = Pairs::new(&tries, Found::and);
    let pairs = if strict.is_any_alive() { strict } else { Pairs::new(&tries, Found::or) };
    pairs.judge(judged, &tries)
}

/// Whether a packet came back, or why not.
type Found<'a> = Result<(), &'a str>;

/// A try of one node to reach another.
type Try<'a> = ([&'a str; 2], Found<'a>);

/// For each node, the partners that are left, and whether they reach each other.
struct Pairs<'a>(BTreeMap<&'a str, BTreeMap<&'a str, Found<'a>>>);

impl<'a> Pairs<'a> {
    /// The pairs of these tries, where `join` joins the results of two tries of a pair.
    fn new(tries: &[Try<'a>], join: fn(Found<'a>, Found<'a>) -> Found<'a>) -> Self {
        let mut all: BTreeMap<&str, BTreeMap<&str, Found>> = BTreeMap::new();
        for ([a, b], found) in tries {
            for (from, to) in [(a, b), (b, a)] {
                let known = all.entry(from).or_default().entry(to).or_insert(*found);
                *known = join(*known, *found);
            }
        }
        Self(all)
    }

    fn is_any_alive(&self) -> bool {
        self.0.values().any(|partners| partners.values().any(Result::is_ok))
    }

    fn judge(mut self, judged: &JudgedNodes, tries: &[Try]) -> Verdict {
        let mut dead = BTreeMap::new();
        if !self.is_any_alive() {
            return Verdict::default();
        }
        loop {
            for name in self.outside_of_the_best_part(judged) {
                dead.insert(name.to_owned(), reason(name, tries));
                self.remove(name);
            }
            let next = match self.worst(judged) {
                Some(name) => Some((name, reason(name, tries))),
                None => self.one_of_a_pair(judged),
            };
            let Some((name, why)) = next else { break };
            dead.insert(name.to_owned(), why);
            self.remove(name);
        }
        let alive = self.0.iter().filter(|(_, partners)| partners.values().any(Result::is_ok));
        Verdict { alive: alive.map(|(name, _)| (*name).to_owned()).collect(), dead }
    }

    fn remove(&mut self, name: &str) {
        for partner in self.0.remove(name).unwrap_or_default().keys() {
            self.0.get_mut(partner).map(|partners| partners.remove(name));
        }
    }

    /// The nodes that reach no node of the part that stays.
    fn outside_of_the_best_part(&self, judged: &JudgedNodes) -> Vec<&'a str> {
        let parts = self.parts();
        let rank = |part: &&Vec<&str>| {
            let count = |is_counted: &dyn Fn(&str) -> bool| {
                part.iter().filter(|name| is_counted(name)).count()
            };
            let first = part.iter().map(|name| judged.place(name)).min();
            (
                part.len().min(judged.in_use),
                count(&|name| judged.place(name) < judged.in_use),
                part.len(),
                std::cmp::Reverse((count(&|name| judged.is_doubted(name)), first)),
            )
        };
        let best = parts.iter().max_by_key(rank);
        let others =
            parts.iter().filter(|part| !best.is_some_and(|best| std::ptr::eq(best, *part)));
        others.flatten().copied().collect()
    }

    /// The nodes that were tried, in parts: those of a part reach each other, directly or through
    /// others.
    fn parts(&self) -> Vec<Vec<&'a str>> {
        let mut left: BTreeSet<&str> = self.0.keys().copied().collect();
        let mut parts = Vec::new();
        while let Some(first) = left.pop_first() {
            let mut part = vec![first];
            let mut next = 0;
            while let Some(name) = part.get(next) {
                let alive = self.0[name].iter().filter(|(_, found)| found.is_ok());
                part.extend(alive.map(|(name, _)| *name).filter(|name| left.remove(name)));
                next += 1;
            }
            parts.push(part);
        }
        parts
    }

    /// The node with the largest fraction of partners that fail with it, if that is more than half
    /// of at least two.
    fn worst(&self, judged: &JudgedNodes) -> Option<&'a str> {
        let counts = self.0.iter().map(|(name, partners)| {
            (*name, partners.values().filter(|found| found.is_err()).count(), partners.len())
        });
        let is_out = |(_, failed, all): &(&str, usize, usize)| 2 * failed > *all && *all > 1;
        let worst = counts.filter(is_out).max_by(|(a, a_failed, a_all), (b, b_failed, b_all)| {
            let by_fraction = (a_failed * b_all).cmp(&(b_failed * a_all));
            by_fraction.then(a_failed.cmp(b_failed)).then(judged.rank(a).cmp(&judged.rank(b)))
        });
        worst.map(|(name, ..)| name)
    }

    /// One of two nodes that fail with each other, and the reason.
    fn one_of_a_pair(&self, judged: &JudgedNodes) -> Option<(&'a str, String)> {
        let failed = self.0.iter().flat_map(|(a, partners)| {
            partners.iter().filter_map(|(b, found)| Some((*a, *b, found.err()?)))
        });
        let (name, other, why) = failed.max_by_key(|(name, ..)| judged.rank(name))?;
        Some((name, format!("its link to {other} is dead, while both reach others ({why})")))
    }
}

/// Why a node is dead: how many tries with it failed.
fn reason(name: &str, tries: &[Try]) -> String {
    let (mut failed, mut all, mut last) = (0, 0, "");
    for (_, found) in tries.iter().filter(|(ends, _)| ends.contains(&name)) {
        all += 1;
        if let Err(why) = found {
            (failed, last) = (failed + 1, why);
        }
    }
    format!("its link is dead: {failed} of {all} tries failed ({last})")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::links::addresses::Address;

    fn partners_of(n: usize) -> BTreeMap<String, Vec<Partner>> {
        partners(&pool(n, 0).all, &BTreeMap::new(), &Networks::default())
    }

    /// The findings where no packet passes between the pairs that `is_dead` selects.
    fn findings(n: usize, silent: &[usize], is_dead: &dyn Fn(usize, usize) -> bool) -> Findings {
        let index = |name: &str| name[1..].parse::<usize>().unwrap();
        let link = |from: &str, to: &str| Link {
            to: to.to_owned(),
            found: if is_dead(index(from), index(to)) {
                LinkState::Dead("no answer".into())
            } else {
                LinkState::Alive
            },
        };
        let all = partners_of(n).into_iter().filter(|(name, _)| !silent.contains(&index(name)));
        all.map(|(from, to)| {
            let links = to.iter().map(|to| link(&from, &to.name)).collect();
            (from, links)
        })
        .collect()
    }

    /// The names of nodes in use and of spares.
    struct Nodes {
        all: Vec<Host>,
        in_use: usize,
    }

    impl Nodes {
        fn judged<'a>(&'a self, doubted: &'a [String]) -> JudgedNodes<'a> {
            let (in_use, spares) = self.all.split_at(self.in_use);
            JudgedNodes::new(in_use, spares, doubted)
        }
    }

    fn pool(in_use: usize, spares: usize) -> Nodes {
        let host = |index| Host { name: format!("n{index}"), slots: 1 };
        Nodes { all: (0..in_use + spares).map(host).collect(), in_use }
    }

    fn named(findings: &Findings, pool: &Nodes, doubted: &[&str]) -> Vec<usize> {
        let doubted: Vec<String> = doubted.iter().map(|name| (*name).to_owned()).collect();
        let verdict = judge(findings, &pool.judged(&doubted));
        assert!(verdict.dead.keys().all(|name| !verdict.alive.contains(name)), "{verdict:?}");
        let mut all: Vec<usize> =
            verdict.dead.keys().map(|name| name[1..].parse().unwrap()).collect();
        all.sort_unstable();
        all
    }

    /// The nodes that are named where the links of `dead` are dead.
    fn with_dead(n: usize, dead: &[usize]) -> Vec<usize> {
        let is_dead = |a, b| dead.contains(&a) || dead.contains(&b);
        let found = named(&findings(n, &[], &is_dead), &pool(n, 0), &[]);
        // The nodes with dead links need not answer themselves, if others that are well try them.
        let mut silent = named(&findings(n, dead, &is_dead), &pool(n, 0), &[]);
        let tries = findings(n, dead, &|_, _| false);
        let is_tried = |name: &String| tries.values().flatten().any(|link| link.to == *name);
        silent.extend(dead.iter().filter(|index| !is_tried(&format!("n{index}"))));
        silent.sort_unstable();
        assert_eq!(silent, found, "{n}: {dead:?}");
        found
    }

    #[test]
    fn the_nodes_that_reach_no_other_are_named() {
        for n in [3, 4, 5, 9, 10, 1000] {
            assert_eq!(with_dead(n, &[]), [0; 0]);
            assert_eq!(with_dead(n, &[n - 1]), [n - 1], "{n}");
        }
        assert_eq!(with_dead(4, &[0, 2]), [0, 2]);
        assert_eq!(with_dead(5, &[1, 2, 3]), [1, 2, 3]);
        assert_eq!(with_dead(1000, &[17, 18, 130, 500]), [17, 18, 130, 500]);
        // A rack of 32 nodes, all on one switch.
        let rack: Vec<usize> = (320..352).collect();
        assert_eq!(with_dead(1000, &rack), rack);
    }

    #[test]
    fn one_node_of_a_pair_is_blamed() {
        let is_dead = |a: usize, b: usize| (a.min(b), a.max(b)) == (1, 2);
        let found = findings(4, &[], &is_dead);
        assert_eq!(named(&found, &pool(4, 0), &[]), [2], "the later one");
        assert_eq!(named(&found, &pool(4, 0), &["n1"]), [1], "the one that the launcher has named");
        let pool = pool(4, 0);
        let why = judge(&found, &pool.judged(&[])).dead.remove("n2").unwrap();
        assert_eq!(why, "its link to n1 is dead, while both reach others (no answer)");
    }

    #[test]
    fn no_node_is_blamed_where_no_packet_passes() {
        for n in [2, 3, 5, 1000] {
            assert_eq!(named(&findings(n, &[], &|_, _| true), &pool(n, 0), &[]), [0; 0], "{n}");
        }
        // Between two nodes nothing shows which is at fault.
        assert_eq!(with_dead(2, &[0]), [0; 0]);
        assert_eq!(with_dead(3, &[0, 1]), [0; 0]);
    }

    #[test]
    fn unknown_links_are_no_evidence() {
        let unknown =
            |to: &str| Link { to: to.into(), found: LinkState::Unknown("no name".into()) };
        let alive = |to: &str| Link { to: to.into(), found: LinkState::Alive };
        let found: Findings = [
            ("n0".to_owned(), vec![unknown("n1"), unknown("n2")]),
            ("n1".to_owned(), vec![alive("n2")]),
        ]
        .into();
        assert_eq!(named(&found, &pool(3, 0), &[]), [0; 0]);
    }

    /// Random numbers below a bound, by a seed.
    fn random(mut seed: u64) -> impl FnMut(usize) -> usize {
        move |below| {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as usize % below
        }
    }

    #[test]
    fn every_set_of_dead_nodes_is_named_exactly() {
        for n in 4..=9 {
            for set in 0..1_u32 << n {
                let dead: Vec<usize> = (0..n).filter(|index| (set >> index) & 1 == 1).collect();
                // Between fewer than two nodes that are well, no packet passes.
                if dead.len() + 2 <= n {
                    assert_eq!(with_dead(n, &dead), dead, "{n}");
                }
            }
        }
    }

    #[test]
    fn nodes_with_few_partners_are_named_in_any_number() {
        for seed in 0..300 {
            let mut random = random(seed);
            let n = 10 + random(200);
            let share = 1 + random(40);
            let dead: BTreeSet<usize> = (0..n).filter(|_| random(100) < share).collect();
            let is_dead = |a, b| dead.contains(&a) || dead.contains(&b);
            let named = named(&findings(n, &[], &is_dead), &pool(n, 0), &[]);
            let named: BTreeSet<usize> = named.into_iter().collect();
            assert!(dead.is_subset(&named), "seed {seed}: {n} {dead:?} {named:?}");
            // Nodes that are well are out only where all their partners are dead or out, too.
            for well in named.difference(&dead) {
                let shifts: Vec<usize> = (0..4).map(|i| 1 + i * n / 9).collect();
                let partners = shifts.iter().flat_map(|by| [(well + by) % n, (well + n - by) % n]);
                assert!(partners.clone().all(|partner| named.contains(&partner)), "seed {seed}");
            }
        }
    }

    #[test]
    fn a_node_whose_partners_are_all_dead_is_named_too() {
        let partners: Vec<usize> =
            (0..4).map(|i| 1 + i * 100 / 9).flat_map(|by| [by, 100 - by]).collect();
        let mut dead = partners;
        dead.push(0);
        dead.sort_unstable();
        let is_dead = |a: usize, b: usize| dead.contains(&a) || dead.contains(&b);
        assert_eq!(named(&findings(100, &[], &is_dead), &pool(100, 0), &[]), dead);
    }

    #[test]
    fn network_part_with_the_data_stays() {
        // The first part of six nodes has any four of them or less, the last two are spares.
        for set in 1..63_u32 {
            let is_in = |index: usize| (set >> index) & 1 == 1;
            let is_dead = |a, b| is_in(a) != is_in(b);
            let named = named(&findings(6, &[], &is_dead), &pool(4, 2), &[]);
            let part = |side: bool| (0..6).filter(|i| is_in(*i) == side).collect::<Vec<_>>();
            let value = |part: &Vec<usize>| {
                let data = part.iter().filter(|index| **index < 4).count();
                (part.len().min(4), data, part.len())
            };
            let (one, other) = (part(true), part(false));
            if value(&one) != value(&other) {
                let smaller = if value(&one) < value(&other) { one } else { other };
                assert_eq!(named, smaller, "{set:06b}");
            } else {
                assert!(named == one || named == other, "{set:06b} {named:?}");
            }
        }
        // Many spares have no data.
        let is_dead = |a: usize, b: usize| (a < 4) != (b < 4);
        let found = findings(9, &[], &is_dead);
        assert_eq!(named(&found, &pool(4, 5), &[]), [4, 5, 6, 7, 8]);
        // Of halves, the one that the launcher does not reach is out.
        let is_dead = |a: usize, b: usize| (a < 2) != (b < 2);
        let found = findings(4, &[], &is_dead);
        assert_eq!(named(&found, &pool(4, 0), &["n1"]), [0, 1]);
        assert_eq!(named(&found, &pool(4, 0), &["n2"]), [2, 3]);
    }

    /// The findings in two networks, of which the second one passes packets where `passes` allows
    /// it.
    fn in_two_networks(first: Findings, passes: impl Fn(&str, &str) -> bool) -> Findings {
        let with_second = |(from, links): (String, Vec<Link>)| {
            let second = links.clone().into_iter().map(|link| Link {
                found: if passes(&from, &link.to) {
                    LinkState::Alive
                } else {
                    LinkState::Dead("no answer".into())
                },
                ..link
            });
            let all = links.iter().cloned().chain(second).collect();
            (from, all)
        };
        first.into_iter().map(with_second).collect()
    }

    #[test]
    fn a_link_in_one_of_two_networks_is_enough_to_be_named() {
        for n in [3, 6, 9, 30] {
            for dead in 0..n {
                let is_dead = |a, b| a == dead || b == dead;
                let name = format!("n{dead}");
                let (well, cut) = (findings(n, &[], &|_, _| false), findings(n, &[], &is_dead));
                let found = in_two_networks(well, |a, b| a != name && b != name);
                assert_eq!(named(&found, &pool(n, 0), &[]), [dead], "{n}");
                // A network in which no packet passes between any nodes is no evidence.
                let found = in_two_networks(cut, |_, _| false);
                assert_eq!(named(&found, &pool(n, 0), &[]), [dead], "{n}");
            }
        }
    }

    #[test]
    fn a_node_that_fails_with_most_others_is_named() {
        let is_dead = |a: usize, b: usize| a.min(b) == 1 && a.max(b) > 2;
        assert_eq!(named(&findings(6, &[], &is_dead), &pool(4, 2), &[]), [1]);
    }

    #[test]
    fn few_nodes_try_all_pairs_and_many_try_four() {
        for n in [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 27, 100, 1000, 4096] {
            let all = partners_of(n);
            assert!(all.values().all(|of| of.len() == SHIFTS.min(n - 1)), "{n}");
            // Of many, each node is tried by four others, and no pair is tried twice.
            let pairs: BTreeSet<(String, String)> = { &all }
                .iter()
                .flat_map(|(from, of)| of.iter().map(|to| (from.clone(), to.name.clone())))
                .map(|(a, b)| if a < b { (a, b) } else { (b, a) })
                .collect();
            assert_eq!(pairs.len(), (SHIFTS * n).min(n * (n - 1) / 2), "{n}");
        }
    }

    #[test]
    fn each_network_of_a_node_is_tried() {
        let addresses = ["10.0.0.1", "10.1.0.1"]
            .map(|ip| Address { interface: ip[..4].to_owned(), ip: ip.parse().unwrap() });
        let answer = Answer { addresses: addresses.to_vec(), ..Answer::default() };
        let words = ["-iface", "10.0,10.1"].map(str::to_owned);
        let networks = Networks::from_arguments(&words, &|_| None);
        let all = partners(&pool(2, 0).all, &[("n0".to_owned(), answer)].into(), &networks);
        let shown = |of: &[Partner]| of.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(shown(&all["n1"]), ["n0=10.0.0.1", "n0=10.1.0.1"]);
        assert_eq!(shown(&all["n0"]), ["n1"]);
    }
}
