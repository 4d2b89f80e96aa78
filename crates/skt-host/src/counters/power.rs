//! Counters of a node's energy, and sensors of its power: which there are, what they cover, and
//! what they read now.
//!
//! A node has one [`EnergySource`], so that nothing is counted twice: of the kinds that answer, the
//! one that covers most. A sensor of which it is not known what it covers is left out.

use std::io::ErrorKind;

use serde::{Deserialize, Serialize};

use super::Root;

/// Sources, those that cover more first: the files of a kind that have these labels, in all of which
/// there must be one, or the only file of the kind. `{0}` and `{1}` are the numbers of files.
type Row = (&'static str, Kind, &'static [&'static str], &'static str);

/// The files of a kind, each with its label.
type Kind = fn(&Root) -> Vec<(String, Channel)>;

/// A label of Nvidia Grace contains those of the rows after it. One of several meters without such
/// a label may contain the others. A package contains its zones `core` and `uncore`; `psys` contains
/// the packages and is wired on few boards.
const ROWS: &[Row] = &[
    ("Cray pm_counters", cray, &[], "the node, without what nodes share"),
    (
        ACPI,
        acpi,
        &["Module Power"],
        "Grace modules: processor, its memory, and GPU if there is one",
    ),
    (ACPI, acpi, &["Grace Power"], "Grace processors and their memory"),
    (ACPI, acpi, &["CPU Power", "SysIO Power"], "Grace cores and input/output"),
    (ACPI, acpi, &[], "the node, as its board measures it"),
    ("RAPL", rapl, &["package", "dram"], "{0} processor package(s) and {1} zone(s) of memory"),
    ("RAPL", rapl, &["package"], "{0} processor package(s)"),
    ("RAPL", rapl, &["psys"], "the platform, as its firmware counts it"),
];
const ACPI: &str = "ACPI power meter";

/// More watts than a node with accelerators takes.
const NODE_WATTS: f64 = 100e3;
/// More watts than a package, its memory or a platform takes.
const PACKAGE_WATTS: f64 = 2e3;

fn source(root: &Root, (name, files, labels, covers): &Row) -> Option<EnergySource> {
    let files = files(root);
    let (mut channels, mut covers) = (Vec::new(), (*covers).to_owned());
    for (at, label) in labels.iter().enumerate() {
        let labelled = files.iter().filter(|(of, _)| of.starts_with(label));
        let labelled: Vec<Channel> = labelled.map(|(_, channel)| channel.clone()).collect();
        if labelled.is_empty() {
            return None;
        }
        covers = covers.replace(&format!("{{{at}}}"), &labelled.len().to_string());
        channels.extend(labelled);
    }
    if let ([(_, only)], []) = (&files[..], labels) {
        channels.push(only.clone());
    }
    let (folder, _) = channels.first()?.file.rsplit_once('/')?;
    let is_there = root.names(folder).iter().any(|name| name == "freshness");
    let freshness = is_there.then(|| format!("{folder}/freshness"));
    Some(EnergySource { name: (*name).to_owned(), covers, channels, freshness })
}

/// The energy of a node of Cray, in joules, updated ten times a second.
fn cray(root: &Root) -> Vec<(String, Channel)> {
    const FILE: &str = "sys/cray/pm_counters/energy";
    let quantity = Quantity::Energy { range_joules: None };
    let channel = Channel { file: FILE.to_owned(), quantity, unit: 1.0, most_watts: NODE_WATTS };
    root.is_there(FILE).then(|| (String::new(), channel)).into_iter().collect()
}

/// Power meters of ACPI. Of other sensors in hwmon it is not known which part of the node they
/// cover.
fn acpi(root: &Root) -> Vec<(String, Channel)> {
    const FOLDER: &str = "sys/class/hwmon";
    // Old drivers have their files, the name included, in the folder of the device: in most kernels
    // the power meter has registered without a name.
    let is_meter = |folder: &String| {
        ["name", "device/name"]
            .iter()
            .any(|file| root.text(&format!("{folder}/{file}")).as_deref() == Some("power_meter"))
    };
    let folders = root.names(FOLDER).into_iter().map(|name| format!("{FOLDER}/{name}"));
    let meter = |folder: String| {
        let label = root.text(&format!("{folder}/power1_oem_info")).unwrap_or_default();
        let (file, quantity) = (format!("{folder}/power1_average"), Quantity::Power);
        (label, Channel { file, quantity, unit: 1e-6, most_watts: NODE_WATTS })
    };
    let places = folders.filter(is_meter).flat_map(|it| [format!("{it}/device"), it]);
    places.map(meter).filter(|(_, channel)| root.is_there(&channel.file)).collect()
}

/// The counters of processors (RAPL), of Intel and AMD, as the kernel shows them in powercap. The
/// zones of `intel-rapl-mmio` are the packages once more.
fn rapl(root: &Root) -> Vec<(String, Channel)> {
    const FOLDER: &str = "sys/class/powercap";
    const JOULES: f64 = 1e-6;
    let zones = root.names(FOLDER).into_iter().filter(|zone| zone.starts_with("intel-rapl:"));
    let channel = |zone: String| {
        let range = root.number(&format!("{FOLDER}/{zone}/max_energy_range_uj"));
        let range_joules = range.map(|range| JOULES * range as f64);
        let (file, quantity) =
            (format!("{FOLDER}/{zone}/energy_uj"), Quantity::Energy { range_joules });
        let channel = Channel { file, quantity, unit: JOULES, most_watts: PACKAGE_WATTS };
        Some((root.text(&format!("{FOLDER}/{zone}/name"))?, channel))
    };
    zones.filter_map(channel).collect()
}

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

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Channel {
    pub file: String,
    pub quantity: Quantity,
    /// Joules or watts of one unit of the file.
    pub unit: f64,
    /// More watts than the covered part ever takes: above that, a counter was reset.
    pub most_watts: f64,
}

/// All that counts the energy of a node, or of a part of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EnergySource {
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

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub enum Found {
    /// Neither counters nor sensors that are known here, or none that answers.
    #[default]
    Nothing,
    /// Counters that this user may not read.
    Forbidden(EnergySource),
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
    for source in ROWS.iter().filter_map(|row| source(root, row)) {
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

    fn meter(tree: &Tree, number: usize, label: &str, microwatts: u64) {
        let folder = format!("sys/class/hwmon/hwmon{number}");
        tree.file(&format!("{folder}/name"), "power_meter\n");
        tree.file(&format!("{folder}/device/power1_average"), &format!("{microwatts}\n"));
        if !label.is_empty() {
            tree.file(&format!("{folder}/device/power1_oem_info"), label);
        }
    }

    /// The first `kinds` meters of each of two Grace processors.
    fn grace(tree: &Tree, kinds: usize) {
        let meters = [("CPU", 150), ("SysIO", 20), ("Grace", 200), ("Module", 600)];
        for socket in 0..2 {
            for (kind, (name, watts)) in meters.into_iter().enumerate().take(kinds) {
                let label = format!("{name} Power Socket {socket}\n");
                meter(tree, 4 * socket + kind, &label, watts * 1_000_000);
            }
        }
    }

    fn package(tree: &Tree) {
        zone(tree, "intel-rapl:0", "package-0", 5_000_000);
    }

    fn cray(tree: &Tree) {
        tree.file("sys/cray/pm_counters/energy", "36485396 J 1465234857334582 us\n");
        tree.file("sys/cray/pm_counters/freshness", "1234\n");
        // A part of the node, which its energy contains.
        tree.file("sys/cray/pm_counters/accel0_energy", "9000 J\n");
    }

    /// The files of a machine, and the source that is found with its readings and what it covers.
    type Machine = (fn(&Tree), Option<(&'static str, &'static [f64], &'static str)>);

    #[test]
    fn the_widest_source_counts_alone_and_nothing_twice() {
        let one = "1 processor package(s)";
        let node = "the node, as its board measures it";
        let machines: &[Machine] = &[
            (|_| (), None),
            (package, Some(("RAPL", &[5.0], one))),
            // 0 W is no sensor.
            (|it| (package(it), meter(it, 2, "", 0)).0, Some(("RAPL", &[5.0], one))),
            (|it| (package(it), meter(it, 2, "", 310_000_000)).0, Some((ACPI, &[310.0], node))),
            // One of two may contain the other.
            (|it| (meter(it, 3, "", 412_000_000), meter(it, 4, "", 1_000_000)).0, None),
            (
                |it| {
                    it.file("sys/class/hwmon/hwmon1/device/name", "power_meter\n");
                    it.file("sys/class/hwmon/hwmon1/device/power1_average", "412000000\n");
                },
                Some((ACPI, &[412.0], node)),
            ),
            (
                |it| (package(it), meter(it, 2, "", 310_000_000), cray(it)).0,
                Some(("Cray pm_counters", &[36_485_396.0], "the node, without what nodes share")),
            ),
            (
                |it| grace(it, 2),
                Some((ACPI, &[150.0, 150.0, 20.0, 20.0], "Grace cores and input/output")),
            ),
            (|it| grace(it, 3), Some((ACPI, &[200.0, 200.0], "Grace processors and their memory"))),
            (
                |it| grace(it, 4),
                Some((
                    ACPI,
                    &[600.0, 600.0],
                    "Grace modules: processor, its memory, and GPU if there is one",
                )),
            ),
            // Sensors of other chips.
            (
                |it| {
                    it.file("sys/class/hwmon/hwmon2/name", "amdgpu");
                    it.file("sys/class/hwmon/hwmon2/power1_average", "90000000\n");
                },
                None,
            ),
            (
                |it| {
                    for (package, name) in [(0, "package-0"), (1, "package-1")] {
                        zone(it, &format!("intel-rapl:{package}"), name, 10_000_000);
                        zone(it, &format!("intel-rapl:{package}:0"), "core", 7_000_000);
                        zone(it, &format!("intel-rapl:{package}:1"), "uncore", 1_000_000);
                        zone(it, &format!("intel-rapl:{package}:2"), "dram", 2_000_000);
                        zone(it, &format!("intel-rapl-mmio:{package}"), name, 10_000_000);
                    }
                    zone(it, "intel-rapl:2", "psys", 99_000_000);
                    it.file("sys/class/powercap/intel-rapl/enabled", "1");
                },
                Some((
                    "RAPL",
                    &[10.0, 10.0, 2.0, 2.0],
                    "2 processor package(s) and 2 zone(s) of memory",
                )),
            ),
            (
                |it| zone(it, "intel-rapl:0", "psys", 99_000_000),
                Some(("RAPL", &[99.0], "the platform, as its firmware counts it")),
            ),
        ];
        for (number, (files, want)) in machines.iter().enumerate() {
            let tree = Tree::new();
            files(&tree);
            let found = find(&tree.root()).readable().map(|source| {
                let values = source.read(&tree.root()).unwrap().values;
                (source.name, values, source.covers)
            });
            let want = want.map(|(name, values, covers)| {
                (name.to_owned(), values.to_vec(), covers.to_owned())
            });
            assert_eq!(found, want, "machine {number}");
        }
    }

    #[test]
    fn the_range_and_the_freshness_of_a_counter_are_read() {
        let tree = Tree::new();
        package(&tree);
        let source = find(&tree.root()).readable().unwrap();
        let range = Quantity::Energy { range_joules: Some(262_143.328_85) };
        assert_eq!((source.channels[0].quantity, &source.freshness), (range, &None));
        cray(&tree);
        let reading = find(&tree.root()).readable().unwrap().read(&tree.root()).unwrap();
        assert_eq!(reading.freshness.as_deref(), Some("1234"));
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
}
