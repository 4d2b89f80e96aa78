//! Larger jobs under random misfortune: several groups of unequal size, up to 8 members and 3
//! parities, several checkpoints with a shrinking active part, repeated deaths, nodes that return
//! stale, processes that are started in another order, more losses than a group survives, new
//! beginnings, and deaths at the end of the run and while its segments are removed.
//!
//! Every case is a function of its seed, which a failure prints. `SKT_CRASH_SEED=n` runs that one
//! case with a trace, `SKT_CRASH_RUNS=n` that many cases.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};

use crate::cluster::{Cluster, Disturbance, Prediction, Setup, check_undisturbed, code, start};
use skt_checkpoint::checkpoint::decide::Resume;
use skt_checkpoint::checkpoint::methods::Method;
use skt_sim::fibers::{Kill, Linger};
use skt_store::layout::RegionShape;

struct Dice(SplitMix64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0.next_u64() % sides
    }

    fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.roll((high - low + 1) as u64) as usize
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.roll(100) < percent
    }
}

#[derive(Default, Debug)]
struct Tally {
    is_one: bool,
    starts: u64,
    kills: u64,
    recovered: u64,
    refused: u64,
    returned: u64,
    finished: u64,
    reported: u64,
}

fn setup(dice: &mut Dice, method: Method) -> (Setup, usize) {
    let parities = dice.between(1, 3);
    let per_node = if dice.chance(25) { 2 } else { 1 };
    let members = dice.between(2 * parities, 8.max(2 * parities));
    let nodes = dice.between(2 * parities, 12 / per_node).max(2 * parities);
    let regions = dice.between(1, 3);
    let setup = Setup {
        ranks: nodes * per_node,
        members,
        parities,
        method,
        code: code(parities == 1 && dice.chance(50)),
        shapes: (0..regions)
            .map(|_| RegionShape {
                rows: dice.between(1, 40),
                pitch_bytes: 8 * dice.between(1, 12),
            })
            .collect(),
        bands: dice.between(1, 6),
        segment_bytes: 64 * dice.between(1, 6),
        chunk_bytes: 8 * dice.between(3, 40),
        allow_shared_domains: false,
        shrink_over: dice.between(1, 5) as u64,
        thaws: dice.chance(25),
        piece_rows: dice.chance(60).then(|| dice.between(1, 15)),
        stages: dice.between(0, 3),
        cell_bytes: 8 * dice.between(1, 12),
        in_flight_bytes: 64 * dice.between(1, 40),
        ..Setup::small(nodes * per_node, parities)
    };
    (setup, per_node)
}

/// Kills some processes of the next start, with all others of their nodes.
fn misfortune(dice: &mut Dice, setup: &Setup, cluster: &Cluster, steps: u64) -> Vec<Kill> {
    let too_many = usize::from(dice.chance(15));
    let count = dice.between(1, setup.parities + too_many);
    let together = dice.chance(40);
    let first = 1 + dice.roll(steps);
    let mut kills = Vec::new();
    for _ in 0..count {
        let node = cluster.placement[dice.between(0, setup.ranks - 1)];
        let step = if together { first } else { 1 + dice.roll(steps) };
        let on_node = (0..setup.ranks).filter(|&process| cluster.placement[process] == node);
        kills.extend(on_node.map(|rank| Kill { step, rank }));
    }
    kills
}

fn shuffle(dice: &mut Dice, cluster: &mut Cluster) {
    for i in (1..cluster.placement.len()).rev() {
        cluster.placement.swap(i, dice.between(0, i));
    }
}

fn play(seed: u64, method: Method, trace: bool, tally: &mut Tally) {
    let mut dice = Dice(SplitMix64::seed_from_u64(seed));
    let (setup, per_node) = setup(&mut dice, method);
    let mut cluster = Cluster::new(&setup, per_node);
    // Without deaths first, to learn how many steps such a job has.
    let mut how = Disturbance::none(dice.roll(1 << 40), 2);
    let steps = start(&setup, &mut cluster.clone(), &how).steps;
    for _ in 0..dice.between(3, 9) {
        if dice.chance(30) {
            shuffle(&mut dice, &mut cluster);
        }
        cluster.reconsider();
        let predicted = cluster.predict(&setup);
        let epoch = match &predicted {
            Prediction::Recovered(epoch, _) => *epoch,
            _ => 0,
        };
        how = Disturbance::none(dice.roll(1 << 40), epoch + dice.roll(3));
        how.finish = dice.chance(50);
        how.switches_of_256 = [8, 64, 200][dice.between(0, 2)];
        how.trace = trace;
        if matches!(predicted, Prediction::Unrecoverable(..)) {
            let ran = start(&setup, &mut cluster, &how);
            check_undisturbed(&ran, &predicted);
            tally.refused += 1;
            how.resume = Resume::Never;
        }
        let disturbed = dice.chance(80);
        if disturbed {
            how.kills = misfortune(&mut dice, &setup, &cluster, steps * 3 / 2);
            how.linger = match dice.roll(3) {
                0 => Linger::UntilBlocked,
                _ => Linger::Steps(dice.roll(60)),
            };
        }
        let before = cluster.placement.clone();
        if trace {
            println!("{}", cluster.describe(&setup));
        }
        let expected = if how.resume == Resume::Never { Prediction::Fresh } else { predicted };
        let ran = start(&setup, &mut cluster, &how);
        tally.starts += 1;
        if trace && std::env::var_os("SKT_CRASH_STEPS").is_some() {
            println!("{setup:?}\n{how:?}\n{expected:?}\n{}", ran.trace.join("\n"));
        }
        if ran.killed == 0 {
            check_undisturbed(&ran, &expected);
            tally.recovered += u64::from(matches!(expected, Prediction::Recovered(..)));
            let reported = matches!(expected, Prediction::Finished(_));
            tally.reported += u64::from(reported);
            if how.finish || reported {
                assert_eq!(cluster.segments(), 0, "a run that has finished leaves nothing");
                tally.finished += 1;
            }
        }
        tally.kills += u64::from(ran.killed.count_ones());
        let dead: BTreeSet<usize> =
            (0..setup.ranks).filter(|p| ran.killed >> p & 1 == 1).map(|p| before[p]).collect();
        for node in dead {
            match dice.roll(4) {
                // The process died, but its node lives.
                0 => {}
                1 if per_node == 1 => {
                    cluster.send_away(node);
                }
                _ => cluster.lose_nodes(&BTreeSet::from([node])),
            }
        }
        if per_node == 1 && dice.chance(40) {
            cluster.bring_back(dice.between(0, 7));
            tally.returned += 1;
        }
    }
    cluster.reconsider();
    let predicted = cluster.predict(&setup);
    let epoch = match &predicted {
        Prediction::Recovered(epoch, _) => *epoch,
        _ => 0,
    };
    how = Disturbance { finish: true, ..Disturbance::none(dice.roll(1 << 40), epoch + 1) };
    let ran = start(&setup, &mut cluster, &how);
    check_undisturbed(&ran, &predicted);
    match predicted {
        Prediction::Unrecoverable(..) => tally.refused += 1,
        _ => assert_eq!(cluster.segments(), 0, "a run that has finished leaves nothing"),
    }
}

/// Plays many starts that die while they decide, or just after: nodes drop out with their knowledge
/// of the decision, and return one by one.
fn play_decisions(seed: u64, trace: bool, tally: &mut Tally) {
    let mut dice = Dice(SplitMix64::seed_from_u64(seed));
    let parities = dice.between(1, 2);
    let setup = Setup::small(dice.between(2 * parities, 6), parities);
    let mut cluster = Cluster::new(&setup, 1);
    let mut how = Disturbance::none(dice.roll(1 << 40), 1);
    start(&setup, &mut cluster, &how);
    let opening = start(&setup, &mut cluster.clone(), &how).steps;
    how.until_epoch = 2;
    let both = start(&setup, &mut cluster.clone(), &how).steps;
    for round in 0..dice.between(3, 12) {
        cluster.reconsider();
        let predicted = cluster.predict(&setup);
        let epoch = match &predicted {
            Prediction::Recovered(epoch, _) => *epoch,
            _ => 0,
        };
        how = Disturbance::none(dice.roll(1 << 40), epoch + 1);
        how.trace = trace;
        // In the first round some ranks have committed the next epoch and some have not.
        let steps = if round == 0 { both } else { opening };
        let count = dice.between(1, parities);
        let mut kill =
            || Kill { step: 1 + dice.roll(steps), rank: dice.between(0, setup.ranks - 1) };
        how.kills = (0..count).map(|_| kill()).collect();
        how.linger = Linger::Steps(dice.roll(30));
        if trace {
            println!("{predicted:?}\n{how:?}\n{}", cluster.describe(&setup));
        }
        let before = cluster.placement.clone();
        let ran = start(&setup, &mut cluster, &how);
        tally.starts += 1;
        tally.kills += u64::from(ran.killed.count_ones());
        if ran.killed == 0 {
            check_undisturbed(&ran, &predicted);
            tally.recovered += u64::from(epoch > 0);
            tally.refused += u64::from(matches!(predicted, Prediction::Unrecoverable(..)));
        }
        for process in (0..setup.ranks).filter(|p| ran.killed >> p & 1 == 1) {
            if dice.chance(70) {
                cluster.send_away(before[process]);
            }
        }
        while dice.chance(50) {
            cluster.bring_back(dice.between(0, 7));
            tally.returned += 1;
        }
    }
    cluster.reconsider();
    let predicted = cluster.predict(&setup);
    let ran = start(&setup, &mut cluster, &Disturbance::none(dice.roll(1 << 40), 0));
    check_undisturbed(&ran, &predicted);
    tally.recovered += u64::from(matches!(predicted, Prediction::Recovered(..)));
    tally.refused += u64::from(matches!(predicted, Prediction::Unrecoverable(..)));
}

fn play_many(method: Method, cases: u64) {
    let tally = play_all(&format!("method {method}"), cases, |seed, trace, tally| {
        play(seed, method, trace, tally);
    });
    let all = [tally.recovered, tally.kills, tally.finished, tally.reported];
    assert!(tally.is_one || all.iter().all(|count| *count > 0));
}

fn play_all(what: &str, cases: u64, play: impl Fn(u64, bool, &mut Tally)) -> Tally {
    let number = |name| {
        let text = std::env::var(name).ok()?;
        Some(text.parse::<u64>().unwrap_or_else(|why| panic!("{name}={text}: {why}")))
    };
    let one = number("SKT_CRASH_SEED");
    let seeds = match one {
        Some(seed) => seed..seed + 1,
        None => 0..number("SKT_CRASH_RUNS").unwrap_or(cases),
    };
    let mut tally = Tally { is_one: one.is_some(), ..Tally::default() };
    for seed in seeds {
        let played = catch_unwind(AssertUnwindSafe(|| play(seed, one.is_some(), &mut tally)));
        if let Err(panic) = played {
            eprintln!("{what}, seed {seed}: run it alone with SKT_CRASH_SEED={seed}");
            std::panic::resume_unwind(panic);
        }
    }
    println!("{what}: {tally:?}");
    tally
}

#[test]
fn nodes_that_drop_out_of_decisions_come_back() {
    let tally = play_all("decisions", 750, play_decisions);
    let all = [tally.recovered, tally.refused, tally.kills, tally.returned];
    assert!(tally.is_one || all.iter().all(|count| *count > 0));
}

#[test]
fn self_checkpoint_survives_random_failures() {
    play_many(Method::SelfCheckpoint, 150);
}

#[test]
fn double_checkpoint_survives_random_failures() {
    play_many(Method::Double, 150);
}

#[test]
fn single_checkpoint_never_mixes_epochs() {
    play_many(Method::Single, 150);
}
