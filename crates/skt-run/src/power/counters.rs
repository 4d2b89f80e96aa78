//! The counters and sensors of this node: power over time from their readings, which a thread
//! takes.

use std::io;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::curve::{Curve, LONGEST_BETWEEN, PowerPiece};
use super::lock;
use crate::record::energy::EnergyReading;
use skt_host::counters::Root;
use skt_host::counters::power::{Channel, CounterReading, EnergySource, Quantity};

/// The time between two samples. A counter of Intel begins again within minutes; a sample takes
/// some microseconds a file.
const INTERVAL: Duration = Duration::from_secs(1);
/// How long [`Sampler::over`] waits for a sample from after the end of the time asked about.
const PATIENCE: Duration = Duration::from_secs(3);

/// The readings of a source, one after the other.
#[derive(Debug)]
struct Tracker {
    root: Root,
    since: Instant,
    source: EnergySource,
    last: Option<(f64, CounterReading)>,
    curve: Curve,
}

impl Tracker {
    fn new(root: Root, source: EnergySource) -> Self {
        Self { root, since: Instant::now(), source, last: None, curve: Curve::default() }
    }

    fn sample(&mut self) {
        let reading = self.source.read(&self.root);
        self.add(self.since.elapsed().as_secs_f64(), reading);
    }

    /// Adds a reading at `seconds`, or `None` if the source did not answer. Power since the
    /// previous reading stays unknown where it cannot be computed: a counter may have wrapped
    /// around more than once, or was reset.
    fn add(&mut self, seconds: f64, reading: Option<CounterReading>) {
        let Some(reading) = reading else { return };
        let Some((before, earlier)) = &self.last else {
            self.last = Some((seconds, reading));
            return;
        };
        let is_old = reading.freshness.is_some() && reading.freshness == earlier.freshness;
        if is_old || seconds <= *before {
            return;
        }
        let values = earlier.values.iter().zip(&reading.values);
        let watts: Option<Vec<[f64; 2]>> = (self.source.channels.iter().zip(values))
            .map(|(channel, (&first, &last))| watts(channel, seconds - before, first, last))
            .collect();
        if let Some(watts) = watts {
            let sum = |end: usize| watts.iter().map(|watts| watts[end]).sum();
            self.curve.push(PowerPiece { from: *before, to: seconds, watts: [sum(0), sum(1)] });
        }
        self.last = Some((seconds, reading));
    }
}

/// Watts at the begin and at the end of `seconds`, between two values of a channel; `None` if the
/// values do not determine them.
fn watts(channel: &Channel, seconds: f64, first: f64, last: f64) -> Option<[f64; 2]> {
    let watts = match channel.quantity {
        Quantity::Power => (seconds <= LONGEST_BETWEEN).then_some([first, last])?,
        Quantity::Energy { range_joules } => {
            // In that time the counter may go through its range once more, unnoticed.
            let is_ambiguous = |range: f64| seconds >= range / channel.most_watts;
            if range_joules.is_some_and(is_ambiguous) {
                return None;
            }
            let joules = match range_joules {
                Some(range) if last < first => last + range - first,
                _ => last - first,
            };
            [joules / seconds; 2]
        }
    };
    watts.iter().all(|watts| (0.0..=channel.most_watts).contains(watts)).then_some(watts)
}

/// Samples the energy of this node once a second until it is dropped.
#[derive(Debug)]
pub(super) struct Sampler {
    tracker: Arc<Mutex<Tracker>>,
    /// Dropped to end the thread.
    ends: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Sampler {
    pub(crate) fn start(root: Root, source: EnergySource) -> io::Result<Self> {
        let tracker = Arc::new(Mutex::new(Tracker::new(root, source)));
        let (of_thread, (ends, is_over)) = (tracker.clone(), mpsc::channel());
        let run = move || loop {
            lock(&of_thread).sample();
            if is_over.recv_timeout(INTERVAL) != Err(RecvTimeoutError::Timeout) {
                break;
            }
        };
        let thread = thread::Builder::new().name("power".to_owned()).spawn(run)?;
        Ok(Self { tracker, ends: Some(ends), thread: Some(thread) })
    }

    /// Takes a sample now.
    pub(crate) fn sample(&self) {
        lock(&self.tracker).sample();
    }

    /// The energy of a time of `seconds` of which `before_seconds` had passed at `origin`, as far
    /// as it is known. If its end has passed just now, this waits for a sample after it, three
    /// seconds at most.
    pub(crate) fn over(
        &self,
        origin: Instant,
        before_seconds: f64,
        seconds: f64,
    ) -> Option<EnergyReading> {
        const PAUSE: Duration = Duration::from_millis(20);
        let asked = Instant::now();
        loop {
            let mut tracker = lock(&self.tracker);
            tracker.sample();
            let Tracker { since, source, curve, .. } = &*tracker;
            let origin = origin.saturating_duration_since(*since).as_secs_f64();
            let end = origin + seconds - before_seconds;
            if curve.end().is_some_and(|known| known >= end) || asked.elapsed() > PATIENCE {
                return curve.reading(end, seconds, &source.name, &source.covers);
            }
            drop(tracker);
            thread::sleep(PAUSE);
        }
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.ends = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed, and costs no more than samples.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use skt_host::counters::power::find;
    use skt_host::testing::{Tree, zone};

    /// A counter of `range` joules that takes at most 1000 W.
    fn counter(range_joules: Option<f64>) -> Channel {
        let quantity = Quantity::Energy { range_joules };
        Channel { file: "e".into(), quantity, unit: 1.0, most_watts: 1000.0 }
    }

    fn tracker(channels: Vec<Channel>) -> Tracker {
        let (name, covers) = ("test".to_owned(), "all".to_owned());
        let source = EnergySource { name, covers, channels, freshness: None };
        Tracker::new(Tree::new().root(), source)
    }

    fn reading(values: &[f64]) -> Option<CounterReading> {
        Some(CounterReading { values: values.to_vec(), freshness: None })
    }

    fn fresh(value: f64, freshness: &str) -> Option<CounterReading> {
        Some(CounterReading { values: vec![value], freshness: Some(freshness.to_owned()) })
    }

    #[test]
    fn two_packages_that_begin_again_at_different_times() {
        let mut tracker = tracker(vec![counter(Some(5000.0)), counter(Some(5000.0))]);
        for second in 0..=100u32 {
            let joules = f64::from(second) * 200.0;
            let counts = [(4900.0 + joules) % 5000.0, (1300.0 + 0.5 * joules) % 5000.0];
            tracker.add(f64::from(second), reading(&counts));
        }
        let [joules, seconds] = tracker.curve.over(10.25, 60.75);
        assert!((joules - 50.5 * 300.0).abs() < 1e-6, "{joules}");
        assert_eq!(seconds, 50.5);
    }

    #[test]
    fn gap_with_a_possible_second_wraparound_is_unknown() {
        let mut tracker = tracker(vec![counter(Some(5000.0))]);
        for (second, count) in [(0.0, 0.0), (4.0, 400.0), (8.0, 800.0), (13.5, 900.0)] {
            tracker.add(second, reading(&[count]));
        }
        assert_eq!(tracker.curve.over(0.0, 14.0), [800.0, 8.0]);
    }

    #[test]
    fn a_counter_that_was_reset_or_did_not_answer() {
        let mut tracker = tracker(vec![counter(None)]);
        tracker.add(0.0, None);
        tracker.add(1.0, reading(&[700.0]));
        tracker.add(2.0, None);
        tracker.add(3.0, reading(&[900.0]));
        tracker.add(4.0, reading(&[10.0]));
        tracker.add(5.0, reading(&[60.0]));
        tracker.add(5.0, reading(&[60.0]));
        tracker.add(6.0, reading(&[6000.0]));
        // Known are 1 to 3 and 4 to 5; power that no node takes does not count.
        assert_eq!(tracker.curve.over(0.0, 9.0), [250.0, 3.0]);
    }

    #[test]
    fn a_counter_that_stands_still_has_no_new_energy() {
        let mut tracker = tracker(vec![counter(None)]);
        for (second, count, freshness) in
            [(0.0, 10.0, "1"), (1.0, 110.0, "2"), (2.0, 110.0, "2"), (3.0, 310.0, "3")]
        {
            tracker.add(second, fresh(count, freshness));
        }
        let energy = tracker.curve.over(0.0, 2.5);
        assert_eq!(energy, [250.0, 2.5]);
        tracker.add(4.0, fresh(310.0, "3"));
        assert_eq!(tracker.curve.end(), Some(3.0), "nothing is known of the last second");
    }

    #[test]
    fn a_sensor_is_integrated_by_trapezoids() {
        let sensor = Channel { quantity: Quantity::Power, ..counter(None) };
        let mut tracker = tracker(vec![sensor.clone(), sensor]);
        for (second, watts) in [(0.0, 100.0), (1.0, 300.0), (3.0, 100.0), (100.0, 100.0)] {
            tracker.add(second, reading(&[watts, 50.0]));
        }
        let energy = tracker.curve.over(0.0, 100.0);
        assert_eq!(energy, [200.0 + 400.0 + 150.0, 3.0]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        /// Irregular readings of a counter that wraps, some of which fail: the energy between the
        /// first and the last is exact, if no gap is too long.
        #[test]
        fn energy_is_that_of_the_counter(
            steps in prop::collection::vec((0.2f64..1.2, 0f64..1000.0, prop::bool::ANY), 2..200),
            begin in 0f64..5000.0,
        ) {
            let mut tracker = tracker(vec![counter(Some(5000.0))]);
            tracker.add(0.0, reading(&[begin]));
            let (mut at, mut joules, mut silent, mut known) = (0.0, 0.0, 0, 0.0);
            for (seconds, watts, answers) in steps {
                (at, joules) = (at + seconds, joules + watts * seconds);
                silent = if answers { 0 } else { silent + 1 };
                // Two failures in a row at most: 3.6 s, and 5 s would be too long.
                if silent > 2 || answers {
                    tracker.add(at, reading(&[(begin + joules) % 5000.0]));
                    (known, silent) = (joules, 0);
                } else {
                    tracker.add(at, None);
                }
            }
            let [joules, _] = tracker.curve.over(0.0, at);
            prop_assert!((joules - known).abs() < 1e-6, "{joules} {known}");
        }
    }

    fn sampler(tree: &Tree) -> Sampler {
        let source = find(&tree.root()).readable().expect("there are counters");
        Sampler::start(tree.root(), source).expect("a thread")
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
        let counter = "sys/class/powercap/intel-rapl:0/energy_uj";
        std::fs::remove_file(tree.root().folder().join(counter)).unwrap();
        let to = begin.elapsed().as_secs_f64() + 0.5;
        let asked = Instant::now();
        let measured = sampler.over(begin, 0.0, to).expect("two samples");
        assert!(measured.measured_seconds <= known && measured.watts == [None], "{measured:?}");
        assert!(asked.elapsed() < PATIENCE + Duration::from_secs(60), "it gave up");
    }

    /// The test requests no sample: the thread takes them.
    #[test]
    fn thread_samples_without_requests() {
        let tree = Tree::new();
        zone(&tree, "intel-rapl:0", "package-0", 0);
        let sampler = sampler(&tree);
        let begun = Instant::now();
        while lock(&sampler.tracker).curve.end().is_none() {
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
