//! Recomputes the checksums of a finished group of columns.
//!
//! The checksums that the elimination leaves are sums of U only up to rounding errors times L^-1.
//! If U is decoded from them, it differs by as much from the U with which the rows below have been
//! eliminated. What the elimination leaves below the diagonal compensates for the difference
//! (`left_over`), but only until the next panel is applied to these rows. So before that step ends,
//! new sums of the actual U are ready:
//!
//! ```text
//! cut end        a group ends before this panel. During the product of panel `end` the new sums
//!                are collected outside A, which keeps the old checksums
//!                when all new sums have passed a rank, it writes SUMMED(end),
//!                and then enters T of panel `end`
//! cut end + 1    the new sums replace the old ones in A
//! ```
//!
//! If any rank has not written SUMMED(end), no rank has passed T, so all ranks have the old
//! checksums, and a restart takes all of them back to the cut `end`. At the cut `end + 1` all have
//! the new sums.

use super::super::SolveError;
use super::super::local::Local;
use super::groups::{is_group_end, parts_of_group};
use super::memory::{Journal, MemoryState, Places};
use super::relay::{Relay, Sum};
use super::weights::Weights;
use crate::swap;

/// Begins to recompute the checksums of the group that ends before panel `end`. No element may
/// change by more than rounding, which on a checksum rank has this `unit`.
pub(super) fn begin(
    local: &Local,
    journal: &Journal,
    relay: &mut Relay,
    weights: &Weights,
    end: usize,
    unit: f64,
) -> Result<(), SolveError> {
    journal.set_summed(None)?;
    let finished = local.params.columns_before(end);
    for s in 0..weights.checksums() {
        let plain = Sum::new("renew", weights.terms(s), local.grid.q + s, finished);
        relay.begin(Sum { unit, is_outside_a: true, ..plain }, parts_of_group(local, end));
    }
    relay.progress()
}

/// Writes that the sums of the group that ends before `end`, if any, have passed this rank.
pub(super) fn have_passed(local: &Local, journal: &Journal, end: usize) -> Result<(), SolveError> {
    if is_group_end(end, local.grid.q) { journal.set_summed(Some(end)) } else { Ok(()) }
}

/// Whether this rank has exchanged the rows of a panel before which a group of Q = `q` panels ends,
/// and not all sums of the group have passed it.
pub(super) fn is_under_way(journal: &Journal, q: usize) -> bool {
    match MemoryState::from_word(journal.state_word()).0 {
        MemoryState::Exchanged(end) => is_group_end(end, q) && journal.summed() != Some(end),
        _ => false,
    }
}

/// At the cut before panel `cut`, which no rank leaves before: stores the new sums of the group
/// that ended one panel before in A, unless that is done. Repeated after a death in between.
pub(super) fn store(
    local: &Local,
    places: &Places,
    journal: &Journal,
    cut: usize,
) -> Result<(), SolveError> {
    let Some(end) = journal.summed().filter(|end| end + 1 == cut) else { return Ok(()) };
    if local.grid.is_checksum() {
        journal.before("store sums", end)?;
        let (rows, cols) = parts_of_group(local, end);
        // SAFETY: the only view of the sums, and no other thread uses A.
        let (sums, a) = unsafe { (places.sums(cols.len()), places.a.block(rows.clone(), cols)) };
        swap::stream_rows(local.team, sums.into_ref(), &rows.collect::<Vec<_>>(), a);
    }
    // The next sums use the same memory, and an image of this cut does not have it.
    journal.set_summed(None)
}
