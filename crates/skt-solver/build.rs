//! Links the BLAS.
//!
//! `SKT_HPL_BLAS` names the libraries (separated by commas, e.g. `mkl_rt` or `blis`),
//! `SKT_HPL_BLAS_DIR` the folder that has them. Without them, the OpenBLAS that `pkg-config` finds
//! is linked, else plain `-lopenblas`. `static=openblas` makes OpenBLAS a part of the program.
//! `built-in` links none: the program calls the crate `skt-kernel`.

use std::env;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=SKT_HPL_BLAS");
    println!("cargo:rerun-if-env-changed=SKT_HPL_BLAS_DIR");
    println!("cargo:rustc-check-cfg=cfg(built_in_blas)");
    if let Ok(dir) = env::var("SKT_HPL_BLAS_DIR") {
        println!("cargo:rustc-link-search=native={dir}");
    }
    match env::var("SKT_HPL_BLAS") {
        Ok(names) if names.trim() == "built-in" => println!("cargo:rustc-cfg=built_in_blas"),
        Ok(names) => {
            for name in names.split(',').map(str::trim).filter(|n| !n.is_empty()) {
                match name.strip_prefix("static=") {
                    Some(name) => println!("cargo:rustc-link-lib=static:-bundle={name}"),
                    None => println!("cargo:rustc-link-lib=dylib={name}"),
                }
            }
        }
        Err(_) => {
            if pkg_config::Config::new().probe("openblas").is_err() {
                println!("cargo:rustc-link-lib=dylib=openblas");
            }
        }
    }
}
