//! A value as written, and the description of a setting in a table of TOML.

use super::error::ValueSource;

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
    pub place: ValueSource,
}

impl Value {
    /// A whole number that is not from a file or flag.
    pub fn number(number: usize) -> Self {
        Self { text: number.to_string(), form: Form::Integer, place: ValueSource::Default }
    }

    /// A text that is not from a file or flag.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), form: Form::Quoted, place: ValueSource::Default }
    }

    /// The value of a flag.
    pub fn flag(text: impl Into<String>) -> Self {
        Self { text: text.into(), form: Form::Token, place: ValueSource::Flag }
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

/// All that is said of a setting: its key in a table of TOML, its flag, and their texts. The flag,
/// its help, the comments of a written configuration and the messages of errors follow from it.
#[derive(Debug, Clone, Copy)]
pub struct Row<S> {
    /// The setting.
    pub setting: S,
    /// The setting's key in the table.
    pub key: &'static str,
    /// The flag without its dashes, if it is not the key with `-` for `_`.
    pub flag: &'static str,
    /// The heading of the help that the flag is under.
    pub heading: &'static str,
    /// What stands for the flag's value in the help.
    pub metavar: &'static str,
    /// How the setting is written.
    pub written: Written,
    /// Whether the setting is a list.
    pub is_list: bool,
    /// The names to choose from, if it is a choice.
    pub choices: &'static [&'static str],
    /// The smallest and the largest legal number, if they are fixed.
    pub range: Option<(usize, usize)>,
    /// The legal values in words, or words that follow the names of a choice or the range.
    pub legal: &'static str,
    /// The default as it would be written; in words and in brackets if it follows from something
    /// else.
    pub default: &'static str,
    /// What the setting is, for help and comments.
    pub what: &'static str,
    /// The value of the example in the long help; empty for a switch.
    pub example: &'static str,
}

impl<S> Row<S> {
    /// A row that says nothing yet.
    pub const fn of(setting: S) -> Self {
        Self {
            setting,
            key: "",
            flag: "",
            heading: "",
            metavar: "",
            written: Written::Text,
            is_list: false,
            choices: &[],
            range: None,
            legal: "",
            default: "",
            what: "",
            example: "",
        }
    }

    /// The flag without its dashes.
    pub fn flag(&self) -> String {
        if self.flag.is_empty() { self.key.replace('_', "-") } else { self.flag.to_owned() }
    }

    /// Describes the legal values.
    pub fn legal(&self) -> String {
        let range = self.range.map(|(least, most)| format!("{least} to {most}"));
        self.choices.join(", ") + &range.unwrap_or_default() + self.legal
    }

    /// Whether the default is a value and not a description.
    pub fn has_default_value(&self) -> bool {
        !self.default.starts_with('(')
    }

    /// The default as help and manual show it.
    pub fn default_shown(&self) -> &'static str {
        self.default.trim_matches(['(', ')'])
    }
}

/// Defines the enum of the settings of a table together with the table: a setting is one row.
macro_rules! settings {
    (
        $(#[$about_settings:meta])* $name:ident;
        $(#[$about_table:meta])* $table:ident;
        $($setting:ident { $($field:ident: $value:expr),* $(,)? })*
    ) => {
        $(#[$about_settings])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        #[allow(missing_docs)] // each is described in its row of the table
        pub enum $name { $($setting),* }

        $(#[$about_table])*
        pub const $table: &[Row<$name>] =
            &[$(Row { $($field: $value,)* ..Row::of($name::$setting) }),*];

        impl $name {
            /// This setting's row of the table.
            pub fn info(self) -> &'static Row<$name> {
                &$table[self as usize]
            }
        }
    };
}
pub(super) use settings;
