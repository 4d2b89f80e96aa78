//! Nodes that the launcher or the ranks have named although they answer the agent. Suspicions add
//! up over all starts since the job last computed, since one start may name one of several nodes
//! that are cut off, and the next another.

use std::collections::BTreeSet;

#[derive(Debug)]
struct Doubt {
    node: String,
    /// The last start in which the node was named.
    start: usize,
    /// Whether the launcher does not reach the node; else ranks have lost a connection to it.
    is_cut_off: bool,
    /// Whether the links of the node were tested since, and are alive.
    is_refuted: bool,
}

/// The nodes that were named, the last one last.
#[derive(Debug, Default)]
pub(super) struct Doubts(Vec<Doubt>);

impl Doubts {
    /// Notes that start number `start` has named a node.
    pub(crate) fn note(&mut self, node: &str, start: usize, is_cut_off: bool) {
        let before = self.0.iter().position(|doubt| doubt.node == node);
        let before = before.map(|index| self.0.remove(index));
        let is_cut_off = is_cut_off || before.is_some_and(|before| before.is_cut_off);
        self.0.push(Doubt { node: node.to_owned(), start, is_cut_off, is_refuted: false });
    }

    /// Notes the nodes whose links are alive.
    pub(crate) fn refute(&mut self, alive: &BTreeSet<String>) {
        for doubt in self.0.iter_mut().filter(|doubt| alive.contains(&doubt.node)) {
            doubt.is_refuted = true;
        }
    }

    /// Notes that start number `start` computes: what was named before was not the reason for
    /// failures, or is not used any more.
    pub(crate) fn forget_before(&mut self, start: usize) {
        self.0.retain(|doubt| doubt.start >= start);
    }

    /// All nodes that were named: those that the launcher does not reach first, and of these the
    /// last one first.
    pub(crate) fn all(&self) -> Vec<String> {
        let mut all: Vec<&Doubt> = self.0.iter().rev().collect();
        all.sort_by_key(|doubt| !doubt.is_cut_off);
        all.into_iter().map(|doubt| doubt.node.clone()).collect()
    }

    /// The nodes that the launcher does not reach, the last one first; without `refuted`, only
    /// those of which no test has shown that their links are alive.
    pub(crate) fn cut_off(&self, refuted: bool) -> Vec<String> {
        let is_one = |doubt: &&Doubt| doubt.is_cut_off && (refuted || !doubt.is_refuted);
        self.0.iter().rev().filter(is_one).map(|doubt| doubt.node.clone()).collect()
    }

    /// Whether the launcher does not reach a node, and no test has shown the contrary.
    pub(crate) fn is_cut_off(&self, node: &str) -> bool {
        self.0.iter().any(|doubt| doubt.node == node && doubt.is_cut_off && !doubt.is_refuted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suspicions_add_up_until_the_job_computes() {
        let mut doubts = Doubts::default();
        doubts.note("n2", 1, true);
        doubts.note("n3", 1, false);
        doubts.note("n4", 2, true);
        assert_eq!(doubts.all(), ["n4", "n2", "n3"]);
        assert_eq!(doubts.cut_off(false), ["n4", "n2"]);
        doubts.refute(&["n2".to_owned(), "n1".to_owned()].into());
        assert_eq!((doubts.cut_off(false), doubts.is_cut_off("n2")), (vec!["n4".into()], false));
        assert_eq!(doubts.cut_off(true), ["n4", "n2"]);
        doubts.note("n2", 2, false);
        assert!(doubts.is_cut_off("n2"), "it is named again");
        doubts.note("n4", 3, true);
        doubts.forget_before(3);
        assert_eq!(doubts.all(), ["n4"]);
    }
}
