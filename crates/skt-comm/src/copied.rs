//! The common part of transports that copy a message when it is sent, here and in `skt-sim`.

use std::ops::Range;
use std::sync::Arc;

use super::{CommError, PageBuf, RecvRequest, Result, SendRequest, Tag, Transport};

/// A send that was complete at once.
pub struct Sent;

impl SendRequest for Sent {
    fn test(&mut self) -> Result<bool> {
        Ok(true)
    }

    fn wait(self: Box<Self>) -> Result<()> {
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

impl<C: Transport> Receiving<C> {
    /// A receive into `buf[range]`.
    pub fn new(comm: C, buf: PageBuf, range: Range<usize>, source: usize, tag: Tag) -> Self {
        assert!(range.end <= buf.len(), "receive beyond the buffer");
        Self { comm, buf, range, source, tag, arrived: false }
    }

    fn receive(&mut self) -> Result<()> {
        let data = bytemuck::cast_slice_mut(&mut self.buf[self.range.clone()]);
        self.comm.recv_bytes(data, self.source, self.tag)?;
        self.arrived = true;
        Ok(())
    }
}

impl<C: Transport> RecvRequest for Receiving<C> {
    fn test(&mut self) -> Result<bool> {
        if !self.arrived && self.comm.probe(self.source, self.tag)? {
            self.receive()?;
        }
        Ok(self.arrived)
    }

    fn wait(mut self: Box<Self>) -> Result<PageBuf> {
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

/// Identifies a sequence of messages to a rank: group, world rank of the sender, tag.
pub type Key = (u32, usize, Tag);

/// The colour and key of a rank in a split.
pub type SplitArgs = (Option<u32>, u32);

/// The place of a rank in a group.
#[derive(Clone)]
pub struct Place {
    /// The number of the group; 0 is the world.
    pub group: u32,
    /// World ranks of the members.
    pub members: Arc<Vec<usize>>,
    /// The number of the rank in the group.
    pub rank: usize,
}

impl Place {
    /// The places of all ranks in a world of `size`.
    pub fn in_world(size: usize) -> impl Fn(usize) -> Self {
        let members = Arc::new((0..size).collect::<Vec<_>>());
        move |rank| Self { group: 0, members: members.clone(), rank }
    }

    /// The world rank.
    pub fn me(&self) -> usize {
        self.members[self.rank]
    }

    /// The key of messages from member `source`.
    pub fn key(&self, source: usize, tag: Tag) -> Key {
        (self.group, self.members[source], tag)
    }

    /// The place after a split in which the members had `args`: the ranks of one colour are ordered
    /// by key, then by rank. `None` without a colour. As many group numbers as there are members,
    /// from `base` on, are unused.
    pub fn after_split(&self, args: &[SplitArgs], base: u32) -> Option<Self> {
        let color = args[self.rank].0;
        color?;
        let mut ranks: Vec<usize> = (0..args.len()).filter(|&rank| args[rank].0 == color).collect();
        let group = base + ranks[0] as u32;
        ranks.sort_by_key(|&rank| (args[rank].1, rank));
        let rank = ranks.iter().position(|&rank| rank == self.rank).expect("own colour");
        let members = Arc::new(ranks.into_iter().map(|rank| self.members[rank]).collect());
        Some(Self { group, members, rank })
    }
}
