use std::path::PathBuf;

use clap::Args;

use super::failed::Failed;
use crate::report::output;
use skt_config::Launching;
use skt_host::clock::now_unix;
use skt_launch::report;
use skt_launch::state::{StateFolder, Status, SupervisorState};

#[derive(Debug, Clone, Args)]
pub(crate) struct StatusArgs {
    /// Folder of the state, as for `launch`
    #[arg(long, value_name = "FOLDER", default_value = Launching::State.info().default)]
    pub state: PathBuf,
    /// Print the whole state as JSON
    #[arg(long)]
    pub json: bool,
}

pub(crate) fn execute(args: &StatusArgs) -> Result<(), Failed> {
    let folder = StateFolder::new(&args.state);
    // Asked first: a supervisor that ends in between has written its last state by then.
    let is_supervised = folder.is_locked();
    let state = folder.load_for_display()?.ok_or_else(|| {
        let folder = args.state.display();
        Failed::new(format!("{folder}: no run was launched here; name its folder with --state"))
    })?;
    if args.json {
        let text = serde_json::to_string_pretty(&report::account(&state)).expect("plain data");
        return Ok(output::print(&(text + "\n"))?);
    }
    Ok(output::print(&text(&state, is_supervised, now_unix()))?)
}

fn text(state: &SupervisorState, is_supervised: bool, now_unix: f64) -> String {
    let mut lines = vec![format!("run {}: {}", state.run_id, report::status_line(state, now_unix))];
    let job_runs = state.launcher.as_ref().is_some_and(|launcher| launcher.runs());
    if state.status == Status::Running && !is_supervised {
        lines.push(if job_runs {
            "no supervisor: the job continues, but would not be restarted".to_owned()
        } else {
            "no supervisor, and no job on this machine".to_owned()
        });
        lines.push("start the same `skt-hpl launch` again to continue".to_owned());
    }
    if let (Status::Running, Some((_, unix))) = (state.status, &state.last_beat) {
        lines.push(format!("last sign of life {:.0} s ago", (now_unix - unix).max(0.0)));
    }
    let names = |hosts: &[skt_launch::hosts::Host]| {
        let all: Vec<&str> = hosts.iter().map(|host| host.name.as_str()).collect();
        if all.is_empty() { "none".to_owned() } else { all.join(" ") }
    };
    lines.push(format!("nodes  : {}", names(&state.pool.placed().active)));
    let away = state.pool.hosts_away();
    if !away.is_empty() {
        let (away, whose) = (names(&away), if away.len() == 1 { "its" } else { "their" });
        lines.push(format!("away   : {away} (lost; {whose} ranks run on other nodes)"));
    }
    lines.push(format!("spares : {}", names(&state.pool.spares)));
    for out in &state.pool.out {
        lines.push(format!("out    : {} ({})", out.host.name, out.why));
    }
    lines.extend(report::timelines(state));
    lines.join("\n") + "\n"
}
