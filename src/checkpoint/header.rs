//! The header of a segment: who it belongs to, and how far it is.
//!
//! The identity is written once. Everything that changes is one [`Record`],
//! written whole into one of two slots in turn, each with its checksum: a write
//! that death cuts short leaves the record before it in force.

use serde::{Deserialize, Serialize};

use super::parameters::{Parameters, cut_to};

/// Its last byte is the version: another one may sum up and spell the identity in
/// another way.
const MAGIC: [u8; 8] = *b"SKTCKPT2";
/// Starts that a segment remembers to have joined. Only starts of which nobody who
/// was there later has followed any take up room.
const JOINED_MAX: usize = 16;
const RECORD_WORDS: usize = 9 + 2 * JOINED_MAX;
/// Room for the parameters in an identity.
const PARAMETERS_BYTES: usize = 2048;
/// Bits of a record's word of flags.
const HOLLOW: u64 = 1;
const FINISHED: u64 = 2;

/// Checksum of the header's parts: CRC-64/XZ.
pub fn crc64(bytes: &[u8]) -> u64 {
    const POLY: u64 = 0xc96c_5795_d787_0f42;
    const TABLE: [u64; 256] = {
        let mut table = [0; 256];
        let mut i = 0;
        while i < 256 {
            let (mut crc, mut bit) = (i as u64, 0);
            while bit < 8 {
                crc = if crc & 1 == 1 { (crc >> 1) ^ POLY } else { crc >> 1 };
                bit += 1;
            }
            table[i] = crc;
            i += 1;
        }
        table
    };
    !bytes
        .iter()
        .fold(!0, |crc, &byte| TABLE[((crc ^ u64::from(byte)) & 0xff) as usize] ^ (crc >> 8))
}

/// Name of a segment within a run and a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SegmentId {
    /// The logical rank whose data it holds.
    pub rank: usize,
    /// The start of the job that made it.
    pub attempt: u64,
}

/// One start of a job: a number that rises from start to start, and a random
/// one, so that two starts that do not know of each other are told apart.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Attempt {
    /// Rises from start to start.
    pub number: u64,
    /// Random.
    pub nonce: u64,
}

/// What a segment is, for good. It stands at the start of a segment in every format,
/// so that a segment of other parameters, whose record has another place, is known
/// for what it is. What another version has not written is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Identity {
    /// The run it belongs to.
    pub run_id: String,
    /// Checksum of all that must agree between writer and reader.
    pub fingerprint: u64,
    /// The same, as far as it has room, for people to read.
    pub parameters: Parameters,
    /// Logical rank.
    pub rank: usize,
    /// Index of its group.
    pub group: usize,
    /// Ranks of its group.
    pub members: Vec<usize>,
    /// Size of the segment.
    pub bytes: usize,
}

/// How far a segment is.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Record {
    /// Counts the records; the higher one is in force.
    pub sequence: u64,
    /// The start of the job whose decisions this segment has followed last.
    pub lineage: Attempt,
    /// The starts of the job since then that have read this segment, in their order;
    /// of very many the latest.
    pub joined: Vec<Attempt>,
    /// Newest epoch whose commit this rank has seen, COMMIT(e).
    pub commit: u64,
    /// Epoch that the settled copy and parities are known to hold.
    pub stamp: u64,
    /// Epoch that is being written over the settled copy (method `single`).
    pub updating: u64,
    /// Set while the segment stands for a lost one and is not rebuilt yet.
    pub hollow: bool,
    /// Set when the run has come to its end: there is nothing to go on with.
    pub finished: bool,
    /// The application's state at epoch `commit`; its result when `finished`.
    pub state: Vec<u8>,
}

impl Record {
    /// Takes part in this start, without following it yet.
    pub fn join(&mut self, attempt: Attempt) {
        self.joined.push(attempt);
        let surplus = self.joined.len().saturating_sub(JOINED_MAX);
        self.joined.drain(..surplus);
    }

    /// Follows the decisions of this start from here on.
    pub fn follow(&mut self, attempt: Attempt) {
        self.lineage = attempt;
        self.joined.clear();
    }
}

/// Offsets within a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeaderLayout {
    identity_bytes: usize,
    slot_bytes: usize,
}

impl HeaderLayout {
    /// A header for groups of up to `ranks` (at most 255) members.
    pub fn new(run_id: &str, ranks: usize, state_capacity_bytes: usize) -> Self {
        let identity = 256 + PARAMETERS_BYTES + 2 * run_id.len() + 12 * ranks.min(255);
        let slot = 8 * RECORD_WORDS + state_capacity_bytes;
        Self {
            identity_bytes: identity.next_multiple_of(64),
            slot_bytes: slot.next_multiple_of(64),
        }
    }

    /// Size of the header.
    pub fn bytes(&self) -> usize {
        self.identity_bytes + 2 * self.slot_bytes
    }

    /// Where the record of this sequence number goes.
    pub fn slot(&self, sequence: u64) -> usize {
        self.identity_bytes + (sequence % 2) as usize * self.slot_bytes
    }

    /// The identity as it stands at the start of the segment.
    ///
    /// # Panics
    /// When it does not fit: a group of more than 255 members.
    pub fn encode_identity(&self, identity: &Identity) -> Vec<u8> {
        let parameters = cut_to(identity.parameters.clone(), PARAMETERS_BYTES);
        let identity = Identity { parameters, ..identity.clone() };
        let text = serde_json::to_vec(&identity).expect("plain data");
        assert!(24 + text.len() <= self.identity_bytes, "identity of {} bytes", text.len());
        let mut bytes = MAGIC.to_vec();
        bytes.extend((text.len() as u64).to_le_bytes());
        bytes.extend(crc64(&text).to_le_bytes());
        bytes.extend(text);
        bytes
    }

    /// Reads the identity; `None` when it is not whole.
    pub fn decode_identity(&self, header: &[u8]) -> Option<Identity> {
        let rest = header.strip_prefix(&MAGIC)?;
        let (len, rest) = rest.split_first_chunk()?;
        let (crc, rest) = rest.split_first_chunk()?;
        let text = rest.get(..usize::try_from(u64::from_le_bytes(*len)).ok()?)?;
        if crc64(text) != u64::from_le_bytes(*crc) {
            return None;
        }
        serde_json::from_slice(text).ok()
    }

    /// Bytes of the identity at the start of a segment, by what it says of itself.
    pub fn identity_bytes(segment: &[u8]) -> Option<usize> {
        let (len, _) = segment.strip_prefix(&MAGIC)?.split_first_chunk()?;
        usize::try_from(u64::from_le_bytes(*len)).ok()?.checked_add(24)
    }

    /// Whether a segment begins as another version of this program writes it.
    pub fn is_of_another_version(segment: &[u8]) -> bool {
        segment.starts_with(&MAGIC[..7]) && !segment.starts_with(&MAGIC)
    }

    /// A record as it stands in its slot.
    ///
    /// # Panics
    /// When its state is larger than the capacity.
    pub fn encode_record(&self, record: &Record) -> Vec<u8> {
        let mut words = vec![
            record.sequence,
            record.lineage.number,
            record.lineage.nonce,
            record.commit,
            record.stamp,
            record.updating,
            HOLLOW * u64::from(record.hollow) + FINISHED * u64::from(record.finished),
            record.state.len() as u64,
        ];
        words.extend(record.joined.iter().flat_map(|start| [start.number, start.nonce]));
        assert!(words.len() < RECORD_WORDS, "{} starts joined", record.joined.len());
        words.resize(RECORD_WORDS - 1, 0);
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.extend(&record.state);
        // Last, so that a record is in force with its last bytes, not before.
        bytes.extend(crc64(&bytes).to_le_bytes());
        assert!(bytes.len() <= self.slot_bytes, "state of {} bytes", record.state.len());
        bytes
    }

    /// Reads one slot; `None` when it is empty or torn.
    fn decode_slot(&self, slot: &[u8]) -> Option<Record> {
        let mut words = [0u64; RECORD_WORDS - 1];
        for (word, bytes) in words.iter_mut().zip(slot.chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        }
        let fixed_bytes = 8 * words.len();
        let end = fixed_bytes.checked_add(usize::try_from(words[7]).ok()?)?;
        let (body, rest) = (slot.get(..end)?, &slot[end..]);
        if crc64(body) != u64::from_le_bytes(*rest.first_chunk()?) {
            return None;
        }
        Some(Record {
            sequence: words[0],
            lineage: Attempt { number: words[1], nonce: words[2] },
            joined: words[8..]
                .chunks_exact(2)
                .map(|words| Attempt { number: words[0], nonce: words[1] })
                .filter(|start| *start != Attempt::default())
                .collect(),
            commit: words[3],
            stamp: words[4],
            updating: words[5],
            hollow: words[6] & HOLLOW != 0,
            finished: words[6] & FINISHED != 0,
            state: body[fixed_bytes..].to_vec(),
        })
    }

    /// Reads the record in force; `None` when neither slot is whole.
    pub fn decode_record(&self, header: &[u8]) -> Option<Record> {
        (0..2)
            .filter_map(|parity| {
                let start = self.slot(parity);
                let record = self.decode_slot(header.get(start..start + self.slot_bytes)?)?;
                (record.sequence > 0 && record.sequence % 2 == parity).then_some(record)
            })
            .max_by_key(|record| record.sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc_is_the_standard_one() {
        assert_eq!(crc64(b"123456789"), 0x995d_c9bb_df19_39fa);
    }

    fn record(sequence: u64) -> Record {
        Record {
            sequence,
            joined: vec![Attempt { number: sequence, nonce: 1 }; sequence as usize],
            commit: sequence / 2,
            hollow: sequence.is_multiple_of(2),
            finished: sequence.is_multiple_of(3),
            state: vec![sequence as u8; 9],
            ..Record::default()
        }
    }

    #[test]
    fn a_torn_record_leaves_the_one_before_in_force() {
        let layout = HeaderLayout::new("run", 4, 16);
        let mut header = vec![0; layout.bytes()];
        assert_eq!(layout.decode_record(&header), None);
        for sequence in 1..9 {
            let bytes = layout.encode_record(&record(sequence));
            for written in 0..bytes.len() {
                let mut torn = header.clone();
                torn[layout.slot(sequence)..][..written].copy_from_slice(&bytes[..written]);
                let found = layout.decode_record(&torn);
                let old = (sequence > 1).then(|| record(sequence - 1));
                // The last bytes may happen to be there already.
                let whole = torn[layout.slot(sequence)..].starts_with(&bytes);
                assert_eq!(found, if whole { Some(record(sequence)) } else { old });
            }
            header[layout.slot(sequence)..][..bytes.len()].copy_from_slice(&bytes);
            assert_eq!(layout.decode_record(&header), Some(record(sequence)));
        }
    }

    #[test]
    fn of_very_many_starts_the_latest_are_remembered() {
        let mut record = Record::default();
        let starts: Vec<Attempt> = (1..40).map(|number| Attempt { number, nonce: 7 }).collect();
        starts.iter().for_each(|&start| record.join(start));
        assert_eq!(record.joined, starts[39 - JOINED_MAX..]);
        record.sequence = 1;
        let layout = HeaderLayout::new("run", 4, 16);
        let mut header = vec![0; layout.bytes()];
        let bytes = layout.encode_record(&record);
        header[layout.slot(1)..][..bytes.len()].copy_from_slice(&bytes);
        assert_eq!(layout.decode_record(&header), Some(record.clone()));
        record.follow(starts[3]);
        assert_eq!((record.lineage, record.joined), (starts[3], vec![]));
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
