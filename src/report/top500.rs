//! The fields of a TOP500 and a Green500 submission, filled in from runs.
//!
//! What a run cannot know is left as a named blank; each field comes with the rule that applies to
//! it.

use std::fmt::Write as _;

use super::html::NamedRun;
use super::reader::{EnvironmentPart, RunReport, TestReport, best_rates};
use skt_model::tang::efficiency::Efficiency;
use skt_run::record::energy::{EnergyReading, Readout};
use skt_solver::blas::library;

/// What only the site knows, as far as it was given.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Given {
    /// Peak rate of the cores that ran, in Gflop/s.
    pub rpeak_gflops: Option<f64>,
    /// Mean power over the core phase of the run that gave Rmax, in kW.
    pub power_kilowatts: Option<f64>,
    /// Level of that measurement in the methodology of the Green500.
    pub power_level: Option<u8>,
}

/// Why there is nothing to submit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NothingToSubmit {
    /// No test of HPL has passed.
    #[error("no run has a test that passed its residual check; only such a test can be submitted")]
    NonePassed,
    /// The tests that have passed are of HPL-MxP.
    #[error(
        "the tests that passed are of HPL-MxP, which has its own list (hpl-mxp.org); TOP500 \
         and Green500 take tests of HPL alone"
    )]
    OtherBenchmark,
}

/// The order at which half of Rmax is reached, and how it was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Half {
    /// The order, N1/2.
    pub n: f64,
    /// How the order was found.
    pub how: &'static str,
}

const BLANK: &str = "____________________";

/// The submission as text.
pub fn sheet(runs: &[NamedRun], given: &Given) -> Result<String, NothingToSubmit> {
    let passed = || {
        let all = runs.iter().flat_map(|run| run.report.completed().map(move |test| (run, test)));
        all.filter(|(_, test)| test.status == "passed")
    };
    let (run, best) = passed()
        .filter(|(_, test)| test.is_of_hpl())
        .max_by(|a, b| rate(a.1).total_cmp(&rate(b.1)))
        .ok_or_else(|| match passed().next() {
            Some(_) => NothingToSubmit::OtherBenchmark,
            None => NothingToSubmit::NonePassed,
        })?;
    let mut sheet = Sheet(format!(
        "TOP500 / Green500 submission, from {} ({})\n\
         Blanks are for the site to fill in.\n\n",
        run.name, best.variant
    ));
    sheet.machine(&run.report, best);
    sheet.result(best, half_order(runs, best), given);
    sheet.power(best, given);
    Ok(sheet.0)
}

/// The fields, one after the other.
struct Sheet(String);

impl Sheet {
    /// Adds a field and the rule for it.
    fn field(&mut self, name: &str, value: Option<String>, rule: &str) {
        let value = value.unwrap_or_else(|| BLANK.into());
        let _ = writeln!(self.0, "{name:<24} {value}\n{:<24}   {rule}", "");
    }

    fn machine(&mut self, run: &RunReport, best: &TestReport) {
        let environment = &run.environment;
        self.field("Site", None, "name, city and country of the owner");
        self.field("Manufacturer", None, "who built the system");
        self.field("Computer", None, "the system's name and type");
        self.field("Year", None, "of installation or of the last major upgrade");
        self.field("Application area", None, "what the system is for");
        self.field(
            "Processor",
            environment.host.cpu_model.clone(),
            "type and clock of the processor",
        );
        self.field(
            "Cores",
            // HPL's text has no threads.
            (best.parameters.threads > 0).then(|| cores(environment, best).to_string()),
            "cores that ran: ranks times threads, or those of the hosts if these are fewer; cores of \
             accelerators count too",
        );
        self.field(
            "Nodes",
            Some(environment.hosts.len().to_string()).filter(|_| !environment.hosts.is_empty()),
            "hosts of the job",
        );
        self.field("Interconnect", None, "the network between nodes");
        self.field(
            "Memory (GB)",
            memory(environment),
            "main memory of the whole system; here of the hosts of the job",
        );
        self.field("Operating system", environment.host.kernel.clone(), "as run");
        let compiler = run.program.as_ref().and_then(|program| program.compiler.clone());
        self.field("Compiler", compiler, "of the program; add that of its libraries");
        self.field("Math library", math_library(&environment.blas), "the BLAS that was called");
        self.field("MPI", environment.mpi_library.clone(), "as run");
    }

    fn result(&mut self, best: &TestReport, half: Option<Half>, given: &Given) {
        let rmax = rate(best);
        self.field(
            "Rmax (Gflop/s)",
            Some(format!("{rmax:.3}")),
            "N^2 (2N/3 + 3/2) / time, 64-bit, LU with partial pivoting, residual passed; no fast \
             matrix products",
        );
        self.field("Nmax", Some(best.parameters.n.to_string()), "order at which Rmax was reached");
        self.field(
            "N1/2",
            half.as_ref().map(|half| format!("{:.0} ({})", half.n, half.how)),
            "order at which half of Rmax is reached, same machine and cores",
        );
        self.field(
            "Rpeak (Gflop/s)",
            given.rpeak_gflops.map(|rate| format!("{rate:.3}")),
            "cores x clock x flops a cycle, 64-bit, at the advertised clock; --rpeak-gflops",
        );
        self.field(
            "Efficiency (%)",
            given.rpeak_gflops.map(|peak| format!("{:.2}", 100.0 * rmax / peak)),
            "Rmax / Rpeak",
        );
        self.field(
            "Scaled residual",
            best.scaled_residual.map(|residual| format!("{residual:.4e}")),
            "||Ax-b|| / (eps (||A|| ||x|| + ||b||) N), below the threshold of the run",
        );
    }

    fn power(&mut self, best: &TestReport, given: &Given) {
        self.field("Core phase start", best.start.clone(), CORE_PHASE);
        self.field("Core phase end", best.end.clone(), "end of the back substitution, UTC");
        self.field(
            "Core phase (s)",
            best.time_seconds.map(|seconds| format!("{seconds:.3}")),
            "power is averaged over the whole of it",
        );
        let meter = best.power.iter().find(|reading| reading.is_of_meter());
        // An incomplete measurement is none.
        let measured = meter.filter(|reading| reading.gflops_per_watt.is_some());
        let by_meter = measured.map(|reading| reading.mean_watts / 1000.0);
        let kilowatts = given.power_kilowatts.or(by_meter);
        self.field(
            "Average power (kW)",
            kilowatts.map(|power| format!("{power:.3}")),
            "over the whole core phase of this very run, of all that the level asks for; \
             --power-kw, --power-csv, or run --power-command",
        );
        if let Some((reading, seconds)) = measured.zip(best.time_seconds)
            && let Some(Readout { readings, longest_seconds }) = reading.readout
        {
            self.field(
                "Readings",
                Some(format!(
                    "{readings} in the core phase, at most {longest_seconds:.1} s apart, of {:.1} % \
                     of it",
                    100.0 * reading.measured_seconds / seconds
                )),
                "the methodology states how often a meter is read",
            );
        }
        // The level of a meter does not apply to a power that is given.
        let of_meter = measured.filter(|_| given.power_kilowatts.is_none());
        let level = given.power_level.or(of_meter.and_then(|reading| reading.level));
        self.field(
            "Power quality level",
            level.map(|level| format!("{level} (as the site reports)")),
            "1, 2 or 3 of the EE HPC WG methodology, which states how much of the machine to measure; \
             --power-level",
        );
        self.field(
            "Gflops/W",
            kilowatts.map(|power| format!("{:.4}", rate(best) / (1000.0 * power))),
            "Rmax over average power",
        );
        for reading in best.power.iter().filter(|reading| !reading.is_of_meter()) {
            let EnergyReading { source, covers, mean_watts, .. } = reading;
            self.field(
                "Counters of the nodes",
                Some(format!("{mean_watts:.1} W by {source}: {covers}")),
                "not at the wall: without the rest of the machine and the losses of its supplies, \
                 so this is no power to submit",
            );
        }
    }
}

fn rate(test: &TestReport) -> f64 {
    test.gflops.unwrap_or(0.0)
}

const CORE_PHASE: &str = "barrier before the factorization, UTC";

fn math_library(value: &serde_json::Value) -> Option<String> {
    let text = |key: &str| value.get(key).and_then(serde_json::Value::as_str);
    let words = library::words(text("library")?, text("version"), text("kernel"));
    Some(text("path").map_or(words.clone(), |path| format!("{words}, {path}")))
}

/// Cores that ran, if each host has as many cores as that of rank 0.
fn cores(environment: &EnvironmentPart, best: &TestReport) -> usize {
    let (all, threads) = (best.parameters.cores(), best.parameters.threads.max(1));
    let of_host = |cores: usize| {
        let ran =
            environment.hosts.iter().map(|host| host.ranks.saturating_mul(threads).min(cores));
        ran.fold(0, usize::saturating_add)
    };
    let of_hosts = environment.host.cores.map(of_host).filter(|&cores| cores > 0);
    of_hosts.map_or(all, |cores| all.min(cores))
}

/// Memory of all hosts in gigabytes, if each has as much as that of rank 0.
fn memory(environment: &EnvironmentPart) -> Option<String> {
    let (each, hosts) = (environment.host.memory_bytes?, environment.hosts.len().max(1));
    let gigabytes = |bytes: f64| format!("{:.1}", bytes / 1e9);
    let all = gigabytes(each as f64 * hosts as f64);
    Some(match hosts {
        1 => all,
        _ => format!("{all} ({hosts} hosts of {} as that of rank 0)", gigabytes(each as f64)),
    })
}

/// N1/2 among the tests on as many cores as `best`: between two measured orders if they enclose it,
/// else from `E(N) = N/(aN+b)` fitted to the best test of each order.
fn half_order(runs: &[NamedRun], best: &TestReport) -> Option<Half> {
    let target = 0.5 * best.gflops?;
    let completed = runs.iter().flat_map(|run| run.report.completed());
    let is_alike = |test: &&TestReport| {
        let same_size = test.parameters.cores() == best.parameters.cores();
        test.is_of_hpl() && same_size && (1..=best.parameters.n).contains(&test.parameters.n)
    };
    let points = best_rates(completed.filter(is_alike));
    let bracket = points.windows(2).find(|pair| pair[0].1 < target && pair[1].1 >= target);
    if let Some([(n1, g1), (n2, g2)]) = bracket {
        let n = n1 + (target - g1) / (g2 - g1) * (n2 - n1);
        return Some(Half { n, how: "between two measured orders" });
    }
    let fit = Efficiency::fit(&points).ok()?;
    let n = fit.half_of(best.parameters.n as f64);
    (n > 0.0).then_some(Half { n, how: "extrapolated by N/(aN+b), to be confirmed by a run" })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests that passed, each of `(N, Gflop/s, further parameters)`.
    fn run(tests: &[(usize, f64, &str)]) -> NamedRun {
        let test = |(n, gflops, more): &(usize, f64, &str)| {
            format!(
                r#"{{"variant": "W{n}", "status": "passed", "time_seconds": 1.5, "gflops": {gflops},
                    "parameters": {{"n": {n}, "p": 1, "q": 1, "threads": 1 {more}}}}}"#
            )
        };
        let tests: Vec<String> = tests.iter().map(test).collect();
        let text = format!(r#"{{"format": "skt-hpl report", "tests": [{}]}}"#, tests.join(","));
        NamedRun { name: "a".into(), report: RunReport::parse(&text).unwrap() }
    }

    #[test]
    fn only_tests_of_hpl_are_submitted() {
        const MXP: &str = r#", "matrix": "scaled""#;
        let runs = [run(&[(1000, 30.0, ""), (2000, 50.0, "")]), run(&[(1500, 99.0, MXP)])];
        let sheet_of = |runs: &[NamedRun]| sheet(runs, &Given::default());
        assert_eq!(sheet_of(&runs), sheet_of(&runs[..1]));
        let text = sheet_of(&runs).unwrap();
        assert!(text.contains("(W2000)") && text.contains("50.000"), "{text}");
        assert_eq!(sheet_of(&runs[1..]), Err(NothingToSubmit::OtherBenchmark));
        assert_eq!(sheet_of(&[]), Err(NothingToSubmit::NonePassed));
    }
}
