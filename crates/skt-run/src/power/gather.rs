//! The energy of a test: what ranks have measured, and what that gives for the job.

use std::collections::BTreeMap;

use skt_host::median::median;

use crate::record::energy::{
    EnergyReading, NodeEnergy, NodeWatts, Nodes, RankEnergy, SECONDS_MIN, parts,
};
use skt_comm::{Comm, CommError, collect};

/// The readings of a test that took `seconds`, from what all ranks of `comm` have measured; the
/// same on all ranks. Collective, unless the test is too short to be measured.
pub(crate) fn gather(
    comm: &Comm,
    seconds: f64,
    measure: impl FnOnce() -> RankEnergy,
) -> Result<Vec<EnergyReading>, CommError> {
    if seconds < SECONDS_MIN {
        return Ok(Vec::new());
    }
    let all: Option<Vec<RankEnergy>> = collect::gather_json(comm, &measure(), 0)?;
    let readings = all.map(|mut all| {
        let meter = all.iter_mut().find_map(|rank| rank.meter.take());
        let nodes = machines(all.iter().filter_map(|rank| rank.node.as_ref()));
        meter.into_iter().chain(reading_of_nodes(&nodes, seconds)).collect()
    });
    collect::broadcast_json(comm, &readings.unwrap_or_default(), 0)
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
        if first.reading.is_none() {
            *first = node;
        }
    }
    all.extend(known.into_values());
    all
}

/// The reading of a job with these nodes; `None` if none of them has measured anything.
fn reading_of_nodes(nodes: &[&NodeEnergy], seconds: f64) -> Option<EnergyReading> {
    let of_node = |node: &&NodeEnergy| {
        let reading = node.reading.clone()?;
        Some((NodeWatts { host: node.host.clone(), watts: reading.mean_watts }, reading))
    };
    let mut measured: Vec<(NodeWatts, EnergyReading)> = nodes.iter().filter_map(of_node).collect();
    measured.sort_by(|(a, _), (b, _)| a.watts.total_cmp(&b.watts));
    let ((least, _), (largest, _)) = (measured.first()?.clone(), measured.last()?.clone());
    let median_watts = median(measured.iter().map(|(node, _)| node.watts))?;
    let all: Vec<EnergyReading> = measured.into_iter().map(|(_, reading)| reading).collect();
    // Unknown in a part of the time in which a node does not know its own.
    let watts_in = |part: usize| all.iter().map(|it| it.watts.get(part).copied()?).sum();
    Some(EnergyReading {
        source: words(&all, |reading| &reading.source),
        covers: words(&all, |reading| &reading.covers),
        joules: all.iter().map(|reading| reading.joules).sum(),
        mean_watts: all.iter().map(|reading| reading.mean_watts).sum(),
        measured_seconds: all.iter().map(|it| it.measured_seconds).fold(seconds, f64::min),
        watts: (0..parts(seconds)).map(watts_in).collect(),
        nodes: Some(Nodes { all: nodes.len(), measured: all.len(), least, median_watts, largest }),
        ..EnergyReading::default()
    })
}

/// The different words of all readings.
fn words(readings: &[EnergyReading], of: impl Fn(&EnergyReading) -> &str) -> String {
    const MOST: usize = 4;
    let mut words: Vec<&str> = readings.iter().map(of).collect();
    words.sort_unstable();
    words.dedup();
    words.truncate(MOST);
    words.join("; on other nodes ")
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
        let reading = EnergyReading::new("RAPL", "packages", watts * seconds, seconds);
        let reading = EnergyReading { watts: vec![Some(watts); 10], ..reading };
        NodeEnergy { host: host.into(), boot_id: String::new(), reading: Some(reading) }
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
        let of = |host, boot: &str| NodeEnergy { boot_id: boot.into(), ..node(host, 100.0, 9.0) };
        let unread = NodeEnergy { reading: None, ..of("a", "x") };
        let all = [unread, of("b", "x"), of("c", "x"), of("d", "y")];
        let unknown = [of("e", ""), of("f", "")];
        let found = machines(all.iter().chain(&unknown));
        let hosts: Vec<&str> = found.iter().map(|node| node.host.as_str()).collect();
        assert_eq!(hosts, ["e", "f", "b", "d"]);
    }

    #[test]
    fn power_unknown_on_one_node_is_left_out() {
        let (a, mut b) = (node("a", 300.0, 10.0), node("b", 100.0, 8.0));
        let of_b = b.reading.as_mut().unwrap();
        (of_b.watts[4], of_b.source) = (None, "Cray pm_counters".into());
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
