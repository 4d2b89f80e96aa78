use clap::Args;

use skt_host::ranges::finite;
use skt_run::power::LogSettings;

/// The group of the flags that name a meter; each command that reads one has a flag in it.
pub(super) const METER: &str = "meter";

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct PowerLogArgs {
    /// Columns of power or energy of the meter's lines, by their names in the header, whose sum is
    /// taken [default: the one column with a known name]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', requires = METER)]
    power_column: Vec<String>,
    /// Add the power of all sensors that the meter's lines name, e.g. in a column `index`
    #[arg(long, requires = METER)]
    power_sum: bool,
    /// Seconds to add to the meter's times, to have those of the clock of rank 0
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0, value_parser = finite,
        allow_negative_numbers = true, requires = METER)]
    power_clock_offset: f64,
}

impl PowerLogArgs {
    pub(super) fn settings(&self) -> LogSettings {
        LogSettings {
            offset_seconds: self.power_clock_offset,
            columns: self.power_column.clone(),
            adds_sensors: self.power_sum,
        }
    }
}
