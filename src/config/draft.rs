//! A configuration as written: values with their places, not yet checked.
//!
//! HPL.dat, TOML and the command line each give a [`Draft`]; one laid over the
//! other they go to [`super::validate()`], which alone decides what is legal.

use std::collections::BTreeMap;

use super::checkpoint::CheckpointDraft;
use super::error::Place;
use super::launch::LaunchDraft;
use super::param::Param;
use super::spec::Output;

/// How a value was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Plain text: a token of HPL.dat or of the command line.
    Token,
    /// A TOML integer, in decimal digits.
    Integer,
    /// A TOML float.
    Float,
    /// A TOML string.
    Quoted,
    /// A TOML boolean.
    Boolean,
}

/// One value as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    /// Its text.
    pub text: String,
    /// How it was written.
    pub form: Form,
    /// Where.
    pub place: Place,
}

/// A configuration as written.
#[derive(Debug, Clone, Default)]
pub struct Draft {
    /// The two title lines.
    pub title: Option<[String; 2]>,
    /// Where the report goes.
    pub output: Option<Output>,
    /// Values of the parameters that were given.
    pub values: BTreeMap<Param, Vec<Value>>,
    /// Settings of the protection that were given.
    pub checkpoint: CheckpointDraft,
    /// Settings of `skt-hpl launch` that were given.
    pub launch: LaunchDraft,
}

impl Value {
    /// A whole number that nobody wrote.
    pub fn number(number: usize) -> Self {
        Self { text: number.to_string(), form: Form::Integer, place: Place::Default }
    }

    /// A text that nobody wrote.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), form: Form::Quoted, place: Place::Default }
    }

    /// What a flag says.
    pub fn flag(text: impl Into<String>) -> Self {
        Self { text: text.into(), form: Form::Token, place: Place::Flag }
    }
}

impl Draft {
    /// Takes over what `other` says; the rest stays.
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

    /// Where this parameter was given.
    pub fn place(&self, param: Param) -> Place {
        match self.values.get(&param).and_then(|v| v.first()) {
            Some(value) => value.place.clone(),
            None => Place::Default,
        }
    }
}
