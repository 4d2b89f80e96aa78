//! How much more memory this process may use.
//!
//! There are two bounds: what the kernel can give without swapping (`MemAvailable`), and what is
//! left under the limit of every control group above the process, version 1 or 2. A limit of an
//! outer group binds like one of the process's own group.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::counters::Root;
use crate::counters::cgroup::{Group, groups};

/// Version 1 writes "no limit" as the largest multiple of the page size in an i64; any limit from
/// this number on is none.
const NO_LIMIT_BYTES: u64 = 1 << 62;

/// Memory of this host, as this process may use it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MemoryInfo {
    /// Installed memory.
    pub total_bytes: Option<u64>,
    /// `MemAvailable`: free, or cache that can be dropped.
    pub available_bytes: Option<u64>,
    /// The control group that leaves the least, if any has a limit.
    pub cgroup: Option<CgroupLimit>,
}

impl MemoryInfo {
    /// Bytes that this process may still take; `None` where neither bound is known.
    pub fn free_bytes(&self) -> Option<u64> {
        let left = self.cgroup.as_ref().map(CgroupLimit::left_bytes);
        self.available_bytes.into_iter().chain(left).min()
    }
}

/// A control group's memory limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CgroupLimit {
    /// The group's folder.
    pub path: PathBuf,
    /// The group's limit.
    pub limit_bytes: u64,
    /// Bytes that the group uses now, without file cache that can be dropped.
    pub used_bytes: u64,
}

impl CgroupLimit {
    /// Bytes left under the limit.
    pub fn left_bytes(&self) -> u64 {
        self.limit_bytes.saturating_sub(self.used_bytes)
    }
}

/// The memory of this process's host, from the system.
pub fn this_process() -> MemoryInfo {
    read_under(Path::new("/"))
}

fn read_under(root: &Path) -> MemoryInfo {
    let meminfo = fs::read_to_string(root.join("proc/meminfo")).unwrap_or_default();
    MemoryInfo {
        total_bytes: meminfo_bytes(&meminfo, "MemTotal"),
        available_bytes: meminfo_bytes(&meminfo, "MemAvailable"),
        cgroup: tightest_under(root).map(|(limit, _)| limit),
    }
}

/// The control group that leaves the process of `/proc/self` under `root` the least, and the file
/// with its limit; `None` if no group has a limit.
pub fn tightest_under(root: &Path) -> Option<(CgroupLimit, PathBuf)> {
    let groups = groups(&Root::at(root), "memory").into_iter();
    groups.filter_map(limit_in).min_by_key(|(limit, _)| limit.left_bytes())
}

/// A field of `/proc/meminfo`, which is in KiB.
pub fn meminfo_bytes(meminfo: &str, name: &str) -> Option<u64> {
    meminfo.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        if key != name {
            return None;
        }
        value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    })
}

fn limit_in(group: Group) -> Option<(CgroupLimit, PathBuf)> {
    const LIMIT: [&str; 2] = ["memory.limit_in_bytes", "memory.max"];
    let limit_bytes = parse_limit(&group.text(LIMIT)?)?;
    let used = group.text(["memory.usage_in_bytes", "memory.current"])?;
    let stat = group.text(["memory.stat"; 2]).unwrap_or_default();
    let cache_bytes = stat_bytes(&stat, group.name(["total_inactive_file", "inactive_file"]));
    let used_bytes = used.trim().parse::<u64>().ok()?.saturating_sub(cache_bytes.unwrap_or(0));
    let file = group.folder.join(group.name(LIMIT));
    Some((CgroupLimit { path: group.folder, limit_bytes, used_bytes }, file))
}

/// Parses a limit; `None` for "no limit": `max`, or a number beyond any machine.
fn parse_limit(text: &str) -> Option<u64> {
    text.trim().parse::<u64>().ok().filter(|&bytes| bytes < NO_LIMIT_BYTES)
}

/// The value of a line `name bytes` of memory.stat.
fn stat_bytes(stat: &str, name: &str) -> Option<u64> {
    stat.lines().find_map(|line| {
        let (key, value) = line.split_once(' ')?;
        if key == name { value.trim().parse().ok() } else { None }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Tree;

    const GIB: u64 = 1 << 30;
    const MEMINFO: &str = "MemTotal:       24684084 kB\nMemFree:        24033672 kB\n\
                           MemAvailable:   24281720 kB\nHugePages_Total:       3\n";
    const V2_MOUNT: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n";
    const V1_MOUNT: &str = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
35 31 0:32 /docker/abc /sys/fs/cgroup/memory rw,relatime shared:9 master:2 - cgroup cgroup rw,memory
";

    fn machine(cgroup: &str, mountinfo: &str) -> Tree {
        let tree = Tree::new();
        tree.file("proc/meminfo", MEMINFO);
        tree.file("proc/self/cgroup", cgroup).file("proc/self/mountinfo", mountinfo);
        tree
    }

    fn group(tree: &Tree, folder: &str, names: [&str; 2], limit: u64, used: u64, stat: &str) {
        tree.file(&format!("{folder}/{}", names[0]), &format!("{limit}\n"));
        tree.file(&format!("{folder}/{}", names[1]), &format!("{used}\n"));
        tree.file(&format!("{folder}/memory.stat"), stat);
    }

    fn tightest(tree: &Tree) -> CgroupLimit {
        read_under(tree.root().folder()).cgroup.unwrap()
    }

    const V2_FILES: [&str; 2] = ["memory.max", "memory.current"];
    const V1_FILES: [&str; 2] = ["memory.limit_in_bytes", "memory.usage_in_bytes"];

    #[test]
    fn meminfo_is_in_kibibytes() {
        assert_eq!(meminfo_bytes(MEMINFO, "MemTotal"), Some(24_684_084 * 1024));
        assert_eq!(meminfo_bytes(MEMINFO, "MemAvailable"), Some(24_281_720 * 1024));
        assert_eq!(meminfo_bytes(MEMINFO, "HugePages_Total"), None);
        assert_eq!(meminfo_bytes(MEMINFO, "Mem"), None);
    }

    #[test]
    fn without_control_groups_the_free_memory_binds() {
        let memory = read_under(machine("", "").root().folder());
        assert_eq!(memory.cgroup, None);
        assert_eq!(memory.available_bytes, Some(24_281_720 * 1024));
    }

    #[test]
    fn version_2_the_tightest_of_all_outer_groups_binds() {
        let tree = machine("0::/system.slice/slurm/job_7/step_0\n", V2_MOUNT);
        let top = "sys/fs/cgroup/system.slice";
        let step = format!("{top}/slurm/job_7/step_0");
        group(&tree, &step, V2_FILES, 0, GIB, "");
        tree.file(&format!("{step}/memory.max"), "max\n");
        let stat = format!("anon 5\ninactive_file {GIB}\nactive_file 7\n");
        group(&tree, &format!("{top}/slurm/job_7"), V2_FILES, 8 * GIB, 3 * GIB, &stat);
        group(&tree, top, V2_FILES, 16 * GIB, 4 * GIB, "");
        let tightest = tightest(&tree);
        assert!(tightest.path.ends_with("slurm/job_7"), "{tightest:?}");
        assert_eq!((tightest.limit_bytes, tightest.used_bytes), (8 * GIB, 2 * GIB));
        assert_eq!(tightest.left_bytes(), 6 * GIB);
    }

    #[test]
    fn version_1_in_a_container_counts_from_the_mounts_root() {
        let groups = "7:memory:/docker/abc/job\n3:cpu,cpuacct:/docker/abc\n1:name=systemd:/\n";
        let tree = machine(groups, V1_MOUNT);
        let stat = "inactive_file 1\ntotal_inactive_file 1024\n";
        group(&tree, "sys/fs/cgroup/memory/job", V1_FILES, 2 * GIB, 4096, stat);
        group(&tree, "sys/fs/cgroup/memory", V1_FILES, 9_223_372_036_854_771_712, 5, stat);
        let tightest = tightest(&tree);
        assert_eq!((tightest.used_bytes, tightest.left_bytes()), (3072, 2 * GIB - 3072));
    }

    #[test]
    fn a_group_out_of_sight_has_the_limits_of_the_mount() {
        let tree = machine("0::/not/visible\n", V2_MOUNT);
        group(&tree, "sys/fs/cgroup", V2_FILES, 5000, 0, "");
        assert_eq!(tightest(&tree).left_bytes(), 5000);
    }

    #[test]
    fn a_group_over_its_limit_leaves_nothing() {
        let tree = machine("0::/\n", V2_MOUNT);
        group(&tree, "sys/fs/cgroup", V2_FILES, 1000, 2000, "");
        assert_eq!(tightest(&tree).left_bytes(), 0);
    }

    #[test]
    fn tighter_limit_of_both_versions_binds() {
        let tree = machine("0::/a\n5:memory:/docker/abc\n", &format!("{V2_MOUNT}{V1_MOUNT}"));
        group(&tree, "sys/fs/cgroup/a", V2_FILES, 4 * GIB, 0, "");
        group(&tree, "sys/fs/cgroup/memory", V1_FILES, 3 * GIB, 0, "");
        assert_eq!(tightest(&tree).left_bytes(), 3 * GIB);
    }

    #[test]
    fn this_machine_is_readable() {
        let memory = this_process();
        assert!(memory.available_bytes.unwrap() <= memory.total_bytes.unwrap());
    }
}
