//! The nodes of a run: reading lists of them, and replacing lost ones.

mod file;
mod pool;
mod slurm;

use std::net::Ipv6Addr;

use serde::{Deserialize, Deserializer, Serialize};

pub use file::{hydra_file, openmpi_file, parse, repeated};
pub use pool::{Health, OutOfUse, Pool, Replacement, SparesSpent};
pub use slurm::{expand_slurm, expand_tasks};

use skt_terms::shown::shown;

/// The most ranks of a list, more than any machine has had: a greater count is a typing
/// error.
pub const RANKS_MAX: usize = 1 << 24;
/// Longest name of a node (RFC 1035).
const MOST_NAME_BYTES: usize = 255;

/// A node and how many ranks go there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Its name, as the launcher and the agent know it.
    #[serde(deserialize_with = "checked_name")]
    pub name: String,
    /// Ranks.
    pub slots: usize,
}

impl Host {
    /// Whether it can take the place of a node of `slots` ranks: one that says
    /// 1 is given as many as are needed.
    pub fn fits(&self, slots: usize) -> bool {
        self.slots >= slots || self.slots == 1
    }
}

/// What is wrong with a list of nodes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostsError {
    /// A line that cannot be understood.
    #[error("{file}:{line}: {what}")]
    Line {
        /// The file.
        file: String,
        /// Line, from 1.
        line: usize,
        /// What is wrong there.
        what: String,
    },
    /// No node in it.
    #[error("{file}: no node in it")]
    Empty {
        /// The file.
        file: String,
    },
    /// Not a Slurm node list.
    #[error("'{list}' is no Slurm node list: {what}")]
    NodeList {
        /// The list.
        list: String,
        /// What is wrong.
        what: String,
    },
}

/// Names go into command lines: nothing that a shell or ssh could take for
/// something else.
fn check_name(name: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    let is_short = (1..=MOST_NAME_BYTES).contains(&name.len());
    let is_name = !name.starts_with('-') && name.chars().all(fits);
    if is_short && (is_name || name.parse::<Ipv6Addr>().is_ok()) {
        return Ok(());
    }
    Err(format!("'{}' is no host name", shown(name)))
}

/// A name read from a state file, checked like one of a list: it goes into command lines.
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
            let _ = expand_tasks(&text);
        }
    }
}
