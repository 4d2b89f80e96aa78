//! How much more memory this process may use.
//!
//! There are two bounds: what the kernel can give without swapping (`MemAvailable`), and what is
//! left under the limit of every control group above the process, version 1 or 2. A limit of an
//! outer group binds like one of the process's own group.

use std::fs;
use std::path::{Path, PathBuf};

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use serde::Serialize;

use crate::counters::Root;
use crate::counters::cgroup::{Group, groups};

/// Version 1 writes "no limit" as the largest multiple of the page size in an i64; any limit from
/// this number on is none.
const NO_LIMIT_BYTES: u64 = 1 << 62;

/// Memory of this host, as this process may use it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MemoryInfo {
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

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CgroupLimit {
    pub path: PathBuf,
    pub limit_bytes: u64,
    /// Bytes that the group uses now, without file cache that can be dropped.
    pub used_bytes: u64,
}

impl CgroupLimit {
    pub fn left_bytes(&self) -> u64 {
        self.limit_bytes.saturating_sub(self.used_bytes)
    }
}

/// The memory of this process's host, from the system.
pub fn this_process() -> MemoryInfo {
    read_under(Path::new("/"))
}

/// The limit on what this process may map (`ulimit -v`), if there is one.
pub fn address_limit_bytes() -> Option<u64> {
    let (limit_bytes, _) = getrlimit(Resource::RLIMIT_AS).ok()?;
    (limit_bytes != RLIM_INFINITY).then_some(limit_bytes)
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
    // `max`, or a number beyond any machine, is no limit.
    let limit_bytes = group.text(LIMIT)?.trim().parse().ok().filter(|it| *it < NO_LIMIT_BYTES)?;
    let used = group.text(["memory.usage_in_bytes", "memory.current"])?;
    let stat = group.text(["memory.stat"; 2]).unwrap_or_default();
    let cache_bytes = stat_bytes(&stat, group.name(["total_inactive_file", "inactive_file"]));
    let used_bytes = used.trim().parse::<u64>().ok()?.saturating_sub(cache_bytes.unwrap_or(0));
    let file = group.folder.join(group.name(LIMIT));
    Some((CgroupLimit { path: group.folder, limit_bytes, used_bytes }, file))
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

    const V2_FILES: [&str; 2] = ["memory.max", "memory.current"];
    const V1_FILES: [&str; 2] = ["memory.limit_in_bytes", "memory.usage_in_bytes"];

    #[test]
    fn meminfo_is_in_kibibytes() {
        assert_eq!(meminfo_bytes(MEMINFO, "MemTotal"), Some(24_684_084 * 1024));
        assert_eq!(meminfo_bytes(MEMINFO, "MemAvailable"), Some(24_281_720 * 1024));
        assert_eq!(meminfo_bytes(MEMINFO, "HugePages_Total"), None);
        assert_eq!(meminfo_bytes(MEMINFO, "Mem"), None);
    }

    /// A group's folder, its limit, what it uses, and its `memory.stat`.
    type Files = (&'static str, &'static str, u64, &'static str);

    /// The process's groups, its mounts, the groups' files, and the tightest group with what it
    /// leaves.
    type Case<'c> = (&'c str, &'c str, &'c [Files], Option<(&'c str, u64)>);

    #[test]
    fn the_tightest_of_all_groups_binds() {
        let unlimited = "9223372036854771712";
        let both = format!("{V2_MOUNT}{V1_MOUNT}");
        let unified = V2_MOUNT.replace("/sys/fs/cgroup rw", "/sys/fs/cgroup/unified rw");
        let slurm = "0::/system.slice/slurm/job_7/step_0\n";
        let docker = "7:memory:/docker/abc/job\n3:cpu,cpuacct:/docker/abc\n1:name=systemd:/\n";
        let cases: [Case; 7] = [
            ("", "", &[], None),
            (
                slurm,
                V2_MOUNT,
                &[
                    ("system.slice/slurm/job_7/step_0", "max", GIB, ""),
                    (
                        "system.slice/slurm/job_7",
                        "8589934592",
                        3 * GIB,
                        "anon 5\ninactive_file 1073741824\nactive_file 7\n",
                    ),
                    ("system.slice", "17179869184", 4 * GIB, ""),
                ],
                Some(("system.slice/slurm/job_7", 6 * GIB)),
            ),
            // In a container the mount begins at the container's group, in version 1.
            (
                docker,
                V1_MOUNT,
                &[
                    (
                        "memory/job",
                        "2147483648",
                        4096,
                        "inactive_file 1\ntotal_inactive_file 1024\n",
                    ),
                    ("memory", unlimited, 5, ""),
                ],
                Some(("memory/job", 2 * GIB - 3072)),
            ),
            // A group out of sight has the limits of the mount.
            ("0::/not/visible\n", V2_MOUNT, &[("", "5000", 0, "")], Some(("", 5000))),
            // In hybrid mode systemd mounts version 2 in a separate folder.
            (
                "0::/job\n",
                &unified,
                &[("unified/job", "9000", 2000, "")],
                Some(("unified/job", 7000)),
            ),
            ("0::/\n", V2_MOUNT, &[("", "1000", 2000, "")], Some(("", 0))),
            (
                "0::/a\n5:memory:/docker/abc\n",
                &both,
                &[("a", "4294967296", 0, ""), ("memory", "3221225472", 0, "")],
                Some(("memory", 3 * GIB)),
            ),
        ];
        for (groups, mounts, files, want) in cases {
            let tree = Tree::new();
            tree.file("proc/meminfo", MEMINFO);
            tree.file("proc/self/cgroup", groups).file("proc/self/mountinfo", mounts);
            for (folder, limit, used, stat) in files {
                let is_v1 = folder.starts_with("memory");
                let names = if is_v1 { V1_FILES } else { V2_FILES };
                let file = |name: &str, text: &str| {
                    tree.file(&format!("sys/fs/cgroup/{folder}/{name}"), text);
                };
                file(names[0], &format!("{limit}\n"));
                file(names[1], &format!("{used}\n"));
                file("memory.stat", stat);
            }
            let memory = read_under(tree.root().folder());
            assert_eq!(memory.available_bytes, Some(24_281_720 * 1024));
            let top = tree.root().folder().join("sys/fs/cgroup");
            let found = memory.cgroup.map(|it| (it.path.clone(), it.left_bytes()));
            assert_eq!(found, want.map(|(folder, left)| (top.join(folder), left)), "{groups}");
        }
    }

    #[test]
    fn this_machine_is_readable() {
        let memory = this_process();
        assert!(memory.available_bytes.unwrap() <= memory.total_bytes.unwrap());
    }
}
