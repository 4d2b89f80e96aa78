//! The elimination with checksums (algorithm-based fault tolerance): it solves a system through the
//! loss of ranks, without copies of the matrix.
//!
//! Beside the Q process columns that hold the matrix there are m more, which hold sums of the
//! columns of their process row (`groups`, `weights`). All that the elimination does to columns it
//! does to the sums as well. So at each cut any m ranks of a process row can be computed from the
//! others.
//!
//! ```text
//! for each panel k:
//!     P, L1, L2        factored and broadcast
//!     rows that change are copied to the log                    LOGGED(k)
//!  E  A1 = P A1,  U = L1^-1 A1      on all columns              EXCHANGED(k)
//!  G  A2 = A2 - L2 U                in parts, each              BEGUN, DONE
//!     meanwhile panel k + 1 is factored and broadcast
//!     new checksums of the group that ended before k, if one did, have passed    SUMMED(k)
//!  T  a barrier, entered by then and not waited for
//!     T has been entered by all, and says whether any rank wants an image or has noticed
//!     wrong numbers
//!     U1 into the panel's columns                               REST(k + 1)
//!     the new checksums replace the old ones                    renewal
//!     the checksums of a group that ends here are checked       finish_group
//!     the checksums are compared with the matrix, where due     check
//!     an image, where T has said so
//! x, on all ranks                                               SOLVED
//! ```
//!
//! The words on the right are written to memory that outlives the process (`memory`), each when
//! what it says is true. From the words of all ranks `standing` decides to which cut all ranks go,
//! and how; `restore` takes them there. The remaining ranks are compared with the checksums that
//! are not needed to replace what is lost (`check`). Only then is a lost rank's matrix rebuilt, and
//! `left_over` keeps the residual from growing with it. In undisturbed runs, x has the bits of a
//! run without checksums on P x Q.
//!
//! A rank writes SOLVED when all of x is in its memory, and may overwrite A from then on. A lost
//! rank takes x from any such rank; if no remaining rank has written SOLVED, none has overwritten
//! A.

mod check;
mod groups;
mod left_over;
mod memory;
mod relay;
mod renewal;
mod replacement;
mod restore;
mod rounding;
mod standing;
mod weights;

use std::time::Instant;

use skt_terms::phases::{ChecksumCosts, Phases};

pub use check::{CheckEvery, Checked, MendedRank};
use check::{Checks, Doubt, Noticed, Scope};

use super::background::Token;
use super::exchange::RowExchange;
use super::guard::Nothing;
use super::local::{Local, LocalShape};
use super::look_ahead::LookAhead;
use super::pace::{CallLimit, Pace};
use super::panel::Panel;
use super::product::{
    Product, ProductClock, advances_first, multiply_narrow, narrow_parts, short_ones_keep_bits,
};
use super::slots::PanelBuffers;
use super::steps::Reached;
use super::{Params, SolveError, back, memory_error};
use crate::hpl::comm::ibarrier::IBarrier;
use crate::hpl::comm::{Comm, CommError, PanelBuf, collect};
use crate::hpl::grid::{Cyclic, Grid};
use crate::hpl::matgen::{self, Entries};
use crate::machine::blas::view::SharedMat;
use crate::machine::team::Team;
pub use memory::{At, GoOn, Hook, RankMemory, RelayMessages, work_doubles};
use memory::{Decoded, Journal, LOOK, Places, Recorded, Sizes, State};
use relay::Relay;
pub use replacement::work_doubles_after_replacement;
pub use replacement::{Absent, grid_without};
use restore::Step;
pub use standing::Refusal;
use standing::{
    Action, Decision, MemoryReport, ReportWords, decide, decoded, lost, newest_start,
    refuse_elsewhere,
};
pub use weights::{MOST_CHECKSUMS, Weights};

/// Most panels of the look-ahead. With more, panels would be applied to columns in the look-ahead
/// before they are applied to the checksums of their group.
pub const MOST_DEPTH: usize = 1;

/// Why a system has no solution.
#[derive(Debug, thiserror::Error)]
pub enum AbftError {
    /// The solver's error, as without checksums.
    #[error(transparent)]
    Solve(#[from] SolveError),
    /// The memory of the ranks is not enough to resume from.
    #[error("{0}")]
    Refused(Refusal),
}

impl From<CommError> for AbftError {
    fn from(error: CommError) -> Self {
        Self::Solve(error.into())
    }
}

/// Callbacks about the progress of a solution, on every rank.
pub trait Watcher {
    /// Called when all ranks are at a cut, before they continue from it. Collective.
    ///
    /// # Errors
    /// When a rank is lost.
    fn begins(&mut self, _: &Beginning) -> Result<(), SolveError> {
        Ok(())
    }

    /// Called with the number of eliminated columns.
    fn columns(&mut self, _: usize) {}

    /// Fault injection: the element to corrupt and the bit to flip. The element is in this rank's
    /// part of the columns that are not eliminated before panel `cut`.
    fn flip(&mut self, _cut: usize) -> Option<Flip> {
        None
    }

    /// Whether this rank wants the system of the next cut to be kept, in files for instance. If any
    /// rank does, all keep it.
    fn wants_image(&mut self) -> bool {
        false
    }

    /// Called when all ranks are at the cut before panel `cut`, some rank wants it to be kept, and
    /// the checksums do not contradict the matrix (or are never compared). The first
    /// [`image_doubles`] of the memory of each rank are to be kept; nothing writes to them before
    /// this returns. Collective.
    ///
    /// # Errors
    /// When a rank is lost.
    fn keep_image(&mut self, _cut: usize) -> Result<(), SolveError> {
        Ok(())
    }

    /// Called when the checksums have replaced a process column, and its finished part of U is
    /// decoded: with the bytes on a rank and the seconds it took, the most of any rank.
    fn decoded(&mut self, _bytes: u64, _seconds: f64) {}

    /// Called when the checksums have been compared with the matrix.
    fn checked(&mut self, _: Checked) {}

    /// Called before the back substitution.
    fn back_substitutes(&mut self) {}

    /// Called when this rank has x, before it stores it: with the time of each phase, and the part
    /// of `other` that checksums took.
    fn has_x(&mut self, _: Phases, _: ChecksumCosts) {}
}

/// A bit of an element that flips.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flip {
    /// The element's row among the rank's rows, and its column from the first one that is not
    /// eliminated; each modulo their number.
    pub place: (usize, usize),
    /// The bit, 0 to 63.
    pub bit: u32,
}

impl<F: FnMut(usize)> Watcher for F {
    fn columns(&mut self, done: usize) {
        self(done);
    }
}

/// Where a start resumes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Beginning {
    /// The panel at which all ranks resume.
    pub panel: usize,
    /// The ranks of the grid that were rebuilt.
    pub rebuilt: Vec<usize>,
    /// The process column that the checksums have replaced, if any.
    pub replaced: Option<usize>,
    /// How many ranks took back what they had computed of that panel.
    pub undone: usize,
    /// Whether x is known already.
    pub is_solved: bool,
    /// The process rows with data that was decoded and could not be checked, in this start or
    /// earlier.
    pub unverified: Vec<Unverified>,
}

/// A process row of which something was decoded while no checksum was left to check with. An error
/// that the rest of the row had by then is in what was decoded, and in x.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unverified {
    /// The process row.
    pub row: usize,
    /// The eliminated columns at the first such decoding and at the last.
    pub columns: (usize, usize),
}

/// Doubles of memory that a rank of process row `myrow` needs, whose part of the system has
/// `shape`; at most `usize::MAX`.
pub fn doubles(params: &Params, rows: Cyclic, myrow: usize, shape: LocalShape) -> usize {
    Sizes::new(params, rows, myrow, shape).doubles()
}

/// How many of the [`doubles`], from the first on, matter at a cut; the others need not be kept.
pub fn image_doubles(params: &Params, rows: Cyclic, myrow: usize, shape: LocalShape) -> usize {
    Sizes::new(params, rows, myrow, shape).a_range().end
}

/// A system to be solved, on one rank of a grid with checksums.
#[derive(Clone, Copy)]
pub struct System<'s, C: Comm> {
    /// The grid, with as many checksum columns as `weights` has.
    pub grid: &'s Grid<C>,
    /// The threads of this rank.
    pub team: &'s Team,
    /// The parameters of the solution; DEPTH is at most [`MOST_DEPTH`].
    pub params: Params,
    /// The weights of the checksums.
    pub weights: &'s Weights,
    /// The entries of [A|b].
    pub entries: Entries<'s>,
    /// A number that distinguishes these entries from others.
    pub entries_id: u64,
    /// How often the checksums are compared with the matrix.
    pub check: CheckEvery,
    /// The sizes of the messages of sums along a process row.
    pub relay_messages: RelayMessages,
    /// How long a BLAS call may take that leaves the memory torn if a process dies in it.
    pub calls: CallLimit,
}

/// The solution of a system.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Solution {
    /// All of x.
    pub x: Vec<f64>,
    /// The panel that the factorization resumed from, if it did not begin at the start.
    pub resumed: Option<usize>,
    /// The ranks of the grid that were rebuilt.
    pub rebuilt: Vec<usize>,
    /// The process column that the checksums have replaced, if any.
    pub replaced: Option<usize>,
    /// The process rows with data that was decoded and could not be checked.
    pub unverified: Vec<Unverified>,
}

/// The ranks whose memory is lost.
struct Lost {
    /// Their numbers in the grid.
    ranks: Vec<usize>,
    /// Whether each rank is lost, by process row and process column.
    by_place: Vec<Vec<bool>>,
    /// The decodings in each process row so far.
    decoded: Vec<Decoded>,
}

impl Lost {
    /// The process rows with data that was decoded and could not be checked.
    fn unverified(&self, params: &Params) -> Vec<Unverified> {
        let columns =
            |cuts: (usize, usize)| (params.columns_before(cuts.0), params.columns_before(cuts.1));
        let of_rows = self.decoded.iter().enumerate();
        let of_row = |(row, decoded): (usize, &Decoded)| {
            Some(Unverified { row, columns: columns(decoded.unverified?) })
        };
        of_rows.filter_map(of_row).collect()
    }
}

impl<'s, C: Comm> System<'s, C> {
    fn shape(&self) -> LocalShape {
        let (nb, grid) = (self.params.nb, self.grid);
        let (rows, cols) = (grid.rows(nb), grid.cols(nb));
        LocalShape::new(self.params.n, rows, cols, grid.myrow, grid.layout_col())
    }

    fn sizes(&self) -> Sizes {
        let rows = self.grid.rows(self.params.nb);
        Sizes::new(&self.params, rows, self.grid.myrow, self.shape())
    }

    /// Doubles of memory that this rank needs, which outlive its process; at most `usize::MAX`.
    pub fn doubles(&self) -> usize {
        self.sizes().doubles()
    }

    /// A of this rank, in its memory.
    pub fn matrix<'a>(&self, memory: &'a mut RankMemory<'_>) -> &'a mut [f64] {
        memory.slice_mut(self.sizes().a_range())
    }

    /// A number that distinguishes this system, and the rank's position in it, from others; never
    /// 0.
    fn form(&self) -> u64 {
        let Params { n, nb, depth, .. } = self.params;
        let &Grid { p, q, checksums, myrow, mycol, .. } = self.grid;
        let numbers = [n, nb, depth, p, q, checksums, myrow, mycol].map(|number| number as u64);
        let weights = (0..checksums).flat_map(|s| self.weights.of(s));
        let words = numbers.into_iter().chain(weights.map(|weight| weight.to_bits()));
        memory::form_of(words.chain([self.entries_id]))
    }

    /// Solves the system, from its entries or from what is in the `memory` of the ranks. The memory
    /// is all zeros, or as an earlier start left it when it died, at whatever instant. It may be
    /// used for anything else once this function has returned.
    ///
    /// `start_id` must differ from start to start of a run; that of rank 0 counts. `hook` is asked
    /// before each change of the memory. Collective over the grid.
    ///
    /// # Errors
    /// A refusal, the same on all ranks, when too much is lost; nothing has been changed then. On
    /// all ranks alike when a column has no usable pivot. When a rank is lost.
    ///
    /// # Panics
    /// When the memory does not have [`Self::doubles`], when DEPTH is neither 0 nor 1, or when the
    /// weights are not of this grid.
    pub fn solve(
        &self,
        memory: &mut RankMemory<'_>,
        start_id: u32,
        hook: &dyn Hook,
        watcher: &mut dyn Watcher,
    ) -> Result<Solution, AbftError> {
        let (grid, shape) = (self.grid, self.shape());
        assert!(self.params.depth <= MOST_DEPTH, "DEPTH {}", self.params.depth);
        let weights = (self.weights.columns(), self.weights.checksums());
        assert_eq!(weights, (grid.q, grid.checksums), "weights of this grid");
        let mut places = Places::new(memory, &self.sizes(), shape);
        let mut journal = places.journal(hook);
        let (decision, mut lost) = self.open(&mut journal, start_id, &[])?;
        let mut solution = Solution::default();
        if let Decision::Solved { from } = decision {
            solution = self.take_x(&mut places, from, &lost, watcher)?;
        } else {
            let local = self.local(&places.a);
            let mut relay = Relay::new(&local, &places, &journal, self.relay_messages)?;
            let pace = Pace::new(self.calls);
            let (mut from, mut undone) = (0, 0);
            if let Decision::GoTo { cut, actions } = decision {
                let action = actions[grid.all.rank()];
                restore::go_to(&local, &places, (&journal, &pace), cut, action)?;
                let work = (&local, &places, &journal);
                note_wrong(
                    &journal,
                    self.check_and_rebuild(work, &mut relay, &mut lost, cut, watcher),
                )?;
                from = cut;
                undone = actions.iter().filter(|action| **action == Action::Undo).count();
                solution.resumed = Some(cut);
                solution.rebuilt.clone_from(&lost.ranks);
                solution.unverified = lost.unverified(&self.params);
            } else {
                journal.set(State::Rest(0))?;
                self.generate(&local);
            }
            // No rank continues while another may still have data of an earlier start.
            grid.all.barrier()?;
            let (rebuilt, unverified) = (solution.rebuilt.clone(), solution.unverified.clone());
            let beginning =
                Beginning { panel: from, rebuilt, undone, unverified, ..Beginning::default() };
            let checks = Checks::new(self.check, from, solution.resumed.is_none());
            let (words, checks) = ((&journal, &pace), (self.weights, checks));
            let mut run = Run::new(&local, &places, words, relay, checks, from)?;
            // All memory is allocated: the clock may start.
            watcher.begins(&beginning)?;
            let factored = run.factor_or_tell(from, watcher);
            note_wrong(&journal, factored)?;
            let mut phases = run.phases;
            watcher.back_substitutes();
            let start = Instant::now();
            solution.x = back_substitute(&local)?;
            phases.back = start.elapsed().as_secs_f64();
            watcher.has_x(phases, run.costs);
        }
        keep_x(&mut places, &journal, &solution.x)?;
        Ok(solution)
    }

    /// Why the ranks cannot resume from what is in their `memory`, or that they have nothing of the
    /// elimination there; `None` if they can. Changes nothing, with one exception: if one rank
    /// knows that the checksums have contradicted the matrix, all write it down, as that rank's
    /// memory may be removed first. Collective over the grid.
    ///
    /// # Errors
    /// When a rank is lost.
    ///
    /// # Panics
    /// When the memory does not have [`Self::doubles`].
    pub fn refusal(&self, memory: &mut RankMemory<'_>) -> Result<Option<Refusal>, SolveError> {
        let places = Places::new(memory, &self.sizes(), self.shape());
        let journal = places.journal(&GoOn);
        let (reports, _) = self.tell(&journal, 0, &[])?;
        match decide(&reports, self.grid.checksums) {
            Ok(Decision::Begin) => Ok(Some(Refusal::Nothing)),
            Ok(Decision::GoTo { .. } | Decision::Solved { .. }) => Ok(None),
            Err(refusal) => {
                if matches!(refusal, Refusal::Wrong { .. }) {
                    journal.set_wrong(true)?;
                }
                Ok(Some(refusal))
            }
        }
    }

    /// This rank's part of the system, in `a`.
    fn local<'l>(&'l self, a: &'l SharedMat<'l>) -> Local<'l, C> {
        let (grid, team, shape) = (self.grid, self.team, self.shape());
        let (rows, cols) = (grid.rows(self.params.nb), grid.cols(self.params.nb));
        // Memory that ranks share on a node does not outlive them.
        let params = Params { share: false, ..self.params };
        Local { grid, team, params, a, rows, cols, shape }
    }

    /// Rebuilds what is lost at the cut before panel `cut`, to which all other ranks have gone,
    /// once these agree with the checksums that are not needed for it. Collective.
    ///
    /// # Errors
    /// [`SolveError::Wrong`] on all ranks, where they do not agree and cannot be mended: nothing is
    /// decoded then. On a rank that would change by more than rounding. When a rank is lost.
    fn check_and_rebuild(
        &self,
        (local, places, journal): (&Local<C>, &Places, &Journal),
        relay: &mut Relay<C>,
        lost: &mut Lost,
        cut: usize,
        watcher: &mut dyn Watcher,
    ) -> Result<(), SolveError> {
        if lost.ranks.is_empty() {
            return Ok(());
        }
        let (work, number) = ((local, places, journal), self.grid.all.rank());
        let unit = self.check_left(work, relay, lost, (cut, number), watcher)?;
        let (weights, by_place) = (self.weights, &lost.by_place);
        let panels = restore::rebuild(local, relay, journal, weights, by_place, (cut, unit))?;
        left_over::eliminate(local, places, journal, &panels, cut)
    }

    /// Checks the remaining ranks before anything is decoded from them at this cut, unless checks
    /// are off. Writes down that something is about to be decoded, and whether it is checked.
    /// Returns the unit of rounding of this process row; infinite where it was not checked.
    /// `number` is this rank's in the whole grid. Collective.
    ///
    /// After a death before the word is written, the next start checks again; after one with the
    /// word, it mends nothing until a check has agreed.
    fn check_left(
        &self,
        (local, places, journal): (&Local<C>, &Places, &Journal),
        relay: &mut Relay<C>,
        lost: &mut Lost,
        (cut, number): (usize, usize),
        watcher: &mut dyn Watcher,
    ) -> Result<f64, SolveError> {
        let Grid { q, myrow, .. } = *self.grid;
        let is_seen = |row: &Vec<bool>| restore::equations_left(row, q) > 0;
        let is_checked = self.check != CheckEvery::Never && lost.by_place.iter().any(is_seen);
        let mut unit = f64::INFINITY;
        if is_checked {
            journal.step(LOOK, cut)?;
            let (decoded, lost) = (lost.decoded[myrow], &lost.by_place[myrow]);
            let scope = Scope { cut, lost, with_left_over: true, decoded, number };
            let (found, of_row) = check::check(local, places, self.weights, relay, &scope)?;
            watcher.checked(found);
            unit = of_row;
        }
        restore::to_be_decoded(&mut lost.decoded, &lost.by_place, q, cut, is_checked);
        journal.set_decoded(lost.decoded[myrow])?;
        Ok(unit)
    }

    /// Takes x from rank `from`, which has it. Collective.
    fn take_x(
        &self,
        places: &mut Places,
        from: usize,
        lost: &Lost,
        watcher: &mut dyn Watcher,
    ) -> Result<Solution, SolveError> {
        let mut x = places.x_mut().to_vec();
        collect::broadcast(&self.grid.all, &mut x, from)?;
        let (panel, unverified) = (self.params.panels(), lost.unverified(&self.params));
        let resumed = Some(panel);
        let solution = Solution { x, resumed, unverified, ..Solution::default() };
        let unverified = solution.unverified.clone();
        watcher.begins(&Beginning {
            panel,
            is_solved: true,
            unverified,
            ..Beginning::default()
        })?;
        Ok(solution)
    }

    /// Gathers the reports of all ranks about their memories, in the order of their numbers in the
    /// whole grid, and the start id of the first one. Collective.
    fn tell(
        &self,
        journal: &Journal,
        start_id: u32,
        absent: &[Absent],
    ) -> Result<(Vec<MemoryReport>, u32), CommError> {
        let (grid, form) = (self.grid, self.form());
        let (joined, confirmed) = journal.starts();
        let (_, state_start) = State::of_word(journal.state_word());
        let is_foreign = ![0, form].contains(&journal.form());
        let mine = ReportWords {
            row: grid.myrow as u64,
            col: grid.mycol as u64,
            is_foreign: u64::from(is_foreign),
            joined,
            confirmed,
            state: journal.state_word(),
            is_torn: u64::from(journal.is_torn()),
            start_id: u64::from(start_id),
            is_wrong: u64::from(journal.is_wrong()),
            is_summing: u64::from(renewal::is_under_way(journal, grid.q)),
            decoded: journal.decoded().word(),
        };
        debug_assert!(state_start <= confirmed >> 32 || is_foreign);
        let all = collect::all_gather_bytes(&grid.all, bytemuck::bytes_of(&mine))?;
        let all: Vec<ReportWords> = all.iter().map(|b| bytemuck::pod_read_unaligned(b)).collect();
        let mut reports: Vec<MemoryReport> = all.iter().map(ReportWords::report).collect();
        for &Absent { rank, row, col } in absent {
            reports.insert(rank, MemoryReport::of_absent(row, col));
        }
        Ok((reports, all[0].start_id as u32))
    }

    /// Reports this rank's memory to the others, decides with them, and joins the start. Returns
    /// the decision, and what is lost. `absent` has the ranks that no process has, in order; they
    /// are all of one process column.
    fn open(
        &self,
        journal: &mut Journal,
        start_id: u32,
        absent: &[Absent],
    ) -> Result<(Decision, Lost), AbftError> {
        let grid = self.grid;
        let (reports, start_id) = self.tell(journal, start_id, absent)?;
        let decision = decide(&reports, grid.checksums).map_err(AbftError::Refused)?;
        if let Some(absent) = absent.first() {
            refuse_elsewhere(&reports, &decision, absent.col).map_err(AbftError::Refused)?;
        }
        let (lost, newest) = (lost(&reports), newest_start(&reports));
        let decoded = decoded(&reports);
        let me = reports.iter().position(|at| (at.row, at.col) == (grid.myrow, grid.mycol));
        let me = me.expect("this rank has reported");
        if lost[me] {
            let cut = match decision {
                Decision::Begin => 0,
                Decision::GoTo { cut, .. } => cut,
                Decision::Solved { .. } => self.params.panels(),
            };
            journal.set(State::Hollow(cut))?;
            journal.set_wrong(false)?;
            journal.set_summed(None)?;
            journal.set_form(self.form())?;
        } else if journal.starts().1 != newest {
            // It had joined that start, which other ranks have followed.
            journal.confirm(newest)?;
        }
        let last = reports.iter().map(|report| report.joined.max(report.confirmed) >> 32).max();
        let number = last.expect("a rank") + 1;
        let start_key = number << 32 | u64::from(start_id);
        journal.join(start_key)?;
        // A rank that follows a start may change its memory: a rank that has not joined must not
        // pass for one that has changed with the others.
        grid.all.barrier()?;
        journal.confirm(start_key)?;
        journal.start = number;
        // From here on a lost rank has the word of its process row.
        journal.set_decoded(decoded[grid.myrow])?;
        let mut by_place = vec![vec![false; grid.q + grid.checksums]; grid.p];
        reports.iter().zip(&lost).for_each(|(at, &lost)| by_place[at.row][at.col] = lost);
        let ranks = (0..lost.len()).filter(|&rank| lost[rank]).collect();
        Ok((decision, Lost { ranks, by_place, decoded }))
    }

    /// Generates this rank's part of the system.
    fn generate(&self, local: &Local<C>) {
        let Params { n, nb, .. } = self.params;
        let (grid, team, entries) = (self.grid, self.team, self.entries);
        // SAFETY: no other thread uses A.
        let a = unsafe { local.a.block(0..local.shape.rows, 0..local.shape.cols) };
        match grid.mycol.checked_sub(grid.q) {
            None => matgen::generate_columns(grid, team, nb, entries, a),
            Some(s) => {
                matgen::generate_checksum(grid, team, (n, nb), self.weights.of(s), entries, a);
            }
        }
    }
}

/// Writes down that the checksums have contradicted the matrix, if `result` says so.
fn note_wrong<T>(journal: &Journal, result: Result<T, SolveError>) -> Result<T, SolveError> {
    if let Err(SolveError::Wrong(_)) = result {
        journal.set_wrong(true)?;
    }
    result
}

/// Solves U x = y. Returns all of x, on all ranks.
fn back_substitute<C: Comm>(local: &Local<C>) -> Result<Vec<f64>, SolveError> {
    let Local { grid, team, params: Params { n, nb, .. }, cols, .. } = *local;
    let mut mine = Vec::new();
    if !grid.is_checksum() {
        // SAFETY: no thread writes to A.
        let a = unsafe { local.a.read(0..local.shape.rows, 0..local.shape.cols) };
        mine = back::substitute(grid, team, n, nb, a)?;
    }
    let parts = collect::all_gather_bytes(&grid.row, bytemuck::cast_slice(&mine))?;
    let parts: Vec<Vec<f64>> =
        parts.iter().map(|part| bytemuck::allocation::pod_collect_to_vec(part)).collect();
    Ok((0..n).map(|j| parts[cols.owner(j)][cols.local(j)]).collect())
}

/// Stores x in the memory that outlives the process.
fn keep_x(places: &mut Places, journal: &Journal, x: &[f64]) -> Result<(), SolveError> {
    journal.step("x", x.len())?;
    places.x_mut().copy_from_slice(x);
    journal.set(State::Solved)
}

/// The factorization on one rank, and its work space outside the memory that outlives the process.
struct Run<'r, C: Comm> {
    local: &'r Local<'r, C>,
    places: &'r Places<'r>,
    journal: &'r Journal<'r>,
    /// The speed of BLAS calls for the product.
    pace: &'r Pace,
    look_ahead: LookAhead<C>,
    /// The exchange on the columns of the next panel, and on the rest.
    exchanges: [RowExchange<C>; 2],
    barrier: IBarrier<C>,
    relay: Relay<'r, 'r, C>,
    weights: &'r Weights,
    checks: Checks,
    /// What is wrong in this rank's checksums of the last finished group. Other ranks do not know
    /// it yet.
    noticed: Option<Noticed>,
    phases: Phases,
    costs: ChecksumCosts,
}

impl<'r, C: Comm> Run<'r, C> {
    /// Prepares to factor from panel `from` on.
    fn new(
        local: &'r Local<'r, C>,
        places: &'r Places<'r>,
        (journal, pace): (&'r Journal<'r>, &'r Pace),
        relay: Relay<'r, 'r, C>,
        (weights, checks): (&'r Weights, Checks),
        from: usize,
    ) -> Result<Self, SolveError> {
        let (grid, params) = (local.grid, local.params);
        // SAFETY: this run has the memory for as long as the buffers exist. A panel and its U are
        // read only between being received or solved for and being overwritten, see `Step`.
        let (panels, [u_next, u_rest]) =
            unsafe { (places.panel_buffers(from), places.u_buffers()) };
        let w = match grid.is_checksum() {
            true => PanelBuf::new(0).map_err(memory_error("the panel"))?,
            // SAFETY: the same, and ranks with data receive no sums.
            false => unsafe { places.w_buffer() },
        };
        let buffers = PanelBuffers::Messages(panels.into());
        let nb = params.widest_panel();
        short_ones_keep_bits();
        let next = RowExchange::with_u(grid.p, nb, nb, || Ok(u_next))?;
        let rest = RowExchange::with_u(grid.p, nb, local.shape.cols, || Ok(u_rest))?;
        // Rows are exchanged on all columns at once, so the look-ahead exchanges none.
        let look_ahead = LookAhead::with_buffers(&params, buffers, w, None, RowExchange::InPlace);
        Ok(Self {
            local,
            places,
            journal,
            pace,
            look_ahead,
            exchanges: [next, rest],
            barrier: IBarrier::new()?,
            relay,
            weights,
            checks,
            noticed: None,
            phases: Phases::default(),
            costs: ChecksumCosts::default(),
        })
    }

    /// Calls [`Self::factor`], and completes the messages of sums. Wrong numbers that a rank has
    /// noticed take precedence over a column without a pivot, which they may have caused.
    fn factor_or_tell(&mut self, from: usize, watcher: &mut dyn Watcher) -> Result<(), SolveError> {
        let factored = self.factor(from, watcher);
        match &factored {
            // All ranks get this error at the same panel, so messages of sums can be completed.
            Err(SolveError::Pivot { column, .. }) => {
                self.relay.wait_all()?;
                self.tell_noticed(column / self.local.params.nb)?;
            }
            Err(SolveError::TimeUp { .. } | SolveError::Wrong(_)) => self.relay.wait_all()?,
            Ok(()) | Err(_) => {}
        }
        factored
    }

    /// Factors from panel `from` to the end.
    fn factor(&mut self, from: usize, watcher: &mut dyn Watcher) -> Result<(), SolveError> {
        let local = self.local;
        let panels = local.params.panels();
        let mut nothing = Nothing;
        let watch = &mut local.watch(&mut nothing, panels);
        self.arrive(from, false, watcher)?;
        self.look_ahead.begin(local, from, watch, &mut self.phases)?;
        for k in from..panels {
            let panel = self.look_ahead.take(local, k, watch, &mut self.phases)?;
            // SAFETY: the next panel uses the other buffer, and the one after it uses this buffer
            // when this panel has been given back.
            let step = unsafe { Step::new(local, self.places, k) };
            self.exchange(&panel, &step)?;
            let next = (local.params.depth > 0 && k + 1 < panels).then_some(k + 1);
            let wants_image = watcher.wants_image();
            self.multiply(&panel, &step, next, wants_image)?;
            if next.is_some() {
                let applied = Reached::Applied { k };
                self.look_ahead.wait_for_newest(local, watch, applied, &mut self.phases)?;
            }
            // Until all ranks have exchanged their rows, some rank may have to go back. T also says
            // whether any rank wants an image or has noticed wrong numbers.
            let keeps_image = self.barrier.wait(&local.grid.all)?;
            self.journal.step("u1", k)?;
            local.store_u1(k, step.panel.l1);
            self.journal.set(State::Rest(k + 1))?;
            self.look_ahead.give_back(panel)?;
            self.arrive(k + 1, keeps_image, watcher)?;
            watcher.columns(local.params.columns_before(k + 1));
        }
        self.relay.wait_all()?;
        self.costs.sum_seconds = self.relay.taken().as_secs_f64();
        // The sums of the last group have passed since the last check.
        if groups::is_group_end(panels, local.grid.q) { self.tell_noticed(panels) } else { Ok(()) }
    }

    /// Ends the run on all ranks if one of them has noticed wrong numbers in the last finished
    /// group. Collective, at the cut before panel `cut`.
    ///
    /// # Errors
    /// [`SolveError::Wrong`] on all ranks, if any rank has noticed wrong numbers. When a rank is
    /// lost.
    fn tell_noticed(&mut self, cut: usize) -> Result<(), SolveError> {
        let Self { local, places, journal, weights, ref mut relay, noticed, .. } = *self;
        let (is_any, decoded) = (noticed.is_some() || relay.noticed().is_some(), journal.decoded());
        let mut any = [is_any, decoded.is_unchecked, decoded.has_been].map(u8::from);
        collect::all_reduce(&local.grid.all, &mut any, u8::max)?;
        let [is_any, is_unchecked, was_decoded] = any.map(|any| any != 0);
        if !is_any {
            return Ok(());
        }
        // The sums that are still in progress may show more.
        relay.wait_all()?;
        let noticed = noticed.into_iter().chain(relay.noticed()).reduce(Noticed::and);
        let column = local.params.columns_before(cut);
        let doubt = Doubt { is_unchecked, was_decoded };
        Err(check::refuse_noticed(local, places, weights, (noticed, doubt), column)?)
    }

    /// Does all work at the cut before panel `cut` that is not part of the elimination.
    /// `keeps_image`: some rank wants an image of it, or has noticed wrong numbers; then the run
    /// ends here, without an image.
    fn arrive(
        &mut self,
        cut: usize,
        keeps_image: bool,
        watcher: &mut dyn Watcher,
    ) -> Result<(), SolveError> {
        if keeps_image {
            // The new sums may have the wrong numbers, and are still beside A.
            self.tell_noticed(cut)?;
        }
        renewal::store(self.local, self.places, self.journal, cut)?;
        self.finish_group(cut)?;
        if let Some(flip) = watcher.flip(cut) {
            self.flip(cut, flip);
        }
        self.check(cut, keeps_image, watcher)?;
        if keeps_image {
            watcher.keep_image(cut)?;
        }
        Ok(())
    }

    /// Compares the checksums with the matrix before panel `cut`, if a check is due or an image is
    /// to be kept: no image may have a matrix that the checksums contradict.
    fn check(
        &mut self,
        cut: usize,
        keeps_image: bool,
        watcher: &mut dyn Watcher,
    ) -> Result<(), SolveError> {
        let is_due = self.checks.is_due(self.local, self.places, cut)?;
        if !is_due && (!keeps_image || self.checks.are_off()) {
            return Ok(());
        }
        if groups::is_group_end(cut, self.local.grid.q) {
            self.tell_noticed(cut)?;
        }
        let Self { local, places, journal, weights, relay, checks, costs, .. } = self;
        let start = Instant::now();
        let (decoded, nobody) = (journal.decoded(), vec![false; local.grid.row.size()]);
        let number = local.grid.all.rank();
        let scope = Scope { decoded, number, ..Scope::whole(cut, &nobody) };
        let (found, _) = check::check(local, places, weights, relay, &scope)?;
        journal.set_decoded(Decoded { is_unchecked: false, ..decoded })?;
        let took = start.elapsed();
        costs.check_seconds += took.as_secs_f64();
        checks.done(cut, took);
        watcher.checked(found);
        Ok(())
    }

    fn flip(&self, cut: usize, Flip { place, bit }: Flip) {
        let Local { grid, cols, shape, params, .. } = *self.local;
        let finished = params.columns_before(cut);
        let first = if grid.is_checksum() {
            (finished / (params.nb * grid.q) * params.nb).min(shape.cols)
        } else {
            cols.count_before(finished, grid.mycol)
        };
        if shape.rows == 0 || first == shape.cols {
            return;
        }
        let (row, col) = (place.0 % shape.rows, first + place.1 % (shape.cols - first));
        // SAFETY: no other thread uses A between two steps.
        let mut element = unsafe { self.places.a.block(row..row + 1, col..col + 1) };
        let value = &mut element.row_mut(0)[0];
        *value = f64::from_bits(value.to_bits() ^ 1 << bit);
    }

    /// If a group of columns ends before panel `end`, checks what is left over in its checksums,
    /// and begins to sum them anew.
    fn finish_group(&mut self, end: usize) -> Result<(), SolveError> {
        let Self { local, places, journal, relay, weights, checks, noticed, costs, .. } = self;
        if !groups::is_group_end(end, local.grid.q) {
            return Ok(());
        }
        let start = Instant::now();
        let mut unit = f64::INFINITY;
        if !checks.are_off() {
            (unit, *noticed) = check::check_left_over(local, places, end)?;
            if noticed.is_some() {
                // All ranks learn of it at the next cut.
                journal.set_wrong(true)?;
            }
        }
        costs.check_seconds += start.elapsed().as_secs_f64();
        renewal::begin(local, journal, relay, weights, end, unit)
    }

    /// Exchanges rows and solves for U on all columns.
    fn exchange(&mut self, panel: &Panel<C>, step: &Step) -> Result<(), SolveError> {
        let Self { local, places, journal, phases, costs, .. } = self;
        let k = panel.k;
        journal.step("log", k)?;
        let start = Instant::now();
        step.log_rows(local, places);
        costs.log_seconds += start.elapsed().as_secs_f64();
        journal.set(State::Logged(k))?;
        let columns = [&step.columns.next, &step.columns.rest];
        for (exchange, cols) in self.exchanges.iter_mut().zip(columns) {
            if !cols.is_empty() {
                journal.step("exchange", k)?;
                // SAFETY: no other thread uses A, and U of the last step is no longer needed.
                unsafe { exchange.solve(local, panel, cols.clone(), phases) }?;
            }
        }
        Ok(())
    }

    /// Writes that the rows have been exchanged, and computes the product. Panel `next`, if there
    /// is one, is factored once its columns have their product, before the rest or meanwhile.
    /// Meanwhile sums pass, and then all ranks learn whether any rank `wants_image` of the next
    /// cut or has noticed wrong numbers.
    fn multiply(
        &mut self,
        panel: &Panel<C>,
        step: &Step,
        next: Option<usize>,
        wants_image: bool,
    ) -> Result<(), SolveError> {
        let Self {
            local, places, journal, pace, look_ahead, barrier, relay, noticed, phases, ..
        } = self;
        let (grid, columns) = (local.grid, &step.columns);
        let rows = local.shape.rows - step.panel.below;
        let [of_next, of_rest] = [true, false].map(|is_next| Recorded { journal, pace, is_next });
        // SAFETY: no rows are exchanged before this step is over.
        let [u_next, u_rest] =
            [true, false].map(|is_next| unsafe { step.u(local, places, is_next) });
        let threads = local.team.threads();
        let goes_first = advances_first(threads, step.layout.jb, columns.rest.len());
        let beside = next.filter(|_| !goes_first);
        // SAFETY: the columns of the next panel are not among these.
        let product = unsafe {
            Product::new(local, panel, u_rest, columns.rest.clone(), beside, true, &of_rest)
        };
        let narrow_rows = if columns.next.is_empty() { 0 } else { rows };
        journal.list_parts(narrow_parts(narrow_rows, threads), product.parts())?;
        journal.set(State::Exchanged(panel.k))?;
        let mut asks = Some(wants_image || noticed.is_some());
        let mut enter_once = |relay: &Relay<C>, barrier: &mut IBarrier<C>| {
            if let Some(asks) = asks.take_if(|_| relay.is_idle()) {
                renewal::have_passed(local, journal, panel.k)?;
                barrier.enter(&grid.all, asks || relay.noticed().is_some())?;
            }
            Ok::<_, SolveError>(())
        };
        enter_once(relay, barrier)?;
        let clock = ProductClock::start(local.grid.all.now(), phases);
        let before = relay.taken();
        let advance = |look_ahead: &mut LookAhead<C>, phases: &mut Phases| {
            let Some(next) = next else { return Ok(()) };
            if !columns.next.is_empty() {
                // SAFETY: no other thread uses the columns of the next panel.
                unsafe { multiply_narrow(local, &columns.next, &step.panel, u_next, &of_next) }?;
            }
            look_ahead.factor_and_broadcast(local, next, &mut Token::alone(), phases)
        };
        if goes_first {
            advance(look_ahead, phases)?;
        }
        let computed = product.compute_beside(local.team, || {
            if !goes_first {
                advance(look_ahead, phases)?;
            }
            let progress = |_: &Token| {
                let passes_on = look_ahead.progress(local, panel)?;
                relay.progress()?;
                enter_once(relay, barrier)?;
                barrier.progress(&grid.all)?;
                Ok(passes_on)
            };
            // No background work could wait for rows.
            product.compute_between_messages(&mut Token::alone(), progress, |_, _| {})
        });
        clock.stop(local.grid.all.now(), phases);
        phases.update -= (relay.taken() - before).as_secs_f64();
        computed?;
        relay.complete()?;
        enter_once(relay, barrier)
    }
}
