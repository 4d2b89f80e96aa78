//! Factorization of one panel: `jb` columns below the diagonal, shared by the
//! `P` ranks of one process column (HPL_pdfact).
//!
//! The panel W is stored column by column. Its first `jb` rows start empty and are the same on all
//! ranks: row `j` there is the j-th pivot row, so that they end as the unit lower triangle L1 and
//! the upper triangle U1. The rank's own rows follow, those of the diagonal block first. When j
//! pivots are done, each of the first j rows of the block has moved to where a pivot row came from,
//! or has become a pivot row. What is stored in its old place is *dead*.
//!
//! ```text
//!            jb
//!        +--------+
//!   jb   | L1\U1  |            the same on all ranks
//!        +--------+
//!        |  dead  |            the rank's own rows of the diagonal block, in the end
//!        +--------+
//!        |   L2   |            the active rows: its rows below pivot j
//!        +--------+
//! ```
//!
//! `recursive` cuts the panel into NDIV parts until NBMIN columns are left,
//! which `unblocked` factors one by one. It also finds each rank's largest element (in
//! `blas::passes`). [`pivot`] chooses among those of the ranks, and exchanges the rows.

pub mod pivot;
mod recursive;
mod unblocked;

use skt_host::phases::PanelParts;

use crate::blas::MatMut;
use crate::grid::Cyclic;
use crate::team::Team;
use skt_comm::{Comm, CommError};
use skt_host::choice::Fact;

#[derive(Debug, Clone, Copy)]
pub struct Variant {
    /// How the columns at the end of the recursion are factored.
    pub pfact: Fact,
    /// How the parts of the recursion are updated.
    pub rfact: Fact,
    /// The recursion ends at this many columns.
    pub nbmin: usize,
    /// Parts a level of the recursion makes.
    pub ndiv: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub enum PfactError {
    /// No usable pivot: zero, infinite, or not a number.
    Pivot {
        /// Column of the panel, from 0.
        column: usize,
        value: f64,
    },
    Comm(CommError),
}

impl From<CommError> for PfactError {
    fn from(error: CommError) -> Self {
        Self::Comm(error)
    }
}

#[derive(Debug, Clone, Copy)]
pub struct PanelPosition {
    /// Global index of the panel's first column, and of its first row.
    pub j: usize,
    pub rows: Cyclic,
    pub myrow: usize,
    /// Local row of the diagonal block's first row or, where this rank has none of it, below it.
    pub top: usize,
}

/// The row of W where a rank's own rows begin: after those of L1 and U1, on a cache line.
pub(crate) fn first_own_row(jb: usize) -> usize {
    jb.next_multiple_of(8)
}

pub struct PanelWork<'a> {
    /// `(first_own_row(jb) + own rows) x jb`, column-major.
    pub w: MatMut<'a>,
    /// Global pivot row of each column, as doubles (exact below 2^53).
    pub ipiv: &'a mut [f64],
    pub place: PanelPosition,
    pub col: &'a Comm,
    pub team: &'a Team,
    pub candidates: &'a mut pivot::Candidates,
    pub parts: PanelParts,
}

impl PanelWork<'_> {
    fn jb(&self) -> usize {
        self.w.cols()
    }

    fn active(&self, done: usize) -> usize {
        let PanelPosition { j, rows, myrow, top } = self.place;
        first_own_row(self.jb()) + rows.count_before(j + done, myrow) - top
    }

    /// The row of W that pivot row `j` displaces, on the rank that has it.
    fn current(&self, j: usize) -> Option<usize> {
        let is_mine = self.place.rows.owner(self.place.j + j) == self.place.myrow;
        is_mine.then(|| self.active(j))
    }

    fn global_row(&self, i: usize) -> usize {
        let local = self.place.top + i - first_own_row(self.jb());
        self.place.rows.global(local, self.place.myrow)
    }
}

/// Factors the panel: `P W = L U`, pivots in `ipiv`. All ranks return [`PfactError::Pivot`] at the
/// first column without a usable pivot. Collective over the process column.
pub fn factor(panel: &mut PanelWork, variant: &Variant) -> Result<(), PfactError> {
    let jb = panel.jb();
    if jb > 0 { recursive::factor(panel, variant, 0..jb) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::threads::run;
    use proptest::prelude::*;

    /// Pivots of a matrix of `n` rows, from a plain elimination: of equal elements the upper one.
    fn pivots_by_the_book(mut a: Vec<Vec<f64>>, jb: usize) -> Vec<f64> {
        (0..jb)
            .map(|j| {
                let larger = |best: usize, i: usize| a[i][j].abs() > a[best][j].abs();
                let pivot = (j..a.len()).fold(j, |best, i| if larger(best, i) { i } else { best });
                a.swap(j, pivot);
                let (above, below) = a.split_at_mut(j + 1);
                for row in below {
                    let l = row[j] / above[j][j];
                    (j + 1..jb).for_each(|c| row[c] -= l * above[j][c]);
                }
                pivot as f64
            })
            .collect()
    }

    fn pivots_among(a: &[Vec<f64>], jb: usize, p: usize, variant: &Variant) -> Vec<Vec<f64>> {
        factored_among(a, jb, p, variant).into_iter().map(|(ipiv, _)| ipiv).collect()
    }

    /// The pivots of `a` and W on each of `p` ranks; both are empty where a column has no pivot.
    fn factored_among(
        a: &[Vec<f64>],
        jb: usize,
        p: usize,
        variant: &Variant,
    ) -> Vec<(Vec<f64>, Vec<f64>)> {
        run(p, |col| {
            let (rows, myrow) = (Cyclic::rows(jb, p), col.rank());
            let own = rows.count_before(a.len(), myrow);
            let first = first_own_row(jb);
            let mut w = vec![0.0; (first + own) * jb];
            for (local, c) in (0..own).flat_map(|local| (0..jb).map(move |c| (local, c))) {
                w[c * (first + own) + first + local] = a[rows.global(local, myrow)][c];
            }
            let mut ipiv = vec![0.0; jb];
            let mut panel = PanelWork {
                w: MatMut::col_major(&mut w, first + own, jb, first + own),
                ipiv: &mut ipiv,
                place: PanelPosition { j: 0, rows, myrow, top: 0 },
                col: &col,
                team: &Team::solo(),
                candidates: &mut pivot::Candidates::new(jb, None),
                parts: PanelParts::default(),
            };
            match factor(&mut panel, variant) {
                Ok(()) => Ok((ipiv, w)),
                Err(PfactError::Pivot { .. }) => Ok((Vec::new(), Vec::new())),
                Err(PfactError::Comm(error)) => Err(error),
            }
        })
        .into_iter()
        .map(|factored| factored.expect("no rank is lost"))
        .collect()
    }

    /// The reciprocal of a subnormal pivot overflows, so L comes from divisions. All elements are
    /// multiples of the smallest positive number, so that L and U are known exactly.
    #[test]
    fn subnormal_pivots_are_divided_by() {
        let least = f64::from_bits(1);
        // L is unit lower with 1/2 below the diagonal, U has 2^10 least everywhere.
        let (n, jb) = (20, 4);
        let l = |i: usize, k: usize| if i == k { 1.0 } else { 0.5 };
        let a: Vec<Vec<f64>> = (0..n)
            .map(|i| {
                let sum = |j: usize| (0..=j.min(i)).map(|k| l(i, k)).sum::<f64>();
                (0..jb).map(|j| sum(j) * 1024.0 * least).collect()
            })
            .collect();
        let ndiv = 2;
        for (p, nbmin) in [(1, 1), (1, 4), (2, 2), (3, 4)] {
            for fact in [Fact::Left, Fact::Crout, Fact::Right] {
                let variant = Variant { pfact: fact, rfact: fact, nbmin, ndiv };
                for (ipiv, w) in factored_among(&a, jb, p, &variant) {
                    let rows = w.len() / jb;
                    assert_eq!(ipiv, [0.0, 1.0, 2.0, 3.0], "{fact:?} on {p}");
                    for j in 0..jb {
                        for i in 0..jb {
                            let want = if i > j { 0.5 } else { 1024.0 * least };
                            assert_eq!(w[j * rows + i], want, "({i}, {j}), {fact:?} on {p}");
                        }
                        // Below the diagonal block, whose rows the ranks share.
                        let last = w[j * rows + rows - 1];
                        assert_eq!(last, 0.5, "column {j}, {fact:?} on {p}");
                    }
                }
            }
        }
    }

    proptest! {
        /// Elements of 1 and -1 tie in each column, and stay exact for a few columns.
        #[test]
        fn upper_of_equal_elements_is_the_pivot(
            signs in prop::collection::vec(prop::collection::vec(any::<bool>(), 4), 8..60),
            p in 1usize..6,
            facts in prop::sample::select(vec![Fact::Left, Fact::Crout, Fact::Right]),
        ) {
            let sign = |&is: &bool| if is { 1.0 } else { -1.0 };
            let a: Vec<Vec<f64>> =
                signs.iter().map(|row| row.iter().map(sign).collect()).collect();
            let want = pivots_by_the_book(a.clone(), 4);
            let variant = Variant { pfact: facts, rfact: facts, nbmin: 2, ndiv: 2 };
            for ipiv in pivots_among(&a, 4, p, &variant) {
                // A singular panel has no pivots to compare.
                prop_assert!(ipiv.is_empty() || ipiv == want, "{:?} {:?}", ipiv, want);
            }
        }
    }
}
