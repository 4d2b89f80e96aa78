//! The scenarios that are the same under every launcher.

use super::*;

/// Makes tests of the scenarios of these names, for one launcher.
macro_rules! scenarios {
    ($kind:expr; $($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                $crate::supervised::scenarios::$name($kind);
            }
        )*
    };
}

/// With two parities, nodes are lost before the first checkpoint; in the steps of checkpoints, of
/// the recovery and of the solution, in which rank 0 dies; two at once, of which one sends no last
/// packet; and with the report whole. In between the launcher is killed, and a rank.
pub fn losses_one_after_the_other(kind: Kind) {
    let Some(mut cluster) = cluster(kind, 4, 7) else { return };
    let faults = "--inject encode:epoch=2 --inject recover:rebuild --inject flush:epoch=4 \
                  --inject back --inject 1@remove";
    let run = format!("{} --parities 2 {faults}", run_of(LONG_N).replace("6p!", "8p!"));
    let launch = launch(&cluster, true, "", &run);
    wait_for_column(&cluster, 1, 64);
    cluster.power_off("n2");
    power_off_at(&mut cluster, 2, "encode", "n3");
    power_off_at(&mut cluster, 3, "recover-rebuild", "n4");
    wait_for_column(&cluster, 4, 1200);
    let off = unix();
    cluster.power_off_silently("n5");
    cluster.power_off("n6");
    power_off_at(&mut cluster, 5, "flush", "n7");
    wait_for_column(&cluster, 6, 1700);
    signal(&cluster.launchers(), Signal::SIGKILL);
    wait_for_column(&cluster, 7, 1700);
    signal(&cluster.pids("n8", "skt-hpl"), Signal::SIGKILL);
    power_off_at(&mut cluster, 8, "back", "n10");
    let node = state(&cluster)["pool"]["active"][1]["name"].as_str().expect("a name").to_owned();
    wait_for("the end of rank 1", || {
        let is_there = beats(&cluster, 9).iter().any(|beat| beat["phase"] == "remove");
        is_there && cluster.pids(&node, "skt-hpl").is_empty()
    });
    cluster.power_off(&node);
    let ended = launch.end(&cluster);
    ended.passed_with_the_same_x(&cluster).prints("lost after its report was whole");
    for (index, lost, by) in
        [(0, "n2", "n5"), (1, "n3", "n6"), (2, "n4", "n7"), (4, "n7", "n10"), (7, "n10", "n11")]
    {
        ended.replaced(index, lost, by);
    }
    let two: BTreeSet<&str> = ["n5", "n6"].iter().map(|lost| ended.spare_for(3, lost)).collect();
    assert_eq!(two, ["n8", "n9"].into());
    for (index, phase) in [(1, "encode"), (4, "flush"), (7, "back")] {
        assert_eq!(ended.failure(index)["phase"], phase, "{}", ended.account);
    }
    assert_eq!((ended.failures(), ended.account["starts"].as_u64()), (8, Some(9)));
    ended.print("two power-offs, one of them silent", 3, off);
    assert!(ended.failure(0)["resumed_column"].as_u64() <= Some(128), "{}", ended.account);
    for (index, column) in [(2, 500), (3, 1000), (4, 1500), (5, 1500), (6, 1500)] {
        ended.resumed_beyond(index, column);
    }
    assert_eq!(ended.failure(5)["how"], "the launcher was killed by signal 9");
}

/// The launcher kills the remaining ranks at once, so one of them may be torn, which is one loss
/// too many for memory, but not for images.
pub fn a_node_powered_off_under_checksums_with_images(kind: Kind) {
    let Some(mut cluster) = cluster(kind, 4, 1) else { return };
    // Without checkpoints, the other systems are solved before a busy host has looked once.
    let run = "--n 2400 --nb 64 --p 1 --q 3 --ft abft --progress off \
               --level local:/mnt/disk,every=1s!";
    let launch = launch(&cluster, true, "", run);
    wait_for_column(&cluster, 1, 800);
    let off = unix();
    cluster.power_off("n2");
    let ended = launch.end(&cluster);
    ended.passed().replaced(0, "n2", "n5");
    let is_from = |line: &&str| line.starts_with("# restart: ");
    let how = ended.report.lines().find(is_from).expect("a restart").to_owned();
    ended.print(&how, 0, off);
}
