//! Names of hosts: unknown, or with different addresses on different hosts.

use std::collections::BTreeSet;
use std::net::IpAddr;

use skt_terms::shown::and_more;

use super::super::finding::{Finding, FindingKind};
use super::super::names::View;

/// Compares what hosts know of the names of all. With `is_listed` the names are those of a list for
/// a launcher, which needs each of them; otherwise a job runs already, and a name that no host
/// knows harms nothing.
pub fn findings(views: &[View], is_listed: bool) -> Vec<Finding> {
    let names: BTreeSet<&String> = views.iter().flat_map(|view| view.names.keys()).collect();
    names.into_iter().flat_map(|name| for_name(name, views, is_listed)).collect()
}

fn for_name(name: &str, views: &[View], is_listed: bool) -> Vec<Finding> {
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
        found.push(Finding {
            kind: FindingKind::UnknownName,
            hosts: vec![name.to_owned()],
            what: format!("the name of {name} is not known on {}", hosts(&unknown)),
            measured: format!("on {viewer}: {why}"),
            remedy: format!("a line `ADDRESS {name}` in /etc/hosts there, or an entry in the DNS"),
            gain: None,
        });
    }
    found.extend(differs(name, &known));
    found
}

/// Whether a host is the one of this name. Either may lack the domain.
fn is_own(host: &str, name: &str) -> bool {
    let (short, domain) = host.split_once('.').unwrap_or((host, ""));
    let (other, its) = name.split_once('.').unwrap_or((name, ""));
    short == other && (domain == its || domain.is_empty() || its.is_empty())
}

fn hosts<T>(views: &[(&str, T)]) -> String {
    let names: Vec<&str> = views.iter().take(4).map(|(host, _)| *host).collect();
    names.join(", ") + &and_more(views.len(), names.len())
}

/// Finds a name that means the asking host itself, or has no common address on two hosts.
fn differs(name: &str, known: &[(&str, &BTreeSet<IpAddr>)]) -> Option<Finding> {
    let words = |addresses: &BTreeSet<IpAddr>| {
        addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    };
    let finding = |what: String, measured: String| Finding {
        kind: FindingKind::DifferentName,
        hosts: vec![name.to_owned()],
        what,
        measured,
        remedy: format!(
            "the same line for {name} in /etc/hosts of all hosts (getent ahosts {name})"
        ),
        gain: None,
    };
    let is_loop = |addresses: &BTreeSet<IpAddr>| addresses.iter().all(IpAddr::is_loopback);
    // A list may name this very machine as localhost, or hosts by their addresses.
    let is_meant = name == "localhost" || name.parse::<IpAddr>().is_ok();
    if let Some((viewer, addresses)) =
        known.iter().find(|(_, addresses)| !is_meant && is_loop(addresses))
        && known.len() > 1
    {
        let what = format!("{name} means the asking host itself on {viewer}");
        return Some(finding(what, format!("on {viewer}: {}", words(addresses))));
    }
    let (first, addresses) = known.first()?;
    let (other, different) =
        known.iter().find(|(_, different)| different.is_disjoint(addresses))?;
    let what = format!("{name} has different addresses on {first} and {other}");
    let measured = format!("on {first}: {}; on {other}: {}", words(addresses), words(different));
    Some(finding(what, measured))
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
    fn a_name_that_one_host_does_not_know() {
        let views = [view("n1", &[("n3", "10.0.0.3")]), view("n2", &[("n3", "")])];
        for is_listed in [false, true] {
            let found = findings(&views, is_listed);
            assert_eq!(found.len(), 1);
            assert_eq!(found[0].kind, FindingKind::UnknownName);
            assert_eq!(found[0].what, "the name of n3 is not known on n2");
            assert!(found[0].measured.contains("Name or service not known"));
        }
        let nobody = [view("n1", &[("n3", "")])];
        assert_eq!((findings(&nobody, false).len(), findings(&nobody, true).len()), (0, 1));
    }

    #[test]
    fn a_name_with_two_meanings() {
        let views = [view("n1", &[("n3", "10.0.0.3")]), view("n2", &[("n3", "10.9.0.3")])];
        let found = findings(&views, false);
        assert_eq!(found[0].kind, FindingKind::DifferentName);
        assert_eq!(found[0].what, "n3 has different addresses on n1 and n2");
        assert_eq!(found[0].measured, "on n1: 10.0.0.3; on n2: 10.9.0.3");
        let views = [view("n1", &[("n3", "10.0.0.3")]), view("n2", &[("n3", "127.0.1.1")])];
        assert_eq!(findings(&views, false)[0].what, "n3 means the asking host itself on n2");
    }
}
