//! States that differ only in what no restart may read.
//!
//! The protocol specifies for each area of each segment whether a restart relies on it. Here
//! everything else is replaced by garbage, so that all states that differ in nothing else become
//! one, their *essence*. If a restart from the essence comes to what is predicted, down to the last
//! byte of each region, and survives the next losses, it has taken no byte of the garbage for data.
//! So it represents a restart from each of these states. It is also harder to pass, because in a
//! state that a death leaves the stale areas look much like the valid ones.
//!
//! For groups of 2 and 3 `crash_exhaustive` also makes the restart from every unchanged state.

use std::ops::Range;

use skt_checkpoint::checkpoint::header::HeaderLayout;
use skt_checkpoint::checkpoint::methods::Method;
use skt_checkpoint::checkpoint::record::Record;
use skt_store::layout::{RegionAreas, SegmentLayout};

use super::cluster::{Cluster, Prediction, Setup};

struct Eraser<'a> {
    segment: &'a mut [u8],
    rank: usize,
}

impl Eraser<'_> {
    /// Fills bytes with garbage that differs from position to position and from rank to rank, so
    /// that sums of garbage do not vanish.
    fn erase(&mut self, bytes: Range<usize>) {
        for at in bytes {
            let mixed = (at * 64 + self.rank + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            self.segment[at] = (mixed >> 40) as u8;
        }
    }
}

/// The state, with garbage in everything that a restart must not rely on.
pub fn essence(setup: &Setup, state: &Cluster, predicted: &Prediction) -> Cluster {
    assert_eq!(setup.method, Method::SelfCheckpoint, "others rely on other areas");
    let epoch = match predicted {
        Prediction::Recovered(epoch, _) => Some(*epoch),
        // No data is read.
        Prediction::Fresh | Prediction::Unrecoverable(..) => None,
        Prediction::Finished(_) => unreachable!("the book is that of a run under way"),
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
        // The segment belongs to no run.
        return eraser.erase(0..bytes);
    };
    // What a torn write may have left in the slot of the next record, and in the second copy of the
    // record in force.
    let torn = header.order_of_copies(eraser.segment, record.sequence() + 1)[0].clone();
    eraser.erase(torn);
    eraser.erase(header.record_slot(record.sequence())[1].clone());
    match epoch {
        Some(epoch) if !record.is_hollow() => {
            for region in &layout.regions {
                reduce_region(&mut eraser, region, &record, epoch);
            }
        }
        _ => eraser.erase(layout.header_bytes..bytes),
    }
}

fn reduce_region(eraser: &mut Eraser, areas: &RegionAreas, record: &Record, epoch: u64) {
    let other = (epoch + 1) as usize % 2;
    let copy = if record.stamped() == epoch {
        // A restart reads (B, C).
        areas.a
    } else if record.stamped() + 1 == epoch {
        // A restart reads (A, D).
        areas.b[0]
    } else {
        return;
    };
    for area in [copy, areas.parity[other], areas.sums[other]] {
        eraser.erase(area.range());
    }
}
