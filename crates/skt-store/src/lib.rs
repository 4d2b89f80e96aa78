//! Memory that outlives the processes of a job, and the erasure code that restores lost parts of
//! it. What a segment contains, and when it counts, is up to the protocol above (`skt-checkpoint`).
//!
//! | module | what |
//! |---|---|
//! | [`store`] | segments in System V or POSIX shared memory, or in files |
//! | [`memory`] | the interface of a protocol to the memory of a node |
//! | [`segments`] | the segments of a run in a store: that interface in production |
//! | [`codec`] | parities, lost blocks from parities, checksums, copies past the caches |
//! | [`layout`] | which rank holds which blocks and parities, and where in its memory |
//! | [`tuning`] | the value found by measurement |
#![deny(unsafe_op_in_unsafe_fn)]
#![warn(missing_docs, unreachable_pub)]

pub mod codec;
pub mod layout;
pub mod memory;
pub mod segments;
pub mod store;
pub mod tuning;
