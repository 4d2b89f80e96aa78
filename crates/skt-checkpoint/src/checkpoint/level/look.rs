//! What a process sees of the images of its run.

use std::io;

use super::super::agree::Content;
use super::super::header::{HeaderLayout, Identity};
use super::super::parameters::{Parameters, differences};
use super::Level;
use super::choose::ImageClaim;
use super::disk::ImageId;
use super::format::{Said, read_seal};

/// What segments and images must be of, to be of use.
pub struct Wanted<'a> {
    pub header: &'a HeaderLayout,
    pub fingerprint: u64,
    pub parameters: &'a Parameters,
}

impl Wanted<'_> {
    /// What this process sees of a level and is to tell the others, with the states.
    ///
    /// # Errors
    /// As the system has it.
    pub fn look_at(
        &self,
        level: &Level,
        process: usize,
        size: usize,
    ) -> io::Result<Vec<(ImageClaim, Vec<u8>)>> {
        let mut claims = Vec::new();
        let mut ids = level.disk.list()?;
        ids.sort_unstable();
        for id in ids.into_iter().filter(|id| level.is_looked_after(id.rank, process, size)) {
            match self.claim(level, id) {
                Ok(claim) => claims.push(claim),
                // Another process has removed it meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(claims)
    }

    /// An image that cannot be read is of no use, as one without a seal.
    fn claim(&self, level: &Level, id: ImageId) -> io::Result<(ImageClaim, Vec<u8>)> {
        let mut file = level.disk.open(id)?;
        let said = read_seal(self.header, &mut *file).unwrap_or(Said::Nothing);
        let nothing = ImageClaim { id, content: None, other: None };
        let differs = |theirs: &Parameters| differences(theirs, self.parameters);
        Ok(match said {
            Said::Nothing => (nothing, Vec::new()),
            Said::OtherVersion => {
                let other = Some(differs(&Parameters::new()));
                (ImageClaim { other, ..nothing }, Vec::new())
            }
            Said::Sealed(seal) if seal.identity.fingerprint != self.fingerprint => {
                let Identity { parameters, .. } = &seal.identity;
                (ImageClaim { other: Some(differs(parameters)), ..nothing }, Vec::new())
            }
            Said::Sealed(seal) => {
                let content = Some(Content::of(seal.identity, &seal.record));
                (ImageClaim { content, ..nothing }, seal.record.state().to_vec())
            }
        })
    }
}
