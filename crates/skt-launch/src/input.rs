//! What the user's program reads on its standard input: rank 0 of each start gets all of it.
//!
//! A file is copied to the state folder, so that later starts, also those of another supervisor,
//! read what the first has read. What comes through a pipe could be neither read twice nor waited
//! for: a pipe without a writer may stay open for ever.

use std::fs::{self, File};
use std::io::{self, IsTerminal as _, Read as _, Seek as _, SeekFrom};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;
use std::process::Stdio;

use super::SupervisorError;
use super::state::StateFolder;
use skt_host::outfile;

/// What errors name it.
pub(crate) const STDIN: &str = "standard input";

/// The standard input of a program, in each of its starts.
#[derive(Debug, Default)]
pub(crate) struct Input(Option<File>);

/// What a supervisor was given as its standard input.
#[derive(Debug)]
enum Given {
    /// A terminal, which is not for a job in the background, or `/dev/null`.
    Nothing,
    /// What cannot be passed on, in words. Nothing has come through it so far.
    Unused(&'static str),
    Pipe,
    /// A file, from this byte on.
    File(File, u64),
}

impl Input {
    /// Keeps what `stdin` gives in the state folder, unless an earlier supervisor has. `is_new`:
    /// the run begins. Returns a note for the user, too, if the input is not passed on.
    pub(crate) fn keep(
        folder: &StateFolder,
        stdin: &File,
        is_new: bool,
    ) -> Result<(Self, Option<String>), SupervisorError> {
        let path = folder.file("input");
        let failed = SupervisorError::file(&path);
        let mut note = None;
        match given(stdin).map_err(SupervisorError::file(Path::new(STDIN)))? {
            Given::Nothing => {}
            Given::Unused(what) => {
                let gets = "the program gets none of it; give what it reads as a file (< FILE)";
                note = Some(format!("{STDIN} is {what}: {gets}"));
            }
            Given::Pipe => {
                return Err(SupervisorError(format!(
                    "{STDIN} is a pipe with data, which the program could not read again when it \
                     is started again: give a file (< FILE), or < /dev/null"
                )));
            }
            Given::File(file, from) => {
                let mut text = Vec::new();
                let mut file = reopened(&file).map_err(&failed)?;
                file.seek(SeekFrom::Start(from)).map_err(&failed)?;
                file.read_to_end(&mut text).map_err(&failed)?;
                if is_new {
                    outfile::replace(&path, 0o600, false, |out| out.write_all(&text))
                        .map_err(&failed)?;
                } else if fs::read(&path).unwrap_or_default() != text {
                    // A missing file has no contents.
                    return Err(SupervisorError(format!(
                        "{STDIN} has other contents than that of the unfinished run ({}): finish \
                         the run with that, or name another folder with --state",
                        path.display()
                    )));
                }
            }
        }
        match File::open(&path) {
            Ok(file) => Ok((Self(Some(file)), note)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok((Self(None), note)),
            Err(error) => Err(failed(error)),
        }
    }

    pub(crate) fn is_some(&self) -> bool {
        self.0.is_some()
    }

    /// The input for another start, from its beginning.
    pub(crate) fn stdio(&self) -> io::Result<Stdio> {
        match &self.0 {
            None => Ok(Stdio::null()),
            Some(file) => reopened(file).map(Stdio::from),
        }
    }
}

fn given(stdin: &File) -> io::Result<Given> {
    let found = stdin.metadata()?;
    let kind = found.file_type();
    if kind.is_file() {
        let mut file = stdin.try_clone()?;
        let from = file.stream_position()?;
        return Ok(Given::File(file, from));
    }
    if kind.is_fifo() || kind.is_socket() {
        let mut waiting: libc::c_int = 0;
        // SAFETY: the call writes a number of bytes to an integer that lives.
        let done = unsafe { libc::ioctl(stdin.as_fd().as_raw_fd(), libc::FIONREAD, &mut waiting) };
        return match done {
            0 if waiting > 0 => Ok(Given::Pipe),
            0 => Ok(Given::Unused("a pipe with nothing in it")),
            _ => Err(io::Error::last_os_error()),
        };
    }
    let is_null = fs::metadata("/dev/null").is_ok_and(|null| null.rdev() == found.rdev());
    if stdin.is_terminal() || (kind.is_char_device() && is_null) {
        return Ok(Given::Nothing);
    }
    Ok(Given::Unused("no file"))
}

/// Opens a file once more: the place that it is read at is shared with the shell that has started
/// this process. Its name may be gone.
fn reopened(file: &File) -> io::Result<File> {
    File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::fd::OwnedFd;
    use std::process::Command;

    use super::*;

    fn read(input: &Input) -> Vec<u8> {
        let out = Command::new("cat").stdin(input.stdio().unwrap()).output().unwrap();
        assert!(out.status.success());
        out.stdout
    }

    #[test]
    fn each_start_reads_the_input_from_the_same_offset() {
        let temp = tempfile::tempdir().unwrap();
        let folder = StateFolder::new(temp.path());
        let file = temp.path().join("deck");
        fs::write(&file, b"read caf\xe9\n").unwrap();
        let mut stdin = File::open(&file).unwrap();
        stdin.seek(io::SeekFrom::Start(5)).unwrap();
        let (input, note) = Input::keep(&folder, &stdin, true).unwrap();
        assert_eq!((stdin.stream_position().unwrap(), note), (5, None));
        fs::remove_file(&file).unwrap();
        assert_eq!((read(&input), read(&input)), (b"caf\xe9\n".to_vec(), b"caf\xe9\n".to_vec()));
        // The next supervisor is given the same, nothing, or something else.
        let null = File::open("/dev/null").unwrap();
        for again in [&stdin, &null] {
            let (again, _) = Input::keep(&folder, again, false).unwrap();
            assert_eq!(read(&again), b"caf\xe9\n");
        }
        fs::write(&file, "other").unwrap();
        let other = Input::keep(&folder, &File::open(&file).unwrap(), false);
        assert!(other.unwrap_err().to_string().contains("has other contents"));
        fs::remove_file(folder.file("input")).unwrap();
        assert_eq!(read(&input), b"caf\xe9\n", "also without its name");
        let none = Input::keep(&folder, &File::open(&file).unwrap(), false);
        let why = none.unwrap_err().to_string();
        assert!(why.contains("has other contents"), "the run began without: {why}");
    }

    #[test]
    fn unrepeatable_input_is_reported() {
        let temp = tempfile::tempdir().unwrap();
        let folder = StateFolder::new(temp.path());
        let null = File::open("/dev/null").unwrap();
        let (input, note) = Input::keep(&folder, &null, true).unwrap();
        assert!(!input.is_some() && note.is_none() && read(&input).is_empty());
        let (reader, mut writer) = io::pipe().unwrap();
        let reader = File::from(OwnedFd::from(reader));
        let (input, note) = Input::keep(&folder, &reader, true).unwrap();
        assert!(!input.is_some() && note.unwrap().contains("a pipe with nothing in it"));
        writer.write_all(b"5\n").unwrap();
        let refused = Input::keep(&folder, &reader, true).unwrap_err().to_string();
        assert!(refused.contains("< FILE"), "{refused}");
        let (_, note) = Input::keep(&folder, &File::open("/dev/zero").unwrap(), true).unwrap();
        assert!(note.is_some());
    }
}
