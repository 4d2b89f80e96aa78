//! A checkpoint in phases, so that the application need not stand still.
//!
//! ```text
//! begin       an epoch is to come
//! ready       rows and columns have their contents of that epoch
//! poll        encodes some of what is ready, moves messages; never waits
//! complete    waits for the rest; barrier; COMMIT; flush; stamp
//! ```
//!
//! [`Checkpointer::checkpoint`] is all of them in a row.

use std::time::Instant;

use super::code::Code;
use super::hook::{Step, StepName};
use super::layout::Active;
use super::methods::Method;
use super::progress::{Polled, Progress};
use super::protocol::{CheckpointError, Checkpointer, Memory, Result, Stats};
use crate::comm::Comm;
use crate::comm::collect::{all_reduce, broadcast_bytes};

/// What is active, and the stages in which it becomes final, by region.
type Parts = (Vec<Active>, Option<Vec<Vec<Active>>>);

/// An epoch that is being taken.
pub(super) struct Taking<C: Comm> {
    epoch: u64,
    active: Vec<Active>,
    /// Outside of these all is final, by region.
    ready: Vec<Active>,
    /// With method `self` alone: the others do all in `complete`.
    encoding: Option<Progress<C>>,
    stats: Stats,
}

impl<C: Comm, M: Memory, K: Code + Clone> Checkpointer<C, M, K> {
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
    /// active is encoded in this order, so who is ready in another only waits
    /// longer. All members of a group name equally many stages; a group uses the
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
    pub(super) fn begin_in(
        &mut self,
        active: &[Active],
        stages: Option<&[Vec<Active>]>,
    ) -> Result<()> {
        assert!(self.ready, "recover first");
        assert!(self.taking.is_none(), "complete the epoch that has begun first");
        assert_eq!(active.len(), self.layout.regions.len(), "one entry a region");
        assert!(stages.is_none_or(|stages| stages.len() == active.len()), "one list a region");
        if self.config.method.parts().1 == 0 {
            return Ok(());
        }
        self.record.assert_settled();
        let epoch = self.record.stamped() + 1;
        self.vault.step(Step::new(StepName::Checkpoint, epoch))?;
        let (active, stages) = self.agree_on_parts(active, stages)?;
        if self.config.check_frozen && self.record.stamped() > 0 {
            self.assert_frozen(&active);
        }
        let mut stats = Stats { epoch, ..Stats::default() };
        let mut encoding = None;
        if self.config.method.flushes() {
            self.carry_all(epoch, &active, &mut stats)?;
            let start = Instant::now();
            encoding = Some(self.start_encoding(epoch, &active, stages.as_deref())?);
            stats.encode_seconds += start.elapsed().as_secs_f64();
        }
        let ready = vec![Active::ALL; active.len()];
        self.taking = Some(Taking { epoch, active, ready, encoding, stats });
        Ok(())
    }

    /// Outside of the corner `outside` of a region, that is in the rows before
    /// `outside.row` and in the bytes before `outside.byte` of all rows, A has its
    /// contents of the epoch that has begun. Does nothing else:
    /// [`Checkpointer::poll`] does. Of no effect when none has begun.
    ///
    /// # Safety
    /// Nobody writes there from here until [`Checkpointer::complete`] has
    /// returned: this process reads it, and so may other members of the group,
    /// where it lies.
    pub unsafe fn ready(&mut self, region: usize, outside: Active) {
        let Some(mut taking) = self.taking.take() else { return };
        let Active { row, byte } = &mut taking.ready[region];
        (*row, *byte) = ((*row).max(outside.row), (*byte).max(outside.byte));
        if let Some(encoding) = &mut taking.encoding {
            encoding.set_ready(self, &taking.ready);
        }
        self.taking = Some(taking);
    }

    /// Encodes some of what is ready here and, where members read each other's
    /// memory, there; else moves the messages on. Waits for nobody, and does little
    /// at a time. Says what is left to do before [`Checkpointer::complete`].
    ///
    /// # Errors
    /// [`CheckpointError::Comm`] when a rank died.
    pub fn poll(&mut self) -> Result<Polled> {
        let Some(mut taking) = self.taking.take() else { return Ok(Polled::Done) };
        let start = Instant::now();
        let left = match &mut taking.encoding {
            Some(encoding) => self.advance(encoding, false)?,
            None => Polled::Idle,
        };
        taking.stats.encode_seconds += start.elapsed().as_secs_f64();
        self.taking = Some(taking);
        Ok(left)
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
        let capacity = self.config.state_capacity_bytes;
        if state.len() > capacity {
            return Err(CheckpointError::StateTooLarge { bytes: state.len(), capacity });
        }
        match self.config.method {
            Method::None => return Ok(Stats::default()),
            Method::Abft => return self.keep_state(state),
            _ => {}
        }
        let Taking { epoch, active, encoding, mut stats, .. } =
            self.taking.take().expect("an epoch that has begun");
        let mut state = state.to_vec();
        if let Some(encoding) = encoding {
            self.finish_encoding(encoding, &mut stats)?;
            if self.config.check_frozen {
                self.assert_carried(&active);
            }
        }
        let start = Instant::now();
        broadcast_bytes(&self.job, &mut state, 0)?;
        match self.config.method {
            Method::SelfCheckpoint => {
                self.barrier(epoch, &mut stats)?;
                let agreed = Instant::now();
                stats.agree_seconds = (agreed - start).as_secs_f64();
                // Every D of every group is complete: whoever sees this knows it.
                self.record.commit(epoch, state);
                self.write_record(Step::new(StepName::Commit, epoch))?;
                stats.commit_seconds = agreed.elapsed().as_secs_f64();
                self.flush(epoch, &active, &mut stats)?;
            }
            Method::Double => self.take_double(epoch, &active, state, &mut stats)?,
            Method::Single => self.take_single(epoch, &active, state, &mut stats)?,
            Method::Abft | Method::None => unreachable!("returned above"),
        }
        self.last_active = active;
        Ok(stats)
    }

    /// Waits for the rest of an encoding, all of whose rows are final here.
    pub(super) fn finish_encoding(
        &mut self,
        mut encoding: Progress<C>,
        stats: &mut Stats,
    ) -> Result<()> {
        let start = Instant::now();
        let left = self.advance(&mut encoding, true)?;
        assert_eq!(left, Polled::Done, "all rows are ready, and it has waited");
        self.exchange_sums(&encoding)?;
        stats.encoded_bytes += self.encoded_bytes(&encoding);
        stats.encode_seconds += start.elapsed().as_secs_f64();
        Ok(())
    }

    /// The least of all members, in whole cells; what is active is everything where
    /// there is no copy yet.
    fn agree_on_parts(&self, active: &[Active], stages: Option<&[Vec<Active>]>) -> Result<Parts> {
        let all = self.record.stamped() == 0;
        let corners =
            active.iter().filter(|_| !all).chain(stages.iter().copied().flatten().flatten());
        let mut least: Vec<[u64; 2]> = corners.map(|a| [a.row as u64, a.byte as u64]).collect();
        if !least.is_empty() {
            all_reduce(&self.group, &mut least, |a, b| [a[0].min(b[0]), a[1].min(b[1])])?;
        }
        let least = least.into_iter();
        let cell_bytes = self.config.cell_bytes;
        let mut least = least.map(|[row, byte]| Active {
            row: row as usize,
            byte: byte as usize / cell_bytes * cell_bytes,
        });
        let mut take = |count| least.by_ref().take(count).collect::<Vec<_>>();
        let active = if all { vec![Active::ALL; active.len()] } else { take(active.len()) };
        let of_regions = |stages: &[Vec<Active>]| stages.iter().map(|s| take(s.len())).collect();
        Ok((active, stages.map(of_regions)))
    }
}
