//! Trials where nodes answer, and starts send no heartbeat although the launcher names no node that
//! it does not reach: sets of nodes are left out in turn, replaced by spares, until a start lives.
//!
//! A start in vain shows that one of its nodes is at fault, not which one.

use std::collections::BTreeSet;

use super::Decisions;
use crate::hosts::{Health, Host, OutOfUse, Replacement, short_names};
use skt_terms::exit::Exit;

const WHY: &str = "is left out on trial: no start with it has given a sign of life";

/// The trials after a start without a heartbeat.
#[derive(Debug)]
pub(super) struct ExclusionTrials {
    /// The nodes in use before the first trial, in the order of their ranks.
    active: Vec<Host>,
    spares: Vec<Host>,
    /// What was tried: indices of the nodes that were left out, and the spares in their places.
    tried: BTreeSet<BTreeSet<(usize, String)>>,
}

/// The index of a node that is left out, and the spare in its place.
type Swap = (usize, Host);

/// What is known of the nodes in use, by their indices, and what leaving them out may cost.
#[derive(Debug, Default)]
struct Choices {
    /// Nodes without data, which cost nothing, the most doubted ones first.
    hollow: Vec<usize>,
    /// Other nodes, the most doubted ones first.
    others: Vec<usize>,
    /// Number of nodes with data that may be left out at a time, since it has to be rebuilt.
    max_rebuilt: usize,
    /// Whether every set is tried, and not only enough sets for each node to be left out once.
    every_set: bool,
}

/// The sets of this size of some nodes, in lexicographic order.
fn subsets(places: Vec<usize>, size: usize) -> impl Iterator<Item = Vec<usize>> {
    let count = places.len();
    let first = (size <= count).then(|| (0..size).collect::<Vec<usize>>());
    let next = move |picked: &Vec<usize>| {
        let mut picked = picked.clone();
        let index = (0..size).rev().find(|index| picked[*index] < count - size + index)?;
        picked[index] += 1;
        (index + 1..size).for_each(|index| picked[index] = picked[index - 1] + 1);
        Some(picked)
    };
    let picked = std::iter::successors(first, next);
    picked.map(move |picked| picked.into_iter().map(|index| places[index]).collect())
}

impl Choices {
    /// Sets of nodes, with at most `spares` nodes each, in the order in which they are left out.
    fn sets(&self, spares: usize) -> impl Iterator<Item = Vec<usize>> {
        let (hollow, others) = (self.hollow.clone(), self.others.clone());
        let max_size = spares.min((hollow.len() + others.len()).div_ceil(2));
        let chunks = [(&hollow, max_size), (&others, max_size.min(self.max_rebuilt))]
            .into_iter()
            .filter(|(_, size)| *size > 0)
            .flat_map(|(places, size)| places.chunks(size).map(<[usize]>::to_vec))
            .collect::<Vec<_>>();
        let max_size = if self.every_set { max_size } else { 0 };
        let sizes = (1..=max_size).rev();
        let every = sizes.flat_map(move |size| self.mixed(hollow.clone(), others.clone(), size));
        chunks.into_iter().chain(every)
    }

    /// The sets of `size` nodes, of which no more than can be rebuilt have data, or the largest
    /// ones that there are. They are made one by one: there may be very many.
    fn mixed(
        &self,
        hollow: Vec<usize>,
        others: Vec<usize>,
        size: usize,
    ) -> impl Iterator<Item = Vec<usize>> + use<> {
        let max_others = self.max_rebuilt.min(others.len());
        let size = size.min(hollow.len().saturating_add(max_others));
        let counts = (0..=hollow.len().min(size)).rev();
        counts.filter(move |count| size > 0 && size - count <= max_others).flat_map(move |count| {
            let others = others.clone();
            subsets(hollow.clone(), count).flat_map(move |first| {
                let rest = subsets(others.clone(), size - count);
                rest.map(move |rest| [first.clone(), rest].concat())
            })
        })
    }
}

impl ExclusionTrials {
    fn new(active: Vec<Host>, spares: Vec<Host>) -> Self {
        Self { active, spares, tried: BTreeSet::new() }
    }

    /// The next trial: indices of nodes, and the spares that replace them. Each set of nodes is
    /// left out with several sets of spares, because a spare may be at fault, too. `None` when all
    /// have been tried.
    fn next(&self, spares: &[Host], choices: &Choices) -> Option<Vec<Swap>> {
        let is_new = |swaps: &[Swap]| !self.tried.contains(&names_of(swaps));
        let of_turn = |turn| self.next_of(choices.sets(spares.len()), turn, spares, &is_new);
        (0..spares.len()).find_map(of_turn)
    }

    /// The first of these sets that is new with the spares that are its turn.
    fn next_of(
        &self,
        sets: impl Iterator<Item = Vec<usize>>,
        turn: usize,
        spares: &[Host],
        is_new: &dyn Fn(&[Swap]) -> bool,
    ) -> Option<Vec<Swap>> {
        // Consecutive sets get different spares.
        let mut before = 0;
        for set in sets {
            let offset = turn * set.len();
            let swap = |(i, place): (usize, &usize)| {
                (*place, spares[(offset + before + i) % spares.len()].clone())
            };
            let swaps: Vec<Swap> = set.iter().enumerate().map(swap).collect();
            before += set.len();
            let fits = |(place, spare): &Swap| spare.fits(self.active[*place].slots);
            if offset < spares.len() && is_new(&swaps) && swaps.iter().all(fits) {
                return Some(swaps);
            }
        }
        None
    }
}

fn names_of(swaps: &[Swap]) -> BTreeSet<(usize, String)> {
    swaps.iter().map(|(place, spare)| (*place, spare.name.clone())).collect()
}

/// Whether one of `hosts` has this name; its slots may have changed.
fn has(hosts: &[Host], name: &str) -> bool {
    hosts.iter().any(|host| host.name == name)
}

pub(super) enum Exclusion {
    /// Which spare replaced which node: none where it would cost data, so that nodes are tried as
    /// they are.
    Of(Vec<Replacement>),
    /// Spares that were not waited for are needed: the nodes are to be asked again.
    NeedsSpares,
    GivenUp,
}

impl Decisions {
    /// Takes back the nodes of a trial that sent no heartbeat, so that they are probed, too.
    pub(super) fn take_back_trial(&mut self) {
        let Some(trials) = &self.trials else { return };
        let pool = &mut self.state.pool;
        pool.out.retain(|out| !has(&trials.active, &out.host.name));
        // A spare that was lost since then stays out.
        let is_out = |host: &&Host| pool.out.iter().any(|out| out.host.name == host.name);
        let spares = trials.spares.iter().filter(|host| !is_out(host));
        let is_other =
            |host: &&Host| !has(&trials.active, &host.name) && !has(&trials.spares, &host.name);
        pool.spares = spares.chain(pool.spares.iter().filter(is_other)).cloned().collect();
        pool.active = trials.active.clone();
    }

    /// Ends the trials once the job has sent a heartbeat: the nodes that were left out stay out.
    pub(super) fn end_trials(&mut self) {
        if let Some(trials) = self.trials.take() {
            let is_in_use = |host: &&Host| has(&self.state.pool.active, &host.name);
            let out = trials.active.iter().filter(|host| !is_in_use(host));
            let names: Vec<&str> = out.map(|host| host.name.as_str()).collect();
            if !names.is_empty() {
                let text =
                    format!("the job starts without {}, which stays out", short_names(names));
                self.notify("excluded", text);
            }
            self.ended_trials = Some(trials);
        }
    }

    /// Takes back the nodes that the last trials have left out: without them more is lost than can
    /// be rebuilt, and they may be reached again when the user repeats the command.
    pub(super) fn take_back_left_out(&mut self) {
        if self.ended_trials.is_some() {
            self.trials = self.ended_trials.take();
            self.take_back_trial();
        }
    }

    fn choices(&self) -> Choices {
        let active = &self.state.pool.active;
        let hollow = if self.has_data() { self.hollow() } else { Vec::new() };
        let max_rebuilt = if self.has_data() {
            self.options.parities.saturating_sub(hollow.len())
        } else {
            usize::MAX
        };
        let (doubted, away) = (self.doubts.all(), self.state.pool.away());
        // A node that shares has more than one rank to lose.
        let shares = |place: &usize| self.state.pool.guests.values().any(|at| at == place);
        let mut places: Vec<usize> =
            (0..active.len()).filter(|place| !away.contains(place) && !shares(place)).collect();
        let doubt = |place: &usize| doubted.iter().position(|name| *name == active[*place].name);
        places.sort_by_key(|place| doubt(place).unwrap_or(usize::MAX));
        let is_hollow = |place: &usize| hollow.contains(&active[*place].name);
        let (hollow, others) = places.into_iter().partition(is_hollow);
        Choices { hollow, others, max_rebuilt, every_set: self.has_lived() }
    }

    /// The spares that may take a place on trial: first those that are well, then those that were
    /// not waited for, unless the nodes were asked again for them.
    fn spares_for_trials(&self) -> Vec<Host> {
        let doubted = self.doubts.all();
        let rank = |host: &&Host| {
            let health = match self.health_of(&host.name) {
                Health::Well => 0,
                Health::Unknown if self.leaving.is_empty() => 1,
                Health::Unknown | Health::Ill(_) => return None,
            };
            Some((doubted.contains(&host.name), health))
        };
        let is_usable = |host: &&Host| !self.doubts.is_cut_off(&host.name) && rank(host).is_some();
        let mut spares: Vec<&Host> = self.state.pool.spares.iter().filter(is_usable).collect();
        spares.sort_by_key(rank);
        spares.into_iter().cloned().collect()
    }

    /// Leaves out nodes on trial.
    pub(super) fn exclude(&mut self) -> Exclusion {
        let (choices, spares) = (self.choices(), self.spares_for_trials());
        let pool = &self.state.pool;
        if spares.is_empty() && self.trials.is_none() {
            return Exclusion::Of(Vec::new());
        }
        let new = || ExclusionTrials::new(pool.active.clone(), pool.spares.clone());
        let trials = self.trials.get_or_insert_with(new);
        let Some(swaps) = trials.next(&spares, &choices) else {
            if choices.max_rebuilt == 0 {
                return Exclusion::Of(Vec::new());
            }
            self.trials = None;
            let why = "no start gave a sign of life, with each of the nodes left out in turn, and \
                       all of them answer: see what the launcher printed";
            self.give_up(why, Exit::BadInput);
            return Exclusion::GivenUp;
        };
        if swaps.iter().any(|(_, spare)| self.health_of(&spare.name) == Health::Unknown) {
            let left_out = swaps.iter().map(|(place, _)| pool.active[*place].name.clone());
            // Spares that the launcher does not reach take no place.
            let spares = pool.spares.iter().map(|host| &host.name);
            let cut_off = spares.filter(|name| self.doubts.is_cut_off(name)).cloned();
            self.leaving = left_out.chain(cut_off).collect();
            return Exclusion::NeedsSpares;
        }
        self.trials.as_mut().expect("made above").tried.insert(names_of(&swaps));
        let pool = &mut self.state.pool;
        let mut done = Vec::new();
        for (place, spare) in swaps {
            pool.spares.retain(|host| host.name != spare.name);
            let slots = pool.active[place].slots;
            let by = spare.name.clone();
            let host = std::mem::replace(&mut pool.active[place], Host { slots, ..spare });
            done.push(Replacement { lost: host.name.clone(), why: WHY.to_owned(), by });
            pool.out.push(OutOfUse { host, why: WHY.to_owned() });
        }
        Exclusion::Of(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(before: &str, count: usize) -> Vec<Host> {
        (1..=count).map(|i| Host { name: format!("{before}{i}"), slots: 1 }).collect()
    }

    /// Trials among this number of nodes, of which `max_rebuilt` may be left out at a time.
    fn any_of(nodes: usize, max_rebuilt: usize) -> Choices {
        Choices { others: (0..nodes).collect(), max_rebuilt, ..Choices::default() }
    }

    fn all(nodes: usize, spares: usize, choices: &Choices) -> Vec<Vec<(usize, String)>> {
        let mut trials = ExclusionTrials::new(hosts("n", nodes), Vec::new());
        let next = || {
            let swaps = trials.next(&hosts("s", spares), choices)?;
            assert!(trials.tried.insert(names_of(&swaps)), "twice: {swaps:?}");
            Some(swaps.into_iter().map(|(place, spare)| (place, spare.name)).collect())
        };
        std::iter::from_fn(next).take(1000).collect()
    }

    /// The number of trials until a start has none of the nodes `bad`.
    fn trials_until(nodes: usize, spares: usize, choices: &Choices, bad: &[&str]) -> Option<usize> {
        let is_good = |swaps: &Vec<(usize, String)>| {
            let is_left_out = |node: usize| swaps.iter().any(|(place, _)| *place == node);
            let is_bad = |name: &str| bad.contains(&name);
            (0..nodes).all(|node| is_left_out(node) || !is_bad(&format!("n{}", node + 1)))
                && !swaps.iter().any(|(_, spare)| is_bad(spare))
        };
        all(nodes, spares, choices).iter().position(is_good).map(|index| index + 1)
    }

    #[test]
    fn each_node_is_left_out_once_with_each_spare() {
        for bad in ["n1", "n2", "n3", "n4"] {
            assert!(trials_until(4, 1, &any_of(4, 1), &[bad]) <= Some(4));
            assert!(trials_until(4, 2, &any_of(4, 1), &[bad, "s1"]) <= Some(8), "{bad}");
            assert!(trials_until(4, 2, &any_of(4, 1), &[bad, "s2"]).is_some());
        }
        assert_eq!(trials_until(4, 1, &any_of(4, 1), &["n1", "n2"]), None);
        assert_eq!(trials_until(4, 0, &any_of(4, 1), &["n1"]), None);
    }

    #[test]
    fn halves_are_left_out_where_spares_suffice() {
        assert_eq!(trials_until(1000, 500, &any_of(1000, usize::MAX), &["n700"]), Some(2));
        let few = trials_until(1000, 500, &any_of(1000, 4), &["n9"]);
        assert_eq!(few, Some(3), "no more than can be rebuilt");
    }

    #[test]
    fn every_set_is_left_out_that_spares_and_the_checkpoint_allow() {
        for nodes in 2..=6 {
            for spares in 1..=3_usize {
                for max_rebuilt in 1..=3_usize {
                    let choices = Choices { every_set: true, ..any_of(nodes, max_rebuilt) };
                    let max_size = spares.min(max_rebuilt).min(nodes.div_ceil(2));
                    for size in 1..=max_size {
                        for bad in subsets((1..=nodes).collect(), size) {
                            let bad: Vec<String> = bad.iter().map(|i| format!("n{i}")).collect();
                            let bad: Vec<&str> = bad.iter().map(String::as_str).collect();
                            let found = trials_until(nodes, spares, &choices, &bad);
                            assert!(found.is_some(), "{nodes} + {spares}, {max_rebuilt}: {bad:?}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn nodes_without_data_are_left_out_first_in_any_number() {
        let places = |max_rebuilt: usize, every_set| {
            let (hollow, others) = (vec![1, 3], vec![0, 2]);
            let choices = Choices { hollow, others, max_rebuilt, every_set };
            let set = |swaps: &Vec<(usize, String)>| swaps.iter().map(|swap| swap.0).collect();
            all(4, 2, &choices).iter().map(set).collect::<Vec<Vec<usize>>>()
        };
        assert_eq!(places(0, false), [[1, 3]]);
        assert_eq!(places(1, false), [vec![1, 3], vec![0], vec![2], vec![0], vec![2]]);
        let every = places(1, true);
        assert!(every.contains(&vec![1, 0]) && every.contains(&vec![3, 2]), "{every:?}");
        assert!(!every.contains(&vec![0, 2]), "{every:?}");
    }
}
