//! Erasure codes, which compute parities of blocks and rebuild lost blocks from them.
//!
//! A stripe has `k` data blocks and `m` parities, `parity_i = sum_j g_ij data_j` (Chen et al.,
//! "Scalable checkpoint encoding", eq. 3). Three codes share one interface and differ in their
//! arithmetic:
//!
//! | code | arithmetic | parities | rebuilt data |
//! |---|---|---|---|
//! | XOR | bits | 1 | bit-exact |
//! | SUM | doubles | 1 | up to rounding |
//! | Reed-Solomon | GF(2^8), Cauchy matrix | any | bit-exact |
//!
//! [`Codec`] knows the coefficients; [`fma`] and [`mul`] work on the bytes. docs/codec.md has the
//! mathematics and the measurements.

mod bulk;
pub(crate) mod gf256;
pub mod kernel;
mod matrix;

use serde::{Deserialize, Serialize};
use skt_host::named;
use skt_host::units::counted;

pub use bulk::{checksum, copy, copy_summed};
pub use kernel::{fma, mul};

/// A kind of erasure code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CodecKind {
    /// Exclusive or: one parity, bit-exact.
    Xor,
    /// Sum of doubles: one parity, rebuilt up to rounding; for finite doubles only.
    Sum,
    /// Reed-Solomon over GF(2^8): any number of parities, bit-exact.
    ReedSolomon,
}

named!(CodecKind { Xor: "xor", Sum: "sum", ReedSolomon: "reed-solomon" | "rs" });

/// Why a code cannot be built, or cannot rebuild a stripe.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages describe the fields")]
pub enum CodecError {
    /// The code does not allow this shape.
    #[error(
        "a stripe of {} and {}: {kind} needs at least one data block and {legal}",
        counted(*data, "data block"), counted(*parities, "parity")
    )]
    Shape { kind: CodecKind, data: usize, parities: usize, legal: &'static str },
    /// More blocks are lost than there are parities.
    #[error(
        "{} and {} of a stripe are lost, and it survives the loss of {} in all",
        counted(*lost_data, "data block"), counted(*lost_parities, "parity"),
        counted(*parities, "block")
    )]
    TooManyLost { lost_data: usize, lost_parities: usize, parities: usize },
    /// A block is named twice, or the stripe does not have it.
    #[error("lost {what} block {index} is named twice or lies outside 0..{count}")]
    BadIndex { what: &'static str, index: usize, count: usize },
}

/// The factor of a block, in the arithmetic of its code.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Coef {
    /// An element of GF(2^8); with 1 a product and sum is a plain XOR.
    Gf(u8),
    /// A real number.
    Real(f64),
}

impl Coef {
    /// Whether a block with this coefficient adds nothing.
    pub fn is_zero(self) -> bool {
        match self {
            Self::Gf(c) => c == 0,
            Self::Real(c) => c == 0.0,
        }
    }
}

/// An erasure code for one shape of stripes.
#[derive(Debug, Clone, PartialEq)]
pub struct Codec {
    kind: CodecKind,
    data: usize,
    parities: usize,
}

/// How to rebuild one data block: as the sum of these multiples of the surviving blocks of its
/// stripe, `sum_j from_data[j] data_j + sum_i from_parity[i] parity_i`.
#[derive(Debug, Clone, PartialEq)]
pub struct Rebuild {
    /// Index of the lost data block.
    pub block: usize,
    /// One coefficient per data block; zero for lost ones.
    pub from_data: Vec<Coef>,
    /// One coefficient per parity; zero for lost and unneeded ones.
    pub from_parity: Vec<Coef>,
}

/// How to rebuild all lost blocks of a stripe.
#[derive(Debug, Clone, PartialEq)]
pub struct RebuildPlan {
    /// One entry per lost data block, in rising order. Each block is rebuilt from survivors alone,
    /// so their order does not matter.
    pub data: Vec<Rebuild>,
    /// Lost parities, in rising order, to be encoded again once all data blocks are rebuilt.
    pub parities: Vec<usize>,
}

impl Codec {
    /// A code for stripes of `members_data` data blocks and `parities` parities.
    ///
    /// # Errors
    /// [`CodecError::Shape`] when there is no data block or no parity, except for a block alone,
    /// when XOR or SUM is asked for more than one parity, or Reed-Solomon for more than 255 blocks
    /// in all.
    pub fn new(kind: CodecKind, members_data: usize, parities: usize) -> Result<Self, CodecError> {
        let (fits, legal) = match kind {
            CodecKind::Xor | CodecKind::Sum => (parities == 1, "exactly one parity"),
            CodecKind::ReedSolomon => (
                parities >= 1 && members_data.saturating_add(parities) <= 255,
                "at least one parity, 255 blocks in all at most",
            ),
        };
        let is_alone = members_data == 1 && parities == 0;
        if members_data == 0 || !(fits || is_alone) {
            return Err(CodecError::Shape { kind, data: members_data, parities, legal });
        }
        Ok(Self { kind, data: members_data, parities })
    }

    /// The kind of the code.
    pub fn kind(&self) -> CodecKind {
        self.kind
    }

    /// Data blocks in a stripe.
    pub fn data(&self) -> usize {
        self.data
    }

    /// Parities of a stripe.
    pub fn parities(&self) -> usize {
        self.parities
    }

    /// The coefficient 1.
    pub fn one(&self) -> Coef {
        match self.kind {
            CodecKind::Sum => Coef::Real(1.0),
            CodecKind::Xor | CodecKind::ReedSolomon => Coef::Gf(1),
        }
    }

    /// Whether a block times this coefficient is the block itself.
    pub fn is_one(&self, coef: Coef) -> bool {
        coef == self.one()
    }

    /// The factor of data block `data` in parity `parity`. Never zero.
    ///
    /// # Panics
    /// When the stripe has no such block.
    pub fn encode_coef(&self, parity: usize, data: usize) -> Coef {
        assert!(parity < self.parities && data < self.data, "no block ({parity}, {data})");
        match self.kind {
            CodecKind::Xor => Coef::Gf(1),
            CodecKind::Sum => Coef::Real(1.0),
            CodecKind::ReedSolomon => Coef::Gf(matrix::cauchy(parity, data)),
        }
    }

    /// How to rebuild the lost blocks of a stripe from the others.
    ///
    /// With L the lost data blocks, S the surviving ones and R as many surviving parities as L has
    /// members, `p_R = G_RL d_L + G_RS d_S`, so `d_L = G_RL^-1 (p_R - G_RS d_S)`.
    ///
    /// # Errors
    /// [`CodecError::TooManyLost`] when more is lost than there are parities;
    /// [`CodecError::BadIndex`] when a block is named twice or does not exist.
    pub fn rebuild_plan(
        &self,
        lost_data: &[usize],
        lost_parity: &[usize],
    ) -> Result<RebuildPlan, CodecError> {
        let lost_data = sorted("data", lost_data, self.data)?;
        let lost_parity = sorted("parity", lost_parity, self.parities)?;
        if lost_data.len() + lost_parity.len() > self.parities {
            return Err(CodecError::TooManyLost {
                lost_data: lost_data.len(),
                lost_parities: lost_parity.len(),
                parities: self.parities,
            });
        }
        let data = if self.kind == CodecKind::Sum {
            lost_data.iter().map(|&block| self.rebuild_sum(block)).collect()
        } else {
            self.rebuild_gf(&lost_data, &lost_parity)
        };
        Ok(RebuildPlan { data, parities: lost_parity })
    }

    /// The only lost data block, as the parity minus all other blocks.
    fn rebuild_sum(&self, block: usize) -> Rebuild {
        let coef = |j| Coef::Real(if j == block { 0.0 } else { -1.0 });
        Rebuild {
            block,
            from_data: (0..self.data).map(coef).collect(),
            from_parity: vec![Coef::Real(1.0)],
        }
    }

    fn rebuild_gf(&self, lost_data: &[usize], lost_parity: &[usize]) -> Vec<Rebuild> {
        let used: Vec<usize> =
            (0..self.parities).filter(|i| !lost_parity.contains(i)).take(lost_data.len()).collect();
        let g_rl = used.iter().map(|&i| lost_data.iter().map(|&j| matrix::cauchy(i, j)).collect());
        let inverse = matrix::invert(g_rl.collect())
            .expect("every square part of a Cauchy matrix is invertible");
        let rebuild = |(&block, row): (&usize, &Vec<u8>)| {
            let mut from_parity = vec![0; self.parities];
            let mut from_data = vec![0; self.data];
            for (&i, &scale) in used.iter().zip(row) {
                from_parity[i] = scale;
                for j in (0..self.data).filter(|j| !lost_data.contains(j)) {
                    from_data[j] ^= gf256::mul(scale, matrix::cauchy(i, j));
                }
            }
            Rebuild {
                block,
                from_data: from_data.into_iter().map(Coef::Gf).collect(),
                from_parity: from_parity.into_iter().map(Coef::Gf).collect(),
            }
        };
        lost_data.iter().zip(&inverse).map(rebuild).collect()
    }
}

/// Sorts the indices; an error if one occurs twice or is not below `count`.
fn sorted(what: &'static str, indices: &[usize], count: usize) -> Result<Vec<usize>, CodecError> {
    let mut indices = indices.to_vec();
    indices.sort_unstable();
    let twice = indices.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0]);
    let outside = indices.last().copied().filter(|&last| last >= count);
    match twice.or(outside) {
        Some(index) => Err(CodecError::BadIndex { what, index, count }),
        None => Ok(indices),
    }
}

#[cfg(test)]
mod tests;
