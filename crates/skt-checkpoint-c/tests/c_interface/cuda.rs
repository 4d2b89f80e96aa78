//! The programs for NVIDIA GPUs: `examples/cuda/nbody.cu`, killed as those of `clients` where there
//! is a GPU, and what `scripts/dev/test-device` runs. Without a driver each reports that and begins
//! no run.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use crate::build::{checkout, compile_c, prefix, succeeds};
use crate::clients::{LIMIT, Run, survives};
use crate::skipped::{find, skipped};

/// The compiler of CUDA: that of `NVCC`, or in `PATH`.
fn nvcc() -> Option<PathBuf> {
    std::env::var_os("NVCC").map(PathBuf::from).or_else(|| find("nvcc"))
}

fn program_of_script(name: &str) -> PathBuf {
    let sources = checkout().join("crates/skt-checkpoint-c/tests/device");
    compile_c(&sources.join(name).with_extension("c"), name, "gcc", &["-ldl", "-lrt"])
}

/// By the program that measures a device, which otherwise has to report what is missing.
fn has_device() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| {
        let mut rates = Command::new(program_of_script("rates"));
        rates.arg(prefix().join("rates.jsonl")).arg("1");
        let Output { status, stdout, stderr } = rates.output().expect("it starts");
        let [out, err] = [stdout, stderr].map(|said| String::from_utf8(said).expect("UTF-8"));
        if !status.success() {
            assert_eq!((status.code(), out.as_str()), (Some(2), ""), "{err}");
            assert!(err.contains("libcuda.so.1"), "{err}");
        }
        status.success()
    })
}

#[test]
fn bodies_on_gpus_survive() {
    let Some(nvcc) = nvcc() else {
        skipped("no nvcc here (NVCC, or in PATH)");
        return;
    };
    let (source, program) =
        (checkout().join("examples/cuda/nbody.cu"), prefix().join("nbody-cuda"));
    compile_cuda(&nvcc, &source, &program);
    if has_device() {
        survives(&program, "nbody-cuda", 400);
        return;
    }
    let run = Run::new(&program, "nbody-cuda", 400);
    let ended = run.start(&[], 0, LIMIT);
    assert_eq!((ended.code, ended.out.as_str()), (Some(2), ""), "{}", ended.err);
    assert!(ended.err.contains("nbody: rank 0 has no device: CUDA error "), "{}", ended.err);
    assert_eq!(run.segments(), []);
    skipped("compiled, but no NVIDIA GPU is here");
}

/// Compiles a program without a warning of `nvcc` or of its host compiler. Devices newer than that
/// of `-arch` compile it again as they load it.
fn compile_cuda(nvcc: &Path, source: &Path, program: &Path) {
    let mut command = Command::new(nvcc);
    command.args(["-ccbin", "mpicxx", "-std=c++17", "-O2", "-arch=sm_80"]);
    // MPI's own classes for C++ are not free of warnings.
    command.args(["-DOMPI_SKIP_MPICXX", "-DMPICH_SKIP_MPICXX"]);
    command.args(["-Werror", "all-warnings", "-Xcompiler", "-Wall,-Wextra"]);
    command.arg(source).arg("-o").arg(program).arg("-I").arg(prefix().join("include"));
    let library = prefix().join("lib");
    command.arg("-L").arg(&library).arg("-lskt-checkpoint");
    succeeds(command.arg("-Xlinker").arg(format!("-rpath={}", library.display())));
}

#[test]
fn a_client_on_the_driver_alone_begins_no_run_without_it() {
    let mut run = Run::new(&program_of_script("words"), "words", 50);
    let [every, kib] = ["20", "64"].map(str::to_owned);
    run.more = vec![every.clone(), kib.clone(), "host".to_owned()];
    let ended = run.start(&[], 0, LIMIT);
    assert!(ended.ok && ended.err.contains("checkpoint at step 40\n"), "{}", ended.err);
    run.more = vec![every, kib, "device".to_owned()];
    let ended = run.start(&[], 0, LIMIT);
    if has_device() {
        assert!(ended.ok && ended.err.contains("checkpoint at step 40\n"), "{}", ended.err);
        return;
    }
    assert_eq!(ended.code, Some(2), "{}", ended.err);
    assert!(ended.err.contains("libcuda.so.1"), "{}", ended.err);
    assert_eq!(run.segments(), []);
}
