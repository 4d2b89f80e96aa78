//! The cores and the memory that this machine gives the process.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::config::ConfigError;
use skt_host::affinity::current_mask;
use skt_host::memory::meminfo_bytes;

/// Number of physical cores that this process may run on, at most what its CPU quota allows. Two
/// hardware threads of a core count as one, because they share its floating-point units.
///
/// # Errors
/// The system does not report the CPUs of this process.
pub fn cores() -> Result<usize, ConfigError> {
    let no_cpus = |what: String| ConfigError::Machine { what };
    let allowed = current_mask().map_err(|why| {
        no_cpus(format!("the CPUs of this process are not known ({why}); give --ranks"))
    })?;
    let first_sibling = |cpu: &usize| {
        let file = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        fs::read_to_string(file).map_or(cpu.to_string(), |list| list.trim().to_owned())
    };
    let distinct = allowed.iter().map(first_sibling).collect::<BTreeSet<_>>().len();
    let quota = std::thread::available_parallelism().map_or(distinct, |n| n.get());
    Ok(distinct.min(quota).max(1))
}

/// Bytes that this process can still allocate: what the system has available, or what its memory
/// cgroup leaves, whichever is less.
///
/// # Errors
/// The system does not report the available memory.
pub fn available_bytes() -> Result<u64, ConfigError> {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let system = meminfo_bytes(&meminfo, "MemAvailable").ok_or_else(|| ConfigError::Machine {
        what: "/proc/meminfo does not say how much memory is available; give --memory-gib"
            .to_owned(),
    })?;
    let memberships = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let cgroup = cgroup_left(Path::new("/sys/fs/cgroup"), &memberships);
    Ok(cgroup.map_or(system, |left| left.min(system)))
}

/// The smallest number of bytes that a memory cgroup of this process, or one above it, leaves;
/// `None` without a limit. `mount` is where cgroups are mounted, `memberships` the text of
/// `/proc/self/cgroup`. Both versions of cgroups are read. Inside a container the group's path may
/// not be visible; then the mount itself is the group.
fn cgroup_left(mount: &Path, memberships: &str) -> Option<u64> {
    let mut left = None;
    for line in memberships.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let root = match controllers {
            "" => mount.to_path_buf(),
            _ if controllers.split(',').any(|c| c == "memory") => mount.join("memory"),
            _ => continue,
        };
        let mut folder: PathBuf = root.join(path.trim_start_matches('/'));
        while folder.starts_with(&root) {
            left = left.into_iter().chain(group_left(&folder)).min();
            if !folder.pop() {
                break;
            }
        }
    }
    left
}

/// The bytes that one group leaves: its limit minus its use. File cache that can be dropped does
/// not count as used.
fn group_left(folder: &Path) -> Option<u64> {
    let number = |name: &str| -> Option<u64> {
        fs::read_to_string(folder.join(name)).ok()?.trim().parse().ok()
    };
    let limit = number("memory.max").or_else(|| number("memory.limit_in_bytes"))?;
    let used = number("memory.current").or_else(|| number("memory.usage_in_bytes")).unwrap_or(0);
    let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
    let field = |name: &str| {
        stat.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(' ')?.parse::<u64>().ok())
    };
    let cache = field("total_inactive_file").or_else(|| field("inactive_file")).unwrap_or(0);
    Some(limit.saturating_sub(used.saturating_sub(cache)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(folder: &Path, name: &str, text: &str) {
        fs::create_dir_all(folder).unwrap();
        fs::write(folder.join(name), text).unwrap();
    }

    #[test]
    fn the_tightest_group_above_the_process_counts() {
        let dir = tempfile::tempdir().unwrap();
        let mount = dir.path();
        put(&mount.join("a/b"), "memory.max", "max\n");
        put(&mount.join("a"), "memory.max", "1000\n");
        put(&mount.join("a"), "memory.current", "700\n");
        put(&mount.join("a"), "memory.stat", "anon 5\ninactive_file 300\n");
        put(mount, "memory.max", "5000\n");
        assert_eq!(cgroup_left(mount, "0::/a/b\n"), Some(600));
        assert_eq!(cgroup_left(mount, "0::/not/visible\n"), Some(5000));
        assert_eq!(cgroup_left(mount, ""), None);
    }

    #[test]
    fn version_one_is_read_in_its_own_folder() {
        let dir = tempfile::tempdir().unwrap();
        let group = dir.path().join("memory/job");
        put(&group, "memory.limit_in_bytes", "4096\n");
        put(&group, "memory.usage_in_bytes", "96\n");
        assert_eq!(cgroup_left(dir.path(), "3:cpu,cpuacct:/x\n2:memory:/job\n"), Some(4000));
    }

    #[test]
    fn this_machine_has_a_core_and_memory() {
        assert!(cores().unwrap() >= 1);
        assert!(available_bytes().unwrap() > 0);
    }
}
