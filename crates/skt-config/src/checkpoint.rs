//!
//! Everything that reads, writes or documents the settings of the protection works from
//! [`SETTINGS`]. What is legal beyond a single value is decided where the settings are used, in
//! [`crate::protection::Settings`].

use std::collections::BTreeMap;

use skt_host::choice::{OnLoss, Overlap, Region};
use skt_host::shown::shell_quoted;

use super::error::At;
use super::field::Field;
use super::protection::Settings;
use super::source::ValueSource;
use super::value::{Range, Row, Table, Value, Written, settings};
use skt_checkpoint::checkpoint::methods::Method;
use skt_solver::pgesv::abft::MAX_CHECKSUMS;
use skt_store::codec::CodecKind;
use skt_store::store::STORES;

settings! {
    /// A setting of the protection against the loss of ranks.
    Setting;
    /// The table of all settings of the protection.
    SETTINGS;
    type Typed = Settings;
    type Field = dyn Field;
    const HAS_CODES: bool = false;

    Method {
        key: "method", flag: "ft", metavar: "METHOD", choices: Method::CHOICES, default: "self",
        example: "abft",
        help: "method of protection. A job too small for a group takes checkpoints only if this \
               is given. abft takes no checkpoints: additional process columns, as many as \
               parities, hold checksums",
        field: Some(|settings| &mut settings.method),
    }
    Every {
        key: "every", flag: "checkpoint-every", metavar: "HOW", written: Written::Time,
        legal: "auto, never, a time (90 or 90s, 10min, 24h, 3d), panels (20p), or drill (20p!)",
        default: "auto", example: "10min",
        help: "time between checkpoints. auto: from their cost and mtbf; skips those that cost \
               more than they save. TIME or Np (panels): skips those that would take longer than \
               the rest of the run. Np! (a drill): skips none",
        field: Some(|settings| &mut settings.every),
    }
    Mtbf {
        key: "mtbf", metavar: "TIME", written: Written::Time,
        legal: "a time: 90 or 90s, 10min, 24h, 3d", default: "24h", example: "3d",
        help: "mean time between failures of all nodes of the job together",
    }
    Resume {
        key: "resume", metavar: "HOW",
        legal: "auto, never, require, or by flag the number of a checkpoint", default: "auto",
        example: "require",
        help: "what a start does with the data of an earlier one. auto: continues from it, if \
               there is any; never: starts from the beginning; require: fails without it; the \
               number of a checkpoint, as `skt-hpl store list` prints it: goes back to that one",
        field: Some(|settings| &mut settings.resume),
    }
    RunId {
        key: "run_id", metavar: "NAME", legal: "1 to 64 letters, digits, `.`, `_` and `-`",
        default: "(made from the tests)", example: "monday",
        help: "name of the run, by which a restart finds its data",
    }
    GroupSize {
        key: "group_size", metavar: "N", written: Written::Whole,
        legal: "twice the parities to 255", default: "16", example: "8",
        help: "ranks per group: larger groups leave more memory to the matrix, smaller ones \
               survive more losses",
    }
    Parities {
        key: "parities", metavar: "M", written: Written::Whole, range: Some(Range::whole(1, 127)),
        legal: "; with abft 1 to 3", default: "1", example: "2",
        help: "lost ranks that each group survives; with abft, that each process row survives",
    }
    Region {
        key: "region", metavar: "REGION", choices: Region::CHOICES, default: "corner",
        example: "side",
        help: "part of the matrix that a checkpoint saves. corner: rows and columns that have \
               changed; side: all rows of those columns; whole: all",
        field: Some(|settings| &mut settings.region),
    }
    Codec {
        key: "codec", metavar: "CODE", choices: CodecKind::CHOICES,
        legal: "; with more than one parity reed-solomon", default: "(xor, or reed-solomon)",
        example: "sum",
        help: "erasure code; sum adds in floating point and is not bit-exact",
        field: Some(|settings| &mut settings.codec),
    }
    MessageBytes {
        key: "message_bytes", metavar: "BYTES", written: Written::Whole,
        range: Some(Range::whole(4 << 10, 4 << 20)),
        default: "262144", example: "65536",
        help: "bytes per message while parities are computed; the parities do not depend on it",
        field: Some(|settings| &mut settings.message_bytes),
    }
    Overlap {
        key: "overlap", metavar: "HOW", choices: Overlap::CHOICES, default: "auto", example: "on",
        help: "whether parities are computed while the solver continues. auto: with self on several \
               hosts, or with helper cores",
        field: Some(|settings| &mut settings.overlap),
    }
    HelperCores {
        key: "helper_cores", metavar: "K", written: Written::Whole,
        range: Some(Range::whole(0, 4096)), default: "0", example: "1",
        help: "cores of each node that are kept from the solver, with self or double: the threads \
               that write images, or compute parities while the solver continues, are pinned to \
               them",
        field: Some(|settings| &mut settings.helper_cores),
    }
    CheckEvery {
        key: "check_every", metavar: "PANELS", written: Written::Time,
        legal: "auto, never, or panels: 1 or more", default: "auto", example: "4",
        help: "panels between two checks of the matrix against its checksums, with abft. auto: so \
               that the checks cost a hundredth of the time",
        field: Some(|settings| &mut settings.check_every),
    }
    OnLoss {
        key: "on_loss", metavar: "HOW", choices: OnLoss::CHOICES, default: "restart",
        example: "recover",
        help: "what follows the loss of a rank, with abft. restart: the job ends, and the same \
               command continues the run; recover: a spare rank takes over; replace: once, a \
               checksum column replaces the lost process column (recover and replace need ULFM: \
               Open MPI 5, mpirun --with-ft ulfm)",
        field: Some(|settings| &mut settings.on_loss),
    }
    Domains {
        key: "domains", metavar: "FILE",
        legal: "a file with a host and its domain (rack, switch) a line",
        default: "(each host is its own)", example: "racks",
        help: "failure domains; no two ranks of a group are in one",
    }
    AllowSharedDomains {
        key: "allow_shared_domains", written: Written::Flag, legal: "true, false", default: "false",
        help: "whether two ranks of a group may be in one failure domain at the first start; later \
               ones may have lost nodes",
        field: Some(|settings| &mut settings.allow_shared_domains),
    }
    Store {
        key: "store", metavar: "STORE", legal: STORES, default: "sysv", example: "posix",
        help: "memory that outlives a process",
    }
    Level {
        key: "level", metavar: "LEVEL",
        legal: "local:FOLDER or global:FOLDER, with an absolute path, then ,every=auto or a time \
                (10min; 10min! whatever it costs) ,keep=1..16; several with commas between them",
        default: "(none)", example: "local:/scratch,every=10min,keep=2",
        help: "images of checkpoints in files, on each node's own disk or on a file system that \
               all nodes share, for losses that the groups do not survive",
    }
    TimeLimit {
        key: "time_limit", metavar: "TIME", written: Written::Time,
        legal: "auto, never, a time (90 or 90s, 10min, 24h, 3d), or @SECONDS since 1970",
        default: "auto", example: "2h",
        help: "time that the job has. A run that does not end by then is saved, also on all \
               levels, if it has checkpoints, and the job ends with exit code 75. auto: until the \
               end of the Slurm job (SLURM_JOB_END_TIME, from Slurm 23.02 on). SIGUSR1 ends the \
               time at once",
        field: Some(|settings| &mut settings.time_limit),
    }
}

/// Settings of the protection, as written.
pub type CheckpointDraft = BTreeMap<Setting, Value>;

/// Number of checksum columns that a draft asks for, in addition to the Q process columns of the
/// data. A value that is not legal is refused later, where the settings are read.
pub(crate) fn checksum_columns(draft: &CheckpointDraft) -> usize {
    let text = |setting| draft.get(&setting).map(|value: &Value| value.text.as_str());
    if text(Setting::Method) != Some(Method::Abft.name()) {
        return 0;
    }
    let asked = text(Setting::Parities).map_or(Some(1), |text| text.parse().ok());
    asked.unwrap_or(1).clamp(1, MAX_CHECKSUMS)
}

impl Setting {
    pub fn flag(self) -> String {
        format!("--{}", self.info().flag())
    }

    /// The setting, named as it is called at `place`.
    pub fn at(self, place: &ValueSource) -> At {
        match place {
            ValueSource::Flag => At::named(&self.flag(), place),
            _ => At::named(&format!("checkpoint.{}", self.info().key), place),
        }
    }
}

/// The flags that are equivalent to a draft, as words for a shell.
pub fn flags(draft: &CheckpointDraft) -> String {
    let mut words = Vec::new();
    for (setting, value) in draft {
        match (setting.info().written, value.text.as_str()) {
            (Written::Flag, "true") => words.push(setting.flag()),
            (Written::Flag, _) => {}
            (_, text) => words.push(format!("{} {}", setting.flag(), shell_quoted(text))),
        }
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Form;
    use skt_checkpoint::checkpoint::level::Reach;

    #[test]
    fn a_shell_reads_printed_flags_back() {
        let value = |text: &str| Value {
            text: text.to_owned(),
            form: Form::Token,
            place: ValueSource::Flag,
        };
        let draft = [
            (Setting::Parities, value("2")),
            (Setting::Level, value("local:/my scratch/$USER,every=1h")),
        ];
        let shown = "--parities 2 --level 'local:/my scratch/$USER,every=1h'";
        assert_eq!(flags(&draft.into()), shown);
    }

    #[test]
    fn each_setting_is_completely_described() {
        for info in SETTINGS {
            assert!(!info.legal().is_empty(), "{}", info.key);
            assert!(!info.default.is_empty() && !info.help.is_empty(), "{}", info.key);
        }
        let level = Setting::Level.info().legal();
        let reaches = Reach::NAMES.map(|name| format!("{name}:FOLDER"));
        assert!(level.contains(&reaches.join(" or ")), "{level}");
    }
}
