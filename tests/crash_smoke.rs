//! The protocol without deaths, with one, and with too many.

mod crash;

use std::collections::BTreeSet;

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
