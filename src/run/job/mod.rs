//! A job: all tests of a run, on all its ranks, with everything around them.

mod interrupt;
mod outlook;
mod pinning;
mod places;
mod setup;
mod trials;

use setup::Setup;
pub use trials::Trials;

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use skt_terms::exit::Exit;

use crate::checkpoint::agree::{Refusal, Resume};
use crate::checkpoint::level::Load;
use crate::checkpoint::methods::Method;
use crate::checkpoint::protocol::{CheckpointError, Found};
use crate::checkpoint::record::StartId;
use crate::checkpoint::store::{StoreError, StoreKind};
use crate::config::{Pmap, RunSpec, TestSpec};
use crate::hpl::comm::{Comm, CommError, collect};
use crate::hpl::grid::Grid;
use crate::hpl::pgesv::SolveError;
use crate::hpl::pgesv::abft::{self, AbftError};
use crate::hpl::pgesv::guard::Unguarded;
use crate::machine::environment::blas::NoWorkSpace;
use crate::machine::team::Team;
use crate::machine::tuning::TUNING;
use crate::report::clock::now_unix_seconds;
use crate::report::json::{JsonError, JsonReport, RunFacts};
use crate::report::progress::{Progress, ProgressMode, generating_line};
use crate::report::record::TestRecord;
use crate::report::samples::Samples;
use crate::report::text::{self, Counts, Report};
use crate::report::{heartbeat, output};
use crate::run::protect::ledger::{Ledger, LedgerError, Results};
use crate::run::protect::{
    self, Done, Opened, Outlook, Protected, Reading, Seat, Settings, Surroundings, Target,
    TestSegments,
};
use crate::run::ptest::{self, Observer, Phase};

/// What a job is told besides the run itself.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Where the JSON report goes.
    pub json: Option<PathBuf>,
    /// How progress is shown.
    pub progress: ProgressMode,
    /// Whether the head of the report has the values that were found by measurement.
    pub verbose: bool,
    /// What the MPI library calls itself.
    pub mpi_library: Option<String>,
    /// When this process noticed a loss that it has outlived: the last one.
    pub lost_at: Option<Instant>,
    /// The rank that it has in the run.
    pub seat: Seat,
}

/// A job that has come to an end, with all its ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finished {
    /// How it ends.
    pub exit: Exit,
    /// Whether the report is whole: nothing of the run is to be computed again.
    pub is_reported: bool,
    /// Whether all that it has left was removed. Where a rank was lost meanwhile, some may be
    /// left, see [`remove_rest`].
    pub is_cleared: bool,
}

impl Finished {
    /// Without a whole report.
    pub fn short(exit: Exit) -> Self {
        Self { exit, is_reported: false, is_cleared: true }
    }
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
    /// The checkpoints.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The store of the checkpoints.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What an earlier start has kept of the results.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// It has kept results of other tests.
    #[error(
        "run {run} was started with other settings: the result that an earlier start kept for test \
         {test} is of another test. Restart with the settings of that run, name this one with \
         --run-id, or start from the beginning with --resume never"
    )]
    OtherTests {
        /// Name of the run.
        run: String,
        /// Number of the test, from 1.
        test: usize,
    },
    /// The job does not fit its hosts, or another holds what it needs: all ranks know it.
    #[error("{0}")]
    Refused(String),
    /// The solver stopped for a reason that is not in the matrix.
    #[error(transparent)]
    Solve(#[from] SolveError),
    /// Too much is lost of what carries checksums.
    #[error("{0}")]
    Abft(abft::Refusal),
    /// The report could not be written.
    #[error("cannot write the report: {0}")]
    Report(#[from] std::io::Error),
    /// The BLAS could not have what it needs.
    #[error(transparent)]
    Blas(#[from] NoWorkSpace),
    /// Threads could not be started.
    #[error("cannot start {threads} threads a rank: {why}; lower --threads or raise ulimit -u")]
    Threads {
        /// Threads a rank.
        threads: usize,
        /// What the system said.
        why: std::io::Error,
    },
}

impl From<AbftError> for JobError {
    fn from(error: AbftError) -> Self {
        match error {
            AbftError::Solve(error) => Self::Solve(error),
            AbftError::Refused(refusal) => Self::Abft(refusal),
        }
    }
}

impl JobError {
    /// What the supervisor is told of a refusal that is not for a person to resolve.
    fn sign(&self) -> Option<&'static str> {
        let refusal = match self {
            Self::Abft(abft::Refusal::Scattered { .. }) => return None,
            Self::Abft(_) => return Some(heartbeat::REFUSED),
            Self::Checkpoint(CheckpointError::Refused(refusal)) => refusal,
            _ => return None,
        };
        match refusal {
            // The supervisor asks for what it knows to have been there.
            Refusal::Unrecoverable { .. }
            | Refusal::Damaged { .. }
            | Refusal::RottenImages { .. }
            | Refusal::OfNoUse { .. }
            | Refusal::NothingFound => Some(heartbeat::REFUSED),
            Refusal::Changed { .. } => Some(heartbeat::CHANGED),
            _ => None,
        }
    }

    /// Whether this rank alone knows of it, so that it must end the others.
    /// Refusals are agreed upon: all ranks have them.
    pub fn is_fatal(&self) -> bool {
        let is_agreed = matches!(
            self,
            Self::Checkpoint(CheckpointError::Refused(_))
                | Self::Abft(_)
                | Self::OtherTests { .. }
                | Self::Refused(_)
        );
        !is_agreed
    }

    /// How a job ends whose ranks all know of it.
    fn exit(&self) -> Exit {
        let is_for_all_ranks = matches!(
            self,
            Self::Checkpoint(CheckpointError::Refused(Refusal::NotBorne { .. }))
                | Self::Abft(abft::Refusal::Scattered { .. })
        );
        if is_for_all_ranks { Exit::Interrupted } else { Exit::BadInput }
    }

    /// Whether another rank is gone, or has turned away because one is.
    pub fn is_loss(&self) -> bool {
        let why = match self {
            Self::Comm(why)
            | Self::Checkpoint(CheckpointError::Comm(why))
            | Self::Ledger(LedgerError::Comm(why))
            | Self::Solve(SolveError::Comm(why)) => why,
            _ => return false,
        };
        matches!(why, CommError::Transport { .. })
    }

    /// Whether the same command fails again until something else is changed: a
    /// limit, a setting.
    pub fn is_permanent(&self, settings: &Settings) -> bool {
        match self {
            Self::Store(why) | Self::Ledger(LedgerError::Store(why)) => why.is_permanent(),
            Self::Checkpoint(CheckpointError::Memory { source, .. }) => {
                let why = source.get_ref().and_then(|why| why.downcast_ref::<StoreError>());
                why.is_some_and(StoreError::is_permanent)
            }
            Self::Checkpoint(why) => !matches!(why, CheckpointError::Comm(_)),
            // Images are from before it.
            Self::Solve(SolveError::Wrong { .. }) => settings.levels.0.is_empty(),
            Self::Comm(_) | Self::Ledger(_) | Self::Solve(_) | Self::Report(_) => false,
            Self::Spec(_)
            | Self::Abft(_)
            | Self::OtherTests { .. }
            | Self::Refused(_)
            | Self::Blas(_)
            | Self::Threads { .. } => true,
        }
    }
}

/// Runs all tests. Collective; every rank gets the same answer.
///
/// # Errors
/// A rank is lost. What is wrong with the job itself is said by rank 0, and is
/// in the answer.
pub fn run<C: Comm>(
    world: &C,
    spec: &RunSpec,
    settings: &Settings,
    options: &Options,
) -> Result<Finished, JobError> {
    let first = world.rank() == 0;
    let mut progress = if first { Progress::stderr(options.progress) } else { Progress::off() };
    let start_unix_seconds = now_unix_seconds();
    progress.phase(&setup::starting_line(world.size(), spec));
    let store = settings.store.parse::<StoreKind>()?.open();
    let setup = Setup::new(world, spec, settings, options, &*store)?;
    if let Some(why) = &setup.refusal {
        progress.clear();
        if first {
            output::say(format_args!("error: {why}"));
        }
        return Ok(Finished::short(Exit::BadInput));
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
        match Reports::open(spec, facts, options, setup.notes(settings)) {
            Ok(opened) => reports = Some(opened),
            Err(why) => output::say(format_args!("error: {why}")),
        }
    }
    let mut opened = [u8::from(reports.is_some())];
    collect::broadcast(world, &mut opened, 0)?;
    if opened[0] == 0 {
        return Ok(Finished::short(Exit::BadInput));
    }
    if settings.is_on() {
        interrupt::listen(spec, settings, first);
    }
    let mut tests = Tests {
        spec,
        settings,
        setup: &setup,
        lost_at: options.lost_at,
        seat: options.seat.clone(),
        progress,
        reports,
        ledger: None,
        found: None,
        unsettled: Results::new(),
        settled_at: Instant::now(),
    };
    let ran = match tests.run(world) {
        Err(why) if !why.is_fatal() => {
            if let Some(sign) = why.sign() {
                heartbeat::step(sign);
            }
            tests.progress.clear();
            if first {
                output::say(format_args!("error: {why}"));
            }
            return Ok(Finished::short(why.exit()));
        }
        done => done?,
    };
    let Tests { mut progress, reports, .. } = tests;
    progress.clear();
    // What the last test came to stays until the report is whole.
    let closed = match (reports, &ran) {
        (Some(reports), Ran { is_reported: true, .. }) => reports.close(),
        _ => None,
    };
    let mut answer = [u8::from(closed.is_some()), closed.unwrap_or(Exit::BadInput).code()];
    collect::broadcast(world, &mut answer, 0)?;
    let [is_closed, code] = answer;
    let exit = Exit::from_code(code);
    if is_closed == 0 {
        return Ok(Finished::short(exit));
    }
    // Before the first segment goes: a start that finds none would compute all
    // of it again.
    heartbeat::reported(exit);
    let is_cleared = match clear(world, spec, settings, &setup, ran) {
        Err(why) if settings.on_loss.is_outlived() && why.is_loss() => false,
        done => done.map(|()| true)?,
    };
    Ok(Finished { exit, is_reported: true, is_cleared })
}

/// Removes what is left of a run whose report is whole. Collective.
fn clear<C: Comm>(
    world: &C,
    spec: &RunSpec,
    settings: &Settings,
    setup: &Setup,
    ran: Ran<C>,
) -> Result<(), JobError> {
    if let Some(done) = ran.last {
        // A disk that keeps images is asked once more, below.
        let _stay = done.clear()?;
    }
    if settings.is_on() {
        world.barrier()?;
        // None of what the run still needs is left; what is out of reach is to be
        // known when it comes back.
        if setup.is_first_on_host && !ran.left.is_empty() {
            protect::ended::remember(setup.store, &settings.run_id, world.rank(), &ran.left)?;
        }
        remove_images(world, settings, setup, |_| true)?;
        protect::sweep(setup.store, &settings.run_id, spec.tests().len())?;
        settings.close_levels();
        interrupt::keep(false);
        // All have let go of theirs.
        setup::warn(&protect::tidy(setup.store)?);
    }
    Ok(())
}

/// Removes the images of tests that `is_meant`, before anything goes that says that they are of no
/// use. Collective.
fn remove_images<C: Comm>(
    world: &C,
    settings: &Settings,
    setup: &Setup,
    is_meant: impl Fn(usize) -> bool,
) -> Result<(), CommError> {
    if settings.levels.0.is_empty() {
        return Ok(());
    }
    if setup.is_first_on_host {
        setup::warn(&settings.remove_images(is_meant));
    }
    world.barrier()
}

/// Removes from this process's host what is left of a run whose report is whole, where the
/// loss of a rank has kept the job from removing it.
///
/// # Errors
/// When the store refuses.
pub fn remove_rest(spec: &RunSpec, settings: &Settings) -> Result<(), JobError> {
    let store = settings.store.parse::<StoreKind>()?.open();
    setup::warn(&settings.remove_images(|_| true));
    protect::sweep(&*store, &settings.run_id, spec.tests().len())?;
    interrupt::keep(false);
    Ok(())
}

/// The results of the tests of a job.
struct Ran<'a, C: Comm> {
    /// Whether all are reported; a report may refuse to be written.
    is_reported: bool,
    /// The starts that segments of the run may name which were out of reach.
    left: Vec<StartId>,
    /// The result of the last one, still in shared memory, if it was protected
    /// and this rank had a part in it.
    last: Option<Done<'a, C>>,
}

impl<C: Comm> Ran<'_, C> {
    fn unreported() -> Self {
        Self { is_reported: false, left: Vec::new(), last: None }
    }
}

/// The tests of a job.
struct Tests<'a> {
    spec: &'a RunSpec,
    settings: &'a Settings,
    setup: &'a Setup<'a>,
    /// When a loss was noticed that this process has outlived.
    lost_at: Option<Instant>,
    /// The rank that this process has in the run.
    seat: Seat,
    progress: Progress,
    reports: Option<Reports>,
    /// Results of the tests that are done, where there are several and they are
    /// protected.
    ledger: Option<Ledger<'a>>,
    /// The test of which an earlier start has left data, on any rank.
    found: Option<usize>,
    /// On rank 0: results that are reported and not in the ledger yet.
    unsettled: Results,
    /// When the ledger got the last ones.
    settled_at: Instant,
}

/// The ranks of a grid, kept from one test to the next of the same grid.
struct Ranks<C: Comm> {
    size: usize,
    /// Nothing on ranks beyond the grid, which stay idle.
    comm: Option<C>,
    grid: Option<(Pmap, Grid<C>)>,
}

impl<C: Comm> Ranks<C> {
    /// The first `size` of the ranks of `world`. Collective.
    fn new(world: &C, size: usize) -> Result<Self, CommError> {
        let color = (world.rank() < size).then_some(0);
        Ok(Self { size, comm: world.split(color, world.rank() as u32)?, grid: None })
    }

    /// Their grid for a test.
    ///
    /// # Panics
    /// On a rank beyond it.
    fn grid(&mut self, test: &TestSpec) -> Result<&Grid<C>, CommError> {
        let &TestSpec { p, q, pmap, .. } = test;
        let is_same = |(order, grid): &(Pmap, Grid<C>)| (*order, grid.p, grid.q) == (pmap, p, q);
        if !self.grid.as_ref().is_some_and(is_same) {
            let comm = self.comm.as_ref().expect("a rank of the grid");
            self.grid = Some((pmap, Grid::new(comm, p, q, pmap)?.expect("a place for each")));
        }
        Ok(&self.grid.as_ref().expect("made just now").1)
    }
}

/// What rank 0 has all ranks do behind a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// It could not be reported.
    Stop,
    /// The next test.
    GoOn,
    /// Results go to the ledger first.
    Settle,
}

impl<'a> Tests<'a> {
    /// Runs the tests one by one, from the one that an earlier start has left
    /// unfinished or not reported. The same on all ranks.
    fn run<C: Comm>(&mut self, world: &C) -> Result<Ran<'a, C>, JobError> {
        let tests = self.spec.tests();
        self.remove_left_over(world)?;
        self.remove_later_tests(world)?;
        self.open_ledger(world)?;
        let first = self.first_test(world)?;
        let nothing_later = self.has_no_later_images(world, first)?;
        let mut told = [u8::from(self.tell(first))];
        collect::broadcast(world, &mut told, 0)?;
        if told[0] == 0 {
            return Ok(Ran::unreported());
        }
        let mut ranks: Option<Ranks<C>> = None;
        let mut announced = Instant::now();
        let (mut last, mut left) = (None, Vec::new());
        for (index, test) in tests.iter().enumerate().skip(first) {
            // One that is not protected has no checksums.
            let is_protected = self.is_protected(index, self.settings.resume);
            let size = if is_protected { test.ranks() } else { test.p * test.q };
            if ranks.as_ref().is_none_or(|ranks| ranks.size != size) {
                ranks = Some(Ranks::new(world, size)?);
            }
            let (mut is_written, mut done) = (true, None);
            if let Some(ranks) = ranks.as_mut().filter(|ranks| ranks.comm.is_some()) {
                // An earlier start has left something of the first test alone, or
                // of those before it.
                let is_behind = index > first || self.done() > 0;
                let resume = match self.settings.resume {
                    Resume::Require if is_behind => Resume::Auto,
                    resume => resume,
                };
                let nothing_hidden = index > first && nothing_later;
                let turn = Turn { index, tests: tests.len(), resume, nothing_hidden };
                let reported = self.run_one(ranks, test, turn, &mut announced)?;
                (is_written, done) = (reported.is_written, reported.done);
                self.unsettled.insert(index, reported.result);
            } else {
                // Others may need the processor of a rank that has nothing to do.
                collect::await_broadcast(world, 0)?;
            }
            match self.verdict(world, index, is_written, done.is_some())? {
                // A result that cannot be kept is no result: all stop, and the next
                // start reports it again.
                Verdict::Stop => return Ok(Ran::unreported()),
                Verdict::GoOn => {}
                Verdict::Settle => {
                    left.extend(self.settle(world, done.as_ref().map_or(&[], Done::left))?);
                }
            }
            match done {
                // A disk that keeps images is asked once more at the end of the run.
                Some(done) if index + 1 < tests.len() => _ = done.clear()?,
                done => last = done,
            }
        }
        left.extend(self.ledger.iter().flat_map(Ledger::left));
        Ok(Ran { is_reported: true, left, last })
    }

    /// Removes what is known to be left over of runs that have ended.
    fn remove_left_over<C: Comm>(&self, world: &C) -> Result<(), JobError> {
        if !self.settings.is_on() {
            return Ok(());
        }
        let (run, setup) = (&self.settings.run_id, self.setup);
        let tests = self.spec.tests();
        let header =
            |test: usize| tests.get(test).map(|test| protect::header_layout(run, test.ranks()));
        let is_keeper = setup.is_first_on_host;
        let removed = protect::ended::remove_left_over(world, setup.store, run, is_keeper, header)?;
        if removed > 0 && world.rank() == 0 {
            eprintln!(
                "{removed} segment(s) of an earlier run {run} are removed: they were out of reach \
                 when it ended"
            );
        }
        Ok(())
    }

    /// Where all begins anew: removes what earlier starts have left of tests behind the first one.
    /// A start finds data of a test only where all before it are done, and what is left of the
    /// first test goes when that is opened. Collective.
    fn remove_later_tests<C: Comm>(&self, world: &C) -> Result<(), JobError> {
        if !self.settings.is_on() || self.settings.resume != Resume::Never {
            return Ok(());
        }
        self.remove_tests(world, |test| test > 0)
    }

    /// Removes what earlier starts have left of tests that `is_meant`, images first. Collective:
    /// nobody makes any before.
    fn remove_tests<C: Comm>(
        &self,
        world: &C,
        is_meant: impl Fn(usize) -> bool,
    ) -> Result<(), JobError> {
        remove_images(world, self.settings, self.setup, &is_meant)?;
        if self.setup.is_first_on_host {
            protect::sweep_tests(self.setup.store, &self.settings.run_id, is_meant)?;
        }
        Ok(world.barrier()?)
    }

    /// Finds the results that earlier starts have kept, which must be of the same
    /// tests.
    fn open_ledger<C: Comm>(&mut self, world: &C) -> Result<(), JobError> {
        let tests = self.spec.tests();
        // The result of the only test stays in its own segments.
        if !self.settings.is_on() || tests.len() < 2 {
            return Ok(());
        }
        let run = &self.settings.run_id;
        let is_afresh = self.settings.resume == Resume::Never;
        let is_keeper = self.setup.is_first_on_host;
        let ledger = Ledger::open(world, self.setup.store, run, is_keeper, is_afresh)?;
        let is_of_another = |(test, record): &(usize, Option<TestRecord>)| {
            let spec = record.as_ref().map(|record| &record.spec);
            spec.is_none_or(|spec| tests.get(*test) != Some(spec))
        };
        if let Some((test, _)) = ledger.results().find(is_of_another) {
            return Err(JobError::OtherTests { run: run.clone(), test: test + 1 });
        }
        self.ledger = Some(ledger);
        Ok(())
    }

    /// The test to begin with: behind those whose results are kept, and not before
    /// the one of which an earlier start has left data.
    fn first_test<C: Comm>(&mut self, world: &C) -> Result<usize, JobError> {
        if !self.settings.is_on() || self.settings.resume == Resume::Never {
            return Ok(0);
        }
        let found = protect::found_test(self.setup.store, &self.settings.run_id)?;
        // One more than its number: 0 where nothing is found.
        let mut found = [found.map_or(0, |test| 1 + test as u64)];
        collect::all_reduce(world, &mut found, u64::max)?;
        self.found = (found[0] as usize).checked_sub(1);
        let done = self.done();
        if done > 0 {
            // A death may have come before all of it was removed.
            self.remove_tests(world, |test| test < done)?;
        }
        Ok(done.max(self.found.unwrap_or(0)))
    }

    /// Whether no earlier start has left images of a test behind `first`: then a level that fails
    /// later hides none. Where a level cannot tell, as it fails now, the ledger may know from an
    /// earlier start: images of a later test come only when the ledger has a result more.
    /// Collective.
    fn has_no_later_images<C: Comm>(&mut self, world: &C, first: usize) -> Result<bool, JobError> {
        let (settings, is_looking) = (self.settings, self.setup.is_first_on_host);
        let Some(ledger) = self.ledger.as_mut().filter(|_| !settings.levels.0.is_empty()) else {
            return Ok(true);
        };
        let seen = if is_looking { settings.has_images(|test| test > first) } else { Some(false) };
        let mut any = [u8::from(seen == Some(true)), u8::from(seen.is_none())];
        collect::all_reduce(world, &mut any, u8::max)?;
        match any {
            [0, 0] => {
                ledger.note_no_images_behind(first)?;
                Ok(true)
            }
            [0, _] => Ok(ledger.has_no_images_behind(first)),
            _ => Ok(false),
        }
    }

    /// Tests whose results are kept, from the first on.
    fn done(&self) -> usize {
        self.ledger.as_ref().map_or(0, Ledger::done)
    }

    /// Reports the tests before `first`, which earlier starts have done; whether
    /// that was possible.
    fn tell(&mut self, first: usize) -> bool {
        let (1.., Some(reports)) = (first, self.reports.as_mut()) else { return true };
        let results = self.ledger.iter().flat_map(Ledger::results);
        let before = results.filter(|(test, _)| *test < first);
        let known: Vec<TestRecord> = before.filter_map(|(_, record)| record).collect();
        let lost = first.saturating_sub(known.len());
        let also = match lost {
            0 => String::new(),
            _ => format!("; the results of {lost} of them are lost with the memory of their nodes"),
        };
        let note = format!("tests 1 to {first} were done by an earlier start{also}");
        let told = reports.text.note(&note).map_err(ReportError::from);
        let told = told.and_then(|()| known.iter().try_for_each(|test| reports.test(test, None)));
        if let Err(why) = &told {
            output::say(format_args!("error: {why}"));
        }
        told.is_ok()
    }

    /// Whether a test runs under checkpoints: not where none is due by far, for
    /// hundreds of them may follow; but where an earlier start did, or the user wants
    /// to go on from it.
    fn is_protected(&self, index: usize, resume: Resume) -> bool {
        match self.setup.outlooks[index] {
            None => false,
            Some(Outlook::TooShort) => resume == Resume::Require || self.found == Some(index),
            Some(Outlook::Due | Outlook::NoneDue) => true,
        }
    }

    /// What all do behind test `index`, as rank 0 says. Collective.
    fn verdict<C: Comm>(
        &self,
        world: &C,
        index: usize,
        is_written: bool,
        is_protected: bool,
    ) -> Result<Verdict, CommError> {
        const ALL: [Verdict; 3] = [Verdict::Stop, Verdict::GoOn, Verdict::Settle];
        let next = index + 1;
        let is_last = next == self.setup.outlooks.len();
        // A start finds data of the next test only where all before it are settled.
        let is_settled_now = is_protected
            || self.ledger.is_some()
                && (is_last
                    || self.is_protected(next, Resume::Auto)
                    || self.settled_at.elapsed() >= SETTLE_INTERVAL);
        let own = match (is_written, is_settled_now) {
            (false, _) => Verdict::Stop,
            (true, false) => Verdict::GoOn,
            (true, true) => Verdict::Settle,
        };
        let mut said = [own as u8];
        collect::broadcast(world, &mut said, 0)?;
        Ok(ALL.into_iter().find(|&verdict| verdict as u8 == said[0]).expect("said by rank 0"))
    }

    /// Keeps the results that rank 0 has until the whole report is written, and
    /// which starts segments of them may name that are out of reach: all ranks get
    /// these. Collective.
    fn settle<C: Comm>(&mut self, world: &C, missed: &[StartId]) -> Result<Vec<StartId>, JobError> {
        let results = std::mem::take(&mut self.unsettled);
        self.settled_at = Instant::now();
        let Some(ledger) = &mut self.ledger else {
            let mut bytes = serde_json::to_vec(missed).expect("plain data");
            collect::broadcast_bytes(world, &mut bytes, 0)?;
            return Ok(serde_json::from_slice(&bytes).expect("written just now"));
        };
        if let Err(why) = ledger.add(world, results, missed)? {
            // The run itself goes on; a later start may have to do without them.
            output::say(format_args!(
                "warning: results so far are not kept for later starts: {why}"
            ));
        }
        // The ledger has them.
        Ok(Vec::new())
    }

    /// Runs one test on its ranks, and reports it.
    fn run_one<C: Comm>(
        &mut self,
        ranks: &mut Ranks<C>,
        test: &TestSpec,
        turn: Turn,
        announced: &mut Instant,
    ) -> Result<Reported<'a, C>, JobError> {
        let setup = self.setup;
        let is_protected = self.is_protected(turn.index, turn.resume);
        let (team, target) = (&setup.team, setup.target.clone());
        let Turn { index, tests, resume, nothing_hidden } = turn;
        let mut watcher = Watcher {
            progress: &mut self.progress,
            test,
            tests,
            index,
            announced,
            target: &target,
            samples: Samples::default(),
        };
        if !is_protected {
            let mut record = run_plain(ranks.grid(test)?, team, test, &mut watcher)?;
            if let Some(record) = &mut record {
                record.memory = protect::memory_split(test, self.settings, None);
                record.progress = watcher.samples.list();
            }
            let result = record.as_ref().map(protect::result::write_plain).unwrap_or_default();
            let is_written = self.report(record.as_ref(), None);
            return Ok(Reported { is_written, result, done: None });
        }
        let ranks = ranks.comm.as_ref().expect("a rank of the grid");
        let settings = Settings { resume, ..self.settings.clone() };
        let surroundings = Surroundings {
            memory: TestSegments::new(setup.store, &settings.run_id, index, team)
                .under(setup.lock.clone()),
            nothing_hidden,
            host: ranks.host(),
            hook: target.clone(),
            guessed_rate: outlook::guessed_rate(test, setup.self_test.gflops_per_core),
            lost_at: self.lost_at,
            seat: self.seat.clone(),
            clock: Arc::new(Reading::now),
        };
        heartbeat::phase("open", 0, test.n);
        interrupt::keep(true);
        watcher.say("looking for data of an earlier start, and reserving memory");
        let (done, is_found) = match settings.method {
            Method::Abft => run_with_checksums(ranks, test, &settings, surroundings, &mut watcher)?,
            _ => run_with_checkpoints(ranks, test, &settings, surroundings, &mut watcher)?,
        };
        let number = index + 1;
        let words = "was done by an earlier start, which ended before it removed the result";
        let note = is_found.then(|| format!("test {number} {words}"));
        // The same bytes, whichever start has computed them.
        let record = protect::result::read(done.result());
        let reports = (ranks.rank() == 0).then_some(&record);
        let is_written = self.report(reports, note.as_deref());
        Ok(Reported { is_written, result: done.result().to_vec(), done: Some(done) })
    }

    /// Reports a record, after a note; whether that was possible.
    fn report(&mut self, record: Option<&TestRecord>, note: Option<&str>) -> bool {
        if let (Some(record), Some(reports)) = (record, self.reports.as_mut()) {
            self.progress.clear();
            if let Err(why) = reports.test(record, note) {
                output::say(format_args!("error: {why}"));
                return false;
            }
        }
        true
    }
}

/// A test that has been run.
struct Reported<'a, C: Comm> {
    /// Whether this rank could report it, if it was to.
    is_written: bool,
    /// What it came to, on rank 0, as [`protect::result::read`] reads it.
    result: Vec<u8>,
    /// The same in shared memory, if it was protected.
    done: Option<Done<'a, C>>,
}

/// The position of a test in its run.
#[derive(Clone, Copy)]
struct Turn {
    /// From 0.
    index: usize,
    /// Of so many.
    tests: usize,
    /// What to do with what an earlier start has left of it.
    resume: Resume,
    /// Whether no earlier start has left images of it.
    nothing_hidden: bool,
}

/// Runs a test under checkpoints, up to where its result is in shared memory; whether an
/// earlier start had left it there.
fn run_with_checkpoints<'a, C: Comm>(
    ranks: &C,
    test: &TestSpec,
    settings: &Settings,
    surroundings: Surroundings<'a>,
    watcher: &mut Watcher,
) -> Result<(Done<'a, C>, bool), JobError> {
    let team = surroundings.memory.team();
    match protect::open(ranks, test, settings, surroundings)? {
        Opened::Ready { guard, found, resumed } => {
            warn_of_levels(ranks, settings, &found, watcher);
            for line in opening_lines(&guard, &found, resumed) {
                watcher.say(&line);
            }
            Ok((run_protected(*guard, team, test, resumed, watcher)?, false))
        }
        Opened::Done(done) => Ok((done, true)),
    }
}

/// The same of a test whose elimination carries checksums.
fn run_with_checksums<'a, C: Comm>(
    ranks: &C,
    test: &TestSpec,
    settings: &Settings,
    surroundings: Surroundings<'a>,
    watcher: &mut Watcher,
) -> Result<(Done<'a, C>, bool), JobError> {
    let team = surroundings.memory.team();
    match protect::abft::open(ranks, test, settings, surroundings)? {
        protect::abft::Opened::Ready(carried, found) => {
            warn_of_levels(ranks, settings, &found, watcher);
            if let Some(load) = &found.load {
                let level = settings.levels.0[load.level].name();
                let lines = image_lines(load, &level, found.epoch);
                lines.iter().for_each(|line| watcher.say(line));
            }
            watcher.say(&placement_line(test, &found));
            Ok((carried.run(team, watcher, |watcher| watcher.samples.list())?, false))
        }
        protect::abft::Opened::Done(done) => Ok((done, true)),
    }
}

/// Says on rank 0 which levels a start has given up.
fn warn_of_levels<C: Comm>(ranks: &C, settings: &Settings, found: &Found, watcher: &mut Watcher) {
    if ranks.rank() != 0 {
        return;
    }
    watcher.progress.clear();
    for (level, given_up) in settings.levels.0.iter().zip(&found.given_up) {
        if let Some(why) = given_up {
            let name = level.name();
            output::say(format_args!(
                "warning: no images of level {name} are written or removed in this start: {why}"
            ));
        }
    }
}

/// That a start goes on from the images of a level, in words.
fn image_lines(load: &Load, level: &str, epoch: u64) -> [String; 2] {
    [
        format!("memory is not enough to go on: {}", load.why),
        format!("taking the images of checkpoint {epoch} from {level}"),
    ]
}

/// What the loss of nodes would mean to a test with checksums.
fn placement_line(test: &TestSpec, found: &Found) -> String {
    let many = if test.checksums == 1 { "rank" } else { "ranks" };
    let bears = format!("each process row bears the loss of {} {many}", test.checksums);
    if found.single_domain {
        format!("{bears}; all are on one host: protected against the death of processes only")
    } else if found.shared_domains {
        format!("{bears}; a failure domain holds more of some row: its loss cannot be borne")
    } else {
        format!("{bears}, so the run bears the loss of any {} failure domain(s)", test.checksums)
    }
}

/// Runs a test under checkpoints, up to where its result is in shared memory.
fn run_protected<'a, C: Comm>(
    mut guard: Protected<'a, C>,
    team: &Team,
    test: &TestSpec,
    resumed: bool,
    watcher: &mut Watcher,
) -> Result<Done<'a, C>, JobError> {
    let grid = Grid::new(guard.comm(), test.p, test.q, test.pmap)?.expect("a place for each");
    let record = ptest::run(&grid, team, test, &mut guard, resumed, watcher)?;
    // It is known on rank 0 of the grid, whose result counts.
    let result = record.map(|record| guard.result(record, &watcher.samples.list()));
    Ok(guard.finish(&result.unwrap_or_default())?)
}

/// What a start has found, in words.
fn opening_lines<C: Comm>(guard: &Protected<C>, found: &Found, resumed: bool) -> Vec<String> {
    let mut lines = Vec::new();
    if found.unusable > 0 {
        lines.push(format!(
            "{} segment(s) or image(s) of earlier starts could not be used",
            found.unusable
        ));
    }
    if let (true, Some(restart)) = (resumed, guard.restart()) {
        if let (Some(load), Some(level)) = (&found.load, &restart.level) {
            lines.extend(image_lines(load, level, restart.epoch));
        }
        lines.push(format!(
            "resuming from checkpoint {} at column {}; ranks rebuilt: {:?}{}; recovery took \
             {:.2} s",
            restart.epoch,
            restart.column,
            restart.rebuilt_ranks,
            restart.damage_words(),
            restart.recover_seconds
        ));
    }
    if found.single_domain {
        lines.push(
            "all ranks are on one host: protected against the death of processes only".into(),
        );
    }
    lines
}

fn run_plain<C: Comm>(
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
    /// Whether a test could not be added to it, which is said once.
    is_json_behind: bool,
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
    fn open(
        spec: &RunSpec,
        facts: RunFacts,
        options: &Options,
        of_setup: Vec<String>,
    ) -> Result<Self, ReportError> {
        let mut notes = facts.environment.notes();
        let self_test = facts.dgemm_self_test.clone();
        if let Some(test) = &self_test {
            notes.push(format!("dgemm    : {:.1} Gflop/s a core", test.gflops_per_core));
            notes.extend(test.warnings.iter().map(|warning| format!("warning  : {warning}")));
        }
        notes.extend(of_setup);
        if options.verbose {
            let lines = TUNING.lines().into_iter().chain(skt_checkpoint::tuning::TUNING.lines());
            notes.extend(lines.map(|line| format!("tuning   : {line}")));
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
        Ok(Self { text, json, is_json_behind: false })
    }

    fn test(&mut self, record: &TestRecord, note: Option<&str>) -> Result<(), ReportError> {
        if let Some(note) = note {
            self.text.note(note)?;
        }
        self.text.test(record)?;
        // The report comes first; the document is written whole each time, the next
        // time with this test.
        if let Some(Err(why)) = self.json.as_mut().map(|json| json.test(record))
            && !std::mem::replace(&mut self.is_json_behind, true)
        {
            output::say(format_args!("warning: {why}; it is tried again with each test"));
        }
        Ok(())
    }

    /// Writes the summary; how the job ends, or nothing where the report cannot be
    /// written.
    fn close(mut self) -> Option<Exit> {
        let counts = match self.text.summary() {
            Ok(counts) => counts,
            Err(why) => {
                output::say(format_args!("error: cannot write the report: {why}"));
                return None;
            }
        };
        let exit = exit_for(counts);
        match self.json.map_or(Ok(()), JsonReport::finish) {
            Err(why) => {
                output::say(format_args!("error: {why}; the report itself is whole"));
                Some(if exit == Exit::Passed { Exit::BadInput } else { exit })
            }
            Ok(()) => Some(exit),
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

/// Orders below this take next to no time; hundreds of them may follow.
const SMALL_N: usize = 2000;
/// Between announcements of such tests.
const SMALL_INTERVAL: Duration = Duration::from_secs(1);

/// Between additions to the ledger of results of tests that are not protected: a
/// loss costs that much of them, and an addition less than a thousandth of it.
const SETTLE_INTERVAL: Duration = Duration::from_secs(1);

/// Shows a test's progress.
struct Watcher<'a> {
    progress: &'a mut Progress,
    test: &'a TestSpec,
    tests: usize,
    index: usize,
    announced: &'a mut Instant,
    /// Faults to inject into this rank.
    target: &'a Target,
    /// For the report.
    samples: Samples,
}

impl Watcher<'_> {
    fn say(&mut self, line: &str) {
        if self.test.n >= SMALL_N {
            self.progress.phase(&format!("N={}: {line}", self.test.n));
        }
    }
}

impl Observer for Watcher<'_> {
    fn phase(&mut self, phase: Phase) {
        let n = self.test.n;
        heartbeat::phase(phase.name(), if phase.is_behind_columns() { n } else { 0 }, n);
        if phase == Phase::BackSubstitute {
            self.target.back();
        }
        if n < SMALL_N && self.announced.elapsed() < SMALL_INTERVAL {
            return;
        }
        *self.announced = Instant::now();
        let line = match phase {
            Phase::Generate { total_bytes } => generating_line(n, total_bytes, self.test.ranks()),
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
        heartbeat::columns(done, self.test.n);
        self.target.columns(done);
        self.samples.push(elapsed_seconds, done);
        self.progress.columns(done, self.test.n, elapsed_seconds);
    }

    fn flips(&mut self, done: usize) -> bool {
        self.target.flips(done)
    }
}
