//! The settings of an application's checkpoints.

use std::fmt;
use std::io;
use std::str::FromStr;

use super::alike::Setting;
use super::level::{Level, StateSeconds, Writer};
use super::methods::Method;
use super::parameters::{APPLICATION, FORMAT, FORMAT_NAME, Parameters};
use serde::{Deserialize, Serialize};
use skt_host::clock::now_unix;
use skt_store::codec::CodecKind;
use skt_store::layout::{BANDS, CELL_BYTES, RegionShape};
use skt_store::segments::{Process, RunSegments};

/// Bytes of a message when encoding, unless the user chooses.
pub const MESSAGE_BYTES: usize = crate::tuning::TUNING.message_bytes;

/// What to do with the segments and images that are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Resume {
    /// Resume from what is found; start afresh if there is nothing.
    Auto,
    /// Discard what is found and start afresh.
    Never,
    /// Resume from what is found, or fail.
    Require,
    /// Resume from the checkpoint of this number (its epoch), or fail.
    At(u64),
}

impl FromStr for Resume {
    type Err = ();

    fn from_str(text: &str) -> std::result::Result<Self, ()> {
        match text {
            "auto" => Ok(Self::Auto),
            "never" => Ok(Self::Never),
            "require" => Ok(Self::Require),
            number => number.parse().ok().filter(|&epoch| epoch > 0).map(Self::At).ok_or(()),
        }
    }
}

impl fmt::Display for Resume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Never => f.write_str("never"),
            Self::Require => f.write_str("require"),
            Self::At(epoch) => write!(f, "{epoch}"),
        }
    }
}

/// The settings of checkpoints. All but `host`, `domain`, `node`, `rank_in_run`, `clock` and
/// `nonce` must be the same on all ranks.
#[derive(Debug, Clone)]
pub struct Config {
    /// Name of the run.
    pub run_id: String,
    /// Everything else that must match for a segment to be usable: the application's parameters, as
    /// a JSON object if each is to have a name.
    pub application: String,
    /// How checkpoints are kept.
    pub method: Method,
    /// The erasure code; each group shapes it to its size.
    pub code: CodecKind,
    /// Members of a group, n.
    pub members: usize,
    /// Parities of a stripe, m; 0 for a rank alone, see `Config::for_one_rank`.
    pub parities: usize,
    /// The ranks of each group, if the application defines the groups: all of one size, with every
    /// rank in one. `None`: groups are formed by [`group::form`](super::group::form).
    pub groups: Option<Vec<Vec<usize>>>,
    /// The rank that this process had before a loss that its job survived; `None` if it had none.
    pub rank_in_run: Option<usize>,
    /// For a job (method `abft`) that continues with fewer processes than the run has ranks: each
    /// process keeps its rank, and lost ranks have no process. The sets of ranks partition the run;
    /// the application survives the loss of ranks of one set. `None`: there is a process for each
    /// rank.
    pub may_lose: Option<Vec<Vec<usize>>>,
    /// Bytes of a message when encoding, about; the parities do not depend on it.
    pub message_bytes: usize,
    /// Whether members of a group may share a failure domain.
    pub allow_shared_domains: bool,
    /// What to do with segments and images of earlier starts.
    pub resume: Resume,
    /// Whether the application knows that no image of this run exists: then a level that fails
    /// hides none, and a first start gives that level up instead of being refused.
    pub nothing_hidden: bool,
    /// Host of this process, as messages name it.
    pub host: String,
    /// Failure domain of this process.
    pub domain: String,
    /// Node of this process: processes of one node see the same segments.
    pub node: String,
    /// Wall clock at the start of this process, in any unit that is always the same; that of
    /// process 0 counts.
    pub clock: u64,
    /// A random number; that of process 0 counts.
    pub nonce: u64,
    /// Most bytes of state that a checkpoint takes.
    pub state_capacity_bytes: usize,
    /// Bands that a region is cut into, at most.
    pub bands: usize,
    /// Bytes of a cell, the unit of checksums. A multiple of 8.
    pub cell_bytes: usize,
    /// Maximum number of damaged cells of a rank that a restart lists and repairs one by one. With
    /// more, an image is lost and a segment in memory is refused.
    pub damaged_cells_max: usize,
    /// Approximate bytes of messages in transit at once in a group that encodes while the
    /// application computes; one message has a sixteenth of them at most.
    pub in_flight_bytes: usize,
    /// Areas of a segment begin on a multiple of this, in bytes, which is a multiple of 8.
    pub align_bytes: usize,
    /// B, C, D and the header are written in chunks of this many bytes.
    pub chunk_bytes: usize,
    /// Whether to check, before each checkpoint, that what is declared unchanged is unchanged. The
    /// check reads all of A, B, C and D.
    pub check_frozen: bool,
    /// Levels of images, the nearest first; for methods `self`, `double` and `abft`.
    pub levels: Vec<Level>,
    /// Reads the time of the run from a state, so that the time between two images counts across
    /// starts. `None`: it counts from each start.
    pub state_seconds: Option<StateSeconds>,
    /// Method `abft`: an image contains this many bytes of each region, from its first on, or all
    /// if it has fewer. A restart does not need the others.
    pub abft_image_bytes: usize,
    /// The thread or process that writes images.
    pub image_writer: Writer,
    /// Images are written in pieces of this many bytes.
    pub image_piece_bytes: usize,
    /// Images that share a file begin on multiples of this, in bytes: a multiple of the page size
    /// of any system, or the end of one image and the head of the next would share a page of the
    /// page cache.
    pub image_align_bytes: u64,
}

impl Config {
    /// The defaults: groups of 16 with one parity, method `self`.
    pub fn new(run_id: &str, code: CodecKind) -> Self {
        Self {
            run_id: run_id.to_owned(),
            application: String::new(),
            method: Method::SelfCheckpoint,
            code,
            members: 16,
            parities: 1,
            groups: None,
            rank_in_run: None,
            may_lose: None,
            message_bytes: MESSAGE_BYTES,
            allow_shared_domains: false,
            resume: Resume::Auto,
            nothing_hidden: false,
            host: String::new(),
            domain: String::new(),
            node: String::new(),
            clock: 0,
            nonce: 0,
            state_capacity_bytes: 4096,
            bands: BANDS,
            cell_bytes: CELL_BYTES,
            damaged_cells_max: 1 << 16,
            in_flight_bytes: 4 << 20,
            align_bytes: 4096,
            chunk_bytes: 1 << 20,
            check_frozen: cfg!(debug_assertions),
            levels: Vec::new(),
            state_seconds: None,
            abft_image_bytes: usize::MAX,
            image_writer: Writer::thread(),
            image_piece_bytes: 8 << 20,
            image_align_bytes: 1 << 20,
        }
    }

    /// For a job of one rank: no other has parities of its memory, which survives its process.
    #[must_use]
    pub(crate) fn for_one_rank(self) -> Self {
        Self { parities: 0, groups: Some(vec![vec![0]]), ..self }
    }

    /// Completes a configuration with what identifies this process and start. The host is the
    /// failure domain unless the configuration names another.
    pub fn identified<P: Process + Copy>(
        self,
        segments: &RunSegments<'_, P>,
        host: &str,
    ) -> io::Result<Self> {
        let unix = now_unix();
        let is_own = self.domain.is_empty();
        Ok(Self {
            host: host.to_owned(),
            domain: if is_own { host.to_owned() } else { self.domain },
            node: segments.node()?,
            clock: (unix * 1e3) as u64,
            nonce: (unix * 1e9) as u64 ^ u64::from(std::process::id()).rotate_left(40),
            ..self
        })
    }

    /// Ranks of the run, in a job of `processes`: those of all sets of `may_lose`, if it is given.
    pub(super) fn ranks(&self, processes: usize) -> usize {
        let sets = self.may_lose.as_deref();
        sets.map_or(processes, |sets| sets.iter().map(Vec::len).sum())
    }

    /// The number of ranks of a group that a failure domain may hold and not count as shared. A
    /// group that the application defines survives as many losses at once as it has parities.
    pub(super) fn max_in_a_domain(&self) -> usize {
        if self.groups.is_some() { self.parities } else { 1 }
    }

    pub(super) fn settings(&self, shapes: &[RegionShape]) -> Vec<Setting> {
        let mut all = vec![Setting::new("run", &self.run_id)];
        let parameters = self.parameters(shapes, self.ranks(0));
        all.extend(parameters.iter().map(|(name, value)| Setting::new(name, value)));
        all.extend([
            Setting::new("resume", self.resume),
            Setting::new("allow_shared_domains", self.allow_shared_domains),
            Setting::new("groups", format!("{:?}", self.groups)),
            Setting::new("ranks that may be lost", format!("{:?}", self.may_lose)),
            Setting::new("message_bytes", self.message_bytes),
            Setting::new("nothing_hidden", self.nothing_hidden),
            Setting::new("abft_image_bytes", self.abft_image_bytes),
        ]);
        let levels = self.levels.iter().map(Level::settings).collect::<Vec<_>>().join("; ");
        all.push(Setting::new("levels", levels));
        all
    }

    pub(super) fn parameters(&self, shapes: &[RegionShape], ranks: usize) -> Parameters {
        let ours = [
            (FORMAT_NAME, FORMAT.to_string()),
            ("ranks", ranks.to_string()),
            ("method", self.method.to_string()),
            ("code", self.code.to_string()),
            ("members of a group", self.members.to_string()),
            ("parities", self.parities.to_string()),
            ("memory of a rank", format_shapes(shapes)),
            ("bands", self.bands.to_string()),
            ("alignment", self.align_bytes.to_string()),
            ("bytes of a cell", self.cell_bytes.to_string()),
            ("bytes of state", self.state_capacity_bytes.to_string()),
        ];
        let mut all: Parameters = ours.map(|(name, value)| (name.to_owned(), value)).into();
        all.extend(named_parameters(&self.application));
        all
    }
}

fn format_shapes(shapes: &[RegionShape]) -> String {
    let shape = |shape: &RegionShape| format!("{} x {} bytes", shape.rows, shape.pitch_bytes);
    shapes.iter().map(shape).collect::<Vec<_>>().join(", ")
}

fn named_parameters(application: &str) -> Parameters {
    match serde_json::from_str::<serde_json::Map<_, _>>(application) {
        Ok(fields) => {
            let named = |(name, value): (&String, &serde_json::Value)| {
                (format!("{APPLICATION}{name}"), value.to_string())
            };
            fields.iter().map(named).collect()
        }
        Err(_) => Parameters::from([("application".to_owned(), application.to_owned())]),
    }
}
