//! The folder in place of `/`.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// The folder under which the files of a machine are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root(PathBuf);

impl Root {
    /// The machine of this process.
    pub fn this_machine() -> Self {
        Self::at(Path::new("/"))
    }

    /// The machine whose `proc` and `sys` are in `folder`.
    pub fn at(folder: &Path) -> Self {
        Self(folder.to_path_buf())
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// The text of the file `path`, which is relative, without white space at its ends. `None` if
    /// it cannot be read.
    pub fn text(&self, path: &str) -> Option<String> {
        self.read(path).ok()
    }

    /// The text of the file `path`, as [`Root::text`], or why it cannot be read.
    pub fn read(&self, path: &str) -> io::Result<String> {
        // Some files of other systems hold bytes that are no UTF-8.
        let bytes = fs::read(self.0.join(path))?;
        Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// The number that is alone in the file `path`.
    pub fn number(&self, path: &str) -> Option<u64> {
        self.text(path)?.parse().ok()
    }

    /// The list in the file `path`, as `0-3,8`.
    pub fn list(&self, path: &str) -> Option<Vec<usize>> {
        parse_cpu_list(&self.text(path)?)
    }

    /// The names in the folder `path`, in order; none if there is no such folder.
    pub fn names(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.0.join(path)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

/// Parses `0-3,8,10-11`; `None` for anything else, and for numbers beyond any machine.
pub(crate) fn parse_cpu_list(text: &str) -> Option<Vec<usize>> {
    /// More CPUs than any kernel knows.
    const MOST: usize = 1 << 20;
    let mut ids = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last >= MOST {
            return None;
        }
        ids.extend(first..=last);
    }
    Some(ids)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Tree;

    #[test]
    fn lists_of_cpus() {
        assert_eq!(parse_cpu_list("0-2,8,10-11\n"), Some(vec![0, 1, 2, 8, 10, 11]));
        assert_eq!(parse_cpu_list("\n"), Some(vec![]));
        assert_eq!(parse_cpu_list("3-1"), None);
        assert_eq!(parse_cpu_list("a"), None);
        assert_eq!(parse_cpu_list("0-18446744073709551615"), None);
    }

    #[test]
    fn missing_file_is_none() {
        let tree = Tree::new();
        tree.file("sys/one", " 7 \n").file("sys/word", "seven").file("sys/b", "");
        let root = tree.root();
        assert_eq!((root.number("sys/one"), root.number("sys/word")), (Some(7), None));
        assert_eq!((root.text("sys/none"), root.list("sys/one")), (None, Some(vec![7])));
        assert_eq!(root.names("sys"), ["b", "one", "word"]);
        assert_eq!(root.names("none"), [""; 0]);
    }
}
