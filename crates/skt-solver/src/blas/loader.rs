//! Opening libraries by the system's loader, and looking up what they have.

use std::env;
use std::ffi::{CStr, CString, OsStr, c_double, c_int, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use skt_host::process_state::ProcessState;

use super::ffi::{BlasInt, Functions, Library};

/// Libraries that describe themselves, each with a function that no other library has.
pub(super) const KNOWN: [(&str, &CStr); 4] = [
    ("FlexiBLAS", c"flexiblas_current_backend"),
    ("OpenBLAS", c"openblas_get_config"),
    ("oneMKL", c"MKL_Get_Version_String"),
    ("BLIS", c"bli_info_get_version_str"),
];

#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("its name has a NUL")]
    Name,
    #[error("the loader refuses it: {0}")]
    Loader(String),
    #[error("it has no function {0}")]
    Lacks(&'static str),
    #[error("its integers have 64 bits: take its build with integers of 32 bits (LP64)")]
    LongIntegers,
}

/// Libraries with the Fortran interface and 32-bit integers, in the order of the default choice.
pub const NAMES: [&str; 8] = [
    "openblas",
    "blas",
    "blis-mt",
    "blis",
    "mkl_rt",
    "armpl_lp64",
    "nvpl_blas_lp64_seq",
    "flexiblas",
];

/// Names that the loader may know: the file or, for `NAME`, `libNAME.so`, with a version after it.
pub fn file_names(wanted: &str) -> impl Iterator<Item = String> {
    let is_file = wanted.contains('/') || wanted.contains(".so");
    let file = if is_file { wanted.to_owned() } else { format!("lib{wanted}.so") };
    let versions = (0..10).rev().filter(move |_| !is_file);
    let versioned = versions.map({
        let file = file.clone();
        move |version| format!("{file}.{version}")
    });
    [file].into_iter().chain(versioned)
}

/// What is preloaded, else the first of [`NAMES`] that the loader finds, else the built-in library.
pub(super) fn default_library(serves: impl Fn(&Path) -> bool) -> Library {
    if let Some(library) = preloaded_library() {
        return library;
    }
    let is_taken = |library: &Library| {
        let file = || file_of(library.functions.dgemm as *mut c_void);
        library.handle.is_some_and(describes_itself) || file().is_some_and(|file| serves(&file))
    };
    let first = |name: &&str| file_names(name).find_map(|file| open_library(name, &file).ok());
    NAMES.iter().filter_map(first).find(is_taken).unwrap_or_else(Library::built_in)
}

/// What is there before any library is loaded. It may pass calls on to the library that would be
/// called without it, as profilers do, and have only some of its functions.
fn preloaded_library() -> Option<Library> {
    let handle = libc::RTLD_DEFAULT;
    let preloaded = loaded_as(first_preloaded()?)?.display().to_string();
    let is_opened = |file: String| open(&file, libc::RTLD_NOW | libc::RTLD_GLOBAL).is_ok();
    // A start without what is preloaded continues the run with a warning: it has the same name.
    let below = NAMES.iter().find(|name| file_names(name).any(is_opened));
    let name = below.map_or(preloaded, |name| (*name).to_owned());
    select_mkl_layer(handle);
    let functions = Functions::found_by(|name| symbol_of(handle, name)).ok()?;
    Some(Library { name, functions, handle: Some(handle) })
}

/// Whether there is a function of a BLAS before any library is loaded.
pub fn is_any_preloaded() -> bool {
    first_preloaded().is_some()
}

fn first_preloaded() -> Option<*mut c_void> {
    Functions::SYMBOLS.iter().find_map(|name| symbol_of(libc::RTLD_DEFAULT, name))
}

pub(super) fn open_library(name: &str, file: &str) -> Result<Library, LoadError> {
    let handle = open(file, libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_DEEPBIND)?;
    let address = |name: &CStr| symbol_of(handle, name);
    select_mkl_layer(handle);
    let functions = Functions::found_by(address).map_err(LoadError::Lacks)?;
    let dot = address(c"ddot_").ok_or(LoadError::Lacks("ddot_"))?;
    if !has_short_integers(dot) {
        return Err(LoadError::LongIntegers);
    }
    Ok(Library { name: name.to_owned(), functions, handle: Some(handle) })
}

/// Loads a library for as long as the process runs. What its constructors change of signals, CPUs
/// and rounding is set back, as it would concern the whole run.
fn open(file: &str, how: c_int) -> Result<*mut c_void, LoadError> {
    let file = CString::new(file).map_err(|_| LoadError::Name)?;
    let before = ProcessState::now();
    // SAFETY: the name is NUL-terminated; the library's constructors run, as in a program that is
    // linked to it.
    let handle = unsafe { libc::dlopen(file.as_ptr(), how) };
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

/// The file of a `dgemm_` that is preloaded, as profilers are.
pub fn preloaded() -> Option<PathBuf> {
    let loaded_as = loaded_as(symbol_of(libc::RTLD_DEFAULT, c"dgemm_")?)?;
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

fn describes_itself(handle: *mut c_void) -> bool {
    KNOWN.iter().any(|(_, marker)| symbol_of(handle, marker).is_some())
}

pub(super) fn symbol_of(handle: *mut c_void, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the name is NUL-terminated, and libraries stay loaded.
    let address = unsafe { libc::dlsym(handle, name.as_ptr()) };
    (!address.is_null()).then_some(address)
}

pub(super) fn file_of(address: *mut c_void) -> Option<PathBuf> {
    let path = loaded_as(address)?;
    Some(path.canonicalize().unwrap_or(path))
}

/// As [`file_of`], by the name under which the loader found it.
fn loaded_as(address: *mut c_void) -> Option<PathBuf> {
    // SAFETY: `info` is plain data for which zeros are a value; dladdr only writes to it, and the
    // name in it exists as long as the library is loaded.
    let name = unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(address, &mut info) == 0 || info.dli_fname.is_null() {
            return None;
        }
        CStr::from_ptr(info.dli_fname).to_string_lossy().into_owned()
    };
    Some(PathBuf::from(name))
}

/// If this is MKL, selects its layer without threads, unless the user has named one. At the first
/// call of any function, `mkl_rt` loads its layers; its default layer for threads needs an OpenMP
/// library, and ends the process if there is none.
fn select_mkl_layer(handle: *mut c_void) {
    const MKL_THREADING_SEQUENTIAL: c_int = 1;
    let is_named = std::env::var_os("MKL_THREADING_LAYER").is_some();
    if let Some(address) = symbol_of(handle, c"MKL_Set_Threading_Layer").filter(|_| !is_named) {
        // SAFETY: `int MKL_Set_Threading_Layer(int)`.
        let set: extern "C" fn(c_int) -> c_int = unsafe { std::mem::transmute(address) };
        set(MKL_THREADING_SEQUENTIAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_looked_up_with_and_without_version() {
        let names = |wanted| file_names(wanted).collect::<Vec<_>>();
        assert_eq!(names("/opt/libx.so.3"), ["/opt/libx.so.3"]);
        assert_eq!(names("libx.so.3"), ["libx.so.3"]);
        let names = names("mkl_rt");
        assert_eq!((&*names[0], names.len()), ("libmkl_rt.so", 11));
        assert!(names.contains(&"libmkl_rt.so.2".to_owned()));
    }
}
