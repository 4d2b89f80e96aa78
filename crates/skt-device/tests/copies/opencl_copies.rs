//! Copies through OpenCL, where a device is: pocl's, which is the processor, will do.

use std::thread;
use std::time::Duration;

use rand_core::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use skt_device::{Copier, Way};

use crate::host_device::{Device, NULL};
use crate::skipped::skipped;

const MIB: usize = 1 << 20;

#[track_caller]
fn with_device(test: impl FnOnce(&Device)) {
    match Device::new() {
        Ok(device) => test(&device),
        Err(why) => skipped(why),
    }
}

fn random(seed: u64, bytes: usize) -> Vec<u8> {
    println!("seed {seed}");
    let mut data = vec![0; bytes];
    Xoshiro256PlusPlus::seed_from_u64(seed).fill_bytes(&mut data);
    data
}

#[test]
fn data_comes_back_in_queues_of_both_kinds() {
    with_device(|device| {
        for is_in_order in [true, false] {
            let bytes = 40 * MIB + 12_345;
            let (queue, memory) = (device.queue(is_in_order), device.buffer(bytes));
            // SAFETY: a queue of the device.
            let mut copier = unsafe { Copier::opencl(queue) }.unwrap();
            // The copier keeps the queue alive.
            device.call("clReleaseCommandQueue", queue);
            let mut data = random(1, bytes);
            // SAFETY: a buffer of the same context with these bytes.
            unsafe { copier.from_host(memory, 0, &data) }.unwrap();

            let mut dice = Xoshiro256PlusPlus::seed_from_u64(2);
            for round in 0..30 {
                // Longer than a trial, and than a staging buffer, or short.
                let most = [17 * MIB, 3 * MIB, 1000][round % 3];
                let offset = dice.next_u64() as usize % (bytes - most);
                let part = offset..offset + dice.next_u64() as usize % most;
                let mut host = vec![0; part.len()];
                // SAFETY: as above.
                unsafe { copier.to_host(memory, part.start, &mut host) }.unwrap();
                assert!(host == data[part.clone()], "round {round}: {part:?}");
                dice.fill_bytes(&mut host);
                // SAFETY: as above.
                unsafe { copier.from_host(memory, part.start, &host) }.unwrap();
                data[part].copy_from_slice(&host);
            }
            let mut host = vec![0; bytes];
            // SAFETY: as above.
            unsafe { copier.to_host(memory, 0, &mut host) }.unwrap();
            assert!(host == data);

            let rates = copier.rates();
            println!("{rates:?}");
            let chosen = rates.to_host.chosen.expect("all ways have been tried");
            assert!([Way::Direct, Way::Staged].contains(&chosen), "{rates:?}");
            assert_eq!((rates.no_staging, rates.registered_bytes), (None, 0));
            device.call("clReleaseMemObject", memory);
        }
    });
}

#[test]
fn a_copy_waits_for_all_that_was_enqueued_before() {
    with_device(|device| {
        let bytes = 3 * MIB;
        let (queue, memory) = (device.queue(false), device.buffer(bytes));
        // SAFETY: a queue of the device.
        let mut copier = unsafe { Copier::opencl(queue) }.unwrap();
        // SAFETY: a buffer of the same context with these bytes.
        unsafe { copier.from_host(memory, 0, &vec![1; bytes]) }.unwrap();
        let event = device.user_event();
        device.fill(queue, memory, 7, bytes, event);
        device.call("clFlush", queue);
        let address = event.expose_provenance();
        let mut host = vec![0; bytes];
        thread::scope(|scope| {
            scope.spawn(move || {
                // Long enough for a copy that does not wait.
                thread::sleep(Duration::from_millis(30));
                device.end(address);
            });
            // SAFETY: as above.
            unsafe { copier.to_host(memory, 0, &mut host) }.unwrap();
        });
        assert!(host.iter().all(|byte| *byte == 7));
        device.call("clReleaseEvent", event);
        device.call("clReleaseMemObject", memory);
        device.call("clReleaseCommandQueue", queue);
    });
}

#[test]
fn missing_library_is_refused_by_name() {
    with_device(|device| {
        // SAFETY: null is refused.
        let refused = unsafe { Copier::opencl(NULL) }.err().expect("no queue").to_string();
        assert!(refused.starts_with("the OpenCL queue is null: clCreateCommandQueue"), "{refused}");

        let (queue, memory) = (device.queue(true), device.buffer(1000));
        // SAFETY: a queue of the device.
        let mut copier = unsafe { Copier::opencl(queue) }.unwrap();
        // SAFETY: null is refused, and so is what lies beyond the end.
        unsafe {
            let refused = copier.to_host(NULL, 0, &mut [0; 10]).unwrap_err();
            let text = "clEnqueueReadBuffer of libOpenCL.so.1 returns -38 \
                        (CL_INVALID_MEM_OBJECT: is the memory a cl_mem of the queue's context?)";
            assert_eq!((refused.code(), refused.to_string()), (-38, text.to_owned()));
            let refused = copier.from_host(memory, 995, &[0; 10]).unwrap_err();
            let text = "clEnqueueWriteBuffer of libOpenCL.so.1 returns -30 \
                        (CL_INVALID_VALUE: is the region larger than its buffer?)";
            assert_eq!((refused.code(), refused.to_string()), (-30, text.to_owned()));
            // Neither prevents later copies.
            copier.from_host(memory, 990, &[3; 10]).unwrap();
            let mut host = [0; 10];
            copier.to_host(memory, 990, &mut host).unwrap();
            assert_eq!(host, [3; 10]);
        }
        device.call("clReleaseMemObject", memory);
        device.call("clReleaseCommandQueue", queue);
    });
}

/// If other work runs at the same time, either side may lose its core.
mod timing {
    use std::time::Instant;

    use super::*;

    /// The bytes of a second, of the fastest of some tries.
    fn rate(bytes: usize, mut copy: impl FnMut()) -> f64 {
        let seconds = (0..5).map(|_| {
            let began = Instant::now();
            copy();
            began.elapsed().as_secs_f64()
        });
        bytes as f64 / seconds.fold(f64::INFINITY, f64::min)
    }

    #[test]
    #[ignore = "timing: copies of memory that is the host's, too, with those of the host"]
    fn copies_are_as_fast_as_the_memory() {
        with_device(|device| {
            let bytes = 256 * MIB;
            let (queue, memory) = (device.queue(true), device.buffer(bytes));
            // SAFETY: a queue of the device.
            let mut copier = unsafe { Copier::opencl(queue) }.unwrap();
            let (data, mut host) = (random(4, bytes), vec![0; bytes]);
            // The first writes get pages from the system. These pieces are too short to measure.
            for (index, piece) in data.chunks(MIB).enumerate() {
                // SAFETY: a buffer of the same context with these bytes.
                unsafe { copier.from_host(memory, index * MIB, piece) }.unwrap();
            }
            let copied = rate(bytes, || host.copy_from_slice(&data));
            // SAFETY: as above.
            let from_host = rate(bytes, || unsafe { copier.from_host(memory, 0, &data) }.unwrap());
            // SAFETY: as above.
            let to_host = rate(bytes, || unsafe { copier.to_host(memory, 0, &mut host) }.unwrap());
            assert!(host == data);
            println!("memcpy {copied:.3e} B/s, to host {to_host:.3e}, from host {from_host:.3e}");
            println!("{:?}", copier.rates());
            assert!(to_host > 0.8 * copied && from_host > 0.8 * copied);
            device.call("clReleaseMemObject", memory);
            device.call("clReleaseCommandQueue", queue);
        });
    }
}
