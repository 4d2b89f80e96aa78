//! The control groups of a process, version 1 or 2: where their files are.

use std::path::{Path, PathBuf};

use super::Root;

/// The version of the kernel's interface of control groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    /// A hierarchy for each controller, or a few of them.
    V1,
    /// One hierarchy for all controllers.
    V2,
}

/// A hierarchy of control groups that may have a controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hierarchy {
    /// The version of its files.
    pub version: Version,
    /// The folders of the group of the process and of all groups above it, the innermost first.
    pub folders: Vec<PathBuf>,
}

/// The hierarchies of this process that may have the controller `controller` (`memory`, `cpu`),
/// from `/proc/self/cgroup` (lines `id:controllers:path`) and `/proc/self/mountinfo`.
pub(crate) fn hierarchies(root: &Root, controller: &str) -> Vec<Hierarchy> {
    let cgroups = root.text("proc/self/cgroup").unwrap_or_default();
    let mountinfo = root.text("proc/self/mountinfo").unwrap_or_default();
    let mut found = Vec::new();
    for line in cgroups.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(id), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let version = if id == "0" && controllers.is_empty() {
            Version::V2
        } else if controllers.split(',').any(|name| name == controller) {
            Version::V1
        } else {
            continue;
        };
        if let Some((mount_root, mount)) = mount_of(version, &mountinfo, controller) {
            // In a container the mount may show only a part of the tree, and the path may start at
            // the host's root or at the mount's.
            let path = Path::new(path);
            let group = path.strip_prefix(&mount_root).unwrap_or(path);
            let group = group.strip_prefix("/").unwrap_or(group);
            let top = root.folder().join(mount.strip_prefix("/").unwrap_or(&mount));
            let folders = group.ancestors().map(|group| top.join(group)).collect();
            found.push(Hierarchy { version, folders });
        }
    }
    found
}

/// The root within the hierarchy, and the mount point. A line of mountinfo is `id parent
/// major:minor root mountpoint options [optional...] - type source super`.
fn mount_of(version: Version, mountinfo: &str, controller: &str) -> Option<(String, PathBuf)> {
    mountinfo.lines().find_map(|line| {
        let (front, back) = line.split_once(" - ")?;
        let mut back = back.split(' ');
        let kind = back.next()?;
        let options = back.nth(1).unwrap_or_default();
        let fits = match version {
            Version::V2 => kind == "cgroup2",
            Version::V1 => kind == "cgroup" && options.split(',').any(|name| name == controller),
        };
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

    /// The folders of the first hierarchy, relative to the root.
    fn folders(groups: &str, mount: &str, controller: &str) -> Vec<PathBuf> {
        let tree = Tree::new();
        tree.file("proc/self/cgroup", groups).file("proc/self/mountinfo", mount);
        let (root, found) = (tree.root(), hierarchies(&tree.root(), controller));
        let relative = |folder: &PathBuf| folder.strip_prefix(root.folder()).unwrap().to_owned();
        found.first().map_or(Vec::new(), |first| first.folders.iter().map(relative).collect())
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
        let (_, mount) = mount_of(Version::V2, line, "memory").unwrap();
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
}
