//! The setup before the first test: threads, pinning, the DGEMM self-test, the memory check.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::error::JobError;
use super::idle::IdleWatch;
use super::options::JobOptions;
use super::outlook::{self, MeasuredRates};
use super::pinning::{Pinning, PinningRequest};
use super::places::{self, HostComms, Places, RankCores};
use super::refused::Refused;
use super::{bf16, blas, column_rates, store_hazards, warnings};
use crate::protect::hold::{Patience, RunLock};
use crate::protect::{
    self, Chosen, FaultInjector, GuessedRates, Inject, MemoryProgress, Outlook, RankProcess,
    Settings,
};
use serde::{Deserialize, Serialize};
use skt_checkpoint::checkpoint::group::PlacementError;
use skt_checkpoint::checkpoint::level::folder::{FolderOwner, ImageJob};
use skt_checkpoint::checkpoint::level::owners::Claimant;
use skt_comm::{Comm, CommError, collect};
use skt_config::{GemmPrecision, RateSource, RunSpec, TestSpec};
use skt_health::doctor::finding::{Finding, FindingKind};
use skt_health::doctor::{self, at_start};
use skt_health::environment::preflight::{self, DoesNotFit};
use skt_health::environment::{DgemmSelfTest, Environment, kernel, selftest};
use skt_host::core_use::JobPart;
use skt_host::process::ending_processes;
use skt_host::waits::Announced;
use skt_host::{host, memory, messages};
use skt_solver::blas::{library, peak};
use skt_solver::team::Team;
use skt_store::layout::Geometry;
use skt_store::segments::Process as _;
use skt_store::store::{Store, StoreKind};

/// Seconds of the DGEMM self-test, where tests take longer.
const SELF_TEST_SECONDS: f64 = 0.1;
/// Seconds of the DGEMM self-test where the tests take next to no time.
const SELF_TEST_SECONDS_MIN: f64 = 0.01;

/// What all tests of a job share on a rank.
pub(crate) struct Setup<'a> {
    /// The rank's threads.
    pub team: Team,
    /// The hosts, libraries and pinning of the job.
    pub environment: Environment,
    /// The rate of DGEMM with all cores in use, as the mean over ranks.
    pub self_test: DgemmSelfTest,
    /// The run, with the rates of ranks if it measures them.
    pub spec: RunSpec,
    /// The rates that this start has measured.
    pub rates: MeasuredRates,
    /// Why the job cannot run, if it cannot.
    pub refusal: Option<Refused>,
    /// Whether the job is the reference's: without protection, and tests that do not fit are
    /// skipped.
    is_as_reference: bool,
    /// The cost of the protection in memory, in words.
    pub memory_note: Option<String>,
    /// The store, which outlives the process.
    pub store: &'a (dyn Store + Send + Sync),
    /// Shows how far this rank has reserved the memory of a test.
    pub memory_progress: MemoryProgress,
    /// Whether this process is the first of its host.
    pub is_first_on_host: bool,
    /// Whether this process is the first of those that share its store, and keeps for them what the
    /// run has there.
    pub is_keeper: bool,
    /// On the first rank of a host: the job's processes there, and their CPUs.
    pub job_here: Option<JobPart>,
    /// Faults to inject into this process.
    pub injector: Arc<FaultInjector>,
    /// The lock that keeps other jobs of the same run away.
    pub lock: Option<Arc<RunLock>>,
    /// Folders of images that this process has for its job, against jobs on other hosts.
    _folders: Vec<FolderOwner>,
    /// Keeps other runs away from the cores of this one.
    _pinning: Pinning,
    /// Whether each protected test will have checkpoints; the same on all ranks.
    pub outlooks: Vec<Option<Outlook>>,
    /// The time of each part of the setup on this rank, in words.
    pub part_times: String,
    /// What this start has chosen, for its restarts.
    pub chosen: Chosen,
    /// The places of all ranks.
    places: Places,
}

/// The time that each part of the setup takes.
struct StopWatch {
    since: Instant,
    parts: Vec<(&'static str, f64)>,
}

impl StopWatch {
    fn start() -> Self {
        Self { since: Instant::now(), parts: Vec::new() }
    }

    fn end_part(&mut self, name: &'static str) {
        let now = Instant::now();
        self.parts.push((name, (now - self.since).as_secs_f64()));
        self.since = now;
    }

    fn words(&self) -> String {
        let all: f64 = self.parts.iter().map(|(_, seconds)| seconds).sum();
        let part = |(name, seconds): &(&str, f64)| format!("{name} {seconds:.3} s");
        let parts: Vec<String> = self.parts.iter().map(part).collect();
        format!("{} ({all:.3} s in all)", parts.join(", "))
    }
}

/// The places of all ranks, with what earlier starts of the run hold there. Collective.
fn all_places(
    world: &Comm,
    comms: &HostComms,
    settings: &Settings,
    options: &JobOptions,
    store: &(dyn Store + Send + Sync),
) -> Result<Places, JobError> {
    let (mut id, mut held_bytes) = (None, 0);
    if settings.is_on() {
        id = Some(store.id()?);
        if comms.is_keeper {
            // Removes leftovers of all runs: no run can resume from them.
            warnings::print(&protect::tidy(store)?);
            held_bytes = protect::run_bytes(store, &settings.run_id)?;
        }
    }
    Ok(Places::gather(world, comms, id.as_ref(), held_bytes, options)?)
}

fn environment(options: &JobOptions, places: &Places, pinning: &Pinning) -> Environment {
    Environment {
        host: host::this_host(),
        memory: memory::this_process(),
        blas: library::loaded(),
        blas_choice: options.blas.choice.clone(),
        mpi_library: options.mpi_library.clone(),
        hosts: places::hosts(places),
        pinning: pinning.words(),
        helper_cpus: pinning.kept().to_vec(),
        bf16: None,
    }
}

/// Why the tests do not fit into the memory of the hosts, if they do not, and what other runs hold
/// there. Collective.
fn lack_of_memory(
    world: &Comm,
    spec: &RunSpec,
    settings: &Settings,
    store: &(dyn Store + Send + Sync),
    places: &Places,
    is_keeper: bool,
) -> Result<Option<String>, JobError> {
    let Some((lacking, why)) = memory_lack(spec, settings, places) else { return Ok(None) };
    let run = settings.is_on().then_some(settings.run_id.as_str());
    let left = if is_keeper && places[world.rank()].host == lacking {
        protect::left_by_others(store, &settings.store, run)?
    } else {
        None
    };
    let left = collect::first_text(world, &left.unwrap_or_default())?;
    Ok(Some(why + &left.map_or(String::new(), |left| format!(" On {lacking} {left}."))))
}

/// Waits for missing memory while processes that may free some are ending on any host, at most for
/// as long as that takes. Collective.
fn wait_for_memory(
    world: &Comm,
    comms: &HostComms,
    spec: &RunSpec,
    settings: &Settings,
    options: &JobOptions,
    store: &(dyn Store + Send + Sync),
    places: &mut Places,
) -> Result<(), JobError> {
    const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
    let lacking_bytes = |places: &Places| {
        check_memory(spec, settings, places).map(|why| why.need_bytes - why.usable_bytes)
    };
    let Some(bytes) = lacking_bytes(places) else { return Ok(()) };
    let (bytes, team) = (|| bytes, Team::solo());
    let process = RankProcess(&team, None);
    let (mut patience, mut pause) = (Patience::new(&bytes, &process), PAUSES.0);
    let may_come = || {
        let is_over = patience.is_over(true);
        let is_ending = collect::any(world, ending_processes() > 0)?;
        Ok(is_ending && !collect::any(world, is_over)?)
    };
    let lacks = || {
        *places = all_places(world, comms, settings, options, store)?;
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

/// Takes the lock of the run, if it is protected. Returns on all ranks why that fails. Collective.
fn take_lock(
    world: &Comm,
    settings: &Settings,
    store: &(dyn Store + Send + Sync),
    index: usize,
) -> Result<(Option<Arc<RunLock>>, Option<Refused>), JobError> {
    if !settings.is_on() {
        return Ok((None, None));
    }
    let (team, host) = (Team::solo(), world.host());
    let taken = RunLock::take(store, &settings.run_id, &host, index, &RankProcess(&team, None))?;
    let in_use = taken.as_ref().err().map(|why| (why.to_string(), why.passes()));
    let all = collect::all_gather_some_json(world, in_use.as_ref())?;
    let passes = all.iter().all(|(_, (_, passes))| *passes);
    let first = all.into_iter().next();
    let refusal = first.map(|(_, (why, _))| Refused { passes, ..Refused::for_good(why) });
    Ok((taken.ok().map(Arc::new), refusal))
}

/// Takes the folders of the run's levels for this job. The inner error is why that fails, the same
/// on all ranks. Collective.
fn take_folders(
    world: &Comm,
    settings: &Settings,
    index: usize,
    lock: &RunLock,
) -> Result<Result<Vec<FolderOwner>, Refused>, JobError> {
    let Some(number) = settings.job_number.filter(|_| !settings.levels.0.is_empty()) else {
        return Ok(Ok(Vec::new()));
    };
    let (team, host) = (Team::solo(), world.host());
    let process = RankProcess(&team, None);
    let (supervisor, outlives_losses) = (process.supervisor(), settings.on_loss.is_outlived());
    let claimant = Claimant {
        job: ImageJob { number, host, supervisor, outlives_losses },
        is_first_on_node: index == 0,
        ended: lock.folder_owner(),
        process: &process,
    };
    let taken = settings.levels.take_folders(world, &settings.run_id, &claimant)?;
    if taken.is_ok() {
        lock.set_folder_owner(number);
    }
    Ok(taken.map_err(|why| Refused { passes: why.passes(), ..Refused::for_good(why.to_string()) }))
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
            hosts.join(", ")
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

/// The first line that a job prints.
pub(crate) fn starting_line(ranks: usize, spec: &RunSpec) -> String {
    let (tests, threads) = (spec.tests().len(), spec.threads);
    format!("{tests} test(s) on {ranks} rank(s) of {threads} thread(s): measuring DGEMM")
}

impl<'a> Setup<'a> {
    /// Sets up a job whose segments are in `store`. Collective.
    ///
    /// # Errors
    /// When a rank is lost, threads cannot be started, or the BLAS has no work space.
    pub(crate) fn new(
        world: &Comm,
        spec: &RunSpec,
        settings: &Settings,
        options: &JobOptions,
        store: &'a (dyn Store + Send + Sync),
    ) -> Result<Self, JobError> {
        let mut watch = StopWatch::start();
        let kind: StoreKind = settings.store.parse()?;
        let injector =
            FaultInjector::new(&settings.inject, world.rank(), kind.open(), &settings.run_id);
        let injector = Arc::new(injector);
        let mut wait = Announced::begin("all ranks to find their stores");
        let id = settings.is_on().then(|| store.id()).transpose()?;
        let comms = HostComms::new(world, id.as_ref())?;
        let is_choosing = spec.blas.is_some() || column_rates::are_measured(spec);
        let kept =
            is_choosing.then(|| protect::kept_choices(world, store, settings, comms.is_keeper));
        let kept = kept.transpose()?.flatten();
        let kept_blas = kept.as_ref().map(|kept| &kept.blas);
        let blas = blas::settle(world, spec.blas.as_deref(), &options.blas, kept_blas)?;
        if blas.choice.is_some() {
            watch.end_part("choice of the BLAS");
        }
        let options = &JobOptions { blas, ..options.clone() };
        // Our own threads call the BLAS, each for itself.
        library::use_one_thread();
        let mut places = all_places(world, &comms, settings, options, store)?;
        let machine = places.split_machine(world)?;
        let machine = machine.as_ref().unwrap_or(&comms.here);
        let cores = RankCores::gather(machine, world.rank())?;
        watch.end_part("ranks and stores");
        wait.update("all ranks to start their threads and to time the BLAS");
        let (threads, pin) = (spec.threads, spec.pin);
        let wanted = PinningRequest { threads, helper_cores: settings.helper_cores, pin };
        let pinning = Pinning::new(machine, &cores, &wanted)?;
        let team = pinning.start_team(spec.threads);
        let team = team.map_err(|why| JobError::Threads { threads: spec.threads, why })?;
        let mut environment = environment(options, &places, &pinning);
        let idle = pinning.host().map(IdleWatch::start);
        watch.end_part("threads and BLAS");
        let test_seconds = self_test_seconds(spec);
        let (mut self_test, mean) = self_test(world, &team, &environment, test_seconds)?;
        let idle_cores = idle.map(|watch| watch.idle_cores(threads));
        let of_machine =
            (machine.rank() == 0).then(|| own_findings(world, &cores, threads, idle_cores));
        let report = RankReport {
            lack: pinning.lack(&world.host()),
            findings: of_machine.unwrap_or_default(),
            refusal: pinning.refusal().unwrap_or_default().to_owned(),
        };
        let RankReport { lack, findings, refusal: no_cores } = report.join(world)?;
        explain(&mut self_test.warnings, Some(lack).filter(|it| !it.is_empty()), &findings);
        self_test.warnings.extend(places::other_thread_variables(&places, threads));
        self_test.warnings.extend(places::other_blas(&places));
        watch.end_part("DGEMM self-test");
        let mut rates = MeasuredRates {
            gflops_per_core: self_test.gflops_per_core,
            rank_read_bytes: f64::INFINITY,
        };
        // Only checkpoints and limits of time are decided by it.
        if settings.is_on() {
            rates.rank_read_bytes = rank_read_bytes(world, &team, spec)?;
            watch.end_part("memory rate");
        }
        let selected = bf16::select_library(world, &team, spec, &environment.blas, test_seconds)?;
        if spec.gemm == GemmPrecision::Bf16 {
            watch.end_part("test of bf16");
        }
        let host = world.host();
        let (_, index_on_host) = places::alike(&places, world.rank(), |place| &place.host);
        let (_, index) = places::alike(&places, world.rank(), |place| place.memory);
        if settings.is_on() && index == 0 {
            warnings::print(&protect::doubtful(store)?);
        }
        let lack_of_bf16 = selected.as_ref().err().cloned();
        environment.bf16 = selected.ok().flatten();
        let refused = Some(no_cores)
            .filter(|why| !why.is_empty())
            .map(Refused::for_good)
            .or_else(|| places::refused_blas(&places, spec.blas.as_deref(), kept_blas))
            .or(lack_of_bf16.map(Refused::for_good))
            .or_else(|| {
                fault_of_no_rank(settings, options, world.size())
                    .or_else(|| outlook::nothing_to_resume(spec, settings))
                    .or_else(|| places::store_of_several_kernels(&places, &settings.store))
                    .map(Refused::for_good)
            });
        wait.update("all ranks to take hold of the run");
        // The refusal is the same on all ranks.
        let (lock, mut refusal) = match refused {
            Some(refused) => (None, Some(refused)),
            None => take_lock(world, settings, store, index)?,
        };
        wait.update("process 0 and the first of each node to take the folders of images");
        let mut folders = Vec::new();
        if let Some(lock) = lock.as_ref().filter(|_| refusal.is_none()) {
            match take_folders(world, settings, index, lock)? {
                Ok(taken) => folders = taken,
                Err(why) => refusal = Some(why),
            }
        }
        warn_of_one_store(&places, world.rank());
        let measure = |times: f64| Ok(selftest::dgemm_rates(&team, times * test_seconds)?.mean);
        let (spec, doubt) = column_rates::settle(world, spec, kept.as_ref(), mean, measure)?;
        self_test.warnings.extend(doubt);
        let is_as_reference = options.as_reference && !settings.is_on();
        wait.update("memory that processes of earlier starts still have");
        if refusal.is_none() {
            wait_for_memory(world, &comms, &spec, settings, options, store, &mut places)?;
        }
        if refusal.is_none() && !is_as_reference {
            let lack = lack_of_memory(world, &spec, settings, store, &places, comms.is_keeper)?;
            refusal = lack.map(Refused::for_good);
        }
        // The memory check comes first, as it reports more about what other runs hold.
        if refusal.is_none() && settings.is_on() {
            let lack = store_hazards::find(world, &spec, settings, store, &places, index)?;
            refusal = lack.map(Refused::for_good);
        }
        let outlooks = match refusal {
            None => outlook::outlooks(world, &spec.tests(), settings, rates)?,
            // The outlooks are not used, and tests that do not fit may be too large to count.
            Some(_) => Vec::new(),
        };
        watch.end_part("lock and memory");
        Ok(Self {
            team,
            environment,
            self_test,
            rates,
            refusal,
            is_as_reference,
            memory_note: memory_note(&spec, settings, &places),
            store,
            memory_progress: MemoryProgress::default(),
            is_first_on_host: index_on_host == 0,
            is_keeper: index == 0,
            job_here: (index_on_host == 0).then(|| places.job_part(&cores, &host)),
            injector,
            lock,
            _folders: folders,
            _pinning: pinning,
            outlooks,
            part_times: watch.words(),
            chosen: places::chosen(&places, column_rates::measured(&spec)),
            spec,
            places,
        })
    }
}

impl Setup<'_> {
    pub(crate) fn guessed_rates(&self, test: &TestSpec) -> GuessedRates {
        self.rates.guess(test)
    }

    /// Checks all tests of `spec` against the memory of the hosts.
    pub(crate) fn check_memory(
        &self,
        spec: &RunSpec,
        settings: &Settings,
    ) -> Result<(), DoesNotFit> {
        check_memory(spec, settings, &self.places).map_or(Ok(()), Err)
    }

    /// Why a test is skipped, if it is: it does not fit into the memory of the hosts. The same on
    /// all ranks.
    pub(crate) fn lack_of_skipped(
        &self,
        test: &TestSpec,
        settings: &Settings,
    ) -> Option<DoesNotFit> {
        let lack = || check_memory_of(test, settings, &self.places);
        self.is_as_reference.then(lack).flatten()
    }

    /// Why the hosts of a test cannot have its groups, if they cannot. The same on all ranks.
    pub(crate) fn lack_of_groups(
        &self,
        test: &TestSpec,
        settings: &Settings,
        allow_shared_domains: bool,
    ) -> Option<PlacementError> {
        let hosts = self.places.hosts_of(test.ranks());
        protect::form_groups(settings, hosts, allow_shared_domains).err()
    }

    /// The lines about the setup in the head of the report.
    pub(crate) fn notes(&self, spec: &RunSpec, settings: &Settings) -> Vec<String> {
        let mut notes = vec![format!("start    : {}", self.part_times)];
        if self.is_as_reference {
            let words = "no, as in the reference: a lost node ends the run; skt-hpl, the same \
                         program, takes checkpoints";
            notes.push(format!("protected: {words}"));
        }
        notes.extend(column_rates::note(spec).map(|words| format!("rates    : {words}")));
        let none = outlook::too_small(spec, settings);
        notes.extend(none.map(|words| format!("protected: {words}")));
        notes.extend(self.memory_note.iter().map(|words| format!("protected: {words}")));
        let due = outlook::note(settings, &self.outlooks);
        notes.extend(due.map(|words| format!("protected: {words}")));
        notes
    }
}

/// What is wrong with the settings of this machine, whose ranks may use these `cores`.
/// `idle_cores` is the number of cores that nothing uses.
fn own_findings(
    world: &Comm,
    cores: &[RankCores],
    threads: usize,
    idle_cores: Option<usize>,
) -> Vec<Finding> {
    let masks: Vec<_> = cores.iter().map(RankCores::mask).collect();
    at_start::findings(&world.host(), &masks, threads, idle_cores)
}

/// What a rank reports of its threads and its machine.
#[derive(Serialize, Deserialize)]
struct RankReport {
    /// Why the rank's threads lack cores, if they do.
    lack: String,
    findings: Vec<Finding>,
    /// Why the rank cannot have its cores, if it cannot.
    refusal: String,
}

impl RankReport {
    /// The first lack, the findings of all ranks, each once, and the first refusal. That ranks
    /// share cores is no finding where a lack reports it already. Collective.
    fn join(self, world: &Comm) -> Result<Self, CommError> {
        let is_empty = self.lack.is_empty() && self.findings.is_empty() && self.refusal.is_empty();
        let all = collect::all_gather_some_json(world, (!is_empty).then_some(&self))?;
        let first = |text: fn(&Self) -> &String| {
            let mut texts = all.iter().map(|(_, report)| text(report));
            texts.find(|text| !text.is_empty()).cloned().unwrap_or_default()
        };
        let (lack, refusal) = (first(|report| &report.lack), first(|report| &report.refusal));
        let mut findings = doctor::joined(all.into_iter().flat_map(|(_, it)| it.findings));
        findings.retain(|it| lack.is_empty() || it.kind != FindingKind::SmtSiblings);
        Ok(Self { lack, findings, refusal })
    }
}

/// Replaces warnings about a slow DGEMM by the causes that explain them.
fn explain(warnings: &mut Vec<String>, lack: Option<String>, found: &[Finding]) {
    let is_cause =
        |finding: &Finding| [FindingKind::Quota, FindingKind::SmtSiblings].contains(&finding.kind);
    if lack.is_some() || found.iter().any(is_cause) {
        warnings.retain(|warning| !selftest::is_of_rate(warning));
    }
    warnings.splice(..0, lack);
    warnings.extend(found.iter().map(at_start::line));
}

/// The seconds of the self-test: a tenth of the time of all tests at 10^9 operations a second on a
/// core, within bounds. Rates that decide on the matrix are measured for as long as any.
fn self_test_seconds(spec: &RunSpec) -> f64 {
    if matches!(spec.rates, Some(RateSource::Measured(_))) {
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
fn self_test(
    world: &Comm,
    team: &Team,
    environment: &Environment,
    seconds: f64,
) -> Result<(DgemmSelfTest, f64), JobError> {
    world.barrier()?;
    let selftest::Rates { best, mean, .. } = selftest::dgemm_rates(team, seconds)?;
    let rate = best / team.threads() as f64;
    // NaN where a peak is unknown; the sum is NaN then, too.
    let mut sums = [rate, peak::gflops_per_core(team).unwrap_or(f64::NAN)];
    collect::all_sum(world, &mut sums)?;
    let [gflops_per_core, peak] = sums.map(|sum| sum / world.size() as f64);
    let peak_gflops_per_core = Some(peak).filter(|peak| peak.is_finite());
    let (blas, host) = (&environment.blas, &environment.host);
    let warnings = selftest::warnings(
        gflops_per_core,
        peak_gflops_per_core,
        blas,
        kernel::named_by(blas),
        host.has_avx2,
        host.nominal_gigahertz,
    );
    Ok((DgemmSelfTest { gflops_per_core, peak_gflops_per_core, warnings }, mean))
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
    let plain = check_memory(spec, &Settings::none(), places);
    // The run has no checkpoints, or too few ranks for any.
    if plain.as_ref() == Some(&why) {
        return Some((why.host.clone(), why.to_string()));
    }
    let largest = plain.map_or(Some(why.n), |plain| plain.largest_n);
    let without = largest
        .map_or(String::new(), |n| format!(" Without checkpoints (--ft none), N = {n} would."));
    let text = format!("{why} That is with checkpoints (--ft {}).{without}", settings.method);
    Some((why.host, text))
}

/// Checks all tests against the memory of all hosts. Returns why the one with the largest lack does
/// not fit.
fn check_memory(spec: &RunSpec, settings: &Settings, places: &Places) -> Option<DoesNotFit> {
    let tests = spec.tests();
    let lacking = tests.iter().filter_map(|test| check_memory_of(test, settings, places));
    lacking.max_by_key(|why| why.need_bytes)
}

/// Checks a test against the memory of all hosts. Returns why it does not fit.
fn check_memory_of(test: &TestSpec, settings: &Settings, places: &Places) -> Option<DoesNotFit> {
    // Ranks beyond the grid stay idle and hold nothing. Ranks of a job that continues after a loss
    // may be missing.
    let ranks = test.ranks();
    let geometry = smallest_group(test, settings, places, ranks);
    let bytes = |n: usize| {
        let test = TestSpec { n, ..test.clone() };
        protect::memory_split(&test, settings, geometry).total()
    };
    preflight::check(test.n, &places::shares(places, ranks), bytes).err()
}

fn smallest_group(
    spec: &TestSpec,
    settings: &Settings,
    places: &Places,
    ranks: usize,
) -> Option<Geometry> {
    protect::smallest_group(spec, settings, places.hosts_of(ranks))
}

/// The memory that protection takes in the test with the largest memory, in words; `None` without
/// checkpoints.
fn memory_note(spec: &RunSpec, settings: &Settings, places: &Places) -> Option<String> {
    let splits = spec.tests().into_iter().filter_map(|test| {
        let ranks = Some(test.ranks()).filter(|ranks| *ranks <= places.iter().len())?;
        let geometry = smallest_group(&test, settings, places, ranks)?;
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
        let gain = Gain::computed(2.0);
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
        let rate = "DGEMM does 1.0 of the 9.0 Gflop/s that a core can do".to_owned();
        let kernel = "OpenBLAS uses its kernel 'Prescott'".to_owned();
        let explained = |lack: Option<&str>, found: &[Finding]| {
            let mut warnings = vec![kernel.clone(), rate.clone()];
            explain(&mut warnings, lack.map(str::to_owned), found);
            warnings
        };
        assert_eq!(explained(None, &[]), [kernel.clone(), rate.clone()]);
        let line = "on n1, n2: a limit: half. Remedy: raise it. It would bring up to 2.0 times the \
                    rate. (skt-hpl doctor)";
        assert_eq!(explained(None, &[finding(FindingKind::Quota)]), [kernel.as_str(), line]);
        let governor = explained(None, &[finding(FindingKind::Governor)]);
        assert_eq!(governor, [kernel.as_str(), rate.as_str(), line]);
        assert_eq!(explained(Some("lack"), &[]), ["lack", kernel.as_str()]);
    }
}
