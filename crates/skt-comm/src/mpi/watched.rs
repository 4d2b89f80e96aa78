//! Ranks that stop waiting for each other when one of them has failed alone.
//!
//! A rank that leaves a collective call with an error, for instance because its node has no memory
//! left, keeps the others waiting for its messages. Here each wait is a loop that tests the message
//! and checks from time to time whether another rank has reported a failure. If so, the wait ends
//! with [`CommError::Aborted`]. After that the group is of no use.

use std::ops::Range;
use std::sync::Arc;

use super::{
    Comm, CommError, MpiComm, MpiRecv, MpiSend, PageBuf, RecvRequest, Requests, Result,
    SendRequest, Tag, Transport, UnderWay,
};
use crate::ibarrier::IBarrier;

/// Fails once another rank has reported a failure, with [`CommError::Aborted`].
pub type FailureWatch = Arc<dyn Fn() -> Result<()> + Send + Sync>;

/// Tests of a message from one check of the watch to the next.
const TESTS_PER_CHECK: u32 = 16;

pub(super) struct WatchedComm {
    comm: MpiComm,
    watch: FailureWatch,
}

impl WatchedComm {
    pub(super) fn new(comm: MpiComm, watch: FailureWatch) -> Self {
        Self { comm, watch }
    }

    /// Starts to send a copy of `data`: the caller's memory is free again at once, also when the
    /// wait for the message is given up.
    fn send_copy(&self, data: &[u8], dest: usize, tag: Tag) -> Result<UnderWay<Vec<u8>>> {
        let (copy, requests) = (data.to_vec(), Requests::new());
        let start = copy.as_ptr();
        let mut send = UnderWay { requests, buf: Some(copy) };
        // SAFETY: UnderWay keeps the copy, which does not move, until the message is complete.
        unsafe { self.comm.post_send(start, data.len(), dest, tag, &mut send.requests)? };
        Ok(send)
    }
}

/// Tests `is_done` until it holds. Ends with an error when the watch finds the report of a failure.
fn poll(watch: &FailureWatch, mut is_done: impl FnMut() -> Result<bool>) -> Result<()> {
    let mut tests = 0u32;
    while !is_done()? {
        tests = tests.wrapping_add(1);
        if tests.is_multiple_of(TESTS_PER_CHECK) {
            watch()?;
        }
        // The rank that is waited for may need this core.
        std::thread::yield_now();
    }
    Ok(())
}

/// A message in progress whose wait can be given up; what is dropped then leaks its buffer.
struct Watched<R> {
    request: R,
    watch: FailureWatch,
}

impl SendRequest for Watched<MpiSend> {
    fn test(&mut self) -> Result<bool> {
        self.request.requests.test()
    }

    fn wait(mut self: Box<Self>) -> Result<()> {
        poll(&self.watch, || self.request.requests.test())
    }
}

impl RecvRequest for Watched<MpiRecv> {
    fn test(&mut self) -> Result<bool> {
        self.request.requests.test()
    }

    fn wait(mut self: Box<Self>) -> Result<PageBuf> {
        poll(&self.watch, || self.request.requests.test())?;
        Ok(self.request.buf.take().expect("handed out here alone"))
    }
}

impl Transport for WatchedComm {
    fn rank(&self) -> usize {
        self.comm.rank()
    }

    fn size(&self) -> usize {
        self.comm.size()
    }

    fn split(&self, color: Option<u32>, key: u32) -> Result<Option<Comm>> {
        // MPI's own split waits without checking the watch, so it begins when all are here.
        self.barrier()?;
        let comm = self.comm.split(color, key)?;
        Ok(comm.map(|comm| comm.watched(self.watch.clone())))
    }

    fn send_bytes(&self, data: &[u8], dest: usize, tag: Tag) -> Result<()> {
        let mut send = self.send_copy(data, dest, tag)?;
        poll(&self.watch, || send.requests.test())
    }

    fn recv_bytes(&self, data: &mut [u8], source: usize, tag: Tag) -> Result<()> {
        // A sender may fail when a part of its message has arrived: this wait is given up then, and
        // MPI may write to the message's memory later.
        let (mut copy, requests) = (vec![0; data.len()], Requests::new());
        let start = copy.as_mut_ptr();
        let mut message = UnderWay { requests, buf: Some(copy) };
        // SAFETY: UnderWay keeps the copy, which does not move and is not touched, until the
        // message is complete.
        unsafe { self.comm.post_recv(start, data.len(), source, tag, &mut message.requests)? };
        poll(&self.watch, || message.requests.test())?;
        data.copy_from_slice(message.buf.as_ref().expect("kept"));
        Ok(())
    }

    fn exchange_bytes(
        &self,
        sends: &[(&[u8], usize, Tag)],
        recvs: &mut [(&mut [u8], usize, Tag)],
    ) -> Result<()> {
        let mut copies = Vec::with_capacity(sends.len());
        for &(data, dest, tag) in sends {
            copies.push(self.send_copy(data, dest, tag)?);
        }
        // In their order, so that messages of one rank and tag go where they belong.
        for (data, source, tag) in recvs.iter_mut() {
            self.recv_bytes(data, *source, *tag)?;
        }
        copies.iter_mut().try_for_each(|send| poll(&self.watch, || send.requests.test()))
    }

    fn isend(
        &self,
        buf: Arc<PageBuf>,
        range: Range<usize>,
        dest: usize,
        tag: Tag,
    ) -> Result<Box<dyn SendRequest>> {
        let request = self.comm.begin_send(buf, range, dest, tag)?;
        Ok(Box::new(Watched { request, watch: self.watch.clone() }))
    }

    fn irecv(
        &self,
        buf: PageBuf,
        range: Range<usize>,
        source: usize,
        tag: Tag,
    ) -> Result<Box<dyn RecvRequest>> {
        let request = self.comm.begin_recv(buf, range, source, tag)?;
        Ok(Box::new(Watched { request, watch: self.watch.clone() }))
    }

    /// Also checks the watch: ranks that wait on memory of the node probe while they wait.
    fn probe(&self, source: usize, tag: Tag) -> Result<bool> {
        (self.watch)()?;
        self.comm.probe(source, tag)
    }

    fn await_message(&self, source: usize, tag: Tag) -> Result<()> {
        poll(&self.watch, || self.comm.probe(source, tag))
    }

    /// Waits in an `IBarrier`, whose waits for messages check the watch.
    fn barrier(&self) -> Result<()> {
        let comm = self.comm.view().watched(self.watch.clone());
        let mut barrier = IBarrier::new()?;
        barrier.enter(&comm, false)?;
        barrier.wait(&comm).map(drop)
    }

    fn host(&self) -> String {
        self.comm.host()
    }

    /// Ends nothing: the caller notifies the others of the failure.
    fn abort(&self, reason: &str, _exit_code: i32) -> CommError {
        CommError::aborted(reason.to_owned())
    }
}
