//! Copies in whichever way is fastest.
//!
//! The first copies are cut in parts of some MB, which the ways take in turn, each a few times. The
//! host's pages are touched before a part is timed, and earlier work of the queue has ended, so
//! that the time is that of the copy. After that each copy is made in one way, the fastest of those
//! that are possible with its host memory.

use std::ops::Range;
use std::time::Instant;

use skt_comm::pages::system_page_bytes;

use crate::error::DeviceError;
use crate::pinned::{self, Pinned};
use crate::queue::{Direction, Queue, Session, Transfer};
use crate::staging::Staging;
use crate::trials::{ROUNDS, Rates, Trials, Way};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    /// A staging buffer: starting a copy costs little, and it stays in the caches.
    pub buffer: usize,
    /// The smallest part that is timed. The start of a smaller one would count too much.
    pub trial_least: usize,
    /// The largest timed part: of enough buffers that the time of filling the first is negligible.
    pub trial_most: usize,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { buffer: 2 << 20, trial_least: 8 << 20, trial_most: 16 << 20 }
    }
}

/// The staging buffers, which the first copy allocates: before it, memory may not be needed.
enum Buffers {
    NotYet,
    Ready(Staging),
    Failed(DeviceError),
}

pub(crate) struct Engine {
    queue: Box<dyn Queue>,
    sizes: Sizes,
    buffers: Buffers,
    pinned: Pinned,
    trials: [Trials; 2],
}

impl Engine {
    pub(crate) fn new(queue: Box<dyn Queue>, sizes: Sizes) -> Self {
        let pinned = Pinned::new(system_page_bytes());
        let trials = [Trials::default(), Trials::default()];
        Self { queue, sizes, buffers: Buffers::NotYet, pinned, trials }
    }

    #[cfg(test)]
    pub(crate) fn settle(&mut self, fastest: Way) {
        self.trials = [Trials::settled(fastest), Trials::settled(fastest)];
    }

    /// Copies; when it returns, all has arrived or, with an error, no copy is in flight any more.
    /// Safety: the memory of the device has these bytes. The host's memory is valid, and no one
    /// else accesses it, except that others may read what is only read.
    pub(crate) unsafe fn copy(&mut self, whole: Transfer) -> Result<(), DeviceError> {
        if whole.bytes == 0 {
            return Ok(());
        }
        let mut session = Session::begin(&mut *self.queue)?;
        if matches!(self.buffers, Buffers::NotYet) {
            self.buffers = match Staging::new(session.queue(), self.sizes.buffer) {
                Ok(staging) => Buffers::Ready(staging),
                Err(failure) => Buffers::Failed(failure),
            };
        }
        let (buffers, pinned, trials) = (&mut self.buffers, &mut self.pinned, &mut self.trials);
        let mut copying = Copying { session, sizes: self.sizes, buffers, pinned, trials };
        let mut done = 0;
        while done < whole.bytes {
            // SAFETY: a part of what the caller promises.
            done += unsafe { copying.copy_next(whole.part(done, whole.bytes - done))? };
        }
        copying.release_useless();
        Ok(())
    }

    /// Replaces the host memory that may be registered, and unregisters what is.
    /// Safety: the memory stays mapped until this is called again, or the engine is dropped.
    pub(crate) unsafe fn set_pinnable(&mut self, range: Range<usize>) {
        self.release_pinned();
        if self.queue.can_register() {
            // SAFETY: promised by the caller, and nothing of the range before is registered.
            unsafe { self.pinned.allow(range) };
        }
    }

    fn release_pinned(&mut self) {
        // A context that cannot be made current is destroyed, and what it had registered with it.
        let is_entered = self.queue.enter().is_ok();
        self.pinned.release(is_entered.then_some(&mut *self.queue));
        if is_entered {
            self.queue.leave();
        }
    }

    pub(crate) fn rates(&self) -> Rates {
        let (registered_bytes, registered_seconds) = self.pinned.total();
        let no_staging = match &self.buffers {
            Buffers::Failed(failure) => Some(failure.clone()),
            Buffers::NotYet | Buffers::Ready(_) => None,
        };
        Rates {
            to_host: self.trials[Direction::ToHost as usize].measured(),
            from_host: self.trials[Direction::FromHost as usize].measured(),
            registered_bytes,
            registered_seconds,
            no_staging,
            no_registering: self.pinned.failure().cloned(),
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.release_pinned();
        if self.queue.enter().is_err() {
            return;
        }
        if let Buffers::Ready(staging) = std::mem::replace(&mut self.buffers, Buffers::NotYet) {
            // SAFETY: allocated by this queue in `copy`.
            unsafe { staging.free(&mut *self.queue) };
        }
        self.queue.leave();
    }
}

struct Copying<'e> {
    session: Session<'e>,
    sizes: Sizes,
    buffers: &'e mut Buffers,
    pinned: &'e mut Pinned,
    trials: &'e mut [Trials; 2],
}

impl Copying<'_> {
    /// Copies the next part of `rest`, or all of it, and returns how many bytes that were.
    /// Safety: as of [`Engine::copy`].
    unsafe fn copy_next(&mut self, rest: Transfer) -> Result<usize, DeviceError> {
        let trials = &self.trials[rest.direction as usize];
        if let Some((way, part)) = self.trial(rest) {
            // SAFETY: a part of what the caller promises.
            unsafe { self.time(way, part)? };
            return Ok(part.bytes);
        }
        let way = trials.best(self.possible(&rest.host_range())).unwrap_or(Way::Direct);
        // SAFETY: promised by the caller.
        unsafe { self.copy(way, rest)? };
        Ok(rest.bytes)
    }

    fn possible(&self, host: &Range<usize>) -> impl Iterator<Item = Way> {
        let can_stage = matches!(self.buffers, Buffers::Ready(_));
        let can_register = self.pinned.is_possible(host);
        Way::ALL.into_iter().filter(move |way| match way {
            Way::Direct => true,
            Way::Staged => can_stage,
            Way::Registered => can_register,
        })
    }

    /// The way that is to be timed next, if any is, and the part of `rest` for it.
    fn trial(&self, rest: Transfer) -> Option<(Way, Transfer)> {
        if rest.bytes < self.sizes.trial_least {
            return None;
        }
        let host = rest.host_range();
        // Parts meet at the boundary of a page, so that no page is registered by two of them.
        let page_bytes = system_page_bytes();
        let end = (host.start + self.sizes.trial_most) / page_bytes * page_bytes;
        let part = rest.part(0, rest.bytes.min(end - host.start));
        let host = part.host_range();
        // For the driver, a direct copy of registered memory is no direct one.
        let is_registered = pinned::overlaps(&host);
        let ways = self.possible(&host).filter(|way| *way != Way::Direct || !is_registered);
        let way = self.trials[rest.direction as usize].next(ways)?;
        Some((way, part))
    }

    /// Copies in this way, and counts how long that takes.
    /// Safety: as of [`Engine::copy`].
    unsafe fn time(&mut self, way: Way, part: Transfer) -> Result<(), DeviceError> {
        // SAFETY: promised by the caller.
        unsafe { touch(part) };
        let (_, registered_before) = self.pinned.total();
        let began = Instant::now();
        // SAFETY: promised by the caller.
        unsafe { self.copy(way, part)? };
        let mut seconds = began.elapsed().as_secs_f64();
        if part.direction == Direction::ToHost {
            // Later checkpoints find the memory registered.
            seconds -= self.pinned.total().1 - registered_before;
        }
        if way != Way::Registered || self.pinned.failure().is_none() {
            self.trials[part.direction as usize].count(way, part.bytes, seconds);
        }
        Ok(())
    }

    /// Copies in this way, or directly if it is not possible.
    /// Safety: as of [`Engine::copy`].
    unsafe fn copy(&mut self, way: Way, part: Transfer) -> Result<(), DeviceError> {
        if let (Way::Staged, Buffers::Ready(staging)) = (way, &mut *self.buffers) {
            // SAFETY: promised by the caller.
            return unsafe { staging.copy(&mut self.session, part) };
        }
        if way == Way::Registered {
            self.pinned.register(self.session.queue(), &part.host_range());
        }
        for piece in pinned::parts(part) {
            // SAFETY: promised by the caller, until the wait below.
            unsafe { self.session.enqueue(piece, 0)? };
        }
        self.session.wait(0)?;
        self.session.finished();
        Ok(())
    }

    /// Unregisters memory after trials that have chosen another way.
    fn release_useless(&mut self) {
        let is_of_use = |trials: &Trials| {
            let rounds = trials.rounds(Way::Registered);
            let best = trials.best(Way::ALL.into_iter());
            rounds > 0 && (rounds < ROUNDS || best == Some(Way::Registered))
        };
        if !self.trials.iter().any(is_of_use) {
            self.pinned.release(Some(self.session.queue()));
        }
    }
}

/// Touches each page, so that none has its first access while a copy is timed.
/// Safety: the host's memory is valid, and no one else accesses it, except that others may read
/// what is only read.
unsafe fn touch(part: Transfer) {
    for at in (0..part.bytes).step_by(system_page_bytes()) {
        let byte = part.host.wrapping_add(at);
        // SAFETY: within the memory, by the caller.
        unsafe {
            let value = byte.read_volatile();
            if part.direction == Direction::ToHost {
                byte.write_volatile(value);
            }
        }
    }
}
