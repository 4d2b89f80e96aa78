//! An OpenCL device of this machine with a queue, for tests: a processor will do.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::{null, null_mut};
use std::sync::Mutex;

use libloading::{Library, Symbol};

type Handle = *mut c_void;
type Create = unsafe extern "C" fn(Handle, u64, usize, Handle, *mut c_int) -> Handle;
type CreateContext =
    unsafe extern "C" fn(Handle, c_uint, *const Handle, Handle, Handle, *mut c_int) -> Handle;
type CreateQueue = unsafe extern "C" fn(Handle, Handle, u64, *mut c_int) -> Handle;
type Fill = unsafe extern "C" fn(
    Handle,
    Handle,
    *const c_void,
    usize,
    usize,
    usize,
    c_uint,
    *const Handle,
    *mut Handle,
) -> c_int;
type Ids = unsafe extern "C" fn(Handle, u64, c_uint, *mut Handle, *mut c_uint) -> c_int;
type Platforms = unsafe extern "C" fn(c_uint, *mut Handle, *mut c_uint) -> c_int;

const DEVICE_TYPE_ALL: u64 = 0xffff_ffff;
const OUT_OF_ORDER: u64 = 1;

pub struct Device {
    library: Library,
    device: Handle,
    context: Handle,
}

impl Device {
    pub fn new() -> Result<Self, String> {
        // pocl 3.1 reports limits of 0 to a thread while another one initialises the device.
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let _guard = ONE_AT_A_TIME.lock().unwrap();
        // SAFETY: the constructors of a system library run.
        let library = unsafe { Library::new("libOpenCL.so.1") }.map_err(|why| why.to_string())?;
        let (mut platform, mut device, mut status) = (null_mut(), null_mut(), 0);
        // SAFETY: the types are those of cl.h; each call writes one handle.
        let context = unsafe {
            let platforms: Symbol<Platforms> = library.get(b"clGetPlatformIDs").unwrap();
            if platforms(1, &raw mut platform, null_mut()) != 0 {
                return Err("no OpenCL platform".to_owned());
            }
            let devices: Symbol<Ids> = library.get(b"clGetDeviceIDs").unwrap();
            if devices(platform, DEVICE_TYPE_ALL, 1, &raw mut device, null_mut()) != 0 {
                return Err("no OpenCL device".to_owned());
            }
            let create: Symbol<CreateContext> = library.get(b"clCreateContext").unwrap();
            create(null_mut(), 1, &raw const device, null_mut(), null_mut(), &raw mut status)
        };
        assert_eq!(status, 0, "clCreateContext");
        Ok(Self { library, device, context })
    }

    pub fn queue(&self, is_in_order: bool) -> Handle {
        let mut status = 0;
        let properties = if is_in_order { 0 } else { OUT_OF_ORDER };
        // SAFETY: the type is that of cl.h, and the handles are this device's.
        let queue = unsafe {
            let create: Symbol<CreateQueue> = self.library.get(b"clCreateCommandQueue").unwrap();
            create(self.context, self.device, properties, &raw mut status)
        };
        assert_eq!(status, 0, "clCreateCommandQueue");
        queue
    }

    pub fn buffer(&self, bytes: usize) -> Handle {
        let mut status = 0;
        // SAFETY: the type is that of cl.h.
        let buffer = unsafe {
            let create: Symbol<Create> = self.library.get(b"clCreateBuffer").unwrap();
            create(self.context, 1, bytes, null_mut(), &raw mut status)
        };
        assert_eq!(status, 0, "clCreateBuffer");
        buffer
    }

    /// An event that ends when `end` is called.
    pub fn user_event(&self) -> Handle {
        let mut status = 0;
        // SAFETY: the type is that of cl.h.
        let event = unsafe {
            let create: Symbol<unsafe extern "C" fn(Handle, *mut c_int) -> Handle> =
                self.library.get(b"clCreateUserEvent").unwrap();
            create(self.context, &raw mut status)
        };
        assert_eq!(status, 0, "clCreateUserEvent");
        event
    }

    pub fn end(&self, event: usize) {
        // SAFETY: the type is that of cl.h, and the event one of `user_event`.
        unsafe {
            let set: Symbol<unsafe extern "C" fn(Handle, c_int) -> c_int> =
                self.library.get(b"clSetUserEventStatus").unwrap();
            assert_eq!(set(std::ptr::with_exposed_provenance_mut(event), 0), 0);
        }
    }

    /// Enqueues the filling of a buffer with one byte, after an event.
    pub fn fill(&self, queue: Handle, buffer: Handle, value: u8, bytes: usize, after: Handle) {
        // SAFETY: the type is that of cl.h; the pattern is copied at once.
        unsafe {
            let fill: Symbol<Fill> = self.library.get(b"clEnqueueFillBuffer").unwrap();
            let pattern = (&raw const value).cast();
            let status = fill(queue, buffer, pattern, 1, 0, bytes, 1, &raw const after, null_mut());
            assert_eq!(status, 0, "clEnqueueFillBuffer");
        }
    }

    /// Calls a function of one handle, such as those that release.
    pub fn call(&self, symbol: &str, handle: Handle) {
        // SAFETY: callers name functions of one handle that return a status.
        unsafe {
            let function: Symbol<unsafe extern "C" fn(Handle) -> c_int> =
                self.library.get(symbol.as_bytes()).unwrap();
            assert_eq!(function(handle), 0, "{symbol}");
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.call("clReleaseContext", self.context);
    }
}

// SAFETY: OpenCL's calls may be made in any thread.
unsafe impl Sync for Device {}

pub const NULL: Handle = null::<c_void>().cast_mut();
