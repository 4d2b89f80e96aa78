//! The work space of a thread.

use std::cell::RefCell;
use std::mem::MaybeUninit;

use skt_host::vectors::Vectors;

use super::blocks::Blocks;
use super::kernel::Number;

/// Both blocks begin on a page.
const PAGE: usize = 4096;

thread_local! {
    static ROOM: RefCell<Vec<MaybeUninit<u8>>> = const { RefCell::new(Vec::new()) };
}

fn pages<T>(count: usize) -> usize {
    (count * size_of::<T>()).next_multiple_of(PAGE)
}

/// Bytes with room for `first` and for `second` numbers, wherever they begin.
fn bytes<T>(first: usize, second: usize) -> usize {
    pages::<T>(first) + pages::<T>(second) + PAGE
}

/// Bytes that a thread's first call allocates, enough for all others; if refused, the process ends.
pub(crate) fn work_space_bytes() -> usize {
    work_space_for::<f64>().max(work_space_for::<f32>())
}

/// Bytes for blocks of a product, and for a triangle with a strip of the matrix that is solved for.
fn work_space_for<T: Number>() -> usize {
    let kernel = T::kernel(Vectors::here());
    let tile = (kernel.rows, kernel.columns);
    let Blocks { rows, columns } = Blocks::here(size_of::<T>(), kernel.depth, tile);
    let order = kernel.depth.next_multiple_of(kernel.columns);
    let product = bytes::<T>(rows * kernel.depth, columns * kernel.depth);
    product.max(bytes::<T>(kernel.rows * order, order * order))
}

/// Calls `work` with room for `first` and for `second` numbers, which is not initialized and which
/// this thread keeps for its next call.
pub(crate) fn with_room<T, R>(
    first: usize,
    second: usize,
    work: impl FnOnce(*mut T, *mut T) -> R,
) -> R {
    let needed = bytes::<T>(first, second);
    ROOM.with_borrow_mut(|room| {
        if room.capacity() < needed {
            // Freed first, so that there are never two of them.
            *room = Vec::new();
            *room = Vec::with_capacity(needed.max(work_space_bytes()));
        }
        let start = room.as_mut_ptr();
        // SAFETY: with the bytes up to a page, there is room for both.
        let (first_at, second_at) = unsafe {
            let aligned = start.add(start.align_offset(PAGE));
            (aligned, aligned.add(pages::<T>(first)))
        };
        work(first_at.cast(), second_at.cast())
    })
}
