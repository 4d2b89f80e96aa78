//! The verdicts as text for people, JSON for programs, and lists for launchers and schedulers.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::json;

use super::results::{NodeKind, Pair, Results, ScreenedNode, Solve, sound_rate};
use super::verdict::{HostState, HostVerdict, Verdicts, digits, gigabytes, rate_of, why_missing};
use skt_health::slow::alike::Alike;
use skt_run::record::cores::CoreShares;

const FORMAT_VERSION: u32 = 1;
/// The most hosts of which each has a line. Of more, only those have one that differ.
const LISTED_MAX: usize = 16;

pub struct ScreenReport<'a> {
    pub results: &'a Results,
    pub verdicts: &'a Verdicts,
    pub tolerance: f64,
}

impl ScreenReport<'_> {
    fn hosts(&self) -> impl Iterator<Item = (&ScreenedNode, &HostVerdict)> {
        self.results.nodes.iter().zip(&self.verdicts.hosts)
    }

    fn name(&self, node: usize) -> &str {
        &self.results.nodes[node].host
    }

    /// The hosts that are ok, or those that are not.
    pub fn names(&self, ok: bool) -> Vec<&str> {
        let hosts = self.hosts().filter(|(_, verdict)| (verdict.state == HostState::Ok) == ok);
        hosts.map(|(node, _)| node.host.as_str()).collect()
    }

    /// The report as text: a line for each host, of many for each that is not ok or of which there
    /// is more than its figures; a line for each slow link, a summary, and the commands for Slurm.
    pub fn text(&self) -> String {
        let all = self.results.nodes.len() <= LISTED_MAX;
        let is_listed = |(node, verdict): &(&ScreenedNode, &HostVerdict)| {
            all || verdict.state != HostState::Ok || !incidents(node).is_empty()
        };
        let listed: Vec<_> = self.hosts().filter(is_listed).collect();
        let width = listed.iter().map(|(node, _)| node.host.chars().count()).max().unwrap_or(0);
        let mut text = String::new();
        for (node, verdict) in listed {
            let host = &node.host;
            let _ = writeln!(
                text,
                "{host:width$}  {:11}  {}",
                verdict.state.name(),
                describe_host(node, verdict)
            );
        }
        for (index, why) in &self.verdicts.links {
            let [a, b] = self.results.pairs[*index].nodes.map(|node| self.name(node));
            let _ = writeln!(text, "{a} - {b}  slow link  {why}");
        }
        text + &self.summary() + &self.drain()
    }

    /// The numbers of hosts by state, and how far the rates of each kind lie apart.
    fn summary(&self) -> String {
        let count = |state: HostState| self.hosts().filter(|(_, it)| it.state == state).count();
        let counts: Vec<String> = HostState::ALL
            .iter()
            .filter(|state| count(**state) > 0)
            .map(|state| format!("{} {}", count(*state), state.name()))
            .collect();
        let unit = self.unit();
        let mut text = format!("\n{} {unit}(s): {}", self.results.nodes.len(), counts.join(", "));
        if !self.verdicts.links.is_empty() {
            let _ = write!(text, "; {} slow link(s)", self.verdicts.links.len());
        }
        let _ = writeln!(text, "; N={}", self.results.n);
        let missing = &self.verdicts.missing;
        if let Some(&first) = missing.first() {
            let pairs = &self.results.pairs;
            let (count, all, why) = (missing.len(), pairs.len(), why_missing(&pairs[first]));
            let _ = writeln!(text, "{count} of {all} pair(s) have no result: {why}");
        }
        let mut kinds: BTreeMap<&NodeKind, Vec<f64>> = BTreeMap::new();
        for node in &self.results.nodes {
            if let Some((kind, rate)) = node.kind.as_ref().zip(rate_of(node)) {
                kinds.entry(kind).or_default().push(rate);
            }
        }
        for (kind, rates) in &kinds {
            text += &kind_line(kind, rates, self.tolerance, unit);
        }
        text
    }

    /// What is compared: hosts or, with `--by-rank`, ranks.
    fn unit(&self) -> &'static str {
        if self.results.nodes.iter().any(|node| is_rank(&node.host)) { "rank" } else { "host" }
    }

    /// The command that keeps Slurm from using the hosts that are not ok, for each state.
    fn drain(&self) -> String {
        let mut text = String::new();
        for state in HostState::ALL.into_iter().filter(|state| *state != HostState::Ok) {
            let hosts = self.hosts().filter(|(_, verdict)| verdict.state == state);
            // A rank is no node of Slurm.
            let names = hosts.map(|(node, _)| node.host.as_str()).filter(|name| !is_rank(name));
            let names: Vec<&str> = names.collect();
            if !names.is_empty() {
                let _ = writeln!(
                    text,
                    "hint: scontrol update nodename={} state=drain reason=\"skt-hpl screen: {}\"",
                    names.join(","),
                    state.name()
                );
            }
        }
        text
    }

    /// The whole result as JSON; `docs/screen.schema.json` describes it.
    pub fn json(&self) -> String {
        let Results { n, pairs, .. } = self.results;
        let names = |pair: &Pair| pair.nodes.map(|node| self.name(node));
        let host = |(node, verdict): (&ScreenedNode, &HostVerdict)| {
            json!({
                "host": node.host,
                "state": verdict.state,
                "reasons": verdict.reasons,
                "kind": node.kind,
                "gflops": rate_of(node),
                "dgemm_gflops": node.rates.dgemm_gflops,
                "units_gflops": node.rates.units_gflops,
                "memory_gigabytes_a_second": node.rates.memory_gigabytes_a_second,
                "solves": node.solves,
                "events": node.events,
            })
        };
        let link = |(index, link): (usize, &Pair)| {
            json!({
                "hosts": names(link),
                "is_slow": self.verdicts.links.iter().any(|(slow, _)| *slow == index),
                "gigabytes_a_second": link.gigabytes_a_second,
                "microseconds": link.microseconds,
            })
        };
        let team =
            |pair: &Pair| json!({ "hosts": names(pair), "solve": pair.solve, "lost": pair.lost });
        let document = json!({
            "format": "skt-hpl screen",
            "format_version": FORMAT_VERSION,
            "program_version": env!("CARGO_PKG_VERSION"),
            "n": n,
            "tolerance": self.tolerance,
            "hosts": self.hosts().map(host).collect::<Vec<_>>(),
            "links": pairs.iter().enumerate().map(link).collect::<Vec<_>>(),
            "teams": pairs.iter().map(team).collect::<Vec<_>>(),
        });
        serde_json::to_string_pretty(&document).expect("plain data") + "\n"
    }
}

/// The description of a host: the reasons, or its figures; and events that are no reason by
/// themselves.
fn describe_host(node: &ScreenedNode, verdict: &HostVerdict) -> String {
    let mut words = verdict.reasons.clone();
    if words.is_empty() {
        words.extend(rate_of(node).map(|rate| {
            let of_units = |units: f64| format!(" ({:.0} % of its units)", 100.0 * rate / units);
            let part = sound_rate(node.rates.units_gflops).map_or(String::new(), of_units);
            format!("{} Gflop/s{part}", digits(rate))
        }));
        let memory = node.rates.memory_gigabytes_a_second;
        words.extend(memory.map(|rate| format!("memory {}", gigabytes(rate))));
        let residuals = node.solves.iter().filter_map(|solve| solve.scaled_residual);
        words.extend(residuals.reduce(f64::max).map(|worst| format!("residual {worst:.1e}")));
    }
    words.extend(incidents(node));
    let celsius = node.events.as_ref().and_then(|events| events.celsius);
    words.extend(celsius.map(|celsius| format!("{celsius:.0} C")));
    words.join("; ")
}

/// What happened on a host during the test.
fn incidents(node: &ScreenedNode) -> Vec<String> {
    let mut words: Vec<String> = disturbance(node).into_iter().collect();
    let events = node.events.clone().unwrap_or_default();
    if events.corrected > 0 {
        words.push(format!("{} memory error(s) corrected during the test", events.corrected));
    }
    if events.throttled > 0 {
        words.push(format!("slowed down {} time(s) by heat or power", events.throttled));
    }
    words
}

/// The system of a node that lost most of its cores to other work, if any lost some.
fn disturbance(node: &ScreenedNode) -> Option<String> {
    let disturbed = |solve: &'_ Solve| solve.cores.clone().filter(CoreShares::is_disturbed);
    let all: Vec<CoreShares> = node.solves.iter().filter_map(disturbed).collect();
    let lost = |shares: &CoreShares| shares.worst.used.lost_share();
    let worst = all.iter().max_by(|a, b| lost(a).total_cmp(&lost(b)))?;
    let (count, solves) = (all.len(), node.solves.len());
    Some(format!("disturbed in {count} of {solves} systems, at worst {}", worst.words()))
}

/// Whether a node of this name is a rank that stands for one (`--by-rank`): `HOST/RANK`.
fn is_rank(name: &str) -> bool {
    name.contains('/')
}

fn kind_line(kind: &NodeKind, rates: &[f64], tolerance: f64, unit: &str) -> String {
    let NodeKind { processor, blas, ranks, threads } = kind;
    let of = format!("{processor}, {ranks} rank(s) of {threads} thread(s), {blas}");
    let Some(alike) = Alike::from_rates(rates) else {
        return format!("{of}: one {unit}, compared with none\n");
    };
    let rate = digits(alike.reference);
    let middle = match alike.count {
        // Two have no spread: the faster one is the measure.
        2 => format!("the faster one {rate} Gflop/s"),
        _ => format!("{rate} Gflop/s +- {:.1} %", 100.0 * alike.deviation),
    };
    let slow = 100.0 * alike.allowance(tolerance);
    format!("{of}: {} {unit}s, {middle}, slow if over {slow:.1} % less\n", alike.count)
}

#[cfg(test)]
mod tests {
    use super::super::results::{Events, SLOW_LINK};
    use super::super::verdict::judge;
    use super::*;
    use skt_host::core_use::CoreUse;
    use skt_run::record::cores::RankCores;

    fn results() -> Results {
        let kind =
            NodeKind { processor: "cpu".into(), blas: "OpenBLAS".into(), ranks: 1, threads: 4 };
        let solve = |gflops| Solve {
            gflops: Some(gflops),
            scaled_residual: Some(0.002),
            x: Some("00ff".into()),
            wrong: None,
            cores: None,
        };
        let node = |(host, gflops): (&str, f64)| ScreenedNode {
            host: host.into(),
            kind: Some(kind.clone()),
            solves: vec![solve(gflops)],
            events: Some(Events { celsius: Some(61.2), ..Events::default() }),
            ..ScreenedNode::default()
        };
        let mut nodes: Vec<ScreenedNode> =
            [("n1", 100.0), ("n2", 101.0), ("node3", 40.0), ("n4", 100.0)].map(node).into();
        nodes.push(ScreenedNode {
            host: "n5".into(),
            lost: Some("no route".into()),
            ..ScreenedNode::default()
        });
        let pair = |(a, b, rate)| Pair {
            nodes: [a, b],
            gigabytes_a_second: Some(rate),
            microseconds: Some(1.5),
            solve: Some(solve(190.0)),
            lost: None,
        };
        let links = [(0, 1, 9.0), (2, 3, 9.0), (0, 3, 0.01), (1, 2, 9.0), (0, 2, 9.0), (1, 3, 9.0)];
        Results { n: 5000, nodes, pairs: links.map(pair).into(), refused: None }
    }

    fn report<'a>(results: &'a Results, verdicts: &'a Verdicts) -> ScreenReport<'a> {
        ScreenReport { results, verdicts, tolerance: 0.1 }
    }

    #[test]
    fn each_host_has_a_line_and_bad_ones_a_command() {
        let results = results();
        let verdicts = judge(&results, 0.1);
        let report = report(&results, &verdicts);
        let want = "\
n1     ok           100.0 Gflop/s; residual 2.0e-3; 61 C
n2     ok           101.0 Gflop/s; residual 2.0e-3; 61 C
node3  slow         Linpack: 40.0 Gflop/s, 40 % of 100.0, the median of 4 like it; 61 C
n4     ok           100.0 Gflop/s; residual 2.0e-3; 61 C
n5     unreachable  no route
n1 - n4  slow link  0.01000 GB/s, 0 % of 9.000, the median of 6 links

5 host(s): 3 ok, 1 slow, 1 unreachable; 1 slow link(s); N=5000
cpu, 1 rank(s) of 4 thread(s), OpenBLAS: 4 hosts, 100.0 Gflop/s +- 0.7 %, slow if over 10.0 % less
hint: scontrol update nodename=node3 state=drain reason=\"skt-hpl screen: slow\"
hint: scontrol update nodename=n5 state=drain reason=\"skt-hpl screen: unreachable\"
";
        assert_eq!(report.text(), want);
        assert_eq!(report.names(true), ["n1", "n2", "n4"]);
        assert_eq!(report.names(false), ["node3", "n5"]);
    }

    #[test]
    fn healthy_ones_among_many_hosts_are_not_listed() {
        let mut results = Results { pairs: vec![], ..results() };
        let healthy = results.nodes[0].clone();
        for number in 0..2000 {
            let host = format!("rack7-n{number}");
            results.nodes.push(ScreenedNode { host, ..healthy.clone() });
        }
        results.nodes[1].events = Some(Events { corrected: 3, ..Events::default() });
        let verdicts = judge(&results, 0.1);
        let report = report(&results, &verdicts);
        let want = "\
n2     ok           101.0 Gflop/s; residual 2.0e-3; 3 memory error(s) corrected during the test
node3  slow         Linpack: 40.0 Gflop/s, 40 % of 100.0, the median of 2004 like it; 61 C
n5     unreachable  no route

2005 host(s): 2003 ok, 1 slow, 1 unreachable; N=5000
";
        assert!(report.text().starts_with(want), "{}", report.text());
        assert_eq!(report.text().lines().count(), 8);
    }

    #[test]
    fn a_sound_host_without_its_cores_has_the_reason() {
        let mut results = results();
        let used = CoreUse { had_share: Some(0.48), waited_seconds: 2.0, ..CoreUse::default() };
        let rank = RankCores { host: "n1".into(), rank: 0, used };
        (results.nodes[0].solves[0].cores, results.nodes[0].rates.units_gflops) =
            (CoreShares::from_ranks(&[rank]), Some(200.0));
        let verdicts = judge(&results, 0.1);
        let report = report(&results, &verdicts);
        let want = "n1     ok           100.0 Gflop/s (50 % of its units); residual 2.0e-3; \
                    disturbed in 1 of 1 systems, at worst n1 rank 0 had a core for 48 % of the \
                    time in which it could run; 61 C\n";
        assert!(report.text().starts_with(want), "{}", report.text());
    }

    #[test]
    fn systems_without_a_result_are_reported() {
        let mut results = results();
        (results.pairs[0].solve, results.pairs[0].lost) = (None, Some(SLOW_LINK.into()));
        let verdicts = judge(&results, 0.1);
        let report = report(&results, &verdicts);
        let want = format!("\n1 of 6 pair(s) have no result: {SLOW_LINK}\n");
        assert!(report.text().contains(&want), "{}", report.text());
    }

    #[test]
    fn two_hosts_have_no_spread_and_ranks_are_called_so() {
        let summary = |names: &[&str]| {
            let mut results = Results { pairs: vec![], ..results() };
            results.nodes.truncate(names.len());
            for (node, name) in results.nodes.iter_mut().zip(names) {
                node.host = (*name).into();
            }
            let verdicts = judge(&results, 0.1);
            report(&results, &verdicts).summary()
        };
        let kind = "cpu, 1 rank(s) of 4 thread(s), OpenBLAS";
        let want = format!(
            "\n2 host(s): 2 ok; N=5000\n{kind}: 2 hosts, the faster one 101.0 Gflop/s, slow if \
             over 10.0 % less\n"
        );
        assert_eq!(summary(&["n1", "n2"]), want);
        let want = format!(
            "\n3 rank(s): 2 ok, 1 slow; N=5000\n{kind}: 3 ranks, 100.0 Gflop/s +- 1.5 %, slow \
             if over 10.0 % less\n"
        );
        assert_eq!(summary(&["n1/0", "n1/1", "n1/2"]), want);
    }

    #[test]
    fn the_document_has_all_that_was_measured() {
        let results = results();
        let verdicts = judge(&results, 0.1);
        let report = report(&results, &verdicts);
        let document: serde_json::Value = serde_json::from_str(&report.json()).unwrap();
        assert_eq!(document["hosts"][2]["state"], "slow");
        assert_eq!(document["links"][2]["is_slow"], true);
        assert_eq!(document["teams"][0]["hosts"], serde_json::json!(["n1", "n2"]));
    }
}
