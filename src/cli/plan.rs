//! `skt-hpl plan`: from a machine to a configuration, with its alternatives.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;

use super::convert::text;
use super::launch::by_hand;
use super::study_error::StudyError;
use super::{machine, output};
use crate::blas::{MatMut, MatRef, gemm};
use crate::config::draft::Value;
use crate::config::param::Param;
use crate::config::{
    CheckpointDraft, ConfigError, Draft, Format, Rules, RunSpec, Setting, checkpoint, validate,
};
use crate::environment::{blas, selftest};
use crate::model::HOUR_SECONDS;
use crate::model::chen::Network;
use crate::model::plan::{Candidate, Machine, Plan, assumed_efficiency, scaled_efficiency};
use crate::model::tang::efficiency::Efficiency;
use crate::model::tang::memory::Protocol;
use crate::report::reader::{RunReport, TestReport};
use crate::supervisor::plan::shell_quoted;

/// Flags of `plan`.
#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
pub struct PlanArgs {
    /// Nodes that compute
    #[arg(long, value_name = "NODES", default_value_t = 1)]
    pub nodes: usize,
    /// Spare nodes
    #[arg(long, value_name = "NODES", default_value_t = 0)]
    pub spares: usize,
    /// Cores of a node [default: those of this machine]
    #[arg(long, value_name = "CORES")]
    pub cores_per_node: Option<usize>,
    /// Threads a rank
    #[arg(long, value_name = "T", default_value_t = 1)]
    pub threads: usize,
    /// Memory of a node, in GiB [default: what this machine has available]
    #[arg(long, value_name = "GIB")]
    pub memory_gib: Option<f64>,
    /// Part of that memory that the run may take
    #[arg(long, value_name = "0..1", default_value_t = 0.8)]
    pub memory_fraction: f64,
    /// DGEMM rate of a core, in Gflop/s [default: from --report, else measured here]
    #[arg(long, value_name = "GFLOPS")]
    pub gflops_per_core: Option<f64>,
    /// Latency of a message between nodes, in microseconds
    #[arg(long, value_name = "US", default_value_t = 2.0)]
    pub latency_us: f64,
    /// Bandwidth of a node's network, in GB/s
    #[arg(long, value_name = "GB/S", default_value_t = 10.0)]
    pub bandwidth_gbs: f64,
    /// Rate of copies and sums in a node's memory, in GB/s [default: measured here, one core]
    #[arg(long, value_name = "GB/S")]
    pub copy_gbs: Option<f64>,
    /// Mean time between failures of one node, in hours
    #[arg(long, value_name = "HOURS", default_value_t = 43_800.0)]
    pub node_mtbf_hours: f64,
    /// From a failure to all processes running again, in seconds
    #[arg(long, value_name = "S", default_value_t = 90.0)]
    pub downtime_seconds: f64,
    /// Blocking factor
    #[arg(long, value_name = "NB", default_value_t = 256)]
    pub nb: usize,
    /// Least probability to finish without a loss of data and within the spares
    #[arg(long, value_name = "0..1", default_value_t = 0.99)]
    pub probability: f64,
    /// JSON reports of earlier runs, to calibrate E(N) = N/(aN+b)
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub report: Vec<PathBuf>,
    /// Write the configuration: TOML if it ends in .toml, else HPL.dat; - is standard output
    #[arg(long, short, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Overwrite the file if it exists
    #[arg(long, short)]
    pub force: bool,
}

/// What a plan rests on, in words.
struct Basis {
    machine: Machine,
    notes: Vec<String>,
}

/// Prints the plan and writes the configuration.
///
/// # Errors
/// A flag is not legal, a report cannot be read, the machine has too little
/// memory, the file cannot be written.
pub fn execute(args: &PlanArgs) -> Result<(), StudyError> {
    let basis = basis(args)?;
    let plan = basis.machine.plan()?;
    let words = describe(args, &basis, &plan);
    match &args.out {
        None => output::print(words.as_bytes())?,
        Some(path) => {
            let format = Format::of(path);
            let config = configuration(args, &basis.machine, &plan, format)?;
            if path.as_os_str() == "-" {
                output::say(format_args!("{words}"));
                output::print(config.as_bytes())?;
            } else {
                output::print(words.as_bytes())?;
                output::write_file(path, config.as_bytes(), args.force)?;
                output::say(format_args!(
                    "configuration written to {}; run it with\n  {}",
                    path.display(),
                    command_line(&basis.machine, &plan, args, format)
                ));
            }
        }
    }
    Ok(())
}

/// How to run the configuration: HPL.dat cannot say all of it.
fn command_line(machine: &Machine, plan: &Plan, args: &PlanArgs, format: Format) -> String {
    let ranks = machine.nodes * machine.ranks_per_node;
    let mut command = by_hand(ranks);
    if let Some(path) = args.out.as_deref().filter(|path| *path != Path::new("HPL.dat")) {
        command.push_str(&format!(" --config {}", shell_quoted(&path.display().to_string())));
    }
    if format == Format::Dat {
        if args.threads > 1 {
            command.push_str(&format!(" --threads {}", args.threads));
        }
        command.push(' ');
        command.push_str(&checkpoint::flags(&protection_table(machine, plan)));
    }
    command
}

fn basis(args: &PlanArgs) -> Result<Basis, StudyError> {
    let reports =
        args.report.iter().map(|path| RunReport::read(path)).collect::<Result<Vec<_>, _>>()?;
    let mut notes = Vec::new();
    let cores = match args.cores_per_node {
        Some(cores) => cores,
        None => machine::cores()?,
    };
    if args.threads == 0 || cores < args.threads {
        return Err(StudyError::Usage(format!(
            "--threads {} on {cores} cores a node: legal is 1 to {cores}",
            args.threads
        )));
    }
    let gib = f64::from(1u32 << 30);
    let memory_bytes = match args.memory_gib {
        Some(given) => given * gib,
        None => machine::available_bytes()? as f64,
    };
    if !(args.memory_fraction > 0.0 && args.memory_fraction <= 1.0) {
        return Err(StudyError::Usage(format!(
            "--memory-fraction {}: legal is more than 0, at most 1",
            args.memory_fraction
        )));
    }
    let core_gflops = core_gflops(args, &reports, &mut notes)?;
    let copy_gbs = args.copy_gbs.unwrap_or_else(|| {
        let measured = measure_copy_gbs();
        notes.push(format!("copies: {measured:.1} GB/s, measured here on one core"));
        measured
    });
    let ranks_per_node = cores / args.threads;
    let ranks = args.nodes * ranks_per_node;
    let efficiency = efficiency(&reports, core_gflops, ranks, &mut notes)?;
    let machine = Machine {
        nodes: args.nodes,
        spares: args.spares,
        ranks_per_node,
        node_memory_bytes: memory_bytes * args.memory_fraction,
        node_flops: core_gflops * 1e9 * (ranks_per_node * args.threads) as f64,
        network: Network {
            latency_seconds: args.latency_us * 1e-6,
            transfer_seconds_per_byte: 1e-9 / args.bandwidth_gbs,
            reduce_seconds_per_byte: 1e-9 / copy_gbs,
        },
        copy_bytes_per_second: copy_gbs * 1e9,
        node_mtbf_seconds: args.node_mtbf_hours * HOUR_SECONDS,
        downtime_seconds: args.downtime_seconds,
        nb: args.nb,
        efficiency,
        finish_probability: args.probability,
    };
    Ok(Basis { machine, notes })
}

fn core_gflops(
    args: &PlanArgs,
    reports: &[RunReport],
    notes: &mut Vec<String>,
) -> Result<f64, StudyError> {
    if let Some(given) = args.gflops_per_core {
        notes.push(format!("DGEMM: {given:.1} Gflop/s a core, as given"));
        return Ok(given);
    }
    let reported = reports
        .iter()
        .filter_map(|r| r.dgemm_self_test.as_ref()?.gflops_per_core)
        .fold(None, |best: Option<f64>, rate| Some(best.map_or(rate, |b| b.max(rate))));
    if let Some(rate) = reported {
        notes.push(format!("DGEMM: {rate:.1} Gflop/s a core, from the reports' self-test"));
        return Ok(rate);
    }
    let rate = core_gflops_here()?;
    notes.push(format!("DGEMM: {rate:.1} Gflop/s a core, measured here on one core"));
    Ok(rate)
}

/// E(N) from the reports: of all numbers of ranks the one with most orders N.
fn efficiency(
    reports: &[RunReport],
    core_gflops: f64,
    ranks: usize,
    notes: &mut Vec<String>,
) -> Result<Efficiency, StudyError> {
    if reports.is_empty() {
        notes.push(
            "E(N): assumed, a = 1.05 and b/a as in Tang et al., table 3, scaled with the square \
             root of the ranks; --report calibrates it"
                .into(),
        );
        return Ok(assumed_efficiency(ranks));
    }
    let tests: Vec<&TestReport> = reports.iter().flat_map(RunReport::completed).collect();
    let best = tests
        .iter()
        .map(|test| test.parameters.ranks())
        .max_by_key(|&ranks| best_points(&tests, ranks, core_gflops).len());
    let Some(measured_ranks) = best else {
        return Err(StudyError::Usage("no completed test in the reports".into()));
    };
    let points = best_points(&tests, measured_ranks, core_gflops);
    let fit = Efficiency::fit(&points)?;
    notes.push(format!(
        "E(N) = N/({:.4} N + {:.0}), fitted to {} orders on {measured_ranks} ranks, b scaled to \
         {ranks}",
        fit.a,
        fit.b,
        points.len()
    ));
    Ok(scaled_efficiency(fit, measured_ranks, ranks))
}

/// The best efficiency of every order that ran on this many ranks.
fn best_points(tests: &[&TestReport], ranks: usize, core_gflops: f64) -> Vec<(f64, f64)> {
    let mut best: std::collections::BTreeMap<usize, f64> = std::collections::BTreeMap::new();
    for test in tests.iter().filter(|t| t.parameters.ranks() == ranks) {
        let Some(gflops) = test.gflops.filter(|_| test.parameters.n > 0) else { continue };
        let efficiency = gflops / (core_gflops * test.parameters.cores() as f64);
        let entry = best.entry(test.parameters.n).or_insert(efficiency);
        *entry = entry.max(efficiency);
    }
    best.into_iter().map(|(n, e)| (n as f64, e)).collect()
}

/// The rate of DGEMM in the shape of the trailing update, on one core of this
/// machine, in Gflop/s.
///
/// # Errors
/// The BLAS has no work space.
pub(super) fn core_gflops_here() -> Result<f64, ConfigError> {
    blas::check_work_space(1).map_err(|why| ConfigError::Machine { what: why.to_string() })?;
    Ok(measure_gflops())
}

fn measure_gflops() -> f64 {
    const ORDER: usize = 768;
    const DEPTH: usize = 256;
    let (a, b) = (vec![1e-3; ORDER * DEPTH], vec![1e-3; ORDER * DEPTH]);
    let mut c = vec![0.0; ORDER * ORDER];
    selftest::measure(
        || {
            gemm(
                -1.0,
                MatRef::col_major(&a, ORDER, DEPTH, ORDER),
                MatRef::row_major(&b, DEPTH, ORDER, ORDER),
                1.0,
                MatMut::row_major(&mut c, ORDER, ORDER, ORDER),
            );
            (2 * ORDER * ORDER * DEPTH) as f64
        },
        0.3,
    )
}

/// Copies of 64 MiB, the best of five.
fn measure_copy_gbs() -> f64 {
    const BYTES: usize = 64 << 20;
    let from = vec![1u8; BYTES];
    let mut to = vec![0u8; BYTES];
    let best_seconds = (0..5)
        .map(|_| {
            let start = Instant::now();
            to.copy_from_slice(std::hint::black_box(&from));
            std::hint::black_box(&to);
            start.elapsed().as_secs_f64()
        })
        .fold(f64::INFINITY, f64::min);
    BYTES as f64 / best_seconds / 1e9
}

fn describe(args: &PlanArgs, basis: &Basis, plan: &Plan) -> String {
    let machine = &basis.machine;
    let mut words = String::new();
    let _ = writeln!(
        words,
        "Machine: {} node(s) + {} spare(s), {} rank(s) x {} thread(s) each, {:.1} GiB and {:.0} \
         Gflop/s a node",
        machine.nodes,
        machine.spares,
        machine.ranks_per_node,
        args.threads,
        machine.node_memory_bytes / f64::from(1u32 << 30),
        machine.node_flops / 1e9
    );
    let _ = writeln!(
        words,
        "MTBF {:.0} h a node, {:.1} h for all; outage {:.0} s and the rebuild",
        args.node_mtbf_hours,
        args.node_mtbf_hours / machine.nodes as f64,
        args.downtime_seconds
    );
    for note in &basis.notes {
        let _ = writeln!(words, "{note}");
    }
    words.push('\n');
    words += &table(plan);
    words.push('\n');
    words += &reasons(args, plan);
    words
}

const TABLE_HEAD: &str = "  protocol   n  m          N  memory    E(N)  checkpoint   interval    expected  \
                          efficiency  finishes     expected\n                                 \
                          %       %           s          s      time h           %         %      \
                          Gflop/s\n";

/// Every candidate, the chosen one with a star.
fn table(plan: &Plan) -> String {
    let mut rows = String::from(TABLE_HEAD);
    for (index, candidate) in plan.candidates.iter().enumerate() {
        rows += &table_row(candidate, index == plan.chosen);
    }
    rows
}

fn table_row(candidate: &Candidate, chosen: bool) -> String {
    let Candidate { protocol, group, expected, .. } = candidate;
    let none = *protocol == Protocol::None;
    let or_dash = |text: String| if none { "-".to_string() } else { text };
    let memory = candidate.memory.workspace_bytes / candidate.memory.total_bytes();
    let interval = if expected.interval_seconds >= candidate.work_seconds {
        "-".to_string()
    } else {
        format!("{:.0}", expected.interval_seconds)
    };
    format!(
        "{star} {name:<8} {n:>3} {m:>2} {order:>10}  {memory:>6.1}  {e:>6.2}  {checkpoint:>10}  \
         {interval:>9}  {hours:>10}  {efficiency:>10.2}  {finishes:>8}  {gflops:>11}\n",
        star = if chosen { '*' } else { ' ' },
        name = protocol.name(),
        n = or_dash(group.size().to_string()),
        m = or_dash(group.parities().to_string()),
        order = candidate.n,
        memory = 100.0 * memory,
        e = 100.0 * candidate.hpl_efficiency,
        checkpoint = or_dash(format!("{:.2}", candidate.checkpoint_seconds)),
        hours = large(expected.time_seconds / HOUR_SECONDS, 3),
        efficiency = 100.0 * expected.efficiency,
        finishes = format!("{:.3}", 100.0 * expected.finish_probability()),
        gflops = large(candidate.expected_gflops, 1),
    )
}

/// A number with some decimals, or as a power of ten where it would be long.
fn large(value: f64, decimals: usize) -> String {
    if value < 1e8 { format!("{value:.decimals$}") } else { format!("{value:.2e}") }
}

fn parities(count: usize) -> String {
    if count == 1 { "1 parity".into() } else { format!("{count} parities") }
}

fn reasons(args: &PlanArgs, plan: &Plan) -> String {
    let choice = plan.choice();
    let mut words = String::new();
    let group = match choice.protocol {
        Protocol::None => String::new(),
        _ => format!(
            " in groups of {} with {}, every {:.0} s of work",
            choice.group.size(),
            parities(choice.group.parities()),
            choice.expected.interval_seconds
        ),
    };
    let _ = writeln!(
        words,
        "Choice: {} checkpoint{group}; N = {}, P x Q = {} x {}.",
        if choice.protocol == Protocol::None { "no" } else { choice.protocol.name() },
        choice.n,
        plan.grid.0,
        plan.grid.1
    );
    let wanted = 100.0 * args.probability;
    let _ = if plan.meets_probability {
        writeln!(
            words,
            "Of none and self it has the highest expected rate of all that finish with at least \
             {wanted} %. (Single loses all to a failure during a checkpoint, double leaves less \
             memory than self and survives no more; --ft runs both.)"
        )
    } else {
        writeln!(
            words,
            "None finishes with {wanted} %: this one is the surest. More spares, more parities or \
             a smaller --memory-fraction help."
        )
    };
    for protocol in Protocol::ALL.into_iter().filter(|p| *p != choice.protocol) {
        if let Some(other) = plan.best_of(protocol, args.probability) {
            let _ = writeln!(
                words,
                "Against {}: N = {}, finishes with {:.3} %, {} Gflop/s expected.",
                protocol.name(),
                other.n,
                100.0 * other.expected.finish_probability(),
                large(other.expected_gflops, 1)
            );
        }
    }
    let (p, q) = plan.grid;
    if q > 4 * p && p * q > 4 {
        let _ = writeln!(
            words,
            "Note: {} ranks make a long grid, {p} x {q}; another number of ranks may be faster.",
            p * q
        );
    }
    let memory = &choice.memory;
    let gib = f64::from(1u32 << 30);
    let _ = writeln!(
        words,
        "Memory of a node: {:.2} GiB matrix, {:.2} GiB copies, {:.2} GiB parities, the rest work \
         space.",
        memory.workspace_bytes / gib,
        memory.copies_bytes / gib,
        memory.parities_bytes / gib
    );
    words
}

/// The configuration as a file; HPL.dat has no place for comments but its
/// title, TOML says all.
fn configuration(
    args: &PlanArgs,
    machine: &Machine,
    plan: &Plan,
    format: Format,
) -> Result<String, ConfigError> {
    let choice = plan.choice();
    let mut spec = specification(args, plan)?;
    let protection = match choice.protocol {
        Protocol::None => "no checkpoint".to_string(),
        protocol => format!(
            "{} checkpoint, groups of {}, {}, every {:.0} s",
            protocol.name(),
            choice.group.size(),
            parities(choice.group.parities()),
            choice.expected.interval_seconds
        ),
    };
    spec.title = [
        "HPLinpack benchmark input file".to_owned(),
        format!("skt-hpl plan: {} nodes, {protection}", machine.nodes),
    ];
    let body = text(&spec, &protection_table(machine, plan), format)?;
    Ok(match format {
        Format::Dat => body,
        Format::Toml => format!(
            "# Made by `skt-hpl plan` for {} nodes with {} ranks and {} thread(s) a rank.\n\
             # Planned with: {protection}.\n\
             # Expected: {:.2} h, {:.1} Gflop/s, finishes in one go with {:.3} %.\n\n{body}",
            machine.nodes,
            machine.ranks_per_node,
            args.threads,
            choice.expected.time_seconds / HOUR_SECONDS,
            choice.expected_gflops,
            100.0 * choice.expected.finish_probability()
        ),
    })
}

/// The `[checkpoint]` table of the chosen candidate.
fn protection_table(machine: &Machine, plan: &Plan) -> CheckpointDraft {
    let choice = plan.choice();
    let mut table = CheckpointDraft::from([(Setting::Method, Value::text(choice.protocol.name()))]);
    if choice.protocol != Protocol::None {
        let mtbf_seconds = machine.node_mtbf_seconds / machine.nodes as f64;
        // An interval beyond the run is no interval: let the run decide.
        let every = match choice.expected.interval_seconds {
            seconds if seconds < choice.work_seconds => format!("{}s", large(seconds, 0)),
            _ => "auto".to_owned(),
        };
        table.insert(Setting::GroupSize, Value::number(choice.group.size()));
        table.insert(Setting::Parities, Value::number(choice.group.parities()));
        table.insert(Setting::Every, Value::text(every));
        table.insert(Setting::Mtbf, Value::text(format!("{}s", large(mtbf_seconds, 0))));
    }
    table
}

fn specification(args: &PlanArgs, plan: &Plan) -> Result<RunSpec, ConfigError> {
    let mut draft = Draft::default();
    let numbers = [
        (Param::N, plan.choice().n),
        (Param::Nb, args.nb),
        (Param::P, plan.grid.0),
        (Param::Q, plan.grid.1),
        (Param::Threads, args.threads),
    ];
    for (param, number) in numbers {
        draft.values.insert(param, vec![Value::number(number)]);
    }
    let rules = Rules { lenient: false, ranks: None, source: "skt-hpl plan" };
    Ok(validate(&draft, &rules)?.spec)
}
