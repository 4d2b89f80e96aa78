//! The settings of checkpoints.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use skt_terms::choice::{OnLoss, Overlap, Region};

use super::deadline::TimeLimit;
use super::every::Every;
use super::inject::Inject;
use super::levels::Levels;
use crate::checkpoint::agree::Resume;
use crate::checkpoint::codec::CodecKind;
use crate::checkpoint::encode::Encoder;
use crate::checkpoint::methods::Method;
use crate::hpl::pgesv::abft::CheckEvery;

/// How a run is protected.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Checkpoint method.
    pub method: Method,
    /// Whether the user has named the method: then it must be possible.
    pub method_is_asked: bool,
    /// What is saved.
    pub region: Region,
    /// Erasure code.
    pub codec: CodecKind,
    /// How parities are computed.
    pub encoder: Encoder,
    /// Bytes of its messages; measured if not given.
    pub message_bytes: Option<usize>,
    /// Whether they are computed while the solver goes on.
    pub overlap: Overlap,
    /// Cores of each node that are kept from the solver for that, and for writing images.
    #[serde(default)]
    pub helper_cores: usize,
    /// Ranks of a group, about.
    pub group_size: usize,
    /// Losses that a group survives.
    pub parities: usize,
    /// Whether members of a group may be in one failure domain.
    pub allow_shared_domains: bool,
    /// Failure domain of each host; a host that is not named is its own.
    pub domains: BTreeMap<String, String>,
    /// Interval.
    pub every: Every,
    /// Mean time between failures of the whole job.
    pub mtbf_seconds: f64,
    /// How often the checksums of method `abft` are compared with the matrix.
    pub check_every: CheckEvery,
    /// What a lost rank means.
    pub on_loss: OnLoss,
    /// What to do with what an earlier start has left.
    pub resume: Resume,
    /// Name of the run in shared memory.
    pub run_id: String,
    /// Where segments live, as [`crate::checkpoint::store::StoreKind`] reads it.
    pub store: String,
    /// Images of them that outlive the memory of nodes.
    #[serde(default)]
    pub levels: Levels,
    /// Part of the name of a folder of images where another user has taken the usual one: the same
    /// on all ranks of a start, and not to be guessed.
    #[serde(default)]
    pub folder_number: u64,
    /// How much time the job has.
    #[serde(default)]
    pub time_limit: TimeLimit,
    /// Faults to inject.
    pub inject: Vec<Inject>,
}

impl Settings {
    /// No checkpoints at all.
    pub fn none() -> Self {
        Self {
            method: Method::None,
            method_is_asked: true,
            region: Region::Corner,
            codec: CodecKind::Xor,
            encoder: Encoder::Auto,
            message_bytes: None,
            overlap: Overlap::Auto,
            helper_cores: 0,
            group_size: 16,
            parities: 1,
            allow_shared_domains: false,
            domains: BTreeMap::new(),
            every: Every::Auto,
            mtbf_seconds: 86400.0,
            check_every: CheckEvery::Auto,
            on_loss: OnLoss::Restart,
            resume: Resume::Auto,
            run_id: "none".into(),
            store: "sysv".into(),
            levels: Levels::default(),
            folder_number: 0,
            time_limit: TimeLimit::Auto,
            inject: Vec::new(),
        }
    }

    /// The method for a job of `ranks`: a job too small for a group has none,
    /// unless the user has asked for one.
    pub fn method_for(&self, ranks: usize) -> Method {
        if ranks < 2 * self.parities && !self.method_is_asked { Method::None } else { self.method }
    }

    /// Whether parities are computed by `encoder` while the solver goes on.
    pub fn overlaps(&self, encoder: Encoder) -> bool {
        let in_ring = self.method.flushes() && encoder == Encoder::Ring;
        let in_parts = matches!(encoder, Encoder::Auto | Encoder::Direct | Encoder::Ring);
        let is_helped = self.helper_cores > 0
            && in_parts
            && matches!(self.method, Method::SelfCheckpoint | Method::Double);
        match self.overlap {
            Overlap::Auto => in_ring || is_helped,
            Overlap::On => true,
            Overlap::Off => false,
        }
    }

    /// Whether there may be checkpoints at all.
    pub fn is_on(&self) -> bool {
        self.method != Method::None
    }

    /// Failure domain of a host.
    pub fn domain_of(&self, host: &str) -> String {
        self.domains.get(host).cloned().unwrap_or_else(|| host.to_owned())
    }
}
