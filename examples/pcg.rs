//! Conjugate gradients with the Jacobi preconditioner that survive the loss of processes and nodes
//! (the client of Chen and Dongarra, "A scalable checkpoint encoding algorithm for diskless
//! checkpointing").
//!
//! ```text
//! mpirun -np 4 target/release/examples/pcg --inject 1@column:70      dies
//! mpirun -np 4 target/release/examples/pcg --inject 1@column:70      resumes
//! ```
//!
//! Solves A u = b on a grid of `size x size` points, A the five-point stencil
//! with a diagonal that differs from point to point. Each rank has a block of
//! grid rows. x, r and p are regions of a checkpoint; b and A are formulas.

mod common;
#[path = "common/halo.rs"]
mod halo;

use std::process::ExitCode;

use clap::Parser;
use common::{Block, Client, Drilled, Failure, Flags, Helper};
use skt_checkpoint::client::Region;
use skt_comm::{Comm, CommError, collect};

#[derive(Parser)]
struct Args {
    /// Grid points in each direction.
    #[arg(long, default_value_t = 200)]
    size: usize,
    /// Residual, relative to the first, at which to stop.
    #[arg(long, default_value_t = 1e-12)]
    tolerance: f64,
    #[command(flatten)]
    flags: Flags,
}

/// The numbers outside of the vectors; the same on all ranks.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Scalars {
    iteration: u64,
    rho: f64,
    first_rho: f64,
}

/// The result of the solution.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Solved {
    iterations: u64,
    residual: f64,
    /// A hash that changes when any bit of x does.
    x: u64,
}

/// A rank's part of the grid: a block of its `size` rows.
struct Problem<'a> {
    comm: &'a Comm,
    size: usize,
    block: Block,
}

impl Problem<'_> {
    fn points(&self) -> usize {
        self.block.count * self.size
    }

    /// A number in 0..1 for each point.
    fn noise(&self, point: usize, salt: u64) -> f64 {
        let point = (self.block.first * self.size + point) as u64;
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
        let mut sum = [(0..self.points()).map(term).sum::<f64>()];
        collect::all_sum(self.comm, &mut sum)?;
        Ok(sum[0])
    }

    /// x := 0, r := b, p := z = r / diag(A)
    fn begin(&self, [x, r, p]: [&mut [f64]; 3]) -> Result<Scalars, CommError> {
        for i in 0..self.points() {
            (x[i], r[i], p[i]) = (0.0, self.b(i), self.b(i) / self.diagonal(i));
        }
        let rho = self.sum_over_points(|i| self.b(i).powi(2) / self.diagonal(i))?;
        Ok(Scalars { iteration: 0, rho, first_rho: rho })
    }

    /// q := A p. The neighbours send the rows above and below.
    fn multiply(&self, p: &[f64], q: &mut [f64], helper: &mut Helper) -> Result<(), Failure> {
        let (n, rows) = (self.size, self.block.count);
        let (mut above, mut below) = (vec![0.0; n], vec![0.0; n]);
        halo::exchange(self.comm, &self.block, &p[..rows * n], &mut above, &mut below)?;
        helper.compute(|| {
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
        })?;
        Ok(())
    }

    /// Does one iteration. Returns the next rho.
    fn iterate(
        &self,
        rho: f64,
        [x, r, p]: [&mut [f64]; 3],
        q: &mut [f64],
        helper: &mut Helper,
    ) -> Result<f64, Failure> {
        self.multiply(p, q, helper)?;
        let alpha = rho / self.sum_over_points(|i| p[i] * q[i])?;
        for i in 0..self.points() {
            x[i] += alpha * p[i];
            r[i] -= alpha * q[i];
        }
        let next = self.sum_over_points(|i| r[i] * r[i] / self.diagonal(i))?;
        for i in 0..self.points() {
            p[i] = r[i] / self.diagonal(i) + next / rho * p[i];
        }
        Ok(next)
    }
}

impl Client for Args {
    const NAME: &'static str = "pcg";
    type Solved = Solved;

    fn flags(&self) -> &Flags {
        &self.flags
    }

    fn problem(&self) -> String {
        format!("pcg {}", self.size)
    }

    fn regions(&self, ranks: usize) -> Vec<Region> {
        let rows = Block::new(0, ranks, self.size).count;
        vec![Region::of::<f64>(rows * self.size); 3]
    }

    fn compute(&self, comm: &Comm, saved: &mut Drilled) -> Result<Solved, Failure> {
        let block = Block::new(comm.rank(), comm.size(), self.size);
        let problem = Problem { comm, size: self.size, block };
        let points = problem.points();
        let mut q = vec![0.0; points];
        let mut s = match saved.state::<Scalars>() {
            Some(state) => state,
            None => problem.begin(saved.regions())?,
        };
        while s.rho > self.tolerance.powi(2) * s.first_rho {
            saved.before(s.iteration, &s)?;
            let (regions, mut helper) = saved.regions_and_helper();
            let rho = problem.iterate(s.rho, regions, &mut q, &mut helper)?;
            s = Scalars { iteration: s.iteration + 1, rho, ..s };
        }
        let [x, _, _] = saved.regions::<f64, 3>();
        let x = common::hash(comm, x[..points].iter().map(|value| value.to_bits()))?;
        let residual = (s.rho / s.first_rho).sqrt();
        Ok(Solved { iterations: s.iteration, residual, x })
    }

    fn print(&self, solved: &Solved) {
        println!("{} iterations, residual {:.2e}", solved.iterations, solved.residual);
        println!("x: {:016x} (differs when any bit of the solution does)", solved.x);
    }

    /// An iteration whose numbers break down ends with NaN.
    fn is_right(&self, solved: &Solved) -> bool {
        solved.residual <= 1.001 * self.tolerance
    }
}

fn main() -> ExitCode {
    common::main::<Args>()
}
