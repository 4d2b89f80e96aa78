//! A job: all tests of a run, on all its ranks, with setup, reports and exit code.

mod blas;
mod column_rates;
mod idle;
mod one_test;
pub mod outlook;
mod pinning;
mod places;
mod series;
mod setup;
mod store_hazards;
mod trials;
mod watcher;

pub use crate::error::{End, JobError};
pub use blas::settle as settle_blas;
use series::{Ran, Tests, remove_images};
use setup::Setup;
pub use trials::Trials;

use std::time::Instant;

use skt_host::exit::Exit;
use skt_host::units;

use crate::error::agreed;
use crate::events::{RunEvents, Silent};
use crate::power::meter::Meter;
use crate::power::{JobPower, MeterCommand};
use crate::protect::{self, RankInRun, Settings};
use crate::record::{Counts, RunFacts};
use crate::{grace, heartbeat};
use skt_checkpoint::checkpoint::methods::Method;
use skt_comm::{Comm, collect};
use skt_config::{ConfigText, RunSpec};
use skt_health::environment::library::ChosenBlas;
use skt_host::clock::now_unix_seconds;
use skt_host::counters::Root;
use skt_host::messages;
use skt_host::waits::Announced;
use skt_store::store::StoreKind;

/// The options of a job that are not part of the run.
#[derive(Debug, Clone, Default)]
pub struct JobOptions {
    /// The text of the configuration, if the run has one.
    pub configuration: Option<ConfigText>,
    /// Whether the job behaves as the reference does: tests that fail or are skipped do not show in
    /// the exit code, tests that do not fit into the memory are skipped, and warnings of the
    /// self-test are printed, as the report has them only after the first result.
    pub as_reference: bool,
    /// The BLAS that this process calls.
    pub blas: ChosenBlas,
    /// The name and version of the MPI library.
    pub mpi_library: Option<String>,
    /// The site's power meter, if the user names one.
    pub meter: Option<MeterCommand>,
    /// When this process noticed the latest loss that it has outlived.
    pub lost_at: Option<Instant>,
    pub rank_in_run: RankInRun,
}

/// The result of a job that has ended with all its ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finished {
    /// The exit code of the job.
    pub exit: Exit,
    /// Whether the report is complete, so that no test has to be repeated.
    pub is_reported: bool,
    /// Whether all data that the job left was removed. If a rank was lost during that, some may be
    /// left ([`remove_rest`]).
    pub is_cleared: bool,
}

impl Finished {
    /// A job that ends without a complete report.
    pub fn short(exit: Exit) -> Self {
        Self { exit, is_reported: false, is_cleared: true }
    }
}

/// Runs all tests, and reports them to `events` on rank 0. Collective; every rank gets the same
/// result. If the job itself is refused, rank 0 prints why, and the result has the exit code.
pub fn run(
    world: &Comm,
    spec: &RunSpec,
    settings: &Settings,
    options: &JobOptions,
    events: &mut dyn RunEvents,
) -> Result<Finished, JobError> {
    let events = if world.rank() == 0 { events } else { &mut Silent };
    let why = match run_tests(world, spec, settings, options, events) {
        Err(why) => why,
        finished => return finished,
    };
    let End::Agreed { exit, sign } = why.end else { return Err(why) };
    let is_time_up = why.end == End::TIME_UP;
    // A problem after a loss need not be one for the next start.
    let counts = options.lost_at.is_none() || is_time_up;
    sign.filter(|_| counts).into_iter().for_each(heartbeat::enter_phase);
    events.clear();
    if world.rank() == 0 {
        let label = if is_time_up { "" } else { "error: " };
        messages::print(format_args!("{label}{why}"));
    }
    Ok(Finished::short(exit))
}

fn run_tests(
    world: &Comm,
    spec: &RunSpec,
    settings: &Settings,
    options: &JobOptions,
    events: &mut dyn RunEvents,
) -> Result<Finished, JobError> {
    let first = world.rank() == 0;
    if settings.is_on() {
        protect::deadline::listen();
    }
    let start_unix_seconds = now_unix_seconds();
    let (tests, ranks, threads) = (spec.tests().len(), world.size(), spec.threads);
    let begin =
        format!("{tests} test(s) on {ranks} rank(s) of {threads} thread(s): measuring DGEMM");
    events.announce(&begin);
    let store = settings.store.parse::<StoreKind>()?.open();
    let setup = Setup::new(world, spec, settings, options, &*store)?;
    let spec = &setup.rated.spec;
    events.clear();
    let start = |command: &MeterCommand| Meter::start(command);
    let meter = options.meter.as_ref().filter(|_| first).map(start).transpose();
    let meter = agreed(world, meter)?;
    agreed(world, begin_report(first, settings, options, &setup, start_unix_seconds, events))?;
    if settings.is_on() {
        protect::deadline::listen();
        listen_to_signals(spec, settings, first);
        let is_limited = settings.time_limit.end().is_some();
        if first && is_limited && settings.levels.0.is_empty() {
            messages::print(format_args!(
                "warning: the time of this job is limited, and checkpoints are in memory alone: \
                 --level keeps images in files, from which the next job continues"
            ));
        }
    } else {
        grace::listen_unprotected();
    }
    let mut tests = Tests::new(spec, settings, &setup, events);
    (tests.lost_at, tests.rank_in_run) = (options.lost_at, options.rank_in_run.clone());
    let host = setup.is_first_on_host.then(|| world.host());
    tests.power = JobPower::start(Root::this_machine(), host, meter);
    let ran = match tests.run(world) {
        Err(why) if !why.is_local() => {
            // Rank 0 itself prints what happens to the memory.
            grace::enable_last_message(false);
            tests.remove_void_ledger()?;
            return Err(why);
        }
        done => done?,
    };
    let counts = tests.counts;
    events.clear();
    // The last test's result stays in memory until the report is complete.
    let end = (first && ran.is_reported).then(|| end_report(events, counts, options));
    let code: Option<u8> = collect::broadcast_json(world, &end.flatten().map(Exit::code), 0)?;
    let Some(exit) = code.map(Exit::from_code) else {
        return Ok(Finished::short(Exit::BadInput));
    };
    // Reported before the first segment is removed: a start that finds none would repeat all tests.
    heartbeat::reported(exit, events.lines_on_stdout());
    let is_cleared = match clear(world, spec, settings, &setup, ran) {
        Err(why) if settings.on_loss.is_outlived() && why.end == End::Lost => false,
        done => done.map(|()| true)?,
    };
    Ok(Finished { exit, is_reported: true, is_cleared })
}

/// Installs handlers for the signals that end a run. On rank 0 (`is_first`) they print which data
/// the run leaves, while the last message is enabled; under a supervisor they do not, because it prints that
/// itself.
/// The other ranks handle signals, too, because a launcher kills all ranks of a node when one of
/// them has ended.
fn listen_to_signals(spec: &RunSpec, settings: &Settings, is_first: bool) {
    let is_supervised = std::env::var_os(heartbeat::ENV).is_some();
    if !is_supervised || settings.method == Method::Abft {
        let prints = is_first && !is_supervised;
        grace::listen(prints.then(|| interruption(spec, settings)));
    }
}

/// The line that lists which data the run leaves, how to continue it, and how to remove it.
fn interruption(spec: &RunSpec, settings: &Settings) -> String {
    let bytes = spec.tests().into_iter().map(|test| {
        let hosts = std::iter::repeat_n("", test.ranks());
        let geometry = protect::smallest_group(&test, settings, hosts);
        let split = protect::memory_split(&test, settings, geometry);
        (split.total() - split.work_space).saturating_mul(test.ranks() as u64)
    });
    let bytes = units::bytes(bytes.max().unwrap_or(0));
    let run = &settings.run_id;
    let store = protect::store_flag(&settings.store);
    let levels = settings.levels.0.iter();
    let from = match settings.method {
        // Another rank may have noticed wrong numbers, or more may be lost than can be rebuilt.
        Method::Abft => "from the column that it has reached, or reports why it cannot",
        _ => "from its last checkpoint (from the beginning, if there is none yet)",
    };
    let images: String =
        levels.map(|level| format!(" --images {}", level.quoted_folder())).collect();
    format!(
        "\nskt-hpl: ended by a signal. Run {run} keeps up to {bytes} of shared memory on its \
         hosts: the same command continues {from}; `skt-hpl store clean --run \
         {run}{store}{images}` on each host removes it.\n"
    )
}

/// Prints the first lines as warnings, and the number of the others.
fn print_warnings(lines: &[String]) {
    const LINES: usize = 4;
    for line in lines.iter().take(LINES) {
        messages::print(format_args!("warning: {line}"));
    }
    if lines.len() > LINES {
        let more = lines.len() - LINES;
        messages::print(format_args!("warning: and {more} more; `skt-hpl store list` shows them"));
    }
}

/// Begins the report on rank 0, which is `first`.
fn begin_report(
    first: bool,
    settings: &Settings,
    options: &JobOptions,
    setup: &Setup,
    start_unix_seconds: i64,
    events: &mut dyn RunEvents,
) -> Result<(), String> {
    if !first {
        return Ok(());
    }
    let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    let facts = RunFacts {
        command_line: words.collect(),
        configuration: options.configuration.clone(),
        environment: setup.pinned.environment.clone(),
        dgemm_self_test: Some(setup.rated.self_test.clone()),
        start_unix_seconds,
    };
    events.run_begins(&setup.rated.spec, facts, setup.notes(settings))
}

/// Ends the report. Returns the exit code of a job with tests of these `counts`, or `None` if the
/// report is not complete.
fn end_report(events: &mut dyn RunEvents, counts: Counts, options: &JobOptions) -> Option<Exit> {
    let exit = match counts {
        _ if options.as_reference => Exit::Passed,
        Counts { failed: 1.., .. } => Exit::ResidualFailed,
        Counts { skipped: 1.., .. } => Exit::BadInput,
        _ => Exit::Passed,
    };
    match events.run_ends() {
        Ok(is_json_whole) => {
            Some(if exit == Exit::Passed && !is_json_whole { Exit::BadInput } else { exit })
        }
        Err(why) => {
            messages::print(format_args!("error: {why}"));
            None
        }
    }
}

/// Printed at the end of a run that leaves marks.
const MARKS_STAY: &str = "memory of an earlier start of this run was out of reach or lost, so each \
                          host keeps a mark of some bytes by which it is recognized if it comes \
                          back; `skt-hpl store clean` removes the marks";

/// Removes what is left of a run whose report is complete. Collective.
fn clear(
    world: &Comm,
    spec: &RunSpec,
    settings: &Settings,
    setup: &Setup,
    ran: Ran,
) -> Result<(), JobError> {
    let _wait = Announced::begin("all ranks to remove what the run has left");
    if let Some(done) = ran.last {
        // Images that cannot be removed now are tried once more below.
        let _stay = done.clear()?;
    }
    if settings.is_on() {
        world.barrier()?;
        // The run needs none of its segments any more; those out of reach must be recognized when
        // they come back.
        if setup.is_keeper && !ran.left.is_empty() {
            protect::ended::remember(setup.store, &settings.run_id, world.rank(), &ran.left)?;
        }
        if world.rank() == 0 && !ran.left.is_empty() {
            messages::print(format_args!("{MARKS_STAY}"));
        }
        remove_images(world, settings, setup, |_| true)?;
        if setup.is_keeper {
            protect::sweep(setup.store, &settings.run_id, spec.tests().len())?;
        }
        settings.levels.close(&settings.run_id);
        grace::enable_last_message(false);
    }
    Ok(())
}

/// Removes from this process's host what is left of a run whose report is complete, after the loss
/// of a rank kept the job from doing so.
pub fn remove_rest(spec: &RunSpec, settings: &Settings) -> Result<(), JobError> {
    let store = settings.store.parse::<StoreKind>()?.open();
    print_warnings(&protect::images::remove_images(settings, |_| true));
    protect::sweep(&*store, &settings.run_id, spec.tests().len())?;
    grace::enable_last_message(false);
    Ok(())
}
