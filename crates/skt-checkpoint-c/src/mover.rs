use std::ffi::{CStr, c_char, c_int, c_void};

use skt_checkpoint::mover::{MoveError, Mover};

use crate::code::{Code, Result, Stop};

/// `to_host` of `skt_mover`: context, host, memory, offset, bytes.
type ToHost = unsafe extern "C" fn(*mut c_void, *mut c_void, *const c_void, usize, usize) -> c_int;
/// `from_host` of `skt_mover`: context, memory, host, offset, bytes.
type FromHost =
    unsafe extern "C" fn(*mut c_void, *mut c_void, *const c_void, usize, usize) -> c_int;
/// `error` of `skt_mover`: context, code.
type Explain = unsafe extern "C" fn(*mut c_void, c_int) -> *const c_char;

/// `skt_mover` of `skt.h`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct SktMover {
    pub to_host: Option<ToHost>,
    pub from_host: Option<FromHost>,
    pub error: Option<Explain>,
    pub context: *mut c_void,
}

#[derive(Clone, Copy)]
pub(crate) struct Callbacks {
    to_host: ToHost,
    from_host: FromHost,
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

impl DeviceRegion {
    fn outcome(&self, callback: &str, (at, bytes): (usize, usize), code: c_int) -> MoveOutcome {
        if code == 0 {
            return Ok(());
        }
        let Callbacks { error, context, .. } = self.callbacks;
        // SAFETY: by the contract of `Callbacks::read`.
        let text = error.map_or(std::ptr::null(), |error| unsafe { error(context, code) });
        let why = if text.is_null() {
            "it returns no text".into()
        } else {
            // SAFETY: the callback returns a text that ends with a zero.
            unsafe { CStr::from_ptr(text) }.to_string_lossy()
        };
        let text =
            format!("region {}: {callback} of bytes {at} to {} fails: {why}", self.id, at + bytes);
        Err(MoveError { code, text })
    }
}

type MoveOutcome = std::result::Result<(), MoveError>;

impl Mover for DeviceRegion {
    fn to_host(&mut self, offset: usize, host: &mut [u8]) -> MoveOutcome {
        let Callbacks { to_host, context, .. } = self.callbacks;
        let at = host.as_mut_ptr().cast();
        // SAFETY: by the contract of `Callbacks::read`; the range is within the region.
        let code = unsafe { to_host(context, at, self.memory, offset, host.len()) };
        self.outcome("to_host", (offset, host.len()), code)
    }

    fn from_host(&mut self, offset: usize, host: &[u8]) -> MoveOutcome {
        let Callbacks { from_host, context, .. } = self.callbacks;
        let at = host.as_ptr().cast();
        // SAFETY: by the contract of `Callbacks::read`; the range is within the region.
        let code = unsafe { from_host(context, self.memory, at, offset, host.len()) };
        self.outcome("from_host", (offset, host.len()), code)
    }
}

impl From<MoveError> for Stop {
    fn from(error: MoveError) -> Self {
        Self::new(Code::Device, error.to_string())
    }
}
