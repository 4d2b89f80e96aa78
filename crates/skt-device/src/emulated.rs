//! A device for tests that does as much harm as a real one may: a copy happens only when something
//! waits for it, or at a moment of chance before; until it has arrived, its destination has
//! garbage; its source is read when it happens. In a queue that is out of order it happens before
//! whatever it need not wait for.
//!
//! All of that takes place in calls of the queue, in one thread, so that a seed gives the same run
//! again, and a missing wait is found each time.

use std::ffi::c_void;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{ptr, slice};

use rand_core::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use skt_comm::pages::system_page_bytes;

use crate::error::DeviceError;
use crate::queue::{Direction, EVENTS, Queue, Transfer};

/// What a queue promises about two of its commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    InOrder,
    OutOfOrder,
}

/// Calls that can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    Synchronize,
    Enqueue,
    Wait,
    Allocate,
    Register,
}

/// A mistake in how the device is used, made between the engine and the device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// These waits, counted from 0, return at once.
    SkipWaits(Range<usize>),
    /// Each wait is for the event of the other buffer.
    WaitForOther,
    /// Events stand for what was enqueued before their copy.
    RecordBefore,
    /// Events stand for the last copy of several alone.
    WaitForLast,
    /// Work that others have enqueued is not waited for.
    SkipEarlier,
    /// After a failure nothing is waited for.
    SkipAfterFailure,
    /// The staging buffers are the same memory.
    SameBuffer,
    /// Copies use the buffer that is another one's.
    OtherBuffer,
    /// Copies have the offset of the copy before.
    OffsetBefore,
}

/// What all queues of the process have registered, which drivers check as one.
static PINNED: Mutex<Vec<Range<usize>>> = Mutex::new(Vec::new());

fn pinned() -> MutexGuard<'static, Vec<Range<usize>>> {
    PINNED.lock().unwrap_or_else(PoisonError::into_inner)
}

enum Work {
    Copy(Transfer),
    /// Changes all bytes of the device's memory by xor.
    Kernel(u8),
}

struct Command {
    id: usize,
    work: Work,
}

/// Memory of `allocate`, which stays readable to the end for copies that come too late.
struct Buffer {
    memory: Vec<u8>,
    uses: usize,
}

pub(crate) struct Device {
    pub memory: Vec<u8>,
    /// What was done that real devices do not forgive.
    pub problems: Vec<String>,
    pub fault: Option<Fault>,
    /// The call that fails, and how many of its kind succeed before.
    pub failing: Option<(Call, usize)>,
    order: Order,
    /// How many of 256 calls let a pending command happen.
    haste: u64,
    dice: Xoshiro256PlusPlus,
    pending: Vec<Command>,
    next_id: usize,
    events: [Vec<usize>; EVENTS],
    waits: usize,
    has_failed: bool,
    is_entered: bool,
    buffers: Vec<Buffer>,
    registered: Vec<Range<usize>>,
    /// Host memory that is its owner's alone.
    returned: Vec<Range<usize>>,
    offset_before: Option<usize>,
}

// SAFETY: the addresses are of memory that the test keeps; one thread uses them.
unsafe impl Send for Device {}

impl Device {
    pub(crate) fn new(memory: Vec<u8>, order: Order, haste: u64, seed: u64) -> Arc<Mutex<Self>> {
        Arc::new(Mutex::new(Self {
            memory,
            problems: Vec::new(),
            fault: None,
            failing: None,
            order,
            haste,
            dice: Xoshiro256PlusPlus::seed_from_u64(seed),
            pending: Vec::new(),
            next_id: 0,
            events: [Vec::new(), Vec::new()],
            waits: 0,
            has_failed: false,
            is_entered: false,
            buffers: Vec::new(),
            registered: Vec::new(),
            returned: Vec::new(),
            offset_before: None,
        }))
    }

    /// Enqueues work of somebody else.
    pub(crate) fn enqueue_kernel(&mut self, value: u8) {
        self.push(Work::Kernel(value));
    }

    /// The owner lends this host memory to a copy.
    pub(crate) fn lend(&mut self) {
        self.returned.clear();
        self.has_failed = false;
    }

    /// The owner has this host memory back.
    pub(crate) fn take_back(&mut self, host: Range<usize>) {
        self.returned.push(host);
    }

    pub(crate) fn finish(&mut self) {
        while !self.pending.is_empty() {
            self.happen(0);
        }
    }

    pub(crate) fn has_registered(&self) -> bool {
        !self.registered.is_empty()
    }

    fn problem(&mut self, what: impl Into<String>) {
        self.problems.push(what.into());
    }

    fn push(&mut self, work: Work) -> usize {
        let id = self.next_id;
        self.next_id += 1;
        self.pending.push(Command { id, work });
        id
    }

    /// Lets a pending command happen, by chance.
    fn hurry(&mut self) {
        let dice = self.dice.next_u64();
        if dice % 256 >= self.haste || self.pending.is_empty() {
            return;
        }
        let index = match self.order {
            Order::InOrder => 0,
            Order::OutOfOrder => (dice >> 8) as usize % self.pending.len(),
        };
        self.happen(index);
    }

    fn happen(&mut self, index: usize) {
        let transfer = match self.pending.remove(index).work {
            Work::Kernel(value) => {
                self.memory.iter_mut().for_each(|byte| *byte ^= value);
                return;
            }
            Work::Copy(transfer) => transfer,
        };
        let host = transfer.host_range();
        if self.returned.iter().any(|range| range.start < host.end && host.start < range.end) {
            self.problem("the device accesses host memory that its owner has back");
        }
        let device = &mut self.memory[transfer.offset..][..transfer.bytes];
        // SAFETY: the test keeps the host memory, and buffers are kept here.
        unsafe {
            match transfer.direction {
                Direction::ToHost => transfer.host.copy_from(device.as_ptr(), device.len()),
                Direction::FromHost => transfer.host.copy_to(device.as_mut_ptr(), device.len()),
            }
        }
    }

    /// Puts garbage where a copy will arrive.
    fn spoil(&mut self, transfer: Transfer) {
        let mut garbage = vec![0; transfer.bytes];
        self.dice.fill_bytes(&mut garbage);
        match transfer.direction {
            // SAFETY: as in `happen`.
            Direction::ToHost => unsafe {
                transfer.host.copy_from(garbage.as_ptr(), garbage.len());
            },
            Direction::FromHost => {
                self.memory[transfer.offset..][..transfer.bytes].copy_from_slice(&garbage);
            }
        }
    }

    fn fail(&mut self, call: Call) -> Result<(), DeviceError> {
        self.hurry();
        if !self.is_entered {
            self.problem(format!("{call:?} without the context"));
        }
        match &mut self.failing {
            Some((failing, 0)) if *failing == call => {
                self.failing = None;
                self.has_failed = true;
                Err(Self::error(call))
            }
            Some((failing, before)) if *failing == call => {
                *before -= 1;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn error(call: Call) -> DeviceError {
        let call = match call {
            Call::Synchronize => "synchronize",
            Call::Enqueue => "enqueue",
            Call::Wait => "wait",
            Call::Allocate => "allocate",
            Call::Register => "register",
        };
        DeviceError::Call { library: "emulated", call, code: 700, text: "planted".to_owned() }
    }

    /// What is enqueued in place of a transfer.
    fn distort(&mut self, transfer: Transfer) -> Transfer {
        match self.fault {
            Some(Fault::OtherBuffer) => {
                let buffers = &self.buffers;
                let own =
                    buffers.iter().position(|b| b.memory.as_ptr().addr() == transfer.host.addr());
                let other = own.map_or(0, |own| 1 - own);
                transfer.with_host(self.buffers[other].memory.as_mut_ptr())
            }
            Some(Fault::OffsetBefore) => {
                let offset = self.offset_before.replace(transfer.offset);
                Transfer { offset: offset.unwrap_or(transfer.offset), ..transfer }
            }
            _ => transfer,
        }
    }

    fn is_in_flight(&self, host: &Range<usize>) -> bool {
        self.pending.iter().any(|command| match &command.work {
            Work::Copy(transfer) => {
                let of_copy = transfer.host_range();
                of_copy.start < host.end && host.start < of_copy.end
            }
            Work::Kernel(_) => false,
        })
    }
}

pub(crate) struct Emulated(pub Arc<Mutex<Device>>);

impl Emulated {
    fn device(&self) -> MutexGuard<'_, Device> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue for Emulated {
    fn enter(&mut self) -> Result<(), DeviceError> {
        let mut device = self.device();
        if std::mem::replace(&mut device.is_entered, true) {
            device.problem("entered twice");
        }
        Ok(())
    }

    fn leave(&mut self) {
        let mut device = self.device();
        if !std::mem::replace(&mut device.is_entered, false) {
            device.problem("left twice");
        }
    }

    fn synchronize(&mut self) -> Result<(), DeviceError> {
        let mut device = self.device();
        let skipped = match device.fault {
            Some(Fault::SkipEarlier) => !device.has_failed,
            Some(Fault::SkipAfterFailure) => device.has_failed,
            _ => false,
        };
        device.fail(Call::Synchronize)?;
        if !skipped {
            device.finish();
        }
        Ok(())
    }

    unsafe fn enqueue(&mut self, transfer: Transfer, event: usize) -> Result<(), DeviceError> {
        let mut device = self.device();
        device.fail(Call::Enqueue)?;
        let host = transfer.host_range();
        let meets = |range: &&Range<usize>| range.start < host.end && host.start < range.end;
        let is_inside = |range: &Range<usize>| range.start <= host.start && host.end <= range.end;
        if pinned().iter().find(meets).is_some_and(|range| !is_inside(range)) {
            device.problem("a copy begins in registered memory and ends elsewhere");
        }
        let transfer = device.distort(transfer);
        device.spoil(transfer);
        let id = device.push(Work::Copy(transfer));
        match device.fault {
            Some(Fault::RecordBefore) => {}
            Some(Fault::WaitForLast) => device.events[event] = vec![id],
            _ => device.events[event].push(id),
        }
        device.hurry();
        Ok(())
    }

    fn wait(&mut self, event: usize) -> Result<(), DeviceError> {
        let mut device = self.device();
        device.fail(Call::Wait)?;
        let number = device.waits;
        device.waits += 1;
        let event = match &device.fault {
            Some(Fault::SkipWaits(waits)) if waits.contains(&number) => {
                device.events[event].clear();
                return Ok(());
            }
            Some(Fault::WaitForOther) => 1 - event,
            _ => event,
        };
        let awaited = std::mem::take(&mut device.events[event]);
        for id in awaited.into_iter().rev() {
            while let Some(index) = device.pending.iter().position(|command| command.id == id) {
                let next = if device.order == Order::InOrder { 0 } else { index };
                device.happen(next);
            }
        }
        Ok(())
    }

    fn allocate(&mut self, bytes: usize) -> Result<*mut u8, DeviceError> {
        let mut device = self.device();
        device.fail(Call::Allocate)?;
        if device.fault != Some(Fault::SameBuffer) || device.buffers.is_empty() {
            let mut memory = vec![0; bytes];
            device.dice.fill_bytes(&mut memory);
            device.buffers.push(Buffer { memory, uses: 0 });
        }
        let buffer = device.buffers.last_mut().expect("just made, or before");
        buffer.uses += 1;
        Ok(buffer.memory.as_mut_ptr())
    }

    unsafe fn free(&mut self, memory: *mut u8) {
        let mut device = self.device();
        let of = |buffer: &&mut Buffer| buffer.memory.as_ptr() == memory.cast_const();
        let Some(buffer) = device.buffers.iter_mut().find(of).filter(|buffer| buffer.uses > 0)
        else {
            return device.problem("freed memory that is not allocated");
        };
        buffer.uses -= 1;
        let host = memory.addr()..memory.addr() + buffer.memory.len();
        if device.is_in_flight(&host) {
            device.problem("freed a buffer while a copy uses it");
        }
    }

    fn can_register(&self) -> bool {
        true
    }

    unsafe fn register(&mut self, pages: Range<usize>) -> Result<(), DeviceError> {
        let mut device = self.device();
        device.fail(Call::Register)?;
        let page_bytes = system_page_bytes();
        if pages.is_empty()
            || ![pages.start, pages.end].iter().all(|at| at.is_multiple_of(page_bytes))
        {
            device.problem(format!("registered {pages:?}, which are no whole pages"));
        }
        if pinned().iter().any(|one| one.start < pages.end && pages.start < one.end) {
            device.problem("registered memory twice");
        }
        pinned().push(pages.clone());
        device.registered.push(pages);
        Ok(())
    }

    unsafe fn unregister(&mut self, start: usize) {
        let mut device = self.device();
        let Some(index) = device.registered.iter().position(|pages| pages.start == start) else {
            return device.problem("unregistered memory that is not registered");
        };
        let pages = device.registered.swap_remove(index);
        pinned().retain(|range| *range != pages);
        if device.is_in_flight(&pages) {
            device.problem("unregistered memory while a copy uses it");
        }
    }
}

impl Drop for Emulated {
    fn drop(&mut self) {
        let mut device = self.device();
        if device.has_registered() || device.buffers.iter().any(|buffer| buffer.uses > 0) {
            device.problem("memory is pinned still");
        }
    }
}

/// Host memory of which only the address is used: copies that come too late may access it any time.
pub(crate) struct Host {
    memory: *mut u8,
    bytes: usize,
}

impl Host {
    pub(crate) fn new(bytes: usize) -> Self {
        let memory = Box::into_raw(vec![0; bytes].into_boxed_slice());
        Self { memory: memory.cast(), bytes }
    }

    pub(crate) fn range(&self) -> Range<usize> {
        self.memory.addr()..self.memory.addr() + self.bytes
    }

    /// A copy of bytes of the device from `offset` on to or from `part` of this memory.
    pub(crate) fn transfer(
        &self,
        direction: Direction,
        offset: usize,
        part: &Range<usize>,
    ) -> Transfer {
        assert!(part.end <= self.bytes);
        let host = self.memory.wrapping_add(part.start);
        let memory: *mut c_void = ptr::null_mut();
        Transfer { direction, memory, offset, host, bytes: part.len() }
    }

    pub(crate) fn read(&self) -> Vec<u8> {
        // SAFETY: own memory, of which no reference is kept.
        unsafe { slice::from_raw_parts(self.memory, self.bytes) }.to_vec()
    }

    pub(crate) fn write(&self, data: &[u8]) {
        assert_eq!(data.len(), self.bytes);
        // SAFETY: own memory, of which no reference is kept.
        unsafe { self.memory.copy_from(data.as_ptr(), data.len()) };
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // SAFETY: from `into_raw` of `new`.
        drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(self.memory, self.bytes)) });
    }
}
