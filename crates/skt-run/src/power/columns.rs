//! The columns of a log: which has times, powers, energies, or the names of sensors.

use skt_host::shown::shown;

use super::fields::{
    Field, LineError, Measure, Separator, Unit, fields, header_separator, is_blank, unit,
};

/// What the values of a column are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Power,
    /// Energy since some moment, which grows.
    Counter,
    /// Energy since the reading before.
    Interval,
}

/// What a column has.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Has {
    Date,
    Time,
    Sensor,
    Value(Kind),
}

/// What columns have, by their names in lower case without units, and the unit of those that have
/// none: of sites, nvidia-smi, amd-smi, turbostat, Redfish, Slurm and likwid.
const TABLE: [(Has, Option<Unit>, &str); 8] = [
    (Has::Date, None, "date"),
    (
        Has::Time,
        None,
        "time|timestamp|seconds|time_of_day_seconds|datetime|time stamp|epoch|unixtime|ts|\
         total runtime",
    ),
    (
        Has::Value(Kind::Power),
        None,
        "power|total power|total_power|node_power|power.draw|power.draw.average|\
         power.draw.instant|power_usage|power_draw",
    ),
    (
        Has::Value(Kind::Power),
        Some(Unit::WATT),
        "pkgwatt|powerconsumedwatts|currentwatts|socket_power",
    ),
    (
        Has::Value(Kind::Counter),
        None,
        "total energy|total_energy|energy total|energy_total|energy counter",
    ),
    (Has::Value(Kind::Counter), Some(Unit::JOULE), "consumedenergyraw|consumedjoules"),
    (Has::Value(Kind::Interval), None, "interval energy|interval_energy|pkg|ram|cor|gfx|sys"),
    (
        Has::Sensor,
        None,
        "index|uuid|gpu|gpu_uuid|gpu_index|gpu_id|gpu_bus_id|pci.bus_id|device|device_id|deviceid|\
         sensor|host|hostname|node|socket|package|metric_id|instance",
    ),
];
const AMD_SMI: &str = "socket_power";
/// Begins the names of nvidia-smi's columns of power.
const NVIDIA_SMI: &str = "power.draw";
/// Begins the names of the events by which perf counts energy.
const PERF: &str = "power/energy-";

/// A column of powers or energies.
#[derive(Debug, Clone, Copy)]
pub(super) struct ValueColumn {
    pub index: usize,
    pub kind: Kind,
    /// The unit in the header, if it has one.
    pub unit: Option<Unit>,
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
    /// All of one kind.
    pub values: Vec<ValueColumn>,
    pub sensors: Vec<usize>,
    /// The header.
    pub line: String,
    /// Whether what the columns measure is accelerators alone.
    pub has_accelerators_only: bool,
}

impl Columns {
    /// The columns of lines without a header, such as this one: of Cray's `pm_counters`, of `perf
    /// stat -I`, else a time and a power.
    pub(super) fn without_header(line: &str, separator: Separator) -> Self {
        let fields = fields(line, separator);
        let measures = |index: usize, measure: Measure| {
            let unit = unit(fields.get(index)?.number_and_unit().1)?;
            (unit.measure == measure).then_some(index)
        };
        let power = ValueColumn { index: 1, kind: Kind::Power, unit: None, needs_unit: false };
        let plain = Self {
            separator: None,
            count: 2,
            date: None,
            time: 0,
            unit_seconds: None,
            values: vec![power],
            sensors: Vec::new(),
            line: String::new(),
            has_accelerators_only: false,
        };
        let event = fields.iter().position(|field| field.text.starts_with(PERF));
        if let Some(event) = event.filter(|event| *event > 1) {
            let is_apart = unit(fields[event - 1].text).is_some();
            let index = if is_apart { event - 2 } else { event - 1 };
            let unit = Some(Unit::JOULE);
            let value = ValueColumn { index, kind: Kind::Interval, unit, needs_unit: false };
            // A socket and its number of counters may be between the time and the energy.
            let sensors = (index > 1).then_some(1).into_iter().chain([event]).collect();
            let count = fields.len();
            return Self {
                separator: Some(separator),
                count,
                values: vec![value],
                sensors,
                ..plain
            };
        }
        let measured = measures(0, Measure::Power).or(measures(0, Measure::Energy));
        if let (Some(index), Some(time), 2) = (measured, measures(1, Measure::Time), fields.len()) {
            let is_power = measures(0, Measure::Power).is_some();
            let kind = if is_power { Kind::Power } else { Kind::Counter };
            return Self { time, values: vec![ValueColumn { index, kind, ..power }], ..plain };
        }
        plain
    }

    /// Whether a line has as many fields.
    pub(super) fn fit(&self, line: &str) -> bool {
        self.separator.is_some_and(|separator| fields(line, separator).len() == self.count)
    }

    /// Whether readings would be others without the header.
    pub(super) fn has_other_units(&self) -> bool {
        let is_other = |column: &ValueColumn| column.unit.is_some_and(|unit| unit != Unit::WATT);
        self.unit_seconds.is_some_and(|unit| unit != 1.0) || self.values.iter().any(is_other)
    }

    pub(super) fn kind(&self) -> Kind {
        self.values.first().map_or(Kind::Power, |column| column.kind)
    }

    /// The columns of values by their names in the header; empty without a header.
    pub(super) fn names(&self) -> Vec<&str> {
        let Some(separator) = self.separator.filter(|_| !self.line.is_empty()) else {
            return Vec::new();
        };
        let fields = fields(&self.line, separator);
        self.values.iter().map(|column| fields[column.index].text).collect()
    }

    /// The columns that a header names, of values those in `chosen` if there are any.
    pub(super) fn from_header(line: &str, chosen: &[String]) -> Result<Self, LineError> {
        let separator = header_separator(line);
        let fields = fields(line, separator);
        let (mut times, mut date, mut sensors) = (Vec::new(), None, Vec::new());
        for (index, field) in fields.iter().enumerate() {
            if field.text.contains('"') {
                return Err(bad(field, "quotes are only around a whole field"));
            }
            match row(field).map(|(has, _)| has) {
                Some(Has::Date) => date = Some(index),
                Some(Has::Sensor) => sensors.push(index),
                Some(Has::Time) => times.push(index),
                _ => {}
            }
        }
        if let [_, second, ..] = times[..] {
            return Err(bad(&fields[second], "a second column of times"));
        }
        let values = values(&fields, chosen)?;
        // A column of dates alone has whole times.
        let time = times.first().copied().or_else(|| date.take());
        let Some(time) = time.filter(|_| !values.is_empty()) else {
            let what = match values[..] {
                [] => {
                    "neither a reading nor a header, e.g. `1700000000.5,412.5 W`, `time,power [W]`"
                }
                _ => "a header without a column of times, named `time`",
            };
            let column = fields.first().map_or(1, |field| field.column);
            return Err(LineError { column, what: what.to_owned() });
        };
        let seconds = |text: &str| unit(text).filter(|unit| unit.measure == Measure::Time);
        let unit_seconds = match name_and_unit(fields[time].text).1 {
            Some(text) => Some(
                seconds(text)
                    .ok_or_else(|| bad(&fields[time], "the unit of time is s, ms, us or ns"))?
                    .size,
            ),
            None => None,
        };
        let lower = |index: usize| name_and_unit(fields[index].text).0.to_ascii_lowercase();
        let of_gpus = sensors.iter().any(|&index| lower(index).starts_with("gpu"));
        let is_of_accelerators = |column: &ValueColumn| {
            let name = lower(column.index);
            of_gpus || name.starts_with(NVIDIA_SMI) || name == AMD_SMI
        };
        Ok(Self {
            separator: Some(separator),
            count: fields.len(),
            date,
            time,
            unit_seconds,
            has_accelerators_only: values.iter().all(is_of_accelerators),
            values,
            sensors,
            line: line.to_owned(),
        })
    }
}

/// The row of the table that has the name of a column.
fn row(field: &Field<'_>) -> Option<(Has, Option<Unit>)> {
    let name = name_and_unit(field.text).0.to_ascii_lowercase();
    let (has, unit, _) =
        TABLE.iter().find(|(.., names)| names.split('|').any(|known| known == name))?;
    Some((*has, *unit))
}

fn bad(field: &Field<'_>, what: &str) -> LineError {
    LineError { column: field.column, what: format!("`{}`: {what}", shown(field.text)) }
}

/// The columns of values: those `chosen`, else the one of power or, without any, of energy.
fn values(fields: &[Field<'_>], chosen: &[String]) -> Result<Vec<ValueColumn>, LineError> {
    let mut indices = Vec::new();
    for wanted in chosen {
        let is_wanted = |field: &Field<'_>| {
            let names = [field.text, name_and_unit(field.text).0];
            names.iter().any(|name| name.eq_ignore_ascii_case(wanted))
        };
        let mut found = (0..fields.len()).filter(|&index| is_wanted(&fields[index]));
        let (Some(index), None) = (found.next(), found.next()) else {
            let what = format!("not one column has the name `{}` (--power-column)", shown(wanted));
            return Err(LineError { column: 1, what });
        };
        indices.push(index);
    }
    let is_power = |&index: &usize| {
        matches!(row(&fields[index]), Some((Has::Value(Kind::Power), _)))
            && !has_energy(&fields[index])
    };
    if chosen.is_empty() {
        indices = (0..fields.len()).filter(is_power).collect();
    }
    if indices.is_empty() {
        indices = (0..fields.len()).filter(|&index| has_energy(&fields[index])).collect();
    }
    if let ([_, second, ..], true) = (&indices[..], chosen.is_empty()) {
        let what = "a second column of power or energy; --power-column chooses one, or several to \
                    add";
        return Err(bad(&fields[*second], what));
    }
    let column =
        |&index: &usize| value_column(index, &fields[index], chosen.is_empty(), fields.len());
    let columns: Vec<ValueColumn> = indices.iter().map(column).collect::<Result<_, _>>()?;
    match columns.iter().find(|column| column.kind != columns[0].kind) {
        Some(other) => Err(bad(&fields[other.index], "only columns of one kind can be added")),
        None => Ok(columns),
    }
}

/// Whether a column has energy, by its unit or, without one, its name.
fn has_energy(field: &Field<'_>) -> bool {
    let (name, shown_unit) = name_and_unit(field.text);
    let by_name = || {
        let is_known =
            matches!(row(field), Some((Has::Value(Kind::Counter | Kind::Interval), Some(_))));
        is_known || name.to_ascii_lowercase().contains("energy")
    };
    match shown_unit.and_then(unit) {
        Some(unit) => unit.measure == Measure::Energy,
        None => by_name(),
    }
}

fn value_column(
    index: usize,
    field: &Field<'_>,
    is_known: bool,
    count: usize,
) -> Result<ValueColumn, LineError> {
    let (name, shown_unit) = name_and_unit(field.text);
    let (name, row) = (name.to_ascii_lowercase(), row(field));
    let unit = match shown_unit {
        Some(text) => {
            let unit = unit(text).filter(|unit| unit.measure != Measure::Time);
            let what = "the unit is none of W, kW, mW, MW, uJ, mJ, J, kJ, MJ, Wh, kWh and MWh";
            Some(unit.ok_or_else(|| bad(field, what))?)
        }
        None if name.ends_with("watt") || name.ends_with("watts") => Some(Unit::WATT),
        None => row.and_then(|(_, unit)| unit),
    };
    let by_name = match row {
        Some((Has::Value(kind), _)) if kind != Kind::Power => Some(kind),
        _ => None,
    };
    let energy = unit.filter(|unit| unit.measure == Measure::Energy);
    let kind = match (energy, by_name) {
        (Some(_), Some(kind)) => kind,
        (Some(unit), None) if unit.is_of_registers() => Kind::Counter,
        (Some(_), None) => {
            let what = "is this a counter of energy, then name it `total energy`, or the energy \
                        since the reading before, then `interval energy`";
            return Err(bad(field, what));
        }
        (None, Some(kind)) if unit.is_none() => kind,
        (None, _) if has_energy(field) => return Err(bad(field, "energy needs its unit")),
        (None, _) => Kind::Power,
    };
    let needs_unit = unit.is_none() && (kind != Kind::Power || is_known && count > 2);
    Ok(ValueColumn { index, kind, unit, needs_unit })
}

/// The name and the unit of a column: `power [kW]`, `power (kW)`, `power kW`, `power_kW`, `kW`.
fn name_and_unit(text: &str) -> (&str, Option<&str>) {
    match unit(text).map(|unit| unit.measure) {
        Some(Measure::Power) => return ("power", Some(text)),
        Some(Measure::Energy) => return ("energy", Some(text)),
        _ => {}
    }
    let within = |open: char, close: char| text.strip_suffix(close)?.split_once(open);
    let at_end = || text.rsplit_once([' ', '_']).filter(|(_, last)| unit(last).is_some());
    match within('[', ']').or_else(|| within('(', ')')).or_else(at_end) {
        Some((name, unit)) => (name.trim_end_matches(is_blank), Some(unit)),
        None => (text, None),
    }
}
