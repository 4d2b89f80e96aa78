//! The CPUs that the control groups leave to a job.

use super::Root;
use super::cgroup::{Version, hierarchies};

/// The CPUs that the innermost control group with such a list has; `None` if no group has one. A
/// launcher may bind the process to fewer.
pub fn read(root: &Root) -> Option<Vec<usize>> {
    let lists = hierarchies(root, "cpuset").into_iter().flat_map(|hierarchy| {
        let name = match hierarchy.version {
            Version::V1 => "cpuset.effective_cpus",
            Version::V2 => "cpuset.cpus.effective",
        };
        hierarchy.folders.into_iter().map(move |folder| folder.join(name))
    });
    lists
        .filter_map(|file| super::parse_cpu_list(&std::fs::read_to_string(file).ok()?))
        .find(|cpus| !cpus.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Tree;

    #[test]
    fn the_innermost_list_counts() {
        let tree = Tree::new();
        assert_eq!(read(&tree.root()), None);
        let mount = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        tree.file("proc/self/cgroup", "0::/job/step\n").file("proc/self/mountinfo", mount);
        tree.file("sys/fs/cgroup/cpuset.cpus.effective", "0-7\n");
        tree.file("sys/fs/cgroup/job/cpuset.cpus.effective", "2-3\n");
        assert_eq!(read(&tree.root()), Some(vec![2, 3]));
    }
}
