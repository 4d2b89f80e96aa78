//! One value as written, and the settings of a table of TOML, described.

use super::error::Place;

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

impl Value {
    /// A whole number that is not from a file or flag.
    pub fn number(number: usize) -> Self {
        Self { text: number.to_string(), form: Form::Integer, place: Place::Default }
    }

    /// A text that is not from a file or flag.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), form: Form::Quoted, place: Place::Default }
    }

    /// What a flag says.
    pub fn flag(text: impl Into<String>) -> Self {
        Self { text: text.into(), form: Form::Token, place: Place::Flag }
    }
}

/// How a setting is written in TOML.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// A whole number.
    Whole,
    /// `true` or `false`.
    Flag,
    /// A string.
    Text,
    /// A string with a unit or a word, or a number.
    Time,
}

/// A setting of a table of TOML, described.
#[derive(Debug, Clone, Copy)]
pub struct Row<S> {
    /// Which one.
    pub setting: S,
    /// Its key in the table.
    pub key: &'static str,
    /// How it is written.
    pub written: Written,
    /// Whether it is a list.
    pub is_list: bool,
    /// The names to choose from, if it is a choice.
    pub choices: &'static [&'static str],
    /// Legal values in words: what is to be said behind the names, if it is a choice.
    pub legal: &'static str,
    /// The default as it would be written; in words, in brackets, where it
    /// follows from something else.
    pub default: &'static str,
    /// What it is.
    pub what: &'static str,
}

impl<S> Row<S> {
    /// Legal values in words.
    pub fn legal(&self) -> String {
        self.choices.join(", ") + self.legal
    }

    /// Whether the default is a value, not words.
    pub fn has_default_value(&self) -> bool {
        !self.default.starts_with('(')
    }
}
