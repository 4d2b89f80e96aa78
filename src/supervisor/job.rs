//! A running launcher, and the files that its job writes.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
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
    /// The files that start number `start` writes, from their beginning: an earlier
    /// supervisor's job has given signs of life that are needed, and a report that this
    /// one has not seen.
    ///
    /// # Errors
    /// They cannot be opened.
    pub fn outputs(
        folder: &Folder,
        start: usize,
    ) -> Result<[(PathBuf, Follow); 2], SupervisorError> {
        let (out, err) = folder.outputs(start);
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

    /// Reserves space for what start number `start` writes, every ten minutes.
    pub fn reserve(&mut self, folder: &Folder, start: usize) {
        if self.reserved.is_none_or(|since| since.elapsed() > RESERVE_EVERY) {
            self.reserved = Some(Instant::now());
            folder.reserve(start);
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
    remove_session_in(&std::env::temp_dir(), &process::this_host(), pid);
}

/// The same, in this folder, of a launcher on `host`, from whose name Open MPI takes the
/// domain.
fn remove_session_in(temp: &Path, host: &str, pid: i32) {
    let user = nix::unistd::geteuid();
    let host = host.split('.').next().unwrap_or(host);
    // Not where a link of another user leads.
    let is_ours = |folder: &Path| {
        fs::symlink_metadata(folder)
            .is_ok_and(|found| found.is_dir() && found.uid() == user.as_raw())
    };
    // Of Open MPI 5, whose mpirun is prterun.
    let session = temp.join(format!("prterun.{host}.{pid}.{user}"));
    if is_ours(&session) {
        let _ = fs::remove_dir_all(session);
    }
    // Of Open MPI 4.
    let all = temp.join(format!("ompi.{host}.{user}"));
    if is_ours(&all) {
        let _ = fs::remove_dir_all(all.join(format!("pid.{pid}")));
        // It stays if other jobs have theirs in it.
        let _ = fs::remove_dir(all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_killed_launchers_session_is_removed_and_no_other() {
        let temp = tempfile::tempdir().unwrap();
        let at = |name: &str| temp.path().join(name);
        let user = nix::unistd::geteuid();
        let [of_5, of_4] = ["prterun.n1.70", "ompi.n1"].map(|name| format!("{name}.{user}"));
        let others = [format!("prterun.n1.7.{user}"), format!("prterun.n10.70.{user}")];
        let kept = at("kept");
        for name in
            others.iter().chain([&of_5, &format!("{of_4}/pid.70"), &format!("{of_4}/pid.7")])
        {
            fs::create_dir_all(at(name).join("0")).unwrap();
        }
        fs::create_dir(&kept).unwrap();
        let link = at(&format!("prterun.n1.71.{user}"));
        std::os::unix::fs::symlink(&kept, &link).unwrap();
        for pid in [70, 71] {
            remove_session_in(temp.path(), "n1.example.org", pid);
        }
        assert!(!at(&of_5).exists() && !at(&format!("{of_4}/pid.70")).exists());
        assert!(others.iter().all(|name| at(name).exists()) && at(&of_4).exists());
        assert!(link.is_symlink() && kept.exists(), "links are not followed");
        remove_session_in(temp.path(), "n1", 7);
        assert!(!at(&of_4).exists() && !at(&others[0]).exists());
    }
}
