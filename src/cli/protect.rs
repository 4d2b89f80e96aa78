//! Flags of the protection against the loss of ranks.

use clap::Args;

use super::overrides::Names;
use crate::config::value::Value;
use crate::config::{CheckpointDraft, Setting};
use crate::run::protect::Inject;

const PROTECTION: &str = "Protection against the loss of nodes";

/// Flags of the protection. Values are kept as text: they override the
/// `[checkpoint]` table of a configuration, and are checked as it is.
#[derive(Debug, Clone, Default, Args)]
pub struct ProtectArgs {
    /// Checkpoint method
    #[arg(long, value_name = "METHOD", value_parser = Names::of_setting(Setting::Method))]
    #[arg(help_heading = PROTECTION, help = about(Setting::Method))]
    pub ft: Option<String>,
    /// Time between checkpoints
    #[arg(long, value_name = "HOW", allow_hyphen_values = true)]
    #[arg(help_heading = PROTECTION, help = about(Setting::Every))]
    pub checkpoint_every: Option<String>,
    /// Mean time between failures
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    #[arg(help_heading = PROTECTION, help = about(Setting::Mtbf))]
    pub mtbf: Option<String>,
    /// What to do with what an earlier start has left
    #[arg(long, value_name = "HOW", value_parser = Names::of_setting(Setting::Resume))]
    #[arg(help_heading = PROTECTION, help = about(Setting::Resume))]
    pub resume: Option<String>,
    /// Name of the run
    #[arg(long, value_name = "NAME", help_heading = PROTECTION, help = about(Setting::RunId))]
    pub run_id: Option<String>,
    /// Ranks of a group
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    #[arg(help_heading = PROTECTION, help = about(Setting::GroupSize))]
    pub group_size: Option<String>,
    /// Losses that each group survives
    #[arg(long, value_name = "M", allow_negative_numbers = true)]
    #[arg(help_heading = PROTECTION, help = about(Setting::Parities))]
    pub parities: Option<String>,
    /// What is saved
    #[arg(long, value_name = "REGION", value_parser = Names::of_setting(Setting::Region))]
    #[arg(help_heading = PROTECTION, help = about(Setting::Region))]
    pub region: Option<String>,
    /// Erasure code
    #[arg(long, value_name = "CODE", value_parser = Names::of_setting(Setting::Codec))]
    #[arg(help_heading = PROTECTION, help = about(Setting::Codec))]
    pub codec: Option<String>,
    /// How parities are computed
    #[arg(long, value_name = "HOW", value_parser = Names::of_setting(Setting::Encoder))]
    #[arg(help_heading = PROTECTION, help = about(Setting::Encoder))]
    pub encoder: Option<String>,
    /// Bytes of a message when parities are computed
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true)]
    #[arg(help_heading = PROTECTION, help = about(Setting::MessageBytes))]
    pub message_bytes: Option<String>,
    /// Whether parities are computed during the update
    #[arg(long, value_name = "HOW", value_parser = Names::of_setting(Setting::Overlap))]
    #[arg(help_heading = PROTECTION, help = about(Setting::Overlap))]
    pub overlap: Option<String>,
    /// Cores kept from the solver
    #[arg(long, value_name = "K", allow_negative_numbers = true)]
    #[arg(help_heading = PROTECTION, help = about(Setting::HelperCores))]
    pub helper_cores: Option<String>,
    /// Panels between two checks
    #[arg(long, value_name = "PANELS", allow_negative_numbers = true)]
    #[arg(help_heading = PROTECTION, help = about(Setting::CheckEvery))]
    pub check_every: Option<String>,
    /// What a lost rank means
    #[arg(long, value_name = "HOW", value_parser = Names::of_setting(Setting::OnLoss))]
    #[arg(help_heading = PROTECTION, help = about(Setting::OnLoss))]
    pub on_loss: Option<String>,
    /// Failure domains
    #[arg(long, value_name = "FILE", help_heading = PROTECTION, help = about(Setting::Domains))]
    pub domains: Option<String>,
    /// Two ranks of a group in one failure domain
    #[arg(long, help_heading = PROTECTION, help = about(Setting::AllowSharedDomains))]
    pub allow_shared_domains: bool,
    /// Memory that outlives a process
    #[arg(long, value_name = "STORE", help_heading = PROTECTION, help = about(Setting::Store))]
    pub store: Option<String>,
    /// Images of checkpoints on disks; may be given several times
    #[arg(long, value_name = "LEVEL", help_heading = PROTECTION, help = about(Setting::Level))]
    pub level: Vec<String>,
    /// Kill a rank, once: WHAT (rank 0) or RANK@WHAT, with WHAT a step of the protocol (encode:3, flush:tile=7,
    /// recover:rebuild), column:J, time:SECONDS, or back; flip:RANK@column:J flips a bit of its matrix, with abft;
    /// may be given several times
    #[arg(long, value_name = "FAULT", help_heading = PROTECTION)]
    pub inject: Vec<Inject>,
}

impl ProtectArgs {
    /// What the flags say, to lay over what the file says.
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
        ];
        let given = |(setting, text): (Setting, &Option<String>)| {
            Some((setting, Value::flag(text.as_ref()?)))
        };
        all.into_iter().filter_map(given).collect()
    }
}

/// A flag's help: what it is, what is legal, what it is by default.
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
            let mut args = vec!["x", info.flag];
            if info.written != Written::Flag {
                args.push("7");
            }
            let draft = Only::parse_from(args).protect.draft();
            let settings: Vec<_> = draft.keys().copied().collect();
            assert_eq!(settings, [info.setting], "{}", info.key);
        }
    }
}
