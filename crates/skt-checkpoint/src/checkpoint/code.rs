//! What the protocol asks of an erasure code.

/// How to get one data block back: the sum of these multiples of the surviving
/// blocks of its stripe, `sum_j from_data[j] data_j + sum_i from_parity[i] parity_i`.
#[derive(Debug, Clone, PartialEq)]
pub struct Rebuild<T> {
    /// Index of the lost data block.
    pub block: usize,
    /// One coefficient a data block; zero for the lost ones.
    pub from_data: Vec<T>,
    /// One coefficient a parity; zero for the lost and the unneeded ones.
    pub from_parity: Vec<T>,
}

/// A linear code: `parity_p = sum_i coef(p, i) data_i` (Chen and Dongarra,
/// "A scalable checkpoint encoding algorithm", eq. 3).
pub trait Code: Sized {
    /// What a block is multiplied with.
    type Coef: Copy;

    /// Name of the code; codes that do not give the same bytes differ in it.
    fn name(&self) -> String;

    /// The same code for stripes of `data` data blocks and `parities` parities.
    ///
    /// # Errors
    /// When it does not reach that far; the message says how far it reaches.
    fn shaped(&self, data: usize, parities: usize) -> Result<Self, String>;

    /// What data block `data` is multiplied with in parity `parity`.
    fn encode_coef(&self, parity: usize, data: usize) -> Self::Coef;

    /// The coefficient 1.
    fn one(&self) -> Self::Coef;

    /// Whether a block with this coefficient is as it is.
    fn is_one(&self, coef: Self::Coef) -> bool;

    /// Whether a block with this coefficient adds nothing.
    fn is_zero(&self, coef: Self::Coef) -> bool;

    /// `dst = coef * src`, for slices of one length.
    fn mul(&self, coef: Self::Coef, src: &[u8], dst: &mut [u8]);

    /// `dst += coef * src`, for slices of one length.
    fn fma(&self, coef: Self::Coef, src: &[u8], dst: &mut [u8]);

    /// How to get these data blocks back while these parities are lost too. In
    /// all no more are lost than there are parities.
    fn rebuild_plan(&self, lost_data: &[usize], lost_parity: &[usize]) -> Vec<Rebuild<Self::Coef>>;
}
