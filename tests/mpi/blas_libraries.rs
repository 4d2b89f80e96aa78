//! Libraries that `--blas` names: those that do not serve are refused by what they do, on any rank,
//! and a run resumes with the library that it began with.

use std::path::{Path, PathBuf};

use crate::mpi_job::Job;
use crate::mpirun::{mpirun, run, shared_library};

/// A BLAS that passes calls on to the one named in place of `REAL`. `FAULT` names what is wrong
/// with it, on the rank `FAULT_RANK` or on all.
const PLANTED: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
static const char *build __attribute__((used)) = "BUILD";
typedef void *P;
static int has(const char *fault) {
    const char *this = getenv("FAULT"), *rank = getenv("FAULT_RANK");
    const char *here = getenv("OMPI_COMM_WORLD_RANK");
    return this && !strcmp(this, fault) && (!rank || (here && !strcmp(rank, here)));
}
__attribute__((constructor)) static void begin(void) {
    if (has("crashes when loaded")) __builtin_trap();
    while (has("hangs when loaded")) pause();
}
static P real(const char *name) {
    static P library;
    if (!library) library = dlopen("REAL", RTLD_NOW | RTLD_LOCAL);
    return dlsym(library, name);
}
#define A11 P a, P b, P c, P d, P e, P f, P g, P h, P i, P j, P k
#define V11 a, b, c, d, e, f, g, h, i, j, k
#define A15 A11, P l, P m, P n, P o
#define V15 V11, l, m, n, o
#define PASS_ON(name, A, V) \
    void name(A) { static void (*to)(A); if (!to) to = real(#name); to(V); }
#define A12 A11, P l
#define V12 V11, l
PASS_ON(sgemm_, A15, V15)
PASS_ON(dtrsm_, A15, V15)
PASS_ON(strsm_, A15, V15)
PASS_ON(dgemv_, A12, V12)
#ifndef LACKS
PASS_ON(dtrsv_, A11, V11)
#endif
static void *spin(void *seconds) {
    struct timespec now;
    do clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now); while (now.tv_nsec < 5000000);
    return seconds;
}
void dgemm_(A15) {
    static void (*to)(A15);
    if (!to) to = real("dgemm_");
    int rows = *(int *)c, columns = *(int *)d, depth = *(int *)e;
    double *first = l;
    if (has("crashes when called")) __builtin_trap();
    if (has("ends the process")) exit(3);
    while (has("hangs when called")) ;
    to(V15);
    if (has("is wrong")) *first += 1;
    if (has("is wrong in one shape") && rows == 49 && columns == 97 && depth == 40) *first += 1;
    if (has("uses all cores") && rows >= 700) {
        pthread_t threads[2];
        for (int at = 0; at < 2; at++) pthread_create(threads + at, 0, spin, 0);
        for (int at = 0; at < 2; at++) pthread_join(threads[at], 0);
    }
}
#ifdef LONG
double ddot_(long *n, double *x, long *dx, double *y, long *dy) {
#else
double ddot_(int *n, double *x, int *dx, double *y, int *dy) {
#endif
    double sum = 0;
    for (long at = 0; at < *n; at++) sum += x[at * *dx] * y[at * *dy];
    return sum;
}
"#;

/// A planted library, with its own name for each test, as tests run at the same time; its
/// `first_lines` make it another one.
fn planted(name: &str, first_lines: &str) -> PathBuf {
    let real = skt_solver::blas::library::loaded().path.expect("the linked library is a file");
    let source = PLANTED.replace("REAL", &real.display().to_string()).replace("BUILD", name);
    PathBuf::from(shared_library(name, &format!("{first_lines}\n{source}")))
}

/// The error of a run of two ranks with this library.
fn refused(library: &Path, variables: &[&str]) -> String {
    let mut job = mpirun(2);
    job.arg("env").args(variables).arg(env!("CARGO_BIN_EXE_skt-hpl"));
    job.args("--n 200 --nb 40 --ft none --progress off --blas".split(' ')).arg(library);
    let ended = run(&mut job).expect(2);
    ended.err
}

#[test]
fn a_library_that_does_not_serve_is_refused_by_what_it_does() {
    let library = planted("planted_blas_faults", "");
    for (fault, words) in [
        ("crashes when loaded", "it crashes (signal 4) while it is loaded"),
        ("hangs when loaded", "s were not enough while it is loaded"),
        ("crashes when called", "it crashes (signal 4) while dgemm is checked"),
        ("ends the process", "it ends the process (exit code 3) while dgemm is checked"),
        ("hangs when called", "s were not enough while dgemm is checked"),
        ("is wrong", "it is wrong: dgemm ("),
        ("is wrong in one shape", "it is wrong: dgemm (97 x 49, k = 40) computes wrong numbers"),
        ("uses all cores", "so it starts threads"),
    ] {
        let error = refused(&library, &[&format!("FAULT={fault}"), "FAULT_RANK=1"]);
        assert!(error.contains("error: rank 1 on ") && error.contains(words), "{fault}: {error}");
        assert!(error.contains("--blas linked"), "{fault}: {error}");
    }
}

#[test]
fn a_library_with_another_interface_is_refused() {
    let lacks = planted("planted_blas_lacks", "#define LACKS");
    assert!(refused(&lacks, &[]).contains("it has no function dtrsv_"));
    let long = planted("planted_blas_long", "#define LONG");
    assert!(refused(&long, &[]).contains("its integers have 64 bits"));
    let error = refused(Path::new("no_such_library"), &[]);
    assert!(error.contains("the loader refuses it: libno_such_library.so"), "{error}");
    let preload = format!("LD_PRELOAD={}", planted("planted_blas_preloaded", "").display());
    assert!(refused(Path::new("any"), &[&preload]).contains("is preloaded in place of dgemm_"));
}

#[test]
fn ranks_with_different_libraries_are_refused() {
    let libraries = [planted("planted_blas_older", ""), planted("planted_blas_newer", "")];
    let folders = libraries.map(|library| {
        let folder = tempfile::tempdir().unwrap();
        std::fs::copy(library, folder.path().join("libplanted.so")).unwrap();
        folder
    });
    let mut job = mpirun(1);
    let paths = folders.each_ref().map(|it| format!("LD_LIBRARY_PATH={}", it.path().display()));
    let program = [env!("CARGO_BIN_EXE_skt-hpl")];
    let flags: Vec<_> = "--n 200 --ft none --progress off --blas planted".split(' ').collect();
    job.args(["env", &paths[0]]).args(program).args(&flags);
    job.args([":", "-np", "1", "env", &paths[1]]).args(program).args(&flags);
    let error = run(&mut job).expect(2).err;
    let words = "--blas planted is another library there than on ";
    assert!(error.contains("error: rank 1 on ") && error.contains(words), "{error}");
    assert!(error.contains("they differ in libplanted.so"), "{error}");
}

#[test]
fn a_run_resumes_with_the_library_that_it_began_with() {
    let library = planted("planted_blas_restarted", "");
    let folder = tempfile::tempdir().unwrap();
    let moved = folder.path().join(library.file_name().unwrap());
    std::fs::copy(&library, &moved).unwrap();
    let (library, moved) = (library.to_str().unwrap(), moved.to_str().unwrap());
    let flags = "--n 250 --nb 16 --p 1 --q 2 --checkpoint-every 2p! --progress off";
    for method in ["self", "abft"] {
        let grid = if method == "abft" { "--ft abft --p 1 --q 1" } else { "--ft self" };
        let flags = match method {
            "abft" => flags.replace("--p 1 --q 2 --checkpoint-every 2p!", grid),
            _ => format!("{flags} {grid}"),
        };
        let job = |name: &str| {
            let program = Path::new(env!("CARGO_BIN_EXE_skt-hpl"));
            Job::new(program, 2, &format!("blas-{method}-{name}"), &flags)
        };
        let undisturbed = job("whole").start(&["--blas", library]);
        assert!(undisturbed.ok, "{}", undisturbed.text);
        assert!(undisturbed.text.contains("planted_blas_restarted.so"), "{}", undisturbed.text);
        let killed = job("killed");
        let inject = if method == "abft" { "1@column:160" } else { "1@encode:epoch=3" };
        let ended = killed.start(&["--blas", library, "--inject", inject]);
        assert!(!ended.ok && ended.text.contains("signal 9"), "{}", ended.text);
        let ended = killed.start(&[]);
        assert!(!ended.ok, "{}", ended.text);
        let refused = format!("add --blas {library}, or continue with other last bits of x");
        assert!(ended.text.contains(&refused), "{}", ended.text);
        let ended = killed.start(&["--blas", moved]);
        assert!(ended.ok && ended.text.contains("PASSED"), "{}", ended.text);
        assert!(!ended.text.contains("last bits of x"), "{}", ended.text);
        assert_eq!(ended.x(), undisturbed.x());
        killed.assert_nothing_is_left();
    }
}

#[test]
fn a_library_that_is_named_at_a_restart_is_taken_with_a_warning() {
    let library = planted("planted_blas_renamed", "");
    let flags = "--n 250 --nb 16 --p 1 --q 2 --checkpoint-every 2p! --progress off --ft self";
    let job = Job::new(Path::new(env!("CARGO_BIN_EXE_skt-hpl")), 2, "blas-named", flags);
    let library = library.to_str().unwrap();
    assert!(!job.start(&["--blas", library, "--inject", "1@encode:epoch=3"]).ok);
    let ended = job.start(&["--blas", "linked"]);
    assert!(ended.ok && ended.text.contains("PASSED"), "{}", ended.text);
    let warning = "warning: this test was computed with the BLAS ";
    assert_eq!(ended.text.matches(warning).count(), 1, "{}", ended.text);
    assert!(ended.text.contains("(linked): the last bits of x may differ"), "{}", ended.text);
    job.assert_nothing_is_left();
}
