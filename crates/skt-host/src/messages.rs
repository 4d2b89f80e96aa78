//! Messages on standard error.

use std::io::{self, Write as _};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::{fmt, ptr};

use crate::shown::printable;
use nix::sys::signal::{SigHandler, Signal, raise, signal};

/// Largest number of characters of a line, and of lines, in a message.
const LINE_MAX: usize = 1000;
const LINES_MAX: usize = 100;

/// How errors begin: ours, and those worded as in the reference.
const ERRORS: [&str; 2] = ["error", "HPL ERROR"];

/// Whether messages other than errors are marked.
static ARE_MARKED: AtomicBool = AtomicBool::new(false);

/// Marks messages other than errors with `#` from now on, as extra lines of a report are: users of
/// the reference HPL often redirect both streams to one file.
pub fn mark() {
    ARE_MARKED.store(true, Ordering::Relaxed);
}

/// Warnings that wait for the end of the report; `None`: they do not wait.
static HELD: Mutex<Option<Vec<String>>> = Mutex::new(None);
/// The held warnings, as bytes to print when the process is asked to end.
static HELD_BYTES: AtomicPtr<Vec<u8>> = AtomicPtr::new(ptr::null_mut());

fn held() -> MutexGuard<'static, Option<Vec<String>>> {
    HELD.lock().expect("no code panics while it holds this lock")
}

/// Holds warnings back from now on, until [`print_held`] or an error: with both streams in one file
/// they would move the lines of the report. SIGTERM prints them before it ends the process; another
/// handler of it is to call [`print_held_in_handler`].
pub fn hold_warnings() {
    *held() = Some(Vec::new());
    let handler = SigHandler::Handler(print_held_and_end);
    // SAFETY: the handler makes only calls that are allowed in one.
    let before = unsafe { signal(Signal::SIGTERM, handler) };
    if matches!(before, Ok(SigHandler::SigIgn)) {
        // SAFETY: no handler.
        let _ = unsafe { signal(Signal::SIGTERM, SigHandler::SigIgn) };
    }
}

/// Prints the warnings that were held back. Allowed in signal context.
pub fn print_held_in_handler() {
    let bytes = HELD_BYTES.load(Ordering::Acquire);
    if !bytes.is_null() {
        // SAFETY: what is stored there is never freed or changed, and `write` is allowed here.
        unsafe { libc::write(libc::STDERR_FILENO, (*bytes).as_ptr().cast(), (*bytes).len()) };
    }
}

extern "C" fn print_held_and_end(_: i32) {
    print_held_in_handler();
    // SAFETY: no handler is installed, and both calls are allowed here.
    let _ = unsafe { signal(Signal::SIGTERM, SigHandler::SigDfl) };
    let _ = raise(Signal::SIGTERM);
}

/// Prints the warnings that were held back. Later ones are printed at once.
pub fn print_held() {
    HELD_BYTES.store(ptr::null_mut(), Ordering::Release);
    let texts = held().take().unwrap_or_default();
    texts.iter().for_each(|text| write(text));
}

/// Prints a message to standard error, [`printable`] and cut to 100 lines of 1000 characters. A
/// closed standard error is no reason to stop.
pub fn print(message: fmt::Arguments<'_>) {
    let text = cut(&printable(&message.to_string()));
    if text.starts_with("warning: ")
        && let Some(held) = &mut *held()
    {
        held.push(text);
        let bytes: String = held.iter().map(|text| marked(text)).collect();
        // Each list is kept: the handler may be reading it. They are short, and few.
        HELD_BYTES.store(Box::leak(Box::new(bytes.into_bytes())), Ordering::Release);
        return;
    }
    if is_error(&text) {
        print_held();
    }
    write(&text);
}

fn is_error(text: &str) -> bool {
    ERRORS.iter().any(|start| text.starts_with(start))
}

fn write(text: &str) {
    let _ = io::stderr().write_all(marked(text).as_bytes());
}

/// The lines of a message as they are printed.
fn marked(text: &str) -> String {
    let is_marked = ARE_MARKED.load(Ordering::Relaxed) && !is_error(text);
    let mark = if is_marked { "# " } else { "" };
    format!("{mark}{}\n", text.replace('\n', &format!("\n{mark}")))
}

/// Cuts a message with many lines, and long lines.
fn cut(text: &str) -> String {
    let mut lines: Vec<String> = text.lines().take(LINES_MAX).map(cut_line).collect();
    if text.lines().nth(LINES_MAX).is_some() {
        lines.push("...".to_owned());
    }
    lines.join("\n")
}

fn cut_line(line: &str) -> String {
    match line.chars().skip(LINE_MAX).count() {
        0 => line.to_owned(),
        cut => {
            let begin: String = line.chars().take(LINE_MAX).collect();
            format!("{begin}... ({cut} more characters)")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_messages_are_cut() {
        assert_eq!(cut("Größe: 3 µs\n  d\n"), "Größe: 3 µs\n  d");
        let long = cut(&format!("{}\nend", "x".repeat(3 << 20)));
        assert_eq!(long, format!("{}... (3144728 more characters)\nend", "x".repeat(1000)));
        assert_eq!(cut(&"x\n".repeat(1 << 20)).lines().count(), 101);
    }
}
