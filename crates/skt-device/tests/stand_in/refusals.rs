//! What a machine lacks is named, with the remedy.

use std::path::Path;
use std::process::{Command, Output};
use std::{fs, ptr};

use libloading::Library;
use skt_device::Copier;

use super::build::{folder, passes, scenario};
use super::copies::copier;
use super::driver::Driver;
use super::headers::cuda_home;
use super::library::{Api, compile};
use super::skipped::skipped;

#[test]
#[ignore = "a scenario"]
fn scenario_refuses() {
    // SAFETY: null is a stream.
    let copier = unsafe {
        match std::env::var(super::build::API).unwrap().as_str() {
            "cuda" => Copier::cuda(ptr::null_mut()),
            _ => Copier::hip(ptr::null_mut()),
        }
    };
    println!("refusal: {}", copier.err().expect("a refusal"));
}

fn refusal(mut command: Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let out = String::from_utf8(stdout).unwrap();
    let why = out.lines().find_map(|line| line.split_once("refusal: "));
    let why = why.unwrap_or_else(|| panic!("{status} {out} {}", String::from_utf8_lossy(&stderr)));
    assert!(status.success(), "{status} {out}");
    why.1.to_owned()
}

/// Whether this machine has such a library, for which the tests have no stand-in then.
fn is_installed(file: &str) -> bool {
    // SAFETY: the constructors of a driver's library have no effects on this process.
    unsafe { Library::new(file) }.is_ok()
}

/// A file that is no library.
#[test]
fn a_library_that_does_not_load_is_named() {
    for api in Api::ALL {
        let folder = folder(&format!("{}-empty", api.name()));
        for name in ["libcuda.so.1", "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"] {
            fs::write(folder.join(name), "no library\n".repeat(100)).unwrap();
        }
        let why = refusal(scenario("refusals::scenario_refuses", api, &[&folder]));
        assert!(why.contains(api.file()) && why.contains(" cannot be loaded ("), "{why}");
        assert!(why.contains(": install ") && why.contains("invalid ELF header"), "{why}");
    }
}

#[test]
fn a_library_without_a_call_is_refused_by_the_name_of_the_call() {
    for (api, missing) in [
        (Api::Cuda, "cuInit"),
        (Api::Cuda, "cuMemHostUnregister"),
        (Api::Cuda, "cuGetErrorString"),
        (Api::Hip, "hipEventCreateWithFlags"),
        (Api::Hip, "hipGetErrorString"),
    ] {
        let folder = folder(&format!("without-{missing}"));
        compile(api, &folder, &[format!("-D{missing}=another")]);
        let why = refusal(scenario("refusals::scenario_refuses", api, &[&folder]));
        assert!(why.contains(&format!(" has no {missing} (")), "{why}");
        assert!(why.contains(": install "), "{why}");
    }
}

#[test]
#[ignore = "a scenario"]
fn scenario_no_context() {
    let driver = Driver::load();
    let stream = driver.new_stream();
    let memory = driver.allocate_with(&[5; 10]);
    driver.restore(0);
    let why = copier(&driver, ptr::null_mut()).err().expect("a refusal").to_string();
    assert!(why.starts_with("no CUDA context is current in this thread"), "{why}");
    // A stream has its own.
    let mut host = [0; 10];
    let mut copier = copier(&driver, stream).unwrap();
    // SAFETY: the memory has these bytes.
    unsafe { copier.to_host(memory, 0, &mut host) }.unwrap();
    assert_eq!((host, driver.current()), ([5; 10], 0));
}

#[test]
fn a_thread_without_a_context_is_refused_the_default_stream() {
    passes("refusals::scenario_no_context", Api::Cuda);
}

/// The default stream that each thread has for itself stands for another one in another thread.
#[test]
#[ignore = "a scenario"]
fn scenario_per_thread() {
    let driver = Driver::load();
    let memory = driver.allocate_with(&[5; 10]);
    let mut copier = copier(&driver, ptr::without_provenance_mut(2)).unwrap();
    let mut host = [0; 10];
    // SAFETY: the memory has these bytes.
    unsafe { copier.to_host(memory, 0, &mut host) }.unwrap();
    assert_eq!(host, [5; 10]);
    let address = memory.addr();
    std::thread::spawn(move || {
        // SAFETY: the memory has these bytes.
        let copied = unsafe { copier.to_host(ptr::without_provenance(address), 0, &mut host) };
        let why = copied.expect_err("another stream").to_string();
        assert!(
            why.starts_with("the stream is the default stream of the thread that made"),
            "{why}"
        );
    })
    .join()
    .unwrap();
    assert_eq!(driver.left().allocated, 0);
}

#[test]
fn the_default_stream_of_a_thread_is_refused_in_others() {
    Api::ALL.into_iter().for_each(|api| passes("refusals::scenario_per_thread", api));
}

/// NVIDIA's runtime without a driver, in one process with the copier.
#[test]
#[ignore = "a scenario"]
fn scenario_runtime() {
    // SAFETY: the constructors of the runtime have no effects on this process.
    let runtime = unsafe { Library::new("libcudart.so.13") }.unwrap();
    let mut stream = ptr::null_mut::<std::ffi::c_void>();
    // SAFETY: the type is that of cuda_runtime_api.h.
    let code = unsafe {
        let create: libloading::Symbol<unsafe extern "C" fn(*mut *mut std::ffi::c_void) -> i32> =
            runtime.get(b"cudaStreamCreate").unwrap();
        create(&mut stream)
    };
    // cudaErrorInsufficientDriver
    assert_eq!(code, 35);
    scenario_refuses();
}

#[test]
fn nvidias_runtime_without_a_driver_is_refused() {
    if is_installed("libcuda.so.1") {
        return skipped("libcuda.so.1 is installed");
    }
    let folder = cuda_home().join("lib");
    if !folder.join("libcudart.so.13").exists() {
        return skipped("no libcudart.so.13");
    }
    let why = refusal(scenario("refusals::scenario_runtime", Api::Cuda, &[&folder]));
    assert!(why.starts_with("libcuda.so.1 cannot be loaded ("), "{why}");
}

#[test]
fn amds_library_without_a_device_is_refused() {
    let files = ["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"];
    if !files.into_iter().any(is_installed) {
        return skipped("no libamdhip64");
    }
    if Path::new("/dev/kfd").exists() {
        return skipped("there is an AMD device");
    }
    let why = refusal(scenario("refusals::scenario_refuses", Api::Hip, &[]));
    assert!(why.starts_with("hipInit of libamdhip64.so."), "{why}");
    assert!(why.contains(" returns 10") && why.contains("hipError"), "{why}");
    assert!(
        why.ends_with(
            ": run where there is an AMD GPU that this process may use (/dev/kfd, `rocminfo`)"
        ),
        "{why}"
    );
}
