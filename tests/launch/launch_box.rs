//! Tests that the cluster in a box behaves as a cluster does.

use std::time::{Duration, Instant};

use crate::cluster_box::{self, ClusterBox};
use crate::skipped::{lacks, skipped};

fn printed(command: &mut std::process::Command) -> String {
    let out = command.output().expect("started");
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).trim().to_owned()
}

fn agent(cluster: &ClusterBox, node: &str, what: &str) -> std::process::Command {
    let mut command = cluster.on_head("bin/agent");
    command.args([node, what]);
    command
}

#[test]
fn nodes_are_apart_and_reach_each_other() {
    if lacks(&["python3"]) {
        return;
    }
    let Ok(mut cluster) = ClusterBox::new(3).inspect_err(|why| skipped(why)) else { return };
    assert_eq!(cluster.remains(), Vec::<String>::new());
    assert_eq!(printed(&mut agent(&cluster, "n2", "hostname; pwd; ls /dev/shm")), "n2\n/mnt");
    assert_eq!(
        printed(&mut agent(&cluster, "n1", "ipcmk -M 4096 >/dev/null; touch /dev/shm/f")),
        ""
    );
    assert_eq!((cluster.segment_bytes("n1"), cluster.segment_bytes("n2")), (4096, 0));
    assert_eq!(cluster.remains().len(), 2, "{:?}", cluster.remains());
    // A TCP connection from node to node, by bash.
    let mut server = cluster
        .on_node("n2", "python3")
        .args([
            "-c",
            "import socket; s=socket.create_server(('10.77.0.12', 5000)); print(s.accept()[1][0])",
        ])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let connect = "for i in $(seq 300); do \
                   (exec 3<>/dev/tcp/n2/5000) 2>/dev/null && exit 0; sleep 0.2; done; exit 1";
    printed(cluster.on_node("n3", "bash").args(["-c", connect]));
    assert!(server.wait().unwrap().success());

    // They see the checkout and the target folder.
    for file in [env!("CARGO_BIN_EXE_skt-hpl"), concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")]
    {
        printed(cluster.on_head("test").args(["-r", file]));
        printed(cluster.on_node("n1", "test").args(["-r", file]));
    }
    let witness = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).expect("our folder");
    printed(cluster.on_node("n1", "test").arg("-w").arg(witness.path()));
    assert_eq!(cluster.remains().len(), 2, "{:?}", cluster.remains());

    // A link that is cut heals.
    let reach = |cluster: &ClusterBox, limit: &str| {
        let mut bash = cluster.on_node("n2", "timeout");
        let out = bash.args([limit, "bash", "-c", "exec 3<>/dev/tcp/n1/1"]).output().unwrap();
        String::from_utf8_lossy(&out.stderr).contains("refused")
    };
    assert!(reach(&cluster, "60"));
    cluster.cut("n1");
    assert!(!reach(&cluster, "1"));
    cluster.heal("n1");
    assert!(reach(&cluster, "60"));

    // A power-off takes all, and what comes back is fresh.
    printed(&mut agent(&cluster, "n1", "ipcrm --all=shm; rm /dev/shm/f"));
    for silently in [false, true] {
        let leave = "ipcmk -M 4096; touch /tmp/x; sleep 1000 >/dev/null 2>&1 &";
        printed(&mut agent(&cluster, "n1", leave));
        assert_eq!(cluster.segment_bytes("n1"), 4096);
        if silently {
            cluster.power_off_silently("n1");
        } else {
            cluster.power_off("n1");
        }
        let start = Instant::now();
        let out = agent(&cluster, "n1", "true").output().unwrap();
        assert_eq!(out.status.code(), Some(255));
        assert!(start.elapsed() > Duration::from_secs(2));
        cluster.power_on("n1").unwrap();
        assert_eq!(printed(&mut agent(&cluster, "n1", "hostname")), "n1");
        assert_eq!(cluster.remains(), Vec::<String>::new());
        assert!(reach(&cluster, "60"));
    }

    // Nothing outlives the box.
    printed(&mut agent(&cluster, "n1", "sleep 54321 >/dev/null 2>&1 &"));
    let pid = cluster.pids("n1", "sleep").len();
    assert_eq!(pid, 2);
    let all: Vec<i32> = cluster.pids("n1", "sleep");
    drop(cluster);
    for pid in all {
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }
    assert_eq!(cluster_box::leftovers(), Vec::<i32>::new());
}
