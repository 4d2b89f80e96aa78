//! Runs with levels of images, killed at every step: with all memory lost, with some of it, and
//! with disks.

use std::collections::HashSet;

use skt_checkpoint::checkpoint::decide::{Refusal, Resume};
use skt_checkpoint::checkpoint::level::{Generation, Reach};
use skt_checkpoint::checkpoint::methods::Method;

use crate::cluster::{Setup, fingerprint};
use crate::disks::{Cut, Fault};
use crate::is_soak;
use crate::levels::{Came, Count, EPOCH_SECONDS, How, LevelSetup, World, check_kept};

fn level(reach: Reach, keep: usize) -> LevelSetup {
    LevelSetup { reach, keep, every_seconds: 0.0 }
}

const CUTS: [Cut; 5] = [Cut::Nothing, Cut::All, Cut::Chance(1), Cut::Chance(2), Cut::Chance(3)];

const FAULTS: [Fault; 4] = [Fault::Dead, Fault::Unreadable, Fault::ReadOnly, Fault::Full];

/// The nodes whose memory is lost, and the disks that are lost: all, or some neighbouring ones.
fn losses(world: &World) -> Vec<(Vec<usize>, Vec<usize>)> {
    let (n, m) = (world.nodes.len(), world.setup.parities / world.ranks_a_node);
    let from = |first: usize, count: usize| (0..count).map(|i| (first + i) % n).collect::<Vec<_>>();
    let mut all = vec![(from(0, n), Vec::new())];
    for first in 0..n {
        all.push((from(0, n), from(first, m)));
        all.push((from(first, m + 1), Vec::new()));
        all.push((from(first, m), from(first, m)));
    }
    all
}

/// How many of the states that kills and losses leave are tested.
struct Sample {
    /// The epoch that the run continues to; its restarts continue to the next one.
    until: u64,
    /// The distance of the steps at which the run is killed.
    steps: usize,
    /// One in this many restarts is also killed at each of the restart's steps.
    killed: u64,
}

/// Kills a run at its steps, then loses memory and disks in all ways, then restarts; some of the
/// restarts are killed in the same way. Returns the number of starts; equal states are started from
/// once.
fn kill_everywhere(world: &World, sample: &Sample, count: &mut Count) -> usize {
    let &Sample { until, steps, killed } = sample;
    let setup = world.setup.clone();
    let (mut starts, mut seen) = (0, HashSet::new());
    for step in (1..).step_by(steps) {
        let mut dead = world.clone();
        let rank = (step % setup.ranks as u64) as usize;
        let ran = dead.start(&How::killed(step, until, step, rank));
        starts += 1;
        for (case, (memory, disks)) in losses(world).into_iter().enumerate() {
            for (number, cut) in [Cut::All, Cut::Nothing, Cut::Chance(step)].into_iter().enumerate()
            {
                let mut lost = dead.clone();
                lost.power_off(memory.iter().copied(), cut);
                disks.iter().for_each(|&disk| lost.lose_disk(disk));
                if !seen.insert(lost.fingerprint()) {
                    continue;
                }
                let turn = step * 31 + case as u64 * 7 + number as u64;
                let promise = lost.promise();
                let is_gone = memory.len() == world.nodes.len();
                let again = lost.clone();
                let ran = lost.start(&How::none(step + 1, until + 1));
                let came = check_kept(&ran, promise, is_gone);
                let is_enough = memory.len() * world.ranks_a_node <= setup.parities;
                let is_loaded = matches!(came, Came::Resumed(_, Some(_)));
                assert!(!is_enough || !is_loaded || lost.is_judged, "memory was enough");
                lost.check_files();
                count.add(&came);
                starts += 1;
                if turn.is_multiple_of(killed) {
                    starts += kill_restart(&again, ran.steps, until + 1, turn, count);
                }
            }
        }
        if ran.killed == 0 {
            return starts;
        }
    }
    unreachable!("a run ends")
}

/// Kills a restart at each of its steps, loses all memory or that of the killed rank, and starts
/// once more. Returns the number of starts.
fn kill_restart(world: &World, steps: u64, until: u64, turn: u64, count: &mut Count) -> usize {
    let (mut starts, n) = (0, world.nodes.len());
    for step in 1..=steps {
        let mut dead = world.clone();
        let rank = ((step + turn) % world.setup.ranks as u64) as usize;
        dead.start(&How::killed(turn, until, step, rank));
        let cut = CUTS[(step % CUTS.len() as u64) as usize];
        let is_gone = step % 3 != 0;
        if is_gone {
            dead.power_off(0..n, cut)
        } else {
            dead.power_off(std::iter::once(rank / world.ranks_a_node), cut)
        }
        let promise = dead.promise();
        let ran = dead.start(&How::none(turn + step, until + 1));
        count.add(&check_kept(&ran, promise, is_gone));
        dead.check_files();
        starts += 2;
    }
    starts
}

fn setups() -> Vec<Setup> {
    let double = |ranks| Setup { method: Method::Double, ..Setup::small(ranks, 1) };
    let mut all = vec![Setup::small(2, 1), Setup::small(3, 1), Setup::small(4, 2)];
    all.extend([double(2), double(3), abft(2, 1), abft(3, 1), abft(4, 2)]);
    all
}

fn abft(ranks: usize, parities: usize) -> Setup {
    let mut setup = Setup { method: Method::Abft, ..Setup::small(ranks, parities) };
    // The word that describes the data comes before the data.
    setup.shapes.reverse();
    setup
}

#[test]
fn complete_states_are_never_lost_and_restored_correctly() {
    let keeps = |setup: &Setup| if setup.ranks == 3 { 1..=2 } else { 1..=1 };
    let cases: Vec<(Setup, usize)> = setups()
        .into_iter()
        .flat_map(|setup| keeps(&setup).map(move |keep| (setup.clone(), keep)))
        .collect();
    // One case per core, if there are enough cores.
    std::thread::scope(|scope| {
        for (setup, keep) in &cases {
            scope.spawn(move || {
                let mut count = Count::default();
                let world = World::new(setup, &[level(Reach::Local, *keep)]);
                let killed = match (setup.ranks, setup.method) {
                    _ if is_soak() => 211,
                    (2, _) => 1009,
                    (3, Method::Abft) => 307,
                    _ => 4001,
                };
                // The first images are removed at the fourth epoch.
                let steps = match (setup.ranks, keep) {
                    _ if is_soak() => 1,
                    (4, _) => 13,
                    (_, 2) => 11,
                    (2, _) => 3,
                    _ => 7,
                };
                let sample = Sample { until: 4, steps, killed };
                let starts = kill_everywhere(&world, &sample, &mut count);
                let (n, m, method) = (setup.ranks, setup.parities, setup.method);
                println!("n = {n}, m = {m}, {method}, keep = {keep}: {starts} starts, {count:?}");
                assert!(count.0["from level 0"] >= 50);
            });
        }
    });
}

/// A world of two ranks per node, which share a file on the file system that all see.
fn on_shared_files(setup: Setup) -> World {
    let setup = Setup { allow_shared_domains: true, ..setup };
    World::on_nodes_of(2, &setup, &[level(Reach::Global, 1)])
}

#[test]
fn shared_files_are_as_safe_as_separate_files() {
    let double = Setup { method: Method::Double, ..Setup::small(4, 2) };
    std::thread::scope(|scope| {
        let setups =
            [Setup::small(4, 2), abft(4, 2)].into_iter().chain(is_soak().then_some(double));
        for setup in setups {
            scope.spawn(move || {
                let (mut count, method) = (Count::default(), setup.method);
                let world = on_shared_files(setup);
                let (steps, killed) = if is_soak() { (1, 211) } else { (11, 4001) };
                let sample = Sample { until: 4, steps, killed };
                let starts = kill_everywhere(&world, &sample, &mut count);
                println!("{method}: {starts} starts, {count:?}");
                assert!(count.0["from level 0"] > 40);
            });
        }
    });
}

/// Images that ranks have written to shared files can be read by ranks that share other files, or
/// none.
#[test]
fn images_are_found_whoever_shared_a_file_before() {
    let setup = Setup { allow_shared_domains: true, ..Setup::small(4, 2) };
    for (before, after) in [(1, 2), (2, 1), (2, 4), (4, 2), (4, 1)] {
        let mut world = World::on_nodes_of(before, &setup, &[level(Reach::Global, 2)]);
        world.start(&How::none(1, 4));
        world.check_files();
        world.power_off(0..4 / before, Cut::All);
        let promise = world.promise();
        assert!(promise.is_some());
        let nodes = World::on_nodes_of(after, &setup, &world.levels).nodes;
        let mut moved = World { ranks_a_node: after, nodes, ..world };
        let came = check_kept(&moved.start(&How::none(2, 8)), promise, true);
        assert!(matches!(came, Came::Resumed(_, Some((0, _)))), "{came:?}");
        moved.check_files();
        let ranks: HashSet<usize> =
            moved.disks[0][0].files().iter().map(|file| file.ranks.count()).collect();
        assert_eq!(ranks, [after].into(), "what was written before is gone");
    }
}

#[test]
fn a_level_that_all_see_serves_when_the_local_one_is_gone() {
    let setup = Setup::small(3, 1);
    let mut count = Count::default();
    let world = World::new(&setup, &[level(Reach::Local, 1), level(Reach::Global, 2)]);
    let mut done = world.clone();
    done.start(&How::none(1, 3));
    // More disks than parities are lost; the shared file system is left.
    let mut lost = done.clone();
    lost.power_off(0..3, Cut::All);
    (0..2).for_each(|node| lost.lose_disk(node));
    let promise = lost.promise();
    assert!(promise.is_some());
    let ran = lost.start(&How::none(2, 4));
    let came = check_kept(&ran, promise, true);
    assert!(matches!(came, Came::Resumed(_, Some((1, _)))), "{came:?}");
    let steps = if is_soak() { 1 } else { 5 };
    let sample = Sample { until: 2, steps, killed: 4001 };
    let starts = kill_everywhere(&world, &sample, &mut count);
    println!("two levels: {starts} starts, {count:?}");
}

/// A job stops on some nodes, continues from its images on others, and comes back to the first
/// ones, whose memory is still there: it missed what the others have done since.
#[test]
fn images_of_a_later_start_win_over_memory_that_missed_it() {
    let double = Setup { method: Method::Double, ..Setup::small(3, 1) };
    for setup in [Setup::small(3, 1), double, abft(3, 1)] {
        let mut world = World::new(&setup, &[level(Reach::Global, 1)]);
        world.start(&How::none(1, 4));
        let others = World::new(&setup, &world.levels).nodes;
        let first = std::mem::replace(&mut world.nodes, others);
        world.start(&How::none(2, 8));
        let promise = world.promise();
        assert!(promise.is_some_and(|generation| generation.epoch > 4), "{promise:?}");
        world.nodes = first;
        let back = world.clone();
        let ran = world.start(&How::none(3, 9));
        let came = check_kept(&ran, promise, true);
        assert!(matches!(came, Came::Resumed(_, Some((0, _)))), "{came:?}");
        world.check_files();
        kill_restart(&back, ran.steps, 9, 3, &mut Count::default());
    }
}

/// With the present disks nothing can be restored: their images stay until the others return.
#[test]
fn images_stay_while_too_many_disks_are_away() {
    let mut world = World::new(&Setup::small(4, 1), &[level(Reach::Local, 1)]);
    world.start(&How::none(1, 3));
    world.power_off(0..4, Cut::All);
    let promise = world.promise();
    assert!(promise.is_some());
    let away: Vec<_> = (0..2).map(|node| std::mem::take(&mut world.disks[0][node])).collect();
    let ran = world.start(&How::none(2, 0));
    assert!(ran.results.iter().all(|r| *r.as_ref().unwrap() == Came::Fresh));
    world.power_off(0..4, Cut::All);
    world.disks[0].splice(0..2, away);
    let came = check_kept(&world.start(&How::none(3, 5)), promise, true);
    assert!(matches!(came, Came::Resumed(_, Some((0, _)))), "{came:?}");
}

/// Kills the run at its first step that leaves its newest images without those of rank 0, then its
/// restart in the same way, until all generations that a level keeps lack them, and an older one is
/// complete.
fn with_newest_lacking(world: &World, until: &mut u64, seed: u64) -> World {
    let (n, keep) = (world.setup.ranks, world.levels[0].keep);
    let mut found = world.clone();
    for lacking in 1..=keep {
        let is_meant = |world: &World| {
            let mut newest = world.sealed[0].0.values().rev().map(|ranks| ranks.len());
            newest.by_ref().take(lacking).all(|ranks| ranks == n - 1) && newest.next() == Some(n)
        };
        let mut dead = found.clone();
        for step in 1.. {
            dead = found.clone();
            let ran = dead.start(&How::killed(seed, *until, step, 0));
            assert!(ran.killed > 0, "no step leaves {lacking} generations without one image each");
            dead.power_off(0..n, Cut::All);
            if is_meant(&dead) {
                break;
            }
        }
        (found, *until) = (dead, *until + 4);
    }
    found
}

/// The newest images lack those of a rank that has died too early, and of all disks that may be
/// lost but one. The start that is restored from them is killed at each of its steps, then any disk
/// is lost: the older images, which were complete, are still there, and there is room for all.
#[test]
fn the_last_complete_images_stay_while_newer_ones_lack_some() {
    let double = Setup { method: Method::Double, ..Setup::small(3, 1) };
    let mut cases = vec![(Setup::small(3, 1), 1), (Setup::small(3, 1), 2), (double, 1)];
    cases.extend([(abft(3, 1), 1), (Setup::small(4, 2), 1)]);
    std::thread::scope(|scope| {
        for (setup, keep) in &cases {
            scope.spawn(move || {
                let (mut count, mut until, seed) = (Count::default(), 4, 5);
                let world = World::new(setup, &[level(Reach::Local, *keep)]);
                let (n, m) = (setup.ranks, setup.parities);
                let mut lacking = with_newest_lacking(&world, &mut until, seed);
                (1..m).for_each(|disk| lacking.lose_disk(disk));
                // A start that stops completes its last images even where images wait for room.
                // (With `abft` a rank waits for each of its images.)
                let all = if setup.method == Method::Abft { 0 } else { until };
                for last in 1..=all {
                    let mut stopped = lacking.clone();
                    let ran = stopped.start(&How { stops: true, ..How::none(seed, last) });
                    ran.results.iter().for_each(|came| assert!(came.is_ok(), "{came:?}"));
                    stopped.check_files();
                }
                let ran = lacking.clone().start(&How::none(seed, until));
                for step in (1..=ran.steps).step_by(if is_soak() { 1 } else { 7 }) {
                    let mut dead = lacking.clone();
                    dead.start(&How::killed(seed, until, step, step as usize % n));
                    dead.check_files();
                    dead.power_off(0..n, CUTS[(step % CUTS.len() as u64) as usize]);
                    for disk in 0..n {
                        let mut lost = dead.clone();
                        lost.lose_disk(disk);
                        let promise = lost.promise();
                        assert!(promise.is_some(), "step {step}: one disk is not too much");
                        let ran = lost.start(&How::none(step, until + 1));
                        count.add(&check_kept(&ran, promise, true));
                        lost.check_files();
                    }
                }
                println!("n = {n}, {}, keep = {keep}, seed {seed}: {count:?}", setup.method);
            });
        }
    });
}

#[test]
fn an_ended_run_leaves_no_images_and_is_not_computed_again() {
    let local = World::new(&Setup::small(3, 1), &[level(Reach::Local, 2)]);
    let cases = [local, on_shared_files(Setup::small(4, 2))].map(end_everywhere);
    println!("{cases:?} ends");
}

/// Kills a run at every step, up to its end. Returns the number of cases.
fn end_everywhere(world: World) -> usize {
    let mut cases = 0;
    for step in 1.. {
        let mut dead = world.clone();
        let rank = (step % world.setup.ranks as u64) as usize;
        let how = How { finish: true, ..How::killed(step, 2, step, rank) };
        let ran = dead.start(&how);
        cases += 1;
        let is_reported = dead.is_reported;
        // A node loses its memory, not its disk.
        let node = rank / world.ranks_a_node;
        dead.power_off(std::iter::once(node), CUTS[(step % 5) as usize]);
        let again = dead.start(&How { finish: true, ..How::none(step, 2) });
        for came in again.results {
            let came = came.expect("undisturbed");
            assert_eq!(came, Came::Finished);
        }
        let images: usize = dead.disks.iter().flatten().map(|platter| platter.images().len()).sum();
        assert_eq!(images, 0, "reported before: {is_reported}");
        if ran.killed == 0 {
            break;
        }
    }
    cases
}

#[test]
fn requested_fresh_start_uses_and_leaves_no_old_image() {
    let local = World::new(&Setup::small(3, 1), &[level(Reach::Local, 2)]);
    for mut world in [local, on_shared_files(Setup::small(4, 2))] {
        world.start(&How::none(1, 3));
        world.power_off(0..world.nodes.len(), Cut::All);
        let ran = world.start(&How { resume: Resume::Never, ..How::none(2, 0) });
        assert!(ran.results.iter().all(|r| *r.as_ref().unwrap() == Came::Fresh));
        assert!(world.disks.iter().flatten().all(|platter| platter.images().is_empty()));
    }
}

#[test]
fn a_disk_that_fails_costs_its_level_and_not_the_run() {
    let setup = Setup::small(3, 1);
    for last in 0..60 {
        let mut world = World::new(&setup, &[level(Reach::Local, 1), level(Reach::Global, 1)]);
        world.disks[0][1].fails_after = Some(last);
        let ran = world.start(&How::none(last, 4));
        assert!(ran.results.iter().all(|r| *r.as_ref().unwrap() == Came::Fresh));
        world.disks[0][1].fails_after = None;
        world.power_off(0..3, Cut::All);
        let promise = world.promise();
        let ran = world.start(&How::none(last, 5));
        assert!(matches!(check_kept(&ran, promise, true), Came::Resumed(..)));
    }
}

/// A run that has died at epoch 2, and a level that fails at its next start.
struct Failing {
    world: World,
    lost: usize,
    level: usize,
    nodes: usize,
    fault: Fault,
}

impl Failing {
    /// All cases of a run with these levels: memory is lost on no node, on as many as the run
    /// survives, or on all; and each level fails with each fault on as many nodes as the run
    /// survives, on one more, or on all.
    fn all(setup: &Setup, levels: &[LevelSetup]) -> Vec<Self> {
        let (n, m) = (setup.ranks, setup.parities);
        let mut done = World::new(setup, levels);
        // With one more epoch no level would need room for another image.
        done.start(&How::none(1, 2));
        let mut all = Vec::new();
        for (lost, level) in [0, m, n].iter().flat_map(|&l| (0..levels.len()).map(move |i| (l, i)))
        {
            for (nodes, fault) in [m, m + 1, n].iter().flat_map(|&k| FAULTS.map(|f| (k, f))) {
                let mut world = done.clone();
                world.power_off(0..lost, Cut::Nothing);
                world.faults = (0..nodes).map(|node| ((level, node), fault)).collect();
                all.push(Self { world, lost, level, nodes, fault });
            }
        }
        all
    }

    /// Checks the outcome of the next start: it resumes from memory or from images, or is refused.
    fn check(&self, came: &Came) {
        let Self { world, lost, level, nodes, fault } = self;
        let parities = world.setup.parities;
        let is_hidden = matches!(fault, Fault::Dead | Fault::Unreadable);
        let is_readable = !is_hidden || *nodes <= parities || world.levels.len() > 1;
        let is_as_expected = match came {
            Came::Resumed(_, None) => *lost <= parities,
            Came::Resumed(_, Some(_)) => *lost > parities && is_readable,
            Came::Refused(Refusal::LevelFails { failure, .. }) => {
                *lost > parities && !is_readable && failure.starts_with("process 0 (node0): ")
            }
            _ => false,
        };
        assert!(is_as_expected, "{lost} lost, level {level} {fault:?} to {nodes}: {came:?}");
    }

    /// Starts the run, then once more, without memory, when the level has recovered.
    fn start(&self, count: &mut Count) {
        let mut world = self.world.clone();
        let ran = world.start(&How::none(2, 5));
        let came = ran.results[0].as_ref().expect("undisturbed").clone();
        assert!(ran.results.iter().all(|other| *other.as_ref().unwrap() == came));
        self.check(&came);
        count.add(&came);
        // If a level is read-only on some nodes, the disks of the others are written to.
        if self.fault != Fault::ReadOnly {
            let disks = |world: &World| world.disks_fingerprint(self.level);
            assert_eq!(disks(&world), disks(&self.world), "nothing goes, nothing is written");
        }
        match came {
            Came::Refused(_) => {
                assert_eq!(world.fingerprint(), self.world.fingerprint(), "nothing is changed");
            }
            // A rank notices that it cannot change the disk when it has something to remove.
            _ if self.fault == Fault::ReadOnly => {
                assert!(world.reported_to_fail.iter().all(|&rank| rank < self.nodes));
            }
            _ => assert_eq!(world.reported_to_fail.len(), world.setup.ranks),
        }
        assert!(world.promise() >= self.world.promise());
        start_repaired(world, count);
        for step in (1..=ran.steps).step_by(if is_soak() { 1 } else { 401 }) {
            let mut dead = self.world.clone();
            dead.start(&How::killed(step, 5, step, step as usize % dead.setup.ranks));
            let ran = dead.clone().start(&How::none(step, 5));
            let came = ran.results[0].as_ref().expect("undisturbed");
            assert!(!matches!(came, Came::Fresh | Came::Finished), "step {step}: {came:?}");
            start_repaired(dead, count);
        }
    }
}

/// A start after all memory is lost, with all disks well.
fn start_repaired(mut world: World, count: &mut Count) {
    world.faults.clear();
    world.power_off(0..world.nodes.len(), Cut::All);
    let promise = world.promise();
    assert!(promise.is_some());
    count.add(&check_kept(&world.start(&How::none(3, 6)), promise, true));
}

/// The contents of a level that fails at a start stay unchanged, and are used when the level has
/// recovered.
#[test]
fn level_failing_at_a_start_loses_no_complete_image() {
    let (near, far) = (level(Reach::Local, 1), level(Reach::Global, 1));
    let setups = [Setup::small(2, 1), Setup::small(3, 1), Setup::small(4, 2), abft(3, 1)];
    std::thread::scope(|scope| {
        for setup in &setups {
            scope.spawn(move || {
                let mut count = Count::default();
                for levels in [&[near][..], &[far], &[near, far]] {
                    let all = Failing::all(setup, levels);
                    all.iter().for_each(|failing| failing.start(&mut count));
                }
                println!("n = {}, {}: {count:?}", setup.ranks, setup.method);
                assert!(count.0["refused"] > 0 && count.0["from memory"] > 0);
            });
        }
    });
}

/// A run that resumes from older images, because the level with the newer ones fails, is the newer
/// history when that level has recovered, whatever the epochs are.
#[test]
fn images_of_a_failed_level_are_older_than_the_continued_run() {
    let mut world =
        World::new(&Setup::small(3, 1), &[level(Reach::Local, 1), level(Reach::Global, 1)]);
    let fails = |level| (0..3).map(move |node| ((level, node), Fault::Dead)).collect();
    world.start(&How::none(1, 2));
    world.faults = fails(1);
    world.start(&How::none(2, 6));
    world.power_off(0..3, Cut::All);
    world.faults = fails(0);
    let ran = world.start(&How::none(3, 4));
    let Ok(Came::Resumed(state, Some((1, _)))) = &ran.results[0] else { panic!("{ran:?}") };
    assert!(state.iter().all(|&start| start == 1), "{state:?}");
    world.faults.clear();
    world.power_off(0..3, Cut::All);
    let promise = world.promise();
    let came = check_kept(&world.start(&How::none(4, 5)), promise, true);
    let Came::Resumed(state, Some((1, _))) = came else { panic!("{came:?}") };
    assert!(state.ends_with(&[3]) && !state.contains(&2), "{state:?}");
}

#[test]
fn a_disk_from_which_nothing_can_be_removed_costs_its_level() {
    let mut world = World::new(&Setup::small(3, 1), &[level(Reach::Local, 1)]);
    world.start(&How::none(1, 4));
    world.faults.insert((0, 1), Fault::ReadOnly);
    // No image is due.
    let ran = world.start(&How::none(2, 4));
    let Ok(Came::Resumed(_, None)) = &ran.results[0] else { panic!("{ran:?}") };
    assert_eq!(world.reported_to_fail, [1].into());
}

/// Images are due at each third epoch, counted over starts of two epochs each, from memory or from
/// images.
#[test]
fn the_time_between_two_images_counts_over_all_starts() {
    let every_seconds = 2.5 * EPOCH_SECONDS;
    for setup in [Setup::small(3, 1), abft(3, 1)] {
        for loses_memory in [false, true] {
            let level = LevelSetup { every_seconds, ..level(Reach::Local, 9) };
            let mut world = World::new(&setup, &[level]);
            // The first start of `abft` that resumes only saves a state, and writes no image.
            for start in 1..8 {
                let ran = world.start(&How::none(start, 2 * start));
                check_kept(&ran, None, false);
                if loses_memory && start == 4 {
                    world.power_off(0..3, Cut::All);
                }
            }
            let images = world.disks[0][0].images();
            let epochs: Vec<u64> = images.iter().map(|id| id.generation.epoch).collect();
            println!("{} {loses_memory}: {epochs:?}", setup.method);
            assert!(epochs.windows(2).all(|pair| (3..=4).contains(&(pair[1] - pair[0]))));
            assert!(epochs.len() >= 3, "{epochs:?}");
        }
    }
}

/// Incomplete images survive fewer losses: if a start finds them, new ones follow at once, although
/// the time between two images is not over. This holds whether memory is kept, and whether the
/// images are missing or have rotted in part.
#[test]
fn images_that_lack_some_are_followed_by_others_at_once() {
    let every_seconds = 1000.0 * EPOCH_SECONDS;
    for setup in [Setup::small(3, 1), abft(3, 1)] {
        for (loses_memory, loses_disk) in [(false, true), (true, true), (true, false)] {
            let soon = LevelSetup { every_seconds: 0.0, ..level(Reach::Local, 9) };
            let mut world = World::new(&setup, &[soon]);
            world.start(&How::none(1, 3));
            world.levels[0].every_seconds = every_seconds;
            // The start and the epoch.
            let newest = |world: &World, node: usize| {
                let images = world.disks[0][node].images();
                let newest = images.iter().map(|id| id.generation).max();
                newest.map(|images| (images.start.number, images.epoch)).expect("images")
            };
            let before = newest(&world, 0);
            if loses_memory {
                world.power_off(0..3, Cut::All);
            }
            if loses_disk {
                world.lose_disk(1)
            } else {
                (1..=before.1).for_each(|epoch| world.rot_image(0, 1, epoch))
            }
            let ran = world.start(&How::none(2, before.1 + 3));
            check_kept(&ran, None, false);
            let of_nodes = [0, 1, 2].map(|node| newest(&world, node));
            println!("{} {loses_memory} {loses_disk}: {before:?}, {of_nodes:?}", setup.method);
            assert!(of_nodes.iter().all(|images| images.0 > before.0), "{of_nodes:?}");
            let whole = newest(&world, 0);
            world.start(&How::none(3, whole.1 + 6));
            assert_eq!(newest(&world, 0), whole, "these are followed when it is time");
        }
    }
}

/// Images have rotted in part. The start that finds this dies, at any step: the start after it
/// makes new images due at once, whether it resumes from memory, whose record knows of the rot, or
/// reads the images again.
#[test]
fn rot_that_a_start_has_found_is_known_to_the_next() {
    for setup in [Setup::small(3, 1), Setup::small(4, 2), abft(3, 1)] {
        let soon = LevelSetup { every_seconds: 0.0, ..level(Reach::Local, 9) };
        let mut world = World::new(&setup, &[soon]);
        world.start(&How::none(1, 3));
        world.levels[0].every_seconds = 1000.0 * EPOCH_SECONDS;
        let newest = |world: &World, node: usize| {
            let images = world.disks[0][node].images();
            images.iter().map(|id| id.generation).max().expect("images")
        };
        let before = newest(&world, 0);
        world.power_off(0..setup.ranks, Cut::All);
        (1..=before.epoch).for_each(|epoch| world.rot_image(0, 1, epoch));
        let until = before.epoch + 3;
        let ran = world.clone().start(&How::none(2, until));
        let mut from_memory = 0;
        for step in (1..=ran.steps).step_by(if is_soak() { 1 } else { 29 }) {
            let mut dead = world.clone();
            dead.start(&How::killed(step, until, step, (step % 3) as usize));
            let ran = dead.start(&How::none(step, until + 3));
            let came = check_kept(&ran, None, false);
            from_memory += usize::from(matches!(came, Came::Resumed(_, None)));
            let follow = |node: usize| newest(&dead, node).start.number > before.start.number;
            assert!((0..setup.ranks).all(follow), "{}, step {step}: {came:?}", setup.method);
        }
        assert!(from_memory > 0, "{}: {} steps", setup.method, ran.steps);
    }
}

/// The data on a failing disk is unknown, so no start begins from the beginning while one fails,
/// even if it is asked to. The same holds for a full disk.
#[test]
fn a_level_that_fails_at_the_first_start_is_refused() {
    for fault in [Fault::Dead, Fault::Full] {
        for resume in [Resume::Auto, Resume::Never, Resume::Require] {
            let mut world = World::new(&Setup::small(3, 1), &[level(Reach::Local, 1)]);
            world.faults.insert((0, 1), fault);
            let before = world.fingerprint();
            let ran = world.start(&How { resume, ..How::none(1, 3) });
            let Ok(Came::Refused(refusal)) = &ran.results[0] else { panic!("{fault:?}: {ran:?}") };
            match (refusal, fault) {
                (Refusal::LevelFails { level, failure, .. }, Fault::Dead) => {
                    assert_eq!(level, "local");
                    assert!(failure.starts_with("process 1 (node1): "), "{failure}");
                }
                (Refusal::NoRoom { process: 1, host, .. }, Fault::Full) => {
                    assert_eq!(host, "node1");
                    assert!(refusal.to_string().contains("process 1 (node1)"), "{refusal}");
                }
                (Refusal::NothingFound { .. }, Fault::Full) => assert_eq!(resume, Resume::Require),
                _ => panic!("{fault:?}: {refusal}"),
            }
            assert_eq!(world.fingerprint(), before);
        }
    }
}

/// If the application knows that there were no images, the failing level is given up, and the other
/// one, if there is one, gets the images.
#[test]
fn a_level_that_fails_and_hides_nothing_costs_the_level() {
    let (near, far) = (level(Reach::Local, 1), level(Reach::Global, 1));
    for (levels, fault, resume) in [
        (&[near][..], Fault::Dead, Resume::Auto),
        (&[near], Fault::Full, Resume::Auto),
        (&[near, far], Fault::Dead, Resume::Never),
        (&[near, far], Fault::Full, Resume::Never),
    ] {
        let mut world = World::new(&Setup::small(3, 1), levels);
        world.faults.insert((0, 1), fault);
        let ran = world.start(&How { resume, nothing_hidden: true, ..How::none(1, 4) });
        assert!(ran.results.iter().all(|r| *r.as_ref().unwrap() == Came::Fresh), "{fault:?}");
        assert_eq!(world.reported_to_fail.len(), 3, "{fault:?}");
        world.faults.clear();
        world.power_off(0..3, Cut::All);
        let promise = world.promise();
        assert_eq!(promise.is_some(), levels.len() == 2);
        let came = check_kept(&world.start(&How::none(2, 5)), promise, true);
        assert_eq!(matches!(came, Came::Resumed(_, Some((1, _)))), levels.len() == 2, "{came:?}");
    }
}

/// The images on a failing disk stay after the end of their run, which is reported once; memory is
/// free again.
#[test]
fn a_level_that_fails_does_not_keep_a_run_from_its_end() {
    let levels = [level(Reach::Local, 1), level(Reach::Global, 1)];
    for level in 0..levels.len() {
        let mut world = World::new(&Setup::small(3, 1), &levels);
        world.start(&How::none(1, 3));
        world.faults = (1..3).map(|node| ((level, node), Fault::Dead)).collect();
        let ran = world.start(&How { finish: true, ..How::none(2, 5) });
        assert!(ran.results.iter().all(|r| *r.as_ref().unwrap() == Came::Finished));
        assert_eq!(world.reported_to_stay, 1);
        assert!(world.nodes.iter().all(|node| node.segments.is_empty()));
        let images = |level: usize| -> usize {
            world.disks[level].iter().map(|platter| platter.images().len()).sum()
        };
        assert!(images(level) > 0 && images(1 - level) == 0);
    }
}

/// The nearest source has more rot than can be rebuilt: memory, and one or more generations. The
/// next source is used, however often the start dies on the way. The start is refused only if
/// nothing is sound, and names the source.
#[test]
fn images_damaged_beyond_repair_are_skipped() {
    let setup = Setup::small(3, 1);
    let mut world = World::new(&setup, &[level(Reach::Local, 1), level(Reach::Global, 2)]);
    world.start(&How::none(1, 5));
    let mut sound = world.clone();
    sound.power_off(0..3, Cut::All);
    let promise = sound.promise();
    let newest = promise.expect("some are complete").epoch as usize;
    check_kept(&sound.start(&How::none(2, 5)), promise, true);
    let (mut count, mut starts) = (Count::default(), 0);
    // How many of the newest generations are rotten on the local disks, which have two, and on the
    // file system, which has three; and the level that is left.
    for (with_memory, local, global, left) in [
        (true, 0, 0, 0),
        (true, 1, 0, 1),
        (true, 1, 1, 0),
        (true, 2, 2, 1),
        (false, 1, 1, 0),
        (false, 2, 2, 1),
    ] {
        let mut rotten = world.clone();
        if with_memory {
            (1..3).for_each(|node| rotten.rot_memory(node))
        } else {
            rotten.power_off(0..3, Cut::All)
        }
        for rank in 1..3 {
            for (level, generations) in [(0, local), (1, global)] {
                let epochs = newest + 1 - generations..=5;
                epochs.for_each(|epoch| rotten.rot_image(level, rank, epoch as u64));
            }
        }
        let mut ran = rotten.clone().start(&How::none(2, 5));
        let came = check_kept(&ran, None, true);
        let Came::Resumed(state, Some((number, _))) = &came else { panic!("{came:?}") };
        let expected = (newest - local.min(global), left);
        assert_eq!((state.len(), *number), expected);
        for step in (1..=ran.steps).step_by(if is_soak() { 1 } else { 23 }) {
            let mut dead = rotten.clone();
            dead.start(&How::killed(step, 5, step, (step % 3) as usize));
            let mut lost = dead.clone();
            lost.power_off(0..3, CUTS[(step % CUTS.len() as u64) as usize]);
            ran = lost.start(&How::none(step, 6));
            let came = check_kept(&ran, None, true);
            let Came::Resumed(state, _) = &came else { panic!("step {step}: {came:?}") };
            assert!(state.len() >= expected.0);
            count.add(&came);
            ran = dead.start(&How::none(step, 6));
            count.add(&check_kept(&ran, None, false));
            starts += 3;
        }
    }
    println!("{starts} starts, {count:?}");

    let mut rotten = world;
    (1..3).for_each(|node| rotten.rot_memory(node));
    for rank in 1..3 {
        (0..2).for_each(|level| (1..6).for_each(|epoch| rotten.rot_image(level, rank, epoch)));
    }
    let ran = rotten.start(&How::none(2, 5));
    let Came::Refused(refusal) = check_kept(&ran, None, true) else { panic!("nothing is sound") };
    let text = refusal.to_string();
    assert!(text.contains("from the images of") && text.contains("rank 1"), "{text}");
    assert!(rotten.disks.iter().flatten().all(|platter| !platter.images().is_empty()));
}

/// Images of method `abft` rot as a whole: one per group is lost like a disk, and more are passed
/// over, however often the start dies on the way.
#[test]
fn damaged_images_of_abft_are_lost_or_skipped() {
    let setup = abft(3, 1);
    let mut world = World::new(&setup, &[level(Reach::Local, 2)]);
    world.start(&How::none(1, 5));
    world.power_off(0..3, Cut::All);
    let newest = world.promise().expect("some are complete").epoch as usize;
    let mut count = Count::default();
    // The disk of a rank may be lost, too.
    let cases = [(1..2, None, newest), (1..3, None, newest - 1), (1..2, Some(0), newest - 1)];
    for (rotten_ranks, lost, expected) in cases {
        let mut rotten = world.clone();
        lost.into_iter().for_each(|disk| rotten.lose_disk(disk));
        rotten_ranks.for_each(|rank| {
            (newest..=5).for_each(|epoch| rotten.rot_image(0, rank, epoch as u64));
        });
        let mut undisturbed = rotten.clone();
        let ran = undisturbed.start(&How::none(2, 5));
        let Came::Resumed(state, Some(_)) = check_kept(&ran, None, true) else { panic!("{ran:?}") };
        assert_eq!(state.len(), expected);
        assert!(!undisturbed.is_judged, "what is lost and what has rotted count together");
        for step in 1..=ran.steps {
            let mut dead = rotten.clone();
            dead.start(&How::killed(step, 6, step, (step % 3) as usize));
            let is_gone = step % 2 == 0;
            if is_gone {
                dead.power_off(0..3, CUTS[(step % CUTS.len() as u64) as usize]);
            }
            let ran = dead.start(&How::none(step, 6));
            let came = check_kept(&ran, None, is_gone);
            let Came::Resumed(state, _) = &came else { panic!("step {step}: {came:?}") };
            assert!(state.len() >= expected);
            count.add(&came);
        }
    }
    println!("{count:?}");
    (1..3).for_each(|rank| (1..6).for_each(|epoch| world.rot_image(0, rank, epoch)));
    let ran = world.start(&How::none(2, 5));
    let Came::Refused(refusal) = check_kept(&ran, None, true) else { panic!("nothing is sound") };
    let text = refusal.to_string();
    let rotten = "rank 1 has an image that has rotted; rank 2 has an image that has rotted";
    assert!(text.contains(rotten), "{text}");
}

/// Neither memory nor the newest images can be used: the older ones are taken, and the newest are
/// removed, on both levels. If there are no older ones the start is refused.
#[test]
fn images_that_the_application_rejects_are_skipped() {
    let levels = [level(Reach::Local, 2), level(Reach::Global, 2)];
    let mut world = World::new(&abft(3, 1), &levels);
    world.start(&How::none(1, 4));
    let doubting = |until_epoch| How { doubts: true, ..How::none(2, until_epoch) };
    let ran = world.start(&doubting(4));
    let Came::Resumed(state, Some(_)) = check_kept(&ran, None, true) else { panic!("{ran:?}") };
    assert_eq!(state.len(), 3);
    let epochs = |world: &World| -> HashSet<u64> {
        let images = world.disks.iter().flatten().flat_map(|platter| platter.images());
        images.map(|id| id.generation.epoch).collect()
    };
    assert!(!epochs(&world).contains(&4), "they are gone once the run continues from others");
    let mut alone = World::new(&abft(3, 1), &[level(Reach::Local, 1)]);
    alone.start(&How::none(1, 2));
    let ran = alone.start(&doubting(2));
    let Came::Refused(refusal) = check_kept(&ran, None, true) else { panic!("{ran:?}") };
    assert_eq!(refusal.what(), "it is wrong");
    assert_eq!(epochs(&alone), [2].into());
}

/// The newest images of up to m nodes, or of one more, cannot be read when they are loaded. They
/// count as lost: the others compensate for them, or the older ones are taken, in the same start,
/// and also in the start after one that dies on the way. `most` is the number of cells that are
/// repaired one by one.
fn load_what_fails(setup: &Setup, most: usize, fault: Fault, count: &mut Count) {
    let (n, m) = (setup.ranks, setup.parities);
    let mut done = World::new(setup, &[level(Reach::Local, 2)]);
    done.damaged_cells_max = most;
    done.start(&How::none(1, 5));
    done.power_off(0..n, Cut::All);
    let newest = done.promise().expect("some are complete");
    done.spoiled = Some(newest);
    for nodes in 1..=m + 1 {
        let mut world = done.clone();
        world.faults = (0..nodes).map(|node| ((0, n - 1 - node), fault)).collect();
        let expected = newest.epoch as usize - usize::from(nodes > m);
        let mut undisturbed = world.clone();
        let ran = undisturbed.start(&How::none(2, 5));
        let came = check_kept(&ran, None, true);
        let Came::Resumed(state, Some(_)) = &came else { panic!("{fault:?} {nodes}: {came:?}") };
        assert_eq!(state.len(), expected, "{fault:?} at {nodes} of {n}, {m} parities");
        assert!(undisturbed.reported_to_fail.is_empty(), "the level is not given up");
        undisturbed.faults.clear();
        undisturbed.power_off(0..n, Cut::All);
        // The generation that was passed over is removed.
        let promise = undisturbed.promise().filter(|_| nodes <= m);
        let again = check_kept(&undisturbed.start(&How::none(3, 6)), promise, true);
        let Came::Resumed(state, Some(_)) = &again else { panic!("{fault:?} {nodes}: {again:?}") };
        assert!(state.len() >= expected);
        for step in (1..=ran.steps).step_by(if is_soak() { 1 } else { 29 }) {
            let mut dead = world.clone();
            dead.start(&How::killed(step, 5, step, step as usize % n));
            let is_gone = step % 2 == 0;
            if is_gone {
                dead.power_off(0..n, CUTS[(step % CUTS.len() as u64) as usize]);
            }
            let ran = dead.start(&How::none(step, 6));
            let came = check_kept(&ran, None, is_gone);
            let Came::Resumed(state, _) = &came else { panic!("step {step}: {came:?}") };
            assert!(state.len() >= expected, "step {step}: {state:?}");
            count.add(&came);
        }
    }
}

#[test]
fn image_that_cannot_be_loaded_counts_as_lost() {
    let double = Setup { method: Method::Double, ..Setup::small(3, 1) };
    std::thread::scope(|scope| {
        for setup in [Setup::small(3, 1), Setup::small(4, 2), double, abft(3, 1)] {
            scope.spawn(move || {
                let mut count = Count::default();
                for most in [2, 1 << 16] {
                    for fault in [Fault::GoneAtLoad, Fault::TornAtLoad, Fault::OtherAtLoad] {
                        load_what_fails(&setup, most, fault, &mut count);
                    }
                }
                println!("n = {}, {}: {count:?}", setup.ranks, setup.method);
            });
        }
    });
}

/// There is no other source: the refusal names the ranks whose images cannot be read, and why. No
/// cell of theirs is known to be damaged.
#[test]
fn images_that_cannot_be_read_are_not_called_damaged() {
    for setup in [Setup::small(3, 1), abft(3, 1)] {
        for (fault, why) in
            [(Fault::TornAtLoad, "not to its end"), (Fault::GoneAtLoad, "entity not found")]
        {
            let mut world = World::new(&setup, &[level(Reach::Local, 1)]);
            world.damaged_cells_max = 0;
            world.start(&How::none(1, 2));
            world.power_off(0..3, Cut::All);
            world.spoiled = Some(world.promise().expect("some are complete"));
            world.faults = (1..3).map(|node| ((0, node), fault)).collect();
            let ran = world.start(&How::none(2, 5));
            let Came::Refused(refusal) = check_kept(&ran, None, true) else { panic!("{ran:?}") };
            let text = refusal.to_string();
            for rank in [1, 2] {
                let unread = format!("rank {rank} cannot read its image ({why})");
                assert!(text.contains(&unread), "{fault:?}: {text}");
            }
            assert!(!text.contains("damaged") && !text.contains("rotted"), "{fault:?}: {text}");
        }
    }
}

/// A disk that fails may take seconds to refuse each read, and a terabyte has a million of them.
#[test]
fn an_image_that_is_lost_is_not_read_to_its_end() {
    let failed_loads = |setup: &Setup, most: usize| {
        let mut world = World::new(setup, &[level(Reach::Local, 2)]);
        world.damaged_cells_max = most;
        world.start(&How::none(1, 5));
        world.power_off(0..3, Cut::All);
        let newest = world.promise().expect("some are complete");
        world.spoiled = Some(newest);
        world.faults = [((0, 2), Fault::TornAtLoad)].into();
        let came = check_kept(&world.start(&How::none(2, 5)), None, true);
        let Came::Resumed(state, Some(_)) = came else { panic!("{came:?}") };
        assert_eq!(state.len() as u64, newest.epoch, "the others rebuild it");
        world.disks[0][2].failed_loads
    };
    let setup = Setup::small(3, 1);
    let cells_a_read = setup.chunk_bytes / setup.cell_bytes;
    assert_eq!(failed_loads(&setup, 0), 1);
    // A piece at the end of a range may be shorter.
    let most = failed_loads(&setup, 2 * cells_a_read);
    assert!((3..6).contains(&most), "{most}");
    assert!(failed_loads(&setup, 1 << 16) > 6, "what may be repaired is read");
    assert_eq!(failed_loads(&abft(3, 1), 1 << 16), 1, "one checksum covers all of it");
}

/// One bit of an image flips, with no disk lost, and with one lost.
#[test]
fn damage_is_repaired_or_an_older_image_is_used() {
    let setup = Setup::small(3, 1);
    let mut world = World::new(&setup, &[level(Reach::Local, 2)]);
    world.start(&How::none(1, 3));
    world.power_off(0..3, Cut::All);
    let mut count = Count::default();
    let images = world.disks[0][0].images();
    let distance = if is_soak() { 7 } else { 61 };
    for lost in [None, Some(1), Some(0)] {
        for (which, &id) in images.iter().enumerate() {
            for at in 0..world.clone().disks[0][0].bytes_mut(id).len() {
                if at % distance != which && !(4096..4096 + 400).contains(&at) && at > 64 {
                    continue;
                }
                let mut rotten = world.clone();
                rotten.disks[0][0].bytes_mut(id)[at] ^= 1 << (at % 8);
                lost.into_iter().for_each(|disk| rotten.lose_disk(disk));
                let ran = rotten.start(&How::none(at as u64, 4));
                count.add(&check_kept(&ran, None, true));
            }
        }
    }
    println!("{count:?}");
    assert!(!count.0.contains_key("refused as damaged"), "an older image was there");
    assert!(!count.0.contains_key("from the beginning"), "nothing was lost beyond the parities");
}

/// A start that goes back to an older checkpoint, by its number, is killed at each of its steps,
/// and all memory, some or none is lost with it. Until that start has complete images the newer
/// ones stay; the next start resumes from the chosen one or, before that choice is noted, from the
/// newest one as if nothing had been chosen.
#[test]
fn older_checkpoint_is_chosen_and_never_lost_nor_mixed() {
    let mut counts = std::collections::BTreeMap::<String, usize>::new();
    let cases = [
        (Setup::small(3, 1), Reach::Local, 2),
        (Setup::small(3, 1), Reach::Global, 3),
        (Setup { method: Method::Double, ..Setup::small(2, 1) }, Reach::Local, 2),
        (abft(3, 1), Reach::Local, 2),
    ];
    for (setup, reach, keep) in cases {
        let n = setup.ranks;
        let mut world = World::new(&setup, &[level(reach, keep)]);
        world.start(&How { stops: true, ..How::none(1, 5) });
        let newest = world.promise().expect("images");
        assert_eq!(newest.epoch, 5);
        let (chosen, until) = (4, 6);
        let back = |seed| How { resume: Resume::At(chosen), ..How::none(seed, until) };
        // Undisturbed, from memory that is newer, and from images alone.
        for lost in [0, n] {
            let mut world = world.clone();
            world.power_off(0..lost, Cut::All);
            let came = check_came(&world.start(&back(2)));
            let Came::Resumed(state, Some((0, generation))) = &came else { panic!("{came:?}") };
            assert_eq!((state.len(), generation.epoch, generation.start), (4, 4, newest.start));
            let (mut again, mut gone) = (world.clone(), world);
            let own = check_came(&again.start(&How::none(3, 7)));
            assert!(matches!(&own, Came::Resumed(state, None) if state[..5] == [1, 1, 1, 1, 2]));
            gone.power_off(0..n, Cut::All);
            let came = check_came(&gone.start(&How::none(3, 7)));
            let Came::Resumed(state, Some((0, generation))) = &came else { panic!("{came:?}") };
            // Its own images, where they were sealed in time, or the chosen ones.
            assert_eq!(state[..4], [1; 4]);
            assert!(generation.epoch == 4 || state[4] == 2, "{came:?}");
        }
        let steps = if is_soak() { 1 } else { 7 };
        for step in (1..).step_by(steps) {
            let mut dead = world.clone();
            let killed = How {
                kills: How::killed(step, until, step, step as usize % n).kills,
                ..back(step)
            };
            let ran = dead.start(&killed);
            assert!(dead.noted() || memory(&dead) == memory(&world), "{step}: not noted");
            let rank = step as usize % n;
            for lost in [0..0, rank..rank + 1, 0..n] {
                let mut dead = dead.clone();
                let is_gone = lost.len() == n;
                dead.power_off(lost, CUTS[step as usize % CUTS.len()]);
                let noted = dead.noted();
                let promise = dead.promise().expect("images");
                let stays = |promise: Generation| promise == newest || promise.start > newest.start;
                assert!(stays(promise), "{promise:?}");
                // The next start, undisturbed or killed in its turn.
                for then in [None, Some(3 + step % 40), Some(43 + step % 40)] {
                    let mut next = dead.clone();
                    let mut is_kept = noted;
                    if let Some(then) = then {
                        next.start(&How::killed(step + 1, until + 1, then, (rank + 1) % n));
                        // A note that is not safe yet may go with the power, unless a start has
                        // followed it.
                        let is_followed = noted && memory(&next) != memory(&dead);
                        next.power_off(0..n, CUTS[then as usize % CUTS.len()]);
                        is_kept = is_followed || next.noted();
                    }
                    let promise = next.promise().expect("images");
                    assert!(stays(promise), "{promise:?}");
                    let came = check_came(&next.start(&How::none(step + 2, until + 1)));
                    let Came::Resumed(state, from) = &came else { panic!("step {step}: {came:?}") };
                    let is_of_newest = state.len() >= 5 && state[..5] == [1; 5];
                    assert!(is_of_newest || state[..4] == [1; 4], "{state:?}");
                    assert!(!(is_of_newest && is_kept), "step {step}: {came:?}");
                    assert!(noted || is_of_newest || state.len() < 5, "{came:?}");
                    assert!(!is_gone || from.is_some() || then.is_some(), "{came:?}");
                    let name = format!(
                        "{} {}",
                        if noted { "noted" } else { "before" },
                        match (is_of_newest, from) {
                            (true, None) => "newest from memory",
                            (true, Some(_)) => "newest from images",
                            (false, None) => "chosen from memory",
                            (false, Some(_)) => "chosen from images",
                        }
                    );
                    *counts.entry(name).or_default() += 1;
                }
            }
            if ran.killed == 0 {
                break;
            }
        }
    }
    println!("{counts:?}");
}

/// The checksums of the data and parities in each node's memory.
fn memory(world: &World) -> Vec<u64> {
    world.nodes.iter().map(|node| fingerprint(&node.segments)).collect()
}

fn check_came(ran: &crate::levels::Ran) -> Came {
    check_kept(ran, None, false)
}

/// A checkpoint that cannot be chosen is refused by its number, with those that can; nothing has
/// changed.
#[test]
fn checkpoint_that_is_not_whole_is_refused_with_those_that_are() {
    let setup = Setup::small(3, 1);
    let mut world = World::new(&setup, &[level(Reach::Local, 2)]);
    world.start(&How { stops: true, ..How::none(1, 5) });
    let before = world.fingerprint();
    for number in [1, 9] {
        let ran = world.start(&How { resume: Resume::At(number), ..How::none(2, 6) });
        let came = check_came(&ran);
        let Came::Refused(Refusal::NotChoosable { number: named, found, .. }) = &came else {
            panic!("{came:?}")
        };
        assert_eq!((*named, &found[..]), (number, &[2, 3, 4, 5][..]));
    }
    assert_eq!(world.fingerprint(), before);
    // Two of three images of it are lost.
    (0..2).for_each(|rank| world.rot_image(0, rank, 4));
    let ran = world.start(&How { resume: Resume::At(4), ..How::none(3, 6) });
    let came = check_came(&ran);
    let Came::Refused(Refusal::NotChoosable { number: 4, found, why }) = &came else {
        panic!("{came:?}")
    };
    assert_eq!(found, &[2, 3, 5], "{why}");
    assert!(why.contains("damaged"), "{why}");
    // What is left can be chosen, and the run continues.
    let came = check_came(&world.start(&How { resume: Resume::At(5), ..How::none(4, 6) }));
    assert!(matches!(&came, Came::Resumed(state, Some(_)) if state == &[1; 5]), "{came:?}");
}
