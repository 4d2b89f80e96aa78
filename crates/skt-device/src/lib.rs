//! Copies between memory of a device (a GPU) and memory of the host, for checkpoints.
//!
//! The libraries of the drivers are loaded at run time, so nothing of them is needed to build or to
//! run without a device.
#![deny(unsafe_op_in_unsafe_fn)]
#![warn(missing_docs, unreachable_pub)]

mod copier;
mod engine;
mod error;
mod library;
mod opencl;
mod pinned;
mod queue;
mod staging;
mod stream;
mod trials;

#[cfg(test)]
mod emulated;
#[cfg(test)]
mod races;

pub use copier::Copier;
pub use error::DeviceError;
pub use trials::{Measured, Rate, Rates, Way};

/// All libraries' symbols with the Rust types by which they are called, to compare with headers.
#[doc(hidden)]
pub fn signatures() -> Vec<(&'static str, &'static str)> {
    [stream::Cuda::signatures(), stream::Hip::signatures(), opencl::OpenCl::signatures()].concat()
}
