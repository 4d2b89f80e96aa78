//! What can fail when memory of a device is copied.

/// Why memory of a device cannot be copied, with the library and the call that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages describe the fields")]
pub enum DeviceError {
    /// The library of the driver is not on this machine, or does not load.
    #[error("{library} cannot be loaded ({why}): {remedy}")]
    Library { library: String, why: String, remedy: &'static str },
    /// The library lacks a call, so it is older than all that are supported.
    #[error("{library} has no {symbol} ({why}): {remedy}")]
    Symbol { library: &'static str, symbol: &'static str, why: String, remedy: &'static str },
    /// The library is there, but does not start, in most cases since there is no device.
    #[error("{call}: {remedy}")]
    Start { call: Box<DeviceError>, remedy: &'static str },
    /// A CUDA context is needed, and this thread has none.
    #[error(
        "no CUDA context is current in this thread: call cudaSetDevice or cuCtxSetCurrent first"
    )]
    NoContext,
    /// The queue is null.
    #[error(
        "the OpenCL queue is null: clCreateCommandQueue has failed, or this node has no driver of \
         OpenCL (`clinfo -l` lists devices)"
    )]
    NoQueue,
    /// The default stream of another thread cannot be waited for.
    #[error(
        "the stream is the default stream of the thread that made the copier: copy in that thread, \
         or give the copier another stream"
    )]
    OtherThread,
    /// A call failed: of this copy, or of work that was enqueued before it.
    #[error("{call} of {library} returns {code} ({text})")]
    Call { library: &'static str, call: &'static str, code: i32, text: String },
}

impl DeviceError {
    /// The code that the library returned, and -1 if the failure is not one of its calls.
    pub fn code(&self) -> i32 {
        match self {
            Self::Start { call, .. } => call.code(),
            Self::Call { code, .. } => *code,
            _ => -1,
        }
    }
}
