//! One archive with all that a submission asks for: the report, the configuration, the command
//! line, the environment, the JSON report, the page, and the checksum of each file.
//!
//! All of it follows from the JSON report, so the same report gives the same bytes. An archive is
//! read in memory, and nothing of it is written to the disk.

mod archive;
mod contents;
mod sums;

pub use archive::is_archive;
pub use contents::{Extra, from_report};

/// The JSON report in an archive, as the run wrote it.
pub const REPORT: &str = "run.json";
/// The checksums, in the form of `sha256sum`.
const SUMS: &str = "SHA256SUMS";

#[derive(Debug, Clone, PartialEq, Eq)]
struct Member {
    name: String,
    bytes: Vec<u8>,
}

#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    #[error("it has no text_report, as it is of an older version: run the benchmark again")]
    Older,
    #[error("the archive is damaged: {0}")]
    Damaged(String),
    #[error("the archive holds more than {0} MiB, so it is none of a report")]
    TooLarge(u64),
    #[error(
        "the archive has '{0}', which is no plain file in its one folder: it is not from `report \
         --bundle`, do not unpack it"
    )]
    Unexpected(String),
    #[error("the archive lacks {0}")]
    Lacks(String),
    #[error("{0} in the archive has changed: its checksum is not that in {SUMS}")]
    Changed(String),
    #[error("{0} in the archive has no checksum in {SUMS}")]
    Unlisted(String),
    #[error("line {0} of {SUMS} in the archive is no checksum and name of a file")]
    Sums(usize),
}

/// The text of the JSON report in an archive, all of whose checksums are right.
pub fn read(bytes: &[u8]) -> Result<String, BundleError> {
    let members = archive::unpack(bytes)?;
    sums::check(&members)?;
    let lacks = || BundleError::Lacks(REPORT.to_owned());
    let report = members.into_iter().find(|member| member.name == REPORT).ok_or_else(lacks)?;
    String::from_utf8(report.bytes)
        .map_err(|_| BundleError::Damaged(format!("{REPORT} is not UTF-8")))
}
