//! The nodes in use, the spares and those that are out; lost nodes are replaced here.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::Host;
use super::names::with_reasons;

/// Why a node is out that the list of nodes lacks. If a later list has it, it is a new node.
pub(crate) const UNLISTED: &str = "is not listed any more";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutOfUse {
    pub host: Host,
    pub why: String,
}

/// The nodes of a run: those in use, in the order of their ranks, those that
/// wait, and those that are out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    /// The nodes in use, and among them, in their places, the nodes that are *away*: lost, and
    /// their ranks run on others as well.
    pub active: Vec<Host>,
    pub spares: Vec<Host>,
    /// Nodes that failed a probe.
    pub out: Vec<OutOfUse>,
    /// For each slot of a node that is away, counted over the slots of `active`: the place of the
    /// node that runs its rank.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub guests: BTreeMap<usize, usize>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Health {
    Well,
    /// Not to be used, and why.
    Ill(String),
    /// The node's answer was not waited for: a spare that was not needed.
    #[default]
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replacement {
    pub lost: String,
    pub why: String,
    pub by: String,
}

/// The lost nodes with the reasons.
pub(crate) fn describe_lost(changes: &[Replacement]) -> String {
    with_reasons(changes.iter().map(|change| (change.lost.as_str(), change.why.as_str())))
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} cannot be used, and no spare node is left", with_reasons(
    lost.iter().map(|(name, why)| (name.as_str(), why.as_str()))
))]
pub(crate) struct SparesSpent {
    /// The lost nodes without a spare, each with the reason.
    pub lost: Vec<(String, String)>,
    /// The lost nodes that have a spare.
    pub replaced: Vec<Replacement>,
}

/// What takes the place of a lost node.
#[derive(Debug, Clone, Copy)]
enum Substitute {
    /// A spare, by its number.
    Spare(usize),
    /// A node that was away and is back, by its place.
    Back(usize),
}

impl Pool {
    /// A pool with all nodes well. A spare that is in use or listed twice counts once.
    pub fn new(active: Vec<Host>, spares: Vec<Host>) -> Self {
        let mut known: BTreeSet<String> = active.iter().map(|host| host.name.clone()).collect();
        let spares = spares.into_iter().filter(|spare| known.insert(spare.name.clone())).collect();
        Self { active, spares, ..Self::default() }
    }

    /// Ranks that fit on the nodes in use.
    pub fn ranks(&self) -> usize {
        // A state that was tampered with may have any.
        self.active.iter().fold(0, |sum: usize, host| sum.saturating_add(host.slots))
    }

    /// The first nodes in use, as many as this number of ranks needs.
    pub fn used(&self, ranks: usize) -> Vec<Host> {
        let mut left = ranks;
        let takes = |host: &Host| {
            let is_needed = left > 0;
            left -= host.slots.min(left);
            is_needed
        };
        self.placed().active.into_iter().take_while(takes).collect()
    }

    /// This pool with the nodes of `listed` that are new, or listed again, as further spares.
    pub(crate) fn with_new(mut self, listed: &Pool) -> Self {
        self.out.retain(|out| out.why != UNLISTED);
        let known: BTreeSet<String> = self.everyone().map(|host| host.name.clone()).collect();
        let new = listed.active.iter().chain(&listed.spares);
        self.spares.extend(new.filter(|host| !known.contains(&host.name)).cloned());
        self
    }

    /// Makes the nodes that are out spares again, and returns their names.
    pub(crate) fn readmit(&mut self) -> Vec<String> {
        let back: Vec<Host> = self.out.drain(..).map(|out| out.host).collect();
        let names = back.iter().map(|host| host.name.clone()).collect();
        self.spares.extend(back);
        names
    }

    /// For each node in use that is ill: its index, what takes its place, and the reason. The
    /// substitute is `None` if no node is well and large enough.
    fn substitutes(
        &self,
        health: &impl Fn(&str) -> Health,
    ) -> Vec<(usize, Option<Substitute>, String)> {
        let away = self.away();
        let spares = (0..self.spares.len()).map(Substitute::Spare);
        let mut free: Vec<_> = spares.chain(away.iter().copied().map(Substitute::Back)).collect();
        let mut chosen = Vec::new();
        for (place, host) in self.active.iter().enumerate().filter(|(p, _)| !away.contains(p)) {
            let Health::Ill(why) = health(&host.name) else { continue };
            let suits = |substitute: &Substitute| {
                let spare = match *substitute {
                    Substitute::Spare(index) => &self.spares[index],
                    Substitute::Back(place) => &self.active[place],
                };
                spare.fits(host.slots) && health(&spare.name) == Health::Well
            };
            let found = free.iter().position(suits).map(|index| free.remove(index));
            chosen.push((place, found, why));
        }
        chosen
    }

    /// Whether each node in use that is ill has a spare to take its place.
    pub(crate) fn can_replace(&self, health: impl Fn(&str) -> Health) -> bool {
        self.substitutes(&health).iter().all(|(_, spare, _)| spare.is_some())
    }

    /// Takes out the nodes that are ill. Spares that are well take the places of those that were in
    /// use, *in place*: the ranks of the others stay where they are. A spare needs as many slots as
    /// the node that it replaces; one that lists 1 is given them. A node that was away and is back
    /// takes the place of a lost one as a spare does, and that one is away instead. Where spares
    /// are too few, the lost nodes keep their places, so that the list is whole when they are back.
    pub(crate) fn replace(
        &mut self,
        health: impl Fn(&str) -> Health,
    ) -> Result<Vec<Replacement>, SparesSpent> {
        let mut spares: Vec<Option<Host>> = self.spares.iter().cloned().map(Some).collect();
        let mut done = Vec::new();
        let mut unreplaced = Vec::new();
        let mut lost = Vec::new();
        for (place, substitute, why) in self.substitutes(&health) {
            let Host { name, slots } = self.active[place].clone();
            let by = match substitute {
                None => {
                    unreplaced.push((name, why));
                    continue;
                }
                Some(Substitute::Back(back)) => {
                    let by = std::mem::replace(&mut self.active[back].name, name.clone());
                    self.active[place].name.clone_from(&by);
                    by
                }
                Some(Substitute::Spare(index)) => {
                    let spare = spares[index].take().expect("no other node has this spare");
                    let by = spare.name.clone();
                    let host = Host { name: spare.name, slots };
                    let host = std::mem::replace(&mut self.active[place], host);
                    lost.push(OutOfUse { host, why: why.clone() });
                    by
                }
            };
            done.push(Replacement { lost: name, why, by });
        }
        self.spares.clear();
        for spare in spares.into_iter().flatten() {
            match health(&spare.name) {
                Health::Ill(why) => self.out.push(OutOfUse { host: spare, why }),
                Health::Well | Health::Unknown => self.spares.push(spare),
            }
        }
        self.out.extend(lost);
        if unreplaced.is_empty() {
            Ok(done)
        } else {
            Err(SparesSpent { lost: unreplaced, replaced: done })
        }
    }

    /// All nodes, those that are out last.
    pub fn everyone(&self) -> impl Iterator<Item = &Host> {
        self.active.iter().chain(&self.spares).chain(self.out.iter().map(|out| &out.host))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str, slots: usize) -> Host {
        Host { name: name.to_owned(), slots }
    }

    fn names(hosts: &[Host]) -> Vec<&str> {
        hosts.iter().map(|host| host.name.as_str()).collect()
    }

    #[test]
    fn duplicate_spare_counts_once() {
        let spares = ["s1", "n1", "s1"].map(|name| host(name, 1)).to_vec();
        assert_eq!(names(&Pool::new(vec![host("n1", 1)], spares).spares), ["s1"]);
    }

    /// The allocations have no node in common, but the third has those of the first again.
    #[test]
    fn nodes_that_are_listed_again_are_spares_again() {
        let listed = |names: &[&str]| {
            Pool::new(names.iter().map(|name| host(name, 1)).collect(), Vec::new())
        };
        let lists = [listed(&["n1", "n2", "n3"]), listed(&["m1", "m2", "m3"])];
        let mut pool = Pool::new(lists[0].active[..2].to_vec(), lists[0].active[2..].to_vec());
        for turn in [1, 0, 1, 0] {
            pool = pool.with_new(&lists[turn]);
            let names: BTreeSet<&str> = names(&lists[turn].active).into_iter().collect();
            let health = |name: &str| {
                let is_listed = names.contains(name);
                if is_listed { Health::Well } else { Health::Ill(UNLISTED.to_owned()) }
            };
            assert_eq!(pool.replace(health).map(|replaced| replaced.len()), Ok(2));
            assert!(pool.active.iter().all(|host| names.contains(host.name.as_str())), "{pool:?}");
        }
        // What is out for another reason stays out.
        pool.out.push(OutOfUse { host: host("m9", 1), why: "silent".to_owned() });
        assert!(pool.with_new(&listed(&["m9"])).spares.iter().all(|spare| spare.name != "m9"));
    }

    #[test]
    fn spares_take_the_places_of_the_lost_nodes() {
        let mut pool = Pool::new(
            vec![host("n1", 2), host("n2", 2), host("n3", 2)],
            vec![host("n3", 2), host("s1", 1), host("s2", 2), host("s3", 2)],
        );
        assert_eq!(names(&pool.spares), ["s1", "s2", "s3"], "a node in use is no spare");
        let dead = |list: &'static [&str]| {
            move |name: &str| {
                if list.contains(&name) { Health::Ill("silent".to_owned()) } else { Health::Well }
            }
        };
        let done = pool.replace(dead(&["n2", "s2"])).unwrap();
        assert_eq!(names(&pool.active), ["n1", "s1", "n3"]);
        assert_eq!(pool.active[1].slots, 2);
        assert_eq!((done[0].lost.as_str(), done[0].by.as_str()), ("n2", "s1"));
        // Well again, but out.
        assert_eq!(pool.replace(dead(&[])).unwrap(), []);
        assert_eq!(names(&pool.active), ["n1", "s1", "n3"]);
        pool.replace(dead(&["n1"])).unwrap();
        let spent = pool.replace(dead(&["n3"])).unwrap_err();
        assert_eq!(spent.to_string(), "n3 (silent) cannot be used, and no spare node is left");
        assert_eq!(names(&pool.active), ["s3", "s1", "n3"]);
        assert_eq!(pool.ranks(), 6);
        assert_eq!(pool.readmit(), ["s2", "n2", "n1"]);
        pool.replace(dead(&["n3"])).unwrap();
        assert_eq!(names(&pool.active), ["s3", "s1", "s2"]);
    }

    #[test]
    fn spare_with_too_few_slots_stays_a_spare() {
        let mut pool = Pool::new(vec![host("n1", 4)], vec![host("s1", 2)]);
        let off = |name: &str| match name {
            "n1" => Health::Ill("off".to_owned()),
            _ => Health::Well,
        };
        let spent = pool.replace(off).unwrap_err();
        assert_eq!(spent.lost, [("n1".to_owned(), "off".to_owned())]);
        assert_eq!(names(&pool.spares), ["s1"]);
    }
}
