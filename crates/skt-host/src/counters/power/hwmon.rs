//! Sensors of power and energy in hwmon. Only those of known chips count: of others it is not known
//! which part of the node they cover, nor whether one contains another.

use super::{Channel, EnergySource, Quantity};
use crate::counters::Root;

const FOLDER: &str = "sys/class/hwmon";
/// Power and energy are in millionths.
const UNIT: f64 = 1e-6;
/// More than a node takes.
const MAX_WATTS: f64 = 100e3;

/// What a sensor of ACPI covers on Nvidia Grace, by its label: the first label that is there counts
/// alone, as it contains those after it.
const GRACE: [(&[&str], &str); 3] = [
    (&["Module Power"], "Grace modules: processor, its memory, and GPU if there is one"),
    (&["Grace Power"], "Grace processors and their memory"),
    (&["CPU Power", "SysIO Power"], "Grace cores and input/output"),
];

/// Chips with sensors of processors: the chip, how its labels begin, what counts, what that covers.
const PROCESSORS: [(&str, &[&str], &str, &str); 2] = [
    ("amd_energy", &["Esocket"], "energy", "processor sockets"),
    ("apm_xgene", &["CPU power", "IO power"], "power", "processors and input/output"),
];

/// The folders of all chips with this name. Old drivers have their files, the name included, in the
/// folder of the device: in most kernels the power meter of ACPI has registered without a name.
fn chips(root: &Root, chip: &str) -> Vec<String> {
    let folders = root.names(FOLDER).into_iter().map(|name| format!("{FOLDER}/{name}"));
    let is_named = |file: String| root.text(&file).as_deref() == Some(chip);
    let is_meant = |folder: &String| {
        is_named(format!("{folder}/name")) || is_named(format!("{folder}/device/name"))
    };
    folders.filter(is_meant).flat_map(|folder| [format!("{folder}/device"), folder]).collect()
}

fn channel(file: String, is_energy: bool) -> Channel {
    let quantity = if is_energy {
        // The driver extends its counter to 64 bits.
        Quantity::Energy { range_joules: None }
    } else {
        Quantity::Power
    };
    Channel { file, quantity, unit: UNIT, most_watts: MAX_WATTS }
}

/// A power meter of ACPI: of the whole node, or of Grace.
pub(super) fn find_node(root: &Root) -> Option<EnergySource> {
    let meters: Vec<(String, String)> = chips(root, "power_meter")
        .into_iter()
        .filter(|folder| root.names(folder).iter().any(|name| name == "power1_average"))
        .map(|folder| (root.text(&format!("{folder}/power1_oem_info")).unwrap_or_default(), folder))
        .collect();
    let labelled = |labels: &[&str]| -> Vec<Channel> {
        let is_meant =
            |(label, _): &&(String, String)| labels.iter().any(|begin| label.starts_with(begin));
        let meant = meters.iter().filter(is_meant);
        meant.map(|(_, folder)| channel(format!("{folder}/power1_average"), false)).collect()
    };
    let mut parts = GRACE.iter().map(|(labels, covers)| (labelled(labels), *covers));
    let (channels, covers) = match parts.find(|(channels, _)| !channels.is_empty()) {
        Some(of_grace) => of_grace,
        // One of several may contain the others.
        None if meters.len() == 1 => (labelled(&[""]), "the node, as its board measures it"),
        None => return None,
    };
    let (name, covers) = ("ACPI power meter".to_owned(), covers.to_owned());
    Some(EnergySource { name, covers, channels, freshness: None })
}

/// Sensors of processors.
pub(super) fn find_processors(root: &Root) -> Option<EnergySource> {
    PROCESSORS.iter().find_map(|&(chip, labels, what, covers)| {
        let sensors = |folder: String| {
            let name = |name: String| {
                let sensor = name.strip_suffix("_label").filter(|_| name.starts_with(what))?;
                let label = root.text(&format!("{folder}/{name}"))?;
                let is_meant = labels.iter().any(|begin| label.starts_with(begin));
                is_meant.then(|| channel(format!("{folder}/{sensor}_input"), what == "energy"))
            };
            root.names(&folder).into_iter().filter_map(name).collect::<Vec<_>>()
        };
        let channels: Vec<Channel> = chips(root, chip).into_iter().flat_map(sensors).collect();
        let (name, covers) = (format!("hwmon {chip}"), covers.to_owned());
        (!channels.is_empty()).then_some(EnergySource { name, covers, channels, freshness: None })
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Found, find};
    use super::*;
    use crate::testing::Tree;

    fn meter(tree: &Tree, number: usize, label: &str, microwatts: u64) {
        let folder = format!("{FOLDER}/hwmon{number}");
        tree.file(&format!("{folder}/name"), "power_meter\n");
        tree.file(&format!("{folder}/device/power1_average"), &format!("{microwatts}\n"));
        if !label.is_empty() {
            tree.file(&format!("{folder}/device/power1_oem_info"), label);
        }
    }

    fn watts(tree: &Tree) -> (Vec<f64>, String) {
        let source = find(&tree.root()).readable().unwrap();
        (source.read(&tree.root()).unwrap().values, source.covers)
    }

    #[test]
    fn a_board_with_one_meter_is_a_node() {
        let tree = Tree::new();
        meter(&tree, 3, "", 412_000_000);
        assert_eq!(watts(&tree), (vec![412.0], "the node, as its board measures it".to_owned()));
        meter(&tree, 4, "", 100_000_000);
        assert_eq!(find(&tree.root()), Found::Nothing, "one may contain the other");
    }

    #[test]
    fn a_chip_without_a_name_has_that_of_its_device() {
        let tree = Tree::new();
        tree.file(&format!("{FOLDER}/hwmon1/device/name"), "power_meter\n");
        tree.file(&format!("{FOLDER}/hwmon1/device/power1_average"), "412000000\n");
        assert_eq!(watts(&tree).0, [412.0]);
    }

    #[test]
    fn grace_has_meters_within_meters() {
        let tree = Tree::new();
        for socket in 0..2 {
            meter(&tree, 4 * socket, &format!("CPU Power Socket {socket}\n"), 150_000_000);
            meter(&tree, 4 * socket + 1, &format!("SysIO Power Socket {socket}\n"), 20_000_000);
        }
        assert_eq!(watts(&tree).0, [150.0, 20.0, 150.0, 20.0]);
        for socket in 0..2 {
            meter(&tree, 4 * socket + 2, &format!("Grace Power Socket {socket}\n"), 200_000_000);
        }
        assert_eq!(watts(&tree).0, [200.0, 200.0]);
        for socket in 0..2 {
            meter(&tree, 4 * socket + 3, &format!("Module Power Socket {socket}\n"), 600_000_000);
        }
        assert_eq!(watts(&tree).0, [600.0, 600.0]);
    }

    #[test]
    fn amd_sockets_contain_their_cores_and_other_chips_are_skipped() {
        let tree = Tree::new();
        for (number, label) in [(1, "Ecore000"), (2, "Esocket0"), (3, "Esocket1")] {
            tree.file(&format!("{FOLDER}/hwmon1/energy{number}_label"), label);
            tree.file(&format!("{FOLDER}/hwmon1/energy{number}_input"), "3000000\n");
        }
        for chip in ["amdgpu", "nvme"] {
            tree.file(&format!("{FOLDER}/hwmon2/name"), chip);
            tree.file(&format!("{FOLDER}/hwmon2/power1_average"), "90000000\n");
            assert_eq!(find(&tree.root()), Found::Nothing);
        }
        tree.file(&format!("{FOLDER}/hwmon1/name"), "amd_energy\n");
        assert_eq!(watts(&tree), (vec![3.0, 3.0], "processor sockets".to_owned()));
    }
}
