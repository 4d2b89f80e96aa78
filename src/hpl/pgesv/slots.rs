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
    Shared(Arc<Slots>),
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
                return Ok(Self::Shared(Arc::new(Slots { node, count, slot_doubles })));
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
    pub fn begin_at(&self, k: usize) {
        if let Self::Shared(slots) = self {
            slots.node.raise(APPLIED, k as u64);
        }
    }

    /// A buffer for panel `k`. Waits until no rank needs the panel that was there.
    ///
    /// # Errors
    /// When the job has been aborted.
    pub fn take<C: Comm>(&mut self, row: &C, k: usize) -> Result<PanelBuffer> {
        Ok(match self {
            Self::Messages(free) => {
                PanelBuffer::Message(free.pop_front().expect("one for each panel"))
            }
            Self::Shared(slots) => {
                let slot = Slot { slots: slots.clone(), k };
                slot.wait_for_room(row)?;
                PanelBuffer::Shared(slot)
            }
        })
    }

    /// Takes back the buffer of a panel that has been applied.
    pub fn put_back(&mut self, buffer: Option<PanelBuf>) {
        match self {
            Self::Messages(free) => free.extend(buffer),
            Self::Shared(_) => debug_assert!(buffer.is_none(), "slots have no buffers"),
        }
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
    node: Arc<NodeMemory>,
    /// Slots of each rank.
    count: usize,
    slot_doubles: usize,
}

/// The slot of one panel, as one rank sees it.
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
        assert!(self.is_owner(), "a panel is written by its owner");
        // SAFETY: all others have applied the panel that was here, and do not look at
        // this one before the flag; borrowed from the one place of this panel.
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
        let (node, ready) = (&self.slots.node, self.k as u64 + 1);
        assert!(node.is_raised(self.owner(), READY, ready), "a panel used before it is there");
        // SAFETY: written before the flag, and not again before this rank has said
        // that it has applied the panel, which takes this slot.
        unsafe { node.part(self.owner(), self.doubles()) }
    }

    /// Says that this rank has applied the panel.
    pub fn release(self) {
        self.slots.node.raise(APPLIED, self.k as u64 + 1);
    }
}
