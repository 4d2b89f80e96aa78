//! `scripts/dev/test-pages` finds differences between a page and the program.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::skipped::{lacks, skipped};
use crate::stand_ins::{StandIns, printed};

/// Runs the script on a page with its marks, with a program that ends with 2: the exit code and
/// what the script prints. None if it could not run anything.
#[track_caller]
fn verdict(program: &Path, marks: &str, page: &str) -> Option<(i32, String)> {
    if lacks(&["python3"]) {
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let [path, marks_file] = ["page.md", "pages.txt"].map(|name| folder.path().join(name));
    fs::write(&path, page).unwrap();
    fs::write(&marks_file, marks.replace("page.md", path.to_str().unwrap())).unwrap();
    let output = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/dev/test-pages"))
        .arg("--program")
        .arg(program)
        .arg("--marks")
        .args([&marks_file, &path])
        .output()
        .unwrap();
    let printed = printed(&output);
    if let Some(why) = printed.strip_prefix("skipped: ") {
        skipped(why);
        return None;
    }
    Some((output.status.code().unwrap(), printed))
}

#[test]
fn a_wrong_command_mark_or_block_is_found() {
    // The script copies the program for each page, and ours is large.
    let programs = StandIns::new().with("skt-hpl", "exit 2");
    let prints = |lines: &str| format!("```console\n$ echo a 1; echo b >&2\n{lines}```\n");
    let varies = "page.md\n  numbers vary\n    echo a 1; echo b >&2\n";
    let ls = "```sh\nls\n```\n";
    for (marks, page, why) in [
        ("", "```sh\nskt-hpl --no-such-flag\n```\n", "ended with 2, not 0"),
        ("page.md\n  exits with 2\n    true\n", "```sh\ntrue\n```\n", "ended with 0, not 2"),
        ("", &prints("a 1\nc\n"), "the page continues with: c"),
        ("", &prints("a 2\nb\n"), "the page continues with: a 2"),
        ("", &prints("a 1\n"), "the page continues with: (nothing more)"),
        ("", &prints("a 1\nb\nc\n"), "the page continues with: c"),
        ("", &prints(""), "the page continues with: (nothing more)"),
        (varies, &prints("b 2\nb\n"), "continues with: b 2"),
        (varies, &prints("# slow: a\na 2\nb\n"), "continues with: # slow: a"),
        ("", "```console\n$ echo '# warning: a'\n# nothing\n```\n", "continues with: # nothing"),
        ("", "```\nls\n```\n", "page.md:1: a block without a tag"),
        ("", "```sh\nls\n", "without an end"),
        ("", &format!("<!-- not run: why -->\n{ls}"), "a mark in the page"),
        ("page.md\n  not run: why\n    ls -l\n", ls, "pages.txt:3: "),
        ("page.md\n  not run: why\n    ls\n", "```text\nls\n```\n", "pages.txt:3: "),
        ("page.md\n  not run\n    ls\n", ls, "pages.txt:2: no such mark: not run"),
        ("page.mdx\n  numbers vary\n    ls\n", ls, "pages.txt:1: no such page"),
        ("  numbers vary\n", ls, "neither a page"),
        ("page.md\n    ls\n", ls, "neither a page"),
    ] {
        let Some((code, printed)) = verdict(&programs.at("skt-hpl"), marks, page) else { return };
        assert!(code == 1 && printed.contains(why), "{page}: {printed}");
    }
}
