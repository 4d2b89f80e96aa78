//! Runs with levels of images on a cluster in a box: all memory is lost, and disks.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use crate::supervised::*;

/// Files below a folder.
fn files(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let count = |path: std::path::PathBuf| if path.is_dir() { files(&path) } else { 1 };
    entries.map(|entry| count(entry.path())).sum()
}

/// The images below `folder` that have a seal, which is written last.
fn sealed(folder: &Path) -> BTreeSet<PathBuf> {
    let entries = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten();
    let has_seal = |path: &PathBuf| {
        let mut first = [0; 8];
        let read = fs::File::open(path).and_then(|mut file| file.read_exact(&mut first));
        read.is_ok() && first != [0; 8]
    };
    let of_run = |run: fs::DirEntry| entries(&run.path()).map(|image| image.path());
    entries(folder).flat_map(of_run).filter(has_seal).collect()
}

/// A power cut of the whole machine in which one disk is lost; then the loss of two nodes, which is
/// more than one parity survives, one of them with its disk. That node is replaced, and is back
/// with its images before the end. The run continues each time; nothing is left of its images.
#[test]
fn power_failure_and_loss_of_two_nodes_cost_only_time() {
    let Some(mut cluster) = openmpi_box(4, 2) else { return };
    let pfs = cluster.shared().join("pfs");
    fs::create_dir(&pfs).expect("our folder");
    let levels = "--level local:/mnt/disk,every=0.3s! --level global:/mnt/pfs,every=0.3s!";
    let run = format!("{} {levels}", run());
    let first = launch(&cluster, true, "", &run);
    wait_for_column(&cluster, 1, 800);
    let nodes = cluster.nodes_on();
    cluster.power_cut(&nodes);
    let ended = first.end(&cluster);
    assert_ne!(ended.code, Some(0), "{}", ended.report);
    let start = state(&cluster)["start"].as_u64().expect("a number") as usize;
    cluster.lose_disk("n2");
    nodes.iter().for_each(|node| cluster.power_on(node).expect("it was on"));
    let of_first = sealed(&pfs);

    // The spares, which were off as well, are admitted again.
    let second = launch(&cluster, true, "--readmit", &run);
    wait_for("images of the second start", || sealed(&pfs).difference(&of_first).count() >= 4);
    cluster.power_cut(&["n1", "n3"]);
    cluster.lose_disk("n1");
    wait_for_column(&cluster, start + 2, 1350);
    assert!(files(&cluster.disk("n3")) > 0);
    cluster.power_on("n3").expect("it was on");
    let ended = second.end(&cluster);
    ended.passed().replaced(1, "n1", "n5");
    ended.replaced(1, "n3", "n6");
    for images in [", level local:/mnt/disk", ", level global:/mnt/pfs"] {
        assert!(ended.report.contains(images), "{}", ended.report);
    }
    assert_eq!(files(&cluster.shared().join("disks")) + files(&pfs), 0);
    ended.passed_with_the_same_x(&cluster);
}
