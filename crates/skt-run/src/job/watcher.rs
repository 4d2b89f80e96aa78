//! The progress that a test shows while it runs.

use std::time::{Duration, Instant};

use skt_host::units::{self, counted};

use crate::cores::TestCores;
use crate::events::{Phase, RunEvents, Saved, SavedQueue};
use crate::heartbeat;
use crate::power::TestPower;
use crate::protect::{self, FaultInjector};
use crate::record::cores::CoreShares;
use crate::record::energy::RankEnergy;
use crate::record::{Restart, Sample, Samples};
use skt_config::TestSpec;
use skt_health::slow::{Named, SlowReport};
use skt_host::core_use::CoreUse;

/// The order below which a test is small: it takes next to no time, and hundreds may follow.
const SMALL_N: usize = 2000;
/// The shortest time between announcements of small tests.
const SMALL_INTERVAL: Duration = Duration::from_secs(1);

/// Shows a test's progress.
pub(super) struct Watcher<'a> {
    pub events: &'a mut dyn RunEvents,
    pub test: &'a TestSpec,
    pub tests: usize,
    pub index: usize,
    /// The predicted rate of the job, in operations a second.
    pub guessed_rate: f64,
    pub announced: &'a mut Instant,
    /// Faults to inject into this rank.
    pub injector: &'a FaultInjector,
    /// Samples of the progress, for the report.
    pub samples: Samples,
    /// The energy that is measured here.
    pub power: TestPower<'a>,
    /// What the protection of the test has saved.
    pub saved: SavedQueue,
    /// What this rank gets of its cores.
    pub core_watch: TestCores,
    /// On rank 0: what all ranks got of them, once the timed part has ended.
    pub cores: Option<CoreShares>,
    /// On rank 0: the rates of all ranks, once the matrix has been factored.
    pub slow: Option<SlowReport>,
}

impl Watcher<'_> {
    /// Prints a line about the test, unless it is small.
    pub(crate) fn announce(&mut self, line: &str) {
        if self.test.n >= SMALL_N {
            self.events.announce(&format!("N={}: {line}", self.test.n));
        }
    }

    fn report_saved(&mut self) {
        let saved = self.saved.take();
        saved.iter().for_each(|saved| self.events.saved(saved));
    }

    /// The predicted seconds of the step that begins at this column.
    fn step_seconds(&self, column: usize) -> f64 {
        protect::panel_flops(column / self.test.nb, self.test.n, self.test.nb) / self.guessed_rate
    }

    /// Reports to the supervisor and the ranks that wait for this one that it enters this phase, in
    /// which it may be silent for `seconds`.
    fn enter(&self, phase: Phase, seconds: f64) {
        skt_comm::expect_pause_now(seconds);
        let column = match phase {
            Phase::Generate { .. } | Phase::Factor => 0,
            Phase::BackSubstitute | Phase::Refine | Phase::Check | Phase::Done => self.test.n,
        };
        heartbeat::begin_phase(phase.name(), column, self.test.n, seconds);
    }
}

impl RunEvents for Watcher<'_> {
    fn phase(&mut self, phase: Phase) {
        self.report_saved();
        self.events.phase(phase);
        let n = self.test.n;
        let step_seconds = if phase == Phase::Factor { self.step_seconds(0) } else { 0.0 };
        skt_comm::expect_pause(step_seconds);
        self.enter(phase, step_seconds);
        if phase == Phase::Factor && n >= SMALL_N {
            self.power.sample();
            self.core_watch.begins();
        }
        if matches!(phase, Phase::BackSubstitute | Phase::Refine) {
            self.injector.back();
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
            Phase::Refine => format!("N={n}: refinement"),
            Phase::Check => format!("N={n}: checking the solution"),
            Phase::Done => return self.events.clear(),
        };
        self.events.announce(&line);
    }

    fn waits(&mut self, phase: Phase, seconds: f64) {
        self.enter(phase, seconds);
    }

    fn resumes(&mut self, restart: &Restart) {
        self.announce(&restart.format_resumption());
    }

    fn columns(&mut self, done: usize, n: usize, elapsed_seconds: f64) {
        heartbeat::columns(done, n, self.step_seconds(done));
        self.injector.columns(done);
        self.samples.push(elapsed_seconds, done);
        self.report_saved();
        self.events.columns(done, n, elapsed_seconds);
    }

    fn step(&mut self, elapsed_seconds: f64, line: &str) {
        // The phases of a checkpoint between two steps are over.
        heartbeat::enter_phase(Phase::Refine.name());
        self.injector.columns(self.test.n);
        self.report_saved();
        self.events.step(elapsed_seconds, line);
    }

    fn timed_part_begins(&mut self, before_seconds: f64) {
        self.power.begins(before_seconds);
    }

    fn timed_part_ends(&mut self) {
        self.power.ends();
        self.core_watch.ends();
        if self.test.n >= SMALL_N {
            self.power.sample();
        }
    }

    fn energy(&mut self, seconds: f64) -> RankEnergy {
        self.power.energy(seconds)
    }

    fn saved(&mut self, saved: &Saved) {
        self.events.saved(saved);
    }

    fn core_use(&mut self) -> Option<CoreUse> {
        self.core_watch.used()
    }

    fn cores(&mut self, shares: CoreShares) {
        self.cores = Some(shares);
    }

    fn slow(&mut self, named: &Named) {
        heartbeat::slow(named.brief().as_deref());
        self.events.slow(named);
    }

    fn rates(&mut self, report: SlowReport) {
        self.slow = Some(report);
    }

    fn samples(&self) -> Vec<Sample> {
        self.samples.list()
    }

    fn flips(&mut self, done: usize) -> bool {
        self.injector.flips(done)
    }
}

/// The line that announces the generation of a matrix.
fn generating_line(n: usize, total_bytes: u64, ranks: usize) -> String {
    format!(
        "N={n}: generating the matrix ({} on {})",
        units::bytes(total_bytes),
        counted(ranks, "rank")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generating_line_has_the_size_of_the_matrix() {
        let line = |ranks| generating_line(20_000, 3_200_160_000, ranks);
        assert_eq!(line(4), "N=20000: generating the matrix (3.0 GiB on 4 ranks)");
        assert_eq!(line(1), "N=20000: generating the matrix (3.0 GiB on 1 rank)");
    }
}
