//! Section 4.2: what checkpoints leave of the memory.
//!
//! The paper has one parity; with m parities, the parities of M bytes take m M/(n-m) instead of
//! M/(n-1), and the rest follows. The elimination with checksums, which the paper does not have,
//! keeps no copy, and its checksums count as a parity.

use skt_host::named;

use crate::Group;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protocol {
    None,
    /// One copy, one parity; a loss while they are updated is fatal (fig. 6).
    Single,
    /// Two copies, each with a parity (fig. 7).
    Double,
    /// One copy, two parities: the workspace is the second copy (fig. 8).
    SelfCheckpoint,
    /// No copy: the elimination itself carries checksum columns. A group is a process row of Q + m
    /// processes, of which m have checksums.
    Abft,
}

// The names, in the paper's order, followed by the protocol that the paper does not have.
named!(Protocol {
    None: "none",
    Single: "single",
    Double: "double",
    SelfCheckpoint: "self",
    Abft: "abft",
});

impl Protocol {
    pub fn takes_checkpoints(self) -> bool {
        !matches!(self, Self::None | Self::Abft)
    }

    /// Number of copies of the data besides the workspace, and number of parities.
    fn copies(self) -> (f64, f64) {
        match self {
            Self::None => (0.0, 0.0),
            Self::Single => (1.0, 1.0),
            Self::Double => (2.0, 2.0),
            Self::SelfCheckpoint => (1.0, 2.0),
            Self::Abft => (0.0, 1.0),
        }
    }

    /// The share of the memory that is left to the application.
    ///
    /// Tang et al., TPDS 2018, eq. 6 to 8 for m = 1; in general
    /// `1 / (1 + copies + parities m/(n-m))`, that is
    /// - self: `(n-m) / (2n)`,
    /// - double: `(n-m) / (3n-m)`,
    /// - single: `(n-m) / (2n-m)`,
    /// - abft: `(n-m) / n`, that is `Q / (Q + m)`,
    /// - none: 1.
    pub fn available_fraction(self, group: Group) -> f64 {
        let (copies, parities) = self.copies();
        1.0 / (1.0 + copies + parities * group.parity_ratio())
    }

    /// Divides `total_bytes` of a process.
    pub fn split(self, group: Group, total_bytes: f64) -> MemorySplit {
        let (copies, parities) = self.copies();
        let workspace_bytes = total_bytes * self.available_fraction(group);
        MemorySplit {
            workspace_bytes,
            copies_bytes: copies * workspace_bytes,
            parities_bytes: parities * workspace_bytes * group.parity_ratio(),
        }
    }
}

/// The memory of a process by content, in bytes (Tang et al., TPDS 2018, table 1: A1+A2, B, C+D).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MemorySplit {
    pub workspace_bytes: f64,
    pub copies_bytes: f64,
    pub parities_bytes: f64,
}

impl MemorySplit {
    pub fn total_bytes(&self) -> f64 {
        self.workspace_bytes + self.copies_bytes + self.parities_bytes
    }
}
