//! Section 6.3: what a checkpoint must save while the matrix shrinks.

/// What is saved when the trailing matrix is k x k (Tang et al., TPDS 2018, fig. 14).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Saved {
    /// (a) The whole matrix, N^2.
    Whole,
    /// (b) All rows of the trailing columns, N k.
    Side,
    /// (c) The trailing corner, k^2.
    Corner,
}

impl Saved {
    pub const ALL: [Self; 3] = [Self::Whole, Self::Side, Self::Corner];

    /// Number of elements saved when k of n columns are left.
    pub fn elements(self, n: u64, k: u64) -> u128 {
        let (n, k) = (u128::from(n), u128::from(k));
        match self {
            Self::Whole => n * n,
            Self::Side => n * k,
            Self::Corner => k * k,
        }
    }

    /// Number of elements saved over a run with one checkpoint per row: eq. 19, 18, 17.
    ///
    /// - whole: `N^3`
    /// - side: `N^2 (N+1) / 2`
    /// - corner: `N (N+1) (2N+1) / 6`
    pub fn total_elements(self, n: u64) -> u128 {
        let n = u128::from(n);
        match self {
            Self::Whole => n * n * n,
            Self::Side => n * n * (n + 1) / 2,
            Self::Corner => n * (n + 1) * (2 * n + 1) / 6,
        }
    }

    /// The share of the matrix that a checkpoint saves on average if checkpoints are equally spaced
    /// in columns: 1, 1/2, 1/3 (eq. 20).
    pub fn mean_fraction_by_column(self) -> f64 {
        match self {
            Self::Whole => 1.0,
            Self::Side => 1.0 / 2.0,
            Self::Corner => 1.0 / 3.0,
        }
    }

    /// The share of the matrix that a checkpoint saves on average if checkpoints are equally spaced
    /// in *time*: 1, 3/4, 3/5.
    ///
    /// An optimal interval is a time, and the first columns take longest. At the share t of the
    /// run, the trailing order is k = N (1-t)^(1/3), so the means are the integrals of (1-t)^(1/3)
    /// and (1-t)^(2/3) over [0, 1].
    pub fn mean_fraction_by_time(self) -> f64 {
        match self {
            Self::Whole => 1.0,
            Self::Side => 3.0 / 4.0,
            Self::Corner => 3.0 / 5.0,
        }
    }
}
