//! Named steps of the protocol: places to die.
//!
//! Fault injection for users (`--inject`) and the simulated ranks of the tests
//! hang on the same [`Hook`]. docs/protocol.md lists the names.

use std::fmt;
use std::str::FromStr;

use crate::comm::Result;

macro_rules! step_names {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// A kind of step, in the order in which a run comes to them.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum StepName {
            $($(#[$doc])* $name,)*
        }

        skt_terms::named!(StepName { $($name: $text,)* });
    };
}

step_names! {
    /// Before taking hold of the run on the node.
    Lock = "lock",
    /// Before looking for segments.
    Agree = "agree",
    /// Before removing a segment that nobody takes.
    Discard = "discard",
    /// Before making the segment of a lost or new rank.
    Create = "create",
    /// Before the record that joins this start, and the identity of a new segment.
    Join = "join",
    /// Before the barrier after joining.
    Joined = "joined",
    /// Before the record that follows this start.
    Confirm = "confirm",
    /// Before reading a piece of an image.
    RecoverLoad = "recover-load",
    /// Before comparing data and parities with their checksums.
    RecoverVerify = "recover-verify",
    /// Before finishing the flush that death cut short.
    RecoverFlush = "recover-flush",
    /// Before the record after that flush, or of a rebuilt rank.
    RecoverStamp = "recover-stamp",
    /// Before rebuilding a band of the lost members.
    RecoverRebuild = "recover-rebuild",
    /// Before rebuilding a damaged cell.
    RecoverMend = "recover-mend",
    /// Before setting A from B, and the other parities from those of the epoch.
    RecoverCopy = "recover-copy",
    /// Before taking part in a checkpoint.
    Checkpoint = "checkpoint",
    /// Before copying A (`double`, `single`).
    Copy = "copy",
    /// Before the mark that the copy is torn (`single`).
    Begin = "begin",
    /// Before copying the checksums, and the parities of what froze (`self`).
    Carry = "carry",
    /// Before encoding.
    Encode = "encode",
    /// Before telling each other the checksums that were found.
    Sums = "sums",
    /// Before the barrier of the job.
    Barrier = "barrier",
    /// Before the record with COMMIT.
    Commit = "commit",
    /// Before copying a band of A to B.
    Flush = "flush",
    /// Before the record with the stamp.
    Stamp = "stamp",
    /// Before the barrier at the end of the work.
    Finish = "finish",
    /// Before the record that bears the result.
    Mark = "mark",
    /// Before the barrier after marking.
    Marked = "marked",
    /// Before the barrier after reporting.
    Clear = "clear",
    /// Before removing a segment of a run that is done.
    Remove = "remove",
}

/// A step of the protocol on one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Which step.
    pub name: StepName,
    /// Epoch that is being made or restored.
    pub epoch: u64,
    /// Region, where the step has one.
    pub region: Option<usize>,
    /// Band of the region, where the step has one.
    pub band: Option<usize>,
    /// Chunk within the step, for writes to B, C, D and the header.
    pub chunk: Option<usize>,
}

impl Step {
    /// A step of a whole rank.
    pub fn new(name: StepName, epoch: u64) -> Self {
        Self { name, epoch, region: None, band: None, chunk: None }
    }

    /// The step for one band of a region.
    pub fn band(self, region: usize, band: usize) -> Self {
        Self { region: Some(region), band: Some(band), ..self }
    }

    /// The step before one chunk is written.
    pub fn chunk(self, chunk: usize) -> Self {
        Self { chunk: Some(chunk), ..self }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:epoch={}", self.name, self.epoch)?;
        let parts = [("region", self.region), ("band", self.band), ("chunk", self.chunk)];
        for (key, value) in parts {
            if let Some(value) = value {
                write!(f, ",{key}={value}")?;
            }
        }
        Ok(())
    }
}

/// Called before every step.
pub trait Hook: Send + Sync {
    /// An error (or death) stops the rank right here, before the step.
    fn at(&self, step: &Step) -> Result<()>;

    /// Called several times a second while the rank waits for an image that is being written, or
    /// goes through all of its memory.
    fn waits(&self, _: &Wait) {}
}

/// How a rank's wait goes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Wait {
    /// Since it began.
    pub seconds: f64,
    /// What has been done of what it waits for: a number that grows.
    pub operations: u64,
    /// What the present operation may take, as far as those before it tell; else 0.
    pub expected_seconds: f64,
}

/// No fault injection.
pub struct NoHook;

impl Hook for NoHook {
    fn at(&self, _: &Step) -> Result<()> {
        Ok(())
    }
}

/// A step as users name it: `encode`, `encode:3` (band 3), or
/// `flush:epoch=2,region=0,band=7,chunk=1` with any of the keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepPattern {
    name: StepName,
    epoch: Option<u64>,
    region: Option<usize>,
    band: Option<usize>,
    chunk: Option<usize>,
}

/// A step name or key that does not exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` names no step; say NAME, NAME:BAND or NAME:KEY=NUMBER,.. with NAME one of {names}, \
         KEY one of epoch, region, band (or tile), chunk", names = StepName::ALL.map(StepName::name).join(", "))]
pub struct UnknownStep(String);

impl StepPattern {
    /// Whether this step is meant. What the pattern does not say may be
    /// anything, so the first such step is meant.
    pub fn matches(&self, step: &Step) -> bool {
        let fits = |want: Option<usize>, is: Option<usize>| want.is_none() || want == is;
        self.name == step.name
            && self.epoch.is_none_or(|epoch| epoch == step.epoch)
            && fits(self.region, step.region)
            && fits(self.band, step.band)
            && fits(self.chunk, step.chunk)
    }
}

impl FromStr for StepPattern {
    type Err = UnknownStep;

    fn from_str(text: &str) -> std::result::Result<Self, UnknownStep> {
        let unknown = || UnknownStep(text.to_owned());
        let (name, keys) = text.split_once(':').unwrap_or((text, ""));
        let name = StepName::named(name).ok_or_else(unknown)?;
        let mut pattern = Self { name, epoch: None, region: None, band: None, chunk: None };
        for key in keys.split(',').filter(|key| !key.is_empty()) {
            let (key, value) = key.split_once('=').unwrap_or(("band", key));
            let value: usize = value.parse().map_err(|_| unknown())?;
            match key {
                "epoch" => pattern.epoch = Some(value as u64),
                "region" => pattern.region = Some(value),
                "band" | "tile" => pattern.band = Some(value),
                "chunk" => pattern.chunk = Some(value),
                _ => return Err(unknown()),
            }
        }
        Ok(pattern)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// docs/protocol.md says for people what each step comes before.
    #[test]
    fn the_documentation_names_all_steps_in_their_order() {
        let page = include_str!("../../../../docs/protocol.md");
        let table = page.split("| name | keys | before |").nth(1).expect("the table of steps");
        let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
        let names: Vec<&str> = rows.filter_map(|row| row.split('`').nth(1)).collect();
        assert_eq!(names, StepName::ALL.map(StepName::name));
    }

    #[test]
    fn patterns_match_the_steps_they_name() {
        let step = Step::new(StepName::Flush, 2).band(0, 7).chunk(1);
        assert_eq!(step.to_string(), "flush:epoch=2,region=0,band=7,chunk=1");
        let matches = |text: &str| text.parse::<StepPattern>().expect("legal").matches(&step);
        for text in ["flush", "flush:7", "flush:tile=7", "flush:epoch=2,chunk=1", &step.to_string()]
        {
            assert!(matches(text), "{text}");
        }
        for text in ["encode", "flush:6", "flush:epoch=1", "flush:region=1", "flush:chunk=0"] {
            assert!(!matches(text), "{text}");
        }
        for text in ["flash", "flush:x", "flush:depth=1", ""] {
            assert!(text.parse::<StepPattern>().is_err(), "{text}");
        }
    }
}
