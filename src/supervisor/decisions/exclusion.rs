//! Trials where starts send no heartbeat and neither the agent nor the links tell why: nodes are
//! left out in turn, replaced by spares, until a start lives.

use super::Decisions;
use crate::supervisor::hosts::{Host, OutOfUse, Replacement};
use skt_terms::exit::Exit;

const WHY: &str = "is left out on trial: no start with it has given a sign of life";

/// The trials after a start without a heartbeat.
#[derive(Debug)]
pub(super) struct ExclusionTrials {
    /// The nodes in use before the first trial, in the order of their ranks.
    active: Vec<Host>,
    /// The spares that were well at that time.
    spares: Vec<Host>,
    /// What is left out in turn, the most doubted nodes first.
    groups: Vec<Group>,
    /// Whether there are nodes that no trial leaves out, since their data could not be rebuilt.
    spares_data: bool,
    done: usize,
}

/// Nodes that are left out at a time.
#[derive(Debug)]
struct Group {
    /// Indices among the nodes in use.
    places: Vec<usize>,
    /// Number of nodes in each group of this kind, except the last.
    at_once: usize,
}

/// What leaving nodes out may cost.
struct Costs<'a> {
    /// Nodes without data: leaving them out costs nothing.
    hollow: &'a [String],
    /// Number of other nodes that may be left out at a time, because their data has to be rebuilt.
    most: usize,
}

impl ExclusionTrials {
    /// Trials that leave out half of the nodes at most, no more than there are spares, and no more
    /// than `costs` allows. Those that cost nothing come first.
    fn new(active: Vec<Host>, spares: Vec<Host>, doubted: &[String], costs: &Costs) -> Self {
        let mut places: Vec<usize> = (0..active.len()).collect();
        places.sort_by_key(|place| !doubted.contains(&active[*place].name));
        let is_hollow = |place: &usize| costs.hollow.contains(&active[*place].name);
        let (hollow, others): (Vec<usize>, Vec<usize>) = places.into_iter().partition(is_hollow);
        let at_most = spares.len().min(active.len().div_ceil(2)).max(1);
        let mut groups = Vec::new();
        for (places, at_once) in [(hollow, at_most), (others, at_most.min(costs.most))] {
            if at_once > 0 {
                let group = |places: &[usize]| Group { places: places.to_vec(), at_once };
                groups.extend(places.chunks(at_once).map(group));
            }
        }
        Self { active, spares, groups, spares_data: costs.most == 0, done: 0 }
    }

    /// The next trial: indices of nodes, and the spares that replace them. Each node is left out
    /// once with each group of spares, because a spare may be at fault, too. `None` when all have
    /// been tried.
    fn next(&mut self) -> Option<Vec<(usize, Host)>> {
        let spares = self.spares.len();
        loop {
            let index = self.done.checked_rem(self.groups.len())?;
            let turn = self.done / self.groups.len();
            if self.groups.iter().all(|group| turn * group.at_once >= spares) {
                return None;
            }
            self.done += 1;
            let group = &self.groups[index];
            if turn * group.at_once >= spares {
                continue;
            }
            // Consecutive groups get different spares.
            let before: usize = self.groups[..index].iter().map(|group| group.places.len()).sum();
            let spare = |i: usize| &self.spares[(turn * group.at_once + before + i) % spares];
            let places = group.places.iter().enumerate();
            let swaps: Vec<(usize, Host)> =
                places.map(|(i, place)| (*place, spare(i).clone())).collect();
            if swaps.iter().all(|(place, spare)| spare.fits(self.active[*place].slots)) {
                return Some(swaps);
            }
        }
    }
}

/// Whether one of `hosts` has this name; its slots may have changed.
fn has(hosts: &[Host], name: &str) -> bool {
    hosts.iter().any(|host| host.name == name)
}

impl Decisions {
    /// Takes back the nodes of a trial that sent no heartbeat, so that they are probed, too.
    pub(super) fn take_back_trial(&mut self) {
        let Some(trials) = &self.trials else { return };
        let pool = &mut self.state.pool;
        pool.out.retain(|out| !has(&trials.active, &out.host.name));
        // A spare that was lost meanwhile stays out.
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
                let text = format!("the job starts without {}, which stays out", names.join(", "));
                self.say("excluded", text);
            }
        }
    }

    /// Nodes in use without data: each is a loss that the next start has to rebuild.
    pub(super) fn hollow(&self) -> Vec<String> {
        let names = self.state.pool.active.iter().map(|host| &host.name);
        names.filter(|name| self.state.hollow.contains(*name)).cloned().collect()
    }

    /// Leaves out nodes on trial, and returns which spare replaced which node: none where it would
    /// cost data, so that nodes are tried as they are. `None` when the run is given up.
    pub(super) fn exclude(&mut self, mut spares: Vec<Host>) -> Option<Vec<Replacement>> {
        // Each node with data of a checkpoint that is left out is a loss to rebuild.
        let has_data = self.rules.is_protected && self.has_lived();
        let hollow = if has_data { self.hollow() } else { Vec::new() };
        let parities = if has_data { self.rules.parities } else { usize::MAX };
        let costs = Costs { hollow: &hollow, most: parities.saturating_sub(hollow.len()) };
        let pool = &self.state.pool;
        // A spare that was lost in a trial may have been at fault there: with those that are left
        // the trials begin anew.
        let is_left = |spare: &Host| has(&pool.spares, &spare.name);
        if let Some(trials) = self.trials.take_if(|trials| !trials.spares.iter().all(is_left)) {
            spares = trials.spares.into_iter().filter(is_left).collect();
        }
        let new = || ExclusionTrials::new(pool.active.clone(), spares, &self.suspects, &costs);
        let trials = self.trials.get_or_insert_with(new);
        let Some(swaps) = trials.next() else {
            if trials.spares_data {
                return Some(Vec::new());
            }
            self.trials = None;
            let why = "no start gave a sign of life, with each of the nodes left out in turn, and \
                       all of them answer: see what the launcher says";
            self.give_up(why, Exit::BadInput);
            return None;
        };
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
        Some(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(before: &str, count: usize) -> Vec<Host> {
        (1..=count).map(|i| Host { name: format!("{before}{i}"), slots: 1 }).collect()
    }

    /// The number of trials until a start has none of the nodes `bad`.
    fn trials_until(nodes: usize, spares: usize, most: usize, bad: &[&str]) -> Option<usize> {
        let costs = Costs { hollow: &[], most };
        let mut trials = ExclusionTrials::new(hosts("n", nodes), hosts("s", spares), &[], &costs);
        loop {
            let swaps = trials.next()?;
            let mut active = trials.active.clone();
            assert!(swaps.len() <= most, "{swaps:?}");
            swaps.into_iter().for_each(|(place, spare)| active[place] = spare);
            if !active.iter().any(|host| bad.contains(&host.name.as_str())) {
                return Some(trials.done);
            }
        }
    }

    #[test]
    fn each_node_is_left_out_once_with_each_spare() {
        for bad in ["n1", "n2", "n3", "n4"] {
            assert!(trials_until(4, 1, 1, &[bad]) <= Some(4));
            assert!(trials_until(4, 2, 1, &[bad, "s1"]) <= Some(8), "{bad}");
            assert!(trials_until(4, 2, 1, &[bad, "s2"]).is_some());
        }
        assert_eq!(trials_until(4, 1, 1, &["n1", "n2"]), None);
        assert_eq!(trials_until(4, 0, 1, &["n1"]), None);
    }

    #[test]
    fn halves_are_left_out_where_spares_suffice() {
        assert!(trials_until(1000, 500, usize::MAX, &["n700"]) == Some(2));
        assert!(trials_until(1000, 500, 4, &["n9"]) == Some(3), "no more than can be rebuilt");
    }

    #[test]
    fn what_the_launcher_has_named_is_left_out_first() {
        let costs = Costs { hollow: &[], most: 1 };
        let doubted = ["n3".to_owned()];
        let mut trials = ExclusionTrials::new(hosts("n", 4), hosts("s", 1), &doubted, &costs);
        assert_eq!(trials.next().unwrap()[0].0, 2);
    }

    #[test]
    fn nodes_without_data_are_left_out_before_others_and_in_any_number() {
        let hollow = ["n2".to_owned(), "n4".to_owned()];
        let places = |most: usize| {
            let costs = Costs { hollow: &hollow, most };
            let mut trials = ExclusionTrials::new(hosts("n", 4), hosts("s", 2), &[], &costs);
            let next = || trials.next().map(|swaps| swaps.iter().map(|swap| swap.0).collect());
            std::iter::from_fn(next).collect::<Vec<Vec<usize>>>()
        };
        assert_eq!(places(0), [[1, 3]]);
        assert_eq!(places(1), [vec![1, 3], vec![0], vec![2], vec![0], vec![2]]);
    }
}
