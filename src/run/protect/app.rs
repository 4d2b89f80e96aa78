//! For any application: a checkpointer made from the settings of the command line.

use std::io;

use super::segments::TestSegments;
use super::settings::Settings;
use crate::checkpoint::methods::Method;
use crate::checkpoint::protocol::{Checkpointer, Config};

/// A checkpointer whose segments are in a store of this node.
pub type NodeCheckpointer<'a, C> = Checkpointer<C, TestSegments<'a>>;

/// The name of the segments of test `part` of a run, which their headers hold.
pub(super) fn run_of_test(run: &str, part: usize) -> String {
    format!("{run}-t{part}")
}

impl Settings {
    /// The method `self`, XOR over a ring, and groups of 16 that each survive one loss.
    pub fn new(run_id: &str) -> Self {
        Self { method: Method::SelfCheckpoint, run_id: run_id.to_owned(), ..Self::none() }
    }

    /// The configuration for [`Checkpointer::open`], besides `memory`, which is of the same run.
    ///
    /// - `application`: all parameters without which a checkpoint would be useless.
    /// - `host`: the host of this process, which is its failure domain unless the settings name
    ///   another.
    /// - `state_bytes`: the longest state that a checkpoint takes.
    ///
    /// # Errors
    /// When the store of `memory` cannot tell which memory it is.
    pub fn config(
        &self,
        memory: &TestSegments,
        application: String,
        host: &str,
        state_bytes: usize,
    ) -> io::Result<Config> {
        let config = Config {
            application,
            method: self.method,
            members: self.group_size,
            parities: self.parities,
            encoder: self.encoder,
            message_bytes: self.message_bytes,
            allow_shared_domains: self.allow_shared_domains,
            resume: self.resume,
            domain: self.domain_of(host),
            state_capacity_bytes: state_bytes,
            ..Config::new(&run_of_test(&self.run_id, memory.part()), self.codec)
        };
        memory.identify(config, host)
    }
}
