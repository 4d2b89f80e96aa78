//! What the clients of the checkpoint library in this folder share: their flags, and the steps of a
//! start from what it finds to the report.
//!
//! A [`Client`] has regions, which a checkpoint saves whole, and a state of a few numbers, which is
//! the same on all ranks. It recomputes everything else.

use std::array::from_fn;
use std::process::ExitCode;
use std::sync::Arc;

use bytemuck::Pod;
use clap::Parser;
use skt_hpl::checkpoint::layout::{Active, RegionShape};
use skt_hpl::checkpoint::protocol::{Checkpointer, Opened};
use skt_hpl::checkpoint::store::SysV;
use skt_hpl::hpl::comm::mpi::{MpiComm, MpiWorld};
use skt_hpl::hpl::comm::{Comm, CommError, collect};
use skt_hpl::machine::team::Team;
use skt_hpl::run::protect::{Inject, NodeCheckpointer, Settings, Target, TestSegments, sweep};

/// An error that ends a run without a result.
pub type Failure = Box<dyn std::error::Error>;

/// The flags of all clients.
#[derive(clap::Args)]
pub struct Options {
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
    /// What a checkpoint saves besides the regions; the same on all ranks.
    type State: Pod;
    /// The result of the computation, which is kept until it is reported.
    type Solved: Pod;

    /// The flags that all clients have.
    fn options(&self) -> &Options;
    /// The parameters without which a checkpoint would be useless.
    fn problem(&self) -> String;
    /// The regions, of one shape on all ranks.
    fn shapes(&self, ranks: usize) -> Vec<RegionShape>;
    /// Iterates from the state of `saved` to the end. The ranks of `comm` are those of the data,
    /// not those of the launcher.
    fn compute(
        &self,
        comm: &MpiComm,
        saved: &mut Saved<Self::State>,
    ) -> Result<Self::Solved, Failure>;
    /// Prints the result. Called on rank 0.
    fn print(&self, solved: &Self::Solved);
    /// Whether the result is right, as far as that can be told.
    fn is_right(&self, solved: &Self::Solved) -> bool;
}

/// The regions of a rank, and their checkpointer.
pub struct Saved<'a, S> {
    checkpointer: Box<NodeCheckpointer<'a, MpiComm>>,
    faults: Arc<Target>,
    every: u64,
    regions: usize,
    /// The state at the checkpoint that the run resumes from; `None` at its beginning.
    pub state: Option<S>,
}

impl<'a, S: Pod> Saved<'a, S> {
    /// Recovers what an earlier start has left, and prints what it was.
    fn recover(
        opened: Box<NodeCheckpointer<'a, MpiComm>>,
        faults: Arc<Target>,
        every: u64,
        regions: usize,
    ) -> Result<Self, Failure> {
        let (checkpointer, recovered) = opened.recover()?;
        if let (0, Some(recovered)) = (checkpointer.rank(), &recovered) {
            let (epoch, rebuilt) = (recovered.epoch, &recovered.rebuilt);
            let attempt = checkpointer.found().attempt;
            eprintln!("start {attempt}: checkpoint {epoch}, rebuilt: {rebuilt:?}");
        }
        let state = recovered.map(|recovered| bytemuck::pod_read_unaligned(&recovered.state));
        Ok(Self { checkpointer, faults, every, regions, state })
    }

    /// All regions at once.
    pub fn regions<T: Pod, const N: usize>(&mut self) -> [&mut [T]; N] {
        let mut regions = self.checkpointer.regions().into_iter().map(bytemuck::cast_slice_mut);
        from_fn(|_| regions.next().expect("no more than in `shapes`"))
    }

    /// Called before each iteration: takes a checkpoint if one is due.
    pub fn before(&mut self, iteration: u64, state: &S) -> Result<(), Failure> {
        if iteration > 0 && iteration.is_multiple_of(self.every) {
            let all = vec![Active::ALL; self.regions];
            self.checkpointer.checkpoint(&all, bytemuck::bytes_of(state))?;
        }
        self.faults.columns(iteration as usize);
        Ok(())
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
    pub fn of(rank: usize, ranks: usize, total: usize) -> Self {
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

/// Computes the result, or finds what an earlier start has computed; reports it; cleans up. Returns
/// whether the result is right.
fn run<C: Client>(world: &MpiComm, client: &C) -> Result<bool, Failure> {
    let options = client.options();
    let run_id = options.run_id.as_deref().unwrap_or(C::NAME);
    let (store, team, settings) = (SysV::new(false), Team::solo(), Settings::new(run_id));
    let marks = Box::new(store);
    let faults = Arc::new(Target::new(&options.inject, world.rank(), marks, run_id));

    let shapes = client.shapes(world.size());
    let memory = TestSegments::new(&store, run_id, 0, &team);
    let state_bytes = size_of::<C::State>().max(size_of::<C::Solved>());
    let config = settings.config(&memory, client.problem(), &world.host(), state_bytes)?;
    let done = match Checkpointer::open(world, memory, config, &shapes, faults.clone())? {
        Opened::Ready(opened) => {
            let mut saved = Saved::recover(opened, faults, options.every, shapes.len())?;
            let comm = saved.checkpointer.comm().split(Some(0), 0)?.expect("all take part");
            let solved = client.compute(&comm, &mut saved)?;
            saved.checkpointer.finish(bytemuck::bytes_of(&solved))?
        }
        Opened::Finished(done) => done,
    };
    let solved: C::Solved = bytemuck::pod_read_unaligned(done.result());
    if world.rank() == 0 {
        client.print(&solved);
    }
    // The result is reported, so it is no longer needed.
    done.clear()?;
    sweep(&store, run_id, 0)?;
    Ok(client.is_right(&solved))
}

/// Runs an example from its command line to its exit code.
pub fn main<C: Client>() -> ExitCode {
    let client = C::parse();
    let done = MpiWorld::init().map_err(Into::into).and_then(|world| {
        let comm = world.comm()?;
        run(&comm, &client)
    });
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
