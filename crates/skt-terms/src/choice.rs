//! The choices of a run: those of the benchmark with their codes in HPL.dat and their names,
//! behind them those of its protection.

use serde::{Deserialize, Serialize};

use crate::named;

/// How the ranks are laid over the process grid (HPL's PMAP).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pmap {
    /// `myrow = rank / Q`; HPL.dat 0.
    RowMajor,
    /// `myrow = rank % P`; HPL.dat 1.
    ColumnMajor,
}

/// Variant of the panel factorization (PFACT inside, RFACT for the recursion).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fact {
    /// Left-looking; HPL.dat 0.
    Left,
    /// Crout; HPL.dat 1.
    Crout,
    /// Right-looking; HPL.dat 2.
    Right,
}

/// How a panel travels along its process row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Bcast {
    /// Increasing ring; HPL.dat 0.
    #[serde(rename = "1ring")]
    OneRing,
    /// Increasing ring that spares the next panel's owner; 1.
    #[serde(rename = "1ringM")]
    OneRingM,
    /// Two rings; 2.
    #[serde(rename = "2ring")]
    TwoRing,
    /// Two rings that spare the next panel's owner; 3.
    #[serde(rename = "2ringM")]
    TwoRingM,
    /// Spread and roll ("long"); 4.
    #[serde(rename = "long")]
    Long,
    /// Spread and roll that spares the next panel's owner; 5.
    #[serde(rename = "longM")]
    LongM,
}

/// How rows are exchanged along a process column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Swap {
    /// Recursive doubling; HPL.dat 0.
    BinaryExchange,
    /// Spread and roll ("long"); 1.
    SpreadRoll,
    /// Spread-roll above the threshold number of local columns; 2.
    Mix,
}

/// The random numbers of the matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Generator {
    /// The reference's linear congruential generator, bit for bit.
    Hpl,
    /// xoshiro256++ seeded per matrix row.
    Xoshiro,
}

/// How panels and rows get from one rank to another on the same node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// Where all ranks of a process row (or column) share a node, they read panels
    /// (or rows and pivots) in each other's memory; else by messages.
    Shared,
    /// By messages of MPI.
    Messages,
}

/// The values of an enumeration in the order of their HPL.dat codes, each with its names.
macro_rules! coded {
    ($type:ident, { $($value:ident: $names:expr),* $(,)? }) => {
        impl $type {
            /// All values, in the order of their codes.
            pub const ALL: &[$type] = &[$($type::$value),*];

            /// By code, the names in TOML and on the command line: the first is the one
            /// that is written, the others are understood, too.
            pub const NAMES: &[&[&str]] = &[$(&$names),*];

            /// Its code in HPL.dat.
            pub fn code(self) -> usize {
                self as usize
            }

            /// Its name in TOML and on the command line.
            pub fn name(self) -> &'static str {
                Self::NAMES[self.code()][0]
            }
        }
    };
}

coded!(Pmap, { RowMajor: ["row", "row-major"], ColumnMajor: ["column", "column-major"] });
coded!(Fact, { Left: ["left"], Crout: ["crout"], Right: ["right"] });
coded!(Bcast, { OneRing: ["1ring", "1rg"], OneRingM: ["1ringM", "1rM"], TwoRing: ["2ring", "2rg"], TwoRingM: ["2ringM", "2rM"], Long: ["long", "Blong", "Lng"], LongM: ["longM", "BlongM", "LnM"] });
coded!(Swap, { BinaryExchange: ["binary-exchange", "bin-exch"], SpreadRoll: ["spread-roll", "long"], Mix: ["mix"] });
coded!(Generator, { Hpl: ["hpl"], Xoshiro: ["xoshiro"] });
coded!(Transport, { Shared: ["shared"], Messages: ["messages"] });

/// What a checkpoint saves of the matrix (Tang et al., TPDS 2018, figure 14).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Region {
    /// Rows and columns that have changed since the last one.
    Corner,
    /// All rows of the columns that have changed.
    Side,
    /// All of it.
    Whole,
}

named!(Region { Corner: "corner", Side: "side", Whole: "whole" });

/// Whether parities are computed while the solver goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Overlap {
    /// Where a group computes them in a ring of messages, which the network moves, or a core
    /// is kept for it.
    Auto,
    /// Yes.
    On,
    /// No.
    Off,
}

named!(Overlap { Auto: "auto", On: "on", Off: "off" });

/// What the loss of a rank means to the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnLoss {
    /// All end, and the same command goes on.
    Restart,
    /// They go on, with a spare rank in the place of the one that is lost.
    Recover,
    /// They go on, with the checksum column in the place of its process column.
    Replace,
}

impl OnLoss {
    /// Whether a job goes on after the loss of a rank.
    pub fn is_outlived(self) -> bool {
        self != Self::Restart
    }
}

named!(OnLoss { Restart: "restart", Recover: "recover", Replace: "replace" });
