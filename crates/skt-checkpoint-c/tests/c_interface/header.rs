//! The header, the Fortran module and the library agree.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use skt_checkpoint_c::code::Code;

use crate::build::{checkout, compile_c, compile_fortran, prefix, second_compiler, succeeds};
use crate::clients::mpirun::mpirun;
use crate::skipped::lacks;

fn source(name: &str) -> String {
    let path = checkout().join("crates/skt-checkpoint-c").join(name);
    fs::read_to_string(path).expect("a file of the crate")
}

/// The names `skt_..` before an opening bracket, or in quotes.
fn names(text: &str, before: &str, after: &str) -> BTreeSet<String> {
    let name = |part: &str| {
        let end = part.find(|c: char| !c.is_alphanumeric() && c != '_')?;
        part[end..].starts_with(after).then(|| format!("skt_{}", &part[..end]))
    };
    text.split(&format!("{before}skt_")).skip(1).filter_map(name).collect()
}

#[test]
fn library_exports_exactly_the_declared_calls() {
    let header = source("include/skt.h");
    let code: String = header.split("*/").map(|part| part.split("/*").next().unwrap()).collect();
    let declared = names(&code, "", "(");
    let mut nm = Command::new("nm");
    let listed =
        succeeds(nm.args(["-D", "--defined-only"]).arg(prefix().join("lib/libskt-checkpoint.so")));
    // Each has the version of the interface, so that a later version can be added.
    let exported = listed.lines().map(|line| line.rsplit(' ').next().unwrap());
    let exported: BTreeSet<String> =
        exported.filter(|&name| name != "SKT_1").map(str::to_owned).collect();
    let versioned = declared.iter().map(|name| format!("{name}@@SKT_1")).collect();
    assert_eq!(exported, versioned);
    assert!(declared.len() >= 16, "{declared:?}");
    let fortran = names(&source("fortran/skt.f90"), "name='", "'");
    assert!(fortran.is_subset(&declared), "{fortran:?}");
    // Fortran has separate calls for what takes a communicator.
    let mut own = declared.clone();
    let not = ["skt_init", "skt_comm"];
    own.retain(|name| !not.contains(&name.as_str()));
    assert_eq!(fortran, own);
}

/// `NAME = NUMBER` of each constant.
fn constants(text: &str, between: &str) -> BTreeMap<String, i32> {
    let line = |line: &str| {
        let (name, number) = line.trim().split_once(between)?;
        let number = number.trim_end_matches(',').parse().ok()?;
        let name = name.rsplit(' ').next()?;
        name.starts_with("SKT_").then(|| (name.to_owned(), number))
    };
    text.lines().filter_map(line).collect()
}

#[test]
fn codes_are_the_same_in_all_three_languages() {
    let ours: BTreeMap<String, i32> =
        Code::ALL.iter().map(|&code| (code.name().to_owned(), code as i32)).collect();
    let due = [("SKT_NOT_DUE", 0), ("SKT_DUE_NOW", 1), ("SKT_DUE_LAST", 2)];
    let due = due.map(|(name, number)| (name.to_owned(), number));
    let all: BTreeMap<String, i32> = ours.into_iter().chain(due).collect();
    assert_eq!(constants(&source("include/skt.h"), " = "), all);
    assert_eq!(constants(&source("fortran/skt.f90"), " = "), all);
}

#[test]
fn versions_and_soname_agree() {
    let version = env!("CARGO_PKG_VERSION");
    assert!(source("include/skt.h").contains(&format!("#define SKT_VERSION \"{version}\"\n")));
    let mut readelf = Command::new("readelf");
    let printed = succeeds(readelf.arg("-d").arg(prefix().join("lib/libskt-checkpoint.so")));
    let major = version.split('.').next().unwrap();
    assert!(printed.contains(&format!("soname: [libskt-checkpoint.so.{major}]")), "{printed}");
    assert!(!printed.to_lowercase().contains("blas"), "{printed}");
}

/// Two compilers, and the static library in addition to the shared one.
#[test]
fn the_header_is_clean_and_programs_link_to_both_libraries() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = "#include <skt.h>\n#include <stdio.h>\n\
                int main(void) { puts(skt_version()); return 0; }\n";
    let c = folder.path().join("version.c");
    fs::write(&c, text).expect("room");
    for compiler in ["gcc", second_compiler()] {
        let program = compile_c(&c, &format!("version-{compiler}"), compiler, &[]);
        assert_eq!(succeeds(&mut Command::new(program)).trim(), env!("CARGO_PKG_VERSION"));
    }
    let private = ["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl"];
    let archive = prefix().join("lib/libskt-checkpoint.a");
    let text = fs::read_to_string(prefix().join("lib/pkgconfig/skt-checkpoint.pc")).unwrap();
    assert!(text.contains(&format!("Libs.private: {}\n", private.join(" "))), "{text}");
    let program = folder.path().join("static");
    let mut command = Command::new("mpicc");
    command.arg(&c).arg("-I").arg(prefix().join("include")).arg(&archive).args(private);
    succeeds(command.arg("-o").arg(&program));
    assert_eq!(succeeds(&mut Command::new(&program)).trim(), env!("CARGO_PKG_VERSION"));
    let printed = succeeds(Command::new("readelf").arg("-d").arg(&program));
    assert!(!printed.contains("skt-checkpoint"), "{printed}");
}

/// The clients too are clean with a second compiler.
#[test]
fn clients_are_clean_with_clang() {
    if lacks(&["clang"]) {
        return;
    }
    for name in ["heat", "himeno"] {
        let source = checkout().join("examples/c").join(name).with_extension("c");
        compile_c(&source, &format!("{name}-clang"), "clang", &[]);
    }
}

#[test]
fn the_manual_page_has_each_call_with_its_text() {
    let page = fs::read_to_string(prefix().join("share/man/man3/skt.3")).expect("a page");
    let header = source("include/skt.h");
    let code: String = header.split("*/").map(|part| part.split("/*").next().unwrap()).collect();
    for name in names(&code, "", "(") {
        let is_it = |line: &str| line.starts_with(".B ") && line.contains(&format!("{name}("));
        assert!(page.lines().any(is_it), "{name}: {page}");
    }
    assert!(
        page.starts_with(".TH SKT 3 ") && page.contains("\\-12\nA bug of this library."),
        "{page}"
    );
}

/// With CMake, linked to the shared library, to the archive, and from Fortran.
#[test]
fn cmake_finds_the_library() {
    if lacks(&["cmake", "make", "gfortran"]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let project = "cmake_minimum_required(VERSION 3.18)
project(found C Fortran)
find_package(skt-checkpoint 0.1 REQUIRED)
add_executable(shared version.c)
target_link_libraries(shared skt::checkpoint)
add_executable(static version.c)
target_link_libraries(static skt::checkpoint-static)
add_executable(fortran version.f90)
target_link_libraries(fortran skt::fortran)
";
    let c =
        "#include <skt.h>\n#include <stdio.h>\nint main(void) { puts(skt_version()); return 0; }\n";
    let fortran = "use skt\nprint '(a)', skt_version()\nend\n";
    for (name, text) in [("CMakeLists.txt", project), ("version.c", c), ("version.f90", fortran)] {
        fs::write(folder.path().join(name), text).expect("room");
    }
    let cmake = |arguments: &[&str]| {
        let mut command = Command::new("cmake");
        let found = command.args(arguments).env("CMAKE_PREFIX_PATH", prefix()).output();
        let output = found.expect("cmake");
        let printed =
            String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        (output.status.success(), printed)
    };
    let (from, to) = (folder.path().display().to_string(), folder.path().join("built"));
    let to = to.display().to_string();
    for arguments in [&["-S", &from, "-B", &to][..], &["--build", &to]] {
        let (is_done, printed) = cmake(arguments);
        assert!(is_done, "{printed}");
    }
    for name in ["shared", "static", "fortran"] {
        let printed = succeeds(&mut Command::new(folder.path().join("built").join(name)));
        assert_eq!(printed.trim(), env!("CARGO_PKG_VERSION"), "{name}");
    }
    let other = project.replace("skt-checkpoint 0.1", "skt-checkpoint 0.2");
    fs::write(folder.path().join("CMakeLists.txt"), other).expect("room");
    let (is_done, printed) = cmake(&["-S", &from, "-B", &(to + "2")]);
    assert!(
        !is_done && printed.contains("version: 0.1.0"),
        "another interface is refused: {printed}"
    );
}

/// With `mpi_f08` a communicator is a type; texts and logicals come over the border.
#[test]
fn the_module_works_with_mpi_f08() {
    let text = "program f08
   use mpi_f08
   use skt
   use, intrinsic :: iso_c_binding
   implicit none
   type(MPI_Comm) :: comm
   integer(c_size_t) :: bytes
   integer :: size
   integer(c_int) :: due
   real(c_double) :: left
   logical :: done
   call MPI_Init()
   bytes = 0
   if (skt_init(MPI_COMM_WORLD%MPI_VAL, bytes, '') /= SKT_ERR_ARGUMENT) error stop 'no error'
   if (index(skt_message(), '0 bytes to protect') == 0) error stop 'no message'
   if (skt_error(SKT_SUCCESS) /= 'success') error stop 'no text'
   bytes = 800
   if (skt_init(MPI_COMM_WORLD%MPI_VAL, bytes, 'mtbf_seconds = 100') /= SKT_SUCCESS) error stop 'init'
   if (skt_comm(comm%MPI_VAL) /= SKT_SUCCESS) error stop 'comm'
   call MPI_Comm_size(comm, size)
   if (skt_due(due) /= SKT_SUCCESS .or. due /= SKT_DUE_NOW .or. size /= 2) error stop 'due'
   if (skt_time_left(left) /= SKT_SUCCESS .or. left < 1e9) error stop 'time'
   if (skt_checkpoint_test(done) /= SKT_ERR_ORDER) error stop 'test'
   if (skt_finalize(.true.) /= SKT_SUCCESS) error stop 'finalize'
   if (skt_finalize(1) /= SKT_ERR_ORDER) error stop 'finalized'
   call MPI_Finalize()
   print '(a)', skt_version()
end program f08
";
    let source = prefix().join("f08.f90");
    fs::write(&source, text).expect("room");
    let Some(program) = compile_fortran(&source, "f08") else { return };
    let run = format!("f08-{}", std::process::id());
    let mut command = mpirun(2);
    command.arg(program).env("SKT_RUN_ID", run);
    // This test may be part of a Slurm job.
    command.env("SKT_TIME_LIMIT", "never");
    let version = format!("{}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(succeeds(&mut command), version.repeat(2));
}
