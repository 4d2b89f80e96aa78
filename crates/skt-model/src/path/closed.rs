//! The reference's own formula for the same machine, in which no communication is hidden.

use super::{Machine, RunParams};

/// How often a row of U crosses a rank's link in the row exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowTraffic {
    /// Three times, as the reference counts for its own exchange.
    Reference,
    /// Once, as in our row exchange when U rolls; the displaced rows, of which each rank sends one
    /// of P parts, add 1/P.
    Ours,
}

/// Dongarra, Luszczek, Petitet: The LINPACK Benchmark: Past, Present and Future (2003), and the
/// scalability page of HPL 2.3. With g seconds per operation, b per double and a per message:
///
/// `T = 2 N^3 g / (3 P Q) + b N^2 (c P + Q) / (2 P Q) + a N ((NB + 1) log2 P + P) / NB`
///
/// where c is 3 for the reference. The formula has no look-ahead, counts only the first hop of a
/// panel, and has one rate of DGEMM for all shapes.
pub fn seconds(run: &RunParams, machine: &Machine, rows: RowTraffic) -> f64 {
    let (n, nb) = (run.n as f64, run.nb as f64);
    let (p, q) = (run.p as f64, run.q as f64);
    let times = match rows {
        RowTraffic::Reference => 3.0,
        RowTraffic::Ours => 1.0 + 1.0 / p,
    };
    let double_seconds = 8.0 * machine.message_byte_seconds;
    let compute = 2.0 * n.powi(3) / (3.0 * p * q) * machine.product_flop_seconds;
    let bytes = double_seconds * n * n * (times * p + q) / (2.0 * p * q);
    let messages = machine.message_seconds * n * ((nb + 1.0) * p.log2() + p) / nb;
    compute / run.threads as f64 + bytes + messages
}
