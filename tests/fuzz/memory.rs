//! Counts the memory that a reader holds at a time, and stops the reader before it exhausts the
//! machine.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, RefCell};
use std::sync::{Arc, Mutex};

use super::Current;

/// The largest number of bytes at a time. The longest inputs have some 100 KiB.
const LIMIT_BYTES: isize = 256 << 20;

thread_local! {
    /// Bytes that this thread has allocated since the watch began; `None` without a watch.
    static HELD: Cell<Option<isize>> = const { Cell::new(None) };
    static READING: RefCell<Option<Arc<Mutex<Current>>>> = const { RefCell::new(None) };
}

/// A watch, which ends when it is dropped.
pub struct Watch;

/// Watches the memory of this thread while it reads `current`.
pub fn watch(current: &Arc<Mutex<Current>>) -> Watch {
    READING.set(Some(current.clone()));
    HELD.set(Some(0));
    Watch
}

impl Drop for Watch {
    fn drop(&mut self) {
        HELD.set(None);
    }
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count(bytes: isize) {
    // A thread that ends has no counter any more.
    let held = HELD.try_with(Cell::get).ok().flatten();
    let Some(held) = held.map(|held| held + bytes) else { return };
    HELD.set(Some(held));
    if bytes > 0 && held > LIMIT_BYTES {
        HELD.set(None);
        let current = READING.take().expect("set with the counter");
        let current = current.lock().expect("not held over a panic");
        current.abort(&format!("{held} bytes of memory, {bytes} of them at once"));
    }
}

// SAFETY: the system's allocator does all the work; counting does not touch the memory that it
// returns.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count(bytes as isize - layout.size() as isize);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(block, layout, bytes) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(block, layout) }
    }
}
