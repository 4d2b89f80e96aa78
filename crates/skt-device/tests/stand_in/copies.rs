//! The right bytes, in every way of copying, from and to anywhere.

use std::ffi::c_void;
use std::ops::Range;

use rand_core::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use skt_device::{Copier, Way};

use super::build::passes;
use super::driver::{Driver, Left};
use super::library::Api;

/// The smallest copy by which a way is measured, in bytes.
pub const MEASURED_BYTES: usize = 8 << 20;

pub const NOTHING: Left = Left { allocated: 0, registered: 0, events: 0, in_flight: 0 };

pub fn copier(driver: &Driver, stream: *mut c_void) -> Result<Copier, skt_device::DeviceError> {
    // SAFETY: the stream is one of the stand-in, and is not destroyed.
    unsafe {
        match driver.api {
            Api::Cuda => Copier::cuda(stream),
            Api::Hip => Copier::hip(stream),
        }
    }
}

pub fn random_bytes(random: &mut Xoshiro256PlusPlus, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    random.fill_bytes(&mut bytes);
    bytes
}

fn within(random: &mut Xoshiro256PlusPlus, range: Range<usize>) -> usize {
    range.start + random.next_u64() as usize % (range.end - range.start)
}

pub fn seed() -> u64 {
    let seed = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    println!("seed {seed}");
    seed
}

/// Copies `count` pieces of any size in `sizes` from and to any byte, forth and back, and compares
/// all bytes around them, too.
fn round_trips(
    driver: &Driver,
    copier: &mut Copier,
    random: &mut Xoshiro256PlusPlus,
    (count, sizes, is_pinnable): (usize, Range<usize>, bool),
) {
    let most = sizes.end;
    let mut on_device = random_bytes(random, 2 * most);
    let memory = driver.allocate_with(&on_device);
    let mut host = random_bytes(random, 2 * most);
    let mut found = vec![0; 2 * most];
    let range = host.as_ptr_range();
    let range = is_pinnable.then_some(range.start.addr()..range.end.addr());
    // SAFETY: the vector lives until the next call, below.
    unsafe { copier.set_pinnable(range) };
    for _ in 0..count {
        let bytes = within(random, sizes.clone());
        let (offset, place) = (within(random, 0..most), within(random, 0..most));
        let mut expected = host.clone();
        expected[place..place + bytes].copy_from_slice(&on_device[offset..offset + bytes]);
        // SAFETY: the memory has these bytes.
        unsafe { copier.to_host(memory, offset, &mut host[place..place + bytes]) }.unwrap();
        assert!(host == expected, "{bytes} bytes from {offset} to {place} of the host");

        let (offset, place) = (within(random, 0..most), within(random, 0..most));
        on_device[offset..offset + bytes].copy_from_slice(&host[place..place + bytes]);
        // SAFETY: the memory has these bytes.
        unsafe { copier.from_host(memory, offset, &host[place..place + bytes]) }.unwrap();
        driver.read(memory, &mut found);
        assert!(found == on_device, "{bytes} bytes from {place} of the host to {offset}");
    }
    // SAFETY: nothing may be pinned any more.
    unsafe { copier.set_pinnable(None) };
    driver.free(memory);
}

#[test]
#[ignore = "a scenario"]
fn scenario_bytes() {
    let driver = Driver::load();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed());
    for (stream, is_pinnable) in [(driver.new_stream(), true), (std::ptr::null_mut(), false)] {
        let mut copier = copier(&driver, stream).unwrap();
        let small = 0..100_000;
        round_trips(&driver, &mut copier, &mut random, (20, small.clone(), is_pinnable));
        // Each of two ways is tried three times before the fastest is taken: memory that is
        // registered in part is not copied directly.
        let measured = MEASURED_BYTES..MEASURED_BYTES + 100_000;
        round_trips(&driver, &mut copier, &mut random, (7, measured, is_pinnable));
        let rates = copier.rates();
        println!("{rates:?}");
        for measured in [rates.to_host, rates.from_host] {
            let rounds = |way| measured.rates[way as usize].rounds;
            assert_eq!(rounds(Way::Staged), 3, "{rates:?}");
            assert!(is_pinnable || rounds(Way::Direct) == 3, "{rates:?}");
            assert_eq!(rounds(Way::Registered), if is_pinnable { 3 } else { 0 }, "{rates:?}");
        }
        assert_eq!(rates.registered_bytes > MEASURED_BYTES, is_pinnable, "{rates:?}");
        round_trips(&driver, &mut copier, &mut random, (20, small, is_pinnable));
        drop(copier);
        assert_eq!(driver.left(), NOTHING);
    }
}

#[test]
fn bytes_arrive_in_all_ways_from_and_to_anywhere() {
    Api::ALL.into_iter().for_each(|api| passes("copies::scenario_bytes", api));
}

/// A kernel that is enqueued before is part of what is copied, in the program's own context or
/// device, whichever is current at the time and in whichever thread.
#[test]
#[ignore = "a scenario"]
fn scenario_order() {
    let driver = Driver::load();
    if driver.api == Api::Hip {
        // The first one is that of each thread that has chosen none.
        driver.switch();
    }
    let stream = driver.new_stream();
    let memory = driver.allocate_with(&[1; 1000]);
    let mut copier = copier(&driver, stream).unwrap();
    let mut host = [0; 1000];
    driver.change(memory, 1000, 2, stream);
    // SAFETY: the memory has these bytes.
    unsafe { copier.to_host(memory, 0, &mut host) }.unwrap();
    assert_eq!(host, [3; 1000]);

    let before = driver.current();
    driver.change(memory, 1000, 4, stream);
    driver.switch();
    let elsewhere = driver.current();
    // SAFETY: the memory has these bytes.
    unsafe { copier.to_host(memory, 0, &mut host) }.unwrap();
    assert_eq!((host, driver.current()), ([7; 1000], elsewhere));
    driver.restore(before);
    driver.change(memory, 1000, 8, stream);

    let address = memory.addr();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let nothing = driver.current();
            // SAFETY: the memory has these bytes.
            unsafe { copier.to_host(std::ptr::without_provenance(address), 0, &mut host) }.unwrap();
            // SAFETY: as before.
            unsafe { copier.from_host(std::ptr::without_provenance_mut(address), 1, &[9; 10]) }
                .unwrap();
            assert_eq!(driver.current(), nothing);
        });
    });
    assert_eq!(host, [15; 1000]);
    let mut on_device = [0; 12];
    driver.read(memory, &mut on_device);
    assert_eq!(on_device, [15, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 15]);
    drop(copier);
    assert_eq!(driver.left(), NOTHING);
}

#[test]
fn copies_follow_earlier_work_of_the_stream_in_any_thread() {
    Api::ALL.into_iter().for_each(|api| passes("copies::scenario_order", api));
}

/// A program may have pinned its memory itself, in part.
#[test]
#[ignore = "a scenario"]
fn scenario_registered() {
    let driver = Driver::load();
    driver.allow_overlaps();
    let mut copier = copier(&driver, driver.new_stream()).unwrap();
    let on_device =
        random_bytes(&mut Xoshiro256PlusPlus::seed_from_u64(seed()), 2 * MEASURED_BYTES);
    let memory = driver.allocate_with(&on_device);
    let mut host = vec![0; 2 * MEASURED_BYTES];
    // Whole pages, of any size that Linux has.
    let start = host.as_ptr().align_offset(1 << 16);
    driver.register(&mut host[start..start + MEASURED_BYTES]);
    let range = host.as_ptr_range();
    // SAFETY: the vector outlives the copier.
    unsafe { copier.set_pinnable(Some(range.start.addr()..range.end.addr())) };
    for _ in 0..6 {
        host[start + MEASURED_BYTES / 2..].fill(0);
        let part = start..start + MEASURED_BYTES;
        // SAFETY: the memory has these bytes.
        unsafe { copier.to_host(memory, part.start, &mut host[part.clone()]) }.unwrap();
        assert!(host[part.clone()] == on_device[part]);
    }
    let rates = copier.rates();
    assert!(rates.no_registering.is_some(), "{rates:?}");
    assert!(rates.to_host.rates.iter().all(|rate| rate.way != Way::Registered || rate.rounds == 0));
    driver.unregister(&mut host[start..start + MEASURED_BYTES]);
}

#[test]
fn memory_that_a_program_has_registered_itself_is_copied() {
    Api::ALL.into_iter().for_each(|api| passes("copies::scenario_registered", api));
}

/// Two streams that copy to the same memory of the host, which each may pin, one after the other;
/// the first one ends before the second.
#[test]
#[ignore = "a scenario"]
fn scenario_two_streams() {
    let driver = Driver::load();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed());
    let most = 2 * MEASURED_BYTES;
    let mut host = vec![0; most];
    let range = host.as_ptr_range();
    let range = range.start.addr()..range.end.addr();
    let streams = [driver.new_stream(), driver.new_stream()];
    let content = streams.map(|_| random_bytes(&mut random, most));
    let memory = content.each_ref().map(|content| driver.allocate_with(content));
    let mut copiers: Vec<_> = streams.map(|stream| copier(&driver, stream).unwrap()).into();
    for copier in &mut copiers {
        // SAFETY: the vector outlives the copiers.
        unsafe { copier.set_pinnable(Some(range.clone())) };
    }
    let mut registered = 0;
    for round in 0..12 {
        if round == 8 {
            registered = copiers[0].rates().registered_bytes;
            copiers.remove(0);
        }
        let index = round % copiers.len();
        let which = index + streams.len() - copiers.len();
        let bytes = within(&mut random, MEASURED_BYTES..MEASURED_BYTES + 100_000);
        let place = within(&mut random, 0..most - bytes);
        let part = place..place + bytes;
        // SAFETY: the memory has these bytes.
        unsafe { copiers[index].to_host(memory[which], place, &mut host[part.clone()]) }.unwrap();
        assert!(host[part.clone()] == content[which][part], "round {round}, stream {which}");
    }
    registered += copiers[0].rates().registered_bytes;
    assert!(registered > 0, "nothing was pinned");
    drop(copiers);
    assert_eq!(driver.left(), NOTHING);
}

#[test]
fn two_streams_copy_to_one_piece_of_memory_that_both_may_pin() {
    Api::ALL.into_iter().for_each(|api| passes("copies::scenario_two_streams", api));
}
