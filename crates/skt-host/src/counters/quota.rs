//! The limit of processor time of the control groups.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Root;
use super::cgroup::{Hierarchy, Version, hierarchies};

/// A control group's limit of processor time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Quota {
    /// The group's file with the limit.
    pub file: PathBuf,
    /// The version of its files: 1 or 2.
    pub version: u8,
    /// The limit, in cores.
    pub cores: f64,
    /// Periods in which the group was held back since it exists.
    pub throttled: u64,
}

/// The tightest limit from the group of this process up to the root, if any group has one.
pub fn read(root: &Root) -> Option<Quota> {
    let quotas = |Hierarchy { version, folders }| {
        folders.into_iter().filter_map(move |folder| quota_in(&folder, version))
    };
    hierarchies(root, "cpu").into_iter().flat_map(quotas).min_by(|a, b| a.cores.total_cmp(&b.cores))
}

fn quota_in(folder: &Path, version: Version) -> Option<Quota> {
    let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
    let (number, name) = match version {
        Version::V1 => (1, "cpu.cfs_quota_us"),
        Version::V2 => (2, "cpu.max"),
    };
    let text = read(name)?;
    let (micros, period) = match version {
        // A quota of -1 is none.
        Version::V1 => (text.trim().to_owned(), read("cpu.cfs_period_us")?.trim().to_owned()),
        // A quota of `max` is none.
        Version::V2 => {
            let (micros, period) = text.trim().split_once(' ')?;
            (micros.to_owned(), period.to_owned())
        }
    };
    let (micros, period) = (micros.parse::<u64>().ok()?, period.parse::<u64>().ok()?);
    let stat = read("cpu.stat").unwrap_or_default();
    let throttled = stat.lines().find_map(|line| line.strip_prefix("nr_throttled ")?.parse().ok());
    (period > 0).then(|| Quota {
        file: folder.join(name),
        version: number,
        cores: micros as f64 / period as f64,
        throttled: throttled.unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Tree;

    const V2: &str = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
    const V1: &str = "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n";

    fn tree(groups: &str, mounts: &str) -> Tree {
        let tree = Tree::new();
        tree.file("proc/self/cgroup", groups).file("proc/self/mountinfo", mounts);
        tree
    }

    #[test]
    fn version_2_the_tightest_of_all_outer_groups_binds() {
        let tree = tree("0::/pod/box\n", V2);
        tree.file("sys/fs/cgroup/pod/box/cpu.max", "max 100000\n");
        assert_eq!(read(&tree.root()), None);
        tree.file("sys/fs/cgroup/pod/cpu.max", "50000 100000\n");
        tree.file("sys/fs/cgroup/pod/cpu.stat", "nr_periods 9\nnr_throttled 7\n");
        let quota = read(&tree.root()).unwrap();
        assert_eq!((quota.cores, quota.throttled, quota.version), (0.5, 7, 2));
        assert!(quota.file.ends_with("sys/fs/cgroup/pod/cpu.max"), "{quota:?}");
    }

    #[test]
    fn version_1_minus_one_is_no_limit() {
        let tree = tree("4:memory:/m\n1:cpu:/job\n", V1);
        tree.file("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
        tree.file("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
        assert_eq!(read(&tree.root()), None);
        tree.file("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "150000\n");
        tree.file("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
        assert_eq!(read(&tree.root()).unwrap().cores, 1.5);
    }
}
