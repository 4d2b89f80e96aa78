//! A job: all tests of a run, on all its ranks, with everything around them.

mod places;
mod setup;

use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::cli::exit::Exit;
use crate::comm::{Comm, CommError, collect};
use crate::config::{RunSpec, TestSpec};
use crate::grid::Grid;
use crate::pgesv::SolveError;
use crate::pgesv::guard::Unguarded;
use crate::ptest::{self, Observer, Phase};
use crate::report::clock::now_unix_seconds;
use crate::report::json::{JsonError, JsonReport, RunFacts};
use crate::report::progress::{Progress, ProgressMode, generating_line};
use crate::report::record::TestRecord;
use crate::report::text::{self, Counts, Report};
use crate::team::Team;

/// What a job is told beside the run itself.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Where the JSON report goes.
    pub json: Option<PathBuf>,
    /// How progress is shown.
    pub progress: ProgressMode,
    /// What the MPI library calls itself.
    pub mpi_library: Option<String>,
}

/// Why a job could not be run.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// A rank could not be reached.
    #[error(transparent)]
    Comm(#[from] CommError),
    /// Rank 0 sent something that is no run.
    #[error("the run that rank 0 sent cannot be read: {0}; do all ranks run the same program?")]
    Spec(String),
    /// The solver stopped for a reason that is not in the matrix.
    #[error(transparent)]
    Solve(#[from] SolveError),
    /// Threads could not be started.
    #[error("cannot start {threads} threads a rank: {why}; lower --threads or raise ulimit -u")]
    Threads {
        /// Threads a rank.
        threads: usize,
        /// What the system said.
        why: std::io::Error,
    },
}

/// Runs all tests. Collective; every rank gets the same answer.
///
/// # Errors
/// A rank is lost. What is wrong with the job itself is said by rank 0, and is
/// in the answer.
pub fn run<C: Comm>(world: &C, spec: &RunSpec, options: &Options) -> Result<Exit, JobError> {
    let first = world.rank() == 0;
    let mut progress = if first { Progress::stderr(options.progress) } else { Progress::off() };
    let start_unix_seconds = now_unix_seconds();
    progress.phase(&setup::starting_line(world.size(), spec));
    let setup = setup::Setup::new(world, spec, options)?;
    if let Some(why) = &setup.does_not_fit {
        progress.clear();
        if first {
            eprintln!("error: {why}");
        }
        return Ok(Exit::BadInput);
    }
    let mut reports = None;
    if first {
        let facts = RunFacts {
            command_line: std::env::args().collect(),
            environment: setup.environment.clone(),
            dgemm_self_test: Some(setup.self_test.clone()),
            start_unix_seconds,
        };
        progress.clear();
        match Reports::open(spec, facts, options) {
            Ok(opened) => reports = Some(opened),
            Err(why) => eprintln!("error: {why}"),
        }
    }
    let mut opened = [u8::from(reports.is_some())];
    collect::broadcast(world, &mut opened, 0)?;
    if opened[0] == 0 {
        return Ok(Exit::BadInput);
    }
    let wrote = run_tests(world, spec, &setup, &mut progress, &mut reports)?;
    progress.clear();
    let exit = match (reports, wrote) {
        (Some(reports), true) => reports.close(),
        _ => Exit::BadInput,
    };
    let mut code = [exit.code()];
    collect::broadcast(world, &mut code, 0)?;
    Ok(Exit::from_code(code[0]))
}

/// A grid of so many rows and columns, where this rank has a part in it.
type GridOf<C> = ((usize, usize), Option<Grid<C>>);

/// Runs the tests one by one. Returns, on all ranks, whether all were reported.
fn run_tests<C: Comm>(
    world: &C,
    spec: &RunSpec,
    setup: &setup::Setup,
    progress: &mut Progress,
    reports: &mut Option<Reports>,
) -> Result<bool, JobError> {
    let tests = spec.tests();
    let mut grid: Option<GridOf<C>> = None;
    let mut announced = Instant::now();
    for (index, test) in tests.iter().enumerate() {
        let shape = (test.p, test.q);
        if grid.as_ref().is_none_or(|(of, _)| *of != shape) {
            grid = Some((shape, Grid::new(world, test.p, test.q, test.pmap)?));
        }
        let mut wrote = [1u8];
        if let Some((_, Some(grid))) = &grid {
            let announced = &mut announced;
            let mut watcher = Watcher { progress, test, tests: tests.len(), index, announced };
            let record = run_test(grid, &setup.team, test, &mut watcher)?;
            if let (Some(record), Some(reports)) = (record, reports.as_mut()) {
                progress.clear();
                if let Err(why) = reports.test(&record) {
                    eprintln!("error: {why}");
                    wrote[0] = 0;
                }
            }
        }
        // A result that cannot be kept is no result: all stop.
        collect::broadcast(world, &mut wrote, 0)?;
        if wrote[0] == 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

fn run_test<C: Comm>(
    grid: &Grid<C>,
    team: &Team,
    test: &TestSpec,
    watcher: &mut Watcher,
) -> Result<Option<TestRecord>, JobError> {
    let guard = Unguarded::new(ptest::shape(grid, test).doubles());
    let mut lacking = [u8::from(guard.is_err())];
    collect::all_reduce(&grid.all, &mut lacking, u8::max)?;
    match guard {
        Ok(mut guard) if lacking[0] == 0 => {
            Ok(ptest::run(grid, team, test, &mut guard, false, watcher)?)
        }
        _ => Ok(ptest::skipped(grid, test)?),
    }
}

/// The reports of a run, on rank 0.
struct Reports {
    text: Report<'static, Box<dyn Write + Send>>,
    json: Option<JsonReport>,
}

/// Why a report could not be written.
#[derive(Debug, thiserror::Error)]
enum ReportError {
    #[error(transparent)]
    Open(#[from] text::OutputError),
    #[error("cannot write the report: {0}")]
    Text(#[from] std::io::Error),
    #[error(transparent)]
    Json(#[from] JsonError),
}

impl Reports {
    fn open(spec: &RunSpec, facts: RunFacts, options: &Options) -> Result<Self, ReportError> {
        let mut notes = facts.environment.notes();
        let self_test = facts.dgemm_self_test.clone();
        if let Some(test) = &self_test {
            notes.push(format!("dgemm    : {:.1} Gflop/s a core", test.gflops_per_core));
            notes.extend(test.warnings.iter().map(|warning| format!("warning  : {warning}")));
        }
        let json = match &options.json {
            Some(path) => Some(JsonReport::create(path, spec, facts)?),
            None => None,
        };
        let out = text::open(&spec.output)?;
        // One run a process: its description lives as long.
        let spec: &'static RunSpec = Box::leak(Box::new(spec.clone()));
        let mut text = Report::new(out, spec)
            .with_dgemm(self_test.map(|test| test.gflops_per_core))
            .with_notes(notes);
        text.header()?;
        Ok(Self { text, json })
    }

    fn test(&mut self, record: &TestRecord) -> Result<(), ReportError> {
        self.text.test(record)?;
        if let Some(json) = &mut self.json {
            json.test(record)?;
        }
        Ok(())
    }

    /// Writes the summary; how the job ends.
    fn close(mut self) -> Exit {
        let counts = self.text.summary();
        let closed = self.json.map_or(Ok(()), JsonReport::finish);
        match (counts, closed) {
            (Ok(counts), Ok(())) => exit_for(counts),
            (Err(why), _) => {
                eprintln!("error: cannot write the report: {why}");
                Exit::BadInput
            }
            (_, Err(why)) => {
                eprintln!("error: {why}");
                Exit::BadInput
            }
        }
    }
}

fn exit_for(counts: Counts) -> Exit {
    match counts {
        Counts { failed: 1.., .. } => Exit::ResidualFailed,
        Counts { skipped: 1.., .. } => Exit::BadInput,
        _ => Exit::Passed,
    }
}

/// Orders below this take no time to speak of; hundreds of them may follow.
const SMALL_N: usize = 2000;
/// Between announcements of such tests.
const SMALL_INTERVAL: Duration = Duration::from_secs(1);

/// Shows a test's progress.
struct Watcher<'a> {
    progress: &'a mut Progress,
    test: &'a TestSpec,
    tests: usize,
    index: usize,
    announced: &'a mut Instant,
}

impl Observer for Watcher<'_> {
    fn phase(&mut self, phase: Phase) {
        let n = self.test.n;
        if n < SMALL_N && self.announced.elapsed() < SMALL_INTERVAL {
            return;
        }
        *self.announced = Instant::now();
        let line = match phase {
            Phase::Generate { total_bytes } => {
                generating_line(n, total_bytes, self.test.p * self.test.q)
            }
            Phase::Factor => {
                format!("N={n}: factoring (test {} of {})", self.index + 1, self.tests)
            }
            Phase::BackSubstitute => format!("N={n}: back substitution"),
            Phase::Check => format!("N={n}: checking the solution"),
            Phase::Done => return self.progress.clear(),
        };
        self.progress.phase(&line);
    }

    fn columns(&mut self, done: usize, elapsed_seconds: f64) {
        self.progress.columns(done, self.test.n, elapsed_seconds);
    }
}
