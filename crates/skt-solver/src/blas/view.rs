//! Views of matrices in borrowed memory, row-major or column-major.

use std::marker::PhantomData;
use std::ops::Range;

use bytemuck::Pod;
use skt_comm::pages;

/// How many rows ahead [`MatRef::fetched_rows`] fetches: the next arrives while one is read.
const ROWS_AHEAD: usize = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    Row,
    Col,
}

impl Layout {
    fn flipped(self) -> Self {
        match self {
            Layout::Row => Layout::Col,
            Layout::Col => Layout::Row,
        }
    }
}

/// A read-only matrix of `rows x cols` elements, contiguous along one index, with `ld` elements
/// from one line to the next along the other.
#[derive(Clone, Copy)]
pub struct MatRef<'a, T = f64> {
    ptr: *const T,
    rows: usize,
    cols: usize,
    ld: usize,
    layout: Layout,
    memory: PhantomData<&'a [T]>,
}

/// As [`MatRef`], to write.
pub struct MatMut<'a, T = f64> {
    ptr: *mut T,
    rows: usize,
    cols: usize,
    ld: usize,
    layout: Layout,
    memory: PhantomData<&'a mut [T]>,
}

// SAFETY: a MatRef is a shared borrow of elements, a MatMut an exclusive one.
unsafe impl<T: Pod + Sync> Send for MatRef<'_, T> {}
// SAFETY: a MatRef is a shared borrow of elements.
unsafe impl<T: Pod + Sync> Sync for MatRef<'_, T> {}
// SAFETY: a MatMut is an exclusive borrow of elements.
unsafe impl<T: Pod + Send> Send for MatMut<'_, T> {}
// SAFETY: a shared MatMut only reads.
unsafe impl<T: Pod + Sync> Sync for MatMut<'_, T> {}

/// Checks that the lines fit into `len` elements. Returns the distance between lines: `ld`, or 0
/// where lines are empty, so that all of them begin within the memory, even if it is empty.
fn checked_ld(len: usize, lines: usize, width: usize, ld: usize) -> usize {
    assert!(width <= ld || lines <= 1, "leading dimension {ld} below the width {width}");
    if width == 0 {
        return 0;
    }
    let before_last = lines.saturating_sub(1).checked_mul(ld);
    let end = before_last.and_then(|elements| elements.checked_add(width));
    assert!(
        lines == 0 || end.is_some_and(|end| end <= len),
        "a view of {lines} lines of {width} elements, {ld} apart, over memory of {len}"
    );
    ld
}

macro_rules! shape {
    () => {
        pub fn rows(&self) -> usize {
            self.rows
        }

        pub(crate) fn cols(&self) -> usize {
            self.cols
        }

        /// Elements from one line to the next, at least the length of a line.
        pub(super) fn ld(&self) -> usize {
            let line = if self.is_col_major() { self.rows } else { self.cols };
            self.ld.max(line).max(1)
        }

        pub(super) fn is_col_major(&self) -> bool {
            self.layout == Layout::Col
        }

        fn offset(&self, i: usize, j: usize) -> usize {
            match self.layout {
                Layout::Row => i * self.ld + j,
                Layout::Col => i + j * self.ld,
            }
        }

        /// The offset of a block's first element; 0 for an empty one, whose corner may be outside.
        fn block_offset(&self, rows: &Range<usize>, cols: &Range<usize>) -> usize {
            assert!(rows.start <= rows.end && rows.end <= self.rows, "rows beyond the view");
            assert!(cols.start <= cols.end && cols.end <= self.cols, "columns beyond the view");
            if rows.is_empty() || cols.is_empty() { 0 } else { self.offset(rows.start, cols.start) }
        }

        fn check_line(&self, layout: Layout, index: usize, count: usize) {
            assert!(index < count, "line {index} of {count}");
            assert!(self.layout == layout, "lines in this direction are not contiguous");
        }
    };
}

impl<'a, T: Pod> MatRef<'a, T> {
    shape!();

    pub fn row_major(data: &'a [T], rows: usize, cols: usize, ld: usize) -> Self {
        let ld = checked_ld(data.len(), rows, cols, ld);
        Self { ptr: data.as_ptr(), rows, cols, ld, layout: Layout::Row, memory: PhantomData }
    }

    pub fn col_major(data: &'a [T], rows: usize, cols: usize, ld: usize) -> Self {
        let ld = checked_ld(data.len(), cols, rows, ld);
        Self { ptr: data.as_ptr(), rows, cols, ld, layout: Layout::Col, memory: PhantomData }
    }

    /// The transpose, in the same memory.
    pub fn t(self) -> Self {
        Self { rows: self.cols, cols: self.rows, layout: self.layout.flipped(), ..self }
    }

    pub fn block(self, rows: Range<usize>, cols: Range<usize>) -> Self {
        let offset = self.block_offset(&rows, &cols);
        // SAFETY: within the borrowed memory, or 0.
        let ptr = unsafe { self.ptr.add(offset) };
        Self { ptr, rows: rows.len(), cols: cols.len(), ..self }
    }

    pub fn at(self, i: usize, j: usize) -> T {
        assert!(i < self.rows && j < self.cols, "element ({i}, {j})");
        // SAFETY: an element of the view.
        unsafe { *self.ptr.add(self.offset(i, j)) }
    }

    pub fn row(self, i: usize) -> &'a [T] {
        self.check_line(Layout::Row, i, self.rows);
        // SAFETY: a row of the view is contiguous and borrowed for 'a.
        unsafe { std::slice::from_raw_parts(self.ptr.add(i * self.ld), self.cols) }
    }

    /// The rows of a row-major matrix, in order, each fetched into the caches before: the processor
    /// prefetches within a row, but not from a short row to one stored far after it.
    pub(crate) fn fetched_rows(self) -> impl Iterator<Item = &'a [T]> {
        (0..self.rows).map(move |i| {
            if i + ROWS_AHEAD < self.rows {
                pages::fetch(bytemuck::cast_slice(self.row(i + ROWS_AHEAD)));
            }
            self.row(i)
        })
    }

    pub fn col(self, j: usize) -> &'a [T] {
        self.check_line(Layout::Col, j, self.cols);
        // SAFETY: a column of the view is contiguous and borrowed for 'a.
        unsafe { std::slice::from_raw_parts(self.ptr.add(j * self.ld), self.rows) }
    }

    pub(super) fn as_ptr(&self) -> *const T {
        self.ptr
    }
}

impl<'a, T: Pod> MatMut<'a, T> {
    shape!();

    pub fn row_major(data: &'a mut [T], rows: usize, cols: usize, ld: usize) -> Self {
        let ld = checked_ld(data.len(), rows, cols, ld);
        Self { ptr: data.as_mut_ptr(), rows, cols, ld, layout: Layout::Row, memory: PhantomData }
    }

    /// A writable matrix whose rows are contiguous, from `ptr` on.
    ///
    /// # Safety
    /// `elements` elements exist at `ptr`, and outlive the matrix; other readers and writers use
    /// only elements of which no block is in use.
    pub unsafe fn row_major_at(
        ptr: *mut T,
        elements: usize,
        rows: usize,
        cols: usize,
        ld: usize,
    ) -> Self {
        let ld = checked_ld(elements, rows, cols, ld);
        Self { ptr, rows, cols, ld, layout: Layout::Row, memory: PhantomData }
    }

    pub fn col_major(data: &'a mut [T], rows: usize, cols: usize, ld: usize) -> Self {
        let ld = checked_ld(data.len(), cols, rows, ld);
        Self { ptr: data.as_mut_ptr(), rows, cols, ld, layout: Layout::Col, memory: PhantomData }
    }

    /// Borrows the matrix for a shorter time.
    pub(crate) fn rb(&mut self) -> MatMut<'_, T> {
        MatMut { memory: PhantomData, ..*self }
    }

    pub fn as_ref(&self) -> MatRef<'_, T> {
        MatMut { memory: PhantomData, ..*self }.into_ref()
    }

    pub(crate) fn into_ref(self) -> MatRef<'a, T> {
        let Self { ptr, rows, cols, ld, layout, .. } = self;
        MatRef { ptr, rows, cols, ld, layout, memory: PhantomData }
    }

    pub(super) fn t_mut(self) -> Self {
        Self { rows: self.cols, cols: self.rows, layout: self.layout.flipped(), ..self }
    }

    pub fn block(self, rows: Range<usize>, cols: Range<usize>) -> Self {
        let offset = self.block_offset(&rows, &cols);
        // SAFETY: within the borrowed memory, or 0.
        let ptr = unsafe { self.ptr.add(offset) };
        Self { ptr, rows: rows.len(), cols: cols.len(), ..self }
    }

    pub(crate) fn split_rows(self, i: usize) -> (Self, Self) {
        let (rows, cols) = (self.rows, self.cols);
        // SAFETY: the two blocks share no element.
        let again = unsafe { self.alias() };
        (self.block(0..i, 0..cols), again.block(i..rows, 0..cols))
    }

    pub(crate) fn split_cols(self, j: usize) -> (Self, Self) {
        let (rows, cols) = (self.rows, self.cols);
        // SAFETY: the two blocks share no element.
        let again = unsafe { self.alias() };
        (self.block(0..rows, 0..j), again.block(0..rows, j..cols))
    }

    pub fn share(self) -> SharedMat<'a, T> {
        SharedMat(self)
    }

    /// Safety: the two views are never used on the same element.
    unsafe fn alias(&self) -> Self {
        Self { memory: PhantomData, ..*self }
    }

    pub fn set(&mut self, i: usize, j: usize, value: T) {
        assert!(i < self.rows && j < self.cols, "element ({i}, {j})");
        // SAFETY: an element of the view.
        unsafe { *self.ptr.add(self.offset(i, j)) = value }
    }

    pub(crate) fn row_mut(&mut self, i: usize) -> &mut [T] {
        self.check_line(Layout::Row, i, self.rows);
        // SAFETY: a row of the view is contiguous and exclusively borrowed.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.add(i * self.ld), self.cols) }
    }

    pub(crate) fn two_rows_mut(&mut self, i: usize, k: usize) -> (&mut [T], &mut [T]) {
        self.check_line(Layout::Row, i, self.rows);
        self.check_line(Layout::Row, k, self.rows);
        assert_ne!(i, k, "two different rows");
        // SAFETY: different rows share no element.
        unsafe {
            (
                std::slice::from_raw_parts_mut(self.ptr.add(i * self.ld), self.cols),
                std::slice::from_raw_parts_mut(self.ptr.add(k * self.ld), self.cols),
            )
        }
    }

    pub(crate) fn col_mut(&mut self, j: usize) -> &mut [T] {
        self.check_line(Layout::Col, j, self.cols);
        // SAFETY: a column of the view is contiguous and exclusively borrowed.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.add(j * self.ld), self.rows) }
    }

    pub(super) fn as_mut_ptr(&mut self) -> *mut T {
        self.ptr
    }
}

/// A matrix that several threads write, each of them disjoint blocks.
pub struct SharedMat<'a, T = f64>(MatMut<'a, T>);

impl<'a, T: Pod> SharedMat<'a, T> {
    /// A row-major matrix without gaps.
    pub(crate) fn row_major(data: &'a mut [T], rows: usize, cols: usize) -> Self {
        MatMut::row_major(data, rows, cols, cols).share()
    }

    /// # Safety
    /// No two blocks in use at the same time may share an element.
    pub unsafe fn block(&self, rows: Range<usize>, cols: Range<usize>) -> MatMut<'a, T> {
        // SAFETY: the caller keeps blocks apart.
        unsafe { self.0.alias() }.block(rows, cols)
    }

    /// A block to read, on any number of threads.
    ///
    /// # Safety
    /// No block to write that is in use at the same time shares an element with it.
    pub unsafe fn read(&self, rows: Range<usize>, cols: Range<usize>) -> MatRef<'a, T> {
        // SAFETY: the caller keeps it apart from what is written.
        unsafe { self.0.alias() }.into_ref().block(rows, cols)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_lines_begin_within_the_memory() {
        let mut data = [0.0];
        let ptr = data.as_ptr();
        let rows = MatRef::row_major(&data, 3, 0, 8);
        assert!((0..3).all(|i| rows.row(i) == [0.0; 0] && rows.row(i).as_ptr() == ptr));
        assert_eq!(rows.fetched_rows().flatten().count(), 0);
        assert_eq!((rows.t().col(2).as_ptr(), rows.ld()), (ptr, 1));
        assert_eq!(rows.block(1..3, 0..0).row(1).as_ptr(), ptr);
        assert_eq!(MatRef::col_major(&data, 0, 3, 8).col(2).as_ptr(), ptr);
        let mut rows = MatMut::row_major(&mut data, 3, 0, 8);
        assert_eq!(rows.row_mut(2).as_ptr(), ptr);
        let (one, other) = rows.two_rows_mut(1, 2);
        assert_eq!((one.as_ptr(), other.as_ptr()), (ptr, ptr));
        assert_eq!(MatMut::col_major(&mut data, 0, 3, 8).col_mut(2).as_ptr(), ptr);
        // A block without columns of a matrix that has some.
        let data = [0.0; 9];
        let block = MatRef::row_major(&data, 3, 3, 3).block(2..3, 3..3);
        assert!(data.as_ptr_range().contains(&block.row(0).as_ptr()));
    }

    #[test]
    #[should_panic(expected = "a view of 3 lines")]
    fn a_product_that_wraps_is_too_many_doubles() {
        MatRef::row_major(&[0.0], 3, 1, 1 << (usize::BITS - 1));
    }

    #[test]
    #[should_panic(expected = "a view of 2 lines")]
    fn a_sum_that_wraps_is_too_many_doubles() {
        MatRef::col_major(&[0.0], 2, 2, usize::MAX);
    }
}
