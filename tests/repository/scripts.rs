//! The scripts of this repository, with stand-ins for the programs that they call: what a user of
//! each relies on.

use std::fs;
use std::path::Path;

use crate::stand_ins::{StandIns, printed};

#[test]
fn help_of_each_script_is_all_that_it_does() {
    // Nothing may be built, installed or changed.
    let fails = |them: StandIns, program: &&str| {
        them.with(program, &format!("echo {program} was called >&2; exit 9"))
    };
    let programs = ["cargo", "apt-get", "sudo", "ip", "unshare", "mktemp"];
    let nowhere = programs.iter().fold(StandIns::new(), fails);
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts");
    for entry in fs::read_dir(scripts).unwrap() {
        let file = entry.unwrap().path();
        // Files with an extension are read by others.
        if file.extension().is_some() {
            continue;
        }
        let ended = nowhere.command(&file).arg("--help").current_dir(nowhere.at("")).output();
        let (ended, name) = (ended.unwrap(), file.file_name().unwrap().to_str().unwrap());
        assert!(ended.status.success() && ended.stderr.is_empty(), "{name}: {ended:?}");
        assert!(printed(&ended).contains(name), "{name}: {ended:?}");
    }
}

#[test]
fn the_machine_of_this_test_lacks_nothing() {
    let ended = StandIns::new().sh(". scripts/needs.sh; missing_packages test");
    assert_eq!(printed(&ended), "");
}

/// A compiler, a library or a Rust is missing if it does not work.
#[test]
fn what_does_not_work_is_missing() {
    for (program, body, missing) in [
        ("cc", "exit 1", "libc6-dev"),
        ("mpicc", "exit 1", "lib"),
        ("pkg-config", "echo -lno-such-openblas", "libopenblas-dev"),
        ("rustc", "echo 'rustc 1.63.0 (x 2022-01-01)'", ""),
    ] {
        let line = "unset SKT_HPL_BLAS; . scripts/needs.sh; rust_folder=/nowhere
            export RUSTUP_TOOLCHAIN=; have_rust || echo no Rust; missing_packages build";
        let text = printed(&StandIns::new().with(program, body).sh(line));
        assert!(text.contains(missing), "{program}: {text}");
        assert_eq!(text.contains("no Rust"), program == "rustc", "{program}: {text}");
    }
}

#[test]
fn nothing_is_installed_unless_that_is_asked_for() {
    let machine = StandIns::new()
        .with("pkg-config", "echo -lno-such-openblas")
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
        let ended = machine.sh(&format!("unset SKT_HPL_BLAS; {install}; {command}"));
        assert!(!ended.status.success(), "{ended:?}");
        let log = fs::read_to_string(machine.at("log")).unwrap_or_default();
        if is_asked_for {
            let installs = "install -q -y --no-install-recommends libopenblas-dev";
            assert!(log.contains(installs), "{install}; {command}: {log}");
            fs::remove_file(machine.at("log")).unwrap();
        } else {
            let text = printed(&ended);
            assert!(text.contains("missing: libopenblas-dev; SKT_HPL_INSTALL=yes"), "{text}");
            assert_eq!(log, "", "{install}; {command}");
        }
    }
}

#[test]
fn the_last_line_of_the_tests_counts_those_skipped() {
    let body = "case $1 in test) printf \"$SAYS\"; exit $CODE ;; *) echo cargo 1.95.0 ;; esac";
    let machine = StandIns::new().with("cargo", body);
    let prints = |text: &str, code: i32| {
        let ended = machine.sh(&format!("SAYS='{text}' CODE={code} scripts/test --timing"));
        assert_eq!(ended.status.success(), code == 0, "{ended:?}");
        printed(&ended)
    };
    let none = prints("test a ... ok\\n", 0);
    assert!(none.contains("\n== all passed, 0 skipped ("), "{none}");
    let line = "skipped: a::b: no namespaces: here\\n";
    let twice = prints(&format!("test c ... {line}{line}skipped: d.rs:7: not root\\nok\\n"), 0);
    assert!(twice.contains("\n== all passed, 2 skipped ("), "{twice}");
    assert!(twice.contains("\nskipped: a::b: no namespaces: here\nskipped: d.rs:7: "), "{twice}");
    assert!(!prints(&format!("{line}test a ... FAILED\\n"), 101).contains("all passed"));
}

/// A test binary that aborts names no test that failed, and a test that is skipped counts as
/// passed.
#[test]
fn a_soak_passes_if_tests_ran_and_all_passed() {
    for (prints, code, passes) in [
        ("test a ... ok", 0, true),
        ("test a ... ok", 101, false),
        ("", 0, false),
        ("test a ... ok\nskipped: no namespaces here", 0, false),
    ] {
        let body = format!("case $* in *--no-run*) ;; *) echo '{prints}'; exit {code} ;; esac");
        let machine = StandIns::new().with("cargo", &body);
        for script in ["scripts/soak-node-loss 2", "scripts/soak-screen 2"] {
            let ended = machine.sh(script);
            assert_eq!(ended.status.success(), passes, "{script} {prints:?}: {ended:?}");
        }
    }
}
