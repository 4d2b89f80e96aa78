//! The CPUs: which hardware threads make up a core, which cores are slower than others, the nodes of
//! the memory, on which of them the memory of this process is, and the sizes of the caches.

use std::collections::BTreeMap;
use std::io;

use serde::{Deserialize, Serialize};

use super::{Root, parse_cpu_list};

const FOLDER: &str = "sys/devices/system/cpu";
const NODES: &str = "sys/devices/system/node";

/// A logical CPU and the physical core it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpu {
    pub id: usize,
    /// The lowest CPU number of the same physical core.
    pub core: usize,
    pub package: usize,
}

/// All CPUs that are online, with their cores and sockets.
pub fn online(root: &Root) -> io::Result<Vec<Cpu>> {
    let listed = root.text(&format!("{FOLDER}/online"));
    let Some(ids) = listed.as_deref().and_then(parse_cpu_list).filter(|ids| !ids.is_empty()) else {
        let file = root.folder().join(FOLDER).join("online");
        let listed =
            listed.map_or("cannot be read".to_owned(), |text| format!("contains '{text}'"));
        return Err(io::Error::other(format!("{} {listed}", file.display())));
    };
    let cpu = |id: usize| {
        let path = |name: &str| format!("{FOLDER}/cpu{id}/topology/{name}");
        // Without a topology each CPU counts as one core.
        let siblings = root.list(&path("thread_siblings_list")).unwrap_or_default();
        let package = root.number(&path("physical_package_id")).unwrap_or(0);
        Cpu {
            id,
            core: siblings.into_iter().min().unwrap_or(id),
            package: usize::try_from(package).unwrap_or(0),
        }
    };
    Ok(ids.into_iter().map(cpu).collect())
}

/// What an efficiency core of Intel does in a cycle, relative to a performance core: its vector
/// units are half as wide.
const ATOM_WIDTH: f64 = 0.5;

/// The speed of each of the CPUs `ids` relative to the fastest: by the kernel's `cpu_capacity`, or
/// else by Intel's list of efficiency cores with the highest clocks. 1 for all where neither is
/// there.
pub fn speeds(root: &Root, ids: &[usize]) -> Vec<f64> {
    let capacity = |id: &usize| root.number(&format!("{FOLDER}/cpu{id}/cpu_capacity"));
    let capacities: Option<Vec<f64>> = ids.iter().map(|id| Some(capacity(id)? as f64)).collect();
    let speeds = capacities.unwrap_or_else(|| {
        let atoms = root.list("sys/devices/cpu_atom/cpus").unwrap_or_default();
        let speed = |id: &usize| {
            let clock = root.number(&format!("{FOLDER}/cpu{id}/cpufreq/cpuinfo_max_freq"));
            let width = if atoms.contains(id) { ATOM_WIDTH } else { 1.0 };
            width * clock.filter(|_| !atoms.is_empty()).map_or(1.0, |khz| khz as f64)
        };
        ids.iter().map(speed).collect()
    });
    let fastest = speeds.iter().copied().fold(0.0, f64::max);
    let relative = |speed: f64| if fastest > 0.0 { speed / fastest } else { 1.0 };
    speeds.into_iter().map(relative).collect()
}

/// A node of the memory, with the CPUs that are next to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NumaNode {
    pub id: usize,
    /// The CPUs next to it; none if it is memory alone.
    pub cpus: Vec<usize>,
}

/// All nodes. A machine that reports none has one, with the CPUs `ids`.
pub fn nodes(root: &Root, ids: &[usize]) -> Vec<NumaNode> {
    let online = root.list(&format!("{NODES}/online")).unwrap_or_default();
    let node = |id: usize| NumaNode {
        id,
        cpus: root.list(&format!("{NODES}/node{id}/cpulist")).unwrap_or_default(),
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

/// Bytes of all caches of the last level of this machine together; `None` where the system does not
/// report them.
pub fn last_level_bytes(root: &Root) -> Option<u64> {
    let mut levels: BTreeMap<u64, BTreeMap<String, u64>> = BTreeMap::new();
    for cpu in root.list(&format!("{FOLDER}/online"))? {
        let folder = format!("{FOLDER}/cpu{cpu}/cache");
        for index in root.names(&folder).iter().filter(|name| name.starts_with("index")) {
            let text = |file: &str| root.text(&format!("{folder}/{index}/{file}"));
            let level = text("level").and_then(|level| level.parse().ok());
            let bytes = text("size").and_then(|size| bytes_of(&size));
            if let (Some(level), Some(bytes), Some(sharers)) =
                (level, bytes, text("shared_cpu_list"))
            {
                levels.entry(level).or_default().insert(sharers, bytes);
            }
        }
    }
    Some(levels.pop_last()?.1.values().sum())
}

/// The share of a core in the data cache of this level, in bytes, as the first CPU has it; `None`
/// where the system does not report it.
pub fn bytes_per_core(root: &Root, level: u64) -> Option<u64> {
    let cpu = *root.list(&format!("{FOLDER}/online"))?.first()?;
    let folder = format!("{FOLDER}/cpu{cpu}");
    let siblings = root.list(&format!("{folder}/topology/thread_siblings_list"));
    let threads_of_core = siblings.map_or(1, |list| list.len().max(1)) as u64;
    root.names(&format!("{folder}/cache")).iter().find_map(|index| {
        let file = |name: &str| format!("{folder}/cache/{index}/{name}");
        let is_it = root.text(&file("level"))?.parse() == Ok(level)
            && root.text(&file("type"))? != "Instruction";
        let sharers = root.list(&file("shared_cpu_list"))?.len() as u64;
        let cores = (sharers / threads_of_core).max(1);
        is_it.then_some(bytes_of(&root.text(&file("size"))?)? / cores)
    })
}

/// The bytes of a size as Linux writes it: `32768K`.
fn bytes_of(size: &str) -> Option<u64> {
    let kib: u64 = size.strip_suffix('K')?.parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Tree;

    #[test]
    fn siblings_are_one_core() {
        let tree = Tree::new();
        tree.file("sys/devices/system/cpu/online", "0-3\n");
        for (id, siblings) in [(0, "0,2"), (1, "1,3"), (2, "0,2"), (3, "1,3")] {
            let folder = format!("sys/devices/system/cpu/cpu{id}/topology");
            tree.file(&format!("{folder}/thread_siblings_list"), siblings);
            tree.file(&format!("{folder}/physical_package_id"), "1");
        }
        let cores: Vec<usize> = online(&tree.root()).unwrap().iter().map(|cpu| cpu.core).collect();
        assert_eq!(cores, [0, 1, 0, 1]);
        assert_eq!(speeds(&tree.root(), &[0, 1]), [1.0, 1.0]);
    }

    #[test]
    fn no_list_of_cpus_is_an_error_that_names_the_file() {
        let tree = Tree::new();
        let why = online(&tree.root()).unwrap_err().to_string();
        assert!(why.ends_with("sys/devices/system/cpu/online cannot be read"), "{why}");
        tree.file("sys/devices/system/cpu/online", "none");
        let why = online(&tree.root()).unwrap_err().to_string();
        assert!(why.ends_with("contains 'none'"), "{why}");
    }

    #[test]
    fn slower_cores_are_known_by_capacity_or_by_intels_list() {
        let arm = Tree::new();
        for (id, capacity) in [(0, "512"), (1, "1024")] {
            arm.file(&format!("sys/devices/system/cpu/cpu{id}/cpu_capacity"), capacity);
        }
        assert_eq!(speeds(&arm.root(), &[0, 1]), [0.5, 1.0]);
        let intel = Tree::new();
        intel.file("sys/devices/cpu_atom/cpus", "1\n");
        for (id, khz) in [(0, "5000000"), (1, "4000000")] {
            let path = format!("sys/devices/system/cpu/cpu{id}/cpufreq/cpuinfo_max_freq");
            intel.file(&path, khz);
        }
        assert_eq!(speeds(&intel.root(), &[0, 1]), [1.0, 0.4]);
    }

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

    #[test]
    fn shared_caches_count_once_and_those_of_the_last_level_alone() {
        let tree = Tree::new();
        assert_eq!(last_level_bytes(&tree.root()), None);
        tree.file("sys/devices/system/cpu/online", "0-3\n");
        assert_eq!(last_level_bytes(&tree.root()), None);
        for (cpu, sharers) in [(0, "0-1"), (1, "0-1"), (2, "2-3"), (3, "2-3")] {
            for (index, level, size, sharers) in
                [(0, 1, "48K", cpu.to_string()), (3, 3, "32768K", sharers.to_owned())]
            {
                let folder = format!("sys/devices/system/cpu/cpu{cpu}/cache/index{index}");
                tree.file(&format!("{folder}/level"), &format!("{level}\n"))
                    .file(&format!("{folder}/size"), &format!("{size}\n"))
                    .file(&format!("{folder}/shared_cpu_list"), &format!("{sharers}\n"));
            }
        }
        assert_eq!(last_level_bytes(&tree.root()), Some(64 << 20));
    }

    #[test]
    fn a_core_has_its_share_whatever_threads_it_has() {
        let tree = Tree::new();
        assert_eq!(bytes_per_core(&tree.root(), 2), None);
        let cpu = "sys/devices/system/cpu";
        tree.file(&format!("{cpu}/online"), "0-7\n")
            .file(&format!("{cpu}/cpu0/topology/thread_siblings_list"), "0,4\n");
        for (index, level, kind, size, sharers) in [
            (0, 1, "Instruction", "64K", "0,4"),
            (1, 1, "Data", "32K", "0,4"),
            (2, 2, "Unified", "1024K", "0,4"),
            (3, 3, "Unified", "32768K", "0-7"),
        ] {
            let folder = format!("{cpu}/cpu0/cache/index{index}");
            tree.file(&format!("{folder}/level"), &format!("{level}\n"))
                .file(&format!("{folder}/type"), &format!("{kind}\n"))
                .file(&format!("{folder}/size"), &format!("{size}\n"))
                .file(&format!("{folder}/shared_cpu_list"), &format!("{sharers}\n"));
        }
        let shares = [1, 2, 3, 4].map(|level| bytes_per_core(&tree.root(), level));
        assert_eq!(shares, [Some(32 << 10), Some(1 << 20), Some(8 << 20), None]);
    }
}
