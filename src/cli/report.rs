//! `skt-hpl report`: shows runs as an HTML page, or as the fields of a TOP500
//! submission.

use std::path::PathBuf;

use clap::Args;

use super::ranges::above_zero;
use super::study_error::StudyError;
use crate::report::html::{self, NamedRun};
use crate::report::output;
use crate::report::reader::RunReport;
use crate::report::top500::{self, Given};

/// Flags of `report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Reports written by --json
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
    pub power_kw: Option<f64>,
    /// Overwrite the file if it exists
    #[arg(long, short)]
    pub force: bool,
}

/// Writes the page or the sheet.
///
/// # Errors
/// A report cannot be read or has no test to submit, or the output cannot be written.
pub fn execute(args: &ReportArgs) -> Result<(), StudyError> {
    let runs = args
        .reports
        .iter()
        .map(|path| {
            let report = RunReport::read(path)?;
            Ok(NamedRun { name: path.display().to_string(), report })
        })
        .collect::<Result<Vec<_>, StudyError>>()?;
    let (text, default_out) = if args.top500 {
        (submission(args, &runs)?, "-")
    } else {
        (html::page(&runs), "report.html")
    };
    let out = args.out.clone().unwrap_or_else(|| PathBuf::from(default_out));
    if out.as_os_str() == "-" {
        return Ok(output::print(text.as_bytes())?);
    }
    output::write_file(&out, text.as_bytes(), args.force)?;
    output::say(format_args!("{} written", out.display()));
    Ok(())
}

fn submission(args: &ReportArgs, runs: &[NamedRun]) -> Result<String, StudyError> {
    let given = Given { rpeak_gflops: args.rpeak_gflops, power_kilowatts: args.power_kw };
    top500::sheet(runs, &given).map_err(|error| StudyError::Usage(error.to_string()))
}
