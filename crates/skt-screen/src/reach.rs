//! Checks the hosts of a list before any rank runs there: whether packets come back, and whether the
//! agent of launchers reaches them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use nix::sys::memfd::{MFdFlags, memfd_create};

use skt_health::doctor::finding::{Finding, FindingKind};
use skt_host::child;
use skt_host::each::each;
use skt_launch::hosts::Host;
use skt_launch::links::{LinkState, Partner, connect};

/// The agent, unless the user names another: one that never asks for a password.
pub const AGENT: &str = "ssh -o BatchMode=yes";
/// The longest time for the question to a host.
const PATIENCE: Duration = Duration::from_secs(30);

pub struct HostSurvey {
    /// The hosts that cannot be reached.
    pub lost: Vec<Finding>,
    /// What the others call themselves, by their names in the list.
    pub own_names: BTreeMap<String, String>,
}

/// Probes the hosts of a list from this host, with the command `agent`.
pub fn survey(hosts: &[Host], agent: &str) -> HostSurvey {
    let partner = |host: &Host| Partner { name: host.name.clone(), address: None };
    let links = connect::all(&hosts.iter().map(partner).collect::<Vec<_>>());
    let (mut lost, mut alive) = (Vec::new(), Vec::new());
    for link in links {
        match link.found {
            LinkState::Dead(why) => lost.push(out_of_reach(&link.to, "no packet comes back", why)),
            LinkState::Unknown(why) => lost.push(out_of_reach(&link.to, "no packet is sent", why)),
            LinkState::Alive => alive.push(link.to),
        }
    }
    let mut own_names = BTreeMap::new();
    for (host, answer) in ask_all(&alive, agent) {
        match answer {
            Ok(own_name) => _ = own_names.insert(host, own_name),
            Err(why) => lost.push(out_of_reach(&host, "the agent of launchers fails", why)),
        }
    }
    HostSurvey { lost, own_names }
}

fn out_of_reach(host: &str, what: &str, why: String) -> Finding {
    let what = format!("{host} cannot be reached: {what}");
    let remedy = format!(
        "ping {host}; ssh {host} true, which must not ask anything; otherwise leave the host out of \
         the list"
    );
    Finding::new(FindingKind::OutOfReach, vec![host.to_owned()], what, why, remedy, None)
}

/// Asks the hosts through the agent, all at once, what they call themselves.
fn ask_all(hosts: &[String], agent: &str) -> BTreeMap<String, Result<String, String>> {
    let (agent, (sender, receiver)) = (agent.to_owned(), mpsc::channel());
    let work = move |host: String| {
        let answer = ask(&host, &agent, PATIENCE);
        sender.send((host, answer)).expect("the answers are awaited");
    };
    match each(hosts.to_vec(), work) {
        Ok(()) => receiver.into_iter().collect(),
        Err(why) => hosts.iter().map(|host| (host.clone(), Err(why.to_string()))).collect(),
    }
}

/// The answer begins with this: an agent may print other lines.
const MARK: &str = "= ";

/// Asks a host what it calls itself.
fn ask(host: &str, agent: &str, patience: Duration) -> Result<String, String> {
    let mut words = agent.split_whitespace();
    let program = words.next().ok_or("the agent is empty")?;
    let run = || -> io::Result<_> {
        let (out, err) = (in_memory()?, in_memory()?);
        let mut command = Command::new(program);
        command.args(words).arg(host).arg(format!("echo \"{MARK}$(uname -n)\""));
        command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(err.try_clone()?);
        let status = child::wait(&mut command.spawn()?, patience)?;
        Ok((status, printed(&out)?, printed(&err)?))
    };
    let (status, text, errors) = run().map_err(|why| format!("{program}: {why}"))?;
    match (text.lines().find_map(|line| line.strip_prefix(MARK)), status) {
        (Some(own_name), _) => Ok(own_name.trim().to_owned()),
        (None, Some(status)) => {
            Err(format!("{status}: {}", errors.lines().last().unwrap_or("no message")))
        }
        (None, None) => Err(format!("no answer of `{agent} {host}` in {patience:?}")),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// An agent that runs the command here, under `sh -c`, and leaves out the host's name.
    fn agent(script: &str) -> (tempfile::TempDir, String) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("agent");
        std::fs::write(&path, script).unwrap();
        let command = format!("sh {}", path.display());
        (folder, command)
    }

    #[test]
    fn hosts_out_of_reach_are_named() {
        let denied = "[ $1 = 127.0.0.2 ] && echo Permission denied >&2 && exit 255\n\
                      uname() { echo node7; }; echo welcome; eval \"$2\"\n";
        let (_folder, agent) = agent(denied);
        let host = |name: &str| Host { name: name.to_owned(), slots: 1 };
        let found = survey(&["127.0.0.1", "127.0.0.2", "n.invalid"].map(host), &agent);
        let lost: Vec<_> = found.lost.iter().map(|it| (&it.hosts[0][..], &it.what[..])).collect();
        let want = [
            ("n.invalid", "n.invalid cannot be reached: no packet is sent"),
            ("127.0.0.2", "127.0.0.2 cannot be reached: the agent of launchers fails"),
        ];
        assert_eq!(lost, want);
        assert!(found.lost[1].measured.contains("Permission denied"), "{:?}", found.lost);
        assert_eq!(found.own_names, BTreeMap::from([("127.0.0.1".into(), "node7".into())]));
    }

    #[test]
    fn an_agent_that_hangs_is_given_up() {
        let (_folder, agent) = agent("exec sleep 1000\n");
        let why = ask("n1", &agent, Duration::from_millis(50)).unwrap_err();
        assert!(why.starts_with("no answer of `sh "), "{why}");
    }

    /// An ssh stays if its connection is kept open for others.
    #[test]
    fn a_child_of_the_agent_that_stays_is_not_waited_for() {
        // It ends with the folder, else after a minute.
        let child =
            "(i=0; while [ -e $0 ] && [ $((i+=1)) -lt 600 ]; do sleep 0.1; done; : > $0.end)";
        let (folder, agent) = agent(&format!("{child} & sh -c \"$2\"\n"));
        assert!(ask("n1", &agent, Duration::from_secs(3600)).is_ok());
        assert!(!folder.path().join("agent.end").exists(), "the child was waited for");
    }
}
