//! Decides which nodes' links are dead from what the nodes found, as a pure function.

use std::collections::{BTreeMap, BTreeSet};

use super::{Link, LinkState};

/// What each node that answered has found.
pub type Findings = BTreeMap<String, Vec<Link>>;

/// A try of one node to reach another.
struct Try<'a> {
    ends: [&'a str; 2],
    /// Why the try failed; `None` if it succeeded.
    why: Option<&'a str>,
}

/// The nodes whose links are dead, each with the reason.
///
/// A node is named if more than half of its tries failed, counting other nodes' tries to reach it,
/// and leaving out tries with nodes that are already named; the node with the largest part of
/// failed tries comes first. What then remains are pairs of nodes that fail only with each other:
/// of these, the one in `doubted` is named, or else the later one in `order`. If no link is alive
/// among the remaining nodes, the test says nothing (a filter may drop its packets), and no node is
/// named.
pub fn dead(findings: &Findings, order: &[&str], doubted: &[String]) -> BTreeMap<String, String> {
    let mut tries = tries(findings);
    let mut dead = BTreeMap::new();
    while let Some((name, why)) = worst(&tries) {
        tries.retain(|one| !one.ends.contains(&name));
        dead.insert(name.to_owned(), why);
    }
    while let Some(index) = tries.iter().position(|one| one.why.is_some()) {
        let Try { ends, why } = &tries[index];
        let rank = |name: &str| {
            let place = order.iter().position(|known| *known == name);
            (doubted.iter().any(|doubted| doubted == name), place)
        };
        let [a, b] = *ends;
        let (name, other) = if rank(a) > rank(b) { (a, b) } else { (b, a) };
        let text = format!(
            "its link to {other} is dead, while both reach others ({})",
            why.expect("it failed")
        );
        tries.retain(|one| !one.ends.contains(&name));
        dead.insert(name.to_owned(), text);
    }
    // Each remaining node has reached another one, or was not tried.
    if tries.is_empty() { BTreeMap::new() } else { dead }
}

fn tries(findings: &Findings) -> Vec<Try<'_>> {
    let mut all = Vec::new();
    for (from, links) in findings {
        for link in links.iter().filter(|link| link.to != *from) {
            let why = match &link.found {
                LinkState::Alive => None,
                LinkState::Dead(why) => Some(why.as_str()),
                LinkState::Unknown(_) => continue,
            };
            all.push(Try { ends: [from, &link.to], why });
        }
    }
    all
}

/// The node with the largest part of failed tries, if more than half of them failed and with at
/// least two other nodes; and the reason.
fn worst<'a>(tries: &[Try<'a>]) -> Option<(&'a str, String)> {
    #[derive(Default)]
    struct Count<'a> {
        failed: usize,
        all: usize,
        others: BTreeSet<&'a str>,
        why: &'a str,
    }
    let mut counts: BTreeMap<&str, Count> = BTreeMap::new();
    for one in tries {
        for (name, other) in [(one.ends[0], one.ends[1]), (one.ends[1], one.ends[0])] {
            let count = counts.entry(name).or_default();
            count.all += 1;
            count.others.insert(other);
            if let Some(why) = one.why {
                count.failed += 1;
                count.why = why;
            }
        }
    }
    let is_out =
        |(_, count): &(&&str, &Count)| 2 * count.failed > count.all && count.others.len() > 1;
    let worst = counts.iter().filter(is_out).max_by(|(_, a), (_, b)| {
        (a.failed * b.all).cmp(&(b.failed * a.all)).then(a.failed.cmp(&b.failed))
    });
    worst.map(|(name, count)| {
        let (failed, all) = (count.failed, count.all);
        (*name, format!("its link is dead: {failed} of {all} tries failed ({})", count.why))
    })
}

#[cfg(test)]
mod tests {
    use super::super::plan::partners;
    use super::*;

    /// The findings where `is_dead` says between which pairs no packet passes.
    fn findings(n: usize, silent: &[usize], is_dead: &dyn Fn(usize, usize) -> bool) -> Findings {
        let nodes: Vec<_> = (0..n).map(|index| (format!("n{index}"), Vec::new())).collect();
        let index = |name: &str| name[1..].parse::<usize>().unwrap();
        let link = |from: &str, to: &str| Link {
            to: to.to_owned(),
            found: if is_dead(index(from), index(to)) {
                LinkState::Dead("no answer".into())
            } else {
                LinkState::Alive
            },
        };
        let all = partners(&nodes).into_iter().filter(|(name, _)| !silent.contains(&index(name)));
        all.map(|(from, to)| {
            let links = to.iter().map(|to| link(&from, &to.name)).collect();
            (from, links)
        })
        .collect()
    }

    fn named(findings: &Findings, n: usize, doubted: &[&str]) -> Vec<usize> {
        let names: Vec<String> = (0..n).map(|index| format!("n{index}")).collect();
        let order: Vec<&str> = names.iter().map(String::as_str).collect();
        let doubted: Vec<String> = doubted.iter().map(|name| (*name).to_owned()).collect();
        let dead = dead(findings, &order, &doubted);
        let mut all: Vec<usize> = dead.keys().map(|name| name[1..].parse().unwrap()).collect();
        all.sort_unstable();
        all
    }

    /// The nodes that are named where the links of `dead` are dead.
    fn with_dead(n: usize, dead: &[usize]) -> Vec<usize> {
        let is_dead = |a, b| dead.contains(&a) || dead.contains(&b);
        let found = named(&findings(n, &[], &is_dead), n, &[]);
        // The nodes with dead links need not answer themselves.
        assert_eq!(named(&findings(n, dead, &is_dead), n, &[]), found, "{n}: {dead:?}");
        found
    }

    #[test]
    fn the_nodes_that_reach_no_other_are_named() {
        for n in [3, 4, 5, 9, 10, 1000] {
            assert_eq!(with_dead(n, &[]), [0; 0]);
            assert_eq!(with_dead(n, &[n - 1]), [n - 1], "{n}");
        }
        assert_eq!(with_dead(4, &[0, 2]), [0, 2]);
        assert_eq!(with_dead(5, &[1, 2, 3]), [1, 2, 3]);
        assert_eq!(with_dead(1000, &[17, 18, 130, 500]), [17, 18, 130, 500]);
        // A rack of 32 nodes, all on one switch.
        let rack: Vec<usize> = (320..352).collect();
        assert_eq!(with_dead(1000, &rack), rack);
    }

    #[test]
    fn random_nodes_among_a_thousand_are_named() {
        let mut random = 88_172_645_463_325_252_u64;
        for many in [1, 2, 10, 50, 100] {
            let mut dead = BTreeSet::new();
            while dead.len() < many {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                dead.insert((random % 1000) as usize);
            }
            let dead: Vec<usize> = dead.into_iter().collect();
            assert_eq!(with_dead(1000, &dead), dead, "{many}");
        }
    }

    #[test]
    fn of_a_pair_one_is_named() {
        let is_dead = |a: usize, b: usize| (a.min(b), a.max(b)) == (1, 2);
        let found = findings(4, &[], &is_dead);
        assert_eq!(named(&found, 4, &[]), [2], "the later one");
        assert_eq!(named(&found, 4, &["n1"]), [1], "the one that the launcher has named");
        let order = ["n0", "n1", "n2", "n3"];
        let why = dead(&found, &order, &[]).remove("n2").unwrap();
        assert_eq!(why, "its link to n1 is dead, while both reach others (no answer)");
    }

    #[test]
    fn where_no_packet_passes_at_all_nobody_is_named() {
        for n in [2, 3, 5, 1000] {
            assert_eq!(named(&findings(n, &[], &|_, _| true), n, &[]), [0; 0], "{n}");
        }
        // Between two nodes nothing tells which is at fault.
        assert_eq!(with_dead(2, &[0]), [0; 0]);
        assert_eq!(with_dead(3, &[0, 1]), [0; 0]);
    }

    #[test]
    fn the_smaller_part_of_a_network_in_two_is_named() {
        let is_dead = |a: usize, b: usize| (a < 2) != (b < 2);
        assert_eq!(named(&findings(5, &[], &is_dead), 5, &[]), [0, 1]);
    }

    #[test]
    fn what_is_not_known_says_nothing() {
        let unknown =
            |to: &str| Link { to: to.into(), found: LinkState::Unknown("no name".into()) };
        let alive = |to: &str| Link { to: to.into(), found: LinkState::Alive };
        let found: Findings = [
            ("n0".to_owned(), vec![unknown("n1"), unknown("n2")]),
            ("n1".to_owned(), vec![alive("n2")]),
        ]
        .into();
        assert_eq!(named(&found, 3, &[]), [0; 0]);
    }
}
