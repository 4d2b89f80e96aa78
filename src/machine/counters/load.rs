//! Processor time that the hypervisor gave to other machines.

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

#[cfg(test)]
mod tests {
    use super::super::root::tests::Tree;
    use super::*;

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
}
