//! The solver on ranks that are threads: every variant of the algorithm on awkward shapes, against
//! the residual and an independent dense solver.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use crate::base_spec::base;
use crate::drill::solve;
use crate::elimination::Factors;
use crate::soak;
use skt_comm::{Comm, CommError, PageBuf, RecvRequest, SendRequest, Tag};
use skt_config::{Bcast, Fact, Generator, Pmap, Swap, TestSpec, Transport};
use skt_host::phases::Phases;
use skt_run::events::Silent;
use skt_run::ptest::{self, TestRun};
use skt_solver::blas::view::SharedMat;
use skt_solver::blas::{Element, MatMut};
use skt_solver::comm::threads::run;
use skt_solver::grid::Grid;
use skt_solver::pgesv::final_part::Final;
use skt_solver::pgesv::guard::{Background, Guard, Nothing, Remaining};
use skt_solver::pgesv::{LocalShape, SolveError};
use skt_solver::team::Team;

pub const FACTS: [Fact; 3] = [Fact::Left, Fact::Crout, Fact::Right];
pub const SWAPS: [Swap; 3] = [Swap::BinaryExchange, Swap::SpreadRoll, Swap::Mix];

/// Solves by elimination the system that an independent program would make, and returns x.
fn reference_solution(n: usize) -> Vec<f64> {
    let mut x = 100u64;
    let mut next = || {
        x = x.wrapping_mul(6364136223846793005).wrapping_add(1);
        0.5 - x as f64 * 2f64.powi(-64)
    };
    // Column by column.
    let a: Vec<f64> = (0..n * n).map(|_| next()).collect();
    let b: Vec<f64> = (0..n).map(|_| next()).collect();
    Factors::new(n, &a).solve(&b)
}

/// The first of `cuts` after panel `next`, or the end.
fn next_cut(cuts: &[usize], next: usize, panels: usize) -> usize {
    cuts.iter().copied().find(|&cut| cut > next).unwrap_or(panels).min(panels)
}

/// Cuts the factorization before given panels, without taking a checkpoint.
pub struct Cutter<T> {
    pub memory: Vec<T>,
    background: Nothing,
    cuts: Vec<usize>,
}

impl<T: Element> Cutter<T> {
    pub fn new(memory: Vec<T>, cuts: &[usize]) -> Self {
        Self { memory, background: Nothing, cuts: cuts.to_vec() }
    }
}

impl<T: Element> Guard<T> for Cutter<T> {
    fn matrix(&mut self) -> &mut [T] {
        &mut self.memory
    }

    fn lend(&mut self, shape: LocalShape<T>) -> (SharedMat<'_, T>, &mut dyn Background) {
        let LocalShape { rows, cols, lda, .. } = shape;
        (MatMut::row_major(&mut self.memory, rows, cols, lda).share(), &mut self.background)
    }

    fn start(&mut self) -> usize {
        0
    }

    fn cut(&mut self, next: usize, panels: usize, _: &Phases) -> Result<usize, SolveError> {
        Ok(next_cut(&self.cuts, next, panels))
    }

    fn seconds(&self) -> f64 {
        1.0
    }
}

fn guard(grid: &Grid, spec: &TestSpec, cuts: &[usize]) -> Cutter<f64> {
    // Memory that generation does not fill must not matter.
    Cutter::new(vec![f64::NAN; ptest::shape(grid, spec).doubles()], cuts)
}

/// Solves on threads and collects x.
pub fn solve_on_threads(spec: &TestSpec, cuts: &[usize]) -> (Vec<f64>, f64) {
    solve_with_teams(spec, cuts, |_| spec.threads)
}

/// Solves on threads, with `threads_of` a process row on each rank of it, and collects x.
fn solve_with_teams(
    spec: &TestSpec,
    cuts: &[usize],
    threads_of: impl Fn(usize) -> usize + Sync,
) -> (Vec<f64>, f64) {
    let results = run(spec.p * spec.q, |world| {
        let grid = ptest::grid(&world, spec)?.expect("all ranks take part");
        let team = Team::new(threads_of(grid.myrow), |_| ()).expect("threads");
        let mut guard = guard(&grid, spec, cuts);
        ptest::generate(TestRun { grid: &grid, team: &team, spec }, guard.matrix());
        solve(TestRun { grid: &grid, team: &team, spec }, &mut guard, &mut Silent)
    });
    results.into_iter().next().expect("rank 0").unwrap_or_else(|e| panic!("{spec:?}: {e}"))
}

pub struct Checker {
    references: HashMap<usize, Vec<f64>>,
    tests: usize,
}

impl Checker {
    pub fn new() -> Self {
        Self { references: HashMap::new(), tests: 0 }
    }

    /// Solves with rows and panels in shared memory and by messages, and asserts that the bits are
    /// the same.
    pub fn check(&mut self, spec: &TestSpec) -> Vec<f64> {
        let (x, residual) = solve_on_threads(spec, &[]);
        if spec.p * spec.q > 1 {
            let spec = TestSpec { transport: Transport::Messages, ..spec.clone() };
            assert_eq!(solve_on_threads(&spec, &[]).0, x, "by messages: {spec:?}");
        }
        self.assert_right(spec, &(x.clone(), residual));
        self.tests += 1;
        x
    }

    /// Asserts that the solution is that of a reference, except for rounding.
    fn assert_right(&mut self, spec: &TestSpec, (x, residual): &(Vec<f64>, f64)) {
        assert!(*residual < 16.0, "residual {residual} of {spec:?}");
        let want = self.references.entry(spec.n).or_insert_with(|| reference_solution(spec.n));
        let scale = want.iter().fold(1.0f64, |a, b| a.max(b.abs()));
        for (i, (mine, theirs)) in x.iter().zip(want.iter()).enumerate() {
            let error = (mine - theirs).abs() / scale;
            assert!(error < 1e-9, "x[{i}] = {mine}, not {theirs}: {spec:?}");
        }
    }
}

/// Alternates between swap thresholds that exchange rows in halves and at once.
pub fn halves_or_not(turn: usize) -> usize {
    [0, 8][turn % 2]
}

const GRIDS: [(usize, usize); 6] = [(1, 1), (1, 4), (4, 1), (2, 2), (2, 3), (3, 2)];

#[test]
fn every_combination_of_algorithms() {
    // By default one of the nine pairs of panel factorizations for all else, in rotation.
    let some = if soak::is_soak() { FACTS.len().pow(2) } else { 1 };
    let (mut checker, mut others) = (Checker::new(), 0);
    for (p, q) in GRIDS {
        for (index, bcast) in Bcast::ALL.into_iter().enumerate() {
            for depth in 0..4 {
                for swap in SWAPS {
                    others += 1;
                    let first = others + others / 12 + others / (12 * Bcast::ALL.len());
                    for pair in (first..).take(some) {
                        // A few shapes and recursion parameters in rotation.
                        let turn = checker.tests + index;
                        let (n, nb) = [(37, 5), (30, 4), (41, 8), (29, 3)][turn % 4];
                        let (nbmin, ndiv) = [(1, 2), (2, 2), (2, 3), (4, 2), (3, 4)][turn % 5];
                        let spec = TestSpec {
                            swap_threshold: halves_or_not(turn / 4),
                            depth,
                            bcast,
                            swap,
                            rfact: FACTS[pair / 3 % 3],
                            pfact: FACTS[pair % 3],
                            nbmin,
                            ndiv,
                            ..base(n, nb, p, q)
                        };
                        checker.check(&spec);
                    }
                }
            }
        }
    }
    println!("{} combinations", checker.tests);
    assert_eq!(checker.tests, GRIDS.len() * Bcast::ALL.len() * 4 * SWAPS.len() * some);
}

#[test]
fn awkward_shapes() {
    let mut checker = Checker::new();
    for (p, q) in GRIDS {
        for depth in [0, 1, 3] {
            for (n, nb) in [
                (0, 3),
                (1, 1),
                (1, 7),
                (2, 1),
                (3, 100),
                (7, 7),
                (8, 7),
                (13, 4),
                (16, 4),
                (17, 4),
                (31, 8),
                (64, 16),
                (65, 16),
                (97, 32),
                (5, 5),
                (6, 5),
            ] {
                for (turn, pmap) in [Pmap::RowMajor, Pmap::ColumnMajor].into_iter().enumerate() {
                    // By default only one of the two, in rotation.
                    let some = if soak::is_soak() { 2 } else { 1 };
                    let halves = [turn + depth, turn + depth + 1].map(halves_or_not);
                    for swap_threshold in halves.into_iter().take(some) {
                        let base = base(n, nb, p, q);
                        checker.check(&TestSpec { depth, pmap, swap_threshold, ..base });
                    }
                }
            }
        }
    }
}

/// Products are short while a rank must still forward a panel, which depends on when the panel
/// comes: the bits are the same as in shared memory, where nothing is forwarded.
#[test]
fn short_products_change_no_bit() {
    let mut checker = Checker::new();
    for (p, q) in [(1, 3), (1, 4), (2, 3)] {
        for (bcast, threads) in [(Bcast::OneRing, 1), (Bcast::Long, 2)] {
            // The threshold avoids halves, which may round differently.
            let base = TestSpec { swap_threshold: 1000, ..base(1400, 64, p, q) };
            checker.check(&TestSpec { depth: 1, bcast, threads, ..base });
        }
    }
}

#[test]
fn larger_systems_with_threads() {
    let mut checker = Checker::new();
    for (p, q) in [(1, 1), (1, 2), (2, 1), (2, 2)] {
        for threads in [1, 2, 4] {
            for depth in [0, 1, 2] {
                // The threshold avoids halves: the BLAS may have other kernels for products that
                // are then so small, and round differently.
                let base = TestSpec { swap_threshold: 64, ..base(611, 48, p, q) };
                checker.check(&TestSpec { depth, threads, ..base.clone() });
                let (transport, swap_threshold) = (Transport::Messages, 2);
                let in_halves = TestSpec { depth, threads, transport, swap_threshold, ..base };
                checker.assert_right(&in_halves, &solve_on_threads(&in_halves, &[]));
            }
        }
    }
}

/// The ranks of a process column exchange rows and pivots in one order, however many threads each
/// has: where 13 to 27 columns are left, two would advance a panel after the rows, three before.
#[test]
fn teams_of_different_sizes_do_not_wait_for_each_other() {
    let spec = TestSpec { depth: 1, transport: Transport::Messages, ..base(72, 8, 2, 2) };
    let solved = solve_with_teams(&spec, &[], |myrow| 2 + myrow);
    Checker::new().assert_right(&spec, &solved);
}

#[test]
fn xoshiro_matrix_passes_too() {
    let spec = TestSpec { generator: Generator::Xoshiro, depth: 1, ..base(120, 16, 2, 2) };
    assert!(solve_on_threads(&spec, &[]).1 < 16.0);
}

/// The solution has the same bits wherever the loop is cut, at any depth.
#[test]
fn cuts_do_not_change_a_bit() {
    for (p, q) in [(1, 1), (1, 2), (2, 1), (2, 3)] {
        // A team of four advances the last panels before the product, and others during it.
        for (depth, threads) in [(0, 1), (1, 1), (2, 1), (3, 1), (1, 2), (1, 4), (2, 4)] {
            let spec = TestSpec { depth, threads, ..base(203, 16, p, q) };
            let (whole, _) = solve_on_threads(&spec, &[]);
            let by_messages = TestSpec { transport: Transport::Messages, ..spec.clone() };
            let in_halves = TestSpec { swap_threshold: 0, ..by_messages.clone() };
            let cut_every_panel: Vec<usize> = (1..13).collect();
            assert_eq!(solve_on_threads(&by_messages, &cut_every_panel).0, whole);
            for cuts in [&[][..], &[4, 5, 9], &cut_every_panel] {
                assert_eq!(solve_on_threads(&in_halves, cuts).0, whole, "cuts {cuts:?}, in halves");
            }
            for cuts in [&[1][..], &[5], &[2, 3, 9], &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]] {
                let (cut, _) = solve_on_threads(&spec, cuts);
                assert_eq!(
                    whole, cut,
                    "depth {depth}, {threads} threads, cuts {cuts:?} on {p} x {q}"
                );
            }
            let (again, _) = solve_on_threads(&spec, &[]);
            assert_eq!(whole, again, "two runs differ");
        }
    }
}

/// A singular matrix is reported with its column on all ranks, not as a NaN.
#[test]
fn pivots_that_are_no_pivots_are_named() {
    for (p, q) in GRIDS {
        for depth in 0..3 {
            for (value, bad_column) in [(0.0, 0), (0.0, 17), (f64::NAN, 9), (f64::INFINITY, 22)] {
                let (transport, swap_threshold) = match bad_column {
                    0 | 9 => (Transport::Shared, 8),
                    _ => (Transport::Messages, 0),
                };
                let spec = TestSpec { depth, transport, swap_threshold, ..base(29, 4, p, q) };
                let results = run(p * q, |world| {
                    let grid = Grid::new(&world, p, q, Pmap::RowMajor)?.expect("all take part");
                    let team = Team::solo();
                    let mut guard = guard(&grid, &spec, &[]);
                    ptest::generate(
                        TestRun { grid: &grid, team: &team, spec: &spec },
                        guard.matrix(),
                    );
                    let (cols, shape) = (grid.cols(spec.nb), ptest::shape(&grid, &spec));
                    if cols.owner(bad_column) == grid.mycol {
                        for i in 0..shape.rows {
                            guard.memory[i * shape.lda + cols.local(bad_column)] = value;
                        }
                    }
                    let solved = ptest::solve(
                        TestRun { grid: &grid, team: &team, spec: &spec },
                        &mut guard,
                        &mut Silent,
                        &mut 0,
                    );
                    Ok::<_, CommError>(solved.err())
                });
                for rank in results {
                    match rank.expect("no rank is lost").expect("a singular matrix") {
                        SolveError::Pivot { column, .. } => assert_eq!(column, bad_column),
                        other => panic!("{other}"),
                    }
                }
            }
        }
    }
}

/// What happens in the transport of one rank.
#[derive(Default)]
struct Calls {
    /// Held by the thread that is in the transport: MPI_THREAD_SERIALIZED allows one at a time.
    inside: Mutex<()>,
    /// How often the rank has tested its sends.
    tests: AtomicUsize,
}

impl Calls {
    fn enter(&self) -> MutexGuard<'_, ()> {
        self.inside.try_lock().expect("one thread of a rank is in the transport")
    }
}

/// Ranks on threads that watch the calls of their transport.
struct Watched {
    comm: Comm,
    calls: Arc<Calls>,
}

struct WatchedSend {
    send: Box<dyn SendRequest>,
    calls: Arc<Calls>,
}

impl SendRequest for WatchedSend {
    fn test(&mut self) -> Result<bool, CommError> {
        let _inside = self.calls.enter();
        self.calls.tests.fetch_add(1, Ordering::Relaxed);
        self.send.test()
    }

    fn wait(self: Box<Self>) -> Result<(), CommError> {
        self.send.wait()
    }
}

impl skt_comm::Transport for Watched {
    fn rank(&self) -> usize {
        self.comm.rank()
    }

    fn size(&self) -> usize {
        self.comm.size()
    }

    fn split(&self, color: Option<u32>, key: u32) -> Result<Option<Comm>, CommError> {
        let calls = self.calls.clone();
        Ok(self.comm.split(color, key)?.map(|comm| Comm::new(Self { comm, calls })))
    }

    fn send_bytes(&self, data: &[u8], dest: usize, tag: Tag) -> Result<(), CommError> {
        let _inside = self.calls.enter();
        self.comm.send_bytes(data, dest, tag)
    }

    fn exchange_bytes(
        &self,
        sends: &[(&[u8], usize, Tag)],
        recvs: &mut [(&mut [u8], usize, Tag)],
    ) -> Result<(), CommError> {
        let _inside = self.calls.enter();
        self.comm.exchange_bytes(sends, recvs)
    }

    fn isend(
        &self,
        buf: Arc<PageBuf>,
        range: Range<usize>,
        dest: usize,
        tag: Tag,
    ) -> Result<Box<dyn SendRequest>, CommError> {
        let _inside = self.calls.enter();
        let send = self.comm.isend(buf, range, dest, tag)?;
        Ok(Box::new(WatchedSend { send, calls: self.calls.clone() }))
    }

    fn irecv(
        &self,
        buf: PageBuf,
        range: Range<usize>,
        source: usize,
        tag: Tag,
    ) -> Result<Box<dyn RecvRequest>, CommError> {
        let _inside = self.calls.enter();
        self.comm.irecv(buf, range, source, tag)
    }

    fn probe(&self, source: usize, tag: Tag) -> Result<bool, CommError> {
        let _inside = self.calls.enter();
        // Longer than the way from one call to the next: who does not wait for the other meets it.
        thread::sleep(Duration::from_millis(1));
        self.comm.probe(source, tag)
    }

    fn barrier(&self) -> Result<(), CommError> {
        self.comm.barrier()
    }

    fn host(&self) -> String {
        self.comm.host()
    }

    fn abort(&self, reason: &str, exit_code: i32) -> CommError {
        self.comm.abort(reason, exit_code)
    }
}

/// A transport may move data only when it is called: a rank that forwards a panel progresses it
/// between products, also if no other panel is being broadcast. The rank's second thread calls it,
/// too, but never at the same time.
#[test]
fn a_panel_that_is_forwarded_is_polled_during_the_update() {
    for depth in 0..2 {
        // The first updates have two products each.
        let spec = TestSpec { depth, transport: Transport::Messages, ..base(1400, 128, 1, 2) };
        let counts = run(2, |comm| {
            let calls = Arc::new(Calls::default());
            let world = Comm::new(Watched { comm, calls: calls.clone() });
            let grid = Grid::new(&world, 1, 2, Pmap::RowMajor)?.expect("a place");
            let (team, mut guard) = (Team::solo(), guard(&grid, &spec, &[]));
            let test = TestRun { grid: &grid, team: &team, spec: &spec };
            ptest::generate(test, guard.matrix());
            ptest::solve(test, &mut guard, &mut Silent, &mut 0)?;
            Ok::<_, SolveError>(calls.tests.load(Ordering::Relaxed))
        });
        let counts: Vec<usize> = counts.into_iter().map(|count| count.expect("solved")).collect();
        assert!(counts.iter().all(|&count| count > 0), "DEPTH {depth}: {counts:?}");
    }
}

/// Keeps a copy of each element when the solver calls it final, and compares it at the next cut.
struct Auditor {
    memory: Vec<f64>,
    final_elements: FinalElements,
    cuts: Vec<usize>,
}

struct FinalElements {
    matrix: *const f64,
    shape: LocalShape,
    /// The elements that were called final, row by row.
    kept: Vec<Option<f64>>,
    /// Number of elements compared so far.
    compared: usize,
}

impl FinalElements {
    fn compare(&mut self, memory: &[f64]) {
        for (at, kept) in self.kept.iter_mut().enumerate() {
            let Some(kept) = kept.take() else { continue };
            let (row, col) = (at / self.shape.cols, at % self.shape.cols);
            let now = memory[row * self.shape.lda + col];
            assert_eq!(kept.to_bits(), now.to_bits(), "row {row}, column {col} is not final");
            self.compared += 1;
        }
    }
}

// SAFETY: touches memory only.
unsafe impl Background for FinalElements {
    fn is_active(&self) -> bool {
        true
    }

    fn progress(&mut self, done: Final) -> Result<Remaining, SolveError> {
        let LocalShape { rows, cols, lda, .. } = self.shape;
        for (row, kept) in self.kept.chunks_exact_mut(cols.max(1)).enumerate().take(rows) {
            let width = if row < done.rows() { cols } else { done.cols() };
            for (col, kept) in kept.iter_mut().enumerate().take(width) {
                // SAFETY: the element is final, so nothing writes to it.
                kept.get_or_insert_with(|| unsafe { *self.matrix.add(row * lda + col) });
            }
        }
        Ok(Remaining::Work)
    }

    fn add_stall(&mut self, _: f64) {}
}

impl Guard for Auditor {
    fn matrix(&mut self) -> &mut [f64] {
        &mut self.memory
    }

    fn lend(&mut self, shape: LocalShape) -> (SharedMat<'_>, &mut dyn Background) {
        let LocalShape { rows, cols, lda, .. } = shape;
        self.final_elements.matrix = self.memory.as_ptr();
        self.final_elements.shape = shape;
        self.final_elements.kept.resize(rows * cols, None);
        let a = MatMut::row_major(&mut self.memory, rows, cols, lda).share();
        (a, &mut self.final_elements)
    }

    fn start(&mut self) -> usize {
        0
    }

    fn cut(&mut self, next: usize, panels: usize, _: &Phases) -> Result<usize, SolveError> {
        self.final_elements.compare(&self.memory);
        Ok(next_cut(&self.cuts, next, panels))
    }

    fn seconds(&self) -> f64 {
        1.0
    }
}

#[test]
fn what_the_solver_calls_final_does_not_change_before_the_cut() {
    let mut compared = 0;
    for (p, q) in [(1, 1), (2, 1), (1, 2), (2, 3)] {
        for (depth, threads, transport) in [
            (0, 1, Transport::Shared),
            (1, 1, Transport::Messages),
            (1, 2, Transport::Shared),
            (2, 2, Transport::Messages),
        ] {
            // By messages, in halves.
            let base = TestSpec { swap_threshold: 0, ..base(250, 16, p, q) };
            let spec = TestSpec { depth, threads, transport, ..base };
            let ranks = run(p * q, |world| {
                let grid = Grid::new(&world, p, q, spec.pmap)?.expect("all ranks take part");
                let team = Team::new(threads, |_| ()).expect("threads");
                let shape = ptest::shape(&grid, &spec);
                let mut guard = Auditor {
                    memory: vec![0.0; shape.doubles()],
                    final_elements: FinalElements {
                        matrix: std::ptr::null(),
                        shape,
                        kept: Vec::new(),
                        compared: 0,
                    },
                    cuts: vec![1, 4, 5, 9, 15],
                };
                let test = TestRun { grid: &grid, team: &team, spec: &spec };
                ptest::generate(test, guard.matrix());
                ptest::solve(test, &mut guard, &mut Silent, &mut 0)?;
                Ok::<_, SolveError>(guard.final_elements.compared)
            });
            compared += ranks.into_iter().map(|rank| rank.unwrap()).sum::<usize>();
        }
    }
    // 5 cuts in each of 16 runs, with 250 x 250 elements each.
    assert!(compared > 16 * 250 * 250, "{compared} elements compared");
}
