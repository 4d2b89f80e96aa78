//! The binary interfaces of MPI.

/// A binary interface of MPI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mpi {
    /// The name of the interface's folder, and its name in `SKT_HPL_MPI`.
    pub name: &'static str,
    /// In messages.
    pub title: &'static str,
    /// The libraries that have it.
    pub families: &'static str,
    /// The library's file.
    pub library: &'static str,
}

/// The interface of Open MPI 4 and 5.
pub const OPENMPI: Mpi = Mpi {
    name: "openmpi",
    title: "Open MPI",
    families: "Open MPI 4 or 5",
    library: "libmpi.so.40",
};
/// The interface of MPICH 3.1 and later, which other libraries share.
pub const MPICH: Mpi = Mpi {
    name: "mpich",
    title: "MPICH",
    families: "MPICH, Intel MPI, MVAPICH, or Cray MPICH with cray-mpich-abi",
    library: "libmpi.so.12",
};

impl Mpi {
    /// All of them.
    pub const ALL: [Self; 2] = [OPENMPI, MPICH];

    /// The interface of a launcher with this name.
    pub(crate) fn from_launcher(name: &str) -> Option<Self> {
        let begins = |parts: &[&str]| parts.iter().any(|part| name.starts_with(part));
        if begins(&["hydra"]) || name.ends_with(".hydra") || name.ends_with(".mpich") {
            Some(MPICH)
        } else if begins(&["orte", "prte", "ompi"]) || name.ends_with(".openmpi") {
            Some(OPENMPI)
        } else {
            None
        }
    }
}
