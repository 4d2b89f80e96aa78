//! Copies with an emulated device, and mistakes in them, each of which has to be found.

use std::ops::Range;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rand_core::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use skt_comm::pages::system_page_bytes;

use crate::emulated::{Call, Device, Emulated, Fault, Host, Order};
use crate::engine::{Engine, Sizes};
use crate::pinned;
use crate::queue::Direction::{self, FromHost, ToHost};
use crate::trials::Way::{self, Direct, Registered, Staged};

const BUFFER: usize = 1000;

fn sizes() -> Sizes {
    let page = system_page_bytes();
    Sizes { buffer: BUFFER, trial_least: page, trial_most: 3 * page }
}

fn random(dice: &mut Xoshiro256PlusPlus, bytes: usize) -> Vec<u8> {
    let mut data = vec![0; bytes];
    dice.fill_bytes(&mut data);
    data
}

fn same(what: &str, found: &[u8], expected: &[u8]) -> Result<(), String> {
    match found.iter().zip(expected).position(|(a, b)| a != b) {
        None => Ok(()),
        Some(at) => Err(format!("{what}: byte {at} of {} is wrong", found.len())),
    }
}

struct Bench {
    device: Arc<Mutex<Device>>,
    engine: Option<Engine>,
    host: Rc<Host>,
    dice: Xoshiro256PlusPlus,
}

impl Bench {
    fn new(order: Order, haste: u64, seed: u64) -> Self {
        let bytes = 12 * system_page_bytes();
        let mut dice = Xoshiro256PlusPlus::seed_from_u64(seed);
        let device = Device::new(random(&mut dice, bytes), order, haste, seed);
        let queue = Box::new(Emulated(Arc::clone(&device)));
        let engine = Some(Engine::new(queue, sizes()));
        Self { device, engine, host: Rc::new(Host::new(bytes)), dice }
    }

    fn engine(&mut self) -> &mut Engine {
        self.engine.as_mut().expect("it is there up to `end`")
    }

    fn device(&self) -> MutexGuard<'_, Device> {
        self.device.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Copies after earlier work of somebody else, and uses both memories as soon as that has
    /// returned. Returns whether the copy has succeeded, or what is wrong.
    fn copy(
        &mut self,
        direction: Direction,
        offset: usize,
        part: &Range<usize>,
    ) -> Result<bool, String> {
        let bytes = self.host.range().len();
        let kernel = self.dice.next_u64() as u8 | 1;
        let before = random(&mut self.dice, bytes);
        self.host.write(&before);
        let mut on_device = self.device().memory.clone();
        on_device.iter_mut().for_each(|byte| *byte ^= kernel);
        {
            let mut device = self.device();
            device.lend();
            device.enqueue_kernel(kernel);
        }
        let transfer = self.host.transfer(direction, offset, part);
        // SAFETY: the device's memory is as long as the host's, which this thread alone accesses.
        let result = unsafe { self.engine().copy(transfer) };

        if part.is_empty() {
            // Nothing is waited for.
            self.device().finish();
        }
        let (after, next) = (self.host.read(), random(&mut self.dice, bytes));
        self.host.write(&next);
        self.device().take_back(self.host.range());
        let place = offset..offset + part.len();
        if result.is_err() {
            let mut device = self.device();
            device.finish();
            // The destination may have any contents, but nothing else has changed.
            same("host", &self.host.read(), &next)?;
            let outside = |all: &[u8]| [&all[..place.start], &all[place.end..]].concat();
            same("device", &outside(&device.memory), &outside(&on_device))?;
            return Ok(false);
        }
        let mut on_host = before;
        match direction {
            ToHost => on_host[part.clone()].copy_from_slice(&on_device[place]),
            FromHost => on_device[place].copy_from_slice(&on_host[part.clone()]),
        }
        same("host", &after, &on_host)?;
        same("device", &self.device().memory, &on_device)?;
        self.device().finish();
        same("host, later", &self.host.read(), &next)?;
        same("device, later", &self.device().memory, &on_device)?;
        Ok(true)
    }

    fn end(&mut self) -> Result<(), String> {
        self.engine = None;
        let mut device = self.device();
        device.finish();
        device.problems.first().cloned().map_or(Ok(()), Err)
    }
}

/// A copy of several staging buffers, and of pages that are registered in two parts.
#[derive(Clone)]
struct Case {
    direction: Direction,
    way: Way,
    order: Order,
    failing: Option<(Call, usize)>,
}

impl Case {
    /// Copies with a device that does only what is waited for, and with one that does all at once.
    /// Returns what is wrong.
    fn run(&self, fault: Option<&Fault>) -> Result<(), String> {
        self.run_at(0, fault.cloned())?;
        self.run_at(256, fault.cloned())
    }

    fn run_at(&self, haste: u64, fault: Option<Fault>) -> Result<(), String> {
        let mut bench = Bench::new(self.order, haste, 11);
        bench.engine().settle(self.way);
        let all = bench.host.range();
        // SAFETY: the memory outlives the engine.
        unsafe { bench.engine().set_pinnable(all) };
        bench.device().fault = fault;
        bench.device().failing = self.failing;
        let half = 2 * system_page_bytes();
        let is_copied = bench.copy(self.direction, 77, &(50..50 + half))?;
        if is_copied != self.failing.is_none() {
            return Err("a failure is not reported".to_owned());
        }
        // Ends in memory that the first copy has registered.
        bench.copy(self.direction, half - 1, &(40..40 + half + 4 * BUFFER + 1))?;
        bench.end()
    }
}

/// Each mistake: what it is, in which copies, and how it is made.
fn planted() -> Vec<(&'static str, Case, Fault)> {
    let in_flight = Some((Call::Wait, 0));
    let case = |direction, way, failing| {
        // Of an in-order queue some mistakes have no consequence.
        Case { direction, way, order: Order::OutOfOrder, failing }
    };
    let chunks = (2 * system_page_bytes()).div_ceil(BUFFER);
    let (first, second) = (Fault::SkipWaits(0..1), Fault::SkipWaits(1..2));
    let last = Fault::SkipWaits(chunks - 1..chunks);
    vec![
        ("direct: the copy is not waited for", case(ToHost, Direct, None), first.clone()),
        ("the first buffer is emptied too early", case(ToHost, Staged, None), first.clone()),
        ("the second buffer is emptied too early", case(ToHost, Staged, None), second.clone()),
        ("the last buffer is emptied too early", case(ToHost, Staged, None), last.clone()),
        ("the other buffer is waited for", case(ToHost, Staged, None), Fault::WaitForOther),
        ("an event is recorded too early", case(ToHost, Staged, None), Fault::RecordBefore),
        ("there is one buffer", case(ToHost, Staged, None), Fault::SameBuffer),
        ("a copy uses the other buffer", case(ToHost, Staged, None), Fault::OtherBuffer),
        ("a copy has another one's offset", case(ToHost, Staged, None), Fault::OffsetBefore),
        ("one part is waited for", case(ToHost, Registered, None), Fault::WaitForLast),
        ("earlier work is not waited for", case(ToHost, Direct, None), Fault::SkipEarlier),
        ("host given back in flight", case(ToHost, Direct, in_flight), Fault::SkipAfterFailure),
        ("direct: the copy is not waited for", case(FromHost, Direct, None), first.clone()),
        ("the first buffer is filled too early", case(FromHost, Staged, None), first),
        ("the second buffer is filled too early", case(FromHost, Staged, None), second),
        ("the last buffer is not waited for", case(FromHost, Staged, None), last),
        ("an event is recorded too early", case(FromHost, Staged, None), Fault::RecordBefore),
        ("there is one buffer", case(FromHost, Staged, None), Fault::SameBuffer),
        ("earlier work is not waited for", case(FromHost, Staged, None), Fault::SkipEarlier),
        ("host given back in flight", case(FromHost, Direct, in_flight), Fault::SkipAfterFailure),
    ]
}

#[test]
fn planted_races_are_found() {
    let planted = planted();
    let mut found = 0;
    for (name, case, fault) in &planted {
        assert_eq!(case.run(None), Ok(()), "without the fault: {name}");
        match case.run(Some(fault)) {
            Err(why) => {
                println!("{name}, {:?}: {why}", case.direction);
                found += 1;
            }
            Ok(()) => println!("NOT FOUND: {name}, {:?}", case.direction),
        }
    }
    println!("{found} of {} planted races found", planted.len());
    assert_eq!((found, planted.len()), (20, 20));
}

#[test]
fn copies_that_fail_leave_nothing_in_flight() {
    for order in [Order::InOrder, Order::OutOfOrder] {
        for direction in [ToHost, FromHost] {
            for way in Way::ALL {
                for call in [Call::Synchronize, Call::Enqueue, Call::Wait] {
                    let case = Case { direction, way, order, failing: Some((call, 0)) };
                    assert_eq!(case.run(None), Ok(()), "{order:?} {direction:?} {way:?} {call:?}");
                }
            }
            for nth in 1..8 {
                for call in [Call::Enqueue, Call::Wait] {
                    let failing = Some((call, nth));
                    let case = Case { direction, way: Staged, order, failing };
                    assert_eq!(case.run(None), Ok(()), "{order:?} {direction:?} {call:?} {nth}");
                }
            }
        }
    }
}

/// Whatever the device does, and whichever ways are tried and found fast.
#[test]
fn random_copies_are_right() {
    for seed in 0..300 {
        random_copies(seed).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
}

fn random_copies(seed: u64) -> Result<(), String> {
    let mut dice = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut below = move |limit: usize| dice.next_u64() as usize % limit;
    let order = [Order::InOrder, Order::OutOfOrder][below(2)];
    let haste = [0, 40, 128, 256][below(4)];
    let mut bench = Bench::new(order, haste, seed);
    if below(2) == 0 {
        let way = Way::ALL[below(3)];
        bench.engine().settle(way);
    }
    // Without pinned memory there are other ways.
    let failing = [Call::Allocate, Call::Register][below(2)];
    bench.device().failing = (below(4) == 0).then(|| (failing, below(3)));
    let all = bench.host.range();
    for _ in 0..12 {
        if below(4) == 0 {
            let start = all.start + below(all.len());
            let range = start..start + below(all.end - start);
            // SAFETY: the memory outlives the engine.
            unsafe { bench.engine().set_pinnable(range) };
        }
        let bytes = [below(all.len()), below(3 * BUFFER), below(10)][below(3)];
        let (offset, at) = (below(all.len() - bytes), below(all.len() - bytes));
        let direction = [ToHost, FromHost][below(2)];
        if !bench.copy(direction, offset, &(at..at + bytes))? {
            return Err("a copy has failed".to_owned());
        }
    }
    bench.end()
}

#[test]
fn all_ways_are_tried_and_useless_registrations_end() {
    let mut bench = Bench::new(Order::InOrder, 0, 5);
    let all = bench.host.range();
    // SAFETY: the memory outlives the engine.
    unsafe { bench.engine().set_pinnable(all.clone()) };
    for direction in [ToHost, FromHost] {
        // 9 trials of 2 to 3 pages.
        for _ in 0..4 {
            assert_eq!(bench.copy(direction, 0, &(0..all.len())), Ok(true));
        }
    }
    let rates = bench.engine().rates();
    println!("{rates:?}");
    assert!(rates.to_host.rates.iter().all(|rate| rate.rounds == 3), "{rates:?}");
    assert!(rates.registered_bytes > 0);
    let chosen = [rates.to_host.chosen, rates.from_host.chosen];
    assert_eq!(bench.device().has_registered(), chosen.contains(&Some(Registered)));
    // Other memory may be registered, and then none.
    // SAFETY: the memory outlives the engine.
    unsafe { bench.engine().set_pinnable(0..0) };
    assert!(!bench.device().has_registered() && !pinned::overlaps(&all));
    assert_eq!(bench.copy(ToHost, 0, &(0..all.len())), Ok(true));
    assert!(!bench.device().has_registered());
    assert_eq!(bench.end(), Ok(()));
}

#[test]
fn memory_that_another_copier_has_registered_is_copied_in_parts() {
    let mut benches = [7, 8].map(|seed| Bench::new(Order::InOrder, 0, seed));
    let page = system_page_bytes();
    let all = benches[0].host.range();
    benches[1].host = Rc::clone(&benches[0].host);
    for bench in &mut benches {
        bench.engine().settle(Registered);
        // SAFETY: the memory outlives both engines.
        unsafe { bench.engine().set_pinnable(all.clone()) };
    }
    for (bench, part) in [(0, 100..4 * page), (1, 2 * page - 5..7 * page), (0, 0..8 * page)] {
        for direction in [ToHost, FromHost] {
            assert_eq!(benches[bench].copy(direction, 1, &part), Ok(true), "{bench} {part:?}");
        }
    }
    assert!(benches.iter().all(|bench| bench.device().has_registered()));
    let [mut first, mut second] = benches;
    assert_eq!(second.end(), Ok(()));
    assert_eq!(first.copy(ToHost, 0, &(0..all.len())), Ok(true));
    assert_eq!(first.end(), Ok(()));
}

#[test]
fn a_registration_that_fails_is_no_failure_of_the_copy() {
    let mut bench = Bench::new(Order::InOrder, 0, 6);
    bench.engine().settle(Registered);
    let all = bench.host.range();
    // SAFETY: the memory outlives the engine.
    unsafe { bench.engine().set_pinnable(all) };
    let page = system_page_bytes();
    assert_eq!(bench.copy(ToHost, 3, &(page..3 * page)), Ok(true));
    assert!(bench.device().has_registered());
    bench.device().failing = Some((Call::Register, 0));
    assert_eq!(bench.copy(ToHost, 3, &(100..5 * page)), Ok(true));
    assert!(!bench.device().has_registered());
    let failure = bench.engine().rates().no_registering.expect("it has failed");
    assert_eq!(failure.to_string(), "register of emulated returns 700 (planted)");
    assert_eq!(bench.end(), Ok(()));
}
