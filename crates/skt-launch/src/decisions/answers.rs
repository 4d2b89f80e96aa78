//! What the nodes' answers before a start show: whether a rank that SIGKILL has ended was a victim
//! of the kernel's OOM killer, by the counts before a start and after its end, and segments of a
//! run that its nodes have no more, although an earlier start had a checkpoint.

use super::Decisions;
use crate::probe::Answer;
use crate::survey::Survey;
use skt_store::store::CLEANERS;

impl Decisions {
    /// Reports the OOM kills on the nodes since they were asked before the last start; if a rank
    /// was killed and there were none, reports that.
    pub(super) fn report_oom_kills(&mut self, survey: &Survey) {
        let killed = std::mem::take(&mut self.running.sigkilled);
        let (mut found, mut calm) = (Vec::new(), Vec::new());
        for (name, answer) in &survey.answers {
            let before = self.oom_kills.insert(name.clone(), answer.oom_kills);
            match before.and_then(|before| answer.oom_kills.since(&before, name)) {
                Some((0, text)) => calm.push(([name.as_str(), &answer.host], text)),
                Some((_, text)) => found.push(text),
                None => {}
            }
        }
        if let Some(node) = killed.filter(|_| found.is_empty()) {
            // The launcher may know the node by its name for itself.
            let on_node = calm.into_iter().find(|(names, _)| names.contains(&node.as_str()));
            found.extend(on_node.map(|(_, text)| {
                format!("{text}: the kernel has not sent the SIGKILL for want of memory")
            }));
        }
        for text in found {
            if let Some(failure) = self.state.failures.last_mut() {
                failure.how = format!("{}; {text}", failure.how);
            }
            self.notify("oom", text);
        }
    }

    /// Notes a line that reports a rank ended by SIGKILL.
    pub(super) fn note_sigkill(&mut self, line: &str) {
        if let Some(node) = sigkilled(line) {
            self.note_sigkill_on(node);
        }
    }

    /// Notes that SIGKILL has ended a rank on `node`, unless the supervisor has killed the job.
    pub(super) fn note_sigkill_on(&mut self, node: &str) {
        if self.running.killed.is_none() {
            self.running.sigkilled.get_or_insert_with(|| node.to_owned());
        }
    }
}

/// The node of a rank that SIGKILL has ended. Open MPI: `mpirun noticed that process rank 3 with
/// PID 0 on node n4 exited on signal 9 (Killed).`; Slurm: `srun: error: n3: task 1: Killed`. Hydra
/// names the node and the signal in different lines.
fn sigkilled(line: &str) -> Option<&str> {
    let of_open_mpi = || {
        let (before, _) = line.split_once(" exited on signal 9")?;
        Some(before.rsplit_once(" on node ")?.1.trim())
    };
    let of_slurm = || {
        let (node, rest) = line.split_once("srun: error: ")?.1.split_once(": task")?;
        rest.trim_end().ends_with(": Killed").then_some(node)
    };
    of_open_mpi().or_else(of_slurm)
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_of_a_rank_that_was_killed_is_found() {
        let open_mpi = "mpirun noticed that process rank 3 with PID 0 on node n4 exited on signal 9 \
                        (Killed).\n";
        assert_eq!(sigkilled(open_mpi), Some("n4"));
        assert_eq!(sigkilled(&open_mpi.replace("signal 9 (", "signal 11 (")), None);
        assert_eq!(sigkilled("srun: error: n3: task 1: Killed\n"), Some("n3"));
        assert_eq!(sigkilled("srun: error: n3: task 1: Aborted\n"), None);
        assert_eq!(sigkilled("plain\n"), None);
    }
}
