//! What the decision depends on besides what is found, and what it says.

use serde::{Deserialize, Serialize};
use skt_terms::named;

use super::offer::Holder;
use crate::checkpoint::header::SegmentId;
use crate::checkpoint::level::{Generation, Load, Rotten, Source};
use crate::checkpoint::methods::Method;
use crate::checkpoint::record::StartId;
use crate::checkpoint::refusal::Refusal;

/// What to do with what is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Resume {
    /// Go on from what is found; start afresh where nothing is.
    Auto,
    /// Throw away what is found and start afresh.
    Never,
    /// Go on from what is found, or fail.
    Require,
}

named!(Resume { Auto: "auto", Never: "never", Require: "require" });

/// What the decision depends on besides the offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// The method.
    pub method: Method,
    /// Members of a group, about.
    pub members: usize,
    /// Parities of a stripe.
    pub parities: usize,
    /// The groups, where the application has them; else they are formed.
    pub groups: Option<Vec<Vec<usize>>>,
    /// Where there are fewer processes than ranks: see [`Config::bears`].
    ///
    /// [`Config::bears`]: crate::checkpoint::config::Config::bears
    pub bears: Option<Vec<Vec<usize>>>,
    /// Whether members of a group may stand in one domain.
    pub allow_shared_domains: bool,
    /// What to do with what is found.
    pub resume: Resume,
    /// Whether there is no image of this run for a level that fails to hide.
    pub nothing_hidden: bool,
    /// Wall clock at this start, in any unit.
    pub clock: u64,
    /// A random number for this start.
    pub nonce: u64,
    /// Levels of images, by the names that users know.
    pub levels: Vec<String>,
    /// What this start has found to be rotten, and goes on without, in the order in which
    /// it found it.
    pub rotten: Vec<Rotten>,
}

/// Ranks of the run, in a job of so many processes: those of all sets, where there are some
/// (see [`Rules::bears`]).
pub(in super::super) fn ranks(bears: Option<&[Vec<usize>]>, processes: usize) -> usize {
    bears.map_or(processes, |sets| sets.iter().map(Vec::len).sum())
}

impl Rules {
    /// Ranks of the run, in a job of so many processes.
    pub(super) fn ranks(&self, processes: usize) -> usize {
        ranks(self.bears.as_deref(), processes)
    }

    /// Refuses to go on without the `lost` ranks, where no process is to take their places:
    /// each of `processes` needs the memory of its own rank, and the loss is to be borne.
    pub(super) fn refuse_lost(&self, lost: &[usize], processes: usize) -> Result<(), Refusal> {
        let Some(sets) = &self.bears else { return Ok(()) };
        let has_all = |set: &Vec<usize>| lost.iter().all(|rank| set.contains(rank));
        let has_memory = lost.len() + processes == self.ranks(processes);
        match has_memory && sets.iter().any(has_all) {
            true => Ok(()),
            false => Err(Refusal::NotBorne { lost: lost.to_vec() }),
        }
    }

    /// What is wrong with a source, if it is known to be rotten.
    pub(in super::super) fn rotten(&self, source: Source) -> Option<&Refusal> {
        self.rotten.iter().find(|rotten| rotten.source == source).map(|rotten| &rotten.refusal)
    }
}

/// The decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// This start of the job.
    pub attempt: StartId,
    /// Epoch that all go on from; 0: from the beginning.
    pub epoch: u64,
    /// The segment that has the application's state at that epoch.
    pub holder: Option<Holder>,
    /// That state, once its holder has told it.
    pub state: Vec<u8>,
    /// Ranks of each group.
    pub groups: Vec<Vec<usize>>,
    /// Some group has two members in one domain.
    pub shared_domains: bool,
    /// All ranks stand in one domain.
    pub single_domain: bool,
    /// Logical rank of each process.
    pub ranks: Vec<usize>,
    /// Segment that each process takes over; the others make one.
    pub attach: Vec<Option<SegmentId>>,
    /// Segments that each process removes.
    pub discard: Vec<Vec<SegmentId>>,
    /// Ranks whose data must be rebuilt.
    pub lost: Vec<usize>,
    /// Segments that were found and cannot be used.
    pub unusable: usize,
    /// The starts that segments out of reach may name as their lineage.
    pub left: Vec<StartId>,
    /// The images that all go on from, where memory is not enough.
    pub load: Option<Box<Load>>,
    /// The generations of each level that can be restored, the newest first.
    pub restorable: Vec<Vec<Generation>>,
    /// Of each level, whether the newest of these lacks images of some ranks, or has rotten ones.
    pub lacking: Vec<bool>,
    /// Whether those that memory has gone on from are known to have rotted in part.
    pub has_rotten_images: bool,
    /// Those of which some image is sealed.
    pub sealed: Vec<Vec<Generation>>,
    /// Of each level why this start writes no image to it and removes none, if it does not.
    pub given_up: Vec<Option<String>>,
}

/// The run has come to its end: what is left of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finished {
    /// Its last epoch.
    pub epoch: u64,
    /// The segment that has its result.
    pub holder: Holder,
    /// That result, once its holder has told it.
    pub result: Vec<u8>,
    /// The starts that segments out of reach may name as their lineage.
    pub left: Vec<StartId>,
    /// Segments that count and do not bear the result yet: who writes it there.
    pub mark: Vec<Vec<SegmentId>>,
    /// Segments of no use, which each process removes at once.
    pub discard: Vec<Vec<SegmentId>>,
    /// Segments that count, which each process removes when the result is
    /// reported.
    pub keep: Vec<Vec<SegmentId>>,
}

/// What a start is to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Decision {
    /// Begin, or go on.
    Work(Plan),
    /// Report the result once more, and clear up.
    Finished(Finished),
}
