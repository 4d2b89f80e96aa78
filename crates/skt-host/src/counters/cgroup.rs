//! The control groups of a process, version 1 or 2: where their files are, and their limits of
//! processor time.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Root, parse_cpu_list};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    /// Whether it is of version 2, which has one hierarchy for all controllers, and not one for
    /// each or a few of them.
    pub is_v2: bool,
    pub folder: PathBuf,
}

impl Group {
    /// The name of a file, which differs between the versions.
    pub(crate) fn name<'n>(&self, names: [&'n str; 2]) -> &'n str {
        names[usize::from(self.is_v2)]
    }

    pub(crate) fn text(&self, names: [&str; 2]) -> Option<String> {
        fs::read_to_string(self.folder.join(self.name(names))).ok()
    }
}

/// The groups of this process that may have the controller `controller` (`memory`, `cpu`), each
/// followed by those above it, from `/proc/self/cgroup` (lines `id:controllers:path`) and
/// `/proc/self/mountinfo`.
pub(crate) fn groups(root: &Root, controller: &str) -> Vec<Group> {
    let cgroups = root.text("proc/self/cgroup").unwrap_or_default();
    let mountinfo = root.text("proc/self/mountinfo").unwrap_or_default();
    let of_line = |line: &str| {
        let mut parts = line.splitn(3, ':');
        let (id, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let is_v2 = id == "0" && controllers.is_empty();
        if !is_v2 && !controllers.split(',').any(|name| name == controller) {
            return None;
        }
        let (mount_root, mount) = mount_of(is_v2, &mountinfo, controller)?;
        // In a container the mount may show only a part of the tree, and the path may start at the
        // host's root or at the mount's.
        let path = Path::new(path);
        let group = path.strip_prefix(&mount_root).unwrap_or(path);
        let group = group.strip_prefix("/").unwrap_or(group);
        let top = root.folder().join(mount.strip_prefix("/").unwrap_or(&mount));
        let folders = group.ancestors().map(|group| top.join(group));
        Some(folders.map(|folder| Group { is_v2, folder }).collect::<Vec<_>>())
    };
    cgroups.lines().filter_map(of_line).flatten().collect()
}

/// A control group's limit of processor time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Quota {
    pub file: PathBuf,
    /// What is written to the file to lift the limit.
    pub none: String,
    pub cores: f64,
}

/// The tightest limit of processor time from the group of this process up to the root, if any group
/// has one.
pub fn quota(root: &Root) -> Option<Quota> {
    const FILES: [&str; 2] = ["cpu.cfs_quota_us", "cpu.max"];
    let of_group = |group: Group| {
        let (file, none) = (group.folder.join(group.name(FILES)), group.name(["-1", "max"]).into());
        // Version 2 has the period in the same file.
        let period = group.text(["cpu.cfs_period_us", ""]).unwrap_or_default();
        let text = format!("{} {period}", group.text(FILES)?);
        // A quota of `-1` or `max` is none.
        let mut numbers = text.split_whitespace().map_while(|word| word.parse::<u64>().ok());
        let (micros, period) = (numbers.next()?, numbers.next()?);
        let cores = micros as f64 / period as f64;
        (period > 0).then_some(Quota { file, none, cores })
    };
    let quotas = groups(root, "cpu").into_iter().filter_map(of_group);
    quotas.min_by(|a, b| a.cores.total_cmp(&b.cores))
}

/// The CPUs that the innermost control group with such a list has; `None` if no group has one. A
/// launcher may bind the process to fewer.
pub fn cpus(root: &Root) -> Option<Vec<usize>> {
    let files = ["cpuset.effective_cpus", "cpuset.cpus.effective"];
    let groups = groups(root, "cpuset").into_iter();
    let mut lists = groups.filter_map(|group| parse_cpu_list(&group.text(files)?));
    lists.find(|cpus| !cpus.is_empty())
}

/// The root within the hierarchy, and the mount point. A line of mountinfo is `id parent
/// major:minor root mountpoint options [optional...] - type source super`.
fn mount_of(is_v2: bool, mountinfo: &str, controller: &str) -> Option<(String, PathBuf)> {
    mountinfo.lines().find_map(|line| {
        let (front, back) = line.split_once(" - ")?;
        let mut back = back.split(' ');
        let kind = back.next()?;
        let options = back.nth(1).unwrap_or_default();
        let has_it = options.split(',').any(|name| name == controller);
        let fits = if is_v2 { kind == "cgroup2" } else { kind == "cgroup" && has_it };
        let mut front = front.split(' ').skip(3);
        let (root, mount) = (front.next()?, front.next()?);
        fits.then(|| (unescape(root), PathBuf::from(unescape(mount))))
    })
}

/// Decodes mountinfo's escapes, as `\040` for a blank.
fn unescape(text: &str) -> String {
    text.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Tree;

    /// The folders of the groups, relative to the root.
    fn folders(of: &str, mount: &str, controller: &str) -> Vec<PathBuf> {
        let tree = Tree::new();
        tree.file("proc/self/cgroup", of).file("proc/self/mountinfo", mount);
        let root = tree.root();
        let relative = |group: Group| group.folder.strip_prefix(root.folder()).unwrap().to_owned();
        groups(&root, controller).into_iter().map(relative).collect()
    }

    const V1_MOUNT: &str = "\
35 31 0:32 /docker/abc /sys/fs/cgroup/memory rw,relatime shared:9 master:2 - cgroup cgroup rw,memory
";

    #[test]
    fn a_mount_root_is_stripped_by_whole_names() {
        let innermost = |groups: &str| folders(groups, V1_MOUNT, "memory").swap_remove(0);
        let top = Path::new("sys/fs/cgroup/memory");
        assert_eq!(innermost("7:memory:/docker/abcdef\n"), top.join("docker/abcdef"));
        assert_eq!(innermost("7:memory:/docker/abc\n"), top.join(""));
    }

    #[test]
    fn blanks_in_mount_points_are_unescaped() {
        let line = "30 23 0:26 / /odd\\040place rw - cgroup2 cgroup2 rw\n";
        let (_, mount) = mount_of(true, line, "memory").unwrap();
        assert_eq!(mount, PathBuf::from("/odd place"));
    }

    #[test]
    fn a_controller_that_shares_its_hierarchy_is_found() {
        let mount = "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n";
        let groups = "2:cpu,cpuacct:/job/step\n";
        let top = Path::new("sys/fs/cgroup/cpu,cpuacct");
        let want = [top.join("job/step"), top.join("job"), top.join("")];
        assert_eq!(folders(groups, mount, "cpu"), want);
        assert_eq!(folders(groups, mount, "memory"), [""; 0].map(PathBuf::from));
    }

    const V2: &str = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
    const V1_CPU: &str = "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n";

    fn tree(groups: &str, mounts: &str) -> Tree {
        let tree = Tree::new();
        tree.file("proc/self/cgroup", groups).file("proc/self/mountinfo", mounts);
        tree
    }

    #[test]
    fn version_2_the_tightest_of_all_outer_groups_binds() {
        let tree = tree("0::/pod/box\n", V2);
        tree.file("sys/fs/cgroup/pod/box/cpu.max", "max 100000\n");
        assert_eq!(quota(&tree.root()), None);
        tree.file("sys/fs/cgroup/pod/cpu.max", "50000 100000\n");
        let found = quota(&tree.root()).unwrap();
        assert_eq!((found.cores, found.none.as_str()), (0.5, "max"));
        assert!(found.file.ends_with("sys/fs/cgroup/pod/cpu.max"), "{found:?}");
    }

    #[test]
    fn version_1_minus_one_is_no_limit() {
        let tree = tree("4:memory:/m\n1:cpu:/job\n", V1_CPU);
        tree.file("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
        tree.file("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
        assert_eq!(quota(&tree.root()), None);
        tree.file("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "150000\n");
        tree.file("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
        assert_eq!(quota(&tree.root()).unwrap().cores, 1.5);
    }

    #[test]
    fn the_innermost_list_counts() {
        let tree = Tree::new();
        assert_eq!(cpus(&tree.root()), None);
        tree.file("proc/self/cgroup", "0::/job/step\n").file("proc/self/mountinfo", V2);
        tree.file("sys/fs/cgroup/cpuset.cpus.effective", "0-7\n");
        tree.file("sys/fs/cgroup/job/cpuset.cpus.effective", "2-3\n");
        assert_eq!(cpus(&tree.root()), Some(vec![2, 3]));
    }
}
