//! Methods `single` (one copy with its parities, incomplete while it is being overwritten) and
//! `double` (two copies with their parities, written alternately).

use super::checkpointer::Checkpointer;
use crate::checkpoint::error::Result;
use crate::checkpoint::hook::{Step, StepName};
use crate::checkpoint::methods::Method;
use crate::checkpoint::schedule::Stats;
use skt_store::layout::Active;

impl Checkpointer<'_> {
    /// Copies A to the only B, which it marks as incomplete before, or to the older one of two,
    /// encodes A into its parities, waits at the barrier, and writes COMMIT.
    pub(super) fn checkpoint_copying(
        &mut self,
        epoch: u64,
        active: &[Active],
        state: Vec<u8>,
        stats: &mut Stats,
    ) -> Result<()> {
        let hook = self.segment.vault.hook();
        let mut active = active.to_vec();
        let free = if self.config.method == Method::Single {
            self.segment.begin_update(epoch)?;
            self.images.take_back(&*hook)
        } else {
            // The copy is two epochs old: what changed at either of them counts.
            for (a, b) in active.iter_mut().zip(&self.segment.last_active) {
                *a = Active { row: a.row.min(b.row), byte: a.byte.min(b.byte) };
            }
            // An image of the epoch before may still be written, from the other copy.
            let free = self.images.take_back_before(epoch, &*hook);
            for region in 0..active.len() {
                self.segment.carry_sums(region, epoch)?;
            }
            free
        };
        let step = Step::new(StepName::Copy, epoch);
        stats.copy_seconds = self.segment.copy_all(step, &active, free)?;
        self.encoding.encode_all(&mut self.segment, epoch, &active, stats)?;
        self.barrier(epoch, stats)?;
        self.segment.commit_stamped(epoch, state)
    }
}
