//! Named steps of the protocol, at which tests kill ranks; docs/protocol.md lists the names. Fault
//! injection for users (`--inject`) and the simulated ranks of the tests implement the [`Hook`].

use std::fmt;
use std::str::FromStr;

use skt_comm::Result;

macro_rules! step_names {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// A kind of step. The kinds are in the order in which a run does the steps.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum StepName {
            $($(#[$doc])* $name,)*
        }

        skt_host::named!(StepName { $($name: $text,)* });
    };
}

step_names! {
    /// Before taking hold of the run on the node.
    Lock = "lock",
    /// Before looking for segments.
    Agree = "agree",
    /// Before removing a segment that no process takes over, or images that no start needs.
    Discard = "discard",
    /// Before creating the segment of a lost or new rank.
    Create = "create",
    /// Before writing the record that joins this start, and the identity of a new segment.
    Join = "join",
    /// Before the barrier after joining.
    Joined = "joined",
    /// Before writing the record that follows this start.
    Confirm = "confirm",
    /// Before reading a piece of an image.
    RecoverLoad = "recover-load",
    /// Before comparing data and parities with their checksums.
    RecoverVerify = "recover-verify",
    /// Before finishing a flush that a death cut short.
    RecoverFlush = "recover-flush",
    /// Before writing the record after a finished flush, or the record of a rebuilt rank.
    RecoverStamp = "recover-stamp",
    /// Before rebuilding a band of the lost members.
    RecoverRebuild = "recover-rebuild",
    /// Before rebuilding a damaged cell.
    RecoverRepair = "recover-repair",
    /// Before resetting A to B, and the other set of parities to that of the epoch.
    RecoverCopy = "recover-copy",
    /// Before taking part in a checkpoint.
    Checkpoint = "checkpoint",
    /// Before copying A (`double`, `single`).
    Copy = "copy",
    /// Before marking the copy as incomplete (`single`).
    Begin = "begin",
    /// Before copying the checksums, and the parities of what froze (`self`).
    Carry = "carry",
    /// Before encoding.
    Encode = "encode",
    /// Before the barrier of the job.
    Barrier = "barrier",
    /// Before writing the record with COMMIT.
    Commit = "commit",
    /// Before copying a band of A to B.
    Flush = "flush",
    /// Before writing the record with the stamp.
    Stamp = "stamp",
    /// Before the barrier at the end of the work.
    Finish = "finish",
    /// Before writing the record with the result.
    Mark = "mark",
    /// Before the barrier after marking.
    Marked = "marked",
    /// Before the barrier after reporting.
    Clear = "clear",
    /// Before removing a segment or an image file of a finished run.
    Remove = "remove",
}

/// A step of the protocol on one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// The kind of step.
    pub name: StepName,
    /// Epoch that is being made or restored.
    pub epoch: u64,
    /// The region, if the step has one.
    pub region: Option<usize>,
    /// The band of the region, if the step has one.
    pub band: Option<usize>,
    /// The chunk within the step, for writes to B, C, D and the header.
    pub chunk: Option<usize>,
}

impl Step {
    /// A step without region, band or chunk.
    pub fn new(name: StepName, epoch: u64) -> Self {
        Self { name, epoch, region: None, band: None, chunk: None }
    }

    /// The step at one band of a region.
    pub fn band(self, region: usize, band: usize) -> Self {
        Self { region: Some(region), band: Some(band), ..self }
    }

    /// The step before chunk `chunk` is written.
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

/// An observer of the protocol's steps, called before each.
pub trait Hook: Send + Sync {
    /// Called before `step`. An error, or the death of the process, stops the rank there.
    fn at(&self, step: &Step) -> Result<()>;

    /// Called several times a second while the rank waits for an image that is being written, or
    /// passes over all of its memory.
    fn waits(&self, _: &Wait) {}
}

/// The progress of a rank's wait.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Wait {
    /// Seconds since it began.
    pub seconds: f64,
    /// Operations done so far of those that the rank waits for; the number rises.
    pub operations: u64,
    /// Seconds that the present operation may take, judging by those before it; 0 if unknown.
    pub expected_seconds: f64,
}

/// A hook that does nothing.
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

/// The error for text that names no step, or no key of one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` names no step; use NAME, NAME:BAND or NAME:KEY=NUMBER,.. with NAME one of {names}, \
         KEY one of epoch, region, band (or tile), chunk", names = StepName::ALL.map(StepName::name).join(", "))]
pub struct UnknownStep(String);

impl StepPattern {
    /// Keys that the pattern does not give match anything, so it means the first such step.
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
