//! The readings of a meter of the site: lines with a time and watts.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::energy::{self, EnergyReading, METER};
use super::meter_lines::{LineError, MeterLines};
use skt_host::power::{Curve, PowerPiece};

/// The longest time between two readings that power is interpolated over, in seconds.
pub const LONGEST_BETWEEN: f64 = 60.0;
/// The time at either end of a test that need not be covered, in seconds: a report's times are no
/// more exact.
const TOLERANCE: f64 = 0.01;
/// More than any site takes.
const WATTS_MAX: f64 = 1e9;

/// Why a meter's log cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The file cannot be read.
    #[error("cannot read the power log '{}': {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A line is wrong.
    #[error("'{}', line {line}, {error}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        error: LineError,
    },
    /// The file has no reading.
    #[error(
        "'{}' has no reading: a line is a time in seconds since 1970 and a power, e.g. \
         `1700000000.5,412.5`", path.display()
    )]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// The log does not cover a test.
    #[error(
        "'{}' does not cover the timed part of {test}: {missing:.1} of {seconds:.1} s are missing \
         (it has {from:.1} to {to:.1}, the test took {begin:.1} to {end:.1}, in seconds since \
         1970); is the meter's clock off? --power-clock-offset",
        path.display()
    )]
    Uncovered {
        /// The file.
        path: PathBuf,
        /// The test.
        test: String,
        /// Seconds of the test without power.
        missing: f64,
        /// Seconds of the test.
        seconds: f64,
        /// The first reading.
        from: f64,
        /// The last reading.
        to: f64,
        /// The begin of the test.
        begin: f64,
        /// The end of the test.
        end: f64,
    },
}

/// The readings of a meter, in the order of time.
#[derive(Debug, Clone, Default)]
pub struct PowerLog {
    curve: Curve,
    last: Option<(f64, f64)>,
    first_seconds: f64,
    longest_between: Option<f64>,
    is_cut: bool,
}

impl PowerLog {
    /// Adds a reading: seconds since 1970, and watts.
    ///
    /// # Errors
    /// What is wrong, if the reading is none or is older than the one before.
    pub fn add(&mut self, (seconds, watts): (f64, f64)) -> Result<(), &'static str> {
        if !(0.0..=WATTS_MAX).contains(&watts) || !seconds.is_finite() {
            return Err("this is no power in watts");
        }
        let Some((before, earlier)) = self.last else {
            (self.first_seconds, self.last) = (seconds, Some((seconds, watts)));
            return Ok(());
        };
        if seconds < before {
            return Err("its time is before that of the reading above");
        }
        let between = seconds - before;
        let known = self.longest_between.into_iter();
        self.longest_between = known.chain([between]).reduce(f64::max);
        let is_cut = std::mem::take(&mut self.is_cut);
        if between <= LONGEST_BETWEEN && !is_cut {
            self.curve.push(PowerPiece { from: before, to: seconds, watts: [earlier, watts] });
        }
        self.last = Some((seconds, watts));
        Ok(())
    }

    /// Notes that a reading is missing here: power between the readings around it is unknown.
    pub fn cut(&mut self) {
        self.is_cut = true;
    }

    /// The times of the first and the last reading, in seconds since 1970.
    pub fn span(&self) -> Option<(f64, f64)> {
        self.last.map(|(seconds, _)| (self.first_seconds, seconds))
    }

    /// The longest time between two readings, in seconds; `None` before the second reading.
    pub fn longest_between(&self) -> Option<f64> {
        self.longest_between
    }

    /// The energy of a test of `seconds` seconds that ended at `end`, as far as it is known; `None`
    /// if nothing is. `covers` describes what the meter covers.
    pub fn over(&self, end: f64, seconds: f64, covers: &str) -> Option<EnergyReading> {
        let begin = end - seconds;
        let energy = self.curve.over(begin, end);
        let watts = self.curve.watts(begin, end, energy::parts(seconds));
        (energy.seconds > 0.0).then(|| EnergyReading {
            source: METER.to_owned(),
            covers: covers.to_owned(),
            joules: energy.joules,
            mean_watts: energy.joules / energy.seconds,
            measured_seconds: energy.seconds.min(seconds),
            watts: energy::tidy(&watts),
            ..EnergyReading::default()
        })
    }
}

/// A log in a file.
#[derive(Debug, Clone)]
pub struct LogFile {
    path: PathBuf,
    log: PowerLog,
}

impl LogFile {
    /// Reads a log whose clock is `offset` seconds late compared with that of the run.
    ///
    /// # Errors
    /// The file cannot be read, a line has none of the documented forms, or there is no reading.
    pub fn read(path: &Path, offset: f64) -> Result<Self, LogError> {
        let text = fs::read_to_string(path)
            .map_err(|source| LogError::Io { path: path.to_owned(), source })?;
        let log = parse(&text, offset).map_err(|(line, error)| LogError::Line {
            path: path.to_owned(),
            line,
            error,
        })?;
        if log.span().is_none() {
            return Err(LogError::Empty { path: path.to_owned() });
        }
        Ok(Self { path: path.to_owned(), log })
    }

    /// The energy of the test named `test`, of `seconds` seconds, that ended at `end`.
    ///
    /// # Errors
    /// [`LogError::Uncovered`] if the log does not have all of it.
    pub fn over(&self, test: &str, end: f64, seconds: f64) -> Result<EnergyReading, LogError> {
        let covers = format!("what is measured in {}", self.path.display());
        let reading = self.log.over(end, seconds, &covers);
        let measured = reading.as_ref().map_or(0.0, |reading| reading.measured_seconds);
        let is_whole = measured >= seconds - 2.0 * TOLERANCE;
        let (from, to) = self.log.span().unwrap_or_default();
        reading.filter(|_| is_whole).ok_or_else(|| LogError::Uncovered {
            path: self.path.clone(),
            test: test.to_owned(),
            missing: seconds - measured,
            seconds,
            from,
            to,
            begin: end - seconds,
            end,
        })
    }
}

/// Reads the text of a log, which may have no reading, or returns which line is wrong.
///
/// # Errors
/// The number of the line, from 1, and what is wrong with it.
pub fn parse(text: &str, offset: f64) -> Result<PowerLog, (usize, LineError)> {
    // Programs of Windows mark text as UTF-8 so.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let (mut log, mut lines) = (PowerLog::default(), MeterLines::default());
    for (number, line) in (1..).zip(text.lines()) {
        let reading = lines.read(line).map_err(|error| (number, error))?;
        if let Some((seconds, watts)) = reading {
            log.add((seconds + offset, watts))
                .map_err(|what| (number, LineError { column: 1, what: what.to_owned() }))?;
        }
    }
    Ok(log)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn file(text: &str, offset: f64) -> Result<LogFile, LogError> {
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
        let why = log.over("test 1", 8720.25, 50.0).unwrap_err().to_string();
        assert!(why.contains("log.csv' does not cover the timed part of test 1"), "{why}");
        assert!(why.contains("20.0 of 50.0 s are missing (it has 8600.2 to 8700.2"), "{why}");
        let nothing = log.over("test 1", 50.0, 10.0).unwrap_err().to_string();
        assert!(nothing.contains("10.0 of 10.0 s are missing"), "{nothing}");
    }

    #[test]
    fn a_gap_in_a_log_is_not_bridged() {
        let log = file("0;10\n60;10\n121;10\n130\t10\n", 0.0).unwrap();
        assert!(log.over("t", 60.0, 60.0).is_ok());
        let why = log.over("t", 130.0, 130.0).unwrap_err().to_string();
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
            let message = file(text, 0.0).unwrap_err().to_string();
            assert!(message.contains(why), "{text:?}: {message}");
        }
        assert!(file("\u{feff}time;power [kW]\r\n5;0.1\r\n", 0.0).is_ok());
        let missing = LogFile::read(Path::new("/nonexistent/log"), 0.0).unwrap_err().to_string();
        assert!(missing.starts_with("cannot read the power log '/nonexistent/log': "), "{missing}");
    }

    #[test]
    fn a_reading_left_out_is_not_bridged() {
        let mut log = PowerLog::default();
        for seconds in [0.0, 1.0] {
            log.add((seconds, 10.0)).unwrap();
        }
        log.cut();
        for seconds in [2.0, 3.0] {
            log.add((seconds, 10.0)).unwrap();
        }
        assert_eq!(log.over(3.0, 3.0, "all").unwrap().measured_seconds, 2.0);
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
