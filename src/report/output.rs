use std::io;
use std::path::Path;

use nix::errno::Errno;
use nix::unistd::{AccessFlags, access};
use skt_host::shown::printable;

use skt_config::ConfigError;
use skt_host::{outfile, streams};

/// A writer through which text leaves the program: [`printable`], whatever others have put into it.
pub(crate) struct SafeText<W>(pub W);

impl<W: io::Write> io::Write for SafeText<W> {
    /// Takes whole texts only, as `write!` and `write_all` pass them.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        self.0.write_all(printable(&text).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

pub(crate) fn print(text: &str) -> Result<(), ConfigError> {
    print_bytes(printable(text).as_bytes())
}

fn print_bytes(bytes: &[u8]) -> Result<(), ConfigError> {
    streams::print(bytes)
        .map_err(|why| ConfigError::in_file("standard output", format!("cannot be written: {why}")))
}

pub(crate) fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Prints a report as `text`, and writes it as `json` to a file; `-` has it printed as JSON alone.
pub(crate) fn print_and_write(
    text: &str,
    json: &str,
    file: Option<&Path>,
) -> Result<(), ConfigError> {
    if !file.is_some_and(is_stdout) {
        print(text)?;
    }
    file.map_or(Ok(()), |path| write_file(path, json, true))
}

/// Before the work whose result goes into the file. If it is not there yet, its folder must be.
pub(crate) fn must_be_writable(path: &Path) -> Result<(), ConfigError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let there = if path.exists() { path } else { folder.unwrap_or(Path::new(".")) };
    let access = if path.is_dir() { Err(Errno::EISDIR) } else { access(there, AccessFlags::W_OK) };
    match access {
        Err(errno) if !is_stdout(path) => {
            let why = io::Error::from(errno);
            Err(ConfigError::in_file(path.display(), format!("cannot be written: {why}")))
        }
        _ => Ok(()),
    }
}

/// `others` are files and what they are. Devices may be named as often as one likes.
pub(crate) fn must_not_replace(
    report: &Path,
    others: &[(&Path, &'static str)],
) -> Result<(), ConfigError> {
    let is_file = |path: &Path| path.metadata().map_or(!is_stdout(path), |it| it.is_file());
    let whole = |path: &Path| path.canonicalize().or_else(|_| std::path::absolute(path)).ok();
    let is_same = |other: &Path| is_file(report) && whole(report) == whole(other);
    match others.iter().find(|(other, _)| is_same(other)) {
        None => Ok(()),
        Some((_, what)) => {
            let what = format!("is {what}, and a report would replace it; name another file");
            Err(ConfigError::in_file(report.display(), what))
        }
    }
}

/// [`printable`]; overwrites an existing file only with `force`. `-` is standard output.
pub(crate) fn write_file(path: &Path, text: &str, force: bool) -> Result<(), ConfigError> {
    let text = printable(text);
    if is_stdout(path) {
        return print_bytes(text.as_bytes());
    }
    let write = if force { outfile::write } else { outfile::write_new };
    write(path, text.as_bytes()).map_err(|why| match why.kind() {
        io::ErrorKind::AlreadyExists => ConfigError::exists(path.display()),
        _ => ConfigError::in_file(path.display(), format!("cannot be written: {why}")),
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_report_has_no_escape_sequence_of_others() {
        let mut out = SafeText(Vec::new());
        let (host, model) = ("a\u{1b}]0;x\u{7}", "é");
        writeln!(out, "# host: {host}, {model}").unwrap();
        assert_eq!(String::from_utf8(out.0).unwrap(), "# host: a\\u001b]0;x\\u0007, é\n");
    }
}
