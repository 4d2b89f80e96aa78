//! What a death leaves, for every step of a start and every set of ranks that may die there,
//! without a run for each: one run shows all that is left if the others stop at once, and one run
//! per set all that is left if they continue.
//!
//! **If the others stop at once** ([`Linger::Steps`] of 0) no rank does anything any more: every
//! call of every rank fails, from the step of the death on, and ranks whose calls fail write
//! nothing. So what is left is what existed when the run came to that step, whichever rank died.
//! One run that takes a picture at each step shows it.
//!
//! **If the others continue** ([`Linger::UntilBlocked`]) each of them does so until it has returned
//! or waits for something that will not come. How far that is does not depend on the order in which
//! they run: a rank waits for messages from a named rank with a named tag, or for the members of a
//! barrier or a split, and for nothing else, and what it does then depends on what has arrived, not
//! on when. (It may ask whether a message has arrived; but that decides when it does something, not
//! what, and never whether it waits for the message in the end.) So if a rank can do its next thing
//! in one of two orders, it comes to do it in the other: all end at the same point. That point
//! depends only on how far the dead ranks had come.
//!
//! How far the dead ranks had come changes only with their own steps. So the set of ranks to die is
//! held back in one run: none of it moves before all others are stuck. When they are, the memory is
//! what the death of the set at this point would leave. Then the ranks that are held back proceed
//! to where they stand at the next step of the run in which they are to be killed; then the others
//! again until they are stuck; and so on to the end.
//!
//! The ranks that are held back must do what they did in that run. They see more messages than they
//! did then, because the others are ahead; so when they ask whether one has arrived, they get the
//! same answer as then.
//!
//! Real kills prove all of this: `crash_exhaustive` makes all of them for the smallest groups, and
//! a sample of every start otherwise.

use std::collections::{HashMap, VecDeque};

use skt_sim::fibers::{Kill, Linger, ProgramPoint};

use super::camera::{Camera, Picture, Witness};
use super::cluster::{Cluster, Disturbance, Setup, start, start_before};

/// A start that ran undisturbed, and what a death at any of its steps leaves.
pub struct Futures<'a> {
    setup: &'a Setup,
    before: &'a Cluster,
    how: &'a Disturbance,
    chronicle: Chronicle,
}

#[derive(Default)]
struct Chronicle {
    /// The points of all ranks when the run comes to a step, and a picture of that instant.
    steps: Vec<(Vec<ProgramPoint>, Picture)>,
    /// The answers that each rank got when it asked whether a message has arrived.
    answers: Vec<VecDeque<bool>>,
    end: Option<Picture>,
}

impl Witness for Chronicle {
    fn at_step(&mut self, points: &[ProgramPoint], camera: &mut Camera) {
        self.steps.push((points.to_vec(), camera.take()));
    }

    fn choose(&mut self, _: &[ProgramPoint], _: u64, _: usize, _: &mut Camera) -> Option<usize> {
        None
    }

    fn sees(&mut self, rank: usize, is_here: bool) -> bool {
        self.answers[rank].push_back(is_here);
        is_here
    }

    fn at_end(&mut self, camera: &mut Camera) {
        self.end = Some(camera.take());
    }
}

struct HoldBack {
    /// The ranks that are held back, one bit each.
    held: u64,
    dead: Vec<usize>,
    /// The points of these ranks to stop at, in the order in which they come there.
    places: Vec<Vec<ProgramPoint>>,
    /// A picture of the instant at which all others are stuck, for each element of `places`.
    pictures: Vec<Picture>,
    /// For each rank: those held back get the same as before, or they would act differently.
    answers: Vec<VecDeque<bool>>,
}

impl Witness for HoldBack {
    fn at_step(&mut self, _: &[ProgramPoint], _: &mut Camera) {}

    fn choose(
        &mut self,
        points: &[ProgramPoint],
        able: u64,
        current: usize,
        camera: &mut Camera,
    ) -> Option<usize> {
        let others = able & !self.held;
        if others >> current & 1 == 1 {
            return Some(current);
        }
        if others != 0 {
            return Some(others.trailing_zeros() as usize);
        }
        let is_there = |place: &Vec<ProgramPoint>| {
            self.dead.iter().zip(place).all(|(&rank, at)| points[rank] == *at)
        };
        if self.places.get(self.pictures.len()).is_some_and(is_there) {
            self.pictures.push(camera.take());
        }
        let Some(place) = self.places.get(self.pictures.len()) else {
            // The rest of the run has no step at which a rank may die.
            return Some(able.trailing_zeros() as usize);
        };
        let mut on_the_way = self.dead.iter().zip(place);
        let next = on_the_way.find(|(rank, at)| able >> **rank & 1 == 1 && points[**rank] < **at);
        let (&rank, _) = next.unwrap_or_else(|| {
            panic!("{:?} cannot come to {place:?}: all stand at {points:?}", self.dead)
        });
        Some(rank)
    }

    fn sees(&mut self, rank: usize, is_here: bool) -> bool {
        if self.held >> rank & 1 == 0 {
            return is_here;
        }
        let answer = self.answers[rank].pop_front().expect("it asks as often as before");
        assert!(is_here || !answer, "rank {rank} had a message that is not here now");
        answer
    }

    fn at_end(&mut self, camera: &mut Camera) {
        // The ranks that are held back were the last to end.
        let ended = |place: &Vec<ProgramPoint>| place.iter().all(|at| *at == ProgramPoint::ENDED);
        if self.places.get(self.pictures.len()).is_some_and(ended) {
            self.pictures.push(camera.take());
        }
    }
}

/// What the death of a set of ranks leaves if the others continue: `by_step` indexes `pictures`.
pub struct Lingering {
    by_step: Vec<usize>,
    pictures: Vec<Picture>,
}

impl Lingering {
    /// What is left if they die at this step (from 0).
    pub fn at(&self, step: usize) -> &Picture {
        &self.pictures[self.by_step[step]]
    }
}

impl<'a> Futures<'a> {
    pub fn new(setup: &'a Setup, before: &'a Cluster, how: &'a Disturbance) -> Self {
        assert!(how.kills.is_empty());
        let mut nodes = before.placement.clone();
        nodes.sort_unstable();
        nodes.dedup();
        assert_eq!(nodes.len(), before.placement.len(), "one process a node");
        let answers = vec![VecDeque::new(); setup.ranks];
        let chronicle = Some(Chronicle { steps: Vec::new(), answers, end: None });
        let (ran, chronicle) = start_before(setup, &mut before.clone(), how, chronicle);
        let chronicle = chronicle.expect("it was given");
        assert_eq!(ran.steps, chronicle.steps.len() as u64);
        Self { setup, before, how, chronicle }
    }

    /// The number of steps at which a rank may die.
    pub fn steps(&self) -> usize {
        self.chronicle.steps.len()
    }

    /// What the death of these ranks at a step (from 0) leaves if the others stop at once. A rank
    /// that has ended does not die any more.
    pub fn stopped(&self, dead: &[usize], step: usize) -> &Picture {
        let (points, picture) = &self.chronicle.steps[step];
        if dead.iter().all(|&rank| points[rank] == ProgramPoint::ENDED) {
            return self.chronicle.end.as_ref().expect("it has come to its end");
        }
        picture
    }

    /// What the death of these ranks leaves if the others continue.
    pub fn lingering(&self, dead: &[usize]) -> Lingering {
        let mut places: Vec<Vec<ProgramPoint>> = Vec::new();
        let mut known = HashMap::new();
        let by_step = self.chronicle.steps.iter().map(|(points, _)| {
            let place: Vec<ProgramPoint> = dead.iter().map(|&rank| points[rank]).collect();
            *known.entry(place.clone()).or_insert_with(|| {
                places.push(place);
                places.len() - 1
            })
        });
        let by_step = by_step.collect();
        let held = dead.iter().fold(0, |set, rank| set | 1 << rank);
        let count = places.len();
        let (dead, pictures, answers) = (dead.to_vec(), Vec::new(), self.chronicle.answers.clone());
        let hold = HoldBack { held, dead, places, pictures, answers };
        let mut after = self.before.clone();
        let (ran, hold) = start_before(self.setup, &mut after, self.how, Some(hold));
        assert!(ran.results.iter().all(Result::is_ok), "no rank was killed");
        let pictures = hold.expect("it was given").pictures;
        assert_eq!(pictures.len(), count, "held back, they did not come as far as before");
        Lingering { by_step, pictures }
    }

    /// The start with these ranks killed at a step (from 0).
    pub fn disturbance(&self, dead: &[usize], step: usize, linger: Linger) -> Disturbance {
        let step = step as u64 + 1;
        let kills = dead.iter().map(|&rank| Kill { step, rank }).collect();
        Disturbance { kills, linger, ..self.how.clone() }
    }

    /// The rank and its step at step `step` (from 0), named as in docs/protocol.md, for a failing
    /// case to print. Makes the start once more.
    pub fn name(&self, step: usize) -> String {
        let how = Disturbance { trace: true, ..self.how.clone() };
        start(self.setup, &mut self.before.clone(), &how).trace[step].clone()
    }

    pub fn cluster(&self, picture: &Picture) -> Cluster {
        picture.cluster(self.before)
    }

    pub fn kill(&self, how: &Disturbance) -> Cluster {
        let mut after = self.before.clone();
        let ran = start(self.setup, &mut after, how);
        assert!(ran.steps >= how.kills[0].step, "the schedule before a kill is the same");
        after
    }
}
