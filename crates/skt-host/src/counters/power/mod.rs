//! Counters of a node's energy, and sensors of its power: which there are, what they cover, and
//! what they read now.
//!
//! A node has one [`EnergySource`], so that nothing is counted twice: of the kinds that answer, the
//! one that covers most. A sensor of which it is not known what it covers is left out.

mod cray;
mod hwmon;
pub(crate) mod rapl;

use std::io::ErrorKind;

use serde::{Deserialize, Serialize};

use super::Root;

/// The kinds of sources, those that cover more first.
const KINDS: [fn(&Root) -> Option<EnergySource>; 4] =
    [cray::source, hwmon::find_node, rapl::source, hwmon::find_processors];

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
}
