//! The sizes of blocks, by the caches of this machine.

use std::sync::OnceLock;

use skt_host::counters::{Root, topology};

/// Rows of A and columns of B that are packed at a time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Blocks {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

#[derive(Debug, Clone, Copy)]
struct Budget {
    a: usize,
    b: usize,
}

/// A core's share of its second and third level where the system reports none: those of the
/// smallest server processors of the last ten years.
const DEFAULT: [u64; 2] = [512 << 10, 2 << 20];
/// A work space of more does not pay: a block of A is used for as many columns of B.
const MAX_B: u64 = 4 << 20;

impl Budget {
    fn here() -> Self {
        static HERE: OnceLock<Budget> = OnceLock::new();
        *HERE.get_or_init(|| {
            let root = Root::this_machine();
            let share = |level| topology::bytes_per_core(&root, level);
            Self::for_caches(share(2), share(3))
        })
    }

    /// Half of the second level is for A, half of the third for B; the rest is for what streams
    /// through.
    fn for_caches(second: Option<u64>, third: Option<u64>) -> Self {
        let second = second.unwrap_or(DEFAULT[0]).clamp(128 << 10, 4 << 20);
        let third = third.unwrap_or(DEFAULT[1]).clamp(second, 2 * MAX_B);
        Self { a: second as usize / 2, b: third as usize / 2 }
    }
}

impl Blocks {
    /// Blocks of numbers of `bytes` bytes, `depth` deep, in whole tiles of `tile` rows and columns.
    pub(crate) fn here(bytes: usize, depth: usize, tile: (usize, usize)) -> Self {
        Self::within(Budget::here(), bytes, depth, tile)
    }

    fn within(budget: Budget, bytes: usize, depth: usize, tile: (usize, usize)) -> Self {
        let lines = |budget: usize, width: usize| (budget / (bytes * depth) / width).max(1) * width;
        Self { rows: lines(budget.a, tile.0), columns: lines(budget.b, tile.1) }
    }
}

/// The length of equal parts of `whole`, as few as possible of at most `max`, multiples of `grain`.
pub(crate) fn equal_parts(whole: usize, max: usize, grain: usize) -> usize {
    whole.div_ceil(whole.div_ceil(max).max(1)).next_multiple_of(grain).max(grain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_whole_tiles_within_the_caches() {
        for second in [None, Some(0), Some(256 << 10), Some(1 << 20), Some(1 << 40)] {
            for third in [None, Some(0), Some(4 << 20), Some(1 << 40)] {
                let budget = Budget::for_caches(second, third);
                let Blocks { rows, columns } = Blocks::within(budget, 8, 256, (24, 8));
                assert_eq!((rows % 24, columns % 8), (0, 0));
                assert!((24..=1024).contains(&rows), "{rows}");
                assert!((32..=2048).contains(&columns), "{columns}");
            }
        }
    }

    #[test]
    fn parts_are_equal_and_no_longer_than_the_longest() {
        assert_eq!(equal_parts(384, 256, 1), 192);
        assert_eq!(equal_parts(256, 256, 1), 256);
        assert_eq!(equal_parts(257, 256, 1), 129);
        assert_eq!(equal_parts(1000, 480, 24), 336);
        assert_eq!((equal_parts(0, 480, 24), equal_parts(1, 480, 24)), (24, 24));
        for whole in 1..2000 {
            assert!(equal_parts(whole, 480, 24) <= 480);
        }
    }
}
