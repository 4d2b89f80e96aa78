//! The scenarios that are the same under every launcher.

use super::*;

/// Makes tests of the scenarios of these names, for one launcher.
macro_rules! scenarios {
    ($kind:expr; $($(#[$attribute:meta])* $name:ident)*) => {
        $(
            #[test]
            $(#[$attribute])*
            fn $name() {
                $crate::supervised::scenarios::$name($kind);
            }
        )*
    };
}

pub fn an_undisturbed_run_passes_and_leaves_nothing(kind: Kind) {
    let Some(cluster) = cluster(kind, 4, 1) else { return };
    let ended = launch(&cluster, true, "", &run()).end(&cluster);
    assert_eq!(ended.passed_with_the_same_x(&cluster).account["starts"], 1);
}

/// A node is lost before the first checkpoint, two after it, of which one sends no last packet, and
/// then the launcher is killed.
pub fn losses_one_after_the_other(kind: Kind) {
    let Some(mut cluster) = cluster(kind, 4, 3) else { return };
    let launch = launch(&cluster, true, "", &run_of(LONG_N).replace("6p!", "12p!"));
    wait_for_column(&cluster, 1, 64);
    cluster.power_off("n2");
    wait_for_column(&cluster, 2, 1000);
    let off = unix();
    cluster.power_off("n3");
    wait_for_column(&cluster, 3, 1400);
    let silently_off = unix();
    cluster.power_off_silently("n4");
    wait_for_column(&cluster, 4, 1800);
    signal(&cluster.launchers(), Signal::SIGKILL);
    let ended = launch.end(&cluster);
    ended.passed_with_the_same_x(&cluster).replaced(0, "n2", "n5");
    ended.replaced(1, "n3", "n6");
    ended.replaced(2, "n4", "n7");
    assert_eq!(ended.failures(), 4);
    ended.print("power-off", 1, off);
    ended.print("silent power-off", 2, silently_off);
    assert!(ended.failure(0)["resumed_column"].as_u64() <= Some(128), "{}", ended.account);
    ended.resumed_beyond(1, 750);
    ended.resumed_beyond(2, 750);
    ended.resumed_beyond(3, 1500);
    assert_eq!(ended.failure(3)["how"], "the launcher was killed by signal 9");
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

pub fn a_rank_killed(kind: Kind) {
    let Some(cluster) = cluster(kind, 4, 1) else { return };
    let launch = launch(&cluster, true, "", &run());
    wait_for_column(&cluster, 1, 800);
    signal(&cluster.pids("n3", "skt-hpl"), Signal::SIGKILL);
    let ended = launch.end(&cluster);
    ended.passed_with_the_same_x(&cluster);
    assert_eq!(ended.failures(), 1);
    ended.resumed_beyond(0, 350);
}
