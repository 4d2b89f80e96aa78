//! The energy of tests: what ranks measure of it, by the counters of their nodes and by a meter of
//! the site, and what that gives for a job.
//!
//! | module | what |
//! |---|---|
//! | `curve` | power over time, and the energy of a part of it |
//! | `counters` | the counters and sensors of a node |
//! | `lines` | the lines that a meter may print |
//! | `columns` | the units, and the table of what columns have by their names |
//! | `fields` | the fields of a line, and numbers in them |
//! | `meter_time` | times as tools write them |
//! | `log` | the readings of a meter, also from a file |
//! | `meter` | a command that prints the readings of a meter |
//! | `gather` | from the measurements of all ranks to those of the job |

mod columns;
mod counters;
mod curve;
mod fields;
pub(crate) mod gather;
mod lines;
mod log;
pub(crate) mod meter;
mod meter_time;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use counters::Sampler;
pub use log::{LogFile, LogSettings};
use meter::Meter;
pub use meter::MeterCommand;
pub use meter_time::unix_seconds_of;

use crate::record::energy::{NodeEnergy, RankEnergy};
use skt_host::clock::now_unix;
use skt_host::counters::Root;
use skt_host::counters::power::find;
use skt_host::messages;

/// What a thread measures. No thread that panics leaves a change half done.
fn lock<T>(measured: &Mutex<T>) -> MutexGuard<'_, T> {
    measured.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The counters and the meter that a rank reads during a job.
#[derive(Debug, Default)]
pub(crate) struct JobPower {
    /// On the first rank of each host: the host.
    node: Option<NodePower>,
    /// On rank 0: the meter of the site, if there is one.
    meter: Option<Meter>,
}

/// A host and its counters.
#[derive(Debug)]
struct NodePower {
    host: String,
    boot_id: String,
    /// The counters of the host, if they can be read.
    sampler: Option<Sampler>,
}

impl JobPower {
    /// Begins to sample the node under `root`, on the first rank of the host `host`.
    pub(crate) fn start(root: Root, host: Option<String>, meter: Option<Meter>) -> Self {
        let sampler = |host: &String| {
            let source = find(&root).readable()?;
            let started = Sampler::start(root.clone(), source);
            let warn = |why| {
                messages::print(format_args!("warning: {host}: its energy is not measured: {why}"));
            };
            started.map_err(warn).ok()
        };
        let node = host.map(|host| {
            let boot_id = root.text("proc/sys/kernel/random/boot_id").unwrap_or_default();
            let sampler = sampler(&host);
            NodePower { host, boot_id, sampler }
        });
        Self { node, meter }
    }
}

/// What a rank measures of the energy of a test.
pub(crate) struct TestPower<'a> {
    job: &'a JobPower,
    /// When the timed part began, and the seconds of earlier starts.
    began: Option<(Instant, f64)>,
    /// When it ended, in seconds since 1970.
    ended_unix: f64,
}

impl<'a> TestPower<'a> {
    pub(crate) fn new(job: &'a JobPower) -> Self {
        Self { job, began: None, ended_unix: 0.0 }
    }

    /// Takes a sample, just outside of the timed part.
    pub(crate) fn sample(&self) {
        let sampler = self.job.node.as_ref().and_then(|node| node.sampler.as_ref());
        sampler.inspect(|sampler| sampler.sample());
    }

    /// The timed part begins, or continues after `before_seconds`.
    pub(crate) fn begins(&mut self, before_seconds: f64) {
        self.began = Some((Instant::now(), before_seconds));
    }

    /// The timed part has ended.
    pub(crate) fn ends(&mut self) {
        self.ended_unix = now_unix();
    }

    /// What was measured of the timed part, of `seconds` seconds.
    pub(crate) fn energy(&self, seconds: f64) -> RankEnergy {
        let Some((begin, before)) = self.began else { return RankEnergy::default() };
        let of_node = |node: &NodePower| NodeEnergy {
            host: node.host.clone(),
            boot_id: node.boot_id.clone(),
            reading: node.sampler.as_ref().and_then(|it| it.over(begin, before, seconds)),
        };
        let of_meter = |meter: &Meter| {
            let warn = |why| messages::print(format_args!("warning: {why}"));
            meter.over(self.ended_unix, seconds).map_err(warn).ok()
        };
        RankEnergy {
            node: self.job.node.as_ref().map(of_node),
            meter: self.job.meter.as_ref().and_then(of_meter),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;
    use std::time::Duration;

    use super::*;
    use skt_host::testing::{Tree, zone};

    /// A package of which a thread reads 3000 J just before the timed part and 3012 J after it.
    #[test]
    fn a_node_has_the_joules_of_its_counters() {
        let tree = Tree::new();
        zone(&tree, "intel-rapl:0", "package-0", 3_000_000_000);
        let job = JobPower::start(tree.root(), Some("n1".into()), None);
        let mut test = TestPower::new(&job);
        test.sample();
        let begin = Instant::now();
        // The test begins long before the first sample, so the time of the sample does not matter.
        let before = 1e6;
        test.begins(before);
        sleep(Duration::from_millis(30));
        zone(&tree, "intel-rapl:0", "package-0", 3_012_000_000);
        test.ends();
        test.sample();
        let seconds = begin.elapsed().as_secs_f64();
        let node = test.energy(before + seconds).node.unwrap();
        let reading = node.reading.unwrap();
        assert!((reading.joules - 12.0).abs() < 1e-6, "{reading:?}");
        // Nothing is known of the earlier start.
        let measured = reading.measured_seconds;
        assert!(measured > seconds - 1e-6 && measured < before, "{reading:?}");
        assert_eq!((node.host.as_str(), reading.source.as_str()), ("n1", "RAPL"));
    }

    #[test]
    fn one_rank_of_a_host_reports_missing_counters() {
        let tree = Tree::new();
        let job = JobPower::start(tree.root(), Some("n1".into()), None);
        let mut test = TestPower::new(&job);
        assert_eq!(test.energy(5.0), RankEnergy::default(), "nothing was timed");
        test.begins(0.0);
        let bare = NodeEnergy { host: "n1".into(), ..NodeEnergy::default() };
        assert_eq!(test.energy(5.0), RankEnergy { node: Some(bare), meter: None });
        let job = JobPower::start(tree.root(), None, None);
        let mut test = TestPower::new(&job);
        test.begins(0.0);
        assert_eq!(test.energy(5.0), RankEnergy::default());
    }
}
