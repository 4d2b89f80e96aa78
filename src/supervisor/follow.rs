//! Reads a file line by line while another process writes it.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// Follows a file that grows.
#[derive(Debug)]
pub struct Follow {
    file: File,
    partial: Vec<u8>,
}

impl Follow {
    /// Follows `path` from its beginning.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn new(path: &Path) -> io::Result<Self> {
        Ok(Self { file: File::open(path)?, partial: Vec::new() })
    }

    /// Calls `each` for every line that has become whole, with its line end.
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
        self.partial.drain(..=end);
        Ok(())
    }

    /// Returns what is left when the writer has ended: a line without its end.
    pub fn rest(&mut self) -> Option<String> {
        if self.partial.is_empty() {
            return None;
        }
        let rest = std::mem::take(&mut self.partial);
        Some(String::from_utf8_lossy(&rest).into_owned())
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
        let mut follow = Follow::new(&path).unwrap();
        let mut seen = Vec::new();
        let mut write = |text: &str| {
            writer.write_all(text.as_bytes()).unwrap();
            follow.lines(|line| seen.push(line.to_owned())).unwrap();
            seen.clone()
        };
        assert_eq!(write("one\ntw"), ["one\n"]);
        assert_eq!(write("o\nthree"), ["one\n", "two\n"]);
        assert_eq!(follow.rest().as_deref(), Some("three"));
        assert_eq!(follow.rest(), None);
    }
}
