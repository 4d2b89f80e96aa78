//! What the launcher says of this process, before MPI is up.
//!
//! Under `mpirun` every rank parses the same command line; only one of them should
//! print messages.

use std::env;
use std::thread;
use std::time::Duration;

/// Where launchers put the rank: Open MPI, PMIx, MPICH/Hydra, MVAPICH2, Slurm.
const RANK_NAMES: [&str; 5] =
    ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID"];

/// Where launchers put the number of ranks.
const SIZE_NAMES: [&str; 4] =
    ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_NTASKS"];

/// This process's rank, if a launcher started it.
pub fn rank() -> Option<usize> {
    first_number(&RANK_NAMES, |name| env::var(name).ok())
}

/// Number of ranks of the job, if the launcher says it.
pub fn size() -> Option<usize> {
    first_number(&SIZE_NAMES, |name| env::var(name).ok())
}

/// Whether this process prints messages: rank 0, or alone.
pub fn is_first() -> bool {
    rank().is_none_or(|rank| rank == 0)
}

/// Waits a second if this process does not print messages; to be called before
/// it ends with an error. A launcher kills the whole job when the first rank
/// ends so. Rank 0 may come up later than others, and Open MPI 5 drops what it has
/// not read yet of the others' output: the message of rank 0 must not be lost. It
/// costs no time: rank 0's own end is what the launcher sees first.
pub fn let_the_first_speak() {
    if !is_first() {
        thread::sleep(Duration::from_secs(1));
    }
}

fn first_number(names: &[&str], get: impl Fn(&str) -> Option<String>) -> Option<usize> {
    names.iter().find_map(|name| get(name)?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_launcher_is_believed() {
        // mpirun inside of an sbatch script: Slurm's task is 0 for all ranks.
        let environment = |name: &str| match name {
            "OMPI_COMM_WORLD_RANK" => Some("3".to_owned()),
            "SLURM_PROCID" => Some("0".to_owned()),
            _ => None,
        };
        assert_eq!(first_number(&RANK_NAMES, environment), Some(3));
        assert_eq!(first_number(&RANK_NAMES, |_| None), None);
        assert_eq!(first_number(&RANK_NAMES, |_| Some("x".to_owned())), None);
    }
}
