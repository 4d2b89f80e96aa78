//! Streams of CUDA and HIP, whose calls differ in their names alone, but for contexts and devices.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ops::Range;
use std::ptr;
use std::sync::OnceLock;
use std::thread::{self, ThreadId};

use crate::error::DeviceError;
use crate::library::{Call, Loaded, symbols};
use crate::queue::{Direction, EVENTS, Queue, Transfer};

/// `CUresult`, `hipError_t`: 0 is success.
type Status = c_int;
/// `CUstream`, `hipStream_t`.
type Stream = *mut c_void;
/// `CUevent`, `hipEvent_t`.
type Event = *mut c_void;
/// `CUcontext`.
type Context = *mut c_void;
/// `CUdeviceptr`, an integer; `hipDeviceptr_t`, a pointer, which is passed in the same way.
type DevicePointer = usize;
const _: () = assert!(size_of::<DevicePointer>() == 8, "CUdeviceptr has 64 bits");

symbols! {
    /// The calls of `libcuda.so.1`.
    Cuda {
        cuInit: fn(c_uint) -> Status;
        cuCtxGetCurrent: fn(*mut Context) -> Status;
        cuCtxPushCurrent_v2: fn(Context) -> Status;
        cuCtxPopCurrent_v2: fn(*mut Context) -> Status;
        cuStreamGetCtx: fn(Stream, *mut Context) -> Status;
        cuStreamSynchronize: fn(Stream) -> Status;
        cuMemcpyDtoHAsync_v2: fn(*mut c_void, DevicePointer, usize, Stream) -> Status;
        cuMemcpyHtoDAsync_v2: fn(DevicePointer, *const c_void, usize, Stream) -> Status;
        cuMemHostAlloc: fn(*mut *mut c_void, usize, c_uint) -> Status;
        cuMemFreeHost: fn(*mut c_void) -> Status;
        cuMemHostRegister_v2: fn(*mut c_void, usize, c_uint) -> Status;
        cuMemHostUnregister: fn(*mut c_void) -> Status;
        cuEventCreate: fn(*mut Event, c_uint) -> Status;
        cuEventRecord: fn(Event, Stream) -> Status;
        cuEventSynchronize: fn(Event) -> Status;
        cuEventDestroy_v2: fn(Event) -> Status;
        cuGetErrorName: fn(Status, *mut *const c_char) -> Status;
        cuGetErrorString: fn(Status, *mut *const c_char) -> Status;
    }
}

symbols! {
    /// The calls of `libamdhip64.so`.
    Hip {
        hipInit: fn(c_uint) -> Status;
        hipGetDevice: fn(*mut c_int) -> Status;
        hipSetDevice: fn(c_int) -> Status;
        hipGetDeviceCount: fn(*mut c_int) -> Status;
        hipStreamSynchronize: fn(Stream) -> Status;
        hipMemcpyDtoHAsync: fn(*mut c_void, DevicePointer, usize, Stream) -> Status;
        hipMemcpyHtoDAsync: fn(DevicePointer, *const c_void, usize, Stream) -> Status;
        hipHostMalloc: fn(*mut *mut c_void, usize, c_uint) -> Status;
        hipHostFree: fn(*mut c_void) -> Status;
        hipHostRegister: fn(*mut c_void, usize, c_uint) -> Status;
        hipHostUnregister: fn(*mut c_void) -> Status;
        hipEventCreateWithFlags: fn(*mut Event, c_uint) -> Status;
        hipEventRecord: fn(Event, Stream) -> Status;
        hipEventSynchronize: fn(Event) -> Status;
        hipEventDestroy: fn(Event) -> Status;
        hipGetLastError: fn() -> Status;
        hipGetErrorName: fn(Status) -> *const c_char;
        hipGetErrorString: fn(Status) -> *const c_char;
    }
}

const HIP_FILES: [&str; 3] = ["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"];
const CUDA_REMEDY: &str =
    "install the NVIDIA driver on this node, or run where there is an NVIDIA GPU";
const HIP_REMEDY: &str = "install ROCm on this node, or run where there is an AMD GPU";
const CUDA_START_REMEDY: &str =
    "run where there is an NVIDIA GPU that this process may use (`nvidia-smi` lists them)";
const HIP_START_REMEDY: &str =
    "run where there is an AMD GPU that this process may use (/dev/kfd, `rocminfo`)";

/// `CU_MEMHOSTALLOC_PORTABLE`, `CU_MEMHOSTREGISTER_PORTABLE`, `hipHostMallocPortable` and
/// `hipHostRegisterPortable`: pinned for all contexts.
const PORTABLE: c_uint = 1;
/// `CU_EVENT_DISABLE_TIMING`, `hipEventDisableTiming`: such events are the fastest to wait for.
const DISABLE_TIMING: c_uint = 2;
/// `CUDA_ERROR_INVALID_CONTEXT`.
const INVALID_CONTEXT: Status = 201;
/// `hipErrorNoDevice`.
const NO_DEVICE: Status = 100;
/// `CU_STREAM_PER_THREAD`, `hipStreamPerThread`: another stream in each thread.
const PER_THREAD: usize = 2;

struct Calls {
    library: &'static str,
    synchronize: Call<unsafe extern "C" fn(Stream) -> Status>,
    to_host: Call<unsafe extern "C" fn(*mut c_void, DevicePointer, usize, Stream) -> Status>,
    from_host: Call<unsafe extern "C" fn(DevicePointer, *const c_void, usize, Stream) -> Status>,
    allocate: Call<unsafe extern "C" fn(*mut *mut c_void, usize, c_uint) -> Status>,
    free: Call<unsafe extern "C" fn(*mut c_void) -> Status>,
    register: Call<unsafe extern "C" fn(*mut c_void, usize, c_uint) -> Status>,
    unregister: Call<unsafe extern "C" fn(*mut c_void) -> Status>,
    create_event: Call<unsafe extern "C" fn(*mut Event, c_uint) -> Status>,
    record: Call<unsafe extern "C" fn(Event, Stream) -> Status>,
    wait: Call<unsafe extern "C" fn(Event) -> Status>,
    destroy_event: Call<unsafe extern "C" fn(Event) -> Status>,
    places: Places,
}

enum Places {
    Cuda(Cuda),
    Hip(Hip),
}

impl Calls {
    fn cuda() -> Result<&'static Self, DeviceError> {
        static CALLS: OnceLock<Calls> = OnceLock::new();
        if let Some(calls) = CALLS.get() {
            return Ok(calls);
        }
        let loaded = Loaded::open(&["libcuda.so.1"], CUDA_REMEDY)?;
        // SAFETY: the types are those of cuda.h, which the library keeps under these names.
        let cuda = unsafe { Cuda::find(&loaded)? };
        let library = loaded.name;
        loaded.keep();
        Ok(CALLS.get_or_init(|| Self {
            library,
            synchronize: cuda.cuStreamSynchronize,
            to_host: cuda.cuMemcpyDtoHAsync_v2,
            from_host: cuda.cuMemcpyHtoDAsync_v2,
            allocate: cuda.cuMemHostAlloc,
            free: cuda.cuMemFreeHost,
            register: cuda.cuMemHostRegister_v2,
            unregister: cuda.cuMemHostUnregister,
            create_event: cuda.cuEventCreate,
            record: cuda.cuEventRecord,
            wait: cuda.cuEventSynchronize,
            destroy_event: cuda.cuEventDestroy_v2,
            places: Places::Cuda(cuda),
        }))
    }

    fn hip() -> Result<&'static Self, DeviceError> {
        static CALLS: OnceLock<Calls> = OnceLock::new();
        if let Some(calls) = CALLS.get() {
            return Ok(calls);
        }
        let loaded = Loaded::open(&HIP_FILES, HIP_REMEDY)?;
        // SAFETY: the types are those of hip_runtime_api.h, the same in the versions of the files.
        let hip = unsafe { Hip::find(&loaded)? };
        let library = loaded.name;
        loaded.keep();
        Ok(CALLS.get_or_init(|| Self {
            library,
            synchronize: hip.hipStreamSynchronize,
            to_host: hip.hipMemcpyDtoHAsync,
            from_host: hip.hipMemcpyHtoDAsync,
            allocate: hip.hipHostMalloc,
            free: hip.hipHostFree,
            register: hip.hipHostRegister,
            unregister: hip.hipHostUnregister,
            create_event: hip.hipEventCreateWithFlags,
            record: hip.hipEventRecord,
            wait: hip.hipEventSynchronize,
            destroy_event: hip.hipEventDestroy,
            places: Places::Hip(hip),
        }))
    }

    fn check(&self, call: &'static str, status: Status) -> Result<(), DeviceError> {
        if status == 0 {
            return Ok(());
        }
        if let Places::Hip(hip) = &self.places {
            // HIP keeps the status, which the program would attribute to one of its later calls,
            // also where copies survive the failure.
            // SAFETY: has no preconditions.
            let _ = unsafe { (hip.hipGetLastError.function)() };
        }
        let text = self.text(status);
        Err(DeviceError::Call { library: self.library, call, code: status, text })
    }

    /// As `check`, for calls that fail where there is no device.
    fn check_start(
        &self,
        call: &'static str,
        status: Status,
        remedy: &'static str,
    ) -> Result<(), DeviceError> {
        let started = self.check(call, status);
        started.map_err(|failed| DeviceError::Start { call: Box::new(failed), remedy })
    }

    /// The name and the meaning of a status, as `NAME: meaning`.
    fn text(&self, status: Status) -> String {
        let texts = match &self.places {
            Places::Cuda(cuda) => {
                let text =
                    |function: unsafe extern "C" fn(Status, *mut *const c_char) -> Status| {
                        let mut text = ptr::null();
                        // SAFETY: writes the address of a constant, or null.
                        unsafe { function(status, &raw mut text) };
                        text
                    };
                [text(cuda.cuGetErrorName.function), text(cuda.cuGetErrorString.function)]
            }
            // SAFETY: each returns the address of a constant for any status.
            Places::Hip(hip) => unsafe {
                [(hip.hipGetErrorName.function)(status), (hip.hipGetErrorString.function)(status)]
            },
        };
        let texts = texts.iter().filter(|text| !text.is_null());
        // SAFETY: constants of the library, with a zero at the end.
        let texts = texts.map(|text| unsafe { CStr::from_ptr(*text) }.to_string_lossy());
        let mut texts: Vec<_> = texts.collect();
        // ROCm 5 has the name as the text.
        texts.dedup();
        if texts.is_empty() { "an unknown code".to_owned() } else { texts.join(": ") }
    }
}

/// What has to be current in the thread that calls.
enum Place {
    Context(Context),
    Device {
        own: c_int,
        /// What was current before `enter`.
        before: c_int,
    },
}

pub(crate) struct StreamQueue {
    calls: &'static Calls,
    stream: Stream,
    place: Place,
    /// The thread whose stream it is, if each has its own.
    thread: Option<ThreadId>,
    events: [Event; EVENTS],
}

// SAFETY: the handles may be used in any thread where the context or device is current, which
// `enter` sees to; of the stream that is another one in each thread `synchronize` refuses others.
unsafe impl Send for StreamQueue {}

impl StreamQueue {
    /// Safety: as of [`crate::Copier::cuda`].
    pub(crate) unsafe fn cuda(stream: Stream) -> Result<Self, DeviceError> {
        let calls = Calls::cuda()?;
        let Places::Cuda(cuda) = &calls.places else { unreachable!("loaded as CUDA") };
        // SAFETY: may be called at any time, and again.
        let status = unsafe { (cuda.cuInit.function)(0) };
        calls.check_start(cuda.cuInit.symbol, status, CUDA_START_REMEDY)?;
        let mut context = ptr::null_mut();
        // SAFETY: the stream lives, by the caller; both write to `context`.
        let (call, status) = unsafe {
            if stream.is_null() {
                let current = cuda.cuCtxGetCurrent;
                (current.symbol, (current.function)(&raw mut context))
            } else {
                let of_stream = cuda.cuStreamGetCtx;
                (of_stream.symbol, (of_stream.function)(stream, &raw mut context))
            }
        };
        if status == INVALID_CONTEXT || (status == 0 && context.is_null()) {
            return Err(DeviceError::NoContext);
        }
        calls.check(call, status)?;
        Self::new(calls, stream, Place::Context(context))
    }

    /// Safety: as of [`crate::Copier::hip`].
    pub(crate) unsafe fn hip(stream: Stream) -> Result<Self, DeviceError> {
        let calls = Calls::hip()?;
        let Places::Hip(hip) = &calls.places else { unreachable!("loaded as HIP") };
        // SAFETY: may be called at any time, and again.
        let status = unsafe { (hip.hipInit.function)(0) };
        calls.check_start(hip.hipInit.symbol, status, HIP_START_REMEDY)?;
        let (mut count, mut own) = (0, 0);
        // SAFETY: writes to `count`.
        let mut status = unsafe { (hip.hipGetDeviceCount.function)(&raw mut count) };
        if status == 0 && count == 0 {
            status = NO_DEVICE;
        }
        calls.check_start(hip.hipGetDeviceCount.symbol, status, HIP_START_REMEDY)?;
        // SAFETY: writes to `own`.
        let status = unsafe { (hip.hipGetDevice.function)(&raw mut own) };
        calls.check(hip.hipGetDevice.symbol, status)?;
        Self::new(calls, stream, Place::Device { own, before: own })
    }

    fn new(calls: &'static Calls, stream: Stream, place: Place) -> Result<Self, DeviceError> {
        let thread = (stream.addr() == PER_THREAD).then(|| thread::current().id());
        let mut made = Self { calls, stream, place, thread, events: [ptr::null_mut(); EVENTS] };
        made.enter()?;
        let mut status = 0;
        for event in &mut made.events {
            if status == 0 {
                // SAFETY: writes the new event.
                status = unsafe { (calls.create_event.function)(event, DISABLE_TIMING) };
            }
        }
        made.leave();
        calls.check(calls.create_event.symbol, status)?;
        Ok(made)
    }
}

impl Drop for StreamQueue {
    fn drop(&mut self) {
        if self.enter().is_err() {
            // The context is gone, and its events with it.
            return;
        }
        for event in self.events.iter().filter(|event| !event.is_null()) {
            // SAFETY: made by `new`; each copy has been waited for. A failure leaves an event.
            let status = unsafe { (self.calls.destroy_event.function)(*event) };
            let _ = self.calls.check(self.calls.destroy_event.symbol, status);
        }
        self.leave();
    }
}

impl Queue for StreamQueue {
    fn enter(&mut self) -> Result<(), DeviceError> {
        match (&self.calls.places, &mut self.place) {
            (Places::Cuda(cuda), Place::Context(context)) => {
                let push = cuda.cuCtxPushCurrent_v2;
                // SAFETY: the context lives, as the stream's by the promise to `cuda`.
                self.calls.check(push.symbol, unsafe { (push.function)(*context) })
            }
            (Places::Hip(hip), Place::Device { own, before }) => {
                // SAFETY: writes to `before`.
                let status = unsafe { (hip.hipGetDevice.function)(before) };
                self.calls.check(hip.hipGetDevice.symbol, status)?;
                // SAFETY: no memory is accessed.
                let status = unsafe { (hip.hipSetDevice.function)(*own) };
                self.calls.check(hip.hipSetDevice.symbol, status)
            }
            _ => unreachable!("contexts are CUDA's, devices HIP's"),
        }
    }

    fn leave(&mut self) {
        // A failure would be one of work in flight, which the calls between have reported.
        match (&self.calls.places, &self.place) {
            (Places::Cuda(cuda), _) => {
                let mut context = ptr::null_mut();
                // SAFETY: pops what `enter` has pushed.
                let _ = unsafe { (cuda.cuCtxPopCurrent_v2.function)(&raw mut context) };
            }
            (Places::Hip(hip), Place::Device { before, .. }) => {
                // SAFETY: no memory is accessed.
                let status = unsafe { (hip.hipSetDevice.function)(*before) };
                let _ = self.calls.check(hip.hipSetDevice.symbol, status);
            }
            _ => unreachable!("contexts are CUDA's, devices HIP's"),
        }
    }

    fn synchronize(&mut self) -> Result<(), DeviceError> {
        if self.thread.is_some_and(|thread| thread != thread::current().id()) {
            return Err(DeviceError::OtherThread);
        }
        let call = &self.calls.synchronize;
        // SAFETY: the stream lives, by the promise to `cuda` or `hip`.
        self.calls.check(call.symbol, unsafe { (call.function)(self.stream) })
    }

    unsafe fn enqueue(&mut self, transfer: Transfer, event: usize) -> Result<(), DeviceError> {
        let Transfer { direction, memory, offset, host, bytes } = transfer;
        let device = memory.addr().wrapping_add(offset);
        match direction {
            Direction::ToHost => {
                let call = &self.calls.to_host;
                // SAFETY: both memories have these bytes, and stay valid, by the caller.
                let status = unsafe { (call.function)(host.cast(), device, bytes, self.stream) };
                self.calls.check(call.symbol, status)?;
            }
            Direction::FromHost => {
                let call = &self.calls.from_host;
                // SAFETY: both memories have these bytes, and stay valid, by the caller.
                let status = unsafe { (call.function)(device, host.cast(), bytes, self.stream) };
                self.calls.check(call.symbol, status)?;
            }
        }
        let record = &self.calls.record;
        // SAFETY: an event of this queue, in its stream; one that is recorded again stands for all
        // before it, as the stream is in order.
        let status = unsafe { (record.function)(self.events[event], self.stream) };
        self.calls.check(record.symbol, status)
    }

    fn wait(&mut self, event: usize) -> Result<(), DeviceError> {
        let call = &self.calls.wait;
        // SAFETY: an event of this queue.
        self.calls.check(call.symbol, unsafe { (call.function)(self.events[event]) })
    }

    fn allocate(&mut self, bytes: usize) -> Result<*mut u8, DeviceError> {
        let mut memory = ptr::null_mut();
        let call = &self.calls.allocate;
        // SAFETY: writes the address of the new memory.
        let status = unsafe { (call.function)(&raw mut memory, bytes, PORTABLE) };
        self.calls.check(call.symbol, status).map(|()| memory.cast())
    }

    unsafe fn free(&mut self, memory: *mut u8) {
        // SAFETY: of `allocate`, by the caller. A failure leaves it allocated.
        let status = unsafe { (self.calls.free.function)(memory.cast()) };
        let _ = self.calls.check(self.calls.free.symbol, status);
    }

    fn can_register(&self) -> bool {
        true
    }

    unsafe fn register(&mut self, pages: Range<usize>) -> Result<(), DeviceError> {
        let start = ptr::with_exposed_provenance_mut(pages.start);
        let call = &self.calls.register;
        // SAFETY: the pages stay mapped, by the caller.
        let status = unsafe { (call.function)(start, pages.len(), PORTABLE) };
        self.calls.check(call.symbol, status)
    }

    unsafe fn unregister(&mut self, start: usize) {
        // SAFETY: registered, by the caller. A failure leaves the pages pinned.
        let start = ptr::with_exposed_provenance_mut(start);
        let status = unsafe { (self.calls.unregister.function)(start) };
        let _ = self.calls.check(self.calls.unregister.symbol, status);
    }
}
