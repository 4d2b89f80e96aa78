//! Messages between ranks, and memory that ranks of a node share.
//!
//! A [`Comm`] is a group of ranks with any [`Transport`]: MPI in production, threads of one process
//! or simulated ranks in tests. The same compiled code runs with each; a call through the transport
//! costs nanoseconds, a message a microsecond.
//!
//! All data is bytes at this level; [`Comm::send`] and its relatives take slices of any plain type
//! and treat them as bytes (both ends of a message run the same binary, so byte order and layout
//! agree).
#![deny(unsafe_op_in_unsafe_fn)]
#![warn(missing_docs, unreachable_pub)]

pub mod buffer;
pub mod collect;
pub mod copied;
pub mod ibarrier;
pub mod mpi;
pub mod node;
pub mod pages;
pub mod threads;
pub mod tuning;

use std::ops::{Deref, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytemuck::Pod;

pub use buffer::{PageBuf, disjoint_ranges};

/// The time between two polls of a rank that has nothing to do.
const NAP: Duration = Duration::from_millis(1);

/// In seconds, as bits: the longest time that a rank may compute or write without calling MPI.
static LONGEST_PAUSE_SECONDS: AtomicU64 = AtomicU64::new(0);

/// Announces that this rank may make no call of its communicators for `seconds`: a wait for all
/// ranks must allow for that. The longest announced time counts.
pub fn expect_pause(seconds: f64) {
    // The bits of non-negative numbers have the order of the numbers.
    LONGEST_PAUSE_SECONDS.fetch_max(seconds.max(0.0).to_bits(), Ordering::Relaxed);
}

/// The time for which ranks may make no call in the present part of the work, in seconds, as bits.
static PAUSE_NOW_SECONDS: AtomicU64 = AtomicU64::new(0);

/// Announces that ranks may make no call of their communicators for `seconds`, until this is called
/// again for the next part of the work.
pub fn expect_pause_now(seconds: f64) {
    PAUSE_NOW_SECONDS.store(seconds.max(0.0).to_bits(), Ordering::Relaxed);
}

/// In seconds: see [`expect_pause`] and [`expect_pause_now`].
pub(crate) fn longest_pause_seconds() -> f64 {
    let seconds = |of: &AtomicU64| f64::from_bits(of.load(Ordering::Relaxed));
    seconds(&LONGEST_PAUSE_SECONDS).max(seconds(&PAUSE_NOW_SECONDS))
}

static STANDS_BY: AtomicBool = AtomicBool::new(false);

/// Declares whether this rank stands by: it has no part in the work of the others, and cannot know
/// how long they make no call of MPI. So it waits for them as long as there are any.
pub fn stand_by(is: bool) {
    STANDS_BY.store(is, Ordering::Relaxed);
}

pub(crate) fn stands_by() -> bool {
    STANDS_BY.load(Ordering::Relaxed)
}

/// A message tag, below 32768, which every MPI supports.
pub type Tag = u16;

/// Why a communication failed.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum CommError {
    /// Another rank has failed or asked all ranks to stop.
    #[error("the job was aborted: {reason}")]
    Aborted {
        /// What that rank has reported.
        reason: String,
        /// The number that a program of ranks with such numbers gives to this failure.
        code: Option<i32>,
    },
    /// Fault injection in tests has killed this rank at this step.
    #[error("rank killed by fault injection at step {0}")]
    Killed(u64),
    /// The transport reported an error.
    #[error("{call} failed: {what}")]
    Transport {
        /// The call that failed, e.g. `MPI_Recv`.
        call: &'static str,
        /// The description from the library.
        what: String,
    },
    /// A message arrived whose length differs from that of the buffer that awaits it.
    #[error("message of {got} bytes from rank {source_rank} (tag {tag}), {want} expected")]
    Length {
        /// Sender of the message.
        source_rank: usize,
        /// The message's tag.
        tag: Tag,
        /// Bytes awaited.
        want: usize,
        /// Bytes received.
        got: usize,
    },
}

impl CommError {
    /// The report of another rank, without a number.
    pub fn aborted(reason: impl Into<String>) -> Self {
        Self::Aborted { reason: reason.into(), code: None }
    }
}

/// The result of a communication.
pub type Result<T> = std::result::Result<T, CommError>;

/// A send in progress that keeps its buffer alive until it is complete.
pub trait SendRequest: Send {
    /// Whether the buffer is free again. Makes progress; never blocks.
    fn test(&mut self) -> Result<bool>;
    /// Blocks until the buffer is free again.
    fn wait(self: Box<Self>) -> Result<()>;
}

/// A receive in progress that owns its buffer until it is complete.
pub trait RecvRequest: Send {
    /// Whether the message has arrived. Makes progress; never blocks. After it has returned `true`,
    /// [`RecvRequest::wait`] returns at once.
    fn test(&mut self) -> Result<bool>;
    /// Blocks until the message has arrived, and returns the buffer.
    fn wait(self: Box<Self>) -> Result<PageBuf>;
}

/// What carries the messages of a group of ranks; the calls of a [`Comm`].
///
/// All ranks of the group must make collective calls in the same order. Messages between two ranks
/// with the same tag arrive in the order in which they were sent. Calls that return a [`Result`]
/// fail, rather than hang, when a rank cannot be reached or the job has been aborted.
pub trait Transport: Send {
    /// This rank, `0..size`; always the same.
    fn rank(&self) -> usize;

    /// Number of ranks in the group; always the same.
    fn size(&self) -> usize;

    /// Splits the group: ranks with the same `color` form a new group, ordered by `key`, then by
    /// rank in this group. A rank with `None` joins no group. Collective.
    fn split(&self, color: Option<u32>, key: u32) -> Result<Option<Comm>>;

    /// Sends bytes; returns when `data` may be changed again, before or after they are received.
    fn send_bytes(&self, data: &[u8], dest: usize, tag: Tag) -> Result<()>;

    /// Receives exactly `data.len()` bytes.
    fn recv_bytes(&self, data: &mut [u8], source: usize, tag: Tag) -> Result<()> {
        self.exchange_bytes(&[], &mut [(data, source, tag)])
    }

    /// Does all these sends and receives at once, without deadlock whatever their order, and
    /// returns when all are complete.
    fn exchange_bytes(
        &self,
        sends: &[(&[u8], usize, Tag)],
        recvs: &mut [(&mut [u8], usize, Tag)],
    ) -> Result<()>;

    /// Starts to send `buf[range]`; the request keeps `buf` alive.
    fn isend(
        &self,
        buf: Arc<PageBuf>,
        range: Range<usize>,
        dest: usize,
        tag: Tag,
    ) -> Result<Box<dyn SendRequest>>;

    /// Starts to receive exactly `range.len()` doubles into `buf[range]`. Among several receives
    /// from one rank with the same tag, each must be tested or waited for only after those before
    /// it are complete: a transport may give a message to the first that asks.
    fn irecv(
        &self,
        buf: PageBuf,
        range: Range<usize>,
        source: usize,
        tag: Tag,
    ) -> Result<Box<dyn RecvRequest>>;

    /// Whether a message with this tag from `source` could be received now. Makes progress, too.
    fn probe(&self, source: usize, tag: Tag) -> Result<bool>;

    /// Returns when [`Self::probe`] would find the message. Yields the processor while it waits.
    fn await_message(&self, source: usize, tag: Tag) -> Result<()> {
        while !self.probe(source, tag)? {
            std::thread::sleep(NAP);
        }
        Ok(())
    }

    /// Returns when all ranks of the group have called it. Collective.
    fn barrier(&self) -> Result<()>;

    /// The name of the host that this rank runs on.
    fn host(&self) -> String;

    /// The present time, for measuring durations; on a simulated machine, the machine's time.
    fn now(&self) -> Instant {
        Instant::now()
    }

    /// Whether a posted message may need further calls of its ranks to progress.
    fn needs_calls(&self) -> bool {
        true
    }

    /// Makes all ranks of the whole job fail promptly with this reason, in their present or next
    /// call. Does not return in production.
    fn abort(&self, reason: &str, exit_code: i32) -> CommError;
}

/// A group of ranks, with the calls of its [`Transport`] and those below.
pub struct Comm {
    transport: Box<dyn Transport>,
    rank: usize,
    size: usize,
}

impl Deref for Comm {
    type Target = dyn Transport;

    #[inline]
    fn deref(&self) -> &Self::Target {
        &*self.transport
    }
}

impl Comm {
    /// The group of this transport.
    pub fn new(transport: impl Transport + 'static) -> Self {
        let (rank, size) = (transport.rank(), transport.size());
        Self { transport: Box::new(transport), rank, size }
    }

    /// This rank, `0..size`.
    #[inline]
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Number of ranks in the group.
    #[inline]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Sends a slice of any plain type; see [`Transport::send_bytes`].
    pub fn send<T: Pod>(&self, data: &[T], dest: usize, tag: Tag) -> Result<()> {
        self.send_bytes(bytemuck::cast_slice(data), dest, tag)
    }

    /// Receives a slice of any plain type; see [`Transport::recv_bytes`].
    pub fn recv<T: Pod>(&self, data: &mut [T], source: usize, tag: Tag) -> Result<()> {
        self.recv_bytes(bytemuck::cast_slice_mut(data), source, tag)
    }

    /// Sends to one rank and receives from another, or the same one, at once.
    pub fn sendrecv<T: Pod>(
        &self,
        out: &[T],
        dest: usize,
        into: &mut [T],
        source: usize,
        tag: Tag,
    ) -> Result<()> {
        self.exchange_bytes(
            &[(bytemuck::cast_slice(out), dest, tag)],
            &mut [(bytemuck::cast_slice_mut(into), source, tag)],
        )
    }
}
