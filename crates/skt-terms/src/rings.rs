//! The rings along which a panel travels (HPL_bcast).

use crate::choice::Bcast;

/// Relative ranks at which a ring begins, first come first served. The rank before each
/// of them, and the last one, do not forward.
pub fn ring_heads(topology: Bcast, size: usize) -> Vec<usize> {
    let heads = match topology {
        Bcast::OneRing => vec![1],
        Bcast::OneRingM => vec![1, 2],
        Bcast::TwoRing => vec![1, size.div_ceil(2)],
        Bcast::TwoRingM => vec![1, 2, 2 + (size.max(2) - 2).div_ceil(2)],
        Bcast::Long => vec![],
        // The next panel's owner gets the whole; the others spread and roll.
        Bcast::LongM => vec![1],
    };
    let mut seen = Vec::new();
    for head in heads {
        if head < size && !seen.contains(&head) {
            seen.push(head);
        }
    }
    seen
}
