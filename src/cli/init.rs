//! `skt-hpl init`: writes a configuration that fits this machine.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;
use skt_terms::shown::shell_quoted;
use skt_terms::units::{counted, parse_seconds, span};

use super::convert::{FormatName, text};
use super::flags::Names;
use super::pace::{Pace, operations, too_short};
use super::{by_hand, machine};
use crate::report::output;
use skt_checkpoint::checkpoint::methods::Method;
use skt_config::value::Value;
use skt_config::{
    At, CheckpointDraft, ConfigError, Draft, Format, LaunchDraft, RunSpec, Setting, TestSpec,
    ValidationRules, param::Param, toml, validate,
};
use skt_health::environment::library;
use skt_host::starter::Ranks;
use skt_host::{launcher_rank, messages};
use skt_run::protect::{self, MAX_MEMBERS, Outlook, Settings, memory_split, smallest_group};
use skt_store::store::StoreKind;
use skt_terms::ranges::above_zero;

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct InitArgs {
    /// Part of the available memory that the matrix and its work space may take
    #[arg(long, value_name = "0..1", default_value_t = 0.8)]
    pub memory_fraction: f64,
    /// Memory to plan for, in GiB, e.g. for another machine [default: what is available on this
    /// machine]
    #[arg(long, value_name = "GIB")]
    pub(crate) memory_gib: Option<f64>,
    /// Time that the timed part may take, e.g. 1h: a smaller N than the memory holds, if need be
    #[arg(long, value_name = "TIME", value_parser = parse_seconds)]
    pub time: Option<f64>,
    /// Rate of the whole machine for --time, in Gflop/s, e.g. that of an earlier run [default: from
    /// the model, with DGEMM as measured on all cores of this machine]
    #[arg(long, value_name = "GFLOPS", value_parser = above_zero, requires = "time")]
    pub gflops: Option<f64>,
    /// JSON report of an earlier run on as many ranks and threads without checkpoints, whose rate
    /// --time takes in place of the model's
    #[arg(long, value_name = "FILE", requires = "time", conflicts_with = "gflops")]
    pub report: Option<PathBuf>,
    /// Ranks on this machine [default: (cores - helper cores) / threads]
    #[arg(long, value_name = "R")]
    pub ranks: Option<usize>,
    /// Threads per rank
    #[arg(long, value_name = "T", default_value_t = 1)]
    pub threads: usize,
    /// Checkpoint method to leave memory for [default: self if a checkpoint is due before the end
    /// of the run, else none]
    #[arg(long, value_name = "METHOD", value_parser = Names(Method::NAMES.to_vec()))]
    pub ft: Option<String>,
    /// Leave the memory for one rank more, which may come from a node that is lost without a spare
    /// (`launch --no-spare spread`); --ranks is then the number on one node
    #[arg(long)]
    pub survive_without_spares: bool,
    /// Lost ranks per group to leave memory for; with abft, per process row [default: as in a run
    /// without flags]
    #[arg(long, value_name = "M")]
    pub parities: Option<usize>,
    /// Cores to keep from the solver for the threads that encode and write images
    #[arg(long, value_name = "K", default_value_t = 0)]
    pub helper_cores: usize,
    /// Process rows [default: those of the grid nearest to a square; with abft, of the grid with
    /// the largest matrix]
    #[arg(long, value_name = "P")]
    pub p: Option<usize>,
    /// Process columns; with abft, those of the data [default: as with --p]
    #[arg(long, value_name = "Q")]
    pub q: Option<usize>,
    /// File to write; - is standard output [default: HPL.dat or HPL.toml, by --format]
    #[arg(long, short, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Form to write [default: by --out's extension, else dat]
    #[arg(long, value_name = "FORM")]
    pub format: Option<FormatName>,
    /// Overwrite the file if it exists
    #[arg(long, short)]
    pub force: bool,
    /// Then run `skt-hpl tune` on this machine for a minute, and write the values that it chooses
    /// into the file
    #[arg(long)]
    pub tune: bool,
    /// Write a configuration for HPL-MxP (`skt-hpl mxp`): a matrix in single precision, whose
    /// products are taken to be twice as fast as DGEMM; the time of the refinement is not counted
    #[arg(long)]
    pub mxp: bool,
}

/// Writes the configuration and shows how to run it.
pub(crate) fn execute(args: &InitArgs) -> Result<(), ConfigError> {
    // The rate of a core is measured.
    library::take_default();
    let (path, format) = file(args)?;
    if args.tune {
        can_tune(args, path)?;
    }
    let ranks = ranks(args)?;
    let available_bytes = match args.memory_gib {
        Some(gib) => (gib * f64::from(1 << 30)) as u64,
        None => machine::available_bytes()?,
    };
    let machine = &Room { ranks, available_bytes, pace: pace(args, ranks, available_bytes)? };
    let args = &worth_it(args, machine)?;
    let fitted = fit(args, machine)?;
    let Fitted { spec, protection, memory_n } = &fitted;
    let command = command_line(args, spec, ranks, format, path, None);
    let config = match format {
        Format::Dat => text(spec, &CheckpointDraft::new(), format)?,
        Format::Toml => format!(
            "# Made by `skt-hpl init` for this machine; run it with\n#   {command}\n\
             # A smaller n ends sooner (the time grows as n^3), but at a lower rate.\n\n{}",
            text(spec, protection, format)? + &toml::write_launch(&LaunchDraft::new())
        ),
    };
    output::write_file(path, &config, args.force)?;
    if output::is_stdout(path) {
        return Ok(());
    }
    let method = &protection[&Setting::Method].text;
    let with = match method.as_str() {
        "none" => "without checkpoints".to_owned(),
        "abft" => "with checksums (abft)".to_owned(),
        method => format!("with {method} checkpoints"),
    };
    messages::print(format_args!(
        "{}: {} on {}, {with}; run it with\n  {command}\n\
         or, for a first look,\n  {command} --n {}",
        path.display(),
        size_and_rate(args, spec, &machine.pace),
        counted(ranks, "rank"),
        spec.n[0].min(spec.nb[0] * 50),
    ));
    if let Some(limit_seconds) = args.time {
        messages::print(format_args!("{}", what_decides(spec, *memory_n, limit_seconds)));
    }
    if args.survive_without_spares {
        let full = InitArgs { survive_without_spares: false, ..args.clone() };
        messages::print(format_args!(
            "room: the memory for one rank more is left (`launch --no-spare spread`); without it \
             N = {}",
            fit(&full, machine)?.spec.n[0]
        ));
    }
    if machine.pace.seconds(spec, spec.n[0]).is_some() {
        let source = machine.pace.source();
        messages::print(format_args!("times are those of the timed part, {source}"));
    }
    if ranks > 1 {
        messages::print(format_args!("{}", methods(args, method, machine)));
    }
    if args.memory_gib.is_none() {
        warn_of_too_few_cores(args, ranks)?;
        warn_of_memory_that_is_left()?;
    }
    if args.tune {
        tune(&command_line(args, spec, ranks, format, path, Some(path)))
    } else {
        Ok(())
    }
}

/// The flags, with a method added where none is asked for: that of a run without flags if one of
/// its checkpoints is due before the end, else none.
fn worth_it(args: &InitArgs, machine: &Room) -> Result<InitArgs, ConfigError> {
    let is_asked = args.ft.is_some()
        || args.parities.is_some()
        || args.helper_cores > 0
        || args.survive_without_spares;
    if is_asked || machine.ranks == 1 || is_due(&fit(args, machine)?, &machine.pace)? {
        return Ok(args.clone());
    }
    Ok(InitArgs { ft: Some("none".to_owned()), ..args.clone() })
}

/// Whether the run takes a checkpoint before its end, if nothing slows it down.
pub(super) fn is_due(fitted: &Fitted, pace: &Pace) -> Result<bool, ConfigError> {
    let Fitted { spec, protection, .. } = fitted;
    let settings = Settings::read(protection, spec)?;
    Ok(pace.outlook(&spec.tests()[0], &settings) == Some(Outlook::Due))
}

/// A table of the methods that these ranks allow, with the cost and the benefit of each; `chosen`
/// has a star.
fn methods(args: &InitArgs, chosen: &str, machine: &Room) -> String {
    let line = |name: &str| -> Option<String> {
        let has_parities = name != "none" && args.ft.as_deref() != Some("none");
        let other = InitArgs {
            ft: Some(name.to_owned()),
            parities: args.parities.filter(|_| has_parities),
            helper_cores: if name == "none" || name == "abft" { 0 } else { args.helper_cores },
            survive_without_spares: args.survive_without_spares && name != "none",
            ..args.clone()
        };
        let fitted = fit(&other, machine).ok()?;
        let brings = match name {
            "none" => "a lost rank sends the run back to its start",
            "abft" => "continues where a rank was lost; residual not known for large N",
            _ if is_due(&fitted, &machine.pace).ok()? => "continues from its last checkpoint",
            _ => "as with none: the run ends before a checkpoint is due",
        };
        let star = if name == chosen { '*' } else { ' ' };
        Some(format!(
            "\n{star} --ft {name:<7} {}: {brings}",
            size_and_rate(args, &fitted.spec, &machine.pace)
        ))
    };
    let lines: String = ["none", "self", "double", "abft"].into_iter().filter_map(line).collect();
    let time = if args.time.is_some() { " within the time" } else { "" };
    format!(
        "what each method leaves of the memory{time}, and what it brings (* is written):{lines}"
    )
}

fn file(args: &InitArgs) -> Result<(&Path, Format), ConfigError> {
    let format = match (args.format, &args.out) {
        (Some(name), _) => name.into(),
        (None, Some(path)) => Format::from_path(path),
        (None, None) => Format::Dat,
    };
    let default_name = match format {
        Format::Dat => "HPL.dat",
        Format::Toml => "HPL.toml",
    };
    let path = args.out.as_deref().unwrap_or(Path::new(default_name));
    if !output::is_stdout(path) && Format::from_path(path) != format {
        return Err(At::flag("--out").error(format!(
            "{} would be read as another form: TOML ends in .toml, HPL.dat does not",
            path.display()
        )));
    }
    Ok((path, format))
}

/// Checks that `--tune` is possible: it measures this machine and changes a file.
fn can_tune(args: &InitArgs, path: &Path) -> Result<(), ConfigError> {
    let what = if output::is_stdout(path) {
        "takes a file: standard output cannot be tuned"
    } else if args.memory_gib.is_some() {
        "measures this machine, and --memory-gib plans for another: run `skt-hpl tune` there"
    } else if launcher_rank::rank().is_some() {
        "starts mpirun, which cannot be done within a job: run `skt-hpl tune` in it"
    } else {
        return Ok(());
    };
    Err(At::flag("--tune").error(what))
}

/// Runs the shell command `command`, which tunes the file that was written.
fn tune(command: &str) -> Result<(), ConfigError> {
    messages::print(format_args!("tuning for a minute: {command}"));
    let ended = Command::new("sh").arg("-c").arg(command).stdin(Stdio::null()).status();
    let why = match ended {
        Ok(status) if status.success() => return Ok(()),
        Ok(status) => status.to_string(),
        Err(error) => error.to_string(),
    };
    Err(ConfigError::Other(format!(
        "--tune: the file is written and not tuned, as this command failed ({why}); what it \
         printed is above; run it again when that is fixed:\n  {command}"
    )))
}

/// N, rate and time as text, `N = 23040 (4.0 GiB, about 109 Gflop/s, 1 min 14 s)`.
fn size_and_rate(args: &InitArgs, spec: &RunSpec, pace: &Pace) -> String {
    let n = spec.n[0];
    let element_bytes = if args.mxp { 4.0 } else { 8.0 };
    let gib = (n as f64) * (n as f64) * element_bytes / f64::from(1 << 30);
    match pace.seconds(spec, n) {
        Some(seconds) => {
            let gflops = 1e-9 * operations(n) / seconds;
            format!("N = {n} ({gib:.1} GiB, about {gflops:.0} Gflop/s, {})", span(seconds))
        }
        None => format!("N = {n} ({gib:.1} GiB)"),
    }
}

fn what_decides(spec: &RunSpec, memory_n: usize, limit_seconds: f64) -> String {
    let limit = span(limit_seconds);
    if spec.n[0] < memory_n {
        format!("the time ({limit}) decides; the memory would hold N = {memory_n}")
    } else {
        format!("the memory decides: it holds no N that takes {limit}")
    }
}

/// Warns where the ranks need more cores than this machine has.
fn warn_of_too_few_cores(args: &InitArgs, ranks: usize) -> Result<(), ConfigError> {
    let (needed, cores) = (ranks * args.threads + args.helper_cores, machine::cores()?);
    if needed > cores {
        messages::print(format_args!(
            "warning: {} of {} thread(s) need {needed} cores, and this machine has {cores}: they \
             share them and are slow, and Open MPI starts no more ranks than cores",
            counted(ranks, "rank"),
            args.threads
        ));
    }
    Ok(())
}

fn warn_of_memory_that_is_left() -> Result<(), ConfigError> {
    let stores = [("sysv", StoreKind::SysV { huge_pages: false }), ("posix", StoreKind::Posix)];
    for (name, kind) in stores {
        let left = protect::left_by_others(&*kind.open(), name, None);
        let left = left.map_err(|why| ConfigError::Other(why.to_string()))?;
        if let Some(left) = left {
            messages::print(format_args!("note: {left}"));
        }
    }
    Ok(())
}

/// The commands that run the configuration and, if `tuned` is a file, that tune it into that file.
fn command_line(
    args: &InitArgs,
    spec: &RunSpec,
    ranks: usize,
    format: Format,
    path: &Path,
    tuned: Option<&Path>,
) -> String {
    let mut command = by_hand::start(&Ranks {
        count: ranks,
        nodes: None,
        hostfile: "",
        threads: spec.threads,
        helper_cores: args.helper_cores,
    });
    if let Some(tuned) = tuned {
        let out = shell_quoted(&tuned.display().to_string());
        let mxp = if args.mxp { " --mxp" } else { "" };
        command.push_str(&format!(" tune{mxp} --budget 60s --force --out {out}"));
    } else if args.mxp {
        command.push_str(" mxp");
    }
    if path != Path::new("HPL.dat") {
        command.push_str(&format!(" --config {}", shell_quoted(&path.display().to_string())));
    }
    if format == Format::Dat && spec.threads > 1 {
        command.push_str(&format!(" --threads {}", spec.threads));
    }
    // HPL.dat cannot hold these settings.
    if format == Format::Dat {
        let method = args.ft.iter().map(|method| format!(" --ft {method}"));
        let parities = args.parities.iter().map(|parities| format!(" --parities {parities}"));
        command.extend(method.chain(parities));
        if args.helper_cores > 0 {
            command.push_str(&format!(" --helper-cores {}", args.helper_cores));
        }
    }
    command
}

fn ranks(args: &InitArgs) -> Result<usize, ConfigError> {
    if !(args.memory_fraction > 0.0 && args.memory_fraction <= 1.0) {
        let at = At::flag("--memory-fraction");
        return Err(at.out_of_range(args.memory_fraction, "more than 0, at most 1"));
    }
    if let Some(gib) = args.memory_gib.filter(|gib| !(*gib > 0.0 && *gib <= 1e9)) {
        return Err(At::flag("--memory-gib").out_of_range(gib, "more than 0, at most 1e9"));
    }
    if !(1..=4096).contains(&args.threads) {
        return Err(At::flag("--threads").out_of_range(args.threads, "1 to 4096"));
    }
    match args.ranks {
        Some(ranks) if (1..=1 << 20).contains(&ranks) => Ok(ranks),
        Some(ranks) => Err(At::flag("--ranks").out_of_range(ranks, "1 to 1048576")),
        None => match machine::cores()? {
            cores if cores > args.helper_cores => {
                Ok(((cores - args.helper_cores) / args.threads).max(1))
            }
            cores => {
                let legal = format!("less than the cores of this machine, which has {cores}");
                Err(At::flag("--helper-cores").out_of_range(args.helper_cores, legal))
            }
        },
    }
}

/// What a machine has: ranks, memory, and speed.
struct Room {
    ranks: usize,
    available_bytes: u64,
    pace: Pace,
}

/// The speed of the machine, from the flags or measured.
fn pace(args: &InitArgs, ranks: usize, available_bytes: u64) -> Result<Pace, ConfigError> {
    if args.time.is_none() {
        return Pace::measure_one_core();
    }
    let cores = ranks * args.threads;
    match (args.gflops, &args.report) {
        (Some(gflops), _) => Ok(Pace::given(gflops, cores, args.mxp)),
        (None, Some(path)) => {
            let fitted = fit_memory(args, ranks, available_bytes)?;
            Pace::from_report(path, &fitted.spec)
        }
        (None, None) => Pace::measure_all_cores(cores),
    }
}

/// A run that fits a machine.
#[derive(Debug)]
pub(super) struct Fitted {
    pub spec: RunSpec,
    /// The settings of the protection that the run was sized for.
    pub protection: CheckpointDraft,
    /// The largest N that fits the memory.
    pub memory_n: usize,
}

/// The largest problem that fits the memory and, if one is given, the time.
fn fit(args: &InitArgs, machine: &Room) -> Result<Fitted, ConfigError> {
    let mut fitted = fit_memory(args, machine.ranks, machine.available_bytes)?;
    let Some(limit_seconds) = args.time else { return Ok(fitted) };
    let spec = &mut fitted.spec;
    let seconds = |n| machine.pace.seconds(spec, n);
    spec.n = vec![n_in_time(limit_seconds, fitted.memory_n, spec.nb[0], seconds)?];
    spec.title[1] += &format!(", at most {}", span(limit_seconds));
    Ok(fitted)
}

pub(super) fn fit_memory(
    args: &InitArgs,
    ranks: usize,
    available_bytes: u64,
) -> Result<Fitted, ConfigError> {
    let mut draft = Draft { checkpoint: asked(args), ..Draft::default() };
    for (param, number) in [(Param::N, 0), (Param::Threads, args.threads)] {
        draft.values.insert(param, vec![Value::number(number)]);
    }
    for (param, side) in [(Param::P, args.p), (Param::Q, args.q)] {
        draft.values.extend(side.map(|side| (param, vec![Value::flag(side.to_string())])));
    }
    let (source, is_mxp) = ("skt-hpl init", args.mxp);
    let rules = ValidationRules { lenient: false, ranks: Some(ranks), source, is_mxp };
    let checked = validate(&draft, &rules)?;
    checked.require_ranks(ranks)?;
    let mut spec = checked.spec;
    let (settings, protection) = protection(args, &spec, ranks)?;
    let (is_left, counts) = (args.survive_without_spares, ranks as f64);
    if is_left && settings.method == Method::None {
        return Err(At::flag("--survive-without-spares").error(
            "without checkpoints a loss sends the run back to its start: give --ft self, or leave \
             the flag out",
        ));
    }
    let share = args.memory_fraction * if is_left { counts / (counts + 1.0) } else { 1.0 };
    let budget = (available_bytes as f64 * share) as u64;
    let (nb, test) = (spec.nb[0], spec.tests().remove(0));
    let sized = grids(args, &spec, ranks)
        .into_iter()
        .map(|(p, q)| (n_in_memory(budget, &TestSpec { p, q, ..test.clone() }, &settings), (p, q)));
    // Of equally good grids, the one nearest to a square is taken.
    let (largest, grid) = sized.max_by_key(|(n, _)| *n).expect("a grid");
    if largest == 0 {
        return Err(ConfigError::Other(format!(
            "{budget} bytes ({share} of {available_bytes} available) hold not even one block of \
             {nb} for each of {ranks} ranks; take fewer ranks or a larger \
             part of the memory (--memory-fraction; of auto, --memory)"
        )));
    }
    (spec.n, spec.grids) = (vec![largest], vec![grid]);
    let mib = available_bytes >> 20;
    spec.title = [
        "HPLinpack benchmark input file".to_owned(),
        format!(
            "skt-hpl init: {}{}, {} of {mib} MiB available",
            counted(ranks, "rank"),
            if is_left { " and room for one more" } else { "" },
            args.memory_fraction
        ),
    ];
    Ok(Fitted { spec, protection, memory_n: largest })
}

/// The grids to choose from, the flattest first: with checksums all with P at most Q, unless one is
/// asked for. A flat grid leaves a larger part of the ranks to data, a squarer one has smaller
/// panels.
fn grids(args: &InitArgs, spec: &RunSpec, ranks: usize) -> Vec<(usize, usize)> {
    let checksums = spec.checksums;
    if checksums == 0 || args.p.is_some() || args.q.is_some() {
        return spec.grids.clone();
    }
    let legal = checksums + 1..=MAX_MEMBERS;
    (1..=ranks)
        .filter(|&p| ranks.is_multiple_of(p) && legal.contains(&(ranks / p)))
        .map(|p| (p, ranks / p - checksums))
        .filter(|(p, q)| p <= q)
        .collect()
}

/// Bytes of all ranks of a test on one machine.
fn job_bytes(test: &TestSpec, settings: &Settings) -> u64 {
    let geometry = smallest_group(test, settings, std::iter::repeat_n("here", test.ranks()));
    memory_split(test, settings, geometry).total().saturating_mul(test.ranks() as u64)
}

fn asked(args: &InitArgs) -> CheckpointDraft {
    let method = args.ft.iter().map(|method| (Setting::Method, Value::flag(method)));
    let parities = args.parities.iter().map(|m| (Setting::Parities, Value::flag(m.to_string())));
    let helpers = (args.helper_cores > 0).then(|| Value::flag(args.helper_cores.to_string()));
    let helpers = helpers.map(|cores| (Setting::HelperCores, cores));
    method.chain(parities).chain(helpers).collect()
}

/// The protection to leave memory for: what the flags ask for, else what a run without flags has.
pub(super) fn protection(
    args: &InitArgs,
    spec: &RunSpec,
    ranks: usize,
) -> Result<(Settings, CheckpointDraft), ConfigError> {
    let settings = Settings::read(&asked(args), spec)?;
    let method = settings.method_for(ranks);
    if let Some(parities) = args.parities.filter(|_| method == Method::None) {
        return Err(At::flag("--parities").out_of_range(parities, "none, without checkpoints"));
    }
    let mut draft = CheckpointDraft::from([(Setting::Method, Value::text(method.to_string()))]);
    if method == Method::Abft {
        draft.insert(Setting::Parities, Value::number(settings.parities));
    } else if method != Method::None {
        let members = settings.group_size.min(ranks);
        draft.insert(Setting::GroupSize, Value::number(members));
        draft.insert(Setting::Parities, Value::number(settings.parities));
        draft.insert(Setting::Every, Value::text("auto"));
        draft.insert(Setting::Mtbf, Value::text("24h"));
        if settings.helper_cores > 0 {
            draft.insert(Setting::HelperCores, Value::number(settings.helper_cores));
        }
    }
    Ok((Settings { method, ..settings }, draft))
}

/// The largest multiple of NB with which a test like `test` takes at most `budget` bytes on all
/// ranks; 0 if there is none.
pub(super) fn n_in_memory(budget: u64, test: &TestSpec, settings: &Settings) -> usize {
    let bytes = |blocks| job_bytes(&TestSpec { n: blocks * test.nb, ..test.clone() }, settings);
    test.nb * largest(|blocks| bytes(blocks) <= budget)
}

/// The largest multiple of `nb`, at most `memory_n`, that takes no longer than the limit.
pub(super) fn n_in_time(
    limit_seconds: f64,
    memory_n: usize,
    nb: usize,
    seconds: impl Fn(usize) -> Option<f64>,
) -> Result<usize, ConfigError> {
    let in_time = |n| seconds(n).is_some_and(|seconds| seconds <= limit_seconds);
    let blocks = largest(|blocks| blocks * nb <= memory_n && in_time(blocks * nb));
    if blocks == 0 {
        return Err(too_short(limit_seconds, nb, seconds(nb)));
    }
    Ok(blocks * nb)
}

/// The largest number of blocks that `fits`, if all smaller ones do; 0 if none does.
fn largest(fits: impl Fn(usize) -> bool) -> usize {
    let (mut most, mut too_large) = (0, 1);
    while fits(too_large) {
        (most, too_large) = (too_large, too_large * 2);
    }
    while too_large - most > 1 {
        let middle = most + (too_large - most) / 2;
        if fits(middle) {
            most = middle;
        } else {
            too_large = middle;
        }
    }
    most
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use skt_config::MxpMatrix;
    use skt_solver::blas::library::blas_threads;

    #[test]
    fn the_rate_of_a_core_is_measured_on_one() {
        assert!(Pace::measure_one_core().unwrap().core_flops > 0.0);
        assert_eq!(blas_threads().unwrap_or(1), 1);
    }

    #[derive(clap::Parser)]
    struct Only {
        #[command(flatten)]
        init: InitArgs,
    }

    fn args() -> InitArgs {
        Only::parse_from(["x"]).init
    }

    #[test]
    fn a_matrix_in_single_precision_takes_half_of_the_memory() {
        for (ft, ranks) in [("none", 1), ("none", 16), ("self", 16), ("double", 8)] {
            let fitted = |mxp| {
                let args = InitArgs { mxp, ft: Some(ft.to_owned()), ..args() };
                fit_memory(&args, ranks, 1 << 36).unwrap()
            };
            let (hpl, mxp) = (fitted(false), fitted(true));
            assert_eq!(mxp.spec.mxp, Some(MxpMatrix::FasiHigham));
            let ratio = mxp.spec.n[0] as f64 / hpl.spec.n[0] as f64;
            assert!((1.38..1.43).contains(&ratio), "{ft}, {ranks} ranks: {ratio}");
            let budget = ((1u64 << 36) as f64 * 0.8) as u64;
            let (n, nb) = (mxp.spec.n[0], mxp.spec.nb[0]);
            assert!(bytes_at(&mxp, n) <= budget && bytes_at(&mxp, n + nb) > budget);
        }
        let asked = InitArgs { mxp: true, ft: Some("abft".into()), ..args() };
        let why = fit_memory(&asked, 12, 1 << 36).unwrap_err().to_string();
        assert!(why.starts_with("--ft: abft has no checksums for"), "{why}");
    }

    #[test]
    fn hpl_mxp_is_run_by_its_command_at_twice_the_rate() {
        let mxp = InitArgs { mxp: true, ft: Some("none".into()), ..args() };
        let Fitted { spec, protection, .. } = fit_memory(&mxp, 2, 1 << 34).unwrap();
        let line = command_line(&mxp, &spec, 2, Format::Dat, Path::new("a.dat"), None);
        assert!(line.ends_with(" mxp --config a.dat --ft none"), "{line}");
        let written = text(&spec, &protection, Format::Toml).unwrap();
        assert!(written.contains("\nmatrix = \"fasi-higham\"\n"), "{written}");
        let pace = Pace::measure_one_core().unwrap();
        let hpl = RunSpec { mxp: None, ..spec.clone() };
        let [of_mxp, of_hpl] = [&spec, &hpl].map(|spec| pace.seconds(spec, 20_160).unwrap());
        assert!((0.48..0.55).contains(&(of_mxp / of_hpl)), "{of_mxp} {of_hpl}");
    }

    /// Bytes of the job of a fitted run with another N.
    fn bytes_at(fitted: &Fitted, n: usize) -> u64 {
        let test = TestSpec { n, ..fitted.spec.tests().remove(0) };
        job_bytes(&test, &Settings::read(&fitted.protection, &fitted.spec).unwrap())
    }

    #[test]
    fn n_is_the_largest_multiple_of_nb_within_the_memory() {
        for (ranks, gib) in [(1, 1), (2, 24), (7, 3), (48, 512), (1000, 4096)] {
            for (ft, least) in [("none", 0.6), ("self", 0.6 * 0.25), ("", 0.6 * 0.25)] {
                let ft = Some(ft.to_owned()).filter(|ft| !ft.is_empty());
                if ranks == 1 && ft.as_deref() == Some("self") {
                    continue;
                }
                let available = gib << 30;
                let fitted = fit_memory(&InitArgs { ft, ..args() }, ranks, available).unwrap();
                let spec = &fitted.spec;
                let (n, nb, grid) = (spec.n[0], spec.nb[0], spec.grids[0]);
                assert_eq!(n % nb, 0);
                assert!(grid.0 <= grid.1 && grid.0 * grid.1 == ranks);
                let budget = (available as f64 * 0.8) as u64;
                assert!(bytes_at(&fitted, n) <= budget);
                assert!(bytes_at(&fitted, n + nb) > budget);
                // Work space is the smaller part.
                let matrix = n as f64 * n as f64 * 8.0;
                assert!(matrix > least * available as f64, "{ranks} ranks: {n}");
            }
        }
    }

    #[test]
    fn one_rank_has_no_checkpoints_and_none_to_ask_for() {
        let fitted = fit_memory(&args(), 1, 1 << 32).unwrap();
        assert_eq!(fitted.protection[&Setting::Method].text, "none");
        let asked = InitArgs { ft: Some("self".into()), ..args() };
        let error = fit_memory(&asked, 1, 1 << 32).err().unwrap().to_string();
        let why = "--ft: a group with 1 parity needs at least 2 ranks, not 1";
        assert_eq!(error, why);
    }

    #[test]
    fn parities_take_their_share_or_are_refused() {
        let fitted = |ft: &str, parities, ranks| {
            let args = InitArgs { ft: Some(ft.into()), parities: Some(parities), ..args() };
            fit_memory(&args, ranks, 1 << 36)
        };
        for (ft, ranks) in [("self", 16), ("abft", 12)] {
            let one = fitted(ft, 1, ranks).unwrap().spec;
            let two = fitted(ft, 2, ranks).unwrap();
            assert!(two.spec.n[0] < one.n[0], "{ft}");
            assert_eq!(two.protection[&Setting::Parities].text, "2");
            let line = |args| {
                command_line(&args, &two.spec, ranks, Format::Dat, Path::new("HPL.dat"), None)
            };
            let asked = InitArgs { ft: Some(ft.into()), parities: Some(2), ..args() };
            assert!(line(asked).ends_with(&format!(" --ft {ft} --parities 2")));
        }
        let refused = |ft, parities, ranks| fitted(ft, parities, ranks).err().unwrap().to_string();
        assert_eq!(
            refused("self", 2, 3),
            "--parities: a group with 2 parities needs at least 4 ranks, not 3"
        );
        assert_eq!(
            refused("none", 1, 4),
            "--parities: value 1 is out of range; legal: none, without checkpoints"
        );
        assert!(refused("abft", 4, 12).starts_with("--parities: value 4"));
        // A run with so few ranks has no checkpoints unless the flags ask for them.
        let by_default = InitArgs { parities: Some(2), ..args() };
        assert!(fit_memory(&by_default, 3, 1 << 36).is_err());
    }

    #[test]
    fn helper_cores_are_kept_from_the_ranks() {
        let cores = machine::cores().unwrap();
        let keep = |helper_cores| InitArgs { helper_cores, ..args() };
        assert_eq!(ranks(&keep(0)).unwrap(), cores);
        let none_left = ranks(&keep(cores)).unwrap_err().to_string();
        assert!(none_left.starts_with("--helper-cores: value"), "{none_left}");
        assert_eq!(ranks(&InitArgs { ranks: Some(3), ..keep(cores) }).unwrap(), 3);
        if cores > 1 {
            assert_eq!(ranks(&keep(1)).unwrap(), cores - 1);
            assert_eq!(ranks(&InitArgs { threads: cores - 1, ..keep(1) }).unwrap(), 1);
        }
        let Fitted { spec, protection, .. } = fit_memory(&keep(2), 6, 1 << 34).unwrap();
        assert_eq!(Settings::read(&protection, &spec).unwrap().helper_cores, 2);
        let line = |format| command_line(&keep(2), &spec, 6, format, Path::new("HPL.dat"), None);
        assert!(line(Format::Dat).contains(" --bind-to none -np 6 "));
        assert!(line(Format::Dat).ends_with(" --helper-cores 2"));
        assert!(!line(Format::Toml).contains("--helper-cores"), "the file has it");
        let plain = InitArgs { ft: Some("none".into()), ..keep(1) };
        let why = fit_memory(&plain, 6, 1 << 34).err().unwrap().to_string();
        assert!(
            why.starts_with("--helper-cores: there is nothing for helper cores to do"),
            "{why}"
        );
    }

    #[test]
    fn checkpoints_take_their_share_of_the_memory() {
        let order = |ft: Option<&str>, ranks| {
            let args = InitArgs { ft: ft.map(str::to_owned), ..args() };
            let n = fit_memory(&args, ranks, 1 << 36).unwrap().spec.n[0];
            n as f64 * n as f64
        };
        // A group of n ranks with one parity keeps (n - 1) / 2n.
        for (ranks, share) in [(2, 0.25), (16, 15.0 / 32.0)] {
            let kept = order(None, ranks) / order(Some("none"), ranks);
            assert!((kept / share - 1.0).abs() < 0.05, "{ranks} ranks: {kept}");
        }
        assert_eq!(order(None, 1), order(Some("none"), 1));
    }

    /// A run with `ranks` ranks, each with `rank_gib` GiB.
    fn sized(ft: &str, ranks: usize, rank_gib: u64, p: Option<usize>) -> RunSpec {
        let args = InitArgs { ft: Some(ft.to_owned()), p, ..args() };
        fit_memory(&args, ranks, ranks as u64 * (rank_gib << 30)).unwrap().spec
    }

    /// The part of the matrix of `none` that `abft` has, relative to Q / (Q + m).
    fn kept_over_share(none: &RunSpec, abft: &RunSpec) -> f64 {
        let (kept, (_, q)) = (abft.n[0] as f64 / none.n[0] as f64, abft.grids[0]);
        kept * kept * (q + abft.checksums) as f64 / q as f64
    }

    #[test]
    fn checksums_leave_their_share_of_the_memory() {
        for (ranks, q) in [(12, 11), (17, 16), (33, 32)] {
            let abft = sized("abft", ranks, 192, None);
            assert_eq!((abft.checksums, abft.grids[0]), (1, (1, q)));
            let off = kept_over_share(&sized("none", ranks, 192, None), &abft) - 1.0;
            assert!(off.abs() < 0.02, "{ranks} ranks: {off}");
            // With less memory, panels count; they are equally large on equally many process rows.
            for rank_gib in [8, 16, 64] {
                let abft = sized("abft", ranks, rank_gib, None);
                let none = sized("none", ranks, rank_gib, Some(abft.grids[0].0));
                let off = kept_over_share(&none, &abft) - 1.0;
                assert!(off.abs() < 0.02, "{ranks} ranks of {rank_gib} GiB: {off}");
            }
        }
    }

    #[test]
    fn the_grid_is_the_one_of_the_largest_matrix_or_as_asked_for() {
        for (ranks, rank_gib) in [(12, 1), (33, 2), (64, 4), (256, 16)] {
            let chosen = sized("abft", ranks, rank_gib, None);
            for p in (1..=ranks).filter(|&p| ranks % p == 0 && p <= 254 && 2 * p <= ranks) {
                if ranks / p > MAX_MEMBERS {
                    continue;
                }
                let asked = sized("abft", ranks, rank_gib, Some(p));
                assert_eq!(asked.grids[0], (p, ranks / p - 1));
                assert!(p >= ranks / p || asked.n[0] <= chosen.n[0], "{ranks} ranks: {p} rows");
            }
        }
        // With 32 process columns, panels are too large for little memory.
        assert_eq!(sized("abft", 33, 2, None).grids[0], (3, 10));
        let large = InitArgs { p: Some(3), q: Some(4), ft: Some("abft".into()), ..args() };
        let error = fit_memory(&large, 12, 1 << 34).err().unwrap().to_string();
        assert!(error.starts_with("--p: the 3 x 4 grid"), "{error}");
    }

    /// The fit of `ranks` ranks with memory for a larger N, within a time at a given rate.
    fn timed(seconds: f64, gflops: f64, ranks: usize) -> Result<Fitted, ConfigError> {
        let pace = Pace::given(gflops, ranks, false);
        let machine = Room { ranks, available_bytes: 1 << 44, pace };
        fit(&InitArgs { time: Some(seconds), ft: Some("none".into()), ..args() }, &machine)
    }

    #[test]
    fn n_is_the_largest_multiple_of_nb_within_the_time() {
        for (seconds, gflops, ranks) in [(3600.0, 100.0, 2), (60.0, 1.0, 1), (86400.0, 5e3, 64)] {
            let Fitted { spec, memory_n, .. } = timed(seconds, gflops, ranks).unwrap();
            let (n, nb) = (spec.n[0], spec.nb[0]);
            let takes = |n| operations(n) / (1e9 * gflops);
            assert!(takes(n) <= seconds && takes(n + nb) > seconds && n % nb == 0, "{n}");
            assert!(n < memory_n && spec.title[1].contains(", at most "), "{spec:?}");
        }
        let Fitted { spec, memory_n, .. } = timed(1e9, 100.0, 2).unwrap();
        assert_eq!(spec.n[0], memory_n, "the memory decides");
        let why = timed(1e-6, 100.0, 2).unwrap_err().to_string();
        assert!(why.starts_with("--time: ") && why.contains("N = 192, the smallest"), "{why}");
    }

    #[test]
    fn the_time_of_the_model_grows_with_n_and_is_within_the_limit() {
        let pace = Pace::measure_one_core().unwrap();
        let machine = Room { ranks: 4, available_bytes: 1 << 44, pace };
        let mut before = 0;
        for seconds in [1.0, 60.0, 3600.0] {
            let Fitted { spec, .. } =
                fit(&InitArgs { time: Some(seconds), ..args() }, &machine).unwrap();
            let (n, nb) = (spec.n[0], spec.nb[0]);
            let takes = |n| machine.pace.seconds(&spec, n).unwrap();
            assert!(takes(n) <= seconds && takes(n + nb) > seconds, "{n}: {}", takes(n));
            assert!(n > before);
            before = n;
        }
    }

    #[test]
    fn too_little_memory_is_an_error() {
        assert!(fit_memory(&args(), 64, 1 << 20).is_err());
    }

    #[test]
    fn a_configuration_of_init_reads_back() {
        let Fitted { spec, protection, .. } =
            fit_memory(&InitArgs { threads: 4, ..args() }, 6, 1 << 34).unwrap();
        let toml = text(&spec, &protection, Format::Toml).unwrap();
        let read = skt_config::parse(toml.as_bytes(), "f", Format::Toml, false).unwrap();
        assert_eq!(read.spec, spec);
        let settings = |draft| Settings::read(draft, &spec).unwrap();
        assert_eq!(settings(&read.checkpoint), settings(&protection));
        assert_eq!(settings(&protection).group_size, 6);
    }
}
