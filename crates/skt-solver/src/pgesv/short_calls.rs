//! Whether the BLAS gives a product the same bits in one call and in several.

use std::ops::Range;
use std::sync::OnceLock;

use crate::blas::bf16::Bf16;
use crate::blas::{Element, MatMut, MatRef, RoundedProducts, gemm};
use crate::tuning::TUNING;

/// Whether a product has the same bits in one call of the BLAS as with a short call before the
/// rest. If not, no call is shortened for a late panel. Probes the BLAS at the first call in a
/// process; call it before time counts.
///
/// BLIS 0.9.0 chooses by the size between two algorithms that round differently.
///
/// The answer is that for GEMM or, if given, for the `products` of the process.
pub(super) fn short_ones_keep_bits<T: Element>(products: Option<T::Rounded>) -> bool {
    static KEEP_BITS: [OnceLock<bool>; 2] = [OnceLock::new(), OnceLock::new()];
    static ROUNDED_KEEP_BITS: OnceLock<bool> = OnceLock::new();
    match products {
        None => *KEEP_BITS[T::PER_DOUBLE - 1]
            .get_or_init(|| keeps_bits(|l, u, a2: MatMut<T>| gemm(T::MINUS_ONE, l, u, T::ONE, a2))),
        Some(products) => *ROUNDED_KEEP_BITS.get_or_init(|| {
            keeps_bits(|l, u, a2: MatMut<T>| {
                let (k, cols) = (u.rows(), u.cols());
                let mut packed = vec![Bf16::default(); k * cols];
                products.pack(u, MatMut::row_major(&mut packed, k, cols, cols));
                products.multiply(l, MatRef::row_major(&packed, k, cols, cols), a2);
            })
        }),
    }
}

/// Whether `multiply`, which computes `A2 = A2 - L U`, gives the same bits with a short call first.
fn keeps_bits<T: Element>(multiply: impl Fn(MatRef<T>, MatRef<T>, MatMut<T>)) -> bool {
    let short = TUNING.product_rows_while_passing_on;
    let (rows, cols, k) = (TUNING.product_rows_between_messages, 512, 64);
    // Any numbers whose sums are rounded.
    let numbers = |len: usize, step: f64| -> Vec<T> {
        (1..=len).map(|i| T::rounded((i as f64 * step).fract() - 0.5)).collect()
    };
    let (l, u) = (numbers(rows * k, 2f64.sqrt()), numbers(k * cols, 3f64.sqrt()));
    let mut whole = numbers(rows * cols, 5f64.sqrt());
    let mut in_two = whole.clone();
    let compute = |a: &mut [T], rows: Range<usize>| {
        let l = MatRef::row_major(&l[rows.start * k..rows.end * k], rows.len(), k, k);
        let a2 = MatMut::row_major(&mut a[rows.start * cols..], rows.len(), cols, cols);
        multiply(l, MatRef::row_major(&u, k, cols, cols), a2);
    };
    compute(&mut whole, 0..rows);
    compute(&mut in_two, 0..short);
    compute(&mut in_two, short..rows);
    whole == in_two
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blas::library::use_one_thread;

    /// A product that sums in another order where there are few rows, as BLIS does, and one that
    /// does not.
    #[test]
    fn a_blas_that_rounds_short_products_differently_is_known() {
        let multiply = |l: MatRef, u: MatRef, mut a2: MatMut, backwards: bool| {
            // One column is enough to show the order.
            for i in 0..l.rows() {
                let term = |k: usize| l.at(i, k) * u.at(k, 0);
                let sum: f64 = if backwards {
                    (0..l.cols()).rev().map(term).sum()
                } else {
                    (0..l.cols()).map(term).sum()
                };
                a2.row_mut(i)[0] -= sum;
            }
        };
        assert!(keeps_bits(|l, u, a2| multiply(l, u, a2, false)));
        assert!(!keeps_bits(|l, u, a2| {
            let is_short = l.rows() <= TUNING.product_rows_while_passing_on;
            multiply(l, u, a2, is_short);
        }));
        use_one_thread();
        assert!(short_ones_keep_bits::<f64>(None), "the BLAS of the tests does");
        assert!(short_ones_keep_bits::<f32>(None), "the BLAS of the tests does");
    }
}
