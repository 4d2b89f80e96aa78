//! Nodes that compute wrong: the checks of a run with checksums name the rank that a wrong number
//! comes from, and the heartbeats report it.
//!
//! One wrong number may be a particle that met a memory cell. A node that a second check names is
//! suspect. With `--replace-suspects` the job is killed then, as if the node were lost: a spare
//! takes its place, and the checksums rebuild what its ranks had. A job that ends because it cannot
//! correct a number is left to report that; the spare takes the place before it goes back to
//! images.

use super::Decisions;
use crate::hosts::Health;
use skt_checkpoint::heartbeat::{CorruptionReport, Heartbeat};

/// Number of checks that must name a node to make it suspect.
const SUSPECT_CHECKS: u64 = 2;

impl Decisions {
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
        let to_replace = self.state.blamed.iter_mut().filter(|(_, blame)| blame.to_replace);
        let names: Vec<String> = to_replace
            .map(|(name, blame)| {
                blame.to_replace = false;
                name.clone()
            })
            .collect();
        for name in &names {
            let text = format!("warning: {name} stays, though suspect: no spare node is left");
            self.notify("warning", text);
        }
        !names.is_empty()
    }
}
