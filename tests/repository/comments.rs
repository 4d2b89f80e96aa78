//! Finds what a program can find in comments that are hard to read; the rest takes a reader.

use std::fs;
use std::path::{Path, PathBuf};

/// First words of a doc comment that lean on the item above, which rustdoc does not show there.
const LEANING: [&str; 12] = [
    "And", "But", "It", "Its", "Of", "Or", "So many", "That", "The same", "Their", "They", "Those",
];

/// The columns of a line of code, and so of a comment.
const WIDTH: usize = 100;

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

/// The doc comment on a line, without its slashes.
fn doc(line: &str) -> Option<&str> {
    let line = line.trim_start();
    line.strip_prefix("///").or(line.strip_prefix("//!")).map(str::trim_start)
}

/// What is wrong with the comments of a text, each with the number of its line.
fn flaws(text: &str) -> Vec<(usize, String)> {
    let mut flaws = Vec::new();
    let mut is_in_doc = false;
    for (index, line) in text.lines().enumerate() {
        let comment = line.trim_start().strip_prefix("//");
        // A row of a table has no place to be cut.
        let is_row =
            comment.is_some_and(|it| it.trim_start_matches(['/', '!', ' ']).starts_with('|'));
        if comment.is_some() && !is_row && line.chars().count() > WIDTH {
            flaws.push((index + 1, format!("more than {WIDTH} columns")));
        }
        let starts = doc(line).filter(|_| !is_in_doc);
        let leans = |text: &str, word: &str| {
            text.strip_prefix(word).is_some_and(|rest| rest.starts_with([' ', ',', ':']))
        };
        let leaning = LEANING.iter().find(|&word| starts.is_some_and(|text| leans(text, word)));
        flaws.extend(leaning.map(|word| (index + 1, format!("begins with {word:?}"))));
        is_in_doc = doc(line).is_some();
    }
    flaws
}

#[test]
fn doc_comments_stand_alone_and_lines_end() {
    let mut files = Vec::new();
    for folder in ["src", "crates", "tests", "benches", "examples"] {
        sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), &mut files);
    }
    assert!(files.len() > 400, "{}", files.len());
    let reported = files.iter().flat_map(|file| {
        let text = fs::read_to_string(file).expect("a source");
        flaws(&text)
            .into_iter()
            .map(move |(line, what)| format!("{}:{line}: {what}", file.display()))
    });
    let reported: Vec<String> = reported.collect();
    assert!(reported.is_empty(), "say what the subject is; wrap:\n{}", reported.join("\n"));
}
