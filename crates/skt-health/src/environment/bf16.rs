//! A short test of a library's products of bf16, for HPL-MxP: whether their sums are in single
//! precision, and whether they are faster than SGEMM.

use std::path::Path;
use std::sync::Mutex;

use serde::{Deserialize, Serialize};

use super::selftest::{self, Clock, DEPTH, ORDER, call_rates, operations};
use skt_solver::blas::bf16::{Bf16, Bf16Library};
use skt_solver::blas::library::NoWorkSpace;
use skt_solver::blas::{Bf16Products, MatMut, MatRef, RoundedProducts};
use skt_solver::team::Team;

/// The least multiple of SGEMM's rate. Instructions for bf16 reach 2 times and more, emulations at
/// most 1; a rate in between is noise, and does not pay for the longer refinement.
const MIN_TIMES: f64 = 1.1;

/// The result of the self-test on the threads of a rank.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bf16SelfTest {
    pub function: String,
    pub file: Option<String>,
    /// The rate of the fastest call on one core, as the mean over the threads, in Gflop/s.
    pub gflops_per_core: f64,
    /// The rate of SGEMM, measured in the same way.
    pub sgemm_gflops_per_core: f64,
    /// The largest error of an element on any thread, as a multiple of the largest error that
    /// rounding of the sums to single precision explains. `None` if an element is no finite number.
    pub error: Option<f64>,
}

impl Bf16SelfTest {
    /// Whether rounding of the sums to single precision explains all errors.
    pub fn is_right(&self) -> bool {
        self.error.is_some_and(|error| error <= 1.0)
    }

    /// Whether products of bf16 gain anything.
    pub(crate) fn is_faster(&self) -> bool {
        self.gflops_per_core >= MIN_TIMES * self.sgemm_gflops_per_core
    }

    pub fn name(&self) -> String {
        let Self { function, file, .. } = self;
        file.as_ref().map_or(function.clone(), |file| format!("{function} of {file}"))
    }

    /// The rate, compared with that of SGEMM.
    pub fn rate(&self) -> String {
        let Self { gflops_per_core, sgemm_gflops_per_core, .. } = self;
        format!(
            "{gflops_per_core:.1} Gflop/s a core, {:.2} times SGEMM's {sgemm_gflops_per_core:.1}",
            gflops_per_core / sgemm_gflops_per_core
        )
    }

    /// What forbids the use of this library, if anything does.
    pub fn flaw(&self) -> Option<String> {
        match self.error {
            None => Some("results are no finite numbers".to_owned()),
            Some(error) if !self.is_right() => Some(format!(
                "sums are not in single precision, the error is {error:.1} times the largest one \
                 of rounding"
            )),
            Some(_) => (!self.is_faster()).then(|| self.rate()),
        }
    }
}

/// Tests `library` on all threads of `team` at once. The calls whose rates are measured begin
/// within `budget_seconds` for each rate.
pub fn run(
    library: &'static Bf16Library,
    team: &Team,
    budget_seconds: f64,
) -> Result<Bf16SelfTest, NoWorkSpace> {
    let error = worst_error(team, |seed| error(library, seed));
    let threads = team.threads() as f64;
    let sgemm_gflops_per_core = selftest::gemm_rates(VALUE, team, budget_seconds)?.best / threads;
    Ok(Bf16SelfTest {
        function: library.function.to_owned(),
        file: library.path.as_deref().map(Path::display).map(|path| path.to_string()),
        gflops_per_core: best_gflops(library, team, budget_seconds)? / threads,
        sgemm_gflops_per_core,
        error,
    })
}

/// The value of the elements whose products are timed; a bf16.
const VALUE: f32 = 1.0 / 1024.0;

/// The rate in Gflop/s of the fastest call on all threads together, with L2 packed in each as in
/// the trailing update.
fn best_gflops(
    library: &'static Bf16Library,
    team: &Team,
    budget_seconds: f64,
) -> Result<f64, NoWorkSpace> {
    const FLOATS: usize = ORDER * (ORDER + DEPTH);
    let begin = |room: &mut [f64]| {
        let (floats, u) = bytemuck::cast_slice_mut::<f64, f32>(room).split_at_mut(FLOATS);
        floats.fill(VALUE);
        bytemuck::cast_slice_mut::<f32, Bf16>(u).fill(VALUE.into());
    };
    let multiply = |room: &mut [f64]| {
        let (floats, u) = bytemuck::cast_slice_mut::<f64, f32>(room).split_at_mut(FLOATS);
        let (a2, l2) = floats.split_at_mut(ORDER * ORDER);
        Bf16Products::Library(library).multiply(
            MatRef::row_major(l2, ORDER, DEPTH, DEPTH),
            MatRef::row_major(bytemuck::cast_slice(u), DEPTH, ORDER, ORDER),
            MatMut::row_major(a2, ORDER, ORDER, ORDER),
        );
    };
    let doubles =
        (FLOATS * size_of::<f32>() + DEPTH * ORDER * size_of::<Bf16>()) / size_of::<f64>();
    let flops = operations(ORDER, &[DEPTH]);
    Ok(call_rates(Clock::Wall, team, budget_seconds, doubles, begin, multiply, flops)?.best)
}

/// The largest error of an element of a product ([`Sample::error`]).
fn error(library: &Bf16Library, seed: u64) -> Option<f64> {
    let mut sample = Sample::new(seed);
    let packed = |floats: &mut Vec<f32>| {
        let packed: Vec<Bf16> = floats.iter().copied().map(Bf16::from).collect();
        *floats = packed.iter().copied().map(f32::from).collect();
        packed
    };
    let (by_columns, b) = (packed(&mut sample.a), packed(&mut sample.b));
    let a: Vec<Bf16> = (0..ROWS * SAMPLE_DEPTH)
        .map(|at| by_columns[at % SAMPLE_DEPTH * ROWS + at / SAMPLE_DEPTH])
        .collect();
    let mut c = sample.c.clone();
    library.subtract_product(
        MatRef::row_major(&a, ROWS, SAMPLE_DEPTH, SAMPLE_DEPTH),
        MatRef::row_major(&b, SAMPLE_DEPTH, COLS, COLS),
        MatMut::row_major(&mut c, ROWS, COLS, COLS),
    );
    sample.error(&c)
}

/// The largest `error` on any thread of `team`, for another seed on each; `None` if any has none.
fn worst_error(team: &Team, error: impl Fn(u64) -> Option<f64> + Sync) -> Option<f64> {
    let worst = Mutex::new(Some(0.0f64));
    let check = |thread: usize| {
        let error = error(thread as u64);
        let mut worst = worst.lock().expect("no thread panics");
        *worst = worst.zip(error).map(|(worst, error)| worst.max(error));
    };
    team.fork(&check, || ());
    worst.into_inner().expect("no thread panics")
}

/// Rows, columns and depth: large enough for the kernels of large products, and no multiple of a
/// kernel's tile.
const ROWS: usize = 131;
const COLS: usize = 151;
const SAMPLE_DEPTH: usize = 263;

/// Operands of `C - A B` in the layouts of the trailing update: A column-major, B and C row-major.
struct Sample {
    a: Vec<f32>,
    b: Vec<f32>,
    c: Vec<f32>,
}

impl Sample {
    fn new(seed: u64) -> Self {
        let mut state = seed;
        let mut numbers = |count: usize| -> Vec<f32> {
            let number = |_| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (state >> 40) as f32 / (1u32 << 24) as f32 - 0.5
            };
            (0..count).map(number).collect()
        };
        Self {
            a: numbers(ROWS * SAMPLE_DEPTH),
            b: numbers(SAMPLE_DEPTH * COLS),
            c: numbers(ROWS * COLS),
        }
    }

    /// The largest error of an element of `result`, as a multiple of its bound; `None` if an
    /// element is no finite number. In any order of the sum, each of the `SAMPLE_DEPTH` products and sums
    /// is rounded once, by at most half of the distance of two floats:
    ///
    /// ```text
    /// |computed - exact| <= (SAMPLE_DEPTH + 1) u / (1 - (SAMPLE_DEPTH + 1) u) (|C| + |A| |B|),   u = 2^-24
    /// ```
    fn error(&self, result: &[f32]) -> Option<f64> {
        let roundings = (SAMPLE_DEPTH + 1) as f64 * f64::from(f32::EPSILON) / 2.0;
        let share = roundings / (1.0 - roundings);
        let mut worst = 0.0f64;
        for (i, (computed, before)) in result.chunks(COLS).zip(self.c.chunks(COLS)).enumerate() {
            let mut exact: Vec<f64> = before.iter().map(|&c| f64::from(c)).collect();
            let mut size: Vec<f64> = exact.iter().map(|c| c.abs()).collect();
            for (k, row) in self.b.chunks(COLS).enumerate() {
                let a = f64::from(self.a[k * ROWS + i]);
                for ((exact, size), &b) in exact.iter_mut().zip(&mut size).zip(row) {
                    let term = a * f64::from(b);
                    *exact -= term;
                    *size += term.abs();
                }
            }
            for ((&computed, exact), size) in computed.iter().zip(exact).zip(size) {
                let error = (f64::from(computed) - exact).abs() / (share * size);
                if !error.is_finite() {
                    return None;
                }
                worst = worst.max(error);
            }
        }
        Some(worst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skt_solver::blas::bf16::libraries;
    use skt_solver::blas::gemm;
    use skt_solver::blas::library::use_one_thread;

    fn tested(gflops_per_core: f64, error: Option<f64>) -> Bf16SelfTest {
        let (function, file) = ("cblas_sbgemm".to_owned(), Some("/opt/blas.so".to_owned()));
        let sgemm_gflops_per_core = 200.0;
        Bf16SelfTest { function, file, gflops_per_core, sgemm_gflops_per_core, error }
    }

    #[test]
    fn a_library_that_is_wrong_or_slow_has_a_flaw() {
        assert_eq!(tested(400.0, Some(1.0)).flaw(), None);
        let slow = tested(90.0, Some(0.5)).flaw();
        assert_eq!(slow.as_deref(), Some("90.0 Gflop/s a core, 0.45 times SGEMM's 200.0"));
        assert!(tested(205.0, Some(0.5)).flaw().is_some(), "noise");
        let coarse = tested(400.0, Some(37.0)).flaw().expect("a flaw");
        assert!(coarse.contains("37.0 times the largest one of rounding"), "{coarse}");
        let nan = tested(400.0, None).flaw();
        assert_eq!(nan.as_deref(), Some("results are no finite numbers"));
    }

    /// Holds for whatever library is loaded here, if any is.
    #[test]
    fn each_library_is_right_or_has_a_flaw() {
        use_one_thread();
        for library in libraries() {
            let tested = run(library, &Team::solo(), 0.01).expect("memory");
            println!("{tested:?}");
            assert!(tested.gflops_per_core > 0.0 && tested.sgemm_gflops_per_core > 0.0);
            assert_eq!(tested.flaw().is_none(), tested.is_right() && tested.is_faster());
        }
    }

    /// The product by SGEMM.
    fn product(sample: &Sample) -> Vec<f32> {
        let mut c = sample.c.clone();
        let a = MatRef::col_major(&sample.a, ROWS, SAMPLE_DEPTH, ROWS);
        let b = MatRef::row_major(&sample.b, SAMPLE_DEPTH, COLS, COLS);
        gemm(-1.0, a, b, 1.0, MatMut::row_major(&mut c, ROWS, COLS, COLS));
        c
    }

    #[test]
    fn products_of_half_precision_are_wrong() {
        let sample = Sample::new(7);
        // The 8 bits of bf16's significand, as some libraries multiply on request.
        let short = |x: &f32| f32::from_bits(x.to_bits() & 0xffff_0000);
        let a = sample.a.iter().map(short).collect();
        let b = sample.b.iter().map(short).collect();
        let result = product(&Sample { a, b, c: sample.c.clone() });
        let error = sample.error(&result);
        assert!(error.is_some_and(|error| error > 10.0), "{error:?}");
    }

    #[test]
    fn an_element_that_is_wrong_or_no_number_is_noticed() {
        let sample = Sample::new(3);
        let right = product(&sample);
        for (place, change, is_seen) in [
            (0, 0.01, true),
            (ROWS * COLS - 1, 0.01, true),
            (COLS + 1, 0.0, false),
            (77, f32::INFINITY, true),
            (78, f32::NAN, true),
        ] {
            let mut result = right.clone();
            result[place] += change;
            let error = sample.error(&result);
            assert_eq!(error.is_none_or(|error| error > 1.0), is_seen, "{place}: {error:?}");
        }
    }
}
