//! The nodes of a run: reads lists of them, and replaces lost ones.

mod lists;
mod pool;

use std::net::Ipv6Addr;

use serde::{Deserialize, Deserializer, Serialize};

pub(crate) use lists::SparesFile;
pub use lists::{ListedNodes, expand_slurm, expand_tasks, listed_in, parse};
pub use pool::{Health, OutOfUse, Pool, Replacement};
pub(crate) use pool::{Lack, SparesSpent, UNLISTED, describe_lost};

use skt_host::shown::shown;

use skt_config::launch::RANKS_MAX;

/// The longest name of a node, in bytes (RFC 1035).
const NAME_BYTES_MAX: usize = 255;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// The node's name, as the launcher and the agent know it.
    #[serde(deserialize_with = "checked_name")]
    pub name: String,
    pub slots: usize,
}

impl AsRef<str> for Host {
    fn as_ref(&self) -> &str {
        &self.name
    }
}

impl Host {
    /// Whether this node can replace one with `slots` ranks: a node with 1 slot takes any number.
    pub(crate) fn fits(&self, slots: usize) -> bool {
        self.slots >= slots || self.slots == 1
    }
}

/// A host file of Open MPI.
pub fn openmpi_file(hosts: &[Host]) -> String {
    hosts.iter().map(|host| format!("{} slots={}\n", host.name, host.slots)).collect()
}

/// What is wrong with a list of nodes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct HostsError(String);

/// Checks a name, because names go into command lines: nothing in it may mean something else to a
/// shell or to ssh.
fn check_name(name: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    let is_short = (1..=NAME_BYTES_MAX).contains(&name.len());
    let is_name = !name.starts_with('-') && name.chars().all(fits);
    if is_short && (is_name || name.parse::<Ipv6Addr>().is_ok()) {
        return Ok(());
    }
    Err(format!("'{}' is no host name", shown(name)))
}

/// The number of ranks in a text.
fn rank_count(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| (1..=RANKS_MAX).contains(count));
    count.ok_or_else(|| format!("'{}' is no number of ranks (1 to {RANKS_MAX})", shown(text)))
}

/// A name read from a state file, checked like a name in a list: it goes into command lines.
fn checked_name<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let name = String::deserialize(from)?;
    check_name(&name).map_err(serde::de::Error::custom)?;
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig {
            failure_persistence: None,
            ..Default::default()
        })]

        #[test]
        fn any_text_is_a_list_or_an_error(text in "\\PC{0,40}|[n0-9\\[\\],-]{0,20}") {
            let _ = parse(&text, "h").map_err(|error| error.to_string());
            let _ = expand_slurm(&text).map_err(|error| error.to_string());
            let _ = expand_tasks("SLURM_TASKS_PER_NODE", &text, 1);
        }
    }
}
