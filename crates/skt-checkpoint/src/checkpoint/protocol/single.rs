//! Method `single`: one copy with its parities, incomplete while it is being overwritten.

use super::checkpointer::Checkpointer;
use crate::checkpoint::error::Result;
use crate::checkpoint::hook::{Step, StepName};

use crate::checkpoint::schedule::Stats;
use skt_store::layout::Active;

impl<'n> Checkpointer<'n> {
    /// Marks the copy as incomplete, copies and encodes over it, waits at the barrier, and writes
    /// COMMIT.
    pub(super) fn checkpoint_single(
        &mut self,
        epoch: u64,
        active: &[Active],
        state: Vec<u8>,
        stats: &mut Stats,
    ) -> Result<()> {
        self.segment.begin_update(epoch)?;
        let free = self.images.take_back(&*self.segment.vault.hook());
        stats.copy_seconds =
            self.segment.copy_all(Step::new(StepName::Copy, epoch), active, free)?;
        self.encoding.encode_all(&mut self.segment, epoch, active, stats)?;
        self.barrier(epoch, stats)?;
        self.segment.commit_stamped(epoch, state)
    }
}
