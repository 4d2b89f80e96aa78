//! Host files: reads those of users, writes those for launchers.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::net::Ipv6Addr;

use super::{Host, HostsError, RANKS_MAX, check_name};
use skt_terms::shown::shown;

/// Reads a host file. A line is a name and optionally the number of ranks: `n1 slots=4` (Open MPI),
/// `n1:4` (MPICH), or the name repeated for each rank (PBS). `#` starts a comment. Open MPI's
/// `max_slots=` is skipped.
///
/// # Errors
/// See [`HostsError`]; a list with more than [`RANKS_MAX`] ranks is an error, too.
pub fn parse(text: &str, file: &str) -> Result<Vec<Host>, HostsError> {
    let mut hosts: Vec<Host> = Vec::new();
    let mut places = HashMap::new();
    let mut ranks = 0;
    for (index, line) in text.lines().enumerate() {
        let bad = |what: String| HostsError(format!("{file}:{}: {what}", index + 1));
        let line = line.split('#').next().unwrap_or("").trim();
        let mut words = line.split_whitespace();
        let Some(first) = words.next() else { continue };
        let (name, mut slots) = name_and_count(first);
        for word in words {
            match word.split_once('=') {
                Some(("slots", _)) if slots.is_some() => {
                    return Err(bad(format!("'{}' is a second number of ranks", shown(word))));
                }
                Some(("slots", count)) => slots = Some(count),
                Some(("max_slots" | "max-slots", _)) => {}
                _ => {
                    return Err(bad(format!(
                        "'{}' is not understood; a line is `NAME slots=COUNT`",
                        shown(word)
                    )));
                }
            }
        }
        check_name(name).map_err(bad)?;
        let slots = match slots {
            None => 1,
            Some(count) => match count.parse() {
                Ok(count @ 1..=RANKS_MAX) => count,
                _ => {
                    let count = shown(count);
                    return Err(bad(format!("'{count}' is no number of ranks (1 to {RANKS_MAX})")));
                }
            },
        };
        ranks += slots;
        if ranks > RANKS_MAX {
            return Err(bad(format!("{ranks} ranks up to here, {RANKS_MAX} at most")));
        }
        match places.get(name) {
            Some(&place) => {
                let host: &mut Host = &mut hosts[place];
                host.slots += slots;
            }
            None => {
                places.insert(name, hosts.len());
                hosts.push(Host { name: name.to_owned(), slots });
            }
        }
    }
    if hosts.is_empty() {
        return Err(HostsError(format!("{file}: no node in it")));
    }
    Ok(hosts)
}

/// The name and the number of ranks in `n1:4`, `[fe80::1]:4`, or either without a number.
fn name_and_count(word: &str) -> (&str, Option<&str>) {
    let is_address = |name: &str| name.parse::<Ipv6Addr>().is_ok();
    if let Some((name, rest)) = word.strip_prefix('[').and_then(|word| word.split_once(']'))
        && is_address(name)
        && (rest.is_empty() || rest.starts_with(':'))
    {
        return (name, rest.strip_prefix(':'));
    }
    match word.split_once(':') {
        Some((name, count)) if !is_address(word) => (name, Some(count)),
        _ => (word, None),
    }
}

/// The nodes that several lines of a host file name, each with the sum of its ranks, as Open MPI
/// counts them. Empty if all lines are names alone and all names are repeated (PBS).
pub fn repeated(text: &str, hosts: &[Host]) -> Vec<Host> {
    let lines = || text.lines().map(|line| line.split('#').next().unwrap_or("").trim());
    let first = |line: &str| line.split([' ', '\t']).next().unwrap_or("").to_owned();
    let name_of = |line: &str| name_and_count(&first(line)).0.to_owned();
    let is_plain = lines().all(|line| name_of(line) == line);
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    for line in lines() {
        *times.entry(name_of(line)).or_default() += 1;
    }
    let is_meant = is_plain && hosts.iter().all(|host| times[&host.name] > 1);
    let is_repeated = |host: &&Host| !is_meant && times.get(&host.name).is_some_and(|n| *n > 1);
    hosts.iter().filter(is_repeated).cloned().collect()
}

pub fn openmpi_file(hosts: &[Host]) -> String {
    let mut text = String::new();
    for host in hosts {
        let _ = writeln!(text, "{} slots={}", host.name, host.slots);
    }
    text
}

pub fn hydra_file(hosts: &[Host]) -> String {
    let mut text = String::new();
    for host in hosts {
        let _ = writeln!(text, "{}:{}", host.name, host.slots);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str, slots: usize) -> Host {
        Host { name: name.to_owned(), slots }
    }

    #[test]
    fn host_files_of_all_launchers_are_understood() {
        let text = "# nodes\nn1 slots=4 max_slots=8\nn2:2 # two\n\nn3\nn4\nn4\n";
        let hosts = parse(text, "h").unwrap();
        assert_eq!(hosts, [host("n1", 4), host("n2", 2), host("n3", 1), host("n4", 2)]);
        assert_eq!(parse(&openmpi_file(&hosts), "h").unwrap(), hosts);
        assert_eq!(parse(&hydra_file(&hosts), "h").unwrap(), hosts);
    }

    #[test]
    fn ipv6_addresses_are_host_names() {
        let text = "fe80::1 slots=4\n[fe80::2]:2\n[fe80::3]\n::1\nfe80::1:2\n10.0.0.1:3\n";
        let hosts = parse(text, "h").unwrap();
        let expected = [("fe80::1", 4), ("fe80::2", 2), ("fe80::3", 1), ("::1", 1)];
        let expected = expected.into_iter().chain([("fe80::1:2", 1), ("10.0.0.1", 3)]);
        assert_eq!(hosts, expected.map(|(name, slots)| host(name, slots)).collect::<Vec<_>>());
        assert_eq!(parse(&openmpi_file(&hosts), "h").unwrap(), hosts);
        let twice = "[fe80::2]:2\nfe80::2 slots=1\n";
        assert_eq!(repeated(twice, &parse(twice, "h").unwrap()), [host("fe80::2", 3)]);
    }

    #[test]
    fn nodes_named_on_several_lines_are_reported() {
        let warning = |text: &str| repeated(text, &parse(text, "h").unwrap());
        assert_eq!(warning("n1\nn2\nn1 # again\n"), [host("n1", 2)]);
        assert_eq!(warning("n1 slots=2\nn1 slots=2\nn2:2\n"), [host("n1", 4)]);
        assert_eq!(warning("n1\nn2\n\nn3 slots=4\n"), []);
        assert_eq!(warning("# PBS\nn1\nn1\nn2\nn2\n"), [], "a line a rank");
    }

    #[test]
    fn bad_host_files_are_refused_with_their_line() {
        for (text, message) in [
            ("", "h: no node in it"),
            ("n1\nn2 slots=0", "h:2: '0' is no number of ranks (1 to 16777216)"),
            ("n1 cpus=4", "h:1: 'cpus=4' is not understood; a line is `NAME slots=COUNT`"),
            ("-oProxyCommand=x", "h:1: '-oProxyCommand=x' is no host name"),
            ("n1;reboot", "h:1: 'n1;reboot' is no host name"),
            ("[n1]:2", "h:1: '[n1]' is no host name"),
            ("[::1]x", "h:1: '[' is no host name"),
            ("n1:x", "h:1: 'x' is no number of ranks (1 to 16777216)"),
            ("n1:4 slots=8", "h:1: 'slots=8' is a second number of ranks"),
            ("n1 slots=4 slots=8", "h:1: 'slots=8' is a second number of ranks"),
            ("n1:4:8", "h:1: '4:8' is no number of ranks (1 to 16777216)"),
            ("n1 slots=99999999999", "h:1: '99999999999' is no number of ranks (1 to 16777216)"),
            ("n1:16777216\nn2:16777216\n", "h:2: 33554432 ranks up to here, 16777216 at most"),
            (
                "n1 slots=18446744073709551615\nn1",
                "h:1: '18446744073709551615' is no number of ranks (1 to 16777216)",
            ),
        ] {
            assert_eq!(parse(text, "h").unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn control_characters_of_errors_are_escaped() {
        for text in ["n1 \x1b[31m", "\x1b[31m", "n1:\x1b[31m"] {
            let error = parse(text, "h").unwrap_err().to_string();
            assert!(error.contains("\\u{1b}[31m"), "{error}");
        }
        assert!(parse(&"n".repeat(256), "h").unwrap_err().to_string().len() < 100);
    }

    #[test]
    fn ranks_without_bound_are_refused() {
        let ranks = "n1 slots=16777216\nn1\n";
        let message = "h:2: 16777217 ranks up to here, 16777216 at most";
        assert_eq!(parse(ranks, "h").unwrap_err().to_string(), message);
        let most = format!("n1 slots={}", usize::MAX);
        assert!(parse(&most, "h").unwrap_err().to_string().contains("is no number of ranks"));
    }
}
