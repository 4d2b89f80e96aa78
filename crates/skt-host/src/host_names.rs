//! Names of nodes in messages: many as ranges, as Slurm writes them, and shared reasons once.

use std::fmt::Write as _;

use crate::shown::and_more;

/// The fewest consecutive names that become a range.
const RANGE_MIN: usize = 3;
/// The most ranges and names, or reasons, in a message. The files of the run have all.
const SHOWN_MAX: usize = 8;

/// A name as its text before and after a number, and that number.
struct Numbered<'a> {
    before: &'a str,
    digits: &'a str,
    after: &'a str,
}

/// The parts of a name around the last number of its first label, or of an IPv4 address around its
/// last number; `None` if there is no such number.
fn numbered(name: &str) -> Option<Numbered<'_>> {
    let is_address = name.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let label = name.find('.').filter(|_| !is_address).unwrap_or(name.len());
    let end = name[..label].rfind(|c: char| c.is_ascii_digit())? + 1;
    let start = name[..end].rfind(|c: char| !c.is_ascii_digit()).map_or(0, |at| at + 1);
    Some(Numbered { before: &name[..start], digits: &name[start..end], after: &name[end..] })
}

/// Whether `next` has the name that follows in a range which begins with `first`, `steps` names
/// before.
fn follows(first: &Numbered, next: &Numbered, steps: usize) -> bool {
    let value = |digits: &str| digits.parse::<u64>().ok();
    let wanted = value(first.digits).and_then(|value| value.checked_add(steps as u64));
    (first.before, first.after) == (next.before, next.after)
        && wanted
            .is_some_and(|it| format!("{it:0width$}", width = first.digits.len()) == next.digits)
}

/// The names in their order, consecutive ones as ranges: `n[01-16], login`. Of many ranges, the
/// first ones and how many names follow.
pub fn short_names(names: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let names: Vec<_> = names.into_iter().collect();
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    let (text, left) = ranges(&names, SHOWN_MAX);
    text + &and_more(left.len(), 0)
}

/// The first `most` ranges of names, and the names that are left.
pub fn ranges<'a, 'b>(names: &'a [&'b str], most: usize) -> (String, &'a [&'b str]) {
    let (mut text, mut left) = (String::new(), names);
    for _ in 0..most {
        let [first, rest @ ..] = left else { break };
        let start = numbered(first);
        let is_next = |(steps, name): &(usize, &&str)| {
            start.as_ref().zip(numbered(name)).is_some_and(|(a, b)| follows(a, &b, *steps))
        };
        let more = (1..).zip(rest).take_while(is_next).count();
        let comma = if text.is_empty() { "" } else { ", " };
        let range = start.zip(numbered(left[more])).filter(|_| more + 1 >= RANGE_MIN);
        let taken = match range {
            Some((Numbered { before, digits, after }, last)) => {
                let _ = write!(text, "{comma}{before}[{digits}-{}]{after}", last.digits);
                more + 1
            }
            None => {
                let _ = write!(text, "{comma}{first}");
                1
            }
        };
        left = &left[taken..];
    }
    (text, left)
}

/// The nodes with their reasons, those that differ in the node's own name alone once: `n1 (no
/// answer)`, `n[01-16] (ssh: Could not resolve hostname NODE)`.
pub fn with_reasons<'a>(nodes: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut groups: Vec<(String, Vec<(&str, &str)>)> = Vec::new();
    for node in nodes {
        let common = without_name(node.1, node.0);
        match groups.iter_mut().find(|(why, _)| *why == common) {
            Some((_, alike)) => alike.push(node),
            None => groups.push((common, vec![node])),
        }
    }
    let group = |(common, alike): &(String, Vec<(&str, &str)>)| match &alike[..] {
        [(name, why)] => format!("{name} ({why})"),
        _ => format!("{} ({common})", short_names(alike.iter().map(|(name, _)| name))),
    };
    let shown: Vec<String> = groups.iter().take(SHOWN_MAX).map(group).collect();
    let left = groups.iter().skip(SHOWN_MAX).map(|(_, alike)| alike.len()).sum();
    shown.join(", ") + &and_more(left, 0)
}

/// The text with `NODE` for a node's name, where that is a whole word.
fn without_name(text: &str, name: &str) -> String {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let mut parts = Vec::new();
    let mut from = 0;
    for (at, _) in text.match_indices(name) {
        let end = at + name.len();
        if at >= from && !text[..at].ends_with(is_part) && !text[end..].starts_with(is_part) {
            parts.push(&text[from..at]);
            from = end;
        }
    }
    parts.push(&text[from..]);
    parts.join("NODE")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_names_are_ranges() {
        for (names, want) in [
            ("n1", "n1"),
            ("n1 n2", "n1, n2"),
            ("n1 n2 n3 n5", "n[1-3], n5"),
            ("n08 n09 n10 n11 login", "n[08-11], login"),
            ("n8 n9 n10", "n[8-10]"),
            ("n098 n099 n100 n0101", "n[098-100], n0101"),
            ("n3 n2 n1", "n3, n2, n1"),
            ("w-0.job w-1.job w-2.job", "w-[0-2].job"),
            ("10.0.0.1 10.0.0.2 10.0.0.3", "10.0.0.[1-3]"),
            ("r1i0n1 r1i0n2 r1i0n3 r1i1n1", "r1i0n[1-3], r1i1n1"),
            ("fd00::1 fd00::2", "fd00::1, fd00::2"),
            ("a b c", "a, b, c"),
            ("1a 1b 1c 1d 1e 1f 1g h1 h2 h3 x y", "1a, 1b, 1c, 1d, 1e, 1f, 1g, h[1-3] and 2 more"),
        ] {
            assert_eq!(short_names(names.split(' ')), want);
        }
    }

    #[test]
    fn reasons_that_differ_in_the_name_are_one() {
        let of = |names: &[&str], why: &str| {
            let node = |name: &&str| ((*name).to_owned(), why.replace('@', name));
            names.iter().map(node).collect::<Vec<_>>()
        };
        let with_reasons = |nodes: &[(String, String)]| {
            super::with_reasons(nodes.iter().map(|(name, why)| (name.as_str(), why.as_str())))
        };
        let resolve = of(&["n1", "n2", "n3", "n10"], "ssh: no address of @: sorry (n4, n11)");
        let off = of(&["n7"], "@ is off");
        let want = "n[1-3], n10 (ssh: no address of NODE: sorry (n4, n11)), n7 (n7 is off)";
        assert_eq!(with_reasons(&[resolve, off].concat()), want);
        let all: Vec<_> = (0..20).map(|n| (format!("n{n}"), format!("has {n} B"))).collect();
        assert!(with_reasons(&all).ends_with("n7 (has 7 B) and 12 more"));
    }
}
