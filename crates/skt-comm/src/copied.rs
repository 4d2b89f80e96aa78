//! The common part of transports that copy a message when it is sent, here and in `skt-sim`.

use std::ops::Range;
use std::sync::Arc;

use super::{Comm, CommError, PageBuf, RecvRequest, Result, SendRequest, Tag};

/// A send that was complete at once.
pub struct Sent;

impl SendRequest for Sent {
    fn test(&mut self) -> Result<bool> {
        Ok(true)
    }

    fn wait(self) -> Result<()> {
        Ok(())
    }
}

/// A receive in progress: the message is copied when the receiver tests or waits.
pub struct Receiving<C> {
    comm: C,
    buf: PageBuf,
    range: Range<usize>,
    source: usize,
    tag: Tag,
    arrived: bool,
}

impl<C: Comm> Receiving<C> {
    /// A receive into `buf[range]`.
    ///
    /// # Panics
    /// When the buffer is shorter.
    pub fn new(comm: C, buf: PageBuf, range: Range<usize>, source: usize, tag: Tag) -> Self {
        assert!(range.end <= buf.len(), "receive beyond the buffer");
        Self { comm, buf, range, source, tag, arrived: false }
    }

    fn receive(&mut self) -> Result<()> {
        self.comm.recv(&mut self.buf[self.range.clone()], self.source, self.tag)?;
        self.arrived = true;
        Ok(())
    }
}

impl<C: Comm> RecvRequest for Receiving<C> {
    fn test(&mut self) -> Result<bool> {
        if !self.arrived && self.comm.probe(self.source, self.tag)? {
            self.receive()?;
        }
        Ok(self.arrived)
    }

    fn wait(mut self) -> Result<PageBuf> {
        if !self.arrived {
            self.receive()?;
        }
        Ok(self.buf)
    }
}

/// Copies a message into the buffer that awaits it.
pub fn copy_message(message: &[u8], into: &mut [u8], source_rank: usize, tag: Tag) -> Result<()> {
    if message.len() != into.len() {
        let (want, got) = (into.len(), message.len());
        return Err(CommError::Length { source_rank, tag, want, got });
    }
    into.copy_from_slice(message);
    Ok(())
}

/// The new group of rank `me` when a group with these `members` is split: the ranks that are
/// `like_me`, ordered by key, then by rank. Returns the least of them, the new rank of `me`, and
/// the new members.
pub fn new_group<K: Ord>(
    members: &[usize],
    me: usize,
    like_me: impl Fn(usize) -> bool,
    key: impl Fn(usize) -> K,
) -> (u32, usize, Arc<Vec<usize>>) {
    let mut ranks: Vec<usize> = (0..members.len()).filter(|&rank| like_me(rank)).collect();
    let first = *ranks.first().expect("who splits has a colour");
    ranks.sort_by_key(|&rank| (key(rank), rank));
    let rank = ranks.iter().position(|&rank| rank == me).expect("own colour");
    (first as u32, rank, Arc::new(ranks.into_iter().map(|rank| members[rank]).collect()))
}
