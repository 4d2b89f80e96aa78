//! What each step of the solver does, counted: the one place that the walk and
//! the fit both read.

use super::Changes;
use super::machine::{Counts, Unit};
use crate::config::Swap;
use crate::pgesv::panel::leading_dimension;

/// Bytes of a double.
const DOUBLE: f64 = 8.0;
/// Rows of one product, see `pgesv`: U is packed anew for each.
const PRODUCT_ROWS: f64 = 1024.0;
/// Doubles ahead of the two rows in a pivot's message, see `pfact::pivot`.
const PIVOT_HEAD: f64 = 4.0;

/// Trailing product `A2 -= L2 U` on `rows x cols` with `k` columns of L2, cut into
/// pieces of 1024 rows unless `whole`.
pub(super) fn product(rows: f64, cols: f64, k: f64, whole: bool) -> Counts {
    let calls = if whole { 1.0 } else { products(rows) };
    Counts::of(&[
        (Unit::ProductFlop, 2.0 * rows * cols * k),
        (Unit::ProductEntry, rows * cols),
        (Unit::PackedEntry, k * (calls * cols + rows)),
    ])
}

/// Products that a trailing product is cut into; messages are moved on after each.
pub(super) fn products(rows: f64) -> f64 {
    (rows / PRODUCT_ROWS).ceil().max(1.0)
}

/// Triangular solve `U = L1^-1 A1` with `k` rows, on `cols` columns.
pub(super) fn solve(k: f64, cols: f64) -> Counts {
    Counts::of(&[(Unit::SolveFlop, k * k * cols)])
}

/// P > 1: the diagonal rank writes U back into A.
pub(super) fn keep(k: f64, cols: f64) -> Counts {
    Counts::of(&[(Unit::CopiedByte, 2.0 * DOUBLE * k * cols)])
}

/// A panel of `jb` columns with `rows` rows below its diagonal block, without its
/// messages. The operations on the rows of the block are the whole LU of it, as on
/// the rank that holds it.
pub(super) fn panel(rows: f64, jb: f64) -> Counts {
    Counts::of(&[
        (Unit::PanelColumn, jb),
        (Unit::PanelEntry, (jb + rows) * jb),
        (Unit::PanelFlop, rows * jb * jb + 2.0 / 3.0 * jb * jb * jb),
    ])
}

/// The pivot messages of a panel of `jb` columns on `p` process rows: recursive
/// doubling once a column, two more steps where `p` is no power of two.
pub(super) fn pivots(jb: f64, p: usize) -> Counts {
    let leaning = if p.is_power_of_two() { 0.0 } else { 2.0 };
    let steps = jb * (f64::from(p.ilog2()) + leaning);
    let bytes = DOUBLE * (PIVOT_HEAD + 2.0 * jb);
    Counts::of(&[(Unit::Message, steps), (Unit::MessageByte, steps * bytes)])
}

/// Bytes of a panel's message, see `pgesv::panel`.
pub(super) fn panel_bytes(rows: f64, jb: usize) -> f64 {
    let ld = leading_dimension(jb) as f64;
    DOUBLE * (8.0 + jb.next_multiple_of(8) as f64 + ld * (jb as f64 + rows))
}

/// How the rows of a panel are exchanged on `p` process rows.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowExchange {
    p: usize,
    /// Rows of U that come from the rank that has most of them.
    largest_share: f64,
    jb: f64,
}

impl RowExchange {
    /// For panels of `jb` columns. Pivots are taken as spread evenly at random
    /// over the process rows.
    pub(super) fn new(p: usize, jb: usize, changes: &Changes) -> Self {
        let even = jb as f64 / p as f64;
        let largest_share =
            if changes.even_roll || p == 1 { even } else { largest_share(p, even).min(jb as f64) };
        Self { p, largest_share, jb: jb as f64 }
    }

    /// Copies on the rank that has most of them (the diagonal one), and the mean
    /// over ranks, for `cols` columns.
    pub(super) fn copies(&self, cols: f64) -> (Counts, Counts) {
        let entries =
            |rows: f64, bytes: f64| Counts::of(&[(Unit::CopiedByte, rows * cols * bytes)]);
        if self.p == 1 {
            // Two rows read, two written, in place.
            let all = entries(self.jb, 4.0 * DOUBLE);
            return (all, all);
        }
        let even = self.jb / self.p as f64;
        // Gathered: own rows of U, the displaced. Scattered: U, and own displaced.
        let common = even + self.jb + even;
        let most = common + (self.largest_share - even) + self.displaced();
        let mean = common + self.displaced() / self.p as f64;
        (entries(most, 2.0 * DOUBLE), entries(mean, 2.0 * DOUBLE))
    }

    /// Messages on the critical path, for `cols` columns.
    pub(super) fn messages(&self, swap: Swap, threshold: usize, cols: f64) -> Counts {
        if self.p == 1 {
            return Counts::default();
        }
        let long = match swap {
            Swap::BinaryExchange => false,
            Swap::SpreadRoll => true,
            Swap::Mix => cols > threshold as f64,
        };
        let (messages, rows) = if long { self.spread_roll() } else { self.binary_exchange() };
        Counts::of(&[(Unit::Message, messages), (Unit::MessageByte, rows * cols * DOUBLE)])
    }

    /// Rows of the diagonal block that end on other ranks.
    fn displaced(&self) -> f64 {
        self.jb * (1.0 - 1.0 / self.p as f64)
    }

    /// In step s sets of 2^s ranks swap all they have; the displaced rows are in
    /// one of the two in every step.
    fn binary_exchange(&self) -> (f64, f64) {
        let steps = self.p.ilog2();
        let power = f64::from(1u32 << steps);
        let doubling = (power - 1.0) / power * self.jb + f64::from(steps) * self.displaced();
        if self.p.is_power_of_two() {
            return (f64::from(steps), doubling);
        }
        // Those beyond the power hand in their rows and get the whole.
        let leaning = self.jb / self.p as f64 + self.jb + self.displaced();
        (f64::from(steps) + 2.0, doubling + leaning)
    }

    /// Down a binary tree, then around the ring, where the largest share of any
    /// rank holds up all others at each of its P-1 steps.
    fn spread_roll(&self) -> (f64, f64) {
        let around = self.p as f64 - 1.0;
        let down = f64::from(self.p.next_power_of_two().ilog2());
        (down + around, self.displaced() + around * self.largest_share)
    }
}

/// Expected largest of `p` shares of `mean` rows each on average, as Poisson
/// variables: `sum over m >= 0 of 1 - F(m)^p`.
fn largest_share(p: usize, mean: f64) -> f64 {
    // log of the probability of m, by recurrence, so that large means do not
    // underflow.
    let (mut log_term, mut below, mut expected) = (-mean, 0.0f64, 0.0);
    let mut m = 0.0;
    loop {
        below = (below + log_term.exp()).min(1.0);
        let above = 1.0 - below.powi(p as i32);
        expected += above;
        if m > mean && above < 1e-9 {
            return expected;
        }
        m += 1.0;
        log_term += (mean / m).ln();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_of_two_shares_is_half_a_difference_above_the_mean() {
        // E max(X, Y) = mean + E|X - Y| / 2, about sigma / sqrt(pi) for large means.
        let mean: f64 = 96.0;
        let want = mean + (mean / std::f64::consts::PI).sqrt();
        assert!((largest_share(2, mean) - want).abs() < 0.05, "{}", largest_share(2, mean));
        assert!((largest_share(1, mean) - mean).abs() < 1e-6);
        assert!(largest_share(128, 2.0) > 6.0 && largest_share(128, 2.0) < 7.5);
    }

    #[test]
    fn two_process_rows_by_hand() {
        let exchange = RowExchange::new(2, 64, &Changes { even_roll: true, ..Changes::default() });
        let long = exchange.messages(Swap::SpreadRoll, 0, 10.0);
        assert_eq!(long.get(Unit::Message), 2.0);
        assert_eq!(long.get(Unit::MessageByte), (32.0 + 32.0) * 10.0 * 8.0);
        let short = exchange.messages(Swap::BinaryExchange, 0, 10.0);
        assert_eq!(short.get(Unit::Message), 1.0);
        assert_eq!(short.get(Unit::MessageByte), (32.0 + 32.0) * 10.0 * 8.0);
        let mix = |cols| exchange.messages(Swap::Mix, 64, cols).get(Unit::Message);
        assert_eq!((mix(64.0), mix(65.0)), (1.0, 2.0));
    }

    #[test]
    fn pivots_need_two_more_steps_where_ranks_lean_on_others() {
        let steps = |p| pivots(10.0, p).get(Unit::Message) / 10.0;
        assert_eq!([1, 2, 3, 4, 6, 8].map(steps), [0.0, 1.0, 3.0, 2.0, 4.0, 3.0]);
    }
}
