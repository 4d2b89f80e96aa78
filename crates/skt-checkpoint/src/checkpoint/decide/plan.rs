use serde::{Deserialize, Serialize};

use super::offer::Holder;
use crate::checkpoint::config::Config;
use crate::checkpoint::group::SharedDomain;
use crate::checkpoint::header::SegmentId;
use crate::checkpoint::level::{EpochSource, Generation, Load, Restorable, Rotten};
use crate::checkpoint::record::StartId;
use crate::checkpoint::refusal::Refusal;

/// The clock and the nonce of the configuration are those of process 0, which decides.
#[derive(Clone, Copy)]
pub(crate) struct Rules<'a> {
    pub config: &'a Config,
    /// What this start has found rotten and resumes without, in that order.
    pub rotten: &'a [Rotten],
}

impl Rules<'_> {
    /// Refuses to resume without the `lost` ranks if no process is to take them over (`may_lose`),
    /// unless each process has the memory of its rank and the application survives this loss.
    pub(super) fn refuse_lost(&self, lost: &[usize], processes: usize) -> Result<(), Refusal> {
        let Some(sets) = &self.config.may_lose else { return Ok(()) };
        let has_all = |set: &Vec<usize>| lost.iter().all(|rank| set.contains(rank));
        let has_memory = lost.len() + processes == self.config.ranks(processes);
        if has_memory && sets.iter().any(has_all) {
            Ok(())
        } else {
            Err(Refusal::CannotContinue { lost: lost.to_vec() })
        }
    }

    pub(in super::super) fn rotten(&self, source: EpochSource) -> Option<&Refusal> {
        self.rotten.iter().find(|rotten| rotten.source == source).map(|rotten| &rotten.refusal)
    }
}

/// The decision to begin or resume a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartPlan {
    /// This start of the job.
    pub start: StartId,
    /// Epoch that all resume from; 0 for the beginning.
    pub epoch: u64,
    /// The segment that has the application's state at that epoch.
    pub holder: Option<Holder>,
    /// The application's state at that epoch, once its holder has broadcast it.
    pub state: Vec<u8>,
    /// Ranks of each group.
    pub groups: Vec<Vec<usize>>,
    /// The failure domain with the most members of one group, if these are several or, with groups
    /// that the application defines, more than such a group may lose.
    pub shared_domain: Option<SharedDomain>,
    /// Whether all ranks are in one failure domain.
    pub single_domain: bool,
    /// Logical rank of each process.
    pub ranks: Vec<usize>,
    /// Segment that each process takes over; a process without one creates one.
    pub attach: Vec<Option<SegmentId>>,
    /// Segments that each process removes.
    pub discard: Vec<Vec<SegmentId>>,
    /// Ranks whose data must be rebuilt.
    pub lost: Vec<usize>,
    /// Segments that were found and cannot be used.
    pub unusable: usize,
    /// The starts that segments out of reach may name as their lineage.
    pub left: Vec<StartId>,
    /// The images that all resume from, if memory does not suffice.
    pub load: Option<Box<Load>>,
    /// What can be restored from each level.
    pub restorable: Vec<Restorable>,
    /// Whether images that the run depends on have rotted in part; the plan resumes from memory.
    pub has_rotten_images: bool,
    /// The generations of each level of which some image is sealed.
    pub sealed: Vec<Vec<Generation>>,
    /// The note of the checkpoint that was chosen last, if one was.
    pub note: Option<Box<Note>>,
    /// For each level, why this start neither writes nor removes images there, if it does not.
    pub given_up: Vec<Option<String>>,
}

/// The note of a checkpoint that a user has chosen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// The name of its files on the levels.
    pub name: Generation,
    /// The checkpoint, if it was chosen for this start, which has to write the note.
    pub chosen: Option<Generation>,
}

impl StartPlan {
    pub(super) fn empty(rules: &Rules, start: StartId, left: Vec<StartId>) -> Self {
        let levels = rules.config.levels.len();
        Self {
            start,
            epoch: 0,
            holder: None,
            state: Vec::new(),
            groups: Vec::new(),
            shared_domain: None,
            single_domain: false,
            ranks: Vec::new(),
            attach: Vec::new(),
            discard: Vec::new(),
            lost: Vec::new(),
            unusable: 0,
            left,
            load: None,
            restorable: vec![Restorable::default(); levels],
            has_rotten_images: false,
            sealed: vec![Vec::new(); levels],
            note: None,
            given_up: vec![None; levels],
        }
    }

    pub(in super::super) fn group_of(&self, rank: usize) -> (usize, Vec<usize>) {
        let group = self.groups.iter().position(|members| members.contains(&rank));
        let group = group.expect("every rank has a group");
        (group, self.groups[group].clone())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Finished {
    pub epoch: u64,
    pub holder: Holder,
    /// The result, once its holder has broadcast it.
    pub result: Vec<u8>,
    /// The starts that segments out of reach may name as their lineage.
    pub left: Vec<StartId>,
    /// For each process, the segments that count and lack the result: it writes the result to them.
    pub mark: Vec<Vec<SegmentId>>,
    /// Segments that cannot be used, which each process removes at once.
    pub discard: Vec<Vec<SegmentId>>,
    /// Segments that count, which each process removes once the result is reported.
    pub keep: Vec<Vec<SegmentId>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::large_enum_variant, reason = "a process makes one")]
pub(crate) enum Decision {
    Work(StartPlan),
    Finished(Finished),
}
