//! Gravity between all pairs of bodies that survives the loss of processes and nodes (a
//! client of Bautista Gomez et al., "Low-overhead checkpoint for large-scale
//! GPU-accelerated systems").
//!
//! ```text
//! mpirun -np 4 target/release/examples/nbody --inject 1@column:70      dies
//! mpirun -np 4 target/release/examples/nbody --inject 1@column:70      resumes
//! ```
//!
//! A Plummer sphere of equal bodies, in units where G and the whole mass are 1, moves by the
//! leapfrog, kick-drift-kick. Each rank has a block of bodies; the positions of all blocks pass
//! each rank once a step, around a ring. Positions and velocities are regions of a checkpoint;
//! accelerations follow from the positions.

mod common;

use std::array::from_fn;
use std::f64::consts::{PI, TAU};
use std::process::ExitCode;

use clap::Parser;
use common::{Block, Client, Drilled, Failure, Flags, Helper};
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};
use skt_checkpoint::client::Region;
use skt_comm::{Comm, CommError, Tag, collect};

const TAG_RING: Tag = 1;
/// Relative change of the energy above which the steps are too long. The error of the leapfrog is
/// proportional to the square of the step and does not grow with time.
const ENERGY_DRIFT: f64 = 1e-3;
/// Change of the momentum above which the forces are not pairwise: otherwise only rounding changes
/// it.
const MOMENTUM_DRIFT: f64 = 1e-12;

type Vector = [f64; 3];
/// The conserved quantities: the energy, then the momentum.
type Conserved = [f64; 4];

#[derive(Parser)]
struct Args {
    /// Number of bodies.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    bodies: u32,
    /// Number of steps.
    #[arg(long, default_value_t = 200)]
    steps: u64,
    /// Time of a step.
    #[arg(long, default_value_t = 0.01)]
    dt: f64,
    /// Length s that keeps forces finite: a pair attracts as at sqrt(r^2 + s^2).
    #[arg(long, default_value_t = 0.05)]
    softening: f64,
    #[command(flatten)]
    flags: Flags,
}

/// The numbers outside of the regions; the same on all ranks.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct State {
    step: u64,
    first: Conserved,
}

/// The result of the run.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Solved {
    steps: u64,
    first: Conserved,
    last: Conserved,
    /// A hash that changes when any bit of the positions does.
    x: u64,
}

impl Solved {
    /// The relative change of the energy, and the change of the momentum in the 1-norm.
    fn drifts(&self) -> (f64, f64) {
        let momentum = (1..4).map(|k| (self.last[k] - self.first[k]).abs()).sum();
        ((self.last[0] / self.first[0] - 1.0).abs(), momentum)
    }
}

/// A sequence of numbers in 0..1.
struct Noise(SplitMix64);

impl Noise {
    fn next(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A vector of this length in a random direction.
    fn vector(&mut self, length: f64) -> Vector {
        let (z, angle) = (2.0 * self.next() - 1.0, TAU * self.next());
        let flat = (1.0 - z * z).sqrt();
        [flat * angle.cos(), flat * angle.sin(), z].map(|along| length * along)
    }
}

/// The position and velocity of a body of a Plummer sphere in equilibrium, which is cut off where
/// it has 99 % of its mass (Aarseth, Henon and Wielen, 1974, "A comparison of numerical methods for
/// the study of star cluster dynamics"). Each body draws its own random numbers.
fn plummer(body: usize) -> (Vector, Vector) {
    let mut noise = Noise(SplitMix64::seed_from_u64((body as u64) << 32));
    let radius = ((0.99 * noise.next()).powf(-2.0 / 3.0) - 1.0).powf(-0.5);
    let escape = 2f64.sqrt() * (1.0 + radius * radius).powf(-0.25);
    let share = loop {
        let (q, chance) = (noise.next(), 0.1 * noise.next());
        if chance < q * q * (1.0 - q * q).powf(3.5) {
            break q;
        }
    };
    // The unit of length in which the energy is -1/4.
    let unit = 3.0 * PI / 16.0;
    (noise.vector(unit * radius), noise.vector(share * escape / unit.sqrt()))
}

/// y := y + t slope
fn advance(y: &mut [Vector], t: f64, slope: &[Vector]) {
    for (y, slope) in y.iter_mut().zip(slope) {
        *y = from_fn(|k| y[k] + t * slope[k]);
    }
}

/// A rank's bodies and the forces on them.
struct Problem<'a> {
    comm: &'a Comm,
    args: &'a Args,
    block: Block,
    mass: f64,
}

impl Problem<'_> {
    /// Computes the accelerations of this rank's bodies. Returns their half of the potential energy
    /// of each pair. The sums follow the order of the ring, which is the same after any restart.
    fn forces(&self, x: &[Vector], a: &mut [Vector], helper: &mut Helper) -> Result<f64, Failure> {
        let (size, me) = (self.comm.size(), self.comm.rank());
        let (mut theirs, mut next) = (x.to_vec(), x.to_vec());
        let mut potential = 0.0;
        a.fill([0.0; 3]);
        for hop in 0..size {
            let owner = (me + size - hop) % size;
            let others = &theirs[..Block::new(owner, size, self.block.total).count];
            helper.compute(|| {
                for (i, a) in a.iter_mut().enumerate() {
                    potential += self.pull(&x[i], (owner == me).then_some(i), others, a);
                }
            })?;
            if hop + 1 < size {
                let to = (bytemuck::cast_slice(&theirs), (me + 1) % size, TAG_RING);
                let from = (me + size - 1) % size;
                let mut from = [(bytemuck::cast_slice_mut(&mut next), from, TAG_RING)];
                self.comm.exchange_bytes(&[to], &mut from)?;
                (theirs, next) = (next, theirs);
            }
        }
        Ok(potential)
    }

    /// Adds to `a` the pull of `others` on a body at `x`, which is number `me` of them if any.
    /// Returns its half of their potential energy.
    fn pull(&self, x: &Vector, me: Option<usize>, others: &[Vector], a: &mut Vector) -> f64 {
        let mut potential = 0.0;
        for (_, other) in others.iter().enumerate().filter(|(j, _)| Some(*j) != me) {
            let d: Vector = from_fn(|k| other[k] - x[k]);
            let square = d[0] * d[0] + d[1] * d[1] + d[2] * d[2] + self.args.softening.powi(2);
            let inverse = 1.0 / square.sqrt();
            *a = from_fn(|k| a[k] + self.mass * inverse * inverse * inverse * d[k]);
            potential -= 0.5 * self.mass * self.mass * inverse;
        }
        potential
    }

    /// The energy and the momentum of all bodies.
    fn conserved(&self, v: &[Vector], potential: f64) -> Result<Conserved, CommError> {
        let mut sums = [potential, 0.0, 0.0, 0.0];
        for v in &v[..self.block.count] {
            sums[0] += 0.5 * self.mass * v.iter().map(|v| v * v).sum::<f64>();
            (0..3).for_each(|k| sums[k + 1] += self.mass * v[k]);
        }
        collect::all_sum(self.comm, &mut sums)?;
        Ok(sums)
    }
}

impl Client for Args {
    const NAME: &'static str = "nbody";
    type Solved = Solved;

    fn flags(&self) -> &Flags {
        &self.flags
    }

    fn problem(&self) -> String {
        format!("nbody {} dt {} softening {}", self.bodies, self.dt, self.softening)
    }

    fn regions(&self, ranks: usize) -> Vec<Region> {
        vec![Region::of::<Vector>(Block::new(0, ranks, self.bodies as usize).count); 2]
    }

    fn compute(&self, comm: &Comm, saved: &mut Drilled) -> Result<Solved, Failure> {
        let block = Block::new(comm.rank(), comm.size(), self.bodies as usize);
        let problem = Problem { comm, args: self, block, mass: 1.0 / f64::from(self.bodies) };
        let mut a = vec![[0.0; 3]; problem.block.count];
        let found = saved.state::<State>();
        let [x, v] = saved.regions::<Vector, 2>();
        if found.is_none() {
            for i in 0..a.len() {
                (x[i], v[i]) = plummer(problem.block.first + i);
            }
        }
        let mut helper = Helper::NONE;
        let mut potential = problem.forces(x, &mut a, &mut helper)?;
        let begin = || Ok(State { step: 0, first: problem.conserved(v, potential)? });
        let mut s = found.map_or_else(begin, Ok::<_, CommError>)?;
        while s.step < self.steps {
            saved.before(s.step, &s)?;
            let ([x, v], mut helper) = saved.regions_and_helper::<Vector, 2>();
            advance(v, 0.5 * self.dt, &a);
            advance(&mut x[..a.len()], self.dt, v);
            potential = problem.forces(x, &mut a, &mut helper)?;
            advance(v, 0.5 * self.dt, &a);
            s.step += 1;
        }
        let [x, v] = saved.regions::<Vector, 2>();
        let last = problem.conserved(v, potential)?;
        let bits = x[..a.len()].iter().flatten().map(|along| along.to_bits());
        Ok(Solved { steps: s.step, first: s.first, last, x: common::hash(comm, bits)? })
    }

    fn print(&self, solved: &Solved) {
        let (energy, momentum) = solved.drifts();
        println!("{} steps, energy {:.6}", solved.steps, solved.last[0]);
        println!("drift of the energy {energy:.2e}, of the momentum {momentum:.2e}");
        println!("x: {:016x} (differs when any bit of a position does)", solved.x);
        println!("{}", if self.is_right(solved) { "PASSED" } else { "FAILED" });
    }

    fn is_right(&self, solved: &Solved) -> bool {
        let (energy, momentum) = solved.drifts();
        energy <= ENERGY_DRIFT && momentum <= MOMENTUM_DRIFT
    }
}

fn main() -> ExitCode {
    common::main::<Args>()
}
