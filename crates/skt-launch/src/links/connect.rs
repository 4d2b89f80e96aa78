//! Tries to reach other nodes from this one, with a packet to each and one back.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::{Link, LinkState, Partner};
use skt_host::each::each;

/// The port that is tried. It is above the ports that Linux assigns automatically, so nothing
/// listens there: the other node's kernel refuses at once, without a process, and that packet shows
/// that the link is alive. A program that does listen there sees a connection that closes.
const PORT: u16 = 61_743;
/// The longest try: TCP sends its first packet at 0, 1 and 3 s (RFC 6298), and the loss of all
/// three is no accident.
const LONGEST: Duration = Duration::from_secs(4);
/// Once more than half of the partners have answered, the others have twice the time of the slowest
/// of them plus this time: a lost packet is sent again after 1 s.
const PATIENCE: Duration = Duration::from_millis(1500);

/// Tries all partners at once and returns what was found, in their order. Takes a round trip where
/// all links are well, and 4 s at most.
pub fn all(partners: &[Partner]) -> Vec<Link> {
    all_at(partners, PORT)
}

/// Tries `silent` nodes and others that have answered, and then sends the silent ones from which no
/// packet comes back: an agent may take seconds to reach a healthy node, a packet does not.
pub(crate) fn find_gone(silent: Vec<String>, answering: &[String]) -> Receiver<Vec<String>> {
    let partner = |name: &String| Partner { name: name.clone(), address: None };
    // More tries than to silent ones: if they succeed, the others get less time.
    let answering = answering.iter().cycle().take(silent.len() + 1);
    let partners: Vec<Partner> = silent.iter().chain(answering).map(partner).collect();
    let (sender, found) = mpsc::channel();
    // The receiver is gone if the answers have come already.
    std::thread::spawn(move || drop(sender.send(gone(&all(&partners), &silent))));
    found
}

/// The silent nodes from which no packet came back. Empty if not all other nodes could be reached,
/// because packets from this machine then prove nothing.
fn gone(links: &[Link], silent: &[String]) -> Vec<String> {
    let (of_silent, others): (Vec<&Link>, Vec<&Link>) =
        links.iter().partition(|link| silent.contains(&link.to));
    if others.is_empty() || others.iter().any(|link| link.found != LinkState::Alive) {
        return Vec::new();
    }
    of_silent.iter().filter(|link| link.has_failed()).map(|link| link.to.clone()).collect()
}

fn all_at(partners: &[Partner], port: u16) -> Vec<Link> {
    let (sender, receiver) = mpsc::channel();
    let numbered = partners.iter().cloned().enumerate().collect();
    let started = each(numbered, move |(index, partner): (usize, Partner)| {
        // The receiver is gone once the time is up.
        let report = |found| drop(sender.send((index, found)));
        match address_of(&partner, port) {
            Ok(address) => {
                report(LinkState::Dead("no answer in time".into()));
                report(reach(address));
            }
            Err(why) => report(LinkState::Unknown(why)),
        }
    });
    let begun = Instant::now();
    let mut found: Vec<Option<LinkState>> = vec![None; partners.len()];
    let mut slowest = Duration::ZERO;
    loop {
        let alive = found.iter().flatten().filter(|found| **found == LinkState::Alive).count();
        let limit = if 2 * alive > partners.len() {
            LONGEST.min(2 * slowest + PATIENCE)
        } else {
            // Resolving a name may take as long as reaching its partner.
            2 * LONGEST
        };
        let left = limit.saturating_sub(begun.elapsed());
        match receiver.recv_timeout(left) {
            Ok((index, of_partner)) => {
                if of_partner == LinkState::Alive {
                    slowest = begun.elapsed();
                }
                found[index] = Some(of_partner);
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
        }
    }
    let late = || "its name was not found, or no thread was free, in time".to_owned();
    let why = started.map_or_else(|why| why.to_string(), |()| late());
    let untried = || LinkState::Unknown(why.clone());
    let link = |(partner, found): (&Partner, Option<LinkState>)| Link {
        to: partner.name.clone(),
        found: found.unwrap_or_else(untried),
    };
    partners.iter().zip(found).map(link).collect()
}

/// The address of a partner, or why it is not known.
fn address_of(partner: &Partner, port: u16) -> Result<SocketAddr, String> {
    if let Some(ip) = partner.address {
        return Ok(SocketAddr::new(ip, port));
    }
    let found = (partner.name.as_str(), port).to_socket_addrs().map_err(|why| why.to_string());
    found?.next().ok_or_else(|| "its name has no address".to_owned())
}

fn reach(address: SocketAddr) -> LinkState {
    let Err(error) = TcpStream::connect_timeout(&address, LONGEST) else { return LinkState::Alive };
    let ip = address.ip();
    match error.kind() {
        ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset => LinkState::Alive,
        ErrorKind::TimedOut => LinkState::Dead(format!("no answer of {ip} in {LONGEST:?}")),
        ErrorKind::HostUnreachable
        | ErrorKind::NetworkUnreachable
        | ErrorKind::NetworkDown
        | ErrorKind::AddrNotAvailable => LinkState::Dead(format!("{ip}: {error}")),
        // This machine has too few files or ports: nothing was sent.
        _ => LinkState::Unknown(format!("{ip}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn partner(name: &str, ip: &str) -> Partner {
        Partner { name: name.into(), address: Some(ip.parse().unwrap()) }
    }

    #[test]
    fn a_node_that_refuses_and_one_that_listens_are_both_reached() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let partners = [partner("n1", "127.0.0.1"), partner("n2", "127.0.0.2")];
        let found = all_at(&partners, port);
        let all: Vec<(&str, &LinkState)> =
            found.iter().map(|link| (link.to.as_str(), &link.found)).collect();
        assert_eq!(all, [("n1", &LinkState::Alive), ("n2", &LinkState::Alive)]);
    }

    #[test]
    fn unknown_host_name_leaves_the_link_unknown() {
        let nobody = Partner { name: "no.such.name.invalid".into(), address: None };
        let found = all_at(&[nobody, partner("n1", "127.0.0.1")], PORT);
        assert!(!matches!(found[0].found, LinkState::Alive), "{found:?}");
        assert_eq!(found[1].found, LinkState::Alive);
    }

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
