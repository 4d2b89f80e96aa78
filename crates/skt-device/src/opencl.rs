//! Command queues of OpenCL, in order or not.

use std::ffi::{c_int, c_uint, c_void};
use std::ops::Range;
use std::ptr;
use std::sync::OnceLock;

use crate::error::DeviceError;
use crate::library::{Loaded, symbols};
use crate::queue::{Direction, EVENTS, Queue, Transfer};

/// `cl_int`: 0 is success.
type Status = c_int;
/// `cl_command_queue`.
type QueueHandle = *mut c_void;
/// `cl_event`.
type Event = *mut c_void;
/// `cl_context`.
type Context = *mut c_void;
/// `cl_mem`.
type Memory = *mut c_void;
/// `cl_bool`, `cl_uint`, and the names of properties of queues and events.
type Unsigned = c_uint;
/// `cl_mem_flags`, `cl_map_flags`.
type Flags = u64;

symbols! {
    /// The calls of `libOpenCL.so.1`.
    OpenCl {
        clRetainCommandQueue: fn(QueueHandle) -> Status;
        clReleaseCommandQueue: fn(QueueHandle) -> Status;
        clGetCommandQueueInfo: fn(QueueHandle, Unsigned, usize, *mut c_void, *mut usize) -> Status;
        clCreateBuffer: fn(Context, Flags, usize, *mut c_void, *mut Status) -> Memory;
        clReleaseMemObject: fn(Memory) -> Status;
        clEnqueueReadBuffer: fn(
            QueueHandle,
            Memory,
            Unsigned,
            usize,
            usize,
            *mut c_void,
            Unsigned,
            *const Event,
            *mut Event,
        ) -> Status;
        clEnqueueWriteBuffer: fn(
            QueueHandle,
            Memory,
            Unsigned,
            usize,
            usize,
            *const c_void,
            Unsigned,
            *const Event,
            *mut Event,
        ) -> Status;
        clEnqueueMapBuffer: fn(
            QueueHandle,
            Memory,
            Unsigned,
            Flags,
            usize,
            usize,
            Unsigned,
            *const Event,
            *mut Event,
            *mut Status,
        ) -> *mut c_void;
        clEnqueueUnmapMemObject: fn(
            QueueHandle,
            Memory,
            *mut c_void,
            Unsigned,
            *const Event,
            *mut Event,
        ) -> Status;
        clWaitForEvents: fn(Unsigned, *const Event) -> Status;
        clGetEventInfo: fn(Event, Unsigned, usize, *mut c_void, *mut usize) -> Status;
        clReleaseEvent: fn(Event) -> Status;
        clFlush: fn(QueueHandle) -> Status;
        clFinish: fn(QueueHandle) -> Status;
    }
}

const FILE: &str = "libOpenCL.so.1";
const REMEDY: &str =
    "install an OpenCL loader and driver on this node (of Debian ocl-icd-libopencl1)";

const FALSE: Unsigned = 0;
const TRUE: Unsigned = 1;
const QUEUE_CONTEXT: Unsigned = 0x1090;
const EVENT_COMMAND_EXECUTION_STATUS: Unsigned = 0x11d3;
const MEM_READ_WRITE_ALLOC_HOST_PTR: Flags = 1 | 1 << 4;
const MAP_READ_WRITE: Flags = 1 | 1 << 1;

impl OpenCl {
    fn load() -> Result<&'static Self, DeviceError> {
        static CALLS: OnceLock<OpenCl> = OnceLock::new();
        if let Some(calls) = CALLS.get() {
            return Ok(calls);
        }
        let loaded = Loaded::open(&[FILE], REMEDY)?;
        // SAFETY: the types are those of cl.h, which the library keeps under these names.
        let calls = unsafe { Self::find(&loaded)? };
        loaded.keep();
        Ok(CALLS.get_or_init(|| calls))
    }
}

fn check(call: &'static str, status: Status) -> Result<(), DeviceError> {
    if status == 0 {
        return Ok(());
    }
    let text = format!("{}{}", name(status), hint(status));
    Err(DeviceError::Call { library: FILE, call, code: status, text })
}

/// A buffer of pinned memory, mapped as long as it is there.
struct Mapped {
    buffer: Memory,
    host: *mut u8,
}

/// A command queue, retained, with the events of copies.
pub(crate) struct CommandQueue {
    calls: &'static OpenCl,
    queue: QueueHandle,
    context: Context,
    /// Copies that are not waited for yet. In a queue that is out of order none stands for others.
    events: [Vec<Event>; EVENTS],
    mapped: Vec<Mapped>,
}

// SAFETY: all calls of OpenCL but clSetKernelArg may be made in any thread.
unsafe impl Send for CommandQueue {}

impl CommandQueue {
    /// Safety: as of [`crate::Copier::opencl`].
    pub(crate) unsafe fn new(queue: QueueHandle) -> Result<Self, DeviceError> {
        let calls = OpenCl::load()?;
        if queue.is_null() {
            return Err(DeviceError::NoQueue);
        }
        let retain = &calls.clRetainCommandQueue;
        // SAFETY: a queue, by the caller, or null, which is refused.
        check(retain.symbol, unsafe { (retain.function)(queue) })?;
        let (events, mapped) = ([Vec::new(), Vec::new()], Vec::new());
        let mut made = Self { calls, queue, context: ptr::null_mut(), events, mapped };
        let info = &calls.clGetCommandQueueInfo;
        let context = (&raw mut made.context).cast();
        // SAFETY: writes as much as a context.
        let status = unsafe {
            (info.function)(queue, QUEUE_CONTEXT, size_of::<Context>(), context, ptr::null_mut())
        };
        check(info.symbol, status)?;
        Ok(made)
    }

    fn failure(&self, event: Event) -> Option<Status> {
        let mut status: Status = 0;
        let (size, value) = (size_of::<Status>(), (&raw mut status).cast());
        let info = &self.calls.clGetEventInfo;
        // SAFETY: writes as much as a status.
        let asked = unsafe {
            (info.function)(event, EVENT_COMMAND_EXECUTION_STATUS, size, value, ptr::null_mut())
        };
        (asked == 0 && status < 0).then_some(status)
    }
}

impl Drop for CommandQueue {
    fn drop(&mut self) {
        for event in self.events.iter().flatten() {
            // SAFETY: of a copy, and released once.
            let _ = unsafe { (self.calls.clReleaseEvent.function)(*event) };
        }
        // SAFETY: retained by `new`.
        let _ = unsafe { (self.calls.clReleaseCommandQueue.function)(self.queue) };
    }
}

impl Queue for CommandQueue {
    fn enter(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn leave(&mut self) {}

    fn synchronize(&mut self) -> Result<(), DeviceError> {
        let call = &self.calls.clFinish;
        // SAFETY: the queue is retained.
        check(call.symbol, unsafe { (call.function)(self.queue) })?;
        // Those of a copy that has failed are not to fail the next one.
        for event in self.events.iter_mut().flat_map(std::mem::take) {
            // SAFETY: of a copy, and released once.
            let _ = unsafe { (self.calls.clReleaseEvent.function)(event) };
        }
        Ok(())
    }

    unsafe fn enqueue(&mut self, transfer: Transfer, event: usize) -> Result<(), DeviceError> {
        let Transfer { direction, memory, offset, host, bytes } = transfer;
        let mut ended = ptr::null_mut();
        let (none, event_out) = (ptr::null(), &raw mut ended);
        match direction {
            Direction::ToHost => {
                let call = &self.calls.clEnqueueReadBuffer;
                let host = host.cast();
                // SAFETY: the memory of the host stays valid, by the caller; that of the device is
                // checked by the library.
                check(call.symbol, unsafe {
                    (call.function)(
                        self.queue, memory, FALSE, offset, bytes, host, 0, none, event_out,
                    )
                })?;
            }
            Direction::FromHost => {
                let call = &self.calls.clEnqueueWriteBuffer;
                let host = host.cast_const().cast();
                // SAFETY: as above.
                check(call.symbol, unsafe {
                    (call.function)(
                        self.queue, memory, FALSE, offset, bytes, host, 0, none, event_out,
                    )
                })?;
            }
        }
        self.events[event].push(ended);
        let flush = &self.calls.clFlush;
        // Without it the copy need not begin before it is waited for.
        // SAFETY: the queue is retained.
        check(flush.symbol, unsafe { (flush.function)(self.queue) })
    }

    fn wait(&mut self, event: usize) -> Result<(), DeviceError> {
        let events = std::mem::take(&mut self.events[event]);
        let Ok(count @ 1..) = Unsigned::try_from(events.len()) else { return Ok(()) };
        let call = &self.calls.clWaitForEvents;
        // SAFETY: as many events of this queue.
        let mut status = unsafe { (call.function)(count, events.as_ptr()) };
        if status != 0 {
            // The copy's own error is more specific than that of a failed event.
            status = events.iter().find_map(|event| self.failure(*event)).unwrap_or(status);
        }
        for event in &events {
            // SAFETY: of a copy, and released once.
            let _ = unsafe { (self.calls.clReleaseEvent.function)(*event) };
        }
        check(call.symbol, status)
    }

    fn allocate(&mut self, bytes: usize) -> Result<*mut u8, DeviceError> {
        let (create, map) = (&self.calls.clCreateBuffer, &self.calls.clEnqueueMapBuffer);
        let mut status = 0;
        let (flags, no_host) = (MEM_READ_WRITE_ALLOC_HOST_PTR, ptr::null_mut());
        // SAFETY: writes the status.
        let buffer =
            unsafe { (create.function)(self.context, flags, bytes, no_host, &raw mut status) };
        check(create.symbol, status)?;
        let (none, no_event) = (ptr::null(), ptr::null_mut());
        // SAFETY: the buffer has these bytes; returns when it is mapped, and writes the status.
        let host: *mut u8 = unsafe {
            (map.function)(
                self.queue,
                buffer,
                TRUE,
                MAP_READ_WRITE,
                0,
                bytes,
                0,
                none,
                no_event,
                &raw mut status,
            )
        }
        .cast();
        if let Err(failure) = check(map.symbol, status) {
            // SAFETY: made above.
            let _ = unsafe { (self.calls.clReleaseMemObject.function)(buffer) };
            return Err(failure);
        }
        self.mapped.push(Mapped { buffer, host });
        Ok(host)
    }

    unsafe fn free(&mut self, memory: *mut u8) {
        let Some(index) = self.mapped.iter().position(|mapped| mapped.host == memory) else {
            return;
        };
        let Mapped { buffer, host } = self.mapped.swap_remove(index);
        let (unmap, none) = (self.calls.clEnqueueUnmapMemObject.function, ptr::null());
        // SAFETY: mapped by `allocate`. The buffer is there until the command has ended: releasing
        // it before is allowed.
        unsafe {
            let _ = unmap(self.queue, buffer, host.cast(), 0, none, ptr::null_mut());
            let _ = (self.calls.clReleaseMemObject.function)(buffer);
        }
    }

    fn can_register(&self) -> bool {
        false
    }

    unsafe fn register(&mut self, _: Range<usize>) -> Result<(), DeviceError> {
        unreachable!("OpenCL has no call for it")
    }

    unsafe fn unregister(&mut self, _: usize) {}
}

/// What the caller may have done wrong, where the library returns this.
fn hint(status: Status) -> &'static str {
    match status {
        // What is no buffer is often taken for a part of one.
        -13 | -34 | -38 => ": is the memory a cl_mem of the queue's context?",
        -30 => ": is the region larger than its buffer?",
        -59 => ": was the buffer made without access of the host?",
        _ => "",
    }
}

/// The name of a failure that a copy may have: OpenCL has no call for it.
fn name(status: Status) -> &'static str {
    match status {
        -4 => "CL_MEM_OBJECT_ALLOCATION_FAILURE",
        -5 => "CL_OUT_OF_RESOURCES",
        -6 => "CL_OUT_OF_HOST_MEMORY",
        -12 => "CL_MAP_FAILURE",
        -13 => "CL_MISALIGNED_SUB_BUFFER_OFFSET",
        -14 => "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST",
        -30 => "CL_INVALID_VALUE",
        -34 => "CL_INVALID_CONTEXT",
        -36 => "CL_INVALID_COMMAND_QUEUE",
        -38 => "CL_INVALID_MEM_OBJECT",
        -59 => "CL_INVALID_OPERATION",
        -61 => "CL_INVALID_BUFFER_SIZE",
        _ => "its name is in cl.h",
    }
}
