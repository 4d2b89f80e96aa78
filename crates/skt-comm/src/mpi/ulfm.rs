//! Surviving the loss of a rank: ULFM, if the MPI library has it and it is switched on.
//!
//! All messages use one communicator (`subgroup`). A rank on which any call fails *revokes* it:
//! every call on it then fails, on all ranks, also on those that wait for a rank which is not lost
//! but has stopped communicating. So all ranks leave their calls. The communicator is never the
//! world communicator: that one stays unrevoked, and serves the operations that a revoked or broken
//! communicator does not affect: agreeing, and creating a new communicator of the ranks that are
//! left.
//!
//! The functions are not in the MPI standard yet. They are looked up by name in the library that
//! runs, so the same program also runs with a library that lacks them.

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::marker::PhantomData;
use std::mem::transmute;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use mpi::ffi;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use skt_host::exit::Exit;

use super::super::{Comm, longest_pause_seconds, stands_by};
use super::{MpiComm, MpiWorld, Result, check, end_job, subgroup};
use skt_host::messages;
use skt_host::wait_clock::MIN_POLLS;

/// The least number of seconds that ranks wait for each other after a loss. A rank that does not
/// come hangs in MPI: Open MPI ends a process whose message to the lost rank was in progress, and
/// may hang in doing so.
const PATIENCE_SECONDS: c_uint = 30;
/// The wait is at least this many times the longest time for which a rank may make no call of MPI.
const PAUSE_FACTOR: f64 = 10.0;
const NO_AGREEMENT: &str = "error: the surviving ranks could not agree; the same command resumes \
                            the run\n";

/// The code that `MPIX_Comm_agree` returns, in Open MPI, if all have agreed and some ranks were
/// lost.
const PROC_FAILED: c_int = 75;

type Revoke = unsafe extern "C" fn(ffi::MPI_Comm) -> c_int;
type Shrink = unsafe extern "C" fn(ffi::MPI_Comm, *mut ffi::MPI_Comm) -> c_int;
type Agree = unsafe extern "C" fn(ffi::MPI_Comm, *mut c_int) -> c_int;

struct Calls {
    revoke: Revoke,
    shrink: Shrink,
    agree: Agree,
}

/// Set once MPI is initialized, if ranks survive the loss of others.
static CALLS: OnceLock<Calls> = OnceLock::new();
/// The communicator of the ranks that were left when it was created, until it is revoked.
static CURRENT: Mutex<Option<Handle>> = Mutex::new(None);
/// Whether `CURRENT` has been revoked.
static HAS_FAILED: AtomicBool = AtomicBool::new(false);

struct Handle(ffi::MPI_Comm);

// SAFETY: a handle; MPI calls are made by one thread at a time (serialized).
unsafe impl Send for Handle {}

/// Why the loss of a rank ends all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoUlfm {
    /// The library does not have the functions.
    #[error("this MPI library has no ULFM; Open MPI 5 has")]
    Missing,
    /// The library has the functions, but its launcher still ends all ranks.
    #[error(
        "the launcher of this MPI library ends all ranks when one is lost; Open MPI 5 does not"
    )]
    InNameOnly,
    /// ULFM has not been switched on.
    #[error("ULFM is not switched on; start the job with `mpirun --with-ft ulfm`")]
    Off,
    /// The ranks that are left would wait for lost ones.
    #[error(
        "the agreement of this MPI library is set to the one that does not outlive a loss \
         (coll_ftagree_agreement is 0): leave it unset, or set it to 1"
    )]
    DeadAgreement,
}

fn symbol(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: a name that ends in zero; looking it up changes nothing.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!address.is_null()).then_some(address)
}

fn calls() -> std::result::Result<Calls, NoUlfm> {
    let names = [c"MPIX_Comm_revoke", c"MPIX_Comm_shrink", c"MPIX_Comm_agree"];
    let [Some(revoke), Some(shrink), Some(agree)] = names.map(symbol) else {
        return Err(NoUlfm::Missing);
    };
    // MPICH has the functions, but not this variable.
    let is_on = symbol(c"ompi_ftmpi_enabled").ok_or(NoUlfm::InNameOnly)?;
    // SAFETY: Open MPI's variable of this name is a `bool`, set while MPI is initialized.
    if !unsafe { is_on.cast::<bool>().read() } {
        return Err(NoUlfm::Off);
    }
    // With ULFM on, the variable is 1 unless somebody has set it.
    let agreement = symbol(c"mca_coll_ftagree_algorithm");
    // SAFETY: Open MPI's variable of this name is an `int`, set while MPI is initialized.
    if agreement.is_some_and(|agreement| unsafe { agreement.cast::<c_int>().read() } == 0) {
        return Err(NoUlfm::DeadAgreement);
    }
    // SAFETY: functions of these names have these types, as ULFM defines them.
    unsafe {
        Ok(Calls {
            revoke: transmute::<*mut c_void, Revoke>(revoke),
            shrink: transmute::<*mut c_void, Shrink>(shrink),
            agree: transmute::<*mut c_void, Agree>(agree),
        })
    }
}

/// Looks for ULFM, once MPI is initialized.
pub(super) fn begin() -> Result<()> {
    let Ok(calls) = calls() else { return Ok(()) };
    // SAFETY: the communicators that always exist.
    for comm in unsafe { [ffi::RSMPI_COMM_WORLD, ffi::RSMPI_COMM_SELF] } {
        // SAFETY: a live communicator, and a constant of the library.
        check("MPI_Comm_set_errhandler", unsafe {
            ffi::MPI_Comm_set_errhandler(comm, ffi::RSMPI_ERRORS_RETURN)
        })?;
    }
    CALLS.get_or_init(|| calls);
    Ok(())
}

/// Whether ranks survive the loss of others.
pub(super) fn is_on() -> bool {
    CALLS.get().is_some()
}

/// Whether the communicator has been revoked: then all requests on it end.
pub(super) fn has_failed() -> bool {
    HAS_FAILED.load(Ordering::Relaxed)
}

fn current() -> MutexGuard<'static, Option<Handle>> {
    // A panic does not affect the handle.
    CURRENT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Revokes the communicator after a call has failed: all further calls fail, on all ranks.
pub(super) fn revoke() {
    let Some(calls) = CALLS.get() else { return };
    if let Some(Handle(comm)) = current().take() {
        HAS_FAILED.store(true, Ordering::Relaxed);
        // SAFETY: a live communicator, since they are never freed. Nothing could be done about an
        // error.
        unsafe { (calls.revoke)(comm) };
    }
}

/// Proof that ULFM is available and switched on, so that the job survives losses.
pub struct Ulfm<'w>(&'static Calls, PhantomData<&'w MpiWorld>);

impl MpiWorld {
    /// The means to survive the loss of ranks.
    pub fn ulfm(&self) -> std::result::Result<Ulfm<'_>, NoUlfm> {
        match CALLS.get() {
            Some(calls) => Ok(Ulfm(calls, PhantomData)),
            None => Err(calls().err().unwrap_or(NoUlfm::Off)),
        }
    }
}

impl Ulfm<'_> {
    /// Creates a new communicator of all ranks that are left, in their order. Afterwards all calls
    /// on older ones fail. It is never freed, so that a group of its ranks may outlive it; each
    /// loss adds one. Collective over the ranks that are left, whatever has failed before. If MPI
    /// cannot create it, all ranks end.
    pub fn survivors(&self) -> Comm {
        revoke();
        // SAFETY: a constant of the library.
        let world = unsafe { ffi::RSMPI_COMM_WORLD };
        let mut made = world;
        let is_after_loss = has_failed();
        // SAFETY: a live communicator; all ranks that are left call this.
        let mut shrink = || unsafe { (self.0.shrink)(world, &mut made) };
        let code = if is_after_loss { in_time(shrink) } else { shrink() };
        let comm =
            or_end(check("MPIX_Comm_shrink", code).and_then(|()| MpiComm::wrap(made, false)));
        subgroup::begin();
        *current() = Some(Handle(made));
        HAS_FAILED.store(false, Ordering::Relaxed);
        Comm::new(comm)
    }

    /// The bitwise AND of the words of all ranks that are left, the same on all of them. Collective
    /// over these ranks, whatever has failed before. If MPI cannot agree, all ranks end.
    pub fn agree(&self, word: i32) -> i32 {
        let mut all: c_int = word;
        // SAFETY: the world communicator is never freed; all ranks that are left call this.
        let agree = || unsafe { (self.0.agree)(ffi::RSMPI_COMM_WORLD, &mut all) };
        let code = in_time(agree);
        if code != PROC_FAILED {
            or_end(check("MPIX_Comm_agree", code));
        }
        assert_eq!(all & !word, 0, "no bit is in common that this rank has not");
        all
    }
}

/// Makes a call in which ranks wait for each other. If it takes too long this process ends, as the
/// others do, and the job can be started again.
fn in_time<T>(call: impl FnOnce() -> T) -> T {
    let action = SigAction::new(SigHandler::Handler(tick), SaFlags::SA_RESTART, SigSet::empty());
    // SAFETY: the handler does only what is allowed in a signal handler.
    unsafe { sigaction(Signal::SIGALRM, &action) }.expect("this signal may be handled");
    TICKS.store(0, Ordering::Relaxed);
    set_timer(patience_seconds(longest_pause_seconds(), stands_by()));
    let done = call();
    set_timer(0);
    done
}

/// Ticks of the timer in the present call. However long a process stands still, it gets one tick
/// for that when it continues: a job that was suspended is not late.
static TICKS: AtomicU32 = AtomicU32::new(0);

/// Lets a timer tick [`MIN_POLLS`] times within a patience; 0 stops it.
fn set_timer(patience_seconds: c_uint) {
    let microseconds = u64::from(patience_seconds) * 1_000_000 / u64::from(MIN_POLLS);
    let tick = libc::timeval {
        tv_sec: (microseconds / 1_000_000) as libc::time_t,
        tv_usec: (microseconds % 1_000_000) as libc::suseconds_t,
    };
    let timer = libc::itimerval { it_interval: tick, it_value: tick };
    // SAFETY: reads the timer; the old one is not asked for. It fails at no value such as these.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut()) };
}

/// How long a rank waits for the others, in seconds; 0 is for ever.
fn patience_seconds(longest_pause_seconds: f64, stands_by: bool) -> c_uint {
    if stands_by {
        return 0;
    }
    PATIENCE_SECONDS.max((PAUSE_FACTOR * longest_pause_seconds).ceil() as c_uint)
}

extern "C" fn tick(_: c_int) {
    if TICKS.fetch_add(1, Ordering::Relaxed) + 1 < MIN_POLLS {
        return;
    }
    let (words, exit) = (NO_AGREEMENT.as_bytes(), i32::from(Exit::Interrupted.code()));
    // SAFETY: both calls are allowed in a signal handler; nothing can be done about an error.
    unsafe {
        libc::write(libc::STDERR_FILENO, words.as_ptr().cast(), words.len());
        libc::_exit(exit)
    }
}

/// Ends all ranks if MPI fails at something that nothing else can do, so that none waits for ever.
fn or_end<T>(done: Result<T>) -> T {
    done.unwrap_or_else(|error| {
        messages::print(format_args!("error: {error}: all ranks end"));
        end_job(i32::from(Exit::Interrupted.code()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_in_a_long_step_are_waited_for() {
        assert_eq!(patience_seconds(0.0, false), PATIENCE_SECONDS);
        assert_eq!(patience_seconds(35.0, false), 350);
        assert_eq!(patience_seconds(f64::INFINITY, false), c_uint::MAX);
        // 0 sets no alarm.
        assert_eq!(patience_seconds(35.0, true), 0);
    }
}
