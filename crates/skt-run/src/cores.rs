//! How long the threads of the ranks had a core in the timed part of a test, and who used the rest.

use skt_comm::{Comm, CommError, collect};
use skt_host::core_use::{CoreUse, CoreWatch, JobPart};
use skt_host::counters::Root;

use crate::events::{Phase, RunEvents};
use crate::record::cores::{CoreShares, RankCores};

/// The shortest timed part, in seconds, whose shares are known: the ticks in which programs are
/// counted are a tenth of it.
const SECONDS_MIN: f64 = 0.1;

/// What this rank gets of its cores in the timed part of a test.
#[derive(Debug)]
pub(crate) struct TestCores {
    /// On the first rank of a host: the job's part of it.
    job: Option<JobPart>,
    watch: Option<CoreWatch>,
    used: Option<CoreUse>,
}

impl TestCores {
    /// Nothing so far.
    pub(crate) fn new(job: Option<JobPart>) -> Self {
        Self { job, watch: None, used: None }
    }

    /// Begins to watch, just before the timed part, as this reads many files.
    pub(crate) fn begins(&mut self) {
        self.watch = Some(CoreWatch::start(Root::this_machine(), self.job.clone()));
    }

    /// The timed part has ended.
    pub(crate) fn ends(&mut self) {
        self.used = self.watch.take().map(|watch| watch.used());
    }

    /// What was used, if it was watched.
    pub(crate) fn used(&mut self) -> Option<CoreUse> {
        self.used.take()
    }
}

/// Events of a test without a report, whose ranks watch their cores.
#[derive(Debug)]
pub struct CoreEvents {
    watch: TestCores,
    /// On rank 0: what all ranks got of their cores.
    pub cores: Option<CoreShares>,
}

impl CoreEvents {
    /// Events of a test on a rank; `job` is the job's part of the host, on its first rank.
    pub fn new(job: Option<JobPart>) -> Self {
        Self { watch: TestCores::new(job), cores: None }
    }
}

impl RunEvents for CoreEvents {
    fn phase(&mut self, phase: Phase) {
        if phase == Phase::Factor {
            self.watch.begins();
        }
    }

    fn timed_part_ends(&mut self) {
        self.watch.ends();
    }

    fn core_use(&mut self) -> Option<CoreUse> {
        self.watch.used()
    }

    fn cores(&mut self, shares: CoreShares) {
        self.cores = Some(shares);
    }
}

/// Passes on to `events` on rank 0 what all ranks of `comm` had of their cores in a timed part of
/// `seconds`. Collective, unless the test is too short.
pub fn gather(comm: &Comm, seconds: f64, events: &mut dyn RunEvents) -> Result<(), CommError> {
    if seconds < SECONDS_MIN {
        return Ok(());
    }
    let (host, rank) = (comm.host(), comm.rank());
    let mine = events.core_use().map(|used| RankCores { host, rank, used });
    let all: Option<Vec<Option<RankCores>>> = collect::gather_json(comm, &mine, 0)?;
    let all: Vec<RankCores> = all.into_iter().flatten().flatten().collect();
    CoreShares::from_ranks(&all).into_iter().for_each(|shares| events.cores(shares));
    Ok(())
}
