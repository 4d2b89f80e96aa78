//! The movers of CUDA and HIP on stand-ins of the drivers' libraries: what is saved and restored,
//! and failures of each call. The cases are in `tests/c_sources/stand_in.c`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::bad_use::segments_after_case;
use crate::build::{checkout, compile_c, prefix};
use crate::stand_in_library::{Api, compile};

fn program(api: Api) -> &'static Path {
    static PROGRAMS: [OnceLock<PathBuf>; 2] = [OnceLock::new(), OnceLock::new()];
    PROGRAMS[api as usize].get_or_init(|| {
        let folder = prefix().join(format!("stand-in-{}", api.name()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("room");
        compile(api, &folder, &[]);
        let source = checkout().join("crates/skt-checkpoint-c/tests/c_sources/stand_in.c");
        let library = folder.join(api.file()).display().to_string();
        let path = format!("-Wl,-rpath,{}", folder.display());
        let define = if api == Api::Hip { "-DSTAND_IN_HIP" } else { "-DSTAND_IN_CUDA" };
        compile_c(&source, api.name(), "gcc", &[&library, &path, define])
    })
}

#[track_caller]
fn case(name: &str, api: Api) {
    assert_eq!(segments_after_case(program(api), name, Path::new(""), |_| Vec::new()), 0, "{name}");
}

#[test]
fn memory_of_cuda_and_hip_is_saved_and_restored() {
    Api::ALL.into_iter().for_each(|api| case("gpu-large", api));
}

#[test]
fn each_call_of_cuda_that_fails_is_an_error_of_all_ranks() {
    case("gpu-each-call-fails", Api::Cuda);
}

#[test]
fn the_next_start_continues_from_before_a_gpu_was_lost() {
    case("gpu-lost", Api::Cuda);
}

#[test]
fn a_mover_ends_with_its_run() {
    case("gpu-ended", Api::Cuda);
}
