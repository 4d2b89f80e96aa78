//! The work of each step of the solver, counted for the walk, the fit and the simulated machine.

use skt_host::choice::Swap;
use skt_host::layout::leading_dimension;

use super::machine::{Counts, Unit};
use super::placement::ColumnWeights;
use super::{Changes, RunParams};

const DOUBLE: f64 = 8.0;
/// Rows of one product, see `pgesv`; U is packed again for each product.
const PRODUCT_ROWS: f64 = 1024.0;
/// Rows of one product while a rank must still forward a panel.
const PRODUCT_ROWS_WHILE_PASSING_ON: f64 = 192.0;
/// The cost of a panel to its owner, for each of its rows and columns, in elements of the trailing
/// product, see `pgesv::product`.
const ADVANCE_COST: f64 = 7.0 / 3.0;
/// The time that a team loses at a panel in addition to its share, relative to the time of one
/// thread, see `pgesv::product`.
const TEAM_PANEL_LOSS: f64 = 1.0 / 6.0;
/// Doubles before the two rows in a pivot's message, see `pfact::pivot`.
const PIVOT_HEAD: f64 = 4.0;

/// `A2 -= L2 U` on `rows x cols` with `k` columns of L2, in pieces of 1024 rows unless `whole`.
pub fn product(rows: f64, cols: f64, k: f64, whole: bool) -> Counts {
    let calls = if whole { 1.0 } else { products(rows) };
    Counts::from_list(&[
        (Unit::ProductFlop, 2.0 * rows * cols * k),
        (Unit::ProductEntry, rows * cols),
        (Unit::PackedEntry, k * (calls * cols + rows)),
    ])
}

fn products(rows: f64) -> f64 {
    (rows / PRODUCT_ROWS).ceil().max(1.0)
}

/// A panel must be forwarded after each of the products.
pub(super) fn products_while_passing_on(rows: f64) -> f64 {
    (rows / PRODUCT_ROWS_WHILE_PASSING_ON).ceil().max(1.0)
}

/// The triangular solve `U = L1^-1 A1` with `k` rows, on `cols` columns.
pub fn solve(k: f64, cols: f64) -> Counts {
    Counts::from_list(&[(Unit::SolveFlop, k * k * cols)])
}

/// Copies of a rank's share of the `k` rows of U back into A, where P > 1.
pub(super) fn keep(k: f64, p: usize, cols: f64) -> Counts {
    Counts::from_list(&[(Unit::CopiedByte, 2.0 * DOUBLE * k / p as f64 * cols)])
}

/// The factorization of a panel of `jb` columns, with `rows` rows of a rank below its diagonal
/// block, on `p` process rows, without its messages.
///
/// Each rank solves for the rows of U1 itself, which is `1/6 jb^3` of the `2/3 jb^3` operations of
/// the LU of the diagonal block, because the recursion halves the panel, and a half of `h` columns
/// costs `h^3`. The rest is products on rows that are still active, of which each rank has its
/// share. The rank's own rows are copied in, L1 and L2 out.
pub fn panel(rows: f64, jb: f64, p: usize) -> Counts {
    let (even, cube) = (1.0 / p as f64, jb * jb * jb);
    Counts::from_list(&[
        (Unit::PanelColumn, jb),
        (Unit::PanelEntry, (rows + jb * (1.0 + even) / 2.0) * jb),
        (Unit::PanelFlop, rows * jb * jb + cube / 6.0 + cube * even / 2.0),
    ])
}

/// The time that a team loses at the factorization of a panel, relative to the time of one thread.
pub(super) fn team_panel_loss(threads: usize, changes: &Changes) -> f64 {
    let is_lost = threads > 1 && !changes.team_without_loss;
    if is_lost { TEAM_PANEL_LOSS } else { 0.0 }
}

/// The panel, `jb` columns wide, is advanced before the product, not during it (`pgesv::product`).
pub(super) fn advances_first(run: &RunParams, jb: f64, cols: f64) -> bool {
    let width = if run.is_in_halves(cols) { cols / 2.0 } else { cols };
    let late = ADVANCE_COST * jb;
    let threads = run.threads as f64;
    let by_team = late * (1.0 / threads + TEAM_PANEL_LOSS) + width / threads;
    run.threads == 1 || late > by_team
}

/// The pivot messages of a panel of `jb` columns in one process column: one recursive doubling per
/// column, with two more steps if the process rows are no power of two.
pub(super) fn pivots(jb: f64, p: usize, weights: &ColumnWeights) -> Counts {
    let leaning = if p.is_power_of_two() { 0.0 } else { 2.0 };
    let steps = weights.doubling.len() as f64 + leaning;
    let weighted = weights.doubling.iter().sum::<f64>() + leaning * weights.leaning;
    let bytes = DOUBLE * (PIVOT_HEAD + 2.0 * jb);
    Counts::from_list(&[(Unit::Message, jb * steps), (Unit::MessageByte, jb * weighted * bytes)])
}

/// Bytes of a panel's message, see `pgesv::panel`.
pub(super) fn panel_bytes(rows: f64, jb: usize) -> f64 {
    let ld = leading_dimension(jb) as f64;
    DOUBLE * (8.0 + jb.next_multiple_of(8) as f64 + ld * (jb as f64 + rows))
}

/// On `p` process rows. Each rank has `jb / P` rows of the diagonal block. All of them are
/// displaced to the positions of the pivot rows, which become the rows of U: a rank that has more
/// pivot rows than others gathers and gets more.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowExchange {
    p: usize,
    jb: f64,
    /// Number of pivot rows on the rank that has most.
    most_pivots: f64,
    /// Number of messages one after the other, and of rows in them, by the time of their bytes.
    binary: (f64, f64),
    long: (f64, f64),
}

impl RowExchange {
    /// Pivots are spread evenly at random; all process columns send at once.
    pub(super) fn new(p: usize, jb: usize, weights: &ColumnWeights) -> Self {
        let jb = jb as f64;
        let most = |groups: usize| {
            let even = jb / groups as f64;
            if groups == 1 { even } else { largest_share(groups, even).min(jb) }
        };
        Self {
            p,
            jb,
            most_pivots: most(p),
            binary: binary_exchange(p, jb, most, weights),
            long: spread_roll(p, most(p), jb / p as f64, weights),
        }
    }

    /// The copies on the rank that has most of them, and their mean over ranks, for `cols` columns:
    /// own rows of U and displaced rows that leave are gathered, displaced rows are put into their
    /// positions. U is solved where it arrives.
    pub(super) fn copies(&self, cols: f64) -> (Counts, Counts) {
        let entries =
            |rows: f64, bytes: f64| Counts::from_list(&[(Unit::CopiedByte, rows * cols * bytes)]);
        if self.p == 1 {
            // Two rows are read and two written, in place.
            let all = entries(self.jb, 4.0 * DOUBLE);
            return (all, all);
        }
        let even = self.jb / self.p as f64;
        let leaving = leaving(self.p, even);
        (
            entries(2.0 * self.most_pivots + leaving, 2.0 * DOUBLE),
            entries(2.0 * even + leaving, 2.0 * DOUBLE),
        )
    }

    pub(super) fn messages(&self, swap: Swap, threshold: usize, cols: f64) -> Counts {
        if self.p == 1 {
            return Counts::default();
        }
        let long = match swap {
            Swap::BinaryExchange => false,
            Swap::SpreadRoll => true,
            // As in `swap::exchange`: each of two ranks sends the other what it needs.
            Swap::Mix => self.p > 2 && cols > threshold as f64,
        };
        let (messages, rows) = if long { self.long } else { self.binary };
        Counts::from_list(&[(Unit::Message, messages), (Unit::MessageByte, rows * cols * DOUBLE)])
    }
}

/// The number of `displaced` rows that move to other ranks.
fn leaving(p: usize, displaced: f64) -> f64 {
    displaced * (1.0 - 1.0 / p as f64)
}

/// Recursive doubling: number of messages, and of rows in them. In step s, groups of 2^s ranks swap
/// all that they have: rows of U, and displaced rows that leave. The group with most pivot rows
/// delays the step; `most` gives their number for a number of groups.
fn binary_exchange(
    p: usize,
    jb: f64,
    most: impl Fn(usize) -> f64,
    weights: &ColumnWeights,
) -> (f64, f64) {
    let steps = p.ilog2();
    let power = 1usize << steps;
    let displaced = leaving(p, jb);
    let swapped = |(step, weight): (usize, &f64)| {
        let groups = power >> step;
        weight * (most(groups) + displaced / groups as f64)
    };
    let doubling = weights.doubling.iter().enumerate().map(swapped).sum::<f64>();
    if p.is_power_of_two() {
        return (f64::from(steps), doubling);
    }
    // Ranks beyond the power of two hand in their rows and get all rows.
    let leaning = most(p) + displaced / p as f64 + jb + displaced;
    (f64::from(steps) + 2.0, doubling + weights.leaning * leaning)
}

/// Spread and roll: number of messages, and of rows in them. Displaced rows go straight to the
/// ranks that get them, `most` to the rank with most pivots, in messages that are in progress at
/// the same time, so they take one latency. That rank sends about as much at the same time:
/// displaced rows, and the rows of U that it has beyond an `even` share. Then the shares go around
/// the ring, in P - 1 steps.
fn spread_roll(p: usize, most: f64, even: f64, weights: &ColumnWeights) -> (f64, f64) {
    let around = p as f64 - 1.0;
    (1.0 + around, weights.spread * leaving(p, most) + weights.roll * around * even)
}

/// The expected largest of `p` shares with a mean of `mean` rows each, as Poisson variables: `sum
/// over m >= 0 of 1 - F(m)^p`.
fn largest_share(p: usize, mean: f64) -> f64 {
    // The log is computed by recurrence, so that large means do not underflow.
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

    fn alone(p: usize) -> ColumnWeights {
        ColumnWeights::new(&RunParams::new(1000, 10, (p, 1)), 1)
    }

    fn exchange(p: usize) -> RowExchange {
        RowExchange::new(p, 64, &alone(p))
    }

    #[test]
    fn the_larger_of_two_shares_exceeds_the_mean_by_half_the_gap() {
        // E max(X, Y) = mean + E|X - Y| / 2, about sigma / sqrt(pi) above the mean for large means.
        let mean: f64 = 96.0;
        let want = mean + (mean / std::f64::consts::PI).sqrt();
        assert!((largest_share(2, mean) - want).abs() < 0.05, "{}", largest_share(2, mean));
        assert!((largest_share(1, mean) - mean).abs() < 1e-6);
        assert!(largest_share(128, 2.0) > 6.0 && largest_share(128, 2.0) < 7.5);
    }

    #[test]
    fn two_process_rows_by_hand() {
        let exchange = exchange(2);
        // Half of a rank's 32 displaced rows leave it; the rows that come are half of the pivot
        // rows of the rank that has most.
        let coming = largest_share(2, 32.0) / 2.0;
        let long = exchange.messages(Swap::SpreadRoll, 0, 10.0);
        assert_eq!(long.get(Unit::Message), 2.0);
        assert_eq!(long.get(Unit::MessageByte), (coming + 32.0) * 10.0 * 8.0);
        let short = exchange.messages(Swap::BinaryExchange, 0, 10.0);
        assert_eq!(short.get(Unit::Message), 1.0);
        let most = largest_share(2, 32.0);
        assert_eq!(short.get(Unit::MessageByte), (16.0 + most) * 10.0 * 8.0);
        let mix = |cols| exchange.messages(Swap::Mix, 64, cols).get(Unit::Message);
        assert_eq!((mix(64.0), mix(65.0)), (1.0, 1.0));
        // 32 rows of U and 16 displaced rows are gathered; 32 displaced rows are put.
        assert_eq!(exchange.copies(10.0).1.get(Unit::CopiedByte), 80.0 * 10.0 * 16.0);
    }

    #[test]
    fn four_process_rows_by_hand() {
        let exchange = exchange(4);
        let mix = |cols| exchange.messages(Swap::Mix, 64, cols);
        // Of 64 rows of U and 48 displaced rows that leave, a quarter and then a half are sent
        // where most pivots are.
        assert_eq!(mix(64.0).get(Unit::Message), 2.0);
        let most = largest_share(4, 16.0) + largest_share(2, 32.0);
        assert_eq!(mix(64.0).get(Unit::MessageByte), (most + 36.0) * 64.0 * 8.0);
        // All displaced rows are sent at once, then come three steps of the ring.
        let coming = largest_share(4, 16.0) * 0.75;
        assert_eq!(mix(100.0).get(Unit::Message), 4.0);
        assert_eq!(mix(100.0).get(Unit::MessageByte), (coming + 3.0 * 16.0) * 100.0 * 8.0);
    }

    #[test]
    fn a_panel_alone_is_its_lu_and_shares_it_among_process_rows() {
        let flops = |rows, p| panel(rows, 60.0, p).get(Unit::PanelFlop);
        let block = 60.0f64.powi(3);
        assert!((flops(0.0, 1) - 2.0 / 3.0 * block).abs() < 1e-6);
        assert!((flops(100.0, 3) - (360_000.0 + block / 3.0)).abs() < 1e-6);
        let entries = |p| panel(100.0, 60.0, p).get(Unit::PanelEntry);
        assert_eq!((entries(1), entries(3)), (160.0 * 60.0, 140.0 * 60.0));
    }

    #[test]
    fn pivots_need_two_more_steps_where_ranks_lean_on_others() {
        let steps = |p| pivots(10.0, p, &alone(p)).get(Unit::Message) / 10.0;
        assert_eq!([1, 2, 3, 4, 6, 8].map(steps), [0.0, 1.0, 3.0, 2.0, 4.0, 3.0]);
    }
}
