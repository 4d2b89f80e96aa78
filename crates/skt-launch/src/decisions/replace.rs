//! Replaces nodes before a start: those that a probe, their links, the launcher or the checks of
//! the matrix show to be ill, in place by spares; and those that the job declines because they lack
//! what its other nodes have, such as the BLAS that its first start chose. Without spares the run
//! ends then, because the next start would decline them, too.
//!
//! With `--no-spare spread` the ranks of lost nodes without a spare become further ranks of other
//! nodes, and return to nodes of their own once there are some.

use std::collections::{BTreeMap, BTreeSet};

use super::running::CUT_OFF;
use super::{Action, AfterProbe, Decisions, Phase, ending};
use crate::hosts::{Health, Host, Lack, Pool, Replacement, SparesSpent, describe_lost};
use crate::state::Failure;
use skt_checkpoint::heartbeat::UnfitHost;
use skt_config::launch::NoSpare;
use skt_host::exit::Exit;
use skt_host::host_names::short_names;
use skt_host::shown::shown_message;
use skt_host::units::{bytes_unlike, counted};

impl Decisions {
    /// Nodes that are lost whatever they answer: their links are dead, two starts have not reached
    /// them, they compute wrong, the job has declined them, or the user has taken them from the
    /// list. Without them here, the survey
    /// would not wait for the spares that [`Decisions::replace_ill`] needs, and would be repeated
    /// for ever.
    pub(super) fn known_lost(&self) -> BTreeSet<String> {
        let all = self.state.pool.active.iter().chain(&self.state.pool.spares);
        let is_lost = |name: &&String| {
            self.links.dead.contains_key(*name)
                || self.doubts.is_lost(name)
                || self.to_replace(name).is_some()
                || self.unfit.contains_key(*name)
                || !self.listed.contains(*name)
        };
        all.map(|host| &host.name).filter(is_lost).cloned().collect()
    }

    /// What the checks of the matrix, links, the job, the probe and the launcher show of a node.
    pub(super) fn health_of(&self, name: &str) -> Health {
        let is_out = || self.links.dead.get(name).or(self.unfit.get(name)).cloned();
        if let Some(why) = self.to_replace(name).or_else(is_out) {
            return Health::Ill(why);
        }
        match self.health.get(name) {
            Some(Health::Well) if self.doubts.is_lost(name) => Health::Ill(CUT_OFF.to_owned()),
            known => known.cloned().unwrap_or(Health::Unknown),
        }
    }

    /// Nodes in use without data: each is a loss that the next start has to rebuild.
    pub(super) fn hollow(&self) -> Vec<String> {
        let names = self.state.pool.active.iter().map(|host| &host.name);
        names.filter(|name| self.state.hollow.contains(*name)).cloned().collect()
    }

    /// Notes that a node in use has no data: neither of the ranks of its slots nor of those that it
    /// runs for nodes which are away.
    pub(super) fn note_hollow(&mut self, name: &str) {
        let place = self.state.pool.active.iter().position(|host| host.name == name);
        let homes = place.into_iter().flat_map(|place| self.state.pool.homes(place));
        let homes: Vec<String> = homes.map(str::to_owned).collect();
        self.state.hollow.extend(homes);
    }

    /// The nodes in use that the launcher does not reach, and of which no test has shown that their
    /// links are alive.
    pub(super) fn cut_off_in_use(&self) -> Vec<String> {
        let names = self.state.pool.placed().active.into_iter().map(|host| host.name);
        names.filter(|name| self.doubts.is_cut_off(name)).collect()
    }

    /// Why nodes that answer and have data, and that the launcher does not reach, are not left out:
    /// with all that is lost, more ranks of a group could be without data than the checkpoint can
    /// rebuild.
    fn too_many_cut_off(&self) -> Option<String> {
        let (pool, away) = (&self.state.pool, self.state.pool.away());
        let mut lost = BTreeSet::from_iter(self.hollow());
        let (mut cut_off, mut kept) = (Vec::new(), Vec::new());
        for (place, host) in pool.active.iter().enumerate().filter(|(p, _)| !away.contains(p)) {
            let Health::Ill(why) = self.health_of(&host.name) else { continue };
            let homes = pool.homes(place).map(str::to_owned);
            if why == CUT_OFF {
                cut_off.push(host);
                kept.extend(homes);
            } else {
                lost.extend(homes);
            }
        }
        let before = lost.len();
        lost.extend(kept);
        let most: usize = lost.iter().map(|name| self.max_of_a_group(name)).sum();
        let parities = self.options.parities;
        // Of an earlier start, or of another command.
        let is_there = || self.answers.values().any(|answer| answer.store.run_bytes > 0);
        let has_data = self.options.is_protected && (self.has_lived() || is_there());
        (lost.len() > before && has_data && most > parities).then(|| {
            format!(
                "{}: {CUT_OFF}; not left out, as the checkpoint can rebuild {} of a group, and up \
                 to {most} would be lost",
                short_names(cut_off),
                counted(parities, "rank")
            )
        })
    }

    /// The most ranks of one group among those of a node in use.
    fn max_of_a_group(&self, name: &str) -> usize {
        let groups = &self.options.sharing.groups;
        let mut held: BTreeMap<&usize, usize> = BTreeMap::new();
        let place = self.state.pool.active.iter().position(|host| host.name == name);
        let slots = place.into_iter().flat_map(|place| self.state.pool.slots()[place].clone());
        for group in slots.filter_map(|slot| groups.get(slot)) {
            *held.entry(group).or_default() += 1;
        }
        // Of unknown groups no two ranks share a node.
        held.into_values().max().unwrap_or(1)
    }

    /// Replaces the nodes that are ill. Returns `None` if the spares that have answered are too few
    /// and the others were not waited for. Those are asked again: links that were found to be dead
    /// since then make them needed. If all spares are too few, nodes that compute wrong numbers
    /// stay, and before the first start also nodes whose links alone seem to be dead.
    fn replace_ill(&mut self) -> Option<Result<Vec<Replacement>, SparesSpent>> {
        loop {
            let mut pool = self.state.pool.clone();
            let replaced = pool.replace(|name| self.health_of(name));
            let is_unknown = |spare: &Host| self.health_of(&spare.name) == Health::Unknown;
            if replaced.is_err() && self.state.pool.spares.iter().any(is_unknown) {
                return None;
            }
            if replaced.is_ok() || !(self.clear_suspects() || self.uses_despite_links()) {
                self.state.pool = pool;
                return Some(replaced);
            }
        }
    }

    /// Before the first start, decides to use the nodes whose links alone seem to be dead. Returns
    /// whether there are any.
    fn uses_despite_links(&mut self) -> bool {
        if self.has_lived() || !self.past().is_empty() {
            return false;
        }
        let dead = std::mem::take(&mut self.links.dead);
        for (name, why) in &dead {
            let text = format!("warning: {name}: {why}; it is used despite that: too few spares");
            self.links.tried_anyway.push(name.clone());
            self.notify("warning", text);
        }
        !dead.is_empty()
    }

    pub(super) fn replace_lost(&mut self, now_unix: f64) {
        if self.finish_if_refused() {
            return;
        }
        if self.running.is_unreached {
            self.doubts.confirm(self.state.start, &self.state.pool.placed().active);
        }
        if let Some(why) = self.too_many_cut_off() {
            return self.wait_or_give_up(now_unix, &why);
        }
        match self.replace_ill() {
            None => return self.ask_then(AfterProbe::Start),
            Some(Ok(replaced)) => self.note_replaced(replaced),
            Some(Err(mut spent)) => {
                self.note_replaced(std::mem::take(&mut spent.replaced));
                if let Err(why) = self.share_lost(&spent) {
                    return self.wait_or_give_up(now_unix, &why);
                }
            }
        }
        self.unshare();
        self.running.is_unreached = false;
        self.warn_without_room();
        let pause_seconds = ending::backoff_seconds(self.past());
        if pause_seconds > 0.0 {
            self.notify("pause", format!("{pause_seconds:.0} s before the next start"));
        }
        self.phase = Phase::Pausing(now_unix + pause_seconds);
    }

    /// Lost nodes have no spare: waits for them if the user wants that and there is time, and gives
    /// up otherwise.
    fn wait_or_give_up(&mut self, now_unix: f64, spent: &str) {
        let until_unix = now_unix + self.options.settings.probe_limit_seconds;
        if self.options.settings.no_spare != NoSpare::Wait {
            return self.give_up(spent, Exit::Interrupted);
        }
        if self.options.end_unix.is_some_and(|end_unix| until_unix >= end_unix) {
            return self.give_up(&format!("{spent}, and the time ends"), Exit::Interrupted);
        }
        let text = format!("{spent}: waiting for it");
        if self.state.reason.as_ref() != Some(&text) {
            self.notify("waiting", text.clone());
            self.state.reason = Some(text);
            self.act(Action::Save);
        }
        // A link is tested again once its ends answer, by the launcher if nothing else can.
        self.links.dead.clear();
        self.doubts.try_again();
        self.phase = Phase::Waiting(until_unix);
    }

    pub(super) fn list_spares(&mut self, spares: Vec<Host>) {
        let names = spares.iter().map(|host| host.name.clone());
        let new: Vec<String> = names.filter(|name| !self.listed.contains(name)).collect();
        if new.is_empty() {
            return;
        }
        self.listed.extend(new.iter().cloned());
        let listed = Pool::new(Vec::new(), spares);
        self.state.pool = std::mem::take(&mut self.state.pool).with_new(&listed);
        self.notify("listed", format!("{}: listed as spare from now on", short_names(&new)));
        self.act(Action::Save);
    }

    /// Reports the nodes that were replaced, and notes them as the reason of the last failure.
    fn note_replaced(&mut self, replaced: Vec<Replacement>) {
        let text = match &replaced[..] {
            [] => return,
            [Replacement { lost, why, by }] => format!("{lost} {why}; {by} takes its place"),
            all => {
                let by = short_names(all.iter().map(|change| &change.by));
                format!("{}; {by} take their places", describe_lost(all))
            }
        };
        self.notify("replaced", text);
        // Before the first start no node has data.
        if self.state.start > 0 {
            replaced.iter().for_each(|change| self.note_hollow(&change.by));
        }
        self.note_losses(replaced);
    }

    /// Notes lost nodes as the reason of the last failure, unless another start has followed it.
    pub(super) fn note_losses(&mut self, replaced: Vec<Replacement>) {
        if let Some(failure) = self.state.failures.last_mut()
            && failure.relaunched_unix.is_none()
            && !replaced.is_empty()
        {
            failure.node_lost = true;
            failure.replaced.extend(replaced);
        }
    }

    /// The nodes that were lost since the job last computed, as a part of a sentence.
    pub(super) fn lost_since_computing(&self) -> String {
        let is_open = |failure: &&Failure| failure.computing_unix.is_none();
        let failures = self.state.failures.iter().rev().take_while(is_open);
        let lost: Vec<Replacement> =
            failures.flat_map(|failure| failure.replaced.clone()).collect();
        if lost.is_empty() { String::new() } else { format!(" (lost: {})", describe_lost(&lost)) }
    }

    /// The nodes in use that the present start has declined, each with what it lacks.
    pub(super) fn declined(&self) -> BTreeMap<String, String> {
        let named = |unfit: &UnfitHost| {
            // The job may know its nodes by other names.
            let own_name = |host: &Host| self.answers.get(&host.name).map(|answer| &answer.host);
            let is_it =
                |host: &&Host| host.name == unfit.host || own_name(host) == Some(&unfit.host);
            let host = self.state.pool.active.iter().find(is_it)?;
            Some((host.name.clone(), shown_message(&unfit.why)))
        };
        let beat = self.state.last_beat.as_ref().map(|(beat, _)| beat);
        beat.into_iter().flat_map(|beat| &beat.unfit).filter_map(named).collect()
    }

    /// Decides that spares replace the nodes that the present start has declined, if there are
    /// enough, and what these nodes hold can be rebuilt. Returns whether it has decided so.
    pub(super) fn replaces_declined(&mut self) -> bool {
        let declined = self.declined();
        let hollow = self.hollow();
        let with_data = declined.keys().filter(|name| !hollow.contains(name)).count();
        // In the first start no node has data.
        let can_rebuild = self.state.start == 1
            || with_data == 0
            || hollow.len() + with_data <= self.options.parities;
        let health = |name: &str| match declined.get(name).or(self.unfit.get(name)) {
            Some(why) => Health::Ill(why.clone()),
            None => Health::Well,
        };
        let replaces = !declined.is_empty() && can_rebuild && self.state.pool.can_replace(health);
        if replaces {
            self.unfit.extend(declined);
        }
        replaces
    }
    /// Whether nodes may share. Before the first start there is nothing to lose by waiting.
    pub(super) fn may_share(&self) -> bool {
        self.options.settings.no_spare == NoSpare::Spread && self.state.start > 0
    }

    fn lack(&self, name: &str, ranks: usize) -> Option<Lack> {
        let lack = |why, bytes| Some(Lack { why, bytes });
        let Some(answer) = self.answers.get(name) else {
            return lack("did not answer".to_owned(), 0);
        };
        let (options, ranks) = (&self.options, ranks as u64);
        let of_rank = options.sharing.rank_bytes.max(options.rank_bytes).max(self.held_bytes);
        let need_bytes = of_rank.saturating_mul(ranks);
        if let Some(have_bytes) = answer.too_little(need_bytes) {
            let have = bytes_unlike(have_bytes, need_bytes);
            let need = bytes_unlike(need_bytes, have_bytes);
            let missing = bytes_unlike(need_bytes - have_bytes, 0);
            let fits = options.sharing.fitting_n(have_bytes, need_bytes);
            let fits = fits.map_or(String::new(), |n| format!(" (N = {n} would fit)"));
            let why =
                format!("has {have} of the {need} for {ranks} ranks: {missing} are missing{fits}");
            return lack(why, need_bytes - have_bytes);
        }
        lack(answer.fault(ranks, self.held_bytes, options.rank_bytes, None)?, 0)
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
