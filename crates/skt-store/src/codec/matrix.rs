//! The generator matrix of the Reed-Solomon code, and the inversion of a part of it.

use super::gf256::{inv, mul};

/// An element of the generator matrix: the factor of data block `data` in parity `parity`.
///
/// It is a Cauchy matrix `1 / (x_i + y_j)` with `x_i = 255 - i`, `y_j = j`, all distinct as long as
/// `parities + data <= 256`. Each of its square submatrices is invertible, and stays so when rows
/// and columns are scaled: here each by the inverse of its first element, so that the first row and
/// the first column are all ones. One parity is thus plain XOR. An element depends neither on the
/// number of parities nor on that of data blocks.
pub(crate) fn cauchy(parity: usize, data: usize) -> u8 {
    let plain = |i: usize, j: usize| inv((255 - i) as u8 ^ j as u8);
    let row_scale = mul(inv(plain(parity, 0)), plain(0, 0));
    mul(mul(plain(parity, data), inv(plain(0, data))), row_scale)
}

/// The inverse of a square matrix over GF(2^8), by Gauss-Jordan elimination; `None` when it is
/// singular.
pub(crate) fn invert(mut a: Vec<Vec<u8>>) -> Option<Vec<Vec<u8>>> {
    let n = a.len();
    let mut b: Vec<Vec<u8>> = (0..n).map(|i| (0..n).map(|j| u8::from(i == j)).collect()).collect();
    for col in 0..n {
        let pivot = (col..n).find(|&row| a[row][col] != 0)?;
        a.swap(col, pivot);
        b.swap(col, pivot);
        let scale = inv(a[col][col]);
        for j in 0..n {
            a[col][j] = mul(a[col][j], scale);
            b[col][j] = mul(b[col][j], scale);
        }
        for row in (0..n).filter(|&row| row != col) {
            let factor = a[row][col];
            for j in 0..n {
                a[row][j] ^= mul(factor, a[col][j]);
                b[row][j] ^= mul(factor, b[col][j]);
            }
        }
    }
    Some(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_row_and_column_are_ones_and_none_is_zero() {
        for i in 0..128 {
            assert_eq!((cauchy(0, i), cauchy(i, 0)), (1, 1));
            assert!((0..127).all(|j| cauchy(i, j) != 0));
        }
    }

    #[test]
    fn inverse_times_matrix_is_one_and_singular_is_seen() {
        let a: Vec<Vec<u8>> = (0..5).map(|i| (0..5).map(|j| cauchy(i, j + 3)).collect()).collect();
        let b = invert(a.clone()).unwrap();
        let product = |i: usize, j: usize| (0..5).fold(0, |sum, k| sum ^ mul(b[i][k], a[k][j]));
        for (i, j) in (0..25).map(|ij| (ij / 5, ij % 5)) {
            assert_eq!(product(i, j), u8::from(i == j), "({i}, {j})");
        }
        assert_eq!(invert(vec![vec![3, 5], vec![3, 5]]), None);
    }
}
