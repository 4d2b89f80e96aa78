//! Warnings about what a job finds.

use skt_host::messages;

/// Prints the first lines as warnings, and the number of the others: another user may have planted
/// thousands.
pub(super) fn print(lines: &[String]) {
    const LINES: usize = 4;
    for line in lines.iter().take(LINES) {
        messages::print(format_args!("warning: {line}"));
    }
    if lines.len() > LINES {
        let more = lines.len() - LINES;
        messages::print(format_args!("warning: and {more} more; `skt-hpl store list` shows them"));
    }
}
