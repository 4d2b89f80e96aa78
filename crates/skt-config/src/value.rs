use std::fmt;

use super::source::ValueSource;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Plain text: a token of HPL.dat or of the command line.
    Token,
    /// A TOML integer, in decimal digits.
    Integer,
    Float,
    Quoted,
    Boolean,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    pub text: String,
    pub form: Form,
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

    pub fn flag(text: impl Into<String>) -> Self {
        Self { text: text.into(), form: Form::Token, place: ValueSource::Flag }
    }
}

/// How a setting is written in TOML.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    Whole,
    /// A finite real number.
    Real,
    /// `true` or `false`.
    Flag,
    Text,
    /// A string with a unit or a word, or a number of seconds.
    Time,
}

pub trait Table: Copy + Ord + std::fmt::Debug + 'static {
    /// What holds the typed values of the settings.
    type Typed;
    /// What a single typed value can do.
    type Field: ?Sized;
    const ROWS: &'static [Row<Self>];
    /// Whether the code of a choice is legal as well as its name.
    const HAS_CODES: bool;
}

#[derive(Debug, Clone, Copy)]
pub struct DatLine {
    /// The line with the values, from 1. The count of a list is in the line before; that of Qs is
    /// that of Ps.
    pub line: usize,
    /// The name in the comment.
    pub name: &'static str,
    /// What follows the name in the comment, with `{codes}` for the codes of a choice.
    pub note: &'static str,
    /// The comment of the count, for a list.
    pub count: &'static str,
    /// The value that the reference substitutes for an illegal one, without a message.
    pub substitute: Option<usize>,
}

impl DatLine {
    /// A line without all that is optional.
    pub(crate) const NONE: Self = Self { line: 0, name: "", note: "", count: "", substitute: None };
}

/// The largest value of a C `int`, which the reference and MPI count with.
pub(crate) const INT_MAX: usize = i32::MAX as usize;

/// Both ends are legal. Doubles hold the limits of whole numbers exactly.
#[derive(Debug, Clone, Copy)]
pub struct Range {
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Range {
    pub(crate) const fn whole(least: usize, most: usize) -> Self {
        Self { least: least as f64, most: most as f64 }
    }

    pub fn contains(self, text: &str) -> bool {
        text.parse().is_ok_and(|number| (self.least..=self.most).contains(&number))
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.most == INT_MAX as f64 {
            write!(f, "{} or more", self.least)
        } else {
            write!(f, "{} to {}", self.least, self.most)
        }
    }
}

pub(crate) type Access<S> = fn(&mut <S as Table>::Typed) -> &mut <S as Table>::Field;

/// All facts about a setting. The flag, its help, the comments of a written configuration, the
/// messages of errors and the rows of the manual follow from it.
#[derive(Debug, Clone, Copy)]
pub struct Row<S: Table> {
    pub setting: S,
    pub key: &'static str,
    /// The flag without its dashes, if it is not the key with `-` for `_`.
    pub flag: &'static str,
    /// A second name of the flag, without its dashes; may be empty.
    pub alias: &'static str,
    pub heading: &'static str,
    /// What stands for the flag's value in the help.
    pub metavar: &'static str,
    pub written: Written,
    pub is_list: bool,
    /// The names to choose from, if it is a choice: the first of each is written, the others are
    /// accepted, too. Where codes are legal, they are the indices.
    pub choices: &'static [&'static [&'static str]],
    /// The smallest and the largest legal number, if they are fixed.
    pub range: Option<Range>,
    /// The legal values in words, or words that follow the names of a choice or the range.
    pub legal: &'static str,
    /// The default as it would be written; in words and in brackets if it follows from something
    /// else; empty if there is none.
    pub default: &'static str,
    /// What the setting is, for help and manual, and for comments without a text of their own.
    pub help: &'static str,
    /// What the manual adds.
    pub more: &'static str,
    /// The comment in TOML, with `{legal}` for the legal values, where it is not `help`.
    pub comment: &'static str,
    /// The value of the example in the long help; empty for none.
    pub example: &'static str,
    pub dat: Option<DatLine>,
    /// The typed value, if it follows from the text alone.
    pub field: Option<Access<S>>,
}

impl<S: Table> Row<S> {
    pub(crate) const fn new(setting: S) -> Self {
        Self {
            setting,
            key: "",
            flag: "",
            alias: "",
            heading: "",
            metavar: "",
            written: Written::Text,
            is_list: false,
            choices: &[],
            range: None,
            legal: "",
            default: "",
            help: "",
            more: "",
            comment: "",
            example: "",
            dat: None,
            field: None,
        }
    }

    /// The flag without its dashes.
    pub fn flag(&self) -> String {
        if self.flag.is_empty() { self.key.replace('_', "-") } else { self.flag.to_owned() }
    }

    /// Whether a value of TOML has the form in which the setting is written.
    pub(crate) fn fits(&self, form: Form) -> bool {
        match self.written {
            Written::Whole => form == Form::Integer,
            Written::Real => matches!(form, Form::Integer | Form::Float),
            Written::Flag => form == Form::Boolean,
            Written::Text => form == Form::Quoted,
            Written::Time => matches!(form, Form::Quoted | Form::Integer | Form::Float),
        }
    }

    /// What the setting is, with a capital letter.
    pub fn sentence(&self) -> String {
        self.help[..1].to_uppercase() + &self.help[1..]
    }

    /// Whether the flag has no value.
    pub fn is_switch(&self) -> bool {
        self.written == Written::Flag && self.choices.is_empty()
    }

    /// The names of the choices that are written.
    pub fn names(&self) -> Vec<&'static str> {
        self.choices.iter().map(|names| names[0]).collect()
    }

    pub fn legal(&self) -> String {
        let name = |(code, names): (usize, &&[&'static str])| {
            if S::HAS_CODES { format!("{} ({code})", names[0]) } else { names[0].to_owned() }
        };
        let names: Vec<_> = self.choices.iter().enumerate().map(name).collect();
        names.join(", ") + &self.legal_range() + self.legal
    }

    pub(crate) fn legal_range(&self) -> String {
        self.range.map_or(String::new(), |range| range.to_string())
    }

    /// Whether the default is a value and not a description.
    pub(crate) fn has_default_value(&self) -> bool {
        !self.default.is_empty() && !self.default.starts_with('(')
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
        type Typed = $typed:ty;
        type Field = $field_type:ty;
        const HAS_CODES: bool = $has_codes:expr;
        $($setting:ident { $($field:ident: $value:expr),* $(,)? })*
    ) => {
        $(#[$about_settings])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name { $($setting),* }

        $(#[$about_table])*
        pub const $table: &[Row<$name>] =
            &[$(Row { $($field: $value,)* ..Row::new($name::$setting) }),*];

        impl Table for $name {
            type Typed = $typed;
            type Field = $field_type;
            const ROWS: &'static [Row<Self>] = $table;
            const HAS_CODES: bool = $has_codes;
        }

        impl $name {
            pub fn info(self) -> &'static Row<$name> {
                &$table[self as usize]
            }
        }
    };
}
pub(super) use settings;
