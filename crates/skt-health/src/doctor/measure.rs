//! Measures a rank's cores for a second or two: clocks, vector units, DGEMM, SGEMM, and how long
//! the threads had a core.

use std::sync::Mutex;
use std::time::Instant;

use skt_host::thread_clock::thread_cpu_seconds;

use super::facts::RankMeasurement;
use crate::environment::{bf16, selftest};
use skt_host::core_use::{CoreWatch, JobPart};
use skt_host::counters::{Root, sensors, topology};
use skt_solver::blas::bf16::libraries;
use skt_solver::blas::library::NoWorkSpace;
use skt_solver::blas::peak;
use skt_solver::team::Team;

/// Seconds of DGEMM: several periods of a quota, and long enough for a power limit of the processor
/// to act.
pub(crate) const SECONDS: f64 = 1.0;

/// Seconds of SGEMM: its fastest call is compared with that of DGEMM, which the time before has
/// prepared the cores for.
const SGEMM_SECONDS: f64 = 0.25;

/// Seconds of the products of bf16 of a library, and as many of SGEMM to compare.
const BF16_SECONDS: f64 = 0.1;

/// Measures the threads of `team`. All ranks of a job call this at once. `cpus` are the CPUs of the
/// host; `job` is the job's part of the host, of which the first rank there watches all else.
pub(crate) fn measure(
    team: &Team,
    cpus: &[usize],
    job: Option<JobPart>,
) -> Result<RankMeasurement, NoWorkSpace> {
    let root = Root::this_machine();
    let throttled = sensors::events_of_cpus(&root, cpus);
    let light_gigahertz = clock(team, false);
    let watch = CoreWatch::start(root.clone(), job);
    let rates = selftest::dgemm_rates(team, SECONDS)?;
    let core_use = watch.used();
    let vector_gigahertz = clock(team, true);
    let units_gflops = peak::gflops_per_core(team);
    let sgemm = selftest::gemm_rates(1e-3f32, team, SGEMM_SECONDS)?;
    let bf16 = libraries()
        .iter()
        .map(|library| bf16::run(library, team, BF16_SECONDS))
        .collect::<Result<_, _>>()?;
    let threads = team.threads() as f64;
    let events = sensors::events_of_cpus(&root, cpus);
    Ok(RankMeasurement {
        best_gflops: rates.best / threads,
        mean_gflops: rates.mean / threads,
        units_gflops,
        cpu_share: rates.cpu_share,
        sgemm_gflops: sgemm.best / threads,
        sgemm_cpu_share: sgemm.cpu_share,
        bf16,
        light_gigahertz,
        vector_gigahertz,
        node_bytes: topology::own_bytes(&root),
        throttled: sensors::max_events_between(&throttled, &events),
        core_use,
    })
}

/// The clock of the cores in GHz: the highest of many short windows, as the mean over the threads.
/// With `vectors`, vector instructions run before each window. `None` where this program has no
/// loop for it.
fn clock(team: &Team, vectors: bool) -> Option<f64> {
    /// Seconds of processor time for the windows: governors sample a core's load every 10 ms or
    /// so, and raise the clock of one that has slept.
    const SECONDS: f64 = 0.05;
    cycles()?;
    let sum = Mutex::new(0.0);
    let measure = |_thread: usize| {
        let (mut best, begun) = (0.0f64, thread_cpu_seconds());
        while best == 0.0 || thread_cpu_seconds() - begun < SECONDS {
            if vectors {
                peak::load();
            }
            let start = Instant::now();
            let cycles = cycles().unwrap_or(0.0);
            best = best.max(cycles / start.elapsed().as_secs_f64().max(1e-9) / 1e9);
        }
        *sum.lock().expect("no thread panics") += best;
    };
    team.fork(&measure, || ());
    Some(sum.into_inner().expect("no thread panics") / team.threads() as f64)
}

/// Runs a chain of additions, each of which waits for the one before, for some microseconds.
/// Returns its cycles: one for each addition, on all processors of these kinds.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn cycles() -> Option<f64> {
    const LINKS: usize = 64;
    const TURNS: usize = 256;
    let (mut sum, one) = (0u64, std::hint::black_box(1u64));
    for _ in 0..TURNS {
        // SAFETY: adds two registers; touches no memory.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            std::arch::asm!(".rept 64", "add {0}, {1}", ".endr", inout(reg) sum, in(reg) one,
                options(pure, nomem, nostack));
        }
        // SAFETY: as above.
        #[cfg(target_arch = "aarch64")]
        unsafe {
            std::arch::asm!(".rept 64", "add {0}, {0}, {1}", ".endr", inout(reg) sum, in(reg) one,
                options(pure, nomem, nostack));
        }
    }
    std::hint::black_box(sum);
    Some((LINKS * TURNS) as f64)
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn cycles() -> Option<f64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_measured_is_of_a_processor_of_our_time() {
        let measured = measure(&Team::solo(), &[0], None).expect("memory");
        assert!(measured.best_gflops >= measured.mean_gflops, "{measured:?}");
        // With other work on the machine the thread may have had a core for a hundredth of the
        // time.
        assert!(measured.mean_gflops > 0.0, "{measured:?}");
        assert!(measured.cpu_share > 0.0 && measured.cpu_share <= 1.0, "{measured:?}");
        if let Some(gigahertz) = measured.light_gigahertz {
            assert!((0.2..10.0).contains(&gigahertz), "{measured:?}");
        }
        println!("{measured:?}");
    }
}
