//! The lines of a power meter: exactly the forms that the user guide lists.
//!
//! A number that is read wrong gives a wrong figure in a submission, so whatever could be read in
//! two ways (decimal commas among commas, separators of thousands, unknown units) is refused.

use skt_host::shown::shown;
use skt_host::units::counted;

use super::columns::{Columns, Kind, ValueColumn};
use super::fields::{
    Field, LineError, Measure, fields, is_blank, leaves_commas, number, separator, unit,
};
use super::meter_time::{TimeForm, unix_seconds};

/// A line with a time.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct MeterReading {
    /// Since 1970, by the clock of the meter.
    pub seconds: f64,
    /// The value of each column, in W or J; `None` if the meter had no reading.
    pub values: Option<Vec<f64>>,
    /// The name of the sensor; empty if the lines have none.
    pub sensor: String,
}

/// Reads the lines of a meter, of which the first may be a header.
#[derive(Debug, Clone, Default)]
pub(super) struct MeterLines {
    /// `None` before the first line, and for lines of a BMC.
    pub columns: Option<Columns>,
    /// Columns that a comment names, until the first reading.
    commented: Option<Columns>,
    /// Set if the lines are those of a BMC.
    bmc: Option<BmcLines>,
    /// The names of the columns whose sum is read; empty for the one that is known.
    pub chosen: Vec<String>,
}

impl MeterLines {
    /// The reading of the next line; `None` for a header, a comment, an empty line, or a part of a
    /// text of several lines.
    pub(super) fn read(&mut self, line: &str) -> Result<Option<MeterReading>, LineError> {
        let begin = line.trim_start_matches(is_blank);
        let line = line.trim_end_matches(['\r', '\n']);
        if let Some(comment) = begin.strip_prefix('#') {
            let header = comment.trim_start_matches('#').trim();
            self.commented =
                Columns::from_header(header, &self.chosen).ok().or(self.commented.take());
            return Ok(None);
        }
        if line.trim_matches(is_blank).is_empty() {
            return Ok(None);
        }
        if self.columns.is_none() && (self.bmc.is_some() || BmcLines::begin_with(line)) {
            let reading = self.bmc.get_or_insert_default().read(line)?;
            return Ok(reading.map(|(seconds, watts)| MeterReading {
                seconds,
                values: Some(vec![watts]),
                sensor: String::new(),
            }));
        }
        if self.columns.is_none() {
            self.columns = self.commented.take_if(|columns| columns.fit(line));
        }
        let is_header =
            begin.trim_start_matches(['"', ',', ';', '|']).starts_with(|c: char| c.is_alphabetic());
        let bare = || Columns::without_header(line);
        match &self.columns {
            // Tools repeat their header, or begin again at the end of a file.
            Some(columns) if columns.line == line => return Ok(None),
            None if is_header && reading(line, &bare()).is_err() => {
                self.columns = Some(Columns::from_header(line, &self.chosen)?);
                return Ok(None);
            }
            None if !self.chosen.is_empty() => {
                let what = "--power-column needs a header with the names of columns".to_owned();
                return Err(LineError { column: 1, what });
            }
            None if self.commented.as_ref().is_some_and(Columns::has_other_units) => {
                let what = "its fields are not those that the comment above names".to_owned();
                return Err(LineError { column: 1, what });
            }
            _ => {}
        }
        reading(line, self.columns.get_or_insert_with(bare)).map(Some)
    }
}

fn reading(line: &str, columns: &Columns) -> Result<MeterReading, LineError> {
    let separator = columns.separator.unwrap_or_else(|| separator(line, false));
    let fields = fields(line, separator);
    if fields.len() != columns.count {
        let column = fields.get(columns.count).map_or(line.chars().count() + 1, |it| it.column);
        let what = format!("{} in place of {}", counted(fields.len(), "field"), columns.count);
        return Err(LineError { column, what });
    }
    let seconds = time(&fields, columns, separator)?;
    let of_column = |column: &ValueColumn| value_in(&fields[column.index], column, separator);
    let values: Vec<Option<f64>> =
        columns.values.iter().map(of_column).collect::<Result<_, _>>()?;
    let sensor: Vec<&str> = columns.sensors.iter().map(|&index| fields[index].text).collect();
    Ok(MeterReading { seconds, values: values.into_iter().collect(), sensor: sensor.join(" ") })
}

fn time(fields: &[Field<'_>], columns: &Columns, separator: char) -> Result<f64, LineError> {
    let field = &fields[columns.time];
    let with_date = columns.date.map(|date| format!("{} {}", fields[date].text, field.text));
    let mut text = with_date.as_deref().unwrap_or(field.text);
    let mut unit_seconds = columns.unit_seconds;
    let (digits, name) = field.number_and_unit();
    let own = unit(name).filter(|unit| unit.measure == Measure::Time);
    if let Some(own) = own.filter(|_| columns.date.is_none()) {
        (text, unit_seconds) = (digits, Some(own.size));
    }
    let has_decimal_commas = leaves_commas(separator);
    let form = TimeForm { unit_seconds, has_decimal_commas, is_of_bmc: false };
    unix_seconds(text, form).map_err(|why| LineError {
        column: field.column,
        what: format!("`{}` is no time: {why}", shown(text)),
    })
}

/// The value in the field of a column, in W or J; `None` if the meter had no reading.
fn value_in(
    field: &Field<'_>,
    column: &ValueColumn,
    separator: char,
) -> Result<Option<f64>, LineError> {
    let error = |what: &str| {
        let what = format!("`{}` {what}", shown(field.text));
        Err(LineError { column: field.column, what })
    };
    if field.is_missing() {
        return Ok(None);
    }
    let (digits, name) = field.number_and_unit();
    let own = unit(name).filter(|unit| unit.measure != Measure::Time);
    let number = number(digits, leaves_commas(separator));
    let Some(number) = number.filter(|_| name.is_empty() || own.is_some()) else {
        return error("is no power in W, kW, mW or MW and no energy in J or Wh");
    };
    let wants = if column.kind == Kind::Power { Measure::Power } else { Measure::Energy };
    match own.or(column.unit) {
        None if column.needs_unit => error("needs its unit next to other columns, e.g. W or J"),
        Some(unit) if column.unit.is_some_and(|from_header| from_header != unit) => {
            error("has another unit than the header")
        }
        Some(unit) if unit.measure != wants => error(
            "is energy: a header names the column `total energy` or `interval energy`, and its unit",
        ),
        unit => Ok(Some(number * unit.map_or(1.0, |unit| unit.size))),
    }
}

/// The names of the lines that count: ipmitool's (`dcmi power reading`), then FreeIPMI's
/// (`ipmi-dcmi --get-system-power-statistics`). Each block has them in this order.
const WATTS: [&str; 2] = ["Instantaneous power reading", "Current Power"];
const TIME: [&str; 2] = ["IPMI timestamp", "Time Stamp"];
const STATE: [&str; 2] = ["Power reading state is", "Power Measurement"];

/// The power statistics of a BMC, as ipmitool and FreeIPMI print them: one block of lines after the
/// other, each with a reading.
#[derive(Debug, Clone, Default)]
struct BmcLines {
    watts: Option<f64>,
    seconds: Option<f64>,
}

fn name_and_value(line: &str) -> (&str, &str) {
    let (name, value) = line.split_once(':').unwrap_or((line, ""));
    (name.trim(), value.trim())
}

impl BmcLines {
    fn begin_with(line: &str) -> bool {
        line.contains(':') && WATTS.contains(&name_and_value(line).0)
    }

    /// The time and the watts that are complete with this line.
    fn read(&mut self, line: &str) -> Result<Option<(f64, f64)>, LineError> {
        let (name, value) = name_and_value(line);
        let column = line.find(value).map_or(1, |at| line[..at].chars().count() + 1);
        let error = |what: String| Err(LineError { column, what });
        if WATTS.contains(&name) {
            let (digits, name) = Field { text: value, column }.number_and_unit();
            let unit = unit(name).filter(|unit| unit.measure == Measure::Power);
            let Some((number, unit)) = number(digits, false).zip(unit) else {
                return error(format!("`{}` is no power in watts", shown(value)));
            };
            *self = Self { watts: Some(number * unit.size), seconds: None };
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The last reading of these lines, or the line, the column and the text of an error.
    fn read(text: &str) -> Result<Option<(f64, f64)>, (usize, usize, String)> {
        let mut lines = MeterLines::default();
        let mut last = None;
        for (line, text) in (1..).zip(text.lines()) {
            let reading = lines.read(text).map_err(|why| (line, why.column, why.what))?;
            last = reading.and_then(|it| Some((it.seconds, it.values?.iter().sum()))).or(last);
        }
        Ok(last)
    }

    #[test]
    fn documented_forms_are_read() {
        for (text, watts) in [
            ("5 412.5", 412.5),
            (" 5\t412.5 ", 412.5),
            ("5,412.5\r\n", 412.5),
            ("5 , 412.5", 412.5),
            ("5;412.5", 412.5),
            ("\"5\",\"412.5\"", 412.5),
            ("5 412.5 W", 412.5),
            ("5,0.4125 kW", 412.5),
            ("5\t0.4125\tkW", 412.5),
            ("# Zähler 3\n\ntime,power\n5,412.5\n", 412.5),
            ("time watts\n5 412.5", 412.5),
            ("time power [kW]\n5 0.4125", 412.5),
            ("Time (s);Volts;Power (kW);note\n5;230,1;0.4125;a b", 412.5),
            ("\"timestamp\",\"power_kW\",\"power factor\"\n5,0.4125,\"0.98\"", 412.5),
            ("time\tpower [W]\ttotal energy\n5\t412.5\t1", 412.5),
            ("volts,watts,seconds\n230,412.5,5", 412.5),
            ("time;kW\n5;0.4125", 412.5),
            ("time power [W] volts\n5 412.5 230", 412.5),
            ("5;412,5", 412.5),
            ("5,0\t412,5", 412.5),
            ("Zeit;time;power [kW]\n5;5,0;0,4125", 412.5),
            ("5,412.5W", 412.5),
            ("5,412500 mW", 412.5),
            ("5,0.0004125 MW", 412.5),
            ("5,412.5 Watts", 412.5),
            ("time_ms,power_watt\n5000,412.5", 412.5),
            ("timestamp,power\n5000000000000,1\n5,412.5", 412.5),
            ("timestamp,gpu,power\n5,0,412.5 W", 412.5),
            ("time,power,factor\n5,412.5 W,0.9", 412.5),
            ("time,watts\n5,412.5\ntime,watts\n", 412.5),
            ("time,power\n5,412.5\n6,\n6,nan\n6,--\n6,None\n6,[Not Supported]\n", 412.5),
            ("timestamp, power.draw [W], power.limit [W]\n5, 412.5 W, 700.00 W", 412.5),
            ("Time_Of_Day_Seconds PkgWatt RAMWatt\n5 412.5 20", 412.5),
            ("\"Date\",\"Time\",\"Power (kW)\"\n01.01.1970,00:00:05Z,0.4125", 412.5),
            ("1970-01-01 00:00:05 UTC 412.5 W", 412.5),
            ("1970-01-01 00:00:05 +00:00 412.5", 412.5),
            ("1970-01-01T00:00:05Z 412.5", 412.5),
            ("\"1970-01-01 00:00:05,000 UTC\",\"412.5 W\"", 412.5),
            ("Thu Jan  1 00:00:05 UTC 1970,412.5", 412.5),
            ("#time,power_kW\n5,0.4125", 412.5),
            ("# power\ttime [ms]\n# site A\n412.5\t5000", 412.5),
            ("# time and power\n5 412.5", 412.5),
            (",time,power_w\n0,5,412.5", 412.5),
        ] {
            assert_eq!(read(text), Ok(Some((5.0, watts))), "{text:?}");
        }
        assert_eq!(read("time,power\n# begin\n\n"), Ok(None));
    }

    #[test]
    fn statistics_of_a_bmc_are_read() {
        let ipmitool = |time: &str, state: &str| {
            format!(
                "\n    Instantaneous power reading:                   412 Watts\n    \
                 Minimum during sampling period:                 16 Watts\n    \
                 IPMI timestamp:                           {time}\n    \
                 Sampling period:                          00000001 Seconds.\n    \
                 Power reading state is:                   {state}\n\n"
            )
        };
        for time in [
            "Thu Jan  1 00:00:05 1970",
            "01/01/1970 00:00:05 UTC",
            "01/01/1970 12:00:05 AM UTC    Sampling period:      00000001 Seconds.",
        ] {
            assert_eq!(read(&ipmitool(time, "activated")), Ok(Some((5.0, 412.0))), "{time}");
        }
        let free_ipmi = "Current Power                        : 412 Watts\n\
                         Minimum Power over sampling duration : 68 watts\n\
                         Time Stamp                           : 01/01/1970 - 00:00:05\n\
                         Power Measurement                    : Active\n";
        assert_eq!(read(&free_ipmi.repeat(2)), Ok(Some((5.0, 412.0))));
        let off = ipmitool("Thu Jan  1 00:00:05 1970", "deactivated");
        let (line, column, what) = read(&off).unwrap_err();
        assert_eq!((line, column), (6, 47), "{what}");
        assert!(what.contains("the BMC does not measure"), "{what}");
        let without_time = "Current Power: 4 W\nPower Measurement: Active\n";
        assert!(read(without_time).unwrap_err().2.contains("no power or no time above"));
    }

    #[test]
    fn ambiguous_text_is_refused_at_its_place() {
        for (text, line, column, why) in [
            ("5,5\t1.412,5", 1, 5, "`1.412,5` is no power"),
            ("5,500,412,5", 1, 7, "4 fields in place of 2"),
            ("5,1,234.5", 1, 5, "3 fields in place of 2"),
            ("5,412.5\tkW", 1, 1, "`5,412.5` is no time"),
            ("5 1 234.5", 1, 5, "3 fields"),
            ("5 1\u{a0}234.5", 1, 3, "is no power in W"),
            ("5,\"1,234.5\"", 1, 4, "`1,234.5` is no power"),
            ("5,412.5 kVA", 1, 3, "`412.5 kVA` is no power in W"),
            ("5 412.5 kVA", 1, 9, "3 fields"),
            ("5 412.5 \"kW\"", 1, 10, "3 fields"),
            ("5 412.5 [kW]", 1, 3, "`412.5 [kW]` is no power"),
            ("5,412.5,W", 1, 9, "3 fields"),
            ("5,412.5 Mw", 1, 3, "is no power"),
            ("5,-3", 1, 3, "`-3` is no power"),
            ("+5,3", 1, 1, "is no time"),
            ("5,4e2", 1, 3, "is no power"),
            ("5,0x10", 1, 3, "is no power"),
            ("5,1_000", 1, 3, "is no power"),
            ("5,.5", 1, 3, "is no power"),
            ("5,5.", 1, 3, "is no power"),
            ("inf,5", 1, 1, "neither a reading nor a header"),
            ("2026-11-28T10:00:00 EST,412", 1, 1, "its zone is neither"),
            ("10:00:00,412", 1, 1, "a time of day without its date"),
            ("11/10/2026 10:00:00,412", 1, 1, "could be exchanged"),
            ("5", 1, 2, "1 field"),
            ("5,,7", 1, 4, "3 fields"),
            ("Acme meter 3\ntime,power", 1, 1, "neither a reading nor a header"),
            ("time,power\ntime,watts", 2, 1, "`time` is no time"),
            ("5,412\ntime,power", 2, 1, "is no time"),
            ("5,302 J", 1, 3, "`302 J` is energy: a header names the column"),
            ("5 302 kJ", 1, 3, "`302 kJ` is energy"),
            ("5,0.302 kWh", 1, 3, "`0.302 kWh` is energy"),
            ("time,power [J]\n5,302", 1, 6, "`power [J]`: is this a counter of energy"),
            ("time,Energy\n5,302", 1, 6, "`Energy`: energy needs its unit"),
            ("time,energy [J]\n5,302", 1, 6, "is this a counter of energy, then name it"),
            ("time,Pkg_J,RAM_J\n5,1,2", 1, 12, "a second column of power or energy"),
            ("time,power\n5,412,5", 2, 7, "3 fields in place of 2"),
            ("time;power\n5,412", 2, 6, "1 field in place of 2"),
            ("time,watts,volts\n5,412", 2, 6, "2 fields in place of 3"),
            ("time,power [kW]\n5,0.4 W", 2, 3, "another unit than the header"),
            ("time,power [kVA]\n5,4", 1, 6, "`power [kVA]`: the unit is none of W"),
            ("time,power_kVA\n5,4", 1, 1, "neither a reading nor a header"),
            ("time [min],power", 1, 1, "the unit of time is s"),
            ("time,watts [kW]", 1, 1, "neither a reading nor a header"),
            ("time,watts,power", 1, 12, "a second column of power"),
            ("time,power,unit\n5,0.4125,kW", 2, 3, "needs its unit next to other columns"),
            ("# time, power [kW]\n5 0.4", 2, 1, "not those that the comment above names"),
            ("Zeit;power [W]\n5;4", 1, 1, "a header without a column of times"),
            ("time,seconds,watts", 1, 6, "a second column of times"),
            ("time,\"power, kW\"", 1, 1, "neither a reading nor a header"),
            ("time,\"power\" kW", 1, 6, "quotes are only around a whole field"),
        ] {
            let (at_line, at_column, what) = read(text).expect_err(text);
            assert_eq!((at_line, at_column), (line, column), "{text:?}: {what}");
            assert!(what.contains(why), "{text:?}: {what}");
        }
    }

    /// A separate grammar of the forms without a header: what the reader is compared with.
    fn is_documented(line: &str) -> bool {
        let (has_tab, has_comma) = (line.contains('\t'), line.contains(','));
        let (mark, point) = match line.contains(';') {
            true => (';', ','),
            false if has_tab && has_comma => ('\t', ','),
            false if has_comma => (',', '.'),
            false => (' ', '.'),
        };
        let is_number = |text: &str| {
            let digits =
                |text: &str| !text.is_empty() && text.chars().all(|c| "0123456789".contains(c));
            match text.split(['.', point]).collect::<Vec<_>>()[..] {
                [whole] => digits(whole),
                [whole, fraction] => digits(whole) && digits(fraction),
                _ => false,
            }
        };
        let is_power = |text: &str| {
            let units = ["", "W", "w", "kW", "KW", "kw", "mW"];
            let has_unit = |unit: &&str| {
                text.strip_suffix(unit)
                    .is_some_and(|it| is_number(it.trim_end_matches([' ', '\t'])))
            };
            ["", "-", "--", "nan"].contains(&text) || units.iter().any(has_unit)
        };
        let trimmed = |text: &str| text.trim_matches([' ', '\t']).to_owned();
        if mark != ' ' {
            let fields: Vec<String> = line.split(mark).map(trimmed).collect();
            return matches!(&fields[..], [time, power] if is_number(time) && is_power(power));
        }
        let line = trimmed(line);
        line.split_once([' ', '\t'])
            .is_some_and(|(time, power)| is_number(time) && is_power(&trimmed(power)))
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4096, failure_persistence: None,
            ..Default::default() })]

        #[test]
        fn a_line_is_read_if_and_only_if_it_is_documented(
            pieces in prop::collection::vec(prop::sample::select(vec![
                "5", "12", "0", ".", ",", ";", " ", "\t", "W", "kW", "mW", "VA", "-", "+", "e3",
                "_", "\u{a0}", "'", "x", "nan", "5,412.5", "5 0.25 kW", "5;7",
            ]), 0..7),
        ) {
            let line = pieces.concat();
            let is_empty = line.trim_matches([' ', '\t']).is_empty();
            let found = MeterLines::default().read(&line);
            let is_legal = is_empty || is_documented(&line);
            prop_assert_eq!(found.is_ok(), is_legal, "{:?}: {:?}", line, found);
        }

        #[test]
        fn numbers_are_read_with_their_value(
            time in 0u32..2_000_000_000, milliwatts in 0u32.., kilo: bool, mark in "[,;]|[ \t]{1,3}",
        ) {
            let unit = if kilo { " kW" } else { "" };
            let watts = f64::from(milliwatts) / 1e3;
            let line = format!("{time}{mark}{}{unit}", watts);
            let reading = MeterLines::default().read(&line).unwrap().unwrap();
            let (seconds, read) = (reading.seconds, reading.values.unwrap()[0]);
            prop_assert_eq!(seconds, f64::from(time));
            prop_assert_eq!(read, if kilo { watts * 1000.0 } else { watts });
        }

        /// With a header, a line is read if and only if it has as many fields, and numbers in the
        /// two that count. The power may be absent.
        #[test]
        fn a_line_below_a_header_has_its_fields(
            fields in prop::collection::vec("[0-9]{1,3}|[0-9]{1,2}\\.[0-9]|x|", 1..5),
        ) {
            let mut lines = MeterLines::default();
            lines.read("volts,power [kW],time").unwrap();
            let is_number = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
            let line = fields.join(",");
            prop_assume!(!line.is_empty());
            let is_power = |text: &String| text.is_empty() || is_number(text);
            let is_legal = fields.len() == 3 && is_power(&fields[1]) && is_number(&fields[2]);
            prop_assert_eq!(lines.read(&line).is_ok(), is_legal, "{:?}", line);
        }
    }
}
