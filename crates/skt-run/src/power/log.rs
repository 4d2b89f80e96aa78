//! The readings of a meter of the site: lines with a time and watts.

use std::fs;
use std::path::Path;

use super::curve::{Curve, LONGEST_BETWEEN, PowerPiece};
use super::meter_lines::{LineError, MeterLines};
use crate::record::energy::{EnergyReading, METER};

/// The time at either end of a test that need not be covered, in seconds: a report's times are no
/// more exact.
const TOLERANCE: f64 = 0.01;
/// More than any site takes.
const WATTS_MAX: f64 = 1e9;

/// The readings of a meter, in the order of time.
#[derive(Debug, Default)]
pub(super) struct PowerLog {
    lines: MeterLines,
    /// Added to the times of the meter, to have those of the run.
    offset_seconds: f64,
    curve: Curve,
    /// The times of the first and the last reading, in seconds since 1970.
    span: Option<(f64, f64)>,
    last_watts: f64,
    /// The longest time between two readings, in seconds; `None` before the second reading.
    pub longest_between: Option<f64>,
    /// Whether a line since the last reading was wrong: power around it is unknown.
    is_cut: bool,
}

impl PowerLog {
    /// Reads the next line.
    ///
    /// # Errors
    /// The line has none of the documented forms, is no power, or is older than the one before.
    pub fn read(&mut self, line: &str) -> Result<(), LineError> {
        let read = match self.lines.read(line) {
            Ok(None) => Ok(()),
            Ok(Some(reading)) => {
                self.add(reading).map_err(|what| LineError { column: 1, what: what.to_owned() })
            }
            Err(error) => Err(error),
        };
        self.is_cut |= read.is_err();
        read
    }

    fn add(&mut self, (seconds, watts): (f64, f64)) -> Result<(), &'static str> {
        let seconds = seconds + self.offset_seconds;
        if !(0.0..=WATTS_MAX).contains(&watts) || !seconds.is_finite() {
            return Err("this is no power in watts");
        }
        let (first, before) = self.span.unwrap_or((seconds, seconds));
        if seconds < before {
            return Err("its time is before that of the reading above");
        }
        let is_cut = std::mem::take(&mut self.is_cut);
        if self.span.is_some() {
            let between = seconds - before;
            self.longest_between = Some(self.longest_between.unwrap_or(0.0).max(between));
            if between <= LONGEST_BETWEEN && !is_cut {
                let watts = [self.last_watts, watts];
                self.curve.push(PowerPiece { from: before, to: seconds, watts });
            }
        }
        (self.span, self.last_watts) = (Some((first, seconds)), watts);
        Ok(())
    }

    /// The times of the first and the last reading, in seconds since 1970.
    pub fn span(&self) -> Option<(f64, f64)> {
        self.span
    }

    /// The energy of a test of `seconds` seconds that ended at `end`, as far as it is known; `None`
    /// if nothing is. `covers` describes what the meter covers.
    pub fn over(&self, end: f64, seconds: f64, covers: &str) -> Option<EnergyReading> {
        self.curve.reading(end, seconds, METER, covers)
    }
}

/// A log in a file.
#[derive(Debug)]
pub struct LogFile {
    name: String,
    log: PowerLog,
}

impl LogFile {
    /// Reads a log whose clock is `offset_seconds` late compared with that of the run.
    ///
    /// # Errors
    /// Why not: the file cannot be read, a line has none of the documented forms, or there is no
    /// reading.
    pub fn read(path: &Path, offset_seconds: f64) -> Result<Self, String> {
        let name = path.display().to_string();
        let text = fs::read_to_string(path)
            .map_err(|why| format!("cannot read the power log '{name}': {why}"))?;
        let log = parse(&text, offset_seconds).map_err(|why| format!("'{name}', {why}"))?;
        if log.span.is_none() {
            return Err(format!(
                "'{name}' has no reading: a line is a time in seconds since 1970 and a power, e.g. \
                 `1700000000.5,412.5`"
            ));
        }
        Ok(Self { name, log })
    }

    /// The energy of the test named `test`, of `seconds` seconds, that ended at `end`.
    ///
    /// # Errors
    /// Which part of it the log does not have.
    pub fn over(&self, test: &str, end: f64, seconds: f64) -> Result<EnergyReading, String> {
        let reading = self.log.over(end, seconds, &format!("what is measured in {}", self.name));
        let measured = reading.as_ref().map_or(0.0, |reading| reading.measured_seconds);
        let (from, to) = self.log.span.unwrap_or_default();
        reading.filter(|_| measured >= seconds - 2.0 * TOLERANCE).ok_or_else(|| {
            format!(
                "'{}' does not cover the timed part of {test}: {:.1} of {seconds:.1} s are missing \
                 (it has {from:.1} to {to:.1}, the test took {:.1} to {end:.1}, in seconds since \
                 1970); is the meter's clock off? --power-clock-offset",
                self.name,
                seconds - measured,
                end - seconds
            )
        })
    }
}

/// Reads the text of a log, which may have no reading. An error has the number of the line.
fn parse(text: &str, offset_seconds: f64) -> Result<PowerLog, String> {
    // Programs of Windows mark text as UTF-8 so.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut log = PowerLog { offset_seconds, ..PowerLog::default() };
    for (number, line) in (1..).zip(text.lines()) {
        log.read(line).map_err(|why| format!("line {number}, {why}"))?;
    }
    Ok(log)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn file(text: &str, offset: f64) -> Result<LogFile, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log.csv");
        fs::write(&path, text).unwrap();
        LogFile::read(&path, offset)
    }

    /// Power rises by 10 W a second from 1000 W at the time 5000 of the meter.
    fn log(seconds: usize) -> String {
        let line = |second: usize| format!("{}, {}\n", 5000 + second, 1000 + 10 * second);
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
            ("1,2\n1700000000,250;412,75\n", "line 2, column 20: 3 fields in place of 2"),
            ("1;412,5\n2;412,5\n", "line 1, column 3: `412,5` is no power"),
            ("", "log.csv' has no reading"),
        ] {
            let message = file(text, 0.0).unwrap_err();
            assert!(message.contains(why), "{text:?}: {message}");
        }
        assert!(file("\u{feff}time;power [kW]\r\n5;0.1\r\n", 0.0).is_ok());
        let missing = LogFile::read(Path::new("/nonexistent/log"), 0.0).unwrap_err();
        assert!(missing.starts_with("cannot read the power log '/nonexistent/log': "), "{missing}");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn any_text_is_a_log_or_an_error(text in "(\\PC{0,8}|[0-9.,; e+-]{0,12}\n){0,12}") {
            if let Ok(log) = parse(&text, 1.5) {
                let _ = log.over(10.0, 5.0, "all");
            }
        }
    }
}
