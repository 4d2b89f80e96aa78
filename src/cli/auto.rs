//! `skt-hpl auto`: from the ranks of a job to a result, without an input file.
//!
//! What the hosts give the ranks decides on threads and memory. A sixth of the time goes to `tune`,
//! which chooses the grid, NB and the other parameters. Two short runs with them predict a run's
//! seconds from its start to its end,
//!
//! ```text
//! W(N) = f + c N^2 + t(N),
//! ```
//!
//! with f for the setup, c for generating and checking the matrix, and t(N), the timed part, by the
//! model, scaled to the longer of the two. N is the largest with W(N) within the time that is left.
//! The configuration is written, and what runs then is that file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::Args;
use serde::{Deserialize, Serialize};
use skt_terms::exit::Exit;
use skt_terms::shown::shell_quoted;
use skt_terms::units::{counted, parse_seconds, span};

use super::convert::text;
use super::flags::{self, Flags, Names};
use super::init::{self, Fitted, InitArgs};
use super::losses::KeptJob;
use super::pace::{Pace, operations};
use super::progress::ProgressArgs;
use super::protect::ProtectArgs;
use super::run::{self, RunArgs};
use super::{blas, machine, tune};
use crate::report::{OutputOptions, RunOutput, output};
use skt_checkpoint::checkpoint::methods::Method;
use skt_checkpoint::time_limit::TimeLimit;
use skt_comm::mpi::MpiWorld;
use skt_comm::{Comm, collect};
use skt_config::value::Value;
use skt_config::{At, CheckpointDraft, ConfigError, Format, RunSpec, Setting, checkpoint};
use skt_health::environment::library::{AUTO, ChosenBlas, VARIABLE};
use skt_host::{claims, messages};
use skt_run::events::{ReportError, RunEvents};
use skt_run::heartbeat;
use skt_run::job::{self, JobError, JobOptions};
use skt_run::protect::Settings;
use skt_run::record::TestRecord;
use skt_run::tune::parameter::{Parameter, with_values};
use skt_run::tune::{ParameterOutcome, RaceVerdict, Tuned, Tuning, TuningTask};

/// The files that are written, in the current folder.
const FILES: [(&str, Format); 2] = [("HPL.toml", Format::Toml), ("HPL.dat", Format::Dat)];
/// The part of the time for tuning, and its most seconds, which are those of `init --tune`.
const TUNING_PART: f64 = 1.0 / 6.0;
const MAX_TUNING_SECONDS: f64 = 60.0;
/// The part of the time that the longer of the two short runs takes.
const SHORT_RUN_PART: f64 = 1.0 / 20.0;
/// The time by default, unless the memory is given.
const DEFAULT_SECONDS: f64 = 120.0;
const MEMORY_FRACTION: f64 = 0.8;

pub(super) const AFTER_HELP: &str = with_exit_codes!(
    "\
Examples:
  mpirun -np 4 skt-hpl auto               two minutes
  mpirun -np 4 skt-hpl auto --time 10m    ten, of which one at most goes to tuning
  mpirun -np 4 skt-hpl auto --memory 0.8  as large as 0.8 of the memory holds
  mpirun -np 4 skt-hpl --config HPL.toml  the same run again"
);

/// Flags of `auto`.
#[derive(Debug, Args)]
pub(crate) struct AutoArgs {
    /// Time from the start of the ranks to the end of the report, tuning included [default: 2m, or
    /// as long as it takes with --memory]
    #[arg(long, value_name = "TIME", value_parser = parse_seconds)]
    pub time: Option<f64>,
    /// Time after which the job ends, finished or not, as for a run [default: until the end of the
    /// Slurm job]
    #[arg(long, value_name = "TIME", default_value = "auto", hide_default_value = true)]
    pub time_limit: TimeLimit,
    /// Part of the available memory that the matrix and its work space may take [default: 0.8]
    #[arg(long, value_name = "0..1")]
    pub memory: Option<f64>,
    /// Checkpoint method to leave memory for [default: self if a checkpoint is due before the end
    /// of the run, else none]
    #[arg(long, value_name = "METHOD", value_parser = Names(Method::NAMES.to_vec()))]
    pub ft: Option<String>,
    /// Threads per rank [default: as many as the rank has cores]
    #[arg(long, value_name = "T", value_parser = clap::value_parser!(u64).range(1..=4096))]
    pub threads: Option<u64>,
    /// BLAS to call: the built-in one, the fastest here (auto), another by its name, e.g. mkl_rt,
    /// or by its file
    #[arg(long, value_name = "LIBRARY", env = VARIABLE, hide_env_values = true,
        default_value = AUTO)]
    pub blas: String,
    /// Where the report goes: stdout or -, stderr, or a file [default: stdout]
    #[arg(long, short, value_name = "FILE")]
    pub out: Option<String>,
    /// Also write a report of the run as one JSON document
    #[arg(long, value_name = "FILE", value_parser = flags::file_next_to_a_report())]
    pub json: Option<PathBuf>,
    /// Overwrite HPL.dat and HPL.toml if they exist
    #[arg(long, short)]
    pub force: bool,
    /// When to show progress.
    #[command(flatten)]
    pub progress: ProgressArgs,
}

impl AutoArgs {
    /// The time for all; `None`: the memory alone decides.
    fn seconds(&self) -> Option<f64> {
        self.time.or_else(|| self.memory.is_none().then_some(DEFAULT_SECONDS))
    }

    fn tuning_seconds(&self) -> f64 {
        let of_time = self.seconds().map_or(f64::INFINITY, |seconds| TUNING_PART * seconds);
        of_time.min(MAX_TUNING_SECONDS)
    }

    fn memory_fraction(&self) -> f64 {
        self.memory.unwrap_or(MEMORY_FRACTION)
    }

    /// What `init` plans by for these ranks.
    fn init_args(&self, ranks: usize, threads: usize, ft: Option<&str>) -> InitArgs {
        InitArgs {
            memory_fraction: self.memory_fraction(),
            threads,
            ranks: Some(ranks),
            ft: ft.map(str::to_owned),
            ..InitArgs::default()
        }
    }
}

/// What a rank's host gives it.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Place {
    /// The machine, which several containers may share.
    machine: String,
    /// The cores on which the rank may run.
    cores: BTreeSet<String>,
    /// The most cores for which it has processor time.
    max_cores: usize,
    available_bytes: u64,
}

impl Place {
    fn here(host: &str) -> Result<Self, ConfigError> {
        let machine = claims::machine(host);
        let (cores, max_cores) = (machine::core_names()?, machine::max_cores());
        Ok(Self { machine, cores, max_cores, available_bytes: machine::available_bytes()? })
    }
}

/// What all ranks have: each as many threads and as much memory as any other.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Shares {
    ranks: usize,
    machines: usize,
    threads: usize,
    /// Bytes that all ranks may take, if each takes as many as the one with the least.
    available_bytes: u64,
}

impl Shares {
    fn new(places: &[Place]) -> Self {
        let mut machines: BTreeMap<&str, Vec<&Place>> = BTreeMap::new();
        for place in places {
            machines.entry(&place.machine).or_default().push(place);
        }
        let threads = |ranks: &Vec<&Place>| {
            let cores = ranks.iter().flat_map(|place| &place.cores).collect::<BTreeSet<_>>().len();
            let max_cores = ranks.iter().map(|place| place.max_cores).min().unwrap_or(1);
            cores.min(max_cores) / ranks.len()
        };
        let bytes = |ranks: &Vec<&Place>| {
            let least = ranks.iter().map(|place| place.available_bytes).min().unwrap_or(0);
            least / ranks.len() as u64
        };
        Self {
            ranks: places.len(),
            machines: machines.len(),
            threads: machines.values().map(threads).min().unwrap_or(1).max(1),
            available_bytes: machines.values().map(bytes).min().unwrap_or(0) * places.len() as u64,
        }
    }
}

/// Chooses, writes and runs, on all ranks of the job.
pub(crate) fn execute(args: &AutoArgs) -> ExitCode {
    let began = Instant::now();
    let blas = blas::choose_by_flag(Some(&args.blas));
    let exit = run::start_mpi().and_then(|world| {
        let comm = world.comm()?;
        let time_limit = collect::broadcast_json(&comm, &args.time_limit.settled(), 0)?;
        let mine = Auto { world: &world, comm: &comm, args, blas, began, time_limit }.run()?;
        // What only rank 0 was refused, only it knows.
        let exit = Exit::from_code(collect::broadcast_one(&comm, mine.code(), 0)?);
        heartbeat::done(exit);
        Ok(exit)
    });
    run::end(exit, Exit::code)
}

/// A job that chooses its run.
struct Auto<'a> {
    world: &'a MpiWorld,
    comm: &'a Comm,
    args: &'a AutoArgs,
    blas: ChosenBlas,
    began: Instant,
    /// The end of the job's time by rank 0's clock.
    time_limit: TimeLimit,
}

impl Auto<'_> {
    fn run(&self) -> Result<Exit, JobError> {
        let place = Place::here(&self.comm.host());
        let place = place.map_err(|why| why.to_string());
        let places: Vec<Result<Place, String>> = collect::all_gather_json(self.comm, &place)?;
        let first = self.on_rank0(|| self.first(places))?;
        let Some((base, shares)) = first else { return Ok(Exit::BadInput) };
        let tuned = match self.tune(&base)? {
            Ok(tuned) => tuned,
            Err(exit) => return Ok(exit),
        };
        let short = match self.measure(&tuned)? {
            Ok(short) => short,
            Err(exit) => return Ok(exit),
        };
        let n = self.longer(&tuned, &shares, &short)?;
        let longer = match self.measure(&RunSpec { n: vec![n], ..tuned.clone() })? {
            Ok(longer) => longer,
            Err(exit) => return Ok(exit),
        };
        let costs = || Costs::by(&tuned, &short, &longer);
        let chosen = self.on_rank0(|| self.choose(&tuned, &shares, &costs()))?;
        let Some(config) = chosen else { return Ok(Exit::BadInput) };
        let time_limit = vec![Value::flag(self.time_limit.to_string())];
        let settings = Flags([(Setting::TimeLimit, time_limit)].into());
        let run = RunArgs {
            config: Some(config),
            protect: ProtectArgs { settings, ..ProtectArgs::default() },
            out: self.args.out.clone(),
            json: self.args.json.clone(),
            progress: self.args.progress,
            ..RunArgs::default()
        };
        let blas = self.blas.named_as_settled();
        Ok(run::run_on(self.world, self.comm, &run, &blas, &mut KeptJob::default())?.exit)
    }

    /// What rank 0 finds, on all ranks; `None` if it is an error, which it prints. Collective.
    fn on_rank0<T: Serialize + for<'d> Deserialize<'d>>(
        &self,
        find: impl FnOnce() -> Result<T, ConfigError>,
    ) -> Result<Option<T>, JobError> {
        let mut found = None;
        if self.comm.rank() == 0 {
            let done = find();
            found = done.inspect_err(|why| messages::print(format_args!("error: {why}"))).ok();
        }
        Ok(collect::broadcast_json(self.comm, &found, 0)?)
    }

    /// The run that tuning begins with.
    fn first(&self, places: Vec<Result<Place, String>>) -> Result<(RunSpec, Shares), ConfigError> {
        for (file, _) in FILES {
            if Path::new(file).exists() && !self.args.force {
                return Err(ConfigError::Exists { file: file.to_owned() });
            }
            output::must_be_writable(Path::new(file))?;
        }
        if let Some(seconds) =
            self.args.time.filter(|it| TUNING_PART * it < tune::MIN_BUDGET_SECONDS)
        {
            let least = tune::MIN_BUDGET_SECONDS / TUNING_PART;
            let what = format!("{seconds} s are too short; legal: {least:.0} s or more");
            return Err(At::flag("--time").error(what));
        }
        if let Some(part) = self.args.memory.filter(|part| !(*part > 0.0 && *part <= 1.0)) {
            return Err(At::flag("--memory").out_of_range(part, "more than 0, at most 1"));
        }
        let places =
            places.into_iter().collect::<Result<Vec<_>, _>>().map_err(ConfigError::Other)?;
        let Shares { ranks, machines, threads, available_bytes } = Shares::new(&places);
        let threads = self.args.threads.map_or(threads, |threads| threads as usize);
        let shares = Shares { ranks, machines, threads, available_bytes };
        messages::print(format_args!(
            "auto: {} of {} on {}; {:.1} GiB of memory",
            counted(ranks, "rank"),
            counted(threads, "thread"),
            counted(machines, "machine"),
            available_bytes as f64 / f64::from(1 << 30),
        ));
        let ft = self.args.ft.as_deref().unwrap_or("none");
        let init_args = self.args.init_args(ranks, threads, Some(ft));
        let spec = init::fit_memory(&init_args, ranks, available_bytes)?.spec;
        Ok((RunSpec { blas: Some(self.args.blas.clone()), ..spec }, shares))
    }

    /// Tunes the parameters of `base`. The run of a trial with the chosen values, or how the job
    /// ends, whose reason is printed.
    fn tune(&self, base: &RunSpec) -> Result<Result<RunSpec, Exit>, JobError> {
        let parameters = Parameter::all_of(&base.tests()[0]).collect();
        let budget_seconds = self.args.tuning_seconds();
        let task = TuningTask { base: base.clone(), parameters, n: None, budget_seconds };
        let settings = self.trial_settings(base);
        // The output ends here, so that no line of progress is in the way of an error.
        let tuned = skt_run::tune::tune(
            self.comm,
            &task,
            &settings,
            &self.options(),
            &mut RunOutput::new(OutputOptions::default(), self.args.progress.progress()),
        );
        let mut exit = Exit::BadInput;
        let tuned = match tuned {
            Ok(tuning) => tuning.map(|tuning| {
                print_choices(&tuning);
                let n = vec![tuning.chosen.n];
                RunSpec { n, ..with_values(base, &tuning.chosen) }
            }),
            Err(error) => {
                exit = tune::give_up(self.comm, error)?;
                None
            }
        };
        Ok(collect::broadcast_json(self.comm, &tuned, 0)?.ok_or(exit))
    }

    fn options(&self) -> JobOptions {
        let mpi_library = Some(self.world.library_version());
        JobOptions { blas: self.blas.clone(), mpi_library, ..JobOptions::default() }
    }

    /// Runs `spec` without a report. The error is how the job ends, whose reason is printed.
    fn measure(&self, spec: &RunSpec) -> Result<Result<Measured, Exit>, JobError> {
        let began = Instant::now();
        let mut last = LastTest::default();
        let ran = job::run(self.comm, spec, &self.trial_settings(spec), &self.options(), &mut last);
        match ran {
            Ok(done) if done.exit == Exit::Passed => {}
            Ok(done) => {
                if done.exit == Exit::ResidualFailed && self.comm.rank() == 0 {
                    messages::print(format_args!(
                        "error: FAILED: the residual of a run of N = {} to measure the rate; \
                         another BLAS (--blas) may be right, and `skt-hpl screen` compares the \
                         ranks' numbers",
                        spec.n[0]
                    ));
                }
                return Ok(Err(done.exit));
            }
            // The others wait for this rank, or for one that is gone: all must end.
            Err(error) => return tune::give_up(self.comm, error).map(Err),
        }
        let timed_seconds = last.0.map_or(0.0, |test| test.time_seconds);
        let seconds = began.elapsed().as_secs_f64();
        Ok(Ok(Measured { n: spec.n[0], seconds, timed_seconds }))
    }

    /// The protection of tuning and of short runs: none, or the checksums of the grid. Their
    /// segments have a name of their own, so that those of a run stay as they are.
    fn trial_settings(&self, spec: &RunSpec) -> Settings {
        let method = if spec.checksums > 0 { Method::Abft } else { Method::None };
        let mut draft = CheckpointDraft::from([(Setting::Method, Value::text(method.to_string()))]);
        if spec.checksums > 0 {
            draft.insert(Setting::Parities, Value::number(spec.checksums));
        }
        let settings = Settings::read(&draft, spec).expect("the grid was made for this protection");
        tune::apart("auto", Settings { time_limit: self.time_limit, ..settings })
    }

    /// The order of the longer of the short runs, on all ranks.
    fn longer(
        &self,
        tuned: &RunSpec,
        shares: &Shares,
        short: &Measured,
    ) -> Result<usize, JobError> {
        let all_seconds = self.args.seconds().unwrap_or(MAX_TUNING_SECONDS / TUNING_PART);
        let over = SHORT_RUN_PART * all_seconds / short.timed_seconds.max(1e-3);
        let n = (short.n as f64 * over.cbrt()) as usize;
        let memory_n = self.memory_n(tuned, shares, &self.trial_settings(tuned));
        Ok(collect::broadcast_json(self.comm, &n.min(memory_n).max(short.n), 0)?)
    }

    /// The largest multiple of NB that fits the memory.
    fn memory_n(&self, spec: &RunSpec, shares: &Shares, settings: &Settings) -> usize {
        let budget = (shares.available_bytes as f64 * self.args.memory_fraction()) as u64;
        init::n_in_memory(budget, &spec.tests()[0], settings)
    }

    /// Chooses N and the protection, and writes the files. Returns the one that holds all.
    fn choose(
        &self,
        tuned: &RunSpec,
        shares: &Shares,
        costs: &Costs,
    ) -> Result<PathBuf, ConfigError> {
        let left_seconds = self.args.seconds().map(|all| all - self.began.elapsed().as_secs_f64());
        let fit = |ft| self.fit(tuned, shares, costs, left_seconds, ft);
        let Fitted { spec, protection, memory_n } = match self.args.ft.as_deref() {
            Some(ft) => fit(Some(ft))?,
            None if shares.ranks == 1 => fit(Some("none"))?,
            None => {
                let protected = fit(None)?;
                if init::is_due(&protected, &costs.pace)? { protected } else { fit(Some("none"))? }
            }
        };
        let n = spec.n[0];
        let timed = costs.pace.seconds(&spec, n);
        let why = match left_seconds {
            Some(left) if n < memory_n => {
                format!("what ends in the {} that are left; memory holds {memory_n}", span(left))
            }
            _ => format!("{} of the memory", self.args.memory_fraction()),
        };
        let rate = timed.map_or(String::new(), |seconds| {
            let gflops = 1e-9 * operations(n) / seconds;
            format!("; about {gflops:.0} Gflop/s, {} of factoring and solving", span(seconds))
        });
        messages::print(format_args!("auto: N = {n}: {why}{rate}"));
        let method = &protection[&Setting::Method].text;
        let blas = self.blas.named_as_settled().named;
        let blas_flag = blas.as_ref().map(|name| format!(" --blas {}", shell_quoted(name)));
        let spec = RunSpec { blas, ..spec };
        let repeat = format!(
            "auto: HPL.toml and HPL.dat are of this run: `skt-hpl --config HPL.toml`, started as \
             this job was, repeats it{}; with HPL.dat, add {}",
            if method == "none" { "" } else { ", or resumes it after a loss" },
            checkpoint::flags(&protection) + &blas_flag.unwrap_or_default()
        );
        messages::print(format_args!("{repeat}"));
        for (file, format) in FILES {
            let kept = if format == Format::Toml { &protection } else { &CheckpointDraft::new() };
            let (spec, comment) = match format {
                Format::Toml => (&spec, "# Made by `skt-hpl auto`, which measured these ranks\n\n"),
                // The flag for the BLAS is named above.
                Format::Dat => (&RunSpec { blas: None, ..spec.clone() }, ""),
            };
            let text = text(spec, kept, format)?;
            output::write_file(Path::new(file), &format!("{comment}{text}"), self.args.force)?;
        }
        Ok(PathBuf::from(FILES[0].0))
    }

    /// The largest run with a method that fits the memory and the time.
    fn fit(
        &self,
        tuned: &RunSpec,
        shares: &Shares,
        costs: &Costs,
        left_seconds: Option<f64>,
        ft: Option<&str>,
    ) -> Result<Fitted, ConfigError> {
        let init_args = self.args.init_args(shares.ranks, shares.threads, ft);
        let (settings, protection) = init::protection(&init_args, tuned, shares.ranks)?;
        let memory_n = self.memory_n(tuned, shares, &settings);
        let in_time =
            |left| init::n_in_time(left, memory_n, tuned.nb[0], |n| costs.seconds(tuned, n));
        let n = left_seconds.map_or(Ok(memory_n), in_time)?;
        let ranks = counted(shares.ranks, "rank");
        let title = ["HPLinpack benchmark input file".into(), format!("skt-hpl auto: {ranks}")];
        Ok(Fitted { spec: RunSpec { n: vec![n], title, ..tuned.clone() }, protection, memory_n })
    }
}

/// Prints what was chosen, and why, a line for each parameter.
fn print_choices(tuning: &Tuning) {
    for Tuned { parameter, outcome, .. } in &tuning.parameters {
        let why = match outcome {
            ParameterOutcome::Raced(race) => match (race.verdict, race.challenger) {
                (RaceVerdict::Better, Some((_, by))) => {
                    let [gain, noise] = [by.gain, by.noise].map(|part| 100.0 * part);
                    format!("{gain:.1} % faster than the default, noise {noise:.1} %")
                }
                (RaceVerdict::Unfinished, _) => "no time to decide between its values".to_owned(),
                _ => "no other value is faster beyond the noise".to_owned(),
            },
            ParameterOutcome::Idle(why) => (*why).to_owned(),
            ParameterOutcome::NotReached => "no time was left to try others".to_owned(),
        };
        let value = parameter.shown(&tuning.chosen);
        messages::print(format_args!("auto: {} {value}: {why}", parameter.name()));
    }
}

/// A run that was measured.
struct Measured {
    n: usize,
    /// From its start to its end.
    seconds: f64,
    timed_seconds: f64,
}

/// What a run costs, see the top.
struct Costs {
    setup_seconds: f64,
    seconds_per_element: f64,
    pace: Pace,
}

impl Costs {
    fn by(tuned: &RunSpec, short: &Measured, longer: &Measured) -> Self {
        let untimed = |run: &Measured| (run.seconds - run.timed_seconds).max(0.0);
        let [few, many] = [short, longer].map(|run| (run.n as f64).powi(2));
        let slope =
            if many > few { (untimed(longer) - untimed(short)) / (many - few) } else { 0.0 };
        let seconds_per_element = slope.max(0.0);
        let setup_seconds = (untimed(longer) - seconds_per_element * many).max(0.0);
        let pace = Pace::from_test(tuned, longer.n, longer.timed_seconds);
        Self { setup_seconds, seconds_per_element, pace }
    }

    /// Seconds of the run from its start to its end.
    fn seconds(&self, spec: &RunSpec, n: usize) -> Option<f64> {
        let elements = (n as f64).powi(2);
        let untimed = self.setup_seconds + self.seconds_per_element * elements;
        Some(untimed + self.pace.seconds(spec, n)?)
    }
}

/// Keeps the record of the last test.
#[derive(Default)]
struct LastTest(Option<TestRecord>);

impl RunEvents for LastTest {
    fn test_ends(&mut self, record: &TestRecord) -> Result<(), ReportError> {
        self.0 = Some(record.clone());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skt_config::parse;

    fn place(machine: &str, cores: &[&str], max_cores: usize, gib: u64) -> Place {
        let cores = cores.iter().map(|&core| core.to_owned()).collect();
        Place { machine: machine.into(), cores, max_cores, available_bytes: gib << 30 }
    }

    #[test]
    fn ranks_share_cores_and_memory_and_the_least_counts() {
        let all = ["0", "1", "2", "3"];
        let free = vec![place("a", &all, 4, 8), place("a", &all, 4, 7)];
        let of = Shares::new(&free);
        assert_eq!((of.ranks, of.machines, of.threads, of.available_bytes), (2, 1, 2, 7 << 30));
        let bound = [place("a", &["0"], 4, 8), place("a", &["1"], 4, 8)];
        assert_eq!(Shares::new(&bound).threads, 1);
        let quota = [place("a", &all, 1, 8), place("a", &all, 1, 8)];
        assert_eq!(Shares::new(&quota).threads, 1);
        let other = [free, vec![place("b", &all, 4, 3)]].concat();
        let of = Shares::new(&other);
        assert_eq!((of.machines, of.threads, of.available_bytes), (2, 2, 9 << 30));
    }

    #[test]
    fn costs_of_two_runs_are_met() {
        let toml = b"n = 9600\nnb = 192\np = 1\nq = 2\n";
        let spec = parse(toml, "t", Format::Toml, false).unwrap().spec;
        let run = |n: usize, timed_seconds: f64| {
            let seconds = 0.3 + 1e-8 * (n * n) as f64 + timed_seconds;
            Measured { n, seconds, timed_seconds }
        };
        let (short, longer) = (run(960, 0.02), run(9600, 6.0));
        let costs = Costs::by(&spec, &short, &longer);
        let of_longer = costs.seconds(&spec, 9600).unwrap();
        assert!((of_longer - longer.seconds).abs() < 1e-9, "{of_longer}");
        // Generating and checking grow as the square, factoring by less than the cube.
        let of_double = costs.seconds(&spec, 19200).unwrap();
        assert!((0.3 + 4e-8 * 9600.0 * 9600.0 + 36.0..54.0).contains(&of_double), "{of_double}");
        let alike = Costs::by(&spec, &longer, &longer);
        assert!((alike.seconds(&spec, 9600).unwrap() - longer.seconds).abs() < 1e-9);
    }
}
