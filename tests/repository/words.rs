//! Comments, identifiers and names of tests use the terms of the field. A folder is added to
//! [`CLEAN`] once it has none of the words below.

use std::fs;
use std::path::Path;

use crate::comments::sources;

/// The folders that are checked.
const CLEAN: [&str; 22] = [
    "benches",
    "crates/skt-checkpoint",
    "crates/skt-checkpoint-c",
    "crates/skt-comm",
    "crates/skt-config",
    "crates/skt-device",
    "crates/skt-health",
    "crates/skt-host",
    "crates/skt-launch",
    "crates/skt-model",
    "crates/skt-mxp",
    "crates/skt-run",
    "crates/skt-screen",
    "crates/skt-sim",
    "crates/skt-solver",
    "crates/skt-starter",
    "crates/skt-store",
    "crates/skt-studies",
    "crates/skt-terms",
    "examples",
    "src/report",
    "tests",
];

/// Words and phrases of comments, in lower case, and what to write instead.
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
const EXCEPTIONS: [(&str, &str, &str); 10] = [
    ("counters/frequency.rs", "most_khz", "named as the key of a record on disk"),
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
    ("repository/words.rs", "was_told", "an example of the test below"),
    ("repository/words.rs", "AlreadyTold", "an example of the test below"),
    ("repository/words.rs", "of", "an example of the test below"),
    ("repository/words.rs", "MOST_RANKS", "an example of the test below"),
];

/// The words of a comment, in lower case, without the names in backquotes, which are those of the
/// code. A word with a hyphen is one word. `None` if the line is no comment.
fn comment(line: &str) -> Option<Vec<String>> {
    let text = line.trim_start().strip_prefix("//")?;
    let unquoted: Vec<&str> = text.split('`').step_by(2).collect();
    let unquoted = unquoted.join(" x ");
    let words = unquoted.split(|c: char| !c.is_alphanumeric() && !"-'".contains(c));
    Some(words.filter(|word| !word.is_empty()).map(str::to_lowercase).collect())
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
fn flaws(text: &str) -> Vec<Flaw> {
    let comments: Vec<Option<Vec<String>>> = text.lines().map(comment).collect();
    let mut flaws = Vec::new();
    let mut is_test = false;
    for (index, line) in text.lines().enumerate() {
        let mut add = |what: &str, instead: &str| {
            flaws.push(Flaw { line: index + 1, what: what.into(), instead: instead.into() });
        };
        if let Some(words) = &comments[index] {
            let next = comments.get(index + 1).and_then(Option::as_deref).unwrap_or_default();
            let all: Vec<&str> = words.iter().chain(next).map(String::as_str).collect();
            for first in 0..words.len() {
                for (phrase, instead) in WORDS
                    .iter()
                    .flat_map(|(list, instead)| list.iter().map(move |it| (it, instead)))
                {
                    let mut rest = all[first..].iter();
                    if phrase.split(' ').all(|word| rest.next() == Some(&word)) {
                        add(phrase, instead);
                    }
                }
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

#[test]
fn clean_folders_use_standard_terms() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for folder in CLEAN {
        sources(&root.join(folder), &mut files);
    }
    assert!(files.len() > 300, "{}", files.len());
    let mut is_used = [false; EXCEPTIONS.len()];
    let mut found = Vec::new();
    for file in files {
        for Flaw { line, what, instead } in flaws(&fs::read_to_string(&file).expect("a source")) {
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

#[test]
fn words_are_found_in_comments_and_identifiers() {
    let found = |text: &str| -> Vec<(usize, String)> {
        flaws(text).into_iter().map(|flaw| (flaw.line, flaw.what)).collect()
    };
    let one = |line: usize, what: &str| vec![(line, what.to_owned())];
    assert_eq!(found("/// Tells rank 0.\nfn f() {}\n"), one(1, "tells"));
    assert_eq!(found("// The run goes\n// on without it.\n"), one(1, "goes on"));
    assert_eq!(found("    let mut was_told = true;\n"), one(1, "was_told"));
    assert_eq!(found("struct AlreadyTold;\n"), one(1, "AlreadyTold"));
    assert_eq!(found("pub fn of(rank: usize) -> Self {\n"), one(1, "of"));
    assert_eq!(found("const MOST_RANKS: usize = 8;\n"), one(1, "MOST_RANKS"));
    let long = format!("a_{}", "name_".repeat(12));
    assert_eq!(found(&format!("#[test]\nfn {long}() {{}}\n")), one(2, &long));
    let plain = "/// Step `recover-mend` of the look-ahead, in `told`. Almost all.\n\
                 fn officer(almost_all: bool, foretold: u8) { let essay = 1; }\n\
                 let of_rank = 1;\n";
    assert_eq!(found(plain), []);
}
