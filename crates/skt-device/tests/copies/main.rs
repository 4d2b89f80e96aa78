//! Copies with the libraries of this machine.

#[path = "../../../../tests/skipped/mod.rs"]
mod skipped;

mod host_device;
mod opencl_copies;
mod refusals;
