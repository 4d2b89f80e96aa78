use std::ops::Range;

/// A piece of a block: rows, counted from the block's first, and bytes of each row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct Tile {
    pub(super) rows: Range<usize>,
    pub(super) bytes: Range<usize>,
}

impl Tile {
    pub(super) fn size(&self) -> usize {
        self.rows.len() * self.bytes.len()
    }

    pub(super) fn bytes_of(&self, block: &Range<usize>) -> usize {
        self.rows_of(block.clone()).last().map_or(0, |(_, at)| at.end)
    }

    /// The tile's rows that the block has, as (row of the area, bytes of the buffer).
    pub(super) fn rows_of(
        &self,
        block: Range<usize>,
    ) -> impl Iterator<Item = (usize, Range<usize>)> + use<> {
        let width = self.bytes.len();
        let first = self.rows.start;
        let rows = first..self.rows.end.min(block.len()).max(first);
        rows.map(move |row| {
            let at = (row - first) * width;
            (block.start + row, at..at + width)
        })
    }
}

/// Cuts `height` rows of `bytes` into tiles of about `message_bytes`, each of whole cells of
/// `cell_bytes`, since a checksum needs its whole cell at once.
pub(super) fn tiles(
    height: usize,
    bytes: Range<usize>,
    message_bytes: usize,
    cell_bytes: usize,
) -> Vec<Tile> {
    if bytes.is_empty() {
        return Vec::new();
    }
    let width = bytes.len().min(message_bytes.next_multiple_of(cell_bytes));
    let rows = (message_bytes / width).max(1);
    let mut tiles = Vec::new();
    for row in (0..height).step_by(rows) {
        for byte in bytes.clone().step_by(width) {
            tiles.push(Tile {
                rows: row..(row + rows).min(height),
                bytes: byte..(byte + width).min(bytes.end),
            });
        }
    }
    tiles
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_cover_a_block_once() {
        for (height, bytes, segment) in
            [(5, 0..64, 128), (3, 8..200, 64), (1, 0..8, 1), (7, 16..24, 1 << 20), (2, 8..8, 64)]
        {
            let mut seen = vec![0; height * bytes.end];
            for tile in tiles(height, bytes.clone(), segment, 64) {
                assert!(tile.size() <= segment.next_multiple_of(64).max(bytes.len().min(64)));
                for row in tile.rows {
                    for byte in tile.bytes.clone() {
                        seen[row * bytes.end + byte] += 1;
                    }
                }
            }
            for (at, count) in seen.into_iter().enumerate() {
                assert_eq!(count, usize::from(bytes.contains(&(at % bytes.end))));
            }
        }
    }
}
