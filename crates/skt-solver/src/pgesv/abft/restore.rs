//! Brings a rank to a cut: from its own memory or, where that is lost, from the other ranks of its
//! process row.
//!
//! Each function can be repeated from any point at which a death has left it: a word is written
//! once it is true, and not before.

use std::ops::Range;

use super::super::SolveError;
use super::super::local::Local;
use super::super::pace::Pace;
use super::super::panel::Layout;
use super::super::product::{multiply_part, try_each};
use super::groups::{StepColumns, columns_of, columns_of_group, first_of_last_group};
use super::memory::{
    Decoded, Journal, MemoryState, PUT_BACK, PartState, Places, REBUILD, Recorded, TAKE_BACK,
};
use super::relay::{Relay, Sum};
use super::renewal;
use super::standing::Action;
use super::weights::Weights;
use crate::blas::MatRef;
use crate::blas::view::SharedMat;
use crate::update::{self, Operands};
use crate::{swap, work};

pub(super) struct Step<'p> {
    pub layout: Layout,
    pub columns: StepColumns,
    pub panel: Operands<'p>,
}

impl<'p> Step<'p> {
    /// Safety: while it is in use, no panel is received into or factored in the buffer of this one.
    pub(crate) unsafe fn new(local: &Local, places: &'p Places, k: usize) -> Self {
        let layout = local.layout(k);
        // SAFETY: the caller's promise.
        let message = unsafe { places.panel(k) };
        assert_eq!(layout.first_column(message), layout.j, "the panel of this step");
        Self { layout, columns: StepColumns::new(local, k), panel: layout.operands(message) }
    }

    /// U of the columns of the next panel, or of the rest.
    /// Safety: while it is in use, no rows are exchanged.
    pub(crate) unsafe fn u(
        &self,
        local: &Local,
        places: &'p Places<'p>,
        is_next: bool,
    ) -> MatRef<'p> {
        let cols = self.cols(is_next);
        let Layout { top, below, jb, .. } = self.layout;
        if local.grid.p == 1 {
            // SAFETY: the product writes below these rows, and the caller promises that nothing
            // else writes.
            return unsafe { places.a.read(top..below, cols.clone()) };
        }
        // SAFETY: the caller's promise.
        unsafe { places.u(is_next, jb, cols.len()) }
    }

    fn rows_written(&self, local: &Local) -> Vec<usize> {
        swap::rows_written(self.layout.j, self.panel.ipiv, local.rows, local.grid.myrow)
    }

    /// Copies the rows that the exchange will write to into the log, with the team and past the
    /// caches: only a restart reads the log. Returns these local rows.
    pub(crate) fn log_rows(&self, local: &Local, places: &Places) -> Vec<usize> {
        let (rows, cols) = (self.rows_written(local), self.columns.all());
        // SAFETY: the only view of the log, and no thread writes to A while it is in use.
        let (log, a) = unsafe {
            (places.log(rows.len(), cols.len()), places.a.read(0..local.shape.rows, cols))
        };
        swap::stream_rows(local.team, a, &rows, log);
        rows
    }

    fn put_back(
        &self,
        local: &Local,
        places: &Places,
        journal: &Journal,
    ) -> Result<(), SolveError> {
        let (rows, cols) = (self.rows_written(local), self.columns.all());
        // SAFETY: the only view of the log, and no other thread uses A.
        let (mut log, mut a) = unsafe {
            (places.log(rows.len(), cols.len()), places.a.block(0..local.shape.rows, cols))
        };
        for (i, &row) in rows.iter().enumerate() {
            journal.before(PUT_BACK, row)?;
            a.row_mut(row).copy_from_slice(log.row_mut(i));
        }
        Ok(())
    }

    /// Computes the parts of the product that are open or incomplete, on all threads.
    fn finish(
        &self,
        local: &Local,
        places: &Places,
        journal: &Journal,
        pace: &Pace,
    ) -> Result<(), SolveError> {
        for is_next in [true, false] {
            let (recorded, cols) = (Recorded { journal, pace, is_next }, self.cols(is_next));
            let parts: Vec<usize> = journal.parts(is_next).collect();
            // SAFETY: nothing writes to U.
            let (a, u) = (&places.a, unsafe { self.u(local, places, is_next) });
            try_each(local.team, parts.len(), |i| {
                let (rows, is) = journal.part(parts[i]);
                let done = is.columns_done(cols.len()).expect("torn memory is lost");
                if is != PartState::Done {
                    // SAFETY: parts have disjoint rows, and nothing writes to U.
                    unsafe {
                        multiply_part(a, cols, &self.panel, u.into(), rows, done, &recorded)
                    }?;
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Takes the product back from all parts that have some of it, the last columns first, on all
    /// threads.
    fn undo(
        &self,
        local: &Local,
        places: &Places,
        journal: &Journal,
        pace: &Pace,
    ) -> Result<(), SolveError> {
        for is_next in [true, false] {
            let parts: Vec<usize> = journal.parts(is_next).collect();
            // SAFETY: nothing writes to U.
            let (a, u) = (&places.a, unsafe { self.u(local, places, is_next) });
            try_each(local.team, parts.len(), |i| {
                let part = parts[i];
                let (rows, mut is) = journal.part(part);
                while is != PartState::Open {
                    let done = is.columns_done(self.cols(is_next).len());
                    let done = done.expect("torn memory is lost");
                    let call = pace.next_columns(rows.len(), self.layout.jb, 0..done).len();
                    journal.hook.begin_change();
                    journal.set_part(part, PartState::Undoing)?;
                    journal.before_part(TAKE_BACK, part)?;
                    // SAFETY: parts have disjoint rows, and nothing writes to U.
                    unsafe { self.take_back(a, u, is_next, &rows, done - call..done) };
                    is =
                        if call == done { PartState::Open } else { PartState::Partly(done - call) };
                    journal.set_part(part, is)?;
                    journal.hook.end_change();
                    work::piece_done();
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// `A2 = A2 + L2 U` on these rows and columns of a product.
    /// Safety: no other thread uses these elements, and nothing writes to U.
    unsafe fn take_back(
        &self,
        a: &SharedMat,
        u: MatRef,
        is_next: bool,
        rows: &Range<usize>,
        columns: Range<usize>,
    ) {
        let (Layout { below, jb, .. }, at) = (self.layout, self.cols(is_next).start);
        let rows_of_a = below + rows.start..below + rows.end;
        // SAFETY: the caller's promise.
        let a2 = unsafe { a.block(rows_of_a, at + columns.start..at + columns.end) };
        update::take_back(&self.panel, u.block(0..jb, columns), rows.clone(), a2);
    }

    fn cols(&self, is_next: bool) -> &Range<usize> {
        if is_next { &self.columns.next } else { &self.columns.rest }
    }
}

/// Takes a rank to the cut before panel `cut`, from its own memory.
pub(super) fn go_to(
    local: &Local,
    places: &Places,
    journal: &Journal,
    pace: &Pace,
    cut: usize,
    action: Action,
) -> Result<(), SolveError> {
    // SAFETY: no panel is received before the factorization continues.
    let step = |k: usize| unsafe { Step::new(local, places, k) };
    match action {
        Action::Rebuild => return Ok(()),
        Action::Stay => {}
        Action::Finish => {
            let step = step(cut - 1);
            step.finish(local, places, journal, pace)?;
            journal.before("u1", cut - 1)?;
            local.store_diagonal(cut - 1, step.panel.l1);
        }
        Action::Undo => {
            let step = step(cut);
            step.undo(local, places, journal, pace)?;
            // Rows go back only once no part is marked as done.
            journal.set(MemoryState::Logged(cut))?;
            step.put_back(local, places, journal)?;
        }
        Action::PutBack => step(cut).put_back(local, places, journal)?,
    }
    if action != Action::Stay {
        journal.set(MemoryState::Rest(cut))?;
    }
    renewal::store(local, places, journal, cut)
}

/// What a process row recomputes after a loss. A column that is not finished is recomputed on all
/// process rows, by the same sum. Rounding errors above and below the diagonal compensate each
/// other, but differ between matrix and checksums: U from one and the rows below from the other are
/// off by L21 L11^-1 times the errors. So the remaining ranks of a lost rank's process column also
/// take the values of the checksums, as long as enough checksums are left. Else each process row
/// rebuilds only its own losses.
#[derive(Debug, PartialEq, Eq)]
struct Recomputation {
    columns: Vec<usize>,
    /// The checksums that may be used to decode them.
    from: Vec<usize>,
    checksums: Vec<usize>,
    is_alike: bool,
}

impl Recomputation {
    /// The plan of process row `row`. `lost` marks the lost ranks, by process row and column; `q`
    /// process columns hold the matrix.
    fn new(lost: &[Vec<bool>], row: usize, q: usize) -> Self {
        let is_lost_anywhere = |col: usize| lost.iter().any(|row| row[col]);
        let is_lost_here = |col: usize| lost[row][col];
        let of = |is_lost: &dyn Fn(usize) -> bool, is_alike| {
            let checksums = || 0..lost[row].len() - q;
            Self {
                columns: (0..q).filter(|&col| is_lost(col)).collect(),
                from: checksums().filter(|&s| !is_lost(q + s)).collect(),
                checksums: checksums().filter(|&s| is_lost(q + s)).collect(),
                is_alike,
            }
        };
        let anywhere = of(&is_lost_anywhere, true);
        let can_be_alike = anywhere.columns.len() <= anywhere.from.len();
        if can_be_alike { anywhere } else { of(&is_lost_here, false) }
    }

    /// The finished panels of the last group, of Q = `q` panels, before panel `cut` that all
    /// process rows decode.
    fn panels_finished(&self, cut: usize, q: usize) -> Vec<usize> {
        let of_group = self.columns.iter().map(|&col| first_of_last_group(cut, q) + col);
        of_group.filter(|&panel| self.is_alike && panel < cut).collect()
    }
}

/// How many checksums of a process row are not needed to replace its `lost` ranks, by process
/// column, which are no more than there are checksums; `q` process columns hold the matrix.
pub(super) fn equations_left(lost: &[bool], q: usize) -> usize {
    lost.len() - q - lost.iter().filter(|lost| **lost).count()
}

/// Updates `decoded`, by process row, for the decoding at the cut before panel `cut`. `lost` marks
/// the lost ranks, by process row and process column; `q` process columns hold the matrix.
/// `is_checked`: the remaining ranks agree with all checksums that are not needed.
pub(super) fn to_be_decoded(
    decoded: &mut [Decoded],
    lost: &[Vec<bool>],
    q: usize,
    cut: usize,
    is_checked: bool,
) {
    for (row, decoded) in decoded.iter_mut().enumerate() {
        let Recomputation { columns, checksums, .. } = Recomputation::new(lost, row, q);
        if columns.is_empty() && checksums.is_empty() {
            continue;
        }
        let is_verified = is_checked && equations_left(&lost[row], q) > 0;
        let unverified = (!is_verified).then_some((cut, cut));
        *decoded = decoded.and(Decoded { is_unchecked: true, unverified, has_been: true });
    }
}

/// Rebuilds the ranks of this process row that are `lost`, by process row and column, at the cut
/// before panel `cut`, to which all others have gone. Remaining ranks may change by rounding
/// errors, in this `unit`; one that would change by more returns [`SolveError::Wrong`]. Returns the
/// finished panels whose columns all process rows have decoded with what is left over in them, in
/// order. Collective over the process row.
pub(super) fn rebuild(
    local: &Local,
    relay: &mut Relay,
    journal: &Journal,
    weights: &Weights,
    lost: &[Vec<bool>],
    cut: usize,
    unit: f64,
) -> Result<Vec<usize>, SolveError> {
    let (Local { grid, cols, .. }, q) = (local, local.grid.q);
    let lost_here = &lost[grid.myrow];
    let plan = Recomputation::new(lost, grid.myrow, q);
    let finished = local.params.columns_before(cut);
    let panels = plan.panels_finished(cut, q);
    let rows = 0..local.shape.rows;
    // Remaining ranks keep their finished columns, and checksums that have been recomputed.
    let kept = |target: usize| {
        if target < q {
            cols.count_before(finished, target)
        } else {
            first_of_last_group(cut, q) / q * local.params.nb
        }
    };
    let first = |target: usize| if lost_here[target] { 0 } else { kept(target) };
    // Remaining ranks compare their values with those they take.
    let max_change = |target: usize, amplification: f64| {
        if lost_here[target] { f64::INFINITY } else { unit * amplification.max(1.0) }
    };
    let decoding = weights.decoding(&plan.columns, &plan.from);
    for (i, &column) in plan.columns.iter().enumerate() {
        let divisor = decoding.divisor;
        let sum = || Sum { divisor, ..Sum::new(REBUILD, decoding.terms(i), column, finished) };
        let adopted = Sum { unit: max_change(column, decoding.amplification), ..sum() };
        relay.sum(adopted, (rows.clone(), first(column)..columns_of(local, column)))?;
        if let Some(panel) = panels.iter().find(|&panel| panel % q == column) {
            let cols = columns_of_group(local, panel / q, column);
            relay.sum(Sum { with_left_over: true, ..sum() }, (rows.clone(), cols))?;
        }
    }
    for &s in &plan.checksums {
        let unit = max_change(q + s, 1.0);
        let sum = Sum { unit, ..Sum::new(REBUILD, weights.terms(s), q + s, finished) };
        relay.sum(sum, (rows.clone(), first(q + s)..columns_of(local, q + s)))?;
    }
    if lost_here[grid.mycol] {
        journal.set(MemoryState::Rest(cut))?;
    }
    Ok(panels)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Process rows of two ranks with data and `lost.len() - 2` checksums; `x` marks lost ranks.
    fn recomputed(rows: &[&str], row: usize) -> (Vec<usize>, Vec<usize>, Vec<usize>) {
        let lost: Vec<Vec<bool>> =
            rows.iter().map(|row| row.bytes().map(|rank| rank == b'x').collect()).collect();
        let Recomputation { columns, from, checksums, .. } = Recomputation::new(&lost, row, 2);
        (columns, from, checksums)
    }

    #[test]
    fn decoded_data_is_unverified_without_a_spare_checksum() {
        let after = |rows: &[&str], is_checked| {
            let lost: Vec<Vec<bool>> =
                rows.iter().map(|row| row.bytes().map(|rank| rank == b'x').collect()).collect();
            let mut decoded = vec![Decoded::default(); rows.len()];
            to_be_decoded(&mut decoded, &lost, 2, 4, is_checked);
            decoded.iter().map(|row| (row.is_unchecked, row.unverified)).collect::<Vec<_>>()
        };
        let (verified, blind) = ((true, None), (true, Some((4, 4))));
        assert_eq!(after(&["...", ".x."], true), [verified, blind]);
        assert_eq!(after(&["...", ".x."], false), [blind, blind]);
        assert_eq!(after(&["....", ".x.."], true), [verified, verified]);
        assert_eq!(after(&["x..x", ".x.."], true), [blind, verified]);
        // Each process row rebuilds alone: the last one decodes nothing.
        assert_eq!(after(&["x..", ".x.", "..."], true), [blind, blind, (false, None)]);
        assert_eq!(after(&["...", "..."], true), [(false, None); 2]);
    }

    #[test]
    fn process_column_is_recomputed_on_all_rows_if_possible() {
        for row in 0..2 {
            assert_eq!(recomputed(&["...", ".x."], row), (vec![1], vec![0], vec![]));
            assert_eq!(recomputed(&["..x", "..."], row), (vec![], vec![], vec![0]));
            assert_eq!(recomputed(&["x...", ".x.."], row), (vec![0, 1], vec![0, 1], vec![]));
            assert_eq!(recomputed(&["x...", "..x."], row), (vec![0], vec![1], vec![0]));
        }
        // Each process row rebuilds alone.
        assert_eq!(recomputed(&["x..", ".x."], 0), (vec![0], vec![0], vec![]));
        assert_eq!(recomputed(&["x..", ".x."], 1), (vec![1], vec![0], vec![]));
        assert_eq!(recomputed(&["x..", "..x"], 0), (vec![0], vec![0], vec![]));
        assert_eq!(recomputed(&["x..", "..x"], 1), (vec![], vec![], vec![0]));
    }
}
