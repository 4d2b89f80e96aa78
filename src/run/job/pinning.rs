//! The cores of a rank's threads.

use super::places::{self, RankLocation};
use crate::hpl::blas::library;
use crate::hpl::team::Team;
use crate::machine::environment::affinity::{self, CpuPlacement, WhyNot};
use crate::machine::environment::helper_cores::{self, HelperCores};
use crate::machine::starter::Starter;

/// The cores of a rank's threads.
#[derive(Debug)]
pub struct Pinning {
    /// The plan of the solver's threads; `None` where the system does not list its processors.
    solver: Option<CpuPlacement>,
    /// The CPU of the other threads, if one is kept for them.
    helper_cpu: Option<usize>,
    /// The CPUs of this host that are kept from the solver.
    kept: Vec<usize>,
    /// Why there are no helper cores although they were requested.
    refusal: Option<String>,
}

impl Pinning {
    /// Plans the cores of a rank of `threads` threads, on hosts that each keep `helper_cores` cores
    /// from the solver.
    pub fn new(places: &[RankLocation], rank: usize, threads: usize, helper_cores: usize) -> Self {
        let (here, index) = places::neighbours(places, rank);
        let masks: Vec<_> = here.iter().map(|&other| places[other].mask.clone()).collect();
        let cpus = affinity::online().ok().filter(|_| !masks.iter().any(Vec::is_empty));
        let unkept = |solver, refusal| Self { solver, helper_cpu: None, kept: Vec::new(), refusal };
        if helper_cores == 0 {
            return unkept(cpus.map(|cpus| affinity::plan(&cpus, &masks, index, threads)), None);
        }
        let refused = |why: String| {
            let host = &places[rank].host;
            unkept(None, Some(format!("--helper-cores {helper_cores}: on {host} {why}")))
        };
        let Some(cpus) = cpus else {
            return refused("the system does not tell which processors there are".to_owned());
        };
        match helper_cores::plan(&cpus, &masks, index, threads, helper_cores) {
            Ok(HelperCores { solver, helper, kept }) => {
                let solver = Some(CpuPlacement::Pin(solver));
                Self { solver, helper_cpu: Some(helper), kept, refusal: None }
            }
            Err(why) => refused(why.to_string()),
        }
    }

    /// Why there are no helper cores although they were requested.
    pub fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    /// The CPUs of this host that are kept from the solver.
    pub fn kept(&self) -> &[usize] {
        &self.kept
    }

    /// Starts the solver's threads; the calling one is the first.
    ///
    /// # Errors
    /// When the system starts no more threads.
    pub fn start_team(&self, threads: usize) -> std::io::Result<Team> {
        let pinner = self.solver.as_ref().map(CpuPlacement::pinner);
        let pin = move |thread: usize| pinner.iter().for_each(|pin| pin(thread));
        pin(0);
        Ok(library::start_team(threads, pin)?.with_helper_cpu(self.helper_cpu))
    }

    /// Says that the threads of a rank on `host` have fewer cores than threads, and what to change;
    /// empty if they have enough.
    pub fn lack(&self, host: &str) -> String {
        match &self.solver {
            Some(CpuPlacement::Leave(WhyNot::LauncherTooTight { cores, threads })) => format!(
                "on {host} a rank of {threads} threads may use {cores} core(s): {}",
                Starter::advice(Starter::of_this_process(), *threads)
            ),
            Some(CpuPlacement::Leave(WhyNot::Oversubscribed { ranks, threads, cores })) => format!(
                "on {host} {ranks} rank(s) of {threads} thread(s) share {cores} core(s): start \
                 fewer ranks or threads there, or, if the host has more cores, let the job have \
                 them"
            ),
            _ => String::new(),
        }
    }

    /// The placement of the solver's threads, for the report.
    pub fn words(&self) -> String {
        match &self.solver {
            None => "not pinned: the system does not tell which processors there are".into(),
            Some(CpuPlacement::Pin(cpus)) => {
                let list = affinity::list(cpus);
                format!("each thread to a core of its own; rank 0 to cpu {list}")
            }
            Some(CpuPlacement::Leave(why)) => why.to_string(),
        }
    }
}
