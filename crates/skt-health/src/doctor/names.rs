//! What each host knows of the names of all hosts.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, ToSocketAddrs as _};
use std::sync::mpsc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use skt_host::each::each;

/// What a host knows of names: their addresses, or why there are none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// The host.
    pub host: String,
    /// The names.
    pub names: BTreeMap<String, Result<BTreeSet<IpAddr>, String>>,
}

/// The longest time without an answer for any name, while some are left: a name server that does
/// not answer is asked for 10 s. Names beyond those that are looked up at once wait for these.
const PATIENCE: Duration = Duration::from_secs(12);

/// Looks all names up on this host, which is called `host`, at once. A name that takes too long is
/// one that is not known.
pub fn look_up(host: &str, names: &[String]) -> View {
    let (sender, receiver) = mpsc::channel();
    let started = each(names.to_vec(), move |name| {
        let found = (name.as_str(), 0).to_socket_addrs();
        let addresses = found
            .map(|all| all.map(|address| address.ip()).collect::<BTreeSet<IpAddr>>())
            .map_err(|why| why.to_string());
        // The receiver is gone once the time is up.
        drop(sender.send((name, addresses)));
    });
    let why = started.map_or_else(|why| why.to_string(), |()| format!("no answer in {PATIENCE:?}"));
    let late = || Err(why.clone());
    let mut found: BTreeMap<_, _> = names.iter().map(|name| (name.clone(), late())).collect();
    // The senders are gone once all names have their answers.
    while let Ok((name, addresses)) = receiver.recv_timeout(PATIENCE) {
        found.insert(name, addresses);
    }
    View { host: host.to_owned(), names: found }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_its_own_name_and_an_invalid_name_is_not_known() {
        let names = ["127.0.0.1".to_owned(), "no such name".to_owned()];
        let view = look_up("here", &names);
        assert_eq!(view.names["127.0.0.1"], Ok(BTreeSet::from(["127.0.0.1".parse().unwrap()])));
        assert!(view.names["no such name"].is_err());
    }
}
