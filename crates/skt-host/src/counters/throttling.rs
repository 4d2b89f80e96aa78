//! Cores that are slowed down because they are too hot or have too little power.

use serde::{Deserialize, Serialize};

use super::Root;

/// How often cores were slowed down since the machine was started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Throttling {
    /// Events of all cores and packages, where the kernel counts them (x86).
    pub events: Option<u64>,
    /// The flags of a Raspberry Pi's firmware.
    pub firmware: Option<u64>,
}

impl Throttling {
    /// The problem that the firmware reports at this moment, in words.
    pub fn now(&self) -> Option<&'static str> {
        const UNDER_VOLTAGE: u64 = 1;
        const CAPPED_OR_THROTTLED: u64 = 0b1110;
        match self.firmware? {
            flags if flags & UNDER_VOLTAGE != 0 => Some("its voltage is too low"),
            flags if flags & CAPPED_OR_THROTTLED != 0 => Some("it is too hot"),
            _ => None,
        }
    }
}

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

/// Reads the counters of the CPUs `ids`.
pub fn read(root: &Root, ids: &[usize]) -> Throttling {
    let counts: Vec<u64> = events_of_cpus(root, ids).into_iter().flatten().collect();
    let firmware = root.text("sys/devices/platform/soc/soc:firmware/get_throttled");
    Throttling {
        events: (!counts.is_empty()).then(|| counts.iter().sum()),
        firmware: firmware.and_then(|text| {
            u64::from_str_radix(text.strip_prefix("0x").unwrap_or(&text), 16).ok()
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Tree;

    #[test]
    fn events_of_all_cores_are_summed() {
        let tree = Tree::new();
        assert_eq!(read(&tree.root(), &[0]), Throttling::default());
        for id in [0, 1] {
            let folder = format!("sys/devices/system/cpu/cpu{id}/thermal_throttle");
            tree.file(&format!("{folder}/core_throttle_count"), "3\n");
            tree.file(&format!("{folder}/package_throttle_count"), "4\n");
        }
        assert_eq!(read(&tree.root(), &[0, 1]).events, Some(14));
    }

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

    #[test]
    fn raspberry_pi_reports_the_reason() {
        let flags = |text: &str| {
            let tree = Tree::new();
            tree.file("sys/devices/platform/soc/soc:firmware/get_throttled", text);
            read(&tree.root(), &[0]).now()
        };
        assert_eq!(flags("0\n"), None);
        assert_eq!(flags("50000\n"), None, "that is over");
        assert_eq!(flags("50005\n"), Some("its voltage is too low"));
        assert_eq!(flags("0x80008\n"), Some("it is too hot"));
    }
}
