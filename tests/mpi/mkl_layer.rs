//! `mkl_rt` is configured which layer to take before any of its functions is called: at the first
//! call it loads its layers, and by default one that ends the process if there is no OpenMP
//! library.

use crate::mpirun::{mpirun, run, shared_library};

/// A BLAS that pretends to be `mkl_rt`: a call before the layer is known ends the process.
const FAKE: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static int layer = -1;
static void known(const char *name) {
    if (layer != 1) { fprintf(stderr, "%s before the layer\n", name); exit(9); }
}
__attribute__((constructor)) static void begin(void) {
    if (getenv("OMPI_COMM_WORLD_RANK")) fputs("the fake is loaded\n", stderr);
}
int MKL_Set_Threading_Layer(int wanted) { layer = wanted; return wanted; }
void MKL_Get_Version_String(char *text, int length) {
    known("the version"); strncpy(text, "a fake", length);
}
void MKL_Set_Num_Threads(int count) { known("threads"); }
int MKL_Get_Max_Threads(void) { known("most threads"); return 1; }
void dgemm_(void *a, void *b, void *c, void *d, void *e, void *f, void *g, void *h, void *i,
            void *j, void *k, void *l, void *m) {
    known("dgemm");
    void (*real)(void *, void *, void *, void *, void *, void *, void *, void *, void *, void *,
                 void *, void *, void *) = dlsym(RTLD_NEXT, "dgemm_");
    real(a, b, c, d, e, f, g, h, i, j, k, l, m);
}
"#;

#[test]
fn mkl_gets_its_layer_first() {
    let library = shared_library("fake_mkl", FAKE);
    let preload = format!("LD_PRELOAD={library}");
    let program = env!("CARGO_BIN_EXE_skt-hpl");
    for arguments in [&["--n", "50", "--progress", "off"][..], &["init", "--out", "-"]] {
        let mut job = mpirun(1);
        let ended = run(job.args(["env", &preload, program]).args(arguments)).expect(0);
        let text = ended.out + &ended.err;
        assert!(text.contains("the fake is loaded"), "the BLAS was not planted: {text}");
    }
}
