use std::path::PathBuf;

use clap::Args;

use super::failed::Failed;
use super::power::{METER, PowerLogArgs};
use crate::report::html::{self, NamedRun};
use crate::report::reader::{self, Test};
use crate::report::top500::{self, Given};
use crate::report::{hpl_text, output, phases};
use skt_host::messages;
use skt_host::ranges::above_zero;
use skt_run::power::{LogFile, unix_seconds_of};
use skt_run::record::energy::SECONDS_MIN;

/// How exact the times of tests are in HPL's text, in seconds.
const TIME_ROUNDING: f64 = 0.01;

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Reports written by --json, or the text of HPL 2.3
    #[arg(required = true, value_name = "FILE")]
    pub reports: Vec<PathBuf>,
    /// Page to write [default: report.html; with --top500: standard output]
    #[arg(long, short, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Write the fields of a TOP500 and Green500 submission instead of a page
    #[arg(long)]
    pub top500: bool,
    /// Peak rate of the cores that ran, in Gflop/s
    #[arg(long, value_parser = above_zero, value_name = "GFLOPS", requires = "top500")]
    pub rpeak_gflops: Option<f64>,
    /// Mean power over the core phase, in kW
    #[arg(long, value_parser = above_zero, value_name = "KW", requires = "top500")]
    pub(crate) power_kw: Option<f64>,
    /// Log of a power meter, from which the power of the timed parts follows: lines with a time and
    /// a power, e.g. `1700000000.5,412.5`, or what nvidia-smi, turbostat or ipmitool write
    #[arg(long, value_name = "FILE", conflicts_with = "power_kw", group = METER)]
    pub(crate) power_csv: Option<PathBuf>,
    /// How that log is read.
    #[command(flatten)]
    pub(crate) power_log: PowerLogArgs,
    /// Level of the measurement in the methodology of the Green500, which only you can know
    #[arg(long, value_name = "1|2|3", value_parser = clap::value_parser!(u8).range(1..=3),
        requires = "top500")]
    pub power_level: Option<u8>,
    /// Overwrite the file if it exists
    #[arg(long, short)]
    pub force: bool,
}

pub(crate) fn execute(args: &ReportArgs) -> Result<(), Failed> {
    let mut runs = read_runs(&args.reports)?;
    if let Some(path) = &args.power_csv {
        let log = LogFile::read(path, args.power_log.settings()).map_err(usage)?;
        if let Some(lack) = log.lack() {
            messages::print(format_args!("warning: {lack}"));
        }
        add_power(&mut runs, &log)?;
    }
    let (text, default_out) = if args.top500 {
        (submission(args, &runs)?, "-")
    } else {
        (html::page(&runs), "report.html")
    };
    let out = args.out.clone().unwrap_or_else(|| PathBuf::from(default_out));
    output::write_file(&out, &text, args.force)?;
    if !output::is_stdout(&out) {
        messages::print(format_args!("{} written", out.display()));
    }
    Ok(())
}

/// The runs of these files but for those without a result, which are reported; refused if all are.
fn read_runs(files: &[PathBuf]) -> Result<Vec<NamedRun>, Failed> {
    let (mut runs, mut left_out) = (Vec::new(), Vec::new());
    for path in files {
        match hpl_text::parse_any_from(path, &reader::read_text(path).map_err(Failed)?) {
            Ok(report) => runs.push(NamedRun { name: path.display().to_string(), report }),
            Err(why) => left_out.push(why),
        }
    }
    if runs.is_empty() {
        return Err(Failed(left_out.swap_remove(0)));
    }
    for why in left_out {
        messages::print(format_args!("warning: left out: {why}"));
    }
    Ok(runs)
}

fn submission(args: &ReportArgs, runs: &[NamedRun]) -> Result<String, Failed> {
    let ReportArgs { rpeak_gflops, power_kw: power_kilowatts, power_level, .. } = *args;
    top500::sheet(runs, &Given { rpeak_gflops, power_kilowatts, power_level }).map_err(Failed)
}

/// Adds the readings of the log to all completed tests that are long enough to be measured, in
/// place of those that a meter printed during the run.
fn add_power(runs: &mut [NamedRun], log: &LogFile) -> Result<(), Failed> {
    for run in runs {
        for (number, test) in (1..).zip(&mut run.report.tests) {
            let (Some(seconds @ SECONDS_MIN..), Some(gflops)) = (test.time_seconds, test.gflops)
            else {
                continue;
            };
            let name = format!("test {number} of {}", run.name);
            let end = match test.end_unix_seconds {
                Some(end) => end,
                None => end_of_text(test, seconds).map_err(|why| {
                    usage(format!(
                        "{name}: the report has no end_unix_seconds, and {why}: give the JSON \
                         report of the run (--json), by this version"
                    ))
                })?,
            };
            let reading = log.over(&name, end, seconds).map_err(usage)?;
            test.power.retain(|reading| !reading.is_of_meter());
            let reading = reading.rated(gflops, seconds);
            let words = phases::words(&serde_json::to_value(&reading).expect("plain data"));
            messages::print(format_args!("power of {name}: {words}"));
            test.power.insert(0, reading);
        }
    }
    Ok(())
}

/// The end of a test of `seconds` seconds by HPL's text, in seconds since 1970: the middle of what
/// its times allow. They are cut to whole seconds, and taken right at the ends of the timed part.
fn end_of_text(test: &Test, seconds: f64) -> Result<f64, String> {
    let unix = |what: &str, time: &Option<String>| {
        let time = time.as_deref().ok_or_else(|| format!("no {what} time"))?;
        let clock = time.strip_suffix(hpl_text::LOCAL_TIME).unwrap_or(time);
        unix_seconds_of(clock).map_err(|why| format!("its {what} time, `{time}`: {why}"))
    };
    let (start, end) = (unix("start", &test.start)?, unix("end", &test.end)?);
    let by_start = start + seconds;
    if (end - by_start).abs() > 1.0 + TIME_ROUNDING {
        return Err(format!(
            "its start and end times are {} s apart, and its time is {seconds:.2} s",
            end - start
        ));
    }
    Ok(0.5 * (end + by_start + 1.0))
}

fn usage(why: impl ToString) -> Failed {
    Failed::new(why.to_string())
}
