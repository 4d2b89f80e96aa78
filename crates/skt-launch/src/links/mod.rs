//! The links between the nodes, over the network that the job uses.
//!
//! The agent that probes the nodes may reach them over another network than the ranks, or over none
//! at all: then a node whose link is dead still answers it. So before each start, and when a job is
//! silent, each node tries a few others ([`connect`]), all at once, and the supervisor
//! chooses these and judges what they found (`verdict`): a node that reaches hardly any other has
//! a dead link.

pub mod addresses;
pub mod connect;
pub(crate) mod verdict;

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A node that another node tries to reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partner {
    pub name: String,
    /// The partner's address in the network of the job; if there is none, its name is resolved.
    pub address: Option<IpAddr>,
}

/// The form in the probe's command line and in its questions.
impl fmt::Display for Partner {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            None => write!(out, "{}", self.name),
            Some(address) => write!(out, "{}={address}", self.name),
        }
    }
}

impl FromStr for Partner {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((name, address)) = text.split_once('=') else {
            return Ok(Self { name: text.to_owned(), address: None });
        };
        let bad = |_| format!("'{address}' is no address");
        Ok(Self { name: name.to_owned(), address: Some(address.parse().map_err(bad)?) })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    pub to: String,
    pub found: LinkState,
}

impl Link {
    pub(crate) fn has_failed(&self) -> bool {
        matches!(self.found, LinkState::Dead(_))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkState {
    /// A packet was sent, and one came back.
    Alive,
    /// No packet came back, for this reason.
    Dead(String),
    /// No packet was sent, for this reason, so the state of the link is unknown.
    Unknown(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partner_survives_a_round_trip_as_text() {
        let address = |text: &str| Some(text.parse().unwrap());
        for address in [None, address("10.77.0.12"), address("fe80::12")] {
            let partner = Partner { name: "n2".into(), address };
            assert_eq!(partner.to_string().parse(), Ok(partner));
        }
        assert!("n2=x".parse::<Partner>().is_err());
    }
}
