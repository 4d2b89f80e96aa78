use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use skt_host::exit::Exit;
use skt_host::units::parse_seconds;

use super::chosen::Chosen;
use super::flags::one_of;
use super::hosts;
use super::mxp::FlagsOfMxp;
use super::overrides::{Overrides, ProtectArgs};
use super::progress::ProgressArgs;
use super::run::{self, RunArgs, load_checked};
use crate::report::{OutputOptions, RunOutput, output};
use skt_checkpoint::checkpoint::decide::Resume;
use skt_checkpoint::checkpoint::methods::Method;
use skt_comm::mpi::MpiWorld;
use skt_comm::{Comm, collect};
use skt_config::param::Param;
use skt_config::value::Value;
use skt_config::{At, Checked, ConfigError, RunSpec, Setting};
use skt_health::environment::library::ChosenBlas;
use skt_host::messages;
use skt_run::job::{End, JobError, JobOptions};
use skt_run::protect::{OnLoss, Settings, read_domains};
use skt_run::tune::parameter::{Parameter, with_values};
use skt_run::tune::{N_MIN, Tuning, TuningTask, table, tune};
use skt_store::codec::checksum;

const TUNING: &str = "Tuning";
/// The shortest budget that holds the setup of a job and a comparison.
pub(super) const MIN_BUDGET_SECONDS: f64 = 1.0;

/// Flags of `tune`.
#[derive(Debug, Args)]
#[command(mut_arg(Param::Matrix.info().key, |arg| arg.requires("mxp")))]
#[command(mut_arg(Param::Gemm.info().key, |arg| arg.requires("mxp")))]
pub(crate) struct TuneArgs {
    /// Time for the whole tuning, from the start of the ranks
    #[arg(long, value_name = "TIME", value_parser = parse_seconds, default_value = "60s")]
    #[arg(help_heading = TUNING)]
    pub budget: f64,
    /// Tune these parameters only
    #[arg(long, value_name = "NAME,..", value_delimiter = ',', help_heading = TUNING)]
    #[arg(value_parser = one_of(Parameter::NAMES, Parameter::named))]
    pub only: Vec<Parameter>,
    /// Write the configuration with the chosen values: TOML if it ends in .toml, else HPL.dat; - is
    /// standard output
    #[arg(long, short, value_name = "FILE", help_heading = TUNING)]
    pub out: Option<PathBuf>,
    /// Overwrite the file if it exists
    #[arg(long, short, help_heading = TUNING)]
    pub force: bool,
    /// When to show progress.
    #[command(flatten, next_help_heading = TUNING)]
    pub progress: ProgressArgs,
    /// Tune HPL-MxP (`skt-hpl mxp`): by its rate over factorization and refinement together; NBMIN,
    /// RFACT and PFACT have no effect there
    #[arg(long, help_heading = TUNING)]
    pub mxp: bool,
    /// What HPL-MxP has besides the parameters of HPL.
    #[command(flatten)]
    of_mxp: FlagsOfMxp,
    /// Configuration to begin with: TOML if it ends in .toml, else HPL.dat [default: HPL.dat in
    /// the current folder]
    #[arg(long, short, value_name = "FILE", help_heading = TUNING)]
    pub config: Option<PathBuf>,
    /// Replace illegal values of HPL.dat as the reference does, with a warning, instead of
    /// stopping
    #[arg(long, help_heading = TUNING)]
    pub lenient: bool,
    /// Flags that override the configuration.
    #[command(flatten)]
    pub overrides: Overrides,
    /// Protection against the loss of nodes.
    #[command(flatten)]
    pub protect: ProtectArgs,
}

pub(crate) fn execute(args: &TuneArgs) -> ExitCode {
    let blas = run::choose_blas(&run_args(args));
    let exit = run::start_mpi().and_then(|world| {
        let comm = world.comm()?;
        let mine = tune_on(&world, &comm, args, blas)?;
        // Only rank 0 knows the exit code.
        Ok(Exit::from_code(collect::broadcast_one(&comm, mine.code(), 0)?))
    });
    run::end(exit, Exit::code)
}

struct TuneJob {
    checked: Checked,
    task: TuningTask,
    settings: Settings,
}

fn run_args(args: &TuneArgs) -> RunArgs {
    RunArgs {
        config: args.config.clone(),
        lenient: args.lenient,
        overrides: args.overrides.clone(),
        protect: args.protect.clone(),
        is_mxp: args.mxp,
        ..RunArgs::default()
    }
}

fn tune_on(
    world: &MpiWorld,
    comm: &Comm,
    args: &TuneArgs,
    blas: ChosenBlas,
) -> Result<Exit, JobError> {
    let read = || {
        let job = read_job(args, comm.size());
        job.inspect_err(|why| messages::print(format_args!("error: {why}"))).ok()
    };
    let job = if comm.rank() == 0 { read() } else { None };
    let known = job.as_ref().map(|job| (job.task.base.clone(), job.settings.clone()));
    let Some((base, settings)): Option<(RunSpec, Settings)> =
        collect::broadcast_json(comm, &known, 0)?
    else {
        return Ok(Exit::BadInput);
    };
    let whole = TuningTask { base, parameters: Vec::new(), n: None, budget_seconds: args.budget };
    let task = job.as_ref().map_or(&whole, |job| &job.task);
    let mpi_library = Some(world.library_version());
    let options = JobOptions { blas, mpi_library, ..JobOptions::default() };
    // The output ends here, so that no line of progress is in the way of an error.
    let tuned = tune(
        comm,
        task,
        &settings,
        &options,
        &mut RunOutput::new(OutputOptions::default(), args.progress.progress()),
    );
    match tuned {
        Ok(tuning) => {
            let shown = job.zip(tuning).map_or(Ok(()), |(job, tuning)| show(args, &job, &tuning));
            let refused = shown.inspect_err(|why| messages::print(format_args!("error: {why}")));
            Ok(if refused.is_ok() { Exit::Passed } else { Exit::BadInput })
        }
        Err(error) => give_up(comm, error),
    }
}

/// Reports why there is no result, and ends the job if the other ranks do not know of it.
pub(super) fn give_up(comm: &Comm, error: JobError) -> Result<Exit, JobError> {
    let End::Agreed { exit, .. } = error.end else {
        messages::print(format_args!("error: rank {} ({}): {error}", comm.rank(), comm.host()));
        let code = i32::from(Exit::BadInput.code());
        return Err(comm.abort(&error.to_string(), code).into());
    };
    if comm.rank() == 0 {
        let label = if exit == Exit::Interrupted { "" } else { "error: " };
        messages::print(format_args!("{label}{error}"));
    }
    Ok(exit)
}

fn show(args: &TuneArgs, job: &TuneJob, tuning: &Tuning) -> Result<(), ConfigError> {
    let method = job.settings.method;
    if method != Method::None && !tuning.is_protected {
        messages::print(format_args!("note: --ft {method}: no checkpoint is due within a trial"));
    }
    let words = table::text(tuning);
    if args.out.as_deref().is_some_and(output::is_stdout) {
        messages::print(format_args!("{words}"));
    } else {
        output::print(&words)?;
    }
    let Some(path) = &args.out else { return Ok(()) };
    let mut checked = job.checked.clone();
    checked.spec = with_values(&checked.spec, &tuning.chosen);
    // The N of a file may leave no memory for the method that a run has by default.
    let of_trials = || Value::text(method.to_string());
    checked.checkpoint.entry(Setting::Method).or_insert_with(of_trials);
    let Checked { spec, checkpoint: protection, launch, .. } = &checked;
    let chosen = Chosen { spec, protection, launch, path };
    let start = format!("mpirun -np {} skt-hpl{}", tuning.chosen.ranks(), chosen.flags());
    chosen.write("tune", &start, args.force)
}

fn read_job(args: &TuneArgs, ranks: usize) -> Result<TuneJob, ConfigError> {
    if let Some(path) = args.out.as_deref().filter(|path| path.exists() && !args.force) {
        return Err(ConfigError::exists(path.display()));
    }
    args.out.as_deref().map_or(Ok(()), output::must_be_writable)?;
    if args.budget < MIN_BUDGET_SECONDS {
        let legal = format!("{MIN_BUDGET_SECONDS}s or more");
        return Err(At::flag("--budget").out_of_range(format!("{}s", args.budget), legal));
    }
    if let Some(idle) = args.only.iter().find(|only| args.mxp && !only.is_of_mxp()) {
        let what = format!(
            "{}: has no effect in HPL-MxP, which factors without pivoting; leave it out",
            idle.name()
        );
        return Err(At::flag("--only").error(what));
    }
    if let Some(inject) = args.protect.inject.first() {
        let what = format!("{inject}: trials have no faults; give it to a run");
        return Err(At::flag("--inject").error(what));
    }
    let with_n = RunArgs { ranks: Some(ranks), ..run_args(args) };
    let mut without_n = with_n.clone();
    if run::file_has_n(&with_n)? {
        // The file's N stays in the configuration; the flag's N is for the trials.
        without_n.overrides.given.0.remove(&Param::N);
    }
    let checked = load_checked(&without_n)?;
    if checked.spec.rates.is_some() {
        return Err(At::flag("--rates").error(
            "trials are on several grids, whose process columns have other ranks; leave it out \
             here, and give it to the run",
        ));
    }
    checked.require_ranks(ranks)?;
    let n = if args.overrides.given.0.contains_key(&Param::N) {
        Some(order_of_trials(&load_checked(&with_n)?.spec.n)?)
    } else {
        None
    };
    hosts::warn(&checked.warnings);
    let settings = for_trials(&checked)?;
    let is_asked = |parameter: &Parameter| args.only.is_empty() || args.only.contains(parameter);
    let base = checked.spec.clone();
    let parameters = Parameter::all_of(&base.tests()[0]).filter(is_asked).collect();
    let task = TuningTask { base, parameters, n, budget_seconds: args.budget };
    Ok(TuneJob { checked, task, settings })
}

/// The N of the trials; there must be exactly one.
fn order_of_trials(given: &[usize]) -> Result<usize, ConfigError> {
    match given[..] {
        [n] if n >= N_MIN => Ok(n),
        _ => Err(At::flag("--n").out_of_range(
            given.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
            format!("one order for all trials, {N_MIN} or more"),
        )),
    }
}

/// The protection of the trials: that of the run if it names one.
fn for_trials(checked: &Checked) -> Result<Settings, ConfigError> {
    let settings = Settings::read(&checked.checkpoint, &checked.spec)?;
    let method = if settings.method_is_asked { settings.method } else { Method::None };
    let domains = read_domains(&checked.checkpoint)?;
    Ok(apart("tune", Settings { method, domains, ..settings }))
}

/// The settings of a run for its trials: without what only a run that continues needs, and with
/// another run id, so that its segments stay as they are.
pub(super) fn apart(prefix: &str, settings: Settings) -> Settings {
    Settings {
        resume: Resume::Never,
        on_loss: OnLoss::Restart,
        levels: Default::default(),
        time_limit: settings.time_limit.settled(),
        run_id: format!("{prefix}-{:016x}", checksum(settings.run_id.as_bytes())),
        ..settings
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Only {
        #[command(flatten)]
        tune: TuneArgs,
    }

    #[test]
    fn the_order_of_a_file_stays_else_the_flag_sets_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.toml");
        let read = |table: &str| {
            std::fs::write(&file, table).unwrap();
            let words = ["x", "--n", "20000", "--config", file.to_str().unwrap()];
            let job = read_job(&Only::parse_from(words).tune, 2).unwrap();
            (job.checked.spec.n, job.task.n)
        };
        assert_eq!(read("nb = 64\n"), (vec![20000], Some(20000)));
        assert_eq!(read("n = [500, 600]\nnb = 64\n"), (vec![500, 600], Some(20000)));
    }
}
