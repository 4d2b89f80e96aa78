//! The process in which a library is tried and timed.

use std::env;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use skt_host::waits::{self, Announced};
use skt_host::{child, memory, units};

use super::trial::{Answer, Line, Refusal};
use super::{Products, patience, remembered};

/// How long the process of a trial may take to end, after which it is killed.
const END_PATIENCE: Duration = Duration::from_secs(2);

const STARTS: &str = "it starts";

/// The process of a trial. Once the library has passed, it stays until it is dropped, and measures
/// the library's rate when asked to.
#[derive(Debug)]
pub(super) struct TrialProcess {
    /// The library, as `--blas` names it.
    wanted: String,
    child: Child,
    /// None once it is to end.
    requests: Option<ChildStdin>,
    answers: ChildStdout,
    /// The check that the library has passed, which is remembered once the process has ended well.
    passed: Option<String>,
}

impl TrialProcess {
    /// Tries the library `wanted`, or what is preloaded if that is called `by_default`. One of the
    /// files `known` is refused as known.
    pub(super) fn run(
        wanted: &str,
        by_default: bool,
        products: &Products,
        known: &[String],
    ) -> Result<(Answer, Self), Refusal> {
        let limit_bytes = memory::address_limit_bytes();
        let refused = |why| Refusal { why: under_limit(why, limit_bytes), is_no_other: false };
        let process = Self::start(wanted, by_default, products, known);
        let mut process = process.map_err(|why| refused(format!("its trial fails: {why}")))?;
        match process.answer(patience(wanted, &products.depths), STARTS).map_err(refused)? {
            Line::Passed(answer) => Ok((answer, process)),
            Line::Refused(refusal) => Err(refusal),
            Line::Step(_) | Line::Rate(_) => Err(refused("its trial gives no result".to_owned())),
        }
    }

    fn start(
        wanted: &str,
        by_default: bool,
        products: &Products,
        known: &[String],
    ) -> io::Result<Self> {
        let Products { order, depths, is_single } = products;
        let mut command = Command::new(env::current_exe()?);
        // A copy that is named xhpl has no subcommands.
        command.arg0("skt-hpl");
        command.args(["blas-trial", "--order", &order.to_string()]);
        depths.iter().for_each(|depth| _ = command.args(["--depths", &depth.to_string()]));
        command.args(is_single.then_some("--single"));
        command.args(by_default.then_some("--by-default"));
        known.iter().for_each(|file| _ = command.args(["--known", file]));
        command.arg("--").arg(wanted);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let requests = child.stdin.take();
        let answers = child.stdout.take().expect("a pipe");
        fcntl(&answers, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok(Self { wanted: wanted.to_owned(), child, requests, answers, passed: None })
    }

    pub(super) fn ask_for_rate(&mut self) -> io::Result<()> {
        self.requests.as_mut().ok_or(ErrorKind::BrokenPipe)?.write_all(b"\n")
    }

    /// The next line of the process but its steps, of which `during` is the first. The error is why
    /// none comes: it ends, or has not answered after `patience`, which counts while it has a core.
    pub(super) fn answer(&mut self, patience: Duration, during: &str) -> Result<Line, String> {
        let Self { child, answers, wanted, .. } = self;
        let mut printed = Vec::new();
        let _wait = Announced::begin_without_thread(format!("the trial of the BLAS {wanted}"));
        let has_answered = || {
            waits::print_due();
            read_available(answers, &mut printed)?;
            Ok(lines(&printed).any(|line| !matches!(line, Line::Step(_))))
        };
        let status = child::until_while_served(child, patience, has_answered).and_then(|in_time| {
            if !in_time {
                child.kill()?;
                child.wait()?;
                return Ok(None);
            }
            child.try_wait()
        });
        let status = status.map_err(|why| format!("its trial fails: {why}"))?;
        let answer = answer_in(&printed, status, patience, during);
        if let Ok(Line::Passed(Answer { check, .. })) = &answer {
            self.passed = check.clone();
        }
        answer
    }

    /// Ends the process, as nothing more is to be measured. The error is why it does not end as it
    /// should, as the job would not either: a library may crash or hang when it is unloaded.
    pub(super) fn end(&mut self, patience: Duration) -> Result<(), String> {
        drop(self.requests.take());
        let ended = self.answer(patience, "it is unloaded").map(|_| ());
        let status = self.child.try_wait().ok().flatten();
        if status.is_some_and(|status| status.success()) { Ok(()) } else { ended }
    }
}

/// `why` a trial has failed, which may be for lack of addresses where they are limited: a library
/// crashes, hangs or ends the process then.
fn under_limit(why: String, limit_bytes: Option<u64>) -> String {
    let Some(limit) = limit_bytes.map(units::bytes) else { return why };
    format!("{why}; a process may map {limit} here, which may be too little (ulimit -v)")
}

impl Drop for TrialProcess {
    fn drop(&mut self) {
        // It ends when there are no more requests, if it has not yet. Where it is killed, an OpenMP
        // library leaves files in /dev/shm.
        drop(self.requests.take());
        let ended = child::wait(&mut self.child, END_PATIENCE).ok().flatten();
        if let Some(check) = self.passed.as_ref().filter(|_| ended.is_some_and(|it| it.success())) {
            remembered::keep(check, "passed");
        }
    }
}

fn read_available(from: &mut ChildStdout, to: &mut Vec<u8>) -> io::Result<()> {
    match from.read_to_end(to) {
        Err(why) if why.kind() == ErrorKind::WouldBlock => Ok(()),
        read => read.map(|_| ()),
    }
}

/// The lines of a trial that are complete; a library may print others.
fn lines(printed: &[u8]) -> impl Iterator<Item = Line> {
    let end = printed.iter().rposition(|byte| *byte == b'\n').unwrap_or(0);
    let whole = String::from_utf8_lossy(&printed[..end]).into_owned();
    whole.lines().filter_map(Line::read).collect::<Vec<_>>().into_iter()
}

/// The answer in what a process has `printed` since the step `during`. It ended with `status`, or
/// was killed after `patience`.
fn answer_in(
    printed: &[u8],
    status: Option<ExitStatus>,
    patience: Duration,
    during: &str,
) -> Result<Line, String> {
    let mut during = during.to_owned();
    for line in lines(printed) {
        match line {
            Line::Step(step) => during = step,
            answer => return Ok(answer),
        }
    }
    Err(match status {
        None => format!("it hangs: {:.0} s were not enough while {during}", patience.as_secs_f64()),
        Some(status) => match (status.signal(), status.code()) {
            (Some(signal), _) => format!("it crashes (signal {signal}) while {during}"),
            (None, code) => format!(
                "it ends the process (exit code {}) while {during}",
                code.map_or("none".to_owned(), |code| code.to_string())
            ),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: Option<i32>, printed: &str) -> Result<Line, String> {
        let status = status.map(ExitStatus::from_raw);
        answer_in(printed.as_bytes(), status, Duration::from_secs(7), STARTS)
    }

    #[test]
    fn a_trial_that_does_not_end_well_names_its_step() {
        let step = Line::Step("it is loaded".to_owned()).to_string();
        let printed = format!("a banner of the library\n{step}\n");
        let failed = |status, printed: &str| answer(status, printed).unwrap_err();
        assert_eq!(failed(None, &printed), "it hangs: 7 s were not enough while it is loaded");
        assert_eq!(failed(Some(11), &printed), "it crashes (signal 11) while it is loaded");
        assert_eq!(failed(Some(3 << 8), ""), "it ends the process (exit code 3) while it starts");
        let refused = Line::Refused(Refusal { why: "no".to_owned(), is_no_other: false });
        let line = answer(Some(1 << 8), &format!("{printed}{refused}\n"));
        assert!(matches!(line, Ok(Line::Refused(Refusal { why, .. })) if why == "no"));
    }

    #[test]
    fn a_limit_on_addresses_is_named_where_a_trial_fails() {
        let why = "it crashes (signal 6) while it is loaded";
        assert_eq!(under_limit(why.to_owned(), None), why);
        let limited = under_limit(why.to_owned(), Some(200 << 20));
        assert!(limited.starts_with(why) && limited.contains("200.0 MiB here"), "{limited}");
        assert!(limited.ends_with("(ulimit -v)"), "{limited}");
    }

    #[test]
    fn a_line_counts_when_it_is_complete() {
        let rate = Line::Rate(12.5).to_string();
        assert!(answer(None, &rate).is_err());
        assert!(matches!(answer(None, &format!("{rate}\n")), Ok(Line::Rate(12.5))));
    }
}
