//! The counters of processors (RAPL), of Intel and AMD, as the kernel shows them in powercap.

use super::{Channel, EnergySource, Quantity};
use crate::counters::Root;

/// More than a package, its memory or a platform takes.
const MAX_WATTS: f64 = 2e3;

/// The packages and their memory. A package contains its zones `core` and `uncore`, and the zones
/// of `intel-rapl-mmio` are the packages once more. `psys` contains the packages and is wired on
/// few boards: it counts only where there are no packages.
pub(super) fn source(root: &Root) -> Option<EnergySource> {
    const FOLDER: &str = "sys/class/powercap";
    let zones = root.names(FOLDER).into_iter().filter(|zone| zone.starts_with("intel-rapl:"));
    let named: Vec<(String, String)> = zones
        .filter_map(|zone| {
            let folder = format!("{FOLDER}/{zone}");
            Some((root.text(&format!("{folder}/name"))?, folder))
        })
        .collect();
    let of = |is_meant: fn(&str) -> bool| -> Vec<&str> {
        let meant = named.iter().filter(|(name, _)| is_meant(name));
        meant.map(|(_, folder)| folder.as_str()).collect()
    };
    let packages = of(|name| name.starts_with("package"));
    let (folders, covers) = if packages.is_empty() {
        (of(|name| name == "psys"), "the platform, as its firmware counts it".to_owned())
    } else {
        let memory = of(|name| name == "dram");
        let words = match memory.len() {
            0 => format!("{} processor package(s)", packages.len()),
            zones => {
                format!("{} processor package(s) and {zones} zone(s) of memory", packages.len())
            }
        };
        ([packages, memory].concat(), words)
    };
    let channels: Vec<Channel> = folders.into_iter().map(|folder| channel(root, folder)).collect();
    let name = "RAPL".to_owned();
    (!channels.is_empty()).then_some(EnergySource { name, covers, channels, freshness: None })
}

fn channel(root: &Root, folder: &str) -> Channel {
    const JOULES: f64 = 1e-6;
    let range = root.number(&format!("{folder}/max_energy_range_uj"));
    Channel {
        file: format!("{folder}/energy_uj"),
        quantity: Quantity::Energy { range_joules: range.map(|range| JOULES * range as f64) },
        unit: JOULES,
        most_watts: MAX_WATTS,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Quantity, find};
    use crate::testing::{Tree, zone};

    #[test]
    fn nothing_is_counted_twice() {
        let tree = Tree::new();
        for (package, name) in [(0, "package-0"), (1, "package-1")] {
            zone(&tree, &format!("intel-rapl:{package}"), name, 10_000_000);
            zone(&tree, &format!("intel-rapl:{package}:0"), "core", 7_000_000);
            zone(&tree, &format!("intel-rapl:{package}:1"), "uncore", 1_000_000);
            zone(&tree, &format!("intel-rapl:{package}:2"), "dram", 2_000_000);
            zone(&tree, &format!("intel-rapl-mmio:{package}"), name, 10_000_000);
        }
        zone(&tree, "intel-rapl:2", "psys", 99_000_000);
        tree.file("sys/class/powercap/intel-rapl/enabled", "1");
        let source = find(&tree.root()).readable().unwrap();
        assert_eq!(source.read(&tree.root()).unwrap().values, [10.0, 10.0, 2.0, 2.0]);
        assert_eq!(source.covers, "2 processor package(s) and 2 zone(s) of memory");
        let range = Quantity::Energy { range_joules: Some(262_143.328_85) };
        assert!(source.channels.iter().all(|channel| channel.quantity == range), "{source:?}");
    }

    #[test]
    fn a_platform_counts_where_no_package_does() {
        let tree = Tree::new();
        zone(&tree, "intel-rapl:0", "psys", 99_000_000);
        let source = find(&tree.root()).readable().unwrap();
        assert_eq!(source.read(&tree.root()).unwrap().values, [99.0]);
        zone(&tree, "intel-rapl:1", "package-0", 10_000_000);
        let source = find(&tree.root()).readable().unwrap();
        assert_eq!(source.read(&tree.root()).unwrap().values, [10.0]);
        assert_eq!(source.covers, "1 processor package(s)");
    }
}
