//! A short DGEMM at the start: measures the rate of the cores, and whether the BLAS has chosen a
//! kernel that fits them.

use std::sync::Mutex;
use std::time::Instant;

use nix::time::{ClockId, clock_gettime};
use serde::Serialize;
use skt_comm::PageBuf;

use skt_solver::blas::library::{self, NoWorkSpace};
use skt_solver::blas::{Element, MatMut, MatRef, gemm};
use skt_solver::team::Team;

/// The most bytes that a thread reads to measure the rate of its memory: more than the share of the
/// caches that a core has on most processors.
const READ_BYTES: f64 = 16.0 * 1048576.0;
/// Columns of the matrix in that sample, as of a panel.
const READ_COLS: usize = 256;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DgemmSelfTest {
    pub gflops_per_core: f64,
    /// The peak rate of a core, where it is known ([`skt_solver::blas::peak`]).
    pub peak_gflops_per_core: Option<f64>,
    pub warnings: Vec<String>,
}

/// The least number of calls, however long one takes: the first touches memory and wakes the core
/// up.
const MIN_CALLS: usize = 3;

/// Rates of GEMM in Gflop/s.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    pub best: f64,
    /// The rate of all calls after the first one, which touches the memory.
    pub mean: f64,
    /// The share of the time of the calls for which the threads had a core, at most 1.
    pub cpu_share: f64,
}

/// The rate in Gflop/s of DGEMM in the shape of the trailing update, of all threads of `team`
/// together: the best of the calls that begin within `budget_seconds`. These are the first BLAS
/// calls of a process: afterwards each thread has its work space.
pub fn dgemm_gflops(team: &Team, budget_seconds: f64) -> Result<f64, NoWorkSpace> {
    Ok(gemm_rates(1e-3f64, team, budget_seconds)?.best)
}

/// The rates of DGEMM as [`dgemm_gflops`] measures them, of smaller products within a small budget.
pub fn dgemm_rates(team: &Team, budget_seconds: f64) -> Result<Rates, NoWorkSpace> {
    let order = order_within(budget_seconds);
    gemm_rates_at(1e-3f64, Clock::Wall, team, budget_seconds, order, &[DEPTH])
}

/// The rows and columns of products of which [`MIN_CALLS`] take the budget at 10 Gflop/s a core: many
/// ranks that share a core, or start for a tiny test, would wait for larger ones.
fn order_within(budget_seconds: f64) -> usize {
    let operations = 1e10 * budget_seconds;
    let order = (operations / (MIN_CALLS * 2 * DEPTH) as f64).sqrt() as usize;
    order.clamp(MIN_ORDER, ORDER)
}

/// The rates of GEMM as [`dgemm_gflops`] measures them, on operands of which all elements have this
/// `value`.
pub(crate) fn gemm_rates<T: Element>(
    value: T,
    team: &Team,
    budget_seconds: f64,
) -> Result<Rates, NoWorkSpace> {
    gemm_rates_at(value, Clock::Wall, team, budget_seconds, ORDER, &[DEPTH])
}

/// The clock by which rates are measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Clock {
    Wall,
    Processor,
}

/// The rates of GEMM in the trailing update, of all threads of `team` together. Each call has a
/// product of each of these depths (NB), with `order` rows and columns.
fn gemm_rates_at<T: Element>(
    value: T,
    clock: Clock,
    team: &Team,
    budget_seconds: f64,
    order: usize,
    depths: &[usize],
) -> Result<Rates, NoWorkSpace> {
    let deepest = depths.iter().copied().max().unwrap_or(DEPTH);
    let doubles = |order: usize| T::doubles(order * (order + 2 * deepest));
    let used = doubles(order);
    let begin = |room: &mut [f64]| T::from_doubles_mut(&mut room[..used]).fill(value);
    let multiply = |room: &mut [f64]| {
        let (c, operands) = T::from_doubles_mut(&mut room[..used]).split_at_mut(order * order);
        let (a, b) = operands.split_at(order * deepest);
        for &depth in depths {
            let a = MatRef::col_major(a, order, depth, order);
            let b = MatRef::row_major(b, depth, order, order);
            gemm(T::MINUS_ONE, a, b, T::ONE, MatMut::row_major(c, order, order, order));
        }
    };
    let flops = operations(order, depths);
    // Small products map as much as large ones: a lack of address space is reported here.
    call_rates(clock, team, budget_seconds, doubles(order.max(ORDER)), begin, multiply, flops)
}

/// The processor time of this process so far.
pub(crate) fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID);
    time.map_or(0.0, |time| time.tv_sec() as f64 + time.tv_nsec() as f64 / 1e9)
}

/// Rows and columns of A2 in a product whose rate is measured.
pub(super) const ORDER: usize = 768;
/// Rows and columns from which on a product has about the rate of large ones.
const MIN_ORDER: usize = 192;
/// Columns of L2.
pub(super) const DEPTH: usize = 256;

/// The depths `depths`, or that of the self-test if there are none.
fn depths_or_default(depths: &[usize]) -> &[usize] {
    if depths.is_empty() { &[DEPTH] } else { depths }
}

/// The operations of products of these depths, with `order` rows and columns.
pub(super) fn operations(order: usize, depths: &[usize]) -> f64 {
    (2 * order * order * depths.iter().sum::<usize>()) as f64
}

/// The operations of the least number of calls of [`gemm_gflops_at`].
pub(super) fn operations_at(order: usize, depths: &[usize]) -> f64 {
    MIN_CALLS as f64 * operations(order, depths_or_default(depths))
}

/// The rate in Gflop/s of GEMM on this thread, for each second of the processor time of this
/// process: that of all calls but the first which begin within `budget_seconds`.
pub(super) fn gemm_gflops_at<T: Element>(
    order: usize,
    depths: &[usize],
    budget_seconds: f64,
) -> Result<f64, NoWorkSpace> {
    let (value, depths) = (T::rounded(1e-3), depths_or_default(depths));
    let team = Team::solo();
    Ok(gemm_rates_at(value, Clock::Processor, &team, budget_seconds, order, depths)?.mean)
}

/// The bytes a second at which all threads of `team` together read a matrix with elements of type
/// `T` from memory to multiply it by a vector, as substitutions do: at most `READ_BYTES` a
/// thread, and no more than its share of the largest matrix, of which a thread has
/// `entries_of_thread` entries.
pub fn read_bytes_per_second<T: Element>(
    team: &Team,
    entries_of_thread: f64,
) -> Result<f64, NoWorkSpace> {
    let entries = entries_of_thread.min(READ_BYTES / size_of::<T>() as f64);
    let rows = (entries as usize / READ_COLS).max(1);
    let begin = |room: &mut [f64]| room.fill(0.0);
    let read = |room: &mut [f64]| {
        let (y, a) = room.split_at_mut(rows);
        let a = MatRef::row_major(T::from_doubles_mut(a), rows, READ_COLS, READ_COLS);
        T::subtract_product(a, &[0.0; READ_COLS], y);
    };
    let bytes = (rows * READ_COLS * size_of::<T>()) as f64;
    let doubles = rows + T::doubles(rows * READ_COLS);
    Ok(1e9 * call_rates(Clock::Wall, team, 0.0, doubles, begin, read, bytes)?.best)
}

/// The rates of calls of `call` in the memory of its thread, `doubles` doubles that `begin` has
/// written. A call does `operations` of what the rates are to be of.
pub(super) fn call_rates(
    clock: Clock,
    team: &Team,
    budget_seconds: f64,
    doubles: usize,
    begin: impl Fn(&mut [f64]) + Sync,
    call: impl Fn(&mut [f64]) + Sync,
    operations: f64,
) -> Result<Rates, NoWorkSpace> {
    let threads = team.threads();
    // Each thread writes its own operands first, so that they are in memory near to it, and so that
    // the others do not sleep during that.
    let parts: Vec<Mutex<Option<PageBuf>>> = (0..threads).map(|_| Mutex::new(None)).collect();
    let failed = Mutex::new(None);
    let begin = |thread: usize| match PageBuf::new(doubles) {
        Ok(mut part) => {
            begin(&mut part);
            *parts[thread].lock().expect("one thread each") = Some(part);
        }
        Err(why) => *failed.lock().expect("no thread panics") = Some(why),
    };
    team.fork(&begin, || ());
    if let Some(why) = failed.into_inner().expect("no thread panics") {
        return Err(NoWorkSpace { threads, bytes: doubles * threads * size_of::<f64>(), why });
    }
    let call = |thread: usize| {
        let mut part = parts[thread].lock().expect("one thread each");
        call(part.as_mut().expect("all have begun"));
    };
    // A worker that starts late, and its first allocation, map memory (an arena of the allocator).
    team.fork(&|_| drop(std::hint::black_box(Box::new(0u8))), || ());
    // From here to the first product, where OpenBLAS maps its work space, nothing is mapped.
    library::check_work_space(threads)?;
    let calls = || {
        team.fork(&call, || ());
        operations * threads as f64
    };
    let (begun, busy) = (Instant::now(), cpu_seconds());
    let clock_seconds = || match clock {
        Clock::Wall => begun.elapsed().as_secs_f64(),
        Clock::Processor => cpu_seconds(),
    };
    let (best, mean) = measure_by(clock_seconds, calls, budget_seconds);
    let all_seconds = begun.elapsed().as_secs_f64() * threads as f64;
    let cpu_share = ((cpu_seconds() - busy) / all_seconds).min(1.0);
    Ok(Rates { best, mean, cpu_share })
}

/// Calls `run`, which returns its operations, until `budget_seconds` have passed.
/// Returns the rate of the fastest call, and that of all after the first one.
fn measure_by(
    mut clock_seconds: impl FnMut() -> f64,
    mut run: impl FnMut() -> f64,
    budget_seconds: f64,
) -> (f64, f64) {
    let start = clock_seconds();
    let mut best = 0.0f64;
    let (mut all, mut warm) = (0.0, start);
    let mut before = start;
    let mut calls = 0;
    while calls < MIN_CALLS || before - start < budget_seconds {
        let operations = run();
        let after = clock_seconds();
        // A clock too coarse to see the call cannot measure its rate.
        if after > before {
            best = best.max(operations / (after - before) / 1e9);
        }
        before = after;
        calls += 1;
        if calls == 1 {
            warm = after;
        } else {
            all += operations;
        }
    }
    let mean = if before > warm { all / (before - warm) / 1e9 } else { best };
    (best, mean)
}

/// The least share of the peak that DGEMM reaches if the BLAS is made for the processor and nothing
/// else uses the cores: such a BLAS reaches nine tenths, two threads on a core half.
pub(crate) const MIN_OF_PEAK: f64 = 0.6;

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn the_best_of_all_calls_counts() {
        let now = Cell::new(0.0);
        let mut durations = [2.0, 0.5, 1.0, 1.0, 1.0].into_iter();
        let run = || {
            now.set(now.get() + durations.next().unwrap());
            1e9
        };
        let rates = measure_by(|| now.get(), run, 4.0);
        assert_eq!(rates, (2.0, 3.0 / 2.5));
        assert_eq!(durations.next(), Some(1.0), "stops when the budget is spent");
    }

    #[test]
    fn slow_calls_are_still_made_three_times() {
        let now = Cell::new(0.0);
        let calls = Cell::new(0);
        let run = || {
            calls.set(calls.get() + 1);
            now.set(now.get() + 100.0);
            1e12
        };
        assert_eq!(measure_by(|| now.get(), run, 1.0).0, 10.0);
        assert_eq!(calls.get(), MIN_CALLS);
    }

    #[test]
    fn products_of_short_tests_are_small() {
        assert_eq!([0.0, 0.01, 0.02, 0.1].map(order_within), [192, 255, 360, 768]);
    }

    #[test]
    fn the_real_clock_gives_a_rate() {
        let rate = dgemm_gflops(&Team::solo(), 0.01).expect("memory");
        assert!(rate > 0.0 && rate < 10_000.0, "{rate}");
    }

    #[test]
    fn memory_is_read_at_a_rate_whatever_the_size_of_the_matrix() {
        let team = Team::new(2, |_| ()).expect("threads");
        for entries in [0.0, 300.0, 1e5, 1e12] {
            let rates = [
                read_bytes_per_second::<f32>(&team, entries).expect("memory"),
                read_bytes_per_second::<f64>(&team, entries).expect("memory"),
            ];
            assert!(rates.iter().all(|&rate| rate > 0.0 && rate < 1e14), "{entries}: {rates:?}");
        }
    }
}

#[cfg(test)]
mod timing {
    use super::*;
    use skt_solver::blas::peak::gflops_per_core;

    #[test]
    #[ignore = "timing: a product is compared with the peak measured with it"]
    fn no_product_is_faster_than_the_units() {
        let team = Team::solo();
        let Some(peak) = gflops_per_core(&team) else { return };
        // Windows before and after the products, as the clock may change.
        let dgemm = dgemm_gflops(&team, 0.05).expect("memory");
        let peak = peak.max(gflops_per_core(&team).expect("as before"));
        assert!(dgemm < 1.1 * peak, "DGEMM {dgemm}, peak {peak}");
        println!("DGEMM {dgemm}, peak {peak}");
    }
}
