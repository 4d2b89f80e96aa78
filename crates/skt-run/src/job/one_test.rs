//! One test of a job, with or without protection, until its result is known.

use super::watcher::Watcher;
use crate::error::JobError;
use crate::events::RunEvents as _;
use crate::protect::{self, Done, GuessedRates, Opened, Settings, TestContext, Unprotected};
use crate::ptest::{self, TestRun};
use crate::record::TestRecord;
use skt_checkpoint::checkpoint::decide::StartPlan;
use skt_checkpoint::checkpoint::group::SharedDomain;
use skt_checkpoint::checkpoint::methods::Method;
use skt_comm::{Comm, collect};
use skt_config::TestSpec;
use skt_health::environment::preflight::DoesNotFit;
use skt_host::messages;
use skt_solver::grid::Grid;
use skt_solver::pgesv::guard::Unguarded;
use skt_solver::team::Team;

/// Runs a test under checkpoints or checksums, until its result is in shared memory. Also returns
/// whether an earlier start had left the result there.
pub(super) fn run_protected<'a>(
    ranks: &Comm,
    test: &TestSpec,
    settings: &Settings,
    context: TestContext<'a>,
    watcher: &mut Watcher,
) -> Result<(Done<'a>, bool), JobError> {
    let team = context.memory.process().0;
    if settings.method == Method::Abft {
        let (abft, found) = match protect::abft::open(ranks, test, settings, context)? {
            Opened::Ready(abft, found) => (abft, found),
            Opened::Done(done) => return Ok((done, true)),
        };
        report_found(ranks, settings, &found, watcher);
        return Ok((abft.run(team, watcher)?, false));
    }
    let (mut guard, found) = match protect::open(ranks, test, settings, context)? {
        Opened::Ready(guard, found) => (guard, found),
        Opened::Done(done) => return Ok((done, true)),
    };
    report_found(ranks, settings, &found, watcher);
    let resumed = guard.is_resumed();
    if found.unusable > 0 {
        let why = if resumed {
            "are left out: damaged, or of a checkpoint that too few ranks have"
        } else {
            "hold no complete checkpoint, or none that is wanted: the run begins from the beginning"
        };
        let unusable = found.unusable;
        watcher.announce(&format!("{unusable} segment(s) or image(s) of earlier starts {why}"));
    }
    if let Some(restart) = guard.restart().filter(|_| resumed) {
        watcher.announce(&restart.format_resumption());
    }
    let grid = ptest::grid(guard.comm(), test)?.expect("a place for each");
    let record =
        ptest::run_any(TestRun { grid: &grid, team, spec: test }, &mut *guard, resumed, watcher)?;
    // Rank 0 of the grid has the record; its result counts.
    let result = record.map(|record| guard.result(record, &watcher.samples()));
    Ok((guard.finish(&result.unwrap_or_default())?, false))
}

/// Reports what a start has found: levels that it has given up, losses that are not survivable, and
/// images that it resumes from.
fn report_found(ranks: &Comm, settings: &Settings, found: &StartPlan, watcher: &mut Watcher) {
    if ranks.rank() == 0 {
        watcher.events.clear();
        for (level, given_up) in settings.levels.0.iter().zip(&found.given_up) {
            if let Some(why) = given_up {
                let name = level.name();
                messages::print(format_args!(
                    "warning: no images of level {name} are written or removed in this start: {why}"
                ));
            }
        }
        let shared = found.shared_domain.as_ref().filter(|_| !found.single_domain);
        if let Some(SharedDomain { name, ranks }) = shared
            && *ranks > settings.parities
        {
            messages::print(format_args!(
                "warning: failure domain {name} has {ranks} ranks of one group: its loss is not \
                 survivable"
            ));
        }
    }
    if let Some(load) = &found.load {
        let (level, epoch) = (settings.levels.0[load.level].name(), found.epoch);
        watcher.announce(&format!("memory is not used: {}", load.why));
        watcher.announce(&format!("taking the images of checkpoint {epoch} from {level}"));
    }
    if found.single_domain {
        watcher
            .announce("all ranks are on one host: protected against the death of processes only");
    }
}

/// Runs a test without protection. One with a `lack` of memory is skipped.
pub(super) fn run_plain(
    grid: &Grid,
    team: &Team,
    test: &TestSpec,
    settings: &Settings,
    rates: GuessedRates,
    lack: Option<DoesNotFit>,
    watcher: &mut Watcher,
) -> Result<Option<TestRecord>, JobError> {
    if let Some(lack) = lack {
        return Ok(ptest::skipped(grid, test, Some(lack.to_string()))?);
    }
    let guard = Unguarded::new(ptest::matrix_memory(test, grid.myrow, grid.mycol).doubles);
    let is_lacking = collect::any(&grid.all, guard.is_err())?;
    match guard {
        Ok(memory) if !is_lacking => {
            let mut guard = Unprotected::new(memory, &grid.all, test, settings, rates);
            Ok(ptest::run_any(TestRun { grid, team, spec: test }, &mut guard, false, watcher)?)
        }
        _ => Ok(ptest::skipped(grid, test, None)?),
    }
}
