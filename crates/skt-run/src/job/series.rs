//! The tests of a job, one by one: which of them are done, where their results are kept, and what
//! is removed after a test.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use skt_host::exit::Exit;

use super::one_test::{run_plain, run_protected};
use super::print_warnings;
use super::setup::{Setup, check_memory_of};
use super::watcher::Watcher;
use crate::cores::TestCores;
use crate::error::{End, JobError, agreed};
use crate::events::{RunEvents, SavedQueue};
use crate::power::{JobPower, TestPower};
use crate::protect::ledger::{Ledger, Results};
use crate::protect::{
    self, Beginning, ClockReading, Done, LevelSettings, Outlook, RankInRun, RankProcess, Settings,
    TestContext, TestSegments,
};
use crate::record::cores::CoreShares;
use crate::record::{Counts, Samples, TestRecord};
use crate::{grace, heartbeat};
use skt_checkpoint::checkpoint::decide::Resume;
use skt_checkpoint::checkpoint::record::StartId;
use skt_comm::{Comm, CommError, collect};
use skt_config::{Pmap, RunSpec, TestSpec};
use skt_host::messages;
use skt_solver::grid::Grid;
use skt_store::store::CLEANERS;

/// The time between additions of unprotected tests to the ledger: a loss costs the results of at
/// most that time, and an addition takes less than a thousandth of it.
const KEEP_INTERVAL: Duration = Duration::from_secs(1);

/// The outcome of the tests of a job.
#[derive(Default)]
pub(super) struct Ran<'a> {
    /// Whether all tests are reported; a report may fail to be written.
    pub is_reported: bool,
    /// The starts that unreachable segments of the run may belong to.
    pub left: Vec<StartId>,
    /// The result of the last test, still in shared memory, if it was protected and this rank took
    /// part.
    pub last: Option<Done<'a>>,
}

/// The tests of a job.
pub(super) struct Tests<'a, 'e> {
    spec: &'a RunSpec,
    settings: &'a Settings,
    setup: &'a Setup<'a>,
    /// When this process noticed the latest loss that it has outlived.
    pub lost_at: Option<Instant>,
    pub rank_in_run: RankInRun,
    pub events: &'e mut dyn RunEvents,
    /// The reported tests by result.
    pub counts: Counts,
    /// What this rank reads of energy and power.
    pub power: JobPower,
    /// The results of finished tests, if there are several, and when the next protected one began.
    ledger: Option<Rc<RefCell<Ledger<'a>>>>,
    /// The test of which an earlier start has left data, on any rank.
    found: Option<usize>,
    /// The tests too short for checkpoints of which some rank sees images of an earlier start.
    with_images: BTreeSet<usize>,
    /// On rank 0: results that are reported and not in the ledger yet.
    unkept: Results,
    /// When results were last added to the ledger.
    kept_at: Instant,
}

/// The ranks of a grid, kept from one test to the next on the same grid.
pub(super) struct Ranks {
    pub size: usize,
    /// `None` on ranks beyond the grid, which stay idle.
    pub comm: Option<Comm>,
    grid: Option<(Pmap, Grid)>,
}

impl Ranks {
    /// The first `size` ranks of `world`. Collective.
    pub(crate) fn new(world: &Comm, size: usize) -> Result<Self, CommError> {
        let color = (world.rank() < size).then_some(0);
        Ok(Self { size, comm: world.split(color, world.rank() as u32)?, grid: None })
    }

    /// The grid of these ranks for a test.
    ///
    /// # Panics
    /// On a rank beyond the grid.
    fn grid(&mut self, test: &TestSpec) -> Result<&Grid, CommError> {
        let &TestSpec { p, q, pmap, .. } = test;
        let is_same = |(order, grid): &(Pmap, Grid)| (*order, grid.p, grid.q) == (pmap, p, q);
        if !self.grid.as_ref().is_some_and(is_same) {
            let comm = self.comm.as_ref().expect("a rank of the grid");
            self.grid = Some((pmap, Grid::new(comm, p, q, pmap)?.expect("a place for each")));
        }
        let (_, grid) = self.grid.as_mut().expect("made just now");
        grid.distribute_columns(test.columns());
        Ok(grid)
    }
}

/// What rank 0 has all ranks do after a test.
#[derive(Debug, Serialize, Deserialize)]
enum NextStep {
    /// Stop: the test could not be reported.
    Stop,
    /// Continue with the next test.
    Continue,
    /// Add results to the ledger first.
    Keep,
    /// The run ends here on all ranks, with this exit code.
    End(u8),
}

impl<'a, 'e> Tests<'a, 'e> {
    /// The tests of `spec`, before any of them runs, which are reported to `events`.
    pub(crate) fn new(
        spec: &'a RunSpec,
        settings: &'a Settings,
        setup: &'a Setup<'a>,
        events: &'e mut dyn RunEvents,
    ) -> Self {
        Self {
            spec,
            settings,
            setup,
            lost_at: None,
            rank_in_run: RankInRun::default(),
            events,
            counts: Counts::default(),
            power: JobPower::default(),
            ledger: None,
            found: None,
            with_images: BTreeSet::new(),
            unkept: Results::new(),
            kept_at: Instant::now(),
        }
    }

    /// Runs the tests one by one, from the first one that earlier starts have not finished and
    /// reported. The result is the same on all ranks.
    pub(crate) fn run(&mut self, world: &Comm) -> Result<Ran<'a>, JobError> {
        let tests = self.spec.tests();
        self.remove_left_over(world)?;
        if self.settings.is_on() && self.settings.resume == Resume::Never {
            // A start finds data of a test only where all tests before it are done; data of the
            // first test is removed when that test is opened.
            self.remove_tests(world, |test| test > 0)?;
        }
        self.open_ledger(world)?;
        let first = self.first_test(world)?;
        // Nothing of skt-hpl removes segments of a test before its result is in the ledger.
        let has_begun = |ledger: &Rc<RefCell<Ledger>>| ledger.borrow().begun(first).is_some();
        let has_lost = self.found != Some(first) && self.ledger.as_ref().is_some_and(has_begun);
        if world.rank() == 0 && has_lost {
            messages::print(format_args!(
                "warning: an earlier start of this run had begun test {}, and its segments are \
                 gone from all hosts: {CLEANERS}",
                first + 1
            ));
        }
        let nothing_later = self.find_images(world, first)?;
        self.check_groups()?;
        let is_reported = u8::from(self.report_done(first));
        if collect::broadcast_one(world, is_reported, 0)? == 0 {
            return Ok(Ran::default());
        }
        let mut ranks: Option<Ranks> = None;
        let mut announced = Instant::now();
        let (mut last, mut left) = (None, Vec::new());
        for (index, test) in tests.iter().enumerate().skip(first) {
            // An unprotected test has no checksums.
            let is_protected = self.is_protected(index, self.settings.resume);
            let size = if is_protected { test.ranks() } else { test.p * test.q };
            if ranks.as_ref().is_none_or(|ranks| ranks.size != size) {
                ranks = Some(Ranks::new(world, size)?);
            }
            let (mut is_written, mut done, mut ended) = (true, None, None);
            skt_comm::stand_by(ranks.as_ref().is_none_or(|ranks| ranks.comm.is_none()));
            if let Some(ranks) = ranks.as_mut().filter(|ranks| ranks.comm.is_some()) {
                // An earlier start has left data only of the first test, or of tests before it.
                let is_later = index > first || self.done() > 0;
                let resume = match self.settings.resume {
                    Resume::Require if is_later => Resume::Auto,
                    // It holds for one test, and for one attempt of the job.
                    Resume::At(_) if index > first || self.lost_at.is_some() => Resume::Auto,
                    resume => resume,
                };
                let nothing_hidden = index > first && nothing_later;
                let turn = Turn { index, tests: tests.len(), resume, nothing_hidden };
                match self.run_one(ranks, test, turn, &mut announced) {
                    Ok(reported) => {
                        (is_written, done) = (reported.is_written, reported.done);
                        let result = String::from_utf8_lossy(&reported.result).into_owned();
                        self.unkept.insert(index, result);
                    }
                    Err(why) if !why.is_local() => ended = Some(why),
                    Err(why) => return Err(why),
                }
            } else {
                // This rank has nothing to do, and other ranks may need its processor while it
                // waits.
                collect::await_broadcast(world, 0)?;
            }
            let end = ended.as_ref().and_then(|why: &JobError| match why.end {
                End::Agreed { exit, .. } => Some(exit),
                _ => None,
            });
            match self.verdict(world, index, is_written, end, done.is_some())? {
                // A result that cannot be written does not count: all ranks stop, and the next
                // start reports it again.
                NextStep::Stop => return Ok(Ran::default()),
                // Ranks outside of the grid learn here how the run ends.
                NextStep::End(code) => {
                    let end = End::Agreed { exit: Exit::from_code(code), sign: None };
                    let elsewhere = "the ranks of the grid have ended the run";
                    return Err(ended.unwrap_or_else(|| JobError::new(end, elsewhere)));
                }
                NextStep::Continue => {}
                NextStep::Keep => {
                    left.extend(self.keep_results(world, done.as_ref().map_or(&[], Done::left))?);
                }
            }
            match done {
                // Images that cannot be removed now are tried once more at the end of the run.
                Some(done) if index + 1 < tests.len() => _ = done.clear()?,
                done => last = done,
            }
        }
        left.extend(self.ledger.iter().flat_map(|ledger| ledger.borrow().left()));
        Ok(Ran { is_reported: true, left, last })
    }

    /// Removes the segments that are known to be left over from runs that have ended.
    fn remove_left_over(&self, world: &Comm) -> Result<(), JobError> {
        if !self.settings.is_on() {
            return Ok(());
        }
        let (run, setup) = (&self.settings.run_id, self.setup);
        let tests = self.spec.tests();
        let header =
            |part: usize| tests.get(part).map(|it| protect::test_header_layout(run, part, it));
        let is_keeper = setup.is_keeper;
        let removed = protect::ended::remove_left_over(world, setup.store, run, is_keeper, header)?;
        if removed > 0 && world.rank() == 0 {
            messages::print(format_args!(
                "{removed} segment(s) of an earlier run {run} are removed: they were out of reach \
                 when it ended"
            ));
        }
        Ok(())
    }

    /// Removes what earlier starts have left of tests that `is_meant` selects, images first.
    /// Collective: no rank creates any before all have returned.
    fn remove_tests(&self, world: &Comm, is_meant: impl Fn(usize) -> bool) -> Result<(), JobError> {
        remove_images(world, self.settings, self.setup, &is_meant)?;
        if self.setup.is_keeper {
            protect::sweep_tests(self.setup.store, &self.settings.run_id, is_meant)?;
        }
        Ok(world.barrier()?)
    }

    /// Opens the results that earlier starts have kept, which must be of the same tests.
    fn open_ledger(&mut self, world: &Comm) -> Result<(), JobError> {
        let tests = self.spec.tests();
        if !self.settings.is_on() {
            return Ok(());
        }
        let run = &self.settings.run_id;
        let is_afresh = self.settings.resume == Resume::Never;
        let is_keeper = self.setup.is_keeper;
        let mut ledger = Ledger::open(world, self.setup.store, run, is_keeper, is_afresh)?;
        let is_of_another = |(test, record): &(usize, Option<TestRecord>)| {
            let spec = record.as_ref().map(|record| &record.spec);
            spec.is_none_or(|spec| tests.get(*test) != Some(spec))
        };
        if let Some((test, _)) = ledger.results().find(is_of_another) {
            return Err(JobError::refused(format!(
                "run {run} was started with other settings: the result that an earlier start kept \
                 for test {} is of another test. Restart with the settings of that run, or start \
                 from the beginning with --resume never",
                test + 1
            )));
        }
        ledger.note_chosen(world, &self.setup.chosen)?;
        self.ledger = Some(Rc::new(RefCell::new(ledger)));
        Ok(())
    }

    /// Removes the ledger of a start that all ranks refuse, if this start has made it and it is
    /// empty.
    pub(crate) fn remove_void_ledger(&self) -> Result<(), JobError> {
        let Some(ledger) = &self.ledger else { return Ok(()) };
        Ok(ledger.borrow().remove_if_void()?)
    }

    /// The first test to run: after those whose results are kept, and not before the one of which
    /// an earlier start has left data.
    fn first_test(&mut self, world: &Comm) -> Result<usize, JobError> {
        if !self.settings.is_on() || self.settings.resume == Resume::Never {
            return Ok(0);
        }
        let is_keeper = self.setup.is_keeper;
        let found = is_keeper.then(|| protect::found_test(self.setup.store, &self.settings.run_id));
        let found = found.transpose()?.flatten();
        // The number of the test plus 1, or 0 if none is found.
        let mut found = [found.map_or(0, |test| 1 + test as u64)];
        collect::all_reduce(world, &mut found, u64::max)?;
        self.found = (found[0] as usize).checked_sub(1);
        let done = self.done();
        if done > 0 {
            // An earlier start may have died before it had removed all data of these tests.
            self.remove_tests(world, |test| test < done)?;
        }
        Ok(done.max(self.found.unwrap_or(0)))
    }

    /// Looks for images of earlier starts, and notes of which tests too short for checkpoints there
    /// are some, because a signal or the end of its time made a start save: such a test is
    /// protected again, so that it resumes from them.
    ///
    /// Refuses a first start that protects no test if a level cannot be read: a misspelt folder
    /// would only show in a longer run. A protected test checks its levels itself.
    ///
    /// Returns whether there are none of tests after `first`, so that a level failing later cannot
    /// hide any. If a level is unreadable now, the ledger's note from an earlier start with the
    /// same levels decides: images of a later test appear only after the ledger has one more
    /// result. Collective.
    fn find_images(&mut self, world: &Comm, first: usize) -> Result<bool, JobError> {
        let (settings, setup) = (self.settings, self.setup);
        let outlooks = &setup.held.outlooks;
        let (tests, resume) = (outlooks.len(), settings.resume);
        let is_wanted = tests > 1 || !self.is_protected(0, resume);
        let Some(ledger) =
            self.ledger.clone().filter(|_| is_wanted && !settings.levels.0.is_empty())
        else {
            return Ok(true);
        };
        let seen = setup.is_first_on_host.then(|| protect::images::tests_with_images(settings));
        let seen = seen.unwrap_or_default();
        // Of which tests there are images, and whether a level fails, which may have some.
        let mut any = vec![0u8; tests + 1];
        seen.iter().flatten().flatten().for_each(|&test| any[test.min(tests - 1)] = 1);
        any[tests] = u8::from(seen.iter().any(Result::is_err));
        collect::all_reduce(world, &mut any, u8::max)?;
        let is_short = |test: &usize| outlooks[*test] == Some(Outlook::TooShort);
        let has_images = |test: &usize| any[*test] > 0 && resume != Resume::Never;
        self.with_images = (0..tests).filter(is_short).filter(has_images).collect();
        let mut ledger = ledger.borrow_mut();
        if ledger.is_new() && !(0..tests).any(|test| self.is_protected(test, resume)) {
            agreed(world, seen.into_iter().try_for_each(|level| level.map(|_| ())))?;
        }
        if tests < 2 {
            return Ok(true);
        }
        let mut levels: Vec<String> = settings.levels.0.iter().map(LevelSettings::name).collect();
        levels.sort_unstable();
        let levels = levels.join(",");
        let has_later = (first + 1..tests).any(|test| any[test] > 0);
        if !has_later && any[tests] > 0 {
            return Ok(ledger.has_no_images_after(first, &levels));
        }
        ledger.note_no_images_after((!has_later).then_some(first), &levels)?;
        Ok(!has_later)
    }

    /// Refuses tests too short for checkpoints on hosts that cannot have their groups, as only a
    /// longer test would show that. A protected test forms its groups when it is opened. The same
    /// on all ranks.
    fn check_groups(&self) -> Result<(), JobError> {
        let is_short = |index: usize| {
            self.setup.held.outlooks[index] == Some(Outlook::TooShort)
                && !self.is_protected(index, self.settings.resume)
        };
        let tests = self.spec.tests();
        let short = tests.iter().enumerate().filter(|(index, _)| is_short(*index));
        let allowed = self.allows_shared_domains();
        let mut why = short.filter_map(|(_, test)| {
            let hosts = self.setup.places().hosts_of(test.ranks());
            protect::form_groups(self.settings, hosts, allowed).err()
        });
        why.next().map_or(Ok(()), |why| Err(JobError::refused(why)))
    }

    /// Whether two ranks of a group may be in one failure domain: if the user allows it, or in a
    /// run that an earlier start had begun, as nodes may be lost since then.
    fn allows_shared_domains(&self) -> bool {
        let has_begun = |ledger: &Rc<RefCell<Ledger>>| !ledger.borrow().is_new();
        self.settings.allow_shared_domains || self.ledger.as_ref().is_some_and(has_begun)
    }

    /// The number of tests whose results are kept, from the first on.
    fn done(&self) -> usize {
        self.ledger.as_ref().map_or(0, |ledger| ledger.borrow().done())
    }

    /// Reports the tests before `first`, which earlier starts have done. Returns whether that
    /// succeeded.
    fn report_done(&mut self, first: usize) -> bool {
        if first == 0 {
            return true;
        }
        let known: Vec<TestRecord> = self.ledger.as_ref().map_or(Vec::new(), |ledger| {
            let ledger = ledger.borrow();
            let before = ledger.results().filter(|(test, _)| *test < first);
            before.filter_map(|(_, record)| record).collect()
        });
        let lost = first.saturating_sub(known.len());
        let also = match lost {
            0 => String::new(),
            _ => format!("; the results of {lost} of them are lost with the memory of their nodes"),
        };
        let note = format!("tests 1 to {first} were done by an earlier start{also}");
        let noted = self.events.note(&note);
        is_written(noted.and_then(|()| known.iter().try_for_each(|test| self.test_ends(test))))
    }

    /// Whether a test runs under checkpoints. A test that is much shorter than the first interval
    /// does not, as hundreds of them may follow, unless an earlier start protected it or the user
    /// requires to resume it.
    pub(crate) fn is_protected(&self, index: usize, resume: Resume) -> bool {
        match self.setup.held.outlooks[index] {
            None => false,
            Some(Outlook::TooShort) => {
                let has_data = self.found == Some(index) || self.with_images.contains(&index);
                matches!(resume, Resume::Require | Resume::At(_)) || has_data
            }
            Some(Outlook::Due | Outlook::NoneDue) => true,
        }
    }

    /// What all ranks do after test `index`, as rank 0 decides. Collective.
    fn verdict(
        &self,
        world: &Comm,
        index: usize,
        is_written: bool,
        end: Option<Exit>,
        is_protected: bool,
    ) -> Result<NextStep, CommError> {
        let next = index + 1;
        let is_last = next == self.setup.held.outlooks.len();
        // A start finds data of the next test only if the results of all tests before it are kept.
        let is_kept_now = is_protected
            || self.ledger.is_some()
                && (is_last
                    || self.is_protected(next, Resume::Auto)
                    || self.kept_at.elapsed() >= KEEP_INTERVAL);
        let own = match (is_written, is_kept_now) {
            (false, _) => NextStep::Stop,
            (true, false) => NextStep::Continue,
            (true, true) => NextStep::Keep,
        };
        let step = end.map_or(own, |exit| NextStep::End(exit.code()));
        collect::broadcast_json(world, &step, 0)
    }

    /// Adds rank 0's results to the ledger, where they stay until the report is complete, and notes
    /// the starts `missed` that their unreachable segments may belong to. Without a ledger, returns
    /// rank 0's `missed` on all ranks. Collective.
    fn keep_results(&mut self, world: &Comm, missed: &[StartId]) -> Result<Vec<StartId>, JobError> {
        let mut results = std::mem::take(&mut self.unkept);
        if self.spec.tests().len() < 2 {
            // The result of a run's only test stays in its own segments.
            results.clear();
        }
        self.kept_at = Instant::now();
        let Some(ledger) = &self.ledger else {
            return Ok(collect::broadcast_json(world, &missed.to_vec(), 0)?);
        };
        if let Err(why) = ledger.borrow_mut().add(world, results, missed)? {
            // The run continues; a later start may lack these results.
            messages::print(format_args!(
                "warning: results so far are not kept for later starts: {why}"
            ));
        }
        // The ledger has them.
        Ok(Vec::new())
    }

    /// Runs one test on its ranks, and reports it.
    pub(crate) fn run_one(
        &mut self,
        ranks: &mut Ranks,
        test: &TestSpec,
        turn: Turn,
        announced: &mut Instant,
    ) -> Result<Reported<'a>, JobError> {
        let setup = self.setup;
        let is_protected = self.is_protected(turn.index, turn.resume);
        let (team, injector) = (&setup.pinned.team, setup.injector.clone());
        let Turn { index, tests, resume, nothing_hidden } = turn;
        let allow_shared_domains = self.allows_shared_domains();
        let settings = Settings { resume, allow_shared_domains, ..self.settings.clone() };
        let mut watcher = Watcher {
            events: &mut *self.events,
            test,
            tests,
            index,
            guessed_rate: setup.rated.rates.guess(test).flops,
            announced,
            injector: &injector,
            samples: Samples::default(),
            power: TestPower::new(&self.power),
            saved: SavedQueue::default(),
            core_watch: TestCores::new(setup.job_here.clone()),
            cores: None,
            slow: None,
        };
        if !is_protected {
            let lack = || check_memory_of(test, self.settings, setup.places());
            let lack = setup.is_as_reference.then(lack).flatten();
            let (settings, rates) = (self.settings, setup.rated.rates.guess(test));
            let grid = ranks.grid(test)?;
            let mut record = run_plain(grid, team, test, settings, rates, lack, &mut watcher)?;
            if let Some(record) = &mut record {
                record.memory = protect::memory_split(test, self.settings, None);
                record.progress = watcher.samples.list();
                record.slow = watcher.slow.take();
                record.cores = watcher.cores.clone();
            }
            let result = record.as_ref().map(protect::result::write_plain).unwrap_or_default();
            let cores = watcher.cores;
            let is_written = self.report(record.as_ref(), None);
            return Ok(Reported { is_written, result, cores, done: None });
        }
        let ranks = ranks.comm.as_ref().expect("a rank of the grid");
        let context = TestContext {
            memory: TestSegments::new(setup.store, &settings.run_id, index, RankProcess(team))
                .under(setup.held.lock.clone()),
            nothing_hidden,
            host: ranks.host(),
            hook: injector.clone(),
            guessed: setup.rated.rates.guess(test),
            lost_at: self.lost_at,
            rank_in_run: self.rank_in_run.clone(),
            clock: Arc::new(ClockReading::now),
            end_unix: self.settings.time_limit.end(),
            beginning: self.ledger.clone().map(|ledger| Beginning::new(ledger, index)),
            chosen: setup.chosen.clone(),
            saved: watcher.saved.clone(),
        };
        heartbeat::begin_phase("open", 0, test.n, 0.0);
        grace::enable_last_message(true);
        watcher.announce("looking for data of an earlier start, and reserving memory");
        let ran = run_protected(ranks, test, &settings, context, &mut watcher);
        let (done, is_found) = ran?;
        let number = index + 1;
        let words = "was done by an earlier start, which ended before it removed the result";
        let note = is_found.then(|| format!("test {number} {words}"));
        // The bytes are the same whichever start has computed them.
        let (slow, cores) = (watcher.slow.take(), watcher.cores.take());
        let record =
            TestRecord { slow, cores: cores.clone(), ..protect::result::read(done.result()) };
        let reports = (ranks.rank() == 0).then_some(&record);
        let is_written = self.report(reports, note.as_deref());
        Ok(Reported { is_written, result: done.result().to_vec(), cores, done: Some(done) })
    }

    /// Reports a record, after a note. Returns whether that succeeded.
    fn report(&mut self, record: Option<&TestRecord>, note: Option<&str>) -> bool {
        let Some(record) = record else { return true };
        self.events.clear();
        let noted = note.map_or(Ok(()), |note| self.events.note(note));
        is_written(noted.and_then(|()| self.test_ends(record)))
    }

    fn test_ends(&mut self, record: &TestRecord) -> Result<(), String> {
        self.counts.add(&record.outcome);
        self.events.test_ends(record)
    }
}

/// Whether a report is written; if not, prints why.
fn is_written(report: Result<(), String>) -> bool {
    report.inspect_err(|why| messages::print(format_args!("error: {why}"))).is_ok()
}

/// A test that has run.
pub(super) struct Reported<'a> {
    /// Whether the report succeeded, or was not this rank's to write.
    pub is_written: bool,
    /// On rank 0: the result, to be read by [`protect::result::read`].
    pub result: Vec<u8>,
    /// On rank 0: what the ranks got of their cores, if that is known.
    pub cores: Option<CoreShares>,
    /// The result in shared memory, if the test was protected.
    pub done: Option<Done<'a>>,
}

/// The position of a test in its run.
#[derive(Clone, Copy)]
pub(super) struct Turn {
    /// The index of the test, from 0.
    pub index: usize,
    pub tests: usize,
    /// How to treat data that an earlier start has left of the test.
    pub resume: Resume,
    /// Whether no earlier start has left images of the test.
    pub nothing_hidden: bool,
}

/// Removes the images of tests that `is_meant` selects, before other data that marks them as
/// useless is removed. Collective.
pub(super) fn remove_images(
    world: &Comm,
    settings: &Settings,
    setup: &Setup,
    is_meant: impl Fn(usize) -> bool,
) -> Result<(), CommError> {
    if settings.levels.0.is_empty() {
        return Ok(());
    }
    if setup.is_first_on_host {
        print_warnings(&protect::images::remove_images(settings, is_meant));
    }
    world.barrier()
}
