//! What the clients of the checkpoint library in this folder share: their flags, faults on purpose,
//! and the steps of a start from what it finds to the report.
//!
//! A [`Client`] has regions, which a checkpoint saves whole, and a state of a few numbers, which is
//! the same on all ranks. It recomputes everything else.

use std::ops::Deref;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bytemuck::Pod;
use clap::Parser;
use skt_checkpoint::checkpoint::level::settings::Levels;
use skt_checkpoint::client::{self, CheckpointError, Next, Options, Region, Saved, StoreKind};
use skt_comm::{Comm, CommError, collect};
use skt_run::protect::{FaultInjector, Inject};

/// An error that ends a run without a result.
pub type Failure = Box<dyn std::error::Error>;

/// The flags of all clients.
#[derive(clap::Args)]
pub struct Flags {
    /// Iterations between checkpoints.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    every: u64,
    /// Name of the run; a restart finds its data by it [default: the example's name].
    #[arg(long)]
    run_id: Option<String>,
    /// Ranks of a group, at most.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u8).range(2..))]
    group_size: u8,
    /// Lost ranks that each group survives, up to half of it.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=127))]
    parities: u8,
    /// Memory that outlives the processes: sysv, posix, or file:FOLDER.
    #[arg(long, default_value = "sysv")]
    store: StoreKind,
    /// Images on disks, for losses that memory does not survive: local:FOLDER, global:FOLDER.
    #[arg(long)]
    levels: Option<Levels>,
    /// Encode while the client computes on, from copies.
    #[arg(long)]
    overlap: bool,
    /// With --overlap: encode on another thread, for a core that no rank uses.
    #[arg(long, requires = "overlap")]
    helper: bool,
    /// [RANK@]WHAT: a step of the protocol, or column:ITERATION.
    #[arg(long)]
    inject: Vec<Inject>,
}

impl Flags {
    /// The checkpoints that the flags ask for, of the run `run_id`.
    fn options(&self, run_id: &str, problem: &str) -> Options {
        let options = Options::new(run_id, problem).with_parities(self.parities.into());
        let mut options = options.with_store(self.store.clone());
        options.config.members = self.group_size.into();
        options.levels = self.levels.clone().unwrap_or_default();
        options
    }
}

/// An iteration that resumes from checkpoints, with its parameters.
pub trait Client: Parser {
    /// The name of the example.
    const NAME: &'static str;
    /// The result of the computation, which is kept until it is reported.
    type Solved: Pod;

    /// The flags that all clients have.
    fn flags(&self) -> &Flags;
    /// The parameters without which a checkpoint would be useless.
    fn problem(&self) -> String;
    /// The regions, of one size on all ranks.
    fn regions(&self, ranks: usize) -> Vec<Region>;
    /// Iterates from what is `saved` to the end. The ranks of `comm` are those of the data, not
    /// those of the launcher.
    fn compute(&self, comm: &Comm, saved: &mut Drilled) -> Result<Self::Solved, Failure>;
    /// Prints the result. Called on rank 0.
    fn print(&self, solved: &Self::Solved);
    /// Whether the result is right, as far as that can be checked.
    fn is_right(&self, solved: &Self::Solved) -> bool;
}

/// Completes a checkpoint that has begun.
type Completion = Box<dyn FnOnce(&mut Saved<'_>) -> Result<(), CheckpointError>>;

/// The regions of a rank, with a checkpoint every few iterations and with faults on purpose.
pub struct Drilled<'a> {
    saved: Saved<'a>,
    every: u64,
    helps: bool,
    /// What the client computes in while the regions are encoded; empty if it computes in them.
    own: Vec<Vec<u64>>,
    under_way: Option<Completion>,
    faults: Arc<FaultInjector>,
    taken: u64,
    taken_seconds: f64,
}

impl<'a> Drilled<'a> {
    fn new(mut saved: Saved<'a>, flags: &Flags, faults: Arc<FaultInjector>) -> Self {
        let mut own = Vec::new();
        if flags.overlap {
            for region in saved.bytes() {
                let mut words = vec![0u64; region.len().div_ceil(size_of::<u64>())];
                bytemuck::cast_slice_mut::<u64, u8>(&mut words)[..region.len()]
                    .copy_from_slice(region);
                own.push(words);
            }
        }
        let (every, helps) = (flags.every, flags.helper);
        let (under_way, taken, taken_seconds) = (None, 0, 0.0);
        Self { saved, every, helps, own, under_way, faults, taken, taken_seconds }
    }

    /// All regions as values of one type, to be used at once.
    pub fn regions<T: Pod, const N: usize>(&mut self) -> [&mut [T]; N] {
        self.regions_and_helper().0
    }

    /// All regions, and what encodes while the client computes.
    pub fn regions_and_helper<T: Pod, const N: usize>(
        &mut self,
    ) -> ([&mut [T]; N], Helper<'_, 'a>) {
        let Self { saved, own, under_way, helps, .. } = self;
        if own.is_empty() {
            return (saved.regions(), Helper::NONE);
        }
        let counts = saved.bytes().into_iter().map(|region| region.len() / size_of::<T>());
        let counts: Vec<usize> = counts.collect();
        let own: Vec<&mut [T]> = own
            .iter_mut()
            .zip(counts)
            .map(|(words, count)| &mut bytemuck::cast_slice_mut::<u64, T>(words)[..count])
            .collect();
        let own = own.try_into().unwrap_or_else(|all: Vec<_>| panic!("{} regions", all.len()));
        (own, Helper(under_way.is_some().then_some((saved, *helps))))
    }

    /// Called before each iteration: takes a checkpoint if one is due, and kills this process if
    /// `--inject` requires it.
    pub fn before<S: Pod>(&mut self, iteration: u64, state: &S) -> Result<(), Failure> {
        if iteration > 0 && iteration.is_multiple_of(self.every) {
            let start = Instant::now();
            self.complete()?;
            if self.own.is_empty() {
                self.saved.checkpoint(state)?;
            } else {
                self.begin(*state)?;
            }
            self.taken += 1;
            self.taken_seconds += start.elapsed().as_secs_f64();
        }
        self.faults.columns(iteration as usize);
        Ok(())
    }

    /// Copies what the client has computed into the regions, and begins their checkpoint.
    fn begin<S: Pod>(&mut self, state: S) -> Result<(), Failure> {
        for (region, words) in self.saved.bytes().into_iter().zip(&self.own) {
            region.copy_from_slice(&bytemuck::cast_slice::<u64, u8>(words)[..region.len()]);
        }
        // SAFETY: the client computes in `own`; only this function writes to the regions, and the
        // checkpoint before is complete.
        unsafe { self.saved.begin()? };
        self.under_way = Some(Box::new(move |saved| saved.complete(&state).map(drop)));
        Ok(())
    }

    /// Completes the checkpoint that has begun, if one has. Collective.
    fn complete(&mut self) -> Result<(), Failure> {
        let completion = self.under_way.take();
        Ok(completion.map_or(Ok(()), |complete| complete(&mut self.saved))?)
    }

    /// Prints, on rank 0, what checkpoints and the recovery took of the time since `start`.
    fn print_times(&self, start: Instant) {
        if self.saved.rank() == 0 {
            let (taken, seconds) = (self.taken, self.taken_seconds);
            let recovery = self.saved.recovered().map_or(0.0, |recovered| recovered.seconds);
            let all = start.elapsed().as_secs_f64();
            println!(
                "# checkpoints: {taken} in {seconds:.6} s; recovery: {recovery:.6} s; all: {all:.6} s"
            );
        }
    }
}

/// Encodes the checkpoint that has begun, if one has, while the client computes.
pub struct Helper<'s, 'a>(Option<(&'s mut Saved<'a>, bool)>);

/// A checkpoint that another thread encodes.
struct Lent<'s, 'a>(&'s mut Saved<'a>);

// SAFETY: one thread uses it at a time, and nothing in it is bound to a thread.
unsafe impl Send for Lent<'_, '_> {}

impl Lent<'_, '_> {
    /// Encodes until the work has ended or nothing is left.
    fn encode(self, has_ended: &AtomicBool) -> Result<(), CheckpointError> {
        while !has_ended.load(Ordering::Acquire) && !self.0.poll()? {
            thread::sleep(Duration::from_micros(50));
        }
        Ok(())
    }
}

impl Helper<'_, '_> {
    /// No checkpoint has begun.
    pub const NONE: Self = Self(None);

    /// Computes, without messages: another thread of the process may be sending some.
    pub fn compute<R>(&mut self, work: impl FnOnce() -> R) -> Result<R, CheckpointError> {
        match &mut self.0 {
            None => Ok(work()),
            Some((saved, false)) => saved.poll().map(|_| work()),
            Some((saved, true)) => {
                let (lent, has_ended) = (Lent(saved), AtomicBool::new(false));
                thread::scope(|scope| {
                    let helper = scope.spawn(|| lent.encode(&has_ended));
                    let result = work();
                    has_ended.store(true, Ordering::Release);
                    helper.join().expect("it does not panic").map(|()| result)
                })
            }
        }
    }
}

impl<'a> Deref for Drilled<'a> {
    type Target = Saved<'a>;
    fn deref(&self) -> &Self::Target {
        &self.saved
    }
}

/// A rank's block of distributed items: `first..first + count` of `total`.
pub struct Block {
    pub first: usize,
    pub count: usize,
    pub total: usize,
}

impl Block {
    /// The block of `rank`. All blocks have the same size, except that the last ones may be smaller
    /// or empty.
    pub fn new(rank: usize, ranks: usize, total: usize) -> Self {
        let block = total.div_ceil(ranks);
        let first = (rank * block).min(total);
        Self { first, count: block.min(total - first), total }
    }
}

/// A hash of the words of all ranks, which changes when any bit does.
pub fn hash(comm: &Comm, words: impl Iterator<Item = u64>) -> Result<u64, CommError> {
    let mix = |h: u64, word: u64| (h ^ word).wrapping_mul(0x100_0000_01b3).rotate_left(23);
    let mut sum = [words.fold(comm.rank() as u64, mix)];
    collect::all_reduce(comm, &mut sum, u64::wrapping_add)?;
    Ok(sum[0])
}

/// Computes the result, or finds what an earlier start has computed; reports it; cleans up. The
/// exit code is 0 if the result is right.
fn run<C: Client>(world: &Comm, client: &C) -> Result<ExitCode, Failure> {
    let (start, flags) = (Instant::now(), client.flags());
    let run_id = flags.run_id.as_deref().unwrap_or(C::NAME);
    let store = flags.store.open();
    let faults = Arc::new(FaultInjector::new(&flags.inject, world.rank(), store, run_id));
    let mut options = flags.options(run_id, &client.problem());
    options.hook = faults.clone();
    let ended = match client::open(world, &options, &client.regions(world.size()))? {
        Next::Compute(saved) => {
            if let (0, Some(recovered)) = (saved.rank(), saved.recovered()) {
                eprintln!("checkpoint {}, rebuilt: {:?}", recovered.epoch, recovered.rebuilt);
            }
            let comm = saved.comm()?;
            let mut drilled = Drilled::new(saved, flags, faults);
            let solved = client.compute(&comm, &mut drilled)?;
            drilled.complete()?;
            drilled.print_times(start);
            drilled.saved.finish(&solved)?
        }
        Next::Report(ended) => ended,
    };
    let solved: C::Solved = ended.result();
    if world.rank() == 0 {
        client.print(&solved);
    }
    // The result is reported, so it is no longer needed.
    for stays in ended.clear()? {
        eprintln!("warning: {stays}");
    }
    Ok(if client.is_right(&solved) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs an example from its command line to its exit code.
pub fn main<C: Client>() -> ExitCode {
    let client = C::parse();
    client::on_mpi(|world| run(world, &client))
}
