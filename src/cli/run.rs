//! `skt-hpl [run]`: the benchmark.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};

use super::exit::Exit;
use super::overrides::Overrides;
use super::{launcher_rank, output};
use crate::config::{
    Checked, ConfigError, Draft, Format, Rules, RunSpec, Warning, read_bytes, read_draft, validate,
};

const FILES: &str = "Input and output";

/// How progress is shown on standard error.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Progress {
    /// Live on a terminal, plain elsewhere
    #[default]
    Auto,
    /// Nothing
    Off,
    /// A line every few seconds
    Plain,
    /// One line that is rewritten
    Live,
}

/// Flags of the benchmark.
#[derive(Debug, Clone, Default, Args)]
pub struct RunArgs {
    /// Configuration: TOML if it ends in .toml, else HPL.dat [default: HPL.dat in the current
    /// folder]
    #[arg(long, short, value_name = "FILE", help_heading = FILES)]
    pub config: Option<PathBuf>,
    /// Do with illegal values of HPL.dat what the reference does, with a warning, instead of
    /// stopping
    #[arg(long, help_heading = FILES)]
    pub lenient: bool,
    /// Where the report goes: stdout, stderr, or a file [default: what the configuration says]
    #[arg(long, short, value_name = "FILE", help_heading = FILES)]
    pub out: Option<String>,
    /// Also write everything that is known of the run as one JSON document
    #[arg(long, value_name = "FILE", help_heading = FILES)]
    pub json: Option<PathBuf>,
    /// Progress on standard error
    #[arg(long, value_name = "HOW", value_enum, default_value_t, help_heading = FILES)]
    pub progress: Progress,
    /// Flags that override the configuration.
    #[command(flatten)]
    pub overrides: Overrides,
    /// Ranks of the job, once they are known for sure; until then what the
    /// launcher says.
    #[arg(skip)]
    pub ranks: Option<usize>,
}

/// The run that these flags and the file they name describe.
///
/// # Errors
/// See [`ConfigError`].
pub fn load(args: &RunArgs) -> Result<(RunSpec, Vec<Warning>), ConfigError> {
    load_checked(args).map(|checked| (checked.spec, checked.warnings))
}

/// As [`load`]; the result can still say where a value came from, see
/// [`Checked::require_ranks`].
///
/// # Errors
/// See [`ConfigError`].
pub fn load_checked(args: &RunArgs) -> Result<Checked, ConfigError> {
    let flags = args.overrides.draft(args.out.as_deref())?;
    let (file, mut draft, mut warnings) = match &args.config {
        Some(path) => read_file(path, args.lenient)?,
        None => read_default(args, &flags)?,
    };
    draft.overlay(flags);
    let ranks = args.ranks.or_else(launcher_rank::size).unwrap_or(1);
    let rules = Rules { lenient: args.lenient, ranks: Some(ranks), source: &file };
    let mut checked = validate(&draft, &rules)?;
    warnings.append(&mut checked.warnings);
    checked.warnings = warnings;
    Ok(checked)
}

type Source = (String, Draft, Vec<Warning>);

/// HPL.dat in the current folder; without one the flags alone must do.
fn read_default(args: &RunArgs, flags: &Draft) -> Result<Source, ConfigError> {
    match read_file(Path::new("HPL.dat"), args.lenient) {
        Err(ConfigError::Read { source, .. }) if source.kind() == ErrorKind::NotFound => {
            if flags.values.contains_key(&crate::config::param::Param::N) {
                return Ok(("command line".to_owned(), Draft::default(), Vec::new()));
            }
            let folder = std::env::current_dir()
                .map_or("the current folder".to_owned(), |dir| dir.display().to_string());
            Err(ConfigError::NoConfig { folder })
        }
        other => other,
    }
}

fn read_file(path: &Path, lenient: bool) -> Result<Source, ConfigError> {
    let file = path.display().to_string();
    let (draft, warnings) = read_draft(&read_bytes(path)?, &file, Format::of(path), lenient)?;
    Ok((file, draft, warnings))
}

/// Runs the benchmark.
pub fn execute(args: &RunArgs) -> ExitCode {
    match load_checked(args) {
        Ok(checked) => {
            if launcher_rank::is_first() {
                for warning in &checked.warnings {
                    output::say(format_args!("warning: {warning}"));
                }
            }
            Exit::Passed.into()
        }
        Err(error) => {
            if launcher_rank::is_first() {
                output::say(format_args!("error: {error}"));
            }
            Exit::BadInput.into()
        }
    }
}
