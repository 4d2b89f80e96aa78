use std::cell::OnceCell;
use std::hash::{BuildHasher as _, RandomState};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use skt_host::exit::Exit;
use skt_solver::blas::library;

use super::losses::{self, JobRequest, KeptJob};
use super::overrides::{Overrides, ProtectArgs};
use super::power::{METER, PowerLogArgs};
use super::progress::ProgressArgs;
use super::thread_variables::ThreadVariables;
use super::{blas, flags};
use crate::report::{OutputOptions, RunOutput, output, text};
use skt_checkpoint::checkpoint::methods::Method;
use skt_comm::mpi::MpiWorld;
use skt_comm::{Comm, collect};
use skt_config::param::Param;
use skt_config::value::Value;
use skt_config::{
    Checked, ConfigError, ConfigText, Draft, Format, LaunchDraft, Output, ValidationRules, Warning,
    read_bytes, read_draft, validate,
};
use skt_health::environment::library::ChosenBlas;
use skt_host::waits::Announced;
use skt_host::{descriptors, launcher_rank, messages};
use skt_run::heartbeat;
use skt_run::job::{self, End, Finished, JobError, JobOptions};
use skt_run::power::MeterCommand;
use skt_run::protect::{Settings, What, read_domains};

const FILES: &str = "Input and output";
/// The configuration if `--config` names none.
const DEFAULT_FILE: &str = "HPL.dat";
/// The configuration of HPL-MxP if `--config` names none, if there is one.
const DEFAULT_FILE_OF_MXP: &str = "HPL-MxP.dat";

/// Flags of the benchmark.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct RunArgs {
    /// Configuration: TOML if it ends in .toml, else HPL.dat [default: HPL.dat in the current
    /// folder]
    #[arg(long, short, value_name = "FILE", help_heading = FILES)]
    pub config: Option<PathBuf>,
    /// Replace illegal values of HPL.dat as the reference does, with a warning, instead of stopping
    #[arg(long, help_heading = FILES)]
    pub lenient: bool,
    /// Where the report goes: stdout or -, stderr, or a file [default: as in the configuration]
    #[arg(long, short, value_name = "FILE", help_heading = FILES)]
    pub out: Option<String>,
    /// Also write a report of the whole run as one JSON document
    #[arg(long, value_name = "FILE", value_parser = flags::file_next_to_a_report(),
        help_heading = FILES)]
    pub json: Option<PathBuf>,
    /// Also report the tuning values in use
    #[arg(long, help_heading = FILES)]
    pub verbose: bool,
    /// When to show progress.
    #[command(flatten, next_help_heading = FILES)]
    pub progress: ProgressArgs,
    /// Also print a line on standard output after each panel, as the reference does if built with
    /// -DHPL_PROGRESS_REPORT
    #[arg(long, help_heading = FILES)]
    pub progress_report: bool,
    /// Also report the times of a test as the reference does if built with -DHPL_DETAILED_TIMING
    #[arg(long, help_heading = FILES)]
    pub detailed_timing: bool,
    /// Command on rank 0's host that prints the readings of the site's power meter, started once: a
    /// line `SECONDS WATTS` repeatedly, the time in seconds since 1970, or what nvidia-smi,
    /// turbostat or ipmitool write
    #[arg(long, value_name = "COMMAND", group = METER, help_heading = FILES)]
    pub power_command: Option<String>,
    /// How its lines are read.
    #[command(flatten, next_help_heading = FILES)]
    pub power_log: PowerLogArgs,
    /// Level of that measurement in the methodology of the Green500, which only you can know
    #[arg(long, value_name = "1|2|3", value_parser = clap::value_parser!(u8).range(1..=3),
        requires = "power_command", help_heading = FILES)]
    pub power_level: Option<u8>,
    /// Flags that override the configuration.
    #[command(flatten)]
    pub overrides: Overrides,
    /// Protection against the loss of nodes.
    #[command(flatten)]
    pub protect: ProtectArgs,
    /// Whether this is a run of HPL-MxP, see [`super::mxp`].
    #[arg(skip)]
    pub is_mxp: bool,
    /// Number of ranks of the job, once it is certain; until then, the launcher's number counts.
    #[arg(skip)]
    pub ranks: Option<usize>,
    /// The variables that set the number of threads of a rank, if they count, see [`super::xhpl`].
    #[arg(skip)]
    pub thread_variables: Option<ThreadVariables>,
    /// Whether the program was called `xhpl`, see [`super::xhpl`].
    #[arg(skip)]
    pub as_reference: bool,
    /// Whether the text report has the reference's lines alone, see [`super::xhpl`].
    #[arg(skip)]
    pub are_lines_alone: bool,
    /// The message about arguments that are ignored, as the reference ignores its own.
    #[arg(skip)]
    pub ignored: Option<String>,
}

impl RunArgs {
    fn default_file(&self) -> &'static Path {
        let of_mxp = Path::new(DEFAULT_FILE_OF_MXP);
        if self.is_mxp && of_mxp.exists() { of_mxp } else { Path::new(DEFAULT_FILE) }
    }

    fn code(&self, exit: Exit) -> u8 {
        if self.as_reference { exit.reference_code() } else { exit.code() }
    }
}

/// With the origin of its values, see [`Checked::require_ranks`].
pub(crate) fn load_checked(args: &RunArgs) -> Result<Checked, ConfigError> {
    Ok(load_with_text(args, args.default_file())?.0)
}

/// As [`load_checked`], from the file `default` if `--config` names none; with the file's text.
fn load_with_text(
    args: &RunArgs,
    default: &Path,
) -> Result<(Checked, Option<ConfigText>), ConfigError> {
    let mut flags = args.overrides.draft(args.out.as_deref())?;
    flags.checkpoint = args.protect.draft();
    let source = match &args.config {
        Some(path) => Some(read_file(path, args.lenient)?),
        None => read_default(args, &flags, default)?,
    };
    let ConfigSource { text, mut draft, mut warnings } = source.unwrap_or_default();
    let file = text.as_ref().map_or("command line", |text| &text.file).to_owned();
    draft.overlay(flags);
    warnings.append(&mut draft.drop_unprotected());
    let ranks = args.ranks.or_else(launcher_rank::size).unwrap_or(1);
    let RunArgs { lenient, is_mxp, .. } = *args;
    let rules = ValidationRules { lenient, ranks: Some(ranks), source: &file, is_mxp };
    let mut checked = validate(&draft, &rules)?;
    warnings.append(&mut checked.warnings);
    checked.warnings = warnings;
    Ok((checked, text))
}

pub(crate) fn load_launch(args: &RunArgs) -> Result<LaunchDraft, ConfigError> {
    let Some(path) = &args.config else { return Ok(LaunchDraft::new()) };
    Ok(read_file(path, args.lenient)?.draft.launch)
}

pub(super) fn file_has_n(args: &RunArgs) -> Result<bool, ConfigError> {
    let Some(path) = &args.config else { return Ok(args.default_file().exists()) };
    Ok(read_file(path, args.lenient)?.draft.values.contains_key(&Param::N))
}

/// The BLAS of this process, chosen by these flags and their file, which is read once at most. One
/// that cannot be read gives nothing, which [`load_checked`] reports.
pub(super) fn choose_blas(args: &RunArgs) -> ChosenBlas {
    let path = args.config.as_deref().unwrap_or(args.default_file());
    let read = OnceCell::new();
    let in_file = || {
        let read = read.get_or_init(|| read_file(path, args.lenient).ok());
        read.as_ref().map(|source| &source.draft.values)
    };
    let given = |param: Param, may_read: &dyn Fn(&Path) -> bool| {
        let in_flags = args.overrides.given.0.get(&param);
        in_flags.or_else(|| may_read(path).then(in_file)??.get(&param)).cloned()
    };
    blas::choose(&given, args.is_mxp)
}

#[derive(Default)]
struct ConfigSource {
    text: Option<ConfigText>,
    draft: Draft,
    warnings: Vec<Warning>,
}

/// Reads the default file; without one, the flags must describe the whole run.
fn read_default(
    args: &RunArgs,
    flags: &Draft,
    default: &Path,
) -> Result<Option<ConfigSource>, ConfigError> {
    match read_file(default, args.lenient) {
        Err(ConfigError::Read { source, .. }) if source.kind() == ErrorKind::NotFound => {
            if flags.values.contains_key(&Param::N) {
                return Ok(None);
            }
            let folder = std::env::current_dir()
                .map_or("the current folder".to_owned(), |dir| dir.display().to_string());
            Err(ConfigError::Other(format!(
                "HPL.dat: not found in {folder}; `skt-hpl auto` runs without one, `skt-hpl init` \
                 writes one, and --config FILE names another"
            )))
        }
        other => other.map(Some),
    }
}

fn read_file(path: &Path, lenient: bool) -> Result<ConfigSource, ConfigError> {
    let (file, format) = (path.display().to_string(), Format::from_path(path));
    let bytes = read_bytes(path)?;
    let (draft, warnings) = read_draft(&bytes, &file, format, lenient)?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Ok(ConfigSource { text: Some(ConfigText { file, format, text }), draft, warnings })
}

/// Before a rank reports what rank 0 may report as well: a launcher takes 2 s to end the others.
const REPORT_PAUSE: Duration = Duration::from_secs(4);

/// Starts MPI, and checks that it connects all the processes that were started.
pub(super) fn start_mpi() -> Result<MpiWorld, JobError> {
    let world = MpiWorld::init()?;
    let by_supervisor = heartbeat::ranks().map(|ranks| (heartbeat::ENV, ranks));
    let comm = world.comm()?;
    launcher_rank::check(comm.size(), by_supervisor, &world.library_version())
        // The supervisor need not try again.
        .inspect_err(|_| heartbeat::done(Exit::BadInput))?;
    if let Some(why) = descriptors::lack(comm.size()) {
        heartbeat::done(Exit::BadInput);
        if !launcher_rank::is_first() {
            std::thread::sleep(REPORT_PAUSE);
        }
        messages::print(format_args!("error: rank {} ({}): {why}", comm.rank(), comm.host()));
        return Err(comm.abort(&why, Exit::BadInput.code().into()).into());
    }
    Ok(world)
}

pub(crate) fn execute(args: &RunArgs) -> ExitCode {
    let blas = choose_blas(args);
    let mut args = args.clone();
    read_thread_variables(&mut args, &blas);
    let args = &args;
    let exit = start_mpi().and_then(|world| {
        let run_on = |comm: &_, job: &mut _| run_on(&world, comm, args, &blas, job);
        let exit = match world.ulfm() {
            Ok(ulfm) => losses::outlive(&ulfm, run_on)?,
            Err(_) => run_on(&world.comm()?, &mut KeptJob::default())?.exit,
        };
        // This is sent before MPI is shut down, which may hang when all is done.
        heartbeat::done(exit);
        Ok(exit)
    });
    end(exit, |exit| args.code(exit))
}

/// Takes the number of threads from the variables, if they count, as the BLAS that is called does.
fn read_thread_variables(run: &mut RunArgs, blas: &ChosenBlas) {
    if run.thread_variables.is_none() {
        return;
    }
    // None is loaded yet where all ranks are to choose one.
    let library = blas.trials.is_none().then(library::loaded).map(|blas| blas.library);
    let variables =
        ThreadVariables::read(&library.unwrap_or_default(), |name| std::env::var(name).ok());
    let threads = variables.threads().map(|threads| vec![Value::flag(threads.to_string())]);
    run.overrides.given.0.extend(threads.map(|threads| (Param::Threads, threads)));
    run.thread_variables = Some(variables);
}

/// With the `code` of the exit. Each rank that has an error reports it, unless all have the same.
pub(super) fn end(exit: Result<Exit, JobError>, code: impl Fn(Exit) -> u8) -> ExitCode {
    let exit = exit.unwrap_or_else(|error| {
        if error.needs_printing() {
            messages::print(format_args!("error: {error}"));
        }
        Exit::BadInput
    });
    messages::print_held();
    // The last message of rank 0 may still be on its way through the launcher.
    if exit != Exit::Passed {
        launcher_rank::defer_to_rank0(code(exit));
    }
    code(exit).into()
}

/// Rank 0 reads the configuration, reports what is wrong with it, and sends it to the other ranks.
/// After a loss, the first surviving rank sends what it knows. `None` if nothing can run.
fn share_job<'j>(
    comm: &Comm,
    args: &RunArgs,
    job: &'j mut KeptJob,
) -> Result<Option<&'j JobRequest>, JobError> {
    let mut bytes = Vec::new();
    if comm.rank() == 0 {
        bytes =
            request_bytes(job, || load_for(args, comm.size()).inspect_err(|why| refuse(args, why)));
    }
    collect::broadcast_bytes(comm, &mut bytes, 0)?;
    job.request = if bytes.is_empty() {
        None
    } else {
        serde_json::from_slice(&bytes).map(Some).map_err(|error| JobError::unread(&error))?
    };
    Ok(job.request.as_ref())
}

/// What rank 0 sends to the other ranks: the run that it knows, else the one that `load` reads;
/// nothing if that fails. Rank 0 keeps the run: if a rank is lost before all have received
/// it, the next attempt must not read another one, for fewer ranks.
fn request_bytes(
    job: &mut KeptJob,
    load: impl FnOnce() -> Result<JobRequest, ConfigError>,
) -> Vec<u8> {
    if job.request.is_none() {
        job.request = load().ok();
    }
    let request = job.request.as_ref();
    request.map_or_else(Vec::new, |request| serde_json::to_vec(request).expect("plain data"))
}

/// Under the name `xhpl` also in the words of the reference, which programs look for.
fn refuse(args: &RunArgs, why: &ConfigError) {
    let message = why.to_string();
    messages::print(format_args!("error: {message}"));
    if !args.as_reference || !message.starts_with(DEFAULT_FILE) {
        return;
    }
    if let ConfigError::TooFewRanks { need, .. } = why {
        let needed = format!("Need at least {need} processes for these tests");
        messages::print(format_args!("{}", text::reference_error(419, "HPL_pdinfo", &needed)));
    }
    let refused = "Illegal input in file HPL.dat. Exiting ...";
    messages::print(format_args!("{}", text::reference_error(621, "HPL_pdinfo", refused)));
}

pub(super) fn run_on(
    world: &MpiWorld,
    comm: &Comm,
    args: &RunArgs,
    blas: &ChosenBlas,
    job: &mut KeptJob,
) -> Result<Finished, JobError> {
    let (lost_at, rank_in_run) = (job.lost_at, job.rank_in_run.clone());
    heartbeat::set_writer(comm.rank() == 0);
    let wait = Announced::begin("all ranks to come");
    collect::roll_call(comm)?;
    let Some(JobRequest { spec, settings, configuration }) = share_job(comm, args, job)? else {
        return Ok(Finished::short(Exit::BadInput));
    };
    if let Err(exit) = losses::has_ranks(world, comm, spec, settings, lost_at.is_some()) {
        return Ok(Finished::short(exit));
    }
    drop(wait);
    let options = JobOptions {
        configuration: configuration.clone(),
        as_reference: args.as_reference,
        meter: args.power_command.as_ref().map(|command| MeterCommand {
            command: command.clone(),
            lines: args.power_log.settings(),
            level: args.power_level,
        }),
        blas: blas.clone(),
        mpi_library: Some(world.library_version()),
        lost_at,
        rank_in_run,
    };
    let output = OutputOptions {
        json: args.json.clone(),
        verbose: args.verbose,
        progress_report: args.progress_report,
        detailed_timing: args.detailed_timing,
        are_lines_alone: args.are_lines_alone,
    };
    // The output ends here, so that no line of progress is in the way of an error.
    let ran = job::run(
        comm,
        spec,
        settings,
        &options,
        &mut RunOutput::new(output, args.progress.progress()),
    );
    match ran {
        Err(error) if error.end == End::Lost && settings.on_loss.is_outlived() => Err(error),
        // The others wait for this rank, or for one that is gone: all must end, and the data in
        // shared memory lets the same command continue.
        Err(error) if error.is_local() => {
            messages::print(format_args!("error: rank {} ({}): {error}", comm.rank(), comm.host()));
            let is_permanent = error.end == End::Local { is_permanent: true };
            let can_go_on = settings.is_on() && !is_permanent;
            let code = if can_go_on { Exit::Interrupted } else { Exit::BadInput };
            Err(comm.abort(&error.to_string(), i32::from(args.code(code))).into())
        }
        done => done,
    }
}

fn refuse_to_replace(
    json: Option<&Path>,
    output: &Output,
    configuration: Option<&ConfigText>,
) -> Result<(), ConfigError> {
    let read = configuration.map(|it| (Path::new(&it.file), "the configuration of this run"));
    let text = match output {
        Output::File(path) => Some((&**path, "the file of the text report")),
        Output::Stdout | Output::Stderr => None,
    };
    text.map_or(Ok(()), |(text, _)| output::must_not_replace(text, read.as_slice()))?;
    let others: Vec<_> = read.into_iter().chain(text).collect();
    json.map_or(Ok(()), |json| output::must_not_replace(json, &others))
}

fn load_for(args: &RunArgs, ranks: usize) -> Result<JobRequest, ConfigError> {
    let args = &RunArgs { ranks: Some(ranks), ..args.clone() };
    let (checked, configuration) = load_with_text(args, args.default_file())?;
    checked.require_ranks(ranks)?;
    refuse_to_replace(args.json.as_deref(), &checked.spec.output, configuration.as_ref())?;
    let settings = Settings {
        domains: read_domains(&checked.checkpoint)?,
        inject: args.protect.inject.clone(),
        job_number: Some(RandomState::new().hash_one(0)),
        ..Settings::read(&checked.checkpoint, &checked.spec)?
    };
    let flip = settings.inject.iter().find(|inject| matches!(inject.what, What::Flip(_)));
    if let Some(flip) = flip.filter(|_| settings.method != Method::Abft) {
        let what = format!("--inject {flip}: only --ft abft notices a flipped bit of the matrix");
        return Err(ConfigError::Other(what));
    }
    let of_arguments = args.ignored.iter().cloned();
    let of_variables = args.thread_variables.as_ref().map(ThreadVariables::warnings);
    let of_file = checked.warnings.iter().map(ToString::to_string);
    for warning in of_arguments.chain(of_file).chain(of_variables.into_iter().flatten()) {
        messages::print(format_args!("warning: {warning}"));
    }
    // `launch` has reported it.
    if settings.method_for(ranks) != Method::None && heartbeat::run().is_none() {
        let unknown = settings.time_limit.unknown_end(|name| std::env::var(name).ok());
        unknown.iter().for_each(|why| messages::print(format_args!("warning: {why}")));
    }
    let settings = Settings { time_limit: settings.time_limit.settled(), ..settings };
    Ok(JobRequest { spec: checked.spec, settings, configuration })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use skt_config::{Bcast, Fact, Output, Pmap, Swap, hpldat};

    #[derive(Parser)]
    struct Only {
        #[command(flatten)]
        run: RunArgs,
    }

    fn args(flags: &[&str], ranks: usize) -> RunArgs {
        let mut run = Only::parse_from([&["x"], flags].concat()).run;
        run.ranks = Some(ranks);
        run
    }

    /// A folder with an HPL.dat of two grids, 1 x 2 and 2 x 1.
    fn folder() -> (tempfile::TempDir, PathBuf) {
        let toml = b"n = [10, 20]\nnb = 8\np = [1, 2]\nq = [2, 1]\nbcast = \"2ring\"\n";
        let spec = skt_config::parse(toml, "t", Format::Toml, false).unwrap().spec;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("HPL.dat");
        std::fs::write(&file, hpldat::write(&spec).unwrap()).unwrap();
        (folder, file)
    }

    fn load_or(args: &RunArgs, default: &Path) -> Result<Checked, ConfigError> {
        Ok(load_with_text(args, default)?.0)
    }

    fn missing() -> &'static Path {
        Path::new("/nonexistent/HPL.dat")
    }

    #[test]
    fn flags_replace_settings_of_the_file_and_leave_the_rest() {
        let (_folder, file) = folder();
        let flags = "--n 30,40,50 --bcast 1ringM,5 --pfact left --swap long --pmap column \
                     --threshold -1 --equil no --align 64 --threads 2 --out report.txt";
        let flags: Vec<&str> = flags.split(' ').collect();
        let checked = load_or(&args(&flags, 2), &file).unwrap();
        assert_eq!(checked.warnings, []);
        let spec = checked.spec;
        assert_eq!((spec.n, spec.nb), (vec![30, 40, 50], vec![8]));
        assert_eq!(spec.grids, [(1, 2), (2, 1)]);
        assert_eq!(spec.bcast, [Bcast::OneRingM, Bcast::LongM]);
        assert_eq!((spec.pfact, spec.rfact), (vec![Fact::Left], vec![Fact::Crout]));
        assert_eq!((spec.swap, spec.pmap), (Swap::SpreadRoll, Pmap::ColumnMajor));
        assert_eq!((spec.threshold, spec.equilibration), (-1.0, false));
        assert_eq!((spec.align_doubles, spec.threads), (64, 2));
        assert_eq!(spec.output, Output::File("report.txt".into()));
    }

    /// A comparison without protection uses the file as it is; protection that the same command
    /// line asks for is refused.
    #[test]
    fn ft_none_ignores_the_checkpoint_settings_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("f.toml");
        let table = "method = \"self\"\nparities = 1\nlevel = \"local:/x\"\nhelper_cores = 1\n";
        std::fs::write(&file, format!("n = 10\nnb = 4\n[checkpoint]\n{table}")).unwrap();
        let file = file.to_str().unwrap();
        let load = |flags: &[&str]| {
            let checked = load_or(&args(&[&["--config", file], flags].concat(), 2), missing())?;
            let settings = Settings::read(&checked.checkpoint, &checked.spec)?;
            let warnings = checked.warnings.iter().map(ToString::to_string);
            Ok::<_, ConfigError>((
                settings,
                warnings.filter(|warning| warning.contains("--ft none")).collect(),
            ))
        };
        let (settings, warnings): (_, Vec<String>) = load(&["--ft", "none"]).unwrap();
        assert_eq!((settings.method, settings.levels.0.len()), (Method::None, 0));
        let not_used = |line: usize, key: &str| {
            format!("{file}:{line}: checkpoint.{key}: is not used with --ft none")
        };
        assert_eq!(warnings, [not_used(6, "level"), not_used(7, "helper_cores")]);
        let (settings, warnings) = load(&[]).unwrap();
        assert_eq!((settings.levels.0.len(), warnings.len()), (1, 0));
        let refused = load(&["--ft", "none", "--level", "local:/y"]).unwrap_err().to_string();
        assert!(refused.starts_with("--level: "), "{refused}");
        let by_file = folder.path().join("none.toml");
        let table = "method = \"none\"\nlevel = \"local:/x\"\n";
        std::fs::write(&by_file, format!("n = 10\nnb = 4\n[checkpoint]\n{table}")).unwrap();
        let checked = load_or(&args(&["--config", by_file.to_str().unwrap()], 2), missing());
        let checked = checked.unwrap();
        assert!(Settings::read(&checked.checkpoint, &checked.spec).is_err());
    }

    /// A rank may be lost each time that rank 0 sends the run.
    #[test]
    fn a_run_that_was_read_once_is_sent_again_after_a_loss() {
        let (_folder, file) = folder();
        let load = || load_for(&args(&["--config", file.to_str().unwrap()], 2), 2);
        let mut job = KeptJob::default();
        let first = request_bytes(&mut job, load);
        assert!(!first.is_empty());
        for _ in 0..2 {
            assert_eq!(request_bytes(&mut job, || unreachable!("it is read once")), first);
        }
    }

    #[test]
    fn a_flag_heals_a_bad_line() {
        let (_folder, file) = folder();
        let text =
            std::fs::read_to_string(&file).unwrap().replace("\n8            NBs", "\n0  NBs");
        std::fs::write(&file, text).unwrap();
        assert!(load_or(&args(&[], 2), &file).is_err());
        assert_eq!(load_or(&args(&["--nb", "8"], 2), &file).unwrap().spec.nb, [8]);
    }

    #[test]
    fn sides_of_grids_from_file_and_flag_must_pair_up() {
        let (_folder, file) = folder();
        let error = load_or(&args(&["--p", "1"], 2), &file).unwrap_err().to_string();
        assert!(error.starts_with("--p has 1 value and /"), "{error}");
        assert!(error.contains("HPL.dat:12: Qs has 2"), "{error}");
    }

    #[test]
    fn flags_alone_are_a_run_on_all_ranks() {
        for (ranks, flags, grid) in [
            (6, &["--n", "100"][..], (2, 3)),
            (6, &["--n", "100", "--p", "6"], (6, 1)),
            (6, &["--n", "100", "--q", "2"], (3, 2)),
            (1, &["--n", "100"], (1, 1)),
        ] {
            let checked = load_or(&args(flags, ranks), missing()).unwrap();
            assert_eq!(checked.spec.grids, [grid]);
            assert_eq!(checked.warnings, []);
            assert!(checked.require_ranks(ranks).is_ok());
        }
        let spec = load_or(&args(&["--n", "9", "--p", "2", "--q", "2"], 4), missing()).unwrap();
        assert_eq!(spec.warnings, []);
        assert_eq!(
            spec.require_ranks(3).unwrap_err().to_string(),
            "--p: the 2 x 2 grid needs 4 ranks, this job has 3: start it on 4"
        );
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig {
            failure_persistence: None,
            ..Default::default()
        })]

        #[test]
        fn any_text_in_a_flag_is_a_run_or_an_error(
            row in 0usize..20,
            text in "\\PC{0,20}|[-+0-9.eE,]{0,30}",
            ranks in 1usize..100,
        ) {
            let flag = format!("--{}={text}", skt_config::param::PARAMS[row].flag());
            let args = args(&["--n=5", &flag], ranks);
            let _ = load_or(&args, missing()).map_err(|error| error.to_string());
        }
    }

    #[test]
    fn without_a_file_n_is_needed() {
        let error = load_or(&args(&["--nb", "8"], 1), missing()).unwrap_err();
        assert!(error.to_string().starts_with("HPL.dat: not found in "), "{error}");
    }
}
