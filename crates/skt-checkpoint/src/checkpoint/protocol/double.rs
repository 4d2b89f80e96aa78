//! Method `double`: two copies with their parities, written alternately.

use super::checkpointer::Checkpointer;
use crate::checkpoint::error::Result;
use crate::checkpoint::hook::{Step, StepName};

use crate::checkpoint::schedule::Stats;
use skt_store::layout::Active;

impl<'n> Checkpointer<'n> {
    /// Copies A to the older B, encodes A into its parities, waits at the barrier, and writes
    /// COMMIT.
    pub(super) fn checkpoint_double(
        &mut self,
        epoch: u64,
        active: &[Active],
        state: Vec<u8>,
        stats: &mut Stats,
    ) -> Result<()> {
        // The copy is two epochs old: what changed at either of them counts.
        let active: Vec<Active> = (active.iter().zip(self.segment.last_active()))
            .map(|(a, b)| Active { row: a.row.min(b.row), byte: a.byte.min(b.byte) })
            .collect();
        // An image of the epoch before may still be written, from the other copy.
        let free = self.images.take_back_before(epoch, &*self.segment.vault.hook());
        for region in 0..active.len() {
            self.segment.carry_sums(region, epoch)?;
        }
        stats.copy_seconds =
            self.segment.copy_all(Step::new(StepName::Copy, epoch), &active, free)?;
        self.encoding.encode_all(&mut self.segment, epoch, &active, stats)?;
        self.barrier(epoch, stats)?;
        self.segment.commit_stamped(epoch, state)
    }
}
