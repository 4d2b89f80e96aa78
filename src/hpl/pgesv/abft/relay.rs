//! Weighted sums along a process row, pipelined from rank to rank.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use super::super::SolveError;
use super::super::local::Local;
use super::groups::dead_columns;
use super::memory::{Journal, Places, RelayMessages};
use super::rounding::{are_rounding, most_units};
use crate::hpl::comm::{Comm, CommError, PanelBuf, RecvRequest as _, SendRequest as _, Tag};

const TAG_RELAY: Tag = 0x150;

/// A weighted sum of the same block of A on several process columns, stored on another.
pub(super) struct Sum<'s> {
    /// What it is for, as a hook is told.
    pub name: &'static str,
    /// Process columns and their factors, in the order in which the sum passes them.
    pub terms: &'s [(usize, f64)],
    /// What the sum is divided by.
    pub divisor: f64,
    /// Whether it is added to what the target has, or stands in its place.
    pub is_added: bool,
    /// The process column that gets it.
    pub target: usize,
    /// The columns before this one are finished: below the diagonal, they are dead.
    pub finished: usize,
    /// The unit of rounding: no element may change by more, see [`are_rounding`]. Infinite: not
    /// checked.
    pub unit: f64,
}

/// Passes sums on.
pub(super) struct Relay<'r, 'm, C: Comm> {
    local: &'r Local<'m, C>,
    places: &'r Places<'r>,
    journal: &'r Journal<'r>,
    message_doubles: usize,
    /// None while a sum has them.
    messages: Option<Messages<C>>,
}

/// The messages of a rank that are not being filled or on their way to it.
struct Messages<C: Comm> {
    free: Vec<PanelBuf>,
    /// Those that leave, the oldest first.
    leaving: VecDeque<(Arc<PanelBuf>, C::Send)>,
}

impl<C: Comm> Messages<C> {
    /// One that may be filled: the oldest one, once it has left, where none is free.
    fn take(&mut self) -> Result<PanelBuf, CommError> {
        match self.free.pop() {
            Some(message) => Ok(message),
            None => self.settle_one(),
        }
    }

    fn settle_one(&mut self) -> Result<PanelBuf, CommError> {
        let (message, send) = self.leaving.pop_front().expect("two messages at least");
        send.wait()?;
        Ok(Arc::try_unwrap(message).ok().expect("it has left"))
    }

    /// Waits until all have left.
    fn wait_all(&mut self) -> Result<(), CommError> {
        while !self.leaving.is_empty() {
            let message = self.settle_one()?;
            self.free.push(message);
        }
        Ok(())
    }
}

/// One sum as it passes a rank: while it is on one message, the next one comes, and those
/// before leave.
struct Passing<'p, C: Comm> {
    row: &'p C,
    /// The ranks from which messages come, and to which they go.
    before: Option<usize>,
    behind: Option<usize>,
    messages: Messages<C>,
    coming: Option<C::Recv>,
}

impl<C: Comm> Passing<'_, C> {
    /// Lets the next message come, of `len` doubles.
    fn expect(&mut self, len: usize) -> Result<(), CommError> {
        if let Some(before) = self.before {
            let message = self.messages.take()?;
            self.coming = Some(self.row.irecv(message, 0..len, before, TAG_RELAY)?);
        }
        Ok(())
    }

    /// The next message: it has come, or begins here, of any content.
    fn arrived(&mut self) -> Result<PanelBuf, CommError> {
        if let Some(message) = self.coming.take() {
            return message.wait();
        }
        assert!(self.before.is_none(), "a message is expected before it is used");
        self.messages.take()
    }

    /// Passes `len` doubles of `message` on, unless it ends here.
    fn pass_on(&mut self, message: PanelBuf, len: usize) -> Result<(), CommError> {
        let Some(behind) = self.behind else {
            self.messages.free.push(message);
            return Ok(());
        };
        let message = Arc::new(message);
        let send = self.row.isend(Arc::clone(&message), 0..len, behind, TAG_RELAY)?;
        self.messages.leaving.push_back((message, send));
        Ok(())
    }
}

impl<'r, 'm, C: Comm> Relay<'r, 'm, C> {
    /// # Errors
    /// Without the memory for the messages.
    ///
    /// # Panics
    /// With less than two messages.
    pub fn new(
        local: &'r Local<'m, C>,
        places: &'r Places<'r>,
        journal: &'r Journal<'r>,
        messages: RelayMessages,
    ) -> Result<Self, SolveError> {
        assert!(messages.count >= 2, "one message comes while another is filled");
        // No process column has more than the first one.
        let cols = local.cols.count_before(local.params.n + 1, 0);
        let lengths = std::iter::repeat_n(messages.longest(cols), messages.count);
        // In one piece, since that has its pages from the beginning.
        let mut free = PanelBuf::for_messages(messages.all(cols))?.cut(lengths);
        // What is left over is empty.
        free.truncate(messages.count);
        let made = Messages { free, leaving: VecDeque::with_capacity(messages.count) };
        Ok(Self { local, places, journal, message_doubles: messages.doubles, messages: Some(made) })
    }

    /// Columns of process column `col`; those of a checksum are as many as the first one's.
    pub fn columns_of(&self, col: usize) -> usize {
        let Local { params, cols, grid, .. } = self.local;
        cols.count_before(params.n + 1, if col < grid.q { col } else { 0 })
    }

    /// Sets `rows` and `cols` of the target to the sum. Collective over the process row. What a
    /// rank passes on may still leave when this returns: the next sum, or [`Self::wait_all`],
    /// waits for it.
    ///
    /// # Errors
    /// [`SolveError::Wrong`] on the target, when an element would change by more than is
    /// allowed; the message is discarded then. When a rank cannot be reached. No sum can follow
    /// an error.
    pub fn sum(
        &mut self,
        sum: &Sum,
        (rows, cols): (Range<usize>, Range<usize>),
    ) -> Result<(), SolveError> {
        let grid = self.local.grid;
        assert!(!sum.terms.is_empty(), "nobody would begin the messages");
        let mine = sum.terms.iter().position(|&(col, _)| col == grid.mycol);
        if cols.is_empty() || (mine.is_none() && grid.mycol != sum.target) {
            return Ok(());
        }
        let most_rows = (self.message_doubles / cols.len()).max(1);
        let parts = rows.clone().step_by(most_rows);
        let mut parts = parts.map(|first| first..(first + most_rows).min(rows.end)).peekable();
        let place = mine.unwrap_or(sum.terms.len());
        let mut passing = Passing {
            row: &grid.row,
            before: place.checked_sub(1).map(|at| sum.terms[at].0),
            behind: mine.map(|at| sum.terms.get(at + 1).map_or(sum.target, |&(col, _)| col)),
            messages: self.messages.take().expect("no sum follows an error"),
            coming: None,
        };
        let expect_next = |passing: &mut Passing<C>, next: Option<&Range<usize>>| {
            next.map_or(Ok(()), |part| passing.expect(part.len() * cols.len()))
        };
        expect_next(&mut passing, parts.peek())?;
        while let Some(part) = parts.next() {
            let len = part.len() * cols.len();
            self.journal.step(sum.name, part.start)?;
            let mut message = passing.arrived()?;
            expect_next(&mut passing, parts.peek())?;
            match mine {
                Some(at) => self.add(&mut message, sum, part, cols.clone(), at),
                None => self.take(&mut message[..len], sum, part, cols.clone())?,
            }
            passing.pass_on(message, len)?;
        }
        self.messages = Some(passing.messages);
        Ok(())
    }

    /// Waits until all messages have left.
    ///
    /// # Errors
    /// When a rank cannot be reached.
    pub fn wait_all(&mut self) -> Result<(), CommError> {
        self.messages.as_mut().expect("no sum is under way").wait_all()
    }

    /// Those of `cols` that are here and not dead in local row `row`.
    fn alive(&self, sum: &Sum, row: usize, cols: &Range<usize>) -> Range<usize> {
        let Local { rows, cols: cyclic, grid, shape, .. } = self.local;
        let (start, end) = (cols.start.min(shape.cols), cols.end.min(shape.cols));
        if grid.is_checksum() {
            return start..end;
        }
        let global = rows.global(row, grid.myrow);
        dead_columns(*cyclic, grid.mycol, global, sum.finished).clamp(start, end)..end
    }

    /// Adds term `at`, which is this rank's, to the message; the first term begins it.
    fn add(
        &self,
        message: &mut [f64],
        sum: &Sum,
        rows: Range<usize>,
        cols: Range<usize>,
        at: usize,
    ) {
        let factor = sum.terms[at].1;
        for (row, sums) in rows.zip(message.chunks_exact_mut(cols.len())) {
            if at == 0 {
                sums.fill(0.0);
            }
            let alive = self.alive(sum, row, &cols);
            if alive.is_empty() {
                continue;
            }
            let sums = &mut sums[alive.start - cols.start..];
            // SAFETY: nobody writes to these elements.
            let a = unsafe { self.places.a.read(row..row + 1, alive) };
            sums.iter_mut().zip(a.row(0)).for_each(|(sum, value)| *sum += factor * value);
        }
    }

    /// Sets this rank's part from the message, which it divides; what is dead becomes 0.
    fn take(
        &self,
        message: &mut [f64],
        sum: &Sum,
        rows: Range<usize>,
        cols: Range<usize>,
    ) -> Result<(), SolveError> {
        let local = self.local;
        if sum.divisor != 1.0 {
            message.iter_mut().for_each(|value| *value /= sum.divisor);
        }
        for is_taken in [false, true] {
            for (i, row) in rows.clone().enumerate() {
                let alive = self.alive(sum, row, &cols);
                let message = &message[i * cols.len()..(i + 1) * cols.len()];
                // SAFETY: this thread alone is on these columns.
                let mut a = unsafe { self.places.a.block(row..row + 1, cols.start..alive.end) };
                let (dead, values) = a.row_mut(0).split_at_mut(alive.start - cols.start);
                let sums = &message[dead.len()..];
                if is_taken {
                    dead.fill(0.0);
                    match sum.is_added {
                        true => values.iter_mut().zip(sums).for_each(|(value, new)| *value += new),
                        false => values.copy_from_slice(sums),
                    }
                } else if sum.unit.is_finite() {
                    let changes = || values.iter().zip(sums).map(|(value, sum)| sum - value);
                    if !are_rounding(changes(), sum.unit) {
                        let row = local.rows.global(row, local.grid.myrow);
                        let units = most_units(changes(), sum.unit);
                        return Err(SolveError::Wrong { column: sum.finished, row, units });
                    }
                }
            }
        }
        Ok(())
    }
}
