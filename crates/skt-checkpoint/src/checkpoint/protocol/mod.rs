//! The checkpoint protocol, one line per step.
//!
//! It has four drivers: [`Checkpointer::open`], [`Checkpointer::recover`],
//! [`Checkpointer::checkpoint`] and [`Checkpointer::finish`]. A checkpoint is
//! [`Checkpointer::begin`] followed by [`Checkpointer::complete`]; an application that computes in
//! between calls these two itself. What the methods do differently between the first step and the
//! last is in `self_checkpoint`, `copying` and `abft`; read `self_checkpoint` first. The
//! numbers are those of docs/protocol.md, which explains what may be lost between any two lines,
//! and why. The names after the numbers are those of [`StepName`], the points at which a test kills
//! each rank. All calls return [`CheckpointError::Comm`] when a rank died.
//!
//! | | holds |
//! |---|---|
//! | A | the application's workspace |
//! | B | a copy of A, of the epoch stamped last |
//! | C | the parities of the B of a group |
//! | D | the parities of A, in the other of two sets; a stamp swaps C and D |

mod abft;
mod checkpointer;
mod copying;
pub mod finish;
mod joining;
pub mod recover;
mod restore;
mod self_checkpoint;
mod verify;

use std::sync::Arc;
use std::time::Instant;

use super::alike;
pub use super::config::{Config, MESSAGE_BYTES};
use super::decide::{Decision, Refusal, Resume};
pub use super::error::{CheckpointError, Result};
use super::hook::{Hook, Step, StepName};
use super::level::Rotten;
pub use super::memory::{Hold, Memory, OpenSegment};
use super::methods::Method;
use super::schedule::UnderWay;
pub use super::schedule::{Polled, Stats};
use super::segment::Loaded;
use super::start::Start;
pub use checkpointer::Checkpointer;
use finish::FinishedRun;
use joining::slots_of_levels;
use recover::Recovered;
use skt_comm::Comm;
use skt_comm::collect::{all_reduce, broadcast_bytes, roll_call};
use skt_host::waits::Announced;
use skt_store::layout::{Active, RegionShape};

/// The run, as [`Checkpointer::open`] found it.
pub enum Opened<'n> {
    /// There is work to do: call [`Checkpointer::recover`] next.
    Ready(Box<Checkpointer<'n>>),
    /// An earlier start completed the run; its result is known.
    Finished(FinishedRun<'n>),
}

impl<'n> Checkpointer<'n> {
    /// Finds the run's segments and images, agrees with all processes on the rank of each and on
    /// the epoch to resume from, and creates the segments that are missing. Collective over `comm`,
    /// which has one process per rank, or fewer (see [`Config::may_lose`]).
    ///
    /// [`Checkpointer::rank`] is the rank of this process in the run, which need not be its rank in
    /// `comm`. Call [`Checkpointer::recover`] next. [`CheckpointError::Refused`] on all processes,
    /// with nothing changed, when the job cannot resume; any other error on the process where it
    /// happens.
    pub fn open(
        comm: &Comm,
        memory: impl Memory + 'n,
        config: Config,
        shapes: &[RegionShape],
        hook: Arc<dyn Hook>,
    ) -> Result<Opened<'n>> {
        if let Some(difference) = alike::compare(comm, &config.settings(shapes))? {
            return Err(Refusal::Disagree(difference).into());
        }
        if !config.levels.is_empty() && !config.method.has_images() {
            return Err(CheckpointError::NoLevels(config.method));
        }
        Self::open_after(comm, Box::new(memory), config, shapes, hook, None, Vec::new())
    }

    /// [`Self::open`] for a start that keeps its hold and its findings from an `earlier` decision.
    pub(super) fn open_after(
        comm: &Comm,
        memory: Box<dyn Memory + 'n>,
        config: Config,
        shapes: &[RegionShape],
        hook: Arc<dyn Hook>,
        lock: Option<Hold>,
        rotten: Vec<Rotten>,
    ) -> Result<Opened<'n>> {
        let parameters = config.parameters(shapes, config.ranks(comm.size()));
        let is_lasting = config.method != Method::None;

        // 1 lock, agree: nothing changes, and what all have decided still holds.
        let (mut start, decision) =
            Start::decide(comm, memory, &config, parameters, hook, lock, rotten)?;
        let mut plan = match decision {
            Decision::Work(plan) => plan,
            Decision::Finished(finished) => {
                let run = FinishedRun::found(comm, start, config.chunk_bytes, finished)?;
                return Ok(Opened::Finished(run));
            }
        };
        let process = comm.rank();
        let segment = start.take(comm, plan.attach[process].as_slice())?.pop();
        let slots = slots_of_levels(comm, &start, &mut plan, &config, shapes)?;

        // From here on a restart passes over checkpoints newer than a chosen one.
        start.note_choice(comm, &plan)?;

        // 2 discard: room is freed on all nodes before anything new is created there.
        let mut wait = Announced::begin("all ranks to remove what cannot be used");
        start.discard(&plan.discard[process], plan.epoch)?;
        if config.resume == Resume::Never {
            start.discard_all_images(&plan)?;
        }
        roll_call(comm)?;
        wait.update("all ranks to create their segments");

        // 3 create, join: nothing that a later start could need changes.
        let is_new = segment.is_none();
        let mut this = Self::create(comm, start, segment, plan, config, shapes, &slots)?;
        if is_lasting {
            this.segment.join(&this.plan, is_new)?;
            this.joined()?;

            // 4 confirm: the record names this start and has COMMIT(E).
            this.segment.confirm(&this.plan)?;
        }
        Ok(Opened::Ready(Box::new(this)))
    }

    /// Brings all ranks to the epoch that was agreed on. Returns `None` when there is no epoch and
    /// the application starts from the beginning. Collective.
    ///
    /// If more is damaged than can be rebuilt, recovers from the newest sound images, or returns
    /// [`CheckpointError::Refused`] on all processes. This may change [`Checkpointer::rank`] and
    /// [`Checkpointer::found`]: read them after this call.
    pub fn recover(self: Box<Self>) -> Result<(Box<Self>, Option<Recovered>)> {
        let (start, mut this) = (Instant::now(), self);
        loop {
            match this.recover_from_found(start) {
                Err(CheckpointError::Refused(refusal @ Refusal::Damaged { .. }))
                    if !this.config.levels.is_empty() =>
                {
                    this = this.open_without(refusal)?;
                }
                recovered => return recovered.map(|recovered| (this, recovered)),
            }
        }
    }

    /// [`Self::recover`] from the epoch that was agreed on, without falling back to other images.
    fn recover_from_found(&mut self, start: Instant) -> Result<Option<Recovered>> {
        let epoch = self.plan.epoch;
        if epoch == 0 {
            self.images.discard_superfluous(&self.segment, &self.plan)?;
            return Ok(None);
        }
        if self.config.method == Method::Abft {
            return self.recover_abft().map(Some);
        }
        // 4 recover-load: B, C and their checksums come from this rank's image.
        let Loaded { failure, .. } = self.load_image(epoch)?;
        let _wait = Announced::begin("all ranks to recover");

        // 5 recover-verify: finds damage in the survivors' data and parities.
        let damaged = self.verify(epoch, failure)?;
        let lost = self.lost_members();

        // 6 recover-flush, recover-stamp: B := A where (A, D) holds the epoch.
        self.segment.finish_flush(epoch, self.holds(epoch))?;

        // 7 recover-rebuild, recover-repair, recover-stamp: B and C of the lost members.
        self.encoding.rebuild(&mut self.segment, epoch, &lost)?;
        let repaired = self.encoding.repair(&mut self.segment, epoch, &damaged, &lost)?;
        let mut repaired = [repaired as u64];
        self.segment.stamp_rebuilt(epoch, &self.plan.state)?;

        // 8 recover-copy: A := B, D := C.
        self.segment.reset_workspace(epoch)?;

        all_reduce(&self.job, &mut repaired, |a, b| a + b)?;
        if repaired[0] > 0 {
            self.follow_images_at_once();
        }

        // 9 discard: the images that no start needs, now that all are at the epoch.
        self.images.discard_superfluous(&self.segment, &self.plan)?;
        self.segment.set_ready();
        Ok(Some(Recovered {
            epoch,
            state: self.segment.record().state().to_vec(),
            rebuilt: self.plan.lost.clone(),
            repaired_cells: repaired[0] as usize,
            seconds: start.elapsed().as_secs_f64(),
        }))
    }

    /// Takes a checkpoint. Collective over the job, at a consistent cut: no message of the
    /// application is in transit.
    ///
    /// `active` is the part of each region that may have changed since the last checkpoint
    /// ([`Config::check_frozen`] asserts it); a group uses the least of its members. `state` is
    /// saved with the checkpoint; that of rank 0 counts, so it must mean the same to all ranks.
    pub fn checkpoint(&mut self, active: &[Active], state: &[u8]) -> Result<Stats> {
        self.check_room(state)?;
        // All rows are ready, and nothing can change them before this returns.
        self.begin_in(active, None)?;
        self.complete(state)
    }

    /// Begins the next epoch, before its cut and after the last one is complete. Collective over
    /// the job. `active` is the part of each region that may change between the last checkpoint and
    /// the cut ([`Config::check_frozen`] asserts it); a group uses the least of its members.
    pub fn begin(&mut self, active: &[Active]) -> Result<()> {
        self.begin_in_stages(active, &vec![Vec::new(); active.len()])
    }

    /// [`Checkpointer::begin`] for an application whose rows do not become final from the first to
    /// the last. For each region `stages` lists corners, each within the one before: stage by stage
    /// everything outside the next corner becomes final, and inside the last one the rows become
    /// final in order. The active part is encoded in this order; if rows become final in another
    /// order, the result is the same, only later. All members of a group name the same number of
    /// stages; a group uses the least of each.
    pub fn begin_in_stages(&mut self, active: &[Active], stages: &[Vec<Active>]) -> Result<()> {
        self.begin_in(active, Some(stages))
    }

    /// Begins the next epoch; `stages` is `None` when everything is final already.
    fn begin_in(&mut self, active: &[Active], stages: Option<&[Vec<Active>]>) -> Result<()> {
        self.segment.assert_ready();
        assert!(self.under_way.is_none(), "complete the epoch that has begun first");
        assert_eq!(active.len(), self.segment.layout.regions.len(), "one entry a region");
        assert!(stages.is_none_or(|stages| stages.len() == active.len()), "one list a region");
        self.images.advance();
        if !self.config.method.encodes() {
            return Ok(());
        }
        self.segment.record().assert_settled();
        let epoch = self.segment.record().stamped() + 1;
        let mut stats = Stats { epoch, ..Stats::default() };

        // 1 checkpoint: the group agrees on the least active row and column.
        self.segment.step(Step::new(StepName::Checkpoint, epoch))?;
        let (active, stages) = self.encoding.agree_on_parts(&self.segment, active, stages)?;
        if self.config.check_frozen && epoch > 1 {
            self.segment.assert_frozen(&active);
        }
        // 2 carry, 3 encode: what is final is encoded from here on.
        let schedule = match self.config.method {
            Method::SelfCheckpoint => {
                Some(self.begin_self(epoch, &active, stages.as_deref(), &mut stats)?)
            }
            _ => None,
        };
        let ready = vec![Active::ALL; active.len()];
        self.under_way = Some(UnderWay { epoch, active, ready, schedule, stats });
        Ok(())
    }

    /// Completes the epoch that has begun at its cut, where all rows are as they are to be saved:
    /// waits until the whole job has encoded, and commits the epoch with `state`, which is that of
    /// rank 0 and must mean the same to all. Collective over the job; no message of the application
    /// from before the cut is in transit. [`CheckpointError::StateTooLarge`] with nothing done.
    pub fn complete(&mut self, state: &[u8]) -> Result<Stats> {
        self.check_room(state)?;
        match self.config.method {
            Method::None => return Ok(Stats::default()),
            Method::Abft => return self.checkpoint_abft(state),
            Method::SelfCheckpoint | Method::Double | Method::Single => {}
        }
        let UnderWay { epoch, active, schedule, mut stats, .. } =
            self.under_way.take().expect("an epoch that has begun");

        // 3 encode: the rest of D := parities of A.
        if let Some(schedule) = schedule {
            self.encoding.finish(&mut self.segment, schedule, &mut stats)?;
            if self.config.check_frozen {
                self.segment.assert_carried(&active);
            }
        }
        self.images.advance();
        let (start, mut state) = (Instant::now(), state.to_vec());
        // Rank 0 appends which images are due, so one broadcast carries both.
        self.images.append_due(&self.job, &mut state);
        broadcast_bytes(&self.job, &mut state, 0)?;
        let due = self.images.split_off_due(&mut state);
        match self.config.method {
            // 4 barrier, 5 commit, 6 flush, 7 stamp.
            Method::SelfCheckpoint => {
                self.checkpoint_self(epoch, &active, state, start, &mut stats)?;
            }
            Method::Double | Method::Single => {
                self.checkpoint_copying(epoch, &active, state, &mut stats)?;
            }
            Method::Abft | Method::None => unreachable!("returned above"),
        }
        self.images.write(&mut self.segment, epoch, due);
        self.segment.last_active = active;
        Ok(stats)
    }

    /// Ends the run, with no epoch under way: stores its result (that of rank 0) in all segments,
    /// after which no start computes from them. Collective. After [`CheckpointError::Comm`] the
    /// next start resumes from the last checkpoint, or gets the result.
    pub fn finish(mut self, result: &[u8]) -> Result<FinishedRun<'n>> {
        assert!(self.under_way.is_none(), "complete the epoch that has begun first");

        // 1 finish: all have come to the end and take the result of rank 0.
        let result = self.agree_on_result(result)?;

        if self.config.method != Method::None {
            // 2 mark: the record holds the result.
            self.segment.mark(&result)?;

            // 3 marked: all ranks have marked their segments.
            self.marked()?;
        }
        Ok(self.into_finished(result))
    }
}
