//! The format of an image within its slot.
//!
//! ```text
//! seal   magic | bytes of the seal's text | bytes of the body | checksum of the body
//!              | checksum of these and the text
//!        text: identity, and the record in force, each as it stands in a segment
//! body   for each region, each from a page boundary on: the copy, its parities, their checksums;
//!        with method `abft` the beginning of the region itself
//! ```
//!
//! The seal is written when the body is safe, so an image with a whole seal is complete. A body is
//! verified by the checksums in it, as in a segment; with method `abft`, which has none, by the
//! checksum in the seal.

use std::io;
use std::ops::Range;

use super::super::header::{HeaderLayout, Identity};
use super::super::methods::Method;
use super::super::record::{Record, StartId};
use super::disk::{Generation, ImageFile};
use skt_store::codec::checksum;
use skt_store::layout::SegmentLayout;

/// Begins every image. The last byte is the version.
const MAGIC: [u8; 8] = *b"SKTIMAG2";
/// Begins a file that has, in place of an image, the note of a checkpoint that a user has chosen.
const CHOICE_MAGIC: [u8; 8] = *b"SKTCHSN1";
/// Bytes before the seal's text.
const FIXED_BYTES: usize = 40;
/// The longest text of a seal that is read: no group and no state makes a longer one.
const MAX_TEXT_BYTES: usize = 1 << 24;
/// Areas in an image begin on a multiple of this many bytes.
pub const IMAGE_PAGE_BYTES: usize = 4096;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct ImageLayout {
    /// Byte ranges of the segment, each with its offset in the body.
    pub ranges: Vec<(Range<usize>, u64)>,
    pub body_bytes: u64,
}

impl ImageLayout {
    /// The copy, the parities and the checksums of `epoch`; with method `abft`, which has none, the
    /// first `abft_bytes` of each region.
    pub(crate) fn new(
        segment: &SegmentLayout,
        method: Method,
        epoch: u64,
        abft_bytes: usize,
    ) -> Self {
        let (copy, set) = method.settled(epoch);
        let (mut ranges, mut end) = (Vec::new(), 0u64);
        for region in &segment.regions {
            let a = region.a.range();
            let head = a.start..a.start + a.len().min(abft_bytes);
            let of_region = match method {
                Method::Abft => vec![head],
                _ => [region.b[copy], region.parity[set], region.sums[set]]
                    .map(|area| area.range())
                    .to_vec(),
            };
            for bytes in of_region {
                let next = end + bytes.len() as u64;
                ranges.push((bytes, end));
                end = next.next_multiple_of(IMAGE_PAGE_BYTES as u64);
            }
        }
        Self { ranges, body_bytes: end }
    }

    pub(crate) fn image_bytes(&self, header_bytes: usize) -> u64 {
        let seal = FIXED_BYTES + header_bytes;
        seal.next_multiple_of(IMAGE_PAGE_BYTES) as u64 + self.body_bytes
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct Seal {
    pub identity: Identity,
    pub record: Record,
    pub body_at: u64,
    pub body_bytes: u64,
    /// Checksum of the body, if it contains no checksums itself; else 0.
    pub body_sum: u64,
}

/// A seal as stored in the file, in whole pages.
pub(in super::super) fn encode_seal(
    header: &HeaderLayout,
    identity: &Identity,
    record: &Record,
    body_bytes: u64,
    body_sum: u64,
) -> Vec<u8> {
    let identity = header.encode_identity(identity);
    let mut text = (identity.len() as u64).to_le_bytes().to_vec();
    text.extend(identity);
    text.extend(header.encode_record(record));
    let mut bytes = MAGIC.to_vec();
    bytes.extend((text.len() as u64).to_le_bytes());
    bytes.extend(body_bytes.to_le_bytes());
    bytes.extend(body_sum.to_le_bytes());
    let sum = checksum(&[&bytes[..], &text[..]].concat());
    bytes.extend(sum.to_le_bytes());
    assert_eq!(bytes.len(), FIXED_BYTES);
    bytes.extend(text);
    bytes.resize(bytes.len().next_multiple_of(IMAGE_PAGE_BYTES), 0);
    bytes
}

pub(in super::super) fn encode_choice(chosen: Generation) -> Vec<u8> {
    let Generation { start: StartId { number, nonce }, epoch } = chosen;
    let words = [u64::from_le_bytes(CHOICE_MAGIC), number, nonce, epoch];
    let mut bytes = words.map(u64::to_le_bytes).concat();
    bytes.extend(checksum(&bytes).to_le_bytes());
    bytes
}

#[derive(Debug)]
pub(in super::super) enum SealState {
    Sealed(Box<Seal>),
    /// The note of a chosen checkpoint, and no image.
    Choice(Generation),
    OtherVersion,
    Nothing,
}

pub(in super::super) fn read_seal(
    header: &HeaderLayout,
    file: &mut dyn ImageFile,
) -> io::Result<SealState> {
    let bytes = file.bytes()?;
    let mut fixed = [0; FIXED_BYTES];
    if bytes < FIXED_BYTES as u64 {
        return Ok(SealState::Nothing);
    }
    file.read_at(0, &mut fixed)?;
    let word = |at: usize| {
        let bytes = fixed[at..at + 8].try_into().expect("eight bytes");
        u64::from_le_bytes(bytes)
    };
    if fixed.starts_with(&CHOICE_MAGIC) && checksum(&fixed[..32]) == word(32) {
        let start = StartId { number: word(8), nonce: word(16) };
        return Ok(SealState::Choice(Generation { start, epoch: word(24) }));
    }
    if !fixed.starts_with(&MAGIC) {
        let is_other = fixed.starts_with(&MAGIC[..MAGIC.len() - 1]);
        return Ok(if is_other { SealState::OtherVersion } else { SealState::Nothing });
    }
    let (text_bytes, body_bytes, body_sum, sum) = (word(8), word(16), word(24), word(32));
    let end = FIXED_BYTES as u64 + text_bytes.min(MAX_TEXT_BYTES as u64);
    if text_bytes > MAX_TEXT_BYTES as u64 || end > bytes {
        return Ok(SealState::Nothing);
    }
    let mut text = vec![0; text_bytes as usize];
    file.read_at(FIXED_BYTES as u64, &mut text)?;
    if checksum(&[&fixed[..32], &text[..]].concat()) != sum {
        return Ok(SealState::Nothing);
    }
    let body_at = end.next_multiple_of(IMAGE_PAGE_BYTES as u64);
    let seal = seal_of(header, &text).map(|(identity, record)| Seal {
        identity,
        record,
        body_at,
        body_bytes,
        body_sum,
    });
    // The slot was made for the longest seal, so a sealed image fits.
    let is_whole = |seal: &Seal| body_at + seal.body_bytes <= bytes;
    Ok(match seal.filter(is_whole) {
        Some(seal) => SealState::Sealed(Box::new(seal)),
        None => SealState::Nothing,
    })
}

fn seal_of(header: &HeaderLayout, text: &[u8]) -> Option<(Identity, Record)> {
    let (len, rest) = text.split_first_chunk()?;
    let len = usize::try_from(u64::from_le_bytes(*len)).ok()?;
    let (identity, record) = (rest.get(..len)?, rest.get(len..)?);
    Some((header.decode_identity(identity)?, Record::decode(record)?))
}
