//! Rank and size that the launcher passes to this process, known before MPI is initialized.
//!
//! Under `mpirun` every rank parses the same command line; only one of them should print messages.

use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::os::unix::fs::FileTypeExt as _;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;
use std::{env, io, thread};

use crate::affinity::mask_of;
use crate::process::stat;
use crate::wait_clock::WaitClock;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

/// The variables with the rank: of Open MPI, PMIx, MPICH/Hydra, MVAPICH2, Slurm.
const RANK_NAMES: [&str; 5] =
    ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID"];

/// The variables with the number of ranks: of Open MPI, MPICH/Hydra, MVAPICH2.
const SIZE_NAMES: [&str; 3] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"];

/// The variable with the number of ranks that `srun` has started. SLURM_NTASKS is also set in a
/// batch script, which is no rank.
const SLURM_SIZE_NAME: &str = "SLURM_STEP_NUM_TASKS";
/// Set where `srun --pty` has started a shell on a terminal: what a user starts there may be no
/// rank, although it has the variables of one.
const SLURM_TERMINAL_NAME: &str = "SLURM_PTY_PORT";

/// This process's rank, if a launcher started it.
pub fn rank() -> Option<usize> {
    first_number(&RANK_NAMES, |name| env::var(name).ok())
}

/// The CPUs that the launcher of this process may use, to which it may have bound its ranks in
/// parts; `None` if no launcher started it.
pub fn launcher_mask() -> Option<Vec<usize>> {
    mask_of(i32::try_from(launcher_of(std::process::id())?).ok()?).ok()
}

/// The launcher that started a process of a rank.
fn launcher_of(mut pid: u32) -> Option<u32> {
    let name = RANK_NAMES.into_iter().find(|name| variable_of(pid, name).is_some())?;
    // A shell or another program between the launcher and this process has the rank's variables.
    while variable_of(pid, name).is_some() {
        pid = u32::try_from(stat(pid)?.number(4)?).ok().filter(|parent| *parent > 0)?;
    }
    Some(pid)
}

/// Whether a launcher started this process. MPI gives the variables of a rank to a process that was
/// started without a launcher, too.
pub fn is_launched() -> bool {
    RANK_NAMES.into_iter().any(|name| variable_of(std::process::id(), name).is_some())
}

/// The value of a variable with which a process began; `None` if its variables cannot be read.
fn variable_of(pid: u32, name: &str) -> Option<Vec<u8>> {
    let variables = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let mut variables = variables.split(|byte| *byte == 0);
    let value = |one: &[u8]| Some(one.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?.to_vec());
    variables.find_map(value)
}

/// The number of ranks of the job, if the launcher passes it.
pub fn size() -> Option<usize> {
    size_variables(|name| env::var(name).ok()).first().map(|(_, size)| *size)
}

/// The variables with the number of ranks, each with its value. Those of Slurm count only without
/// others: a launcher of an MPI may start its daemons by `srun`.
fn size_variables(get: impl Fn(&str) -> Option<String>) -> Vec<(&'static str, usize)> {
    let read = |name: &'static str| Some((name, first_number(&[name], &get)?));
    let all: Vec<_> = SIZE_NAMES.into_iter().filter_map(read).collect();
    if all.is_empty() { read(SLURM_SIZE_NAME).into_iter().collect() } else { all }
}

/// Whether this process may be the shell on a terminal that `srun --pty` has started, or a command
/// of it. Steps that are started on the terminal inherit its variable, so only a step of a single
/// task may be the shell's.
pub fn is_on_a_terminal_of_slurm() -> bool {
    is_shell_of_slurm(|name| env::var(name).ok())
}

fn is_shell_of_slurm(get: impl Fn(&str) -> Option<String>) -> bool {
    get(SLURM_TERMINAL_NAME).is_some() && size_variables(get) == [(SLURM_SIZE_NAME, 1)]
}

/// The launcher has started several processes, and each is alone in its `MPI_COMM_WORLD`.
#[derive(Debug, thiserror::Error)]
#[error(
    "the launcher has started {started} processes ({variable}), and MPI sees one: this program is \
     built for {library}, which does not know this launcher. Start it with the mpirun of that MPI; \
     under Slurm, `srun --mpi=list` names the choices. `env -u {variable}` starts a single process"
)]
pub struct Alone {
    started: usize,
    variable: &'static str,
    library: String,
}

/// Checks that MPI, which sees `ranks`, sees all that were started. `by_supervisor` is the number
/// that `skt-hpl launch` has asked for, with the variable that passes it. `library` is the version
/// of the MPI.
pub fn check(
    ranks: usize,
    by_supervisor: Option<(&'static str, usize)>,
    library: &str,
) -> Result<(), Alone> {
    match alone(ranks, |name| env::var(name).ok(), by_supervisor) {
        None => Ok(()),
        Some((variable, started)) => Err(Alone { started, variable, library: short(library) }),
    }
}

/// The variable by which several processes were started, and their number, if MPI sees only one.
/// One variable that agrees with MPI is enough: where a launcher starts another, the ranks of the
/// inner one have the variables of both.
fn alone(
    ranks: usize,
    get: impl Fn(&str) -> Option<String>,
    by_supervisor: Option<(&'static str, usize)>,
) -> Option<(&'static str, usize)> {
    let mut sizes = size_variables(&get);
    sizes.retain(|(name, _)| *name != SLURM_SIZE_NAME || get(SLURM_TERMINAL_NAME).is_none());
    let is_several = |&(_, size): &(&str, usize)| size > 1;
    if ranks != 1 || !sizes.iter().all(is_several) {
        return None;
    }
    sizes.first().copied().or(by_supervisor.filter(is_several))
}

/// The name and number of an MPI: `Open MPI v4.1.4`, from its long version.
fn short(library: &str) -> String {
    let name = library.split(',').next().unwrap_or_default();
    name.split_whitespace().collect::<Vec<_>>().join(" ")
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
///
/// After rank 0 has ended, `srun --kill-on-bad-exit` ends the other ranks by SIGTERM, and returns
/// the largest code of all: so these end with `code`, too, and not by the signal.
pub fn defer_to_rank0(code: u8) {
    if rank().is_some() {
        end_by_sigterm_with(code);
    }
    match rank() {
        None => {}
        Some(0) => wait_until_read(&[&io::stdout(), &io::stderr()], READ_PATIENCE),
        Some(_) => thread::sleep(READ_PATIENCE),
    }
}

/// From now on SIGTERM ends this process with `code`.
fn end_by_sigterm_with(code: u8) {
    static CODE: AtomicU8 = AtomicU8::new(0);
    extern "C" fn end(_: libc::c_int) {
        // SAFETY: allowed in signal context.
        unsafe { libc::_exit(CODE.load(Ordering::Relaxed).into()) }
    }
    CODE.store(code, Ordering::Relaxed);
    let action = SigAction::new(SigHandler::Handler(end), SaFlags::empty(), SigSet::empty());
    // SAFETY: the handler only loads a word and ends the process.
    let _ = unsafe { sigaction(Signal::SIGTERM, &action) };
}

/// Waits until the pipes among these outputs are empty, at most as long as `patience`.
fn wait_until_read(outputs: &[&dyn AsFd], patience: Duration) {
    let mut clock = WaitClock::new(patience);
    let is_read = |output: &&dyn AsFd| unread_bytes(output.as_fd()) == 0;
    while !outputs.iter().all(is_read) && !clock.is_over() {
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

/// The number in the first of these variables that is set; `None` if it is no number, as those of
/// outer launchers then do not describe this process.
fn first_number(names: &[&str], get: impl Fn(&str) -> Option<String>) -> Option<usize> {
    names.iter().find_map(|name| get(name))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn innermost_launcher_wins() {
        // mpirun within an sbatch script: Slurm's task is 0 for all ranks.
        let environment = |name: &str| match name {
            "OMPI_COMM_WORLD_RANK" => Some("3".to_owned()),
            "SLURM_PROCID" => Some("0".to_owned()),
            _ => None,
        };
        assert_eq!(first_number(&RANK_NAMES, environment), Some(3));
        assert_eq!(first_number(&RANK_NAMES, |_| None), None);
        let torn = |name: &str| match name {
            "OMPI_COMM_WORLD_RANK" => Some("3x".to_owned()),
            _ => environment(name),
        };
        assert_eq!(first_number(&RANK_NAMES, torn), None, "Slurm's task is no rank of Open MPI");
        assert_eq!(first_number(&RANK_NAMES, |_| Some("x".to_owned())), None);
    }

    fn getter<'v>(variables: &'v [(&str, &str)]) -> impl Fn(&str) -> Option<String> + Copy + 'v {
        |name| Some(variables.iter().find(|(known, _)| *known == name)?.1.to_owned())
    }

    #[test]
    fn rank_isolated_by_mpi_is_noticed() {
        const STEP: &str = "SLURM_STEP_NUM_TASKS";
        let terminal = ("SLURM_PTY_PORT", "9");
        let given = |size| Some(("V", size));
        for (ranks, variables, by_supervisor, want) in [
            (1, &[("PMI_SIZE", "2")][..], None, Some(("PMI_SIZE", 2))),
            (2, &[("PMI_SIZE", "2")], None, None),
            (1, &[("PMI_SIZE", "1")], None, None),
            (1, &[], None, None),
            // A step of Slurm whose PMI the MPI does not know.
            (
                1,
                &[("SLURM_NTASKS", "4"), (STEP, "4"), ("SLURM_PROCID", "0")],
                None,
                Some((STEP, 4)),
            ),
            // A batch script for four ranks, and a terminal.
            (1, &[("SLURM_NTASKS", "4"), ("SLURM_PROCID", "0")], None, None),
            (1, &[(STEP, "4"), terminal], None, None),
            // mpirun -np 1, whose daemons srun has started on four nodes; the same with Hydra.
            (1, &[(STEP, "4"), ("OMPI_COMM_WORLD_SIZE", "1")], None, None),
            (1, &[(STEP, "4"), ("PMI_SIZE", "1")], None, None),
            (1, &[("OMPI_COMM_WORLD_SIZE", "1"), ("PMI_SIZE", "4")], None, None),
            // A supervisor passes the size for unknown launchers; the last is a process of a rank.
            (1, &[], given(4), given(4)),
            (1, &[terminal], given(4), given(4)),
            (1, &[], given(1), None),
            (4, &[], given(4), None),
            (1, &[("PMI_SIZE", "1")], given(4), None),
        ] {
            assert_eq!(alone(ranks, getter(variables), by_supervisor), want, "{variables:?}");
        }
    }

    /// `srun` on such a terminal passes the variable of the terminal on to all of its ranks.
    #[test]
    fn slurm_terminal_shell_is_no_rank_but_its_children_are() {
        let (one, terminal) = (("SLURM_STEP_NUM_TASKS", "1"), ("SLURM_PTY_PORT", "9"));
        for (variables, sizes, is_shell) in [
            (&[one][..], &[(one.0, 1)][..], false),
            (&[one, terminal], &[(one.0, 1)], true),
            (&[(one.0, "64"), terminal], &[(one.0, 64)], false),
            (
                &[one, terminal, ("OMPI_COMM_WORLD_SIZE", "1")],
                &[("OMPI_COMM_WORLD_SIZE", 1)],
                false,
            ),
            (&[terminal], &[], false),
        ] {
            let get = getter(variables);
            assert_eq!((&size_variables(get)[..], is_shell_of_slurm(get)), (sizes, is_shell));
        }
    }

    #[test]
    fn an_mpi_is_named_by_its_version() {
        let long = "Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4, repo rev: v4.1.4";
        assert_eq!(short(long), "Open MPI v4.1.4");
        assert_eq!(short("MPICH Version:\t4.0.2"), "MPICH Version: 4.0.2");
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
