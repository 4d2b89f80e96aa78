//! `screen --hosts`: tries which hosts of a list can be reached, starts the screening on those, and
//! again without a host whose ranks die.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, BufRead as _, BufReader, Read, Write as _};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::results::Results;
use crate::run::unreached;
use crate::{Failed, reach};
use skt_checkpoint::heartbeat;
use skt_host::{child, messages, program};
use skt_launch::hosts::Host;
use skt_launch::launcher::{self, JobSpec, Launcher};
use skt_launch::process;

/// How long a launcher may take to end once it has no more output.
pub const END_PATIENCE: Duration = Duration::from_secs(20);
/// Lines of the launcher that are kept to find the host that died.
const MAX_LINES: usize = 400;
const MAX_BYTES: u64 = 1 << 28;

pub struct Screening<'a> {
    /// The hosts of the list; on each, one rank is started.
    pub hosts: &'a [Host],
    pub launcher: Launcher,
    pub program: &'a str,
    pub extra: &'a [String],
    pub agent: Option<&'a str>,
    /// The agent that the launcher has chosen, if it is not the usual one.
    pub launcher_agent: Option<&'a str>,
    pub command: &'a [String],
    pub longest: Duration,
    /// How long the launcher may take to end once it has no more output.
    pub end_patience: Duration,
}

impl<'a> Screening<'a> {
    fn agent(&self) -> &'a str {
        self.agent.or(self.launcher_agent).unwrap_or(reach::AGENT)
    }
}

#[derive(Debug)]
pub struct Screened {
    pub results: Results,
    /// What hosts call themselves, by their names in the list.
    pub own_names: BTreeMap<String, String>,
}

/// Screens the hosts. Those that cannot be reached, or whose ranks die, are in the results with the
/// reason.
pub fn run(job: &Screening) -> Result<Screened, Failed> {
    let agent = job.agent();
    let agent = agent.split_whitespace().next().unwrap_or(agent);
    if !is_program(agent) {
        return Err(Failed::new(format!(
            "{agent}: is not found on this host: install it, or name another with --agent"
        )));
    }
    let (mut left, mut lost) = (job.hosts.to_vec(), Vec::new());
    let mut own_names = BTreeMap::new();
    lost.extend(take_unreachable(job, &mut left, &mut own_names));
    while !left.is_empty() {
        let ended = start(job, &left)?;
        if let Some(mut results) = ended.results {
            results
                .nodes
                .extend(lost.iter().map(|(host, why): &(String, String)| unreached(host, why)));
            return Ok(Screened { results, own_names });
        }
        let mut gone = take_unreachable(job, &mut left, &mut own_names);
        if gone.is_empty() {
            gone.extend(named_host(&ended.lines, &left));
            left.retain(|host| !gone.iter().any(|(name, _)| *name == host.name));
        }
        if gone.is_empty() {
            let (program, how) = (job.program, ended.how);
            return Err(Failed::new(format!(
                "{program} ended without a result ({how}), and names no host of the list"
            )));
        }
        for (host, why) in &gone {
            messages::print(format_args!("screen: {host} is lost: {why}; again without it"));
        }
        lost.extend(gone);
    }
    let nodes = lost.iter().map(|(host, why)| unreached(host, why)).collect();
    Ok(Screened { results: Results { nodes, ..Results::default() }, own_names })
}

fn is_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    program::found_in_path(Path::new(name), path).is_some_and(|file| file.is_file())
}

/// Takes unreachable hosts out of the list. Adds what the others call themselves to `own_names`.
fn take_unreachable(
    job: &Screening,
    left: &mut Vec<Host>,
    own_names: &mut BTreeMap<String, String>,
) -> Vec<(String, String)> {
    let survey = reach::survey(left, job.agent());
    own_names.extend(survey.own_names);
    let gone = survey.lost.into_iter().map(|mut finding| {
        (finding.hosts.remove(0), format!("{}: {}", finding.what, finding.measured))
    });
    let gone: Vec<(String, String)> = gone.collect();
    left.retain(|host| !gone.iter().any(|(name, _)| *name == host.name));
    gone
}

/// The first host of the list that a line about the end of a rank names, with the line.
fn named_host<'l>(
    lines: impl IntoIterator<Item = &'l String>,
    hosts: &[Host],
) -> Option<(String, String)> {
    // Open MPI: `process rank 3 with PID 0 on node n4 exited on signal 9`, `Remote host: n4` of a
    // broken connection; Hydra: `RANK 3 PID 5 RUNNING AT n4`.
    const SIGNS: [&str; 5] = ["exited on", "RUNNING AT", "does not answer", "remote", "Remote"];
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    let about_ends = lines.into_iter().filter(|line| SIGNS.iter().any(|it| line.contains(it)));
    { about_ends }.find_map(|line| {
        let mut words = line.split(|c: char| !is_name(c)).map(|word| word.trim_end_matches('.'));
        let host = words.find_map(|word| hosts.iter().find(|host| host.name == word))?;
        Some((host.name.clone(), line.trim().to_owned()))
    })
}

struct EndedStart {
    /// What rank 0 has written, if it has.
    results: Option<Results>,
    lines: VecDeque<String>,
    how: String,
}

/// Reads at most `max_bytes` of `pipe` on a thread, and calls `take` with each line: a child of the
/// launcher that hangs may hold the pipe open.
fn read_lines(
    pipe: impl Read + Send + 'static,
    max_bytes: u64,
    take: impl FnMut(Vec<u8>) + Send + 'static,
) -> JoinHandle<()> {
    let lines = BufReader::new(pipe.take(max_bytes)).split(b'\n').map_while(Result::ok);
    std::thread::spawn(move || lines.for_each(take))
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the ranks on these hosts, and waits for the end of the launcher.
fn start(job: &Screening, hosts: &[Host]) -> Result<EndedStart, Failed> {
    let failed = |why: io::Error| Failed::new(format!("{}: {why}", job.program));
    let hosts: Vec<Host> =
        hosts.iter().map(|host| Host { name: host.name.clone(), slots: 1 }).collect();
    let mut file = tempfile::NamedTempFile::new().map_err(failed)?;
    // A name that no other process of this machine has.
    let run = file.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
    let plan = plan(job, &hosts, file.path(), &format!("{run}.1"));
    file.write_all(plan.hostfile.as_bytes()).map_err(failed)?;
    let mut child = Command::new(&plan.argv[0])
        .args(&plan.argv[1..])
        .envs(plan.env)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let out = child.stdout.take().expect("piped");
    let err = child.stderr.take().expect("piped");
    let result = Arc::new(Mutex::new(None));
    let lines = Arc::new(Mutex::new(VecDeque::new()));
    let (shared_result, shared_lines) = (Arc::clone(&result), Arc::clone(&lines));
    let out = read_lines(out, MAX_BYTES, move |line| {
        if line.starts_with(b"{") {
            lock(&shared_result).get_or_insert(line);
        }
    });
    let err = read_lines(err, u64::MAX, move |line| forward(&mut lock(&shared_lines), &line));
    let is_done = || Ok(child.try_wait()?.is_some() || lock(&result).is_some());
    child::until(job.longest, is_done).map_err(failed)?;
    // An agent that hangs may keep the launcher from ending although the result is there.
    let status = child::wait(&mut child, job.end_patience).map_err(failed)?;
    // Processes that the launcher left would hold its pipes open, and load the nodes.
    process::sweep_launcher(&run);
    let how = status.map_or_else(
        || format!("no end in {:?}", job.longest),
        |status: ExitStatus| status.to_string(),
    );
    let are_read = || Ok(out.is_finished() && err.is_finished());
    child::until(job.end_patience, are_read).map_err(failed)?;
    let lines = std::mem::take(&mut *lock(&lines));
    // A line that was not written to its end has no closing brace.
    let whole = lock(&result).take().filter(|line: &Vec<u8>| line.ends_with(b"}"));
    let results = whole.map(|line| serde_json::from_slice(&line)).transpose();
    let results = results.map_err(|why| {
        Failed::new(format!(
            "the result cannot be read: {why}; do all hosts have the same program?"
        ))
    })?;
    Ok(EndedStart { results, lines, how })
}

fn plan(
    job: &Screening,
    hosts: &[Host],
    hostfile: &Path,
    token: &str,
) -> launcher::LauncherCommand {
    launcher::plan(
        &job.launcher,
        &JobSpec {
            ranks: hosts.len(),
            // With more than one, the ranks are not bound, and have all cores of their hosts.
            threads: 2,
            helper_cores: 0,
            hosts,
            hostfile,
            command: job.command,
            agent: job.agent,
            program: Some(job.program),
            extra: job.extra,
            has_input: false,
            token,
            shares: false,
        },
    )
}

/// Passes a line of the launcher on, and adds it to the last ones.
fn forward(lines: &mut VecDeque<String>, line: &[u8]) {
    let line = String::from_utf8_lossy(line).into_owned();
    if line.contains(heartbeat::MARK) {
        return;
    }
    messages::print(format_args!("{line}"));
    lines.push_back(line);
    if lines.len() > MAX_LINES {
        lines.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(names: &[&str]) -> Vec<Host> {
        names.iter().map(|name| Host { name: (*name).to_owned(), slots: 1 }).collect()
    }

    #[test]
    fn launchers_name_the_host_that_died() {
        let hosts = hosts(&["n1", "n4", "n44"]);
        let named = |line: &str| named_host(&["# screen: on n1".into(), line.into()], &hosts);
        for line in [
            "mpirun noticed that process rank 3 with PID 0 on node n4 exited on signal 9 (Killed).",
            "=   RANK 3 PID 5 RUNNING AT n4",
            "  Remote host: n4",
        ] {
            assert_eq!(named(line).map(|it| it.0).as_deref(), Some("n4"), "{line}");
        }
        assert_eq!(named("process rank 3 on node n5 exited on signal 9"), None);
        assert_eq!(named("rank 1 on node n1 is well"), None);
    }

    /// A launcher that is a script; it gets the host file's path last but one before the command.
    fn screen(script: &str, names: &[&str]) -> Result<Results, Failed> {
        screen_within(END_PATIENCE, script, names)
    }

    fn screen_within(
        end_patience: Duration,
        script: &str,
        names: &[&str],
    ) -> Result<Results, Failed> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("launch");
        std::fs::write(&path, script).unwrap();
        let agent = folder.path().join("agent");
        std::fs::write(&agent, "sh -c \"$2\"\n").unwrap();
        let template = format!("sh {} {{hostfile}} {{command}}", path.display());
        let hosts = hosts(names);
        let agent = format!("sh {}", agent.display());
        run(&Screening {
            hosts: &hosts,
            launcher: Launcher::Template(launcher::Template::new(&template).unwrap()),
            program: "launch",
            extra: &[],
            agent: Some(&agent),
            launcher_agent: None,
            command: &["screen".to_owned()],
            longest: Duration::from_secs(600),
            end_patience,
        })
        .map(|screened| screened.results)
    }

    #[test]
    fn a_launcher_that_does_not_end_is_killed_and_its_results_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pid");
        let script = format!(
            "echo $$ >{}\n\
             echo '{{\"n\":7,\"nodes\":[],\"pairs\":[]}}'\n\
             exec sleep 600\n",
            file.display()
        );
        let patience = Duration::from_millis(100);
        assert_eq!(screen_within(patience, &script, &["127.0.0.1"]).unwrap().n, 7);
        let pid = std::fs::read_to_string(file).unwrap().trim().parse().unwrap();
        assert!(skt_host::process::Process::from_pid(pid).is_none(), "{pid} runs");
    }

    #[test]
    fn a_screening_is_started_again_without_the_host_that_died() {
        let script = "if grep -q 127.0.0.2 $1; then\n\
                      echo 'process rank 1 on node 127.0.0.2 exited on signal 9' >&2; exit 137; fi\n\
                      echo '{\"n\":7,\"nodes\":[],\"pairs\":[]}'\n";
        let results = screen(script, &["127.0.0.1", "127.0.0.2"]).unwrap();
        assert_eq!((results.n, results.nodes.len()), (7, 1));
        let lost = &results.nodes[0];
        assert_eq!(lost.host, "127.0.0.2");
        assert!(lost.lost.as_deref().unwrap().ends_with("exited on signal 9"));
    }

    #[test]
    fn programs_are_found_as_a_shell_finds_them() {
        assert!(is_program("sh") && is_program("/bin/sh"));
        assert!(!is_program("/bin") && !is_program("no-such-agent") && !is_program("/no/agent"));
    }

    #[test]
    fn a_host_whose_name_is_not_known_here_is_left_out() {
        let script = "if grep -q invalid $1; then exit 255; fi\n\
                      echo '{\"n\":7,\"nodes\":[],\"pairs\":[]}'\n";
        let results = screen(script, &["127.0.0.1", "n.invalid"]).unwrap();
        assert_eq!((results.n, results.nodes.len()), (7, 1));
        let lost = &results.nodes[0];
        assert_eq!(lost.host, "n.invalid");
        let why = lost.lost.as_deref().unwrap();
        assert!(why.starts_with("n.invalid cannot be reached: no packet is sent: "), "{why}");
    }

    #[test]
    fn a_launcher_that_fails_for_no_host_is_an_error() {
        let error = screen("exit 3\n", &["127.0.0.1"]).unwrap_err().to_string();
        assert!(error.contains("without a result") && error.contains('3'), "{error}");
    }
}
