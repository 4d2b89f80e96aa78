//! The segment of a rank, and the only way to write its B, C, D and header.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Instant;

use super::header::HeaderLayout;
use super::hook::{Hook, Step, Wait};
use super::record::Record;
use skt_comm::Result;
use skt_store::codec;
use skt_store::layout::Summed;
use skt_store::memory::OpenSegment;

/// With method `none`, private memory.
pub(crate) enum Backing {
    Lasting(OpenSegment),
    /// Memory of this process, in whole words so that doubles are aligned.
    Private(Vec<u64>),
}

/// A segment whose B, C, D and header are written in chunks, with a [`Step`] (a point at which a
/// test can kill the rank) before each.
///
/// All of it is accessed through one pointer, piece by piece: the application may write to its
/// area, A, while this code writes to the others.
pub(crate) struct Vault {
    /// From a `Box`; used again only to be dropped or given back.
    backing: NonNull<Backing>,
    base: NonNull<u8>,
    len: usize,
    hook: Arc<dyn Hook>,
    chunk_bytes: usize,
}

// SAFETY: the vault owns its backing, as a box does; `base` points into it.
unsafe impl Send for Vault {}

impl Drop for Vault {
    fn drop(&mut self) {
        // SAFETY: the pointer comes from the box in `new` and is not dropped yet: `into_parts`
        // forgets it.
        drop(unsafe { Box::from_raw(self.backing.as_ptr()) });
    }
}

/// Ranges of a segment that a writer of images reads while the rank continues.
pub(crate) struct Lent(Vec<(NonNull<u8>, usize)>);

// SAFETY: it is only read, and `lend` requires that no one writes to it while it is lent.
unsafe impl Send for Lent {}

impl Lent {
    /// Range `number`; `None` after the last.
    pub(crate) fn range(&self, number: usize) -> Option<&[u8]> {
        let &(start, len) = self.0.get(number)?;
        // SAFETY: within the segment, which exists and does not change, as `lend` requires.
        Some(unsafe { std::slice::from_raw_parts(start.as_ptr(), len) })
    }
}

impl Vault {
    /// # Safety
    /// While these byte ranges are lent, no one writes to them, and the vault exists.
    pub(crate) unsafe fn lend(&mut self, ranges: &[Range<usize>]) -> Lent {
        let lent = |range: &Range<usize>| {
            let start = NonNull::new(self.pointer(range.clone()));
            (start.expect("a segment is not at address 0"), range.len())
        };
        Lent(ranges.iter().map(lent).collect())
    }

    pub(crate) fn new(backing: Backing, hook: Arc<dyn Hook>, chunk_bytes: usize) -> Self {
        assert!(chunk_bytes > 0);
        let backing = Box::leak(Box::new(backing));
        let bytes: &mut [u8] = match backing {
            Backing::Lasting(segment) => segment,
            Backing::Private(words) => bytemuck::cast_slice_mut(words),
        };
        let (base, len) = (NonNull::from(&mut *bytes).cast(), bytes.len());
        Self { backing: NonNull::from(backing), base, len, hook, chunk_bytes }
    }

    pub(crate) fn step(&self, step: Step) -> Result<()> {
        self.hook.at(&step)
    }

    /// Reports to the hook: a long pass over the memory, begun at `begun`, has done `done` parts.
    pub(crate) fn passes(&self, begun: Instant, done: usize) {
        let (seconds, operations) = (begun.elapsed().as_secs_f64(), done as u64);
        self.hook.waits(&Wait { seconds, operations, expected_seconds: 0.0 });
    }

    pub(crate) fn hook(&self) -> Arc<dyn Hook> {
        self.hook.clone()
    }

    /// The most bytes written between two steps.
    pub(crate) fn chunk_bytes(&self) -> usize {
        self.chunk_bytes
    }

    pub(crate) fn into_parts(self) -> (Backing, Arc<dyn Hook>) {
        let this = std::mem::ManuallyDrop::new(self);
        // SAFETY: read once; `this` is never dropped.
        let hook = unsafe { std::ptr::read(&this.hook) };
        // SAFETY: from the box in `new`, given back once.
        (*unsafe { Box::from_raw(this.backing.as_ptr()) }, hook)
    }

    /// The address of these bytes, valid as long as the vault.
    pub(crate) fn pointer(&mut self, range: Range<usize>) -> *mut u8 {
        assert!(range.start <= range.end && range.end <= self.len, "within the segment");
        // SAFETY: within the segment.
        unsafe { self.base.as_ptr().add(range.start) }
    }

    pub(crate) fn bytes(&self, range: Range<usize>) -> &[u8] {
        assert!(range.start <= range.end && range.end <= self.len, "within the segment");
        // SAFETY: within the segment, which the vault owns; no one reads bytes that others may be
        // writing at the time (`Checkpointer::ready`).
        unsafe {
            let start = self.base.as_ptr().add(range.start);
            std::slice::from_raw_parts(start, range.len())
        }
    }

    /// These bytes for direct writes, such as the application's own writes to A.
    pub(crate) fn bytes_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        let (start, len) = (self.pointer(range.clone()), range.len());
        // SAFETY: as in `bytes`.
        unsafe { std::slice::from_raw_parts_mut(start, len) }
    }

    /// Writes `bytes` at offset `at`. A death leaves any number of chunks written.
    pub(crate) fn store(&mut self, at: usize, bytes: &[u8], step: Step) -> Result<()> {
        for (i, chunk) in bytes.chunks(self.chunk_bytes).enumerate() {
            self.step(step.chunk(i))?;
            let start = at + i * self.chunk_bytes;
            codec::copy(chunk, self.bytes_mut(start..start + chunk.len()));
        }
        Ok(())
    }

    /// Writes this record, which is then in force.
    pub(crate) fn store_record(
        &mut self,
        header: &HeaderLayout,
        record: &mut Record,
        step: Step,
    ) -> Result<()> {
        let sequence = record.advance();
        let bytes = header.encode_record(record);
        let copies = header.order_of_copies(self.bytes(0..header.bytes()), sequence);
        self.order();
        self.store(copies[0].start, &bytes, step)?;
        self.order();
        // The record is in force: from here on a death loses nothing that counts.
        self.bytes_mut(copies[1].start..copies[1].start + bytes.len()).copy_from_slice(&bytes);
        self.order();
        Ok(())
    }

    /// Writes `source`, whole cells, to `bytes` of a row, and the checksum of each cell to its
    /// slot. A death leaves any number of chunks written.
    pub(crate) fn store_cells(
        &mut self,
        into: &Summed,
        row: usize,
        bytes: Range<usize>,
        source: &[u8],
        step: Step,
    ) -> Result<()> {
        let at_once = (self.chunk_bytes / into.cell_bytes).max(1) * into.cell_bytes;
        let mut at = bytes.start;
        for (i, chunk) in source.chunks(at_once).enumerate() {
            self.step(step.chunk(i))?;
            let bytes = at..at + chunk.len();
            let (data, sums) = (into.area.at(row, bytes.clone()), into.cells(&bytes));
            let sums = into.sums_at(row, &sums);
            let data = self.pointer(data);
            let mut sums = self.bytes_mut(sums).chunks_exact_mut(Summed::SUM_BYTES);
            // SAFETY: within the segment, as `pointer` has checked; data and checksums are
            // different areas of a layout and do not overlap.
            let data = unsafe { std::slice::from_raw_parts_mut(data, chunk.len()) };
            codec::copy_summed(chunk, data, into.cell_bytes, |sum| {
                let place = sums.next().expect("one checksum a cell");
                place.copy_from_slice(&sum.to_ne_bytes());
            });
            at = bytes.end;
        }
        Ok(())
    }

    pub(crate) fn sum(&self, of: &Summed, row: usize, cell: usize) -> u64 {
        let bytes = self.bytes(of.sums_at(row, &(cell..cell + 1)));
        u64::from_ne_bytes(bytes.try_into().expect("a checksum"))
    }

    /// Stores the checksums of cells of a row, from `cell` on.
    pub(crate) fn set_sums(&mut self, of: &Summed, row: usize, cell: usize, sums: &[u64]) {
        let at = of.sums_at(row, &(cell..cell + sums.len()));
        self.bytes_mut(at).copy_from_slice(bytemuck::cast_slice(sums));
    }

    /// Copies within the segment, in chunks as [`Vault::store`] does.
    pub(crate) fn copy(&mut self, from: Range<usize>, to: usize, step: Step) -> Result<()> {
        let to = to..to + from.len();
        assert!(from.end <= to.start || to.end <= from.start, "parts of a segment do not overlap");
        let (mut done, chunk_bytes) = (0, self.chunk_bytes);
        while done < from.len() {
            self.step(step.chunk(done / chunk_bytes))?;
            let len = chunk_bytes.min(from.len() - done);
            let source = self.pointer(from.start + done..from.start + done + len);
            // SAFETY: as in `bytes`; the two do not overlap.
            let source = unsafe { std::slice::from_raw_parts(source, len) };
            codec::copy(source, self.bytes_mut(to.start + done..to.start + done + len));
            done += len;
        }
        Ok(())
    }

    /// Keeps stores in order: a process that sees a store made after this call also sees all stores
    /// made before it. The death of a process loses none of its stores, so their order is all that
    /// matters.
    pub(crate) fn order(&self) {
        fence(Ordering::SeqCst);
    }
}
