//! Maxima over all ranks, found without blocking: the caller tests for them repeatedly, so that no
//! rank waits within MPI for one that does not come.

use std::ffi::c_int;
use std::mem;

use mpi::ffi;

use super::{MpiComm, check};
use crate::Result;

/// Numbers of a rank.
const NUMBERS: usize = 4;

/// What MPI reads and writes until it is done.
struct Numbers {
    request: ffi::MPI_Request,
    from: [u64; NUMBERS],
    into: [u64; NUMBERS],
}

/// Maxima that are being found.
pub struct MpiMaxima {
    /// `None` when they are found.
    numbers: Option<Box<Numbers>>,
}

impl MpiComm {
    /// Begins to find the maximum of each of these numbers over all ranks. Collective; never waits.
    pub fn maxima(&self, from: [u64; NUMBERS]) -> Result<MpiMaxima> {
        assert!(self.subgroup.is_none(), "all ranks of a communicator");
        // SAFETY: a constant handle of the library.
        let request = unsafe { ffi::RSMPI_REQUEST_NULL };
        let mut numbers = Box::new(Numbers { request, from, into: [0; NUMBERS] });
        // SAFETY: the memory is on the heap, and stays there until MPI is done: see `drop`.
        check("MPI_Iallreduce", unsafe {
            ffi::MPI_Iallreduce(
                numbers.from.as_ptr().cast(),
                numbers.into.as_mut_ptr().cast(),
                NUMBERS as c_int,
                ffi::RSMPI_UINT64_T,
                ffi::RSMPI_MAX,
                self.raw,
                &mut numbers.request,
            )
        })?;
        Ok(MpiMaxima { numbers: Some(numbers) })
    }
}

impl MpiMaxima {
    /// The maxima, once, when all ranks have given their numbers.
    pub fn test(&mut self) -> Result<Option<[u64; NUMBERS]>> {
        let Some(numbers) = &mut self.numbers else { return Ok(None) };
        let mut is_done: c_int = 0;
        // SAFETY: a live request; the status is not wanted.
        check("MPI_Test", unsafe {
            ffi::MPI_Test(&mut numbers.request, &mut is_done, ffi::RSMPI_STATUS_IGNORE)
        })?;
        Ok(if is_done != 0 { self.numbers.take().map(|numbers| numbers.into) } else { None })
    }
}

/// If a rank has not come, MPI may still write to the memory, so it is never freed.
impl Drop for MpiMaxima {
    fn drop(&mut self) {
        mem::forget(self.numbers.take());
    }
}
