//! The counters of Cray's nodes.

use super::{Channel, EnergySource, Quantity};
use crate::counters::Root;

/// More than a node with accelerators takes.
const MAX_WATTS: f64 = 100e3;

/// The energy of the node, in joules, updated ten times a second.
pub(super) fn source(root: &Root) -> Option<EnergySource> {
    const FOLDER: &str = "sys/cray/pm_counters";
    let names = root.names(FOLDER);
    let has = |name: &str| names.iter().any(|other| other == name);
    has("energy").then(|| EnergySource {
        name: "Cray pm_counters".to_owned(),
        covers: "the node, without what nodes share".to_owned(),
        channels: vec![Channel {
            file: format!("{FOLDER}/energy"),
            quantity: Quantity::Energy { range_joules: None },
            unit: 1.0,
            most_watts: MAX_WATTS,
        }],
        freshness: has("freshness").then(|| format!("{FOLDER}/freshness")),
    })
}

#[cfg(test)]
mod tests {
    use super::super::find;
    use crate::testing::Tree;

    #[test]
    fn energy_and_freshness_are_read() {
        let tree = Tree::new();
        tree.file("sys/cray/pm_counters/energy", "36485396 J 1465234857334582 us\n");
        tree.file("sys/cray/pm_counters/freshness", "1234\n");
        // A part of the node, which its energy contains.
        tree.file("sys/cray/pm_counters/accel0_energy", "9000 J\n");
        let reading = find(&tree.root()).readable().unwrap().read(&tree.root()).unwrap();
        assert_eq!(reading.values, [36_485_396.0]);
        assert_eq!(reading.freshness.as_deref(), Some("1234"));
    }
}
