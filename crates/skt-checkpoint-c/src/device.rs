//! The movers that come with the library: `skt_mover_cuda`, `skt_mover_hip`, `skt_mover_opencl`.
//!
//! A mover's context is a number, which is looked up at each copy: the callbacks of a mover from
//! before `skt_finalize` return an error, and access nothing that is gone.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use skt_device::{Copier, DeviceError};

use crate::border::c_text;
use crate::code::{Code, Result, Stop};
use crate::mover::SktMover;

const FAILED: c_int = -1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Cuda,
    Hip,
    OpenCl,
}

impl Kind {
    pub(crate) fn call(self) -> &'static str {
        match self {
            Self::Cuda => "skt_mover_cuda",
            Self::Hip => "skt_mover_hip",
            Self::OpenCl => "skt_mover_opencl",
        }
    }
}

struct Copies {
    kind: Kind,
    queue: usize,
    copier: Copier,
    error: CString,
}

/// The copies of this process, by the number that is the context of their movers.
struct Registry {
    copies: BTreeMap<usize, Copies>,
    /// The number of the next mover; none is used twice.
    next: usize,
    /// The library's memory for the regions, while a run is open.
    pinnable: Option<Range<usize>>,
}

static REGISTRY: Mutex<Registry> =
    Mutex::new(Registry { copies: BTreeMap::new(), next: 1, pinnable: None });

fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A mover for memory of the device that a stream or a queue belongs to; the same one for each call
/// with this queue up to [`close`].
///
/// # Safety
/// `queue` is a stream or a queue of this kind, which lives until [`close`].
pub(crate) unsafe fn mover(kind: Kind, queue: *mut c_void) -> Result<SktMover> {
    let mut registry = registry();
    let known = registry
        .copies
        .iter()
        .find(|(_, copies)| copies.kind == kind && copies.queue == queue.addr());
    let number = match known {
        Some((&number, _)) => number,
        None => {
            // SAFETY: by this function's contract.
            let copier = unsafe { copier(kind, queue) };
            let mut copier =
                copier.map_err(|why| Stop::new(Code::Device, format!("{}: {why}", kind.call())))?;
            // SAFETY: the memory of the open run; `close` is called before it is unmapped.
            unsafe { copier.set_pinnable(registry.pinnable.clone()) };
            let copies = Copies { kind, queue: queue.addr(), copier, error: CString::default() };
            let number = registry.next;
            registry.next += 1;
            registry.copies.insert(number, copies);
            number
        }
    };
    Ok(SktMover {
        to_host: Some(to_host),
        from_host: Some(from_host),
        error: Some(error),
        context: std::ptr::without_provenance_mut(number),
    })
}

/// # Safety
/// As of [`mover`].
unsafe fn copier(kind: Kind, queue: *mut c_void) -> std::result::Result<Copier, DeviceError> {
    // SAFETY: by this function's contract.
    unsafe {
        match kind {
            Kind::Cuda => Copier::cuda(queue),
            Kind::Hip => Copier::hip(queue),
            Kind::OpenCl => Copier::opencl(queue),
        }
    }
}

/// A run is open, whose regions lie in `memory`.
///
/// # Safety
/// The memory stays mapped until [`close`].
pub(crate) unsafe fn open(memory: Range<usize>) {
    let mut registry = registry();
    for copies in registry.copies.values_mut() {
        // SAFETY: by this function's contract.
        unsafe { copies.copier.set_pinnable(Some(memory.clone())) };
    }
    registry.pinnable = Some(memory);
}

/// Ends all movers, and releases what they have pinned.
pub(crate) fn close() {
    let mut registry = registry();
    registry.pinnable = None;
    registry.copies.clear();
}

/// Copies by the mover with the number `context`, and keeps what fails.
fn copy(
    context: *mut c_void,
    act: impl FnOnce(&mut Copier) -> std::result::Result<(), DeviceError>,
) -> c_int {
    let mut registry = registry();
    let Some(copies) = registry.copies.get_mut(&context.addr()) else { return FAILED };
    match act(&mut copies.copier) {
        Ok(()) => 0,
        Err(why) => {
            copies.error = c_text(&why.to_string());
            // 0 would be success.
            if why.code() == 0 { FAILED } else { why.code() }
        }
    }
}

unsafe extern "C" fn to_host(
    context: *mut c_void,
    host: *mut c_void,
    memory: *const c_void,
    offset: usize,
    bytes: usize,
) -> c_int {
    copy(context, |copier| {
        // SAFETY: the library calls with its own memory, and with the region that the program
        // has protected with this mover.
        unsafe {
            let host = std::slice::from_raw_parts_mut(host.cast::<u8>(), bytes);
            copier.to_host(memory, offset, host)
        }
    })
}

unsafe extern "C" fn from_host(
    context: *mut c_void,
    memory: *mut c_void,
    host: *const c_void,
    offset: usize,
    bytes: usize,
) -> c_int {
    copy(context, |copier| {
        // SAFETY: as in `to_host`.
        unsafe {
            let host = std::slice::from_raw_parts(host.cast::<u8>(), bytes);
            copier.from_host(memory, offset, host)
        }
    })
}

/// The error of the mover's last copy. It is read before the next one.
unsafe extern "C" fn error(context: *mut c_void, _: c_int) -> *const c_char {
    const GONE: &CStr = c"the mover is of a run that has ended: ask for a new one after skt_init";
    let registry = registry();
    registry.copies.get(&context.addr()).map_or(GONE, |copies| &*copies.error).as_ptr()
}
