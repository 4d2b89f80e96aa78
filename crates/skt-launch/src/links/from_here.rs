//! Tests from this machine whether packets come back from nodes that do not answer: an agent may
//! take seconds to reach a healthy node, a packet does not.

use std::sync::mpsc::{self, Receiver};

use super::{Link, LinkState, Partner, connect};

#[derive(Debug)]
pub(crate) struct LocalTries {
    silent: Vec<String>,
    found: Receiver<Vec<Link>>,
}

impl LocalTries {
    /// Starts to try the nodes that are silent, and others that have answered.
    pub(crate) fn start(silent: Vec<String>, answering: Vec<String>) -> Self {
        let (sender, found) = mpsc::channel();
        let partner = |name: &String| Partner { name: name.clone(), address: None };
        let partners: Vec<Partner> = silent.iter().chain(&answering).map(partner).collect();
        // The receiver is gone if the answers have come already.
        std::thread::spawn(move || drop(sender.send(connect::all(&partners))));
        Self { silent, found }
    }

    /// The silent nodes from which no packet comes back; `None` until the tries are over.
    pub(crate) fn gone(&self) -> Option<Vec<String>> {
        self.found.try_recv().ok().map(|links| gone(&links, &self.silent))
    }
}

/// The silent nodes from which no packet came back. Empty if not all other nodes could be reached,
/// because packets from this machine then prove nothing.
fn gone(links: &[Link], silent: &[String]) -> Vec<String> {
    let (of_silent, others): (Vec<&Link>, Vec<&Link>) =
        links.iter().partition(|link| silent.contains(&link.to));
    if others.is_empty() || others.iter().any(|link| link.found != LinkState::Alive) {
        return Vec::new();
    }
    let is_gone = |link: &&&Link| matches!(link.found, LinkState::Dead(_));
    of_silent.iter().filter(is_gone).map(|link| link.to.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_a_fault_only_if_all_others_are_reached() {
        let link = |to: &str, found: &LinkState| Link { to: to.into(), found: found.clone() };
        let (dead, unknown) = (LinkState::Dead("no".into()), LinkState::Unknown("no".into()));
        let silent = ["n1".to_owned(), "n2".to_owned()];
        let of = |n1: &LinkState, n2: &LinkState, n3: &[&LinkState]| {
            let mut links = vec![link("n1", n1), link("n2", n2)];
            links.extend(n3.iter().map(|found| link("n3", found)));
            gone(&links, &silent)
        };
        assert_eq!(of(&dead, &LinkState::Alive, &[&LinkState::Alive]), ["n1"]);
        assert_eq!(of(&dead, &unknown, &[&LinkState::Alive]), ["n1"]);
        assert_eq!(of(&dead, &dead, &[&dead]), [""; 0], "this machine has no way there");
        assert_eq!(of(&dead, &dead, &[]), [""; 0]);
    }
}
