//! Copies and checksums of large ranges.

use crate::tuning::TUNING;
use skt_comm::pages;

/// 64-bit checksum (XXH3) of `bytes`, to recognize torn or foreign data. It does not protect
/// against an attacker.
pub fn checksum(bytes: &[u8]) -> u64 {
    twox_hash::XxHash3_64::oneshot(bytes)
}

/// Copies a range that is not read again soon, such as a checkpoint.
///
/// Long ranges are written past the caches: `dst` is then not read into them first, which saves a
/// third of the memory traffic. These writes are visible to other processes before anything that is
/// written afterwards; those of short ranges are plain stores. If `src` is in the cache or `dst` is
/// read again at once, `copy_from_slice` is faster.
///
/// # Panics
/// When the lengths differ.
pub fn copy(src: &[u8], dst: &mut [u8]) {
    assert_eq!(src.len(), dst.len(), "blocks of unequal length");
    if src.len() >= TUNING.stream_from_bytes {
        pages::stream(src, dst)
    } else {
        dst.copy_from_slice(src)
    }
}

/// Copies as [`copy`] does and passes the checksum of each cell of `cell_bytes` (the last may be
/// shorter) to `each`. The source is read once.
///
/// # Panics
/// When the lengths differ, or `cell_bytes` is 0.
pub fn copy_summed(src: &[u8], dst: &mut [u8], cell_bytes: usize, mut each: impl FnMut(u64)) {
    pages::stream_in_pieces(src, dst, cell_bytes, |cell| each(checksum(cell)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_every_length_and_alignment_and_nothing_else() {
        let src: Vec<u8> =
            (0..2 * TUNING.stream_from_bytes).map(|i| (i * 31 % 251) as u8).collect();
        for bytes in
            [0, 1, 63, 100, TUNING.stream_from_bytes - 1, TUNING.stream_from_bytes, 20001, 20031]
        {
            for (from, to) in [(0, 0), (1, 0), (0, 1), (8, 63), (5, 64)] {
                let mut dst = vec![0xee; bytes + 200];
                copy(&src[from..from + bytes], &mut dst[to..to + bytes]);
                assert_eq!(dst[to..to + bytes], src[from..from + bytes], "{bytes} {from} {to}");
                assert!(dst[..to].iter().chain(&dst[to + bytes..]).all(|&b| b == 0xee));
                for cell_bytes in [8, 100, 2048] {
                    let (src, mut summed) = (&src[from..from + bytes], vec![0; bytes]);
                    let mut sums = Vec::new();
                    copy_summed(src, &mut summed, cell_bytes, |sum| sums.push(sum));
                    assert_eq!(summed, src);
                    let expected = src.chunks(cell_bytes).map(checksum);
                    assert!(expected.eq(sums), "{bytes} {cell_bytes}");
                }
            }
        }
    }

    #[test]
    fn checksum_is_xxh3_and_sees_every_bit() {
        // The value that the specification of XXH3 gives for no input.
        assert_eq!(checksum(&[]), 0x2d06_8005_38d3_94c2);
        let data = vec![7u8; 300];
        for bit in 0..data.len() * 8 {
            let mut other = data.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(checksum(&data), checksum(&other), "bit {bit}");
        }
        assert_ne!(checksum(&data), checksum(&data[1..]));
    }
}
