//! A run on a cluster of namespaces reports which link between its nodes is slow, or which node has
//! slow links only, and never blames others. All nodes share the processors of this machine, so
//! a message may wait for its rank's time slice.

use crate::cluster_box::SHARED;
use crate::large_machine;
use crate::supervised::{Alone, launch, openmpi_box, wait_for_column};

const NODES: usize = 4;
const GRIDS: [&str; 3] = ["--p 2 --q 2", "--p 1 --q 4", "--p 4 --q 1"];
const RUN: &str = "--n 2000 --nb 48 --ft none --progress off";

/// Runs the benchmark on `grid`, with these variables of the preloaded library, without
/// `SKT_LARGE_`. Calls `disturb` when the clock runs. Returns the lines about links.
fn run(
    cluster: &Alone,
    grid: &str,
    variables: &[(&str, &str)],
    disturb: Option<fn(&Alone)>,
) -> Vec<String> {
    let flags = large_machine::launch_flags(&cluster.shared(), SHARED, variables);
    let launch = launch(cluster, false, &format!("{flags} --start-over"), &format!("{RUN} {grid}"));
    if let Some(disturb) = disturb {
        wait_for_column(cluster, 1, 0);
        disturb(cluster);
    }
    let ended = launch.end(cluster);
    let lines = ended.passed().report.lines();
    lines.filter_map(|line| line.strip_prefix("# slow_link: ").map(str::to_owned)).collect()
}

/// Every rank computes slower than its share of the processors is, unless others use these as well.
const EVENLY: [(&str, &str); 1] = [("ALL_GFLOPS", "2")];

/// Limits what node `from` sends to node `to` alone, by tc.
fn slow_link(cluster: &Alone, from: &str, to: usize) {
    let script = format!(
        "tc qdisc add dev eth0 root handle 1: htb default 1
         tc class add dev eth0 parent 1: classid 1:1 htb rate 100gbit quantum 60000
         tc class add dev eth0 parent 1: classid 1:2 htb rate 100mbit burst 16kb quantum 60000
         tc filter add dev eth0 parent 1: protocol ip u32 match ip dst 10.77.0.{}/32 flowid 1:2",
        10 + to
    );
    let output = cluster.on_node(from, "/bin/sh").args(["-ec", &script]).output().expect("tc");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Limits all that comes to a node.
fn slow_node(cluster: &Alone, node: usize) {
    let script = format!("tc qdisc add dev v{node} root tbf rate 100mbit burst 16kb latency 100ms");
    let output = cluster.on_head("/bin/sh").args(["-ec", &script]).output().expect("tc");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_slow_rank_is_no_slow_link() {
    let Some(cluster) = openmpi_box(NODES, 0) else { return };
    let slow = [EVENLY[0], ("GFLOPS", "0.7"), ("RANK", "1")];
    assert_eq!(run(&cluster, GRIDS[0], &slow, None), Vec::<String>::new());
}

mod timing {
    use super::*;

    /// How many times the median's time the only slow link takes, and took before.
    #[track_caller]
    fn only_link(found: &[String], ends: &str) -> [f64; 2] {
        let [line] = found else { panic!("{found:?}") };
        let times = line.strip_prefix(ends).and_then(|times| times.split_once(", times_before "));
        let (now, before) = times.expect(line);
        [now, before].map(|times| times.parse().expect(line))
    }

    #[test]
    #[ignore = "timing: messages of nodes that share busy cores scatter by more than a slow link"]
    fn a_link_that_is_slow_from_the_start_is_named() {
        for grid in GRIDS {
            let Some(cluster) = openmpi_box(NODES, 0) else { return };
            slow_link(&cluster, "n1", 3);
            let times = only_link(&run(&cluster, grid, &EVENLY, None), "host n1, other n3, times ");
            assert!(times.iter().all(|times| *times > 3.0), "{times:?}");
        }
    }

    #[test]
    #[ignore = "timing: messages of nodes that share busy cores scatter by more than a slow link"]
    fn a_link_that_becomes_slow_is_named() {
        for grid in GRIDS {
            let Some(cluster) = openmpi_box(NODES, 0) else { return };
            let disturb = |cluster: &Alone| slow_link(cluster, "n3", 4);
            // Some seconds, in which the disturbance begins.
            let slowly = [("ALL_GFLOPS", "0.4")];
            let printed = run(&cluster, grid, &slowly, Some(disturb));
            let [now, before] = only_link(&printed, "host n3, other n4, times ");
            assert!(now > 3.0 && before < now / 2.0, "{now} {before}");
        }
    }

    #[test]
    #[ignore = "timing: messages of nodes that share busy cores scatter by more than a slow link"]
    fn a_node_whose_links_are_all_slow_is_named() {
        for grid in GRIDS {
            let Some(cluster) = openmpi_box(NODES, 0) else { return };
            slow_node(&cluster, 2);
            let times = only_link(&run(&cluster, grid, &EVENLY, None), "host n2, times ");
            assert!(times.iter().all(|times| *times > 3.0), "{times:?}");
        }
    }
}
