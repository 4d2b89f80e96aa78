//! Each call of a library fails once, or for ever from then on: a copy that returns no error has
//! the right bytes, and after an error nothing is in flight, held or in the way of later copies.

use std::ffi::{c_int, c_void};
use std::ops::Range;

use rand_core::SeedableRng as _;
use rand_xoshiro::Xoshiro256PlusPlus;
use skt_device::{Copier, DeviceError};

use super::build::passes;
use super::copies::{MEASURED_BYTES, NOTHING, copier, random_bytes, seed};
use super::driver::{Driver, Left};
use super::library::Api;

/// What the failed calls return: a launch that failed, and a number that no library knows.
const FAILED: c_int = 719;
const UNKNOWN: c_int = 12345;

/// Copies that use each way once in each direction.
const COPIES: usize = 3;
const BYTES: usize = COPIES * MEASURED_BYTES;

/// Calls without which copies are right: the first by falling back to another way, the others
/// since they come after the copy.
fn may_be_survived(call: &str) -> bool {
    ["Register", "HostAlloc", "HostMalloc", "Free", "Unregister", "Destroy", "PopCurrent"]
        .iter()
        .any(|part| call.contains(part))
        // The device is set again, too.
        || call == "hipSetDevice"
}

struct Memory {
    device: *mut c_void,
    host: Vec<u8>,
    content: Vec<u8>,
}

impl Memory {
    fn new(driver: &Driver) -> Self {
        let content = random_bytes(&mut Xoshiro256PlusPlus::seed_from_u64(seed()), BYTES);
        Self { device: driver.allocate_with(&content), host: vec![0; BYTES], content }
    }

    /// Expects what the device has, of which a failed copy may have changed a part.
    fn read(&mut self, driver: &Driver) {
        driver.read(self.device, &mut self.content);
    }

    /// Copies all to the host, then something else to the device. Without an error all of it
    /// has arrived.
    fn copy(&mut self, driver: &Driver, copier: &mut Copier) -> Result<(), DeviceError> {
        for (index, part) in self.host.chunks_mut(MEASURED_BYTES).enumerate() {
            // SAFETY: the memory has these bytes.
            unsafe { copier.to_host(self.device, index * MEASURED_BYTES, part)? };
        }
        assert!(self.host == self.content, "on the host");
        self.content.rotate_left(1);
        for (index, part) in self.content.chunks(MEASURED_BYTES).enumerate() {
            // SAFETY: the memory has these bytes.
            unsafe { copier.from_host(self.device, index * MEASURED_BYTES, part)? };
        }
        driver.read(self.device, &mut self.host);
        assert!(self.host == self.content, "on the device");
        Ok(())
    }

    fn allow_pinning(&self, copier: &mut Copier) {
        let range = self.host.as_ptr_range();
        // SAFETY: the caller keeps the memory until it has dropped the copier.
        unsafe { copier.set_pinnable(Some(range.start.addr()..range.end.addr())) };
    }
}

struct End {
    error: Option<DeviceError>,
    /// What was left after the error.
    in_flight: usize,
    left: Left,
    calls: u64,
    copying: Range<u64>,
    failed: Option<String>,
}

/// Makes a copier, copies in all ways, and drops it, while another context or device is current.
/// `after` comes after an error.
fn run(
    driver: &Driver,
    stream: *mut c_void,
    memory: &mut Memory,
    failing: (u64, c_int, bool),
    after: impl FnOnce(&mut Memory, &mut Copier),
) -> End {
    memory.read(driver);
    let before = driver.current();
    let (at, code, onwards) = failing;
    driver.fail(at, code, onwards);
    let mut in_flight = 0;
    let mut copying = 0..0;
    let mut error = None;
    match copier(driver, stream) {
        Err(failure) => error = Some(failure),
        Ok(mut copier) => {
            driver.switch();
            let elsewhere = driver.current();
            memory.allow_pinning(&mut copier);
            let first = driver.calls() + 1;
            let copied = memory.copy(driver, &mut copier);
            copying = first..driver.calls() + 1;
            if let Err(failure) = copied {
                error = Some(failure);
                in_flight = driver.left().in_flight;
                after(memory, &mut copier);
            }
            // SAFETY: nothing may be pinned any more.
            unsafe { copier.set_pinnable(None) };
            drop(copier);
            if !onwards && driver.failed().is_none_or(|call| !leaves(&call)) {
                assert_eq!(driver.current(), elsewhere, "the current context or device");
            }
        }
    }
    assert_eq!(driver.last_error(), 0, "a failure is left for the program");
    driver.restore(before);
    let left = driver.left();
    let (calls, failed) = driver.stop_failing();
    End { error, in_flight, left, calls, copying, failed }
}

/// Calls that restore what was current before.
fn leaves(call: &str) -> bool {
    call.contains("PopCurrent") || call == "hipSetDevice"
}

fn assert_names(error: &DeviceError, call: &str, code: c_int) {
    let text = error.to_string();
    assert!(text.contains(&format!("{call} of ")), "{call}: {text}");
    assert!(text.contains(&format!("{code} (")), "{call}: {text}");
    assert_eq!(error.code(), code, "{text}");
    let known = code == UNKNOWN
        || text.contains("LAUNCH_FAILED")
        || text.contains("unspecified launch failure");
    assert!(known, "{call}: {text}");
}

#[test]
#[ignore = "a scenario"]
fn scenario_each_call_fails_once() {
    let driver = Driver::load();
    let mut memory = Memory::new(&driver);
    let stream = driver.new_stream();
    let all = run(&driver, stream, &mut memory, (0, 0, false), |_, _| ());
    assert!(all.error.is_none() && all.failed.is_none() && all.left == NOTHING);
    println!("{} calls", all.calls);
    let (mut errors, mut survived) = (0, 0);
    for at in 1..=all.calls {
        let code = if at % 2 == 0 { FAILED } else { UNKNOWN };
        let end = run(&driver, stream, &mut memory, (at, code, false), |memory, copier| {
            // The copier works as if nothing had been.
            memory.read(&driver);
            memory.copy(&driver, copier).unwrap();
        });
        // A way that failed is not tried again, so that there may be fewer calls.
        let Some(call) = end.failed else { continue };
        assert_eq!(end.in_flight, 0, "{call}, call {at}");
        match end.error {
            Some(error) => {
                assert_names(&error, &call, code);
                assert_eq!(end.left, NOTHING, "{call}, call {at}");
                errors += 1;
            }
            None => {
                let is_copy = end.copying.contains(&at);
                assert!(!is_copy || may_be_survived(&call), "{call}, call {at}");
                survived += 1;
            }
        }
    }
    println!("{errors} errors, {survived} survived");
    assert!(errors > 20 && survived > 5);
    let after = run(&driver, stream, &mut memory, (0, 0, false), |_, _| ());
    assert!(after.error.is_none() && after.left == NOTHING);
}

#[test]
fn each_call_that_fails_is_an_error_or_survived() {
    Api::ALL.into_iter().for_each(|api| passes("failures::scenario_each_call_fails_once", api));
}

#[test]
#[ignore = "a scenario"]
fn scenario_device_is_lost() {
    let driver = Driver::load();
    let mut memory = Memory::new(&driver);
    let stream = driver.new_stream();
    let all = run(&driver, stream, &mut memory, (0, 0, false), |_, _| ());
    for at in 1..=all.calls {
        let end = run(&driver, stream, &mut memory, (at, FAILED, true), |memory, copier| {
            for _ in 0..2 {
                let error = memory.copy(&driver, copier).expect_err("a lost device");
                assert_eq!(error.code(), FAILED, "{error}");
            }
        });
        match (end.error, end.failed) {
            (Some(error), _) => assert_eq!(error.code(), FAILED, "{error}"),
            // It was lost when the last copy had ended.
            (None, Some(call)) => {
                let is_last = at + 1 == end.copying.end && may_be_survived(&call);
                assert!(is_last || at >= end.copying.end, "{call}, call {at}");
            }
            (None, None) => panic!("call {at} has not failed"),
        }
    }
    let after = run(&driver, stream, &mut memory, (0, 0, false), |_, _| ());
    assert!(after.error.is_none() && after.left == NOTHING);
}

#[test]
fn a_lost_device_is_an_error_each_time() {
    Api::ALL.into_iter().for_each(|api| passes("failures::scenario_device_is_lost", api));
}
