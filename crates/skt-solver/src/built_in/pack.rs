//! Copies of blocks in the order in which the kernels read them.
//!
//! Lines (rows of A, columns of B) are packed `W` at a time into panels: at each depth, one element
//! of each line. Lines that are missing in the last panel are zeros.
//!
//! ```text
//! panel 0: (0,0) (1,0) .. (W-1,0)  (0,1) (1,1) .. (W-1,1)  ..      (line, depth)
//! panel 1: (W,0) ..
//! ```

use super::strided::Strided;

/// Depths that are copied at a time from lines that are contiguous.
const DEPTHS: usize = 8;

/// Packs the `lines` rows of `from`, which has `depth` columns, into panels of `W` at `to`.
/// Safety: `from` has these elements, and `to` has room for whole panels.
pub(crate) unsafe fn pack<T: Copy + Default, const W: usize>(
    from: Strided<T>,
    lines: usize,
    depth: usize,
    to: *mut T,
) {
    let whole = lines - lines % W;
    if from.down == 1 {
        // A column at a time, as its elements are neighbours in memory.
        for p in 0..depth {
            for line in (0..whole).step_by(W) {
                // SAFETY: whole panels are within both matrices, which do not overlap.
                unsafe {
                    let source = from.at(line, p).cast::<[T; W]>();
                    to.add(line * depth + p * W).cast::<[T; W]>().write(source.read_unaligned());
                }
            }
        }
    } else {
        for line in (0..whole).step_by(W) {
            // SAFETY: as above.
            unsafe { pack_lines::<T, W>(from.from(line, 0), depth, to.add(line * depth)) };
        }
    }
    if whole < lines {
        // SAFETY: there is room for a whole panel, and the lines that are read are there.
        unsafe {
            let to = to.add(whole * depth);
            for p in 0..depth {
                for w in 0..W {
                    let value =
                        if whole + w < lines { *from.at(whole + w, p) } else { T::default() };
                    to.add(p * W + w).write(value);
                }
            }
        }
    }
}

/// Packs one whole panel of lines that are contiguous, or nearly so.
/// Safety: as for [`pack`].
unsafe fn pack_lines<T: Copy + Default, const W: usize>(
    from: Strided<T>,
    depth: usize,
    to: *mut T,
) {
    let mut p = 0;
    while p + DEPTHS <= depth {
        for w in 0..W {
            for d in 0..DEPTHS {
                // SAFETY: the caller's promise.
                unsafe { to.add((p + d) * W + w).write(*from.at(w, p + d)) };
            }
        }
        p += DEPTHS;
    }
    for p in p..depth {
        for w in 0..W {
            // SAFETY: the caller's promise.
            unsafe { to.add(p * W + w).write(*from.at(w, p)) };
        }
    }
}
