//! The columns of a log: which of them have the time, the power, and the names of sensors.

use skt_terms::shown::shown;

use super::meter_text::{FORM, Field, LineError, Separator, fields, header_separator};
use super::meter_time::seconds_of;
use super::quantity::{is_blank, is_of_energy, watts_of};

/// The form of a header, for messages.
const HEADER: &str = "a header names the columns `time` and `power`, e.g. `time,power [kW],volts`; \
                      other lines that are no readings begin with `#`; \
                      `report --power-column NAME` names a column of power with another name";
/// The names of columns of times.
const TIMES: [&str; 9] = [
    "time",
    "timestamp",
    "seconds",
    "time_of_day_seconds",
    "datetime",
    "time stamp",
    "epoch",
    "unixtime",
    "ts",
];
/// The names of columns of power: those of sites, of nvidia-smi, of turbostat (in watts), of
/// amd-smi, and of Redfish (in watts).
const POWERS: [&str; 12] = [
    "power",
    "total power",
    "total_power",
    "node_power",
    "power.draw",
    "power.draw.average",
    "power.draw.instant",
    "pkgwatt",
    AMD_SMI,
    "power_usage",
    "power_draw",
    "powerconsumedwatts",
];
const AMD_SMI: &str = "socket_power";
/// Begins the names of nvidia-smi's columns of power.
const NVIDIA_SMI: &str = "power.draw";
/// The names of columns whose fields name the sensor of a line.
const SENSORS: [&str; 19] = [
    "index",
    "uuid",
    "gpu",
    "gpu_uuid",
    "gpu_index",
    "gpu_id",
    "gpu_bus_id",
    "pci.bus_id",
    "device",
    "device_id",
    "deviceid",
    "sensor",
    "host",
    "hostname",
    "node",
    "socket",
    "package",
    "metric_id",
    "instance",
];

#[derive(Debug, Clone, Copy)]
pub(super) struct PowerColumn {
    pub index: usize,
    /// Watts of the unit in the header, if it has one.
    pub unit_watts: Option<f64>,
    /// Whether a reading must have its unit, as one of the other columns may be the unit.
    pub needs_unit: bool,
}

/// The columns of the lines.
#[derive(Debug, Clone)]
pub(super) struct Columns {
    /// `None` without a header: then each line has its own.
    pub separator: Option<Separator>,
    pub count: usize,
    /// The column of dates, if times of day are in another.
    pub date: Option<usize>,
    pub time: usize,
    /// The seconds of the unit of times, if the header has one.
    pub unit_seconds: Option<f64>,
    pub powers: Vec<PowerColumn>,
    pub sensors: Vec<usize>,
    /// The header.
    pub line: String,
    /// Whether what the columns of power measure is accelerators alone.
    pub has_accelerators_only: bool,
}

impl Columns {
    pub(crate) fn without_header() -> Self {
        let power = PowerColumn { index: 1, unit_watts: None, needs_unit: false };
        Self {
            separator: None,
            count: 2,
            date: None,
            time: 0,
            unit_seconds: None,
            powers: vec![power],
            sensors: Vec::new(),
            line: String::new(),
            has_accelerators_only: false,
        }
    }

    /// Whether a line has as many fields.
    pub(super) fn fit(&self, line: &str) -> bool {
        self.separator.is_some_and(|separator| fields(line, separator).len() == self.count)
    }

    /// Whether readings would be others without the header.
    pub(super) fn has_other_units(&self) -> bool {
        let is_other = |unit: Option<f64>| unit.is_some_and(|unit| unit != 1.0);
        is_other(self.unit_seconds) || self.powers.iter().any(|power| is_other(power.unit_watts))
    }

    /// The columns of power by their names in the header; empty without a header.
    pub(crate) fn power_names(&self) -> Vec<&str> {
        let Some(separator) = self.separator else { return Vec::new() };
        let fields = fields(&self.line, separator);
        self.powers.iter().map(|power| fields[power.index].text).collect()
    }

    /// The columns that a header names, of power those in `chosen` if there are any.
    pub(crate) fn from_header(line: &str, chosen: &[String]) -> Result<Self, LineError> {
        let separator = header_separator(line);
        let fields = fields(line, separator);
        let mut columns = Self {
            separator: Some(separator),
            count: fields.len(),
            powers: Vec::new(),
            line: line.to_owned(),
            ..Self::without_header()
        };
        let mut time = None;
        for (index, field) in fields.iter().enumerate() {
            let (name, unit) = name_and_unit(field.text);
            let name = name.to_ascii_lowercase();
            match name.as_str() {
                _ if field.text.contains('"') => {
                    return Err(bad(field, "quotes are only around a whole field"));
                }
                "date" => columns.date = Some(index),
                name if SENSORS.contains(&name) => columns.sensors.push(index),
                name if !TIMES.contains(&name) => {}
                _ if time.is_some() => return Err(bad(field, "a second column of times")),
                _ => {
                    let seconds = unit.map(|unit| {
                        seconds_of(unit)
                            .ok_or_else(|| bad(field, "the unit of time is s, ms, us or ns"))
                    });
                    (time, columns.unit_seconds) = (Some(index), seconds.transpose()?);
                }
            }
        }
        columns.powers = match chosen {
            [] => recognized_power(&fields)?.into_iter().collect(),
            _ => chosen_powers(&fields, chosen)?,
        };
        if let ([], Some(field)) = (&columns.powers[..], fields.iter().find(|it| names_energy(it)))
        {
            return Err(field.energy());
        }
        let lower = |index: usize| name_and_unit(fields[index].text).0.to_ascii_lowercase();
        let of_gpus = columns.sensors.iter().any(|&index| lower(index).starts_with("gpu"));
        let is_of_accelerators = |power: &PowerColumn| {
            let name = lower(power.index);
            of_gpus || name.starts_with(NVIDIA_SMI) || name == AMD_SMI
        };
        columns.has_accelerators_only = columns.powers.iter().all(is_of_accelerators);
        // A column of dates alone has whole times.
        columns.time = time
            .or_else(|| columns.date.take())
            .filter(|_| !columns.powers.is_empty())
            .ok_or_else(|| {
                let what = match columns.powers[..] {
                    [] => format!("neither a reading nor a header; {FORM}; {HEADER}"),
                    _ => format!("a header without a column of times; {HEADER}"),
                };
                LineError { column: fields.first().map_or(1, |field| field.column), what }
            })?;
        Ok(columns)
    }
}

fn bad(field: &Field<'_>, what: &str) -> LineError {
    LineError { column: field.column, what: format!("`{}`: {what}; {HEADER}", shown(field.text)) }
}

/// The column whose name is known as that of a power.
fn recognized_power(fields: &[Field<'_>]) -> Result<Option<PowerColumn>, LineError> {
    let mut found = None;
    for (index, field) in fields.iter().enumerate() {
        let (name, _) = name_and_unit(field.text);
        if !POWERS.contains(&name.to_ascii_lowercase().as_str()) {
            continue;
        }
        let unit_watts = known_unit(field)?;
        if found.is_some() {
            let what = "a second column of power; --power-column chooses one, or several to add";
            return Err(bad(field, what));
        }
        let needs_unit = unit_watts.is_none() && fields.len() > 2;
        found = Some(PowerColumn { index, unit_watts, needs_unit });
    }
    Ok(found)
}

fn chosen_powers(fields: &[Field<'_>], names: &[String]) -> Result<Vec<PowerColumn>, LineError> {
    let column = |wanted: &String| {
        let is_wanted = |field: &Field<'_>| {
            [field.text, name_and_unit(field.text).0]
                .iter()
                .any(|it| it.eq_ignore_ascii_case(wanted))
        };
        let mut found = (0..fields.len()).filter(|&index| is_wanted(&fields[index]));
        let (Some(index), None) = (found.next(), found.next()) else {
            let what = format!("not one column has the name `{}` (--power-column)", shown(wanted));
            return Err(LineError { column: 1, what });
        };
        let unit_watts = known_unit(&fields[index])?;
        Ok(PowerColumn { index, unit_watts, needs_unit: false })
    };
    names.iter().map(column).collect()
}

/// Whether a column has energy, by its unit or, without one, its name.
fn names_energy(field: &Field<'_>) -> bool {
    let (name, unit) = name_and_unit(field.text);
    unit.map_or_else(|| name.to_ascii_lowercase().contains("energy"), is_of_energy)
}

/// Watts of a column's unit: that after its name, or that within its name.
fn known_unit(field: &Field<'_>) -> Result<Option<f64>, LineError> {
    let (name, unit) = name_and_unit(field.text);
    let in_name = name.to_ascii_lowercase();
    match unit {
        _ if names_energy(field) => Err(field.energy()),
        Some(unit) => {
            let watts = watts_of(unit).map(Some);
            watts.ok_or_else(|| bad(field, "the unit of power is W, kW, mW or MW"))
        }
        // amd-smi writes watts, and has no unit.
        None if in_name.ends_with("watt") || in_name.ends_with("watts") || in_name == AMD_SMI => {
            Ok(Some(1.0))
        }
        None => Ok(None),
    }
}

/// The name and the unit of a column: `power [kW]`, `power (kW)`, `power kW`, `power_kW`, `kW`.
fn name_and_unit(text: &str) -> (&str, Option<&str>) {
    if watts_of(text).is_some() {
        return ("power", Some(text));
    }
    let within = |open: char, close: char| text.strip_suffix(close)?.split_once(open);
    let is_unit =
        |unit: &str| seconds_of(unit).is_some() || watts_of(unit).is_some() || is_of_energy(unit);
    let at_end = || text.rsplit_once([' ', '_']).filter(|(_, unit)| is_unit(unit));
    match within('[', ']').or_else(|| within('(', ')')).or_else(at_end) {
        Some((name, unit)) => (name.trim_end_matches(is_blank), Some(unit)),
        None => (text, None),
    }
}
