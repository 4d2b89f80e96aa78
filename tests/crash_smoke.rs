//! The protocol without deaths, with one, and with too many.

mod crash;

use std::collections::BTreeSet;

use skt_hpl::checkpoint::encode::Encoder;
use skt_hpl::checkpoint::layout::RegionShape;
use skt_hpl::checkpoint::methods::Method;
use skt_hpl::checkpoint::protocol::CheckpointError;

use crash::cluster::{Cluster, Disturbance, Foretold, Setup, check_undisturbed, start};

#[test]
fn a_job_goes_on_after_losses() {
    for (ranks, parities) in [(2, 1), (3, 1), (4, 1), (4, 2), (5, 2), (6, 3), (8, 3)] {
        let setup = Setup::small(ranks, parities);
        let mut cluster = Cluster::new(&setup, 1);
        let ran = start(&setup, &mut cluster, &Disturbance::none(1, 3));
        check_undisturbed(&ran, &Foretold::Fresh);
        for round in 0..4u64 {
            let lost = (0..parities).map(|i| cluster.placement[(i * 2 + round as usize) % ranks]);
            let lost = lost.collect::<BTreeSet<_>>();
            cluster.lose_nodes(&lost);
            let foretold = cluster.foretell(&setup);
            assert!(matches!(foretold, Foretold::Recovered(epoch, _) if epoch == 3 + round));
            let ran = start(&setup, &mut cluster, &Disturbance::none(round, 4 + round));
            check_undisturbed(&ran, &foretold);
        }
        if ranks == parities + 1 {
            // All gone: that is a new run.
            continue;
        }
        let lost = (0..=parities).map(|i| cluster.placement[i]).collect();
        cluster.lose_nodes(&lost);
        let foretold = cluster.foretell(&setup);
        assert!(matches!(foretold, Foretold::Unrecoverable(..)));
        let ran = start(&setup, &mut cluster, &Disturbance::none(9, 9));
        check_undisturbed(&ran, &foretold);
    }
}

#[test]
fn all_encoders_give_the_same_bytes() {
    for (ranks, parities) in [(2, 1), (5, 1), (4, 2), (7, 2), (7, 3)] {
        for (xor, piece_rows) in [(false, None), (true, None), (false, Some(3)), (true, Some(37))] {
            let memory = |encoder| {
                let setup = Setup {
                    encoder,
                    piece_rows,
                    stages: piece_rows.map_or(0, |rows| rows % 5),
                    one_host: true,
                    xor: xor && parities == 1,
                    shapes: vec![RegionShape { rows: 37, pitch_bytes: 200 }],
                    bands: 5,
                    segment_bytes: 320,
                    chunk_bytes: 1000,
                    ..Setup::small(ranks, parities)
                };
                let mut cluster = Cluster::new(&setup, 1);
                let ran = start(&setup, &mut cluster, &Disturbance::none(2, 3));
                check_undisturbed(&ran, &Foretold::Fresh);
                cluster.fingerprint()
            };
            let all: BTreeSet<u64> = Encoder::ALL.into_iter().map(memory).collect();
            assert_eq!(all.len(), 1, "n = {ranks}, m = {parities}");
        }
    }
}

#[test]
#[should_panic(expected = "has changed outside of")]
fn frozen_means_frozen() {
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
        check_undisturbed(&start(&setup, &mut cluster, &how), &Foretold::Fresh);
        assert_eq!(cluster.segments(), 0);
    }
}

#[test]
fn who_asks_for_shared_memory_must_have_it() {
    let setup = Setup { encoder: Encoder::Direct, ..Setup::small(4, 1) };
    let mut cluster = Cluster::new(&setup, 1);
    let ran = start(&setup, &mut cluster, &Disturbance::none(1, 3));
    // The first to say so ends the job for the others.
    assert!(ran.results.iter().all(Result::is_err));
    let says_so = |result| matches!(result, &Err(CheckpointError::NotDirect));
    assert!(ran.results.iter().any(says_so), "{:?}", ran.results);
    assert_eq!(cluster.segments(), 0);
}
