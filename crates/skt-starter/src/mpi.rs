//! The binary interfaces of MPI.

/// A binary interface of MPI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mpi {
    /// The interface of Open MPI 4 and 5.
    Openmpi,
    /// The interface of MPICH 3.1 and later, which other libraries share.
    Mpich,
}

use Mpi::{Mpich, Openmpi};

impl Mpi {
    /// All of them.
    pub const ALL: [Self; 2] = [Openmpi, Mpich];

    /// The name of the interface's folder, and its name in `SKT_HPL_MPI`.
    pub fn name(self) -> &'static str {
        match self {
            Openmpi => "openmpi",
            Mpich => "mpich",
        }
    }

    /// The interface's name in messages.
    pub fn title(self) -> &'static str {
        match self {
            Openmpi => "Open MPI",
            Mpich => "MPICH",
        }
    }

    /// The libraries that have it.
    pub fn families(self) -> &'static str {
        match self {
            Openmpi => "Open MPI 4 or 5",
            Mpich => "MPICH, Intel MPI, MVAPICH, or Cray MPICH with cray-mpich-abi",
        }
    }

    /// The library's file.
    pub fn library(self) -> &'static str {
        match self {
            Openmpi => "libmpi.so.40",
            Mpich => "libmpi.so.12",
        }
    }

    /// The interface of a launcher with this name.
    pub(crate) fn from_launcher(name: &str) -> Option<Self> {
        let begins = |parts: &[&str]| parts.iter().any(|part| name.starts_with(part));
        if begins(&["hydra"]) || name.ends_with(".hydra") || name.ends_with(".mpich") {
            Some(Mpich)
        } else if begins(&["orte", "prte", "ompi"]) || name.ends_with(".openmpi") {
            Some(Openmpi)
        } else {
            None
        }
    }
}
