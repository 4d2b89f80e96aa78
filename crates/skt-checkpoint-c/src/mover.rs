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
pub(crate) enum Direction {
    ToHost,
    FromHost,
}

impl SktMover {
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
        match unsafe { mover.as_ref() } {
            None => refused("the mover"),
            Some(Self { to_host: None, .. }) => refused("to_host"),
            Some(Self { from_host: None, .. }) => refused("from_host"),
            Some(mover) => Ok(*mover),
        }
    }

    /// Copies a piece of region `id`, which is at `memory`, from byte `offset` on, to or from `host`.
    pub(crate) fn copy(
        self,
        (id, memory): (i32, *mut c_void),
        direction: Direction,
        offset: usize,
        host: &mut [u8],
    ) -> Result<()> {
        let Self { to_host, from_host, error, context } = self;
        let (to_host, from_host) = (to_host.expect("read"), from_host.expect("read"));
        let (at, bytes) = (host.as_mut_ptr().cast(), host.len());
        // SAFETY: by the contract of `SktMover::read`; the range is within the region.
        let (callback, code) = unsafe {
            match direction {
                Direction::ToHost => ("to_host", to_host(context, at, memory, offset, bytes)),
                Direction::FromHost => ("from_host", from_host(context, memory, at, offset, bytes)),
            }
        };
        if code == 0 {
            return Ok(());
        }
        // SAFETY: by the contract of `SktMover::read`.
        let text = error.map_or(std::ptr::null(), |error| unsafe { error(context, code) });
        let why = if text.is_null() {
            "it returns no text".into()
        } else {
            // SAFETY: the callback returns a text that ends with a zero.
            unsafe { CStr::from_ptr(text) }.to_string_lossy()
        };
        let end = offset + bytes;
        let text = format!(
            "region {id}: {callback} of bytes {offset} to {end} fails: {why} (code {code})"
        );
        Err(Stop::new(Code::Device, text))
    }
}
