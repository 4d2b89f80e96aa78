//! A non-blocking barrier: a rank enters it, and it is complete when all have entered. On
//! completion all ranks also know whether any of them has made a request.
//!
//! The algorithm is dissemination (Hensgen, Finkel, Manber 1988): in round i each rank sends to the
//! rank 2^i after it, and receives from the one 2^i before it. After log2(ranks) rounds, each rank
//! has information from all, and of any request.

use std::sync::Arc;

use super::{Comm, PageBuf, RecvRequest, Result, SendRequest, Tag};

const TAG_BARRIER: Tag = 0x7e00;

/// Consecutive barriers of one group. A rank receives from another one in only one round of a
/// barrier, and messages between two ranks arrive in order: those of one barrier cannot be taken
/// for those of the next.
pub struct IBarrier {
    /// The two messages: no request, as far as this rank knows, or a request.
    words: [Arc<PageBuf>; 2],
    is_asked: bool,
    /// The receive buffer, while no receive has it.
    received: Option<PageBuf>,
    /// Sends, which may still be in progress when all have entered, since receivers poll.
    sends: Vec<Box<dyn SendRequest>>,
    recv: Option<Box<dyn RecvRequest>>,
    /// The distance of the round in progress; `None` if no barrier is.
    distance: Option<usize>,
}

impl IBarrier {
    /// A sequence of barriers; none has been entered.
    pub fn new() -> Result<Self> {
        let (no_request, mut request) = (PageBuf::for_messages(1)?, PageBuf::for_messages(1)?);
        request[0] = 1.0;
        let words = [no_request, request].map(Arc::new);
        let (received, sends) = (Some(PageBuf::for_messages(1)?), Vec::with_capacity(64));
        Ok(Self { words, is_asked: false, received, sends, recv: None, distance: None })
    }

    /// Enters the next barrier, with a request if `asks`; the one before must have been waited for.
    /// Never waits.
    pub fn enter(&mut self, comm: &Comm, asks: bool) -> Result<()> {
        assert!(self.distance.is_none() && self.sends.is_empty(), "one barrier at a time");
        self.is_asked = asks;
        self.begin_round(comm, 1)
    }

    fn begin_round(&mut self, comm: &Comm, distance: usize) -> Result<()> {
        let (me, size) = (comm.rank(), comm.size());
        if distance >= size {
            self.distance = None;
            return Ok(());
        }
        let (to, from) = ((me + distance) % size, (me + size - distance) % size);
        let word = self.words[usize::from(self.is_asked)].clone();
        self.sends.push(comm.isend(word, 0..1, to, TAG_BARRIER)?);
        let received = self.received.take().expect("no receive has it");
        self.recv = Some(comm.irecv(received, 0..1, from, TAG_BARRIER)?);
        self.distance = Some(distance);
        Ok(())
    }

    fn end_round(&mut self, comm: &Comm, distance: usize) -> Result<()> {
        let received = self.recv.take().expect("a round has a receive").wait()?;
        self.is_asked |= received[0] != 0.0;
        self.received = Some(received);
        self.begin_round(comm, 2 * distance)
    }

    /// Whether all have entered the barrier that this rank has entered last; true if it has entered
    /// none. Never waits for a rank.
    pub fn progress(&mut self, comm: &Comm) -> Result<bool> {
        while let (Some(distance), Some(recv)) = (self.distance, &mut self.recv) {
            if !recv.test()? {
                return Ok(false);
            }
            self.end_round(comm, distance)?;
        }
        Ok(true)
    }

    /// Waits until all have entered the barrier that this rank has entered last. Returns whether
    /// any of them has made a request in it, the same on all.
    pub fn wait(&mut self, comm: &Comm) -> Result<bool> {
        while let Some(distance) = self.distance {
            self.end_round(comm, distance)?;
        }
        self.sends.drain(..).try_for_each(SendRequest::wait)?;
        Ok(self.is_asked)
    }
}
