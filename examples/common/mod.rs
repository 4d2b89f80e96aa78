//! What the clients of the checkpoint library in this folder share: their flags, faults on purpose,
//! and the steps of a start from what it finds to the report.
//!
//! A [`Client`] has regions, which a checkpoint saves whole, and a state of a few numbers, which is
//! the same on all ranks. It recomputes everything else.

use std::ops::{Deref, DerefMut};
use std::process::ExitCode;
use std::sync::Arc;

use bytemuck::Pod;
use clap::Parser;
use skt_checkpoint::checkpoint::store::SysV;
use skt_checkpoint::client::{self, Next, Options, Region, Saved};
use skt_comm::mpi::MpiComm;
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
    /// [RANK@]WHAT: a step of the protocol, or column:ITERATION.
    #[arg(long)]
    inject: Vec<Inject>,
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
    fn compute(&self, comm: &MpiComm, saved: &mut Drilled) -> Result<Self::Solved, Failure>;
    /// Prints the result. Called on rank 0.
    fn print(&self, solved: &Self::Solved);
    /// Whether the result is right, as far as that can be checked.
    fn is_right(&self, solved: &Self::Solved) -> bool;
}

/// The regions of a rank, with a checkpoint every few iterations and with faults on purpose.
pub struct Drilled<'a> {
    saved: Saved<'a, MpiComm>,
    every: u64,
    faults: Arc<FaultInjector>,
}

impl Drilled<'_> {
    /// Called before each iteration: takes a checkpoint if one is due, and kills this process if
    /// `--inject` requires it.
    pub fn before<S: Pod>(&mut self, iteration: u64, state: &S) -> Result<(), Failure> {
        if iteration > 0 && iteration.is_multiple_of(self.every) {
            self.saved.checkpoint(state)?;
        }
        self.faults.columns(iteration as usize);
        Ok(())
    }
}

impl<'a> Deref for Drilled<'a> {
    type Target = Saved<'a, MpiComm>;
    fn deref(&self) -> &Self::Target {
        &self.saved
    }
}

impl DerefMut for Drilled<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.saved
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
pub fn hash(comm: &MpiComm, words: impl Iterator<Item = u64>) -> Result<u64, CommError> {
    let mix = |h: u64, word: u64| (h ^ word).wrapping_mul(0x100_0000_01b3).rotate_left(23);
    let mut sum = [words.fold(comm.rank() as u64, mix)];
    collect::all_reduce(comm, &mut sum, u64::wrapping_add)?;
    Ok(sum[0])
}

/// Computes the result, or finds what an earlier start has computed; reports it; cleans up. The
/// exit code is 0 if the result is right.
fn run<C: Client>(world: &MpiComm, client: &C) -> Result<ExitCode, Failure> {
    let &Flags { every, ref run_id, ref inject } = client.flags();
    let run_id = run_id.as_deref().unwrap_or(C::NAME);
    let store = Box::new(SysV::new(false));
    let faults = Arc::new(FaultInjector::new(inject, world.rank(), store, run_id));
    let mut options = Options::new(run_id, &client.problem());
    options.hook = faults.clone();
    let ended = match client::open(world, &options, &client.regions(world.size()))? {
        Next::Compute(saved) => {
            if let (0, Some(recovered)) = (saved.rank(), saved.recovered()) {
                eprintln!("checkpoint {}, rebuilt: {:?}", recovered.epoch, recovered.rebuilt);
            }
            let comm = saved.comm()?;
            let mut drilled = Drilled { saved, every, faults };
            let solved = client.compute(&comm, &mut drilled)?;
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
