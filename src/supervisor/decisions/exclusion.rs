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
    /// Indices in `active`, the most doubted nodes first.
    places: Vec<usize>,
    /// Number of nodes left out at a time.
    at_once: usize,
    done: usize,
}

impl ExclusionTrials {
    /// Trials that leave out at most `most` nodes at a time, because their data has to be rebuilt;
    /// half of the nodes at most, and no more than there are spares.
    fn new(active: Vec<Host>, spares: Vec<Host>, doubted: &[String], most: usize) -> Self {
        let mut places: Vec<usize> = (0..active.len()).collect();
        places.sort_by_key(|place| !doubted.contains(&active[*place].name));
        let at_once = most.min(spares.len()).min(active.len().div_ceil(2)).max(1);
        Self { active, spares, places, at_once, done: 0 }
    }

    /// The next trial: indices of nodes, and the spares that replace them. Each node is left out
    /// once with each group of spares, because a spare may be at fault, too. `None` when all have
    /// been tried.
    fn next(&mut self) -> Option<Vec<(usize, Host)>> {
        if self.spares.is_empty() {
            return None;
        }
        let groups: Vec<&[usize]> = self.places.chunks(self.at_once).collect();
        loop {
            let (group, turn) = (self.done % groups.len(), self.done / groups.len());
            let first = turn * self.at_once;
            if first >= self.spares.len() {
                return None;
            }
            self.done += 1;
            // Consecutive groups get different spares.
            let spare =
                |i: usize| &self.spares[(first + group * self.at_once + i) % self.spares.len()];
            let swaps: Vec<(usize, Host)> = groups[group]
                .iter()
                .enumerate()
                .map(|(i, place)| (*place, spare(i).clone()))
                .collect();
            if swaps.iter().all(|(place, spare)| spare.fits(self.active[*place].slots)) {
                return Some(swaps);
            }
        }
    }
}

impl Decisions {
    /// Takes back the nodes of a trial that sent no heartbeat, so that they are probed, too.
    pub(super) fn take_back_trial(&mut self) {
        let Some(trials) = &self.trials else { return };
        let pool = &mut self.state.pool;
        pool.out.retain(|out| !trials.active.contains(&out.host));
        let is_known = |host: &Host| trials.active.contains(host) || trials.spares.contains(host);
        let others: Vec<Host> =
            pool.spares.iter().filter(|spare| !is_known(spare)).cloned().collect();
        pool.active = trials.active.clone();
        pool.spares = trials.spares.iter().cloned().chain(others).collect();
    }

    /// Ends the trials once the job has sent a heartbeat: the nodes that were left out stay out.
    pub(super) fn end_trials(&mut self) {
        if let Some(trials) = self.trials.take() {
            let is_in_use =
                |host: &&Host| self.state.pool.active.iter().any(|now| now.name == host.name);
            let out = trials.active.iter().filter(|host| !is_in_use(host));
            let names: Vec<&str> = out.map(|host| host.name.as_str()).collect();
            let text = format!("the job starts without {}, which stays out", names.join(", "));
            self.say("excluded", text);
        }
    }

    /// Leaves out nodes on trial, and returns which spare replaced which. `None` when the run is
    /// given up.
    pub(super) fn exclude(&mut self, spares: Vec<Host>) -> Option<Vec<Replacement>> {
        // Each node with data of a checkpoint that is left out is a loss to rebuild.
        let most = if self.rules.is_protected && self.has_lived() {
            self.rules.parities
        } else {
            usize::MAX
        };
        let pool = &self.state.pool;
        let new = || ExclusionTrials::new(pool.active.clone(), spares, &self.suspects, most);
        let trials = self.trials.get_or_insert_with(new);
        let Some(swaps) = trials.next() else {
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
        let mut trials = ExclusionTrials::new(hosts("n", nodes), hosts("s", spares), &[], most);
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
        let mut trials = ExclusionTrials::new(hosts("n", 4), hosts("s", 1), &["n3".into()], 1);
        assert_eq!(trials.next().unwrap()[0].0, 2);
    }
}
