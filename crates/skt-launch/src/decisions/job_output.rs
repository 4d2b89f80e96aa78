//! The heartbeats and the output of the job, and the nodes' answers before a start: what the
//! supervisor records of them.

use super::{Action, Decisions};
use crate::probe::Answer;
use crate::survey::Survey;
use skt_checkpoint::heartbeat::{
    CHANGED, CHECKPOINT, COMPUTE, FACTOR, Heartbeat, OPEN, REFUSED, REPORTED, TIME_UP, WAIT,
};
use skt_host::exit::Exit;
use skt_host::host_names::short_names;
use skt_store::store::CLEANERS;

/// The step of the protocol after which a checkpoint exists.
const COMMIT: &str = "commit";
/// Steps after which no checkpoint exists: a test is done and reported, or begins.
const NO_CHECKPOINT: [&str; 2] = ["clear", "generate"];

impl Decisions {
    /// Prints the job's report as it comes, one start after the other. The report of the last start
    /// has all tests, also those that earlier starts have done.
    pub(super) fn report(&mut self, text: &[u8]) {
        let lines = text.split_inclusive(|byte| *byte == b'\n');
        if self.watch.last().is_none() && !self.options.is_of_program() {
            // The launcher's processes on the nodes write to standard output, too.
            lines.clone().for_each(|line| self.suspect(&String::from_utf8_lossy(line)));
        }
        self.running.report_lines += text.iter().filter(|byte| **byte == b'\n').count() as u64;
        if !self.options.is_of_program() {
            let failed = lines.filter(|line| is_failed_residual(&String::from_utf8_lossy(line)));
            self.state.residuals_failed += failed.count();
        }
        if self.printed.print_error.is_some() {
            return;
        }
        let start = self.state.start;
        let before = self.printed.report_of.replace(start).filter(|before| *before != start);
        // The output of the user's program is left as it is.
        let before = before.filter(|_| !self.options.is_of_program());
        let border = before.map_or(String::new(), |before| {
            format!("# start {before} ended here; what follows is the report of start {start}\n")
        });
        self.act(Action::Print([border.as_bytes(), text].concat()));
    }

    /// Notes the node in use that `line` reports lost, or that the launcher has not reached a node
    /// that it does not name.
    pub(super) fn suspect(&mut self, line: &str) {
        self.running.refusal = self.running.refusal.or_else(|| refusal(line));
        if UNREACHED.iter().any(|words| line.contains(words)) {
            self.running.is_alarmed = true;
            self.running.is_unreached |= self.watch.last().is_none();
        }
        let named = self.running.reader.read(line).or_else(|| {
            let node = self.links.node_at(lost_address(line)?)?.to_owned();
            Some(Named { node, is_cut_off: false })
        });
        let Some(Named { node, is_cut_off }) = named else { return };
        if self.state.pool.active.iter().any(|host| host.name == node) {
            self.running.is_alarmed |= !self.suspects.contains(&node);
            self.doubts.note(&node, self.state.start, is_cut_off);
            self.suspects.push(node);
        }
    }

    /// Number of lines of the report that the job has written and that did not arrive: the launcher
    /// transports them separately from heartbeats, and may die in between. 0 if no line arrived at
    /// all, because a launcher may transport none.
    pub(super) fn lost_lines(&self) -> u64 {
        let (came, beat) = (self.running.report_lines, self.state.last_beat.as_ref());
        let written = beat.and_then(|(beat, _)| beat.report_lines).filter(|_| came > 0);
        written.unwrap_or(0).saturating_sub(came)
    }

    pub(super) fn beat(&mut self, now_unix: f64, mut beat: Heartbeat) {
        self.watch.beat(&beat, now_unix);
        if let Some(text) = self.watch.longer_than_asked() {
            self.notify("patience", text);
        }
        self.running.is_unreached = false;
        if beat.phase == WAIT {
            // A wait may be of any rank; what the other ranks do has not changed.
            self.state.last_beat.iter_mut().for_each(|(_, unix)| *unix = now_unix);
            return;
        }
        self.note_corruption(&mut beat);
        let state = &mut self.state;
        // A start that declines computes nothing.
        let has_result = beat.exit.is_some_and(|exit| exit != Exit::BadInput.code());
        let advances = [FACTOR, COMPUTE].contains(&beat.phase.as_str());
        let computing = advances || has_result;
        if advances {
            // What was lost is rebuilt now; a start that ends early may have a result before that.
            state.hollow.clear();
            self.doubts.forget_before(state.start, &state.pool.placed().active);
        }
        let mut back = None;
        if let Some(failure) = state.failures.last_mut() {
            if state.last_beat.is_none() {
                failure.alive_unix.get_or_insert(now_unix);
            }
            if computing && failure.relaunched_unix.is_some() && failure.computing_unix.is_none() {
                failure.computing_unix = Some(now_unix);
                failure.resumed_column = Some(beat.column);
                let seconds = now_unix - failure.detected_unix;
                let place = self.options.place();
                back = Some(format!(
                    "computing again at {place} {}, {seconds:.2} s after detection",
                    beat.column
                ));
            }
        }
        self.note_phase(&beat);
        self.state.last_beat = Some((beat, now_unix));
        if let Some(text) = back {
            self.notify("computing", text);
        }
    }

    /// Records what the phase contains, other than that the job is alive. A program of the user may
    /// have several runs, one after the other.
    fn note_phase(&mut self, beat: &Heartbeat) {
        let (state, is_of_program) = (&mut self.state, self.options.program_of_user.is_some());
        let after_commit = state.last_beat.as_ref().is_some_and(|(last, _)| last.phase == COMMIT);
        if let Some(keeps) = beat.keeps.as_ref().filter(|_| is_of_program) {
            state.has_several_runs |=
                state.keeps.as_ref().is_some_and(|before| before.run_id != keeps.run_id);
            state.run_id.clone_from(&keeps.run_id);
            state.keeps = Some(keeps.clone());
        }
        match &*beat.phase {
            REFUSED if !is_of_program => state.is_refused = true,
            CHANGED => state.is_changed = true,
            TIME_UP => state.is_time_up = true,
            REPORTED => {
                state.is_reported = true;
                state.has_checkpoint &= !is_of_program;
            }
            OPEN if is_of_program => {
                state.has_several_runs |= std::mem::take(&mut state.is_reported);
            }
            COMPUTE | CHECKPOINT if is_of_program => state.has_checkpoint |= beat.column > 0,
            _ if is_of_program => {}
            phase if NO_CHECKPOINT.contains(&phase) => state.has_checkpoint = false,
            phase => state.has_checkpoint |= after_commit && phase != COMMIT,
        }
    }

    pub(super) fn report_oom_kills(&mut self, survey: &Survey) {
        for (name, answer) in &survey.answers {
            let before = self.oom_kills.insert(name.clone(), answer.oom_kills);
            let found = before.and_then(|before| answer.oom_kills.since(&before, name));
            let Some((_, text)) = found.filter(|(count, _)| *count > 0) else { continue };
            if let Some(failure) = self.state.failures.last_mut() {
                failure.how = format!("{}; {text}", failure.how);
            }
            self.notify("oom", text);
        }
    }

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
            answer.store.run_bytes == 0 && answer.no_store.is_none() && answer.immortal == 0
        };
        for (_, name) in asked.iter().filter(|(answer, _)| has_none(answer)) {
            self.note_hollow(name);
        }
        if asked.is_empty() || !asked.iter().all(|(answer, _)| has_none(answer)) {
            return;
        }
        let state = &self.state;
        let of_last_beat = state.last_beat.as_ref().map(|(beat, _)| beat.column);
        let column = of_last_beat.or_else(|| state.failures.last().map(|failure| failure.column));
        let place = self.options.place();
        let reached = column.map_or(String::new(), |column| format!(" ({place} {column})"));
        let text = format!(
            "warning: an earlier start of this run had a checkpoint{reached}, and its segments are \
             gone from {}: {CLEANERS}",
            short_names(asked.iter().map(|(_, name)| name))
        );
        self.notify("gone", text);
    }
}

/// Each text of a launcher, with what helps.
const REFUSALS: [(&str, &str); 5] = [
    // Open MPI 4 and, as `prterun`, Open MPI 5.
    ("has detected an attempt to run as root", AS_ROOT),
    ("was unable to find the specified executable file", NO_PROGRAM),
    ("was unable to launch the specified application as it could not", NO_PROGRAM),
    // Hydra.
    ("execvp error on file", NO_PROGRAM),
    // Slurm.
    ("error: execve():", NO_PROGRAM),
];

const AS_ROOT: &str =
    "the launcher refuses to run as root: give --launcher-arg=--allow-run-as-root";
const NO_PROGRAM: &str = "the launcher cannot start the program that its message above names: \
    nodes need skt-hpl at the same path as here";

/// Why the launcher that wrote `line` will not start the job, and what helps; `None` for other
/// lines.
fn refusal(line: &str) -> Option<&'static str> {
    REFUSALS.iter().find(|(text, _)| line.contains(text)).map(|(_, why)| *why)
}

/// What ORTE and PRRTE of Open MPI 4 and 5 write when they have not reached a node.
const UNREACHED: [&str; 5] = [
    "unable to reliably start one or more daemons",
    "has unexpectedly failed after launch and before",
    "lost communication with a remote daemon",
    "failed to TCP connect to a peer",
    "daemon was unable to complete a TCP connection",
];

#[derive(Debug, PartialEq, Eq)]
struct Named {
    node: String,
    /// Whether the launcher does not reach it; else a rank has lost a connection to it.
    is_cut_off: bool,
}

#[derive(Debug, Default)]
pub(super) struct LineReader {
    /// The near end of a connection of the launcher's, whose far end comes in the next line.
    near: Option<String>,
}

impl LineReader {
    /// The node that a line reports lost. Open MPI has pairs of lines, too: `Local host:    n2` and
    /// `Remote host:   head` by its daemon on n2, or `my node:   head` and `target node:  n2` by
    /// that on the head.
    fn read(&mut self, line: &str) -> Option<Named> {
        let behind = |words: &str, end: char| {
            let (_, rest) = line.split_once(words)?;
            let name = rest.trim_start().split(end).next()?.trim();
            (!name.is_empty()).then(|| name.to_owned())
        };
        let near = self.near.take();
        self.near = behind(" Local host:", '\n').or_else(|| behind(" my node:", '\n'));
        let of_pair = if line.contains(" Remote host:") {
            near
        } else {
            near.and_then(|_| behind(" target node:", '\n'))
        };
        let named = |(with, before, end, is_cut_off): (&str, &str, char, bool)| {
            let node = behind(before, end).filter(|_| line.contains(with))?;
            let is_one = !node.contains(['[', ',', ' ']);
            is_one.then_some(Named { node, is_cut_off })
        };
        let of_pair = of_pair.map(|node| Named { node, is_cut_off: true });
        of_pair.or_else(|| NAMING.into_iter().find_map(named))
    }
}

/// Lines that name a node: the words that such a line has, those before the name, what ends it, and
/// whether the launcher does not reach the node. Of Hydra's two nodes it is the one that reports.
const NAMING: [(&str, &str, char, bool); 5] = [
    // Open MPI's launcher: `Remote daemon: [[47992,0],2] on node n2`.
    ("Remote daemon", " on node ", '\n', true),
    // Hydra: `unable to connect from "n2" to "head" (No route to host)`.
    ("", "unable to connect from \"", '"', true),
    // Slurm: `Task launch for StepId=7.0 failed on node n2: Communication ...`.
    ("Task launch for", " failed on node ", ':', true),
    ("", "error: Node failure on ", '\n', true),
    // A rank of Open MPI.
    ("", "Peer host:", '\n', false),
];

/// The address that a line of Open MPI's ranks reports unreachable: `connect() to 10.77.0.13:1024
/// failed`.
fn lost_address(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("connect() to ")?;
    let (address, _) = rest.split_once(" failed")?;
    Some(address.rsplit_once(':').map_or(address, |(ip, _)| ip))
}

fn is_failed_residual(line: &str) -> bool {
    line.starts_with("||Ax-b||") && line.trim_end().ends_with(" FAILED")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_residual_is_detected() {
        let line = "||Ax-b||_oo/(eps*(||A||_oo*||x||_oo+||b||_oo)*N)=   9.7e+04 ...... ";
        assert!(is_failed_residual(&format!("{line}FAILED\n")));
        assert!(!is_failed_residual(&format!("{line}PASSED\n")));
        assert!(!is_failed_residual("              0 tests completed and FAILED\n"));
    }

    /// The node that is named last in some lines, and whether the launcher does not reach it.
    fn named(text: &str) -> Option<(String, bool)> {
        let mut reader = LineReader::default();
        let named: Vec<Named> =
            text.split_inclusive('\n').filter_map(|line| reader.read(line)).collect();
        named.last().map(|named| (named.node.clone(), named.is_cut_off))
    }

    #[test]
    fn lost_nodes_are_named_by_open_mpi() {
        let n2 = |is_cut_off| Some(("n2".to_owned(), is_cut_off));
        assert_eq!(named("  Remote daemon: [[47992,0],2] on node n2\n"), n2(true));
        assert_eq!(named("  Peer host:  n2\n"), n2(false));
        assert_eq!(named("  HNP daemon   : [[47992,0],0] on node head\n"), None);
        assert_eq!(named("computing on node n2"), None);
        assert_eq!(named("  Remote daemon: [prterun-head-4242@0,2] on node n2\n"), n2(true));
        assert_eq!(named("  Local host:    n2\n  Remote host:   head\n"), n2(true));
        assert_eq!(named("  my node:   head\n  target node:  n2\n"), n2(true));
        assert_eq!(named("  Local host:   n1\n  Local device: mlx5_0\n  Remote host: n2\n"), None);
        assert_eq!(named("  Local host: n1\n  PID:        17\n  Peer host:  n2\n"), n2(false));
        assert_eq!(
            lost_address("  Message: connect() to 10.77.0.13:1024 failed\n"),
            Some("10.77.0.13")
        );
    }

    #[test]
    fn lost_nodes_are_named_by_hydra_and_by_slurm() {
        let cut_off = |name: &str| Some((name.to_owned(), true));
        let hydra = "[proxy:0:1@n2] HYDU_sock_connect (utils/sock/sock.c:145): unable to connect \
                     from \"n2\" to \"head\" (No route to host)\n";
        assert_eq!(named(hydra), cut_off("n2"));
        assert_eq!(named("srun: error: Node failure on n3\n"), cut_off("n3"));
        assert_eq!(named("srun: error: Node failure on n[3-4]\n"), None);
        let launch = "srun: error: Task launch for StepId=7.0 failed on node n3: Communication \
                      connection failure\n";
        assert_eq!(named(launch), cut_off("n3"));
        assert_eq!(named("srun: error: n3: task 1: Killed\n"), None);
    }

    #[test]
    fn refusals_of_launchers_are_known_by_their_texts() {
        for program in ["mpirun", "prterun"] {
            let line = format!("{program} has detected an attempt to run as root.\n");
            assert!(
                refusal(&line)
                    .is_some_and(|why| why.contains("--launcher-arg=--allow-run-as-root"))
            );
            for what in [
                "was unable to find the specified executable file, and therefore\n",
                "was unable to launch the specified application as it could not access\n",
                "was unable to launch the specified application as it could not find an executable:",
            ] {
                assert_eq!(refusal(&format!("{program} {what}")), Some(NO_PROGRAM));
            }
        }
        for line in [
            "[proxy:0:0@n1] HYDU_create_process (utils/launch/launch.c:74): execvp error on file \
             /x (No such file or directory)",
            "slurmstepd: error: execve(): /x: No such file or directory",
        ] {
            assert_eq!(refusal(line), Some(NO_PROGRAM));
        }
        assert_eq!(refusal("mpirun noticed that process rank 1 exited on signal 9"), None);
    }
}
