//! The decisions about a job whose ranks run a program of the user: what its heartbeats and its
//! end mean.

use super::{AfterProbe, Decisions};
use crate::hosts::Health;
use crate::program::{JobEnd, ProgramVerdict};
use skt_checkpoint::heartbeat::{
    CHANGED, CHECKPOINT, COMPUTE, DataLocation, Heartbeat, OPEN, REPORTED, TIME_UP,
};
use skt_terms::exit::Exit;

impl Decisions {
    /// Records what a heartbeat of the program contains, other than that it is alive. A program may
    /// have several runs, one after the other.
    pub(super) fn note_sign(&mut self, beat: &Heartbeat) {
        let state = &mut self.state;
        if let Some(keeps) = &beat.keeps {
            let is_other = |before: &DataLocation| before.run_id != keeps.run_id;
            state.has_several_runs |= state.keeps.as_ref().is_some_and(is_other);
            state.run_id.clone_from(&keeps.run_id);
            state.keeps = Some(keeps.clone());
        }
        match beat.phase.as_str() {
            OPEN => {
                state.has_several_runs |= state.is_reported;
                state.is_reported = false;
            }
            COMPUTE | CHECKPOINT => state.has_checkpoint |= beat.column > 0,
            CHANGED => state.is_changed = true,
            REPORTED => (state.is_reported, state.has_checkpoint) = (true, false),
            TIME_UP => state.is_time_up = true,
            _ => {}
        }
    }

    /// Decides what comes next after the end of the program's job.
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
                let exit = code.map_or(unknown, Exit::OfProgram);
                self.note_failure(now_unix, format!("{words}; {how}"));
                self.state.reason = Some(format!(
                    "{words}, after the program had reported that all is reported (skt_finalize(1)): \
                     what it did after that may be incomplete, and nothing is left to continue from"
                ));
                self.clean(exit);
            }
            _ if is_stopped && (verdict != ProgramVerdict::Done || is_open) => {
                self.ask_then(AfterProbe::Stop)
            }
            ProgramVerdict::Done if is_open => {
                let text = format!(
                    "the data of run {} stays on its nodes, as the program has not reported that all \
                     is reported (skt_finalize(1)): the same command continues from it, `skt-hpl \
                     store clean --run {0}` removes it",
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
        let is_well = |name: &str| self.health_of(name) == Health::Well;
        let nodes = self.state.pool.placed().active;
        if self.doubts.explains(self.state.start) || !nodes.iter().all(|it| is_well(&it.name)) {
            return self.has_failed_too_often();
        }
        let why = format!("{words}, and all nodes are well; data of earlier starts is kept");
        self.give_up(&why, Exit::OfProgram(code));
        true
    }
}
