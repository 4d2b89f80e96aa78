//! Communicators of codes that initialise MPI themselves, with the crate `mpi`.

use mpi::ffi;
use mpi::traits::Communicator;

use super::{MpiComm, Result, check};

impl MpiComm {
    /// A duplicate of a communicator of the crate `mpi`, for a code that has no [`MpiWorld`]. Its
    /// errors are returned, and its messages do not mix with those of the original. At most one
    /// thread of the process at a time may be in a call of MPI. Collective.
    ///
    /// [`MpiWorld`]: super::MpiWorld
    ///
    /// # Errors
    /// MPI cannot duplicate the communicator, and does not end the job itself.
    pub fn duplicate_of(comm: &impl Communicator) -> Result<Self> {
        let mut raw = comm.as_raw();
        // SAFETY: the original is alive for the length of this call.
        check("MPI_Comm_dup", unsafe { ffi::MPI_Comm_dup(comm.as_raw(), &mut raw) })?;
        Self::wrap(raw, true)
    }
}
