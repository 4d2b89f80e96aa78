//! A job: all tests of a run, on all its ranks, with setup, reports and exit code.

mod bf16;
mod blas;
mod column_rates;
mod error;
mod idle;
mod interrupt;
mod one_test;
mod options;
pub mod outlook;
mod pinning;
mod places;
mod refused;
mod series;
mod setup;
mod store_hazards;
mod trials;
mod warnings;
mod watcher;

pub use blas::settle as settle_blas;
pub use error::JobError;
pub use options::JobOptions;
use refused::Refused;
use series::{Ran, Tests, remove_images};
use setup::Setup;
pub use trials::Trials;

use std::fmt::Display;

use skt_terms::exit::Exit;

use crate::events::{ReportError, RunEvents, Silent};
use crate::power::JobPower;
use crate::power::meter::Meter;
use crate::protect::{self, Settings};
use crate::record::{Counts, RunFacts};
use crate::{grace, heartbeat};
use skt_checkpoint::checkpoint::methods::Method;
use skt_comm::{Comm, CommError, collect};
use skt_config::RunSpec;
use skt_host::clock::now_unix_seconds;
use skt_host::counters::Root;
use skt_host::messages;
use skt_host::waits::Announced;
use skt_solver::pgesv::CallLimit;
use skt_store::store::StoreKind;

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
    let first = world.rank() == 0;
    let events = if first { events } else { &mut Silent };
    if settings.is_on() {
        protect::deadline::listen();
    }
    let start_unix_seconds = now_unix_seconds();
    events.announce(&setup::starting_line(world.size(), spec));
    let store = settings.store.parse::<StoreKind>()?.open();
    let setup = Setup::new(world, spec, settings, options, &*store)?;
    let spec = &setup.spec;
    events.clear();
    if let Some(Refused { why, passes, unfit }) = &setup.refusal {
        if !unfit.is_empty() {
            heartbeat::decline_hosts(unfit);
        }
        if *passes {
            heartbeat::enter_phase(heartbeat::CHANGED);
        }
        return Ok(refused(world, why, Exit::BadInput));
    }
    let meter = match start_meter(world, options)? {
        Ok(meter) => meter,
        Err(why) => return Ok(refused(world, &why, Exit::BadInput)),
    };
    if !begin_report(world, spec, settings, options, &setup, start_unix_seconds, events)? {
        return Ok(Finished::short(Exit::BadInput));
    }
    if settings.is_on() {
        protect::deadline::listen();
        interrupt::listen(spec, settings, first);
        if first {
            warnings::print(&time_warnings(settings));
            warnings::print(&call_warnings(spec, settings, setup.self_test.gflops_per_core));
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
            interrupt::keep(false);
            // A problem after a loss need not be one for the next start.
            let is_final = why.is_time_up() || matches!(why, JobError::Wrong(_));
            let counts = options.lost_at.is_none() || is_final;
            if let Some(sign) = why.sign().filter(|_| counts) {
                heartbeat::enter_phase(sign);
            }
            tests.events.clear();
            tests.remove_void_ledger()?;
            if why.is_time_up() {
                if first {
                    messages::print(format_args!("{why}"));
                }
                return Ok(Finished::short(why.exit()));
            }
            return Ok(refused(world, &why, why.exit()));
        }
        done => done?,
    };
    let counts = tests.counts;
    events.clear();
    // The last test's result stays in memory until the report is complete.
    let end = (first && ran.is_reported).then(|| end_report(events, counts, options));
    let (is_closed, exit) = same_end(world, end.flatten())?;
    if !is_closed {
        return Ok(Finished::short(exit));
    }
    // Reported before the first segment is removed: a start that finds none would repeat all tests.
    heartbeat::reported(exit, events.lines_on_stdout());
    let is_cleared = match clear(world, spec, settings, &setup, ran) {
        Err(why) if settings.on_loss.is_outlived() && why.is_loss() => false,
        done => done.map(|()| true)?,
    };
    Ok(Finished { exit, is_reported: true, is_cleared })
}

/// A warning if the job's time is limited and nothing of the run outlives it.
fn time_warnings(settings: &Settings) -> Vec<String> {
    let ends = settings.time_limit.end().is_some();
    let warning = "the time of this job is limited, and checkpoints are in memory alone, which may \
                   go with it: --level keeps images in files, from which the next job continues";
    let is_meant = ends && settings.levels.0.is_empty();
    is_meant.then(|| warning.to_owned()).into_iter().collect()
}

/// A warning for runs with checksums if even the shortest BLAS calls take long.
fn call_warnings(spec: &RunSpec, settings: &Settings, gflops_per_core: f64) -> Vec<String> {
    let limit = CallLimit::tuned();
    let nb = spec.nb.iter().copied().max().unwrap_or(0);
    let seconds = limit.shortest_seconds(nb, 1e9 * gflops_per_core);
    let warning = format!(
        "the shortest calls of this BLAS take up to {seconds:.1} s (NB = {nb}): when a rank dies, the \
         launcher may kill others within one, whose memory is lost, too; a smaller --nb makes \
         them shorter, and --level keeps images for that case"
    );
    let is_meant = settings.method == Method::Abft && seconds > limit.seconds;
    is_meant.then_some(warning).into_iter().collect()
}

/// Ends a job whose ranks all know `why`; rank 0 prints it.
fn refused(world: &Comm, why: &dyn Display, exit: Exit) -> Finished {
    if world.rank() == 0 {
        messages::print(format_args!("error: {why}"));
    }
    Finished::short(exit)
}

/// Begins the report on rank 0. Returns whether that has succeeded, the same on all ranks.
/// Collective.
fn begin_report(
    world: &Comm,
    spec: &RunSpec,
    settings: &Settings,
    options: &JobOptions,
    setup: &Setup,
    start_unix_seconds: i64,
    events: &mut dyn RunEvents,
) -> Result<bool, CommError> {
    let mut has_begun = 1u8;
    if world.rank() == 0 {
        let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
        let facts = RunFacts {
            command_line: words.collect(),
            configuration: options.configuration.clone(),
            environment: setup.environment.clone(),
            dgemm_self_test: Some(setup.self_test.clone()),
            start_unix_seconds,
        };
        if let Err(why) = events.run_begins(spec, facts, setup.notes(spec, settings)) {
            messages::print(format_args!("error: {why}"));
            has_begun = 0;
        }
    }
    Ok(collect::broadcast_one(world, has_begun, 0)? != 0)
}

/// Starts the meter on rank 0, if the user names one. The inner error is why that fails, the same
/// on all ranks. Collective.
fn start_meter(
    world: &Comm,
    options: &JobOptions,
) -> Result<Result<Option<Meter>, String>, CommError> {
    let Some(command) = &options.meter else { return Ok(Ok(None)) };
    let started = (world.rank() == 0).then(|| Meter::start(command));
    let started = started.transpose();
    let why = collect::first_text(world, started.as_ref().err().map_or("", String::as_str))?;
    Ok(why.map_or(Ok(started.ok().flatten()), Err))
}

/// Ends the report. Returns the exit code of a job with tests of these `counts`, or `None` if the
/// report is not complete.
fn end_report(events: &mut dyn RunEvents, counts: Counts, options: &JobOptions) -> Option<Exit> {
    let exit = if options.as_reference { Exit::Passed } else { exit_for(counts) };
    match events.run_ends() {
        Ok(()) => Some(exit),
        Err(why @ ReportError::Json { .. }) => {
            messages::print(format_args!("error: {why}; the report itself is whole"));
            Some(if exit == Exit::Passed { Exit::BadInput } else { exit })
        }
        Err(why) => {
            messages::print(format_args!("error: {why}"));
            None
        }
    }
}

fn exit_for(counts: Counts) -> Exit {
    match counts {
        Counts { failed: 1.., .. } => Exit::ResidualFailed,
        Counts { skipped: 1.., .. } => Exit::BadInput,
        _ => Exit::Passed,
    }
}

/// Returns on all ranks whether rank 0 has the `exit` of a complete report, and the exit code of
/// the job. Collective.
fn same_end(world: &Comm, exit: Option<Exit>) -> Result<(bool, Exit), CommError> {
    let exit = [u8::from(exit.is_some()), exit.unwrap_or(Exit::BadInput).code()];
    let [is_whole, code] = collect::broadcast_one(world, exit, 0)?;
    Ok((is_whole != 0, Exit::from_code(code)))
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
        interrupt::keep(false);
        if setup.is_keeper {
            // All ranks have unmapped their segments.
            warnings::print(&protect::tidy(setup.store)?);
        }
    }
    Ok(())
}

/// Removes from this process's host what is left of a run whose report is complete, after the loss
/// of a rank kept the job from doing so.
pub fn remove_rest(spec: &RunSpec, settings: &Settings) -> Result<(), JobError> {
    let store = settings.store.parse::<StoreKind>()?.open();
    warnings::print(&protect::images::remove_images(settings, |_| true));
    protect::sweep(&*store, &settings.run_id, spec.tests().len())?;
    interrupt::keep(false);
    Ok(())
}
