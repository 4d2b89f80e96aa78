//! The first page of each segment: it proves that the segment is of this program, and identifies
//! it.

use std::mem::offset_of;

use bytemuck::{Pod, Zeroable};

use super::{ROLE_BYTES_MAX, RUN_BYTES_MAX, SegmentInfo, SegmentName};
use crate::codec::checksum;
use skt_host::process::ProcessId;

/// Bytes before the data: the smallest page of any system.
pub(crate) use skt_comm::pages::PAGE_BYTES;

const MAGIC: [u8; 8] = *b"SKTHPLSG";
const VERSION: u64 = 1;
/// A complete segment has `ready = checksum ^ READY`.
const READY: u64 = 0x5259_4441_4552_5953;

/// The header as it is in memory. Written once, except `ready`.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Header {
    magic: [u8; 8],
    version: u64,
    run: [u8; RUN_BYTES_MAX],
    role: [u8; ROLE_BYTES_MAX],
    rank: u64,
    data_bytes: u64,
    /// The process that created the segment.
    process: ProcessId,
    created_unix_seconds: u64,
    /// Checksum of the fields above.
    checksum: u64,
    ready: u64,
}

/// The contents of a valid header.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub name: SegmentName,
    pub data_bytes: usize,
    pub process: ProcessId,
    pub created_unix_seconds: u64,
    pub is_ready: bool,
}

impl Identity {
    /// What a creator has left that died before its first page was whole.
    pub(crate) fn incomplete(name: &SegmentName, segment_bytes: usize, created: u64) -> Self {
        Self {
            name: name.clone(),
            data_bytes: segment_bytes.saturating_sub(PAGE_BYTES),
            process: ProcessId::zeroed(),
            created_unix_seconds: created,
            is_ready: false,
        }
    }

    pub(crate) fn info(self, location: String, in_use: bool, attached: Option<u64>) -> SegmentInfo {
        SegmentInfo {
            location,
            bytes: self.data_bytes,
            is_ready: self.is_ready,
            in_use,
            attached,
            creator_pid: self.process.pid(),
            creator: self.process.liveness(),
            created_unix_seconds: self.created_unix_seconds,
            name: self.name,
        }
    }
}

impl Header {
    /// A header for a segment that this process creates now; not ready yet.
    pub(crate) fn new(name: &SegmentName, data_bytes: usize) -> Self {
        let mut header = Self {
            magic: MAGIC,
            version: VERSION,
            run: padded(name.run()),
            role: padded(name.role()),
            rank: name.rank().into(),
            data_bytes: data_bytes as u64,
            process: ProcessId::this(),
            created_unix_seconds: super::host::now_unix_seconds(),
            ..Zeroable::zeroed()
        };
        header.checksum = header.compute_checksum();
        header
    }

    /// Marks the segment as complete.
    pub(crate) fn set_ready(&mut self) {
        self.ready = self.checksum ^ READY;
    }

    /// Whether the page may be one that this program has not written yet, or not to its end.
    pub(crate) fn may_be_begun(&self) -> bool {
        [MAGIC, [0; 8]].contains(&self.magic)
    }

    fn compute_checksum(&self) -> u64 {
        checksum(&bytemuck::bytes_of(self)[..offset_of!(Self, checksum)])
    }

    /// The contents of the header of a segment of `segment_bytes`, if it is whole and of this
    /// program.
    pub(crate) fn identity(&self, segment_bytes: usize) -> Option<Identity> {
        let room = segment_bytes.checked_sub(PAGE_BYTES)?;
        let data_bytes = usize::try_from(self.data_bytes).ok()?;
        let is_ours = self.magic == MAGIC
            && self.version == VERSION
            && self.checksum == self.compute_checksum()
            && data_bytes <= room;
        if !is_ours {
            return None;
        }
        let (run, role) = (unpadded(&self.run)?, unpadded(&self.role)?);
        Some(Identity {
            name: SegmentName::new(run, role, u32::try_from(self.rank).ok()?).ok()?,
            data_bytes,
            process: self.process,
            created_unix_seconds: self.created_unix_seconds,
            is_ready: self.ready == self.checksum ^ READY,
        })
    }
}

fn padded<const N: usize>(text: &str) -> [u8; N] {
    let mut bytes = [0; N];
    bytes[..text.len()].copy_from_slice(text.as_bytes());
    bytes
}

fn unpadded(bytes: &[u8]) -> Option<&str> {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    std::str::from_utf8(&bytes[..end]).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_survives_a_round_trip() {
        let name = SegmentName::new(&"r".repeat(RUN_BYTES_MAX), "state", 41).unwrap();
        let mut header = Header::new(&name, 800);
        let identity = header.identity(PAGE_BYTES + 800).unwrap();
        assert_eq!((&identity.name, identity.data_bytes), (&name, 800));
        assert_eq!(identity.process, ProcessId::this());
        assert!(!identity.is_ready);
        header.set_ready();
        assert!(header.identity(PAGE_BYTES + 4096).unwrap().is_ready);
    }

    #[test]
    fn a_flipped_bit_anywhere_makes_it_foreign_or_unready() {
        let mut header = Header::new(&SegmentName::new("run", "state", 1).unwrap(), 800);
        header.set_ready();
        for bit in 0..size_of::<Header>() * 8 {
            let mut bad = header;
            bytemuck::bytes_of_mut(&mut bad)[bit / 8] ^= 1 << (bit % 8);
            let trusted = bad.identity(8192).is_some_and(|identity| identity.is_ready);
            assert!(!trusted, "bit {bit}");
        }
        assert!(header.identity(PAGE_BYTES + 792).is_none(), "segment shorter than its data");
        assert!(header.identity(100).is_none(), "segment shorter than a header");
    }
}
