//! States that differ only in what no restart may look at.
//!
//! The protocol says of each part of each segment whether a restart relies on it.
//! What it does not rely on is replaced by garbage here, so that all states that
//! differ in nothing else become one, their *essence*. A restart from the essence
//! that comes to what is foretold, down to the last byte of each region, and can
//! bear the next losses, has taken no byte of the garbage for data; so it is a
//! restart from each of these states, and one that is harder to pass, for in a
//! state as a death leaves it the stale parts look much like the true ones.
//!
//! `crash_exhaustive` makes the restart from every state as it is, besides, for
//! groups of 2 and 3.

use std::ops::Range;

use skt_checkpoint::checkpoint::header::HeaderLayout;
use skt_checkpoint::checkpoint::layout::{RegionParts, SegmentLayout};
use skt_checkpoint::checkpoint::methods::Method;
use skt_checkpoint::checkpoint::record::Record;

use super::cluster::{Cluster, Foretold, Setup};

/// What counts as garbage in a segment.
struct Eraser<'a> {
    segment: &'a mut [u8],
    rank: usize,
}

impl Eraser<'_> {
    /// Differs from place to place and from rank to rank, so that sums of garbage
    /// do not vanish.
    fn erase(&mut self, bytes: Range<usize>) {
        for at in bytes {
            let mixed = (at * 64 + self.rank + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            self.segment[at] = (mixed >> 40) as u8;
        }
    }
}

/// The state with garbage in all that a restart must not rely on.
pub fn essence(setup: &Setup, state: &Cluster, foretold: &Foretold) -> Cluster {
    assert_eq!(setup.method, Method::SelfCheckpoint, "others rely on other parts");
    let epoch = match foretold {
        Foretold::Recovered(epoch, _) => Some(*epoch),
        // No data is looked at.
        Foretold::Fresh | Foretold::Unrecoverable(..) => None,
        Foretold::Finished(_) => unreachable!("the book is that of a run under way"),
    };
    let header = setup.header();
    let layout = setup.layout();
    let mut essence = state.clone();
    for &node in &state.placement {
        for (id, words) in &mut essence.nodes[node].segments {
            let segment: &mut [u8] = bytemuck::cast_slice_mut(words);
            reduce(segment, id.rank, epoch, &header, &layout);
        }
    }
    essence
}

fn reduce(
    segment: &mut [u8],
    rank: usize,
    epoch: Option<u64>,
    header: &HeaderLayout,
    layout: &SegmentLayout,
) {
    let identity = header.decode_identity(segment);
    let record = header.decode_record(segment);
    let bytes = segment.len();
    let mut eraser = Eraser { segment, rank };
    let (Some(_), Some(record)) = (identity, record) else {
        // Nobody's.
        return eraser.erase(0..bytes);
    };
    // Whatever a torn write has left in the slot that the next record goes to, and in
    // the second copy of the record in force.
    let torn = header.order_of_copies(eraser.segment, record.sequence() + 1)[0].clone();
    eraser.erase(torn);
    eraser.erase(header.slot(record.sequence())[1].clone());
    match epoch {
        Some(epoch) if !record.is_hollow() => {
            for region in &layout.regions {
                reduce_region(&mut eraser, region, &record, epoch);
            }
        }
        _ => eraser.erase(layout.header_bytes..bytes),
    }
}

fn reduce_region(eraser: &mut Eraser, parts: &RegionParts, record: &Record, epoch: u64) {
    let other = (epoch + 1) as usize % 2;
    let copy = if record.stamped() == epoch {
        // From (B, C).
        parts.a
    } else if record.stamped() + 1 == epoch {
        // From (A, D).
        parts.b[0]
    } else {
        return;
    };
    for part in [copy, parts.parity[other], parts.sums[other]] {
        eraser.erase(part.range());
    }
}
