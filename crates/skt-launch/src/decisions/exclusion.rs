//! Trials where nodes answer, but starts send no heartbeat: sets of nodes are left out in turn,
//! replaced by spares, until a start lives.
//!
//! A start in vain shows that one of its nodes is at fault, not which one. The nodes that the
//! launcher has named come first, all of them at once, since each start names only some of several.

use std::collections::BTreeSet;

use super::Decisions;
use super::running::CUT_OFF;
use crate::hosts::{Health, Host, OutOfUse, Replacement, short_names};
use skt_terms::exit::Exit;

const WHY: &str = "is left out on trial: no start with it has given a sign of life";
const WHY_CUT_OFF: &str = "is left out on trial: it is out of the launcher's reach";

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
    /// Nodes that the launcher does not reach.
    cut_off: Vec<usize>,
    /// Other nodes without data, which cost nothing, the most doubted ones first.
    hollow: Vec<usize>,
    /// Other nodes, the most doubted ones first.
    others: Vec<usize>,
    /// Nodes without data among all.
    is_hollow: BTreeSet<usize>,
    /// Number of nodes with data that may be left out at a time, since it has to be rebuilt.
    max_rebuilt: usize,
    /// Whether only nodes that the launcher does not reach are left out.
    only_cut_off: bool,
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
    /// Whether the nodes that the launcher does not reach explain failures: not if it reaches none.
    fn is_explained(&self) -> bool {
        !self.cut_off.is_empty() && self.hollow.len() + self.others.len() > 0
    }

    /// Whether the nodes that the launcher does not reach can all be left out at once.
    fn can_leave_out(&self, spares: usize) -> bool {
        let has_data = |place: &&usize| !self.is_hollow.contains(place);
        let with_data = self.cut_off.iter().filter(has_data).count();
        self.cut_off.len() <= spares && with_data <= self.max_rebuilt
    }

    /// Sets of nodes that the launcher does not reach, in the order in which they are left out. If
    /// it cannot be all at once, but all but one, these sets come first, since a launcher may name
    /// one too many. Then come all, since images may restore more than checkpoints do.
    fn cut_off_sets(&self, spares: usize) -> Box<dyn Iterator<Item = Vec<usize>> + '_> {
        if !self.is_explained() {
            return Box::new(std::iter::empty());
        }
        let count = self.cut_off.len();
        let whole = (count <= spares).then(|| self.cut_off.clone()).into_iter();
        if self.can_leave_out(spares) {
            return Box::new(whole);
        }
        let (hollow, others) = self.split(&self.cut_off);
        let some = self.mixed(hollow, others, count - 1);
        Box::new(some.filter(move |set| set.len() == count - 1 && count - 1 <= spares).chain(whole))
    }

    /// Sets of any nodes, with at most `spares` nodes each, in the order in which they are left out
    /// once those that the launcher does not reach were left out in vain.
    fn other_sets(&self, spares: usize) -> Box<dyn Iterator<Item = Vec<usize>> + '_> {
        if self.only_cut_off || (self.is_explained() && !self.can_leave_out(spares)) {
            return Box::new(std::iter::empty());
        }
        let (hollow, others) = self.split(&self.cut_off);
        let hollow = [hollow, self.hollow.clone()].concat();
        let others = [others, self.others.clone()].concat();
        let max_size = spares.min((hollow.len() + others.len()).div_ceil(2));
        let chunks = [(&hollow, max_size), (&others, max_size.min(self.max_rebuilt))]
            .into_iter()
            .filter(|(_, size)| *size > 0)
            .flat_map(|(places, size)| places.chunks(size).map(<[usize]>::to_vec))
            .collect::<Vec<_>>();
        let max_size = if self.every_set { max_size } else { 0 };
        let sizes = (1..=max_size).rev();
        let every = sizes.flat_map(move |size| self.mixed(hollow.clone(), others.clone(), size));
        Box::new(chunks.into_iter().chain(every))
    }

    fn split(&self, places: &[usize]) -> (Vec<usize>, Vec<usize>) {
        places.iter().partition(|place| self.is_hollow.contains(place))
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
        let turns = || 0..spares.len();
        let is_new = |swaps: &[Swap]| !self.tried.contains(&names_of(swaps));
        if choices.is_explained() && !choices.can_leave_out(spares.len()) {
            // Hardly any hope is left: each set is left out once.
            let places = |set: &BTreeSet<(usize, String)>| -> BTreeSet<usize> {
                set.iter().map(|(place, _)| *place).collect()
            };
            let tried: BTreeSet<BTreeSet<usize>> = self.tried.iter().map(places).collect();
            let is_new = |swaps: &[Swap]| !tried.contains(&places(&names_of(swaps)));
            return self.next_of(choices.cut_off_sets(spares.len()), 0, spares, &is_new);
        }
        let of_cut_off =
            |turn| self.next_of(choices.cut_off_sets(spares.len()), turn, spares, &is_new);
        let of_others =
            |turn| self.next_of(choices.other_sets(spares.len()), turn, spares, &is_new);
        turns().find_map(of_cut_off).or_else(|| turns().find_map(of_others))
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

    /// Nodes in use without data: each is a loss that the next start has to rebuild.
    pub(super) fn hollow(&self) -> Vec<String> {
        let names = self.state.pool.active.iter().map(|host| &host.name);
        names.filter(|name| self.state.hollow.contains(*name)).cloned().collect()
    }

    /// The nodes in use that the launcher does not reach, and of which no test has shown that their
    /// links are alive.
    pub(super) fn cut_off_in_use(&self) -> Option<String> {
        let placed = self.state.pool.placed();
        let names = placed.active.iter().map(|host| host.name.as_str());
        let names: Vec<&str> = names.filter(|name| self.doubts.is_cut_off(name)).collect();
        (!names.is_empty()).then(|| short_names(names))
    }

    fn choices(&self, is_unreached: bool) -> Choices {
        let active = &self.state.pool.active;
        // Each node with data of a checkpoint that is left out is a loss to rebuild.
        let has_data = self.options.is_protected && self.has_lived();
        let hollow = if has_data { self.hollow() } else { Vec::new() };
        let parities = if has_data { self.options.parities } else { usize::MAX };
        let (doubted, cut_off) = (self.doubts.all(), self.doubts.cut_off(is_unreached));
        let away = self.state.pool.away();
        let mut places: Vec<usize> =
            (0..active.len()).filter(|place| !away.contains(place)).collect();
        let doubt = |place: &usize| doubted.iter().position(|name| *name == active[*place].name);
        places.sort_by_key(|place| doubt(place).unwrap_or(usize::MAX));
        let is_hollow = |place: &usize| hollow.contains(&active[*place].name);
        let (cut_off, others): (Vec<usize>, Vec<usize>) =
            places.iter().partition(|place| cut_off.contains(&active[**place].name));
        let (of_spares, others) = others.into_iter().partition(is_hollow);
        Choices {
            cut_off,
            hollow: of_spares,
            others,
            is_hollow: places.into_iter().filter(is_hollow).collect(),
            max_rebuilt: parities.saturating_sub(hollow.len()),
            only_cut_off: !is_unreached,
            every_set: self.has_lived(),
        }
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

    /// Leaves out nodes on trial. If a start has sent heartbeats, these are only nodes that the
    /// launcher does not reach.
    pub(super) fn exclude(&mut self, is_unreached: bool) -> Exclusion {
        let (choices, spares) = (self.choices(is_unreached), self.spares_for_trials());
        let pool = &self.state.pool;
        // A launcher that reaches no node has lost its own link, which may be back soon.
        let reaches_none = !choices.cut_off.is_empty() && !choices.is_explained();
        if reaches_none || (spares.is_empty() && self.trials.is_none()) {
            return Exclusion::Of(Vec::new());
        }
        let new = || ExclusionTrials::new(pool.active.clone(), pool.spares.clone());
        let trials = self.trials.get_or_insert_with(new);
        let Some(swaps) = trials.next(&spares, &choices) else {
            if !is_unreached || (choices.max_rebuilt == 0 && !choices.is_explained()) {
                return Exclusion::Of(Vec::new());
            }
            self.give_up_trials(&choices, spares.len());
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
            let why = if choices.cut_off.contains(&place) { WHY_CUT_OFF } else { WHY }.to_owned();
            done.push(Replacement { lost: host.name.clone(), why: why.clone(), by });
            pool.out.push(OutOfUse { host, why });
        }
        Exclusion::Of(done)
    }

    /// Gives the run up after the last trial.
    fn give_up_trials(&mut self, choices: &Choices, spares: usize) {
        self.trials = None;
        if choices.cut_off.is_empty() {
            let why = "no start gave a sign of life, with each of the nodes left out in turn, and \
                       all of them answer: see what the launcher printed";
            return self.give_up(why, Exit::BadInput);
        }
        let active = &self.state.pool.active;
        let names: Vec<&str> =
            choices.cut_off.iter().map(|place| active[*place].name.as_str()).collect();
        let (needed, names) = (names.len(), short_names(names));
        if needed > spares {
            let why = format!("{names}: {CUT_OFF}; spare nodes needed: {needed}, left: {spares}");
            self.give_up(&why, Exit::Interrupted);
        } else {
            let why = format!(
                "{names}: {CUT_OFF}; no start without them gave a sign of life either: see what \
                 the launcher printed"
            );
            self.give_up(&why, Exit::BadInput);
        }
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
    fn cut_off_nodes_are_left_out_at_once() {
        let places = |spares, cut_off: &[usize], max_rebuilt| {
            let others = (0..4).filter(|place| !cut_off.contains(place)).collect();
            let cut_off = cut_off.to_vec();
            let choices = Choices { cut_off, others, max_rebuilt, ..Choices::default() };
            let set = |swaps: &Vec<(usize, String)>| swaps.iter().map(|swap| swap.0).collect();
            all(4, spares, &choices).iter().map(set).collect::<Vec<Vec<usize>>>()
        };
        assert_eq!(places(2, &[1, 3], 2)[0], [1, 3]);
        assert_eq!(places(2, &[3], 2)[..2], [[3], [3]], "with the other spare");
        // More than the checkpoint can rebuild: some of them, then all, and no others.
        assert_eq!(places(2, &[1, 3], 1)[..3], [vec![1], vec![3], vec![1, 3]]);
        let mut some = places(2, &[1, 3], 1).into_iter().flatten();
        assert!(some.all(|place| [1, 3].contains(&place)));
        assert_eq!(places(1, &[1, 3], 2), [[1], [3]], "too few spares");
        assert_eq!(places(2, &[1, 3], 0), [[1, 3]]);
        assert_eq!(places(1, &[0, 1, 3], 2), [[0; 0]; 0], "far too few spares");
    }

    #[test]
    fn nodes_without_data_are_left_out_first_in_any_number() {
        let places = |max_rebuilt: usize, every_set| {
            let (hollow, others) = (vec![1, 3], vec![0, 2]);
            let is_hollow = hollow.iter().copied().collect();
            let choices =
                Choices { hollow, others, is_hollow, max_rebuilt, every_set, ..Choices::default() };
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
