//! The answer of `skt-hpl plan`, as text and as JSON.

use std::fmt::Write as _;

use serde_json::json;

use skt_model::kinds::NodeKind;
use skt_model::plan::{Candidate, Encoder, Plan, PlannedMachine, RATE_TOLERANCE, WhatIf};
use skt_model::tang::memory::Protocol;
use skt_model::{HOUR_SECONDS, ModelError};
use skt_terms::units::counted;

/// What a plan is based on: a machine, and the sources of its numbers.
pub(super) struct Basis {
    pub machine: PlannedMachine,
    pub notes: Vec<String>,
    /// Whether the user has asked for the method.
    pub method_is_asked: bool,
}

/// Describes the plan, with the lines `images` on levels; with `all`, every candidate.
pub(super) fn describe(
    basis: &Basis,
    plan: &Plan,
    images: &str,
    all: bool,
) -> Result<String, ModelError> {
    let mut words = machine_line(&basis.machine.running(plan.choice().job.protocol));
    for note in &basis.notes {
        let _ = writeln!(words, "{note}");
    }
    let _ = write!(words, "\n{}\n", table(&basis.machine, plan, all));
    words += &answer(basis, plan);
    words += images;
    words += &encoders_line(&basis.machine, plan)?;
    words += &uncertain(plan, &basis.machine)?;
    Ok(words)
}

fn machine_line(machine: &PlannedMachine) -> String {
    let mtbf_hours = machine.node_mtbf_seconds / HOUR_SECONDS;
    format!(
        "Machine: {} node(s) of {} rank(s) x {} thread(s){}, {:.1} GiB for the run and {:.0} Gflop/s \
         {}; MTBF {} h a node, {:.2} h for all\n",
        machine.nodes,
        machine.ranks_per_node,
        machine.threads,
        idle_cores(machine),
        machine.node_memory_bytes / f64::from(1u32 << 30),
        machine.node_flops() / 1e9,
        if machine.kinds.are_equal() { "each" } else { "each on average" },
        large(mtbf_hours, 0),
        mtbf_hours / machine.nodes as f64,
    )
}

/// The function of the BLAS for products in the precision of the run.
fn product_name(machine: &PlannedMachine) -> &'static str {
    if machine.is_mxp { "SGEMM" } else { "DGEMM" }
}

/// The cores of a node that are left over and too few for a rank, in words after a comma.
fn idle_cores(machine: &PlannedMachine) -> String {
    let PlannedMachine { cores_per_node, helper_cores, ranks_per_node, threads, .. } = *machine;
    match cores_per_node - helper_cores - ranks_per_node * threads {
        0 => String::new(),
        idle => format!(", {} idle", counted(idle, "core")),
    }
}

const TABLE_HEAD: &str = "  protocol   n  m          N  memory    E(N)  checkpoint   interval    expected  \
                          efficiency  keeps data  spares     expected\n                                 \
                          %       %           s          s      time h           %           %          \
                          Gflop/s\n";

const TABLE_FOOT: &str = "  n, m: ranks and parities of a group; N: the matrix that the memory \
                          left holds; E(N): part of DGEMM's rate while it computes; keeps data -: \
                          no checkpoint is due\n";

/// The table of candidates: the chosen one with a star, the fastest, and the best of each other
/// protocol; or all of them.
fn table(machine: &PlannedMachine, plan: &Plan, all: bool) -> String {
    let mut shown: Vec<usize> = if all {
        (0..plan.candidates.len()).collect()
    } else {
        let others = Protocol::ALL.into_iter().filter(|p| *p != plan.choice().job.protocol);
        let best = others.filter_map(|protocol| plan.best_of(protocol, machine.finish_probability));
        best.chain([plan.fastest, plan.chosen]).collect()
    };
    shown.sort_unstable();
    shown.dedup();
    let mut rows = String::from(TABLE_HEAD);
    for &index in &shown {
        rows += &table_row(&plan.candidates[index], index == plan.chosen);
    }
    let left = plan.candidates.len() - shown.len();
    if left > 0 {
        let _ = writeln!(rows, "  and {left} more: --all");
    }
    rows + &TABLE_FOOT.replace("DGEMM", product_name(machine))
}

fn table_row(candidate: &Candidate, chosen: bool) -> String {
    let Candidate { job, expected, .. } = candidate;
    let none = job.protocol == Protocol::None;
    let or_dash = |text: String| if none { "-".to_string() } else { text };
    let saves = job.protocol.takes_checkpoints();
    let memory = candidate.memory.workspace_bytes / candidate.memory.total_bytes();
    let interval = every_seconds(candidate).filter(|_| saves);
    format!(
        "{star} {name:<8} {n:>3} {m:>2} {order:>10}  {memory:>6.1}  {e:>6.2}  {checkpoint:>10}  \
         {interval:>9}  {hours:>10}  {efficiency:>10.2}  {keeps:>10}  {spares:>6}  {gflops:>11}\n",
        star = if chosen { '*' } else { ' ' },
        name = job.protocol.name(),
        n = or_dash(job.group.size().to_string()),
        m = or_dash(job.group.parities().to_string()),
        order = candidate.n,
        memory = 100.0 * memory,
        e = 100.0 * candidate.hpl_efficiency,
        interval = interval.map_or("-".into(), |seconds| format!("{seconds:.0}")),
        checkpoint = if saves { format!("{:.2}", job.checkpoint_seconds) } else { "-".into() },
        hours = large(expected.time_seconds / HOUR_SECONDS, 3),
        efficiency = 100.0 * expected.efficiency,
        keeps = if saves && interval.is_none() {
            "-".into()
        } else {
            percent(expected.keeps_data_probability)
        },
        spares = candidate.fewest_spares.map_or("-".into(), |spares| spares.to_string()),
        gflops = large(candidate.expected_gflops, 1),
    )
}

/// A number with `decimals` decimals, or in exponent form from 1e8 on.
pub(super) fn large(value: f64, decimals: usize) -> String {
    if value < 1e8 { format!("{value:.decimals$}") } else { format!("{value:.2e}") }
}

fn percent(fraction: f64) -> String {
    format!("{:.3}", 100.0 * fraction)
}

fn hours(seconds: f64) -> String {
    large(seconds / HOUR_SECONDS, 3)
}

/// The seconds of work from one checkpoint to the next as a run takes them: at least 1, however few
/// the theory finds best.
fn as_taken(cut_seconds: f64) -> f64 {
    cut_seconds.max(1.0)
}

/// The seconds of work from one checkpoint to the next as a run takes them; `None` if no checkpoint
/// is due.
pub(super) fn every_seconds(candidate: &Candidate) -> Option<f64> {
    (candidate.checkpoints() > 0.0).then(|| as_taken(candidate.cut_seconds()))
}

pub(super) fn protection(candidate: &Candidate) -> String {
    let job = &candidate.job;
    if job.protocol == Protocol::None {
        return "no checkpoint".into();
    }
    let every = every_seconds(candidate);
    let every = every.map_or(String::new(), |seconds| format!(", every {seconds:.0} s of work"));
    format!(
        "{} checkpoint in groups of {} with {}{every}",
        job.protocol.name(),
        job.group.size(),
        counted(job.group.parities(), "parity")
    )
}

/// The names of the [`Encoder`]s, each with the rate of the best self checkpoints. `plan` is the
/// plan of the machine as it is.
fn encoders(machine: &PlannedMachine, plan: &Plan) -> Result<Vec<(&'static str, f64)>, ModelError> {
    let all = [
        ("at_once", Encoder::AtOnce),
        ("overlapped", Encoder::Overlapped),
        ("helper_cores", Encoder::Helpers),
    ];
    let mut rates = Vec::new();
    for (name, encoder) in all.into_iter().filter(|_| machine.helper_cores > 0) {
        let other =
            if encoder == machine.encoder { None } else { Some(machine.encoding(encoder).plan()?) };
        let plan = other.as_ref().unwrap_or(plan);
        let best = plan.best_of(Protocol::SelfCheckpoint, machine.finish_probability);
        rates.extend(best.map(|index| (name, plan.candidates[index].expected_gflops)));
    }
    Ok(rates)
}

/// Describes the gain by the cores that are kept from the solver; empty if there are none.
fn encoders_line(machine: &PlannedMachine, plan: &Plan) -> Result<String, ModelError> {
    let [(_, at_once), (_, overlapped), (_, helped)] = encoders(machine, plan)?[..] else {
        return Ok(String::new());
    };
    Ok(format!(
        "Helper cores: {} of a node; with self the rate is {} Gflop/s, with parities at once on all \
         cores {}, overlapped on all cores {}\n",
        machine.helper_cores,
        large(helped, 1),
        large(at_once, 1),
        large(overlapped, 1),
    ))
}

/// Describes the chosen candidate, line by line.
fn answer(basis: &Basis, plan: &Plan) -> String {
    let machine = &basis.machine;
    let choice = plan.choice();
    let Candidate { job, expected, memory, .. } = choice;
    let gib = f64::from(1u32 << 30);
    let mut words = format!("Choice: {}\n{}", protection(choice), why_line(basis, plan));
    let _ = writeln!(
        words,
        "Matrix: N = {}, NB = {}, P x Q = {} x {}; a node holds {:.2} GiB matrix, {:.2} GiB \
         copies, {:.2} GiB parities",
        choice.n,
        machine.nb,
        plan.grid.0,
        plan.grid.1,
        memory.workspace_bytes / gib,
        memory.copies_bytes / gib,
        memory.parities_bytes / gib
    );
    words += &blocks_line(&machine.running(job.protocol), plan.grid);
    let (p, q) = plan.grid;
    if q > 4 * p && p * q > 4 {
        let _ = writeln!(
            words,
            "Grid: {} ranks make a long grid; another number of ranks may be faster",
            p * q
        );
    }
    let _ = writeln!(
        words,
        "Rate: {:.2} % of {} while it computes; {} Gflop/s expected from start to end",
        100.0 * choice.hpl_efficiency,
        product_name(machine),
        large(choice.expected_gflops, 1)
    );
    let parts = choice.time_parts();
    let _ = writeln!(
        words,
        "Time: {} h expected: work {} h, checkpoints {} h, outages {} h, lost work {} h",
        hours(expected.time_seconds),
        hours(parts.work_seconds),
        hours(parts.checkpoints_seconds),
        hours(parts.outages_seconds),
        hours(parts.lost_seconds)
    );
    if let Some(loss) = no_checkpoint_is_due(plan) {
        let _ = writeln!(words, "Checkpoint: warning: {loss}");
    } else if job.protocol != Protocol::None {
        let _ = writeln!(
            words,
            "Checkpoint: {:.2} s on average, {}; {} of them",
            job.checkpoint_seconds,
            if machine.checkpoint_bytes_per_second.is_some() {
                "at the measured rate"
            } else {
                "computed"
            },
            large(choice.checkpoints(), if choice.checkpoints() < 10.0 { 1 } else { 0 })
        );
    }
    let _ = writeln!(words, "{}", failures_line(choice));
    words += &finish_line(machine, plan);
    words += &larger_group_line(plan);
    words += &checksums_line(machine, plan);
    words
}

/// Describes how process columns of unequal speed get their blocks; empty if they are equal.
fn blocks_line(machine: &PlannedMachine, grid: (usize, usize)) -> String {
    let rates = machine.column_core_flops(grid);
    if rates.is_empty() {
        return String::new();
    }
    let kind = |kind: &NodeKind| {
        let columns = rates.iter().filter(|rate| **rate == kind.core_flops).count();
        let gflops = kind.core_flops / 1e9;
        format!("{} of {gflops:.1}", counted(columns, "process column"))
    };
    let kinds: Vec<String> = machine.kinds.list().iter().map(kind).collect();
    let mixed = match machine.kinds.mixed_columns(machine.ranks_per_node, grid) {
        0 => String::new(),
        mixed => format!(
            "; {} as slow as the slower of two kinds: P = {} does not divide the ranks of each",
            counted(mixed, "column"),
            grid.0
        ),
    };
    format!(
        "Blocks: by rate (--rates), {} Gflop/s a core; a rank has memory for the most columns, {:.2} \
         times the mean{mixed}\n",
        kinds.join(", "),
        machine.padding(grid)
    )
}

/// By how many percent another candidate's rate differs from that of the choice; `None` where the
/// choice never ends, so that it has no rate.
fn change_percent(other: &Candidate, choice: &Candidate) -> Option<f64> {
    let ratio = other.expected_gflops / choice.expected_gflops;
    (choice.expected_gflops > 0.0).then_some(100.0 * (ratio - 1.0))
}

/// Justifies the choice by what the other choice, with checkpoints or without, would give.
fn why_line(basis: &Basis, plan: &Plan) -> String {
    let machine = &basis.machine;
    let choice = plan.choice();
    let other = match choice.job.protocol {
        Protocol::None => Protocol::SelfCheckpoint,
        _ => Protocol::None,
    };
    let Some(index) = plan.best_of(other, machine.finish_probability) else {
        return String::new();
    };
    let other = &plan.candidates[index];
    let Some(change) = change_percent(other, choice) else { return String::new() };
    let (n, hours) = (other.n, hours(other.expected.time_seconds));
    if basis.method_is_asked {
        let without = match other.job.protocol {
            Protocol::None => "without checkpoints".to_owned(),
            other => format!("with {other}"),
        };
        return format!(
            "Why: --ft {} was asked for; {without} N = {n} in {hours} h, the rate from start to \
             end changed by {change:+.2} %\n",
            choice.job.protocol
        );
    }
    match choice.job.protocol {
        Protocol::None if other.checkpoints() > 0.0 => {
            // A gain below the tolerance does not justify checkpoints, nor does that of a shorter
            // run.
            let tolerance = 100.0 * RATE_TOLERANCE;
            let small = match change {
                ..=0.0 => String::new(),
                _ if change <= tolerance => format!(", less than {tolerance} %"),
                _ => format!(
                    ", {:+.2} % by the checkpoints, less than {tolerance} %; the rest is that of any \
                     shorter run",
                    100.0 * other.gain()
                ),
            };
            format!(
                "Why: with self checkpoints N = {n} in {hours} h, the rate from start to end changed \
                 by {change:+.2} %{small}\n"
            )
        }
        Protocol::None => format!(
            "Why: with self N = {n} in {hours} h, before any checkpoint is due: a smaller matrix \
             and no more\n"
        ),
        _ => format!(
            "Why: without checkpoints N = {n} in {hours} h at {:.2} % of {} while it computes, as \
             each failure sends the run back to its start: the rate from start to end changed by \
             {change:+.2} %\n",
            100.0 * other.hpl_efficiency,
            product_name(machine)
        ),
    }
}

/// Whether a failure sends the run back to its start: there are no checkpoints, or the run ends
/// before the first is due.
pub(super) fn starts_over(candidate: &Candidate) -> bool {
    let protocol = candidate.job.protocol;
    protocol == Protocol::None || protocol.takes_checkpoints() && every_seconds(candidate).is_none()
}

/// What follows where checkpoints are chosen and the run ends before the first is due, and what to
/// do about it.
fn no_checkpoint_is_due(plan: &Plan) -> Option<String> {
    let choice = plan.choice();
    let Candidate { job, expected, .. } = choice;
    if job.protocol == Protocol::None || !starts_over(choice) {
        return None;
    }
    // A quarter of the run leaves a checkpoint for most of it.
    let every = match (job.work_seconds / 4.0).max(1.0) {
        seconds @ ..120.0 => format!("{seconds:.0}s"),
        seconds => format!("{:.0}min", seconds / 60.0),
    };
    let larger = plan.candidates.iter().find(|other| other.job.protocol == Protocol::None);
    let larger = larger.map_or(String::new(), |other| format!(": N = {}", other.n));
    Some(format!(
        "none is due in {} h, so a loss sends the run back to its start; add --checkpoint-every \
         {every}, or plan without --ft {}{larger}",
        hours(expected.time_seconds),
        job.protocol,
    ))
}

fn failures_line(choice: &Candidate) -> String {
    let Candidate { job, expected, .. } = choice;
    let failures = large(expected.failures, if expected.failures < 0.1 { 4 } else { 2 });
    if starts_over(choice) {
        return format!("Failures: {failures} expected; each sends the run back to its start");
    }
    format!(
        "Failures: {failures} expected; each takes {:.0} s of downtime, {:.1} s of recovery and \
         the work since the last checkpoint",
        job.downtime_seconds, job.recovery_seconds
    )
}

fn finish_line(machine: &PlannedMachine, plan: &Plan) -> String {
    let choice = plan.choice();
    let Candidate { job, expected, fewest_spares, .. } = choice;
    let wanted = 100.0 * machine.finish_probability;
    let mut line = format!("Finishes: in one go with {} %", percent(expected.finish_probability()));
    if !starts_over(choice) {
        let _ = write!(line, "; data are kept with {} %", percent(expected.keeps_data_probability));
    }
    if !plan.keeps_data {
        let _ = write!(line, ", which is the surest and less than the {wanted} % asked for");
    } else if job.protocol == Protocol::None && 100.0 * expected.finish_probability() < wanted {
        let _ = write!(line, ", less than the {wanted} % asked for: else it starts over");
        let surer = plan.best_of(Protocol::SelfCheckpoint, machine.finish_probability);
        let surer = surer.map(|index| plan.candidates[index].expected.keeps_data_probability);
        if let Some(keeps) = surer.filter(|keeps| 100.0 * keeps >= wanted) {
            let _ = write!(line, ", which self spares with {} %: --ft self", percent(keeps));
        }
    }
    let _ = match (job.protocol, machine.spares, fewest_spares) {
        (Protocol::None, _, _) => writeln!(line),
        (_, Some(given), Some(fewest)) if given < *fewest => writeln!(
            line,
            "\nSpares: {given} suffice with {} % only: {wanted} % takes {fewest}",
            percent(expected.spares_suffice_probability)
        ),
        (_, Some(given), Some(fewest)) => writeln!(
            line,
            "\nSpares: {given} suffice with {} %; {wanted} % takes {fewest}",
            percent(expected.spares_suffice_probability)
        ),
        (_, None, Some(fewest)) => {
            writeln!(line, "\nSpares: {fewest} for {wanted} %, the fewest that suffice")
        }
        (_, _, None) => writeln!(line, "\nSpares: not even 100000 suffice with {wanted} %"),
    };
    line
}

/// Explains why the fastest candidate is not chosen.
fn larger_group_line(plan: &Plan) -> String {
    let (choice, fastest) = (plan.choice(), &plan.candidates[plan.fastest]);
    let change = change_percent(fastest, choice).filter(|_| plan.chosen != plan.fastest);
    let Some(change) = change else { return String::new() };
    let loses = |candidate: &Candidate| 1.0 - candidate.expected.keeps_data_probability;
    format!(
        "Group: {} members with {} would be {change:.2} % faster, and lose the data with {:.1e} instead of \
         {:.1e}, recover in {:.1} s instead of {:.1} s\n",
        fastest.job.group.size(),
        counted(fastest.job.group.parities(), "parity"),
        loses(fastest),
        loses(choice),
        fastest.job.recovery_seconds,
        choice.job.recovery_seconds
    )
}

/// Describes what checksums in the elimination would give.
fn checksums_line(machine: &PlannedMachine, plan: &Plan) -> String {
    let best = plan.best_of(Protocol::Abft, machine.finish_probability);
    let Some(other) = best.map(|index| &plan.candidates[index]) else { return String::new() };
    let Some(change) = change_percent(other, plan.choice()) else { return String::new() };
    let ((p, q), parities) = (other.grid, other.job.group.parities());
    format!(
        "Checksums: abft on {p} x ({q} + {parities}) would change the rate by {change:+.2} %, keep data \
         with {} %, recover in {:.1} s; it is not chosen, as residuals of large runs are not known\n",
        percent(other.expected.keeps_data_probability),
        other.job.recovery_seconds,
    )
}

fn uncertain(plan: &Plan, machine: &PlannedMachine) -> Result<String, ModelError> {
    let mut words = String::from(
        "Uncertain: E(N) is a model that was checked on two ranks of one machine, not on a network",
    );
    if machine.rate_over_model != 1.0 {
        words += "; the reports' share of its rate is taken to hold here, too";
    }
    for WhatIf { what, cut_seconds, fewest_spares, expected, expected_gflops } in
        machine.what_ifs(plan)?
    {
        let _ = write!(
            words,
            "\n  with {what}: {} Gflop/s, {} failures, finishes with {} %",
            large(expected_gflops, 1),
            large(expected.failures, if expected.failures < 0.1 { 4 } else { 2 }),
            percent(expected.finish_probability()),
        );
        if plan.choice().job.protocol == Protocol::None {
            continue;
        }
        let spares = fewest_spares.map_or("-".to_owned(), |spares| spares.to_string());
        let _ = write!(words, "; spares {spares}, best interval {:.0} s", as_taken(cut_seconds));
    }
    words.push('\n');
    Ok(words)
}

/// The plan as JSON, with all candidates, and with the `levels` of images if they were asked for.
pub(super) fn json(
    basis: &Basis,
    plan: &Plan,
    levels: Option<serde_json::Value>,
) -> Result<String, ModelError> {
    let machine = &basis.machine;
    let run_on = machine.running(plan.choice().job.protocol);
    let uncertain: Vec<_> = machine
        .what_ifs(plan)?
        .into_iter()
        .map(|what_if| {
            json!({
                "what_if": what_if.what,
                "best_interval_seconds": finite(as_taken(what_if.cut_seconds)),
                "fewest_spares": what_if.fewest_spares,
                "expected_seconds": finite(what_if.expected.time_seconds),
                "expected_failures": finite(what_if.expected.failures),
                "finish_probability": what_if.expected.finish_probability(),
                "expected_gflops": what_if.expected_gflops,
            })
        })
        .collect();
    let mut document = json!({
        "machine": {
            "nodes": machine.nodes,
            "ranks_per_node": run_on.ranks_per_node,
            "threads": machine.threads,
            "node_memory_bytes": machine.node_memory_bytes,
            "node_gflops": run_on.node_flops() / 1e9,
            "node_mtbf_seconds": machine.node_mtbf_seconds,
            "rate_over_model": machine.rate_over_model,
        },
        "notes": basis.notes,
        "nb": machine.nb,
        "p": plan.grid.0,
        "q": plan.grid.1,
        "keeps_data": plan.keeps_data,
        "choice": json_candidate(plan.choice()),
        "fastest": json_candidate(&plan.candidates[plan.fastest]),
        "uncertain": uncertain,
        "candidates": plan.candidates.iter().map(json_candidate).collect::<Vec<_>>(),
    });
    if let Some(levels) = levels {
        document["levels"] = levels;
    }
    if machine.is_mxp {
        document["benchmark"] = "HPL-MxP".into();
    }
    let rates = run_on.column_core_flops(plan.grid);
    if !rates.is_empty() {
        let kind = |kind: &NodeKind| json!({ "nodes": kind.nodes, "gflops_per_core": kind.core_flops / 1e9 });
        document["machine"]["kinds"] = machine.kinds.list().iter().map(kind).collect();
        document["column_gflops_per_core"] = rates.iter().map(|flops| flops / 1e9).collect();
        document["columns_over_mean"] = run_on.padding(plan.grid).into();
    }
    let encoders = encoders(machine, plan)?;
    if !encoders.is_empty() {
        document["machine"]["helper_cores"] = machine.helper_cores.into();
        document["encoders_expected_gflops"] = encoders.into_iter().collect();
    }
    Ok(serde_json::to_string_pretty(&document).expect("numbers and names") + "\n")
}

/// Infinity becomes null, because JSON has no infinity.
fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

fn json_candidate(candidate: &Candidate) -> serde_json::Value {
    let Candidate { job, expected, memory, .. } = candidate;
    let has_group = job.protocol != Protocol::None;
    let parts = candidate.time_parts();
    json!({
        "protocol": job.protocol.name(),
        "group_size": has_group.then_some(job.group.size()),
        "parities": has_group.then_some(job.group.parities()),
        "n": candidate.n,
        "p": candidate.grid.0,
        "q": candidate.grid.1,
        "hpl_efficiency": candidate.hpl_efficiency,
        "matrix_bytes": memory.workspace_bytes,
        "copies_bytes": memory.copies_bytes,
        "parities_bytes": memory.parities_bytes,
        "checkpoint_seconds": job.checkpoint_seconds,
        "interval_seconds": finite(as_taken(candidate.cut_seconds())),
        "downtime_seconds": job.downtime_seconds,
        "recovery_seconds": job.recovery_seconds,
        "work_seconds": job.work_seconds,
        "expected_seconds": finite(expected.time_seconds),
        "in_checkpoints_seconds": parts.checkpoints_seconds,
        "in_outages_seconds": finite(parts.outages_seconds),
        "lost_seconds": finite(parts.lost_seconds),
        "expected_failures": finite(expected.failures),
        "keeps_data_probability": expected.keeps_data_probability,
        "spares": job.spares,
        "fewest_spares": candidate.fewest_spares,
        "spares_suffice_probability": expected.spares_suffice_probability,
        "finish_probability": expected.finish_probability(),
        "expected_gflops": candidate.expected_gflops,
    })
}
