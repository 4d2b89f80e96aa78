//! Triangular solves.
//!
//! Each is one of a lower triangle from the left, `X := T^-1 X`, under other names of its elements:
//! from the right, of the transposed matrices; of an upper triangle, from the last row to the
//! first. Within a block, strips of a few columns of X are packed like panels of A; rows of T, like
//! panels of B:
//!
//! ```text
//! X(I, s) := T(I,I)^-1 ( X(I, s) - T(I, 0..I) X(0..I, s) )     I: rows of a panel of B
//! ```

use skt_host::vectors::Vectors;

use super::gemm::{Shape, gemm, scale};
use super::kernel::{Kernel, Number};
use super::room::with_room;
use super::strided::Strided;

/// A triangle of a square matrix, which may have other numbers on its other side.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Triangle<T> {
    pub(crate) matrix: Strided<T>,
    pub(crate) order: usize,
    pub(crate) is_upper: bool,
    /// The diagonal counts as 1, and is not read.
    pub(crate) is_unit: bool,
}

impl<T: Copy> Triangle<T> {
    pub(crate) fn transposed(self) -> Self {
        Self { matrix: self.matrix.transposed(), is_upper: !self.is_upper, ..self }
    }

    /// This triangle with all rows and columns from the last to the first.
    /// Safety: the matrix has this order.
    unsafe fn turned(self) -> Self {
        // SAFETY: the caller's promise.
        let matrix = unsafe { self.matrix.upside_down(self.order).mirrored(self.order) };
        Self { matrix, is_upper: !self.is_upper, ..self }
    }
}

/// `B := alpha T^-1 B`, with B as many rows as T and `n` columns. T is not read if alpha is 0.
/// Safety: the processor has these vectors; the matrices have these shapes; neighbours in a row or
/// in a column of B are neighbours in memory, and no other reference to B is in use.
pub(crate) unsafe fn solve<T: Number>(
    vectors: Vectors,
    t: Triangle<T>,
    alpha: T,
    b: Strided<T>,
    n: usize,
) {
    if t.order == 0 || n == 0 {
        return;
    }
    // SAFETY: the caller's promise; other names of the same elements.
    unsafe {
        let by_column = b.down == 1;
        let (columns, length, count) =
            if by_column { (b, t.order, n) } else { (b.transposed(), n, t.order) };
        scale(alpha, columns, length, count);
        if alpha == T::ZERO {
            return;
        }
        let (t, b) = if t.is_upper { (t.turned(), b.upside_down(t.order)) } else { (t, b) };
        let kernel = T::kernel(vectors);
        for i in (0..t.order).step_by(kernel.depth) {
            let order = kernel.depth.min(t.order - i);
            let (shape, left) = (Shape { m: order, n, k: i }, t.matrix.from(i, 0));
            gemm(vectors, shape, -T::ONE, left, b, T::ONE, b.from(i, 0));
            let block = Triangle { matrix: t.matrix.from(i, i), order, ..t };
            solve_block(kernel, block, b.from(i, 0), n);
        }
    }
}

/// `B := T^-1 B` with a lower triangle T, whose order is at most the kernel's depth.
/// Safety: as for [`solve`].
unsafe fn solve_block<T: Number>(kernel: &Kernel<T>, t: Triangle<T>, b: Strided<T>, n: usize) {
    let (order, width) = (t.order, kernel.columns);
    let whole = order.next_multiple_of(width);
    with_room(kernel.rows * whole, whole * whole, |strip: *mut T, panels: *mut T| {
        // SAFETY: there is room for whole panels, and each element that is read is there.
        unsafe {
            for i in (0..order).step_by(width) {
                pack_rows(kernel, t, i, panels.add(i * whole));
            }
            for j in (0..n).step_by(kernel.rows) {
                let columns = kernel.rows.min(n - j);
                let part = b.from(0, j).transposed();
                (kernel.pack_a)(part, columns, order, strip);
                // The kernel also writes the rows that the last panel has and T has not.
                let rest = strip.add(order * kernel.rows);
                rest.write_bytes(0, (whole - order) * kernel.rows);
                for i in (0..order).step_by(width) {
                    let (panel, rows) = (panels.add(i * whole), strip.add(i * kernel.rows));
                    (kernel.multiply)(i, strip, panel, -T::ONE, rows, kernel.rows);
                    let (t_here, order) = (panel.add(i * width), width.min(order - i));
                    (kernel.solve)(order, t.is_unit, t_here, rows);
                }
                unpack(strip, kernel.rows, part, columns, order);
            }
        }
    });
}

/// Packs the rows of T from row `i` on that make a panel of B, up to the diagonal.
/// Safety: the elements of the triangle are there, and `to` has room for a panel that ends at the
/// diagonal.
unsafe fn pack_rows<T: Number>(kernel: &Kernel<T>, t: Triangle<T>, i: usize, to: *mut T) {
    let width = kernel.columns;
    let rows = width.min(t.order - i);
    // SAFETY: the caller's promise. Nothing is read from the other side of the diagonal.
    unsafe {
        (kernel.pack_b)(t.matrix.from(i, 0), rows, i, to);
        let diagonal = to.add(i * width);
        for (p, r) in (0..width).flat_map(|p| (0..width).map(move |r| (p, r))) {
            let is_read = r < rows && (p < r || (p == r && !t.is_unit));
            let value = if is_read { *t.matrix.at(i + r, i + p) } else { T::ZERO };
            diagonal.add(p * width + r).write(value);
        }
    }
}

/// Copies a packed strip back to its `lines` lines, which are `depth` deep.
/// Safety: both have these elements, and no other reference to `to` is in use.
unsafe fn unpack<T: Number>(
    strip: *const T,
    width: usize,
    to: Strided<T>,
    lines: usize,
    depth: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        if to.down == 1 {
            for p in 0..depth {
                to.at(0, p).copy_from_nonoverlapping(strip.add(p * width), lines);
            }
        } else {
            for line in 0..lines {
                for p in 0..depth {
                    *to.at(line, p) = *strip.add(p * width + line);
                }
            }
        }
    }
}

/// `x := T^-1 x`. Neighbours in a row or in a column of T are neighbours in memory.
/// Safety: the processor has these vectors, and T this order, that of `x`.
pub(crate) unsafe fn solve_vector<T: Number>(vectors: Vectors, t: Triangle<T>, x: &mut [T]) {
    let kernel = T::kernel(vectors);
    let n = x.len();
    assert_eq!(t.order, n, "as many unknowns");
    for step in 0..n {
        let i = if t.is_upper { n - 1 - step } else { step };
        let others = if t.is_upper { i + 1..n } else { 0..i };
        let unsolved = if t.is_upper { 0..i } else { i + 1..n };
        // SAFETY: parts of a row or of a column of T, which are contiguous.
        unsafe {
            let diagonal = || *t.matrix.at(i, i);
            if t.matrix.right == 1 {
                let row = std::slice::from_raw_parts(t.matrix.at(i, others.start), others.len());
                x[i] = x[i] - (kernel.dot)(row, &x[others]);
            }
            if !t.is_unit {
                x[i] = x[i] / diagonal();
            }
            if t.matrix.right != 1 {
                let first = t.matrix.at(unsolved.start, i);
                let column = std::slice::from_raw_parts(first, unsolved.len());
                (kernel.axpy)(-x[i], column, &mut x[unsolved]);
            }
        }
    }
}
