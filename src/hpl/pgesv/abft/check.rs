//! Silent errors: whether the checksums still match the columns.
//!
//! ```text
//! delta_s = sum over q of  w_sq (mu S_q) v  -  C_s v        v random, of +1 and -1
//! ```
//!
//! Undisturbed, an element of delta is rounding: of each step and each column one error, of either
//! sign. A *unit* is `eps max |S| N`, over the process row. A wrong number e is seen as w e. Several
//! checksums also say where it is, as the ratios of its deltas are those of its weights; the row is
//! then computed anew from the others there.
//!
//! A column is not summed up any more when it is finished. What was wrong with it by then is
//! left over below the diagonal in its checksums: these are looked at when their group is
//! finished (`Run::finish_group`).

use std::num::{NonZeroUsize, ParseIntError};
use std::ops::Range;
use std::str::FromStr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::super::SolveError;
use super::super::local::Local;
use super::groups::{columns_of, dead_checksums, dead_columns, of_group};
use super::memory::Places;
use super::relay::{Relay, Sum};
use super::rounding::{are_rounding, is_rounding, most_units, unit};
use super::weights::Weights;
use crate::hpl::comm::{Comm, collect};
use crate::machine::blas::kernels;

/// The deltas of a row are attributed to a process column if what it leaves unexplained is below
/// this share of them, or this many units.
const REST: f64 = 1e-3;
const REST_UNITS: f64 = 2.0;
/// Rows of one thread at a time.
const GRAIN_ROWS: usize = 16;
/// One in so many rows tells how long a check of all takes.
const TIMED_ROWS: usize = 16;

/// A row that the checksums contradict.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Wrong {
    /// Local row.
    row: usize,
    /// Its largest delta, in units; not finite if an element is not.
    units: f64,
    /// The process column that it is in, if the checksums agree about that.
    column: Option<usize>,
}

/// What a check has found, on all ranks alike.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Checked {
    /// The largest delta, in units, after mending.
    pub units: f64,
    /// Rows that were wrong and are right again.
    pub mended_rows: usize,
}

/// How often the checksums are compared with the matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CheckEvery {
    /// As often as takes less than a hundredth of the time.
    Auto,
    /// Not at all.
    Never,
    /// Each time behind so many panels.
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

/// When the next check is due.
pub(super) struct Checks {
    every: CheckEvery,
    /// The panel that the run goes on from, and the one before which the next check is.
    first: usize,
    next: usize,
    /// Panels between two.
    period: usize,
    /// Seconds that one takes, and when these were known.
    seconds: f64,
    timed: Instant,
}

impl Checks {
    /// Of a run that goes on from panel `from`. Only what has just been generated `is_new`.
    pub fn new(every: CheckEvery, from: usize, is_new: bool) -> Self {
        let period = match every {
            CheckEvery::Panels(panels) => panels.get(),
            // Not known yet.
            CheckEvery::Auto | CheckEvery::Never => usize::MAX / 2,
        };
        let next = if is_new && every == CheckEvery::Auto { period } else { from };
        Self { every, first: from, next, period, seconds: 0.0, timed: Instant::now() }
    }

    /// Whether there are none.
    pub fn are_off(&self) -> bool {
        self.every == CheckEvery::Never
    }

    /// Whether one is due before panel `cut`; the last one is after all panels. The same on all
    /// ranks.
    ///
    /// # Errors
    /// When a rank is lost.
    pub fn is_due<C: Comm>(
        &mut self,
        local: &Local<C>,
        places: &Places,
        cut: usize,
    ) -> Result<bool, SolveError> {
        if self.every == CheckEvery::Auto && cut == self.first && cut != self.next {
            let (start, rows) = (Instant::now(), local.shape.rows / TIMED_ROWS);
            products(local, places, (cut, 0), rows);
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

    /// One has been made.
    pub fn done(&mut self, cut: usize, took: Duration) {
        if cut == self.first {
            self.time(took);
        }
        self.next = cut + self.period;
    }

    fn time(&mut self, took: Duration) {
        (self.seconds, self.timed) = (took.as_secs_f64(), Instant::now());
    }
}

/// Panels between two of as many checks as cost 1 %, and of one at least, the last of them behind
/// the last of `panels`. These take a third of their number times the seconds of the first one, and
/// each check as long as the first: hence 300.
fn panels_between(check_seconds: f64, panel_seconds: f64, panels: usize) -> usize {
    let checks = panels as f64 * panel_seconds / (300.0 * check_seconds);
    // What is no number becomes 0.
    panels.div_ceil((checks as usize).clamp(1, panels.max(1)))
}

/// Checks the system before panel `cut`, and computes rows anew that are wrong, if the
/// checksums say where, and this process row `may_mend`. Collective over the grid.
///
/// # Errors
/// [`SolveError::Wrong`] on all ranks, if wrong numbers are left. When a rank is lost.
pub(super) fn check<C: Comm>(
    local: &Local<C>,
    places: &Places,
    weights: &Weights,
    relay: &mut Relay<C>,
    cut: usize,
    may_mend: bool,
) -> Result<Checked, SolveError> {
    let grid = local.grid;
    let finished = local.params.columns_before(cut);
    let look = |time| look(local, places, weights, (cut, time));
    let (wrong, units) = look(0)?;
    let mut most = [units, wrong.len() as f64];
    collect::all_max(&grid.all, &mut most)?;
    if most[1] == 0.0 {
        return Ok(Checked { units: most[0], mended_rows: 0 });
    }
    for wrong in &wrong {
        if let Some(target) = wrong.column.filter(|_| may_mend) {
            mend(local, weights, relay, finished, wrong.row, target)?;
        }
    }
    // Each process row counts its rows once.
    let mut mended = [if grid.mycol == 0 { wrong.len() as f64 } else { 0.0 }];
    collect::all_sum(&grid.all, &mut mended)?;
    let (wrong, units) = look(1)?;
    let worst = wrong.iter().max_by(|a, b| a.units.total_cmp(&b.units));
    let place = |wrong: &Wrong| local.rows.global(wrong.row, grid.myrow);
    let mine = [worst.map_or(-1.0, |wrong| wrong.units), worst.map_or(0.0, |w| place(w) as f64)];
    let all = collect::all_gather_bytes(&grid.all, bytemuck::cast_slice(&mine))?;
    let all = all.iter().map(|bytes| bytemuck::pod_read_unaligned::<[f64; 2]>(bytes));
    let worst = all.max_by(|a, b| a[0].total_cmp(&b[0])).expect("a rank");
    if worst[0] >= 0.0 {
        return Err(SolveError::Wrong {
            column: finished,
            row: worst[1] as usize,
            units: worst[0],
        });
    }
    let mut most = [units];
    collect::all_max(&grid.all, &mut most)?;
    Ok(Checked { units: most[0], mended_rows: mended[0] as usize })
}

/// The checksums of the group that ends before panel `end`, below its diagonal: there they are
/// rounding, amplified by L21 L11^-1. Returns the unit. Collective over the process column.
///
/// # Errors
/// [`SolveError::Wrong`] on a rank that has more there. When a rank is lost.
pub(super) fn check_left_over<C: Comm>(
    local: &Local<C>,
    places: &Places,
    end: usize,
) -> Result<f64, SolveError> {
    let grid = local.grid;
    if !grid.is_checksum() {
        return Ok(f64::INFINITY);
    }
    let (Range { end: below, .. }, cols) = of_group(local, end);
    // SAFETY: nobody writes to A.
    let a = unsafe { places.a.read(0..local.shape.rows, cols.clone()) };
    let above = a.block(0..below, 0..cols.len());
    // A process row may have nothing above the diagonal.
    let mut size = [above.fetched_rows().map(kernels::largest).fold(0.0, f64::max)];
    collect::all_max(&grid.col, &mut size)?;
    let unit = unit(local, size[0]);
    let left_over = a.block(below..local.shape.rows, 0..cols.len());
    let mut rows = (below..).zip(left_over.fetched_rows());
    match rows.find(|(_, row)| !is_rounding(kernels::largest(row), unit)) {
        Some((row, values)) => Err(SolveError::Wrong {
            column: local.params.columns_before(end),
            row: local.rows.global(row, grid.myrow),
            units: most_units(values.iter().copied(), unit),
        }),
        None => Ok(unit),
    }
}

/// Rows of this process row that are wrong, and the largest delta in units. Collective over
/// the process row.
fn look<C: Comm>(
    local: &Local<C>,
    places: &Places,
    weights: &Weights,
    at: (usize, u64),
) -> Result<(Vec<Wrong>, f64), SolveError> {
    let (grid, m) = (local.grid, weights.checksums());
    let (mine, mut largest) = products(local, places, at, local.shape.rows);
    // Of row r, delta_s is element m r + s.
    let factor = |s: usize| match grid.mycol.checked_sub(grid.q) {
        None => weights.of(s)[grid.mycol],
        Some(checksum) => -f64::from(u8::from(s == checksum)),
    };
    let mut deltas: Vec<f64> =
        mine.iter().flat_map(|value| (0..m).map(move |s| value * factor(s))).collect();
    collect::all_sum(&grid.row, &mut deltas)?;
    collect::all_max(&grid.row, &mut largest)?;
    let unit = unit(local, largest[0]);
    let (mut wrong, mut most) = (Vec::new(), 0.0f64);
    for (row, deltas) in deltas.chunks_exact(m).enumerate() {
        let largest = deltas.iter().map(|delta| delta.abs()).fold(0.0, f64::max);
        if are_rounding(deltas.iter().copied(), unit) {
            most = most.max(if unit > 0.0 { largest / unit } else { 0.0 });
            continue;
        }
        // All ranks of the process row have the same deltas.
        let (column, units) = if deltas.iter().all(|delta| delta.is_finite()) {
            (locate(weights, deltas, unit), largest / unit)
        } else {
            let is_here = !mine[row].is_finite();
            let mut column = [if is_here { grid.mycol as f64 } else { -1.0 }];
            collect::all_max(&grid.row, &mut column)?;
            ((column[0] >= 0.0).then_some(column[0] as usize), f64::INFINITY)
        };
        wrong.push(Wrong { row, units, column: column.filter(|_| m > 1) });
    }
    Ok((wrong, most))
}

/// The process column in which a wrong number has these deltas.
fn locate(weights: &Weights, deltas: &[f64], unit: f64) -> Option<usize> {
    // To the largest, so that no square overflows.
    let largest = deltas.iter().fold(0.0, |most: f64, delta| most.max(delta.abs()));
    let deltas: Vec<f64> = deltas.iter().map(|delta| delta / largest).collect();
    let square = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum();
    let whole: f64 = square(&mut deltas.iter().copied());
    let rest = |like: &dyn Fn(usize) -> f64| -> f64 {
        let dot: f64 = deltas.iter().enumerate().map(|(s, delta)| like(s) * delta).sum();
        let by = dot / square(&mut (0..deltas.len()).map(like));
        square(&mut deltas.iter().enumerate().map(|(s, delta)| delta - by * like(s)))
    };
    let q = weights.columns();
    let of_column = |col: usize| match col.checked_sub(q) {
        None => rest(&|s| weights.of(s)[col]),
        Some(checksum) => rest(&|s| f64::from(u8::from(s == checksum))),
    };
    let rests = (0..q + deltas.len()).map(|col| (of_column(col), col));
    let (rest, col) = rests.min_by(|a, b| a.0.total_cmp(&b.0)).expect("a process column");
    (rest.sqrt() <= (REST * whole.sqrt()).max(REST_UNITS * unit / largest)).then_some(col)
}

/// Computes a local row of process column `target` anew from the others.
fn mend<C: Comm>(
    local: &Local<C>,
    weights: &Weights,
    relay: &mut Relay<C>,
    finished: usize,
    row: usize,
    target: usize,
) -> Result<(), SolveError> {
    let q = local.grid.q;
    let all: Vec<usize> = (0..weights.checksums()).collect();
    let (terms, divisor) = match target.checked_sub(q) {
        Some(s) => (weights.terms(s), 1.0),
        None => {
            let decoding = weights.decoding(&[target], &all);
            (decoding.terms(0), decoding.divisor)
        }
    };
    let sum = Sum { divisor, ..Sum::new("mend", terms, target, finished) };
    relay.sum(sum, (row..row + 1, 0..columns_of(local, target)))
}

/// The product of this rank's columns, those that are alive, with v, for the first `rows`; and
/// the largest magnitude there.
fn products<C: Comm>(
    local: &Local<C>,
    places: &Places,
    (cut, time): (usize, u64),
    rows: usize,
) -> (Vec<f64>, [f64; 1]) {
    let Local { params, rows: cyclic, cols, grid, shape, .. } = local;
    let finished = params.columns_before(cut);
    let v: Vec<f64> = (0..shape.cols as u64).map(|col| sign(cut as u64 * 2 + time, col)).collect();
    let products = Mutex::new((vec![0.0; rows], [0.0f64]));
    let (a, myrow, mycol, is_checksum) = (&places.a, grid.myrow, grid.mycol, grid.is_checksum());
    local.team.split(rows, GRAIN_ROWS, |range: Range<usize>| {
        let mut largest = 0.0f64;
        let dot = |row: usize| {
            let global = cyclic.global(row, myrow);
            let dead = match is_checksum {
                true => dead_checksums(*cols, global, finished),
                false => dead_columns(*cols, mycol, global, finished),
            };
            // SAFETY: nobody writes to A.
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

/// 1 or -1, by chance (SplitMix64; Steele, Lea, Flood 2014).
fn sign(seed: u64, index: u64) -> f64 {
    let mut z = (seed << 40 ^ index).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    if (z ^ (z >> 31)) & 1 == 0 { 1.0 } else { -1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delta_is_located() {
        for (q, m) in [(2, 2), (4, 2), (11, 2), (32, 2), (5, 3)] {
            let weights = Weights::new(q, m);
            for col in 0..q {
                for by in [-3e-7, 4e307] {
                    let deltas: Vec<f64> = (0..m).map(|s| by * weights.of(s)[col]).collect();
                    assert_eq!(locate(&weights, &deltas, 1e-9), Some(col), "Q = {q}, m = {m}");
                }
            }
            for s in 0..m {
                let deltas: Vec<f64> = (0..m).map(|i| if i == s { 5.0 } else { 1e-9 }).collect();
                assert_eq!(locate(&weights, &deltas, 1e-9), Some(q + s), "Q = {q}, m = {m}");
            }
        }
        // Two at once are nobody's.
        let weights = Weights::new(4, 3);
        let deltas: Vec<f64> = (0..3).map(|s| weights.of(s)[0] + weights.of(s)[2]).collect();
        assert_eq!(locate(&weights, &deltas, 1e-9), None);
    }

    /// The last one is behind the last panel, and all together cost 1 % if they are several.
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
    fn signs_are_both_and_differ() {
        let of = |seed| (0..64).map(|i| sign(seed, i)).collect::<Vec<_>>();
        assert_ne!(of(1), of(2));
        assert!((-30.0..30.0).contains(&of(1).iter().sum::<f64>()));
    }
}
