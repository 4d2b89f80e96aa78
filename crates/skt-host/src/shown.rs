//! How text is displayed: text of other users without control characters, and commands that can be
//! typed again.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Whether a terminal, an editor or a browser obeys a character in place of displaying it: control
/// characters, and those that break lines or reverse the order of others.
pub fn is_obeyed(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{61c}'
                | '\u{200e}'
                | '\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2066}'..='\u{2069}'
        )
}

/// Text made safe for display: characters that are obeyed, but for tabs and line ends, are escaped
/// as `\u001b`. In JSON and in strings of TOML this escape is the character itself.
pub fn printable(text: &str) -> Cow<'_, str> {
    let is_safe = |c: char| matches!(c, '\n' | '\t') || !is_obeyed(c);
    if text.chars().all(is_safe) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        if is_safe(character) {
            safe.push(character);
        } else {
            // All of these have at most four digits. Writing to a String cannot fail.
            let _ = write!(safe, "\\u{:04x}", u32::from(character));
        }
    }
    Cow::Owned(safe)
}

/// The end of a list of `count` entries that shows the first `max` of them: ` and 3 more`, or
/// nothing.
pub fn and_more(count: usize, max: usize) -> String {
    match count.saturating_sub(max) {
        0 => String::new(),
        more => format!(" and {more} more"),
    }
}

/// The text with entities in place of the characters that XML and HTML reserve.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A value made safe for display: control characters are escaped, and it is cut after 40
/// characters.
pub fn shown(value: &str) -> String {
    let mut text: String = value.chars().take(40).flat_map(char::escape_debug).collect();
    if value.chars().nth(40).is_some() {
        text.push_str("...");
    }
    text
}

/// A message of a library, another program or another machine made safe for display: control
/// characters are escaped, and the middle of a long message is left out.
pub fn shown_message(message: &str) -> String {
    /// Characters kept at each end: what is wrong comes first, where it is comes last.
    const MOST: usize = 150;
    let all: Vec<char> = message.trim().chars().collect();
    let (start, end) = if all.len() > 2 * MOST {
        (&all[..MOST], Some(&all[all.len() - MOST..]))
    } else {
        (&all[..], None)
    };
    let escaped = |part: &[char]| -> String {
        let one =
            |c: &char| if is_obeyed(*c) { c.escape_default().to_string() } else { c.to_string() };
        part.iter().map(one).collect()
    };
    end.map_or_else(|| escaped(start), |end| format!("{} ... {}", escaped(start), escaped(end)))
}

/// A word quoted so that a POSIX shell reads it back.
pub fn shell_quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._/=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_control_sequences_are_escaped() {
        assert!(matches!(printable("Größe\t3 µs \\ \"\n"), Cow::Borrowed(_)));
        assert_eq!(
            printable("a\u{1b}[2J\r\u{9b}\u{7f}\tb\u{202e}c\n"),
            "a\\u001b[2J\\u000d\\u009b\\u007f\tb\\u202ec\n"
        );
        let all: String = ('\0'..=char::MAX).collect();
        let shown = printable(&all);
        assert!(shown.chars().all(|c| !is_obeyed(c) || c == '\n' || c == '\t'));
        assert_eq!(shown.lines().count(), 2, "the line end is kept");
    }

    #[test]
    fn a_message_is_shown_on_one_line_from_both_ends() {
        assert_eq!(shown_message("`a` is 'b'\n"), "`a` is 'b'");
        assert_eq!(shown_message("a\x1b[31m\u{85}b\nc"), "a\\u{1b}[31m\\u{85}b\\nc");
        let long = format!("unknown field `{}` at line 7", "x".repeat(1 << 20));
        let shown = shown_message(&long);
        assert!(shown.starts_with("unknown field `xx") && shown.ends_with("xx` at line 7"));
        assert_eq!(shown.len(), 305);
    }
}
