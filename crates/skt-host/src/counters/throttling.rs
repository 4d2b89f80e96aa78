//! Cores that are slowed down because they are too hot or have too little power.

use super::Root;

/// The events of each of the CPUs `ids` and its package since the machine was started. Each CPU of
/// a package counts the package's events.
pub fn events_of_cpus(root: &Root, ids: &[usize]) -> Vec<Option<u64>> {
    let of_cpu = |&id: &usize| {
        let count = |name: &str| {
            let folder = format!("sys/devices/system/cpu/cpu{id}/thermal_throttle");
            root.number(&format!("{folder}/{name}"))
        };
        let (core, package) = (count("core_throttle_count"), count("package_throttle_count"));
        (core.is_some() || package.is_some()).then(|| core.unwrap_or(0) + package.unwrap_or(0))
    };
    ids.iter().map(of_cpu).collect()
}

/// The events between two readings of [`events_of_cpus`], of the CPU with the most.
pub fn max_events_between(before: &[Option<u64>], after: &[Option<u64>]) -> u64 {
    let moved = |(before, after): (&Option<u64>, &Option<u64>)| (*after)?.checked_sub((*before)?);
    before.iter().zip(after).filter_map(moved).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Tree;

    /// An event of a package is counted at each of its CPUs, but is one.
    #[test]
    fn events_since_a_reading_are_those_of_the_cpu_with_most() {
        let tree = Tree::new();
        let count = |id: usize, name: &str, count: u64| {
            let folder = format!("sys/devices/system/cpu/cpu{id}/thermal_throttle");
            tree.file(&format!("{folder}/{name}_throttle_count"), &format!("{count}\n"));
        };
        let read = || events_of_cpus(&tree.root(), &[0, 1, 2]);
        [0, 1].into_iter().for_each(|id| count(id, "package", 5));
        let before = read();
        assert_eq!(before, [Some(5), Some(5), None]);
        assert_eq!(max_events_between(&before, &before), 0);
        [0, 1].into_iter().for_each(|id| count(id, "package", 12));
        count(1, "core", 5);
        assert_eq!(max_events_between(&before, &read()), 12);
        assert_eq!(max_events_between(&read(), &before), 0, "counters restart from 0 with a start");
    }
}
