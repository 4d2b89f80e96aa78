//! Hosts of a list, before any rank runs there: their names, whether packets come back, and whether
//! the agent that launchers use reaches them; through it, what they know of each other's names.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use super::hosts::Host;
use super::links::{LinkState, Partner, connect};
use crate::doctor::finding::{Finding, FindingKind};
use crate::doctor::names::{self, View};
use crate::doctor::rules::names as rules;
use crate::machine::child;

/// The agent, unless the user names another: one that never asks for a password.
pub const AGENT: &str = "ssh -o BatchMode=yes -o ConnectTimeout=5";
/// The longest time of an agent.
const PATIENCE: Duration = Duration::from_secs(30);
/// Agents at a time.
const AT_ONCE: usize = 32;

/// What is known of the hosts of a list.
pub struct Looked {
    /// What is wrong.
    pub findings: Vec<Finding>,
    /// What hosts call themselves, by their names in the list.
    pub own_names: BTreeMap<String, String>,
}

/// Looks at the hosts of a list from this host, which is called `here`, with the command `agent`.
pub fn look(here: &str, hosts: &[Host], agent: &str) -> Looked {
    let names: Vec<String> = hosts.iter().map(|host| host.name.clone()).collect();
    let view = names::look_up(here, &names);
    let known: Vec<&String> = names.iter().filter(|name| view.names[*name].is_ok()).collect();
    let partner = |name: &&String| Partner { name: (*name).clone(), address: None };
    let links = connect::all(&known.iter().map(partner).collect::<Vec<_>>());
    let mut found = Vec::new();
    let mut alive = Vec::new();
    for link in links {
        match link.found {
            LinkState::Dead(why) => {
                found.push(out_of_reach(&link.to, "no packet comes back", &why))
            }
            LinkState::Alive | LinkState::Unknown(_) => alive.push(link.to),
        }
    }
    let (answers, lost) = ask_all(&alive, &names, agent);
    found.extend(lost);
    let own = |answer: &Answer| Some((answer.view.host.clone(), answer.own_name.clone()?));
    let own_names = answers.iter().filter_map(own).collect();
    let views: Vec<View> = answers.into_iter().map(|answer| answer.view).chain([view]).collect();
    found.extend(rules::findings(&views, true));
    Looked { findings: found, own_names }
}

/// What a host has answered.
#[derive(Debug)]
struct Answer {
    view: View,
    /// What it calls itself, if it says so.
    own_name: Option<String>,
}

fn out_of_reach(host: &str, what: &str, why: &str) -> Finding {
    Finding {
        kind: FindingKind::OutOfReach,
        hosts: vec![host.to_owned()],
        what: format!("{host} cannot be reached: {what}"),
        measured: why.to_owned(),
        remedy: format!(
            "ping {host}; ssh {host} true, which must not ask anything; otherwise leave \
                         the host out of the list"
        ),
        gain: None,
    }
}

/// Asks the hosts through the agent, some at a time.
fn ask_all(hosts: &[String], names: &[String], agent: &str) -> (Vec<Answer>, Vec<Finding>) {
    let next = Mutex::new(hosts.iter());
    let answers: Mutex<BTreeMap<&str, Result<Answer, String>>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE.min(hosts.len()) {
            scope.spawn(|| {
                while let Some(host) = { next.lock().expect("no thread panics").next() } {
                    let answer = ask(host, names, agent, PATIENCE);
                    answers.lock().expect("no thread panics").insert(host, answer);
                }
            });
        }
    });
    let (mut told, mut lost) = (Vec::new(), Vec::new());
    for (host, answer) in answers.into_inner().expect("no thread panics") {
        match answer {
            Ok(answer) => told.push(answer),
            Err(why) => lost.push(out_of_reach(host, "the agent of launchers fails", &why)),
        }
    }
    (told, lost)
}

/// The last line of an answer begins with this; then comes what the host calls itself.
const END: &str = "= .";

/// The command for the shell of a host: a line for each name, and then its addresses. Names hold
/// nothing that means something to a shell ([`Host`]).
fn question(names: &[String]) -> String {
    let words = names.join(" ");
    format!(
        "for h in {words}; do echo \"= $h\"; getent ahosts $h; done; echo \"{END} $(uname -n)\""
    )
}

/// Asks one host.
fn ask(host: &str, names: &[String], agent: &str, patience: Duration) -> Result<Answer, String> {
    let mut words = agent.split_whitespace();
    let program = words.next().ok_or("the agent is empty")?;
    let mut command = Command::new(program);
    command.args(words).arg(host).arg(question(names));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|why| format!("{program}: {why}"))?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    // Both pipes are read while it runs, so that it cannot fill one and wait.
    let read = |pipe: Option<Box<dyn std::io::Read + Send>>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = pipe.map(|mut pipe| pipe.read_to_end(&mut bytes));
            String::from_utf8_lossy(&bytes).into_owned()
        })
    };
    let out = read(out.map(|pipe| Box::new(pipe) as _));
    let err = read(err.map(|pipe| Box::new(pipe) as _));
    let Some(status) = child::wait(&mut child, patience).map_err(|why| why.to_string())? else {
        // A child of the agent may hold the pipes open: they are not waited for.
        return Err(format!("no answer of `{agent} {host}` in {patience:?}"));
    };
    let (out, err) = (out.join().unwrap_or_default(), err.join().unwrap_or_default());
    match out.lines().find_map(|line| line.strip_prefix(END)) {
        Some(own_name) => Ok(Answer {
            view: View { host: host.to_owned(), names: read_answer(&out) },
            own_name: Some(own_name.trim().to_owned()).filter(|name| !name.is_empty()),
        }),
        None => Err(format!("{status}: {}", err.lines().last().unwrap_or("it says nothing"))),
    }
}

/// Reads the answer to [`question`].
fn read_answer(text: &str) -> BTreeMap<String, Result<BTreeSet<std::net::IpAddr>, String>> {
    let mut found: BTreeMap<String, Result<BTreeSet<_>, String>> = BTreeMap::new();
    let mut name = None;
    for line in text.lines() {
        if line.starts_with(END) {
            break;
        }
        if let Some(next) = line.strip_prefix("= ") {
            found.insert(next.to_owned(), Err("getent ahosts finds no address".to_owned()));
            name = Some(next.to_owned());
            continue;
        }
        let address = line.split_whitespace().next().and_then(|word| word.parse().ok());
        if let Some((entry, address)) =
            name.as_ref().and_then(|name| found.get_mut(name)).zip(address)
        {
            match entry {
                Ok(addresses) => {
                    addresses.insert(address);
                }
                Err(_) => *entry = Ok(BTreeSet::from([address])),
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_name_by_name() {
        let text = "welcome\n= n1\n10.0.0.1 STREAM n1\n10.0.0.1 DGRAM\n= n2\n= .\n";
        let found = read_answer(text);
        assert_eq!(found["n1"], Ok(BTreeSet::from(["10.0.0.1".parse().unwrap()])));
        assert!(found["n2"].is_err() && found.len() == 2);
    }

    fn findings(here: &str, hosts: &[Host], agent: &str) -> Vec<Finding> {
        look(here, hosts, agent).findings
    }

    #[test]
    fn hosts_say_what_they_call_themselves() {
        let (_folder, agent) = agent("uname() { echo node7; }; eval \"$2\"\n");
        let looked = look("here", &hosts(&["127.0.0.1"]), &agent);
        assert_eq!(looked.own_names, BTreeMap::from([("127.0.0.1".into(), "node7".into())]));
    }

    fn hosts(names: &[&str]) -> Vec<Host> {
        names.iter().map(|name| Host { name: (*name).to_owned(), slots: 1 }).collect()
    }

    /// An agent that runs the command here, under `sh -c`, and leaves out the host's name.
    fn agent(script: &str) -> (tempfile::TempDir, String) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("agent");
        std::fs::write(&path, script).unwrap();
        let command = format!("sh {}", path.display());
        (folder, command)
    }

    #[test]
    fn hosts_that_are_well_give_no_finding() {
        let (_folder, agent) = agent("sh -c \"$2\"\n");
        assert_eq!(findings("here", &hosts(&["127.0.0.1", "127.0.0.2"]), &agent), []);
    }

    #[test]
    fn a_host_whose_agent_fails_is_named_with_what_it_says() {
        let (_folder, agent) =
            agent("[ $1 = 127.0.0.2 ] && echo Permission denied >&2 && exit 255; sh -c \"$2\"\n");
        let found = findings("here", &hosts(&["127.0.0.1", "127.0.0.2"]), &agent);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].kind, &found[0].hosts[0][..]), (FindingKind::OutOfReach, "127.0.0.2"));
        assert!(found[0].measured.ends_with("Permission denied"), "{found:?}");
    }

    #[test]
    fn an_agent_that_hangs_is_given_up() {
        let (_folder, agent) = agent("exec sleep 1000\n");
        let why = ask("n1", &["n1".to_owned()], &agent, Duration::from_millis(50)).unwrap_err();
        assert!(why.starts_with("no answer of `sh "), "{why}");
    }

    #[test]
    fn a_name_that_another_host_knows_otherwise_is_found() {
        let answer =
            "echo '= 127.0.0.1'; echo '127.0.0.1 x'; echo '= 127.0.0.2'; echo '10.9.9.9 x'";
        let (_folder, agent) = agent(&format!("{answer}; echo '= .'\n"));
        let found = findings("here", &hosts(&["127.0.0.1", "127.0.0.2"]), &agent);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(
            (found[0].kind, &found[0].hosts[0][..]),
            (FindingKind::DifferentName, "127.0.0.2")
        );
    }
}
