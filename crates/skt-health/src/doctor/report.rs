//! The report of `doctor`: as text for people, as JSON for programs.

use std::fmt::Write as _;

use serde::Serialize;
use skt_terms::shown::and_more;

use super::facts::HostFacts;
use super::finding::{Finding, Gain};
use crate::environment::bf16::Bf16SelfTest;
use crate::environment::library::RatedBlas;
use skt_host::counters::power::Found;
use skt_solver::blas::library;

/// The version of the JSON document.
const FORMAT_VERSION: u32 = 1;
/// Hosts that the text describes; the JSON report has all.
const MAX_HOSTS: usize = 8;
/// Hosts that the text names for a finding.
const MAX_NAMES: usize = 4;

/// The whole result; `docs/doctor.schema.json` describes its JSON.
#[derive(Debug, Clone, Serialize)]
pub struct DoctorReport {
    /// The name of this form.
    pub format: &'static str,
    /// The version of this form.
    pub format_version: u32,
    /// The version of the program.
    pub program_version: &'static str,
    /// The hosts.
    pub hosts: Vec<HostSummary>,
    /// The findings, those that promise most first.
    pub findings: Vec<Finding>,
    /// The number of hosts of the user's list, if all of them are well. No part of the JSON, which
    /// has findings alone.
    #[serde(skip)]
    pub listed_well: Option<usize>,
}

/// A host, with the rates of all its threads together in Gflop/s.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HostSummary {
    /// The host's name.
    pub host: String,
    /// The name of its processor.
    pub processor: Option<String>,
    /// Cores that the job may use.
    pub cores: usize,
    /// Ranks of the job on it.
    pub ranks: usize,
    /// Threads of these ranks.
    pub threads: usize,
    /// The theoretical peak of its cores in use, from their vector units and their nominal clock,
    /// or else their highest one.
    pub theoretical_gflops: Option<f64>,
    /// Floating-point operations of a core in a cycle.
    pub flops_a_cycle: Option<f64>,
    /// The nominal clock.
    pub nominal_gigahertz: Option<f64>,
    /// The highest clock. Like `cores_at_work` it is no part of the JSON, which has the peak.
    #[serde(skip)]
    pub highest_gigahertz: Option<f64>,
    /// The cores that have a thread.
    #[serde(skip)]
    pub cores_at_work: usize,
    /// The clock that was measured among vector instructions.
    pub gigahertz: Option<f64>,
    /// What the vector units did.
    pub units_gflops: Option<f64>,
    /// DGEMM, in the fastest call.
    pub dgemm_best_gflops: Option<f64>,
    /// DGEMM, over a second.
    pub dgemm_mean_gflops: Option<f64>,
    /// The share of that second in which the threads had a core.
    pub cpu_share: Option<f64>,
    /// SGEMM, in the fastest call.
    pub sgemm_best_gflops: Option<f64>,
    /// The largest error of SGEMM on any rank, as a multiple of the largest one of rounding. `None`
    /// if a result is no finite number, too.
    pub sgemm_error: Option<f64>,
    /// The products of bf16 of each library that has such, on the first rank that measured.
    pub bf16: Vec<Bf16SelfTest>,
    /// The BLAS, in words.
    pub blas: Option<String>,
    /// The BLAS libraries of the host.
    pub libraries: Vec<RatedBlas>,
    /// The counters that a run reads its energy from, in words; `None` if there are none.
    pub power: Option<String>,
}

impl DoctorReport {
    /// The report of these hosts.
    pub fn new(hosts: &[HostFacts], findings: Vec<Finding>) -> Self {
        Self {
            format: "skt-hpl doctor",
            format_version: FORMAT_VERSION,
            program_version: env!("CARGO_PKG_VERSION"),
            hosts: hosts.iter().map(HostSummary::new).collect(),
            findings,
            listed_well: None,
        }
    }

    /// The report as text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for host in self.hosts.iter().take(MAX_HOSTS) {
            text += &host.text();
        }
        if let Some(more @ 1..) = self.hosts.len().checked_sub(MAX_HOSTS) {
            let _ = writeln!(text, "and {more} more host(s)");
        }
        if let Some(hosts) = self.listed_well {
            let _ = writeln!(text, "{hosts} listed host(s): names, packets and agent well");
        }
        if self.findings.is_empty() {
            text += "nothing found\n";
        }
        for (index, finding) in self.findings.iter().enumerate() {
            text += &finding_text(index + 1, finding, self.hosts.len() > 1);
        }
        text
    }

    /// The report as JSON.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain data") + "\n"
    }
}

fn finding_text(number: usize, finding: &Finding, names_hosts: bool) -> String {
    let mut text = format!("\n{number}. {}", finding.what);
    if names_hosts {
        let _ = write!(text, " ({})", host_words(&finding.hosts));
    }
    let gain = match finding.gain {
        None if !finding.kind.costs_speed() => "none of speed".to_owned(),
        None => "cannot be predicted".to_owned(),
        Some(Gain { times, is_measured: true }) => format!("{times:.1} times the rate, measured"),
        Some(Gain { times, is_measured: false }) => {
            format!("up to {times:.1} times the rate, inferred, not measured")
        }
    };
    let _ = write!(
        text,
        "\n   measured: {}\n   remedy  : {}\n   gain    : {gain}\n",
        finding.measured, finding.remedy
    );
    text
}

/// The first hosts, and the number of the others.
pub(super) fn host_words(hosts: &[String]) -> String {
    hosts[..hosts.len().min(MAX_NAMES)].join(", ") + &and_more(hosts.len(), MAX_NAMES)
}

impl HostSummary {
    fn new(host: &HostFacts) -> Self {
        let processor = &host.counters.processor;
        let cores = host.cores_of(&Vec::from_iter(host.used_cpus())).len();
        let cores_at_work = host.threads().min(cores);
        let at_work = cores_at_work as f64;
        let of_threads = |a_thread: Option<f64>| a_thread.map(|rate| rate * host.threads() as f64);
        Self {
            host: host.host.clone(),
            processor: processor.name.clone(),
            cores: host.usable_cores(),
            ranks: host.ranks.len(),
            threads: host.threads(),
            theoretical_gflops: host.theoretical_gflops().map(|rate| rate * at_work),
            flops_a_cycle: processor.flops_a_cycle(),
            nominal_gigahertz: host.nominal_gigahertz(),
            highest_gigahertz: host.highest_gigahertz(),
            cores_at_work,
            gigahertz: host.mean(|measured| measured.vector_gigahertz),
            units_gflops: host
                .mean(|measured| measured.units(processor))
                .map(|rate| rate * at_work),
            dgemm_best_gflops: of_threads(host.mean(|measured| Some(measured.best_gflops))),
            dgemm_mean_gflops: of_threads(host.mean(|measured| Some(measured.mean_gflops))),
            cpu_share: host.mean(|measured| Some(measured.cpu_share)),
            sgemm_best_gflops: of_threads(
                host.mean(|measured| Some(measured.sgemm.gflops_per_core)),
            ),
            sgemm_error: host
                .measured()
                .map(|measured| measured.sgemm.error)
                .reduce(|one, other| one.zip(other).map(|(one, other)| one.max(other)))
                .flatten(),
            bf16: host.measured().next().map_or(Vec::new(), |measured| measured.bf16.clone()),
            blas: host.trial.as_ref().map(|trial| {
                library::words(&trial.library, trial.version.as_deref(), trial.kernel.as_deref())
            }),
            libraries: host.libraries.clone(),
            power: match &host.counters.power {
                Found::Readable(source) => Some(format!("{}, {}", source.name, source.covers)),
                Found::Forbidden(_) | Found::Nothing => None,
            },
        }
    }

    fn text(&self) -> String {
        let mut text = format!(
            "{}: {}, {} core(s), {} rank(s), {} thread(s) in all\n",
            self.host,
            self.processor.as_deref().unwrap_or("unknown processor"),
            self.cores,
            self.ranks,
            self.threads
        );
        let nominal = self.nominal_gigahertz.map(|clock| (clock, "nominal"));
        let clock = nominal.or(self.highest_gigahertz.map(|clock| (clock, "highest")));
        if let (Some(rate), Some(flops), Some((clock, which))) =
            (self.theoretical_gflops, self.flops_a_cycle, clock)
        {
            let _ = writeln!(
                text,
                "  peak : {rate:.1} Gflop/s by {} core(s) x {flops} flop a cycle x {clock:.2} GHz \
                 ({which})",
                self.cores_at_work
            );
        }
        if let Some(rate) = self.units_gflops {
            let clock =
                self.gigahertz.map_or(String::new(), |clock| format!(", {clock:.2} GHz now"));
            let _ = writeln!(text, "  units: {rate:.1} Gflop/s of the vector units{clock}");
        }
        if let Some(mean) = self.dgemm_mean_gflops {
            let of_units = self.units_gflops.map_or(String::new(), |units| {
                format!(" ({:.0} % of the units)", 100.0 * mean / units)
            });
            let blas = self.blas.as_deref().unwrap_or("unknown BLAS");
            let _ = writeln!(text, "  DGEMM: {mean:.1} Gflop/s over a second{of_units}, {blas}");
        }
        if let (Some(sgemm), Some(dgemm)) = (self.sgemm_best_gflops, self.dgemm_best_gflops) {
            let is_right = self.sgemm_error.is_some_and(|error| error <= 1.0);
            let _ = writeln!(
                text,
                "  SGEMM: {sgemm:.1} Gflop/s in the fastest call, {:.1} times DGEMM's fastest \
                 (about 2 is usual), results {}",
                sgemm / dgemm,
                if is_right { "right" } else { "wrong" }
            );
        }
        for bf16 in &self.bf16 {
            let verdict = bf16.flaw().map_or(bf16.rate(), |flaw| format!("of no use, {flaw}"));
            let _ = writeln!(text, "  bf16 : {}: {verdict}", bf16.name());
        }
        // The library that is called alone is that of the line about DGEMM.
        for library in self.libraries.iter().filter(|_| self.libraries.len() > 1) {
            let _ = writeln!(text, "  BLAS : {}", library.words());
        }
        if let Some(power) = &self.power {
            let _ = writeln!(text, "  power: {power}");
        }
        text
    }
}
