//! Where the command line's own text goes.

use std::fmt;
use std::io::Write as _;
use std::path::Path;

use nix::sys::signal::{SigHandler, Signal, signal};

use crate::config::ConfigError;
use crate::outfile;

/// Lets a closed pipe end the process, as other text tools do (`| head`). Not
/// for the benchmark itself: there a broken connection must stay an error that
/// the transport can handle.
pub fn die_quietly_on_closed_pipe() {
    // SAFETY: SIG_DFL installs no handler, so no code of ours runs in signal
    // context.
    let _ = unsafe { signal(Signal::SIGPIPE, SigHandler::SigDfl) };
}

/// A line on standard error. That it may be closed is no reason to stop.
pub fn say(line: fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Writes text to standard output.
///
/// # Errors
/// It cannot be written.
pub fn print(text: &[u8]) -> Result<(), ConfigError> {
    let mut stdout = std::io::stdout().lock();
    stdout
        .write_all(text)
        .and_then(|()| stdout.flush())
        .map_err(|source| ConfigError::Write { file: "standard output".to_owned(), source })
}

/// Writes a file; one that exists is overwritten only by `force`.
///
/// # Errors
/// It exists, or cannot be written.
pub fn write_file(path: &Path, text: &[u8], force: bool) -> Result<(), ConfigError> {
    let file = path.display().to_string();
    let open = if force { outfile::create(path) } else { outfile::create_new(path) };
    match open.and_then(|mut open| open.write_all(text)) {
        Ok(()) => Ok(()),
        Err(source) if source.kind() == std::io::ErrorKind::AlreadyExists => {
            Err(ConfigError::Exists { file })
        }
        Err(source) => Err(ConfigError::Write { file, source }),
    }
}
