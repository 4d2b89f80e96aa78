//! A value as written, and the description of a setting in a table of TOML.

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

/// A value as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    /// The text of the value.
    pub text: String,
    /// The kind of the text.
    pub form: Form,
    /// Where the value was given.
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

    /// The value of a flag.
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
    /// A string with a unit or a word, or a number of seconds.
    Time,
}

/// The description of a setting in a table of TOML.
#[derive(Debug, Clone, Copy)]
pub struct Row<S> {
    /// The setting.
    pub setting: S,
    /// The setting's key in the table.
    pub key: &'static str,
    /// How the setting is written.
    pub written: Written,
    /// Whether the setting is a list.
    pub is_list: bool,
    /// The names to choose from, if it is a choice.
    pub choices: &'static [&'static str],
    /// The legal values in words, or words that follow the names of a choice.
    pub legal: &'static str,
    /// The default as it would be written; in words and in brackets if it follows from something
    /// else.
    pub default: &'static str,
    /// What the setting is, for help and comments.
    pub what: &'static str,
}

impl<S> Row<S> {
    /// Describes the legal values.
    pub fn legal(&self) -> String {
        self.choices.join(", ") + self.legal
    }

    /// Whether the default is a value and not a description.
    pub fn has_default_value(&self) -> bool {
        !self.default.starts_with('(')
    }
}
