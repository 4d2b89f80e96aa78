//! Reads a file while another process writes it.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// The most bytes that are read at a time: a job may write faster than they are passed on.
const PART_BYTES: u64 = 4 << 20;

/// Follows a file that grows.
#[derive(Debug)]
pub(crate) struct FileFollower(File);

impl FileFollower {
    /// Follows `path` from its beginning.
    pub(crate) fn new(path: &Path) -> io::Result<Self> {
        File::open(path).map(Self)
    }

    /// Returns the next bytes that were written; none if there are no more so far.
    pub(crate) fn read(&mut self) -> io::Result<Vec<u8>> {
        let mut part = Vec::new();
        (&self.0).take(PART_BYTES).read_to_end(&mut part)?;
        Ok(part)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn followed_bytes_are_returned_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let mut writer = File::create(&path).unwrap();
        let mut follow = FileFollower::new(&path).unwrap();
        assert_eq!(follow.read().unwrap(), b"");
        writer.write_all(b"caf\xe9\ntw").unwrap();
        assert_eq!(follow.read().unwrap(), b"caf\xe9\ntw");
        assert_eq!(follow.read().unwrap(), b"");
        let long = vec![b'x'; PART_BYTES as usize + 7];
        writer.write_all(&long).unwrap();
        assert_eq!(follow.read().unwrap().len(), PART_BYTES as usize);
        assert_eq!(follow.read().unwrap(), b"xxxxxxx");
    }
}
