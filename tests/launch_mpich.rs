//! `skt-hpl launch --launcher mpich` on a cluster in a box: real Hydra, real
//! power-offs.

mod cluster_box;
mod supervised;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use supervised::*;

/// A box for MPICH.
fn cluster(nodes: usize, spares: usize) -> Option<Alone> {
    supervised::cluster(Kind::Mpich, nodes, spares)
}

#[test]
fn an_undisturbed_run_passes_and_leaves_nothing() {
    let Some(cluster) = cluster(4, 1) else { return };
    let ended = launch(&cluster, true, "", &run()).end(&cluster);
    assert_eq!(ended.passed_with_the_same_x(&cluster).account["starts"], 1);
}

#[test]
fn a_node_powered_off_while_computing() {
    let Some(mut cluster) = cluster(4, 1) else { return };
    let launch = launch(&cluster, true, "", &run());
    wait_for_column(&cluster, 1, 1600);
    let off = unix();
    cluster.power_off("n2");
    let ended = launch.end(&cluster);
    ended.passed_with_the_same_x(&cluster).replaced(0, "n2", "n5");
    ended.tell("power-off", 0, off);
    assert!(ended.failure(0)["resumed_column"].as_u64() > Some(700), "{}", ended.failure(0));
}

#[test]
fn a_node_powered_off_without_a_last_packet() {
    let Some(mut cluster) = cluster(4, 1) else { return };
    let launch = launch(&cluster, true, "", &run());
    wait_for_column(&cluster, 1, 1600);
    let off = unix();
    cluster.power_off_silently("n3");
    let ended = launch.end(&cluster);
    ended.passed_with_the_same_x(&cluster).replaced(0, "n3", "n5");
    ended.tell("silent power-off", 0, off);
}

#[test]
fn a_rank_killed() {
    let Some(cluster) = cluster(4, 1) else { return };
    let launch = launch(&cluster, true, "", &run());
    wait_for_column(&cluster, 1, 1600);
    for pid in cluster.pids("n3", "skt-hpl") {
        kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    }
    let ended = launch.end(&cluster);
    ended.passed_with_the_same_x(&cluster);
    assert_eq!(ended.failures(), 1);
    assert!(ended.failure(0)["resumed_column"].as_u64() > Some(700), "{}", ended.failure(0));
}

#[test]
fn the_launcher_killed() {
    let Some(cluster) = cluster(4, 1) else { return };
    let launch = launch(&cluster, true, "", &run());
    wait_for_column(&cluster, 1, 1600);
    for pid in cluster.head_pids(cluster.kind.launcher()) {
        kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    }
    let ended = launch.end(&cluster);
    ended.passed_with_the_same_x(&cluster);
    assert_eq!(ended.failures(), 1);
    assert_eq!(ended.failure(0)["how"], "the launcher was killed by signal 9");
}
