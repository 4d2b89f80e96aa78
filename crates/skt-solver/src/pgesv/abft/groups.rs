//! Groups of columns: the Q consecutive block columns that share a checksum.
//!
//! ```text
//! group g      block columns g Q .. (g + 1) Q, one of each process column
//! C_s[r, l]  = sum over q of  w_sq mu(r, c) S_q[r, l],     c the global column of (q, l)
//! mu(r, c)   = 0 where c is a column of a finished panel and r > c, else 1
//! ```
//!
//! Row exchange, solve for U and product are linear maps of whole columns, and turn a checksum of
//! columns into the checksum of the resulting columns. A panel turns its own columns into U on and
//! above the diagonal and 0 below. The storage below the diagonal holds other data, which nothing
//! reads: what is *dead* counts as 0.

use std::ops::Range;

use super::super::Params;
use super::super::local::Local;
use crate::grid::Cyclic;

/// Local columns on which a rank applies a panel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StepColumns {
    /// The columns of the next panel, if it is in the look-ahead and this rank owns it.
    pub next: Range<usize>,
    pub rest: Range<usize>,
}

impl StepColumns {
    pub(crate) fn new(local: &Local, k: usize) -> Self {
        let (Params { depth, .. }, grid) = (local.params, local.grid);
        if grid.is_checksum() {
            return Self { next: 0..0, rest: local.columns_right_of(k) };
        }
        let rest = local.columns_right_of(k + depth);
        Self { next: local.columns_of(k + 1..k + 1 + depth), rest }
    }

    /// All columns that the step writes to; they adjoin.
    pub(crate) fn all(&self) -> Range<usize> {
        let start = if self.next.is_empty() { self.rest.start } else { self.next.start };
        start..self.rest.end
    }
}

/// Whether a group of Q = `q` panels ends before panel `end`.
pub(super) fn is_group_end(end: usize, q: usize) -> bool {
    end > 0 && end.is_multiple_of(q)
}

/// The first panel of the last group, of Q = `q` panels, before panel `cut`. The checksums of that
/// group are as the elimination has made them; those of earlier groups are recomputed sums.
pub(super) fn first_of_last_group(cut: usize, q: usize) -> usize {
    cut.saturating_sub(1) / q * q
}

/// A checksum has as many columns as the first process column, which has the most.
pub(super) fn columns_of(local: &Local, col: usize) -> usize {
    let Local { params, cols, grid, .. } = local;
    cols.count_before(params.n + 1, if col < grid.q { col } else { 0 })
}

pub(super) fn columns_of_group(local: &Local, group: usize, col: usize) -> Range<usize> {
    let nb = local.params.nb;
    group * nb..((group + 1) * nb).min(columns_of(local, col))
}

/// Local rows of U of the group that ends before panel `end`, and local columns of its checksums.
pub(super) fn parts_of_group(local: &Local, end: usize) -> (Range<usize>, Range<usize>) {
    let Local { grid, rows, params, .. } = *local;
    let above = rows.count_before(params.columns_before(end), grid.myrow);
    (0..above, columns_of_group(local, end / grid.q - 1, grid.q))
}

/// How many of the local columns of process column `q`, from the first on, are dead in global row
/// `row` at a cut where the columns before `finished` are finished.
pub(super) fn dead_columns(cols: Cyclic, q: usize, row: usize, finished: usize) -> usize {
    cols.count_before(row.min(finished), q)
}

/// How many of the local columns of checksums, from the first on, are dead in global row `row` at a
/// cut where the columns before `finished` are finished. Once its group is finished, such a column
/// is dead in the rows where all columns that it sums are dead.
pub(super) fn dead_checksums(cols: Cyclic, row: usize, finished: usize) -> usize {
    let group = cols.nb * cols.procs;
    cols.count_before(row.min(finished / group * group), cols.procs - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn below_the_diagonal_finished_columns_are_dead() {
        let cols = Cyclic { nb: 3, procs: 2 };
        for (finished, row, q) in
            [0, 3, 7, 12].iter().flat_map(|f| (0..12).flat_map(move |r| [(f, r, 0), (f, r, 1)]))
        {
            let dead = dead_columns(cols, q, row, *finished);
            for local in 0..6 {
                let column = cols.global(local, q);
                assert_eq!(local < dead, column < *finished && row > column, "({row}, {column})");
            }
        }
    }

    #[test]
    fn checksums_are_dead_where_all_columns_of_their_group_are() {
        let cols = Cyclic { nb: 3, procs: 2 };
        for (finished, row) in [0, 3, 6, 7, 12].iter().flat_map(|f| (0..14).map(move |r| (f, r))) {
            let dead = dead_checksums(cols, row, *finished);
            for local in 0..6 {
                let of_group = [0, 1].map(|q| cols.global(local, q));
                let is_finished = (of_group[1] / 6 + 1) * 6 <= *finished;
                let all_dead = is_finished && of_group.iter().all(|&column| row > column);
                assert_eq!(local < dead, all_dead, "({row}, {of_group:?}) at {finished}");
            }
        }
    }
}
