//! A run that a command has chosen: the text of its file, and the flags that run it.

use std::path::Path;

use skt_config::{CheckpointDraft, ConfigError, Format, RunSpec, checkpoint, hpldat, toml};
use skt_host::shown::shell_quoted;

pub(super) struct Chosen<'a> {
    pub spec: &'a RunSpec,
    pub protection: &'a CheckpointDraft,
    pub path: &'a Path,
}

impl Chosen<'_> {
    /// The text of the file; in TOML after `comment`, which is whole lines.
    pub(super) fn text(&self, comment: &str) -> Result<String, ConfigError> {
        match Format::from_path(self.path) {
            Format::Dat => hpldat::write(self.spec),
            Format::Toml => {
                let mut text = comment.to_owned() + &toml::write(self.spec);
                if !self.protection.is_empty() {
                    text += &toml::write_checkpoint(self.protection);
                }
                Ok(text)
            }
        }
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
}
