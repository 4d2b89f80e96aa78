//! `screen --hosts`: tries which hosts of a list can be reached, starts the screening on those, and
//! again without a host whose ranks die.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{ChildStderr, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use super::hosts::Host;
use super::launcher::{self, JobSpec, Launcher};
use super::reach;
use crate::doctor::finding::{Finding, FindingKind};
use crate::machine::child;
use crate::report::heartbeat;
use crate::report::output;
use crate::screen::results::Results;
use crate::screen::run::unreached;

/// How long the launcher may take to end once it has nothing more to say.
const END_PATIENCE: Duration = Duration::from_secs(20);
/// Lines of the launcher that are kept to find the host that died.
const MOST_LINES: usize = 400;
/// The longest result: some thousand nodes.
const MOST_BYTES: u64 = 1 << 28;

/// How a screening is started.
pub struct Screening<'a> {
    /// The hosts of the list; on each, one rank is started.
    pub hosts: &'a [Host],
    /// This host's name.
    pub here: &'a str,
    /// What starts the ranks.
    pub launcher: Launcher,
    /// The launcher's program.
    pub program: &'a str,
    /// Further arguments of the launcher.
    pub extra: &'a [String],
    /// The command that runs a command on a host.
    pub agent: Option<&'a str>,
    /// The program and its arguments.
    pub command: &'a [String],
    /// The longest time of a start.
    pub longest: Duration,
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum ScreeningError {
    /// The launcher cannot be started, or its host file not be written.
    #[error("{program}: {source}")]
    Start {
        /// The launcher.
        program: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The launcher ended without a result, and no host is known to be the reason.
    #[error("{program} ended without a result ({how}), and names no host of the list")]
    NoResult {
        /// The launcher.
        program: String,
        /// How it ended.
        how: String,
    },
    /// The result cannot be read.
    #[error("the result cannot be read: {0}; do all hosts have the same program?")]
    Result(#[from] serde_json::Error),
}

/// Screens the hosts. Those that cannot be reached, or whose ranks die, are in the results with the
/// reason.
///
/// # Errors
/// When the launcher does not work.
pub fn run(job: &Screening) -> Result<Results, ScreeningError> {
    let (mut left, mut lost) = (job.hosts.to_vec(), Vec::new());
    lost.extend(take_unreachable(job, &mut left));
    while !left.is_empty() {
        let ended = start(job, &left)?;
        if let Some(mut results) = ended.results()? {
            results
                .nodes
                .extend(lost.iter().map(|(host, why): &(String, String)| unreached(host, why)));
            return Ok(results);
        }
        let mut gone = take_unreachable(job, &mut left);
        if gone.is_empty() {
            gone.extend(take_named(&ended.lines, &mut left));
        }
        if gone.is_empty() {
            let (program, how) = (job.program.to_owned(), ended.how);
            return Err(ScreeningError::NoResult { program, how });
        }
        for (host, why) in &gone {
            output::say(format_args!("screen: {host} is lost: {why}; again without it"));
        }
        lost.extend(gone);
    }
    let nodes = lost.iter().map(|(host, why)| unreached(host, why)).collect();
    Ok(Results { nodes, ..Results::default() })
}

/// Takes the hosts that cannot be reached out of the list; what else is found is told.
fn take_unreachable(job: &Screening, left: &mut Vec<Host>) -> Vec<(String, String)> {
    let found = reach::findings(job.here, left, job.agent.unwrap_or(reach::AGENT));
    let (lost, others): (Vec<Finding>, Vec<Finding>) =
        found.into_iter().partition(|finding| finding.kind == FindingKind::OutOfReach);
    for finding in others {
        output::say(format_args!("warning: {}: {}", finding.what, finding.measured));
    }
    let mut gone = Vec::new();
    for finding in lost {
        for host in finding.hosts {
            left.retain(|other| other.name != host);
            gone.push((host, format!("{}: {}", finding.what, finding.measured)));
        }
    }
    gone
}

/// Takes the host out of the list that the launcher names in a line about the end of a rank.
fn take_named(lines: &[String], left: &mut Vec<Host>) -> Option<(String, String)> {
    let (host, why) = named_host(lines, left)?;
    left.retain(|other| other.name != host);
    Some((host, why))
}

/// The first host of the list that a line about the end of a rank names, with the line.
fn named_host(lines: &[String], hosts: &[Host]) -> Option<(String, String)> {
    // Open MPI: `process rank 3 with PID 0 on node n4 exited on signal 9`, `Remote host: n4` of a
    // broken connection; Hydra: `RANK 3 PID 5 RUNNING AT n4`.
    const SIGNS: [&str; 5] = ["exited on", "RUNNING AT", "does not answer", "remote", "Remote"];
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    lines.iter().filter(|line| SIGNS.iter().any(|sign| line.contains(sign))).find_map(|line| {
        let mut words = line.split(|c: char| !is_name(c)).map(|word| word.trim_end_matches('.'));
        let host = words.find_map(|word| hosts.iter().find(|host| host.name == word))?;
        Some((host.name.clone(), line.trim().to_owned()))
    })
}

/// A start that has ended.
struct EndedStart {
    out: Vec<u8>,
    lines: Vec<String>,
    how: String,
}

impl EndedStart {
    /// The results, if rank 0 has written some.
    fn results(&self) -> Result<Option<Results>, ScreeningError> {
        let line = self.out.split(|byte| *byte == b'\n').find(|line| line.starts_with(b"{"));
        // A line that is cut was not written to its end.
        let whole = line.filter(|line| line.ends_with(b"}"));
        Ok(whole.map(serde_json::from_slice).transpose()?)
    }
}

/// Starts the ranks on these hosts, and waits for the end of the launcher.
fn start(job: &Screening, hosts: &[Host]) -> Result<EndedStart, ScreeningError> {
    let failed = |source| ScreeningError::Start { program: job.program.to_owned(), source };
    let hosts: Vec<Host> =
        hosts.iter().map(|host| Host { name: host.name.clone(), slots: 1 }).collect();
    let mut file = tempfile::NamedTempFile::new().map_err(failed)?;
    let plan = plan(job, &hosts, file.path());
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
    let out = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // What is missing is seen when the result is read.
        let _ = out.take(MOST_BYTES).read_to_end(&mut bytes);
        bytes
    });
    let err = std::thread::spawn(move || forward(err));
    let status = child::wait(&mut child, job.longest).map_err(failed)?;
    let how = status.map_or_else(
        || format!("no end in {:?}", job.longest),
        |status: ExitStatus| status.to_string(),
    );
    if status.is_none() {
        // Agents that hang may hold the pipes open, so they are not read to their end.
        return Ok(EndedStart { out: Vec::new(), lines: Vec::new(), how });
    }
    child::until(END_PATIENCE, || Ok(out.is_finished() && err.is_finished())).map_err(failed)?;
    Ok(EndedStart { out: read_by(out), lines: read_by(err), how })
}

/// What a thread has read; nothing if it still reads.
fn read_by<T: Default>(reader: JoinHandle<T>) -> T {
    if reader.is_finished() { reader.join().unwrap_or_default() } else { T::default() }
}

fn plan(job: &Screening, hosts: &[Host], hostfile: &Path) -> launcher::LauncherCommand {
    launcher::plan(
        &job.launcher,
        &JobSpec {
            ranks: hosts.len(),
            // More than one: the ranks are not bound, and have all cores of their hosts.
            threads: 2,
            helper_cores: 0,
            hosts,
            hostfile,
            command: job.command,
            agent: job.agent,
            program: Some(job.program),
            extra: job.extra,
            token: "screen",
        },
    )
}

/// Passes the lines of the launcher on, and returns the last ones.
fn forward(err: ChildStderr) -> Vec<String> {
    let mut lines = std::collections::VecDeque::new();
    for line in BufReader::new(err).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line).into_owned();
        if line.contains(heartbeat::MARK) {
            continue;
        }
        output::say(format_args!("{line}"));
        lines.push_back(line);
        if lines.len() > MOST_LINES {
            lines.pop_front();
        }
    }
    lines.into()
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
    fn screen(script: &str, names: &[&str]) -> Result<Results, ScreeningError> {
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
            here: "here",
            launcher: Launcher::Template(launcher::Template::new(&template).unwrap()),
            program: "launch",
            extra: &[],
            agent: Some(&agent),
            command: &["screen".to_owned()],
            longest: Duration::from_secs(20),
        })
    }

    #[test]
    fn a_screening_is_started_again_without_the_host_that_died() {
        let script = "if grep -q 127.0.0.2 $1; then\n\
                      echo 'process rank 1 on node 127.0.0.2 exited on signal 9' >&2; exit 137; fi\n\
                      echo '{\"n\":7,\"nodes\":[],\"joints\":[],\"links\":[]}'\n";
        let results = screen(script, &["127.0.0.1", "127.0.0.2"]).unwrap();
        assert_eq!((results.n, results.nodes.len()), (7, 1));
        let lost = &results.nodes[0];
        assert_eq!(lost.host, "127.0.0.2");
        assert!(lost.lost.as_deref().unwrap().ends_with("exited on signal 9"));
    }

    #[test]
    fn a_launcher_that_fails_for_no_host_is_an_error() {
        let error = screen("exit 3\n", &["127.0.0.1"]).unwrap_err().to_string();
        assert!(error.contains("without a result") && error.contains('3'), "{error}");
    }
}
