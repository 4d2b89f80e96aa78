//! What the user sees of a run: messages with their time, the job's lines, the status line, the
//! timelines of failures, and JSON.

use std::io::{self, IsTerminal as _, Write as _};

use serde_json::{Value, json};

use skt_host::exit::Exit;
use skt_host::shown::printable;
use skt_host::streams;
use skt_host::units;

use super::hosts::describe_lost;
use super::state::{Status, SupervisorState};

/// The state of the run in one line.
pub fn status_line(state: &SupervisorState, now_unix: f64) -> String {
    format!(
        "start {}, {} failure(s), {} spare(s) left, {}",
        state.start,
        state.failures.len(),
        state.pool.spares.len(),
        ended(state, now_unix).unwrap_or_else(|| running(state, now_unix))
    )
}

/// How long the run has taken, and what it does.
fn running(state: &SupervisorState, now_unix: f64) -> String {
    let what = match (&state.reason, &state.last_beat) {
        (Some(waiting), _) => waiting.clone(),
        (None, Some((beat, _))) if beat.n > 0 => {
            let percent = 100.0 * beat.column as f64 / beat.n as f64;
            let slow = beat.slow.as_ref().map_or(String::new(), |slow| format!(", {slow}"));
            format!("{}: column {} of {} ({percent:.0} %){slow}", beat.phase, beat.column, beat.n)
        }
        (None, Some((beat, _))) if beat.column > 0 => {
            format!("{}: after checkpoint {}", beat.phase, beat.column)
        }
        (None, Some((beat, _))) => beat.phase.clone(),
        (None, None) => "starting".to_owned(),
    };
    format!("{:.0} s: {what}", now_unix - state.started_unix)
}

/// How the run has ended, after how long, and when; `None` if it has not.
fn ended(state: &SupervisorState, now_unix: f64) -> Option<String> {
    let (how, more) = match state.status {
        Status::Running => return None,
        Status::Finished if state.program.is_some() => {
            ("finished", state.reason.clone().unwrap_or_else(|| "done".to_owned()))
        }
        Status::Finished => ("finished", state.exit.map_or(String::new(), format_result)),
        Status::Stopped => ("stopped", "start the same command again to resume".to_owned()),
        Status::GaveUp => {
            ("given up", state.reason.clone().unwrap_or_else(|| "no reason known".to_owned()))
        }
    };
    // The last thing that a supervisor does is to write the state.
    let after = units::span(state.written_unix - state.started_unix);
    let age = units::span((now_unix - state.written_unix).max(0.0));
    Some(format!("{how} after {after}, {age} ago: {more}"))
}

/// What the exit code of a finished job means.
fn format_result(exit: u8) -> String {
    match Exit::from_code(exit) {
        Exit::Passed => "PASSED".to_owned(),
        Exit::ResidualFailed => "a residual FAILED".to_owned(),
        _ => format!("exit code {exit}, see what the job printed"),
    }
}

/// The timelines of all failures as a table; empty if there was no failure.
pub fn timelines(state: &SupervisorState) -> Vec<String> {
    if state.failures.is_empty() {
        return Vec::new();
    }
    let place = if state.program.is_some() { "checkpoint" } else { "  column" };
    let width = place.len();
    let mut lines = vec![format!(
        "failure {place}  detection  replacement  restart  recovery    total s  cause"
    )];
    for (index, failure) in state.failures.iter().enumerate() {
        let timeline = failure.timeline();
        let cell = |seconds: Option<f64>| seconds.map_or("-".to_owned(), |s| format!("{s:.2}"));
        let total = failure.computing_unix.map(|unix| unix - failure.last_sign_unix);
        let cause = match &failure.replaced[..] {
            [] => failure.how.clone(),
            [change] => format!("{} lost: {}", change.lost, change.why),
            all => format!("lost: {}", describe_lost(all)),
        };
        lines.push(format!(
            "{:>7} {:>width$} {:>9}< {:>12} {:>8} {:>9} {:>9}<  {cause}",
            index + 1,
            failure.column,
            format!("{:.2}", timeline.detection_seconds),
            cell(timeline.replacement_seconds),
            cell(timeline.restart_seconds),
            cell(timeline.recovery_seconds),
            cell(total),
        ));
    }
    lines.push("detection counts from the job's last sign of life: upper bounds".to_owned());
    lines
}

/// The whole record of a run as JSON.
pub fn account(state: &SupervisorState) -> Value {
    let mut record = json!({
        "format": "skt-hpl launch",
        "format_version": 1,
        "starts": state.start,
        "nodes": {
            "active": state.pool.placed().active,
            "away": state.pool.hosts_away(),
            "spares": state.pool.spares,
            "out": state.pool.out,
        },
        "blamed": [],
    });
    let all = json!(state);
    for key in RECORDED {
        record[key] = all[key].clone();
    }
    for (failure, of) in
        { record["failures"].as_array_mut() }.into_iter().flatten().zip(&state.failures)
    {
        failure["timeline"] = json!(of.timeline());
    }
    for (host, blame) in &state.blamed {
        let mut blame = json!(blame);
        blame["host"] = json!(host);
        record["blamed"].as_array_mut().expect("made above").push(blame);
    }
    record
}

/// What the record has of the state, under the same names.
const RECORDED: [&str; 10] = [
    "run_id",
    "program",
    "command",
    "ranks",
    "status",
    "reason",
    "exit",
    "started_unix",
    "written_unix",
    "failures",
];

#[derive(Debug, Default)]
pub(crate) struct Terminal {
    has_status: bool,
    /// Whether the job's last line on standard error, or on a terminal's standard output, is open.
    is_open: bool,
}

// A standard error that is closed is no reason to stop, so write errors are ignored.
impl Terminal {
    /// Shows a message with its time, in seconds since the run began.
    pub(crate) fn message(&mut self, seconds: f64, text: &str) {
        self.clear_status();
        let end = if std::mem::take(&mut self.is_open) { "\n" } else { "" };
        let _ = writeln!(io::stderr(), "{end}launch {seconds:9.3} s  {}", printable(text));
    }

    /// Shows text of the job unchanged.
    pub(crate) fn forward(&mut self, text: &[u8]) {
        self.clear_status();
        self.is_open = !text.ends_with(b"\n");
        let _ = io::stderr().write_all(text);
    }

    /// Writes text of the report to standard output.
    pub(crate) fn print(&mut self, text: &[u8]) -> io::Result<()> {
        self.clear_status();
        let mut out = streams::stdout()?.lock();
        if out.is_terminal() {
            self.is_open = !text.ends_with(b"\n");
        }
        out.write_all(text)?;
        out.flush()
    }

    /// Shows a status line, rewritten in place, if standard error is a terminal. An open line of
    /// the job would be lost by that.
    pub(crate) fn show_status(&mut self, line: &str) {
        if io::stderr().is_terminal() && !self.is_open {
            let _ = write!(io::stderr(), "\r\x1b[K{}", printable(line));
            self.has_status = true;
        }
    }

    pub(crate) fn clear_status(&mut self) {
        if std::mem::take(&mut self.has_status) {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::hosts::Pool;
    use super::*;
    use skt_host::process::Process;

    #[test]
    fn the_seconds_of_a_run_stop_with_it() {
        let me = Process::from_pid(std::process::id() as i32).unwrap();
        let mut state = SupervisorState::new("r", &[], 2, Pool::new(vec![], vec![]), me);
        (state.started_unix, state.written_unix) = (1000.0, 1027.0);
        let head = "start 0, 0 failure(s), 0 spare(s) left, ";
        let mut line = |status, exit, now| {
            (state.status, state.exit) = (status, exit);
            status_line(&state, now).strip_prefix(head).unwrap().to_owned()
        };
        assert_eq!(line(Status::Running, None, 1030.0), "30 s: starting");
        let ended = line(Status::Finished, Some(0), 1207.0);
        assert_eq!(ended, "finished after 27 s, 3 min 00 s ago: PASSED");
        let ended = line(Status::Finished, Some(1), 1028.0);
        assert_eq!(ended, "finished after 27 s, 1 s ago: a residual FAILED");
        let ended = line(Status::Stopped, Some(75), 1027.0);
        assert_eq!(ended, "stopped after 27 s, 0 s ago: start the same command again to resume");
        assert!(line(Status::GaveUp, Some(2), 1028.0).ends_with("1 s ago: no reason known"));
    }
}
