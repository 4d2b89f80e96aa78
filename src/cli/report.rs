//! `skt-hpl report`: shows runs as an HTML page or as the fields of a TOP500 submission, or packs
//! one into an archive.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use skt_terms::shown::printable;

use super::tool_error::ToolError;
use crate::report::bundle;
use crate::report::html::{self, NamedRun};
use crate::report::output;
use crate::report::reader::{self, RunReport};
use crate::report::top500::{self, Given};
use skt_host::messages;
use skt_run::power::LogFile;
use skt_run::record::energy::SECONDS_MIN;
use skt_terms::ranges::{above_zero, finite};

#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Reports written by --json, or archives written by --bundle
    #[arg(required = true, value_name = "FILE")]
    pub reports: Vec<PathBuf>,
    /// Page to write [default: report.html; with --top500: standard output]
    #[arg(long, short, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Write the fields of a TOP500 and Green500 submission instead of a page
    #[arg(long)]
    pub top500: bool,
    /// Pack one run into a tar.gz archive for a submission: the report, configuration, command
    /// line, environment, JSON, page and SHA256SUMS; with --top500 its fields, too
    #[arg(long, value_name = "FILE", conflicts_with = "out")]
    pub bundle: Option<PathBuf>,
    /// Peak rate of the cores that ran, in Gflop/s
    #[arg(long, value_parser = above_zero, value_name = "GFLOPS", requires = "top500")]
    pub rpeak_gflops: Option<f64>,
    /// Mean power over the core phase, in kW
    #[arg(long, value_parser = above_zero, value_name = "KW", requires = "top500")]
    pub(crate) power_kw: Option<f64>,
    /// Log of the site's power meter, from which the power of the timed parts follows: lines with
    /// seconds since 1970 and watts, e.g. `1700000000.5,412.5`; a header may name columns and unit
    #[arg(long, value_name = "FILE", conflicts_with = "power_kw")]
    pub(crate) power_csv: Option<PathBuf>,
    /// Seconds to add to the times of that log, to have those of the clock of rank 0
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0, value_parser = finite,
        allow_negative_numbers = true, requires = "power_csv")]
    pub(crate) power_clock_offset: f64,
    /// Level of the measurement in the methodology of the Green500, which nobody but you can know
    #[arg(long, value_name = "1|2|3", value_parser = clap::value_parser!(u8).range(1..=3),
        requires = "top500")]
    pub power_level: Option<u8>,
    /// Overwrite the file if it exists
    #[arg(long, short)]
    pub force: bool,
}

pub fn execute(args: &ReportArgs) -> Result<(), ToolError> {
    let texts = args.reports.iter().map(|path| reader::read_text(path));
    let texts: Vec<String> = texts.collect::<Result<_, _>>()?;
    let named = |(path, text): (&PathBuf, &String)| {
        let report = RunReport::parse_from(path, text)?;
        Ok(NamedRun { name: path.display().to_string(), report })
    };
    let runs = args.reports.iter().zip(&texts).map(named);
    let mut runs = runs.collect::<Result<Vec<_>, ToolError>>()?;
    if let Some(path) = &args.power_csv {
        let log = LogFile::read(path, args.power_clock_offset).map_err(usage)?;
        add_power(&mut runs, &log)?;
    }
    if let Some(archive) = &args.bundle {
        return pack(args, &runs, &texts, archive);
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

fn pack(
    args: &ReportArgs,
    runs: &[NamedRun],
    texts: &[String],
    archive: &Path,
) -> Result<(), ToolError> {
    let ([run], [text]) = (runs, texts) else {
        return Err(usage(format!("--bundle packs one run, not {}", runs.len())));
    };
    let from = &run.name;
    // The archive is the same under whatever name its report was.
    let run = NamedRun { name: bundle::REPORT.to_owned(), report: run.report.clone() };
    let mut extra = Vec::new();
    if args.top500 {
        let sheet = submission(args, std::slice::from_ref(&run))?;
        extra.push(("top500.txt", printable(&sheet).into_owned().into_bytes()));
    }
    if let Some(log) = &args.power_csv {
        extra.push(("power.csv", fs::read(log).map_err(ToolError::file("read", log))?));
    }
    let packed = bundle::from_report(text, &run, extra);
    let packed = packed.map_err(|why| usage(format!("'{from}': {why}")))?;
    output::write_bytes(archive, &packed, args.force)?;
    if !run.report.finished {
        messages::print(format_args!("warning: the run has not finished"));
    }
    messages::print(format_args!("{} written", archive.display()));
    Ok(())
}

fn submission(args: &ReportArgs, runs: &[NamedRun]) -> Result<String, ToolError> {
    let ReportArgs { rpeak_gflops, power_kw: power_kilowatts, power_level, .. } = *args;
    top500::sheet(runs, &Given { rpeak_gflops, power_kilowatts, power_level }).map_err(usage)
}

/// Adds the readings of the log to all completed tests that are long enough to be measured, in
/// place of those that a meter printed during the run.
fn add_power(runs: &mut [NamedRun], log: &LogFile) -> Result<(), ToolError> {
    for run in runs {
        for (number, test) in (1..).zip(&mut run.report.tests) {
            let (Some(seconds @ SECONDS_MIN..), Some(gflops)) = (test.time_seconds, test.gflops)
            else {
                continue;
            };
            let name = format!("test {number} of {}", run.name);
            let end = test.end_unix_seconds.ok_or_else(|| {
                usage(format!(
                    "{name}: the report has no end_unix_seconds, as it is of an older version"
                ))
            })?;
            let reading = log.over(&name, end, seconds).map_err(usage)?;
            test.power.retain(|reading| !reading.is_of_meter());
            test.power.insert(0, reading.rated(gflops, seconds));
        }
    }
    Ok(())
}

fn usage(why: impl ToString) -> ToolError {
    ToolError::Usage(why.to_string())
}
