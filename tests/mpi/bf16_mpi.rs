//! Products of bf16 by libraries that are planted: one that serves, one that is slow, and one that
//! sums in too few bits. A run takes the first, and refuses the others by name.

use crate::mpi_job::{Ended, Job};
use crate::mpirun::shared_library;
use skt_solver::blas::bf16::libraries;
use std::path::Path;

/// A library with `cblas_sbgemm`, by SGEMM on floats. `SLOW` is how many times SGEMM itself
/// multiplies when others call it, and `BITS` the bits of a sum that are lost.
const LIBRARY: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
typedef void (*gemm)(const char *, const char *, const int *, const int *, const int *,
                     const float *, const float *, const int *, const float *, const int *,
                     const float *, float *, const int *, size_t, size_t);
static gemm real(void) { return (gemm)dlsym(RTLD_NEXT, "sgemm_"); }
void sgemm_(const char *ta, const char *tb, const int *m, const int *n, const int *k,
            const float *alpha, const float *a, const int *lda, const float *b, const int *ldb,
            const float *beta, float *c, const int *ldc, size_t la, size_t lb) {
    size_t bytes = sizeof(float) * (size_t)*ldc * (size_t)*n;
    for (int i = 1; i < SLOW; i++) {
        float *copy = calloc(1, bytes);
        real()(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, copy, ldc, la, lb);
        free(copy);
    }
    real()(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, la, lb);
}
static float *floats(const uint16_t *from, int rows, int cols, int ld) {
    float *all = malloc(sizeof(float) * (size_t)rows * (size_t)cols);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < cols; j++) {
            uint32_t bits = (uint32_t)from[(size_t)i * ld + j] << 16;
            memcpy(&all[(size_t)i * cols + j], &bits, sizeof bits);
        }
    return all;
}
void cblas_sbgemm(int layout, int ta, int tb, int m, int n, int k, float alpha, const uint16_t *a,
                  int lda, const uint16_t *b, int ldb, float beta, float *c, int ldc) {
    if (layout != 101 || ta != 111 || tb != 111) abort();
    float *left = floats(a, m, k, lda), *right = floats(b, k, n, ldb);
    real()("N", "N", &n, &m, &k, &alpha, right, &n, left, &k, &beta, c, &ldc, 1, 1);
    free(left);
    free(right);
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            uint32_t bits;
            memcpy(&bits, &c[(size_t)i * ldc + j], sizeof bits);
            bits &= ~0u << BITS;
            memcpy(&c[(size_t)i * ldc + j], &bits, sizeof bits);
        }
}
"#;

/// A run with the library in which SGEMM is `slow` times slower than it is, and `bits` of a sum are
/// lost.
fn run_with(name: &str, (slow, bits): (u32, u32), flags: &str) -> Ended {
    let source = LIBRARY.replace("SLOW", &slow.to_string()).replace("BITS", &bits.to_string());
    let library = shared_library(name, &source);
    job(name, flags).within(&["env", &format!("LD_PRELOAD={library}")]).start(&[])
}

fn job(name: &str, flags: &str) -> Job {
    let program = Path::new(env!("CARGO_BIN_EXE_skt-hpl"));
    Job::new(program, 2, name, &format!("--n 600 --nb 64 --progress off {flags}")).running("mxp")
}

/// The bits of x are those of the emulation, which multiplies the same numbers by SGEMM.
#[test]
fn products_of_bf16_by_a_library_are_those_of_the_emulation() {
    let by_library = run_with("bf16_serves", (4, 0), "--ft none --gemm bf16");
    assert!(by_library.ok && by_library.text.contains(" PASSED"), "{}", by_library.text);
    let line =
        by_library.text.lines().find(|line| line.starts_with("# bf16     : cblas_sbgemm of"));
    assert!(line.is_some_and(|line| line.contains("times SGEMM's")), "{}", by_library.text);
    let emulated = job("bf16_emulated", "--ft none --gemm bf16-emulated").start(&[]);
    assert!(emulated.ok && emulated.text.contains(" PASSED"), "{}", emulated.text);
    assert_eq!(by_library.all_x(), emulated.all_x());
    assert!(!emulated.text.contains("# bf16     :"), "{}", emulated.text);
    let full = job("bf16_full", "--ft none").start(&[]);
    assert_ne!(full.all_x(), emulated.all_x(), "single precision has other bits");
}

#[test]
fn libraries_of_bf16_that_do_not_serve_are_refused() {
    let refused = |ended: Ended, words: &[&str]| {
        assert!(!ended.ok && !ended.text.contains("WR"), "{}", ended.text);
        for words in words {
            assert!(ended.text.contains(words), "{words}: {}", ended.text);
        }
    };
    let slow = run_with("bf16_slow", (1, 0), "--gemm bf16");
    refused(slow, &["--gemm bf16 on", "cblas_sbgemm of", "times SGEMM's", "--gemm fp32"]);
    let coarse = run_with("bf16_coarse", (4, 16), "--gemm bf16");
    refused(coarse, &["cblas_sbgemm of", "sums are not in single precision", "--gemm fp32"]);
    // The BLAS of the tests may have such products.
    if libraries().is_empty() {
        let none = job("bf16_none", "--gemm bf16").start(&[]);
        refused(none, &["no library multiplies bf16", "--gemm bf16-emulated"]);
    }
}
