//! Recovery: survivors finish their own flush, lost ranks are rebuilt from them, and every rank's
//! workspace is reset to its copy.
//!
//! A second death during any of this can be recovered from in the same way. A flush reads A and D,
//! which nothing writes to before the stamp. Rebuilding reads B and C of the survivors, and writes
//! to them only in damaged cells, which differ from their checksums until they are rebuilt. A
//! rebuilt rank counts as lost until its record is stamped.

use super::checkpointer::Checkpointer;

use crate::checkpoint::record::Holds;

/// What a recovery did.
#[derive(Debug, Clone, PartialEq)]
pub struct Recovered {
    /// The epoch that all ranks are at now.
    pub epoch: u64,
    /// The application's state at that epoch.
    pub state: Vec<u8>,
    /// Ranks of the whole job that were rebuilt.
    pub rebuilt: Vec<usize>,
    /// Damaged cells of the whole job that were rebuilt.
    pub repaired_cells: usize,
    /// Seconds on this rank.
    pub seconds: f64,
}

impl<'n> Checkpointer<'n> {
    /// Lost members of this rank's group, by position in it.
    pub(super) fn lost_members(&self) -> Vec<usize> {
        let ranks = self.segment.members();
        let is_lost = |member: &usize| self.plan.lost.contains(&ranks[*member]);
        let lost: Vec<usize> = (0..ranks.len()).filter(is_lost).collect();
        assert!(lost.len() <= self.config.parities, "refused when it was decided");
        let is_lost = lost.contains(&self.encoding.rank());
        assert_eq!(self.segment.record().is_hollow(), is_lost || self.plan.load.is_some());
        assert!(self.plan.load.is_none() || self.image().is_none() == is_lost);
        lost
    }

    /// Where this rank's data of the epoch is before the recovery.
    pub(super) fn holds(&self, epoch: u64) -> Holds {
        match self.image() {
            Some(_) => Holds::Copy,
            None => self.segment.record().holds(self.config.method, epoch),
        }
    }
}
