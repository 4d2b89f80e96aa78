//! A configuration as written: values with their line, key or flag, not yet checked.
//!
//! HPL.dat, TOML and the command line each give a [`Draft`]. Flags override the file, and only
//! [`super::validate()`] decides what is legal.

use std::collections::BTreeMap;

use super::checkpoint::{CheckpointDraft, Setting};
use super::error::{ConfigError, Warning};
use super::launch::LaunchDraft;
use super::param::Param;
use super::source::ValueSource;
use super::spec::Output;
use super::value::Value;
use skt_checkpoint::checkpoint::methods::Method;

#[derive(Debug, Clone, Default)]
pub struct Draft {
    pub title: Option<[String; 2]>,
    pub output: Option<Output>,
    /// Whether it is from an HPL-MxP.dat, see [`super::hpldat`].
    pub has_mxp_form: bool,
    /// Where an HPL.dat ends too early, whose last value is read again, as the reference does.
    pub ends_early: Option<Warning>,
    pub values: BTreeMap<Param, Vec<Value>>,
    pub checkpoint: CheckpointDraft,
    pub launch: LaunchDraft,
}

impl Draft {
    /// Overrides this draft by what the flags of `other` give.
    pub fn overlay(&mut self, other: Draft) {
        if other.title.is_some() {
            self.title = other.title;
        }
        if other.output.is_some() {
            self.output = other.output;
        }
        self.values.extend(other.values);
        self.checkpoint.extend(other.checkpoint);
        self.launch.extend(other.launch);
    }

    /// If the command line switches protection off, removes the file's settings that would be
    /// refused without it. Returns a warning about each.
    pub fn drop_unprotected(&mut self) -> Vec<Warning> {
        const REFUSED: [Setting; 4] =
            [Setting::Level, Setting::HelperCores, Setting::CheckEvery, Setting::OnLoss];
        let method = self.checkpoint.get(&Setting::Method);
        if !method.is_some_and(|v| v.place == ValueSource::Flag && v.text == Method::None.name()) {
            return Vec::new();
        }
        let mut warnings = Vec::new();
        for setting in REFUSED {
            let value =
                self.checkpoint.get(&setting).filter(|value| value.place != ValueSource::Flag);
            if let Some(at) = value.map(|value| setting.at(&value.place)) {
                warnings.push(Warning { at, what: "is not used with --ft none".to_owned() });
                self.checkpoint.remove(&setting);
            }
        }
        warnings
    }

    /// The error that the file ends too early, if it does, in place of one of what was read again.
    pub(crate) fn explained(&self, error: ConfigError) -> ConfigError {
        match &self.ends_early {
            Some(Warning { at, what }) => at.clone().error(what.clone()),
            None => error,
        }
    }

    /// Whether it is for HPL-MxP: by a parameter that HPL does not have, or by its form.
    pub fn is_of_mxp(&self) -> bool {
        self.has_mxp_form || Param::OF_MXP.iter().any(|param| self.values.contains_key(param))
    }

    pub(crate) fn place(&self, param: Param) -> ValueSource {
        match self.values.get(&param).and_then(|v| v.first()) {
            Some(value) => value.place.clone(),
            None => ValueSource::Default,
        }
    }
}
