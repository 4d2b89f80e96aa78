use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use serde_json::json;

use super::chosen::Chosen;
use super::failed::Failed;
use super::node_memory::{self, Alike, NodeList};
use super::pace::measured_gflops;
use super::plan_levels::{self, LevelArgs};
use super::{by_hand, machine};
use crate::report::output;
use crate::report::reader::{self, RunReport};
use skt_config::param::Param;
use skt_config::value::Value;
use skt_config::{
    CheckpointDraft, Draft, LaunchDraft, RunSpec, Setting, ValidationRules, validate,
};
use skt_health::environment::library::take_default;
use skt_host::infile::{self, LIST_BYTES_MAX};
use skt_host::messages;
use skt_host::ranges::{above_zero, share, share_above_zero, zero_or_above};
use skt_host::starter::Ranks;
use skt_model::HOUR_SECONDS;
use skt_model::chen::Network;
use skt_model::kinds::NodeKinds;
use skt_model::path;
use skt_model::plan::{Candidate, Plan, PlannedMachine, WhatIf, networked};
use skt_model::table::{Fields, table};
use skt_model::tang::memory::Protocol;
use skt_run::protect::Settings;

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
    pub(crate) memory_gib: Option<NodeList>,
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
    /// them [default: fitted on two cores of an AMD EPYC (Zen 4)]
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
    let mut notes = Vec::new();
    let ways = ways(args, &mut notes)?;
    let (machine, plan) = ways.best()?;
    let levels = args.levels.plan(machine, plan)?;
    let level = args.levels.setting(levels.as_deref().unwrap_or_default())?;
    if plan.choice().job.protocol.takes_checkpoints() && every_seconds(plan.choice()).is_none() {
        notes.push("warning: no checkpoint is due before the end of the run".to_owned());
    }
    let what_ifs = machine.what_ifs(plan)?;
    let mut lists = vec![
        ("Uncertain", "uncertain", what_ifs.iter().map(what_if_fields).collect()),
        ("Nodes", "ways", ways.fields()),
    ];
    if let Some(levels) = &levels {
        lists.insert(0, ("Images", "levels", levels.iter().map(plan_levels::fields).collect()));
    }
    let text = answer(machine, plan, &notes, &lists, args.json);
    let Some(path) = &args.out else { return Ok(output::print(&text)?) };
    let machine = &machine.running(plan.choice().job.protocol);
    let protection = &protection_table(machine, plan, level);
    let spec = &specification(args, machine, plan)?;
    // A run must accept what is written.
    Settings::read(protection, spec)?;
    let chosen = Chosen { spec, protection, launch: &LaunchDraft::new(), path };
    if to_stdout {
        messages::print(format_args!("{text}"));
    } else {
        output::print(&text)?;
    }
    let start = how_to_run(machine, plan.choice(), &chosen.flags());
    Ok(chosen.write("plan", &start, args.force)?)
}

/// The columns of each list, after its title and its key in JSON.
type List = (&'static str, &'static str, Vec<Fields>);

fn answer(
    machine: &PlannedMachine,
    plan: &Plan,
    notes: &[String],
    lists: &[List],
    is_json: bool,
) -> String {
    let (of_machine, of_run) = (machine_fields(machine, plan), run_fields(machine, plan));
    let all = |columns: &[Fields]| columns.iter().map(Fields::json).collect::<serde_json::Value>();
    if is_json {
        let mut document = of_run.json();
        document["machine"] = of_machine.json();
        document["notes"] = notes.into();
        document["choice"] = candidate_fields(plan.choice()).json();
        document["fastest"] = candidate_fields(&plan.candidates[plan.fastest]).json();
        document["candidates"] =
            all(&plan.candidates.iter().map(candidate_fields).collect::<Vec<_>>());
        for (_, key, columns) in lists {
            document[key] = all(columns);
        }
        return serde_json::to_string_pretty(&document).expect("numbers and names") + "\n";
    }
    let others = Protocol::ALL.into_iter().filter(|p| *p != plan.choice().job.protocol);
    let others = others.filter_map(|protocol| plan.best_of(protocol, machine.finish_probability));
    let best = [plan.chosen].into_iter().chain(others);
    let best = best.map(|index| candidate_fields(&plan.candidates[index])).collect();
    let titled = [
        ("Machine", vec![of_machine]),
        ("Run", vec![of_run]),
        ("The choice, and the best of each other protocol", best),
    ];
    let lists = lists.iter().map(|(title, _, columns)| (*title, columns.clone()));
    let mut texts: Vec<String> = titled
        .into_iter()
        .chain(lists.filter(|(_, columns)| !columns.is_empty()))
        .map(|(title, columns)| format!("{title}\n{}", table(&columns)))
        .collect();
    texts.extend(Some(notes.join("\n") + "\n").filter(|_| !notes.is_empty()));
    texts.join("\n")
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
        let kinds = machine.kinds.list().iter();
        let kind =
            kinds.map(|it| json!({ "nodes": it.nodes, "gflops_per_core": it.core_flops / 1e9 }));
        fields.push(("kinds", kind.collect()));
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
    let [_, checkpoints_seconds, outages_seconds, lost_seconds] = candidate.time_parts();
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
        ("in_checkpoints_seconds", json!(checkpoints_seconds)),
        ("in_outages_seconds", json!(outages_seconds)),
        ("lost_seconds", json!(lost_seconds)),
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

struct Way {
    nodes: NodeList,
    machine: PlannedMachine,
    plan: Result<Plan, Failed>,
}

/// A plan on each set of nodes: a node with little memory bounds what the others hold, and a slow
/// one may hold them up, so it may be better left out.
struct Ways(Vec<Way>);

impl Ways {
    fn rate(way: &Way) -> f64 {
        way.plan.as_ref().map_or(-1.0, |plan| plan.choice().expected_gflops)
    }

    fn best_way(&self) -> &Way {
        self.0.iter().max_by(|a, b| Self::rate(a).total_cmp(&Self::rate(b))).expect("a set")
    }

    fn best(&self) -> Result<(&PlannedMachine, &Plan), Failed> {
        let Way { machine, plan, .. } = self.best_way();
        plan.as_ref().map(|plan| (machine, plan)).map_err(|why| Failed::new(&*why.0))
    }

    /// None of a single way.
    fn fields(&self) -> Vec<Fields> {
        let fields = |way: &Way| {
            let choice = way.plan.as_ref().ok().map(Plan::choice);
            let by_rate = !way.machine.kinds.are_equal();
            Fields(vec![
                ("nodes", json!(way.machine.nodes)),
                ("gib", json!(way.nodes.gib())),
                ("blocks", json!(if by_rate { "by rate" } else { "equal" })),
                ("n", json!(choice.map(|choice| choice.n))),
                ("expected_gflops", json!(choice.map(|choice| choice.expected_gflops))),
                ("chosen", json!(std::ptr::eq(way, self.best_way()))),
            ])
        };
        self.0.iter().filter(|_| self.0.len() > 1).map(fields).collect()
    }
}

fn ways(args: &PlanArgs, notes: &mut Vec<String>) -> Result<Ways, Failed> {
    let all = nodes(args)?;
    let basis = basis(args, &all, notes)?;
    let mut ways = Vec::new();
    for nodes in all.sets() {
        let core = match nodes.rates()[..] {
            [gflops] => basis.core.with_core_flops(gflops * 1e9),
            _ => basis.core,
        };
        let node_memory_bytes = nodes.gib() * GIB * args.memory_fraction;
        let machine = PlannedMachine { nodes: nodes.nodes(), node_memory_bytes, core, ..basis };
        let machine = machine.with_kinds(nodes.kinds()?);
        let equal = (!machine.kinds.are_equal()).then(|| machine.with_equal_blocks());
        for machine in [machine].into_iter().chain(equal) {
            let plan = planned(&machine, args.ft);
            ways.push(Way { nodes: nodes.clone(), machine, plan });
        }
    }
    let refused = ways.iter().filter_map(|way| Some((way, way.plan.as_ref().err()?)));
    notes.extend(refused.map(|(way, why)| format!("{} node(s): {}", way.machine.nodes, why.0)));
    Ok(Ways(ways))
}

fn planned(machine: &PlannedMachine, ft: Option<Protocol>) -> Result<Plan, Failed> {
    if ft == Some(Protocol::Abft) && !machine.kinds.are_equal() {
        return Err(Failed::new(
            "--ft abft: its groups of block columns go in turn, and nodes of unequal speed get \
             blocks by their rates",
        ));
    }
    let plan = machine.plan()?;
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
    Ok(Plan { grid: choice.grid, chosen: best, fastest: best, keeps_data, ..plan })
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
    let command = by_hand::start(&ranks) + flags;
    if nodes == 1 || choice.job.protocol == Protocol::None {
        return command;
    }
    let spread = if machine.leaves_room { " --no-spare spread" } else { "" };
    let launch = by_hand::launch(HOSTFILE, spread, flags);
    format!("{command}\n{launch}")
}

type Reported = (RunReport, Vec<path::MeasuredTest>);

/// The machine without the number and the memory of its nodes.
fn basis(
    args: &PlanArgs,
    nodes: &NodeList,
    notes: &mut Vec<String>,
) -> Result<PlannedMachine, Failed> {
    if args.survive_without_spares && args.ft == Some(Protocol::None) {
        return Err(Failed::new(
            "--survive-without-spares: with --ft none a loss sends the run back to its start",
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
    let (cores, solver_cores) = node_cores(args)?;
    let core = core(args, nodes, &reports, notes)?;
    let copy_gbs = args.copy_gbs.unwrap_or_else(|| {
        let measured = measure_copy_gbs();
        notes.push(format!("copies: {measured:.1} GB/s, measured here on one core"));
        measured
    });
    let network = Network {
        latency_seconds: args.latency_us * 1e-6,
        transfer_seconds_per_byte: 1e-9 / args.bandwidth_gbs,
        reduce_seconds_per_byte: 1e-9 / copy_gbs,
    };
    Ok(PlannedMachine {
        nodes: 0,
        spares: args.spares,
        ranks_per_node: solver_cores / args.threads,
        threads: args.threads,
        cores_per_node: cores,
        helper_cores: args.helper_cores,
        node_memory_bytes: 0.0,
        leaves_room: args.survive_without_spares,
        core,
        kinds: NodeKinds::default(),
        rate_over_model: rate_over_model(&reports, &core, &network)?,
        network,
        copy_bytes_per_second: copy_gbs * 1e9,
        checkpoint_bytes_per_second: args.checkpoint_gbs.map(|rate| rate * 1e9),
        node_mtbf_seconds: args.node_mtbf_hours * HOUR_SECONDS,
        downtime_seconds: args.downtime_seconds,
        nb: args.nb,
        finish_probability: args.probability,
        is_mxp: args.mxp,
    })
}

fn nodes(args: &PlanArgs) -> Result<NodeList, Failed> {
    let mut list = match &args.memory_gib {
        Some(list) => list.clone(),
        None => {
            let gib = machine::available_bytes()? as f64 / GIB;
            NodeList(vec![Alike { nodes: 0, gib, gflops: None }])
        }
    };
    match (args.nodes, list.nodes()) {
        (nodes, 0) => list.0[0].nodes = nodes.unwrap_or(1),
        (Some(nodes), listed) if nodes != listed => {
            return Err(Failed::new(format!(
                "--nodes {nodes}, and --memory-gib lists {listed} nodes: leave out --nodes"
            )));
        }
        _ => {}
    }
    Ok(list)
}

/// Number of cores of a node, and how many of them the solver uses.
fn node_cores(args: &PlanArgs) -> Result<(usize, usize), Failed> {
    let cores = args.cores_per_node.map_or_else(machine::cores, Ok)?;
    let PlanArgs { threads, helper_cores, .. } = *args;
    let solver_cores = cores.saturating_sub(helper_cores);
    if threads == 0 || solver_cores < threads {
        return Err(Failed::new(format!(
            "--threads {threads} and --helper-cores {helper_cores} of {cores} cores a node: legal is \
             a rank of 1 thread or more next to the helper cores"
        )));
    }
    Ok((cores, solver_cores))
}

/// The seconds that a core takes for each unit of work, with the DGEMM rate that a flag gives, a
/// report has, the machine of a file has, or a measurement on this machine finds.
fn core(
    args: &PlanArgs,
    nodes: &NodeList,
    reports: &[Reported],
    notes: &mut Vec<String>,
) -> Result<path::Machine, Failed> {
    let core = match &args.machine {
        None => path::Machine::ZEN4_CORE,
        Some(file) => {
            let failed = |why: String| Failed::new(format!("'{}' {why}", file.display()));
            let text = infile::read_text(file, LIST_BYTES_MAX);
            let text = text.map_err(|why| failed(format!("cannot be read: {why}")))?;
            path::Machine::parse(&text).map_err(|why| failed(format!("is {why}")))?
        }
    };
    let has_rates = !nodes.rates().is_empty();
    if has_rates && (args.gflops_per_core.is_some() || !reports.is_empty()) {
        return Err(Failed::new(
            "--memory-gib has the rates of cores: leave out --gflops-per-core and --report",
        ));
    }
    let self_test = |report: &RunReport| report.dgemm_self_test.get("gflops_per_core")?.as_f64();
    let reported = reports.iter().filter_map(|(report, _)| self_test(report)).reduce(f64::max);
    let gflops = match args.gflops_per_core.or(reported) {
        Some(gflops) => gflops,
        None if has_rates || args.machine.is_some() => return Ok(core),
        None => {
            let (gflops, source) = measured_gflops(1)?;
            notes.push(source);
            gflops
        }
    };
    Ok(core.with_core_flops(gflops * 1e9))
}

/// The geometric mean over the tests of at least half of the largest order; 1 without reports.
fn rate_over_model(
    reports: &[Reported],
    core: &path::Machine,
    network: &Network,
) -> Result<f64, Failed> {
    let mut shares = Vec::new();
    for (report, tests) in reports {
        let hosts = report.host_ranks().len().max(1);
        for test in tests {
            let ranks = test.run.p * test.run.q;
            let machine = networked(core, network, hosts, ranks.div_ceil(hosts));
            let model_seconds = path::estimate_seconds(&test.run, &machine)?;
            shares.push((test.run.n, model_seconds / test.time_seconds));
        }
    }
    let Some(largest) = shares.iter().map(|(n, _)| *n).max() else {
        let why = "the reports have no test that ran to its end without checkpoints (--ft none)";
        return if reports.is_empty() { Ok(1.0) } else { Err(Failed::new(why)) };
    };
    shares.retain(|(n, _)| 2 * n >= largest);
    Ok((shares.iter().map(|(_, share)| share.ln()).sum::<f64>() / shares.len() as f64).exp())
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
    let Candidate { job, .. } = plan.choice();
    let mut table = CheckpointDraft::from([(Setting::Method, Value::text(job.protocol.name()))]);
    if job.protocol != Protocol::None {
        let mtbf_seconds = (machine.node_mtbf_seconds / machine.nodes as f64).max(1.0);
        // An interval longer than the run takes no checkpoint, so the run decides instead.
        let every = every_seconds(plan.choice());
        let every = every.map_or("auto".to_owned(), |seconds| format!("{seconds:.0}s"));
        table.insert(Setting::GroupSize, Value::number(job.group.size()));
        table.insert(Setting::Parities, Value::number(job.group.parities()));
        table.insert(Setting::Every, Value::text(every));
        table.insert(Setting::Mtbf, Value::text(format!("{mtbf_seconds:.0}s")));
        if machine.helper_cores > 0 {
            table.insert(Setting::HelperCores, Value::number(machine.helper_cores));
        }
    }
    table.extend(level.map(|level| (Setting::Level, Value::text(level))));
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
    draft.values.extend(numbers.map(|(param, number)| (param, vec![Value::number(number)])));
    let rates = machine.column_core_flops(plan.grid);
    if !rates.is_empty() {
        // What a product with 1e9 has rounded is no part of the user's number.
        let gflops = rates.iter().map(|flops| ((flops / 1e3).round() / 1e6).to_string());
        let gflops = gflops.collect::<Vec<_>>().join(",");
        draft.values.insert(Param::Rates, vec![Value::text(gflops)]);
        // Launchers fill nodes one by one.
        draft.values.insert(Param::Pmap, vec![Value::text("column")]);
    }
    let (source, is_mxp) = ("skt-hpl plan", args.mxp);
    let rules = ValidationRules { lenient: false, ranks: None, source, is_mxp };
    let protocol = plan.choice().job.protocol;
    let title = format!("skt-hpl plan: {} nodes, --ft {protocol}", machine.nodes);
    let title = ["HPLinpack benchmark input file".to_owned(), title];
    Ok(RunSpec { title, ..validate(&draft, &rules)?.spec })
}
