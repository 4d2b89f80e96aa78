//! Whether a rank that SIGKILL has ended was a victim of the kernel's OOM killer: the nodes' counts
//! before a start and after its end show it.

use super::Decisions;
use crate::survey::Survey;

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
