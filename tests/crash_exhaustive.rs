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

use std::collections::{BTreeSet, HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use crash::camera::{Image, Picture};
use crash::cluster::{Cluster, Disturbance, Foretold, Setup, check_undisturbed, start};
use crash::essence::essence;
use crash::futures::Futures;
use skt_hpl::checkpoint::encode::Encoder;
use skt_hpl::comm::sim::Linger;

/// Restarts that die in a row, by default.
const ROUNDS: usize = 2;
/// Kills in earnest of each start, to prove what is foreseen.
const REAL_KILLS: u64 = 2;

fn soak() -> bool {
    std::env::var_os("SKT_CRASH_SOAK").is_some_and(|value| value == "1")
}

#[derive(Default)]
struct Tally {
    /// Starts that were killed at every step.
    starts: u64,
    crash_points: u64,
    real_kills: u64,
    states: u64,
    recovered: u64,
    refused: u64,
    afresh: u64,
}

struct Explorer {
    setup: Setup,
    /// Outlines of the states that restarts were killed from.
    kinds: HashSet<Vec<u64>>,
    /// Fingerprints of all states, and of the essences that an undisturbed restart
    /// was made from.
    seen: HashSet<u64>,
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

fn guard<T>(case: impl Fn() -> String, body: impl FnOnce() -> T) -> T {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(value) => value,
        Err(panic) => {
            eprintln!("in this case: {}", case());
            std::panic::resume_unwind(panic)
        }
    }
}

/// Fingerprints of what a start leaves, without making the states.
#[derive(Default)]
struct Fingerprints {
    /// Of books without what stood on some nodes: the books are those of pictures
    /// that outlive this.
    books: HashMap<(usize, Vec<usize>), u64>,
}

impl Fingerprints {
    /// Of the state that this picture shows, with the memory of the nodes of these
    /// processes lost.
    fn of(&mut self, before: &Cluster, picture: &Picture, lost: &[usize]) -> u64 {
        let book = Arc::as_ptr(&picture.book) as usize;
        let book = *self.books.entry((book, lost.to_vec())).or_insert_with(|| {
            let mut book = (*picture.book).clone();
            lost.iter().for_each(|&process| book.forget_node(before.placement[process]));
            book.fingerprint()
        });
        let empty = crash::cluster::fingerprint(&Default::default());
        let images = picture.images.iter().enumerate();
        let of_node = |(process, image): (usize, &Arc<Image>)| {
            if lost.contains(&process) { empty } else { image.fingerprint }
        };
        Cluster::fingerprint_of(images.map(of_node), book)
    }
}

impl Explorer {
    fn new(setup: Setup) -> Self {
        let (kinds, seen, checked) = Default::default();
        Self { setup, kinds, seen, checked, tally: Tally::default() }
    }

    /// Kills a start from `cluster` in all ways; returns the states of new kinds.
    fn kill_everywhere(&mut self, cluster: &Cluster, until: u64) -> Vec<Cluster> {
        let setup = self.setup.clone();
        let plain = Disturbance::none(self.tally.starts, until);
        let undisturbed = || format!("{setup:?}\nundisturbed: {plain:?}");
        let futures = guard(undisturbed, || Futures::of(&setup, cluster, &plain));
        self.tally.starts += 1;
        let victims = victims(setup.ranks, setup.parities);
        let lingering = |dead: &Vec<usize>| {
            let held = || format!("{setup:?}\n{dead:?} held back: {plain:?}");
            guard(held, || futures.lingering(dead))
        };
        let lingering: Vec<_> = victims.iter().map(lingering).collect();
        let mut fingerprints = Fingerprints::default();
        let mut new_states = Vec::new();
        for (dead, lingering) in victims.iter().zip(&lingering) {
            for step in 0..futures.steps() {
                self.tally.crash_points += 2;
                let is_first = |class| lingering.by_step[..step].iter().all(|&c| c != class);
                let stopped = futures.stopped(dead, step);
                let class = lingering.by_step[step];
                let both = [
                    (Linger::Steps(0), stopped, step == 0 || !stopped.is(futures.stopped(dead, step - 1))),
                    (Linger::UntilBlocked, &lingering.pictures[class], is_first(class)),
                ];
                for (linger, picture, is_new) in both {
                    if !is_new {
                        continue;
                    }
                    // Node loss, and the death of processes alone.
                    for lost in [&dead[..], &[]] {
                        let fingerprint = fingerprints.of(cluster, picture, lost);
                        if !self.seen.insert(fingerprint) {
                            continue;
                        }
                        let mut state = picture.cluster(cluster);
                        let nodes = lost.iter().map(|&process| cluster.placement[process]);
                        state.lose_nodes(&nodes.collect());
                        debug_assert_eq!(state.fingerprint(), fingerprint);
                        let how = futures.disturbance(dead, step, linger);
                        let case = || format!("{setup:?}\nlost {lost:?}: {how:?}");
                        guard(case, || self.check(&state));
                        if self.is_new(&state) {
                            new_states.push(state);
                        }
                    }
                }
            }
        }
        // What is foreseen comes true.
        for i in 0..REAL_KILLS {
            let mut dice = (self.tally.starts * REAL_KILLS + i).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
            let mut roll = |sides: usize| {
                let rolled = dice as usize % sides;
                dice /= sides as u64;
                rolled
            };
            let dead = &victims[roll(victims.len())];
            let linger = [Linger::Steps(0), Linger::UntilBlocked][roll(2)];
            self.prove(&futures, dead, roll(futures.steps()), linger);
        }
        new_states
    }

    /// A kill in earnest leaves what was foreseen.
    fn prove(&mut self, futures: &Futures, dead: &[usize], step: usize, linger: Linger) {
        let how = futures.disturbance(dead, step, linger);
        let case = || format!("{:?}\nkilled: {how:?}", self.setup);
        guard(case, || {
            let lingering = futures.lingering(dead);
            let foreseen = match linger {
                Linger::UntilBlocked => &lingering.pictures[lingering.by_step[step]],
                Linger::Steps(_) => futures.stopped(dead, step),
            };
            let after = futures.kill(&how);
            let foreseen = foreseen.cluster(futures.before);
            if foreseen.fingerprint() != after.fingerprint() {
                panic!("foreseen: {}\nand now: {}", foreseen.describe(&self.setup), after.describe(&self.setup));
            }
        });
        self.tally.real_kills += 1;
    }

    /// The restart from the essence of a state comes to what is foretold.
    fn check(&mut self, state: &Cluster) {
        let foretold = state.foretell(&self.setup);
        let essence = essence(&self.setup, state, &foretold);
        self.tally.states += 1;
        if self.checked.insert(essence.fingerprint()) {
            self.check_restart(&essence, &foretold);
        }
    }

    /// An undisturbed restart comes to what is foretold, and the epoch after it
    /// can bear the next loss.
    fn check_restart(&mut self, state: &Cluster, foretold: &Foretold) {
        let epoch = match foretold {
            Foretold::Fresh => 0,
            Foretold::Recovered(epoch, _) | Foretold::Unrecoverable(epoch, _) => *epoch,
            Foretold::Finished(_) => unreachable!("these jobs end without finishing"),
        };
        let mut cluster = state.clone();
        let turn = self.checked.len();
        let how = Disturbance::none(turn as u64, epoch + 1);
        let ran = start(&self.setup, &mut cluster, &how);
        check_undisturbed(&ran, foretold);
        match foretold {
            Foretold::Fresh => self.tally.afresh += 1,
            Foretold::Recovered(..) => self.tally.recovered += 1,
            Foretold::Unrecoverable(..) => {
                self.tally.refused += 1;
                return;
            }
            Foretold::Finished(_) => unreachable!("see above"),
        }
        // Lose others, recover again.
        let ranks = self.setup.ranks;
        let nodes: BTreeSet<usize> =
            (0..self.setup.parities).map(|i| cluster.placement[(turn + i) % ranks]).collect();
        cluster.lose_nodes(&nodes);
        let foretold = cluster.foretell(&self.setup);
        assert!(matches!(foretold, Foretold::Recovered(at, _) if at == epoch + 1));
        let ran = start(&self.setup, &mut cluster, &Disturbance::none(how.seed, epoch + 1));
        check_undisturbed(&ran, &foretold);
    }

    fn is_new(&mut self, state: &Cluster) -> bool {
        if matches!(state.foretell(&self.setup), Foretold::Unrecoverable(..)) {
            return false;
        }
        self.kinds.insert(state.outline(&self.setup))
    }

    fn explore(mut self) -> Tally {
        let begin = Instant::now();
        let mut states = self.kill_everywhere(&Cluster::new(&self.setup, 1), 2);
        let rounds = if soak() { usize::MAX } else { ROUNDS };
        for round in 1..=rounds {
            let (points, mut open) = (self.tally.crash_points, 0);
            let mut next = Vec::new();
            for state in states {
                // Killing the start of a new run was the first thing done.
                if let Foretold::Recovered(epoch, _) = state.foretell(&self.setup) {
                    open += 1;
                    next.extend(self.kill_everywhere(&state, epoch));
                }
            }
            println!(
                "n = {}, m = {}: restart {round} killed from {open} kinds of states at {} points; {:.1} s",
                self.setup.ranks, self.setup.parities, self.tally.crash_points - points, begin.elapsed().as_secs_f64()
            );
            states = next;
            if states.is_empty() {
                break;
            }
        }
        let tally = &self.tally;
        println!(
            "n = {}, m = {}: {} crash points of {} starts, {} real; {} states, {} essences: {} recovered, {} \
             refused, {} afresh; {:.1} s",
            self.setup.ranks,
            self.setup.parities,
            tally.crash_points,
            tally.starts,
            tally.real_kills,
            tally.states,
            self.checked.len(),
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
    Setup { piece_rows: Some(2), ..setup }
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
