//! The heartbeats of a program that uses the checkpoints.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::{
    CHANGED, CHECKPOINT, COMPUTE, DataLocation, ENV, Heartbeat, INTERVAL_SECONDS, OPEN, WAIT,
    WaitRateLimit, run_in,
};
use crate::checkpoint::hook::{Hook, Step, Wait};
use crate::checkpoint::protocol::CheckpointError;
use skt_store::segments::Process;

/// Between heartbeats of checkpoints, at least: these may follow each other quickly.
const CHECKPOINT_INTERVAL_SECONDS: f64 = 0.1;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Supervised;

impl Process for Supervised {
    fn supervisor(&self) -> Option<String> {
        run_in(&std::env::var(ENV).ok()?).map(str::to_owned)
    }
}

/// The heartbeats of a job, which its first process writes; by default none.
#[derive(Debug)]
pub(crate) struct ProgramHeartbeats {
    /// `None` in a process that writes none.
    last: Option<Heartbeat>,
    start: Instant,
}

impl Default for ProgramHeartbeats {
    fn default() -> Self {
        Self::new(None)
    }
}

impl ProgramHeartbeats {
    /// This process is `rank` of the job; rank 0 writes, if a supervisor has started the job.
    pub(crate) fn for_rank(rank: usize) -> Self {
        let token = if rank == 0 { std::env::var(ENV).ok() } else { None };
        Self::new(token)
    }

    fn new(token: Option<String>) -> Self {
        let last = token.map(|token| Heartbeat::new(token, 0, OPEN));
        Self { last, start: Instant::now() }
    }

    /// By which a supervisor also learns that process `rank` of `ranks` waits.
    pub(crate) fn add_waits(
        &self,
        hook: Arc<dyn Hook>,
        rank: usize,
        ranks: usize,
    ) -> Arc<dyn Hook> {
        let Ok(token) = std::env::var(ENV) else { return hook };
        let beat = Heartbeat::new(token, rank, WAIT);
        let last = Mutex::new((WaitRateLimit::default(), beat));
        Arc::new(ReportedWaits { hook, start: self.start, ranks, last })
    }

    pub(crate) fn open(&mut self, keeps: impl FnOnce() -> DataLocation) {
        self.update(0.0, |beat| (beat.phase, beat.keeps) = (OPEN.to_owned(), Some(keeps())));
    }

    /// Reports what the program does now, at once.
    pub(crate) fn phase(&mut self, phase: &'static str) {
        self.update(0.0, |beat| beat.phase = phase.to_owned());
    }

    /// Reports that the program computes, from checkpoint `number` on; 0 is the beginning.
    pub(crate) fn compute_from(&mut self, number: u64) {
        self.update(0.0, |beat| (beat.phase, beat.column) = (COMPUTE.to_owned(), number as usize));
    }

    pub(crate) fn begins(&mut self) {
        self.update(CHECKPOINT_INTERVAL_SECONDS, |beat| beat.phase = CHECKPOINT.to_owned());
    }

    pub(crate) fn complete(&mut self, number: u64) {
        let change = |beat: &mut Heartbeat| {
            (beat.phase, beat.column) = (COMPUTE.to_owned(), number as usize);
        };
        self.update(CHECKPOINT_INTERVAL_SECONDS, change);
    }

    /// Reports that the program has come as far as to ask whether a checkpoint is due.
    pub(crate) fn step(&mut self) {
        self.update(INTERVAL_SECONDS, |beat| beat.steps += 1);
    }

    /// Reports why a run could not be opened, where the supervisor can do something about it.
    pub(crate) fn refused(&mut self, error: &CheckpointError) {
        if let CheckpointError::Refused(refusal) = error
            && refusal.passes()
        {
            self.phase(CHANGED);
        }
    }

    /// Changes the heartbeat, and writes it if the last one is `interval_seconds` old.
    fn update<T>(&mut self, interval_seconds: f64, change: impl FnOnce(&mut Heartbeat) -> T) {
        let elapsed_seconds = self.start.elapsed().as_secs_f64();
        if let Some(beat) = self.due(elapsed_seconds, interval_seconds, change) {
            beat.write();
        }
    }

    fn due<T>(
        &mut self,
        elapsed_seconds: f64,
        interval_seconds: f64,
        change: impl FnOnce(&mut Heartbeat) -> T,
    ) -> Option<Heartbeat> {
        let beat = self.last.as_mut()?;
        change(beat);
        if elapsed_seconds - beat.elapsed_seconds < interval_seconds {
            return None;
        }
        beat.elapsed_seconds = elapsed_seconds;
        // `keeps` is reported once.
        let keeps = beat.keeps.take();
        Some(Heartbeat { keeps, ..beat.clone() })
    }
}

/// On every rank: the other ranks may stand still for the same reason.
struct ReportedWaits {
    hook: Arc<dyn Hook>,
    start: Instant,
    ranks: usize,
    last: Mutex<(WaitRateLimit, Heartbeat)>,
}

impl Hook for ReportedWaits {
    fn at(&self, step: &Step) -> skt_comm::Result<()> {
        self.hook.at(step)
    }

    fn waits(&self, wait: &Wait) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let (reported, beat) = &mut *last;
        if reported.is_due(wait.seconds, wait.operations, beat.rank, self.ranks) {
            (beat.steps, beat.expected_seconds) = (wait.operations, wait.expected_seconds);
            beat.elapsed_seconds = self.start.elapsed().as_secs_f64();
            beat.write();
        }
        drop(last);
        self.hook.waits(wait);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_supervisor_no_heartbeat_is_written() {
        let mut beats = ProgramHeartbeats::new(None);
        assert_eq!(beats.due(1.0, 0.0, |beat| beat.phase = COMPUTE.to_owned()), None);
        assert!(ProgramHeartbeats::for_rank(1).last.is_none());
    }

    #[test]
    fn heartbeats_have_the_progress_so_far_and_are_rate_limited() {
        let mut beats = ProgramHeartbeats::new(Some("r.1.4".to_owned()));
        let keeps = DataLocation { run_id: "r".into(), store: "sysv".into(), images: Vec::new() };
        let open = beats.due(0.0, 0.0, |beat| beat.keeps = Some(keeps.clone())).expect("at once");
        assert_eq!((open.token.as_str(), open.phase.as_str()), ("r.1.4", OPEN));
        assert_eq!(open.keeps, Some(keeps));
        for asked in 1..=9 {
            let at = 0.1 * f64::from(asked);
            assert_eq!(beats.due(at, INTERVAL_SECONDS, |beat| beat.steps += 1), None);
        }
        let reported = beats.due(1.0, INTERVAL_SECONDS, |beat| beat.steps += 1).expect("a second");
        assert_eq!((reported.steps, reported.keeps), (10, None));
        // The next heartbeat reports a checkpoint that follows at once.
        assert_eq!(beats.due(1.05, CHECKPOINT_INTERVAL_SECONDS, |beat| beat.column = 1), None);
        let reported = beats.due(1.15, CHECKPOINT_INTERVAL_SECONDS, |beat| beat.column = 2);
        assert!(reported.is_some_and(|reported| reported.column == 2));
    }
}
