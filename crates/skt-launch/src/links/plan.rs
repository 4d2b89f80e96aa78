//! Chooses which nodes try which others.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::Partner;
use super::addresses::Networks;
use crate::hosts::Host;
use crate::probe::Answer;

/// The most nodes that a node tries. Including the nodes that try it, it has twice as many partners.
const SHIFTS: usize = 4;

/// The nodes that each node tries: those that follow it in the list by 1, n/9 + 1, 2n/9 + 1 and
/// 3n/9 + 1, so that not all are on one switch, and with fewer than nine nodes the next four. Up to
/// nine nodes each pair is tried; beyond, no two nodes try each other. A node is tried at its
/// address in each of `networks`, or else by its name.
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
    let all = 2 * SHIFTS + 1;
    let shifts = (0..SHIFTS).map(|i| 1 + i * n.max(all) / all).filter(|shift| *shift < n);
    let shifts: Vec<usize> = shifts.collect();
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
    fn few_nodes_try_all_pairs_and_many_try_four() {
        for n in [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 27, 100, 1000, 4096] {
            let all = partners_at(&nodes(n));
            assert!(all.values().all(|of| of.len() == SHIFTS.min(n - 1)), "{n}");
            // Of many, each node is tried by four others, and no pair is tried twice.
            let pairs: BTreeSet<(String, String)> = { &all }
                .iter()
                .flat_map(|(from, of)| of.iter().map(|to| (from.clone(), to.name.clone())))
                .map(|(a, b)| if a < b { (a, b) } else { (b, a) })
                .collect();
            assert_eq!(pairs.len(), (SHIFTS * n).min(n * (n - 1) / 2), "{n}");
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
