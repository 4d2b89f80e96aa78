//! Watches a running launcher: kills it when it hangs, and ends it when the user wants to stop.
//!
//! Nodes may compute wrong, too: the checks of a run with checksums name the rank that a wrong number
//! comes from, and the heartbeats report it.
//!
//! One wrong number may be a particle that met a memory cell. A node that a second check names is
//! suspect. With `--replace-suspects` the job is killed then, as if the node were lost: a spare
//! takes its place, and the checksums rebuild what its ranks had. A job that ends because it cannot
//! correct a number is left to report that; the spare takes the place before it goes back to
//! images.

use super::{Action, Decisions, LineReader};
use crate::hosts::{Health, Host};
use crate::probe::{Answer, Purpose};
use crate::program::Ends;
use crate::survey::Survey;
use skt_checkpoint::heartbeat::{CorruptionReport, DONE, Heartbeat};

/// Number of checks that must name a node to make it suspect.
const SUSPECT_CHECKS: u64 = 2;
/// How long a launcher may take to end after SIGTERM, when the job is done and has written
/// everything, or a rank of a user's program has failed. MPICH over TCP hangs in `MPI_Finalize` at
/// times (UCX issue 8738).
const END_PATIENCE_SECONDS: f64 = 10.0;
/// The most of these that counts of a time in which the supervisor did not watch.
const SIMULTANEOUS_SECONDS_MAX: f64 = 0.2;

/// What is wrong with a node that the launcher does not reach.
pub(super) const CUT_OFF: &str = "out of the launcher's reach, although it answers the agent";

#[derive(Debug, Default)]
pub(super) struct RunningJob {
    pub killed: Option<String>,
    pub terminated_unix: Option<f64>,
    /// Since when the launcher is to end without a signal: the job is done, or a rank that runs the
    /// user's program has failed.
    pub ending_unix: Option<f64>,
    pub refusal: Option<&'static str>,
    pub ends: Ends,
    pub report_lines: u64,
    pub reader: LineReader,
    /// Whether a line has reported a node in use lost.
    pub is_alarmed: bool,
    /// Whether the start sent no heartbeat and was killed for that, or its launcher has reported
    /// that it did not reach its nodes.
    pub is_unreached: bool,
    /// Whether the present probe of nodes is due to an alarm; `None` when none is in progress.
    probing: Option<bool>,
    /// The silence, in seconds, after which the nodes are probed again.
    next_probe_seconds: f64,
}

impl RunningJob {
    /// Does not count these seconds, but for a part of the patience, against a launcher that is to
    /// end: it may have stood still with the supervisor.
    pub(super) fn unwatched(&mut self, seconds: f64) {
        let more = (seconds - SIMULTANEOUS_SECONDS_MAX).max(0.0);
        for since in [&mut self.terminated_unix, &mut self.ending_unix] {
            *since = since.map(|since| since + more);
        }
    }
}

impl Decisions {
    /// Kills a launcher that hangs, probes for lost nodes, and passes on the user's request to
    /// stop.
    pub(super) fn watch_job(&mut self, now_unix: f64, stops: usize) {
        let last = self.state.last_beat.as_ref();
        let ending = if last.is_some_and(|(beat, _)| beat.phase == DONE) {
            Some("the job is done, the launcher does not end")
        } else {
            // Hydra lets the other ranks of a program without MPI run on.
            let has_failed = self.running.ends.has_failed();
            has_failed.then_some("a rank has ended, the launcher does not end the others")
        };
        if let Some(why) = ending.filter(|_| self.running.killed.is_none()) {
            let since = *self.running.ending_unix.get_or_insert(now_unix);
            if now_unix - since > END_PATIENCE_SECONDS {
                self.kill(why);
            }
        } else if let Some(silent) = self.watch.hung_for(now_unix) {
            let limit = self.watch.limit_seconds();
            self.running.is_unreached |= self.watch.last().is_none();
            self.kill(&format!("no sign of life for {silent:.1} s (limit {limit:.1} s)"));
        } else if self.running.killed.is_none() && self.is_time_to_probe(now_unix) {
            return self.ask(Purpose::Check, true);
        }
        if stops > 0 {
            self.stop_job(now_unix, stops);
        }
    }

    /// Whether the nodes are to be probed because the job has been silent for a while: a launcher
    /// may wait for ever for a lost node, and phases without columns may be silent for long.
    fn is_time_to_probe(&mut self, now_unix: f64) -> bool {
        let silent_seconds = self.watch.silent_seconds(now_unix);
        let after_seconds = self.watch.probe_after_seconds();
        if silent_seconds < after_seconds {
            self.running.next_probe_seconds = 0.0;
        }
        let is_alarmed = std::mem::take(&mut self.running.is_alarmed);
        let is_silent = silent_seconds >= after_seconds.max(self.running.next_probe_seconds);
        self.running.probing = (is_alarmed || is_silent).then_some(is_alarmed);
        is_alarmed || is_silent
    }

    pub(super) fn note_probe(&mut self, now_unix: f64, survey: &Survey) {
        // If all nodes are well, the next probe comes after twice the silence.
        self.running.next_probe_seconds = 2.0 * self.watch.silent_seconds(now_unix);
        // The job has given a sign of life since its silence was the reason to ask the nodes: a
        // node that does not answer is no reason to kill it.
        let is_silent = self.watch.silent_seconds(now_unix) >= self.watch.probe_after_seconds();
        if self.running.probing == Some(false) && !is_silent {
            return;
        }
        self.note_links(survey);
        let used = self.state.pool.placed().active;
        let dead = used.iter().find_map(|host| self.links.dead.get_key_value(&host.name));
        if let Some((name, why)) = dead {
            let (name, why) = (name.clone(), why.clone());
            return self.kill_for_lost(&name, &why);
        }
        let ill = |host: &Host| match survey.health(&host.name) {
            Health::Ill(why) => Some((host.name.clone(), why)),
            Health::Well | Health::Unknown => None,
        };
        let ill: Vec<(String, String)> = self.state.pool.active.iter().filter_map(ill).collect();
        if let Some((name, why)) = ill.first() {
            self.kill_for_lost(name, why);
            return self.suspects.extend(ill.into_iter().map(|(name, _)| name));
        }
        let sum = |of: fn(&Answer) -> usize| survey.answers.values().map(of).sum::<usize>();
        let (ranks, stopped) = (sum(|answer| answer.ranks), sum(|answer| answer.stopped));
        if let Some((name, _)) = survey.answers.iter().find(|(_, answer)| answer.stopped > 0) {
            if stopped < ranks {
                let why = format!("{stopped} of {ranks} ranks are stopped by a signal");
                return self.kill(&format!("silence, and {why}, one on {name}"));
            }
            // Somebody has suspended the job.
            self.watch.suspended(now_unix);
            self.running.next_probe_seconds = 0.0;
            return;
        }
        if survey.links.is_some() && self.watch.last().is_none() && !self.options.is_of_program() {
            // The start waits for ever for a node that its launcher does not reach.
            let is_out = |name: &&String| self.doubts.is_cut_off(name) || self.doubts.is_lost(name);
            if let Some(name) = self.suspects.iter().find(is_out).cloned() {
                self.running.is_unreached = true;
                self.kill_for_lost(&name, CUT_OFF);
            }
        }
    }

    fn kill_for_lost(&mut self, name: &str, why: &str) {
        let is_alarmed = self.running.probing == Some(true);
        let sign = if is_alarmed { "a connection broke" } else { "silence" };
        self.kill(&format!("{sign}, and {name} is lost: {why}"));
    }

    fn stop_job(&mut self, now_unix: f64, stops: usize) {
        if self.running.terminated_unix.is_none() {
            self.running.terminated_unix = Some(now_unix);
            self.notify("stop", "asked to stop: ending the job, its checkpoint stays");
            self.act(Action::Terminate);
        }
        let is_late = |since| now_unix - since > END_PATIENCE_SECONDS;
        if stops > 1 || self.running.terminated_unix.is_some_and(is_late) {
            self.kill("the launcher does not end");
        }
    }

    /// Kills the launcher, once. A request to end does not help: while a lost node is unnoticed,
    /// Open MPI's launcher ignores SIGTERM.
    pub(super) fn kill(&mut self, why: &str) {
        if self.running.killed.is_none() {
            self.running.killed = Some(why.to_owned());
            self.notify("kill", format!("{why}: killing the launcher"));
            self.act(Action::Kill);
        }
    }
    /// Records what the reports of corruption in a new heartbeat add to the known ones of this
    /// start, and adds the known ones to `beat`: a supervisor that takes a job over reads old
    /// heartbeats again, which have fewer.
    pub(super) fn note_corruption(&mut self, beat: &mut Heartbeat) {
        let last = self.state.last_beat.as_ref();
        let known = last.map_or(Vec::new(), |(last, _)| last.corruption.clone());
        let new = std::mem::replace(&mut beat.corruption, known.clone());
        for report in &new {
            let CorruptionReport { host, rank, checks, rows, first_column, ends_job } = report;
            let before = known.iter().find(|known| known.host == *host && known.rank == *rank);
            let (old_checks, old_rows) = before.map_or((0, 0), |known| (known.checks, known.rows));
            if *checks <= old_checks {
                continue;
            }
            beat.corruption.retain(|known| (&known.host, known.rank) != (host, *rank));
            beat.corruption.push(report.clone());
            let blame = self.state.blamed.entry(host.clone()).or_default();
            blame.checks += checks - old_checks;
            blame.rows += rows.saturating_sub(old_rows);
            blame.first_column.get_or_insert(*first_column);
            let text = format!(
                "{host} rank {rank} has computed wrong numbers: {rows} row(s) in {checks} check(s), \
                 first at column {first_column}"
            );
            self.notify("wrong", text);
            if self.mark_for_replacement(host) && !ends_job {
                self.kill(&format!("{host} computes wrong, and a spare is to replace it"));
            }
        }
    }

    /// Decides that a spare is to replace `name` at the next start, if that is wanted, the node is
    /// suspect, and the run survives it. Returns whether it has decided so now.
    fn mark_for_replacement(&mut self, name: &str) -> bool {
        let blame = &self.state.blamed[name];
        let place = self.state.pool.active.iter().position(|host| host.name == *name);
        let Some(place) = place.filter(|_| blame.checks >= SUSPECT_CHECKS) else { return false };
        if blame.to_replace || !self.options.settings.replace_suspects {
            return false;
        }
        let health = |other: &str| {
            if other == name { Health::Ill("suspect".to_owned()) } else { Health::Well }
        };
        let why_not = if !self.options.losable.get(place).copied().unwrap_or(false) {
            Some("its ranks are more of one process row than the parities can rebuild")
        } else if !self.state.pool.can_replace(health) {
            Some("no spare node is left")
        } else {
            None
        };
        if let Some(why) = why_not {
            self.notify("warning", format!("warning: {name} stays, though suspect: {why}"));
            return false;
        }
        self.state.blamed.get_mut(name).expect("it is blamed").to_replace = true;
        true
    }

    /// What is wrong with a node that is to be replaced because it computes wrong.
    pub(super) fn to_replace(&self, name: &str) -> Option<String> {
        let blame = self.state.blamed.get(name).filter(|blame| blame.to_replace)?;
        Some(format!("computes wrong: {} check(s) have named it", blame.checks))
    }

    /// Lets the nodes that compute wrong stay; returns whether there were any. Without spares that
    /// is better than to end the run, because what they compute is checked.
    pub(super) fn clear_suspects(&mut self) -> bool {
        let mut names = Vec::new();
        for (name, blame) in &mut self.state.blamed {
            if std::mem::take(&mut blame.to_replace) {
                names.push(name.clone());
            }
        }
        for name in &names {
            let text = format!("warning: {name} stays, though suspect: no spare node is left");
            self.notify("warning", text);
        }
        !names.is_empty()
    }
}
