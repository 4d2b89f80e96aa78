//! A running launcher, and the files that its job writes. What comes on the standard error is
//! separated: records for the supervisor, and the text of the ranks and their launcher.
//!
//! The text of the user's program is passed on byte by byte and at once, as it may be a progress
//! bar without an end of line. What may be the beginning of a record is held until it is known.

use super::program::{self, RankEnd};
use super::state::StateFolder;
use super::{SupervisorError, process};
use skt_checkpoint::heartbeat::{self, Heartbeat};
use skt_host::process::Process;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

/// How often disk space is reserved for what the job writes.
const RESERVE_EVERY: Duration = Duration::from_secs(600);
/// The most bytes of a file that are read at a time: a job may write faster than they are passed
/// on.
const PART_BYTES: u64 = 4 << 20;
/// The most bytes of a record, and of a line that is kept to be searched. A line of a report that is
/// longer is passed on before its end.
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
        let found = fs::symlink_metadata(folder);
        found.is_ok_and(|found| found.is_dir() && found.uid() == user.as_raw())
    };
    let of_5 = temp.join(format!("prterun.{host}.{pid}.{user}"));
    let of_4 = temp.join(format!("ompi.{host}.{user}"));
    for (folder, session) in [(&of_5, of_5.clone()), (&of_4, of_4.join(format!("pid.{pid}")))] {
        if is_ours(folder) {
            let _ = fs::remove_dir_all(session);
        }
    }
    if is_ours(&of_4) {
        // It stays if other jobs have sessions in it.
        let _ = fs::remove_dir(of_4);
    }
}

const MARKS: [&[u8]; 2] = [heartbeat::MARK.as_bytes(), program::MARK.as_bytes()];

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Piece {
    Text(Vec<u8>),
    /// A line of text without the records in it. That of the user's program was passed on before;
    /// that of the benchmark is to be passed on now.
    Line(Vec<u8>),
    Heartbeat(Heartbeat),
    RankEnd(RankEnd),
}

#[derive(Debug)]
pub(crate) struct Sieve {
    is_of_program: bool,
    /// What may be a record, of which the end has not come.
    held: Vec<u8>,
    /// The present line so far, without records.
    line: Vec<u8>,
}

impl Sieve {
    /// A sieve for a job of the user's program or of the benchmark.
    pub(crate) fn new(is_of_program: bool) -> Self {
        Self { is_of_program, held: Vec::new(), line: Vec::new() }
    }

    /// The pieces of `bytes`, which come after those of the calls before. Records of jobs with
    /// another token than `token` are text.
    pub(crate) fn sift(&mut self, bytes: &[u8], token: &str) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let mut held = std::mem::take(&mut self.held);
        held.extend_from_slice(bytes);
        let mut rest = &held[..];
        loop {
            let (text, from_mark) = rest.split_at(find_mark(rest));
            self.pass(text, &mut pieces);
            rest = from_mark;
            let Some(after) = rest.get(1..) else { break };
            // A record has no other mark in it.
            let end = find_mark(after) + 1;
            match rest[..end].iter().position(|byte| *byte == b'\n') {
                Some(end) => {
                    let record = record(&rest[..=end], token);
                    let text_bytes = if record.is_some() { 0 } else { end + 1 };
                    self.pass(&rest[..text_bytes], &mut pieces);
                    pieces.extend(record);
                    rest = &rest[end + 1..];
                }
                None if end < rest.len() && is_whole_mark(&rest[end..])
                    || rest.len() > LINE_BYTES_MAX =>
                {
                    self.pass(&rest[..end], &mut pieces);
                    rest = &rest[end..];
                }
                None => break,
            }
        }
        self.held = rest.to_vec();
        pieces
    }

    /// The last pieces, once the job has ended.
    pub(crate) fn end(&mut self, token: &str) -> Vec<Piece> {
        let (held, mut pieces) = (std::mem::take(&mut self.held), Vec::new());
        match record(&held, token) {
            Some(record) => pieces.push(record),
            None => self.pass(&held, &mut pieces),
        }
        if !self.line.is_empty() {
            self.line.push(b'\n');
            pieces.push(Piece::Line(std::mem::take(&mut self.line)));
        }
        pieces
    }

    /// Passes text on, and keeps its last line.
    fn pass(&mut self, text: &[u8], pieces: &mut Vec<Piece>) {
        if self.is_of_program && !text.is_empty() {
            pieces.push(Piece::Text(text.to_vec()));
        }
        for part in text.split_inclusive(|byte| *byte == b'\n') {
            let room = LINE_BYTES_MAX - self.line.len();
            if part.len() <= room {
                self.line.extend_from_slice(part);
            } else if self.is_of_program {
                self.line.extend_from_slice(&part[..room]);
            } else {
                pieces.push(Piece::Text(std::mem::take(&mut self.line)));
                pieces.push(Piece::Text(part.to_vec()));
            }
            if part.ends_with(b"\n") && !self.line.is_empty() {
                pieces.push(Piece::Line(std::mem::take(&mut self.line)));
            }
        }
    }
}

/// Where the first mark begins, or what may become one, in `bytes`; their number if none does.
fn find_mark(bytes: &[u8]) -> usize {
    let begins = |at: &usize| {
        let rest = &bytes[*at..];
        MARKS.iter().any(|mark| rest.starts_with(mark) || mark.starts_with(rest))
    };
    let starts = bytes.iter().enumerate().filter(|(_, byte)| **byte == MARKS[0][0]);
    starts.map(|(at, _)| at).find(begins).unwrap_or(bytes.len())
}

fn is_whole_mark(bytes: &[u8]) -> bool {
    MARKS.iter().any(|mark| bytes.starts_with(mark))
}

/// The record in a line that begins with a mark.
fn record(line: &[u8], token: &str) -> Option<Piece> {
    let line = std::str::from_utf8(line).ok()?;
    let beat = Heartbeat::find(line, token).map(|(_, beat)| Piece::Heartbeat(beat));
    beat.or_else(|| RankEnd::find(line, token).map(|(_, end)| Piece::RankEnd(end)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::ProcessEnd;
    use std::io::Write as _;

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

    const TOKEN: &str = "r.1.3";

    fn record_of(token: &str) -> (Vec<u8>, Piece) {
        let (token, host) = (token.to_owned(), "n1".to_owned());
        let end = RankEnd { token, rank: Some(1), host, end: ProcessEnd::Signal(9) };
        (end.line().into_bytes(), Piece::RankEnd(end))
    }

    /// What the pieces of `parts` make: text that is passed on, lines, and records.
    fn sifted(is_of_program: bool, parts: &[&[u8]]) -> (Vec<u8>, Vec<Vec<u8>>, Vec<Piece>) {
        let mut sieve = Sieve::new(is_of_program);
        let mut pieces: Vec<Piece> =
            parts.iter().flat_map(|part| sieve.sift(part, TOKEN)).collect();
        pieces.extend(sieve.end(TOKEN));
        let (mut text, mut lines, mut records) = (Vec::new(), Vec::new(), Vec::new());
        for piece in pieces {
            match piece {
                Piece::Text(bytes) => text.extend(bytes),
                Piece::Line(line) => lines.push(line),
                record => records.push(record),
            }
        }
        (text, lines, records)
    }

    #[test]
    fn bytes_of_a_program_pass_unchanged_and_records_are_found() {
        let (line, record) = record_of(TOKEN);
        let (foreign, _) = record_of("r.2.3");
        let stream = [
            b"caf\xe9\r12%",
            &line[..],
            b"\r13% @skt @skt-hpl-beat@{} \n",
            &line[..],
            &foreign[..],
            b"@skt-hpl-rank@",
            &line[..],
            b"end@",
        ];
        let text =
            [b"caf\xe9\r12%\r13% @skt @skt-hpl-beat@{} \n", &foreign[..], b"@skt-hpl-rank@end@"];
        let (stream, text) = (stream.concat(), text.concat());
        for bytes_at_a_time in 1..stream.len() {
            let parts: Vec<&[u8]> = stream.chunks(bytes_at_a_time).collect();
            let (passed, lines, records) = sifted(true, &parts);
            assert_eq!(passed, text, "{bytes_at_a_time}: {}", String::from_utf8_lossy(&passed));
            assert_eq!(records, vec![record.clone(); 3], "{bytes_at_a_time}");
            assert_eq!(lines.concat(), [&text[..], b"\n"].concat(), "{bytes_at_a_time}");
            assert_eq!(lines.len(), 3);
        }
    }

    #[test]
    fn text_without_an_end_of_line_passes_at_once() {
        let mut sieve = Sieve::new(true);
        for part in [&b"12%"[..], b"\r13% a@b"] {
            assert_eq!(sieve.sift(part, TOKEN), [Piece::Text(part.to_vec())]);
        }
        assert_eq!(sieve.sift(b"@skt", TOKEN), []);
        assert_eq!(sieve.sift(b"-x", TOKEN), [Piece::Text(b"@skt-x".to_vec())]);
    }

    #[test]
    fn benchmark_lines_are_passed_on_whole() {
        let (line, record) = record_of(TOKEN);
        let parts = [&b"warning: \xe9"[..], b"a\n12%", &line, b"rest"];
        let (text, lines, records) = sifted(false, &parts);
        assert_eq!((text, records), (Vec::new(), vec![record]));
        assert_eq!(lines, [&b"warning: \xe9a\n"[..], b"12%rest\n"]);
    }

    #[test]
    fn a_line_without_an_end_is_not_kept() {
        let part = vec![b'x'; 300_000];
        let marked = [&part[..], b"@skt-hpl-beat@"].concat();
        for (part, is_of_program) in [(&part, true), (&marked, true), (&part, false)] {
            let (mut sieve, mut passed) = (Sieve::new(is_of_program), 0);
            for _ in 0..20 {
                for piece in sieve.sift(part, TOKEN) {
                    let Piece::Text(text) = piece else { panic!("{piece:?}") };
                    passed += text.len();
                }
                assert!(sieve.held.len() + sieve.line.len() < 2 * LINE_BYTES_MAX + part.len());
            }
            assert!(passed + LINE_BYTES_MAX + part.len() >= 20 * part.len(), "{passed}");
        }
    }
}
