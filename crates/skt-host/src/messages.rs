//! Messages on standard error.

use std::fmt;
use std::io::{self, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};

use skt_terms::shown::printable;

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

/// Prints a message to standard error, [`printable`] and cut to 100 lines of 1000 characters. A
/// closed standard error is no reason to stop.
pub fn print(message: fmt::Arguments<'_>) {
    let text = cut(&printable(&message.to_string()));
    let is_marked =
        ARE_MARKED.load(Ordering::Relaxed) && !ERRORS.iter().any(|start| text.starts_with(start));
    let mark = if is_marked { "# " } else { "" };
    let _ = writeln!(io::stderr(), "{mark}{}", text.replace('\n', &format!("\n{mark}")));
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
