//! Lines, which are connections to nodes: an agent such as ssh with `skt-hpl probe` at its far end.
//!
//! The probe answers the question that it was started with, and then those that come on its
//! standard input. The line is kept for the next question because an agent may take seconds to
//! reach a node that computes (ssh's handshake), and because all nodes are asked twice when one is
//! lost. Where an agent does not pass on standard input, the far end ends with its first answer,
//! and the next question gets a new line.

use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use skt_host::shown::shown_message;

use super::links::Partner;
use super::probe::{Answer, Purpose};

/// Number of lines kept at a time; each is a process on this machine. Further nodes get a new line
/// for each question.
const KEPT_MAX: usize = 128;
/// How often a kept line is used, so that no device on its way takes it for idle.
const KEEP_EVERY: Duration = Duration::from_secs(30);
/// After this time without a question the far end ends: its supervisor is gone without a last
/// packet.
const FAR_END_PATIENCE: Duration = Duration::from_secs(180);
/// The most bytes that are read from a line in search of an answer.
const BYTES_MAX: u64 = 1 << 20;

/// A line, and the question that waits for its answer.
#[derive(Debug)]
pub struct Line {
    child: Child,
    /// The agent's standard input, for further questions; `None` if the line is for one question.
    questions: Option<ChildStdin>,
    number: u64,
    asked: Instant,
    output: Vec<u8>,
    opening: Option<Duration>,
}

#[derive(Debug)]
pub(crate) enum Arrival {
    Nothing,
    Answer(Box<Answer>),
    /// The line has ended, for this reason.
    End(String),
}

impl Line {
    /// Opens a line with the program and arguments `argv`, which contain the first question. A line
    /// that `is_kept` takes further questions.
    pub(crate) fn open(argv: &[String], is_kept: bool) -> io::Result<Self> {
        let mut command = Command::new(&argv[0]);
        command.args(&argv[1..]).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.stdin(if is_kept { Stdio::piped() } else { Stdio::null() });
        // Before the agent runs, so that all of its time counts.
        let asked = Instant::now();
        // A separate process group for the agent, so that its children can be ended too.
        let mut child = command.process_group(0).spawn()?;
        let questions = child.stdin.take();
        // The supervisor never waits for the agent.
        let outputs =
            [child.stdout.as_ref().map(AsFd::as_fd), child.stderr.as_ref().map(AsFd::as_fd)];
        for pipe in outputs.into_iter().chain([questions.as_ref().map(AsFd::as_fd)]).flatten() {
            fcntl(pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        }
        Ok(Self { child, questions, number: 0, asked, output: Vec::new(), opening: None })
    }

    pub(crate) fn is_kept(&self) -> bool {
        self.questions.is_some()
    }

    /// How long the first answer took, including the time to reach the node; `None` before it.
    pub(crate) fn opening(&self) -> Option<Duration> {
        self.opening
    }

    /// Asks a further question; returns false if this line cannot take it. A late answer to the
    /// previous question is ignored.
    pub(crate) fn ask(&mut self, purpose: Purpose, partners: &[Partner]) -> bool {
        self.number += 1;
        self.asked = Instant::now();
        self.output.clear();
        let partners: String = partners.iter().map(|partner| format!(" {partner}")).collect();
        self.send(&format!("{} {purpose}{partners}", self.number))
    }

    /// Sends a line of text; returns false if the line has ended, or takes one question only.
    fn send(&mut self, text: &str) -> bool {
        let is_written = self.questions.as_mut().is_some_and(|way| writeln!(way, "{text}").is_ok());
        is_written && matches!(self.child.try_wait(), Ok(None))
    }

    /// Reads what has arrived, without waiting.
    pub(crate) fn receive(&mut self) -> Arrival {
        // The status is taken before reading: all that an ended agent has written is then there to
        // be read.
        let status = self.child.try_wait();
        if let Some(out) = &mut self.child.stdout {
            let room = BYTES_MAX.saturating_sub(self.output.len() as u64);
            // Where no data is left, the read fails and keeps what it has read.
            let _ = out.take(room).read_to_end(&mut self.output);
        }
        if let Some(answer) = Answer::find(&String::from_utf8_lossy(&self.output), self.number) {
            self.opening.get_or_insert(self.asked.elapsed());
            return Arrival::Answer(Box::new(answer));
        }
        match status {
            Ok(None) => Arrival::Nothing,
            Ok(Some(status)) => Arrival::End(format!("probe: {status}; {}", self.complaint())),
            Err(error) => Arrival::End(error.to_string()),
        }
    }

    /// The last line on the standard error of an agent that has ended.
    fn complaint(&mut self) -> String {
        let mut output = Vec::new();
        if let Some(err) = &mut self.child.stderr {
            // A child of the agent may hold the pipe open, so nothing waits for its end.
            let _ = err.take(BYTES_MAX).read_to_end(&mut output);
        }
        let output = String::from_utf8_lossy(&output);
        let last = output.lines().rfind(|line| !line.trim().is_empty());
        last.map_or("no answer at all: does skt-hpl run there?".into(), shown_message)
    }
}

impl Drop for Line {
    /// Ends the agent. The far end sees the end of its standard input and ends, too.
    fn drop(&mut self) {
        // The system keeps the id of an agent that has not been waited for.
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = killpg(Pid::from_raw(self.child.id() as i32), Signal::SIGKILL);
        }
        let _ = self.child.wait();
    }
}

/// Lines that wait for a question, by the names of their nodes.
#[derive(Debug, Default)]
pub struct IdleLines {
    idle: BTreeMap<String, Line>,
    kept: Option<Instant>,
    /// The arguments of the probes at their far ends.
    arguments: Vec<String>,
}

impl IdleLines {
    /// Drops the lines whose probes were started with other arguments. What a further question does
    /// not contain, as where the run keeps its data, stays as it was when the line was opened.
    pub(crate) fn use_for(&mut self, arguments: &[String]) {
        if self.arguments != arguments {
            self.idle.clear();
            self.arguments = arguments.to_vec();
        }
    }

    /// Takes the line to the node `name` out, if there is one.
    pub(crate) fn take(&mut self, name: &str) -> Option<Line> {
        self.idle.remove(name)
    }

    /// Keeps the line to a node for the next question, if the line takes one.
    pub(crate) fn keep(&mut self, name: &str, line: Line) {
        if line.is_kept() {
            self.idle.insert(name.to_owned(), line);
        }
    }

    /// Whether one more line may be kept in addition to `others` that are in use.
    pub(crate) fn has_room(&self, others: usize) -> bool {
        self.idle.len() + others < KEPT_MAX
    }

    /// Every half minute, sends a blank line on each idle line, and drops the lines that have
    /// ended.
    pub(crate) fn keep_alive(&mut self) {
        if self.kept.is_some_and(|kept| kept.elapsed() < KEEP_EVERY) {
            return;
        }
        self.kept = Some(Instant::now());
        self.idle.retain(|_, line| line.send(""));
    }
}

/// Reads further questions, with their numbers, from standard input at the far end: until it ends,
/// contains something else, or nothing has come for three minutes.
pub fn further_questions() -> impl Iterator<Item = (u64, Purpose, Vec<Partner>)> {
    let (sender, receiver) = mpsc::channel();
    // The receiver is gone when the process ends.
    std::thread::spawn(move || {
        io::stdin().lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
    });
    let lines = std::iter::from_fn(move || receiver.recv_timeout(FAR_END_PATIENCE).ok());
    // An empty line only keeps the connection in use.
    lines.filter(|line| !line.is_empty()).map_while(|line| {
        let mut words = line.split(' ');
        let number = words.next()?.parse().ok()?;
        let purpose = Purpose::named(words.next()?)?;
        let partners = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
        Some((number, purpose, partners))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(script: &str, is_kept: bool) -> Line {
        Line::open(&["/bin/sh".into(), "-c".into(), script.to_owned()], is_kept).unwrap()
    }

    fn answer(question: &str) -> String {
        let line = crate::tests::answer().line();
        format!("echo '{}'", line.trim_end().replace("\"question\":0", question))
    }

    /// What is received within a minute.
    fn receive_within_a_minute(line: &mut Line) -> Arrival {
        let start = Instant::now();
        loop {
            match line.receive() {
                Arrival::Nothing if start.elapsed() < Duration::from_secs(60) => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                receive_within_a_minute => return receive_within_a_minute,
            }
        }
    }

    #[test]
    fn line_answers_questions_in_order() {
        let echo = answer("\"question\":'$number'");
        let script = format!("number=0; {echo}; while read number purpose; do {echo}; done");
        let mut line = line(&script, true);
        assert!(matches!(receive_within_a_minute(&mut line), Arrival::Answer(_)));
        for _ in 0..3 {
            assert!(line.ask(Purpose::Check, &[]));
            assert!(matches!(receive_within_a_minute(&mut line), Arrival::Answer(_)));
        }
        assert!(line.opening().is_some());
    }

    #[test]
    fn lines_are_kept_for_probes_with_the_same_arguments() {
        let mut lines = IdleLines::default();
        let arguments = |store: &str| ["--run=a".to_owned(), format!("--store={store}")];
        lines.use_for(&arguments("sysv"));
        lines.keep("n1", line("cat", true));
        lines.use_for(&arguments("sysv"));
        let kept = lines.take("n1").expect("the same arguments");
        lines.keep("n1", kept);
        lines.use_for(&arguments("posix"));
        assert!(lines.take("n1").is_none());
    }

    #[test]
    fn late_answer_does_not_count_for_the_next_question() {
        let (first, second) = (answer("\"question\":0"), answer("\"question\":1"));
        let script = format!("read x; {first}; read x; {second}; read x");
        let mut line = line(&script, true);
        assert!(matches!(line.receive(), Arrival::Nothing));
        // The answer to the first question comes only now.
        assert!(line.ask(Purpose::Start, &[]));
        std::thread::sleep(Duration::from_millis(200));
        assert!(matches!(line.receive(), Arrival::Nothing));
        line.questions.as_mut().unwrap().write_all(b"\n").unwrap();
        assert!(matches!(receive_within_a_minute(&mut line), Arrival::Answer(_)));
    }

    #[test]
    fn a_line_whose_far_end_has_ended_takes_no_question() {
        let mut ended = line(&answer("\"question\":0"), true);
        assert!(matches!(receive_within_a_minute(&mut ended), Arrival::Answer(_)));
        ended.child.wait().unwrap();
        assert!(!ended.ask(Purpose::Check, &[]));
        assert!(!line("cat", false).ask(Purpose::Check, &[]));
        let mut lines = IdleLines::default();
        lines.keep("n1", ended);
        lines.keep("n2", line("cat", true));
        lines.keep("n3", line("cat", false));
        assert!(lines.has_room(KEPT_MAX - 3) && !lines.has_room(KEPT_MAX - 2));
        lines.keep_alive();
        assert!(lines.take("n1").is_none() && lines.take("n2").is_some());
    }

    #[test]
    fn reason_for_the_end_of_a_line_is_reported() {
        let mut line = line("echo hello; echo >&2; echo no route >&2; exit 255", true);
        let Arrival::End(why) = receive_within_a_minute(&mut line) else { panic!("{line:?}") };
        assert_eq!(why, "probe: exit status: 255; no route");
    }
}
