//! `skt-hpl init` writes a configuration without an input file, and `skt-hpl auto` also runs it.
//!
//! Both take the largest N that fits memory and time ([`fit`]). For `init` the model has the time.
//! For `auto` the ranks of a job have it: what the hosts give them decides on threads and memory. A
//! sixth of the time goes to `tune`, which chooses the grid, NB and the other parameters. Two short
//! runs with them predict how long a run takes ([`Pace`]). What runs then is the file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::Args;
use serde::{Deserialize, Serialize};
use skt_host::exit::Exit;
use skt_host::ranges::above_zero;
use skt_host::starter::Ranks;
use skt_host::units::counted;

use super::chosen::Chosen;
use super::fit::{self, Room, SizeArgs};
use super::flags::{self, Flags};
use super::losses::KeptJob;
use super::overrides::ProtectArgs;
use super::pace::{Measured, Pace};
use super::progress::ProgressArgs;
use super::run::{self, RunArgs};
use super::{blas, by_hand, machine, tune};
use crate::report::{OutputOptions, RunOutput, output};
use skt_checkpoint::checkpoint::methods::Method;
use skt_checkpoint::time_limit::TimeLimit;
use skt_comm::mpi::MpiWorld;
use skt_comm::{Comm, CommError, collect};
use skt_config::value::Value;
use skt_config::{At, CheckpointDraft, ConfigError, LaunchDraft, RunSpec, Setting};
use skt_health::environment::library::{AUTO, ChosenBlas, VARIABLE, take_default};
use skt_host::{core_use, messages};
use skt_run::events::RunEvents;
use skt_run::heartbeat;
use skt_run::job::{self, JobError, JobOptions};
use skt_run::protect::Settings;
use skt_run::record::TestRecord;
use skt_run::tune::parameter::{Parameter, with_values};
use skt_run::tune::{TuningTask, table};

/// The files that `auto` writes, in the current folder.
const FILES: [&str; 2] = ["HPL.toml", "HPL.dat"];
/// The part of the time for tuning, and its most seconds.
const TUNING_PART: f64 = 1.0 / 6.0;
const MAX_TUNING_SECONDS: f64 = 60.0;
/// The part of the time that the longer of the two short runs takes.
const SHORT_RUN_PART: f64 = 1.0 / 20.0;
/// The time by default, unless the memory is given.
const DEFAULT_SECONDS: f64 = 120.0;

pub(super) const AFTER_HELP: &str = with_exit_codes!(
    "\
Examples:
  mpirun -np 4 skt-hpl auto               two minutes
  mpirun -np 4 skt-hpl auto --time 10m    ten, of which one at most goes to tuning
  mpirun -np 4 skt-hpl auto --memory 0.8  as large as 0.8 of the memory holds
  mpirun -np 4 skt-hpl --config HPL.toml  the same run again"
);

/// Flags of `init`.
#[derive(Debug, Clone, Args)]
pub(crate) struct InitArgs {
    /// How large the run is, and how it is protected.
    #[command(flatten)]
    size: SizeArgs,
    /// Memory to plan for, in GiB, e.g. for another machine [default: what is available on this
    /// machine]
    #[arg(long, value_name = "GIB", value_parser = above_zero)]
    memory_gib: Option<f64>,
    /// Ranks on this machine [default: (cores - helper cores) / threads]
    #[arg(long, value_name = "R", value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    ranks: Option<u64>,
    /// Lost ranks per group to leave memory for; with abft, per process row [default: as in a run
    /// without flags]
    #[arg(long, value_name = "M")]
    parities: Option<usize>,
    /// Cores to keep from the solver for the threads that encode and write images
    #[arg(long, value_name = "K", default_value_t = 0)]
    helper_cores: usize,
    /// Leave the memory for one rank more, which may come from a node that is lost without a spare
    /// (`launch --no-spare spread`); --ranks is then the number on one node
    #[arg(long)]
    survive_without_spares: bool,
    /// Write a configuration for HPL-MxP (`skt-hpl mxp`): a matrix in single precision, whose
    /// products are taken to be twice as fast as DGEMM; the time of the refinement is not counted
    #[arg(long)]
    mxp: bool,
    /// File to write, TOML if it ends in .toml, else HPL.dat; - is standard output
    #[arg(long, short, value_name = "FILE", default_value = "HPL.dat")]
    out: PathBuf,
}

pub(crate) fn init(args: &InitArgs) -> Result<(), ConfigError> {
    // The rate of a core is measured.
    take_default();
    let InitArgs { size, helper_cores, out: path, .. } = args;
    let threads = size.threads.map_or(1, usize::from);
    let ranks = match args.ranks {
        Some(ranks) => ranks as usize,
        None => (machine::cores()?.saturating_sub(*helper_cores) / threads).max(1),
    };
    let available_bytes = match args.memory_gib {
        Some(gib) => (gib * f64::from(1 << 30)) as u64,
        None => machine::available_bytes()?,
    };
    let mut room = size.room(ranks, available_bytes);
    room.guests = usize::from(args.survive_without_spares);
    let helpers = Some(*helper_cores).filter(|cores| *cores > 0);
    for (setting, count) in [(Setting::Parities, args.parities), (Setting::HelperCores, helpers)] {
        room.asked.extend(count.map(|count| (setting, Value::flag(count.to_string()))));
    }
    let (pace, source) = Pace::measure(ranks * threads)?;
    let base = fit::base(&room, threads, args.mxp, "skt-hpl init")?;
    let mut fitted = fit::fit(&base, &fit::grids(&base, ranks), &room, &pace)?;
    fitted.spec.title = title("init", ranks);
    let (spec, protection, launch) = (&fitted.spec, &fitted.protection, &LaunchDraft::new());
    let chosen = Chosen { spec, protection, launch, path };
    let count =
        Ranks { count: ranks, nodes: None, hostfile: "", threads, helper_cores: *helper_cores };
    chosen.write("init", &(by_hand::start(&count) + &chosen.flags()), size.force)?;
    let words = fitted.words(&pace, room.seconds);
    messages::print(format_args!("init: {words}, by the model; {source}"));
    Ok(())
}

fn title(command: &str, ranks: usize) -> [String; 2] {
    let made_by = format!("skt-hpl {command}: {}", counted(ranks, "rank"));
    ["HPLinpack benchmark input file".to_owned(), made_by]
}

/// Flags of `auto`.
#[derive(Debug, Args)]
pub(crate) struct AutoArgs {
    /// How large the run is, and how it is protected.
    #[command(flatten)]
    size: SizeArgs,
    /// Time after which the job ends, finished or not, as for a run [default: until the end of the
    /// Slurm job]
    #[arg(long, value_name = "TIME", default_value = "auto", hide_default_value = true)]
    pub time_limit: TimeLimit,
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
    /// When to show progress.
    #[command(flatten)]
    pub progress: ProgressArgs,
}

impl AutoArgs {
    /// The time for all; `None`: the memory alone decides.
    fn seconds(&self) -> Option<f64> {
        self.size.time.or_else(|| self.size.memory.is_none().then_some(DEFAULT_SECONDS))
    }

    fn tuning_seconds(&self) -> f64 {
        let of_time = self.seconds().map_or(f64::INFINITY, |seconds| TUNING_PART * seconds);
        of_time.min(MAX_TUNING_SECONDS)
    }
}

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
        let machine = core_use::machine(host);
        let (cores, max_cores) = (machine::core_names()?, machine::max_cores());
        Ok(Self { machine, cores, max_cores, available_bytes: machine::available_bytes()? })
    }
}

/// What all ranks have: each as many threads and as much memory as any other.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Shares {
    ranks: usize,
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
            threads: machines.values().map(threads).min().unwrap_or(1).max(1),
            available_bytes: machines.values().map(bytes).min().unwrap_or(0) * places.len() as u64,
        }
    }
}

/// Why there is no result: the reason is printed, and this is how the job ends; or an error.
enum Stop {
    Exit(Exit),
    Error(JobError),
}

impl From<JobError> for Stop {
    fn from(error: JobError) -> Self {
        Self::Error(error)
    }
}

impl From<CommError> for Stop {
    fn from(error: CommError) -> Self {
        Self::Error(error.into())
    }
}

pub(crate) fn execute(args: &AutoArgs) -> ExitCode {
    let began = Instant::now();
    let blas = blas::choose_by_flag(Some(&args.blas));
    let exit = run::start_mpi().and_then(|world| {
        let comm = world.comm()?;
        let time_limit = collect::broadcast_json(&comm, &args.time_limit.settled(), 0)?;
        let auto = Auto { world: &world, comm: &comm, args, blas, began, time_limit };
        let mine = match auto.run() {
            Ok(exit) | Err(Stop::Exit(exit)) => exit,
            Err(Stop::Error(error)) => return Err(error),
        };
        // What only rank 0 was refused, only it knows.
        let exit = Exit::from_code(collect::broadcast_one(&comm, mine.code(), 0)?);
        heartbeat::done(exit);
        Ok(exit)
    });
    run::end(exit, Exit::code)
}

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
    fn run(&self) -> Result<Exit, Stop> {
        let place = Place::here(&self.comm.host());
        let place = place.map_err(|why| why.to_string());
        let places: Vec<Result<Place, String>> = collect::all_gather_json(self.comm, &place)?;
        let (base, shares) = self.on_rank0(|| self.first(places))?;
        let tuned = self.tune(&base)?;
        let short = self.measure(&tuned)?;
        let n = self.longer(&tuned, &shares, &short)?;
        let longer = self.measure(&RunSpec { n: vec![n], ..tuned.clone() })?;
        let pace = || Pace::measured(&tuned, &short, &longer);
        let config = self.on_rank0(|| self.choose(&tuned, &shares, &pace()))?;
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

    /// What rank 0 finds, on all ranks. It prints an error. Collective.
    fn on_rank0<T: Serialize + for<'d> Deserialize<'d>>(
        &self,
        find: impl FnOnce() -> Result<T, ConfigError>,
    ) -> Result<T, Stop> {
        let mut found = None;
        if self.comm.rank() == 0 {
            let done = find();
            found = done.inspect_err(|why| messages::print(format_args!("error: {why}"))).ok();
        }
        collect::broadcast_json(self.comm, &found, 0)?.ok_or(Stop::Exit(Exit::BadInput))
    }

    fn give_up(&self, error: JobError) -> Stop {
        tune::give_up(self.comm, error).map_or_else(Stop::Error, Stop::Exit)
    }

    fn first(&self, places: Vec<Result<Place, String>>) -> Result<(RunSpec, Shares), ConfigError> {
        for file in FILES {
            if Path::new(file).exists() && !self.args.size.force {
                return Err(ConfigError::exists(file));
            }
            output::must_be_writable(Path::new(file))?;
        }
        if let Some(seconds) =
            self.args.size.time.filter(|it| TUNING_PART * it < tune::MIN_BUDGET_SECONDS)
        {
            let least = tune::MIN_BUDGET_SECONDS / TUNING_PART;
            let what = format!("{seconds} s are too short; legal: {least:.0} s or more");
            return Err(At::flag("--time").error(what));
        }
        let places =
            places.into_iter().collect::<Result<Vec<_>, _>>().map_err(ConfigError::Other)?;
        let mut shares = Shares::new(&places);
        shares.threads = self.args.size.threads.map_or(shares.threads, usize::from);
        let Shares { ranks, threads, available_bytes } = shares;
        messages::print(format_args!(
            "auto: {} of {}; {:.1} GiB of memory",
            counted(ranks, "rank"),
            counted(threads, "thread"),
            available_bytes as f64 / f64::from(1 << 30),
        ));
        let mut room = self.room(&shares, None);
        let none = || Value::flag("none");
        room.asked.entry(Setting::Method).or_insert_with(none);
        let base = fit::base(&room, threads, false, "skt-hpl auto")?;
        // The memory alone decides.
        let pace = &Pace::by_model(1e9);
        let spec = fit::fit(&base, &fit::grids(&base, ranks), &room, pace)?.spec;
        Ok((RunSpec { blas: Some(self.args.blas.clone()), ..spec }, shares))
    }

    /// A trial of `base` with the chosen values.
    fn tune(&self, base: &RunSpec) -> Result<RunSpec, Stop> {
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
        let (tuned, exit) = match tuned {
            Ok(tuning) => (tuning, Exit::BadInput),
            Err(error) => (None, tune::give_up(self.comm, error)?),
        };
        let tuned = tuned.map(|tuning| {
            messages::print(format_args!("{}", table::text(&tuning)));
            RunSpec { n: vec![tuning.chosen.n], ..with_values(base, &tuning.chosen) }
        });
        collect::broadcast_json(self.comm, &tuned, 0)?.ok_or(Stop::Exit(exit))
    }

    fn options(&self) -> JobOptions {
        let mpi_library = Some(self.world.library_version());
        JobOptions { blas: self.blas.clone(), mpi_library, ..JobOptions::default() }
    }

    /// Runs `spec` without a report.
    fn measure(&self, spec: &RunSpec) -> Result<Measured, Stop> {
        let began = Instant::now();
        let mut last = LastTest::default();
        let ran = job::run(self.comm, spec, &self.trial_settings(spec), &self.options(), &mut last);
        // The others wait for a rank with an error, or for one that is gone: all must end.
        let exit = ran.map_err(|error| self.give_up(error))?.exit;
        if exit == Exit::ResidualFailed && self.comm.rank() == 0 {
            messages::print(format_args!(
                "error: FAILED: the residual of a run of N = {} to measure the rate; `skt-hpl \
                 screen` compares the ranks' numbers, and --blas names another library",
                spec.n[0]
            ));
        }
        if exit != Exit::Passed {
            return Err(Stop::Exit(exit));
        }
        let timed_seconds = last.0.map_or(0.0, |test| test.time_seconds);
        let seconds = began.elapsed().as_secs_f64();
        Ok(Measured { n: spec.n[0], seconds, timed_seconds })
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

    fn longer(
        &self,
        tuned: &RunSpec,
        shares: &Shares,
        short: &Measured,
    ) -> Result<usize, CommError> {
        let all_seconds = self.args.seconds().unwrap_or(MAX_TUNING_SECONDS / TUNING_PART);
        let over = SHORT_RUN_PART * all_seconds / short.timed_seconds.max(1e-3);
        let n = (short.n as f64 * over.cbrt()) as usize;
        let bytes = self.room(shares, None).bytes;
        let memory_n = fit::n_in_memory(bytes, &tuned.tests()[0], &self.trial_settings(tuned));
        collect::broadcast_json(self.comm, &n.min(memory_n).max(short.n), 0)
    }

    fn room(&self, shares: &Shares, left_seconds: Option<f64>) -> Room {
        let room = self.args.size.room(shares.ranks, shares.available_bytes);
        Room { seconds: left_seconds, ..room }
    }

    /// Chooses N and the protection, and writes the files. Returns the one that holds all.
    fn choose(
        &self,
        tuned: &RunSpec,
        shares: &Shares,
        pace: &Pace,
    ) -> Result<PathBuf, ConfigError> {
        let left_seconds = self.args.seconds().map(|all| all - self.began.elapsed().as_secs_f64());
        let fitted = fit::fit(tuned, &tuned.grids, &self.room(shares, left_seconds), pace)?;
        messages::print(format_args!("auto: {}", fitted.words(pace, left_seconds)));
        let (blas, title) = (self.blas.named_as_settled().named, title("auto", shares.ranks));
        let (spec, protection) = (&RunSpec { blas, title, ..fitted.spec }, &fitted.protection);
        let launch = &LaunchDraft::new();
        for path in FILES.map(Path::new) {
            let chosen = Chosen { spec, protection, launch, path };
            let start = format!("mpirun -np {} skt-hpl{}", shares.ranks, chosen.flags());
            chosen.write("auto", &start, self.args.size.force)?;
        }
        Ok(PathBuf::from(FILES[0]))
    }
}

#[derive(Default)]
struct LastTest(Option<TestRecord>);

impl RunEvents for LastTest {
    fn test_ends(&mut self, record: &TestRecord) -> Result<(), String> {
        self.0 = Some(record.clone());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(machine: &str, cores: &[&str], max_cores: usize, gib: u64) -> Place {
        let cores = cores.iter().map(|&core| core.to_owned()).collect();
        Place { machine: machine.into(), cores, max_cores, available_bytes: gib << 30 }
    }

    #[test]
    fn ranks_share_cores_and_memory_and_the_least_counts() {
        let all = ["0", "1", "2", "3"];
        let free = vec![place("a", &all, 4, 8), place("a", &all, 4, 7)];
        let of = Shares::new(&free);
        assert_eq!((of.ranks, of.threads, of.available_bytes), (2, 2, 7 << 30));
        let bound = [place("a", &["0"], 4, 8), place("a", &["1"], 4, 8)];
        assert_eq!(Shares::new(&bound).threads, 1);
        let quota = [place("a", &all, 1, 8), place("a", &all, 1, 8)];
        assert_eq!(Shares::new(&quota).threads, 1);
        let other = [free, vec![place("b", &all, 4, 3)]].concat();
        let of = Shares::new(&other);
        assert_eq!((of.threads, of.available_bytes), (2, 9 << 30));
    }
}
