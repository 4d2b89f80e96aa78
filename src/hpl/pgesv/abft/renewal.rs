//! The checksums of a finished group are summed anew.
//!
//! As the elimination has made them, they are checksums of U but for L^-1 times rounding errors. U
//! of finished columns that is decoded from them would differ by as much from the U that the
//! rows below have been eliminated with. What is left over in them below the diagonal makes up for
//! that (`left_over`), but only until the next panel is applied to these rows. So there are new
//! sums by then, of U as it is:
//!
//! ```text
//! cut end        a group ends before this panel. The new sums gather beside A, where the old
//!                checksums stay, and pass beside the product of panel `end`
//!                all of them have passed this rank               SUMMED(end)
//!                only then does it enter T of panel `end`
//! cut end + 1    they take the place of the old ones in A
//! ```
//!
//! A rank that has not said SUMMED(end) cannot go beyond the cut `end`, and takes all others back to
//! it: nobody has passed T, so all have the old checksums there. At the cut `end + 1` all have
//! the new ones.

use super::super::SolveError;
use super::super::local::Local;
use super::groups::{is_group_end, of_group};
use super::memory::{Journal, Places, State};
use super::relay::{Relay, Sum};
use super::weights::Weights;
use crate::hpl::comm::Comm;
use crate::hpl::swap;

/// Begins to sum the checksums anew of the group that ends before panel `end`. No element may
/// change by more than rounding, in this `unit` on a checksum rank.
///
/// # Errors
/// As [`Relay::progress`].
pub(super) fn begin<C: Comm>(
    local: &Local<C>,
    journal: &Journal,
    relay: &mut Relay<C>,
    weights: &Weights,
    end: usize,
    unit: f64,
) -> Result<(), SolveError> {
    journal.set_summed(None)?;
    let finished = local.params.columns_before(end);
    for s in 0..weights.checksums() {
        let plain = Sum::new("renew", weights.terms(s), local.grid.q + s, finished);
        relay.begin(Sum { unit, is_beside_a: true, ..plain }, of_group(local, end));
    }
    relay.progress()
}

/// Says that the sums of the group that ends before panel `end`, if one does, have passed this
/// rank.
///
/// # Errors
/// When the process is to go no further.
pub(super) fn have_passed<C: Comm>(
    local: &Local<C>,
    journal: &Journal,
    end: usize,
) -> Result<(), SolveError> {
    if is_group_end(end, local.grid.q) { journal.set_summed(Some(end)) } else { Ok(()) }
}

/// Whether this rank has exchanged the rows of a panel before which a group ends, of Q = `q`, whose
/// sums have not all passed it.
pub(super) fn is_under_way(journal: &Journal, q: usize) -> bool {
    match State::of_word(journal.state_word()).0 {
        State::Exchanged(end) => is_group_end(end, q) && journal.summed() != Some(end),
        _ => false,
    }
}

/// At the cut before panel `cut`, which no rank leaves meanwhile, the new sums of the group
/// that ended one panel before take their place in A, unless they have. After a death midway it
/// is done again.
///
/// # Errors
/// When the process is to go no further.
pub(super) fn store<C: Comm>(
    local: &Local<C>,
    places: &Places,
    journal: &Journal,
    cut: usize,
) -> Result<(), SolveError> {
    let Some(end) = journal.summed().filter(|end| end + 1 == cut) else { return Ok(()) };
    if local.grid.is_checksum() {
        journal.step("store sums", end)?;
        let (rows, cols) = of_group(local, end);
        // SAFETY: the only view of the sums, and nobody else is on A.
        let (sums, a) = unsafe { (places.sums(cols.len()), places.a.block(rows.clone(), cols)) };
        swap::stream_rows(local.team, sums.into_ref(), &rows.collect::<Vec<_>>(), a);
    }
    // The next sums go to the same place, and an image of this cut is without it.
    journal.set_summed(None)
}
