//! Flags of the protection against the loss of ranks.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;

use crate::checkpoint::agree::Resume;
use crate::checkpoint::codec::{CodecKind, checksum};
use crate::checkpoint::encode::Encoder;
use crate::checkpoint::methods::Method;
use crate::checkpoint::store::StoreKind;
use crate::config::RunSpec;
use crate::protect::{Every, Inject, Region, Settings, parse_seconds};

const PROTECTION: &str = "Protection against the loss of nodes";

/// Flags of the protection.
#[derive(Debug, Clone, Default, Args)]
pub struct ProtectArgs {
    /// Checkpoint method: self, double, single, or none [default: self; none for a job of one rank]
    #[arg(long, value_name = "METHOD", help_heading = PROTECTION)]
    pub ft: Option<Method>,
    /// Time between checkpoints: auto (from their cost and --mtbf), a time (10min), a number of
    /// panels (20p), or never [default: auto]
    #[arg(long, value_name = "HOW", help_heading = PROTECTION)]
    pub checkpoint_every: Option<Every>,
    /// Mean time between failures of all nodes of the job together [default: 24h]
    #[arg(long, value_name = "TIME", value_parser = parse_seconds, help_heading = PROTECTION)]
    pub mtbf: Option<f64>,
    /// What to do with what an earlier start of the same run has left: auto (go on from it),
    /// never (start afresh), require (fail if there is nothing) [default: auto]
    #[arg(long, value_name = "HOW", value_parser = parse_resume, help_heading = PROTECTION)]
    pub resume: Option<Resume>,
    /// Name of the run; a restart finds its data by it [default: made from the configuration]
    #[arg(long, value_name = "NAME", help_heading = PROTECTION)]
    pub run_id: Option<String>,
    /// Ranks of a group: more leave more memory to the matrix, fewer survive more [default: 16]
    #[arg(long, value_name = "N", help_heading = PROTECTION)]
    pub group_size: Option<usize>,
    /// Losses that each group survives, at most half of it [default: 1]
    #[arg(long, value_name = "M", help_heading = PROTECTION)]
    pub parities: Option<usize>,
    /// What is saved: corner (what has changed), side (all rows of those columns), whole
    /// [default: corner]
    #[arg(long, value_name = "REGION", help_heading = PROTECTION)]
    pub region: Option<Region>,
    /// Erasure code: xor, sum (floating point, not bit-exact), reed-solomon [default: xor, with
    /// more than one parity reed-solomon]
    #[arg(long, value_name = "CODE", help_heading = PROTECTION)]
    pub codec: Option<CodecKind>,
    /// How parities are computed: ring (pipelined), reduce, tree [default: ring]
    #[arg(long, value_name = "HOW", help_heading = PROTECTION)]
    pub encoder: Option<Encoder>,
    /// Failure domains: a file with a host and its domain (rack, switch) a line [default: each
    /// host is its own]
    #[arg(long, value_name = "FILE", help_heading = PROTECTION)]
    pub domains: Option<PathBuf>,
    /// Allow two ranks of a group in one failure domain
    #[arg(long, help_heading = PROTECTION)]
    pub allow_shared_domains: bool,
    /// Memory that outlives a process: sysv, sysv-huge, posix, file:FOLDER [default: sysv]
    #[arg(long, value_name = "STORE", help_heading = PROTECTION)]
    pub store: Option<String>,
    /// Kill a rank, once: WHAT (rank 0) or RANK@WHAT, with WHAT a step of the protocol (encode:3, flush:tile=7,
    /// recover:rebuild), column:J, time:SECONDS, or back; may be given several times
    #[arg(long, value_name = "FAULT", help_heading = PROTECTION)]
    pub inject: Vec<Inject>,
}

fn parse_resume(text: &str) -> Result<Resume, String> {
    match text {
        "auto" => Ok(Resume::Auto),
        "never" => Ok(Resume::Never),
        "require" => Ok(Resume::Require),
        _ => Err("one of auto, never, require".to_owned()),
    }
}

/// What is wrong with the protection.
#[derive(Debug, thiserror::Error)]
pub enum ProtectError {
    /// A number out of range.
    #[error("{flag}: value {value} is out of range; legal: {legal}")]
    Range {
        /// The flag.
        flag: &'static str,
        /// What was given.
        value: String,
        /// What is legal.
        legal: String,
    },
    /// The map of failure domains.
    #[error("--domains {file}: {why}")]
    Domains {
        /// The file.
        file: String,
        /// What is wrong.
        why: String,
    },
}

impl ProtectArgs {
    /// The settings of a run.
    ///
    /// # Errors
    /// See [`ProtectError`].
    pub fn settings(&self, spec: &RunSpec) -> Result<Settings, ProtectError> {
        let range = |flag, value: String, legal: &str| {
            Err(ProtectError::Range { flag, value, legal: legal.to_owned() })
        };
        let (group_size, parities) = (self.group_size.unwrap_or(16), self.parities.unwrap_or(1));
        if parities == 0 || parities > 127 {
            return range("--parities", parities.to_string(), "1 to 127");
        }
        let codec = match (self.codec, parities) {
            (None, 1) => CodecKind::Xor,
            (None, _) => CodecKind::ReedSolomon,
            (Some(codec), _) => codec,
        };
        if group_size < 2 * parities || group_size > 255 {
            let legal = format!("{} (twice --parities) to 255", 2 * parities);
            return range("--group-size", group_size.to_string(), &legal);
        }
        if parities > 1 && codec != CodecKind::ReedSolomon {
            return range("--codec", codec.to_string(), "reed-solomon, with more than one parity");
        }
        let run_id = self.run_id.clone().unwrap_or_else(|| default_run_id(spec));
        // A run id is part of the names of segments.
        if crate::checkpoint::store::SegmentName::new(&run_id, "t0.a0", 0).is_err() {
            return range("--run-id", run_id, "1 to 64 letters, digits, `.`, `_` and `-`");
        }
        let store = self.store.clone().unwrap_or_else(|| "sysv".to_owned());
        if let Err(error) = store.parse::<StoreKind>() {
            return range("--store", store, &error.to_string());
        }
        Ok(Settings {
            method: self.ft.unwrap_or(Method::SelfCheckpoint),
            method_is_asked: self.ft.is_some(),
            region: self.region.unwrap_or(Region::Corner),
            codec,
            encoder: self.encoder.unwrap_or(Encoder::Ring),
            group_size,
            parities,
            allow_shared_domains: self.allow_shared_domains,
            domains: self.read_domains()?,
            every: self.checkpoint_every.unwrap_or(Every::Auto),
            mtbf_seconds: self.mtbf.unwrap_or(86400.0),
            resume: self.resume.unwrap_or(Resume::Auto),
            run_id,
            store,
            inject: self.inject.clone(),
        })
    }

    fn read_domains(&self) -> Result<BTreeMap<String, String>, ProtectError> {
        let Some(path) = &self.domains else { return Ok(BTreeMap::new()) };
        let fail = |why| ProtectError::Domains { file: path.display().to_string(), why };
        let text = std::fs::read_to_string(path).map_err(|error| fail(error.to_string()))?;
        let mut domains = BTreeMap::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default();
            match line.split_whitespace().collect::<Vec<_>>()[..] {
                [] => {}
                [host, domain] => {
                    domains.insert(host.to_owned(), domain.to_owned());
                }
                _ => {
                    let why = format!("line {}: a host and its domain are expected", number + 1);
                    return Err(fail(why));
                }
            }
        }
        Ok(domains)
    }
}

/// The same for the same tests, so that the same command finds its data again.
fn default_run_id(spec: &RunSpec) -> String {
    let tests = serde_json::to_vec(&spec.tests()).expect("plain data");
    format!("hpl-{:016x}", checksum(&tests))
}
