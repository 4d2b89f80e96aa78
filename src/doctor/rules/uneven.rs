//! Ranks that are slower than the others: each has an equal part of the matrix, and all wait.

use super::super::facts::HostFacts;
use super::super::finding::{Finding, Gain, Kind};

/// The least share of the median that a rank reaches.
const LEAST: f64 = 0.8;

/// Finds hosts with ranks whose DGEMM is slower than that of most ranks.
pub fn slow_ranks(hosts: &[HostFacts]) -> Option<Finding> {
    let rates = |host: &HostFacts| -> Vec<f64> {
        host.measured().map(|measured| measured.mean_gflops).collect()
    };
    let mut all: Vec<f64> = hosts.iter().flat_map(rates).collect();
    all.sort_by(f64::total_cmp);
    // Two ranks have no majority.
    let median = *all.get(all.len() / 2).filter(|_| all.len() > 2)?;
    let slow = |host: &&HostFacts| rates(host).into_iter().any(|rate| rate < LEAST * median);
    let slow: Vec<String> = hosts.iter().filter(slow).map(|host| host.host.clone()).collect();
    let slowest = all[0];
    let count = all.iter().filter(|rate| **rate < LEAST * median).count();
    if slow.is_empty() {
        return None;
    }
    Some(Finding {
        kind: Kind::SlowRank,
        hosts: slow,
        what: "some ranks are slower than the others, which wait for them".to_owned(),
        measured: format!(
            "{count} of {} ranks; the slowest does {slowest:.1}, most {median:.1} Gflop/s a core",
            all.len()
        ),
        remedy: "leave these hosts out, or mend what else is found on them".to_owned(),
        gain: Gain::measured(median / slowest.max(1e-3)),
    })
}
