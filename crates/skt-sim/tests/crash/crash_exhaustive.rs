//! Every crash point of small groups.
//!
//! A job of one group runs from its start over two checkpoints. At every step of it (each send,
//! receive, barrier, split, each chunk of each write), every set of up to m members is killed, with
//! the others stopping at once and with the others continuing as far as they can; the memory of the
//! dead is lost or, with the death of the process alone, kept. Each time the job is started again
//! undisturbed and must come to exactly what an independent book predicts.
//!
//! Then the restart itself is killed in the same way at every one of its steps (agreement, joining,
//! flush, rebuilding, stamping, copying), from every distinct state that the first deaths left;
//! then the restart of that restart. Kinds of states are distinguished by their headers (as a set,
//! since members are interchangeable). Every state is checked by an undisturbed restart; restarts
//! are killed from the first state of each kind.
//!
//! That is tens of millions of crash points. Three things make them cheap:
//!
//! - What a death leaves is predicted from one run for each set of ranks to die, instead of one for
//!   each step (`crash/futures.rs` explains why that is right).
//! - States that differ only in what no restart may read are checked once, with garbage there
//!   (`crash/essence.rs`).
//! - The loss of other ranks after a restart, and another restart, are tested once for each state
//!   that restarts come to.
//!
//! If a group is small enough, nothing of this is taken on trust: each kill is also made and must
//! leave what was predicted, and the restart from each unchanged state is made, too (groups of 2 up
//! to the first restart; of groups of 3 the first start). For all other starts a sample of the
//! kills is made.
//!
//! By default two restarts in a row are killed, but one in groups of four and more, and in groups
//! of five only from every fourth kind of state; the output lists which. `SKT_CRASH_SOAK=1`
//! continues until there is no new kind of state, and makes every kill in groups of 3.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use crate::camera::{Image, Picture};
use crate::cluster::{Cluster, Disturbance, Prediction, Setup, check_undisturbed, start};
use crate::essence::essence;
use crate::futures::{Futures, Lingering};
use crate::{is_soak, sets};
use skt_sim::fibers::Linger;

/// Real kills per start that prove the predictions, if not all kills are made.
const SAMPLE: u64 = 2;

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
    /// Fingerprints of all states; of the essences that an undisturbed restart was made from; and
    /// of the essences that these restarts came to.
    seen: HashSet<u64>,
    checked: HashSet<u64>,
    recovered: HashSet<u64>,
    tally: Tally,
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

/// Fingerprints of what a start leaves, computed without making the states.
#[derive(Default)]
struct Fingerprints {
    /// Fingerprints of books without the ranks on some nodes. The books are identified by address
    /// and belong to pictures that outlive this.
    books: HashMap<(usize, Vec<usize>), u64>,
}

impl Fingerprints {
    /// Of the state that the picture shows, with the memory of the nodes of these processes lost.
    fn get(&mut self, before: &Cluster, picture: &Picture, lost: &[usize]) -> u64 {
        let book = Arc::as_ptr(&picture.book) as usize;
        let book = *self.books.entry((book, lost.to_vec())).or_insert_with(|| {
            let mut book = (*picture.book).clone();
            lost.iter().for_each(|&process| book.forget_node(before.placement[process]));
            book.fingerprint()
        });
        let empty = crate::cluster::fingerprint(&Default::default());
        let images = picture.images.iter().enumerate();
        let of_node = |(process, image): (usize, &Arc<Image>)| {
            if lost.contains(&process) { empty } else { image.fingerprint }
        };
        Cluster::fingerprint_of(images.map(of_node), book)
    }
}

impl Explorer {
    fn new(setup: Setup) -> Self {
        let (kinds, seen, checked, recovered) = Default::default();
        Self { setup, kinds, seen, checked, recovered, tally: Tally::default() }
    }

    /// Kills a start from `cluster` in all ways; returns the states of new kinds.
    fn kill_everywhere(&mut self, cluster: &Cluster, until: u64, round: usize) -> Vec<Cluster> {
        let setup = self.setup.clone();
        let plain = Disturbance::none(self.tally.starts, until);
        let undisturbed = || format!("{setup:?}\nundisturbed: {plain:?}");
        let futures = guard(undisturbed, || Futures::new(&setup, cluster, &plain));
        self.tally.starts += 1;
        let victims: Vec<Vec<usize>> =
            sets(setup.ranks, setup.parities).into_iter().map(Vec::from_iter).collect();
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
                let both = |step| [futures.stopped(dead, step), lingering.at(step)];
                let before = step.checked_sub(1).map(both);
                let lingers = [Linger::Steps(0), Linger::UntilBlocked];
                for (i, (picture, linger)) in both(step).into_iter().zip(lingers).enumerate() {
                    if before.is_some_and(|before| before[i].is(picture)) {
                        continue;
                    }
                    // The loss of nodes, and the death of processes alone.
                    for lost in [&dead[..], &[]] {
                        let fingerprint = fingerprints.get(cluster, picture, lost);
                        if !self.seen.insert(fingerprint) {
                            continue;
                        }
                        let mut state = futures.cluster(picture);
                        let nodes = lost.iter().map(|&process| cluster.placement[process]);
                        state.lose_nodes(&nodes.collect());
                        debug_assert_eq!(state.fingerprint(), fingerprint);
                        let how = futures.disturbance(dead, step, linger);
                        let case = || {
                            let at = futures.name(step);
                            format!("{setup:?}\nlost {lost:?} at {at}: {how:?}")
                        };
                        guard(case, || self.check(&state, round));
                        if self.is_new(&state) {
                            new_states.push(state);
                        }
                    }
                }
            }
        }
        self.prove(&futures, &victims, &lingering, round);
        new_states
    }

    /// Proves by real kills, at every point or at a sample of them, that the predictions are true.
    fn prove(
        &mut self,
        futures: &Futures,
        victims: &[Vec<usize>],
        lingering: &[Lingering],
        round: usize,
    ) {
        let points = 2 * victims.len() * futures.steps();
        let sample = (0..SAMPLE).map(|i| {
            let seed = self.tally.starts * SAMPLE + i;
            (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % points
        });
        let proven =
            if self.is_small(round) { (0..points).collect() } else { sample.collect::<Vec<_>>() };
        for point in proven {
            let linger = [Linger::Steps(0), Linger::UntilBlocked][point % 2];
            let (set, step) = (point / 2 % victims.len(), point / 2 / victims.len());
            let foreseen = match linger {
                Linger::UntilBlocked => lingering[set].at(step),
                Linger::Steps(_) => futures.stopped(&victims[set], step),
            };
            let how = futures.disturbance(&victims[set], step, linger);
            let case = || format!("{:?}\nkilled at {}: {how:?}", self.setup, futures.name(step));
            guard(case, || {
                let (foreseen, is) = (futures.cluster(foreseen), futures.kill(&how));
                let same_memory = foreseen.fingerprint() == is.fingerprint();
                if !same_memory || foreseen.book != is.book {
                    let describe = |state: &Cluster| state.describe(&self.setup);
                    panic!("foreseen: {}\nand now: {}", describe(&foreseen), describe(&is));
                }
            });
            self.tally.real_kills += 1;
        }
    }

    /// Whether there is time to test without shortcuts, too.
    fn is_small(&self, round: usize) -> bool {
        let most = if is_soak() { [4, 3, 3] } else { [3, 2, 0] };
        self.setup.ranks <= most[round.min(2)]
    }

    /// Checks that the restart from the essence of a state comes to what is predicted.
    fn check(&mut self, state: &Cluster, round: usize) {
        let predicted = state.predict(&self.setup);
        let essence = essence(&self.setup, state, &predicted);
        self.tally.states += 1;
        if self.is_small(round) {
            // The restart from the unchanged state is checked, too.
            self.check_restart(state, &predicted);
        }
        if self.checked.insert(essence.fingerprint()) {
            self.check_restart(&essence, &predicted);
        }
    }

    /// Checks that an undisturbed restart comes to what is predicted, and that the epoch after it
    /// survives the next loss.
    fn check_restart(&mut self, state: &Cluster, predicted: &Prediction) {
        let epoch = match predicted {
            Prediction::Fresh => 0,
            Prediction::Recovered(epoch, _) | Prediction::Unrecoverable(epoch, _) => *epoch,
            Prediction::Finished(_) => unreachable!("these jobs end without finishing"),
        };
        let mut cluster = state.clone();
        let turn = self.checked.len();
        let how = Disturbance::none(turn as u64, epoch + 1);
        let ran = start(&self.setup, &mut cluster, &how);
        check_undisturbed(&ran, predicted);
        match predicted {
            Prediction::Fresh => self.tally.afresh += 1,
            Prediction::Recovered(..) => self.tally.recovered += 1,
            Prediction::Unrecoverable(..) => {
                self.tally.refused += 1;
                return;
            }
            Prediction::Finished(_) => unreachable!("see above"),
        }
        // Loses other ranks and recovers again, once per state that a restart comes to.
        let end = Prediction::Recovered(epoch + 1, ran.results[0].as_ref().unwrap().state.clone());
        if !self.recovered.insert(essence(&self.setup, &cluster, &end).fingerprint()) {
            return;
        }
        let ranks = self.setup.ranks;
        let nodes: BTreeSet<usize> =
            (0..self.setup.parities).map(|i| cluster.placement[(turn + i) % ranks]).collect();
        cluster.lose_nodes(&nodes);
        let predicted = cluster.predict(&self.setup);
        assert!(matches!(predicted, Prediction::Recovered(at, _) if at == epoch + 1));
        let ran = start(&self.setup, &mut cluster, &Disturbance::none(how.seed, epoch + 1));
        check_undisturbed(&ran, &predicted);
    }

    fn is_new(&mut self, state: &Cluster) -> bool {
        if matches!(state.predict(&self.setup), Prediction::Unrecoverable(..)) {
            return false;
        }
        self.kinds.insert(state.outline(&self.setup))
    }

    fn rounds(&self) -> usize {
        match self.setup.ranks >= 4 {
            _ if is_soak() => usize::MAX,
            true => 1,
            false => 2,
        }
    }

    fn explore(mut self) {
        let begin = Instant::now();
        let name = format!("n = {}, m = {}", self.setup.ranks, self.setup.parities);
        let mut states = self.kill_everywhere(&Cluster::new(&self.setup, 1), 2, 0);
        let rounds = self.rounds();
        let mut round = 0;
        while round < rounds && !states.is_empty() {
            round += 1;
            let (points, starts) = (self.tally.crash_points, self.tally.starts);
            let mut next = Vec::new();
            let some = if self.setup.ranks >= 5 && !is_soak() { 4 } else { 1 };
            for state in states.into_iter().step_by(some) {
                // The start of a new run was killed first of all.
                if let Prediction::Recovered(epoch, _) = state.predict(&self.setup) {
                    next.extend(self.kill_everywhere(&state, epoch, round));
                }
            }
            println!(
                "{name}: restart {round} killed from {} kinds of states at every one of {} points",
                self.tally.starts - starts,
                self.tally.crash_points - points,
            );
            states = next;
        }
        let Tally { crash_points, real_kills, states: seen, recovered, refused, afresh, .. } =
            self.tally;
        println!(
            "{name}: {crash_points} crash points, {real_kills} of them killed in earnest as well; \
             {seen} states, {} essences; restarts: {recovered} recovered, {refused} refused, \
             {afresh} afresh; {:.1} s; {}",
            self.checked.len(),
            begin.elapsed().as_secs_f64(),
            match states.len() {
                0 => "no new kind of state is left".to_owned(),
                left => format!("not killed: the restart after that, from {left} kinds"),
            }
        );
        assert!(recovered > 0 && crash_points > 100);
        assert!(real_kills >= SAMPLE * self.tally.starts);
    }
}

/// Makes rows ready piece by piece while the checkpoint is encoded, and flushes lazily.
fn phases(setup: Setup) -> Setup {
    Setup { piece_rows: Some(2), stages: 1, ..setup }
}

macro_rules! every_crash_point_of {
    ($($members:ident: $n:literal, $m:literal;)*) => {$(
        mod $members {
            use super::*;

            #[test]
            fn that_send_messages() {
                Explorer::new(Setup::small($n, $m)).explore();
            }

            #[test]
            fn that_send_messages_in_phases() {
                Explorer::new(phases(Setup::small($n, $m))).explore();
            }
        }
    )*};
}

every_crash_point_of! {
    members_2_parities_1: 2, 1;
    members_3_parities_1: 3, 1;
    members_4_parities_1: 4, 1;
    members_4_parities_2: 4, 2;
    members_5_parities_1: 5, 1;
    members_5_parities_2: 5, 2;
}
