//! Memory of the host that is pinned in place, and what may be.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::error::DeviceError;
use crate::queue::{Queue, Transfer};

/// The ranges that copiers of this process have registered: the end of each by its start. They are
/// apart or adjacent. Several copiers may copy the same memory of the host, one after the other.
static REGISTERED: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

fn registered() -> MutexGuard<'static, BTreeMap<usize, usize>> {
    // Nothing panics while it is locked.
    REGISTERED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn first_after(at: usize) -> Option<Range<usize>> {
    let registered = registered();
    let around = registered.range(..=at).next_back().filter(|(_, end)| **end > at);
    around.or_else(|| registered.range(at..).next()).map(|(start, end)| *start..*end)
}

/// The first address after `at`, up to `end`, where registered memory begins or ends.
fn boundary(at: usize, end: usize) -> usize {
    let boundary =
        first_after(at).map_or(end, |range| if range.start > at { range.start } else { range.end });
    boundary.min(end)
}

pub(crate) fn overlaps(host: &Range<usize>) -> bool {
    first_after(host.start).is_some_and(|range| range.start < host.end)
}

/// Parts of a transfer whose host memory is in one registered range each, or is not registered:
/// drivers refuse a copy that begins in one and ends elsewhere.
pub(crate) fn parts(whole: Transfer) -> impl Iterator<Item = Transfer> {
    let host = whole.host_range();
    let mut at = host.start;
    std::iter::from_fn(move || {
        let begin = at;
        (begin < host.end).then(|| {
            at = boundary(begin, host.end);
            whole.part(begin - host.start, at - begin)
        })
    })
}

/// A copier's registered ranges: each is registered once, as checkpoints are in the same memory.
pub(crate) struct Pinned {
    page_bytes: usize,
    /// Whole pages that stay mapped. Nothing else may be registered.
    allowed: Range<usize>,
    starts: Vec<usize>,
    failure: Option<DeviceError>,
    /// All that has ever been registered, and the time for it.
    total_bytes: usize,
    total_seconds: f64,
}

impl Pinned {
    pub(crate) fn new(page_bytes: usize) -> Self {
        Self {
            page_bytes,
            allowed: 0..0,
            starts: Vec::new(),
            failure: None,
            total_bytes: 0,
            total_seconds: 0.0,
        }
    }

    /// Why nothing is registered any more.
    pub(crate) fn failure(&self) -> Option<&DeviceError> {
        self.failure.as_ref()
    }

    /// Bytes that have ever been registered, and the seconds that it took.
    pub(crate) fn total(&self) -> (usize, f64) {
        (self.total_bytes, self.total_seconds)
    }

    /// Safety: memory in `allowed` stays mapped until `release` has been called, which has been
    /// called for the range before.
    pub(crate) unsafe fn allow(&mut self, allowed: Range<usize>) {
        assert!(self.starts.is_empty(), "registered memory has been released");
        let start = allowed.start.next_multiple_of(self.page_bytes);
        let end = allowed.end / self.page_bytes * self.page_bytes;
        self.allowed = start..end.max(start);
        // Other memory, such as a larger share of what may be locked, may not fail.
        self.failure = None;
    }

    pub(crate) fn is_possible(&self, host: &Range<usize>) -> bool {
        self.failure.is_none() && !self.pages(host).is_empty()
    }

    /// The whole pages in this memory that may be registered: others may be another copier's, too.
    fn pages(&self, host: &Range<usize>) -> Range<usize> {
        let start = host.start.next_multiple_of(self.page_bytes);
        let end = host.end / self.page_bytes * self.page_bytes;
        start.max(self.allowed.start)..end.min(self.allowed.end)
    }

    /// Registers those pages of this memory that are not registered. After a failure nothing is
    /// registered, now and later.
    pub(crate) fn register(&mut self, queue: &mut dyn Queue, host: &Range<usize>) {
        let began = Instant::now();
        let pages = self.pages(host);
        let mut at = pages.start;
        while at < pages.end {
            let next = boundary(at, pages.end);
            if !overlaps(&(at..next)) {
                // SAFETY: these pages are in no registered range, and stay mapped, by `allow`,
                // until `release` has unregistered them.
                if let Err(failure) = unsafe { queue.register(at..next) } {
                    self.release(Some(queue));
                    self.failure = Some(failure);
                    return;
                }
                registered().insert(at, next);
                self.starts.push(at);
                self.total_bytes += next - at;
            }
            at = next;
        }
        self.total_seconds += began.elapsed().as_secs_f64();
    }

    /// Unregisters everything, if the queue is there still.
    pub(crate) fn release(&mut self, mut queue: Option<&mut dyn Queue>) {
        for start in self.starts.drain(..) {
            if let Some(queue) = &mut queue {
                // SAFETY: registered with this start; each copy is waited for before the next call
                // of this.
                unsafe { queue.unregister(start) };
            }
            registered().remove(&start);
        }
    }
}
