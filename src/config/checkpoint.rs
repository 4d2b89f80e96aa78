//! The `[checkpoint]` table of TOML: names, legal values and defaults.
//!
//! Everything that reads, writes or documents the settings of the protection works from
//! [`SETTINGS`]. What is legal beyond a single value is decided where the settings are used, in
//! [`crate::run::protect::Settings`].

use std::collections::BTreeMap;

use skt_terms::choice::{OnLoss, Overlap, Region};

use super::error::{At, Place};
use super::value::{Row, Value, Written};
use crate::checkpoint::agree::Resume;
use crate::checkpoint::codec::CodecKind;
use crate::checkpoint::encode::Encoder;
use crate::checkpoint::methods::Method;
use crate::checkpoint::store::STORES;

/// A setting of the protection against the loss of ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)] // each is described in its row of `SETTINGS`
pub enum Setting {
    Method,
    Every,
    Mtbf,
    Resume,
    RunId,
    GroupSize,
    Parities,
    Region,
    Codec,
    Encoder,
    MessageBytes,
    Overlap,
    HelperCores,
    CheckEvery,
    OnLoss,
    Domains,
    AllowSharedDomains,
    Store,
    Level,
    TimeLimit,
}

/// Settings of the protection, as written.
pub type CheckpointDraft = BTreeMap<Setting, Value>;

const NONE: Row<Setting> = Row {
    setting: Setting::Method,
    key: "",
    written: Written::Text,
    is_list: false,
    choices: &[],
    legal: "",
    default: "",
    what: "",
};

/// The table of all settings of the protection.
pub const SETTINGS: [Row<Setting>; 20] = [
    Row {
        setting: Setting::Method,
        key: "method",
        choices: &Method::NAMES,
        default: "self",
        what: "method of protection. A job too small for a group takes checkpoints only if this \
               is given. abft takes no checkpoints: additional process columns, as many as \
               parities, hold checksums",
        ..NONE
    },
    Row {
        setting: Setting::Every,
        key: "every",
        written: Written::Time,
        legal: "auto, never, a time (90s, 10min, 24h, 3d), panels (20p), or drill (20p!)",
        default: "auto",
        what: "time between checkpoints. auto: from their cost and mtbf; skips those that cost \
               more than they save. TIME or Np (panels): skips those that would take longer than \
               the rest of the run. Np! (a drill): skips none",
        ..NONE
    },
    Row {
        setting: Setting::Mtbf,
        key: "mtbf",
        written: Written::Time,
        legal: "a time: 90s, 10min, 24h, 3d",
        default: "24h",
        what: "mean time between failures of all nodes of the job together",
        ..NONE
    },
    Row {
        setting: Setting::Resume,
        key: "resume",
        choices: &Resume::NAMES,
        default: "auto",
        what: "what a start does with the data of an earlier one. auto: continues from it, if \
               there is any; never: starts from the beginning; require: fails without it",
        ..NONE
    },
    Row {
        setting: Setting::RunId,
        key: "run_id",
        legal: "1 to 64 letters, digits, `.`, `_` and `-`",
        default: "(made from the tests)",
        what: "name of the run, by which a restart finds its data",
        ..NONE
    },
    Row {
        setting: Setting::GroupSize,
        key: "group_size",
        written: Written::Whole,
        legal: "twice the parities to 255",
        default: "16",
        what: "ranks per group: larger groups leave more memory to the matrix, smaller ones \
               survive more losses",
        ..NONE
    },
    Row {
        setting: Setting::Parities,
        key: "parities",
        written: Written::Whole,
        legal: "1 to 127; with abft 1 to 3",
        default: "1",
        what: "lost ranks that each group survives; with abft, that each process row survives",
        ..NONE
    },
    Row {
        setting: Setting::Region,
        key: "region",
        choices: &Region::NAMES,
        default: "corner",
        what: "part of the matrix that a checkpoint saves. corner: rows and columns that have \
               changed; side: all rows of those columns; whole: all",
        ..NONE
    },
    Row {
        setting: Setting::Codec,
        key: "codec",
        choices: &CodecKind::NAMES,
        legal: "; with more than one parity reed-solomon",
        default: "(xor, or reed-solomon)",
        what: "erasure code; sum adds in floating point and is not bit-exact",
        ..NONE
    },
    Row {
        setting: Setting::Encoder,
        key: "encoder",
        choices: &Encoder::NAMES,
        default: "auto",
        what: "how parities are computed. auto: direct, from memory to memory, where a group is \
               on one host, else ring",
        ..NONE
    },
    Row {
        setting: Setting::MessageBytes,
        key: "message_bytes",
        written: Written::Whole,
        legal: "4096 to 4194304",
        default: "(measured)",
        what: "bytes per message while parities are computed; the parities do not depend on it",
        ..NONE
    },
    Row {
        setting: Setting::Overlap,
        key: "overlap",
        choices: &Overlap::NAMES,
        default: "auto",
        what: "whether parities (by direct or ring) are computed while the solver continues. \
               auto: where a group computes them by messages in a ring, or with helper cores",
        ..NONE
    },
    Row {
        setting: Setting::HelperCores,
        key: "helper_cores",
        written: Written::Whole,
        legal: "0 to 4096",
        default: "0",
        what: "cores of each node that are kept from the solver, with self or double: the threads \
               that write images, or compute parities while the solver continues, are pinned to \
               them",
        ..NONE
    },
    Row {
        setting: Setting::CheckEvery,
        key: "check_every",
        written: Written::Time,
        legal: "auto, never, or panels: 1 or more",
        default: "auto",
        what: "panels between two checks of the matrix against its checksums, with abft. auto: so \
               that the checks cost a hundredth of the time",
        ..NONE
    },
    Row {
        setting: Setting::OnLoss,
        key: "on_loss",
        choices: &OnLoss::NAMES,
        default: "restart",
        what: "what follows the loss of a rank, with abft. restart: the job ends, and the same \
               command continues the run; recover: a spare rank takes over; replace: once, a \
               checksum column replaces the lost process column (recover and replace need ULFM: \
               Open MPI 5, mpirun --with-ft ulfm)",
        ..NONE
    },
    Row {
        setting: Setting::Domains,
        key: "domains",
        legal: "a file with a host and its domain (rack, switch) a line",
        default: "(each host is its own)",
        what: "failure domains; no two ranks of a group are in one",
        ..NONE
    },
    Row {
        setting: Setting::AllowSharedDomains,
        key: "allow_shared_domains",
        written: Written::Flag,
        legal: "true, false",
        default: "false",
        what: "whether two ranks of a group may be in one failure domain",
        ..NONE
    },
    Row {
        setting: Setting::Store,
        key: "store",
        legal: STORES,
        default: "sysv",
        what: "memory that outlives a process",
        ..NONE
    },
    Row {
        setting: Setting::Level,
        key: "level",
        legal: "local:FOLDER or global:FOLDER, with an absolute path, then ,every=auto or a time \
                ,mtbf=TIME ,keep=1..16 ,when-busy=wait or skip ,max-rate=RATE (200MB/s); several \
                with commas between them",
        default: "(none)",
        what: "images of checkpoints in files, on each node's own disk or on a file system that \
               all nodes share, for losses that the groups do not survive",
        ..NONE
    },
    Row {
        setting: Setting::TimeLimit,
        key: "time_limit",
        written: Written::Time,
        legal: "auto, never, a time (90s, 10min, 24h, 3d), or @SECONDS since 1970",
        default: "auto",
        what: "time that the job has. A run that does not end by then is saved, also on all \
               levels, and the job ends with exit code 75. auto: until the end of the Slurm job \
               (SLURM_JOB_END_TIME). SIGUSR1 ends the time at once",
        ..NONE
    },
];

/// The largest number of checksum columns: with more of them, decoding amplifies rounding errors
/// too much.
pub const MOST_CHECKSUMS: usize = 3;

/// Number of checksum columns that a draft asks for, in addition to the Q process columns of the
/// data. A value that is not legal is refused later, where the settings are read.
pub fn checksum_columns(draft: &CheckpointDraft) -> usize {
    let text = |setting| draft.get(&setting).map(|value: &Value| value.text.as_str());
    if text(Setting::Method) != Some(Method::Abft.name()) {
        return 0;
    }
    let asked = text(Setting::Parities).map_or(Some(1), |text| text.parse().ok());
    asked.unwrap_or(1).clamp(1, MOST_CHECKSUMS)
}

impl Setting {
    /// This setting's row of [`SETTINGS`].
    pub fn info(self) -> &'static Row<Setting> {
        &SETTINGS[self as usize]
    }

    /// The setting's flag.
    pub fn flag(self) -> String {
        match self {
            Self::Method => "--ft".to_owned(),
            Self::Every => "--checkpoint-every".to_owned(),
            _ => format!("--{}", self.info().key.replace('_', "-")),
        }
    }

    /// The setting, named as it is called at `place`.
    pub fn at(self, place: &Place) -> At {
        match place {
            Place::Flag => At::named(&self.flag(), place),
            _ => At::named(&format!("checkpoint.{}", self.info().key), place),
        }
    }
}

/// The flags that are equivalent to a draft.
pub fn flags(draft: &CheckpointDraft) -> String {
    let mut words = Vec::new();
    for (setting, value) in draft {
        match (setting.info().written, value.text.as_str()) {
            (Written::Flag, "true") => words.push(setting.flag()),
            (Written::Flag, _) => {}
            (_, text) => words.push(format!("{} {text}", setting.flag())),
        }
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::level::{Reach, WhenBusy};

    #[test]
    fn each_setting_is_in_its_own_row_and_completely_described() {
        for (row, info) in SETTINGS.iter().enumerate() {
            assert_eq!(info.setting as usize, row, "{}", info.key);
            assert!(!info.legal().is_empty(), "{}", info.key);
            assert!(!info.default.is_empty() && !info.what.is_empty(), "{}", info.key);
        }
        let level = Setting::Level.info().legal();
        let reaches = Reach::NAMES.map(|name| format!("{name}:FOLDER"));
        for part in [reaches.join(" or "), format!("when-busy={}", WhenBusy::NAMES.join(" or "))] {
            assert!(level.contains(&part), "{part}: {level}");
        }
    }
}
