//! Trees of processes: 0 is the root.

use std::ops::Range;

/// Which of `size` processes are linked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tree {
    /// The parent of `t > 0` is `t` with its lowest set bit cleared, so each subtree is a
    /// contiguous range that begins with its root.
    Binomial,
    /// The children of `t` are `2t + 1` and `2t + 2`.
    Binary,
}

impl Tree {
    /// The parent of `t`; `None` for the root.
    pub fn parent(self, t: usize) -> Option<usize> {
        let above = t.checked_sub(1)?;
        Some(match self {
            Self::Binomial => t & above,
            Self::Binary => above / 2,
        })
    }

    /// The children of `t`, in ascending order: those with the smallest subtrees of a binomial tree
    /// first.
    pub fn children(self, t: usize, size: usize) -> impl DoubleEndedIterator<Item = usize> {
        let most = match self {
            Self::Binomial => span(t, size).trailing_zeros(),
            Self::Binary => 2,
        };
        let child = move |i| match self {
            Self::Binomial => t + (1usize << i),
            Self::Binary => 2 * t + 1 + i as usize,
        };
        (0..most).map(child).filter(move |&child| child < size)
    }
}

/// Number of places in the subtree of `t` in the full binomial tree that has `size` processes.
fn span(t: usize, size: usize) -> usize {
    if t == 0 { size.next_power_of_two() } else { 1 << t.trailing_zeros() }
}

/// Process `t` of a binomial tree and all below it.
pub(crate) fn binomial_subtree(t: usize, size: usize) -> Range<usize> {
    t..(t + span(t, size)).min(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_and_children_agree_on_trees_of_all_sizes() {
        for tree in [Tree::Binomial, Tree::Binary] {
            for size in 1..40 {
                for t in 0..size {
                    assert_eq!(tree.parent(t).is_none(), t == 0);
                    if let Some(parent) = tree.parent(t) {
                        assert!(parent < t && tree.children(parent, size).any(|child| child == t));
                    }
                    let children: Vec<_> = tree.children(t, size).collect();
                    assert!(children.is_sorted());
                    assert!(children.into_iter().all(|child| tree.parent(child) == Some(t)));
                }
            }
        }
    }

    #[test]
    fn subtrees_of_children_make_up_a_subtree() {
        for size in 1..40 {
            for t in 0..size {
                let mut covered = vec![t];
                for child in Tree::Binomial.children(t, size) {
                    covered.extend(binomial_subtree(child, size));
                }
                assert_eq!(covered, binomial_subtree(t, size).collect::<Vec<_>>());
            }
            assert_eq!(binomial_subtree(0, size), 0..size);
        }
    }
}
