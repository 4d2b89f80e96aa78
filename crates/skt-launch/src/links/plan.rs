//! Chooses which nodes try which others.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::Partner;
use super::addresses::Networks;
use crate::hosts::Host;
use crate::probe::Answer;

/// Up to this number of nodes, each tries all others; beyond it, each tries [`SHIFTS`] of them.
const ALL_TO_ALL: usize = 9;
/// Number of partners of a node among many. Including the nodes that try it, a node has twice as
/// many.
const SHIFTS: usize = 4;

/// The partners of each node. Among many nodes each has four, shifted by 1, n/9 + 1, 2n/9 + 1 and
/// 3n/9 + 1 in the list, so that not all are on one switch; since each shift is less than half of
/// n, no two nodes try each other. A node is tried at its address in each of `networks`, or else by
/// its name.
pub(crate) fn partners(
    hosts: &[Host],
    answers: &BTreeMap<String, Answer>,
    networks: &Networks,
) -> BTreeMap<String, Vec<Partner>> {
    let addresses = |host: &Host| {
        let reported = answers.get(&host.name).map_or(&[][..], |answer| &answer.addresses);
        (host.name.clone(), networks.choose(reported))
    };
    partners_at(&hosts.iter().map(addresses).collect::<Vec<_>>())
}

/// The partners of nodes with these addresses in the networks of the job.
pub(super) fn partners_at(nodes: &[(String, Vec<IpAddr>)]) -> BTreeMap<String, Vec<Partner>> {
    let n = nodes.len();
    let shifts: Vec<usize> = if n <= ALL_TO_ALL {
        (1..n).collect()
    } else {
        (0..SHIFTS).map(|i| 1 + i * n / (2 * SHIFTS + 1)).collect()
    };
    let to = |(name, addresses): &(String, Vec<IpAddr>)| -> Vec<Partner> {
        let partner = |address| Partner { name: name.clone(), address };
        if addresses.is_empty() {
            vec![partner(None)]
        } else {
            addresses.iter().map(|ip| partner(Some(*ip))).collect()
        }
    };
    let of =
        |index: usize| shifts.iter().flat_map(|shift| to(&nodes[(index + shift) % n])).collect();
    nodes.iter().enumerate().map(|(index, (name, _))| (name.clone(), of(index))).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn nodes(n: usize) -> Vec<(String, Vec<IpAddr>)> {
        (0..n).map(|index| (format!("n{index}"), Vec::new())).collect()
    }

    #[test]
    fn few_nodes_try_all_others_and_many_try_four() {
        for n in 2..=9 {
            assert!(partners_at(&nodes(n)).values().all(|of| of.len() == n - 1));
        }
        for n in [10, 11, 27, 100, 1000, 4096] {
            let all = partners_at(&nodes(n));
            assert!(all.values().all(|of| of.len() == SHIFTS), "{n}");
            // Each node is tried by four others, and no pair is tried twice.
            let pairs: BTreeSet<(String, String)> = { &all }
                .iter()
                .flat_map(|(from, of)| of.iter().map(|to| (from.clone(), to.name.clone())))
                .map(|(a, b)| if a < b { (a, b) } else { (b, a) })
                .collect();
            assert_eq!(pairs.len(), SHIFTS * n, "{n}");
        }
    }

    #[test]
    fn each_network_of_a_node_is_tried() {
        let ips = ["10.0.0.1", "10.1.0.1"].map(|text| text.parse().unwrap());
        let all = partners_at(&[("a".into(), ips.to_vec()), ("b".into(), vec![])]);
        let shown = |of: &[Partner]| of.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(shown(&all["b"]), ["a=10.0.0.1", "a=10.1.0.1"]);
        assert_eq!(shown(&all["a"]), ["b"]);
    }
}
