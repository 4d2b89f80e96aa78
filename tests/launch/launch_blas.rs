//! `skt-hpl launch` where a spare lacks the BLAS that the run began with.

use std::path::Path;

use crate::cluster_box::SHARED;
use crate::planted_blas::planted;
use crate::supervised;
use crate::supervised::*;

/// Where the nodes look for libraries, and none that makes them slow.
const FLAGS: &str = "--launcher-arg=-x --launcher-arg=LD_LIBRARY_PATH=/mnt/disk \
                     --launcher-arg=-x --launcher-arg=LD_PRELOAD=";

/// A run that ends in its second checkpoint, in which a node is lost.
fn run(blas: &str) -> String {
    format!(
        "--n 1200 --nb 64 --p 1 --q 3 --checkpoint-every 2p! --progress off --inject encode:epoch=2 \
         --blas {blas}"
    )
}

/// Puts a library on the disks of these nodes, under a name that `--blas auto` tries.
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

/// A run with `--blas auto` on three nodes, of which n2 is lost, and its spare n4 lacks the library
/// that the others have.
fn lose_a_node() -> Option<Ended> {
    let mut cluster = supervised::cluster(Kind::Openmpi, 3, 2)?;
    let library = planted("planted_blas_spare", "#define FAST");
    install(&cluster, &library, &["n1", "n2", "n3", "n5"]);
    let launch = launch(&cluster, true, FLAGS, &run("auto"));
    power_off_at(&mut cluster, 1, "encode", "n2");
    Some(launch.end(&cluster))
}

#[test]
fn a_spare_without_the_chosen_library_is_not_used() {
    let has_chosen = |ended: &Ended| ended.report.contains("auto: blis: ");
    let Some(mut ended) = lose_a_node() else { return };
    // A trial on a busy machine may refuse a library.
    for _ in 0..2 {
        if !has_chosen(&ended) {
            eprintln!("the first start did not choose it: {}", ended.report);
            ended = lose_a_node().expect("there was a cluster before");
        }
    }
    assert!(has_chosen(&ended), "{}{}", ended.printed, ended.report);
    ended.passed().replaced(0, "n2", "n4");
    ended.replaced(1, "n4", "n5");
    assert_eq!(ended.failures(), 2, "{}", ended.account);
    ended
        .prints("n4 cannot call the BLAS of this run: this run was computed with the BLAS libblis");
    assert!(ended.report.contains("auto: blis: an earlier start"), "{}", ended.report);
}

/// The refusal names the library, the node and the remedy, which helps.
#[test]
fn a_run_whose_last_spare_lacks_the_library_is_refused() {
    let Some(mut cluster) = supervised::cluster(Kind::Openmpi, 3, 1) else { return };
    let library = planted("planted_blas_no_spare", "");
    install(&cluster, &library, &["n1", "n2", "n3"]);
    let run = run("/mnt/disk/libblis.so");
    let first = launch(&cluster, true, FLAGS, &run);
    power_off_at(&mut cluster, 1, "encode", "n2");
    let ended = first.end(&cluster);
    assert_eq!((ended.code, ended.failures()), (Some(2), 1), "{}", ended.printed);
    ended.replaced(0, "n2", "n4");
    ended.prints(" on n4: --blas /mnt/disk/libblis.so: the loader refuses it: ");
    ended.prints("Name another library, or --blas built-in");
    ended.prints("the job cannot run on n4, whose place no spare node can take");
    assert_eq!(ended.account["starts"], 2, "{}", ended.account);
    install(&cluster, &library, &["n4"]);
    let ended = launch(&cluster, true, FLAGS, &run).end(&cluster);
    ended.passed();
    assert!(ended.report.contains("# restart: "), "{}", ended.report);
}
