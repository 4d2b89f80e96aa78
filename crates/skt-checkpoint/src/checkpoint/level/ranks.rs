//! Ranks that share a file of images.

use std::fmt;
use std::str::FromStr;

/// The largest number of ranks that share a file.
const MOST: usize = 1 << 16;

/// Ranks at equal distances, rising; in the name of a file `3`, `0-63`, or `0-960by64`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpacedRanks {
    first: usize,
    /// Distance from one to the next; 1 for a single rank.
    step: usize,
    count: usize,
}

impl SpacedRanks {
    /// A single rank.
    pub fn alone(rank: usize) -> Self {
        Self { first: rank, step: 1, count: 1 }
    }

    /// Cuts `ranks`, which rise, where the distance changes: a block placement gives one piece.
    pub(crate) fn cut(ranks: &[usize]) -> Vec<Self> {
        assert!(ranks.is_sorted_by(|a, b| a < b), "{ranks:?}");
        let mut pieces: Vec<Self> = Vec::new();
        for &rank in ranks {
            match pieces.last_mut() {
                Some(piece) if piece.count == 1 => {
                    (piece.step, piece.count) = (rank - piece.first, 2);
                }
                Some(piece) if piece.count < MOST && rank == piece.last() + piece.step => {
                    piece.count += 1;
                }
                _ => pieces.push(Self::alone(rank)),
            }
        }
        pieces
    }

    /// The lowest rank.
    pub fn first(&self) -> usize {
        self.first
    }

    fn last(&self) -> usize {
        self.first + self.step * (self.count - 1)
    }

    /// The number of ranks: at least one.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The ranks, in rising order.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (self.first..).step_by(self.step).take(self.count)
    }

    /// Whether `rank` is one of them.
    pub fn contains(&self, rank: usize) -> bool {
        self.place_of(rank).is_some()
    }

    /// The number of these ranks below `rank`; `None` if `rank` is none of them.
    pub fn place_of(&self, rank: usize) -> Option<usize> {
        let distance = rank.checked_sub(self.first)?;
        let place = distance / self.step;
        (distance.is_multiple_of(self.step) && place < self.count).then_some(place)
    }
}

impl fmt::Display for SpacedRanks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, step, count } = self;
        match (count, step) {
            (1, _) => write!(f, "{first}"),
            (_, 1) => write!(f, "{first}-{}", self.last()),
            _ => write!(f, "{first}-{}by{step}", self.last()),
        }
    }
}

/// The error for text that names no ranks, or not as [`SpacedRanks`] writes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoRanks;

impl FromStr for SpacedRanks {
    type Err = NoRanks;

    fn from_str(text: &str) -> Result<Self, NoRanks> {
        let number = |text: &str| text.parse::<usize>().map_err(|_| NoRanks);
        let (ends, step) = text.split_once("by").unwrap_or((text, "1"));
        let (first, last) = ends.split_once('-').unwrap_or((ends, ends));
        let (first, last, step) = (number(first)?, number(last)?, number(step)?);
        let distance = last.checked_sub(first).ok_or(NoRanks)?;
        let steps = distance.checked_div(step).filter(|&steps| steps < MOST).ok_or(NoRanks)?;
        let ranks = Self { first, step, count: steps + 1 };
        // Each set of ranks has only one spelling.
        (ranks.to_string() == text).then_some(ranks).ok_or(NoRanks)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn placements_by_blocks_and_in_turns_are_one_piece() {
        for (ranks, text) in [
            ((64..128).collect(), "64-127"),
            ((3..64000).step_by(1000).collect(), "3-63003by1000"),
            (vec![7], "7"),
            (vec![2, 9], "2-9by7"),
        ] {
            let pieces = SpacedRanks::cut(&ranks);
            assert_eq!(pieces.iter().map(ToString::to_string).collect::<Vec<_>>(), [text]);
            assert!(pieces[0].iter().eq(ranks));
        }
        let pieces = SpacedRanks::cut(&[0, 1, 2, 3, 12, 13]);
        assert_eq!(pieces.iter().map(ToString::to_string).collect::<Vec<_>>(), ["0-3", "12-13"]);
    }

    #[test]
    fn invalid_rank_lists_are_refused() {
        for text in [
            "",
            "-",
            "x",
            "01",
            "+1",
            "3-3",
            "4-3",
            "0-4by3",
            "0-4by0",
            "0-4by1",
            "0-4by4by",
            "1by1",
            "0-65536",
            "0-18446744073709551615",
            "1-",
            "0-3 ",
        ] {
            assert_eq!(text.parse::<SpacedRanks>(), Err(NoRanks), "{text}");
        }
        assert_eq!("0-65535".parse::<SpacedRanks>().map(|ranks| ranks.count()), Ok(65536));
    }

    proptest! {
        #[test]
        fn each_rank_is_in_one_piece_at_its_place(
            ranks in prop::collection::btree_set(0usize..200, 1..40),
        ) {
            let ranks: Vec<usize> = ranks.into_iter().collect();
            let pieces = SpacedRanks::cut(&ranks);
            let all: Vec<usize> = pieces.iter().flat_map(|piece| piece.iter()).collect();
            prop_assert_eq!(&all, &ranks);
            for piece in &pieces {
                prop_assert_eq!(piece.to_string().parse(), Ok(*piece));
                for rank in 0..201 {
                    prop_assert_eq!(piece.place_of(rank), piece.iter().position(|r| r == rank));
                }
            }
        }
    }
}
