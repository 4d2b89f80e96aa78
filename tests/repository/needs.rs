//! `scripts/needs.sh` accepts only what works on this machine: each test gives it something that
//! exists but does not work.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::executables;
use tempfile::TempDir;

/// A folder of programs that come before those of the machine.
struct Machine(TempDir);

impl Machine {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    /// Puts a shell script into the folder.
    fn with(self, program: &str, body: &str) -> Self {
        let path = self.0.path().join(program);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        executables::write_script(&path, &format!("#!/bin/sh\n{body}\n"));
        self
    }

    /// The output of a line of shell after needs.sh, on both streams; `$HERE` is the folder.
    fn prints(&self, line: &str) -> String {
        let path = format!("{}:{}", self.0.path().display(), std::env::var("PATH").unwrap());
        let printed = Command::new("bash")
            .args(["-euo", "pipefail", "-c"])
            .arg(format!("exec 2>&1; . scripts/needs.sh; {line}"))
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")))
            .env("PATH", path)
            .env("HERE", self.0.path())
            .output()
            .unwrap();
        String::from_utf8(printed.stdout).unwrap()
    }
}

const MISSING: &str = "echo $(missing_packages build)";

#[test]
fn a_machine_that_has_built_this_test_lacks_nothing() {
    assert_eq!(Machine::new().prints(MISSING), "\n");
}

#[test]
fn a_compiler_without_a_c_library_hides_nothing_else() {
    let machine = Machine::new().with("cc", "echo 'stdlib.h: no such file' >&2; exit 1");
    let printed = machine.prints(MISSING);
    assert!(printed.starts_with("libc6-dev"), "{printed}");
    assert!(!printed.contains("mpi") && !printed.contains("clang"), "{printed}");
}

#[test]
fn an_mpi_that_compiles_nothing_is_missing() {
    let machine = Machine::new().with("mpicc", "exit 1");
    assert!(machine.prints(MISSING).contains("lib"), "{}", machine.prints(MISSING));
    let printed =
        machine.prints("export MPICC=$HERE/mpicc; missing_packages build || echo refused");
    assert!(
        printed.contains("/mpicc cannot be used: ") && printed.ends_with("refused\n"),
        "{printed}"
    );
}

#[test]
fn compiler_and_mpirun_of_different_mpis_are_refused() {
    let other = "case $(mpi_of_compiler) in openmpi) echo HYDRA ;; *) echo 'Open MPI' ;; esac";
    let machine = Machine::new().with("mpirun", "cat \"$HERE/version\"");
    let line = format!("{other} >$HERE/version; missing_packages build || echo refused");
    let printed = machine.prints(&line);
    assert!(printed.contains("are not of one MPI") && printed.ends_with("refused\n"), "{printed}");
}

#[test]
fn a_blas_that_cannot_be_linked_is_missing() {
    let machine = Machine::new().with("pkg-config", "echo -lno-such-openblas");
    assert_eq!(machine.prints(&format!("unset SKT_HPL_BLAS; {MISSING}")), "libopenblas-dev\n");
    let printed =
        machine.prints("export SKT_HPL_BLAS=no-such; missing_packages build || echo refused");
    assert!(printed.contains("SKT_HPL_BLAS=no-such cannot be used: "), "{printed}");
    assert!(printed.ends_with("refused\n"), "{printed}");
}

#[test]
fn what_devices_need_is_missing_for_their_tests_alone() {
    let body =
        "case \"$*\" in *-lOpenCL* | *-lamdhip64*) exit 1 ;; *) exec /usr/bin/cc \"$@\" ;; esac";
    let machine = Machine::new().with("cc", body);
    assert_eq!(machine.prints("echo $(missing_packages test)"), "\n");
    let printed = machine.prints("echo $(missing_packages device)");
    assert_eq!(printed, "pocl-opencl-icd ocl-icd-opencl-dev opencl-headers libamdhip64-dev\n");
    let printed = machine.prints("export CUDA_HOME=/nowhere; install_cuda || echo refused");
    assert!(printed.contains("CUDA_HOME=/nowhere has no include/cuda.h: "), "{printed}");
    assert!(printed.ends_with("refused\n"), "{printed}");
}

#[test]
fn libclang_is_what_bindgen_would_load() {
    let machine = Machine::new().with("only/libclang-20.so", "exit 0");
    let with = |folder: &str, files: &str| {
        machine.prints(&format!(
            "real=$(readlink -f \"$(bindgens_libclang)\"); mkdir $HERE/{folder}
             for file in {files}; do ln -s \"$real\" $HERE/{folder}/$file; done
             ln -s /nowhere/libclang.so.99 $HERE/{folder}/libclang.so.99
             export LIBCLANG_PATH=$HERE/{folder}
             basename \"$(bindgens_libclang)\"; have_libclang && echo there"
        ))
    };
    // A name is not enough: a script, another library, a dangling link.
    assert_eq!(with("only/2", ""), "\n");
    assert_eq!(machine.prints("export LIBCLANG_PATH=$HERE/only; have_libclang && echo there"), "");
    assert_eq!(with("cpp", "libclang-cpp.so libclang-cpp.so.14"), "\n");
    // One of the four names is enough, and the highest version is taken.
    assert_eq!(with("a", "libclang.so.1"), "libclang.so.1\nthere\n");
    assert_eq!(with("b", "libclang-9.so.1"), "libclang-9.so.1\nthere\n");
    assert_eq!(
        with("c", "libclang.so libclang-9.so.1 libclang-14.so libclang.so.2 libclang-cpp.so.15"),
        "libclang-14.so\nthere\n"
    );
    // An llvm-config whose folder has no libclang does not hide the others.
    let machine = Machine::new().with("llvm-config", "echo /nowhere");
    assert_eq!(machine.prints("unset LIBCLANG_PATH; have_libclang && echo there"), "there\n");
    let printed =
        machine.prints("export LIBCLANG_PATH=/nowhere; missing_packages build || echo refused");
    assert!(printed.contains("LIBCLANG_PATH=/nowhere cannot be used: "), "{printed}");
}

#[test]
fn a_newer_rust_of_rustup_precedes_an_older_system_one() {
    let old = Machine::new()
        .with("rustc", "echo 'rustc 1.63.0 (x 2022-01-01)'")
        .with("cargo", "echo 'cargo 1.63.0'");
    let line = "have_rust && rustc --version";
    assert_eq!(old.prints(&format!("rust_folder=/nowhere; {line}")), "");
    let both = old
        .with("home/rustc", "echo 'rustc 1.95.0 (x 2026-01-01)'")
        .with("home/cargo", "echo 'cargo 1.95.0'");
    let line = format!("rust_folder=$HERE/home; {line}");
    assert_eq!(both.prints(&line), "rustc 1.95.0 (x 2026-01-01)\n");
    // The default of rustup is older, its stable version is not.
    let version = "test \"$RUSTUP_TOOLCHAIN\" = stable && echo 'x 1.95.0' || echo 'x 1.70.0'";
    let default_is_older = both.with("home/rustc", version).with("home/cargo", version);
    assert_eq!(default_is_older.prints(&line), "x 1.95.0\n");
}

#[test]
fn nothing_is_installed_unless_that_is_asked_for() {
    let machine = Machine::new()
        .with("pkg-config", "echo -lno-such-openblas")
        .with("apt-get", "echo apt-get $* >>\"$HERE/log\"")
        .with("sudo", "exec \"$@\"")
        .with("cargo", "[ $1 = build ] || echo cargo 1.95.0");
    let log = || fs::read_to_string(machine.0.path().join("log")).unwrap_or_default();
    for (install, command) in [
        ("unset SKT_HPL_INSTALL", "needs test"),
        ("unset SKT_HPL_INSTALL", "scripts/test --quick"),
        ("export SKT_HPL_INSTALL=1", "needs build"),
        ("export SKT_HPL_INSTALL=no", "scripts/quickstart"),
    ] {
        let printed =
            machine.prints(&format!("unset SKT_HPL_BLAS; {install}; {command} || echo refused"));
        assert!(printed.contains("missing: libopenblas-dev"), "{command}: {printed}");
        assert!(printed.contains("SKT_HPL_INSTALL=yes installs"), "{command}: {printed}");
        assert_eq!(log(), "", "{install}; {command}");
    }
    for (install, command) in [
        ("export SKT_HPL_INSTALL=yes", "needs build"),
        ("unset SKT_HPL_INSTALL", "scripts/quickstart"),
    ] {
        machine.prints(&format!("unset SKT_HPL_BLAS; {install}; {command} || echo refused"));
        assert!(
            log().contains("install -q -y --no-install-recommends libopenblas-dev"),
            "{}",
            log()
        );
        fs::remove_file(machine.0.path().join("log")).unwrap();
    }
}

#[test]
fn the_last_line_of_the_tests_counts_those_that_were_skipped() {
    let body = "case $1 in test) printf \"$SAYS\"; exit $CODE ;; *) echo cargo 1.95.0 ;; esac";
    let machine = Machine::new().with("cargo", body);
    let prints = |text: &str, code: i32| {
        machine.prints(&format!(
            "export SAYS='{text}' CODE={code}; scripts/test --timing && echo passed || echo failed"
        ))
    };
    let none = prints("test a ... ok\\n", 0);
    assert!(
        none.contains("\n== all passed, 0 skipped (") && none.ends_with("\npassed\n"),
        "{none}"
    );
    let line = "skipped: a::b: no namespaces: here\\n";
    let twice = prints(&format!("test c ... {line}{line}skipped: d.rs:7: not root\\nok\\n"), 0);
    assert!(twice.contains("\n== all passed, 2 skipped ("), "{twice}");
    assert!(twice.contains("\nskipped: a::b: no namespaces: here\nskipped: d.rs:7: "), "{twice}");
    let failed = prints(&format!("{line}test a ... FAILED\\n"), 101);
    assert!(!failed.contains("all passed") && failed.ends_with("\nfailed\n"), "{failed}");
}

#[test]
fn quickstart_reports_why_no_configuration_fits() {
    let machine = Machine::new()
        .with("cargo", "[ $1 = build ] || echo cargo 1.95.0")
        .with("release/skt-hpl", "echo 'error: no memory' >&2; exit 2");
    let printed = machine.prints("CARGO_TARGET_DIR=$HERE scripts/quickstart || echo refused");
    assert!(printed.ends_with("error: no memory\nrefused\n"), "{printed}");
}
