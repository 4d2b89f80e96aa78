//! The library that this process calls: the program is linked with none.

use std::path::Path;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::ffi::{Functions, Library};
use super::loader;
pub use super::loader::{LoadError, NAMES, file_names, is_any_preloaded, preloaded};

/// The library that this process calls; null until one is named or called.
static CALLED: AtomicPtr<Library> = AtomicPtr::new(ptr::null_mut());

#[cfg(test)]
thread_local! {
    /// Functions that a test calls in place of the library's, on its thread.
    pub(super) static PLANTED: std::cell::Cell<Option<&'static Functions>> =
        const { std::cell::Cell::new(None) };
}

#[inline]
pub(super) fn functions() -> &'static Functions {
    #[cfg(test)]
    if let Some(planted) = PLANTED.get() {
        return planted;
    }
    &library().functions
}

/// The library that this process calls; the default one if none was named before.
#[inline]
pub(super) fn library() -> &'static Library {
    let called = CALLED.load(Ordering::Acquire);
    if called.is_null() { take_default() } else { leaked(called) }
}

#[cold]
fn take_default() -> &'static Library {
    static FIRST: Once = Once::new();
    FIRST.call_once(|| set_library(loader::default_library(|_| true)));
    leaked(CALLED.load(Ordering::Acquire))
}

fn leaked(called: *mut Library) -> &'static Library {
    // SAFETY: a pointer that is no longer null is that of a library which is never freed.
    unsafe { &*called }
}

fn set_library(library: Library) {
    CALLED.store(Box::leak(Box::new(library)), Ordering::Release);
}

/// Loads the library `file`, a path or a name for the loader, and makes it the one that this
/// process calls. Its symbols serve no other library nor the other way round: both may be builds of
/// OpenBLAS, whose functions call each other by the same names.
pub fn load(file: &str) -> Result<(), LoadError> {
    set_library(loader::open_library(file, file)?);
    Ok(())
}

pub fn use_built_in() {
    set_library(Library::built_in());
}

/// Makes the library that is called by default the one that this process calls. `serves` decides
/// about a file that does not describe itself, as unoptimized ones do not.
pub fn use_default(serves: impl Fn(&Path) -> bool) {
    set_library(loader::default_library(serves));
}
