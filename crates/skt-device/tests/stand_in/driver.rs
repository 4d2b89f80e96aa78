//! The stand-in, as scenarios call it that run in a process with it.

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulong, c_void};

use libloading::{Library, Symbol};

use super::build::API;
use super::library::Api;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Left {
    pub allocated: usize,
    pub registered: usize,
    pub events: usize,
    pub in_flight: usize,
}

/// The stand-in that this process has loaded, with a context that is current in this thread.
pub struct Driver {
    library: Library,
    pub api: Api,
}

impl Driver {
    /// The stand-in of the library that the environment names.
    pub fn load() -> Self {
        let name = std::env::var(API).expect("scenarios are run by the other tests");
        let api = Api::ALL.into_iter().find(|api| api.name() == name).expect("a library");
        // SAFETY: the first in the search path is the stand-in, whose start has no effects outside.
        let library = unsafe { Library::new(api.file()) }.expect("it loads");
        let driver = Self { library, api };
        if api == Api::Cuda {
            driver.switch();
        }
        driver
    }

    /// Safety: `T` is the type of this function in device.c or library.c.
    unsafe fn get<T>(&self, name: &str) -> Symbol<'_, T> {
        // SAFETY: promised by the caller.
        unsafe { self.library.get(name.as_bytes()) }
            .unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// The contexts in this thread's stack (CUDA), or the number of its device (HIP).
    pub fn current(&self) -> c_int {
        // SAFETY: the type is that of library.c.
        unsafe {
            let current: Symbol<unsafe extern "C" fn() -> c_int> = self.get("stand_in_current");
            current()
        }
    }

    /// What HIP keeps of failures, for the program to ask for; of CUDA there is nothing.
    pub fn last_error(&self) -> c_int {
        // SAFETY: the type is that of library.c.
        unsafe {
            let peek: Symbol<unsafe extern "C" fn() -> c_int> = self.get("stand_in_last_error");
            peek()
        }
    }

    /// Removes contexts from this thread's stack until `current` is this again (CUDA), or makes
    /// this the device (HIP).
    pub fn restore(&self, current: c_int) {
        // SAFETY: the type is that of library.c.
        unsafe {
            let restore: Symbol<unsafe extern "C" fn(c_int)> = self.get("stand_in_restore");
            restore(current);
        }
    }

    /// Makes another context or device the current one, as a program that works with several.
    pub fn switch(&self) {
        // SAFETY: the type is that of library.c.
        unsafe {
            let switch: Symbol<unsafe extern "C" fn()> = self.get("stand_in_switch");
            switch();
        }
    }

    pub fn new_stream(&self) -> *mut c_void {
        // SAFETY: the type is that of library.c.
        unsafe {
            let create: Symbol<unsafe extern "C" fn() -> *mut c_void> = self.get("stand_in_stream");
            create()
        }
    }

    pub fn allocate(&self, bytes: usize) -> *mut c_void {
        // SAFETY: the type is that of library.c, whose numbers are addresses.
        let memory = unsafe {
            let allocate: Symbol<unsafe extern "C" fn(usize) -> *mut c_void> =
                self.get("stand_in_allocate");
            allocate(bytes)
        };
        assert!(!memory.is_null());
        memory
    }

    pub fn free(&self, memory: *mut c_void) {
        // SAFETY: the type is that of library.c, whose numbers are addresses.
        unsafe {
            let free: Symbol<unsafe extern "C" fn(*mut c_void)> = self.get("stand_in_free");
            free(memory);
        }
    }

    pub fn allocate_with(&self, content: &[u8]) -> *mut c_void {
        let memory = self.allocate(content.len());
        // SAFETY: the type is that of device.c, which reads the slice.
        unsafe {
            let write: Symbol<unsafe extern "C" fn(*mut c_void, *const u8, usize)> =
                self.get("stand_in_write");
            write(memory, content.as_ptr(), content.len());
        }
        memory
    }

    /// The bytes that the device has now, whatever is queued.
    pub fn read(&self, memory: *mut c_void, content: &mut [u8]) {
        // SAFETY: the type is that of device.c, which writes the slice.
        unsafe {
            let read: Symbol<unsafe extern "C" fn(*mut u8, *mut c_void, usize)> =
                self.get("stand_in_read");
            read(content.as_mut_ptr(), memory, content.len());
        }
    }

    /// Enqueues a kernel that combines each byte of the memory with `with` (exclusive or).
    pub fn change(&self, memory: *mut c_void, bytes: usize, with: u8, stream: *mut c_void) {
        // SAFETY: the type is that of library.c.
        unsafe {
            let change: Symbol<unsafe extern "C" fn(*mut c_void, usize, u8, *mut c_void) -> c_int> =
                self.get("stand_in_change");
            assert_eq!(change(memory, bytes, with, stream), 0);
        }
    }

    /// Pins memory of the host, as a program does itself.
    pub fn register(&self, pages: &mut [u8]) {
        let name = if self.api == Api::Cuda { "cuMemHostRegister_v2" } else { "hipHostRegister" };
        // SAFETY: the type is that of library.c; the memory stays mapped in these tests.
        unsafe {
            let register: Symbol<unsafe extern "C" fn(*mut u8, usize, c_uint) -> c_int> =
                self.get(name);
            assert_eq!(register(pages.as_mut_ptr(), pages.len(), 0), 0);
        }
    }

    pub fn unregister(&self, pages: &mut [u8]) {
        let name = if self.api == Api::Cuda { "cuMemHostUnregister" } else { "hipHostUnregister" };
        // SAFETY: the type is that of library.c.
        unsafe {
            let unregister: Symbol<unsafe extern "C" fn(*mut u8) -> c_int> = self.get(name);
            assert_eq!(unregister(pages.as_mut_ptr()), 0);
        }
    }

    /// From now on registering what is registered is an error, and no violation.
    pub fn allow_overlaps(&self) {
        // SAFETY: the type is that of device.c.
        unsafe {
            let allow: Symbol<unsafe extern "C" fn()> = self.get("stand_in_allow_overlaps");
            allow();
        }
    }

    /// Counts calls from 1 again, and fails call `at`, or all from it on, with `code`.
    pub fn fail(&self, at: u64, code: c_int, onwards: bool) {
        // SAFETY: the type is that of device.c.
        unsafe {
            let fail: Symbol<unsafe extern "C" fn(c_ulong, c_int, c_int)> =
                self.get("stand_in_fail");
            fail(at, code, c_int::from(onwards));
        }
    }

    pub fn calls(&self) -> u64 {
        // SAFETY: the type is that of device.c.
        unsafe {
            let calls: Symbol<unsafe extern "C" fn() -> c_ulong> = self.get("stand_in_calls");
            calls()
        }
    }

    /// The first call that has failed since the last `fail`.
    pub fn failed(&self) -> Option<String> {
        // SAFETY: the type is that of device.c; the name is a static string.
        unsafe {
            let failed: Symbol<unsafe extern "C" fn() -> *const c_char> =
                self.get("stand_in_failed");
            let name = failed();
            (!name.is_null()).then(|| CStr::from_ptr(name).to_str().unwrap().to_owned())
        }
    }

    /// Fails nothing any more, and forgets what is allocated and registered. Returns the number of
    /// calls since the last `fail`, and the first of them that has failed.
    pub fn stop_failing(&self) -> (u64, Option<String>) {
        let end = (self.calls(), self.failed());
        // SAFETY: the type is that of device.c.
        unsafe {
            let forget: Symbol<unsafe extern "C" fn()> = self.get("stand_in_forget");
            forget();
        }
        self.fail(0, 0, false);
        end
    }

    pub fn left(&self) -> Left {
        // SAFETY: the type is that of device.c.
        let left: Symbol<unsafe extern "C" fn(c_int) -> usize> =
            unsafe { self.get("stand_in_left") };
        // SAFETY: there are these four counts.
        let [allocated, registered, events, in_flight] =
            [0, 1, 2, 3].map(|what| unsafe { left(what) });
        Left { allocated, registered, events, in_flight }
    }
}
