mod every;
mod inject;
mod read;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use skt_checkpoint::time_limit::TimeLimit;
use skt_host::choice::{OnLoss, Overlap, Region};

pub use every::Every;
pub use inject::{Inject, What};
pub use read::{MAX_MEMBERS, read_domains};
use skt_checkpoint::checkpoint::decide::Resume;
use skt_checkpoint::checkpoint::level::settings::Levels;
use skt_checkpoint::checkpoint::methods::Method;
use skt_checkpoint::checkpoint::protocol::MESSAGE_BYTES;
use skt_solver::pgesv::abft::CheckEvery;
use skt_store::codec::CodecKind;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
// The row of each in SETTINGS describes it.
pub struct Settings {
    pub method: Method,
    /// Whether the user has named the method, which must be possible then.
    pub method_is_asked: bool,
    pub region: Region,
    pub codec: CodecKind,
    pub message_bytes: usize,
    pub overlap: Overlap,
    #[serde(default)]
    pub helper_cores: usize,
    /// The approximate number of ranks of a group.
    pub group_size: usize,
    pub parities: usize,
    pub allow_shared_domains: bool,
    /// Failure domain of each host; a host that is not named is its own.
    pub domains: BTreeMap<String, String>,
    pub every: Every,
    /// Mean seconds between failures of the whole job.
    pub mtbf_seconds: f64,
    pub check_every: CheckEvery,
    pub on_loss: OnLoss,
    pub resume: Resume,
    pub run_id: String,
    /// As [`StoreKind`](skt_store::store::StoreKind) parses it.
    pub store: String,
    #[serde(default)]
    pub levels: Levels,
    /// The number by which this job owns the folders of its images: the same on all ranks, and
    /// unpredictable. `None`: the caller knows that no other job uses them.
    #[serde(default)]
    pub job_number: Option<u64>,
    #[serde(default)]
    pub time_limit: TimeLimit,
    pub inject: Vec<Inject>,
}

impl Settings {
    /// The method `self`, XOR over a ring, and groups of 16 that each survive one loss.
    pub fn new(run_id: &str) -> Self {
        Self { method: Method::SelfCheckpoint, run_id: run_id.to_owned(), ..Self::none() }
    }

    pub fn none() -> Self {
        Self {
            method: Method::None,
            method_is_asked: true,
            region: Region::Corner,
            codec: CodecKind::Xor,
            message_bytes: MESSAGE_BYTES,
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
            job_number: None,
            time_limit: TimeLimit::Auto,
            inject: Vec::new(),
        }
    }

    /// None if the job is too small for a group, unless the user has asked for the method.
    pub fn method_for(&self, ranks: usize) -> Method {
        if ranks < 2 * self.parities && !self.method_is_asked { Method::None } else { self.method }
    }

    /// Whether parities are computed while the solver continues, in a run on several hosts or on
    /// one, where no network moves the messages.
    pub fn overlaps(&self, on_several_hosts: bool) -> bool {
        let is_helped = self.helper_cores > 0;
        match (self.overlap, self.method) {
            (Overlap::Auto, Method::SelfCheckpoint) => on_several_hosts || is_helped,
            (Overlap::Auto, Method::Double) => is_helped,
            (overlap, _) => overlap == Overlap::On,
        }
    }

    pub fn is_on(&self) -> bool {
        self.method != Method::None
    }

    pub fn domain_of(&self, host: &str) -> String {
        self.domains.get(host).cloned().unwrap_or_else(|| host.to_owned())
    }
}
