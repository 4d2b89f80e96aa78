//! How many processes the kernel has ended for want of memory.

use serde::{Deserialize, Serialize};

use super::Root;
use super::cgroup::{Group, groups};

/// Counts of ended processes, since the machine or the control group was started. `None` where the
/// kernel does not count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OomKills {
    /// On the whole machine, from `/proc/vmstat` (Linux 4.13).
    pub machine: Option<u64>,
    /// In the control groups of this process, as far as it sees them.
    pub group: Option<u64>,
}

impl OomKills {
    /// The counts of the machine under `root`.
    pub fn under(root: &Root) -> Self {
        let machine = root.text("proc/vmstat").and_then(|text| count(&text));
        let of_group = |group: Group| {
            let kills = count(&group.text(["memory.oom_control", "memory.events"])?)?;
            Some((group.is_v2, kills))
        };
        // Of version 1 a group's count leaves out the groups below, of version 2 it has theirs.
        let join = |[v1, v2]: [Option<u64>; 2], (is_v2, kills): (bool, u64)| {
            if is_v2 {
                [v1, v2.max(Some(kills))]
            } else {
                [Some(v1.unwrap_or(0).saturating_add(kills)), v2]
            }
        };
        let counts = groups(root, "memory").into_iter().filter_map(of_group);
        let counts = counts.fold([None, None], join).into_iter().flatten();
        Self { machine, group: counts.reduce(u64::saturating_add) }
    }

    /// Describes what has happened on `node` since `before`: the number of processes ended, and a
    /// sentence. `None` if nothing was counted then or now.
    pub fn since(&self, before: &Self, node: &str) -> Option<(u64, String)> {
        let change = |now: Option<u64>, before: Option<u64>| Some((before?, now?));
        let machine = change(self.machine, before.machine);
        let group = change(self.group, before.group);
        let (old, new) = machine.or(group)?;
        let ended = new.saturating_sub(old);
        if ended == 0 {
            return Some((0, format!("no new OOM kill on {node} (oom_kill {new})")));
        }
        let what = if ended == 1 { "a process".to_owned() } else { format!("{ended} processes") };
        let of_group = match group.filter(|_| machine.is_some()) {
            Some((old, new)) if new > old => format!("; in its control group {old} -> {new}"),
            _ => String::new(),
        };
        let text = format!(
            "the kernel's OOM killer ended {what} on {node} during the run (oom_kill {old} -> \
             {new}{of_group})"
        );
        Some((ended, text))
    }
}

/// The number of a line `oom_kill NUMBER`.
fn count(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Tree;

    const V1: &str = "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
    const V2: &str = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";

    #[test]
    fn kills_are_counted_by_machine_and_group() {
        let tree = Tree::new();
        let kills = |machine, group| OomKills { machine, group };
        assert_eq!(OomKills::under(&tree.root()), kills(None, None));
        tree.file("proc/vmstat", "pgfault 7\noom_kill 3\nthp_fault_alloc 1\n");
        assert_eq!(OomKills::under(&tree.root()), kills(Some(3), None));
        tree.file("proc/self/cgroup", "0::/job/step\n").file("proc/self/mountinfo", V2);
        tree.file("sys/fs/cgroup/job/step/memory.events", "max 5\noom 2\noom_kill 1\n");
        tree.file("sys/fs/cgroup/job/memory.events", "oom 2\noom_kill 2\noom_group_kill 0\n");
        assert_eq!(OomKills::under(&tree.root()), kills(Some(3), Some(2)));
        tree.file("proc/self/cgroup", "4:memory:/job/step\n").file("proc/self/mountinfo", V1);
        let control = "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n";
        tree.file("sys/fs/cgroup/memory/job/step/memory.oom_control", control);
        tree.file("sys/fs/cgroup/memory/job/memory.oom_control", "under_oom 0\noom_kill 1\n");
        assert_eq!(OomKills::under(&tree.root()), kills(Some(3), Some(5)));
    }

    #[test]
    fn a_change_of_counts_is_described() {
        let kills = |machine, group| OomKills { machine, group };
        let since = |now: OomKills, before: OomKills| now.since(&before, "n2");
        let text = |now, before| since(now, before).unwrap().1;
        assert_eq!(since(kills(Some(3), None), kills(None, None)), None);
        assert_eq!(since(kills(None, Some(1)), kills(Some(1), None)), None);
        let (ended, calm) = since(kills(Some(3), Some(9)), kills(Some(3), Some(9))).unwrap();
        assert_eq!((ended, calm.as_str()), (0, "no new OOM kill on n2 (oom_kill 3)"));
        let start = "the kernel's OOM killer ended";
        assert_eq!(
            text(kills(Some(4), Some(0)), kills(Some(3), Some(0))),
            format!("{start} a process on n2 during the run (oom_kill 3 -> 4)")
        );
        assert_eq!(
            text(kills(Some(5), Some(1)), kills(Some(3), Some(0))),
            format!(
                "{start} 2 processes on n2 during the run (oom_kill 3 -> 5; in its control group 0 -> 1)"
            )
        );
        assert_eq!(
            text(kills(None, Some(2)), kills(None, Some(1))),
            format!("{start} a process on n2 during the run (oom_kill 1 -> 2)")
        );
        // A node that was started again counts from 0.
        assert_eq!(since(kills(Some(0), None), kills(Some(3), None)).unwrap().0, 0);
    }
}
