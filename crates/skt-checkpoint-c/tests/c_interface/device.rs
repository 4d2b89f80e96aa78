//! The clients of which all data is on an OpenCL device: killed as those of `clients`, they print
//! the bits of an undisturbed run, which are those of the same computation on the host.

use std::path::PathBuf;

use crate::build::{checkout, compile_c, compile_fortran, second_compiler};
use crate::clients::{LIMIT, Run, client, survives};
use crate::opencl;

fn device_client(name: &str, as_name: &str, compiler: &str, more: &[&str]) -> PathBuf {
    let more = [&["-lOpenCL", "-lm"], more].concat();
    compile_c(&checkout().join("examples/c").join(name), as_name, compiler, &more)
}

/// The checkpoints of this client are begun and completed some iterations later, in which the
/// device computes.
#[test]
fn pressure_on_a_device_that_is_saved_while_it_changes_survives() {
    if !opencl::is_here() {
        return;
    }
    survives(&device_client("himeno_opencl.c", "himeno_opencl", "gcc", &[]), "himeno-opencl", 600);
}

#[test]
fn bodies_on_a_device_survive() {
    if !opencl::is_here() {
        return;
    }
    survives(&device_client("nbody_opencl.c", "nbody_opencl", "gcc", &[]), "nbody-opencl", 400);
}

/// The operations of both are the same, in the same order, and neither contracts them.
#[test]
fn a_device_computes_the_bits_of_the_host() {
    if !opencl::is_here() {
        return;
    }
    let nbody = checkout().join("examples/fortran/nbody.f90");
    let Some(nbody) = compile_fortran(&nbody, "nbody-host") else { return };
    let pairs = [
        (
            client("himeno.c", "himeno-host"),
            device_client("himeno_opencl.c", "himeno-device", second_compiler(), &[]),
        ),
        (nbody, device_client("nbody_opencl.c", "nbody-device", second_compiler(), &[])),
    ];
    for (host, device) in pairs {
        let [host, device] = [(host, "host"), (device, "device")].map(|(program, name)| {
            let ended = Run::new(&program, name, 60).start(&[], 0, LIMIT);
            let sum = ended.out.strip_prefix("sum of squares ").expect("a result").trim();
            let sum = sum.split(',').next().expect("a number");
            sum.parse::<f64>().unwrap_or_else(|_| panic!("{sum}: {}", ended.err))
        });
        assert_eq!(host, device);
    }
}

/// Callbacks that the client has itself. One fails on one rank: all ranks return the error, and the
/// checkpoint before is there for the next start.
#[test]
fn failed_copy_on_one_rank_loses_one_interval() {
    if !opencl::is_here() {
        return;
    }
    let own = checkout().join("crates/skt-checkpoint-c/tests/c_sources/own_mover.h");
    let include = ["-include", own.to_str().expect("UTF-8")];
    let program = device_client("nbody_opencl.c", "nbody-own", "gcc", &include);
    let undisturbed = Run::new(&program, "own-undisturbed", 100).start(&[], 0, LIMIT);
    let mut run = Run::new(&program, "own", 100);
    // Both regions are copied in one piece each: the second checkpoint fails.
    run.variables = vec![("OWN_MOVER_FAILS", "4".to_owned())];
    let ended = run.start(&[], 0, LIMIT);
    assert_eq!(ended.code, Some(75), "{}", ended.err);
    let error = "rank 2: region 2: to_host of bytes 0 to 4800 fails: CL_OUT_OF_RESOURCES";
    assert!(ended.err.contains(error), "{}", ended.err);
    run.lose(1);
    run.variables.clear();
    let ended = run.start(&[], 0, LIMIT);
    assert!(ended.ok && ended.err.contains("continues from step 20\n"), "{}", ended.err);
    assert_eq!(ended.out, undisturbed.out);
    assert_eq!(run.segments(), []);
}
