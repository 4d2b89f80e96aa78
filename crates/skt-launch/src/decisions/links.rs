//! Nodes that are cut off: what follows from the links that the nodes have tried, and nodes that
//! the launcher or the ranks have named although they answer the agent. Suspicions add up over all
//! starts since the job last computed, since one start may name one of several nodes that are cut
//! off, and the next another. A node that the launcher has not reached in two starts is lost,
//! whatever it answers.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::Decisions;
use crate::hosts::{Host, Pool};
use crate::links::Link;
use crate::links::addresses::Address;
use crate::links::verdict::{self, JudgedNodes, Verdict};
use crate::survey::Survey;

#[derive(Debug, Default)]
pub(super) struct LinkRecord {
    pub addresses: BTreeMap<String, Vec<Address>>,
    /// Nodes whose links were found to be dead since they were last used, each with the reason.
    pub dead: BTreeMap<String, String>,
    /// Whether the last tries of links failed between all nodes.
    pub none_reached: bool,
    /// Nodes that were used although their links seemed to be dead, as no spare was left.
    pub tried_anyway: Vec<String>,
}

impl LinkRecord {
    /// The node that has an address. One that several nodes have (a bridge of containers) names
    /// none.
    pub(crate) fn node_at(&self, ip: &str) -> Option<&str> {
        let ip: IpAddr = ip.parse().ok()?;
        let has = |addresses: &&Vec<Address>| addresses.iter().any(|address| address.ip == ip);
        let mut nodes = self.addresses.iter().filter(|(_, addresses)| has(addresses));
        nodes.next().map(|(name, _)| name.as_str()).filter(|_| nodes.next().is_none())
    }
}

impl Decisions {
    /// Notes the nodes whose links are dead, after they were tried. A start that lived with a
    /// node that seemed to be cut off shows that the test does not see what the job uses.
    pub(super) fn note_links(&mut self, survey: &Survey) {
        let Some(findings) = &survey.links else { return };
        let doubted = self.doubts.all();
        let Pool { active, spares, .. } = self.state.pool.placed();
        let judged = JudgedNodes::new(&active, &spares, &doubted);
        let Verdict { dead, alive } = verdict::judge(findings, &judged);
        self.doubts.refute(&alive);
        let has_failed = |links: &Vec<Link>| links.iter().any(|link| link.has_failed());
        self.links.none_reached = alive.is_empty() && findings.values().any(has_failed);
        let has_lived = self.has_lived();
        let known = &mut self.links;
        let counts = |name: &String| !(has_lived && known.tried_anyway.contains(name));
        let counted: Vec<_> = dead.into_iter().filter(|(name, _)| counts(name)).collect();
        known.dead.retain(|name, _| !alive.contains(name));
        known.dead.extend(counted);
    }

    pub(super) fn has_lived(&self) -> bool {
        self.state.last_beat.is_some() || self.state.failures.iter().any(|failure| failure.lived)
    }
}

#[derive(Debug)]
struct Doubt {
    node: String,
    /// The last start in which the node was named.
    start: usize,
    /// The starts in which the launcher has not reached the node; if there are none, ranks have
    /// lost a connection to it.
    unreached_in: BTreeSet<usize>,
    /// Whether the links of the node were tested since, and are alive.
    is_refuted: bool,
}

impl Doubt {
    /// One start may name a node whose link is back in the next one.
    fn is_lost(&self) -> bool {
        self.unreached_in.len() > 1
    }
}

/// The nodes that were named, the last one last.
#[derive(Debug, Default)]
pub(super) struct Doubts(Vec<Doubt>);

impl Doubts {
    pub(crate) fn note(&mut self, node: &str, start: usize, is_cut_off: bool) {
        let before = self.0.iter().position(|doubt| doubt.node == node);
        let before = before.map(|index| self.0.remove(index).unreached_in);
        let mut unreached_in = before.unwrap_or_default();
        unreached_in.extend(is_cut_off.then_some(start));
        self.0.push(Doubt { node: node.to_owned(), start, unreached_in, is_refuted: false });
    }

    pub(crate) fn refute(&mut self, alive: &BTreeSet<String>) {
        for doubt in self.0.iter_mut().filter(|doubt| alive.contains(&doubt.node)) {
            doubt.is_refuted = true;
        }
    }

    /// Notes that start number `start` computes: what was named before was not the reason for
    /// failures, or is not used any more. Nodes that are lost, and not `in_use`, stay lost: that
    /// they answer shows nothing.
    pub(crate) fn forget_before(&mut self, start: usize, in_use: &[Host]) {
        for doubt in &mut self.0 {
            if in_use.iter().any(|host| host.name == doubt.node) {
                doubt.unreached_in.retain(|other| *other >= start);
            }
        }
        self.0.retain(|doubt| doubt.start >= start || doubt.is_lost());
    }

    /// Notes that start number `start` has not reached its nodes. If it names none, those of them
    /// that earlier starts have named are still out of reach.
    pub(crate) fn confirm(&mut self, start: usize, in_use: &[Host]) {
        if self.explains(start) {
            return;
        }
        for doubt in self.0.iter_mut().filter(|doubt| !doubt.unreached_in.is_empty()) {
            if in_use.iter().any(|host| host.name == doubt.node) {
                doubt.unreached_in.insert(start);
            }
        }
    }

    /// The nodes that are lost are tried once more: they are lost again if a start misses them.
    pub(crate) fn try_again(&mut self) {
        for doubt in &mut self.0 {
            while doubt.is_lost() {
                doubt.unreached_in.pop_first();
            }
        }
    }

    /// All nodes that were named: those that the launcher does not reach first, and of these the
    /// last one first.
    pub(crate) fn all(&self) -> Vec<String> {
        let mut all: Vec<&Doubt> = self.0.iter().rev().collect();
        all.sort_by_key(|doubt| doubt.unreached_in.is_empty());
        all.into_iter().map(|doubt| doubt.node.clone()).collect()
    }

    fn known(&self, node: &str) -> Option<&Doubt> {
        self.0.iter().find(|doubt| doubt.node == node)
    }

    /// Whether the launcher does not reach a node, and no test has shown the contrary.
    pub(crate) fn is_cut_off(&self, node: &str) -> bool {
        self.known(node).is_some_and(|doubt| !doubt.unreached_in.is_empty() && !doubt.is_refuted)
    }

    /// Whether the launcher has not reached a node in two starts.
    pub(crate) fn is_lost(&self, node: &str) -> bool {
        self.known(node).is_some_and(Doubt::is_lost)
    }

    /// Whether the launcher has named a node that it did not reach in this start.
    pub(crate) fn explains(&self, start: usize) -> bool {
        self.0.iter().any(|doubt| doubt.unreached_in.contains(&start))
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
        assert_eq!(["n2", "n3", "n4"].map(|node| doubts.is_cut_off(node)), [true, false, true]);
        doubts.refute(&["n2".to_owned(), "n1".to_owned()].into());
        assert!(!doubts.is_cut_off("n2"));
        doubts.note("n2", 2, false);
        assert!(doubts.is_cut_off("n2"), "it is named again");
        doubts.note("n4", 3, true);
        doubts.forget_before(3, &hosts(&["n2", "n3", "n4"]));
        assert_eq!(doubts.all(), ["n4"]);
    }

    #[test]
    fn node_that_two_starts_do_not_reach_is_lost() {
        let mut doubts = Doubts::default();
        for (node, start, is_cut_off) in
            [("n2", 1, true), ("n2", 1, true), ("n3", 1, true), ("n3", 2, false), ("n4", 1, true)]
        {
            doubts.note(node, start, is_cut_off);
            assert!(!doubts.is_lost(node), "{node} {start}");
        }
        ["n2", "n4"].iter().for_each(|node| doubts.note(node, 2, true));
        // Whatever a test of its link shows.
        doubts.refute(&["n2".to_owned()].into());
        assert!(doubts.is_lost("n2") && doubts.is_lost("n4") && doubts.explains(2));
        // The job computes with n4, and not with n2.
        doubts.forget_before(3, &hosts(&["n1", "n4"]));
        assert_eq!(doubts.all(), ["n2"]);
        assert!(doubts.is_lost("n2"));
        doubts.confirm(4, &hosts(&["n1", "n4"]));
        doubts.try_again();
        assert!(!doubts.is_lost("n2"));
        // The launcher need not name the node again.
        doubts.note("n1", 5, false);
        doubts.confirm(5, &hosts(&["n1", "n2"]));
        assert!(doubts.is_lost("n2") && !doubts.is_cut_off("n1"));
    }

    fn hosts(names: &[&str]) -> Vec<Host> {
        names.iter().map(|name| Host { name: (*name).to_owned(), slots: 1 }).collect()
    }
}
