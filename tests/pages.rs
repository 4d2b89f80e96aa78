//! `scripts/test-pages` finds differences between a page and the program.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

/// Runs the script on a page, and returns its exit code and its output; `None` if it could not run
/// anything.
fn verdict(page: &str) -> Option<(i32, String)> {
    verdict_with(page, &std::env::var("PATH").unwrap())
}

/// Runs the script on a page, with the programs of the folders `path`.
fn verdict_with(page: &str, programs: &str) -> Option<(i32, String)> {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("page.md");
    fs::write(&path, page).unwrap();
    let output = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/test-pages"))
        .args(["--program", env!("CARGO_BIN_EXE_skt-hpl")])
        .arg(&path)
        .env("PATH", programs)
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8(said).unwrap();
    println!("{said}");
    (!said.starts_with("skipped: ")).then(|| (output.status.code().unwrap(), said))
}

#[track_caller]
fn is_wrong(page: &str, why: &str) {
    if let Some((code, said)) = verdict(page) {
        assert_eq!(code, 1, "{said}");
        assert!(said.contains(why), "{said}");
    }
}

const RIGHT: &str = r#"
<!-- not run: `sleep 1000`: it takes
     too long -->
```sh
export WORD=kept  # for what follows

mkdir inner && cd inner
sleep 1000
```
<!-- numbers vary -->
```console
$ echo "head"; echo "x"; echo "on  Mon Jan 12: 9.25e-01 s, 00000000deadbeef"
...
on Fri Nov 2:   1 s, 5b17674730217a40
$ echo $WORD in \
    $(basename $PWD)
kept in inner
$ true
```
<!-- exits with 2 -->
```console
$ skt-hpl --no-such-flag
error: unexpected argument ... found
...
```
```text
not a command
```
"#;

#[test]
fn a_page_that_is_right_passes_and_what_is_not_run_is_told() {
    let Some((code, said)) = verdict(RIGHT) else { return };
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("page.md:8: sleep 1000\n    not run: it takes too long\n"), "{said}");
    assert!(said.contains("pages: 6 run, 1 not run, 0 wrong"), "{said}");
}

/// A fresh system has no git, and an unpacked archive is no clone.
#[test]
fn a_system_without_git_will_do() {
    // The folder is not below /tmp, which is covered inside.
    let programs = TempDir::new_in("/var/tmp").unwrap();
    for folder in std::env::split_paths(&std::env::var_os("PATH").unwrap()) {
        for program in fs::read_dir(folder).into_iter().flatten().flatten() {
            if program.file_name() != "git" {
                // Of several programs of one name, the first counts.
                let _ = symlink(program.path(), programs.path().join(program.file_name()));
            }
        }
    }
    let programs = programs.path().to_str().unwrap();
    if let Some((code, said)) = verdict_with("```sh\ntest -f Cargo.toml\n```\n", programs) {
        assert_eq!(code, 0, "{said}");
    }
}

#[test]
fn what_a_command_does_otherwise_is_found() {
    is_wrong("```sh\nskt-hpl --no-such-flag\n```\n", "ended with 2, not 0");
    is_wrong("<!-- exits with 2 -->\n```sh\ntrue\n```\n", "ended with 0, not 2");
    let shows = |lines: &str| format!("```console\n$ echo a 1; echo b >&2\n{lines}```\n");
    is_wrong(&shows("a 1\nc\n"), "the page goes on with: c");
    is_wrong(&shows("a 2\nb\n"), "the page goes on with: a 2");
    is_wrong(&shows("a 1\n"), "the page goes on with: (nothing more)");
    is_wrong(&shows("a 1\nb\nc\n"), "the page goes on with: c");
    is_wrong(&shows(""), "the page goes on with: (nothing more)");
    is_wrong(&format!("<!-- numbers vary -->\n{}", shows("b 2\nb\n")), "goes on with: b 2");
}

#[test]
fn a_mark_or_a_block_that_says_nothing_is_refused() {
    is_wrong("```\nls\n```\n", "page.md:1: a block without a tag");
    is_wrong("<!-- not run: `ls -l`: why -->\n```sh\nls\n```\n", "no such command");
    is_wrong("<!-- not run -->\n```sh\nls\n```\n", "no such mark");
    is_wrong("<!-- not run: why -->\n```text\nls\n```\n", "no such command");
    is_wrong("<!-- not run: why -->\nwords\n```sh\nls\n```\n", "not before a block");
    is_wrong("```sh\nls\n", "without an end");
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
    let Some((code, said)) = verdict(&page) else { return };
    assert_eq!(code, 0, "{said}");
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
