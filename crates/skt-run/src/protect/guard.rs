//! The solver's [`Guard`] whose matrix is in shared memory and is saved by checkpoints.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use skt_host::phases::{EarlierStarts, PhaseParts, PhaseTotals, Phases};

use super::chosen::Chosen;
use super::clock::{Clock, ClockReading, Origin, state_seconds};
use super::deadline::{self, Ahead};
use super::history::{TAKEN_KEPT, Taken, remember};
use super::images::{self, ImagesSeen};
use super::interval::{CheckpointSchedule, GuessedRates};
use super::ledger::{Beginning, Begun};
use super::recorder::{KeptClock, Known, Recorder};
use super::segments::{TestSegments, checkpoint_config};
use super::split::{ALIGN_BYTES, matrix_shape, memory_split, region_shape, test_state_bytes};
use super::{Region, result};
use crate::events::{Saved, SavedQueue};
use crate::ptest;
use crate::ptest::mxp::{Refined, RefinementGuard};
use crate::ptest::refining::RefinementLeft;
use crate::record::{CheckpointSeconds, Protection, Restart, Sample, Stall, TestRecord};
use crate::tuning::TUNING;
use skt_checkpoint::checkpoint::decide::StartPlan;
use skt_checkpoint::checkpoint::finish::FinishedRun;
use skt_checkpoint::checkpoint::hook::Hook;
use skt_checkpoint::checkpoint::level::{Load, StateSeconds, Writer};
use skt_checkpoint::checkpoint::protocol::{
    self, CheckpointError, Checkpointer, Config, Polled, Stats,
};
use skt_checkpoint::checkpoint::recover::Recovered;
use skt_comm::{Comm, collect};
use skt_config::TestSpec;
use skt_config::protection::Settings;
use skt_host::{affinity, messages};
use skt_solver::blas::view::SharedMat;
use skt_solver::blas::{Element, MatMut};
use skt_solver::grid::{ColumnMap, Cyclic};
use skt_solver::pgesv::final_part::Final;
use skt_solver::pgesv::guard::{Background, Guard, Remaining};
use skt_solver::pgesv::{LocalShape, Params, SolveError};
use skt_store::layout::{Active, Geometry};

/// Increased when the bytes of [`TestState`] or of the result of a test change: a program reads
/// only its own format, whichever version of it wrote them.
pub(super) const STATE_FORMAT: (&str, u32) = ("state_format", 7);

/// What a checkpoint has besides the matrix. Ranks differ in the bytes that they saved; that of
/// rank 0 is kept.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct TestState {
    #[serde(flatten)]
    kept: KeptClock,
    #[serde(flatten)]
    costs: CheckpointCosts,
    /// The phases of all starts up to this checkpoint, and what losses have cost.
    earlier: EarlierStarts,
    /// What the refinement of HPL-MxP had reached; its x is in the region, below the matrix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    refined: Option<Refined>,
}

/// The checkpoints of a run so far.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct CheckpointCosts {
    checkpoints: u64,
    #[serde(flatten)]
    seconds: CheckpointSeconds,
    /// What this rank saved; all other numbers are the maximum over ranks.
    saved_bytes: u64,
    taken: Vec<Taken>,
}

/// Keeps one rank's matrix in shared memory, and saves it by checkpoints.
pub struct Protected<'a> {
    checkpointer: Box<Checkpointer<'a>>,
    settings: Settings,
    /// Whether the solver continues while parities are computed.
    overlaps: bool,
    spec: TestSpec,
    columns: ColumnMap,
    groups: Vec<Vec<usize>>,
    survives_nodes: bool,
    /// Whether the matrix comes from a checkpoint.
    is_resumed: bool,
    recorder: Recorder,
    /// Panels that were factored and applied when the last checkpoint was taken.
    saved_panel: usize,
    /// The refinement as of the next checkpoint, or of that from which this start resumes.
    refined: Option<Refined>,
    costs: CheckpointCosts,
    /// The phases of earlier starts, as far as this one continues them.
    earlier: PhaseTotals,
    /// The phases of all starts up to the last cut; the same on all ranks.
    totals: PhaseTotals,
    /// The time of the last cut, and the stall by the checkpoint that had begun, to measure the
    /// pace.
    cut_at: Instant,
    cut_panel: usize,
    cut_stall_seconds: f64,
    schedule: CheckpointSchedule,
    /// The panel before which the next checkpoint is due.
    due: usize,
    /// Whether this start has taken a checkpoint, and so knows how long one takes.
    has_taken: bool,
    /// Whether this start has warned of the interval between checkpoints.
    has_warned: bool,
    /// The checkpoint that is being encoded while the solver continues.
    begun: Option<BegunCheckpoint>,
    /// The ledger's note about the beginning of the test, until it is written.
    beginning: Option<Beginning<'a>>,
    saved: SavedQueue,
    images_seen: ImagesSeen,
    /// The byte of the region where x is kept, after the matrix of the rank with the most rows.
    x_from: usize,
}

struct BegunCheckpoint {
    at: Instant,
    /// How long the solver has stood still for it so far.
    stall: Stall,
}

/// A test whose result is in shared memory, to be read by [`super::result::read`].
pub type Done<'a> = FinishedRun<'a>;

/// A test after it is opened. `T` protects it.
pub enum Opened<'a, T> {
    /// There is work to do, from the data that earlier starts have left.
    Ready(Box<T>, StartPlan),
    /// An earlier start has finished the test.
    Done(Done<'a>),
}

/// The rank of a process in its run, which it keeps from one attempt of its job to the next.
pub type RankInRun = Rc<Cell<Option<usize>>>;

/// The arguments of `open` besides the test.
pub struct TestContext<'a> {
    pub memory: TestSegments<'a>,
    /// Whether no image of this test existed when the job began ([`Config::nothing_hidden`]).
    pub nothing_hidden: bool,
    /// The host of this process.
    pub host: String,
    /// Fault injection.
    pub hook: Arc<dyn Hook>,
    /// The predicted rates of the test.
    pub guessed: GuessedRates,
    /// When this process noticed the latest loss that it has outlived.
    pub lost_at: Option<Instant>,
    /// The rank that this process had before a loss, if any; `open` sets its rank.
    pub rank_in_run: RankInRun,
    /// Reads the clocks of this node, as [`ClockReading::now`] does.
    pub clock: Clock,
    /// The end of the job's time, in seconds since 1970; rank 0's counts.
    pub end_unix: Option<f64>,
    /// The ledger's note about the beginning of the test. With `abft` the state of each rank has
    /// it.
    pub beginning: Option<Beginning<'a>>,
    /// What this start has chosen, the same on all ranks.
    pub chosen: Chosen,
    /// Gets what is saved, for the progress. With `abft` the test's events get it at once.
    pub saved: SavedQueue,
}

/// The schedule of a test with these predicted rates.
pub fn guessed_schedule(
    spec: &TestSpec,
    settings: &Settings,
    rates: GuessedRates,
) -> CheckpointSchedule {
    CheckpointSchedule::guess(spec, settings, rates, region_shape(spec, settings).bytes())
}

/// Opens a test on the ranks of `comm`, one for each position of its grid: finds the data that an
/// earlier start has left, rebuilds what is lost, and allocates the rest. Collective. The grid must
/// be built on [`Protected::comm`], where each rank has the position that its data belongs to.
pub fn open<'a>(
    comm: &Comm,
    spec: &TestSpec,
    settings: &Settings,
    context: TestContext<'a>,
) -> Result<Opened<'a, Protected<'a>>, CheckpointError> {
    let started = Instant::now();
    let TestContext {
        memory, nothing_hidden, host, hook, clock, end_unix, beginning, saved, ..
    } = context;
    let schedule = guessed_schedule(spec, settings, context.guessed);
    let shape = region_shape(spec, settings);
    let config = config(spec, settings, &memory, &host, STATE_FORMAT)?;
    // Images are written by another thread than those of the solver, on the core that is kept for
    // it, if any.
    let cpu = memory.process().0.helper_cpu();
    let config = Config {
        // Little compared with the matrix.
        in_flight_bytes: config.in_flight_bytes.min(shape.bytes() / 8),
        levels: images::open_levels(settings, memory.part(), spec.threads),
        nothing_hidden,
        image_writer: Writer::Thread(Arc::new(move || affinity::pin_as_planned(cpu))),
        ..config
    };
    let opened = match Checkpointer::open(comm, memory, config, &[shape], hook)? {
        protocol::Opened::Ready(opened) => opened,
        protocol::Opened::Finished(run) => return Ok(Opened::Done(run)),
    };
    let (checkpointer, recovered) = opened.recover()?;
    if let Some(recovered) = &recovered {
        compare_choices(&context.chosen, &recovered.state, checkpointer.comm())?;
    }
    let found = checkpointer.found().clone();
    let mut guard = Protected {
        settings: settings.clone(),
        overlaps: settings.overlaps(!checkpointer.found().single_domain),
        spec: spec.clone(),
        columns: spec.columns(),
        groups: found.groups.clone(),
        survives_nodes: !found.single_domain && found.shared_domain.is_none(),
        is_resumed: recovered.is_some(),
        recorder: Recorder::new(started, clock, end_unix, context.chosen),
        saved_panel: 0,
        refined: None,
        costs: CheckpointCosts::default(),
        earlier: PhaseTotals::default(),
        totals: PhaseTotals::default(),
        cut_at: started,
        cut_panel: 0,
        cut_stall_seconds: 0.0,
        schedule,
        due: 0,
        has_taken: false,
        has_warned: false,
        begun: None,
        beginning,
        saved,
        images_seen: ImagesSeen::default(),
        x_from: matrix_shape(spec).bytes(),
        checkpointer,
    };
    let reading = guard.recorder.begin_clock(guard.checkpointer.comm())?;
    if let Some(recovered) = &recovered {
        let state = serde_json::from_slice(&recovered.state);
        guard.take_state(state.expect("a state that this program wrote"));
    }
    let restarts = &guard.recorder.kept.restarts;
    let known = guard.beginning.as_ref().and_then(|at| at.read(spec, restarts));
    if recovered.is_some() || known.is_some() {
        guard.resume(recovered.as_ref(), known, found.load.as_deref(), &reading)?;
    } else {
        guard.recorder.kept.origin = Origin::new(guard.checkpointer.comm(), &reading, 0.0)?;
    }
    // Each rank has measured different times: those of rank 0 count.
    let state = collect::broadcast_json(guard.comm(), &guard.state(), 0)?;
    guard.take_state(state);
    guard.earlier = guard.totals;
    guard.note_images();
    guard.saved.take();
    Ok(Opened::Ready(Box::new(guard), found))
}

/// Compares what this start has chosen with the state that it resumes from, the same on all ranks.
/// The first prints the warning.
pub(super) fn compare_choices(
    chosen: &Chosen,
    state: &[u8],
    comm: &Comm,
) -> Result<(), CheckpointError> {
    if let Some(warning) = chosen.check(state)?
        && comm.rank() == 0
    {
        messages::print(format_args!("warning: {warning}"));
    }
    Ok(())
}

/// The configuration of a test's checkpointer. `format` has the name and the number of the form of
/// the method's state.
pub(super) fn config(
    spec: &TestSpec,
    settings: &Settings,
    memory: &TestSegments,
    host: &str,
    (format_name, format): (&str, u32),
) -> Result<Config, CheckpointError> {
    let mut application = serde_json::to_value(spec).expect("plain data");
    application[format_name] = format.into();
    let refused = |source| CheckpointError::Memory { what: "looking at the store".into(), source };
    let state_bytes = test_state_bytes(spec);
    let config = checkpoint_config(settings, memory, application.to_string(), host, state_bytes);
    let state_seconds = Some(state_seconds as StateSeconds);
    Ok(Config { align_bytes: ALIGN_BYTES, state_seconds, ..config.map_err(refused)? })
}

impl<'a> Protected<'a> {
    /// All ranks, in the order of their positions.
    pub fn comm(&self) -> &Comm {
        self.checkpointer.comm()
    }

    /// Whether the matrix comes from a checkpoint.
    pub fn is_resumed(&self) -> bool {
        self.is_resumed
    }

    /// The restart that this start is, if it is one.
    pub(crate) fn restart(&self) -> Option<&Restart> {
        self.recorder.restart()
    }

    /// What a checkpoint of this moment would have besides the matrix, except for the panel and the
    /// time.
    fn state(&self) -> TestState {
        let kept =
            KeptClock { column: self.column(self.saved_panel), ..self.recorder.kept.clone() };
        let earlier = EarlierStarts { totals: self.totals, interruptions: kept.interruptions };
        let (costs, refined) = (self.costs.clone(), self.refined.clone());
        TestState { kept, costs, earlier, refined }
    }

    /// Continues from the state of a checkpoint, with the choices of this start.
    fn take_state(&mut self, state: TestState) {
        let TestState { kept, costs, earlier: EarlierStarts { totals, interruptions }, refined } =
            state;
        self.saved_panel = kept.column.div_ceil(self.spec.nb);
        (self.costs, self.totals, self.refined) = (costs, totals, refined);
        let chosen = std::mem::take(&mut self.recorder.kept.chosen);
        self.recorder.kept = KeptClock { interruptions, chosen, ..kept };
    }

    /// Notes that this start resumes from a checkpoint, or begins with only the clock of earlier
    /// starts. `known` is what these have noted.
    fn resume(
        &mut self,
        recovered: Option<&Recovered>,
        known: Option<Begun>,
        load: Option<&Load>,
        reading: &ClockReading,
    ) -> Result<(), CheckpointError> {
        let kept = &mut self.recorder.kept;
        let taken_seconds = kept.elapsed_seconds;
        let mut seconds_min = taken_seconds;
        if let Some(known) = known {
            seconds_min = seconds_min.max(known.seconds_min());
            (kept.origin, kept.restarts) = (known.origin, known.restarts);
        }
        let column = self.column(self.saved_panel);
        let epoch = recovered.map_or(0, |recovered| recovered.epoch);
        if epoch > 0 {
            // The time of a checkpoint is known only once it is complete, so the checkpoint does
            // not have it.
            let seconds = 0.0;
            let last = Taken { start_seconds: taken_seconds, seconds, epoch, column, bytes: 0 };
            remember(&mut self.costs.taken, last, TAKEN_KEPT);
        }
        let restart = Restart {
            epoch,
            column,
            rebuilt_ranks: recovered.map_or(Vec::new(), |recovered| recovered.rebuilt.clone()),
            damaged_blocks: recovered.map_or(0, |recovered| recovered.repaired_cells),
            level: load.map(|load| self.settings.levels.0[load.level].name()),
            ..Restart::default()
        };
        let last_seconds = Recorder::last_alive_seconds(&self.checkpointer)?;
        let known = Known { saved_seconds: taken_seconds, last_seconds, seconds_min };
        Ok(self.recorder.resume(self.checkpointer.comm(), reading, known, restart)?)
    }

    /// What the protection was and did, for the report.
    pub fn protection(&self) -> Protection {
        let Settings { codec, region, parities, .. } = &self.settings;
        Protection {
            codec: codec.to_string(),
            encoder: "ring".into(),
            message_bytes: self.settings.message_bytes as u64,
            region: region.to_string(),
            groups: self.groups.len(),
            group_size: self.groups.iter().map(Vec::len).max().unwrap_or(0),
            parities: *parities,
            survives_nodes: self.survives_nodes,
            checkpoints: self.costs.checkpoints,
            overlap: self.overlaps,
            seconds: self.costs.seconds,
            saved_bytes: self.costs.saved_bytes,
            ..self.recorder.protection(&self.checkpointer, &self.settings, Protection::default())
        }
    }

    /// The result of the test for [`Protected::finish`]: its record, with the samples of this start
    /// and the events since the first one.
    pub(crate) fn result(&self, mut record: TestRecord, samples: &[Sample]) -> Vec<u8> {
        let members = self.groups.iter().map(Vec::len).min().unwrap_or(0);
        let smallest = Geometry { members, parities: self.settings.parities };
        record.memory = memory_split(&self.spec, &self.settings, Some(smallest));
        record.protection = Some(self.protection());
        let capacity_bytes = test_state_bytes(&self.spec);
        self.recorder.result(record, self.costs.taken.clone(), samples, capacity_bytes)
    }

    /// Ends the test: rank 0's `result` stays in shared memory until it is reported. Collective.
    pub fn finish(self, result: &[u8]) -> Result<Done<'a>, CheckpointError> {
        self.checkpointer.finish(result)
    }

    /// What may have changed since the last checkpoint, the same on all ranks.
    fn active(&self) -> Active {
        let done = self.column(self.saved_panel);
        let from = self.corner(done, done);
        match (self.costs.checkpoints, self.settings.region) {
            (0, _) | (_, Region::Whole) => Active::ALL,
            // x is below all columns of the matrix.
            (_, Region::Side | Region::Corner) if self.refined.is_some() => {
                Active { byte: 0, ..from }
            }
            (_, Region::Side) => Active { row: 0, ..from },
            (_, Region::Corner) => from,
        }
    }

    /// The local corner from global row `row` and column `column` on: the least of any rank. More
    /// than what has changed does no harm, and what is final on all ranks is final on each.
    fn corner(&self, row: usize, column: usize) -> Active {
        let TestSpec { nb, p, .. } = self.spec;
        let rows = Cyclic::rows(nb, p);
        let row = (0..p).map(|me| rows.count_before(row, me)).min().unwrap_or(0);
        let column = self.columns.min_count_before(column);
        Active { row, byte: column * self.spec.element_bytes() }
    }

    /// How the matrix becomes final from panel `next` on up to the cut before panel `due`. During
    /// the update by a panel the rows above it and the columns up to its own are final; during the
    /// last one the rest becomes final.
    fn stages(&self, next: usize, due: usize) -> Vec<Active> {
        let every = (due - next).div_ceil(TUNING.checkpoint_stages).max(1);
        let panels = (next..due).rev().step_by(every);
        let corner = |panel| self.corner(panel * self.spec.nb, (panel + 1) * self.spec.nb);
        let mut stages: Vec<_> = panels.map(corner).collect();
        stages.reverse();
        stages
    }

    /// Measures the pace between two cuts.
    fn measure(&mut self, next: usize) {
        let stall_seconds = self.stall_seconds() - self.cut_stall_seconds;
        let seconds = self.cut_at.elapsed().as_secs_f64() - stall_seconds;
        self.schedule.measure(self.cut_panel..next, seconds);
    }

    /// Seconds that the solver has stood still for the checkpoint that has begun.
    fn stall_seconds(&self) -> f64 {
        self.begun.as_ref().map_or(0.0, |begun| begun.stall.seconds())
    }

    /// Takes a checkpoint before panel `next`, or completes the one that has begun.
    fn checkpoint(&mut self, next: usize) -> Result<(), CheckpointError> {
        let (start, active) = (Instant::now(), self.active());
        let mut state = self.state();
        state.kept.column = self.column(next);
        state.kept.elapsed_seconds = self.recorder.seconds();
        state.costs.checkpoints += 1;
        let capacity_bytes = test_state_bytes(&self.spec);
        let (state, bytes) = result::fit(state, capacity_bytes, |state| &mut state.kept.restarts);
        let begun = self.begun.take();
        let (stats, skew_seconds) = match &begun {
            None => {
                // A rank that is early waits here for the others: this time is not the encoder's.
                self.checkpointer.comm().barrier()?;
                let skew_seconds = start.elapsed().as_secs_f64();
                (self.checkpointer.checkpoint(&[active], &bytes)?, skew_seconds)
            }
            Some(_) => {
                let stats = self.checkpointer.complete(&bytes)?;
                let after_seconds = stats.commit_seconds + stats.flush_seconds;
                // From this rank's arrival to the agreement, which all ranks leave together: the
                // last rank to arrive has the least.
                let agreed_seconds = start.elapsed().as_secs_f64() - after_seconds;
                let comm = self.checkpointer.comm();
                (stats, agreed_seconds + collect::max(comm, -agreed_seconds)?)
            }
        };
        let here_seconds = start.elapsed().as_secs_f64() - skew_seconds;
        // What `begin` has copied is counted there.
        let (begun_at, mut stall, copy_seconds) = match begun {
            None => (start, Stall::default(), stats.copy_seconds),
            Some(begun) => (begun.at, begun.stall, stats.flush_seconds),
        };
        stall.copy_seconds = copy_seconds;
        stall.agree_seconds =
            (stats.agree_seconds + stats.commit_seconds).min(here_seconds - copy_seconds);
        stall.encode_seconds = here_seconds - copy_seconds - stall.agree_seconds;
        let cost = CheckpointSeconds {
            checkpoint_seconds: begun_at.elapsed().as_secs_f64() - skew_seconds,
            stall_seconds: stall.seconds(),
            stall,
            skew_seconds,
            encode_seconds: stats.encode_seconds,
            copy_seconds: stats.copy_seconds,
        };
        self.count(state, &stats, cost)
    }

    /// Adds the cost of a checkpoint to the state that goes into the next checkpoint and into the
    /// report, as the maximum of each number over ranks. `state` is rank 0's.
    fn count(
        &mut self,
        state: TestState,
        stats: &Stats,
        cost: CheckpointSeconds,
    ) -> Result<(), CheckpointError> {
        const SECONDS: usize = size_of::<CheckpointSeconds>() / size_of::<f64>();
        let mut most = [0.0; 1 + SECONDS];
        most[0] = state.kept.elapsed_seconds;
        most[1..].copy_from_slice(&bytemuck::cast::<_, [f64; SECONDS]>(cost));
        collect::all_max(self.checkpointer.comm(), &mut most)?;
        let [elapsed_seconds, most @ ..] = most;
        let cost: CheckpointSeconds = bytemuck::cast(most);
        self.take_state(state);
        self.recorder.kept.elapsed_seconds = elapsed_seconds;
        let column = self.column(self.saved_panel);
        let costs = &mut self.costs;
        let sums: &mut [f64; SECONDS] = bytemuck::cast_mut(&mut costs.seconds);
        sums.iter_mut().zip(most).for_each(|(sum, seconds)| *sum += seconds);
        costs.saved_bytes += stats.encoded_bytes as u64;
        let taken = Taken {
            start_seconds: elapsed_seconds,
            seconds: cost.stall_seconds,
            epoch: self.checkpointer.epoch(),
            column,
            bytes: stats.encoded_bytes as u64,
        };
        self.saved.borrow_mut().push(Saved::Checkpoint {
            epoch: taken.epoch,
            column: taken.column,
            seconds: cost.checkpoint_seconds,
            stall_seconds: cost.stall_seconds,
        });
        remember(&mut costs.taken, taken, TAKEN_KEPT);
        self.schedule.cost_seconds = cost.stall_seconds;
        self.has_taken = true;
        Ok(())
    }

    fn note_images(&mut self) {
        let images = self.images_seen.completed(&self.checkpointer.level_reports());
        self.saved.borrow_mut().extend(images);
    }

    /// Whether all ranks take a checkpoint before panel `panel`, as rank 0 decides.
    fn decide(&mut self, panel: usize) -> Result<bool, CheckpointError> {
        let saved = self.saved_panel;
        if panel <= saved || panel < self.due {
            return Ok(false);
        }
        let takes = u8::from(self.learns() || self.schedule.is_worth_it(saved, panel));
        Ok(collect::broadcast_one(self.checkpointer.comm(), takes, 0)? != 0)
    }

    /// Whether all ranks take a checkpoint of what the refinement has reached, as rank 0 decides.
    fn decide_refined(
        &mut self,
        reached: &Refined,
        left: &RefinementLeft,
    ) -> Result<bool, CheckpointError> {
        let is_worth_it = self.learns()
            || self.schedule.is_worth_it_in_refinement(self.recorder.unsaved_seconds(), left);
        let takes = u8::from(self.is_unsaved(reached) && is_worth_it);
        Ok(collect::broadcast_one(self.checkpointer.comm(), takes, 0)? != 0)
    }

    /// Sets the panel before which the next checkpoint may be due, seen from panel `panel`. Returns
    /// the panel of the next cut: that one, or an earlier one before which to check the time.
    fn plan_next_cut(&mut self, panel: usize) -> Result<usize, CheckpointError> {
        let mut due = if panel < self.due {
            // The last cut was made only to check the time.
            self.due
        } else {
            let may_warn =
                self.has_taken && !self.has_warned && self.checkpointer.comm().rank() == 0;
            if let Some(warning) = self.schedule.warning().filter(|_| may_warn) {
                self.has_warned = true;
                messages::print(format_args!("warning: {warning}"));
            }
            self.schedule.next_due(panel)
        };
        if self.learns() {
            due = due.min(self.schedule.after(panel, self.recorder.time_left().learn_after()));
        }
        let ahead = self.ahead(self.schedule.seconds_ahead(panel));
        let seconds = self
            .recorder
            .time_left()
            .look_after(&ahead)
            .min(TUNING.look_for_signals_seconds as f64);
        let look = self.schedule.after(panel, seconds);
        let [due, look] = collect::broadcast_one(self.checkpointer.comm(), [due, look], 0)?;
        self.due = due;
        Ok(due.min(look))
    }

    /// Whether this start has limited time and has not measured a checkpoint yet. Rank 0's answer
    /// counts.
    fn learns(&self) -> bool {
        self.recorder.is_limited() && !self.has_taken
    }

    /// The predicted times at a cut before these seconds of the next step and of the rest.
    fn ahead(&self, (step_seconds, rest_seconds): (f64, f64)) -> Ahead {
        let save_seconds = self.schedule.cost_seconds + self.recorder.image_seconds;
        Ahead { step_seconds, rest_seconds, save_seconds }
    }

    /// Whether the run must stop here, before these seconds of the next step and of the rest: by
    /// rank 0's clock, or by a signal on any rank. The result is the same on all ranks. Also sums
    /// up the phases, of which this rank's are `phases`, for the checkpoint that may be taken at
    /// this cut. Collective.
    fn is_time_up(
        &mut self,
        seconds_ahead: (f64, f64),
        phases: &Phases,
    ) -> Result<bool, CheckpointError> {
        let phases = phases.with_total(self.recorder.start.elapsed().as_secs_f64());
        let mut mine = [0.0; 2 + size_of::<PhaseParts>() / size_of::<f64>()];
        mine[0] = f64::from(deadline::is_asked());
        mine[1] = self.checkpointer.seconds_of_images();
        mine[2..].copy_from_slice(&phases.to_parts());
        let [max, mean] = ptest::max_and_mean(self.checkpointer.comm(), mine)?;
        let ([is_asked, image_seconds, max @ ..], [_, _, mean @ ..]) = (max, mean);
        self.recorder.image_seconds = image_seconds;
        self.totals = self.earlier + PhaseTotals { max, mean };
        let is_over = self.recorder.time_left().is_over(&self.ahead(seconds_ahead));
        let stops = u8::from(is_asked > 0.0 || is_over);
        Ok(collect::broadcast_one(self.checkpointer.comm(), stops, 0)? != 0)
    }

    /// Saves the state before panel `next` if it `is_unsaved`, with images on all levels, and waits
    /// until all are complete. Returns the error that the run ends with. Collective.
    fn stop(&mut self, next: usize, is_unsaved: bool) -> Result<SolveError, CheckpointError> {
        let has_levels = !self.settings.levels.0.is_empty();
        if has_levels || is_unsaved || self.begun.is_some() {
            self.checkpointer.make_images_due();
            self.checkpoint(next)?;
        }
        let column = self.column(next);
        self.recorder.stop(&mut self.checkpointer, &self.settings, column)
    }

    fn panels(&self) -> usize {
        Params::from(&self.spec).panels()
    }

    /// The first column of a panel, or the number of columns.
    fn column(&self, panel: usize) -> usize {
        (panel * self.spec.nb).min(self.spec.n)
    }

    /// Whether the last checkpoint is from before what the refinement has `reached`.
    fn is_unsaved(&self, reached: &Refined) -> bool {
        let saved_steps = self.refined.as_ref().map_or(0, |kept| kept.steps.len());
        (self.panels(), reached.steps.len()) > (self.saved_panel, saved_steps)
    }

    /// Puts what the refinement has reached where the next checkpoint saves it.
    fn keep_refined(&mut self, reached: &Refined) {
        let place = &mut self.checkpointer.region(0)[self.x_from..];
        bytemuck::cast_slice_mut(place)[..reached.x.len()].copy_from_slice(&reached.x);
        self.refined = Some(Refined { x: Vec::new(), ..reached.clone() });
    }

    /// Writes the note about the beginning of the test, once in a start.
    fn note_beginning(&mut self) -> Result<(), CheckpointError> {
        let Some(beginning) = self.beginning.take() else { return Ok(()) };
        let KeptClock { origin, restarts, .. } = self.recorder.kept.clone();
        let begun = Begun::new(&self.spec, origin, restarts);
        let begun = collect::broadcast_json(self.comm(), &begun, 0)?;
        beginning.note(&begun).map_err(|why| CheckpointError::Memory {
            what: "noting when the test began".into(),
            source: io::Error::other(why),
        })
    }

    fn cut_here(&mut self, next: usize) -> Result<usize, CheckpointError> {
        self.note_beginning()?;
        let to = if self.overlaps {
            self.cut_ahead(next)?
        } else {
            if self.decide(next)? {
                if self.learns() {
                    self.checkpointer.make_images_due();
                }
                self.checkpoint(next)?;
            }
            self.plan_next_cut(next)?
        };
        self.note_images();
        (self.cut_panel, self.cut_at) = (next, Instant::now());
        self.cut_stall_seconds = self.stall_seconds();
        Ok(to)
    }

    /// With overlap, a checkpoint begins as soon as the next one is scheduled, and is encoded
    /// during all updates until then.
    fn cut_ahead(&mut self, next: usize) -> Result<usize, CheckpointError> {
        if self.begun.is_some() && next < self.due {
            return self.plan_next_cut(next);
        }
        if self.begun.is_some() {
            if self.learns() {
                self.checkpointer.make_images_due();
            }
            self.checkpoint(next)?;
        }
        let to = self.plan_next_cut(next)?;
        if self.due > next && self.decide(self.due)? {
            let (at, active) = (Instant::now(), self.active());
            let stages = self.stages(next, self.due);
            self.checkpointer.begin_in_stages(&[active], &[stages])?;
            let begin_seconds = at.elapsed().as_secs_f64();
            self.begun =
                Some(BegunCheckpoint { at, stall: Stall { begin_seconds, ..Stall::default() } });
        }
        Ok(to)
    }
}

pub(super) fn solve_error(panel: usize, error: CheckpointError) -> SolveError {
    match error {
        CheckpointError::Comm(error) => SolveError::Comm(error),
        error => SolveError::Checkpoint { panel, why: error.to_string() },
    }
}

// SAFETY: the methods of the checkpointer that it calls read and write memory of this process and
// of its group, and send messages; they do not use the store, whose team is bound to its thread.
unsafe impl Background for Protected<'_> {
    fn is_active(&self) -> bool {
        self.begun.is_some()
    }

    fn end(&self) -> usize {
        if self.begun.is_some() { self.due } else { 0 }
    }

    fn progress(&mut self, done: Final) -> Result<Remaining, SolveError> {
        if self.begun.is_none() {
            return Ok(Remaining::Nothing);
        }
        let byte = done.cols().saturating_mul(self.spec.element_bytes());
        let outside = Active { row: done.rows(), byte };
        // SAFETY: nothing writes to the final part before the cut, nor then before `complete` has
        // returned.
        unsafe { self.checkpointer.ready(0, outside) };
        match self.checkpointer.poll() {
            Ok(Polled::Done | Polled::Idle) => Ok(Remaining::Nothing),
            Ok(Polled::Waiting) => Ok(Remaining::Messages),
            Ok(Polled::More) => Ok(Remaining::Work),
            Err(error) => Err(solve_error(self.due, error)),
        }
    }

    fn add_stall(&mut self, seconds: f64) {
        if let Some(begun) = &mut self.begun {
            begun.stall.turn_seconds += seconds;
        }
    }

    fn panel_done(&mut self) {
        self.recorder.note_alive(&mut self.checkpointer);
    }
}

impl<T: Element> Guard<T> for Protected<'_> {
    fn matrix(&mut self) -> &mut [T] {
        bytemuck::cast_slice_mut(self.checkpointer.region(0))
    }

    fn lend(&mut self, shape: LocalShape<T>) -> (SharedMat<'_, T>, &mut dyn Background) {
        let LocalShape { rows, cols, lda, .. } = shape;
        let (a, bytes) = self.checkpointer.region_at(0);
        // SAFETY: the region stays at its address as long as the checkpointer is borrowed, begins
        // on a page, and all of its bytes form numbers. While the solver runs it is only read, and
        // only where the solver has called it final.
        let a = unsafe { MatMut::row_major_at(a.cast(), bytes / size_of::<T>(), rows, cols, lda) };
        (a.share(), self)
    }

    fn start(&mut self) -> usize {
        self.recorder.begin_timed_part();
        (self.cut_panel, self.cut_at) = (self.saved_panel, self.recorder.start);
        self.due = self.saved_panel;
        self.saved_panel
    }

    fn cut(&mut self, next: usize, _: usize, phases: &Phases) -> Result<usize, SolveError> {
        let error = |error| solve_error(next, error);
        if next > self.cut_panel {
            self.measure(next);
        }
        if self.is_time_up(self.schedule.seconds_ahead(next), phases).map_err(error)? {
            return Err(self.stop(next, next > self.saved_panel).map_err(error)?);
        }
        self.cut_here(next).map_err(error)
    }

    fn earlier(&self) -> EarlierStarts {
        let interruptions = self.recorder.kept.interruptions;
        EarlierStarts { totals: self.earlier, interruptions }
    }

    fn seconds(&self) -> f64 {
        self.recorder.seconds()
    }
}

impl RefinementGuard for Protected<'_> {
    fn take_refined(&mut self, columns: usize) -> Option<Refined> {
        let Some(kept) = self.refined.clone() else {
            return self.recorder.factored_seconds(self.spec.n).map(Refined::after_factorization);
        };
        let correction_seconds = self.recorder.correction_seconds(kept.factor_seconds, &kept.steps);
        let x = bytemuck::cast_slice(&self.checkpointer.region(0)[self.x_from..]);
        Some(Refined { x: x[..columns].to_vec(), correction_seconds, ..kept })
    }

    fn cut_refinement(
        &mut self,
        reached: &Refined,
        left: &RefinementLeft,
        phases: &Phases,
    ) -> Result<(), SolveError> {
        self.recorder.note_alive(&mut self.checkpointer);
        self.note_images();
        self.check_time_within_step(reached, left, phases)?;
        let panels = self.panels();
        let error = |error| solve_error(panels, error);
        if !self.decide_refined(reached, left).map_err(error)? {
            return Ok(());
        }
        self.keep_refined(reached);
        if self.learns() {
            self.checkpointer.make_images_due();
        }
        self.checkpoint(panels).map_err(error)
    }

    fn check_time_within_step(
        &mut self,
        reached: &Refined,
        left: &RefinementLeft,
        phases: &Phases,
    ) -> Result<(), SolveError> {
        let panels = self.panels();
        let error = |error| solve_error(panels, error);
        let seconds_ahead = self.schedule.seconds_ahead_in_refinement(left);
        if !self.is_time_up(seconds_ahead, phases).map_err(error)? {
            return Ok(());
        }
        let is_unsaved = self.is_unsaved(reached);
        self.keep_refined(reached);
        Err(self.stop(panels, is_unsaved).map_err(error)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Programs with the same [`STATE_FORMAT`] continue each other's runs: other bytes need the
    /// next number.
    #[test]
    fn bytes_of_a_state_match_its_format() {
        assert_eq!(STATE_FORMAT.1, 7, "and other bytes here");
        let json = concat!(
            r#"{"column":512,"elapsed_seconds":9.1,"origin":{"unix_seconds":1700000000.5,"#,
            r#""uptimes":[[7,12.5],[18446744073709551615,0.1]]},"restarts":[{"epoch":4,"#,
            r#""column":512,"rebuilt_ranks":[1,3],"damaged_blocks":2,"start_seconds":7.25,"#,
            r#""lost_seconds":1.5,"down_seconds":0.5,"recover_seconds":0.125,"is_by_wall_clock":true,"#,
            r#""wall_clock_step_seconds":-3.5,"repair_seconds":null,"undone_ranks":0,"#,
            r#""level":"disk"}],"chosen":{"blas":{"named":"x","called":{"words":"X 1","#,
            r#""kernel":"Zen","files":{"libx.so":"77"},"is_built_in":false}}},"checkpoints":3,"#,
            r#""checkpoint_seconds":0.3,"stall_seconds":0.2,"stall":{"begin_seconds":0.01,"#,
            r#""turn_seconds":0.02,"encode_seconds":0.03,"agree_seconds":0.04,"#,
            r#""copy_seconds":0.05},"skew_seconds":0.06,"encode_seconds":0.07,"#,
            r#""copy_seconds":0.08,"saved_bytes":18446744073709551615,"#,
            r#""taken":[[1.5,0.0,4,512,1048576]],"#,
            r#""earlier":{"totals":{"max":[0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9],"#,
            r#""mean":[0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9]},"interruptions":{"#,
            r#""lost_seconds":1.0,"down_seconds":2.0,"recovery_seconds":3.0}}}"#,
        );
        let state: TestState = serde_json::from_str(json).expect("a state of this format");
        assert_eq!(serde_json::to_string(&state).expect("plain data"), json);
    }
}
