//! For any application: a checkpointer made from the settings of the command line.

use std::io;

use super::segments::TestSegments;
use skt_checkpoint::checkpoint::protocol::{Checkpointer, Config};
use skt_config::protection::Settings;

/// A checkpointer whose segments are in a store of this node.
pub type NodeCheckpointer<'a, C> = Checkpointer<C, TestSegments<'a>>;

/// The name of the segments of test `part` of a run, which their headers hold.
pub(super) fn run_of_test(run: &str, part: usize) -> String {
    format!("{run}-t{part}")
}

/// The configuration for [`Checkpointer::open`], besides `memory`, which is of the same run.
///
/// - `application`: all parameters without which a checkpoint would be useless.
/// - `host`: the host of this process, which is its failure domain unless the settings name
///   another.
/// - `state_bytes`: the longest state that a checkpoint takes.
pub fn checkpoint_config(
    settings: &Settings,
    memory: &TestSegments,
    application: String,
    host: &str,
    state_bytes: usize,
) -> io::Result<Config> {
    let config = Config {
        application,
        method: settings.method,
        members: settings.group_size,
        parities: settings.parities,
        encoder: settings.encoder,
        message_bytes: settings.message_bytes,
        allow_shared_domains: settings.allow_shared_domains,
        resume: settings.resume,
        domain: settings.domain_of(host),
        state_capacity_bytes: state_bytes,
        ..Config::new(&run_of_test(&settings.run_id, memory.part()), settings.codec)
    };
    config.identified(memory, host)
}
