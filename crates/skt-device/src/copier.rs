//! Copies in a stream or a queue of the caller.

use std::ffi::c_void;
use std::ops::Range;

use crate::engine::{Engine, Sizes};
use crate::error::DeviceError;
use crate::opencl::CommandQueue;
use crate::queue::{Direction, Queue, Transfer};
use crate::stream::StreamQueue;
use crate::trials::Rates;

/// Copies between memory of a device and of the host, in a stream or queue of the caller.
///
/// A copy begins when all that was enqueued in the stream or queue before, by anyone, has ended,
/// and has ended itself when the call returns. A failure of that earlier work, as far as the
/// library reports it, is one of the copy.
pub struct Copier {
    engine: Engine,
}

impl Copier {
    /// Copies in a CUDA stream: `CUstream`, which is `cudaStream_t`. Null is the legacy default
    /// stream, of the context that is current in this thread. Memory is given as its device
    /// pointer. Fails if neither the stream nor this thread has a context.
    ///
    /// # Safety
    /// The stream and its context live until the copier is dropped.
    pub unsafe fn cuda(stream: *mut c_void) -> Result<Self, DeviceError> {
        // SAFETY: promised by the caller.
        Ok(Self::new(Box::new(unsafe { StreamQueue::cuda(stream)? })))
    }

    /// Copies in a HIP stream, `hipStream_t`, of the device that is current in this thread. Memory
    /// is given as its device pointer.
    ///
    /// # Safety
    /// The stream lives until the copier is dropped, and is one of the current device.
    pub unsafe fn hip(stream: *mut c_void) -> Result<Self, DeviceError> {
        // SAFETY: promised by the caller.
        Ok(Self::new(Box::new(unsafe { StreamQueue::hip(stream)? })))
    }

    /// Copies in an OpenCL queue, `cl_command_queue`, in order or not, which the copier retains.
    /// Memory is given as the `cl_mem` of a buffer.
    ///
    /// # Safety
    /// The queue is one.
    pub unsafe fn opencl(queue: *mut c_void) -> Result<Self, DeviceError> {
        // SAFETY: promised by the caller.
        Ok(Self::new(Box::new(unsafe { CommandQueue::new(queue)? })))
    }

    fn new(queue: Box<dyn Queue>) -> Self {
        Self { engine: Engine::new(queue, Sizes::default()) }
    }

    /// Copies `host.len()` bytes of `memory`, from byte `offset` on, to `host`. If the copy, or
    /// work that was enqueued before it, fails, `host` may have any contents, and the device does
    /// not write to it any more.
    ///
    /// # Safety
    /// `memory` is of the device, and has these bytes.
    pub unsafe fn to_host(
        &mut self,
        memory: *const c_void,
        offset: usize,
        host: &mut [u8],
    ) -> Result<(), DeviceError> {
        let (bytes, host) = (host.len(), host.as_mut_ptr());
        let direction = Direction::ToHost;
        let whole = Transfer { direction, memory: memory.cast_mut(), offset, host, bytes };
        // SAFETY: the device's memory by the caller; the host's is borrowed.
        unsafe { self.engine.copy(whole) }
    }

    /// Copies `host` to `memory`, from byte `offset` on. If the copy, or work that was enqueued
    /// before it, fails, these bytes of `memory` may have any contents, and the device does not
    /// read `host` any more.
    ///
    /// # Safety
    /// `memory` is of the device, and has these bytes.
    pub unsafe fn from_host(
        &mut self,
        memory: *mut c_void,
        offset: usize,
        host: &[u8],
    ) -> Result<(), DeviceError> {
        let (bytes, host) = (host.len(), host.as_ptr().cast_mut());
        let whole = Transfer { direction: Direction::FromHost, memory, offset, host, bytes };
        // SAFETY: the device's memory by the caller; the host's is borrowed, and only read.
        unsafe { self.engine.copy(whole) }
    }

    /// Names the host memory, by its addresses, that may be pinned in place, in place of that named
    /// before, which is unregistered. Without it, nothing is pinned but the copier's own buffers.
    ///
    /// # Safety
    /// The memory stays mapped until this is called again or the copier is dropped. No other copier
    /// copies to or from it at the same time as this one is used.
    pub unsafe fn set_pinnable(&mut self, range: Option<Range<usize>>) {
        // SAFETY: promised by the caller.
        unsafe { self.engine.set_pinnable(range.unwrap_or(0..0)) };
    }

    /// What was measured up to now.
    pub fn rates(&self) -> Rates {
        self.engine.rates()
    }
}
