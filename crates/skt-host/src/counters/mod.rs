//! What the system counts and reports of a machine, read from the files under a root folder.
//!
//! [`Root`] is the only way to these files: `/` in production, in tests a folder that has its own
//! `proc` and `sys`, or a copy of another machine's. A file that is missing is no error: each
//! reader returns `None`, or leaves out what it does not know.

pub mod caches;
pub mod cgroup;
pub mod frequency;
pub mod load;
pub mod memory_errors;
pub mod numa;
pub mod oom_kills;
pub mod power;
pub mod processor;
mod root;
pub mod temperature;
pub mod throttling;
pub mod topology;

use serde::{Deserialize, Serialize};

pub use root::Root;
pub(crate) use root::parse_cpu_list;

use cgroup::Quota;
use frequency::Frequencies;
use memory_errors::MemoryErrors;
use numa::NumaNode;
use processor::Processor;
use topology::Cpu;

/// The state that a machine reports at one moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Counters {
    /// The processor and its instructions.
    pub processor: Processor,
    /// All CPUs that are online.
    pub cpus: Vec<Cpu>,
    /// The speed of each CPU relative to the fastest, in the order of `cpus`: below 1 where the
    /// processor has cores of several kinds.
    pub speeds: Vec<f64>,
    /// The nodes of the memory; one on a machine that reports none.
    pub nodes: Vec<NumaNode>,
    /// The clocks and who sets them.
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
            nodes: numa::nodes(root, &ids),
            frequencies: frequency::read(root, &ids),
            quota: cgroup::quota(root),
            usable_cpus: cgroup::cpus(root).unwrap_or_else(|| ids.clone()),
            huge_pages: huge_pages(root),
            memory_errors: memory_errors::read(root),
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
}
