use std::collections::BTreeSet;

use skt_checkpoint::checkpoint::decide::Refusal;
use skt_checkpoint::checkpoint::methods::Method;
use skt_sim::fibers::Kill;
use skt_store::layout::RegionShape;

use crate::cluster::{Cluster, Disturbance, Prediction, Setup, check_undisturbed, code, start};

#[test]
fn job_continues_after_losses() {
    for (ranks, parities) in [(2, 1), (3, 1), (4, 1), (4, 2), (5, 2), (6, 3), (8, 3)] {
        let setup = Setup::small(ranks, parities);
        let mut cluster = Cluster::new(&setup, 1);
        let ran = start(&setup, &mut cluster, &Disturbance::none(1, 3));
        check_undisturbed(&ran, &Prediction::Fresh);
        for round in 0..4u64 {
            let lost = (0..parities).map(|i| cluster.placement[(i * 2 + round as usize) % ranks]);
            let lost = lost.collect::<BTreeSet<_>>();
            cluster.lose_nodes(&lost);
            let predicted = cluster.predict(&setup);
            assert!(matches!(predicted, Prediction::Recovered(epoch, _) if epoch == 3 + round));
            let ran = start(&setup, &mut cluster, &Disturbance::none(round, 4 + round));
            check_undisturbed(&ran, &predicted);
        }
        if ranks == parities + 1 {
            // All memory is lost: that is a new run.
            continue;
        }
        let lost = (0..=parities).map(|i| cluster.placement[i]).collect();
        cluster.lose_nodes(&lost);
        let predicted = cluster.predict(&setup);
        assert!(matches!(predicted, Prediction::Unrecoverable(..)));
        let ran = start(&setup, &mut cluster, &Disturbance::none(9, 9));
        check_undisturbed(&ran, &predicted);
    }
}

/// Only node 0 follows the second start, and drops out; the third start, without it, dies at any
/// step; then node 0 returns.
#[test]
fn rank_that_alone_followed_a_start_rejoins_the_others() {
    let setup = Setup::small(4, 1);
    let mut cluster = Cluster::new(&setup, 1);
    start(&setup, &mut cluster, &Disturbance::none(1, 2));
    let killed = |seed, step, rank| Disturbance {
        kills: vec![Kill { step, rank }],
        ..Disturbance::none(seed, 2)
    };
    let steps = start(&setup, &mut cluster.clone(), &Disturbance::none(2, 2)).steps;
    let (mut came_back, mut nothing_lost) = (0, 0);
    for (seed, first) in (0..4).flat_map(|seed| (1..=steps).map(move |step| (seed, step))) {
        let mut split = cluster.clone();
        start(&setup, &mut split, &killed(seed, first, 0));
        let followed: Vec<_> = split.book.followed.iter().filter(|(_, s)| **s == 2).collect();
        if followed != [(&0, &2)] {
            continue;
        }
        split.send_away(0);
        for second in 1.. {
            let mut again = split.clone();
            if start(&setup, &mut again, &killed(seed, second, 1)).killed == 0 {
                break;
            }
            again.bring_back(0);
            again.reconsider();
            let predicted = again.predict(&setup);
            came_back += usize::from(again.placement.contains(&0));
            nothing_lost += usize::from(again.book.lost.is_empty());
            check_undisturbed(&start(&setup, &mut again, &Disturbance::none(3, 2)), &predicted);
        }
    }
    assert!(came_back > 100 && nothing_lost > 50, "{came_back} {nothing_lost}");
}

/// The states that rank 0's death at each step leaves of a start that finishes at epoch 2.
fn states_of_deaths(setup: &Setup, before: &Cluster, seed: u64) -> Vec<Cluster> {
    let killed = |step| {
        let kills = vec![Kill { step, rank: 0 }];
        let how = Disturbance { finish: true, kills, ..Disturbance::none(seed, 2) };
        let mut after = before.clone();
        (start(setup, &mut after, &how).killed != 0).then_some(after)
    };
    (1..).map_while(killed).collect()
}

/// Rank 2 of a start that is believed dead commits, or marks its segment, after the next start has
/// read it.
#[test]
fn change_during_the_decision_is_refused_by_all_ranks() {
    let setup = Setup::small(4, 1);
    let mut before = Cluster::new(&setup, 1);
    start(&setup, &mut before, &Disturbance::none(1, 1));
    let (mut commits, mut marks) = (0, 0);
    for seed in 2..10 {
        let states = states_of_deaths(&setup, &before, seed);
        for pair in states.windows(2) {
            let record = |state: &Cluster| {
                let (_, words) = state.nodes[2].segments.iter().next()?;
                setup.header().decode_record(bytemuck::cast_slice(words))
            };
            let [Some(old), Some(new)] = [record(&pair[0]), record(&pair[1])] else { continue };
            let is_mark =
                !old.is_finished() && new.is_finished() && pair[0].book.marked.contains_key(&0);
            if old.committed() == new.committed() && !is_mark {
                continue;
            }
            (commits, marks) = (commits + usize::from(!is_mark), marks + usize::from(is_mark));
            let mut state = pair[0].clone();
            state.nodes[2].ghosts = pair[1].nodes[2].segments.clone();
            let refusal = Some(Refusal::Changed { process: 2, rank: 2 });
            let how = Disturbance { refusal, ..Disturbance::none(3, 2) };
            let ran = start(&setup, &mut state, &how);
            assert!(ran.results.iter().all(|result| result.as_ref().is_ok_and(|r| r.refused)));
            for (node, after) in state.nodes.iter().enumerate() {
                let expected = &pair[usize::from(node == 2)].nodes[node];
                assert!(after.segments == expected.segments, "node {node} has changed");
            }
        }
    }
    assert!(commits > 0 && marks > 0, "{commits} {marks}");
}

#[test]
fn second_job_of_the_same_name_is_refused_by_all_ranks() {
    let setup = Setup::small(4, 1);
    let mut cluster = Cluster::new(&setup, 1);
    start(&setup, &mut cluster, &Disturbance::none(1, 1));
    let before = cluster.fingerprint();
    cluster.nodes[3].hold(0);
    let refusal =
        Some(Refusal::Held { process: 3, why: "another job has it".into(), passes: false });
    let ran = start(&setup, &mut cluster, &Disturbance { refusal, ..Disturbance::none(2, 2) });
    assert!(ran.results.iter().all(|result| result.as_ref().is_ok_and(|r| r.refused)));
    assert_eq!(cluster.fingerprint(), before);
}

#[test]
fn segments_of_other_settings_are_refused_in_every_slot() {
    let setup = Setup::small(4, 1);
    let mut cluster = Cluster::new(&setup, 1);
    start(&setup, &mut cluster, &Disturbance::none(1, 1));
    let before = cluster.fingerprint();
    let other = Setup { state_capacity_bytes: 99, ..setup.clone() };
    let differences = "bytes of state 32 there, 99 here".to_owned();
    let refusal = Some(Refusal::OtherShape { process: 0, rank: 0, differences });
    let ran = start(&other, &mut cluster, &Disturbance { refusal, ..Disturbance::none(2, 2) });
    assert!(ran.results.iter().all(|result| result.as_ref().is_ok_and(|r| r.refused)));
    assert_eq!(cluster.fingerprint(), before, "thrown away");
}

#[test]
fn encoding_in_phases_gives_the_same_bytes() {
    for (ranks, parities) in [(2, 1), (5, 1), (4, 2), (7, 2), (7, 3)] {
        for xor in [false, true] {
            let memory = |piece_rows: Option<usize>| {
                let setup = Setup {
                    piece_rows,
                    stages: piece_rows.map_or(0, |rows| rows % 5),
                    code: code(xor && parities == 1),
                    shapes: vec![RegionShape { rows: 37, pitch_bytes: 200 }],
                    bands: 5,
                    segment_bytes: 320,
                    chunk_bytes: 1000,
                    ..Setup::small(ranks, parities)
                };
                let mut cluster = Cluster::new(&setup, 1);
                let ran = start(&setup, &mut cluster, &Disturbance::none(2, 3));
                check_undisturbed(&ran, &Prediction::Fresh);
                cluster.fingerprint()
            };
            let all: BTreeSet<u64> = [None, Some(3), Some(37)].into_iter().map(memory).collect();
            assert_eq!(all.len(), 1, "n = {ranks}, m = {parities}");
        }
    }
}

#[test]
#[should_panic(expected = "has changed outside of")]
fn frozen_regions_do_not_change() {
    let setup = Setup { lie_rows: 2, ..Setup::small(4, 1) };
    start(&setup, &mut Cluster::new(&setup, 1), &Disturbance::none(0, 3));
}

#[test]
fn without_checkpoints_nothing_is_left_and_any_placement_does() {
    for ranks in [1, 3] {
        let setup = Setup {
            method: Method::None,
            shapes: vec![RegionShape { rows: 9, pitch_bytes: 24 }],
            members: 16,
            ..Setup::small(ranks, 1)
        };
        let mut cluster = Cluster::new(&setup, 2);
        let how = Disturbance::none(0, 0);
        check_undisturbed(&start(&setup, &mut cluster, &how), &Prediction::Fresh);
        assert_eq!(cluster.segments(), 0);
    }
}
