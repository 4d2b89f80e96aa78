mod output;
mod path;
mod progress_bar;
mod published;
mod simulate;
mod simulate_args;
mod simulate_jobs;
mod stated_levels;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::plot::Figure;
use clap::{Args, CommandFactory as _, Parser, Subcommand};
use skt_host::exit::Exit;
use skt_host::infile::{self, LIST_BYTES_MAX};
use skt_host::ranges::above_zero;
use skt_host::{launcher_rank, messages, outfile, streams};
use skt_model::{HOUR_SECONDS, YEAR_SECONDS};

use crate::bosilca::{Application, Platform};
use crate::{StudyError, figures};
use progress_bar::ProgressBar;
use simulate_args::SimulateArgs;

#[derive(Debug, Parser)]
#[command(
    name = "skt-studies",
    version,
    about = "The theory of checkpointed runs: figures, tables, simulations",
    max_term_width = 100
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Draw all figures, with an index page
    All(AllArgs),
    /// Draw one figure, or print its numbers
    Figure(FigureArgs),
    /// List the names and titles of all figures
    List,
    /// Draw the figures of raw runs that scripts/measure/papers and benches/encoding.rs have kept
    Measured(MeasuredArgs),
    /// Predict where the time of a run goes: the critical path of the solver, part by part
    Path(Box<path::PathArgs>),
    /// Print the waste of Bosilca's platforms, at the best period of each protocol
    Waste(WasteArgs),
    /// Compare the model's predictions with published runs of HPL on a cluster of others
    Published,
    /// Simulate a job whose nodes fail, and compare it with the formulas
    Simulate(Box<SimulateArgs>),
}

#[derive(Debug, Args)]
struct AllArgs {
    /// Folder for an SVG and a CSV file of each figure, and index.html
    #[arg(long, short, value_name = "DIR")]
    out: PathBuf,
}

#[derive(Debug, Args)]
struct FigureArgs {
    /// Name of the figure, as `list` prints it
    name: String,
    /// File for the figure, .svg or .csv [default: its numbers on standard output]
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Overwrite the file if it exists
    #[arg(long, short)]
    force: bool,
}

#[derive(Debug, Args)]
struct MeasuredArgs {
    /// File of raw runs, `figure,series,x,value`
    file: PathBuf,
    /// Folder for an SVG and a CSV file of each figure [default: numbers on standard output]
    #[arg(long, short, value_name = "DIR")]
    out: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
struct WasteArgs {
    /// Mean time between failures of one processor, in years
    #[arg(long, value_parser = above_zero, value_name = "YEARS", default_value_t = 50.0)]
    processor_mtbf_years: f64,
    /// Time to write the whole memory, in seconds [default: the paper's, by platform]
    #[arg(long, value_parser = above_zero, value_name = "S")]
    checkpoint_seconds: Option<f64>,
}

pub fn command() -> clap::Command {
    Cli::command()
}

pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            if launcher_rank::is_first() {
                streams::die_quietly_on_closed_pipe();
                // If even this cannot be written, there is no way to report it.
                let _ = error.print();
            }
            return if error.use_stderr() { Exit::BadInput } else { Exit::Passed }.into();
        }
    };
    // One process of a job writes the text and the files.
    if !launcher_rank::is_first() {
        return Exit::Passed.into();
    }
    streams::die_quietly_on_closed_pipe();
    match execute(&cli.command) {
        Ok(()) => Exit::Passed.into(),
        Err(error) => {
            messages::print(format_args!("error: {error}"));
            Exit::BadInput.into()
        }
    }
}

fn execute(command: &Command) -> Result<(), StudyError> {
    match command {
        Command::All(args) => write_all(&args.out),
        Command::Figure(args) => write_one(args),
        Command::List => {
            let width = figures::names().map(str::len).max().unwrap_or(0);
            let line = |(name, title)| format!("{name:width$}  {title}\n");
            output::print(&figures::titles().map(line).collect::<String>())
        }
        Command::Measured(args) => draw_measured(args),
        Command::Path(args) => path::execute(args),
        Command::Waste(args) => print_waste(args),
        Command::Published => published::execute(),
        Command::Simulate(args) => simulate::execute(args),
    }
}

fn write_all(folder: &Path) -> Result<(), StudyError> {
    fs::create_dir_all(folder).map_err(StudyError::file("create", folder))?;
    let names: Vec<&str> = figures::names().collect();
    let bar = ProgressBar::new("figures", names.len());
    let mut made: Vec<Figure> = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let figure = figures::make(name)?;
        write_both(folder, &figure)?;
        made.push(figure);
        bar.show(index + 1);
    }
    bar.end();
    let index = folder.join("index.html");
    write(&index, &figures::index_page(&made))?;
    messages::print(format_args!("{} figures; open {}", made.len(), index.display()));
    Ok(())
}

/// Writes a figure as a drawing and as numbers.
fn write_both(folder: &Path, figure: &Figure) -> Result<(), StudyError> {
    write(&folder.join(format!("{}.svg", figure.id)), &figure.svg())?;
    write(&folder.join(format!("{}.csv", figure.id)), &figure.csv())
}

fn draw_measured(args: &MeasuredArgs) -> Result<(), StudyError> {
    let text = infile::read_text(&args.file, LIST_BYTES_MAX)
        .map_err(StudyError::file("read", &args.file))?;
    let figures = figures::measured(&text)?;
    let Some(folder) = &args.out else {
        return output::print(&figures.iter().map(Figure::csv).collect::<Vec<_>>().join("\n"));
    };
    fs::create_dir_all(folder).map_err(StudyError::file("create", folder))?;
    figures.iter().try_for_each(|figure| write_both(folder, figure))
}

fn write(path: &Path, text: &str) -> Result<(), StudyError> {
    outfile::write(path, text.as_bytes()).map_err(StudyError::file("write", path))
}

fn write_one(args: &FigureArgs) -> Result<(), StudyError> {
    let figure = figures::make(&args.name)?;
    let Some(path) = &args.out else { return output::print(&figure.csv()) };
    output::write_figure(&figure, path, args.force)
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
    output::print(&csv)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clap_finds_no_fault_with_the_flags() {
        Cli::command().debug_assert();
    }

    #[test]
    fn each_command_and_argument_is_described() {
        for command in Cli::command().get_subcommands() {
            assert!(command.get_about().is_some(), "{}", command.get_name());
            for argument in command.get_arguments() {
                assert!(argument.get_help().is_some(), "{} {argument}", command.get_name());
            }
        }
    }
}
