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
    /// What the firmware says of this moment, in words.
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

/// Reads the counters of the CPUs `ids`.
pub fn read(root: &Root, ids: &[usize]) -> Throttling {
    let of_cpu = |&id: &usize| {
        let count = |name: &str| {
            let folder = format!("sys/devices/system/cpu/cpu{id}/thermal_throttle");
            root.number(&format!("{folder}/{name}"))
        };
        let (core, package) = (count("core_throttle_count"), count("package_throttle_count"));
        (core.is_some() || package.is_some()).then(|| core.unwrap_or(0) + package.unwrap_or(0))
    };
    let counts: Vec<u64> = ids.iter().filter_map(of_cpu).collect();
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
    use super::super::root::tests::Tree;
    use super::*;

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

    #[test]
    fn a_raspberry_pi_says_why() {
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
