//! The choices of a run: those of the benchmark, with their codes in HPL.dat and their names, then
//! those of its protection.

use serde::{Deserialize, Serialize};

use crate::named;

/// How ranks are mapped to the process grid (HPL's PMAP).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pmap {
    /// `myrow = rank / Q`; code 0 in HPL.dat.
    RowMajor,
    /// `myrow = rank % P`; code 1 in HPL.dat.
    ColumnMajor,
}

/// The variant of the panel factorization (PFACT for the panel, RFACT for the recursion).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fact {
    /// Left-looking; code 0 in HPL.dat.
    Left,
    /// Crout; code 1 in HPL.dat.
    Crout,
    /// Right-looking; code 2 in HPL.dat.
    Right,
}

/// How a panel is broadcast along its process row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Bcast {
    /// Increasing ring; code 0 in HPL.dat.
    #[serde(rename = "1ring")]
    OneRing,
    /// Increasing ring that spares the next panel's owner; code 1 in HPL.dat.
    #[serde(rename = "1ringM")]
    OneRingM,
    /// Two rings; code 2 in HPL.dat.
    #[serde(rename = "2ring")]
    TwoRing,
    /// Two rings that spare the next panel's owner; code 3 in HPL.dat.
    #[serde(rename = "2ringM")]
    TwoRingM,
    /// Spread and roll ("long"); code 4 in HPL.dat.
    #[serde(rename = "long")]
    Long,
    /// Spread and roll that spares the next panel's owner; code 5 in HPL.dat.
    #[serde(rename = "longM")]
    LongM,
}

/// How rows are exchanged along a process column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Swap {
    /// Recursive doubling; code 0 in HPL.dat.
    BinaryExchange,
    /// Spread and roll ("long"); code 1 in HPL.dat.
    SpreadRoll,
    /// Spread-roll above the threshold number of local columns; code 2 in HPL.dat.
    Mix,
}

/// The form in which the reference stores L1 or U.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "bool", into = "bool")]
pub enum Form {
    /// Transposed; code 0 in HPL.dat.
    Transposed,
    /// As the matrix is; code 1 in HPL.dat.
    NoTransposed,
}

impl From<bool> for Form {
    fn from(transposed: bool) -> Self {
        if transposed { Self::Transposed } else { Self::NoTransposed }
    }
}

impl From<Form> for bool {
    fn from(form: Form) -> bool {
        form == Form::Transposed
    }
}

/// The generator of the matrix's random numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Generator {
    /// The reference's linear congruential generator, bit for bit.
    Hpl,
    /// xoshiro256++, seeded for each element.
    Xoshiro,
}

/// The matrix of HPL-MxP, which is to be factored without pivoting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MxpMatrix {
    /// A product of triangles with a chosen condition number (Fasi and Higham, SIAM J. Matrix
    /// Anal. Appl. 2021).
    FasiHigham,
    /// HPL's random matrix with a scaled diagonal.
    Scaled,
    /// HPL's random matrix with a strictly dominant diagonal, for tests.
    Dominant,
}

/// The precision of the operands of HPL-MxP's matrix products, whose sums are in single precision.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GemmPrecision {
    /// Single precision: SGEMM.
    #[default]
    Fp32,
    /// Operands rounded to bf16, multiplied by a library for this format.
    Bf16,
    /// Operands rounded to bf16, multiplied by SGEMM: the factors of `Bf16` but for the order of
    /// its sums, at the rate of single precision.
    #[serde(rename = "bf16-emulated")]
    EmulatedBf16,
}

impl GemmPrecision {
    /// Whether operands are rounded to a format shorter than single precision.
    pub fn is_rounded(self) -> bool {
        self != Self::Fp32
    }
}

/// How a solution of HPL-MxP was refined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Refinement {
    /// Classic iterative refinement.
    Classic,
    /// GMRES, preconditioned by the factors.
    Gmres,
}

/// How ranks of a node exchange panels and rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// If all ranks of a process row (or column) share a node, they read panels (or rows and
    /// pivots) in each other's memory; otherwise they send messages.
    Shared,
    /// All ranks send MPI messages.
    Messages,
}

/// Whether the solver's threads are pinned to cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pin {
    /// Each thread is pinned to a core that no other process is pinned to.
    Auto,
    /// The system moves threads as it likes.
    None,
}

/// Gives an enumeration, whose values are in the order of their HPL.dat codes, the names of each
/// value in TOML and on the command line: the first is the one that is written.
macro_rules! coded {
    ($type:ident { $($value:ident: $name:literal $(| $alias:literal)*),+ $(,)? }) => {
        named!($type { $($value: $name $(| $alias)*),+ });

        impl $type {
            /// The code in HPL.dat.
            pub fn code(self) -> usize {
                self as usize
            }
        }

        /// The value of code 0.
        impl Default for $type {
            fn default() -> Self {
                Self::ALL[0]
            }
        }
    };
}

coded!(Pmap { RowMajor: "row" | "row-major", ColumnMajor: "column" | "column-major" });
coded!(Fact { Left: "left", Crout: "crout", Right: "right" });
coded!(Bcast {
    OneRing: "1ring" | "1rg",
    OneRingM: "1ringM" | "1rM",
    TwoRing: "2ring" | "2rg",
    TwoRingM: "2ringM" | "2rM",
    Long: "long" | "Blong" | "Lng",
    LongM: "longM" | "BlongM" | "LnM",
});
coded!(Swap {
    BinaryExchange: "binary-exchange" | "bin-exch",
    SpreadRoll: "spread-roll" | "long",
    Mix: "mix"
});
coded!(Form { Transposed: "transposed", NoTransposed: "no-transposed" });
coded!(Generator { Hpl: "hpl", Xoshiro: "xoshiro" });
named!(MxpMatrix { FasiHigham: "fasi-higham", Scaled: "scaled", Dominant: "dominant" });
named!(GemmPrecision { Fp32: "fp32", Bf16: "bf16", EmulatedBf16: "bf16-emulated" });
named!(Refinement { Classic: "classic", Gmres: "gmres" });
coded!(Transport { Shared: "shared", Messages: "messages" });
coded!(Pin { Auto: "auto", None: "none" | "off" });

/// The part of the matrix that a checkpoint saves (Tang et al., TPDS 2018, figure 14).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Region {
    /// The rows and columns that have changed since the last checkpoint.
    Corner,
    /// All rows of the columns that have changed.
    Side,
    /// The whole matrix.
    Whole,
}

named!(Region { Corner: "corner", Side: "side", Whole: "whole" });

/// Whether parities are computed while the solver continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Overlap {
    /// Parities are computed in the background where a group computes them in a ring of messages,
    /// which the network moves, or where a core is kept for it.
    Auto,
    /// Parities are computed in the background.
    On,
    /// The solver waits for parities.
    Off,
}

named!(Overlap { Auto: "auto", On: "on", Off: "off" });

/// What happens after the loss of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnLoss {
    /// All ranks end, and the same command continues the run.
    Restart,
    /// The job continues with a spare rank in the position of the lost one.
    Recover,
    /// The job continues with the checksum column in the position of the lost rank's process
    /// column.
    Replace,
}

impl OnLoss {
    /// Whether the job continues after the loss of a rank.
    pub fn is_outlived(self) -> bool {
        self != Self::Restart
    }
}

named!(OnLoss { Restart: "restart", Recover: "recover", Replace: "replace" });
