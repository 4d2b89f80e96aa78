//! The power statistics of a BMC, as ipmitool and FreeIPMI print them.

use super::meter_text::LineError;
use super::meter_time::{TimeForm, unix_seconds};
use super::quantity::{Power, power};
use skt_terms::shown::shown;

/// The names of the lines that count: ipmitool's (`dcmi power reading`), then FreeIPMI's
/// (`ipmi-dcmi --get-system-power-statistics`). Each block has them in this order.
const WATTS: [&str; 2] = ["Instantaneous power reading", "Current Power"];
const TIME: [&str; 2] = ["IPMI timestamp", "Time Stamp"];
const STATE: [&str; 2] = ["Power reading state is", "Power Measurement"];

/// One block of lines after the other, each with a reading.
#[derive(Debug, Clone, Default)]
pub(super) struct BmcLines {
    watts: Option<f64>,
    seconds: Option<f64>,
}

/// Whether a block begins with this line.
pub(super) fn is_begin(line: &str) -> bool {
    line.contains(':') && WATTS.contains(&name_and_value(line).0)
}

fn name_and_value(line: &str) -> (&str, &str) {
    let (name, value) = line.split_once(':').unwrap_or((line, ""));
    (name.trim(), value.trim())
}

impl BmcLines {
    /// The time and the watts that are complete with this line.
    pub(crate) fn read(&mut self, line: &str) -> Result<Option<(f64, f64)>, LineError> {
        let (name, value) = name_and_value(line);
        let column = line.find(value).map_or(1, |at| line[..at].chars().count() + 1);
        let error = |what: String| Err(LineError { column, what });
        if WATTS.contains(&name) {
            let Some(Power::Number(number, Some(unit_watts))) = power(value, false) else {
                return error(format!("`{}` is no power in watts", shown(value)));
            };
            *self = Self { watts: Some(number * unit_watts), seconds: None };
        } else if TIME.contains(&name) {
            let form = TimeForm { is_of_bmc: true, ..TimeForm::default() };
            // ipmitool 1.8.19 writes the next line into this one.
            let value = value.split("Sampling period").next().unwrap_or(value).trim_end();
            match unix_seconds(value, form) {
                Ok(seconds) => self.seconds = Some(seconds),
                Err(why) => return error(format!("`{}` is no time: {why}", shown(value))),
            }
        } else if STATE.contains(&name) {
            let Self { watts, seconds } = std::mem::take(self);
            if !["activated", "Active"].contains(&value) {
                return error(format!("the BMC does not measure: its state is `{}`", shown(value)));
            }
            let reading = seconds.zip(watts).map(Some);
            return reading.map_or_else(|| error("no power or no time above".to_owned()), Ok);
        } else if !line.contains(':') {
            return error("no line of a BMC's power statistics".to_owned());
        }
        Ok(None)
    }
}
