//! What a run cannot know is left as a named blank; each field comes with the rule that applies to
//! it.

use serde_json::Value;

use super::html::NamedRun;
use super::reader::{RunReport, Test, best_rates};
use skt_model::tang::efficiency::Efficiency;
use skt_run::record::energy::{EnergyReading, Readout};
use skt_solver::blas::library;

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Given {
    /// Peak rate of the cores that ran, in Gflop/s.
    pub rpeak_gflops: Option<f64>,
    /// Mean power over the core phase of the run that gave Rmax, in kW.
    pub power_kilowatts: Option<f64>,
    /// Level of that measurement in the methodology of the Green500.
    pub power_level: Option<u8>,
}

pub fn sheet(runs: &[NamedRun], given: &Given) -> Result<String, String> {
    let passed = || {
        let all = runs.iter().flat_map(|run| run.report.completed().map(move |test| (run, test)));
        all.filter(|(_, test)| test.status == "passed")
    };
    let of_hpl = passed().filter(|(_, test)| test.is_of_hpl());
    let Some((run, best)) = of_hpl.max_by(|a, b| rate(a.1).total_cmp(&rate(b.1))) else {
        return Err(match passed().next() {
            Some(_) => {
                "the tests that passed are of HPL-MxP, which has its own list (hpl-mxp.org); TOP500 \
                 and Green500 take tests of HPL alone"
            }
            None => {
                "no run has a test that passed its residual check; only such a test can be submitted"
            }
        }
        .to_owned());
    };
    let mut sheet = format!(
        "TOP500 / Green500 submission, from {} ({})\nBlanks are for the site to fill in.\n\n",
        run.name, best.variant
    );
    let fields = machine(&run.report, best)
        .into_iter()
        .chain(result(best, half_order(runs, best), given))
        .chain(power(best, given));
    for (name, value, rule) in fields {
        let value = value.unwrap_or_else(|| "_".repeat(20));
        sheet += &format!("{name:<24} {value}\n{:<24}   {rule}\n", "");
    }
    Ok(sheet)
}

/// The name of a field, its value, and the rule for it.
type Field = (&'static str, Option<String>, &'static str);

fn machine(run: &RunReport, best: &Test) -> Vec<Field> {
    let of = |place: &str| RunReport::text_at(&run.environment, place);
    let hosts = run.host_ranks().len();
    let compiler = run.program.as_ref().and_then(|program| program.compiler.clone());
    // HPL's text has no threads.
    let cores = (best.parameters.threads > 0).then(|| cores(run, best).to_string());
    vec![
        ("Site", None, "name, city and country of the owner"),
        ("Manufacturer", None, "who built the system"),
        ("Computer", None, "the system's name and type"),
        ("Year", None, "of installation or of the last major upgrade"),
        ("Application area", None, "what the system is for"),
        ("Processor", of("/host/cpu_model"), "type and clock of the processor"),
        (
            "Cores",
            cores,
            "cores that ran: ranks times threads, or those of the hosts if these are fewer; cores of \
             accelerators count too",
        ),
        ("Nodes", (hosts > 0).then(|| hosts.to_string()), "hosts of the job"),
        ("Interconnect", None, "the network between nodes"),
        (
            "Memory (GB)",
            memory(run),
            "main memory of the whole system; here of the hosts of the job",
        ),
        ("Operating system", of("/host/kernel"), "as run"),
        ("Compiler", compiler, "of the program; add that of its libraries"),
        ("Math library", math_library(&run.environment), "the BLAS that was called"),
        ("MPI", of("/mpi_library"), "as run"),
    ]
}

fn result(best: &Test, half: Option<(f64, &str)>, given: &Given) -> Vec<Field> {
    let rmax = rate(best);
    let peak = given.rpeak_gflops;
    vec![
        (
            "Rmax (Gflop/s)",
            Some(format!("{rmax:.3}")),
            "N^2 (2N/3 + 3/2) / time, 64-bit, LU with partial pivoting, residual passed; no fast \
             matrix products",
        ),
        ("Nmax", Some(best.parameters.n.to_string()), "order at which Rmax was reached"),
        (
            "N1/2",
            half.map(|(n, how)| format!("{n:.0} ({how})")),
            "order at which half of Rmax is reached, same machine and cores",
        ),
        (
            "Rpeak (Gflop/s)",
            peak.map(|rate| format!("{rate:.3}")),
            "cores x clock x flops a cycle, 64-bit, at the advertised clock; --rpeak-gflops",
        ),
        ("Efficiency (%)", peak.map(|peak| format!("{:.2}", 100.0 * rmax / peak)), "Rmax / Rpeak"),
        (
            "Scaled residual",
            best.scaled_residual().map(|residual| format!("{residual:.4e}")),
            "||Ax-b|| / (eps (||A|| ||x|| + ||b||) N), below the threshold of the run",
        ),
    ]
}

fn power(best: &Test, given: &Given) -> Vec<Field> {
    // An incomplete measurement is none.
    let meter = best.power.iter().find(|reading| reading.is_of_meter());
    let measured = meter.filter(|reading| reading.gflops_per_watt.is_some());
    let by_meter = measured.map(|reading| reading.mean_watts / 1000.0);
    let kilowatts = given.power_kilowatts.or(by_meter);
    // The level of a meter does not apply to a power that is given.
    let of_meter = measured.filter(|_| given.power_kilowatts.is_none());
    let level = given.power_level.or(of_meter.and_then(|reading| reading.level));
    let mut fields: Vec<Field> = vec![
        ("Core phase start", best.start.clone(), "barrier before the factorization, UTC"),
        ("Core phase end", best.end.clone(), "end of the back substitution, UTC"),
        (
            "Core phase (s)",
            best.time_seconds.map(|seconds| format!("{seconds:.3}")),
            "power is averaged over the whole of it",
        ),
        (
            "Average power (kW)",
            kilowatts.map(|power| format!("{power:.3}")),
            "over the whole core phase of this very run, of all that the level asks for; --power-kw, \
             --power-csv, or run --power-command",
        ),
        (
            "Power quality level",
            level.map(|level| format!("{level} (as the site reports)")),
            "1, 2 or 3 of the EE HPC WG methodology, which states how much of the machine to measure; \
             --power-level",
        ),
        (
            "Gflops/W",
            kilowatts.map(|power| format!("{:.4}", rate(best) / (1000.0 * power))),
            "Rmax over average power",
        ),
    ];
    if let Some((reading, seconds)) = measured.zip(best.time_seconds)
        && let Some(Readout { readings, longest_seconds }) = reading.readout
    {
        let share = 100.0 * reading.measured_seconds / seconds;
        fields.push((
            "Readings",
            Some(format!(
                "{readings} in the core phase, at most {longest_seconds:.1} s apart, of {share:.1} % \
                 of it"
            )),
            "the methodology states how often a meter is read",
        ));
    }
    let counters = best.power.iter().filter(|reading| !reading.is_of_meter());
    fields.extend(counters.map(|EnergyReading { source, covers, mean_watts, .. }| {
        (
            "Counters of the nodes",
            Some(format!("{mean_watts:.1} W by {source}: {covers}")),
            "not at the wall: without the rest of the machine and the losses of its supplies, so this \
             is no power to submit",
        )
    }));
    fields
}

fn rate(test: &Test) -> f64 {
    test.gflops.unwrap_or(0.0)
}

fn math_library(environment: &Value) -> Option<String> {
    let text = |key: &str| environment.pointer(&format!("/blas/{key}")).and_then(Value::as_str);
    let words = library::words(text("library")?, text("version"), text("kernel"));
    Some(text("path").map_or(words.clone(), |path| format!("{words}, {path}")))
}

fn host_number(run: &RunReport, key: &str) -> Option<u64> {
    run.environment.pointer(&format!("/host/{key}"))?.as_u64()
}

/// Cores that ran, if each host has as many cores as that of rank 0.
fn cores(run: &RunReport, best: &Test) -> usize {
    let (all, threads) = (best.cores(), best.parameters.threads.max(1));
    let of_hosts = host_number(run, "cores").map(|cores| {
        let ran =
            run.host_ranks().into_iter().map(|it| it.saturating_mul(threads).min(cores as usize));
        ran.fold(0, usize::saturating_add)
    });
    of_hosts.filter(|&cores| cores > 0).map_or(all, |cores| all.min(cores))
}

/// Memory of all hosts in gigabytes, if each has as much as that of rank 0.
fn memory(run: &RunReport) -> Option<String> {
    let (each, hosts) =
        (host_number(run, "memory_bytes")? as f64 / 1e9, run.host_ranks().len().max(1));
    let all = each * hosts as f64;
    Some(match hosts {
        1 => format!("{all:.1}"),
        _ => format!("{all:.1} ({hosts} hosts of {each:.1} as that of rank 0)"),
    })
}

/// N1/2 among the tests on as many cores as `best`, and how it was found: between two measured
/// orders if they enclose it, else from `E(N) = N/(aN+b)` fitted to the best test of each order.
fn half_order(runs: &[NamedRun], best: &Test) -> Option<(f64, &'static str)> {
    let target = 0.5 * best.gflops?;
    let completed = runs.iter().flat_map(|run| run.report.completed());
    let is_alike = |test: &&Test| {
        let is_smaller = (1..=best.parameters.n).contains(&test.parameters.n);
        test.is_of_hpl() && test.cores() == best.cores() && is_smaller
    };
    let points = best_rates(completed.filter(is_alike));
    let bracket = points.windows(2).find(|pair| pair[0].1 < target && pair[1].1 >= target);
    if let Some([(n1, g1), (n2, g2)]) = bracket {
        let n = n1 + (target - g1) / (g2 - g1) * (n2 - n1);
        return Some((n, "between two measured orders"));
    }
    let n = Efficiency::fit(&points).ok()?.half_of(best.parameters.n as f64);
    (n > 0.0).then_some((n, "extrapolated by N/(aN+b), to be confirmed by a run"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests that passed, each of `(N, Gflop/s, further parameters)`.
    fn run(tests: &[(usize, f64, &str)]) -> NamedRun {
        let test = |(n, gflops, more): &(usize, f64, &str)| {
            format!(
                r#"{{"variant": "W{n}", "status": "passed", "time_seconds": 1.5, "gflops": {gflops},
                    "parameters": {{"n": {n}, "nb": 8, "p": 1, "q": 1, "threads": 1 {more}}}}}"#
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
        assert!(sheet_of(&runs[1..]).unwrap_err().contains("are of HPL-MxP"));
        assert!(sheet_of(&[]).unwrap_err().contains("no run has a test that passed"));
    }
}
