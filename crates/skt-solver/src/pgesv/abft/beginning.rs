//! Where a start of the elimination with checksums resumes, and the fault that a test injects.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flip {
    /// The element's row among the rank's rows, and its column from the first one that is not
    /// eliminated; each modulo their number.
    pub place: (usize, usize),
    /// The bit, 0 to 63.
    pub bit: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Beginning {
    pub panel: usize,
    pub rebuilt: Vec<usize>,
    /// The process column that the checksums have replaced, if any.
    pub replaced: Option<usize>,
    /// How many ranks took back what they had computed of that panel.
    pub undone: usize,
    pub is_solved: bool,
    /// Process rows with decoded data that could not be checked, in this start or earlier.
    pub unverified: Vec<Unverified>,
}

/// A process row of which something was decoded while no checksum was left to check with. An error
/// that the other ranks of the row had at that time is in the decoded data, too, and in x.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unverified {
    pub row: usize,
    /// The eliminated columns at the first such decoding and at the last.
    pub columns: (usize, usize),
}
