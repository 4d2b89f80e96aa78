//! The rings along which a panel is broadcast (HPL_bcast).

use crate::choice::Bcast;

/// Bytes of a piece of a panel in a ring: large enough that its latency of some microseconds does
/// not count against its transfer over the fastest links, 25 GB/s and more, and a small part of a
/// panel.
const PIECE_BYTES: usize = 1 << 20;
/// The largest number of pieces: more would hardly bring a panel sooner to the last rank of a ring
/// of some hundreds.
const MAX_PIECES: usize = 64;

/// Number of pieces in which a message of `bytes` is sent from one of `size` ranks to all others:
/// one for each rank that it is spread over, or several in rings if a rank forwards them.
pub fn pieces(topology: Bcast, size: usize, bytes: usize) -> usize {
    if let Some(members) = long_members(topology, size) {
        return members.len();
    }
    let is_passed_on = ring_heads(topology, size).len() + 1 < size;
    if is_passed_on { bytes.div_ceil(PIECE_BYTES).clamp(1, MAX_PIECES) } else { 1 }
}

/// The relative ranks over which a long broadcast spreads a message; `None` for rings.
pub fn long_members(topology: Bcast, size: usize) -> Option<Vec<usize>> {
    match topology {
        Bcast::Long => Some((0..size).collect()),
        // The next panel's owner gets the whole message.
        Bcast::LongM => Some((0..size).filter(|&rank| rank != 1).collect()),
        _ => None,
    }
}

/// Relative ranks at which a ring begins, in the order in which they are served. The rank before
/// each of them but the first, and the last rank, do not forward.
pub fn ring_heads(topology: Bcast, size: usize) -> Vec<usize> {
    let heads = match topology {
        Bcast::OneRing => vec![1],
        Bcast::OneRingM => vec![1, 2],
        Bcast::TwoRing => vec![1, size.div_ceil(2)],
        Bcast::TwoRingM => vec![1, 2, 2 + (size.max(2) - 2).div_ceil(2)],
        Bcast::Long => vec![],
        // The next panel's owner gets the whole message; the others spread and roll.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_have_pieces_where_a_rank_passes_them_on() {
        let of_four = |topology, size| pieces(topology, size, 4 * PIECE_BYTES);
        assert_eq!([1, 2, 3].map(|size| of_four(Bcast::OneRing, size)), [1, 1, 4]);
        assert_eq!([2, 3, 4].map(|size| of_four(Bcast::OneRingM, size)), [1, 1, 4]);
        assert_eq!([4, 5].map(|size| of_four(Bcast::TwoRingM, size)), [1, 4]);
        assert_eq!(pieces(Bcast::OneRing, 8, 1000 * PIECE_BYTES), MAX_PIECES);
        assert_eq!(pieces(Bcast::OneRing, 8, 1), 1);
        assert_eq!([1, 2, 5].map(|size| of_four(Bcast::Long, size)), [1, 2, 5]);
        assert_eq!([1, 2, 5].map(|size| of_four(Bcast::LongM, size)), [1, 1, 4]);
    }
}
