//! Brings the rates of all ranks' products to rank 0, while the matrix is factored and afterwards.
//!
//! A rank sends each window of its rates when it is complete, in a message of some bytes, and waits
//! for nothing. Messages go along a tree: a rank passes on what has arrived. Rank 0 takes it when
//! one of its windows is complete. When the factorization has ended on all ranks, rank 0 collects
//! all windows once more, so that the report does not depend on the earlier messages.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, OnceLock};

use super::links::LinkWatch;
use skt_comm::{Comm, CommError, PageBuf, SendRequest, Tag, collect};
use skt_config::TestSpec;
use skt_health::slow::{Named, RankRates, Rate, SlowReport};
use skt_host::counters::{Root, allowed, processor, sensors, topology};
use skt_host::placement;
use skt_host::tree::Tree;
use skt_solver::pgesv::{Rates, SolveError};

const TAG_RATES: Tag = 0x170;
/// A rank, and one of its windows with its rate.
type Window = [f64; 4];
/// The last message of each rank to its parent.
const END: Window = [-1.0; 4];
/// Smaller tests end before a rank could be identified as slow.
const N_MIN: usize = 2000;

/// The rates of a test on one rank; on rank 0, of all ranks.
pub(crate) struct RateWatch<'c> {
    comm: &'c Comm,
    threads: usize,
    columns: Vec<usize>,
    /// How often the host's CPUs have been throttled when the test began.
    throttled_before: Vec<Option<u64>>,
    /// Windows that this rank has sent or, on rank 0, noted.
    sent_windows: usize,
    sends: VecDeque<Box<dyn SendRequest>>,
    /// The ranks whose windows come through this one, and that have not ended.
    children: Vec<usize>,
    /// On rank 0: the rates that have arrived.
    ranks: Vec<RankRates>,
    /// The links between the hosts, where there are some to compare.
    links: Option<LinkWatch<'c>>,
}

impl<'c> RateWatch<'c> {
    /// Prepares to watch a test on the ranks of `comm`, of which this one has the number `number`
    /// in the run. `None`, on all ranks, for a test whose ranks cannot be compared. Collective.
    pub(crate) fn begin(
        comm: &'c Comm,
        number: usize,
        spec: &TestSpec,
    ) -> Result<Option<Self>, CommError> {
        if spec.n < N_MIN || comm.size() < 2 {
            return Ok(None);
        }
        let rates = Rates::new(spec.n, spec.nb);
        let root = Root::this_machine();
        let mine = (number, kind(&root), cores(&root) as u64, comm.host());
        let of_rank = |(rank, kind, cores, host)| {
            (RankRates { rank, host, kind, ..RankRates::default() }, cores)
        };
        let all = collect::gather_json(comm, &mine, 0)?.unwrap_or_default();
        let ranks = separate_shared(all.into_iter().map(of_rank).collect(), spec.threads);
        let hosts: Vec<&str> = ranks.iter().map(|rank| &rank.host[..]).collect();
        let links = LinkWatch::begin(comm, &hosts)?;
        Ok(Some(Self {
            comm,
            threads: spec.threads,
            columns: rates.windows().columns(spec.n, spec.nb),
            throttled_before: throttled(&root),
            sent_windows: 0,
            sends: VecDeque::new(),
            children: Tree::Binomial.children(comm.rank(), comm.size()).collect(),
            ranks,
            links,
        }))
    }

    /// Sends the windows that are complete in `rates` and have not been sent, and passes on those
    /// of other ranks. Never waits. On rank 0, when a window has been completed since the last
    /// call, returns the ranks that are slow by what has arrived, and the links that were slow
    /// before.
    pub(crate) fn progress(&mut self, rates: &Rates) -> Result<Option<Named>, CommError> {
        while self.sends.front_mut().map_or(Ok(false), |send| send.test())? {
            self.sends.pop_front();
        }
        let (first, complete) = (self.sent_windows, rates.complete());
        for window in first..complete {
            let Rate { gflops, seconds } = self.window_rate(rates, window);
            let me = self.comm.rank() as f64;
            self.pass_on([me, window as f64, f64::from(gflops), f64::from(seconds)])?;
        }
        self.sent_windows = complete;
        if first == complete && self.comm.rank() == 0 {
            return Ok(None);
        }
        for child in self.children.clone() {
            while self.children.contains(&child) && self.comm.probe(child, TAG_RATES)? {
                match self.receive(child)? {
                    END => self.children.retain(|other| *other != child),
                    words => self.pass_on(words)?,
                }
            }
        }
        if self.ranks.is_empty() {
            return Ok(None);
        }
        let links = self.links.as_ref().map(|links| links.slow_before.clone());
        Ok(Some(Named::new(&self.columns, &self.ranks, links)))
    }

    /// The window `window` of `rates`, with the mean of the threads' seconds.
    fn window_rate(&self, rates: &Rates, window: usize) -> Rate {
        let Rate { gflops, seconds } = rates.window_rate(window);
        Rate { gflops, seconds: seconds / self.threads as f32 }
    }

    /// Notes a window on rank 0; starts to send it there on others. Without memory for the message,
    /// rank 0 learns of the window only at the end.
    fn pass_on(&mut self, words: Window) -> Result<(), CommError> {
        let Some(parent) = Tree::Binomial.parent(self.comm.rank()) else {
            let [rank, window, gflops, seconds] = words;
            let rate = Rate { gflops: gflops as f32, seconds: seconds as f32 };
            note(&mut self.ranks[rank as usize], window as usize, rate);
            return Ok(());
        };
        let Ok(mut buffer) = PageBuf::new(words.len()) else { return Ok(()) };
        buffer.copy_from_slice(&words);
        let send = self.comm.isend(Arc::new(buffer), 0..words.len(), parent, TAG_RATES)?;
        self.sends.push_back(send);
        Ok(())
    }

    /// Receives the next message of a child.
    fn receive(&self, child: usize) -> Result<Window, CommError> {
        let mut words = END;
        self.comm.recv(&mut words, child, TAG_RATES)?;
        Ok(words)
    }

    /// Ends the watch with all `rates` of this rank; `None` if it had no part in the factorization.
    /// Returns the report on rank 0. Collective.
    pub(crate) fn finish(mut self, rates: Option<&Rates>) -> Result<Option<SlowReport>, CommError> {
        let windows = rates.map_or(0, |rates| rates.windows().count());
        let windows = (0..windows).map(|window| self.window_rate(rates.expect("counted"), window));
        let windows = windows.flat_map(|Rate { gflops, seconds }| [gflops, seconds]);
        let windows: Vec<f32> = windows.collect();
        let now = throttled(&Root::this_machine());
        let throttled = sensors::max_events_between(&self.throttled_before, &now);
        let mine = [bytemuck::bytes_of(&throttled), bytemuck::cast_slice(&windows)].concat();
        let all = collect::gather_bytes(self.comm, &mine, 0)?;
        for (rank, bytes) in all.iter().flatten().enumerate() {
            let (throttled, windows) = bytes.split_at(size_of_val(&throttled));
            let throttled: u64 = bytemuck::pod_read_unaligned(throttled);
            let windows: Vec<f32> = bytemuck::allocation::pod_collect_to_vec(windows);
            let of_rank = &mut self.ranks[rank];
            of_rank.throttled = throttled;
            of_rank.windows = windows
                .chunks_exact(2)
                .map(|words| Rate { gflops: words[0], seconds: words[1] })
                .collect();
        }
        // No message of this test may be left for the next one.
        for &child in &self.children {
            while self.receive(child)? != END {}
        }
        if let Some(parent) = Tree::Binomial.parent(self.comm.rank()) {
            self.comm.send(&END, parent, TAG_RATES)?;
        }
        self.sends.into_iter().try_for_each(SendRequest::wait)?;
        let links = self.links.map(LinkWatch::finish).transpose()?;
        Ok(all.map(|_| SlowReport::new(self.columns, self.ranks, links)))
    }

    /// Ends the watch of a factorization that `result` may have ended early on all ranks alike. See
    /// [`Self::finish`].
    pub(crate) fn finish_after<T>(
        watch: Option<Self>,
        result: &Result<T, SolveError>,
        rates: Option<&Rates>,
    ) -> Result<Option<SlowReport>, CommError> {
        match (watch, result) {
            (Some(watch), Ok(_) | Err(SolveError::Pivot { .. } | SolveError::TimeUp(_))) => {
                watch.finish(rates)
            }
            // The job ends with any other error, and takes no further message.
            _ => Ok(None),
        }
    }
}

/// Notes the rate of a rank in a window; earlier windows that are not known get no rate.
fn note(rank: &mut RankRates, window: usize, rate: Rate) {
    if rank.windows.len() <= window {
        rank.windows.resize(window + 1, Rate::default());
    }
    rank.windows[window] = rate;
}

/// Makes ranks of hosts with more threads than cores, each given with its host's number of cores, a
/// kind of their own for each number of threads: they are slower by plan.
fn separate_shared(ranks: Vec<(RankRates, u64)>, threads: usize) -> Vec<RankRates> {
    let mut threads_on: BTreeMap<String, u64> = BTreeMap::new();
    for (rank, _) in &ranks {
        *threads_on.entry(rank.host.clone()).or_default() += threads as u64;
    }
    let separate = |(mut rank, cores): (RankRates, u64)| {
        let threads = threads_on[&rank.host];
        if cores > 0 && threads > cores {
            let mut hasher = DefaultHasher::new();
            (rank.kind, threads, cores).hash(&mut hasher);
            rank.kind = hasher.finish();
        }
        rank
    };
    ranks.into_iter().map(separate).collect()
}

/// The number of this host's cores; 0 where the kernel does not list them.
fn cores(root: &Root) -> usize {
    let cpus = topology::online(root).unwrap_or_default();
    let ids: Vec<usize> = cpus.iter().map(|cpu| cpu.id).collect();
    placement::cores_in(&cpus, &ids).len()
}

/// How often each CPU of this host was throttled since the machine was started.
fn throttled(root: &Root) -> Vec<Option<u64>> {
    sensors::events_of_cpus(root, &online(root))
}

/// The CPUs of this host; none where the kernel does not list them.
fn online(root: &Root) -> Vec<usize> {
    topology::online(root).unwrap_or_default().iter().map(|cpu| cpu.id).collect()
}

/// A number for the kind of processor that this process runs on: its model and, on a processor with
/// cores of several kinds, the speed of the fastest CPU that the process may use.
fn kind(root: &Root) -> u64 {
    static KIND: OnceLock<u64> = OnceLock::new();
    *KIND.get_or_init(|| {
        let model = processor::read(root);
        let cpus = online(root);
        let (allowed, _) = allowed(root);
        let speeds = cpus.iter().zip(topology::speeds(root, &cpus));
        let usable = speeds.filter(|(cpu, _)| allowed.contains(cpu)).map(|(_, speed)| speed);
        let percent = usable.fold(0.0, f64::max) * 100.0;
        let mut hasher = DefaultHasher::new();
        (model.name, model.family_and_model, model.arm_part).hash(&mut hasher);
        (percent.round() as u64).hash(&mut hasher);
        hasher.finish()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_that_share_cores_are_compared_with_each_other() {
        let rank = |rank: usize, host: &str| {
            let rates = RankRates { rank, host: host.to_owned(), kind: 7, ..RankRates::default() };
            (rates, 4)
        };
        let hosts = ["a", "b", "b", "c", "d", "d"];
        let ranks = || hosts.iter().enumerate().map(|(number, host)| rank(number, host)).collect();
        let kinds = |threads: usize| -> Vec<u64> {
            separate_shared(ranks(), threads).iter().map(|rank| rank.kind).collect()
        };
        assert_eq!(kinds(2), [7; 6]);
        let shared = kinds(4);
        assert!(shared[1] != 7 && [0, 3].iter().all(|alone| shared[*alone] == 7));
        assert!([2, 4, 5].iter().all(|other| shared[*other] == shared[1]));
    }
}
