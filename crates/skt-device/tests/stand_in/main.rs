//! Copies through libraries that stand for the drivers of CUDA and HIP (device.c), and what the
//! real ones can be compared with where there is no device: headers, and refusals.
//!
//! What needs a stand-in runs in a separate process, in which it is the library that the crate
//! loads: an ignored test here that another test runs, a scenario.

mod build;
mod copies;
mod driver;
mod failures;
mod headers;
mod library;
mod refusals;
#[path = "../../../../tests/skipped/mod.rs"]
mod skipped;
