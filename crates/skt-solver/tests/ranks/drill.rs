//! HPL and HPL-MxP under checkpoints on ranks that are threads, with a real store for each node: a
//! folder. A lost node is an empty folder.

// Each test binary uses a part of this module.
#![allow(dead_code)]

use std::any::Any;
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use skt_checkpoint::checkpoint::decide::{Refusal, Resume, StartPlan};
use skt_checkpoint::checkpoint::group;
use skt_checkpoint::checkpoint::hook::{Hook, NoHook, Step, StepPattern};
use skt_checkpoint::checkpoint::methods::Method;
use skt_checkpoint::checkpoint::protocol::CheckpointError;
use skt_comm::{Comm, CommError};
use skt_config::{Bcast, Fact, Refinement, TestSpec};
use skt_host::phases::{EarlierStarts, Phases};
use skt_run::events::{Phase, RunEvents, SavedQueue, Silent};
use skt_run::protect::{
    self, Chosen, Clock, ClockReading, Every, GuessedRates, Opened, Overlap, RankInRun,
    RankProcess, Region, Settings, TestContext, TestSegments,
};
use skt_run::ptest::mxp::RefinementGuard;
use skt_run::ptest::{self, TestRun};
use skt_run::record::{Protection, RefinementStep, Restart};
use skt_solver::blas::MatRef;
use skt_solver::comm::threads::run;
use skt_solver::mxp::system::System;
use skt_solver::pgesv::SolveError;
use skt_solver::pgesv::guard::{Guard, Unguarded};
use skt_solver::team::Team;
use skt_store::codec::CodecKind;
use skt_store::store::{Files, SegmentInfo, Store, SysV};
use tempfile::TempDir;

use crate::base_spec::{base, whole_x};
use crate::mxp_system::refine;

/// A small system on a `p x q` grid.
pub fn spec(n: usize, nb: usize, p: usize, q: usize, depth: usize) -> TestSpec {
    let (bcast, pfact, swap_threshold) = (Bcast::OneRingM, Fact::Crout, 16);
    TestSpec { depth, bcast, pfact, swap_threshold, ..base(n, nb, p, q) }
}

/// Every checkpoint that is due, every `panels` panels. `SKT_TEST_OVERLAP` (on, off) sets the
/// overlap if a test does not.
pub fn settings(panels: usize, group_size: usize, parities: usize) -> Settings {
    let overlap = std::env::var("SKT_TEST_OVERLAP").unwrap_or_else(|_| "auto".into());
    Settings {
        overlap: Overlap::named(&overlap).expect("SKT_TEST_OVERLAP is on, off or auto"),
        method: Method::SelfCheckpoint,
        method_is_asked: true,
        region: Region::Corner,
        codec: if parities == 1 { CodecKind::Xor } else { CodecKind::ReedSolomon },
        group_size,
        parities,
        every: Every::Drill(panels),
        resume: Resume::Auto,
        run_id: "drill".into(),
        store: "sysv".into(),
        ..Settings::none()
    }
}

/// When a process dies.
#[derive(Debug, Clone, PartialEq)]
pub enum When {
    /// At the n-th step that matches, counted from 0.
    Step(StepPattern, usize),
    /// When this number of columns is eliminated.
    Columns(usize),
    /// When the factors are complete: the back substitution or the refinement begins.
    Back,
    /// At the n-th step of the protocol, whatever it is, counted from 0.
    AnyStep(usize),
    /// At the n-th line of the progress of the refinement in this start, counted from 1
    /// ([`refinement_lines`]).
    Refining(usize),
}

impl When {
    /// The first step that matches.
    pub fn step(pattern: &str) -> Self {
        Self::Step(pattern.parse().expect("a step"), 0)
    }
}

/// A death.
#[derive(Debug, Clone)]
pub struct Fault {
    pub process: usize,
    pub when: When,
}

/// Why a rank did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    #[error(transparent)]
    Solve(#[from] SolveError),
    #[error(transparent)]
    Comm(#[from] CommError),
}

/// The outcome of a rank.
pub struct Ran {
    /// All of x.
    pub x: Vec<f64>,
    pub residual: f64,
    /// `None` if an earlier start had done everything.
    pub work: Option<Work>,
}

/// The work of a start.
pub struct Work {
    pub found: StartPlan,
    pub resumed: bool,
    pub protection: Protection,
    /// Seconds of the run, and the first value that an observer received.
    pub seconds: f64,
    pub first_value_seconds: f64,
}

impl Ran {
    /// The work of this start.
    pub fn work(&self) -> &Work {
        self.work.as_ref().expect("it was not done before")
    }
}

/// The outcome of a whole start.
pub enum Ended {
    /// All ranks came to the end.
    Done(Box<Ran>),
    /// All ranks were refused alike.
    Refused(Refusal),
    /// A rank died of a fault.
    Died,
}

/// Nodes with memory, and the node of each rank.
pub struct Cluster {
    folder: TempDir,
    /// Whether nodes keep System V segments instead of files.
    sysv: bool,
    /// The node of each process.
    pub places: Vec<usize>,
    /// Number of nodes that there ever were.
    nodes: usize,
    /// The clocks of all nodes.
    pub clock: Clock,
}

impl Cluster {
    /// A cluster for `processes`, `per_node` of them on each node.
    pub fn new(processes: usize, per_node: usize) -> Self {
        let shm = std::path::Path::new("/dev/shm");
        let base = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
        let folder = TempDir::new_in(base).expect("a folder");
        let clock = Arc::new(ClockReading::now);
        let mut cluster = Self { folder, sysv: false, places: Vec::new(), nodes: 0, clock };
        for _ in 0..processes.div_ceil(per_node) {
            cluster.add_node();
        }
        cluster.places = (0..processes).map(|process| process / per_node).collect();
        cluster
    }

    /// This cluster with System V segments: a node is then a name of the run.
    pub fn with_sysv(self) -> Self {
        Self { sysv: true, ..self }
    }

    /// Whether nodes keep System V segments.
    pub fn is_sysv(&self) -> bool {
        self.sysv
    }

    fn add_node(&mut self) -> usize {
        std::fs::create_dir(self.node_folder(self.nodes)).expect("a folder");
        self.nodes += 1;
        self.nodes - 1
    }

    fn node_folder(&self, node: usize) -> PathBuf {
        self.folder.path().join(format!("node{node}"))
    }

    pub fn store(&self, node: usize) -> Box<dyn Store + Send + Sync> {
        if self.sysv {
            Box::new(SysV::new(false))
        } else {
            Box::new(Files::in_folder(&self.node_folder(node)))
        }
    }

    /// The suffix of the names of runs on a node, where nodes share a store.
    fn tail(&self, node: usize) -> String {
        if self.sysv {
            let unique = self.folder.path().file_name().expect("a name").to_string_lossy();
            format!("{unique}-{node}")
        } else {
            String::new()
        }
    }

    /// Segments on a node.
    pub fn on_node(&self, node: usize) -> Vec<SegmentInfo> {
        let tail = self.tail(node);
        let list = self.store(node).list().expect("a list");
        list.into_iter().filter(|info| info.name.run().ends_with(&tail)).collect()
    }

    fn host(&self, process: usize) -> String {
        format!("node{}", self.places[process])
    }

    /// Groups that these processes form.
    pub fn groups(&self, settings: &Settings) -> Vec<Vec<usize>> {
        let hosts: Vec<String> = (0..self.places.len()).map(|p| self.host(p)).collect();
        group::form(&hosts, settings.group_size, settings.parities, false).expect("groups").members
    }

    /// Loses the nodes of these processes; new ones replace them.
    pub fn lose(&mut self, processes: &[usize]) {
        let lost: BTreeSet<usize> = processes.iter().map(|&p| self.places[p]).collect();
        for node in lost {
            for info in self.on_node(node) {
                self.store(node).remove(&info.name).expect("removed");
            }
            std::fs::remove_dir_all(self.node_folder(node)).expect("a folder");
            let fresh = self.add_node();
            for place in &mut self.places {
                if *place == node {
                    *place = fresh;
                }
            }
        }
    }

    /// Number of segments on all nodes.
    pub fn segments(&self) -> usize {
        let nodes: BTreeSet<usize> = self.places.iter().copied().collect();
        nodes.into_iter().map(|node| self.on_node(node).len()).sum()
    }

    /// Bytes of each segment once the job has made room: as listed, and as the file system counts
    /// them, including the page of the store.
    pub fn measure(&self, spec: &TestSpec, settings: &Settings) -> Vec<(u64, u64)> {
        let results = run(spec.p * spec.q, |comm| {
            let (store, team) = (self.store(self.places[comm.rank()]), Team::solo());
            let surroundings = self.surroundings(&comm, settings, &*store, &team, Arc::new(NoHook));
            let opened = protect::open(&comm, spec, settings, surroundings)?;
            let Opened::Ready(guard, _) = opened else { panic!("a new run") };
            let mut list = store.list().expect("a list");
            list.retain(|info| info.name.role() != "lock");
            let [info] = &list[..] else { panic!("one segment a node: {list:?}") };
            let resident = std::fs::metadata(&info.location).expect("a file").blocks() * 512;
            let bytes = info.bytes as u64;
            guard.finish(&[])?.clear()?;
            Ok::<_, Failure>((bytes, resident))
        });
        results.into_iter().map(|bytes| bytes.expect("no rank dies")).collect()
    }

    fn surroundings<'a>(
        &self,
        comm: &Comm,
        settings: &Settings,
        store: &'a (dyn Store + Send + Sync),
        team: &'a Team,
        hook: Arc<dyn Hook>,
    ) -> TestContext<'a> {
        let run = format!("{}{}", settings.run_id, self.tail(self.places[comm.rank()]));
        TestContext {
            nothing_hidden: false,
            memory: TestSegments::new(store, &run, 0, RankProcess(team)),
            host: self.host(comm.rank()),
            hook,
            guessed: GuessedRates { flops: 1e9, rank_read_bytes: 1e9 },
            lost_at: None,
            rank_in_run: RankInRun::default(),
            clock: self.clock.clone(),
            end_unix: None,
            beginning: None,
            chosen: Chosen::default(),
            saved: SavedQueue::default(),
        }
    }

    /// Starts the job once.
    pub fn start(&self, spec: &TestSpec, settings: &Settings, faults: &[Fault]) -> Ended {
        let results = run(spec.p * spec.q, |comm| {
            let process = comm.rank();
            let deaths =
                faults.iter().filter(|f| f.process == process).map(|f| f.when.clone()).collect();
            let killer = Killer { deaths, seen: AtomicUsize::new(0), all: AtomicUsize::new(0) };
            let body = || self.rank(&comm, spec, settings, Arc::new(killer));
            let ran = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
                if !panic.is::<Died>() {
                    resume_unwind(panic);
                }
                Err(CommError::Killed(0).into())
            });
            // A refusal is an answer, and must reach all ranks without help.
            match ran {
                Err(Failure::Checkpoint(CheckpointError::Refused(refusal))) => Ok(Err(refusal)),
                Err(error) => Err(error),
                Ok(ran) => Ok(Ok(ran)),
            }
        });
        let errors: Vec<&Failure> = results.iter().filter_map(|r| r.as_ref().err()).collect();
        if errors.is_empty() {
            let mut ends: Vec<Result<Ran, Refusal>> =
                results.into_iter().map(|r| r.unwrap_or_else(|e| panic!("{e}"))).collect();
            let first = ends.swap_remove(0);
            for other in &ends {
                match (&first, other) {
                    (Ok(a), Ok(b)) => assert_eq!(bits(&a.x), bits(&b.x), "x differs on a rank"),
                    (Err(a), Err(b)) => assert_eq!(a, b, "refused for another reason"),
                    _ => panic!("some ranks are refused, some are not"),
                }
            }
            return first.map_or_else(Ended::Refused, |ran| Ended::Done(Box::new(ran)));
        }
        let killed = |e: &&Failure| {
            let text = e.to_string();
            text.contains("fault injection") || text.contains("aborted")
        };
        assert!(errors.iter().all(killed), "{errors:?}");
        assert!(errors.iter().any(|e| e.to_string().contains("fault injection")), "{errors:?}");
        Ended::Died
    }

    /// Starts the job up to the cut before panel `next`, with phases that `phases` gives for each
    /// rank, and ends without a result. Returns what the test did before, and its restarts.
    pub fn start_up_to(
        &self,
        spec: &TestSpec,
        settings: &Settings,
        next: usize,
        phases: impl Fn(usize) -> Phases + Sync,
    ) -> (EarlierStarts, Vec<Restart>) {
        let results = run(spec.p * spec.q, |comm| {
            let (store, team) = (self.store(self.places[comm.rank()]), team(spec));
            let surroundings = self.surroundings(&comm, settings, &*store, &team, Arc::new(NoHook));
            let opened = protect::open(&comm, spec, settings, surroundings)?;
            let Opened::Ready(mut opened, _) = opened else { panic!("no start has finished") };
            let guard: &mut dyn Guard = &mut *opened;
            let begins = guard.start();
            guard.cut(begins, next, &Phases::default())?;
            if begins < next {
                guard.cut(next, next, &phases(comm.rank()))?;
            }
            let earlier = guard.earlier();
            Ok::<_, Failure>((earlier, opened.protection().restarts))
        });
        results.into_iter().next().expect("rank 0").expect("no rank dies")
    }

    fn rank(
        &self,
        comm: &Comm,
        spec: &TestSpec,
        settings: &Settings,
        killer: Arc<Killer>,
    ) -> Result<Ran, Failure> {
        let (store, team) = (self.store(self.places[comm.rank()]), team(spec));
        let surroundings = self.surroundings(comm, settings, &*store, &team, killer.clone());
        let (mut guard, found) = match protect::open(comm, spec, settings, surroundings)? {
            Opened::Ready(guard, found) => (guard, found),
            Opened::Done(done) => {
                let (residual, x) = read_result(done.result());
                done.clear()?;
                return Ok(Ran { x, residual, work: None });
            }
        };
        let grid = ptest::grid(guard.comm(), spec)?.expect("a place for each");
        let resumed = guard.is_resumed();
        let mut watcher = Watcher { killer, first_value_seconds: f64::NAN, refining_lines: 0 };
        let (x, residual) = run_test(
            TestRun { grid: &grid, team: &team, spec },
            &mut *guard,
            resumed,
            &mut watcher,
        )?;
        let (protection, seconds) = (guard.protection(), Guard::<f64>::seconds(&*guard));
        let first_value_seconds = watcher.first_value_seconds;
        let done = guard.finish(&write_result(residual, &x))?;
        // What is reported is what is kept.
        assert_eq!(read_result(done.result()).1, x);
        done.clear()?;
        Ok(Ran {
            x,
            residual,
            work: Some(Work { found, resumed, protection, seconds, first_value_seconds }),
        })
    }
}

/// Formats the residual and x, as kept at the end.
fn write_result(residual: f64, x: &[f64]) -> Vec<u8> {
    bytemuck::cast_slice(&[&[residual], x].concat()).to_vec()
}

fn read_result(result: &[u8]) -> (f64, Vec<f64>) {
    let numbers: Vec<f64> = bytemuck::allocation::pod_collect_to_vec(result);
    (numbers[0], numbers[1..].to_vec())
}

fn team(spec: &TestSpec) -> Team {
    Team::new(spec.threads, |_| ()).expect("threads")
}

/// x and the residual, without any checkpoints.
pub fn undisturbed(spec: &TestSpec) -> Vec<f64> {
    let results = run(spec.p * spec.q, |comm| {
        let (team, grid) = (team(spec), ptest::grid(&comm, spec)?);
        let grid = grid.expect("a place for each");
        let memory = ptest::matrix_memory(spec, grid.myrow, grid.mycol);
        let mut guard = Unguarded::new(memory.doubles).expect("memory");
        let (x, residual) =
            run_test(TestRun { grid: &grid, team: &team, spec }, &mut guard, false, &mut Silent)?;
        assert!(residual < spec.threshold);
        Ok::<_, Failure>(x)
    });
    results.into_iter().next().expect("rank 0").expect("no rank dies")
}

/// The lines of the progress of each step of the refinement, in an undisturbed run: one for each
/// solution with the factors, and one at the end. A cycle of GMRES begins with a solution.
pub fn refinement_lines(spec: &TestSpec) -> Vec<usize> {
    let results = run(spec.p * spec.q, |comm| {
        let (team, grid) = (team(spec), ptest::grid(&comm, spec)?);
        let grid = grid.expect("a place for each");
        let system = System::new(spec.n, spec.mxp.expect("a test of HPL-MxP"));
        let doubles = ptest::mxp::shape(&grid, spec).doubles();
        let mut guard = Unguarded::new(doubles).expect("memory");
        let test = TestRun { grid: &grid, team: &team, spec };
        let (_, mxp) = refine(test, &system, &mut guard, false, &mut Silent)?;
        Ok::<_, SolveError>(mxp.steps)
    });
    let steps = results.into_iter().next().expect("rank 0").expect("no rank dies");
    let lines = |step: &RefinementStep| match step.refinement {
        Refinement::Classic => 2,
        Refinement::Gmres => step.corrections + 2,
    };
    steps.iter().map(lines).collect()
}

/// Generates the matrix, unless the one of `guard` is `resumed` from a checkpoint, and solves.
/// Returns all of x, and the scaled residual.
fn run_test(
    test: TestRun<'_>,
    guard: &mut (impl Guard<f64> + RefinementGuard),
    resumed: bool,
    events: &mut dyn RunEvents,
) -> Result<(Vec<f64>, f64), Failure> {
    let TestRun { grid, team, spec } = test;
    if let Some(matrix) = spec.mxp {
        let system = System::new(spec.n, matrix);
        let mine = refine(test, &system, guard, resumed, events)?.0;
        let norms = skt_solver::mxp::check::norms(&system, grid, team, spec.nb, &mine, &|| ())?;
        return Ok((whole_x(grid, spec, &mine)?, norms.scaled_residual(spec.n)));
    }
    if !resumed {
        ptest::generate(test, guard.matrix());
    }
    solve(test, guard, events)
}

/// Solves the system that `guard` has. Returns all of x, and the scaled residual.
pub fn solve(
    test: TestRun<'_>,
    guard: &mut dyn Guard,
    events: &mut dyn RunEvents,
) -> Result<(Vec<f64>, f64), Failure> {
    let mine = ptest::solve(test, guard, events, &mut 0)?.x;
    ptest::generate(test, guard.matrix());
    let TestRun { grid, spec, .. } = test;
    let shape = ptest::shape(grid, spec);
    let a = MatRef::row_major(guard.matrix(), shape.rows, shape.cols, shape.lda);
    let norms = ptest::norms(grid, spec.n, spec.nb, a, &mine)?;
    Ok((whole_x(grid, spec, &mine)?, norms.scaled_residual(spec.n)))
}

pub fn bits(x: &[f64]) -> Vec<u64> {
    x.iter().map(|value| value.to_bits()).collect()
}

/// The payload of the panic that ends a rank where no error could.
struct Died;

/// Kills its process at the given moments.
struct Killer {
    deaths: Vec<When>,
    /// The steps so far that match the pattern of a death.
    seen: AtomicUsize,
    /// All steps so far.
    all: AtomicUsize,
}

impl Hook for Killer {
    fn at(&self, step: &Step) -> Result<(), CommError> {
        let number = self.all.fetch_add(1, Ordering::SeqCst);
        if self.deaths.contains(&When::AnyStep(number)) {
            return Err(CommError::Killed(0));
        }
        for when in &self.deaths {
            if let When::Step(pattern, skip) = when
                && pattern.matches(step)
                && self.seen.fetch_add(1, Ordering::SeqCst) == *skip
            {
                return Err(CommError::Killed(0));
            }
        }
        Ok(())
    }
}

struct Watcher {
    killer: Arc<Killer>,
    first_value_seconds: f64,
    /// Lines of the refinement in this start.
    refining_lines: usize,
}

impl Watcher {
    fn die(&self, is_now: impl Fn(&When) -> bool) {
        if self.killer.deaths.iter().any(is_now) {
            let payload: Box<dyn Any + Send> = Box::new(Died);
            resume_unwind(payload);
        }
    }
}

impl RunEvents for Watcher {
    fn phase(&mut self, phase: Phase) {
        let is_back = matches!(phase, Phase::BackSubstitute | Phase::Refine);
        self.die(|when| *when == When::Back && is_back);
    }

    fn step(&mut self, _: f64, _: &str) {
        self.refining_lines += 1;
        self.die(|when| *when == When::Refining(self.refining_lines));
    }

    fn columns(&mut self, done: usize, _: usize, elapsed_seconds: f64) {
        if self.first_value_seconds.is_nan() {
            self.first_value_seconds = elapsed_seconds;
        }
        self.die(|when| matches!(when, When::Columns(columns) if *columns <= done));
    }
}
