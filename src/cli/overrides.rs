use clap::{Arg, ArgAction, Args};

use super::flags::{self, Flag, Flags};
use skt_config::param::Param;
use skt_config::value::Value;
use skt_config::{At, CheckpointDraft, ConfigError, Draft, Output, Setting};
use skt_health::environment::library::VARIABLE;
use skt_run::protect::Inject;

/// Flags that override a configuration. Values are kept as text, because the validator of
/// configurations checks names and HPL.dat codes alike.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Overrides {
    /// The parameters that were given.
    #[command(flatten)]
    pub(super) given: Flags<Param>,
}

impl Flag for Param {
    fn arg(self) -> Arg {
        let mut arg = flags::arg(self.info());
        if self == Self::Blas {
            arg = arg.env(VARIABLE).hide_env_values(true);
        }
        // A list has commas in one flag, and a flag that is repeated adds to it.
        if self.info().is_list { arg.value_delimiter(',').action(ArgAction::Append) } else { arg }
    }

    fn is_in_all_commands(self) -> bool {
        !self.is_of_mxp()
    }
}

impl Overrides {
    /// The flags as a draft that overrides a file's draft. `out` names the report's file.
    pub(crate) fn draft(&self, out: Option<&str>) -> Result<Draft, ConfigError> {
        let mut draft = Draft::default();
        if let Some(name) = out {
            let named = if name == "-" { Ok(Output::Stdout) } else { Output::from_name(name) };
            draft.output = Some(named.map_err(|what| At::flag("--out").error(what))?);
        }
        draft.values.extend(self.given.0.clone());
        Ok(draft)
    }
}

const PROTECTION: &str = "Protection against the loss of nodes";

/// The flags of the protection: those of the table, and that of faults.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ProtectArgs {
    /// The flags that override the `[checkpoint]` table of a configuration.
    #[command(flatten)]
    pub(super) settings: Flags<Setting>,
    /// Kill a rank, once. WHAT (on rank 0) or RANK@WHAT, where WHAT is a step of the protocol
    /// (encode:3, flush:tile=7, recover:rebuild), column:J, time:SECONDS, or back.
    /// flip:RANK@column:J flips a bit of that rank's matrix, with abft. May be repeated
    #[arg(long, value_name = "FAULT", help_heading = PROTECTION)]
    pub(super) inject: Vec<Inject>,
}

impl Flag for Setting {
    fn arg(self) -> Arg {
        let arg = flags::arg(self.info()).help_heading(PROTECTION);
        match self {
            Self::Every | Self::Mtbf => arg.allow_hyphen_values(true),
            Self::Level => arg.action(ArgAction::Append),
            // A supervisor appends the time that is left, and how a later start resumes, to the
            // user's flags.
            Self::TimeLimit | Self::Resume => arg.overrides_with(self.info().key),
            _ => arg,
        }
    }
}

impl ProtectArgs {
    pub(crate) fn draft(&self) -> CheckpointDraft {
        let text = |values: &[Value]| -> Vec<String> {
            values.iter().map(|value| value.text.clone()).collect()
        };
        let given = self.settings.0.iter();
        given.map(|(setting, values)| (*setting, Value::flag(text(values).join(",")))).collect()
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser};

    use super::*;
    use skt_config::checkpoint::SETTINGS;
    use skt_config::param::{IGNORED, PARAMS};
    use skt_config::value::{Row, Written};

    #[derive(Parser)]
    struct Only {
        #[command(flatten)]
        overrides: Overrides,
        #[command(flatten)]
        protect: ProtectArgs,
    }

    fn general() -> impl Iterator<Item = &'static Row<Param>> {
        PARAMS.iter().filter(|info| info.setting.is_in_all_commands())
    }

    #[test]
    fn each_parameter_has_its_flag_and_the_flag_sets_it() {
        for info in general() {
            let only = Only::parse_from(["x", &format!("--{}", info.flag()), "7"]);
            let draft = only.overrides.draft(None).unwrap();
            let params: Vec<_> = draft.values.keys().copied().collect();
            assert_eq!(params, [info.setting], "{}", info.key);
        }
    }

    #[test]
    fn lists_are_cut_at_commas_where_hpldat_has_lists() {
        for info in general() {
            let only = Only::parse_from(["x", &format!("--{}", info.flag()), "1,2"]);
            let draft = only.overrides.draft(None).unwrap();
            let want = if info.is_list { 2 } else { 1 };
            assert_eq!(draft.values[&info.setting].len(), want, "{}", info.key);
        }
    }

    #[test]
    fn flags_without_effect_have_a_heading() {
        let help = Only::command().render_long_help().to_string();
        assert!(help.contains(IGNORED), "{help}");
    }

    #[test]
    fn each_setting_has_its_flag_and_the_flag_sets_it() {
        for info in SETTINGS {
            let flag = info.setting.flag();
            let mut args = vec!["x", &flag];
            if info.written != Written::Flag {
                args.push("7");
            }
            let draft = Only::parse_from(args).protect.draft();
            let settings: Vec<_> = draft.keys().copied().collect();
            assert_eq!(settings, [info.setting], "{}", info.key);
        }
    }
}
