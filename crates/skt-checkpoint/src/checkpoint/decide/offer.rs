//! What processes bring to the agreement, and which of the segments count.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use serde::{Deserialize, Serialize};

use super::found::{Content, FoundSegment};
use crate::checkpoint::header::SegmentId;
use crate::checkpoint::level::FoundImage;
use crate::checkpoint::record::{Record, StartId};
use crate::checkpoint::refusal::Refusal;

pub(crate) type Holder = (usize, SegmentId);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Obstacle {
    pub why: String,
    /// Whether it ends without intervention.
    pub passes: bool,
}

impl Obstacle {
    /// An obstacle that passes is reported only if there is none that stays.
    pub(crate) fn refusal(held: impl IntoIterator<Item = Option<Self>>) -> Option<Refusal> {
        let all = held.into_iter().enumerate().filter_map(|(process, held)| Some((process, held?)));
        let (process, Self { why, passes }) = all.min_by_key(|(_, held)| held.passes)?;
        Some(Refusal::Held { process, why, passes })
    }
}

impl From<io::Error> for Obstacle {
    fn from(error: io::Error) -> Self {
        let passes = error.kind() == io::ErrorKind::WouldBlock;
        Self { why: error.to_string(), passes }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Offer {
    pub host: String,
    pub domain: String,
    /// Node of the process: processes of one node find the same segments.
    pub node: String,
    /// The rank that the process had before a loss that its job survived.
    pub rank_in_run: Option<usize>,
    pub held: Option<Obstacle>,
    pub segments: Vec<FoundSegment>,
    /// The images that the process sees, by level.
    pub images: Vec<Vec<FoundImage>>,
    /// For each level, why the process does not see everything there, if the disk fails.
    pub failures: Vec<Option<String>>,
}

pub(super) fn contents(offers: &[Offer]) -> impl Iterator<Item = &Content> {
    offers.iter().flat_map(|offer| &offer.segments).filter_map(|segment| segment.content.as_ref())
}

/// The number of distinct segments; all processes of a node find the same ones.
pub(super) fn segments(offers: &[Offer]) -> usize {
    let all = offers.iter().flat_map(|offer| offer.segments.iter().map(move |it| (offer, it)));
    let known = all.filter(|(_, segment)| segment.content.is_some());
    known.map(|(offer, segment)| (&offer.node, segment.id)).collect::<BTreeSet<_>>().len()
}

/// Whether the newest images are known to have rotted in part: a start that resumed from them has
/// recorded it. They survive fewer losses, like images that are incomplete.
pub(super) fn has_rotten_images(offers: &[Offer]) -> bool {
    let base = lineage(offers);
    contents(offers).any(|content| counts(content, base) && content.record.has_rotten_images())
}

pub(super) fn holder(offers: &[Offer], content: &Content) -> Holder {
    let of = |(process, offer): (usize, &Offer)| {
        let is_it = |segment: &&FoundSegment| segment.content.as_ref() == Some(content);
        offer.segments.iter().find(is_it).map(|segment| (process, segment.id))
    };
    offers.iter().enumerate().find_map(of).expect("it was found")
}

/// Each of `found` is the rank of a segment or an image, and its differences from this start.
pub(in super::super) fn refuse_other_shapes<'a, F: Iterator<Item = (usize, &'a Option<String>)>>(
    offers: &'a [Offer],
    found: impl Fn(&'a Offer) -> F,
) -> Result<(), Refusal> {
    for (process, offer) in offers.iter().enumerate() {
        for (rank, other) in found(offer) {
            if let Some(differences) = other.clone() {
                return Err(Refusal::OtherShape { process, rank, differences });
            }
        }
    }
    Ok(())
}

/// The lineage to resume: the latest start that any segment has followed. Of two starts that never
/// knew of each other, the one with the newer epoch.
pub(super) fn lineage(offers: &[Offer]) -> StartId {
    let records = contents(offers).map(|content| &content.record);
    let newest = |r: &&Record| (r.lineage().number, r.committed(), r.lineage().nonce);
    records.max_by_key(newest).map_or(StartId::default(), Record::lineage)
}

pub(super) fn newest_start_of_segments(offers: &[Offer]) -> u64 {
    let all = |Content { record: r, .. }: &_| {
        r.joined().iter().chain([&r.lineage()]).map(|a| a.number).max()
    };
    contents(offers).filter_map(all).max().unwrap_or(0)
}

/// The starts that a segment out of reach may name as its lineage once all segments that count
/// follow a new start: those that the segments list so far and, if some rank `is_missed` (has no
/// segment that counts), the present lineage and the starts that other segments have only joined,
/// as the segment of that rank may have followed any of them.
pub(super) fn left(offers: &[Offer], base: StartId, is_missed: bool) -> Vec<StartId> {
    let mut left: Vec<StartId> = Vec::new();
    for Content { record, .. } in contents(offers).filter(|content| counts(content, base)) {
        left.extend(record.left());
        if is_missed {
            left.extend(record.joined());
            left.push(record.lineage());
        }
    }
    left.retain(|start| *start != StartId::default());
    left.sort_unstable();
    left.dedup();
    left
}

/// Whether a segment is not stale, for the lineage `base`.
pub(super) fn counts(Content { record, .. }: &Content, base: StartId) -> bool {
    record.lineage() == base || record.joined().contains(&base)
}

pub(super) fn current_segments(offers: &[Offer], base: StartId) -> BTreeMap<usize, &Content> {
    let mut best: BTreeMap<usize, &Content> = BTreeMap::new();
    for content in contents(offers) {
        if !counts(content, base) {
            continue;
        }
        let order = |Content { record: r, state, .. }: &Content| {
            (!r.is_hollow(), r.committed(), r.stamped(), r.clone(), *state)
        };
        let entry = best.entry(content.rank).or_insert(content);
        if order(content) > order(entry) {
            *entry = content;
        }
    }
    best
}

pub(super) fn newest_start_of_images(offers: &[Offer]) -> u64 {
    let all = offers.iter().flat_map(|offer| offer.images.iter().flatten());
    all.map(|image| image.id.generation.start.number).max().unwrap_or(0)
}
