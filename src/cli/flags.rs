//! The flags of a table of settings (`param.rs`, `checkpoint.rs`, `launch.rs` of skt-config).

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::PathBuf;

use clap::builder::{
    PathBufValueParser, PossibleValue, PossibleValuesParser, StringValueParser, TypedValueParser,
};
use clap::error::Error;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, ValueHint};

use crate::report::output::is_stdout;
use skt_config::value::{Row, Table, Value, Written};

pub(crate) trait Flag: Table {
    /// The setting's argument, whose value is text; or a switch.
    fn arg(self) -> Arg;

    /// Others are read where a command adds them.
    fn is_in_all_commands(self) -> bool {
        true
    }
}

/// Those that were given, as text: they override those of a configuration, and are checked alike.
#[derive(Debug, Clone)]
pub(crate) struct Flags<S>(pub BTreeMap<S, Vec<Value>>);

impl<S> Default for Flags<S> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<S: Flag> Args for Flags<S> {
    fn augment_args(command: Command) -> Command {
        let settings = S::ROWS.iter().map(|row| row.setting);
        command.args(settings.filter(|setting| setting.is_in_all_commands()).map(Flag::arg))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<S: Flag> FromArgMatches for Flags<S> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let given = |row: &Row<S>| {
            let values: Vec<Value> = match matches.try_get_one::<bool>(row.key) {
                Ok(None | Some(false)) => Vec::new(),
                Ok(Some(true)) => vec![Value::flag("true")],
                // It is no switch.
                Err(_) => matches.get_many::<String>(row.key)?.map(Value::flag).collect(),
            };
            (!values.is_empty()).then_some((row.setting, values))
        };
        let rows = S::ROWS.iter().filter(|row| matches.try_contains_id(row.key).is_ok());
        Ok(Self(rows.filter_map(given).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.0.extend(Self::from_arg_matches(matches)?.0);
        Ok(())
    }
}

pub(crate) fn arg<S: Table>(row: &Row<S>) -> Arg {
    let (flag, help) = (row.flag(), help(row));
    let mut arg = Arg::new(row.key).help_heading(row.heading).help(&help);
    if row.is_switch() {
        return arg.long(flag).action(ArgAction::SetTrue);
    }
    let is_number = matches!(row.written, Written::Whole | Written::Real | Written::Time);
    let hint = match row.metavar {
        "FILE" | "FOLDER" => ValueHint::AnyPath,
        _ => ValueHint::Unknown,
    };
    if !row.example.is_empty() {
        arg = arg.long_help(format!("{help}\n\nExample: --{flag} {}", row.example));
    }
    if !row.alias.is_empty() {
        arg = arg.visible_alias(row.alias);
    }
    arg.long(flag)
        .value_name(row.metavar)
        .value_hint(hint)
        .value_parser(Names(row.names()))
        .allow_negative_numbers(is_number)
        .action(if row.is_list { ArgAction::Append } else { ArgAction::Set })
}

fn help<S: Table>(row: &Row<S>) -> String {
    let what = row.sentence();
    if row.is_switch() {
        return what;
    }
    let legal = row.choices.is_empty().then(|| row.legal());
    let default = row.default_shown();
    let default = (!default.is_empty()).then(|| format!("default {default}"));
    let notes: Vec<String> = legal.into_iter().chain(default).collect();
    format!("{what} [{}]", notes.join("; "))
}

/// Parses the name of a file that is written in addition to a report on standard output.
pub(super) fn file_next_to_a_report() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(next_to_a_report)
}

pub(super) fn next_to_a_report(path: PathBuf) -> Result<PathBuf, &'static str> {
    if is_stdout(&path) {
        return Err("a file is needed, as standard output is for the report");
    }
    Ok(path)
}

/// Parses one of `names`, by which `named` finds the value.
pub(super) fn one_of<T: Clone + Send + Sync + 'static, const N: usize>(
    names: [&'static str; N],
    named: fn(&str) -> Option<T>,
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(names).map(move |name| named(&name).expect("one of the names"))
}

/// Accepts any text, and gives help and completions the names of a choice.
#[derive(Clone)]
pub(super) struct Names(pub Vec<&'static str>);

impl TypedValueParser for Names {
    type Value = String;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<String, Error> {
        StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let names = self.0.iter().map(|name| PossibleValue::new(*name));
        (!self.0.is_empty()).then(|| Box::new(names) as Box<dyn Iterator<Item = _>>)
    }
}
