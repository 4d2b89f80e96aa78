//! The binary tree along which `count` members spread pieces from member 0.
//!
//! A member `t > 0` hangs below `t` with its lowest set bit cleared, so the
//! members below each are a contiguous range that begins with it.

use std::ops::Range;

/// Width of the range at which member `t` begins to halve.
fn span(count: usize, t: usize) -> usize {
    if t == 0 { count.next_power_of_two() } else { 1 << t.trailing_zeros() }
}

/// The member that `t` gets its pieces from; none for member 0.
pub fn parent(t: usize) -> Option<usize> {
    (t > 0).then(|| t & (t - 1))
}

/// Member `t` and all below it.
pub fn subtree(count: usize, t: usize) -> Range<usize> {
    t..(t + span(count, t)).min(count)
}

/// The members right below `t`, those with the most below them first.
pub fn children(count: usize, t: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(span(count, t) / 2), |half| Some(half / 2))
        .take_while(|&half| half > 0)
        .map(move |half| t + half)
        .filter(move |&child| child < count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subtrees_of_children_make_up_a_subtree() {
        for count in 1..40 {
            for t in 0..count {
                let mut covered: Vec<usize> = vec![t];
                for child in children(count, t) {
                    assert_eq!(parent(child), Some(t));
                    covered.extend(subtree(count, child));
                }
                covered.sort_unstable();
                assert_eq!(covered, subtree(count, t).collect::<Vec<_>>());
            }
            assert_eq!(subtree(count, 0), 0..count);
        }
    }
}
