//! The critical path of our own solver on paper: the time of a run on a P x Q grid, and the part of
//! it that the trailing product hides.
//!
//! ```text
//! counts of each step (work)  x  seconds for one of each (Machine)
//!     ──>  a clock for every process column, panel by panel (walk)
//!     ──>  time, times by phase as the report has them, and the critical path by part
//! ```
//!
//! The walk follows `pgesv` step by step: which rank updates and factors the next panel and when,
//! how the panel is broadcast (`comm::panel_bcast`), where rows are exchanged, and what waits for
//! what. Every row exchange and every pivot makes the ranks of a process column wait for each
//! other, and all of them have the same number of rows within one of the small blocks in which rows
//! are distributed (`grid::Cyclic::rows`). So one clock per process column is enough, and the time
//! of the process row with most rows counts. The walk takes O(N/NB (P + Q)) steps, which is seconds
//! for the largest machines.
//!
//!
//! All data is sent by messages. Ranks of a node share its link ([`Placement`]). The model leaves
//! out ranks of a node that read panels, rows and pivots in each other's memory, contention beyond
//! the nodes' links, system noise, checkpoints, and pivots that are not spread evenly.

mod back;
mod bcast;
mod clock;
pub mod closed;
pub mod fit;
mod machine;
pub mod measured;
mod placement;
mod walk;
pub mod work;

use skt_host::choice::{Bcast, Swap};
use skt_host::layout::N_MAX;
use skt_host::phases::Phases;

use super::ModelError;
use super::error::{non_negative, positive, within};

pub use clock::Part;
pub(crate) use clock::{PARTS, Parts};
pub use machine::{Counts, Machine, UNITS, Unit};
pub use measured::{MeasuredTest, ROWS_IN_HALVES};
pub use placement::Placement;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RunParams {
    pub n: usize,
    pub nb: usize,
    pub p: usize,
    pub q: usize,
    /// Threads per rank.
    pub threads: usize,
    /// Look-ahead: panels factored ahead of the update.
    pub depth: usize,
    pub bcast: Bcast,
    pub swap: Swap,
    /// Local columns above which [`Swap::Mix`] takes spread-roll.
    pub swap_threshold: usize,
    /// Whether the rows of one half of many columns are sent while the other half is multiplied.
    pub halves: bool,
    pub placement: Placement,
}

/// The least number of columns of a half, in swap thresholds; see `pgesv::trailing`.
const HALF_COLUMNS: usize = 16;

/// Of a walk, which takes some ten seconds: it suffices for all panels of a matrix of order
/// 14,529,408 on 128 x 192 processes with NB = 192. Of more panels, one of several is walked.
const MAX_STEPS: usize = 30_000_000;

/// Number of steps of an estimate, which takes less than a tenth of a second.
const ESTIMATE_STEPS: usize = 200_000;

impl RunParams {
    /// A run of order `n` on `p` x `q` ranks of one thread, with the defaults of a configuration.
    pub const fn new(n: usize, nb: usize, (p, q): (usize, usize)) -> Self {
        Self {
            n,
            nb,
            p,
            q,
            threads: 1,
            depth: 1,
            bcast: Bcast::OneRingM,
            swap: Swap::Mix,
            swap_threshold: 64,
            halves: true,
            placement: Placement::ALONE,
        }
    }

    pub fn validate(&self) -> Result<(), ModelError> {
        const INT_MAX: usize = i32::MAX as usize;
        const NB_MAX: usize = 1 << 16;
        within("n", self.n, 1..=N_MAX, "1 to 4294967295")?;
        // The columns of a panel are walked one by one.
        within("nb", self.nb, 1..=NB_MAX, "1 to 65536")?;
        for (name, value, min) in [
            ("p", self.p, 1),
            ("q", self.q, 1),
            ("threads", self.threads, 1),
            ("depth", self.depth, 0),
            ("ranks_per_node", self.placement.ranks_per_node, 1),
        ] {
            within(name, value, min..=INT_MAX, "1 (depth: 0) to 2147483647")?;
        }
        non_negative("inner_share", self.placement.inner_share)?;
        within("P + Q + DEPTH", self.steps_of_panel(), 1..=MAX_STEPS, "at most 30000000")?;
        Ok(())
    }

    fn steps_of_panel(&self) -> usize {
        self.p + self.q + self.depth.min(self.panels())
    }

    /// The smallest number of panels of which one is walked, within the limit of steps.
    fn stride(&self) -> usize {
        self.panels().div_ceil(MAX_STEPS / self.steps_of_panel())
    }

    /// Halves hide the messages of `cols` local columns as far as the product is long enough.
    pub(super) fn is_in_halves(&self, cols: f64) -> bool {
        self.halves && self.p > 1 && cols >= (2 * HALF_COLUMNS * self.swap_threshold) as f64
    }

    /// Whether the solver exchanges rows in halves if there are many columns.
    pub fn has_halves(swap: Swap, depth: usize) -> bool {
        swap == Swap::Mix && depth > 0
    }

    pub fn panels(&self) -> usize {
        self.n.div_ceil(self.nb)
    }

    /// The operations that the benchmark counts: `N^2 (2N/3 + 3/2)`.
    pub fn flops(&self) -> f64 {
        let n = self.n as f64;
        n * n * (2.0 / 3.0 * n + 1.5)
    }
}

/// Changes of the solver that do not exist yet, to see what each would gain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Changes {
    /// Whether a panel is forwarded as soon as it arrives, not at the next call into MPI.
    pub prompt_forwarding: bool,
    /// With DEPTH >= 2, a rank waits for the panel that it needs next, not for the newest one.
    pub wait_for_oldest: bool,
    /// A team takes only its share of a panel's time: passes over columns divide at no cost.
    pub team_without_loss: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prediction {
    pub time_seconds: f64,
    pub gflops: f64,
    /// The rate relative to the DGEMM rate of all cores.
    pub efficiency: f64,
    /// The mean over ranks of each phase, in seconds, as in the report.
    pub mean: Phases,
    /// The largest value of any process column, for each phase, in seconds.
    pub max: Phases,
    /// The critical path, in seconds by part, which sum up to the time.
    pub path: Parts,
    /// The seconds that the parts would take if nothing hid them: panels, pivots and broadcasts one
    /// after the other, the rest as the mean over ranks.
    pub unhidden: Parts,
    /// The work of a rank by phase, as the mean over ranks, without its waits.
    pub counts: PhaseCounts,
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct PhaseCounts {
    /// Panel factorization, including pivot messages.
    pub panel: Counts,
    pub swap: Counts,
    /// Triangular solve and product.
    pub update: Counts,
    /// Back substitution, without messages.
    pub back: Counts,
}

/// By a walk over all panels, or over as many as the limit of steps permits: then within 1 %.
pub fn predict(
    run: &RunParams,
    machine: &Machine,
    changes: &Changes,
) -> Result<Prediction, ModelError> {
    run.validate()?;
    machine.validate()?;
    let stride = run.stride();
    Ok(walked(walk::Walk::new(run, &machine.slowed(stride as f64), &[], changes, stride)))
}

/// In less time than [`predict`]: of many panels, only one of several is walked, but at least `4 Q`
/// of them as far as the limit of steps permits. The result is within 1 % of a walk over all.
pub fn estimate_seconds(run: &RunParams, machine: &Machine) -> Result<f64, ModelError> {
    estimate_unequal_seconds(run, machine, &[])
}

/// As [`estimate_seconds`], where process columns get blocks by their `rates`
/// ([`skt_host::columns`]), which are relative to the rate of the machine's cores; none if all are
/// 1. Solve and panel scale with them, memory and network do not.
pub fn estimate_unequal_seconds(
    run: &RunParams,
    machine: &Machine,
    rates: &[f64],
) -> Result<f64, ModelError> {
    machine.validate()?;
    run.validate()?;
    if !rates.is_empty() {
        within("rates", rates.len(), run.q..=run.q, "one for each process column")?;
        rates.iter().try_for_each(|&rate| positive("rates", rate).map(drop))?;
    }
    let wanted = (ESTIMATE_STEPS / (run.p + run.q)).max(4 * run.q);
    let stride = (run.panels() / wanted).max(run.stride());
    let slowed = machine.slowed(stride as f64);
    Ok(walked(walk::Walk::new(run, &slowed, rates, &Changes::default(), stride)).time_seconds)
}

fn walked(mut walk: walk::Walk) -> Prediction {
    walk.walk_panels();
    back::substitute(&mut walk);
    walk.prediction()
}
