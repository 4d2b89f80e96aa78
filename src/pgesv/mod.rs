//! The driver: factor [A|b] and solve (HPL_pdgesv).
//!
//! ```text
//! for each panel k:
//!     the owner of panel k + DEPTH brings its columns up to date, factors it,
//!         and starts to broadcast it                               advance
//!     all exchange rows, solve for U, and multiply by panel k
//!         on the columns right of those in flight                  update
//! back substitution                                                back
//! ```
//!
//! Between two panels the matrix is a *cut*: before panel k, panels up to k have
//! been applied to all columns, and those of panels k .. k + DEPTH - 1, which are
//! in flight then, are up to date: only their factorization is not in the matrix
//! yet. So the look-ahead goes on across a cut, and who begins at one, from a
//! checkpoint, factors those panels once more.
//!
//! The local matrix is stored row by row. Row exchanges then stream contiguous
//! memory, finished rows of U are a prefix of each rank's memory, and panels,
//! which want columns, are factored in their message anyway. L is not kept: it
//! is dead once its panel has been applied.
//!
//! Which columns are updated in one call depends on k and DEPTH alone, never on
//! time or on where the loop was interrupted: the solution has the same bits
//! every time.

mod advance;
mod back;
mod column;
mod company;
pub mod guard;
pub mod panel;
pub mod slots;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::blas::view::SharedMat;
use crate::comm::{Comm, CommError, PanelBuf};
use crate::config::{Bcast, Swap};
use crate::grid::{Cyclic, Grid};
use crate::pfact::{self, Variant};
use crate::report::record::Phases;
use crate::swap::{self, Plan};
use crate::team::Team;
use crate::update::{self, Operands};
use column::Column;
use company::Turn;
use guard::{Beside, Final};
use panel::{Flight, Layout};
use slots::Panels;

/// How to solve.
#[derive(Debug, Clone, Copy)]
pub struct Params {
    /// Order of the matrix.
    pub n: usize,
    /// Blocking factor.
    pub nb: usize,
    /// Panels in flight ahead of the update.
    pub depth: usize,
    /// Panel broadcast.
    pub bcast: Bcast,
    /// Panel factorization.
    pub variant: Variant,
    /// Row exchange.
    pub swap: Swap,
    /// Local columns above which [`Swap::Mix`] takes spread-roll.
    pub swap_threshold: usize,
    /// Whether ranks on one node read panels and rows in each other's memory.
    pub share: bool,
}

impl Params {
    /// Number of panels.
    pub fn panels(&self) -> usize {
        self.n.div_ceil(self.nb)
    }
}

/// Why there is no solution.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SolveError {
    /// No usable pivot: zero, infinite, or not a number.
    #[error("no usable pivot in column {column}: {value}; the matrix is singular or holds NaN")]
    Pivot {
        /// Global column, from 0.
        column: usize,
        /// What was found.
        value: f64,
    },
    /// A rank could not be reached.
    #[error(transparent)]
    Comm(#[from] CommError),
    /// The checkpoint could not be taken.
    #[error("checkpoint before panel {panel}: {why}")]
    Checkpoint {
        /// The panel before which it was to be taken.
        panel: usize,
        /// What went wrong.
        why: String,
    },
    /// No memory for the work space.
    #[error("no memory for {what}: {why}")]
    Memory {
        /// What it was for.
        what: &'static str,
        /// What the system said.
        why: String,
    },
}

/// What the driver tells of its progress, on every rank.
pub type OnProgress<'a> = &'a mut dyn FnMut(usize);

/// Products are cut at multiples of as many rows, from the first on: the AVX-512
/// kernels of the BLAS take 24 or 48 at a time, are slow on what is left over, and
/// round differently there. So x has the same bits however long the products are.
const ROW_GRAIN: usize = 48;
/// Most rows of one product: the BLAS packs all of U anew for each.
const PRODUCT_ROWS: usize = 43 * ROW_GRAIN;
/// The same where messages are to be moved on between products.
const PRODUCT_ROWS_BETWEEN_MESSAGES: usize = 22 * ROW_GRAIN;
/// Most rows of a product on the columns of one panel: the BLAS packs rows of L2,
/// uses them once, and so far they stay in the cache meanwhile.
const NARROW_PRODUCT_ROWS: usize = 16 * ROW_GRAIN;
/// Columns on which rows are exchanged just before U is solved for there, where all
/// rows are here: NB rows of them stay in the cache between.
const EXCHANGE_COLS: usize = 384;
/// Rows below which a piece of the product is not cut up for a team any more:
/// the BLAS packs U anew for each.
const SHORTEST_PIECE_ROWS: usize = 64;
/// What the threads of a team take of the product in one long piece each: the rest
/// makes up for what was not foreseen.
const FIRST_PERCENT: usize = 98;
/// Columns below which exchange and solve are not worth cutting up for the team.
const TEAM_GRAIN_COLS: usize = 64;

/// Shape of one rank's part of [A|b].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalShape {
    /// Rows.
    pub rows: usize,
    /// Columns, that of b included where this rank holds it.
    pub cols: usize,
    /// Doubles from one row to the next: the same on all ranks.
    pub lda: usize,
    /// Rows of the rank that has most.
    pub most_rows: usize,
}

impl LocalShape {
    /// The part of process `(myrow, mycol)`.
    pub fn new(n: usize, rows: Cyclic, cols: Cyclic, myrow: usize, mycol: usize) -> Self {
        // Process 0 holds most, in each direction.
        Self {
            rows: rows.count_before(n, myrow),
            cols: cols.count_before(n + 1, mycol),
            lda: panel::leading_dimension(cols.count_before(n + 1, 0)),
            most_rows: rows.count_before(n, 0),
        }
    }

    /// Doubles of this rank's part; at most `usize::MAX`.
    pub fn doubles(&self) -> usize {
        self.rows.saturating_mul(self.lda)
    }

    /// Doubles of the largest part of any rank; at most `usize::MAX`.
    pub fn padded_doubles(&self) -> usize {
        self.most_rows.saturating_mul(self.lda)
    }

    /// Doubles of work space beside the matrix, for `params` on a grid of `p` rows; at
    /// most `usize::MAX`.
    pub fn work_doubles(&self, params: &Params, rows: Cyclic, myrow: usize) -> usize {
        let (message, w) = panel::largest(params.n, params.nb, rows, myrow);
        let nb = params.nb.min(params.n.max(1));
        let exchange = match rows.procs {
            1 => 0,
            _ if params.share => Column::doubles(nb, self.cols, myrow),
            _ => swap::Room::doubles(nb, self.cols).saturating_add(swap::Room::doubles(nb, nb)),
        };
        let messages = message.saturating_mul(params.depth + 1);
        messages.saturating_add(w).saturating_add(exchange)
    }
}

/// What a solver needs beside the matrix, allocated once: it outlives the cuts
/// between which the matrix is lent to a [`Solver`].
pub struct Workspace<C: Comm> {
    /// Panels that are factored and not yet applied everywhere, in order.
    flights: VecDeque<Flight<C>>,
    /// Where they lie, and room for more.
    panels: Panels,
    /// The panel that is being factored.
    panel: PanelBuf,
    pivot_room: pfact::pivot::Room,
    /// P > 1: for the row exchange of the trailing columns.
    exchange: Option<swap::Room>,
    /// P > 1: for that of the columns of one panel, meanwhile.
    exchange_ahead: Option<swap::Room>,
    /// Where this rank's time went so far.
    phases: Phases,
}

impl<C: Comm> Workspace<C> {
    /// Work space for `params` on a rank whose part has `shape`.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub fn new(grid: &Grid<C>, params: &Params, shape: LocalShape) -> Result<Self, SolveError> {
        let rows = grid.rows(params.nb);
        let memory =
            |what| move |e: std::io::Error| SolveError::Memory { what, why: e.to_string() };
        let (message, w) = panel::largest(params.n, params.nb, rows, grid.myrow);
        // Those in flight, and the one that is being applied.
        let panels = Panels::new(grid, params.depth + 1, message, params.share)?;
        let nb = params.nb.min(params.n.max(1));
        let column = Column::new(grid, params.share, nb, shape.cols)?;
        let exchange = |cols, ahead| {
            let room = || match column.room(ahead) {
                Some(room) => Ok(swap::Room::Node(room)),
                None => swap::Room::new(nb, cols),
            };
            (grid.p > 1).then(room).transpose().map_err(memory("the row exchange"))
        };
        Ok(Self {
            flights: VecDeque::with_capacity(params.depth + 1),
            panels,
            panel: PanelBuf::new(w).map_err(memory("the panel"))?,
            pivot_room: pfact::pivot::Room::new(nb, column.mail()),
            exchange: exchange(shape.cols, false)?,
            exchange_ahead: exchange(nb, true)?,
            phases: Phases::default(),
        })
    }

    /// Whether panels are read in their owner's memory.
    pub fn shares_panels(&self) -> bool {
        self.panels.are_shared()
    }

    /// Whether rows and pivots are.
    pub fn shares_rows(&self) -> bool {
        matches!(self.exchange, Some(swap::Room::Node(_)))
    }

    /// Where this rank's time went so far; `other` is for the caller to fill in.
    pub fn phases(&self) -> Phases {
        self.phases
    }
}

/// The solver of one system on one rank.
pub struct Solver<'m, C: Comm> {
    grid: &'m Grid<C>,
    team: &'m Team,
    params: Params,
    a: &'m SharedMat<'m>,
    rows: Cyclic,
    cols: Cyclic,
    shape: LocalShape,
    work: &'m mut Workspace<C>,
}

impl<'m, C: Comm> Solver<'m, C> {
    /// A solver for the local part `a` of [A|b], of shape `shape`.
    pub fn new(
        grid: &'m Grid<C>,
        team: &'m Team,
        params: Params,
        shape: LocalShape,
        a: &'m SharedMat<'m>,
        work: &'m mut Workspace<C>,
    ) -> Self {
        let (rows, cols) = (grid.rows(params.nb), grid.cols(params.nb));
        Self { grid, team, params, a, rows, cols, shape, work }
    }

    /// Factors panels `range`, from one cut to another. Panels in flight stay so.
    /// Tells `on_progress` of each panel applied, and `beside` of rows that do not
    /// change any more up to the end of `range`.
    ///
    /// # Errors
    /// On all ranks alike when a column has no usable pivot.
    pub fn factor(
        &mut self,
        range: Range<usize>,
        on_progress: OnProgress,
        beside: &mut dyn Beside,
    ) -> Result<(), SolveError> {
        let (depth, panels) = (self.params.depth, self.params.panels());
        self.take_off(range.start, beside)?;
        let last = range.end - 1;
        for k in range {
            // Columns of the panels before are not written to any more.
            let so_far = |rows| Final { rows, cols: self.local_cols(self.panel_cols(k)).start };
            if depth == 0 {
                let done = so_far(self.rows.count_before(k * self.params.nb, self.grid.myrow));
                self.send_off(k, &mut Turn::alone())?;
                self.finish_newest(beside, done)?;
            }
            let ahead = (depth > 0 && k + depth < panels).then_some(k + depth);
            let mut current = self.work.flights.pop_front().expect("panel k is in flight");
            debug_assert_eq!(current.k, k);
            self.update(&mut current, ahead, beside, k == last)?;
            let rows = if k == last { usize::MAX } else { current.layout.below };
            let cols = self.local_cols(self.panel_cols(k)).end;
            self.work.panels.put_back(current.land()?);
            if ahead.is_some() {
                self.finish_newest(beside, Final { rows, cols })?;
            }
            on_progress((k + 1) * self.params.nb);
        }
        Ok(())
    }

    /// Brings panels `start` .. `start + DEPTH` into flight if none is. At panel 0
    /// their columns wait for each other; at any later cut they are up to date.
    fn take_off(&mut self, start: usize, beside: &mut dyn Beside) -> Result<(), SolveError> {
        if !self.work.flights.is_empty() {
            return Ok(());
        }
        self.work.panels.begin_at(start);
        for next in start..self.params.panels().min(start + self.params.depth) {
            if start == 0 {
                self.bring_up_to_date(next, None)?;
            }
            self.send_off(next, &mut Turn::alone())?;
            let nothing = Final { rows: 0, cols: 0 };
            self.finish_newest(beside, nothing)?;
        }
        Ok(())
    }

    /// Solves U x = y in place of the factored system. Returns this rank's part
    /// of x: one double for each of its columns of A, the same on all ranks of a
    /// process column.
    pub fn back_substitute(&mut self) -> Result<Vec<f64>, SolveError> {
        let start = Instant::now();
        // SAFETY: no other view of the matrix is in use.
        let a = unsafe { self.a.block(0..self.shape.rows, 0..self.shape.cols) };
        let (n, nb) = (self.params.n, self.params.nb);
        let x = back::substitute(self.grid, self.team, n, nb, a.into_ref())?;
        self.work.phases.back += start.elapsed().as_secs_f64();
        Ok(x)
    }

    /// Local columns of the global columns `global`, clipped to those of A.
    fn local_cols(&self, global: Range<usize>) -> Range<usize> {
        let local = |g: usize| self.cols.count_before(g.min(self.params.n), self.grid.mycol);
        local(global.start)..local(global.end)
    }

    /// Global columns of panel `k`.
    fn panel_cols(&self, k: usize) -> Range<usize> {
        let nb = self.params.nb;
        k * nb..((k + 1) * nb).min(self.params.n)
    }

    /// Waits for the newest panel, and looks after what goes on beside meanwhile.
    /// `done` is final.
    fn finish_newest(&mut self, beside: &mut dyn Beside, done: Final) -> Result<(), SolveError> {
        let start = Instant::now();
        if let Some(newest) = self.work.flights.back_mut() {
            let mut look_seconds = 0.0;
            while beside.goes_on() && !newest.has_come(self.grid)? {
                let start = Instant::now();
                // SAFETY: the caller's word.
                unsafe { beside.look_after(done) }?;
                look_seconds = start.elapsed().as_secs_f64();
            }
            // It may have come during the last look.
            beside.kept_waiting(look_seconds);
            newest.finish(self.grid)?;
        }
        self.work.phases.bcast += start.elapsed().as_secs_f64();
        Ok(())
    }

    /// Applies panel `current` to the columns right of those in flight, and
    /// meanwhile advances panel `ahead`, the next one to be in flight.
    /// `beside` goes on meanwhile; if this is the last update before a cut, it is
    /// told of the rows that have it.
    fn update(
        &mut self,
        current: &mut Flight<C>,
        ahead: Option<usize>,
        beside: &mut dyn Beside,
        is_last: bool,
    ) -> Result<(), SolveError> {
        self.keep_u1(current);
        let cols = self.local_cols(self.panel_cols(current.k)).end;
        let done = Final { rows: current.layout.top, cols };
        // SAFETY: rows above the panel's are U, and its columns have their U1.
        unsafe {
            company::keep(beside, done, |turn| self.update_in_turn(current, ahead, turn, is_last))
        }
    }

    fn update_in_turn(
        &mut self,
        current: &mut Flight<C>,
        ahead: Option<usize>,
        turn: &mut Turn,
        is_last: bool,
    ) -> Result<(), SolveError> {
        let first_waiting = (current.k + 1 + self.params.depth).min(self.params.panels());
        let start = self.local_cols(first_waiting * self.params.nb..self.params.n).start;
        let rest = start..self.shape.cols;
        // A rank of one thread lets the next panel go first. A team has it
        // factored by one thread while the others multiply.
        let (before, meanwhile) =
            if self.team.threads() == 1 { (ahead, None) } else { (None, ahead) };
        if let Some(next) = before {
            self.advance(next, current, turn)?;
        }
        let mut exchange = self.work.exchange.take();
        let result = self.apply_to_rest(current, rest, meanwhile, &mut exchange, turn, is_last);
        self.work.exchange = exchange;
        result
    }

    /// What the update needs of a panel.
    fn operands<'a>(&self, flight: &'a Flight<C>) -> Operands<'a> {
        let (layout, data) = (&flight.layout, flight.data());
        Operands {
            l1: layout.l1(data),
            l2: layout.l2(data),
            ipiv: layout.ipiv(data),
            below: layout.below,
        }
    }

    /// Applies a panel to the columns of one other panel.
    fn apply_to_panel_columns(
        &mut self,
        flight: &Flight<C>,
        cols: Range<usize>,
    ) -> Result<(), SolveError> {
        if cols.is_empty() {
            return Ok(());
        }
        let panel = self.operands(flight);
        let mut exchange = self.work.exchange_ahead.take();
        let u = self.exchange_and_solve(flight, cols.clone(), &mut exchange)?;
        let start = Instant::now();
        let rows = self.shape.rows - panel.below;
        // SAFETY: A2 and U share no element; the team works on columns right of all
        // panels in flight, if at all.
        let u = unsafe { u.block(0..flight.layout.jb, 0..cols.len()) }.into_ref();
        for part in cut(0..rows, NARROW_PRODUCT_ROWS) {
            let place = panel.below + part.start..panel.below + part.end;
            // SAFETY: as above.
            let a2 = unsafe { self.a.block(place, cols.clone()) };
            update::multiply(&panel, u, part, a2);
        }
        self.work.phases.update += start.elapsed().as_secs_f64();
        self.work.exchange_ahead = exchange;
        Ok(())
    }

    /// Exchanges rows on the columns `cols` and solves for U there (`jb x cols`):
    /// in A where P = 1, else in `room`, with a copy of this rank's rows in A.
    fn exchange_and_solve<'u>(
        &mut self,
        flight: &Flight<C>,
        cols: Range<usize>,
        room: &'u mut Option<swap::Room>,
    ) -> Result<SharedMat<'u>, SolveError>
    where
        'm: 'u,
    {
        match room {
            Some(room) => self.exchange_and_solve_among(flight, cols, room),
            None => Ok(self.exchange_and_solve_here(flight, cols)),
        }
    }

    /// P > 1.
    fn exchange_and_solve_among<'u>(
        &mut self,
        flight: &Flight<C>,
        cols: Range<usize>,
        room: &'u mut swap::Room,
    ) -> Result<SharedMat<'u>, SolveError>
    where
        'm: 'u,
    {
        let (panel, Layout { j, jb, .. }) = (self.operands(flight), flight.layout);
        let (grid, team, a, width) = (self.grid, self.team, self.a, cols.len());
        let start = Instant::now();
        let plan = Plan::new(j, panel.ipiv, self.rows, grid.myrow);
        let way = swap::Way { swap: self.params.swap, threshold: self.params.swap_threshold };
        // SAFETY: no other thread is on these columns.
        let columns = unsafe { a.block(0..self.shape.rows, cols.clone()) };
        let arrived = swap::exchange(&grid.col, &plan, way, team, columns, room)?;
        let (swapped, share) = (Instant::now(), arrived.share());
        team.split(share.len(), TEAM_GRAIN_COLS, |part| {
            let part = share.start + part.start..share.start + part.end;
            // SAFETY: shares do not overlap, nor do the team's parts of this one.
            let u = unsafe { arrived.u().block(0..jb, part.clone()) };
            update::solve_arrived(&panel, arrived.columns(part), u);
        });
        let u = arrived.solved(&grid.col)?;
        for (local, row, len) in self.rows.stretches(j..j + jb, grid.myrow) {
            // SAFETY: U is only read from here on; these rows of A are its place.
            let (u, mut own) = unsafe {
                (
                    u.block(row - j..row - j + len, 0..width),
                    a.block(local..local + len, cols.clone()),
                )
            };
            (0..len).for_each(|i| own.row_mut(i).copy_from_slice(u.as_ref().row(i)));
        }
        self.count_exchange_and_solve(start, swapped);
        Ok(u)
    }

    /// P = 1: all rows are here. In place, on a few columns at a time.
    fn exchange_and_solve_here(&mut self, flight: &Flight<C>, cols: Range<usize>) -> SharedMat<'m> {
        let (panel, layout) = (self.operands(flight), flight.layout);
        let (a, rows) = (self.a, self.shape.rows);
        let start = Instant::now();
        // On this thread, which has the first part.
        let swap_nanos = AtomicU64::new(0);
        self.team.split(cols.len(), TEAM_GRAIN_COLS, |part| {
            let is_first = part.start == 0;
            for first in part.clone().step_by(EXCHANGE_COLS) {
                let part = first..(first + EXCHANGE_COLS).min(part.end);
                let part = cols.start + part.start..cols.start + part.end;
                let start = Instant::now();
                // SAFETY: no other thread is on these columns.
                let columns = unsafe { a.block(0..rows, part.clone()) };
                swap::exchange_local(columns, layout.top, panel.ipiv);
                if is_first {
                    let nanos = start.elapsed().as_nanos() as u64;
                    swap_nanos.fetch_add(nanos, Ordering::Relaxed);
                }
                // SAFETY: as above.
                update::solve(&panel, unsafe { a.block(layout.top..layout.below, part) });
            }
        });
        self.count_exchange_and_solve(start, start + Duration::from_nanos(swap_nanos.into_inner()));
        // SAFETY: as above; U is only read from here on.
        unsafe { a.block(layout.top..layout.below, cols) }.share()
    }

    fn count_exchange_and_solve(&mut self, start: Instant, swapped: Instant) {
        self.work.phases.swap += (swapped - start).as_secs_f64();
        self.work.phases.update += swapped.elapsed().as_secs_f64();
    }

    /// Applies a panel to the columns `rest`, on all threads. This one first
    /// advances panel `ahead`, if any, and moves messages on between pieces.
    fn apply_to_rest(
        &mut self,
        flight: &Flight<C>,
        rest: Range<usize>,
        ahead: Option<usize>,
        exchange: &mut Option<swap::Room>,
        turn: &mut Turn,
        is_last: bool,
    ) -> Result<(), SolveError> {
        let panel = self.operands(flight);
        self.give_if_alone(turn);
        let u = self.exchange_and_solve(flight, rest.clone(), exchange)?;
        let (team, a, jb) = (self.team, self.a, flight.layout.jb);
        let threads = team.threads();
        let most_rows = self.most_product_rows();
        let rows = self.shape.rows - panel.below;
        let advances = ahead.is_some_and(|next| next % self.grid.q == self.grid.mycol);
        let late = if advances { rows_of_advance(rows, jb, rest.len()) } else { 0 };
        let pieces = row_pieces(rows, threads, late);
        let done: Vec<AtomicBool> = pieces.iter().map(|_| AtomicBool::new(false)).collect();
        let next_piece = AtomicUsize::new(0);
        let take = || {
            let index = next_piece.fetch_add(1, Ordering::Relaxed);
            Some((index, pieces.get(index)?.clone()))
        };
        // Rows, from the first on, that have their product, where `part` has it too.
        let first_waiting = |part: &Range<usize>| {
            let is_done = |done: &AtomicBool| done.load(Ordering::Acquire);
            let waiting = done.iter().position(|done| !is_done(done));
            let start = waiting.map_or(part.end, |piece| pieces[piece].start);
            panel.below + if (part.start..part.end).contains(&start) { part.end } else { start }
        };
        let multiply = |part: Range<usize>| {
            let rows = panel.below + part.start..panel.below + part.end;
            // SAFETY: each piece is taken by one thread; U is only read; what is
            // done meanwhile is on columns left of these.
            unsafe {
                let u = u.block(0..jb, 0..rest.len()).into_ref();
                update::multiply(&panel, u, part, a.block(rows, rest.clone()));
            }
        };
        let job = |_: usize| {
            while let Some((index, piece)) = take() {
                cut(piece, most_rows).for_each(multiply);
                done[index].store(true, Ordering::Release);
            }
        };
        let (start, before) = (Instant::now(), total(&self.work.phases));
        let own_part = || {
            if let Some(next) = ahead {
                self.advance(next, flight, turn)?;
            }
            while let Some((index, piece)) = take() {
                for part in cut(piece.clone(), most_rows) {
                    turn.give();
                    multiply(part.clone());
                    // Who has the turn now moves all messages.
                    if turn.take_if_free() {
                        self.move_messages(flight)?;
                    }
                    if !is_last {
                        continue;
                    }
                    let rows = match first_waiting(&(piece.start..part.end)) {
                        rows if rows == self.shape.rows => usize::MAX,
                        rows => rows,
                    };
                    // SAFETY: these have their last product, and columns left of it
                    // are up to date.
                    unsafe { turn.rows_are_final(rows) };
                }
                done[index].store(true, Ordering::Release);
            }
            turn.give();
            Ok(())
        };
        let result = team.fork(&job, own_part);
        turn.take();
        // What was not the advance was the product, or waiting for its end.
        let advance = total(&self.work.phases) - before;
        self.work.phases.update += start.elapsed().as_secs_f64() - advance;
        result
    }

    fn most_product_rows(&self) -> usize {
        let moves_messages = self.grid.q > 1 && !self.work.shares_panels();
        let alone = self.team.threads() == 1;
        if moves_messages && alone { PRODUCT_ROWS_BETWEEN_MESSAGES } else { PRODUCT_ROWS }
    }

    /// Moves on the messages of the panel that is being applied and of those in flight.
    fn move_messages(&mut self, current: &Flight<C>) -> Result<(), SolveError> {
        current.progress_sends()?;
        self.work.flights.iter_mut().try_for_each(|flight| flight.progress(self.grid))
    }
}

fn total(phases: &Phases) -> f64 {
    phases.panel + phases.swap + phases.bcast + phases.update + phases.back + phases.other
}

/// Rows of the trailing product, `width` columns wide, that take as long as it takes
/// to update the next panel, `rows` long, and to factor it:
///
/// ```text
/// update, at 3/4 of the rate of the product      2 NB^2 rows
/// factorization, at half of the rate               NB^2 rows
/// product on one row                             2 NB width
/// ```
fn rows_of_advance(rows: usize, jb: usize, width: usize) -> usize {
    7 * jb * rows / (3 * width.max(1))
}

/// Cuts the rows of the trailing product into pieces, which are taken one by one.
/// Of a team each thread gets one long piece first, such that all are done with
/// theirs at about the same time; the last of them is for the one who comes late,
/// from the next panel, by the time of `late` rows. The little that is left goes in
/// short ones to whom is free. So there are few pieces, as the BLAS packs U anew for
/// each, and yet nobody waits long at the end.
fn row_pieces(rows: usize, threads: usize, late: usize) -> Vec<Range<usize>> {
    let mut pieces = Vec::new();
    let mut start = 0;
    while start < rows {
        let left = rows - start;
        let share = if threads == 1 {
            left
        } else if pieces.len() < threads {
            let is_last = pieces.len() == threads - 1;
            first_share(rows, threads, late, is_last)
        } else {
            10 * left / (11 * threads)
        };
        let length = share.max(SHORTEST_PIECE_ROWS).next_multiple_of(ROW_GRAIN);
        let end = start + length.min(left);
        pieces.push(start..end);
        start = end;
    }
    pieces
}

/// Rows of the first piece of one of `threads`, two or more: of the last one, who
/// comes late, or of one of the others.
fn first_share(rows: usize, threads: usize, late: usize, is_last: bool) -> usize {
    let share = (rows + late) / threads;
    let share = match (share.checked_sub(late), is_last) {
        (Some(last), true) => last,
        (Some(_), false) => share,
        // All others are done before it comes.
        (None, true) => 0,
        (None, false) => rows / (threads - 1),
    };
    share * FIRST_PERCENT / 100
}

/// Cuts rows into parts of at most `most`, about equally long.
fn cut(rows: Range<usize>, most: usize) -> impl Iterator<Item = Range<usize>> {
    let count = rows.len().div_ceil(most).max(1);
    let length = rows.len().div_ceil(count).next_multiple_of(ROW_GRAIN).max(ROW_GRAIN);
    rows.clone().step_by(length).map(move |start| start..(start + length).min(rows.end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_and_products_cover_all_rows_once_in_order() {
        for rows in [0, 1, 63, 64, 65, 1000, 1024, 1025, 40_000] {
            for (threads, late) in (1..20).flat_map(|threads| [(threads, 0), (threads, 450)]) {
                let pieces = row_pieces(rows, threads, late);
                let parts: Vec<_> =
                    pieces.iter().cloned().flat_map(|piece| cut(piece, PRODUCT_ROWS)).collect();
                assert!(parts.iter().all(|part| !part.is_empty() && part.len() <= PRODUCT_ROWS));
                let ends = parts.iter().map(|part| part.end);
                let starts = parts.iter().skip(1).map(|part| part.start).chain([rows]);
                assert!(parts.first().is_none_or(|first| first.start == 0));
                assert!(rows == 0 || ends.eq(starts));
                assert!(threads > 1 || pieces.len() == usize::from(rows > 0));
            }
        }
    }

    /// Whoever advances the panel is as long at that and its piece as the others
    /// are at theirs.
    #[test]
    fn first_pieces_end_together() {
        for (rows, threads, late) in [(8000, 2, 0), (8000, 2, 450), (8000, 4, 450), (500, 2, 450)] {
            let pieces = row_pieces(rows, threads, late);
            let (last, others) = (pieces[threads - 1].len() + late, &pieces[..threads - 1]);
            let most = rows.div_ceil(50) + ROW_GRAIN + SHORTEST_PIECE_ROWS;
            assert!(others.iter().all(|other| other.len().abs_diff(last) <= most), "{pieces:?}");
            let rest = rows - pieces[threads - 1].end;
            assert!(rest <= rows / 50 && pieces.len() <= threads + 4, "{pieces:?}");
        }
    }

    #[test]
    fn who_comes_too_late_leaves_it_to_the_others() {
        let pieces = row_pieces(40_000, 16, 10_000);
        assert!(pieces[..15].iter().all(|piece| piece.len() >= 40_000 / 16), "{pieces:?}");
        assert!(pieces[15].len() <= SHORTEST_PIECE_ROWS.next_multiple_of(ROW_GRAIN), "{pieces:?}");
    }
}
