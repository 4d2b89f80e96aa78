//! The choices of a run, with their codes in HPL.dat and their names.

use serde::{Deserialize, Serialize};

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
