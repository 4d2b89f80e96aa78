//! A running launcher, and the files that its job writes.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use super::sieve::{Piece, Sieve};
use super::state::StateFolder;
use super::{SupervisorError, process};
use skt_host::process::Process;

/// How often disk space is reserved for what the job writes.
const RESERVE_EVERY: Duration = Duration::from_secs(600);
/// The most bytes of a file that are read at a time: a job may write faster than they are passed
/// on.
const PART_BYTES: u64 = 4 << 20;
/// A line of a report that is longer is passed on before its end.
const LINE_BYTES_MAX: usize = 1 << 20;

#[derive(Debug)]
pub(crate) struct Job {
    pub launcher: Process,
    /// The launcher as a child of this process, unless an earlier supervisor started it.
    child: Option<Child>,
    /// The files with the job's standard output and standard error.
    outputs: [(PathBuf, File); 2],
    /// The last line of the benchmark's report, of which the end has not come; nothing of the
    /// user's program is held back.
    report: Option<Vec<u8>>,
    sieve: Sieve,
    reserved: Option<Instant>,
}

#[derive(Debug)]
pub(crate) struct JobOutput {
    /// What is new on its standard output: whole lines of the benchmark, and any bytes of the
    /// user's program.
    pub report: Vec<u8>,
    /// What is new on its standard error.
    pub pieces: Vec<Piece>,
    pub is_all: bool,
}

impl Job {
    /// Opens the output files of start number `start` at their beginning: the heartbeats of an
    /// earlier supervisor's job are needed, and this supervisor has not seen its report.
    pub(crate) fn outputs(
        folder: &StateFolder,
        start: usize,
    ) -> Result<[(PathBuf, File); 2], SupervisorError> {
        let (out, err) = folder.outputs(start);
        let open = |path: PathBuf| {
            let file = File::open(&path).map_err(SupervisorError::file(&path))?;
            Ok((path, file))
        };
        Ok([open(out)?, open(err)?])
    }

    /// The job of `launcher`, which is a `child` of this supervisor or was started by an earlier
    /// one.
    pub(crate) fn new(
        launcher: Process,
        child: Option<Child>,
        outputs: [(PathBuf, File); 2],
        is_of_program: bool,
    ) -> Self {
        let report = (!is_of_program).then(Vec::new);
        let sieve = Sieve::new(is_of_program);
        Self { launcher, child, outputs, report, sieve, reserved: None }
    }

    /// Reserves disk space for what start number `start` writes, every ten minutes.
    pub(crate) fn reserve(&mut self, folder: &StateFolder, start: usize) {
        if self.reserved.is_none_or(|since| since.elapsed() > RESERVE_EVERY) {
            self.reserved = Some(Instant::now());
            folder.reserve(start);
        }
    }

    /// Returns the next part of what the job has written, of which `token` marks the records.
    pub(crate) fn read(&mut self, token: &str) -> Result<JobOutput, SupervisorError> {
        let mut parts = [Vec::new(), Vec::new()];
        for ((path, file), part) in self.outputs.iter().zip(&mut parts) {
            let read = file.take(PART_BYTES).read_to_end(part);
            read.map_err(SupervisorError::file(path))?;
        }
        let is_all = parts.iter().all(Vec::is_empty);
        let [report, err] = parts;
        let pieces = self.sieve.sift(&err, token);
        Ok(JobOutput { report: self.whole_lines(report), pieces, is_all })
    }

    /// Returns what [`Job::read`] has held back, once the job has ended.
    pub(crate) fn rest(&mut self, token: &str) -> JobOutput {
        let mut report = self.report.take().unwrap_or_default();
        if !report.is_empty() {
            report.push(b'\n');
        }
        JobOutput { report, pieces: self.sieve.end(token), is_all: true }
    }

    /// Holds the last line of a report back until it is whole.
    fn whole_lines(&mut self, new: Vec<u8>) -> Vec<u8> {
        let Some(held) = &mut self.report else { return new };
        held.extend(new);
        let end = held.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let is_long = held.len() - end > LINE_BYTES_MAX;
        let rest = held.split_off(if is_long { held.len() } else { end });
        std::mem::replace(held, rest)
    }

    /// Returns how the launcher ended, and whether with code 0; `None` while it runs.
    pub(crate) fn ended(&mut self) -> Option<(String, bool)> {
        match &mut self.child {
            Some(child) => match child.try_wait() {
                Ok(None) => None,
                Ok(Some(status)) => {
                    let how = match (status.code(), status.signal()) {
                        (Some(code), _) => format!("the launcher ended with code {code}"),
                        (_, Some(signal)) => format!("the launcher was killed by signal {signal}"),
                        _ => "the launcher ended".to_owned(),
                    };
                    Some((how, status.success()))
                }
                Err(error) => Some((format!("the launcher is lost: {error}"), false)),
            },
            None if self.launcher.runs() => None,
            None => Some(("the launcher ended unseen".to_owned(), false)),
        }
    }
}

/// Removes the session folder of an Open MPI launcher that was killed; one that ends in order
/// removes it itself.
pub(crate) fn remove_session(pid: i32) {
    remove_session_in(&std::env::temp_dir(), &process::this_host(), pid);
}

/// Removes the session folder in `temp` of the launcher with process id `pid` on `host`. Open MPI
/// names the folder after the host without its domain.
fn remove_session_in(temp: &Path, host: &str, pid: i32) {
    let user = nix::unistd::geteuid();
    let host = host.split('.').next().unwrap_or(host);
    // A link of another user is not followed.
    let is_ours = |folder: &Path| {
        fs::symlink_metadata(folder)
            .is_ok_and(|found| found.is_dir() && found.uid() == user.as_raw())
    };
    // Open MPI 5, whose mpirun is prterun.
    let session = temp.join(format!("prterun.{host}.{pid}.{user}"));
    if is_ours(&session) {
        let _ = fs::remove_dir_all(session);
    }
    // Open MPI 4.
    let all = temp.join(format!("ompi.{host}.{user}"));
    if is_ours(&all) {
        let _ = fs::remove_dir_all(all.join(format!("pid.{pid}")));
        // The folder stays if other jobs have sessions in it.
        let _ = fs::remove_dir(all);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn what_the_job_writes_is_returned_once_and_in_parts() {
        let folder = tempfile::tempdir().unwrap();
        let folder = StateFolder::new(folder.path());
        let (out, err) = folder.outputs(1);
        let mut writer = File::create(out).unwrap();
        File::create(err).unwrap();
        let me = Process::from_pid(std::process::id() as i32).unwrap();
        let mut job = Job::new(me, None, Job::outputs(&folder, 1).unwrap(), true);
        let mut read = || job.read("token").unwrap().report;
        assert_eq!(read(), b"");
        writer.write_all(b"caf\xe9\ntw").unwrap();
        assert_eq!(read(), b"caf\xe9\ntw");
        assert_eq!(read(), b"");
        writer.write_all(&vec![b'x'; PART_BYTES as usize + 7]).unwrap();
        assert_eq!(read().len(), PART_BYTES as usize);
        assert_eq!(read(), b"xxxxxxx");
    }

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
