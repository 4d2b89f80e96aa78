//! The fields that the TOP500 and Green500 lists ask for, filled from runs.
//!
//! What a run cannot know is left as a named blank; each field says which rule
//! applies to it.

use std::fmt::Write as _;

use super::html::NamedRun;
use super::reader::TestReport;
use crate::model::tang::efficiency::Efficiency;

/// What only the site knows, as far as it was given.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Given {
    /// Peak of the cores that ran, Gflop/s.
    pub rpeak_gflops: Option<f64>,
    /// Mean power over the core phase of the run that gave Rmax, kW.
    pub power_kilowatts: Option<f64>,
}

/// Why there is nothing to submit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no run has a test that passed its residual check; only such a test can be submitted")]
pub struct NothingToSubmit;

/// The order at which half of Rmax is reached, and how it was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Half {
    /// N1/2.
    pub n: f64,
    /// How it was found.
    pub how: &'static str,
}

const BLANK: &str = "____________________";

/// The sheet as text.
///
/// # Errors
/// [`NothingToSubmit`] where no test passed its check.
pub fn sheet(runs: &[NamedRun], given: &Given) -> Result<String, NothingToSubmit> {
    let rate = |test: &TestReport| test.gflops.unwrap_or(0.0);
    let (run, best) = runs
        .iter()
        .flat_map(|run| run.report.completed().map(move |test| (run, test)))
        .filter(|(_, test)| test.status == "passed")
        .max_by(|a, b| rate(a.1).total_cmp(&rate(b.1)))
        .ok_or(NothingToSubmit)?;
    let rmax = rate(best);
    let mut sheet = format!(
        "TOP500 / Green500 submission, from {} ({})\n\
         Blanks are for the site to fill in.\n\n",
        run.name, best.variant
    );
    let mut field = |name: &str, value: Option<String>, rule: &str| {
        let value = value.unwrap_or_else(|| BLANK.into());
        let _ = writeln!(sheet, "{name:<24} {value}\n{:<24}   {rule}", "");
    };
    let environment = &run.report.environment;
    field("Site", None, "name, city and country of the owner");
    field("Manufacturer", None, "who built the system");
    field("Computer", None, "the system's name and type");
    field("Year", None, "of installation or of the last major upgrade");
    field("Application area", None, "what the system is for");
    field("Processor", environment.host.cpu_model.clone(), "type and clock of the processor");
    field(
        "Cores",
        Some(best.parameters.cores().to_string()),
        "cores that ran: ranks times threads; cores of accelerators count too",
    );
    field(
        "Nodes",
        Some(environment.hosts.len().to_string()).filter(|_| !environment.hosts.is_empty()),
        "hosts of the job",
    );
    field("Interconnect", None, "the network between nodes");
    field("Memory (GB)", None, "main memory of the whole system");
    field("Operating system", environment.host.kernel.clone(), "as run");
    field("Compiler", None, "of the program and its libraries");
    field("Math library", blas(&environment.blas), "the BLAS that was called");
    field("MPI", environment.mpi_library.clone(), "as run");
    field(
        "Rmax (Gflop/s)",
        Some(format!("{rmax:.3}")),
        "N^2 (2N/3 + 3/2) / time, 64-bit, LU with partial pivoting, residual passed; no fast \
         matrix products",
    );
    field("Nmax", Some(best.parameters.n.to_string()), "order at which Rmax was reached");
    let half = half_order(runs, best);
    field(
        "N1/2",
        half.as_ref().map(|half| format!("{:.0} ({})", half.n, half.how)),
        "order at which half of Rmax is reached, same machine and cores",
    );
    field(
        "Rpeak (Gflop/s)",
        given.rpeak_gflops.map(|rate| format!("{rate:.3}")),
        "cores x clock x flops a cycle, 64-bit, at the advertised clock; --rpeak-gflops",
    );
    field(
        "Efficiency (%)",
        given.rpeak_gflops.map(|peak| format!("{:.2}", 100.0 * rmax / peak)),
        "Rmax / Rpeak",
    );
    field(
        "Scaled residual",
        best.scaled_residual.map(|residual| format!("{residual:.4e}")),
        "||Ax-b|| / (eps (||A|| ||x|| + ||b||) N), below the threshold of the run",
    );
    field("Core phase start", best.start.clone(), CORE_PHASE);
    field("Core phase end", best.end.clone(), "end of the back substitution, UTC");
    field(
        "Core phase (s)",
        best.time_seconds.map(|seconds| format!("{seconds:.3}")),
        "power is averaged over the whole of it",
    );
    field(
        "Average power (kW)",
        given.power_kilowatts.map(|power| format!("{power:.3}")),
        "over the whole core phase of this very run; --power-kw",
    );
    field(
        "Power quality level",
        None,
        "1, 2 or 3 of the EE HPC WG methodology, which says how much of the machine to measure",
    );
    field(
        "Gflops/W",
        given.power_kilowatts.map(|power| format!("{:.4}", rmax / (1000.0 * power))),
        "Rmax over average power",
    );
    Ok(sheet)
}

const CORE_PHASE: &str = "barrier before the factorization, UTC";

fn blas(value: &serde_json::Value) -> Option<String> {
    let text = |key: &str| value.get(key).and_then(serde_json::Value::as_str);
    let parts: Vec<&str> =
        ["name", "library", "version", "kernel"].into_iter().filter_map(text).collect();
    (!parts.is_empty()).then(|| parts.join(" "))
}

/// N1/2 among the tests on as many cores as `best`: between two measured orders
/// where there are such, else from `E(N) = N/(aN+b)` fitted to the best of each
/// order.
fn half_order(runs: &[NamedRun], best: &TestReport) -> Option<Half> {
    let target = 0.5 * best.gflops?;
    let mut points = std::collections::BTreeMap::new();
    for test in runs.iter().flat_map(|run| run.report.completed()) {
        let same_size = test.parameters.cores() == best.parameters.cores();
        if same_size && test.parameters.n > 0 && test.parameters.n <= best.parameters.n {
            let gflops = test.gflops.unwrap_or(0.0);
            let entry = points.entry(test.parameters.n).or_insert(gflops);
            *entry = gflops.max(*entry);
        }
    }
    let points: Vec<(f64, f64)> = points.into_iter().map(|(n, g)| (n as f64, g)).collect();
    let bracket = points.windows(2).find(|pair| pair[0].1 < target && pair[1].1 >= target);
    if let Some([(n1, g1), (n2, g2)]) = bracket {
        let n = n1 + (target - g1) / (g2 - g1) * (n2 - n1);
        return Some(Half { n, how: "between two measured orders" });
    }
    let fit = Efficiency::fit(&points).ok()?;
    let n = fit.half_of(best.parameters.n as f64);
    (n > 0.0).then_some(Half { n, how: "extrapolated by N/(aN+b), to be confirmed by a run" })
}
