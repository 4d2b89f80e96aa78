use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::stated_levels::StatedLevels;
use skt_host::ranges::{above_zero, share, share_above_zero, share_between, zero_or_above};

/// Protocols of `simulate`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ProtocolName {
    /// Restart from zero at every failure
    None,
    /// In memory, one copy; a failure during a checkpoint loses the data
    Single,
    /// In memory, two copies
    Double,
    /// In memory, one copy and the workspace itself
    #[value(name = "self")]
    SelfCheckpoint,
    /// Checksums in the elimination: nothing is saved, and a failure destroys at most the step of
    /// --interval-seconds in which it strikes
    Abft,
    /// Coordinated, to stable storage
    Coordinated,
    /// Groups that checkpoint one after the other to stable storage, with message logging
    Hierarchical,
}

/// Laws of `simulate`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum LawName {
    /// Memoryless
    Exponential,
    /// Weibull, with --shape
    Weibull,
    /// Log-normal, with --sigma
    LogNormal,
}

#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
pub(super) struct SimulateArgs {
    /// What protects the job
    #[arg(long, value_name = "PROTOCOL", default_value = "self")]
    pub(super) protocol: ProtocolName,
    /// Nodes
    #[arg(long, value_name = "NODES", default_value_t = 1_000)]
    pub(super) nodes: usize,
    /// Spare nodes [default: as many as needed]
    #[arg(long, value_name = "NODES")]
    pub(super) spares: Option<usize>,
    /// Members of a group (in memory), or number of groups (hierarchical)
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub(super) group: usize,
    /// Parities of a group
    #[arg(long, value_name = "M", default_value_t = 1)]
    pub(super) parities: usize,
    /// Mean time between failures of one node, in hours
    #[arg(long, value_parser = above_zero, value_name = "HOURS", default_value_t = 43_800.0)]
    pub(super) node_mtbf_hours: f64,
    /// How nodes fail
    #[arg(long, value_name = "LAW", default_value = "exponential")]
    pub(super) law: LawName,
    /// Shape of the Weibull law
    #[arg(long, value_parser = above_zero, value_name = "K", default_value_t = 0.7)]
    pub(super) shape: f64,
    /// Deviation of the logarithm of the log-normal law
    #[arg(long, value_parser = above_zero, value_name = "SIGMA", default_value_t = 1.0)]
    pub(super) sigma: f64,
    /// Failures from a file instead of a law: one line each, `seconds node`
    #[arg(long, value_name = "FILE")]
    pub(super) trace: Option<PathBuf>,
    /// Length of the trace's record, in hours [default: to a mean gap after its last failure]
    #[arg(long, value_parser = above_zero, value_name = "HOURS")]
    pub(super) trace_hours: Option<f64>,
    /// Start with new nodes, instead of nodes as old as in a machine long in use
    #[arg(long)]
    pub(super) new_nodes: bool,
    /// Work to do, in hours of full speed
    #[arg(long, value_parser = above_zero, value_name = "HOURS", default_value_t = 24.0)]
    pub(super) work_hours: f64,
    /// Time for one checkpoint (of one group, with hierarchical), in seconds; 0 with abft
    #[arg(long, value_parser = zero_or_above, value_name = "S", default_value_t = 20.0)]
    pub(super) checkpoint_seconds: f64,
    /// Share of the speed that is left during a checkpoint
    #[arg(long, value_parser = share, value_name = "0..1", default_value_t = 0.0)]
    pub(super) overlap: f64,
    /// Work between two checkpoints, in seconds [default: the best for the exact form]; with abft,
    /// the work of a step, which has no default
    #[arg(long, value_parser = above_zero, value_name = "S")]
    pub(super) interval_seconds: Option<f64>,
    /// Time for detection and relaunch, in seconds
    #[arg(long, value_parser = zero_or_above, value_name = "S", default_value_t = 60.0)]
    pub(super) downtime_seconds: f64,
    /// Time to rebuild or reload, in seconds
    #[arg(long, value_parser = zero_or_above, value_name = "S", default_value_t = 20.0)]
    pub(super) recovery_seconds: f64,
    /// Levels of images below the memory: local:RATE (per node) or global:RATE (of all nodes
    /// together), e.g. 2GB/s, followed by any of ,every=TIME or ,every=auto (the best, which is the
    /// default) ,cost=TIME, the work that an image costs (else all of the time that it takes to
    /// write) ,mtbf=TIME between failures that need this level (else 30 days); several levels are
    /// separated by commas
    #[arg(long, value_name = "LEVELS", requires = "image_gib")]
    pub(super) level: Option<StatedLevels>,
    /// Size of a node's image, in GiB
    #[arg(long, value_parser = above_zero, value_name = "GIB", requires = "level")]
    pub(super) image_gib: Option<f64>,
    /// Start the work over when data are lost, instead of giving up
    #[arg(long)]
    pub(super) restart: bool,
    /// Speed with message logging, as a share of full speed (hierarchical)
    #[arg(long, value_parser = share_above_zero, value_name = "0..1", default_value_t = 0.98)]
    pub(super) logging_speed: f64,
    /// Speed of re-execution from the logs, as a multiple of full speed (hierarchical)
    #[arg(long, value_parser = above_zero, value_name = "X", default_value_t = 1.5)]
    pub(super) replay_speed: f64,
    /// Growth of a checkpoint by logged messages, as a share of it per second of work
    /// (hierarchical)
    #[arg(long, value_parser = zero_or_above, value_name = "SHARE", default_value_t = 0.0)]
    pub(super) growth_per_second: f64,
    /// Give up a run after this many times the work
    #[arg(long, value_parser = above_zero, value_name = "X", default_value_t = 1_000.0)]
    pub(super) give_up: f64,
    /// Independent runs
    #[arg(long, value_name = "RUNS", default_value_t = 1_000)]
    pub(super) runs: usize,
    /// Seed of the random numbers
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    pub(super) seed: u64,
    /// Threads [default: one per core]
    #[arg(long, value_name = "T")]
    pub(super) threads: Option<usize>,
    /// Confidence level of the intervals
    #[arg(long, value_parser = share_between, value_name = "0..1", default_value_t = 0.95)]
    pub(super) confidence: f64,
}
