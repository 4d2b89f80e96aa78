//! Counters of energy that cannot be read.

use super::super::facts::HostFacts;
use super::super::finding::{Finding, FindingKind};
use super::finding;
use skt_host::counters::power::Found;

/// Finds counters that are there and that only root may read. A host without counters has nothing
/// to correct.
pub(crate) fn unreadable(host: &HostFacts) -> Option<Finding> {
    let Found::Forbidden(source) = &host.counters.power else { return None };
    let files: Vec<String> =
        source.channels.iter().map(|channel| format!("/{}", channel.file)).collect();
    let remedy = format!(
        "chgrp GROUP {0} && chmod g+r {0} (as root, after each boot, with the group of the users of \
         the machine: the kernel forbids it to others as counters can betray what a processor \
         computes, CVE-2020-8694)",
        files.join(" ")
    );
    let what = "runs report no energy: only root may read the counters";
    let measured = format!("{}, {} file(s)", source.name, files.len());
    Some(finding(host, FindingKind::PowerCounters, what, measured, remedy, None))
}
