use clap::{Arg, ArgAction, Args};

use super::flags::{self, Flag, Flags};
use skt_config::param::Param;
use skt_config::{At, ConfigError, Draft, Output};
use skt_health::environment::library::VARIABLE;

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

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser};

    use super::*;
    use skt_config::param::{IGNORED, PARAMS};
    use skt_config::value::Row;

    #[derive(Parser)]
    struct Only {
        #[command(flatten)]
        overrides: Overrides,
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
}
