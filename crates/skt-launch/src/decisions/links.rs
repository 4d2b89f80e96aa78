//! What follows from the links that the nodes have tried.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::Decisions;
use crate::hosts::Pool;
use crate::links::Link;
use crate::links::addresses::Address;
use crate::links::verdict::{self, JudgedNodes, Verdict};
use crate::survey::Survey;

/// The nodes' links, as far as they are known.
#[derive(Debug, Default)]
pub(super) struct LinkRecord {
    addresses: BTreeMap<String, Vec<Address>>,
    /// Nodes whose links were found to be dead since they were last used, each with the reason.
    pub dead: BTreeMap<String, String>,
    /// Whether the last tries of links failed between all nodes.
    pub none_reached: bool,
    /// Nodes that were used although their links seemed to be dead, as no spare was left.
    pub tried_anyway: Vec<String>,
}

impl LinkRecord {
    pub(crate) fn note_addresses(&mut self, survey: &Survey) {
        for (name, answer) in &survey.answers {
            self.addresses.insert(name.clone(), answer.addresses.clone());
        }
    }

    pub(crate) fn node_at(&self, ip: &str) -> Option<&str> {
        let ip: IpAddr = ip.parse().ok()?;
        let has = |addresses: &&Vec<Address>| addresses.iter().any(|address| address.ip == ip);
        let mut nodes = self.addresses.iter().filter(|(_, addresses)| has(addresses));
        // An address that several nodes have (a bridge of containers) names none.
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

    /// Whether a start has given a sign of life.
    pub(super) fn has_lived(&self) -> bool {
        self.state.last_beat.is_some() || self.state.failures.iter().any(|failure| failure.lived)
    }
}
