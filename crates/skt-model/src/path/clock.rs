//! A point in time, with the critical path that leads to it.

use skt_host::named;

pub(crate) const PARTS: usize = Part::ALL.len();

/// A part of the critical path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Factoring panels: compute and copies.
    Panel,
    /// Messages of the pivot search and of the row exchange within panels.
    Pivots,
    /// Panels that are being sent, or wait for a rank to forward them.
    Bcast,
    /// Copies of the row exchange: gathering and scattering rows.
    Rows,
    /// Messages of the row exchange.
    RowMessages,
    /// Triangular solve for U.
    Solve,
    /// Trailing product.
    Product,
    /// Back substitution.
    Back,
}

// The names, in the order of tables.
named!(Part {
    Panel: "panel",
    Pivots: "pivot messages",
    Bcast: "broadcast",
    Rows: "row copies",
    RowMessages: "row messages",
    Solve: "solve",
    Product: "product",
    Back: "back substitution",
});

pub(crate) type Parts = [f64; PARTS];

/// A moment, and the parts of the chain of events that led to it, which always sum up to its time.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Moment {
    pub at_seconds: f64,
    pub by: Parts,
}

impl Moment {
    pub(crate) fn after(mut self, part: Part, seconds: f64) -> Self {
        self.at_seconds += seconds;
        self.by[part as usize] += seconds;
        self
    }

    /// What waits for both continues at the later one, and has its path.
    pub(crate) fn and(self, other: Self) -> Self {
        if other.at_seconds > self.at_seconds { other } else { self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_later_path_wins_and_parts_sum_up() {
        let short = Moment::default().after(Part::Panel, 1.0);
        let long = Moment::default().after(Part::Bcast, 2.0);
        let end = short.and(long).after(Part::Product, 3.0);
        assert_eq!(end.at_seconds, 5.0);
        assert_eq!(end.by[Part::Panel as usize], 0.0);
        assert_eq!(end.by.iter().sum::<f64>(), 5.0);
    }
}
