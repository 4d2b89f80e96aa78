//! Names the shared library for the linker: programs record this name, with the version of the
//! interface, and find the installed file by it.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libskt-checkpoint.so.0");
}
