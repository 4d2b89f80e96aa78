//! `skt-hpl model`: the papers' figures, and the simulator.

use std::fs;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};

use super::model_levels::{self, StatedLevels};
use super::study_error::StudyError;
use super::{figure, path};
use crate::model::bosilca::{Application, Platform, WasteModel};
use crate::model::error::{at_least, positive};
use crate::model::figures;
use crate::model::inmemory::InMemoryJob;
use crate::model::plot::Figure;
use crate::model::sim::coordinated::Protection;
use crate::model::sim::stats::{Estimate, Proportion};
use crate::model::sim::trace::Trace;
use crate::model::sim::{Ages, Batch, CoordinatedJob, HierarchicalJob, Law, Summary};
use crate::model::tang::memory::Protocol;
use crate::model::{Group, HOUR_SECONDS, YEAR_SECONDS, exact, optimum};
use crate::report::{outfile, output};

/// Flags of `model`.
#[derive(Debug, Args)]
pub struct ModelArgs {
    /// What to do
    #[command(subcommand)]
    pub command: ModelCommand,
}

/// What `model` can do.
#[derive(Debug, Subcommand)]
pub enum ModelCommand {
    /// Write all figures as SVG and CSV, with an index page
    All(AllArgs),
    /// Write one figure
    Figure(FigureArgs),
    /// List the figures
    List,
    /// Print the waste of every protocol, application and platform of Bosilca et al.
    Waste(WasteArgs),
    /// Simulate a checkpointed job many times
    Simulate(Box<SimulateArgs>),
    /// Predict where the time of a run goes: the critical path of the solver, part by part
    Path(Box<path::PathArgs>),
}

/// Flags of `model all`.
#[derive(Debug, Args)]
pub struct AllArgs {
    /// Folder to write to; created if it is missing
    #[arg(long, short, value_name = "DIR")]
    pub out: PathBuf,
}

/// Flags of `model figure`.
#[derive(Debug, Args)]
pub struct FigureArgs {
    /// Name of the figure, see `model list`
    pub name: String,
    /// File to write, .svg or .csv [default: CSV on standard output]
    #[arg(long, short, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Overwrite the file if it exists
    #[arg(long, short)]
    pub force: bool,
}

/// Flags of `model waste`.
#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
pub struct WasteArgs {
    /// Mean time between failures of one processor, in years
    #[arg(long, value_name = "YEARS", default_value_t = 50.0)]
    pub processor_mtbf_years: f64,
    /// Time to write the whole memory, in seconds [default: the paper's, by platform]
    #[arg(long, value_name = "S")]
    pub checkpoint_seconds: Option<f64>,
}

/// Protocols of `model simulate`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ProtocolName {
    /// Restart from zero at every failure
    None,
    /// In memory, one copy; a failure during a checkpoint loses the data
    Single,
    /// In memory, two copies
    Double,
    /// In memory, one copy and the workspace itself
    #[value(name = "self")]
    SelfCheckpoint,
    /// Checksums in the elimination: nothing is saved, and a failure destroys no more than the step
    /// of --interval-seconds that it strikes
    Abft,
    /// Coordinated, to stable storage
    Coordinated,
    /// Groups that checkpoint one after the other to stable storage, with message logging
    Hierarchical,
}

/// Laws of `model simulate`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LawName {
    /// Memoryless
    Exponential,
    /// With --shape
    Weibull,
    /// With --sigma
    LogNormal,
}

/// Flags of `model simulate`.
#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
pub struct SimulateArgs {
    /// What protects the job
    #[arg(long, value_name = "PROTOCOL", default_value = "self")]
    pub protocol: ProtocolName,
    /// Nodes
    #[arg(long, value_name = "NODES", default_value_t = 1_000)]
    pub nodes: usize,
    /// Spare nodes [default: as many as needed]
    #[arg(long, value_name = "NODES")]
    pub spares: Option<usize>,
    /// Members of a group (in memory), or number of groups (hierarchical)
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub group: usize,
    /// Parities of a group
    #[arg(long, value_name = "M", default_value_t = 1)]
    pub parities: usize,
    /// Mean time between failures of one node, in hours
    #[arg(long, value_name = "HOURS", default_value_t = 43_800.0)]
    pub node_mtbf_hours: f64,
    /// How nodes fail
    #[arg(long, value_name = "LAW", default_value = "exponential")]
    pub law: LawName,
    /// Shape of the Weibull law
    #[arg(long, value_name = "K", default_value_t = 0.7)]
    pub shape: f64,
    /// Deviation of the logarithm of the log-normal law
    #[arg(long, value_name = "SIGMA", default_value_t = 1.0)]
    pub sigma: f64,
    /// Failures from a file instead: a line each, `seconds node`
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Length of the trace's record, in hours [default: a mean gap after its last failure]
    #[arg(long, value_name = "HOURS")]
    pub trace_hours: Option<f64>,
    /// All nodes are new at the start, instead of as old as in a machine long in use
    #[arg(long)]
    pub new_nodes: bool,
    /// Work to do, in hours of full speed
    #[arg(long, value_name = "HOURS", default_value_t = 24.0)]
    pub work_hours: f64,
    /// One checkpoint (of one group, where they take turns), in seconds; 0 with abft
    #[arg(long, value_name = "S", default_value_t = 20.0)]
    pub checkpoint_seconds: f64,
    /// Share of the speed that is left during a checkpoint
    #[arg(long, value_name = "0..1", default_value_t = 0.0)]
    pub overlap: f64,
    /// Work between two checkpoints, in seconds [default: the best for the exact form]; with abft
    /// that of a step, which has to be given
    #[arg(long, value_name = "S")]
    pub interval_seconds: Option<f64>,
    /// Detection and relaunch, in seconds
    #[arg(long, value_name = "S", default_value_t = 60.0)]
    pub downtime_seconds: f64,
    /// Rebuild or reload, in seconds
    #[arg(long, value_name = "S", default_value_t = 20.0)]
    pub recovery_seconds: f64,
    /// Levels of images beside the memory: local:RATE (of each node) or global:RATE (for all), as
    /// 2GB/s; then ,every=auto (the best) or a time ,cost=TIME that the work loses to an image (else
    /// all of the time that it is written) ,mtbf=TIME between failures that need it (else 30 days);
    /// several with commas between them
    #[arg(long, value_name = "LEVELS", requires = "image_gib")]
    pub level: Option<StatedLevels>,
    /// Image of a node, in GiB
    #[arg(long, value_name = "GIB", requires = "level")]
    pub image_gib: Option<f64>,
    /// Start the work anew when data are lost, instead of giving up
    #[arg(long)]
    pub restart: bool,
    /// Speed with message logging (hierarchical)
    #[arg(long, value_name = "0..1", default_value_t = 0.98)]
    pub logging_speed: f64,
    /// Speed of re-execution from the logs (hierarchical)
    #[arg(long, value_name = "X", default_value_t = 1.5)]
    pub replay_speed: f64,
    /// Growth of a checkpoint by logged messages a second of work, as a share of it (hierarchical)
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    pub growth_per_second: f64,
    /// Give up a run after this many times the work
    #[arg(long, value_name = "X", default_value_t = 1_000.0)]
    pub give_up: f64,
    /// Independent runs
    #[arg(long, value_name = "RUNS", default_value_t = 1_000)]
    pub runs: usize,
    /// Seed of the random numbers
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    pub seed: u64,
    /// Threads [default: one a core]
    #[arg(long, value_name = "T")]
    pub threads: Option<usize>,
    /// Confidence of the intervals
    #[arg(long, value_name = "0..1", default_value_t = 0.95)]
    pub confidence: f64,
}

/// Does what the subcommand says.
///
/// # Errors
/// A flag is not legal, a trace cannot be read, a file cannot be written.
pub fn execute(args: &ModelArgs) -> Result<(), StudyError> {
    match &args.command {
        ModelCommand::All(args) => write_all(&args.out),
        ModelCommand::Figure(args) => write_one(args),
        ModelCommand::List => {
            let names: String = figures::names().map(|name| format!("{name}\n")).collect();
            Ok(output::print(names.as_bytes())?)
        }
        ModelCommand::Waste(args) => print_waste(args),
        ModelCommand::Simulate(args) => simulate(args),
        ModelCommand::Path(args) => path::execute(args),
    }
}

fn write_all(folder: &Path) -> Result<(), StudyError> {
    fs::create_dir_all(folder).map_err(|source| file_error("create", folder, source))?;
    let names: Vec<&str> = figures::names().collect();
    let bar = ProgressBar::new("figures", names.len());
    let mut made: Vec<Figure> = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let figure = figures::make(name)?;
        write(&folder.join(format!("{name}.svg")), &figure.svg())?;
        write(&folder.join(format!("{name}.csv")), &figure.csv())?;
        made.push(figure);
        bar.show(index + 1);
    }
    bar.end();
    let index = folder.join("index.html");
    write(&index, &figures::index_page(&made))?;
    output::say(format_args!("{} figures; open {}", made.len(), index.display()));
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<(), StudyError> {
    outfile::write(path, text.as_bytes()).map_err(|source| file_error("write", path, source))
}

fn file_error(what: &'static str, path: &Path, source: std::io::Error) -> StudyError {
    StudyError::File { what, file: path.display().to_string(), source }
}

fn write_one(args: &FigureArgs) -> Result<(), StudyError> {
    let figure = figures::make(&args.name)?;
    let Some(path) = &args.out else { return Ok(output::print(figure.csv().as_bytes())?) };
    figure::write(&figure, path, args.force)
}

fn print_waste(args: &WasteArgs) -> Result<(), StudyError> {
    let mut csv = String::from(
        "platform,application,scenario,groups,checkpoint_seconds,growth_per_second,\
         platform_mtbf_hours,valid_period_seconds,valid_waste_fraction,best_period_seconds,\
         best_waste_fraction,best_validity\n",
    );
    for mut platform in Platform::ALL {
        if let Some(seconds) = args.checkpoint_seconds {
            platform = platform.with_checkpoint_seconds(seconds);
        }
        let mtbf_seconds = platform.mtbf_seconds(args.processor_mtbf_years * YEAR_SECONDS);
        for application in Application::ALL {
            for scenario in application.scenarios() {
                let model = scenario.model(&platform, application);
                let valid = model.best_valid_period(mtbf_seconds)?;
                let best = model.best_period(mtbf_seconds)?;
                let period =
                    |p: Option<f64>| p.map_or_else(String::new, |seconds| format!("{seconds:.1}"));
                csv += &format!(
                    "{},{},{},{},{:.4},{:.4e},{:.4},{},{:.4},{},{:.4},{:?}\n",
                    platform.name,
                    application.name(),
                    scenario.name(),
                    model.groups,
                    model.checkpoint_seconds,
                    model.growth_per_second,
                    mtbf_seconds / HOUR_SECONDS,
                    period(valid.period_seconds),
                    valid.waste,
                    period(best.period_seconds),
                    best.waste,
                    best.validity
                );
            }
        }
    }
    Ok(output::print(csv.as_bytes())?)
}

fn simulate(args: &SimulateArgs) -> Result<(), StudyError> {
    if !(args.confidence > 0.0 && args.confidence < 1.0) {
        let given = args.confidence;
        return Err(StudyError::Usage(format!("--confidence {given}: legal is between 0 and 1")));
    }
    positive("work_hours", args.work_hours)?;
    at_least("nodes", args.nodes, 1, "1 or more")?;
    let batch = Batch {
        runs: args.runs,
        seed: args.seed,
        threads: args.threads.unwrap_or(0),
        nodes: args.nodes,
        law: law(args)?,
        ages: if args.new_nodes { Ages::New } else { Ages::Steady },
    };
    let bar = ProgressBar::new("runs", args.runs);
    let show = |done: usize| bar.show(done);
    let (summary, unharmed, formula) = if let Some((levels, gib)) =
        args.level.as_ref().zip(args.image_gib)
    {
        let node_bytes = positive("image_gib", gib)? * f64::from(1u32 << 30);
        let levelled = levels.job(args, node_bytes)?;
        let nodes = levelled.job.all_nodes();
        let batch = Batch { nodes, law: levelled.law.clone(), ..batch };
        let summary = batch.run(&levelled.job, &show)?;
        (summary, None, vec![model_levels::formula(&levelled)])
    } else if args.protocol == ProtocolName::Hierarchical {
        let (job, formula) = hierarchical(args)?;
        (batch.run(&job, &show)?, None, formula)
    } else {
        let (job, formula) = coordinated(args)?;
        let summary = batch.run(&job, &show)?;
        let unharmed = unharmed(&job, &summary).map(|job| batch.run(&job, &show)).transpose()?;
        (summary, unharmed, formula)
    };
    bar.end();
    Ok(output::print(report(args, &summary, unharmed.as_ref(), &formula).as_bytes())?)
}

/// The same job where no failure loses data and spares are enough: what formulas of time
/// and waste are about. None where all runs of `summary` were so.
fn unharmed(job: &CoordinatedJob, summary: &Summary) -> Option<CoordinatedJob> {
    let harmed = summary.lost_data.hits + summary.out_of_spares.hits > 0;
    let in_memory = matches!(job.protection, Protection::Memory { .. });
    (harmed && in_memory).then_some(CoordinatedJob {
        protection: Protection::Stable,
        spares: None,
        ..*job
    })
}

fn law(args: &SimulateArgs) -> Result<Law, StudyError> {
    if let Some(path) = &args.trace {
        let text = fs::read_to_string(path).map_err(|source| file_error("read", path, source))?;
        let span_seconds = args.trace_hours.map(|hours| hours * HOUR_SECONDS);
        return Ok(Law::Trace(Trace::parse(&text, span_seconds)?));
    }
    let mtbf_seconds = args.node_mtbf_hours * HOUR_SECONDS;
    let law = match args.law {
        LawName::Exponential => Law::Exponential { mtbf_seconds },
        LawName::Weibull => Law::Weibull { mtbf_seconds, shape: args.shape },
        LawName::LogNormal => Law::LogNormal { mtbf_seconds, sigma: args.sigma },
    };
    law.validate()?;
    Ok(law)
}

/// Mean time between failures of all nodes.
fn system_mtbf_seconds(args: &SimulateArgs) -> Result<f64, StudyError> {
    at_least("nodes", args.nodes, 1, "1 or more")?;
    Ok(match law(args)? {
        Law::Trace(trace) => trace.system_mtbf_seconds(),
        _ => args.node_mtbf_hours * HOUR_SECONDS / args.nodes as f64,
    })
}

/// What a formula says: of what, by which one, and its value.
type Formula = (&'static str, String, f64);

fn coordinated(args: &SimulateArgs) -> Result<(CoordinatedJob, Vec<Formula>), StudyError> {
    let is_abft = args.protocol == ProtocolName::Abft;
    let checkpoint_seconds = if is_abft { 0.0 } else { args.checkpoint_seconds };
    let model = WasteModel::coordinated(
        checkpoint_seconds,
        args.recovery_seconds,
        args.downtime_seconds,
        args.overlap,
    );
    model.validate()?;
    let mtbf_seconds = system_mtbf_seconds(args)?;
    positive("system_mtbf_seconds", mtbf_seconds)?;
    positive("work_hours", args.work_hours)?;
    let protected = args.protocol != ProtocolName::None;
    let interval_seconds = match args.interval_seconds {
        _ if !protected => f64::INFINITY,
        Some(given) => given,
        None if is_abft => {
            return Err(StudyError::Usage(
                "--protocol abft: give --interval-seconds, the seconds of a step".into(),
            ));
        }
        None => best_interval_seconds(&model, mtbf_seconds),
    };
    let work_seconds = args.work_hours * HOUR_SECONDS;
    let protection = match args.protocol {
        ProtocolName::None => Protection::Nothing,
        ProtocolName::Coordinated | ProtocolName::Hierarchical => Protection::Stable,
        ProtocolName::Single
        | ProtocolName::Double
        | ProtocolName::SelfCheckpoint
        | ProtocolName::Abft => Protection::Memory {
            group: Group::new(args.group, args.parities)?,
            update_is_fatal: args.protocol == ProtocolName::Single,
        },
    };
    let job = CoordinatedJob {
        work_seconds,
        interval_seconds,
        checkpoint_seconds,
        overlap_fraction: args.overlap,
        downtime_seconds: args.downtime_seconds,
        recovery_seconds: args.recovery_seconds,
        protection,
        spares: args.spares,
        stop_at_loss: !args.restart,
        checkpoint_at_end: false,
        limit_seconds: args.give_up * work_seconds,
    };
    job.validate()?;
    let mut formulas = Vec::new();
    if protected {
        let period_seconds = interval_seconds + checkpoint_seconds;
        let validity = model.validity(period_seconds, mtbf_seconds);
        formulas.push((
            "waste",
            format!("Bosilca et al., eq. 5, T = {period_seconds:.0} s ({validity:?})"),
            model.waste(period_seconds, mtbf_seconds),
        ));
        formulas.push((
            "waste",
            "exact for exponential failures and long runs".into(),
            exact::coordinated_waste(&model, period_seconds, mtbf_seconds),
        ));
    }
    if let Protection::Memory { group, .. } = protection {
        formulas.extend(in_memory_formulas(args, group, &job)?);
    }
    Ok((job, formulas))
}

/// Probabilities for in-memory checkpoints and exponential failures; none for
/// other laws.
fn in_memory_formulas(
    args: &SimulateArgs,
    group: Group,
    job: &CoordinatedJob,
) -> Result<Vec<Formula>, StudyError> {
    if args.trace.is_some() || args.law != LawName::Exponential {
        return Ok(Vec::new());
    }
    let protocol = match args.protocol {
        ProtocolName::Single => Protocol::Single,
        ProtocolName::Double => Protocol::Double,
        ProtocolName::Abft => Protocol::Abft,
        _ => Protocol::SelfCheckpoint,
    };
    let expected = InMemoryJob {
        protocol,
        group,
        nodes: args.nodes,
        spares: args.spares,
        node_mtbf_seconds: args.node_mtbf_hours * HOUR_SECONDS,
        work_seconds: job.work_seconds,
        checkpoint_seconds: job.checkpoint_seconds,
        overlap_fraction: job.overlap_fraction,
        downtime_seconds: job.downtime_seconds,
        recovery_seconds: job.recovery_seconds,
    }
    .expect(job.interval_seconds)?;
    let named = |what, value| (what, "exponential failures".to_string(), value);
    let mut formulas = vec![
        ("waste", "exponential failures, a run of this length".into(), 1.0 - expected.efficiency),
        named("time (h)", expected.time_seconds / HOUR_SECONDS),
        named("P(no data lost)", expected.keeps_data_probability),
    ];
    if args.spares.is_some() {
        formulas.push(named("P(spares suffice)", expected.spares_suffice_probability));
    }
    Ok(formulas)
}

fn best_interval_seconds(model: &WasteModel, mtbf_seconds: f64) -> f64 {
    let checkpoint_seconds = model.checkpoint_seconds;
    let shortest_seconds = checkpoint_seconds.max(1e-4 * mtbf_seconds);
    let best =
        optimum::minimize_log(shortest_seconds, shortest_seconds + 10.0 * mtbf_seconds, |period| {
            exact::coordinated_waste(model, period + 1e-9, mtbf_seconds)
        });
    (best.at - checkpoint_seconds).max(1e-6 * mtbf_seconds)
}

fn hierarchical(args: &SimulateArgs) -> Result<(HierarchicalJob, Vec<Formula>), StudyError> {
    if args.spares.is_some() || args.restart {
        return Err(StudyError::Usage(
            "--spares and --restart have no meaning for --protocol hierarchical: it checkpoints to \
             stable storage and every node is replaced"
                .into(),
        ));
    }
    let model = WasteModel {
        groups: args.group,
        checkpoint_seconds: args.checkpoint_seconds,
        recovery_seconds: args.recovery_seconds,
        downtime_seconds: args.downtime_seconds,
        overlap_fraction: args.overlap,
        logging_speed: args.logging_speed,
        replay_speed: args.replay_speed,
        growth_per_second: args.growth_per_second,
    };
    let mtbf_seconds = system_mtbf_seconds(args)?;
    let best = model.best_period(mtbf_seconds)?;
    let checkpoints_seconds = args.group as f64 * args.checkpoint_seconds;
    let period_seconds = match (args.interval_seconds, best.period_seconds) {
        (Some(interval), _) => interval + checkpoints_seconds,
        (None, Some(period)) => period,
        (None, None) => {
            return Err(StudyError::Usage(format!(
                "the checkpoints of {} groups take {checkpoints_seconds} s, longer than any useful \
                 period at an MTBF of {mtbf_seconds:.0} s; give --interval-seconds",
                args.group
            )));
        }
    };
    let work_seconds = args.work_hours * HOUR_SECONDS;
    let periods = (work_seconds / (args.logging_speed * model.work_seconds(period_seconds)))
        .ceil()
        .max(1.0) as u64;
    let job = HierarchicalJob {
        model,
        period_seconds,
        periods,
        nodes: args.nodes,
        limit_seconds: args.give_up * work_seconds,
    };
    job.validate()?;
    let validity = model.validity(period_seconds, mtbf_seconds);
    let formulas = vec![
        (
            "waste",
            format!("Bosilca et al., eq. 15, T = {period_seconds:.0} s ({validity:?})"),
            model.waste(period_seconds, mtbf_seconds),
        ),
        ("waste", "the same, composed".into(), model.composed_waste(period_seconds, mtbf_seconds)),
    ];
    Ok((job, formulas))
}

fn report(
    args: &SimulateArgs,
    summary: &Summary,
    unharmed: Option<&Summary>,
    formulas: &[Formula],
) -> String {
    let confidence = args.confidence;
    let mut lines = format!(
        "{} runs, seed {}, {} nodes; intervals hold with {} %\n",
        args.runs,
        args.seed,
        args.nodes,
        100.0 * confidence
    );
    let mean = |name: &str, estimate: &Estimate, unit: &str, factor: f64| {
        if estimate.count == 0 {
            return format!("{name:<28} none\n");
        }
        let value = factor * estimate.mean;
        if estimate.count == 1 {
            return format!("{name:<28} {value:.5} {unit} (one run)\n");
        }
        let half = factor * estimate.half_width(confidence);
        format!("{name:<28} {value:.5} +- {half:.5} {unit}\n")
    };
    let share = |name: &str, proportion: &Proportion| {
        let (low, high) = proportion.interval(confidence);
        format!(
            "{name:<28} {:.3} % ({:.3} to {:.3})\n",
            100.0 * proportion.value(),
            100.0 * low,
            100.0 * high
        )
    };
    lines += &share("finished", &summary.finished);
    lines += &share("lost data", &summary.lost_data);
    lines += &share("out of spares", &summary.out_of_spares);
    lines += &share("given up", &summary.timed_out);
    lines += &mean(
        "time of those that finished",
        &summary.finished_time_seconds,
        "h",
        1.0 / HOUR_SECONDS,
    );
    lines += &mean("waste", &summary.waste, "(fraction)", 1.0);
    lines += &mean("in outages", &summary.outage_fraction, "(fraction)", 1.0);
    lines += &mean("failures a run", &summary.failures, "", 1.0);
    if let Some(unharmed) = unharmed {
        lines += "if no failure lost data and spares were enough, as the formulas have it:\n";
        let time = &unharmed.finished_time_seconds;
        lines += &mean("time", time, "h", 1.0 / HOUR_SECONDS);
        lines += &mean("waste", &unharmed.waste, "(fraction)", 1.0);
    }
    for (what, how, value) in formulas {
        lines += &format!("{:<28} {value:.5} {how}\n", format!("{what} by formula"));
    }
    lines
}

/// A line on the terminal that says how far things are; silent elsewhere.
struct ProgressBar {
    what: &'static str,
    total: usize,
    visible: bool,
}

impl ProgressBar {
    fn new(what: &'static str, total: usize) -> Self {
        Self { what, total, visible: std::io::stderr().is_terminal() }
    }

    fn show(&self, done: usize) {
        const WIDTH: usize = 40;
        // Two hundred updates are as smooth as a thousand.
        let step = (self.total / 200).max(1);
        if !self.visible || (!done.is_multiple_of(step) && done != self.total) {
            return;
        }
        let filled = WIDTH * done / self.total.max(1);
        let bar = "#".repeat(filled) + &".".repeat(WIDTH - filled);
        // A progress bar that cannot be written is no error.
        let _ = write!(std::io::stderr(), "\r{} [{bar}] {done}/{}", self.what, self.total);
    }

    fn end(&self) {
        if self.visible {
            let _ = writeln!(std::io::stderr());
        }
    }
}
