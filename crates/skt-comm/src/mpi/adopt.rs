//! Communicators of codes that initialise MPI themselves, with the crate `mpi`.

use mpi::ffi;
use mpi::traits::Communicator;

use super::{Comm, MpiComm, Result, Tag, check};

impl MpiComm {
    /// A duplicate of a communicator of the crate `mpi`, for a code that has no
    /// [`MpiWorld`](super::MpiWorld). Its errors are returned, and its messages do not mix with
    /// those of the original. At most one thread of the process at a time may be in a call of MPI.
    /// Collective.
    pub fn duplicate_of(comm: &impl Communicator) -> Result<Comm> {
        let mut raw = comm.as_raw();
        // SAFETY: the original is alive for the length of this call.
        check("MPI_Comm_dup", unsafe { ffi::MPI_Comm_dup(comm.as_raw(), &mut raw) })?;
        Self::wrap(raw, true).map(Comm::new)
    }

    /// Takes a communicator over: it is freed with the group, and afterwards its errors are
    /// returned.
    ///
    /// # Safety
    /// `raw` is a live communicator of ranks, no intercommunicator, which no one else frees.
    pub unsafe fn owning(raw: ffi::MPI_Comm) -> Result<Self> {
        Self::wrap(raw, true)
    }

    /// The rank of this group that has sent a message with this tag, if there is one. Never waits.
    pub fn probe_any(&self, tag: Tag) -> Result<Option<usize>> {
        let mut flag = 0;
        // SAFETY: a status is plain integers, and all zeros is a valid value.
        let mut status: ffi::MPI_Status = unsafe { std::mem::zeroed() };
        // SAFETY: the communicator is alive; MPI writes to the flag and the status alone.
        check("MPI_Iprobe", unsafe {
            ffi::MPI_Iprobe(
                ffi::MPI_ANY_SOURCE as _,
                self.tag(tag),
                self.raw,
                &mut flag,
                &mut status,
            )
        })?;
        Ok((flag != 0).then_some(status.MPI_SOURCE as usize))
    }
}
