use clap::{Arg, ArgAction, Args};

use super::flags::{self, Flag, Flags};
use skt_config::value::Value;
use skt_config::{CheckpointDraft, Setting};
use skt_run::protect::Inject;

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
    use clap::Parser;

    use super::*;
    use skt_config::checkpoint::SETTINGS;
    use skt_config::value::Written;

    #[derive(Parser)]
    struct Only {
        #[command(flatten)]
        protect: ProtectArgs,
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
