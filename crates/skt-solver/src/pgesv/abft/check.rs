//! Silent errors: whether the checksums still match the columns.
//!
//! ```text
//! delta_s = sum over q of  w_sq (mu S_q) v  -  C_s v        v random, of +1 and -1
//! ```
//!
//! Without an error, an element of delta is rounding: one error of either sign for each step and
//! each column. A *unit* is `eps max |S| N`, over the process row. A wrong number e appears as w e.
//! Several checksums also locate it, as the ratios of its deltas are those of its weights; the row
//! is then recomputed from the other columns.
//!
//! A finished column is no longer part of the sums. A number that was wrong when its column was
//! finished shows below the diagonal in the checksums, which are checked when their group is
//! finished (`Elimination::check_group`).

use std::collections::BTreeMap;
use std::num::{NonZeroUsize, ParseIntError};
use std::ops::Range;
use std::str::FromStr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::SplitMix64;
use serde::{Deserialize, Serialize};

use super::super::SolveError;
use super::super::local::Local;
use super::super::wrong::{NotCorrected, WrongNumbers};
use super::groups::{
    columns_of, dead_checksums, dead_columns, first_of_last_group, parts_of_group,
};
use super::memory::{Decoded, Places};
use super::noticed::Noticed;
use super::relay::{Relay, Sum};
use super::rounding::{are_rounding, is_rounding, max_units, unit};
use super::weights::Weights;
use crate::blas::kernels;
use skt_comm::{CommError, collect};

/// The deltas of a row are attributed to a process column if the part that it does not explain is
/// below this share of them, or below `REST_UNITS` units.
const REST: f64 = 1e-3;
const REST_UNITS: f64 = 2.0;
/// After a rank has been decoded from others, a deviation of fewer units than this may come from
/// another process column than the checksums locate. An error in the other ranks that was too small
/// to be noticed is also in the decoded data, and the two cancel in the checksums that the decoding
/// used. If it grows, the checksums that it did not use seem to be wrong.
const SURE_UNITS: f64 = 1e6;
const GRAIN_ROWS: usize = 16;
/// To predict the time of a check, one in this many rows is timed.
const TIMED_ROWS: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq)]
struct Wrong {
    row: usize,
    /// The row's largest delta, in units; not finite if an element is not.
    units: f64,
    /// The process column of the wrong number, if the checksums agree and it may be corrected.
    column: Option<usize>,
}

/// The result of a check, the same on all ranks.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Checked {
    /// The largest delta after the correction, in units.
    pub units: f64,
    pub corrected_rows: usize,
    /// The ranks of these rows, in order, from which the wrong numbers certainly come.
    pub corrected: Vec<CorrectedRank>,
}

/// A rank whose wrong rows have been recomputed. One wrong number may make rows of several ranks of
/// its process column wrong, as it spreads to lower rows there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CorrectedRank {
    pub rank: usize,
    pub process_row: usize,
    /// The rank's process column; Q or more for a rank of checksums.
    pub process_column: usize,
    pub rows: usize,
    /// The first of these rows: a global row, from 0.
    pub first_row: usize,
    /// Columns eliminated at the time of the check.
    pub column: usize,
    /// Whether this rank certainly produced the wrong number, by computing it or in its memory: the
    /// check has found wrong rows on no other rank of the process column, and no row exchange has
    /// written to this rank's wrong rows since the check before. A number that was wrong on another
    /// rank comes here only by an exchange that writes it to one of the rows, or through U; then a
    /// row of U is wrong, too, and an exchange has written that row.
    pub is_origin: bool,
}

/// A rank's own [`CorrectedRank`] as it is sent to the others.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct CorrectedWords {
    rank: u64,
    process_row: u64,
    process_column: u64,
    rows: u64,
    first_row: u64,
    /// Whether an exchange may have brought one of the rows from another rank.
    has_moved: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CheckEvery {
    /// As often as possible for 1 % of the time.
    Auto,
    Never,
    /// Each time that this many panels have been applied.
    Panels(NonZeroUsize),
}

impl FromStr for CheckEvery {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            "never" => Ok(Self::Never),
            panels => panels.parse().map(Self::Panels),
        }
    }
}

pub(super) struct Checks {
    every: CheckEvery,
    /// The panel that the run starts from, and the one before which the next check is.
    first: usize,
    next: usize,
    period: usize,
    /// Seconds that a check takes, and when these were measured.
    seconds: f64,
    timed: Instant,
}

impl Checks {
    /// `is_new`: the system has just been generated.
    pub(crate) fn new(every: CheckEvery, from: usize, is_new: bool) -> Self {
        let period = match every {
            CheckEvery::Panels(panels) => panels.get(),
            // Known after the first panel.
            CheckEvery::Auto | CheckEvery::Never => usize::MAX / 2,
        };
        let next = if is_new && every == CheckEvery::Auto { period } else { from };
        Self { every, first: from, next, period, seconds: 0.0, timed: Instant::now() }
    }

    pub(crate) fn are_off(&self) -> bool {
        self.every == CheckEvery::Never
    }

    /// Whether a check is due before panel `cut`, the same on all ranks; one follows the last.
    pub(crate) fn is_due(
        &mut self,
        local: &Local,
        places: &Places,
        cut: usize,
    ) -> Result<bool, SolveError> {
        if self.every == CheckEvery::Auto && cut == self.first && cut != self.next {
            let (start, rows) = (Instant::now(), local.shape.rows / TIMED_ROWS);
            products(local, places, (&Scope::whole(cut, &[]), 0), rows);
            self.time(start.elapsed() * TIMED_ROWS as u32);
        }
        if self.every == CheckEvery::Auto && cut == self.first + 1 {
            let mut most = [self.seconds, self.timed.elapsed().as_secs_f64()];
            collect::all_max(&local.grid.all, &mut most)?;
            let [check, panel] = most;
            self.period = panels_between(check, panel, local.params.panels() - self.first);
            self.next = self.first + self.period;
        }
        Ok(!self.are_off() && (cut == self.next || cut == local.params.panels()))
    }

    pub(crate) fn done(&mut self, cut: usize, took: Duration) {
        if cut == self.first {
            self.time(took);
        }
        self.next = cut + self.period;
    }

    fn time(&mut self, took: Duration) {
        (self.seconds, self.timed) = (took.as_secs_f64(), Instant::now());
    }
}

/// How many panels apart checks cost 1 % of the time of `panels` panels; there is always one after
/// the last. All are taken to be as long as the first; panels take on average a third of the first
/// one's time: hence the factor 300.
fn panels_between(check_seconds: f64, panel_seconds: f64, panels: usize) -> usize {
    let checks = panels as f64 * panel_seconds / (300.0 * check_seconds);
    // NaN becomes 0.
    panels.div_ceil((checks as usize).clamp(1, panels.max(1)))
}

pub(super) struct Scope<'s> {
    pub cut: usize,
    /// Which ranks of this process row are lost, by process column. Their memory is not used.
    pub lost: &'s [bool],
    /// Whether to check also what is left over below the diagonal in the checksums of a group that
    /// ends at this cut; finished columns count as 0 there.
    pub with_left_over: bool,
    /// What has been decoded in this process row. Its rows may be recomputed only if the decoded
    /// data has been checked.
    pub decoded: Decoded,
    pub number: usize,
    /// Local rows that row exchanges have written to since a check agreed; `None`: not known.
    pub moved: Option<&'s [bool]>,
}

impl<'s> Scope<'s> {
    /// All of the system before panel `cut`. `lost` must have no true element.
    pub(crate) fn whole(cut: usize, lost: &'s [bool]) -> Self {
        let decoded = Decoded::default();
        Self { cut, lost, with_left_over: false, decoded, number: 0, moved: None }
    }

    /// Whether an exchange may have brought the row from another rank since a check agreed.
    fn has_moved(&self, p: usize, row: usize) -> bool {
        p > 1 && self.moved.is_none_or(|moved| moved[row])
    }
}

/// Checks the system. Recomputes wrong rows if the checksums locate the error in each of them and
/// all decoded data has been checked; else changes nothing. Returns [`SolveError::Wrong`] on all
/// ranks if wrong numbers are left; else also the unit of this process row, infinite where no
/// checksum was left to check with. Collective over the grid.
pub(super) fn check(
    local: &Local,
    places: &Places,
    weights: &Weights,
    relay: &mut Relay,
    scope: &Scope,
) -> Result<(Checked, f64), SolveError> {
    let grid = local.grid;
    let equations = Equations::new(weights, scope.lost);
    let compare = |time| compare_rows(local, places, &equations, scope, time);
    let RowCheck { wrong, units, unit } = compare(0)?;
    let hopeless = wrong.iter().filter(|wrong| wrong.column.is_none()).count();
    let was_decoded = f64::from(u8::from(scope.decoded.has_been));
    let mut most = [units, wrong.len() as f64, hopeless as f64, was_decoded];
    collect::all_max(&grid.all, &mut most)?;
    let [units, max_wrong, max_hopeless, was_decoded] = most;
    if max_wrong == 0.0 {
        return Ok((Checked { units, ..Checked::default() }, unit));
    }
    // Rows are corrected only where all decoded data has been checked.
    let doubt = Doubt { is_unchecked: false, was_decoded: was_decoded > 0.0 };
    if max_hopeless > 0.0 {
        let hopeless: Vec<Wrong> =
            wrong.into_iter().filter(|wrong| wrong.column.is_none()).collect();
        let why = equations.why_not(scope.decoded.is_unchecked);
        return Err(refused(local, scope, &hopeless, why)?);
    }
    let lost: Vec<usize> = (0..scope.lost.len()).filter(|&col| scope.lost[col]).collect();
    let finished = local.params.columns_before(scope.cut);
    for wrong in &wrong {
        let target = wrong.column.expect("else it is hopeless");
        let (terms, divisor) = weights.recomputation(target, &lost);
        let sum = Sum { divisor, ..Sum::new("repair", terms, target, finished) };
        relay.sum(sum, (wrong.row..wrong.row + 1, 0..columns_of(local, target)))?;
    }
    let (corrected_rows, corrected) = corrected_ranks(local, scope, &wrong, doubt)?;
    // A wrong number may have set the first unit.
    let RowCheck { wrong, units, unit } = compare(1)?;
    let mut most = [units, wrong.len() as f64];
    collect::all_max(&grid.all, &mut most)?;
    let [units, max_wrong] = most;
    if max_wrong > 0.0 {
        let sure = |wrong: &Wrong| wrong.column.filter(|_| doubt.leaves_sure(wrong.units));
        let wrong: Vec<Wrong> =
            wrong.iter().map(|wrong| Wrong { column: sure(wrong), ..*wrong }).collect();
        return Err(refused(local, scope, &wrong, NotCorrected::Again)?);
    }
    Ok((Checked { units, corrected_rows, corrected }, unit))
}

/// How many rows of the grid have been recomputed, and the ranks that the wrong numbers certainly
/// come from. `wrong` has this process row's rows. Collective over the grid.
fn corrected_ranks(
    local: &Local,
    scope: &Scope,
    wrong: &[Wrong],
    doubt: Doubt,
) -> Result<(usize, Vec<CorrectedRank>), CommError> {
    let grid = local.grid;
    // Each process row counts its rows once, on its first rank, even if that rank is lost.
    let mut rows = [if grid.row.rank() == 0 { wrong.len() as f64 } else { 0.0 }];
    collect::all_sum(&grid.all, &mut rows)?;
    let own = wrong.iter().filter(|wrong| wrong.column == Some(grid.mycol));
    let own: Vec<usize> =
        own.filter(|wrong| doubt.leaves_sure(wrong.units)).map(|wrong| wrong.row).collect();
    let global = own.iter().map(|&row| local.rows.global(row, grid.myrow));
    let first_row = global.min().unwrap_or(0);
    let has_moved = own.iter().any(|&row| scope.has_moved(grid.p, row));
    let mine = CorrectedWords {
        rank: scope.number as u64,
        process_row: grid.myrow as u64,
        process_column: grid.mycol as u64,
        rows: own.len() as u64,
        first_row: first_row as u64,
        has_moved: u64::from(has_moved),
    };
    let mut wrong = collect::all_gather(&grid.all, &mine)?;
    wrong.retain(|words| words.rows > 0);
    let column = local.params.columns_before(scope.cut);
    let of_column = |column| wrong.iter().filter(|words| words.process_column == column).count();
    let of_rank = |words: &CorrectedWords| CorrectedRank {
        rank: words.rank as usize,
        process_row: words.process_row as usize,
        process_column: words.process_column as usize,
        rows: words.rows as usize,
        first_row: words.first_row as usize,
        column,
        is_origin: words.has_moved == 0 && of_column(words.process_column) == 1,
    };
    Ok((rows[0] as usize, wrong.iter().map(of_rank).collect()))
}

/// Why the located process column may not be the origin of a wrong number; the same on all ranks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Doubt {
    /// Data was decoded in some process row, and no check has agreed since.
    pub is_unchecked: bool,
    /// Data was decoded in some process row since the run began.
    pub was_decoded: bool,
}

impl Doubt {
    /// Whether the located process column certainly gave a wrong number with this deviation.
    fn leaves_sure(self, units: f64) -> bool {
        !self.is_unchecked && (!self.was_decoded || units >= SURE_UNITS)
    }
}

/// A rank's report of the wrong rows of its process row that cannot be corrected.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Worst {
    /// The largest deviation of these rows, in units. Negative if there is no such row.
    units: f64,
    row: u64,
    rows: u64,
    process_row: u64,
    process_column: u64,
    number: u64,
    is_lost: u64,
    /// The process column with the wrong number; `u64::MAX`: unknown.
    column: u64,
    /// The process column whose checksums have noticed the wrong number.
    noticed_by: u64,
    /// The position of the reason in [`NotCorrected::ALL`].
    why: u64,
    /// Whether an exchange or U may have carried it here from any rank of its process column.
    is_carried: u64,
}

impl Worst {
    /// The report of a rank that is not lost and in whose process row nothing is wrong.
    fn none(local: &Local, number: usize) -> Self {
        let grid = local.grid;
        let [process_row, process_column, number] =
            [grid.myrow, grid.mycol, number].map(|number| number as u64);
        Self {
            units: -1.0,
            process_row,
            process_column,
            number,
            column: u64::MAX,
            ..bytemuck::Zeroable::zeroed()
        }
    }

    fn is_any(&self) -> bool {
        self.units >= 0.0
    }
}

/// The error that names the worst of the `wrong` rows of all process rows, the same on all ranks.
/// Collective over the grid; at least one rank has a row.
fn refused(
    local: &Local,
    scope: &Scope,
    wrong: &[Wrong],
    why: NotCorrected,
) -> Result<SolveError, CommError> {
    let grid = local.grid;
    let mut mine = Worst::none(local, scope.number);
    mine.is_lost = u64::from(scope.lost[grid.mycol]);
    if let Some(worst) = wrong.iter().max_by(|a, b| a.units.total_cmp(&b.units)) {
        let checksum = (grid.q..scope.lost.len()).find(|&col| !scope.lost[col]);
        mine.units = worst.units;
        mine.row = local.rows.global(worst.row, grid.myrow) as u64;
        mine.rows = wrong.len() as u64;
        mine.column = worst.column.map_or(u64::MAX, |column| column as u64);
        mine.noticed_by = checksum.expect("one is left to look with") as u64;
        mine.why = why as u64;
        let has_moved = wrong.iter().any(|wrong| scope.has_moved(grid.p, wrong.row));
        mine.is_carried = u64::from(has_moved);
    }
    Ok(agreed(local, &mine, local.params.columns_before(scope.cut))?.into())
}

/// Combines the reports of all ranks, of which one has a wrong row. Collective over the grid.
fn agreed(local: &Local, mine: &Worst, column: usize) -> Result<WrongNumbers, CommError> {
    let all = collect::all_gather(&local.grid.all, mine)?;
    let worst = all.iter().max_by(|a, b| a.units.total_cmp(&b.units)).expect("a rank");
    let wrong = || all.iter().filter(|rank| rank.is_any());
    let is_of_one = wrong().all(|rank| rank.column == worst.column) && worst.column != u64::MAX;
    let process_column = is_of_one.then_some(worst.column as usize);
    let is_suspect = |rank: &&Worst| {
        let is_here = match worst.is_carried {
            0 => rank.is_any() && [u64::MAX, rank.process_column].contains(&rank.column),
            _ => is_of_one && rank.process_column == worst.column,
        };
        is_here && rank.is_lost == 0
    };
    let rows: BTreeMap<u64, u64> = wrong().map(|rank| (rank.process_row, rank.rows)).collect();
    let noticed = (worst.process_row, worst.noticed_by);
    let has_noticed = |rank: &&Worst| (rank.process_row, rank.process_column) == noticed;
    Ok(WrongNumbers {
        column,
        row: worst.row as usize,
        units: worst.units,
        process_row: worst.process_row as usize,
        rows: rows.values().sum::<u64>() as usize,
        process_column,
        suspects: all.iter().filter(is_suspect).map(|rank| rank.number as usize).collect(),
        noticed_by: all.iter().find(has_noticed).expect("it is there").number as usize,
        why: NotCorrected::ALL[worst.why as usize],
        is_known_to_all: true,
    })
}

/// The error for the wrong numbers that at least one rank of checksums has `noticed`. The new sums
/// of their group must be complete and still stored outside A. Collective over the grid.
pub(super) fn refuse_noticed(
    local: &Local,
    places: &Places,
    weights: &Weights,
    noticed: Option<Noticed>,
    doubt: Doubt,
    column: usize,
) -> Result<SolveError, CommError> {
    let grid = local.grid;
    let mut mine = Worst::none(local, grid.all.rank());
    let own = noticed.unwrap_or(Noticed::NOTHING);
    let of_row = collect::all_gather(&grid.row, &own)?;
    let worst = of_row.into_iter().enumerate().filter(|(_, noticed)| noticed.units >= 0.0);
    let worst = worst.reduce(|a, b| if b.1.units > a.1.units { b } else { a });
    if let Some((col, worst)) = worst {
        let origin = origin(local, places, weights, &worst)?;
        let origin = origin.filter(|_| doubt.leaves_sure(worst.units));
        mine.units = worst.units;
        mine.row = local.rows.global(worst.row as usize, grid.myrow) as u64;
        mine.rows = worst.rows;
        mine.column = origin.map_or(u64::MAX, |column| column as u64);
        mine.noticed_by = col as u64;
        let is_one = weights.checksums() == 1;
        mine.why = if is_one { NotCorrected::OneChecksum } else { NotCorrected::Eliminated } as u64;
        mine.is_carried = 1;
    }
    Ok(agreed(local, &mine, column)?.into())
}

/// The process column of the noticed wrong number, if located. Collective over the process row.
fn origin(
    local: &Local,
    places: &Places,
    weights: &Weights,
    &Noticed { unit, end, row, .. }: &Noticed,
) -> Result<Option<usize>, CommError> {
    let (grid, row) = (local.grid, row as usize);
    let mut own: Vec<f64> = Vec::new();
    if grid.is_checksum() {
        let (above, cols) = parts_of_group(local, end as usize);
        // SAFETY: no thread writes to A or to the sums.
        unsafe {
            own.extend(places.a.read(row..row + 1, cols.clone()).row(0));
            if above.contains(&row) {
                let sums = places.sums(cols.len()).into_ref();
                own.iter_mut().zip(sums.row(row)).for_each(|(value, sum)| *value -= sum);
            }
        }
    }
    let of_checksums = collect::all_gather_slices(&grid.row, &own)?.split_off(grid.q);
    let of_column = |col: usize| of_checksums.iter().map(|of| of[col]).collect::<Vec<f64>>();
    let largest = |deltas: &Vec<f64>| deltas.iter().fold(0.0f64, |most, by| most.max(by.abs()));
    let columns = (0..of_checksums[0].len()).map(of_column);
    let worst = columns.max_by(|a, b| largest(a).total_cmp(&largest(b)));
    let equations = Equations::new(weights, &vec![false; grid.row.size()]);
    let is_sure = |deltas: &Vec<f64>| equations.left > 1 && deltas.iter().all(|by| by.is_finite());
    Ok(worst.filter(is_sure).and_then(|deltas| equations.locate(&deltas, unit)))
}

/// Checks the checksums of the group that ends before panel `end`, below its diagonal: there they
/// are rounding, amplified by L21 L11^-1. Returns the unit and what is wrong on this rank.
/// Collective over the process column.
pub(super) fn check_left_over(
    local: &Local,
    places: &Places,
    end: usize,
) -> Result<(f64, Option<Noticed>), SolveError> {
    let grid = local.grid;
    if !grid.is_checksum() {
        return Ok((f64::INFINITY, None));
    }
    let (Range { end: below, .. }, cols) = parts_of_group(local, end);
    // SAFETY: no thread writes to A.
    let a = unsafe { places.a.read(0..local.shape.rows, cols.clone()) };
    let above = a.block(0..below, 0..cols.len());
    // A process row may have nothing above the diagonal.
    let mut size = [above.fetched_rows().map(kernels::largest).fold(0.0, f64::max)];
    collect::all_max(&grid.col, &mut size)?;
    let unit = unit(local, size[0]);
    let left_over = a.block(below..local.shape.rows, 0..cols.len());
    let rows = (below..).zip(left_over.fetched_rows());
    let wrong = rows.filter(|(_, values)| !is_rounding(kernels::largest(values), unit));
    let noticed = wrong.map(|(row, values)| {
        Noticed::in_row(end, row, max_units(values.iter().copied(), unit), unit)
    });
    Ok((unit, noticed.reduce(Noticed::and)))
}

struct RowCheck {
    wrong: Vec<Wrong>,
    /// The largest delta of the other rows, in units.
    units: f64,
    /// The unit; infinite where no checksum is left to check with.
    unit: f64,
}

/// Compares the rows of this process row with its checksums. Collective over the process row.
fn compare_rows(
    local: &Local,
    places: &Places,
    equations: &Equations,
    scope: &Scope,
    time: u64,
) -> Result<RowCheck, SolveError> {
    let (grid, m) = (local.grid, equations.checksums);
    if equations.left == 0 {
        return Ok(RowCheck { wrong: Vec::new(), units: 0.0, unit: f64::INFINITY });
    }
    let (mine, mut largest) = if scope.lost[grid.mycol] {
        (vec![0.0; local.shape.rows], [0.0])
    } else {
        products(local, places, (scope, time), local.shape.rows)
    };
    // delta_s of row r is element m r + s.
    let sign = if grid.is_checksum() { -1.0 } else { 1.0 };
    let factors: Vec<f64> =
        equations.factors_of_column(grid.mycol).map(|factor| sign * factor).collect();
    let mut deltas: Vec<f64> =
        mine.iter().flat_map(|value| factors.iter().map(move |factor| value * factor)).collect();
    collect::all_sum(&grid.row, &mut deltas)?;
    collect::all_max(&grid.row, &mut largest)?;
    let unit = unit(local, largest[0]);
    let (mut wrong, mut most) = (Vec::new(), 0.0f64);
    for (row, deltas) in deltas.chunks_exact_mut(m).enumerate() {
        equations.leave_out_lost(deltas);
        let largest = deltas.iter().map(|delta| delta.abs()).fold(0.0, f64::max);
        if are_rounding(deltas.iter().copied(), unit) {
            most = most.max(if unit > 0.0 { largest / unit } else { 0.0 });
            continue;
        }
        // All ranks of the process row have the same deltas.
        let (column, units) = if deltas.iter().all(|delta| delta.is_finite()) {
            (equations.locate(deltas, unit), largest / unit)
        } else {
            let is_here = !mine[row].is_finite();
            let mut column = [if is_here { grid.mycol as f64 } else { -1.0 }];
            collect::all_max(&grid.row, &mut column)?;
            ((column[0] >= 0.0).then_some(column[0] as usize), f64::INFINITY)
        };
        // With one equation none would be left to confirm the correction; and numbers that were
        // decoded and not checked may be as wrong as those they were decoded from.
        let is_sure = equations.left > 1 && !scope.decoded.is_unchecked;
        wrong.push(Wrong { row, units, column: column.filter(|_| is_sure) });
    }
    Ok(RowCheck { wrong, units: most, unit })
}

/// The information that the checksums of a process row give about it when some of its ranks are
/// lost: m checksums give m deltas, and each lost rank makes one of them unusable.
///
/// ```text
/// delta = sum over c of  e_c d_c        e_c the error of process column c, d_c its direction
/// ```
///
/// The contribution of a lost rank is as unknown as an error, so the directions of lost ranks are
/// removed from delta: the part perpendicular to them is what the other ranks contribute.
struct Equations {
    checksums: usize,
    left: usize,
    directions: Vec<Vec<f64>>,
    /// An orthonormal basis of the directions of lost ranks.
    unknown: Vec<Vec<f64>>,
    /// The process columns that are left, and their directions perpendicular to the unknown ones.
    seen: Vec<(usize, Vec<f64>)>,
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

impl Equations {
    /// `lost` marks lost ranks by process column, at most as many as there are checksums.
    fn new(weights: &Weights, lost: &[bool]) -> Self {
        let (checksums, directions) =
            (weights.checksums(), (0..lost.len()).map(|col| weights.direction(col)).collect());
        let (unknown, seen) = (Vec::new(), Vec::new());
        let mut new = Self { checksums, left: checksums, directions, unknown, seen };
        for col in (0..lost.len()).filter(|&col| lost[col]) {
            let mut direction = new.directions[col].clone();
            new.leave_out_lost(&mut direction);
            let length = dot(&direction, &direction).sqrt();
            assert!(length > 0.0, "any as many process columns as checksums can be decoded");
            direction.iter_mut().for_each(|value| *value /= length);
            new.unknown.push(direction);
            new.left -= 1;
        }
        for col in (0..lost.len()).filter(|&col| !lost[col]) {
            let mut direction = new.directions[col].clone();
            new.leave_out_lost(&mut direction);
            new.seen.push((col, direction));
        }
        new
    }

    /// Why wrong rows are not corrected; `is_unchecked`: data decoded here has not been checked.
    fn why_not(&self, is_unchecked: bool) -> NotCorrected {
        match self.left {
            _ if self.checksums == 1 => NotCorrected::OneChecksum,
            1 => NotCorrected::OneIsLeft,
            _ if is_unchecked => NotCorrected::Rebuilt,
            _ => NotCorrected::Scattered,
        }
    }

    /// The factors of a number of this process column in each delta, without their sign.
    fn factors_of_column(&self, col: usize) -> impl Iterator<Item = f64> {
        self.directions[col].iter().copied()
    }

    fn leave_out_lost(&self, deltas: &mut [f64]) {
        for direction in &self.unknown {
            let by = dot(direction, deltas);
            deltas.iter_mut().zip(direction).for_each(|(delta, value)| *delta -= by * value);
        }
    }

    /// The process column in which a wrong number has these deltas, from which lost ranks are
    /// removed; only if exactly one process column fits.
    fn locate(&self, deltas: &[f64], unit: f64) -> Option<usize> {
        // Scaled to the largest delta, so that no square overflows.
        let largest = deltas.iter().fold(0.0, |most: f64, delta| most.max(delta.abs()));
        let deltas: Vec<f64> = deltas.iter().map(|delta| delta / largest).collect();
        let most = (REST * dot(&deltas, &deltas).sqrt()).max(REST_UNITS * unit / largest);
        let rest = |like: &[f64]| {
            let by = dot(like, &deltas) / dot(like, like);
            deltas.iter().zip(like).map(|(delta, like)| (delta - by * like).powi(2)).sum::<f64>()
        };
        let mut fitting = self.seen.iter().filter(|(_, like)| rest(like).sqrt() <= most);
        let (col, _) = fitting.next()?;
        fitting.next().is_none().then_some(*col)
    }
}

/// The product of this rank's live columns with v, for the first `rows` rows, and the largest
/// magnitude among them.
fn products(
    local: &Local,
    places: &Places,
    (&Scope { cut, with_left_over, .. }, time): (&Scope, u64),
    rows: usize,
) -> (Vec<f64>, [f64; 1]) {
    let Local { params, rows: cyclic, cols, grid, shape, .. } = local;
    let finished = params.columns_before(cut);
    let summed = if with_left_over {
        params.columns_before(first_of_last_group(cut, grid.q))
    } else {
        finished
    };
    let v: Vec<f64> = (0..shape.cols as u64).map(|col| sign(cut as u64 * 2 + time, col)).collect();
    let products = Mutex::new((vec![0.0; rows], [0.0f64]));
    let (a, myrow, mycol, is_checksum) = (&places.a, grid.myrow, grid.mycol, grid.is_checksum());
    local.team.split(rows, GRAIN_ROWS, |range: Range<usize>| {
        let mut largest = 0.0f64;
        let dot = |row: usize| {
            let global = cyclic.global(row, myrow);
            let dead = if is_checksum {
                dead_checksums(cols.as_cyclic(), global, summed)
            } else {
                dead_columns(cols.as_cyclic(), mycol, global, finished)
            };
            // SAFETY: no thread writes to A.
            let a = unsafe { a.read(row..row + 1, dead..shape.cols) };
            let (dot, most) = kernels::signed_sum_and_largest(a.row(0), &v[dead..]);
            largest = largest.max(most);
            dot
        };
        let own: Vec<f64> = range.clone().map(dot).collect();
        let mut products = products.lock().expect("no thread panics with it");
        products.0[range].copy_from_slice(&own);
        products.1 = [products.1[0].max(largest)];
    });
    products.into_inner().expect("no thread panics with it")
}

/// A pseudo-random 1 or -1: from number `seed 2^40 + index` of one sequence of SplitMix64, whose
/// state grows by a constant from number to number.
fn sign(seed: u64, index: u64) -> f64 {
    let state = (seed << 40 ^ index).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    if SplitMix64::seed_from_u64(state).next_u64() & 1 == 0 { 1.0 } else { -1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delta_is_located() {
        for (q, m) in [(2, 2), (4, 2), (11, 2), (32, 2), (5, 3)] {
            let equations = Equations::new(&Weights::new(q, m), &vec![false; q + m]);
            for col in 0..q + m {
                for by in [-3e-7, 4e307] {
                    let deltas: Vec<f64> =
                        equations.factors_of_column(col).map(|d| by * d).collect();
                    assert_eq!(equations.locate(&deltas, 1e-9), Some(col), "Q = {q}, m = {m}");
                }
            }
            for s in 0..m {
                let deltas: Vec<f64> = (0..m).map(|i| if i == s { 5.0 } else { 1e-9 }).collect();
                assert_eq!(equations.locate(&deltas, 1e-9), Some(q + s), "Q = {q}, m = {m}");
            }
        }
        // Two errors at once are attributed to no column.
        let equations = Equations::new(&Weights::new(4, 3), &[false; 7]);
        let of_both = equations.factors_of_column(0).zip(equations.factors_of_column(2));
        let deltas: Vec<f64> = of_both.map(|(a, b)| a + b).collect();
        assert_eq!(equations.locate(&deltas, 1e-9), None);
        // An error that two columns explain is attributed to neither.
        let alike = Weights::given(vec![vec![1.0, 1.0 + 1e-4], vec![2.0, 2.0], vec![1.0, 5.0]]);
        let without_the_last = Equations::new(&alike, &[false, false, false, false, true]);
        assert_eq!(without_the_last.locate(&[1.0, 2.0, 0.0], 1e-9), None);
    }

    /// A wrong number is seen whatever lost ranks contributed, and located with three checksums.
    #[test]
    fn a_delta_is_seen_without_lost_ranks() {
        for (q, m) in [(1, 1), (2, 2), (4, 2), (11, 2), (1, 3), (2, 3), (4, 3), (11, 3)] {
            let weights = Weights::new(q, m);
            for (gone, col) in (0..q + m).flat_map(|gone| (0..q + m).map(move |col| (gone, col))) {
                let lost: Vec<bool> = (0..q + m).map(|at| at == gone).collect();
                let equations = Equations::new(&weights, &lost);
                assert_eq!(equations.left, m - 1);
                let of = equations.factors_of_column(col).zip(equations.factors_of_column(gone));
                let mut deltas: Vec<f64> = of.map(|(error, lost)| error + 1e3 * lost).collect();
                equations.leave_out_lost(&mut deltas);
                let what = format!("Q = {q}, m = {m}: {col} without {gone}: {deltas:?}");
                let is_rounding = are_rounding(deltas.iter().copied(), 1e-11);
                assert_eq!(is_rounding, col == gone || m == 1, "{what}");
                if m == 3 && col != gone {
                    assert_eq!(equations.locate(&deltas, 1e-11), Some(col), "{what}");
                }
            }
        }
    }

    /// The last check follows the last panel; if there are several, they cost 1 % in all.
    #[test]
    fn checks_are_evenly_spaced_and_cost_one_percent() {
        for panels in [1, 2, 43, 86, 1000] {
            for check in [0.0, 1e-9, 1e-3, 0.1, 0.3, 1.0, f64::INFINITY, f64::NAN] {
                let period = panels_between(check, 1.0, panels);
                let checks = panels.div_ceil(period);
                assert!((1..=panels).contains(&period), "{panels} panels, {check} s");
                let whole = panels as f64 / 3.0;
                assert!(checks == 1 || checks as f64 * check <= 0.01 * whole, "{checks} checks");
            }
        }
        assert_eq!(panels_between(0.1, 1.0, 86), 43);
        assert_eq!(panels_between(0.1, 0.0, 86), 86);
    }

    #[test]
    fn both_signs_occur_and_differ() {
        let of = |seed| (0..64).map(|i| sign(seed, i)).collect::<Vec<_>>();
        assert_ne!(of(1), of(2));
        assert!((-30.0..30.0).contains(&of(1).iter().sum::<f64>()));
    }
}
