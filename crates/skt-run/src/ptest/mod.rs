//! One test: generate, solve, time, check (HPL_pdtest).

mod links;
pub mod mxp;
mod rates;
pub mod refining;

use std::time::Instant;

use mxp::RefinementGuard;
pub(crate) use rates::RateWatch;
use skt_host::phases::{EarlierStarts, PhaseTotals, Phases};

use crate::events::{Phase, RunEvents};
use crate::record::energy::EnergyReading;
use crate::record::{DetailedTiming, Norms, Outcome, ROWS_IN_HALVES, TestRecord};
use crate::{cores, heartbeat, power};
use skt_comm::{Comm, CommError, collect};
use skt_config::TestSpec;
use skt_host::clock::{now_unix, now_unix_seconds};
use skt_solver::blas::{Element, MatMut, MatRef};
use skt_solver::grid::{Cyclic, Grid};
use skt_solver::matgen;
use skt_solver::mxp::check::reduce;
use skt_solver::pgesv::guard::Guard;
use skt_solver::pgesv::{Factored, LocalShape, Params, Rates, SolveError, Solver, Workspace, abft};
use skt_solver::team::Team;

/// The memory of a rank's part of the matrix, whichever numbers it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MatrixMemory {
    /// Doubles of all of it; at most `usize::MAX`.
    pub doubles: usize,
    /// Rows of the rank with the most rows.
    pub max_rows: usize,
    /// Bytes from one row to the next, the same on all ranks; at most `usize::MAX`.
    pub row_bytes: usize,
}

impl<T: Element> From<LocalShape<T>> for MatrixMemory {
    fn from(shape: LocalShape<T>) -> Self {
        let LocalShape { max_rows, lda, .. } = shape;
        Self { doubles: shape.doubles(), max_rows, row_bytes: lda.saturating_mul(size_of::<T>()) }
    }
}

/// The memory of the part of the matrix that rank `(myrow, mycol)` of the grid holds.
pub fn matrix_memory(spec: &TestSpec, myrow: usize, mycol: usize) -> MatrixMemory {
    match spec.mxp {
        Some(_) => mxp::local_shape(spec, myrow, mycol).into(),
        None => local_shape(spec, myrow, mycol).into(),
    }
}

/// Bytes that rank `(myrow, mycol)` of the grid needs for a test, for matrix and work space; at
/// most `u64::MAX`.
pub fn rank_bytes(spec: &TestSpec, myrow: usize, mycol: usize) -> u64 {
    let matrix_bytes = matrix_memory(spec, myrow, mycol).doubles.saturating_mul(size_of::<f64>());
    (matrix_bytes as u64).saturating_add(work_bytes(spec, myrow, mycol))
}

/// Bytes of work space of rank `(myrow, mycol)` besides the matrix or, with checksums, besides the
/// memory of [`abft::doubles`]; at most `u64::MAX`.
pub(crate) fn work_bytes(spec: &TestSpec, myrow: usize, mycol: usize) -> u64 {
    bytes_of(spec, myrow, mycol, |params, rows, shape| match spec.checksums {
        0 if spec.mxp.is_some() => mxp::work_doubles(spec, myrow, mycol),
        0 => shape.work_doubles(params, rows, myrow),
        _ => abft::work_doubles(params, rows, shape),
    })
}

/// Bytes of work space of rank `(myrow, mycol)` besides the memory of [`abft::doubles`], once the
/// checksums have replaced a process column; at most `u64::MAX`.
pub(crate) fn work_bytes_after_replacement(spec: &TestSpec, myrow: usize, mycol: usize) -> u64 {
    bytes_of(spec, myrow, mycol, |params, rows, shape| {
        abft::work_doubles_after_replacement(params, rows, myrow, shape)
    })
}

fn bytes_of(
    spec: &TestSpec,
    myrow: usize,
    mycol: usize,
    doubles: impl FnOnce(&Params, Cyclic, LocalShape) -> usize,
) -> u64 {
    let (params, rows) = (Params::from(spec), Cyclic::rows(spec.nb, spec.p));
    let doubles = doubles(&params, rows, local_shape(spec, myrow, mycol));
    doubles.saturating_mul(size_of::<f64>()) as u64
}

/// The shape of the part of the system that rank `(myrow, mycol)` of the grid holds.
pub fn local_shape(spec: &TestSpec, myrow: usize, mycol: usize) -> LocalShape {
    let rows = Cyclic::rows(spec.nb, spec.p);
    LocalShape::new(spec.n, rows, &spec.columns(), myrow, mycol)
}

/// The grid of a test, of the first ranks of `world`, with its distribution of columns. Collective;
/// other ranks get `None`.
pub fn grid(world: &Comm, spec: &TestSpec) -> Result<Option<Grid>, CommError> {
    let mut grid = Grid::new(world, spec.p, spec.q, spec.pmap)?;
    if let Some(grid) = &mut grid {
        grid.distribute_columns(spec.columns());
    }
    Ok(grid)
}

/// The rate in Gflop/s of `N^2 (2N/3 + 3/2)` operations in `seconds`; 0 if no time has passed.
pub fn gflops(n: usize, seconds: f64) -> f64 {
    let n = n as f64;
    if seconds > 0.0 { n / 1e9 * (n / seconds) * (2.0 / 3.0 * n + 1.5) } else { 0.0 }
}

/// A test on this rank, and the processes and threads that run it.
#[derive(Clone, Copy)]
pub struct TestRun<'r> {
    /// The processes with a part of the system.
    pub grid: &'r Grid,
    /// The threads of this rank.
    pub team: &'r Team,
    /// What is solved, and how.
    pub spec: &'r TestSpec,
}

/// A solution on one rank.
pub struct Solution {
    /// This rank's part of x, one double for each of its columns of A.
    pub x: Vec<f64>,
    /// Seconds from the barrier before the solution to its end, the maximum over ranks.
    pub seconds: f64,
    /// The time at which this rank learnt `seconds`, in seconds since 1970.
    pub end_unix: f64,
    /// The time of this rank by phase, in this start.
    pub phases: Phases,
    /// What the test did before this start.
    pub earlier: EarlierStarts,
    /// The data that went by messages on any rank: `panels`, and `rows` or rows in halves.
    pub by_messages: Vec<String>,
    /// The energy that it took, by each source that measured it.
    pub power: Vec<EnergyReading>,
}

/// Factors and solves the system that `guard` holds, timed (HPL_pdgesv with its timer). Sets
/// `start_unix_seconds` to the begin of the timed part in this start, in seconds since 1970.
/// Collective over the grid.
pub fn solve(
    test: TestRun<'_>,
    guard: &mut dyn Guard,
    events: &mut dyn RunEvents,
    start_unix_seconds: &mut i64,
) -> Result<Solution, SolveError> {
    let TestRun { grid, team, spec } = test;
    let shape = shape(grid, spec);
    let mut work = Workspace::new(grid, team, &Params::from(spec), shape)?;
    watch_rates(grid, spec, events, &mut work, |work, watch, events| {
        let begun = factor(test, guard, events, work, watch, start_unix_seconds)?;
        events.phase(Phase::BackSubstitute);
        let a = view(guard.matrix(), shape).share();
        let x = Solver::new(grid, team, Params::from(spec), shape, &a, work).back_substitute()?;
        end_timed_part(begun, grid, x, guard.seconds(), guard.earlier(), work, events)
    })
}

/// Calls `solve` in the work space `work`, while the rates of all ranks come to rank 0.
fn watch_rates<T: Factored, S>(
    grid: &Grid,
    spec: &TestSpec,
    events: &mut dyn RunEvents,
    work: &mut Workspace<T>,
    solve: impl FnOnce(
        &mut Workspace<T>,
        Option<&mut RateWatch>,
        &mut dyn RunEvents,
    ) -> Result<S, SolveError>,
) -> Result<S, SolveError> {
    let mut watch = RateWatch::begin(&grid.all, grid.all.rank(), spec)?;
    let solved = solve(work, watch.as_mut(), events);
    if let Some(report) = RateWatch::finish_after(watch, &solved, Some(work.rates()))? {
        events.rates(report);
    }
    solved
}

/// Begins the timed part, and factors the matrix that `guard` holds. Returns when the timed part
/// began in this start.
fn factor<T: Factored>(
    test: TestRun<'_>,
    guard: &mut dyn Guard<T>,
    events: &mut dyn RunEvents,
    work: &mut Workspace<T>,
    mut watch: Option<&mut RateWatch>,
    start_unix_seconds: &mut i64,
) -> Result<Instant, SolveError> {
    let TestRun { grid, team, spec } = test;
    let (params, shape) = (Params::from(spec), work.shape());
    let panels = params.panels();
    events.phase(Phase::Factor);
    grid.all.barrier()?;
    let mut next = guard.start();
    let (start, before_seconds) = (grid.all.now(), guard.seconds());
    *start_unix_seconds = now_unix_seconds();
    events.timed_part_begins(before_seconds);
    loop {
        let to = guard.cut(next, panels, &work.phases())?;
        if next == panels {
            return Ok(start);
        }
        let (a, background) = guard.lend(shape);
        let mut solver = Solver::new(grid, team, params, shape, &a, work);
        let mut after_panel = |columns: usize, rates: &Rates, _: &Phases| {
            let elapsed_seconds = before_seconds + (grid.all.now() - start).as_secs_f64();
            events.columns(columns, spec.n, elapsed_seconds);
            let slow = watch.as_mut().map_or(Ok(None), |watch| watch.progress(rates))?;
            slow.into_iter().for_each(|slow| events.slow(&slow));
            Ok(())
        };
        solver.factor(next..to, &mut after_panel, background)?;
        next = to;
    }
}

/// Ends the timed part that began at `start`, with the solution `x`, the `seconds` of this rank
/// since the first start began, and what the `earlier` starts did. Collective.
fn end_timed_part<T: Factored>(
    start: Instant,
    grid: &Grid,
    x: Vec<f64>,
    seconds: f64,
    earlier: EarlierStarts,
    work: &Workspace<T>,
    events: &mut dyn RunEvents,
) -> Result<Solution, SolveError> {
    let here = (grid.all.now() - start).as_secs_f64();
    events.timed_part_ends();
    let phases = work.phases().with_total(here);
    let seconds = collect::max(&grid.all, seconds)?;
    let end_unix = now_unix();
    let by_message =
        [grid.q > 1 && !work.shares_panels(), grid.p > 1 && !work.shares_rows(), work.has_halves()];
    let [panels, rows, has_halves] = collect::any_of(&grid.all, by_message)?;
    let rows_name = if has_halves { ROWS_IN_HALVES } else { "rows" };
    let by_messages = [("panels", panels), (rows_name, rows)].into_iter().filter(|(_, is)| *is);
    let by_messages = by_messages.map(|(what, _)| what.to_owned()).collect();
    let power = power::gather::gather(&grid.all, seconds, || events.energy(seconds))?;
    cores::gather(&grid.all, seconds, events)?;
    Ok(Solution { x, seconds, end_unix, phases, earlier, by_messages, power })
}

/// The shape of this rank's part of the system of a test.
pub fn shape(grid: &Grid, spec: &TestSpec) -> LocalShape {
    let (rows, cols) = (grid.rows(spec.nb), grid.cols(spec.nb));
    LocalShape::new(spec.n, rows, &cols, grid.myrow, grid.layout_col())
}

/// A rank's part of the system in its memory.
fn view(memory: &mut [f64], shape: LocalShape) -> MatMut<'_> {
    MatMut::row_major(memory, shape.rows, shape.cols, shape.lda)
}

/// Generates this rank's part of the system of a test in `memory`, which has at least as many
/// doubles. Returns the seconds it took.
pub fn generate(test: TestRun<'_>, memory: &mut [f64]) -> f64 {
    let TestRun { grid, team, spec } = test;
    let started = Instant::now();
    let a = view(memory, shape(grid, spec));
    matgen::generate(grid, team, spec.n, spec.nb, spec.generator, a);
    started.elapsed().as_secs_f64()
}

/// The phase in which the system of a test is generated.
pub(crate) fn generating(spec: &TestSpec) -> Phase {
    Phase::Generate { total_bytes: (spec.n * (spec.n + 1) * size_of::<f64>()) as u64 }
}

/// Runs one test on all ranks of the grid. Returns the record on rank 0 of the grid. `resumed`: the
/// system that `guard` holds comes from a checkpoint.
/// What is wrong with the test itself is in its record.
pub fn run(
    test: TestRun<'_>,
    guard: &mut dyn Guard,
    resumed: bool,
    events: &mut dyn RunEvents,
) -> Result<Option<TestRecord>, SolveError> {
    let mut record = empty_record(test.grid, test.spec)?;
    if !resumed {
        events.phase(generating(test.spec));
        record.generate_seconds = generate(test, guard.matrix());
    }
    let solved = solve(test, guard, events, &mut record.start_unix_seconds);
    conclude(test, record, solved, events, |x| judge(test, guard.matrix(), x))
}

/// Runs one test of HPL or of HPL-MxP, as [`run`] and [`mxp::run`] do.
/// What is wrong with the test itself is in its record.
pub fn run_any(
    test: TestRun<'_>,
    guard: &mut (impl Guard + RefinementGuard),
    resumed: bool,
    events: &mut dyn RunEvents,
) -> Result<Option<TestRecord>, SolveError> {
    match test.spec.mxp {
        Some(matrix) => mxp::run(test, matrix, guard, resumed, events),
        None => run(test, guard, resumed, events),
    }
}

/// Checks a test that was `solved`: passes `judge` this rank's part of x. Returns its record on
/// rank 0 of the grid.
pub(crate) fn conclude(
    TestRun { grid, spec, .. }: TestRun<'_>,
    mut record: TestRecord,
    solved: Result<Solution, SolveError>,
    events: &mut dyn RunEvents,
    judge: impl FnOnce(&[f64]) -> Result<Outcome, CommError>,
) -> Result<Option<TestRecord>, SolveError> {
    record.end_unix_seconds = now_unix_seconds();
    match solved {
        Ok(solution) => {
            record.end_unix_seconds = solution.end_unix as i64;
            record.end_unix = Some(solution.end_unix);
            record.time_seconds = solution.seconds;
            record.gflops = gflops(spec.n, solution.seconds);
            let EarlierStarts { totals, interruptions } = solution.earlier;
            let totals = totals + phase_totals(&grid.all, &solution.phases)?;
            record.interruptions = interruptions;
            record.phases = totals.table(record.time_seconds - interruptions.seconds());
            record.detailed = Some(DetailedTiming::new(&totals));
            record.column_waits = column_waits(grid, spec, &solution.phases)?;
            record.by_messages = solution.by_messages;
            let rated = |reading: EnergyReading| reading.rated(record.gflops, record.time_seconds);
            record.power = solution.power.into_iter().map(rated).collect();
            record.x_fingerprint = x_fingerprint(grid, spec, &solution.x)?;
            events.phase(Phase::Check);
            let started = Instant::now();
            record.outcome = judge(&solution.x)?;
            record.check_seconds = started.elapsed().as_secs_f64();
        }
        Err(SolveError::Pivot { column, value }) => {
            record.outcome = Outcome::Broke { column, pivot: value.to_string() };
        }
        Err(error) => return Err(error),
    }
    events.phase(Phase::Done);
    Ok((grid.all.rank() == 0).then_some(record))
}

/// A number that depends on every bit of x, but not on the grid: the sum over all j of a hash of j
/// and the bits of x_j.
pub fn x_fingerprint(grid: &Grid, spec: &TestSpec, x: &[f64]) -> Result<u64, CommError> {
    let cols = grid.cols(spec.nb);
    let hash = |(local, value): (usize, &f64)| {
        let place = cols.global(local, grid.mycol) as u64;
        let mixed = (place ^ value.to_bits().rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ (mixed >> 29) ^ place).wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ value.to_bits()
    };
    let mut sum = [x.iter().enumerate().map(hash).fold(0u64, u64::wrapping_add)];
    collect::all_reduce(&grid.row, &mut sum, u64::wrapping_add)?;
    Ok(sum[0])
}

/// The record of a test that has not been run.
pub(crate) fn empty_record(grid: &Grid, spec: &TestSpec) -> Result<TestRecord, CommError> {
    let bytes = rank_bytes(spec, grid.myrow, grid.mycol) as f64;
    let bytes = collect::max(&grid.all, bytes)?;
    let (spec, rank_bytes) = (spec.clone(), bytes as u64);
    Ok(TestRecord { spec, rank_bytes, ..TestRecord::default() })
}

/// The record of a test for whose matrix some rank has no memory, on rank 0. `why`: the reason, if
/// it is known.
pub fn skipped(
    grid: &Grid,
    spec: &TestSpec,
    why: Option<String>,
) -> Result<Option<TestRecord>, CommError> {
    let mut record = empty_record(grid, spec)?;
    let refused = || format!("no memory for the matrix ({} bytes on a rank)", record.rank_bytes);
    let reason = why.unwrap_or_else(refused);
    record.outcome = Outcome::Skipped { reason };
    Ok((grid.all.rank() == 0).then_some(record))
}

/// Generates the matrix again in `memory`, which has at least as many doubles as this rank's part,
/// and checks the solution against it.
pub fn judge(test: TestRun<'_>, memory: &mut [f64], x: &[f64]) -> Result<Outcome, CommError> {
    let TestRun { grid, spec, .. } = test;
    if spec.threshold <= 0.0 {
        return Ok(Outcome::NotChecked);
    }
    generate(test, memory);
    let a = view(memory, shape(grid, spec));
    Ok(outcome(spec, norms(grid, spec.n, spec.nb, a.as_ref(), x)?))
}

/// How a test with these norms has ended.
fn outcome(spec: &TestSpec, norms: Norms) -> Outcome {
    let scaled_residual = norms.scaled_residual(spec.n);
    // Not `>=`: a residual that is NaN must fail.
    if scaled_residual < spec.threshold {
        Outcome::Passed { scaled_residual, norms }
    } else {
        Outcome::Failed { scaled_residual, norms }
    }
}

/// The seconds of a start by phase, of which those of this rank are `mine`. Collective.
fn phase_totals(comm: &Comm, mine: &Phases) -> Result<PhaseTotals, CommError> {
    let [max, mean] = max_and_mean(comm, mine.to_parts())?;
    Ok(PhaseTotals { max, mean })
}

/// The seconds that each process column waited for panels in this start, as the mean over its
/// ranks, of which this rank's are in `mine`; none where process columns have equal rates.
/// Collective.
fn column_waits(grid: &Grid, spec: &TestSpec, mine: &Phases) -> Result<Vec<f64>, CommError> {
    if spec.rates.is_empty() {
        return Ok(Vec::new());
    }
    let mut waits = vec![0.0; grid.q];
    waits[grid.mycol] = mine.bcast / grid.p as f64;
    collect::all_sum(&grid.all, &mut waits)?;
    Ok(waits)
}

/// The largest and the mean of each number over all ranks. Collective.
pub(crate) fn max_and_mean<const N: usize>(
    comm: &Comm,
    mine: [f64; N],
) -> Result<[[f64; N]; 2], CommError> {
    let mut pairs = mine.map(|number| [number, number]);
    collect::all_reduce(comm, &mut pairs, |[max, sum], [other_max, other_sum]| {
        [max.max(other_max), sum + other_sum]
    })?;
    let ranks = comm.size() as f64;
    Ok([pairs.map(|[max, _]| max), pairs.map(|[_, sum]| sum / ranks)])
}

/// Norms (HPL_pdtest) of the system whose local part, as generated, is `a`, and of the solution whose local part
/// is `x`. Collective over the grid; the result is the same on all ranks.
pub fn norms(grid: &Grid, n: usize, nb: usize, a: MatRef, x: &[f64]) -> Result<Norms, CommError> {
    let (cols, rows) = (grid.cols(nb), a.rows());
    let holds_b = cols.owner(n) == grid.mycol;
    // Of all local rows: the sums of magnitudes, the products with x, the elements of b.
    let mut of_rows = vec![0.0; 3 * rows];
    let mut of_cols = vec![0.0; x.len()];
    for i in 0..rows {
        let row = a.row(i);
        let (mut sum, mut product) = (0.0, 0.0);
        for ((value, xj), column) in row.iter().zip(x).zip(&mut of_cols) {
            let magnitude = value.abs();
            sum += magnitude;
            product += value * xj;
            *column += magnitude;
        }
        let b = if holds_b { row[cols.local(n)] } else { 0.0 };
        (of_rows[i], of_rows[rows + i], of_rows[2 * rows + i]) = (sum, product, b);
        heartbeat::piece();
    }
    collect::all_sum(&grid.row, &mut of_rows)?;
    collect::all_sum(&grid.col, &mut of_cols)?;
    let (sums, rest) = of_rows.split_at(rows);
    let (products, b) = rest.split_at(rows);
    let residual: Vec<f64> = b.iter().zip(products).map(|(b, ax)| b - ax).collect();
    reduce(grid, [&residual, sums, &of_cols, x, b])
}

#[cfg(test)]
mod tests {
    use super::*;
    use skt_config::{Format, parse};
    use skt_solver::comm::threads;
    use skt_solver::pgesv::guard::Unguarded;

    /// Generates its part of the system until this second has begun.
    struct GeneratesUntil(i64);

    impl RunEvents for GeneratesUntil {
        fn phase(&mut self, phase: Phase) {
            while matches!(phase, Phase::Generate { .. }) && now_unix_seconds() < self.0 {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        }
    }

    #[test]
    fn a_test_starts_when_all_ranks_have_their_part() {
        let toml = b"n = 20\nnb = 8\np = 1\nq = 2\n";
        let spec = parse(toml, "t", Format::Toml, false).unwrap().spec.tests().remove(0);
        let ranks = threads::run(2, |world| {
            let grid = Grid::new(&world, 1, 2, spec.pmap)?.expect("both take part");
            let mut guard = Unguarded::new(shape(&grid, &spec).doubles()).expect("memory");
            let has_part = now_unix_seconds() + world.rank() as i64;
            let mut events = GeneratesUntil(has_part);
            let team = Team::solo();
            let test = TestRun { grid: &grid, team: &team, spec: &spec };
            let record = run(test, &mut guard, false, &mut events)?;
            Ok::<_, SolveError>((has_part, record))
        });
        let mut ranks = ranks.into_iter().map(|rank| rank.expect("solved"));
        let (_, record) = ranks.next().expect("rank 0");
        let (has_part, _) = ranks.next().expect("rank 1");
        let start = record.expect("it is rank 0's").start_unix_seconds;
        assert!(start >= has_part, "{start} is before {has_part}");
    }
}
