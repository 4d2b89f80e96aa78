//! The state of a supervisor that the next one needs, and the folder that keeps it.

mod folder;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

pub use folder::StateFolder;

use super::hosts::{Pool, Replacement};
use skt_checkpoint::heartbeat::{DataLocation, Heartbeat};
use skt_config::Setting;
use skt_host::clock::now_unix;
use skt_host::process::Process;

/// Raised when a field changes its meaning.
const FORMAT_VERSION: u32 = 1;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// A supervisor watches the run, or was killed while it did.
    #[default]
    Running,
    /// The run was stopped on request, and can continue.
    Stopped,
    /// The run was given up, and can continue once the reason is gone.
    GaveUp,
    Finished,
}

/// A failure and what was done about it. Times are Unix seconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// The number of the start that failed, from 1.
    pub start: usize,
    /// How the launcher ended, and why it was killed if it was.
    pub how: String,
    pub replaced: Vec<Replacement>,
    /// The phase of the job's last heartbeat.
    pub phase: String,
    /// Number of columns that were eliminated by then.
    pub column: usize,
    pub lived: bool,
    pub node_lost: bool,
    /// When the job sent its last heartbeat before the failure.
    pub last_sign_unix: f64,
    /// When the supervisor noticed the failure.
    pub detected_unix: f64,
    /// When the job was started again, with the nodes probed and replaced.
    pub relaunched_unix: Option<f64>,
    /// When the ranks of that start sent the first heartbeat.
    pub alive_unix: Option<f64>,
    /// When that start computed again.
    pub computing_unix: Option<f64>,
    /// The column from which it computed.
    pub resumed_column: Option<usize>,
}

/// The phases of a failure in seconds (Tang et al., TPDS 2018, figure 15).
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Timeline {
    /// From the last heartbeat until the failure was noticed: an upper bound.
    pub detection_seconds: f64,
    /// From then until the nodes are probed and replaced and the launcher is started.
    pub replacement_seconds: Option<f64>,
    /// From the start of the launcher until the ranks send a heartbeat.
    pub restart_seconds: Option<f64>,
    /// From the first heartbeat until the ranks compute again.
    pub recovery_seconds: Option<f64>,
}

impl Failure {
    /// The durations of the phases of the recovery.
    pub(crate) fn timeline(&self) -> Timeline {
        let span = |from: Option<f64>, to: Option<f64>| Some(to? - from?);
        Timeline {
            detection_seconds: self.detected_unix - self.last_sign_unix,
            replacement_seconds: span(Some(self.detected_unix), self.relaunched_unix),
            restart_seconds: span(self.relaunched_unix, self.alive_unix),
            recovery_seconds: span(self.alive_unix, self.computing_unix),
        }
    }
}

/// Wrong numbers in the matrix that certainly come from a node, in all starts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blame {
    /// Number of checks that have found wrong numbers of the node.
    pub checks: u64,
    /// Number of rows that were recomputed.
    pub rows: u64,
    /// Columns eliminated at the first of these checks.
    pub first_column: Option<usize>,
    /// Whether the node is to be replaced for it.
    pub to_replace: bool,
}

/// All that the next supervisor needs to know.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SupervisorState {
    pub(crate) format_version: u32,
    /// A name that no other run has; the first part of each token.
    pub run: String,
    /// The name of the run in the store of segments.
    pub run_id: String,
    /// The program that the ranks run, if it is not the benchmark.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// The checksum of that program's file when it was started last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program_checksum: Option<u64>,
    /// Where that program has reported that it keeps its data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keeps: Option<DataLocation>,
    /// Whether that program has opened several runs: when it reports one, that is not all.
    pub has_several_runs: bool,
    pub command: Vec<String>,
    /// Whether the next start resumes from the checkpoint that the command names, if it names one.
    pub goes_back: bool,
    pub ranks: usize,
    pub pool: Pool,
    /// Whether the run is running, or how it ended.
    pub status: Status,
    /// Why the run was given up, or how a program failed after it had reported all.
    pub reason: Option<String>,
    pub exit: Option<u8>,
    pub started_unix: f64,
    pub written_unix: f64,
    pub supervisor: Process,
    /// The number of starts so far, which is the number of the present start.
    pub start: usize,
    pub launcher: Option<Process>,
    pub launched_unix: f64,
    /// The last heartbeat of the present start, with its time.
    pub last_beat: Option<(Heartbeat, f64)>,
    /// Whether there is a checkpoint to go back to.
    pub has_checkpoint: bool,
    /// Whether the present start has reported that it cannot continue from the data that it found.
    pub is_refused: bool,
    /// Whether the present start has reported that a process of an earlier start was still running.
    pub is_changed: bool,
    /// Whether the present job has reported that its time is up.
    pub is_time_up: bool,
    /// Whether the present start has reported that its report is whole.
    pub is_reported: bool,
    /// Number of tests, in all starts, whose residual was too large.
    pub residuals_failed: usize,
    pub failures: Vec<Failure>,
    /// Number of failures, from the first, that no longer count as reasons to give up.
    pub pardoned: usize,
    /// Nodes that have taken the place of another since a start last computed: they have no data
    /// yet. Some may be spares again.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub hollow: BTreeSet<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub blamed: BTreeMap<String, Blame>,
}

impl SupervisorState {
    /// The state of a run that begins now.
    pub fn new(run_id: &str, command: &[String], ranks: usize, pool: Pool, me: Process) -> Self {
        let now = now_unix();
        Self {
            format_version: FORMAT_VERSION,
            run: format!("{:x}-{:x}", (now * 1e6) as u64, me.pid),
            run_id: run_id.to_owned(),
            command: command.to_vec(),
            goes_back: true,
            ranks,
            pool,
            started_unix: now,
            written_unix: now,
            launched_unix: now,
            supervisor: me,
            ..Self::default()
        }
    }

    /// Whether the state is that of the run that a user asks for. The time limit of the benchmark
    /// may differ, as each allocation ends at another time, and the checkpoint that it goes back
    /// to; a program's arguments are its own.
    pub(crate) fn is_of(&self, program: Option<&str>, command: &[String], ranks: usize) -> bool {
        let is_same_command = match program {
            Some(_) => self.command == command,
            None => split(&self.command).0 == split(command).0,
        };
        self.program.as_deref() == program && is_same_command && self.ranks == ranks
    }

    /// The state of the run under another supervisor, with its `command` and the nodes of its
    /// `pool`. Unless the earlier supervisor was killed while the run was running, the user has
    /// asked again, and its failures no longer count.
    pub(crate) fn taken_over(mut self, command: &[String], pool: &Pool, me: Process) -> Self {
        if self.status != Status::Running {
            self.pardoned = self.failures.len();
        }
        self.goes_back = split(&self.command).1 != split(command).1;
        self.command = command.to_vec();
        self.pool = self.pool.with_new(pool);
        (self.supervisor, self.status) = (me, Status::Running);
        (self.reason, self.exit) = (None, None);
        self
    }

    /// The heartbeat token of the present start, see [`heartbeat::ENV`](skt_checkpoint::heartbeat).
    pub(crate) fn token(&self) -> String {
        format!("{}.{}.{}", self.run, self.start, self.ranks)
    }
}

/// The arguments of the benchmark but for its time limit and the checkpoint that it goes back to,
/// and that checkpoint.
fn split(command: &[String]) -> (Vec<&str>, Option<&str>) {
    let [time_limit, resume] =
        [Setting::TimeLimit, Setting::Resume].map(|it| format!("--{}", it.info().flag()));
    let (mut words, mut others, mut checkpoint) =
        (command.iter().map(String::as_str).peekable(), Vec::new(), None);
    while let Some(word) = words.next() {
        let (flag, value) = word.split_once('=').map_or((word, None), |(f, v)| (f, Some(v)));
        let value = value.or_else(|| words.peek().copied());
        let number = value.filter(|value| flag == resume && value.parse::<u64>().is_ok());
        if flag != time_limit && number.is_none() {
            others.push(word);
            continue;
        }
        checkpoint = number.or(checkpoint);
        if !word.contains('=') {
            words.next();
        }
    }
    (others, checkpoint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_continues_under_another_time_limit() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let me = Process::from_pid(std::process::id() as i32).unwrap();
        let pool = Pool::new(vec![], vec![]);
        let state =
            SupervisorState::new("r", &words("--n 9 --time-limit @1 --json f"), 4, pool, me);
        for (command, ranks, is_of) in [
            ("--n 9 --time-limit @1 --json f", 4, true),
            ("--n 9 --time-limit @2 --json f", 4, true),
            ("--n 9 --json f --time-limit=1h", 4, true),
            ("--n 9 --json f", 4, true),
            ("--n 9 --resume 5 --json f", 4, true),
            ("--n 9 --json f --resume=5", 4, true),
            ("--n 9 --json f --resume never", 4, false),
            ("--n 8 --time-limit @1 --json f", 4, false),
            ("--n 9 --time-limit @1 --json f", 5, false),
            ("--n 9 --time-limits @1 --json f", 4, false),
        ] {
            assert_eq!(state.is_of(None, &words(command), ranks), is_of, "{command} {ranks}");
        }
        let of_program = SupervisorState { program: Some("/bin/heat".to_owned()), ..state };
        let same = of_program.command.clone();
        assert!(of_program.is_of(Some("/bin/heat"), &same, 4));
        assert!(!of_program.is_of(Some("/bin/heat"), &words("--n 9 --json f"), 4));
        assert!(!of_program.is_of(Some("/bin/cold"), &same, 4));
        assert!(!of_program.is_of(None, &same, 4));
    }

    #[test]
    fn incomplete_timeline_is_reported_as_far_as_known() {
        let (last_sign_unix, detected_unix, relaunched_unix) = (10.0, 12.5, Some(13.0));
        let mut failure =
            Failure { last_sign_unix, detected_unix, relaunched_unix, ..Failure::default() };
        let timeline = failure.timeline();
        assert_eq!((timeline.detection_seconds, timeline.replacement_seconds), (2.5, Some(0.5)));
        assert_eq!((timeline.restart_seconds, timeline.recovery_seconds), (None, None));
        failure.alive_unix = Some(13.75);
        failure.computing_unix = Some(15.0);
        assert_eq!(failure.timeline().restart_seconds, Some(0.75));
        assert_eq!(failure.timeline().recovery_seconds, Some(1.25));
    }
}
