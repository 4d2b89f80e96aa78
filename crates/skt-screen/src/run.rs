//! The screening: rank 0 announces what is next, all nodes do it at once, and rank 0 collects.
//!
//! ```text
//! ready     DGEMM and memory of each node               -> N
//! solve     the same system some times, each node alone
//! join      stages of pairs: links, and systems together
//! count     errors of the memory, throttling, temperature
//! ```
//!
//! No part waits for all ranks. A node that does not answer within the limit of a part is lost: it
//! takes no part in what follows, and the others continue.

use std::collections::BTreeMap;
use std::time::Instant;

use skt_host::median::nonempty_median;
use skt_host::units;

use super::Failed;
use super::limit::Limit;
use super::messages::{self, Instruction, Joined, NodeReport, TAG_INSTRUCTION, TAG_REPORT, Work};
use super::node::{Crew, bytes_a_rank};
use super::results::{Results, ScreenedNode, sound_rate};
use skt_comm::Comm;
use skt_health::environment::library::ChosenBlas;
use skt_health::environment::preflight::{self, HostShare};
use skt_run::job::settle_blas;
use skt_run::progress::Progress;

/// The least limit of the time until all ranks have started their threads and have measured DGEMM:
/// nothing is measured yet, and a user who has more time has more patience.
const START_SECONDS: f64 = 120.0;
/// A part that should take T by what was measured is given this many times T, plus
/// [`FLOOR_SECONDS`].
const PATIENCE: f64 = 4.0;
const FLOOR_SECONDS: f64 = 30.0;
/// How much longer rank 0 waits than a node may take, and how much longer a node waits than rank 0.
const GRACE_SECONDS: f64 = 10.0;
/// The share of DGEMM's rate that a system of some seconds reaches, about.
const SHARE_OF_DGEMM: f64 = 0.6;
/// A node that is slower than the others by more than this factor is not waited for.
const SLOWEST: f64 = 8.0;
/// The share of the nodes' median free memory that a matrix may take.
const SHARE_OF_MEMORY: f64 = 0.5;
/// The least N: smaller systems take no time that can be compared.
const MIN_N: usize = 1000;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Request {
    /// The order of the systems; `None`: it follows from the rates.
    pub n: Option<usize>,
    pub rounds: usize,
    /// The time for all, if all is well.
    pub seconds: f64,
    /// Threads of a rank; `None`: its share of the cores that it may use.
    pub threads: Option<usize>,
    /// Whether each rank counts as a node.
    pub by_rank: bool,
}

impl Request {
    /// The longest time until all ranks have started their threads and have measured DGEMM.
    fn start_seconds(&self) -> f64 {
        self.seconds.max(START_SECONDS)
    }
}

/// How a screening ended on a rank.
pub enum ScreeningEnd {
    /// On rank 0, which has to call [`dismiss`].
    Led {
        results: Results,
        /// Whether a rank might no longer answer, which would keep the others from ending.
        is_any_silent: bool,
    },
    /// On the other ranks: the exit code.
    Followed(u8),
}

/// Screens all nodes of `world`. All waits of `world` end at `limit`; `blas` is what this process
/// has chosen. Collective.
pub fn run(
    world: &Comm,
    request: &Request,
    blas: &ChosenBlas,
    limit: &Limit,
    progress: &mut Progress,
) -> Result<ScreeningEnd, Failed> {
    limit.set(request.start_seconds());
    let blas = settle_blas(world, blas.named.as_deref(), blas, None)?;
    let crew = Crew::new(world, &blas, request.threads, request.by_rank)?;
    if world.rank() == 0 {
        let mut lead = Lead::new(world, crew, request, limit, progress);
        lead.all()?;
        let Lead { results, is_any_silent, .. } = lead;
        return Ok(ScreeningEnd::Led { results, is_any_silent });
    }
    follow(world, &crew, limit, request.start_seconds()).map(ScreeningEnd::Followed)
}

/// Ends the screening on all other ranks with this exit code; rank 0 calls it when it has shown the
/// results.
pub fn dismiss(world: &Comm, limit: &Limit, code: u8) -> Result<(), Failed> {
    limit.set(GRACE_SECONDS);
    for rank in 1..world.size() {
        messages::send(world, &Instruction::End(code), rank, TAG_INSTRUCTION)?;
    }
    Ok(())
}

/// Follows the instructions of rank 0, until it ends the screening.
fn follow(world: &Comm, crew: &Crew, limit: &Limit, start_seconds: f64) -> Result<u8, Failed> {
    let send = |report: NodeReport| {
        // The limit of the part may have passed.
        limit.set(GRACE_SECONDS);
        if crew.is_first { messages::send(world, &report, 0, TAG_REPORT) } else { Ok(()) }
    };
    let (mut work, mut lost, mut seconds) = (Work::Ready, Vec::new(), start_seconds);
    loop {
        crew.perform(&work, &lost, seconds, limit, send)?;
        limit.set(seconds + 3.0 * GRACE_SECONDS);
        let instruction = messages::receive(world, 0, TAG_INSTRUCTION).map_err(|why| {
            Failed::new(format!("the host {} does not answer: {why}", crew.nodes[0].0))
        })?;
        (work, lost, seconds) = match instruction {
            Instruction::Do { work, lost, seconds } => (work, lost, seconds),
            Instruction::End(code) => return Ok(code),
        };
    }
}

/// The line of progress about a part of the work on `nodes` nodes, or ranks that stand for nodes.
fn announcement(what: &str, nodes: usize, by_rank: bool, left_seconds: Option<f64>) -> String {
    let things = if by_rank { "rank(s)" } else { "node(s)" };
    let left = left_seconds.map_or(String::new(), |seconds| match seconds {
        ..1.0 => ", ETA less than 1 s".to_owned(),
        _ => format!(", ETA {}", units::span(seconds)),
    });
    format!("screen: {what} on {nodes} {things}{left}")
}

struct Lead<'a> {
    world: &'a Comm,
    crew: Crew,
    request: &'a Request,
    limit: &'a Limit,
    progress: &'a mut Progress,
    begun: Instant,
    results: Results,
    /// What the nodes have reported of the present stage of pairs.
    joined: BTreeMap<usize, Joined>,
    /// Whether a node was lost in its work: one of its ranks might no longer answer.
    is_any_silent: bool,
}

impl<'a> Lead<'a> {
    fn new(
        world: &'a Comm,
        crew: Crew,
        request: &'a Request,
        limit: &'a Limit,
        progress: &'a mut Progress,
    ) -> Self {
        let (begun, results, joined) = (Instant::now(), crew.no_results(), BTreeMap::new());
        let is_any_silent = false;
        Self { world, crew, request, limit, progress, begun, results, joined, is_any_silent }
    }

    fn all(&mut self) -> Result<(), Failed> {
        let Request { rounds, seconds, .. } = *self.request;
        // The time that is asked for decides N, unless that is given: then no rate is known yet.
        let line = self.line("DGEMM and memory", self.request.n.is_none().then_some(seconds));
        self.part(Work::Ready, "measuring DGEMM", self.request.start_seconds(), vec![line])?;
        let stages = self.crew.stages.len();
        let rates = self.results.nodes.iter().map(|node| node.rates.dgemm_gflops);
        let rates: Vec<f64> = rates.filter_map(sound_rate).collect();
        if rates.is_empty() {
            return Ok(());
        }
        let (ranks, shares) = (self.crew.ranks[0].len(), self.shares());
        let each_seconds = seconds / (rounds + stages) as f64;
        let n = self.request.n.unwrap_or_else(|| order(&rates, each_seconds, &shares));
        if self.request.n.is_some() {
            let fits = preflight::check(n, &shares, |n| bytes_a_rank(n, ranks));
            if let Err(why) = fits {
                self.results.refused = Some(why.to_string());
                return Ok(());
            }
        }
        self.leave_out(without_memory(n, &shares, |n| bytes_a_rank(n, ranks)));
        self.results.n = n;
        let expected = expected_seconds(&rates, n);
        let line = |round: usize| {
            let what = format!("N={n}, each node alone, round {} of {rounds}", round + 1);
            self.line(&what, Some(expected * (rounds + stages - round) as f64))
        };
        let lines = (0..rounds).map(line).collect();
        let seconds = FLOOR_SECONDS + PATIENCE * expected * rounds as f64;
        self.part(Work::Solve { n, rounds }, "solving alone", seconds, lines)?;
        for stage in 0..stages {
            let what = format!("N={n}, pairs, stage {} of {stages}", stage + 1);
            let line = self.line(&what, Some(expected * (stages - stage) as f64));
            let seconds = FLOOR_SECONDS + PATIENCE * expected;
            self.part(Work::Join { n, stage }, "solving in a pair", seconds, vec![line])?;
            let joined = std::mem::take(&mut self.joined);
            self.crew.add_stage(stage, joined, &mut self.results);
        }
        self.part(Work::Count, "counting", FLOOR_SECONDS, Vec::new())
    }

    fn shares(&self) -> Vec<HostShare> {
        let ranks = self.crew.ranks[0].len();
        let share = |node: &ScreenedNode| HostShare {
            host: node.host.clone(),
            ranks,
            available_bytes: node.rates.free_bytes,
            limit_bytes: None,
        };
        self.results.nodes.iter().map(share).collect()
    }

    /// Leaves out nodes that answer, but cannot take part.
    fn leave_out(&mut self, nodes: Vec<(usize, String)>) {
        for (node, why) in nodes {
            self.results.nodes[node].lost.get_or_insert(why);
        }
    }

    /// The line about a part, with the time that is left if all is well; `None` if it is unknown.
    fn line(&self, what: &str, left_seconds: Option<f64>) -> String {
        announcement(what, self.crew.nodes.len(), self.request.by_rank, left_seconds)
    }

    /// Has all nodes do a part of the screening, within these seconds. Nodes that fail or are
    /// silent are lost, `doing` being what they were to do. Of the `lines` of progress, one is
    /// shown before each result of this node.
    fn part(
        &mut self,
        work: Work,
        doing: &str,
        seconds: f64,
        lines: Vec<String>,
    ) -> Result<(), Failed> {
        let (world, limit) = (self.world, self.limit);
        let mut lines = lines.into_iter();
        lines.next().iter().for_each(|line| self.progress.phase(line));
        let is_lost = |node: &usize| self.results.nodes[*node].lost.is_some();
        let lost: Vec<usize> = (0..self.crew.nodes.len()).filter(is_lost).collect();
        let is_awaited = |(node, ranks): (usize, &Vec<usize>)| {
            (!lost.contains(&node) && ranks[0] != 0).then_some(ranks[0])
        };
        let awaited: Vec<usize> =
            self.crew.ranks.iter().enumerate().filter_map(is_awaited).collect();
        let until = limit.after(seconds + GRACE_SECONDS);
        limit.set(GRACE_SECONDS);
        let instruction = Instruction::Do { work: work.clone(), lost: lost.clone(), seconds };
        // The first part needs none. A rank out of reach is found when it does not answer.
        for rank in if work == Work::Ready { 1..1 } else { 1..world.size() } {
            let _ = messages::send(world, &instruction, rank, TAG_INSTRUCTION);
        }
        let mut own = Vec::new();
        self.crew.perform(&work, &lost, seconds, limit, |report| {
            own.push(report);
            lines.next().iter().for_each(|line| self.progress.phase(line));
            Ok(())
        })?;
        let node = self.crew.node;
        own.into_iter().for_each(|report| _ = self.take(node, doing, report));
        limit.set(limit.seconds_to(until) + 2.0 * GRACE_SECONDS);
        let first: Vec<usize> = self.crew.ranks.iter().map(|ranks| ranks[0]).collect();
        let node_of = |rank| first.iter().position(|first| *first == rank).expect("a first rank");
        let is_over = || limit.now() > until;
        let silent = messages::collect(world, is_over, awaited, |rank, report| {
            self.take(node_of(rank), doing, report)
        })?;
        for rank in silent {
            self.is_any_silent = true;
            let begun = units::span(self.begun.elapsed().as_secs_f64());
            let why = format!("no answer while {doing}, {begun} after the start");
            self.results.nodes[node_of(rank)].lost = Some(why);
        }
        Ok(())
    }

    /// Notes a report of a node. Returns whether more is awaited of it.
    fn take(&mut self, index: usize, doing: &str, report: NodeReport) -> bool {
        let node = &mut self.results.nodes[index];
        match report {
            NodeReport::Ready(rates) => node.rates = rates,
            NodeReport::Solved(solve) => {
                node.solves.push(solve);
                return node.solves.len() < self.request.rounds;
            }
            NodeReport::Joined(joined) => _ = self.joined.insert(index, joined),
            NodeReport::Counted(events) => node.events = Some(events),
            NodeReport::Failed(why) => {
                node.lost = Some(format!("{doing}: {why}"));
                // Another rank of the node may be the reason.
                self.is_any_silent = true;
            }
        }
        false
    }
}

/// The order of systems that a node of median DGEMM rate, in Gflop/s, solves in `seconds`, and
/// whose matrix fits twice into the median of the nodes' free memory.
fn order(dgemm_gflops: &[f64], seconds: f64, shares: &[HostShare]) -> usize {
    let operations = SHARE_OF_DGEMM * 1e9 * nonempty_median(dgemm_gflops.iter().copied()) * seconds;
    let by_time = (1.5 * operations).cbrt();
    let bytes = median_bytes(shares).map_or(f64::INFINITY, |bytes| SHARE_OF_MEMORY * bytes);
    let by_memory = (bytes / size_of::<f64>() as f64).sqrt();
    (by_time.min(by_memory) as usize / 100 * 100).max(MIN_N)
}

/// The median of the free memory of the nodes that report theirs.
fn median_bytes(shares: &[HostShare]) -> Option<f64> {
    let known = shares.iter().filter_map(|share| share.available_bytes);
    skt_host::median::median(known.map(|bytes| bytes as f64))
}

/// The nodes that have no memory for a system of order `n`, each with what it lacks.
fn without_memory(
    n: usize,
    shares: &[HostShare],
    bytes_a_rank: impl Fn(usize) -> u64,
) -> Vec<(usize, String)> {
    let lacks = |(node, share): (usize, &HostShare)| {
        let fits = preflight::check(n, std::slice::from_ref(share), &bytes_a_rank);
        let free = units::bytes(fits.err()?.usable_bytes);
        let median = units::bytes(median_bytes(shares)? as u64);
        Some((node, format!("{free} of memory free, median {median}: too little for N={n}")))
    };
    shares.iter().enumerate().filter_map(lacks).collect()
}

/// The seconds for a system of order `n` on the slowest node that is waited for.
fn expected_seconds(dgemm_gflops: &[f64], n: usize) -> f64 {
    let slowest = dgemm_gflops.iter().copied().fold(f64::INFINITY, f64::min);
    let rate = slowest.max(nonempty_median(dgemm_gflops.iter().copied()) / SLOWEST);
    (n as f64).powi(3) * 2.0 / 3.0 / (SHARE_OF_DGEMM * 1e9 * rate)
}

/// The entry of a node that took no part at all.
pub(crate) fn unreached(host: &str, why: &str) -> ScreenedNode {
    ScreenedNode { host: host.to_owned(), lost: Some(why.to_owned()), ..ScreenedNode::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::judge;
    use skt_solver::comm::threads::run as run_ranks;

    #[test]
    fn n_follows_from_rate_time_and_memory() {
        // 1000 Gflop/s x 0.6 x 10 s = 6e12 operations.
        assert_eq!(order(&[1.0, 1000.0, 1000.0], 10.0, &[]), 20_800);
        assert_eq!(order(&[1000.0], 10.0, &shares(&[16 << 30])), 20_800);
        assert_eq!(order(&[1000.0], 10.0, &shares(&[1 << 30])), 8_100);
        assert_eq!(order(&[0.1], 0.1, &[]), MIN_N);
    }

    fn shares(free_bytes: &[u64]) -> Vec<HostShare> {
        let share = |&bytes: &u64| HostShare {
            host: "n".into(),
            ranks: 1,
            available_bytes: Some(bytes),
            limit_bytes: None,
        };
        free_bytes.iter().map(share).collect()
    }

    #[test]
    fn a_node_with_little_memory_is_named_and_does_not_set_n() {
        let shares = shares(&[16 << 30, 1 << 30, 16 << 30]);
        let n = order(&[1000.0], 10.0, &shares);
        let want = "1.0 GiB of memory free, median 16.0 GiB: too little for N=20800";
        let lacking = without_memory(n, &shares, |n| bytes_a_rank(n, 1));
        assert_eq!((n, lacking), (20_800, vec![(1, want.to_owned())]));
    }

    #[test]
    fn the_time_left_is_announced_where_it_is_known() {
        let ranks = announcement("DGEMM and memory", 2, true, None);
        assert_eq!(ranks, "screen: DGEMM and memory on 2 rank(s)");
        let nodes = |left| announcement("round 1", 3, false, Some(left));
        assert_eq!(nodes(0.2), "screen: round 1 on 3 node(s), ETA less than 1 s");
        assert_eq!(nodes(90.0), "screen: round 1 on 3 node(s), ETA 1 min 30 s");
    }

    /// All ranks are dismissed unless one might no longer answer.
    #[test]
    fn a_node_that_only_lacks_memory_is_not_taken_for_a_silent_one() {
        let request = Request { n: None, rounds: 1, seconds: 1.0, threads: Some(1), by_rank: true };
        let seen = run_ranks(1, |world| {
            let (limit, mut progress) = (Limit::default(), Progress::off());
            let blas = ChosenBlas::default();
            let crew = Crew::new(&world, &blas, request.threads, request.by_rank)?;
            let mut lead = Lead::new(&world, crew, &request, &limit, &mut progress);
            lead.leave_out(vec![(0, "too little memory".to_owned())]);
            let lacks_memory = (lead.results.nodes[0].lost.is_some(), lead.is_any_silent);
            lead.take(0, "solving alone", NodeReport::Failed("no answer in time".into()));
            Ok::<_, Failed>((lacks_memory, lead.is_any_silent))
        });
        assert_eq!(seen[0].as_ref().unwrap(), &((true, false), true));
    }

    /// Screens ranks as nodes. All but the first are dismissed with a code.
    fn screened(ranks: usize, n: usize, rounds: usize) -> (Results, bool) {
        let n = Some(n);
        let request = Request { n, rounds, seconds: 1.0, threads: Some(1), by_rank: true };
        let ended = run_ranks(ranks, |world| {
            let (limit, mut progress) = (Limit::default(), Progress::off());
            let ended = run(&world, &request, &ChosenBlas::default(), &limit, &mut progress)?;
            if let ScreeningEnd::Led { .. } = &ended {
                dismiss(&world, &limit, 7)?;
            }
            Ok::<_, Failed>(ended)
        });
        let mut ended = ended.into_iter();
        let Some(Ok(ScreeningEnd::Led { results, is_any_silent })) = ended.next() else {
            panic!("rank 0 leads")
        };
        assert!(ended.all(|ended| matches!(ended, Ok(ScreeningEnd::Followed(7)))));
        (results, is_any_silent)
    }

    #[test]
    fn an_order_that_does_not_fit_is_refused_with_one_that_does() {
        let (results, _) = screened(2, 1_000_000, 1);
        let why = results.refused.expect("8 TB");
        assert!(why.starts_with("N = 1000000 does not fit: host "), "{why}");
        assert!(why.contains("The largest N that fits is "), "{why}");
        assert!(results.nodes.iter().all(|node| node.lost.is_none()));
    }

    #[test]
    fn a_very_slow_node_does_not_set_the_limit() {
        let (all_well, slow) = (expected_seconds(&[100.0; 3], 1000), &[100.0, 100.0, 1e-3]);
        assert!((expected_seconds(slow, 1000) / all_well - SLOWEST).abs() < 1e-9);
    }

    #[test]
    fn ranks_that_are_nodes_are_screened() {
        let (mut results, is_any_silent) = screened(4, 400, 2);
        assert!(!is_any_silent);
        assert_eq!((results.n, results.nodes.len(), results.pairs.len()), (400, 4, 6));
        assert!(results.pairs.iter().all(|pair| pair.solve.is_some()));
        assert!(results.nodes.iter().all(|node| node.solves.len() == 2 && node.lost.is_none()));
        let x: Vec<_> =
            results.nodes.iter().flat_map(|node| &node.solves).map(|it| &it.x).collect();
        assert!(x.iter().all(|other| *other == x[0]), "{x:?}");
        // On a busy machine one link may be slow: with equal rates all that is left must be well.
        results.pairs.iter_mut().for_each(|pair| {
            assert!(pair.rate().is_some(), "{pair:?}");
            pair.gigabytes_a_second = Some(1.0);
        });
        let right = judge(&results, 0.95);
        assert!(right.links.is_empty(), "{right:?}");
    }
}
