//! A short DGEMM at the start: measures the rate of the cores, and whether the BLAS has chosen a
//! kernel that fits them.

use std::sync::Mutex;
use std::time::Instant;

use nix::time::{ClockId, clock_gettime};
use serde::Serialize;
use skt_comm::PageBuf;

use super::BlasInfo;
use super::kernel::is_old;
use skt_solver::blas::library::{self, NoWorkSpace};
use skt_solver::blas::{Element, MatMut, MatRef, gemm};
use skt_solver::team::Team;

/// The most bytes that a thread reads to measure the rate of its memory: more than the share of the
/// caches that a core has on most processors.
const READ_BYTES: f64 = 16.0 * 1048576.0;
/// Columns of the matrix in that sample, as of a panel.
const READ_COLS: usize = 256;

/// The result of the self-test.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DgemmSelfTest {
    /// The best rate on one core.
    pub gflops_per_core: f64,
    /// The peak rate of a core, where it is known ([`skt_solver::blas::peak`]).
    pub peak_gflops_per_core: Option<f64>,
    /// What looks wrong ([`warnings`]).
    pub warnings: Vec<String>,
}

/// The least number of calls, however long one takes: the first touches memory and wakes the core
/// up.
const MIN_CALLS: usize = 3;

/// SSE2 does at most 4 flop a cycle. A processor with AVX2 does at least 8, and runs at up to one
/// and a half times its nominal frequency.
const MIN_FLOPS_A_CYCLE_AVX2: f64 = 6.0;
/// The least rate of any processor of this century.
const MIN_FLOPS_A_CYCLE: f64 = 1.5;

/// Rates of GEMM in Gflop/s.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// The rate of the fastest call.
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
    Ok(dgemm_rates(team, budget_seconds)?.best)
}

/// The rates of DGEMM as [`dgemm_gflops`] measures them.
pub fn dgemm_rates(team: &Team, budget_seconds: f64) -> Result<Rates, NoWorkSpace> {
    gemm_rates(1e-3f64, team, budget_seconds)
}

/// The rates of GEMM as [`dgemm_gflops`] measures them, on operands of which all elements have this
/// `value`.
pub(super) fn gemm_rates<T: Element>(
    value: T,
    team: &Team,
    budget_seconds: f64,
) -> Result<Rates, NoWorkSpace> {
    let begin = |room: &mut [f64]| T::from_doubles_mut(room).fill(value);
    let multiply = |room: &mut [f64]| {
        let (c, operands) = T::from_doubles_mut(room).split_at_mut(ROWS * COLS);
        let (a, b) = operands.split_at(ROWS * DEPTH);
        let a = MatRef::col_major(a, ROWS, DEPTH, ROWS);
        let b = MatRef::row_major(b, DEPTH, COLS, COLS);
        gemm(T::MINUS_ONE, a, b, T::ONE, MatMut::row_major(c, ROWS, COLS, COLS));
    };
    let doubles = T::doubles(ROWS * COLS + DEPTH * (ROWS + COLS));
    product_rates(team, budget_seconds, doubles, begin, multiply)
}

/// The processor time of this process so far.
pub(crate) fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID);
    time.map_or(0.0, |time| time.tv_sec() as f64 + time.tv_nsec() as f64 / 1e9)
}

/// Rows of A2 in a product whose rate is measured.
pub(super) const ROWS: usize = 768;
/// Columns of A2.
pub(super) const COLS: usize = 768;
/// Columns of L2.
pub(super) const DEPTH: usize = 256;

/// The depths `depths`, or that of the self-test if there are none.
fn depths_or_default(depths: &[usize]) -> &[usize] {
    if depths.is_empty() { &[DEPTH] } else { depths }
}

/// The operations of a call of [`gemm_gflops_at`].
fn operations(order: usize, depths: &[usize]) -> f64 {
    (2 * order * order * depths.iter().sum::<usize>()) as f64
}

/// The operations of the least number of calls of [`gemm_gflops_at`].
pub(super) fn operations_at(order: usize, depths: &[usize]) -> f64 {
    MIN_CALLS as f64 * operations(order, depths_or_default(depths))
}

/// The rate in Gflop/s of GEMM in the trailing update on this thread, for each second of the
/// processor time of this process: that of all calls but the first which begin within
/// `budget_seconds`. Each call has a product of each of these depths (NB), with `order` rows and
/// columns.
pub(super) fn gemm_gflops_at<T: Element>(
    order: usize,
    depths: &[usize],
    budget_seconds: f64,
) -> Result<f64, NoWorkSpace> {
    let depths = depths_or_default(depths);
    let deepest = depths.iter().copied().max().unwrap_or(DEPTH);
    let multiply = |room: &mut [f64]| {
        let (c, operands) = T::from_doubles_mut(room).split_at_mut(order * order);
        let (a, b) = operands.split_at(order * deepest);
        for &depth in depths {
            let a = MatRef::col_major(a, order, depth, order);
            let b = MatRef::row_major(b, depth, order, order);
            gemm(T::MINUS_ONE, a, b, T::ONE, MatMut::row_major(c, order, order, order));
        }
    };
    let begin = |room: &mut [f64]| T::from_doubles_mut(room).fill(T::rounded(1e-3));
    let doubles = T::doubles(order * (order + 2 * deepest));
    let flops = operations(order, depths);
    let team = Team::solo();
    Ok(call_rates(cpu_seconds, &team, budget_seconds, doubles, begin, multiply, flops)?.mean)
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
    let start = Instant::now();
    let clock_seconds = || start.elapsed().as_secs_f64();
    let begin = |room: &mut [f64]| room.fill(0.0);
    let read = |room: &mut [f64]| {
        let (y, a) = room.split_at_mut(rows);
        let a = MatRef::row_major(T::from_doubles_mut(a), rows, READ_COLS, READ_COLS);
        T::subtract_product(a, &[0.0; READ_COLS], y);
    };
    let bytes = (rows * READ_COLS * size_of::<T>()) as f64;
    let doubles = rows + T::doubles(rows * READ_COLS);
    Ok(1e9 * call_rates(clock_seconds, team, 0.0, doubles, begin, read, bytes)?.best)
}

/// The rates of products of [`ROWS`], [`COLS`] and [`DEPTH`]: `multiply` computes one in the memory
/// of its thread, `doubles` doubles that `begin` has written.
pub(super) fn product_rates(
    team: &Team,
    budget_seconds: f64,
    doubles: usize,
    begin: impl Fn(&mut [f64]) + Sync,
    multiply: impl Fn(&mut [f64]) + Sync,
) -> Result<Rates, NoWorkSpace> {
    let flops = (2 * ROWS * COLS * DEPTH) as f64;
    let start = Instant::now();
    let clock_seconds = || start.elapsed().as_secs_f64();
    call_rates(clock_seconds, team, budget_seconds, doubles, begin, multiply, flops)
}

/// The rates of calls of `call` in the memory of its thread, `doubles` doubles that `begin` has
/// written. A call does `operations` of what the rates are to be of.
fn call_rates(
    clock_seconds: impl FnMut() -> f64,
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

/// How warnings about the rate of DGEMM begin.
const OF_RATE: &str = "DGEMM does ";
/// How warnings about the rate of DGEMM end.
const DOCTOR: &str = "`skt-hpl doctor` reports which";

/// Whether a warning of [`warnings`] is about the rate alone, and so an effect of a cause that may
/// be known.
pub fn is_of_rate(warning: &str) -> bool {
    warning.starts_with(OF_RATE)
}

/// What is wrong with the BLAS or the cores, if anything, given the rate on one core, its peak, and
/// the variable of the environment that names the kernel.
pub fn warnings(
    gflops_per_core: f64,
    peak_gflops_per_core: Option<f64>,
    blas: &BlasInfo,
    named_by: Option<&str>,
    has_avx2: Option<bool>,
    nominal_gigahertz: Option<f64>,
) -> Vec<String> {
    let mut found = Vec::new();
    if let Some(kernel) = &blas.kernel
        && has_avx2 == Some(true)
        && is_old(kernel)
    {
        let remedy = match named_by {
            Some(variable) => format!("{variable} names that kernel: unset it"),
            None => format!("a newer {} may know it, or name another kernel", blas.library),
        };
        found.push(format!(
            "{} uses its kernel '{kernel}', which is made for processors without AVX2, and \
             this one has it: {remedy}",
            blas.library
        ));
    }
    if let Some(peak) = peak_gflops_per_core {
        if gflops_per_core < MIN_OF_PEAK * peak {
            found.push(format!(
                "{OF_RATE}{gflops_per_core:.1} of the {peak:.1} Gflop/s that a core can do, at \
                 least {:.0} % are expected: either several threads or other programs share the \
                 cores, or {} is not made for this processor; {DOCTOR}",
                100.0 * MIN_OF_PEAK,
                blas.library
            ));
        }
    } else if let Some(gigahertz) = nominal_gigahertz.filter(|gigahertz| *gigahertz > 0.0) {
        let a_cycle = gflops_per_core / gigahertz;
        let least = match has_avx2 {
            Some(true) => MIN_FLOPS_A_CYCLE_AVX2,
            _ => MIN_FLOPS_A_CYCLE,
        };
        if a_cycle < least {
            found.push(format!(
                "{OF_RATE}{a_cycle:.1} flop a cycle ({gflops_per_core:.1} Gflop/s at \
                 {gigahertz:.2} GHz), at least {least} is expected here: either {} is not made \
                 for this processor, or other programs share its cores; {DOCTOR}",
                blas.library
            ));
        }
    }
    found
}

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

    fn blas(library: &str, kernel: Option<&str>) -> BlasInfo {
        BlasInfo {
            library: library.to_string(),
            path: None,
            version: None,
            kernel: kernel.map(str::to_string),
        }
    }

    #[test]
    fn a_good_blas_is_not_blamed() {
        let good = blas("OpenBLAS", Some("SkylakeX"));
        assert_eq!(warnings(55.0, None, &good, None, Some(true), Some(2.6)), [""; 0]);
        // An old processor with a kernel of its time.
        let old = blas("OpenBLAS", Some("Nehalem"));
        assert_eq!(warnings(10.0, None, &old, None, Some(false), Some(2.6)), [""; 0]);
        // Zen 1: 8 flop a cycle.
        assert_eq!(
            warnings(20.0, None, &blas("BLIS", Some("zen")), None, Some(true), Some(2.5)),
            [""; 0]
        );
        assert_eq!(warnings(0.1, None, &blas("oneMKL", None), None, None, None), [""; 0]);
    }

    #[test]
    fn an_old_kernel_is_named() {
        let found =
            warnings(9.0, None, &blas("OpenBLAS", Some("Prescott")), None, Some(true), Some(2.6));
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(
            found[0].contains("'Prescott'") && found[0].contains("a newer OpenBLAS may know it")
        );
        assert!(found[1].contains("3.5 flop a cycle"), "{}", found[1]);
        let nehalem = blas("OpenBLAS", Some("Nehalem"));
        let name = Some("OPENBLAS_CORETYPE");
        let found = warnings(55.0, None, &nehalem, name, Some(true), Some(2.6));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].ends_with("OPENBLAS_CORETYPE names that kernel: unset it"), "{found:?}");
    }

    #[test]
    fn half_of_the_peak_is_reported_at_any_clock() {
        let good = blas("OpenBLAS", Some("SkylakeX"));
        let found = warnings(25.5, Some(56.3), &good, None, Some(true), Some(2.6));
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("DGEMM does 25.5 of the 56.3 Gflop/s"), "{}", found[0]);
        assert!(found[0].ends_with("`skt-hpl doctor` reports which"), "{}", found[0]);
        assert_eq!(warnings(40.0, Some(56.3), &good, None, Some(true), Some(2.6)), [""; 0]);
    }

    #[test]
    fn a_slow_blas_without_a_name_is_noticed() {
        let found = warnings(2.0, None, &blas("libblas.so.3", None), None, None, Some(2.0));
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("libblas.so.3") && found[0].contains("`skt-hpl doctor`"));
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
