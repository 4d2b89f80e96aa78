//! The flags of the protection against the loss of ranks.

use clap::Args;

use super::overrides::Names;
use crate::config::value::Value;
use crate::config::{CheckpointDraft, Setting};
use crate::run::protect::Inject;

const PROTECTION: &str = "Protection against the loss of nodes";

/// The flags of the protection. Values are kept as text: they override the `[checkpoint]` table of
/// a configuration, and are checked as it is.
#[derive(Debug, Clone, Default, Args)]
pub struct ProtectArgs {
    #[arg(long, value_name = "METHOD", value_parser = Names::of_setting(Setting::Method))]
    #[arg(help_heading = PROTECTION, help = about(Setting::Method))]
    pub(super) ft: Option<String>,
    #[arg(long, value_name = "HOW", allow_hyphen_values = true)]
    #[arg(help_heading = PROTECTION, help = about(Setting::Every))]
    pub(super) checkpoint_every: Option<String>,
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    #[arg(help_heading = PROTECTION, help = about(Setting::Mtbf))]
    pub(super) mtbf: Option<String>,
    #[arg(long, value_name = "HOW", value_parser = Names::of_setting(Setting::Resume))]
    #[arg(help_heading = PROTECTION, help = about(Setting::Resume))]
    pub(super) resume: Option<String>,
    #[arg(long, value_name = "NAME", help_heading = PROTECTION, help = about(Setting::RunId))]
    pub(super) run_id: Option<String>,
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    #[arg(help_heading = PROTECTION, help = about(Setting::GroupSize))]
    pub(super) group_size: Option<String>,
    #[arg(long, value_name = "M", allow_negative_numbers = true)]
    #[arg(help_heading = PROTECTION, help = about(Setting::Parities))]
    pub(super) parities: Option<String>,
    #[arg(long, value_name = "REGION", value_parser = Names::of_setting(Setting::Region))]
    #[arg(help_heading = PROTECTION, help = about(Setting::Region))]
    pub(super) region: Option<String>,
    #[arg(long, value_name = "CODE", value_parser = Names::of_setting(Setting::Codec))]
    #[arg(help_heading = PROTECTION, help = about(Setting::Codec))]
    pub(super) codec: Option<String>,
    #[arg(long, value_name = "HOW", value_parser = Names::of_setting(Setting::Encoder))]
    #[arg(help_heading = PROTECTION, help = about(Setting::Encoder))]
    pub(super) encoder: Option<String>,
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true)]
    #[arg(help_heading = PROTECTION, help = about(Setting::MessageBytes))]
    pub(super) message_bytes: Option<String>,
    #[arg(long, value_name = "HOW", value_parser = Names::of_setting(Setting::Overlap))]
    #[arg(help_heading = PROTECTION, help = about(Setting::Overlap))]
    pub(super) overlap: Option<String>,
    #[arg(long, value_name = "K", allow_negative_numbers = true)]
    #[arg(help_heading = PROTECTION, help = about(Setting::HelperCores))]
    pub(super) helper_cores: Option<String>,
    #[arg(long, value_name = "PANELS", allow_negative_numbers = true)]
    #[arg(help_heading = PROTECTION, help = about(Setting::CheckEvery))]
    pub(super) check_every: Option<String>,
    #[arg(long, value_name = "HOW", value_parser = Names::of_setting(Setting::OnLoss))]
    #[arg(help_heading = PROTECTION, help = about(Setting::OnLoss))]
    pub(super) on_loss: Option<String>,
    #[arg(long, value_name = "FILE", help_heading = PROTECTION, help = about(Setting::Domains))]
    pub(super) domains: Option<String>,
    #[arg(long, help_heading = PROTECTION, help = about(Setting::AllowSharedDomains))]
    pub(super) allow_shared_domains: bool,
    #[arg(long, value_name = "STORE", help_heading = PROTECTION, help = about(Setting::Store))]
    pub(super) store: Option<String>,
    #[arg(long, value_name = "LEVEL", help_heading = PROTECTION, help = about(Setting::Level))]
    pub(super) level: Vec<String>,
    #[arg(long, value_name = "TIME", overrides_with = "time_limit")]
    #[arg(help_heading = PROTECTION, help = about(Setting::TimeLimit))]
    pub(super) time_limit: Option<String>,
    /// Kill a rank, once. WHAT (on rank 0) or RANK@WHAT, where WHAT is a step of the protocol
    /// (encode:3, flush:tile=7, recover:rebuild), column:J, time:SECONDS, or back.
    /// flip:RANK@column:J flips a bit of that rank's matrix, with abft. May be repeated
    #[arg(long, value_name = "FAULT", help_heading = PROTECTION)]
    pub(super) inject: Vec<Inject>,
}

impl ProtectArgs {
    /// The flags as settings that override those of a file.
    pub fn draft(&self) -> CheckpointDraft {
        let flag = self.allow_shared_domains.then(|| "true".to_owned());
        let level = (!self.level.is_empty()).then(|| self.level.join(","));
        let all = [
            (Setting::Method, &self.ft),
            (Setting::Every, &self.checkpoint_every),
            (Setting::Mtbf, &self.mtbf),
            (Setting::Resume, &self.resume),
            (Setting::RunId, &self.run_id),
            (Setting::GroupSize, &self.group_size),
            (Setting::Parities, &self.parities),
            (Setting::Region, &self.region),
            (Setting::Codec, &self.codec),
            (Setting::Encoder, &self.encoder),
            (Setting::MessageBytes, &self.message_bytes),
            (Setting::Overlap, &self.overlap),
            (Setting::HelperCores, &self.helper_cores),
            (Setting::CheckEvery, &self.check_every),
            (Setting::OnLoss, &self.on_loss),
            (Setting::Domains, &self.domains),
            (Setting::AllowSharedDomains, &flag),
            (Setting::Store, &self.store),
            (Setting::Level, &level),
            (Setting::TimeLimit, &self.time_limit),
        ];
        let given = |(setting, text): (Setting, &Option<String>)| {
            Some((setting, Value::flag(text.as_ref()?)))
        };
        all.into_iter().filter_map(given).collect()
    }
}

/// The help of a flag: what it is, what is legal, and its default.
fn about(setting: Setting) -> String {
    let info = setting.info();
    let what = info.what[..1].to_uppercase() + &info.what[1..];
    let legal = match info.choices {
        [] => format!("{}; ", info.legal),
        _ => String::new(),
    };
    format!("{what} [{legal}default {}]", info.default.trim_matches(['(', ')']))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::config::checkpoint::SETTINGS;
    use crate::config::value::Written;

    #[derive(Parser)]
    struct Only {
        #[command(flatten)]
        protect: ProtectArgs,
    }

    #[test]
    fn each_setting_has_its_flag_and_the_flag_sets_it() {
        for info in &SETTINGS {
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
