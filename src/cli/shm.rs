//! `skt-hpl shm`: shows and removes the segments that runs have left.

use std::io::Write;

use crate::checkpoint::store::{Liveness, Store, StoreError, host};

/// Why `shm list` or `shm clean` failed.
#[derive(Debug, thiserror::Error)]
pub enum ShmError {
    /// The store refused.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The output could not be written.
    #[error("writing the output: {0}")]
    Output(#[from] std::io::Error),
}

/// Which segments to remove.
#[derive(Debug, Clone, Default)]
pub struct CleanOptions {
    /// Those of this run alone; of all runs otherwise.
    pub run: Option<String>,
    /// Also those that a run may still need.
    pub force: bool,
}

/// What [`clean`] did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// Segments removed.
    pub removed: usize,
    /// Their bytes.
    pub removed_bytes: u64,
    /// Segments left because a run may still need them.
    pub kept: usize,
}

/// Writes one line a segment of ours: name, run, rank, part, bytes, who is
/// attached, whether it is in use, stale or incomplete, and its age.
///
/// # Errors
/// When the store cannot be listed or `out` not written.
pub fn list(store: &dyn Store, out: &mut dyn Write) -> Result<(), ShmError> {
    let segments = store.list()?;
    if segments.is_empty() {
        writeln!(out, "no segments")?;
        return Ok(());
    }
    writeln!(
        out,
        "{:<20} {:>6} {:<10} {:>14} {:>8} {:<10} {:>8}  LOCATION",
        "RUN", "RANK", "PART", "BYTES", "ATTACHED", "STATE", "AGE"
    )?;
    for segment in segments {
        let attached = match segment.attached {
            Some(count) => count.to_string(),
            None if segment.in_use => "yes".to_owned(),
            None => "no".to_owned(),
        };
        let state = match (segment.in_use, segment.creator, segment.is_ready) {
            (true, ..) => "in use",
            (false, Liveness::Alive, _) => "live",
            (false, Liveness::Unknown, _) => "unknown",
            (false, Liveness::Dead, false) => "incomplete",
            (false, Liveness::Dead, true) => "stale",
        };
        let age_seconds = host::now_unix_seconds().saturating_sub(segment.created_unix_seconds);
        writeln!(
            out,
            "{:<20} {:>6} {:<10} {:>14} {attached:>8} {state:<10} {:>8}  {}",
            segment.name.run(),
            segment.name.rank(),
            segment.name.role(),
            segment.bytes,
            age(age_seconds),
            segment.location,
        )?;
    }
    Ok(())
}

/// Removes segments of ours and writes one line about each; those that a run
/// may still need (a process is attached, or its creator lives or cannot be
/// seen from here) only with `force`.
///
/// # Errors
/// When the store cannot be listed, a segment not be removed, or `out` not
/// written.
pub fn clean(
    store: &dyn Store,
    options: &CleanOptions,
    out: &mut dyn Write,
) -> Result<Cleaned, ShmError> {
    let mut done = Cleaned::default();
    for segment in store.list()? {
        let name = &segment.name;
        if options.run.as_ref().is_some_and(|run| run != name.run()) {
            continue;
        }
        if segment.may_be_live() && !options.force {
            let why = match segment.creator {
                _ if segment.in_use => "a process is attached".to_owned(),
                Liveness::Unknown => {
                    format!("its creator, process {}, is in another container", segment.creator_pid)
                }
                _ => format!("its creator, process {}, is running", segment.creator_pid),
            };
            writeln!(out, "kept {name}: {why} (--force removes it all the same)")?;
            done.kept += 1;
        } else if store.remove(name)? {
            writeln!(out, "removed {name}: {} bytes", segment.bytes)?;
            done.removed += 1;
            done.removed_bytes += segment.bytes as u64;
        }
    }
    Ok(done)
}

/// `3d04h`, `4h05m`, `5m06s` or `6s`.
fn age(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    match () {
        () if days > 0 => format!("{days}d{:02}h", hours % 24),
        () if hours > 0 => format!("{hours}h{:02}m", minutes % 60),
        () if minutes > 0 => format!("{minutes}m{:02}s", seconds % 60),
        () => format!("{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::age;

    #[test]
    fn ages_read_well() {
        let ages = [(6, "6s"), (306, "5m06s"), (14_700, "4h05m"), (273_600, "3d04h")];
        for (seconds, text) in ages {
            assert_eq!(age(seconds), text);
        }
    }
}
