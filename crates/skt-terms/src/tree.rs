//! The binary tree along which `count` members spread pieces from member 0.
//!
//! The parent of a member `t > 0` is `t` with its lowest set bit cleared, so each subtree is a
//! contiguous range that begins with its root.

use std::ops::Range;

/// The width of the range that member `t` begins to halve.
fn span(count: usize, t: usize) -> usize {
    if t == 0 { count.next_power_of_two() } else { 1 << t.trailing_zeros() }
}

/// The member from which `t` gets its pieces; `None` for member 0.
pub fn parent(t: usize) -> Option<usize> {
    (t > 0).then(|| t & (t - 1))
}

/// Member `t` and all members below it.
pub fn subtree(count: usize, t: usize) -> Range<usize> {
    t..(t + span(count, t)).min(count)
}

/// The direct children of `t`, those with the largest subtrees first.
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
