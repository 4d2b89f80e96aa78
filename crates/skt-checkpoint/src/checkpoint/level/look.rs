//! What a process sees of the images of its run.

use std::io;

use super::super::agree::Content;
use super::super::header::{HeaderLayout, Identity};
use super::super::parameters::{Parameters, differences};
use super::Level;
use super::choose::ImageClaim;
use super::disk::{FileId, ImageId};
use super::format::{Said, read_seal};

/// What segments and images must be of, to be of use.
pub struct Wanted<'a> {
    pub header: &'a HeaderLayout,
    pub fingerprint: u64,
    pub parameters: &'a Parameters,
}

/// What a process looks after of a level.
#[derive(Debug, Default)]
pub struct Seen {
    /// Files, to be removed when they are needed no more.
    pub files: Vec<FileId>,
    /// Images, to be told to the others, with the states in them.
    pub images: Vec<(ImageClaim, Vec<u8>)>,
}

impl Wanted<'_> {
    /// What process `process` of `size` looks after of a level.
    ///
    /// # Errors
    /// As the system has it.
    pub fn look_at(&self, level: &Level, process: usize, size: usize) -> io::Result<Seen> {
        let is_ours = |rank: usize| level.is_looked_after(rank, process, size);
        let files = level.disk.list()?;
        let ours = |file: &FileId| {
            file.images().filter(|id| is_ours(id.rank)).zip(std::iter::repeat(*file))
        };
        let mut all: Vec<(ImageId, FileId)> = files.iter().flat_map(ours).collect();
        all.sort_unstable();
        let mut images = Vec::with_capacity(all.len());
        for (id, file) in all {
            match self.claim(level, id, file) {
                Ok(claim) => images.push(claim),
                // Another process has removed it meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        let files = files.into_iter().filter(|file| is_ours(file.ranks.first())).collect();
        Ok(Seen { files, images })
    }

    /// An image that cannot be read is of no use, as one without a seal.
    fn claim(&self, level: &Level, id: ImageId, file: FileId) -> io::Result<(ImageClaim, Vec<u8>)> {
        let mut file = level.disk.open(file, id.rank)?;
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
