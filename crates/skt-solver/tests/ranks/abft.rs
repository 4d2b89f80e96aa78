//! Simulated ranks, with memory that outlives them, that solve systems with checksums and are
//! killed.

// Each test uses a part of this module.
#![allow(dead_code)]

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Once};

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};
use skt_comm::{Comm, CommError};
use skt_config::{TestSpec, Transport};
use skt_sim::fibers::{Kill, Linger, Point, SimOptions, SimOutcome, run};
use skt_solver::blas::library::use_one_thread;
use skt_solver::grid::Grid;
use skt_solver::pgesv::abft::{
    AbftError, Absent, At, CheckEvery, MemoryHook, RankMemory, RelayMessages, Solution, System,
    Weights, grid_without,
};
use skt_solver::pgesv::events::{Silent, SolverEvents};
use skt_solver::pgesv::{CallLimit, Params, SolveError};
use skt_solver::team::Team;
use skt_store::codec::checksum;

use crate::base_spec::base;

/// A test for ranks under the simulator, which share no memory.
pub fn spec(n: usize, nb: usize, p: usize, q: usize) -> TestSpec {
    TestSpec { transport: Transport::Messages, ..base(n, nb, p, q) }
}

/// A system [A|b] with a known solution, row by row.
#[derive(Clone)]
pub struct Matrix {
    pub rows: Vec<Vec<f64>>,
    pub x: Vec<f64>,
}

/// Numbers from a seed.
pub struct Random(SplitMix64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(SplitMix64::seed_from_u64(seed))
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.0.next_u64() % bound as u64) as usize
    }
}

impl Matrix {
    /// Makes the rows of L U in a random order, with L of 0 and 1/2 below its unit diagonal and U
    /// of -1, 0, 1 with 1 or -1 on its diagonal. So each pivot is known, as the one element of
    /// magnitude 1, and all numbers on the way to an integer x are small and exact.
    pub fn exact(n: usize, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut lower = vec![vec![0.0; n]; n];
        let mut upper = vec![vec![0.0; n]; n];
        for i in 0..n {
            (0..i).for_each(|j| lower[i][j] = (random.below(3) as f64 - 1.0) / 2.0);
            lower[i][i] = 1.0;
            upper[i][i] = if random.below(2) == 0 { 1.0 } else { -1.0 };
            (i + 1..n).for_each(|j| upper[i][j] = random.below(3) as f64 - 1.0);
        }
        let x: Vec<f64> = (0..n).map(|_| random.below(7) as f64 - 3.0).collect();
        let mut rows: Vec<Vec<f64>> = (0..n)
            .map(|i| {
                let entry = |j: usize| (0..n).map(|k| lower[i][k] * upper[k][j]).sum::<f64>();
                let mut row: Vec<f64> = (0..n).map(entry).collect();
                row.push(row.iter().zip(&x).map(|(a, x)| a * x).sum());
                row
            })
            .collect();
        for i in (1..n).rev() {
            rows.swap(i, random.below(i + 1));
        }
        Self { rows, x }
    }

    /// Makes random numbers between -1/2 and 1/2; x is not known.
    pub fn random(n: usize, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut number = || random.below(1 << 40) as f64 / (1u64 << 40) as f64 - 0.5;
        let rows = (0..n).map(|_| (0..=n).map(|_| number()).collect()).collect();
        Self { rows, x: Vec::new() }
    }

    pub fn fill(&self, row: usize, col: usize, values: &mut [f64]) {
        values.copy_from_slice(&self.rows[row][col..col + values.len()]);
    }

    /// The scaled residual, as in the reference.
    pub fn residual(&self, x: &[f64]) -> f64 {
        let n = x.len();
        let sum = |row: &[f64]| row[..n].iter().map(|a| a.abs()).sum::<f64>();
        let product = |row: &[f64]| row.iter().zip(x).map(|(a, x)| a * x).sum::<f64>();
        let largest = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max);
        let off = largest(&mut self.rows.iter().map(|row| (row[n] - product(row)).abs()));
        let a = largest(&mut self.rows.iter().map(|row| sum(row)));
        let b = largest(&mut self.rows.iter().map(|row| row[n].abs()));
        let x = largest(&mut x.iter().map(|x| x.abs()));
        off / (f64::EPSILON / 2.0 * (a * x + b) * n as f64)
    }
}

/// A system and the grid that solves it.
#[derive(Clone)]
pub struct Job {
    pub spec: TestSpec,
    pub weights: Weights,
    pub matrix: Matrix,
    pub check: CheckEvery,
}

pub use skt_solver::pgesv::abft::Solution as Solved;

/// The memory of each rank.
pub type Memory = Vec<Vec<f64>>;

/// The step at which a rank died, if it died before a change of its memory, and the state of the
/// factorization.
#[derive(Debug, Clone, Copy, Default)]
pub struct Trail {
    pub end: Option<At>,
    pub is_restored: bool,
    /// Whether the rank's memory is no longer a cut of the system because of a replacement, or
    /// holds x.
    pub is_replaced: bool,
    pub is_solved: bool,
}

impl Trail {
    /// Whether the death tore a part of a product.
    pub fn is_torn(&self) -> bool {
        self.end.is_some_and(is_within_part)
    }
}

/// Whether a part of a product has begun and is not done.
fn is_within_part(at: At) -> bool {
    ["product", "done", "take back", "undone", "partly"].contains(&at.name)
}

/// Lets a rank die at each step; a rank that is notified of another's death continues to the end of
/// its part.
struct Dying {
    point: Point,
    trail: Arc<Mutex<Trail>>,
    is_dead: AtomicBool,
}

impl MemoryHook for Dying {
    fn at(&self, at: At) -> Result<(), SolveError> {
        assert!(!self.is_dead.load(Ordering::Relaxed), "a dead rank goes on with {at}");
        self.trail.lock().unwrap().is_restored |= ["log", "x"].contains(&at.name);
        match self.point.step(&at) {
            Err(CommError::Aborted { .. }) if is_within_part(at) => Ok(()),
            Err(error) => {
                self.is_dead.store(true, Ordering::Relaxed);
                self.trail.lock().unwrap().end = Some(at);
                Err(error.into())
            }
            Ok(()) => {
                let mut trail = self.trail.lock().unwrap();
                trail.is_replaced |= at.name == "replaced";
                trail.is_solved |= at.name == "solved";
                Ok(())
            }
        }
    }
}

/// A start, with its outcome and the memory that it left.
pub struct Start {
    pub outcome: SimOutcome<Solution, AbftError>,
    pub memory: Memory,
    pub trails: Vec<Trail>,
}

impl Job {
    pub fn ranks(&self) -> usize {
        self.spec.p * self.width()
    }

    /// Number of ranks of a process row.
    pub fn width(&self) -> usize {
        self.spec.q + self.weights.checksums()
    }

    /// Memory that has not been used.
    pub fn untouched(&self) -> Memory {
        vec![Vec::new(); self.ranks()]
    }

    /// Starts the job on simulated ranks.
    pub fn start(&self, memory: &Memory, options: &SimOptions, start_id: u32) -> Start {
        self.start_without(&[], memory, options, start_id)
    }

    /// Starts the job without the ranks of `gone`, which are of one process column: the checksums
    /// take its position.
    pub fn start_without(
        &self,
        gone: &[usize],
        memory: &Memory,
        options: &SimOptions,
        start_id: u32,
    ) -> Start {
        self.start_each(gone, memory, options, |comm, rank, own, hook| match gone {
            [] => self.solve(comm, own, start_id, hook),
            gone => self.solve_without(gone, comm, rank, own, start_id, hook),
        })
    }

    /// Starts the job as [`Self::start`] does; the watcher of each rank observes it.
    pub fn start_watched<W: SolverEvents>(
        &self,
        memory: &Memory,
        options: &SimOptions,
        start_id: u32,
        watchers: &mut [W],
    ) -> Start {
        let watchers: Vec<RefCell<&mut W>> = watchers.iter_mut().map(RefCell::new).collect();
        self.start_each(&[], memory, options, |comm, rank, own, hook| {
            self.watched(comm, own, start_id, hook, &mut **watchers[rank].borrow_mut())
        })
    }

    /// Starts the job on simulated ranks except those of `gone`: each does `work` in its memory.
    fn start_each(
        &self,
        gone: &[usize],
        memory: &Memory,
        options: &SimOptions,
        work: impl Fn(&Comm, usize, &mut Vec<f64>, &dyn MemoryHook) -> Result<Solution, AbftError>,
    ) -> Start {
        static ONE_THREAD: Once = Once::new();
        ONE_THREAD.call_once(|| {
            use_one_thread();
        });
        let memory = RefCell::new(memory.clone());
        let trails: Vec<Arc<Mutex<Trail>>> = (0..self.ranks()).map(|_| Arc::default()).collect();
        let left: Vec<usize> = (0..self.ranks()).filter(|rank| !gone.contains(rank)).collect();
        let outcome = run(options, |comm| {
            let rank = left[comm.rank()];
            let mut own = std::mem::take(&mut memory.borrow_mut()[rank]);
            let is_dead = AtomicBool::new(false);
            let hook = Dying { point: comm.point(), trail: trails[rank].clone(), is_dead };
            let solved = work(&comm, rank, &mut own, &hook);
            memory.borrow_mut()[rank] = own;
            solved
        });
        assert_eq!(outcome.deadlock, None, "{}", self.name());
        let trails = trails.iter().map(|trail| *trail.lock().unwrap()).collect();
        Start { outcome, memory: memory.into_inner(), trails }
    }

    /// Solves the system on one rank, in its memory.
    pub fn solve(
        &self,
        comm: &Comm,
        memory: &mut Vec<f64>,
        start_id: u32,
        hook: &dyn MemoryHook,
    ) -> Result<Solution, AbftError> {
        self.watched(comm, memory, start_id, hook, &mut Silent)
    }

    /// Solves the system as [`Self::solve`] does; `watcher` observes it.
    pub fn watched(
        &self,
        comm: &Comm,
        memory: &mut Vec<f64>,
        start_id: u32,
        hook: &dyn MemoryHook,
        watcher: &mut dyn SolverEvents,
    ) -> Result<Solution, AbftError> {
        self.on(comm, memory, |system, memory| system.solve(memory, start_id, hook, watcher))
    }

    /// The system on one rank, and its memory, which is only extended by zeros.
    pub fn on<T, E: From<CommError>>(
        &self,
        comm: &Comm,
        memory: &mut Vec<f64>,
        work: impl FnOnce(&System, &mut RankMemory) -> Result<T, E>,
    ) -> Result<T, E> {
        let TestSpec { p, q, pmap, .. } = self.spec;
        let checksums = self.weights.checksums();
        let grid = Grid::with_checksums(comm, p, q, checksums, pmap)?.expect("a place for each");
        self.with_system(&grid, |system| {
            memory.resize(system.doubles(), 0.0);
            work(&system, &mut RankMemory::new(memory))
        })
    }

    /// Solves the system on rank `rank` of the ranks that remain when those of `gone` are lost.
    fn solve_without(
        &self,
        gone: &[usize],
        comm: &Comm,
        rank: usize,
        memory: &mut Vec<f64>,
        start_id: u32,
        hook: &dyn MemoryHook,
    ) -> Result<Solution, AbftError> {
        let TestSpec { p, q, .. } = self.spec;
        let place = |rank: usize| (rank / self.width(), rank % self.width());
        let all = comm.split(Some(0), comm.rank() as u32)?.expect("a colour was given");
        let (myrow, mycol) = place(rank);
        let grid = Grid::at(all, p, q, 1, myrow, mycol)?;
        let absent = |&rank: &usize| Absent { rank, row: place(rank).0, col: place(rank).1 };
        let absent: Vec<Absent> = gone.iter().map(absent).collect();
        let players = grid_without(&grid, absent[0].col)?;
        self.with_system(&grid, |system| {
            memory.resize(system.doubles(), 0.0);
            let players = players.as_ref();
            let memory = &mut RankMemory::new(memory);
            system.solve_without(&absent, players, memory, start_id, hook, &mut Silent)
        })
    }

    fn with_system<R>(&self, grid: &Grid, body: impl FnOnce(System) -> R) -> R {
        let team = Team::new(self.spec.threads, |_| ()).expect("threads");
        let entries = |row: usize, col: usize, values: &mut [f64]| {
            self.matrix.fill(row, col, values);
        };
        body(System {
            grid,
            team: &team,
            params: Params::from(&self.spec),
            weights: &self.weights,
            entries: &entries,
            entries_id: 1,
            check: self.check,
            // Several messages for each sum, also for small systems: the smallest number, and one
            // more.
            relay_messages: RelayMessages {
                doubles: if self.spec.n < 500 { 8 } else { 8000 },
                count: 2 + self.spec.n % 2,
            },
            calls: self.calls(),
        })
    }

    /// Calls as short as possible: where all numbers are exact, two or three for each part, also
    /// for small systems; otherwise with no fewer columns than those of a run, because bits count.
    fn calls(&self) -> CallLimit {
        let tuned = CallLimit { seconds: 0.0, ..CallLimit::tuned() };
        let grain_columns = (self.spec.n / self.spec.q / 3).max(3);
        if self.matrix.x.is_empty() {
            tuned
        } else {
            CallLimit { grain_columns, min_size: 1, ..tuned }
        }
    }

    pub fn name(&self) -> String {
        let TestSpec { n, nb, p, q, depth, swap, .. } = self.spec;
        let m = self.weights.checksums();
        format!("N = {n}, NB = {nb}, {p} x {q} + {m}, DEPTH {depth}, {swap:?}")
    }

    /// Continues from `memory` to the end, and returns x.
    pub fn finish(&self, memory: &Memory, seed: u64, start_id: u32) -> Solution {
        let start = self.start(memory, &SimOptions::new(self.ranks(), seed), start_id);
        let results = start.outcome.results.into_iter();
        let mut solutions = results.map(|result| {
            result.unwrap_or_else(|error| panic!("{}, seed {seed}: {error}", self.name()))
        });
        let first = solutions.next().expect("a rank");
        assert!(solutions.all(|other| other == first), "all ranks have the same x");
        first
    }
}

/// A number that differs if the memories do.
pub fn fingerprint(memory: &Memory) -> u64 {
    let sum = |rank: &Vec<f64>| checksum(bytemuck::cast_slice(rank));
    checksum(bytemuck::cast_slice(&memory.iter().map(sum).collect::<Vec<_>>()))
}

/// Options under which ranks die.
pub fn deadly(ranks: usize, seed: u64, kills: Vec<Kill>, linger: Linger) -> SimOptions {
    SimOptions { kills, linger, rendezvous: seed % 2 == 1, ..SimOptions::new(ranks, seed) }
}

/// Options under which each rank comes to its own end, also when others have failed.
pub fn patient(ranks: usize, seed: u64) -> SimOptions {
    deadly(ranks, seed, Vec::new(), Linger::UntilBlocked)
}

/// Number of steps of a run without deaths.
pub fn steps(job: &Job, seed: u64) -> u64 {
    let options = deadly(job.ranks(), seed, Vec::new(), Linger::Steps(0));
    job.start(&job.untouched(), &options, 1).outcome.steps
}

/// `memory` without that of `ranks`.
pub fn without(memory: &Memory, ranks: &[usize]) -> Memory {
    let mut left = memory.clone();
    ranks.iter().for_each(|&rank| left[rank].clear());
    left
}
