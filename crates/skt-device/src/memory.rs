//! A piece of device memory that checkpoints copy.

use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

use skt_checkpoint::mover::{MoveError, Mover};

use crate::copier::Copier;
use crate::error::DeviceError;

/// A piece of a device's memory, which a copier copies. Several pieces may share one.
pub struct DeviceMemory {
    copier: Arc<Mutex<Copier>>,
    memory: *mut c_void,
    bytes: usize,
}

// SAFETY: the address is of a device's memory, which no thread of the host accesses; the copier is
// locked for each copy.
unsafe impl Send for DeviceMemory {}

impl DeviceMemory {
    /// `bytes` bytes at `memory`: a device pointer, or the `cl_mem` of a buffer.
    ///
    /// # Safety
    /// The memory is of the copier's device or context, has these bytes, and is not freed before
    /// this is dropped.
    pub unsafe fn new(copier: Arc<Mutex<Copier>>, memory: *mut c_void, bytes: usize) -> Self {
        Self { copier, memory, bytes }
    }

    fn copy(
        &self,
        offset: usize,
        bytes: usize,
        copy: impl FnOnce(&mut Copier) -> Result<(), DeviceError>,
    ) -> Result<(), MoveError> {
        let size = self.bytes;
        let is_inside = offset.checked_add(bytes).is_some_and(|end| end <= size);
        let result = if is_inside {
            // A panic elsewhere leaves no copy in flight.
            copy(&mut self.copier.lock().unwrap_or_else(PoisonError::into_inner))
        } else {
            Err(DeviceError::Range { offset, bytes, size })
        };
        result.map_err(|error| MoveError { code: error.code(), text: error.to_string() })
    }
}

impl Mover for DeviceMemory {
    fn to_host(&mut self, offset: usize, host: &mut [u8]) -> Result<(), MoveError> {
        self.copy(offset, host.len(), |copier| {
            // SAFETY: the memory is as `new` was promised, and has these bytes.
            unsafe { copier.to_host(self.memory, offset, host) }
        })
    }

    fn from_host(&mut self, offset: usize, host: &[u8]) -> Result<(), MoveError> {
        self.copy(offset, host.len(), |copier| {
            // SAFETY: the memory is as `new` was promised, and has these bytes.
            unsafe { copier.from_host(self.memory, offset, host) }
        })
    }
}
