//! Weighted sums along a process row, pipelined from rank to rank.
//!
//! A sum begins on the process column of its first term, passes those of the other terms, each of
//! which adds its own, and ends on the target.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::SolveError;
use super::super::local::Local;
use super::super::wrong::{NotCorrected, WrongNumbers};
use super::groups::{columns_of, dead_columns};
use super::memory::{Journal, Places, RelayMessages};
use super::noticed::Noticed;
use super::rounding::{are_rounding, max_units};
use crate::blas::kernels;
use skt_comm::{Comm, CommError, PageBuf, RecvRequest, SendRequest, Tag, pages};

const TAG_RELAY: Tag = 0x150;

/// A weighted sum of the same block of A over several process columns, stored on another one.
pub(super) struct Sum {
    pub name: &'static str,
    /// Process columns and their factors, in the order in which the sum passes them.
    pub terms: Vec<(usize, f64)>,
    pub divisor: f64,
    /// Whether the sum is added to the target's values, or replaces them.
    pub is_added: bool,
    /// Whether the target stores the sum outside A ([`Places::sums`]), and leaves A unchanged.
    pub is_outside_a: bool,
    pub target: usize,
    /// The columns before this one are finished: below the diagonal they are dead.
    pub finished: usize,
    /// Whether the target also gets what is left over in its dead elements.
    pub with_left_over: bool,
    /// The unit of rounding: no element of the target may change by more than [`are_rounding`]
    /// allows. A larger change is an error or, for sums outside A, kept in [`Relay::noticed`].
    /// Infinite: not checked.
    pub unit: f64,
}

impl Sum {
    /// The plain sum of these terms, which replaces the target's values and is not checked.
    pub(crate) fn new(
        name: &'static str,
        terms: Vec<(usize, f64)>,
        target: usize,
        finished: usize,
    ) -> Self {
        Self {
            name,
            terms,
            divisor: 1.0,
            is_added: false,
            is_outside_a: false,
            target,
            finished,
            with_left_over: false,
            unit: f64::INFINITY,
        }
    }
}

/// Passes sums on, one after the other, in messages of whole rows. Other work can be done between
/// two messages: no rank waits for a sum before it needs its numbers.
pub(super) struct Relay<'r, 'm> {
    local: &'r Local<'m>,
    places: &'r Places<'r>,
    journal: &'r Journal<'r>,
    message_doubles: usize,
    messages: Messages,
    /// The sums that have not passed this rank yet. Messages belong to the oldest one.
    sums: VecDeque<Passing>,
    taken: Duration,
    /// Wrong data that sums outside A have shown on this rank.
    noticed: Option<Noticed>,
}

/// The messages of a rank that are not being filled or received.
struct Messages {
    free: Vec<PageBuf>,
    leaving: VecDeque<(Arc<PageBuf>, Box<dyn SendRequest>)>,
}

impl Messages {
    /// Takes a message to be filled: a free one, else the oldest one once it is sent. `None` if
    /// that would wait and `waits` is false.
    fn take(&mut self, waits: bool) -> Result<Option<PageBuf>, CommError> {
        if let Some(message) = self.free.pop() {
            return Ok(Some(message));
        }
        let Some((_, send)) = self.leaving.front_mut() else { return Ok(None) };
        if waits || send.test()? { self.settle_one().map(Some) } else { Ok(None) }
    }

    fn settle_one(&mut self) -> Result<PageBuf, CommError> {
        let (message, send) = self.leaving.pop_front().expect("one leaves");
        send.wait()?;
        Ok(Arc::try_unwrap(message).ok().expect("it has left"))
    }

    fn wait_all(&mut self) -> Result<(), CommError> {
        while !self.leaving.is_empty() {
            let message = self.settle_one()?;
            self.free.push(message);
        }
        Ok(())
    }
}

/// A sum that is passing this rank. Messages come and go while this rank works on another one.
struct Passing {
    sum: Sum,
    /// The columns of the sum, its rows that this rank has not passed on, and those of these rows
    /// for which no receive is posted.
    cols: Range<usize>,
    rows: Range<usize>,
    unexpected: Range<usize>,
    max_rows: usize,
    /// The index of this rank's term; `None` on the target.
    mine: Option<usize>,
    /// The rank that messages come from, and the one that they go to.
    before: Option<usize>,
    after: Option<usize>,
    /// The receives that are posted, the next one first.
    coming: VecDeque<Box<dyn RecvRequest>>,
}

fn split_off(rows: &mut Range<usize>, max_rows: usize) -> Range<usize> {
    let part = rows.start..rows.end.min(rows.start + max_rows);
    rows.start = part.end;
    part
}

impl Passing {
    /// Posts as many receives as there are free messages; at least one if this `waits`.
    fn expect(&mut self, row: &Comm, room: &mut Messages, waits: bool) -> Result<(), CommError> {
        let Some(before) = self.before else { return Ok(()) };
        while !self.unexpected.is_empty() {
            let Some(message) = room.take(waits && self.coming.is_empty())? else { break };
            let part = split_off(&mut self.unexpected, self.max_rows);
            let len = part.len() * self.cols.len();
            self.coming.push_back(row.irecv(message, 0..len, before, TAG_RELAY)?);
        }
        Ok(())
    }

    /// The next message: a received one or, where the sum begins on this rank, a free one of any
    /// content. `None` if that would wait and `waits` is false.
    fn next(&mut self, room: &mut Messages, waits: bool) -> Result<Option<PageBuf>, CommError> {
        if self.before.is_none() {
            return room.take(waits);
        }
        let Some(message) = self.coming.front_mut() else { return Ok(None) };
        if !waits && !message.test()? {
            return Ok(None);
        }
        self.coming.pop_front().map(RecvRequest::wait).transpose()
    }

    /// Sends `len` doubles of `message` to the next rank; frees the message where the sum ends.
    fn pass_on(
        &self,
        row: &Comm,
        room: &mut Messages,
        message: PageBuf,
        len: usize,
    ) -> Result<(), CommError> {
        let Some(after) = self.after else {
            room.free.push(message);
            return Ok(());
        };
        let message = Arc::new(message);
        let send = row.isend(Arc::clone(&message), 0..len, after, TAG_RELAY)?;
        room.leaving.push_back((message, send));
        Ok(())
    }
}

impl<'r, 'm> Relay<'r, 'm> {
    pub(crate) fn new(
        local: &'r Local<'m>,
        places: &'r Places<'r>,
        journal: &'r Journal<'r>,
        messages: RelayMessages,
    ) -> Result<Self, SolveError> {
        assert!(messages.count >= 2, "one message comes while another leaves");
        let cols = columns_of(local, 0);
        let lengths = std::iter::repeat_n(messages.longest(cols), messages.count);
        // One piece of memory for all messages, as all of its pages exist from the beginning.
        let mut free = PageBuf::for_messages(messages.all(cols))?.cut(lengths);
        // The rest after the last message is empty.
        free.truncate(messages.count);
        let made = Messages { free, leaving: VecDeque::with_capacity(messages.count) };
        let (message_doubles, sums) = (messages.doubles, VecDeque::new());
        let (taken, noticed) = (Duration::ZERO, None);
        Ok(Self { local, places, journal, message_doubles, messages: made, sums, taken, noticed })
    }

    /// Whether all sums that were begun have passed this rank.
    pub(crate) fn is_idle(&self) -> bool {
        self.sums.is_empty()
    }

    pub(crate) fn taken(&self) -> Duration {
        self.taken
    }

    /// Wrong data that sums outside A have shown: they differ by more than rounding.
    pub(crate) fn noticed(&self) -> Option<Noticed> {
        self.noticed
    }

    /// Sets `rows` and `cols` of the target to the sum ([`Self::begin`], then [`Self::complete`]).
    /// Messages of this rank may still be in progress when this returns ([`Self::wait_all`]).
    pub(crate) fn sum(
        &mut self,
        sum: Sum,
        part: (Range<usize>, Range<usize>),
    ) -> Result<(), SolveError> {
        self.begin(sum, part);
        self.complete()
    }

    /// Begins to set `rows` and `cols` of the target to the sum. Until it is complete, its ranks
    /// must not change the block, and the target has partly new numbers. Collective over the
    /// process row, like all of a relay: all ranks make the same calls in the same order.
    pub(crate) fn begin(&mut self, sum: Sum, (rows, cols): (Range<usize>, Range<usize>)) {
        let mycol = self.local.grid.mycol;
        assert!(!sum.terms.is_empty(), "no rank would begin the messages");
        let mine = sum.terms.iter().position(|&(col, _)| col == mycol);
        if rows.is_empty() || cols.is_empty() || (mine.is_none() && mycol != sum.target) {
            return;
        }
        let place = mine.unwrap_or(sum.terms.len());
        self.sums.push_back(Passing {
            max_rows: (self.message_doubles / cols.len()).max(1),
            before: place.checked_sub(1).map(|at| sum.terms[at].0),
            after: mine.map(|at| sum.terms.get(at + 1).map_or(sum.target, |&(col, _)| col)),
            unexpected: rows.clone(),
            coming: VecDeque::with_capacity(self.messages.free.capacity()),
            sum,
            cols,
            rows,
            mine,
        });
    }

    /// Passes on what can be passed on without waiting for another rank.
    pub(crate) fn progress(&mut self) -> Result<(), SolveError> {
        self.pass(false)
    }

    /// Passes sums on until all that were begun have passed this rank. If an element of A would
    /// change by more than is allowed, the target discards the message and returns
    /// [`SolveError::Wrong`]. After an error the relay is unusable.
    pub(crate) fn complete(&mut self) -> Result<(), SolveError> {
        self.pass(true)
    }

    pub(crate) fn wait_all(&mut self) -> Result<(), SolveError> {
        self.complete()?;
        Ok(self.messages.wait_all()?)
    }

    fn pass(&mut self, waits: bool) -> Result<(), SolveError> {
        if self.sums.is_empty() {
            return Ok(());
        }
        let start = Instant::now();
        while self.pass_one(waits)? {}
        self.taken += start.elapsed();
        Ok(())
    }

    /// Passes on the next message of the oldest sum. Returns false if there is none.
    fn pass_one(&mut self, waits: bool) -> Result<bool, SolveError> {
        let Some(mut passing) = self.sums.pop_front() else { return Ok(false) };
        let (row, room) = (&self.local.grid.row, &mut self.messages);
        passing.expect(row, room, waits)?;
        let Some(mut message) = passing.next(room, waits)? else {
            self.sums.push_front(passing);
            return Ok(false);
        };
        let part = split_off(&mut passing.rows, passing.max_rows);
        let (sum, len) = (&passing.sum, part.len() * passing.cols.len());
        self.journal.before(sum.name, part.start)?;
        match passing.mine {
            Some(at) => self.add(&mut message[..len], sum, part, passing.cols.clone(), at),
            None => self.take(&mut message[..len], sum, part, passing.cols.clone())?,
        }
        passing.pass_on(row, &mut self.messages, message, len)?;
        if !passing.rows.is_empty() {
            self.sums.push_front(passing);
        }
        Ok(true)
    }

    fn here(&self, cols: Range<usize>) -> Range<usize> {
        let all = self.local.shape.cols;
        cols.start.min(all)..cols.end.min(all)
    }

    /// How many of the columns `here`, from the first on, are dead in local row `row`.
    fn dead(&self, sum: &Sum, row: usize, here: &Range<usize>) -> usize {
        let Local { rows, cols, grid, .. } = self.local;
        if grid.is_checksum() || (sum.with_left_over && grid.mycol == sum.target) {
            return 0;
        }
        let global = rows.global(row, grid.myrow);
        let end = dead_columns(cols.as_cyclic(), grid.mycol, global, sum.finished);
        end.clamp(here.start, here.end) - here.start
    }

    /// Adds this rank's term, `at`, to the message; the first term clears it before.
    fn add(
        &self,
        message: &mut [f64],
        sum: &Sum,
        rows: Range<usize>,
        cols: Range<usize>,
        at: usize,
    ) {
        let factor = sum.terms[at].1;
        if at == 0 {
            message.fill(0.0);
        }
        let sums = message.chunks_exact_mut(cols.len());
        let here = self.here(cols);
        // SAFETY: no thread writes to these elements.
        let a = unsafe { self.places.a.read(rows.clone(), here.clone()) };
        for ((row, values), sums) in rows.zip(a.fetched_rows()).zip(sums) {
            let dead = self.dead(sum, row, &here);
            // The last columns of the message may exist only on other process columns.
            kernels::axpy(factor, &values[dead..], &mut sums[dead..values.len()]);
        }
    }

    /// Divides the message, and sets this rank's part from it; dead elements become 0.
    /// [`SolveError::Wrong`] if an element of A would change by more than rounding.
    fn take(
        &mut self,
        message: &mut [f64],
        sum: &Sum,
        rows: Range<usize>,
        cols: Range<usize>,
    ) -> Result<(), SolveError> {
        if sum.divisor != 1.0 {
            message.iter_mut().for_each(|value| *value /= sum.divisor);
        }
        let here = self.here(cols.clone());
        if sum.unit.is_finite() {
            self.compare(message, sum, rows.clone(), cols.clone())?;
        }
        let sums_of = |i: usize| &message[i * cols.len()..(i + 1) * cols.len()];
        for (i, row) in rows.enumerate() {
            // SAFETY: only this thread uses these columns and the sums outside A.
            let mut target = unsafe {
                if sum.is_outside_a {
                    self.places.sums(here.len()).block(row..row + 1, 0..here.len())
                } else {
                    self.places.a.block(row..row + 1, here.clone())
                }
            };
            let (dead, values) = target.row_mut(0).split_at_mut(self.dead(sum, row, &here));
            let sums = &sums_of(i)[dead.len()..];
            dead.fill(0.0);
            match sum.is_added {
                true => values.iter_mut().zip(sums).for_each(|(value, new)| *value += new),
                // Past the caches: sums outside A are not read before the product is over.
                false if sum.is_outside_a => {
                    pages::stream(bytemuck::cast_slice(sums), bytemuck::cast_slice_mut(values));
                }
                false => values.copy_from_slice(sums),
            }
        }
        Ok(())
    }

    /// Compares a message of sums with the data of this rank. Where sums outside A differ by more
    /// than rounding, that is noted in the journal and in [`Self::noticed`], from which all ranks
    /// learn of it; where an element of A would change by more, it is [`SolveError::Wrong`].
    fn compare(
        &mut self,
        message: &[f64],
        sum: &Sum,
        rows: Range<usize>,
        cols: Range<usize>,
    ) -> Result<(), SolveError> {
        let (local, here) = (self.local, self.here(cols.clone()));
        // SAFETY: only this thread uses these columns.
        let a = unsafe { self.places.a.read(rows.clone(), here.clone()) };
        for ((row, values), sums) in
            rows.zip(a.fetched_rows()).zip(message.chunks_exact(cols.len()))
        {
            let dead = self.dead(sum, row, &here);
            let changes =
                || values[dead..].iter().zip(&sums[dead..]).map(|(value, sum)| sum - value);
            if are_rounding(changes(), sum.unit) {
                continue;
            }
            let units = max_units(changes(), sum.unit);
            if !sum.is_outside_a {
                let row = local.rows.global(row, local.grid.myrow);
                return Err(self.disagrees(sum, row, units).into());
            }
            if self.noticed.is_none() {
                self.journal.set_wrong(true)?;
            }
            let end = sum.finished.div_ceil(local.params.nb);
            let noticed = Noticed::in_row(end, row, units, sum.unit);
            self.noticed = Some(self.noticed.map_or(noticed, |before| before.and(noticed)));
        }
        Ok(())
    }

    /// For global row `row`, where a rebuilding gives other numbers than this surviving rank has.
    fn disagrees(&self, sum: &Sum, row: usize, units: f64) -> WrongNumbers {
        let grid = self.local.grid;
        WrongNumbers {
            column: sum.finished,
            row,
            units,
            process_row: grid.myrow,
            rows: 1,
            process_column: None,
            suspects: Vec::new(),
            noticed_by: grid.all.rank(),
            why: NotCorrected::Rebuilding,
            is_known_to_all: false,
        }
    }
}
