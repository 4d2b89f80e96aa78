//! The self-checkpoint protocol (Tang et al., TPDS 2018, section 4), a line a step.
//!
//! Four drivers: [`Checkpointer::open`], [`Checkpointer::recover`],
//! [`Checkpointer::checkpoint`] and [`Checkpointer::finish`]. A checkpoint is
//! [`Checkpointer::begin`] (steps 1 to 3) and [`Checkpointer::complete`] (3 to 7), which an
//! application that computes meanwhile calls itself. The numbers are those of
//! docs/protocol.md, which says what may be lost between any two lines, and why;
//! the names behind them are those of [`StepName`], places at which a test has each rank die.
//!
//! | | holds |
//! |---|---|
//! | A | the application's workspace |
//! | B | a copy of A, of the epoch stamped last |
//! | C | the parities of the B of a group |
//! | D | the parities of A, the other one of the two sets |

use std::sync::Arc;
use std::time::Instant;

use super::agree::{Decision, Refusal, Resume};
pub use super::checkpointer::Checkpointer;
use super::code::Code;
pub use super::config::Config;
pub use super::error::{CheckpointError, Result};
use super::finish::FinishedRun;
use super::hook::{Hook, Step, StepName};
use super::layout::{Active, RegionShape};
pub use super::memory::{Memory, Peer};
use super::methods::Method;
pub use super::opening::Found;
use super::opening::{Earlier, Opening};
use super::recover::Recovered;
use super::schedule::UnderWay;
pub use super::schedule::{Polled, Stats};
use crate::comm::Comm;
use crate::comm::collect::{all_reduce, broadcast_bytes};

/// A run as a start has found it.
pub enum Opened<C: Comm, M: Memory, K> {
    /// There is work to do, once it is recovered.
    Ready(Box<Checkpointer<C, M, K>>),
    /// An earlier start has come to the end.
    Finished(FinishedRun<C, M>),
}

impl<C: Comm, M: Memory, K: Code + Clone> Checkpointer<C, M, K> {
    /// Finds what there is of the run, agrees with all processes on who takes
    /// which rank and on the epoch to go on from, and makes what is missing.
    /// Collective over `comm`, which has one process for each rank, or
    /// fewer, see [`Config::bears`].
    ///
    /// The rank of this process in the run is [`Checkpointer::rank`], which
    /// need not be its rank in `comm`. Call [`Checkpointer::recover`] next.
    ///
    /// Where an earlier start has come to the end of the run, there is no
    /// checkpointer but the result, see [`Opened::Finished`].
    ///
    /// # Errors
    /// [`CheckpointError::Refused`] on all processes, with nothing changed,
    /// when the job cannot go on; the others as they happen, on one process.
    pub fn open(
        comm: &C,
        memory: M,
        config: Config<K>,
        shapes: &[RegionShape],
        hook: Arc<dyn Hook>,
    ) -> Result<Opened<C, M, K>> {
        if !config.levels.is_empty() && !config.method.has_images() {
            return Err(CheckpointError::NoLevels(config.method));
        }
        Self::open_after(comm, memory, config, shapes, hook, Earlier::nothing())
    }

    /// The same, of a start that has something from `earlier`.
    pub(super) fn open_after(
        comm: &C,
        memory: M,
        config: Config<K>,
        shapes: &[RegionShape],
        hook: Arc<dyn Hook>,
        earlier: Earlier<M::Lock>,
    ) -> Result<Opened<C, M, K>> {
        let parameters = config.parameters(shapes, config.ranks(comm.size()));
        let is_lasting = config.method != Method::None;

        // 1 lock, agree: nothing changes, and what all have decided on still stands.
        let (mut opening, decision) =
            Opening::agree(comm, memory, &config, parameters, hook, earlier)?;
        let mut plan = match decision {
            Decision::Work(plan) => plan,
            Decision::Finished(finished) => {
                let run = FinishedRun::found(comm, opening, config.chunk_bytes, finished)?;
                return Ok(Opened::Finished(run));
            }
        };
        let process = comm.rank();
        let segment = opening.take(comm, plan.attach[process].as_slice())?.pop();
        let slots = Self::slots_of_levels(comm, &opening, &mut plan, &config, shapes)?;

        // 2 discard: room is made on all nodes before anything new is put there.
        opening.discard(&plan.discard[process], plan.epoch)?;
        if config.resume == Resume::Never {
            opening.discard_all_images(&plan)?;
        }
        comm.barrier()?;

        // 3 create, join: nothing that a later start could miss changes.
        let is_new = segment.is_none();
        let mut this = Self::create(comm, opening, segment, plan, config, shapes, &slots)?;
        if is_lasting {
            this.join(is_new)?;
            this.joined()?;
            this.meet_peers(is_new)?;

            // 4 confirm: the record names this start, and has COMMIT(E).
            this.confirm()?;
            this.prepare_to_encode()?;
        }
        Ok(Opened::Ready(Box::new(this)))
    }

    /// Brings all ranks to the epoch that was agreed on; `None` when there is
    /// none, and the application starts from the beginning. Collective.
    ///
    /// If more is damaged than can be rebuilt, recovers from the newest sound images. This
    /// may change [`Checkpointer::rank`] and [`Checkpointer::found`]: read them after this
    /// call.
    ///
    /// # Errors
    /// When a rank dies meanwhile; a new start of the job begins anew.
    /// [`CheckpointError::Refused`] on all processes when there is nothing sound.
    pub fn recover(self: Box<Self>) -> Result<(Box<Self>, Option<Recovered>)> {
        let (start, mut this) = (Instant::now(), self);
        loop {
            match this.recover_from_found(start) {
                Err(CheckpointError::Refused(
                    refusal @ (Refusal::Damaged { .. } | Refusal::RottenImages { .. }),
                )) if !this.config.levels.is_empty() => {
                    this = this.open_without(refusal)?;
                }
                recovered => return recovered.map(|recovered| (this, recovered)),
            }
        }
    }

    /// The same, from the epoch that was agreed on alone.
    fn recover_from_found(&mut self, start: Instant) -> Result<Option<Recovered>> {
        let epoch = self.plan.epoch;
        if epoch == 0 {
            self.discard_superfluous_images()?;
            return Ok(None);
        }
        if self.config.method == Method::Abft {
            return self.recover_abft().map(Some);
        }
        // 4 recover-load: B, C and their checksums from the image of this rank.
        let loaded_bytes = self.load_image(epoch)?;

        // 5 recover-verify: what is damaged, of the survivors' data and parities.
        let damaged = self.verify(epoch)?;
        let lost = self.lost_members();

        // 6 recover-flush, recover-stamp: B := A where A and D are what counts.
        let mut copied_bytes = self.finish_flush(epoch)?;

        // 7 recover-rebuild, recover-mend, recover-stamp: B and C of the lost members.
        let rebuilt_bytes = self.rebuild(epoch, &lost)?;
        let mut mended = [self.mend(epoch, &damaged, &lost)? as u64];
        self.stamp_rebuilt(epoch)?;

        // 8 recover-copy: A := B, D := C.
        copied_bytes += self.reset_workspace(epoch)?;

        all_reduce(&self.job, &mut mended, |a, b| a + b)?;
        if mended[0] > 0 {
            self.follow_images_at_once();
        }

        // 9 discard: the images that no start needs; all are at the epoch.
        self.discard_superfluous_images()?;
        self.ready = true;
        Ok(Some(Recovered {
            epoch,
            state: self.record.state().to_vec(),
            rebuilt: self.plan.lost.clone(),
            rebuilt_bytes,
            copied_bytes,
            loaded_bytes,
            mended_cells: mended[0] as usize,
            seconds: start.elapsed().as_secs_f64(),
        }))
    }

    /// Takes a checkpoint. Collective over the job, at a consistent cut: no
    /// message of the application is under way.
    ///
    /// `active` says for each region what may have changed since the last
    /// checkpoint; a group uses the least of its members. `state` is kept with
    /// it; it is that of rank 0 which counts, so it must mean the same to all.
    ///
    /// # Errors
    /// [`CheckpointError::Comm`] when a rank died; then only `open` in a new
    /// start of the job helps. [`CheckpointError::StateTooLarge`].
    ///
    /// # Panics
    /// With `check_frozen`, when something outside of `active` has changed.
    pub fn checkpoint(&mut self, active: &[Active], state: &[u8]) -> Result<Stats> {
        self.check_room(state)?;
        // All rows are ready, and nobody can change them before this returns.
        self.begin_in(active, None)?;
        self.complete(state)
    }

    /// Begins the next epoch, whose cut is still to come. Collective over the job.
    ///
    /// `active` says for each region what may have changed, by the time of the
    /// cut, since the last checkpoint; a group uses the least of its members.
    ///
    /// # Errors
    /// [`CheckpointError::Comm`] when a rank died.
    ///
    /// # Panics
    /// When an epoch has begun already. With `check_frozen`, when something
    /// outside of `active` has changed.
    pub fn begin(&mut self, active: &[Active]) -> Result<()> {
        self.begin_in_stages(active, &vec![Vec::new(); active.len()])
    }

    /// [`Checkpointer::begin`] for an application whose rows do not become final
    /// from the first to the last. `stages` has for each region the corners
    /// outside of which all is final, one after the other, each within the one
    /// before; inside of the last the rows become final in their order. What is
    /// active is encoded in this order: if rows become final in another one, the result is
    /// the same, only later. All members of a group name equally many stages; a group uses the
    /// least of each.
    ///
    /// # Errors
    /// As [`Checkpointer::begin`].
    ///
    /// # Panics
    /// As [`Checkpointer::begin`].
    pub fn begin_in_stages(&mut self, active: &[Active], stages: &[Vec<Active>]) -> Result<()> {
        self.begin_in(active, Some(stages))
    }

    /// `stages`: `None` when all is final.
    fn begin_in(&mut self, active: &[Active], stages: Option<&[Vec<Active>]>) -> Result<()> {
        assert!(self.ready, "recover first");
        assert!(self.under_way.is_none(), "complete the epoch that has begun first");
        assert_eq!(active.len(), self.layout.regions.len(), "one entry a region");
        assert!(stages.is_none_or(|stages| stages.len() == active.len()), "one list a region");
        self.helper.advance();
        if !self.config.method.encodes() {
            return Ok(());
        }
        self.record.assert_settled();
        let epoch = self.record.stamped() + 1;
        let mut stats = Stats { epoch, ..Stats::default() };

        // 1 checkpoint: the least active row and column of the group.
        self.vault.step(Step::new(StepName::Checkpoint, epoch))?;
        let (active, stages) = self.agree_on_parts(active, stages)?;
        if self.config.check_frozen && epoch > 1 {
            self.assert_frozen(&active);
        }
        let mut encoding = None;
        if self.config.method == Method::SelfCheckpoint {
            // 2 carry: D := C where the last epoch was active and this one is not.
            self.carry(epoch, &active, &mut stats)?;

            // 3 encode: D := parities of A, of what is final, from here on.
            let start = Instant::now();
            encoding = Some(self.start_encoding(epoch, &active, stages.as_deref())?);
            stats.encode_seconds += start.elapsed().as_secs_f64();
        }
        let ready = vec![Active::ALL; active.len()];
        self.under_way = Some(UnderWay { epoch, active, ready, encoding, stats });
        Ok(())
    }

    /// The cut is here: all rows are as they are to be saved. Waits until all of
    /// the job is encoded, and commits the epoch with `state`, which is that of
    /// rank 0 and must mean the same to all. Collective over the job; no message
    /// of the application that belongs to the time before the cut is under way.
    ///
    /// # Errors
    /// [`CheckpointError::Comm`] when a rank died; then only `open` in a new
    /// start of the job helps. [`CheckpointError::StateTooLarge`], with nothing
    /// done.
    ///
    /// # Panics
    /// When no epoch has begun.
    pub fn complete(&mut self, state: &[u8]) -> Result<Stats> {
        self.check_room(state)?;
        match self.config.method {
            Method::None => return Ok(Stats::default()),
            Method::Abft => return self.checkpoint_abft(state),
            Method::SelfCheckpoint | Method::Double | Method::Single => {}
        }
        let UnderWay { epoch, active, encoding, mut stats, .. } =
            self.under_way.take().expect("an epoch that has begun");

        // 3 encode, sums: D := parities of A, the rest of it.
        if let Some(encoding) = encoding {
            self.finish_encoding(encoding, &mut stats)?;
            if self.config.check_frozen {
                self.assert_carried(&active);
            }
        }
        self.helper.advance();
        let (start, mut state) = (Instant::now(), state.to_vec());
        // Rank 0 appends which images are due: one broadcast carries both.
        self.append_due(&mut state);
        broadcast_bytes(&self.job, &mut state, 0)?;
        let due = self.split_off_due(&mut state);
        match self.config.method {
            Method::SelfCheckpoint => {
                // 4 barrier: every D of every group is complete.
                self.barrier(epoch, &mut stats)?;
                stats.agree_seconds = start.elapsed().as_secs_f64();

                // 5 commit: COMMIT(epoch), from here on (A, D) counts.
                self.commit(epoch, state, &mut stats)?;

                // 6 flush: B := A, of which no image is being written any more.
                let free = self.take_back_images();
                let step = Step::new(StepName::Flush, epoch);
                stats.flush_seconds += self.copy_all(step, &active, &mut stats, free)?;

                // 7 stamp: D is C from here on, and (B, C) counts.
                self.stamp(epoch, &mut stats)?;
            }
            Method::Double => self.checkpoint_double(epoch, &active, state, &mut stats)?,
            Method::Single => self.checkpoint_single(epoch, &active, state, &mut stats)?,
            Method::Abft | Method::None => unreachable!("returned above"),
        }
        self.write_images(epoch, due);
        self.last_active = active;
        Ok(stats)
    }

    /// The run has come to its end: keeps its result (that of rank 0 counts) in
    /// all segments, from which no start computes any more. Collective.
    ///
    /// # Errors
    /// [`CheckpointError::Comm`] when a rank died: the next start goes on from
    /// the last checkpoint, or is told the result.
    /// [`CheckpointError::StateTooLarge`], on all ranks.
    ///
    /// # Panics
    /// When an epoch has begun and is not complete.
    pub fn finish(mut self, result: &[u8]) -> Result<FinishedRun<C, M>> {
        assert!(self.under_way.is_none(), "complete the epoch that has begun first");

        // 1 finish: the result of rank 0, when all have come to the end.
        let result = self.agree_on_result(result)?;

        if self.config.method != Method::None {
            // 2 mark: the record bears the result.
            self.mark(&result)?;

            // 3 marked: all are marked.
            self.marked()?;
        }
        Ok(self.into_finished(result))
    }
}
