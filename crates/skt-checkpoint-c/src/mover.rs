use std::ffi::{CStr, c_char, c_int, c_void};

use crate::code::{Code, Result, Stop};

/// The most bytes that one call copies. Between two pieces a rank reports that it is alive, and
/// learns of the failures of others.
pub(crate) const PIECE_BYTES: usize = 32 << 20;

/// `to_host` and `from_host` of `skt_mover`: context, destination, source, offset, bytes.
type CopyPiece =
    unsafe extern "C" fn(*mut c_void, *mut c_void, *const c_void, usize, usize) -> c_int;
/// `error` of `skt_mover`: context, code.
type Explain = unsafe extern "C" fn(*mut c_void, c_int) -> *const c_char;

/// `skt_mover` of `skt.h`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct SktMover {
    pub to_host: Option<CopyPiece>,
    pub from_host: Option<CopyPiece>,
    pub error: Option<Explain>,
    pub context: *mut c_void,
}

#[derive(Clone, Copy)]
pub(crate) struct Callbacks {
    to_host: CopyPiece,
    from_host: CopyPiece,
    error: Option<Explain>,
    context: *mut c_void,
}

impl Callbacks {
    /// # Safety
    /// `mover` is null or points to a mover. Its callbacks copy within the memory of region `id`
    /// for as long as it is protected, do not unwind, and make no call of this library.
    pub(crate) unsafe fn read(id: i32, mover: *const SktMover) -> Result<Self> {
        let refused = |what: &str| {
            Err(Stop::new(
                Code::Argument,
                format!("skt_protect_with: {what} of region {id} is null"),
            ))
        };
        // SAFETY: by this function's contract.
        let Some(&SktMover { to_host, from_host, error, context }) = (unsafe { mover.as_ref() })
        else {
            return refused("the mover");
        };
        match (to_host, from_host) {
            (Some(to_host), Some(from_host)) => Ok(Self { to_host, from_host, error, context }),
            (None, _) => refused("to_host"),
            (_, None) => refused("from_host"),
        }
    }
}

/// The memory of a region that its callbacks copy. The address is passed to them and not used here.
pub(crate) struct DeviceRegion {
    pub id: i32,
    pub memory: *mut c_void,
    pub callbacks: Callbacks,
}

#[derive(Clone, Copy)]
pub(crate) enum Direction {
    ToHost,
    FromHost,
}

impl DeviceRegion {
    /// Copies a piece of the region, from byte `offset` on, to or from `host`.
    pub(crate) fn copy(&self, direction: Direction, offset: usize, host: &mut [u8]) -> Result<()> {
        let Callbacks { to_host, from_host, error, context } = self.callbacks;
        let (at, bytes) = (host.as_mut_ptr().cast(), host.len());
        // SAFETY: by the contract of `Callbacks::read`; the range is within the region.
        let (callback, code) = unsafe {
            match direction {
                Direction::ToHost => ("to_host", to_host(context, at, self.memory, offset, bytes)),
                Direction::FromHost => {
                    ("from_host", from_host(context, self.memory, at, offset, bytes))
                }
            }
        };
        if code == 0 {
            return Ok(());
        }
        // SAFETY: by the contract of `Callbacks::read`.
        let text = error.map_or(std::ptr::null(), |error| unsafe { error(context, code) });
        let why = if text.is_null() {
            "it returns no text".into()
        } else {
            // SAFETY: the callback returns a text that ends with a zero.
            unsafe { CStr::from_ptr(text) }.to_string_lossy()
        };
        let (id, end) = (self.id, offset + bytes);
        let text = format!(
            "region {id}: {callback} of bytes {offset} to {end} fails: {why} (code {code})"
        );
        Err(Stop::new(Code::Device, text))
    }
}
