//! The decisions of the supervisor, without processes, files, clocks or nodes: [`Decisions::on`]
//! takes an event and its time and returns the actions to take, in order. `super::shell` takes them
//! and returns what follows as events.
//!
//! ```text
//!            +-> Waiting --+
//!            |             v
//! Finding ---> ProbeRound ---> Pausing ---> Starting ---> Running ---+
//!    |             ^                                          ^  |     |
//!    |             +---- the launcher has ended: ------------ | -+     |
//!    |                   ask, replace, start again            |        |
//!    +---- the job of an earlier supervisor ------------------+        +---> Over
//! ```
//!
//! | what is decided | file |
//! |---|---|
//! | the phases: what follows from an answer, a start, the end of a job | this one |
//! | which nodes are replaced before a start, or declined by the job, and which run the ranks of lost ones | `replace` |
//! | whether a running job hangs, when its nodes are probed, which nodes compute wrong | `running` |
//! | what output, heartbeats and answers show | `job_output` |
//! | which nodes are cut off | `links` |
//! | how the run ends, also one of a program | `ending` |
//!
//! Each phase can lead to `Over`. [`Action::FindJob`], [`Action::Ask`],
//! [`Action::Launch`] and [`Action::End`] come last among the actions of an event, and
//! the next event has their result.

mod ending;
mod job_output;
mod links;
mod replace;
mod running;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use job_output::LineReader;
use links::{Doubts, LinkRecord};
use running::{CUT_OFF, RunningJob};

use super::hosts::{Health, Host, Pool, UNLISTED};
use super::probe::{Answer, Purpose};
use super::program::RankEnd;
use super::state::{Failure, SupervisorState};
use super::survey::{Inquiry, Survey};
use super::watch::HeartbeatWatch;
use super::{LaunchOptions, SupervisorError};
use skt_checkpoint::heartbeat::{CHANGED, DONE, Heartbeat};
use skt_host::counters::oom_kills::OomKills;
use skt_host::exit::Exit;
use skt_host::host_names::short_names;
use skt_host::process::Process;

#[derive(Debug)]
pub(crate) enum Event {
    Begin,
    /// No launcher of an earlier supervisor is known; `swept` processes that one had
    /// started were found and ended.
    NoJob {
        swept: usize,
    },
    /// The launcher of an earlier supervisor is known: it runs, or has ended while no
    /// supervisor was there.
    Found {
        runs: bool,
    },
    Answers(Survey),
    Launched(Process),
    Unstarted(SupervisorError),
    /// What the job has written of its report: whole lines, or any bytes of the user's program.
    Report(Vec<u8>),
    Unprinted(String),
    Heartbeat(Heartbeat),
    /// Another line of the job or its launcher; the start of one that is very long.
    Line(String),
    Unread(SupervisorError),
    RankEnded(RankEnd),
    /// The launcher has ended. All that the job wrote came before.
    Ended {
        how: String,
        succeeded: bool,
    },
    Spares(Vec<Host>),
    /// Time has passed; the user has asked this many times to stop.
    Tick {
        stops: usize,
    },
    /// For some time the supervisor has neither watched the job nor asked its nodes: it was stopped
    /// itself, perhaps with the job, or had to wait for a file system or for the reader of its
    /// output.
    Unwatched {
        seconds: f64,
    },
    Saved,
    Unsaved(SupervisorError),
}

#[derive(Debug)]
pub(crate) enum Action {
    Message(String),
    /// Print to the user and log it as an event of that kind.
    Report(&'static str, String),
    Print(Vec<u8>),
    Save,
    /// Remove the files that only a running run needs.
    Tidy,
    FindJob,
    /// Close the lines to all nodes: the next questions go by new ones.
    CloseLines,
    Ask(Inquiry),
    Launch(Start),
    Terminate,
    /// Kill the launcher and its process group.
    Kill,
    Account,
    End(Result<Exit, SupervisorError>),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Start {
    pub hosts: Vec<Host>,
    /// The value of `--resume`, if the user's arguments are not to decide.
    pub resume: Option<&'static str>,
    /// Whether nodes run ranks of lost ones as well as their own.
    pub shares: bool,
}

#[derive(Debug, Default)]
enum Phase {
    /// A job of an earlier supervisor may be there.
    #[default]
    Finding,
    /// Nodes are asked while no launcher runs.
    ProbeRound(AfterProbe),
    /// The nodes are well; the start is at this time, in Unix seconds.
    Pausing(f64),
    /// A lost node has no spare; the nodes are asked again at this time.
    Waiting(f64),
    Starting,
    Running,
    Over,
}

#[derive(Debug, Clone, Copy)]
enum AfterProbe {
    Start,
    Stop,
    Finish(Exit),
    /// Finish, once the nodes have forgotten the run.
    Forget(Exit),
}

/// The supervisor's decisions about one run. Times are Unix seconds by a clock that
/// does not go back.
#[derive(Debug, Default)]
pub(crate) struct Decisions {
    pub options: LaunchOptions,
    listed: BTreeSet<String>,
    pub state: SupervisorState,
    watch: HeartbeatWatch,
    phase: Phase,
    running: RunningJob,
    /// Nodes that the launcher, the ranks or a probe have reported as lost since the last start.
    suspects: Vec<String>,
    /// Nodes that the launcher or the ranks have named since the job last computed.
    doubts: Doubts,
    unfit: BTreeMap<String, String>,
    /// What the probe before a start has found.
    health: BTreeMap<String, Health>,
    /// The answers of that probe, and the bytes of a rank's segments.
    answers: BTreeMap<String, Answer>,
    held_bytes: u64,
    links: LinkRecord,
    /// The OOM kills that the nodes had counted before the last start.
    oom_kills: BTreeMap<String, OomKills>,
    /// The code with which the user's program has refused, with a text, until it is known whether a
    /// lost node explains it.
    pending_refusal: Option<(u8, String)>,
    printed: Printed,
    /// Whether the run is over: its files are removed as soon as the saved state has that.
    tidies: bool,
    actions: Vec<Action>,
}

/// What was printed to the user, and is not to be printed again.
#[derive(Debug, Default)]
struct Printed {
    /// Warnings, each with a node that has it.
    warnings: BTreeSet<(String, String)>,
    report_of: Option<usize>,
    print_error: Option<String>,
    is_unsaved: bool,
}

impl Decisions {
    /// The decisions for the run of `state`, of which nothing runs yet.
    pub(crate) fn new(options: LaunchOptions, state: SupervisorState) -> Self {
        let listed = options.pool.everyone().map(|host| host.name.clone()).collect();
        let watch =
            HeartbeatWatch::new(options.settings.hang_after_seconds, options.is_of_program());
        Self { options, listed, state, watch, ..Self::default() }
    }

    /// What is to be done now that `event` has happened, at that time.
    pub(crate) fn on(&mut self, now_unix: f64, event: Event) -> Vec<Action> {
        match event {
            Event::Begin => self.begin(),
            Event::NoJob { swept } => self.no_job(swept),
            Event::Found { runs } => self.found(now_unix, runs),
            Event::Answers(survey) => self.answers(now_unix, survey),
            Event::Launched(launcher) => self.launched(now_unix, launcher),
            Event::Unstarted(error) => self.unstarted(error),
            Event::Report(text) => self.report(&text),
            // This is no reason to stop the job.
            Event::Unprinted(why) => {
                self.notify("unprinted", why.clone());
                self.printed.print_error = Some(why);
            }
            Event::Heartbeat(beat) => self.beat(now_unix, beat),
            Event::Line(line) => self.suspect(&line),
            // A job that cannot be watched is killed.
            Event::Unread(error) => {
                self.act(Action::Kill);
                self.end(Err(error));
            }
            Event::RankEnded(end) => self.running.ends.note(end),
            Event::Ended { how, succeeded } => self.ended(now_unix, &how, succeeded),
            Event::Spares(listed) => self.list_spares(listed),
            Event::Tick { stops } => self.tick(now_unix, stops),
            Event::Unwatched { seconds } => {
                self.watch.unwatched(seconds, now_unix);
                self.running.unwatched(seconds);
            }
            Event::Saved => self.saved(),
            Event::Unsaved(error) => self.unsaved(error),
        }
        std::mem::take(&mut self.actions)
    }

    fn act(&mut self, action: Action) {
        self.actions.push(action);
    }

    fn notify(&mut self, kind: &'static str, text: impl Into<String>) {
        self.act(Action::Report(kind, text.into()));
    }

    fn begin(&mut self) {
        if self.options.settings.readmit {
            let back = self.state.pool.readmit();
            self.state.blamed.retain(|name, _| !back.contains(name));
            if !back.is_empty() {
                self.notify("readmit", format!("in again as spares: {}", short_names(&back)));
            }
        }
        if !self.options.settings.replace_suspects {
            // An earlier command may have asked for replacement.
            self.state.blamed.values_mut().for_each(|blame| blame.to_replace = false);
        }
        self.act(Action::FindJob);
    }

    fn no_job(&mut self, swept: usize) {
        if swept > 0 {
            let text = format!("{swept} process(es) that an earlier supervisor had started");
            self.notify("ended", text);
        }
        // The time that was up is that of an earlier allocation.
        self.state.is_time_up = false;
        // The nodes are asked once it is seen that the state can be kept.
        self.act(Action::Save);
    }

    fn found(&mut self, now_unix: f64, runs: bool) {
        let what = if runs { "continues" } else { "has ended" };
        let start = self.state.start;
        self.notify("found", format!("start {start} of an earlier supervisor {what}"));
        self.watch.replay(now_unix);
        (self.phase, self.running) = (Phase::Running, RunningJob::default());
    }

    fn saved(&mut self) {
        if std::mem::take(&mut self.tidies) {
            self.act(Action::Tidy);
        }
        if std::mem::take(&mut self.printed.is_unsaved) {
            self.notify("saved", "the state is saved again");
        }
        if matches!(self.phase, Phase::Finding) {
            self.prepare();
        }
    }

    /// Refuses a folder that cannot be written to, before the first start. A job that was started
    /// is watched further and not stopped, because what is known is in memory as well.
    fn unsaved(&mut self, error: SupervisorError) {
        if self.state.start == 0 || matches!(self.phase, Phase::Finding) {
            self.end(Err(error));
        } else if !std::mem::replace(&mut self.printed.is_unsaved, true) {
            self.act(Action::Message(format!(
                "warning: {error}: the job is watched on, but should this supervisor end, \
                 no other can take over: its ranks would run on unwatched"
            )));
        }
    }

    fn has_failed_too_often(&mut self) -> bool {
        let (past, most) = (self.past(), self.options.settings.max_restarts);
        let resolution_columns = self.watch.resolution_columns();
        let why = ending::why_give_up(past, self.options.place(), resolution_columns, most);
        let Some(why) = why else { return false };
        let (names, is_too_often) = (self.cut_off_in_use(), past.len() > most);
        if !is_too_often && names.iter().any(|name| self.doubts.is_lost(name)) {
            // The next start leaves it out, or waits.
            return false;
        }
        let has_lived = past.last().is_none_or(|failure| failure.lived);
        let (why, exit) = if has_lived || is_too_often {
            (why, Exit::BadInput)
        } else if !names.is_empty() {
            (format!("{}: {CUT_OFF}", short_names(&names)), Exit::Interrupted)
        } else if self.links.none_reached {
            let none = "but no two of them reach each other: their network is down, or filtered";
            (format!("{why}, {none}"), Exit::BadInput)
        } else {
            let help = "`skt-hpl screen --hosts FILE` finds the node at fault";
            (format!("{why}: {help}"), Exit::BadInput)
        };
        self.give_up(&why, exit);
        true
    }

    /// Asks the nodes before a start, if there is to be one.
    fn prepare(&mut self) {
        if self.has_failed_too_often() {
            return;
        }
        if self.past().last().is_some_and(|failure| !failure.lived) {
            // The launcher reaches the nodes by new connections: so does the probe.
            self.act(Action::CloseLines);
        }
        self.ask_then(AfterProbe::Start);
    }

    fn past(&self) -> &[Failure] {
        self.state.failures.get(self.state.pardoned..).unwrap_or_default()
    }

    fn ask_then(&mut self, then: AfterProbe) {
        self.phase = Phase::ProbeRound(then);
        let purpose = match then {
            AfterProbe::Start | AfterProbe::Stop => Purpose::Start,
            AfterProbe::Finish(_) => Purpose::Clean,
            AfterProbe::Forget(_) => Purpose::Forget,
        };
        self.ask(purpose, matches!(then, AfterProbe::Start));
    }

    fn ask(&mut self, purpose: Purpose, tries_links: bool) {
        let suspects = self.suspects.clone();
        let pool = self.state.pool.placed();
        let mut inquiry = Inquiry { purpose, pool, suspects, tries_links, ..Inquiry::default() };
        match purpose {
            Purpose::Start => {
                inquiry.lost = self.known_lost();
                inquiry.share_after = self.may_share().then_some(self.state.pool.spares.len());
                // Before the first start nothing is lost by waiting. Nodes whose data is not
                // rebuilt yet are losses already.
                if self.state.start > 0 {
                    inquiry.spare_losses =
                        self.options.parities.saturating_sub(self.hollow().len());
                }
            }
            // Also those that are out: they may be back.
            Purpose::Clean | Purpose::Forget => {
                let everyone = self.state.pool.everyone().cloned().collect();
                inquiry.pool = Pool::new(everyone, Vec::new());
            }
            Purpose::Check | Purpose::Links => {}
        }
        self.act(Action::Ask(inquiry));
    }

    fn answers(&mut self, now_unix: f64, survey: Survey) {
        let addresses =
            survey.answers.iter().map(|(name, it)| (name.clone(), it.addresses.clone()));
        self.links.addresses.extend(addresses);
        if let Phase::ProbeRound(AfterProbe::Start | AfterProbe::Stop) = self.phase {
            self.watch.reached(survey.slowest.as_secs_f64(), self.state.pool.active.len());
        }
        match &self.phase {
            Phase::Running => self.note_probe(now_unix, &survey),
            Phase::ProbeRound(AfterProbe::Start) => self.probed(now_unix, survey),
            Phase::ProbeRound(AfterProbe::Stop) => self.stopped(),
            Phase::ProbeRound(AfterProbe::Finish(exit)) => self.cleaned(*exit, &survey),
            Phase::ProbeRound(AfterProbe::Forget(exit)) => self.finish(*exit),
            phase => unreachable!("no node was asked: {phase:?}"),
        }
    }

    /// The nodes have answered before a start, and those that are well have tried their links.
    fn probed(&mut self, now_unix: f64, survey: Survey) {
        if let Some(why) = survey.agent_fault {
            return self.end(Err(SupervisorError(why)));
        }
        if survey.ended() > 0 {
            self.notify("ended", format!("{} rank(s) of the last start were left", survey.ended()));
        }
        self.report_oom_kills(&survey);
        self.warn_of_lost_segments(&survey);
        self.warn(&survey);
        let health = |host: &Host| {
            if self.listed.contains(&host.name) {
                survey.health(&host.name)
            } else {
                Health::Ill(UNLISTED.to_owned())
            }
        };
        let pool = &self.state.pool;
        let all = pool.active.iter().chain(&pool.spares);
        self.health = all.map(|host| (host.name.clone(), health(host))).collect();
        self.held_bytes = survey.held_bytes;
        self.note_links(&survey);
        self.answers = survey.answers;
        self.replace_lost(now_unix);
    }

    fn warn(&mut self, survey: &Survey) {
        for (text, mut nodes) in survey.warnings() {
            // A node is not named twice.
            nodes.retain(|node| self.printed.warnings.insert((text.clone(), (*node).to_owned())));
            if !nodes.is_empty() {
                self.notify("warning", format!("warning: {}: {text}", short_names(&nodes)));
            }
        }
    }

    /// Whether `line` of the job is a warning that the user was given before the job started. The
    /// job may know its nodes by other names.
    pub(crate) fn has_printed(&self, line: &str) -> bool {
        let warning = line.strip_prefix("warning: ");
        let is_printed =
            |line: &str| self.printed.warnings.iter().any(|(text, _)| line.ends_with(text));
        warning.is_some_and(|warning| is_printed(warning.trim_end()))
    }

    fn launch(&mut self) {
        let state = &mut self.state;
        state.start += 1;
        state.last_beat = None;
        self.suspects.clear();
        // The links of nodes that are away are dead until a test shows the contrary.
        let used = state.pool.placed().active;
        self.links.dead.retain(|name, _| used.iter().all(|host| host.name != *name));
        state.reason = None;
        // Without `require`, a job whose checkpoint is lost as a whole would start over silently.
        let must_find = self.options.is_protected
            && !self.options.is_of_program()
            && !self.options.says_resume
            && state.has_checkpoint;
        let is_named = std::mem::take(&mut state.goes_back) && self.options.checkpoint.is_some();
        let resume = match self.options.checkpoint {
            _ if state.is_refused && self.options.starts_over() => Some("never"),
            // By the user's own flag, which later starts must not follow.
            _ if is_named => None,
            _ if must_find => Some("require"),
            checkpoint => checkpoint.map(|_| "auto"),
        };
        let hosts = state.pool.used(self.options.ranks);
        self.phase = Phase::Starting;
        let shares = !state.pool.guests.is_empty();
        self.act(Action::Launch(Start { hosts, resume, shares }));
    }

    fn launched(&mut self, now_unix: f64, launcher: Process) {
        let state = &mut self.state;
        state.launcher = Some(launcher);
        state.launched_unix = now_unix;
        (state.is_refused, state.is_changed, state.is_reported) = (false, false, false);
        state.is_time_up = false;
        if let Some(failure) = state.failures.last_mut() {
            failure.relaunched_unix.get_or_insert(now_unix);
        }
        self.watch.start(now_unix);
        (self.phase, self.running) = (Phase::Running, RunningJob::default());
        self.act(Action::Save);
    }

    fn unstarted(&mut self, error: SupervisorError) {
        if self.state.start > 1 {
            self.give_up(&format!("cannot start the job again: {error}"), Exit::Interrupted);
        } else {
            self.end(Err(error));
        }
    }

    fn tick(&mut self, now_unix: f64, stops: usize) {
        // All that a job has written before it was found is read before the first tick.
        self.watch.replayed(now_unix);
        // The time has ended before a program of the user could be notified.
        let is_over = self.options.is_of_program() && self.state.is_time_up;
        match &self.phase {
            Phase::Pausing(_) | Phase::Waiting(_) if stops > 0 || is_over => self.stopped(),
            Phase::Waiting(until_unix) if now_unix >= *until_unix => {
                self.ask_then(AfterProbe::Start);
            }
            Phase::Pausing(until_unix) if now_unix >= *until_unix => self.launch(),
            Phase::Running => self.watch_job(now_unix, stops),
            _ => {}
        }
    }

    fn ended(&mut self, now_unix: f64, how: &str, succeeded: bool) {
        let how = match &self.running.killed {
            None if self.state.is_changed => {
                "processes of an earlier start, which end, still held what they had".to_owned()
            }
            None => how.to_owned(),
            Some(why) => format!("{why}; {how}"),
        };
        if self.options.is_of_program() {
            return self.program_ended(now_unix, how, succeeded);
        }
        let lost_lines = self.lost_lines();
        let state = &mut self.state;
        state.launcher = None;
        let last = state.last_beat.as_ref().map(|(beat, _)| beat);
        let is_done = last.is_some_and(|beat| beat.phase == DONE);
        // The result is in the segments that are left: the next start reports it once more.
        let is_cut = lost_lines > 0 && !is_done;
        let how = if is_cut {
            format!("the last {lost_lines} lines of the report did not come; {how}")
        } else {
            how
        };
        // This code counts, and not the launcher's.
        let exit = last.and_then(|beat| beat.exit).filter(|_| !is_cut).map(Exit::from_code);
        let stop_asked = self.running.terminated_unix.is_some();
        match exit {
            Some(Exit::BadInput) if state.is_refused && !state.is_reported => self.lost(),
            Some(Exit::BadInput) if !state.is_changed && !state.is_reported => {
                self.refused(now_unix, stop_asked);
            }
            Some(exit @ (Exit::Passed | Exit::ResidualFailed)) => self.done(exit, lost_lines),
            Some(exit @ Exit::BadInput) if state.is_reported => self.done(exit, lost_lines),
            Some(Exit::Interrupted) if state.is_time_up => self.ask_then(AfterProbe::Stop),
            Some(Exit::Interrupted | Exit::BadInput) | None if stop_asked => {
                self.ask_then(AfterProbe::Stop);
            }
            _ => {
                self.note_failure(now_unix, how);
                self.restart();
            }
        }
    }

    /// The job is done and reported; no data of the run is needed any more.
    fn done(&mut self, exit: Exit, lost_lines: u64) {
        if lost_lines > 0 {
            let text = format!(
                "warning: the last {lost_lines} lines of the report did not come, and the job is \
                 done; what --json of the run has is whole"
            );
            self.notify("cut", text);
        }
        self.clean(exit);
    }

    fn lost(&mut self) {
        if self.options.starts_over() {
            self.state.has_checkpoint = false;
            let text = "more is lost than can be rebuilt: starting over from the seed";
            self.notify("over", text);
            return self.prepare();
        }
        let lost = self.lost_since_computing();
        let why = format!(
            "more is lost than the checkpoint can rebuild, see the message above{lost}; \
             --start-over would begin from the seed"
        );
        self.give_up(&why, Exit::BadInput);
    }

    /// Asks the nodes before the next start, unless the launcher has refused to start the job and
    /// has never started it: it would refuse it again.
    fn restart(&mut self) {
        let refusal = self.running.refusal;
        match refusal.filter(|_| self.past().iter().all(|failure| !failure.lived)) {
            Some(why) => self.give_up(why, Exit::BadInput),
            None => self.prepare(),
        }
    }

    fn note_failure(&mut self, now_unix: f64, how: String) {
        let place = self.options.place();
        let state = &mut self.state;
        let beat = self.watch.last();
        let last = state.last_beat.take();
        let phase = match &last {
            // The job has reported so before its last heartbeat, which reports that it is done.
            _ if state.is_changed => CHANGED,
            Some((beat, _)) if beat.unfit.is_empty() => &beat.phase,
            _ => "start",
        };
        let failure = Failure {
            start: state.start,
            how,
            phase: phase.to_owned(),
            column: beat.map_or(0, |beat| beat.column),
            lived: beat.is_some(),
            last_sign_unix: last.map_or(state.launched_unix, |(_, unix)| unix),
            detected_unix: now_unix,
            ..Failure::default()
        };
        let text = format!(
            "start {} failed in phase {} at {place} {}: {}",
            failure.start, failure.phase, failure.column, failure.how
        );
        state.failures.push(failure);
        self.notify("failure", text);
        self.act(Action::Save);
    }
}
