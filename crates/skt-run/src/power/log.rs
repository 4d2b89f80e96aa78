//! The readings of a meter of the site: lines with a time, and power or energy.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read as _};
use std::path::Path;

use skt_host::infile;
use skt_host::shown::shown;
use skt_host::units;

use super::columns::{Columns, Kind};
use super::curve::{Curve, LONGEST_BETWEEN, PowerPiece};
use super::fields::LineError;
use super::lines::{MeterLines, MeterReading};
use crate::record::energy::{EnergyReading, METER, Readout};

/// The time at either end of a test that need not be covered, in seconds: a report's times are no
/// more exact.
const TOLERANCE: f64 = 0.01;
/// More than any site takes.
const WATTS_MAX: f64 = 1e9;
/// The longest line of a meter, in bytes: a header may name all nodes.
pub(super) const LONGEST_LINE: u64 = 1 << 20;

/// How the lines of a meter are read.
#[derive(Debug, Clone, Default)]
pub struct LogSettings {
    /// Added to the times of the meter, to have those of the run, in seconds.
    pub offset_seconds: f64,
    /// The names of the columns to add; empty for the one that is known.
    pub columns: Vec<String>,
    /// Whether the powers of several sensors are added.
    pub adds_sensors: bool,
}

/// The readings of a meter, each sensor's in the order of time.
#[derive(Debug, Default)]
pub(super) struct PowerLog {
    lines: MeterLines,
    settings: LogSettings,
    sensors: BTreeMap<String, SensorLog>,
    /// Lines without a reading.
    missing: usize,
    /// The times of the first and the last reading, in seconds since 1970.
    pub span: Option<(f64, f64)>,
    /// The longest time between two readings, in seconds; `None` before the second reading.
    pub longest_between: Option<f64>,
}

/// The share of a test's energy that a step of a counter may be which stands still in between.
const STEP_MAX: f64 = 0.01;

/// The readings of a sensor, in the order of time.
#[derive(Debug, Default)]
struct SensorLog {
    curve: Curve,
    /// The times of the readings.
    times: Vec<f64>,
    /// The values of all columns, reading by reading.
    values: Vec<f64>,
    /// Whether a line since the last reading was wrong: power around it is unknown.
    is_cut: bool,
}

impl SensorLog {
    fn add(&mut self, seconds: f64, values: &[f64], kind: Kind) -> Result<(), String> {
        let is_cut = std::mem::take(&mut self.is_cut);
        if let Some(&before) = self.times.last() {
            let between = seconds - before;
            if between < 0.0 {
                return Err("its time is before that of the reading above".to_owned());
            }
            let last = &self.values[self.values.len() - values.len()..];
            let fallen = last.iter().zip(values).find(|(last, value)| value < last);
            if let (Kind::Counter, Some((last, value))) = (kind, fallen) {
                return Err(format!("a counter of energy has fallen from {last} to {value} J"));
            }
            match kind {
                // What was counted within this time is in the next reading.
                Kind::Counter if between == 0.0 => return Ok(()),
                Kind::Interval if between == 0.0 => {
                    return Err("its time is that of the reading above".to_owned());
                }
                _ => {}
            }
            let [last, sum] = [last, values].map(|values| values.iter().sum::<f64>());
            let watts = match kind {
                Kind::Power => [last, sum],
                Kind::Counter => [(sum - last) / between; 2],
                Kind::Interval => [sum / between; 2],
            };
            if between <= LONGEST_BETWEEN && !is_cut {
                self.curve.push(PowerPiece { from: before, to: seconds, watts });
            }
        }
        self.times.push(seconds);
        self.values.extend(values);
        Ok(())
    }

    fn columns(&self) -> usize {
        (self.values.len() / self.times.len().max(1)).max(1)
    }

    /// The first and the last value of a column, if it never falls, and rises during the whole time,
    /// as a counter. The mean of a power that rises to its level, or at last, is near an end of its
    /// range.
    fn counted(&self, column: usize) -> Option<[f64; 2]> {
        let values = self.values.iter().skip(column).step_by(self.columns()).copied();
        let readings: Vec<(f64, f64)> = self.times.iter().copied().zip(values).collect();
        let (&(from, first), &(to, last)) = (readings.first()?, readings.last()?);
        let (mut rises, mut area) = (0, 0.0);
        for pair in readings.windows(2) {
            let ((begin, before), (end, value)) = (pair[0], pair[1]);
            if value < before {
                return None;
            }
            rises += usize::from(value > before);
            area += 0.5 * (before - first + value - first) * (end - begin);
        }
        let mean = area / (to - from) / (last - first);
        (rises > 1 && (0.25..0.75).contains(&mean)).then_some([first, last])
    }

    /// Whether several sensors without names have written the readings: these are close together
    /// in groups, of which at least each 20th reading begins one, as nodes have up to 16
    /// accelerators. A meter that changes its pace has a few, and one with a clock of seconds has a
    /// time twice at times.
    fn are_sensors(&self) -> bool {
        /// The time between groups is so much longer than any within one.
        const APART: f64 = 10.0;
        let (mut others, mut longest_within) = (0, None);
        for pair in self.times.windows(2) {
            let between = pair[1] - pair[0];
            let is_other = longest_within.is_some_and(|longest| between > APART * longest);
            others += usize::from(is_other);
            let within = between.max(longest_within.unwrap_or(0.0));
            longest_within = (!is_other).then_some(within);
        }
        others > 1 && 20 * others >= self.times.len()
    }

    /// The energy of the `seconds` before `end`, as far as it is known; `None` if nothing is.
    fn over(
        &self,
        end: f64,
        seconds: f64,
        kind: Kind,
        covers: &str,
    ) -> Result<Option<EnergyReading>, String> {
        let Some(reading) = self.curve.reading(end, seconds, METER, covers) else {
            return Ok(None);
        };
        if kind == Kind::Counter {
            let sums = self.values.chunks(self.columns()).map(|values| values.iter().sum::<f64>());
            let mut steps = sums.clone().skip(1).zip(sums).map(|(sum, before)| sum - before);
            let largest = steps.clone().fold(0.0, f64::max);
            if largest >= STEP_MAX * reading.joules && steps.any(|step| step == 0.0) {
                return Err(format!(
                    "counts energy in steps of {largest:.0} J, too coarse for the {:.0} J of this \
                     test",
                    reading.joules
                ));
            }
        }
        let from = self.times.partition_point(|time| *time < end - seconds);
        let to = self.times.partition_point(|time| *time <= end);
        // With the readings around the test.
        let around = &self.times[from.saturating_sub(1)..(to + 1).min(self.times.len())];
        let longest = around.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max);
        let readout = Some(Readout { readings: to - from, longest_seconds: longest });
        Ok(Some(EnergyReading { readout, ..reading }))
    }
}

/// Whether this is turbostat's name for all sensors together.
fn is_total(sensor: &str) -> bool {
    !sensor.is_empty() && sensor.split(' ').all(|name| name == "-")
}

impl PowerLog {
    pub(crate) fn new(settings: LogSettings) -> Self {
        let mut lines = MeterLines::default();
        lines.chosen.clone_from(&settings.columns);
        Self { lines, settings, ..Self::default() }
    }

    /// Reads the next line.
    pub(crate) fn read(&mut self, line: &str) -> Result<(), LineError> {
        let read = match self.lines.read(line) {
            Ok(None) => Ok(()),
            Ok(Some(reading)) => self.add(reading).map_err(|what| LineError { column: 1, what }),
            Err(error) => Err(error),
        };
        if read.is_err() {
            self.sensors.values_mut().for_each(|sensor| sensor.is_cut = true);
        }
        read
    }

    fn add(&mut self, reading: MeterReading) -> Result<(), String> {
        let seconds = reading.seconds + self.settings.offset_seconds;
        let kind = self.kind();
        let Some(values) = reading.values else {
            self.missing += 1;
            if kind == Kind::Interval {
                // The next reading does not have the energy since the last one.
                self.sensors.values_mut().for_each(|sensor| sensor.is_cut = true);
            }
            return Ok(());
        };
        let is_power = (0.0..=WATTS_MAX).contains(&values.iter().sum());
        if kind == Kind::Power && !is_power || !seconds.is_finite() {
            return Err("this is no power in watts".to_owned());
        }
        let is_other = !self.sensors.is_empty() && !self.sensors.contains_key(&reading.sensor);
        if is_other && !self.settings.adds_sensors {
            return Err(format!(
                "`{}` is a second sensor; `report --power-sum` adds all sensors of a log",
                shown(&reading.sensor)
            ));
        }
        if is_other && (is_total(&reading.sensor) || self.sensors.keys().any(|it| is_total(it))) {
            return Err(
                "sensors named `-` are the sum of the others: leave these or those out of \
                        the log (turbostat --Summary)"
                    .to_owned(),
            );
        }
        let sensor = self.sensors.entry(reading.sensor).or_default();
        let before = sensor.times.last().copied();
        sensor.add(seconds, &values, kind)?;
        if let Some(before) = before {
            let between = seconds - before;
            self.longest_between = Some(self.longest_between.unwrap_or(0.0).max(between));
        }
        let (first, last) = self.span.unwrap_or((seconds, seconds));
        self.span = Some((first.min(seconds), last.max(seconds)));
        Ok(())
    }

    fn kind(&self) -> Kind {
        self.lines.columns.as_ref().map_or(Kind::Power, Columns::kind)
    }

    /// Which columns are read, as words after a comma; empty without a header.
    pub(super) fn columns(&self) -> String {
        let Some(columns) = self.lines.columns.as_ref() else { return String::new() };
        let names = columns.names();
        let which = match names.len() {
            0 => return String::new(),
            1 => "column",
            _ => "columns",
        };
        let only = if columns.has_accelerators_only { " (accelerators only)" } else { "" };
        format!(", {which} {}{only}", shown(&names.join(" + ")))
    }

    /// A warning if the readings leave out what the solver runs on.
    pub(super) fn lack(&self) -> Option<String> {
        let columns =
            self.lines.columns.as_ref().filter(|columns| columns.has_accelerators_only)?;
        Some(format!(
            "{} measures accelerators only, and the benchmark runs on processors: measure whole \
             nodes (BMC, PDU)",
            shown(&columns.names().join(" + "))
        ))
    }

    /// What is wrong if a column of something else grows as a counter of energy does.
    fn counter(&self) -> Option<String> {
        // A BMC prints its watts as such.
        let columns =
            self.lines.columns.as_ref().filter(|columns| columns.kind() != Kind::Counter)?;
        let counted = |it: &SensorLog| (0..it.columns()).find_map(|at| Some((at, it.counted(at)?)));
        let (index, [first, last]) = self.sensors.values().find_map(counted)?;
        Some(format!(
            "column {} only grows, from {first} to {last}, as a counter of energy does: name it \
             `total energy`, with its unit",
            columns.names().get(index).map_or("2".to_owned(), |name| format!("`{}`", shown(name)))
        ))
    }

    /// The energy of a test of `seconds` seconds that ended at `end`, as far as it is known; `None`
    /// if nothing is. `covers` describes what the meter covers.
    pub(crate) fn over(
        &self,
        end: f64,
        seconds: f64,
        covers: &str,
    ) -> Result<Option<EnergyReading>, String> {
        if self.sensors.values().any(SensorLog::are_sensors) {
            return Err(
                "has several readings for each time, as of several sensors without names: add a \
                 column with the name of the sensor (`index`, `sensor`), and --power-sum"
                    .to_owned(),
            );
        }
        if let Some(why) = self.counter() {
            return Err(why);
        }
        let of_sensor = |sensor: &SensorLog| sensor.over(end, seconds, self.kind(), covers);
        let readings: Vec<_> = self.sensors.values().map(of_sensor).collect::<Result<_, _>>()?;
        let readings: Option<Vec<EnergyReading>> = readings.into_iter().collect();
        Ok(readings.and_then(|readings| readings.into_iter().reduce(EnergyReading::plus)))
    }
}

/// A log in a file.
#[derive(Debug)]
pub struct LogFile {
    name: String,
    log: PowerLog,
}

impl LogFile {
    pub fn read(path: &Path, settings: LogSettings) -> Result<Self, String> {
        let name = path.display().to_string();
        let log = infile::open(path)
            .map_err(|why| format!("cannot read the power log '{name}': {why}"))?;
        let log = parse(BufReader::new(log), settings).map_err(|why| format!("'{name}', {why}"))?;
        if log.span.is_none() {
            return Err(format!(
                "'{name}' has no reading: a line is a time and a power, e.g. `1700000000.5,412.5 W`"
            ));
        }
        Ok(Self { name, log })
    }

    /// What the log measures, in words.
    fn covers(&self) -> String {
        let PowerLog { sensors, missing, .. } = &self.log;
        let mut covers = format!("what is measured in {}{}", self.name, self.log.columns());
        if sensors.len() > 1 {
            covers += &format!(", {} sensors", sensors.len());
        }
        if *missing > 0 {
            covers += &format!(", {missing} line(s) without a reading left out");
        }
        covers
    }

    /// A warning if the log leaves out what the solver runs on.
    pub fn lack(&self) -> Option<String> {
        Some(format!("'{}': {}", self.name, self.log.lack()?))
    }

    /// The energy of the test named `test`, of `seconds` seconds, that ended at `end`.
    pub fn over(&self, test: &str, end: f64, seconds: f64) -> Result<EnergyReading, String> {
        let reading = self.log.over(end, seconds, &self.covers());
        let reading = reading.map_err(|why| format!("'{}' {why}", self.name))?;
        let measured = reading.as_ref().map_or(0.0, |reading| reading.measured_seconds);
        let (from, to) = self.log.span.unwrap_or_default();
        reading.filter(|_| measured >= seconds - 2.0 * TOLERANCE).ok_or_else(|| {
            format!(
                "'{}' does not cover the timed part of {test}: {:.1} of {seconds:.1} s are missing \
                 (it has {from:.1} to {to:.1}, the test took {:.1} to {end:.1}, in seconds since \
                 1970): --power-clock-offset corrects the meter's clock",
                self.name,
                seconds - measured,
                end - seconds
            )
        })
    }
}

/// Reads a log line by line, of which none may be a reading. An error has the number of the line.
fn parse(mut text: impl BufRead, settings: LogSettings) -> Result<PowerLog, String> {
    let (mut log, mut bytes) = (PowerLog::new(settings), Vec::new());
    for number in 1.. {
        bytes.clear();
        let read = text.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut bytes);
        let read = read.map_err(|why| format!("line {number}: {why}"))?;
        if read as u64 == LONGEST_LINE {
            return Err(format!("line {number}: longer than {}", units::bytes(LONGEST_LINE)));
        }
        if read == 0 {
            break;
        }
        let line = String::from_utf8_lossy(&bytes);
        // Programs of Windows mark text as UTF-8 so.
        let line = line.strip_prefix('\u{feff}').filter(|_| number == 1).unwrap_or(&line);
        log.read(line).map_err(|why| format!("line {number}, {why}"))?;
    }
    Ok(log)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;

    fn file_with(text: &str, settings: LogSettings) -> Result<LogFile, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log.csv");
        fs::write(&path, text).unwrap();
        LogFile::read(&path, settings)
    }

    fn file(text: &str, offset_seconds: f64) -> Result<LogFile, String> {
        file_with(text, LogSettings { offset_seconds, ..LogSettings::default() })
    }

    /// Power rises by 10 W a second from 1000 W at the time 5000 of the meter, and ends with 0 W.
    fn log(seconds: usize) -> String {
        let watts = |second: usize| if second + 1 < seconds { 1000 + 10 * second } else { 0 };
        let line = |second: usize| format!("{}, {}\n", 5000 + second, watts(second));
        "# Acme meter 3\ntime,power\n".to_owned() + &(0..seconds).map(line).collect::<String>()
    }

    #[test]
    fn meter_with_another_clock_is_corrected() {
        // The meter is an hour and 0.25 s late.
        let log = file(&log(101), 3600.25).unwrap();
        let reading = log.over("test 1", 8650.5, 20.5).unwrap();
        // From 29.75 to 50.25 s of the log, at 1400 W in the middle.
        assert!((reading.joules - 20.5 * 1400.0).abs() < 1e-6, "{reading:?}");
        assert!((reading.mean_watts - 1400.0).abs() < 1e-6, "{reading:?}");
        assert_eq!((reading.watts.len(), reading.level), (20, None));
        let why = log.over("test 1", 8720.25, 50.0).unwrap_err();
        assert!(why.contains("log.csv' does not cover the timed part of test 1"), "{why}");
        assert!(why.contains("20.0 of 50.0 s are missing (it has 8600.2 to 8700.2"), "{why}");
        let nothing = log.over("test 1", 50.0, 10.0).unwrap_err();
        assert!(nothing.contains("10.0 of 10.0 s are missing"), "{nothing}");
    }

    #[test]
    fn a_gap_in_a_log_is_not_bridged() {
        let log = file("0;10\n60;10\n121;10\n130\t10\n", 0.0).unwrap();
        assert!(log.over("t", 60.0, 60.0).is_ok());
        let why = log.over("t", 130.0, 130.0).unwrap_err();
        assert!(why.contains("61.0 of 130.0 s are missing"), "{why}");
    }

    #[test]
    fn a_wrong_line_is_named() {
        for (text, why) in [
            ("time,watts\n1,2\noops,3\n", "log.csv', line 3, column 1: `oops` is no time"),
            ("5,2\n\n# it was set back\n4,3\n", "line 4, column 1: its time is before"),
            ("5,2\n6,2000000000\n", "line 2, column 1: this is no power"),
            ("time,watts\n", "log.csv' has no reading: a line is a time"),
            ("1,2\n1700000000,250,412,75\n", "line 2, column 16: 4 fields in place of 2"),
            ("1;1.412,5\n2;412,5\n", "line 1, column 3: `1.412,5` is no power"),
            ("", "log.csv' has no reading"),
        ] {
            let message = file(text, 0.0).unwrap_err();
            assert!(message.contains(why), "{text:?}: {message}");
        }
        assert!(file("\u{feff}time;power [kW]\r\n5;0.1\r\n", 0.0).is_ok());
        let missing = LogFile::read(Path::new("/nonexistent/log"), LogSettings::default());
        let missing = missing.unwrap_err();
        assert!(missing.starts_with("cannot read the power log '/nonexistent/log': "), "{missing}");
    }

    /// A log of five lines such as `line` below a header, a second apart: of 300 W, with a counter
    /// of energy, with the energy of each second.
    fn log_with(header: &str, line: &str) -> String {
        let of_second = |second: u32| {
            let joules = 1000 + 300 * second;
            line.replace("{t}", &second.to_string())
                .replace("{date}", &format!("1970-01-01T00:00:0{second}"))
                .replace("{j}", &joules.to_string())
                .replace("{wh}", &format!("{:.7}", f64::from(joules) / 3600.0))
                .replace("{step}", &(second / 2).to_string())
                + "\n"
        };
        header.to_owned() + &(0..5).map(of_second).collect::<String>()
    }

    #[test]
    fn logs_of_power_and_energy_are_read_right_or_refused() {
        let columns = |names: &[&str]| LogSettings {
            columns: names.iter().map(|&name| name.to_owned()).collect(),
            ..LogSettings::default()
        };
        let sum = LogSettings { adds_sensors: true, ..LogSettings::default() };
        let (none, pkg, both) = (columns(&[]), columns(&["Pkg_J"]), columns(&["Pkg_J", "RAM_J"]));
        let perf = "power/energy-pkg/";
        for (header, line, settings) in [
            // Power.
            ("", "{t} 300", &none),
            ("", "{t},0.3 kW", &none),
            ("", "{t}|300", &none),
            ("", "{date}Z,300 W", &none),
            ("", "300 W {t}000000 us", &none),
            ("time,power [W]\n", "{t},300", &none),
            ("time_ms;power [kW]\n", "{t}000;0,3", &none),
            ("time,power [MW]\n", "{t},0.0003", &none),
            ("timestamp, power.draw [W], power.limit [W]\n", "{t}, 300 W, 700 W", &none),
            ("timestamp,gpu,socket_power\n", "{t},0,100\n{t},1,200", &sum),
            ("Time_Of_Day_Seconds PkgWatt RAMWatt\n", "{t} 300 20", &none),
            ("time,power [W],total energy [J]\n", "{t},300,{j}", &none),
            ("# time,CurrentWatts\n", "{t},300", &none),
            ("GID|Total runtime [s]|Energy [J]|Power [W]\n", "1|{t}|300|300", &none),
            // Counters of energy.
            ("", "{j} J {t}000000 us", &none),
            ("time,energy_uj\n", "{t},{j}000000", &none),
            ("time\ttotal energy [J]\n", "{t}\t{j}", &none),
            ("time,energy_total_kJ\n", "{t},{j}.0", &columns(&["energy_total_kJ"])),
            ("time;energy [Wh]\n", "{t};{wh}", &none),
            ("time,energy counter\n", "{t},{j} J", &none),
            ("time,ConsumedEnergyRaw\n", "{t},{j}", &none),
            ("time,host,ConsumedJoules\n", "{t},a,{j}", &none),
            ("time,total energy [J],volts\n", "{t},{j},230", &none),
            // The energy since the reading before.
            ("Time_Of_Day_Seconds Pkg_J RAM_J\n", "{t} 300 20", &pkg),
            ("Time_Of_Day_Seconds Pkg_J RAM_J\n", "{t} 280 20", &both),
            ("time,interval energy [Wh]\n", "{t},0.083333333333", &none),
            (
                "# started on Mon Nov 30\n",
                &format!("{t},300,Joules,{perf},9,100.00,,", t = "{t}"),
                &none,
            ),
            ("", &format!("{t} 300.00 Joules {perf}", t = "{t}"), &none),
            ("", &format!("{t},S0,1,300,Joules,{perf},9,100.00,,", t = "{t}"), &none),
        ] {
            let text = log_with(header, line);
            let watts = four_seconds(&text, settings.clone()).map(|reading| reading.mean_watts);
            let is_kilo = header.contains("kJ");
            let watts = watts.map(|watts| if is_kilo { watts / 1000.0 } else { watts });
            assert!(watts.as_ref().is_ok_and(|it| (it - 300.0).abs() < 1e-3), "{text}: {watts:?}");
        }
        for (header, line, why) in [
            ("", "{t} {j}", "only grows, from 1000 to 2200"),
            ("", "{t},{j} J", "line 1, column 3: `1000 J` is energy"),
            ("", "{t},{j} kWh", "line 1, column 3: `1000 kWh` is energy"),
            ("", "{t},300 VA", "line 1, column 3: `300 VA` is no power"),
            ("time,power\n", "{t},{j}", "column `power` only grows"),
            ("time,energy [J]\n", "{t},{j}", "line 1, column 6: `energy [J]`: is this a counter"),
            ("time,energy\n", "{t},{j}", "line 1, column 6: `energy`: energy needs its unit"),
            ("time,total energy [kVAh]\n", "{t},{j}", "the unit is none of W"),
            ("time,total energy [J]\n", "{t},300 W", "line 2, column 3: `300 W` has another unit"),
            ("time,energy [kWh]\n", "{t},{step}", "too coarse"),
            ("time,energy [kWh]\n", "{t},7", "counts energy in steps of 0 J, too coarse"),
            ("time,energy_uj\n", "{t},300", "too coarse"),
            ("time,energy_uj\n{t},999\n", "{t},30", "`{t}` is no time"),
            ("time,energy_uj\n0,9999\n", "{t},{j}", "a counter of energy has fallen from 0.009999"),
            ("Start|End|ConsumedEnergyRaw\n", "0|4|1200", "without a column of times"),
            (
                "time,power [W],power [kW]\n",
                "{t},300,0.3",
                "line 1, column 16: `power [kW]`: a sec",
            ),
            ("time,Pkg_J,RAM_J\n", "{t},280,20", "line 1, column 12: `RAM_J`: a second column"),
            ("time,interval energy [J]\n", "{t},{j}", "only grows"),
            ("time,sensor,power [W]\n", "{t},a,1\n{t},b,2", "line 3, column 1: `b` is a second"),
        ] {
            let text = log_with(header, line);
            let error = four_seconds(&text, none.clone()).expect_err(&text);
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    /// A reading that is missing, or comes twice, loses no energy.
    #[test]
    fn energy_is_bridged_where_it_is_known() {
        let joules = |text: &str| {
            let reading = four_seconds(text, LogSettings::default());
            reading.map(|reading| reading.joules)
        };
        for lines in ["1,300\n1,350\n2,600\n", "1,300\n2,--\n"] {
            let counter = format!("time,total energy [J]\n0,0\n{lines}3,900\n4,1200\n");
            assert_eq!(joules(&counter), Ok(1200.0), "{counter}");
            let interval = format!("time,Pkg_J\n0,300\n{lines}3,300\n4,300\n");
            let why = joules(&interval).unwrap_err();
            let wants =
                ["line 4, column 1: its time is that of the reading above", "does not cover"];
            assert!(wants.iter().any(|want| why.contains(want)), "{interval}: {why}");
        }
    }

    #[test]
    fn readings_in_a_test_are_counted() {
        let log = file_with("0 300\n1 300\n3 300\n4 300\n9 300\n", LogSettings::default()).unwrap();
        let readout = |end, seconds| log.over("t", end, seconds).unwrap().readout.unwrap();
        let want = |readings, longest_seconds| Readout { readings, longest_seconds };
        assert_eq!(readout(4.0, 4.0), want(4, 5.0));
        assert_eq!(readout(3.5, 1.0), want(1, 2.0));
    }

    fn four_seconds(text: &str, settings: LogSettings) -> Result<EnergyReading, String> {
        file_with(text, settings)?.over("test 1", 4.0, 4.0)
    }

    #[test]
    fn lines_without_a_reading_are_counted_and_bridged() {
        let log = "time,power\n0,100\n1,100\n2,\n3,[N/A]\n4,100\n";
        let reading = four_seconds(log, LogSettings::default()).unwrap();
        assert_eq!((reading.joules, reading.measured_seconds), (400.0, 4.0));
        let covers = "log.csv, column power, 2 line(s) without a reading left out";
        assert!(reading.covers.ends_with(covers), "{reading:?}");
    }

    #[test]
    fn sensors_are_added_if_that_is_asked_for() {
        let line = |second: usize| format!("{second}.1, 0, 100 W\n{second}.102, 1, 50 W\n");
        let log = "timestamp, index, power.draw [W]\n0.0, 0, 100 W\n0.0, 1, 50 W\n".to_owned()
            + &(0..5).map(line).collect::<String>();
        let sum = LogSettings { adds_sensors: true, ..LogSettings::default() };
        let reading = four_seconds(&log, sum).unwrap();
        assert!((reading.joules - 600.0).abs() < 1e-9, "{reading:?}");
        assert_eq!((reading.mean_watts, reading.watts[0]), (150.0, Some(150.0)));
        assert!(reading.covers.ends_with("(accelerators only), 2 sensors"), "{reading:?}");
        let why = four_seconds(&log, LogSettings::default()).unwrap_err();
        assert!(why.contains("line 3, column 1: `1` is a second sensor"), "{why}");
    }

    #[test]
    fn a_sum_of_sensors_is_not_added_to_them() {
        let log = "Time_Of_Day_Seconds Package PkgWatt\n0 - 300\n0 0 150\n0 1 150\n";
        let sum = LogSettings { adds_sensors: true, ..LogSettings::default() };
        let why = four_seconds(log, sum.clone()).unwrap_err();
        assert!(why.contains("line 3, column 1: sensors named `-` are the sum of"), "{why}");
        let why = four_seconds(&log.replace("0 - 300\n", ""), sum).unwrap_err();
        assert!(why.contains("does not cover"), "{why}");
    }

    #[test]
    fn columns_are_added_if_they_are_named() {
        let log = "Time_Of_Day_Seconds\tPkgWatt\tRAMWatt\n0.0\t280.5\t20\n4.0\t280.5\t20\n";
        let of = |columns: &[&str]| {
            let columns = columns.iter().map(|&name| name.to_owned()).collect();
            four_seconds(log, LogSettings { columns, ..LogSettings::default() })
        };
        assert_eq!(of(&[]).unwrap().mean_watts, 280.5);
        assert_eq!(of(&["ramwatt"]).unwrap().mean_watts, 20.0);
        let both = of(&["PkgWatt", "RAMWatt"]).unwrap();
        assert_eq!(both.mean_watts, 300.5);
        assert!(both.covers.ends_with("log.csv, columns PkgWatt + RAMWatt"), "{both:?}");
        let why = of(&["PkgWatt", "GFXWatt"]).unwrap_err();
        assert!(why.contains("line 1, column 1: not one column has the name `GFXWatt`"), "{why}");
    }

    #[test]
    fn sensors_without_names_are_refused() {
        let times = |apart: f64, sensors: usize| {
            let of_second = |second: usize| {
                let line = |it: usize| format!("{} 100\n", second as f64 + apart * it as f64);
                (0..sensors).map(line).collect::<String>()
            };
            four_seconds(&(0..6).map(of_second).collect::<String>(), LogSettings::default())
        };
        for (apart, sensors) in [(0.0, 2), (0.002, 2), (0.0, 8), (0.004, 16)] {
            let why = times(apart, sensors).expect_err("it has several sensors");
            assert!(why.contains("log.csv' has several readings for each time"), "{why}");
        }
        assert_eq!(times(0.25, 4).unwrap().mean_watts, 100.0);
        // The clock of a meter has seconds, and its pace is a bit less than one, or changes.
        let seconds = |pace: fn(usize) -> usize| {
            let line = |it: usize| format!("{} 100\n", pace(it));
            four_seconds(&(0..50).map(line).collect::<String>(), LogSettings::default())
        };
        for pace in [|it| it * 9 / 10, |it| if it < 10 { it } else { 30 * it }] {
            assert_eq!(seconds(pace).unwrap().mean_watts, 100.0);
        }
    }

    #[test]
    fn a_column_that_only_grows_is_a_counter_of_energy() {
        let of = |text: &str, columns: &[&str]| {
            let columns = columns.iter().map(|&name| name.to_owned()).collect();
            four_seconds(text, LogSettings { columns, ..LogSettings::default() })
        };
        let log = |watts: &[f64]| -> String {
            let times = (0..watts.len()).map(|it| 4.0 * it as f64 / (watts.len() - 1) as f64);
            times.zip(watts).map(|(time, watts)| format!("{time} {watts}\n")).collect()
        };
        let joules = log(&[4_582_913.0, 4_583_215.0, 4_583_517.0]);
        let why = of(&joules, &[]).unwrap_err();
        let want = "log.csv' column 2 only grows, from 4582913 to 4583517, as a counter of energy";
        assert!(why.contains(want), "{why}");
        // In watt hours, from zero, and before a node computes.
        for watts in [
            &[7.0, 7.0, 7.0, 8.0, 8.0, 8.0, 9.0, 9.0, 9.0][..],
            &[0.0, 300.0, 600.0, 900.0],
            &[500.0, 600.0, 700.0, 800.0, 900.0, 1000.0, 1500.0, 2000.0],
        ] {
            assert!(of(&log(watts), &[]).is_err(), "{watts:?}");
        }
        for watts in [
            &[300.0; 9][..],
            &[300.0, 300.0, 301.0, 301.0],
            &[100.0, 250.0, 300.0, 300.0, 300.0],
            &[100.0, 200.0, 250.0, 275.0, 288.0, 294.0, 297.0, 299.0, 300.0],
            &[100.0, 100.0, 100.0, 100.0, 100.0, 200.0, 300.0],
            &[300.0, 301.0, 302.0, 303.0, 302.0],
        ] {
            assert!(of(&log(watts), &[]).is_ok(), "{watts:?}");
        }
        let line = |it: u32| format!("{it},{},{}\n", 300 + it % 2, 1_750_000 + it / 2);
        let of_pdu = "time,a,b\n".to_owned() + &(0..9).map(line).collect::<String>();
        assert!(of(&of_pdu, &["a"]).is_ok());
        assert!(of("time,energy meter [W]\n0,300\n4,300\n", &["energy meter"]).is_ok());
        let why = of(&of_pdu, &["a", "b"]).unwrap_err();
        assert!(why.contains("column `b` only grows, from 1750000 to 1750004"), "{why}");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn any_text_is_a_log_or_an_error(text in "(\\PC{0,8}|[0-9.,; e+-]{0,12}\n){0,12}") {
            if let Ok(log) = parse(text.as_bytes(), LogSettings::default()) {
                let _ = log.over(10.0, 5.0, "all");
            }
        }
    }
}
