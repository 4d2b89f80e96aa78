//! Matrices at an address, with any distance between neighbours.

/// A matrix of elements at these distances; its user knows its shape.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Strided<T> {
    pub(crate) first: *mut T,
    /// From an element to the one below it.
    pub(crate) down: isize,
    /// From an element to the one right of it.
    pub(crate) right: isize,
}

impl<T: Copy> Strided<T> {
    /// A matrix that is stored by columns, `ld` elements apart, or its transpose.
    pub(crate) fn stored(first: *mut T, ld: usize, is_transposed: bool) -> Self {
        let matrix = Self { first, down: 1, right: ld as isize };
        if is_transposed { matrix.transposed() } else { matrix }
    }

    pub(crate) fn transposed(self) -> Self {
        Self { down: self.right, right: self.down, ..self }
    }

    /// Safety: the element is in the memory of the matrix, or one past it.
    #[inline(always)]
    pub(crate) unsafe fn at(self, i: usize, j: usize) -> *mut T {
        // SAFETY: the caller's promise.
        unsafe { self.first.offset(i as isize * self.down + j as isize * self.right) }
    }

    /// Safety: as for [`Self::at`].
    pub(crate) unsafe fn from(self, i: usize, j: usize) -> Self {
        // SAFETY: the caller's promise.
        Self { first: unsafe { self.at(i, j) }, ..self }
    }

    /// The matrix of `rows` rows from the last to the first.
    /// Safety: it has as many rows.
    pub(crate) unsafe fn upside_down(self, rows: usize) -> Self {
        // SAFETY: the caller's promise.
        let last = unsafe { self.at(rows.max(1) - 1, 0) };
        Self { first: last, down: -self.down, ..self }
    }

    /// The matrix of `columns` columns from the last to the first.
    /// Safety: it has as many columns.
    pub(crate) unsafe fn mirrored(self, columns: usize) -> Self {
        // SAFETY: the caller's promise.
        unsafe { self.transposed().upside_down(columns) }.transposed()
    }
}
