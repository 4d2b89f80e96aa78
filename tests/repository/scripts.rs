//! The scripts of this repository, with stand-ins for the programs that they call: what a user of
//! each relies on.

use std::fs;
use std::path::Path;

use crate::skipped::lacks;
use crate::stand_ins::{StandIns, printed};

#[test]
fn help_of_each_script_is_all_that_it_does() {
    if lacks(&["python3"]) {
        return;
    }
    // Nothing may be built, installed or changed.
    let fails = |them: StandIns, program: &&str| {
        them.with(program, &format!("echo {program} was called >&2; exit 9"))
    };
    let programs = ["cargo", "apt-get", "sudo", "ip", "unshare", "mktemp"];
    let nowhere = programs.iter().fold(StandIns::new(), fails);
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts");
    let folders = [scripts.clone(), scripts.join("dev"), scripts.join("measure")];
    for entry in folders.into_iter().flat_map(|folder| fs::read_dir(folder).unwrap()) {
        let file = entry.unwrap().path();
        // Files with an extension are read by others.
        if file.is_dir() || file.extension().is_some() {
            continue;
        }
        let ended = nowhere.command(&file).arg("--help").current_dir(nowhere.at("")).output();
        let (ended, name) = (ended.unwrap(), file.file_name().unwrap().to_str().unwrap());
        assert!(ended.status.success() && ended.stderr.is_empty(), "{name}: {ended:?}");
        assert!(printed(&ended).contains(name), "{name}: {ended:?}");
    }
}

#[test]
fn nothing_is_installed_unless_that_is_asked_for() {
    let machine = StandIns::new()
        .with("mpicc", "exit 1")
        .with("mpirun", "echo Open MPI")
        .with("apt-get", "echo apt-get $* >>\"$HERE/log\"")
        .with("sudo", "exec \"$@\"")
        .with("cargo", "[ $1 = build ] || echo cargo 1.95.0");
    for (install, command, is_asked_for) in [
        ("unset SKT_HPL_INSTALL", ". scripts/needs.sh; needs test", false),
        ("unset SKT_HPL_INSTALL", "scripts/test --quick", false),
        ("export SKT_HPL_INSTALL=no", "scripts/quickstart", false),
        ("export SKT_HPL_INSTALL=yes", ". scripts/needs.sh; needs build", true),
        ("unset SKT_HPL_INSTALL", "scripts/quickstart", true),
    ] {
        let ended = machine.sh(&format!("unset MPICC; {install}; {command}"));
        assert!(!ended.status.success(), "{ended:?}");
        let log = fs::read_to_string(machine.at("log")).unwrap_or_default();
        if is_asked_for {
            let installs = "install -q -y --no-install-recommends libopenmpi-dev";
            assert!(log.contains(installs), "{install}; {command}: {log}");
            fs::remove_file(machine.at("log")).unwrap();
        } else {
            let text = printed(&ended);
            assert!(text.contains("missing: libopenmpi-dev; SKT_HPL_INSTALL=yes"), "{text}");
            assert_eq!(log, "", "{install}; {command}");
        }
    }
}

/// Continuous integration names the skips that it allows.
#[test]
fn a_skip_for_another_reason_than_those_allowed_fails() {
    let line = "echo skipped: a::b: no cat here; echo skipped: c::d: no dog here";
    let body = format!("case $1 in test) {line} ;; *) echo cargo 1.95.0 ;; esac");
    let machine = StandIns::new().with("cargo", &body);
    for (allowed, passes) in [("no (cat|dog) here", true), ("no cat here", false)] {
        let ended = machine.sh(&format!("scripts/test --timing --allow-skips '{allowed}'"));
        assert_eq!(ended.status.success(), passes, "{allowed}: {ended:?}");
        let text = printed(&ended);
        let fails = "== failed: skipped, and not allowed by --allow-skips";
        assert_eq!(text.contains(fails), !passes, "{allowed}: {text}");
        assert_eq!(text.contains("== all passed, 2 skipped"), passes, "{allowed}: {text}");
    }
}

/// More output than a pipe holds: a reader that ends early, as `head` does, kills what writes to it
/// (SIGPIPE), and under `pipefail` the script ends there.
#[test]
fn thousands_of_tests_are_reported() {
    let body = "case $1 in test) seq -f 'test a_module::a_test_%06g ... ok <0.001s>' 9999 ;; \
                *) echo cargo 1.95.0 ;; esac";
    let ended = StandIns::new().with("cargo", body).sh("scripts/test --timing");
    let text = printed(&ended);
    assert!(ended.status.success(), "{:?}: {text}", ended.status);
    let slowest = text.split("== the slowest tests").nth(1).unwrap();
    assert_eq!(slowest.matches("a_module::").count(), 20, "{slowest}");
    assert!(text.contains("== all passed, 0 skipped"), "{slowest}");
}

#[test]
fn no_reader_of_a_pipe_ends_early() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = [".ci", "scripts", "scripts/dev", "scripts/measure"].map(|name| root.join(name));
    for entry in folders.into_iter().flat_map(|folder| fs::read_dir(folder).unwrap()) {
        let file = entry.unwrap().path();
        let Ok(text) = fs::read_to_string(&file) else { continue };
        for (index, line) in text.lines().enumerate() {
            let reader = line.split("| ").skip(1).find(|reader| {
                let mut words = reader.split(' ');
                let (program, option) = (words.next(), words.next().unwrap_or_default());
                program == Some("head")
                    || program == Some("grep") && option.starts_with('-') && option.contains('q')
            });
            assert_eq!(reader, None, "{}:{}: {line}", file.display(), index + 1);
        }
    }
}
