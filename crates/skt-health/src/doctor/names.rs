//! What each host knows of the names of all hosts: some may be unknown, or mean other addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, ToSocketAddrs as _};
use std::sync::mpsc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::finding::{Finding, FindingKind};
use super::report::host_words;
use skt_host::each::each;

/// What a host knows of names: their addresses, or why there are none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    pub host: String,
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

/// Compares what hosts know of the names of all. With `is_listed` the names are those of a list for
/// a launcher, which needs each of them; otherwise a job runs already, and a name that no host
/// knows harms nothing.
pub fn findings(views: &[View], is_listed: bool) -> Vec<Finding> {
    let names: BTreeSet<&String> = views.iter().flat_map(|view| view.names.keys()).collect();
    names.into_iter().flat_map(|name| for_name(name, views, is_listed)).collect()
}

fn for_name(name: &str, views: &[View], is_listed: bool) -> Vec<Finding> {
    let finding = |kind, what: String, measured, remedy: String| {
        Finding::new(kind, vec![name.to_owned()], what, measured, remedy, None)
    };
    // How a host resolves its name matters to no other.
    let others = || views.iter().filter(|view| !is_own(&view.host, name));
    let unknown: Vec<(&str, &str)> = others()
        .filter_map(|view| {
            Some((view.host.as_str(), view.names.get(name)?.as_ref().err()?.as_str()))
        })
        .collect();
    let known: Vec<(&str, &BTreeSet<IpAddr>)> = others()
        .filter_map(|view| Some((view.host.as_str(), view.names.get(name)?.as_ref().ok()?)))
        .collect();
    let mut found = Vec::new();
    if let Some((viewer, why)) = unknown.first()
        && (is_listed || !known.is_empty())
    {
        let viewers: Vec<String> = unknown.iter().map(|(host, _)| (*host).to_owned()).collect();
        let what = format!("the name of {name} is not known on {}", host_words(&viewers));
        let remedy = format!("a line `ADDRESS {name}` in /etc/hosts there, or an entry in the DNS");
        found.push(finding(FindingKind::UnknownName, what, format!("on {viewer}: {why}"), remedy));
    }
    found.extend(difference(name, &known).map(|(what, measured)| {
        let remedy =
            format!("the same line for {name} in /etc/hosts of all hosts (getent ahosts {name})");
        finding(FindingKind::DifferentName, what, measured, remedy)
    }));
    found
}

/// Whether a host is the one of this name. Either may lack the domain.
fn is_own(host: &str, name: &str) -> bool {
    let (short, domain) = host.split_once('.').unwrap_or((host, ""));
    let (other, its) = name.split_once('.').unwrap_or((name, ""));
    short == other && (domain == its || domain.is_empty() || its.is_empty())
}

/// Whether a name means the asking host itself, or has no common address on two hosts, and how.
fn difference(name: &str, known: &[(&str, &BTreeSet<IpAddr>)]) -> Option<(String, String)> {
    let words = |addresses: &BTreeSet<IpAddr>| {
        addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    };
    let is_loop = |addresses: &BTreeSet<IpAddr>| addresses.iter().all(IpAddr::is_loopback);
    // A list may name this very machine as localhost, or hosts by their addresses.
    let is_meant = name == "localhost" || name.parse::<IpAddr>().is_ok();
    if let Some((viewer, addresses)) =
        known.iter().find(|(_, addresses)| !is_meant && is_loop(addresses))
        && known.len() > 1
    {
        let what = format!("{name} means the asking host itself on {viewer}");
        return Some((what, format!("on {viewer}: {}", words(addresses))));
    }
    let (first, addresses) = known.first()?;
    let (other, different) =
        known.iter().find(|(_, different)| different.is_disjoint(addresses))?;
    let what = format!("{name} has different addresses on {first} and {other}");
    let measured = format!("on {first}: {}; on {other}: {}", words(addresses), words(different));
    Some((what, measured))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(host: &str, names: &[(&str, &str)]) -> View {
        let addresses = |text: &str| match text {
            "" => Err("Name or service not known".to_owned()),
            text => Ok(text.split(' ').map(|word| word.parse().unwrap()).collect()),
        };
        let names = names.iter().map(|(name, text)| ((*name).to_owned(), addresses(text)));
        View { host: host.to_owned(), names: names.collect() }
    }

    #[test]
    fn equal_names_are_no_finding_whatever_a_host_calls_itself() {
        let views = [
            view("n1", &[("n1", "127.0.1.1"), ("n2", "10.0.0.2")]),
            view("n2", &[("n1", "10.0.0.1"), ("n2", "127.0.1.1")]),
            view("n3", &[("n1", "10.0.0.1 10.1.0.1"), ("n2", "10.0.0.2")]),
        ];
        assert_eq!(findings(&views, true), []);
    }

    #[test]
    fn a_host_calls_itself_by_its_name_with_or_without_the_domain() {
        let own = |host: &str, name: &str| {
            let views = [view(host, &[(name, "127.0.1.1")]), view("n2", &[(name, "10.0.0.1")])];
            findings(&views, true).len()
        };
        assert_eq!((own("n1.cluster", "n1"), own("n1", "n1.cluster")), (0, 0));
        assert_eq!(
            (own("n1.a", "n1.b"), own("n11", "n1.a"), own("10.0.0.1", "10.0.0.9")),
            (1, 1, 1)
        );
    }

    #[test]
    fn unknown_and_different_names_are_found() {
        use FindingKind::{DifferentName, UnknownName};
        let unknown = "the name of n3 is not known on n2";
        for (of_n2, kind, what, measured) in [
            ("", UnknownName, unknown, "on n2: Name or service not known"),
            (
                "10.9.0.3",
                DifferentName,
                "n3 has different addresses on n1 and n2",
                "on n1: 10.0.0.3; on n2: 10.9.0.3",
            ),
            (
                "127.0.1.1",
                DifferentName,
                "n3 means the asking host itself on n2",
                "on n2: 127.0.1.1",
            ),
        ] {
            let views = [view("n1", &[("n3", "10.0.0.3")]), view("n2", &[("n3", of_n2)])];
            for is_listed in [false, true] {
                let [found] = &findings(&views, is_listed)[..] else { panic!("one for {what}") };
                let words = (found.kind, found.what.as_str(), found.measured.as_str());
                assert_eq!(words, (kind, what, measured));
            }
        }
        let nobody = [view("n1", &[("n3", "")])];
        assert_eq!((findings(&nobody, false).len(), findings(&nobody, true).len()), (0, 1));
    }

    #[test]
    fn an_address_is_its_own_name_and_an_invalid_name_is_not_known() {
        let names = ["127.0.0.1".to_owned(), "no such name".to_owned()];
        let view = look_up("here", &names);
        assert_eq!(view.names["127.0.0.1"], Ok(BTreeSet::from(["127.0.0.1".parse().unwrap()])));
        assert!(view.names["no such name"].is_err());
    }
}
