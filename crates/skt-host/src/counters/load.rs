//! Processor time that was used, and that the hypervisor gave to other machines.

use std::collections::BTreeMap;

use super::Root;

/// The time of all CPUs since the machine was started, in ticks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ticks {
    /// All time.
    pub all: u64,
    /// Time that the hypervisor gave to others while this machine had work.
    pub stolen: u64,
}

impl Ticks {
    /// The share of the time since `before` that was stolen.
    pub fn stolen_share(self, before: Self) -> f64 {
        let all = self.all.saturating_sub(before.all);
        let stolen = self.stolen.saturating_sub(before.stolen);
        if all > 0 { stolen as f64 / all as f64 } else { 0.0 }
    }
}

/// Reads the first line of `/proc/stat`: `cpu`, user, nice, system, idle, iowait, irq, softirq,
/// steal, and guest times, which user time includes. `None` if it is another.
pub fn read(root: &Root) -> Option<Ticks> {
    let text = root.text("proc/stat")?;
    let mut words = text.lines().next()?.split_whitespace();
    words.next().filter(|&name| name == "cpu")?;
    let times: Option<Vec<u64>> = words.take(8).map(|word| word.parse().ok()).collect();
    let times = times?;
    Some(Ticks { all: times.iter().sum(), stolen: *times.get(7)? })
}

/// The time of one CPU since the machine was started, in ticks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuTicks {
    all: u64,
    idle: u64,
}

impl CpuTicks {
    /// The share of the time since `before` in which the CPU ran something; `None` if its counters
    /// stand still.
    pub(crate) fn busy_since(self, before: &Self) -> Option<f64> {
        let all = self.all.saturating_sub(before.all);
        let idle = self.idle.saturating_sub(before.idle);
        (all > 0).then(|| 1.0 - (idle as f64 / all as f64).min(1.0))
    }
}

/// The least share of the time for which a CPU that is not in use is idle: the system itself has
/// some work everywhere.
const IDLE_SHARE: f64 = 0.9;

/// Reads the times of all CPUs, by their numbers.
pub fn read_cpus(root: &Root) -> BTreeMap<usize, CpuTicks> {
    let text = root.text("proc/stat").unwrap_or_default();
    let of_line = |line: &str| {
        let mut words = line.strip_prefix("cpu")?.split_whitespace();
        let id = words.next()?.parse().ok()?;
        let times: Vec<u64> = words.take(8).map_while(|word| word.parse().ok()).collect();
        // Idle, and idle while a disk works for a thread.
        let idle = times.iter().skip(3).take(2).sum();
        Some((id, CpuTicks { all: times.iter().sum(), idle }))
    };
    // The first line is the sum of all CPUs.
    text.lines().skip(1).map_while(of_line).collect()
}

/// The CPUs of `now` that were idle since `before`; also those whose counters stand still, as in
/// containers that show none.
pub fn idle_since(
    now: &BTreeMap<usize, CpuTicks>,
    before: &BTreeMap<usize, CpuTicks>,
) -> Vec<usize> {
    let is_idle = |(id, now): &(&usize, &CpuTicks)| {
        let before = before.get(id).copied().unwrap_or_default();
        let all = now.all.saturating_sub(before.all) as f64;
        now.idle.saturating_sub(before.idle) as f64 >= IDLE_SHARE * all
    };
    now.iter().filter(is_idle).map(|(id, _)| *id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Tree;

    #[test]
    fn stolen_time_is_the_eighth() {
        let tree = Tree::new();
        assert_eq!(read(&tree.root()), None);
        tree.file("proc/stat", "cpu  10 0 10 70 0 0 0 10 5 0\ncpu0 1 2 3\n");
        let now = read(&tree.root()).unwrap();
        assert_eq!(now, Ticks { all: 100, stolen: 10 });
        assert_eq!(now.stolen_share(Ticks::default()), 0.1);
        assert_eq!(now.stolen_share(now), 0.0);
        for unknown in ["cpu 10 0 x 70 0 0 0 10 5 0", "cpu 10 0 10 70", "cpu0 1 2 3 4 5 6 7 8", ""]
        {
            tree.file("proc/stat", unknown);
            assert_eq!(read(&tree.root()), None, "{unknown}");
        }
    }

    #[test]
    fn cpus_that_did_nothing_are_idle() {
        let tree = Tree::new();
        let read = |cpus: &str| {
            tree.file("proc/stat", &format!("cpu  9 9 9 9\n{cpus}intr 7 cpu3\n"));
            read_cpus(&tree.root())
        };
        let before = read("cpu0 10 0 10 70 0 0 0 10 5 0\ncpu1 0 0 0 50 0 0 0 0\ncpu5 1 0 0 9\n");
        let now = read("cpu0 15 0 10 75 0 0 0 10 9 0\ncpu1 1 0 0 55 4 0 0 0\ncpu5 1 0 0 9\n");
        assert_eq!(idle_since(&now, &before), [1, 5]);
        assert_eq!(idle_since(&BTreeMap::new(), &before), [0; 0]);
    }
}
