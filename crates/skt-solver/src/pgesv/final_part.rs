//! The part of the matrix that is final at each step of the factorization.

use crate::grid::{ColumnMap, Cyclic};

/// The part of a rank's matrix that will not change before the next cut: local rows before
/// [`Final::rows`], and in all rows local columns before [`Final::cols`]. Only the driver makes
/// one, for a step that it has reached; who receives it may read that part until the cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Final {
    rows: usize,
    cols: usize,
}

impl Final {
    /// Local rows before which all is final; `usize::MAX`: all rows, also other ranks'.
    pub fn rows(self) -> usize {
        self.rows
    }

    pub fn cols(self) -> usize {
        self.cols
    }

    pub(super) fn with_rows(self, rows: usize) -> Self {
        Self { rows, ..self }
    }
}

/// How far the factorization has come between two cuts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reached {
    /// The first panels are factored; none of them has been applied.
    Begun,
    /// DEPTH 0: panel `k` is being factored, and all before it have been applied.
    Factoring {
        k: usize,
    },
    /// Panel `k` is being applied: its U1 is in its columns.
    Applying {
        k: usize,
    },
    /// Panel `k` is being applied, panel `k` + DEPTH has been advanced, and the first `rows` local
    /// rows of A2 have their product.
    Multiplied {
        k: usize,
        rows: usize,
    },
    Applied {
        k: usize,
    },
}

/// The panels of one process from one cut to the next, which is before panel `end`.
#[derive(Debug, Clone)]
pub(super) struct Stretch {
    pub n: usize,
    pub nb: usize,
    pub rows: Cyclic,
    pub cols: ColumnMap,
    pub myrow: usize,
    pub mycol: usize,
    pub end: usize,
}

impl Stretch {
    /// What does not change between `reached` and the cut. The exchange and the product of a panel
    /// write only to rows from the panel's first row on, in columns right of the panel: rows above
    /// panel `k`, which are U, and columns up to the panel's own are final when it is applied. In
    /// the step of the last panel before the cut, so are rows of A2 that have their product.
    pub(crate) fn final_part(&self, reached: Reached) -> Final {
        let row = |k: usize| self.rows.count_before((k * self.nb).min(self.n), self.myrow);
        let col = |k: usize| self.cols.count_before((k * self.nb).min(self.n), self.mycol);
        match reached {
            Reached::Begun => Final { rows: 0, cols: 0 },
            Reached::Factoring { k } => Final { rows: row(k), cols: col(k) },
            Reached::Applied { k } if k + 1 == self.end => {
                Final { rows: usize::MAX, cols: col(k + 1) }
            }
            Reached::Applied { k } => Final { rows: row(k + 1), cols: col(k + 1) },
            Reached::Multiplied { k, rows } if k + 1 == self.end => {
                let product = row(k + 1) + rows;
                let is_all = product >= self.rows.count_before(self.n, self.myrow);
                Final { rows: if is_all { usize::MAX } else { product }, cols: col(k + 1) }
            }
            Reached::Applying { k } | Reached::Multiplied { k, .. } => {
                Final { rows: row(k), cols: col(k + 1) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;
    use proptest::prelude::*;

    /// What the driver does between two cuts, in order.
    enum Event {
        ComesTo(Reached),
        Writes(Range<usize>, Range<usize>),
    }

    /// Of `Solver::factor` from panel `start` on, by the formulas at the head of its module.
    fn events(stretch: &Stretch, start: usize, depth: usize) -> Vec<Event> {
        let Stretch { n, nb, rows, ref cols, myrow, mycol, end } = *stretch;
        let panels = n.div_ceil(nb);
        let row = |k: usize| rows.count_before((k * nb).min(n), myrow);
        let col = |k: usize| cols.count_before((k * nb).min(n), mycol);
        let (all_rows, all_cols) = (rows.count_before(n, myrow), cols.count_before(n + 1, mycol));
        let update_columns_of = |next: usize, from: usize| {
            (from..next).map(move |k| Event::Writes(row(k)..all_rows, col(next)..col(next + 1)))
        };
        let mut events = Vec::new();
        for next in start..panels.min(start + depth) {
            if start == 0 {
                events.extend(update_columns_of(next, 0));
            }
            events.push(Event::ComesTo(Reached::Begun));
        }
        for k in start..end {
            if depth == 0 {
                events.push(Event::ComesTo(Reached::Factoring { k }));
            }
            // Where L is kept, the whole column below it.
            events.push(Event::Writes(row(k)..all_rows, col(k)..col(k + 1)));
            events.push(Event::ComesTo(Reached::Applying { k }));
            if depth > 0 && k + depth < panels {
                events.extend(update_columns_of(k + depth, k));
            }
            // In two halves, the left one of which may be empty.
            let first = col(k + 1 + depth);
            let border = (first + all_cols) / 2;
            events.push(Event::Writes(row(k)..all_rows, first..border));
            let right = border..all_cols;
            events.push(Event::Writes(row(k)..row(k + 1), right.clone()));
            for first in (row(k + 1)..all_rows).step_by(3) {
                let after = (first + 3).min(all_rows);
                events.push(Event::Writes(first..after, right.clone()));
                events.push(Event::ComesTo(Reached::Multiplied { k, rows: after - row(k + 1) }));
            }
            events.push(Event::ComesTo(Reached::Applied { k }));
        }
        events
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]
        #[test]
        fn final_part_is_never_written(
            n in 1usize..40, nb in 1usize..9, p in 1usize..4, q in 1usize..4,
            depth in 0usize..4, me in 0usize..9, cuts in prop::array::uniform2(0usize..40),
            rates in prop::array::uniform3(1u8..4),
        ) {
            let panels = n.div_ceil(nb);
            let (start, end) = (cuts[0] % panels, cuts[1] % panels + 1);
            prop_assume!(start < end);
            let cols = ColumnMap::with_rates(n, nb, &rates.map(f64::from)[..q]);
            let rows = Cyclic::rows(nb, p);
            let stretch = Stretch { n, nb, rows, cols, myrow: me % p, mycol: me / p % q, end };
            let mut done = Final { rows: 0, cols: 0 };
            for event in events(&stretch, start, depth) {
                match event {
                    Event::ComesTo(step) => {
                        let now = stretch.final_part(step);
                        prop_assert!(now.rows >= done.rows && now.cols >= done.cols, "{:?}", step);
                        done = now;
                    }
                    Event::Writes(rows, cols) => prop_assert!(
                        rows.is_empty() || cols.is_empty()
                            || rows.start >= done.rows && cols.start >= done.cols,
                        "{:?} x {:?} is written when {:?} is final", rows, cols, done
                    ),
                }
            }
            prop_assert_eq!(done.rows, usize::MAX, "at the cut all rows are");
        }
    }
}
