//! The lines about the energy of a test.

use std::fmt::Write as _;

use skt_run::record::TestRecord;
use skt_run::record::energy::{EnergyReading, Nodes, WHOLE};

/// The lines about a test's energy, without newlines.
pub(super) fn lines(record: &TestRecord) -> Vec<String> {
    let lines = |reading: &EnergyReading| {
        let mut lines = vec![format!("# power: {}", total(reading))];
        lines.extend(reading.nodes.as_ref().and_then(nodes_line));
        lines.extend(lack_line(reading, record.time_seconds));
        lines
    };
    record.power.iter().flat_map(lines).collect()
}

/// The energy and the power of a test.
pub(crate) fn total(reading: &EnergyReading) -> String {
    let EnergyReading { source, covers, joules, mean_watts, .. } = reading;
    let mut line = format!("{joules:.0} J, {mean_watts:.1} W");
    if let Some(rate) = reading.gflops_per_watt {
        let _ = write!(line, ", {rate:.4} Gflop/s/W");
    }
    let _ = write!(line, ", by {source}: {covers}");
    if let Some(level) = reading.level {
        let _ = write!(line, "; level {level}, as --power-level gives");
    }
    line
}

fn nodes_line(nodes: &Nodes) -> Option<String> {
    let Nodes { measured, least, median_watts, largest, .. } = nodes;
    (*measured > 1).then(|| {
        format!(
            "# power: of {measured} nodes: least {:.1} W ({}), median {median_watts:.1} W, largest \
             {:.1} W ({})",
            least.watts, least.host, largest.watts, largest.host
        )
    })
}

/// What was not measured, if anything was not.
fn lack_line(reading: &EnergyReading, time_seconds: f64) -> Option<String> {
    let seconds = reading.measured_seconds;
    let nodes = reading.nodes.as_ref().filter(|nodes| nodes.measured < nodes.all);
    let of_nodes = nodes.map(|nodes| {
        format!("{} of {} nodes have counters that can be read", nodes.measured, nodes.all)
    });
    let of_time = (seconds < WHOLE * time_seconds)
        .then(|| format!("only {seconds:.1} of {time_seconds:.1} s were measured"));
    let lacks: Vec<String> = [of_nodes, of_time].into_iter().flatten().collect();
    (!lacks.is_empty()).then(|| format!("# power: incomplete: {}", lacks.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use skt_run::record::energy::NodeWatts;

    #[test]
    fn missing_measurements_are_reported() {
        let reading = EnergyReading::new("RAPL", "1 processor package(s)", 5000.0, 50.0);
        let whole = reading.clone().rated(400.0, 50.0);
        assert_eq!(
            total(&whole),
            "5000 J, 100.0 W, 4.0000 Gflop/s/W, by RAPL: 1 processor package(s)"
        );
        assert_eq!(
            (lack_line(&whole, 50.0), whole.nodes.as_ref().and_then(nodes_line)),
            (None, None)
        );
        let node = |host: &str, watts| NodeWatts { host: host.into(), watts };
        let nodes = Nodes {
            all: 4,
            measured: 3,
            least: node("n2", 90.0),
            median_watts: 100.0,
            largest: node("n1", 110.0),
        };
        let part = EnergyReading { nodes: Some(nodes.clone()), level: Some(2), ..reading };
        let part = part.rated(400.0, 70.0);
        assert!(total(&part).ends_with("(s); level 2, as --power-level gives"));
        assert!(!total(&part).contains("Gflop/s/W"));
        assert_eq!(
            nodes_line(&nodes).unwrap(),
            "# power: of 3 nodes: least 90.0 W (n2), median 100.0 W, largest 110.0 W (n1)"
        );
        assert_eq!(
            lack_line(&part, 70.0).unwrap(),
            "# power: incomplete: 3 of 4 nodes have counters that can be read; only 50.0 of 70.0 s \
             were measured"
        );
    }
}
