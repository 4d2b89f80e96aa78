//! Where panels lie: in buffers that messages fill, or, where all ranks of the
//! process row share a node, in slots of their owner's memory.
//!
//! Then a panel does not travel. Its owner writes the message into the next of its
//! slots and raises a flag; the others apply the panel from where it lies, and
//! raise a flag of theirs when they have done so. The owner comes back to a slot
//! when DEPTH + 1 panels of its own, so Q times as many of all, have gone by:
//! it all but never waits.
//!
//! ```text
//! panel k:   owner k mod Q,   slot (k div Q) mod (DEPTH + 1)
//! READY      of the owner: k + 1 panels are there
//! APPLIED    of all: k + 1 panels are not needed any more
//! ```

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use super::{SolveError, memory_error};
use crate::hpl::comm::node::NodeMemory;
use crate::hpl::comm::{Comm, PanelBuf, Result};
use crate::hpl::grid::Grid;

const READY: usize = 0;
const APPLIED: usize = 1;
/// Slots begin on a page.
const PAGE_DOUBLES: usize = 512;

/// Where the panels of the look-ahead lie.
pub enum PanelBuffers {
    /// In buffers, which messages fill: those that are free.
    Messages(VecDeque<PanelBuf>),
    /// In their owners' memory.
    Shared(SharedPanels),
}

impl PanelBuffers {
    /// Room for `count` panels of up to `doubles` in flight at a time, in shared
    /// memory if all of the process row share a node and `share` asks for it. Collective.
    ///
    /// # Errors
    /// When there is no memory, or a rank cannot be reached.
    pub fn new<C: Comm>(
        grid: &Grid<C>,
        count: usize,
        doubles: usize,
        share: bool,
    ) -> std::result::Result<Self, SolveError> {
        if share && grid.q > 1 {
            let slot_doubles = doubles.next_multiple_of(PAGE_DOUBLES);
            if let Some(node) = grid.row_memory.take(&grid.row, count * slot_doubles)? {
                let slots = Arc::new(Slots { node, count, slot_doubles });
                return Ok(Self::Shared(SharedPanels { slots, taken: 0..0 }));
            }
        }
        let buffers = (0..count).map(|_| PanelBuf::new(doubles)).collect::<std::io::Result<_>>();
        buffers.map(Self::Messages).map_err(memory_error("panels"))
    }

    /// Whether they lie in shared memory.
    pub fn are_shared(&self) -> bool {
        matches!(self, Self::Shared(_))
    }

    /// To be called when no panel is in use: the next one is panel `k`.
    ///
    /// # Panics
    /// When a panel is in use, or panel `k` was.
    pub fn begin_at(&mut self, k: usize) {
        if let Self::Shared(panels) = self {
            assert!(panels.taken.is_empty() && k >= panels.taken.end, "{k}: {:?}", panels.taken);
            panels.taken = k..k;
            panels.slots.node.raise(APPLIED, k as u64);
        }
    }

    /// A buffer for panel `k`, the next one. Waits until no rank needs the panel that was
    /// there.
    ///
    /// # Errors
    /// When the job has been aborted.
    ///
    /// # Panics
    /// When there is no buffer left, or panel `k` is not the next one.
    pub fn take<C: Comm>(&mut self, row: &C, k: usize) -> Result<PanelBuffer> {
        Ok(match self {
            Self::Messages(free) => {
                PanelBuffer::Message(free.pop_front().expect("one for each panel"))
            }
            Self::Shared(panels) => PanelBuffer::Shared(panels.take(row, k)?),
        })
    }

    /// Takes back the buffer of a panel that has been applied: of the oldest.
    ///
    /// # Panics
    /// When the buffer is not one of these, or not that of the oldest panel.
    pub fn put_back(&mut self, buffer: PanelBuffer) {
        match (self, buffer) {
            (Self::Messages(free), PanelBuffer::Message(buffer)) => free.push_back(buffer),
            (Self::Shared(panels), PanelBuffer::Shared(slot)) => panels.put_back(slot),
            _ => panic!("a buffer of another kind"),
        }
    }
}

/// The panels of a process row that have a slot on this rank. Each has one once, and they
/// come and go in order.
pub struct SharedPanels {
    slots: Arc<Slots>,
    taken: Range<usize>,
}

impl SharedPanels {
    fn take<C: Comm>(&mut self, row: &C, k: usize) -> Result<Slot> {
        assert_eq!(k, self.taken.end, "panels are taken in order");
        assert!(self.taken.len() < self.slots.count, "one slot for each panel");
        let slot = Slot { slots: self.slots.clone(), k };
        slot.wait_for_room(row)?;
        self.taken.end += 1;
        Ok(slot)
    }

    /// Says that this rank has applied the panel.
    fn put_back(&mut self, slot: Slot) {
        assert!(Arc::ptr_eq(&slot.slots, &self.slots), "a slot of other panels");
        assert!(!self.taken.is_empty() && slot.k == self.taken.start, "panels go in order");
        self.taken.start += 1;
        self.slots.node.raise(APPLIED, self.taken.start as u64);
    }
}

/// Where one panel lies.
pub enum PanelBuffer {
    /// In a buffer of this rank.
    Message(PanelBuf),
    /// In its owner's memory.
    Shared(Slot),
}

impl PanelBuffer {
    /// The message, for the owner of the panel to write.
    pub fn message(&mut self) -> &mut [f64] {
        match self {
            Self::Message(buffer) => buffer,
            Self::Shared(slot) => slot.write(),
        }
    }
}

/// The slots of a process row.
pub struct Slots {
    node: NodeMemory,
    /// Slots of each rank.
    count: usize,
    slot_doubles: usize,
}

/// The slot of one panel, as one rank sees it: it has no other for that panel, and none for
/// the panel that was there before.
pub struct Slot {
    slots: Arc<Slots>,
    k: usize,
}

impl Slot {
    fn owner(&self) -> usize {
        self.k % self.slots.node.size()
    }

    fn is_owner(&self) -> bool {
        self.owner() == self.slots.node.rank()
    }

    fn doubles(&self) -> Range<usize> {
        let Slots { node, count, slot_doubles } = &*self.slots;
        let start = self.k / node.size() % count * slot_doubles;
        start..start + slot_doubles
    }

    /// On the owner: waits until all have applied the panel that was here before.
    fn wait_for_room<C: Comm>(&self, row: &C) -> Result<()> {
        let Slots { node, count, .. } = &*self.slots;
        match (self.k + 1).checked_sub(node.size() * count) {
            Some(applied) if self.is_owner() => node.wait_for_others(row, APPLIED, applied as u64),
            _ => Ok(()),
        }
    }

    fn write(&mut self) -> &mut [f64] {
        assert!(self.is_owner() && !self.is_there(), "a panel is written by its owner, once");
        // SAFETY: this is the one `Slot` of these doubles on this rank, and borrowed to be
        // changed. All others have applied the panel that was here, and do not look at this
        // one before the flag, which is not raised.
        unsafe { self.slots.node.mine(self.doubles()) }
    }

    /// On the owner: lets the others read.
    pub fn publish(&self) {
        if self.is_owner() {
            self.slots.node.raise(READY, self.k as u64 + 1);
        }
    }

    /// Whether the panel is there; never waits.
    ///
    /// # Errors
    /// When the job has been aborted.
    pub fn has_come<C: Comm>(&self, row: &C) -> Result<bool> {
        self.slots.node.look(row, self.owner(), READY, self.k as u64 + 1)
    }

    /// Waits until the panel is there.
    ///
    /// # Errors
    /// When the job has been aborted.
    pub fn wait<C: Comm>(&self, row: &C) -> Result<()> {
        self.slots.node.wait(row, self.owner(), READY, self.k as u64 + 1)
    }

    /// The message.
    ///
    /// # Panics
    /// Before it is there.
    pub fn read(&self) -> &[f64] {
        assert!(self.is_there(), "a panel used before it is there");
        // SAFETY: its owner wrote it before the flag, and does so again once this rank has
        // said that it has applied the panel, which takes this slot.
        unsafe { self.slots.node.part(self.owner(), self.doubles()) }
    }

    fn is_there(&self) -> bool {
        self.slots.node.is_raised(self.owner(), READY, self.k as u64 + 1)
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::config::Pmap;
    use crate::hpl::comm::threads::run;

    #[test]
    fn a_panel_has_one_slot_and_a_slot_one_panel() {
        run(2, |world| {
            let grid = Grid::new(&world, 1, 2, Pmap::RowMajor)?.expect("two ranks");
            let mut buffers = PanelBuffers::new(&grid, 2, 10, true).expect("memory");
            buffers.begin_at(4);
            let slots = [4, 5].map(|k| buffers.take(&grid.row, k));
            for k in [4, 5, 6, 8] {
                let again = catch_unwind(AssertUnwindSafe(|| buffers.take(&grid.row, k)));
                assert!(again.is_err(), "panel {k}");
            }
            for slot in slots {
                let PanelBuffer::Shared(mut slot) = slot? else { panic!("one node") };
                let k = slot.k as f64;
                if slot.is_owner() {
                    slot.write().fill(k);
                }
                slot.publish();
                assert!(catch_unwind(AssertUnwindSafe(|| slot.write().len())).is_err());
                slot.wait(&grid.row)?;
                assert_eq!(slot.read()[9], k);
                buffers.put_back(PanelBuffer::Shared(slot));
            }
            buffers.take(&grid.row, 6).map(drop)
        })
        .into_iter()
        .for_each(|rank| rank.unwrap());
    }
}
