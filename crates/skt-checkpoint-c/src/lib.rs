//! The checkpoints of `skt-checkpoint` for C and Fortran: what `include/skt.h` and
//! `fortran/skt.f90` declare. docs/c-interface.md explains their use.
//!
//! All calls have the contract of `skt.h`: a pointer is null or points to what it declares, to
//! which there is no other reference during the call; texts end with a zero.
#![deny(unsafe_op_in_unsafe_fn)]
#![allow(clippy::missing_safety_doc, reason = "all calls have the contract above")]
#![warn(missing_docs, unreachable_pub)]

mod border;
pub mod code;
mod control;
mod device;
mod identity;
mod mover;
mod options;
mod raw;
mod session;
mod table;

use std::ffi::{CStr, c_char, c_int, c_void};

use mpi::ffi::MPI_Comm;

use border::{RunState, call};
use code::{Code, Result, Stop};
use device::Kind;
use mover::SktMover;
pub use options::NAMES as OPTIONS;
use options::{Options, bad};
use session::{InitOutcome, Session};
use skt_checkpoint::client::Due;

/// The version of the library, with a zero at its end.
const VERSION: &CStr =
    match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => panic!("a version has no zero"),
    };

fn open<'a>(state: &'a mut RunState, name: &str) -> Result<&'a mut Session> {
    match state {
        RunState::Open(session) => Ok(session),
        _ => Err(Stop::new(Code::Order, format!("{name}: no run is open; call skt_init first"))),
    }
}

fn on_run(name: &str, body: impl FnOnce(&mut Session) -> Result<()>) -> c_int {
    call(|state| body(open(state, name)?).map(|()| Code::Success))
}

/// Makes the call `name` on the run that is open, and writes its answer to `at`.
///
/// # Safety
/// `at` is null or points to a `T`, to which there is no other reference.
unsafe fn answer<T>(name: &str, at: *mut T, body: impl FnOnce(&mut Session) -> Result<T>) -> c_int {
    on_run(name, |session| {
        // SAFETY: by this function's contract.
        let place = unsafe { place(at, name) }?;
        *place = body(session)?;
        Ok(())
    })
}

fn argument(text: String) -> Stop {
    Stop::new(Code::Argument, text)
}

/// # Safety
/// `at` is null or points to a `T`, to which there is no other reference.
unsafe fn place<'a, T>(at: *mut T, name: &str) -> Result<&'a mut T> {
    // SAFETY: by this function's contract.
    unsafe { at.as_mut() }
        .ok_or_else(|| argument(format!("{name}: the place for the answer is null")))
}

/// Checks that a region is not empty and that its size in bytes does not overflow.
fn sizes(name: &str, id: c_int, count: usize, size: usize) -> Result<()> {
    let is_counted = count.checked_mul(size).is_some_and(|b| isize::try_from(b).is_ok());
    if count > 0 && size > 0 && is_counted {
        Ok(())
    } else {
        Err(argument(format!("{name}: region {id} of {count} x {size} bytes")))
    }
}

fn legal_memory(
    name: &str,
    id: c_int,
    memory: *mut c_void,
    count: usize,
    size: usize,
) -> Result<()> {
    sizes(name, id, count, size)?;
    let text = format!("{name}: the memory of region {id} is null");
    if memory.is_null() { Err(argument(text)) } else { Ok(()) }
}

/// Begins or continues a run. Collective over `comm`. See `skt.h`.
///
/// # Safety
/// `options` is null or ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skt_init(comm: MPI_Comm, bytes: usize, options: *const c_char) -> c_int {
    let given = || {
        if options.is_null() {
            return Ok("");
        }
        // SAFETY: by this function's contract.
        unsafe { CStr::from_ptr(options) }.to_str().map_err(|_| bad("the options are not UTF-8"))
    };
    call(|state| {
        if let RunState::Open(_) = state {
            let text = "skt_init: a run is open; call skt_finalize first";
            return Err(Stop::new(Code::Order, text));
        }
        let variable = |name: &str| std::env::var(name).ok();
        let options = given().and_then(|given| Options::resolve(given, variable));
        match Session::begin(comm, bytes, options)? {
            InitOutcome::Run(mut session) => {
                // SAFETY: the session and its memory end in `skt_finalize` alone, which calls
                // `device::close` before.
                unsafe { device::open(session.memory_addresses()) };
                border::set_message(session.redundancy());
                *state = RunState::Open(session);
                Ok(Code::Success)
            }
            InitOutcome::Ended(stay) => {
                border::set_message(&stay);
                Ok(Code::Ended)
            }
        }
    })
}

/// `skt_init` with a communicator of Fortran. See `skt.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skt_init_f(comm: c_int, bytes: usize, options: *const c_char) -> c_int {
    // MPI must be running when it looks the number up.
    let checked = call(|_| raw::check_mpi().map(|()| Code::Success));
    if checked != Code::Success as c_int {
        return checked;
    }
    // SAFETY: by this function's contract.
    unsafe { skt_init(raw::from_fortran(comm), bytes, options) }
}

/// The communicator for the program to use after `skt_init`. See `skt.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skt_comm(comm: *mut MPI_Comm) -> c_int {
    // SAFETY: by this function's contract.
    unsafe { answer("skt_comm", comm, |session| Ok(session.comm())) }
}

/// `skt_comm` for Fortran. See `skt.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skt_comm_f(comm: *mut c_int) -> c_int {
    // SAFETY: by this function's contract.
    unsafe { answer("skt_comm", comm, |session| Ok(raw::to_fortran(session.comm()))) }
}

/// The checkpoint from which this start continues. See `skt.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skt_found(checkpoint: *mut i64) -> c_int {
    // SAFETY: by this function's contract.
    unsafe { answer("skt_found", checkpoint, |session| Ok(session.found() as i64)) }
}

/// The size of a region in the checkpoint. See `skt.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skt_saved(id: c_int, count: *mut usize, size: *mut usize) -> c_int {
    on_run("skt_saved", |session| {
        // SAFETY: by this function's contract.
        let (count, size) = unsafe { (place(count, "skt_saved")?, place(size, "skt_saved")?) };
        (*count, *size) = session.saved_size(id).unwrap_or((0, 0));
        Ok(())
    })
}

/// Memory of the library, which outlives the process. See `skt.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skt_alloc(
    id: c_int,
    count: usize,
    size: usize,
    memory: *mut *mut c_void,
) -> c_int {
    on_run("skt_alloc", |session| {
        // SAFETY: by this function's contract.
        let place = unsafe { place(memory, "skt_alloc") };
        let legal = place.and_then(|place| sizes("skt_alloc", id, count, size).map(|()| place));
        let place = session.remember(legal)?;
        *place = session.alloc(id, count, size)?.cast();
        Ok(())
    })
}

/// Registers memory of the program, which is copied at a checkpoint. See `skt.h`.
///
/// # Safety
/// `memory` is null or memory of `count * size` bytes, for as long as it is protected.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skt_protect(
    id: c_int,
    memory: *mut c_void,
    count: usize,
    size: usize,
) -> c_int {
    on_run("skt_protect", |session| {
        let legal = legal_memory("skt_protect", id, memory, count, size);
        session.protect(id, legal.map(|()| (memory.cast(), None)), count, size)
    })
}

/// Registers memory of the program that callbacks copy at a checkpoint. See `skt.h`.
///
/// # Safety
/// `mover` is null or points to a mover, whose callbacks copy within the `count * size` bytes at
/// `memory` for as long as it is protected, do not unwind, and make no call of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skt_protect_with(
    id: c_int,
    memory: *mut c_void,
    count: usize,
    size: usize,
    mover: *const SktMover,
) -> c_int {
    on_run("skt_protect_with", |session| {
        let legal = legal_memory("skt_protect_with", id, memory, count, size);
        // SAFETY: by this function's contract.
        let callbacks = legal.and_then(|()| unsafe { SktMover::read(id, mover) });
        let at = callbacks.map(|callbacks| (memory.cast(), Some(callbacks)));
        session.protect(id, at, count, size)
    })
}

/// A mover for memory of CUDA. See `skt.h`.
///
/// # Safety
/// `stream` is null or a stream that lives until `skt_finalize`; `mover` is null or a place for a
/// mover.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skt_mover_cuda(stream: *mut c_void, mover: *mut SktMover) -> c_int {
    // SAFETY: by this function's contract.
    unsafe { mover_of(Kind::Cuda, stream, mover) }
}

/// A mover for memory of HIP. See `skt.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skt_mover_hip(stream: *mut c_void, mover: *mut SktMover) -> c_int {
    // SAFETY: by this function's contract.
    unsafe { mover_of(Kind::Hip, stream, mover) }
}

/// A mover for buffers of OpenCL. See `skt.h`.
///
/// # Safety
/// `queue` is null or a command queue; `mover` is null or a place for a mover.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skt_mover_opencl(queue: *mut c_void, mover: *mut SktMover) -> c_int {
    // SAFETY: by this function's contract.
    unsafe { mover_of(Kind::OpenCl, queue, mover) }
}

/// # Safety
/// As [`skt_mover_cuda`].
unsafe fn mover_of(kind: Kind, queue: *mut c_void, mover: *mut SktMover) -> c_int {
    border::local(|| {
        // SAFETY: by this function's contract.
        let place = unsafe { place(mover, kind.call()) }?;
        // SAFETY: by this function's contract.
        *place = unsafe { device::mover(kind, queue) }?;
        Ok(())
    })
}

/// Ends the protection of memory of the program. See `skt.h`.
#[unsafe(no_mangle)]
pub extern "C" fn skt_unprotect(id: c_int) -> c_int {
    on_run("skt_unprotect", |session| session.unprotect(id))
}

/// Copies the program's memory back from the checkpoint. Collective. See `skt.h`.
#[unsafe(no_mangle)]
pub extern "C" fn skt_restore() -> c_int {
    on_run("skt_restore", |session| session.restore())
}

/// Saves all regions. Collective. See `skt.h`.
#[unsafe(no_mangle)]
pub extern "C" fn skt_checkpoint() -> c_int {
    on_run("skt_checkpoint", |session| session.checkpoint())
}

/// Whether it is time for a checkpoint. Collective. See `skt.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skt_due(due: *mut c_int) -> c_int {
    let number = |due| match due {
        Due::No => 0,
        Due::Now => 1,
        Due::Last => 2,
    };
    // SAFETY: by this function's contract.
    unsafe { answer("skt_due", due, |session| session.due().map(number)) }
}

/// Seconds up to the end of the job's time. See `skt.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skt_time_left(seconds: *mut f64) -> c_int {
    // SAFETY: by this function's contract.
    unsafe { answer("skt_time_left", seconds, |session| Ok(session.seconds_left())) }
}

/// Begins a checkpoint. Collective. See `skt.h`.
#[unsafe(no_mangle)]
pub extern "C" fn skt_checkpoint_begin() -> c_int {
    on_run("skt_checkpoint_begin", |session| session.begin_checkpoint())
}

/// Does a piece of the checkpoint that has begun. See `skt.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skt_checkpoint_test(done: *mut c_int) -> c_int {
    let test = |session: &mut Session| session.test_checkpoint().map(c_int::from);
    // SAFETY: by this function's contract.
    unsafe { answer("skt_checkpoint_test", done, test) }
}

/// Completes the checkpoint that has begun. Collective. See `skt.h`.
#[unsafe(no_mangle)]
pub extern "C" fn skt_checkpoint_wait() -> c_int {
    on_run("skt_checkpoint_wait", |session| session.end_checkpoint())
}

/// The newest complete checkpoint of a level. See `skt.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skt_image(level: c_int, checkpoint: *mut i64) -> c_int {
    let image = |session: &mut Session| session.image(level).map(|epoch| epoch as i64);
    // SAFETY: by this function's contract.
    unsafe { answer("skt_image", checkpoint, image) }
}

/// Waits for the images that are being written. Collective. See `skt.h`.
#[unsafe(no_mangle)]
pub extern "C" fn skt_images_wait() -> c_int {
    on_run("skt_images_wait", |session| session.wait_for_images())
}

/// Ends the run, or leaves it to the next start. Collective. See `skt.h`.
#[unsafe(no_mangle)]
pub extern "C" fn skt_finalize(done: c_int) -> c_int {
    call(|state| {
        open(state, "skt_finalize")?.agree_on_end(done != 0)?;
        // Before the memory is unmapped that they have pinned.
        device::close();
        if let RunState::Open(session) = std::mem::replace(state, RunState::None) {
            border::set_message(&session.end(done != 0)?);
        }
        Ok(Code::Success)
    })
}

/// What a code means in general. See `skt.h`.
#[unsafe(no_mangle)]
pub extern "C" fn skt_error(code: c_int) -> *const c_char {
    Code::from_number(code).map_or(c"no code of this library", Code::text).as_ptr()
}

/// What has happened in the last call of this thread. See `skt.h`.
#[unsafe(no_mangle)]
pub extern "C" fn skt_message() -> *const c_char {
    border::message()
}

/// The version of the library. See `skt.h`.
#[unsafe(no_mangle)]
pub extern "C" fn skt_version() -> *const c_char {
    VERSION.as_ptr()
}
