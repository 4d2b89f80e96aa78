//! Conjugate gradients with the Jacobi preconditioner that survive the loss of
//! processes and nodes (the client of Chen and Dongarra, "A scalable checkpoint
//! encoding algorithm for diskless checkpointing").
//!
//! ```text
//! mpirun -np 4 target/release/examples/pcg --inject 1@column:70      dies
//! mpirun -np 4 target/release/examples/pcg --inject 1@column:70      goes on
//! ```
//!
//! Solves A u = b on a grid of `size x size` points, A the five-point stencil
//! with a diagonal that differs from point to point. Each rank has a block of
//! grid rows. x, r and p are regions of a checkpoint; b and A are formulas.

use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use skt_hpl::checkpoint::layout::{Active, RegionShape};
use skt_hpl::checkpoint::protocol::{Checkpointer, Opened};
use skt_hpl::checkpoint::recover::Recovered;
use skt_hpl::checkpoint::store::SysV;
use skt_hpl::hpl::comm::mpi::{MpiComm, MpiWorld};
use skt_hpl::hpl::comm::{Comm, CommError, Tag, collect};
use skt_hpl::machine::team::Team;
use skt_hpl::run::protect::{Inject, NodeCheckpointer, NodeMemory, Settings, Target, sweep};

const TAG_UP: Tag = 1;
const TAG_DOWN: Tag = 2;

#[derive(Parser)]
struct Args {
    /// Grid points in each direction.
    #[arg(long, default_value_t = 200)]
    size: usize,
    /// Iterations between checkpoints.
    #[arg(long, default_value_t = 20)]
    every: u64,
    /// Residual, relative to the first, at which to stop.
    #[arg(long, default_value_t = 1e-12)]
    tolerance: f64,
    /// Name of the run; a restart finds its data by it.
    #[arg(long, default_value = "pcg")]
    run_id: String,
    /// [RANK@]WHAT: a step of the protocol, or column:ITERATION.
    #[arg(long)]
    inject: Vec<Inject>,
}

/// What is not in the vectors; the same on all ranks.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Scalars {
    iteration: u64,
    rho: f64,
    first_rho: f64,
}

/// What the solution came to.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Solved {
    iterations: u64,
    residual: f64,
    /// Differs when any bit of x does.
    x: u64,
}

/// A rank's part of the grid: rows `first..first + rows` of `size`.
struct Problem<'a> {
    comm: &'a MpiComm,
    size: usize,
    first: usize,
    rows: usize,
}

impl Problem<'_> {
    /// A number in 0..1 for each point.
    fn noise(&self, point: usize, salt: u64) -> f64 {
        let point = (self.first * self.size + point) as u64;
        let mixed = (2 * point + salt).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ mixed >> 31).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed >> 11) as f64 / (1u64 << 53) as f64
    }

    fn b(&self, point: usize) -> f64 {
        self.noise(point, 0) - 0.5
    }

    fn diagonal(&self, point: usize) -> f64 {
        4.0 + 20.0 * self.noise(point, 1).powi(16)
    }

    fn sum_over_points(&self, term: impl Fn(usize) -> f64) -> Result<f64, CommError> {
        let mut sum = [(0..self.rows * self.size).map(term).sum::<f64>()];
        collect::all_sum(self.comm, &mut sum)?;
        Ok(sum[0])
    }

    /// q := A p. The rows above and below come from the neighbours.
    fn multiply(&self, p: &[f64], q: &mut [f64]) -> Result<(), CommError> {
        let (n, rows, me) = (self.size, self.rows, self.comm.rank());
        let (mut above, mut below) = (vec![0.0; n], vec![0.0; n]);
        let (mut sends, mut recvs) = (Vec::new(), Vec::new());
        if self.first > 0 && rows > 0 {
            sends.push((bytemuck::cast_slice(&p[..n]), me - 1, TAG_UP));
            recvs.push((bytemuck::cast_slice_mut(&mut above), me - 1, TAG_DOWN));
        }
        if self.first + rows < n && rows > 0 {
            sends.push((bytemuck::cast_slice(&p[(rows - 1) * n..rows * n]), me + 1, TAG_DOWN));
            recvs.push((bytemuck::cast_slice_mut(&mut below), me + 1, TAG_UP));
        }
        self.comm.exchange_bytes(&sends, &mut recvs)?;
        for i in 0..rows {
            for j in 0..n {
                let at = i * n + j;
                let up = if i > 0 { p[at - n] } else { above[j] };
                let down = if i + 1 < rows { p[at + n] } else { below[j] };
                let left = if j > 0 { p[at - 1] } else { 0.0 };
                let right = if j + 1 < n { p[at + 1] } else { 0.0 };
                q[at] = self.diagonal(at) * p[at] - up - down - left - right;
            }
        }
        Ok(())
    }
}

type Failure = Box<dyn std::error::Error>;

/// Computes, or finds what an earlier start has computed; reports; clears up.
fn run(world: &MpiComm, args: &Args) -> Result<(), Failure> {
    let (store, team, settings) = (SysV::new(false), Team::solo(), Settings::new(&args.run_id));
    let marks = Box::new(store);
    let faults = Arc::new(Target::new(&args.inject, world.rank(), marks, &args.run_id));

    // Regions have one shape on all ranks; the last rank may not fill its own.
    let block = args.size.div_ceil(world.size());
    let shape = RegionShape { rows: block, pitch_bytes: args.size * size_of::<f64>() };
    let application = format!("pcg {}", args.size);
    let memory = NodeMemory::new(&store, &args.run_id, 0, &team);
    let state_bytes = size_of::<Scalars>().max(size_of::<Solved>());
    let config = settings.config(&memory, application, &world.host(), state_bytes)?;
    let done = match Checkpointer::open(world, memory, config, &[shape; 3], faults.clone())? {
        Opened::Ready(saved) => {
            let (mut saved, recovered) = saved.recover()?;
            let solved = solve(&mut saved, recovered, args, block, &faults)?;
            saved.finish(bytemuck::bytes_of(&solved))?
        }
        Opened::Finished(done) => done,
    };
    if world.rank() == 0 {
        let solved: Solved = bytemuck::pod_read_unaligned(done.result());
        println!("{} iterations, residual {:.2e}", solved.iterations, solved.residual);
        println!("x: {:016x} (differs when any bit of the solution does)", solved.x);
    }
    // Reported: it is not needed any more.
    done.clear()?;
    Ok(sweep(&store, &args.run_id, 0)?)
}

fn solve(
    saved: &mut NodeCheckpointer<MpiComm>,
    recovered: Option<Recovered>,
    args: &Args,
    block: usize,
    faults: &Target,
) -> Result<Solved, Failure> {
    // Ranks are those of the data from here on, not those of the launcher.
    let comm = saved.comm().split(Some(0), 0)?.expect("all take part");
    let first = (comm.rank() * block).min(args.size);
    let rows = block.min(args.size - first);
    let problem = Problem { comm: &comm, size: args.size, first, rows };
    let points = rows * args.size;
    let mut q = vec![0.0; points];
    let mut s: Scalars = if let Some(recovered) = &recovered {
        if comm.rank() == 0 {
            let (epoch, rebuilt) = (recovered.epoch, &recovered.rebuilt);
            eprintln!("start {}: checkpoint {epoch}, rebuilt: {rebuilt:?}", saved.found().attempt);
        }
        bytemuck::pod_read_unaligned(&recovered.state)
    } else {
        // x := 0, r := b, p := z = r / diag(A)
        for (region, data) in saved.regions().into_iter().enumerate() {
            let data: &mut [f64] = bytemuck::cast_slice_mut(data);
            for (i, value) in data[..points].iter_mut().enumerate() {
                *value = [0.0, problem.b(i), problem.b(i) / problem.diagonal(i)][region];
            }
        }
        let rho = problem.sum_over_points(|i| problem.b(i).powi(2) / problem.diagonal(i))?;
        Scalars { iteration: 0, rho, first_rho: rho }
    };
    while s.rho > args.tolerance.powi(2) * s.first_rho {
        if s.iteration > 0 && s.iteration.is_multiple_of(args.every) {
            saved.checkpoint(&[Active::ALL; 3], bytemuck::bytes_of(&s))?;
        }
        faults.columns(s.iteration as usize);
        let regions = saved.regions().into_iter().map(bytemuck::cast_slice_mut::<u8, f64>);
        let [x, r, p] = regions.collect::<Vec<_>>().try_into().expect("three regions");
        problem.multiply(p, &mut q)?;
        let alpha = s.rho / problem.sum_over_points(|i| p[i] * q[i])?;
        for i in 0..points {
            x[i] += alpha * p[i];
            r[i] -= alpha * q[i];
        }
        let rho = problem.sum_over_points(|i| r[i] * r[i] / problem.diagonal(i))?;
        for i in 0..points {
            p[i] = r[i] / problem.diagonal(i) + rho / s.rho * p[i];
        }
        s = Scalars { iteration: s.iteration + 1, rho, ..s };
    }
    let x: &[f64] = bytemuck::cast_slice(saved.region(0));
    let hash = |h: u64, v: &f64| (h ^ v.to_bits()).wrapping_mul(0x100_0000_01b3).rotate_left(23);
    let mut sum = [x[..points].iter().fold(comm.rank() as u64, hash)];
    collect::all_reduce(&comm, &mut sum, u64::wrapping_add)?;
    let residual = (s.rho / s.first_rho).sqrt();
    Ok(Solved { iterations: s.iteration, residual, x: sum[0] })
}

fn main() -> ExitCode {
    let args = Args::parse();
    let done = MpiWorld::init().map_err(Into::into).and_then(|world| {
        let comm = world.comm()?;
        run(&comm, &args)
    });
    done.map_or_else(
        |error| {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}
