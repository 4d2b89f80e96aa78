//! A running launcher, and the files that its job writes.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};

use super::SupervisorError;
use super::follow::Follow;
use super::process::{self, Process};
use super::state::Folder;

/// How often space is reserved for what the job writes.
const RESERVE_EVERY: Duration = Duration::from_secs(600);

/// A running job.
#[derive(Debug)]
pub struct Job {
    /// Its launcher.
    pub launcher: Process,
    /// The same, unless an earlier supervisor has started it.
    child: Option<Child>,
    /// Its standard output and standard error.
    outputs: [(PathBuf, Follow); 2],
    reserved: Option<Instant>,
}

impl Job {
    /// The files that start `attempt` writes, from their beginning: an earlier
    /// supervisor's job has given signs of life that are needed, and a report that this
    /// one has not seen.
    ///
    /// # Errors
    /// They cannot be opened.
    pub fn outputs(
        folder: &Folder,
        attempt: usize,
    ) -> Result<[(PathBuf, Follow); 2], SupervisorError> {
        let (out, err) = folder.outputs(attempt);
        let open = |path: PathBuf| match Follow::new(&path) {
            Ok(follow) => Ok((path, follow)),
            Err(source) => Err(SupervisorError::File { path, source }),
        };
        Ok([open(out)?, open(err)?])
    }

    /// The job of a launcher that this supervisor has started as `child`, or an earlier
    /// one has.
    pub fn new(launcher: Process, child: Option<Child>, outputs: [(PathBuf, Follow); 2]) -> Self {
        Self { launcher, child, outputs, reserved: None }
    }

    /// Reserves space for what start `attempt` writes, every ten minutes.
    pub fn reserve(&mut self, folder: &Folder, attempt: usize) {
        if self.reserved.is_none_or(|since| since.elapsed() > RESERVE_EVERY) {
            self.reserved = Some(Instant::now());
            folder.reserve(attempt);
        }
    }

    /// The new lines on standard output and on standard error; when the launcher has
    /// ended, a last line without its end, too.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn read(&mut self, has_ended: bool) -> Result<[Vec<String>; 2], SupervisorError> {
        let mut lines = [Vec::new(), Vec::new()];
        for ((path, follow), lines) in self.outputs.iter_mut().zip(&mut lines) {
            let read = follow.lines(|line| lines.push(line.to_owned()));
            read.map_err(|source| SupervisorError::File { path: path.clone(), source })?;
            if has_ended {
                lines.extend(follow.rest().map(|rest| rest + "\n"));
            }
        }
        Ok(lines)
    }

    /// How its launcher ended, in words; `None` while it runs.
    pub fn ended(&mut self) -> Option<String> {
        match &mut self.child {
            Some(child) => match child.try_wait() {
                Ok(None) => None,
                Ok(Some(status)) => Some(match (status.code(), status.signal()) {
                    (Some(code), _) => format!("the launcher ended with code {code}"),
                    (_, Some(signal)) => format!("the launcher was killed by signal {signal}"),
                    _ => "the launcher ended".to_owned(),
                }),
                Err(error) => Some(format!("the launcher is lost: {error}")),
            },
            None if self.launcher.runs() => None,
            None => Some("the launcher ended unseen".to_owned()),
        }
    }
}

/// Removes the session folder of an Open MPI launcher that was killed; one that
/// ends in order does it itself.
pub fn remove_session(pid: i32) {
    let user = nix::unistd::geteuid();
    let all = std::env::temp_dir().join(format!("ompi.{}.{user}", process::this_host()));
    // Not where a link of another user leads.
    let is_ours = |found: fs::Metadata| found.is_dir() && found.uid() == user.as_raw();
    if !fs::symlink_metadata(&all).is_ok_and(is_ours) {
        return;
    }
    let _ = fs::remove_dir_all(all.join(format!("pid.{pid}")));
    // It stays if other jobs have theirs in it.
    let _ = fs::remove_dir(all);
}
