//! The energy of a test: who measured it, and what that covers.

use serde::{Deserialize, Serialize};

/// The shortest test whose energy is measured, in seconds: counters are read once a second.
pub const SECONDS_MIN: f64 = 1.0;
/// The largest number of parts of a test whose power is reported: enough for a line across a page.
pub(crate) const PARTS_MAX: usize = 100;
/// The name of what `--power-command` and `--power-csv` read.
pub const METER: &str = "meter";
/// The share of the time that must be measured before Gflop/s per watt are derived.
pub(crate) const WHOLE: f64 = 0.99;

/// The mean power of a node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeWatts {
    /// The node's name.
    pub host: String,
    /// The node's mean power, in watts.
    pub watts: f64,
}

/// The power of the nodes of a test.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Nodes {
    /// Nodes of the test.
    pub all: usize,
    /// Nodes whose power was measured.
    pub measured: usize,
    /// The node with the least power.
    pub least: NodeWatts,
    /// The median over the nodes, in watts.
    pub median_watts: f64,
    /// The node with the most power.
    pub largest: NodeWatts,
}

/// How often a meter was read in a test.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Readout {
    /// Readings in the timed part, of the sensor with the fewest.
    pub readings: usize,
    /// The longest time between two readings, in seconds.
    pub longest_seconds: f64,
}

/// The energy of a test by one source.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EnergyReading {
    /// The source: [`METER`], or the name of the counters of the nodes.
    pub source: String,
    /// What the source covers, in words.
    pub covers: String,
    /// The level of the measurement in the methodology of the Green500: 1, 2 or 3 if the user
    /// claims one. Counters of nodes have none.
    pub level: Option<u8>,
    /// Joules of the measured part of the timed part.
    pub joules: f64,
    /// Mean watts of the measured part.
    pub mean_watts: f64,
    /// Seconds of the timed part that were measured; the least of any node.
    pub measured_seconds: f64,
    /// The rate over the power; `None` if not all of the time or not all nodes were measured.
    pub gflops_per_watt: Option<f64>,
    /// The nodes, if the source measures each.
    pub nodes: Option<Nodes>,
    /// How often a meter was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readout: Option<Readout>,
    /// Mean watts of equal parts of the timed part, at most `PARTS_MAX`; `None` for a part of
    /// which they are not known.
    pub watts: Vec<Option<f64>>,
}

impl EnergyReading {
    /// The reading of `source` that measured `joules` in `seconds`. `covers` describes what it
    /// covers.
    pub fn new(source: &str, covers: &str, joules: f64, seconds: f64) -> Self {
        Self {
            source: source.to_owned(),
            covers: covers.to_owned(),
            joules,
            mean_watts: joules / seconds,
            measured_seconds: seconds,
            ..Self::default()
        }
    }

    /// The sum of what two meters measured in the same time, each a part of the whole.
    pub(crate) fn plus(self, other: Self) -> Self {
        let watts = self.watts.iter().zip(&other.watts);
        let readout = self.readout.zip(other.readout).map(|(one, other)| Readout {
            readings: one.readings.min(other.readings),
            longest_seconds: one.longest_seconds.max(other.longest_seconds),
        });
        Self {
            readout,
            joules: self.joules + other.joules,
            mean_watts: self.mean_watts + other.mean_watts,
            measured_seconds: self.measured_seconds.min(other.measured_seconds),
            watts: watts.map(|(one, other)| one.zip(*other).map(|(a, b)| a + b)).collect(),
            ..self
        }
    }

    /// Derives the Gflop/s per watt of a test with this rate and time, and rounds the watts of its
    /// parts to the digits that a counter has; more would only fill reports.
    pub fn rated(mut self, gflops: f64, time_seconds: f64) -> Self {
        let has_all = self.nodes.as_ref().is_none_or(|nodes| nodes.measured == nodes.all);
        let is_whole = has_all && self.measured_seconds >= WHOLE * time_seconds;
        let rate = gflops / self.mean_watts;
        self.gflops_per_watt = Some(rate).filter(|rate| is_whole && rate.is_finite());
        self.watts.iter_mut().flatten().for_each(|watts| *watts = (10.0 * *watts).round() / 10.0);
        self
    }

    /// Whether a meter of the site has measured, and not the counters of the nodes.
    pub fn is_of_meter(&self) -> bool {
        self.source == METER
    }
}

/// The number of parts of a test of this many seconds whose power is reported.
pub(crate) fn parts(seconds: f64) -> usize {
    (seconds as usize).clamp(1, PARTS_MAX)
}

/// The watts of a reading at the middle of the parts of a test of `seconds`, without the parts of
/// which they are not known.
pub fn over_time(reading: &EnergyReading, seconds: f64) -> Vec<(f64, f64)> {
    let width = seconds / reading.watts.len().max(1) as f64;
    let point =
        |(index, watts): (usize, &Option<f64>)| Some(((index as f64 + 0.5) * width, (*watts)?));
    reading.watts.iter().enumerate().filter_map(point).collect()
}

/// What the counters of a node measured in the timed part of a test.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeEnergy {
    /// The node's name.
    pub host: String,
    /// The id of the start of its machine: containers of one machine have different names, and the
    /// same counters. Empty if the system does not report it.
    pub boot_id: String,
    /// What its counters measured, if they can be read.
    pub reading: Option<EnergyReading>,
}

/// What a rank has measured of a test.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RankEnergy {
    /// On the first rank of each node: what it knows of its node.
    pub node: Option<NodeEnergy>,
    /// On rank 0: the energy by the meter of the site.
    pub meter: Option<EnergyReading>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading() -> EnergyReading {
        EnergyReading::new("RAPL", "1 processor package(s)", 5000.0, 50.0)
    }

    #[test]
    fn partial_power_gives_no_rate_per_watt() {
        assert_eq!(reading().rated(400.0, 50.0).gflops_per_watt, Some(4.0));
        assert_eq!(reading().rated(400.0, 51.0).gflops_per_watt, None);
        let nodes = |measured| Some(Nodes { all: 2, measured, ..Nodes::default() });
        let of =
            |measured| EnergyReading { nodes: nodes(measured), ..reading() }.rated(400.0, 50.0);
        assert_eq!((of(1).gflops_per_watt, of(2).gflops_per_watt), (None, Some(4.0)));
        let idle = EnergyReading { mean_watts: 0.0, ..reading() };
        assert_eq!(idle.rated(400.0, 50.0).gflops_per_watt, None);
    }

    #[test]
    fn power_is_that_of_the_middle_of_the_parts() {
        let watts = vec![Some(1.04), None, Some(3.06), Some(4.0)];
        let points = over_time(&EnergyReading { watts, ..reading() }.rated(1.0, 8.0), 8.0);
        assert_eq!(points, [(1.0, 1.0), (5.0, 3.1), (7.0, 4.0)]);
        assert_eq!(over_time(&EnergyReading::default(), 8.0), []);
        assert_eq!((parts(0.5), parts(7.9), parts(1e9)), (1, 7, PARTS_MAX));
    }
}
