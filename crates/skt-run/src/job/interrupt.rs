//! The message of a job that a signal ends, about the memory that it leaves.
//!
//! Ctrl-C, SIGTERM and the like still end a rank, and launchers see the same signal; rank 0 writes
//! a line first. With the method `abft` every rank first finishes the piece of the matrix that it
//! is changing.

use skt_terms::units;

use crate::protect::{self, Settings};
use crate::{grace, heartbeat};
use skt_checkpoint::checkpoint::methods::Method;
use skt_config::RunSpec;

/// Installs handlers for the signals that end a run. On rank 0 (`is_first`) they print which data
/// the run leaves, while [`keep`] is set; under a supervisor they do not, because it prints that
/// itself.
/// The other ranks handle signals, too, because a launcher kills all ranks of a node when one of
/// them has ended.
pub(crate) fn listen(spec: &RunSpec, settings: &Settings, is_first: bool) {
    let is_supervised = std::env::var_os(heartbeat::ENV).is_some();
    if !is_supervised || settings.method == Method::Abft {
        let prints = is_first && !is_supervised;
        grace::listen(prints.then(|| line(spec, settings)));
    }
}

/// Sets whether shared memory of the run would stay if the job ended now.
pub(crate) fn keep(is_kept: bool) {
    grace::enable_last_message(is_kept);
}

/// The line that lists which data the run leaves, how to continue it, and how to remove it.
fn line(spec: &RunSpec, settings: &Settings) -> String {
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
