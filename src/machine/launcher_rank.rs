//! What the launcher tells this process, before MPI is initialized.
//!
//! Under `mpirun` every rank parses the same command line; only one of them should print messages.

use std::env;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::os::unix::fs::FileTypeExt as _;
use std::thread;
use std::time::{Duration, Instant};

/// The variables with the rank: of Open MPI, PMIx, MPICH/Hydra, MVAPICH2, Slurm.
const RANK_NAMES: [&str; 5] =
    ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID"];

/// The variables with the number of ranks.
const SIZE_NAMES: [&str; 4] =
    ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_NTASKS"];

/// This process's rank, if a launcher started it.
pub fn rank() -> Option<usize> {
    first_number(&RANK_NAMES, |name| env::var(name).ok())
}

/// The number of ranks of the job, if the launcher tells it.
pub fn size() -> Option<usize> {
    first_number(&SIZE_NAMES, |name| env::var(name).ok())
}

/// Whether this process prints messages: it is rank 0, or no launcher started it.
pub fn is_first() -> bool {
    rank().is_none_or(|rank| rank == 0)
}

/// The longest time that a launcher takes to read what a rank has written.
const READ_PATIENCE: Duration = Duration::from_secs(1);

/// Waits until the launcher has what rank 0 has printed. Called before a process ends with an
/// error: a launcher kills the whole job when the first rank ends so, and Open MPI 5 drops the
/// output of any rank that it has not read yet, even of the rank that has ended. Rank 0 may start
/// later than others: these wait a second. That costs no time, as the launcher sees rank 0's own
/// end first.
pub fn let_the_first_speak() {
    match rank() {
        None => {}
        Some(0) => wait_until_read(&[&io::stdout(), &io::stderr()], READ_PATIENCE),
        Some(_) => thread::sleep(READ_PATIENCE),
    }
}

/// Waits until the pipes among these outputs are empty, at most as long as `patience`.
fn wait_until_read(outputs: &[&dyn AsFd], patience: Duration) {
    let start = Instant::now();
    let is_read = |output: &&dyn AsFd| unread_bytes(output.as_fd()) == 0;
    while !outputs.iter().all(is_read) && start.elapsed() < patience {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Unread bytes in a pipe; 0 for anything else.
fn unread_bytes(output: BorrowedFd) -> usize {
    let kind = output.try_clone_to_owned().and_then(|output| File::from(output).metadata());
    if !kind.is_ok_and(|kind| kind.file_type().is_fifo()) {
        return 0;
    }
    let mut bytes: libc::c_int = 0;
    // SAFETY: this request writes one int.
    let status = unsafe { libc::ioctl(output.as_raw_fd(), libc::FIONREAD, &mut bytes) };
    if status == 0 { bytes as usize } else { 0 }
}

fn first_number(names: &[&str], get: impl Fn(&str) -> Option<String>) -> Option<usize> {
    names.iter().find_map(|name| get(name)?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_launcher_is_believed() {
        // mpirun within an sbatch script: Slurm's task is 0 for all ranks.
        let environment = |name: &str| match name {
            "OMPI_COMM_WORLD_RANK" => Some("3".to_owned()),
            "SLURM_PROCID" => Some("0".to_owned()),
            _ => None,
        };
        assert_eq!(first_number(&RANK_NAMES, environment), Some(3));
        assert_eq!(first_number(&RANK_NAMES, |_| None), None);
        assert_eq!(first_number(&RANK_NAMES, |_| Some("x".to_owned())), None);
    }

    #[test]
    fn the_end_waits_for_the_reader_of_a_pipe_but_not_for_ever() {
        use std::io::{Read as _, Write as _};
        let (mut reader, mut writer) = io::pipe().unwrap();
        let patience = Duration::from_secs(600);
        // A file has no reader.
        wait_until_read(&[&writer, &File::open("Cargo.toml").unwrap()], patience);
        assert_eq!(unread_bytes(File::open("Cargo.toml").unwrap().as_fd()), 0);
        writer.write_all(b"error: why").unwrap();
        assert_eq!(unread_bytes(writer.as_fd()), 10);
        let start = Instant::now();
        let slow = thread::spawn(move || {
            thread::sleep(Duration::from_millis(100));
            reader.read_exact(&mut [0; 10]).unwrap();
            reader
        });
        wait_until_read(&[&writer], patience);
        assert_eq!(unread_bytes(writer.as_fd()), 0);
        assert!(start.elapsed() >= Duration::from_millis(100));
        let _open = slow.join().unwrap();
        writer.write_all(b"never read").unwrap();
        let start = Instant::now();
        let patience = Duration::from_millis(100);
        wait_until_read(&[&writer], patience);
        assert!(start.elapsed() >= patience);
    }
}
