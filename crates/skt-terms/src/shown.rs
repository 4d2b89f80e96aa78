//! How text is displayed: text of other users without control characters, and commands that can be
//! typed again.

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
            |c: &char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
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
    fn a_message_is_shown_on_one_line_from_both_ends() {
        assert_eq!(shown_message("`a` is 'b'\n"), "`a` is 'b'");
        assert_eq!(shown_message("a\x1b[31m\u{85}b\nc"), "a\\u{1b}[31m\\u{85}b\\nc");
        let long = format!("unknown field `{}` at line 7", "x".repeat(1 << 20));
        let shown = shown_message(&long);
        assert!(shown.starts_with("unknown field `xx") && shown.ends_with("xx` at line 7"));
        assert_eq!(shown.len(), 305);
    }
}
