//! The rules: from the facts of a host to findings.

mod cores;
mod frequency;
mod kernel;
mod library;
mod memory;
pub mod names;
mod power;
mod rate;
mod sgemm;
mod sharing;
pub(super) mod uneven;

use super::facts::HostFacts;
use super::finding::{Finding, FindingKind, Gain};

/// The findings on a host. Rules about an effect, such as a low rate, come last and see the causes
/// that were found before.
pub(crate) fn for_host(host: &HostFacts) -> Vec<Finding> {
    let mut found = for_settings(host);
    found.extend(kernel::old(host));
    found.extend(library::faster(host));
    found.extend(frequency::measured(host));
    found.extend(rate::low(host, &found));
    found.extend(sgemm::findings(host, &found));
    found
}

/// The findings that follow from counters and settings alone, which takes almost no time.
pub(crate) fn for_settings(host: &HostFacts) -> Vec<Finding> {
    let mut found: Vec<Finding> = sharing::crowded(host).into_iter().collect();
    found.extend(sharing::quota(host));
    found.extend(cores::findings(host));
    found.extend(frequency::settings(host));
    found.extend(memory::findings(host));
    found.extend(power::unreadable(host));
    found
}

/// A finding on this host.
fn finding(
    host: &HostFacts,
    kind: FindingKind,
    what: impl Into<String>,
    measured: impl Into<String>,
    remedy: impl Into<String>,
    gain: Option<Gain>,
) -> Finding {
    Finding {
        kind,
        hosts: vec![host.host.clone()],
        what: what.into(),
        measured: measured.into(),
        remedy: remedy.into(),
        gain,
    }
}

/// A list of numbers as text, with ranges: `0-3,8`.
fn list(numbers: impl IntoIterator<Item = usize>) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    let word = |&(first, last): &(usize, usize)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    ranges.iter().map(word).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_ranges() {
        assert_eq!(list([0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
        assert_eq!(list([]), "");
    }
}
