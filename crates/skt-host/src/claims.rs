//! Cores that runs of this program have chosen, so that two that start at once choose others.
//!
//! A claim of CPU c is a shared lock (`fcntl`) on byte c of a namespace in `/proc/self/ns`: an
//! object of the kernel that all processes on the machine may open for reading, of all users and
//! containers. The kernel removes a claim when its process ends, however it ends, and nothing is
//! written anywhere. A claim is only advisory: another run sees it, with the process that has it.
//! An exclusive lock (`flock`) of the same object is held from reading the claims to taking one's
//! own, so that one run chooses at a time.
//!
//! A run is known by its claim even while it waits and uses no processor time, which
//! [`super::occupants`] would not see.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, fcntl};

use super::occupants::Occupant;
use crate::counters::topology::Cpu;
use crate::process::{boot_id, is_ending};

/// Namespaces that most containers share with their host; kernels before 5.6 lack the first.
const FILES: [&str; 2] = ["/proc/self/ns/time", "/proc/self/ns/user"];
/// A run that chooses holds the lock for less than a millisecond. One that was stopped while it
/// held it may not keep others from starting: after this time they choose without the lock.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// The claims of this process, until they are dropped.
#[derive(Debug)]
pub struct CoreClaims {
    /// Holds the locks; `None` on a system without such an object.
    _file: Option<File>,
}

impl CoreClaims {
    /// Claims the CPUs that `choose` returns with its result. It gets the claims of other runs on
    /// `cpus`.
    pub fn take<T>(
        cpus: &[Cpu],
        choose: impl FnOnce(Vec<Occupant>) -> (T, Vec<usize>),
    ) -> (Self, T) {
        let Some(file) = FILES.iter().find_map(|path| File::open(path).ok()) else {
            return (Self::none(), choose(Vec::new()).0);
        };
        let start = Instant::now();
        while file.try_lock().is_err() && start.elapsed() < LONGEST_WAIT {
            thread::sleep(Duration::from_millis(1));
        }
        let others = cpus.iter().filter_map(|cpu| claim_of(&file, cpu.id)).collect();
        let (chosen, claimed) = choose(others);
        for cpu in claimed {
            // A system that refuses has no claims: the choice stays as it is.
            let _ = fcntl(&file, FcntlArg::F_SETLK(&byte(libc::F_RDLCK, cpu)));
        }
        let _ = file.unlock();
        (Self { _file: Some(file) }, chosen)
    }

    /// No claims.
    pub fn none() -> Self {
        Self { _file: None }
    }
}

/// Identifies what claims are made on: processes for which this is the same have the same cores.
/// `host` is the name of a machine without such an object.
pub fn machine(host: &str) -> String {
    let object = FILES.iter().find_map(|path| fs::metadata(path).ok());
    let object = object.map_or_else(String::new, |object| object.ino().to_string());
    let boot = Some(boot_id()).filter(|id| !id.is_empty());
    format!("{} {object}", boot.unwrap_or(host))
}

/// The claim of another process that is not about to end.
fn claim_of(file: &File, cpu: usize) -> Option<Occupant> {
    let mut lock = byte(libc::F_WRLCK, cpu);
    fcntl(file, FcntlArg::F_GETLK(&mut lock)).ok()?;
    if i32::from(lock.l_type) == libc::F_UNLCK {
        return None;
    }
    // The kernel reports 0 for a process that cannot be seen from here.
    let pid = u32::try_from(lock.l_pid).ok().filter(|pid| *pid > 0);
    let is_ending = pid.is_some_and(is_ending);
    (!is_ending).then(|| Occupant { cpus: vec![cpu], threads: 1, pid })
}

fn byte(kind: libc::c_int, cpu: usize) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: cpu as libc::off_t,
        l_len: 1,
        l_pid: 0,
    }
}
