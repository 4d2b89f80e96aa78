//! Copies through two pinned buffers: while the device copies one, this thread copies the other.

use skt_comm::pages::stream;

use crate::error::DeviceError;
use crate::queue::{Direction, EVENTS, Queue, Session, Transfer};

/// Two buffers of pinned memory, each with the event of its number.
pub(crate) struct Staging {
    buffers: [*mut u8; EVENTS],
    bytes: usize,
}

// SAFETY: the memory is that of a queue, which moves with it; no thread owns it.
unsafe impl Send for Staging {}

impl Staging {
    pub(crate) fn new(queue: &mut dyn Queue, bytes: usize) -> Result<Self, DeviceError> {
        let first = queue.allocate(bytes)?;
        match queue.allocate(bytes) {
            Ok(second) => Ok(Self { buffers: [first, second], bytes }),
            Err(error) => {
                // SAFETY: just allocated, and used by no copy.
                unsafe { queue.free(first) };
                Err(error)
            }
        }
    }

    /// Safety: they were allocated by this queue.
    pub(crate) unsafe fn free(self, queue: &mut dyn Queue) {
        for buffer in self.buffers {
            // SAFETY: of this queue by the caller; `copy` leaves no copy in flight that a session
            // has not waited for.
            unsafe { queue.free(buffer) };
        }
    }

    /// Copies `whole`, chunk by chunk, each through the buffer that the chunk before the last one
    /// has left:
    ///
    /// ```text
    ///   device to host              host to device
    ///   wait for, empty chunk i-2   wait for chunk i-2
    ///                               fill chunk i
    ///   enqueue chunk i             enqueue chunk i
    /// ```
    ///
    /// After an error, copies that are in flight still are waited for when the session ends.
    /// Safety: the memory of the device and of the host has these bytes, and no one else accesses
    /// them; others may read what is only read.
    pub(crate) unsafe fn copy(
        &mut self,
        session: &mut Session,
        whole: Transfer,
    ) -> Result<(), DeviceError> {
        let count = whole.bytes.div_ceil(self.bytes);
        let chunk = |index: usize| {
            let begin = index * self.bytes;
            whole.part(begin, self.bytes.min(whole.bytes - begin))
        };
        for index in 0..count + EVENTS {
            let event = index % EVENTS;
            let buffer = self.buffers[event];
            if let Some(before) = index.checked_sub(EVENTS).filter(|before| *before < count) {
                session.wait(event)?;
                if whole.direction == Direction::ToHost {
                    // SAFETY: the chunk has arrived in the buffer, and its host memory is this
                    // thread's alone.
                    unsafe { empty(buffer, chunk(before)) };
                }
            }
            if index < count {
                let chunk = chunk(index);
                if whole.direction == Direction::FromHost {
                    // SAFETY: what was in the buffer has reached the device, so that it is this
                    // thread's, as is the host memory.
                    unsafe { buffer.copy_from_nonoverlapping(chunk.host, chunk.bytes) };
                }
                // SAFETY: the buffer is not touched before the event has been waited for, and
                // lives as long as the queue.
                unsafe { session.enqueue(chunk.with_host(buffer), event)? };
            }
        }
        session.finished();
        Ok(())
    }
}

/// Copies a chunk from its buffer to the host, past the caches: of a checkpoint nothing is read
/// soon.
/// Safety: the buffer has the chunk. The chunk's host memory is valid, and no one else accesses it.
unsafe fn empty(buffer: *const u8, chunk: Transfer) {
    // SAFETY: promised by the caller; buffers are apart from the memory of the host.
    let (from, to) = unsafe {
        (
            std::slice::from_raw_parts(buffer, chunk.bytes),
            std::slice::from_raw_parts_mut(chunk.host, chunk.bytes),
        )
    };
    stream(from, to);
}
