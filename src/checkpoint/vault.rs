//! The segment of a rank, and the one way to write the parts that count.

use std::ops::{DerefMut, Range};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use super::codec;
use super::header::{HeaderLayout, Record};
use super::hook::{Hook, Step};
use crate::comm::Result;

/// Memory behind a checkpoint: a segment that outlives the process, or (with
/// method `none`) memory of our own.
pub enum Backing<S> {
    /// Outlives the process.
    Lasting(S),
    /// Whole words, so that doubles are aligned.
    Private(Vec<u64>),
}

/// A segment whose B, C, D and header are written in chunks, with a step (a
/// place to die) before each.
pub struct Vault<S> {
    backing: Backing<S>,
    hook: Arc<dyn Hook>,
    chunk_bytes: usize,
}

impl<S: DerefMut<Target = [u8]>> Vault<S> {
    pub fn new(backing: Backing<S>, hook: Arc<dyn Hook>, chunk_bytes: usize) -> Self {
        assert!(chunk_bytes > 0);
        Self { backing, hook, chunk_bytes }
    }

    pub fn step(&self, step: Step) -> Result<()> {
        self.hook.at(&step)
    }

    /// The backing, with the hook.
    pub fn into_parts(self) -> (Backing<S>, Arc<dyn Hook>) {
        (self.backing, self.hook)
    }

    pub fn bytes(&self, range: Range<usize>) -> &[u8] {
        match &self.backing {
            Backing::Lasting(segment) => &segment[range],
            Backing::Private(words) => &bytemuck::cast_slice(words)[range],
        }
    }

    /// Direct access, for the application's own writes to A.
    pub fn bytes_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        match &mut self.backing {
            Backing::Lasting(segment) => &mut segment[range],
            Backing::Private(words) => &mut bytemuck::cast_slice_mut(words)[range],
        }
    }

    /// Writes `bytes` at `at`. A death leaves any number of chunks written.
    pub fn store(&mut self, at: usize, bytes: &[u8], step: Step) -> Result<()> {
        for (i, chunk) in bytes.chunks(self.chunk_bytes).enumerate() {
            self.step(step.chunk(i))?;
            let start = at + i * self.chunk_bytes;
            codec::copy(chunk, self.bytes_mut(start..start + chunk.len()));
        }
        Ok(())
    }

    /// Makes this record the one in force.
    pub fn store_record(
        &mut self,
        header: &HeaderLayout,
        record: &mut Record,
        step: Step,
    ) -> Result<()> {
        record.sequence += 1;
        let bytes = header.encode_record(record);
        self.order();
        self.store(header.slot(record.sequence), &bytes, step)?;
        self.order();
        Ok(())
    }

    /// What lies before `at`, and from there on. Who writes the latter calls
    /// [`Vault::step`] before each piece, as [`Vault::store`] does.
    pub fn split_at(&mut self, at: usize) -> (&[u8], &mut [u8]) {
        let all = match &mut self.backing {
            Backing::Lasting(segment) => &mut segment[..],
            Backing::Private(words) => bytemuck::cast_slice_mut::<u64, u8>(words),
        };
        let (low, high) = all.split_at_mut(at);
        (low, high)
    }

    /// Copies within the segment, as [`Vault::store`] does.
    pub fn copy(&mut self, from: Range<usize>, to: usize, step: Step) -> Result<()> {
        let mut done = 0;
        while done < from.len() {
            self.step(step.chunk(done / self.chunk_bytes))?;
            let len = self.chunk_bytes.min(from.len() - done);
            let source = from.start + done..from.start + done + len;
            let to = to + done..to + done + len;
            let all = match &mut self.backing {
                Backing::Lasting(segment) => &mut segment[..],
                Backing::Private(words) => bytemuck::cast_slice_mut::<u64, u8>(words),
            };
            let (from, to) = disjoint(all, source, to);
            codec::copy(from, to);
            done += len;
        }
        Ok(())
    }

    /// What was stored before must not be found missing when what is stored
    /// after is there. The death of a process loses no store that it has made,
    /// so it is enough to keep them in order.
    pub fn order(&self) {
        fence(Ordering::SeqCst);
    }
}

/// Two ranges of a segment that do not overlap.
fn disjoint(all: &mut [u8], from: Range<usize>, to: Range<usize>) -> (&[u8], &mut [u8]) {
    assert!(from.end <= to.start || to.end <= from.start, "parts of a segment do not overlap");
    if from.end <= to.start {
        let (low, high) = all.split_at_mut(to.start);
        (&low[from], &mut high[..to.len()])
    } else {
        let (low, high) = all.split_at_mut(from.start);
        (&high[..from.len()], &mut low[to])
    }
}
