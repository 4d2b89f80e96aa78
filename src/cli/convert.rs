use std::path::{Path, PathBuf};

use clap::Args;

use super::chosen::Chosen;
use super::flags::one_of;
use super::hosts;
use crate::report::output;
use skt_config::{Checked, ConfigError, Format, ValidationRules, read_bytes, read_draft, validate};
use skt_host::messages;
use skt_run::protect::Settings;

#[derive(Debug, Args)]
pub(crate) struct ConvertArgs {
    /// What to convert: TOML if it ends in .toml, else HPL.dat
    pub input: PathBuf,
    /// Where to write it; - is standard output, the default
    pub output: Option<PathBuf>,
    /// The form to write [default: TOML if OUTPUT ends in .toml, HPL.dat if in .dat, else the other
    /// form]
    #[arg(long, value_name = "FORM", value_parser = one_of(["dat", "toml"], named))]
    pub to: Option<Format>,
    /// Replace illegal values of HPL.dat as the reference does, with a warning
    #[arg(long)]
    pub lenient: bool,
    /// Overwrite OUTPUT if it exists
    #[arg(long, short)]
    pub force: bool,
}

fn named(name: &str) -> Option<Format> {
    Format::named_by(Path::new(&format!("x.{name}")))
}

pub(crate) fn execute(args: &ConvertArgs) -> Result<(), ConfigError> {
    let file = args.input.display().to_string();
    let from = Format::from_path(&args.input);
    let (draft, warnings) = read_draft(&read_bytes(&args.input)?, &file, from, args.lenient)?;
    let is_mxp = draft.is_of_mxp();
    let rules = ValidationRules { lenient: args.lenient, ranks: None, source: &file, is_mxp };
    let checked = validate(&draft, &rules)?;
    Settings::read(&checked.checkpoint, &checked.spec)?;
    hosts::warn(&warnings);
    hosts::warn(&checked.warnings);
    let named = args.output.as_deref().and_then(Format::named_by);
    let to = args.to.or(named).unwrap_or(from.other());
    let path = Path::new(if to == Format::Dat { "HPL.dat" } else { "HPL.toml" });
    let Checked { spec, checkpoint: protection, launch, .. } = &checked;
    let chosen = Chosen { spec, protection, launch, path };
    let text = chosen.text("")?;
    if to == Format::Dat && !chosen.flags().is_empty() {
        let flags = chosen.flags();
        messages::print(format_args!("warning: HPL.dat cannot hold all of this run: add{flags}"));
    }
    if to == Format::Dat && !launch.is_empty() {
        messages::print(format_args!(
            "warning: launch: HPL.dat cannot hold settings of the launcher; give them to `skt-hpl \
             launch` as flags"
        ));
    }
    match &args.output {
        Some(path) => output::write_file(path, &text, args.force),
        None => output::print(&text),
    }
}
