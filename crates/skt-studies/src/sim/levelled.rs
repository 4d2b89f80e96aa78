//! A job with checkpoints in memory and images of them in files, on one or more levels.
//!
//! Rules: work runs at full speed for `interval_seconds`, then a checkpoint takes C seconds, during
//! which the work stands still. An image of the first checkpoint after each start, and then of
//! every k-th one, is written on a level: the work stands still for the cost of the image, and
//! continues; the image can be restored `write_seconds` after the end of its checkpoint. A failure,
//! at any time, ends the job and with it the images that are being written. A failure needs a
//! level: everything that lower levels hold is lost, and the job continues from the newest image on
//! that level or above, or from its start if there is none. The outage starts over when another
//! failure strikes during it, which may need a higher level.

use super::failure::{FailureSource, Law};
use super::trace::Failure;
use super::{Job, RunEnd, RunOutcome};
use skt_model::ModelError;
use skt_model::error::{at_least, check, non_negative, positive};
use skt_model::levels::{Level, Levels, Schedule};

/// [`LevelledJob::from_levels`] assigns the failure rates to them: each level gets a whole number.
const STATED_NODES: f64 = 1e6;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ImageLevel {
    /// Number of checkpoints per image.
    pub every: usize,
    /// Seconds that the work stands still for an image.
    pub cost_seconds: f64,
    /// Seconds from the end of a checkpoint until its image can be restored.
    pub write_seconds: f64,
    /// Seconds from a failure that needs this level until the work continues.
    pub outage_seconds: f64,
    /// Number of nodes whose failures need this level. They follow the nodes of the lower levels.
    pub nodes: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub struct LevelledJob {
    /// Work to do, in seconds of full speed.
    pub work_seconds: f64,
    /// Seconds of work from one checkpoint to the next.
    pub interval_seconds: f64,
    pub checkpoint_seconds: f64,
    /// Seconds from a failure that memory survives until the work continues.
    pub outage_seconds: f64,
    /// Number of nodes, from node 0 on, whose failures memory survives.
    pub nodes: usize,
    /// The levels of images, the nearest first.
    pub images: Vec<ImageLevel>,
    /// Seconds after which the run is given up; `INFINITY` for never.
    pub limit_seconds: f64,
}

impl LevelledJob {
    /// The job that the formula of [`Levels::waste`] describes, and its failures, which are
    /// exponential: about a million nodes share the rates of all levels.
    pub fn from_levels(
        levels: &Levels,
        schedule: &Schedule,
        work_seconds: f64,
    ) -> Result<(Self, Law), ModelError> {
        levels.validate()?;
        assert_eq!(levels.images.len(), schedule.every.len(), "a number for each level of images");
        let all = [&levels.memory].into_iter().chain(&levels.images);
        let rate: f64 = all.map(|level| 1.0 / level.mtbf_seconds).sum();
        let nodes = |level: &Level| (STATED_NODES / (level.mtbf_seconds * rate)).round() as usize;
        let image = |(level, &every): (&Level, &usize)| ImageLevel {
            every,
            cost_seconds: level.cost_seconds,
            write_seconds: level.write_seconds,
            outage_seconds: level.outage_seconds,
            nodes: nodes(level),
        };
        let job = Self {
            work_seconds,
            interval_seconds: schedule.work_seconds,
            checkpoint_seconds: levels.memory.cost_seconds,
            outage_seconds: levels.memory.outage_seconds,
            nodes: nodes(&levels.memory),
            images: levels.images.iter().zip(&schedule.every).map(image).collect(),
            limit_seconds: f64::INFINITY,
        };
        let mtbf_seconds = job.all_nodes() as f64 / rate;
        Ok((job, Law::Exponential { mtbf_seconds }))
    }

    pub fn validate(&self) -> Result<(), ModelError> {
        positive("work_seconds", self.work_seconds)?;
        positive("interval_seconds", self.interval_seconds)?;
        non_negative("checkpoint_seconds", self.checkpoint_seconds)?;
        non_negative("outage_seconds", self.outage_seconds)?;
        if self.limit_seconds != f64::INFINITY {
            positive("limit_seconds", self.limit_seconds)?;
        }
        for level in &self.images {
            at_least("every", level.every, 1, "1 or more")?;
            non_negative("cost_seconds", level.cost_seconds)?;
            non_negative("outage_seconds", level.outage_seconds)?;
            let free_seconds = level.every as f64 * self.interval_seconds;
            let is_legal = (0.0..=free_seconds).contains(&level.write_seconds);
            let expected = "0 or above, and done when the next image of the level is due";
            check("write_seconds", level.write_seconds, is_legal, expected)?;
        }
        Ok(())
    }

    pub fn all_nodes(&self) -> usize {
        self.nodes + self.images.iter().map(|level| level.nodes).sum::<usize>()
    }

    /// The level that the failure of a node needs; 0 is memory.
    fn needs(&self, node: usize) -> usize {
        let mut first = self.nodes;
        let is_below = |level: &&ImageLevel| {
            let is_below = node >= first;
            first += level.nodes;
            is_below
        };
        self.images.iter().take_while(is_below).count()
    }

    fn outage_seconds(&self, level: usize) -> f64 {
        if level == 0 { self.outage_seconds } else { self.images[level - 1].outage_seconds }
    }
}

impl Job for LevelledJob {
    fn run(&self, failures: &mut FailureSource) -> RunOutcome {
        LevelledRun::new(self, failures).run()
    }
}

#[derive(Debug, Clone, Default)]
struct Images {
    /// Seconds of work held by the newest image that can be restored.
    whole: Option<f64>,
    /// Seconds of work held by the image that is being written, and when that is done.
    under_way: Option<(f64, f64)>,
    /// Number of checkpoints since the last image of this start; `None` before the first image.
    since: Option<usize>,
}

struct LevelledRun<'a> {
    job: &'a LevelledJob,
    failures: &'a mut FailureSource,
    now: f64,
    /// Seconds of work done by the present state.
    work: f64,
    /// Seconds of work held by the checkpoint in memory.
    saved: f64,
    images: Vec<Images>,
    outcome: RunOutcome,
}

impl<'a> LevelledRun<'a> {
    fn new(job: &'a LevelledJob, failures: &'a mut FailureSource) -> Self {
        let outcome = RunOutcome::begun();
        let images = vec![Images::default(); job.images.len()];
        Self { job, failures, now: 0.0, work: 0.0, saved: 0.0, images, outcome }
    }

    fn run(mut self) -> RunOutcome {
        while self.work < self.job.work_seconds {
            if self.is_over() {
                self.outcome.end = RunEnd::TimedOut;
                break;
            }
            if let Err(failure) = self.step() {
                self.roll_back(failure);
            }
        }
        self.outcome.time_seconds = self.now;
        self.outcome.work_seconds = self.work;
        self.outcome
    }

    fn is_over(&self) -> bool {
        self.now > self.job.limit_seconds
    }

    /// Works up to the next checkpoint, and takes that checkpoint with its images.
    fn step(&mut self) -> Result<(), Failure> {
        let target = (self.saved + self.job.interval_seconds).min(self.job.work_seconds);
        self.pass(target - self.work)?;
        self.work = target;
        if target >= self.job.work_seconds {
            return Ok(());
        }
        self.pass(self.job.checkpoint_seconds)
            .inspect_err(|_| self.outcome.failures_in_checkpoint += 1)?;
        self.saved = target;
        self.outcome.checkpoints += 1;
        let ended = self.now;
        for number in 0..self.images.len() {
            self.image(number, ended)?;
        }
        Ok(())
    }

    /// Begins an image of the checkpoint that ended at `ended`, if one is due.
    fn image(&mut self, number: usize, ended: f64) -> Result<(), Failure> {
        let (level, images) = (&self.job.images[number], &mut self.images[number]);
        images.complete(ended);
        let since = images.since.map(|count| count + 1);
        images.since = since;
        if since.is_some_and(|count| count < level.every) {
            return Ok(());
        }
        images.since = Some(0);
        images.under_way = Some((self.saved, ended + level.write_seconds));
        self.pass(level.cost_seconds)
    }

    /// Lets time pass until `duration` is over or a node fails.
    fn pass(&mut self, duration: f64) -> Result<(), Failure> {
        self.failures.pass(&mut self.now, duration)
    }

    /// Passes the outage after `failure`, with all failures that strike during it, and restarts.
    fn roll_back(&mut self, failure: Failure) {
        let began = self.now;
        self.images.iter_mut().for_each(|images| images.end(began));
        let mut needs = self.job.needs(failure.node);
        self.outcome.failures += 1;
        while let Err(next) = self.pass(self.job.outage_seconds(needs)) {
            self.outcome.failures += 1;
            self.outcome.failures_in_recovery += 1;
            needs = needs.max(self.job.needs(next.node));
            // If outages outlast the MTBF, the job would stay here almost for ever.
            if self.is_over() {
                break;
            }
        }
        self.outcome.outage_seconds += self.now - began;
        if needs > 0 {
            self.restore(needs);
        }
        self.work = self.saved;
    }

    /// Continues from the newest image on level `needs` or above.
    fn restore(&mut self, needs: usize) {
        let (lost, left) = self.images.split_at_mut(needs - 1);
        lost.iter_mut().for_each(|images| images.whole = None);
        let newest = left.iter().filter_map(|images| images.whole).max_by(f64::total_cmp);
        if newest.is_none() {
            self.outcome.data_losses += 1;
        }
        self.saved = newest.unwrap_or(0.0);
    }
}

impl Images {
    /// Makes an image that is done by `now` restorable.
    fn complete(&mut self, now: f64) {
        if let Some((work, _)) = self.under_way.take_if(|(_, done)| *done <= now) {
            self.whole = Some(work);
        }
    }

    /// Ends the job's images: one that is not done by `now` is lost.
    fn end(&mut self, now: f64) {
        self.complete(now);
        (self.under_way, self.since) = (None, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::trace::Trace;

    /// 10 s of work and 1 s per checkpoint; images of every second one on a disk, of every fourth
    /// on a file system.
    fn job() -> LevelledJob {
        let disk = ImageLevel {
            every: 2,
            cost_seconds: 2.0,
            write_seconds: 8.0,
            outage_seconds: 7.0,
            nodes: 1,
        };
        let far = ImageLevel { every: 4, write_seconds: 25.0, outage_seconds: 9.0, ..disk };
        LevelledJob {
            work_seconds: 100.0,
            interval_seconds: 10.0,
            checkpoint_seconds: 1.0,
            outage_seconds: 5.0,
            nodes: 2,
            images: vec![disk, far],
            limit_seconds: f64::INFINITY,
        }
    }

    /// The outcome of the job with failures at these times, of these nodes.
    fn against(failures: &str) -> RunOutcome {
        let job = job();
        job.validate().unwrap();
        // The run ends before the end of the trace.
        let failures = format!("{failures}\n1e9 0");
        job.run(&mut FailureSource::replayed(Trace::parse(&failures, None).unwrap()))
    }

    #[test]
    fn levels_of_failures_by_node() {
        let job = job();
        assert_eq!(job.all_nodes(), 4);
        assert_eq!([0, 1, 2, 3].map(|node| job.needs(node)), [0, 0, 1, 2]);
        let slow = ImageLevel { write_seconds: 20.1, ..job.images[0] };
        assert!(LevelledJob { images: vec![slow], ..job }.validate().is_err());
    }

    #[test]
    fn a_run_that_takes_too_long_is_given_up() {
        for limit_seconds in [60.0, 124.0] {
            let job = LevelledJob { limit_seconds, ..job() };
            let failures = Trace::parse("55 0\n1e9 0", None).unwrap();
            let outcome = job.run(&mut FailureSource::replayed(failures));
            assert_eq!(outcome.end, RunEnd::TimedOut);
            assert!(outcome.time_seconds > limit_seconds && outcome.work_seconds < 100.0);
        }
        // An outage in which something always fails.
        let job = LevelledJob { limit_seconds: 1e4, ..job() };
        let often = Law::Exponential { mtbf_seconds: 0.04 };
        let stream = crate::sim::random::Stream::new(1);
        let mut source = often.source(job.all_nodes(), crate::sim::Ages::Steady, stream).unwrap();
        assert_eq!(job.run(&mut source).end, RunEnd::TimedOut);
    }

    /// Without failures there are 9 checkpoints, with images of the 1st, 3rd, 5th, 7th and 9th on
    /// the disk and of the 1st, 5th and 9th on the file system: 100 + 9 + 8 x 2 s. After 55 s, 45
    /// of them work, memory holds 40 s of work, the disk 30, the file system 10.
    #[test]
    fn a_hand_made_schedule() {
        for (failures, seconds) in [
            ("", 125.0),
            // 5 s of work and the outage.
            ("55 0", 125.0 + 10.0),
            // From 62 s on: 70 s of work, 6 checkpoints, 3 images on the disk and 2 on the file
            // system.
            ("55 2", 62.0 + 70.0 + 6.0 + 10.0),
            // From 64 s on: 90 s of work, 8 checkpoints, 4 images on the disk and 2 on the file
            // system.
            ("55 3", 64.0 + 90.0 + 8.0 + 12.0),
            // The second failure needs the disk, and its outage begins 3 s later.
            ("55 1\n58 2", 151.0),
            // The images of the first checkpoint are done after 19 s on the disk, and after 36 s on
            // the file system.
            ("30 3", 39.0 + 125.0),
            ("30 2", 37.0 + 90.0 + 8.0 + 12.0),
        ] {
            let outcome = against(failures);
            assert!((outcome.time_seconds - seconds).abs() < 1e-9, "{failures}: {outcome:?}");
            assert_eq!(outcome.data_losses, u64::from(failures == "30 3"), "{failures}");
            assert_eq!(outcome.failures, failures.lines().count() as u64);
        }
    }
}
