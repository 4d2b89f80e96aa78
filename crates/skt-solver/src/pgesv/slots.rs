//! Where panels are stored: in buffers that messages fill, or, where all ranks of the process row
//! share a node, in slots of their owner's memory.
//!
//! With slots a panel is not sent. Its owner writes it into the next of its slots and raises a
//! flag. The other ranks apply the panel straight from the slot, and then raise their own flags.
//! The owner reuses a slot only after it has written DEPTH + 1 panels. In turn these are about
//! Q (DEPTH + 1) panels of the process row, so it hardly ever waits for the others. With unequal
//! rates a fast process column may own successive panels, at worst all from k on: then in step k it
//! waits until the others have applied panel k - 1, for which they need nothing that is later.
//!
//! ```text
//! panel k, block i of its owner:   slot i mod (DEPTH + 1)
//! READY > k         of the owner: panel k is published
//! APPLIED > k       of each rank: the rank no longer needs panels 0 .. k
//! ```

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use super::{SolveError, memory_error};
use crate::grid::{ColumnMap, Grid};
use skt_comm::node::NodeMemory;
use skt_comm::{Comm, PageBuf, Result};

const READY: usize = 0;
const APPLIED: usize = 1;
/// Slots begin on a page.
const PAGE_DOUBLES: usize = 512;

pub(crate) enum PanelBuffers {
    /// Free buffers of this rank, which messages fill.
    Messages(VecDeque<PageBuf>),
    Shared(SharedPanels),
}

impl PanelBuffers {
    /// Memory for `count` panels of `nb` columns and up to `doubles` doubles at a time, shared if
    /// `share` and all ranks of the process row are on one node. Collective over the process row.
    pub(crate) fn new(
        grid: &Grid,
        nb: usize,
        count: usize,
        doubles: usize,
        share: bool,
    ) -> std::result::Result<Self, SolveError> {
        if share && grid.q > 1 {
            let slot_doubles = doubles.next_multiple_of(PAGE_DOUBLES);
            if let Some(node) = grid.row_memory.take(&grid.row, count * slot_doubles)? {
                let slots = Arc::new(Slots { node, cols: grid.cols(nb), count, slot_doubles });
                return Ok(Self::Shared(SharedPanels { slots, taken: 0..0 }));
            }
        }
        let buffers = (0..count).map(|_| PageBuf::new(doubles)).collect::<std::io::Result<_>>();
        buffers.map(Self::Messages).map_err(memory_error("panels"))
    }

    pub(crate) fn are_shared(&self) -> bool {
        matches!(self, Self::Shared(_))
    }

    /// Makes panel `k` the next one. Called while no panel is in use.
    pub(crate) fn begin_at(&mut self, k: usize) {
        if let Self::Shared(panels) = self {
            assert!(panels.taken.is_empty() && k >= panels.taken.end, "{k}: {:?}", panels.taken);
            panels.taken = k..k;
            panels.slots.node.raise(APPLIED, k as u64);
        }
    }

    /// Takes the buffer of panel `k`, the next one, once no rank needs the panel that was there.
    pub(crate) fn take(&mut self, row: &Comm, k: usize) -> Result<PanelBuffer> {
        Ok(match self {
            Self::Messages(free) => {
                PanelBuffer::Message(free.pop_front().expect("one for each panel"))
            }
            Self::Shared(panels) => PanelBuffer::Shared(panels.take(row, k)?),
        })
    }

    /// Takes back the buffer of the oldest panel in use, once that has been applied.
    pub(crate) fn put_back(&mut self, buffer: PanelBuffer) {
        match (self, buffer) {
            (Self::Messages(free), PanelBuffer::Message(buffer)) => free.push_back(buffer),
            (Self::Shared(panels), PanelBuffer::Shared(slot)) => panels.put_back(slot),
            _ => panic!("a buffer of another kind"),
        }
    }
}

/// The panels of a process row that have a slot, as one rank takes and returns them. Each panel
/// gets a slot once, in order.
pub(crate) struct SharedPanels {
    slots: Arc<Slots>,
    taken: Range<usize>,
}

impl SharedPanels {
    fn take(&mut self, row: &Comm, k: usize) -> Result<Slot> {
        assert_eq!(k, self.taken.end, "panels are taken in order");
        assert!(self.taken.len() < self.slots.count, "one slot for each panel");
        let slot = Slot { slots: self.slots.clone(), k };
        slot.wait_for_room(row)?;
        self.taken.end += 1;
        Ok(slot)
    }

    /// Announces that this rank has applied the panel.
    fn put_back(&mut self, slot: Slot) {
        assert!(Arc::ptr_eq(&slot.slots, &self.slots), "a slot of other panels");
        assert!(!self.taken.is_empty() && slot.k == self.taken.start, "panels go in order");
        self.taken.start += 1;
        self.slots.node.raise(APPLIED, self.taken.start as u64);
    }
}

pub(crate) enum PanelBuffer {
    Message(PageBuf),
    Shared(Slot),
}

impl PanelBuffer {
    /// For the owner of the panel to write, until it is published.
    pub(crate) fn message(&mut self) -> &mut [f64] {
        match self {
            Self::Message(buffer) => buffer,
            Self::Shared(slot) => slot.write(),
        }
    }
}

pub(crate) struct Slots {
    node: NodeMemory,
    cols: ColumnMap,
    count: usize,
    slot_doubles: usize,
}

/// The slot of one panel, as one rank sees it. The rank has no other `Slot` for that panel, nor one
/// for the panel that was there before.
pub(crate) struct Slot {
    slots: Arc<Slots>,
    k: usize,
}

impl Slot {
    fn owner(&self) -> usize {
        self.slots.cols.block_owner(self.k)
    }

    fn is_owner(&self) -> bool {
        self.owner() == self.slots.node.rank()
    }

    fn doubles(&self) -> Range<usize> {
        let Slots { cols, count, slot_doubles, .. } = &*self.slots;
        let start = cols.block_index(self.k) % count * slot_doubles;
        start..start + slot_doubles
    }

    /// On the owner: waits until all have applied the panel that was in this slot before.
    fn wait_for_room(&self, row: &Comm) -> Result<()> {
        let Slots { node, cols, count, .. } = &*self.slots;
        match cols.earlier_block(self.k, *count) {
            Some(before) if self.is_owner() => {
                node.wait_for_others(row, APPLIED, before as u64 + 1)
            }
            _ => Ok(()),
        }
    }

    fn write(&mut self) -> &mut [f64] {
        assert!(self.is_owner() && !self.is_there(), "a panel is written by its owner, once");
        // SAFETY: this is the only `Slot` of these doubles on this rank, and it is borrowed
        // mutably. All others have applied the panel that was here, and do not read this one before
        // the flag, which is not raised.
        unsafe { self.slots.node.mine(self.doubles()) }
    }

    /// On the owner: allows the others to read the panel.
    pub(crate) fn publish(&self) {
        if self.is_owner() {
            self.slots.node.raise(READY, self.k as u64 + 1);
        }
    }

    /// Whether the panel has been published; never waits.
    pub(crate) fn has_arrived(&self, row: &Comm) -> Result<bool> {
        self.slots.node.poll(row, self.owner(), READY, self.k as u64 + 1)
    }

    pub(crate) fn wait(&self, row: &Comm) -> Result<()> {
        self.slots.node.wait(row, self.owner(), READY, self.k as u64 + 1)
    }

    /// The message; only after the panel is published.
    pub(crate) fn read(&self) -> &[f64] {
        assert!(self.is_there(), "a panel used before it is there");
        // SAFETY: its owner wrote it before the flag, and writes here again only after this rank
        // has announced that it has applied the panel, which takes this `Slot`.
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
    use crate::comm::threads::run;
    use skt_host::choice::Pmap;

    #[test]
    fn a_panel_has_one_slot_and_a_slot_one_panel() {
        run(2, |world| {
            let grid = Grid::new(&world, 1, 2, Pmap::RowMajor)?.expect("two ranks");
            let mut buffers = PanelBuffers::new(&grid, 1, 2, 10, true).expect("memory");
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
