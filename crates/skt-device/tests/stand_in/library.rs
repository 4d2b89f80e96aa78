//! The stand-ins of the drivers' libraries, compiled.

use std::path::Path;
use std::process::{Command, Output};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Api {
    Cuda,
    Hip,
}

impl Api {
    pub const ALL: [Self; 2] = [Self::Cuda, Self::Hip];

    pub fn file(self) -> &'static str {
        match self {
            Self::Cuda => "libcuda.so.1",
            Self::Hip => "libamdhip64.so.6",
        }
    }

    /// Files of later versions, which are loaded before it.
    fn newer_files(self) -> &'static [&'static str] {
        match self {
            Self::Cuda => &[],
            Self::Hip => &["libamdhip64.so.7"],
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Cuda => "cuda",
            Self::Hip => "hip",
        }
    }
}

/// Compiles a library of a driver into a folder; `defines` are for the compiler.
pub fn compile(api: Api, into: &Path, defines: &[String]) {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../skt-device/tests/stand_in");
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"]);
    cc.args(["-fvisibility=hidden", "-pthread"]).args(defines);
    cc.arg(format!("-Wl,-soname,{}", api.file())).arg("-o").arg(into.join(api.file()));
    cc.arg(sources.join("device.c")).arg(sources.join("library.c"));
    cc.args((api == Api::Hip).then_some("-DHIP"));
    let Output { status, stderr, .. } = cc.output().expect("cc starts");
    assert!(status.success(), "{cc:?}: {}", String::from_utf8_lossy(&stderr));
    for name in api.newer_files() {
        std::os::unix::fs::symlink(api.file(), into.join(name)).unwrap();
    }
}
