//! The relative rates of process columns (`--rates`), which decide how many blocks each gets.

use serde::{Deserialize, Serialize};
use skt_host::choice::Pmap;

/// Rates of ranks count in these parts of the fastest process column's.
const PARTS: f64 = 64.0;
/// Process columns whose rates, from those of their ranks, are within this part of the fastest
/// count as equal: the rate of a rank varies by as much from one measurement to the next.
pub const EQUAL_WITHIN: f64 = 0.03;
/// The text of rates that the run measures.
const AUTO: &str = "auto";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RateSource {
    Columns(Vec<f64>),
    /// A rate for each rank, from a file.
    Ranks {
        file: String,
        /// The rates in it; none before it is read.
        rates: Vec<f64>,
    },
    /// The rate of each rank in 64ths of the fastest, which the first start measures; none before.
    Measured(Vec<u32>),
}

impl RateSource {
    /// Reads numbers separated by commas, or `auto`; any other text names a file.
    pub(crate) fn from_text(text: &str) -> Self {
        if text == AUTO {
            return Self::Measured(Vec::new());
        }
        let numbers = text.split(',').map(|number| number.trim().parse());
        match numbers.collect() {
            Ok(rates) => Self::Columns(rates),
            Err(_) => Self::Ranks { file: text.to_owned(), rates: Vec::new() },
        }
    }

    pub(crate) fn as_given(&self) -> String {
        match self {
            Self::Columns(rates) => rates.iter().map(f64::to_string).collect::<Vec<_>>().join(","),
            Self::Ranks { file, .. } => file.clone(),
            Self::Measured(_) => AUTO.to_owned(),
        }
    }

    /// Rates of all ranks that are measured, in any unit.
    pub fn from_measured(rates: &[f64]) -> Self {
        let fastest = rates.iter().copied().fold(0.0, f64::max);
        Self::Measured(rates.iter().map(|rate| (PARTS * part(*rate, fastest)) as u32).collect())
    }

    /// The measured rates of all ranks; none if they are given, or not measured yet.
    pub fn measured(&self) -> &[u32] {
        match self {
            Self::Measured(rates) => rates,
            Self::Columns(_) | Self::Ranks { .. } => &[],
        }
    }

    /// None if they are equal. A process column is as fast as its slowest rank.
    pub(crate) fn column_rates(&self, (p, q): (usize, usize), pmap: Pmap) -> Vec<f64> {
        let columns = match self {
            Self::Columns(rates) => rates.clone(),
            Self::Ranks { rates, .. } => slowest_of_columns(rates, (p, q), pmap),
            Self::Measured(rates) if rates.is_empty() => return Vec::new(),
            Self::Measured(rates) => {
                let rates: Vec<f64> = rates.iter().copied().map(f64::from).collect();
                slowest_of_columns(&rates, (p, q), pmap)
            }
        };
        if columns.iter().all(|rate| *rate == columns[0]) { Vec::new() } else { columns }
    }
}

/// Relative to the fastest process column, in whole parts; all 1 if they are about equal.
fn slowest_of_columns(ranks: &[f64], (p, q): (usize, usize), pmap: Pmap) -> Vec<f64> {
    let rank = |row: usize, col: usize| match pmap {
        Pmap::RowMajor => row * q + col,
        Pmap::ColumnMajor => col * p + row,
    };
    let slowest = |col| (0..p).map(|row| ranks[rank(row, col)]).fold(f64::INFINITY, f64::min);
    let rates: Vec<f64> = (0..q).map(slowest).collect();
    let fastest = rates.iter().copied().fold(0.0, f64::max);
    if rates.iter().all(|rate| *rate >= (1.0 - EQUAL_WITHIN) * fastest) {
        return vec![1.0; q];
    }
    rates.into_iter().map(|rate| part(rate, fastest)).collect()
}

/// A rate relative to the fastest, in whole parts, at least one.
fn part(rate: f64, fastest: f64) -> f64 {
    (PARTS * rate / fastest).round().max(1.0) / PARTS
}
