//! The state of a supervisor in a folder, so that the supervisor may die at any instant.
//!
//! ```text
//! lock              held by the living supervisor
//! state.json        written whole and renamed into place
//! events.jsonl      one event per line, with its time
//! hosts             the host file of the present start
//! start-3.out     standard output of the ranks of start 3
//! start-3.err     their standard error, with the launcher's own messages
//! input             what the user's program reads on its standard input, if it reads a file
//! ```
//!
//! The job writes to files and not to a pipe of the supervisor, so it continues when the supervisor
//! is killed, and the next supervisor continues to read.

use super::hosts::{Pool, Replacement};
use crate::SupervisorError;
use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, Flock, FlockArg, fallocate};
use serde::{Deserialize, Serialize};
use skt_checkpoint::heartbeat::{DataLocation, Heartbeat};
use skt_config::Setting;
use skt_host::clock::now_unix;
use skt_host::outfile;
use skt_host::process::Process;
use skt_host::shown::shown_message;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Raised when a field changes its meaning.
const FORMAT_VERSION: u32 = 1;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// A supervisor watches the run, or was killed while it did.
    #[default]
    Running,
    /// The run was stopped on request, and can continue.
    Stopped,
    /// The run was given up, and can continue once the reason is gone.
    GaveUp,
    Finished,
}

/// A failure and what was done about it. Times are Unix seconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    pub start: usize,
    /// How the launcher ended, and why it was killed if it was.
    pub how: String,
    pub replaced: Vec<Replacement>,
    pub phase: String,
    pub column: usize,
    pub lived: bool,
    pub node_lost: bool,
    /// When the job sent its last heartbeat before the failure.
    pub last_sign_unix: f64,
    pub detected_unix: f64,
    /// When the job was started again, with the nodes probed and replaced.
    pub relaunched_unix: Option<f64>,
    /// When the ranks of that start sent the first heartbeat.
    pub alive_unix: Option<f64>,
    pub computing_unix: Option<f64>,
    pub resumed_column: Option<usize>,
}

/// The phases of a failure in seconds (Tang et al., TPDS 2018, figure 15).
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Timeline {
    /// From the last heartbeat until the failure was noticed: an upper bound.
    pub detection_seconds: f64,
    /// From then until the nodes are probed and replaced and the launcher is started.
    pub replacement_seconds: Option<f64>,
    /// From the start of the launcher until the ranks send a heartbeat.
    pub restart_seconds: Option<f64>,
    /// From the first heartbeat until the ranks compute again.
    pub recovery_seconds: Option<f64>,
}

impl Failure {
    pub(crate) fn timeline(&self) -> Timeline {
        let span = |from: Option<f64>, to: Option<f64>| Some(to? - from?);
        Timeline {
            detection_seconds: self.detected_unix - self.last_sign_unix,
            replacement_seconds: span(Some(self.detected_unix), self.relaunched_unix),
            restart_seconds: span(self.relaunched_unix, self.alive_unix),
            recovery_seconds: span(self.alive_unix, self.computing_unix),
        }
    }
}

/// Wrong numbers in the matrix that certainly come from a node, in all starts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blame {
    pub checks: u64,
    pub rows: u64,
    /// Columns eliminated at the first of these checks.
    pub first_column: Option<usize>,
    pub to_replace: bool,
}

/// All that the next supervisor needs to know.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SupervisorState {
    pub(crate) format_version: u32,
    /// A name that no other run has; the first part of each token.
    pub run: String,
    /// The name of the run in the store of segments.
    pub run_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// The checksum of that program's file when it was started last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program_checksum: Option<u64>,
    /// Where that program has reported that it keeps its data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keeps: Option<DataLocation>,
    /// Whether that program has opened several runs: when it reports one, that is not all.
    pub has_several_runs: bool,
    pub command: Vec<String>,
    /// Whether the next start resumes from the checkpoint that the command names, if it names one.
    pub goes_back: bool,
    pub ranks: usize,
    pub pool: Pool,
    pub status: Status,
    /// Why the run was given up, or how a program failed after it had reported all.
    pub reason: Option<String>,
    pub exit: Option<u8>,
    pub started_unix: f64,
    pub written_unix: f64,
    pub supervisor: Process,
    /// The number of starts so far, which is the number of the present start.
    pub start: usize,
    pub launcher: Option<Process>,
    pub launched_unix: f64,
    /// The last heartbeat of the present start, with its time.
    pub last_beat: Option<(Heartbeat, f64)>,
    pub has_checkpoint: bool,
    /// Whether the present start has reported that it cannot continue from the data that it found.
    pub is_refused: bool,
    /// Whether the present start has reported that a process of an earlier start was still running.
    pub is_changed: bool,
    /// Whether the present job has reported that its time is up.
    pub is_time_up: bool,
    /// Whether the present start has reported that its report is whole.
    pub is_reported: bool,
    /// Number of tests, in all starts, whose residual was too large.
    pub residuals_failed: usize,
    pub failures: Vec<Failure>,
    /// Number of failures, from the first, that no longer count as reasons to give up.
    pub pardoned: usize,
    /// Nodes that have taken the place of another since a start last computed: they have no data
    /// yet. Some may be spares again.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub hollow: BTreeSet<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub blamed: BTreeMap<String, Blame>,
}

impl SupervisorState {
    pub fn new(run_id: &str, command: &[String], ranks: usize, pool: Pool, me: Process) -> Self {
        let now = now_unix();
        Self {
            format_version: FORMAT_VERSION,
            run: format!("{:x}-{:x}", (now * 1e6) as u64, me.pid),
            run_id: run_id.to_owned(),
            command: command.to_vec(),
            goes_back: true,
            ranks,
            pool,
            started_unix: now,
            written_unix: now,
            launched_unix: now,
            supervisor: me,
            ..Self::default()
        }
    }

    /// Whether the state is that of the run that a user asks for. The time limit of the benchmark
    /// may differ, as each allocation ends at another time, and the checkpoint that it goes back
    /// to; a program's arguments are its own.
    pub(crate) fn is_of(&self, program: Option<&str>, command: &[String], ranks: usize) -> bool {
        let is_same_command = match program {
            Some(_) => self.command == command,
            None => split(&self.command).0 == split(command).0,
        };
        self.program.as_deref() == program && is_same_command && self.ranks == ranks
    }

    /// The state of the run under another supervisor, with its `command` and the nodes of its
    /// `pool`. Unless the earlier supervisor was killed while the run was running, the user has
    /// asked again, and its failures no longer count.
    pub(crate) fn taken_over(mut self, command: &[String], pool: &Pool, me: Process) -> Self {
        if self.status != Status::Running {
            self.pardoned = self.failures.len();
        }
        self.goes_back = split(&self.command).1 != split(command).1;
        self.command = command.to_vec();
        self.pool = self.pool.with_new(pool);
        (self.supervisor, self.status) = (me, Status::Running);
        (self.reason, self.exit) = (None, None);
        self
    }

    /// The heartbeat token of the present start, see [`heartbeat::ENV`](skt_checkpoint::heartbeat).
    pub(crate) fn token(&self) -> String {
        format!("{}.{}.{}", self.run, self.start, self.ranks)
    }
}

/// The arguments of the benchmark but for its time limit and the checkpoint that it goes back to,
/// and that checkpoint.
fn split(command: &[String]) -> (Vec<&str>, Option<&str>) {
    let [time_limit, resume] =
        [Setting::TimeLimit, Setting::Resume].map(|it| format!("--{}", it.info().flag()));
    let (mut words, mut others, mut checkpoint) =
        (command.iter().map(String::as_str).peekable(), Vec::new(), None);
    while let Some(word) = words.next() {
        let (flag, value) = word.split_once('=').map_or((word, None), |(f, v)| (f, Some(v)));
        let value = value.or_else(|| words.peek().copied());
        let number = value.filter(|value| flag == resume && value.parse::<u64>().is_ok());
        if flag != time_limit && number.is_none() {
            others.push(word);
            continue;
        }
        checkpoint = number.or(checkpoint);
        if !word.contains('=') {
            words.next();
        }
    }
    (others, checkpoint)
}

/// Bytes reserved for each file that a start writes: some hours of heartbeats.
const RESERVED_BYTES: i64 = 4 << 20;
/// The smallest reservation that is worth making, in bytes.
const RESERVED_BYTES_MIN: i64 = 4 << 10;
/// How often, and how far apart, a supervisor tries to take the lock, which `skt-hpl status` has
/// for an instant.
const LOCK_TRIES: usize = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

#[derive(Debug, Clone)]
pub struct StateFolder(PathBuf);

impl StateFolder {
    pub fn new(path: &Path) -> Self {
        Self(path.to_owned())
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The files to which start number `start` writes its standard output and standard error.
    pub(crate) fn outputs(&self, start: usize) -> (PathBuf, PathBuf) {
        (self.file(&format!("start-{start}.out")), self.file(&format!("start-{start}.err")))
    }

    fn open_outputs(&self, start: usize) -> impl Iterator<Item = (File, i64)> {
        let (out, err) = self.outputs(start);
        let open = |path| unfollowed().write(true).open(path).ok();
        [err, out].into_iter().filter_map(open).filter_map(|file| {
            let written = file.metadata().ok()?.len() as i64;
            Some((file, written))
        })
    }

    /// Reserves space for what start number `start` will write, beyond what it has written, so that
    /// its heartbeats arrive also when the file system is full. A file system that cannot reserve
    /// is left as it is.
    pub(crate) fn reserve(&self, start: usize) {
        let keep_size = FallocateFlags::FALLOC_FL_KEEP_SIZE;
        for (file, written) in self.open_outputs(start) {
            let mut bytes = RESERVED_BYTES;
            while fallocate(&file, keep_size, written, bytes) == Err(Errno::ENOSPC)
                && bytes > RESERVED_BYTES_MIN
            {
                bytes /= 2;
            }
        }
    }

    /// Frees the space that [`StateFolder::reserve`] reserved, once the start has ended.
    pub(crate) fn release(&self, start: usize) {
        for (file, written) in self.open_outputs(start) {
            // Cut to its own length, a file loses the space reserved beyond it. A failure does no
            // harm.
            let _ = file.set_len(written as u64);
        }
    }

    /// Makes the folder, accessible to this user only, and takes the lock, which is held as long as
    /// the returned value lives.
    pub(crate) fn lock(&self) -> Result<Flock<File>, SupervisorError> {
        self.lock_by(|| std::thread::sleep(LOCK_PAUSE))
    }

    /// Takes the lock, with a call of `pause` between two tries.
    fn lock_by(&self, mut pause: impl FnMut()) -> Result<Flock<File>, SupervisorError> {
        let path = self.file("lock");
        let failed = SupervisorError::file(&path);
        self.0.parent().map_or(Ok(()), fs::create_dir_all).map_err(&failed)?;
        match DirBuilder::new().mode(0o700).create(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(failed(error));
            }
            _ => {}
        }
        check(&self.0, &fs::metadata(&self.0).map_err(&failed)?)?;
        let mut options = unfollowed();
        let mut file =
            options.create(true).truncate(false).write(true).open(&path).map_err(&failed)?;
        check(&path, &file.metadata().map_err(&failed)?)?;
        for tries_left in (0..LOCK_TRIES).rev() {
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(lock) => return Ok(lock),
                Err((back, Errno::EWOULDBLOCK)) if tries_left > 0 => file = back,
                Err((_, Errno::EWOULDBLOCK)) => break,
                Err((_, other)) => return Err(failed(other.into())),
            }
            pause();
        }
        Err(SupervisorError(format!(
            "{}: another `skt-hpl launch` is at work on this run",
            path.display()
        )))
    }

    pub fn is_locked(&self) -> bool {
        let Ok(file) = unfollowed().read(true).open(self.file("lock")) else { return false };
        let lock = Flock::lock(file, FlockArg::LockSharedNonblock);
        matches!(lock, Err((_, Errno::EWOULDBLOCK)))
    }

    /// Reads the state that was saved last, if any, to act on it.
    pub fn load(&self) -> Result<Option<SupervisorState>, SupervisorError> {
        self.read(check)
    }

    /// Reads the state that was saved last, to show it: it may belong to another user.
    pub fn load_for_display(&self) -> Result<Option<SupervisorState>, SupervisorError> {
        self.read(|_, _| Ok(()))
    }

    fn read(
        &self,
        check: fn(&Path, &Metadata) -> Result<(), SupervisorError>,
    ) -> Result<Option<SupervisorState>, SupervisorError> {
        let path = self.file("state.json");
        let failed = SupervisorError::file(&path);
        let mut file = match unfollowed().read(true).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        check(&path, &file.metadata().map_err(&failed)?)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(&failed)?;
        match serde_json::from_slice::<SupervisorState>(&bytes) {
            Ok(state) if state.format_version == FORMAT_VERSION => Ok(Some(state)),
            Ok(state) => Err(self.no_state(&format!("version {}", state.format_version))),
            Err(error) => Err(self.no_state(&shown_message(&error.to_string()))),
        }
    }

    pub(crate) fn no_state(&self, why: &str) -> SupervisorError {
        SupervisorError(format!(
            "{}: not a state of this version of skt-hpl ({why}); remove the folder",
            self.file("state.json").display()
        ))
    }

    /// Saves the state, all or nothing.
    pub fn save(&self, state: &mut SupervisorState) -> Result<(), SupervisorError> {
        state.written_unix = state.written_unix.max(now_unix());
        let bytes = serde_json::to_vec_pretty(state).expect("text and numbers become JSON");
        let path = self.file("state.json");
        outfile::replace(&path, 0o600, true, |out| out.write_all(&bytes))
            .map_err(SupervisorError::file(&path))
    }

    pub(crate) fn event(&self, kind: &str, text: &str) -> Result<(), SupervisorError> {
        let path = self.file("events.jsonl");
        let line = serde_json::json!({ "unix_seconds": now_unix(), "event": kind, "text": text });
        unfollowed()
            .create(true)
            .append(true)
            .open(&path)
            .and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()))
            .map_err(SupervisorError::file(&path))
    }

    /// Removes what only a running run needs, and all files of older starts.
    pub(crate) fn tidy(&self) {
        let Ok(entries) = fs::read_dir(&self.0) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            // A supervisor that was killed while it saved may leave its temporary file.
            let is_new = [".state.json", ".hosts", ".input"].iter().any(|it| name.starts_with(it));
            let is_of_start = name.starts_with("start-") || name.starts_with("input");
            if is_of_start || name == "hosts" || is_new {
                // A file that stays does no harm.
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

/// Options that open the file of this very name and follow no link, as no file here is a link. A
/// file that they create is accessible to this user only.
fn unfollowed() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.custom_flags(libc::O_NOFOLLOW).mode(0o600);
    options
}

/// Checks that this user alone can write the file or folder that the state is read from.
fn check(path: &Path, metadata: &Metadata) -> Result<(), SupervisorError> {
    let (owner, me) = (metadata.uid(), nix::unistd::geteuid().as_raw());
    let why = if owner != me {
        format!("belongs to user {owner}, not to {me}: remove it")
    } else if metadata.mode() & 0o022 != 0 {
        let mode = metadata.mode() & 0o7777;
        let path = path.display();
        format!("others may write to it (mode {mode:o}): check it, then `chmod go-w {path}`")
    } else {
        return Ok(());
    };
    // It decides which processes the supervisor starts and ends.
    Err(SupervisorError(format!("{}: {why}, or name another folder with --state", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosts::{Host, Pool};
    use skt_host::process::Process;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn run_continues_under_another_time_limit() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let me = Process::from_pid(std::process::id() as i32).unwrap();
        let pool = Pool::new(vec![], vec![]);
        let state =
            SupervisorState::new("r", &words("--n 9 --time-limit @1 --json f"), 4, pool, me);
        for (command, ranks, is_of) in [
            ("--n 9 --time-limit @1 --json f", 4, true),
            ("--n 9 --time-limit @2 --json f", 4, true),
            ("--n 9 --json f --time-limit=1h", 4, true),
            ("--n 9 --json f", 4, true),
            ("--n 9 --resume 5 --json f", 4, true),
            ("--n 9 --json f --resume=5", 4, true),
            ("--n 9 --json f --resume never", 4, false),
            ("--n 8 --time-limit @1 --json f", 4, false),
            ("--n 9 --time-limit @1 --json f", 5, false),
            ("--n 9 --time-limits @1 --json f", 4, false),
        ] {
            assert_eq!(state.is_of(None, &words(command), ranks), is_of, "{command} {ranks}");
        }
        let of_program = SupervisorState { program: Some("/bin/heat".to_owned()), ..state };
        let same = of_program.command.clone();
        assert!(of_program.is_of(Some("/bin/heat"), &same, 4));
        assert!(!of_program.is_of(Some("/bin/heat"), &words("--n 9 --json f"), 4));
        assert!(!of_program.is_of(Some("/bin/cold"), &same, 4));
        assert!(!of_program.is_of(None, &same, 4));
    }

    #[test]
    fn incomplete_timeline_is_reported_as_far_as_known() {
        let (last_sign_unix, detected_unix, relaunched_unix) = (10.0, 12.5, Some(13.0));
        let mut failure =
            Failure { last_sign_unix, detected_unix, relaunched_unix, ..Failure::default() };
        let timeline = failure.timeline();
        assert_eq!((timeline.detection_seconds, timeline.replacement_seconds), (2.5, Some(0.5)));
        assert_eq!((timeline.restart_seconds, timeline.recovery_seconds), (None, None));
        failure.alive_unix = Some(13.75);
        failure.computing_unix = Some(15.0);
        assert_eq!(failure.timeline().restart_seconds, Some(0.75));
        assert_eq!(failure.timeline().recovery_seconds, Some(1.25));
    }

    fn state() -> SupervisorState {
        let me = Process::from_pid(std::process::id() as i32).unwrap();
        let pool = Pool::new(vec![Host { name: "n1".into(), slots: 2 }], vec![]);
        SupervisorState::new("hpl-1", &["--n".into(), "100".into()], 2, pool, me)
    }

    #[test]
    fn state_survives_a_round_trip() {
        let folder = tempfile::tempdir().unwrap();
        let folder = StateFolder::new(&folder.path().join("made"));
        assert!(!folder.is_locked());
        let lock = folder.lock().unwrap();
        assert!(folder.is_locked());
        assert!(folder.lock().unwrap_err().to_string().contains("is at work on this run"));
        assert_eq!(folder.load().unwrap(), None);
        let mut state = state();
        folder.save(&mut state).unwrap();
        assert_eq!(folder.load().unwrap(), Some(state));
        drop(lock);
        assert!(!folder.is_locked());
        // A read without the lock blocks no one.
        let file = File::open(folder.file("lock")).unwrap();
        let mut reader = Some(Flock::lock(file, FlockArg::LockSharedNonblock).unwrap());
        drop(folder.lock_by(|| drop(reader.take())).unwrap());
        assert!(reader.is_none(), "it waited for the look");
        fs::write(folder.file("state.json"), "{}").unwrap();
        assert!(folder.load().unwrap_err().to_string().contains("not a state of this version"));
    }

    #[test]
    fn folder_writable_by_others_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("made");
        let of_path = StateFolder::new(&path);
        drop(of_path.lock().unwrap());
        of_path.save(&mut state()).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(&path), mode(&of_path.file("state.json"))), (0o700, 0o600));
        for (of, bits) in [(path.clone(), 0o770), (of_path.file("state.json"), 0o666)] {
            let before = fs::metadata(&of).unwrap().permissions();
            fs::set_permissions(&of, fs::Permissions::from_mode(bits)).unwrap();
            let refused = of_path.lock().and_then(|_| of_path.load()).unwrap_err();
            assert!(refused.to_string().contains("chmod go-w"), "{refused}");
            assert!(of_path.load_for_display().unwrap().is_some(), "to show it is no harm");
            fs::set_permissions(&of, before).unwrap();
        }
        assert!(of_path.lock().and_then(|_| of_path.load()).unwrap().is_some());
        // None of the folder's files may be a link, and none is written through one.
        let victim = folder.path().join("victim");
        fs::write(&victim, "dear").unwrap();
        for name in ["state.json", "events.jsonl", "lock", "state.json.new"] {
            let _ = fs::remove_file(of_path.file(name));
            std::os::unix::fs::symlink(&victim, of_path.file(name)).unwrap();
        }
        assert!(of_path.lock().is_err() && of_path.load().is_err());
        assert!(of_path.event("kind", "text").is_err());
        of_path.save(&mut state()).unwrap();
        assert_eq!(of_path.load().unwrap().unwrap().run_id, "hpl-1");
        assert_eq!(fs::read_to_string(&victim).unwrap(), "dear");
    }

    #[test]
    fn disk_space_of_a_start_is_reserved_and_released() {
        let folder = tempfile::tempdir().unwrap();
        let folder = StateFolder::new(folder.path());
        let (out, err) = folder.outputs(1);
        let mut writer = File::create(&out).unwrap();
        File::create(&err).unwrap();
        writer.write_all(b"report").unwrap();
        let keep_size = FallocateFlags::FALLOC_FL_KEEP_SIZE;
        if fallocate(&writer, keep_size, 0, 1) == Err(Errno::EOPNOTSUPP) {
            // Past the capture of a passing test's output, as tests/skipped does it.
            let why = b"skipped: supervisor::state::folder: this file system sets no room aside\n";
            let _ = std::io::Write::write_all(&mut std::io::stderr(), why);
            return;
        }
        folder.reserve(1);
        let blocks = || fs::metadata(&out).unwrap().blocks() * 512;
        assert!(blocks() >= RESERVED_BYTES as u64, "{}", blocks());
        writer.write_all(b" and more").unwrap();
        folder.release(1);
        assert!(blocks() <= 1 << 16, "{}", blocks());
        assert_eq!(fs::read_to_string(&out).unwrap(), "report and more");
    }

    #[test]
    fn host_names_of_a_state_are_checked() {
        let folder = tempfile::tempdir().unwrap();
        let folder = StateFolder::new(folder.path());
        let good = serde_json::to_string(&state()).unwrap();
        for bad in ["-oProxyCommand=x", "n1;reboot", ""] {
            let text = good.replace(r#""name":"n1""#, &format!(r#""name":"{bad}""#));
            assert_ne!(text, good);
            outfile::replace(&folder.file("state.json"), 0o600, false, |out| {
                out.write_all(text.as_bytes())
            })
            .unwrap();
            let message = folder.load().unwrap_err().to_string();
            assert!(message.contains(&format!("'{bad}' is no host name")), "{message}");
        }
    }

    #[test]
    fn malformed_state_is_reported_in_a_short_line() {
        let folder = tempfile::tempdir().unwrap();
        let folder = StateFolder::new(folder.path());
        let other = format!(r#""status":"\u001b[31m\n{}""#, "x".repeat(1 << 20));
        let text = serde_json::to_string(&state()).unwrap();
        let text = text.replace(r#""status":"running""#, &other);
        fs::write(folder.file("state.json"), text).unwrap();
        let message = folder.load_for_display().unwrap_err().to_string();
        assert!(message.contains(r"unknown variant `\u{1b}[31m\nxxx"), "{message}");
        assert!(
            message.len() < 1000 && !message.contains(char::is_control),
            "{} bytes",
            message.len()
        );
    }
}
