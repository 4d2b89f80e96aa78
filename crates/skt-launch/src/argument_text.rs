//! Words of command lines as text. The state, its events and the command lines of launchers and
//! agents are UTF-8, and the name and the arguments of the user's program need not be.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

/// Begins the text of a word that is not UTF-8, or that begins like this.
const MARK: &str = "@skt-hpl-bytes@";

/// Returns a word as text, from which [`argument_from_text`] makes it again.
pub fn argument_to_text(word: &OsStr) -> String {
    match word.to_str() {
        Some(text) if !text.starts_with(MARK) => text.to_owned(),
        _ => word.as_bytes().iter().fold(MARK.to_owned(), |mut text, byte| {
            if byte.is_ascii_alphanumeric() || b"-._/".contains(byte) {
                text.push(char::from(*byte));
            } else {
                write!(text, "%{byte:02X}").expect("there is memory");
            }
            text
        }),
    }
}

/// Returns the word of which [`argument_to_text`] has made `text`; any other text is a word itself.
pub fn argument_from_text(text: &OsStr) -> OsString {
    let escaped = text.to_str().and_then(|text| text.strip_prefix(MARK));
    escaped.and_then(unescaped).map_or_else(|| text.to_owned(), OsString::from_vec)
}

fn unescaped(text: &str) -> Option<Vec<u8>> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        bytes.push(u8::from_str_radix(part.get(..2)?, 16).ok()?);
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn argument_of_any_bytes_survives_a_round_trip() {
        let all: Vec<u8> = (1..=255).collect();
        let mark = MARK.as_bytes();
        let words: [&[u8]; 8] = [
            b"",
            b"--n=5 % '\n",
            "caf\u{e9}".as_bytes(),
            b"caf\xe9",
            b"/opt/caf\xe9 100%/a.out",
            mark,
            &[mark, b"%41"].concat(),
            &all,
        ];
        for word in words {
            let word = OsStr::from_bytes(word);
            assert_eq!(argument_from_text(OsStr::new(&argument_to_text(word))), word);
        }
        assert_eq!(argument_to_text(OsStr::new("caf\u{e9} %")), "caf\u{e9} %");
        assert_eq!(
            argument_to_text(OsStr::from_bytes(b"/caf\xe9 1")),
            "@skt-hpl-bytes@/caf%E9%201"
        );
        for other in ["@skt-hpl-bytes@%", "@skt-hpl-bytes@%4\u{e9}", "@skt-hpl-bytes@%g0"] {
            assert_eq!(argument_from_text(OsStr::new(other)), other);
        }
    }
}
