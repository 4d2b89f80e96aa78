//! The driver: factor [A|b] and solve (HPL_pdgesv).
//!
//! ```text
//! for each panel k:
//!     A1 = P A1,  U = L1^-1 A1      row exchange and solve             trailing, exchange
//!     A2 = A2 - L2 U                product                            product
//!     at the same time the owner of panel k + DEPTH updates its columns,
//!     factors it, and starts to broadcast L1, L2 and P                 look_ahead
//! back substitution                                          back, substitution
//! ```
//!
//! Between two panels there is a *cut*: before panel k, panels 0 .. k - 1 have been applied to all
//! columns, and the columns of panels k .. k + DEPTH - 1, the look-ahead, are up to date: only
//! their factorization is not in the matrix yet. So the look-ahead continues across a cut, and a
//! run that begins at one, from a checkpoint, factors those panels once more.
//!
//! The local matrix is stored row by row. Row exchanges then stream contiguous memory, and finished
//! rows of U are a prefix of each rank's memory. A panel, which is better stored by columns, is
//! copied into the work space W to be factored, and from there into its message. L is not kept:
//! nothing reads it once its panel has been applied. The numbers of a matrix decide on its pivots,
//! and on whether L is kept ([`Factored`]).
//!
//! Which columns are updated in one call depends on k, on the parameters and on the shapes alone,
//! never on time or on where the loop was interrupted: the solution has the same bits every time.

pub mod abft;
mod back;
mod background;
mod column;
pub mod events;
mod exchange;
mod factored;
pub mod final_part;
pub mod guard;
mod half;
mod local;
mod look_ahead;
mod pace;
mod packing;
pub mod panel;
mod pivoted;
mod product;
mod rates;
mod short_calls;
mod slots;
mod substitution;
mod trailing;
mod unpivoted;
pub mod windows;
mod work;
pub mod wrong;

use std::ops::Range;
use std::thread;

use skt_host::phases::Phases;

use crate::blas::Triangle;
use crate::blas::view::SharedMat;
use crate::grid::Grid;
use crate::pfact::Variant;
use crate::team::Team;
use background::Token;
use column::ColumnMemory;
use events::SolverEvents;
pub use factored::Factored;
use final_part::Reached;
use guard::Background;
use local::Local;
pub use local::LocalShape;
use look_ahead::LookAhead;
pub use pace::CallLimit;
use packing::Packing;
use panel::Panel;
use product::{Product, ProductClock, Unrecorded, advances_first};
pub use rates::{Rate, Rates};
use short_calls::short_ones_keep_bits;
use skt_comm::{CommError, collect};
use skt_host::choice::{Bcast, Swap};
use substitution::Substitution;
use trailing::TrailingExchange;
use wrong::WrongNumbers;

#[derive(Debug, Clone, Copy)]
pub struct Params {
    pub n: usize,
    pub nb: usize,
    /// Panels of the look-ahead.
    pub depth: usize,
    pub bcast: Bcast,
    pub variant: Variant,
    pub swap: Swap,
    /// Local columns above which [`Swap::Mix`] takes spread-roll.
    pub swap_threshold: usize,
    /// Whether ranks on one node read panels and rows in each other's memory.
    pub share: bool,
}

impl Params {
    pub fn panels(&self) -> usize {
        self.n.div_ceil(self.nb)
    }

    /// Columns of A before panel `k`, or all of them for `k` from [`Self::panels`] on.
    pub(crate) fn columns_before(&self, k: usize) -> usize {
        (k * self.nb).min(self.n)
    }

    /// Columns of the widest panel, at least 1.
    fn widest_panel(&self) -> usize {
        self.nb.min(self.n.max(1))
    }
}

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SolveError {
    /// No usable pivot: zero, infinite, or not a number.
    #[error("no usable pivot in column {column}: {value}; the matrix is singular or holds NaN")]
    Pivot {
        /// Global column, from 0.
        column: usize,
        value: f64,
    },
    #[error(transparent)]
    Comm(#[from] CommError),
    #[error("checkpoint before panel {panel}: {why}")]
    Checkpoint {
        /// The panel before which it was to be taken.
        panel: usize,
        why: String,
    },
    /// The checksums contradict the matrix: a number was computed wrong or changed in memory.
    #[error("{0}")]
    Wrong(Box<WrongNumbers>),
    /// The time of the job ends: how far the run has come, and what is kept; on all ranks.
    #[error("{0}")]
    TimeUp(String),
    #[error("no memory for {what}: {why}")]
    Memory {
        /// What the memory was for.
        what: &'static str,
        why: String,
    },
}

impl From<WrongNumbers> for SolveError {
    fn from(wrong: WrongNumbers) -> Self {
        Self::Wrong(Box::new(wrong))
    }
}

fn memory_error(what: &'static str) -> impl Fn(std::io::Error) -> SolveError {
    move |e| SolveError::Memory { what, why: e.to_string() }
}

/// Allocated once: it outlives the cuts between which the matrix is lent to a [`Solver`].
pub struct Workspace<T: Factored = f64> {
    shape: LocalShape<T>,
    look_ahead: LookAhead<T>,
    exchange: TrailingExchange,
    /// U of the trailing columns, where products read it packed.
    packing: Packing<T>,
    /// Whether a second thread progresses messages while this one multiplies.
    has_helper: bool,
    /// The fewest threads of any rank in this process column, from which follows at which point of
    /// a step all of them advance a panel: hosts may differ.
    min_threads: usize,
    phases: Phases,
    rates: Rates,
}

/// The fewest threads of any rank in this process column. Collective in the column.
fn min_threads(grid: &Grid, team: &Team) -> Result<usize, CommError> {
    let mut least = [team.threads() as u64];
    collect::all_reduce(&grid.col, &mut least, u64::min)?;
    Ok(least[0] as usize)
}

impl<T: Factored> Workspace<T> {
    /// For `params` and a `team`, on a rank whose part has `shape`. Collective.
    pub fn new(
        grid: &Grid,
        team: &Team,
        params: &Params,
        shape: LocalShape<T>,
    ) -> Result<Self, SolveError> {
        Self::for_products(grid, team, params, shape, None)
    }

    /// As [`Self::new`], for `products` that round L2 and U, if any do.
    pub fn for_products(
        grid: &Grid,
        team: &Team,
        params: &Params,
        shape: LocalShape<T>,
        products: Option<T::Rounded>,
    ) -> Result<Self, SolveError> {
        T::workspace(grid, team, params, shape, products)
    }

    fn allocate(
        grid: &Grid,
        team: &Team,
        params: &Params,
        shape: LocalShape<T>,
        products: Option<T::Rounded>,
    ) -> Result<Self, SolveError> {
        let min_threads = min_threads(grid, team)?;
        let nb = params.widest_panel();
        let ColumnMemory { candidates, trailing, ahead } =
            ColumnMemory::new(grid, params.share, nb, T::doubles(shape.cols), T::doubles(nb))?;
        let look_ahead = LookAhead::new(grid, params, candidates, ahead, products)?;
        if look_ahead.has_messages(grid) {
            short_ones_keep_bits::<T>(products);
        }
        Ok(Self {
            shape,
            look_ahead,
            exchange: TrailingExchange::new::<T>(grid, params, shape.cols, trailing, products)?,
            packing: Packing::new(products, nb, shape.cols)?,
            has_helper: true,
            min_threads,
            phases: Phases::default(),
            rates: Rates::new(params.n, params.nb),
        })
    }

    pub fn shape(&self) -> LocalShape<T> {
        self.shape
    }

    /// Whether ranks read panels in their owner's memory.
    pub fn shares_panels(&self) -> bool {
        self.look_ahead.is_shared()
    }

    /// Whether ranks read rows and candidates for pivots in each other's memory.
    pub fn shares_rows(&self) -> bool {
        self.exchange.is_shared()
    }

    /// Whether the rows of many columns are exchanged in halves.
    pub fn has_halves(&self) -> bool {
        self.exchange.has_messages()
    }

    /// The time this rank has spent so far, by phase; the caller fills in `other`.
    pub fn phases(&self) -> Phases {
        self.phases
    }

    pub fn rates(&self) -> &Rates {
        &self.rates
    }

    /// Whether messages are in progress during products.
    fn has_messages(&self, local: &Local<T>) -> bool {
        self.look_ahead.has_messages(local.grid) || self.exchange.has_messages()
    }

    /// Applies `panel`, panel k, to all columns right of the look-ahead, at once or in two halves.
    /// During the products panel `newest`, k + DEPTH, is updated, factored and sent, and the rows
    /// of the other half are exchanged and, unless a cut follows, those of the next step.
    ///
    /// One step, with m = k + DEPTH:
    ///
    /// ```text
    ///           process column of panel m       other process columns       waits for
    /// advance   apply panels k .. m - 1 to      receive panel m             owner: rows and pivots
    ///           its columns, factor panel m,                                of its process column
    ///           start to broadcast it
    /// exchange  half 1: rows of U and displaced rows go along the process   rows of half 1
    ///           column, unless step k - 1 has sent them; solve
    ///           U = L1^-1 A1
    /// multiply  half 1: A2 -= L2 U on all threads; between calls of the     nothing
    ///           BLAS the thread with the token forwards panels k + 1 .. m,
    ///           and sends the rows of half 2
    /// exchange  half 2, if there is one: solve U = L1^-1 A1                 late rows of half 2
    /// multiply  half 2: the same, with the rows of half 1 for step k + 1    nothing
    /// then      Solver::factor progresses the checkpoint                    panel m
    /// ```
    ///
    /// With DEPTH 0 there is no panel m: panel k is factored and received before the step.
    /// With one thread, and with a team near the end ([`advances_first`]), all threads of the owner
    /// advance panel m before the first exchange. Otherwise the first thread of the owner does so
    /// at the beginning of the first product, while the other threads multiply, and then joins
    /// them.
    fn apply(
        &mut self,
        local: &Local<T>,
        panel: &Panel<T>,
        newest: Option<usize>,
        cut_follows: bool,
        token: &mut Token,
    ) -> Result<(), SolveError> {
        let has_messages = self.has_messages(local);
        let Self { look_ahead, exchange, packing, phases, rates, min_threads, .. } = self;
        let last_ahead = panel.k + local.params.depth;
        let halves = exchange.halves(local.columns_right_of(last_ahead));
        let next_halves = exchange.halves(local.columns_right_of(last_ahead + 1));
        let may_be_sent = if cut_follows { &[][..] } else { &next_halves };
        let width = halves.first().map_or(0, Range::len);
        let goes_first = advances_first(*min_threads, panel.layout.jb, width);
        let (advance_first, mut advance_overlapped) =
            if goes_first { (newest, None) } else { (None, newest) };
        look_ahead.advance(local, advance_first, panel, token, phases)?;
        local.release_if_alone(token);
        for (half, cols) in halves.iter().enumerate() {
            // A1 = P A1,  U = L1^-1 A1
            let (this_half, mut other_half) = exchange.exchange_on(half, &halves, may_be_sent);
            // SAFETY: no other thread uses the columns right of the look-ahead.
            let u = unsafe { this_half.solve(local, panel, cols.clone(), phases) }?;
            let clock = ProductClock::start(local.grid.all.now(), phases);
            let u = packing.pack(local.team, u);
            // A2 = A2 - L2 U, on all threads; this one advances the newest panel first.
            // SAFETY: during the product the look-ahead writes only left of these columns, and the
            // rows of the other half are only read.
            let product = unsafe {
                Product::new(
                    local,
                    panel,
                    u,
                    cols.clone(),
                    advance_overlapped,
                    has_messages,
                    &Unrecorded,
                )
            };
            let computed = product.compute_overlapped_with(local.team, || {
                look_ahead.advance(local, advance_overlapped, panel, token, phases)?;
                token.messages_are_sent();
                let progress = |token: &Token| {
                    let must_forward = look_ahead.progress(local, panel)?;
                    // SAFETY: the team uses only the columns of this half.
                    if unsafe { other_half.progress(local, panel, look_ahead.front()) }? {
                        token.messages_are_sent();
                    }
                    Ok(must_forward)
                };
                product.compute_between_messages(token, progress, |token, rows| {
                    if half + 1 == halves.len() {
                        token.report(Reached::Multiplied { k: panel.k, rows });
                    }
                })
            });
            token.acquire();
            clock.stop(local.grid.all.now(), phases);
            computed?;
            rates.add(panel.k, product.work());
            advance_overlapped = None;
        }
        Ok(())
    }
}

pub struct Solver<'m, T: Factored = f64> {
    local: Local<'m, T>,
    work: &'m mut Workspace<T>,
}

impl<'m, T: Factored> Solver<'m, T> {
    pub fn new(
        grid: &'m Grid,
        team: &'m Team,
        params: Params,
        shape: LocalShape<T>,
        a: &'m SharedMat<'m, T>,
        work: &'m mut Workspace<T>,
    ) -> Self {
        let (rows, cols) = (grid.rows(params.nb), grid.cols(params.nb));
        Self { local: Local { grid, team, params, a, rows, cols, shape }, work }
    }

    /// Factors panels `range`, from one cut to another. The look-ahead continues across cuts. Calls
    /// [`SolverEvents::columns`] after each panel, and passes `background` the part of the matrix
    /// that will not change before the end of `range`, or of its work if that is later. The calls
    /// down to DGEMM:
    ///
    /// ```text
    /// BackgroundWork::run_overlapped_with, Workspace::apply, Product::compute_overlapped_with
    ///     Product::compute_between_messages      on the thread with the token
    ///     Product::compute                       on the other threads of the team
    /// Product::multiply_rows, product::multiply_part, update::multiply, blas::gemm, ffi::dgemm_
    /// ```
    pub fn factor(
        &mut self,
        range: Range<usize>,
        events: &mut dyn SolverEvents,
        background: &mut dyn Background,
    ) -> Result<(), SolveError> {
        T::factor_panels(self, range, events, background)
    }

    fn factor_panels(
        &mut self,
        range: Range<usize>,
        events: &mut dyn SolverEvents,
        background: &mut dyn Background,
    ) -> Result<(), SolveError> {
        let (local, work, end) = (&self.local, &mut *self.work, range.end);
        let depth = local.params.depth;
        let end_of_work = end.max(background.end());
        let background = &mut local.background_work(background, end_of_work);
        work.look_ahead.begin(local, range.start, background, &mut work.phases)?;
        for k in range {
            // P, L1, L2: panel k leaves the look-ahead, and panel k + DEPTH joins it.
            let panel = work.look_ahead.take(local, k, background, &mut work.phases)?;
            let newest = (depth > 0 && k + depth < local.params.panels()).then_some(k + depth);
            local.store_diagonal(k, panel.operands().l1);
            if T::KEEPS_L {
                local.store_l2(k, panel.operands().l2);
            }
            let is_helped =
                work.has_helper && local.grid.all.needs_calls() && work.has_messages(local);
            let transport = is_helped.then_some(&local.grid.all);
            let helper = thread::Builder::new();
            background.run_overlapped_with(
                helper,
                Reached::Applying { k },
                transport,
                |token| work.apply(local, &panel, newest, k + 1 == end, token),
            )?;
            work.look_ahead.give_back(panel)?;
            if newest.is_some() {
                let step = Reached::Applied { k };
                work.look_ahead.wait_for_newest(local, background, step, &mut work.phases)?;
            }
            background.background.panel_done();
            events.columns(local.params.columns_before(k + 1), &work.rates, &work.phases)?;
        }
        // No message of an exchange is in progress across a cut.
        work.exchange.wait_all()
    }
}

impl Solver<'_, f32> {
    /// Solves L U x = y in double precision with the factors of the matrix. `y` has an element for
    /// each of this rank's rows, the same on all ranks of a process row. Returns this rank's part
    /// of x: one double for each of its columns, the same on all ranks of a process column.
    pub fn solve(&mut self, y: &[f64]) -> Result<Vec<f64>, CommError> {
        let Local { grid, team, params: Params { n, nb, .. }, a, shape, rows, .. } = self.local;
        let cols = &self.local.cols;
        assert_eq!(y.len(), shape.rows, "an element for each row");
        let start = grid.all.now();
        // SAFETY: no other view of the matrix is in use.
        let a = unsafe { a.read(0..shape.rows, 0..shape.cols) };
        let solve = |triangle: Triangle, value: &dyn Fn(usize, usize) -> f64| {
            // The owner of a block begins with all of its right-hand side.
            let mut share = vec![0.0; shape.rows];
            for (local, share) in share.iter_mut().enumerate() {
                let row = rows.global(local, grid.myrow);
                if cols.owner(row) == grid.mycol {
                    *share = value(local, row);
                }
            }
            Substitution { grid, team, n, nb, a, triangle }.solve(share)
        };
        let z = solve(Triangle::UnitLower, &|local, _| y[local])?;
        let x = solve(Triangle::Upper, &|_, row| z[cols.local(row)])?;
        self.work.phases.back += self.local.seconds_since(start);
        Ok(x)
    }
}

impl Solver<'_> {
    /// Solves U x = y on the factored system. Returns this rank's part of x: one double for each of
    /// its columns of A, the same on all ranks of a process column.
    pub fn back_substitute(&mut self) -> Result<Vec<f64>, SolveError> {
        let Local { grid, team, params, a, shape, .. } = &self.local;
        let start = grid.all.now();
        // SAFETY: no other view of the matrix is in use.
        let a = unsafe { a.read(0..shape.rows, 0..shape.cols) };
        let x = back::substitute(grid, team, params.n, params.nb, a)?;
        self.work.phases.back += self.local.seconds_since(start);
        Ok(x)
    }
}
