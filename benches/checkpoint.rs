//! A checkpoint in GB/s a rank: encode, flush and rebuild, compared with memcpy and XOR on all ranks
//! at once in the same run.
//!
//! ```text
//! cargo bench --bench checkpoint                       ranks on threads: 2, 4, 8
//! mpirun -np 2 $(ls -t target/release/deps/checkpoint-* | head -1)     over MPI
//! ```
//!
//! A rate is the bytes of the region over the seconds of the slowest rank, as the median of
//! [`REPEATS`] repeats. It is a rank's share of the machine: with more ranks than cores each has
//! less. `CHECKPOINT_BENCH_MIB` sets the size of the region (32); a segment takes about 4 of them.

use std::hint::black_box;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use skt_checkpoint::checkpoint::hook::{Hook, NoHook, Step, StepName};
use skt_checkpoint::checkpoint::protocol::{CheckpointError, Checkpointer, Opened};
use skt_comm::mpi::MpiWorld;
use skt_comm::{Comm, CommError, collect};
use skt_run::protect::{RankProcess, Settings, TestSegments, checkpoint_config, sweep};
use skt_solver::comm::threads;
use skt_solver::team::Team;
use skt_store::codec::{self, CodecKind, Coef};
use skt_store::layout::{Active, RegionShape};
use skt_store::store::{SegmentName, Store, SysV};

const PITCH_BYTES: usize = 32 << 10;
const REPEATS: usize = 7;

/// When a rebuild begins and ends.
#[derive(Default)]
struct Stopwatch(Mutex<[Option<Instant>; 2]>);

impl Hook for Stopwatch {
    fn at(&self, step: &Step) -> Result<(), CommError> {
        let mut times = self.0.lock().expect("one thread");
        match step.name {
            StepName::RecoverRebuild => _ = times[0].get_or_insert_with(Instant::now),
            StepName::RecoverCopy => _ = times[1].get_or_insert_with(Instant::now),
            _ => {}
        }
        Ok(())
    }
}

impl Stopwatch {
    fn seconds(&self) -> f64 {
        match *self.0.lock().expect("one thread") {
            [Some(start), Some(end)] => (end - start).as_secs_f64(),
            _ => 0.0,
        }
    }
}

/// The seconds of the slowest rank, as the median of all repeats.
fn slowest_median(comm: &Comm, mut seconds: Vec<f64>) -> Result<f64, CommError> {
    collect::all_max(comm, &mut seconds)?;
    seconds.sort_by(f64::total_cmp);
    Ok(seconds[seconds.len() / 2])
}

/// The rate in GB/s of an operation on `bytes` that all ranks do at once.
fn rate(comm: &Comm, bytes: usize, mut body: impl FnMut()) -> Result<f64, CommError> {
    let mut seconds = Vec::new();
    for _ in 0..=REPEATS {
        comm.barrier()?;
        let start = Instant::now();
        body();
        seconds.push(start.elapsed().as_secs_f64());
    }
    // The first repeat touches the memory, and is not counted.
    Ok(bytes as f64 / 1e9 / slowest_median(comm, seconds.split_off(1))?)
}

fn region_bytes() -> usize {
    let mib = std::env::var("CHECKPOINT_BENCH_MIB").ok().and_then(|mib| mib.parse().ok());
    mib.unwrap_or(32usize) << 20
}

type Saved<'a> = Box<Checkpointer<'a>>;

/// A bench of one code, as a test of a run.
struct Bench<'a> {
    world: &'a Comm,
    store: &'a SysV,
    team: &'a Team,
    run: &'a str,
    settings: Settings,
}

/// The seconds of this rank, by operation.
#[derive(Default)]
struct Times {
    encode: Vec<f64>,
    flush: Vec<f64>,
    whole: Vec<f64>,
    rebuild: Vec<f64>,
}

impl<'a> Bench<'a> {
    fn open(&self, hook: Arc<dyn Hook>) -> Result<Saved<'a>, CheckpointError> {
        let memory = TestSegments::new(self.store, self.run, 0, RankProcess(self.team));
        let config =
            checkpoint_config(&self.settings, &memory, String::new(), &self.world.host(), 64);
        let config = config.expect("a store with a known name");
        // The check of frozen data is for tests.
        let config = skt_checkpoint::checkpoint::protocol::Config { check_frozen: false, ..config };
        let rows = region_bytes() / PITCH_BYTES;
        let shape = RegionShape { rows, pitch_bytes: PITCH_BYTES };
        match Checkpointer::open(self.world, memory, config, &[shape], hook)? {
            Opened::Ready(saved) => Ok(saved.recover()?.0),
            Opened::Finished(_) => unreachable!("each line finishes once, at its end"),
        }
    }

    fn begin(&self) -> Result<Saved<'a>, CheckpointError> {
        let mut saved = self.open(Arc::new(NoHook))?;
        for (i, byte) in saved.region(0).iter_mut().enumerate() {
            *byte = (i.wrapping_mul(0x9e37_79b9) >> 13) as u8;
        }
        // The first checkpoint touches the memory.
        saved.checkpoint(&[Active::ALL], &[])?;
        Ok(saved)
    }

    fn checkpoint(&self, saved: &mut Saved<'a>, times: &mut Times) -> Result<(), CheckpointError> {
        saved.comm().barrier()?;
        let start = Instant::now();
        let stats = saved.checkpoint(&[Active::ALL], &[])?;
        times.encode.push(stats.encode_seconds);
        times.flush.push(stats.copy_seconds);
        times.whole.push(start.elapsed().as_secs_f64());
        Ok(())
    }

    /// Loses the memory of one rank after the other, and rebuilds it; then removes all of it.
    fn rebuild(&self, times: &mut Times) -> Result<(), CheckpointError> {
        for repeat in 0..REPEATS {
            self.world.barrier()?;
            // Ranks keep their numbers: each finds its own segment, or none.
            let lost = repeat % self.world.size();
            if self.world.rank() == lost {
                for info in self.store.list().expect("a list") {
                    let is_of_run =
                        info.name.run() == self.run && info.name.role().starts_with("t0.");
                    if is_of_run && info.name.rank() as usize == lost {
                        self.store.remove(&info.name).expect("removed");
                    }
                }
            }
            self.world.barrier()?;
            let watch = Arc::new(Stopwatch::default());
            let saved = self.open(watch.clone())?;
            assert_eq!(saved.found().lost, [lost]);
            times.rebuild.push(watch.seconds());
            if repeat + 1 == REPEATS {
                saved.finish(&[])?.clear()?;
            }
        }
        Ok(())
    }
}

/// The line of the table for one code.
fn measure(
    world: &Comm,
    run: &str,
    (codec, parities): (CodecKind, usize),
) -> Result<String, CheckpointError> {
    let (store, team, bytes) = (SysV::new(false), Team::solo(), region_bytes());
    let settings =
        Settings { codec, parities, group_size: world.size().max(2), ..Settings::new(run) };
    let bench = Bench { world, store: &store, team: &team, run, settings };
    let mut times = Times::default();
    let mut saved = bench.begin()?;
    // Machines drift, so memcpy is timed again with each code.
    let mut copy = vec![1u8; bytes];
    let memcpy = rate(world, bytes, || copy.copy_from_slice(black_box(saved.region(0))))?;
    drop(copy);
    for _ in 0..REPEATS {
        bench.checkpoint(&mut saved, &mut times)?;
    }
    drop(saved);
    bench.rebuild(&mut times)?;
    sweep(&store, run, 1).expect("swept");
    let mut line = format!("{:>5} {:>12} {parities:>2}", world.size(), codec.to_string());
    let Times { encode, flush, whole, rebuild } = times;
    for seconds in [encode, flush, whole, rebuild] {
        let rate = bytes as f64 / 1e9 / slowest_median(world, seconds)?;
        line += &format!(" {rate:>10.2}");
    }
    Ok(format!("{line} {memcpy:>10.2}"))
}

fn table(world: &Comm, run: &str) -> Result<(), CheckpointError> {
    let print = |line: &str| {
        if world.rank() == 0 {
            println!("{line}");
        }
    };
    let bytes = region_bytes();
    let (src, mut dst) = (vec![1u8; bytes], vec![2u8; bytes]);
    let copy = rate(world, bytes, || black_box(&mut dst).copy_from_slice(black_box(&src)))?;
    let stream = rate(world, bytes, || codec::copy(black_box(&src), black_box(&mut dst)))?;
    let xor = rate(world, bytes, || codec::fma(Coef::Gf(1), black_box(&src), &mut dst))?;
    drop((src, dst));
    print(&format!(
        "{} ranks, {} MiB each: memcpy {copy:.2} GB/s, streaming copy {stream:.2}, XOR into {xor:.2}",
        world.size(),
        bytes >> 20
    ));
    print(
        "ranks        codec  m     encode      flush checkpoint    rebuild     memcpy    GB/s a rank",
    );
    for (codec, parities) in
        [(CodecKind::Xor, 1), (CodecKind::ReedSolomon, 1), (CodecKind::ReedSolomon, 2)]
    {
        if world.size() < 2 * parities {
            continue;
        }
        print(&measure(world, run, (codec, parities))?);
    }
    Ok(())
}

fn main() {
    let run = format!("bench-{}", std::process::id());
    let name = SegmentName::new(&run, "t0.a0", 0);
    assert!(name.is_ok(), "a run id");
    if std::env::var_os("OMPI_COMM_WORLD_SIZE").is_some() {
        let world = MpiWorld::init().expect("MPI");
        let comm = world.comm().expect("MPI");
        let mut id = [u64::from(std::process::id())];
        collect::broadcast(&comm, &mut id, 0).expect("MPI");
        table(&comm, &format!("bench-{}", id[0])).expect("no rank is lost");
        return;
    }
    for ranks in [2, 4, 8] {
        for result in threads::run(ranks, |comm| table(&comm, &run)) {
            result.expect("no rank is lost");
        }
    }
}
