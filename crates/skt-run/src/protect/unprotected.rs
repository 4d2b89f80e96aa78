//! The guard of a test without checkpoints: plain memory, and a test that ends with the job's time.

use std::time::Instant;

use skt_host::phases::Phases;

use super::deadline::{self, Ahead, TimeLeft};
use super::interval::{CheckpointSchedule, GuessedRates};
use crate::ptest::mxp::{Refined, RefinementGuard};
use crate::ptest::refining::RefinementLeft;
use crate::tuning::TUNING;
use skt_comm::{Comm, collect};
use skt_config::TestSpec;
use skt_config::protection::Settings;
use skt_host::clock::now_unix;
use skt_solver::blas::Element;
use skt_solver::blas::view::SharedMat;
use skt_solver::pgesv::guard::{Background, Guard, Unguarded};
use skt_solver::pgesv::{LocalShape, SolveError};

/// Nothing can be saved, so the clock alone ends the test.
const NOTHING_TO_SAVE: Ahead =
    Ahead { step_seconds: 0.0, rest_seconds: f64::INFINITY, save_seconds: 0.0 };

/// A rank's plain memory in a test whose time may end.
pub struct Unprotected<'c> {
    memory: Unguarded,
    comm: &'c Comm,
    n: usize,
    nb: usize,
    /// The end of the job's time, in seconds since 1970, if it is limited.
    end_unix: Option<f64>,
    /// Whether the time may end: by the clock, or by a signal that the job listens to.
    may_end: bool,
    schedule: CheckpointSchedule,
    cut_at: Instant,
    cut_panel: usize,
}

impl<'c> Unprotected<'c> {
    /// The guard of a test on the ranks of `comm`, predicted to run at these rates, with the
    /// `memory` of its matrix.
    pub(crate) fn new(
        memory: Unguarded,
        comm: &'c Comm,
        spec: &TestSpec,
        settings: &Settings,
        rates: GuessedRates,
    ) -> Self {
        let end_unix = settings.time_limit.end();
        Self {
            memory,
            comm,
            n: spec.n,
            nb: spec.nb,
            end_unix,
            may_end: end_unix.is_some() || settings.is_on(),
            schedule: CheckpointSchedule::guess(spec, settings, rates, 0),
            cut_at: Instant::now(),
            cut_panel: 0,
        }
    }

    /// Ends the test at `column` if its time has ended: by rank 0's clock, read when all ranks have
    /// come here, or by a signal on any rank. Else returns rank 0's panel after these seconds,
    /// before which to check the time again. Collective.
    fn check_time(
        &self,
        column: usize,
        panel_after: impl FnOnce(f64) -> usize,
    ) -> Result<usize, SolveError> {
        let is_asked = collect::any(self.comm, deadline::is_asked())?;
        let left = TimeLeft(self.end_unix.map_or(f64::INFINITY, |end| end - now_unix()));
        let stops = is_asked || left.is_over(&NOTHING_TO_SAVE);
        let seconds = left.look_after(&NOTHING_TO_SAVE);
        let look = panel_after(seconds.min(TUNING.look_for_signals_seconds as f64));
        match collect::broadcast_one(self.comm, [usize::from(stops), look], 0)? {
            [0, look] => Ok(look),
            _ => Err(left.time_up_unsaved(column)),
        }
    }
}

impl<T: Element> Guard<T> for Unprotected<'_> {
    fn matrix(&mut self) -> &mut [T] {
        self.memory.matrix()
    }

    fn lend(&mut self, shape: LocalShape<T>) -> (SharedMat<'_, T>, &mut dyn Background) {
        self.memory.lend(shape)
    }

    fn start(&mut self) -> usize {
        self.cut_at = Instant::now();
        Guard::<T>::start(&mut self.memory)
    }

    fn cut(&mut self, next: usize, panels: usize, _: &Phases) -> Result<usize, SolveError> {
        // What is left after the last panel takes less time than a panel.
        if !self.may_end || next == panels {
            return Ok(panels);
        }
        self.schedule.measure(self.cut_panel..next, self.cut_at.elapsed().as_secs_f64());
        let after = |seconds| self.schedule.after(next, seconds);
        let look = self.check_time(next * self.nb, after)?;
        (self.cut_panel, self.cut_at) = (next, Instant::now());
        Ok(look)
    }

    fn seconds(&self) -> f64 {
        Guard::<T>::seconds(&self.memory)
    }
}

impl RefinementGuard for Unprotected<'_> {
    fn cut_refinement(
        &mut self,
        reached: &Refined,
        left: &RefinementLeft,
        phases: &Phases,
    ) -> Result<(), SolveError> {
        self.check_time_within_step(reached, left, phases)
    }

    fn check_time_within_step(
        &mut self,
        _: &Refined,
        _: &RefinementLeft,
        _: &Phases,
    ) -> Result<(), SolveError> {
        if self.may_end { self.check_time(self.n, |_| 0).map(|_| ()) } else { Ok(()) }
    }
}
