//! The most floating-point operations that a core does in a second, measured.
//!
//! No table has it for each processor: the clock under load is not the nominal one, and units and
//! widths differ between models of one family. So a loop of independent fused multiply-adds, in
//! registers only, is timed in windows so short that another thread on the same core seldom runs in
//! all of them. Threads that share a core, other programs, and a BLAS that is not made for the
//! processor all reach less than this in DGEMM.

use std::sync::Mutex;
use std::time::Instant;

use skt_host::vectors::Vectors;

use crate::team::Team;

/// Chains of multiply-adds that do not wait for each other: more than two units with a latency of
/// five need, and no more than the registers hold.
const CHAINS: usize = 12;
/// Links of each chain in a window, which takes some tens of microseconds.
const LINKS: usize = 8 * 1024;
/// Windows that are timed; together they take a millisecond.
const WINDOWS: usize = 32;

/// The best rate of a core in Gflop/s, as the mean over the threads of `team`, all at once. `None`
/// where this program has no instruction that reaches it (it has AVX-512, and AVX2 with FMA).
pub fn gflops_per_core(team: &Team) -> Option<f64> {
    run_window()?;
    let sum = Mutex::new(0.0);
    let measure = |_thread: usize| {
        let mut best = 0.0f64;
        for _ in 0..WINDOWS {
            let start = Instant::now();
            let flops = run_window().expect("it has run");
            let seconds = start.elapsed().as_secs_f64();
            if seconds > 0.0 {
                best = best.max(flops / seconds / 1e9);
            }
        }
        *sum.lock().expect("no thread panics") += best;
    };
    team.fork(&measure, || ());
    Some(sum.into_inner().expect("no thread panics") / team.threads() as f64)
}

/// Runs one window of multiply-adds on this thread, where this program has instructions for it.
pub fn load() {
    std::hint::black_box(run_window());
}

/// Returns the operations that the window did, if this program has instructions for it.
fn run_window() -> Option<f64> {
    let lanes: usize = match Vectors::here() {
        // SAFETY: the processor has these instructions.
        #[cfg(target_arch = "x86_64")]
        Vectors::Avx512 => unsafe { x86::avx512() },
        // SAFETY: the processor has these instructions.
        #[cfg(target_arch = "x86_64")]
        Vectors::Avx2 => unsafe { x86::avx2() },
        _ => return None,
    };
    Some((2 * lanes * CHAINS * LINKS) as f64)
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{_mm256_fmadd_pd, _mm256_set1_pd, _mm512_fmadd_pd, _mm512_set1_pd};
    use std::hint::black_box;

    use super::{CHAINS, LINKS};

    // The chains tend to b / (1 - a): no overflow, no subnormal number.
    const A: f64 = 0.5;
    const B: f64 = 1.0;

    /// Runs the chains. Returns the lanes of a vector.
    #[target_feature(enable = "avx512f")]
    pub(crate) fn avx512() -> usize {
        let (a, b) = (_mm512_set1_pd(black_box(A)), _mm512_set1_pd(black_box(B)));
        let mut chains = [b; CHAINS];
        for _ in 0..LINKS {
            for chain in &mut chains {
                *chain = _mm512_fmadd_pd(*chain, a, b);
            }
        }
        black_box(chains);
        8
    }

    #[target_feature(enable = "avx2,fma")]
    pub(crate) fn avx2() -> usize {
        let (a, b) = (_mm256_set1_pd(black_box(A)), _mm256_set1_pd(black_box(B)));
        let mut chains = [b; CHAINS];
        for _ in 0..LINKS {
            for chain in &mut chains {
                *chain = _mm256_fmadd_pd(*chain, a, b);
            }
        }
        black_box(chains);
        4
    }
}
