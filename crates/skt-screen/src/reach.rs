//! Checks the hosts of a list before any rank runs there: their names, whether packets come back,
//! whether the agent of launchers reaches them, and what they know of each other's names.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::FileExt as _;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use nix::sys::memfd::{MFdFlags, memfd_create};

use skt_health::doctor::finding::{Finding, FindingKind};
use skt_health::doctor::names::{self, View};
use skt_host::child;
use skt_host::each::each;
use skt_launch::hosts::Host;
use skt_launch::links::{LinkState, Partner, connect};

/// The agent, unless the user names another: one that never asks for a password.
pub const AGENT: &str = "ssh -o BatchMode=yes";
/// The longest time for all questions to a host.
const PATIENCE: Duration = Duration::from_secs(30);
/// Names in a question, which is one argument of the agent: Linux allows 128 KiB, and names have at
/// most 255 bytes. Hosts are asked about these parts of the names in turn.
const MAX_NAMES: usize = 256;

pub struct HostSurvey {
    pub findings: Vec<Finding>,
    /// What hosts call themselves, by their names in the list.
    pub own_names: BTreeMap<String, String>,
    /// Names that this host does not know, so that nothing it starts reaches them.
    pub unknown_here: Vec<String>,
}

/// Probes the hosts of a list from this host, which is called `here`, with the command `agent`.
pub fn survey(here: &str, hosts: &[Host], agent: &str) -> HostSurvey {
    let names: Vec<String> = hosts.iter().map(|host| host.name.clone()).collect();
    let view = names::look_up(here, &names);
    let (known, unknown): (Vec<&String>, Vec<&String>) =
        names.iter().partition(|name| view.names[*name].is_ok());
    let unknown_here = unknown.into_iter().cloned().collect();
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
    let (answers, lost) = ask_all(&alive, &names, agent, PATIENCE);
    found.extend(lost);
    let own = |answer: &Answer| Some((answer.view.host.clone(), answer.own_name.clone()?));
    let own_names = answers.iter().filter_map(own).collect();
    let views: Vec<View> = answers.into_iter().map(|answer| answer.view).chain([view]).collect();
    found.extend(names::findings(&views, true));
    HostSurvey { findings: found, own_names, unknown_here }
}

#[derive(Debug)]
struct Answer {
    view: View,
    /// What it calls itself, if it reports that.
    own_name: Option<String>,
}

fn out_of_reach(host: &str, what: &str, why: &str) -> Finding {
    let what = format!("{host} cannot be reached: {what}");
    let remedy = format!(
        "ping {host}; ssh {host} true, which must not ask anything; otherwise leave the host out of \
         the list"
    );
    let hosts = vec![host.to_owned()];
    Finding::new(FindingKind::OutOfReach, hosts, what, why.to_owned(), remedy, None)
}

/// Asks the hosts through the agent, all at once, each about some of the names and for at most
/// `patience`.
fn ask_all(
    hosts: &[String],
    names: &[String],
    agent: &str,
    patience: Duration,
) -> (Vec<Answer>, Vec<Finding>) {
    let parts: Vec<Vec<String>> = names.chunks(MAX_NAMES).map(<[String]>::to_vec).collect();
    let (agent, (sender, receiver)) = (agent.to_owned(), mpsc::channel());
    let work = move |(index, host): (usize, String)| {
        let answer = ask(&host, &parts[index % parts.len()], &agent, patience);
        sender.send((host, answer)).expect("the answers are awaited");
    };
    let started = each(hosts.iter().cloned().enumerate().collect(), work);
    let answers: BTreeMap<String, Result<Answer, String>> = match started {
        Ok(()) => receiver.into_iter().collect(),
        Err(why) => hosts.iter().map(|host| (host.clone(), Err(why.to_string()))).collect(),
    };
    let (mut received, mut lost) = (Vec::new(), Vec::new());
    for (host, answer) in answers {
        match answer {
            Ok(answer) => received.push(answer),
            Err(why) => lost.push(out_of_reach(&host, "the agent of launchers fails", &why)),
        }
    }
    (received, lost)
}

/// The last line of an answer begins with this; then comes what the host calls itself.
const END: &str = "= .";

/// The shell command for a host: prints a line for each name, and then its addresses. Names hold
/// nothing that means something to a shell ([`Host`]).
fn question(names: &[String]) -> String {
    let words = names.join(" ");
    format!(
        "for h in {words}; do echo \"= $h\"; getent ahosts $h; done; echo \"{END} $(uname -n)\""
    )
}

/// Asks one host about names. The name that it is looking up when the time is over counts as
/// unknown there; the answer leaves out the names after it.
fn ask(host: &str, names: &[String], agent: &str, patience: Duration) -> Result<Answer, String> {
    let text = run(host, &question(names), agent, patience)?;
    let late = format!("no answer in {patience:?}");
    let names = read_answer(&text, &late)
        .ok_or_else(|| format!("no answer of `{agent} {host}` in {patience:?}"))?;
    let own_name = text.lines().find_map(|line| line.strip_prefix(END));
    let own_name = own_name.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty());
    Ok(Answer { view: View { host: host.to_owned(), names }, own_name })
}

/// Runs a command on a host. Returns what it printed, also if it was killed for being late.
fn run(host: &str, question: &str, agent: &str, patience: Duration) -> Result<String, String> {
    let mut words = agent.split_whitespace();
    let program = words.next().ok_or("the agent is empty")?;
    let run = || -> io::Result<(Option<ExitStatus>, String, String)> {
        let (out, err) = (in_memory()?, in_memory()?);
        let mut command = Command::new(program);
        command.args(words).arg(host).arg(question).stdin(Stdio::null());
        command.stdout(out.try_clone()?).stderr(err.try_clone()?);
        let status = child::wait(&mut command.spawn()?, patience)?;
        Ok((status, printed(&out)?, printed(&err)?))
    };
    let (status, text, errors) = run().map_err(|why| format!("{program}: {why}"))?;
    match status {
        Some(status) if !text.lines().any(|line| line.starts_with(END)) => {
            Err(format!("{status}: {}", errors.lines().last().unwrap_or("no message")))
        }
        _ => Ok(text),
    }
}

/// A file in memory that an agent prints to. The end of a pipe would have to be waited for, and a
/// child of the agent may keep a pipe open for long: ssh leaves one that shares its connection.
fn in_memory() -> io::Result<File> {
    Ok(memfd_create("agent", MFdFlags::MFD_CLOEXEC)?.into())
}

fn printed(file: &File) -> io::Result<String> {
    let mut bytes = vec![0; file.metadata()?.len() as usize];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Reads the answers to [`question`]. The last answer may be cut off: its name then counts as
/// unknown, for the reason `late`. `None` if no answer has begun.
fn read_answer(
    text: &str,
    late: &str,
) -> Option<BTreeMap<String, Result<BTreeSet<IpAddr>, String>>> {
    let text = format!("\n{text}");
    let (whole, last) = text.rsplit_once("\n= ")?;
    let cut_off = last.lines().next().filter(|name| !name.starts_with('.'));
    let read = |answer: &str| {
        let mut lines = answer.lines();
        let name = lines.next().filter(|name| !name.starts_with('.'))?;
        let address = |line: &str| line.split_whitespace().next()?.parse().ok();
        let addresses: BTreeSet<IpAddr> = lines.filter_map(address).collect();
        let is_known = !addresses.is_empty();
        let unknown = || "getent ahosts finds no address".to_owned();
        Some((name.to_owned(), is_known.then_some(addresses).ok_or_else(unknown)))
    };
    let cut_off = cut_off.map(|name| (name.to_owned(), Err(late.to_owned())));
    Some(whole.split("\n= ").skip(1).filter_map(read).chain(cut_off).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For questions that end by themselves, however busy this machine is.
    const NO_LIMIT: Duration = Duration::from_secs(3600);

    #[test]
    fn an_answer_is_read_name_by_name() {
        let text = "welcome\n= n1\n10.0.0.1 STREAM n1\n10.0.0.1 DGRAM\n= n2\n= .\n";
        let read = |text: &str| read_answer(text, "late");
        let found = read(text).unwrap();
        assert_eq!(found["n1"], Ok(BTreeSet::from(["10.0.0.1".parse().unwrap()])));
        assert!(found["n2"].is_err() && found.len() == 2);
        let cut = &text[..text.len() - "= .\n".len()];
        let found = read(cut).unwrap();
        assert!(found["n1"].is_ok() && found["n2"] == Err("late".to_owned()), "{found:?}");
        assert_eq!(read("welcome\n"), None);
    }

    #[test]
    fn hosts_report_their_own_names() {
        let (_folder, agent) = agent("uname() { echo node7; }; eval \"$2\"\n");
        let found = survey("here", &hosts(&["127.0.0.1"]), &agent);
        assert_eq!(found.own_names, BTreeMap::from([("127.0.0.1".into(), "node7".into())]));
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
    fn a_host_out_of_reach_and_a_name_that_differs_are_found() {
        let denied = "[ $1 = 127.0.0.2 ] && echo Permission denied >&2 && exit 255; sh -c \"$2\"\n";
        let other = "echo '= 127.0.0.1'; echo '127.0.0.1 x'; echo '= 127.0.0.2'; \
                     echo '10.9.9.9 x'; echo '= .'\n";
        for (script, want) in [
            ("sh -c \"$2\"\n", None),
            (denied, Some((FindingKind::OutOfReach, "Permission denied"))),
            (other, Some((FindingKind::DifferentName, "10.9.9.9"))),
        ] {
            let (_folder, agent) = agent(script);
            let found = survey("here", &hosts(&["127.0.0.1", "127.0.0.2"]), &agent).findings;
            let kinds: Vec<_> = found.iter().map(|it| (it.kind, &it.hosts[0][..])).collect();
            assert_eq!(kinds, Vec::from_iter(want.map(|(kind, _)| (kind, "127.0.0.2"))));
            let words = |(_, words): (_, &str)| found[0].measured.contains(words);
            assert!(want.is_none_or(words), "{found:?}");
        }
    }

    #[test]
    fn an_agent_that_hangs_is_given_up() {
        let (_folder, agent) = agent("exec sleep 1000\n");
        let why = ask("n1", &["n1".to_owned()], &agent, Duration::from_millis(50)).unwrap_err();
        assert!(why.starts_with("no answer of `sh "), "{why}");
    }

    /// An ssh stays if its connection is kept open for others.
    #[test]
    fn a_child_of_the_agent_that_stays_is_not_waited_for() {
        // It ends with the folder, else after a minute.
        let child =
            "(i=0; while [ -e $0 ] && [ $((i+=1)) -lt 600 ]; do sleep 0.1; done; : > $0.end)";
        let (folder, agent) = agent(&format!("{child} & sh -c \"$2\"\n"));
        let view = ask("n1", &["127.0.0.1".to_owned()], &agent, NO_LIMIT).unwrap().view;
        assert!(view.names["127.0.0.1"].is_ok(), "{view:?}");
        assert!(!folder.path().join("agent.end").exists(), "the child was waited for");
    }

    /// A name server that is dead on one host takes all the time there.
    #[test]
    fn a_host_that_has_begun_to_answer_is_reached() {
        let stub = "getent() { [ $2 = n2 ] && kill -STOP $$; echo 10.0.0.1; }; eval \"$2\"\n";
        let (_folder, agent) = agent(stub);
        let names = ["n1", "n2", "n3"].map(str::to_owned);
        let mut patience = Duration::from_millis(50);
        let view = loop {
            match ask("n1", &names, &agent, patience) {
                Ok(answer) if answer.view.names["n1"].is_ok() => break answer.view,
                early => assert!(patience < NO_LIMIT, "{early:?}"),
            }
            patience *= 2;
        };
        assert_eq!(view.names["n2"], Err(format!("no answer in {patience:?}")));
        assert!(!view.names.contains_key("n3"), "no one has asked for it: {view:?}");
    }

    fn many_names(count: usize) -> Vec<String> {
        (0..count).map(|node| format!("rack-12-node-{node}")).collect()
    }

    #[test]
    fn each_host_is_asked_one_question_and_each_name_is_asked_for() {
        let (folder, agent) =
            agent("echo $1 >> $0.asked; getent() { echo 10.0.0.1; }; eval \"$2\"\n");
        let names = many_names(2 * MAX_NAMES + 1);
        let (answers, lost) = ask_all(&names[..7], &names, &agent, NO_LIMIT);
        assert_eq!((answers.len(), lost), (7, vec![]));
        let asked = std::fs::read_to_string(folder.path().join("agent.asked")).unwrap();
        assert_eq!(asked.lines().collect::<BTreeSet<_>>().len(), 7, "{asked}");
        assert_eq!(asked.lines().count(), 7, "{asked}");
        let asked_names: BTreeSet<_> =
            answers.iter().flat_map(|answer| answer.view.names.keys()).collect();
        assert_eq!(asked_names.len(), names.len());
    }
}
