//! Counters of a node's energy, and sensors of its power: which there are, what they cover, and
//! what they read now.
//!
//! A node has one [`EnergySource`], so that nothing is counted twice: of the kinds that answer, the
//! one that covers most. A sensor of which it is not known what it covers is left out.

use std::io::ErrorKind;

use serde::{Deserialize, Serialize};

use super::Root;

/// The kinds of sources, those that cover more first.
const KINDS: [fn(&Root) -> Option<EnergySource>; 3] = [cray, acpi, rapl];

/// More watts than a node with accelerators takes.
const NODE_WATTS: f64 = 100e3;
/// More watts than a package, its memory or a platform takes.
const PACKAGE_WATTS: f64 = 2e3;

/// A source of these channels, if there are any.
fn source(name: &str, covers: String, channels: Vec<Channel>) -> Option<EnergySource> {
    let name = name.to_owned();
    (!channels.is_empty()).then_some(EnergySource { name, covers, channels, freshness: None })
}

/// The energy of a node of Cray, in joules, updated ten times a second.
fn cray(root: &Root) -> Option<EnergySource> {
    const FOLDER: &str = "sys/cray/pm_counters";
    let names = root.names(FOLDER);
    let file =
        |name: &str| names.iter().any(|other| other == name).then(|| format!("{FOLDER}/{name}"));
    let quantity = Quantity::Energy { range_joules: None };
    let channel = Channel { file: file("energy")?, quantity, unit: 1.0, most_watts: NODE_WATTS };
    let covers = "the node, without what nodes share".to_owned();
    let source = source("Cray pm_counters", covers, vec![channel])?;
    Some(EnergySource { freshness: file("freshness"), ..source })
}

/// What a power meter of ACPI covers on Nvidia Grace, by its label: the first label that is there
/// counts alone, as it contains those after it.
const GRACE: [(&[&str], &str); 3] = [
    (&["Module Power"], "Grace modules: processor, its memory, and GPU if there is one"),
    (&["Grace Power"], "Grace processors and their memory"),
    (&["CPU Power", "SysIO Power"], "Grace cores and input/output"),
];

/// A power meter of ACPI: of the whole node, or of Grace. Of other sensors in hwmon it is not known
/// which part of the node they cover.
fn acpi(root: &Root) -> Option<EnergySource> {
    const FOLDER: &str = "sys/class/hwmon";
    // Old drivers have their files, the name included, in the folder of the device: in most kernels
    // the power meter has registered without a name.
    let is_meter = |folder: &String| {
        let is_named =
            |file: &str| root.text(&format!("{folder}/{file}")).as_deref() == Some("power_meter");
        is_named("name") || is_named("device/name")
    };
    let folders = root.names(FOLDER).into_iter().map(|name| format!("{FOLDER}/{name}"));
    let meters: Vec<(String, String)> = folders
        .filter(is_meter)
        .flat_map(|folder| [format!("{folder}/device"), folder])
        .filter(|folder| root.names(folder).iter().any(|name| name == "power1_average"))
        .map(|folder| (root.text(&format!("{folder}/power1_oem_info")).unwrap_or_default(), folder))
        .collect();
    let channel = |(_, folder): &(String, String)| Channel {
        file: format!("{folder}/power1_average"),
        quantity: Quantity::Power,
        unit: 1e-6,
        most_watts: NODE_WATTS,
    };
    let labelled = |labels: &[&str]| -> Vec<Channel> {
        let is_meant =
            |(label, _): &&(String, String)| labels.iter().any(|begin| label.starts_with(begin));
        meters.iter().filter(is_meant).map(channel).collect()
    };
    let mut parts = GRACE.iter().map(|(labels, covers)| (labelled(labels), *covers));
    let (channels, covers) = match parts.find(|(channels, _)| !channels.is_empty()) {
        Some(of_grace) => of_grace,
        // One of several may contain the others.
        None if meters.len() == 1 => (labelled(&[""]), "the node, as its board measures it"),
        None => return None,
    };
    source("ACPI power meter", covers.to_owned(), channels)
}

/// The counters of processors (RAPL), of Intel and AMD, as the kernel shows them in powercap: the
/// packages and their memory. A package contains its zones `core` and `uncore`, and the zones of
/// `intel-rapl-mmio` are the packages once more. `psys` contains the packages and is wired on few
/// boards: it counts only where there are no packages.
fn rapl(root: &Root) -> Option<EnergySource> {
    const FOLDER: &str = "sys/class/powercap";
    const JOULES: f64 = 1e-6;
    let zones = root.names(FOLDER).into_iter().filter(|zone| zone.starts_with("intel-rapl:"));
    let folders = zones.map(|zone| format!("{FOLDER}/{zone}"));
    let named: Vec<(String, String)> =
        folders.filter_map(|it| Some((root.text(&format!("{it}/name"))?, it))).collect();
    let channel = |(_, folder): &(String, String)| {
        let range = root.number(&format!("{folder}/max_energy_range_uj"));
        let range_joules = range.map(|range| JOULES * range as f64);
        let quantity = Quantity::Energy { range_joules };
        let file = format!("{folder}/energy_uj");
        Channel { file, quantity, unit: JOULES, most_watts: PACKAGE_WATTS }
    };
    let channels = |name: &str| -> Vec<Channel> {
        named.iter().filter(|(zone, _)| zone.starts_with(name)).map(channel).collect()
    };
    let [packages, memory, platform] = ["package", "dram", "psys"].map(channels);
    if packages.is_empty() {
        return source("RAPL", "the platform, as its firmware counts it".to_owned(), platform);
    }
    let words = match memory.len() {
        0 => String::new(),
        zones => format!(" and {zones} zone(s) of memory"),
    };
    let covers = format!("{} processor package(s){words}", packages.len());
    source("RAPL", covers, [packages, memory].concat())
}

/// What is counted by a file.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Quantity {
    /// Energy since some moment.
    Energy {
        /// Joules at which the counter begins again from 0; `None` if it does not.
        range_joules: Option<f64>,
    },
    /// Power of this moment, or of a short time before it.
    Power,
}

impl Quantity {
    /// The unit that a file may name after its number.
    fn unit_name(self) -> &'static str {
        match self {
            Self::Energy { .. } => "J",
            Self::Power => "W",
        }
    }
}

/// A file with one number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Channel {
    /// The file, relative to the root.
    pub file: String,
    /// What it counts.
    pub quantity: Quantity,
    /// Joules or watts of one unit of the file.
    pub unit: f64,
    /// More watts than the covered part ever takes: above that, a counter was reset.
    pub most_watts: f64,
}

/// All that counts the energy of a node, or of a part of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EnergySource {
    /// The source's name.
    pub name: String,
    /// The part of the node that it covers, in words.
    pub covers: String,
    /// The source's files: parts that have nothing in common.
    pub channels: Vec<Channel>,
    /// A file that changes whenever the counters do, if there is one.
    pub freshness: Option<String>,
}

/// The readings of a source's files at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct CounterReading {
    /// Joules or watts of each channel.
    pub values: Vec<f64>,
    /// The content of the source's file of freshness.
    pub freshness: Option<String>,
}

/// What there is on a node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub enum Found {
    /// Neither counters nor sensors that are known here, or none that answers.
    #[default]
    Nothing,
    /// Counters that this user may not read.
    Forbidden(EnergySource),
    /// Counters that answer.
    Readable(EnergySource),
}

impl Found {
    /// The source, if it can be read.
    pub fn readable(self) -> Option<EnergySource> {
        match self {
            Self::Readable(source) => Some(source),
            Self::Nothing | Self::Forbidden(_) => None,
        }
    }
}

/// What there is under `root`.
pub fn find(root: &Root) -> Found {
    let mut found = Found::Nothing;
    for source in KINDS.iter().filter_map(|kind| kind(root)) {
        match source.access(root) {
            Ok(()) => return Found::Readable(source),
            Err(ErrorKind::PermissionDenied) if found == Found::Nothing => {
                found = Found::Forbidden(source);
            }
            Err(_) => {}
        }
    }
    found
}

impl EnergySource {
    /// The current readings; `None` if one of the files cannot be read.
    pub fn read(&self, root: &Root) -> Option<CounterReading> {
        let value = |channel: &Channel| {
            let number = number(&root.text(&channel.file)?, channel.quantity.unit_name())?;
            Some(channel.unit * number)
        };
        let values: Option<Vec<f64>> = self.channels.iter().map(value).collect();
        let freshness = match &self.freshness {
            Some(file) => Some(root.text(file)?),
            None => None,
        };
        Some(CounterReading { values: values?, freshness })
    }

    /// Whether all files answer, or else why not.
    fn access(&self, root: &Root) -> Result<(), ErrorKind> {
        for channel in &self.channels {
            root.read(&channel.file).map_err(|why| why.kind())?;
        }
        // A sensor that reads 0 W is not wired.
        let is_alive = |(channel, value): (&Channel, &f64)| {
            channel.quantity != Quantity::Power || *value > 0.0
        };
        let reading = self.read(root).ok_or(ErrorKind::InvalidData)?;
        if self.channels.iter().zip(&reading.values).all(is_alive) {
            Ok(())
        } else {
            Err(ErrorKind::InvalidData)
        }
    }
}

/// The number in a text, which this unit may follow and, on Cray's nodes, a time in microseconds.
fn number(text: &str, unit_name: &str) -> Option<f64> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let number: f64 = match words[..] {
        [number] => number.parse().ok()?,
        [number, unit] | [number, unit, _, "us"] if unit == unit_name => number.parse().ok()?,
        _ => return None,
    };
    (number.is_finite() && number >= 0.0).then_some(number)
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use nix::unistd::{Uid, geteuid, setfsuid};

    use super::*;
    use crate::testing::{Tree, zone};

    #[test]
    fn wider_source_is_used_alone() {
        let tree = Tree::new();
        assert_eq!(find(&tree.root()), Found::Nothing);
        zone(&tree, "intel-rapl:0", "package-0", 5_000_000);
        let name = |tree: &Tree| find(&tree.root()).readable().map(|source| source.name);
        assert_eq!(name(&tree).as_deref(), Some("RAPL"));
        tree.file("sys/class/hwmon/hwmon2/name", "power_meter\n");
        tree.file("sys/class/hwmon/hwmon2/device/power1_average", "0\n");
        assert_eq!(name(&tree).as_deref(), Some("RAPL"), "0 W is no sensor");
        tree.file("sys/class/hwmon/hwmon2/device/power1_average", "310000000\n");
        assert_eq!(name(&tree).as_deref(), Some("ACPI power meter"));
        tree.file("sys/cray/pm_counters/energy", "1000 J\n");
        tree.file("sys/cray/pm_counters/freshness", "17\n");
        assert_eq!(name(&tree).as_deref(), Some("Cray pm_counters"));
    }

    #[test]
    fn a_number_has_its_unit_or_is_unknown() {
        for (text, want) in [
            ("36485396 J 1465234857334582 us", Some(36_485_396.0)),
            ("1000 J", Some(1000.0)),
            ("1000", Some(1000.0)),
            ("1000 W", None),
            ("1000 kJ", None),
            ("1 000", None),
            ("1000 J 5", None),
            ("1,000", None),
            ("-1", None),
            ("nan", None),
            ("", None),
        ] {
            assert_eq!(number(text, "J"), want, "{text}");
        }
    }

    #[test]
    fn root_only_files_are_not_taken_for_absent() {
        let tree = Tree::new();
        zone(&tree, "intel-rapl:0", "package-0", 5_000_000);
        let root = tree.root();
        let mode = |path: &str, mode: u32| {
            set_permissions(root.folder().join(path), Permissions::from_mode(mode)).unwrap();
        };
        mode("", 0o755);
        mode("sys/class/powercap/intel-rapl:0/energy_uj", 0o400);
        // The file system sees this thread alone as another user, as root may read all.
        let me = geteuid();
        setfsuid(if me.is_root() { Uid::from_raw(65534) } else { me });
        if !me.is_root() {
            mode("sys/class/powercap/intel-rapl:0/energy_uj", 0o000);
        }
        let found = find(&root);
        setfsuid(me);
        let Found::Forbidden(source) = found else { panic!("{found:?}") };
        assert_eq!(source.channels[0].file, "sys/class/powercap/intel-rapl:0/energy_uj");
        mode("sys/class/powercap/intel-rapl:0/energy_uj", 0o600);
        assert!(find(&root).readable().is_some());
    }

    #[test]
    fn a_file_that_stops_answering_gives_no_reading() {
        let tree = Tree::new();
        for zone in ["intel-rapl:0", "intel-rapl:1"] {
            crate::testing::zone(&tree, zone, "package-0", 1_500_000);
        }
        let source = find(&tree.root()).readable().unwrap();
        assert_eq!(source.read(&tree.root()).unwrap().values, [1.5, 1.5]);
        for bad in ["", "nan", "-1", "inf", "word"] {
            tree.file("sys/class/powercap/intel-rapl:1/energy_uj", bad);
            assert_eq!(source.read(&tree.root()), None, "{bad}");
        }
    }

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

    fn meter(tree: &Tree, number: usize, label: &str, microwatts: u64) {
        let folder = format!("sys/class/hwmon/hwmon{number}");
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
        tree.file("sys/class/hwmon/hwmon1/device/name", "power_meter\n");
        tree.file("sys/class/hwmon/hwmon1/device/power1_average", "412000000\n");
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
    fn other_sensors_are_skipped() {
        let tree = Tree::new();
        for chip in ["amdgpu", "nvme"] {
            tree.file("sys/class/hwmon/hwmon2/name", chip);
            tree.file("sys/class/hwmon/hwmon2/power1_average", "90000000\n");
            assert_eq!(find(&tree.root()), Found::Nothing);
        }
    }

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
