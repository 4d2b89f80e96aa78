//! The thread that samples the power of its node.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::curve::Energy;
use super::tracker::Tracker;
use crate::counters::Root;
use crate::counters::power::EnergySource;

/// The time between two samples. A counter of Intel begins again within minutes; a sample takes
/// some microseconds a file.
const INTERVAL: Duration = Duration::from_secs(1);
/// How long [`Sampler::over`] waits for a sample from after the end of the time asked about.
const PATIENCE: Duration = Duration::from_secs(3);

/// The energy of a time, and how power went.
#[derive(Debug, Clone, PartialEq)]
pub struct MeasuredPower {
    /// The energy, as far as it is known.
    pub energy: Energy,
    /// Mean watts of equal parts of the time.
    pub watts: Vec<Option<f64>>,
}

/// Samples the energy of this node once a second until it is dropped.
#[derive(Debug)]
pub struct Sampler {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    root: Root,
    source: EnergySource,
    since: Instant,
    state: Mutex<SamplerState>,
    ends: Condvar,
}

#[derive(Debug)]
struct SamplerState {
    tracker: Tracker,
    is_over: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, SamplerState> {
        // Each change of the state is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn seconds(&self, at: Instant) -> f64 {
        at.saturating_duration_since(self.since).as_secs_f64()
    }

    fn sample(&self, state: &mut SamplerState) {
        let reading = self.source.read(&self.root);
        state.tracker.add(self.seconds(Instant::now()), reading);
    }

    fn run(&self) {
        let mut state = self.lock();
        while !state.is_over {
            self.sample(&mut state);
            let waited = self.ends.wait_timeout(state, INTERVAL);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Sampler {
    /// Starts to sample `source` under `root`.
    pub fn start(root: Root, source: EnergySource) -> io::Result<Self> {
        let state =
            Mutex::new(SamplerState { tracker: Tracker::new(source.clone()), is_over: false });
        let (since, ends) = (Instant::now(), Condvar::new());
        let shared = Arc::new(Shared { root, source, since, state, ends });
        let of_thread = shared.clone();
        let thread = thread::Builder::new().name("power".to_owned());
        let thread = thread.spawn(move || of_thread.run())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// The source that is sampled.
    pub fn source(&self) -> &EnergySource {
        &self.shared.source
    }

    /// Takes a sample now.
    pub fn sample(&self) {
        self.shared.sample(&mut self.shared.lock());
    }

    /// The energy between two times, in seconds before or after `origin`, and power in `parts`
    /// equal parts. If the end has passed just now, this waits for a sample after it, three seconds
    /// at most.
    pub fn over(&self, origin: Instant, (from, to): (f64, f64), parts: usize) -> MeasuredPower {
        const PAUSE: Duration = Duration::from_millis(20);
        let origin = self.shared.seconds(origin);
        let (from, to) = (origin + from, origin + to);
        let asked = Instant::now();
        loop {
            let mut state = self.shared.lock();
            self.shared.sample(&mut state);
            let curve = state.tracker.curve();
            let is_behind = curve.end().is_some_and(|end| end >= to);
            if is_behind || asked.elapsed() > PATIENCE {
                let watts = curve.watts(from, to, parts);
                return MeasuredPower { energy: curve.over(from, to), watts };
            }
            drop(state);
            thread::sleep(PAUSE);
        }
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.shared.lock().is_over = true;
        self.shared.ends.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed, and costs no more than samples.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::power::find;
    use crate::testing::{RANGE_UJ, Tree, zone};

    fn sampler(tree: &Tree) -> Sampler {
        let source = find(&tree.root()).readable().expect("there are counters");
        Sampler::start(tree.root(), source).expect("a thread")
    }

    /// A counter that stands 5 mJ before the end of its range wraps around; the energy between two
    /// samples that are taken on purpose is exact, whenever the thread samples in between. It is so
    /// small that the watts are possible however soon one sample follows another.
    #[test]
    fn joules_are_exact_across_the_end_of_the_range() {
        let tree = Tree::new();
        zone(&tree, "intel-rapl:0", "package-0", RANGE_UJ - 5_000);
        zone(&tree, "intel-rapl:0:0", "dram", 1_000_000);
        let sampler = sampler(&tree);
        sampler.sample();
        let begin = Instant::now();
        thread::sleep(Duration::from_millis(30));
        zone(&tree, "intel-rapl:0", "package-0", 7_000);
        zone(&tree, "intel-rapl:0:0", "dram", 1_003_000);
        sampler.sample();
        let to = begin.elapsed().as_secs_f64();
        // 12 mJ of the package and 3 mJ of the memory, and nothing after the second sample.
        let all = sampler.over(begin, (-1.0, to), 1);
        assert!((all.energy.joules - 0.015).abs() < 1e-9, "{all:?}");
    }

    #[test]
    fn counters_that_go_away_leave_the_rest_unknown() {
        let tree = Tree::new();
        zone(&tree, "intel-rapl:0", "package-0", 1_000_000);
        let sampler = sampler(&tree);
        sampler.sample();
        let begin = Instant::now();
        thread::sleep(Duration::from_millis(20));
        sampler.sample();
        let known = begin.elapsed().as_secs_f64();
        std::fs::remove_file(tree.root().folder().join(&sampler.source().channels[0].file))
            .unwrap();
        let to = begin.elapsed().as_secs_f64() + 0.5;
        let asked = Instant::now();
        let measured = sampler.over(begin, (0.0, to), 4);
        assert!(measured.energy.seconds <= known, "{measured:?}");
        assert!(measured.watts.iter().any(Option::is_none), "{measured:?}");
        assert!(asked.elapsed() < PATIENCE + Duration::from_secs(60), "it gave up");
    }

    /// The test requests no sample: the thread takes them.
    #[test]
    fn thread_samples_without_requests() {
        let tree = Tree::new();
        zone(&tree, "intel-rapl:0", "package-0", 0);
        let sampler = sampler(&tree);
        let begun = Instant::now();
        while sampler.shared.lock().tracker.curve().end().is_none() {
            assert!(begun.elapsed() < Duration::from_secs(300), "no sample");
            thread::sleep(Duration::from_millis(50));
        }
        // Dropping it ends the thread.
    }

    /// What a sample costs is printed; a thousandth of its second would still be no cost.
    #[test]
    fn sample_takes_negligible_time() {
        let tree = Tree::new();
        for zone_number in 0..4 {
            zone(&tree, &format!("intel-rapl:{zone_number}"), "package-0", 0);
        }
        let source = find(&tree.root()).readable().unwrap();
        let (root, mut least) = (tree.root(), Duration::MAX);
        for _ in 0..100 {
            let begin = Instant::now();
            assert!(source.read(&root).is_some());
            least = least.min(begin.elapsed());
        }
        println!("a sample of 4 files takes {least:?}");
        assert!(least < INTERVAL / 1000, "{least:?}");
    }
}
