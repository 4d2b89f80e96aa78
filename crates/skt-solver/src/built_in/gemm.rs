//! `C := alpha A B + beta C`, in blocks that fit into the caches (Goto and van de Geijn, Anatomy of
//! high-performance matrix multiplication, 2008).
//!
//! ```text
//! for columns jc of B, C              B(pc, jc) packed: third cache
//!   for depths pc                     A(ic, pc) packed: second cache
//!     for rows ic of A, C             a panel of B: first cache
//!       for panels of B, for panels of A: a tile of C in registers
//! ```

use skt_host::vectors::Vectors;

use super::blocks::{Blocks, equal_parts};
use super::kernel::{Kernel, Number};
use super::room::with_room;
use super::strided::Strided;

/// The shape of a product: C is `m x n`, A `m x k`, B `k x n`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
}

const TILE: usize = 48 * 8;

/// `C := alpha A B + beta C`. A and B are not read if alpha is 0, and C not if beta is 0.
/// Safety: the processor has these vectors; the matrices have this shape; neighbours in a row or in
/// a column of C are neighbours in memory, and no other reference to C is in use.
pub(crate) unsafe fn gemm<T: Number>(
    vectors: Vectors,
    shape: Shape,
    alpha: T,
    a: Strided<T>,
    b: Strided<T>,
    beta: T,
    c: Strided<T>,
) {
    let Shape { m, n, k } = shape;
    if m == 0 || n == 0 {
        return;
    }
    // SAFETY: other names of the same elements.
    unsafe {
        // C' := alpha B' A' + beta C'
        if c.down.abs() != 1 {
            let shape = Shape { m: n, n: m, k };
            let (a, b) = (b.transposed(), a.transposed());
            return gemm(vectors, shape, alpha, a, b, beta, c.transposed());
        }
        if c.down < 0 {
            let (a, c) = (a.upside_down(m), c.upside_down(m));
            return gemm(vectors, shape, alpha, a, b, beta, c);
        }
        if c.right < 0 {
            let (b, c) = (b.mirrored(n), c.mirrored(n));
            return gemm(vectors, shape, alpha, a, b, beta, c);
        }
        scale(beta, c, m, n);
        if k > 0 && alpha != T::ZERO {
            add_product(T::kernel(vectors), shape, (alpha, a, b), c);
        }
    }
}

/// `C := beta C`, with contiguous columns.
/// Safety: C has this shape, and no other reference to it is in use.
pub(crate) unsafe fn scale<T: Number>(beta: T, c: Strided<T>, m: usize, n: usize) {
    if beta == T::ONE {
        return;
    }
    for j in 0..n {
        // SAFETY: a column of C.
        let column = unsafe { std::slice::from_raw_parts_mut(c.at(0, j), m) };
        if beta == T::ZERO {
            column.fill(T::ZERO);
        } else {
            column.iter_mut().for_each(|x| *x = beta * *x);
        }
    }
}

/// `C := C + alpha A B`, with contiguous columns of C.
/// Safety: as for [`gemm`].
unsafe fn add_product<T: Number>(
    kernel: &Kernel<T>,
    Shape { m, n, k }: Shape,
    (alpha, a, b): (T, Strided<T>, Strided<T>),
    c: Strided<T>,
) {
    // By k alone, as bits depend on it.
    let depth = equal_parts(k, kernel.depth, 1);
    let tile = (kernel.rows, kernel.columns);
    let blocks = Blocks::here(size_of::<T>(), kernel.depth, tile);
    let rows = equal_parts(m, blocks.rows, kernel.rows);
    let columns = equal_parts(n, blocks.columns, kernel.columns);
    let room = (blocks.rows * kernel.depth, blocks.columns * kernel.depth);
    with_room(room.0, room.1, |packed_a: *mut T, packed_b: *mut T| {
        for jc in (0..n).step_by(columns) {
            for pc in (0..k).step_by(depth) {
                let (n, k) = (columns.min(n - jc), depth.min(k - pc));
                // SAFETY: a block of B, whose columns are lines; it has room.
                unsafe { (kernel.pack_b)(b.from(pc, jc).transposed(), n, k, packed_b) };
                for ic in (0..m).step_by(rows) {
                    let m = rows.min(m - ic);
                    // SAFETY: blocks of A and C; that of A has room.
                    unsafe {
                        (kernel.pack_a)(a.from(ic, pc), m, k, packed_a);
                        let c = c.from(ic, jc);
                        add_packed(kernel, Shape { m, n, k }, (alpha, packed_a, packed_b), c);
                    }
                }
            }
        }
    });
}

/// `C := C + alpha A B` with packed A and B, by tiles.
/// Safety: as for [`gemm`].
unsafe fn add_packed<T: Number>(
    kernel: &Kernel<T>,
    Shape { m, n, k }: Shape,
    (alpha, a, b): (T, *const T, *const T),
    c: Strided<T>,
) {
    let ldc = c.right as usize;
    for j in (0..n).step_by(kernel.columns) {
        for i in (0..m).step_by(kernel.rows) {
            let (rows, columns) = (kernel.rows.min(m - i), kernel.columns.min(n - j));
            // SAFETY: panels of A and B, and a tile of C.
            unsafe {
                let (a, b, c) = (a.add(i * k), b.add(j * k), c.from(i, j));
                if (rows, columns) == (kernel.rows, kernel.columns) {
                    (kernel.multiply)(k, a, b, alpha, c.first, ldc);
                } else {
                    add_part(kernel, (rows, columns, k), (alpha, a, b), c);
                }
            }
        }
    }
}

/// `C := C + alpha A B` for the first rows and columns of a tile: by a copy of them, so that they
/// are rounded as those of a whole one.
/// Safety: as for [`gemm`].
unsafe fn add_part<T: Number>(
    kernel: &Kernel<T>,
    (rows, columns, k): (usize, usize, usize),
    (alpha, a, b): (T, *const T, *const T),
    c: Strided<T>,
) {
    let mut tile = [T::ZERO; TILE];
    assert!(kernel.rows * kernel.columns <= TILE, "the largest tile");
    // SAFETY: these rows and columns are in C, and in the tile.
    unsafe {
        for j in 0..columns {
            c.at(0, j).copy_to_nonoverlapping(tile.as_mut_ptr().add(j * kernel.rows), rows);
        }
        (kernel.multiply)(k, a, b, alpha, tile.as_mut_ptr(), kernel.rows);
        for j in 0..columns {
            c.at(0, j).copy_from_nonoverlapping(tile.as_ptr().add(j * kernel.rows), rows);
        }
    }
}
