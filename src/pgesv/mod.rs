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
pub mod panel;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use crate::blas::MatMut;
use crate::blas::view::SharedMat;
use crate::comm::{Comm, CommError, PanelBuf};
use crate::config::{Bcast, Swap};
use crate::grid::{Cyclic, Grid};
use crate::pfact::{self, Variant};
use crate::report::record::Phases;
use crate::swap::{self, Plan};
use crate::team::Team;
use crate::update::{self, Operands, Spent};
use panel::Flight;

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

/// Width of the column tiles in which the trailing update is done, in doubles.
/// Between tiles messages are moved on and threads take the next piece.
const TILE_COLS: usize = 1024;

/// Shape of one rank's part of [A|b].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalShape {
    /// Rows.
    pub rows: usize,
    /// Columns, that of b included where this rank holds it.
    pub cols: usize,
    /// Doubles from one row to the next.
    pub lda: usize,
}

impl LocalShape {
    /// The part of process `(myrow, mycol)`.
    pub fn new(n: usize, rows: Cyclic, cols: Cyclic, myrow: usize, mycol: usize) -> Self {
        let cols = cols.count_before(n + 1, mycol);
        Self { rows: rows.count_before(n, myrow), cols, lda: panel::leading_dimension(cols) }
    }

    /// Doubles of memory.
    pub fn doubles(&self) -> usize {
        self.rows * self.lda
    }

    /// Doubles of work space beside the matrix, for `params` on a grid of `p` rows.
    pub fn work_doubles(&self, params: &Params, rows: Cyclic, myrow: usize) -> usize {
        let message = panel::longest_message(params.n, rows, myrow);
        let nb = params.nb.min(params.n.max(1));
        let exchange = if rows.procs == 1 {
            0
        } else {
            Exchange::doubles(nb, self.cols) + Exchange::doubles(nb, nb)
        };
        message * (params.depth + 1) + exchange
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
    /// Panels that are factored and not yet applied everywhere, in order.
    flights: VecDeque<Flight<C>>,
    /// Buffers of panels, all in use or here.
    buffers: Vec<PanelBuf>,
    pivot_room: pfact::pivot::Room,
    /// P > 1: for the row exchange of the trailing columns.
    exchange: Option<Exchange>,
    /// P > 1: for that of the columns of one panel, meanwhile.
    exchange_ahead: Option<Exchange>,
    phases: Phases,
}

/// Work space of a row exchange, and the rows of U it brings.
struct Exchange {
    room: swap::Room,
    u: PanelBuf,
}

impl Exchange {
    fn new(nb: usize, cols: usize) -> std::io::Result<Self> {
        Ok(Self { room: swap::Room::new(nb, cols)?, u: PanelBuf::new(nb * cols)? })
    }

    fn doubles(nb: usize, cols: usize) -> usize {
        swap::Room::doubles(nb, cols) + nb * cols
    }
}

/// Times of one solution on this rank.
#[derive(Debug, Clone, Copy, Default)]
pub struct Stats {
    /// Where the time went; `other` is for the caller to fill in.
    pub phases: Phases,
}

impl<'m, C: Comm> Solver<'m, C> {
    /// A solver for the local part `a` of [A|b], with all the memory it needs.
    ///
    /// # Errors
    /// When there is no memory for the work space.
    ///
    /// # Panics
    /// When `a` has not the shape that `shape` says.
    pub fn new(
        grid: &'m Grid<C>,
        team: &'m Team,
        params: Params,
        shape: LocalShape,
        a: &'m SharedMat<'m>,
    ) -> Result<Self, SolveError> {
        let (rows, cols) = (grid.rows(params.nb), grid.cols(params.nb));
        let memory =
            |what| move |e: std::io::Error| SolveError::Memory { what, why: e.to_string() };
        let message = panel::longest_message(params.n, rows, grid.myrow);
        // Those in flight, and the one that is being applied.
        let buffers = (0..params.depth + 1)
            .map(|_| PanelBuf::new(message).map_err(memory("panels")))
            .collect::<Result<_, _>>()?;
        let nb = params.nb.min(params.n.max(1));
        let exchange = |cols| {
            let room = (grid.p > 1).then(|| Exchange::new(nb, cols));
            room.transpose().map_err(memory("the row exchange"))
        };
        Ok(Self {
            grid,
            team,
            params,
            a,
            rows,
            cols,
            shape,
            flights: VecDeque::with_capacity(params.depth + 1),
            buffers,
            pivot_room: pfact::pivot::Room::new(nb),
            exchange: exchange(shape.cols)?,
            exchange_ahead: exchange(nb)?,
            phases: Phases::default(),
        })
    }

    /// Number of panels.
    pub fn panels(&self) -> usize {
        self.params.n.div_ceil(self.params.nb)
    }

    /// Factors panels `range`. Before it, panels up to `range.start` have been
    /// applied to all columns; after it, those up to `range.end`: the matrix is
    /// a consistent cut. Tells `on_progress` of each panel applied.
    ///
    /// # Errors
    /// On all ranks alike when a column has no usable pivot.
    pub fn factor(
        &mut self,
        range: Range<usize>,
        on_progress: OnProgress,
    ) -> Result<(), SolveError> {
        let depth = self.params.depth;
        for next in range.start..range.end.min(range.start + depth) {
            self.advance(next)?;
            self.finish_newest()?;
        }
        for k in range.clone() {
            let next = k + depth;
            let ahead = (next < range.end).then_some(next);
            if depth == 0 {
                self.advance(k)?;
                self.finish_newest()?;
            }
            let mut current = self.flights.pop_front().expect("panel k is in flight");
            debug_assert_eq!(current.k, k);
            self.update(&mut current, ahead.filter(|_| depth > 0), &range)?;
            self.buffers.push(current.land()?);
            if depth > 0 && ahead.is_some() {
                self.finish_newest()?;
            }
            on_progress((k + 1) * self.params.nb);
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
        let x = back::substitute(self.grid, self.params.n, self.params.nb, a.into_ref())?;
        self.phases.back += start.elapsed().as_secs_f64();
        Ok(x)
    }

    /// Where this rank's time went so far.
    pub fn stats(&self) -> Stats {
        Stats { phases: self.phases }
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

    fn finish_newest(&mut self) -> Result<(), SolveError> {
        let start = Instant::now();
        if let Some(newest) = self.flights.back_mut() {
            newest.finish(self.grid)?;
        }
        self.phases.bcast += start.elapsed().as_secs_f64();
        Ok(())
    }

    /// Applies panel `current` to all columns that wait for it, and meanwhile
    /// advances panel `ahead`. Columns of panels k+1..=k+DEPTH are brought up to
    /// date one panel at a time, when they are advanced or, where that is not to
    /// be before the end of `range`, here.
    fn update(
        &mut self,
        current: &mut Flight<C>,
        ahead: Option<usize>,
        range: &Range<usize>,
    ) -> Result<(), SolveError> {
        let k = current.k;
        let first_waiting = (k + 1 + self.params.depth).min(self.panels());
        let parked = range.end.max(k + 1)..first_waiting.max(range.end);
        let start = self.local_cols(first_waiting * self.params.nb..self.params.n).start;
        let rest = start..self.shape.cols;
        if self.team.threads() == 1 || rest.is_empty() {
            if let Some(next) = ahead {
                self.advance_with(next, Some(current))?;
            }
            for parked in parked {
                let cols = self.local_cols(self.panel_cols(parked));
                self.apply_to_panel_columns(current, cols)?;
            }
            return self.apply_alone(current, rest);
        }
        for parked in parked {
            let cols = self.local_cols(self.panel_cols(parked));
            self.apply_to_panel_columns(current, cols)?;
        }
        self.apply_as_team(current, rest, ahead)
    }

    /// What the update needs of a panel.
    fn operands<'a>(&self, flight: &'a Flight<C>) -> Operands<'a> {
        let (layout, data) = (&flight.layout, flight.data());
        Operands {
            l1: layout.l1(data),
            l2: layout.l2(data),
            ipiv: layout.ipiv(data),
            top: layout.is_diagonal().then_some(layout.top),
            below: layout.below,
        }
    }

    /// A block of columns of the local matrix.
    ///
    /// # Safety
    /// No column may be in use elsewhere.
    unsafe fn columns(&self, cols: Range<usize>) -> MatMut<'m> {
        // SAFETY: by this function's contract.
        unsafe { self.a.block(0..self.shape.rows, cols) }
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
        // SAFETY: the team works on columns right of all panels in flight, if at all.
        let mut a = unsafe { self.columns(cols.clone()) };
        if self.grid.p == 1 {
            let spent = update::apply_local(&panel, a);
            self.add(spent);
            return Ok(());
        }
        let mut exchange = self.exchange_ahead.take().expect("not in use");
        let start = Instant::now();
        let u = &mut exchange.u[..flight.layout.jb * cols.len()];
        let mut u = MatMut::row_major(u, flight.layout.jb, cols.len(), cols.len());
        self.exchange_rows(flight, a.rb(), u.rb(), &mut exchange.room)?;
        let swapped = Instant::now();
        update::apply_spread(&panel, u, a);
        self.exchange_ahead = Some(exchange);
        self.add(Spent {
            swap: (swapped - start).as_secs_f64(),
            update: swapped.elapsed().as_secs_f64(),
        });
        Ok(())
    }

    fn exchange_rows(
        &self,
        flight: &Flight<C>,
        a: MatMut,
        u: MatMut,
        room: &mut swap::Room,
    ) -> Result<(), SolveError> {
        let layout = &flight.layout;
        let plan = Plan::new(layout.j, layout.ipiv(flight.data()), self.rows, self.grid.myrow);
        let Params { swap, swap_threshold, .. } = self.params;
        Ok(swap::exchange(&self.grid.col, &plan, swap, swap_threshold, a, u, room)?)
    }

    /// Applies a panel to the columns `rest`, on this thread, moving messages
    /// on between tiles.
    fn apply_alone(&mut self, flight: &Flight<C>, rest: Range<usize>) -> Result<(), SolveError> {
        let panel = self.operands(flight);
        if self.grid.p == 1 {
            for tile in tiles(rest) {
                // SAFETY: this thread works alone.
                let spent = update::apply_local(&panel, unsafe { self.columns(tile) });
                self.add(spent);
                self.move_messages()?;
            }
            return Ok(());
        }
        let mut exchange = self.exchange.take().expect("not in use");
        let (jb, width) = (flight.layout.jb, rest.len());
        let u = SharedMat::row_major(&mut exchange.u[..jb * width], jb, width);
        // SAFETY: this thread works alone.
        let (a, all_u) = unsafe { (self.columns(rest.clone()), u.block(0..jb, 0..width)) };
        let start = Instant::now();
        self.exchange_rows(flight, a, all_u, &mut exchange.room)?;
        self.phases.swap += start.elapsed().as_secs_f64();
        for tile in tiles(rest.clone()) {
            let start = Instant::now();
            let in_u = tile.start - rest.start..tile.end - rest.start;
            // SAFETY: this thread works alone.
            unsafe { update::apply_spread(&panel, u.block(0..jb, in_u), self.columns(tile)) };
            self.phases.update += start.elapsed().as_secs_f64();
            self.move_messages()?;
        }
        drop(u);
        self.exchange = Some(exchange);
        Ok(())
    }

    /// Applies a panel to the columns `rest`, tile by tile on all threads, while
    /// this one advances panel `ahead` first.
    fn apply_as_team(
        &mut self,
        flight: &Flight<C>,
        rest: Range<usize>,
        ahead: Option<usize>,
    ) -> Result<(), SolveError> {
        let panel = self.operands(flight);
        let (a, rows, jb) = (self.a, self.shape.rows, flight.layout.jb);
        let tiles: Vec<Range<usize>> = team_tiles(rest.clone(), self.team.threads());
        let next_tile = AtomicUsize::new(0);
        let team = self.team;
        let mut exchange = self.exchange.take();
        let u = match &mut exchange {
            None => None,
            Some(exchange) => {
                let start = Instant::now();
                let width = rest.len();
                let u = SharedMat::row_major(&mut exchange.u[..jb * width], jb, width);
                // SAFETY: the team is not out yet.
                let (a, all_u) = unsafe { (self.columns(rest.clone()), u.block(0..jb, 0..width)) };
                self.exchange_rows(flight, a, all_u, &mut exchange.room)?;
                self.phases.swap += start.elapsed().as_secs_f64();
                Some(u)
            }
        };
        let do_tile = |tile: &Range<usize>| {
            // SAFETY: each tile is taken by one thread, and no other columns are.
            let columns = unsafe { a.block(0..rows, tile.clone()) };
            match &u {
                None => update::apply_local(&panel, columns),
                Some(u) => {
                    let start = Instant::now();
                    let in_u = tile.start - rest.start..tile.end - rest.start;
                    // SAFETY: as above.
                    update::apply_spread(&panel, unsafe { u.block(0..jb, in_u) }, columns);
                    Spent { swap: 0.0, update: start.elapsed().as_secs_f64() }
                }
            }
        };
        let take = || tiles.get(next_tile.fetch_add(1, Ordering::Relaxed));
        let job = |_: usize| {
            while let Some(tile) = take() {
                do_tile(tile);
            }
        };
        let started = Instant::now();
        let before = self.phases;
        let result = team.fork(&job, || {
            if let Some(next) = ahead {
                self.advance_with(next, Some(flight))?;
            }
            while let Some(tile) = take() {
                let spent = do_tile(tile);
                self.add(spent);
                self.move_messages()?;
            }
            Ok::<_, SolveError>(())
        });
        // What this thread waited for the others at the end is update too.
        let accounted = total(&self.phases) - total(&before);
        self.phases.update += (started.elapsed().as_secs_f64() - accounted).max(0.0);
        drop(u);
        self.exchange = exchange;
        result
    }

    fn move_messages(&mut self) -> Result<(), SolveError> {
        self.flights.iter_mut().try_for_each(|flight| flight.progress(self.grid))
    }

    fn add(&mut self, spent: Spent) {
        self.phases.swap += spent.swap;
        self.phases.update += spent.update;
    }
}

fn total(phases: &Phases) -> f64 {
    phases.panel + phases.swap + phases.bcast + phases.update + phases.back + phases.other
}

/// Cuts columns into tiles of [`TILE_COLS`]; a narrow last one joins the one before.
fn tiles(cols: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let count = ((cols.len() + TILE_COLS / 2) / TILE_COLS).max(usize::from(!cols.is_empty()));
    (0..count).map(move |i| {
        let end = if i + 1 == count { cols.end } else { cols.start + (i + 1) * TILE_COLS };
        cols.start + i * TILE_COLS..end
    })
}

/// Cuts columns into tiles of equal width for `threads`: several for each while
/// they stay wide, so that a thread that comes late finds work left.
fn team_tiles(cols: Range<usize>, threads: usize) -> Vec<Range<usize>> {
    const NARROWEST: usize = 128;
    const TILES_PER_THREAD: usize = 4;
    let most = (threads * TILES_PER_THREAD).max(cols.len() / TILE_COLS);
    let count = most.min(cols.len().div_ceil(NARROWEST)).max(1);
    let bound = |i: usize| cols.start + cols.len() * i / count;
    (0..count).map(|i| bound(i)..bound(i + 1)).filter(|tile| !tile.is_empty()).collect()
}
