//! The report of `doctor`: as text for people, as JSON for programs.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::{Value, json};
use skt_host::host_names::short_names;

use super::facts::HostFacts;
use super::finding::{Finding, Gain};
use skt_host::counters::power::Found;
use skt_solver::blas::library;

const FORMAT_VERSION: u32 = 1;
/// Hosts that the text describes; the JSON report has all.
const MAX_HOSTS: usize = 8;

/// The whole result; `docs/doctor.schema.json` describes its JSON.
#[derive(Serialize)]
pub struct DoctorReport<'a> {
    format: &'static str,
    format_version: u32,
    program_version: &'static str,
    #[serde(serialize_with = "summaries")]
    hosts: &'a [HostFacts],
    /// The findings, those that promise most first.
    pub findings: Vec<Finding>,
    /// The number of hosts of the user's list, if all of them are well. No part of the JSON, which
    /// has findings alone.
    #[serde(skip)]
    pub listed_well: Option<usize>,
}

impl<'a> DoctorReport<'a> {
    pub fn new(hosts: &'a [HostFacts], findings: Vec<Finding>) -> Self {
        Self {
            format: "skt-hpl doctor",
            format_version: FORMAT_VERSION,
            program_version: env!("CARGO_PKG_VERSION"),
            hosts,
            findings,
            listed_well: None,
        }
    }

    pub fn text(&self) -> String {
        let mut text: String = self.hosts.iter().take(MAX_HOSTS).map(host_text).collect();
        if let Some(more @ 1..) = self.hosts.len().checked_sub(MAX_HOSTS) {
            let _ = writeln!(text, "and {more} more host(s)");
        }
        if let Some(hosts) = self.listed_well {
            let _ = writeln!(text, "{hosts} listed host(s): packets and agent well");
        }
        if self.findings.is_empty() {
            text += "nothing found\n";
        }
        for (index, finding) in self.findings.iter().enumerate() {
            text += &finding_text(index + 1, finding, self.hosts.len() > 1);
        }
        text
    }

    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain data") + "\n"
    }
}

fn finding_text(number: usize, finding: &Finding, names_hosts: bool) -> String {
    let Finding { kind, hosts, what, measured, remedy, gain } = finding;
    let hosts = if names_hosts { format!(" ({})", short_names(hosts)) } else { String::new() };
    let gain = match gain {
        None if !kind.costs_speed() => "none of speed".to_owned(),
        None => "cannot be predicted".to_owned(),
        Some(Gain { times, is_measured: true }) => format!("{times:.1} times the rate, measured"),
        Some(Gain { times, is_measured: false }) => {
            format!("up to {times:.1} times the rate, inferred, not measured")
        }
    };
    format!(
        "\n{number}. {what}{hosts}\n   measured: {measured}\n   remedy  : {remedy}\n   gain    : \
         {gain}\n"
    )
}

fn summaries<S: serde::Serializer>(hosts: &&[HostFacts], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(hosts.iter().map(summary))
}

/// A host, with the rates of all its threads together in Gflop/s.
fn summary(host: &HostFacts) -> Value {
    let processor = &host.counters.processor;
    let (at_work, threads) = (host.cores_at_work() as f64, host.threads() as f64);
    let scaled = |rate: Option<f64>, times: f64| rate.map(|rate| times * rate);
    let power = match &host.counters.power {
        Found::Readable(source) => Some(format!("{}, {}", source.name, source.covers)),
        Found::Forbidden(_) | Found::Nothing => None,
    };
    json!({
        "host": host.host,
        "processor": processor.name,
        "cores": host.usable_cores(),
        "ranks": host.ranks.len(),
        "threads": host.threads(),
        "theoretical_gflops": scaled(host.theoretical_gflops(), at_work),
        "flops_a_cycle": processor.flops_a_cycle(),
        "nominal_gigahertz": host.nominal_gigahertz(),
        "gigahertz": host.mean(|it| it.vector_gigahertz),
        "units_gflops": scaled(host.mean(|it| it.units(processor)), at_work),
        "dgemm_best_gflops": scaled(host.mean(|it| Some(it.best_gflops)), threads),
        "dgemm_mean_gflops": scaled(host.mean(|it| Some(it.mean_gflops)), threads),
        "cpu_share": host.mean(|it| Some(it.cpu_share)),
        "sgemm_best_gflops": scaled(host.mean(|it| Some(it.sgemm_gflops)), threads),
        "bf16": host.measured().next().map_or(&[][..], |it| &it.bf16),
        "blas": host.blas.as_ref().map(|it| {
            library::words(&it.library, it.version.as_deref(), it.kernel.as_deref())
        }),
        "libraries": host.libraries,
        "power": power,
    })
}

fn host_text(host: &HostFacts) -> String {
    let summary = summary(host);
    let number = |key: &str| summary[key].as_f64();
    let word = |key: &str| summary[key].as_str().unwrap_or("unknown").to_owned();
    let name = host.counters.processor.name.as_deref().unwrap_or("unknown processor");
    let mut text = format!(
        "{}: {name}, {} core(s), {} rank(s), {} thread(s) in all\n",
        host.host,
        host.usable_cores(),
        host.ranks.len(),
        host.threads()
    );
    let nominal = host.nominal_gigahertz().map(|clock| (clock, "nominal"));
    let clock = nominal.or(host.highest_gigahertz().map(|clock| (clock, "highest")));
    if let (Some(rate), Some(flops), Some((clock, which))) =
        (number("theoretical_gflops"), number("flops_a_cycle"), clock)
    {
        let cores = host.cores_at_work();
        let _ = writeln!(
            text,
            "  peak : {rate:.1} Gflop/s by {cores} core(s) x {flops} flop a cycle x {clock:.2} GHz \
             ({which})"
        );
    }
    let units = number("units_gflops");
    if let Some(rate) = units {
        let clock =
            number("gigahertz").map_or(String::new(), |clock| format!(", {clock:.2} GHz now"));
        let _ = writeln!(text, "  units: {rate:.1} Gflop/s of the vector units{clock}");
    }
    if let Some(mean) = number("dgemm_mean_gflops") {
        let share = |units| format!(" ({:.0} % of the units)", 100.0 * mean / units);
        let (share, blas) = (units.map_or(String::new(), share), word("blas"));
        let _ = writeln!(text, "  DGEMM: {mean:.1} Gflop/s over a second{share}, {blas}");
    }
    if let (Some(sgemm), Some(dgemm)) = (number("sgemm_best_gflops"), number("dgemm_best_gflops")) {
        let _ = writeln!(
            text,
            "  SGEMM: {sgemm:.1} Gflop/s in the fastest call, {:.1} times DGEMM's fastest (about \
             2 is usual)",
            sgemm / dgemm
        );
    }
    for bf16 in host.measured().take(1).flat_map(|it| &it.bf16) {
        let verdict = bf16.flaw().map_or(bf16.rate(), |flaw| format!("of no use, {flaw}"));
        let _ = writeln!(text, "  bf16 : {}: {verdict}", bf16.name());
    }
    // The library that is called alone is that of the line about DGEMM.
    for library in host.libraries.iter().filter(|_| host.libraries.len() > 1) {
        let _ = writeln!(text, "  BLAS : {}", library.words());
    }
    if !summary["power"].is_null() {
        let _ = writeln!(text, "  power: {}", word("power"));
    }
    text
}
