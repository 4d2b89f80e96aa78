//! The interface of the protocol to an erasure code.

/// How to rebuild one data block: as the sum of these multiples of the surviving blocks of its
/// stripe, `sum_j from_data[j] data_j + sum_i from_parity[i] parity_i`.
#[derive(Debug, Clone, PartialEq)]
pub struct Rebuild<T> {
    /// Index of the lost data block.
    pub block: usize,
    /// One coefficient per data block; zero for lost ones.
    pub from_data: Vec<T>,
    /// One coefficient per parity; zero for lost and unneeded ones.
    pub from_parity: Vec<T>,
}

/// A linear code: `parity_p = sum_i coef(p, i) data_i` (Chen and Dongarra,
/// "A scalable checkpoint encoding algorithm", eq. 3).
pub trait Code: Sized {
    /// The factor of a block.
    type Coef: Copy;

    /// The name of the code; codes that give different bytes have different names.
    fn name(&self) -> String;

    /// This code for stripes of `data` data blocks and `parities` parities.
    ///
    /// # Errors
    /// When the code does not allow that shape; the message says which shapes it allows.
    fn shaped(&self, data: usize, parities: usize) -> Result<Self, String>;

    /// The factor of data block `data` in parity `parity`.
    fn encode_coef(&self, parity: usize, data: usize) -> Self::Coef;

    /// The coefficient 1.
    fn one(&self) -> Self::Coef;

    /// Whether a block times this coefficient is the block itself.
    fn is_one(&self, coef: Self::Coef) -> bool;

    /// Whether a block times this coefficient is zero.
    fn is_zero(&self, coef: Self::Coef) -> bool;

    /// `dst = coef * src`, for slices of one length.
    fn mul(&self, coef: Self::Coef, src: &[u8], dst: &mut [u8]);

    /// `dst += coef * src`, for slices of one length.
    fn fma(&self, coef: Self::Coef, src: &[u8], dst: &mut [u8]);

    /// How to rebuild these data blocks when these parities are lost, too. At most as many blocks
    /// are lost as there are parities.
    fn rebuild_plan(&self, lost_data: &[usize], lost_parity: &[usize]) -> Vec<Rebuild<Self::Coef>>;
}
