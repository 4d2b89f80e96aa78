//! The string literals of a source, as the program prints them.

use std::iter::Peekable;
use std::str::CharIndices;

type Chars<'a> = Peekable<CharIndices<'a>>;

/// The string literals of a source, each with the number of its first line. Escapes are one space,
/// and what is interpolated in braces is left out.
pub fn literals(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut chars = text.char_indices().peekable();
    let line = |at: usize| text[..at].matches('\n').count() + 1;
    while let Some((at, c)) = chars.next() {
        match c {
            '/' if text[at..].starts_with("//") => skip_to(&mut chars, '\n'),
            '\'' => skip_char(&text[at + 1..], &mut chars),
            '"' => found.push((line(at), plain(&mut chars))),
            'r' if is_raw(text, at) => {
                let hashes = text[at + 1..].chars().take_while(|&c| c == '#').count();
                let start = at + hashes + 2;
                let end = format!("\"{}", "#".repeat(hashes));
                let len = text[start..].find(&end).expect("a raw string ends");
                found.push((line(at), text[start..start + len].to_owned()));
                while chars.next_if(|&(at, _)| at < start + len + end.len()).is_some() {}
            }
            _ => {}
        }
    }
    found
}

/// Whether the `r` at `at` begins a raw string.
fn is_raw(text: &str, at: usize) -> bool {
    let before = text[..at].chars().next_back();
    let is_in_word = before.is_some_and(|c| c != 'b' && (c.is_alphanumeric() || c == '_'));
    !is_in_word && text[at + 1..].trim_start_matches('#').starts_with('"')
}

fn skip_to(chars: &mut Chars, end: char) {
    for (_, c) in chars.by_ref() {
        if c == end {
            break;
        }
    }
}

/// Skips the rest of a character's literal whose text is `rest`; a lifetime has no end.
fn skip_char(rest: &str, chars: &mut Chars) {
    if rest.starts_with('\\') {
        chars.nth(1);
        skip_to(chars, '\'');
    } else if rest.chars().nth(1) == Some('\'') {
        chars.nth(1);
    }
}

/// The rest of a string that is not raw.
fn plain(chars: &mut Chars) -> String {
    let mut literal = String::new();
    while let Some((_, c)) = chars.next() {
        match c {
            '"' => break,
            '\\' => {
                chars.next();
                while chars.next_if(|&(_, c)| c == ' ' || c == '\n').is_some() {}
                literal.push(' ');
            }
            '{' if chars.peek().is_some_and(|&(_, c)| c == '{') => _ = chars.next(),
            '{' => {
                skip_to(chars, '}');
                literal.push('x');
            }
            c => literal.push(c),
        }
    }
    literal
}
