//! What differs where the ranks run a program of the user (`launch --program`) and not the
//! benchmark: the command line of a rank, and what the ends of the ranks mean.
//!
//! A launcher's exit code does not distinguish a lost node from a program that refuses its input,
//! and launchers differ. So [`run`] starts the program on each rank, and writes how it
//! ended as a record on standard error, which every launcher forwards.

use super::process::{self, PROGRAM_ENV, RANK_COMM};
use nix::sys::prctl;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use serde::{Deserialize, Serialize};
use skt_checkpoint::heartbeat::{self, Heartbeat};
use skt_checkpoint::heartbeat::{find_marked, marked_line};
use skt_host::exit::Exit;
use skt_host::launcher_rank;
use skt_host::shown::shown_message;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};

/// The mark at the start of a record.
pub(super) const MARK: &str = "@skt-hpl-rank@";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// The program's file; each node has it under the same path.
    pub file: PathBuf,
    /// The checksum of the file, which each node must have.
    pub checksum: u64,
}

/// The command line of a rank: this program's file, which starts that of the user. The arguments
/// are texts of words.
pub fn command(own_file: &Path, program: &Program, arguments: &[String]) -> Vec<String> {
    let (own, file) = (own_file.display().to_string(), argument_to_text(program.file.as_os_str()));
    let mut command = vec![own, "rank".to_owned(), file];
    command.extend_from_slice(arguments);
    command
}

/// How a rank has ended, unless its launcher ended it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProcessEnd {
    Code(u8),
    Signal(i32),
    Unstarted(String),
}

impl ProcessEnd {
    /// The exit code by which a shell reports this end.
    pub(crate) fn shell_code(&self) -> u8 {
        /// The code of a program that cannot be started.
        const UNSTARTED: u8 = 127;
        /// What is added to a signal.
        const SIGNALLED: u8 = 128;
        match self {
            Self::Code(code) => *code,
            Self::Signal(signal) => SIGNALLED | u8::try_from(*signal).unwrap_or(SIGNALLED),
            Self::Unstarted(_) => UNSTARTED,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankEnd {
    /// The token of the start, as in heartbeats.
    pub token: String,
    /// The rank, if its launcher reports it.
    pub rank: Option<usize>,
    pub host: String,
    pub end: ProcessEnd,
}

impl RankEnd {
    pub fn line(&self) -> String {
        marked_line(MARK, self)
    }

    /// Returns the record in a line, and the text before it. A record of a job with another token
    /// is ignored.
    pub fn find<'a>(line: &'a str, token: &str) -> Option<(&'a str, RankEnd)> {
        find_marked(line, MARK).filter(|(_, end): &(_, RankEnd)| end.token == token)
    }

    /// What has happened, in words.
    fn describe(&self) -> String {
        let rank = self.rank.map_or("a rank".to_owned(), |rank| format!("rank {rank}"));
        let host = shown_message(&self.host);
        match &self.end {
            ProcessEnd::Code(code) => format!("{rank} on {host} ended with code {code}"),
            ProcessEnd::Signal(signal) => format!("{rank} on {host} was killed by signal {signal}"),
            ProcessEnd::Unstarted(why) => {
                format!("{rank} on {host} did not start: {}", shown_message(why))
            }
        }
    }
}

#[derive(Debug, Default)]
pub struct Ends {
    done: usize,
    /// The first end by a signal other than `SIGPIPE` or the last by that, the first that asks for a new start, and the first of all others.
    killed: Option<RankEnd>,
    interrupted: Option<RankEnd>,
    refused: Option<RankEnd>,
}

/// What else is known of a job that has ended.
#[derive(Debug, Clone, Copy, Default)]
pub struct JobEnd {
    pub ranks: usize,
    pub launcher_succeeded: bool,
    /// Whether the checkpoint library has reported that all results are out.
    pub is_reported: bool,
    /// Whether the library has reported that a process of an earlier start was still running.
    pub is_changed: bool,
    /// Whether the supervisor has killed it for another reason than the end of a rank.
    pub was_killed: bool,
}

/// What a job's end means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProgramVerdict {
    Done,
    /// All is reported and nothing of the run is left to continue from, but not all ranks are known
    /// to have ended with 0: with this code, as a shell has it, if one is known, and what happened.
    Reported(Option<u8>, String),
    /// Something was lost, which this text describes if it is known: the program starts again.
    Lost(Option<String>),
    /// The program has refused with this code, unless a lost node explains it.
    Refused(u8, String),
}

impl Ends {
    pub fn note(&mut self, end: RankEnd) {
        let place = match end.end {
            ProcessEnd::Code(0) => {
                self.done += 1;
                return;
            }
            ProcessEnd::Code(code) if Exit::from_code(code) == Exit::Interrupted => {
                &mut self.interrupted
            }
            ProcessEnd::Code(_) | ProcessEnd::Unstarted(_) => &mut self.refused,
            ProcessEnd::Signal(_) => {
                // The signal of a rank that writes to one that is gone explains nothing.
                let is_pipe =
                    |end: &mut RankEnd| end.end == ProcessEnd::Signal(Signal::SIGPIPE as i32);
                self.killed.take_if(is_pipe);
                &mut self.killed
            }
        };
        place.get_or_insert(end);
    }

    /// Whether a rank has ended so that the job cannot continue.
    pub(crate) fn has_failed(&self) -> bool {
        self.killed.is_some() || self.interrupted.is_some() || self.refused.is_some()
    }

    /// The meaning of the job's end. One rank that reports what has happened is enough, as the
    /// launcher ends the others then. A signal counts before a code, since ranks whose messages
    /// fail may end with any code.
    pub fn verdict(&self, job: &JobEnd) -> ProgramVerdict {
        let words = |end: &Option<RankEnd>| end.as_ref().map(RankEnd::describe);
        let lost = words(&self.killed).or_else(|| words(&self.interrupted));
        let all_done = self.done >= job.ranks || (self.done > 0 && job.launcher_succeeded);
        match &self.refused {
            None if all_done && lost.is_none() => ProgramVerdict::Done,
            refused if job.is_reported => {
                let end = self.killed.as_ref().or(self.interrupted.as_ref()).or(refused.as_ref());
                let words = end.map_or_else(|| self.describe_unknown(job.ranks), RankEnd::describe);
                ProgramVerdict::Reported(end.map(|end| end.end.shell_code()), words)
            }
            Some(end) if lost.is_none() && !job.was_killed && !job.is_changed => {
                let code = match end.end {
                    ProcessEnd::Code(code) => code,
                    ProcessEnd::Signal(_) | ProcessEnd::Unstarted(_) => Exit::BadInput.code(),
                };
                ProgramVerdict::Refused(code, end.describe())
            }
            _ => ProgramVerdict::Lost(lost),
        }
    }

    /// What is known where no rank has reported how the program failed.
    fn describe_unknown(&self, ranks: usize) -> String {
        let unknown = ranks.saturating_sub(self.done);
        format!(
            "{unknown} of {ranks} ranks have not reported how they ended: a node is lost, or the \
             launcher has ended them"
        )
    }
}

/// Begins the text of a word that is not UTF-8, or that begins like this. The state, its events and
/// the command lines of launchers and agents are UTF-8, and the name and the arguments of the user's
/// program need not be.
const BYTES_MARK: &str = "@skt-hpl-bytes@";

/// Returns a word as text, from which [`argument_from_text`] makes it again.
pub fn argument_to_text(word: &OsStr) -> String {
    match word.to_str() {
        Some(text) if !text.starts_with(BYTES_MARK) => text.to_owned(),
        _ => word.as_bytes().iter().fold(BYTES_MARK.to_owned(), |mut text, byte| {
            if byte.is_ascii_alphanumeric() || b"-._/".contains(byte) {
                text.push(char::from(*byte));
            } else {
                write!(text, "%{byte:02X}").expect("there is memory");
            }
            text
        }),
    }
}

/// Returns the word of which [`argument_to_text`] has made `text`; any other text is a word itself.
pub fn argument_from_text(text: &OsStr) -> OsString {
    let escaped = text.to_str().and_then(|text| text.strip_prefix(BYTES_MARK));
    escaped.and_then(unescaped).map_or_else(|| text.to_owned(), OsString::from_vec)
}

fn unescaped(text: &str) -> Option<Vec<u8>> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        bytes.push(u8::from_str_radix(part.get(..2)?, 16).ok()?);
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    Some(bytes)
}

/// Whether the launcher, or a probe, has asked this rank to end.
static ASKED: AtomicBool = AtomicBool::new(false);

extern "C" fn note(_: libc::c_int) {
    ASKED.store(true, Ordering::Relaxed);
}

extern "C" fn ignore(_: libc::c_int) {}

/// Runs a program with its arguments to its end; returns its exit code, as a shell would.
pub fn run(program: &OsString, arguments: &[OsString]) -> u8 {
    // In lists of processes this name distinguishes this process from the program.
    let _ = prctl::set_name(RANK_COMM);
    if let Err(error) = listen() {
        return report_end(ProcessEnd::Unstarted(format!("signals: {error}")));
    }
    let mut command = Command::new(program);
    command.args(arguments).env(PROGRAM_ENV, "1");
    // SAFETY: between fork and exec the closure makes one system call, which is async-signal-safe.
    unsafe {
        command.pre_exec(|| prctl::set_pdeathsig(Signal::SIGKILL).map_err(io::Error::from));
    }
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            let why = format!("{}: {error}", program.display());
            return report_end(ProcessEnd::Unstarted(why));
        }
    };
    report_start();
    match child.wait() {
        Ok(status) => ended(status),
        Err(error) => report_end(ProcessEnd::Unstarted(format!("it is lost: {error}"))),
    }
}

/// Reports on the job's rank 0 that its program has started.
fn report_start() {
    if launcher_rank::rank().unwrap_or(0) == 0
        && let Ok(token) = std::env::var(heartbeat::ENV)
    {
        Heartbeat { elapsed_seconds: 0.0, ..Heartbeat::new(token, 0, "start") }.write();
    }
}

/// Lets this process survive the launcher's signals, to report the program's end. The program gets
/// them itself, because they go to the whole process group.
fn listen() -> nix::Result<()> {
    use Signal::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU};
    let ask = SigHandler::Handler(note);
    let pass = SigHandler::Handler(ignore);
    let asked = [SIGTERM, SIGINT, SIGHUP, SIGXCPU].map(|signal| (signal, ask));
    for (signal, handler) in asked.into_iter().chain([(SIGUSR1, pass), (SIGUSR2, pass)]) {
        let action = SigAction::new(handler, SaFlags::SA_RESTART, SigSet::empty());
        // SAFETY: the handlers change an atomic word at most, which is allowed in signal context.
        unsafe { sigaction(signal, &action) }?;
    }
    Ok(())
}

fn ended(status: ExitStatus) -> u8 {
    let end = match status.code() {
        Some(code) => ProcessEnd::Code(code as u8),
        None => ProcessEnd::Signal(status.signal().unwrap_or(0)),
    };
    // A program that was asked to end may end in any way: only a code of 0 counts as its own word.
    if ASKED.load(Ordering::Relaxed) && end != ProcessEnd::Code(0) {
        return end.shell_code();
    }
    report_end(end)
}

/// Writes the record of this rank's end, in one write, and returns the exit code.
fn report_end(end: ProcessEnd) -> u8 {
    let code = end.shell_code();
    let token = std::env::var(heartbeat::ENV).unwrap_or_default();
    let (rank, host) = (launcher_rank::rank(), process::this_host());
    let record = RankEnd { token, rank, host, end };
    let _ = io::stderr().lock().write_all(record.line().as_bytes());
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(rank: usize, end: ProcessEnd) -> RankEnd {
        RankEnd { token: "r.1.3".into(), rank: Some(rank), host: format!("n{rank}"), end }
    }

    fn verdict(ends: &[RankEnd], job: JobEnd) -> ProgramVerdict {
        let mut all = Ends::default();
        ends.iter().cloned().for_each(|end| all.note(end));
        all.verdict(&JobEnd { ranks: 3, ..job })
    }

    fn done(ranks: usize) -> Vec<RankEnd> {
        (0..ranks).map(|rank| end(rank, ProcessEnd::Code(0))).collect()
    }

    #[test]
    fn record_is_found_after_an_open_line_by_its_token() {
        let known = end(2, ProcessEnd::Signal(9));
        let line = format!("12% {}", known.line());
        assert_eq!(RankEnd::find(&line, "r.1.3"), Some(("12% ", known)));
        assert_eq!(RankEnd::find(&line, "r.2.3"), None);
        assert_eq!(RankEnd::find("plain", "r.1.3"), None);
    }

    #[test]
    fn program_is_done_when_its_ranks_report_so() {
        let nothing = JobEnd::default();
        let succeeded = JobEnd { launcher_succeeded: true, ..nothing };
        assert_eq!(verdict(&done(3), nothing), ProgramVerdict::Done);
        assert_eq!(verdict(&[], succeeded), ProgramVerdict::Lost(None));
        assert_eq!(verdict(&done(2), nothing), ProgramVerdict::Lost(None));
        assert_eq!(verdict(&done(2), succeeded), ProgramVerdict::Done, "a record may be lost");
    }

    #[test]
    fn exit_code_of_the_program_counts_unless_it_was_killed() {
        let nothing = JobEnd::default();
        let refused = end(1, ProcessEnd::Code(3));
        let word = ProgramVerdict::Refused(3, "rank 1 on n1 ended with code 3".into());
        assert_eq!(verdict(std::slice::from_ref(&refused), nothing), word);
        let killed = ProgramVerdict::Lost(Some("rank 2 on n2 was killed by signal 9".into()));
        assert_eq!(verdict(&[refused.clone(), end(2, ProcessEnd::Signal(9))], nothing), killed);
        let pipe = end(0, ProcessEnd::Signal(13));
        assert_eq!(verdict(&[pipe.clone(), end(2, ProcessEnd::Signal(9)), pipe], nothing), killed);
        let again = ProgramVerdict::Lost(Some("rank 0 on n0 ended with code 75".into()));
        assert_eq!(verdict(&[end(0, ProcessEnd::Code(75)), refused.clone()], nothing), again);
        for explained in
            [JobEnd { was_killed: true, ..nothing }, JobEnd { is_changed: true, ..nothing }]
        {
            assert_eq!(
                verdict(std::slice::from_ref(&refused), explained),
                ProgramVerdict::Lost(None)
            );
        }
        let missing = verdict(&[end(0, ProcessEnd::Unstarted("no such file".into()))], nothing);
        let words = "rank 0 on n0 did not start: no such file";
        assert_eq!(missing, ProgramVerdict::Refused(2, words.into()));
    }

    #[test]
    fn failure_after_the_report_is_no_success() {
        let reported = JobEnd { is_reported: true, ..JobEnd::default() };
        let is_reported = |ends: &[RankEnd], job, code, words: &str| {
            assert_eq!(verdict(ends, job), ProgramVerdict::Reported(code, words.into()));
        };
        assert_eq!(verdict(&done(3), reported), ProgramVerdict::Done);
        let killed = end(2, ProcessEnd::Signal(11));
        let words = "rank 2 on n2 was killed by signal 11";
        is_reported(std::slice::from_ref(&killed), reported, Some(139), words);
        let refused = end(1, ProcessEnd::Code(3));
        is_reported(&[refused.clone(), killed], reported, Some(139), words);
        let words = "rank 1 on n1 ended with code 3";
        is_reported(&[done(1), vec![refused]].concat(), reported, Some(3), words);
        let again = end(0, ProcessEnd::Code(75));
        is_reported(&[again], reported, Some(75), "rank 0 on n0 ended with code 75");
        let job = JobEnd { was_killed: true, ..reported };
        let words = "1 of 3 ranks have not reported how they ended: a node is lost, or the launcher has ended them";
        is_reported(&done(2), job, None, words);
    }

    #[test]
    fn a_rank_starts_the_users_program_with_its_arguments() {
        let program = Program { file: "/home/me/heat".into(), checksum: 7 };
        let command = command(Path::new("/opt/skt-hpl"), &program, &["--steps".into(), "9".into()]);
        assert_eq!(command, ["/opt/skt-hpl", "rank", "/home/me/heat", "--steps", "9"]);
    }

    #[test]
    fn argument_of_any_bytes_survives_a_round_trip() {
        let all: Vec<u8> = (1..=255).collect();
        let mark = BYTES_MARK.as_bytes();
        let words: [&[u8]; 8] = [
            b"",
            b"--n=5 % '\n",
            "caf\u{e9}".as_bytes(),
            b"caf\xe9",
            b"/opt/caf\xe9 100%/a.out",
            mark,
            &[mark, b"%41"].concat(),
            &all,
        ];
        for word in words {
            let word = OsStr::from_bytes(word);
            assert_eq!(argument_from_text(OsStr::new(&argument_to_text(word))), word);
        }
        assert_eq!(argument_to_text(OsStr::new("caf\u{e9} %")), "caf\u{e9} %");
        assert_eq!(
            argument_to_text(OsStr::from_bytes(b"/caf\xe9 1")),
            "@skt-hpl-bytes@/caf%E9%201"
        );
        for other in ["@skt-hpl-bytes@%", "@skt-hpl-bytes@%4\u{e9}", "@skt-hpl-bytes@%g0"] {
            assert_eq!(argument_from_text(OsStr::new(other)), other);
        }
    }
}
