//! The nodes of the memory, and on which of them the memory of this process is.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Root;

const FOLDER: &str = "sys/devices/system/node";

/// A node of the memory, with the CPUs that are next to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NumaNode {
    /// The kernel's number of the node.
    pub id: usize,
    /// The CPUs next to it; none if it is memory alone.
    pub cpus: Vec<usize>,
}

/// All nodes. A machine that reports none has one, with the CPUs `ids`.
pub fn nodes(root: &Root, ids: &[usize]) -> Vec<NumaNode> {
    let online = root.list(&format!("{FOLDER}/online")).unwrap_or_default();
    let node = |id: usize| NumaNode {
        id,
        cpus: root.list(&format!("{FOLDER}/node{id}/cpulist")).unwrap_or_default(),
    };
    if online.is_empty() {
        vec![NumaNode { id: 0, cpus: ids.to_vec() }]
    } else {
        online.into_iter().map(node).collect()
    }
}

/// Bytes of this process's private memory on each node, by `/proc/self/numa_maps`; empty where
/// that is missing or not understood. Takes milliseconds for gigabytes.
pub fn own_bytes(root: &Root) -> BTreeMap<usize, u64> {
    root.text("proc/self/numa_maps").and_then(|maps| bytes_of_maps(&maps)).unwrap_or_default()
}

fn bytes_of_maps(maps: &str) -> Option<BTreeMap<usize, u64>> {
    let mut bytes = BTreeMap::new();
    for line in maps.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        // Files are shared with other processes, which may have read them first.
        if !words.iter().any(|word| word.starts_with("anon=")) {
            continue;
        }
        let pairs = || words.iter().filter_map(|word| word.split_once('='));
        let (_, page_kib) = pairs().find(|(name, _)| *name == "kernelpagesize_kB")?;
        let page_bytes = page_kib.parse::<u64>().ok()?.checked_mul(1024)?;
        for (name, pages) in pairs() {
            if let Some(node) = name.strip_prefix('N').and_then(|node| node.parse().ok()) {
                let more = pages.parse::<u64>().ok()?.checked_mul(page_bytes)?;
                *bytes.entry(node).or_insert(0) += more;
            }
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Tree;

    #[test]
    fn machine_without_listed_nodes_has_one() {
        let tree = Tree::new();
        assert_eq!(nodes(&tree.root(), &[0, 1]), [NumaNode { id: 0, cpus: vec![0, 1] }]);
        tree.file("sys/devices/system/node/online", "0-1");
        tree.file("sys/devices/system/node/node0/cpulist", "0-1");
        tree.file("sys/devices/system/node/node1/cpulist", "\n");
        let want = [NumaNode { id: 0, cpus: vec![0, 1] }, NumaNode { id: 1, cpus: vec![] }];
        assert_eq!(nodes(&tree.root(), &[0, 1]), want);
    }

    #[test]
    fn private_memory_is_counted_in_pages_of_its_size() {
        let tree = Tree::new();
        let text = "\
5600 default file=/usr/bin/cat mapped=2 N0=2 kernelpagesize_kB=4
7f00 default anon=3 dirty=3 N0=1 N1=2 kernelpagesize_kB=4
7f10 bind:1 anon=1 dirty=1 N1=1 kernelpagesize_kB=2048
";
        tree.file("proc/self/numa_maps", text);
        let want = BTreeMap::from([(0, 4 << 10), (1, (2056) << 10)]);
        assert_eq!(own_bytes(&tree.root()), want);
        for (known, unknown) in [("N0=1 N1", "N0=x N1"), ("kernelpagesize_kB=4\n7f10", "\n7f10")] {
            tree.file("proc/self/numa_maps", &text.replace(known, unknown));
            assert_eq!(own_bytes(&tree.root()), BTreeMap::new(), "{unknown}");
        }
    }
}
