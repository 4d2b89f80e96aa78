//! What is known about a run before its first test.

use skt_config::ConfigText;
use skt_health::environment::{DgemmSelfTest, Environment};

/// What is known about a run before its first test.
#[derive(Debug, Clone)]
pub struct RunFacts {
    /// The command line, program first.
    pub command_line: Vec<String>,
    /// The text of the configuration; `None` if flags alone describe the run.
    pub configuration: Option<ConfigText>,
    /// The machine and the libraries that the job runs on.
    pub environment: Environment,
    /// The result of the DGEMM self-test, if it was run.
    pub dgemm_self_test: Option<DgemmSelfTest>,
    /// The start of the run, in seconds since 1970.
    pub start_unix_seconds: i64,
}
