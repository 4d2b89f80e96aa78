//! The nodes in use, the spares and those that are out; lost nodes are replaced here.
//!
//! Where a lost node has no spare, it may be *away*: each of its ranks is a further rank of another
//! node. What runs where follows from the places in `active` and from `guests` alone, so the next
//! supervisor finds the same in the saved state.

use super::Host;
use crate::SharingLimits;
use serde::{Deserialize, Serialize};
use skt_host::host_names::with_reasons;
use skt_host::units::counted;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

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

type Substitute<'a> = Option<(&'a Host, Option<usize>)>;

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

    /// For each node in use that is ill: its place, the node that takes it, with the place of that
    /// one if it was away and is back, and the reason. `None` if no node is well and large enough.
    fn substitutes(
        &self,
        health: &impl Fn(&str) -> Health,
    ) -> Vec<(usize, Substitute<'_>, String)> {
        let away = self.away();
        let back = away.iter().map(|place| (&self.active[*place], Some(*place)));
        let mut free: Vec<_> = self.spares.iter().map(|spare| (spare, None)).chain(back).collect();
        let mut chosen = Vec::new();
        for (place, host) in self.active.iter().enumerate().filter(|(p, _)| !away.contains(p)) {
            let Health::Ill(why) = health(&host.name) else { continue };
            let suits = |(spare, _): &(&Host, Option<usize>)| {
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
        let (mut done, mut unreplaced, mut lost) = (Vec::new(), Vec::new(), Vec::new());
        let mut active = self.active.clone();
        let mut taken = BTreeSet::new();
        for (place, substitute, why) in self.substitutes(&health) {
            let host = self.active[place].clone();
            let Some((Host { name: by, .. }, back)) = substitute else {
                unreplaced.push((host.name, why));
                continue;
            };
            active[place].name.clone_from(by);
            done.push(Replacement { lost: host.name.clone(), why: why.clone(), by: by.clone() });
            if let Some(back) = back {
                active[back].name = host.name;
            } else {
                taken.insert(by.clone());
                lost.push(OutOfUse { host, why });
            }
        }
        self.active = active;
        for spare in std::mem::take(&mut self.spares) {
            match health(&spare.name) {
                _ if taken.contains(&spare.name) => {}
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

/// Why a node cannot take one rank more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lack {
    pub why: String,
    /// The memory that is missing.
    pub bytes: u64,
}

impl Pool {
    /// The slots of each node in `active`.
    pub(crate) fn slots(&self) -> Vec<Range<usize>> {
        let mut next = 0_usize;
        let slots = |host: &Host| {
            let first = next;
            next = next.saturating_add(host.slots);
            first..next
        };
        self.active.iter().map(slots).collect()
    }

    /// The places of the nodes that are away.
    pub(crate) fn away(&self) -> BTreeSet<usize> {
        if self.guests.is_empty() {
            return BTreeSet::new();
        }
        let slots = self.slots().into_iter().enumerate();
        slots
            .filter(|(_, of)| self.guests.range(of.clone()).next().is_some())
            .map(|(p, _)| p)
            .collect()
    }

    /// The nodes that are away: lost, while their ranks run on other nodes.
    pub fn hosts_away(&self) -> Vec<Host> {
        self.away().into_iter().map(|place| self.active[place].clone()).collect()
    }

    /// The nodes whose ranks run at a place of `active`: the one that is there, and those that are
    /// away and have ranks there.
    pub(crate) fn homes(&self, place: usize) -> impl Iterator<Item = &str> {
        let slots = self.slots();
        let of_guests = self.guests.iter().filter(move |(_, at)| **at == place);
        let home = move |slot: &usize| slots.iter().position(|of| of.contains(slot));
        let places = of_guests.filter_map(move |(slot, _)| home(slot));
        std::iter::once(place).chain(places).map(|place| &*self.active[place].name)
    }

    /// What runs where: `active` without the nodes that are away, with the ranks that each node
    /// runs as its slots. The nodes that are away are the last spares.
    #[must_use]
    pub fn placed(&self) -> Self {
        let (away, mut placed) = (self.away(), self.clone());
        for place in self.guests.values() {
            if let Some(host) = placed.active.get_mut(*place) {
                host.slots += 1;
            }
        }
        placed.guests.clear();
        placed.spares.extend(self.hosts_away());
        let mut places = 0..;
        placed.active.retain(|_| places.next().is_none_or(|place| !away.contains(&place)));
        placed
    }

    /// Gives those of the first `ranks` ranks that run on nodes which are ill to other nodes.
    /// `lack` returns what a node lacks for a number of ranks. Returns which nodes have which. If a
    /// rank finds no node, changes nothing and returns why.
    pub(crate) fn share(
        &mut self,
        ranks: usize,
        health: impl Fn(&str) -> Health,
        limits: &SharingLimits,
        lack: impl Fn(&str, usize) -> Option<Lack>,
    ) -> Result<Vec<Replacement>, String> {
        let (slots, away) = (self.slots(), self.away());
        let ill = |place: &usize| match health(&self.active[*place].name) {
            Health::Ill(why) if !away.contains(place) => Some((*place, why)),
            _ => None,
        };
        let ill: BTreeMap<usize, String> =
            (0..self.active.len()).filter_map(|place| ill(&place)).collect();
        let mut guests = self.guests.clone();
        guests.retain(|_, place| !ill.contains_key(place));
        let of_place = |place: usize| slots[place].clone().filter(|slot| *slot < ranks);
        let moved = self.guests.keys().filter(|slot| !guests.contains_key(slot)).copied();
        let homeless: BTreeSet<usize> =
            ill.keys().flat_map(|place| of_place(*place)).chain(moved).collect();
        let is_present = |place: &usize| !away.contains(place) && !ill.contains_key(place);
        let present: Vec<usize> = (0..self.active.len()).filter(is_present).collect();
        let name = |place: usize| &self.active[place].name;
        let domain = |place: usize| limits.domains.get(name(place)).unwrap_or(name(place));
        for slot in homeless {
            let group = limits.groups.get(slot);
            // How many ranks each node has, its guests, and the ranks of the group in each domain.
            let mut held: BTreeMap<&str, usize> = BTreeMap::new();
            let mut count = |place: usize| {
                let own = of_place(place);
                let of_guests =
                    guests.iter().filter(|(_, at)| **at == place).map(|(slot, _)| *slot);
                let of_guests: Vec<usize> = of_guests.collect();
                let (mut ranks, mut alike) = (0, 0);
                for slot in own.chain(of_guests.iter().copied()) {
                    ranks += 1;
                    alike += usize::from(limits.groups.get(slot) == group);
                }
                *held.entry(domain(place)).or_default() += alike;
                (place, ranks, of_guests.len())
            };
            let mut nodes: Vec<_> = present.iter().map(|place| count(*place)).collect();
            // First where the failure domain has few enough of the group, then the fewest guests.
            let in_domain = |place| held[domain(place).as_str()];
            nodes.sort_by_key(|&(place, _, of_guests)| {
                (in_domain(place) >= limits.most, of_guests, in_domain(place), place)
            });
            let lacks =
                nodes.iter().map(|&(place, ranks, _)| (place, lack(name(place), ranks + 1)));
            let lacks: Vec<(usize, Option<Lack>)> = lacks.collect();
            match lacks.iter().find(|(_, lack)| lack.is_none()) {
                Some((place, _)) if limits.is_strict && in_domain(*place) >= limits.most => {
                    return Err(format!(
                        "each other node has {} of its process row already, more than which its \
                         loss must not take",
                        counted(limits.most, "rank")
                    ));
                }
                Some((place, _)) => drop(guests.insert(slot, *place)),
                None => {
                    let lacks = lacks.into_iter().filter_map(|(place, it)| Some((place, it?)));
                    let least = lacks.min_by_key(|(_, lack)| lack.bytes);
                    return Err(least.map_or(
                        "no other node is left".to_owned(),
                        |(place, lack)| {
                            let name = name(place);
                            format!("no other node has room for one more rank, {name} {}", lack.why)
                        },
                    ));
                }
            }
        }
        self.guests = guests;
        let replacement = |(place, why): (usize, String)| {
            let by: BTreeSet<usize> =
                of_place(place).filter_map(|slot| self.guests.get(&slot).copied()).collect();
            let by: Vec<&str> = by.iter().map(|place| &*self.active[*place].name).collect();
            Replacement { lost: self.active[place].name.clone(), why, by: by.join(", ") }
        };
        Ok(ill.into_iter().map(replacement).collect())
    }

    /// Ends the sharing of nodes whose own machine is back, or for which a spare is there, as long
    /// as no more than `ranks` ranks move. A node that shared keeps the data of as many ranks as it
    /// runs, so each rank that moves is one loss to rebuild. Returns each node that was away, and
    /// the one that has its ranks now.
    pub(crate) fn unshare(
        &mut self,
        health: impl Fn(&str) -> Health,
        mut ranks: usize,
    ) -> Vec<Replacement> {
        let (slots, mut done) = (self.slots(), Vec::new());
        for place in self.away() {
            let Host { name, slots: count } = self.active[place].clone();
            let of_place: Vec<usize> =
                self.guests.range(slots[place].clone()).map(|(slot, _)| *slot).collect();
            let suits = |spare: &Host| spare.fits(count) && health(&spare.name) == Health::Well;
            let is_back = health(&name) == Health::Well;
            let spare = self.spares.iter().position(suits).filter(|_| !is_back);
            if of_place.len() > ranks || !(is_back || spare.is_some()) {
                continue;
            }
            ranks -= of_place.len();
            self.guests.retain(|slot, _| !of_place.contains(slot));
            let why = "had its ranks on other nodes".to_owned();
            if let Some(spare) = spare {
                let spare = self.spares.remove(spare).name;
                let host = Host { name: spare, slots: count };
                let host = std::mem::replace(&mut self.active[place], host);
                self.out.push(OutOfUse { host, why: why.clone() });
            }
            done.push(Replacement { lost: name, why, by: self.active[place].name.clone() });
        }
        done
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

    fn pool(slots: &[usize], spares: &[&str]) -> Pool {
        let host =
            |(index, slots): (usize, &usize)| Host { name: format!("n{index}"), slots: *slots };
        let spares = spares.iter().map(|name| Host { name: (*name).to_owned(), slots: 1 });
        Pool::new(slots.iter().enumerate().map(host).collect(), spares.collect())
    }

    fn off<'a>(names: &'a [&str]) -> impl Fn(&str) -> Health + 'a {
        let ill = || Health::Ill("off".to_owned());
        move |name| if names.contains(&name) { ill() } else { Health::Well }
    }

    fn placed(pool: &Pool) -> String {
        let text = |host: Host| format!("{}:{}", host.name, host.slots);
        pool.placed().active.into_iter().map(text).collect::<Vec<_>>().join(" ")
    }

    /// Shares among nodes with memory for any number of ranks but for those listed.
    fn shared(pool: &mut Pool, lost: &[&str], most: usize, full: &[(&str, usize)]) -> String {
        let ranks = pool.active.iter().map(|host| host.slots).sum();
        shared_by(ranks, pool, lost, most, full)
    }

    fn shared_by(
        ranks: usize,
        pool: &mut Pool,
        lost: &[&str],
        most: usize,
        full: &[(&str, usize)],
    ) -> String {
        let groups: Vec<usize> = (0..ranks).map(|slot| slot % 2).collect();
        let lack = |name: &str, ranks: usize| {
            let is_full = full.iter().any(|(node, most)| *node == name && ranks > *most);
            is_full.then(|| Lack { why: "is full".to_owned(), bytes: 1 })
        };
        let limits =
            SharingLimits { groups, most, is_strict: most > 1, ..SharingLimits::default() };
        pool.share(ranks, off(lost), &limits, lack).map_or_else(|why| why, |_| placed(pool))
    }

    #[test]
    fn ranks_go_where_their_group_has_none_and_guests_are_few() {
        // Even nodes have group 0, odd ones group 1.
        let mut nodes = pool(&[1; 6], &[]);
        assert_eq!(shared(&mut nodes, &["n2"], 1, &[]), "n0:1 n1:2 n3:1 n4:1 n5:1");
        assert_eq!(nodes.guests, BTreeMap::from([(2, 1)]));
        // Nothing more is lost: nothing moves.
        assert_eq!(shared(&mut nodes, &["n2"], 1, &[]), "n0:1 n1:2 n3:1 n4:1 n5:1");
        assert_eq!(shared(&mut nodes, &["n2", "n4"], 1, &[]), "n0:1 n1:2 n3:2 n5:1");
        // The guest goes elsewhere, as does the rank of its node.
        assert_eq!(shared(&mut nodes, &["n2", "n4", "n1"], 1, &[]), "n0:2 n3:2 n5:2");
        assert_eq!(nodes.hosts_away().len(), 3);
        assert_eq!(nodes.placed().ranks(), 6);
    }

    #[test]
    fn slots_of_a_node_are_spread_over_several() {
        let mut nodes = pool(&[2, 2, 2], &[]);
        assert_eq!(shared(&mut nodes, &["n0"], 1, &[]), "n1:3 n2:3");
        assert_eq!(nodes.guests, BTreeMap::from([(0, 1), (1, 2)]));
        assert_eq!(shared(&mut nodes, &["n0", "n2"], 1, &[]), "n1:6");
    }

    #[test]
    fn memory_is_needed_for_ranks_and_not_for_slots_without_one() {
        let mut nodes = pool(&[1, 4], &[]);
        assert_eq!(shared_by(3, &mut nodes, &["n0"], 1, &[("n1", 3)]), "n1:5");
        let mut nodes = pool(&[1, 4], &[]);
        assert!(shared_by(3, &mut nodes, &["n0"], 1, &[("n1", 2)]).ends_with("n1 is full"));
    }

    #[test]
    fn nodes_without_memory_or_with_a_full_process_row_take_no_rank() {
        let mut nodes = pool(&[1; 4], &[]);
        assert_eq!(shared(&mut nodes, &["n2"], 1, &[("n1", 1)]), "n0:1 n1:1 n3:2");
        let before = pool(&[1; 3], &[]);
        let mut nodes = before.clone();
        let full = [("n0", 1), ("n1", 1)];
        assert!(shared(&mut nodes, &["n2"], 1, &full).ends_with("n1 is full"));
        assert_eq!(nodes, before);
        // Each of the two others would have three of the group.
        let mut nodes = pool(&[4, 4, 4], &[]);
        assert_eq!(
            shared(&mut nodes, &["n0"], 2, &[]),
            "each other node has 2 ranks of its process row already, more than which its loss must not \
             take"
        );
        assert_eq!(shared(&mut pool(&[1], &[]), &["n0"], 1, &[]), "no other node is left");
    }

    #[test]
    fn a_node_that_is_back_ends_the_sharing_or_replaces_another() {
        let mut nodes = pool(&[1; 4], &[]);
        shared(&mut nodes, &["n2"], 1, &[]);
        // n3 is lost when n2 is back: nothing is moved but the rank of n3.
        let mut later = nodes.clone();
        assert_eq!(later.replace(off(&["n3"])).unwrap()[0].by, "n2");
        assert_eq!(placed(&later), "n0:1 n1:2 n2:1");
        assert_eq!(later.hosts_away()[0].name, "n3");
        assert!(later.unshare(off(&["n3"]), 1).is_empty());
        assert_eq!(nodes.unshare(off(&[]), 0), []);
        assert_eq!(nodes.unshare(off(&[]), 1)[0].by, "n2");
        assert_eq!(placed(&nodes), "n0:1 n1:1 n2:1 n3:1");
        assert_eq!(nodes, pool(&[1; 4], &[]));
    }

    #[test]
    fn a_spare_that_is_added_ends_the_sharing() {
        let mut nodes = pool(&[1; 4], &[]);
        shared(&mut nodes, &["n2"], 1, &[]);
        nodes = nodes.with_new(&pool(&[], &["s1"]));
        assert_eq!(nodes.unshare(off(&["n2", "s1"]), 1), []);
        assert_eq!(nodes.unshare(off(&["n2"]), 1)[0].by, "s1");
        assert_eq!(placed(&nodes), "n0:1 n1:1 s1:1 n3:1");
        assert_eq!(nodes.out[0].host.name, "n2");
        assert!(nodes.guests.is_empty() && nodes.spares.is_empty());
    }
}
