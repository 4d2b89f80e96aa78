//! The links between the nodes: when they are tried, and what follows from that.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::{Action, Decisions, Inquiry};
use crate::hosts::{Host, Pool};
use crate::links::addresses::Address;
use crate::links::verdict::{self, Judged, Verdict};
use crate::links::{Link, plan};
use crate::probe::Purpose;
use crate::survey::Survey;

/// What is known of the nodes' links.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// The addresses that nodes have reported.
    addresses: BTreeMap<String, Vec<Address>>,
    /// Nodes whose links were found to be dead since the last start, each with the reason.
    pub dead: BTreeMap<String, String>,
    /// Whether the last tries of links failed between all nodes.
    pub none_reached: bool,
    /// Nodes that were used although their links seemed to be dead, as no spare was left.
    pub tried_anyway: Vec<String>,
}

impl Known {
    /// Notes the addresses that nodes report.
    pub fn note_addresses(&mut self, survey: &Survey) {
        for (name, answer) in &survey.answers {
            self.addresses.insert(name.clone(), answer.addresses.clone());
        }
    }

    /// The node that has this address.
    pub fn node_at(&self, ip: &str) -> Option<&str> {
        let ip: IpAddr = ip.parse().ok()?;
        let has = |addresses: &&Vec<Address>| addresses.iter().any(|address| address.ip == ip);
        let mut nodes = self.addresses.iter().filter(|(_, addresses)| has(addresses));
        // An address that several nodes have (a bridge of containers) names none.
        nodes.next().map(|(name, _)| name.as_str()).filter(|_| nodes.next().is_none())
    }
}

impl Decisions {
    /// Has these nodes try each other; false if there is nothing to be tried.
    pub(super) fn try_links(&mut self, hosts: Vec<Host>) -> bool {
        if hosts.len() < 2 {
            return false;
        }
        let addresses = |host: &Host| {
            let addresses = self.links.addresses.get(&host.name).map_or(&[][..], |all| all);
            (host.name.clone(), self.rules.networks.choose(addresses))
        };
        let nodes: Vec<plan::NodeAddresses> = hosts.iter().map(addresses).collect();
        self.asked = Purpose::Links;
        self.act(Action::Ask(Inquiry {
            purpose: Purpose::Links,
            pool: Pool::new(hosts, Vec::new()),
            spare_losses: 0,
            suspects: Vec::new(),
            lost: BTreeSet::new(),
            partners: plan::partners(&nodes),
        }));
        true
    }

    /// Notes the nodes whose links are dead, after they were tried. A start that lived with a
    /// node that seemed to be cut off shows that the test does not see what the job uses.
    pub(super) fn note_links(&mut self, survey: &Survey) {
        let findings: verdict::Findings = survey
            .answers
            .iter()
            .map(|(name, answer)| (name.clone(), answer.links.clone()))
            .collect();
        let doubted = self.doubts.all();
        fn names(hosts: &[Host]) -> impl Iterator<Item = &str> {
            hosts.iter().map(|host| host.name.as_str())
        }
        let Pool { active, spares, .. } = &self.state.pool;
        let judged = Judged::new(names(active), names(spares), doubted.iter());
        let Verdict { dead, alive } = verdict::judge(&findings, &judged);
        self.doubts.refute(&alive);
        let has_failed = |links: &Vec<Link>| links.iter().any(|link| link.has_failed());
        self.links.none_reached = alive.is_empty() && findings.values().any(has_failed);
        let has_lived = self.has_lived();
        let known = &mut self.links;
        let counts = |name: &String| !(has_lived && known.tried_anyway.contains(name));
        let counted: Vec<_> = dead.into_iter().filter(|(name, _)| counts(name)).collect();
        known.dead.extend(counted);
    }

    /// Whether a start has given a sign of life.
    pub(super) fn has_lived(&self) -> bool {
        self.state.last_beat.is_some() || self.state.failures.iter().any(|failure| failure.lived)
    }
}
