//! The columns of a log: which has times, powers, energies, or the names of sensors.

use skt_host::shown::shown;

use super::fields::{Field, LineError, Measure, Unit, fields, is_blank, separator, unit};

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
#[derive(Debug, Clone, Default)]
pub(super) struct Columns {
    /// `None` without a header: then each line has its own.
    pub separator: Option<char>,
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

/// A column as a header names it.
struct Named<'a> {
    field: Field<'a>,
    /// In lower case, without the unit.
    name: String,
    has: Option<Has>,
    /// The unit as it is written.
    written: Option<&'a str>,
    /// The unit, also that of the table or of the name.
    unit: Option<Unit>,
}

impl Columns {
    /// The columns of lines without a header, such as this one: of Cray's `pm_counters`, of `perf
    /// stat -I`, else a time and a power.
    pub(super) fn without_header(line: &str) -> Self {
        let mark = separator(line, false);
        let fields = fields(line, mark);
        let measure = |index: usize| Some(unit(fields.get(index)?.number_and_unit().1)?.measure);
        let value = |index, kind, unit| vec![ValueColumn { index, kind, unit, needs_unit: false }];
        let plain = Self { count: 2, values: value(1, Kind::Power, None), ..Self::default() };
        let event = fields.iter().position(|field| field.text.starts_with(PERF)).unwrap_or(0);
        let is_apart = event > 0 && unit(fields[event - 1].text).is_some();
        let index = event.saturating_sub(1 + usize::from(is_apart));
        if index > 0 {
            // A socket and its number of counters may be between the time and the energy.
            let sensors = (index > 1).then_some(1).into_iter().chain([event]).collect();
            let values = value(index, Kind::Interval, Some(Unit::JOULE));
            return Self { separator: Some(mark), count: fields.len(), values, sensors, ..plain };
        }
        let kind = match measure(0) {
            Some(Measure::Power) => Kind::Power,
            Some(Measure::Energy) => Kind::Counter,
            _ => return plain,
        };
        if fields.len() != 2 || measure(1) != Some(Measure::Time) {
            return plain;
        }
        Self { time: 1, values: value(0, kind, None), ..plain }
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
        let mark = separator(line, true);
        let all: Vec<Named> = fields(line, mark).into_iter().map(Named::new).collect();
        if let Some(quoted) = all.iter().find(|column| column.field.text.contains('"')) {
            return Err(quoted.bad("quotes are only around a whole field"));
        }
        let with = |has: Has| -> Vec<usize> {
            (0..all.len()).filter(|&index| all[index].has == Some(has)).collect()
        };
        let (mut dates, times, sensors) = (with(Has::Date), with(Has::Time), with(Has::Sensor));
        if let [_, second, ..] = times[..] {
            return Err(all[second].bad("a second column of times"));
        }
        let values = values(&all, chosen)?;
        // A column of dates alone has whole times.
        let time = times.first().copied().or_else(|| dates.pop());
        let Some(time) = time.filter(|_| !values.is_empty()) else {
            let what = match values[..] {
                [] => {
                    "neither a reading nor a header, e.g. `1700000000.5,412.5 W`, `time,power [W]`"
                }
                _ => "a header without a column of times, named `time`",
            };
            let column = all.first().map_or(1, |column| column.field.column);
            return Err(LineError { column, what: what.to_owned() });
        };
        let unit = all[time].unit.filter(|unit| unit.measure == Measure::Time);
        if all[time].written.is_some() && unit.is_none() {
            return Err(all[time].bad("the unit of time is s, ms, us or ns"));
        }
        let of_gpus = sensors.iter().any(|&index| all[index].name.starts_with("gpu"));
        let is_of_accelerators = |value: &ValueColumn| {
            let name = &all[value.index].name;
            of_gpus || name.starts_with(NVIDIA_SMI) || name == AMD_SMI
        };
        Ok(Self {
            separator: Some(mark),
            count: all.len(),
            date: dates.pop(),
            time,
            unit_seconds: unit.map(|unit| unit.size),
            has_accelerators_only: values.iter().all(is_of_accelerators),
            values,
            sensors,
            line: line.to_owned(),
        })
    }
}

/// The columns of values: those `chosen`, else the one of power or, without any, of energy.
fn values(all: &[Named], chosen: &[String]) -> Result<Vec<ValueColumn>, LineError> {
    let with = |is_wanted: &dyn Fn(&Named) -> bool| -> Vec<usize> {
        (0..all.len()).filter(|&index| is_wanted(&all[index])).collect()
    };
    let mut indices = Vec::new();
    for wanted in chosen {
        let is_wanted = |column: &Named| {
            let names = [column.field.text, &column.name];
            names.iter().any(|name| name.eq_ignore_ascii_case(wanted))
        };
        let [index] = with(&is_wanted)[..] else {
            let what = format!("not one column has the name `{}` (--power-column)", shown(wanted));
            return Err(LineError { column: 1, what });
        };
        indices.push(index);
    }
    if chosen.is_empty() {
        let is_power = Some(Has::Value(Kind::Power));
        indices = with(&|column| column.has == is_power && !column.has_energy());
    }
    if indices.is_empty() {
        indices = with(&|column| column.has_energy());
    }
    if let ([_, second, ..], true) = (&indices[..], chosen.is_empty()) {
        return Err(all[*second].bad(
            "a second column of power or energy; --power-column chooses one, or several to add",
        ));
    }
    let is_alone = all.len() <= 2 || !chosen.is_empty();
    let columns = indices.iter().map(|&index| all[index].value(index, is_alone));
    let columns: Vec<ValueColumn> = columns.collect::<Result<_, _>>()?;
    match columns.iter().find(|column| column.kind != columns[0].kind) {
        Some(other) => Err(all[other.index].bad("only columns of one kind can be added")),
        None => Ok(columns),
    }
}

impl<'a> Named<'a> {
    fn new(field: Field<'a>) -> Self {
        let (name, written) = name_and_unit(field.text);
        let name = name.to_ascii_lowercase();
        let row = TABLE.iter().find(|(.., names)| names.split('|').any(|known| known == name));
        let unit = match written {
            Some(text) => unit(text),
            None if name.ends_with("watt") || name.ends_with("watts") => Some(Unit::WATT),
            None => row.and_then(|(_, unit, _)| *unit),
        };
        Self { field, name, has: row.map(|(has, ..)| *has), written, unit }
    }

    fn bad(&self, what: &str) -> LineError {
        let Field { text, column } = self.field;
        LineError { column, what: format!("`{}`: {what}", shown(text)) }
    }

    /// Whether a column has energy, by its unit or, without one, its name.
    fn has_energy(&self) -> bool {
        self.unit.map_or(self.name.contains("energy"), |unit| unit.measure == Measure::Energy)
    }

    /// The column as one of values; `is_alone` if no other one can have the unit.
    fn value(&self, index: usize, is_alone: bool) -> Result<ValueColumn, LineError> {
        let unit = self.unit.filter(|unit| unit.measure != Measure::Time);
        if self.written.is_some() && unit.is_none() {
            return Err(
                self.bad("the unit is none of W, kW, mW, MW, uJ, mJ, J, kJ, MJ, Wh, kWh and MWh")
            );
        }
        let kind = match (unit, self.has) {
            (Some(Unit { measure: Measure::Power, .. }), _) => Kind::Power,
            (_, Some(Has::Value(kind))) if kind != Kind::Power => kind,
            (Some(unit), _) if unit.is_of_registers() => Kind::Counter,
            (Some(_), _) => {
                return Err(self.bad(
                    "is this a counter of energy, then name it `total energy`, or the energy since \
                     the reading before, then `interval energy`",
                ));
            }
            (None, _) if self.has_energy() => return Err(self.bad("energy needs its unit")),
            (None, _) => Kind::Power,
        };
        let needs_unit = unit.is_none() && (kind != Kind::Power || !is_alone);
        Ok(ValueColumn { index, kind, unit, needs_unit })
    }
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
