//! The Himeno benchmark (R. Himeno, RIKEN) that survives the loss of processes and nodes
//! (a client of Bautista Gomez et al., "Low-overhead checkpoint for large-scale
//! GPU-accelerated systems").
//!
//! ```text
//! mpirun -np 4 target/release/examples/himeno --inject 1@column:70      dies
//! mpirun -np 4 target/release/examples/himeno --inject 1@column:70      resumes
//! ```
//!
//! Jacobi iterations for Poisson's equation in generalized coordinates: a stencil of 19 points with
//! a coefficient array for each term, in single precision, 34 operations a point. The grid is cut
//! along its first dimension. The pressure is the region of a checkpoint; the coefficients are set
//! again.

mod common;
#[path = "common/halo.rs"]
mod halo;

use std::ops::Range;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use common::{Block, Client, Drilled, Failure, Flags, Helper};
use skt_checkpoint::client::Region;
use skt_comm::{Comm, CommError, collect};

/// The relaxation factor of the iteration.
const OMEGA: f32 = 0.8;
/// Operations at a point of the grid, as the benchmark counts them.
const FLOPS: f64 = 34.0;

#[derive(Parser)]
struct Args {
    /// Grid points I of a grid of I x I x 2 I: 32 is the benchmark's XS, 64 S, 128 M, 256 L.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(3..=1024))]
    size: u32,
    /// Number of iterations.
    #[arg(long, default_value_t = 200)]
    iterations: u64,
    #[command(flatten)]
    flags: Flags,
}

/// The numbers outside of the region; the same on all ranks.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct State {
    iteration: u64,
    first_gosa: f64,
    gosa: f64,
}

/// The result of the run.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Solved {
    state: State,
    /// Iterations of the last start, and the seconds of these and their checkpoints.
    timed: u64,
    seconds: f64,
    /// The least and the largest pressure.
    range: [f64; 2],
    /// A hash that changes when any bit of the pressure does.
    p: u64,
}

/// A rank's planes of the grid, and one more on each side: the neighbour's adjacent plane, or the
/// boundary. Each plane of an array has `lines` lines of `width` points.
struct Problem<'a> {
    comm: &'a Comm,
    /// Planes between the boundaries.
    block: Block,
    lines: usize,
    width: usize,
    a: [Vec<f32>; 4],
    b: [Vec<f32>; 3],
    c: [Vec<f32>; 3],
    wrk1: Vec<f32>,
    bnd: Vec<f32>,
}

impl<'a> Problem<'a> {
    fn new(comm: &'a Comm, args: &Args) -> Self {
        let (lines, width) = (args.lines(), args.width());
        let block = Block::new(comm.rank(), comm.size(), lines - 2);
        let array = |value: f32| vec![value; (block.count + 2) * lines * width];
        let a = [1.0, 1.0, 1.0, 1.0 / 6.0].map(array);
        let (b, c, wrk1, bnd) = ([0.0; 3].map(array), [1.0; 3].map(array), array(0.0), array(1.0));
        Self { comm, block, lines, width, a, b, c, wrk1, bnd }
    }

    fn plane(&self) -> usize {
        self.lines * self.width
    }

    /// This rank's own planes, in any array.
    fn own(&self) -> Range<usize> {
        self.plane()..(self.block.count + 1) * self.plane()
    }

    /// p := (i / (I - 1))^2 in plane i, which stays constant on the boundary.
    fn begin(&self, p: &mut [f32]) {
        for (i, plane) in p.chunks_exact_mut(self.plane()).enumerate() {
            plane.fill((self.block.first + i).pow(2) as f32 / (self.lines - 1).pow(2) as f32);
        }
    }

    /// ss := the change of p that the equation requires at each point of the line at `at`.
    fn line(&self, p: &[f32], at: usize, ss: &mut [f32]) {
        let w = self.width;
        // Lines of p by their offsets in i and j: minus, zero, plus.
        let line = |i, j| &p[at + i * self.plane() + j * w - self.plane() - w..][..w];
        let [[mm, mz, mp], [zm, zz, zp], [pm, pz, pp]] =
            [0, 1, 2].map(|i| [0, 1, 2].map(|j| line(i, j)));
        let [a0, a1, a2, a3] = self.a.each_ref().map(|a| &a[at..][..w]);
        let [b0, b1, b2] = self.b.each_ref().map(|b| &b[at..][..w]);
        let [c0, c1, c2] = self.c.each_ref().map(|c| &c[at..][..w]);
        let [wrk1, bnd] = [&self.wrk1, &self.bnd].map(|array| &array[at..][..w]);
        for k in 1..w - 1 {
            let s0 = a0[k] * pz[k]
                + a1[k] * zp[k]
                + a2[k] * zz[k + 1]
                + b0[k] * (pp[k] - pm[k] - mp[k] + mm[k])
                + b1[k] * (zp[k + 1] - zm[k + 1] - zp[k - 1] + zm[k - 1])
                + b2[k] * (pz[k + 1] - mz[k + 1] - pz[k - 1] + mz[k - 1])
                + c0[k] * mz[k]
                + c1[k] * zm[k]
                + c2[k] * zz[k - 1]
                + wrk1[k];
            ss[k] = (s0 * a3[k] - zz[k]) * bnd[k];
        }
    }

    /// Does one iteration. Returns gosa, the sum of the squares of all changes: its planes are
    /// added in their order in the grid, so that it has the same bits on any number of ranks.
    fn iterate(&self, p: &mut [f32], ss: &mut [f32], helper: &mut Helper) -> Result<f64, Failure> {
        let (above, rest) = p.split_at_mut(self.plane());
        let (own, below) = rest.split_at_mut(self.own().len());
        halo::exchange(self.comm, &self.block, own, above, &mut below[..self.plane()])?;
        let lines = || (1..self.lines - 1).map(|j| j * self.width);
        helper.compute(|| {
            for plane in self.own().step_by(self.plane()) {
                for at in lines().map(|line| plane + line) {
                    self.line(p, at, &mut ss[at..at + self.width]);
                }
            }
        })?;
        let mut gosa = Vec::with_capacity(self.block.count);
        for plane in self.own().step_by(self.plane()) {
            let mut sum = 0.0;
            for at in lines().flat_map(|line| plane + line + 1..plane + line + self.width - 1) {
                p[at] += OMEGA * ss[at];
                sum += f64::from(ss[at] * ss[at]);
            }
            gosa.push(sum);
        }
        let all = collect::all_gather_bytes(self.comm, bytemuck::cast_slice(&gosa))?;
        let planes = all.iter().flat_map(|bytes| bytes.chunks_exact(size_of::<f64>()));
        Ok(planes.map(bytemuck::pod_read_unaligned::<f64>).sum())
    }

    /// The least and the largest pressure of all ranks' own planes.
    fn range(&self, p: &[f32]) -> Result<[f64; 2], CommError> {
        let ends =
            p[self.own()].iter().fold([f32::NEG_INFINITY; 2], |[a, b], &p| [a.max(-p), b.max(p)]);
        let mut ends = ends.map(f64::from);
        collect::all_max(self.comm, &mut ends)?;
        Ok([-ends[0], ends[1]])
    }
}

impl Args {
    fn lines(&self) -> usize {
        self.size as usize
    }

    fn width(&self) -> usize {
        2 * self.lines()
    }
}

impl Client for Args {
    const NAME: &'static str = "himeno";
    type Solved = Solved;

    fn flags(&self) -> &Flags {
        &self.flags
    }

    fn problem(&self) -> String {
        format!("himeno {}", self.size)
    }

    fn regions(&self, ranks: usize) -> Vec<Region> {
        let planes = Block::new(0, ranks, self.lines() - 2).count + 2;
        vec![Region::of::<f32>(planes * self.lines() * self.width())]
    }

    fn compute(&self, comm: &Comm, saved: &mut Drilled) -> Result<Solved, Failure> {
        let problem = Problem::new(comm, self);
        let mut ss = vec![0.0; problem.bnd.len()];
        let found = saved.state::<State>();
        let mut s = found.unwrap_or(State { iteration: 0, first_gosa: 0.0, gosa: 0.0 });
        if found.is_none() {
            let [p] = saved.regions();
            problem.begin(p);
        }
        let (start, before) = (Instant::now(), s.iteration);
        while s.iteration < self.iterations {
            saved.before(s.iteration, &s)?;
            let ([p], mut helper) = saved.regions_and_helper();
            s.gosa = problem.iterate(p, &mut ss, &mut helper)?;
            s.iteration += 1;
            if s.iteration == 1 {
                s.first_gosa = s.gosa;
            }
        }
        let (timed, seconds) = (s.iteration - before, start.elapsed().as_secs_f64());
        let [p] = saved.regions::<f32, 1>();
        let bits = p[problem.own()].iter().map(|p| u64::from(p.to_bits()));
        let hash = common::hash(comm, bits)?;
        Ok(Solved { state: s, timed, seconds, range: problem.range(p)?, p: hash })
    }

    fn print(&self, solved: &Solved) {
        let State { iteration, gosa, .. } = solved.state;
        let points = (self.lines() - 2).pow(2) * (self.width() - 2);
        let mflops = 1e-6 * FLOPS * (points as u64 * solved.timed) as f64 / solved.seconds;
        println!("{iteration} iterations, gosa {gosa:.6e}");
        println!("{mflops:.1} MFLOPS in {} iterations of the last start", solved.timed);
        println!("x: {:016x} (differs when any bit of the pressure does)", solved.p);
        println!("{}", if self.is_right(solved) { "PASSED" } else { "FAILED" });
    }

    /// The changes decrease, and as each point becomes a mean of points around it, none leaves the
    /// range of the boundary, except by rounding.
    fn is_right(&self, solved: &Solved) -> bool {
        let (State { gosa, first_gosa, .. }, [least, largest]) = (solved.state, solved.range);
        gosa <= first_gosa && least >= 0.0 && largest <= 1.0 + 1e-6
    }
}

fn main() -> ExitCode {
    common::main::<Args>()
}
