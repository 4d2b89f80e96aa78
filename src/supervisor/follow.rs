//! Reading a file that another process writes, line by line.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

/// Follows a file.
#[derive(Debug)]
pub struct Follow {
    file: File,
    /// Bytes up to the last whole line that was handed out.
    offset: u64,
    partial: Vec<u8>,
}

impl Follow {
    /// Follows `path` from `offset` bytes on.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn new(path: &Path, offset: u64) -> io::Result<Self> {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(offset))?;
        Ok(Self { file, offset, partial: Vec::new() })
    }

    /// Hands out the lines that are whole by now, with their ends.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn lines(&mut self, mut each: impl FnMut(&str)) -> io::Result<()> {
        self.file.read_to_end(&mut self.partial)?;
        let Some(end) = self.partial.iter().rposition(|byte| *byte == b'\n') else {
            return Ok(());
        };
        for line in self.partial[..=end].split_inclusive(|byte| *byte == b'\n') {
            each(&String::from_utf8_lossy(line));
        }
        self.offset += end as u64 + 1;
        self.partial.drain(..=end);
        Ok(())
    }

    /// What is left when the writer has ended: a line without its end.
    pub fn rest(&mut self) -> Option<String> {
        if self.partial.is_empty() {
            return None;
        }
        self.offset += self.partial.len() as u64;
        let rest = std::mem::take(&mut self.partial);
        Some(String::from_utf8_lossy(&rest).into_owned())
    }

    /// Where a later reader has to go on.
    pub fn offset(&self) -> u64 {
        self.offset
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn lines_come_whole_and_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let mut writer = File::create(&path).unwrap();
        let mut follow = Follow::new(&path, 0).unwrap();
        let mut seen = Vec::new();
        let mut write = |text: &str, follow: &mut Follow, seen: &mut Vec<String>| {
            writer.write_all(text.as_bytes()).unwrap();
            follow.lines(|line| seen.push(line.to_owned())).unwrap();
        };
        write("one\ntw", &mut follow, &mut seen);
        assert_eq!((seen.as_slice(), follow.offset()), (&["one\n".to_owned()][..], 4));
        write("o\nthree", &mut follow, &mut seen);
        assert_eq!(seen, ["one\n", "two\n"]);
        let mut later = Follow::new(&path, follow.offset()).unwrap();
        later.lines(|_| panic!("no whole line")).unwrap();
        assert_eq!(later.rest().as_deref(), Some("three"));
        assert_eq!((later.rest(), later.offset()), (None, 13));
    }
}
