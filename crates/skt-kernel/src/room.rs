//! The work space of a thread.

use std::cell::RefCell;
use std::mem::MaybeUninit;

/// Both blocks begin on a page.
const PAGE: usize = 4096;

thread_local! {
    static ROOM: RefCell<Vec<MaybeUninit<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Calls `work` with room for `first` and for `second` numbers, which is not initialized and which
/// this thread keeps for its next call.
pub(crate) fn with_room<T, R>(
    first: usize,
    second: usize,
    work: impl FnOnce(*mut T, *mut T) -> R,
) -> R {
    let bytes = |count: usize| (count * size_of::<T>()).next_multiple_of(PAGE);
    let needed = bytes(first) + bytes(second) + PAGE;
    ROOM.with_borrow_mut(|room| {
        if room.capacity() < needed {
            // Freed first, so that there are never two of them.
            *room = Vec::new();
            *room = Vec::with_capacity(needed);
        }
        let start = room.as_mut_ptr();
        // SAFETY: with the bytes up to a page, there is room for both.
        let (first_at, second_at) = unsafe {
            let aligned = start.add(start.align_offset(PAGE));
            (aligned, aligned.add(bytes(first)))
        };
        work(first_at.cast(), second_at.cast())
    })
}
