//! Calling another BLAS than the linked one.

use std::env;
use std::ffi::{CStr, CString, OsStr, c_double, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use skt_host::process_state::ProcessState;

use super::ffi::{self, BlasInt, Functions, Library};
use super::library::{loaded_as, select_mkl_layer, symbol_of};

/// Why a library cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The name has a NUL.
    #[error("its name has a NUL")]
    Name,
    /// The loader cannot load it.
    #[error("the loader refuses it: {0}")]
    Loader(String),
    /// A function is missing.
    #[error("it has no function {0}")]
    Lacks(&'static str),
    /// The library has another interface.
    #[error("its integers have 64 bits: take its build with integers of 32 bits (LP64)")]
    LongIntegers,
    /// Another library was called before.
    #[error("this process has called another BLAS already")]
    TooLate,
}

/// Loads the library `file`, a path or a name for the loader, and makes it the one that this
/// process calls. Its symbols serve neither the linked library nor the other way round: both may be
/// builds of OpenBLAS, whose functions call each other by the same names.
///
/// # Errors
/// When it cannot be loaded, or lacks what is called. What it computes is not checked.
pub fn load(file: &OsStr) -> Result<(), LoadError> {
    let name = CString::new(file.as_bytes()).map_err(|_| LoadError::Name)?;
    let handle = open(&name)?;
    let address = |name: &CStr| symbol_of(handle, name);
    select_mkl_layer(handle);
    let functions = Functions::found_by(address).map_err(LoadError::Lacks)?;
    let dot = address(c"ddot_").ok_or(LoadError::Lacks("ddot_"))?;
    if !has_short_integers(dot) {
        return Err(LoadError::LongIntegers);
    }
    call(Library { functions, handle: Some(handle) })
}

/// Makes the built-in library the one that this process calls.
///
/// # Errors
/// When another one was called before.
pub fn use_built_in() -> Result<(), LoadError> {
    call(Library::built_in())
}

fn call(library: Library) -> Result<(), LoadError> {
    ffi::set_library(library).then_some(()).ok_or(LoadError::TooLate)
}

/// Loads a library for as long as the process runs. What its constructors change of signals, CPUs
/// and rounding is set back, as it would concern the whole run.
fn open(name: &CStr) -> Result<*mut c_void, LoadError> {
    let how = libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_DEEPBIND;
    let before = ProcessState::now();
    // SAFETY: the name is NUL-terminated; the library's constructors run, as in a program that is
    // linked to it.
    let handle = unsafe { libc::dlopen(name.as_ptr(), how) };
    before.restore();
    if !handle.is_null() {
        return Ok(handle);
    }
    // SAFETY: after a failed dlopen, dlerror returns a text of this thread until its next call.
    let why = unsafe { CStr::from_ptr(libc::dlerror()) };
    Err(LoadError::Loader(why.to_string_lossy().into_owned()))
}

/// Whether a DDOT counts in 32 bits. Its n is 3 there, and negative in 64 bits; then there is no
/// product and no error either.
fn has_short_integers(dot: *mut c_void) -> bool {
    type Dot = unsafe extern "C" fn(
        *const BlasInt,
        *const c_double,
        *const BlasInt,
        *const c_double,
        *const BlasInt,
    ) -> c_double;
    #[cfg(target_endian = "little")]
    const N: [BlasInt; 2] = [3, -1];
    #[cfg(target_endian = "big")]
    const N: [BlasInt; 2] = [-1, 3];
    // As 64 bits, this is 1 on any machine.
    let step: [BlasInt; 2] = if cfg!(target_endian = "little") { [1, 0] } else { [0, 1] };
    let at = usize::from(cfg!(target_endian = "big"));
    let x = [1.0, 2.0, 3.0];
    // SAFETY: the Fortran interface of DDOT, whose integers are the first 32 bits at an address, or
    // all 64.
    let product = unsafe {
        let dot: Dot = std::mem::transmute(dot);
        dot(&N[at], x.as_ptr(), &step[at], x.as_ptr(), &step[at])
    };
    product == 14.0
}

/// The file of a `dgemm_` that is preloaded in place of the linked one, as profilers are. Called
/// before [`load`] and [`use_built_in`].
pub fn preloaded() -> Option<PathBuf> {
    let loaded_as = loaded_as(ffi::library().functions.dgemm as *mut c_void)?;
    let file = loaded_as.canonicalize().unwrap_or_else(|_| loaded_as.clone());
    let files = env::var_os("LD_PRELOAD")?;
    let files = files.as_bytes().split(|byte| matches!(byte, b' ' | b':'));
    let is_it = |name: &[u8]| {
        let path = Path::new(OsStr::from_bytes(name));
        // The loader looks for a name without a folder where the program need not.
        let is_name = !name.contains(&b'/') && loaded_as.file_name() == Some(path.as_os_str());
        is_name || path.canonicalize().is_ok_and(|path| path == file)
    };
    files.into_iter().any(is_it).then_some(file)
}
