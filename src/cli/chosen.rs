//! A run that a command has chosen: the text of its file, and the flags that run it.

use std::path::Path;

use crate::report::output;
use skt_config::{
    CheckpointDraft, ConfigError, Format, LaunchDraft, RunSpec, checkpoint, hpldat, toml,
};
use skt_host::messages;
use skt_host::shown::shell_quoted;

pub(super) struct Chosen<'a> {
    pub spec: &'a RunSpec,
    pub protection: &'a CheckpointDraft,
    /// TOML alone can hold it.
    pub launch: &'a LaunchDraft,
    pub path: &'a Path,
}

impl Chosen<'_> {
    /// The text of the file; in TOML after `comment`, which is whole lines.
    pub(super) fn text(&self, comment: &str) -> Result<String, ConfigError> {
        if Format::from_path(self.path) == Format::Dat {
            return hpldat::write(self.spec);
        }
        let mut text = comment.to_owned() + &toml::write(self.spec);
        if !self.protection.is_empty() {
            text += &toml::write_checkpoint(self.protection);
        }
        if !self.launch.is_empty() {
            text += &toml::write_launch(self.launch);
        }
        Ok(text)
    }

    /// The words after the program's name, each after a blank: the file, and what it cannot hold.
    pub(super) fn flags(&self) -> String {
        let mut words: Vec<String> = self.spec.mxp.iter().map(|_| "mxp".to_owned()).collect();
        if self.path != Path::new("HPL.dat") {
            words.push(format!("--config {}", shell_quoted(&self.path.display().to_string())));
        }
        if Format::from_path(self.path) == Format::Dat {
            words.extend(hpldat::flags_besides(self.spec));
            words.extend(Some(checkpoint::flags(self.protection)).filter(|it| !it.is_empty()));
        }
        words.iter().map(|word| format!(" {word}")).collect()
    }

    /// Writes the file of the subcommand `made_by`, and prints the lines that start the run.
    pub(super) fn write(&self, made_by: &str, start: &str, force: bool) -> Result<(), ConfigError> {
        let lines =
            |mark: &str| start.lines().map(|it| format!("{mark}  {it}\n")).collect::<String>();
        let comment = format!("# Made by `skt-hpl {made_by}`; run it with\n{}\n", lines("# "));
        output::write_file(self.path, &self.text(&comment)?, force)?;
        if !output::is_stdout(self.path) {
            let path = self.path.display();
            messages::print(format_args!("{path}: run it with\n{}", lines("").trim_end()));
        }
        Ok(())
    }
}
