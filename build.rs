//! Links the BLAS.
//!
//! `SKT_HPL_BLAS` names the libraries (comma separated, e.g. `mkl_rt` or
//! `blis`), `SKT_HPL_BLAS_DIR` the folder to find them in. Without them the
//! OpenBLAS that `pkg-config` knows is used, else a plain `-lopenblas`.

use std::env;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=SKT_HPL_BLAS");
    println!("cargo:rerun-if-env-changed=SKT_HPL_BLAS_DIR");
    if let Ok(dir) = env::var("SKT_HPL_BLAS_DIR") {
        println!("cargo:rustc-link-search=native={dir}");
    }
    match env::var("SKT_HPL_BLAS") {
        Ok(names) => {
            for name in names.split(',').map(str::trim).filter(|n| !n.is_empty()) {
                println!("cargo:rustc-link-lib=dylib={name}");
            }
        }
        Err(_) => {
            if pkg_config::Config::new().probe("openblas").is_err() {
                println!("cargo:rustc-link-lib=dylib=openblas");
            }
        }
    }
}
