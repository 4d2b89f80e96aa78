//! Every crash point of small groups.
//!
//! A job of one group runs from its start over two checkpoints. At every step
//! of it (each send, receive, barrier, split, each chunk of each write), every
//! set of up to m members is killed, with the others stopping at once and with
//! the others going on as far as they can; the memory of the dead is lost, or
//! (process death) kept. Each time the job is started again undisturbed and
//! must come to exactly what an independent book-keeper foretells.
//!
//! Then the restart itself is killed in the same way at every one of its steps
//! (agreement, joining, flush, rebuilding, stamping, copying), from every
//! distinct state that the first deaths left; then the restart of that restart,
//! until no new kind of state turns up or so many restarts have died in a row.
//! Kinds of states are told apart by what the headers say (as a set: members
//! are alike). Every state that comes up is checked by an undisturbed restart;
//! the first of its kind is used to kill restarts from.
//!
//! By default two restarts die in a row, and in the second, from groups of 4
//! on, every so many-th step is taken (with checkpoints in phases, in the job
//! itself as well), so that the whole takes some minutes;
//! the output says which. `SKT_CRASH_SOAK=1` takes every step, and as many
//! restarts as bring new states.

mod crash;

use std::collections::{BTreeSet, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use crash::cluster::{Cluster, Disturbance, Foretold, Setup, check_undisturbed, start};
use skt_hpl::checkpoint::encode::Encoder;
use skt_hpl::comm::sim::{Kill, Linger};

/// Crash points in a restart of a restart that a test takes by default.
const DEFAULT_POINTS: u64 = 25_000;

fn soak() -> bool {
    std::env::var_os("SKT_CRASH_SOAK").is_some_and(|value| value == "1")
}

#[derive(Default)]
struct Tally {
    crash_points: u64,
    runs: u64,
    states: usize,
    recovered: u64,
    refused: u64,
    afresh: u64,
}

struct Explorer {
    setup: Setup,
    /// Outlines of the states that restarts were killed from.
    kinds: HashSet<Vec<u64>>,
    /// Fingerprints of the states that an undisturbed restart was made from.
    checked: HashSet<u64>,
    tally: Tally,
}

/// All sets of 1 to `most` of `ranks` ranks.
fn victims(ranks: usize, most: usize) -> Vec<Vec<usize>> {
    (1u32..1 << ranks)
        .filter(|set| set.count_ones() as usize <= most)
        .map(|set| (0..ranks).filter(|rank| set >> rank & 1 == 1).collect())
        .collect()
}

impl Explorer {
    fn new(setup: Setup) -> Self {
        Self { setup, kinds: HashSet::new(), checked: HashSet::new(), tally: Tally::default() }
    }

    /// Kills a start from `cluster` in all ways; returns the new states.
    fn kill_everywhere(&mut self, cluster: &Cluster, until: u64, stride: u64) -> Vec<Cluster> {
        let seed = self.tally.runs;
        let plain = Disturbance::none(seed, until);
        let mut steps = {
            let ran = start(&self.setup, &mut cluster.clone(), &plain);
            self.tally.runs += 1;
            ran.steps
        };
        let mut new_states = Vec::new();
        for dead in victims(self.setup.ranks, self.setup.parities) {
            for linger in [Linger::Steps(0), Linger::UntilBlocked] {
                let mut step = 1 + seed % stride;
                while step <= steps {
                    let kills = dead.iter().map(|&rank| Kill { step, rank }).collect();
                    let how = Disturbance { kills, linger, ..plain.clone() };
                    let case = format!("{:?}\nkilled {dead:?}: {how:?}", self.setup);
                    let after = self.guard(&case, |this| {
                        let mut after = cluster.clone();
                        let ran = start(&this.setup, &mut after, &how);
                        this.tally.runs += 1;
                        this.tally.crash_points += 1;
                        assert!(ran.steps >= step, "the schedule before a kill is the same");
                        steps = steps.max(step);
                        after
                    });
                    // Node loss for every set; process death leaves the same
                    // whoever it was but for how far the others came.
                    let mut nodes_lost = after.clone();
                    let nodes = dead.iter().map(|&rank| cluster.placement[rank]).collect();
                    nodes_lost.lose_nodes(&nodes);
                    for state in [nodes_lost, after] {
                        if self.checked.insert(state.fingerprint()) {
                            self.guard(&case, |this| this.check_restart(&state));
                            if self.is_new(&state) {
                                new_states.push(state);
                            }
                        }
                    }
                    step += stride;
                }
            }
        }
        new_states
    }

    fn guard<T>(&mut self, case: &str, body: impl FnOnce(&mut Self) -> T) -> T {
        match catch_unwind(AssertUnwindSafe(|| body(self))) {
            Ok(value) => value,
            Err(panic) => {
                eprintln!("in this case: {case}");
                std::panic::resume_unwind(panic)
            }
        }
    }

    /// An undisturbed restart comes to what is foretold, and the epoch after it
    /// can bear the next loss.
    fn check_restart(&mut self, state: &Cluster) {
        let foretold = state.foretell(&self.setup);
        let epoch = match &foretold {
            Foretold::Fresh => 0,
            Foretold::Recovered(epoch, _) | Foretold::Unrecoverable(epoch, _) => *epoch,
            Foretold::Finished(_) => unreachable!("these jobs end without finishing"),
        };
        let mut cluster = state.clone();
        let how = Disturbance::none(self.tally.runs, epoch + 1);
        let ran = start(&self.setup, &mut cluster, &how);
        self.tally.runs += 1;
        check_undisturbed(&ran, &foretold);
        match foretold {
            Foretold::Fresh => self.tally.afresh += 1,
            Foretold::Recovered(..) => self.tally.recovered += 1,
            Foretold::Unrecoverable(..) => {
                self.tally.refused += 1;
                return;
            }
            Foretold::Finished(_) => unreachable!("see above"),
        }
        // Now and then: lose others, recover again.
        if self.tally.runs.is_multiple_of(4) {
            let ranks = self.setup.ranks;
            let first = self.tally.runs as usize / 4;
            let nodes: BTreeSet<usize> =
                (0..self.setup.parities).map(|i| cluster.placement[(first + i) % ranks]).collect();
            cluster.lose_nodes(&nodes);
            let foretold = cluster.foretell(&self.setup);
            assert!(matches!(foretold, Foretold::Recovered(at, _) if at == epoch + 1));
            let ran = start(&self.setup, &mut cluster, &Disturbance::none(how.seed, epoch + 1));
            self.tally.runs += 1;
            check_undisturbed(&ran, &foretold);
        }
    }

    fn is_new(&mut self, state: &Cluster) -> bool {
        if matches!(state.foretell(&self.setup), Foretold::Unrecoverable(..)) {
            return false;
        }
        self.kinds.insert(state.outline(&self.setup))
    }

    fn explore(mut self) -> Tally {
        let begin = Instant::now();
        let fresh = Cluster::new(&self.setup, 1);
        // In phases a job has far more steps.
        let few = self.setup.piece_rows.is_none() || self.setup.ranks <= 3 || soak();
        let mut states = self.kill_everywhere(&fresh, 2, if few { 1 } else { 11 });
        let rounds = if soak() { usize::MAX } else { 2 };
        let mut stride = 1;
        for round in 1..=rounds {
            let (points, open) = (self.tally.crash_points, states.len());
            let mut next = Vec::new();
            for state in states {
                // Killing the start of a new run was the first thing done.
                if let Foretold::Recovered(epoch, _) = state.foretell(&self.setup) {
                    next.extend(self.kill_everywhere(&state, epoch, stride));
                }
            }
            let points = self.tally.crash_points - points;
            println!(
                "n = {}, m = {}: restart {round} killed from {open} kinds of states at {points} \
                 points, every {stride} step(s)",
                self.setup.ranks, self.setup.parities,
            );
            if !soak() {
                stride = (points * next.len() as u64 / open as u64).div_ceil(DEFAULT_POINTS).max(1);
            }
            states = next;
            if states.is_empty() {
                break;
            }
        }
        self.tally.states = self.checked.len();
        let tally = &self.tally;
        println!(
            "n = {}, m = {}: {} crash points, {} runs, {} states; restarts: {} recovered, {} \
             refused, {} afresh; {:.1} s",
            self.setup.ranks,
            self.setup.parities,
            tally.crash_points,
            tally.runs,
            tally.states,
            tally.recovered,
            tally.refused,
            tally.afresh,
            begin.elapsed().as_secs_f64()
        );
        assert!(tally.recovered > 0 && tally.crash_points > 100);
        self.tally
    }
}

#[test]
fn every_crash_point_of_2_members_with_1_parity() {
    Explorer::new(Setup::small(2, 1)).explore();
}

#[test]
fn every_crash_point_of_3_members_with_1_parity() {
    Explorer::new(Setup::small(3, 1)).explore();
}

#[test]
fn every_crash_point_of_4_members_with_1_parity() {
    Explorer::new(Setup::small(4, 1)).explore();
}

#[test]
fn every_crash_point_of_4_members_with_2_parities() {
    Explorer::new(Setup::small(4, 2)).explore();
}

#[test]
fn every_crash_point_of_5_members_with_1_parity() {
    Explorer::new(Setup::small(5, 1)).explore();
}

#[test]
fn every_crash_point_of_5_members_with_2_parities() {
    Explorer::new(Setup::small(5, 2)).explore();
}

/// Members that read each other's memory.
fn direct(members: usize, parities: usize) -> Setup {
    let encoder = Encoder::Direct;
    Setup { encoder, one_host: true, ..Setup::small(members, parities) }
}

#[test]
fn every_crash_point_of_2_members_that_see_each_other() {
    Explorer::new(direct(2, 1)).explore();
}

#[test]
fn every_crash_point_of_3_members_that_see_each_other() {
    Explorer::new(direct(3, 1)).explore();
}

#[test]
fn every_crash_point_of_4_members_with_2_parities_that_see_each_other() {
    Explorer::new(direct(4, 2)).explore();
}

/// An application that makes rows ready piece by piece while its checkpoint is
/// encoded, and flushes lazily.
fn phases(setup: Setup) -> Setup {
    Setup { piece_rows: Some(2), stages: 1, ..setup }
}

#[test]
fn every_crash_point_of_2_members_in_phases() {
    Explorer::new(phases(Setup::small(2, 1))).explore();
}

#[test]
fn every_crash_point_of_3_members_in_phases() {
    Explorer::new(phases(Setup::small(3, 1))).explore();
}

#[test]
fn every_crash_point_of_4_members_with_2_parities_in_phases() {
    Explorer::new(phases(Setup::small(4, 2))).explore();
}

#[test]
fn every_crash_point_of_5_members_with_1_parity_in_phases() {
    Explorer::new(phases(Setup::small(5, 1))).explore();
}

#[test]
fn every_crash_point_of_2_members_that_see_each_other_in_phases() {
    Explorer::new(phases(direct(2, 1))).explore();
}

#[test]
fn every_crash_point_of_3_members_that_see_each_other_in_phases() {
    Explorer::new(phases(direct(3, 1))).explore();
}

#[test]
fn every_crash_point_of_4_members_with_2_parities_that_see_each_other_in_phases() {
    Explorer::new(phases(direct(4, 2))).explore();
}
