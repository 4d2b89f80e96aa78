//! `--no-spare spread`: before a start, the ranks of lost nodes without a spare become further
//! ranks of other nodes, and return to nodes of their own once there are some.

use super::Decisions;
use crate::fault;
use crate::hosts::{Host, Lack, SparesSpent};
use skt_config::launch::NoSpare;
use skt_terms::units::bytes_unlike;

impl Decisions {
    /// Whether nodes may share. Before the first start there is nothing to lose by waiting.
    pub(super) fn may_share(&self) -> bool {
        self.options.settings.no_spare == NoSpare::Spread && self.state.start > 0
    }

    /// What a node lacks for this number of ranks.
    fn lack(&self, name: &str, ranks: usize) -> Option<Lack> {
        let lack = |why, bytes| Some(Lack { why, bytes });
        let Some(answer) = self.answers.get(name) else {
            return lack("did not answer".to_owned(), 0);
        };
        let (options, ranks) = (&self.options, ranks as u64);
        let of_rank = options.sharing.rank_bytes.max(options.rank_bytes).max(self.held_bytes);
        let need_bytes = of_rank.saturating_mul(ranks);
        let have_bytes = answer.available_bytes.saturating_add(answer.run_bytes);
        // The start waits for memory that ending processes give back.
        if answer.ending == 0 && have_bytes < need_bytes {
            let have = bytes_unlike(have_bytes, need_bytes);
            let need = bytes_unlike(need_bytes, have_bytes);
            let missing = bytes_unlike(need_bytes - have_bytes, 0);
            let fits = options.sharing.fitting_n(have_bytes, need_bytes);
            let fits = fits.map_or(String::new(), |n| format!(" (N = {n} would fit)"));
            let why =
                format!("has {have} of the {need} for {ranks} ranks: {missing} are missing{fits}");
            return lack(why, need_bytes - have_bytes);
        }
        lack(fault::node_fault(answer, ranks, self.held_bytes, options.rank_bytes)?, 0)
    }

    /// Lets other nodes run the ranks of the lost nodes without a spare, as well as their own.
    /// Otherwise returns why the run cannot continue.
    pub(super) fn share_lost(&mut self, spent: &SparesSpent) -> Result<(), String> {
        if !self.may_share() {
            return Err(spent.to_string());
        }
        let mut pool = self.state.pool.clone();
        let (options, lack) = (&self.options, |name: &str, ranks| self.lack(name, ranks));
        let health = |name: &str| self.health_of(name);
        let shared = pool
            .share(options.ranks, health, &options.sharing, lack)
            .map_err(|why| format!("{spent}; {why}; --no-spare wait waits for it"))?;
        for change in &shared {
            let text = format!("{} {}; {} runs its ranks, too", change.lost, change.why, change.by);
            self.notify("shared", text);
            self.note_hollow(&change.lost);
        }
        self.state.pool = pool;
        self.note_losses(shared);
        Ok(())
    }

    /// Before the first start, warns if no node has memory for a rank of a lost one.
    pub(super) fn warn_without_room(&mut self) {
        let (options, pool) = (&self.options, &self.state.pool);
        let spreads = options.settings.no_spare == NoSpare::Spread && !options.is_local;
        if !spreads || self.state.start > 0 || !pool.spares.is_empty() {
            return;
        }
        let lack = |host: &Host| self.lack(&host.name, host.slots + 1);
        let lacks: Option<Vec<_>> =
            pool.active.iter().map(|host| Some((&host.name, lack(host)?))).collect();
        let least = lacks.and_then(|all| all.into_iter().min_by_key(|(_, lack)| lack.bytes));
        let Some((name, Lack { why, .. })) = least else { return };
        let text = format!(
            "warning: no node has room for one more rank: a loss stops the run; {name} {why}"
        );
        self.notify("warning", text);
    }

    /// Gives ranks that share a node a node of their own again, if there is one and nothing else is
    /// lost: what has to be rebuilt then could be lost before, too.
    pub(super) fn unshare(&mut self) {
        if self.state.pool.guests.is_empty() || !self.hollow().is_empty() {
            return;
        }
        // Under abft a rank that was killed may have torn its memory, which only the job finds.
        let torn = usize::from(self.options.sharing.is_strict);
        let movable = self.options.parities.saturating_sub(torn);
        let mut pool = self.state.pool.clone();
        let moved = pool.unshare(|name| self.health_of(name), movable);
        self.state.pool = pool;
        for change in moved {
            let text = format!("{} has the ranks of {} to itself", change.by, change.lost);
            self.notify("unshared", text);
            self.state.hollow.insert(change.by);
        }
    }
}
