use std::str::FromStr;

use skt_host::levels::{IMAGES_MTBF_SECONDS, Reach, with_options};
use skt_host::units::{parse_bytes_per_second, parse_seconds};

use skt_model::ModelError;
use skt_model::levels::{Level, Levels, Schedule};

/// A level of images, as `--level` of `simulate` states it.
#[derive(Debug, Clone, PartialEq)]
struct Stated {
    reach: Reach,
    /// The bandwidth of each node, or of all nodes together if they share the level.
    bytes_per_second: f64,
    /// Seconds between two images; `None` for the best interval.
    every_seconds: Option<f64>,
    /// Seconds of work that an image costs; `None` for all of the time that it takes to write.
    cost_seconds: Option<f64>,
    /// Mean time between failures that need this level and no nearer one.
    mtbf_seconds: f64,
}

/// The levels of `simulate`, the nearest first.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct StatedLevels(Vec<Stated>);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "legal are local:RATE or global:RATE, as 2GB/s, then ,every=auto or a time ,cost=TIME \
     ,mtbf=TIME; several with commas between them"
)]
pub(super) struct BadLevels;

impl Stated {
    fn begin(word: &str) -> Option<Self> {
        let (reach, rate) = word.split_once(':')?;
        Some(Self {
            reach: Reach::named(reach)?,
            bytes_per_second: parse_bytes_per_second(rate)?,
            every_seconds: None,
            cost_seconds: None,
            mtbf_seconds: IMAGES_MTBF_SECONDS,
        })
    }

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

    /// The level on `nodes` nodes, each with an image of `node_bytes`. Without the reading of
    /// images, the restart after a failure takes `outage_seconds`.
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
        with_options(text, Stated::begin, Stated::take).map(Self).map_err(|_| BadLevels)
    }
}

impl StatedLevels {
    /// The levels below the level `memory`, on `nodes` nodes, each with images of `node_bytes`.
    pub(super) fn below(
        &self,
        memory: Level,
        nodes: usize,
        node_bytes: f64,
    ) -> Result<Levels, ModelError> {
        let level = |stated: &Stated| stated.level(nodes, node_bytes, memory.outage_seconds);
        let images = self.0.iter().map(level).collect();
        let levels = Levels { memory, images };
        levels.validate()?;
        Ok(levels)
    }

    /// How often each level has an image: as stated, at the first checkpoint after that time, else
    /// as is best. An image is never begun before the previous one of its level is done.
    pub(super) fn schedule(
        &self,
        levels: &Levels,
        interval: Option<f64>,
    ) -> Result<Schedule, ModelError> {
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
