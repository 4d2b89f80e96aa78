//! What the system counts and reports of a machine, read from the files under a root folder.
//!
//! [`Root`] is the only way to these files: `/` in production, in tests a folder that has its own
//! `proc` and `sys`, or a copy of another machine's. A file that is missing is no error: each
//! reader returns `None`, or leaves out what it does not know.

pub mod cgroup;
pub mod oom_kills;
pub mod power;
pub mod processor;
pub mod sensors;
pub mod topology;

use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::{Deserialize, Serialize};

use cgroup::Quota;
use processor::Processor;
use sensors::{Frequencies, MemoryErrors};
use topology::{Cpu, NumaNode};

/// The state that a machine reports at one moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Counters {
    pub processor: Processor,
    pub cpus: Vec<Cpu>,
    /// The speed of each CPU relative to the fastest, in the order of `cpus`: below 1 where the
    /// processor has cores of several kinds.
    pub speeds: Vec<f64>,
    /// The nodes of the memory; one on a machine that reports none.
    pub nodes: Vec<NumaNode>,
    pub frequencies: Frequencies,
    /// The tightest limit of processor time of the control groups, if any has one.
    pub quota: Option<Quota>,
    /// The setting of transparent huge pages for private memory, if the kernel has them.
    pub huge_pages: Option<String>,
    /// Errors of the memory since the machine was started.
    pub memory_errors: MemoryErrors,
    /// Counters of energy and sensors of power.
    pub power: power::Found,
    /// CPUs that the control groups leave to the job, even if its launcher binds ranks to fewer.
    pub usable_cpus: Vec<usize>,
    /// CPUs on which this process may run.
    pub allowed_cpus: Vec<usize>,
    /// Nodes of which this process may take memory.
    pub allowed_nodes: Vec<usize>,
}

impl Counters {
    /// Reads the counters of the machine under `root`.
    pub fn read(root: &Root) -> Self {
        let cpus = topology::online(root).unwrap_or_default();
        let ids: Vec<usize> = cpus.iter().map(|cpu| cpu.id).collect();
        let (allowed_cpus, allowed_nodes) = allowed(root);
        Self {
            processor: processor::read(root),
            speeds: topology::speeds(root, &ids),
            nodes: topology::nodes(root, &ids),
            frequencies: sensors::frequencies(root, &ids),
            quota: cgroup::quota(root),
            usable_cpus: cgroup::cpus(root).unwrap_or_else(|| ids.clone()),
            huge_pages: huge_pages(root),
            memory_errors: sensors::memory_errors(root),
            power: power::find(root),
            allowed_cpus: if allowed_cpus.is_empty() { ids } else { allowed_cpus },
            allowed_nodes,
            cpus,
        }
    }
}

/// The CPUs on which this process may run, and the nodes of which it may take memory; empty where
/// `/proc/self/status` does not list them.
pub fn allowed(root: &Root) -> (Vec<usize>, Vec<usize>) {
    let status = root.text("proc/self/status").unwrap_or_default();
    let list = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(parse_cpu_list).unwrap_or_default()
    };
    (list("Cpus_allowed_list"), list("Mems_allowed_list"))
}

/// The word in brackets of `always [madvise] never`: the setting for private memory. `None` if the
/// kernel has no transparent huge pages.
fn huge_pages(root: &Root) -> Option<String> {
    let text = root.text("sys/kernel/mm/transparent_hugepage/enabled")?;
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}

/// The folder under which the files of a machine are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root(PathBuf);

impl Root {
    pub fn this_machine() -> Self {
        Self::at(Path::new("/"))
    }

    /// The machine whose `proc` and `sys` are in `folder`.
    pub fn at(folder: &Path) -> Self {
        Self(folder.to_path_buf())
    }

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

    pub(crate) fn is_there(&self, path: &str) -> bool {
        self.0.join(path).exists()
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
    fn the_word_in_brackets_is_the_setting() {
        let tree = Tree::new();
        assert_eq!(huge_pages(&tree.root()), None);
        let path = "sys/kernel/mm/transparent_hugepage/enabled";
        tree.file(path, "always madvise [never]\n");
        assert_eq!(huge_pages(&tree.root()).as_deref(), Some("never"));
    }

    #[test]
    fn both_lists_are_read() {
        let tree = Tree::new();
        assert_eq!(allowed(&tree.root()), (vec![], vec![]));
        let status = "Cpus_allowed:\tff\nCpus_allowed_list:\t4-5,7\nMems_allowed_list:\t1\n";
        tree.file("proc/self/status", status);
        assert_eq!(allowed(&tree.root()), (vec![4, 5, 7], vec![1]));
    }

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
