use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use serde_json::{Value, json};
use skt_host::units::counted;

use super::chosen::Chosen;
use super::failed::Failed;
use super::node_memory::{self, NodeMemory, NodeSet};
use super::plan_levels::{self, LevelArgs};
use super::{by_hand, machine};
use crate::report::output;
use crate::report::reader::{self, RunReport};
use skt_config::param::Param;
use skt_config::value;
use skt_config::{CheckpointDraft, Draft, RunSpec, Setting, ValidationRules, validate};
use skt_health::environment::library::take_default;
use skt_health::environment::selftest;
use skt_host::infile::{self, LIST_BYTES_MAX};
use skt_host::messages;
use skt_host::ranges::{above_zero, share, share_above_zero, zero_or_above};
use skt_host::starter::Ranks;
use skt_host::thread_clock::thread_cpu_seconds;
use skt_model::HOUR_SECONDS;
use skt_model::chen::Network;
use skt_model::kinds::{NodeKind, NodeKinds};
use skt_model::levels::PlannedLevel;
use skt_model::path;
use skt_model::plan::{Candidate, Encoder, Plan, PlannedMachine, WhatIf, networked};
use skt_model::table::{Fields, table};
use skt_model::tang::memory::Protocol;
use skt_run::protect::Settings;
use skt_solver::blas::library;
use skt_solver::team::Team;

const HOSTFILE: &str = "hosts";
const GIB: f64 = (1u64 << 30) as f64;

#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
pub(crate) struct PlanArgs {
    /// Nodes that compute [default: those of --memory-gib, else 1]
    #[arg(long, value_name = "NODES")]
    pub nodes: Option<usize>,
    /// Spare nodes [default: the fewest that suffice]
    #[arg(long, value_name = "NODES")]
    pub spares: Option<usize>,
    /// Cores per node [default: those of this machine]
    #[arg(long, value_name = "CORES")]
    pub cores_per_node: Option<usize>,
    /// Threads per rank
    #[arg(long, value_name = "T", default_value_t = 1)]
    pub threads: usize,
    /// Cores per node that are kept from the solver, for the threads that compute parities and
    /// write images while it continues
    #[arg(long, value_name = "K", default_value_t = 0)]
    pub helper_cores: usize,
    /// Memory per node, in GiB; of unequal nodes the number of each kind, e.g. 6x256,2x128, and of
    /// nodes of unequal speed after @ the Gflop/s of a core, e.g. 6x256@40,2x128@30: the plan takes
    /// the nodes with the highest expected rate [default: what is available on this machine]
    #[arg(long, value_parser = node_memory::parse, value_name = "GIB")]
    pub(crate) memory_gib: Option<NodeMemory>,
    /// Part of that memory that the run may take
    #[arg(long, value_parser = share_above_zero, value_name = "0..1", default_value_t = 0.8)]
    pub memory_fraction: f64,
    /// DGEMM rate of a core, in Gflop/s [default: from --report or --machine, else measured on this
    /// machine]
    #[arg(long, value_parser = above_zero, value_name = "GFLOPS")]
    pub gflops_per_core: Option<f64>,
    /// Latency of a message between nodes, in microseconds
    #[arg(long, value_parser = zero_or_above, value_name = "US", default_value_t = 2.0)]
    pub latency_us: f64,
    /// Bandwidth of a node's network in one direction, in GB/s
    #[arg(long, value_parser = above_zero, value_name = "GB/S", default_value_t = 10.0)]
    pub bandwidth_gbs: f64,
    /// Rate of copies and sums in a node's memory, in GB/s [default: measured on one core of this
    /// machine]
    #[arg(long, value_parser = above_zero, value_name = "GB/S")]
    pub(crate) copy_gbs: Option<f64>,
    /// Measured rate of a checkpoint: GB of its matrix that a node saves per second, with one
    /// parity [default: computed from --bandwidth-gbs and --copy-gbs]
    #[arg(long, value_parser = above_zero, value_name = "GB/S")]
    pub(crate) checkpoint_gbs: Option<f64>,
    /// Mean time between failures of one node, in hours
    #[arg(long, value_parser = above_zero, value_name = "HOURS", default_value_t = 43_800.0)]
    pub node_mtbf_hours: f64,
    /// Time from a failure until all processes run again, in seconds
    #[arg(long, value_parser = zero_or_above, value_name = "S", default_value_t = 90.0)]
    pub downtime_seconds: f64,
    /// Blocking factor
    #[arg(long, value_name = "NB", default_value_t = 256)]
    pub nb: usize,
    /// Least probability that checkpoints keep the data and that the spares suffice; a run without
    /// checkpoints, which starts over after a failure, is judged by its expected time instead
    #[arg(long, value_parser = share, value_name = "0..1", default_value_t = 0.99)]
    pub probability: f64,
    /// Method of protection (none, self, double, single, abft) [default: the fastest in the end,
    /// which is none where a restart from the beginning costs less than checkpoints]
    #[arg(long, value_name = "METHOD", value_parser = protocol)]
    pub(crate) ft: Option<Protocol>,
    /// Leave on each node the memory for its part of the ranks of a lost one, which `launch
    /// --no-spare spread` restarts there; self is planned where none would be the fastest
    #[arg(long)]
    pub survive_without_spares: bool,
    /// JSON reports of earlier runs without checkpoints: this run is expected to reach the same
    /// part of the model's rate
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub report: Vec<PathBuf>,
    /// Seconds that one of each unit of work takes, as `skt-studies path --save-machine` writes
    /// them
    /// [default: fitted on two cores of an AMD EPYC (Zen 4)]
    #[arg(long, value_name = "FILE")]
    pub machine: Option<PathBuf>,
    /// Plan a run of HPL-MxP (`skt-hpl mxp`): a matrix in single precision, whose products are
    /// taken to be twice as fast as DGEMM; the time of the refinement is not counted
    #[arg(long)]
    pub mxp: bool,
    /// Flags on images of checkpoints
    #[command(flatten)]
    pub levels: LevelArgs,
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
    /// Write the configuration: TOML if it ends in .toml, else HPL.dat; - is standard output
    #[arg(long, short, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Overwrite the file if it exists
    #[arg(long, short)]
    pub force: bool,
}

pub(crate) fn execute(args: &PlanArgs) -> Result<(), Failed> {
    // The rate of a core is measured.
    take_default();
    let to_stdout = args.out.as_deref().is_some_and(output::is_stdout);
    if args.json && to_stdout {
        return Err(Failed::new(
            "--json and --out - both print to standard output: give --out a file",
        ));
    }
    let (machine, mut notes) = basis(args)?;
    let (machine, plan) = plan_on_best_nodes(args, machine, &mut notes)?;
    notes.extend(room(&machine, &plan)?);
    notes.extend(no_checkpoint_is_due(&plan));
    let levels = args.levels.plan(&machine, &plan)?;
    let text = answer(&machine, &plan, &notes, levels.as_deref(), args.json)?;
    let level = args.levels.setting(levels.as_deref().unwrap_or_default())?;
    let Some(path) = &args.out else { return Ok(output::print(&text)?) };
    let machine = machine.running(plan.choice().job.protocol);
    let protection = &protection_table(&machine, &plan, level);
    let spec = &specification(args, &machine, &plan)?;
    // A run must accept what is written.
    Settings::read(protection, spec)?;
    let chosen = Chosen { spec, protection, path };
    let config = chosen.text(&format!(
        "# Made by `skt-hpl plan` for {} nodes with {} ranks and {} thread(s) a rank: {}\n\n",
        machine.nodes,
        machine.ranks_per_node,
        args.threads,
        protection_words(plan.choice())
    ))?;
    if to_stdout {
        messages::print(format_args!("{text}"));
        return Ok(output::print(&config)?);
    }
    output::print(&text)?;
    output::write_file(path, &config, args.force)?;
    messages::print(format_args!(
        "configuration written to {}; run it with\n{}",
        path.display(),
        how_to_run(&machine, plan.choice(), &chosen.flags())
    ));
    Ok(())
}

fn answer(
    machine: &PlannedMachine,
    plan: &Plan,
    notes: &[String],
    levels: Option<&[PlannedLevel]>,
    is_json: bool,
) -> Result<String, Failed> {
    let what_ifs = machine.what_ifs(plan)?;
    let uncertain: Vec<Fields> = what_ifs.iter().map(what_if_fields).collect();
    let levels: Option<Vec<Fields>> =
        levels.map(|levels| levels.iter().map(plan_levels::fields).collect());
    let of_machine = machine_fields(machine, plan);
    let of_run = run_fields(machine, plan);
    if is_json {
        let all = |columns: &[Fields]| columns.iter().map(Fields::json).collect::<Value>();
        let mut document = of_run.json();
        document["machine"] = of_machine.json();
        document["notes"] = notes.into();
        document["choice"] = candidate_fields(plan.choice()).json();
        document["fastest"] = candidate_fields(&plan.candidates[plan.fastest]).json();
        document["uncertain"] = all(&uncertain);
        document["candidates"] =
            plan.candidates.iter().map(|candidate| candidate_fields(candidate).json()).collect();
        if let Some(levels) = levels {
            document["levels"] = all(&levels);
        }
        return Ok(serde_json::to_string_pretty(&document).expect("numbers and names") + "\n");
    }
    let others = Protocol::ALL.into_iter().filter(|p| *p != plan.choice().job.protocol);
    let others = others.filter_map(|protocol| plan.best_of(protocol, machine.finish_probability));
    let shown: Vec<Fields> = std::iter::once(plan.chosen)
        .chain(others)
        .map(|index| candidate_fields(&plan.candidates[index]))
        .collect();
    let notes: String = notes.iter().map(|note| format!("  {note}\n")).collect();
    let mut text = format!(
        "Machine\n{}{notes}\nRun: {}\n{}\nThe choice, and the best of each other protocol\n{}",
        table(&[of_machine]),
        protection_words(plan.choice()),
        table(&[of_run]),
        table(&shown)
    );
    for (title, columns) in [("Images", levels), ("Uncertain", Some(uncertain))] {
        if let Some(columns) = columns.filter(|columns| !columns.is_empty()) {
            text += &format!("\n{title}\n{}", table(&columns));
        }
    }
    Ok(text)
}

fn machine_fields(machine: &PlannedMachine, plan: &Plan) -> Fields {
    let run_on = machine.running(plan.choice().job.protocol);
    let PlannedMachine { cores_per_node, ranks_per_node, threads, .. } = run_on;
    let mut fields = vec![
        ("nodes", json!(machine.nodes)),
        ("ranks_per_node", json!(ranks_per_node)),
        ("threads", json!(threads)),
        ("helper_cores", json!(run_on.helper_cores)),
        ("idle_cores", json!(cores_per_node - run_on.helper_cores - ranks_per_node * threads)),
        ("node_memory_bytes", json!(machine.node_memory_bytes)),
        ("node_gflops", json!(run_on.node_flops() / 1e9)),
        ("node_mtbf_seconds", json!(machine.node_mtbf_seconds)),
        ("rate_over_model", json!(machine.rate_over_model)),
    ];
    if !machine.kinds.are_equal() {
        let kind = |kind: &NodeKind| json!({ "nodes": kind.nodes, "gflops_per_core": kind.core_flops / 1e9 });
        fields.push(("kinds", machine.kinds.list().iter().map(kind).collect()));
    }
    Fields(fields)
}

/// What the run has besides its protection.
fn run_fields(machine: &PlannedMachine, plan: &Plan) -> Fields {
    let run_on = machine.running(plan.choice().job.protocol);
    let mut fields = vec![
        ("nb", json!(machine.nb)),
        ("p", json!(plan.grid.0)),
        ("q", json!(plan.grid.1)),
        ("keeps_data", json!(plan.keeps_data)),
    ];
    if machine.is_mxp {
        fields.push(("benchmark", json!("HPL-MxP")));
    }
    let rates = run_on.column_core_flops(plan.grid);
    if !rates.is_empty() {
        let gflops = rates.iter().map(|flops| flops / 1e9);
        fields.push(("column_gflops_per_core", gflops.collect()));
        fields.push(("columns_over_mean", json!(run_on.padding(plan.grid))));
    }
    Fields(fields)
}

fn what_if_fields(what_if: &WhatIf) -> Fields {
    Fields(vec![
        ("what_if", json!(what_if.what)),
        ("best_interval_seconds", json!(as_taken(what_if.cut_seconds))),
        ("fewest_spares", json!(what_if.fewest_spares)),
        ("expected_seconds", json!(what_if.expected.time_seconds)),
        ("expected_failures", json!(what_if.expected.failures)),
        ("finish_probability", json!(what_if.expected.finish_probability())),
        ("expected_gflops", json!(what_if.expected_gflops)),
    ])
}

fn candidate_fields(candidate: &Candidate) -> Fields {
    let Candidate { job, expected, memory, .. } = candidate;
    let has_group = job.protocol != Protocol::None;
    let parts = candidate.time_parts();
    Fields(vec![
        ("protocol", json!(job.protocol.name())),
        ("group_size", json!(has_group.then_some(job.group.size()))),
        ("parities", json!(has_group.then_some(job.group.parities()))),
        ("n", json!(candidate.n)),
        ("p", json!(candidate.grid.0)),
        ("q", json!(candidate.grid.1)),
        ("hpl_efficiency", json!(candidate.hpl_efficiency)),
        ("matrix_bytes", json!(memory.workspace_bytes)),
        ("copies_bytes", json!(memory.copies_bytes)),
        ("parities_bytes", json!(memory.parities_bytes)),
        ("checkpoint_seconds", json!(job.checkpoint_seconds)),
        ("interval_seconds", json!(as_taken(candidate.cut_seconds()))),
        ("downtime_seconds", json!(job.downtime_seconds)),
        ("recovery_seconds", json!(job.recovery_seconds)),
        ("work_seconds", json!(job.work_seconds)),
        ("expected_seconds", json!(expected.time_seconds)),
        ("in_checkpoints_seconds", json!(parts.checkpoints_seconds)),
        ("in_outages_seconds", json!(parts.outages_seconds)),
        ("lost_seconds", json!(parts.lost_seconds)),
        ("expected_failures", json!(expected.failures)),
        ("keeps_data_probability", json!(expected.keeps_data_probability)),
        ("spares", json!(job.spares)),
        ("fewest_spares", json!(candidate.fewest_spares)),
        ("spares_suffice_probability", json!(expected.spares_suffice_probability)),
        ("finish_probability", json!(expected.finish_probability())),
        ("expected_gflops", json!(candidate.expected_gflops)),
    ])
}

/// At least 1, however few the theory finds best.
fn as_taken(cut_seconds: f64) -> f64 {
    cut_seconds.max(1.0)
}

/// As a run takes them; `None` if no checkpoint is due.
fn every_seconds(candidate: &Candidate) -> Option<f64> {
    (candidate.checkpoints() > 0.0).then(|| as_taken(candidate.cut_seconds()))
}

fn protection_words(candidate: &Candidate) -> String {
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

/// At a failure: there are no checkpoints, or the run ends before the first is due.
fn starts_over(candidate: &Candidate) -> bool {
    let protocol = candidate.job.protocol;
    protocol == Protocol::None || protocol.takes_checkpoints() && every_seconds(candidate).is_none()
}

/// A note where checkpoints are chosen and the run ends before the first is due.
fn no_checkpoint_is_due(plan: &Plan) -> Option<String> {
    let choice = plan.choice();
    if choice.job.protocol == Protocol::None || !starts_over(choice) {
        return None;
    }
    // A quarter of the run leaves a checkpoint for most of it.
    let every = (choice.job.work_seconds / 4.0).max(1.0);
    Some(format!(
        "warning: no checkpoint is due before the end of the run, so a loss sends it back to its \
         start; add --checkpoint-every {every:.0}s, or plan without --ft {}",
        choice.job.protocol
    ))
}

struct Way<'s> {
    set: &'s NodeSet,
    machine: PlannedMachine,
    /// How the process columns get blocks, in words after a comma; empty if the nodes are equal.
    blocks: &'static str,
}

/// On those of the nodes that give the highest expected rate: a node with little memory bounds what
/// the others hold, and a slow one may hold them up, so it may be better left out.
fn plan_on_best_nodes(
    args: &PlanArgs,
    machine: PlannedMachine,
    notes: &mut Vec<String>,
) -> Result<(PlannedMachine, Plan), Failed> {
    let Some(memory) = &args.memory_gib else {
        let plan = planned(&machine, args.ft)?;
        return Ok((machine, plan));
    };
    let all_nodes = machine.nodes;
    let sets = memory.sets(all_nodes);
    let mut ways = Vec::new();
    for set in &sets {
        let machine = on_nodes(args, &machine, set)?;
        if machine.kinds.are_equal() {
            ways.push(Way { set, machine, blocks: "" });
        } else {
            ways.push(Way { set, machine, blocks: ", blocks by rate" });
            let machine = machine.with_equal_blocks();
            ways.push(Way { set, machine, blocks: ", as many blocks each" });
        }
    }
    let plans: Vec<_> = ways.iter().map(|way| planned(&way.machine, args.ft)).collect();
    let rate = |plan: &Plan| plan.choice().expected_gflops;
    let possible =
        plans.iter().enumerate().filter_map(|(at, plan)| Some((at, rate(plan.as_ref().ok()?))));
    let Some((best, _)) = possible.max_by(|a, b| a.1.total_cmp(&b.1)) else {
        return Err(plans.into_iter().find_map(Result::err).expect("all have failed"));
    };
    let are_several = ways.len() > 1;
    for (at, (way, plan)) in ways.iter().zip(&plans).enumerate().filter(|_| are_several) {
        let gives = match plan {
            Ok(plan) => {
                let Candidate { n, expected_gflops, .. } = plan.choice();
                format!("N = {n}, {expected_gflops:.1} Gflop/s expected")
            }
            Err(why) => why.0.clone(),
        };
        let Way { set, blocks, .. } = way;
        let nodes = set.nodes();
        let which = if nodes == all_nodes { "all " } else { "" };
        let rates = if memory.rates().len() > 1 { set.rates_words() } else { String::new() };
        let chosen = if at == best { "; chosen" } else { "" };
        notes.push(format!(
            "Nodes: {which}{nodes}{rates}, {} GiB of each{blocks}: {gives}{chosen}",
            set.gib
        ));
    }
    let machine = ways[best].machine;
    let plan = plans.into_iter().nth(best).expect("one of all").expect("it is possible");
    Ok((machine, plan))
}

fn on_nodes(
    args: &PlanArgs,
    machine: &PlannedMachine,
    set: &NodeSet,
) -> Result<PlannedMachine, Failed> {
    let node_memory_bytes = set.gib * GIB * args.memory_fraction;
    let core = match set.gflops() {
        Some(gflops) => read_machine(args)?.with_core_flops(gflops * 1e9),
        None => machine.core,
    };
    let machine = PlannedMachine { nodes: set.nodes(), node_memory_bytes, core, ..*machine };
    Ok(machine.with_kinds(set.kinds()?))
}

/// What the memory that is left for the ranks of a lost node costs.
fn room(machine: &PlannedMachine, plan: &Plan) -> Result<Option<String>, Failed> {
    let protocol = plan.choice().job.protocol;
    if !machine.leaves_room {
        return Ok(None);
    }
    let guests = counted(machine.running(protocol).guests(protocol), "rank");
    let full = PlannedMachine { leaves_room: false, ..*machine };
    let full = planned(&full, Some(protocol))?.choice().n;
    Ok(Some(format!(
        "Room: each node has memory for {guests} more (`launch --no-spare spread`); without it \
         N = {full}"
    )))
}

fn planned(machine: &PlannedMachine, ft: Option<Protocol>) -> Result<Plan, Failed> {
    if ft == Some(Protocol::Abft) && !machine.kinds.are_equal() {
        return Err(Failed::new(
            "--ft abft: nodes of unequal speed get blocks by their rates, and its groups of block \
             columns go in turn: list nodes of one rate, or take another method",
        ));
    }
    let mut plan = machine.plan()?;
    // Without checkpoints nothing survives a loss.
    let needs_self = machine.leaves_room && plan.choice().job.protocol == Protocol::None;
    let Some(protocol) = ft.or(needs_self.then_some(Protocol::SelfCheckpoint)) else {
        return Ok(plan);
    };
    let best = plan.best_of(protocol, machine.finish_probability).ok_or_else(|| {
        Failed::new(format!(
            "--ft {protocol}: {} node(s) form no group of it; self takes two nodes or more",
            machine.nodes
        ))
    })?;
    let choice = &plan.candidates[best];
    let keeps_data = protocol == Protocol::None
        || choice.expected.keeps_data_probability >= machine.finish_probability;
    plan = Plan { grid: choice.grid, chosen: best, fastest: best, keeps_data, ..plan };
    Ok(plan)
}

fn protocol(name: &str) -> Result<Protocol, String> {
    let names = || Protocol::ALL.map(Protocol::name).join(", ");
    Protocol::named(name).ok_or_else(|| format!("legal is {}", names()))
}

fn how_to_run(machine: &PlannedMachine, choice: &Candidate, flags: &str) -> String {
    let PlannedMachine { nodes, ranks_per_node: each, threads, helper_cores, .. } = *machine;
    let ranks = Ranks {
        count: nodes * each,
        nodes: (nodes > 1).then_some((nodes, each)),
        hostfile: HOSTFILE,
        threads,
        helper_cores,
    };
    let starts = by_hand::starts(&ranks).into_iter();
    let commands: Vec<String> = starts.map(|start| format!("  {start}{flags}")).collect();
    let mut command = commands.join("\nor, in a job of Slurm,\n");
    if !machine.kinds.are_equal() {
        command.push_str("\nwith the fastest nodes first, as process columns are of one kind");
    }
    if nodes == 1 || choice.job.protocol == Protocol::None {
        return command;
    }
    let spares = machine.spares.or(choice.fewest_spares).unwrap_or(0);
    let spread = if machine.leaves_room { " --no-spare spread" } else { "" };
    let launch = by_hand::launch(HOSTFILE, spread, flags);
    format!(
        "{command}\nor, to restart automatically after the loss of a node,\n  {launch}\nwhere the file \
         {HOSTFILE} has a line for each node, and last one for each of {spares} spare(s): NAME \
         slots={each} (Open MPI) or NAME:{each} (MPICH); Slurm takes the nodes of its job"
    )
}

/// The rates of process columns as `--rates` takes them, in Gflop/s a core.
fn rates_list(flops: &[f64]) -> String {
    // What a product with 1e9 has rounded is no part of the user's number.
    let gflops = |flops: &f64| ((flops / 1e3).round() / 1e6).to_string();
    flops.iter().map(gflops).collect::<Vec<_>>().join(",")
}

type Reported = (RunReport, Vec<path::MeasuredTest>);

fn basis(args: &PlanArgs) -> Result<(PlannedMachine, Vec<String>), Failed> {
    if args.survive_without_spares && args.ft == Some(Protocol::None) {
        return Err(Failed::new(
            "--survive-without-spares: with --ft none a loss sends the run back to its start: give \
             --ft self, or leave out one of the two",
        ));
    }
    let read = |path: &PathBuf| {
        let text = reader::read_text(path).map_err(Failed)?;
        let report = RunReport::parse_from(path, &text).map_err(Failed)?;
        let tests = path::measured::parse(&text)
            .map_err(|why| Failed::new(format!("'{}' is {why}", path.display())))?;
        Ok((report, tests))
    };
    let reports = args.report.iter().map(read).collect::<Result<Vec<_>, Failed>>()?;
    let mut notes = Vec::new();
    let (cores, solver_cores) = node_cores(args)?;
    let nodes = nodes(args)?;
    let memory_bytes = match &args.memory_gib {
        Some(memory) => memory.sets(nodes)[0].gib * GIB,
        None => machine::available_bytes()? as f64,
    };
    let core = core(args, &reports, &mut notes)?;
    let copy_gbs = args.copy_gbs.unwrap_or_else(|| {
        let (measured, busy) = on_a_core(measure_copy_gbs);
        notes.push(format!("copies: {measured:.1} GB/s, measured here on one core{busy}"));
        measured
    });
    if args.mxp {
        notes.push(
            "HPL-MxP: products in single precision at twice that rate; the refinement is not \
             counted"
                .to_owned(),
        );
    }
    let network = Network {
        latency_seconds: args.latency_us * 1e-6,
        transfer_seconds_per_byte: 1e-9 / args.bandwidth_gbs,
        reduce_seconds_per_byte: 1e-9 / copy_gbs,
    };
    network.validate()?;
    let rate_over_model = rate_over_model(args, &reports, &core, &network, &mut notes)?;
    let machine = PlannedMachine {
        nodes,
        spares: args.spares,
        ranks_per_node: solver_cores / args.threads,
        threads: args.threads,
        cores_per_node: cores,
        helper_cores: args.helper_cores,
        encoder: if args.helper_cores > 0 { Encoder::Helpers } else { Encoder::AtOnce },
        node_memory_bytes: memory_bytes * args.memory_fraction,
        leaves_room: args.survive_without_spares,
        core,
        // The nodes of a list are chosen later.
        kinds: NodeKinds::default(),
        rate_over_model,
        network,
        copy_bytes_per_second: copy_gbs * 1e9,
        checkpoint_bytes_per_second: args.checkpoint_gbs.map(|rate| rate * 1e9),
        node_mtbf_seconds: args.node_mtbf_hours * HOUR_SECONDS,
        downtime_seconds: args.downtime_seconds,
        nb: args.nb,
        finish_probability: args.probability,
        is_mxp: args.mxp,
    };
    Ok((machine, notes))
}

fn nodes(args: &PlanArgs) -> Result<usize, Failed> {
    let listed = args.memory_gib.as_ref().and_then(NodeMemory::nodes);
    match (args.nodes, listed) {
        (Some(nodes), Some(listed)) if nodes != listed => Err(Failed::new(format!(
            "--nodes {nodes}, and --memory-gib lists {listed} nodes: leave out --nodes"
        ))),
        (nodes, listed) => Ok(nodes.or(listed).unwrap_or(1)),
    }
}

/// Number of cores of a node, and how many of them the solver uses.
fn node_cores(args: &PlanArgs) -> Result<(usize, usize), Failed> {
    let cores = match args.cores_per_node {
        Some(cores) => cores,
        None => machine::cores()?,
    };
    let (threads, kept) = (args.threads, args.helper_cores);
    let refused = |what| Err(Failed::new(what));
    if cores == 0 {
        return refused("--cores-per-node 0: legal is 1 or more".to_owned());
    }
    let solver_cores = cores.saturating_sub(kept);
    if solver_cores == 0 {
        let most = cores - 1;
        return refused(format!("--helper-cores {kept} of {cores} a node: legal is 0 to {most}"));
    }
    if threads == 0 || solver_cores < threads {
        return refused(format!(
            "--threads {threads} on {cores} cores a node, of which --helper-cores keeps {kept}: \
             legal is 1 to {solver_cores}"
        ));
    }
    Ok((cores, solver_cores))
}

fn read_machine(args: &PlanArgs) -> Result<path::Machine, Failed> {
    let Some(file) = &args.machine else { return Ok(path::Machine::ZEN4_CORE) };
    let refused = |why| Failed::new(format!("'{}' is {why}", file.display()));
    let text = infile::read_text(file, LIST_BYTES_MAX)
        .map_err(|why| Failed::new(format!("cannot read '{}': {why}", file.display())))?;
    path::Machine::parse(&text).map_err(refused)
}

/// The seconds that a core takes for each unit of work, with the DGEMM rate that a flag gives, a
/// report has, the machine of a file has, or a measurement on this machine finds.
fn core(
    args: &PlanArgs,
    reports: &[Reported],
    notes: &mut Vec<String>,
) -> Result<path::Machine, Failed> {
    let core = read_machine(args)?;
    let reported = reports
        .iter()
        .filter_map(|(report, _)| report.dgemm_self_test.get("gflops_per_core")?.as_f64())
        .fold(None, |best: Option<f64>, rate| Some(best.map_or(rate, |b| b.max(rate))));
    let listed = args.memory_gib.as_ref().map_or(Vec::new(), NodeMemory::rates);
    let other =
        [("--gflops-per-core", args.gflops_per_core.is_some()), ("--report", !reports.is_empty())];
    if let Some((flag, _)) = other.iter().find(|(_, is_given)| *is_given && !listed.is_empty()) {
        return Err(Failed::new(format!(
            "{flag}, and --memory-gib has the rate of each kind of nodes: leave out one of the two"
        )));
    }
    if let [fastest, .., slowest] = listed[..] {
        notes.push(format!("DGEMM: {slowest:.1} to {fastest:.1} Gflop/s a core, as given"));
        return Ok(core);
    }
    let given = args.gflops_per_core.or(listed.first().copied());
    let (gflops, from) = match (given, reported, &args.machine) {
        (Some(given), _, _) => (given, "as given".to_owned()),
        (_, Some(rate), _) => (rate, "from the reports' self-test".to_owned()),
        (_, _, Some(path)) => {
            (1e-9 / core.product_flop_seconds, format!("from {}", path.display()))
        }
        _ => {
            let (gflops, busy) = on_a_core(core_gflops_here);
            (gflops?, format!("measured here on one core{busy}"))
        }
    };
    notes.push(format!("DGEMM: {gflops:.1} Gflop/s a core, {from}"));
    Ok(core.with_core_flops(gflops * 1e9))
}

/// The geometric mean over the tests of at least half of the largest order; 1 without reports.
fn rate_over_model(
    args: &PlanArgs,
    reports: &[Reported],
    core: &path::Machine,
    network: &Network,
    notes: &mut Vec<String>,
) -> Result<f64, Failed> {
    if reports.is_empty() {
        return Ok(1.0);
    }
    let mut tests = Vec::new();
    for (report, measured) in reports {
        let hosts = report.host_ranks().len().max(1);
        for measured in measured {
            let ranks = measured.run.p * measured.run.q;
            let machine = networked(core, network, hosts, ranks.div_ceil(hosts));
            let model_seconds = path::estimate_seconds(&measured.run, &machine)?;
            let share = model_seconds / measured.time_seconds;
            tests.push((measured.run.n, share, measured.shared));
        }
    }
    let largest = tests.iter().map(|(n, ..)| *n).max();
    let Some(largest) = largest else {
        return Err(Failed::new(
            "the reports have no test that ran to its end without checkpoints (--ft none)",
        ));
    };
    tests.retain(|(n, ..)| 2 * n >= largest);
    let is_any_shared = tests.iter().any(|(.., is_shared)| *is_shared);
    let shares: Vec<f64> = tests.into_iter().map(|(_, share, _)| share).collect();
    let mean = (shares.iter().map(|share| share.ln()).sum::<f64>() / shares.len() as f64).exp();
    notes.push(format!(
        "E(N): {:.1} % of the model's rate, as in {} test(s) of the reports ({:.1} to {:.1} %){}",
        100.0 * mean,
        shares.len(),
        100.0 * shares.iter().copied().fold(f64::INFINITY, f64::min),
        100.0 * shares.iter().copied().fold(0.0, f64::max),
        if nodes(args)? > 1 && is_any_shared {
            "; some used shared memory, and runs on several nodes, by messages, may reach less"
        } else {
            ""
        },
    ));
    Ok(mean)
}

/// The rate of DGEMM in the shape of the trailing update, on one core of this machine, in Gflop/s.
fn core_gflops_here() -> Result<f64, Failed> {
    const SECONDS: f64 = 0.3;
    // A BLAS uses all cores unless it is limited.
    library::use_one_thread();
    Ok(selftest::dgemm_gflops(&Team::solo(), SECONDS)?)
}

/// The result of `measure` and, if other programs had a part of the core, a warning.
fn on_a_core<T>(measure: impl FnOnce() -> T) -> (T, String) {
    let (start, cpu) = (Instant::now(), thread_cpu_seconds());
    let result = measure();
    let share = (thread_cpu_seconds() - cpu) / start.elapsed().as_secs_f64();
    let warning = format!(
        " while other programs took {:.0} % of it: repeat this when they have ended, or give the \
         rate (--gflops-per-core, --copy-gbs)",
        100.0 * (1.0 - share)
    );
    (result, if share < machine::MIN_CPU_SHARE { warning } else { String::new() })
}

/// The rate of copies of 64 MiB, the best of five, in GB/s.
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

/// The `[checkpoint]` table of the chosen candidate, with its levels of images.
fn protection_table(
    machine: &PlannedMachine,
    plan: &Plan,
    level: Option<String>,
) -> CheckpointDraft {
    let choice = plan.choice();
    let Candidate { job, .. } = choice;
    let mut table =
        CheckpointDraft::from([(Setting::Method, value::Value::text(job.protocol.name()))]);
    if job.protocol != Protocol::None {
        let mtbf_seconds = (machine.node_mtbf_seconds / machine.nodes as f64).max(1.0);
        // An interval longer than the run takes no checkpoint, so the run decides instead.
        let every =
            every_seconds(choice).map_or("auto".to_owned(), |seconds| format!("{seconds:.0}s"));
        table.insert(Setting::GroupSize, value::Value::number(job.group.size()));
        table.insert(Setting::Parities, value::Value::number(job.group.parities()));
        table.insert(Setting::Every, value::Value::text(every));
        table.insert(Setting::Mtbf, value::Value::text(format!("{mtbf_seconds:.0}s")));
        if machine.helper_cores > 0 {
            table.insert(Setting::HelperCores, value::Value::number(machine.helper_cores));
        }
    }
    if let Some(level) = level {
        table.insert(Setting::Level, value::Value::text(level));
    }
    table
}

fn specification(
    args: &PlanArgs,
    machine: &PlannedMachine,
    plan: &Plan,
) -> Result<RunSpec, Failed> {
    let mut draft = Draft::default();
    let numbers = [
        (Param::N, plan.choice().n),
        (Param::Nb, args.nb),
        (Param::P, plan.grid.0),
        (Param::Q, plan.grid.1),
        (Param::Threads, args.threads),
    ];
    for (param, number) in numbers {
        draft.values.insert(param, vec![value::Value::number(number)]);
    }
    let rates = machine.column_core_flops(plan.grid);
    if !rates.is_empty() {
        draft.values.insert(Param::Rates, vec![value::Value::text(rates_list(&rates))]);
        // Launchers fill nodes one by one.
        draft.values.insert(Param::Pmap, vec![value::Value::text("column")]);
    }
    let (source, is_mxp) = ("skt-hpl plan", args.mxp);
    let rules = ValidationRules { lenient: false, ranks: None, source, is_mxp };
    let title =
        format!("skt-hpl plan: {} nodes, {}", machine.nodes, protection_words(plan.choice()));
    let title = ["HPLinpack benchmark input file".to_owned(), title];
    Ok(RunSpec { title, ..validate(&draft, &rules)?.spec })
}
