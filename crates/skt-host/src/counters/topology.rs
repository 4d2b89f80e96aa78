//! The CPUs: which hardware threads make up a core, and which cores are slower than others.

use std::io;

use serde::{Deserialize, Serialize};

use super::{Root, parse_cpu_list};

const FOLDER: &str = "sys/devices/system/cpu";

/// A logical CPU and the physical core it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpu {
    /// The kernel's number of the CPU.
    pub id: usize,
    /// The lowest CPU number of the same physical core.
    pub core: usize,
    /// The socket of the CPU.
    pub package: usize,
}

/// All CPUs that are online, with their cores and sockets.
///
/// # Errors
/// When the kernel does not list them (no `/sys`).
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
}
