//! A short test of a library's products of bf16, for HPL-MxP: whether their sums are in single
//! precision, and whether they are faster than SGEMM.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::selftest::{self, DEPTH, ORDER};
use super::sgemm::{self, Sample};
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
    let error = sgemm::worst_error(team, |seed| error(library, seed));
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
    Ok(selftest::product_rates(team, budget_seconds, doubles, begin, multiply)?.best)
}

/// The largest error of an element of a product ([`Sample::error`]).
fn error(library: &Bf16Library, seed: u64) -> Option<f64> {
    use sgemm::{COLS, DEPTH, ROWS};
    let mut sample = Sample::new(seed);
    let packed = |floats: &mut Vec<f32>| {
        let packed: Vec<Bf16> = floats.iter().copied().map(Bf16::from).collect();
        *floats = packed.iter().copied().map(f32::from).collect();
        packed
    };
    let (by_columns, b) = (packed(&mut sample.a), packed(&mut sample.b));
    let a: Vec<Bf16> =
        (0..ROWS * DEPTH).map(|at| by_columns[at % DEPTH * ROWS + at / DEPTH]).collect();
    let mut c = sample.c.clone();
    library.subtract_product(
        MatRef::row_major(&a, ROWS, DEPTH, DEPTH),
        MatRef::row_major(&b, DEPTH, COLS, COLS),
        MatMut::row_major(&mut c, ROWS, COLS, COLS),
    );
    sample.error(&c)
}

#[cfg(test)]
mod tests {
    use super::*;
    use skt_solver::blas::bf16::libraries;
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
}
