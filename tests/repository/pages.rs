//! `scripts/test-pages` finds differences between a page and the program.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::skipped::skipped;
use tempfile::TempDir;

/// Runs the script on a page with its marks: the exit code and what the script prints. None if
/// it could not run anything.
#[track_caller]
fn verdict(marks: &str, page: &str) -> Option<(i32, String)> {
    verdict_with(&std::env::var("PATH").unwrap(), marks, page)
}

/// Runs the script on a page with its marks, and with `programs` as `PATH`: the exit code and
/// what the script prints. None if it could not run anything.
#[track_caller]
fn verdict_with(programs: &str, marks: &str, page: &str) -> Option<(i32, String)> {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("page.md");
    fs::write(&path, page).unwrap();
    let marks_file = folder.path().join("pages.txt");
    fs::write(&marks_file, marks.replace("page.md", path.to_str().unwrap())).unwrap();
    let output = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/test-pages"))
        .args(["--program", env!("CARGO_BIN_EXE_skt-hpl")])
        .arg("--marks")
        .arg(&marks_file)
        .arg(&path)
        .env("PATH", programs)
        .output()
        .unwrap();
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8(printed).unwrap();
    println!("{printed}");
    if let Some(why) = printed.strip_prefix("skipped: ") {
        skipped(why);
        return None;
    }
    Some((output.status.code().unwrap(), printed))
}

#[track_caller]
fn is_wrong(marks: &str, page: &str, why: &str) {
    if let Some((code, printed)) = verdict(marks, page) {
        assert_eq!(code, 1, "{printed}");
        assert!(printed.contains(why), "{printed}");
    }
}

const RIGHT: &str = r##"
```sh
export WORD=kept  # for the next block

mkdir inner && cd inner
sleep 1000
```
```console
$ echo "head"; echo "x"; echo "on  Mon Jan 12: 9.25e-01 s, 00000000deadbeef"
...
on Fri Nov 2:   1 s, 5b17674730217a40
$ echo "x 1"; echo "# slow: rank 0"; echo "# warning: 30 %"; echo "y 1"
x 2
y 2
$ echo $WORD in \
    $(basename $PWD)
kept in inner
$ true
```
```console
$ skt-hpl --no-such-flag
error: unexpected argument ... found
...
```
```text
not a command
```
"##;

const MARKS_OF_RIGHT: &str = r##"# A comment.
page.md
  not run: it takes too long
    sleep 1000
  numbers vary
    echo "head"; echo "x"; echo "on  Mon Jan 12: 9.25e-01 s, 00000000deadbeef"
    echo "x 1"; echo "# slow: rank 0"; echo "# warning: 30 %"; echo "y 1"
    echo $WORD in $(basename $PWD)

  exits with 2
    skt-hpl --no-such-flag
README.md
  numbers vary
    no command of the README, which is not asked for
"##;

#[test]
fn a_correct_page_passes_and_skipped_commands_are_reported() {
    let Some((code, printed)) = verdict(MARKS_OF_RIGHT, RIGHT) else { return };
    assert_eq!(code, 0, "{printed}");
    let not_run = "page.md:6: sleep 1000\n    not run: it takes too long\n";
    assert!(printed.contains(not_run), "{printed}");
    assert!(printed.contains("pages: 7 run, 1 not run, 0 wrong"), "{printed}");
}

/// A fresh system has no git, and an unpacked archive is not a clone.
#[test]
fn the_script_needs_no_git() {
    // Not below /tmp, over which the script mounts a file system.
    let programs = TempDir::new_in("/var/tmp").unwrap();
    for folder in std::env::split_paths(&std::env::var_os("PATH").unwrap()) {
        for program in fs::read_dir(folder).into_iter().flatten().flatten() {
            if program.file_name() != "git" {
                // The first program of a name counts, as in `PATH`.
                let _ = symlink(program.path(), programs.path().join(program.file_name()));
            }
        }
    }
    let programs = programs.path().to_str().unwrap();
    let page = "```sh\ntest -f Cargo.toml\n```\n";
    if let Some((code, printed)) = verdict_with(programs, "", page) {
        assert_eq!(code, 0, "{printed}");
    }
}

#[test]
fn a_command_that_contradicts_the_page_is_found() {
    is_wrong("", "```sh\nskt-hpl --no-such-flag\n```\n", "ended with 2, not 0");
    let exits = "page.md\n  exits with 2\n    true\n";
    is_wrong(exits, "```sh\ntrue\n```\n", "ended with 0, not 2");
    let shows = |lines: &str| format!("```console\n$ echo a 1; echo b >&2\n{lines}```\n");
    is_wrong("", &shows("a 1\nc\n"), "the page goes on with: c");
    is_wrong("", &shows("a 2\nb\n"), "the page goes on with: a 2");
    is_wrong("", &shows("a 1\n"), "the page goes on with: (nothing more)");
    is_wrong("", &shows("a 1\nb\nc\n"), "the page goes on with: c");
    is_wrong("", &shows(""), "the page goes on with: (nothing more)");
    let varies = "page.md\n  numbers vary\n    echo a 1; echo b >&2\n";
    is_wrong(varies, &shows("b 2\nb\n"), "goes on with: b 2");
    is_wrong(varies, &shows("# slow: a\na 2\nb\n"), "goes on with: # slow: a");
    let warns = "```console\n$ echo '# warning: a'\n# nothing\n```\n";
    is_wrong("", warns, "goes on with: # nothing");
}

#[test]
fn a_mark_or_a_block_without_effect_is_refused() {
    let page = "```sh\nls\n```\n";
    is_wrong("", "```\nls\n```\n", "page.md:1: a block without a tag");
    is_wrong("", "```sh\nls\n", "without an end");
    is_wrong("", &format!("<!-- not run: why -->\n{page}"), "a mark in the page");
    let no_command = "pages.txt:3: ";
    is_wrong("page.md\n  not run: why\n    ls -l\n", page, no_command);
    is_wrong("page.md\n  not run: why\n    ls\n", "```text\nls\n```\n", no_command);
    is_wrong("page.md\n  not run\n    ls\n", page, "pages.txt:2: no such mark: not run");
    is_wrong("page.mdx\n  numbers vary\n    ls\n", page, "pages.txt:1: no such page");
    for stray in ["  numbers vary\n", "page.md\n    ls\n", "page.md\n   numbers vary\n"] {
        is_wrong(stray, page, "neither a page");
    }
}

#[test]
fn nothing_stays() {
    let mark = format!("skt-hpl-pages-{}", std::process::id());
    let page = format!(
        "```sh\ntouch /tmp/{mark} /dev/shm/{mark} {mark}\nipcmk -M 54321\n\
         (exec -a {mark} sleep 1000) &\ntest $(ipcs -m | grep -c 54321) = 1\n\
         ls /tmp/{mark} {mark}\n```\n"
    );
    let before = fs::read_to_string("/proc/sysvipc/shm").unwrap().matches(" 54321 ").count();
    let Some((code, printed)) = verdict("", &page) else { return };
    assert_eq!(code, 0, "{printed}");
    let after = fs::read_to_string("/proc/sysvipc/shm").unwrap().matches(" 54321 ").count();
    assert_eq!(after, before);
    for folder in ["/tmp", "/dev/shm", env!("CARGO_MANIFEST_DIR")] {
        assert!(!Path::new(folder).join(&mark).exists(), "{folder}");
    }
    let is_ours = |process: fs::DirEntry| {
        fs::read(process.path().join("cmdline")).is_ok_and(|line| line.starts_with(mark.as_bytes()))
    };
    assert!(!fs::read_dir("/proc").unwrap().flatten().any(is_ours));
}
