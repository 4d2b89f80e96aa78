//! The energy of a test: what ranks have measured, and what that gives for the job.

use std::collections::BTreeMap;

use skt_terms::median::median;

use crate::record::energy::{
    self, EnergyReading, NodeEnergy, NodeWatts, Nodes, RankEnergy, SECONDS_MIN,
};
use skt_solver::comm::{Comm, CommError, collect};

/// The readings of a test that took `seconds`, from what all ranks of `comm` have measured; the
/// same on all ranks. Collective, unless the test is too short to be measured.
///
/// # Errors
/// When a rank is lost.
pub fn gather<C: Comm>(
    comm: &C,
    seconds: f64,
    measure: impl FnOnce() -> RankEnergy,
) -> Result<Vec<EnergyReading>, CommError> {
    if seconds < SECONDS_MIN {
        return Ok(Vec::new());
    }
    let own = measure();
    let is_any = own.node.is_some() || own.meter.is_some();
    let bytes = if is_any { serde_json::to_vec(&own).expect("plain data") } else { Vec::new() };
    let all = collect::gather_bytes(comm, &bytes, 0)?;
    let mut readings = all.map_or(Vec::new(), |all| {
        serde_json::to_vec(&readings_of_ranks(&all, seconds)).expect("plain data")
    });
    collect::broadcast_bytes(comm, &mut readings, 0)?;
    Ok(serde_json::from_slice(&readings).expect("what rank 0 sent"))
}

fn readings_of_ranks(all: &[Vec<u8>], seconds: f64) -> Vec<EnergyReading> {
    let read = |bytes: &Vec<u8>| serde_json::from_slice(bytes).expect("what a rank sent");
    let all: Vec<RankEnergy> = all.iter().filter(|bytes| !bytes.is_empty()).map(read).collect();
    let meter = all.iter().find_map(|rank| rank.meter.clone());
    let nodes = machines(all.iter().filter_map(|rank| rank.node.as_ref()));
    meter.into_iter().chain(reading_of_nodes(&nodes, seconds)).collect()
}

/// One node of each machine: one that could read the counters, if there is any.
fn machines<'a>(nodes: impl Iterator<Item = &'a NodeEnergy>) -> Vec<&'a NodeEnergy> {
    let mut known: BTreeMap<&str, &NodeEnergy> = BTreeMap::new();
    let mut all = Vec::new();
    for node in nodes {
        if node.boot_id.is_empty() {
            all.push(node);
            continue;
        }
        let first = known.entry(&node.boot_id).or_insert(node);
        if first.seconds == 0.0 {
            *first = node;
        }
    }
    all.extend(known.into_values());
    all
}

/// The reading of a job with these nodes; `None` if none of them has measured anything.
fn reading_of_nodes(nodes: &[&NodeEnergy], seconds: f64) -> Option<EnergyReading> {
    let mut measured: Vec<&NodeEnergy> =
        nodes.iter().copied().filter(|node| node.seconds > 0.0).collect();
    let watts = |node: &NodeEnergy| node.joules / node.seconds;
    measured.sort_by(|a, b| watts(a).total_cmp(&watts(b)));
    let (least, largest) = (measured.first()?, measured.last()?);
    let median_watts = median(measured.iter().map(|node| watts(node)))?;
    let of = |node: &NodeEnergy| NodeWatts { host: node.host.clone(), watts: watts(node) };
    let (least, largest) = (of(least), of(largest));
    let seconds_of = |node: &&NodeEnergy| node.seconds;
    Some(EnergyReading {
        source: words(&measured, |node| &node.source),
        covers: words(&measured, |node| &node.covers),
        level: None,
        joules: measured.iter().map(|node| node.joules).sum(),
        mean_watts: measured.iter().map(|node| watts(node)).sum(),
        measured_seconds: measured.iter().map(seconds_of).fold(seconds, f64::min),
        gflops_per_watt: None,
        watts: energy::tidy(&sum(&measured, energy::parts(seconds))),
        nodes: Some(Nodes {
            all: nodes.len(),
            measured: measured.len(),
            least,
            median_watts,
            largest,
        }),
    })
}

/// The different words of all nodes.
fn words(nodes: &[&NodeEnergy], of: impl Fn(&NodeEnergy) -> &str) -> String {
    const MOST: usize = 4;
    let mut words: Vec<&str> = nodes.iter().map(|node| of(node)).collect();
    words.sort_unstable();
    words.dedup();
    words.truncate(MOST);
    words.join("; on other nodes ")
}

/// The watts of all nodes together in each part of the time; `None` where a node does not know its
/// own.
fn sum(nodes: &[&NodeEnergy], parts: usize) -> Vec<Option<f64>> {
    let of_part = |part: usize| nodes.iter().map(|node| node.watts.get(part).copied()?).sum();
    (0..parts).map(of_part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use skt_solver::comm::threads::run;

    /// What all ranks have, if each has measured this.
    fn gathered(
        ranks: usize,
        seconds: f64,
        of: impl Fn(usize) -> RankEnergy + Sync,
    ) -> Vec<Vec<EnergyReading>> {
        let found = run(ranks, |world| gather(&world, seconds, || of(world.rank())));
        found.into_iter().map(|found| found.expect("no rank is lost")).collect()
    }

    fn node(host: &str, watts: f64, seconds: f64) -> NodeEnergy {
        NodeEnergy {
            host: host.into(),
            boot_id: String::new(),
            source: "RAPL".into(),
            covers: "packages".into(),
            joules: watts * seconds,
            seconds,
            watts: vec![Some(watts); 10],
        }
    }

    #[test]
    fn all_ranks_have_the_power_of_all_nodes() {
        let meter =
            EnergyReading { source: "meter".into(), mean_watts: 900.0, ..EnergyReading::default() };
        let found = gathered(6, 10.0, |rank| match rank {
            0 => RankEnergy { node: Some(node("a", 300.0, 10.0)), meter: Some(meter.clone()) },
            2 => RankEnergy { node: Some(node("b", 100.0, 9.0)), meter: None },
            3 => RankEnergy { node: Some(node("c", 150.0, 10.0)), meter: None },
            5 => RankEnergy { node: Some(NodeEnergy::default()), meter: None },
            _ => RankEnergy::default(),
        });
        assert!(found[1..].iter().all(|other| other == &found[0]));
        let [of_meter, of_nodes] = &found[0][..] else { panic!("{found:?}") };
        assert_eq!(of_meter, &meter);
        assert_eq!((of_nodes.joules, of_nodes.mean_watts), (3000.0 + 900.0 + 1500.0, 550.0));
        assert_eq!((of_nodes.measured_seconds, of_nodes.source.as_str()), (9.0, "RAPL"));
        let nodes = of_nodes.nodes.as_ref().unwrap();
        assert_eq!((nodes.all, nodes.measured, nodes.median_watts), (4, 3, 150.0));
        assert_eq!((nodes.least.host.as_str(), nodes.largest.host.as_str()), ("b", "a"));
        assert_eq!(of_nodes.watts, [Some(550.0); 10]);
    }

    #[test]
    fn containers_of_one_machine_count_once() {
        let of = |host: &str, boot: &str, seconds: f64| NodeEnergy {
            boot_id: boot.into(),
            ..node(host, 100.0, seconds)
        };
        let all = [of("a", "x", 0.0), of("b", "x", 9.0), of("c", "x", 9.0), of("d", "y", 9.0)];
        let unknown = [of("e", "", 9.0), of("f", "", 9.0)];
        let found = machines(all.iter().chain(&unknown));
        let hosts: Vec<&str> = found.iter().map(|node| node.host.as_str()).collect();
        assert_eq!(hosts, ["e", "f", "b", "d"]);
    }

    #[test]
    fn power_unknown_on_one_node_is_left_out() {
        let (a, mut b) = (node("a", 300.0, 10.0), node("b", 100.0, 8.0));
        (b.watts[4], b.source) = (None, "Cray pm_counters".into());
        let reading = reading_of_nodes(&[&a, &b], 10.0).unwrap();
        assert_eq!(reading.watts[3..6], [Some(400.0), None, Some(400.0)]);
        assert_eq!(reading.source, "Cray pm_counters; on other nodes RAPL");
        assert_eq!(reading.nodes.unwrap().median_watts, 200.0);
    }

    #[test]
    fn missing_counters_and_short_tests_give_no_reading() {
        assert_eq!(gathered(2, 5.0, |_| RankEnergy::default()), [vec![], vec![]]);
        assert_eq!(gathered(2, 0.9, |_| panic!("it is too short")), [vec![], vec![]]);
    }
}
