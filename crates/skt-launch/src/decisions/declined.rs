//! Nodes that the job declines because they lack what its other nodes have, such as the BLAS that
//! its first start chose: spares take their places. Without spares the run ends, because the next
//! start would decline them, too.

use std::collections::BTreeMap;

use super::Decisions;
use crate::hosts::{Health, Host};
use skt_checkpoint::heartbeat::UnfitHost;
use skt_terms::shown::shown_message;

impl Decisions {
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
}
