//! The setup before the first test, in four steps, each from those before it: where the ranks run
//! ([`Located`]), their threads ([`Pinned`]), their rates ([`Rated`]), and the hold of the run
//! ([`Held`]).

use std::sync::Arc;
use std::time::Duration;

use super::idle::IdleWatch;
use super::outlook::{self, MeasuredRates};
use super::pinning::{Pinning, PinningRequest};
use super::places::{self, HostComms, Places, RankCores};
use super::{JobOptions, blas, column_rates, store_hazards};
use crate::error::{End, JobError, agreed};
use crate::heartbeat;
use crate::protect::hold::{Patience, RunLock};
use crate::protect::{self, Chosen, FaultInjector, Inject, Outlook, RankProcess, Settings};
use skt_checkpoint::checkpoint::level::folder::{FolderOwner, ImageJob};
use skt_checkpoint::checkpoint::level::owners::Claimant;
use skt_comm::{Comm, collect};
use skt_config::{RunSpec, TestSpec};
use skt_health::doctor;
use skt_health::doctor::finding::{Finding, FindingKind};
use skt_health::environment::preflight::{self, DoesNotFit};
use skt_health::environment::{DgemmSelfTest, Environment, selftest};
use skt_host::core_use::JobPart;
use skt_host::host_names::short_names;
use skt_host::process::ending_processes;
use skt_host::waits::Announced;
use skt_host::{host, memory, messages};
use skt_solver::blas::{library, peak};
use skt_solver::team::Team;
use skt_store::segments::Process as _;
use skt_store::store::{Store, StoreKind};

/// Seconds of the DGEMM self-test, where tests take longer.
const SELF_TEST_SECONDS: f64 = 0.1;
/// Seconds of the DGEMM self-test where the tests take next to no time.
const SELF_TEST_SECONDS_MIN: f64 = 0.001;

/// What is to run, where.
#[derive(Clone, Copy)]
struct Job<'j, 's> {
    world: &'j Comm,
    spec: &'j RunSpec,
    settings: &'j Settings,
    store: &'s (dyn Store + Send + Sync),
}

/// What all tests of a job share on a rank.
pub(crate) struct Setup<'a> {
    /// The store, which outlives the process.
    pub store: &'a (dyn Store + Send + Sync),
    located: Located,
    /// The rank's threads.
    pub pinned: Pinned,
    /// The rates of the ranks.
    pub rated: Rated,
    /// The hold of the run.
    pub held: Held,
    pub is_first_on_host: bool,
    /// Whether this process is the first of those that share its store, and keeps for them what the
    /// run has there.
    pub is_keeper: bool,
    /// On the first rank of a host: the job's processes there, and their CPUs.
    pub job_here: Option<JobPart>,
    /// Faults to inject into this process.
    pub injector: Arc<FaultInjector>,
    /// What this start has chosen, for its restarts.
    pub chosen: Chosen,
    /// Whether the job is the reference's: without protection, and tests that do not fit are
    /// skipped.
    pub is_as_reference: bool,
}

/// Where the ranks run, and what they compute with.
struct Located {
    places: Places,
    comms: HostComms,
    /// The ranks of this machine, where they are not those of the host.
    machine: Option<Comm>,
    cores: Vec<RankCores>,
    /// What an earlier start has chosen.
    kept: Option<Chosen>,
    /// The options, with the BLAS that the ranks have chosen.
    options: JobOptions,
    /// The number of this rank among those that see its store.
    index_in_store: usize,
}

/// A rank's threads on their cores.
pub(crate) struct Pinned {
    pub team: Team,
    /// The hosts, libraries and pinning of the job.
    pub environment: Environment,
    /// Keeps other runs away from the cores of this one.
    pinning: Pinning,
}

/// The rates of the ranks.
pub(crate) struct Rated {
    /// The rate of DGEMM with all cores in use, as the mean over ranks.
    pub self_test: DgemmSelfTest,
    pub rates: MeasuredRates,
    /// The run, with the rates of ranks if it measures them.
    pub spec: RunSpec,
}

/// What keeps other jobs away, and what the run may take.
pub(crate) struct Held {
    /// The lock that keeps other jobs of the same run away.
    pub lock: Option<Arc<RunLock>>,
    /// Folders of images that this process has for its job, against jobs on other hosts.
    _folders: Vec<FolderOwner>,
    /// Whether each protected test will have checkpoints; the same on all ranks.
    pub outlooks: Vec<Option<Outlook>>,
}

impl Located {
    /// Collective.
    fn new(job: Job, options: &JobOptions) -> Result<Self, JobError> {
        let Job { world, spec, settings, store } = job;
        let id = settings.is_on().then(|| store.id()).transpose()?;
        let comms = HostComms::new(world, id.as_ref())?;
        let is_choosing = spec.blas.is_some() || column_rates::are_measured(spec);
        let kept =
            is_choosing.then(|| protect::kept_choices(world, store, settings, comms.is_keeper));
        let kept = kept.transpose()?.flatten();
        let kept_blas = kept.as_ref().map(|kept| &kept.blas);
        let blas = blas::settle(world, spec.blas.as_deref(), &options.blas, kept_blas)?;
        let options = JobOptions { blas, ..options.clone() };
        // Our own threads call the BLAS, each for itself.
        library::use_one_thread();
        let places = all_places(job, &comms, &options)?;
        places::check_blas(&places, spec.blas.as_deref(), kept_blas)?;
        let machine = places.split_machine(world)?;
        let cores = RankCores::gather(machine.as_ref().unwrap_or(&comms.here), world.rank())?;
        let (_, index_in_store) = places::alike(&places, world.rank(), |place| place.memory);
        Ok(Self { places, comms, machine, cores, kept, options, index_in_store })
    }

    fn machine(&self) -> &Comm {
        self.machine.as_ref().unwrap_or(&self.comms.here)
    }
}

impl Pinned {
    /// Collective.
    fn new(job: Job, located: &Located) -> Result<Self, JobError> {
        let Job { world, spec, settings, .. } = job;
        let threads = spec.threads;
        let wanted = PinningRequest { threads, helper_cores: settings.helper_cores, pin: spec.pin };
        let pinning = Pinning::new(located.machine(), &located.cores, &wanted)?;
        agreed(world, pinning.plan.refusal.clone().map_or(Ok(()), Err))?;
        let team = pinning.start_team(threads).map_err(|why| {
            let remedy = "lower --threads, or raise the limit of processes (ulimit -u) or of \
                          addresses (ulimit -v)";
            let text = format!("cannot start {threads} threads a rank: {why}; {remedy}");
            JobError::new(End::Local { is_permanent: true }, text)
        })?;
        let environment = Environment {
            host: host::this_host(),
            memory: memory::this_process(),
            blas: library::loaded(),
            blas_choice: located.options.blas.choice.clone(),
            mpi_library: located.options.mpi_library.clone(),
            hosts: places::hosts(&located.places),
            pinning: pinning.words(),
            helper_cpus: pinning.plan.kept.clone(),
            bf16: None,
        };
        Ok(Self { team, environment, pinning })
    }
}

impl Rated {
    /// Collective.
    fn new(job: Job, located: &Located, pinned: &mut Pinned) -> Result<Self, JobError> {
        let Job { world, spec, settings, .. } = job;
        let Pinned { team, environment, pinning } = pinned;
        let idle = pinning.host.as_ref().map(IdleWatch::start);
        let test_seconds = self_test_seconds(spec);
        let (mut self_test, mean) = self_test(world, team, test_seconds)?;
        let idle_cores = idle.map(|watch| watch.idle_cores(spec.threads));
        let mut findings = Vec::new();
        if located.machine().rank() == 0 {
            let masks: Vec<_> = located.cores.iter().map(RankCores::mask).collect();
            let (rate, peak) = (self_test.gflops_per_core, self_test.peak_gflops_per_core);
            findings = doctor::at_start(
                &world.host(),
                &masks,
                spec.threads,
                idle_cores,
                &environment.blas,
                (rate, peak),
            );
        }
        let lack = collect::first_text(world, &pinning.lack(&world.host()))?;
        let findings = Some(findings).filter(|findings| !findings.is_empty());
        let findings = collect::all_gather_some_json(world, findings.as_ref())?;
        let findings = doctor::joined(findings.into_iter().flat_map(|(_, findings)| findings));
        self_test.warnings = warnings(lack, findings);
        self_test.warnings.extend(places::other_blas(&located.places));
        let mut rates = MeasuredRates {
            gflops_per_core: self_test.gflops_per_core,
            rank_read_bytes: f64::INFINITY,
        };
        // Only checkpoints and limits of time are decided by it.
        if settings.is_on() {
            rates.rank_read_bytes = rank_read_bytes(world, team, spec)?;
        }
        environment.bf16 = blas::select_bf16(world, team, spec, &environment.blas, test_seconds)?;
        let measure = |times: f64| Ok(selftest::dgemm_rates(team, times * test_seconds)?.mean);
        let kept = located.kept.as_ref();
        let (spec, doubt) = column_rates::settle(world, spec, kept, mean, measure)?;
        self_test.warnings.extend(doubt);
        Ok(Self { self_test, rates, spec })
    }
}

impl Held {
    /// Collective.
    fn new(
        job: Job,
        located: &mut Located,
        rates: MeasuredRates,
        is_as_reference: bool,
        wait: &mut Announced,
    ) -> Result<Self, JobError> {
        let Job { world, spec, settings, store } = job;
        let index = located.index_in_store;
        let shared = places::store_of_several_kernels(&located.places, &settings.store);
        shared.map_or(Ok(()), |why| Err(JobError::refused(why)))?;
        wait.update("all ranks to take hold of the run");
        let lock = take_lock(job, index)?;
        wait.update("process 0 and the first of each node to take the folders of images");
        let folders = match &lock {
            Some(lock) => take_folders(job, index, lock)?,
            None => Vec::new(),
        };
        warn_of_one_store(&located.places, world.rank());
        wait.update("memory that processes of earlier starts still have");
        wait_for_memory(job, located)?;
        if !is_as_reference {
            refuse_lack_of_memory(job, located)?;
        }
        // The memory check comes first, as it reports more about what other runs hold.
        if settings.is_on() {
            store_hazards::refuse(world, spec, settings, store, &located.places, index)?;
        }
        let outlooks = outlook::outlooks(world, &spec.tests(), settings, rates)?;
        Ok(Self { lock, _folders: folders, outlooks })
    }
}

/// The places of all ranks, with what earlier starts of the run hold there. Collective.
fn all_places(job: Job, comms: &HostComms, options: &JobOptions) -> Result<Places, JobError> {
    let Job { world, settings, store, .. } = job;
    let (mut id, mut held_bytes) = (None, 0);
    if settings.is_on() {
        id = Some(store.id()?);
        if comms.is_keeper {
            held_bytes = protect::run_bytes(store, &settings.run_id)?;
        }
    }
    Ok(Places::gather(world, comms, id.as_ref(), held_bytes, options)?)
}

/// Refuses tests that do not fit into the memory of the hosts, with what other runs hold there.
/// Collective.
fn refuse_lack_of_memory(job: Job, located: &Located) -> Result<(), JobError> {
    let Job { world, spec, settings, store } = job;
    let places = &located.places;
    let Some((lacking, why)) = memory_lack(spec, settings, places) else { return Ok(()) };
    let run = settings.is_on().then_some(settings.run_id.as_str());
    let left = if located.comms.is_keeper && places[world.rank()].host == lacking {
        protect::left_by_others(store, &settings.store, run)?
    } else {
        None
    };
    let left = collect::first_text(world, &left.unwrap_or_default())?;
    let left = left.map_or(String::new(), |left| format!(" On {lacking} {left}."));
    Err(JobError::refused(why + &left))
}

/// Waits for missing memory while processes that may free some are ending on any host, at most for
/// as long as that takes. Collective.
fn wait_for_memory(job: Job, located: &mut Located) -> Result<(), JobError> {
    const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
    let lacking_bytes = |places: &Places| {
        check_memory(job.spec, job.settings, places).map(|why| why.need_bytes - why.usable_bytes)
    };
    let Located { places, comms, options, .. } = located;
    let Some(bytes) = lacking_bytes(places) else { return Ok(()) };
    let (bytes, team) = (|| bytes, Team::solo());
    let process = RankProcess(&team);
    let (mut patience, mut pause) = (Patience::new(&bytes, &process), PAUSES.0);
    let may_come = || {
        let is_over = patience.is_over(true);
        let is_ending = collect::any(job.world, ending_processes() > 0)?;
        Ok(is_ending && !collect::any(job.world, is_over)?)
    };
    let lacks = || {
        *places = all_places(job, comms, options)?;
        Ok(lacking_bytes(places).is_some())
    };
    let wait = || {
        std::thread::sleep(pause);
        pause = (2 * pause).min(PAUSES.1);
    };
    wait_while(may_come, lacks, wait)
}

/// Waits while something `lacks` that `may_come`. The last check of what lacks follows the check
/// that found that nothing more may come, so that what came in between is seen.
fn wait_while<E>(
    mut may_come: impl FnMut() -> Result<bool, E>,
    mut lacks: impl FnMut() -> Result<bool, E>,
    mut wait: impl FnMut(),
) -> Result<(), E> {
    loop {
        let is_last = !may_come()?;
        if !lacks()? || is_last {
            return Ok(());
        }
        wait();
    }
}

/// Takes the lock of the run, if it is protected. Collective.
fn take_lock(job: Job, index: usize) -> Result<Option<Arc<RunLock>>, JobError> {
    let Job { world, settings, store, .. } = job;
    if !settings.is_on() {
        return Ok(None);
    }
    let (team, host) = (Team::solo(), world.host());
    let taken = RunLock::take(store, &settings.run_id, &host, index, &RankProcess(&team))?;
    let in_use = taken.as_ref().err().map(|why| (why.to_string(), why.passes()));
    let all = collect::all_gather_some_json(world, in_use.as_ref())?;
    match all.first() {
        Some((_, (why, _))) => Err(held(why, all.iter().all(|(_, (_, passes))| *passes))),
        None => Ok(taken.ok().map(Arc::new)),
    }
}

/// Takes the folders of the run's levels for this job. Collective.
fn take_folders(job: Job, index: usize, lock: &RunLock) -> Result<Vec<FolderOwner>, JobError> {
    let Job { world, settings, .. } = job;
    let Some(number) = settings.job_number.filter(|_| !settings.levels.0.is_empty()) else {
        return Ok(Vec::new());
    };
    let (team, host) = (Team::solo(), world.host());
    let process = RankProcess(&team);
    let (supervisor, outlives_losses) = (process.supervisor(), settings.on_loss.is_outlived());
    let claimant = Claimant {
        job: ImageJob { number, host, supervisor, outlives_losses },
        is_first_on_node: index == 0,
        ended: lock.folder_owner(),
        process: &process,
    };
    let taken = settings.levels.take_folders(world, &settings.run_id, &claimant)?;
    let folders = taken.map_err(|why| held(&why.to_string(), why.passes()))?;
    lock.set_folder_owner(number);
    Ok(folders)
}

/// The error of all ranks that another job holds what this one needs, which may pass.
fn held(why: &str, passes: bool) -> JobError {
    if passes {
        heartbeat::enter_phase(heartbeat::CHANGED);
    }
    JobError::refused(why)
}

/// Warns, on rank 0, of hosts that share one memory, and so fail together.
fn warn_of_one_store(places: &Places, rank: usize) {
    if rank != 0 {
        return;
    }
    let hosts = places::hosts_of_one_store(places);
    if !hosts.is_empty() {
        messages::print(format_args!(
            "warning: hosts {} share one memory: the loss of one of them may take the segments of \
             all (--domains can name them as one)",
            short_names(hosts)
        ));
    }
}

/// Refuses a fault to be injected into a rank that does not exist: a user who tests what a run
/// survives would believe that it has survived the fault. A job that continues after a loss may
/// have fewer ranks.
fn fault_of_no_rank(settings: &Settings, options: &JobOptions, ranks: usize) -> Option<String> {
    let is_of_none = |fault: &&Inject| fault.process >= ranks && options.lost_at.is_none();
    let fault = settings.inject.iter().find(is_of_none)?;
    let (rank, last) = (fault.process, ranks - 1);
    Some(format!("--inject {fault}: there is no rank {rank}, this job has ranks 0 to {last}"))
}

impl<'a> Setup<'a> {
    /// Sets up a job whose segments are in `store`. Collective.
    pub(crate) fn new(
        world: &Comm,
        spec: &RunSpec,
        settings: &Settings,
        options: &JobOptions,
        store: &'a (dyn Store + Send + Sync),
    ) -> Result<Self, JobError> {
        let refused = fault_of_no_rank(settings, options, world.size())
            .or_else(|| outlook::nothing_to_resume(spec, settings));
        refused.map_or(Ok(()), |why| Err(JobError::refused(why)))?;
        let kind: StoreKind = settings.store.parse()?;
        let (faults, run) = (&settings.inject, &settings.run_id);
        let injector = Arc::new(FaultInjector::new(faults, world.rank(), kind.open(), run));
        let mut wait = Announced::begin("all ranks to find their stores");
        let job = Job { world, spec, settings, store };
        let mut located = Located::new(job, options)?;
        wait.update("all ranks to start their threads and to time the BLAS");
        let mut pinned = Pinned::new(job, &located)?;
        let rated = Rated::new(job, &located, &mut pinned)?;
        let is_as_reference = options.as_reference && !settings.is_on();
        let job = Job { spec: &rated.spec, ..job };
        let held = Held::new(job, &mut located, rated.rates, is_as_reference, &mut wait)?;
        let places = &located.places;
        let (_, index_on_host) = places::alike(places, world.rank(), |place| &place.host);
        let is_first_on_host = index_on_host == 0;
        Ok(Self {
            store,
            is_first_on_host,
            is_keeper: located.index_in_store == 0,
            job_here: is_first_on_host.then(|| places.job_part(&located.cores, &world.host())),
            injector,
            chosen: places::chosen(places, column_rates::measured(&rated.spec)),
            is_as_reference,
            located,
            pinned,
            rated,
            held,
        })
    }

    pub(crate) fn places(&self) -> &Places {
        &self.located.places
    }

    /// The lines about the setup in the head of the report.
    pub(crate) fn notes(&self, settings: &Settings) -> Vec<String> {
        let spec = &self.rated.spec;
        let as_reference = "no, as in the reference: a lost node ends the run; skt-hpl, the same \
                            program, takes checkpoints";
        let lines = [
            ("protected", self.is_as_reference.then(|| as_reference.to_owned())),
            ("rates    ", column_rates::note(spec)),
            ("protected", outlook::too_small(spec, settings)),
            ("protected", memory_note(spec, settings, &self.located.places)),
            ("protected", outlook::note(settings, &self.held.outlooks)),
        ];
        let lines = lines.into_iter();
        lines.filter_map(|(name, words)| Some(format!("{name}: {}", words?))).collect()
    }
}

/// The warnings about a `lack` of cores and what else was `found`, but for its effects.
fn warnings(lack: Option<String>, mut found: Vec<Finding>) -> Vec<String> {
    let is_effect = |finding: &Finding| {
        [FindingKind::SmtSiblings, FindingKind::BelowPeak].contains(&finding.kind)
    };
    found.retain(|finding| lack.is_none() || !is_effect(finding));
    lack.into_iter().chain(found.iter().map(doctor::line)).collect()
}

/// The seconds of the self-test: a tenth of the time of all tests at 10^9 operations a second on a
/// core, within bounds. Rates that decide on the matrix are measured for as long as any.
fn self_test_seconds(spec: &RunSpec) -> f64 {
    if column_rates::are_measured(spec) {
        return SELF_TEST_SECONDS;
    }
    let seconds = |test: &TestSpec| {
        let cores = (test.ranks() * test.threads) as f64;
        2.0 / 3.0 * (test.n as f64).powi(3) / (1e9 * cores)
    };
    let all: f64 = spec.tests().iter().map(seconds).sum();
    (0.1 * all).clamp(SELF_TEST_SECONDS_MIN, SELF_TEST_SECONDS)
}

/// Times DGEMM on all threads of all ranks at once: the rate that the benchmark could reach. Also
/// returns the mean Gflop/s of this rank.
fn self_test(world: &Comm, team: &Team, seconds: f64) -> Result<(DgemmSelfTest, f64), JobError> {
    world.barrier()?;
    let selftest::Rates { best, mean, .. } = selftest::dgemm_rates(team, seconds)?;
    let rate = best / team.threads() as f64;
    // Units that have just woken up may run at half their rate for tens of milliseconds: only the
    // longest test is compared with the peak.
    let peak = (seconds == SELF_TEST_SECONDS).then(|| peak::gflops_per_core(team)).flatten();
    // NaN where a peak is unknown; the sum is NaN then, too.
    let mut sums = [rate, peak.unwrap_or(f64::NAN)];
    collect::all_sum(world, &mut sums)?;
    let [gflops_per_core, peak] = sums.map(|sum| sum / world.size() as f64);
    let peak_gflops_per_core = Some(peak).filter(|peak| peak.is_finite());
    let self_test = DgemmSelfTest { gflops_per_core, peak_gflops_per_core, warnings: Vec::new() };
    Ok((self_test, mean))
}

/// Bytes a second at which a rank reads a matrix of these tests, while all ranks do, as the mean
/// over ranks. Collective.
fn rank_read_bytes(world: &Comm, team: &Team, spec: &RunSpec) -> Result<f64, JobError> {
    let tests = spec.tests();
    let entries = |test: &TestSpec| (test.n as f64).powi(2) / (test.ranks() * test.threads) as f64;
    let most = tests.iter().map(entries).fold(0.0, f64::max);
    let is_mxp = tests.iter().any(|test| test.mxp.is_some());
    world.barrier()?;
    let rate = if is_mxp {
        selftest::read_bytes_per_second::<f32>(team, most)?
    } else {
        selftest::read_bytes_per_second::<f64>(team, most)?
    };
    let mut sum = [rate];
    collect::all_sum(world, &mut sum)?;
    Ok(sum[0] / world.size() as f64)
}

/// The host with the largest lack of memory, if any host has one; why the job does not fit, and
/// what would.
fn memory_lack(spec: &RunSpec, settings: &Settings, places: &Places) -> Option<(String, String)> {
    let why = check_memory(spec, settings, places)?;
    // The run may have no checkpoints, or too few ranks for any.
    let is_plain = check_memory(spec, &Settings::none(), places).as_ref() == Some(&why);
    let method = settings.method;
    let with = if is_plain { "".into() } else { format!(" That is with --ft {method}.") };
    Some((why.host.clone(), format!("{why}{with}")))
}

/// Checks all tests against the memory of all hosts. Returns why the one with the largest lack does
/// not fit.
pub(super) fn check_memory(
    spec: &RunSpec,
    settings: &Settings,
    places: &Places,
) -> Option<DoesNotFit> {
    let tests = spec.tests();
    let lacking = tests.iter().filter_map(|test| check_memory_of(test, settings, places));
    lacking.max_by_key(|why| why.need_bytes)
}

/// Checks a test against the memory of all hosts. Returns why it does not fit.
pub(super) fn check_memory_of(
    test: &TestSpec,
    settings: &Settings,
    places: &Places,
) -> Option<DoesNotFit> {
    // Ranks beyond the grid stay idle and hold nothing. Ranks of a job that continues after a loss
    // may be missing.
    let ranks = test.ranks();
    let geometry = protect::smallest_group(test, settings, places.hosts_of(ranks));
    let bytes = |n: usize| {
        let test = TestSpec { n, ..test.clone() };
        protect::memory_split(&test, settings, geometry).total()
    };
    preflight::check(test.n, &places::shares(places, ranks), bytes).err()
}

/// The memory that protection takes in the test with the largest memory, in words; `None` without
/// checkpoints.
fn memory_note(spec: &RunSpec, settings: &Settings, places: &Places) -> Option<String> {
    let splits = spec.tests().into_iter().filter_map(|test| {
        let ranks = Some(test.ranks()).filter(|ranks| *ranks <= places.iter().len())?;
        let geometry = protect::smallest_group(&test, settings, places.hosts_of(ranks))?;
        Some((geometry, protect::memory_split(&test, settings, Some(geometry))))
    });
    let (geometry, split) = splits.max_by_key(|(_, split)| split.total())?;
    let words = protect::format_memory(settings, geometry, &split);
    Some(format!("{words}; segments in the store {}", settings.store))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use skt_health::doctor::finding::Gain;

    fn finding(kind: FindingKind) -> Finding {
        let words = |text: &str| text.to_owned();
        let (what, measured, remedy) = (words("a limit"), words("half"), words("raise it"));
        let gain = Some(Gain { times: 2.0, is_measured: false });
        Finding { kind, hosts: vec![words("n1"), words("n2")], what, measured, remedy, gain }
    }

    /// The last process that ends may free what lacks between two looks, in either order.
    #[test]
    fn resource_freed_at_the_last_moment_is_detected() {
        let (ending, lacking) = (Cell::new(1), Cell::new(true));
        let frees_all = || {
            ending.set(0);
            lacking.set(false);
        };
        let found = Cell::new(None);
        let lacks = || {
            found.set(Some(lacking.get()));
            Ok::<_, ()>(lacking.get())
        };
        // After the measurement, in the pause.
        wait_while(|| Ok(ending.get() > 0), lacks, frees_all).unwrap();
        assert_eq!(found.get(), Some(false));
        // Before the count, after an older measurement.
        lacking.set(true);
        let counts = || {
            frees_all();
            Ok(false)
        };
        wait_while(counts, lacks, || unreachable!("nothing lacks")).unwrap();
        assert_eq!(found.get(), Some(false));
        // Nothing more may come, so one measurement is enough.
        lacking.set(true);
        wait_while(|| Ok(false), lacks, || unreachable!("nothing may come")).unwrap();
        assert_eq!(found.get(), Some(true));
    }

    #[test]
    fn cause_is_reported_instead_of_its_effect() {
        let found = [FindingKind::BelowPeak, FindingKind::Governor].map(finding);
        let line = "on n1, n2: a limit: half. Remedy: raise it. It would bring up to 2.0 times the \
                    rate. (skt-hpl doctor)";
        assert_eq!(warnings(None, found.to_vec()), [line, line]);
        assert_eq!(warnings(Some("lack".to_owned()), found.to_vec()), ["lack", line]);
    }
}
