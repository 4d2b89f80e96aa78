//! Reports on a run: the status line, the timelines of failures, and JSON.

use serde_json::{Value, json};

use super::state::{Status, SupervisorState};

/// The state of the run in one line.
pub fn status_line(state: &SupervisorState, now_unix: f64) -> String {
    let elapsed = now_unix - state.started_unix;
    let what = match (&state.last_beat, state.status) {
        (_, Status::Finished) => "finished".to_owned(),
        (_, Status::Stopped) => "stopped; start the same command again to resume".to_owned(),
        (_, Status::GaveUp) => {
            format!("given up: {}", state.reason.as_deref().unwrap_or("no reason known"))
        }
        (Some((beat, _)), Status::Running) if beat.n > 0 => {
            let percent = 100.0 * beat.column as f64 / beat.n as f64;
            let slow = beat.slow.as_ref().map_or(String::new(), |slow| format!(", {slow}"));
            format!("{}: column {} of {} ({percent:.0} %){slow}", beat.phase, beat.column, beat.n)
        }
        (Some((beat, _)), Status::Running) => beat.phase.clone(),
        (None, Status::Running) => "starting".to_owned(),
    };
    format!(
        "start {}, {} failure(s), {} spare(s) left, {elapsed:.0} s: {what}",
        state.start,
        state.failures.len(),
        state.pool.spares.len()
    )
}

/// The timelines of all failures as a table; empty if there was no failure.
pub fn timelines(state: &SupervisorState) -> Vec<String> {
    if state.failures.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![
        "failure   column  detection  replacement  restart  recovery    total s  cause".to_owned(),
    ];
    for (index, failure) in state.failures.iter().enumerate() {
        let timeline = failure.timeline();
        let cell = |seconds: Option<f64>| seconds.map_or("-".to_owned(), |s| format!("{s:.2}"));
        let total = failure.computing_unix.map(|unix| unix - failure.last_sign_unix);
        let lost =
            failure.replaced.iter().map(|change| format!("{} lost: {}", change.lost, change.why));
        let lost: Vec<String> = lost.collect();
        let cause = if lost.is_empty() { failure.how.clone() } else { lost.join("; ") };
        lines.push(format!(
            "{:>7} {:>8} {:>9}< {:>12} {:>8} {:>9} {:>9}<  {cause}",
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
    let charged = state.charged.iter().map(|(host, charged)| {
        let mut value = serde_json::to_value(charged).expect("plain");
        value["host"] = json!(host);
        value
    });
    let charged: Vec<Value> = charged.collect();
    let failures: Vec<Value> = state
        .failures
        .iter()
        .map(|failure| {
            let mut value = serde_json::to_value(failure).expect("plain");
            value["timeline"] = serde_json::to_value(failure.timeline()).expect("plain");
            value
        })
        .collect();
    json!({
        "format": "skt-hpl launch",
        "format_version": 1,
        "run_id": state.run_id,
        "command": state.command,
        "ranks": state.ranks,
        "status": state.status,
        "reason": state.reason,
        "exit": state.exit,
        "started_unix": state.started_unix,
        "written_unix": state.written_unix,
        "starts": state.start,
        "nodes": state.pool,
        "charged": charged,
        "failures": failures,
    })
}
