//! Which binary interface of MPI is wanted.

use std::path::Path;

use super::mpi::{MPICH, Mpi, OPENMPI};

/// The interfaces to try, in this order.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Wishes {
    /// One, if it is certain, else both.
    pub order: Vec<Mpi>,
    /// What decided, as a sentence.
    pub why: String,
}

/// Variables that a launcher sets for its ranks, from the innermost launcher to the outermost, as
/// `srun` may have started `mpirun`; and whether only one interface can be meant.
const LAUNCHERS: [(&str, Mpi, bool); 7] = [
    ("OMPI_COMM_WORLD_SIZE", OPENMPI, true),
    ("HYDI_CONTROL_FD", MPICH, true),
    ("MPI_LOCALRANKID", MPICH, true),
    ("PALS_RANKID", MPICH, true),
    // Slurm's `--mpi` decides which of the two; a library may be built for either.
    ("PMIX_RANK", OPENMPI, false),
    ("PMI_RANK", MPICH, false),
    ("PMI_FD", MPICH, false),
];

/// The interfaces to try: the one that `SKT_HPL_MPI` names, else that of the launcher of this
/// process, by the environment `get`, else that of the launcher in the folder `bin`, else any.
pub fn wishes(get: impl Fn(&str) -> Option<String>, bin: Option<&Path>) -> Result<Wishes, String> {
    if let Some(name) = get("SKT_HPL_MPI").filter(|name| !name.is_empty()) {
        let mpi = Mpi::ALL.into_iter().find(|mpi| mpi.name == name);
        let mpi = mpi.ok_or_else(|| format!("SKT_HPL_MPI={name}: neither openmpi nor mpich"))?;
        return Ok(Wishes { order: vec![mpi], why: format!("wanted: SKT_HPL_MPI={name}") });
    }
    if let Some((name, mpi, is_certain)) = LAUNCHERS.into_iter().find(|it| get(it.0).is_some()) {
        let why = format!("wanted: {}, as the launcher has set {name}", mpi.title);
        return Ok(Wishes { order: order(mpi, is_certain), why });
    }
    let of_bin = bin.and_then(|bin| {
        let has_library = |mpi: &Mpi| super::library::sibling_library(bin, mpi.library).is_some();
        let of_name = |name: &str| {
            let file = bin.join(name).canonicalize().ok()?;
            Mpi::from_launcher(file.file_name()?.to_str()?)
        };
        // A common folder, /usr/bin, is no evidence: its libraries are those of all programs.
        let of_names = ["mpirun", "mpiexec"].into_iter().find_map(of_name);
        of_names.or_else(|| Mpi::ALL.into_iter().find(has_library))
    });
    Ok(match (of_bin, bin) {
        (Some(mpi), Some(bin)) => {
            let why = format!("first tried: {}, that of {}", mpi.title, bin.display());
            Wishes { order: order(mpi, false), why }
        }
        _ => Wishes { order: Mpi::ALL.to_vec(), why: "there is no mpirun in PATH".to_owned() },
    })
}

fn order(first: Mpi, is_certain: bool) -> Vec<Mpi> {
    let others = Mpi::ALL.into_iter().filter(|mpi| *mpi != first && !is_certain);
    [first].into_iter().chain(others).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wishes_from(variables: &[(&str, &str)]) -> Result<Wishes, String> {
        let value = |name: &str| variables.iter().find(|it| it.0 == name).map(|it| it.1.to_owned());
        wishes(value, None)
    }

    #[test]
    fn the_innermost_launcher_decides() {
        let both = [("PMI_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "2")];
        assert_eq!(wishes_from(&both).unwrap().order, [OPENMPI]);
        assert_eq!(
            wishes_from(&[("MPI_LOCALRANKID", "0"), ("PMIX_RANK", "0")]).unwrap().order,
            [MPICH]
        );
        assert_eq!(wishes_from(&[("PMI_RANK", "0")]).unwrap().order, [MPICH, OPENMPI]);
        assert_eq!(wishes_from(&[("PMIX_RANK", "0")]).unwrap().order, [OPENMPI, MPICH]);
        assert_eq!(wishes_from(&[]).unwrap().order, [OPENMPI, MPICH]);
    }

    #[test]
    fn the_user_decides_before_all() {
        let chosen = |name| wishes_from(&[("SKT_HPL_MPI", name), ("OMPI_COMM_WORLD_SIZE", "2")]);
        assert_eq!(chosen("mpich").unwrap().order, [MPICH]);
        assert_eq!(chosen("").unwrap().order, [OPENMPI]);
        assert!(chosen("intel").unwrap_err().contains("SKT_HPL_MPI=intel"));
    }

    #[test]
    fn launchers_are_known_by_their_programs() {
        for (name, mpi) in [
            ("orterun", Some(OPENMPI)),
            ("prterun", Some(OPENMPI)),
            ("mpirun.openmpi", Some(OPENMPI)),
            ("ompirun_wrapper", Some(OPENMPI)),
            ("mpiexec.hydra", Some(MPICH)),
            ("hydra_pmi_proxy", Some(MPICH)),
            ("mpirun", None),
            ("slurmstepd", None),
            ("reporter", None),
        ] {
            assert_eq!(Mpi::from_launcher(name), mpi, "{name}");
        }
    }
}
