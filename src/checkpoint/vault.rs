//! The segment of a rank, and the one way to write the parts that count.

use std::ops::{DerefMut, Range};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

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
            self.bytes_mut(start..start + chunk.len()).copy_from_slice(chunk);
        }
        Ok(())
    }

    /// Copies within the segment, as [`Vault::store`] does.
    pub fn copy(&mut self, from: Range<usize>, to: usize, step: Step) -> Result<()> {
        let mut done = 0;
        while done < from.len() {
            self.step(step.chunk(done / self.chunk_bytes))?;
            let len = self.chunk_bytes.min(from.len() - done);
            let source = from.start + done..from.start + done + len;
            match &mut self.backing {
                Backing::Lasting(segment) => segment.copy_within(source, to + done),
                Backing::Private(words) => {
                    bytemuck::cast_slice_mut::<u64, u8>(words).copy_within(source, to + done);
                }
            }
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
