//! How a run ends: done, declined, stopped or given up; and what the end of a user's program means.

use super::{Action, AfterProbe, Decisions, Phase};
use crate::SupervisorError;
use crate::hosts::Health;
use crate::program::{JobEnd, ProgramVerdict};
use crate::state::{Failure, Status};
use crate::survey::Survey;
use skt_checkpoint::heartbeat::{CHANGED, DONE};
use skt_host::exit::Exit;
use skt_host::host_names::short_names;

/// This number of failures at one column, while all nodes are well, is no accident.
const SAME_FAILURES_MAX: usize = 3;
const BACKOFF_MAX_SECONDS: f64 = 60.0;

/// Why to give up after the failures `past`, oldest first; `None` if the job starts again.
/// `resolution_columns` is the distance at which two columns count as the same; a `place` is a
/// column, or a checkpoint of a program.
pub(super) fn why_give_up(
    past: &[Failure],
    place: &str,
    resolution_columns: usize,
    restarts_max: usize,
) -> Option<String> {
    let unexplained = past.iter().rev().take_while(|failure| !failure.node_lost);
    // That data of an earlier start was still in use resolves without action.
    let unexplained = unexplained.filter(|failure| failure.phase != CHANGED);
    let newest: Vec<&Failure> = unexplained.take(SAME_FAILURES_MAX).collect();
    if newest.len() == SAME_FAILURES_MAX {
        let column = newest[0].column;
        let is_near = |failure: &&Failure| {
            failure.lived && failure.column.abs_diff(column) <= resolution_columns
        };
        if newest.iter().all(|failure| !failure.lived) {
            return Some(format!(
                "the job gave no sign of life in {SAME_FAILURES_MAX} starts, with all nodes well"
            ));
        } else if newest.iter().all(is_near) {
            return Some(format!(
                "the job failed {SAME_FAILURES_MAX} times at {place} {column}, with all nodes well"
            ));
        }
    }
    (past.len() > restarts_max)
        .then(|| format!("the job failed {} times (--max-restarts {restarts_max})", past.len()))
}

/// The pause before the next start, in seconds: none when a lost node explains the failure, else 1,
/// 2, 4, ... up to 60.
pub(super) fn backoff_seconds(past: &[Failure]) -> f64 {
    match past.iter().rev().take_while(|failure| !failure.node_lost).count() {
        0 => 0.0,
        count => 2f64.powi(count.min(30) as i32 - 1).min(BACKOFF_MAX_SECONDS),
    }
}

impl Decisions {
    pub(super) fn program_ended(&mut self, now_unix: f64, how: String, launcher_succeeded: bool) {
        let state = &mut self.state;
        state.launcher = None;
        let verdict = self.running.ends.verdict(&JobEnd {
            ranks: self.options.ranks,
            launcher_succeeded,
            is_reported: state.is_reported && !state.has_several_runs,
            is_changed: state.is_changed,
            was_killed: self.running.killed.is_some() && self.running.ending_unix.is_none(),
        });
        let is_stopped = self.running.terminated_unix.is_some() || state.is_time_up;
        // A program may end with 0 although it has more to compute, as one does that is asked to
        // stop: its data stays unless it has reported that its results are complete.
        let is_open = state.keeps.is_some() && !state.is_reported;
        match verdict {
            // Where nothing is left to continue from, a request to stop changes nothing.
            ProgramVerdict::Reported(code, words) => {
                let unknown = if is_stopped { Exit::Interrupted } else { Exit::BadInput };
                self.note_failure(now_unix, format!("{words}; {how}"));
                self.state.reason = Some(format!(
                    "{words}, after the program had reported that all is reported (skt_finalize(1)): \
                     what it did after that may be incomplete, and nothing is left to continue from"
                ));
                self.clean(code.map_or(unknown, Exit::OfProgram));
            }
            _ if is_stopped && (verdict != ProgramVerdict::Done || is_open) => {
                self.ask_then(AfterProbe::Stop)
            }
            ProgramVerdict::Done if is_open => {
                let text = format!(
                    "the data of run {} stays on its nodes, as the program has not reported that all \
                     is reported (skt_finalize(1)): the same command continues from it",
                    self.state.run_id
                );
                self.notify("unclean", text);
                self.finish(Exit::Passed);
            }
            ProgramVerdict::Done => self.clean(Exit::Passed),
            ProgramVerdict::Lost(words) => {
                let how = words.map_or(how.clone(), |words| format!("{words}; {how}"));
                self.note_failure(now_unix, how);
                self.restart();
            }
            ProgramVerdict::Refused(code, words) => {
                self.note_failure(now_unix, format!("{words}; {how}"));
                // Ranks whose messages fail may end with any code: the nodes are asked first.
                self.pending_refusal = Some((code, words));
                self.ask_then(AfterProbe::Start);
            }
        }
    }

    /// Ends the run with the program's own code if it has refused and no lost node explains that,
    /// or if it has failed too often. Returns whether the run has ended.
    pub(super) fn finish_if_refused(&mut self) -> bool {
        let Some((code, words)) = self.pending_refusal.take() else { return false };
        let nodes = self.state.pool.placed().active;
        let are_well = nodes.iter().all(|host| self.health_of(&host.name) == Health::Well);
        if !are_well || self.doubts.explains(self.state.start) {
            return self.has_failed_too_often();
        }
        let why = format!("{words}, and all nodes are well; data of earlier starts is kept");
        self.give_up(&why, Exit::OfProgram(code));
        true
    }

    /// The job is done: its segments are removed from all nodes.
    pub(super) fn clean(&mut self, exit: Exit) {
        // The last start knows its own tests only.
        let exit = match exit {
            Exit::Passed if self.state.residuals_failed > 0 => Exit::ResidualFailed,
            exit => exit,
        };
        if let Some((beat, _)) = &self.state.last_beat
            && beat.phase != DONE
            && !self.options.is_of_program()
        {
            let text = "the job was lost after its report was whole; its segments are removed now";
            self.notify("reported", text);
        }
        self.ask_then(AfterProbe::Finish(exit));
    }

    pub(super) fn cleaned(&mut self, exit: Exit, survey: &Survey) {
        for (name, answer) in &survey.answers {
            if let Some(why) = &answer.images_stay {
                self.notify("unclean", format!("{name}: images of the run stay there: {why}"));
            }
        }
        let everyone = self.state.pool.everyone().map(|host| host.name.as_str());
        let silent: Vec<&str> =
            everyone.filter(|name| !survey.answers.contains_key(*name)).collect();
        let mut answers = survey.answers.values();
        if !silent.is_empty() && (!self.options.is_of_program() || self.state.keeps.is_some()) {
            let text = format!(
                "{}: not reached; what the run has left there stays (`skt-hpl store clean` \
                 removes it)",
                short_names(&silent)
            );
            self.notify("unclean", text);
        } else if silent.is_empty()
            && answers.clone().any(|answer| answer.store.run_bytes > 0)
            && answers.all(|answer| answer.immortal == 0 && answer.no_store.is_none())
        {
            // No node has a segment left that the marks would be needed for.
            return self.ask_then(AfterProbe::Forget(exit));
        }
        self.finish(exit);
    }

    pub(super) fn finish(&mut self, exit: Exit) {
        self.state.status = Status::Finished;
        self.state.exit = Some(exit.code());
        let failures = self.state.failures.len();
        if self.state.reason.is_none() {
            self.notify("finished", format!("the job is done, after {failures} failure(s)"));
        }
        self.act(Action::Save);
        let print_error = self.printed.print_error.take();
        self.tidies = print_error.is_none();
        self.end(print_error.map_or(Ok(exit), |why| Err(SupervisorError(why))));
    }

    /// The job ended by its own decision, and has printed why. Spares replace nodes that it has
    /// declined; else a person must resolve the reason. Nothing is removed: earlier starts, of this
    /// supervisor or another, may have left checkpoints.
    pub(super) fn refused(&mut self, now_unix: f64, stop_asked: bool) {
        let declined = self.declined();
        let names = short_names(declined.keys());
        if !stop_asked && self.replaces_declined() {
            self.note_failure(now_unix, format!("the job declines {names}"));
            return self.restart();
        }
        let what = match declined.len() {
            0 => "with these settings".to_owned(),
            _ => format!("on {names}, whose place no spare node can take"),
        };
        let why = format!(
            "the job cannot run {what}, see the message above; data of earlier starts is kept"
        );
        self.record_giving_up(&why, Exit::BadInput);
        // Where nothing was computed yet, the next command may give other options.
        if self.state.start == 1 && !self.state.has_checkpoint {
            self.state.status = Status::Finished;
            self.tidies = true;
        }
        self.act(Action::Save);
        self.end(Ok(Exit::BadInput));
    }

    pub(super) fn stopped(&mut self) {
        self.state.status = Status::Stopped;
        self.state.exit = Some(Exit::Interrupted.code());
        self.notify("stopped", "stopped; start the same command again to resume");
        self.act(Action::Save);
        self.end(Ok(Exit::Interrupted));
    }

    pub(super) fn give_up(&mut self, why: &str, exit: Exit) {
        self.record_giving_up(why, exit);
        self.act(Action::Save);
        self.end(Ok(exit));
    }

    fn record_giving_up(&mut self, why: &str, exit: Exit) {
        self.state.status = Status::GaveUp;
        self.state.exit = Some(exit.code());
        self.state.reason = Some(why.to_owned());
        self.notify("gave-up", format!("giving up: {why}"));
        if exit == Exit::Interrupted {
            let hint = match self.state.start {
                0 => "nothing was started; start the same command again when this is put right",
                _ => "data that survived is kept; start the same command again to resume",
            };
            self.notify("hint", hint);
        }
    }

    pub(super) fn end(&mut self, end: Result<Exit, SupervisorError>) {
        self.phase = Phase::Over;
        if let Ok(exit) = &end {
            self.act(Action::Account);
            // How a program failed once it had reported all is the last line.
            if let (Status::Finished, Some(why)) = (self.state.status, &self.state.reason)
                && self.options.is_of_program()
            {
                self.notify("finished", format!("exit code {}: {why}", exit.code()));
            }
        }
        self.act(Action::End(end));
    }
}
