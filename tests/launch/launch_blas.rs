//! `skt-hpl launch` where a spare lacks the BLAS that the run began with.

use std::path::Path;

use crate::cluster_box::SHARED;
use crate::planted_blas::planted;
use crate::supervised::*;

/// No library makes the ranks slow.
const FLAGS: &str = "--launcher-arg=-x --launcher-arg=LD_PRELOAD=";

/// Puts a library on the disks of these nodes.
fn install(cluster: &Alone, library: &Path, nodes: &[&str]) {
    // The nodes may not see its path, which can be that of an open file of this process.
    std::fs::copy(library, cluster.shared().join("libblis.so")).expect("a folder of the test");
    let from = format!("{SHARED}/libblis.so");
    for node in nodes {
        let mut copy = cluster.on_node(node, "cp");
        let copied = copy.args([&from, "/mnt/disk/libblis.so"]).output().expect("cp");
        assert!(copied.status.success(), "{copied:?}");
    }
}

/// A node is lost in the second checkpoint, and its spare lacks the library that the others have.
/// The refusal names the library, the node and the remedy, which helps.
#[test]
fn a_run_whose_last_spare_lacks_the_library_is_refused() {
    let Some(mut cluster) = openmpi_box(3, 1) else { return };
    let library = planted("planted_blas_no_spare", "");
    install(&cluster, &library, &["n1", "n2", "n3"]);
    let run = "--n 1200 --nb 64 --p 1 --q 3 --checkpoint-every 2p! --progress off \
               --inject encode:epoch=2 --blas /mnt/disk/libblis.so";
    let first = launch(&cluster, true, FLAGS, run);
    power_off_at(&mut cluster, 1, "encode", "n2");
    let ended = first.end(&cluster);
    assert_eq!((ended.code, ended.failures()), (Some(2), 1), "{}", ended.printed);
    ended.replaced(0, "n2", "n4");
    ended.prints(" on n4: --blas /mnt/disk/libblis.so: the loader refuses it: ");
    ended.prints("Name another library, or --blas built-in");
    ended.prints("the job cannot run on n4, whose place no spare node can take");
    assert_eq!(ended.account["starts"], 2, "{}", ended.account);
    install(&cluster, &library, &["n4"]);
    let ended = launch(&cluster, true, FLAGS, run).end(&cluster);
    ended.passed();
    assert!(ended.report.contains("# restart: "), "{}", ended.report);
}
