//! The end of a run: its result goes into every segment before it is reported, and the segments are
//! removed after that.
//!
//! Ranks mark their segments when all have come to the end, and nothing is reported or removed
//! before all are marked. So a start that finds one mark has the result, whatever else is lost. As
//! long as no segment is marked, nothing has been removed, and the run resumes from its last
//! checkpoint.

use std::sync::Arc;

use super::checkpointer::Checkpointer;
use crate::checkpoint::decide::Finished;
use crate::checkpoint::error::{CheckpointError, Result, memory_error};
use crate::checkpoint::header::SegmentId;
use crate::checkpoint::hook::{Hook, Step, StepName};
use crate::checkpoint::level::Level;
use crate::checkpoint::level::failed::level_error;
use crate::checkpoint::memory::{Hold, Memory};
use crate::checkpoint::methods::Method;
use crate::checkpoint::record::StartId;
use crate::checkpoint::segment::SegmentParts;
use crate::checkpoint::start::Start;
use crate::checkpoint::vault::{Backing, Vault};
use skt_comm::Comm;
use skt_comm::collect::{all_reduce, broadcast_bytes};

/// A run that has come to its end, in this start or an earlier one.
///
/// Report [`FinishedRun::result`], then call [`FinishedRun::clear`]. If a process dies before that,
/// the run stays finished: the next start gets the same result. So the result is reported at least
/// once, and never computed again. Dropping this value leaves the segments, as a death does.
#[must_use = "the segments of the run stay until they are cleared"]
pub struct FinishedRun<'n> {
    comm: Comm,
    memory: Box<dyn Memory + 'n>,
    hook: Arc<dyn Hook>,
    epoch: u64,
    result: Vec<u8>,
    left: Vec<StartId>,
    /// Marked segments of this node, which `clear` removes.
    ids: Vec<SegmentId>,
    /// Levels whose images `clear` removes before the segments.
    levels: Vec<Level>,
    /// This rank's segment, in use until the end so that no other process removes it.
    _held: Option<Backing>,
    /// Released last.
    lock: Option<Hold>,
}

impl<'n> FinishedRun<'n> {
    /// The result that rank 0 passed to [`Checkpointer::finish`]; the same on all ranks.
    pub fn result(&self) -> &[u8] {
        &self.result
    }

    /// The newest epoch of the run.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The starts that a segment may name as its lineage if it was out of reach in some start of
    /// this run: once the result is reported, such segments are leftovers.
    pub fn left(&self) -> &[StartId] {
        &self.left
    }

    /// The hold of this process on the run, which [`FinishedRun::clear`] gives up. An application
    /// that removes more of the run after that keeps a copy of the hold until then.
    pub fn hold(&self) -> Option<&Hold> {
        self.lock.as_ref()
    }

    /// Writes the result to all segments that count and lack it, so that it survives the same
    /// losses before it is reported as in the start that computed it. Collective.
    pub(super) fn found(
        comm: &Comm,
        mut start: Start<'n>,
        chunk_bytes: usize,
        finished: Finished,
    ) -> Result<Self> {
        let Finished { epoch, result, left, mark, discard, keep, .. } = finished;
        let process = comm.rank();
        let segments = start.take(comm, &mark[process])?;
        start.discard(&discard[process], epoch)?;
        let comm = comm.split(Some(0), process as u32)?.expect("a colour");
        let Start { memory, header, hook, lock, levels, .. } = start;
        for segment in segments {
            let mut vault = Vault::new(Backing::Lasting(segment), hook.clone(), chunk_bytes);
            let record = header.decode_record(vault.bytes(0..header.bytes()));
            let mut record = record.expect("as it was offered");
            record.finish(&result);
            vault.store_record(&header, &mut record, Step::new(StepName::Mark, epoch))?;
        }
        hook.at(&Step::new(StepName::Marked, epoch))?;
        comm.barrier()?;
        let ids = keep[process].clone();
        Ok(Self { comm, memory, hook, epoch, result, left, ids, levels, _held: None, lock })
    }

    /// Removes what is left of the run, once every process that reports its result has done so.
    /// Collective; nothing is removed before all have called it. Returns the errors that kept
    /// images of levels from being removed, each on one of the processes on which the level's disk
    /// fails: a start that finds such images takes them for those of an unfinished run.
    pub fn clear(mut self) -> Result<Vec<CheckpointError>> {
        self.hook.at(&Step::new(StepName::Clear, self.epoch))?;
        self.comm.barrier()?;
        let stay = self.clear_levels()?;
        for &id in &self.ids {
            self.hook.at(&Step::new(StepName::Remove, self.epoch))?;
            self.memory.remove(id).map_err(memory_error("removing", id))?;
        }
        Ok(stay)
    }

    /// Removes all images of the run, also unsealed ones, before the first mark is removed: a start
    /// that finds neither marks nor segments must find no images of a reported run either, except
    /// on a failing disk. Collective.
    fn clear_levels(&self) -> Result<Vec<CheckpointError>> {
        if self.levels.is_empty() {
            return Ok(Vec::new());
        }
        let process = self.comm.rank() as u64;
        let (mut failed, mut first) = (Vec::new(), vec![u64::MAX; self.levels.len()]);
        for (number, level) in self.levels.iter().enumerate() {
            match self.clear_level(level) {
                Err(error @ CheckpointError::Level { .. }) => {
                    failed.push((number, error));
                    first[number] = process;
                }
                cleared => cleared?,
            }
        }
        // This is also the barrier before segments are removed.
        all_reduce(&self.comm, &mut first, u64::min)?;
        failed.retain(|(number, _)| first[*number] == process);
        Ok(failed.into_iter().map(|(_, error)| error).collect())
    }

    /// Removes the images of a level that this process manages: all that can be removed.
    fn clear_level(&self, level: &Level) -> Result<()> {
        let (process, size) = (self.comm.rank(), self.comm.size());
        let failed = || level_error("removing the images", level);
        let mut all = Ok(());
        for file in level.disk.list().map_err(failed())? {
            if level.is_managed_by(file.ranks.first(), process, size) {
                self.hook.at(&Step::new(StepName::Remove, self.epoch))?;
                all = all.and(level.disk.remove(file));
            }
        }
        all.and(level.disk.sync_names()).map_err(failed())
    }
}

impl<'n> Checkpointer<'n> {
    /// The result of rank 0, once all have come to the end, so that a mark is true. Collective.
    pub(super) fn agree_on_result(&mut self, result: &[u8]) -> Result<Vec<u8>> {
        self.segment.step(Step::new(StepName::Finish, self.segment.record().stamped()))?;
        let mut result = result.to_vec();
        broadcast_bytes(&self.job, &mut result, 0)?;
        self.check_room(&result)?;
        // A run that has ended needs no image.
        self.images.give_up(&*self.segment.vault.hook());
        self.job.barrier()?;
        Ok(result)
    }

    /// Waits until all are marked, so that any one of them has the result. Collective.
    pub(super) fn marked(&mut self) -> Result<()> {
        self.segment.step(Step::new(StepName::Marked, self.segment.record().stamped()))?;
        Ok(self.job.barrier()?)
    }

    /// The finished run, whose segments are still there.
    pub(super) fn into_finished(self, result: Vec<u8>) -> FinishedRun<'n> {
        let is_lasting = self.config.method != Method::None;
        let ids = if is_lasting { vec![self.segment.id] } else { Vec::new() };
        let (epoch, left) =
            (self.segment.record().stamped(), self.segment.record().left().to_vec());
        // Dropping the images ends the last reads of the segment.
        drop(self.images);
        let SegmentParts { memory, held, lock, hook } = self.segment.into_parts();
        let comm = self.job;
        let (levels, _held) = (self.config.levels, Some(held));
        FinishedRun { comm, memory, hook, epoch, result, left, ids, levels, _held, lock }
    }
}
