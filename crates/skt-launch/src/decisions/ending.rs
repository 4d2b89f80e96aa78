//! How a run ends: done, declined, stopped or given up.

use super::{Action, AfterProbe, Decisions, Phase};
use crate::SupervisorError;
use crate::hosts::short_names;
use crate::state::Status;
use crate::survey::Survey;
use skt_checkpoint::heartbeat::DONE;
use skt_terms::exit::Exit;

impl Decisions {
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
                let text = format!("{name}: images of the run stay there: {why}");
                self.notify("unclean", text);
            }
        }
        let everyone = self.state.pool.everyone().map(|host| host.name.as_str());
        let silent: Vec<&str> =
            everyone.filter(|name| !survey.answers.contains_key(*name)).collect();
        if !silent.is_empty() && self.options.is_of_program() {
            if self.state.keeps.is_some() {
                let text = format!(
                    "{}: not reached; segments and images of the run that are there stay \
                     (`skt-hpl store clean` removes them)",
                    short_names(silent)
                );
                self.notify("unclean", text);
            }
        } else if !silent.is_empty() {
            let text = format!(
                "{}: not reached; segments left there are removed by the next start of this run \
                 that uses the node, for which the other nodes keep a mark (`skt-hpl store list`)",
                short_names(silent)
            );
            self.notify("unclean", text);
        } else if survey.answers.values().any(|answer| answer.run_bytes > 0)
            && survey.answers.values().all(|answer| answer.is_clean())
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
        if let Some(why) = self.printed.print_error.take() {
            self.act(Action::Save);
            return self.end(Err(SupervisorError(why)));
        }
        self.save_and_tidy();
        self.end(Ok(exit));
    }

    /// Ends the run because the job ended for a reason that a person must resolve. Nothing is
    /// removed: earlier starts, of this supervisor or another, may have left checkpoints.
    pub(super) fn finish_refused(&mut self) {
        let declined = self.declined();
        let names = short_names(declined.keys().map(String::as_str));
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
            self.save_and_tidy();
        }
        self.end(Ok(Exit::BadInput));
    }

    /// Saves the state of a finished run; once it is saved, removes the files that only a running
    /// run needs, as a supervisor that finds the state of a running run reads them.
    fn save_and_tidy(&mut self) {
        self.tidies = true;
        self.act(Action::Save);
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
        self.act(Action::Save);
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
