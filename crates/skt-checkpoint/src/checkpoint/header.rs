//! The header of a segment: its identity and its record.
//!
//! The identity is written once. Everything that changes is one [`Record`], written whole into two
//! slots in turn: a write that a death cuts short leaves the record before it in force. A slot has
//! two copies of its record, written one after the other, each with a checksum. A write that is cut
//! short always leaves one of them whole. So a slot without a whole copy is damaged, and makes the
//! segment useless instead of bringing an older record back; one damaged copy does no harm.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::memory::Memory;
pub use super::memory::SegmentId;
use super::methods::Method;
use super::parameters::{Parameters, cut_to};
use super::record::Record;
use skt_store::codec::checksum;

/// The last byte is the version: of the checksums and the identity's encoding, too.
const MAGIC: [u8; 8] = *b"SKTCKPT4";
/// Bytes of the progress that the application notes between checkpoints: a whole cache line.
const PROGRESS_BYTES: usize = 64;
const PARAMETERS_BYTES: usize = 2048;

/// The properties of a segment that never change. They are stored at the start of a segment in
/// every format, so that a segment of other parameters, whose record is at another offset, is
/// recognized. Fields that another version did not write are empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Identity {
    /// The run it belongs to.
    pub run_id: String,
    /// Checksum of everything that writer and reader must agree on.
    pub fingerprint: u64,
    /// The parameters of the fingerprint for people to read, cut to 2 KiB.
    pub parameters: Parameters,
    /// Logical rank of the run.
    pub rank: usize,
    /// Index of its group.
    pub group: usize,
    /// Logical ranks of its group.
    pub members: Vec<usize>,
    /// Size of the segment in bytes.
    pub bytes: usize,
}

/// Offsets within a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeaderLayout {
    identity_bytes: usize,
    copy_bytes: usize,
}

const MAX_MEMBERS: usize = 255;

/// The newest checkpoint of a segment: its epoch, and the state of the application. `None` if the
/// segment cannot be read, or has none; with method `abft`, which changes its data in place.
pub fn newest_checkpoint(memory: &mut impl Memory, id: SegmentId) -> Option<(u64, Vec<u8>)> {
    let any = HeaderLayout::new("", MAX_MEMBERS, 0);
    let mut bytes = vec![0; 2 * any.bytes()];
    memory.read_header(id, &mut bytes).ok()?;
    let Identity { run_id, parameters, .. } = any.decode_identity(&bytes)?;
    if parameters.get("method")? == Method::Abft.name() {
        return None;
    }
    let number = |name: &str| parameters.get(name)?.parse().ok();
    let header = HeaderLayout::new(&run_id, number("ranks")?, number("bytes of state")?);
    let mut bytes = vec![0; header.bytes()];
    memory.read_header(id, &mut bytes).ok()?;
    let record = header.decode_record(&bytes)?;
    let has_one = record.committed() > 0 && !record.is_hollow();
    has_one.then(|| (record.committed(), record.state().to_vec()))
}

impl HeaderLayout {
    /// A header for groups of up to `ranks` (at most 255) members.
    pub fn new(run_id: &str, ranks: usize, state_capacity_bytes: usize) -> Self {
        let identity = 256 + PARAMETERS_BYTES + 2 * run_id.len() + 12 * ranks.min(MAX_MEMBERS);
        let copy = Record::bytes_with(state_capacity_bytes);
        Self {
            identity_bytes: identity.next_multiple_of(64),
            copy_bytes: copy.next_multiple_of(64),
        }
    }

    /// Size of the header in bytes.
    pub fn bytes(&self) -> usize {
        self.identity_bytes + 4 * self.copy_bytes + PROGRESS_BYTES
    }

    /// The byte range of the progress within the segment.
    pub fn progress(&self) -> Range<usize> {
        let start = self.bytes() - PROGRESS_BYTES;
        start..start + size_of::<u64>()
    }

    /// The two adjacent copies of the record with this sequence number, within the segment.
    pub fn record_slot(&self, sequence: u64) -> [Range<usize>; 2] {
        let start = self.identity_bytes + (sequence % 2) as usize * 2 * self.copy_bytes;
        let middle = start + self.copy_bytes;
        [start..middle, middle..middle + self.copy_bytes]
    }

    /// The order in which the copies of a slot are written: a copy that is whole goes last, so that
    /// one is always whole. `header` has the present contents.
    pub fn order_of_copies(&self, header: &[u8], sequence: u64) -> [Range<usize>; 2] {
        let [first, second] = self.record_slot(sequence);
        let is_whole = |copy: &Range<usize>| Record::decode(&header[copy.clone()]).is_some();
        if is_whole(&first) && !is_whole(&second) { [second, first] } else { [first, second] }
    }

    /// The identity as stored at the start of the segment; its group has at most 255 members.
    pub fn encode_identity(&self, identity: &Identity) -> Vec<u8> {
        let parameters = cut_to(identity.parameters.clone(), PARAMETERS_BYTES);
        let identity = Identity { parameters, ..identity.clone() };
        let text = serde_json::to_vec(&identity).expect("plain data");
        assert!(24 + text.len() <= self.identity_bytes, "identity of {} bytes", text.len());
        let mut bytes = MAGIC.to_vec();
        bytes.extend((text.len() as u64).to_le_bytes());
        bytes.extend(checksum(&text).to_le_bytes());
        bytes.extend(text);
        bytes
    }

    /// Reads the identity; `None` when it is torn, damaged or missing.
    pub fn decode_identity(&self, header: &[u8]) -> Option<Identity> {
        let rest = header.strip_prefix(&MAGIC)?;
        let (len, rest) = rest.split_first_chunk()?;
        let (sum, rest) = rest.split_first_chunk()?;
        let text = rest.get(..usize::try_from(u64::from_le_bytes(*len)).ok()?)?;
        if checksum(text) != u64::from_le_bytes(*sum) {
            return None;
        }
        serde_json::from_slice(text).ok()
    }

    /// Bytes of the identity at the start of a segment, according to its own length field; `None`
    /// when the segment does not begin with an identity of this version.
    pub(crate) fn identity_bytes(segment: &[u8]) -> Option<usize> {
        let (len, _) = segment.strip_prefix(&MAGIC)?.split_first_chunk()?;
        usize::try_from(u64::from_le_bytes(*len)).ok()?.checked_add(24)
    }

    pub(crate) fn is_of_another_version(segment: &[u8]) -> bool {
        segment.starts_with(&MAGIC[..7]) && !segment.starts_with(&MAGIC)
    }

    /// A record as stored in each copy of its slot; its state must fit into the capacity.
    pub fn encode_record(&self, record: &Record) -> Vec<u8> {
        let bytes = record.encode();
        assert!(bytes.len() <= self.copy_bytes, "state of {} bytes", record.state().len());
        bytes
    }

    /// Reads the record in force; `None` when there is none, or when the one in force may be
    /// damaged.
    ///
    /// A process writes the two copies of a slot one after the other. If it dies in between, the
    /// slot still has a whole copy or, if it was written for the first time, a blank one. A slot
    /// with neither is damaged, and its record may be the one in force.
    pub fn decode_record(&self, header: &[u8]) -> Option<Record> {
        let mut newest: Option<Record> = None;
        let mut unread = 0;
        for parity in 0..2 {
            let mut whole = None;
            let mut is_blank = false;
            for copy in self.record_slot(parity) {
                let bytes = header.get(copy)?;
                let record = Record::decode(bytes).filter(|r| r.sequence() % 2 == parity);
                is_blank |= bytes.iter().all(|&byte| byte == 0);
                whole = whole.max(record);
            }
            match whole {
                None if !is_blank => return None,
                None => unread += 1,
                Some(_) => newest = newest.max(whole),
            }
        }
        // Slots are written in turn: if the newest record is the second or a later one, both have a
        // record.
        newest.filter(|r| r.sequence() == 1 || (r.sequence() > 1 && unread == 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::methods::Method;
    use crate::checkpoint::record::StartId;

    /// Records of all kinds: hollow ones, followers of a start, committed, stamped and finished
    /// ones, with many starts and few.
    fn record(sequence: u64) -> Record {
        let mut record = Record::for_new_segment();
        let start = |number| StartId { number, nonce: sequence };
        let left: Vec<StartId> = (sequence..7).map(start).collect();
        record.join(start(1), &left);
        if !sequence.is_multiple_of(2) {
            record.confirm(start(1), Method::SelfCheckpoint, 0, &[]);
            for epoch in 1..=sequence / 2 {
                record.commit(epoch, Vec::new());
                record.stamp(epoch);
            }
            record.commit(sequence / 2 + 1, vec![sequence as u8; 9]);
        }
        if sequence.is_multiple_of(3) && !record.is_hollow() {
            record.stamp(record.committed());
            record.finish(b"result");
        } else {
            (2..2 + sequence).for_each(|number| record.join(start(number), &left));
        }
        (0..sequence).for_each(|_| _ = record.advance());
        record
    }

    fn write(layout: &HeaderLayout, header: &mut [u8], record: &Record) {
        let bytes = layout.encode_record(record);
        for copy in layout.order_of_copies(header, record.sequence()) {
            header[copy.start..][..bytes.len()].copy_from_slice(&bytes);
        }
    }

    /// Calls `look` with all headers that a death during the write of `record` can leave, each with
    /// whether the first copy is whole.
    fn each_torn(
        layout: &HeaderLayout,
        header: &[u8],
        record: &Record,
        mut look: impl FnMut(&[u8], bool),
    ) {
        let bytes = layout.encode_record(record);
        let mut torn = header.to_vec();
        for copy in layout.order_of_copies(header, record.sequence()) {
            for (i, &byte) in bytes.iter().enumerate() {
                look(&torn, false);
                torn[copy.start + i] = byte;
            }
            look(&torn, true);
        }
    }

    #[test]
    fn a_torn_record_leaves_the_one_before_in_force() {
        let layout = HeaderLayout::new("run", 4, 16);
        let mut header = vec![0; layout.bytes()];
        assert_eq!(layout.decode_record(&header), None);
        for sequence in 1..7 {
            let (old, new) = ((sequence > 1).then(|| record(sequence - 1)), record(sequence));
            let mut is_new = false;
            each_torn(&layout, &header, &new, |torn, whole| {
                let found = layout.decode_record(torn);
                // The new one counts from its first whole copy on, or earlier if the last bytes
                // happen to be there already.
                is_new |= whole || found.as_ref() == Some(&new);
                assert_eq!(found, if is_new { Some(new.clone()) } else { old.clone() });
                // A second death: the next writes are torn, too.
                for next in [record(sequence), record(sequence + 1)] {
                    let expected = layout.decode_record(torn).map_or(0, |r| r.sequence());
                    if next.sequence() != expected + 1 {
                        continue;
                    }
                    let mut count = 0;
                    each_torn(&layout, torn, &next, |twice, _| {
                        if count % 7 == 0 {
                            let found = layout.decode_record(twice).map_or(0, |r| r.sequence());
                            assert!(found == expected || found == next.sequence(), "{found}");
                        }
                        count += 1;
                    });
                }
            });
            write(&layout, &mut header, &new);
            assert_eq!(layout.decode_record(&header), Some(new));
        }
    }

    #[test]
    fn a_flipped_bit_never_brings_an_older_record_back() {
        let layout = HeaderLayout::new("run", 4, 16);
        let mut header = vec![0; layout.bytes()];
        for sequence in 1..5 {
            write(&layout, &mut header, &record(sequence));
            let end = layout.encode_record(&record(sequence)).len();
            for at in layout.record_slot(0)[0].start..layout.bytes() {
                for bit in 0..8 {
                    let mut flipped = header.clone();
                    flipped[at] ^= 1 << bit;
                    assert_eq!(layout.decode_record(&flipped), Some(record(sequence)));
                }
            }
            // With both copies damaged there is no record to trust.
            let mut lost = header.clone();
            for copy in layout.record_slot(sequence) {
                lost[copy.start + end / 2] ^= 4;
            }
            assert_eq!(layout.decode_record(&lost), None);
            for copy in layout.record_slot(sequence) {
                lost[copy].fill(0);
            }
            if sequence > 2 {
                assert_eq!(layout.decode_record(&lost), None);
            }
        }
    }

    #[test]
    fn any_flipped_bit_of_an_identity_is_noticed() {
        let layout = HeaderLayout::new("run \"7\"", 4, 16);
        let identity = Identity {
            run_id: "run \"7\"".into(),
            fingerprint: u64::MAX,
            parameters: Parameters::from([("ranks".into(), "4".into())]),
            rank: 3,
            group: 1,
            members: vec![1, 3],
            bytes: 1 << 40,
        };
        let bytes = layout.encode_identity(&identity);
        assert_eq!(layout.decode_identity(&bytes), Some(identity));
        for bit in 0..8 * bytes.len() {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(layout.decode_identity(&flipped), None);
        }
        assert_eq!(layout.decode_identity(&bytes[..bytes.len() - 1]), None);
    }
}
