//! A point in time with the critical path that leads to it.

/// Number of [`Part`]s.
pub const PARTS: usize = 8;

/// What the critical path is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Factoring panels: compute and copies.
    Panel,
    /// Pivot search and row exchange within panels: messages.
    Pivots,
    /// Panels on their way, and waiting for a rank to pass them on.
    Bcast,
    /// Row exchange: gathering and scattering rows.
    Rows,
    /// Row exchange: messages.
    RowMessages,
    /// Triangular solve for U.
    Solve,
    /// Trailing product.
    Product,
    /// Back substitution.
    Back,
}

impl Part {
    /// All of them, in the order of tables.
    pub const ALL: [Part; PARTS] = [
        Part::Panel,
        Part::Pivots,
        Part::Bcast,
        Part::Rows,
        Part::RowMessages,
        Part::Solve,
        Part::Product,
        Part::Back,
    ];

    /// Its name in tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Part::Panel => "panel",
            Part::Pivots => "pivot messages",
            Part::Bcast => "broadcast",
            Part::Rows => "row copies",
            Part::RowMessages => "row messages",
            Part::Solve => "solve",
            Part::Product => "product",
            Part::Back => "back substitution",
        }
    }
}

/// Seconds by part.
pub type Parts = [f64; PARTS];

/// A moment, and what the chain of events that led to it was made of: the parts
/// always sum up to the time.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Moment {
    /// Seconds from the start.
    pub at_seconds: f64,
    /// The same, by part.
    pub by: Parts,
}

impl Moment {
    /// `seconds` of `part` later.
    pub fn after(mut self, part: Part, seconds: f64) -> Self {
        self.at_seconds += seconds;
        self.by[part as usize] += seconds;
        self
    }

    /// The later of two: what waits for both goes on then, and its path is that
    /// of the later.
    pub fn and(self, other: Self) -> Self {
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
