//! Every crash point of the end of a run.
//!
//! A job takes a checkpoint or none, comes to its end, reports and removes its segments. At every
//! step of that, every set of up to m members is killed, with the others stopping at once or
//! continuing as far as they can, and with the memory of the dead lost or kept, or (if a mark is
//! left) all memory but one mark lost. The next start resumes from the checkpoint if no segment is
//! marked; otherwise it gets the result, bit for bit; it is never refused. That start is killed in
//! the same way at every step, and the one after it; with `SKT_CRASH_SOAK=1` this continues until
//! there is no new kind of state. Nothing is left at the end.

use std::collections::{BTreeSet, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::cluster::{Cluster, Disturbance, Prediction, Setup, check_undisturbed, start};
use crate::{is_soak, sets};
use skt_checkpoint::checkpoint::methods::Method;
use skt_sim::fibers::{Kill, Linger};

/// The number of starts in a row that are killed, by default.
const ROUNDS: usize = 3;

#[derive(Default, Debug)]
struct Tally {
    crash_points: u64,
    resumed: u64,
    reported: u64,
    afresh: u64,
    refused: u64,
}

struct Explorer {
    setup: Setup,
    last_epoch: u64,
    per_node: usize,
    kinds: HashSet<Vec<u64>>,
    checked: HashSet<u64>,
    tally: Tally,
}

impl Explorer {
    fn new(setup: Setup, last_epoch: u64, per_node: usize) -> Self {
        let (kinds, checked) = (HashSet::new(), HashSet::new());
        Self { setup, last_epoch, per_node, kinds, checked, tally: Tally::default() }
    }

    fn undisturbed(&self, seed: u64) -> Disturbance {
        Disturbance { finish: true, ..Disturbance::none(seed, self.last_epoch) }
    }

    /// Kills a start from `cluster` at all steps from the end of the work on; returns the states of
    /// new kinds.
    fn kill_everywhere(&mut self, cluster: &Cluster, round: usize) -> Vec<Cluster> {
        let plain = self.undisturbed(self.tally.crash_points);
        let traced = Disturbance { trace: true, ..plain.clone() };
        let ran = start(&self.setup, &mut cluster.clone(), &traced);
        let is_end = |line: &String| line.contains(": finish:");
        let first = ran.trace.iter().position(is_end).map_or(1, |at| at as u64 + 1);
        let mut nodes: Vec<usize> = cluster.placement.clone();
        nodes.dedup();
        let mut new = Vec::new();
        for dead in sets(nodes.len(), self.setup.parities) {
            let dead: BTreeSet<usize> = dead.into_iter().map(|index| nodes[index]).collect();
            for linger in [Linger::Steps(0), Linger::UntilBlocked] {
                let mut last = ran.steps;
                let mut step = first;
                while step <= last {
                    let of_dead = |rank: &usize| dead.contains(&cluster.placement[*rank]);
                    let ranks = (0..self.setup.ranks).filter(of_dead);
                    let kills = ranks.map(|rank| Kill { step, rank }).collect();
                    let how = Disturbance { kills, linger, ..plain.clone() };
                    let case = format!("{:?}\nround {round}, {dead:?}: {how:?}", self.setup);
                    let caught = catch_unwind(AssertUnwindSafe(|| {
                        let mut after = cluster.clone();
                        let ran = start(&self.setup, &mut after, &how);
                        self.tally.crash_points += 1;
                        last = last.max(ran.steps.min(step));
                        for state in self.losses(&after, &dead) {
                            self.check(&state, round, &mut new);
                        }
                    }));
                    if let Err(panic) = caught {
                        let at = ran.trace.get(step as usize - 1);
                        eprintln!("in this case: {case}\nkilled at {at:?}");
                        std::panic::resume_unwind(panic);
                    }
                    // By default the large group is killed at every thirteenth step.
                    step += if self.setup.ranks > 3 && !is_soak() { 13 } else { 1 };
                }
            }
        }
        new
    }

    /// What may be lost besides the processes: no memory, that of the dead, and all but one mark.
    fn losses(&self, after: &Cluster, dead: &BTreeSet<usize>) -> Vec<Cluster> {
        let lose = |nodes: &BTreeSet<usize>| {
            let mut state = after.clone();
            state.lose_nodes(nodes);
            state
        };
        let mut states = vec![after.clone(), lose(dead)];
        let marked = after.book.marked.keys().map(|rank| after.book.home[rank]);
        for survivor in marked.collect::<BTreeSet<usize>>() {
            let others = after.placement.iter().copied().filter(|node| *node != survivor);
            states.push(lose(&others.collect()));
        }
        states
    }

    /// Checks that the next start comes to what is predicted, and leaves nothing.
    fn check(&mut self, state: &Cluster, round: usize, new: &mut Vec<Cluster>) {
        if !self.checked.insert(state.fingerprint()) {
            return;
        }
        let predicted = state.predict(&self.setup);
        let mut cluster = state.clone();
        let ran = start(&self.setup, &mut cluster, &self.undisturbed(round as u64));
        check_undisturbed(&ran, &predicted);
        match predicted {
            Prediction::Recovered(..) => self.tally.resumed += 1,
            Prediction::Finished(_) => self.tally.reported += 1,
            Prediction::Fresh => {
                // Nothing is left, or nothing was saved: some ranks had not come that far or, after
                // the first round, were not rebuilt yet.
                let all_came = state.book.at_end.len() == self.setup.ranks;
                let was_saved = self.last_epoch > 0 && round == 0 && all_came;
                assert!(state.segments() == 0 || !was_saved, "{}", state.describe(&self.setup));
                self.tally.afresh += 1;
            }
            // Some ranks had not come that far or were not rebuilt yet; with `single` some may also
            // have begun a checkpoint that others have ended.
            Prediction::Unrecoverable(..) => {
                let single = self.setup.method == Method::Single;
                assert!(round > 0 || single, "refused: {}", state.describe(&self.setup));
                self.tally.refused += 1;
                return;
            }
        }
        assert_eq!(cluster.segments(), 0, "a run that has finished leaves nothing");
        if self.kinds.insert(state.outline(&self.setup)) {
            new.push(state.clone());
        }
    }

    fn explore(mut self) -> Tally {
        let mut states = vec![Cluster::new(&self.setup, self.per_node)];
        let mut round = 0;
        while !states.is_empty() && (round < ROUNDS || is_soak()) {
            let mut next = Vec::new();
            for state in states {
                next.extend(self.kill_everywhere(&state, round));
            }
            states = next;
            round += 1;
        }
        let Setup { ranks, parities, method, .. } = self.setup;
        println!("{method}, n = {ranks}, m = {parities}: {round} rounds, {:?}", self.tally);
        assert!(self.tally.reported > 20 && self.tally.afresh > 0);
        assert!(self.tally.resumed > 0 || self.last_epoch == 0);
        self.tally
    }
}

fn every_method(ranks: usize, parities: usize) {
    // One method per core, if there are enough cores.
    std::thread::scope(|scope| {
        for method in [Method::SelfCheckpoint, Method::Double, Method::Single] {
            let setup = Setup { method, ..Setup::small(ranks, parities) };
            scope.spawn(move || Explorer::new(setup, 1, 1).explore());
        }
    });
}

#[test]
fn the_end_of_2_members_with_1_parity() {
    every_method(2, 1);
}

#[test]
fn the_end_of_3_members_with_1_parity() {
    every_method(3, 1);
}

#[test]
fn the_end_of_4_members_with_2_parities() {
    every_method(4, 2);
}

#[test]
fn the_end_of_two_groups_on_nodes_of_two() {
    let setup = Setup { members: 2, ..Setup::small(4, 1) };
    let setup = Setup { shapes: Setup::small(2, 1).shapes, ..setup };
    Explorer::new(setup, 1, 2).explore();
}

#[test]
fn the_end_without_a_checkpoint() {
    Explorer::new(Setup::small(3, 1), 0, 1).explore();
}
