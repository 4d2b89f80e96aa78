use super::ModelError;

/// `size` members of which any `parities` may be lost at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group {
    size: usize,
    parities: usize,
}

impl Group {
    /// A group of `size` >= 2 members with 1 <= `parities` <= `size`/2.
    pub fn new(size: usize, parities: usize) -> Result<Self, ModelError> {
        if size < 2 || parities < 1 || 2 * parities > size {
            return Err(ModelError(format!(
                "a group of {size} with {parities} parities is impossible: a group has at least 2 \
                 members and between 1 and size/2 parities"
            )));
        }
        Ok(Self { size, parities })
    }

    pub fn size(self) -> usize {
        self.size
    }

    pub fn parities(self) -> usize {
        self.parities
    }

    /// Parity bytes per byte of data: `m / (n - m)`.
    pub(crate) fn parity_ratio(self) -> f64 {
        self.parities as f64 / (self.size - self.parities) as f64
    }
}
