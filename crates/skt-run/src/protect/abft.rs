//! A test whose elimination carries checksums (`--ft abft`): connects [`skt_solver::pgesv::abft`]
//! with the segments.
//!
//! The solver's memory *is* the segment: A, the panels, the log and the words that mark what is
//! valid. The checkpoint protocol keeps the rest: which process has which rank, which start was the
//! latest, when the run began, its restarts and its result; and on levels, images of what matters
//! at a cut.
//!
//! ```text
//! segment   header | times so far | memory of pgesv::abft
//!                    words, A ...   : an image
//! ```

use std::ptr::NonNull;
use std::time::Instant;

use skt_host::phases::{ChecksumCosts, EarlierStarts, Phases};

use super::clock::{ClockReading, Origin};
use super::deadline::{self, Ahead};
use super::guard::{
    Done, Opened, TestContext, compare_choices, config, guessed_schedule, solve_error,
};
use super::images::{self, ImagesSeen};
use super::interval::CheckpointSchedule;
use super::recorder::{KeptClock, Known, Recorder};
use super::result;
use super::split::{
    CLOCK_BYTES, abft_image_bytes, abft_reported_split, process_rows, region_shape, state_bytes,
};
use super::times::{KeptTimes, Times};
use super::wrong::{self, Images, note_repaired, report_origins, report_suspect};
use crate::error::JobError;
use crate::events::{Phase, RunEvents};
use crate::ptest::{self, RateWatch, TestRun};
use crate::record::{Protection, Replacement, Restart, Sample, TestRecord, Unverified};
use crate::{cores, grace, heartbeat, power};
use skt_checkpoint::checkpoint::level::Writer;
use skt_checkpoint::checkpoint::protocol::{self, CheckpointError, Checkpointer, Config};
use skt_checkpoint::checkpoint::recover::Recovered;
use skt_comm::{Comm, CommError, collect};
use skt_config::TestSpec;
use skt_config::protection::Settings;
use skt_host::clock::{now_unix, now_unix_seconds};
use skt_solver::grid::Grid;
use skt_solver::matgen::{self, Entries};
use skt_solver::pgesv::abft::{
    self, AbftError, Absent, Beginning, Checked, Flip, RankMemory, RelayMessages, System, Weights,
    grid_without,
};
use skt_solver::pgesv::events::SolverEvents;
use skt_solver::pgesv::wrong::WrongNumbers;
use skt_solver::pgesv::{CallLimit, Params, Rates, SolveError};
use skt_solver::team::Team;
use skt_store::layout::{Active, Geometry};

/// Increased when [`KeptClock`], or the order of the data in a segment, changes: a program reads
/// only its own format.
pub(super) const STATE_FORMAT: (&str, u32) = ("abft_state_format", 12);

/// A test with checksums, on one rank.
pub struct AbftTest<'a> {
    checkpointer: Box<Checkpointer<'a>>,
    settings: Settings,
    spec: TestSpec,
    survives_nodes: bool,
    start_id: u32,
    /// The host of each rank of the test; empty for a rank that no process has.
    hosts: Vec<String>,
    /// The ranks that no process has, in a job that continues after a loss (`--on-loss replace`).
    absent: Vec<Absent>,
    /// The data that an earlier start has left.
    recovered: Option<Recovered>,
    /// The level whose images that data comes from, if any.
    level: Option<String>,
    recorder: Recorder,
    schedule: CheckpointSchedule,
    /// When the loss that the job has outlived was noticed.
    lost_at: Option<Instant>,
}

/// The position of a rank of a test: process row and process column.
fn place(spec: &TestSpec, rank: usize) -> (usize, usize) {
    let rows = process_rows(spec).into_iter().enumerate();
    let mut places =
        rows.filter_map(|(row, ranks)| Some((row, ranks.iter().position(|&other| other == rank)?)));
    places.next().expect("a rank of the test")
}

/// The ranks of each process column of a test, including those of checksums.
fn process_columns(spec: &TestSpec) -> Vec<Vec<usize>> {
    let rows = process_rows(spec);
    (0..rows[0].len()).map(|col| rows.iter().map(|row| row[col]).collect()).collect()
}

/// Opens a test on the ranks of `comm`, one for each position of its grid and its checksum columns:
/// finds the data that an earlier start has left, and allocates the rest. After a loss there may be
/// fewer ranks; those that are left keep their positions. Collective.
pub fn open<'a>(
    comm: &Comm,
    spec: &TestSpec,
    settings: &Settings,
    context: TestContext<'a>,
) -> Result<Opened<'a, AbftTest<'a>>, CheckpointError> {
    let started = Instant::now();
    let TestContext { memory, nothing_hidden, host, hook, clock, lost_at, rank_in_run, .. } =
        context;
    let schedule = guessed_schedule(spec, settings, context.guessed);
    let end_unix = context.end_unix;
    let is_short = comm.size() < spec.ranks();
    let config = Config {
        members: spec.q + spec.checksums,
        groups: Some(process_rows(spec)),
        levels: images::open_levels(settings, memory.part(), spec.threads),
        nothing_hidden,
        abft_image_bytes: abft_image_bytes(spec),
        // The matrix must not change while an image is written.
        image_writer: Writer::Caller,
        rank_in_run: rank_in_run.get(),
        may_lose: is_short.then(|| process_columns(spec)),
        ..config(spec, settings, &memory, &host, STATE_FORMAT)?
    };
    let (shape, team) = (region_shape(spec, settings), memory.process().0);
    let opened = match Checkpointer::open(comm, memory, config, &[shape], hook)? {
        protocol::Opened::Ready(opened) => opened,
        protocol::Opened::Finished(run) => return Ok(Opened::Done(run)),
    };
    let (checkpointer, recovered) =
        if is_short { opened.recover()? } else { recover(opened, spec, settings, team)? };
    if let Some(recovered) = &recovered {
        compare_choices(&context.chosen, &recovered.state, checkpointer.comm())?;
    }
    let found = checkpointer.found().clone();
    rank_in_run.set(Some(checkpointer.rank()));
    let hosts = hosts(&checkpointer, spec.ranks())?;
    let lost = if is_short { &found.lost[..] } else { &[] };
    let absent = |&rank: &usize| {
        let (row, col) = place(spec, rank);
        Absent { rank, row, col }
    };
    let test = AbftTest {
        settings: settings.clone(),
        spec: spec.clone(),
        survives_nodes: !found.single_domain && found.shared_domain.is_none(),
        start_id: found.start.number as u32,
        hosts,
        level: found.load.as_ref().map(|load| settings.levels.0[load.level].name()),
        absent: lost.iter().map(absent).collect(),
        recovered,
        recorder: Recorder::new(started, clock, end_unix, context.chosen),
        schedule,
        lost_at,
        checkpointer,
    };
    Ok(Opened::Ready(Box::new(test), found))
}

/// The host of each of `ranks` ranks; empty for a rank that no process has. Collective.
fn hosts(checkpointer: &Checkpointer, ranks: usize) -> Result<Vec<String>, CommError> {
    let comm = checkpointer.comm();
    let mut hosts = vec![String::new(); ranks];
    for (rank, host) in collect::all_gather_json(comm, &(checkpointer.rank(), comm.host()))? {
        hosts[rank] = host;
    }
    Ok(hosts)
}

/// Recovers what an earlier start has left: from memory or, where the solver cannot resume from
/// that, from the newest images that it can resume from. If there are none, and all levels could be
/// read, the solver refuses what is in memory. Collective.
fn recover<'a>(
    opened: Box<Checkpointer<'a>>,
    spec: &TestSpec,
    settings: &Settings,
    team: &Team,
) -> Result<(Box<Checkpointer<'a>>, Option<Recovered>), CheckpointError> {
    let (mut checkpointer, mut recovered) = opened.recover()?;
    while let Some(there) = &recovered {
        let newest = checkpointer.newest_images();
        let is_any_hidden = checkpointer.found().given_up.iter().any(Option::is_some);
        if newest.is_none() && !is_any_hidden {
            break;
        }
        let Some(refusal) = refusal(&mut checkpointer, spec, settings, team)? else { break };
        let state = read_state(&there.state);
        // The run has resumed from these images before, and no others are complete since: the error
        // may be in them already.
        let are_these = |restart: &Restart| {
            restart.level.is_some() && newest.is_some_and(|newest| restart.epoch == newest.epoch)
        };
        let is_suspect = matches!(refusal, abft::AbftRefusal::Wrong { .. })
            && state.restarts.iter().any(are_these);
        (checkpointer, recovered) = checkpointer.recover_without(&refusal.what(), is_suspect)?;
    }
    Ok((checkpointer, recovered))
}

/// Why the solver cannot resume from what is in memory. Collective.
fn refusal(
    checkpointer: &mut Checkpointer,
    spec: &TestSpec,
    settings: &Settings,
    team: &Team,
) -> Result<Option<abft::AbftRefusal>, CheckpointError> {
    let &TestSpec { p, q, checksums, pmap, n, generator, .. } = spec;
    let grid = Grid::with_checksums(checkpointer.comm(), p, q, checksums, pmap)?;
    let (grid, weights) = (grid.expect("a place for each"), Weights::new(q, checksums));
    let entries = matgen::entries(n, generator);
    let system = system(&grid, team, spec, settings, &weights, &entries);
    // SAFETY: the checkpointer is borrowed for longer than the memory exists, and not used until
    // then.
    let (mut memory, _) = unsafe { memory(checkpointer, system.doubles()) };
    match system.refusal(&mut memory) {
        Err(SolveError::Comm(error)) => Err(error.into()),
        refusal => Ok(refusal.expect("it fails by the loss of a rank alone")),
    }
}

/// The system of a test.
fn system<'s>(
    grid: &'s Grid,
    team: &'s Team,
    spec: &TestSpec,
    settings: &Settings,
    weights: &'s Weights,
    entries: Entries<'s>,
) -> System<'s> {
    let (params, check) = (Params::from(spec), settings.check_every);
    let entries_id = spec.generator as u64;
    let relay_messages = RelayMessages::TUNED;
    let calls = CallLimit::tuned();
    System { grid, team, params, weights, entries, entries_id, check, relay_messages, calls }
}

fn read_state(bytes: &[u8]) -> KeptClock {
    serde_json::from_slice(bytes).expect("a state that this program wrote")
}

/// The solver's memory, of this number of doubles, and the times stored before it.
///
/// # Safety
/// The checkpointer exists for as long as `'m`, and is asked neither for its region during that
/// time nor for another recovery. This is called once for each solution.
unsafe fn memory<'m>(
    checkpointer: &mut Checkpointer,
    doubles: usize,
) -> (RankMemory<'m>, KeptTimes<'m>) {
    let (start, bytes) = checkpointer.region_at(0);
    let room = bytes - CLOCK_BYTES;
    assert!(doubles * size_of::<f64>() <= room, "room for the memory of each rank");
    // SAFETY: the region begins and ends on a page, and stays at its address as long as the
    // checkpointer exists. With the method `abft` the checkpointer writes only to the header before
    // another recovery, and reads the region only in `checkpoint`, for which the solver stands
    // still. The times and the memory do not overlap.
    unsafe {
        let memory = NonNull::new_unchecked(start.add(CLOCK_BYTES)).cast();
        (RankMemory::at(memory, doubles), KeptTimes::at(start))
    }
}

impl<'a> AbftTest<'a> {
    /// Solves the test, from its system or from the data of an earlier start, checks the solution,
    /// and stores the result in all segments. If too much is lost, all ranks get an error, and
    /// nothing has been changed. Collective over the grid.
    pub(crate) fn run(
        mut self,
        team: &Team,
        events: &mut dyn RunEvents,
    ) -> Result<Done<'a>, JobError> {
        let resumed = self.images_resumed_from();
        match self.solve(team, events) {
            Ok(result) => {
                let done = self.checkpointer.finish(&result);
                done.map_err(|error| solve_error(0, error).into())
            }
            Err(AbftError::Solve(SolveError::Wrong(wrong))) => Err(self.wrong(&wrong, &resumed)?),
            Err(error) => Err(error.into()),
        }
    }

    /// The epochs of the images that this start or an earlier one has resumed from.
    fn images_resumed_from(&self) -> Vec<u64> {
        let Some(recovered) = &self.recovered else { return Vec::new() };
        let restarts = read_state(&recovered.state).restarts.into_iter();
        let before = restarts.filter(|restart| restart.level.is_some());
        let here = self.level.as_ref().map(|_| recovered.epoch);
        before.map(|restart| restart.epoch).chain(here).collect()
    }

    /// The error that reports wrong numbers to the user, in a run that has resumed from the images
    /// of the epochs `resumed`. Collective if all ranks know of the wrong numbers.
    fn wrong(&mut self, wrong: &WrongNumbers, resumed: &[u64]) -> Result<JobError, SolveError> {
        if wrong.is_known_to_all {
            // Images that were begun may be complete now.
            let finished = self.checkpointer.finish_images();
            finished.map_err(|error| solve_error(0, error))?;
        }
        report_suspect(wrong, &self.hosts);
        let reports = self.checkpointer.level_reports().into_iter();
        let newest = reports.max_by_key(|report| report.complete_epoch);
        let images = newest.filter(|report| report.complete_epoch > 0).map(|report| Images {
            is_suspect: resumed.contains(&report.complete_epoch),
            level: report.name,
            epoch: report.complete_epoch,
        });
        if wrong.is_known_to_all && images.is_none() {
            // The run cannot continue from anything.
            heartbeat::enter_phase(heartbeat::REFUSED);
        }
        Ok(wrong::error(wrong, &self.hosts, &self.settings, images.as_ref()))
    }

    /// Solves and checks. Returns the result to keep, on all ranks. Collective over the grid.
    fn solve(&mut self, team: &Team, events: &mut dyn RunEvents) -> Result<Vec<u8>, AbftError> {
        let spec = self.spec.clone();
        let TestSpec { p, q, checksums, n, .. } = spec;
        let comm = self.checkpointer.comm();
        let all = comm.split(Some(0), comm.rank() as u32)?.expect("a colour was given");
        let (myrow, mycol) = place(&spec, self.checkpointer.rank());
        let grid = Grid::at(all, p, q, checksums, myrow, mycol)?;
        let data = self.data_grid(&grid)?;
        let weights = Weights::new(q, checksums);
        let entries = matgen::entries(n, spec.generator);
        let system = system(&grid, team, &spec, &self.settings, &weights, &entries);
        // SAFETY: the checkpointer is consumed after the last use of the memory; until then it only
        // takes checkpoints.
        let (mut memory, times) = unsafe { memory(&mut self.checkpointer, system.doubles()) };
        let memory = &mut memory;
        let record = data.as_ref().map(|grid| ptest::empty_record(grid, &spec)).transpose()?;
        let (absent, id) = (self.absent.clone(), self.start_id);
        let watch = RateWatch::begin(&grid.all, self.checkpointer.rank(), &spec)
            .map_err(SolveError::from)?;
        let mut watcher = RunWatcher::new(self, &times, events, watch);
        let solved = match &absent[..] {
            [] => system.solve(memory, id, &GraceHook, &mut watcher),
            absent => {
                system.solve_without(absent, data.as_ref(), memory, id, &GraceHook, &mut watcher)
            }
        };
        let RunWatcher { mut learned, rates, watch, .. } = watcher;
        let solved = match solved {
            Ok(solution) => {
                let ChecksumCosts { log_seconds, sum_seconds, check_seconds } = learned.costs;
                let mut most = [times.get().seconds, log_seconds, sum_seconds, check_seconds];
                collect::all_max(&grid.all, &mut most)?;
                let [seconds, log_seconds, sum_seconds, check_seconds] = most;
                let end_unix = now_unix();
                // Ranks of checksums measure their nodes, too.
                let measure = || events.energy(seconds);
                let power = power::gather::gather(&grid.all, seconds, measure)?;
                cores::gather(&grid.all, seconds, events)?;
                learned.costs = ChecksumCosts { log_seconds, sum_seconds, check_seconds };
                let x = data.as_ref().map_or(Vec::new(), |data| {
                    let cols = data.cols(spec.nb);
                    (0..n).filter(|&j| cols.owner(j) == data.mycol).map(|j| solution.x[j]).collect()
                });
                let (phases, by_messages) = (learned.phases, by_messages(p));
                let earlier = learned.earlier;
                Ok(ptest::Solution { x, seconds, end_unix, phases, earlier, by_messages, power })
            }
            Err(AbftError::Solve(error)) => Err(error),
            Err(refused) => return Err(refused),
        };
        let report = RateWatch::finish_after(watch, &solved, rates.as_ref());
        report.map_err(SolveError::from)?.into_iter().for_each(|report| events.rates(report));
        let mut result = Vec::new();
        match (data, record) {
            (Some(data), Some(mut record)) => {
                record.start_unix_seconds = learned.start_unix_seconds;
                let a = system.matrix(memory);
                let test = TestRun { grid: &data, team, spec: &spec };
                let judge = |x: &[f64]| ptest::judge(test, a, x);
                let judged = ptest::conclude(test, record, solved, events, judge)?;
                if let Some(record) = judged {
                    result = self.result(record, &learned, &events.samples());
                }
            }
            // All ranks know of a column without a pivot.
            _ => match solved {
                Ok(_) | Err(SolveError::Pivot { .. }) => {}
                Err(error) => return Err(error.into()),
            },
        }
        Ok(on_first(&grid.all, result)?)
    }

    /// The grid of the ranks with data, which check the solution; `None` on the others. Collective.
    fn data_grid(&self, grid: &Grid) -> Result<Option<Grid>, AbftError> {
        if let [absent, ..] = &self.absent[..] {
            return Ok(grid_without(grid, absent.col)?);
        }
        let comm = self.checkpointer.comm();
        // The ranks keep their order.
        let color = (!grid.is_checksum()).then_some(0);
        let Some(data) = comm.split(color, comm.rank() as u32)? else { return Ok(None) };
        let TestSpec { p, q, pmap, .. } = self.spec;
        Ok(Some(Grid::new(&data, p, q, pmap)?.expect("a place for each")))
    }

    fn geometry(&self) -> Geometry {
        Geometry { members: self.spec.q + self.spec.checksums, parities: self.spec.checksums }
    }

    /// The result of a finished test, as bytes.
    fn result(&self, mut record: TestRecord, learned: &Learned, samples: &[Sample]) -> Vec<u8> {
        record.memory = abft_reported_split(&self.spec, &self.settings, self.geometry());
        record.protection = Some(self.protection(learned));
        let capacity_bytes = state_bytes(self.spec.ranks());
        self.recorder.result(record, Vec::new(), samples, capacity_bytes)
    }

    fn protection(&self, learned: &Learned) -> Protection {
        let TestSpec { p, q, checksums, .. } = self.spec;
        Protection {
            codec: "weighted sums".into(),
            encoder: "elimination".into(),
            region: "whole".into(),
            groups: p,
            group_size: q + checksums,
            parities: checksums,
            survives_nodes: self.survives_nodes,
            checksum_costs: self.absent.is_empty().then_some(learned.costs),
            // No checkpoint is kept in memory.
            ..self.recorder.protection(&self.checkpointer, &self.settings, learned.found.clone())
        }
    }
}

/// The data that goes by messages between P process rows: all of it, because memory that ranks of a
/// node share would not outlive the ranks.
fn by_messages(p: usize) -> Vec<String> {
    ["panels", "rows"].into_iter().take(p.min(2)).map(str::to_owned).collect()
}

/// The bytes of the rank that has some, on all ranks; the first rank needs them. Collective.
fn on_first(comm: &Comm, mut bytes: Vec<u8>) -> Result<Vec<u8>, CommError> {
    let mut from = [if bytes.is_empty() { 0 } else { comm.rank() as u64 }];
    collect::all_reduce(comm, &mut from, u64::max)?;
    collect::broadcast_bytes(comm, &mut bytes, from[0] as usize)?;
    Ok(bytes)
}

/// The solver's hook: no signal ends the process while it changes part of the matrix in place.
struct GraceHook;

impl abft::MemoryHook for GraceHook {
    fn at(&self, at: abft::At) -> Result<(), SolveError> {
        if at.is_restoring() {
            heartbeat::enter_phase("restore");
        }
        Ok(())
    }

    fn begin_change(&self) {
        grace::begin_critical();
    }

    fn end_change(&self) {
        grace::end_critical();
    }
}

/// The solver's watcher: reports the progress of the run, and keeps its state and its images.
struct RunWatcher<'t, 'g, 'a> {
    test: &'t mut AbftTest<'a>,
    times: &'t KeptTimes<'t>,
    learned: Learned,
    events: &'t mut dyn RunEvents,
    /// When panel `self.next` began.
    step_at: Instant,
    next: usize,
    /// Whether images have been written to measure their time.
    has_learnt: bool,
    images_seen: ImagesSeen,
    /// Brings the rates of all ranks' products to rank 0.
    watch: Option<RateWatch<'g>>,
    /// The rates of this rank's products, once it has some.
    rates: Option<Rates>,
}

/// What the watcher has learned from the solver.
#[derive(Default)]
struct Learned {
    start_unix_seconds: i64,
    /// The time of this start by phase.
    phases: Phases,
    earlier: EarlierStarts,
    costs: ChecksumCosts,
    /// What the checks of this start have found; all else is as without protection.
    found: Protection,
}

impl<'t, 'g, 'a> RunWatcher<'t, 'g, 'a> {
    /// The watcher of a solver that resumes from what `test` has recovered, or generates its
    /// system.
    fn new(
        test: &'t mut AbftTest<'a>,
        times: &'t KeptTimes<'t>,
        events: &'t mut dyn RunEvents,
        watch: Option<RateWatch<'g>>,
    ) -> Self {
        match test.recovered {
            // The phase `generate` would mean that there is nothing to go back to yet.
            Some(_) => heartbeat::enter_phase("restore"),
            None => events.phase(ptest::generating(&test.spec)),
        }
        test.recorder.start = Instant::now();
        let mut images_seen = ImagesSeen::default();
        images_seen.completed(&test.checkpointer.level_reports());
        Self {
            test,
            times,
            learned: Learned::default(),
            events,
            step_at: Instant::now(),
            next: 0,
            has_learnt: false,
            images_seen,
            watch,
            rates: None,
        }
    }

    /// Begins or resumes the timed part. If the run is interrupted before all ranks have the new
    /// state, the state of the previous start stays valid, if there was one.
    fn begin(&mut self, beginning: &Beginning) -> Result<(), CheckpointError> {
        let comm = self.test.checkpointer.comm();
        let reading = self.test.recorder.begin_clock(comm)?;
        let has_data = place(&self.test.spec, self.test.checkpointer.rank()).1 < self.test.spec.q;
        match self.test.recovered.take() {
            None => self.test.recorder.kept.origin = Origin::new(comm, &reading, 0.0)?,
            Some(recovered) => {
                let chosen = std::mem::take(&mut self.test.recorder.kept.chosen);
                let kept = read_state(&recovered.state);
                self.test.recorder.kept = KeptClock { chosen, ..kept };
                let known = self.times.agreed(comm, has_data)?;
                self.learned.earlier = known.earlier();
                self.test.recorder.kept.interruptions = self.learned.earlier.interruptions;
                self.resume(beginning, recovered.epoch, known.seconds, &reading)?;
                self.learned.earlier.interruptions = self.test.recorder.kept.interruptions;
            }
        }
        self.keep_times(&Phases::default());
        self.keep_state(beginning.panel)
    }

    /// Keeps the times so far, of which `phases` are those of this start, and returns the seconds
    /// of the run.
    fn keep_times(&mut self, phases: &Phases) -> f64 {
        self.test.recorder.note_alive(&mut self.test.checkpointer);
        let seconds = self.test.recorder.seconds();
        let phases = phases.with_total(self.test.recorder.start.elapsed().as_secs_f64());
        self.times.set(&Times::new(seconds, self.learned.earlier.with(&phases)));
        seconds
    }

    /// Keeps the state before panel `cut` on all ranks and, if one is due and this is not the first
    /// call in this start, an image. Collective, at that cut.
    fn keep_state(&mut self, cut: usize) -> Result<(), CheckpointError> {
        let capacity_bytes = state_bytes(self.test.spec.ranks());
        let mut kept = std::mem::take(&mut self.test.recorder.kept);
        kept.column = (cut * self.test.spec.nb).min(self.test.spec.n);
        kept.elapsed_seconds = self.test.recorder.seconds();
        let (kept, bytes) = result::fit(kept, capacity_bytes, |kept| &mut kept.restarts);
        self.test.recorder.kept = kept;
        self.test.checkpointer.checkpoint(&[Active::ALL], &bytes)?;
        Ok(())
    }

    /// Notes that this start resumes from memory, or from images of `epoch`, when `known_seconds`
    /// of the run had passed.
    fn resume(
        &mut self,
        beginning: &Beginning,
        epoch: u64,
        known_seconds: f64,
        reading: &ClockReading,
    ) -> Result<(), CheckpointError> {
        if !beginning.is_solved {
            // A run that resumes from a cut has not replaced a process column, even if an earlier
            // start noted that it was about to.
            let kept = &mut self.test.recorder.kept;
            kept.restarts.iter_mut().for_each(|restart| restart.replacement = None);
        }
        let restart = Restart {
            epoch: if self.test.level.is_some() { epoch } else { 0 },
            column: (beginning.panel * self.test.spec.nb).min(self.test.spec.n),
            rebuilt_ranks: beginning.rebuilt.clone(),
            repair_seconds: self.repair_seconds()?,
            undone_ranks: beginning.undone,
            replacement: beginning.replaced.map(|process_column| Replacement {
                process_column,
                decoded_bytes: 0,
                decode_seconds: 0.0,
            }),
            level: self.test.level.take(),
            ..Restart::default()
        };
        let last_seconds = Recorder::last_alive_seconds(&self.test.checkpointer)?;
        let known =
            Known { saved_seconds: known_seconds, last_seconds, seconds_min: known_seconds };
        self.test.recorder.resume(self.test.checkpointer.comm(), reading, known, restart)?;
        self.events.resumes(self.test.recorder.restart().expect("noted just now"));
        if beginning.is_solved {
            // x is known already, so the time since then does not count.
            self.test.recorder.before_seconds = known_seconds;
            self.test.recorder.kept.interruptions = self.learned.earlier.interruptions;
        }
        Ok(())
    }

    /// Seconds since the ranks noticed the loss that the job has outlived, the maximum over ranks;
    /// `None` in the first attempt of the job.
    fn repair_seconds(&self) -> Result<Option<f64>, CheckpointError> {
        let seconds = self.test.lost_at.map_or(-1.0, |at| at.elapsed().as_secs_f64());
        let longest = collect::max(self.test.checkpointer.comm(), seconds)?;
        Ok(Some(longest).filter(|&seconds| seconds >= 0.0))
    }

    /// The predicted times of the run from the present panel on, which is as slow as the last one,
    /// or as it has shown so far.
    fn ahead(&self) -> Ahead {
        let (step_seconds, rest_seconds) = self.test.schedule.seconds_ahead(self.next);
        let step_seconds = step_seconds.max(self.step_at.elapsed().as_secs_f64());
        let save_seconds = self.test.recorder.image_seconds;
        Ahead { step_seconds, rest_seconds, save_seconds }
    }

    /// Whether a signal on this rank, or `is_so` of the time that rank 0 sees ahead, stops the run
    /// or lets it check its time.
    fn asks(&self, is_so: impl FnOnce(&Recorder, Ahead) -> bool) -> bool {
        let is_first = self.test.checkpointer.comm().rank() == 0;
        deadline::is_asked() || is_first && is_so(&self.test.recorder, self.ahead())
    }

    /// Keeps the cut before panel `cut`, if some rank wants images of it or the time is up. In that
    /// case, also makes its images complete, where that is possible, and returns the error that
    /// stops the run, on all ranks. Collective.
    fn keep(&mut self, cut: usize) -> Result<Option<SolveError>, CheckpointError> {
        let is_time_up = self.asks(|recorder, ahead| recorder.time_left().is_over(&ahead));
        let mine = [is_time_up, self.test.checkpointer.wants_images()];
        let [stops, wants_images] = collect::any_of(self.test.checkpointer.comm(), mine)?;
        if !stops && !wants_images {
            return Ok(None);
        }
        if stops {
            self.test.checkpointer.make_images_due();
        }
        self.keep_state(cut)?;
        if stops {
            let AbftTest { recorder, checkpointer, settings, .. } = &mut *self.test;
            return recorder.stop(checkpointer, settings, recorder.kept.column).map(Some);
        }
        let image_seconds = self.test.checkpointer.seconds_of_images();
        self.test.recorder.image_seconds =
            collect::max(self.test.checkpointer.comm(), image_seconds)?;
        Ok(None)
    }
}

impl SolverEvents for RunWatcher<'_, '_, '_> {
    fn generated(&mut self, seconds: f64) {
        self.events.waits(ptest::generating(&self.test.spec), seconds);
    }

    fn begins(&mut self, beginning: &Beginning) -> Result<(), SolveError> {
        self.begin(beginning).map_err(|error| solve_error(0, error))?;
        let of_row = |&abft::Unverified { row, columns: (first_column, last_column) }: &_| {
            Unverified { process_row: row, first_column, last_column }
        };
        let kept = beginning.unverified.iter().take(Protection::UNVERIFIED_KEPT);
        self.learned.found.unverified = kept.map(of_row).collect();
        self.learned.start_unix_seconds = now_unix_seconds();
        (self.next, self.step_at) = (beginning.panel, Instant::now());
        self.events.phase(if beginning.is_solved { Phase::BackSubstitute } else { Phase::Factor });
        self.events.timed_part_begins(self.test.recorder.seconds());
        Ok(())
    }

    fn columns(&mut self, done: usize, rates: &Rates, phases: &Phases) -> Result<(), SolveError> {
        self.rates = Some(rates.clone());
        let slow = self.watch.as_mut().map_or(Ok(None), |watch| watch.progress(rates))?;
        slow.into_iter().for_each(|slow| self.events.slow(&slow));
        let seconds = self.keep_times(phases);
        let images = self.images_seen.completed(&self.test.checkpointer.level_reports());
        images.iter().for_each(|images| self.events.saved(images));
        let next = done.div_ceil(self.test.spec.nb);
        self.test.schedule.measure(self.next..next, self.step_at.elapsed().as_secs_f64());
        (self.next, self.step_at) = (next, Instant::now());
        self.events.columns(done, self.test.spec.n, seconds);
        Ok(())
    }

    fn wants_image(&mut self) -> bool {
        let recorder = &self.test.recorder;
        let here_seconds = recorder.start.elapsed().as_secs_f64();
        // A start with limited time writes its first images early, to measure their time.
        if recorder.is_limited()
            && !self.has_learnt
            && here_seconds >= recorder.time_left().learn_after()
        {
            self.test.checkpointer.make_images_due();
            self.has_learnt = true;
        }
        // Rank 0's clock is read at the next cut, where all ranks have come.
        self.test.checkpointer.wants_images()
            || self.asks(|recorder, ahead| {
                recorder.time_left().look_after(&ahead) < ahead.step_seconds
            })
    }

    fn keep_image(&mut self, cut: usize, phases: &Phases) -> Result<(), SolveError> {
        self.keep_times(phases);
        match self.keep(cut).map_err(|error| solve_error(cut, error))? {
            Some(time_up) => Err(time_up),
            None => Ok(()),
        }
    }

    fn flip(&mut self, cut: usize) -> Option<Flip> {
        let done = (cut * self.test.spec.nb).min(self.test.spec.n);
        // Bit 56 changes the exponent by 16. The element is about in the middle of the remaining
        // matrix.
        let middle = self.test.spec.n / 2;
        self.events.flips(done).then_some(Flip { place: (middle, middle), bit: 56 })
    }

    fn decoded(&mut self, bytes: u64, seconds: f64) {
        let restart = self.test.recorder.kept.restarts.last_mut();
        if let Some(replacement) = restart.and_then(|restart| restart.replacement.as_mut()) {
            (replacement.decoded_bytes, replacement.decode_seconds) = (bytes, seconds);
        }
    }

    fn checked(&mut self, found: Checked) {
        self.learned.found.checks += 1;
        self.learned.found.repaired_rows += found.corrected_rows as u64;
        note_repaired(&mut self.learned.found.repaired, &found.corrected, &self.test.hosts);
        report_origins(&found.corrected, &self.test.hosts);
    }

    fn back_substitutes(&mut self) {
        self.events.phase(Phase::BackSubstitute);
    }

    fn has_x(&mut self, phases: Phases, costs: ChecksumCosts) {
        self.keep_times(&phases);
        self.events.timed_part_ends();
        self.learned.phases = phases.with_total(self.test.recorder.start.elapsed().as_secs_f64());
        self.learned.costs = costs;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Programs with the same [`STATE_FORMAT`] continue each other's runs: other bytes need the
    /// next number.
    #[test]
    fn bytes_of_a_state_match_its_format() {
        assert_eq!(STATE_FORMAT.1, 12, "and other bytes here");
        let json = concat!(
            r#"{"column":512,"elapsed_seconds":9.1,"origin":{"unix_seconds":1700000000.5,"#,
            r#""uptimes":[[7,12.5],[18446744073709551615,0.1]]},"restarts":[{"epoch":0,"#,
            r#""column":512,"rebuilt_ranks":[],"damaged_blocks":0,"start_seconds":7.25,"#,
            r#""lost_seconds":1.5,"down_seconds":0.5,"recover_seconds":0.125,"is_by_wall_clock":false,"#,
            r#""wall_clock_step_seconds":0.0,"repair_seconds":2.5,"undone_ranks":2,"#,
            r#""replacement":{"process_column":1,"decoded_bytes":4096,"#,
            r#""decode_seconds":0.25}}],"chosen":{"blas":{"called":{"words":"X 1","#,
            r#""kernel":null,"files":{},"is_built_in":true}}}}"#,
        );
        let state = read_state(json.as_bytes());
        assert_eq!(serde_json::to_string(&state).expect("plain data"), json);
    }
}
