//! Segments of a run that its nodes have no more, although an earlier start had a checkpoint.

use super::Decisions;
use crate::probe::Answer;
use crate::survey::Survey;
use skt_store::store::CLEANERS;

impl Decisions {
    /// Warns before a start if an earlier start had a checkpoint, and no node that should have
    /// segments of the run has any: nothing of the run has removed them. Notes the nodes that have
    /// none as those without data.
    pub(super) fn warn_of_lost_segments(&mut self, survey: &Survey) {
        let state = &self.state;
        // The nodes of a program are asked for its data once it has reported where that is.
        let is_unknown = self.options.is_of_program() && state.keeps.is_none();
        // A start that has refused for that reason has reported it.
        if !state.has_checkpoint || state.is_refused || is_unknown {
            return;
        }
        let holders = state.pool.used(self.options.ranks).into_iter().map(|host| host.name);
        let holders = holders.filter(|name| !state.hollow.contains(name));
        let asked: Vec<_> =
            holders.filter_map(|name| Some((survey.answers.get(&name)?, name))).collect();
        let has_none = |answer: &Answer| {
            answer.run_bytes == 0 && answer.no_store.is_none() && answer.immortal == 0
        };
        for (_, name) in asked.iter().filter(|(answer, _)| has_none(answer)) {
            self.note_hollow(name);
        }
        let state = &self.state;
        if asked.is_empty() || !asked.iter().all(|(answer, _)| has_none(answer)) {
            return;
        }
        let of_last_beat = state.last_beat.as_ref().map(|(beat, _)| beat.column);
        let column = of_last_beat.or_else(|| state.failures.last().map(|failure| failure.column));
        let place = self.options.place();
        let reached = column.map_or(String::new(), |column| format!(" ({place} {column})"));
        let names: Vec<&str> = asked.iter().map(|(_, name)| name.as_str()).collect();
        let names = match names[..] {
            [first, second, third, _, ..] => format!("{first}, {second}, {third} and others"),
            _ => names.join(", "),
        };
        let text = format!(
            "warning: an earlier start of this run had a checkpoint{reached}, and its segments are \
             gone from {names}: {CLEANERS}"
        );
        self.notify("gone", text);
    }
}
