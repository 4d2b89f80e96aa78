//! Processor time that was used, and that the hypervisor gave to other machines.

use std::collections::BTreeMap;

use super::Root;

/// The time of a CPU, or of all together, since the machine was started, in ticks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuTicks {
    all: u64,
    /// Idle, and idle while a disk works for a thread.
    idle: u64,
    /// Time that the hypervisor gave to others while this machine had work, if it is counted.
    stolen: Option<u64>,
}

impl CpuTicks {
    /// Reads the words after the name in a line of `/proc/stat`: user, nice, system, idle, iowait,
    /// irq, softirq, steal, and guest times, which user time includes.
    fn from_words<'a>(words: impl Iterator<Item = &'a str>) -> Option<Self> {
        let times: Option<Vec<u64>> = words.take(8).map(|word| word.parse().ok()).collect();
        let times = times?;
        let idle = times.iter().skip(3).take(2).sum();
        Some(Self { all: times.iter().sum(), idle, stolen: times.get(7).copied() })
    }

    /// The share of the time since `before` in which the CPU ran something; `None` if its counters
    /// stand still.
    pub(crate) fn busy_since(self, before: &Self) -> Option<f64> {
        let all = self.all.saturating_sub(before.all);
        let idle = self.idle.saturating_sub(before.idle);
        (all > 0).then(|| 1.0 - (idle as f64 / all as f64).min(1.0))
    }

    /// The share of the time since `before` that was stolen, if it is known.
    pub(crate) fn stolen_since(self, before: Self) -> Option<f64> {
        let all = self.all.saturating_sub(before.all).max(1);
        let stolen = self.stolen?.saturating_sub(before.stolen?);
        Some(stolen as f64 / all as f64)
    }
}

/// The least share of the time for which a CPU that is not in use is idle: the system itself has
/// some work everywhere.
const IDLE_SHARE: f64 = 0.9;

/// Reads the time of all CPUs together, which the first line has.
pub(crate) fn read(root: &Root) -> Option<CpuTicks> {
    let text = root.text("proc/stat")?;
    CpuTicks::from_words(text.lines().next()?.strip_prefix("cpu ")?.split_whitespace())
}

/// Reads the times of all CPUs, by their numbers.
pub fn read_cpus(root: &Root) -> BTreeMap<usize, CpuTicks> {
    let text = root.text("proc/stat").unwrap_or_default();
    let of_line = |line: &str| {
        let mut words = line.strip_prefix("cpu")?.split_whitespace();
        Some((words.next()?.parse().ok()?, CpuTicks::from_words(words)?))
    };
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
        assert_eq!(now, CpuTicks { all: 100, idle: 70, stolen: Some(10) });
        let start = CpuTicks { stolen: Some(0), ..CpuTicks::default() };
        assert_eq!((now.stolen_since(start), now.stolen_since(now)), (Some(0.1), Some(0.0)));
        assert_eq!(now.stolen_since(CpuTicks::default()), None);
        for unknown in ["cpu 10 0 x 70 0 0 0 10 5 0", "cpu0 1 2 3 4 5 6 7 8", ""] {
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
