//! What the supervisor decides, without a process, a file, a clock or a node of its
//! own: [`Machine::on`] takes an event and its time and returns what is to be done,
//! in that order. `super::shell` does it and feeds back what comes of it.
//!
//! ```text
//!                                           +-- Pausing <--+
//!             no job                        |              | all nodes well
//!   Finding ---------------------> Asking --|--------------+
//!      |                             ^      v
//!      | a job of an                 |   Starting
//!      | earlier supervisor          |      |
//!      +----------> Running <--------|------+
//!                      |   the launcher ended
//!                      +-------------+
//! ```
//!
//! Every phase can lead to [`Phase::Over`]. [`Action::Ask`], [`Action::FindJob`],
//! [`Action::Launch`] and [`Action::End`] are the last of what one event leads to, and
//! the next event is what came of them.

mod heard;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;

use super::SupervisorError;
use super::decide::{self, Ending, Next, Past, Refusal};
use super::hosts::{Health, Host, Pool};
use super::probe::Purpose;
use super::process::Process;
use super::state::{Failure, State, StateError, Status};
use super::survey::Survey;
use super::watch::Watch;
use crate::cli::exit::Exit;
use crate::job::heartbeat::{Beat, DONE};

/// How long a launcher may take to end after SIGTERM.
const STOP_PATIENCE_SECONDS: f64 = 10.0;
/// How long it may take to end when the job is done: all that the job had to
/// write is written then. MPICH over TCP hangs in `MPI_Finalize` at times (UCX
/// issue 8738).
const END_PATIENCE_SECONDS: f64 = 10.0;

/// What the user wants of a run.
#[derive(Debug, Clone)]
pub struct Rules {
    /// Ranks.
    pub ranks: usize,
    /// Losses that the code can rebuild.
    pub parities: usize,
    /// Whether checkpoints are taken.
    pub is_protected: bool,
    /// Whether the arguments say what to do with older data.
    pub says_resume: bool,
    /// Failures before giving up.
    pub restarts_max: usize,
    /// Nodes that failed a probe wait as spares again.
    pub readmit: bool,
    /// When more is lost than can be rebuilt, start over.
    pub start_over: bool,
    /// Names of the nodes that may be used.
    pub listed: BTreeSet<String>,
}

/// What has happened.
#[derive(Debug)]
pub enum Event {
    /// The supervisor begins.
    Begin,
    /// No launcher of an earlier supervisor is known; `swept` processes that one had
    /// started were found and ended.
    NoJob {
        /// How many.
        swept: usize,
    },
    /// The launcher of an earlier supervisor is known: it runs, or has ended while no
    /// supervisor was there.
    Found {
        /// Whether it runs.
        runs: bool,
    },
    /// The end of [`Action::Ask`].
    Answers(Survey),
    /// The launcher is started.
    Launched(Process),
    /// The launcher cannot be started.
    Unstarted(SupervisorError),
    /// New lines of the job's report.
    Report(Vec<String>),
    /// The report cannot be printed.
    Unprinted {
        /// What the system said.
        source: io::Error,
        /// The file that has it.
        file: PathBuf,
    },
    /// A sign of life of the job.
    Beat(Beat),
    /// Another line of the job or its launcher.
    Line(String),
    /// What the job writes cannot be read.
    Unread(SupervisorError),
    /// The launcher has ended, and how. All that the job wrote came before.
    Ended(String),
    /// Time has passed; the user has asked so many times to stop.
    Tick {
        /// How many times.
        stops: usize,
    },
    /// [`Action::Save`] is done.
    Saved,
    /// The state or an event could not be written.
    Unsaved(StateError),
}

/// What is to be done.
#[derive(Debug)]
pub enum Action {
    /// Tell the user.
    Tell(String),
    /// Tell the user and log it as an event of that kind.
    Say(&'static str, String),
    /// Print on standard output.
    Print(String),
    /// Write the state.
    Save,
    /// Remove the files that only a run under way needs.
    Tidy,
    /// Look for a job that an earlier supervisor has left.
    FindJob,
    /// Close the lines to all nodes: the next questions go by new ones.
    CloseLines,
    /// Ask nodes.
    Ask(Inquiry),
    /// Start the launcher.
    Launch(Start),
    /// Ask the launcher to end.
    Terminate,
    /// Kill the launcher and its process group.
    Kill,
    /// Write the account of the run.
    Account,
    /// End.
    End(Result<Exit, SupervisorError>),
}

/// Which nodes are asked, and what for.
#[derive(Debug, Clone, PartialEq)]
pub struct Inquiry {
    /// What for.
    pub purpose: Purpose,
    /// Which.
    pub pool: Pool,
    /// So many nodes in use need not be waited for as long as the others.
    pub spare_losses: usize,
    /// Nodes that are said to be lost.
    pub suspects: Vec<String>,
}

/// A start of the job.
#[derive(Debug, Clone, PartialEq)]
pub struct Start {
    /// Nodes, in the order of the ranks.
    pub hosts: Vec<Host>,
    /// The value of `--resume`, if the user's arguments are not to decide.
    pub resume: Option<&'static str>,
}

/// Where the supervisor stands.
#[derive(Debug)]
enum Phase {
    /// A job of an earlier supervisor may be there.
    Finding,
    /// Nodes are asked while no launcher runs.
    Asking(Then),
    /// The nodes are well; the start is at this time.
    Pausing {
        until_unix: f64,
    },
    Starting,
    Running(Running),
    Over,
}

/// What comes after the nodes' answers.
#[derive(Debug, Clone, Copy)]
enum Then {
    Start,
    Stop,
    Finish(Exit),
    /// The same, once the nodes have forgotten the run.
    Forget(Exit),
}

/// A launcher under watch.
#[derive(Debug, Default)]
struct Running {
    /// Why it was killed.
    killed: Option<String>,
    /// When it was asked to end.
    terminated_unix: Option<f64>,
    /// When the job was seen to be done.
    done_unix: Option<f64>,
    /// A line has said that a node in use is lost.
    is_alarmed: bool,
    /// Nodes are looked for, and whether because of an alarm.
    looking: Option<bool>,
    /// After so long a silence they are looked for again.
    next_look_seconds: f64,
}

/// The supervisor's decisions about one run. Times are Unix seconds by a clock that
/// does not go back.
#[derive(Debug)]
pub struct Machine {
    rules: Rules,
    /// What must not be forgotten.
    pub state: State,
    watch: Watch,
    phase: Phase,
    /// Nodes that the launcher, the ranks or a look have said to be lost since the
    /// last start.
    suspects: Vec<String>,
    told: Told,
    /// What the present event leads to.
    actions: Vec<Action>,
}

/// What the user was told, and is not to be told again.
#[derive(Debug, Default)]
struct Told {
    /// Warnings, each with a node that has it.
    warnings: BTreeSet<(String, String)>,
    /// The start whose report was printed last.
    report_of: Option<usize>,
    /// Why the report is not printed any more.
    print_error: Option<io::Error>,
    /// The state could not be written the last time.
    is_unsaved: bool,
}

impl Machine {
    /// The decisions for the run of `state`, of which nothing is under way yet.
    pub fn new(rules: Rules, state: State, watch: Watch) -> Self {
        Self {
            rules,
            state,
            watch,
            phase: Phase::Finding,
            suspects: Vec::new(),
            told: Told::default(),
            actions: Vec::new(),
        }
    }

    /// What is to be done now that `event` has happened, at that time.
    pub fn on(&mut self, now_unix: f64, event: Event) -> Vec<Action> {
        match event {
            Event::Begin => self.begin(),
            Event::NoJob { swept } => self.no_job(swept),
            Event::Found { runs } => self.found(now_unix, runs),
            Event::Answers(survey) => self.answers(now_unix, survey),
            Event::Launched(launcher) => self.launched(now_unix, launcher),
            Event::Unstarted(error) => self.unstarted(error),
            Event::Report(lines) => self.report(&lines),
            Event::Unprinted { source, file } => self.unprinted(source, &file),
            Event::Beat(beat) => self.beat(now_unix, beat),
            Event::Line(line) => self.suspect(&line),
            // A job that is not watched is ended.
            Event::Unread(error) => {
                self.act(Action::Kill);
                self.end(Err(error));
            }
            Event::Ended(how) => self.ended(now_unix, &how),
            Event::Tick { stops } => self.tick(now_unix, stops),
            Event::Saved => self.saved(),
            Event::Unsaved(error) => self.unsaved(error),
        }
        std::mem::take(&mut self.actions)
    }

    fn act(&mut self, action: Action) {
        self.actions.push(action);
    }

    fn say(&mut self, kind: &'static str, text: impl Into<String>) {
        self.act(Action::Say(kind, text.into()));
    }

    fn begin(&mut self) {
        if self.rules.readmit {
            let back = self.state.pool.readmit();
            if !back.is_empty() {
                self.say("readmit", format!("in again as spares: {}", back.join(", ")));
            }
        }
        self.act(Action::FindJob);
    }

    fn no_job(&mut self, swept: usize) {
        if swept > 0 {
            self.say(
                "ended",
                format!("{swept} process(es) that an earlier supervisor had started"),
            );
        }
        // The nodes are asked once it is seen that the state can be kept.
        self.act(Action::Save);
    }

    fn found(&mut self, now_unix: f64, runs: bool) {
        let what = if runs { "goes on" } else { "has ended" };
        let attempt = self.state.attempt;
        self.say("found", format!("start {attempt} of an earlier supervisor {what}"));
        self.watch.start(now_unix);
        self.phase = Phase::Running(Running::default());
    }

    fn saved(&mut self) {
        if std::mem::take(&mut self.told.is_unsaved) {
            self.say("saved", "the state is saved again");
        }
        if matches!(self.phase, Phase::Finding) {
            self.prepare();
        }
    }

    /// Before the first start a folder that cannot be written to is refused. A job
    /// that was started is not left unwatched for its sake, nor is it stopped: what
    /// is known stands in memory as well.
    fn unsaved(&mut self, error: StateError) {
        if self.state.attempt == 0 || matches!(self.phase, Phase::Finding) {
            self.end(Err(error.into()));
        } else if !std::mem::replace(&mut self.told.is_unsaved, true) {
            self.act(Action::Tell(format!(
                "warning: {error}: the job is watched on, but should this supervisor end, \
                 no other can take over: its ranks would run on unwatched"
            )));
        }
    }

    /// Asks the nodes before a start, if there is to be one.
    fn prepare(&mut self) {
        let past = self.past();
        let resolution_columns = self.watch.resolution_columns();
        if let Some(why) = decide::give_up(&past, resolution_columns, self.rules.restarts_max) {
            self.give_up(&why, Exit::BadInput);
            return self.end(Ok(Exit::BadInput));
        }
        if past.last().is_some_and(|failure| !failure.lived) {
            // The launcher has to get to the nodes by new ones.
            self.act(Action::CloseLines);
        }
        self.ask_then(Then::Start);
    }

    fn past(&self) -> Vec<Past> {
        let past = |failure: &Failure| Past {
            lived: failure.lived,
            column: failure.column,
            node_lost: failure.node_lost,
        };
        self.state.failures.iter().map(past).collect()
    }

    fn ask_then(&mut self, then: Then) {
        self.phase = Phase::Asking(then);
        self.ask(match then {
            Then::Start | Then::Stop => Purpose::Start,
            Then::Finish(_) => Purpose::Clean,
            Then::Forget(_) => Purpose::Forget,
        });
    }

    fn ask(&mut self, purpose: Purpose) {
        let pool = match purpose {
            Purpose::Start | Purpose::Look => self.state.pool.clone(),
            // Also those that are out: they may be back.
            Purpose::Clean | Purpose::Forget => {
                Pool::new(self.state.pool.everyone().cloned().collect(), Vec::new())
            }
        };
        // Before the first start nothing is lost by waiting.
        let spare_losses = match purpose {
            Purpose::Start if self.state.attempt > 0 => self.rules.parities,
            _ => 0,
        };
        let suspects = self.suspects.clone();
        self.act(Action::Ask(Inquiry { purpose, pool, spare_losses, suspects }));
    }

    fn answers(&mut self, now_unix: f64, survey: Survey) {
        match &self.phase {
            Phase::Running(_) => self.looked(now_unix, &survey),
            Phase::Asking(Then::Start) => self.replace_lost(now_unix, survey),
            Phase::Asking(Then::Stop) => self.stopped(),
            Phase::Asking(Then::Finish(exit)) => self.cleaned(*exit, &survey),
            Phase::Asking(Then::Forget(exit)) => self.finish(*exit),
            phase => unreachable!("nobody was asked: {phase:?}"),
        }
    }

    /// Replaces the nodes that are lost before a start.
    fn replace_lost(&mut self, now_unix: f64, survey: Survey) {
        if let Some((agent, source)) = survey.agent_fault {
            return self.end(Err(SupervisorError::Agent { agent, source }));
        }
        if survey.ended() > 0 {
            self.say("ended", format!("{} rank(s) of the last start were left", survey.ended()));
        }
        self.warn(&survey);
        let health = |name: &str| match self.rules.listed.contains(name) {
            false => Health::Ill("is not listed any more".to_owned()),
            true => survey.health(name),
        };
        let replaced = match self.state.pool.replace(health) {
            Ok(replaced) => replaced,
            Err(spent) => {
                self.give_up(&spent.to_string(), Exit::Interrupted);
                return self.end(Ok(Exit::Interrupted));
            }
        };
        for change in &replaced {
            let text = format!("{} {}; {} takes its place", change.lost, change.why, change.by);
            self.say("replaced", text);
        }
        if let Some(failure) = self.state.failures.last_mut()
            && failure.relaunched_unix.is_none()
            && !replaced.is_empty()
        {
            failure.node_lost = true;
            failure.replaced = replaced;
        }
        let pause_seconds = decide::backoff_seconds(&self.past());
        if pause_seconds > 0.0 {
            self.say("pause", format!("{pause_seconds:.0} s before the next start"));
        }
        self.phase = Phase::Pausing { until_unix: now_unix + pause_seconds };
    }

    fn warn(&mut self, survey: &Survey) {
        for (text, mut nodes) in survey.warnings() {
            // A node is not named twice.
            nodes.retain(|node| self.told.warnings.insert((text.clone(), (*node).to_owned())));
            if !nodes.is_empty() {
                self.say("warning", format!("warning: {}: {text}", nodes.join(", ")));
            }
        }
    }

    fn launch(&mut self) {
        let state = &mut self.state;
        state.attempt += 1;
        state.last_beat = None;
        self.suspects.clear();
        // Were all of the checkpoint lost, the job would start over without a word.
        let must_find = self.rules.is_protected && !self.rules.says_resume && state.has_checkpoint;
        let resume = match state.is_refused && self.rules.start_over {
            true => Some("never"),
            false => must_find.then_some("require"),
        };
        let hosts = state.pool.used(self.rules.ranks);
        self.phase = Phase::Starting;
        self.act(Action::Launch(Start { hosts, resume }));
    }

    fn launched(&mut self, now_unix: f64, launcher: Process) {
        let state = &mut self.state;
        state.launcher = Some(launcher);
        state.launched_unix = now_unix;
        (state.is_refused, state.is_changed, state.is_reported) = (false, false, false);
        if let Some(failure) = state.failures.last_mut() {
            failure.relaunched_unix.get_or_insert(now_unix);
        }
        self.watch.start(now_unix);
        self.phase = Phase::Running(Running::default());
        self.act(Action::Save);
    }

    fn unstarted(&mut self, error: SupervisorError) {
        match error {
            SupervisorError::State(_) | SupervisorError::File { .. } if self.state.attempt > 1 => {
                let why = format!("cannot start the job again: {error}; make room there");
                self.give_up(&why, Exit::Interrupted);
                self.end(Ok(Exit::Interrupted));
            }
            error => self.end(Err(error)),
        }
    }

    fn tick(&mut self, now_unix: f64, stops: usize) {
        match &self.phase {
            Phase::Pausing { .. } if stops > 0 => self.stopped(),
            Phase::Pausing { until_unix } if now_unix >= *until_unix => self.launch(),
            Phase::Running(_) => self.watch_job(now_unix, stops),
            _ => {}
        }
    }

    /// Kills a launcher that hangs, looks for lost nodes, and passes on the wish to
    /// stop.
    fn watch_job(&mut self, now_unix: f64, stops: usize) {
        let is_done = self.state.last_beat.as_ref().is_some_and(|(beat, _)| beat.phase == DONE);
        let hung_seconds = self.watch.hung_for(now_unix);
        let limit_seconds = self.watch.limit_seconds();
        let Phase::Running(running) = &mut self.phase else { unreachable!("a job is watched") };
        if is_done {
            let since = *running.done_unix.get_or_insert(now_unix);
            if now_unix - since > END_PATIENCE_SECONDS {
                self.kill("the job is done, the launcher does not end");
            }
        } else if let Some(silent) = hung_seconds {
            self.kill(&format!("no sign of life for {silent:.1} s (limit {limit_seconds:.1} s)"));
        } else if self.is_time_to_look(now_unix) {
            return self.ask(Purpose::Look);
        }
        if stops > 0 {
            self.stop_job(now_unix, stops);
        }
    }

    /// When the job has been silent for a while, its nodes are looked for: a launcher
    /// may wait for ever for one that is not there, and parts of the work without
    /// columns may be silent for long.
    fn is_time_to_look(&mut self, now_unix: f64) -> bool {
        let silent_seconds = self.watch.silent_seconds(now_unix);
        let after_seconds = self.watch.look_after_seconds();
        let Phase::Running(running) = &mut self.phase else { return false };
        if running.killed.is_some() {
            return false;
        }
        if silent_seconds < after_seconds {
            running.next_look_seconds = 0.0;
        }
        let is_alarmed = std::mem::take(&mut running.is_alarmed);
        let is_silent = silent_seconds >= after_seconds.max(running.next_look_seconds);
        running.looking = (is_alarmed || is_silent).then_some(is_alarmed);
        running.looking.is_some()
    }

    /// The answers of nodes that were looked for while the job runs.
    fn looked(&mut self, now_unix: f64, survey: &Survey) {
        let silent_seconds = self.watch.silent_seconds(now_unix);
        let Phase::Running(running) = &mut self.phase else { return };
        let is_alarmed = running.looking.take().expect("nodes were looked for");
        // All well, once: the next look has twice the time.
        running.next_look_seconds = 2.0 * silent_seconds;
        let ill = self.state.pool.active.iter().find_map(|host| match survey.health(&host.name) {
            Health::Ill(why) => Some((host.name.clone(), why)),
            Health::Well | Health::Unknown => None,
        });
        if let Some((name, why)) = ill {
            let sign = if is_alarmed { "a connection broke" } else { "silence" };
            let text = format!("{sign}, and {name} is lost: {why}");
            self.suspects.push(name);
            self.kill(&text);
        }
    }

    fn stop_job(&mut self, now_unix: f64, stops: usize) {
        let Phase::Running(running) = &mut self.phase else { return };
        let since = *running.terminated_unix.get_or_insert_with(|| {
            self.actions.push(Action::Say(
                "stop",
                "asked to stop: ending the job, its checkpoint stays".to_owned(),
            ));
            self.actions.push(Action::Terminate);
            now_unix
        });
        if stops > 1 || now_unix - since > STOP_PATIENCE_SECONDS {
            self.kill("the launcher does not end");
        }
    }

    /// Kills the launcher, once. It cannot be talked to: while a lost node is
    /// unnoticed, Open MPI's ignores SIGTERM.
    fn kill(&mut self, why: &str) {
        let Phase::Running(running) = &mut self.phase else { return };
        if running.killed.is_none() {
            running.killed = Some(why.to_owned());
            self.say("kill", format!("{why}: killing the launcher"));
            self.act(Action::Kill);
        }
    }

    fn ended(&mut self, now_unix: f64, how: &str) {
        let Phase::Running(running) = std::mem::replace(&mut self.phase, Phase::Over) else {
            unreachable!("no launcher runs")
        };
        let how = running.killed.map_or(how.to_owned(), |why| format!("{why}; {how}"));
        let state = &mut self.state;
        state.launcher = None;
        let ending = Ending {
            completion: state.last_beat.as_ref().and_then(|(beat, _)| beat.exit),
            is_reported: state.is_reported,
            refusal: match (state.is_refused, state.is_changed) {
                (true, _) => Some(Refusal::Lost),
                (_, true) => Some(Refusal::Changed),
                _ => None,
            },
            stop_requested: running.terminated_unix.is_some(),
        };
        match decide::next(&ending) {
            Next::Lost if self.rules.start_over && !self.rules.says_resume => {
                state.has_checkpoint = false;
                self.say("over", "more is lost than can be rebuilt: starting over from the seed");
                self.prepare();
            }
            Next::Lost => {
                let why = "more is lost than the checkpoint can rebuild, see the message above; \
                           --start-over would begin from the seed";
                self.give_up(why, Exit::BadInput);
                self.end(Ok(Exit::BadInput));
            }
            Next::Declined => self.declined(),
            Next::Finished(exit) => self.clean(exit),
            Next::Stopped => self.ask_then(Then::Stop),
            Next::Restart => {
                self.note_failure(now_unix, how);
                self.prepare();
            }
        }
    }

    fn note_failure(&mut self, now_unix: f64, how: String) {
        let state = &mut self.state;
        let beat = self.watch.last();
        let last = state.last_beat.take();
        let failure = Failure {
            attempt: state.attempt,
            how,
            replaced: Vec::new(),
            phase: last.as_ref().map_or("start".into(), |(beat, _)| beat.phase.clone()),
            column: beat.map_or(0, |beat| beat.column),
            lived: beat.is_some(),
            node_lost: false,
            last_sign_unix: last.map_or(state.launched_unix, |(_, unix)| unix),
            detected_unix: now_unix,
            relaunched_unix: None,
            alive_unix: None,
            computing_unix: None,
            resumed_column: None,
        };
        let text = format!(
            "start {} failed in phase {} at column {}: {}",
            failure.attempt, failure.phase, failure.column, failure.how
        );
        state.failures.push(failure);
        self.say("failure", text);
        self.act(Action::Save);
    }

    /// The job is done: its segments are removed from all nodes.
    fn clean(&mut self, exit: Exit) {
        // The last start knows its own tests alone.
        let exit = match exit {
            Exit::Passed if self.state.residuals_failed > 0 => Exit::ResidualFailed,
            exit => exit,
        };
        if let Some((beat, _)) = &self.state.last_beat
            && beat.phase != DONE
        {
            let text = "the job was lost after its report was whole; what it left is removed here";
            self.say("reported", text);
        }
        self.ask_then(Then::Finish(exit));
    }

    fn cleaned(&mut self, exit: Exit, survey: &Survey) {
        let everyone = self.state.pool.everyone().map(|host| host.name.as_str());
        let silent: Vec<&str> =
            everyone.filter(|name| !survey.answers.contains_key(*name)).collect();
        if !silent.is_empty() {
            let text = format!(
                "{}: not reached; segments that are left there, should it come back, are \
                 removed by the next start of this run with it, for which the others keep a mark \
                 (`skt-hpl shm list`)",
                silent.join(", ")
            );
            self.say("unclean", text);
        } else if survey.answers.values().any(|answer| answer.run_bytes > 0)
            && survey.answers.values().all(|answer| answer.is_clean())
        {
            // No node has anything left that marks would have to tell of.
            return self.ask_then(Then::Forget(exit));
        }
        self.finish(exit);
    }

    fn finish(&mut self, exit: Exit) {
        self.state.status = Status::Finished;
        self.state.exit = Some(exit.code());
        let failures = self.state.failures.len();
        self.say("finished", format!("the job is done, after {failures} failure(s)"));
        if let Some(source) = self.told.print_error.take() {
            self.act(Action::Save);
            return self.end(Err(SupervisorError::File { path: "standard output".into(), source }));
        }
        self.act(Action::Tidy);
        self.act(Action::Save);
        self.end(Ok(exit));
    }

    /// The job has ended for a reason that is for a person to resolve. Nothing is
    /// removed: earlier starts, of this supervisor or not, may have left checkpoints.
    fn declined(&mut self) {
        let why =
            "the job cannot run so, see the message above; what earlier starts have left stays";
        self.give_up(why, Exit::BadInput);
        // Where nothing was computed yet, other options may be given.
        if self.state.attempt == 1 && !self.state.has_checkpoint {
            self.state.status = Status::Finished;
            self.act(Action::Tidy);
            self.act(Action::Save);
        }
        self.end(Ok(Exit::BadInput));
    }

    fn stopped(&mut self) {
        self.state.status = Status::Stopped;
        self.state.exit = Some(Exit::Interrupted.code());
        self.say("stopped", "stopped; start the same command again to resume");
        self.act(Action::Save);
        self.end(Ok(Exit::Interrupted));
    }

    fn give_up(&mut self, why: &str, exit: Exit) {
        self.state.status = Status::GaveUp;
        self.state.exit = Some(exit.code());
        self.state.reason = Some(why.to_owned());
        self.say("gave-up", format!("giving up: {why}"));
        if exit == Exit::Interrupted {
            self.say("hint", "what survives stays; start the same command again to resume");
        }
        self.act(Action::Save);
    }

    fn end(&mut self, end: Result<Exit, SupervisorError>) {
        self.phase = Phase::Over;
        if end.is_ok() {
            self.act(Action::Account);
        }
        self.act(Action::End(end));
    }
}
