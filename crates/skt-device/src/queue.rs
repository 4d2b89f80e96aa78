//! What copies need of a device: the calls that CUDA, HIP and OpenCL have in common.

use std::ffi::c_void;
use std::ops::Range;

use crate::error::DeviceError;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    ToHost,
    FromHost,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Transfer {
    pub direction: Direction,
    /// A device pointer, or the `cl_mem` of a buffer.
    pub memory: *mut c_void,
    /// The first byte of `memory` to copy.
    pub offset: usize,
    /// Only read if the direction is [`Direction::FromHost`].
    pub host: *mut u8,
    pub bytes: usize,
}

impl Transfer {
    /// The part of `bytes` bytes that starts at byte `begin` of this transfer.
    pub(crate) fn part(self, begin: usize, bytes: usize) -> Self {
        debug_assert!(begin + bytes <= self.bytes);
        let (offset, host) = (self.offset.wrapping_add(begin), self.host.wrapping_add(begin));
        Self { offset, host, bytes, ..self }
    }

    pub(crate) fn with_host(self, host: *mut u8) -> Self {
        Self { host, ..self }
    }

    pub(crate) fn host_range(self) -> Range<usize> {
        let start = self.host.addr();
        start..start + self.bytes
    }
}

/// The events of a queue: one for each staging buffer.
pub(crate) const EVENTS: usize = 2;

/// A stream or command queue. Calls other than `enter` and `leave` are made between these two.
pub(crate) trait Queue: Send {
    /// Makes the queue's context or device the current one of this thread.
    fn enter(&mut self) -> Result<(), DeviceError>;

    /// Restores what was current before `enter`.
    fn leave(&mut self);

    /// Waits for all that was enqueued before, by anyone. Returns the failure of any of that, if
    /// the library reports it.
    fn synchronize(&mut self) -> Result<(), DeviceError>;

    /// Enqueues a copy, of which a `wait` for `event` waits for the end.
    /// Safety: the device's memory has these bytes. The host's memory stays valid, and no one else
    /// accesses it, until a `wait` for the event or `synchronize` has returned; until then others
    /// may read what is only read.
    unsafe fn enqueue(&mut self, transfer: Transfer, event: usize) -> Result<(), DeviceError>;

    /// Waits for the ends of all copies enqueued with `event` since it was last waited for.
    fn wait(&mut self, event: usize) -> Result<(), DeviceError>;

    /// Allocates host memory that the device accesses fastest.
    fn allocate(&mut self, bytes: usize) -> Result<*mut u8, DeviceError>;

    /// Safety: the memory is from `allocate` of this queue, freed once, and no copy uses it any
    /// more.
    unsafe fn free(&mut self, memory: *mut u8);

    fn can_register(&self) -> bool;

    /// Pins whole pages of the host's memory.
    /// Safety: the pages are mapped, are not registered, and stay mapped until `unregister`.
    unsafe fn register(&mut self, pages: Range<usize>) -> Result<(), DeviceError>;

    /// Safety: `register` has pinned a range that starts at `start`, and no copy uses it any more.
    unsafe fn unregister(&mut self, start: usize);
}

/// A queue between `enter` and `leave` to which no earlier work is pending. When it is dropped, no
/// copy that it has enqueued accesses memory of the host any more: after a failure, too.
pub(crate) struct Session<'q> {
    queue: &'q mut dyn Queue,
    is_in_flight: bool,
}

impl<'q> Session<'q> {
    /// Waits for all earlier work of the queue, so that its results are copied, and its time is
    /// not taken for that of the copies.
    pub(crate) fn begin(queue: &'q mut dyn Queue) -> Result<Self, DeviceError> {
        queue.enter()?;
        let session = Self { queue, is_in_flight: false };
        session.queue.synchronize()?;
        Ok(session)
    }

    /// Calls that do not copy.
    pub(crate) fn queue(&mut self) -> &mut dyn Queue {
        self.queue
    }

    /// Safety: as of [`Queue::enqueue`], until a `wait` for it returns `Ok` or the session ends.
    pub(crate) unsafe fn enqueue(
        &mut self,
        transfer: Transfer,
        event: usize,
    ) -> Result<(), DeviceError> {
        // Before the call, as one that fails may have begun.
        self.is_in_flight = true;
        // SAFETY: promised by the caller; `drop` waits, if no one else does.
        unsafe { self.queue.enqueue(transfer, event) }
    }

    pub(crate) fn wait(&mut self, event: usize) -> Result<(), DeviceError> {
        self.queue.wait(event)
    }

    pub(crate) fn finished(&mut self) {
        self.is_in_flight = false;
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        if self.is_in_flight {
            // The failure that led here is the one to report.
            let _ = self.queue.synchronize();
        }
        self.queue.leave();
    }
}
