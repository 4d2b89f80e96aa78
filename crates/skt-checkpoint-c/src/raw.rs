//! The calls of MPI on the program's own communicator.

use std::ffi::c_int;
use std::time::Duration;

use mpi::ffi;
use skt_comm::mpi::MpiComm;
use skt_host::wait_clock::WaitClock;

use crate::code::{Call, Code, Result, Stop, late, lost};

/// Tests of a message before the rank naps after each test.
const SPINS: u32 = 2000;
const NAP: Duration = Duration::from_micros(50);

pub(crate) fn rest(spins: u32) {
    if spins < SPINS { std::thread::yield_now() } else { std::thread::sleep(NAP) }
}

fn refused(call: &str, code: c_int) -> Result<()> {
    if code == ffi::MPI_SUCCESS as c_int {
        Ok(())
    } else {
        Err(Stop::over(Code::Mpi, format!("{call} returns {code}")))
    }
}

/// MPI can be called, and from this thread: [`Code::Mpi`] before it is initialized and after it is
/// finalized; [`Code::Thread`] on another thread than MPI's, where it does not allow several.
pub(crate) fn check_mpi() -> Result<()> {
    let (mut is_begun, mut is_over): (c_int, c_int) = (0, 0);
    // SAFETY: both may be called at any time.
    unsafe {
        ffi::MPI_Initialized(&mut is_begun);
        ffi::MPI_Finalized(&mut is_over);
    }
    if is_begun == 0 {
        return Err(Stop::new(Code::Mpi, "MPI is not initialized: call MPI_Init first"));
    }
    if is_over != 0 {
        return Err(Stop::new(
            Code::Mpi,
            "MPI is finalized: call skt_finalize before MPI_Finalize",
        ));
    }
    let (mut level, mut is_main): (c_int, c_int) = (0, 0);
    // SAFETY: MPI runs.
    unsafe {
        refused("MPI_Query_thread", ffi::MPI_Query_thread(&mut level))?;
        refused("MPI_Is_thread_main", ffi::MPI_Is_thread_main(&mut is_main))?;
    }
    // SAFETY: a constant of the library.
    if is_main == 0 && level < unsafe { ffi::RSMPI_THREAD_SERIALIZED } {
        let text = "MPI was initialized for calls of its main thread alone: ask MPI_Init_thread for \
                    MPI_THREAD_SERIALIZED, or call from the main thread";
        return Err(Stop::new(Code::Thread, text));
    }
    Ok(())
}

pub(crate) fn from_fortran(number: c_int) -> ffi::MPI_Comm {
    // SAFETY: MPI runs, which the caller has checked; it looks the number up.
    unsafe { ffi::RSMPI_Comm_f2c(number) }
}

pub(crate) fn to_fortran(comm: ffi::MPI_Comm) -> c_int {
    // SAFETY: MPI runs and the communicator is alive.
    unsafe { ffi::RSMPI_Comm_c2f(comm) }
}

/// A duplicate of the program's communicator, for messages of the library's own; refuses a null one
/// and an intercommunicator. Collective, but does not wait for longer than `timeout`.
pub(crate) fn duplicate(comm: ffi::MPI_Comm, timeout: Duration) -> Result<MpiComm> {
    // SAFETY: a constant of the library.
    if comm == unsafe { ffi::RSMPI_COMM_NULL } {
        return Err(Stop::new(Code::Argument, "skt_init: the communicator is MPI_COMM_NULL"));
    }
    let mut is_inter: c_int = 0;
    // SAFETY: a communicator that the program has passed, so a live one.
    refused("MPI_Comm_test_inter", unsafe { ffi::MPI_Comm_test_inter(comm, &mut is_inter) })?;
    if is_inter != 0 {
        return Err(Stop::new(
            Code::Argument,
            "skt_init: the communicator is an intercommunicator",
        ));
    }
    // Both outlive a wait that is given up: MPI writes to them when the last rank comes.
    let into = Box::leak(Box::new(comm));
    // SAFETY: a constant of the library.
    let request = Box::leak(Box::new(unsafe { ffi::RSMPI_REQUEST_NULL }));
    // SAFETY: the communicator is alive; both are written to while MPI runs, and never freed
    // before.
    refused("MPI_Comm_idup", unsafe { ffi::MPI_Comm_idup(comm, into, request) })?;
    let (mut clock, mut spins) = (WaitClock::new(timeout), 0);
    loop {
        let mut is_done: c_int = 0;
        // SAFETY: a live request; the status is not wanted.
        refused("MPI_Test", unsafe {
            ffi::MPI_Test(request, &mut is_done, ffi::RSMPI_STATUS_IGNORE)
        })?;
        if is_done != 0 {
            break;
        }
        if clock.is_over() {
            return Err(late(Call::Init, timeout));
        }
        spins += 1;
        rest(spins);
    }
    let raw = *into;
    // SAFETY: made by `Box::leak` above; MPI is done with them.
    unsafe {
        drop(Box::from_raw(into));
        drop(Box::from_raw(request));
    }
    // SAFETY: a new communicator of ranks, which is handed over here.
    unsafe { MpiComm::owning(raw) }.map_err(|why| lost(&why))
}

/// A communicator of the program's ranks, in the order of `rank`, with the program's own handling
/// of errors. Collective.
pub(crate) fn reorder(comm: ffi::MPI_Comm, rank: usize) -> Result<ffi::MPI_Comm> {
    let mut reordered = comm;
    // SAFETY: a live communicator; all ranks call this.
    refused("MPI_Comm_split", unsafe {
        ffi::MPI_Comm_split(comm, 0, rank as c_int, &mut reordered)
    })?;
    Ok(reordered)
}

/// Frees the program's communicator, which the program must no longer use. Collective.
pub(crate) fn free(mut comm: ffi::MPI_Comm) {
    // SAFETY: made by `reorder` and freed once, while MPI runs.
    unsafe { ffi::MPI_Comm_free(&mut comm) };
}
