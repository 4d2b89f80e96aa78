//! A BLAS with faults, for tests of `--blas`.
#![allow(dead_code)] // Each suite uses its part.

use std::path::{Path, PathBuf};

use crate::mpirun::shared_library;

/// A BLAS that passes calls on to the one named in place of `REAL`. `FAULT` names what is wrong
/// with it, on the rank `FAULT_RANK` or on all, unless `FAULT_IS` does so when it is compiled. Such
/// a product as is timed takes ten times as long in a `SLOW` one, and is left out by a `FAST` one,
/// or in single precision by a `FAST_SINGLE` one. With `WRONG=FUNCTION SIDE REMAINDER` results are
/// wrong whose side (rows, columns, depth; order, columns; from 0) is that modulo 16. A `ROUNDING`
/// one computes products in two parts, which gives other last bits. A `MEDDLING` one changes the
/// process when it is loaded. Each process of a trial adds a line to the file that `TRIALS` names.
const PLANTED: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fenv.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
static const char *build __attribute__((used)) = "BUILD";
typedef void *P;
static int has(const char *fault) {
#ifdef FAULT_IS
    const char *this = FAULT_IS, *rank = 0;
#else
    const char *this = getenv("FAULT"), *rank = getenv("FAULT_RANK");
#endif
    const char *here = getenv("OMPI_COMM_WORLD_RANK");
    return this && !strcmp(this, fault) && (!rank || (here && !strcmp(rank, here)));
}
static int timed_order(void);
__attribute__((constructor)) static void begin(void) {
    FILE *trials = getenv("TRIALS") && timed_order() ? fopen(getenv("TRIALS"), "a") : 0;
    if (trials) fputs("a trial\n", trials), fclose(trials);
    if (has("crashes when loaded")) __builtin_trap();
    while (has("hangs when loaded")) pause();
#ifdef MEDDLING
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, 0);
    int (*trap)(int) = dlsym(dlopen("libm.so.6", RTLD_NOW), "feenableexcept");
    if (trap) trap(FE_INEXACT);
#endif
}
__attribute__((destructor)) static void end(void) {
    if (has("crashes when unloaded")) __builtin_trap();
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
// Whether this function is to be wrong for these sizes.
static int wrong(const char *function, P m, P n, P k) {
    char name[16];
    int side, remainder, *sides[] = {m, n, k};
    const char *text = getenv("WRONG");
    return text && sscanf(text, "%15s %d %d", name, &side, &remainder) == 3
        && !strcmp(name, function) && *sides[side] % 16 == remainder;
}
#define LAST(type, matrix, m, n, ld) \
    ((type *)(matrix))[*(int *)(m) - 1 + (*(int *)(n) - 1) * (long)*(int *)(ld)]
#define PASS_ON(name, A, V, m, n, last) \
    void name##_(A) { \
        static void (*to)(A); \
        if (!to) to = real(#name "_"); \
        to(V); \
        if (wrong(#name, m, n, n)) last += 1; \
    }
#define A12 A11, P l
#define V12 V11, l
#define LEFT (*(char *)a == 'L')
#define PLAIN (*(char *)a == 'N')
PASS_ON(dtrsm, A15, V15, LEFT ? e : f, LEFT ? f : e, LAST(double, j, e, f, k))
PASS_ON(strsm, A15, V15, LEFT ? e : f, LEFT ? f : e, LAST(float, j, e, f, k))
#define ROWS (PLAIN ? b : c)
PASS_ON(dgemv, A12, V12, ROWS, PLAIN ? c : b, ((double *)j)[*(int *)ROWS - 1])
#ifndef LACKS
PASS_ON(dtrsv, A11, V11, d, d, ((double *)g)[*(int *)d - 1])
#endif
static void *spin(void *seconds) {
    struct timespec now;
    do clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now); while (now.tv_nsec < 5000000);
    return seconds;
}
// The rows and columns of the products that this process times, if it is that of a trial.
static int timed_order(void) {
    static int order = -1;
    if (order >= 0) return order;
    char words[4096];
    FILE *file = fopen("/proc/self/cmdline", "r");
    size_t bytes = file ? fread(words, 1, sizeof words - 1, file) : 0;
    words[bytes] = order = 0;
    for (char *word = words; word < words + bytes; word += strlen(word) + 1)
        if (!strcmp(word, "--order")) order = atoi(word + strlen(word) + 1);
    if (file) fclose(file);
    return order;
}
static int times(int rows, int columns) {
    return rows == columns && rows == timed_order();
}
void sgemm_(A15) {
    static void (*to)(A15);
    if (!to) to = real("sgemm_");
#ifdef FAST_SINGLE
    if (times(*(int *)c, *(int *)d)) return;
#endif
    to(V15);
    if (wrong("sgemm", c, d, e)) LAST(float, l, c, d, m) += 1;
}
void dgemm_(A15) {
    static void (*to)(A15);
    if (!to) to = real("dgemm_");
    int rows = *(int *)c, columns = *(int *)d, depth = *(int *)e;
    double *first = l, one = 1;
    int is_timed = times(rows, columns);
    if (has("multiplies with zero") && *(double *)k == 0) {
        for (int at = 0; at < rows * columns; at++)
            ((double *)l)[at % rows + (long)(at / rows) * *(int *)m] *= 0;
        k = &one;
    }
    if (is_timed && has("crashes when timed")) __builtin_trap();
    while (is_timed && has("hangs when timed")) pause();
#ifdef SLOW
    for (int time = 1; is_timed && time < 10; time++) to(V15);
#endif
#ifdef FAST
    if (is_timed) return;
#endif
    if (has("crashes when called")) __builtin_trap();
    if (has("ends the process")) exit(3);
#ifdef ROUNDING
    // dgemm_(transa, transb, m, n, k, alpha, A, lda, B, ldb, beta, C, ldc, lengths of the letters)
    int half = depth / 2, rest = depth - half;
    long by_a = *(char *)a == 'N' ? *(int *)h : 1, by_b = *(char *)b == 'N' ? 1 : *(int *)j;
    to(a, b, c, d, &half, f, g, h, i, j, k, l, m, n, o);
    e = &rest, g = (double *)g + half * by_a, i = (double *)i + half * by_b, k = &one;
#endif
    to(V15);
    if (has("is wrong")) *first += 1;
    if (wrong("dgemm", c, d, e)) LAST(double, l, c, d, m) += 1;
    if (has("is wrong in one shape") && rows == 46 && columns == 767 && depth == 40) *first += 1;
    if (has("is wrong in large calls") && (rows > 800 || columns > 800)) *first += 1;
    if (has("is wrong in panels") && rows < 9 && columns > 500 && depth == 20) *first += 1;
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
pub fn planted(name: &str, first_lines: &str) -> PathBuf {
    let real = skt_solver::blas::library::loaded().path.expect("a library of the system");
    let source = PLANTED.replace("REAL", &real.display().to_string()).replace("BUILD", name);
    PathBuf::from(shared_library(name, &format!("{first_lines}\n{source}")))
}

/// A folder for the loader, with these libraries under names that `--blas auto` tries.
pub fn folder_with(libraries: &[(&str, &Path)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, library) in libraries {
        std::fs::copy(library, folder.path().join(format!("lib{name}.so"))).unwrap();
    }
    folder
}
