//! Comments, identifiers, names of tests, what the program prints and the pages use the terms of
//! the field.

use std::fs;
use std::path::{Path, PathBuf};

use regex::{Captures, Regex};

/// The folders of sources that are checked.
const FOLDERS: [&str; 5] = ["benches", "crates", "examples", "src", "tests"];

/// Words and phrases of texts, in lower case, and what to write instead.
const WORDS: [(&[&str], &str); 15] = [
    (&["tell", "tells", "telling", "told"], "report, print, notify, return, distinguish"),
    (&["say", "says", "saying", "said"], "report, print, contain, return"),
    (&["hear", "hears", "heard", "speak", "speaks"], "receive, read; communicate, send"),
    (&["beside"], "next to, together with, in addition to"),
    (&["mend", "mends", "mended", "mending"], "repair, correct"),
    (&["bear", "bears", "borne"], "survive, tolerate"),
    (&["charge", "charges", "charged", "charging"], "blame, attribute"),
    (&["condemn", "condemns", "condemned", "acquit", "acquits", "acquitted"], "replace, clear"),
    (&["whom", "nobody"], "no one, or the passive"),
    (&["go on", "goes on", "going on", "went on"], "continue, resume"),
    (&["anew"], "again, from scratch; recompute"),
    (&["all the same", "as good as", "again and again", "so many"], "plain words"),
    (&["by itself", "of its own"], "plain words"),
    (&["behind", "meanwhile"], "after; while, during"),
    (&["a look", "look at", "looks at"], "probe, check, read"),
];

/// Parts of identifiers, and what to write instead.
const PARTS: [(&[&str], &str); 9] = [
    (&["tell", "tells", "told"], "report, notify, message"),
    (&["say", "says", "said"], "report, print, text, output"),
    (&["hear", "hears", "heard", "speak", "speaks"], "receive, read; communicate"),
    (&["beside", "meanwhile"], "overlapped, next_to"),
    (&["mend", "mends", "mended"], "repair, correct"),
    (&["charge", "charged", "condemned", "acquit"], "blame, to_replace, clear"),
    (&["anew"], "recomputed, again"),
    (&["bear", "bears", "borne"], "survive, tolerate"),
    (&["firmest"], "most_redundant"),
];

/// The words before the name that they define.
const KEYWORDS: [&str; 9] =
    ["fn", "struct", "enum", "trait", "mod", "const", "static", "type", "let"];

/// The longest name of a test.
const TEST_NAME_BYTES_MAX: usize = 60;

/// Identifiers that stay: the end of the file's path, the identifier, and why.
const EXCEPTIONS: [(&str, &str, &str); 6] = [
    ("counters/sensors.rs", "most_khz", "named as the key of a record on disk"),
    ("level/choose.rs", "most_redundant", "a superlative, not a maximum"),
    ("level/choose.rs", "most_redundant_epoch", "a superlative, not a maximum"),
    (
        "level/choose.rs",
        "most_redundant_generation_survives_what_the_last_one_does",
        "a superlative, not a maximum",
    ),
    ("path/fit.rs", "LeastSquares", "the method of least squares"),
    (
        "skt-checkpoint/src/client/mod.rs",
        "of",
        "`Region::of::<f64>(count)` of the public interface",
    ),
];

/// The words of a text, in lower case, without the names in backquotes, which are those of the
/// code, and the targets of links. A word with a hyphen is one word.
fn text_words(text: &str) -> Vec<String> {
    let unquoted: Vec<&str> = text.split('`').step_by(2).collect();
    let unquoted = unquoted.join(" x ");
    let unlinked: Vec<&str> = unquoted
        .split("](")
        .enumerate()
        .map(|(index, part)| part.split_once(')').filter(|_| index > 0).map_or(part, |it| it.1))
        .collect();
    let unquoted = unlinked.join(" ");
    let words = unquoted.split(|c: char| !c.is_alphanumeric() && !"-'".contains(c));
    words.filter(|word| !word.is_empty()).map(str::to_lowercase).collect()
}

/// The words of a comment. `None` if the line is no comment.
fn comment(line: &str) -> Option<Vec<String>> {
    line.trim_start().strip_prefix("//").map(text_words)
}

/// The words and phrases of the list that begin in `words`, and what to write instead. A phrase may
/// end in `next`.
fn listed(words: &[String], next: &[String]) -> Vec<(&'static str, &'static str)> {
    let all: Vec<&str> = words.iter().chain(next).map(String::as_str).collect();
    let phrases =
        WORDS.iter().flat_map(|(list, instead)| list.iter().map(move |it| (*it, *instead)));
    let begins = |first: usize, phrase: &str| {
        let mut rest = all[first..].iter();
        phrase.split(' ').all(|word| rest.next() == Some(&word))
    };
    (0..words.len())
        .flat_map(|first| phrases.clone().filter(move |(phrase, _)| begins(first, phrase)))
        .collect()
}

/// The parts of an identifier in snake case or camel case, in lower case.
fn parts(identifier: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut was_lower = false;
    for c in identifier.chars() {
        if c == '_' || (was_lower && c.is_uppercase()) {
            parts.push(String::new());
        }
        was_lower = c.is_lowercase();
        let part = parts.last_mut().expect("never empty");
        part.extend(c.to_lowercase().filter(|&c| c != '_'));
    }
    parts
}

/// What to write instead of an identifier, if it has a word of the lists or is a bare preposition.
fn better_identifier(keyword: &str, identifier: &str) -> Option<&'static str> {
    let parts = parts(identifier);
    match &*parts[0] {
        "most" | "least" if parts.len() > 1 => return Some("max_, min_"),
        "of" if keyword == "fn" => return Some("from_, or a name of what is returned"),
        _ => {}
    }
    let is_listed = |(words, _): &&(&[&str], _)| parts.iter().any(|it| words.contains(&&**it));
    PARTS.iter().find(is_listed).map(|(_, instead)| *instead)
}

/// A word or an identifier that should not be there.
struct Flaw {
    line: usize,
    what: String,
    instead: String,
}

/// Finds words of the lists in a source. A phrase may go over the end of a line.
fn flaws_of_source(text: &str) -> Vec<Flaw> {
    let comments: Vec<Option<Vec<String>>> = text.lines().map(comment).collect();
    let mut flaws = Vec::new();
    let mut is_test = false;
    for (index, line) in text.lines().enumerate() {
        let mut add = |what: &str, instead: &str| {
            flaws.push(Flaw { line: index + 1, what: what.into(), instead: instead.into() });
        };
        if let Some(words) = &comments[index] {
            let next = comments.get(index + 1).and_then(Option::as_deref).unwrap_or_default();
            for (phrase, instead) in listed(words, next) {
                add(phrase, instead);
            }
            continue;
        }
        is_test |= line.trim_start().starts_with("#[test]");
        let tokens = line.split(|c: char| !c.is_alphanumeric() && c != '_');
        let tokens: Vec<&str> = tokens.filter(|it| !it.is_empty() && *it != "mut").collect();
        for pair in tokens.windows(2).filter(|pair| KEYWORDS.contains(&pair[0])) {
            let (keyword, name) = (pair[0], pair[1]);
            if let Some(instead) = better_identifier(keyword, name) {
                add(name, instead);
            }
            if keyword == "fn" {
                if is_test && name.len() > TEST_NAME_BYTES_MAX {
                    add(name, &format!("at most {TEST_NAME_BYTES_MAX} characters"));
                }
                is_test = false;
            }
        }
    }
    flaws
}

/// Finds words of the lists in what a source prints: in its string literals, without the escapes
/// and what is interpolated in braces.
fn flaws_of_literals(text: &str) -> Vec<Flaw> {
    let tokens = r##"(?s)//[^\n]*|'(?:\\[^']*|[^'\\])'|r#"(.*?)"#|"((?:\\.|[^"\\])*)""##;
    let [tokens, inserted] = [tokens, r"\\.\s*|\{[^{}]*\}"].map(|it| Regex::new(it).unwrap());
    let literal = |found: Captures| {
        let literal = found.get(1).or(found.get(2))?;
        let line = text[..literal.start()].matches('\n').count() + 1;
        Some((line, text_words(&inserted.replace_all(literal.as_str(), " x "))))
    };
    let literals = tokens.captures_iter(text).filter_map(literal);
    let flaws = literals.flat_map(|(line, words)| {
        let found = listed(&words, &[]).into_iter();
        found.map(move |(what, instead)| Flaw { line, what: what.into(), instead: instead.into() })
    });
    flaws.collect()
}

/// Finds words of the lists in a page. A phrase may go over the end of a line.
fn flaws_of_page(text: &str) -> Vec<Flaw> {
    let lines: Vec<Vec<String>> = text.lines().map(text_words).collect();
    let flaws = lines.iter().enumerate().flat_map(|(index, words)| {
        let next = lines.get(index + 1).map_or(&[][..], Vec::as_slice);
        listed(words, next).into_iter().map(move |(what, instead)| Flaw {
            line: index + 1,
            what: what.into(),
            instead: instead.into(),
        })
    });
    flaws.collect()
}

/// Adds the sources below a folder.
pub fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

/// The pages and the schemas of the formats.
fn pages(root: &Path) -> Vec<PathBuf> {
    let mut pages: Vec<PathBuf> = fs::read_dir(root)
        .into_iter()
        .chain(fs::read_dir(root.join("docs")))
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|end| end == "md" || end == "json"))
        .collect();
    pages.sort();
    pages
}

#[test]
fn sources_and_pages_use_standard_terms() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = pages(root);
    assert!(files.len() > 20, "{}", files.len());
    for folder in FOLDERS {
        sources(&root.join(folder), &mut files);
    }
    assert!(files.len() > 300, "{}", files.len());
    let mut is_used = [false; EXCEPTIONS.len()];
    let mut found = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).expect("a text");
        let is_source = file.extension().is_some_and(|end| end == "rs");
        let mut flaws = if is_source { flaws_of_source(&text) } else { flaws_of_page(&text) };
        // What tests print is read by developers alone.
        let is_test = file.components().any(|part| part.as_os_str() == "tests");
        if is_source && !is_test {
            flaws.extend(flaws_of_literals(&text));
        }
        for Flaw { line, what, instead } in flaws {
            let is_this =
                |&(path, name, _): &(&str, &str, &str)| file.ends_with(path) && name == what;
            match EXCEPTIONS.iter().position(is_this) {
                Some(at) => is_used[at] = true,
                None => found.push(format!("{}:{line}: {what}: {instead}", file.display())),
            }
        }
    }
    assert!(found.is_empty(), "write instead:\n{}", found.join("\n"));
    let unused: Vec<_> = EXCEPTIONS.iter().zip(is_used).filter(|(_, is_used)| !is_used).collect();
    assert!(unused.is_empty(), "{unused:?}");
}
