//! `skt-hpl model`: the figures of the papers, and the simulator.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use super::progress_bar::ProgressBar;
use super::ranges::above_zero;
use super::simulate_args::SimulateArgs;
use super::study_error::StudyError;
use super::{figure, path, simulate};
use crate::model::bosilca::{Application, Platform};
use crate::model::figures;
use crate::model::plot::Figure;
use crate::model::{HOUR_SECONDS, YEAR_SECONDS};
use crate::report::output;
use skt_host::messages;
use skt_host::outfile;

/// Flags of `model`.
#[derive(Debug, Args)]
pub struct ModelArgs {
    /// What to do
    #[command(subcommand)]
    pub command: ModelCommand,
}

/// What `model` can do.
#[derive(Debug, Subcommand)]
pub enum ModelCommand {
    /// Write all figures as SVG and CSV, with an index page
    All(AllArgs),
    /// Write one figure
    Figure(FigureArgs),
    /// List the figures
    List,
    /// Print the waste of every protocol, application and platform of Bosilca et al.
    Waste(WasteArgs),
    /// Simulate a checkpointed job many times
    Simulate(Box<SimulateArgs>),
    /// Predict where the time of a run goes: the critical path of the solver, part by part
    Path(Box<path::PathArgs>),
}

/// Flags of `model all`.
#[derive(Debug, Args)]
pub struct AllArgs {
    /// Folder to write to; created if it is missing
    #[arg(long, short, value_name = "DIR")]
    pub out: PathBuf,
}

/// Flags of `model figure`.
#[derive(Debug, Args)]
pub struct FigureArgs {
    /// Name of the figure, see `model list`
    pub name: String,
    /// File to write, .svg or .csv [default: CSV on standard output]
    #[arg(long, short, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Overwrite the file if it exists
    #[arg(long, short)]
    pub force: bool,
}

/// Flags of `model waste`.
#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
pub struct WasteArgs {
    /// Mean time between failures of one processor, in years
    #[arg(long, value_parser = above_zero, value_name = "YEARS", default_value_t = 50.0)]
    pub processor_mtbf_years: f64,
    /// Time to write the whole memory, in seconds [default: the paper's, by platform]
    #[arg(long, value_parser = above_zero, value_name = "S")]
    pub checkpoint_seconds: Option<f64>,
}

/// Carries out the subcommand.
///
/// # Errors
/// A flag is not legal, a trace cannot be read, or a file cannot be written.
pub fn execute(args: &ModelArgs) -> Result<(), StudyError> {
    match &args.command {
        ModelCommand::All(args) => write_all(&args.out),
        ModelCommand::Figure(args) => write_one(args),
        ModelCommand::List => {
            let width = figures::names().map(str::len).max().unwrap_or(0);
            let line = |(name, title)| format!("{name:width$}  {title}\n");
            Ok(output::print(&figures::titles().map(line).collect::<String>())?)
        }
        ModelCommand::Waste(args) => print_waste(args),
        ModelCommand::Simulate(args) => simulate::execute(args),
        ModelCommand::Path(args) => path::execute(args),
    }
}

fn write_all(folder: &Path) -> Result<(), StudyError> {
    fs::create_dir_all(folder).map_err(StudyError::file("create", folder))?;
    let names: Vec<&str> = figures::names().collect();
    let bar = ProgressBar::new("figures", names.len());
    let mut made: Vec<Figure> = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let figure = figures::make(name)?;
        write(&folder.join(format!("{name}.svg")), &figure.svg())?;
        write(&folder.join(format!("{name}.csv")), &figure.csv())?;
        made.push(figure);
        bar.show(index + 1);
    }
    bar.end();
    let index = folder.join("index.html");
    write(&index, &figures::index_page(&made))?;
    messages::print(format_args!("{} figures; open {}", made.len(), index.display()));
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<(), StudyError> {
    outfile::write(path, text.as_bytes()).map_err(StudyError::file("write", path))
}

fn write_one(args: &FigureArgs) -> Result<(), StudyError> {
    let figure = figures::make(&args.name)?;
    let Some(path) = &args.out else { return Ok(output::print(&figure.csv())?) };
    figure::write(&figure, path, args.force)
}

fn print_waste(args: &WasteArgs) -> Result<(), StudyError> {
    let mut csv = String::from(
        "platform,application,scenario,groups,checkpoint_seconds,growth_per_second,\
         platform_mtbf_hours,valid_period_seconds,valid_waste_fraction,best_period_seconds,\
         best_waste_fraction,best_validity\n",
    );
    for mut platform in Platform::ALL {
        if let Some(seconds) = args.checkpoint_seconds {
            platform = platform.with_checkpoint_seconds(seconds);
        }
        let mtbf_seconds = platform.mtbf_seconds(args.processor_mtbf_years * YEAR_SECONDS);
        for application in Application::ALL {
            for scenario in application.scenarios() {
                let model = scenario.model(&platform, application);
                let valid = model.best_valid_period(mtbf_seconds)?;
                let best = model.best_period(mtbf_seconds)?;
                let period =
                    |p: Option<f64>| p.map_or_else(String::new, |seconds| format!("{seconds:.1}"));
                csv += &format!(
                    "{},{},{},{},{:.4},{:.4e},{:.4},{},{:.4},{},{:.4},{:?}\n",
                    platform.name,
                    application.name(),
                    scenario.name(),
                    model.groups,
                    model.checkpoint_seconds,
                    model.growth_per_second,
                    mtbf_seconds / HOUR_SECONDS,
                    period(valid.period_seconds),
                    valid.waste,
                    period(best.period_seconds),
                    best.waste,
                    best.validity
                );
            }
        }
    }
    Ok(output::print(&csv)?)
}
