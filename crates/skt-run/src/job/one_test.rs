//! One test of a job, with or without protection, until its result is known.

use super::watcher::Watcher;
use crate::error::JobError;
use crate::events::RunEvents as _;
use crate::protect::{
    self, Done, GuessedRates, Opened, Protected, Settings, TestContext, Unprotected,
};
use crate::ptest::{self, TestRun};
use crate::record::TestRecord;
use skt_checkpoint::checkpoint::decide::StartPlan;
use skt_checkpoint::checkpoint::group::SharedDomain;
use skt_checkpoint::checkpoint::level::Load;
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
        warn_of_levels(ranks, settings, &found, watcher);
        if let Some(load) = &found.load {
            let level = settings.levels.0[load.level].name();
            let lines = image_lines(load, &level, found.epoch);
            lines.iter().for_each(|line| watcher.announce(line));
        }
        watcher.announce(&placement_line(test, &found));
        return Ok((abft.run(team, watcher)?, false));
    }
    let (mut guard, found) = match protect::open(ranks, test, settings, context)? {
        Opened::Ready(guard, found) => (guard, found),
        Opened::Done(done) => return Ok((done, true)),
    };
    warn_of_levels(ranks, settings, &found, watcher);
    if let (0, Some(loss)) = (ranks.rank(), unsurvivable(settings.parities, &found)) {
        watcher.events.clear();
        messages::print(format_args!("warning: {loss}"));
    }
    opening_lines(&guard, &found).iter().for_each(|line| watcher.announce(line));
    let resumed = guard.is_resumed();
    let grid = ptest::grid(guard.comm(), test)?.expect("a place for each");
    let record =
        ptest::run_any(TestRun { grid: &grid, team, spec: test }, &mut *guard, resumed, watcher)?;
    // Rank 0 of the grid has the record; its result counts.
    let result = record.map(|record| guard.result(record, &watcher.samples()));
    Ok((guard.finish(&result.unwrap_or_default())?, false))
}

/// Prints on rank 0 which levels a start has given up.
fn warn_of_levels(ranks: &Comm, settings: &Settings, found: &StartPlan, watcher: &mut Watcher) {
    if ranks.rank() != 0 {
        return;
    }
    watcher.events.clear();
    for (level, given_up) in settings.levels.0.iter().zip(&found.given_up) {
        if let Some(why) = given_up {
            let name = level.name();
            messages::print(format_args!(
                "warning: no images of level {name} are written or removed in this start: {why}"
            ));
        }
    }
}

/// The lines about a start that resumes from the images of a level.
fn image_lines(load: &Load, level: &str, epoch: u64) -> [String; 2] {
    [
        format!("memory is not used: {}", load.why),
        format!("taking the images of checkpoint {epoch} from {level}"),
    ]
}

/// The line about what the loss of nodes would mean to a test with checksums.
fn placement_line(test: &TestSpec, found: &StartPlan) -> String {
    let many = if test.checksums == 1 { "rank" } else { "ranks" };
    let survives = format!("each process row survives the loss of {} {many}", test.checksums);
    if found.single_domain {
        format!("{survives}; all are on one host: protected against the death of processes only")
    } else if let Some(loss) = unsurvivable(test.checksums, found) {
        format!("{survives}; {loss}")
    } else {
        format!(
            "{survives}, so the run survives the loss of any {} failure domain(s)",
            test.checksums
        )
    }
}

/// The failure domain among several whose loss takes more ranks of a group than `parities`, in
/// words.
fn unsurvivable(parities: usize, found: &StartPlan) -> Option<String> {
    let shared = found.shared_domain.as_ref().filter(|_| !found.single_domain)?;
    let SharedDomain { name, ranks } = shared;
    (*ranks > parities).then(|| {
        format!("failure domain {name} has {ranks} ranks of one group: its loss is not survivable")
    })
}

/// The lines about what a start has found.
fn opening_lines(guard: &Protected, found: &StartPlan) -> Vec<String> {
    let mut lines = Vec::new();
    if found.unusable > 0 {
        let why = if guard.is_resumed() {
            "are left out: damaged, or of a checkpoint that too few ranks have"
        } else {
            "hold no complete checkpoint, or none that is wanted: the run begins from the beginning"
        };
        lines.push(format!("{} segment(s) or image(s) of earlier starts {why}", found.unusable));
    }
    if let (true, Some(restart)) = (guard.is_resumed(), guard.restart()) {
        if let (Some(load), Some(level)) = (&found.load, &restart.level) {
            lines.extend(image_lines(load, level, restart.epoch));
        }
        lines.push(restart.format_resumption());
    }
    if found.single_domain {
        lines.push(
            "all ranks are on one host: protected against the death of processes only".into(),
        );
    }
    lines
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
