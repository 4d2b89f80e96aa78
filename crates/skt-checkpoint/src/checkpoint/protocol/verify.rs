//! Detection of rot: data that differs from what was written. A restart compares every cell of its
//! data and parities with its checksum before it relies on any. A damaged cell is an erasure: at
//! this one cell its stripe treats the member as lost. An image with very many damaged cells is
//! lost as a whole.

use std::collections::BTreeSet;

use super::checkpointer::Checkpointer;
use crate::checkpoint::decide::{Damage, Refusal};
use crate::checkpoint::encoding::Damaged;
use crate::checkpoint::error::Result;
use crate::checkpoint::hook::{Step, StepName};
use crate::checkpoint::level::Load;

use crate::checkpoint::segment::{DamagedCell, Findings};
use skt_comm::collect::all_gather_json;
use skt_host::units::counted;

impl<'n> Checkpointer<'n> {
    /// Compares this rank's data and parities of `epoch` with their checksums, and agrees with the
    /// group on what is damaged. Ranks whose images are lost then count among the plan's lost
    /// ranks. `unread` is why this rank's image could not be read. Collective over the job;
    /// [`Refusal::Damaged`] on all ranks, when more of one stripe is damaged or lost than its
    /// parities survive.
    pub(super) fn verify(&mut self, epoch: u64, unread: Option<String>) -> Result<Damaged> {
        self.segment.step(Step::new(StepName::RecoverVerify, epoch))?;
        let (me, listed_max) = (self.encoding.rank(), self.config.damaged_cells_max);
        let found = self.segment.find_damage(epoch, self.holds(epoch), me, listed_max);
        let rotten = match self.plan.load {
            Some(_) => self.ranks_where(!found.are_listed())?,
            None => Vec::new(),
        };
        // Damage too large to list means that the image is lost or the segment is refused.
        let listed = if found.are_listed() { &found.listed[..] } else { &[] };
        let damaged = self.encoding.agree_on_damage(listed)?;
        self.refuse_what_is_too_much(epoch, &found, unread, &damaged, &rotten)?;
        self.lose_images(&rotten);
        if self.plan.load.is_some() && !damaged.is_empty() {
            // All members of the group record it, as a later start may lack any of them.
            self.segment.note_rotten_images();
        }
        Ok(damaged)
    }

    /// Refuses on all ranks of the job damage that cannot be repaired, by rank and position. The
    /// images of the `rotten` ranks count as lost. Collective.
    fn refuse_what_is_too_much(
        &self,
        epoch: u64,
        found: &Findings,
        unread: Option<String>,
        damaged: &Damaged,
        rotten: &[usize],
    ) -> Result<()> {
        let (parities, members) = (self.config.parities, self.segment.members());
        let is_lost = |rank: &&usize| self.plan.lost.contains(rank) || rotten.contains(rank);
        let lost = members.iter().filter(is_lost).count();
        let is_too_much = |found: &&DamagedCell| {
            let too_many = |members: &BTreeSet<usize>| members.len() + lost > parities;
            damaged.get(&found.place).is_some_and(too_many)
        };
        let is_tolerated = found.are_listed() || rotten.contains(&self.job.rank());
        let first = if lost <= parities && is_tolerated {
            found.listed.iter().find(is_too_much)
        } else {
            found.listed.first()
        };
        let rank = self.job.rank();
        let damage = first.map(|DamagedCell { place, row, area, .. }| match &unread {
            Some(why) => Damage::unread(rank, why),
            None => Damage {
                rank,
                what: format!(
                    "has {}, the first in row {row}, byte {} of region {} of its {area}",
                    counted(found.cells, "damaged cell"),
                    place.cell * self.config.cell_bytes,
                    place.region
                ),
            },
        });
        let all = all_gather_json(&self.job, &damage)?;
        let damage: Vec<Damage> = all.into_iter().flatten().collect();
        if damage.is_empty() {
            Ok(())
        } else {
            let lost = self.plan.lost.clone();
            let of = |load: &Load| self.config.levels[load.level].name.clone();
            let level = self.plan.load.as_deref().map(of);
            Err(Refusal::Damaged { epoch, level, damage, lost, parities }.into())
        }
    }
}
