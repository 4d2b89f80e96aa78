//! Levels of images for `skt-hpl model simulate`: as a user states them, and as the simulator
//! and the formula have them.

use std::str::FromStr;

use skt_terms::units::parse_bytes_per_second;

use super::model::{LawName, ProtocolName, SimulateArgs};
use super::study_error::StudyError;
use crate::checkpoint::level::Reach;
use crate::model::levels::{Level, Levels, Schedule};
use crate::model::sim::{Law, LevelledJob};
use crate::model::{HOUR_SECONDS, ModelError};
use crate::run::protect::{IMAGES_MTBF_SECONDS, parse_seconds, with_options};

/// A level of images, as `--level` of `model simulate` states it.
#[derive(Debug, Clone, PartialEq)]
struct Stated {
    reach: Reach,
    /// Of each node, or of all where all see the level.
    bytes_per_second: f64,
    /// Seconds between two images; nothing for the best.
    every_seconds: Option<f64>,
    /// What the work loses to an image; nothing for all of the time that it is written.
    cost_seconds: Option<f64>,
    /// Mean time between failures that need this level and none before it.
    mtbf_seconds: f64,
}

/// The levels of `model simulate`, the nearest first.
#[derive(Debug, Clone, PartialEq)]
pub struct StatedLevels(Vec<Stated>);

/// No levels.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "legal are local:RATE or global:RATE, as 2GB/s, then ,every=auto or a time ,cost=TIME \
     ,mtbf=TIME; several with commas between them"
)]
pub struct BadLevels;

impl Stated {
    fn begin(word: &str) -> Option<Self> {
        let (reach, rate) = word.split_once(':')?;
        Some(Self {
            reach: reach.parse().ok()?,
            bytes_per_second: parse_bytes_per_second(rate)?,
            every_seconds: None,
            cost_seconds: None,
            mtbf_seconds: IMAGES_MTBF_SECONDS,
        })
    }

    /// Takes one of its options.
    fn take(&mut self, word: &str) -> Option<()> {
        let (key, value) = word.split_once('=')?;
        match key {
            "every" if value == "auto" => self.every_seconds = None,
            "every" => self.every_seconds = Some(parse_seconds(value).ok()?),
            "cost" => self.cost_seconds = Some(parse_seconds(value).ok()?),
            "mtbf" => self.mtbf_seconds = parse_seconds(value).ok()?,
            _ => return None,
        }
        Some(())
    }

    /// The level on `nodes` nodes, each with an image of `node_bytes`, where the restart after a
    /// failure takes `outage_seconds` without reading.
    fn level(&self, nodes: usize, node_bytes: f64, outage_seconds: f64) -> Level {
        let bytes = match self.reach {
            Reach::Local => node_bytes,
            Reach::Global => nodes as f64 * node_bytes,
        };
        let write_seconds = bytes / self.bytes_per_second;
        Level {
            cost_seconds: self.cost_seconds.unwrap_or(write_seconds),
            write_seconds,
            // An image is read as fast as it is written.
            outage_seconds: outage_seconds + write_seconds,
            mtbf_seconds: self.mtbf_seconds,
        }
    }
}

impl FromStr for StatedLevels {
    type Err = BadLevels;

    fn from_str(text: &str) -> Result<Self, BadLevels> {
        with_options(text, Stated::begin, Stated::take).map(Self).ok_or(BadLevels)
    }
}

/// What is simulated, and what the formula says of it.
pub(super) struct Levelled {
    pub job: LevelledJob,
    pub law: Law,
    pub levels: Levels,
    pub schedule: Schedule,
}

impl StatedLevels {
    /// The job of these flags, with images of `node_bytes` of each node.
    ///
    /// # Errors
    /// A flag that has no meaning beside levels; a number outside of its range.
    pub(super) fn job(&self, args: &SimulateArgs, node_bytes: f64) -> Result<Levelled, StudyError> {
        refuse_others(args)?;
        let outage_seconds = args.downtime_seconds + args.recovery_seconds;
        let memory = Level {
            cost_seconds: args.checkpoint_seconds,
            write_seconds: 0.0,
            outage_seconds,
            mtbf_seconds: args.node_mtbf_hours * HOUR_SECONDS / args.nodes as f64,
        };
        let level = |stated: &Stated| stated.level(args.nodes, node_bytes, outage_seconds);
        let levels = Levels { memory, images: self.0.iter().map(level).collect() };
        levels.validate()?;
        let schedule = self.schedule(&levels, args.interval_seconds)?;
        let work_seconds = args.work_hours * HOUR_SECONDS;
        let (job, law) = LevelledJob::of(&levels, &schedule, work_seconds)?;
        let job = LevelledJob { limit_seconds: args.give_up * work_seconds, ..job };
        job.validate()?;
        Ok(Levelled { job, law, levels, schedule })
    }

    /// How often each level has an image: as stated, at the first checkpoint behind that time,
    /// else as is best. None before the one before it is done.
    fn schedule(&self, levels: &Levels, interval: Option<f64>) -> Result<Schedule, ModelError> {
        let best = match interval {
            Some(work_seconds) => levels.best_images(work_seconds)?,
            None => levels.best_schedule()?,
        };
        let period_seconds = best.work_seconds + levels.memory.cost_seconds;
        let all = self.0.iter().zip(&levels.images).zip(&best.every);
        let every = |((stated, level), &best_every): ((&Stated, &Level), &usize)| {
            let fewest = (level.write_seconds / best.work_seconds).ceil() as usize;
            let asked = stated.every_seconds.map(|time| (time / period_seconds).ceil() as usize);
            asked.unwrap_or(best_every).max(fewest).max(1)
        };
        let every = all.map(every).collect();
        Ok(Schedule { every, ..best })
    }
}

/// Failures of levels are memoryless, of which alone the formula holds; what they take is stated,
/// not found from groups and spares.
fn refuse_others(args: &SimulateArgs) -> Result<(), StudyError> {
    let in_memory = [ProtocolName::SelfCheckpoint, ProtocolName::Double];
    let others = [
        (!in_memory.contains(&args.protocol), "--protocol but self and double"),
        (
            args.law != LawName::Exponential || args.trace.is_some(),
            "--law but exponential, --trace",
        ),
        (args.spares.is_some(), "--spares"),
        (args.overlap != 0.0, "--overlap"),
        (args.restart, "--restart"),
    ];
    match others.into_iter().find_map(|(is_asked, what)| is_asked.then_some(what)) {
        Some(what) => Err(StudyError::Usage(format!(
            "{what}: has no meaning with --level, whose mtbf= says which failures memory does not \
             survive"
        ))),
        None => Ok(()),
    }
}

/// What the formula says of the waste.
pub(super) fn formula(levelled: &Levelled) -> (&'static str, String, f64) {
    let Levelled { levels, schedule, .. } = levelled;
    let periods = levels.periods_seconds(schedule);
    let images: Vec<String> =
        periods[1..].iter().map(|seconds| format!("{seconds:.0} s")).collect();
    let how = format!(
        "levels to first order, T = {:.0} s, images every {} ({:?})",
        periods[0],
        images.join(", "),
        levels.validity(schedule)
    );
    ("waste", how, levels.waste(schedule))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::model::bosilca::Validity;
    use crate::model::sim::{Ages, Batch};

    #[derive(Parser)]
    struct Only {
        #[command(flatten)]
        simulate: SimulateArgs,
    }

    fn job(flags: &str) -> Result<Levelled, String> {
        let flags = ["x"].into_iter().chain(flags.split_whitespace());
        let args = Only::try_parse_from(flags).map_err(|why| why.to_string())?.simulate;
        let levels = args.level.clone().expect("levels");
        let node_bytes = args.image_gib.expect("bytes") * f64::from(1u32 << 30);
        levels.job(&args, node_bytes).map_err(|why| why.to_string())
    }

    const NODES: &str = "--nodes 100 --node-mtbf-hours 2000 --checkpoint-seconds 10 \
                         --downtime-seconds 80 --recovery-seconds 10 --image-gib 16";

    /// Disks of 512 MiB/s take 32 s, a file system of 4 GiB/s for all 400 s.
    #[test]
    fn levels_are_what_was_stated() {
        let levels = "--level local:0.5GiB/s,cost=4s,mtbf=5d,global:4GiB/s,every=2h,mtbf=50d";
        let Levelled { levels, schedule, job, .. } =
            job(&format!("{NODES} {levels} --interval-seconds 990")).unwrap();
        assert_eq!(levels.memory.mtbf_seconds, 72_000.0);
        let [near, far] = &levels.images[..] else { panic!("{levels:?}") };
        assert_eq!(
            (near.cost_seconds, near.write_seconds, near.outage_seconds),
            (4.0, 32.0, 122.0)
        );
        assert_eq!(
            (far.cost_seconds, far.write_seconds, far.outage_seconds),
            (400.0, 400.0, 490.0)
        );
        // sqrt(2 x 432,000 x 4) = 1859 s; 2 h are 7.2 checkpoints.
        assert_eq!(schedule, Schedule { work_seconds: 990.0, every: vec![2, 8] });
        assert_eq!((job.images[1].every, job.work_seconds), (8, 86_400.0));
    }

    #[test]
    fn what_has_no_meaning_is_refused() {
        let level = format!("{NODES} --level local:1GB/s");
        for (flags, says) in [
            ("--spares 3", "--spares: has no meaning with --level"),
            ("--overlap 0.5", "--overlap: has no meaning"),
            ("--law weibull", "--law but exponential"),
            ("--protocol abft", "--protocol but self and double"),
            ("--interval-seconds 0", "work_seconds = 0"),
        ] {
            let why = job(&format!("{level} {flags}")).err().expect(flags);
            assert!(why.contains(says), "{why}");
        }
        for level in ["local:/x", "1GB/s", "local:1GB/s,keep=2", "local:1GB/s,mtbf=0"] {
            let why = format!("{NODES} --level={level}");
            assert!(job(&why).err().expect(level).contains("legal are local:RATE"), "{level}");
        }
        let without_bytes = job("--level local:1GB/s").err().expect("bytes are needed");
        assert!(without_bytes.contains("--image-gib"), "{without_bytes}");
    }

    /// What is simulated is what the formula is about.
    #[test]
    fn simulation_and_formula_agree_on_two_levels() {
        let flags = format!("{NODES} --level local:0.5GiB/s,cost=4s,mtbf=10d --work-hours 800");
        let levelled = job(&flags).unwrap();
        let Levelled { job, law, levels, schedule } = &levelled;
        assert_eq!(levels.validity(schedule), Validity::Valid);
        let nodes = job.all_nodes();
        let batch =
            Batch { runs: 200, seed: 1, threads: 2, nodes, law: law.clone(), ages: Ages::Steady };
        let waste = batch.run(job, &|_| {}).unwrap().waste.mean;
        let (_, _, by_formula) = formula(&levelled);
        assert!((waste / by_formula - 1.0).abs() < 0.05, "{waste}, by formula {by_formula}");
    }
}
