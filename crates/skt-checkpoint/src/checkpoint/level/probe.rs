use std::io;

use super::super::decide::Content;
use super::super::header::{HeaderLayout, Identity};
use super::super::parameters::{Parameters, differences};
use super::Level;
use super::disk::{FileId, ImageId};
use super::format::{SealState, read_seal};
use super::source::FoundImage;

/// The properties that a segment or an image must have to be usable.
pub(crate) struct ImageQuery<'a> {
    pub header: &'a HeaderLayout,
    pub fingerprint: u64,
    pub parameters: &'a Parameters,
}

#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub listed: Vec<FileId>,
    pub free_bytes: u64,
    /// Files that this process manages, that is, removes when they are no longer needed.
    pub files: Vec<FileId>,
    /// Images that this process reports to the others, with their states.
    pub images: Vec<(FoundImage, Vec<u8>)>,
    /// Why it does not see everything there, if the disk fails.
    pub failure: Option<String>,
}

impl ImageQuery<'_> {
    /// What this process sees of a level, as far as the disk answers. It manages the images of the
    /// ranks for which `is_ours` holds, and reads them if it `is_reader`.
    pub(crate) fn probe(
        &self,
        level: &Level,
        is_ours: impl Fn(usize) -> bool,
        is_reader: bool,
    ) -> Seen {
        let listed = level.disk.list().and_then(|files| Ok((files, level.disk.free_bytes()?)));
        let (listed, free_bytes) = match listed {
            Ok(listed) => listed,
            Err(error) => {
                return Seen { failure: Some(error.to_string()), ..Seen::default() };
            }
        };
        let ours = |file: &FileId| {
            let read = file.images().filter(|id| is_reader && is_ours(id.rank));
            read.zip(std::iter::repeat(*file))
        };
        let mut all: Vec<(ImageId, FileId)> = listed.iter().flat_map(ours).collect();
        all.sort_unstable();
        let (mut images, mut failure) = (Vec::with_capacity(all.len()), None);
        for (id, file) in all {
            match self.found(level, id, file) {
                Ok(image) => images.push(image),
                // Another process has removed it in the meantime.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => failure = Some(error.to_string()),
            }
        }
        let files = listed.iter().filter(|file| is_ours(file.ranks.first())).copied().collect();
        Seen { listed, free_bytes, files, images, failure }
    }

    /// An unreadable image is an error: it may be whole, and one without a seal may be removed.
    fn found(&self, level: &Level, id: ImageId, file: FileId) -> io::Result<(FoundImage, Vec<u8>)> {
        let mut file = level.disk.open(file, id.rank)?;
        let state = read_seal(self.header, &mut *file)?;
        let nothing = FoundImage { id, content: None, chosen: None, other: None };
        let differs = |theirs: &Parameters| differences(theirs, self.parameters);
        Ok(match state {
            SealState::Nothing => (nothing, Vec::new()),
            SealState::Choice(chosen) => {
                // Its writer may have died before it was safe, and this start follows it.
                file.sync()?;
                (FoundImage { chosen: Some(chosen), ..nothing }, Vec::new())
            }
            SealState::OtherVersion => {
                let other = Some(differs(&Parameters::new()));
                (FoundImage { other, ..nothing }, Vec::new())
            }
            SealState::Sealed(seal) if seal.identity.fingerprint != self.fingerprint => {
                let Identity { parameters, .. } = &seal.identity;
                (FoundImage { other: Some(differs(parameters)), ..nothing }, Vec::new())
            }
            SealState::Sealed(seal) => {
                let content = Some(Content::new(seal.identity, &seal.record));
                (FoundImage { content, ..nothing }, seal.record.state().to_vec())
            }
        })
    }
}
