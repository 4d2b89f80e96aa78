//! The links between the nodes, over the network that the job uses.
//!
//! The agent that asks the nodes may reach them by another network than the ranks, or by none
//! at all: a node whose link is dead answers it. So before each start, and when a job is silent,
//! each node tries a few others ([`plan`], [`exchange`]), all at once, and the supervisor judges
//! what they found ([`verdict`]): a node that reaches hardly any other is the one.

pub mod addresses;
pub mod exchange;
pub mod from_here;
pub mod plan;
pub mod verdict;

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A node that another one tries to reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partner {
    /// Its name.
    pub name: String,
    /// Its address in the network of the job; without one, that of its name there.
    pub address: Option<IpAddr>,
}

/// As the probe's command line and its questions have it.
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
        let (name, address) = match text.split_once('=') {
            None => (text, None),
            Some((name, address)) => match address.parse() {
                Ok(address) => (name, Some(address)),
                Err(_) => return Err(format!("'{address}' is no address")),
            },
        };
        Ok(Self { name: name.to_owned(), address })
    }
}

/// What a node found when it tried a partner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// The partner's name.
    pub to: String,
    /// How it went.
    pub found: Found,
}

/// How a try went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Found {
    /// A packet went there, and one came back.
    Alive,
    /// None came back, and why.
    Dead(String),
    /// No packet was sent, and why: it says nothing of the link.
    Unknown(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partner_is_read_back_as_it_is_written() {
        let address = |text: &str| Some(text.parse().unwrap());
        for address in [None, address("10.77.0.12"), address("fe80::12")] {
            let partner = Partner { name: "n2".into(), address };
            assert_eq!(partner.to_string().parse(), Ok(partner));
        }
        assert!("n2=x".parse::<Partner>().is_err());
    }
}
