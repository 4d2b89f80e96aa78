//! What a rank does to come to a cut: by itself from its own memory, or, where that is
//! lost, from the memories of its process row.
//!
//! All of it can be done again from wherever a death has left it: each word is written
//! when what it says is true, and none before.

use super::super::SolveError;
use super::super::local::Local;
use super::super::panel::Layout;
use super::super::product::multiply_part;
use super::groups::{StepColumns, dead_columns};
use super::memory::{Journal, Part, Places, Recorded, State};
use super::standing::Action;
use super::weights::Weights;
use crate::hpl::comm::{Comm, PanelBuf, Tag};
use crate::hpl::swap;
use crate::hpl::update::{self, Operands};
use crate::machine::blas::MatRef;
use crate::machine::tuning::TUNING;

const TAG_REBUILD: Tag = 0x150;

/// The operands of a step as they lie in memory.
pub(super) struct Step<'p> {
    pub layout: Layout,
    pub columns: StepColumns,
    pub panel: Operands<'p>,
}

impl<'p> Step<'p> {
    /// Panel `k`.
    ///
    /// # Safety
    /// As long as it is in use, no panel is received or factored in the place of this one.
    ///
    /// # Panics
    /// When another panel is there.
    pub unsafe fn new<C: Comm>(local: &Local<C>, places: &'p Places, k: usize) -> Self {
        let layout = local.layout(k);
        // SAFETY: the caller's promise.
        let message = unsafe { places.panel(k) };
        assert_eq!(layout.first_column(message), layout.j, "the panel of this step");
        Self { layout, columns: StepColumns::new(local, k), panel: layout.operands(message) }
    }

    /// U of the columns of the next panel, or of those of the rest that need the product.
    ///
    /// # Safety
    /// As long as it is in use, no rows are exchanged.
    pub unsafe fn u<C: Comm>(
        &self,
        local: &Local<C>,
        places: &'p Places<'p>,
        is_next: bool,
    ) -> MatRef<'p> {
        let StepColumns { next, rest, product } = &self.columns;
        let Layout { top, below, jb, .. } = self.layout;
        let (all, wanted) = if is_next { (next, next) } else { (rest, product) };
        if local.grid.p == 1 {
            // SAFETY: the product writes below these rows, and the caller promises that
            // nobody else writes.
            return unsafe { places.a.read(top..below, wanted.clone()) };
        }
        // SAFETY: the caller's promise.
        let u = unsafe { places.u(is_next, jb, all.len()) };
        u.block(0..jb, wanted.start - all.start..wanted.end - all.start)
    }

    /// Local rows that the exchange writes to.
    fn rows_written<C: Comm>(&self, local: &Local<C>) -> Vec<usize> {
        swap::rows_written(self.layout.j, self.panel.ipiv, local.rows, local.grid.myrow)
    }

    /// Copies the rows that the exchange will write to into the log.
    pub fn log_rows<C: Comm>(&self, local: &Local<C>, places: &Places) {
        let (rows, cols) = (self.rows_written(local), self.columns.all());
        // SAFETY: the only view of the log, and nobody writes to A meanwhile.
        let (mut log, a) = unsafe {
            (places.log(rows.len(), cols.len()), places.a.read(0..local.shape.rows, cols))
        };
        rows.iter().enumerate().for_each(|(i, &row)| log.row_mut(i).copy_from_slice(a.row(row)));
    }

    /// Puts the rows of the log back where they were.
    fn put_back<C: Comm>(
        &self,
        local: &Local<C>,
        places: &Places,
        journal: &Journal,
    ) -> Result<(), SolveError> {
        let (rows, cols) = (self.rows_written(local), self.columns.all());
        // SAFETY: the only view of the log, and nobody else is on A.
        let (mut log, mut a) = unsafe {
            (places.log(rows.len(), cols.len()), places.a.block(0..local.shape.rows, cols))
        };
        for (i, &row) in rows.iter().enumerate() {
            journal.step("put back", row)?;
            a.row_mut(row).copy_from_slice(log.row_mut(i));
        }
        Ok(())
    }

    /// Computes the parts of the product that are open.
    fn finish<C: Comm>(
        &self,
        local: &Local<C>,
        places: &Places,
        journal: &Journal,
    ) -> Result<(), SolveError> {
        for is_next in [true, false] {
            let recorded = Recorded { journal, is_next };
            for part in journal.parts(is_next) {
                let (rows, Part::Open) = journal.part(part) else { continue };
                let cols = self.cols(is_next);
                // SAFETY: this thread alone is on A, and U is not written to.
                unsafe {
                    let u = self.u(local, places, is_next);
                    multiply_part((&places.a, cols), &self.panel, u, rows, &recorded)?;
                }
            }
        }
        Ok(())
    }

    /// Takes the parts of the product back that are done.
    fn undo<C: Comm>(
        &self,
        local: &Local<C>,
        places: &Places,
        journal: &Journal,
    ) -> Result<(), SolveError> {
        for is_next in [true, false] {
            for part in journal.parts(is_next) {
                let (rows, Part::Done) = journal.part(part) else { continue };
                journal.set_part(part, Part::Undoing)?;
                journal.step_of_part("take back", part)?;
                let below = self.panel.below;
                let cols = self.cols(is_next).clone();
                // SAFETY: this thread alone is on A, and U is not written to.
                unsafe {
                    let a2 = places.a.block(below + rows.start..below + rows.end, cols);
                    let u = self.u(local, places, is_next);
                    update::take_back(&self.panel, u, rows, a2);
                }
                journal.set_part(part, Part::Open)?;
            }
        }
        Ok(())
    }

    fn cols(&self, is_next: bool) -> &std::ops::Range<usize> {
        if is_next { &self.columns.next } else { &self.columns.product }
    }
}

/// Takes a rank to the cut before panel `cut`, from its own memory.
///
/// # Errors
/// When the process is to go no further.
pub(super) fn go_to<C: Comm>(
    local: &Local<C>,
    places: &Places,
    journal: &Journal,
    cut: usize,
    action: Action,
) -> Result<(), SolveError> {
    // SAFETY: no panel is received before the factorization goes on.
    let step = |k: usize| unsafe { Step::new(local, places, k) };
    match action {
        Action::Stay | Action::Rebuild => return Ok(()),
        Action::Finish => {
            let step = step(cut - 1);
            step.finish(local, places, journal)?;
            journal.step("u1", cut - 1)?;
            local.store_u1(cut - 1, step.panel.l1);
        }
        Action::Undo => {
            let step = step(cut);
            step.undo(local, places, journal)?;
            // Rows go back once no part is left of which a word would say that it is done.
            journal.set(State::Logged(cut))?;
            step.put_back(local, places, journal)?;
        }
        Action::PutBack => step(cut).put_back(local, places, journal)?,
    }
    journal.set(State::Rest(cut))
}

/// Rebuilds the lost ranks of this process row, `lost` by process column, at the cut before
/// panel `cut`, to which all others have gone. Collective over the process row.
///
/// # Errors
/// When a rank cannot be reached.
pub(super) fn rebuild<C: Comm>(
    local: &Local<C>,
    places: &Places,
    journal: &Journal,
    weights: &Weights,
    lost: &[bool],
    cut: usize,
) -> Result<(), SolveError> {
    if !lost.contains(&true) {
        return Ok(());
    }
    let q = local.grid.q;
    let columns: Vec<usize> = (0..q).filter(|&col| lost[col]).collect();
    let left: Vec<usize> = (0..weights.checksums()).filter(|&s| !lost[q + s]).collect();
    let mut relay = Relay { local, places, journal, cut, buffer: PanelBuf::for_messages(0)? };
    let decoding = weights.decoding(&columns, &left);
    for (i, &column) in columns.iter().enumerate() {
        let of_columns = (0..q).filter(|&col| !lost[col]).map(|c| (c, decoding.of_columns[i][c]));
        let of_checksums = decoding.with.iter().zip(&decoding.of_checksums[i]);
        let terms: Vec<(usize, f64)> =
            of_columns.chain(of_checksums.map(|(&s, &of)| (q + s, of))).collect();
        relay.sum(&terms, decoding.divisor, column)?;
    }
    for s in (0..weights.checksums()).filter(|&s| lost[q + s]) {
        let terms: Vec<(usize, f64)> = weights.of(s).iter().copied().enumerate().collect();
        relay.sum(&terms, 1.0, q + s)?;
    }
    if lost[local.grid.mycol] { journal.set(State::Rest(cut)) } else { Ok(()) }
}

/// Sums over the ranks of a process row, passed on from one to the next.
struct Relay<'r, 'm, C: Comm> {
    local: &'r Local<'m, C>,
    places: &'r Places<'r>,
    journal: &'r Journal<'r>,
    cut: usize,
    buffer: PanelBuf,
}

impl<C: Comm> Relay<'_, '_, C> {
    /// Sets the part of process column `target` to the sum of those of others, each with a
    /// factor, over `divisor`.
    fn sum(
        &mut self,
        terms: &[(usize, f64)],
        divisor: f64,
        target: usize,
    ) -> Result<(), SolveError> {
        let (grid, rows) = (self.local.grid, self.local.shape.rows);
        let width = self.columns_of(target);
        let most_rows = (TUNING.rebuild_message_doubles / width.max(1)).max(1);
        let mine = terms.iter().position(|&(col, _)| col == grid.mycol);
        if width == 0 || (mine.is_none() && grid.mycol != target) {
            return Ok(());
        }
        if self.buffer.len() < most_rows * width {
            self.buffer = PanelBuf::for_messages(most_rows * width)?;
        }
        for first in (0..rows).step_by(most_rows) {
            let part = first..(first + most_rows).min(rows);
            let len = part.len() * width;
            self.journal.step("rebuild", first)?;
            match mine {
                Some(0) => self.buffer[..len].fill(0.0),
                Some(i) => {
                    grid.row.recv(&mut self.buffer[..len], terms[i - 1].0, TAG_REBUILD)?;
                }
                None => {
                    let (last, _) = *terms.last().expect("somebody to rebuild from");
                    grid.row.recv(&mut self.buffer[..len], last, TAG_REBUILD)?;
                    part.enumerate().for_each(|(i, row)| self.take(row, i * width, divisor));
                    continue;
                }
            }
            let at = mine.expect("a term");
            part.enumerate().for_each(|(i, row)| {
                self.add(row, i * width..(i + 1) * width, terms[at].1);
            });
            let to = terms.get(at + 1).map_or(target, |&(col, _)| col);
            grid.row.send(&self.buffer[..len], to, TAG_REBUILD)?;
        }
        Ok(())
    }

    /// Columns of a process column.
    fn columns_of(&self, col: usize) -> usize {
        let Local { params, cols, grid, .. } = self.local;
        cols.count_before(params.n + 1, if col < grid.q { col } else { 0 })
    }

    /// Columns of local row `row` that are dead here.
    fn dead(&self, row: usize) -> usize {
        let Local { params, rows, cols, grid, .. } = self.local;
        if grid.is_checksum() {
            return 0;
        }
        let finished = (self.cut * params.nb).min(params.n);
        dead_columns(*cols, grid.mycol, rows.global(row, grid.myrow), finished)
    }

    /// Adds this rank's row `row`, times `factor`, to that part of the message.
    fn add(&mut self, row: usize, place: std::ops::Range<usize>, factor: f64) {
        let dead = self.dead(row);
        // SAFETY: nobody writes to A.
        let a = unsafe { self.places.a.read(row..row + 1, 0..self.local.shape.cols) };
        let sums = self.buffer[place].iter_mut().zip(a.row(0)).skip(dead);
        sums.for_each(|(sum, value)| *sum += factor * value);
    }

    /// Sets this rank's row `row` from the message.
    fn take(&mut self, row: usize, start: usize, divisor: f64) {
        let (dead, width) = (self.dead(row), self.local.shape.cols);
        // SAFETY: this thread alone is on A.
        let mut a = unsafe { self.places.a.block(row..row + 1, 0..width) };
        let values = a.row_mut(0);
        for (value, sum) in values.iter_mut().zip(&self.buffer[start..start + width]) {
            *value = sum / divisor;
        }
        values[..dead].fill(0.0);
    }
}
