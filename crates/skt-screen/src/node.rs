//! A rank's part of a screening: its node, its threads, its pairs, and the systems it solves.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Failed;
use super::limit::Limit;
use super::messages::{Joined, NodeReport, Work};
use super::probe::{self, LinkRate};
use super::results::{Events, NodeKind, NodeRates, Pair, Results, SLOW_LINK, ScreenedNode, Solve};
use skt_comm::{Comm, CommError, collect};
use skt_config::{Format, TestSpec, parse};
use skt_health::doctor::gather::{Place, job_part, start_team};
use skt_health::environment::library::{CalledBlas, ChosenBlas};
use skt_health::environment::selftest;
use skt_host::core_use::JobPart;
use skt_host::counters::processor::Processor;
use skt_host::counters::sensors::{self, MemoryErrors};
use skt_host::counters::{Counters, Root};
use skt_host::memory;
use skt_host::{placement, tournament};
use skt_run::cores::CoreEvents;
use skt_run::ptest::{self, TestRun};
use skt_run::record::{Outcome, TestRecord};
use skt_solver::blas::{library, peak};
use skt_solver::grid::Grid;
use skt_solver::pgesv::guard::Unguarded;
use skt_solver::team::Team;

/// The blocking factor: near the best one of all processors, and the same for all.
const NB: usize = 192;
/// Stages of pairs: with three, a slow link is distinguished from a slow node by two other pairs of
/// each of its ends.
const PAIR_STAGES: usize = 3;
/// Seconds of DGEMM from which N follows.
const DGEMM_SECONDS: f64 = 0.3;

/// What a rank sends to all others at the start.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct RankPlace {
    at: Place,
    /// The cores that its mask has, as the rank's own host numbers its CPUs.
    cores: usize,
    processor: String,
    blas: CalledBlas,
    threads: Option<usize>,
}

/// A rank in its node and its pairs.
pub(crate) struct Crew {
    /// The names of the nodes and their kinds, by first rank.
    pub nodes: Vec<(String, NodeKind)>,
    pub ranks: Vec<Vec<usize>>,
    pub node: usize,
    /// Whether this rank reports for its node.
    pub is_first: bool,
    /// Pairs of nodes that work at the same time, stage by stage.
    pub stages: Vec<Vec<[usize; 2]>>,
    comm: Comm,
    /// The ranks of this rank's pair of nodes in each stage.
    pairs: Vec<Option<Comm>>,
    team: Team,
    /// Why this rank must not compute with its BLAS.
    lack_of_blas: Option<String>,
    threads: usize,
    cpus: Vec<usize>,
    /// Nodes on this host, which share its memory: one, unless ranks are nodes.
    nodes_here: u64,
    /// On the first rank of a node: the job's part of its host.
    job: Option<JobPart>,
    /// What the host had counted at the start.
    before: HostCounts,
}

impl Crew {
    /// Divides the ranks of `world` into nodes, one for each host, or for each rank with `by_rank`,
    /// and starts this rank's threads: its share of the cores that it may use, or `threads`. `blas`
    /// is what it calls. Collective.
    pub(crate) fn new(
        world: &Comm,
        blas: &ChosenBlas,
        threads: Option<usize>,
        by_rank: bool,
    ) -> Result<Self, Failed> {
        library::use_one_thread();
        let counters = Counters::read(&Root::this_machine());
        let place = RankPlace {
            at: Place::here(world, &counters),
            cores: placement::cores_in(&counters.cpus, &counters.allowed_cpus).len(),
            processor: processor_words(&counters.processor),
            blas: CalledBlas::here(blas),
            threads,
        };
        let places = collect::all_gather_json(world, &place)?;
        let (names, ranks) = nodes_of(&places, by_rank);
        let own = world.rank();
        let node = ranks.iter().position(|ranks| ranks.contains(&own)).expect("each has one");
        let kinds = ranks.iter().map(|of_node| kind(&places, of_node));
        let stages = tournament::rounds(names.len(), PAIR_STAGES);
        let comm = world.split(Some(node as u32), own as u32)?.expect("a colour was given");
        let mut pairs = Vec::new();
        for stage in &stages {
            let pair = stage.iter().position(|pair| pair.contains(&node));
            pairs.push(world.split(pair.map(|pair| pair as u32), own as u32)?);
        }
        let at: Vec<Place> = places.iter().map(|place| place.at.clone()).collect();
        let host = &at[own].host;
        let is_first = ranks[node][0] == own;
        let threads = threads_of(&places, own);
        Ok(Self {
            nodes: names.into_iter().zip(kinds).collect(),
            is_first,
            nodes_here: ranks.iter().filter(|ranks| at[ranks[0]].host == *host).count() as u64,
            ranks,
            node,
            stages,
            comm,
            pairs,
            team: start_team(&counters, &at, own, threads).map_err(Failed::new)?,
            lack_of_blas: blas.failure.clone(),
            threads,
            job: is_first.then(|| job_part(&at, host)),
            before: HostCounts::read(&Root::this_machine(), &counters.allowed_cpus),
            cpus: counters.allowed_cpus,
        })
    }

    /// Results of which only the nodes are known.
    pub(crate) fn no_results(&self) -> Results {
        let node = |(host, kind): &(String, NodeKind)| ScreenedNode {
            host: host.clone(),
            kind: Some(kind.clone()),
            ..ScreenedNode::default()
        };
        Results { nodes: self.nodes.iter().map(node).collect(), ..Results::default() }
    }

    /// Does a part of the screening within about these seconds, but for the nodes `lost`, and calls
    /// `report` with each result of this rank's node.
    pub(crate) fn perform(
        &self,
        work: &Work,
        lost: &[usize],
        seconds: f64,
        limit: &Limit,
        mut report: impl FnMut(NodeReport) -> Result<(), CommError>,
    ) -> Result<(), CommError> {
        let failed = |why: Failed| NodeReport::Failed(why.to_string());
        limit.set(seconds);
        match *work {
            Work::Ready => report(self.ready().map_or_else(failed, NodeReport::Ready)),
            Work::Solve { .. } if lost.contains(&self.node) => Ok(()),
            Work::Solve { n, rounds } => {
                let until = limit.after(seconds);
                for _ in 0..rounds {
                    // A report may have set another limit.
                    limit.set(limit.seconds_to(until));
                    match self.solve(&self.comm, n) {
                        Ok(None) => {}
                        Ok(Some(solve)) => report(NodeReport::Solved(solve))?,
                        Err(why) => return report(failed(why)),
                    }
                }
                Ok(())
            }
            Work::Join { n, stage } => {
                report(NodeReport::Joined(self.join(stage, n, lost, seconds)))
            }
            Work::Count => report(NodeReport::Counted(self.events())),
        }
    }

    /// Measures DGEMM and the memory of the node, with all its ranks at once.
    fn ready(&self) -> Result<NodeRates, Failed> {
        let lack = self.lack_of_blas.as_deref().unwrap_or_default();
        if let Some(why) = collect::first_text(&self.comm, lack)? {
            return Err(Failed::new(why));
        }
        self.comm.barrier()?;
        let dgemm = selftest::dgemm_rates(&self.team, DGEMM_SECONDS)?;
        self.comm.barrier()?;
        let threads_here = self.comm.size() * self.team.threads() * self.nodes_here as usize;
        let memory = probe::memory_gigabytes_a_second(&self.team, threads_here);
        let units = peak::gflops_per_core(&self.team)
            .map_or(f64::NAN, |of_core| of_core * self.team.threads() as f64);
        let mut rates = [dgemm.mean, memory.unwrap_or(f64::NAN), units];
        collect::all_sum(&self.comm, &mut rates)?;
        let free_bytes = memory::this_process().free_bytes();
        let [dgemm_gflops, memory_gigabytes_a_second, units_gflops] = rates.map(number);
        Ok(NodeRates {
            dgemm_gflops,
            units_gflops,
            memory_gigabytes_a_second,
            free_bytes: free_bytes.map(|bytes| bytes / self.nodes_here),
        })
    }

    /// Takes part in a stage with systems of order `n`, for about `seconds` at most. The nodes
    /// `lost` take no part.
    fn join(&self, stage: usize, n: usize, lost: &[usize], seconds: f64) -> Joined {
        let mut joined = Joined::default();
        let pair = self.stages[stage].iter().find(|pair| pair.contains(&self.node));
        let (Some(pair), Some(comm)) = (pair, &self.pairs[stage]) else { return joined };
        if pair.iter().any(|node| lost.contains(node)) {
            return joined;
        }
        match self.join_pair(*pair, comm, n, seconds, &mut joined.link) {
            Ok(solve) => joined.solve = solve,
            Err(why) => joined.lost = Some(why.to_string()),
        }
        if self.node != pair[0] {
            (joined.link, joined.solve) = (None, None);
        }
        joined
    }

    fn join_pair(
        &self,
        pair: [usize; 2],
        comm: &Comm,
        n: usize,
        seconds: f64,
        link: &mut Option<LinkRate>,
    ) -> Result<Option<Solve>, Failed> {
        let mut rate = [f64::NAN];
        if self.is_first {
            let other = if self.node == pair[0] { pair[1] } else { pair[0] };
            let found = probe::link(comm, self.rank_in_pair(&pair, other))?;
            rate = [found.gigabytes_a_second];
            *link = Some(found);
        }
        collect::broadcast(comm, &mut rate, 0)?;
        if is_too_slow(rate[0], n, seconds) {
            return Err(Failed::new(SLOW_LINK));
        }
        self.solve(comm, n)
    }

    /// Solves a system with all ranks of `comm`. Rank 0 gets the result.
    fn solve(&self, comm: &Comm, n: usize) -> Result<Option<Solve>, Failed> {
        let test = test(n, comm.size(), self.threads);
        let grid = Grid::new(comm, test.p, test.q, test.pmap)?.expect("a grid of all ranks");
        let doubles = ptest::shape(&grid, &test).doubles();
        let memory = Unguarded::new(doubles);
        let mut memory = memory.map_err(|why| Failed::new(format!("{doubles} doubles: {why}")))?;
        let mut events = CoreEvents::new(self.job.clone());
        let of_all = TestRun { grid: &grid, team: &self.team, spec: &test };
        let record = ptest::run(of_all, &mut memory, false, &mut events)?;
        Ok(record.map(|record| Solve { cores: events.cores, ..result(&record) }))
    }

    /// The number of the first rank of `node` among the ranks of its pair, which are in order.
    fn rank_in_pair(&self, pair: &[usize], node: usize) -> usize {
        let first = self.ranks[node][0];
        pair.iter().flat_map(|&node| &self.ranks[node]).filter(|&&rank| rank < first).count()
    }

    /// What the system has counted since the start.
    fn events(&self) -> Events {
        let root = Root::this_machine();
        let celsius = sensors::hottest_celsius(&root);
        Events { celsius, ..HostCounts::read(&root, &self.cpus).since(&self.before) }
    }

    /// Adds the reports of the nodes of a stage, by node, to the results.
    pub(crate) fn add_stage(
        &self,
        stage: usize,
        mut reports: BTreeMap<usize, Joined>,
        results: &mut Results,
    ) {
        for &nodes in &self.stages[stage] {
            let mut all: Vec<Joined> =
                nodes.iter().filter_map(|node| reports.remove(node)).collect();
            let lost = all.iter_mut().find_map(|joined| joined.lost.take());
            let Joined { link, solve, .. } =
                all.into_iter().find(|it| *it != Joined::default()).unwrap_or_default();
            // A pair with a lost node takes no part.
            if solve.is_some() || lost.is_some() {
                let (gigabytes_a_second, microseconds) =
                    link.map(|it| (it.gigabytes_a_second, it.microseconds)).unzip();
                let lost = lost.filter(|_| solve.is_none());
                results.pairs.push(Pair { nodes, gigabytes_a_second, microseconds, solve, lost });
            }
        }
    }
}

/// Whether a link of this rate, in 10^9 bytes a second, is too slow for a system of order `n` that
/// has to be solved within `seconds`.
fn is_too_slow(gigabytes_a_second: f64, n: usize, seconds: f64) -> bool {
    // A panel passes each link once, and so do rows: three times the matrix, with room.
    let bytes = 3.0 * (n * n * size_of::<f64>()) as f64;
    bytes / (1e9 * gigabytes_a_second) > seconds / 2.0
}

/// The processor and its vector instructions, by which our own kernels are chosen: a virtual
/// machine may hide some.
fn processor_words(processor: &Processor) -> String {
    let name = processor.name.as_deref().unwrap_or("unknown processor");
    let vectors = processor.vectors.map(|vectors| format!(" ({})", vectors.name()));
    format!("{name}{}", vectors.unwrap_or_default())
}

fn nodes_of(places: &[RankPlace], by_rank: bool) -> (Vec<String>, Vec<Vec<usize>>) {
    let (mut names, mut ranks): (Vec<String>, Vec<Vec<usize>>) = (Vec::new(), Vec::new());
    for (rank, place) in places.iter().enumerate() {
        let host = &place.at.host;
        let before = places[..rank].iter().filter(|other| other.at.host == *host).count();
        let name = if by_rank { format!("{host}/{before}") } else { host.clone() };
        match names.iter().position(|known| *known == name) {
            Some(node) => ranks[node].push(rank),
            None => {
                names.push(name);
                ranks.push(vec![rank]);
            }
        }
    }
    (names, ranks)
}

/// The threads of rank `rank`: as the user wants, or its share of the cores that it may use, which
/// it shares with the ranks of its host that may use the same ones.
fn threads_of(places: &[RankPlace], rank: usize) -> usize {
    let place = &places[rank];
    let is_sharer =
        |other: &&RankPlace| other.at.host == place.at.host && other.at.mask == place.at.mask;
    let sharers = places.iter().filter(is_sharer).count();
    place.threads.unwrap_or(place.cores / sharers).max(1)
}

fn kind(places: &[RankPlace], of_node: &[usize]) -> NodeKind {
    let RankPlace { processor, blas, .. } = &places[of_node[0]];
    // The first of those that have the same library names it for all.
    let first = places.iter().find(|place| place.blas == *blas).expect("it is like itself");
    NodeKind {
        processor: processor.clone(),
        blas: first.blas.shown(),
        ranks: of_node.len(),
        threads: threads_of(places, of_node[0]),
    }
}

struct HostCounts {
    /// Corrected and uncorrected errors of the memory, and machine checks; `None` where they are
    /// not known.
    errors: [Option<u64>; 3],
    throttled: Vec<Option<u64>>,
}

impl HostCounts {
    fn read(root: &Root, cpus: &[usize]) -> Self {
        let MemoryErrors { controllers, has_all, machine_checks } = sensors::memory_errors(root);
        let corrected = has_all.then(|| controllers.iter().map(|it| it.1).sum());
        let uncorrected = has_all.then(|| controllers.iter().map(|it| it.2).sum());
        let errors = [corrected, uncorrected, machine_checks];
        Self { errors, throttled: sensors::events_of_cpus(root, cpus) }
    }

    fn since(&self, before: &Self) -> Events {
        // What is not known of both moments names no node.
        let [corrected, uncorrected, machine_checks] = std::array::from_fn(|which| {
            let both = self.errors[which].zip(before.errors[which]);
            both.map_or(0, |(now, then)| now.saturating_sub(then))
        });
        let throttled = sensors::max_events_between(&before.throttled, &self.throttled);
        Events { corrected, uncorrected, machine_checks, throttled, celsius: None }
    }
}

/// The test that `ranks` ranks run: all else is the default of a run.
fn test(n: usize, ranks: usize, threads: usize) -> TestSpec {
    let p = (1..=ranks).filter(|p| ranks.is_multiple_of(*p) && p * p <= ranks).max().unwrap_or(1);
    let q = ranks / p;
    let text = format!("n = {n}\nnb = {NB}\np = {p}\nq = {q}\nthreads = {threads}\n");
    let parsed = parse(text.as_bytes(), "screen", Format::Toml, false).expect("legal values");
    parsed.spec.tests().remove(0)
}

/// The most bytes that one of the `ranks` ranks of a node needs for a system of order `n` that the
/// node solves alone.
pub(crate) fn bytes_a_rank(n: usize, ranks: usize) -> u64 {
    ptest::rank_bytes(&test(n, ranks, 1), 0, 0)
}

fn number(value: f64) -> Option<f64> {
    Some(value).filter(|value| value.is_finite())
}

fn result(record: &TestRecord) -> Solve {
    let solved = Solve {
        gflops: number(record.gflops),
        x: Some(format!("{:016x}", record.x_fingerprint)),
        ..Solve::default()
    };
    match &record.outcome {
        Outcome::Passed { scaled_residual, .. } => {
            Solve { scaled_residual: number(*scaled_residual), ..solved }
        }
        Outcome::Failed { scaled_residual, .. } => Solve {
            scaled_residual: number(*scaled_residual),
            wrong: Some(format!(
                "the scaled residual {scaled_residual:.3e} is not below {}",
                record.spec.threshold
            )),
            ..solved
        },
        Outcome::Broke { column, pivot } => {
            let wrong = Some(format!("the pivot of column {column} is {pivot}"));
            Solve { wrong, ..Solve::default() }
        }
        Outcome::NotChecked | Outcome::Skipped { .. } => {
            Solve { wrong: Some("it was not checked".to_owned()), ..solved }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skt_host::testing::Tree;

    /// A rank on a host with `cores` cores, each of which is one CPU.
    fn place(host: &str, cores: usize) -> RankPlace {
        RankPlace {
            at: Place { host: host.to_owned(), process: 1, mask: (0..cores).collect() },
            cores,
            processor: String::new(),
            blas: CalledBlas::default(),
            threads: None,
        }
    }

    /// The CPUs of the host that compares are no evidence about those of others.
    #[test]
    fn a_node_has_the_threads_that_its_own_host_counts() {
        let places = [place("small", 1), place("large", 4096)];
        assert_eq!([0, 1].map(|rank| kind(&places, &[rank]).threads), [1, 4096]);
    }

    #[test]
    fn an_event_of_a_package_is_counted_once() {
        let tree = Tree::new();
        let count = |events: u64| {
            for id in [0, 1] {
                let file = "thermal_throttle/package_throttle_count";
                tree.file(
                    &format!("sys/devices/system/cpu/cpu{id}/{file}"),
                    &format!("{events}\n"),
                );
            }
            HostCounts::read(&tree.root(), &[0, 1])
        };
        let (before, after) = (count(5), count(8));
        assert_eq!(after.since(&before).throttled, 3);
    }

    #[test]
    fn errors_of_an_unreadable_counter_are_not_counted() {
        let tree = Tree::new();
        let count = |corrected: &str| {
            tree.file("sys/devices/system/edac/mc/mc0/ce_count", corrected);
            tree.file("sys/devices/system/edac/mc/mc0/ue_count", "0");
            HostCounts::read(&tree.root(), &[])
        };
        let (unknown, old, new) = (count("?"), count("40"), count("42"));
        assert_eq!(new.since(&old).corrected, 2);
        assert_eq!([new.since(&unknown).corrected, unknown.since(&old).corrected], [0, 0]);
    }

    #[test]
    fn ranks_of_a_host_are_a_node_unless_each_is_one() {
        let place = |host: &str| place(host, 4);
        let places = [place("a"), place("b"), place("a"), place("b")];
        let (names, ranks) = nodes_of(&places, false);
        assert_eq!((names, ranks), (vec!["a".into(), "b".into()], vec![vec![0, 2], vec![1, 3]]));
        let (names, ranks) = nodes_of(&places, true);
        assert_eq!(names, ["a/0", "b/0", "a/1", "b/1"]);
        assert_eq!(ranks.concat(), [0, 1, 2, 3]);
    }

    #[test]
    fn grids_are_as_square_as_can_be() {
        for (ranks, p, q) in [(1, 1, 1), (2, 1, 2), (6, 2, 3), (7, 1, 7), (16, 4, 4)] {
            let test = test(1000, ranks, 2);
            assert_eq!((test.p, test.q, test.n, test.threads), (p, q, 1000, 2));
        }
    }
}
