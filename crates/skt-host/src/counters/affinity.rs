//! The CPUs and the nodes of memory that the process may use.

use super::{Root, parse_cpu_list};

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Tree;

    #[test]
    fn both_lists_are_read() {
        let tree = Tree::new();
        assert_eq!(allowed(&tree.root()), (vec![], vec![]));
        let status = "Cpus_allowed:\tff\nCpus_allowed_list:\t4-5,7\nMems_allowed_list:\t1\n";
        tree.file("proc/self/status", status);
        assert_eq!(allowed(&tree.root()), (vec![4, 5, 7], vec![1]));
    }
}
