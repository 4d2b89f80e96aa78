//! The hot replacement (Wang et al., HiPC 2011): after a loss the checksum column replaces the lost
//! process column at once. Nothing is rebuilt, and x is corrected at the end.
//!
//! ```text
//! cut         all remaining ranks go to it, as in any start                    REST(K)
//!             a word records that A is no cut of the system any more           REPLACED
//! A' = A T    a column c of the lost process column, not finished at the cut, becomes its
//!             checksum C: the sum of c and the others of its group. It exists already.
//! ...         the elimination continues, on P x Q and without checksums
//! U           of columns that were finished:  u_c = C - the others of its group
//! A' x' = b   back substitution
//! x = T x'    x_c = x'_c,  x_i = x'_i + x'_c  for each other i of c's group
//! ```
//!
//! T is the unit matrix with additional ones below and above its diagonal in the columns c.
//! Exchange, solve and product turn C into the checksum of the resulting columns, so A' is at the
//! cut what the elimination would have made of it.
//!
//! b is a column of its group, but not of A: if b is in the group of c, x' would have to be divided
//! by 1 - x'_c. Therefore that one column, c or b, is decoded at the cut.

use std::ops::Range;
use std::time::Instant;

use skt_host::phases::ChecksumCosts;

use super::super::events::SolverEvents;
use super::super::exchange::RowExchange;
use super::super::guard::Nothing;
use super::super::local::{Local, LocalShape};
use super::super::look_ahead::LookAhead;
use super::super::pace::Pace;
use super::super::packing::Packing;
use super::super::pivoted::Pivoted;
use super::super::slots::PanelBuffers;
use super::super::trailing::TrailingExchange;
use super::super::{Params, Rates, SolveError, Solver, Workspace, min_threads};
use super::AbftError;
use super::beginning::Beginning;
use super::memory::{DECODE, Journal, MemoryHook, MemoryState, Places, RankMemory, RelayMessages};
use super::relay::{Relay, Sum};
use super::standing::Decision;
use super::system::{Absent, Solution, System, back_substitute, keep_x, note_wrong};
use crate::grid::{Cyclic, Grid};
use skt_comm::{Comm, CommError, collect};

/// The P x Q grid of the ranks that continue without process column `lost`, which the one checksum
/// column of `grid` replaces. `None` on remaining ranks of `lost`. Collective over `grid`.
pub fn grid_without(grid: &Grid, lost: usize) -> Result<Option<Grid>, CommError> {
    let Grid { p, q, myrow, mycol, .. } = *grid;
    let place = (mycol != lost).then_some(if grid.is_checksum() { lost } else { mycol });
    let key = place.map_or(0, |col| myrow * q + col);
    let Some(all) = grid.all.split(place.map(|_| 0), key as u32)? else { return Ok(None) };
    let col = place.expect("ranks without a place have no group");
    Grid::at(all, p, q, 0, myrow, col).map(Some)
}

/// The columns of the lost process column, at the cut.
#[derive(Debug, Clone, Copy)]
struct Columns {
    n: usize,
    cols: Cyclic,
    /// The process column; Q: the checksums themselves, in which case no column is replaced.
    lost: usize,
    finished: usize,
}

impl Columns {
    /// The local column that is b, or has b in its group, if it is not finished.
    fn next_to_b(&self) -> Option<usize> {
        let local = self.cols.local(self.n);
        let is_there = self.lost < self.cols.procs && self.cols.procs > 1;
        let column = is_there.then(|| self.cols.global(local, self.lost))?;
        (self.finished..=self.n).contains(&column).then_some(local)
    }

    /// Corrects x' of A' x' = b: x := T x'.
    fn correct(&self, x: &mut [f64]) {
        let Self { n, cols, lost, finished } = *self;
        let is_replaced = |&local: &usize| {
            cols.global(local, lost) >= finished && Some(local) != self.next_to_b()
        };
        let count = if lost < cols.procs { cols.count_before(n, lost) } else { 0 };
        for local in (0..count).filter(is_replaced) {
            let of_lost = x[cols.global(local, lost)];
            let others = (0..cols.procs).filter(|&col| col != lost);
            for column in others.map(|col| cols.global(local, col)).filter(|&column| column < n) {
                x[column] += of_lost;
            }
        }
    }
}

/// Decodes columns of the lost process column on the ranks of its checksums.
struct Decoder<'d, 'm> {
    local: &'d Local<'m>,
    relay: Relay<'d, 'm>,
    columns: Columns,
    /// The process columns that are subtracted from the checksums, with the factor -1.
    others: Vec<(usize, f64)>,
}

impl<'d, 'm> Decoder<'d, 'm> {
    fn new(local: &'d Local<'m>, relay: Relay<'d, 'm>, columns: Columns) -> Self {
        let others = (0..local.grid.q).filter(|&col| col != columns.lost);
        let others = others.map(|col| (col, -1.0)).collect();
        Self { local, relay, columns, others }
    }

    /// Decodes these local columns in the first `rows` local rows. Collective over the process row.
    fn decode(&mut self, rows: usize, cols: Range<usize>) -> Result<(), SolveError> {
        let Columns { lost, finished, .. } = self.columns;
        let terms = self.others.clone();
        let sum = Sum { is_added: true, ..Sum::new(DECODE, terms, lost, finished) };
        self.relay.sum(sum, (0..rows, cols))
    }

    fn decode_next_to_b(&mut self) -> Result<(), SolveError> {
        match self.columns.next_to_b() {
            Some(local) => self.decode(self.local.shape.rows, local..local + 1),
            None => Ok(()),
        }
    }

    /// Decodes finished columns, which are dead below U. Returns the bytes decoded on a rank.
    fn decode_finished(&mut self) -> Result<usize, SolveError> {
        let Local { rows, ref cols, params, grid, .. } = *self.local;
        let Columns { lost, finished, .. } = self.columns;
        if lost == grid.q || self.others.is_empty() {
            return Ok(0);
        }
        let mut doubles = 0;
        for panel in (lost..finished.div_ceil(params.nb)).step_by(grid.q) {
            let ends = [panel, panel + 1].map(|k| params.columns_before(k));
            let [first, end] = ends.map(|column| cols.count_before(column, lost));
            let above = rows.count_before(ends[1], grid.myrow);
            self.decode(above, first..end)?;
            doubles += above * (end - first);
        }
        Ok(doubles * size_of::<f64>())
    }
}

impl System<'_> {
    /// Solves the system from what is in the `memory` of the remaining ranks. The `absent` ranks,
    /// in order, are all of one process column, which the checksums replace: there must be one, of
    /// weights 1. `grid` of this system has the remaining ranks, in their order, and `players` is
    /// what [`grid_without`] makes of it. Memory, start, hook and events are those of
    /// [`System::solve`]. Once the ranks continue there are no checksums, and no further loss is
    /// survived except of ranks of `absent`'s process column. A refusal, the same on all ranks,
    /// when more than that process column is lost, changes nothing.
    pub fn solve_without(
        &self,
        absent: &[Absent],
        players: Option<&Grid>,
        memory: &mut RankMemory<'_>,
        start_id: u32,
        hook: &dyn MemoryHook,
        events: &mut dyn SolverEvents,
    ) -> Result<Solution, AbftError> {
        let (grid, n) = (self.grid, self.params.n);
        assert!(
            grid.checksums == 1 && self.weights.checksum(0).iter().all(|&weight| weight == 1.0)
        );
        let lost = absent.first().expect("a rank that is absent").col;
        let mut places = Places::new(memory, &self.sizes(), self.shape());
        let mut journal = places.journal(hook);
        let (decision, mut is_lost) = self.open(&mut journal, start_id, absent)?;
        if let Decision::Solved { from } = decision {
            let from = from - absent.iter().filter(|absent| absent.rank < from).count();
            let solution = self.take_x(&mut places, from, &is_lost, events)?;
            keep_x(&mut places, &journal, &solution.x)?;
            return Ok(solution);
        }
        let number = self.number(absent);
        let (cut, undone) = {
            let (local, pace) = (self.local(&places.a), Pace::new(self.calls));
            let work = (&local, &places, &journal, &pace);
            let (cut, undone) = self.go_to_cut(&decision, number, work, events)?;
            if matches!(decision, Decision::GoTo { .. }) && lost < grid.q {
                // As before a rebuilding: after this cut no checksum can contradict these ranks.
                let mut relay = Relay::new(&local, &places, &journal, self.relay_messages)?;
                let (work, at) = ((&local, &places, &journal), (cut, number));
                note_wrong(&journal, self.check_left(work, &mut relay, &mut is_lost, at, events))?;
            }
            (cut, undone)
        };
        let (replaced, unverified) = (Some(lost), is_lost.unverified(&self.params));
        let beginning =
            Beginning { panel: cut, replaced, undone, unverified, ..Beginning::default() };
        events.begins(&beginning)?;
        let mut first = [if players.is_some() { grid.all.rank() as u64 } else { u64::MAX }];
        collect::all_reduce(&grid.all, &mut first, u64::min)?;
        // Until this barrier the memories are a cut of the system, from which a start can resume.
        // After it the ranks outside of `players` are no longer needed.
        let replace = || -> Result<(), SolveError> {
            grid.all.barrier()?;
            journal.set(MemoryState::Replaced(lost))
        };
        let finished = self.params.columns_before(cut);
        let columns = Columns { n, cols: grid.cols(self.params.nb).as_cyclic(), lost, finished };
        let played = match players {
            Some(players) => {
                let x = self.play(players, columns, &places, &journal, events, replace);
                Some(x.and_then(|x| keep_x(&mut places, &journal, &x).map(|()| x)))
            }
            None => {
                replace()?;
                None
            }
        };
        let x = announce(&grid.all, first[0] as usize, n, played)?;
        if players.is_none() {
            keep_x(&mut places, &journal, &x)?;
        }
        let unverified = is_lost.unverified(&self.params);
        Ok(Solution { x, resumed: Some(cut), replaced, unverified, ..Solution::default() })
    }

    fn number(&self, absent: &[Absent]) -> usize {
        absent.iter().fold(self.grid.all.rank(), |number, absent| {
            // They are in order: each absent rank before this one increases its number.
            number + usize::from(absent.rank <= number)
        })
    }

    /// Continues from the cut to x, on a rank of the grid `players`. All memory is allocated before
    /// `replace` replaces the lost process column.
    fn play(
        &self,
        players: &Grid,
        columns: Columns,
        places: &Places,
        journal: &Journal,
        events: &mut dyn SolverEvents,
        replace: impl FnOnce() -> Result<(), SolveError>,
    ) -> Result<Vec<f64>, SolveError> {
        let params = Params { share: false, ..self.params };
        let Params { n, nb, .. } = params;
        let (rows, cols) = (players.rows(nb), players.cols(nb));
        let shape = LocalShape::new(n, rows, &cols, players.myrow, players.mycol);
        // SAFETY: no other thread uses A. A checksum rank has as many columns as any rank.
        let a = unsafe { places.a.block(0..shape.rows, 0..shape.cols) }.share();
        let local = Local { grid: players, team: self.team, params, a: &a, rows, cols, shape };
        let relay = Relay::new(&local, places, journal, self.relay_messages)?;
        let mut decoder = Decoder::new(&local, relay, columns);
        let cut = columns.finished.div_ceil(nb);
        let mut work = workspace(&local, places, cut)?;
        replace()?;
        decoder.decode_next_to_b()?;
        Solver::new(players, self.team, params, shape, &a, &mut work).factor(
            cut..params.panels(),
            events,
            &mut Nothing,
        )?;
        events.back_substitutes();
        let start = Instant::now();
        let bytes = decoder.decode_finished()? as f64;
        decoder.relay.wait_all()?;
        let mut most = [bytes, start.elapsed().as_secs_f64()];
        collect::all_max(&players.all, &mut most)?;
        let [bytes, seconds] = most;
        events.decoded(bytes as u64, seconds);
        let mut x = back_substitute(&local)?;
        columns.correct(&mut x);
        let mut phases = work.phases();
        phases.back = start.elapsed().as_secs_f64();
        events.has_x(phases, ChecksumCosts::default());
        Ok(x)
    }
}

/// Doubles besides the memory that outlives the process, once checksums have replaced a process
/// column: messages of sums and, where P > 1, exchanged rows and U; at most `usize::MAX`.
pub fn work_doubles_after_replacement(
    params: &Params,
    rows: Cyclic,
    myrow: usize,
    shape: LocalShape,
) -> usize {
    let by_messages = Params { share: false, ..*params };
    let work = shape.exchange_doubles(&by_messages, rows, myrow);
    work.saturating_add(RelayMessages::TUNED.all(shape.cols))
}

/// For the driver without checksums, with the panels where those with checksums were.
fn workspace(local: &Local, places: &Places, cut: usize) -> Result<Workspace, SolveError> {
    let (grid, params) = (local.grid, &local.params);
    // SAFETY: `places` has the memory for as long as the driver runs, and nothing else uses these
    // areas.
    let (panels, w) = unsafe { (places.panel_buffers(cut), places.w_buffer()) };
    let buffers = PanelBuffers::Messages(panels.into());
    let nb = params.widest_panel();
    let ahead = RowExchange::new(grid.p, nb, nb, None)?;
    Ok(Workspace {
        shape: local.shape,
        look_ahead: LookAhead::with_buffers(params, buffers, Pivoted::new(params, w, None), ahead),
        exchange: TrailingExchange::new::<f64>(grid, params, local.shape.cols, None, None)?,
        packing: Packing::NONE,
        // Only the solver's thread calls MPI, as in the elimination with checksums.
        has_helper: false,
        min_threads: min_threads(grid, local.team)?,
        phases: Default::default(),
        rates: Rates::new(params.n, params.nb),
    })
}

/// Broadcasts the x of rank `root`, or that a column has no pivot, to all ranks of `comm`. `played`
/// is the result on the ranks that have one. Collective.
fn announce(
    comm: &Comm,
    root: usize,
    n: usize,
    played: Option<Result<Vec<f64>, SolveError>>,
) -> Result<Vec<f64>, SolveError> {
    let mut message = vec![0.0; 3 + n];
    match played {
        // This rank has nothing else to do, and other ranks may need its processor while it waits.
        None => collect::await_broadcast(comm, root)?,
        Some(Ok(x)) => message[3..].copy_from_slice(&x),
        Some(Err(SolveError::Pivot { column, value })) => {
            message[..3].copy_from_slice(&[1.0, column as f64, value]);
        }
        Some(Err(other)) => return Err(other),
    }
    collect::broadcast(comm, &mut message, root)?;
    if message[0] == 0.0 {
        Ok(message.split_off(3))
    } else {
        Err(SolveError::Pivot { column: message[1] as usize, value: message[2] })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]
        /// A' by its definition, with small whole numbers: A' x' = A x for any x'.
        #[test]
        fn x_is_recovered_from_the_summed_columns(
            n in 1usize..40, nb in 1usize..6, q in 1usize..5, lost in 0usize..5,
            cut in 0usize..40, numbers in prop::collection::vec(-9i32..10, 80),
        ) {
            let (lost, finished) = (lost % (q + 1), (cut * nb).min(n));
            let cols = Cyclic { nb, procs: q };
            let columns = Columns { n, cols, lost, finished };
            // One row of A, whose rows are all equal, and of A'.
            let a: Vec<f64> = numbers[..n].iter().map(|&number| f64::from(number)).collect();
            let place = |column: usize| (column / (nb * q), column % nb);
            let is_summed = |column: usize| {
                let is_lost = column / nb % q == lost && column >= finished;
                is_lost && (q == 1 || place(column) != place(n))
            };
            let of_group = |column: usize| (0..n).filter(move |&i| place(i) == place(column));
            let transformed = |column: usize| {
                if is_summed(column) { of_group(column).map(|i| a[i]).sum() } else { a[column] }
            };
            let mut x: Vec<f64> = numbers[40..40 + n].iter().map(|&x| f64::from(x)).collect();
            let want: f64 = (0..n).map(|column| transformed(column) * x[column]).sum();
            columns.correct(&mut x);
            prop_assert_eq!(a.iter().zip(&x).map(|(a, x)| a * x).sum::<f64>(), want);
        }
    }
}
