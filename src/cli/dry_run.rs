//! `launch --dry-run`: what would run where, without a start.

use std::fmt::Write as _;

use super::pace::Pace;
use skt_checkpoint::checkpoint::methods::Method;
use skt_config::launch::NoSpare;
use skt_config::{ConfigError, RunSpec};
use skt_host::clock::now_unix;
use skt_host::host_names::short_names;
use skt_host::shown::shell_quoted;
use skt_host::units::{bytes, bytes_unlike};
use skt_launch::LaunchOptions;
use skt_launch::hosts::Host;
use skt_launch::launcher;
use skt_launch::report::status_line;
use skt_launch::state::{Status, SupervisorState};
use skt_run::job::outlook;
use skt_run::protect::Settings;

pub(super) struct BenchmarkNeeds {
    /// Bytes of the largest rank, in the test that needs most.
    pub rank_bytes: u64,
    pub method: Method,
    /// Which tests end before a checkpoint is due, at this machine's rate, if any do.
    pub without_checkpoint: Option<String>,
    pub here_bytes: u64,
}

/// Which tests end before a checkpoint is due, with cores as fast as one of this machine.
pub(super) fn without_checkpoint(
    spec: &RunSpec,
    settings: &Settings,
) -> Result<Option<String>, ConfigError> {
    let tests = spec.tests();
    if !settings.is_on() {
        return Ok(None);
    }
    let pace = Pace::measure(1)?.0;
    let outlooks: Vec<_> = tests.iter().map(|test| pace.outlook(test, settings)).collect();
    Ok(outlook::note(settings, &outlooks))
}

/// `earlier` was found in the state folder. `needs` is `None` for a program of the user.
pub(super) fn describe(
    options: &LaunchOptions,
    needs: Option<&BenchmarkNeeds>,
    earlier: Option<&SupervisorState>,
) -> String {
    let used = options.pool.used(options.ranks);
    let spares = &options.pool.spares;
    let mut text = format!(
        "nodes    {} for {} rank(s) of {} thread(s): {}\n",
        used.len(),
        options.ranks,
        options.threads,
        with_slots(&used)
    );
    let _ = match &spares[..] {
        [] => writeln!(text, "spares   none"),
        spares => writeln!(text, "spares   {}: {}", spares.len(), with_slots(spares)),
    };
    if let Some(needs) = needs {
        let slots = used.iter().map(|host| host.slots.min(options.ranks)).max().unwrap_or(1);
        let of_node = needs.rank_bytes.saturating_mul(slots as u64);
        let _ = write!(
            text,
            "memory   {} a rank at most, {} on a node with {slots}",
            bytes(needs.rank_bytes),
            bytes(of_node),
        );
        text += &match options.rank_bytes {
            0 => "\n".to_owned(),
            kept => format!("; of a rank {} stay for the next start\n", bytes(kept)),
        };
    }
    let _ = writeln!(text, "a loss   {}", at_a_loss(options, needs));
    if let Some(note) = needs.and_then(|needs| needs.without_checkpoint.as_ref()) {
        let _ = writeln!(text, "         warning: at the rate of a core of this machine {note}");
    }
    if let Some(note) = needs.and_then(|needs| no_room(options, &used, needs)) {
        let _ = writeln!(text, "         warning: {note}");
    }
    if let Some(state) = earlier.filter(|state| state.status != Status::Finished) {
        let (folder, line) = (options.settings.state.display(), status_line(state, now_unix()));
        let _ = writeln!(text, "state    {folder} has an unfinished run, which continues: {line}");
    }
    let command = launcher::first_start_command(options);
    let variables =
        command.env.iter().map(|(name, value)| format!("{name}={}", shell_quoted(value)));
    let words = command.argv.iter().map(|word| shell_quoted(word));
    let line = variables.chain(words).collect::<Vec<_>>().join(" ");
    text + &format!("command  {line}\nnothing was started, and no node was asked\n")
}

/// The hosts by their slots: `n[01-08] with 8 slots, n09 with 4`.
fn with_slots(hosts: &[Host]) -> String {
    let alike = hosts.chunk_by(|a, b| a.slots == b.slots).map(|hosts| {
        let names = short_names(hosts);
        format!("{names} with {} slot(s)", hosts[0].slots)
    });
    alike.collect::<Vec<_>>().join(", ")
}

fn at_a_loss(options: &LaunchOptions, needs: Option<&BenchmarkNeeds>) -> String {
    let restart = match needs.map(|needs| needs.method) {
        None => "continues from its own checkpoints",
        Some(Method::None) => "starts from the beginning",
        Some(Method::Abft) => "continues from its checksums",
        Some(_) => "continues from its checkpoint",
    };
    let then = match (options.pool.spares.first(), options.settings.no_spare) {
        (Some(next), _) => format!("{} takes the node's place", next.name),
        (None, NoSpare::Stop) => {
            "no spare: `launch` ends with 75 until the node is back".to_owned()
        }
        (None, NoSpare::Wait) => "no spare: `launch` waits for the node".to_owned(),
        (None, NoSpare::Spread) => {
            "no spare: other nodes run its ranks if they have the memory".to_owned()
        }
    };
    format!("{then}, and the run {restart}")
}

/// Where nodes are to share the ranks of lost ones, and none could, if they have the memory of this
/// machine: what they would need.
fn no_room(options: &LaunchOptions, used: &[Host], needs: &BenchmarkNeeds) -> Option<String> {
    let spreads = options.settings.no_spare == NoSpare::Spread && options.pool.spares.is_empty();
    let ranks = used.iter().map(|host| host.slots + 1).min().filter(|_| spreads)?;
    let (have, need) = (needs.here_bytes, needs.rank_bytes.saturating_mul(ranks as u64));
    let n = options.sharing.fitting_n(have, need)?;
    Some(format!(
        "with the memory of this machine ({} available) no node has room for one more rank: a loss \
         stops the run; {ranks} ranks need {}; N = {n} would fit",
        bytes_unlike(have, need),
        bytes_unlike(need, have)
    ))
}
